#!/usr/bin/env python3
"""Absurd command lines: every option of every command, with values that it does not expect.

    tests/torture/lines.py PROGRAM [-n COUNT] [-s NUMBER] [-t SECONDS] [-j JOBS]

Commands and options are those that 'plimsoll help' lists; 'run' and 'record' start other programs and are
left out. A number is one line, always the same. Each line has to end in time, with an exit status from 0
to 4, with one line on stderr at most, and nothing on stdout if the status is above 1; and to leave no file
behind. A line that does not is printed, and the exit status is 1.
"""
import argparse
import concurrent.futures
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NOT = {"run", "record", "help"}
WRITES = {"--log", "--prometheus"}  # their values are files that are written
TRACES = re.compile(rb"Sanitizer|runtime error|Traceback|Assertion|core dumped|stack smashing")

NUMBERS = ["0", "1", "-1", "2", "007", "1e3", "1e308", "1e400", "-0", "0.5", "1.5", "NaN", "nan", "inf", "-inf", "0x10",
           "2147483647", "2147483648", "4294967295", "4294967296", "4294967297", "9007199254740993",
           "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551615",
           "18446744073709551616", "9" * 400, "1_000", "1,000", " 1", "1 ", "+1", "١"]
SIZES = ["24GiB", "0GiB", "-1GiB", "1e30GiB", "16777216TiB", "1B", "GiB", "1.5.5GiB", "24 GiB", "24gib", "0.0000001KiB",
         "17179869183GiB", "1EiB", "24GiB,24GiB"]
WORDS = ["", " ", "x", "none", "all", "auto", "on", "off", "true", "False", "\x1b[31m", "\x07", "a\nb", "a\tb", "\x7f",
         "%s%s%n", "$(id)", "'", '"', "`", "\\", "*", "**", "!", ",", ",,,", "=", "==", "a=", "=a", "a=b=c", ";", ":", "-", "--",
         "---", "...", "../..", "/", "~", "<x>", "😀" * 30, "漢" * 50, "e\u0301" * 40, "\u202eabc", "\u200b", "A" * 256,
         "a" * 5000, "x" * 100000, "1," * 30000, "(" * 3000, "[" * 50000, "a.b." * 10000, "x=1," * 20000, "k=v;" * 20000]
KNOWN = ["adamw", "sgd,momentum=0.9", "sgd,momentum=-1e999", "adam,impl=fused,impl=foreach", "lbfgs,history_size=99999999",
         "adamw,lr=nan", "adamw,,", "adamw,betas", "blocks", "segments=0", "segments=-1", "segments=99999999999", "layers.*,reentrant",
         "rtx4090", "t4,a100", "t4,t4,t4", "all", "2xt4", "99999999999xt4", "h100,", ",h100", "fp32", "bf16", "int4", "nf4,double",
         "nf4,skip=a+b+c+", "r=0", "r=4", "r=-4", "r=99999999999999999999,targets=x", "r=4,targets=all-linear,dora", "1,3,224,224",
         "3x3", "x=1,2,3", "0,0,0", "-1,3,224,224", "4294967296,4294967296,4294967296", "1" + ",1" * 200, "()", "s0=3", "s0=-3",
         "batch=99999999999999999999", "fsdp2", "fsdp2,param=bf16", "ds_zero3", "ddp,view=9", "megatron", "1f1b", "zero_bubble",
         ":4096:8", ":0:0", ":99999999999:99999999999", "expandable_segments:True", "max_split_size_mb:0",
         "garbage_collection_threshold:2", "roundup_power2_divisions:[256:1,>:0]", "roundup_power2_divisions:[", "2.13", "1.0",
         "99.99", "2.13.1.1", "outputs,loss", "vllm", "llamacpp", "hf", "q4_k_m", "awq", "5%", "1e400%", "-5%", "batch", "seq", "time",
         "segments", "throughput", "macs,macs", "type,shape,params,macs", "Conv2d,Linear", "bash", "zsh", "fish"]
MODELS = ["mlp", "lenet5", "alexnet", "resnet18", "gpt2", "nosuchmodel", "resnet", "MLP", "mlp.pt2"]
FILES = ["tests/data/relu.pt2", "tests/data/tiny.gguf", "tests/data/llama-tiny", "tests/data/onnx/small_linear.onnx",
         "tests/data/every_type.safetensors", "tests/data/ties.tape", "tests/data/run.pickle", "tests/data/run.pt.trace.json",
         "tests/data/summary.log", "tests/data/torchfile/adam.pt", "tests/data/lora", "tests/data/sharded",
         "tests/data/sharded/model.safetensors.index.json", "tests/fuzz/corpus/oom/new", "tests/fuzz/corpus/settings/report",
         "tests/fuzz/corpus/megatron/local", "tests/fuzz/corpus/history/log", "tests/data/torchfile/evil_0.pkl"]
