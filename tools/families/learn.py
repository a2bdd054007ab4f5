"""learn.py -- from a study to a family: at each place which body it has when, and each size as an expression.

    python learn.py [-v] OUT TASK KIND...      writes OUT/CLASS.fam for each model type

FAMILY_NODES: the program of tests/families, with which each text is compared with transformers, too.

What was learnt is tried on configurations that nobody chose: those that it gets wrong are learnt, too, until a round of
them is right.
"""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import numpy as np

import usual
from expr import Chooser, choose, condition, derived, fit, is_right, names_of, passes, value_of
from fold import Body
from merge import Hole, Item, Merged, Statement, actual
from probe import LIMIT, Run, Study
from tasks import NEEDED

Seen = List[Tuple[Run, Body]]
DETAIL = "-v" in sys.argv
ROUND = 40  # configurations that must all be right
SMALL_ROUND = 12  # of classes that have hardly a key to move
COVERED = 16  # statements that few runs had, with which a round ends
ENOUGH = 8  # that are wrong, before what they show is learnt
NATURAL = 8  # numbers of code are often no larger
TOLD = 3  # values of a hole, before what is as large says something
BLAME = 0.4  # how much more often it must be wrong with a key that is given up
MOST_GIVEN_UP = 3
CALLED = {"$cache", "$train"}  # ways of calling
SIMPLE = 5.0  # a test of one or two features; longer ones may be a coincidence, and others are tried


@dataclass(frozen=True)
class When:
    """What a statement runs on."""

    test: str
    """"True": always"""
    after: Optional[Statement] = None
    """A statement that must have run, without which it would have nothing to take."""

    @property
    def always(self) -> bool:
        return self.test == "True" and self.after is None

    def runs(self, row: Dict[str, Any], ran: Set[Statement]) -> bool:
        return (self.after is None or self.after in ran) and (self.test == "True" or passes(self.test, row))


@dataclass
class Place:
    name: str
    merged: Merged
    when: Dict[Statement, "When"] = field(default_factory=dict)
    holes: Dict[Statement, List[str]] = field(default_factory=dict)
    """An expression each"""
    def index(self, s: Statement) -> Dict[int, int]:
        """Which number it has in the bodies that have it."""
        return {kind: mine.index(s) for kind, mine in self.merged.of.items() if s in self.merged.sets[kind]}

    def values(self, s: Statement, k: int, seen: Seen, index: Dict[int, int]) -> List[Any]:
        """What its hole k was."""
        at = {kind: self.merged.bodies[kind][i].start + k for kind, i in index.items()}
        return [b.holes[at[b.kind]][1] for _, b in seen]

    def right(self, row: Dict[str, Any], run: Run, body: Body, kind: Optional[int]) -> str:
        """Empty if the body is what was learnt, or what is not."""
        try:
            items, ins = self.merged.read(body.sign) if kind not in self.merged.bodies else \
                (self.merged.bodies[kind], self.merged.ins[kind])
            mine: List[Statement] = []
            ran: Set[Statement] = set()
            for s, when in self.when.items():
                if when.runs(row, ran):
                    mine.append(s)
                    ran.add(s)
            for i, (item, s) in enumerate(zip(items, mine)):
                if item.key() != s.item.key():
                    return f"item {i} is {item.head}, not {s.item.head}"
                if self.merged.resolved(s, set(mine[:i]), ins) != actual(item, mine, self.merged.shift):
                    return f"item {i}, {item.head}, refers to others"
                for k, text in enumerate(self.holes[s]):
                    what, value = body.holes[item.start + k]
                    if what == "rate" and ((value_of(text, row) or 0) == 0) != (value == 0) or \
                            what == "list" and value_of(text, row) != list(value) or what == "count" and value_of(text, row) != len(value) or \
                            what == "bool" and passes(text, row) != value or what == "int" and value_of(text, row) != value or \
                            what == "dtype" and (run.how["$dtype"] if text == "$dtype" else text) != str(value)[6:]:
                        return f"item {i}, {item.head}: {value}, not {text}"
            return "" if len(mine) == len(items) else f"{len(items)} items, not {len(mine)}"
        except (IndexError, KeyError, TypeError, NameError, SyntaxError) as why:
            return f"{type(why).__name__} {why}"


