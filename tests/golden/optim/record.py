#!/usr/bin/env python3
"""Records what the constructor and three steps of each optimizer ask CUDA's allocator for, for tests/unit/test_golden_optim.c.

    PLIMSOLL=build/plimsoll CUDA_PYTHON=python3 tests/golden/optim/record.py                 (writes events.txt next to it)
    PLIMSOLL=build/plimsoll CUDA_PYTHON=/old/bin/python tests/golden/optim/record.py events-2.4.txt   (optimizers and clipping alone)
    PLIMSOLL=build/plimsoll CUDA_PYTHON=/old/bin/python tests/golden/optim/record.py events-2.9.txt muon   (of these one)
    PLIMSOLL=build/plimsoll CUDA_PYTHON=python3 tests/golden/optim/record.py events-bnb.txt     (those of bitsandbytes)

Needs a CUDA build of PyTorch and no GPU, as ../cuda/record.py does; timm and diffusers for their averages; bitsandbytes for its file. The parameters have gradients from the start; their types
and sizes are the line `shapes`. Workspaces of cuBLAS (Muon) are left
out: they are the machine's, not the optimizer's.

    torch VERSION
    bitsandbytes VERSION
    shapes TYPE DIMS ...
    case OPTIMIZER,OPTIONS       as plimsoll's --optimizer; clip: clip_grad_norm_
    step N: +BYTES -BYTES ...     0: the constructor
    end | error TEXT             what PyTorch said to it
    held OPTIMIZER,OPTIONS: N    pairs of vectors that L-BFGS remembers after each step, with real numbers
    coalesce CC N: +BYTES ...     a sparse gradient of N rows, on a card of that capability; as values are all 0, none is left
    loop SETTINGS                a training loop; its step 0 is the loading. net: of ../torch/nets.py; ema: as plimsoll's --ema, last
"""
import contextlib
import itertools
import json
import linecache
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "torch"))
WORKSPACES = (8519680, 1048576)  # PyTorch's default for cuBLAS on the card that is pretended, for cuBLASLt

