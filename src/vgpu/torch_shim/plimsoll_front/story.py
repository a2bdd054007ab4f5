"""What happens in the script: the training step, what tensors are, how it ends."""

import collections
import functools
import importlib
import linecache
import os
import threading
import weakref

from .abi import Category, End, Growing, Phase, Render, c_str, c_u32
from .alone import Alone
from .device import say, text
from .files import create, leave_mark, write_whole
from .holders import FILLS_UP, PERIODS, Holders


WRAPPERS = {"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"}


def plain_name(name):
    """Without the modules that PyTorch puts around those of the script."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def stored(tensor):
    """Itself, or the tensors that a wrapper consists of, such as the shard of a DTensor."""
    if not hasattr(tensor, "__tensor_flatten__"):
        return [tensor] if hasattr(tensor, "untyped_storage") else []
    names, _ = tensor.__tensor_flatten__()
    return [part for name in names for part in stored(getattr(tensor, name))]


def unless_compiling(torch, hook):
    """What torch.compile traces has no hooks: they would break the graph."""
    compiling = torch.compiler.is_compiling

    def run(*args):
        if not compiling():
            hook(*args)
    return run


class Story:
    """Follows the training step, and names tensors for what they are."""

    def __init__(self, run, device, shim):
        self.run, self.device, self.shim = run, device, shim
        self.folder = os.getcwd()
        self.step, self.phase, self.op = -1, Phase.LOAD, ""
        self.depth, self.applying, self.stack = 0, 0, []
        self.names = {}  # id of a module: its path
        self.roots = weakref.WeakSet()
        self.parameter_names = {}  # id of a parameter: its name
        self.parameters = {}  # id: weak reference
        self.optimizers = weakref.WeakSet()
        self.stepping = []  # optimizers whose step() runs, each in the one before
        self.sequences = []  # at the end of each step, the next node's number
        self.named = set()  # cards and their lines whose holder is known
        self.done, self.why, self.end = False, "", End.DONE
        self.finishing = threading.RLock()
        self.before_report = []  # functions that have something to add
        self.main = threading.get_ident()

    # -- marks

    def mark(self, phase=None, op=""):
        if self.done or os.getpid() != self.device.pid:
            return
        if phase is not None:
            self.phase = phase
            if phase != Phase.LOAD and self.step < 0:
                self.step = 0
        if (self.step, self.phase, op) != self.op:
            self.op = (self.step, self.phase, op)
            self.device.call("mark", self.step, self.phase, op.encode())
            self.shim.plimsoll_shim_module(op.encode())

    # -- names

    def label(self, tensor, category, name=""):
        try:
            for part in stored(tensor):
                if part.is_cuda and not part.is_sparse:
                    self.shim.plimsoll_shim_label(part.untyped_storage(), category,
                                                  name.encode())
        except (RuntimeError, NotImplementedError):
            pass  # a tensor without a storage of its own

    def label_parameter(self, p):
        self.parameters[id(p)] = weakref.ref(p)
        name = self.parameter_names.get(id(p), "")
        self.label(p, Category.PARAMETER, name)
        self.label_gradient(p, name)
        # what libraries hang on it: FSDP's gathered parameter, DeepSpeed's shard
        for key, value in getattr(p, "__dict__", {}).items():
            if isinstance(value, self.torch.Tensor):
                self.label(value, Category.GRADIENT if "grad" in key else Category.PARAMETER,
                           name)

    def label_gradient(self, p, name):
        if (p.is_leaf or p.retains_grad) and p.grad is not None:  # others warn when asked
            self.label(p.grad, Category.GRADIENT, name + ".grad" if name else "")

    def label_module(self, module):
        for name, p in module.named_parameters():
            self.parameter_names.setdefault(id(p), plain_name(name))
            self.label_parameter(p)
        for name, b in module.named_buffers():
            self.label(b, Category.BUFFER, plain_name(name))

    def label_gathered(self, module):
        """What runs in place of the parameters that are known."""
        for name, p in module._parameters.items():
            if p is None or self.known(p):
                continue
            name = ".".join(filter(None, (self.names.get(id(module)), name)))
            if isinstance(p, self.torch.nn.Parameter):  # else a view, made again each time
                self.parameter_names[id(p)] = name
                self.label_parameter(p)
                if p.requires_grad:  # its gradient is there for a moment only
                    p.register_post_accumulate_grad_hook(
                        lambda p, name=name: self.label_gradient(p, name))
            else:
                self.label(p, Category.PARAMETER, name)

    def known(self, p):
        ref = self.parameters.get(id(p))
        return ref is not None and ref() is p

    def label_gradients(self):
        for key, ref in list(self.parameters.items()):
            p = ref()
            if p is None:
                self.parameters.pop(key, None)
            else:
                self.label_gradient(p, self.parameter_names.get(key, ""))

    def label_optimizer(self, optimizer):
        for group in optimizer.param_groups:
            for p in group["params"]:
                self.label_parameter(p)
        for p, state in optimizer.state.items():
            if isinstance(state, dict):
                name = self.parameter_names.get(id(p), "")
                for key, value in state.items():
                    if isinstance(value, self.torch.Tensor):
                        self.label(value, Category.OPTIMIZER_STATE,
                                   f"{name}.{key}" if name else str(key))

    def sweep(self):
        self.label_gradients()
        for optimizer in list(self.optimizers):
            self.label_optimizer(optimizer)

    # -- modules

    def enter_module(self, module, args):
        if self.done or threading.get_ident() != self.main or self.phase == Phase.BACKWARD:
            return
        self.depth += 1
        if self.depth == 1:
            if module not in self.roots:
                self.roots.add(module)
                self.names.update((id(m), plain_name(n)) for n, m in module.named_modules())
                self.label_module(module)
            for a in args if isinstance(args, tuple) else ():
                if isinstance(a, self.torch.Tensor) and a.is_cuda and not a.requires_grad \
                        and self.phase != Phase.LOSS:
                    self.label(a, Category.INPUT)
            loss = "loss" in type(module).__module__.rsplit(".", 1)[-1]
            self.phase = Phase.LOSS if loss else Phase.FORWARD
            self.step = max(self.step, 0)
        self.stack.append(self.names.get(id(module), ""))
        self.mark(op=self.stack[-1])

    def leave_module(self, module, args, result):
        if not self.depth or threading.get_ident() != self.main or self.phase == Phase.BACKWARD:
            return
        self.label_gathered(module)
        self.depth -= 1
        if self.stack:
            self.stack.pop()
        if self.depth == 0:
            self.mark(Phase.LOSS)
        else:
            self.mark(op=self.stack[-1] if self.stack else "")

    # -- backward, optimizer

    def backward(self, f):
        @functools.wraps(f)
        def run(*args, **kwargs):
            if self.phase == Phase.BACKWARD or self.done:
                return f(*args, **kwargs)
            self.depth, self.stack = 0, []  # an exception may have left a module open
            self.stepping.clear()  # or a step
            self.mark(Phase.BACKWARD)
            try:
                return f(*args, **kwargs)
            finally:
                self.label_gradients()
                self.phase = Phase.LOSS
        return run

    def zero_grad(self, f):
        @functools.wraps(f)
        def run(*args, **kwargs):
            before = self.phase
            self.mark(Phase.ZERO_GRAD)
            try:
                return f(*args, **kwargs)
            finally:
                self.mark(Phase.INPUTS if before in (Phase.LOAD, Phase.ZERO_GRAD) else before)
        return run

    def before_step(self, optimizer, args, kwargs):
        self.stepping.append(optimizer)
        first = optimizer not in self.optimizers
        self.optimizers.add(optimizer)
        self.label_optimizer(optimizer)
        self.mark(Phase.OPTIMIZER)
        if first and not self.done and os.getpid() == self.device.pid:
            self.device.call("first_step")

    def after_step(self, optimizer, args, kwargs):
        self.label_optimizer(optimizer)
        if self.stepping and self.stepping.pop() is optimizer and self.stepping:
            return  # ZeroRedundancyOptimizer's own optimizer: the step goes on
        self.stepping.clear()
        self.step += 1
        self.mark(Phase.INPUTS)
        last = self.run["steps"] and self.step >= self.run["steps"]
        self.watch_growth(last)
        if last:
            raise SystemExit(0)

    # -- growth

    def watch_growth(self, last):
        """Finds out who holds what grows while its variables are there."""
        if self.done or os.getpid() != self.device.pid \
                or not hasattr(self.shim, "plimsoll_shim_sequence"):
            return
        self.sequences.append(self.shim.plimsoll_shim_sequence())
        if last or self.step in (3, 5, 8) or self.step & (self.step - 1) == 0:
            self.name_growth()

    def name_growth(self):
        lines = collections.defaultdict(list)
        for card in self.device.cards:
            for row in card.rows("growing_blocks", Growing):
                if (card, row.line) not in self.named:
                    lines[card, row.line].append(row.addr)
        if not lines:
            return
        try:
            holders = Holders(self.torch)
            before = self.sequences[-PERIODS]
            for (card, line), addresses in lines.items():
                name = holders.of(addresses, before)
                if name is FILLS_UP:
                    card.call("bounded", c_u32(line))
                elif name:
                    if len(self.sequences) > PERIODS + 1:  # later it can be told better
                        self.named.add((card, line))
                    card.call("holder", c_u32(line), name.encode())
        except Exception:
            pass  # a name is a help: the script goes on without it

    def apply(self, f):
        @functools.wraps(f)
        def run(module, *args, **kwargs):
            self.applying += 1
            for p in module._parameters.values():  # of a DTensor it may swap only those that
                self.parameters.pop(id(p), None)   # nobody refers to, weakly either
            try:
                return f(module, *args, **kwargs)
            finally:
                self.applying -= 1
                if not self.applying and not self.done:
                    self.label_module(module)
        return run

    def follow(self, torch):
        self.torch = torch
        module = importlib.import_module("torch.nn.modules.module")
        optim = importlib.import_module("torch.optim.optimizer")
        module.register_module_forward_pre_hook(unless_compiling(torch, self.enter_module))
        module.register_module_forward_hook(unless_compiling(torch, self.leave_module), always_call=True)
        torch.nn.Module._apply = self.apply(torch.nn.Module._apply)
        torch.nn.Module.zero_grad = self.zero_grad(torch.nn.Module.zero_grad)
        torch.optim.Optimizer.zero_grad = self.zero_grad(torch.optim.Optimizer.zero_grad)
        torch.Tensor.backward = self.backward(torch.Tensor.backward)
        torch.autograd.backward = self.backward(torch.autograd.backward)
        torch.autograd.grad = self.backward(torch.autograd.grad)
        optim.register_optimizer_step_pre_hook(unless_compiling(torch, self.before_step))
        optim.register_optimizer_step_post_hook(unless_compiling(torch, self.after_step))

    # -- the end

    def finish(self):
        """Writes the report, once, whichever thread comes first."""
        if os.getpid() != self.device.pid:
            return
        with self.finishing:
            if self.done or not os.path.isdir(self.run["report"]):
                return  # without the folder nobody waits for the report
            self.done = True
            try:
                self.sweep()
            except RuntimeError:
                pass  # the script goes on in another thread: names are only a help
            try:
                self.write_report()
            except OSError as e:
                self.say_unwritten(f"cannot write the report to '{self.run['report']}': {e.strerror}")

    def say_unwritten(self, why):
        say(why)
        leave_mark(self.run, "unwritten")

    def run_alone(self):
        """On the cards that the tape says nothing about."""
        Alone(self.run, self.device.cards[0]).run_all()

    def write_report(self):
        self.device.call("ended", self.end)
        for note in filter(None, (self.device.note, self.why)):
            self.device.call("note", b"", note.encode())
        self.save()
        self.quote()
        for add in self.before_report:
            add()
        used = any(card.used() for card in self.device.cards)
        path = os.path.join(self.run["report"], f"{os.getpid()}{'+' if used else '-'}")
        for key in {"json", self.run["render"] or "json"} - {"text"}:
            write_whole(f"{path}.{key}", self.device.report(self.run, getattr(Render, key.upper())))
        write_whole(path, self.device.report(self.run, Render.TEXT))  # the last: it is looked for

    def save(self):
        """To the file, or, if another process of this run has it, next to it."""
        path = self.run["save"]
        if not path:
            return
        try:
            os.close(os.open(os.path.join(self.run["report"], ".saved"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            path = f"{path}.{os.getpid()}"
        for card in self.device.cards:
            self.save_card(card, f"{path}.cuda{card.index}" if card.index else path)

    def save_card(self, card, path):
        """A file that the user names is written to as a shell would do it; others are new."""
        name = path
        try:
            if path == self.run["save"]:
                card.call("save", text(name))
                return
            with create(path) as f:
                name = f"/proc/self/fd/{f.fileno()}"
                card.call("save", text(name))
        except OSError as e:
            self.say_unwritten(f"cannot write '{path}': {e.strerror}")
        except RuntimeError as e:
            self.say_unwritten(str(e).replace(name, path))

    def quote(self):
        """Puts what stands there next to each line."""
        for card in self.device.cards:
            for i, line in enumerate(card.rows("lines", c_str)):
                file, _, number = line.decode(errors="replace").rpartition(":")
                code = file and (linecache.getline(os.path.join(self.folder, file), int(number))
                                 or linecache.getline(file, int(number)))  # of a package
                if code:
                    card.call("source", c_u32(i), code.strip().encode())
