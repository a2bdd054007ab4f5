"""_records.py -- the objects of the JSON reports (docs/json.md) as classes with attributes.

A class declares the members that its object has; what a newer library adds beyond them is an
attribute too.  Sizes are bytes, times milliseconds; None: not known, or it does not apply.
"""

from __future__ import annotations

import functools
import keyword
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple, Union, get_args, get_origin, get_type_hints


class Record:
    """An object of a report: its members are attributes (`class` is `class_`)."""

    def __init__(self, data: Dict[str, Any]) -> None:
        self._data = data

    def to_dict(self) -> Dict[str, Any]:
        """The object as it is in the JSON."""
        return self._data

    if not TYPE_CHECKING:  # to which only what is declared is known
        def __getattr__(self, name: str) -> Any:
            key = name.rstrip("_") if keyword.iskeyword(name.rstrip("_")) else name
            if name.startswith("_") or key not in self.to_dict():
                raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
            value = _read(_hints(type(self)).get(name), self.to_dict()[key])
            setattr(self, name, value)
            return value

    def __dir__(self) -> List[str]:
        return sorted({*super().__dir__(), *(k + "_" * keyword.iskeyword(k) for k in self.to_dict())})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record) or type(other) is not type(self):
            return NotImplemented
        return self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.to_dict().items())})"


@functools.lru_cache(maxsize=None)
def _hints(cls: type) -> Dict[str, Any]:
    return get_type_hints(cls)


def _read(hint: Any, value: Any) -> Any:
    """A member of the JSON as its declaration says."""
    origin, args = get_origin(hint), get_args(hint)
    if value is None:
        return None
    if origin is Union:  # Optional
        return _read(args[0], value)
    if origin is list:
        return [_read(args[0], x) for x in value]
    if origin is dict:
        return {k: _read(args[1], x) for k, x in value.items()}
    if origin is tuple:
        return tuple(value)
    return hint(value) if isinstance(hint, type) and issubclass(hint, Record) else value


# figures: shared


class ModelInfo(Record):
    """The model that an answer is about."""

    name: str
    """of the file or built-in model"""
    format: str
    """of the file: 'pt2', 'built-in'"""
    producer: str
    """who wrote the file; '': not known"""
    dtype: str
    """of its first parameter, before the setting 'dtype'"""
    parameters: int
    """of all parameters (elements)"""
    trainable_parameters: int
    """of those that are trained (elements)"""
    buffers: int
    """of all buffers (elements)"""
    parameter_bytes: int
    """of the parameters in the file, before the setting 'dtype'"""
    buffer_bytes: int
    """of the buffers in the file"""
    ops: int
    """of the graph (nodes)"""
    unknown_ops: int
    """those without a rule (nodes)"""
    packed_weights: int
    """of quantized weights, which lie in buffers and are in none of the counts of parameters (elements); not
    always there"""
    seq: int
    """the sequence length that was used, of a config.json and of models from the hub (tokens); not always there"""
    seq_max: Optional[int]
    """the longest sequence that the model was made for (tokens); None: no limit, or not known; not always there"""
    note: str
    """what the file leaves out or changes, and a PyTorch version that is simulated as another, in sentences; '':
    nothing; not always there"""
    origin: str
    """of a model of the Hugging Face hub that is not built in: its id, its commit, and the cache that has it; '':
    it is none; not always there"""
    left_out: str
    """what of the model is not counted, in words, so that no verdict on it is 'yes'; '': it is whole; not always
    there"""
    releases: str
    """of the libraries whose classes were assumed: 'transformers 5.24, peft 0.21'; '': none were; not always there"""


class StepTime(Record):
    """How long a step takes on the card, within a range; an estimate: docs/time.md."""

    low_ms: Optional[float]
    """the lower end of the range; None if there is none: 'unknown' says why"""
    usual_ms: Optional[float]
    """the usual time; None if there is none: 'unknown' says why"""
    high_ms: Optional[float]
    """the upper end of the range; None if there is none: 'unknown' says why"""
    samples_per_s: Optional[float]
    """at the usual time (samples/s); None: not known, for example if the batch is unknown"""
    tokens_per_s: Optional[float]
    """at the usual time: samples_per_s times the sequence length (tokens/s); None: not known, for example if
    samples are not sequences"""
    computation: Optional[float]
    """of the usual time, of ops that computation limits; this and the next two sum to 1 (share); None if there is
    none: 'unknown' says why"""
    memory: Optional[float]
    """of ops that memory traffic limits (share); None if there is none: 'unknown' says why"""
    launch: Optional[float]
    """of ops that the launch of kernels limits (share); None if there is none: 'unknown' says why"""
    unknown: Optional[str]
    """why there is no figure; None: there is a figure"""


class Phase(Record):
    """The counters of the allocator at the end of a phase, and their peaks within it."""

    step: int
    """from 0, as is that of the phase 'load'"""
    phase: str
    """'load', 'inputs', 'zero_grad', 'forward', 'loss', 'backward', 'optimizer'"""
    requested: int
    """by tensors, at the end of the phase"""
    allocated: int
    """in blocks, at the end of the phase"""
    reserved: int
    """from CUDA, at the end of the phase"""
    peak_requested: int
    """the most within the phase"""
    peak_allocated: int
    """the most within the phase"""
    peak_reserved: int
    """the most within the phase"""


# end of figures


# figures: cards


class CardRun(Record):
    """A run on a card; the figures are those of an estimate with this card."""

    gpu: str
    """the card's full name"""
    gpu_bytes: int
    """memory of the card"""
    gpu_exact: bool
    """a driver reported it; else it is estimated from the marketed size"""
    fits: str
    """'yes'; 'no'; 'maybe': at the lower bounds only, or the size of the CUDA context is not known; 'incomplete':
    a part of the model is not counted"""
    device_low: Optional[int]
    """reserved and the CUDA context, at the lower bounds; None unless the size of the CUDA context is known"""
    device: Optional[int]
    """the same at the usual sizes; None unless the size of the CUDA context is known"""
    device_high: Optional[int]
    """the same at the upper bounds; None unless the size of the CUDA context is known"""
    needed_low: Optional[int]
    """the smallest capacity on which the run does not fail, at the lower bounds; None unless the size of the CUDA
    context is known"""
    needed_high: Optional[int]
    """the same at the upper bounds; None unless the size of the CUDA context is known"""
    headroom: Optional[int]
    """what the card, or a memory fraction of it, has beyond needed_high; None: not known; None unless the size of
    the CUDA context is known"""
    margin_kept: bool
    """as in an estimate"""
    low_ms: Optional[float]
    """the range of the time of a step: its lower end; None: not known"""
    usual_ms: Optional[float]
    """the usual time; None: not known"""
    high_ms: Optional[float]
    """the upper end of the range; None: not known"""
    samples_per_s: Optional[float]
    """at the usual time (samples/s); None: not known"""
    price_usd: Optional[int]
    """of the card at its launch (US dollars); None: not known"""
    usd_per_sample_per_s: Optional[float]
    """the price for each of samples_per_s (US dollars); None: not known"""


class CardsReport(Record):
    """The same run on each card: does it fit, and how fast is it."""

    schema: str
    model: ModelInfo
    """the model"""
    settings: Dict[str, Any]
    """as used, with the defaults filled in"""
    cards: List[CardRun]
    """one for each card, in the order of the setting 'gpu'; in data in that of --sort, the fastest first"""


# end of figures


# figures: estimate


class Live(Record):
    """A storage that is live at the peak."""

    name: str
    """'layer1.0.conv1.weight', 'features.0'"""
    role: str
    """'out', 'grad', 'exp_avg'; empty: the named tensor itself"""
    category: str
    """'parameter', 'gradient', 'activation': the words of plim_category_name"""
    dtype: str
    """of the first tensor in the storage"""
    shape: Tuple[int, ...]
    """of the first tensor in the storage"""
    bytes: int
    """requested"""
    certainty: str
    """what determines the size: 'exact', 'estimated', 'unknown'"""


