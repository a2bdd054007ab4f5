"""A PyTorch that is only a name, for tests of what happens before the real one would be loaded: `plimsoll run` finds
it, builds its library with a compiler that copies one, and loads that; then the script ends, with status LOADED.

Nothing here needs PyTorch, only a C compiler.
"""

import os
import pathlib
import shutil
import subprocess
import sys

LOADED = 7
VERSION = "2.13.0"
SHIM = """
#include <fcntl.h>
void plimsoll_shim_open(void) {}
const char *plimsoll_shim_line(void) { return 0; }
void plimsoll_shim_label(void) {}
long plimsoll_shim_sequence(void) { return 0; }
long plimsoll_shim_stream(void) { return 0; }
void plimsoll_shim_set_stream(void) {}
int plimsoll_shim_device_count(void) { return 1; }
#ifdef MARK
__attribute__((constructor)) static void leave_mark(void) { open(MARK, O_CREAT | O_WRONLY, 0666); }
#endif
"""
# Says where it ran; what `way` has is what it does.
COMPILER = """#!/bin/sh
here=${0%/*}
for word; do
    [ "$before" != -o ] || out=$word
    before=$word
done
echo "$PWD $PATH" >> "$here/ran"
umask >> "$here/umask"
case "$(cat "$here/way")" in
hang)
    echo half > "$out"
    echo $$ >> "$here/started"
    sh -c 'echo $$ >> "$0"; sleep 1000; :' "$here/started" &
    sh -c 'echo $$ >> "$0"; exec sleep 1000' "$here/started" &
    while :; do wait; sleep 1000; done;;
*) cat "$here/made.so" > "$out";;
esac
"""


def find_cc():
    return shutil.which(os.environ.get("CC") or "cc")


def compile_c(folder, name, text, *options):
    """A library in that folder."""
    folder = pathlib.Path(folder)
    source, made = folder / f"{name}.c", folder / f"{name}.so"
    source.write_text(text)
    subprocess.run([find_cc(), "-shared", "-fPIC", *options, str(source), "-o", str(made)], check=True)
    return made


class Place:
    """A folder with that PyTorch, its compiler and what a script may find."""

    def __init__(self, program, folder, python=sys.executable):
        self.program, self.folder, self.python = program, pathlib.Path(folder), python
        self.folder.chmod(0o755)
        self.mark = self.folder / "mark"  # there: what was planted ran
        self.planted = compile_c(self.folder, "planted", SHIM, f'-DMARK="{self.mark}"')
        self.compiler = self.make_compiler(self.folder / "bin")
        self.torch(self.folder / "packages" / "torch")
        self.tmp = self.make_folder("tmp", 0o1777)
        self.log = self.folder / "log"

    def make_folder(self, name, mode=0o755, uid=-1, gid=-1):
        path = self.folder / name
        path.mkdir(parents=True, exist_ok=True)
        os.chown(path, uid, gid)
        path.chmod(mode)
        return path

    def make_compiler(self, folder, name="c++"):
        folder.mkdir()
        compile_c(folder, "made", SHIM)
        (folder / name).write_text(COMPILER)
        (folder / name).chmod(0o755)
        self.way = folder / "way"
        self.way.write_text("well")
        for file in "ran", "umask", "started":
            (folder / file).touch()
            (folder / file).chmod(0o666)  # another user's runs write to it, too
        return folder / name

    def torch(self, folder):
        for name in "lib", "include":
            (folder / name).mkdir(parents=True)
        for name in "libc10.so", "libtorch_cpu.so":
            (folder / "lib" / name).touch()
        (folder / "version.py").write_text(f"__version__ = '{VERSION}'\n")
        (folder / "__init__.py").write_text(f"raise SystemExit({LOADED})\n")

    def environment(self, **more):
        """None: not set."""
        env = {**os.environ, "PYTHONPATH": str(self.folder / "packages"), "CXX": str(self.compiler),
               "TMPDIR": str(self.tmp), "PYTHONDONTWRITEBYTECODE": "1", **more}
        return {name: str(value) for name, value in env.items() if value is not None}

    def command(self, *script):
        return [str(self.program), "run", "--gpu", "t4", "--", *(script or (self.python, "-c", "import torch"))]

    def run(self, *script, before=(), cwd=None, env=(), **more):
        """`before`: what starts it; `script`: in place of a Python that imports torch."""
        command = [*before, *self.command(*script)]
        try:
            return subprocess.run(command, cwd=cwd or self.folder, env=self.environment(**dict(env)), timeout=60,
                                  **{"capture_output": True, "text": True, **more})
        except subprocess.TimeoutExpired as e:
            return subprocess.CompletedProcess(command, None, "", f"{e}")

    def left(self):
        """What is still in TMPDIR."""
        return sorted(path.name for path in self.tmp.glob("plimsoll-*"))