def row_of(run: Run, body: Body) -> Dict[str, Any]:
    letter = "j" if body.place.startswith("=") else "i"
    passed = body.sign[1] if letter == "i" and body.sign[0] != "loop" else ()
    row = run.rows.get((letter, body.env, passed))
    if row is None:
        of = run.row if letter == "i" else {k: v for k, v in run.row.items() if k[0] != "$" and k not in run.how}  # what a module has is no matter of a call
        row = run.rows[letter, body.env, passed] = {
            **of, **{f"{letter}{k}": v for k, v in enumerate(body.env)},
            **{f"?{name}": True for name in passed if name.isidentifier()}}
    return row


def candidates(obs: Sequence[Tuple[Run, Body, Any]], base: Run) -> Set[str]:
    """Features that a change of the outcome came with: of runs in which one thing was moved."""
    at_base = {body.env: outcome for run, body, outcome in obs if run is base}
    out: Set[str] = set()
    for run, body, outcome in obs:
        one = len(run.moved) + sum(run.how[k] != base.how[k] for k in base.how) == 1
        if one and run is not base and (body.env not in at_base or at_base[body.env] != outcome):
            row = row_of(run, body)
            out |= {k for k in run.row if k in row and run.row.get(k) != base.row.get(k)}
    seen: Dict[int, Set[Any]] = {}
    for run, body, outcome in obs:
        seen.setdefault(id(run), set()).add(repr(outcome))
    if any(len(s) > 1 for s in seen.values()):
        letter = "j" if obs[0][1].place.startswith("=") else "i"
        out |= {f"{letter}{k}" for k in range(max(len(b.env) for _, b, _ in obs))}
    return out