class Bucket(Record):
    """A bucket of the timeline: the highest value of each counter in it."""

    step: int
    """as in a phase"""
    phase: str
    """as in a phase"""
    requested: int
    """by tensors"""
    allocated: int
    """in blocks"""
    reserved: int
    """from CUDA"""


class Change(Record):
    """A change of settings, and its effect, as an estimate with that change gives it."""

    settings: str
    """as options: '--checkpoint blocks --batch 16'"""
    saved_allocated: int
    """by which peak_allocated is lower"""
    saved_reserved: int
    """by which peak_reserved is lower"""
    fits: Optional[str]
    """as in an estimate; None: no card was chosen"""


class Rank(Record):
    """Ranks of a job of several cards that hold the same, and what each holds."""

    ranks: str
    """'0-2,5'"""
    count: int
    """how many they are (ranks)"""
    peak_requested: int
    """by tensors, at its highest"""
    peak_allocated: int
    """in blocks, at its highest"""
    peak_reserved: int
    """from CUDA, at its highest"""
    fits: Optional[str]
    """as in an estimate; None: no card was chosen"""


class ContextPart(Record):
    """A part of what a process takes of a card beside PyTorch's allocator."""

    name: str
    """'CUDA context', 'cuBLAS'"""
    low: int
    """the lower bound"""
    usual: int
    """the usual size"""
    high: int
    """the upper bound"""
    certainty: str
    """'measured' on such a card and version; 'fitted': what other parts leave of a sum that was; 'assumed'"""
    source: str
    """where that was, in words"""


class Memory(Record):
    """By category, the bytes live at the peak of allocated bytes; then each peak, and what it takes on the card."""

    parameters: int
    """requested, and live at the peak; this and the next eight sum to peak_live_requested"""
    buffers: int
    """the model's"""
    gradients: int
    """of parameters"""
    optimizer_state: int
    """the optimizer's, and averages of the model"""
    inputs: int
    """inputs and targets"""
    activations: int
    """kept for backward"""
    temporaries: int
    """within a phase: unsaved results, gradients of activations"""
    workspace: int
    """of libraries, and scratch memory of kernels"""
    outputs: int
    """of the model, and the loss"""
    peak_live_requested: int
    """what is live at the peak of allocated bytes"""
    saved_activations: int
    """what autograd saved: activations that are live when the first backward pass begins; 0 for inference"""
    peak_requested: int
    """by tensors; the three peaks are not at the same moment"""
    peak_allocated: int
    """in blocks, as torch.cuda.max_memory_allocated()"""
    peak_reserved: int
    """from CUDA"""
    reserved_low: int
    """peak_reserved with what is estimated, mostly workspaces, at its lower bounds"""
    reserved_high: int
    """peak_reserved with what is estimated at its upper bounds"""
    context_low: Optional[int]
    """of the CUDA context, with code and handles of libraries: the lower bound; None unless the size of the CUDA
    context is known"""
    context: Optional[int]
    """of the CUDA context: the usual size; None unless the size of the CUDA context is known"""
    context_high: Optional[int]
    """of the CUDA context: the upper bound; None unless the size of the CUDA context is known"""
    context_parts: List[ContextPart]
    """what the three above are sums of; a card of which only the sum is known has one part; none: not known"""
    device_low: Optional[int]
    """reserved_low + context_low; None unless the size of the CUDA context is known"""
    device: Optional[int]
    """peak_reserved + context; None unless the size of the CUDA context is known"""
    device_high: Optional[int]
    """reserved_high + context_high, with search; None unless the size of the CUDA context is known"""
    margin: int
    """what the setting 'margin' is of reserved_high: for what the simulated steps do not show, in no other figure"""
    margin_kept: bool
    """the run fits surely with that much less, too"""
    search: Optional[int]
    """what cuDNN's search of plans adds to device_high: with the setting 'cudnn_benchmark' it may take all that is
    free for a moment, but never fails for that, so that needed is without it; 0: no search; None: there is such
    a search, and no card was chosen"""
    ema: int
    """the part of optimizer_state that is the average of the model"""
    needed_low: Optional[int]
    """the smallest capacity of a card on which the run does not fail, context included: the lower bound; None: no
    card was chosen; None unless the size of the CUDA context is known"""
    needed_high: Optional[int]
    """the upper bound of that capacity; None: no card was chosen; None unless the size of the CUDA context is
    known"""
    headroom: Optional[int]
    """what the card, or a memory fraction of it, has beyond needed_high; None: no card was chosen, or the run may
    not fit; None unless the size of the CUDA context is known"""


class Peak(Record):
    """What is live at the peak of allocated bytes."""

    step: int
    """as in a phase"""
    phase: str
    """as in a phase"""
    op: str
    """the layer that runs"""
    live: List[Live]
    """all storages, the largest first"""


class Certainty(Record):
    """The bytes live at the peak by what determines them; they sum to peak_live_requested."""

    exact: int
    """PyTorch's own code determines them"""
    estimated: int
    """a library at run time does, within known bounds"""
    unknown: int
    """of ops without a rule, counted with a bound"""
    unknown_ops: List[str]
    """names of the ops without a rule, each once"""


class Flops(Record):
    """The computation of a step."""

    forward: int
    """of the forward pass (FLOPs)"""
    backward: int
    """of the backward pass (FLOPs)"""
    forward_macs: int
    """multiply-accumulates of the forward pass (MACs)"""


class Verdict(Record):
    """Whether it fits on the card."""

    gpu: Optional[str]
    """the card's full name; None: none was chosen"""
    gpu_bytes: Optional[int]
    """memory of the card; None: none was chosen"""
    fits: Optional[str]
    """'yes'; 'no'; 'maybe': the capacity is between needed_low and needed_high, or the size of the CUDA context is
    not known; 'incomplete': what is counted fits, or may, but a part of the model is not counted; None: no card
    was chosen"""
    oom: bool
    """memory runs out even at the lower bounds"""
    oom_text: Optional[str]
    """the error message that PyTorch prints; None unless memory runs out even at the lower bounds"""


class Budget(Record):
    """The setting "budget", and whether it is kept."""

    bytes: int
    """the setting; 0: not set"""
    within: bool
    """reserved_high is within it, and the model is counted whole"""


class Timeline(Record):
    """Memory over time, in buckets with equal numbers of events."""

    peak_bucket: int
    """of the bucket with the peak (index)"""
    buckets: List[Bucket]
    """up to 240, over all steps"""


class EstimateReport(Record):
    """The memory of a training step or an inference."""

    schema: str
    model: ModelInfo
    """the model"""
    settings: Dict[str, Any]
    """as used, with the defaults filled in; the same answer follows from them again"""
    memory: Memory
    """by category at the peak, the peaks, and on the card"""
    phases: List[Phase]
    """in order: 'load', then those of each step, as far as they run"""
    peak: Peak
    """what is live at the peak"""
    certainty: Certainty
    """what determines the bytes live at the peak"""
    flops: Flops
    """the computation of a step"""
    fit: Verdict
    """whether it fits on the card"""
    time: StepTime
    """how long a step takes on the card"""
    budget: Optional[Budget]
    """whether the budget is kept; None: no budget is set"""
    timeline: Timeline
    """memory over time"""
    assumed: Optional[str]
    """the training loop that was assumed, in words; None: an inference"""
    advice: str
    """what dominates the peak, and which changes would lower it"""
    changes: List[Change]
    """simulated changes that lower the peak by 1 % or more: those that fit first, then those that save most"""
    ranks: List[Rank]
    """with the setting rank=all: all ranks, the worst first, which is what the rest is about"""


# end of figures


# figures: times


