#!/usr/bin/env python3
"""check.py WORK -- builds the fuzzers as OSS-Fuzz does, and starts each.

WORK keeps what was compiled. Without optimization and with libFuzzer alone, so that it takes less long. Exit status 77: there is
no clang, or it has no libFuzzer.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
FUZZ, ROOT = HERE.parent, HERE.parents[2]
ENGINE = "-fsanitize=fuzzer"
bad = 0


def check(what, good, more=""):
    global bad
    if not good:
        bad += 1
        print(f"not so: {what}: {str(more)[-2000:]}")


def run(*command, **more):
    done = subprocess.run([str(x) for x in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more)
    return done.returncode, done.stdout


def has_engine(folder):
    source = folder / "empty.c"
    source.write_text("#include <stddef.h>\n#include <stdint.h>\n"
                      "int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) { return p && n == SIZE_MAX; }\n")
    return all(map(shutil.which, ("clang", "clang++"))) and run("clang", ENGINE, source, "-o", folder / "empty")[0] == 0


def check_target(name, out):
    files = sorted(x.name for x in (FUZZ / "corpus" / name).iterdir())
    with zipfile.ZipFile(out / f"fuzz_{name}_seed_corpus.zip") as corpus:
        check(f"{name}: its corpus", sorted(corpus.namelist()) == files, corpus.namelist())
    words = out / f"fuzz_{name}.dict"
    status, text = run(out / f"fuzz_{name}", "-runs=1", *([f"-dict={words}"] if words.exists() else []), cwd=out)
    count = len(words.read_text().splitlines()) if words.exists() else 0
    check(f"{name}: it starts", status == 0 and re.search(r"Done \d runs", text), text)
    check(f"{name}: its {count} words are read", not count or f"Dictionary: {count} entries" in text, text)
    return count


def check_files():
    """What OSS-Fuzz reads before it builds."""
    project = (HERE / "project.yaml").read_text()
    keys = set(re.findall(r"^(\w+):", project, re.M))
    check("project.yaml has what is asked for", {"homepage", "main_repo", "language", "primary_contact", "sanitizers"} <= keys, keys)
    check("the Dockerfile begins with the image", (HERE / "Dockerfile").read_text().startswith("FROM gcr.io/oss-fuzz-base/base-builder\n"))


def main():
    work = pathlib.Path(sys.argv[1]).resolve()
    check_files()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if not has_engine(folder):
            print("no clang with libFuzzer")
            return 1 if bad else 77
        out = folder / "out"
        out.mkdir()
        (work / "src").mkdir(parents=True, exist_ok=True)
        if not (work / "src/plimsoll").exists():
            (work / "src/plimsoll").symlink_to(ROOT)
        flags = "-O0 -fsanitize=fuzzer-no-link"
        status, text = run(HERE / "build.sh", env={**os.environ, "SRC": str(work / "src"), "WORK": str(work), "OUT": str(out), "CC": "clang",
                                                   "CXX": "clang++", "CFLAGS": flags, "CXXFLAGS": flags, "LIB_FUZZING_ENGINE": ENGINE})
        check("build.sh", status == 0, text)
        targets = sorted(x.stem.removeprefix("fuzz_") for x in FUZZ.glob("fuzz_*.c"))
        built = sorted(x.name.removeprefix("fuzz_") for x in out.iterdir() if not x.suffix)
        check("each target is built", built == targets, (built, targets))
        words = sum(check_target(x, out) for x in built)
    print(f"{len(built)} fuzzers, {words} words, {bad} problems")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
