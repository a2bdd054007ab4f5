#!/usr/bin/env python3
"""torchfile.py -- writes the small files of tests/data/torchfile and what Python says of them.

    python tests/data/torchfile.py            torch 2.13 and numpy; about 50 files of 1 to 8 KB

golden.txt has, file by file, whether torch.load(weights_only=True) takes it, and a line for each
tensor that Python finds in what torch.load (or torch.jit.load) gives back:

    kind name type shape bytes same

`bytes` are counted byte by byte: each storage is an array of marks, tensors mark what they
span in the order of their place, and a tensor has the bytes that it is the first to mark.
`same` is the name of the tensor that marked all of its bytes, or '-'.  Kinds: p parameter,
b buffer, c constant, o optimizer state, x other.
"""

import argparse
import collections
import copy
import io
import json
import os
import pathlib
import pickle
import shutil
import struct
import warnings
import zipfile

import torch
from torch import nn

OUT = pathlib.Path(__file__).parent / "torchfile"
TYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64",
         "float8_e4m3fn": "fp8_e4m3fn", "float8_e5m2": "fp8_e5m2",
         "float8_e4m3fnuz": "fp8_e4m3fnuz", "float8_e5m2fnuz": "fp8_e5m2fnuz",
         "float8_e8m0fnu": "fp8_e8m0fnu"}
BUFFERS = ("running_mean", "running_var")
SEEDS = ("flat.pth flat_legacy.pth flat_legacy_proto4.pth views_legacy.pth quantized.pth sparse.pth "
         "sgd.pt target.pt meta.pth subclass.pt python2.pth script_constant.pt cuda.pt evil_legacy.pth "
         "evil_0.pkl evil_dotted.pkl doubling.pth cycle.pth deep.pth huge.pth old.tar "
         "pytorch_model.bin.index.json legacy_adam.pt legacy_sparse.pt legacy_module.pt").split()
golden = []


# ---- what Python says ---------------------------------------------------------------------


def parts_of(name, t, kind):
    """(name, dense tensor, kind): sparse and quantized tensors are several."""
    if t.layout == torch.sparse_coo:
        return [(name + ".indices", t._indices(), kind), (name + ".values", t._values(), kind)]
    if t.layout != torch.strided:
        row = t.layout in (torch.sparse_csr, torch.sparse_bsr)
        first, second = ((t.crow_indices(), t.col_indices()) if row
                         else (t.ccol_indices(), t.row_indices()))
        return [(name + ".compressed_indices", first, kind), (name + ".indices", second, kind),
                (name + ".values", t.values(), kind)]
    found = [(name, t, kind)]
    if t.is_quantized and t.qscheme() == torch.per_channel_affine:
        found += [(name + ".scales", t.q_per_channel_scales(), "x"),
                  (name + ".zero_points", t.q_per_channel_zero_points(), "x")]
    return found


def find(value, name, kind, out):
    """Every tensor in it, with the name that leads there."""
    def under(key):
        return f"{name}.{key}" if name else str(key)

    if isinstance(value, torch.Tensor):
        out += parts_of(name or "tensor", value, kind)
    elif isinstance(value, (torch.storage.TypedStorage, torch.UntypedStorage)):
        if isinstance(value, torch.UntypedStorage):
            value = torch.storage.TypedStorage(wrap_storage=value, dtype=torch.uint8, _internal=True)
        t = torch.empty(0, dtype=value.dtype)
        out.append((name or "tensor", t.set_(value._untyped_storage, 0, (len(value),)), kind))
    elif isinstance(value, nn.Module):
        for key in value.__dict__:
            if key in ("_parameters", "_buffers"):
                for k, t in value.__dict__[key].items():
                    find(t, under(k), "p" if key == "_parameters" else "b", out)
            elif key == "_modules":
                for k, m in value.__dict__[key].items():
                    find(m, under(k), kind, out)
            else:
                find(value.__dict__[key], under(key), "x", out)
    elif isinstance(value, dict) and "param_groups" in value and "state" in value:
        for key in value:
            find(value[key], under(key), "o" if key == "state" else "x", out)
    elif isinstance(value, dict):
        for key, item in value.items():
            find(item, under(key), kind, out)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            find(item, under(i), kind, out)


def is_buffer(name, t):
    return name.rsplit(".", 1)[-1] in BUFFERS or t.dtype in (torch.int64, torch.bool)


