#!/usr/bin/env python3
"""check_symbols.py BUILD -- which file calls into which, as `nm` sees it in the objects.

 * the files of a room read as layers: there is no circle of files of which each uses a
   symbol that the next one defines.  A wing is looked at by itself, and so are the files
   of a room that has wings;
 * a room uses symbols of the rooms only that it may include (ROOMS in check_layers.py),
   whatever header declares them, and a wing none of another wing;
 * what only one file uses is static there, and nothing is left that nobody uses: other files
   are those of the library, the program and the tests, and include/ is for everybody.

Prints one line a violation; exit 1 if there is one, 77
(skipped) without nm.
"""

import pathlib
import re
import shutil
import subprocess
import sys

from check_layers import ROOMS, wing_of


def read_symbols(objects):
    """The object that defines each global symbol, and what each object leaves undefined."""
    out = subprocess.run(["nm", "-A", "-P", *objects], check=True, capture_output=True,
                         text=True).stdout
    defined, used = {}, {}
    for line in out.splitlines():
        path, rest = line.split(": ", 1)
        symbol, kind = rest.split()[:2]
        if kind in "Uwv":
            used.setdefault(path, []).append(symbol)
        elif kind.isupper():
            defined[symbol] = path
    return defined, used


def find_circles(edges):
    """Strongly connected components of more than one file: Tarjan's algorithm."""
    number, low, stack, found = {}, {}, [], []

    def visit(v):
        number[v] = low[v] = len(number)
        stack.append(v)
        for w in edges.get(v, ()):
            if w not in number:
                visit(w)
            if w in stack:
                low[v] = min(low[v], low[w])
        if low[v] == number[v]:
            part = stack[stack.index(v):]
            del stack[-len(part):]
            if len(part) > 1:
                found.append(set(part))

    for v in edges:
        if v not in number:
            visit(v)
    return found


def describe(circle, edges):
    return ", ".join(f"{user} -> {owner} ({edges[user][owner]})"
                     for user in sorted(circle) for owner in sorted(edges.get(user, ()))
                     if owner in circle)


def read_words(root):
    """All words of what is not the library, and of the headers that users have."""
    words = set()
    for folder in "include", "cli", "tests", "bench", "tools", "src/vgpu", "src/live":
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".c", ".cpp", ".h", ".def", ".py"):
                words.update(re.findall(r"plim_\w+", path.read_text(encoding="utf-8")))
    return words


def check_lonely(root, sources, defined, used):
    elsewhere = {symbol for symbols in used.values() for symbol in symbols}
    lonely = {s for s, path in defined.items() if s.startswith("plim") and path in sources and s not in elsewhere}
    for symbol in sorted(lonely - read_words(root) if lonely else ()):
        yield f"{sources[defined[symbol]]}: {symbol} is used by no other file: make it static, or delete it"


def check(root, build):
    src = root / "src"
    objects_at = build / "CMakeFiles/plim_objects.dir/src"
    sources = {}
    for p in sorted(objects_at.rglob("*.c.o")):
        source = p.relative_to(objects_at).with_suffix("")
        if (src / source).is_file():  # and not what is left of one that was renamed
            sources[str(p)] = source
    defined, used = read_symbols(sources)
    edges = {}  # file: {file whose symbol it uses: that symbol}
    for path, symbols in used.items():
        user = sources[path]
        room, wing = user.parts[0], wing_of(user.parts[0], user.parts[1:])
        for symbol in sorted(symbols):
            owner = sources.get(defined.get(symbol))
            if owner is None or owner == user:
                continue
            target, other = owner.parts[0], wing_of(owner.parts[0], owner.parts[1:])
            if target == room and other == wing:
                edges.setdefault(str(user), {}).setdefault(str(owner), symbol)
            elif target == room and wing and other:
                yield f"{user}: new edge {wing} -> {other}: {symbol} is of {owner}"
            elif target not in ROOMS[room] | {room}:
                yield f"{user}: new edge {room} -> {target}: {symbol} is of {owner}"
    yield from check_lonely(root, sources, defined, used)
    for circle in find_circles(edges):
        yield f"circle: {describe(circle, edges)}"


def main():
    if not shutil.which("nm"):
        print("skipped: there is no nm")
        return 77
    root = pathlib.Path(__file__).resolve().parent.parent
    problems = list(check(root, pathlib.Path(sys.argv[1]).resolve()))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
