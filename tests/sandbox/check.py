#!/usr/bin/env python3
"""check.py PROGRAM -- the sandbox of the program changes no answer, and refuses where it cannot be had.

Every file and folder of tests/data is asked for with '--sandbox never' and '--sandbox always': what is printed and the exit
status are to be the same bytes. So are ways to name a file: links of the cache of huggingface_hub, standard input, pipes of a shell. Old
kernels are played by a filter that refuses the calls they do not have. Exit status 77: this system has no sandbox.
"""
import ctypes
import errno
import os
import pathlib
import platform
import shutil
import struct
import subprocess
import sys
import tempfile

PROGRAM = os.path.abspath(sys.argv[1])
os.environ["PLIMSOLL_PYTHON"] = "none"  # which "always" never starts
DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
HOW = ("never", "always")
bad = runs = 0


def check(what, good, more=""):
    global bad
    if not good:
        bad += 1
        print(f"not so: {what}: {str(more)[-800:]}")


def ask(*words, sandbox=None, **more):
    """(exit status, stdout, stderr)"""
    global runs
    runs += 1
    words = [PROGRAM, *map(str, words), *([f"--sandbox={sandbox}"] if sandbox else [])]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=60,
                          **({"stdin": subprocess.DEVNULL} | more if "input" not in more else more))
    return done.returncode, done.stdout, done.stderr


def same(what, answer):
    """`answer` gets "never" or "always"; the two answers are the same, which is returned."""
    outside, inside = map(answer, HOW)
    check(f"{what}: the same bytes", outside == inside, f"{outside[0]}, {outside[2]} and {inside[0]}, {inside[2]}")
    return inside


def good(what, answer):
    status, out, err = same(what, answer)
    check(f"{what}: an answer", status in (0, 1) and out, err)


def lines(*words, **more):
    return lambda how: ask(*words, sandbox=how, **more)


# ---- every sample, by every command -----------------------------------------------------------

COMMANDS = ("info --json", "estimate --infer --json", "layers --json", "replay --json", "oom --json", "tape --json", "serve --json")


def samples():
    for path in sorted([DATA, *DATA.rglob("*")]):
        for command in COMMANDS:
            name, *options = command.split()
            same(f"{name} {path}", lines(name, path, *options))
    same("diff", lines("diff", DATA / "snapshots/two.pickle", DATA / "snapshots/different.pickle"))
    same("compare", lines("compare", DATA / "resnet18.pt2", "resnet18"))
    for model in ("resnet50", "no-such-model", "no/such-model", "no-such.pt2", "/", ".", ""):
        for command in ("info", "estimate", "fit --gpu t4", "replay", "oom"):
            name, *options = command.split()
            same(f"{name} '{model}'", lines(name, model, *options))


# ---- ways to name a file ----------------------------------------------------------------------------

def hub_cache(folder):
    """A cache of huggingface_hub, whose snapshots are links to its blobs."""
    model = folder / "hub/models--acme--sharded"
    for below in ("blobs", "refs", "snapshots/0123abcd"):
        (model / below).mkdir(parents=True)
    (model / "refs/main").write_text("0123abcd")
    for number, file in enumerate(sorted((DATA / "sharded").iterdir())):
        shutil.copy(file, model / f"blobs/{number}")
        (model / f"snapshots/0123abcd/{file.name}").symlink_to(f"../../blobs/{number}")
    return model / "snapshots/0123abcd"


def names(folder):
    snapshot = hub_cache(folder)
    cache = {"env": {**os.environ, "HF_HUB_CACHE": str(folder / "hub")}}
    good("an id of the hub", lines("info", "acme/sharded", **cache))
    good("a snapshot", lines("info", snapshot))
    good("an index of links", lines("info", snapshot / "model.safetensors.index.json"))
    (folder / "link").symlink_to(snapshot)
    good("a link to a folder", lines("info", folder / "link"))
    good("a relative path", lines("info", "../0123abcd/", cwd=snapshot))
    good("the folder itself", lines("info", ".", cwd=snapshot))
    good("a file by its name", lines("info", "model-00001-of-00002.safetensors", cwd=snapshot))
    good("parts of a GGUF file", lines("info", DATA / "split/tiny-00001-of-00003.gguf"))
    good("a path of links", lines("info", f"/proc/self/cwd/{DATA.name}/tiny.gguf", cwd=DATA.parent))
    good("a draft", lines("serve", "llama-7b", "--draft", DATA / "llama-tiny", "--context", "128"))
    same("a draft of the hub", lines("serve", "llama-7b", "--draft", "acme/sharded", "--context", "128", **cache))
    good("an adapter", lines("estimate", DATA / "llama-tiny", "--peft", DATA / "lora/adapter_config.json"))
    good("settings", lambda how: ask("estimate", "mlp", "--settings", "-", sandbox=how, input=b'{"batch": 8}'))
    good("cards for a file", lines("gpus", "--for", DATA / "resnet18.pt2", "--gpu", "t4,h100"))
    good("a search with threads", lines("fit", DATA / "resnet18.pt2", "--gpu", "t4,h100"))


