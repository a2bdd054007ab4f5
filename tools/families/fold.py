"""fold.py -- a traced call as bodies: what each module does itself, with sizes taken out and layers folded into loops.

    bodies = fold(call, lists)

A module's body has a signature, which does not change with sizes, and holes, the sizes of this run.  Two runs of the
same code have equal signatures at the same place; a place is named by the path of calls that leads there, in which a
layer's number is a star.  What a body refers to is named relative to it:

    in NAME     a tensor that the module was called with
    cap K       the K-th that it found elsewhere (a cache, an attribute)
    n I K       result K of its item I
    leaf PATH   a parameter or buffer, relative to it; `top PATH`: of another module
    c K         in a loop: variable K, as the last turn left it
    in LABEL    in a loop: what the loop was given of the body around it; a label does not change with numbers
    part LABEL HOLE  in a loop: one of a list that it was given
    all I K, at I K HOLE    result K of all turns of the loop I, or of one turn; of an op with a list of results, all

lists: the paths, with stars, of lists of modules whose length differs between runs; only these become loops.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import torch

from trace import Call, Held, Op, Typed, Value

FAR = 2 ** 63 - 1
DIMS = {"dim", "dims", "dim0", "dim1", "start_dim", "end_dim"}  # numbers of dimensions: no sizes
NUMBERS = {"other", "value", "exponent"}  # what elements are added to or compared with: no sizes
RATES = {"p", "dropout_p"}  # of dropout: whether it is 0 matters
LAYERS = re.compile(r"^((?:.*\.)?hidden_states)\.\d+$")  # a result by the number of its layer
SPREADS = {"aten.unbind.int", "aten.split_with_sizes.default", "aten.split.Tensor", "aten.chunk.default"}
SPREAD, LISTED = -1, -2  # as a number of results; as many as there are sizes
DROPPED = {"scale", "device", "pin_memory", "layout", "non_blocking", "generator"}


@dataclass
class Body:
    """What one call at one place does; env: the numbers of the turns of the loops around it, from the outermost."""

    place: str
    env: Tuple[int, ...]
    type: str
    sign: Tuple[Any, ...] = ()
    holes: List[Tuple[str, Any]] = field(default_factory=list)
    """(kind, value): kind int, float, rate, bool, dtype"""
    kind: int = -1
    """The number of its signature, once it has one."""


class Sizes(tuple):  # type: ignore[type-arg]
    """Of parts, all together one hole."""


class Fold:
    def __init__(self, lists: Set[str], parts: bool = False, listed: Sequence[List[int]] = ()) -> None:
        """parts: a list may have as many parts as there are images, each of which code takes in its turn.  listed: sizes of
        parts that are not all equal."""
        self.lists, self.parts, self.listed_sizes = lists, parts, {tuple(x) for x in listed}
        self.parted: Set[int] = set()
        """Ops with such lists, by their id()."""
        self.bodies: List[Body] = []
        self.defined: Dict[int, Set[int]] = {}
        self.used: Dict[int, List[Value]] = {}
        self.uses: Counter[int] = Counter()
        """How often a value is used, by its number, as an argument or in a list of them."""
        self.listed: Set[Tuple[int, ...]] = set()
        """Lists of values that are arguments."""

    # ---- which values a call makes, and which it uses --------------------------------------------------

    def survey(self, item: Any) -> Tuple[Set[int], List[Value]]:
        made: Set[int] = set()
        used: List[Value] = []
        if isinstance(item, Op):
            used = list(_values(item.args))
            self.uses.update(v.id for v in used)
            self.listed |= {tuple(v.id for v in x) for x in item.args.values()
                            if isinstance(x, (list, tuple)) and x and all(isinstance(v, Value) for v in x)}
            made = {v.id for v in _made_in_order(item)}
        elif isinstance(item, Held):
            pass
        else:
            used = [v for name, v in item.ins.items() if passed(name)]
            self.uses.update(v.id for v in used)
            for inner in item.items:
                m, u = self.survey(inner)
                used += [v for v in u if v.id not in made]
                made |= m
        self.defined[id(item)] = made
        self.used[id(item)] = used
        return made, used

    # ---- a module --------------------------------------------------------------------------------------

    def module(self, call: Call, place: str, env: Tuple[int, ...], wanted: Set[int]) -> Tuple[Body, List[Tuple[str, List[Value]]]]:
        """wanted: values that are used after the call.  Also gives its results: those that it returns, then others that
        are wanted."""
        body = Body(place, env, call.type)
        names: Dict[int, Any] = {}
        ins = []
        inside = self.defined[id(call)]
        for name, value in call.ins.items():
            if value.id not in names and value.leaf is None and passed(name):
                names[value.id] = ("in", name)
                ins.append((name, value))
        caps: List[Value] = []
        first = set()
        for value in self.used[id(call)]:
            if value.leaf is None and value.id not in names and value.id not in first and value.id not in inside:
                first.add(value.id)
                if self.known(value):
                    names[value.id] = ("cap", len(caps))
                    caps.append(value)
        returned = {v.id for _, v in call.outs}
        extra = [v for v in _made_in_order(call) if v.id in wanted and v.id not in returned]
        outs = [v for _, v in call.outs] + extra
        run = _Run(self, body, call.path, names, place, env)
        run.items(call.items, wanted | {v.id for v in outs})
        name_of = {v.id: LAYERS.sub(r"\1.*", name) for name, v in call.outs}
        groups: List[Tuple[str, List[Value]]] = []
        results = []
        left = list(outs)
        for r in run.folded([run.ref(v) for v in outs], returned=True):
            group = [v for v in left if r[0] == "all" and run.names.get(v.id, (None,))[:2] == ("turn", r[1])
                     or r[0] != "all" and v is left[0]]
            left = [v for v in left if v not in group]
            first = group[0].id
            if r[0] == "all":
                label = _common([star(name_of[v.id]) for v in group if v.id in name_of]) or run.label(r)
            else:
                label = name_of[first] if first in name_of else run.label(run.names.get(first, ("in", "leaf")))
            same = sum(label.partition("#")[0] == other.partition("#")[0] for other, _ in groups) if r[0] == "all" else 0
            label += f"#{same}" if same else ""
            groups.append((label, group))
            results.append((label, r))
        body.sign = (call.type, tuple(n for n, _ in ins), len(caps), tuple(run.signs), tuple(results))
        self.bodies.append(body)
        self.passed = ins, caps
        return body, groups

    def is_spread(self, op: Op) -> bool:
        """Whether its results are a list whose length is a size: they are used only together, or each in its turn."""
        outs = tuple(v.id for v in op.outs)
        return id(op) in self.parted or op.target in SPREADS and outs in self.listed and all(self.uses[v] == 1 for v in outs)

    def sizes(self, op: Op) -> Tuple[int, ...]:
        """Those of its parts, if they are a list that has a name."""
        sizes = tuple(op.args.get("split_sizes", ()))
        return sizes if sizes in self.listed_sizes else ()

    def known(self, value: Value) -> bool:
        return value.id in self.real

    def fold(self, root: Call) -> List[Body]:
        self.survey(root)
        self.real = {v.id for v in root.ins.values()} | self.defined[id(root)]
        self.module(root, "", (), set())
        return self.bodies


def passed(name: str) -> bool:
    """Whether a tensor is an argument by itself, and not part of a cache, of which only what is used counts."""
    return "cache" not in name and "past" not in name


def _values(x: Any) -> Any:
    if isinstance(x, Value):
        yield x
    elif isinstance(x, Typed):
        yield x.source
    elif isinstance(x, dict):
        for y in x.values():
            yield from _values(y)
    elif isinstance(x, (list, tuple)):
        for y in x:
            yield from _values(y)


def _made_in_order(item: Any) -> List[Value]:
    if isinstance(item, Op):
        return [v for v, new in zip(item.outs, item.new) if new]
    if isinstance(item, Held):
        return []
    seen: Dict[int, Value] = {}
    for inner in item.items:
        for v in _made_in_order(inner):
            seen.setdefault(v.id, v)
    return list(seen.values())


def star(path: str) -> str:
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", path)


class _Run:
    """Signs a sequence of items."""

    def __init__(self, fold: Fold, body: Body, path: str, names: Dict[int, Any], place: str, env: Tuple[int, ...],
                 outer: Optional["_Run"] = None):
        self.fold, self.body, self.path, self.names = fold, body, path, names
        self.place, self.env = place, env
        self.signs: List[Any] = []
        self.count: Dict[str, int] = {}
        self.outer = outer
        self.given: Dict[str, Any] = {}
        """of a loop: label: what the body around it calls it"""

    # ---- references and arguments ----------------------------------------------------------------------

    def ref(self, value: Value) -> Any:
        if value.id in self.names:
            return self.named(value.id)
        if value.leaf is not None:
            inside = not self.path or value.leaf.startswith(self.path + ".")
            path = value.leaf[len(self.path) + 1:] if inside and self.path else value.leaf
            return ("leaf" if inside else "top", self.index(path, self.path if inside else ""))
        raise ValueError(f"a tensor of {value.shape} from nowhere, used in '{self.path}'")

    def named(self, value: int) -> Any:
        r = self.names[value]
        if r[0] != "up":
            return r
        if r[1][0] == "turn" and self.fold.parts:
            every = ("all", r[1][1])
            label = self.outer.label(every)[:-1]
            self.given.setdefault(label, every)
            return ("part", label, r[1][2])
        label = self.outer.label(r[1])
        self.given.setdefault(label, r[1])
        return ("in", label)

    def label(self, r: Any) -> str:
        """A name that does not change if there is more or less around it."""
        if r[0] in ("in", "cap", "c"):
            return f"{r[0] if r[0] != 'in' else ''}{r[1]}"
        if r[0] == "up":
            return self.outer.label(r[1])
        at, k = (r[1], r[2]) if r[0] == "n" else r[1]
        what = [_word(sign) for sign in self.signs[:at + 1]]
        nth = sum(w == what[at] for w in what[:at])
        return what[at] + (f"#{nth}" if nth else "") + (f".{k}" if k != "0" else "") + \
            ("*" if r[0] == "all" else f".{r[2]}" if r[0] == "turn" else "")

    def index(self, path: str, within: str) -> str:
        """Numbers of variable lists become holes.  within: the module where the path begins."""
        parts = path.split(".")
        out = []
        for i, part in enumerate(parts):
            whole = ".".join(filter(None, [within, *parts[:i]]))
            if part.isdigit() and star(whole) in self.fold.lists:
                self.hole("int", int(part))
                part = "*"
            out.append(part)
        return ".".join(out)

    def hole(self, kind: str, value: Any) -> None:
        self.body.holes.append((kind, value))

    def named_arg(self, name: str, x: Any) -> Any:
        if name in DIMS and not isinstance(x, Value):
            return str(x)
        if name in NUMBERS and type(x) is int:
            self.hole("number", x)
            return "n"
        return self.arg(x, name in RATES)

    def arg(self, x: Any, rate: bool = False) -> Any:
        if isinstance(x, Value):
            return self.one(self.ref(x))
        if isinstance(x, Sizes):
            self.hole("list", tuple(x))
            return "#list"
        if isinstance(x, (list, tuple)):
            return ("list", *self.folded([self.ref(y) if isinstance(y, Value) else self.arg(y) for y in x]))
        if isinstance(x, bool):
            self.hole("bool", x)
            return "?"
        if x is None or isinstance(x, str):
            return x
        if isinstance(x, int):
            if abs(x) >= FAR:
                return "far"
            self.hole("int", x)
            return "#"
        if isinstance(x, float):
            self.hole("rate" if rate else "float", x)
            return "p" if rate else "~"
        if isinstance(x, Typed):
            self.hole("dtype", x.dtype)
            try:
                return ("@", self.one(self.ref(x.source)))
            except ValueError:
                return "@"
        if isinstance(x, torch.dtype):
            self.hole("dtype", x)
            return "@"
        return str(x)

    def folded(self, refs: List[Any], returned: bool = False) -> List[Any]:
        """What all turns of a loop kept becomes one.  returned: so does what all but the last kept, whose is returned by
        another name, too."""
        have: Dict[int, Set[int]] = {}
        for r in refs:
            if isinstance(r, tuple) and r and r[0] == "turn":
                have.setdefault(r[1], set()).add(r[2])
        out: List[Any] = []
        for r in refs:
            if not (isinstance(r, tuple) and r and r[0] == "turn"):
                out.append(self.one(r))
            elif len(have[r[1]]) == r[3] or returned and have[r[1]] == set(range(r[3] - 1)):
                if ("all", r[1]) not in out:
                    out.append(("all", r[1]))
            else:
                out.append(self.one(r))
        return out

    def one(self, r: Any) -> Any:
        """One of the values that turns kept, or of a list, by its number."""
        if isinstance(r, tuple) and r and r[0] == "part":
            self.hole("int", r[2])
            return r[:2]
        if isinstance(r, tuple) and r and r[0] == "turn":
            self.hole("int", r[2])
            return ("at", r[1])
        return r

    # ---- items -----------------------------------------------------------------------------------------

    def items(self, items: List[Any], wanted: Set[int]) -> None:
        """wanted: values that are used after these items."""
        after: List[Set[int]] = [set()] * len(items)
        needed = set(wanted)
        for i in range(len(items) - 1, -1, -1):
            after[i] = set(needed)
            needed |= {v.id for v in self.fold.used[id(items[i])]}
            if isinstance(items[i], Held):
                needed.add(items[i].value.id)
        loops = self.loops(items)
        named = {at: f"loop{n}" for n, at in enumerate(sorted(loops))}
        sizes: Dict[int, Tuple[int, ...]] = {}
        for n, (at, (cuts, listed)) in enumerate(sorted(self.taken_apart(items).items()) if self.fold.parts else ()):
            loops[at], named[at], sizes[at] = cuts, f"loop_{'list' if listed else 'part'}{n}", listed
        for at, (label, cuts) in repeats(items, loops).items():
            loops[at], named[at] = cuts, label
        i = 0
        while i < len(items):
            if i in loops:
                cuts = loops[i]
                self.loop([items[a:b] for a, b in zip(cuts, cuts[1:])], after[cuts[-1] - 1], named[i], sizes.get(i, ()))
                i = cuts[-1]
                continue
            self.item(items[i], after[i])
            i += 1

    def item(self, item: Any, after: Set[int]) -> None:
        at = len(self.signs)
        if isinstance(item, Op):
            spread, n = self.fold.is_spread(item), len(item.outs)
            given = dict(item.args)
            listed = self.fold.sizes(item) if spread else ()
            if listed:
                given["split_sizes"] = Sizes(listed)
            elif spread and self.fold.parts and len(set(given.get("split_sizes", ()))) == 1:
                given["split_sizes"] = given["split_sizes"][:1]  # as many as there are results
            args = tuple((k, self.named_arg(k, v)) for k, v in given.items() if k not in DROPPED)
            if spread and not listed:
                self.hole("int", n)
            self.signs.append(("op", item.target, args, LISTED if listed else SPREAD if spread else n))
            for k, v in enumerate(item.outs):
                self.names[v.id] = ("turn", (at, "0"), k, n) if spread else ("n", at, str(k))
        elif isinstance(item, Held):
            # by the first name that this body has for its memory
            known = next((i for i in ([item.value.id] if item.itself else item.value.storage.ids) if i in self.names), None)
            r = self.names[known] if known is not None else ("turn",)
            if r[0] != "turn" and (r[0] != "up" or r[1][0] != "turn"):
                self.signs.append(("held", self.named(known)))
        else:
            self.call(item, after)

    def call(self, call: Call, after: Set[int]) -> None:
        rel = call.path[len(self.path) + 1:] if self.path and call.path.startswith(self.path + ".") else call.path
        kind = "call" if not self.path or call.path.startswith(self.path + ".") or not call.path else "other"
        rel = self.index(rel, self.path if kind == "call" else "")
        nth = self.count.get(rel, 0)
        self.count[rel] = nth + 1
        suffix = f"#{nth}" if nth else ""
        place = f"{self.place}/{rel}{suffix}"
        body, outs = self.fold.module(call, place, self.env, after)
        ins, caps = self.fold.passed
        at = len(self.signs)
        self.signs.append((kind, rel, suffix, tuple((n, self.one(self.ref(v))) for n, v in ins),
                           tuple(self.one(self.ref(v)) for v in caps)))
        for (label, group), (_, r) in zip(outs, body.sign[4]):
            for i, v in enumerate(group):
                self.names[v.id] = ("n", at, label) if r[0] != "all" else ("turn", (at, label), i, len(group))

    # ---- loops -----------------------------------------------------------------------------------------

    def _list_of(self, item: Any) -> Optional[Tuple[str, int]]:
        if not isinstance(item, Call):
            return None
        parts = item.path.split(".")
        for i in range(len(parts) - 1, -1, -1):
            whole = ".".join(parts[:i])
            if parts[i].isdigit() and star(whole) in self.fold.lists and \
                    (not self.path or whole == self.path or whole.startswith(self.path + ".")):
                return whole + ":" + ".".join(parts[i + 1:]), int(parts[i])
        return None

    def loops(self, items: List[Any]) -> Dict[int, List[int]]:
        """Where a loop begins: where each of its turns begins, and where the last ends."""
        out: Dict[int, List[int]] = {}
        at = [(i, self._list_of(item)) for i, item in enumerate(items)]
        calls = [(i, key[0], key[1]) for i, key in at if key]
        k, free = 0, 0  # free: where the last loop ends
        while k < len(calls):
            i, name, number = calls[k]
            starts = [i]
            j = k + 1
            # turns begin with the call of the same list's next module
            while j < len(calls):
                if calls[j][1] == name and calls[j][2] == number + len(starts):
                    starts.append(calls[j][0])
                elif calls[j][1] == name:
                    break
                j += 1
            if len(starts) < 2:
                k += 1
                continue
            tokens = [[_token(x) for x in items[a:b]] for a, b in zip(starts, starts[1:])]
            tail = tokens[-1][1:]
            # items before the first call that are like those before the second belong to its turn
            pre = 0
            end = starts[-1] + 1
            while pre < len(tail) and starts[0] - pre - 1 >= free and \
                    _token(items[starts[0] - pre - 1]) == tail[len(tail) - 1 - pre] and \
                    not any(_token(items[s - pre - 1]) != tail[len(tail) - 1 - pre] for s in starts[1:]):
                pre += 1
            post = tail[:len(tail) - pre]
            n = 0
            while n < len(post) and end + n < len(items) and _token(items[end + n]) == post[n]:
                n += 1
            differs = n < len(post)  # from the turn before
            n = 0 if differs else n
            inside = set().union(*(self.fold.defined[id(x)] for x in items[starts[0] - pre:end]))
            # of two turns the first does not show what goes at the end of others, nor does one with other statements
            while (len(starts) == 2 or differs) and end + n < len(items) and isinstance(items[end + n], Held) and \
                    items[end + n].value.id in inside:
                n += 1
            cuts = [s - pre for s in starts] + [end + n]
            out[cuts[0]] = cuts
            free = cuts[-1]
            k = next((m for m in range(k, len(calls)) if calls[m][0] >= cuts[-1]), len(calls))
        return out

    def taken_apart(self, items: List[Any]) -> Dict[int, Tuple[List[int], Tuple[int, ...]]]:
        """Loops over the parts of lists of equal length, each of whose turns takes the next, where what these make becomes a
        list again: where each begins, and the last ends, and the sizes of the parts, where they have a name.  The ops with
        these lists are noted."""
        out: Dict[int, Tuple[List[int], Tuple[int, ...]]] = {}
        spreads = [x for x in items if isinstance(x, Op) and x.target in SPREADS and not self.fold.is_spread(x) and
                   (len(set(x.args.get("split_sizes", (0,)))) == 1 or self.fold.sizes(x))]
        for i, target in [(i, target) for i, x in enumerate(items) if _list_in(x) for target in sorted({x.target for x in spreads})]:
            joined = _list_in(items[i])
            group = [x for x in spreads if x.target == target and len(x.outs) == len(joined)]
            starts = [min((j for j, x in enumerate(items[:i]) if any(v.id == op.outs[k].id for v in self.fold.used[id(x)]
                                                                   for op in group)), default=i) for k in range(len(joined))]
            if not group or sorted(set(starts)) != starts or starts[-1] == i:
                continue
            cuts = [*starts, i]
            turns = [items[a:b] for a, b in zip(cuts, cuts[1:])]
            last = turns[-1]
            made = set().union(*(self.fold.defined[id(x)] for x in last))
            while isinstance(last[-1], Held) and last[-1].value.id not in made:
                last = last[:-1]
            cuts[-1] = cuts[-2] + len(last)
            if all(v.id in set().union(*(self.fold.defined[id(x)] for x in t)) for v, t in zip(joined, turns)) and \
                    all([_token(x) for x in t] == [_token(x) for x in last] for t in turns[:-1]):
                out[cuts[0]] = cuts, self.fold.sizes(group[0])
                self.fold.parted |= {id(op) for op in group}
        return out

    def loop(self, turns: List[List[Any]], after: Set[int], name: str, sizes: Tuple[int, ...] = ()) -> None:
        """sizes: of the parts that turns take, if that is a list with a name."""
        fold = self.fold
        held = [{x.value.id for x in t if isinstance(x, Held)} for t in turns]
        used = [[v for x in t for v in fold.used[id(x)]] for t in turns]
        n = len(turns)
        owner: Dict[int, int] = {}
        value_of: Dict[int, Value] = {}
        for i, t in enumerate(turns):
            for x in t:
                for v in _made_in_order(x):
                    owner[v.id] = i
                    value_of[v.id] = v
        # values that cross from one turn to the next, in the order of their first use there
        lives: Dict[int, Set[int]] = {}
        for i in range(n):
            for v in used[i]:
                if v.id in owner and owner[v.id] < i:
                    lives.setdefault(v.id, set()).update(range(owner[v.id] + 1, i + 1))
        crossing: List[List[int]] = [[] for _ in range(n + 1)]
        for i in range(1, n):
            order = {v.id: k for k, v in reversed(list(enumerate(used[i])))}
            here = [v for v, at in lives.items() if i in at]
            crossing[i] = sorted(here, key=lambda v: order.get(v, 10 ** 9 + v))
        last_wanted = [v for v in after if v in owner]
        width = max((len(c) for c in crossing), default=0)
        # what each variable is before the first turn
        init: List[Any] = [None] * width
        if n > 1:
            init = self._initial(turns, crossing[1], owner, used)
        at = len(self.signs)
        place = f"{self.place}/{name}"
        self.signs.append(None)
        results: List[Tuple[Any, ...]] = []
        per_turn: List[List[Value]] = []
        counts: List[int] = []  # of bodies, before each turn
        afterwards = [set(after)]  # what is used or held after the last turn, after the one before it, and so on
        for i in range(n - 1, 0, -1):
            afterwards.append(afterwards[-1].union((v.id for v in used[i]), held[i]))
        for i, t in enumerate(turns):
            counts.append(len(fold.bodies))
            body = Body(place, self.env + (i,), "loop")
            names = {v: ("up", r) for v, r in self.names.items()}
            for k, v in enumerate(crossing[i] if i else []):
                names[v] = ("c", k)
            if i == 0:
                for k, r in enumerate(init):
                    if r is not None:
                        for v, name in self.names.items():
                            if name == r:
                                names[v] = ("c", k)
            run = _Run(fold, body, self.path, names, place, self.env + (i,), self)
            run.items(t, afterwards.pop())
            following = crossing[i + 1] if i + 1 < n else None
            nexts = tuple(run.named(v) for v in following) if following is not None else None
            kept = [v for v in _made_list(t) if v.id in after]
            per_turn.append(kept)
            results.append((run, nexts, kept, body))
        # after the last turn, variables are what a turn of the same kind would have left in them
        signs = [tuple(r[0].signs) for r in results]
        pattern = None
        for j in range(n - 2, -1, -1):
            if signs[j] == signs[n - 1]:
                pattern = results[j][1]
                break
        if pattern is None and n > 1 and len(results[n - 2][1] or ()) == 1:
            kept_before = set.intersection(*({results[j][0].names[v.id] for v in per_turn[j]} for j in range(n - 1)))
            left = [v for v in last_wanted if owner[v] == n - 1 and results[n - 1][0].names[v] not in kept_before]
            pattern = (results[n - 1][0].named(left[0]),) if len(left) == 1 else None
        if pattern is None and n > 1:
            pattern = results[n - 2][1]
        results[n - 1] = (results[n - 1][0], pattern or (), *results[n - 1][2:])
        before = {results[n - 2][0].names[v.id] for v in per_turn[n - 2]}
        last = results[n - 1][0].names
        per_turn[n - 1] = [v for v in per_turn[n - 1] if last[v.id] not in (pattern or ()) or last[v.id] in before]
        for (run, nexts, _, body), kept in zip(results, per_turn):
            body.sign = ("loop", tuple(run.signs), nexts, tuple(run.named(v.id) for v in kept))
            fold.bodies.append(body)
        if sizes:  # of windows there are hundreds
            self.forget_alike(counts, n)
        given: Dict[str, Any] = {}
        for run, *_ in results:
            given.update(run.given)
        self.hole("count" if sizes else "int", sizes or n)
        self.signs[at] = ("loop", place.rsplit("/", 1)[1], tuple(self.known_as(r) for r in init), len(pattern or ()),
                          tuple((label, self.known_as(given[label])) for label in sorted(given)))
        run = results[n - 1][0]
        kept_all = [v for t in per_turn for v in t]
        for i, v in enumerate(kept_all):
            self.names[v.id] = ("turn", (at, "0"), i, len(kept_all))
        for k, r in enumerate(pattern or ()):
            for v, name in run.names.items():
                if name == r and v in owner and owner[v] == n - 1:
                    self.names[v] = ("n", at, str(k))

    def forget_alike(self, counts: List[int], n: int) -> None:
        """Leaves out the bodies of turns between the second and the last that are like those of the second."""
        bodies = self.fold.bodies
        own = len(bodies) - n  # those of the turns themselves come last
        of = [bodies[a:b] + [bodies[own + i]] for i, (a, b) in enumerate(zip(counts, [*counts[1:], own]))]
        kept = [some for i, some in enumerate(of) if i < 2 or i == n - 1 or not _alike(of[1], some, i - 1)]
        del bodies[counts[0]:]
        for some in kept:
            bodies += some

    def known_as(self, r: Any) -> Any:
        """A name of this body, where it is one of the body around it."""
        if r is not None and r[0] == "up":
            label = self.outer.label(r[1])
            self.given.setdefault(label, r[1])
            return ("in", label)
        return self.one(r)

    def _initial(self, turns: List[List[Any]], crossing: List[int], owner: Dict[int, int],
                 used: List[List[Value]]) -> List[Any]:
        """The k-th use of the second turn that is a variable is at the same place as one of the first turn."""
        first = _uses(turns[0], self.path)
        second = _uses(turns[1], self.path)
        where: Dict[int, List[Any]] = {}
        for key, v in second.items():
            where.setdefault(v, []).append(key)
        out = []
        for v in crossing:
            found = None
            for key in where.get(v, []):
                w = first.get(key)
                if w is not None and w in self.names:
                    found = self.names[w]
                    break
            out.append(found)
        return out


def _common(names: List[str]) -> str:
    """What results are called together: of a cache, in which layers keep this or that, not what the first of them keeps."""
    return ".".join(os.path.commonprefix([name.split(".") for name in names]))


def _alike(a: List[Body], b: List[Body], turns: int) -> bool:
    """Whether two turns, so far apart, do the same: with the same sizes, and each with its own part."""
    return len(a) == len(b) and all(
        x.place == y.place and x.sign == y.sign and len(x.holes) == len(y.holes) and
        all(k == m and (v == w or k == "int" and w - v == turns) for (k, v), (m, w) in zip(x.holes, y.holes)) for x, y in zip(a, b))


LONGEST = 80  # items of a turn
FEWEST = 3  # turns


def repeats(items: List[Any], loops: Dict[int, List[int]]) -> Dict[int, Tuple[str, List[int]]]:
    """Loops of the code itself, over chunks of tokens: the same items again and again, each time with what the last time
    made or wrote.  By where they begin: a name, which depends on what begins, and where each turn does, as in `loops`."""
    inside = {i for cuts in loops.values() for i in range(cuts[0], cuts[-1])}
    at = [i for i, item in enumerate(items) if not isinstance(item, Held)]
    tokens = [None if i in inside else _exact(items[i]) for i in at]
    out: Dict[int, Tuple[str, List[int]]] = {}
    count: Dict[str, int] = {}
    i = 0
    while i < len(at):
        best = (0, 0)
        for p in range(1, min(LONGEST, (len(at) - i) // FEWEST) + 1):
            n = 1
            while tokens[i] is not None and tokens[i:i + p] == tokens[i + n * p:i + (n + 1) * p]:
                n += 1
            whole = (p > 1 or isinstance(items[at[i]], Call)) and None not in tokens[i:i + p]
            if whole and n >= FEWEST and n * p > best[0] * best[1] and _linked([items[k] for k in at[i:i + n * p]], p):
                best = (n, p)
        n, p = best
        if n:
            word = _exact(items[at[i]])[1].replace("aten.", "").split(".")[0].strip("_")
            name = f"loop_{word}{count.get(word, 0)}"
            count[word] = count.get(word, 0) + 1
            end = at[i + n * p] if i + n * p < len(at) else len(items)
            made = set().union(*({v.id for v in _made_in_order(items[k])} for k in at[i:i + n * p]))
            last = at[i + n * p - 1] + 1
            while last < end and items[last].value.id in made:
                last += 1
            out[at[i]] = (name, [at[i + k * p] for k in range(n)] + [last])
            i += n * p
        else:
            i += 1
    return out


def _list_in(item: Any) -> List[Value]:
    """The values of a list that is an argument."""
    some = [x for x in item.args.values() if isinstance(x, list) and x] if isinstance(item, Op) else []
    return next((x for x in some if all(isinstance(v, Value) for v in x)), [])


def _exact(item: Any) -> Any:
    return ("op", item.target, tuple(k for k in item.args)) if isinstance(item, Op) else ("call", item.path)


def _linked(items: List[Any], p: int) -> bool:
    """Whether what each of the turns makes or writes comes from what the one before did."""
    before: Set[int] = set()
    for k in range(0, len(items), p):
        now: Set[int] = set()
        for x in items[k:k + p]:
            used = list(_values(x.args if isinstance(x, Op) else x.ins))
            if k == 0 or any(v.id in before or v.id in now or id(v.storage) in before or id(v.storage) in now for v in used):
                now |= {v.id for v in _made_in_order(x)}
                if isinstance(x, Op) and x.target.split(".")[1].endswith("_"):
                    now |= {id(v.storage) for v in x.outs}
        if not now:
            return False
        before = now
    return True


def _made_list(turn: List[Any]) -> List[Value]:
    seen: Dict[int, Value] = {}
    for x in turn:
        for v in _made_in_order(x):
            seen.setdefault(v.id, v)
    return list(seen.values())


def _word(sign: Any) -> str:
    """What an item is, without its arguments."""
    if sign is None or sign[0] == "loop":
        return "loop"
    return sign[1].replace("aten.", "").split(".")[0] if sign[0] == "op" else sign[1].rsplit(".", 1)[-1] if sign[0] != "held" else "held"


def _token(item: Any) -> Any:
    if isinstance(item, Op):
        return ("op", item.target, tuple(k for k in item.args))
    if isinstance(item, Held):
        return "held"
    return ("call", star(item.path))


def _uses(turn: List[Any], path: str) -> Dict[Any, int]:
    """Values by where they are used: how each item there is called, which argument."""
    out: Dict[Any, int] = {}

    def walk(items: List[Any], at: Tuple[Any, ...]) -> None:
        count: Dict[Any, int] = {}
        for item in items:
            token = _token(item)
            count[token] = count.get(token, 0) + 1
            here = at + ((token, count[token]),)
            if isinstance(item, Call):
                for name, v in item.ins.items():
                    out.setdefault(here + (name,), v.id)
                walk(item.items, here)
            elif isinstance(item, Op):
                for k, v in enumerate(_values(item.args)):
                    out.setdefault(here + (k,), v.id)

    walk(turn, ())
    return out
