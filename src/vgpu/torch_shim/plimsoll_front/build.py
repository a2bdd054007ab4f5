"""The shim and its process group: C++ that is built once for a torch, then loaded."""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile

from . import HERE
from .device import fail

# What is built: its folder, the file that is compiled, what stderr calls it.
SHIM = ("shim", "shim.cpp", "the shim")
GROUP = ("dist", "group.cpp", "the process group")


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


def build_command(run, root, version, what, out):
    lib, include = os.path.join(root, "lib"), os.path.join(root, "include")
    number = tuple(int(x) for x in version.split("+")[0].split(".")[:2])
    home = os.path.dirname(run["lib"])
    return [compiler(), "-std=c++20" if number >= (2, 9) else "-std=c++17", "-O1", "-fPIC",
            "-shared", "-w", "-fvisibility=hidden",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(has_new_abi(lib))}", f"-I{HERE}",
            f"-I{include}", f"-I{include}/torch/csrc/api/include",
            os.path.join(HERE, *what[:2]), "-o", out, run["lib"], f"-L{lib}", "-ltorch_cpu",
            "-lc10", f"-Wl,-rpath,{lib}", f"-Wl,-rpath,{home}"]


def library_path(run, root, version, what=SHIM):
    """Where a library for this torch lies; it is built if it is not there."""
    folder, _, words = what
    key = hashlib.sha256(repr(build_command(run, root, version, what, "")).encode())
    sources = os.path.join(HERE, folder)
    files = [os.path.join(sources, name) for name in sorted(os.listdir(sources))]
    for name in files + [os.path.join(HERE, "plimsoll.h"), os.path.join(HERE, "plimsoll_vgpu.h")]:
        with open(name, "rb") as f:
            key.update(f.read())
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
                         "plimsoll")
    path = os.path.join(cache, f"{folder}-{version}-{key.hexdigest()[:12]}.so")
    if os.path.exists(path):
        return path
    try:
        os.makedirs(cache, exist_ok=True)
        with open(os.path.join(cache, "lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # of the ranks of a run, one builds it
            if not os.path.exists(path):
                build(run, root, version, what, path)
    except OSError as e:
        fail(f"cannot write {words} for PyTorch {version} to '{cache}': {e.strerror}", 4)
    return path


def build(run, root, version, what, path):
    words = what[2]
    fd, made = tempfile.mkstemp(suffix=".so", dir=os.path.dirname(path))
    os.close(fd)
    sys.stderr.write(f"plimsoll: building {words} for PyTorch {version} (once)\n")
    done = subprocess.run(build_command(run, root, version, what, made), capture_output=True,
                          text=True,
                          env={k: v for k, v in os.environ.items() if k != "PLIMSOLL_RUN_LIB"})
    if done.returncode:
        os.unlink(made)
        errors = [line for line in done.stderr.splitlines() if "error" in line][:5]
        fail(f"cannot build {words} for PyTorch {version}:\n" +
             "\n".join(errors or done.stderr.splitlines()[-5:]), 4)
    os.replace(made, path)