def span(t):
    """First and last byte (not included) of the storage that it spans."""
    if not t.numel():
        return 0, 0
    reach = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride()))
    first = t.storage_offset() * t.element_size()
    return first, first + reach * t.element_size()


def type_of(t):
    name = str(t.dtype).removeprefix("torch.")
    return TYPES.get(name, name)


def names(file):
    """Whether weights_only=True takes it: "weights", "code"; "-" if that is another question."""
    if file.endswith(".json") or file.startswith("script") or "proto4" in file:
        return "-"
    try:
        torch.load(OUT / file, weights_only=True)
    except pickle.UnpicklingError as e:
        assert "Unsupported global" in str(e) or "torch.nn.modules" in str(e), e
        return "code"
    return "weights"


def say(file, tensors):
    rows = [("b" if kind == "p" and is_buffer(name, t) else kind, name, t,
             *(span(t) if t.device.type != "meta" else (0, 0))) for name, t, kind in tensors]
    marks, owner, own = {}, {}, {}
    order = sorted(range(len(rows)), key=lambda i: (rows[i][3], -rows[i][4],
                                                    "pbcox".index(rows[i][0]), i))
    for i in order:
        kind, name, t, first, end = rows[i]
        if t.device.type == "meta":
            own[i] = (t.numel() * t.element_size(), "-")
            continue
        place = t.untyped_storage().data_ptr() if t.numel() else None
        mark = marks.setdefault(place, {})
        new = [b for b in range(first, end) if b not in mark]
        for b in new:
            mark[b] = name
        if new:
            owner[place] = name
        own[i] = (len(new), "-" if new or first == end else owner[place])
    golden.append(f"= {file} {names(file)}")
    for i, (kind, name, t, _, _) in enumerate(rows):
        shape = ",".join(map(str, t.shape)) or "()"
        golden.append(f"{kind} {name} {type_of(t)} {shape} {own[i][0]} {own[i][1]}")


def others(tensors, names):
    """Kinds that a person gives: tensors of these top items are no parameters."""
    return [(n, t, "x" if n.split(".")[0] in names and k in "pb" else k) for n, t, k in tensors]


def save(file, value, also=(), golden_of=None, **options):
    torch.save(value, OUT / file, **options)
    back = torch.load(OUT / file, weights_only=False)
    tensors = []
    find(back if golden_of is None else golden_of, "", "p", tensors)
    say(file, others(tensors, also))


# ---- models --------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.conv = nn.Conv1d(4, 3, 1, bias=False)
        self.bn = nn.BatchNorm1d(3)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.bn(self.conv(self.embed(x).transpose(1, 2)))


def small():
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


def train(model, make, steps=2):
    opt = make(model.parameters())
    for _ in range(steps):
        opt.zero_grad()
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        opt.step(*([lambda: torch.ones(())] if isinstance(opt, torch.optim.LBFGS) else []))
    return opt


class Tagged(torch.Tensor):
    pass


# ---- files ------------------------------------------------------------------------------------


def plain():
    net = Net()
    save("flat.pth", net.state_dict())
    save("flat_legacy.pth", net.state_dict(), _use_new_zipfile_serialization=False)
    save("flat_proto4.pth", net.state_dict(), pickle_protocol=4)
    save("flat_legacy_proto4.pth", net.state_dict(), pickle_protocol=4,
         _use_new_zipfile_serialization=False)
    save("ddp.pth", {"module." + k: v for k, v in net.state_dict().items()})
    save("tensor.pt", torch.arange(6).reshape(2, 3))
    save("list.pt", [torch.ones(2), (torch.zeros(3, dtype=torch.int16), 5), {}])
    save("storage.pt", {"typed": torch.ones(3).storage(), "bytes": torch.UntypedStorage(5)})
    save("parameters.pt", [nn.Parameter(torch.ones(2, 2)), nn.Buffer(torch.ones(2)),
                           nn.Parameter(torch.ones(3), requires_grad=False)])
    save("meta.pth", nn.Linear(3, 4, device="meta").state_dict())
    tag = torch.ones(2).as_subclass(Tagged)
    with_attribute = torch.ones(3)
    with_attribute.note = torch.ones(7)  # not listed, but it has a storage
    for file, options in (("subclass.pt", {}), ("subclass_legacy.pt",
                                                {"_use_new_zipfile_serialization": False})):
        torch.save({"tag": tag, "plain": with_attribute}, OUT / file, **options)
        say(file, [("tag", torch.ones(2), "p"), ("plain", torch.ones(3), "p")])


