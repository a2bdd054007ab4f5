#!/usr/bin/env python3
"""check_hardening.py -- finds programs and libraries without what cmake/hardening.cmake gives them.

    tools/check_hardening.py BUILD     all that a build would install, and the objects that they are made of
    tools/check_hardening.py FILE...   programs and libraries from elsewhere

Each may lie at any address; what the dynamic linker fills in is filled in at the start and read-only from then on; no stack
is executable; each calls the check of its stack and, with glibc, those of its buffers; each object says that indirect jumps
end at marks. The C runtime's own objects may lack the marks, and then what is linked has none: that is not looked at.
One line per violation; exit status 1 if there is one, 77 where there is nothing to look at.
"""
import pathlib
import re
import shutil
import subprocess
import sys

# Lists of functions that fail: no buffer, no copy.
NO_STACK = re.compile(r"libcublas(Lt)?\.so")
NO_COPY = re.compile(r"libcu(blas|blasLt|da|dart)\.so")
MARKS = {"X86-64": "IBT, SHSTK", "AArch64": "BTI"}
PATTERNS = ("plimsoll", "libplimsoll.so*", "libplimsoll_record.so", "stub/*.so*")


def readelf(*arguments):
    done = subprocess.run(["readelf", "-W", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def lacks_links(text):
    """What a program or a library lacks by its headers, as `readelf -hld` shows them."""
    stack = re.search(r"GNU_STACK +(?:0x\w+ +){5}([RWE ]+?) +[0-9]", text)
    if not re.search(r"Type: +DYN", text):
        yield "it has a fixed address"
    if "GNU_RELRO" not in text:
        yield "no RELRO: what the dynamic linker fills in stays writable"
    if "Dynamic section" in text and not re.search(r"BIND_NOW|Flags: .*\bNOW\b", text):
        yield "functions are bound when they are called first (no BIND_NOW)"
    if not stack or "E" in stack.group(1):
        yield "its stack is executable"


def lacks_calls(name, text):
    """What it does not call, as `readelf -d --dyn-syms` shows it; a static program shows nothing."""
    if "(NEEDED)" not in text or NO_STACK.match(name):
        return
    if "__stack_chk_" not in text:
        yield "no stack protector"
    if "GLIBC_" in text and not NO_COPY.match(name) and not re.search(r"\b__(?!stack)\w+_chk\b", text):
        yield "no checks of buffers (_FORTIFY_SOURCE)"


def check_file(path):
    text = readelf("-hld", "--dyn-syms", path)
    bad = [*lacks_links(text), *lacks_calls(path.name, text)]
    for text in bad:
        print(f"{path}: {text}")
    return len(bad)


def check_objects(folder):
    """The objects of what a build would install: how many there are, and how many violations."""
    targets = [x for pattern in ("plim_objects", "plimsoll", "plimsoll_record", "plimsoll_stub", "plim_lib*")
               for x in folder.glob(f"CMakeFiles/{pattern}.dir")]
    objects = sorted(x for target in targets for x in target.rglob("*.o"))
    bad = 0
    for at in range(0, len(objects), 100):
        # Of two files or more, readelf says which is which: the first again.
        parts = re.split(r"^File: (.*)$", readelf("-hn", *objects[at:at + 100], objects[0]), flags=re.M)
        for name, text in list(zip(parts[1::2], parts[2::2]))[:-1]:
            machine = re.search(r"Machine: .*?(X86-64|AArch64)", text)
            if machine and MARKS[machine.group(1)] not in text:
                print(f"{name}: indirect jumps may end anywhere (no {MARKS[machine.group(1)]})")
                bad += 1
    return len(objects), bad


def main():
    places = [pathlib.Path(x) for x in sys.argv[1:]]
    if not places or not shutil.which("readelf"):
        print(__doc__ if not places else "readelf was not found")
        return 2 if not places else 77
    objects = bad = 0
    files = places
    if places[0].is_dir():
        found = {x.resolve() for pattern in PATTERNS for x in places[0].glob(pattern)}
        files = sorted(x for x in found if x.is_file() and is_elf(x))
        objects, bad = check_objects(places[0]) if files else (0, 0)
    bad += sum(check_file(x) for x in files)
    print(f"{len(files)} programs and libraries, {objects} objects, {bad} violations")
    return 77 if not files else bad > 0


if __name__ == "__main__":
    sys.exit(main())
