"""expr.py -- sizes as expressions over the keys of a configuration, and choices as tests of them.

    fit(rows, values)      an expression that has these values, the shortest that is found; None: none is
    choose(rows, classes)  a tree of tests that tells the classes apart

rows: a list of {feature: value}, one for each time that the size was seen.  A text with {i} in it is evaluated by C; its
grammar is that of Python's integers: + - * // % min max, and list[i].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import ast
import contextlib
import re
import time

import numpy as np

Rows = Sequence[Dict[str, Any]]
SMALL = (1, 2, 3, 4, 8)
LIMITS = (1, 64, 128, 192, 256, 512, 1024, 4096)  # that code compares sizes with
CHUNKS = (64, 128, 256)  # tokens that code takes at a time, where no key says how many


@dataclass(frozen=True)
class Expr:
    text: str
    cost: float
    level: int = 0
    """0: a name or number; 1: a product; 2: a sum"""


def _paren(e: Expr, level: int) -> str:
    return e.text if e.level <= level else f"({e.text})"


def _combine(a: Expr, op: str, b: Expr) -> Expr:
    cost = a.cost + b.cost + {"+": 1, "-": 1.2, "*": 1, "//": 1.5, "%": 3, "max": 3, "min": 3, "up": 2.5}[op]
    if op in ("+", "-"):
        return Expr(f"{_paren(a, 2)} {op} {_paren(b, 1 if op == '-' else 2)}", cost, 2)
    if op == "*":
        return Expr(f"{_paren(a, 1)} * {_paren(b, 0 if '//' in b.text or '%' in b.text else 1)}", cost, 1)
    if op in ("//", "%"):
        return Expr(f"{_paren(a, 1)} {op} {_paren(b, 0)}", cost, 1)
    if op == "up":  # rounded up
        return Expr(f"ceil({a.text}, {b.text})", cost, 0)
    return Expr(f"{op}({a.text}, {b.text})", cost, 0)


def _apply(op: str, a: np.ndarray, b: np.ndarray) -> Optional[np.ndarray]:
    if op == "+":
        return a + b
    if op == "-":
        return a - b
    if op == "*":
        return a * b
    if op == "max":
        return np.maximum(a, b)
    if op == "min":
        return np.minimum(a, b)
    if (b <= 0).any():
        return None
    if op == "//":
        return a // b
    if op == "%":
        return a % b
    return -(-a // b)


FEW_ITEMS = 4  # of a list, each of which code may take


def terminals(rows: Rows, candidates: Set[str]) -> Dict[str, np.ndarray]:
    out: Dict[str, np.ndarray] = {}
    for name in sorted(candidates):
        column = [row.get(name) for row in rows]
        if all(isinstance(x, (int, bool)) for x in column) and max(abs(int(x)) for x in column) < 2 ** 40:
            out[name] = np.array([int(x) for x in column], dtype=np.int64)
        elif name[0] != "$" and all(isinstance(x, list) and x for x in column):
            if isinstance(column[0][0], str):  # of layers
                out[f"len({name})"] = np.array([len(x) for x in column], dtype=np.int64)
            short = max(map(len, column)) <= FEW_ITEMS
            for index in ("i0", "i1", "j0", "j1", "-1", *map(str, range(FEW_ITEMS if short else 0))):
                got = []
                for row, x in zip(rows, column):
                    k = row.get(index) if index[0] in "ij" else int(index)
                    if k is None or not -len(x) <= k < len(x) or not isinstance(x[k], int):
                        break
                    got.append(int(x[k]))
                if len(got) == len(column):
                    out[f"{name}[{index}]"] = np.array(got, dtype=np.int64)
            for index in ("i0", "i1", "j0", "j1"):
                if all(row.get(index) in x for row, x in zip(rows, column)):
                    out[f"index({name}, {index})"] = np.array([x.index(row[index]) for row, x in zip(rows, column)], dtype=np.int64)
    return out


FEW_NAMES = 6


def fractions(rows: Rows, candidates: Set[str], names: Dict[str, np.ndarray]) -> Iterator[Tuple[Expr, np.ndarray]]:
    """Products of a size and a fraction, and powers of two."""
    for f in sorted(candidates):
        column = [row.get(f) for row in rows]
        if all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in column) and \
                any(isinstance(x, float) for x in column):
            sizes = list(names.items())
            if len(sizes) <= FEW_NAMES:  # of a head, where no key says it
                sizes += [(f"{a} // {b}", v // w) for a, v in sizes for b, w in sizes if a != b and (w > 0).all()]
            for name, v in sizes:
                yield Expr(f"int({name} * {f})", 2.5 + (" " in name)), np.array([int(int(a) * b) for a, b in zip(v, column)], dtype=np.int64)
    for name, v in names.items():
        if (v > 0).all():
            yield Expr(f"floor2({name})", 3), np.array([1 << (int(a).bit_length() - 1) for a in v], dtype=np.int64)


MULTIPLES = (8, 16, 32, 64, 128, 256)  # that code rounds sizes up to
LONGEST = 3.0  # seconds that a search may take


def fit(rows: Rows, values: Sequence[int], candidates: Set[str], parts: Sequence[str] = ()) -> Optional[str]:
    """An expression is searched with a few rows; those that it gets wrong are added.  parts: expressions that may be in it."""
    first: Dict[int, int] = {}
    for i, v in enumerate(values):
        first.setdefault(v, i)
    some = dict.fromkeys([*list(first.values())[:FEW], *range(0, len(rows), max(1, len(rows) // FEW))])
    for _ in range(5):
        text = search([rows[i] for i in some], [values[i] for i in some], candidates, parts)
        if text is None:
            return None
        wrong = [i for i, row in enumerate(rows) if not is_right(text, row, values[i])]
        if not wrong:
            return text
        some.update(dict.fromkeys(wrong[:: max(1, len(wrong) // FEW)]))
    return None


FEW = 24


def is_right(text: str, row: Dict[str, Any], value: int) -> bool:
    try:
        return bool(value_of(text, row) == value)
    except Exception:
        return False


def search(rows: Rows, values: Sequence[int], candidates: Set[str], parts: Sequence[str] = ()) -> Optional[str]:
    end = time.process_time() + LONGEST
    target = np.array(values, dtype=np.int64)
    if (target == target[0]).all():
        return str(int(target[0]))
    level: Dict[bytes, Tuple[Expr, np.ndarray]] = {}

    def add(pool: Dict[bytes, Any], e: Expr, v: Optional[np.ndarray], above: Sequence[Dict[bytes, Any]] = ()) -> None:
        if v is None or (np.abs(v) > 2 ** 44).any():
            return
        key = v.tobytes()
        if any(key in p for p in above):
            return
        old = pool.get(key)
        if old is None or e.cost < old[0].cost:
            pool[key] = (e, v)

    names = terminals(rows, candidates)
    for name, v in names.items():
        add(level, Expr(name, 1 + 0.01 * len(name) + 2 * ("layers" in name)), v)  # their number is seldom part of a size
    for e, v in fractions(rows, candidates, names):
        add(level, e, v)
    for text in parts:
        if names_of(text) <= candidates:
            with contextlib.suppress(Exception):
                add(level, Expr(text, 2, 2), np.array([value_of(text, row) for row in rows], dtype=np.int64))
    constants: Dict[bytes, Any] = {}
    for c in SMALL:
        add(constants, Expr(str(c), 1.1 + c / 10), np.full(len(target), c, dtype=np.int64))
    want = target.tobytes()
    if want in level:
        return level[want][0].text
    one = {**level, **constants}

    def grow(left: Dict[bytes, Any], right: Dict[bytes, Any], above: Sequence[Dict[bytes, Any]]) -> Dict[bytes, Any]:
        pool: Dict[bytes, Any] = {}
        for e, v in left.values():
            if time.process_time() > end:
                break
            for f, w in right.values():
                for op in ("+", "-", "*", "//", "up", "max", "min", "%"):
                    add(pool, _combine(e, op, f), _apply(op, v, w), above)
                for op in ("-", "//"):
                    add(pool, _combine(f, op, e), _apply(op, w, v), above)
        return pool

    two = grow(level, one, [one])
    if want in two:
        return two[want][0].text
    best: List[Expr] = []
    both = {**one, **two}

    def meet(pool: Dict[bytes, Any], other: Dict[bytes, Any]) -> None:
        for e, v in pool.values():
            if time.process_time() > end:
                break
            for op, rest in (("+", target - v), ("-", v - target)):
                found = other.get(rest.tobytes())
                if found:
                    best.append(_combine(e, op, found[0]))
            for c in (2, 3) if not set("+-/%") & set(e.text) else ():  # two as long as each other, and a third
                found = other.get((target - c * v).tobytes())
                if found:
                    best.append(_combine(_combine(Expr(str(c), 1), "*", e), "+", found[0]))
            if (v != 0).all() and (target % np.where(v == 0, 1, v) == 0).all():
                found = other.get((target // v).tobytes())
                if found:
                    best.append(_combine(e, "*", found[0]))
            for c in MULTIPLES:
                if (-(-v // c) * c == target).all():
                    best.append(Expr(f"ceil({e.text}, {c}) * {c}", e.cost + 3, 1))
                if not set("+-/%") & set(e.text) and (-(-(v * 2 // 3) // c) * c == target).all():  # of three matrices
                    best.append(Expr(f"ceil({e.text} * 2 // 3, {c}) * {c}", e.cost + 4, 1))
            for f, w in one.values():
                for op in ("//", "up", "max", "min", "%"):
                    got = _apply(op, v, w)
                    if got is not None and got.tobytes() == want:
                        best.append(_combine(e, op, f))

    meet(both, both)
    if not best:
        best += patches(target, level, two, constants)
    if not best and len(two) < 700:
        three = grow(two, one, [one, two])
        if want in three:
            best.append(three[want][0])
        else:
            meet(three, {**both, **three})
    return min(best, key=lambda e: (e.cost, e.text)).text if best else None


def patches(target: np.ndarray, level: Dict[bytes, Any], two: Dict[bytes, Any], constants: Dict[bytes, Any]) -> List[Expr]:
    """A product of two quotients, such as patches of an image, and what stands before them: a token for the class, others."""
    quotients = [(e, v) for e, v in two.values() if "//" in e.text or "ceil" in e.text]
    before = [(Expr("0", 0), np.zeros_like(target)), *constants.values(), *level.values()]
    before += [(_combine(e, "+", c), v + w) for e, v in level.values() for c, w in constants.values() if c.text in ("1", "2")]
    out = []
    for extra, w in before:
        rest = target - w
        if (rest <= 0).any():
            continue
        for e, v in quotients:
            if (v > 0).all() and (rest % v == 0).all():
                found = two.get((rest // v).tobytes())
                if found:
                    product = _combine(e, "*", found[0])
                    out.append(_combine(product, "+", extra) if extra.text != "0" else product)
    return out


def value_of(text: str, row: Dict[str, Any]) -> Any:
    """What the expression is in a row; for checks."""
    code = _compiled.get(text)
    if code is None:
        tree = ast.fix_missing_locations(_Compared().visit(ast.parse(_python(text), mode="eval")))
        code = _compiled[text] = compile(tree, text, "eval")
    return eval(code, FUNCTIONS, _Row(row))


FUNCTIONS = {"ceil": lambda a, b: -(-a // b), "max": max, "min": min, "len": lambda a: len(a or ()), "int": int,
             "floor2": lambda a: 1 << (a.bit_length() - 1), "index": lambda a, b: a.index(b),
             "number": lambda a: 0 if a is None else a, "items": lambda a: a or (),
             "windows": lambda h, w, side: [min(side, h - y) * min(side, w - x) for y in range(0, h, side) for x in range(0, w, side)]}
_compiled: Dict[str, Any] = {}


class _Compared(ast.NodeTransformer):
    """None is like 0 where numbers are compared, and like a list without items."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.ops[0], (ast.Gt, ast.Lt)):
            node.left, *node.comparators = [ast.Call(ast.Name("number", ast.Load()), [side], [])
                                            for side in (node.left, *node.comparators)]
        elif isinstance(node.ops[0], ast.In):
            node.comparators = [ast.Call(ast.Name("items", ast.Load()), node.comparators, [])]
        return node


