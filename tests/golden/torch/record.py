#!/usr/bin/env python3
"""Records what autograd keeps for each net in nets.py, for tests/unit/test_golden_torch.c.

    python3 tests/golden/torch/record.py [NET...]      (all without a name)

Needs torch (any build; everything runs on the CPU) and torchvision for the whole models. For each net it writes NET.pt2
(torch.export in train mode, batch dynamic, weights taken out) and NET.txt:

    torch VERSION
    loss KIND, optimizer SPEC, batch N       how it is trained; tests/golden/cuda reads these too
    grad NAME BYTES              a parameter's .grad, or the gradient that arrived at a value of the graph
    saved NODE ORIGIN BYTES      what autograd kept for a node of the exported graph; ORIGIN is the value whose storage it is
                                 ("-": nobody else's, "number": a Python number, 0-dim and on the CPU everywhere)
"""
import datetime
import io
import operator
import pathlib
import re
import sys
import zipfile

import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import nets  # noqa: E402
from nets import LOSSES, main_head, score  # noqa: E402


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


def record(name):
    torch.manual_seed(0)
    make, inputs, loss, *rest = nets.NETS[name]
    optimizer = rest[0] if rest else "sgd"
    model = make().train()
    program = export(model, inputs, HERE / f"{name}.pt2")
    batch = inputs[0].shape[0]
    head = [f"# recorded {datetime.date.today()} by: python3 tests/golden/torch/record.py {name}", f"torch {torch.__version__}", f"loss {loss}", f"optimizer {optimizer}", f"batch {batch}"]
    rows = head + watch(program, inputs, loss)
    (HERE / f"{name}.txt").write_text("\n".join(rows) + "\n")
    print(f"{name}: {len(rows)} rows")


# ---- attention with the card's layout ----------------------------------------------------------------------------------------
#
# The CPU's fused kernel lays its result and its gradients out as q, k and v are; the card's memory-efficient kernel always
# makes [B, S, H, D], rounds the rows of its log-sum-exp up to 32, and its backward wants g in that order and the row sums of
# g * out. What the rest of the model keeps depends on it, so the recording runs with kernels of the card's layout.
# Everything around them is PyTorch's own.


def bshd(t):
    b, h, s, d = t.shape
    return torch.ones(b, s, h, d, dtype=t.dtype).transpose(1, 2)


def attention(q, k, v, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    return bshd(q), torch.ones(q.shape[0], q.shape[1], (q.shape[2] + 31) // 32 * 32)


def attention_backward(g, q, k, v, out, lse, dropout_p, is_causal, *, attn_mask=None, scale=None):
    return bshd(q), bshd(k), bshd(v)


# ---- recurrent nets as cuDNN's kernels lay them out ----------------------------------------------------------------------------
#
# The CPU unrolls them, a card calls one kernel. The recording runs what aten::lstm does on a card (RNN.cpp _cudnn_impl), with
# kernels that make cuDNN's results, less its reserve. The autograd node is PyTorch's own.


def turn(t, batch_first):
    return t.transpose(0, 1) if batch_first else t


def cudnn(x, weight, stride, buf, hx, cx, mode, hidden, proj, layers, batch_first, dropout, train, bidirectional, sizes, state=None):
    x = turn(x, batch_first).contiguous()
    out = torch.empty(*x.shape[:2], hidden * (2 if bidirectional else 1))
    hy = torch.empty_like(hx)
    cy = torch.empty(0) if cx is None else torch.empty_like(cx)
    return turn(out.fill_(0.5), batch_first), hy, cy, torch.empty(0, dtype=torch.uint8), buf


def cudnn_backward(x, weight, stride, buf, hx, cx, out, g, ghy, gcy, mode, hidden, proj, layers, batch_first, dropout, train,
                   bidirectional, sizes, state, reserve, mask):
    g = torch.zeros(out.shape) if g is None else g
    ghy = torch.zeros(hx.shape) if ghy is None else ghy
    gcy = torch.zeros(cx.shape) if cx is not None and gcy is None else gcy
    xc, gc = turn(x, batch_first).contiguous(), turn(g, batch_first).contiguous()
    dx = torch.empty(xc.shape)
    dhx = torch.empty(hx.shape)
    dcx = None if cx is None else torch.empty(cx.shape)
    del xc, gc
    dw = [None] * len(weight)
    if mask[3]:
        xc = turn(x, batch_first).contiguous()
        biases = 0 if stride == 4 else 2 * {2: 4, 3: 3}.get(mode, 1) * hidden * layers * (2 if bidirectional else 1)
        whole = torch.zeros(sum(w.numel() for w in weight) + biases)
        dw = [torch.empty_like(w) for w in weight] if biases else [torch.empty(0).set_(whole.untyped_storage(), sum(w.numel() for w in weight[:i]), weight[i].shape) for i in range(len(weight))]
    return turn(dx, batch_first), dhx, dcx, dw


def recurrent(mode):
    def run(x, hx, weight, biases, layers, dropout, train, bidirectional, batch_first):
        h, c = hx if isinstance(hx, (list, tuple)) else (hx, None)
        out = torch._cudnn_rnn(x, weight, 4 if biases else 2, torch.empty(0), h, c, mode, h.shape[2], 0, layers, batch_first, dropout, train, bidirectional, [], None)
        return out[:3] if c is not None else out[:2]

    return run


def card_recurrent():
    lib = torch.library.Library("aten", "IMPL")
    lib.impl("_cudnn_rnn", cudnn, "CPU")
    lib.impl("_cudnn_rnn_backward", cudnn_backward, "CPU")
    for mode, name in enumerate(["rnn_relu", "rnn_tanh", "lstm", "gru"]):
        lib.impl(f"{name}.input", recurrent(mode), "AutogradCPU")
        lib.impl(f"{name}.input", recurrent(mode), "CPU")
    return lib


def card_attention():
    lib = torch.library.Library("aten", "IMPL")
    lib.impl("_scaled_dot_product_flash_attention_for_cpu", attention, "CPU")
    lib.impl("_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward, "CPU")
    return lib


if __name__ == "__main__":
    overrides = card_attention(), card_recurrent()
    torch.set_num_threads(1)
    for name in sys.argv[1:] or nets.NETS:
        record(name)