def views():
    base = torch.arange(24.0).reshape(4, 6)
    other, wide = torch.arange(10.0), torch.zeros(2, 3, 4, 5)
    tensors = {"whole": base, "t": base.t(), "row": base[1], "part": base[2:4, 1:3],
               "left": other[:6], "overlap": other[4:8], "odd": other[1::2],
               "slice": torch.arange(100.0)[10:14], "expanded": torch.ones(1).expand(1000),
               "empty": torch.empty(0, 3), "scalar": torch.tensor(3.0),
               "last": wide.contiguous(memory_format=torch.channels_last),
               "gap": torch.arange(8.0)[::2]}
    save("views.pth", tensors)
    save("views_legacy.pth", tensors, _use_new_zipfile_serialization=False)
    flat = torch.zeros(10)
    save("flattened.pth", {"weight_ih_l0": flat[:6].view(3, 2), "weight_hh_l0": flat[6:].view(2, 2)})


def dtypes():
    names = ("float32 float16 bfloat16 float64 int64 int32 int16 int8 uint8 bool uint16 uint32 uint64 "
             "complex32 complex64 complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz "
             "float8_e5m2fnuz float8_e8m0fnu").split()
    save("dtypes.pth", {n: torch.zeros(3, dtype=getattr(torch, n)) for n in names})
    dense = torch.eye(4)
    save("sparse.pth", {"coo": dense.to_sparse_coo(), "csr": dense.to_sparse_csr(),
                        "csc": dense.to_sparse_csc(), "bsr": dense.to_sparse_bsr((2, 2))})
    q = torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 3, torch.quint8)
    c = torch.quantize_per_channel(torch.ones(2, 3), torch.tensor([0.1, 0.2]), torch.tensor([0, 1]),
                                   0, torch.qint8)
    torch.save({"tensor": q, "channel": c}, OUT / "quantized.pth")
    say("quantized.pth", parts_of("tensor", q, "p") + parts_of("channel", c, "p"))


def checkpoints():
    torch.manual_seed(0)
    for name, make in (
            ("sgd", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-4)),
            ("adam", lambda p: torch.optim.Adam(p, lr=3e-4)),
            ("adamw_amsgrad", lambda p: torch.optim.AdamW(p, lr=1e-3, amsgrad=True)),
            ("adam_capturable", lambda p: torch.optim.Adam(p, capturable=True))):
        model = small()
        opt = None
        if name == "adam_capturable":  # the optimizer itself needs a card for it
            opt = train(model, lambda p: torch.optim.Adam(p)).state_dict()
            opt["param_groups"][0]["capturable"] = True
        else:
            opt = train(model, make).state_dict()
        save(f"{name}.pt", {"epoch": 3, "model": model.state_dict(), "optimizer": opt,
                            "best_acc": 0.75, "name": name, "loss": torch.tensor(0.5)},
             also=("loss",))
    model = small()
    opt = train(model, torch.optim.Adam)
    schedule = torch.optim.lr_scheduler.StepLR(opt, 30)
    ema = {"decay": 0.99, "module": {"module." + k: v.clone() for k, v in model.state_dict().items()}}
    save("full.pt", {"ema": ema, "state_dict": {"module." + k: v for k, v in model.state_dict().items()},
                     "optimizer_states": [opt.state_dict()], "lr_schedulers": [schedule.state_dict()],
                     "rng_state": torch.zeros(16, dtype=torch.uint8), "epoch": 12,
                     "pytorch-lightning_version": "2.5.0"}, also=("ema", "rng_state"))
    save("optimizer.pt", opt.state_dict())
    save("generator.pt", {"G": nn.Linear(2, 2).state_dict(), "D": nn.Linear(2, 1).state_dict(),
                          "nested": {"text": {"embed": {"weight": torch.ones(2, 2)}}}})
    save("extra.pt", {**nn.Linear(3, 2).state_dict(), "extra": {"scale": torch.ones(1)}})
    twin = nn.Linear(3, 1)
    save("target.pt", {"target_q": twin.state_dict(), "q": copy.deepcopy(twin).state_dict(),
                       "q2": nn.Linear(3, 1).state_dict()}, also=("target_q",))
    every = {}
    for name in sorted(dir(torch.optim)):
        kind = getattr(torch.optim, name)
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and name not in (
                "Optimizer", "SparseAdam"):
            every[name] = train(nn.Linear(2, 1, bias=False), kind).state_dict()
    save("optimizers.pt", every)


