"""merge.py -- the bodies that a place had in all runs as one list of statements, each of which ran in some of them.

    merged = Merged(signs, static)  signs: (kind, signature) of the bodies, the most common first
    merged.statements               in an order that suits all bodies
    merged.of[kind]                 those that are in this body, in its order

A statement refers to others by alternatives: of those that ran, the latest is meant.  So code that differs in one
respect, and in another, is not four bodies but three parts, two of which run on conditions of their own.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from fold import DIMS, LISTED, SPREAD


@dataclass(frozen=True)
class Ref:
    """A result of an item, by its name or number; all: of a loop, all that its turns kept."""

    at: int
    k: str
    all: bool = False


@dataclass(frozen=True)
class Hole:
    kind: str
    """int, float, rate, bool or dtype; source: a dtype that is that of the tensor which follows; list: a list with a name,
    count: how many items it has"""


Piece = Any  # str, Ref, Hole
Pieces = Tuple[Piece, ...]


@dataclass
class Item:
    """A statement of one body."""

    head: str
    args: List[Tuple[str, Pieces]]
    tail: str = ""
    optional: bool = False
    """Its arguments are passed if they are there."""
    first: Tuple[Piece, ...] = ()
    """What comes before the arguments: indices in a path, a number of turns."""
    start: int = 0
    """Where its holes begin."""

    def pieces(self) -> Iterator[Tuple[str, Piece]]:
        for p in self.first:
            yield "", p
        for name, pieces in self.args:
            for p in pieces:
                yield name, p

    def key(self) -> Any:
        def mask(p: Piece) -> Any:
            return "#" if isinstance(p, Ref) else p
        args = tuple((n, tuple(map(mask, ps))) for n, ps in self.args if not self.optional or has_hole(ps))
        return (self.head, tuple(map(mask, self.first)), args, self.tail)


def has_hole(pieces: Pieces) -> bool:
    return any(isinstance(p, Hole) for p in pieces)


# ---- signatures into items -------------------------------------------------------------------------------


KINDS = {"?": "bool", "#": "int", "~": "float", "p": "rate", "n": "number", "@": "dtype", "#list": "list"}


class Reader:
    """Items of a signature, with the holes in the order in which they were made."""

    def __init__(self) -> None:
        self.holes = 0

    def hole(self, kind: str) -> Hole:
        self.holes += 1
        return Hole(kind)

    def ref(self, r: Any) -> List[Piece]:
        kind = r[0]
        if kind == "in":
            return [f"%{r[1]}"]
        if kind == "part":
            return [f"%{r[1]}", "[", self.hole("int"), "]"]
        if kind == "cap":
            return [f"%^{r[1]}"]
        if kind == "n":
            return [Ref(r[1], r[2])]
        if kind == "c":
            return [f"%~{r[1]}"]
        if kind == "all":
            return [Ref(*r[1], True)]
        if kind == "at":
            return [Ref(*r[1]), "[", self.hole("int"), "]"]
        return ["." if kind == "leaf" else "/", *self.braced(r[1])]

    def braced(self, path: str) -> List[Piece]:
        out: List[Piece] = []
        parts = path.split("*")
        for i, part in enumerate(parts):
            out += [part] if part else []
            if i + 1 < len(parts):
                out += ["{", self.hole("int"), "}"]
        return out

    def arg(self, x: Any) -> List[Piece]:
        if isinstance(x, tuple) and x and x[0] == "list":
            out: List[Piece] = ["["]
            for i, y in enumerate(x[1:]):
                out += ([", "] if i else []) + self.arg(y)
            return [*out, "]"]
        if isinstance(x, tuple) and x[0] == "@":
            return [self.hole("source"), *self.ref(x[1])]
        if isinstance(x, tuple):
            return self.ref(x)
        if x in KINDS:
            return [self.hole(KINDS[x])]
        return [str(x) if x == "far" or x is None else repr(x)]

    def item(self, sign: Any) -> Item:
        start, kind = self.holes, sign[0]
        if kind == "held":
            out = Item("held", [("", tuple(self.ref(sign[1])))])
        elif kind == "op":
            args = [(k, (v,) if k in DIMS else tuple(self.arg(v))) for k, v in sign[2]]
            if sign[3] == SPREAD:
                out = Item(f"op {sign[1]}", [*args, ("->", (self.hole("int"),))])
            elif sign[3] == LISTED:
                out = Item(f"op {sign[1]}", [*args, ("->", ("*",))])
            else:
                out = Item(f"op {sign[1]}", args, _results(sign[3]))
        elif kind in ("call", "other"):
            _, rel, suffix, ins, caps = sign
            first = tuple(self.braced(rel)) + ((suffix,) if suffix else ())
            args = [(n, tuple(self.ref(r))) for n, r in ins]
            args += [(f"^{k}", tuple(self.ref(r))) for k, r in enumerate(caps)]
            out = Item("call" if kind == "call" else "call/", args, "", True, first)
        else:
            _, place, init, results, given = sign
            first = (self.hole("count" if place.startswith("loop_list") else "int"),)
            args = [(f"~{k}", tuple(self.ref(r))) for k, r in enumerate(init) if r is not None]
            args += [(label, tuple(self.ref(r))) for label, r in given]
            out = Item(place, args, _results(results), True, first)
        out.start = start
        return out


def _results(n: int) -> str:
    return f" -> {n}" if n != 1 else ""


def read_body(sign: Any) -> Tuple[List[Item], Set[str]]:
    """The statements of a module's or a turn's body, and the names of what it is called with."""
    reader = Reader()
    loop = sign[0] == "loop"
    items = [] if loop else [Item(f"type {sign[0]}", [])]
    items += [reader.item(s) for s in (sign[1] if loop else sign[3])]
    for word, refs in [("next", sign[2]), ("keep", sign[3])] if loop else []:
        if refs:
            start = reader.holes
            items.append(Item(word, [("", tuple(reader.ref(r))) for r in refs], start=start))
    if not loop and sign[4]:
        start = reader.holes
        items.append(Item("return", [(label, tuple(reader.ref(r))) for label, r in sign[4]], "", True, start=start))
    return items, set() if loop else set(sign[1])


def read_static(sign: Any) -> List[Item]:
    """The statements of a module's contents."""
    type_, signs = sign
    reader = Reader()
    items = [Item(f"type {type_}", [])]
    for s in signs:
        start = reader.holes
        if s[0] == "tie":
            items.append(Item(f"tie {s[1]} {s[2]}", []))
        elif s[0] == "list":
            items.append(Item("list", [], first=(reader.hole("int"),)))
        elif s[0] == "child":
            items.append(Item(f"child {s[1]}", []))
        else:
            word, name, persistent, rank = s
            dims: List[Piece] = []
            for i in range(rank):
                dims += ([", "] if i else []) + [reader.hole("int")]
            items.append(Item(f"{word if persistent else 'temporary'} {name}", [],
                              first=("[", *dims, "] ", reader.hole("dtype"))))
        items[-1].start = start
    return items


