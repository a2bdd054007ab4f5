#!/usr/bin/env python3
"""cache.py PROGRAM -- what `plimsoll run` builds, keeps and loads: nothing that another user, or the working directory,
has put there.

Needs no PyTorch (pretend.py).  Without a C compiler it exits with 77; what needs a second user is left out, with a
line that says so, unless root runs it.
"""

import contextlib
import hashlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from copies import copy_program
from pretend import LOADED, VERSION, Place, compile_c, find_cc
from problems import check, problems

PROGRAM = os.path.abspath(sys.argv[1])
NOBODY = 65534
NO_ENTRY = 54321  # a user without an entry in /etc/passwd
ROOT = os.geteuid() == 0
ONCE, ONE_RUN = "(once)", "(for this run only: "


class Caches(Place):
    """Caches of any kind, in which a library is planted under the name that is looked for."""

    def __init__(self, folder):
        super().__init__(PROGRAM, folder)
        done = self.run(env={"XDG_CACHE_HOME": self.folder / "first"})
        check("it is built and loaded", done.returncode == LOADED and ONCE in done.stderr, done)
        kept = [path.name for path in (self.folder / "first" / "plimsoll").glob("*.so")]
        self.name, = kept or ["none"]
        self.count = 0

    def cache(self, mode=0o755, uid=-1, gid=-1):
        """Another folder for XDG_CACHE_HOME."""
        self.count += 1
        return self.make_folder(f"cache{self.count}", mode, uid, gid)

    def plant(self, folder, mode=0o700, uid=-1, gid=-1, file_mode=0o644, file_uid=-1):
        """As whole as a library can be, by each way in which that was ever told."""
        folder.mkdir(parents=True, exist_ok=True)
        library = self.planted.read_bytes()
        library += hashlib.sha256(library).digest()
        path = folder / self.name
        path.write_bytes(library)
        line = f"{hashlib.sha256(library).hexdigest()}  {self.name}\n"
        digest = folder / f"{self.name}.sha256"
        digest.write_text(line)
        for file in path, digest:
            file.chmod(file_mode)
            os.chown(file, file_uid, -1)
        os.chown(folder, uid, gid)
        folder.chmod(mode)
        return path

    def not_run(self, what, done, code=LOADED, *words):
        check(f"{what}: what was planted is not run", not self.mark.exists(), done)
        self.mark.unlink(missing_ok=True)
        check(what, done.returncode == code and all(word in done.stderr for word in words), done)
        check(f"{what}: nothing is left", not self.left(), self.left())


# ---- the folder -------------------------------------------------------------------------


def link_to(caches, cache, **by):
    """plimsoll, as a link to a folder in which all is well."""
    target = caches.plant(caches.folder / f"target{caches.count}").parent
    os.symlink(target, cache / "plimsoll")
    os.chown(cache / "plimsoll", by.get("uid", -1), -1, follow_symlinks=False)


