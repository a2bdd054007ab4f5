#!/usr/bin/env python3
"""onnx_large.py -- writes an ONNX file with the weights of a ViT-B/16 in it, 346 MB of
which are a hole: what a reader that skips weights must not notice.

    onnx_large.py FILE
"""

import sys


def varint(v):
    out = b""
    while v > 127:
        out += bytes([v & 127 | 128])
        v >>= 7
    return out + bytes([v])


def num(field, v):
    return varint(field << 3) + varint(v)


def data(field, b):
    return varint(field << 3 | 2) + varint(len(b)) + b


def info(field, name, dims):
    shape = b"".join(data(1, num(1, d) if d else data(2, b"batch")) for d in dims)
    return data(field, data(1, name) + data(2, data(1, num(1, 1) + data(2, shape))))


def node(op, ins, out):
    return data(1, b"".join(data(1, i) for i in ins) + data(2, out) + data(4, op))


W, weights, nodes, x = 768, [], [], b"x"


def weight(name, *dims):
    weights.append((name, dims))
    return name


def step(op, *ins):
    global x
    out = b"v%d" % len(nodes)
    nodes.append(node(op, (x,) + ins, out))
    x = out


weight(b"rest", 86567656 - 12 * 7087872)
for i in range(12):
    p = b"layers.%d." % i
    step(b"LayerNormalization", weight(p + b"ln1.weight", W), weight(p + b"ln1.bias", W))
    for name in (b"q", b"k", b"v", b"out"):
        step(b"MatMul", weight(p + name + b".weight", W, W))
        step(b"Add", weight(p + name + b".bias", W))
    step(b"LayerNormalization", weight(p + b"ln2.weight", W), weight(p + b"ln2.bias", W))
    step(b"MatMul", weight(p + b"up.weight", W, 4 * W))
    step(b"Add", weight(p + b"up.bias", 4 * W))
    step(b"MatMul", weight(p + b"down.weight", 4 * W, W))
    step(b"Add", weight(p + b"down.bias", W))

parts = []  # bytes, or the length of a hole
for name, dims in weights:
    n = 4
    for d in dims:
        n *= d
    head = b"".join(num(1, d) for d in dims) + num(2, 1) + data(8, name)
    head += varint(9 << 3 | 2) + varint(n)
    parts += [varint(5 << 3 | 2) + varint(len(head) + n) + head, n]
parts += [b"".join(nodes) + info(11, b"x", (0, 197, W)) + info(12, x, (0, 197, W))]
size = sum(p if isinstance(p, int) else len(p) for p in parts)
with open(sys.argv[1], "wb") as f:
    f.write(num(1, 8) + varint(7 << 3 | 2) + varint(size))
    for p in parts:
        if isinstance(p, int):
            f.seek(p, 1)
        else:
            f.write(p)
    f.write(data(8, num(2, 17)))
print(f"{sys.argv[1]}: {size} bytes, {len(weights)} weights, {len(nodes)} nodes")