class OpTime(Record):
    """What one op of a step does, and how long that takes on the card."""

    layer: str
    """'layer1.0.conv1'"""
    op: str
    """'aten.conv2d.default'"""
    phase: str
    """as in a phase"""
    work: str
    """the class of its kernels: 'conv', 'pointwise'"""
    dtype: str
    """of what it multiplies; empty: nothing"""
    macs: int
    """multiply-accumulates (MACs)"""
    bytes: int
    """moved to and from the memory of the card"""
    kernels: int
    """started, about"""
    ms: Optional[float]
    """how long it takes; None: not known"""
    limit: str
    """'computation', 'memory traffic', 'kernel launches'; empty: not known"""


class TimesReport(Record):
    """What takes the time of a step, the longest first."""

    schema: str
    model: ModelInfo
    """the model"""
    settings: Dict[str, Any]
    """as used, with the defaults filled in"""
    gpu: Optional[str]
    """the card's full name; None: none was chosen"""
    time: StepTime
    """of the whole step"""
    ops: List[OpTime]
    """of the last step: what takes longest first"""


# end of figures


# figures: compare


class Compared(Record):
    """A model among those that are compared; the figures are those of its estimate."""

    model: str
    """its name"""
    batch: Optional[int]
    """in a batch (samples); None: it has no batch dimension"""
    parameters: int
    """of all parameters (elements)"""
    macs: int
    """of the forward pass of the whole batch (MACs)"""
    macs_per_sample: int
    """of the forward pass of one sample (MACs)"""
    saved_activations: int
    """what autograd saves for backward"""
    peak_requested: int
    """by tensors"""
    peak_allocated: int
    """in blocks, as torch.cuda.max_memory_allocated()"""
    peak_reserved: int
    """from CUDA"""
    device_low: Optional[int]
    """on the card, at the lower bounds; None unless the size of the CUDA context is known"""
    device_high: Optional[int]
    """on the card, at the upper bounds; None unless the size of the CUDA context is known"""
    top1: Optional[float]
    """published top-1 accuracy on ImageNet-1K (percent); None: not known"""
    time_low_ms: Optional[float]
    """the range of the time of a step: its lower end; None: not known"""
    time_usual_ms: Optional[float]
    """the usual time; None: not known"""
    time_high_ms: Optional[float]
    """the upper end of the range; None: not known"""
    fits: Optional[str]
    """as in an estimate; None: no card was chosen"""


class ComparisonReport(Record):
    """Several models side by side."""

    schema: str
    note: str
    """what is left out of a model, and a PyTorch version that is simulated as another; not always there"""
    models: List[Compared]
    """as they were given"""


# end of figures


# figures: info


class Held(Record):
    """Sums over the tensors of a kind, a type or a module that have a storage of their own."""

    kind: str
    """'parameters', 'buffers', 'constants', 'optimizer state', 'other'"""
    tensors: int
    """with a storage of their own"""
    elements: int
    """of them"""
    bytes: int
    """of them"""


class TypeSum(Record):
    """Sums over the tensors of a type."""

    type: str
    """'fp32', 'Q4_K'"""
    tensors: int
    """with a storage of their own"""
    elements: int
    """of them"""
    bytes: int
    """of them"""


class ModuleSum(Record):
    """Sums over the tensors of a module."""

    name: str
    """'layer1.0'; empty: the whole model"""
    depth: int
    """0: the whole model (levels)"""
    tensors: int
    """with a storage of their own"""
    elements: int
    """of them"""
    bytes: int
    """of them"""


class Tensor(Record):
    """A tensor of the file."""

    name: str
    """in the file"""
    kind: str
    """'parameters', which a weight is, too, whose kind the file does not tell"""
    type: str
    """'fp32', 'Q4_K'"""
    shape: Tuple[int, ...]
    """in the file"""
    elements: int
    """of the tensor"""
    bytes: int
    """on the device, if it is loaded unchanged"""
    same_as: Optional[str]
    """the tensor whose storage it shares; it is in no sum then; None: its own"""


class Input(Record):
    """An input of the graph."""

    name: str
    """in the graph"""
    type: str
    """'fp32'"""
    shape: Tuple[int, ...]
    """with the sizes that are set"""


class OpenSize(Record):
    """A symbolic size of the graph."""

    name: str
    """as --dim takes it"""
    value: Optional[int]
    """the size (as it is used); None: it must be given"""


class InfoReport(Record):
    """The contents of a model file."""

    schema: str
    name: str
    """of the file or built-in model"""
    reader: Optional[str]
    """the name of the format; None: a built-in model"""
    format: str
    """with its version"""
    producer: Optional[str]
    """who wrote the file; None: the file does not say"""
    file_bytes: int
    """of the file that was opened; 0: a built-in model"""
    graph: bool
    """it has a graph; else weights only, which cannot be estimated"""
    ops: int
    """of the graph (nodes)"""
    unknown_ops: List[str]
    """names of the ops without a rule, each once"""
    facts: Dict[str, str]
    """metadata of the file"""
    holds: List[Held]
    """in C one for each plim_item_kind; in data those that the file has, and parameters"""
    types: List[TypeSum]
    """the largest first"""
    modules: List[ModuleSum]
    """parents before children"""
    inputs: List[Input]
    """of the graph"""
    open_sizes: List[OpenSize]
    """of the graph"""
    notes: List[str]
    """sentences about what is unknown or inconsistent"""
    tensors: List[Tensor]
    """in the file's order; with --tensors --top N the N largest"""


# end of figures


# figures: layers


class Layer(Record):
    """A layer with the shape, size and cost of its forward pass, submodules included."""

    name: str
    """'layer1.0.conv1'; empty: the model"""
    type: str
    """'Conv2d'"""
    depth: int
    """0: the model (levels)"""
    leaf: bool
    """it called no submodule"""
    inplace: bool
    """it overwrites its input with its output"""
    dtype: str
    """of the output"""
    shape: Optional[Tuple[int, ...]]
    """of the output; None: it has no output"""
    params: int
    """of its parameters (elements)"""
    parameter_bytes: int
    """of its parameters"""
    weights: int
    """of its parameters without biases (elements)"""
    values: int
    """of the output (elements)"""
    bytes: int
    """of the output"""
    macs: int
    """multiply-accumulates of the forward pass (MACs)"""
    flops: int
    """of the forward pass (FLOPs)"""
    read: int
    """transferred in the forward pass"""
    written: int
    """transferred in the forward pass"""


class Activation(Record):
    """All activations of one kind that torch.nn offers with inplace=True."""

    op: str
    """'silu'"""
    gain: str
    """what training saves then: 'less', the result instead of the input; 'moment', the same, with one tensor less
    while it runs; 'none', a copy of the input instead of the input"""
    count: int
    """of this kind (calls)"""
    inplace: int
    """that are in place already (calls)"""
    bytes: int
    """results of the others: what 'less' saves at most"""


class LayersTotal(Record):
    """Sums of the whole model."""

    values: int
    """of the outputs of the leaves that are not in place (elements)"""
    bytes: int
    """of the outputs of the leaves that are not in place"""
    macs: int
    """multiply-accumulates of the forward pass (MACs)"""
    flops: int
    """of the forward pass (FLOPs)"""
    read: int
    """transferred in the forward pass"""
    written: int
    """transferred in the forward pass"""


class LayersReport(Record):
    """Each layer with the shape, size and cost of its forward pass."""

    schema: str
    model: ModelInfo
    """the model"""
    settings: Dict[str, Any]
    """as used, with the defaults filled in"""
    layers: List[Layer]
    """in call order, parents before children; in data as --depth, --types and --sort say"""
    activations: List[Activation]
    """those with an in-place form, in call order"""
    total: LayersTotal
    """sums of the whole model"""


# end of figures


# figures: serve


