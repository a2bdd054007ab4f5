#!/usr/bin/env python3
"""differential.py -- compares predictions of training steps with dry runs of the same steps.

    differential.py names                   the models of models.py
    differential.py record [NAME...]        exports models as plimsoll.estimate(module, ...) does (those that are
                                            recorded, if none is named), runs each under `plimsoll run` (with
                                            PyTorch, torchvision, transformers)
    differential.py compare [NAME...]       compares predictions with the recordings: needs no PyTorch
    differential.py show NAME SETTING       both tapes of one model, and where they first differ
    differential.py table                   the section of docs/accuracy.md on dry runs

PLIMSOLL names the program (default build/plimsoll), PYTHON a Python with PyTorch, GOLDEN the folder of recordings
(default tests/golden/differential, which has some of the models and is what the tests compare).
NAME may also be MODULE:FUNCTION, for show: a function that returns a module, its inputs as a tuple and its
keyword inputs as a dict.

Exit status of compare: 1 if fewer than 90 in 100 peaks are equal to the byte, fewer than 97 within 0.5 %, one is
off by more than 3 %, or an op has no rule.
"""
import concurrent.futures
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GOLDEN = pathlib.Path(os.environ.get("GOLDEN", ROOT / "tests" / "golden" / "differential"))
RESULTS = GOLDEN / "results.txt"
PLIMSOLL = os.environ.get("PLIMSOLL", str(ROOT / "build" / "plimsoll"))
PYTHON = os.environ.get("PYTHON", sys.executable)
CARD = "h100"
SETTINGS = {  # of loop.py: the same as options of plimsoll
    "sgd": ["--optimizer", "sgd"],
    "adamw": ["--optimizer", "adamw"],
    "autocast": ["--optimizer", "adamw", "--autocast", "bf16"],
    "checkpoint": ["--optimizer", "sgd", "--checkpoint", "blocks"],
}
SAYS = {"sgd": "fp32, SGD", "adamw": "fp32, AdamW", "autocast": "bf16 autocast, AdamW",
        "checkpoint": "fp32, SGD, blocks checkpointed"}
MARKS = ((0.0, 90.0), (0.5, 97.0), (3.0, 100.0))  # within so many per cent: at least so many in 100
BEGIN, END = "<!-- differential: begin -->", "<!-- differential: end -->"


# ---- with PyTorch ------------------------------------------------------------------------------------


def python(*arguments, **more):
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); import models; models.%s" % arguments[0]
    return subprocess.run([PYTHON, "-W", "ignore", "-c", code, str(HERE), *arguments[1:]],
                          check=True, capture_output=True, text=True, **more).stdout


def export(name, target):
    python("export(*sys.argv[1:])", name, str(target))


