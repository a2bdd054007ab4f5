#!/usr/bin/env python3
"""pickles.py -- writes pickles.txt: pickles, and what Python's own unpickler makes of them.

    python tests/data/pickles.py            any Python from 3.8 on; also some of them as seeds
                                            into tests/fuzz/corpus/pickle

Each line is a pickle in hexadecimal and its value as text.  Python reads them with its
Unpickler in Python (pickle._Unpickler), whose find_class gives a name that notes how it is
called, so that here too nothing is imported.  Every opcode of protocols 0 to 5 occurs, but
for those that are refused.
"""

import collections
import io
import pathlib
import pickle
import pickletools
import struct

REFUSED = {"EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER"}


class Call:
    def __init__(self, fn, args, state=None):
        self.fn, self.args, self.state, self.items, self.pairs = fn, args, state, [], []

    def __call__(self, *args):
        return Call(self, args)

    def __setstate__(self, state):
        self.state = state

    def __setitem__(self, key, value):
        self.pairs.append((key, value))

    def append(self, item):
        self.items.append(item)

    add = append

    def __hash__(self):
        return id(self)


class Global:
    def __init__(self, module, name):
        self.module, self.name = module, name
        self.__new__ = lambda cls, *args, **kw: Call(cls, args, kw or None)

    def __call__(self, *args):
        return Call(self, args)


class Persistent:
    def __init__(self, pid):
        self.pid = pid


class Inert(pickle._Unpickler):
    def find_class(self, module, name):
        return Global(module, name)

    def persistent_load(self, pid):
        return Persistent(pid)


def text(v, digits=False):
    def many(values):
        return " ".join(text(x, digits) for x in values)

    if v is None or isinstance(v, bool):
        return str(v)
    if isinstance(v, int):
        if -2**63 <= v < 2**63:
            return str(v)
        raw = str(v).encode() if digits else v.to_bytes(v.bit_length() // 8 + 1, "little", signed=True)
        return "long:" + raw.hex()
    if isinstance(v, float):
        return struct.pack(">d", v).hex() + "f"
    if isinstance(v, str):
        return "s:" + v.encode().hex()
    if isinstance(v, (bytes, bytearray)):
        return "b:" + bytes(v).hex()
    if isinstance(v, list):
        return f"[{many(v)}]"
    if isinstance(v, tuple):
        return f"({many(v)})"
    if isinstance(v, (set, frozenset)):
        assert len(v) < 2  # they have no order
        return "{" + many(v) + "}"
    if isinstance(v, dict):
        return "{" + " ".join(f"{text(k, digits)}={text(x, digits)}" for k, x in v.items()) + "}"
    if isinstance(v, Global):
        return f"<{v.module} {v.name}>"
    if isinstance(v, Persistent):
        return f"@{text(v.pid, digits)}"
    assert isinstance(v, Call), v
    out = f"{text(v.fn, digits)}{text(v.args, digits)}"
    out += f"={text(v.state, digits)}" if v.state is not None else ""
    inside = many(v.items) + " ".join(f"{text(k, digits)}={text(x, digits)}" for k, x in v.pairs)
    return out + (f"[{inside}]" if inside else "")


class Thing:
    def __init__(self):
        self.a, self.b = 1, [2]


class Keywords:
    def __getnewargs_ex__(self):
        return (1,), {"k": 2}

    def __reduce_ex__(self, protocol):
        return super().__reduce_ex__(protocol) if protocol > 1 else (Keywords, ())


class Listed(list):
    pass


shared = [1]
VALUES = [
    None, True, False, 0, 1, 255, 256, 65535, 65536, -1, -129, 2**31 - 1, 2**31, -2**31, 2**32, 2**63 - 1,
    -2**63, 2**63, 2**64, -2**63 - 1, 0x1950a86a20f9469cfc6c, 1 << 2040, 0.0, -0.5, 1e-8, 3e20,
    float("inf"), "", "plain", "x" * 300, b"", b"bytes", b"y" * 300, bytearray(b"arr"), [], [1], [1, 2, 3], (), (1,), (1, 2), (1, 2, 3),
    (1, 2, 3, 4), {}, {"a": 1}, {"a": 1, 2: [3]}, set(), {1}, frozenset([2]), [shared, shared],
    collections.OrderedDict(a=1), Thing(), Keywords(), Listed([1, 2]), list(range(1005)), [[[[[]]]]],
    {"k": ({"x": 1.5}, [None, True])},
]
# what no pickler of today writes
RAW = [
    b"I00\n.", b"I01\n.", b"I7\n.", b"L12L\n.", b"L12\n.", b"F1.5\n.", b"F-1e-05\n.", b"S'q'\n.", b'S"q"\n.',
    b"Vuni\n.", b"\x80\x02N2\x86.", b"N(NN1.", b"NN0.", b"N(0.", b"(K\1K\2d.", b"(K\1K\2l.",
    b"(cm\nn\nK\1o.", b"(K\1im\nn\n.", b"Ppid\n.", b"K\1Q.", b"]p0\ng0\na0K\1.",
    b"K\1p0\n0g0\n.", b"\x8b\x02\0\0\0\xff\x7f.", b"\x8a\0.", b"T\3\0\0\0abc.", b"U\3abc.", b"\x8d\3\0\0\0\0\0\0\0abc.",
    b"\x8e\3\0\0\0\0\0\0\0abc.", b"\x96\3\0\0\0\0\0\0\0abc.", b"B\3\0\0\0abc.", b"K\1r\0\0\0\0j\0\0\0\0\x86.",
    b"K\1r\5\0\0\0j\5\0\0\0\x86.",
    b"\x8f(K\1\x90.", b"(K\1\x91.", b"cm\nn\n)R(K\1K\2e.", b"cm\nn\n)RK\1a.", b"cm\nn\n)\x81K\1K\2s}b.",
    b"cm\nn\n)}U\1kK\2s\x92.", b"\x95\x02\0\0\0\0\0\0\0K\1.", b"J\xff\xff\xff\xff.", b"(t.", b"(d.", b"(l.",
]


def main():
    lines, seen = [], set()
    for protocol in range(6):
        for value in VALUES:
            if protocol == 0 and isinstance(value, (bytes, bytearray)):
                continue  # escapes are left as they are written
            lines.append(pickle.dumps(value, protocol))
    lines += RAW
    out = ["# by pickles.py: a pickle, and its value"]
    for data in lines:
        ops = [op for op, _, _ in pickletools.genops(data)]
        seen |= {op.name for op in ops}
        digits = any(op.name in ("LONG", "INT") for op in ops)
        out.append(f"{data.hex()} {text(Inert(io.BytesIO(data), encoding='latin-1').load(), digits)}")
    missing = {op.name for op in pickletools.opcodes} - seen - REFUSED
    assert not missing, missing
    here = pathlib.Path(__file__).parent
    (here / "pickles.txt").write_text("\n".join(out) + "\n")
    seeds = here.parent / "fuzz/corpus/pickle"
    seeds.mkdir(exist_ok=True)
    for protocol in range(6):
        small = [v for v in VALUES if len(pickle.dumps(v, 4)) < 100 and not isinstance(v, (bytes, bytearray))]
        (seeds / f"protocol{protocol}").write_bytes(pickle.dumps(small, protocol))
    for i, data in enumerate(RAW):
        (seeds / f"raw{i:02}").write_bytes(data)


if __name__ == "__main__":
    main()