class ServedPart(Record):
    """A part of what an inference engine holds."""

    part: str
    """'weights', 'KV cache'"""
    place: str
    """'card' or 'host'"""
    low: int
    """the lower bound; the three are equal where they follow from the engine's code"""
    usual: int
    """the usual size"""
    high: int
    """the upper bound"""
    certainty: str
    """what determines the size: 'exact', 'estimated', 'unknown'"""
    doc: str
    """what it consists of"""


class ServeMost(Record):
    """The most that a card holds."""

    sure: int
    """with everything at its upper bound; 0: none, or a part of the model is not counted (tokens, or requests)"""
    usual: int
    """with everything at its usual size; 0: none (tokens, or requests)"""
    limited: bool
    """the model or the search allows no more than usual, not the card"""


class ServeReport(Record):
    """What an inference engine holds of a model, and how much context and how many requests that leaves room for."""

    schema: str
    model: ModelInfo
    """the model"""
    settings: Dict[str, Any]
    """as used, with the defaults filled in"""
    engine: str
    """'vllm'"""
    gpu: Optional[str]
    """the card's full name; None: none was chosen"""
    gpu_bytes: Optional[int]
    """memory of the card; None: no card was chosen"""
    parts: List[ServedPart]
    """what the engine holds"""
    device_low: int
    """sum of the parts on the card, at the lower bounds"""
    device: int
    """sum of the parts on the card, at the usual sizes"""
    device_high: int
    """sum of the parts on the card, at the upper bounds"""
    host: int
    """sum of the parts on the host, at the usual sizes"""
    context: int
    """of a request, as the settings say or by default (tokens)"""
    concurrency: int
    """at the same time, as the settings say or by default (requests)"""
    token_bytes: Optional[int]
    """of keys and values for each token, in the layers that keep all of them; None: no layer keeps all tokens"""
    request_bytes: Optional[int]
    """of all that a request of that context keeps; 0 in data: nothing; None: it is not known, as the note of the
    model says"""
    fits: Optional[str]
    """as in an estimate; None: no card was chosen"""
    longest_context: Optional[ServeMost]
    """the longest context for that many requests; None: no card was chosen"""
    most_requests: Optional[ServeMost]
    """the most requests of that context; None: no card was chosen"""
    says: List[str]
    """lines that the engine prints when it starts"""


class ServedCard(Record):
    """What a card can serve."""

    gpu: str
    """the card's full name"""
    gpu_bytes: int
    """memory of the card"""
    gpu_exact: bool
    """a driver reported it; else it is estimated from the marketed size"""
    weights: str
    """the format that the settings name; else the largest that fits at the upper bounds, else one that may fit,
    else the smallest; 'own': that of the model"""
    fits: str
    """as in an estimate"""
    device_low: int
    """sum of the parts on the card, at the lower bounds"""
    device: int
    """sum of the parts on the card, at the usual sizes"""
    device_high: int
    """sum of the parts on the card, at the upper bounds"""
    longest_sure: int
    """the longest context, with everything at its upper bound; 0: none (tokens)"""
    longest_usual: int
    """the longest context, with everything at its usual size; 0: none (tokens)"""
    longest_limited: bool
    """the model or the search allows no longer one, not the card"""
    requests_sure: int
    """the most, with everything at its upper bound; 0: none (requests)"""
    requests_usual: int
    """the most, with everything at its usual size; 0: none (requests)"""
    requests_limited: bool
    """the search allows no more, not the card"""


class ServeFitReport(Record):
    """What each card serves of a model."""

    schema: str
    model: ModelInfo
    """the model"""
    settings: Dict[str, Any]
    """as used, with the defaults filled in"""
    engine: str
    """'vllm'"""
    context: int
    """of a request (tokens)"""
    concurrency: int
    """at the same time (requests)"""
    cards: List[ServedCard]
    """one for each card, in the order of the setting 'gpu'"""


# end of figures


# figures: diff


class DiffSide(Record):
    """One of the two sides."""

    name: str
    """of the model or the file"""
    format: str
    """'prediction', or the format of the file: 'tape', 'snapshot', 'log'"""
    source: Optional[str]
    """of a log: who printed its figures, 'Megatron-LM'; None: not a log"""
    settings: Optional[Dict[str, Any]]
    """as used, with the defaults filled in; None: a recording"""
    gpu: Optional[str]
    """the card's full name; None: not known"""
    events: Optional[int]
    """allocations and frees; None: a log does not say"""
    live: Optional[int]
    """requested by what is live at the peak; None: a log does not say"""
    peak_step: Optional[int]
    """-1: the phase 'load', which precedes step 0; None unless peak_step and peak_phase are known"""
    peak_phase: Optional[str]
    """as in a phase; None unless peak_step and peak_phase are known"""
    peak_op: Optional[str]
    """what runs at the peak, a layer or a line; None: not known"""


class DiffFigure(Record):
    """A figure of both sides."""

    figure: str
    """the peaks 'requested', 'allocated', 'reserved', and with a card 'device'"""
    a: Optional[int]
    """of side a; None unless the side says it"""
    b: Optional[int]
    """of side b; None unless the side says it"""
    within: int
    """rounding error of a log's numbers; else 0"""


class DiffEvents(Record):
    """Allocations and frees."""

    equal: Optional[int]
    """equal in both (events); None unless neither side is a log, which has figures only"""
    resized: Optional[int]
    """differ in size (events); None unless neither side is a log, which has figures only"""
    only_a: Optional[int]
    """in a only (events); None unless neither side is a log, which has figures only"""
    only_b: Optional[int]
    """in b only (events); None unless neither side is a log, which has figures only"""


class DiffTensor(Record):
    """What is live at the peak of each side: of a category, of a module, or a tensor."""

    name: Optional[str]
    """'layer1.0.conv1'; a line of a recording; empty: the model itself; None: not known"""
    category: str
    """'activation', or 'unknown' if neither side says"""
    a: int
    """requested by what is live at the peak of a"""
    b: int
    """requested by what is live at the peak of b"""
    a_tensors: int
    """live at the peak of a"""
    b_tensors: int
    """live at the peak of b"""


class DiffCategory(Record):
    """What is live at the peak of each side: of a category."""

    category: str
    """'activation', or 'unknown' if neither side says"""
    a: int
    """requested by what is live at the peak of a"""
    b: int
    """requested by what is live at the peak of b"""
    a_tensors: int
    """live at the peak of a"""
    b_tensors: int
    """live at the peak of b"""


class DiffModule(Record):
    """What is live at the peak of each side: of a module."""

    name: Optional[str]
    """'layer1.0'; a line of a recording; empty: the model itself; None: not known"""
    a: int
    """requested by what is live at the peak of a"""
    b: int
    """requested by what is live at the peak of b"""
    a_tensors: int
    """live at the peak of a"""
    b_tensors: int
    """live at the peak of b"""


class DiffEvent(Record):
    """An allocation or a free."""

    index: int
    """of the event on the tape (from 0)"""
    event: str
    """'alloc' or 'free'"""
    bytes: int
    """requested"""
    name: Optional[str]
    """of the tensor; None: not known"""
    category: str
    """'activation', or 'unknown'"""
    where: Optional[str]
    """the layer, or the line that allocated it; None: not known"""
    step: Optional[int]
    """-1: the phase 'load', which precedes step 0; None unless step and phase are known"""
    phase: Optional[str]
    """as in a phase; None unless step and phase are known"""


class FirstDifference(Record):
    """Where the two sides part."""

    a: Optional[DiffEvent]
    """the first event of a that b lacks or has differently; None: that side has ended"""
    b: Optional[DiffEvent]
    """the first event of b that a lacks or has differently; None: that side has ended"""
    before: Optional[DiffEvent]
    """of a: the last event before it, in both; None: nothing is equal before"""


class Cause(Record):
    """A likely cause."""

    cause: str
    """'batch', 'optimizer', 'kept': docs/commands/diff.md"""
    text: str
    """in a sentence"""
    bytes: Optional[int]
    """of the tensors that it explains; None: it is not a matter of tensors"""