SHAPES = ["2x3", "1,3,224,224", "()", "0x0", "-1x2", "2x", "x2", "99999999999999999999x1", "4294967296x4294967296x4294967296"]
STRANGE = ["{dir}", "/dev/null", "{fifo}", "{dir}/missing", "{dir}/empty", "/proc/self/mem", "/dev/zero/x", "{dir}/loop",
           "{dir}/unreadable", "-", "", "/" * 5000, "a" * 5000, "{dir}/" + "b" * 300]


def helped(program, *words):
    return subprocess.run([program, "help", *words], capture_output=True, check=True).stdout.decode()


def find_options(program):
    """{command: [(option, takes a value, its words)]}"""
    commands = re.findall(r"^  ([a-z]+) .*?  ", helped(program), re.M)
    found = {}
    for command in commands:
        if command not in NOT:
            text = helped(program, command)
            found[command] = [(o, bool(a), [w for w in a.split("|") if w.islower()])
                              for o, a in re.findall(r"^  (--[a-z0-9-]+)\S*(?: ([^ \n]+))?", text, re.M)]
    return found


class Line:
    """One command line: words in which {dir} and {fifo} stand for the folder that it runs next to."""

    def __init__(self, number, options):
        self.r = random.Random(number)
        self.words = []
        command = self.r.choice(sorted(options))
        self.make_words(command, options)
        if self.r.random() < 0.02:
            self.words.insert(self.r.randrange(len(self.words) + 1), self.value([]))

    def value(self, words):
        if words and self.r.random() < 0.4:
            return self.r.choice(words)
        kind = self.r.choice([NUMBERS, NUMBERS, SIZES, WORDS, KNOWN, KNOWN, STRANGE, FILES])
        value = self.r.choice(kind)
        if self.r.random() < 0.05:
            at = self.r.randrange(len(value) + 1)
            value = value[:at] + self.r.choice(["\udcff", "\udcc3", "\udced\udca0\udc80", "é"]) + value[at:]
        return value[:120000]

    def subject(self, command):
        if command == "size":
            return self.r.choice(SHAPES + NUMBERS)
        if command == "completion":
            return self.r.choice(["bash", "zsh", "fish", "sh", ""])
        r = self.r.random()
        return self.r.choice(MODELS if r < 0.45 else FILES if r < 0.8 else STRANGE) if r < 0.95 else self.value([])

    def make_words(self, command, options):
        rest = []
        for _ in range(self.r.choice([0, 1, 1, 1, 2, 2, 3, 4, 6])):
            option, takes, words = self.r.choice(options[command])
            if self.r.random() < 0.05:
                option = self.r.choice([option[:-1], option + "x", option.upper(), option[1:], "--", "-h", "-v", "-x", "--=", "--=x"])
            if option == "--memory-limit" and self.r.random() < 0.7:
                continue
            rest.append([option])
            r = self.r.random()
            if option in WRITES:
                rest[-1].append(self.r.choice(["{dir}", "/dev/null/x", "{dir}/no/such"]))
            elif takes != (r < 0.08):
                value = self.value(words)
                rest[-1] = [option, value] if self.r.random() < 0.7 else [f"{option}={value}"]
            if self.r.random() < 0.08:
                rest.append(rest[-1])
        if self.r.random() < 0.04:
            rest.append(["--"])
        subjects = self.r.choice([0, 1, 1, 1, 1, 1, 1, 1, 2, 3]) if command != "top" else self.r.random() < 0.1
        rest += [[self.subject(command)] for _ in range(2 if command == "diff" and subjects == 1 else int(subjects))]
        if self.r.random() < 0.7:
            rest.reverse()
        else:
            self.r.shuffle(rest)
        if command == "top":
            rest.insert(0, ["--once"])
            rest += [["--interval", "0.05"], ["--ticks", "1"]] if self.r.random() < 0.9 else []
        if command == "fit" and not any(w[0].startswith("--gpu") for w in rest):
            rest.append(["--gpu", "t4"])  # all cards take more than a moment
        self.words = [command] + [w for words in rest for w in words]


