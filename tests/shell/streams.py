#!/usr/bin/env python3
"""streams.py PROGRAM -- standard streams that are closed, full, or whose reader has left, with every command.

A command that is run or recorded has all three streams, and no file that is opened takes the place of one.
"""

import os
import re
import subprocess
import sys
import tempfile

PROGRAM = os.path.abspath(sys.argv[1])
LINES = [  # each prints an answer to stdout
    "help", "help run", "run --help", "--help", "--version", "completion bash", "size 3x224x224", "estimate lenet5",
    "estimate lenet5 --json", "layers lenet5", "compare lenet5 alexnet", "fit lenet5 --gpu t4", "serve gpt2 --gpu t4",
    "info lenet5", "tape lenet5", "diff lenet5 lenet5", "replay lenet5.tape", "oom oom.txt", "models", "gpus", "gpus --csv", "ops",
    "optimizers", "losses", "loops", "adapters", "strategies", "quantizations", "engines", "profiles", "formats",
    "top --once", "top --json", "record --json -- true",
    "run --gpu t4 -- sh report.sh", "run --gpu t4 --json -- sh report.sh",
]
REPORT = """# as a process that uses the card leaves it
echo '{"schema": "a report"}' > "$PLIMSOLL_RUN_REPORT/$$+.json"
echo 'a report' > "$PLIMSOLL_RUN_REPORT/$$+"
"""
OOM = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 14.56 GiB of which "
       "1.00 GiB is free. Including non-PyTorch memory, this process has 13.00 GiB memory in use. Of the allocated memory 12.00 GiB "
       "is allocated by PyTorch, and 500.00 MiB is reserved by PyTorch but unallocated.\n")
bad = 0


def expect(what, have, want):
    global bad
    if have != want:
        bad += 1
        print(f"FAIL {what}: {str(have)[:300]}, not {want}")


def shell(text, **more):
    return subprocess.run(["bash", "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60,
                          env={**os.environ, "PLIMSOLL": PROGRAM}, **more)


def check_lines():
    named = {line.split()[0] for line in LINES}
    listed = re.findall(r"^  ([a-z]+) ", shell('"$PLIMSOLL" help').stdout, re.M)
    expect("every command is here", [x for x in listed if x not in named], [])
    for line in LINES:
        code = shell(f'"$PLIMSOLL" {line}').returncode
        for to, why in ((">&-", "Bad file descriptor"), (">/dev/full", "No space left on device")):
            ran = shell(f'"$PLIMSOLL" {line} {to}')
            expect(f"{line} {to}", (ran.returncode, ran.stderr.endswith(f"plimsoll: cannot write: {why}\n"), ran.stdout),
                   (4, True, ""))
        ran = shell(f'"$PLIMSOLL" {line} 2>&-')
        expect(f"{line} 2>&-", (ran.returncode, ran.stdout != ""), (code, True))
        ran = shell(f'"$PLIMSOLL" {line} | true; echo ${{PIPESTATUS[0]}}')
        expect(f"{line} | true", (ran.stdout in (f"{code}\n", "141\n"), "cannot write" in ran.stderr), (True, False))
        ran = shell(f'trap "" PIPE; "$PLIMSOLL" {line} | true; echo ${{PIPESTATUS[0]}}')
        expect(f"{line} | true, where SIGPIPE is ignored", (ran.stdout, "cannot write" in ran.stderr), (f"{code}\n", False))


def check_usage():
    for line in ("estimate", "nothing", "size x", "estimate nothing"):
        code = shell(f'"$PLIMSOLL" {line}').returncode
        expect(f"{line}, all closed", shell(f'"$PLIMSOLL" {line} <&- >&- 2>&-').returncode, code)


def check_files():
    """A file that is opened is not a standard stream."""
    model = open("lenet5.tape", "rb").read()
    for closed in (">&-", "2>&-", "<&-", "<&- >&-", "<&- >&- 2>&-"):
        shell(f'"$PLIMSOLL" replay lenet5.tape {closed}')
        expect(f"a file that is read, {closed}", open("lenet5.tape", "rb").read(), model)
        shell(f'"$PLIMSOLL" record -o rec.plrec -- sh -c "echo out; echo err >&2" {closed}')
        head = open("rec.plrec", "rb").read()
        expect(f"a recording, {closed}", (head[:8], b"out" in head.replace(b"echo out", b""), len(head)), (b"PLREC\r\n\x1a", False, 65536))
        os.unlink("rec.plrec")
        shell(f'"$PLIMSOLL" run --gpu t4 --report report.txt -- sh report.sh {closed}')
        expect(f"a report, {closed}", open("report.txt", encoding="utf-8").read(), "a report\n")
        ran = shell(f'"$PLIMSOLL" top --log a.db --prometheus a.prom --ticks 1 --interval 0.1 {closed}')
        expect(f"a log, {closed}", (ran.returncode in (0, 1), open("a.prom").read().endswith("# EOF\n")), (True, True))


def check_children():
    """What is started has all three."""
    see = "import os; os.open('seen', os.O_CREAT | os.O_WRONLY); print(*(os.readlink(f'/proc/self/fd/{i}') for i in range(3)), file=open('seen', 'w'))"
    for command in ("run --gpu t4", "record"):
        shell(f'"$PLIMSOLL" {command} -- "{sys.executable}" -c "{see}" <&- >&- 2>&-')
        expect(command, open("seen").read(), "/dev/null /dev/null /dev/null\n")
        os.unlink("seen")
    ran = shell('"$PLIMSOLL" record -- sh -c "echo out" <&- 2>&-')
    expect("one that is open stays", ran.stdout, "out\n")


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        shell('"$PLIMSOLL" tape lenet5 > lenet5.tape')
        for name, text in (("oom.txt", OOM), ("report.sh", REPORT)):
            with open(name, "w", encoding="utf-8") as f:
                f.write(text)
        check_lines()
        check_usage()
        check_files()
        check_children()
    print(f"{bad} problems")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
