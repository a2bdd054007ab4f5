#!/usr/bin/env python3
"""pack.py BUILD -- the archives that tools/dist.py makes of an installed tree.

The tree of this build is packed twice, the second time from a copy with other times, permissions and order of files, in
another folder, under another umask: the bytes have to be the same. Then what is in the archives is compared with the
tree. Nothing is compiled or fetched.
"""
import base64
import csv
import hashlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("dist", ROOT / "tools/dist.py")
dist = importlib.util.module_from_spec(spec)
sys.dont_write_bytecode = True
spec.loader.exec_module(dist)
dist.say = lambda text: None
dist.DEB_COMPRESSION = "none"  # xz takes ten times as long as all of the rest
TARGET = dist.Target("x86_64-linux", "x86_64-linux-gnu", deb="amd64", wheel="manylinux_2_17_x86_64")


def pack(folder, tree):
    """The archives by name, made in `folder`."""
    licences = folder / "zig"
    for *_, place, _ in dist.PARTS:
        (licences / place).parent.mkdir(parents=True, exist_ok=True)
        (licences / place).write_text("/* a licence */\n")
    (licences / "LICENSE").write_text("a licence\n")
    d = dist.Dist(folder / "build", folder / "out", folder / "tools", licences / "zig", licences)
    (d.source / "python/plimsoll").mkdir(parents=True, exist_ok=True)
    (d.source / "python/plimsoll/example.py").write_text("x = 1\n")
    d.write_archive(TARGET, tree)
    d.write_wheel(TARGET, tree, {"METADATA": b"Name: plimsoll\n"})
    d.write_sbom()
    if shutil.which("dpkg-deb"):
        d.write_deb(TARGET, tree)
    return {x.name: x.read_bytes() for x in sorted(d.out.iterdir())}


def other_copy(tree, copy):
    """The same files, written in the opposite order, with other times and permissions."""
    for file in sorted(tree.rglob("*"), reverse=True):
        to = copy / file.relative_to(tree)
        if file.is_dir() and not file.is_symlink():
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, to, follow_symlinks=False)
        if not file.is_symlink():
            to.chmod(0o700)
            os.utime(to, (10**9, 10**9))


def check_tar(path, tree):
    with tarfile.open(path) as tar:
        members = {x.name.split("/", 1)[1]: x for x in tar.getmembers()}
    wanted = {str(x.relative_to(tree)) for x in tree.rglob("*") if x.is_symlink() or not x.is_dir()}
    assert wanted | {"LICENSE", "README.md", "CHANGELOG.md", "THIRD-PARTY.txt"} == set(members), wanted ^ set(members)
    assert members["bin/plimsoll"].mode == 0o755 and members["LICENSE"].mode == 0o644
    assert members["lib/libplimsoll.so"].issym() and {x.uid for x in members.values()} == {0}


def check_wheel(path):
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        record = next(x for x in names if x.endswith("/RECORD"))
        rows = list(csv.reader(wheel.read(record).decode().splitlines()))
        assert sorted(x[0] for x in rows) == sorted(names)
        for name, digest, size in rows:
            data = wheel.read(name)
            found = "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert name == record or (digest, int(size)) == (found, len(data)), name
        assert {"plimsoll/example.py", "plimsoll/_dist/bin/plimsoll", "plimsoll/_dist/lib/libplimsoll.so",
                "plimsoll/_dist/share/plimsoll/sitecustomize.py"} <= set(names)
        assert not [x for x in names if x.endswith((".a", ".pc", ".h")) and "share/plimsoll/" not in x]


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        tree, copy = folder / "tree", folder / "elsewhere/tree"
        subprocess.run(["cmake", "--install", build, "--prefix", tree], check=True, stdout=subprocess.DEVNULL)
        os.umask(0o022)
        first = pack(folder / "first", tree)
        os.umask(0o077)
        other_copy(tree, copy)
        second = pack(folder / "another/second", copy)
        assert list(first) == list(second)
        differ = [x for x in first if first[x] != second[x]]
        for x in (folder / "first/out").iterdir():
            if x.suffix == ".whl":
                check_wheel(x)
            elif "linux.tar" in x.name:
                check_tar(x, tree)
        print(*first, sep="\n")
        if differ:
            print("not the same bytes twice:", *differ)
        return bool(differ)


if __name__ == "__main__":
    sys.exit(main())