class Fifo(threading.Thread):
    """Somebody who writes into a pipe whenever it is opened."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.over = path, False
        os.mkfifo(path)

    def run(self):
        while not self.over:
            try:
                with open(self.path, "wb") as f:
                    f.write(b"CUDA out of memory. Tried to allocate 26.00 MiB\n")
            except OSError:
                pass

    def end(self):
        self.over = True
        while self.is_alive():  # it waits for a reader
            os.close(os.open(self.path, os.O_RDONLY | os.O_NONBLOCK))
            self.join(0.01)


def judge(status, out, err, left):
    if status in (None, -signal.SIGXCPU, -signal.SIGKILL):
        return "does not end in time"
    if not 0 <= status <= 4:
        return f"ends with status {status}"
    if TRACES.search(err) or TRACES.search(out):
        return "says what only a mistake of the program says"
    if err.count(b"\n") > 1 or (err and not err.endswith(b"\n")):
        return "says more than a line on stderr"
    if status >= 2 and not err:
        return f"says nothing, with status {status}"
    if status >= 2 and out:
        return f"prints something, with status {status}"
    if re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", err):
        return "prints control characters on stderr"
    try:
        out.decode()  # stderr quotes what the line said, which need not be
    except UnicodeDecodeError:
        return "prints what is not UTF-8"
    return f"leaves {left[0]} behind" if left else None


def run_line(program, line, seconds):
    with tempfile.TemporaryDirectory(prefix="lines-") as folder:
        outside, inside = pathlib.Path(folder, "outside"), pathlib.Path(folder, "inside")
        outside.mkdir()
        inside.mkdir()
        (outside / "empty").touch()
        (outside / "loop").symlink_to("loop")
        (outside / "unreadable").touch(mode=0)
        words = [w.replace("{dir}", str(outside)).replace("{fifo}", str(outside / "fifo")) for w in line.words]
        words = [str(ROOT / w) if w in FILES else w for w in words]
        fifo = Fifo(outside / "fifo") if any("fifo" in w for w in line.words) else None
        if fifo:
            fifo.start()
        was = set(os.listdir(outside))
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PLIMSOLL", "COLUMNS", "NO_COLOR"))}
        env |= {"PLIMSOLL_PYTHON": "none", "TMPDIR": str(inside), "HOME": str(inside), "LC_ALL": "C.UTF-8"}
        try:
            # Seconds of the processor, as the machine may have other things to do, too.
            p = subprocess.run(["sh", "-c", 'ulimit -t "$0"; exec "$@"', str(seconds), program, *words],
                               stdin=subprocess.DEVNULL, capture_output=True, timeout=20 * seconds, cwd=inside, env=env)
            status, out, err = p.returncode, p.stdout, p.stderr
        except subprocess.TimeoutExpired as e:
            status, out, err = None, e.stdout or b"", e.stderr or b""
        if fifo:
            fifo.end()
        left = os.listdir(inside) + sorted(set(os.listdir(outside)) - was)
        for path in left:
            if (inside / path).is_dir():
                shutil.rmtree(inside / path)
        return status, judge(status, out, err, left), err


def shorten(words):
    text = shlex.join(words).encode(errors="surrogateescape").decode(errors="backslashreplace")
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= 600 else f"{text[:300]} ... {text[-250:]}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("-n", type=int, default=500, dest="count")
    parser.add_argument("-s", type=int, default=0, dest="number")
    parser.add_argument("-t", type=int, default=2, dest="seconds")
    parser.add_argument("-j", type=int, default=2, dest="jobs")
    a = parser.parse_args()
    a.program = str(pathlib.Path(a.program).resolve())
    options = find_options(a.program)
    statuses, findings = {}, 0

    def try_line(number):
        line = Line(number, options)
        return number, line, *run_line(a.program, line, a.seconds)

    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for number, line, status, problem, err in pool.map(try_line, range(a.number, a.number + a.count)):
            statuses[status] = statuses.get(status, 0) + 1
            if problem:
                findings += 1
                print(f"finding: -s {number}: {problem}: plimsoll {shorten(line.words)}\n    {err[-300:]!r}", flush=True)
    counts = ", ".join(f"{n} with status {s}" for s, n in sorted(statuses.items(), key=str))
    print(f"{a.count} lines of {len(options)} commands: {counts}; {findings} findings")
    return findings != 0


if __name__ == "__main__":
    sys.exit(main())