class DifferenceReport(Record):
    """Two runs side by side."""

    schema: str
    a: DiffSide
    """the first"""
    b: DiffSide
    """the second"""
    within: Optional[str]
    """what the figures may differ by, as it was set; None: it is not set"""
    differs: bool
    """a figure differs by more than that; if it is not set, anything does: the exit status"""
    figures: List[DiffFigure]
    """the peaks, and what the card takes"""
    events: DiffEvents
    """allocations and frees"""
    categories: List[DiffCategory]
    """those that differ most come first"""
    modules: List[DiffModule]
    """those that differ most come first"""
    tensors: List[DiffTensor]
    """those that differ most come first"""
    first_difference: Optional[FirstDifference]
    """where they part; None unless they part somewhere"""
    causes: List[Cause]
    """that with the most bytes first"""


# end of figures


# figures: fit


class Card(Record):
    """The largest batch for a card, and what it takes."""

    gpu: str
    """the card's full name"""
    gpu_bytes: int
    """memory of the card"""
    gpu_exact: bool
    """a driver reported it; else it is estimated from the marketed size"""
    batch: int
    """the largest batch that fits with context and workspaces at their upper bounds; 0: not even 1 fits (samples)"""
    batch_margin: Optional[int]
    """the largest batch that leaves the setting 'margin' free besides, for what the simulated steps do not show;
    0: none (samples); None: the sequence length was searched for, or no card and no margin was named"""
    limited: bool
    """the search or the model ended at this batch, not the card"""
    at_most: bool
    """the size of the CUDA context is not known and not counted, or a part of the model is not: the batch may be
    smaller"""
    reserved: int
    """at that batch, or at batch 1 if none fits"""
    device_low: Optional[int]
    """reserved and the CUDA context at that batch, at the lower bounds; None unless the size of the CUDA context
    is known"""
    device_high: Optional[int]
    """the same at the upper bounds; None unless the size of the CUDA context is known"""
    reserved_low: int
    """as in an estimate, at that batch"""
    reserved_high: int
    """the same at the upper bounds"""
    needed_low: Optional[int]
    """as in an estimate, at that batch; None unless the size of the CUDA context is known"""
    needed_high: Optional[int]
    """the same at the upper bounds; None unless the size of the CUDA context is known"""
    batch_usual: Optional[int]
    """the largest batch that fits with context and workspaces of the usual size: it may fail; 0: none (samples);
    None: the sequence length was searched for"""
    headroom: Optional[int]
    """what the card, or a memory fraction of it, has beyond needed_high; None: not known, or nothing fits"""
    seq: Optional[int]
    """the longest sequence that fits, at the batch of the settings; 0: not even one token fits (tokens); None: it
    was not searched for"""
    seq_margin: Optional[int]
    """as batch_margin (tokens); None: it was not searched for"""
    seq_usual: Optional[int]
    """as batch_usual (tokens); None: it was not searched for"""
    samples_per_s: Optional[float]
    """at that batch, an estimate (samples/s); None: not known, or no batch fits"""
    price_usd: Optional[int]
    """of the card at its launch (US dollars); None: not known"""
    usd_per_sample_per_s: Optional[float]
    """the price for each of samples_per_s (US dollars); None: not known"""
    verdict: str
    """on that batch, as in an estimate; 'no': nothing fits"""


class FitReport(Record):
    """The largest batch, or the longest sequence, for each card."""

    schema: str
    model: ModelInfo
    """the model"""
    settings: Dict[str, Any]
    """as used, with the defaults filled in"""
    cards: List[Card]
    """one for each card, in the order of the setting 'gpu', or of --sort"""


class Batch(Record):
    """The simulated peaks of one batch."""

    batch: int
    """in the batch (samples)"""
    peak_requested: int
    """simulated"""
    line: int
    """what the line gives for peak_requested: fixed + batch * per_sample"""
    peak_allocated: int
    """simulated"""
    peak_reserved: int
    """simulated"""
    samples_per_s: Optional[float]
    """an estimate, on the card that the settings name (samples/s); None: not known"""


class BatchesReport(Record):
    """How memory grows with the batch: the line through the two largest batches."""

    schema: str
    model: ModelInfo
    """the model"""
    fixed: int
    """of peak_requested, whatever the batch"""
    per_sample: int
    """of peak_requested, for each sample"""
    batches: List[Batch]
    """batch 1, 2, 4 ... up to the setting 'batch', at least 64"""


class Segment(Record):
    """The peaks of a step with checkpoint_sequential in this number of segments."""

    segments: int
    """1: no checkpoint"""
    calls: int
    """of modules in each segment but the last"""
    peak_requested: int
    """simulated"""
    peak_allocated: int
    """simulated"""
    peak_reserved: int
    """simulated"""


class SegmentsReport(Record):
    """The peak of a step for each number of checkpointed segments."""

    schema: str
    model: ModelInfo
    """the model"""
    calls: int
    """of modules by the Sequential that is divided"""
    best: int
    """those of the row with the lowest peak_requested (segments)"""
    segments: List[Segment]
    """1 segment first; of the numbers of segments with equal calls, only the largest"""


# end of figures


# figures: top


class TopProcess(Record):
    """A process on a device."""

    pid: int
    """its own"""
    kind: Optional[str]
    """'compute', 'graphics', 'mps', 'drm'"""
    user: Optional[str]
    """whose it is"""
    command: Optional[str]
    """its name"""
    command_line: Optional[str]
    """its words"""
    memory: Optional[int]
    """on the device"""
    peak: Optional[int]
    """the greatest memory since the monitor was started"""
    predicted: Optional[int]
    """PLIMSOLL_PREDICTED in its environment"""
    difference: Optional[int]
    """peak less predicted"""
    growth_per_s: Optional[int]
    """of memory, over at most 16 readings, in bytes"""
    full_in_s: Optional[int]
    """until it has taken what is free on the device; unknown if it does not grow"""
    busy_percent: Optional[int]
    """of the time in which it ran on the device"""
    cpu_percent: Optional[int]
    """of a core"""
    host_memory: Optional[int]
    """resident in the memory of the machine"""
    container: Optional[str]
    """the first 12 digits of its id"""
    job: Optional[str]
    """of Slurm"""
    elsewhere: bool
    """pid is that of another namespace: who it is cannot be known"""


class TopMemory(Record):
    """What the driver says of the memory of a device."""

    total: Optional[int]
    """used + free, and reserved unless used_includes_reserved"""
    used: Optional[int]
    """by everybody"""
    free: Optional[int]
    """that can still be taken"""
    reserved: Optional[int]
    """by the driver"""
    used_includes_reserved: bool
    """reserved is a part of used"""
    unified: bool
    """the memory is that of the machine"""
    growth_per_s: Optional[int]
    """of used, over at most 16 readings, in bytes"""
    full_in_s: Optional[int]
    """until free is used up at this growth; unknown if it does not grow"""


class TopDevice(Record):
    """A GPU, or a MIG instance of one."""

    index: int
    """in the order of its source; an instance has that of its GPU"""
    mig: Optional[str]
    """'1/0': GPU and compute instance; unknown: a whole GPU"""
    source: str
    """where it was found: 'nvml', or 'drm' for what the kernel publishes"""
    driver: Optional[str]
    """'nvidia', 'amdgpu', 'i915'"""
    name: Optional[str]
    """'NVIDIA T4'"""
    uuid: Optional[str]
    """as the driver says it"""
    pci: Optional[str]
    """its address"""
    memory: TopMemory
    """what the driver says of its memory"""
    busy_percent: Optional[int]
    """of the time in which a kernel ran"""
    memory_busy_percent: Optional[int]
    """of the time in which memory was read or written"""
    temperature_c: Optional[int]
    """of the GPU"""
    power_mw: Optional[int]
    """what it draws"""
    power_limit_mw: Optional[int]
    """what it may draw"""
    fan_percent: Optional[int]
    """of the fan's speed; some run above 100"""
    clock_mhz: Optional[int]
    """of the processors (MHz)"""
    memory_clock_mhz: Optional[int]
    """of the memory (MHz)"""
    trouble: Optional[str]
    """why figures are missing, a sentence"""
    processes: List[TopProcess]
    """those with the most memory first"""


