#!/usr/bin/env python3
"""sparse.py -- weights as large as a large model's, on a disk that need not hold them.

    tools/sparse.py FOLDER

Writes FOLDER/sparse.safetensors (4 GB, a model of 27 layers in bf16) and
FOLDER/sparse.gguf (40 GB, one of 80 layers in Q4_0, with a vocabulary of 128,000):
headers as they would be, and holes where the weights were.  Each takes less than 8 MiB
of disk where the file system has holes.  Prints path, bytes, tensors and bytes of
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


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    safetensors(folder / "sparse.safetensors")
    gguf(folder / "sparse.gguf")


if __name__ == "__main__":
    main()