# ---- merging -----------------------------------------------------------------------------------------------


Option = Tuple["Statement", str, bool]
Feature = Tuple[Set[str], bool]
LEVELS = 4


@dataclass(eq=False)
class Statement:
    """An item that some bodies have."""

    item: Item
    refs: Dict[Tuple[str, int], List[Option]] = field(default_factory=dict)
    """By the argument and the number of the reference in it: what it may refer to."""
    plain: Dict[str, Pieces] = field(default_factory=dict)
    """Of optional arguments: what they are if no reference is there."""
    levels: List[Set[Any]] = field(default_factory=lambda: [set() for _ in range(LEVELS)])
    """What it was like in the bodies that have it; see _levels."""
    sizes: List[Feature] = field(default_factory=list)
    """By hole: what was as large as it in all bodies, and whether that tells much."""
    of: Any = None
    """The variable that ends: the statement that made it, or what is its name."""
    after: Set[Any] = field(default_factory=set)
    """The statements after which it ends."""
    takes: Set[Tuple["Statement", ...]] = field(default_factory=set)
    """The statements that it refers to in some body."""
    order: int = 0


class Merged:
    def __init__(self, signs: Sequence[Tuple[int, Any]], static: bool, features: Dict[int, List[Feature]]) -> None:
        """features: of each kind, by hole: what was as large as it whenever it was seen, and whether that tells much."""
        self.statements: List[Statement] = []
        self.of: Dict[Any, List[Statement]] = {}
        self.next: Dict[Statement, Set[Statement]] = {}
        """What follows a statement in some body."""
        self.static = static
        self.bodies: Dict[Any, List[Item]] = {}
        self.ins: Dict[Any, Set[str]] = {}
        self.shift = 0 if static or signs[0][1][0] == "loop" else 1
        """Of the number of an item, for the type that comes first."""
        for kind, sign in signs:
            self.bodies[kind], self.ins[kind] = self.read(sign)
            self.place(kind, self.bodies[kind], features[kind])
        for _ in range(12):
            for i, s in enumerate(self.statements):
                s.order = i
            self.link()
            if not self.separate():
                break
        used = {s for mine in self.of.values() for s in mine}
        self.statements = [s for s in self.statements if s in used]
        for i, s in enumerate(self.statements):
            s.order = i
        self.sets = {kind: set(mine) for kind, mine in self.of.items()}

    def read(self, sign: Any) -> Tuple[List[Item], Set[str]]:
        return (read_static(sign), set()) if self.static else read_body(sign)

    # ---- aligning --------------------------------------------------------------------------------------

    def place(self, kind: int, items: List[Item], features: List[Feature]) -> None:
        """Finds the statements of a body, and adds what is new."""
        sizes = [features[item.start:item.start + holes_of(item)] for item in items]
        mine = _levels(items, self.shift)
        some = [i for i, s in enumerate(self.statements) if s.item.head != "held"]
        others = [j for j, item in enumerate(items) if item.head != "held"]
        pairs = _align([self.statements[i] for i in some], [(mine[j], sizes[j]) for j in others])
        found = {others[j]: self.statements[some[i]] for i, j in pairs}
        self.find_elsewhere(items, found)
        self.find_held(items, found)
        out: List[Statement] = []
        at = 0
        result: List[Statement] = []
        for j, item in enumerate(items):
            if j in found:
                end = self.statements.index(found[j], at)
                out += self.statements[at:end + 1]
                at = end + 1
                result.append(found[j])
            else:
                new = Statement(item)
                if item.head == "held":
                    new.of = _ended(item, result, self.shift)
                # before the next one that is shared: after what others have there
                following = next((found[k] for k in range(j + 1, len(items)) if k in found), None)
                end = self.statements.index(following, at) if following is not None else len(self.statements)
                out += self.statements[at:end]
                at = end
                out.append(new)
                result.append(new)
        out += self.statements[at:]
        self.statements = out
        self.of[kind] = result
        for a, b in zip(result, result[1:]):
            self.next.setdefault(a, set()).add(b)
        last: Optional[Statement] = None
        for item, s in zip(items, result):
            s.takes.add(tuple(result[p] for p in _parents(item, self.shift)))
            if item.head == "held":
                s.after.add(last)
            else:
                last = s
        for levels, size, s in zip(mine, sizes, result):
            s.sizes = [_both(a, b) for a, b in zip(s.sizes, size)] if s.sizes else list(size)
            for known, level in zip(s.levels, levels):
                known.add(level)

    def find_elsewhere(self, items: List[Item], found: Dict[int, Statement]) -> None:
        """What takes the same statements is the same, though it stands elsewhere, where no body has it there: then it moves."""
        for j, item in enumerate(items):
            takes = tuple(found.get(p) for p in _parents(item, self.shift))
            if j in found or item.head == "held" or not takes or None in takes:
                continue
            taken = set(found.values())
            for s in [s for s in self.statements if s not in taken and takes in s.takes and s.item.key() == item.key()]:
                order = self.sorted({**found, j: s})
                if order:
                    found[j], self.statements = s, order
                    break

    def sorted(self, found: Dict[int, Statement]) -> List[Statement]:
        """The statements in an order that this body has, too; as it was, where that is possible.  Empty: there is none."""
        chain = [found[j] for j in sorted(found)]
        after = {s: set(self.next.get(s, ())) for s in self.statements}
        for a, b in zip(chain, chain[1:]):
            after[a].add(b)
        left = {s: 0 for s in self.statements}
        for some in after.values():
            for s in some:
                left[s] += 1
        at = {s: i for i, s in enumerate(self.statements)}
        ready = [i for i, s in enumerate(self.statements) if not left[s]]
        out: List[Statement] = []
        while ready:
            s = self.statements[heapq.heappop(ready)]
            out.append(s)
            for other in after[s]:
                left[other] -= 1
                if not left[other]:
                    heapq.heappush(ready, at[other])
        return out if len(out) == len(self.statements) else []

    def find_held(self, items: List[Item], found: Dict[int, Statement]) -> None:
        """The end of a variable is the same if it is that of the same one, after the same statement."""
        ends = [s for s in self.statements if s.item.head == "held"]
        at = {s: i for i, s in enumerate(self.statements)}
        last: Optional[Statement] = None
        low = -1
        for j, item in enumerate(items):
            if item.head != "held":
                last = found.get(j)
                low = max(low, at[last]) if last is not None else low
                continue
            of = _ended(item, [found.get(k) for k in range(j)], self.shift)
            high = next((at[found[k]] for k in range(j + 1, len(items)) if k in found), len(at))
            s = next((s for s in ends if of is not None and s.of == of and last in s.after and low < at[s] < high), None)
            if s is not None:
                found[j] = s
                low = at[s]

    # ---- references ------------------------------------------------------------------------------------

    def link(self) -> None:
        for s in self.statements:
            s.refs, s.plain = {}, {}
        for kind, items in self.bodies.items():
            mine = self.of[kind]
            for item, s in zip(items, mine):
                for where, ref in _numbered(item):
                    option = (mine[ref.at + self.shift], ref.k, ref.all)
                    if option not in s.refs.setdefault(where, []):
                        s.refs[where].append(option)
                if item.optional:
                    for name, pieces in item.args:
                        if not any(isinstance(p, Ref) for p in pieces):
                            s.plain.setdefault(name, pieces)
        for s in self.statements:
            for options in s.refs.values():
                options.sort(key=lambda o: (-o[0].order, o[1]))

    def separate(self) -> bool:
        """Bodies in which references would not be found get a statement of their own; those alike share it."""
        made: Dict[Any, Statement] = {}
        for kind, items in self.bodies.items():
            mine = self.of[kind]
            changed: Set[int] = set()
            for i, (item, s) in enumerate(zip(items, mine)):
                real = actual(item, mine, self.shift)
                if any(p.at + self.shift in changed for _, p in item.pieces() if isinstance(p, Ref)) or \
                        self.resolved(s, set(mine[:i]), self.ins[kind]) == real:
                    continue
                like = (id(s), tuple((w, id(o), k, a) for w, (o, k, a) in sorted(real[0].items(), key=lambda x: x[0])),
                        tuple(sorted(real[1].items(), key=lambda x: x[0])))
                if like not in made:
                    made[like] = Statement(item, of=s.of)
                    self.statements.insert(self.statements.index(s) + 1, made[like])
                mine[i] = made[like]
                changed.add(i)
        return bool(made)

    def resolved(self, s: Statement, ran: Set[Statement], ins: Set[str]) -> Any:
        """What it refers to after these."""
        out = {}
        for where, options in s.refs.items():
            found = next((o for o in options if o[0] in ran), None)
            if found is not None:
                out[where] = found
            elif not s.item.optional:
                out[where] = None
        plain = {name: pieces for name, pieces in s.plain.items()
                 if (name, 0) not in out and _there(pieces, ins)} if s.item.optional else {}
        return out, plain