MIXED = "f32 30,100 100 77,50"
IMAGE = "f32 16,3,3,3 16 10,16 1,100"
MATRICES = "f32 30,100 77,50 64,64"
HALF = "bf16 30,100 77,50 64,64"
ROWS = "f32 100,16=70 50,20=30"  # sparse gradients of so many rows: = of different ones, ~ of whichever
MIXED_ROWS = "f32 100,16=70 30,100 50,20=30"
LOOKED_UP = "f32 100,16~70 30,100"
BOTH, FUSED, ONE = ("foreach", "forloop"), ("foreach", "forloop", "fused"), ("forloop",)
VARIANTS = [
    ("sgd", "SGD", FUSED, MIXED, ["", "momentum=0.9", "weight_decay=0.1", "momentum=0.9,weight_decay=0.1", "momentum=0.9,nesterov=1", "momentum=0.9,nesterov=1,weight_decay=0.1",
                                  "maximize=1", "momentum=0.9,maximize=1", "maximize=1,weight_decay=0.1", "momentum=0.9,nesterov=1,maximize=1", "momentum=0.9,nesterov=1,maximize=1,weight_decay=0.1"]),
    ("adam", "Adam", FUSED, MIXED, ["", "weight_decay=0.1", "amsgrad=1", "maximize=1", "amsgrad=1,weight_decay=0.1", "maximize=1,weight_decay=0.1", "capturable=1", "capturable=1,amsgrad=1",
                                    "capturable=1,weight_decay=0.1", "decoupled_weight_decay=1,weight_decay=0.1", "amsgrad=1,maximize=1", "capturable=1,maximize=1", "capturable=1,maximize=1,weight_decay=0.1"]),
    ("adamw", "AdamW", FUSED, MIXED, ["", "amsgrad=1", "maximize=1", "capturable=1", "capturable=1,amsgrad=1,maximize=1", "weight_decay=0,maximize=1"]),
    ("rmsprop", "RMSprop", BOTH, MIXED, ["", "momentum=0.9", "centered=1", "weight_decay=0.1", "momentum=0.9,centered=1,weight_decay=0.1", "maximize=1", "maximize=1,weight_decay=0.1",
                                         "capturable=1", "capturable=1,maximize=1", "capturable=1,momentum=0.9,centered=1,weight_decay=0.1"]),
    ("adagrad", "Adagrad", FUSED, MIXED, ["", "weight_decay=0.1", "maximize=1", "maximize=1,weight_decay=0.1"]),
    ("adadelta", "Adadelta", BOTH, MIXED, ["", "weight_decay=0.1", "maximize=1", "maximize=1,weight_decay=0.1", "capturable=1", "capturable=1,maximize=1", "capturable=1,weight_decay=0.1"]),
    ("adamax", "Adamax", BOTH, MIXED, ["", "weight_decay=0.1", "maximize=1", "maximize=1,weight_decay=0.1", "capturable=1", "capturable=1,weight_decay=0.1", "capturable=1,maximize=1"]),
    ("nadam", "NAdam", BOTH, MIXED, ["", "weight_decay=0.1", "maximize=1", "maximize=1,weight_decay=0.1", "decoupled_weight_decay=1,weight_decay=0.1", "decoupled_weight_decay=1,maximize=1",
                                     "capturable=1", "capturable=1,weight_decay=0.1", "capturable=1,maximize=1"]),
    ("radam", "RAdam", BOTH, MIXED, ["", "weight_decay=0.1", "maximize=1", "maximize=1,weight_decay=0.1", "decoupled_weight_decay=1,weight_decay=0.1", "capturable=1",
                                     "capturable=1,weight_decay=0.1", "capturable=1,maximize=1", "decoupled_weight_decay=1,maximize=1"]),
    ("asgd", "ASGD", BOTH, MIXED, ["", "weight_decay=0.1", "maximize=1", "maximize=1,weight_decay=0.1", "lambd=0", "capturable=1", "capturable=1,weight_decay=0.1", "capturable=1,maximize=1", "capturable=1,maximize=1,weight_decay=0.1"]),
    ("rprop", "Rprop", BOTH, MIXED, ["", "maximize=1", "capturable=1", "capturable=1,maximize=1"]),
    ("adafactor", "Adafactor", BOTH, MIXED, ["", "weight_decay=0.1", "maximize=1", "maximize=1,weight_decay=0.1"]),
    ("adafactor", "Adafactor", BOTH, IMAGE, ["", "maximize=1"]),
    ("muon", "Muon", ONE, MATRICES, ["", "momentum=0", "nesterov=0", "weight_decay=0", "ns_steps=1"]),
    ("muon", "Muon", ONE, HALF, ["", "nesterov=0"]),
    ("muon", "Muon", ONE, MIXED, [""]),
    ("adam", "Adam", BOTH, HALF, ["", "weight_decay=0.1"]),
    ("adagrad", "Adagrad", BOTH, HALF, [""]),
    ("sparse_adam", "SparseAdam", ONE, MIXED, [""]),
    ("sparse_adam", "SparseAdam", ONE, ROWS, ["", "maximize=1"]),
    ("sparse_adam", "SparseAdam", ONE, "bf16 100,16=70", [""]),
    ("sparse_adam", "SparseAdam", ONE, "f32 100,16~1", ["", "maximize=1"]),
    ("adagrad", "Adagrad", FUSED, MIXED_ROWS, ["", "maximize=1", "weight_decay=0.1"]),
    ("sgd", "SGD", FUSED, LOOKED_UP, ["", "maximize=1", "weight_decay=0.1"]),
    ("adam", "Adam", FUSED, LOOKED_UP, [""]),
    ("rmsprop", "RMSprop", BOTH, LOOKED_UP, [""]),
    ("nadam", "NAdam", BOTH, LOOKED_UP, [""]),
    ("rprop", "Rprop", BOTH, LOOKED_UP, [""]),
    ("lbfgs", "LBFGS", ONE, MIXED, ["max_iter=4", "max_iter=4,history_size=5", "max_iter=2", "max_iter=5,max_eval=3", "max_iter=1,history_size=1", "max_iter=4,strong_wolfe=1", "max_iter=4,maximize=1",
                                    "max_iter=3,strong_wolfe=1,history_size=2"]),
    ("lbfgs", "LBFGS", ONE, MATRICES, ["max_iter=6,history_size=3"]),
]
LARGE = "f32 64,100 100 250,400"  # 100000 elements: bitsandbytes pages a state from there on
BNB = {
    "bnb_adam8bit": "Adam8bit", "bnb_adam32bit": "Adam32bit", "bnb_adamw8bit": "AdamW8bit", "bnb_adamw32bit": "AdamW32bit", "bnb_lion8bit": "Lion8bit", "bnb_lion32bit": "Lion32bit",
    "bnb_sgd8bit": "SGD8bit", "bnb_sgd32bit": "SGD32bit", "bnb_rmsprop8bit": "RMSprop8bit", "bnb_rmsprop32bit": "RMSprop32bit", "bnb_adagrad8bit": "Adagrad8bit",
    "bnb_adagrad32bit": "Adagrad32bit", "bnb_lamb32bit": "LAMB32bit", "bnb_lars32bit": "LARS32bit", "bnb_ademamix": "AdEMAMix", "bnb_ademamix8bit": "AdEMAMix8bit",
    "bnb_paged_adam8bit": "PagedAdam8bit", "bnb_paged_adam32bit": "PagedAdam32bit", "bnb_paged_adamw8bit": "PagedAdamW8bit", "bnb_paged_adamw32bit": "PagedAdamW32bit",
    "bnb_paged_lion8bit": "PagedLion8bit", "bnb_paged_lion32bit": "PagedLion32bit", "bnb_paged_ademamix": "PagedAdEMAMix", "bnb_paged_ademamix8bit": "PagedAdEMAMix8bit",
}
BNB_OPTIONS = {"bnb_adamw8bit": ["min_8bit_size=100", "min_8bit_size=6401"], "bnb_lamb32bit": ["max_unorm=0"], "bnb_lars32bit": ["max_unorm=0", "momentum=0"], "bnb_sgd8bit": ["momentum=0"],
               "bnb_paged_adamw8bit": ["min_8bit_size=200000"]}
