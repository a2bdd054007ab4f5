#!/usr/bin/env python3
"""Records what the CUDA host code of PyTorch asks its allocator for, op by op and net by net.

    PLIMSOLL=build/plimsoll CUDA_PYTHON=python3 tests/golden/cuda/record.py                    ops.txt, nets.txt, reductions.txt
    PLIMSOLL=build/plimsoll CUDA_PYTHON=python3 tests/golden/cuda/record.py nets-2.4.txt CARD  the nets alone, or reductions-2.4.txt

Needs a CUDA build of PyTorch and no GPU: each card is a pretend one, under the stub libraries of
src/vgpu/cuda_stub. Everything above CUDA is PyTorch's own code, its allocator too; cuDNN's workspaces
are 0 here. Written are:

    = CASE             of ops.txt and reductions.txt: a name and its inputs, * marks one that requires grad;
                       of nets.txt: a net
    PHASE CARDS: EVENTS    CARDS: "all", or their names. "first forward": where the first call in a process
                           differs from the second. nets.txt: two iterations of the usual loop

EVENTS: +BYTES a request, counted from 1 in each case; -N request N was given back;
+cublas a request for the workspace of cuBLAS: 8519680 bytes, on the h100-80g 33554432.
"""
import collections
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
CARDS = ("a100-40g", "h100-80g", "rtx4090")
CUBLAS = {"a100-40g": 8519680, "h100-80g": 33554432, "rtx4090": 8519680}  # PyTorch's default workspace
DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64", "i64": "int64", "i32": "int32", "u8": "uint8", "bool": "bool"}


# ---- running: in a process of its own, once for each card ------------------------------------------------------------------------


class Recorder:
    """The allocator's history, cut into phases of cases."""

    def __init__(self, torch):
        self.torch, self.marks = torch, []

    def mark(self, case, phase):
        """From here on; phase "": of no interest, None: a new case."""
        time.sleep(0.002)  # for the thread of autograd, which lets go of the last tensors
        s = self.torch._C._cuda_memoryStats(0)["allocation"]["all"]
        self.marks.append((s["allocated"] + s["freed"], case, phase))

    def rows(self):
        """case: [(phase, events)]"""
        trace = self.torch.cuda.memory._snapshot()["device_traces"][0]
        events = [e for e in trace if e["action"] in ("alloc", "free_requested")]
        out, born, n = collections.OrderedDict(), {}, 0
        for i, (at, case, phase) in enumerate(self.marks):
            end = self.marks[i + 1][0] if i + 1 < len(self.marks) else len(events)
            if phase is None:
                born, n = {}, 0
            row = []
            for e in events[at:end]:
                if e["action"] == "alloc":
                    n += 1
                    born[e["addr"]] = n
                    row.append(f"+{e['size']}")
                elif e["addr"] in born:  # else of an earlier case: the thread of autograd is late
                    row.append(f"-{born.pop(e['addr'])}")
            if phase:
                out.setdefault(case, []).append((phase, " ".join(row)))
        return out


def tensor(torch, spec):
    """"f32[8,64]*" as a tensor; "i64[8]<10" has values below 10, "f32[8,64]T*" is a transpose, "f32[..]L" channels_last."""
    kind, _, rest = spec.partition("[")
    dims, _, flags = rest.partition("]")
    shape = [int(d) for d in dims.split(",") if d]
    dtype = getattr(torch, DTYPES[kind])
    if "T" in flags:
        shape[-1], shape[-2] = shape[-2], shape[-1]
    t = torch.empty(shape, dtype=dtype, device="cuda")
    if "T" in flags:
        t = t.transpose(-1, -2)
    if "L" in flags:
        t = t.to(memory_format=torch.channels_last)
    return t.detach().requires_grad_("*" in flags)


def tensors_of(x):
    if isinstance(x, (tuple, list)):
        return [t for y in x for t in tensors_of(y)]
    return [x] if hasattr(x, "grad_fn") else []


def run_case(torch, rec, case, f, specs):
    inputs = [tensor(torch, s) for s in specs]
    rec.mark(case, None)
    rec.mark(case, "forward")
    out = f(*inputs)
    rec.mark(case, "")
    roots = [t for t in tensors_of(out) if t.grad_fn is not None]
    leaves = [t for t in inputs if t.requires_grad]
    if roots and leaves:
        grads = [torch.empty_like(t) for t in roots]
        rec.mark(case, "backward")
        kept = torch.autograd.grad(roots, leaves, grads, allow_unused=True)
        rec.mark(case, "")
        del kept