class Family:
    def __init__(self, study: Study) -> None:
        self.study = study
        self.base = study.runs[0]
        self.seen: Dict[str, Seen] = {}
        self.places: Dict[str, Place] = {}
        self.defaults: Dict[str, str] = {}
        self.problems: Dict[str, str] = {}
        self.checked = 0
        self.ids: Dict[Any, int] = {}
        """of signatures"""
        self.asked: Set[str] = set()
        """features that what runs was seen to depend on"""
        self.known: Dict[str, int] = {}
        """expressions that were found, and how often"""
        self.usual = usual.sizes(set(self.base.row))
        self.groups: Dict[Any, List[Run]] = {}
        """by a place and the kinds of its bodies that have them: see group()"""

    # ---- learning --------------------------------------------------------------------------------------

    def add(self, run: Run) -> None:
        for body in run.all():
            body.kind = self.ids.setdefault(body.sign, len(self.ids))
            self.seen.setdefault(body.place, []).append((run, body))

    def learn(self, places: Sequence[str]) -> None:
        for name in places:
            for problem in [p for p in self.problems if p.split(":")[0] == name]:
                del self.problems[problem]
            self.places[name] = self.place(name, self.seen[name])
        self.group()

    def problem(self, name: str, what: str) -> None:
        self.problems[f"{name}: {what}"] = name

    def place(self, name: str, seen: Seen) -> Place:
        count: Dict[Any, int] = {}
        signs: Dict[int, Any] = {}
        for _, body in seen:
            count[body.kind] = count.get(body.kind, 0) + 1
            signs[body.kind] = body.sign
        place = Place(name, Merged([(k, signs[k]) for k in sorted(count, key=lambda k: -count[k])], name.startswith("="),
                                   equal_features(seen)))
        kinds = np.array([b.kind for _, b in seen])
        rows = [row_of(r, b) for r, b in seen]
        features = set().union(*rows) if len(count) > 1 else set()
        chooser = self.chooser(rows, features) if len(count) > 1 else None
        known: Dict[bytes, When] = {}
        masks: Dict[Statement, np.ndarray] = {}
        for s in place.merged.statements:
            index = place.index(s)
            ran = masks[s] = np.isin(kinds, list(index))
            key = ran.tobytes()
            if key not in known:
                known[key] = When("True") if ran.all() else self.when(name, seen, chooser, ran, rarest(s, masks))
            place.when[s] = known[key]
            mine = [(r, b) for (r, b), here in zip(seen, ran) if here]
            place.holes[s] = [self.hole(name, mine, place.values(s, k, mine, index), kind)
                              for k, kind in enumerate(_kinds(s.item))]
        return place

    def compared(self) -> Set[str]:
        """Keys that are sizes, which code may compare; not those of layers, nor what changes nothing."""
        return set(self.study.sizes) - set(self.study.base)

    def sizes(self) -> List[str]:
        """What code derives from keys, the most frequent first, and then what that of other classes does."""
        return derived([*self.frequent(), *self.usual])

    def chooser(self, rows: List[Dict[str, Any]], features: Set[str]) -> Chooser:
        limits = {k for k in self.base.row if k.rpartition(".")[2] == LIMIT}  # of positions, which alone may change nothing
        return Chooser(rows, features, self.compared() | limits, self.sizes(), usual.tests(features))

    def frequent(self) -> List[str]:
        """Expressions that were found, the most frequent first."""
        return sorted(self.known, key=lambda e: -self.known[e])

    def when(self, name: str, seen: Seen, chooser: Any, ran: np.ndarray, after: Any = None) -> When:
        """after: a statement that must have run, and whether it did."""
        needed, made = after or (None, np.ones(len(seen), dtype=bool))
        return When(self.test(name, seen, chooser, ran, np.flatnonzero(made)), needed)

    def test(self, name: str, seen: Seen, chooser: Any, ran: np.ndarray, every: np.ndarray) -> str:
        """What tells apart the observations of these numbers."""
        if ran[every].all():
            return "True"
        obs = [(*seen[i], bool(ran[i])) for i in every]
        cand = candidates(obs, self.base) | {k for r, b in seen for k in row_of(r, b) if k[0] == "?"}
        trees = []
        for some in (cand, cand | self.asked | {f for f in self.base.row if f[0] == "$"} | {"B", "S", "i0", "i1", "j0"}, None):
            tree = chooser.choose(every, ran[every].astype(int), some)
            if tree is not None:
                trees.append((chooser.cost(tree) + 2 * len(trees), tree))
            if trees and trees[0][0] < SIMPLE:
                break
        tree = min(trees, key=lambda x: x[0])[1] if trees else None
        if trees:
            self.asked |= cand
        if tree is None:
            self.problem(name, f"{int(ran[every].sum())} of {len(every)} observations cannot be told apart by {sorted(cand)}")
            return "False"
        return condition(tree)

    def hole(self, name: str, seen: Seen, values: List[Any], kind: str) -> str:
        if kind in ("dtype", "source"):
            return self.dtype(name, seen, values)
        if kind in ("float", "rate"):
            return self.real(name, kind, seen, values)
        if kind in ("list", "count"):
            text = self.named_list(name, seen, values)
            return text if kind == "list" else f"len(({text}))" if " " in text else f"len({text})"
        if len(set(values)) == 1:
            return self.constant(seen, values[0]) if kind == "int" else str(values[0])
        rows = [row_of(r, b) for r, b in seen]
        if kind == "bool":
            return self.test(name, seen, self.chooser(rows, set().union(*rows)), np.array(values), np.arange(len(seen)))
        cand = candidates([(r, b, v) for (r, b), v in zip(seen, values)], self.base)
        if kind == "number":  # of elements, not of them: any will do
            return self.found(rows, values) or fit(rows, values, cand) or str(values[0])
        text = self.size(name, rows, values, cand)
        if text is None:
            self.problem(name, f"{sorted(set(values))[:8]} from {sorted(cand)[:12]}")
            return "?"
        self.known[text] = self.known.get(text, 0) + 1
        return text

    def named_list(self, name: str, seen: Seen, values: List[Any]) -> str:
        """One of the lists that have a name, or one of two, and a test which."""
        names = [k for k in self.study.named if isinstance(self.base.row[k], list)]
        have = {k: np.array([r.row[k] == list(v) for (r, _), v in zip(seen, values)]) for k in names}
        for a in names:
            if have[a].all():
                return a
        for a in names:
            for b in names:
                clear = np.flatnonzero(have[a] != have[b])
                if a != b and (have[a] | have[b]).all():
                    rows = [row_of(r, body) for r, body in seen]
                    test = self.test(name, seen, self.chooser(rows, set().union(*rows)), have[a], clear)
                    return f"{a} if {test} else {b}"
        self.problem(name, f"a list of {sorted(set(values))[:2]}")
        return "?"

    def found(self, rows: List[Dict[str, Any]], values: List[int], more: Sequence[str] = ()) -> Optional[str]:
        """Of the expressions that were found elsewhere, and these, the first that is right."""
        return next((text for text in [*self.frequent(), *more] if matches(text, rows, values)), None)

    def usually(self, rows: List[Dict[str, Any]], values: List[int], cand: Set[str]) -> Optional[str]:
        """What other classes have there, if it had so many values that this is no coincidence."""
        some = [text for text in self.usual if names_of(text) <= cand] if len(set(values)) >= TOLD else []
        return next((text for text in some if matches(text, rows, values)), None)

    def size(self, name: str, rows: List[Dict[str, Any]], values: List[int], cand: Set[str]) -> Optional[str]:
        """An expression; cand: features that are in it most likely."""
        sizes = cand | set(self.study.sizes) | ({"B", "S"} if name[:1] != "=" else set())
        every = set(self.base.row) | {f for f in rows[0] if f[0] in "ij" and f[1:].isdigit()}
        left_open = {c for c in cand if {type(row.get(c)) for row in rows} == {int, type(None)}}
        ways: List[Callable[[], Optional[str]]] = [
            lambda: self.found(rows, values),
            lambda: self.usually(rows, values, cand),
            lambda: fit(rows, values, cand) if cand else None,
            lambda: cases(rows, values, left_open, cand) if left_open else None,
            lambda: cases(rows, values, left_open, sizes) if left_open else None,
            lambda: fit(rows, values, cand, self.sizes()),
            lambda: fit(rows, values, cand, self.study.literals),
            lambda: fit(rows, values, sizes),
            lambda: fit(rows, values, every),
            lambda: cases(rows, values, cand, sizes),
            lambda: cases(rows, values, CALLED | {f for row in rows for f in row if f[0] == "?"}, sizes)]
        return next((text for text in (way() for way in ways) if text is not None), None)

    def constant(self, seen: Seen, value: int) -> str:
        """A size that was the same in all runs: one of code, if no expression of keys that is found elsewhere was as large."""
        if abs(value) > NATURAL:
            rows = [row_of(r, b) for r, b in seen]
            return self.found(rows, [value] * len(rows), sorted(self.compared())) or str(value)
        elif value > 1:  # of code; but what runs only with a size that was moved may be that size
            for key in sorted(self.compared()):
                if self.base.row.get(key) != value and all(row_of(r, b).get(key) == value for r, b in seen):
                    return key
        return str(value)

    def dtype(self, name: str, seen: Seen, values: List[Any]) -> str:
        words = {(r.how["$dtype"], str(v).replace("torch.", "")) for (r, _), v in zip(seen, values)}
        if len({v for _, v in words}) == 1 and (len({d for d, _ in words}) > 1 or next(iter(words))[0] != next(iter(words))[1]):
            return next(iter(words))[1]
        if all(v == d for d, v in words):
            return "$dtype"
        self.problem(name, f"dtype {sorted(words)}")
        return "?"

    def real(self, name: str, kind: str, seen: Seen, values: List[float]) -> str:
        """Whether a rate of dropout is 0 changes memory; nothing else about a fraction does."""
        if len(set(map(repr, values))) == 1:
            return repr(values[0])
        for key, x in self.base.row.items():
            if isinstance(x, float) and all(r.row.get(key) == v for (r, _), v in zip(seen, values)):
                return key
            if isinstance(x, float) and all((r.row.get(key) or 0.0) * r.how["$train"] == v
                                            for (r, _), v in zip(seen, values)):
                return f"{key} * $train"
        if kind == "rate":
            self.problem(name, f"rate {sorted(set(values))[:5]}")
        return "any"

    # ---- trying ----------------------------------------------------------------------------------------

    def wrong(self, run: Run) -> List[str]:
        """The places that are not as learnt."""
        out = []
        for body in run.all():
            place = self.places.get(body.place)
            why = place.right(row_of(run, body), run, body, self.ids.get(body.sign)) if place else "new"
            if why:
                out.append(body.place)
                if DETAIL:
                    print("     ", body.place, body.env, why)
        return list(dict.fromkeys(out))

    def group(self) -> None:
        """Statements that run on a test, those of a place that run together as one, with their runs."""
        self.groups = {}
        for name, place in self.places.items():
            for s, when in place.when.items():
                kinds = frozenset(place.index(s))
                if not when.always and (name, kinds) not in self.groups:
                    self.groups[name, kinds] = [run for run, body in self.seen[name] if body.kind in kinds]

    def rare(self, rng: random.Random) -> Run:
        """A run of statements that few runs had, the fewer the more often: what is in these was seen with few sizes."""
        some = list(self.groups.values()) or [self.study.runs]
        return rng.choice(rng.choices(some, [1 / len(runs) for runs in some])[0])

    def proved(self, program: str, text: str, seed: int) -> Tuple[List[Dict[str, Any]], List[Tuple[str, Run]]]:
        """What C makes of a text, if its program is there."""
        from prove import prove
        if not program or self.problems:
            return [], []
        with tempfile.NamedTemporaryFile("w", suffix=".fam") as f:
            f.write(text)
            f.flush()
            return prove(program, f.name, self.study, 16, seed)

    def settle(self, seconds: float, also: Sequence[Run] = ()) -> None:
        """Learns from what is wrong, until nothing is.  Halfway a key that most of what is wrong has in common is given up."""
        start = time.process_time()
        end = start + seconds
        rng = random.Random(f"{self.study.kind} {len(also)}")
        self.study.runs += also
        self.problems = {p: name for p, name in self.problems.items() if name}
        for run in also or self.study.runs:
            self.add(run)
        self.learn(list(self.seen) if not also else list(dict.fromkeys(p for run in also for p in self.wrong(run))))
        tries: List[Tuple[Run, bool]] = []
        given_up = 0
        while time.process_time() < end:
            changed = self.round(rng, tries, end) or self.cover(rng, tries, end)
            many = self.many()
            if not changed and len(tries) >= many and not any(wrong for _, wrong in tries[-many:]):
                self.checked = many
                return
            late = time.process_time() - start > seconds / 2 and given_up < MOST_GIVEN_UP
            key = self.to_blame(tries[-4 * ROUND:]) if late else None
            if key is not None:
                if DETAIL:
                    print("   given up:", key)
                self.give_up(key)
                given_up += 1
                tries.clear()
                start, end = time.process_time(), time.process_time() + seconds / 2
            else:
                self.learn(changed)
        self.problem("", "no round was right in the time allowed")

    def many(self) -> int:
        """Of configurations of a round."""
        return ROUND if len(self.study.sizes) + len(self.study.switches) > 2 else SMALL_ROUND

    def round(self, rng: random.Random, tries: List[Tuple[Run, bool]], end: float) -> List[str]:
        """Tries configurations; the places that were wrong in some."""
        changed: Dict[str, None] = {}
        tried = missed = 0
        for _ in range(self.many() * 3):
            if tried == self.many() or missed == ENOUGH or time.process_time() > end:
                break
            run = self.study.near(rng, self.rare(rng)) if tried % 2 else self.study.random(rng)
            if run is None:
                continue
            tried += 1
            wrong = self.tried(run, tries)
            missed += bool(wrong)
            changed.update(dict.fromkeys(wrong))
        return list(changed)

    def cover(self, rng: random.Random, tries: List[Tuple[Run, bool]], end: float) -> List[str]:
        """Tries what few runs had, with other sizes; the places that were wrong in some."""
        changed: Dict[str, None] = {}
        for key, run in self.alike().items():
            again = self.study.other(rng, run, key) if time.process_time() < end else None
            if again is not None:
                changed.update(dict.fromkeys(self.tried(again, tries)))
        for runs in sorted(self.groups.values(), key=len)[:COVERED]:
            for _ in range(2 if len(runs) < 4 * COVERED else 0):
                run = self.study.near(rng, rng.choice(runs)) if time.process_time() < end else None
                if run is not None:
                    changed.update(dict.fromkeys(self.tried(run, tries)))
        return list(changed)

    def alike(self) -> Dict[str, Run]:
        """Sizes that had one value in all runs of some statement, as it was seen only with them, and such a run."""
        out: Dict[str, Run] = {}
        sizes = [k for k in self.study.alone() if k not in self.study.base and isinstance(self.base.row.get(k), int)]
        for runs in self.groups.values():
            for key in sizes:
                if key not in out and runs[0].row.get(key) != self.base.row[key] and len({run.row.get(key) for run in runs}) == 1:
                    out[key] = runs[0]
        return out

    def tried(self, run: Run, tries: List[Tuple[Run, bool]]) -> List[str]:
        """The places that were wrong in a run, which is then learnt, too."""
        wrong = self.wrong(run)
        tries.append((run, bool(wrong)))
        if wrong:
            if DETAIL:
                print("   wrong:", wrong[:4], len(wrong), run.moved, {k: v for k, v in run.how.items() if v != self.base.how.get(k)})
            self.study.runs.append(run)
            self.add(run)
        return wrong

    def to_blame(self, tries: Sequence[Tuple[Run, bool]]) -> Optional[str]:
        """A key without which little would be wrong."""
        best: Tuple[float, Optional[str]] = (BLAME, None)
        for key in {k for run, _ in tries for k in run.moved}:
            having = [wrong for run, wrong in tries if key in run.moved]
            others = [wrong for run, wrong in tries if key not in run.moved]
            if len(having) >= 6 and len(others) >= 6:
                much, little = sum(having) / len(having), sum(others) / len(others)
                if much > 0.5 and little < much / 2:
                    best = max(best, (much - little, key), key=lambda x: x[0])
        return best[1]

    def give_up(self, key: str) -> None:
        """Only its default will be known; what was learnt with other values is forgotten."""
        self.study.forget(key)
        for table in (self.seen, self.places, self.problems, self.ids):
            table.clear()
        for run in self.study.runs:
            run.rows.clear()
            self.add(run)
        self.learn(list(self.seen))

    # ---- defaults --------------------------------------------------------------------------------------

    def learn_defaults(self) -> None:
        """What a key is if the file does not say."""
        plain = self.study.plain
        samples = list(self.study.samples(160))
        for key in plain:
            if key in NEEDED.get(self.study.kind, {}):
                continue
            obs = [(flat, flat.get(key)) for moved, flat in samples if key not in moved and key in flat]
            if callable(self.study.start.get(key)) or "." in key and self.is_told_by_part(key):
                self.defaults[key] = "?"
                continue
            self.defaults[key] = self.default(key, plain[key], [f for f, _ in obs], [v for _, v in obs])

    def is_told_by_part(self, key: str) -> bool:
        """Whether it is one thing where its part is in the file, and another where it is not."""
        study, part = self.study, key.rpartition(".")[0]
        other = next((k for k in study.plain if k != key and k.rpartition(".")[0] == part), "")
        if not other or part not in study.parts:
            return False
        moved = {other: study.plain[other]}
        return bool(study.flat(moved, study.config(moved, base={})).get(key) != study.plain[key])

    def default(self, key: str, plain: Any, rows: List[Dict[str, Any]], values: List[Any]) -> str:
        if len({repr(v) for v in [plain, *values]}) == 1:
            return repr(plain)
        rows, values = [self.study.plain, *rows], [plain, *values]
        cand = {k for k in self.study.plain if k != key and len({repr(r.get(k)) for r in rows}) > 1}
        near = {k for k in cand if any(one_apart(r, self.study.plain, k) and v != plain for r, v in zip(rows, values))}
        for some in (near, cand):
            text = self.default_from(some, rows, values) if some else None
            if text is not None:
                return text
        if key not in self.study.free:
            self.problem("", f"default of {key}: {values[:4]} from {sorted(near)}")
        return "?"

    def default_from(self, cand: Set[str], rows: Any, values: List[Any]) -> Optional[str]:
        if all(isinstance(v, list) for v in values) and any(values):
            at = [({**r, "i0": i}, x) for r, v in zip(rows, values) for i, x in enumerate(v)]
            each, items = [r for r, _ in at], [x for _, x in at]
            length = fit(rows, [len(v) for v in values], cand)
            if length and all(type(x) is int for x in items):
                found = (fit(each, items, {"i0", k}) for k in sorted(cand) if type(rows[0].get(k)) is int)
                number = next((text for text in found if text), None)
                if number:
                    return f"[{length}] {number}"
            words = sorted({repr(x) for x in items})
            tree = choose(each, [words.index(repr(x)) for x in items], cand | {"i0"})
            return None if length is None or tree is None else f"[{length}] {ternary(tree, words)}"
        if all(isinstance(v, int) and not isinstance(v, bool) for v in values):
            return fit(rows, values, cand)
        if any(isinstance(v, float) for v in values):
            return self.ratio(cand, rows, values)
        words = sorted({repr(v) for v in values})
        if len(words) >= 6:
            parts = [(r, v) for r, v in zip(rows, values) if v is not None]
            if all(isinstance(v, int) for _, v in parts) and len(parts) < len(values):
                number = fit([r for r, _ in parts], [v for _, v in parts], cand)
                tree = choose(rows, [int(v is None) for v in values], cand)
                return ternary(tree, [number, "None"]) if number and tree is not None else None
            return None
        tree = choose(rows, [words.index(repr(v)) for v in values], cand)
        return ternary(tree, words) if tree is not None else None


    def ratio(self, cand: Set[str], rows: Any, values: List[Any]) -> Optional[str]:
        """One size over another, where a file has the first."""
        for key in sorted(cand):
            without = {repr(v) for row, v in zip(rows, values) if row.get(key) is None}
            some = [(row, v) for row, v in zip(rows, values) if row.get(key) is not None]
            for other in sorted(k for k, v in rows[0].items() if type(v) is int) if len(without) == 1 and len(some) > 1 else ():
                if all(type(row[key]) in (int, float) and row[other] and row[key] / row[other] == v for row, v in some):
                    return f"{without.pop()} if {key} == None else {key} / {other}"
        return None


