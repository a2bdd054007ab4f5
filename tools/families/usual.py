"""usual.py -- what the texts that are there already say: code of the next class is likely to ask and compute the same.

    sizes(features), tests(features)   expressions of these features alone, those of most texts first
"""

from __future__ import annotations

import ast
import collections
import contextlib
import functools
import glob
import os
import re
from typing import Callable, FrozenSet, Iterator, List, Set, Tuple

from expr import _python, features_of, names_of

TEXTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src", "families", "*.fam")
FEWEST = 2  # texts that must have it


def sizes(features: Set[str]) -> List[str]:
    return list(_named(0, frozenset(features)))


def tests(features: Set[str]) -> List[str]:
    """Of more than one thing: what asks one is tried anyway."""
    return list(_named(1, frozenset(features)))


@functools.lru_cache(maxsize=None)  # asked for each place again and again
def _named(which: int, features: FrozenSet[str]) -> Tuple[str, ...]:
    """As they are, and as those of a part: text_config.head_dim for head_dim."""
    parts = sorted({name.rpartition(".")[0] for name in features if "." in name})
    own = {"B", "S", "i0", "i1", "j0", "j1"}
    out = []
    for text in _known()[which]:
        for part in ("", *parts):
            named = _renamed(text, lambda name: name if name in own or name[0] in "$?" else f"{part}.{name}") if part else text
            if names_of(named) <= features | own | {name for name in names_of(named) if name[0] == "?"}:
                out.append(named)
    return tuple(dict.fromkeys(out))


def _renamed(text: str, change: Callable[[str], str]) -> str:
    for name in sorted(names_of(text), key=len, reverse=True):
        text = re.sub(rf"(?<![\w.$?']){re.escape(name)}(?![\w.'])", lambda m: change(m.group()), text)
    return text


@functools.lru_cache(maxsize=1)
def _known() -> Tuple[Tuple[str, ...], Tuple[str, ...]]:
    found: List[collections.Counter[str]] = [collections.Counter(), collections.Counter()]
    for path in sorted(glob.glob(TEXTS)):
        with open(path) as f:
            lines = f.read().split("\nat ", 1)[-1].splitlines()
        found[0].update({text for line in lines for text in _sizes(line)})
        found[1].update({text for line in lines for text in _tests(line)})
    return tuple(tuple(text for text, n in sorted(some.items(), key=lambda x: (-x[1], len(x[0]), x[0])) if n >= FEWEST) for some in found)  # type: ignore[return-value]


def _sizes(line: str) -> Iterator[str]:
    for inner in re.findall(r"\[([^\[\]]*(?:\[\w+\][^\[\]]*)*)\]", line):
        with contextlib.suppress(SyntaxError):
            for node in ast.parse(_python(f"({inner},)"), mode="eval").body.elts:  # type: ignore[attr-defined]
                text = features_of(ast.unparse(node))
                if len(names_of(text)) > 1 or names_of(text) and any(c in text for c in "+-*%"):
                    yield text


def _tests(line: str) -> Iterator[str]:
    """Of more than one thing: those that statements run on, and those that are arguments."""
    said = re.fullmatch(r" *if (?:%[\d|]+ and )?(.*)", line)
    asked = [said.group(1)] if said else re.findall(r"\w=([^,()%]+|\([^()%]+\))(?=[,)])", line)
    for text in asked:
        if "%" in text.replace(" % ", "") or "." in re.sub(r"'[^']*'", "", text):
            continue
        for part in (text, text[1:-1]) if text[0] == "(" else (text,):
            with contextlib.suppress(SyntaxError):
                tree = ast.parse(_python(part), mode="eval").body
                if isinstance(tree, (ast.BoolOp, ast.Compare)) and len(names_of(part)) > 1:
                    yield features_of(ast.unparse(tree))