class TopLooked(Record):
    """Where devices were looked for."""

    source: str
    """as in a device"""
    where: Optional[str]
    """'libnvidia-ml.so.1'"""
    found: Optional[str]
    """why there is no device, a sentence"""
    devices: int
    """that were found"""


class TopReport(Record):
    """The GPUs of a machine and the processes on them."""

    schema: str
    time_ms: int
    """of the reading, since 1970"""
    host: Optional[str]
    """the machine"""
    nvidia_driver: Optional[str]
    """its version"""
    cuda: Optional[str]
    """the newest version that it supports"""
    devices: List[TopDevice]
    """in the order of their sources"""
    looked: List[TopLooked]
    """where devices were looked for"""
    notes: List[str]
    """sentences about all of it"""


# end of figures


# figures: run


class RunTensors(Record):
    """Tensors of a line that are live at the peak, of one category, certainty and shape."""

    count: int
    """how many they are (tensors)"""
    category: str
    """'parameter', 'gradient', 'activation'"""
    certainty: str
    """what determines their sizes: 'exact', 'estimated', 'unknown'"""
    dtype: Optional[str]
    """of each; None unless they are tensors of one dtype and shape, else memory of one size"""
    shape: Optional[Tuple[int, ...]]
    """of each; None unless they are tensors of one dtype and shape, else memory of one size"""
    bytes: int
    """requested by all of them"""


class RunLine(Record):
    """A line of the script, or a module or an op, and what it allocated."""

    line: Optional[str]
    """'train.py:23'; None: not known, or outside modules"""
    source: Optional[str]
    """the text of the line; None: not known, or no line"""
    allocations: int
    """over the whole run"""
    requested: int
    """over the whole run"""
    live_at_peak: int
    """requested"""
    tensors: List[RunTensors]
    """live at the peak, the largest first"""


class Growth(Record):
    """A line of which more is live after every few steps."""

    line: Optional[str]
    """'train.py:19'; None: not known"""
    source: Optional[str]
    """the text of the line; None: not known"""
    holder: Optional[str]
    """what keeps the tensors: '`losses` in `main`'; None: not known"""
    bytes: int
    """allocated, that are added every so many steps"""
    tensors: int
    """how many more; 0: as many, but larger"""
    every: int
    """after so many (steps)"""


class RunOn(Record):
    """How the run goes on a card: on its own as it did, on others as its tape says, up to the first failure."""

    gpu: str
    """the card's full name"""
    gpu_bytes: int
    """memory of the card"""
    fits: Optional[str]
    """'yes', 'no', 'maybe', as in an estimate; None: the tape is only a beginning, or that card takes other
    kernels"""
    peak_allocated: Optional[int]
    """in blocks, at its highest; None unless the tape is what this card would do, or the script ran there by
    itself"""
    peak_reserved: Optional[int]
    """from CUDA, at its highest; None unless the tape is what this card would do, or the script ran there by
    itself"""
    device_low: Optional[int]
    """reserved, context and NCCL, at the lower bounds; None: not known"""
    device_high: Optional[int]
    """the same at the upper bounds; None: not known"""
    oom_line: Optional[str]
    """of the request that fails first; empty: not known; None: none failed"""
    oom_text: Optional[str]
    """what PyTorch says of that request; None: none failed"""
    growth_step: Optional[int]
    """near which growth fills the card; None: it does not, or only after a million steps"""


class Attempt(Record):
    """What ran until a request failed, after which the script went on."""

    oom_line: str
    """of that request; empty: not known"""
    oom_bytes: int
    """by that request"""
    peak_requested: int
    """by tensors, at its highest"""
    peak_allocated: int
    """in blocks, at its highest"""
    peak_reserved: int
    """from CUDA, at its highest"""


class Caveat(Record):
    """A remark, and how often it was made."""

    line: str
    """'train.py:42'; empty: it is about no line"""
    what: str
    """'item() is a guess: 0 (--scalar)'"""
    count: int
    """how often (times)"""


class RunCard(Record):
    """The card, and the bounds of its CUDA context."""

    name: str
    """the card's full name"""
    bytes: int
    """memory of the card"""
    context_low: int
    """of the CUDA context; 0: not known"""
    context_high: int
    """of the CUDA context; 0: not known"""
    cudnn_search: bool
    """cuDNN tried its plans: for a moment it may take all that is free"""


class RunPeak(Record):
    """Where the most was allocated, and the bytes of each category that were live then."""

    step: int
    """as in a phase"""
    phase: str
    """as in a phase"""
    op: str
    """the layer that ran; empty: not known"""
    line: str
    """of the request; empty: not known"""
    parameter: int
    """requested, as are the next eight"""
    buffer: int
    """the model's"""
    gradient: int
    """of parameters"""
    optimizer_state: int
    """the optimizer's"""
    input: int
    """inputs and targets"""
    activation: int
    """made in the forward pass"""
    temporary: int
    """made in other phases"""
    workspace: int
    """of libraries, and scratch memory of kernels"""
    output: int
    """of the model"""


class RunReport(Record):
    """What one process did with one card."""

    schema: str
    device: int
    """the number of the card, on a machine of several (index); not always there"""
    card: RunCard
    """the card, and the bounds of its CUDA context"""
    torch: str
    """the version of PyTorch"""
    rank: int
    """of a process that is one of several; not always there"""
    world: int
    """that train together (processes); not always there"""
    nccl_low: int
    """of NCCL's buffers, outside the allocator; an estimate: the lower bound; not always there"""
    nccl_high: int
    """the upper bound; not always there"""
    peak_requested: int
    """by tensors; each peak is its own maximum"""
    peak_allocated: int
    """in blocks, as torch.cuda.max_memory_allocated()"""
    peak_reserved: int
    """from CUDA"""
    events: int
    """on the tape"""
    storages: int
    """on the tape; 0: the script did not use the card"""
    num_ooms: int
    """that failed (requests)"""
    num_alloc_retries: int
    """that were served only after cached memory was freed (requests)"""
    steps: int
    """that are complete"""
    needed_low: Optional[int]
    """the smallest capacity of a card on which the run does not fail, context included: the lower bound; None:
    memory ran out, or it is not known"""
    needed_high: Optional[int]
    """the upper bound of that capacity; None: likewise"""
    truncated: bool
    """the run was too long to store: what was live at the peak is of its first part"""
    peak: RunPeak
    """where the most was allocated, and what was live then"""
    by: str
    """what lines are: 'line', 'module', 'op'"""
    lines: List[RunLine]
    """by what is live at the peak, the largest first"""
    growth: List[Growth]
    """lines whose memory grows, the fastest first"""
    growth_steps: int
    """over which growth was looked for; 0: too few have run"""
    growth_sure: bool
    """these steps tell; else the lines are those that may grow"""
    phases: List[Phase]
    """as they came, the first 'load'"""
    cards: List[RunOn]
    """those that were named; at least the one it ran on"""
    attempts: List[Attempt]
    """those that failed before what is told here, in order"""
    caveats: List[Caveat]
    """what the figures do not say"""
    end: str
    """'done'; 'memory': the card ran out of memory; 'error': another exception; 'early': it was stopped"""
    oom_line: Optional[str]
    """of the request that ended the script, or else of the first that failed; empty: not known; None: none failed"""
    oom_text: Optional[str]
    """what PyTorch says of that request; None: none failed"""