def run_ops(torch, cases):
    rec, failed = Recorder(torch), {}
    for name, f, *specs in cases(torch):
        key = " ".join([name, *specs])
        try:
            for _ in range(2):  # what only the first call asks for is told apart
                run_case(torch, rec, key, f, specs)
        except Exception as e:  # an op of a library that is not there
            failed[key] = [("error", str(e).splitlines()[0][:120])]
        rec.mark(key, "")
        torch.cuda.empty_cache()
    out = collections.OrderedDict()
    for key, rows in rec.rows().items():
        first, again = rows[: len(rows) // 2], rows[len(rows) // 2 :]
        out[key] = [("first " + p, e) for (p, e), (_, s) in zip(first, again) if e != s] + again
    return {**out, **failed}


def run_nets(torch):
    sys.path.insert(0, str(HERE.parent / "torch"))
    import nets

    rec, failed = Recorder(torch), {}
    for name, (make, inputs, loss, *rest) in nets.NETS.items():
        try:
            train(torch, rec, name, make, inputs, loss, rest[0] if rest else "sgd")
        except Exception as e:
            failed[name] = [("error", str(e).splitlines()[0][:120])]
        rec.mark(name, "")
        torch.cuda.empty_cache()
    return {**rec.rows(), **failed}


def train(torch, rec, name, make, inputs, loss, optimizer):
    import nets  # run_nets says where

    optimizers = {"sgd": torch.optim.SGD, "sgd,momentum=0.9": lambda p, **kw: torch.optim.SGD(p, momentum=0.9, **kw), "adam": torch.optim.Adam}

    target, fn = nets.LOSSES[loss]
    model = make().train()
    with torch.no_grad():
        out = make()(*inputs)
    y0 = target(nets.main_head(out).contiguous())
    rec.mark(name, None)
    rec.mark(name, "load")
    model = model.cuda()
    rec.mark(name, "")
    spec, _, impl = optimizer.partition(",impl=")
    opt = optimizers[spec]([p for p in model.parameters() if p.requires_grad], lr=1e-6, foreach=impl != "forloop")
    xs, y, out = [None] * len(inputs), None, None
    for step in range(2):
        rec.mark(name, f"{step} inputs")
        new = [x.cuda() for x in inputs]
        new_y = y0.cuda() if y0 is not None else None
        for i in range(len(xs)):
            xs[i], new[i] = new[i], None
        y, new_y = new_y, None
        rec.mark(name, f"{step} zero_grad")
        opt.zero_grad()
        rec.mark(name, f"{step} forward")
        out = model(*xs)
        rec.mark(name, f"{step} loss")
        total = nets.score(fn, out, y)
        rec.mark(name, f"{step} backward")
        total.backward()
        rec.mark(name, f"{step} optimizer")
        opt.step()
    rec.mark(name, "")


# ---- writing --------------------------------------------------------------------------------------------------------------


def cublas(rows):
    """Where the rows differ only by the cards' cuBLAS workspace: that word for it."""
    words = {card: events.split() for card, events in rows.items()}
    if len({len(w) for w in words.values()}) == 1:
        for i in range(len(next(iter(words.values())))):
            if all(w[i] == f"+{CUBLAS[card]}" for card, w in words.items()):
                for w in words.values():
                    w[i] = "+cublas"
    return {card: " ".join(w) for card, w in words.items()}


def merge(by_card, key):
    """The same events once, with the cards that have them."""
    phases = collections.OrderedDict()
    for card in by_card:
        for phase, events in by_card[card].get(key, []):
            phases.setdefault(phase, {})[card] = events
    for phase, rows in phases.items():
        cards = collections.OrderedDict()
        for card, events in cublas(rows).items():
            cards.setdefault(events, []).append(card)
        for events, names in cards.items():
            yield phase, "all" if len(names) == len(by_card) else ",".join(names), events


def write(path, by_card, version):
    lines = [f"# recorded {datetime.date.today()} by: tests/golden/cuda/record.py", f"# torch {version}, cards {', '.join(by_card)}"]
    keys = list(collections.OrderedDict.fromkeys(k for card in by_card for k in by_card[card]))
    for key in keys:
        lines.append(f"= {key}")
        lines += [f"{phase} {cards}: {events}".rstrip() for phase, cards, events in merge(by_card, key)]
    path.write_text("\n".join(lines) + "\n")
    print(f"{path.name}: {len(keys)} cases, {len(lines)} lines")


def inside():
    import torch

    torch.cuda.memory._record_memory_history(max_entries=sys.maxsize)
    sys.path.insert(0, str(HERE))
    import ops
    import reductions

    runs = {"ops": lambda: run_ops(torch, ops.cases), "nets": lambda: run_nets(torch), "reductions": lambda: run_ops(torch, reductions.cases)}
    result = {what: runs[what]() for what in os.environ["PLIMSOLL_WHAT"].split(",")}
    pathlib.Path(os.environ["PLIMSOLL_RECORD"]).write_text(json.dumps({"version": torch.__version__, **result}))


def main(file=None, *cards):
    results, cards = {}, cards or CARDS
    files = {file: re.match("[a-z]+", file)[0]} if file else {"ops.txt": "ops", "nets.txt": "nets", "reductions.txt": "reductions"}
    for card in cards:
        path = f"/tmp/plimsoll-record-{os.getpid()}-{card}.json"
        command = [os.environ.get("PLIMSOLL", "plimsoll"), "run", "--gpu", card, "--quiet", "--", os.environ.get("CUDA_PYTHON", "python3"), __file__]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PLIMSOLL_RECORD": path, "PLIMSOLL_WHAT": ",".join(files.values())})
        results[card] = json.loads(pathlib.Path(path).read_text())
        os.unlink(path)
    for file, what in files.items():
        write(HERE / file, {c: r[what] for c, r in results.items()}, results[cards[0]]["version"])


if __name__ == "__main__":
    inside() if "PLIMSOLL_RECORD" in os.environ else main(*sys.argv[1:])
