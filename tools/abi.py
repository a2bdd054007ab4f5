#!/usr/bin/env python3
"""abi.py COMMAND [BUILD] -- the binary interface of the library, measured.

 * record: writes tests/abi/plimsoll.txt, which says of plimsoll.h which functions
   there are, how its structs lie in memory on x86-64, and what its enumerators are.
 * check: compares the headers with that file, and the functions that
   BUILD/libplimsoll.so (build/libplimsoll.so) exports with those that the headers declare.
 * ctypes: compares the ctypes structures, constants and prototypes of plimsoll_front/abi.py,
   front_cuda.py and the Python package with plimsoll.h and plimsoll_vgpu.h.

The headers are read after the preprocessor ($CC, or cc), so they may use macros; what a
struct measures, the compiler says.  plimsoll_vgpu.h and plimsoll_live.h are experimental: not
recorded.  Exit 1: a difference; 77: not an x86-64, nothing was compared.

What a program that was linked with an older version would notice is a break: a function
that is gone or has another prototype, an enumerator with another value, a field that
moved, changed its size or its type, a struct that callers make (it has a PLIM_..._INIT)
with another size, unless it begins with that size.  What it would not notice is an
addition, and has to be recorded.
"""

import ctypes
import importlib.util
import os
import pathlib
import platform
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD = ROOT / "tests" / "abi" / "plimsoll.txt"
STABLE, EXPERIMENTAL, LIVE = "plimsoll.h", "plimsoll_vgpu.h", "plimsoll_live.h"
SHIM = ROOT / "src" / "vgpu" / "torch_shim"
PACKAGE = ROOT / "python" / "plimsoll"
FRONTS = {"plimsoll._errors": PACKAGE / "_errors.py", "plimsoll._library": PACKAGE / "_library.py",
          "plimsoll_front.abi": SHIM / "plimsoll_front" / "abi.py",
          "plimsoll_front_cuda": ROOT / "src" / "vgpu" / "cuda_stub" / "front_cuda.py"}
MARK = "PLIM_ABI_FUNCTION"  # takes the place of PLIM_API
BASE = r"((?:(?:const|volatile|unsigned|signed|long|short|struct|enum)\s+)*\w+)"
COUNTS = re.compile(r"_(COUNT|KINDS)$")  # enumerators that grow when others are added

# ---- reading the headers ------------------------------------------------------


def preprocess(header):
    """The header's own text, after the preprocessor: what it includes is left out."""
    path = ROOT / "include" / header
    command = shlex.split(os.environ.get("CC") or "cc")
    command += ["-E", "-std=c11", f"-DPLIM_API={MARK}", f"-I{path.parent}", str(path)]
    text, own = [], False
    for line in subprocess.run(command, check=True, capture_output=True,
                               text=True).stdout.splitlines():
        marker = re.match(r'# \d+ "(.*?)"', line)
        if marker:
            own = os.path.basename(marker.group(1)) == header
        elif own:
            text.append(line)
    return "\n".join(text)


def squeeze(text):
    """One spelling of a piece of C: single spaces, none after '*' or inside parentheses."""
    text = " ".join(re.sub(r"([*(),\[\]])", r" \1 ", text).split())
    text = re.sub(r"\* (?=[*\w])", "*", text)
    text = re.sub(r" ?([\[\]]) ?", r"\1", text)
    text = re.sub(r"(?<=\() | (?=[),])|(?<=\w) (?=\()", "", text)
    return re.sub(r"\b_Bool\b", "bool", text)


def split_outside(text, mark):
    """Splits at `mark`, except within brackets."""
    parts, depth, part = [], 0, ""
    for c in text:
        depth += (c in "({[") - (c in ")}]")
        if c == mark and not depth:
            parts.append(part)
            part = ""
        else:
            part += c
    return [p for p in map(str.strip, parts + [part]) if p]


