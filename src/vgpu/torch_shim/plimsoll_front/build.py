"""The shim: C++ that is built once for a torch, then loaded."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile

from . import HERE
from .device import fail

SOURCES = os.path.join(HERE, "shim")


def torch_version(root):
    spec = importlib.util.spec_from_file_location("_torch_version",
                                                  os.path.join(root, "version.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.__version__)


def has_new_abi(lib):
    """Wheels up to 2.6 have C++ strings of before C++11: here, in Error(SourceLocation, string)."""
    with open(os.path.join(lib, "libc10.so"), "rb") as f:
        return b"_ZN3c105ErrorC1ENS_14SourceLocationESs" not in f.read()


def compiler():
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and shutil.which(name):
            return name
    fail("no C++ compiler was found: 'plimsoll run' builds a small library for your PyTorch once; "
         "install g++ or clang++, or set CXX", 4)


def build_command(run, root, version, out):
    lib, include = os.path.join(root, "lib"), os.path.join(root, "include")
    number = tuple(int(x) for x in version.split("+")[0].split(".")[:2])
    home = os.path.dirname(run["lib"])
    return [compiler(), "-std=c++20" if number >= (2, 9) else "-std=c++17", "-O1", "-fPIC",
            "-shared", "-w", "-fvisibility=hidden",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(has_new_abi(lib))}", f"-I{HERE}",
            f"-I{include}", f"-I{include}/torch/csrc/api/include",
            os.path.join(SOURCES, "shim.cpp"), "-o", out, run["lib"], f"-L{lib}", "-ltorch_cpu",
            "-lc10", f"-Wl,-rpath,{lib}", f"-Wl,-rpath,{home}"]


def shim_path(run, root, version):
    """Where the shim for this torch lies; it is built if it is not there."""
    key = hashlib.sha256(repr(build_command(run, root, version, "")).encode())
    files = [os.path.join(SOURCES, name) for name in sorted(os.listdir(SOURCES))]
    for name in files + [os.path.join(HERE, "plimsoll.h"), os.path.join(HERE, "plimsoll_vgpu.h")]:
        with open(name, "rb") as f:
            key.update(f.read())
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
                         "plimsoll")
    path = os.path.join(cache, f"shim-{version}-{key.hexdigest()[:12]}.so")
    if os.path.exists(path):
        return path
    try:
        os.makedirs(cache, exist_ok=True)
        fd, made = tempfile.mkstemp(suffix=".so", dir=cache)
    except OSError as e:
        fail(f"cannot write the shim for PyTorch {version} to '{cache}': {e.strerror}", 4)
    os.close(fd)
    sys.stderr.write(f"plimsoll: building the shim for PyTorch {version} (once)\n")
    done = subprocess.run(build_command(run, root, version, made), capture_output=True, text=True,
                          env={k: v for k, v in os.environ.items() if k != "PLIMSOLL_RUN_LIB"})
    if done.returncode:
        os.unlink(made)
        errors = [line for line in done.stderr.splitlines() if "error" in line][:5]
        fail(f"cannot build the shim for PyTorch {version}:\n" +
             "\n".join(errors or done.stderr.splitlines()[-5:]), 4)
    os.replace(made, path)
    return path
