#!/usr/bin/env python3
"""sparse.py -- writes weight files of the size of a large model, without using the disk space.

    tools/sparse.py FOLDER

Writes FOLDER/sparse.safetensors (4 GB, a model of 27 layers in bf16), FOLDER/sparse.gguf
(40 GB, one of 80 layers in Q4_0, with a vocabulary of 128,000) and FOLDER/sparse.onnx (346 MB,
a ViT-B/16): with real headers and graphs, and holes in place of the weights.  Each takes less than 8 MiB
of disk where the file system supports holes.  Prints path, bytes, tensors and bytes of
tensors of each.
"""

import json
import pathlib
import struct
import sys

ALIGNMENT = 32


def layers(n, hidden, ffn, kv):
    """(name, shape as PyTorch has it) of a llama."""
    for i in range(n):
        at = "model.layers.%d." % i
        yield at + "input_layernorm.weight", [hidden]
        yield at + "post_attention_layernorm.weight", [hidden]
        for part, out in (("q", hidden), ("k", kv), ("v", kv), ("o", hidden)):
            yield at + "self_attn.%s_proj.weight" % part, [out, hidden]
        for part in ("gate", "up"):
            yield at + "mlp.%s_proj.weight" % part, [ffn, hidden]
        yield at + "mlp.down_proj.weight", [hidden, ffn]


def product(shape):
    n = 1
    for x in shape:
        n *= x
    return n


def write(path, head, size, tensors, weights):
    with open(path, "wb") as f:
        f.write(head)
        f.truncate(size)
    print(path, size, tensors, weights)


def safetensors(path):
    tensors = [("model.embed_tokens.weight", [32000, 2560])]
    tensors += list(layers(27, 2560, 6912, 1280)) + [("model.norm.weight", [2560])]
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors:
        n = product(shape) * 2
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    write(path, struct.pack("<Q", len(text)) + text, 8 + len(text) + at, len(tensors), at)


# ---- GGUF: types 4 u32, 8 string, 9 list; tensors 0 F32, 2 Q4_0 (18 bytes for 32) -----------

def string(s):
    return struct.pack("<Q", len(s)) + s


def gguf_metadata():
    for key, value in (("block_count", 80), ("context_length", 8192), ("embedding_length", 8192),
                       ("feed_forward_length", 29568), ("attention.head_count", 64),
                       ("attention.head_count_kv", 8)):
        yield string(b"llama." + key.encode()) + struct.pack("<II", 4, value)
    yield string(b"general.architecture") + struct.pack("<I", 8) + string(b"llama")
    yield string(b"general.file_type") + struct.pack("<II", 4, 2)
    words = b"".join(string(b"word%d" % i) for i in range(128000))
    yield string(b"tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 128000) + words
    merges = b"".join(string(b"wo rd%d" % i) for i in range(128000))
    yield string(b"tokenizer.ggml.merges") + struct.pack("<IIQ", 9, 8, 128000) + merges


def gguf(path):
    tensors = [("token_embd.weight", [128000, 8192])]
    tensors += list(layers(80, 8192, 29568, 1024))
    tensors += [("output_norm.weight", [8192]), ("output.weight", [128000, 8192])]
    metadata, infos, at, end, weights = list(gguf_metadata()), b"", 0, 0, 0
    for name, shape in tensors:
        kind = 0 if len(shape) == 1 else 2
        n = product(shape) * 4 if kind == 0 else product(shape) // 32 * 18
        infos += string(name.encode()) + struct.pack("<I", len(shape))
        infos += b"".join(struct.pack("<Q", x) for x in reversed(shape))
        infos += struct.pack("<IQ", kind, at)
        end, weights = at + n, weights + n
        at = -(-end // ALIGNMENT) * ALIGNMENT
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(metadata) + infos
    data = -(-len(head) // ALIGNMENT) * ALIGNMENT
    write(path, head, data + end, len(tensors), weights)


# ---- ONNX: protobuf fields, a number each and a length or a value -----------------------


def varint(v):
    out = b""
    while v > 127:
        out += bytes([v & 127 | 128])
        v >>= 7
    return out + bytes([v])


def number(field, v):
    return varint(field << 3) + varint(v)


def data(field, b):
    return varint(field << 3 | 2) + varint(len(b)) + b


def value_info(field, name, dims):
    shape = b"".join(data(1, number(1, d) if d else data(2, b"batch")) for d in dims)
    return data(field, data(1, name) + data(2, data(1, number(1, 1) + data(2, shape))))


def vit_steps(width):
    """(operator, (weight, shape) of each operand but the first) of 12 layers."""
    for i in range(12):
        at = b"layers.%d." % i
        yield b"LayerNormalization", [(at + b"ln1.weight", [width]), (at + b"ln1.bias", [width])]
        for part in (b"q", b"k", b"v", b"out"):
            yield b"MatMul", [(at + part + b".weight", [width, width])]
            yield b"Add", [(at + part + b".bias", [width])]
        yield b"LayerNormalization", [(at + b"ln2.weight", [width]), (at + b"ln2.bias", [width])]
        yield b"MatMul", [(at + b"up.weight", [width, 4 * width])]
        yield b"Add", [(at + b"up.bias", [4 * width])]
        yield b"MatMul", [(at + b"down.weight", [4 * width, width])]
        yield b"Add", [(at + b"down.bias", [width])]


def onnx(path, width=768):
    tensors, nodes, x = [(b"rest", [86567656 - 12 * 7087872])], b"", b"x"
    for i, (op, weights) in enumerate(vit_steps(width)):
        tensors += weights
        ins = b"".join(data(1, name) for name in [x] + [w for w, _ in weights])
        x = b"v%d" % i
        nodes += data(1, ins + data(2, x) + data(4, op))
    parts = []  # bytes, or the length of a hole
    for name, shape in tensors:
        n = 4 * product(shape)
        head = b"".join(number(1, d) for d in shape) + number(2, 1) + data(8, name) + varint(9 << 3 | 2) + varint(n)
        parts += [varint(5 << 3 | 2) + varint(len(head) + n) + head, n]
    parts += [nodes + value_info(11, b"x", (0, 197, width)) + value_info(12, x, (0, 197, width))]
    graph = sum(p if isinstance(p, int) else len(p) for p in parts)
    with open(path, "wb") as f:
        f.write(number(1, 8) + varint(7 << 3 | 2) + varint(graph))
        for p in parts:
            if isinstance(p, int):
                f.seek(p, 1)
            else:
                f.write(p)
        f.write(data(8, number(2, 17)))
        size = f.tell()
    print(path, size, len(tensors), 4 * sum(product(shape) for _, shape in tensors))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    safetensors(folder / "sparse.safetensors")
    gguf(folder / "sparse.gguf")
    onnx(folder / "sparse.onnx")


if __name__ == "__main__":
    main()
