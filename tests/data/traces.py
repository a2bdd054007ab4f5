#!/usr/bin/env python3
"""traces.py -- writes tests/data/traces: small traces as the versions of PyTorch write them, by hand, for what
the recorded ones of tests/golden/traces do not have.

    tests/data/traces.py

src: torch/csrc/autograd/profiler_kineto.cpp, 1.8 to 2.13
"""
import json
import pathlib

HERE = pathlib.Path(__file__).resolve().parent / "traces"
MIB = 1 << 20
BASE = 0x7f0000000000


def memory(ts, addr, size, allocated=None, reserved=None, device=(1, 0), pid=100, tid=100, name="[memory]", **more):
    args = {"Addr": addr, "Bytes": size, "Device Type": device[0], "Device Id": device[1], **more}
    if allocated is not None:
        args.update({"Total Allocated": allocated, "Total Reserved": reserved})
    return {"ph": "i", "cat": "cpu_instant_event", "name": name, "pid": pid, "tid": tid, "ts": ts, "args": args}


def span(ts, dur, name, cat="cpu_op", pid=100, tid=100):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": {"Ev Idx": 0}}


def trace(*events, **more):
    return {"schemaVersion": 1, **more, "traceEvents": list(events), "traceName": "t.json"}


# 1.8: neither addresses nor counters
torch_1_8 = trace({"ph": "i", "name": "[memory]", "pid": 100, "tid": 100, "ts": 1, "args":
                   {"Device Type": 1, "Device Id": 0, "Bytes": 512}})

# later: addresses; ops have another category
no_counters = trace(span(1, 8, "aten::empty", "Operator"), memory(2, BASE, 5 * MIB), memory(20, BASE, -5 * MIB))

# two processes, two GPUs and the CPU; the busiest GPU is the second of the first process.  Events are by thread and
# not by time, the args come first as when keys are sorted, and one op ends where the other begins
several = trace(
    {"args": {"name": "python"}, "ph": "M", "name": "process_name", "pid": 100},
    span(1, 9, 'my "part" é', "user_annotation"), span(2, 3, "aten::linear"), span(2, 1, "aten::empty"),
    span(5, 4, "aten::relu"),
    memory(2, 77, 4096, 4096, 0, (0, -1)), memory(3, 78, 4096, 8192, 0, (0, -1)), memory(4, 79, 4096, 12288, 0, (0, -1)),
    memory(4, 80, 4096, 16384, 0, (0, -1)),
    memory(1, BASE, 512, 512, 2 * MIB),
    memory(2.5, BASE, 3 * MIB, 3 * MIB, 20 * MIB, (1, 1)),
    memory(30, BASE, -3 * MIB, 4 * MIB, 20 * MIB, (1, 1), tid=101),
    memory(4369318097726.105, BASE, 1024, 1024, 2 * MIB, (1, 1), pid=200),
    dict(sorted(memory(6.25, BASE + 3 * MIB, 4 * MIB, 7 * MIB, 20 * MIB, (1, 1)).items())))

# the first counters have 9 MiB that no event names, and 6 MiB that are freed
mid_run = trace(memory(1, BASE, 1024, 15 * MIB + 1024, 40 * MIB), memory(2, BASE + MIB, -6 * MIB, 9 * MIB + 1024, 40 * MIB))

# a segment that our allocator would not take; and an event that is missing between two others
different = trace(memory(1, BASE, 5 * MIB, 5 * MIB, 20 * MIB), memory(2, BASE + 5 * MIB, MIB, 6 * MIB, 20 * MIB))
gap = trace(memory(1, BASE, 512, 512, 2 * MIB), memory(2, BASE + 1024, 512, 1536, 2 * MIB))

# cached memory from before, so the first request takes nothing new
cached = trace(memory(1, BASE, 512, 512, 64 * MIB))

# a release, then a request that fails
oom = trace(memory(1, BASE, 5 * MIB, 5 * MIB, 20 * MIB), memory(2, BASE + 32 * MIB, 30 * MIB, 35 * MIB, 50 * MIB),
            memory(3, BASE + 32 * MIB, -30 * MIB, 5 * MIB, 50 * MIB), memory(4, BASE + 5 * MIB, MIB, 6 * MIB, 22 * MIB),
            span(4, 2, "aten::empty"),
            memory(5, 0, 4096 * MIB, 6 * MIB, 22 * MIB, name="[OutOfMemory]"))

huge = json.dumps(trace(memory(1, BASE, 512, 512, 512))).replace('"Bytes": 512', '"Bytes": 1152921504606846976')
beyond = json.dumps(trace(memory(1, BASE, 512, 512, 512))).replace('"Bytes": 512', '"Bytes": 123456789012345678901234')

# as exported before Kineto: a list, and nothing about memory
bare_list = [span(1, 2, "aten::empty")]
other = {"model_type": "llama"}


def main():
    HERE.mkdir(exist_ok=True)
    for name, value in globals().copy().items():
        if isinstance(value, (dict, list, str)) and not name.startswith("_"):
            text = value if isinstance(value, str) else json.dumps(value)
            (HERE / f"{name}.json").write_text(text.replace("}, {", "},\n{") + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
