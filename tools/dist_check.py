#!/usr/bin/env python3
"""dist_check.py -- examines what tools/dist.py has made.

    tools/dist_check.py OUT TOOLS

The checksums; that every transcript of tests/cli passes with the programs for Linux, that for another machine under
qemu-user, and with that for Windows under wine, but for what WINDOWS_DIFFERS names; that all for Linux is hardened; that the .deb
packages unpack to a program that runs, and what lintian says of them; what twine and auditwheel say of the wheels, that one
works in a new virtual environment, and that a C program on musl can load the library of another; that a C program can be
built against the archives.
TOOLS is a folder for a virtual environment. Exit 1: something is wrong; what is not installed is named, not examined.
"""
import contextlib
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
import zipfile

import check_hardening

ROOT = pathlib.Path(__file__).resolve().parent.parent
AUDITWHEEL, TWINE = "auditwheel==6.8.2", "twine==6.2.0"
WHEEL_LIMIT = 2_000_000  # bytes
WINE = "/usr/lib/wine/wine64"  # Debian's, which needs nothing for programs of 32 bits
WINESERVER = "/usr/lib/wine/wineserver64"
# Commands of the transcripts that print something else on Windows or under wine, and why.
WINDOWS_DIFFERS = (
    r"plimsoll run ",  # is not for Windows
    r"plimsoll( help)?$",  # says so
    r"plimsoll help (run|record|top)$",  # not for Windows either
    r">&-",  # wine's stdout is never closed
    r"m=models--acme",  # wine does not pass HOME on
)
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


def unpack(archive, folder):
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(folder)
        return folder / archive.stem
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def check_archive(archive, version, folder):
    tree = unpack(archive, folder)
    name = tree.name
    machine, system = re.fullmatch(rf"plimsoll-{re.escape(version)}-(\w+)-(\w+)", name).groups()
    program = tree / ("bin/plimsoll.exe" if system == "windows" else "bin/plimsoll")
    missing = [x for x in ("LICENSE", "README.md", "CHANGELOG.md", "THIRD-PARTY.txt", program, "include/plimsoll.h",
                           "share/man/man1/plimsoll.1", "share/bash-completion/completions/plimsoll",
                           "share/zsh/site-functions/_plimsoll", "share/fish/vendor_completions.d/plimsoll.fish")
               if not (tree / x).exists()]
    report(f"{archive.name}: {archive.stat().st_size:,} bytes", " ".join(map(str, missing)))
    if system == "windows":
        check_windows(tree, archive.parent, folder)
    elif system == "linux":
        check_linux(tree, machine, folder)
    else:
        print(f"      {name}: built, not run")
    return tree


def check_hardened(name, tree):
    """What cmake/hardening.cmake gives programs and libraries."""
    files = [x for x in sorted(tree.rglob("*")) if x.is_file() and not x.is_symlink() and check_hardening.is_elf(x)]
    expect(f"{name}: {len(files)} hardened programs and libraries", sys.executable, ROOT / "tools/check_hardening.py", *files)


def check_linux(tree, machine, folder):
    check_hardened(tree.name, tree)
    text = run("readelf", "-ld", tree / "bin/plimsoll")[1]
    report(f"{tree.name}: the program is static", text if "NEEDED" in text or "INTERP" in text else "")
    program = emulated(tree / "bin/plimsoll", machine, folder)
    if program:
        transcripts = sorted((ROOT / "tests/cli").glob("*.txt"))
        expect(f"{tree.name}: {len(transcripts)} transcripts", sys.executable, ROOT / "tools/check_docs.py", "--program", program,
               *transcripts)
    else:
        print(f"      {tree.name}: not run (qemu-user-static is not installed)")


@contextlib.contextmanager
def wine_environment(folder):
    """For a folder with a Windows of its own. Its services are started first and stay: they hold open the output of the
    program that starts them."""
    wine = {**os.environ, "WINEPREFIX": str(folder / "wine"), "WINEDEBUG": "-all"}
    quiet = {"env": wine, "stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": False}
    (folder / "wine").mkdir()
    subprocess.run([WINESERVER, "-p"], **quiet)
    try:
        subprocess.run([WINE, "wineboot", "-i"], **quiet)
        yield wine
    finally:
        subprocess.run([WINESERVER, "-k"], **quiet)