def without_name(parameter):
    """A parameter's type: "const char *path" is "const char *"."""
    text = squeeze(parameter)
    m = re.fullmatch(r"(.*[ *])(?!(?:int|char|long|short|double|float|unsigned|bool)\b)"
                     r"([A-Za-z_]\w*)((?:\[\w*\])*)", text)
    return squeeze(m.group(1) + m.group(3)) if m and m.group(1) != "const " else text


def parameters(text):
    return ", ".join(without_name(p) for p in split_outside(text, ","))


def prototype(text):
    """The name, and the prototype without the names of parameters."""
    m = re.fullmatch(r"(.*?)\b(\w+)\s*\((.*)\)", text.strip(), re.S)
    return m.group(2), squeeze(f"{m.group(1)} {m.group(2)}({parameters(m.group(3))})")


def pointer_type(result, text):
    """Of a pointer to a function."""
    return f"{squeeze(result)} (*)({parameters(text)})"


def fields(body):
    """The members of a struct in order: name and type."""
    for declaration in split_outside(body, ";"):
        pointer = re.fullmatch(r"(.*)\(\s*\*\s*(\w+)\s*\)\s*(\(.*\))", declaration, re.S)
        if pointer:
            yield pointer.group(2), pointer_type(pointer.group(1), pointer.group(3)[1:-1])
            continue
        base, rest = re.fullmatch(BASE + r"\b(.*)", declaration, re.S).groups()
        for declarator in split_outside(rest, ","):
            m = re.fullmatch(r"((?:\*|\s|\bconst\b)*)(\w+)\s*((?:\[[^]]*\]\s*)*)", declarator)
            if not m:
                raise SystemExit(f"abi.py: a field that it cannot read: {declaration}")
            yield m.group(2), squeeze(f"{base} {m.group(1)}{m.group(3)}")


class Header:
    """What a header declares."""

    def __init__(self, name):
        text = preprocess(name)
        source = (ROOT / "include" / name).read_text(encoding="utf-8")
        self.name = name
        self.functions = dict(prototype(m) for m in re.findall(rf"{MARK}\b([^;]*);", text))
        self.structs = {m[1]: list(fields(m[0])) for m in re.findall(
            r"typedef struct \w+ \{([^}]*)\}\s*(\w+)\s*;", text)}
        self.enumerators = [m.group() for body in re.findall(r"\benum\b[^{;]*\{([^}]*)\}", text)
                            for entry in split_outside(body, ",")
                            if (m := re.match(r"\w+", entry))]
        self.types = {name: pointer_type(result, text) for result, name, text in re.findall(
            r"typedef ([\w\s*]+?)\(\s*\*\s*(\w+)\s*\)\s*\(([^;]*)\)\s*;", text)}
        self.numbers = re.findall(r"^#define (PLIM_\w+) +[(A-Z0-9][\w()<>+* -]*$", source, re.M)
        self.fixed = {name for name, members in self.structs.items()
                      if f"#define {name.upper()}_INIT" in source and
                      members[0] != ("size", "size_t")}


# ---- measuring ------------------------------------------------------------------


class Layout:
    """A header as the compiler sees it."""

    def __init__(self, header):
        self.sizes, self.fields, self.values = {}, {}, {}
        lines = [f'#include "{header.name}"', "#include <stddef.h>", "#include <stdio.h>",
                 "int main(void)", "{"]
        for name, members in header.structs.items():
            lines.append(f'    printf("size {name} %zu\\n", sizeof({name}));')
            lines += [f'    printf("field {name} {field} %zu %zu\\n", offsetof({name}, {field}), '
                      f"sizeof((({name} *)0)->{field}));" for field, _ in members]
        lines += [f'    printf("value {name} %lld\\n", (long long){name});'
                  for name in header.enumerators + header.numbers]
        for line in self.run("\n".join(lines + ["}", ""])).splitlines():
            what, name, *rest = line.split()
            if what == "size":
                self.sizes[name] = int(rest[0])
            elif what == "field":
                self.fields.setdefault(name, []).append((rest[0], int(rest[1]), int(rest[2])))
            else:
                self.values[name] = int(rest[0])

    @staticmethod
    def run(text):
        """What the C program prints."""
        command = shlex.split(os.environ.get("CC") or "cc")
        with tempfile.TemporaryDirectory() as folder:
            source, program = os.path.join(folder, "probe.c"), os.path.join(folder, "probe")
            pathlib.Path(source).write_text(text, encoding="utf-8")
            subprocess.run([*command, "-std=c11", "-w", f"-I{ROOT / 'include'}", source, "-o",
                            program], check=True)
            return subprocess.run([program], check=True, capture_output=True, text=True).stdout