class _Row(dict):  # type: ignore
    """Features by the names that Python takes."""

    def __init__(self, row: Dict[str, Any]) -> None:
        self.row = row

    def __missing__(self, name: str) -> Any:
        if name in FUNCTIONS:
            raise KeyError(name)
        return self.row.get(features_of(name))


def _python(text: str) -> str:
    """a.b, $x and ?y are names of features."""
    return re.sub(r"\?", "_Q_", re.sub(r"\$", "_D_", re.sub(r"(?<=[A-Za-z_0-9])\.(?=[A-Za-z_])", "_P_", text)))


def features_of(python: str) -> str:
    """The text that _python made this of."""
    return python.replace("_P_", ".").replace("_D_", "$").replace("_Q_", "?")


def passes(test: str, row: Dict[str, Any]) -> bool:
    try:
        return bool(value_of(test, row))
    except TypeError:
        return False


# ---- choices -----------------------------------------------------------------------------------------


def tests(rows: Rows, candidates: Set[str], sizes: Optional[Set[str]] = None) -> Iterator[Tuple[float, str, np.ndarray]]:
    """(cost, text, which rows pass); sizes: features that are compared with one another; None: all"""
    index = [k for k in ("i0", "i1", "j0", "j1") if all(k in row for row in rows)]
    ints = {}
    for name in sorted(candidates):
        column = [row.get(name) for row in rows]
        if name[0] == "$" and isinstance(column[0], list):
            continue
        if name[0] == "?":  # whether that was passed
            yield 0.8, name, np.array([bool(x) for x in column])
            continue
        if name == "$dtype":  # code asks for fp16, which overflows; fp32, which no run has, is like bf16 then
            yield 1.0, "$dtype == 'float16'", np.array([x == "float16" for x in column])
            continue
        plain = [x for x in column if x is None or isinstance(x, (bool, str, int, float))]
        if len(plain) == len(column) and all(isinstance(x, bool) or name[0] == "$" and x in (0, 1) for x in column):
            yield 0.9, name, np.array([bool(x) for x in column])
        elif len(plain) == len(column):
            for x in sorted({repr(c) for c in column if not isinstance(c, float)}):
                number = x.lstrip("-").isdigit()
                if len(set(map(repr, column))) > 1 and not (number and abs(int(x)) > (1 if name == "B" else 8)):
                    yield (1.5 if abs(int(x)) < 2 and name != "B" else 3.0) if number else 1.0, f"{name} == {x}", np.array([repr(c) == x for c in column])
            numbers = [0 if c is None else c for c in column]
            if all(isinstance(c, (int, float)) for c in numbers):
                yield 1.2, f"{name} > 0", np.array([c > 0 for c in numbers])
            if all(isinstance(c, (int, float)) for c in numbers) and None in column and "S" in candidates:  # a window, which may be left open
                tokens = [row["S"] for row in rows]
                yield 1.3, f"{name} > S", np.array([c > s for c, s in zip(numbers, tokens)])
                yield 1.4, f"{name} == S", np.array([c == s for c, s in zip(numbers, tokens)])
            if all(isinstance(c, int) and not isinstance(c, bool) for c in column):
                for c in LIMITS:
                    mask = np.array([x > c for x in column])
                    if mask.any() and not mask.all():
                        yield 3.4, f"{name} > {c}", mask
            if all(isinstance(c, int) for c in column):
                ints[name] = np.array([int(c) for c in column])
        if {type(x) for x in column} == {list, type(None)}:
            yield 1.0, f"{name} == None", np.array([x is None for x in column])
            column = [x or [] for x in column]
        if all(isinstance(x, list) for x in column):
            yield 1.5, f"len({name}) > 0", np.array([len(x) > 0 for x in column])
            for word in sorted({y for x in column for y in x if isinstance(y, str)}):
                yield 1.6, f"{word!r} in {name}", np.array([word in x for x in column])
            for k in [*index, "0", "-1"]:
                if not all(-len(x) <= int(row.get(k, k)) < len(x) for x, row in zip(column, rows)):
                    continue
                at = [x[int(row.get(k, k))] for x, row in zip(column, rows)]
                for x in sorted({repr(a) for a in at}):
                    yield (1 if k in index else 1.7), f"{name}[{k}] == {x}", np.array([repr(a) == x for a in at])
            for k in index:
                yield 1.5, f"{k} in {name}", np.array([row[k] in x for x, row in zip(column, rows)])
                for at in range(FEW_ITEMS):
                    if all(len(x) > at and type(x[at]) is int for x in column):
                        yield 1.6, f"{k} == {name}[{at}]", np.array([row[k] == x[at] for x, row in zip(column, rows)])
    turns = {k: np.array([row[k] for row in rows]) for k in index}
    for k, i in turns.items():
        for c in (0, 1, 2):
            yield 1.1 + c / 10, f"{k} == {c}", i == c
            if c:
                yield 1.3 + c / 10, f"{k} < {c}", i < c
        for name, v in ints.items():
            if name in index:
                continue
            yield 1.4, f"{k} < {name}", i < v
            for c in (1, 2):
                yield 1.5 + c / 10, f"{k} == {name} - {c}", i == v - c
            if (v > 0).all() and name not in ("B", "S") and name[0] != "$":
                for c in (0, 1):
                    for r in (0, 1):
                        yield 1.6 + (c + r) / 10, f"({k} + {c}) % {name} == {r}", (i + c) % v == r
        for m in range(2, 9) if len(i) and i.max() > 8 else ():
            for r in range(m):
                yield 2 + (m + r) / 10, f"{k} % {m} == {r}", i % m == r
    chunks = {name: v for name, v in ints.items() if LENGTHS.search(name) and (v > 0).all()}
    chunks.update({str(c): np.full(len(rows), c) for c in CHUNKS})
    for name, v in chunks.items() if "S" in ints else ():
        yield 2.6, f"S % {name} == 0", ints["S"] % v == 0
        for k, i in turns.items():
            yield 2.2, f"{k} == ceil(S, {name}) - 1", i == -(-ints["S"] // v) - 1
    names = sorted(name for name in ints if sizes is None or name in sizes or name in ("B", "S"))
    for a in names:
        for b in names:
            if a[0] == "$" or b[0] == "$" or isinstance(rows[0].get(a), bool) or isinstance(rows[0].get(b), bool):
                continue
            if {"B", "S"} & {a, b} and ("B" in (a, b) or not LENGTHS.search(a + b)):
                continue
            if a != b and (ints[a] > ints[b]).any() and not (ints[a] > ints[b]).all():
                yield 2.8, f"{a} > {b}", ints[a] > ints[b]
            if a < b and (ints[a] == ints[b]).any() and not (ints[a] == ints[b]).all():
                yield 2.9, f"{a} == {b}", ints[a] == ints[b]


def compared(rows: Rows, features: Set[str], derived: Sequence[str]) -> Iterator[Tuple[float, str, np.ndarray]]:
    """Tests of expressions, as code has them of sizes that it derives from keys."""
    columns = {}
    for text in derived:
        try:
            column = np.array([value_of(text, row) for row in rows], dtype=np.int64)
        except Exception:
            continue
        if not any((column == other).all() for other in columns.values()):
            columns[text] = column
    plain = {name: v for name, v in terminals(rows, features).items() if v.dtype == np.int64 and name[0] != "$"
             and "[" not in name and not isinstance(rows[0].get(name), bool)}
    for text, column in columns.items():
        for c in LIMITS:
            yield 3.5, f"{text} > {c}", column > c
        for x in (0, 1):
            yield 3.6, f"{text} == {x}", column == x
        for other, v in [*plain.items(), *((t, v) for t, v in columns.items() if t < text)]:
            if other in ("B", "S"):
                continue
            yield 4.1, f"{text} == {other}", column == v
            yield 4.0, f"{text} > {other}", column > v
            yield 4.0, f"{other} > {text}", v > column
    tokens = plain.get("S")
    for name, v in plain.items() if tokens is not None else ():
        if not LENGTHS.search(name):
            continue
        for text, half in ((f"{name} // 2", v // 2), (f"{name} // 2 + 1", v // 2 + 1), (f"{name} + 1", v + 1)):
            yield 3.3, f"S > {text}", tokens > half
            yield 3.3, f"{text} > S", half > tokens


def derived(texts: Sequence[str]) -> List[str]:
    """Expressions of two and more keys, and those that they are made of; of keys alone."""
    out: Dict[str, None] = {}
    for text in texts:
        for node in ast.walk(ast.parse(_python(text), mode="eval")):
            if isinstance(node, (ast.BinOp, ast.Call, ast.IfExp)):
                part = features_of(ast.unparse(node))
                part = f"({part})" if isinstance(node, ast.IfExp) else part
                if len(names_of(part)) > 1 and not names_of(part) & {"B", "S"}:
                    out[part] = None
    return list(out)[:MOST_DERIVED]


MOST_DERIVED = 48
KNOWN = 2.0  # what a test of other classes costs
BITS = 0.5  # that a test must tell for each unit of its cost
LENGTHS = re.compile("window|kernel|chunk|position|block|length|context|span|stride|bucket|distance|size$")  # what tokens are compared with

Tree = Any  # a class, or (test, tree if it passes, tree if not)


def asked(text: str, rows: Rows) -> Iterator[List[bool]]:
    """Which rows pass; nothing: some have no answer, as lists of others are shorter."""
    with contextlib.suppress(IndexError):
        yield [passes(text, row) for row in rows]


class Chooser:
    """Tells observations apart by tests of their rows."""

    def __init__(self, rows: Rows, features: Set[str], sizes: Optional[Set[str]] = None, derived: Sequence[str] = (),
                 known: Sequence[str] = ()) -> None:
        """sizes: features that are compared with one another, and with derived, which are expressions.  known: whole tests."""
        pairs = features if sizes is None else features & (sizes | {"B", "S"})
        whole = ((KNOWN + 0.1 * len(names_of(text)), text, np.array(mask)) for text in known for mask in asked(text, rows))
        some = [(cost, text, mask) for cost, text, mask in [*tests(rows, features, sizes), *compared(rows, pairs, derived), *whole]
                if mask.any() and not mask.all()]
        self.texts = [text for _, text, _ in some]
        self.names = [names_of(text) for text in self.texts]
        self.costs = np.array([cost for cost, _, _ in some])
        self.masks = np.array([mask for _, _, mask in some], dtype=np.float32).reshape(len(some), len(rows))

    def cost(self, tree: Tree) -> float:
        """How much a tree asks."""
        if isinstance(tree, int):
            return 0.0
        test, yes, no = tree
        return float(self.costs[self.texts.index(test)]) + self.cost(yes) + self.cost(no)

    def choose(self, index: np.ndarray, labels: np.ndarray, candidates: Optional[Set[str]] = None) -> Optional[Tree]:
        """labels: of the rows in `index`.  candidates: features that may be asked; None: all."""
        some = [i for i, used in enumerate(self.names) if candidates is None or used <= candidates]
        return self._grow(np.array(some, dtype=int), index, labels, 0)

    def _grow(self, some: np.ndarray, index: np.ndarray, labels: np.ndarray, depth: int) -> Optional[Tree]:
        if (labels == labels[0]).all():
            return int(labels[0])
        masks = self.masks[np.ix_(some, index)]
        n = masks.sum(1)
        split = (n > 0) & (n < len(index))
        if not split.any() or depth > 24:
            return None
        some, masks, n = some[split], masks[split], n[split]
        classes = (labels[:, None] == np.unique(labels)[None, :]).astype(np.float32)
        yes = masks @ classes
        score = _impurity(yes) * n + _impurity(classes.sum(0) - yes) * (len(index) - n) + self.costs[some] * BITS
        best = int(score.argmin())
        passed = masks[best] > 0
        parts = [self._grow(some, index[at], labels[at], depth + 1) for at in (passed, ~passed)]
        return None if None in parts else (self.texts[some[best]], *parts)


def choose(rows: Rows, classes: Sequence[int], candidates: Set[str]) -> Optional[Tree]:
    return Chooser(rows, candidates).choose(np.arange(len(rows)), np.array(classes))


def condition(tree: Tree) -> str:
    """A tree whose classes are 0 and 1 as one test."""
    if isinstance(tree, int):
        return "True" if tree else "False"
    test, yes, no = tree
    if yes == 1 and no == 0:
        return test
    if yes == 0 and no == 1:
        return f"not {_atom(test)}"
    if no == 0:
        return f"{_atom(test)} and {_conjunct(yes)}"
    if yes == 0:
        return f"not {_atom(test)} and {_conjunct(no)}"
    if yes == 1:
        return f"{_atom(test)} or {condition(no)}"
    if no == 1:
        return f"not {_atom(test)} or {condition(yes)}"
    return f"{_atom(test)} and {_conjunct(yes)} or not {_atom(test)} and {_conjunct(no)}"


def _atom(test: str) -> str:
    return f"({test})" if test.startswith("not ") or " and " in test or " or " in test else test


def _conjunct(tree: Tree) -> str:
    return conjunct(condition(tree))


def conjunct(text: str) -> str:
    """A test as it stands between two others that must pass, too."""
    return f"({text})" if " or " in text else text


def names_of(text: str) -> Set[str]:
    """The features of an expression."""
    text = re.sub(r"'[^']*'", "", text)
    return set(re.findall(r"(?<![\w.])[A-Za-z_$?][A-Za-z0-9_.$]*", text)) - WORDS


WORDS = {"max", "min", "ceil", "floor2", "index", "windows", "int", "len", "in", "True", "False", "None", "and", "or", "not", "if", "else"}


def _impurity(counts: np.ndarray) -> np.ndarray:
    """Of each row of counts, its entropy in bits."""
    p = counts / counts.sum(1, keepdims=True)
    return -(p * np.log2(np.where(p > 0, p, 1))).sum(1)
