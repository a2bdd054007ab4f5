#!/usr/bin/env python3
"""fetch.py -- what tools/dist.py fetches, from an archive that is not whole, and from none.

In place of apt-get there is a script; pip is asked for wheels of an empty folder. Exit status 77: Python cannot make virtual
environments here.
"""
import hashlib
import importlib.util
import io
import os
import pathlib
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests/run")]
import dist  # noqa: E402
from problems import check, problems  # noqa: E402

# Debian has replaced its own files of the package; the archive of the source is there.
APT = """#!/bin/sh
case "$*" in
*Error-Mode=any*update) exit 0;;
*update) echo "the lists that failed are not an error" >&2; exit 9;;
*--tar-only*) cp "${0%/*}/zlib.tar.gz" "./zlib_1.3.dfsg+really1.3.1.orig.tar.gz";;
*) echo "E: Failed to fetch zlib_1.3.dfsg+really1.3.1-1.dsc  404  Not Found" >&2; exit 100;;
esac
"""
NO_NETWORK = """#!/bin/sh
echo "Err:1 http://debian.example trixie InRelease"
echo "E: Failed to fetch http://debian.example/InRelease  Could not resolve host" >&2
exit 100
"""
def ending(call, *arguments):
    """With what it ends the program; '': it does not."""
    try:
        call(*arguments)
    except SystemExit as end:
        return str(end)
    return ""


def write_apt(folder, text):
    (folder / "apt-get").write_text(text)
    (folder / "apt-get").chmod(0o755)


def write_zlib(folder):
    with tarfile.open(folder / "zlib.tar.gz", "w:gz") as tar:
        info = tarfile.TarInfo("zlib-1.3.1/zlib.h")
        info.size = 4
        tar.addfile(info, io.BytesIO(b"zlib"))
    return hashlib.sha256((folder / "zlib.tar.gz").read_bytes()).hexdigest()


def zlib(folder, tools):
    write_apt(folder, NO_NETWORK)
    said = ending(dist.unpack_zlib, tools, None)
    check("no network: what is missing, why, what does instead",
          all(x in said for x in ("cannot fetch Debian's list of sources", "E: Failed to fetch", "--zlib FILE")), said)
    check("no network: one line of apt's", said.count("\n") == 2, said)
    write_apt(folder, APT)
    digest, dist.ZLIB_SHA256 = write_zlib(folder), "0" * 64
    said = ending(dist.unpack_zlib, tools, None)
    check("another archive is refused", f"has the SHA-256 {digest}, not {'0' * 64}" in said, said)
    check("nothing of it is left", not (tools / "zlib-1.3.1").exists())
    dist.ZLIB_SHA256 = digest
    said = ending(dist.unpack_zlib, tools, None)
    check("the archive alone is fetched", not said and (tools / "zlib-1.3.1/zlib.h").read_text() == "zlib", said)


def wheels(folder, tools):
    os.environ.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(folder), PIP_CONFIG_FILE=os.devnull)
    said = ending(dist.install_wheels, tools)
    check("no wheels: what is missing, what does instead",
          all(x in said for x in ("cannot fetch ziglang ", "ERROR: No matching distribution", "PIP_FIND_LINKS=FOLDER")), said)
    check("what is left is not taken for whole", not (tools / "venv/wheels.txt").exists())
    (folder / "ziglang-1.0-py3-none-any.whl").write_bytes(b"other bytes")
    dist.WHEELS = (("ziglang", "1.0", "0" * 64),)
    said = ending(dist.install_wheels, tools)
    check("a wheel of another content is refused", "DO NOT MATCH THE HASHES" in said and "0" * 64 in said, said)


if not importlib.util.find_spec("ensurepip"):
    print("there is no ensurepip")
    sys.exit(77)
with tempfile.TemporaryDirectory() as name:
    folder, tools = pathlib.Path(name), pathlib.Path(name) / "tools"
    tools.mkdir()
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    zlib(folder, tools)
    wheels(folder, tools)
print(f"{len(problems)} problems")
sys.exit(len(problems) > 0)
