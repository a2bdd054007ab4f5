#!/usr/bin/env python3
"""bombs.py PROGRAM -- small files that take much, and all samples, with little memory.

Writes files that took gigabytes or many seconds once, such as 663 bytes of ONNX with four nested loops, and
reads each of them, and each file of tests/data, with `info`, and `estimate` or, what is not a model, `replay`; and
recordings with `diff`, too, compared with themselves:

 * every file under a limit of 512,000 KiB of address space, and the bombs in a control group of that size, as
   a container is, where one can be made: exit status 0 to 4 within 10 s of processor time;
 * the bombs, further, without a limit: no more memory than a floor and 64 times their size, within these 10 s, and
   with the exit status and the words that are listed.

Prints one line of counts, then what was wrong; exit status 1 if anything was.
"""

import json
import multiprocessing
import os
import pathlib
import pickle
import resource
import struct
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from sparse import data, number  # noqa: E402  fields of protobuf

DATA = ROOT / "tests" / "data"
LIMIT = 512_000 * 1024
FLOOR = 192 << 20  # 128 MiB for a reader, and the program itself
SECONDS = 10
TRIES = 3  # the least time counts: others may compute on the machine


# ---- protobuf, as ONNX uses it ------------------------------------------------------------------


def text(field, value):
    return data(field, value.encode() if isinstance(value, str) else value)


def node(op, inputs, outputs, *attributes):
    return (b"".join(text(1, i) for i in inputs) + b"".join(text(2, o) for o in outputs) + text(4, op)
            + b"".join(text(5, a) for a in attributes))


def value(name, shape, dtype=1):
    dims = b"".join(text(1, number(1, d)) for d in shape)
    return text(1, name) + text(2, text(1, number(1, dtype) + text(2, dims)))


def tensor(name, dims, dtype, raw):
    return b"".join(number(1, d) for d in dims) + number(2, dtype) + text(8, name) + text(9, raw)


def graph(nodes, inputs, outputs, weights=()):
    return (b"".join(text(1, n) for n in nodes) + text(2, "g") + b"".join(text(5, w) for w in weights)
            + b"".join(text(11, i) for i in inputs) + b"".join(text(12, o) for o in outputs))


def onnx(g):
    return number(1, 8) + text(8, text(1, "") + number(2, 18)) + text(7, g)


def body_of_loop(depth, most):
    i, go, x = (f"{letter}{depth}" for letter in "icx")
    if depth == most:
        inner = node("Relu", [x], [x + "o"])
    else:
        inner = node("Loop", ["M", go, x], [x + "o"],
                     text(1, "body") + text(6, body_of_loop(depth + 1, most)) + number(20, 5))
    return graph([inner, node("Identity", [go], [go + "o"])], [value(i, (), 7), value(go, (), 9), value(x, (2,))],
                 [value(go + "o", (), 9), value(x + "o", (2,))])


def nested_loops(depth, trips):
    loop = node("Loop", ["M", "C", "x"], ["y"], text(1, "body") + text(6, body_of_loop(1, depth)) + number(20, 5))
    return onnx(graph([loop], [value("x", (2,))], [value("y", (2,))],
                      [tensor("M", (), 7, struct.pack("<q", trips)), tensor("C", (), 9, b"\1")]))


def chain(n):
    return onnx(graph([node("Relu", [f"a{i}"], [f"a{i + 1}"]) for i in range(n)], [value("a0", (2,))],
                      [value(f"a{n}", (2,))]))


def grouped_conv(group):
    conv = node("Conv", ["x", "w"], ["y"], text(1, "group") + number(3, group) + number(20, 2))
    return onnx(graph([conv], [value("x", (1, 4, 8, 8))], [value("y", (1, 4, 8, 8))],
                      [tensor("w", (4, 1, 1, 1), 1, bytes(16))]))


