#!/usr/bin/env python3
"""builds.py -- programs for other machines, compared with the native one: the same commands, the same bytes.

    tests/torture/builds.py PROGRAM [--work DIR] [--tools DIR] [--only NAME,...]

Builds the working tree for machines of 32 bits (gcc -m32), with musl (musl-gcc), and for AArch64, which QEMU runs; asks each what PROGRAM
is asked, and compares what is printed and the exit code. A word size, an order of evaluation or a libc that changes a
figure is a mistake. Files over the 4 GiB that 32 bits can address must be refused in words.

The source of zlib, and zig for AArch64, are those of tools/dist.py, which fetches them (--tools; build-dist/tools). What
cannot be built or run here is left out with a line that says why; exit 77 if nothing is left, 1 if anything differs.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data"
sys.path.insert(0, str(ROOT / "tools"))
import dist  # noqa: E402

COMMANDS = """
info alexnet.pt2 --json
info mobilenet_v2.pt2 --json
info vit_b_16.pt2 --csv
info every_type.safetensors --json
info every_type.gguf --json
info big_endian.gguf --json
info tiny.gguf --json
info mix_214.pth --json
info gptq.safetensors --json
info llama-7b --json
info resnet50 --json
layers resnet18.pt2 --json
layers version_attend_mask.pt2 --json
layers small_tied.pt2 --csv
layers unet --batch 3 --json
layers llama-tiny --json
estimate resnet50 --batch 32 --optimizer adam --json
estimate resnet50 --batch 32 --optimizer sgd,momentum=0.9 --gpu rtx4090 --json
estimate vit_b_16 --batch 7 --autocast bf16 --json
estimate densenet121 --batch 4 --checkpoint segments=3 --json
estimate inception_v3 --batch 9 --infer --json
estimate convnext_tiny --batch 2 --gpu h100 --json
estimate alexnet.pt2 --json
estimate mobilenet_v2.pt2 --explain batch --json
estimate llama-7b --batch 1 --seq 512 --dtype bf16 --gpu a100-80gb --json
estimate llama-70b --batch 1 --seq 64 --dtype bf16 --optimizer sgd --json
estimate llama-70b --batch 4096 --seq 4096 --dtype fp32 --json
estimate llama-7b --seq 128 --batch 1 --dp 8 --strategy fsdp2 --json
estimate pretrain_gpt.sh --json
estimate swin_t --batch 2
estimate small_sparse.pt2 --json
fit resnet50 --gpu rtx4090 --json
fit vgg16 --gpu rtx3060-12gb --optimizer adam --json
fit llama-7b --seq 256 --gpu h100 --json
compare resnet18 resnet34 --batch 8 --json
diff resnet18 resnet18 --batch 8 --json
serve llama-7b --engine vllm --gpu h100 --context 2048 --concurrency 4 --json
replay train.pickle --json
replay run.pickle --json
oom crash.pickle
tape lenet5 --batch 2
size 4294967296x4294967295 --json
size 65536x65537 --json
gpus --json
models --json
optimizers --json
estimate resnet50 --batch 9223372036854775807
estimate resnet50 --batch 99999999999
info no-such-model
info crash.pickle
""".strip().splitlines()


class Build(NamedTuple):
    name: str
    zig: str = ""  # its target; else a compiler with flags
    compiler: str = "gcc"
    flags: str = ""
    link: str = ""
    runner: str = ""  # a program that runs it


BUILDS = (
    Build("32-bit", flags="-m32 -D_FILE_OFFSET_BITS=64"),
    Build("musl", compiler="musl-gcc", link="-static"),
    Build("aarch64", zig="aarch64-linux-musl", runner="qemu-aarch64-static"),
)


class Left(Exception):
    """Why a build is left out."""


def run(*command, **more):
    command = [str(x) for x in command]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more)
    if done.returncode:
        raise Left(f"{' '.join(command[:4])}: exit {done.returncode}\n{done.stdout[-2000:]}")


def find_tools(tools):
    """The folder of zlib's source, and zig or None."""
    zlib = tools / f"zlib-{dist.ZLIB}"
    zig = next((tools / "venv/lib").glob("python*/site-packages/ziglang/zig"), None)
    return (zlib if zlib.is_dir() else None), zig