def dry_run(name, setting, tape=None):
    """The report of two steps on the pretend card; bool answers are True (--scalar 1), as the checks of
    transformers for masks are with inputs that have no padding."""
    command = [PLIMSOLL, "run", "--gpu", CARD, "--scalar", "1", "--json"]
    command += ["--save", tape] if tape else []
    done = subprocess.run([*command, "--", PYTHON, "-W", "ignore", str(HERE / "loop.py"), name, setting],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{name} {setting}: {done.stderr.strip()[-600:]}")
    return json.loads(done.stdout)


def row_of(name, setting, report):
    return f"{name} {setting} {report['peak_requested']} {report['peak_allocated']} {report['peak_reserved']}"


def record(names):
    GOLDEN.mkdir(exist_ok=True)
    versions = python("versions()").strip()
    rows = read_results()
    chosen = names or sorted({name for name, _ in rows})
    blocks = python("with_blocks(sys.argv[1:])", *chosen).split()
    todo = [(n, s) for n in chosen for s in SETTINGS if s != "checkpoint" or n in blocks]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, _ in zip(chosen, pool.map(lambda n: export(n, GOLDEN / f"{n}.pt2"), chosen)):
            print(f"{name}: exported", flush=True)
        reports = pool.map(lambda t: dry_run(*t), todo)
        for (name, setting), report in zip(todo, reports):
            rows[name, setting] = row_of(name, setting, report)
            print(rows[name, setting], flush=True)
    lines = [f"# recorded {datetime.date.today()} by: tools/differential/differential.py record",
             f"# {versions}; {CARD}; model, setting, peaks of requested, allocated and reserved bytes"]
    RESULTS.write_text("\n".join(lines + [rows[k] for k in sorted(rows)]) + "\n")


# ---- without ------------------------------------------------------------------------------------------


def read_results():
    rows = {}
    for line in RESULTS.read_text().splitlines() if RESULTS.exists() else []:
        if not line.startswith("#"):
            rows[tuple(line.split()[:2])] = line
    return rows


def torch_version():
    return RESULTS.read_text().split("torch ", 1)[1].split("+")[0].split(",")[0].rsplit(".", 1)[0]


def command_of(what, name, setting, version, graph=None):
    return [PLIMSOLL, what, str(graph or GOLDEN / f"{name}.pt2"), "--gpu", CARD, "--torch", version,
            "--loop", "typical", *SETTINGS[setting]]  # the loop that was recorded: out = model(**batch)


def predict(name, setting, version):
    done = subprocess.run([*command_of("estimate", name, setting, version), "--json"], capture_output=True, text=True)
    if not done.stdout:
        return None, done.stderr.strip()
    report = json.loads(done.stdout)
    return report["memory"], report["certainty"]["unknown_ops"]


def compare(names):
    """[(name, setting, recorded, predicted)] of requested, allocated, reserved; prints them all."""
    out, version, unknown = [], torch_version(), set()
    for (name, setting), line in sorted(read_results().items()):
        if names and name not in names:
            continue
        recorded = [int(w) for w in line.split()[2:]]
        memory, ops = predict(name, setting, version)
        if memory is None:
            sys.exit(f"{name} {setting}: {ops}")
        unknown.update(ops)
        predicted = [memory[f"peak_{k}"] for k in ("requested", "allocated", "reserved")]
        out.append((name, setting, recorded, predicted))
        off = 100 * (predicted[0] - recorded[0]) / recorded[0]
        note = "" if predicted == recorded else \
            f"  {off:+.3f} %" if predicted[0] != recorded[0] else "  allocated or reserved differs"
        print(f"{name:30} {setting:10} {recorded[0]:>12} {predicted[0]:>12}{note}")
    return out, unknown


def shares(rows):
    """For each mark: how many in 100 are within it."""
    off = [abs(p[0] - r[0]) / r[0] * 100 for _, _, r, p in rows]
    return [100 * sum(o <= within for o in off) / len(off) for within, _ in MARKS]


def judge(rows, unknown):
    for (within, least), share in zip(MARKS, shares(rows)):
        says = f"within {within} %" if within else "equal to the byte"
        print(f"{says}: {share:.1f} in 100 of {len(rows)} (at least {least:.0f})")
    if unknown:
        print("ops without a rule: " + ", ".join(sorted(unknown)))
    return bool(unknown) or any(share < least for (_, least), share in zip(MARKS, shares(rows)))


def table():
    rows, _ = compare([])
    names = sorted({r[0] for r in rows})
    by = {(n, s): (r, p) for n, s, r, p in rows}
    head = RESULTS.read_text().splitlines()[1].lstrip("# ").split(";")[0]
    exact, near, most = shares(rows)
    lines = [BEGIN, "", f"{len(names)} models, two steps each, batch 16 (`tools/differential`): {head}, pretend H100. Of "
             f"{len(rows)} peaks of requested bytes, {exact:.1f} % are equal to the byte, {near:.1f} % within 0.5 %, "
             f"{most:.1f} % within 3 %.", "",
             "| model | " + " | ".join(SAYS[s] for s in SETTINGS) + " |", "| --- |" + " --- |" * len(SETTINGS)]
    for name in names:
        cells = []
        for setting in SETTINGS:
            pair = by.get((name, setting))
            cells.append("no blocks" if not pair else "=" if pair[0][0] == pair[1][0] else
                         f"{100 * (pair[1][0] - pair[0][0]) / pair[0][0]:+.3f} %")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", END]
    page = ROOT / "docs" / "accuracy.md"
    text = page.read_text()
    before, rest = text.split(BEGIN, 1)
    page.write_text(before + "\n".join(lines) + rest.split(END, 1)[1])


def show(name, setting):
    import tapes
    with tempfile.TemporaryDirectory() as folder:
        graph, ran, told = (os.path.join(folder, f) for f in ("model.pt2", "ran.tape", "told.tape"))
        export(name, graph)
        report = dry_run(name, setting, ran)
        version = ".".join(report["torch"].split(".")[:2])
        with open(told, "w") as f:
            subprocess.run(command_of("tape", name, setting, version, graph), check=True, stdout=f)
        return tapes.show(tapes.read(told), tapes.read(ran))


def main(what="", *names):
    if what == "names":
        print(*python("names()").split(), sep="\n")
    elif what == "record":
        record(list(names))
    elif what == "compare":
        return judge(*compare(names))
    elif what == "table":
        table()
    elif what == "show" and len(names) == 2:
        return not show(*names)
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
