"""Who holds a tensor."""

import collections
import gc
import os
import sys
import sysconfig
import time

from . import HERE

PERIODS = 3  # of growth, before who holds what is looked for
FILLS_UP = "a deque that the card has room for"  # instead of a name


class Holders:
    """Says what keeps tensors alive: "`losses` in `main`".

    From a tensor it asks the garbage collector who refers to it, and who to that, until it
    comes to a variable of a function that runs, to one of a module of the user's, or to an
    attribute.  A best effort, within bounds."""

    MOST_TENSORS, MOST_OBJECTS, MOST_NODES, SECONDS = 8, 2000, 20000, 10.0

    def __init__(self, torch):
        self.torch = torch
        self.until = time.monotonic() + self.SECONDS
        self.tensors = [t for t in gc.get_objects()
                        if issubclass(type(t), torch.Tensor) and self.address(t)]
        self.own = {id(self.__dict__), id(self.tensors)}
        self.by_graph = None  # what graph_holder said
        self.variables = {}  # id of an object: "`losses` in `main`"
        self.find_variables()

    def address(self, tensor):
        try:
            return tensor.untyped_storage().data_ptr() if tensor.is_cuda else 0
        except (RuntimeError, NotImplementedError):
            return 0  # a tensor without a storage of its own

    def users(self, path):
        skip = [sysconfig.get_path(k) for k in ("stdlib", "platstdlib")] + [HERE]
        return bool(path) and not path.startswith(tuple(p + os.sep for p in skip if p)) \
            and "-packages" + os.sep not in path and path[0] != "<"

    def find_variables(self):
        for frame in sys._current_frames().values():
            while frame is not None:
                if self.users(frame.f_code.co_filename):
                    self.find_locals(frame)
                frame = frame.f_back
        for name, module in list(sys.modules.items()):
            if self.users(getattr(module, "__file__", None)):
                where = os.path.basename(module.__file__)
                self.take_names(vars(module), where)

    def find_locals(self, frame):
        if not frame.f_code.co_flags & 1:  # of a module: its variables are found there
            return
        names = frame.f_locals
        self.take_names(names, frame.f_code.co_name)
        if isinstance(names, dict):
            names.clear()  # a copy, which would keep the tensors

    def take_names(self, names, where):
        for name, value in list(names.items()):
            if not name.startswith("__") and not isinstance(value, type(sys)):
                self.variables.setdefault(id(value), f"`{name}` in `{where}`")

    def attribute(self, owner, value, below):
        """Of an instance or a class: the value is its attribute, or its dictionary, in which
        `below` is one."""
        kind = owner if isinstance(owner, type) else type(owner)
        names = getattr(owner, "__dict__", None)
        if names is None or kind.__module__ == "builtins":
            return None
        for name, other in list(names.items()):
            if other is value or names is value and other is below:
                return f"`{name}` of `{kind.__name__}`"
        return None

    def fills_up(self, queue, tensor):
        """The card has room for as many tensors as a deque takes."""
        left = (queue.maxlen or sys.maxsize) - len(queue)
        return left * tensor.untyped_storage().nbytes() <= self.torch.cuda.mem_get_info()[0]

    def holder(self, tensor):
        """Breadth first: what is nearest says most.  Each look at the heap takes long, so
        there is one a level."""
        level, seen, below = [tensor], {id(tensor)}, {}
        while level and len(seen) < self.MOST_OBJECTS and time.monotonic() < self.until:
            for value in level:
                if isinstance(value, collections.deque) and self.fills_up(value, tensor):
                    return FILLS_UP
                if id(value) in self.variables:
                    return self.variables[id(value)]
            mine = {id(value): value for value in level}
            ours = {id(o) for o in (level, seen, below, mine)} | self.own
            above = []
            for owner in gc.get_referrers(*level):
                if id(owner) in seen or id(owner) in ours \
                        or type(owner).__name__ in ("frame", "list_iterator", "module"):
                    continue
                seen.add(id(owner))
                value = next((mine[id(o)] for o in gc.get_referents(owner) if id(o) in mine), None)
                name = self.attribute(owner, value, below.get(id(value)))
                if name:
                    return name
                below[id(owner)] = value
                above.append(owner)
            level = above
        return None

    def graph(self, tensor, before):
        """The size of the graph behind a tensor, if it goes back that far; else 0."""
        nodes, seen, old = [tensor.grad_fn], {tensor.grad_fn}, False
        while nodes and len(seen) < self.MOST_NODES and time.monotonic() < self.until:
            node = nodes.pop()
            number = node._sequence_nr() if hasattr(node, "_sequence_nr") else before
            old = old or number < before
            for after, _ in node.next_functions:
                if after is not None and after not in seen:
                    seen.add(after)
                    nodes.append(after)
        return len(seen) if old else 0

    def graph_holder(self, before):
        """The tensor with the smallest graph that goes back that far: others have it too."""
        sizes = []
        for tensor in self.tensors:
            if tensor.grad_fn is not None:
                size = self.graph(tensor, before)
                if size:
                    sizes.append((size, len(sizes), tensor))
        for _, _, tensor in sorted(sizes, key=lambda row: row[:2])[:self.MOST_TENSORS]:
            name = self.holder(tensor)
            if name:
                return name if name is FILLS_UP else f"the autograd graph of {name}"
        return None

    def of(self, addresses, before):
        """What holds most of the tensors at these addresses, the oldest first; FILLS_UP: what
        stops to grow.  The newest may have a variable of its own, while a graph has the
        others."""
        names = collections.Counter()
        age = {address: i for i, address in enumerate(addresses)}
        held = sorted((t for t in self.tensors if self.address(t) in age),
                      key=lambda t: age[self.address(t)])
        middle = max(0, (len(held) - self.MOST_TENSORS) // 2)  # of the loop, not before it
        for tensor in held[middle:middle + self.MOST_TENSORS]:
            names[self.holder(tensor)] += 1
        del names[None]
        name, count = names.most_common(1)[0] if names else (None, 0)
        if count < min(PERIODS, len(addresses)):
            if self.by_graph is None:
                self.by_graph = self.graph_holder(before) or ""
            name = self.by_graph or name
        return name