def build(b, work, tools):
    """The command of the program, which is built unless it is there; what was changed is built again."""
    zlib, zig = find_tools(tools)
    if not zlib:
        raise Left(f"there is no source of zlib in '{tools}': see tools/dist.py")
    if b.zig and not zig:
        raise Left(f"there is no zig in '{tools}': see tools/dist.py")
    for needed in ([] if b.zig else [b.compiler]) + [b.runner] * bool(b.runner):
        if not shutil.which(needed):
            raise Left(f"there is no '{needed}'")
    folder = work / b.name
    folder.mkdir(parents=True, exist_ok=True)
    compiler = [zig, "cc", "-target", b.zig] if b.zig else [b.compiler, *b.flags.split()]
    archiver = [zig, "ar"] if b.zig else ["ar"]
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(work / "cache"), "ZIG_LOCAL_CACHE_DIR": str(work / "cache")}
    library = folder / "libz.a"
    if not library.exists():
        for name in dist.ZLIB_SOURCES:
            run(*compiler, "-O2", "-fPIC", "-c", zlib / f"{name}.c", "-o", folder / f"{name}.o", env=environment)
        run(*archiver, "rcs", library, *(folder / f"{name}.o" for name in dist.ZLIB_SOURCES), env=environment)
    flags = [f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/cmake/zig.cmake", f"-DZIG={zig}", f"-DZIG_TARGET={b.zig}"] if b.zig else \
        [f"-DCMAKE_C_COMPILER={b.compiler}", f"-DCMAKE_C_FLAGS={b.flags}", f"-DCMAKE_EXE_LINKER_FLAGS={b.link}"]
    run("cmake", "-S", ROOT, "-B", folder / "build", *flags, "-DPLIM_TESTS=OFF", f"-DZLIB_INCLUDE_DIR={zlib}",
        f"-DZLIB_LIBRARY={library}", "-DCMAKE_DISABLE_FIND_PACKAGE_Curses=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_SQLite3=ON",
        env=environment)
    run("cmake", "--build", folder / "build", f"-j{os.cpu_count()}", "--target", "plimsoll", env=environment)
    program = [folder / "build/plimsoll"]
    return [b.runner, *program] if b.runner else program


def ask(program, command, folder=DATA):
    """What it prints, to stdout and to stderr, and its exit code."""
    done = subprocess.run([str(x) for x in program] + command.split(), cwd=folder, stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=600, check=False, env={**os.environ, "NO_COLOR": "1", "COLUMNS": "100"})
    return done.stdout, done.stderr, done.returncode


def first_difference(a, b):
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return f"byte {at}: {a[max(at - 60, 0):at + 40]!r} / {b[max(at - 60, 0):at + 40]!r}"


def compare(name, native, other):
    """How many of the commands differ."""
    bad = 0
    for command in COMMANDS:
        want, got = native[command], ask(other, command)
        for what, x, y in zip(("stdout", "stderr", "exit"), want, got):
            if x != y:
                print(f"FAIL  {name}: {command}: {what}: {first_difference(x, y) if what != 'exit' else f'{x} / {y}'}")
                bad += 1
                break
    print(f"{'ok   ' if not bad else 'FAIL '} {name}: {len(COMMANDS) - bad} of {len(COMMANDS)} commands print the same bytes",
          flush=True)
    return bad


def check_large(program):
    """A file whose size has 1024 as its low 32 bits, with holes: no part of it may be taken for it."""
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in ("large.safetensors", "large.gguf", "large.pt2", "large.onnx", "large.pickle"):
            path = pathlib.Path(folder) / name
            with open(path, "wb") as file:
                file.truncate((1 << 32) + 1024)
            for command in ("info", "estimate", "replay"):
                _, said, code = ask(program, f"{command} {name}", folder)
                if code in (0, 70) or code < 0 or code > 128 or b"more than this build can address" not in said:
                    print(f"FAIL  32-bit: {command} {name}: exit {code}: {said.decode(errors='replace').strip()}")
                    bad += 1
    print(f"{'ok   ' if not bad else 'FAIL '} 32-bit: files of 4294968320 bytes are refused in words")
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build-torture")
    parser.add_argument("--tools", type=pathlib.Path, default=ROOT / "build-dist/tools")
    parser.add_argument("--only", default=",".join(b.name for b in BUILDS))
    asked = parser.parse_args()
    native = {command: ask([asked.program.resolve()], command) for command in COMMANDS}
    for command, (_, said, code) in native.items():
        if code not in (0, 1) and not said.startswith(b"plimsoll: "):
            sys.exit(f"builds.py: '{command}': exit {code}: {said.decode(errors='replace')}")
    bad = compared = 0
    for b in BUILDS:
        if b.name not in asked.only.split(","):
            continue
        try:
            program = build(b, asked.work.resolve(), asked.tools.resolve())
            ask(program, "--version")
        except (Left, OSError) as why:
            print(f"skip  {b.name}: {why}", flush=True)
            continue
        compared += 1
        bad += compare(b.name, native, program)
        if b.name == "32-bit":
            bad += check_large(program)
    sys.exit(77 if not compared else bad > 0)


if __name__ == "__main__":
    main()
