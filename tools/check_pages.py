#!/usr/bin/env python3
"""check_pages.py -- the pages can be found, and name only what there is.

    check_pages.py [--program build/plimsoll]
    check_pages.py --self-test

 * every page of docs/ is reached from docs/README.md in two clicks, and docs/README.md
   from the first screen of README.md;
 * a link within the tree leads to a file, and its anchor to a heading of it;
 * `plimsoll COMMAND` names a command, and the options after it are options of it; an
   option that stands alone is one of some command, or of a program that the tree reads;
 * a file that is named (src/..., tools/check_pages.py, `hooks.def`) is in the tree;
 * a table that lists what the program has (TABLES) has a row for each of its rows, and no
   other; a page that names each of a list (NAMED) leaves none out;
 * a name with an underscore in the pages about the program's answers (KEYS), and one that
   begins with plim_ in any, is a word of the program: a key of its JSON, a setting, a function.

Capitals stand for any name: src/serve/engine_NAME.c.  CHANGELOG.md is not checked: it
tells of what was.  Prints one line for each violation; exit 1 if there is one.
"""

import argparse
import functools
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLICKS = 2
SCREEN = 30  # lines
# Folders of the source tree, and the files in them that are sources.
SOURCES = {".c", ".h", ".def", ".cpp", ".py", ".sh", ".cmake", ".csv", ".in"}
FOLDERS = ("bench", "cli", "cmake", "docs", "examples", "include", "python", "src", "tests", "tools")
KEYS = re.compile(r"(README|docs/(ci|json|library|python|questions|settings|when-not-to-trust-it|out-of-memory|"
                  r"commands/.*))\.md")

# Of a page: the first cell of a table's head, and the .def whose rows it lists.
TABLES = (("docs/sharing.md", "strategy", "strategies.def"), ("docs/peft.md", "method", "adapters.def"))
# A page that has an option for each row of a .def.
NAMED = (("docs/sharing.md", "axes.def"), ("docs/when-not-to-trust-it.md", "axes.def"))
ROW = re.compile(r"^PLIM_[A-Z]+\((\w+)", re.M)