class MachineReport(Record):
    """What one process did with several cards of one machine."""

    schema: str
    fullest: int
    """the card that ran out of memory, else the one that reserved the most (index)"""
    cards: List[RunReport]
    """the run of each, with its number as 'device'"""


# end of figures


# figures: replay


class Stat(Record):
    """A statistic of an allocator, as torch.cuda.memory_stats has it."""

    current: int
    """at the end (bytes or blocks)"""
    peak: int
    """the most at any time (bytes or blocks)"""
    allocated: int
    """the sum of all that was added (bytes or blocks)"""
    freed: int
    """the sum of all that was taken away (bytes or blocks)"""


class Stats(Record):
    """The statistics by their names in torch.cuda.memory_stats, without ".all"."""

    requested_bytes: Stat
    """as requested; not always there"""
    allocated_bytes: Stat
    """in blocks that are in use"""
    active_bytes: Stat
    """in blocks that are in use, or wait for another stream to be freed"""
    reserved_bytes: Stat
    """in segments, from CUDA"""
    inactive_split_bytes: Stat
    """free, in segments that are partly used"""
    allocation: Stat
    """that are in use (blocks)"""
    active: Stat
    """that are in use, or wait for another stream to be freed (blocks)"""
    segment: Stat
    """from CUDA (segments)"""
    inactive_split: Stat
    """that are free, in segments that are partly used (blocks)"""


class Mark(Record):
    """A mark of the tape, the counters of the allocator at the end of what follows it, and their peaks within that."""

    step: int
    """-1: the phase 'load', which precedes step 0"""
    phase: str
    """as in a phase"""
    op: str
    """the layer that runs; empty: the tape does not say"""
    requested: int
    """by tensors"""
    allocated: int
    """in blocks"""
    reserved: int
    """from CUDA"""
    peak_requested: int
    """the most until the next mark"""
    peak_allocated: int
    """the most until the next mark"""
    peak_reserved: int
    """the most until the next mark"""


class FreeBlocks(Record):
    """The free blocks of a pool of the allocator."""

    bytes: int
    """in all of them"""
    largest: int
    """in the largest"""
    blocks: int
    """how many they are"""


class FreeAtFailure(Record):
    """What was free when the first allocation failed."""

    requested: int
    """by that allocation"""
    device: int
    """free on the card, outside segments"""
    large: FreeBlocks
    """in segments of the large pool"""
    small: FreeBlocks
    """in segments of the small pool"""
    expandable_serves: Optional[bool]
    """with expandable_segments:True that allocation does not fail; None unless it was tried: expandable segments
    exist, and were not on"""


class ReplayCard(Record):
    """The card that limits the allocator, which gets bytes less context."""

    name: str
    """its full name"""
    bytes: int
    """its memory"""
    context: int
    """upper bound of the CUDA context; 0: not known"""


class HeldAt(Record):
    """Blocks with the same stack that were in use at the peak of allocated memory."""

    where: Optional[str]
    """the innermost frame of the user's own code, 'train.py:21 forward'; None: not recorded"""
    blocks: Optional[int]
    """how many they are; None: not recorded"""
    bytes: int
    """as requested, or of the blocks if that is not recorded"""
    frames: List[str]
    """the whole stack, innermost first"""


class RecordedSegment(Record):
    """A segment of the recorded allocator at the end."""

    pool: str
    """'small' or 'large'"""
    stream: int
    """on which it was allocated (number)"""
    expandable: bool
    """it is one of expandable_segments:True"""
    bytes: int
    """reserved: what is mapped of it, if it is expandable"""
    allocated: int
    """in blocks that are in use or wait to be freed"""
    rounding: Optional[int]
    """the part of allocated that nobody requested; None unless the requested sizes are recorded"""
    free: int
    """in its free blocks"""
    pieces: int
    """that are free (blocks)"""
    largest: int
    """in its largest free block"""


class FreeRecorded(Record):
    """What the recorded allocator had free at the end, in segments."""

    large: FreeBlocks
    """of the large pool"""
    small: FreeBlocks
    """of the small pool"""


class FailedRequest(Record):
    """The first request of the recording that failed."""

    action: int
    """of the action, or of the event of a trace (index)"""
    where: Optional[str]
    """as in live_at_peak; None: not recorded"""
    requested: int
    """rounded by the allocator"""
    device: Optional[int]
    """free on the card, outside segments; None unless the recording says it"""
    reserved: int
    """by the allocator, as far as it is recorded"""
    large: FreeBlocks
    """what was free in the large pool; not always there"""
    small: FreeBlocks
    """what was free in the small pool; not always there"""


class TraceCounters(Record):
    """The counters of PyTorch's own allocator."""

    peak_allocated: int
    """at its highest"""
    peak_reserved: int
    """at its highest"""
    end_allocated: int
    """at the end"""
    end_reserved: int
    """at the end"""
    peak_unused: int
    """reserved, but in no block, when allocated was highest first"""


class Trace(Record):
    """What only a trace of torch.profiler says."""

    process: str
    """the one that is read, as its id is written"""
    processes: int
    """how many the trace has"""
    host: bool
    """the memory is the CPU's: no GPU's is recorded"""
    requested_known: bool
    """what was requested is known; else all sizes are those of blocks"""
    ends_at: Optional[int]
    """where the file breaks off (byte); None: it is whole"""
    counters: Optional[TraceCounters]
    """PyTorch's own; None: they are not recorded"""


class Recorded(Record):
    """What a file says that is no tape, and whether the simulated allocator ends as the recorded one did."""

    format: str
    """'snapshot', 'trace'"""
    actions: int
    """of the allocator, events of a trace; 0: the file has only the state at the end"""
    device: int
    """the GPU that is read (index)"""
    devices: int
    """how many the file has (GPUs)"""
    alloc_conf: str
    """settings of the recorded allocator; empty: none, or not known"""
    torch: str
    """the version whose allocator the recorded one is compared with: the setting, else the newest that agrees,
    else the newest"""
    as_recorded: bool
    """no setting asks for anything else than what was recorded"""
    from_start: bool
    """nothing was reserved before the first action"""
    counters_recorded: bool
    """the counters are those of the recorded allocator, with what it had before; else of one that began empty"""
    before_blocks: Optional[int]
    """in use before the first action; None unless the file names all that was in use before"""
    before_bytes: int
    """in use before the first action, as far as known"""
    gaps: int
    """that contradict earlier ones: some are missing (actions)"""
    agrees: Optional[bool]
    """the simulated allocator ends with the recorded segments and blocks; of a trace, has the recorded counters;
    None unless the simulated allocator was compared with the recorded one"""
    addresses: int
    """whose address was compared, and is equal; of a trace, events after which the counters are equal (requests)"""
    difference: Optional[str]
    """the first one, or why nothing was compared; None: it agrees"""
    live_at_peak: List[HeldAt]
    """the most bytes first"""
    segments: List[RecordedSegment]
    """at the end, the most free bytes first"""
    free: Optional[FreeRecorded]
    """at the end; None: not known"""
    oom: Optional[FailedRequest]
    """the first request that failed; None: none failed"""
    trace: Optional[Trace]
    """what only a trace says; None: the file is no trace"""


class ReplayReport(Record):
    """A tape or a recording, replayed through an allocator."""

    schema: str
    note: str
    """what is simulated otherwise than asked for, in sentences; '': nothing; not always there"""
    events: int
    """allocations and frees"""
    storages: int
    """that they are about"""
    num_alloc_retries: int
    """CUDA had no memory, and was asked again after free segments were returned to it (times)"""
    num_ooms: int
    """that failed (allocations)"""
    num_device_alloc: int
    """of cudaMalloc, or what maps memory (calls)"""
    num_device_free: int
    """of cudaFree, or what unmaps memory (calls)"""
    stats: Stats
    """those of the allocator"""
    marks: List[Mark]
    """one for each mark of the tape, its lines with '@'"""
    oom: bool
    """an allocation failed"""
    oom_event: Optional[int]
    """of the event that failed first (index); None unless an allocation failed"""
    oom_text: Optional[str]
    """PyTorch's message for it; None unless an allocation failed"""
    oom_free: Optional[FreeAtFailure]
    """what was free then; None: no allocation failed"""
    card: Optional[ReplayCard]
    """which limits the allocator; None: memory is unlimited"""
    recorded: Optional[Recorded]
    """what the recording says; None: the file is a tape"""


