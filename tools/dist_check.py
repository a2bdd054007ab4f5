#!/usr/bin/env python3
"""dist_check.py -- examines what tools/dist.py has made.

    tools/dist_check.py OUT TOOLS

The checksums; that every transcript of tests/cli passes with the programs for Linux, that for another machine under
qemu-user; that the .deb packages unpack to a program that runs, and what lintian says of them; what twine and auditwheel
say of the wheels, and that one works in a new virtual environment; that a C program can be built against the archive.
TOOLS is a folder for a virtual environment. Exit 1: something is wrong; what is not installed is named, not examined.
"""
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
AUDITWHEEL, TWINE = "auditwheel==6.8.2", "twine==6.2.0"
WHEEL_LIMIT = 2_000_000  # bytes
bad = 0


def report(what, wrong=""):
    global bad
    bad += bool(wrong)
    print(f"{'WRONG' if wrong else 'ok   '} {what}" + (f"\n{wrong}" if wrong else ""), flush=True)


def run(*command, **more):
    """The exit status and the output, both streams."""
    done = subprocess.run([str(x) for x in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more)
    return done.returncode, done.stdout


def expect(what, *command, **more):
    code, text = run(*command, **more)
    report(what, f"exit {code}\n{text[-4000:]}" if code else "")
    return text


def check_sums(out):
    rows = [line.split("  ") for line in (out / "SHA256SUMS").read_text().splitlines()]
    wrong = [name for digest, name in rows if hashlib.sha256((out / name).read_bytes()).hexdigest() != digest]
    missing = {x.name for x in out.iterdir()} - {name for _, name in rows} - {"SHA256SUMS"}
    report(f"SHA256SUMS: {len(rows)} files", " ".join([*wrong, *missing]))


def emulated(program, machine, folder):
    """A program that runs `program` here: itself, or a script with the emulator; None: there is no emulator."""
    if machine == platform.machine():
        return program
    qemu = shutil.which(f"qemu-{machine}-static") or shutil.which(f"qemu-{machine}")
    if not qemu:
        return None
    script = folder / "emulated" / "plimsoll"
    script.parent.mkdir(exist_ok=True)
    script.write_text(f'#!/bin/sh\nexec {qemu} {program} "$@"\n')
    script.chmod(0o755)
    return script


def check_archive(archive, version, folder):
    name = archive.name.removesuffix(".tar.gz")
    machine, system = re.fullmatch(rf"plimsoll-{re.escape(version)}-(\w+)-(\w+)", name).groups()
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    tree = folder / name
    missing = [x for x in ("LICENSE", "README.md", "CHANGELOG.md", "THIRD-PARTY.txt", "bin/plimsoll", "include/plimsoll.h",
                           "share/man/man1/plimsoll.1", "share/bash-completion/completions/plimsoll",
                           "share/zsh/site-functions/_plimsoll", "share/fish/vendor_completions.d/plimsoll.fish")
               if not (tree / x).exists()]
    report(f"{archive.name}: {archive.stat().st_size:,} bytes", " ".join(missing))
    if system != "linux":
        print(f"      {name}: built, not run")
        return tree
    text = run("readelf", "-ld", tree / "bin/plimsoll")[1]
    report(f"{name}: the program is static", text if "NEEDED" in text or "INTERP" in text else "")
    program = emulated(tree / "bin/plimsoll", machine, folder)
    if program:
        transcripts = sorted((ROOT / "tests/cli").glob("*.txt"))
        expect(f"{name}: {len(transcripts)} transcripts", sys.executable, ROOT / "tools/check_docs.py", "--program", program,
               *transcripts)
    else:
        print(f"      {name}: not run (qemu-user-static is not installed)")
    return tree


def check_c(tree, folder):
    """The example project against the unpacked archive, with pkg-config."""
    if not shutil.which("pkg-config") or not shutil.which("cc"):
        return
    for static in ([], ["STATIC=1"]):
        example = folder / f"example{len(static)}"
        shutil.copytree(ROOT / "examples/c", example)
        expect(f"examples/c, {'static' if static else 'shared'} library", "make", "-C", example, *static,
               env={**os.environ, "PKG_CONFIG_PATH": str(tree / "lib/pkgconfig")})
        expect("its program", example / "largest_batch", "resnet18", "t4")


def check_deb(deb, folder):
    tree = folder / deb.stem
    expect(f"{deb.name}: {deb.stat().st_size:,} bytes", "dpkg-deb", "-x", deb, tree)
    machine = {"amd64": "x86_64", "arm64": "aarch64"}[deb.stem.split("_")[-1]]
    if machine == platform.machine():
        expect(f"{deb.name}: its program", tree / "usr/bin/plimsoll", "estimate", "resnet18", "--quiet")
    if shutil.which("lintian"):
        code, text = run("lintian", "--fail-on", "error,warning", deb)
        report(f"{deb.name}: lintian", text if code else "")
    else:
        print(f"      {deb.name}: lintian is not installed")


def check_wheels(wheels, tools, folder):
    python = tools / "checks/bin/python"
    if not python.exists():
        run(sys.executable, "-m", "venv", tools / "checks")
        expect("the tools for wheels", python, "-m", "pip", "install", "-q", AUDITWHEEL, TWINE)
    (folder / "no-libraries").mkdir()
    expect("twine check", python, "-m", "twine", "check", "--strict", *wheels)
    for wheel in wheels:
        size = wheel.stat().st_size
        report(f"{wheel.name}: {size:,} bytes", f"over {WHEEL_LIMIT:,}" if size > WHEEL_LIMIT else "")
        # Without this it finds the glibc of this machine under the name of musl.
        libraries = ["--ldpaths", folder / "no-libraries"] if "musllinux" in wheel.name else []
        text = expect(f"{wheel.name}: auditwheel", python, "-m", "auditwheel", "show", *libraries, wheel)
        said = re.search(r'platform tag:\s*"([^"]+)"', text)
        tags = wheel.stem.split("-")[-1].split(".")
        report(f"{wheel.name}: auditwheel agrees with the tag", "" if said and said.group(1) in tags else text)
    here = next((x for x in wheels if f"manylinux_2_17_{platform.machine()}" in x.name), None)
    if here:
        run(sys.executable, "-m", "venv", folder / "venv")
        expect("pip install", folder / "venv/bin/python", "-m", "pip", "install", "-q", "--no-index", here)
        path = {"PATH": str(folder / "venv/bin"), "HOME": str(folder)}  # no compiler
        expect("plimsoll of the wheel", folder / "venv/bin/plimsoll", "estimate", "resnet50", env=path)
        expect("import plimsoll", folder / "venv/bin/python", "-c", "import plimsoll; print(plimsoll.estimate('resnet50', batch=32))",
               env=path, cwd=folder)


def check_sbom(file, version):
    bom = json.loads(file.read_text())
    parts = {x["name"]: x["version"] for x in bom["components"]}
    mine = bom["metadata"]["component"]
    report(f"{file.name}: {parts}", "" if mine["version"] == version and parts.get("zlib") else str(bom))


def main():
    out, tools = (pathlib.Path(x).resolve() for x in sys.argv[1:])
    version = re.search(r'PLIM_VERSION "([0-9.]+)"', (ROOT / "include/plimsoll.h").read_text()).group(1)
    check_sums(out)
    check_sbom(next(out.glob("*.cdx.json")), version)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(folder.stat().st_mode | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
        for deb in sorted(out.glob("*.deb")):
            check_deb(deb, folder)
        trees = {x.name: check_archive(x, version, folder) for x in sorted(out.glob("*.tar.gz")) if "source" not in x.name}
        for archive, tree in trees.items():
            if f"{platform.machine()}-linux" in archive:
                check_c(tree, folder)
        wheels = sorted(out.glob("*.whl"))
        if wheels:
            check_wheels(wheels, tools, folder)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