def equal_features(seen: Seen) -> Dict[int, List[Tuple[Set[str], bool]]]:
    """Of each kind of body, by hole: the features that were as large as it whenever it was seen, and whether it had so
    many values that this is no coincidence."""
    out: Dict[int, List[Set[str]]] = {}
    values: Dict[int, List[Set[Any]]] = {}
    for run, body in seen:
        by: Dict[int, Set[str]] = {}
        for name, x in row_of(run, body).items():
            if isinstance(x, int) and not isinstance(x, bool) and name[0] != "$":
                by.setdefault(x, set()).add(name)
        now = [by.get(v, set()) if what == "int" and v not in (0, 1) else set() for what, v in body.holes]
        out[body.kind] = [a & b for a, b in zip(out[body.kind], now)] if body.kind in out else now
        for some, (_, v) in zip(values.setdefault(body.kind, [set() for _ in body.holes]), body.holes):
            some.add(v)
    return {kind: [(a, len(v) >= TOLD) for a, v in zip(out[kind], values[kind])] for kind in out}


def rarest(s: Statement, masks: Dict[Statement, np.ndarray]) -> Optional[Tuple[Statement, np.ndarray]]:
    """Of the statements without which it would have nothing to take the one that ran least, and when that did."""
    if s.item.optional:
        return None
    needed = [options[0][0] for options in s.refs.values() if len(options) == 1]
    some = [o for o in needed if o in masks and not masks[o].all()]
    return min(((o, masks[o]) for o in some), key=lambda x: int(x[1].sum()), default=None)