FENCE = re.compile(r"^ *(`{3,}|~{3,})([^\n]*)\n(.*?)^ *\1 *$", re.M | re.S)
SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.M)
COMMAND = re.compile(r"(?:^|[|;&(:-]|\$ ) *plimsoll +([a-z][\w-]*)([^|;&\n]*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
FILE = re.compile(r"(?<![\w./<$@-])((?:\.?[\w-]+/)*[\w*-]+\.(?:c|h|def|cpp|py|sh|cmake|csv|in|md|txt))(?![\w/.-])")
# Programs whose options are not ours; names and options of others that pages mention.
OTHERS = re.compile(r"(?<![\w./-])(?:pip|pkg-config|torchrun|cc|git|vllm|nvidia-smi)\b[^|;&)]*")
OTHERS_NAMES = {
    "plim_thing_verb",  # stands for any
    "--enable-dp-attention",  # SGLang's
    "clip_grad_norm", "dump_snapshot", "fp8_e4m3", "node_exporter", "optimizer_in_bwd", "paged_adamw_32bit",
    "peak_memory", "pipeline_parallel_size", "tensor_parallel_size",
}
KEY = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+")


def slug(heading):
    """The anchor that GitHub makes of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


class Page:
    def __init__(self, root, path):
        self.root, self.path = root, path
        self.name = path.relative_to(root).as_posix()
        self.text = path.read_text(encoding="utf-8")
        self.prose = FENCE.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), self.text)
        self.shown = {f for m in FENCE.finditer(self.text) for f in FILE.findall(m.group(3))}

    def line(self, at):
        return f"{self.name}:{self.text.count(chr(10), 0, at) + 1}"

    def spans(self):
        for m in SPAN.finditer(self.prose):
            yield m.start(2), m.group(2).replace("\n", " ")

    def typed(self):
        """Command lines: spans, and the lines of blocks that a reader types."""
        yield from self.spans()
        for m in FENCE.finditer(self.text):
            kind = (m.group(2).split() or [""])[0]
            if kind in ("sh", "console", "yaml"):
                for line in re.finditer(r"^(.*)$", m.group(3).replace("\\\n", "  "), re.M):
                    if kind != "console" or line.group().startswith("$ "):
                        yield m.start(3) + line.start(), line.group()

    def links(self):
        """(place, file, anchor) of each link within the tree."""
        for m in LINK.finditer(self.prose):
            if "://" not in m.group(1) and not m.group(1).startswith("mailto:"):
                file, _, anchor = m.group(1).partition("#")
                yield m.start(), (self.path.parent / file).resolve() if file else self.path, anchor

    @functools.cached_property
    def anchors(self):
        found = {}
        for m in HEADING.finditer(self.prose):
            name = slug(m.group(1))
            n = found[name] = found.get(name, -1) + 1
            if n:
                found[f"{name}-{n}"] = 0
        return {*found, *re.findall(r'<a id="([^"]+)">', self.text)}


class Tree:
    """What there is: the files, the words in the sources, the commands and their options."""

    def __init__(self, root, commands):
        self.root, self.commands = root, commands
        found = [p for f in FOLDERS for p in (root / f).rglob("*") if p.is_file()]
        self.files = {p.relative_to(root).as_posix() for p in [*found, *root.glob("*"), *root.glob(".ci/*")]}
        self.names = {f.rpartition("/")[2] for f in self.files}
        text = "\n".join(p.read_text(encoding="utf-8", errors="replace") for p in found
                         if p.suffix in SOURCES and p.relative_to(root).parts[0] != "docs"
                         and p != pathlib.Path(__file__).resolve())
        self.included = set(FILE.findall(text))
        self.words = set(re.findall(r"\w+", text))
        self.options = set(re.findall(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*", text))
        self.pages = {p.path: p for p in (Page(root, q) for q in sorted(
            [*(root / n for n in ("README.md", "CONTRIBUTING.md", "SECURITY.md") if (root / n).exists()),
             *(root / "docs").rglob("*.md")]))}

    def has_file(self, page, name):
        pattern = re.sub(r"(?<![a-z])[A-Z]+(?![a-z])(?<!README)(?<!CONTRIBUTING)(?<!CHANGELOG)(?<!SECURITY)", "*", name)
        if "/" not in name:
            return name in page.shown | self.included or bool(fits(pattern, self.names))
        near = (page.path.parent.relative_to(self.root) / pattern).as_posix()
        where = {pattern, f"src/{pattern}", f"python/{pattern}", f"src/vgpu/torch_shim/{pattern}", near}
        return any(fits(p, self.files) for p in where)

    def is_foreign(self, name):
        """A path in somebody else's tree: its folder is none of ours."""
        folder = name.rpartition("/")[0]
        return "/" in name and name.split("/")[0] not in (*FOLDERS, ".ci", "..") \
            and not any(f.startswith(f"src/{folder}/") for f in self.files)


def fits(pattern, names):
    if "*" not in pattern:
        return pattern in names
    regex = re.compile(re.escape(pattern).replace(r"\*", "[^/]*"))
    return [n for n in names if regex.fullmatch(n)]


# ---- the checks: each yields (place in the page, what is wrong) ------------------------------

def check_links(tree, page):
    for at, path, anchor in page.links():
        if not path.exists():
            yield at, f"the link to '{path.name}' leads nowhere"
        elif anchor and path in tree.pages and anchor not in tree.pages[path].anchors:
            yield at, f"'{path.name}' has no heading '#{anchor}'"


def check_commands(tree, page):
    """Commands and options."""
    every = set().union(*tree.commands.values())
    for at, text in page.typed():
        rest = text
        for m in COMMAND.finditer(text):
            name, own = m.group(1), m.group(2).partition(" -- ")[0]
            rest = rest.replace(m.group(), " ")
            if name not in tree.commands:
                yield at, f"'plimsoll {name}': no such command"
                continue
            for option in set(OPTION.findall(own)) - tree.commands[name]:
                yield at, f"'plimsoll {name}' has no option '{option}'"
        for option in OPTION.findall(OTHERS.sub(" ", rest)):
            if option not in every | OTHERS_NAMES and not {option[2:], option[2:].replace("-", "_")} & tree.options:
                yield at, f"nothing has an option '{option}'"


def check_files(tree, page):
    for at, text in page.spans():
        for name in FILE.findall(text):
            ours = name.rpartition(".")[2] in ("c", "h", "def", "cmake") or "/" in name
            if ours and not tree.is_foreign(name) and not tree.has_file(page, name):
                yield at, f"there is no file '{name}'"


def check_keys(tree, page):
    for at, text in page.spans():
        for name in KEY.findall(text) if re.fullmatch(r"[\w., \[\]*:]+", text) else ():
            ours = KEYS.fullmatch(page.name) or name.startswith("plim_")
            if ours and name not in tree.words | OTHERS_NAMES:
                yield at, f"the program has no '{name}'"


def rows_of(tree, name):
    return {row for f in tree.files if f.endswith(f"/{name}")
            for row in ROW.findall((tree.root / f).read_text(encoding="utf-8"))}


def check_lists(tree, page):
    for _, head, name in (t for t in TABLES if t[0] == page.name):
        table = re.search(rf"^\| {head} \|.*\n\|.*\n((?:\|.*\n)+)", page.prose, re.M)
        listed = set(re.findall(r"^\| `(\w+)`", table.group(1), re.M)) if table else set()
        for row in sorted(rows_of(tree, name) ^ listed):
            yield table.start() if table else 0, f"'{row}' is only in {'the table' if row in listed else name}"
    for _, name in (t for t in NAMED if t[0] == page.name):
        for row in sorted(rows_of(tree, name)):
            if not re.search(rf"`--{row}\b", page.prose):
                yield 0, f"'--{row}' is not named, a row of {name}"


def check_reach(tree):
    index, first = tree.root / "docs" / "README.md", tree.root / "README.md"
    if index not in tree.pages:
        yield "docs/README.md", "there is no index"
        return
    if not any(p == index and first.read_text(encoding="utf-8").count("\n", 0, at) < SCREEN
               for at, p, _ in tree.pages[first].links()):
        yield "README.md", f"no link to docs/README.md in the first {SCREEN} lines"
    reached = edge = {index}
    for _ in range(CLICKS):
        edge = {p for q in edge if q in tree.pages for _, p, _ in tree.pages[q].links()} - reached
        reached = reached | edge
    for path in sorted([*(tree.root / "docs").rglob("*.md"), *(tree.root / "docs").rglob("*.ipynb")]):
        if path not in reached:
            yield path.relative_to(tree.root).as_posix(), f"not reached from docs/README.md in {CLICKS} clicks"


def check(tree):
    problems = list(f"{name}: {what}" for name, what in check_reach(tree))
    for page in tree.pages.values():
        for one in (check_links, check_commands, check_files, check_keys, check_lists):
            problems += [f"{page.line(at)}: {what}" for at, what in one(tree, page)]
    return problems


def commands_of(program):
    """The options of each command, from its help."""
    def ask(*words):
        return subprocess.run([program, "help", *words], check=True, capture_output=True, text=True).stdout
    listed = ask().split("\n\n")[1]
    return {name: {*re.findall(r"^  (--[a-z0-9-]+)", ask(name), re.M), "--man"}
            for name in re.findall(r"^  ([a-z]+) ", listed, re.M)}


def self_test():
    """The checker checked: each kind of fault is seen, and a sound tree has none."""
    sound = {
        "README.md": "# A\n[index](docs/README.md)\n",
        "docs/README.md": "# Index\n[a](aNAME.md#what-it-is-1)\n",
        "docs/aNAME.md": "# A\n## What it is\n## What it is\n`plimsoll run --gpu t4 -- python x.py --lr 1`, `--gpu`, "
                     "`src/NAME_x.c`, `a_x.c`, [b](json.md) [c](sharing.md)\n",
        "docs/json.md": "# B\n`peak_bytes`\n```sh\nplimsoll run \\\n  --gpu t4\n```\n",
        "docs/sharing.md": "\n`--dp`\n\n| strategy | x |\n| --- | --- |\n| `ddp` | x |\n",
        "src/a_x.c": "peak_bytes",
        "src/axes.def": "PLIM_AXIS(dp)\n",
        "src/strategies.def": "PLIM_STRATEGY(ddp)\n",
    }
    faults = {
        "there is no index": ("docs/README.md", None),
        "no link to docs/README.md": ("README.md", "# A\n"),
        "not reached": ("docs/cNAME.md", "# C\n"),
        "leads nowhere": ("docs/aNAME.md", "[b](json.md) [c](cNAME.md)"),
        "no heading '#what-it-is-1'": ("docs/aNAME.md", "# A\n## What it is\n[b](json.md)\n"),
        "'plimsoll rum': no such command": ("docs/json.md", "`plimsoll rum`"),
        "'plimsoll run' has no option '--gpus'": ("docs/json.md", "```sh\nplimsoll run \\\n  --gpus t4\n```\n"),
        "nothing has an option '--gnu'": ("docs/json.md", "`--gnu`"),
        "there is no file 'src/b_x.c'": ("docs/json.md", "`src/b_x.c`"),
        "there is no file 'b_x.c'": ("docs/json.md", "`b_x.c`"),
        "'fsdp' is only in the table": ("docs/sharing.md", "| strategy | x |\n| --- | --- |\n| `fsdp` | x |\n"),
        "'ddp' is only in strategies.def": ("docs/sharing.md", "`--dp`"),
        "'--dp' is not named": ("docs/sharing.md", "`dp`"),
        "the program has no 'peak_byte'": ("docs/json.md", "`peak_byte`"),
    }
    for wanted, (name, text) in {"": ("README.md", sound["README.md"]), **faults}.items():
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            for file, content in {**sound, name: text}.items():
                if content is not None:
                    (root / file).parent.mkdir(exist_ok=True)
                    (root / file).write_text(content, encoding="utf-8")
            got = check(Tree(root, {"run": {"--gpu"}}))
            assert any(wanted in line for line in got) if wanted else not got, (wanted, got)


def main():
    parser = argparse.ArgumentParser(description="checks what the pages name")
    parser.add_argument("--program", default=str(ROOT / "build" / "plimsoll"))
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        self_test()
        return 0
    problems = check(Tree(ROOT, commands_of(args.program)))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