def distrusted(caches):
    """Folders that are not used: the library is built for one run."""
    def planted(**how):
        return lambda cache: caches.plant(cache / "plimsoll", **how)
    own = [("a folder that all write to", {}, planted(mode=0o777), "plimsoll': others can write to it"),
           ("a folder that all write to, with the sticky bit", {}, planted(mode=0o1777), "others can write to it"),
           ("a folder that is a link", {}, lambda cache: link_to(caches, cache), "it is a symbolic link"),
           ("a folder in one that all write to", {"mode": 0o777}, planted(), "others can write to it"),
           ("a file in place of the folder", {}, lambda cache: (cache / "plimsoll").touch(), "Not a directory")]
    others = [("another user's folder", {}, planted(mode=0o755, uid=NOBODY, file_uid=NOBODY), "another user"),
              ("a folder that a group writes to", {}, planted(mode=0o770, gid=NOBODY), "others can write to it"),
              ("another user's folder with files of ours", {}, planted(mode=0o755, uid=NOBODY), "another user"),
              ("a folder in another user's", {"uid": NOBODY}, planted(), "it belongs to another user"),
              ("a folder in one that a group writes to", {"mode": 0o770, "gid": NOBODY}, planted(),
               "others can write to it"),
              ("another user's link", {}, lambda cache: link_to(caches, cache, uid=NOBODY), "it is a symbolic link")]
    for what, above, arrange, words in own + others * ROOT:
        cache = caches.cache(**above)
        arrange(cache)
        done = caches.run(env={"XDG_CACHE_HOME": cache})
        caches.not_run(what, done, LOADED, ONE_RUN, words)
    done = subprocess.run([PROGRAM, "run", "--gpu", "t4", "--world", "3", "--rank", "all", "--", sys.executable, "-c",
                           "import torch"], capture_output=True, text=True,
                          env=caches.environment(XDG_CACHE_HOME=caches.cache(0o777)))
    check("ranks build one for all", done.returncode == LOADED and done.stderr.count(ONE_RUN) == 1, done)
    if ROOT:
        cache = caches.cache()
        caches.plant(cache / "plimsoll")
        way = caches.folder / "way of another"
        os.symlink(cache, way)
        os.chown(way, NOBODY, -1, follow_symlinks=False)
        caches.not_run("a link of another user's on the way", caches.run(env={"XDG_CACHE_HOME": way}), LOADED, ONE_RUN,
                       "it belongs to another user")


def trusted(caches):
    """Folders that are used: what is built is there for the next run, and only this user can write to it."""
    link = caches.folder / "link"
    link.symlink_to(caches.cache())
    ready = caches.cache()
    (ready / "plimsoll").mkdir(mode=0o755)
    ways = {"one that is there": ready, "one in a folder with the sticky bit": caches.cache(0o1777),
            "one that is missing": caches.folder / "missing" / "too", "behind a link": link,
            "with dots": caches.folder / "." / "missing" / ".." / "dots"}
    for what, cache in ways.items():
        umask = {} if what == "one that is there" else {"umask": 0}
        for words in ONCE, "":
            done = caches.run(env={"XDG_CACHE_HOME": cache}, **umask)
            check(what, done.returncode == LOADED and (words in done.stderr if words else not done.stderr), done)
        kept = [cache / "plimsoll", *(cache / "plimsoll").iterdir()]
        check(f"{what}: its files", {path.name for path in kept[1:]} == {
            "lock", caches.name, f"{caches.name}.sha256"}, kept)
        check(f"{what}: nobody else writes to them", not any(p.stat().st_mode & 0o022 for p in kept), kept)
    check("what is made is this user's", not (caches.folder / "missing").stat().st_mode & 0o077)


def private_group(caches):
    """Many systems have umask 002: a folder on the way that only this user's own group writes to."""
    import grp
    import pwd
    user = pwd.getpwuid(os.geteuid())
    group = grp.getgrgid(user.pw_gid)
    if group.gr_name != user.pw_name or set(group.gr_mem) - {user.pw_name}:
        print("left out: a private group, which this user does not have")
        return
    done = caches.run(env={"XDG_CACHE_HOME": caches.cache(0o775, gid=group.gr_gid)})
    check("a private group", done.returncode == LOADED and ONCE in done.stderr, done)


# ---- files in a folder that is to be trusted -------------------------------------------------


