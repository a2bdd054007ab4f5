"""_open.py -- for which sizes an export holds whose batch and sequence were left open.

While PyTorch traces a module it notes a guard for each question that the code asked of an open size: "is the sequence
longer than the window", "does the chunk divide it".  The graph is that of the answers, so it holds for the sizes that
give the same ones.  Those of the form "s <= 4094" are in the export's own ranges; the others are not, and PyTorch does
not check them for sizes that are marked Dim.AUTO.

    limits(traced, {"batch": 2, "seq": 1024}, symbols)    {"batch": (2, None), "seq": (2, 4094)}

The guards are asked for many sizes, from 1 to millions, dense where they are small and next to powers of two and to the
size that was traced.  Where the answers change once, the place is found; where they change more often (the rest of a
division), only the size that was traced is left.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Set, Tuple

import sympy
import torch

Limits = Dict[str, Tuple[int, Optional[int]]]
"""The least and the largest size; None: any."""

_MOST = 22  # powers of two that are tried
_FEW = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 37, 64, 257, 4096)  # sizes that are tried together with those of the other


def limits(traced: Any, sizes: Mapping[str, int], symbols: Mapping[str, Iterable[Any]]) -> Limits:
    """`sizes`: what each open size was while it was traced; `symbols`: those that stand for it; none: it is fixed."""
    names = [name for name in sizes if symbols.get(name)]
    found: Limits = {name: (size, size) for name, size in sizes.items() if name not in names}
    stand = {name: sympy.Symbol(name, integer=True, positive=True) for name in names}
    replaced = {s: stand[name] for name in names for s in symbols[name]}
    asks = _guards(traced, replaced)
    for name in names:
        others = {n: sizes[n] for n in names if n != name}
        found[name] = _interval(_answer(asks, stand, name, [others]), sizes[name])
    if len(names) == 2:
        first, second = names  # and any of one with any of the other
        lows = [n for n in {*_FEW, sizes[second]} if _within(n, found[second])]
        found[first] = _meet(found[first], _interval(_answer(asks, stand, first, [{second: n} for n in lows]), sizes[first]))
    return found


def _within(n: int, bounds: Tuple[int, Optional[int]]) -> bool:
    return n >= bounds[0] and (bounds[1] is None or n <= bounds[1])


def _meet(a: Tuple[int, Optional[int]], b: Tuple[int, Optional[int]]) -> Tuple[int, Optional[int]]:
    most = [n for n in (a[1], b[1]) if n is not None]
    return max(a[0], b[0]), min(most) if most else None


def _guards(traced: Any, replaced: Mapping[Any, Any]) -> List[Any]:
    env = next((v.fake_mode.shape_env for v in (n.meta.get("val") for n in traced.graph.nodes)
                if torch.is_tensor(v) and hasattr(v, "fake_mode")), None)
    asks: Set[Any] = set()
    for guard in getattr(env, "guards", ()):
        expr = guard.expr.xreplace(replaced)
        if expr is not sympy.true and expr.free_symbols <= set(replaced.values()):
            asks.add(expr)
    return sorted(asks, key=str)


def _answer(asks: List[Any], stand: Mapping[str, Any], name: str, others: List[Dict[str, int]]) -> Callable[[int], bool]:
    """Whether the graph holds if the size is `n`, whatever the other one is of these."""
    from torch.utils._sympy.interp import sympy_interp
    from torch.utils._sympy.reference import PythonReferenceAnalysis

    mine = [a for a in asks if stand[name] in a.free_symbols]

    def holds(ask: Any, values: Dict[str, int]) -> bool:
        try:
            return bool(sympy_interp(PythonReferenceAnalysis, {stand[k]: v for k, v in values.items()}, ask))
        except Exception:  # it divides by zero, or has a function that no number is known of
            return False

    def answer(n: int) -> bool:
        return all(holds(a, {**other, name: n}) for a in mine for other in others)

    return answer


def _interval(answer: Callable[[int], bool], traced: int) -> Tuple[int, Optional[int]]:
    tried = sorted({*range(1, 17), *range(max(1, traced - 8), traced + 9),
                    *(max(1, (1 << k) + d) for k in range(_MOST + 1) for d in (-1, 0, 1)), *(traced * k for k in (2, 3))})
    told = {n: answer(n) for n in tried if n > 1}  # 0 and 1 are constants to a tracer; they work as well
    good = [n for n in told if told[n]]
    if not told[traced] or any(not told[n] for n in told if good[0] < n < good[-1]):
        return traced, traced
    least, most = good[0], good[-1]
    above, below = min((n for n in told if n > most), default=None), max((n for n in told if n < least), default=None)
    return least if below is None else _edge(answer, least, below), None if above is None else _edge(answer, most, above)


def _edge(answer: Callable[[int], bool], good: int, bad: int) -> int:
    """The last good one on the way from one that is good to one that is not."""
    while abs(bad - good) > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if answer(middle) else (good, middle)
    return good