def without_paths(file):
    """TorchScript says where its source was: not here."""
    with zipfile.ZipFile(OUT / file) as src:
        members = [(i, src.read(i)) for i in src.infolist()]
    with zipfile.ZipFile(OUT / file, "w") as dst:
        for info, data in members:
            if not info.filename.endswith(".debug_pkl"):
                dst.writestr(zipfile.ZipInfo(info.filename), data)


def whole_models():
    save("module.pt", small())
    # with the source of its classes, but not where that was on this machine
    torch.serialization.get_source_lines_and_file = lambda obj: (["class X:\n"], 1, "x.py")
    save("module_legacy.pt", small(), _use_new_zipfile_serialization=False)
    tied = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.ReLU()})
    tied["c"] = tied["a"]
    save("module_tied.pt", {"model": tied, "epoch": 1})
    script = torch.jit.script(small())
    script.save(str(OUT / "script.pt"))
    without_paths("script.pt")
    say("script.pt", [(n, t, "p") for n, t in script.state_dict().items()])
    constant = torch.arange(3.0)
    traced = torch.jit.trace(lambda x: x + constant, torch.zeros(3))
    traced.save(str(OUT / "script_constant.pt"))
    without_paths("script_constant.pt")
    say("script_constant.pt", [("constants.0", torch.arange(3.0), "c")])


def elsewhere():
    """As if from a card; from a big-endian machine; from Python 2; old calls."""
    class OnCard:
        tag = staticmethod(lambda storage: "cuda:0")

    registry = torch.serialization._package_registry
    registry.insert(0, (0, OnCard.tag, lambda storage, location: storage
                        if location == "cuda:0" else None))
    save("cuda.pt", {"w": torch.ones(4)})
    registry.pop(0)

    with zipfile.ZipFile(OUT / "flat.pth") as src, zipfile.ZipFile(OUT / "big.pth", "w") as dst:
        for info in src.infolist():
            data = src.read(info)
            name = info.filename.replace("flat/", "big/")
            dst.writestr(zipfile.ZipInfo(name), b"big" if name == "big/byteorder" else data)
    tensors = []
    find(torch.load(OUT / "flat.pth"), "", "p", tensors)
    say("big.pth", tensors)

    class Pairs(dict):
        def __reduce__(self):
            return collections.OrderedDict, ([[k, v] for k, v in self.items()],)

    save("python2.pth", Pairs(w=torch.ones(2), b=torch.ones(1)), _use_new_zipfile_serialization=False)
    import numpy
    save("arguments.pt", {"model": nn.Linear(2, 1).state_dict(), "args": argparse.Namespace(lr=0.1),
                          "path": pathlib.PurePosixPath("a/b"), "best": numpy.float64(0.5),
                          "again": argparse.Namespace()})


def shards():
    net = Net()
    state = dict(net.state_dict())
    names = list(state)
    files = {"pytorch_model-00001-of-00002.bin": names[:3], "pytorch_model-00002-of-00002.bin": names[3:]}
    index = {"metadata": {"total_size": sum(state[n].nbytes for n in names if n != "head.weight") +
                          state["head.weight"].nbytes}, "weight_map": {}}
    tensors = []
    for file, keys in files.items():
        torch.save({k: state[k].clone() for k in keys}, OUT / file)
        index["weight_map"].update({k: file for k in keys})
        find({k: state[k].clone() for k in keys}, "", "p", tensors)
    (OUT / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=1) + "\n")
    say("pytorch_model.bin.index.json", tensors)


# ---- files that are not weights ---------------------------------------------------------------


class Runs:
    def __init__(self, fn, *args):
        self.call = fn, args

    def __reduce__(self):
        return self.call