def bombs(folder):
    """(path, exit statuses of info and estimate, what one of them says)."""
    def write(name, contents):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(contents)
        return path

    def archive(name, pickle):
        with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
            z.writestr("archive/data.pkl", b"\x80\x02" + pickle + b".")
            z.writestr("archive/version", "3\n")
        return folder / name

    def config(name, **keys):
        return write(f"{name}/config.json", json.dumps(keys).encode()).parent

    llama = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_attention_heads": 4,
             "num_hidden_layers": 2, "intermediate_size": 128, "vocab_size": 100}
    more = "takes more than"
    yield write("loops.onnx", nested_loops(4, 50)), (0, 4), more
    yield write("million.onnx", chain(1_000_000)), (0, 4), more
    yield write("group.onnx", grouped_conv(2**63 - 1)), (0, 0), "onnx.Conv"
    yield archive("brackets.pt", b"]" * 12_000_000 + b"a"), (4, 3), more
    yield archive("nones.pt", b"N" * 300_000_000), (4, 3), more
    yield config("t5", model_type="t5", architectures=["T5ForConditionalGeneration"],
                 num_decoder_layers=10**9), (3, 3), "'num_decoder_layers' is 1000000000, not in 1..1024"
    yield config("vit", model_type="vit", architectures=["ViTForImageClassification"],
                 image_size=10**15), (3, 3), "'image_size' is 1000000000000000, not in 1..2147483647"
    yield config("no_head", **llama, head_dim=0), (3, 3), "'head_dim' is 0, not in 1.."
    yield config("no_keys", **llama, num_key_value_heads=0), (3, 3), "'num_key_value_heads' is 0, not in 1.."
    yield config("no_experts", **dict(llama, model_type="mixtral", architectures=["MixtralForCausalLM"]),
                 num_key_value_heads=4, num_local_experts=0), (3, 3), "'num_local_experts' is 0, not in 1.."
    yield config("dropout", **llama, attention_dropout=7.5), (3, 3), "'attention_dropout' is 7.5, not in 0..1"
    yield config("negative", **llama, attention_dropout=-1), (3, 3), "'attention_dropout' is -1, not in 0..1"


# ---- recordings, in which one object stands in many places --------------------------------------------

BASE = 0x7f0000000000


def action(what="alloc", i=0, **more):
    return {"action": what, "addr": BASE + 512 * i, "size": 512, "stream": 0, **more}


def block(**more):
    return {"size": 512, "requested_size": 512, "state": "active_allocated", **more}


def segment(blocks, at=0):
    return {"address": BASE + at, "total_size": 512 * len(blocks), "stream": 0, "device": 0, "blocks": blocks}


def frames(n, letters):
    """They have one file and one function, with long names."""
    file, name = "d" * letters + "/" + "f" * 400 + ".py", "n" * letters
    return [{"filename": file, "line": i, "name": name} for i in range(n)]


def nest(value, times, depth):
    for _ in range(depth):
        value = [value] * times
    return value


def spans(n, letters):
    """A trace with one long name, in as many stacks as it has requests."""
    note = {"ph": "X", "cat": "user_annotation", "name": "a" * letters, "pid": 1, "tid": 1, "ts": 0, "dur": 10 * n}
    yield note
    for i in range(n):
        at = {"pid": 1, "tid": 1, "ts": 10 * i + 1}
        yield {"ph": "X", "cat": "cpu_op", "name": f"op{i}", "dur": 5, **at}
        yield {"ph": "i", "name": "[memory]", **at, "args": {
            "Addr": 512 * i, "Bytes": 512, "Device Type": 1, "Device Id": 0}}


def snapshot(segments=(), trace=()):
    return pickle.dumps({"segments": list(segments), "device_traces": [list(trace)]}, 4)