LOOPS = ["", "accumulate=3", "zeros=1", "clip=1", "accumulate=2,zeros=1", "accumulate=2,clip=1"]
LOOPS += [f"net=frozen,ema={e}" for e in (
    "averaged", "averaged,use_buffers=1", "averaged,impl=forloop", "averaged,use_buffers=1,impl=forloop", "lerp", "lerp,buffers=1", "timm_v2", "diffusers", "diffusers,impl=foreach")]
LOOPS += ["ema=averaged", "accumulate=2,clip=1,ema=diffusers", "net=shared,ema=averaged", "net=shared,ema=lerp", "net=lstm,steps=0,ema=averaged", "net=scattered,steps=0,ema=averaged",
          "net=vit_b_16,steps=0,ema=averaged", "net=vit_b_16,steps=0,ema=lerp"]
LOOPS += ["lbfgs=3", "lbfgs=4,clip=1", "lbfgs=3,strong_wolfe=1,ema=lerp", "net=frozen,lbfgs=4,zeros=1"]
HELD = ["strong_wolfe=1,max_iter=4,max_eval=20", "strong_wolfe=1,max_iter=4,max_eval=20,history_size=5", "lr=0.001,max_iter=4", "lr=0.001,max_iter=2", "lr=0.001,max_iter=5,max_eval=3,history_size=3"]
CLIPPED = ["f32 30,100 100 77,50", "f32 300,500 7 70000", "bf16 300,500 64", "f32 5", MIXED_ROWS, "f32 900,60=900"]
COALESCED = (1, 2, 700, 2689, 10241, 40961, 43009, 131000, 157697, 1000000)
CARDS = ("t4", "a100-40g", "rtx4090", "h100-80g")
FLAGS = {"strong_wolfe", "nesterov", "amsgrad", "maximize", "centered", "capturable", "decoupled_weight_decay"}
WHOLE = {"ns_steps", "max_iter", "max_eval", "history_size", "min_8bit_size"}