def evil():
    runs = Runs(os.system, "echo this must never be seen")
    torch.save({"weight": torch.ones(2), "x": runs}, OUT / "evil.pth")
    torch.save({"weight": torch.ones(2), "x": runs}, OUT / "evil_legacy.pth",
               _use_new_zipfile_serialization=False)
    for protocol in range(6):
        (OUT / f"evil_{protocol}.pkl").write_bytes(pickle.dumps(runs, protocol=protocol))
    torch.save(Runs(eval, "1"), OUT / "evil_eval.pth")
    (OUT / "evil_dotted.pkl").write_bytes(
        b"\x80\x04\x8c\x05torch\x8c\x17serialization.os.system\x93\x8c\x04true\x85R.")
    (OUT / "evil_call.pkl").write_bytes(
        b"\x80\x04\x8c\x08builtins\x8c\x0deval.__call__\x93\x8c\x011\x85R.")
    (OUT / "evil_named.pkl").write_bytes(b"\x80\x02]cposix\nsystem\na.")
    (OUT / "evil_inst.pkl").write_bytes(b"(S'true'\nios\nsystem\n.")
    (OUT / "plain.pkl").write_bytes(pickle.dumps({"a": [1, 2]}, protocol=4))


def legacy():
    """For the fuzzer: without a checksum before the pickle."""
    model, old = small(), {"_use_new_zipfile_serialization": False}
    save("legacy_adam.pt", {"model": model.state_dict(), "ema": copy.deepcopy(model.state_dict()),
                            "optimizer": train(model, torch.optim.Adam).state_dict()},
         also=("ema",), **old)
    q = torch.quantize_per_channel(torch.ones(2, 3), torch.tensor([0.1, 0.2]), torch.tensor([0, 1]),
                                   0, torch.qint8)
    torch.save([torch.eye(2).to_sparse_coo(), q, torch.empty(2, device="meta")], OUT / "legacy_sparse.pt", **old)
    say("legacy_sparse.pt", parts_of("0", torch.eye(2).to_sparse_coo(), "p") + parts_of("1", q, "p")
        + [("2", torch.empty(2, device="meta"), "p")])
    save("legacy_module.pt", nn.Linear(2, 1), **old)


def pickle_archive(file, data, records=(), method=zipfile.ZIP_STORED):
    """An archive of exactly this pickle."""
    with zipfile.ZipFile(OUT / file, "w") as z:
        stem = file.split(".")[0]
        for name, content in [("data.pkl", data), ("version", b"3\n"), *records]:
            z.writestr(zipfile.ZipInfo(f"{stem}/{name}"), content, method)


