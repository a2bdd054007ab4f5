"""probe.py -- a model type at many configurations, one key moved at a time, and each run folded into bodies.

    study = Study("qwen3", task); study.run()
    study.runs      Run: what was changed, the features, the bodies
    study.free      keys that change nothing
    study.refused   keys that could not be moved: only their default is known
    study.random()  any configuration that the class takes
"""

from __future__ import annotations

import ast
import copy
import gc
import importlib
import inspect
import logging
import random
import re
import time
import warnings
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

import torch

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
from transformers import PreTrainedConfig  # noqa: E402
from transformers.activations import ACT2FN  # noqa: E402

from expr import passes, value_of  # noqa: E402
from fold import Body, Fold, star  # noqa: E402
from tasks import FEW_LAYERS, FIXED, FOCUSED, IN_UNITS, LAYERS, LEFT, LISTED, MULTIPLES, NAMED, NEEDED, REQUIRED, ROPES_OF, START, SWITCHED, TRIED, Task, class_of, config_of, image  # noqa: E402
from trace import Call, trace  # noqa: E402

# Keys that every configuration has, and which have nothing to do with the model's memory.
GENERIC = set(PreTrainedConfig().to_dict()) - {"tie_word_embeddings", "is_encoder_decoder"} | {
    "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id", "initializer_range",
    "use_cache", "architectures", "transformers_version", "dtype", "torch_dtype", "id2label", "label2id",
    "keys_to_ignore_at_inference", "auto_map", "_name_or_path", "model_type",
    "out_features", "out_indices", "stage_names"}  # of backbones
ACTS = ["gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "relu", "silu", "relu2", "quick_gelu", "tanh"]
# A rope type comes with parameters of its own.  Not among them: "longrope".
ROPES: List[Dict[str, Any]] = [
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "linear", "factor": 2.0},
    {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 1024},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 1024}]
LIMIT, SHORT = "max_position_embeddings", 48  # less than runs have: what is dynamic changes beyond
LENGTHS = (1, 5, 24, 33, 64, 100, 128, 140, 200, 256, 271, 330, 384, 449)  # tokens: one, and some chunks of those that code takes them in
LAYER_TYPES = ("full_attention", "sliding_attention")
NO_VALUE, LEFT_OUT = "no value to try", "not tried"  # why a key is refused
# Of images: with other patches than the configuration has, and as many, in squares or not.
SHAPES = [{"$height": 192}, {"$width": 320}, {"$height": 192, "$width": 192}, {"$height": 256, "$width": 256},
          {"$width": 112}, {"$height": 112}, {"$height": 128, "$width": 320}, {"$height": 448, "$width": 112},
          {"$height": 112, "$width": 448}]
UNITS = "#units"  # of a way of calling: height and width of images, where they are multiples of what the configuration says
MOST = 200_000  # a size that no probe goes beyond
MOST_PARTS = 160  # windows of images: a run of more says nothing new
MOST_PLACES = 4  # times those of the first run


@dataclass
class Run:
    moved: Dict[str, Any]
    how: Dict[str, Any]
    row: Dict[str, Any] = field(default_factory=dict)
    bodies: List[Body] = field(default_factory=list)
    static: List[Body] = field(default_factory=list)
    rows: Dict[Any, Dict[str, Any]] = field(default_factory=dict)
    """row, with the indices of a place"""

    def all(self) -> List[Body]:
        return self.static + self.bodies


def flatten(config: Any, prefix: str = "") -> Dict[str, Any]:
    out: Dict[str, Any] = {} if isinstance(config, dict) or prefix else {"num_labels": config.num_labels}
    if prefix and "model_type" in config:
        out[f"{prefix}model_type"] = config["model_type"]
    for key, value in sorted(config.items() if isinstance(config, dict) else config.to_dict().items()):
        if key in GENERIC or prefix and key == "is_encoder_decoder":
            continue
        if isinstance(value, dict):
            out.update(flatten(value, f"{prefix}{key}."))
        elif isinstance(value, (int, float, str, bool, list, tuple)) or value is None:
            out[prefix + key] = list(value) if isinstance(value, tuple) else value
    return out