# ---- the record ---------------------------------------------------------------------


def describe(header, layout):
    """What is recorded: a key and what is said of it."""
    out = {}
    for name, text in header.functions.items():
        out["function " + name] = text
    for name, text in header.types.items():
        out["type " + name] = text
    for name in header.enumerators:
        out["enumerator " + name] = str(layout.values[name])
    for name, members in header.structs.items():
        out["struct " + name] = f"size {layout.sizes[name]}" + (
            ", fixed" if name in header.fixed else "")
        for (field, kind), (_, offset, size) in zip(members, layout.fields[name]):
            out[f"field {name}.{field}"] = f"offset {offset}, size {size}, {kind}"
    return out


def read_record():
    if not RECORD.exists():
        raise SystemExit(f"abi.py: no {RECORD.relative_to(ROOT)}: tools/abi.py record "
                         "writes it")
    lines = RECORD.read_text(encoding="utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines if line and line[0] != "#")


def record(_):
    header = Header(STABLE)
    now = describe(header, Layout(header))
    RECORD.parent.mkdir(exist_ok=True)
    with RECORD.open("w", encoding="utf-8") as f:
        f.write(f"# The binary interface of {STABLE} on x86-64, as it was last recorded.\n"
                "# Made by: tools/abi.py record\n")
        f.writelines(f"{key}: {now[key]}\n" for key in sorted(now))
    return []


def size_in(text):
    return int(re.search(r"size (\d+)", text).group(1))


def is_break(key, was, now):
    """Whether a program that was linked before would notice; was or now None: not there."""
    kind, name = key.split(" ", 1)
    if was is None:  # if it took the place of something, that has moved
        return False
    if now is None:
        return True
    if kind == "struct":  # its size alone: only those notice who make one
        return "fixed" in was or size_in(now) < size_in(was)
    if kind == "enumerator" and COUNTS.search(name):
        return int(now) < int(was)
    return True


def compare_record(was, now):
    breaks, additions = [], []
    for key in sorted(set(was) | set(now)):
        old, new = was.get(key), now.get(key)
        if old == new:
            continue
        text = f"{key}\n    recorded: {old or 'not there'}\n    now:      {new or 'not there'}"
        (breaks if is_break(key, old, new) else additions).append(text)
    if breaks:
        yield "breaks of the binary interface:\n" + "\n".join(breaks)
    if additions:
        yield "allowed additions that are not recorded:\n" + "\n".join(additions)
    if breaks or additions:
        yield ("where this is meant, 'tools/abi.py record' writes it down; a break also "
               "needs another soname")


def compare_exports(build):
    """What the shared library exports is what the headers declare."""
    library = build / "libplimsoll.so"
    if not library.exists():
        return
    listed = subprocess.run(["nm", "-D", "--defined-only", str(library)], check=True,
                            capture_output=True, text=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in listed.splitlines() if line}
    exported = {name for name in exported if not name.startswith("_")}
    declared = {f for name in (STABLE, EXPERIMENTAL, LIVE) for f in Header(name).functions}
    for name in sorted(exported - declared):
        yield f"'{name}' is exported, but no header declares it"
    for name in sorted(declared - exported):
        yield f"'{name}' is declared, but the library does not export it"


def check(build):
    header = Header(STABLE)
    yield from compare_record(read_record(), describe(header, Layout(header)))
    yield from compare_exports(build)


# ---- ctypes ----------------------------------------------------------------------------


def load_fronts():
    sys.dont_write_bytecode = True
    sys.path[:0] = [str(SHIM), str(PACKAGE.parent)]
    for name, path in FRONTS.items():
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        yield path.name, module


def compare_structure(where, cls, layout):
    """A ctypes structure against the C struct that its c_type names."""
    name = getattr(cls, "c_type", None)
    if name not in layout.sizes:
        yield f"{where}: c_type is {name!r}, which no header has"
        return
    ours = [(field, getattr(cls, field).offset, getattr(cls, field).size)
            for field, _ in cls._fields_]
    for have, want in zip(ours, layout.fields[name]):
        if have != want:
            yield (f"{where}: '{have[0]}' is at {have[1]} with {have[2]} bytes; in {name} "
                   f"'{want[0]}' is at {want[1]} with {want[2]}")
    if len(ours) != len(layout.fields[name]):
        yield f"{where}: {len(ours)} fields; {name} has {len(layout.fields[name])}"
    if ctypes.sizeof(cls) != layout.sizes[name]:
        yield f"{where}: {ctypes.sizeof(cls)} bytes; {name} has {layout.sizes[name]}"


def compare_constants(where, cls, layout):
    """The numbers of a class against the enumerators whose names begin with c_prefix."""
    for name, value in vars(cls).items():
        full = cls.c_prefix + name
        if name.isupper() and layout.values.get(full) != value:
            yield f"{where}.{name} is {value}; {full} is {layout.values.get(full, 'not there')}"


SCALARS = {"bool": 1, "int": 4, "uint32_t": 4, "uint64_t": 8, "size_t": 8,
           "plim_put": 8, "plim_progress": 8}  # any other type is a pointer or an enumeration


def compare_prototypes(where, module, functions):
    """What ctypes passes to each function that a module's PROTOTYPES names: the number, and
    the size of each."""
    for name, (_, *given) in vars(module).get("PROTOTYPES", {}).items():
        if name not in functions:
            yield f"{where}: no header has '{name}'"
            continue
        text = functions[name]
        taken = [t for t in text[text.index("(") + 1:-1].split(", ") if t != "void"]
        wanted = [8 if "*" in t else SCALARS.get(t, 4) for t in taken]
        if [ctypes.sizeof(t) for t in given] != wanted:
            yield f"{where}: the arguments of '{name}' are not those of {text}"


def check_ctypes(_):
    functions = {**Header(STABLE).functions, **Header(EXPERIMENTAL).functions}
    both, more = Layout(Header(STABLE)), Layout(Header(EXPERIMENTAL))
    both.sizes.update(more.sizes)
    both.fields.update(more.fields)
    both.values.update(more.values)
    compared = 0
    for file, module in load_fronts():
        yield from compare_prototypes(file, module, functions)
        for name, cls in vars(module).items():
            if not isinstance(cls, type) or cls.__module__ != module.__name__:
                continue
            if issubclass(cls, ctypes.Structure):
                yield from compare_structure(f"{file}: {name}", cls, both)
                compared += 1
            elif hasattr(cls, "c_prefix"):
                yield from compare_constants(f"{file}: {name}", cls, both)
                compared += 1
    if not compared:
        yield "no structure was found in " + ", ".join(p.name for p in FRONTS.values())


COMMANDS = {"record": record, "check": check, "ctypes": check_ctypes}


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in COMMANDS:
        print(f"usage: abi.py {'|'.join(COMMANDS)} [BUILD]", file=sys.stderr)
        return 2
    if platform.machine() not in ("x86_64", "AMD64"):
        print(f"not an x86-64 but '{platform.machine()}': nothing was compared")
        return 77
    build = pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else ROOT / "build"
    problems = list(COMMANDS[sys.argv[1]](build))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
