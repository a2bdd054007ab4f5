#!/usr/bin/env python3
"""check.py BUILD -- the completion scripts in their shells, and the manual pages.

bash and fish complete lines as they do for a person; zsh runs the function with its own helpers replaced by ones that
print what they are given.  What is offered is compared with help and the lists.  A shell that is not installed is
left out, as are mandoc and man.
"""
import csv
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(sys.argv[1]).resolve()
PROGRAM = BUILD / "plimsoll"
MANUAL = BUILD / "manual"
bad = 0


def expect(what, got, wanted):
    global bad
    if got != wanted:
        bad += 1
        print(f"{what}: {got!r}\nexpected {wanted!r}")


def output(*command, **more):
    return subprocess.run([str(x) for x in command], check=True, stdout=subprocess.PIPE, text=True, **more).stdout


# ---- a shell: the words offered for a line, in their order ---------------------------------

BASH = r"""
compopt() { :; }
source "$SCRIPT"
COMP_LINE=$LINE COMP_POINT=${#LINE}
# as readline does: '=' is a word
read -ra COMP_WORDS <<<"${LINE//=/ = }"
[[ $LINE == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_plimsoll plimsoll "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\n' "${COMPREPLY[@]}"
"""
ZSH = r"""
compdef() { :; }
compset() { :; }
_files() { local f; for f in "${words[CURRENT]}"*(N); do print -r -- "$f"; done }
_describe() { print -rl -- "${found[@]%%:*}"; }
source "$SCRIPT"
words=("${(@s: :)LINE}") CURRENT=${#words}
_plimsoll
"""


def bash(line):
    got = output("bash", "-c", BASH, env={**ENV, "LINE": line, "SCRIPT": str(MANUAL / "plimsoll.bash")}, cwd=FOLDER)
    cut = re.search(r"--\S*=", line.split(" ")[-1])  # bash replaces what follows the '='
    return [(cut.group() if cut else "") + x for x in got.split("\n") if x]


def zsh(line):
    got = output("zsh", "-fc", ZSH, env={**ENV, "LINE": line, "SCRIPT": str(MANUAL / "plimsoll.zsh")}, cwd=FOLDER)
    return [x for x in got.split("\n") if x]


def fish(line):
    got = output("fish", "--no-config", "-c", 'source $SCRIPT; complete -C "$LINE"',
                 env={**ENV, "LINE": line, "SCRIPT": str(MANUAL / "plimsoll.fish")}, cwd=FOLDER)
    return [x.split("\t")[0] for x in got.split("\n") if x]


# ---- what help and the lists say -------------------------------------------------------------

def commands():
    return re.findall(r"^  ([a-z]+) ", output(PROGRAM, "help"), re.M)


def options(command):
    return re.findall(r"^  (--[a-z0-9-]+)", output(PROGRAM, "help", command), re.M)


def cards(start):
    """The first alias of a card that begins so; the names of some cards have spaces."""
    for row in csv.DictReader(io.StringIO(output(PROGRAM, "gpus", "--csv"))):
        yield from [x for x in row["aliases"].split(", ") if x.startswith(start)][:1]


def names(what, start):
    rows = csv.DictReader(io.StringIO(output(PROGRAM, what, "--csv")))
    return [row["name"] for row in rows if row["name"].startswith(start)]


def completion(shell):
    def check(line, wanted):
        expect(f"{shell.__name__}: {line}", sorted(shell(line)), sorted(wanted))

    check("plimsoll ", [*commands(), "--help", "--version"])
    check("plimsoll es", ["estimate"])
    for command in commands():
        check(f"plimsoll {command} --", options(command))
    check("plimsoll run --gpu t4 --b", ["--by"])
    check("plimsoll estimate --dtype ", ["fp32", "fp16", "bf16", "fp64"])
    check("plimsoll estimate resnet18 --explain=s", ["--explain=segments"])
    check("plimsoll size 3x3 --color ", ["auto", "always", "never"])
    check("plimsoll run --by ", ["line", "module", "op"])
    check("plimsoll estimate --gpu rtx40", cards("rtx40"))
    check("plimsoll estimate --gpu=rtx40", [f"--gpu={x}" for x in cards("rtx40")])
    check("plimsoll fit lenet --gpu t4,a1", [f"t4,{x}" for x in cards("a1")])
    check("plimsoll estimate lenet --optimizer ada", names("optimizers", "ada"))
    check("plimsoll estimate lenet --torch 2.1", names("profiles", "2.1"))
    check("plimsoll estimate vgg", names("models", "vgg"))
    check("plimsoll estimate meta-llama/Llama-2-7b-h", ["meta-llama/Llama-2-7b-hf"])
    check("plimsoll layers lenet vgg", names("models", "vgg"))
    check("plimsoll gpus --json", ["--json"])
    check("plimsoll help fo", ["formats"])
    check("plimsoll help m", ["models", "memory"])
    check("plimsoll completion z", ["zsh"])
    check("plimsoll nothing ", [])
    check("plimsoll info fi", ["file one.pt2"])
    check("plimsoll estimate lenet --settings fi", ["file one.pt2"])
    check("plimsoll run --gpu t4 -- fi", ["file one.pt2"])


def manual():
    """A page for each command, and nothing that a formatter warns of."""
    pages = sorted((MANUAL / "man1").iterdir())
    expect("pages", [x.name for x in pages], sorted(["plimsoll.1", *(f"plimsoll-{x}.1" for x in commands())]))
    for page in pages:
        if shutil.which("mandoc"):
            done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", str(page)], stdout=subprocess.PIPE, text=True)
            expect(f"mandoc {page.name}", done.stdout, "")
        if shutil.which("man"):
            done = subprocess.run(["man", "--warnings", "-l", str(page)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, env={**os.environ, "MANWIDTH": "200", "LC_ALL": "C.UTF-8"})
            expect(f"man {page.name}", done.stderr, "")
            text = re.sub(".\b", "", done.stdout)
            if page.stem.startswith("plimsoll-"):
                got = re.findall(r"^     (--[a-z0-9-]+)", text, re.M)
                expect(f"options in {page.name}", got, options(page.stem[len("plimsoll-"):]))


with tempfile.TemporaryDirectory() as name:
    FOLDER = pathlib.Path(name)
    (FOLDER / "file one.pt2").touch()
    (FOLDER / "plimsoll").symlink_to(PROGRAM)
    ENV = {"PATH": f"{FOLDER}:{os.environ['PATH']}", "HOME": name, "LC_ALL": "C.UTF-8"}
    shells = [x for x in (bash, zsh, fish) if shutil.which(x.__name__)]
    for shell in shells:
        completion(shell)
    manual()
    print("checked:", *(x.__name__ for x in shells), *(x for x in ("mandoc", "man") if shutil.which(x)))
sys.exit(bad > 0)
