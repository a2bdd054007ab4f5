"""data.py NAME -- makes small random data, in the form that a script expects, in this folder.

NAME is a function of this file.  What is there already is kept.
"""
import json
import pathlib
import pickle
import random
import struct
import sys

def write(path, content):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def picture(path, width=320, height=240, seed=0):
    from PIL import Image
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        Image.frombytes("RGB", (width, height), random.Random(seed).randbytes(width * height * 3)).save(path)


# ---- text ---------------------------------------------------------------------------------


def nanogpt():
    """Tokens of nanoGPT, 16 bits each, and the size of their vocabulary."""
    for part, seed in (("train", 1), ("val", 2)):
        rng = random.Random(seed)
        tokens = [rng.randrange(65) for _ in range(20000)]
        write(f"data/shakespeare_char/{part}.bin", struct.pack(f"{len(tokens)}H", *tokens))
    write("data/shakespeare_char/meta.pkl", pickle.dumps({"vocab_size": 65}))


# ---- pictures -----------------------------------------------------------------------------


def mnist(root="../data"):
    """MNIST's files, of 1024 and 256 random pictures."""
    for part, count in (("train", 1024), ("t10k", 256)):
        rng = random.Random(count)
        write(f"{root}/MNIST/raw/{part}-images-idx3-ubyte",
              struct.pack(">IIII", 0x803, count, 28, 28) + rng.randbytes(count * 784))
        write(f"{root}/MNIST/raw/{part}-labels-idx1-ubyte",
              struct.pack(">II", 0x801, count) + bytes(i % 10 for i in range(count)))


def pictures():
    """pictures/train and pictures/val: ten classes with four pictures each."""
    for part in ("train", "val"):
        for i in range(40):
            picture(f"pictures/{part}/kind{i % 10}/{i}.jpg", 256, 256, i)


def coco():
    """coco: two dozen pictures with three boxes, masks and keypoints each."""
    for part, count in (("train", 16), ("val", 8)):
        images, boxes, rng = [], [], random.Random(count)
        for i in range(count):
            picture(f"coco/{part}2017/{i:012}.jpg", 640, 480, i)
            images.append({"id": i, "file_name": f"{i:012}.jpg", "width": 640, "height": 480})
            for _ in range(3):
                x, y, w, h = rng.randrange(300), rng.randrange(200), rng.randrange(60, 300), rng.randrange(60, 250)
                boxes.append({"id": len(boxes) + 1, "image_id": i, "category_id": rng.randrange(1, 90), "iscrowd": 0,
                              "bbox": [x, y, w, h], "area": w * h, "num_keypoints": 17,
                              "segmentation": [[x, y, x + w, y, x + w, y + h, x, y + h]],
                              "keypoints": [x + w // 2, y + h // 2, 2] * 17})
        content = json.dumps({"images": images, "annotations": boxes,
                              "categories": [{"id": k, "name": f"kind{k}"} for k in range(1, 91)]})
        for kind in ("instances", "person_keypoints"):
            write(f"coco/annotations/{kind}_{part}2017.json", content)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
