"""The shim and its process group: C++ that is built once for a torch, then loaded.

A library gets its name when it is whole, and ends with its digest: one that a full disk or a power
cut has left short, which could end the process that loads it, is built anew.
"""

import contextlib
import ctypes
import fcntl
import glob
import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

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
            "-fstack-protector-strong", "-fstack-clash-protection", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3", "-Wl,-z,relro,-z,now,-z,noexecstack",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(has_new_abi(lib))}", f"-I{HERE}",
            f"-I{include}", f"-I{include}/torch/csrc/api/include",
            os.path.join(HERE, *what[:2]), "-o", out, run["lib"], f"-L{lib}", "-ltorch_cpu",
            "-lc10", f"-Wl,-rpath,{lib}", f"-Wl,-rpath,{home}"]


def library_path(run, root, version, what):
    """Where a library for this torch lies, or is to lie."""
    folder = what[0]
    key = hashlib.sha256(repr(build_command(run, root, version, what, "")).encode())
    sources = os.path.join(HERE, folder)
    files = [os.path.join(sources, name) for name in sorted(os.listdir(sources))]
    for name in files + [os.path.join(HERE, "plimsoll.h"), os.path.join(HERE, "plimsoll_vgpu.h")]:
        with open(name, "rb") as f:
            key.update(f.read())
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
                         "plimsoll")
    return os.path.join(cache, f"{folder}-{version}-{key.hexdigest()[:12]}.so")


def load_library(run, root, version, what=SHIM, mode=ctypes.DEFAULT_MODE):
    """Loads it; it is built if it is not there, not whole, or does not load."""
    path = library_path(run, root, version, what)
    try:
        make_library(run, root, version, what, path)
        with contextlib.suppress(OSError):
            return ctypes.CDLL(path, mode=mode)
        with contextlib.suppress(FileNotFoundError):  # another rank was here
            os.unlink(path)
        make_library(run, root, version, what, path)
    except OSError as e:
        fail(f"cannot write {what[2]} for PyTorch {version} to '{os.path.dirname(path)}': "
             f"{e.strerror}", 4)
    try:
        return ctypes.CDLL(path, mode=mode)
    except OSError as e:
        fail(f"cannot load '{path}': {e}", 4)


def is_whole(path):
    try:
        with open(path, "rb") as f:
            data = f.read()
    except FileNotFoundError:
        return False
    size = hashlib.sha256().digest_size
    return hashlib.sha256(data[:-size]).digest() == data[-size:]


def make_library(run, root, version, what, path):
    if is_whole(path):
        return
    cache = os.path.dirname(path)
    os.makedirs(cache, exist_ok=True)
    with open(os.path.join(cache, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of the ranks of a run, one builds it
        if not is_whole(path):
            for folder in glob.glob(os.path.join(glob.escape(cache), BUILDING + "*")):
                shutil.rmtree(folder, ignore_errors=True)  # of one that was killed: none builds now
            build(run, root, version, what, path)


# ---- building ------------------------------------------------------------------------

BUILDING = "building-"  # folders of what is not whole yet


class HeldSignals:
    """Signals that end this process, held until what was begun is removed; the compiler ends at once.

    They may come more than once: from a terminal or a job to the process group, and by `plimsoll run`.
    """

    def __enter__(self):
        self.came, self.compiler, self.before = [], None, {}
        if threading.current_thread() is threading.main_thread():
            self.before = {number: signal.signal(number, self.hold)
                           for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
                           if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)}
        return self

    def hold(self, number, frame):
        self.came.append(number)
        self.end_compiler()

    def watch(self, compiler):
        self.compiler = compiler
        if self.came:
            self.end_compiler()

    def end_compiler(self):
        if self.compiler and self.compiler.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.compiler.pid, signal.SIGKILL)  # with the processes that it has started

    def __exit__(self, *error):
        for number in reversed(self.before):  # SIGINT, which raises, is held the longest
            signal.signal(number, self.before[number])
        for number in reversed(self.before):
            if number in self.came:
                os.kill(os.getpid(), number)


def build(run, root, version, what, path):
    sys.stderr.write(f"plimsoll: building {what[2]} for PyTorch {version} (once)\n")
    with HeldSignals() as signals:
        folder = tempfile.mkdtemp(prefix=BUILDING, dir=os.path.dirname(path))
        made = os.path.join(folder, "made.so")
        try:
            status, errors = compile_library(build_command(run, root, version, what, made), signals)
            if not status:
                with open(made, "rb+") as f:
                    f.write(hashlib.sha256(f.read()).digest())
                os.replace(made, path)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    if status:
        errors = [line for line in errors if "error" in line][:5] or errors[-5:]
        fail(f"cannot build {what[2]} for PyTorch {version}:\n" +
             "\n".join(errors or [f"the compiler ended with status {status}"]), 4)


def compile_library(command, signals):
    """The compiler's status and the lines of its errors; it ends with this process."""
    environ = {k: v for k, v in os.environ.items() if k != "PLIMSOLL_RUN_LIB"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               errors="replace", env=environ, start_new_session=True)
    try:
        signals.watch(process)
        errors = process.communicate()[1]
    except BaseException:  # a handler of the script's own has raised
        signals.end_compiler()
        process.wait()
        raise
    return process.returncode, errors.splitlines()
