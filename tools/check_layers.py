#!/usr/bin/env python3
"""check_layers.py -- checks rules of the source tree that a compiler does not.

 * a room of src/ includes only the rooms listed for it (ROOMS below, the table
   of docs/architecture.md);
 * a *_priv.h is included only within its own folder and, if its head comment
   says 'Included by', only by the files named there;
 * cli/ includes plimsoll.h and its own headers, nothing else of ours;
 * a function has a name of two words at least;
 * the frame of src/serve names no inference engine of engines.def and none of their options;
 * a file name occurs once, so that a stack trace or a grep names one file;
 * memory comes from arenas: malloc and related functions are called only in
   src/base and, for the program, in cli/memory.c.

Prints one line per violation, with the new dependency; exit status 1 if there
is one.
"""

import pathlib
import re
import sys

RULES = {"base", "core", "machine", "op"}  # ops, and the machine they run on
MODELS = RULES | {"optim", "gpu", "torch", "nn", "families", "import", "zoo", "hub", "model", "world", "share", "step", "transform",
                  "alloc", "settings"}

# room: the rooms whose headers it may include, besides its own
ROOMS = {
    "base": set(),
    "answers": set(),  # rows only
    "hub": {"base"},
    "core": {"base"},
    "gpu": {"base", "core"},
    "torch": {"base", "core"},
    "machine": {"base", "core", "torch"},  # what PyTorch does from a release on
    "op": {"base", "core", "torch", "machine"},
    "optim": RULES | {"torch"},  # steps run on the machine, by version
    "nn": RULES,
    "families": RULES | {"nn"},
    "import": RULES | {"optim", "gpu", "torch", "nn", "families"},
    "zoo": RULES | {"optim", "gpu", "torch", "nn", "import"},
    "model": RULES | {"optim", "gpu", "torch", "nn", "import", "zoo", "hub"},
    "world": {"base", "core", "machine", "gpu", "torch"},
    "share": RULES,
    "step": RULES | {"optim", "torch", "share"},
    "transform": RULES | {"nn"},
    "settings": {"base", "core"},
    "time": RULES | {"gpu"},
    "alloc": {"base", "core"},
    "trace": {"base", "core", "alloc"},
    "diff": {"base", "core"},
    "oom": {"base", "core", "gpu"},
    "job": MODELS,
    "fit": MODELS | {"time", "job"},
    "serve": MODELS | {"time", "job", "fit"},
    "registry": MODELS | {"time", "job", "fit", "serve"},
    "report": MODELS | {"answers", "time", "job", "fit", "serve", "registry"},
    "vgpu": MODELS | {"answers", "time", "job", "fit", "report"},
    "api": MODELS | {"time", "job", "fit", "serve", "registry", "report", "vgpu", "trace", "diff", "oom"},
    "live": {"base", "report", "answers"},  # nothing of models
}
PUBLIC = ("plimsoll.h", "plimsoll_vgpu.h", "plimsoll_live.h")
# folders of a room: they do not see one another.  None: any folder is one
WINGS = {"import": {"weights", "pt2", "onnx", "hf", "megatron"}, "serve": None}
# Programs and libraries of their own, on plimsoll.h; live/record on the format of its file.
APART = {("vgpu", "cuda_stub"), ("vgpu", "torch_shim"), ("live", "record")}

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.M)
HEAP = re.compile(r"(?<![\w.>])((?:sqlite3_)?(?:malloc|calloc|realloc|free)(?:64)?|reallocarray"
                  r"|strdup|strndup)\s*\(")
STATIC = re.compile(r"^static [^;={}()]*?\b([a-z0-9]+)\(", re.M)
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)


def blank(match):
    """Comments and strings become spaces; line numbers stay."""
    return re.sub(r"[^\n]", " ", match.group())


def includes(path):
    text = path.read_text(encoding="utf-8")
    for m in INCLUDE.finditer(text):
        yield text.count("\n", 0, m.start(2)) + 1, m.group(1) == '"', m.group(2)


def wing_of(room, parts):
    if room not in WINGS or len(parts) < 2:
        return None
    return parts[0] if WINGS[room] is None or parts[0] in WINGS[room] else None