# end of figures


# figures: oom


class OomNumber(Record):
    """A number of bytes as a message prints it, rounded to 0.01 of its unit, or what follows from such numbers."""

    bytes: int
    """the number"""
    within: int
    """the real number differs by no more than this"""
    derived: bool
    """it is a sum or difference of other numbers"""


class OomNumbers(Record):
    """The numbers of a message, and those that follow from them."""

    tried: Optional[OomNumber]
    """a segment: the tensor, rounded up; None: the message does not tell"""
    total: Optional[OomNumber]
    """memory of the card; None: the message does not tell"""
    free: Optional[OomNumber]
    """on the card, for any process; None: the message does not tell"""
    allowed: Optional[OomNumber]
    """limit of this process; None: the message does not tell"""
    allocated: Optional[OomNumber]
    """by PyTorch: tensors; None: the message does not tell"""
    private: Optional[OomNumber]
    """of that: CUDA graphs; None: the message does not tell"""
    unallocated: Optional[OomNumber]
    """held by PyTorch, used by no tensor; None: the message does not tell"""
    reserved: Optional[OomNumber]
    """allocated + unallocated; None: the message does not tell"""
    process: Optional[OomNumber]
    """in use on the card; None: the message does not tell"""
    outside: Optional[OomNumber]
    """CUDA context and libraries; None: the message does not tell"""
    elsewhere: Optional[OomNumber]
    """total - free - process, or - reserved if process is not known; on an Apple GPU other allocations; None: the
    message does not tell"""


class OomProcess(Record):
    """Another process that the message names."""

    pid: int
    """of the process"""
    memory: Optional[OomNumber]
    """in use by it; None: the message does not tell"""


class Remedy(Record):
    """What helps."""

    text: str
    """in a sentence"""
    command: Optional[str]
    """that does it, or shows more; None: there is none"""


class OutOfMemoryReport(Record):
    """An out-of-memory message, explained."""

    schema: str
    source: str
    """'torch', 'torch_async', 'torch_mps', 'cuda', 'cublas', 'cudnn', 'jax', 'tensorflow', 'host', 'llama.cpp',
    'vllm', 'cupy'"""
    messages: int
    """about memory that ran out, in the text; this is the last with numbers"""
    gpu: Optional[int]
    """of the card (index); None unless the message names the card"""
    torch: Optional[str]
    """PyTorch versions that print this form, '2.2 to 2.8'; None: not known"""
    numbers: OomNumbers
    """those of the message, and those that follow from them"""
    processes: List[OomProcess]
    """other processes that the message names"""
    cards: List[str]
    """names of the cards with this much memory"""
    causes: List[str]
    """sentences, the likeliest first"""
    remedies: List[Remedy]
    """what helps, in the order to try"""


# end of figures


# figures: size


class SizeIn(Record):
    """The size of the tensor in a data type."""

    dtype: str
    """its name, 'fp32'"""
    torch: str
    """its name in PyTorch, 'torch.float32'"""
    bits: int
    """of an element"""
    bytes: Optional[int]
    """of the tensor, rounded up; None unless it fits in 64 bits"""


class SizeReport(Record):
    """The size of a tensor in every data type."""

    schema: str
    shape: Tuple[int, ...]
    """as it was given"""
    elements: int
    """of the tensor"""
    dtypes: List[SizeIn]
    """one for each"""


# end of figures


# figures: registry


class Entry(Record):
    """A row of a list; a text that the list does not have is empty."""

    name: str
    """by which it is asked for"""
    doc: str
    """what it is, in a line"""
    src: str
    """the source of the facts"""


class ModelEntry(Record):
    """A model by name."""

    name: str
    """by which it is asked for"""
    group: str
    """the family of a model or an op"""
    parameters: Optional[int]
    """of all parameters (elements); None: it depends on the name, as for 'mlp:...'"""
    kind: str
    """of a model: 'text', 'encoder' (of text), 'seq2seq', 'audio', 'vision', 'vision-text'; '' of mlp"""
    year: Optional[int]
    """in which the weights of a model of the hub were first published; None: not listed"""
    context: Optional[int]
    """the positions that the configuration of a model of the hub names (tokens); None: the configuration names no
    positions"""
    doc: str
    """what it is, in a line"""
    src: str
    """the source of the facts"""
    also: str
    """other names, separated by spaces; of a model from the hub its id comes first"""


class OpEntry(Record):
    """An operator that has a rule."""

    name: str
    """by which it is asked for"""
    group: str
    """its family"""
    doc: str
    """what it is, in a line"""
    src: str
    """the source of the facts"""


class FormatEntry(Record):
    """A file format."""

    name: str
    """by which it is asked for"""
    gives: str
    """what a file of the format gives"""
    doc: str
    """what it is, in a line"""
    src: str
    """the source of the facts"""


class OptionEntry(Record):
    """An inference engine, or a way in which cards share a training job."""

    name: str
    """by which it is asked for"""
    doc: str
    """what it is, in a line"""
    src: str
    """the source of the facts"""
    options: str
    """its own, with what each is unless given: 'NAME=VALUE,...'"""


class QuantizationEntry(Record):
    """A format of quantized weights."""

    name: str
    """by which it is asked for"""
    setting: str
    """the settings that take it: 'weights, quant'"""
    doc: str
    """what it is, in a line"""
    src: str
    """the source of the facts"""


class DtypeEntry(Record):
    """A data type."""

    name: str
    """by which it is asked for"""
    bits: int
    """of an element"""
    doc: str
    """what it is, in a line"""
    src: str
    """the source of the facts"""


class Gpu(Record):
    """A card."""

    name: str
    """its full name"""
    memory_bytes: int
    """of the card"""
    memory_exact: bool
    """a driver reported it; else it is estimated from the marketed size"""
    cc: Optional[float]
    """compute capability, 8.9; in C times ten, 89; None: not known"""
    bandwidth_gbs: Optional[float]
    """of its memory, in 10^9 bytes (GB/s); None: not known"""
    fp32_tflops: Optional[float]
    """dense (TFLOPS); None: not known"""
    tf32_tflops: Optional[float]
    """dense (TFLOPS); None: not known"""
    fp16_tflops: Optional[float]
    """dense (TFLOPS); None: not known"""
    bf16_tflops: Optional[float]
    """dense (TFLOPS); None: not known"""
    fp8_tflops: Optional[float]
    """dense (TFLOPS); None: not known"""
    aliases: str
    """names by which it is asked for, separated by commas"""
    vendor: str
    """'NVIDIA', 'AMD', 'Intel', 'Apple'"""
    class_: str
    """'consumer', 'workstation', 'datacenter', 'soc', 'jetson'"""
    arch: str
    """its architecture, 'Ampere'"""
    year: Optional[int]
    """of its launch; None: not known"""
    sms: Optional[int]
    """how many it has (multiprocessors); None: not known"""
    price_usd: Optional[int]
    """at its launch (US dollars); None: not known"""
    src: str
    """the source of the facts"""
    unified: bool
    """its memory is that of the CPU, too, and the system keeps some of it"""
    kept_low: Optional[int]
    """what the system keeps of unified memory, at the least that was reported or assumed; None: its memory is not
    unified, or it is not known"""
    kept_high: Optional[int]
    """the same at the most; None: its memory is not unified, or it is not known"""
    mig_of: Optional[str]
    """of a MIG instance the card that it is a part of, 'a100'; None: it is a whole card"""


# end of figures