def options(text):
    out = {}
    for part in filter(None, text.split(",")):
        key, value = part.split("=")
        out[key] = bool(int(value)) if key in FLAGS else int(value) if key in WHOLE else float(value)
    return out


@contextlib.contextmanager
def looked_at(torch, name):
    """What Python sees of numbers on the card, where no kernel has computed them."""
    old = {k: getattr(torch.Tensor, k) for k in ("item", "__bool__", "__float__")}
    losses = itertools.count()
    if name == "asgd":  # 1 in its first million steps
        torch.Tensor.item = lambda t: 1.0
    if name == "lbfgs":  # curvature enough for the history, each condition for stopping unmet, the first trial of a line search good
        def condition(t):
            frame = sys._getframe(1)
            line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
            return "ys >" in line or "abs(gtd_new) <=" in line

        torch.Tensor.__bool__ = condition
        torch.Tensor.__float__ = lambda t: -float(next(losses))
    yield
    for k, f in old.items():
        setattr(torch.Tensor, k, f)


class Recorder:
    def __init__(self, torch):
        self.torch, self.marks = torch, []

    def say(self, line):
        s = self.torch._C._cuda_memoryStats(0)["allocation"]["all"]
        self.marks.append((s["allocated"] + s["freed"], line))

    def lines(self):
        trace = self.torch.cuda.memory._snapshot()["device_traces"][0]
        events = [e for e in trace if e["action"] in ("alloc", "free_requested")]
        ends = [at for at, _ in self.marks[1:]] + [len(events)]
        for (at, line), end in zip(self.marks, ends):
            if line.startswith(("step", "coalesce")):
                line += ":" + "".join(f" {'+' if e['action'] == 'alloc' else '-'}{e['size']}" for e in events[at:end] if e["size"] not in WORKSPACES)
            if line:
                yield line


def rows_of(torch, p, n, coalesced=False):
    """A sparse gradient. Which rows they are, nobody looks at."""
    return torch.sparse_coo_tensor(torch.zeros(1, n, dtype=torch.long, device="cuda"), torch.zeros(n, p.shape[1], dtype=p.dtype, device="cuda"), p.shape, is_coalesced=coalesced or None, check_invariants=False)


def parameters(torch, shapes):
    kind, *params = shapes.split()
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[kind]
    for i, s in enumerate(params):
        dims, *rows = re.split("[=~]", s)
        params[i] = p = torch.nn.Parameter(torch.zeros([int(d) for d in dims.split(",")], dtype=dtype, device="cuda"))
        p.grad = rows_of(torch, p, int(rows[0]), "=" in s) if rows else torch.zeros_like(p)
    return params


@contextlib.contextmanager
def ended(rec):
    """Of a case: its last line."""
    try:
        yield
        rec.say("end")
    except Exception as e:
        rec.say("error " + str(e).splitlines()[0][:120])


def record(torch, rec, name, cls, shapes, text, impl):
    params = parameters(torch, shapes)
    kw = options(text)
    if len(impl) > 1:
        kw |= {"foreach": impl[0] == "foreach"} if impl[0] != "fused" else {"fused": True}
    if name not in ("sparse_adam", "muon", "adafactor"):
        kw["lr"] = 1e-3
    if kw.pop("strong_wolfe", False):
        kw["line_search_fn"] = "strong_wolfe"
    loss = torch.zeros((), device="cuda")
    closure = [lambda: loss] if name == "lbfgs" else []
    rec.say("case " + ",".join(filter(None, [name, text, f"impl={impl[0]}" if len(impl) > 1 else ""])))
    with looked_at(torch, name), ended(rec):
        rec.say("step 0")
        opt = getattr(torch.optim, cls)(params, **kw)
        for k in range(1, 8 if name == "radam" else 4):  # RAdam changes its ways at step 6
            rec.say(f"step {k}")
            opt.step(*closure)