def streams(folder):
    log = (DATA / "summary.log").read_bytes()
    message = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB of " \
              b"which 1.50 GiB is free. Of the allocated memory 20.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by " \
              b"PyTorch but unallocated.\n"
    for words in (("oom",), ("oom", "-"), ("oom", "/dev/stdin"), ("oom", "/proc/self/fd/0")):
        good(f"a pipe, {words}", lambda how, words=words: ask(*words, sandbox=how, input=message))
    text = folder / "text"
    text.write_bytes(message)
    for words in (("oom",), ("oom", "-"), ("oom", "/dev/stdin")):
        def from_file(how, words=words):
            with open(text, "rb") as file:
                return ask(*words, sandbox=how, stdin=file)
        good(f"a file as standard input, {words}", from_file)
    good("a recording from a pipe", lambda how: ask("replay", "-", sandbox=how, input=(DATA / "ties.tape").read_bytes()))
    good("a log from a pipe", lambda how: ask("diff", "mlp", "-", sandbox=how, input=log))

    def substitution(how):  # <(command) of a shell
        return ask_shell(f'"$0" oom <(cat "$1") --sandbox={how}', text)
    good("a pipe of a shell", substitution)

    def named_pipe(how):
        return ask_shell(f'mkfifo "$1.pipe"; cat "$1" >"$1.pipe" & "$0" oom "$1.pipe" --sandbox={how}; wait; rm "$1.pipe"', text)
    good("a named pipe", named_pipe)

    def into_file(how):
        status, _, err = ask_shell(f'"$0" oom "$1" --sandbox={how} >"$1.out"', text)
        return status, pathlib.Path(f"{text}.out").read_bytes(), err
    good("output to a file", into_file)
    same("no standard input", lambda how: ask_shell(f'"$0" oom --sandbox={how} <&-', text))
    same("no standard output", lambda how: ask_shell(f'"$0" oom "$1" --sandbox={how} >&-', text))


def ask_shell(script, file):
    done = subprocess.run(["bash", "-c", script, PROGRAM, str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                          timeout=60)
    return done.returncode, done.stdout, done.stderr


# ---- systems that have less ----------------------------------------------------------------------------

LANDLOCK_CREATE = 444
SECCOMP = {"x86_64": 317, "aarch64": 277, "riscv64": 277}


def without(*calls, error=errno.ENOSYS):
    """For a process in which these calls fail: a seccomp filter, as containers have them."""
    load, equal, back = 0x20, 0x15, 0x06
    code = [(load, 0, 0, 0)]
    for call in calls:
        code += [(equal, 0, 1, call), (back, 0, 0, 0x00050000 | error)]
    code.append((back, 0, 0, 0x7FFF0000))
    filters = b"".join(struct.pack("=HBBI", *x) for x in code)

    def enter():
        libc = ctypes.CDLL(None, use_errno=True)
        text = ctypes.create_string_buffer(filters, len(filters))
        program = struct.pack("@HP", len(code), ctypes.addressof(text))
        if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
            os._exit(99)
    return {"preexec_fn": enter}


def lesser_systems():
    seccomp = SECCOMP[platform.machine()]
    for what, more, says in (
            ("no Landlock", without(LANDLOCK_CREATE), "this kernel has no Landlock (Linux 5.13)"),
            ("Landlock, switched off", without(LANDLOCK_CREATE, error=errno.EOPNOTSUPP), "this kernel has no Landlock (Linux 5.13)"),
            ("a container that forbids Landlock", without(LANDLOCK_CREATE, error=errno.EPERM), "this kernel has no Landlock (Linux 5.13)"),
            ("a kernel that loses its rules", without(446), "the kernel refuses the Landlock rules"),
            ("no room for rules", without(445, error=errno.ENOMEM), "the kernel takes no more Landlock rules"),
            ("no seccomp", without(seccomp), "this kernel has no seccomp filters (Linux 3.17)")):
        whole = ask("info", DATA / "tiny.gguf", sandbox="never")
        check(f"{what}: by default the answer", ask("info", DATA / "tiny.gguf", **more) == whole)
        check(f"{what}: auto, the answer", ask("info", DATA / "tiny.gguf", sandbox="auto", **more) == whole)
        got = ask("info", DATA / "tiny.gguf", sandbox="always", **more)
        check(f"{what}: always, a refusal", got == (4, b"", f"plimsoll: '--sandbox always': {says}\n".encode()), got)


def main():
    status, _, err = ask("estimate", "mlp", sandbox="always")
    if status == 4:
        print(err.decode().strip())
        return 77
    with tempfile.TemporaryDirectory() as name:
        samples()
        names(pathlib.Path(name))
        streams(pathlib.Path(name))
        lesser_systems()
    print(f"{runs} runs, {bad} problems")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