def replace_with_link(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def files(caches):
    """Files in it that are not this user's alone: the library is built anew in their place."""
    whole = (caches.folder / "bin" / "made.so").read_bytes()
    ways = {"a file that all write to": ({"file_mode": 0o666}, None),
            "a link": ({}, replace_with_link),
            "a pipe": ({}, lambda path: (path.unlink(), os.mkfifo(path))),
            "a second name": ({}, lambda path: os.link(path, path.with_name("second"))),
            "another user's file": ({"file_uid": NOBODY}, None)}
    if not ROOT:
        del ways["another user's file"]
    for what, (how, arrange) in ways.items():
        cache = caches.cache()
        path = caches.plant(cache / "plimsoll", **how)
        if arrange:
            arrange(path)
        done = caches.run(env={"XDG_CACHE_HOME": cache})
        caches.not_run(what, done, LOADED, ONCE)
        regular = path.is_file() and not path.is_symlink()
        check(f"{what}: it is built anew", regular and path.read_bytes() == whole, what)
    for what, text in {"no digest": None, "another's digest": "0" * 64 + f"  {caches.name}\n"}.items():
        cache = caches.cache()
        digest = caches.plant(cache / "plimsoll").with_name(f"{caches.name}.sha256")
        digest.write_text(text) if text else digest.unlink()
        caches.not_run(what, caches.run(env={"XDG_CACHE_HOME": cache}), LOADED, ONCE)
    cache = caches.cache()
    caches.run(env={"XDG_CACHE_HOME": cache})
    done = subprocess.run(["sha256sum", "-c", f"{caches.name}.sha256"], cwd=cache / "plimsoll", capture_output=True)
    check("the digest is one of sha256sum's", done.returncode == 0, done)


def locks(caches):
    secret = caches.folder / "secret"
    ways = {"a link to a file": lambda lock: lock.symlink_to(secret),
            "a second name of a file": lambda lock: os.link(secret, lock),
            "a pipe": os.mkfifo,
            "a socket": lambda lock: socket.socket(socket.AF_UNIX).bind(str(lock))}
    for mode in 0o700, 0o777:
        for what, arrange in ways.items():
            secret.write_text("secret")
            secret.chmod(0o600)
            folder = caches.cache() / "plimsoll"
            folder.mkdir()
            folder.chmod(mode)
            arrange(folder / "lock")
            done = caches.run(env={"XDG_CACHE_HOME": folder.parent})
            check(f"a lock that is {what}", done.returncode == LOADED and ONE_RUN in done.stderr, done)
            check(f"a lock that is {what}: the file is as it was", secret.read_text() == "secret", secret)
            secret.unlink()


# ---- where there is no cache -------------------------------------------------------------------


def homes(caches):
    here = caches.make_folder("clone")
    for folder in "~/.cache", "cache", ".cache", ".":
        caches.plant(here / folder / "plimsoll")
    home = caches.make_folder("home")
    for name, value in ("relative", "cache"), ("the working directory", "."), ("a tilde", "~/.cache"), ("empty", ""):
        done = caches.run(cwd=here, env={"XDG_CACHE_HOME": value, "HOME": home})
        caches.not_run(f"a cache that is {name}", done)
        kept = home / ".cache" / "plimsoll" / caches.name
        check(f"a cache that is {name} is none", kept.exists(), done)
        shutil.rmtree(home / ".cache", ignore_errors=True)
    if not ROOT:
        return
    before = sorted(here.rglob("*"))
    theirs = caches.make_folder("theirs", 0o755, NOBODY)
    done = caches.run(cwd=here, env={"XDG_CACHE_HOME": None, "HOME": theirs})
    caches.not_run("root with the home of another user (sudo)", done, LOADED, ONE_RUN, "it belongs to another user")
    check("root leaves nothing there", not list(theirs.iterdir()), list(theirs.iterdir()))
    python = "/usr/bin/python3"
    if not runs_as(NO_ENTRY, PROGRAM, "--version") or not runs_as(NO_ENTRY, python, "-c", "import ctypes"):
        print(f"left out: another user's runs, who can run {PROGRAM} or {python}")
        return
    script = python, "-c", "import torch"
    as_user = {"user": NO_ENTRY, "group": NO_ENTRY, "extra_groups": []}
    for what, value in ("no home", None), ("a home that is a dot", "."), ("an empty home", ""):
        done = caches.run(*script, cwd=here, env={"XDG_CACHE_HOME": None, "HOME": value}, **as_user)
        caches.not_run(what, done, LOADED, ONE_RUN, "this user has no home folder")
    done = caches.run(*script, env={"XDG_CACHE_HOME": None, "HOME": home}, **as_user)
    caches.not_run("a home that cannot be written to", done, LOADED, ONE_RUN, "Permission denied")
    check("the working directory is as it was", sorted(here.rglob("*")) == before)
    done = caches.run(*script, env={"XDG_CACHE_HOME": caches.cache(0o700)}, **as_user)
    caches.not_run("a cache that cannot be read", done, LOADED, ONE_RUN, "Permission denied")


def runs_as(user, *command):
    try:
        return not subprocess.run(command, user=user, group=user, extra_groups=[], cwd="/", capture_output=True).returncode
    except OSError:
        return False


def nowhere(caches):
    """Neither a cache nor a folder for the run."""
    open_to_all = caches.cache(0o777)
    done = caches.run(env={"XDG_CACHE_HOME": open_to_all, "TMPDIR": open_to_all})
    caches.not_run("nowhere", done, 4, f"plimsoll: cannot keep the shim for PyTorch {VERSION}: '{open_to_all}': others "
                   f"can write to it; '{open_to_all}': others can write to it\n")
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        print("left out: full and read-only disks, which need mount")
        return
    cache, full = caches.cache(), caches.make_folder("full")
    mounts = f"mount -t tmpfs -o ro none '{cache}' && mount -t tmpfs -o size={{}} none '{full}' && exec \"$@\""
    for size, code, words in ("1M", LOADED, ONE_RUN), ("8k", 4, "No space left on device"):
        before = "unshare", "-m", "sh", "-c", mounts.format(size), "sh"
        done = caches.run(before=before, env={"XDG_CACHE_HOME": cache, "TMPDIR": full})
        caches.not_run(f"a read-only disk, and {size} for the run", done, code, "Read-only file system", words)


# ---- what is found by a name --------------------------------------------------------------------


def compilers(caches):
    """The compiler, and what it looks for, are not the working directory's."""
    here = caches.make_folder("tools")
    for name in "c++", "as", "ld":
        (here / name).write_text(f"#!/bin/sh\ntouch '{caches.mark}'\nexit 1\n")
        (here / name).chmod(0o755)
    path = os.pathsep.join(["", str(caches.compiler.parent), ".", "tools", "", os.environ["PATH"], ""])
    cache = caches.cache()
    done = caches.run(cwd=here, env={"CXX": None, "PATH": path, "XDG_CACHE_HOME": cache})
    caches.not_run("a PATH with relative folders", done)
    folder, _, found = (caches.compiler.parent / "ran").read_text().splitlines()[-1].partition(" ")
    check("the compiler's PATH has none", all(map(os.path.isabs, found.split(os.pathsep))), found)
    check("the compiler is not in the working directory", folder.startswith(str(cache / "plimsoll")), folder)
    done = caches.run(cwd=caches.folder, env={"CXX": "bin/c++", "XDG_CACHE_HOME": caches.cache()})
    check("a relative path in CXX is what the user says", done.returncode == LOADED, done)


def colons(caches):
    """In PyTorch's path: the rest would be looked for in the working directory."""
    here = caches.make_folder("a:script")
    shutil.copytree(caches.folder / "packages" / "torch", here / "torch")
    (here / "script.py").write_text("import torch\n")
    done = caches.run(sys.executable, str(here / "script.py"), env={"XDG_CACHE_HOME": caches.cache()})
    caches.not_run("a colon in PyTorch's path", done, 4, f"cannot link with '{here}/torch/lib'")


def fake_installation(caches, folder, uid=-1):
    """What a program takes for its own files, if it finds them there."""
    for name in "share/plimsoll/sitecustomize.py", "libplimsoll.so", "libplimsoll_record.so":
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".py"):
            path.write_text(f"open({str(caches.mark)!r}, 'w')\n")
        else:
            shutil.copy(caches.planted, path)
        for made in path, *path.relative_to(folder).parents:
            os.chown(folder / made, uid, -1)