def check_room(root, path, room):
    wing = wing_of(room, path.relative_to(root / "src" / room).parts)
    for line, quoted, name in includes(path):
        if not quoted or name in PUBLIC:
            continue
        where = f"{path.relative_to(root)}:{line}"
        target = name.split("/")[0] if "/" in name else None
        if target is None or target not in ROOMS:
            yield f"{where}: '{name}' names no room: write \"room/file.h\""
        elif target != room and target not in ROOMS[room]:
            yield f"{where}: new edge {room} -> {target} ('{name}')"
        elif target == room and wing_of(room, name.split("/")[1:]) not in (None, wing):
            yield f"{where}: new edge {room}{'/' + wing if wing else ''} -> '{name}'"
        elif not (root / "src" / name).is_file():
            yield f"{where}: '{name}' does not exist"


def check_private(root, path):
    for line, quoted, name in includes(path):
        header = root / "src" / name
        if not quoted or not name.endswith("_priv.h") or not header.is_file():
            continue
        where = f"{path.relative_to(root)}:{line}"
        head = header.read_text(encoding="utf-8").split("*/")[0].partition("Included by ")[2]
        named = re.findall(r"\b\w+\.c\b", head)
        if header.parent != path.parent:
            yield f"{where}: '{name}' is private to {header.parent.relative_to(root)}"
        elif named and path.name not in named:
            yield f"{where}: '{name}' is not for {path.name}: its head comment has the list"


def check_cli(root, path):
    for line, quoted, name in includes(path):
        if quoted and name not in PUBLIC and not (root / "cli" / name).is_file():
            yield f"{path.relative_to(root)}:{line}: new edge cli -> '{name}' (only {PUBLIC[0]})"


def check_heap(root, path):
    text = COMMENT.sub(blank, path.read_text(encoding="utf-8"))
    for m in HEAP.finditer(text):
        line = text.count("\n", 0, m.start()) + 1
        yield (f"{path.relative_to(root)}:{line}: '{m.group(1)}' outside src/base: use an arena, "
               f"in cli/ a plim_memory")


ENGINE = re.compile(r'^PLIM_ENGINE\(\w+, "([^"]+)",\s*((?:"[^"]*"\s*)+),', re.M)
WORD = re.compile(r'(/\*.*?\*/|#include[^\n]*)|"((?:\\.|[^"\\\n])*)"', re.S)


def engine_words(root):
    """The names of the engines and of their options."""
    words = set()
    for name, options in ENGINE.findall((root / "src/serve/engines.def").read_text(encoding="utf-8")):
        words.add(name)
        text = "".join(re.findall(r'"([^"]*)"', options))
        words.update(option.split("=")[0] for option in text.split(",") if option)
    return words


def check_frame(root):
    words = engine_words(root)
    for path in sorted((root / "src/serve").glob("*.[ch]")):
        text = path.read_text(encoding="utf-8")
        for m in WORD.finditer(text):
            named = words & set(re.findall(r"[\w.]+", m.group(2) or ""))
            for word in sorted(named):
                line = text.count("\n", 0, m.start()) + 1
                yield f"{path.relative_to(root)}:{line}: the frame knows '{word}' of an engine"


def check_names(root, path):
    text = COMMENT.sub(blank, path.read_text(encoding="utf-8"))
    for m in STATIC.finditer(text):
        line = text.count("\n", 0, m.start(1)) + 1
        yield f"{path.relative_to(root)}:{line}: '{m.group(1)}' is one bare word: verb_object"


def check(root):
    seen = {}
    sources = [p for d in ("include", "src", "cli") for p in sorted((root / d).rglob("*"))
               if p.suffix in (".c", ".h", ".def")]
    for path in sources:
        parts = path.relative_to(root).parts
        if parts[1:3] in APART:
            continue
        if path.name in seen:
            yield f"{path.relative_to(root)}: the name is taken by {seen[path.name]}"
        seen[path.name] = path.relative_to(root)
        yield from check_names(root, path)
        if parts[0] == "src":
            wing = wing_of(parts[1], parts[2:])
            if len(parts) != (4 if wing else 3) or parts[1] not in ROOMS:
                yield f"{path.relative_to(root)}: not in a room (tools/check_layers.py has the list)"
                continue
            yield from check_room(root, path, parts[1])
            yield from check_private(root, path)
            if parts[1] == "base":
                continue
        elif parts[0] == "cli":
            yield from check_cli(root, path)
        if path.relative_to(root) != pathlib.Path("cli/memory.c"):
            yield from check_heap(root, path)
    yield from check_frame(root)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    if root.is_file():
        root = root.parent.parent
    problems = list(check(root))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
