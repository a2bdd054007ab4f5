"""The shim and its process group: C++ that is built once for a torch, then loaded.

cache.py says where it is kept.  Nothing is looked for in the working directory, which may be somebody else's.
"""

import contextlib
import ctypes
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
import time

from . import HERE, cache
from .device import NO_STREAM, fail, say

# What is built: its folder, the file that is compiled, what stderr calls it, and how long that takes.
SHIM = ("shim", "shim.cpp", "the shim", "about a minute")
GROUP = ("dist", "group.cpp", "the process group", "about half a minute")

# As cmake/hardening.cmake has it for all else.
HARDENED = ["-fstack-protector-strong", "-fstack-clash-protection", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3",
            "-Wl,-z,relro,-z,now,-z,noexecstack"] if sys.platform == "linux" else []


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


def search_path():
    """$PATH without relative folders; an empty one is the working directory."""
    return os.pathsep.join(filter(os.path.isabs, os.get_exec_path()))


def compiler():
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        found = name and shutil.which(name, path=search_path())
        if found:
            return os.path.abspath(found)
    fail("no C++ compiler was found: 'plimsoll run' builds a small library for your PyTorch once; "
         "install g++ or clang++, or set CXX", 4)


class Library:
    """The shim, or its process group, for one torch."""

    def __init__(self, run, root, version, what):
        self.home, self.root = os.path.dirname(run["lib"]), os.path.abspath(root)
        self.version, self.what, self.links = version, what, run["lib"]
        self.title = f"{what[2]} for PyTorch {version}"

    def command(self, out):
        lib, include = os.path.join(self.root, "lib"), os.path.join(self.root, "include")
        if ":" in lib:
            fail(f"cannot link with '{lib}': where libraries are looked for, ':' ends a path", 4)
        number = tuple(int(x) for x in self.version.split("+")[0].split(".")[:2])
        return [compiler(), "-std=c++20" if number >= (2, 9) else "-std=c++17", "-O1", "-fPIC",
                "-shared", "-w", "-fvisibility=hidden", *HARDENED,
                f"-D_GLIBCXX_USE_CXX11_ABI={int(has_new_abi(lib))}", f"-I{HERE}",
                f"-I{include}", f"-I{include}/torch/csrc/api/include",
                os.path.join(HERE, *self.what[:2]), "-o", out, self.links, f"-L{lib}", "-ltorch_cpu",
                "-lc10", "-Xlinker", "-rpath", "-Xlinker", lib, "-Xlinker", "-rpath", "-Xlinker", self.home]

    def name(self):
        """What it is made of is in its name."""
        key = hashlib.sha256(repr(self.command("")).encode())
        sources = os.path.join(HERE, self.what[0])
        files = [os.path.join(sources, name) for name in sorted(os.listdir(sources))]
        for name in files + [os.path.join(HERE, "plimsoll.h"), os.path.join(HERE, "plimsoll_vgpu.h")]:
            with open(name, "rb") as f:
                key.update(f.read())
        return f"{self.what[0]}-{self.version}-{key.hexdigest()[:12]}.so"


def load_library(run, root, version, what=SHIM, mode=ctypes.DEFAULT_MODE):
    """Loads it from the user's cache or, where that will not do, from the folder of this run, which is removed."""
    library, why = Library(run, root, version, what), []
    name = library.name()
    for folder in cache.user_folder, lambda: cache.own_folder(os.path.join(run["folder"], "cache")):
        try:
            path = os.path.join(folder(), name)
            make_library(library, path, why)
        except OSError as e:
            why.append(cache.reason(e))
        else:
            return load_made(library, path, mode, why)
    fail(f"cannot keep {library.title}: {'; '.join(why)}", 4)


def load_made(library, path, mode, why):
    """It is built again if it does not load."""
    with contextlib.suppress(OSError):
        return ctypes.CDLL(path, mode=mode)
    try:
        cache.forget(path)
        make_library(library, path, why)
        return ctypes.CDLL(path, mode=mode)
    except OSError as e:
        fail(f"cannot load '{path}': {cache.reason(e)}", 4)


def make_library(library, path, why):
    """Builds it if it is not there, or not whole.  `why`: the reasons against the cache; []: it is there."""
    folder = os.path.dirname(path)
    if cache.is_whole(path):
        return
    with cache.lock_folder(folder):  # of the ranks of a run, one builds it
        if cache.is_whole(path):
            return
        for left in glob.glob(os.path.join(glob.escape(folder), BUILDING + "*")):
            shutil.rmtree(left, ignore_errors=True)  # of one that was killed: none builds now
        say(f"building {library.title} ({'for this run only: ' + why[0] if why else 'once'})")
        with Progress(library.what) as progress:
            build(library, path, progress)


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


class Progress:
    """How far it is, on a terminal, in a line that is rewritten; then how long it took."""

    def __init__(self, what):
        self.title, self.usual, self.began = what[2], what[3], time.monotonic()
        self.terminal = False
        with contextlib.suppress(*NO_STREAM):
            self.terminal = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    def seconds(self):
        return round(time.monotonic() - self.began)

    def rewrite(self, text=""):
        if self.terminal:
            with contextlib.suppress(*NO_STREAM):
                sys.stderr.write(f"\r\033[K{text}")
                sys.stderr.flush()

    def show(self):
        self.rewrite(f"plimsoll: {self.seconds()} s of {self.usual}")

    def __enter__(self):
        self.show()
        return self

    def __exit__(self, error, *more):
        if not error:
            say(f"built {self.title} in {self.seconds()} s")


def build(library, path, progress):
    with HeldSignals() as signals:
        folder = tempfile.mkdtemp(prefix=BUILDING, dir=os.path.dirname(path))
        made = os.path.join(folder, "made.so")
        try:
            status, errors = compile_library(library.command(made), folder, signals, progress)
            if not status:
                cache.keep(made, path)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            progress.rewrite()  # before a signal that was held ends this process
    if status:
        errors = [line for line in errors if "error" in line][:5] or errors[-5:]
        fail(f"cannot build {library.title}:\n" +
             "\n".join(errors or [f"the compiler ended with status {status}"]), 4)


# A shell that becomes the compiler.  Next to it, in the process group of all that the compiler starts, a second shell
# waits for the end of its stdin, a pipe from this process, and kills the group: so they end with this process, even if
# it is killed.  The second is not the compiler's child, as it might wait for all of its children.
IN_GROUP = 'exec 3<&0 </dev/null; ({ read -r _ <&3; kill -KILL 0; } >/dev/null 2>&1 &); exec "$@" 3<&-'


def wait_for(process, progress):
    """The lines of its errors."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=1)[1].splitlines()
        progress.show()


def compile_library(command, folder, signals, progress):
    """The compiler's status and the lines of its errors; it ends with this process, however that ends."""
    environ = {k: v for k, v in os.environ.items() if k != "PLIMSOLL_RUN_LIB"}
    environ.update(PATH=search_path(), TMPDIR=folder)  # what it leaves when it is killed goes with the folder
    theirs, ours = os.pipe()
    with open(ours, "wb"):
        with open(theirs, "rb") as stdin:
            process = subprocess.Popen(["/bin/sh", "-c", IN_GROUP, "sh", *command], stdin=stdin,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                       errors="replace", cwd=folder, env=environ, start_new_session=True)
        try:
            signals.watch(process)
            errors = wait_for(process, progress)
        except BaseException:  # a handler of the script's own has raised
            signals.end_compiler()
            process.wait()
            raise
    return process.returncode, errors