def installations(caches):
    here = caches.make_folder("working directory")
    fake_installation(caches, here)
    fake_installation(caches, here / "b")
    no_proc = compile_c(caches.folder, "no_proc", "#include <errno.h>\n#include <unistd.h>\nssize_t readlink(const char *path, "
                        "char *out, size_t n) { (void)path, (void)out, (void)n; errno = ENOENT; return -1; }\n")
    incomplete = "the installation is incomplete"
    done = caches.run(cwd=here, env={"LD_PRELOAD": no_proc})
    caches.not_run("run without /proc", done, 4, incomplete)
    done = caches.run(cwd=here, env={"LD_PRELOAD": no_proc}, before=[PROGRAM, "record", "--"])
    check("record without /proc", not caches.mark.exists() and done.returncode == 4, done)
    caches.program = copy_program(PROGRAM, caches.folder / "a:b", "share", "libplimsoll.so")
    caches.not_run("a colon in the program's path", caches.run(cwd=here), 4, "a:b/share/plimsoll' in PYTHONPATH, where ':' ends a path")
    caches.program = PROGRAM
    if (pathlib.Path(PROGRAM).parent / "libplimsoll_record.so").exists():
        for name in "a b", "a:b too":
            program = copy_program(PROGRAM, caches.folder / "record" / name, "libplimsoll_record.so")
            done = subprocess.run([program, "record", "--", "true"], cwd=here, capture_output=True, text=True)
            caches.not_run(f"'{name}' in the program's path", done, 4, "in LD_PRELOAD, where '")
    if ROOT:
        shared = caches.make_folder("shared", 0o1777)
        shutil.copy(PROGRAM, shared / "plimsoll")
        fake_installation(caches, shared, NOBODY)
        shared.chmod(0o1777)
        os.chown(shared, 0, 0)
        caches.program = shared / "plimsoll"
        caches.not_run("what another user has put next to the program", caches.run(cwd=here), 4, incomplete)
        caches.program = PROGRAM


