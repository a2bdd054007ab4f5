#!/usr/bin/env python3
"""Records what a real training step of each net in nets.py asks for, for tests/unit/test_golden_torch.c.

    python3 tests/golden/torch/record.py [NET...]      (all without a name)

Needs torch (any build; everything runs on the CPU), torchvision for the whole models, and g++ for tracer.cpp. For each net
it writes NET.pt2 (torch.export in train mode, batch dynamic, weights taken out) and NET.txt:

    torch VERSION, loss KIND, optimizer SPEC, batch N
    grad NAME BYTES              a parameter's .grad, or the gradient that arrived at a value of the graph
    saved NODE ORIGIN BYTES      what autograd kept for a node of the exported graph; ORIGIN is the value whose storage it is
                                 ("-": nobody else's, "number": a Python number, 0-dim and on the CPU everywhere)
    phase STEP NAME              from here: the events of two iterations of the usual loop
    @ OP                         the op or autograd node that Python or the engine called
    + ID BYTES OP [~]            a request, and the innermost op that made it (OP:copy: a contiguous copy that it made of an
                                 operand); ~ given back before that op returned
    - ID
"""
import ctypes
import datetime
import io
import operator
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent


def build_tracer():
    import torch

    root = pathlib.Path(torch.__file__).parent
    out = pathlib.Path(tempfile.mkdtemp()) / "tracer.so"
    subprocess.run(["g++", "-std=c++20", "-O1", "-fPIC", "-shared", HERE / "tracer.cpp", "-o", out, f"-I{root}/include",
                    f"-I{root}/include/torch/csrc/api/include", f"-L{root}/lib", "-ltorch_cpu", "-lc10"], check=True)
    lib = ctypes.CDLL(str(out))
    lib.tr_text.restype = ctypes.c_char_p
    return lib


tracer = build_tracer()
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

sys.path.insert(0, str(HERE))
import nets  # noqa: E402

LOSSES = {
    "cross_entropy": (lambda out: torch.randint(out.shape[1], out.shape[:1] + out.shape[2:]), F.cross_entropy),
    "mse": (torch.rand_like, F.mse_loss),
    "bce": (torch.rand_like, F.binary_cross_entropy_with_logits),
    "sum": (lambda out: None, lambda out, y: out.sum()),
}


OPTIMIZERS = {
    "sgd": lambda p, **kw: torch.optim.SGD(p, lr=1e-6, **kw),
    "sgd,momentum=0.9": lambda p, **kw: torch.optim.SGD(p, lr=1e-6, momentum=0.9, **kw),
    "adam": lambda p, **kw: torch.optim.Adam(p, lr=1e-6, **kw),
}


def optimizer_of(spec, params):
    """"adam,impl=foreach" as Plimsoll reads it."""
    name, _, impl = spec.partition(",impl=")
    return OPTIMIZERS[name](params, foreach=impl != "forloop")


def score(fn, out, y):
    """The loss; auxiliary heads count 0.4 each, as the models that have them are trained."""
    if isinstance(out, torch.Tensor):
        return fn(out, y)
    total = fn(out[0], y)
    for o in out[1:]:
        aux = fn(o, y)
        total = total + aux * 0.4
        del aux
    return total


def main_head(out):
    return (out if isinstance(out, torch.Tensor) else out[0]).detach()


# ---- export ------------------------------------------------------------------------------------------------------------


def export(model, inputs, path):
    batch = torch.export.Dim("batch", min=2, max=1024)
    dims = tuple({0: batch} if x.shape[0] == inputs[0].shape[0] else {} for x in inputs)
    try:
        program = torch.export.export(model, tuple(inputs), dynamic_shapes=(dims,) if isinstance(model, nets.Fn) else dims)
    except Exception as e:  # a net whose parameters have the batch's size
        print(f"{path.name}: static batch: {str(e).splitlines()[0][:100]}")
        program = torch.export.export(model, tuple(inputs))
    whole = io.BytesIO()
    torch.export.save(program, whole)
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new:
        for name in old.namelist():
            if re.search(r"/(weight|tensor)_\d+$|sample_inputs|\.data/|byteorder|compiler|/extra/", name):
                continue
            data = old.read(name)
            if name.endswith(".json"):  # the Python source line of each node: long, and of this machine
                data = re.sub(rb'"stack_trace": "(?:[^"\\]|\\.)*"', b'"stack_trace": ""', data)
            new.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    return program


# ---- what is saved, what gradients arrive ------------------------------------------------------------------------------------