def _kinds(item: Item) -> List[str]:
    return [p.kind for _, p in item.pieces() if isinstance(p, Hole)]


def cases(rows: Any, values: List[int], cand: Set[str], sizes: Set[str]) -> Optional[str]:
    """Two expressions and a test."""
    for test, mask in _splits(rows, cand):
        if not any(mask) or all(mask):
            continue
        parts = []
        for side in (True, False):
            some = [(r, v) for r, v, m in zip(rows, values, mask) if m == side]
            part = [r for r, _ in some], [v for _, v in some]
            text = fit(*part, cand) or fit(*part, sizes)
            if text is None:
                break
            parts.append(text)
        if len(parts) == 2 and sum(map(len, parts)) < 200:
            return f"{parts[0]} if {test} else {parts[1]}"
    return None


def _splits(rows: Any, cand: Set[str]) -> Iterator[Tuple[str, List[bool]]]:
    for at in [k for k in ("i0", "i1", "j0", "j1") if k in cand]:  # the last layer, or those of a list
        for name in sorted(cand - {at}):
            kinds_of = {type(row.get(name)) for row in rows}
            if kinds_of == {int}:
                yield f"{at} == {name} - 1", [row[at] == row[name] - 1 for row in rows]
            elif kinds_of == {list}:
                yield f"{at} in {name}", [row[at] in row[name] for row in rows]
    for name in sorted(cand):
        column = [row.get(name) for row in rows]
        kinds = sorted(set(map(repr, column)))
        if name in CALLED or name[0] == "?":
            yield name, list(map(bool, column))
            continue
        if all(c is None or isinstance(c, (bool, str)) for c in column) and 2 <= len(kinds) <= 4 or \
                any(c is None for c in column):
            for x in kinds if len(kinds) <= 4 else ["None"]:
                mask = [repr(c) == x for c in column]
                yield f"{name} == {x}", mask


