#!/usr/bin/env python3
"""examples.py PROGRAM -- the examples with which the help of each command begins, and those of its topics.

Each command line of help is run in a folder that has the files which it names.  The command line is valid: the exit
status is 0, or 1 for "no"; of 'run', 'record' and 'top', which need what this machine may lack, it is not 2.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
FILES = {"net.pt2": "resnet18.pt2", "model.safetensors": "every_type.safetensors", "snapshot.pickle": "run.pickle"}
LOG = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 23.64 GiB of "
       "which 12.00 MiB is free. Of the allocated memory 21.00 GiB is allocated by PyTorch, and 600.00 MiB is reserved by "
       "PyTorch but unallocated.\nMA 0.93 GB  Max_MA 14.6 GB  CA 15.1 GB  Max_CA 15 GB\n")
LOOSE = {"run", "record", "top"}
EXAMPLES = 2
bad = 0


def expect(what, true):
    global bad
    if not true:
        bad += 1
        print(what)


def plimsoll(*words):
    return subprocess.run([PROGRAM, *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def run(line, folder):
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder), "LC_ALL": "C.UTF-8"}
    shell = shutil.which("bash") or "sh"
    done = subprocess.run([shell, "-c", line.replace("COMMAND", "true").replace("MODEL", "resnet18")], cwd=folder, env=env,
                          timeout=120, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    name = re.search(r"plimsoll (\w+)", line).group(1)
    if "fish" in line:  # a shell that need not be here
        return
    good = done.returncode != 2 if name in LOOSE else done.returncode in (0, 1)
    expect(f"{line}: exit {done.returncode}\n{done.stdout}", good)


def main():
    listed = plimsoll("help")
    commands = re.findall(r"^  ([a-z]+) ", listed.split("\n\n")[1], re.M)
    topics = listed.split("Topics, for 'plimsoll help TOPIC': ")[1].replace(",", " ").split()
    expect(f"topics: {topics}", {"quickstart", "memory", "nvidia-smi"} <= set(topics) and not set(topics) & set(commands))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "plimsoll").symlink_to(PROGRAM)
        for file, data in FILES.items():
            (folder / file).symlink_to(DATA / data)
        (folder / "train.log").write_text(LOG, encoding="utf-8")
        (folder / "train.py").write_text(f"print({LOG!r})", encoding="utf-8")
        for command in commands:
            text = plimsoll("help", command)
            expect(f"help {command} is not {command} --help", text == plimsoll(command, "--help"))
            lines = [x.strip() for x in text.split("\n\n")[1].split("\n")]
            expect(f"help {command}: {lines}", len(lines) == EXAMPLES and all(f"plimsoll {command}" in x for x in lines))
            page = plimsoll("help", "--man", command).replace("\\-", "-").replace("\\(aq", "'")
            for line in lines:
                expect(f"the manual page of {command} lacks {line}", f".Dl $ {line}\n" in page)
                run(line, folder)
        for topic in topics:
            text = plimsoll("help", topic)
            expect(f"help {topic}: more than 80 columns", max(map(len, text.split("\n"))) <= 80)
            for line in re.findall(r"^  (plimsoll .*?)(?:   .*)?$", text, re.M):
                run(line, folder)
        print(f"checked: {len(commands)} commands, {len(topics)} topics")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