class Study:
    def __init__(self, kind: str, task: Task) -> None:
        self.kind, self.task = kind, task
        self.cls = class_of(task, kind)
        self.config_class = config_of(kind)
        self.parts = parts(self.config_class)
        self.older = {f"{name}.{key}": value for name, part in self.parts.items()
                      for key, value in older(inspect.getsource(part), source(modeling(part))).items()} or \
            older(source(self.config_class.__module__), source(self.cls.__module__))
        self.literals = literals_of(self.cls)
        self.named: Dict[str, str] = {**task.named, **NAMED.get(kind, {}), **getattr(self.cls, "named", {})}
        """Sizes with a name."""
        self.flat_part = next((part for part in self.parts if self.is_flat(part)), "")
        """Of a file without it the keys stand in the file itself."""
        self.base: Dict[str, Any] = {}
        self.plain: Dict[str, Any] = {}
        self.start: Dict[str, Any] = {}
        """Keys that runs begin with at other values than the default's"""
        self.lists: Set[str] = set()
        self.attends = True
        """Whether it has attention"""
        self.runs: List[Run] = []
        self.free: Set[str] = set()
        self.refused: Dict[str, str] = {}
        self.sizes: Dict[str, List[Any]] = {}
        self.switches: Dict[str, List[Tuple[Any, Dict[str, Any]]]] = {}
        """key: values, each with what else had to be changed"""
        self.words: Dict[str, Set[Any]] = {}
        """key: values that the class takes"""
        self.tried: Dict[Tuple[str, int], bool] = {}
        """Sizes: whether the class takes them by themselves"""

    def is_flat(self, part: str) -> bool:
        own = flatten(self.config_class())
        key, value = next(((k[len(part) + 1:], v) for k, v in own.items() if k.startswith(part + ".") and type(v) is int and v > 8
                           and k[len(part) + 1:] not in own), ("", 0))
        try:
            return bool(key) and flatten(self.config_class(**{key: 2 * value})).get(f"{part}.{key}") == 2 * value
        except Exception:
            return False

    # ---- one run ---------------------------------------------------------------------------------------

    def config(self, moved: Dict[str, Any], base: Optional[Dict[str, Any]] = None) -> Any:
        """base: what runs have besides; None: what they have here."""
        flat: Dict[str, Any] = {}
        given = {**NEEDED.get(self.kind, {}), **self.start, **(self.base if base is None else base), **moved}
        given = {k: v(given) if callable(v) else v for k, v in given.items()}
        for k, v in {**self.beside(given), **given}.items():
            into = flat
            for part in k.split(".")[:-1]:
                into = into.setdefault(part, {})
            into[k.split(".")[-1]] = v
        out = self.config_class(**copy.deepcopy(flat))
        for size, of in MULTIPLES.items():
            if (getattr(out, size, None) or 0) % (getattr(out, of, None) or 1):
                raise ValueError(f"{size} is no multiple of {of}")
        test = REQUIRED.get(self.kind, "True")
        if base is None and self.runs and not passes(test, flatten(out)):
            raise ValueError(f"not {test}")
        return out

    def beside(self, given: Dict[str, Any]) -> Dict[str, Any]:
        """The rest of objects of which some keys are given: an object that is given replaces the default's."""
        objects = {k.rpartition(".")[0] for k in given} - {"", *self.parts}
        return {k: v for k, v in self.plain.items() if k.rpartition(".")[0] in objects}

    def flat(self, moved: Dict[str, Any], config: Any = None) -> Dict[str, Any]:
        """All keys, with those that only older files have."""
        out = flatten(config or self.config(moved))
        for key, value in self.older.items():
            out.setdefault(key, moved.get(key, value))
        return out

    def model(self, moved: Dict[str, Any], how: Dict[str, Any]) -> Tuple[Any, Any]:
        config = self.config(moved)
        config._attn_implementation = how["$attention"]
        old = torch.get_default_dtype()
        dtype = getattr(torch, how["$dtype"])
        torch.set_default_dtype(dtype)
        try:
            with torch.device("meta"):
                model = self.cls._from_config(config) if hasattr(self.cls, "_from_config") else self.cls(config)
            if self.task.name == "denoiser":  # scripts of diffusers cast all, once it is made
                model.to(dtype)
            self.made = static(model, self.lists, dtype)  # a run may add some
            buffers = [(module, dict(module._buffers)) for module in model.modules()]
            model.to(dtype)
            for module, own in buffers:  # those that no checkpoint has are as they were made
                module._buffers.update({name: b for name, b in own.items() if name in module._non_persistent_buffers_set})
            place_images(model)
        finally:
            torch.set_default_dtype(old)
        model.train(how["$train"])
        return config, model

    def inputs(self, row: Dict[str, Any], how: Dict[str, Any]) -> Dict[str, Any]:
        more = getattr(self.cls, "more", None)
        out: Dict[str, Any] = more(row) if more else {}
        for name, (shape, dtype) in self.task.taken(self.cls, how["$train"]).items():
            size = [value_of(s, row) for s in shape]
            if name in self.task.values and 0 not in size:
                out[name] = torch.tensor([[value_of(s, row) for s in self.task.values[name]]] * size[0])
            elif 0 not in size:
                into, _, inner = name.rpartition(".")
                (out.setdefault(into, {}) if into else out)[inner] = \
                    torch.zeros(size, dtype=getattr(torch, how["$dtype"] if dtype == "$dtype" else dtype), device="meta")
        return {**out, **dict.fromkeys(self.task.losses, how["$train"])}

    def traced(self, model: Any, row: Dict[str, Any], how: Dict[str, Any]) -> Call:
        return trace(model, self.inputs(row, how), value_of(self.task.masked, row))

    def once(self, moved: Dict[str, Any], how: Dict[str, Any]) -> Run:
        run = Run(moved, how)
        run.row = self.row(self.flat(moved), how)  # a class may change its configuration
        listed = [run.row[k] for k in self.named if isinstance(run.row[k], list)]
        if any(len(parts) > MOST_PARTS for parts in listed):
            raise ValueError(f"{max(map(len, listed))} parts, each with its own turn")
        config, model = self.model(moved, how)
        config.use_cache = how["$cache"]
        run.static = self.made
        run.bodies = Fold(self.lists, bool(self.task.unit), listed).fold(self.traced(model, run.row, how))
        places = len({body.place for body in run.all()})
        if self.runs and places > MOST_PLACES * len({body.place for body in self.runs[0].all()}):
            raise ValueError(f"{places} places: something repeats that is no list of modules")
        return run

    def row(self, flat: Dict[str, Any], how: Dict[str, Any]) -> Dict[str, Any]:
        """The features of a run."""
        sizes = image(self.cls, flat) if self.task.has("$height") and not self.task.unit else {}
        if self.task.unit:
            sizes = {name: n * value_of(self.task.unit, flat) for name, n in zip(("$height", "$width"), how[UNITS])}
        out = {**flat, **sizes, **{k: (int(v) if isinstance(v, bool) else v) for k, v in how.items() if k != UNITS}}
        for name, text in self.named.items():
            out[name] = value_of(text, out)
        return out

    def attempt(self, moved: Dict[str, Any], how: Dict[str, Any]) -> Optional[Run]:
        try:
            return self.once(moved, how)
        except Exception as why:
            self.why = f"{type(why).__name__}: {str(why).splitlines()[0][:100] if str(why) else ''}"
            return None

    def keep(self, moved: Dict[str, Any], how: Dict[str, Any]) -> Optional[Run]:
        run = self.attempt(moved, how)
        if run:
            self.runs.append(run)
        return run

    def takes(self, moved: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        """The keys of a configuration, or None: the class refuses it."""
        try:
            return self.flat(moved)
        except Exception:
            return None

    # ---- the base --------------------------------------------------------------------------------------

    def default_attention(self) -> str:
        if not hasattr(self.cls, "_from_config"):
            ops = repr([body.sign for body in self.once({}, {**self.default_how(), "$attention": "sdpa"}).bodies])
            self.attends = "scaled_dot_product_attention" in ops or "aten.softmax" in ops
            return "sdpa" if "scaled_dot_product_attention" in ops else "eager"
        with torch.device("meta"):
            config = self.config(self.base)
            return self.cls._from_config(config).config._attn_implementation or "eager"

    def default_how(self) -> Dict[str, Any]:
        how = {"B": 2, "S": 64, "$train": True, "$cache": self.task.caches, "$attention": self.sdpa, "$dtype": "bfloat16"}
        how.update({"$images": 1} if self.task.has("$images") else {})
        how.update({"$frames": self.cls.frames} if getattr(self.cls, "frames", 0) else {})
        how.update({UNITS: (IN_UNITS, IN_UNITS)} if self.task.unit else {})
        return how

    def lengths(self, model: Any) -> Dict[str, int]:
        return {star(p): len(m) for p, m in model.named_modules()
                if isinstance(m, (torch.nn.ModuleList, torch.nn.Sequential))}

    def shrink(self) -> None:
        """Finds the keys that are numbers of layers; the base has few."""
        self.sdpa = "eager"
        how = self.default_how()
        _, model = self.model({}, how)
        lengths = self.lengths(model)
        for key, value in self.plain.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 2 or value not in lengths.values() or \
                    self.is_left(key) or "stage" in key:  # each of which has sizes of its own
                continue
            for less in (LAYERS.get(self.kind, FEW_LAYERS), value // 2):
                if not 1 <= less < value:
                    continue
                try:
                    config, small = self.model({**self.base, key: less}, how)
                    self.traced(small, self.row(self.flat({}, config), how), how)
                except Exception:
                    continue
                after = self.lengths(small)
                if any(after.get(p) != lengths[p] for p in lengths):
                    self.base[key] = less
                    lengths = after
                    break
        self.sdpa = self.default_attention()

    def find_lists(self) -> None:
        """Lists of modules whose length a key changes, and those that a switch brings."""
        flat = {k: v for k, v in self.flat({}).items() if not self.is_left(k)}
        base = self.lengths_of({})
        self.find_lists_under({}, base, flat)
        for key in [k for k, v in flat.items() if isinstance(v, bool)]:
            under = {key: not flat[key]}
            lengths = self.lengths_of(under)
            if lengths.keys() - base.keys():
                self.find_lists_under(under, lengths, flat)

    def find_lists_under(self, under: Dict[str, Any], base: Dict[str, int], flat: Dict[str, Any]) -> None:
        for key, value in flat.items():
            if key in under or isinstance(value, bool) or not isinstance(value, (int, list)):
                continue
            for other in list(self.moves(key, value))[:3]:
                lengths = self.lengths_of({**under, key: other})
                if lengths:
                    self.lists |= {p for p, n in lengths.items() if base.get(p, n) != n}
                    break

    def lengths_of(self, moved: Dict[str, Any]) -> Dict[str, int]:
        """Empty: the class does not take it."""
        try:
            return self.lengths(self.model(moved, self.default_how())[1])
        except Exception:
            return {}

    def owner(self, key: str) -> Tuple[Any, str]:
        """The class of the configuration that has a key, and its name there."""
        part = self.part_of(key)
        return (self.parts[part], key[len(part) + 1:]) if part else (self.config_class, key)

    def part_of(self, key: str) -> str:
        """The configuration in this one that has a key; empty: none."""
        part = key.partition(".")[0]
        return part if part in self.parts else ""

    def code_of(self, key: str) -> str:
        """The module whose code reads a key."""
        part = self.part_of(key)
        return modeling(self.parts[part]) if part else self.cls.__module__

    def is_left(self, key: str) -> bool:
        """Whether it stays as it is by default."""
        value = self.plain.get(key)
        if self.kind in FOCUSED and (isinstance(value, (bool, str)) or value is not None and value == 0.0) and \
                key.rpartition(".")[2] not in SWITCHED and key not in TRIED.get(self.kind, {}):
            return True
        return key.split(".")[-1] in LEFT or key in getattr(self.cls, "left", ())

    # ---- other values ----------------------------------------------------------------------------------

    def moves(self, key: str, value: Any) -> Iterator[Any]:
        yield from (v for v in TRIED.get(self.kind, {}).get(key, ()) if v != value)
        kinds = annotation(*self.owner(key))
        if isinstance(value, bool):
            yield not value
        elif isinstance(value, int):
            small = [value + 1, value * 2, value + 2, max(1, value // 2), value * 3, value - 1 if value > 1 else 5]
            big = [value * 2, value // 2, value + 16, value * 3, value + 1, value // 4]
            yield from dict.fromkeys(big if value >= 16 else small)
            if value == 0:
                yield from (4, 64)
        elif isinstance(value, float):
            yield from ([0.0, value * 2, value / 2] if value else [0.1])
        elif isinstance(value, str):
            yield from (a for a in ACTS if a != value) if value in ACT2FN else \
                dict.fromkeys([*literals(*self.owner(key)), *compared_with(self.code_of(key), key.split(".")[-1])])
        elif value is None:
            yield from (True, False) if "bool" in kinds else ()
            yield from (8, 16, 32, 64) if "int" in kinds else ()
            yield from (0.5, 2.0) if "float" in kinds else ()
        elif is_words(value):
            known = sorted(set(map(str, value)))
            if self.kind in LISTED:
                yield value + value[1:]
                yield value[1:3] + value[:1] + value[1:] + value[:2]
            if len(known) > 1:
                yield value[::-1]
                yield value[1:] + value[:1]
            yield from ([k] * len(value) for k in known)
            for o in LAYER_TYPES if key.endswith("layer_types") else ():
                if o not in known:
                    yield [o if i % 2 else v for i, v in enumerate(value)]
        elif isinstance(value, list) and value and isinstance(value[0], int):
            yield [v + 1 for v in value]
            yield [v * 2 for v in value]
        elif value == []:
            yield [1]
            yield [0, 2]
        if value is not None and "None" in kinds:
            yield None

    def move(self, key: str, under: Dict[str, Any], again: bool = False) -> None:
        """One key at other values; `under` other changes."""
        if self.is_left(key):
            self.refused[key] = LEFT_OUT
            none = self.attempt({key: None}, self.how) if self.first.row.get(key) is False else None
            if none is not None and signature(none) == signature(self.first):  # files have null there, too
                self.words.setdefault(key, set()).add("None")
            return
        base = self.attempt(under, self.how) if under else self.first
        if base is None:
            return
        value = base.row.get(key)
        enum = not isinstance(value, int) or isinstance(value, bool)
        seen = signature(base)
        changed = None
        alike: List[Tuple[Any, Dict[str, Any]]] = []
        self.why = NO_VALUE
        kept = 0
        for other in list(self.moves(key, value))[:14]:
            if time.process_time() > self.end:
                break
            run = self.attempt({**under, key: other}, self.how)
            if enum and run is not None and run.row.get(key) == value and signature(run) == seen:
                self.words.setdefault(key, set()).add(repr(other))  # whatever is given, the class makes the same of it
                changed = bool(changed)
                continue
            if run is None or repr(run.row.get(key, other)) != repr(other) and run.row.get(key) == value:
                continue  # the class does not take it
            if repr(run.row.get(key)) != repr(other):
                continue  # or makes something else of it
            self.words.setdefault(key, set()).add(repr(other))
            differs = signature(run) != seen
            if differs or changed is None or enum:  # of words those that change nothing are learnt, too
                self.runs.append(run)
                kept += 1
            if differs:
                self.runs += [base] if under else []
                changed = True
                if enum or other is None:
                    self.switches.setdefault(key, []).append((other, under))
                else:
                    self.sizes.setdefault(key, []).append(other)
            elif changed is None:
                changed = False
            if enum and not differs:
                alike.append((other, under))
            if kept >= (9 if enum else 2) and other is not None:
                enum or self.last_none(key, value, under, seen)
                break
        if changed is not None:
            self.refused.pop(key, None)
        if changed:
            self.free.discard(key)
            if key in self.switches:
                self.switches[key] += alike
        elif changed is False:
            self.free.add(key)
        elif not again:
            self.refused[key] = self.why

    def last_none(self, key: str, value: Any, under: Dict[str, Any], seen: Any) -> None:
        """A size may be left open, too."""
        if value is None or "None" not in annotation(*self.owner(key)):
            return
        layers = [{k: ["full_attention"] * len(v)} for k, v in self.first.row.items() if isinstance(v, list) and "sliding_attention" in v]
        for more in [{}, *layers]:  # a window may have to be there for layers that have one
            run = self.attempt({**under, **more, key: None}, self.how)
            if run is not None and run.row.get(key) is None:
                self.words.setdefault(key, set()).add("None")
                if signature(run) != seen:
                    self.runs.append(run)
                    self.switches.setdefault(key, []).append((None, {**under, **more}))
                return

    def move_pairs(self) -> None:
        """Sizes that the class takes only in proportion to another, such as that of a head."""
        flat = {k: v for k, v in self.flat({}).items() if isinstance(v, int) and not isinstance(v, bool) and v > 1}
        for key in [k for k, why in self.refused.items() if k in flat and k not in self.base and why != LEFT_OUT]:
            for other in [k for k in flat if k != key and k not in self.base]:
                if time.process_time() > self.end:
                    return
                run = self.attempt({key: 2 * flat[key], other: 2 * flat[other]}, self.how)
                if run is not None:
                    self.runs.append(run)
                    self.pairs.append((key, other))
        for key in {k for pair in self.pairs for k in pair}:
            self.refused.pop(key, None)
            self.sizes.setdefault(key, [])

    def pair(self, rng: random.Random, flat: Dict[str, Any]) -> Dict[str, Any]:
        """One of these, with other sizes."""
        if not self.pairs:
            return {}
        factor = rng.choice([2, 3, 4])
        return {k: factor * flat[k] for k in rng.choice(self.pairs) if k in flat}

    def move_ropes(self) -> None:
        """The types of rotary embeddings, each with its parameters."""
        for key in [k for k in self.plain if k.endswith("rope_type")]:
            prefix = key[:-len("rope_type")]
            limit = f"{self.part_of(key)}.{LIMIT}" if self.part_of(key) else LIMIT
            for rope in [*(r for r in ROPES if r["rope_type"] != "dynamic" or self.kind not in FOCUSED), *ROPES_OF.get(self.kind, [])]:
                moved = {prefix + k: v for k, v in rope.items()}
                run = self.attempt(moved, self.how)
                if run is None or run.row.get(key) != rope["rope_type"]:
                    continue
                self.refused.pop(key, None)
                self.runs.append(run)
                self.words.setdefault(key, set()).add(repr(rope["rope_type"]))
                self.extra |= {prefix + k for k in rope} - {key}
                rest = {k: v for k, v in moved.items() if k != key}
                self.switches.setdefault(key, []).append((rope["rope_type"], rest))
                beyond = {**rest, limit: SHORT} if rope["rope_type"] == "dynamic" and limit in self.plain else {}
                if beyond and self.keep({**moved, **beyond}, self.how):
                    self.switches[key].append((rope["rope_type"], beyond))

    # ---- all -------------------------------------------------------------------------------------------

    def run(self, seconds: float = 300) -> None:
        gc.collect()
        gc.freeze()
        self.end = time.process_time() + seconds
        self.pairs: List[Tuple[str, str]] = []
        self.extra: Set[str] = set()  # keys that some value of another key brings along
        self.plain = self.flat({})
        self.start = getattr(self.cls, "start", START.get(self.kind, {}))
        multiple = getattr(self.cls, "multiple", 1)
        self.shapes = [s for s in SHAPES if not any(n % multiple for n in s.values())] if self.kind not in FIXED else []
        if self.task.unit:
            self.shapes = [{UNITS: both} for both in ((6, 10), (12, 8), (9, 9), (2, 20))]
        self.shrink()
        self.find_lists()
        self.how = how = self.default_how()
        self.first = self.once({}, how)
        self.runs.append(self.first)
        tokens = [{"S": 40}, {"S": 7}, {"S": 330}] if self.task.has("S") else []
        images = [{"$images": 3}, {"$images": 0}] if self.task.has("$images") else []
        frames = [{"$frames": 17}, {"$frames": 1}, {"$frames": 49}] if "$frames" in how else []
        for change in [{"B": 3}, {"$dtype": "float16"}, *tokens, *images, *frames]:
            self.keep({}, {**how, **change})
        if self.task.has("$height"):
            other = [change if self.task.unit else {**image(self.cls, self.first.row), **change} for change in self.shapes]
            self.fixed = not [run for run in [self.keep({}, {**how, **sizes}) for sizes in other] if run]
        for key in self.flat({}):
            self.move(key, {})
        self.move_pairs()
        self.move_ropes()
        for key in [k for k in sorted(self.free | set(self.switches)) if isinstance(self.first.row.get(k), bool)]:
            flip = {key: not self.first.row[key]}  # what changes nothing alone may change what others do
            untried = {k for k, why in self.refused.items() if why in (NO_VALUE, LEFT_OUT)}
            for other in sorted((self.free | set(self.refused)) - untried - {key}):
                if len({self.part_of(key), self.part_of(other)} - {""}) > 1:
                    continue
                if key in self.free or not isinstance(self.first.row.get(other), (bool, float)):
                    self.move(other, flip, again=True)
        self.vectors = [({}, {})] + [v for v in (self.scramble(seed) for seed in (1, 2, 3)) if v[0]]
        for mode in self.modes():
            for moved, change in self.vectors:
                for more in [{}, {"$images": 0}] if images else [{}]:  # without images code does something else
                    self.keep(moved, {**how, **mode, **change, **more})
            one = {"S": 1} if self.task.has("S") else {}
            self.keep({}, {**how, **mode, **one})
            self.keep(self.vectors[-1][0], {**how, **mode, **one, "B": 1})
        for key, values in self.switches.items():
            for value, under in values:
                for moved, change in self.vectors[1:2]:
                    for train in (True, False):
                        self.keep({**moved, **under, key: value}, {**how, **change, "$train": train})

    def modes(self) -> List[Dict[str, Any]]:
        attentions = (self.sdpa,) if self.task.name == "denoiser" else dict.fromkeys((self.sdpa, "eager"))  # diffusers has no other
        return [{"$attention": a, "$train": t, "$cache": c} for a in attentions for t in (True, False)
                for c in ((True, False) if self.task.caches else (False,))]

    def another(self, rng: random.Random, key: str, value: Any) -> Any:
        """Another size for a key."""
        if key in self.base:
            return rng.choice([2, 2, 3, 3, 4, 5, 7])
        some = self.others(rng, key, value)
        if self.kind in REQUIRED:
            some = [s for s in some if self.is_taken(key, s)]
        return rng.choice(some or [value])

    def is_taken(self, key: str, value: int) -> bool:
        """Whether the class takes it by itself."""
        if (key, value) not in self.tried:
            self.tried[key, value] = self.takes({key: value}) is not None
        return self.tried[key, value]

    def others(self, rng: random.Random, key: str, value: Any) -> List[int]:
        if rng.random() < 0.5 and any(isinstance(v, int) for v in self.sizes[key]):
            return [v for v in self.sizes[key] if isinstance(v, int)]
        some = [value * 2, value * 3, value + value // 2, value * 5, value // 2, value // 4, value + 2, value + 1, value + 17,
                *self.sizes[key]]
        return [s for s in some if 0 < s <= MOST]

    def alone(self) -> List[str]:
        """Sizes that the class takes by themselves."""
        return sorted(k for k in self.sizes if self.sizes[k])

    def scramble(self, seed: int) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        """All sizes moved at once, as far as the class takes it."""
        rng = random.Random(seed)
        change = [{"B": 3, "S": 40}, {"B": 5, "S": 200, "$dtype": "float16"}, {"B": 4, "S": 33}][seed - 1]
        if not self.task.has("S"):
            change.pop("S")
        flat = self.flat({})
        rates = [k for k in self.switches if "drop" in k and flat.get(k) == 0.0 and seed > 1]
        moved: Dict[str, Any] = {k: 0.1 for k in rates}  # what is 0 everywhere hides what it depends on
        moved.update(self.pair(rng, flat))
        for key in [k for k in self.alone() if k not in moved]:
            if not isinstance(flat.get(key), int):
                continue
            for _ in range(4):
                some = self.another(rng, key, flat[key])
                if self.attempt({**moved, key: some}, {**self.how, **change}):
                    moved[key] = some
                    break
        return moved, change

    def random(self, rng: random.Random) -> Optional[Run]:
        """Sizes, switches, idle keys, a way of calling: anything that the class takes."""
        how = {**self.how, **rng.choice(self.modes()), "B": rng.choice([1, 2, 3, 5]),
               "S": rng.choice(LENGTHS) if self.task.has("S") else self.how["S"],
               "$dtype": rng.choice(["bfloat16", "float16"])}  # in fp32 x.to(fp32) is x itself: which of them is meant is not seen
        if self.task.has("$images"):
            how["$images"] = rng.choice([0, 1, 1, 2, 3])
        if "$frames" in how:
            how["$frames"] = rng.choice([1, 17, 49, 81])
        if self.task.has("$height") and not self.fixed and rng.random() < 0.3:
            how.update(rng.choice(self.shapes))
        moved, _ = rng.choice(self.vectors)
        apart = rng.random() < 0.5  # what is always moved together cannot be told apart
        moved = {k: v for k, v in moved.items() if not apart or rng.random() < 0.5}
        flat = self.flat({})
        moved.update(self.pair(rng, flat) if rng.random() < 0.4 else {})
        alone = self.alone()
        for key in rng.sample(alone, min(len(alone), rng.randint(0, 5))):
            if isinstance(flat.get(key), int):
                moved[key] = self.another(rng, key, flat[key])
        for key in rng.sample(sorted(self.switches), min(len(self.switches), rng.randint(0, 4))):
            value, under = rng.choice(self.switches[key])
            moved.update(under)
            moved[key] = self.shuffled(rng, key, value, moved) if is_words(value) and rng.random() < 0.7 else value
        for key in rng.sample(sorted(self.free), min(len(self.free), rng.randint(0, 2))):
            moved[key] = rng.choice([*self.moves(key, flat.get(key)), flat.get(key)])
        return self.taken(rng, moved, how, alone)

    def shuffled(self, rng: random.Random, key: str, value: List[str], moved: Dict[str, Any]) -> List[str]:
        """What layers are, in any order: in a pattern, what one is tells what its neighbours are."""
        words = sorted({word for v, _ in self.switches[key] if is_words(v) for word in v} | set(self.first.row[key] or ()))
        layers = next((moved[k] for k in self.base if k in moved and k.rpartition(".")[0] == key.rpartition(".")[0]), len(value))
        return [rng.choice(words) for _ in range(rng.randint(2, 7) if self.kind in LISTED else layers)]

    def near(self, rng: random.Random, run: Run) -> Optional[Run]:
        """A run with some of its sizes moved."""
        moved = dict(run.moved)
        alone = self.alone()
        some = [k for k in rng.sample(alone, min(len(alone), rng.randint(1, 3))) if isinstance(run.row.get(k), int)]
        moved.update({k: self.another(rng, k, run.row[k]) for k in some})
        return self.taken(rng, moved, {**run.how, "B": rng.choice([run.how["B"], 2, 4])}, some)

    def other(self, rng: random.Random, run: Run, key: str) -> Optional[Run]:
        """A run with another value of a size."""
        for _ in range(6):
            value = self.another(rng, key, self.first.row[key])
            again = self.attempt({**run.moved, key: value}, run.how) if value != run.row[key] else None
            if again is not None and again.row.get(key) == value:
                return again
        return None

    def taken(self, rng: random.Random, moved: Dict[str, Any], how: Dict[str, Any], alone: List[str]) -> Optional[Run]:
        """A run of what the class takes of this: one size after the other is left as it was, if it takes it not."""
        for _ in range(4):
            run = self.attempt(moved, how)
            if run:
                return run if all(repr(run.row.get(k)) == repr(v) for k, v in moved.items()) else None
            sizes = [k for k in alone if k in moved]
            if not sizes:
                break
            moved.pop(rng.choice(sizes))
        return None

    def forget(self, key: str) -> None:
        """Leaves a key as it is by default."""
        for table in (self.sizes, self.switches, self.words):
            table.pop(key, None)
        self.free.discard(key)
        self.refused[key] = "what it does could not be learnt"
        self.pairs = [pair for pair in self.pairs if key not in pair]
        left = {k: [(v, under) for v, under in some if key not in under] for k, some in self.switches.items()}
        self.switches = {k: some for k, some in left.items() if some}
        self.vectors = [({k: v for k, v in moved.items() if k != key}, change) for moved, change in self.vectors]
        self.runs = [run for run in self.runs if key not in run.moved]

    def samples(self, count: int) -> Iterator[Tuple[Dict[str, Any], Dict[str, Any]]]:
        """Configurations alone: what was set, and what they are then; with as many layers as models have."""
        rng = random.Random(7)
        keys = [k for k, v in self.plain.items() if isinstance(v, int) and not isinstance(v, bool)]
        for k in range(count):
            moved: Dict[str, Any] = {}
            for key in (rng.sample(keys, min(len(keys), 1 if k < count // 2 else 4)) if keys else []):
                value = self.plain[key]
                moved[key] = rng.randint(1, 61) if key in self.base else \
                    rng.choice([value * 2, value + 1, value * 3, max(1, value // 2), value + 5])
            for key in rng.sample(sorted(self.switches), min(len(self.switches), rng.randint(0, 2))):
                value, under = rng.choice(self.switches[key])
                if not isinstance(value, list):
                    moved.update({**under, key: value})
            for key in rng.sample(sorted(self.free), min(len(self.free), rng.randint(0, 2))):
                moved[key] = rng.choice([*self.moves(key, self.plain.get(key)), self.plain.get(key)])
            for key in [k for k in (*self.base, *self.start) if not callable(self.start.get(k))]:
                moved.setdefault(key, rng.choice([self.plain.get(key), self.start.get(key, self.plain.get(key))]))
            flat = self.takes(moved)
            if flat is not None and all(repr(flat.get(k)) == repr(v) for k, v in moved.items()):
                said = {k: v for k, v in moved.items() if self.plain.get(k) != v or k not in self.base and k not in self.start}
                yield {**self.beside(said), **said}, flat


def is_words(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], str)


def place_images(model: Any) -> None:
    """Positions of text and images are computed of values, by many small ops; of these, what they make is made."""
    def positions(input_ids: Any = None, image_grid_thw: Any = None, **_: Any) -> Any:
        return None if image_grid_thw is None else \
            torch.zeros(3, *input_ids.shape, dtype=input_ids.dtype, device=input_ids.device)

    for module in model.modules():
        if hasattr(module, "compute_3d_position_ids"):
            module.compute_3d_position_ids = positions


def signature(run: Run) -> Any:
    return [(b.place, b.env, b.sign, [h for h in b.holes if h[0] != "float"]) for b in run.all()]


def source(module: str) -> str:
    """The code of a module."""
    with open(importlib.import_module(module).__file__ or "") as f:
        return f.read()


def parts(config_class: Any) -> Dict[str, Any]:
    """The classes of the configurations in it, by their keys."""
    config = config_class()
    return {name: type(getattr(config, name)) for name in config_class.sub_configs or {}
            if isinstance(getattr(config, name, None), PreTrainedConfig)}


def modeling(config_class: Any) -> str:
    """The module of the models of a configuration."""
    return config_class.__module__.replace("configuration_", "modeling_")


def older(text: str, code: str) -> Dict[str, Any]:
    """Keys that a configuration takes and does not keep, or that the model's code asks for without there being one, with what
    they are if they are not there."""
    number = r"-?\d+\.?\d*(?:e-?\d+)?|True|False"
    out = {name: ast.literal_eval(value) for name, value in
           re.findall(rf"kwargs\.(?:get|pop)\(['\"](\w+)['\"], *({number})\)", text)}
    out.update(dict.fromkeys(re.findall(r"kwargs\.get\(['\"](\w+)['\"], *getattr\(self, *['\"]\1['\"], *None\)\)", text)))
    thetas = re.findall(r"kwargs\.(?:get|pop)\(['\"](\w*theta)['\"], *[^)\d]", text)
    known = number + r"|'\w*'|\"\w*\""
    asked = {name: ast.literal_eval(value) if re.fullmatch(known, value) else None for name, value in
             re.findall(rf"getattr\((?:self\.)?config, ['\"](\w+)['\"], *({known}|\w)", code)}
    asked.update({name: ast.literal_eval(value) for value, name in
                  re.findall(rf"({known}) if not hasattr\(config, ['\"](\w+)['\"]\)", code)})
    ropes = {f"rope_parameters.{name}": ast.literal_eval(value) for name, value in
             re.findall(rf"rope_parameters\.get\(['\"](\w+)['\"], *(\[[\d, ]*\]|{number})\)", code)}
    return {**{k: v for k, v in asked.items() if k[0] != "_" and k not in GENERIC}, **ropes, **out, **{name: 10000.0 for name in thetas}}


def literals_of(cls: Any) -> List[str]:
    """Numbers in the code that may be sizes, such as that of a chunk, the most frequent first."""
    found = re.findall(r"\b\w+(?:: int)? ?= ?(\d{2,5})\b", source(cls.__module__))
    return sorted(set(found), key=lambda n: (-found.count(n), int(n)))[:6]


def annotation(cls: Any, key: str) -> str:
    for c in cls.__mro__:
        if key in getattr(c, "__annotations__", {}):
            return str(c.__annotations__[key])
    return "int float"


def compared_with(module: str, key: str) -> List[str]:
    """Words that code compares a key with."""
    found = re.findall(rf"\b{re.escape(key)}\b[^\n=!]{{0,30}}(?:==|!=|\bin\b) *[\[(]?([^\n:\])]*)", source(module))
    return [word for text in found for word in re.findall(r"['\"](\w+)['\"]", text)]


def literals(cls: Any, key: str) -> List[str]:
    return re.findall(r"'([^']+)'", annotation(cls, key)) if "Literal" in annotation(cls, key) else []


# ---- what a module is made of --------------------------------------------------------------------------


def static(model: torch.nn.Module, lists: Set[str], dtype: torch.dtype) -> List[Body]:
    """A body for each module: its parameters and buffers, and its children, in the order in which they are registered.
    dtype: of parameters, whatever they were made with: that is what loading makes of them."""
    first: Dict[int, str] = {}
    out: List[Body] = []

    def visit(module: Any, path: str, place: str, env: Tuple[int, ...]) -> None:
        body = Body("=" + place, env, type(module).__name__)
        signs: List[Any] = []
        for kind, items in (("param", module._parameters), ("buffer", module._buffers)):
            for name, leaf in items.items():
                if leaf is None:
                    continue
                full = f"{path}.{name}" if path else name
                if id(leaf) in first:
                    signs.append(("tie", name, first[id(leaf)]))
                    continue
                first[id(leaf)] = full
                word = "frozen" if kind == "param" and not leaf.requires_grad else kind
                signs.append((word, name, kind == "param" or name not in module._non_persistent_buffers_set,
                              len(leaf.shape)))
                body.holes += [("int", n) for n in leaf.shape] + [("dtype", dtype if kind == "param" and leaf.is_floating_point() else leaf.dtype)]
        for name, child in module._modules.items():
            if child is None:
                continue
            full = f"{path}.{name}" if path else name
            if name.isdigit() and star(path) in lists:
                if name == "0":
                    signs.append(("list", "*"))
                    body.holes.append(("int", len(module)))
                visit(child, full, f"{place}.*" if place else "*", env + (int(name),))
            else:
                signs.append(("child", name))
                visit(child, full, f"{place}.{name}" if place else name, env)
        body.sign = (body.type, tuple(signs))
        out.append(body)

    visit(model, "", "", ())
    return out