def actual(item: Item, mine: List[Statement], shift: int) -> Any:
    """What it does refer to; mine: the statements of its body."""
    out = {where: (mine[ref.at + shift], ref.k, ref.all) for where, ref in _numbered(item)}
    plain = {name: pieces for name, pieces in item.args if not any(isinstance(p, Ref) for p in pieces)} \
        if item.optional else {}
    return out, plain


def _there(pieces: Pieces, ins: Set[str]) -> bool:
    """Whether an argument of the module's own, passed on, was passed to it.  A loop's turn is given what is there."""
    text = pieces[0] if pieces else ""
    own = isinstance(text, str) and text.startswith("%") and text[1:2] not in "^~"
    return not own or not ins or text[1:] in ins


def _numbered(item: Item) -> Iterator[Tuple[Tuple[str, int], Ref]]:
    count: Dict[str, int] = {}
    for name, p in item.pieces():
        if isinstance(p, Ref):
            # arguments without a name are in order
            yield (name, count.get(name, 0)), p
            count[name] = count.get(name, 0) + 1


def _parents(item: Item, shift: int) -> List[int]:
    """The numbers of the items that it refers to."""
    return [p.at + shift for _, p in item.pieces() if isinstance(p, Ref)]


def _ended(item: Item, before: Sequence[Optional[Statement]], shift: int) -> Any:
    what = next((p for _, p in item.pieces() if isinstance(p, Ref)), None)
    return before[what.at + shift] if what else tuple(item.args)


