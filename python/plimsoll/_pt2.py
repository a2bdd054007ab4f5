"""_pt2.py -- writes the graph of a torch.export.ExportedProgram as the model JSON of a .pt2.

docs/formats/pt2.md says what the library reads; that is what is written, in the words of torch's own
torch/_export/serde/schema.py, and nothing else: no weights, no sample inputs, no stack traces.

plimsoll_export::mark is an op that does nothing, which _export.py puts into the code that it traces; it notes what modules
were called with ("call PATH") and where a checkpoint begins and ends ("begin K", "end K").
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

import sympy
import torch
from torch.export.graph_signature import InputKind, OutputKind

# What the code that is traced calls to say where it is.
_LIBRARY = torch.library.Library("plimsoll_export", "DEF")
_LIBRARY.define("mark(Tensor[] tensors, str what) -> ()")
_LIBRARY.impl("mark", lambda tensors, what: None, "CompositeExplicitAutograd")
torch.fx.node.has_side_effect(torch.ops.plimsoll_export.mark.default)

# src: torch/_export/serde/schema.py, ScalarType; the reader takes its words as well as its numbers.
_DTYPES = {
    torch.uint8: "BYTE", torch.int8: "CHAR", torch.int16: "SHORT", torch.int32: "INT", torch.int64: "LONG",
    torch.float16: "HALF", torch.float32: "FLOAT", torch.float64: "DOUBLE", torch.complex32: "COMPLEXHALF",
    torch.complex64: "COMPLEXFLOAT", torch.complex128: "COMPLEXDOUBLE", torch.bool: "BOOL",
    torch.bfloat16: "BFLOAT16", torch.uint16: "UINT16", torch.float8_e4m3fn: "FLOAT8E4M3FN",
    torch.float8_e5m2: "FLOAT8E5M2", torch.float8_e4m3fnuz: "FLOAT8E4M3FNUZ", torch.float8_e5m2fnuz: "FLOAT8E5M2FNUZ",
}
_MEMORY_FORMATS = {torch.contiguous_format: 1, torch.channels_last: 2, torch.channels_last_3d: 3,
                   torch.preserve_format: 4}
_LAYOUTS = {torch.sparse_coo: 1, torch.sparse_csr: 2, torch.sparse_csc: 3, torch.sparse_bsr: 4, torch.sparse_bsc: 5,
            torch._mkldnn: 6, torch.strided: 7}  # type: ignore[attr-defined]
# Kinds of inputs whose names the reader takes: tag, key of the name.
_INPUTS = {InputKind.PARAMETER: ("parameter", "parameter_name"), InputKind.BUFFER: ("buffer", "buffer_name"),
           InputKind.CONSTANT_TENSOR: ("tensor_constant", "tensor_constant_name"),
           InputKind.USER_INPUT: ("user_input", None)}
_OUTPUTS = {OutputKind.USER_OUTPUT: "user_output", OutputKind.LOSS_OUTPUT: "loss_output"}


class Call(NamedTuple):
    """A module call that a node was made in."""

    key: str
    path: str
    type: str


@dataclass
class Step:
    """A node of the graph or of a subgraph, in the order in which they run."""

    node: Any
    stack: List[Call]


@dataclass
class Region:
    """What ran between the begin and the end of a checkpoint."""

    number: int
    caller: List[Call]
    steps: List[Step] = field(default_factory=list)
    tensors: List[Any] = field(default_factory=list)
    path: str = ""
    """The module call that it is, or else the name that it was given."""


class Program:
    """The graph of an export, and what is noted about it."""

    def __init__(self, program: Any, module: torch.nn.Module) -> None:
        self._program = program
        self._module = module
        self._sizes: Dict[Any, Dict[str, Any]] = {}  # text of each expression
        self._names: Dict[Any, str] = {}  # of nodes whose value is part of the result of another
        self._stacks: Dict[Any, List[Call]] = {}
        self._calls: Dict[str, List[Any]] = {}  # what each module was called with first
        self.regions: List[Region] = []
        self.settings: Dict[str, str] = {}
        self.notes: List[str] = []
        self.limits: Dict[str, Tuple[int, Optional[int]]] = {}
        """Of the open sizes in dimension 0 ("batch") and 1 ("seq") of the inputs: the least and the largest."""
        self._note()
        self._name_regions()

    # ---- what the marks say --------------------------------------------------------------------------

    def _walk(self, graph_module: Any) -> Iterator[Any]:
        """The nodes in the order in which they run, those of subgraphs in the place of the node that calls them."""
        for node in graph_module.graph.nodes:
            for arg in node.args if node.op == "call_function" else ():
                if isinstance(arg, torch.fx.Node) and arg.op == "get_attr":
                    inner = _attribute(graph_module, arg.target)
                    if isinstance(inner, torch.fx.GraphModule):
                        yield from self._walk(inner)
            yield node

    def _note(self) -> None:
        active: List[Region] = []
        for node in self._walk(self._program.graph_module):
            if node.op != "call_function":
                continue
            stack = _stack_of(node)
            if not _is_mark(node):
                step = Step(node, stack)
                self._stacks[node] = stack
                for region in active:
                    region.steps.append(step)
                continue
            tensors, what = node.args
            word, rest = what.split(" ", 1)
            if word == "call":
                self._calls.setdefault(rest, list(tensors))
            elif word == "begin":
                active.append(Region(int(rest), stack, tensors=list(tensors)))
            else:
                region = next(r for r in active if r.number == int(rest))
                active.remove(region)
                if any(_is_op(s.node) for s in region.steps):
                    self.regions.append(region)

    def _name_regions(self) -> None:
        """A checkpoint is named by the module call that it is; another one becomes a call of its own."""
        for region in self.regions:
            call = self._call_of(region)
            if call:
                region.path = _plain(call.path)
        keys: Dict[str, Set[str]] = {}
        for stack in self._stacks.values():
            for call in stack:
                keys.setdefault(_plain(call.path), set()).add(call.key)
        for region in self.regions:
            same = [r for r in self.regions if r.path == region.path]
            if region.path and len(keys[region.path]) == len(same):
                self._calls.setdefault(region.path, []).extend(region.tensors)
                continue
            depth = len(region.caller)
            above = _plain(region.caller[-1].path) if depth else ""
            region.path = f"{above}.checkpoint({region.number})".lstrip(".")
            self._calls[region.path] = region.tensors
            for step in region.steps:
                step.stack.insert(depth, Call(f"checkpoint_{region.number}", region.path, "torch.utils.checkpoint"))

    def _call_of(self, region: Region) -> Optional[Call]:
        """The outermost call all of whose nodes are in the region, and no others."""
        ops = [s for s in region.steps if _is_op(s.node)]
        inside = {s.node for s in region.steps}
        for depth, call in enumerate(ops[0].stack):
            if depth and all(len(s.stack) > depth and s.stack[depth].key == call.key for s in ops) and \
                    not any(len(stack) > depth and stack[depth].key == call.key and node not in inside and _is_op(node)
                            for node, stack in self._stacks.items()):
                return call
        return None

    def scopes(self) -> Set[str]:
        """The paths of all module calls."""
        return {_plain(call.path) for stack in self._stacks.values() for call in stack}

    def dynamic(self) -> bool:
        """Whether dimension 0 of an input is open."""
        return bool(self.open_symbols(0))

    def open_symbols(self, dim: int) -> List[Any]:
        """What stands for the open sizes in this dimension of the inputs."""
        inputs = {s.arg.name for s in self._program.graph_signature.input_specs if s.kind == InputKind.USER_INPUT
                  and hasattr(s.arg, "name")}
        found: Dict[Any, None] = {}
        for node in self._program.graph.nodes:
            value: Any = node.meta.get("val") if node.op == "placeholder" and node.name in inputs else None
            if torch.is_tensor(value) and value.dim() > dim and _concrete(value.shape[dim]) is None:
                found.update(dict.fromkeys(value.shape[dim].node.expr.free_symbols))
        return list(found)

    def _ranges(self) -> Dict[str, Any]:
        """As the export has them, within the limits."""
        bounds = {s: self.limits[name] for dim, name in enumerate(("batch", "seq")) if name in self.limits
                  for s in self.open_symbols(dim)}
        ranges = {}
        for symbol, r in self._program.range_constraints.items():
            least, most = bounds.get(symbol, (0, None))
            low, high = _bound(r.lower), _bound(r.upper)
            ranges[str(symbol)] = {"min_val": least if low is None else max(least, low),
                                   "max_val": high if most is None else most if high is None else min(most, high)}
        return ranges

    # ---- sizes and tensors -----------------------------------------------------------------------------

    def _size(self, size: Any) -> Dict[str, Any]:
        if isinstance(size, int):
            return {"as_int": size}
        expr = size.node.expr
        text = self._sizes.get(expr)
        if text is None:
            text = self._sizes[expr] = {"as_int": int(expr)} if expr.is_number else {"as_expr": _expression(size)}
        return text

    def _tensor(self, tensor: Any, requires_grad: bool = False) -> Dict[str, Any]:
        if tensor.dtype not in _DTYPES:
            raise ValueError(f"a tensor of {tensor.dtype}")
        strided = tensor.layout in (torch.strided, torch._mkldnn)  # type: ignore[attr-defined]
        meta = {"dtype": _DTYPES[tensor.dtype], "sizes": [self._size(n) for n in tensor.shape],
                "requires_grad": requires_grad, "layout": _LAYOUTS.get(tensor.layout, 0)}
        if strided:
            meta["strides"] = [self._size(n) for n in tensor.stride()]
        return meta

    # ---- arguments ---------------------------------------------------------------------------------------

    def _name(self, node: Any) -> str:
        return self._names.get(node) or str(node.name)

    def _argument(self, arg: Any, owner: Any) -> Dict[str, Any]:
        if isinstance(arg, torch.fx.Node):
            return self._node_argument(arg, owner)
        if arg is None:
            return {"as_none": True}
        if isinstance(arg, bool):
            return {"as_bool": arg}
        if isinstance(arg, int):
            return {"as_int": arg}
        if isinstance(arg, float):
            return {"as_float": _number(arg)}
        if isinstance(arg, str):
            return {"as_string": arg}
        if isinstance(arg, torch.dtype):
            return {"as_scalar_type": _DTYPES.get(arg, str(arg))}
        if isinstance(arg, torch.device):
            return {"as_device": {"type": arg.type}}
        if isinstance(arg, torch.memory_format):
            return {"as_memory_format": _MEMORY_FORMATS[arg]}
        if isinstance(arg, torch.layout):
            return {"as_layout": _LAYOUTS.get(arg, 0)}
        if isinstance(arg, (list, tuple)):
            return self._list_argument(arg, owner)
        return {"as_other": type(arg).__name__}  # no kind that the reader knows: the op has no rule

    def _node_argument(self, node: Any, owner: Any) -> Dict[str, Any]:
        value = node.meta.get("val")
        if node.op == "get_attr":
            inner = _attribute(owner, node.target)
            if isinstance(inner, torch.fx.GraphModule):
                return {"as_graph": {"name": node.name, "graph": self._graph(inner)}}
        if isinstance(value, (torch.SymInt, int)):
            return {"as_sym_int": {"as_name": node.name}}
        if isinstance(value, (torch.SymFloat, float)):
            return {"as_sym_float": {"as_name": node.name}}
        if isinstance(value, (torch.SymBool, bool)):
            return {"as_sym_bool": {"as_name": node.name}}
        if isinstance(value, (list, tuple)):
            return {"as_tensors": [{"name": self._part(node, i)} for i in range(len(value))]}
        return {"as_tensor": {"name": self._name(node)}}

    def _list_argument(self, items: Sequence[Any], owner: Any) -> Dict[str, Any]:
        nodes = [x for x in items if isinstance(x, torch.fx.Node)]
        if nodes and all(torch.is_tensor(x.meta.get("val")) for x in nodes):
            if len(nodes) == len(items):
                return {"as_tensors": [{"name": self._name(x)} for x in nodes]}
            return {"as_optional_tensors": [{"as_none": True} if x is None else {"as_tensor": {"name": self._name(x)}}
                                            for x in items]}
        if nodes:
            return {"as_sym_ints": [{"as_name": x.name} if isinstance(x, torch.fx.Node) else {"as_int": int(x)}
                                    for x in items]}
        if items and all(isinstance(x, bool) for x in items):
            return {"as_bools": list(items)}
        if items and any(isinstance(x, float) for x in items):
            return {"as_floats": [_number(float(x)) for x in items]}
        if all(isinstance(x, int) for x in items):
            return {"as_ints": list(items)}
        return {"as_other": "list"}

    # ---- graphs --------------------------------------------------------------------------------------------

    def _part(self, node: Any, i: int) -> str:
        return f"{node.name}_part_{i}"

    def _graph(self, graph_module: Any) -> Dict[str, Any]:
        tensors: Dict[str, Any] = {}
        symbols: Dict[str, Dict[str, Any]] = {"sym_int_values": {}, "sym_float_values": {}, "sym_bool_values": {}}
        nodes: List[Dict[str, Any]] = []
        inputs: List[Dict[str, Any]] = []
        outputs: List[Dict[str, Any]] = []
        for node in graph_module.graph.nodes:
            value = node.meta.get("val")
            if node.op == "placeholder":
                inputs.append(self._argument(node, graph_module) if torch.is_tensor(value) else {"as_none": True})
            elif node.op == "output":
                flat = node.args[0] if isinstance(node.args[0], (list, tuple)) else node.args
                outputs = [self._argument(x, graph_module) for x in flat]
            if self._is_whole(node):
                self._names[node] = self._name(node.args[0])
                continue
            if torch.is_tensor(value):
                tensors.setdefault(self._name(node), self._tensor(value))
            elif isinstance(value, torch.SymInt):
                symbols["sym_int_values"][node.name] = self._size(value)
            elif isinstance(value, int) and node.op == "call_function":
                symbols["sym_int_values"][node.name] = {"as_int": value}
            if node.op == "call_function" and _is_op(node):
                nodes.append(self._node(node, graph_module, tensors))
        return {"inputs": inputs, "outputs": outputs, "nodes": nodes, "tensor_values": tensors, **symbols}

    def _is_whole(self, node: Any) -> bool:
        """x[:, 0] of an open batch is exported with a slice of all samples, which eager code leaves out."""
        if node.target is not torch.ops.aten.slice.Tensor:
            return False
        before, after = node.args[0].meta["val"].shape, node.meta["val"].shape
        dim = node.args[1] if len(node.args) > 1 else 0
        return isinstance(dim, int) and _concrete(before[dim]) is None and self._size(before[dim]) == self._size(after[dim])

    def _node(self, node: Any, owner: Any, tensors: Dict[str, Any]) -> Dict[str, Any]:
        schema = getattr(node.target, "_schema", None)
        names = [a.name for a in schema.arguments] if schema else []
        inputs = [{"name": names[i] if i < len(names) else "", "arg": self._argument(arg, owner)}
                  for i, arg in enumerate(node.args)]
        inputs += [{"name": name, "arg": self._argument(arg, owner)} for name, arg in node.kwargs.items()]
        stack = ";".join(",".join(call) for call in self._stacks[node])
        return {"target": _target(node.target), "inputs": inputs, "outputs": self._outputs(node, tensors),
                "metadata": {"nn_module_stack": stack} if stack else {}}

    def _outputs(self, node: Any, tensors: Dict[str, Any]) -> List[Dict[str, Any]]:
        """The tensors that it makes; those of a list or tuple are named by the nodes that take them out."""
        value = node.meta.get("val")
        if torch.is_tensor(value):
            return [{"as_tensor": {"name": node.name}}]
        if not isinstance(value, (list, tuple)):
            return []
        names = [self._part(node, i) for i in range(len(value))]
        for user in node.users:
            if user.op == "call_function" and getattr(user.target, "__name__", "") == "getitem":
                self._names[user] = names[user.args[1]]
        out: List[Dict[str, Any]] = []
        for name, part in zip(names, value):
            if torch.is_tensor(part):
                tensors[name] = self._tensor(part)
                out.append({"as_tensor": {"name": name}})
            else:
                out.append({"as_none": True})
        return out

    # ---- the program ---------------------------------------------------------------------------------------

    def _signature(self, tensors: Dict[str, Any]) -> Dict[str, Any]:
        """Parameters are in the order of named_parameters() and have its names: one that is tied to another is used
        under the name of the last, and is written once."""
        first: Dict[int, str] = {}
        for name, parameter in self._module.named_parameters(remove_duplicate=False):
            first.setdefault(id(parameter), name)
        used = {n.name for n in self._program.graph.nodes if n.op == "placeholder" and n.users}
        owners = dict(self._module.named_parameters(remove_duplicate=False))
        rows: Dict[Any, Dict[str, Any]] = {}
        for spec in self._program.graph_signature.input_specs:
            name = getattr(spec.arg, "name", None)
            if spec.kind not in _INPUTS or name is None or name not in tensors:
                continue
            tag, key = _INPUTS[spec.kind]
            arg: Dict[str, Any] = {"name": name}
            row: Dict[str, Any] = {"arg": arg if key else {"as_tensor": arg}}
            what: Any = name
            if key:
                row[key] = spec.target
            if spec.kind == InputKind.BUFFER:
                row["persistent"] = bool(spec.persistent)
            if spec.kind == InputKind.PARAMETER and spec.target in owners:
                owner = owners[spec.target]
                row[str(key)], what = first[id(owner)], id(owner)
                tensors[name]["requires_grad"] = owner.requires_grad
                if what in rows and name not in used:
                    continue
            rows[what] = {tag: row}
        outputs: List[Dict[str, Any]] = []
        for spec in self._program.graph_signature.output_specs:
            node = getattr(spec.arg, "name", None)
            if spec.kind in _OUTPUTS and node is not None:
                name = next((new for old, new in self._names.items() if old.name == node), node)
                outputs.append({_OUTPUTS[spec.kind]: {"arg": {"as_tensor": {"name": name}}}} if name in tensors
                               else {_OUTPUTS[spec.kind]: {"arg": {"as_none": True}}})
        return {"input_specs": list(rows.values()), "output_specs": outputs}

    def text(self, notes: Sequence[str] = ()) -> bytes:
        """The JSON."""
        graph = self._graph(self._program.graph_module)
        calls = []
        for path, nodes in self._calls.items():
            names = {self._name(n): None for n in nodes}
            calls.append({"fqn": path, "signature": {"inputs": [{"as_tensor": {"name": n}} for n in names]}})
        program = {"graph_module": {"graph": graph, "signature": self._signature(graph["tensor_values"]),
                                    "module_call_graph": calls},
                   "range_constraints": self._ranges(), "torch_version": torch.__version__}
        if notes:
            program["plimsoll_note"] = " ".join(notes)
        return json.dumps(program, separators=(",", ":")).encode()


# ---- nodes ---------------------------------------------------------------------------------------------------


def _is_mark(node: Any) -> bool:
    return node.target is torch.ops.plimsoll_export.mark.default


def _is_op(node: Any) -> bool:
    """An op on tensors: not a mark, and not Python that computes sizes or takes a tensor out of a tuple."""
    return hasattr(node.target, "namespace") and not _is_mark(node)


def _target(target: Any) -> str:
    return f"{target.__module__.replace('torch._ops', 'torch.ops', 1)}.{target.__name__}"


def _attribute(owner: Any, path: str) -> Any:
    for name in path.split("."):
        owner = getattr(owner, name, None)
    return owner


def _stack_of(node: Any) -> List[Call]:
    calls = []
    for key, (path, kind) in (node.meta.get("nn_module_stack") or {}).items():
        name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
        calls.append(Call(key, path, name))
    return calls


def _plain(path: str) -> str:
    """A module's path, whichever call of it: "layer1@2" is the third one of layer1."""
    return re.sub(r"@\d+$", "", path)


# ---- numbers ---------------------------------------------------------------------------------------------------


def _number(x: float) -> Any:
    return x if math.isfinite(x) else {"inf": "Infinity", "-inf": "-Infinity"}.get(str(x), "NaN")


def _concrete(size: Any) -> Optional[int]:
    if isinstance(size, int):
        return size
    return int(size.node.expr) if size.node.expr.is_number else None


def _expression(size: Any) -> Dict[str, Any]:
    out: Dict[str, Any] = {"expr_str": sympy.srepr(size.node.expr)}
    if size.node.hint is not None:
        out["hint"] = {"as_int": int(size.node.hint)}
    return out


def _bound(bound: Any) -> Optional[int]:
    """None: unbounded."""
    try:
        value = int(bound)
    except (OverflowError, TypeError, ValueError, AttributeError):
        return None
    return value if abs(value) < 2**62 else None
