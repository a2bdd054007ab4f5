#!/usr/bin/env python3
"""The same scripts on both routes of `plimsoll run`: equal to the byte.

    routes.py PLIMSOLL

PLIMSOLL_TEST_CUDA_PYTHON names a Python with a CUDA build of PyTorch, PLIMSOLL_TEST_PYTHON one
with a CPU build of the same version; without them the test is skipped (77).  Requests must be the
same in the same order, with the same releases between one request and the next, and so must be
what the script prints of torch.cuda's counters after each step.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PYTHONS = [os.environ.get(name) for name in ("PLIMSOLL_TEST_PYTHON", "PLIMSOLL_TEST_CUDA_PYTHON")]
SCRIPTS = [("gpt_loop.py",), ("trainer_gpt2.py",), ("lora_llama.py",), ("lora_llama.py", "checkpoint"),
           ("imagenet_loop.py", "--workspace", "off")]  # cuDNN's workspace is an estimate


def events(path):
    """Requests as they come; the releases between two of them in any order."""
    out, released, size = [], [], {}
    for line in open(path):
        words = line.split()
        if words and words[0] == "+":
            size[words[1]] = int(words[2])
            out += sorted(released) + [int(words[2])]
            released = []
        elif words and words[0] == "-":
            released.append(-size[words[1]])
    return out + sorted(released)


def numbers(text):
    """The lines that the script prints of its counters."""
    rows = [line.removeprefix("step ") for line in text.splitlines()]
    return [row for row in rows if row and all(word.isdigit() for word in row.split())]


def run(program, python, script, folder):
    options = [word for word in script[1:] if word.startswith("-") or word == "off"]
    words = [word for word in script[1:] if word not in options]
    tape = os.path.join(folder, "tape")
    done = subprocess.run([program, "run", "--gpu", "a100-40g", "--quiet", *options, "--save", tape, "--", python,
                           str(HERE / "routes" / script[0]), *words], capture_output=True, text=True, timeout=300)
    if done.returncode:
        sys.exit(f"{script}: {python} ends with {done.returncode}\n{done.stderr[-2000:]}")
    return events(tape), numbers(done.stdout)


def has_packages(python, script):
    name = {"trainer_gpt2.py": "accelerate, transformers", "lora_llama.py": "peft"}.get(script[0], "torch")
    return subprocess.run([python, "-c", f"import {name}"], capture_output=True).returncode == 0


def main(program):
    bad = 0
    for script in SCRIPTS:
        if not all(has_packages(python, script) for python in PYTHONS):
            print("left out, its packages do not import:", *script)
            continue
        with tempfile.TemporaryDirectory() as folder:
            (cpu, shown), (cuda, wanted) = (run(program, python, script, folder) for python in PYTHONS)
        first = next((i for i, pair in enumerate(zip(cpu, cuda)) if pair[0] != pair[1]), min(len(cpu), len(cuda)))
        good = cpu == cuda and shown == wanted and len(shown) > 0
        print("ok  " if good else "FAIL", *script, f"{len(cuda)} events, {wanted[-1] if wanted else 'no counters'}")
        if not good:
            print(f"  from event {first}: CPU build {cpu[first:first + 8]}, CUDA build {cuda[first:first + 8]}")
            print(f"  counters: CPU build {shown}, CUDA build {wanted}")
        bad += not good
    return 1 if bad else 0


if __name__ == "__main__":
    if not all(PYTHONS):
        print("skipped: PLIMSOLL_TEST_PYTHON and PLIMSOLL_TEST_CUDA_PYTHON name no two Pythons with PyTorch")
        sys.exit(77)
    sys.exit(main(sys.argv[1]))