def python_paths(caches):
    """`run` adds no empty path, which Python takes for the working directory; one of the user's stays."""
    here = caches.make_folder("with a sitecustomize")
    (here / "sitecustomize.py").write_text(f"open({str(caches.mark)!r}, 'w')\n")
    look = "import os, sys; print(os.getcwd() in sys.path); raise SystemExit(5)"
    (caches.folder / "look.py").write_text(look)
    for value, there in (None, "False\n"), ("", "False\n"), ("/none", "False\n"), (":", "True\n"), ("/none:", "True\n"):
        done = caches.run(sys.executable, str(caches.folder / "look.py"), cwd=here, env={"PYTHONPATH": value})
        check(f"PYTHONPATH={value}", done.returncode == 5 and done.stdout == there, done)
        check(f"PYTHONPATH={value}: as without run", caches.mark.exists() == (there == "True\n"), done)
        caches.mark.unlink(missing_ok=True)
    long = os.pathsep.join(["/none" * 100] * 40)
    done = caches.run(sys.executable, "-c", "import os; print(os.environ['PYTHONPATH'])", env={"PYTHONPATH": long})
    check("a long PYTHONPATH is whole", done.stdout.strip().endswith(f"share/plimsoll:{long}"), len(done.stdout))


# ---- builds whose end nobody sees -------------------------------------------------------------------