def _levels(items: List[Item], shift: int) -> List[List[Any]]:
    """What must be equal for two statements to be one: at the last level what they take comes from the same, too; at the
    first it suffices that an op is used by the same."""
    keys = [i.key() for i in items]
    parents = [_parents(i, shift) for i in items]
    users: List[Set[Any]] = [set() for _ in items]
    for item, key, mine in zip(items, keys, parents):
        for p in mine if item.head != "held" else ():
            users[p].add(hash(key))
    out = [[hash((k, tuple(sorted(u)) if i.head.startswith("op ") else ()))] for i, k, u in zip(items, keys, users)]
    level = [hash(k) for k in keys]
    for _ in range(LEVELS - 1):
        level = [hash((k, tuple(level[p] for p in mine))) for k, mine in zip(keys, parents)]
        for row, h in zip(out, level):
            row.append(h)
    return out


def holes_of(item: Item) -> int:
    return sum(isinstance(p, Hole) for _, p in item.pieces())


New = Tuple[List[Any], List[Feature]]  # levels and sizes of an item


def _both(a: Feature, b: Feature) -> Feature:
    """What is left of two, the one that tells much before the other."""
    if not a[0] or not b[0] or a[1] != b[1]:
        return max(a, b, key=lambda f: (bool(f[0]), f[1]))
    return (a[0] & b[0] or a[0], a[1])