def tensor_pickle(numel, offset, size, stride, key=b"0", put=b""):
    def number(i):
        raw = i.to_bytes((i.bit_length() + 8) // 8, "little", signed=True)
        return b"\x8a" + bytes([len(raw)]) + raw

    def numbers(values):
        return b"(" + b"".join(map(number, values)) + b"t"

    return (b"ctorch._utils\n_rebuild_tensor_v2\n(" b"(X\x07\0\0\0storagectorch\nFloatStorage\nX"
            + struct.pack("<I", len(key)) + key + b"X\3\0\0\0cpu" + number(numel) + b"tQ" + put
            + number(offset) + numbers(size) + numbers(stride) + b"\x89}tR")


def broken():
    def state(tensor):
        return b"\x80\x02}X\1\0\0\0w" + tensor + b"s."

    four = [("data/0", b"\0" * 16)]
    pickle_archive("huge.pth", state(tensor_pickle(2**61, 0, [2**63 - 1], [1])), four)
    pickle_archive("huge_product.pth", state(tensor_pickle(4, 0, [2**32, 2**32], [1, 1])), four)
    pickle_archive("huge_offset.pth", state(tensor_pickle(4, 2**62, [4], [1])), four)
    pickle_archive("huge_long.pth", state(tensor_pickle(4, 0, [2**64], [1])), four)
    pickle_archive("beyond.pth", state(tensor_pickle(4, 1, [4], [1])), four)
    pickle_archive("negative.pth", state(tensor_pickle(4, 0, [-4], [1])), four)
    pickle_archive("short.pth", state(tensor_pickle(5, 0, [5], [1])), four)
    pickle_archive("missing.pth", state(tensor_pickle(4, 0, [4], [1], key=b"1")), four)
    pickle_archive("ranks.pth", state(tensor_pickle(1, 0, [1] * 9, [1] * 9)), four)
    pickle_archive("strides.pth", state(tensor_pickle(1, 0, [1, 1], [1])), four)
    two = tensor_pickle(4, 0, [4], [1])
    pickle_archive("sizes.pth", b"\x80\x02}(X\1\0\0\0a" + two + b"X\1\0\0\0b"
                   + tensor_pickle(3, 0, [3], [1]) + b"u.", four)
    # a list in a list in a list, each twice: 2^40 tensors if one walks them all
    bomb = b"\x80\x02" + tensor_pickle(4, 0, [4], [1])
    bomb += b"q\0"
    for i in range(40):
        bomb += b"](h" + bytes([i]) + b"h" + bytes([i]) + b"eq" + bytes([i + 1])
    pickle_archive("doubling.pth", bomb + b".", four)
    # a dict that holds itself, and a tensor
    pickle_archive("cycle.pth", b"\x80\x02}q\0(X\1\0\0\0aX\1\0\0\0bX\1\0\0\0ch\0X\1\0\0\0w"
                   + two + b"u.", four)
    pickle_archive("deep.pth", b"\x80\x02" + b"](" * 200 + two + b"e" * 200 + b".", four)
    # objects whose state is an object; scales of scales
    pickle_archive("deep_state.pth", b"\x80\x02" + b"cm\nn\n)R" * 100000 + b"b" * 99999 + b".",
                   method=zipfile.ZIP_DEFLATED)
    scaled = b"ctorch._utils\n_rebuild_qtensor\n((" + two[two.index(b"X\7"):two.index(b"Q") + 1]
    scaled += b"K\0K\4\x85K\1\x85(N"
    pickle_archive("deep_scales.pth", b"\x80\x02" + scaled * 3000 + two
                   + b"NNt\x89}tR" * 3000 + b".", four, zipfile.ZIP_DEFLATED)
    # 10,000 times an object with 10,000 keys, at a depth where it is no longer looked into
    pickle_archive("wide.pth", b"\x80\x02cm\nn\n)R}(" + b"K\1N" * 10000 + b"ubq\0" + b"](" * 63
                   + b"h\0" * 10000 + b"e" * 63 + b".", method=zipfile.ZIP_DEFLATED)
    pickle_archive("long_name.pth", b"\x80\x02ctorch\n" + b"a." * 300 + b"b\n.")
    pickle_archive("memo.pth", b"\x80\x02]r\xff\xff\xff\xff.", four)
    pickle_archive("underflow.pth", b"\x80\x02(0e.", four)

    # deflated to a thousandth
    with zipfile.ZipFile(OUT / "bomb.pth", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        z.writestr(zipfile.ZipInfo("bomb/data.pkl"), b"\x80\x02" + b"(" * (1 << 20) + b".",
                   zipfile.ZIP_DEFLATED)
    raw = bytearray((OUT / "bomb.pth").read_bytes())
    big = (3 << 30).to_bytes(4, "little")  # the directory promises 3 GiB
    at = raw.rindex(b"PK\1\2")
    raw[at + 24:at + 28] = big
    (OUT / "bomb_size.pth").write_bytes(raw)

    # the directory says data.pkl, the member says otherwise; and one name twice
    pickle_archive("renamed.pth", state(two), four)
    raw = bytearray((OUT / "renamed.pth").read_bytes())
    at = raw.index(b"renamed/data.pkl")
    raw[at:at + 16] = b"renamed/data.pkx"
    (OUT / "renamed.pth").write_bytes(raw)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pickle_archive("twice.pth", state(two), four + [("data.pkl", b"\x80\x02N.")])
    pickle_archive("encrypted.pth", state(two), four)
    raw = bytearray((OUT / "encrypted.pth").read_bytes())
    for mark, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        raw[raw.index(mark) + at] |= 1
    (OUT / "encrypted.pth").write_bytes(raw)

    header = bytearray(512)
    header[:8] = b"sys_info"
    header[257:262] = b"ustar"
    (OUT / "old.tar").write_bytes(header)


def main():
    warnings.filterwarnings("ignore")
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    for part in (plain, views, dtypes, checkpoints, whole_models, elsewhere, shards, evil, legacy, broken):
        part()
    seeds = OUT.parent.parent / "fuzz/corpus/torch"
    shutil.rmtree(seeds, ignore_errors=True)
    seeds.mkdir()
    for name in SEEDS:
        shutil.copy(OUT / name, seeds / name)
    head = [f"# torch {torch.__version__}: by ../torchfile.py"]
    (OUT / "golden.txt").write_text("\n".join(head + golden) + "\n")


if __name__ == "__main__":
    main()