def record_bnb(torch, rec, shapes):
    """Each optimizer of bitsandbytes: its constructor and three steps."""
    import bitsandbytes

    rec.say(f"bitsandbytes {bitsandbytes.__version__}")
    for sizes in shapes:
        rec.say(f"shapes {sizes}")
        for name, cls in BNB.items():
            for text in ["", *BNB_OPTIONS.get(name, ())]:
                params = parameters(torch, sizes)
                kw = {"lr": 1e-3} | ({"momentum": 0.9} if cls.startswith(("SGD", "LARS")) else {}) | options(text)
                rec.say("case " + ",".join(filter(None, [name, text])))
                with ended(rec):
                    rec.say("step 0")
                    opt = getattr(bitsandbytes.optim, cls)(params, **kw)
                    for k in range(1, 4):
                        rec.say(f"step {k}")
                        opt.step()
                opt = None


def record_clip(torch, rec, shapes):
    """clip_grad_norm_, three times; what it returns is let go. Sparse gradients are not coalesced afterwards: once."""
    params = parameters(torch, shapes)
    rec.say(f"shapes {shapes}")
    rec.say("case clip")
    with ended(rec):
        for k in range(1, 2 if "=" in shapes else 4):
            rec.say(f"step {k}")
            torch.nn.utils.clip_grad_norm_(params, 1.0)


def record_coalesce(torch, rec):
    major, minor = torch.cuda.get_device_capability()
    for n in COALESCED:
        grad = rows_of(torch, torch.empty(5, 1, device="cuda"), n)
        rec.say(f"coalesce {major}{minor} {n}")
        grad.coalesce()
        rec.say("")


def make_ema(torch, model, text):
    """The average of the model as its library makes it, and how it follows the model."""
    from torch.optim import swa_utils

    name, *rest = text.split(",")
    opt = dict(part.split("=") for part in rest)
    if name == "averaged":
        fn = {"avg_fn": swa_utils.get_ema_avg_fn()} if opt.get("impl") == "forloop" else {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn()}
        ema = swa_utils.AveragedModel(model, use_buffers="use_buffers" in opt, **fn)
        return lambda: ema.update_parameters(model)
    if name == "timm_v2":
        from timm.utils import ModelEmaV2

        ema = ModelEmaV2(model)
        return lambda: ema.update(model)
    if name == "diffusers":
        from diffusers.training_utils import EMAModel

        ema = EMAModel(model.parameters(), foreach=opt.get("impl") == "foreach")
        return lambda: ema.step(model.parameters())
    if "buffers" in opt:
        from timm.utils import ModelEmaV3

        ema = ModelEmaV3(model)
        return lambda: ema.update(model)
    copies = [p.detach().clone() for p in model.parameters()]

    @torch.no_grad()
    def update():
        for e, p in zip(copies, model.parameters()):
            e.lerp_(p, 0.001)

    return update


def record_closures(torch, rec, options, model, follow, params, host):
    """The same with LBFGS: its step runs the model."""
    nn = torch.nn
    opt = torch.optim.LBFGS(params, max_iter=int(options["lbfgs"]), line_search_fn="strong_wolfe" if "strong_wolfe" in options else None)

    def closure():
        opt.zero_grad(set_to_none="zeros" not in options)
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        loss.backward()
        time.sleep(0.01)
        if "clip" in options:
            nn.utils.clip_grad_norm_(params, 1.0)
        return loss

    x = y = None
    for k in range(1, 4):
        rec.say(f"step {k}")
        new = [t.cuda() for t in host]
        x = new.pop(0)
        y = new.pop(0)
        opt.step(closure)
        follow()
    rec.say("end")


