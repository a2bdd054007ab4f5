#!/usr/bin/env python3
"""Replays what programs on a card asked of PyTorch's allocator, and compares what the simulated one reserves.

    replay.py [--program build/plimsoll] FILE...           exit 1 if a peak of reserved bytes differs
    replay.py --traces FOLDER --runs RUNS.jsonl [--take ID,...]
                                                           the same for traces as they were recorded; with --take they are
                                                           written as such a FILE instead

A FILE has, for each run, a line '# ID torch VERSION: KEY VALUE ...' with what the allocator counted in the end, then its requests:
a size, or the number of the one that is released, negative; sSIZE and uSIZE are segments that were taken and given back.

Where the peaks of a run differ, the first segment is named at which what is reserved parts.
"""
import argparse
import gzip
import json
import pathlib
import re
import subprocess
import sys
import textwrap

KEYS = ("requested", "allocated", "reserved", "segments")


def tape_of(events):
    """The tape: a mark at each segment that was recorded, after which its bytes are reserved."""
    lines, reserved = ["plimsoll-tape 1", "@ 0 load start", "+ 1 4 activation", "- 1"], [2 << 20]
    number, released = 1, False
    for event in map(str, events):
        if event[0] in "su":
            size = int(re.match(r"\d+", event[1:])[0])
            reserved.append(reserved[-1] + (size if event[0] == "s" else -size))
            lines.append(f"@ 0 load {event[0]}{size}")
            if event[0] == "u" and not released:  # by the program: there was memory
                lines.append("! empty_cache")
            released = event[0] == "u"
        elif event[0] == "-":
            lines.append(f"- {1 + int(event[1:])}")
        elif event[0] != "o":
            number, released = number + 1, False
            lines.append(f"+ {number} {event} activation")
    return "\n".join(lines) + "\n", reserved


def replay(program, torch, events):
    """What was counted, and where it parts from what was recorded."""
    tape, reserved = tape_of(events)
    run = subprocess.run([program, "replay", "-", "--torch", torch, "--json"], input=tape, stdout=subprocess.PIPE, check=True,
                         encoding="utf-8")
    answer = json.loads(run.stdout)
    stats = answer["stats"]
    counted = {k: stats[k + "_bytes"]["peak"] for k in KEYS[:3]}
    counted["segments"] = stats["segment"]["current"]
    parts = next((f"segment {i}, {mark['op']}: {mark['reserved'] - want:+} bytes" for i, (mark, want) in
                  enumerate(zip(answer["marks"], reserved)) if mark["reserved"] != want and not mark["op"].startswith("u")), None)
    return counted, parts


def read_files(paths):
    for path in paths:
        for part in re.split(r"^# ", path.read_text(encoding="utf-8"), flags=re.M)[1:]:
            head, _, body = part.partition("\n")
            name, torch, facts = re.fullmatch(r"(\S+) torch (\S+): (.*)", head).groups()
            words = facts.split()
            yield name, torch, dict(zip(words[::2], map(int, words[1::2]))), body.split()


def read_traces(folder, runs):
    for line in runs.read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        name = run.get("id") or run["spec"].get("id")  # of collect.py, or of what is given
        path = folder / f"{name}.json.gz"
        if path.exists() and "segments" in run:
            facts = dict(run.get("peaks") or {k: run["peak_" + k] for k in KEYS[:3]}, segments=run["segments"])
            yield name, run["torch"], {k: facts[k] for k in KEYS}, json.loads(gzip.decompress(path.read_bytes()))


def write(runs, wanted):
    for name, torch, facts, events in runs:
        if name in wanted:
            print(f"# {name} torch {torch}:", *(f"{k} {facts[k]}" for k in KEYS))
            words = (re.sub("@.*", "", str(event)) for event in events)
            print(textwrap.fill(" ".join(words), 130, break_on_hyphens=False))


def compare(program, runs):
    """Whether the peak of reserved bytes of any differs."""
    differ, others, count = 0, 0, 0
    for name, torch, facts, events in runs:
        counted, parts = replay(program, torch, events)
        count += 1
        if counted["reserved"] != facts["reserved"]:
            differ += 1
            error = 100 * (counted["reserved"] / facts["reserved"] - 1)
            print(f"{name}: reserved {facts['reserved']:,}, replayed {counted['reserved']:,} ({error:+.2f} %); {parts}")
        elif counted != facts:
            others += 1
            print(f"{name}: reserved is equal;", ", ".join(f"{k} {facts[k]:,}, replayed {counted[k]:,}" for k in KEYS if counted[k] != facts[k]))
    print(f"{count} runs: {count - differ} with the peak of reserved bytes, {count - differ - others} with all counters")
    return differ > 0


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--program", default="build/plimsoll")
    ap.add_argument("--traces", type=pathlib.Path)
    ap.add_argument("--runs", type=pathlib.Path)
    ap.add_argument("--take", default="")
    ap.add_argument("files", nargs="*", type=pathlib.Path)
    args = ap.parse_args()
    runs = read_traces(args.traces, args.runs) if args.traces else read_files(args.files)
    if args.take:
        write(runs, args.take.split(","))
        return 0
    return compare(args.program, runs)


if __name__ == "__main__":
    sys.exit(main())