def _same(s: Statement, item: New, depth: int) -> bool:
    """Sizes of few runs count where nothing but the item itself is compared."""
    levels, sizes = item
    return levels[depth] in s.levels[depth] and \
        all(not a or not b or a & b or depth > 0 and not (x and y) for (a, x), (b, y) in zip(s.sizes, sizes))


def _align(a: List[Statement], b: List[New], low: Tuple[int, int] = (0, 0), depth: int = LEVELS - 1) -> List[Tuple[int, int]]:
    """Pairs of equal statements: first those whose producers are equal, too, then between them others."""
    if not a or not b:
        return []
    pairs = _common(a, b, depth)
    if depth == 0:
        return [(i + low[0], j + low[1]) for i, j in pairs]
    out: List[Tuple[int, int]] = []
    at = (0, 0)
    for i, j in [*pairs, (len(a), len(b))]:
        out += _align(a[at[0]:i], b[at[1]:j], (low[0] + at[0], low[1] + at[1]), depth - 1)
        if i < len(a):
            out.append((i + low[0], j + low[1]))
        at = (i + 1, j + 1)
    return out


def _common(a: Sequence[Statement], b: Sequence[New], depth: int) -> List[Tuple[int, int]]:
    """A longest common subsequence."""
    head = 0
    while head < min(len(a), len(b)) and _same(a[head], b[head], depth):
        head += 1
    tail = 0
    while tail < min(len(a), len(b)) - head and _same(a[-1 - tail], b[-1 - tail], depth):
        tail += 1
    x, y = a[head:len(a) - tail], b[head:len(b) - tail]
    n, m = len(x), len(y)
    same = [[_same(s, item, depth) for item in y] for s in x]
    best = [[0] * (m + 1) for _ in range(n + 1)]
    for i in range(n - 1, -1, -1):
        for j in range(m - 1, -1, -1):
            best[i][j] = best[i + 1][j + 1] + 1 if same[i][j] else max(best[i + 1][j], best[i][j + 1])
    out = [(i, i) for i in range(head)]
    i = j = 0
    while i < n and j < m:
        if same[i][j]:
            out.append((i + head, j + head))
            i, j = i + 1, j + 1
        elif best[i + 1][j] >= best[i][j + 1]:
            i += 1
        else:
            j += 1
    return out + [(len(a) - k, len(b) - k) for k in range(tail, 0, -1)]