def one_apart(row: Dict[str, Any], plain: Dict[str, Any], key: str) -> bool:
    return repr(row.get(key)) != repr(plain.get(key))


def ternary(tree: Any, words: List[str]) -> str:
    if isinstance(tree, int):
        return words[tree]
    test, yes, no = tree
    a, b = ternary(yes, words), ternary(no, words)
    return f"{a if isinstance(yes, int) else f'({a})'} if {test} else {b if isinstance(no, int) else f'({b})'}"


def matches(text: str, rows: Any, values: Any) -> bool:
    return all(is_right(text, row, v) for row, v in zip(rows, values))


def file_of(study: Study) -> str:
    """The name of its text; a type whose class is that of another comes before it."""
    own = getattr(study.cls, "config_class", study.config_class) in (study.config_class, None)
    return getattr(study.cls, "file", study.cls.__name__ if own else f"{study.kind}.{study.cls.__name__}")


def main(out: str, task_name: str, kinds: List[str]) -> None:
    import torch
    import transformers

    from emit import Emit
    from tasks import TASKS, class_of
    task = next(t for t in TASKS if t.name == task_name)
    os.makedirs(out, exist_ok=True)
    program = os.environ.get("FAMILY_NODES", "")
    seconds = float(os.environ.get("FAMILIES_SECONDS", "600"))
    for kind in kinds:
        t = time.process_time()
        if class_of(task, kind) is None:
            print(f"{kind}: no class for {task_name}", flush=True)
            continue
        try:
            study = Study(kind, task)
            study.run(seconds)
            studied = time.process_time() - t
            family = Family(study)
            family.settle(seconds)
            family.learn_defaults()
            library = getattr(study.cls, "version", f"transformers {transformers.__version__}")
            study.version = f"{library}, torch {torch.__version__.split('+')[0]}"
            text = Emit(family).text()
            keep(family)
            for again in range(4):
                proof, wrong = family.proved(program, text, again)
                if not wrong or again == 3:
                    break
                family.settle(seconds=seconds / 3, also=[run for _, run in wrong])
                text = Emit(family).text()
        except Exception as why:
            print(f"{kind}: FAILED {type(why).__name__} {str(why)[:200]}", flush=True)
            if DETAIL:
                traceback.print_exc(limit=-6)
            continue
        problems = list(family.problems)
        print(f"{kind}: {'PROBLEMS' if problems else 'ok'} {len(study.runs)} runs {studied:.0f} s, learnt in "
              f"{time.process_time() - t - studied:.0f} s, {family.checked} checked, {len(family.places)} places, "
              f"{sum(len(p.when) for p in family.places.values())} statements, text {len(text)}, gz {len(gzip.compress(text.encode()))}",
              flush=True)
        if DETAIL:
            print("  base", study.base, "lists", study.lists, "free", *sorted(study.free), "refused", study.refused)
        for p in problems[:12]:
            print("  PROBLEM", p[:300], flush=True)
        suffix = ".bad" if problems else ".fam"
        with open(f"{out}/{file_of(study)}{suffix}", "w") as f:
            f.write(text)
        print(f"  in C: {len(proof)} equal, {len(wrong)} not", *([] if proof or wrong else [study.why[:300]]),
              *(w[:300] for w, _ in wrong[:3]), sep="\n    ", flush=True)
        with open(f"{out}/{file_of(study)}.json", "w") as f:
            f.write(json.dumps({"made": study.version, "equal": len(proof), "not": len(wrong), "runs": proof[:2]}) + "\n")
        keep(family)


def keep(family: Family) -> None:
    """Whole, in FAMILIES_KEEP: to look at, or to go on with."""
    if os.environ.get("FAMILIES_KEEP"):
        with open(f"{os.environ['FAMILIES_KEEP']}/{file_of(family.study)}.pkl", "wb") as f:
            pickle.dump(family, f)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # code goes through sets of words, in an order that is another in each process
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
    words = [a for a in sys.argv[1:] if a != "-v"]
    main(words[0], words[1], words[2:])