def lives(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def wait_until(true, seconds):
    until = time.monotonic() + seconds
    while not true() and time.monotonic() < until:
        time.sleep(0.02)
    return true()


def group_of(pid):
    """The processes that live in its group."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, group = path.read_text().rpartition(") ")[2].split()[:3]
            if int(group) == pid and state != "Z":
                found.append(int(path.parent.name))
    return found


def killed(caches):
    """SIGKILL: the compiler and what it has started end at once, and the next run builds."""
    script = "import os, sys; print(os.getpid(), flush=True); import torch"
    started = caches.compiler.parent / "started"
    ways = {"plimsoll": ((sys.executable, "-c", script), lambda run, python: run),
            "the script's Python": ((sys.executable, "-c", script), lambda run, python: python),
            "plimsoll, whose command is a shell": (("sh", "-c", '"$0" -c "$1"; :', sys.executable, script),
                                                   lambda run, python: run)}
    for what, (command, whom) in ways.items():
        for cache in caches.cache(), caches.cache(0o777):
            started.write_text("")
            caches.way.write_text("hang")
            process = subprocess.Popen(caches.command(*command), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                       text=True, env=caches.environment(XDG_CACHE_HOME=cache), cwd=caches.folder)
            python = int(process.stdout.readline())
            wait_until(lambda: len(started.read_text().splitlines()) == 3, 20)
            compilers = [int(line) for line in started.read_text().splitlines()]
            check(f"{what}: three processes compile", len(compilers) == 3 and
                  set(compilers) <= set(group_of(compilers[0])), compilers)
            os.kill(whom(process.pid, python), signal.SIGKILL)
            check(f"SIGKILL to {what}: the compiler has ended", wait_until(
                lambda: not any(map(lives, compilers)) and not group_of(compilers[0]), 3), group_of(compilers[0]))
            process.communicate(timeout=20)
            for pid in group_of(compilers[0]):
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not lives(python), 5)
            caches.way.write_text("well")
            done = caches.run(env={"XDG_CACHE_HOME": cache})
            check(f"after SIGKILL to {what} it is built", done.returncode == LOADED and "building" in done.stderr, done)
            left = list((cache / "plimsoll").glob("building-*"))
            check(f"after SIGKILL to {what} nothing of it is left", not left, left)
            if whom(0, 1):
                check(f"after SIGKILL to {what} its folder is gone", not caches.left(), caches.left())
            for path in caches.tmp.glob("plimsoll-*"):  # of a `plimsoll` that was killed
                shutil.rmtree(path)
    done = caches.run(env={"XDG_CACHE_HOME": caches.cache()})
    group = wait_until(lambda: not [p for p in pathlib.Path("/proc").glob("[0-9]*/cmdline")
                                    if str(caches.compiler).encode() in read_bytes(p)], 3)
    check("a build that ends leaves nobody who waits", done.returncode == LOADED and group, done)


def read_bytes(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


# ---- streams that are closed ---------------------------------------------------------------------------


def streams(caches):
    """The script goes on without them, and no file gets their numbers."""
    looks = ("import os, sys\n"
             "try: import torch\n"
             "except SystemExit as e: code = e.code\n"
             f"with open({str(caches.log)!r}, 'w') as f:\n"
             "    assert f.fileno() > 2\n"
             "    print(*[os.readlink(f'/proc/self/fd/{n}') for n in map(int, sys.argv[1:])], file=f)\n"
             "raise SystemExit(code)\n")
    for numbers, closed in {"2": "2>&-", "1": ">&-", "0": "<&-", "1 2": ">&- 2>&-", "0 1 2": "<&- >&- 2>&-"}.items():
        caches.log.unlink(missing_ok=True)
        done = caches.run("sh", "-c", f'exec "$0" -c "$1" {numbers} {closed}', sys.executable, looks,
                          env={"XDG_CACHE_HOME": caches.cache()})
        check(f"a script with {closed}", done.returncode == LOADED, done)
        said = caches.log.read_text().split() if caches.log.exists() else []
        check(f"{closed}: what was closed leads nowhere", said == ["/dev/null"] * len(numbers.split()), said)
        caches.way.write_text("well")
    refused = caches.cache(0o777)
    for what, text in {"closed": "sys.stderr.close()", "gone": "sys.stderr = None", "full": "",
                       "no file": "import io; sys.stderr = sys.stdout = io.StringIO()"}.items():
        full = {"capture_output": False, "stdout": subprocess.DEVNULL, "stderr": open("/dev/full", "w")}
        script = sys.executable, "-c", f"import sys\n{text}\nimport torch"
        more = full if what == "full" else {}
        done = caches.run(*script, env={"XDG_CACHE_HOME": caches.cache()}, **more)
        check(f"a stderr that is {what}", done.returncode == LOADED, done)
        done = caches.run(*script, env={"XDG_CACHE_HOME": refused, "TMPDIR": refused}, **more)
        check(f"a stderr that is {what}: the status tells of an error", done.returncode == 4, done)


if not find_cc():
    print("no C compiler")
    sys.exit(77)
if not ROOT:
    print("left out: what another user may have planted: root would make it")
for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:  # a shell may have left some ignored
    signal.signal(number, signal.SIG_DFL)
with tempfile.TemporaryDirectory() as folder:
    caches = Caches(folder)
    for part in (distrusted, trusted, private_group, files, locks, homes, nowhere, compilers, colons, installations,
                 python_paths, killed, streams):
        part(caches)
    print(f"{len(problems)} problems")
sys.exit(len(problems) > 0)