def record_loop(torch, rec, text):
    """Three steps of Adam on a net, by default mlp:10,20,5:relu, with so many passes for each."""
    import nets

    settings, _, ema = text.partition("ema=")
    options = dict(part.split("=") for part in filter(None, settings.split(",")))
    nn, passes = torch.nn, int(options.get("accumulate", 1))
    if "net" in options:
        make, (host, *_), *_ = nets.NETS[options["net"]]
    else:
        make, host = lambda: nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5)), torch.zeros(4, 10)
    host = host, torch.zeros(24 if options.get("net") == "shared" else 4, dtype=torch.long)
    model = make().train()
    rec.say("loop " + text)
    rec.say("step 0")
    model = model.cuda()
    follow = make_ema(torch, model, ema) if ema else lambda: None
    params = [p for p in model.parameters() if p.requires_grad]
    if "lbfgs" in options:
        with looked_at(torch, "lbfgs"):
            record_closures(torch, rec, options, model, follow, params, host)
        return
    opt = torch.optim.Adam(params)
    x = y = out = loss = None
    for k in range(1, 1 + int(options.get("steps", 3))):
        rec.say(f"step {k}")
        for i in range(passes):
            new = [t.cuda() for t in host]
            x = new.pop(0)
            y = new.pop(0)
            if i == 0:
                opt.zero_grad(set_to_none="zeros" not in options)
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            loss.backward()
            time.sleep(0.01)  # for the thread of autograd, which lets go of the last tensors
        if "clip" in options:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        follow()
    rec.say("end")


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def record_held(torch, text):
    """How much LBFGS remembers after each of five steps, on a CPU, of a function that it can improve for long."""
    kw = options(text)
    if kw.pop("strong_wolfe", False):
        kw["line_search_fn"] = "strong_wolfe"
    x = torch.nn.Parameter(torch.linspace(-1.2, 0.5, 40))
    opt = torch.optim.LBFGS([x], **kw)

    def closure():
        opt.zero_grad()
        loss = rosenbrock(x)
        loss.backward()
        return loss

    counts = []
    for _ in range(5):
        opt.step(closure)
        state = opt.state[x]
        assert len(state["old_dirs"]) == len(state["old_stps"]) == len(state["ro"]) and all(v.numel() == 40 for v in state["old_dirs"] + state["old_stps"])
        counts.append(len(state["old_dirs"]))
    return f"held lbfgs,{text}: " + " ".join(map(str, counts))


def record_optimizers(torch, rec):
    shapes, only = None, os.environ.get("PLIMSOLL_RECORD_ONLY")
    for name, cls, impls, sizes, variants in VARIANTS:
        if not hasattr(torch.optim, cls) or only and name != only:
            continue
        if sizes != shapes:
            rec.say(f"shapes {sizes}")
        shapes = sizes
        for text in variants:
            for impl in impls:
                record(torch, rec, name, cls, sizes, text, (impl, *impls[1:]) if len(impls) > 1 else (impl,))


def inside():
    import torch

    torch.cuda.memory._record_memory_history(max_entries=sys.maxsize)
    rec, what, held = Recorder(torch), os.environ["PLIMSOLL_RECORD_WHAT"], []
    if what == "coalesce":
        record_coalesce(torch, rec)
    elif what == "bnb":
        rec.say(f"torch {torch.__version__}")
        record_bnb(torch, rec, [LARGE, "bf16 50,80 256,300 300,400", "f32 2000,3000", "bf16 256,300"])
    else:
        rec.say(f"torch {torch.__version__}")
        record_optimizers(torch, rec)
        for text in LOOPS if what == "all" else ():
            record_loop(torch, rec, text)
        for sizes in CLIPPED if "PLIMSOLL_RECORD_ONLY" not in os.environ else ():
            record_clip(torch, rec, sizes)
        held = [record_held(torch, text) for text in HELD if what == "all"]
    with open(os.environ["PLIMSOLL_RECORD"], "a") as out:
        out.write("\n".join([*rec.lines(), *held]) + "\n")


def run(path, card, what):
    command = [os.environ.get("PLIMSOLL", "plimsoll"), "run", "--gpu", card, "--quiet", "--", os.environ.get("CUDA_PYTHON", "python3"), __file__]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PLIMSOLL_RECORD": str(path), "PLIMSOLL_RECORD_WHAT": what})


def main(name="events.txt", *only):
    path = HERE / name
    if only:
        os.environ["PLIMSOLL_RECORD_ONLY"] = only[0]
    path.write_text("# recorded by record.py\n")
    run(path, "a100-40g", {"events.txt": "all", "events-bnb.txt": "bnb"}.get(name, "optimizers"))
    for card in CARDS if name == "events.txt" else ():
        run(path, card, "coalesce")


if __name__ == "__main__":
    inside() if "PLIMSOLL_RECORD" in os.environ else main(*sys.argv[1:])
