"""emit.py -- a family as text; docs/formats/family.md is the grammar."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Set, Tuple

from expr import conjunct, names_of
from learn import Family, Place
from merge import Hole, Pieces, Ref, Statement, has_hole
from networks import is_network
from probe import GENERIC, modeling, source
from tasks import IMAGE, IN_UNITS, LETTERS, NEEDED, REQUIRED, image_key

# What makes a tensor of another's dtype: the op that does the same with the other tensor as an argument.
NEW = {"zeros": "new_zeros", "ones": "new_ones", "empty.memory_format": "new_empty", "full": "new_full"}


def typed(target: str, args: Dict[str, str]) -> Tuple[str, Dict[str, str]]:
    dtype = args.get("dtype", "")
    if not dtype.startswith("typeof "):  # where that is always the same type, no matter of which tensor it is
        return target, {**args, "dtype": dtype.partition(" ")[0]} if dtype else args
    source = dtype[len("typeof "):]
    if target in ("to.dtype", "to.dtype_layout", "to.device", "_to_copy"):
        return "type_as", {"self": args["self"], "other": source}
    if target in NEW:
        return NEW[target], {"self": source, **{k: v for k, v in args.items() if k in ("size", "fill_value")}}
    return target, {**args, "dtype": "$dtype"}


# ---- a family ----------------------------------------------------------------------------------------------


class Emit:
    def __init__(self, family: Family) -> None:
        self.family = family
        self.used: Set[str] = set()

    def expr(self, text: str) -> str:
        self.used |= names_of(text)
        return text

    # ---- a place ---------------------------------------------------------------------------------------

    def place(self, place: Place) -> str:
        numbers: Dict[Statement, int] = {}
        for s in place.merged.statements:
            if s.item.head.startswith(("op ", "call", "loop")):
                numbers[s] = len(numbers)
        out: List[str] = []
        last = None
        for s in place.merged.statements:
            when = place.when[s]
            if when.test == "False":
                continue
            if when != last and not when.always:
                test = [f"%{numbers[when.after]}"] if when.after is not None else []
                test += [self.expr(when.test)] if when.test != "True" else []
                out.append(f" if {' and '.join(test[:1] + [conjunct(t) for t in test[1:]])}")
            last = when
            out.append((" " if when.always else "  ") + self.statement(s, place.holes[s], numbers))
        return "".join(line + "\n" for line in out)

    def statement(self, s: Statement, holes: List[str], numbers: Dict[Statement, int]) -> str:
        item = s.item
        left = iter(holes)
        first = "".join(self.pieces(s, "", item.first, left, numbers))
        start = f"{numbers[s]} " if s in numbers else ""
        if item.optional:
            return self.optional(s, start, first, left, numbers)
        args = {}
        for at, (name, pieces) in enumerate(item.args):
            args[name or str(at)] = "".join(self.pieces(s, name, pieces, left, numbers, at if not name else 0))
        if item.head.startswith("op "):
            spread = f" -> [{args.pop('->')}]" if "->" in args else ""
            return start + self.op(item.head[3:], args) + item.tail + spread
        return f"{start}{item.head}{' ' if first and not item.head.startswith('type') else ''}{first}" + \
            (" " + ", ".join(args.values()) if args else "")

    def optional(self, s: Statement, start: str, first: str, left: Iterator[str], numbers: Dict[Statement, int]) -> str:
        """What is there of its arguments is passed, or returned."""
        indexed = {name: pieces for name, pieces in s.item.args if has_hole(pieces)}
        args = [f"{name}={''.join(self.pieces(s, name, pieces, left, numbers))}" for name, pieces in indexed.items()]
        for name in dict.fromkeys([*(n for n, _ in s.refs), *s.plain]):
            if name in indexed:
                continue
            some = [self.options(s, (name, 0), numbers)] if (name, 0) in s.refs else []
            args.append(f"{name}=" + "|".join(some + (["".join(map(str, s.plain[name]))] if name in s.plain else [])))
        text = ", ".join(args)
        return f"return {text}" if s.item.head == "return" else f"{start}{s.item.head} {first}({text}){s.item.tail}"

    def op(self, target: str, args: Dict[str, str]) -> str:
        target = target.replace("aten.", "", 1) if target.startswith("aten.") else ":" + target
        target = target[:-len(".default")] if target.endswith(".default") else target
        target, args = typed(target, args)
        return f"{target}({', '.join((f'{k}=' if k != 'self' or re.match('[-0-9]', v) else '') + v for k, v in args.items())})"

    def pieces(self, s: Statement, name: str, pieces: Pieces, holes: Iterator[str], numbers: Dict[Statement, int],
               nth: int = 0) -> Iterator[str]:
        count = nth
        for p in pieces:
            if isinstance(p, Ref):
                yield self.options(s, (name, count), numbers)
                count += 1
            elif isinstance(p, Hole):
                text = next(holes)
                if p.kind == "source":
                    yield "typeof " if text == "$dtype" else f"{text} "
                elif p.kind in ("float", "rate"):
                    yield "any" if text in ("any", "inf", "-inf", "nan") else self.expr(text) if names_of(text) else repr(float(text))
                else:
                    yield self.expr(text) if p.kind in ("int", "bool", "list", "count") else text
            else:
                yield str(p)

    def options(self, s: Statement, where: Tuple[str, int], numbers: Dict[Statement, int]) -> str:
        """The latest that ran is meant."""
        options = [f"{numbers[o]}{f'.{k}' if k != '0' else ''}{'[*]' if every else ''}" for o, k, every in s.refs[where]]
        return "%" + "|".join(options)

    # ---- all -------------------------------------------------------------------------------------------

    def text(self) -> str:
        study = self.family.study
        blocks: Dict[str, List[str]] = {}
        for p in self.family.places.values():
            blocks.setdefault(self.place(p), []).append(p.name or "/")
        images = [self.image()] if study.task.has("$height") else []
        named = {k for k, v in study.plain.items() if isinstance(v, str)}  # their words are all that is known of them
        keys = self.ordered(sorted(k for k in (self.used | set(study.refused) | named)
                                  if k in study.plain or k in study.extra and k in self.used))
        task = study.task
        head = [f"family {study.kind}", f"class {study.cls.__name__}", f"task {task.name}",
                f"made {study.version}, {len(study.runs)} runs, {self.family.checked} more were right"]
        kept = getattr(study.cls, "kept", ())
        head += [f"{'kept' if name in kept else 'input'} {name} [{', '.join(map(self.expr, shape))}] {dtype}"
                 for name, (shape, dtype) in task.taken(study.cls, False).items()]
        head += [f"kept {name} [{', '.join(map(self.expr, shape))}] {dtype}" for name, (shape, dtype) in task.kept.items()]
        head += [f"labels {name} [{', '.join(map(self.expr, shape))}] {dtype}" for name, (shape, dtype) in task.labels.items()]
        if positions_from_padding(study.cls) and "max_position_embeddings" in study.plain:
            first = (study.config({}).pad_token_id or 0) + 1
            head.append(f"positions {self.expr('max_position_embeddings')} - {first}")
        head += images
        head += [f"{name} {getattr(study.cls, name)}" for name in ("seq", "frames", "multiple", "without") if getattr(study.cls, name, 0)]
        head += [f"multiple {self.expr(task.unit)}"] if task.unit else []
        head += [f"size {name} = {self.expr(text)}" for name, text in study.named.items()]
        head += [f"attention {study.sdpa}"] if study.attends else []
        head += [f"requires {self.expr(REQUIRED[study.kind])}"] if study.kind in REQUIRED else []
        head += [f"flat {study.flat_part}"] if study.flat_part else []
        head += [f"alias {a} {b}" for a, b in sorted((study.config_class.attribute_map or {}).items())]
        head += [f"alias {part}.{a} {part}.{b}" for part, c in study.parts.items() for a, b in sorted((c.attribute_map or {}).items())]
        head += [self.key(k) for k in keys]
        for word, (key, letters) in LETTERS.get(study.kind, {}).items():
            head += [f"alias {word} {key}", f"letters {key} {' '.join(f'{a}={b}' for a, b in letters.items())}"]
        ignored = (set(study.plain) | study.extra | dropped(study)) - set(study.refused) - set(keys)
        head.append(f"ignored {' '.join(sorted(ignored))}")
        if is_network(study.kind):
            return "\n".join(head) + "\n" + places(blocks)
        known = ignored | set(keys) | {k.split(".")[0] for k in study.plain} | set(study.config_class.attribute_map or {})
        sources = [(study.cls.__module__, study.config_class), *((modeling(c), c) for c in study.parts.values())]
        ropes = set().union(*(asked_ropes(m, c) for m, c in sources))
        head += [f"ropes {' '.join(sorted(ropes))}"] if any(".rope_parameters." in f".{k}" for k in study.plain) else []
        packages = {name for m, _ in sources for name in KERNELS.findall(source(m))}
        head += [f"kernels {' and '.join(sorted(packages))}"] if packages else []
        read = set().union(*(read_names(m, c) for m, c in sources))
        asked = set().union(*(asked_names(m, c) for m, c in sources))
        inner = {k.rpartition(".")[2] for k in study.plain if "." in k}
        whole = study.config({})
        known |= {name for name in inner - asked if not hasattr(whole, name)}  # of a part: the whole has none, and runs
        head.append(f"read {' '.join(sorted(read - known))}")
        return "\n".join(head) + "\n" + places(blocks)

    def image(self) -> str:
        """The sizes of images, as tasks.image has them."""
        key = image_key(self.family.study.plain)
        cls, unit = self.family.study.cls, self.family.study.task.unit
        if unit:
            text = [self.expr(f"{IN_UNITS} * {unit}")] * 2
        elif hasattr(cls, "image"):
            text = [self.expr(cls.image)] * 2
        elif isinstance(self.family.study.plain.get(key, IMAGE), int):
            text = [self.expr(key) if key else str(IMAGE)] * 2
        else:
            text = [self.expr(f"{key}[0]"), self.expr(f"{key}[-1]")]
        return f"image {', '.join(text)}{' fixed' * self.family.study.fixed}"

    def ordered(self, keys: List[str]) -> List[str]:
        """Each after those that its default needs, which are added."""
        out: List[str] = []

        def visit(key: str, depth: int = 0) -> None:
            if key in out or key not in self.family.study.plain.keys() | self.family.study.extra or depth > 20:
                return
            for other in sorted(names_of(self.family.defaults.get(key, ""))):
                visit(other, depth + 1)
            out.append(key)

        for key in keys:
            visit(key)
        return out

    def key(self, key: str) -> str:
        """A question mark: null is as if it were not there."""
        study = self.family.study
        optional = "?" if raw_default(*study.owner(key)) is None else ""
        default = self.family.defaults.get(key, "?" if key in study.plain else "None")  # of a key that comes with others' values
        needed = key in NEEDED.get(study.kind, {}) or key in getattr(study.cls, "needed", ()) or default == "?"
        return f"key {key}{optional}: {self.domain(key)}" + ("" if needed else f" = {default}")

    def domain(self, key: str) -> str:
        study = self.family.study
        value = self.family.base.row.get(key) if key in study.start else study.plain.get(key)
        seen = {repr(r.row.get(key)) for r in study.runs} | study.words.get(key, set())
        words = sorted(w for w in seen if w[0] == "'" or w == "None")
        if isinstance(value, list) and key in study.refused:
            words.append(repr(value))  # no other
        elif any(w[0] == "[" for w in seen) or isinstance(value, list):
            words.append("list")
        if {"True", "False"} <= seen:
            words.append("bool")
        else:
            words += sorted(w for w in seen if w in ("True", "False"))
        moved = key not in study.refused
        if any(re.fullmatch(r"-?\d+", w) for w in seen):
            words.append("int" if moved else repr(value))
        if any(re.fullmatch(r"-?[\d.]*(e[-+]?\d+)?|-?inf", w) and not re.fullmatch(r"-?\d+", w) for w in seen):
            words.append("float" if moved else repr(value))
        return " | ".join(dict.fromkeys(words)) or "any"


KERNELS = re.compile(r"use_kernel_func_from_hub_with_fallback\(\"\w+\", \"([\w-]+)\"\)")


def places(blocks: Dict[str, List[str]]) -> str:
    return "".join(f"at {', '.join(names)}\n{text}" for text, names in blocks.items())


def positions_from_padding(cls: Any) -> bool:
    """Whether the first token has the row after that of padding, as in RoBERTa: a table has so many rows fewer for tokens."""
    return "create_position_ids_from_input_ids" in source(cls.__module__)


SHARED = ("masking_utils", "cache_utils", "modeling_rope_utils", "modeling_utils", "configuration_utils",
          "loss.loss_utils", "integrations.moe", "integrations.sdpa_attention")


def modules_of(modeling_module: str, config_class: Any) -> List[str]:
    """Those with the code of a class, and of what it shares with others."""
    return [modeling_module, config_class.__module__, *(f"transformers.{m}" for m in SHARED)]


def asked_names(modeling_module: str, config_class: Any) -> Set[str]:
    """What code takes from a configuration if it is there."""
    out: Set[str] = set()
    for module in modules_of(modeling_module, config_class):
        out |= set(re.findall(r"attr\((?:self|config|self\.config), ['\"](\w+)|kwargs\.\w+\(['\"](\w+)", source(module)))
    return {name for pair in out for name in pair if name}


def dropped(study: Any) -> Set[str]:
    """Keys of older files whose value a configuration drops: properties that are set to no effect."""
    plain = study.flat({})
    some = {name for name, x in vars(study.config_class).items() if isinstance(x, property) and x.fset}
    return {name for name in some for flat in [study.takes({name: 3})] if name not in plain and flat == plain}


def asked_ropes(modeling_module: str, config_class: Any) -> Set[str]:
    """What code takes of the parameters of rotary embeddings."""
    return {name for module in modules_of(modeling_module, config_class)
            for name in re.findall(r"rope_\w+(?:\.get\(|\[)['\"](\w+)", source(module))}


def read_names(modeling_module: str, config_class: Any) -> Set[str]:
    """What the code of a class, and what it shares with others, takes from a configuration: any other key says nothing."""
    out: Set[str] = set()
    for module in modules_of(modeling_module, config_class):
        text = source(module)
        out |= set(re.findall(r"[Cc]onfig\w*\.(\w+)", text)) | set(re.findall(r"attr\(\w*(?:config|self)\w*, ['\"](\w+)", text))
        if module == config_class.__module__:
            out |= set(re.findall(r"self\.(\w+)", text)) | set(re.findall(r"kwargs\.\w+\(['\"](\w+)", text))
    from transformers import PreTrainedConfig, PreTrainedModel
    return {name for name in out - GENERIC if name.islower() and name[0] != "_" and not hasattr(PreTrainedConfig, name) and
            not hasattr(PreTrainedModel, name)}


def raw_default(cls: Any, key: str) -> Any:
    """What the class itself says, before it works out the rest."""
    value = getattr(cls, key, None)
    return None if isinstance(value, property) else value
