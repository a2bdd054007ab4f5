#!/usr/bin/env python3
"""check.py BUILD -- the installed tree, used by the project of examples/c.

The build is installed below one folder and the tree then moved to another, so that a path of the first would be
noticed.  The example is built with CMake and with pkg-config, with the shared and with the static library, and each
of the four has to print what the installed program says.  Exit 77: no compiler.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "c"
QUESTION = ["resnet18", "t4,a100", "adam"]


def run(*command, **more):
    done = subprocess.run([str(x) for x in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode:
        sys.exit(f"{' '.join(str(x) for x in command)}: exit {done.returncode}\n{done.stdout}")
    return done.stdout


def install(build, folder):
    """The moved tree; no text file in it may name the place where it was installed, or where it was built."""
    first, second = folder / "first", folder / "second"
    run("cmake", "--install", build, "--prefix", first)
    first.rename(second)
    for file in second.rglob("*"):
        if file.is_file() and not file.is_symlink():
            content = file.read_bytes()
            for place in (first, *([build] if b"\0" not in content else [])):
                if os.fsencode(place) in content:
                    sys.exit(f"'{file.relative_to(second)}' names '{place}'")
    return second


def with_cmake(tree, source, out, static):
    shutil.copytree(EXAMPLE, source)
    if static:
        lists = source / "CMakeLists.txt"
        lists.write_text(lists.read_text().replace("Plimsoll::plimsoll)", "Plimsoll::plimsoll_static)"))
    run("cmake", "-S", source, "-B", out, f"-DCMAKE_PREFIX_PATH={tree}")
    run("cmake", "--build", out)
    return out / "largest_batch"


def with_pkg_config(tree, out, static):
    shutil.copytree(EXAMPLE, out)
    pc = next(tree.rglob("plimsoll.pc")).parent
    run("make", "-C", out, *(["STATIC=1"] if static else []), env={**os.environ, "PKG_CONFIG_PATH": str(pc)})
    return out / "largest_batch"


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    if not shutil.which("cc") or not shutil.which("make"):
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        tree = install(build, folder)
        model, cards, optimizer = QUESTION
        fit = json.loads(run(tree / "bin" / "plimsoll", "fit", model, "--gpu", cards, "--optimizer", optimizer, "--json"))
        expected = "".join(f"{row['gpu']}: batch {row['batch']}\n" for row in fit["cards"])
        programs = {}
        for static in (False, True):
            kind = "static" if static else "shared"
            programs[f"CMake, {kind}"] = with_cmake(tree, folder / f"{kind}-source", folder / f"{kind}-cmake", static)
            if shutil.which("pkg-config"):
                programs[f"pkg-config, {kind}"] = with_pkg_config(tree, folder / f"{kind}-pc", static)
        bad = 0
        for how, program in programs.items():
            got = run(program, *QUESTION)
            needs = "libplimsoll" in run("ldd", program) if shutil.which("ldd") else "shared" in how
            if got != expected or needs != ("shared" in how):
                print(f"{how}: needs the shared library: {needs}; it prints\n{got}the program says\n{expected}")
                bad = 1
        print(f"{len(programs)} programs, each: {expected}", end="")
        return bad


if __name__ == "__main__":
    sys.exit(main())