def name_of(n, i):
    """The exported name of output i of a node: that of the getitem which takes it, if there is one."""
    takers = [u for u in n.users if u.target is operator.getitem]
    for u in takers:
        if u.args[1] == i:
            return u.name
    return f"{n.name}_unused_{i}" if takers else n.name


class Watcher(torch.fx.Interpreter):
    """Runs the exported graph node by node and notes what each node made autograd keep."""

    def __init__(self, program):
        super().__init__(program.graph_module)
        self.origin, self.saved, self.grads, self.keep, self.now = {}, [], {}, [], None

    def own(self, t, name):
        self.keep.append(t)
        self.origin.setdefault(t.untyped_storage()._cdata, name)

    def pack(self, t):
        self.keep.append(t)
        self.saved.append((self.now, t.untyped_storage()._cdata, t.untyped_storage().nbytes(), t.dim() == 0 and t.dtype in (torch.float64, torch.int64)))
        return t

    def run_node(self, n):
        self.now = name_of(n, 0)
        out = super().run_node(n)
        many = isinstance(out, (tuple, list))
        for i, t in enumerate(out if many else [out]):
            if isinstance(t, torch.Tensor) and n.op != "output":
                self.own(t, name_of(n, i))
                if t.requires_grad and not many:
                    t.register_hook(lambda g, name=n.name: self.arrived(name, g))
        return out

    def arrived(self, name, g):
        if g is not None:
            self.grads[name] = g.numel() * g.element_size()

    def rows(self):
        for node, storage, size, scalar in self.saved:
            origin = self.origin.get(storage)
            yield node, "number" if origin is None and scalar else origin or "-", size


def bind(program, inputs):
    """The arguments of the lifted graph, and the parameters by name."""
    args, names, inputs = [], {}, iter(inputs)
    for spec in program.graph_signature.input_specs:
        kind = spec.kind.name
        if kind == "USER_INPUT":
            args.append(next(inputs))
        elif spec.target in program.state_dict:
            args.append(program.state_dict[spec.target])
            names[spec.arg.name] = spec.target
        else:
            args.append(program.constants[spec.target])
            names[spec.arg.name] = spec.target
    return args, names


def watch(program, inputs, loss):
    args, names = bind(program, inputs)
    w = Watcher(program)
    with torch.autograd.graph.saved_tensors_hooks(w.pack, lambda t: t):
        out = w.run(*args)[-len(program.graph_signature.user_outputs) :]
    target, fn = LOSSES[loss]
    score(fn, out, target(main_head(out))).backward()
    rows = []
    for name, target in program.graph_signature.inputs_to_parameters.items():
        g = program.state_dict[target].grad
        rows.append(f"grad {target} {g.numel() * g.element_size() if g is not None else 0}")
    rows += [f"grad {n} {size}" for n, size in w.grads.items() if n not in names]
    rows += [f"saved {node} {names.get(origin, origin)} {size}" for node, origin, size in w.rows()]
    return rows


# ---- events ----------------------------------------------------------------------------------------------------------------

# ops that only make room, and casts: the op that called them is the one that asks
FACTORY = re.compile(r"aten::(ones|empty|empty_like|empty_strided|new_empty|new_empty_strided|zeros|zeros_like|new_zeros|ones_like|full_like|new_full|scalar_tensor|resize_|to|_to_copy|clone|contiguous|copy_|fill_|zero_)(\..*)?$")


def asks(stack):
    names = [s for s in stack if not s.startswith(("autograd::engine", "Optimizer."))]
    if "aten::repeat" in names[:-1] and not names[-1] == "aten::empty.memory_format":
        return "aten::repeat:index"  # the order of dims, as int64 tensors on the CPU whatever the device
    copy = any(s in ("aten::clone", "aten::contiguous") for s in names[1:])
    for s in reversed(names):
        if not FACTORY.match(s):
            return s + ":copy" if copy else s
    if names and any(s.startswith("Optimizer.") for s in stack) and names[0] in ("aten::empty.memory_format", "aten::zeros"):
        return "optimizer:step"  # the count of steps, a 0-dim tensor on the CPU whatever the device
    return names[0] if names else "python"


def top(stack):
    return stack[0].split(": ")[-1] if stack else "python"