def check_windows(tree, out, folder):
    """The programs of the archive and of the wheel under wine."""
    if not pathlib.Path(WINE).exists():
        print(f"      {tree.name}: not run (wine64 is not installed)")
        return
    script = folder / "on-wine/plimsoll"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexport WINEPREFIX={folder}/wine WINEDEBUG=-all\nexec {WINE} {tree}/bin/plimsoll.exe "$@"\n')
    script.chmod(0o755)
    transcripts = sorted((ROOT / "tests/cli").glob("*.txt"))
    with wine_environment(folder) as wine:
        text = run(sys.executable, ROOT / "tools/check_docs.py", "--program", script, *transcripts)[1]
        differ = re.findall(r"^\S+\.txt:\d+: \$ .*", text, re.M)
        wrong = [x for x in differ or [text] if not any(re.search(y, x) for y in WINDOWS_DIFFERS)]
        report(f"{tree.name}: {len(transcripts)} transcripts under wine, {len(differ)} commands differ as expected", "\n".join(wrong))
        for wheel in out.glob("*win_amd64.whl"):  # whose program uses the library
            with zipfile.ZipFile(wheel) as packed:
                packed.extractall(folder / "on-windows")
            expect(f"{wheel.name}: its program under wine", WINE, folder / "on-windows/plimsoll/_dist/bin/plimsoll.exe", "estimate",
                   "resnet50", "--quiet", env=wine)


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
    check_hardened(deb.name, tree)
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
    linux = [x for x in wheels if "linux" in x.name]
    expect("twine check", python, "-m", "twine", "check", "--strict", *wheels)
    for wheel in wheels:
        size = wheel.stat().st_size
        report(f"{wheel.name}: {size:,} bytes", f"over {WHEEL_LIMIT:,}" if size > WHEEL_LIMIT else "")
    for wheel in linux:
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(folder / wheel.stem)
        check_hardened(wheel.name, folder / wheel.stem)
        # Without this it finds the glibc of this machine under the name of musl.
        libraries = ["--ldpaths", folder / "no-libraries"] if "musllinux" in wheel.name else []
        text = expect(f"{wheel.name}: auditwheel", python, "-m", "auditwheel", "show", *libraries, wheel)
        said = re.search(r'platform tag:\s*"([^"]+)"', text)
        tags = wheel.stem.split("-")[-1].split(".")
        report(f"{wheel.name}: auditwheel agrees with the tag", "" if said and said.group(1) in tags else text)
    for wheel in linux:
        if f"musllinux_1_2_{platform.machine()}" in wheel.name:
            check_musl(wheel, folder)
    here = next((x for x in wheels if f"manylinux_2_17_{platform.machine()}" in x.name), None)
    if here:
        run(sys.executable, "-m", "venv", folder / "venv")
        expect("pip install", folder / "venv/bin/python", "-m", "pip", "install", "-q", "--no-index", here)
        path = {"PATH": str(folder / "venv/bin"), "HOME": str(folder)}  # no compiler
        expect("plimsoll of the wheel", folder / "venv/bin/plimsoll", "estimate", "resnet50", env=path)
        expect("import plimsoll", folder / "venv/bin/python", "-c", "import plimsoll; print(plimsoll.estimate('resnet50', batch=32))",
               env=path, cwd=folder)


def check_musl(wheel, folder):
    """The library of a wheel in a program that is linked with musl, and the program of the wheel."""
    if not shutil.which("musl-gcc"):
        print(f"      {wheel.name}: not used on musl (musl-tools is not installed)")
        return
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder / "on-musl")
    tree, load = folder / "on-musl/plimsoll/_dist", folder / "load"
    expect("tests/install/load.c for musl", "musl-gcc", ROOT / "tests/install/load.c", "-I", ROOT / "include", "-o", load)
    expect(f"{wheel.name}: the library in a process on musl", load, tree / "lib/libplimsoll.so")
    (tree / "bin/plimsoll").chmod(0o755)
    expect(f"{wheel.name}: the program", tree / "bin/plimsoll", "estimate", "resnet50", "--quiet")


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
        archives = sorted([*out.glob("*.tar.gz"), *out.glob("*.zip")])
        trees = {x.name: check_archive(x, version, folder) for x in archives if "source" not in x.name}
        for archive, tree in trees.items():
            if f"{platform.machine()}-linux" in archive:
                check_c(tree, folder)
        wheels = sorted(out.glob("*.whl"))
        if wheels:
            check_wheels(wheels, tools, folder)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