def stacks(n):
    few = frames(64, 300)
    return [action(i=i, frames=few[i % 64:] + few[:i // 64 % 64] + few[:i // 4096]) for i in range(n)]


# (file, what it holds, exit statuses of info, replay and diff, what one of them says)
NO_MODEL, MORE = "is a memory snapshot of PyTorch, not a model", "takes more than"
RECORDINGS = [
    ("one_event", lambda: snapshot(trace=[action(frames=frames(64, 300))] * 3_000_000), (3, 0, 4), MORE),
    ("one_large_event", lambda: snapshot(trace=[action(x="x" * 10**6)] * 2_000_000), (3, 0, 4), NO_MODEL),
    ("two_events", lambda: snapshot(trace=[action(), action("free_completed")] * 1_500_000), (3, 0, 0), NO_MODEL),
    ("one_stack", lambda: snapshot(trace=[action(i=i, frames=f) for f in [frames(64, 300)] for i in range(100_000)]),
     (3, 0, 0), NO_MODEL),
    ("many_stacks", lambda: snapshot(trace=stacks(30_000)), (3, 0, 0), NO_MODEL),
    ("many_frames", lambda: snapshot(trace=[action(i=i, frames=[f]) for i, f in enumerate(frames(100_000, 100_000))]),
     (3, 0, 0), NO_MODEL),
    ("traces_first", lambda: pickle.dumps({"device_traces": [[action(i=i) for i in range(100_000)]], "segments": []}, 4),
     (3, 0, 0), NO_MODEL),
    ("wide_event", lambda: snapshot(trace=[action(**{f"k{i}": i for i in range(10_000)})] * 1_000_000),
     (3, 0, 0), NO_MODEL),
    ("nested", lambda: snapshot(trace=[action(frames=nest(frames(64, 9), 1000, 100)), nest([action()], 1000, 100)]),
     (3, 0, 0), NO_MODEL),
    ("one_block", lambda: snapshot([segment([block(frames=frames(64, 300))] * 3_000_000)]), (3, 4, 4), MORE),
    ("one_segment", lambda: snapshot([segment([], 1), segment([])] * 1_500_000), (3, 0, 0), NO_MODEL),
    ("one_history", lambda: snapshot([segment([block(history=[{"real_size": 5}] * 1_000_000)] * 1000)] * 1000),
     (3, 3, 3), NO_MODEL),
    ("one_note", lambda: json.dumps(list(spans(30_000, 100_000))).encode(), (3, 0, 0), "is a trace of torch.profiler"),
]


def write_recording(path, make):
    path.write_bytes(make())


def recordings(folder):
    """Each is made in a process of its own: what starts from a large one counts as large."""
    for name, make, statuses, words in RECORDINGS:
        path = folder / name
        writer = multiprocessing.get_context("fork").Process(target=write_recording, args=(path, make))
        writer.start()
        writer.join()
        yield path, statuses, words


def make_group():
    """A control group with that much memory; None: this user cannot make one."""
    for root, file in ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max"):
        path = pathlib.Path(root, f"plimsoll-{os.getpid()}")
        try:
            path.mkdir()
            try:
                (path / file).write_text(str(LIMIT))
                return path
            except OSError:
                path.rmdir()
        except OSError:
            pass
    return None


# Of a recording.
READERS = ("info",), ("replay",), ("replay", "--json"), ("diff",), ("diff", "--json")


def files_of(command):
    """A recording is compared with itself."""
    return 2 if command[0] == "diff" else 1


class Runner:
    def __init__(self, program):
        self.program, self.runs, self.wrong, self.most, self.group = program, 0, [], 0, make_group()

    def run(self, path, command, limit, group=None):
        def restrict():
            if group:
                (group / "cgroup.procs").write_text(str(os.getpid()))
            elif limit:
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

        for _ in range(TRIES):
            status, said, usage = self.start(path, command, restrict)
            took = usage.ru_utime + usage.ru_stime
            if took < SECONDS:
                break
        self.runs += 1
        self.expect(0 <= status <= 4, path, command, limit, f"exit status {status}: {said[-200:]}")
        self.expect(took < SECONDS, path, command, limit, f"it took {took:.1f} s")
        return status, said, usage.ru_maxrss * 1024

    def start(self, path, command, restrict):
        with tempfile.TemporaryFile() as out:
            child = subprocess.Popen([self.program, *command, *[str(path)] * files_of(command)], stdout=out, stderr=out,
                                     preexec_fn=restrict)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = status
            out.seek(0)
            said = " ".join(out.read(1 << 20).decode("utf-8", "replace").split())
        return os.waitstatus_to_exitcode(status), said, usage

    def expect(self, true, path, command, limit, why):
        if not true:
            self.wrong.append(f"{' '.join(command)} {path}{f' within {limit} bytes' if limit else ''}: {why}")

    def explode(self, path, statuses, words, commands=(("info",), ("estimate",))):
        size = path.stat().st_size if path.is_file() else 0
        heard = []
        for command, wanted in zip(commands, statuses):
            files = files_of(command)
            status, said, held = self.run(path, command, 0)
            heard.append(said)
            self.most = max(self.most, held - 64 * size * files)
            self.expect(status == wanted, path, command, 0, f"exit status {status}, not {wanted}: {said[-200:]}")
            self.expect(held < files * (FLOOR + 64 * size), path, command, 0, f"it took {held >> 20} MiB")
            if "--json" in command:  # the same, printed otherwise
                continue
            self.run(path, command, LIMIT)
            if self.group:
                self.run(path, command, LIMIT, self.group)
        self.expect(any(words in said for said in heard), path, commands[0], 0, f"it does not say '{words}': {heard}")


def main():
    runner = Runner(os.path.abspath(sys.argv[1]))
    samples = [p for p in sorted(DATA.rglob("*")) if p.is_file()]
    for path in samples:
        known, _, _ = runner.run(path, ("info",), LIMIT)
        runner.run(path, ("replay" if known else "estimate",), LIMIT)
    with tempfile.TemporaryDirectory() as folder:
        n = 0
        for bomb in bombs(pathlib.Path(folder)):
            runner.explode(*bomb)
            n += 1
        for path, (info, replay, diff), words in recordings(pathlib.Path(folder)):
            runner.explode(path, (info, replay, replay, diff, diff), words, READERS)
            path.unlink()
            n += 1
    if runner.group:
        runner.group.rmdir()
    print(f"{len(samples)} samples and {n} bombs, {runner.runs} runs; a bomb takes {runner.most >> 20} MiB at most, "
          f"besides 64 times its size; {'in a control group, too' if runner.group else 'no control group could be made'}")
    print(*runner.wrong, sep="\n", end="\n" if runner.wrong else "")
    return 1 if runner.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