def rows_of(log):
    """The tracer's lines as the file's: nesting folded into the name of the op that asks."""
    stack, rows, born = [], [], {}
    here = None
    depth_row = []  # (stack depth at which the asking op stands, row index)
    for line in log.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "E":
            stack.append(rest)
        elif kind == "X":
            stack.pop()
            depth_row = [(d, i) for d, i in depth_row if d < len(stack) + 1]
        elif kind == "M":
            rows.append(["phase " + rest])
            here = None
        else:
            if top(stack) != here:
                here = top(stack)
                rows.append(["@ " + here])
            if kind == "A":
                ident, size = rest.split()
                who = asks(stack)
                name = who.removesuffix(":copy")
                depth = len(stack) - stack[::-1].index(name) if name in stack else 0
                born[ident] = (depth, len(rows))
                depth_row.append(born[ident])
                rows.append([f"+ {ident} {size} {who}"])
            elif rest in born:
                depth, i = born.pop(rest)
                if depth and (depth, i) in depth_row:
                    rows[i].append("~")
                rows.append([f"- {rest}"])
    numbers = {}
    out = []
    for r in rows:  # ids from 1
        words = r[0].split(" ")
        if words[0] in "+-":
            words[1] = str(numbers.setdefault(words[1], len(numbers) + 1))
        out.append(" ".join(words + r[1:]))
    return out


def say(text):
    tracer.tr_say(text.encode())


def events(model, inputs, loss, optimizer):
    make_target, fn = LOSSES[loss]
    target = make_target(main_head(model(*inputs)))
    opt = optimizer_of(optimizer, [p for p in model.parameters() if p.requires_grad])
    xs, y, out = [None] * len(inputs), None, None
    tracer.tr_clear()
    tracer.tr_on(1)
    for step in range(2):
        say(f"M {step} inputs")
        new = [x.clone() for x in inputs]
        new_y = target.clone() if target is not None else None
        for i in range(len(xs)):
            xs[i], new[i] = new[i], None
        y, new_y = new_y, None
        say(f"M {step} zero_grad")
        opt.zero_grad()
        say(f"M {step} forward")
        out = model(*xs)
        say(f"M {step} loss")
        total = score(fn, out, y)
        say(f"M {step} backward")
        total.backward()
        say(f"M {step} optimizer")
        opt.step()
    say("M 2 end")
    tracer.tr_on(0)
    return rows_of(tracer.tr_text().decode())


def record(name):
    torch.manual_seed(0)
    make, inputs, loss, *rest = nets.NETS[name]
    optimizer = rest[0] if rest else "sgd"
    model = make().train()
    program = export(model, inputs, HERE / f"{name}.pt2")
    batch = inputs[0].shape[0]
    head = [f"# recorded {datetime.date.today()} by: python3 tests/golden/torch/record.py {name}", f"torch {torch.__version__}", f"loss {loss}", f"optimizer {optimizer}", f"batch {batch}"]
    fresh = make().train()
    rows = head + watch(program, inputs, loss) + events(fresh, inputs, loss, optimizer)
    (HERE / f"{name}.txt").write_text("\n".join(rows) + "\n")
    print(f"{name}: {len(rows)} rows")


# ---- attention with the card's layout ----------------------------------------------------------------------------------------
#
# The CPU's fused kernel lays its result and its gradients out as q, k and v are; the card's memory-efficient kernel always
# makes [B, S, H, D], rounds the rows of its log-sum-exp up to 32, and its backward wants g in that order and the row sums of
# g * out. Which copies follow in the rest of the model depends on it, so the recording runs with kernels of the card's layout.
# Everything around them (choice, autograd node, lifetimes) is PyTorch's own.


def bshd(t):
    b, h, s, d = t.shape
    return torch.ones(b, s, h, d, dtype=t.dtype).transpose(1, 2)


def attention(q, k, v, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    return bshd(q), torch.ones(q.shape[0], q.shape[1], (q.shape[2] + 31) // 32 * 32)


def attention_backward(g, q, k, v, out, lse, dropout_p, is_causal, *, attn_mask=None, scale=None):
    g = g.transpose(1, 2).contiguous()
    grads = bshd(q), bshd(k), bshd(v)
    product = g * out.transpose(1, 2)  # one expression in C++: what it makes on the way lives to its end
    sums = product.sum(-1)
    delta = sums.transpose(-2, -1).contiguous()
    del product, sums, delta
    return grads


def card_attention():
    lib = torch.library.Library("aten", "IMPL")
    lib.impl("_scaled_dot_product_flash_attention_for_cpu", attention, "CPU")
    lib.impl("_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward, "CPU")
    return lib


if __name__ == "__main__":
    overrides = card_attention()
    torch.set_num_threads(1)
    tracer.tr_setup()
    for name in sys.argv[1:] or nets.NETS:
        record(name)
