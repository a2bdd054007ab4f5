#!/usr/bin/env python3
"""Compares what was recorded here with what Plimsoll says.

    PLIMSOLL=build/plimsoll compare.py nets [NET...]    nets*.txt against predictions for their .pt2
    PLIMSOLL=build/plimsoll compare.py ops [CARD...]    ops.txt against a run of ops.py on a CPU build of
                                                        PyTorch (CPU_PYTHON, default python3)

Left out on both sides: what cuDNN takes inside a convolution, 0 in the recording and an estimate elsewhere;
workspaces that a version keeps, which the process that recorded had from its first ops; for ops all
workspaces of cuBLAS, which differ between versions of PyTorch. Releases with no request between them are compared as a set. Exit status 1: they differ, or a row of EXPECTED has come true.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CUBLAS = {"a100-40g": 8519680, "h100-80g": 33554432, "rtx4090": 8519680}
LT = 1048576

SLICES = "indexing with a whole ':' made a slice, which an export of 2.13 does not have"
ORDER = "two temporaries in another order"
LATE = "what a view's history keeps goes later"
MASKED = "the mean's weights are those of targets that a mask picks; with values that are all 0 it picks none"
ALWAYS = 1 << 30
SCRATCH = "cub of that CUDA takes 767 bytes instead of 1023"

# Nets that differ, on every card, in versions before this one, and why. A row that is not needed is a difference too.
EXPECTED = {
    "views": (209, SLICES), "gathering": (209, SLICES), "advanced": (209, SLICES), "loss_core": (209, SLICES),
    "more_joins": (209, SLICES), "choices": (214, ORDER), "pairs": (214, ORDER), "inplace_views": (215, LATE), "norms": (210, SCRATCH), "bags": (210, SCRATCH),
    "biased_attention": (209, SLICES),
    "loss_weighted": (ALWAYS, MASKED),
}


def header(file):
    """Version and cards: 204, ["a100-40g"]"""
    major, minor, cards = re.search(r"^# torch (\d+)\.(\d+)\S*, cards (.*)$", (HERE / file).read_text(), re.M).groups()
    return 100 * int(major) + int(minor), cards.split(", ")


def recorded(file):
    """(case, card): {phase: events}"""
    out, all_cards = {}, header(file)[1]
    for line in (HERE / file).read_text().splitlines():
        if line.startswith("="):
            case = line[2:]
        elif not line.startswith("#"):
            head, _, events = line.partition(":")
            *phase, cards = head.split()
            for card in all_cards if cards == "all" else cards.split(","):
                row = out.setdefault((case, card), {})
                row[" ".join(phase)] = events.replace("+cublas", f"+{CUBLAS[card]}").split()
    return out


def settings(net):
    text = (HERE.parent / "torch" / f"{net}.txt").read_text()
    return dict(re.findall(r"^(loss|optimizer|batch) (.*)$", text, re.M))


def predicted(net, card, version):
    s = settings(net)
    command = [os.environ.get("PLIMSOLL", "plimsoll"), "tape", HERE.parent / "torch" / f"{net}.pt2", "--gpu", card, "--torch", version, "--batch", s["batch"], "--loss", s["loss"], "--optimizer", s["optimizer"]]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr.strip()
    phases, phase, number, skip, who = {}, None, {}, set(), {}
    lines = done.stdout.splitlines()[1:] + [""]
    gone = {line.split()[1] for line in lines if line.startswith("- ")}
    for line, after in zip(lines, lines[1:]):
        words = line.split()
        if words[0] == "@":
            phase = "load" if words[2] == "load" else " ".join(words[1:3])
            where = " ".join(words[3:])
            phases.setdefault(phase, [])
        elif words[0] == "+" and "certainty=estimated" in line and after == f"- {words[1]}":
            skip.add(words[1])
        elif words[0] == "+" and words[3] == "workspace" and words[1] not in gone:
            skip.add(words[1])
        elif words[0] == "+":
            number[words[1]] = len(number) + 1
            who[len(number)] = f"{where}: {' '.join(words[3:])}"
            phases[phase].append(f"+{words[2]}")
        elif words[0] == "-" and words[1] not in skip:
            phases[phase].append(f"-{number[words[1]]}")
    return phases, who


def groups(events):
    """Requests, and between them sets of releases."""
    out = [set()]
    for e in events:
        if e[0] == "+":
            out += [e, set()]
        else:
            out[-1].add(e)
    return out


def show(group):
    return " ".join(sorted(group)) or "nothing" if isinstance(group, set) else group


def difference(theirs, ours):
    """Where the phase differs first."""
    a, b = groups(theirs), groups(ours)
    for i in range(max(len(a), len(b))):
        x, y = (a[i] if i < len(a) else "the end"), (b[i] if i < len(b) else "the end")
        if x != y:
            return f"after {sum(isinstance(g, str) for g in a[:i])} requests: PyTorch {show(x)}, predicted {show(y)}"
    return None


def compare_nets(names):
    for file in sorted(p.name for p in HERE.glob("nets*.txt")):
        yield from compare_file(file, names)


def compare_file(file, names):
    torch = header(file)[0]
    version = f"{torch // 100}.{torch % 100}"
    for (net, card), phases in recorded(file).items():
        if "error" in phases or names and net not in names:
            continue
        ours, why = predicted(net, card, version)
        if ours is None:
            yield f"{net} {card} {version}", [why]
            continue
        found = [(phase, difference(e, ours.get(phase, []))) for phase, e in phases.items()]
        found = [f"{phase}: {text}" for phase, text in found if text]
        if torch < EXPECTED.get(net, (0,))[0]:
            found = [] if found else ["agrees: its row of EXPECTED can go"]
        yield f"{net} {card} {version}", found


def without_workspaces(phases, sizes):
    """A request of one of these sizes (none: of any) that is given back at once was never there."""
    out, gone, n = {}, [], 0
    for phase, events in phases.items():
        row, i = [], 0
        while i < len(events):
            e, after = events[i], events[i + 1] if i + 1 < len(events) else "+"
            n += e[0] == "+"
            own = after[0] == "-" and int(after[1:]) >= n  # gradients that arrive have numbers too
            if e[0] == "+" and own and (not sizes or int(e[1:]) in sizes):
                gone.append(int(after[1:]))
                i += 2
                continue
            row.append(e if e[0] == "+" else f"-{int(e[1:]) - sum(g < int(e[1:]) for g in gone)}")
            i += 1
        out[phase] = row
    return out


def compare_ops(cards):
    rows = recorded("ops.txt")
    for card in cards or CUBLAS:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "ops.json")
            command = [os.environ.get("PLIMSOLL", "plimsoll"), "run", "--gpu", card, "--quiet", "--", os.environ.get("CPU_PYTHON", "python3"), str(HERE / "record.py")]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "PLIMSOLL_RECORD": path, "PLIMSOLL_WHAT": "ops"})
            ours = json.loads(pathlib.Path(path).read_text())["ops"]
        for (case, where), phases in rows.items():
            if where == card:
                sizes = () if case.startswith("conv") else (CUBLAS[card], LT)
                have = dict(ours.get(case, []))
                if "error" in have:
                    yield f"{case} {card}", ["simulated: " + have["error"]]
                    continue
                have = {p: events.split() for p, events in have.items()}
                a, b = (without_workspaces({p: e for p, e in side.items() if not p.startswith("first")}, sizes) for side in (phases, have))
                found = [f"{p}: PyTorch {' '.join(a[p])} | simulated {' '.join(b.get(p, []))}" for p in a if groups(a[p]) != groups(b.get(p, []))]
                yield f"{case} {card}", found


def main(what="nets", *names):
    same = differ = 0
    for case, found in {"nets": compare_nets, "ops": compare_ops}[what](names):
        same, differ = same + (not found), differ + bool(found)
        for text in found:
            print(f"{case}: {text}")
    print(f"{same} agree, {differ} differ")
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
