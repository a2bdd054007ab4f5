"""What the scripts have in common that compare predictions with recorded runs of other people's code.

    SCRIPT PROGRAM                       compares; needs no PyTorch
    SCRIPT PROGRAM record                runs what was not recorded yet under `plimsoll run`, and writes the file of runs;
                                         the python in front of PATH has the packages that the file names
    SCRIPT PROGRAM record all|WORD...    runs again all cases, or those in which one of the words stands
"""
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from importlib.metadata import version

CARD, TORCH = "h100", "2.13"


def ask(command, at, code=0):
    """The part of the program's JSON that the keys name; no Python builds what the program does not know.  code: what it exits with."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env={**os.environ, "PLIMSOLL_PYTHON": "none"})
    if done.returncode != code:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    report = json.loads(done.stdout)
    for key in at:
        report = report[key]
    return report


def estimate(program, folder, *words, figure="peak_requested", incomplete=False):
    """Peak of requested bytes, or another figure.  incomplete: of an answer that leaves something out, which is no success."""
    return ask([program, "estimate", folder, *words, "--advice", "none", "--gpu", CARD, "--torch", TORCH, "--json"],
               ("memory", figure), int(incomplete))


def run(program, script, *words, options=(), figure="peak_requested"):
    """The same of a script under `plimsoll run`."""
    return ask([program, "run", *options, "--gpu", CARD, "--json", "--", "python", "-W", "ignore", script, *words],
               (figure,))


def write_configs(folder, models):
    """By name: model type, or the library "diffusers", class and sizes."""
    for name, (kind, model, sizes) in models.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(
            json.dumps({**({"_class_name": model} if kind == "diffusers" else
                           {"model_type": kind, "architectures": [model], "dtype": "bfloat16"}), **sizes}))


def as_tuple(figures):
    return figures if isinstance(figures, tuple) else (figures,)


def text_of(items):
    return " ".join(map(str, items))


class Runs:
    """A file of runs: in each row a case, whose first item is a model, and peaks of requested bytes.

    predicted and measured are called with the program, the folder of the configs and the items of a case, and return a
    number or a tuple of them; agrees says of a case, a prediction and a run, both tuples, whether they are the same.
    """

    def __init__(self, path, models, cases, predicted, measured, columns, packages=(), agrees=lambda case, ours, run: ours == run):
        self.path, self.models, self.cases, self.columns, self.packages = path, models, cases, columns, packages
        self.predicted = lambda *args: as_tuple(predicted(*args))
        self.measured = lambda *args: as_tuple(measured(*args))
        self.agrees = agrees

    def read(self):
        found = {}
        for line in self.path.read_text().splitlines() if self.path.exists() else []:
            fields = line.split()
            for k in range(1, 0 if line.startswith("#") else len(fields)):
                if all(field.isdigit() for field in fields[k:]):
                    found[text_of(fields[:k])] = fields[k:]
        return {case: tuple(map(int, found[text_of(case)])) for case in self.cases if text_of(case) in found}

    def write(self, rows):
        script = pathlib.Path(sys.argv[0]).resolve()
        packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", *self.packages))
        head = [f"# recorded {datetime.date.today()} by: tests/golden/{script.parent.name}/{script.name} PROGRAM record",
                f"# {packages}, plimsoll run --gpu {CARD}; {self.columns}"]
        self.path.write_text("\n".join(head + [text_of((*case, *rows[case])) for case in self.cases if case in rows]) + "\n")

    def record(self, program, folder, words):
        rows = self.read()
        for case in self.cases:
            if case in rows and words != ["all"] and not set(map(str, case)) & set(words):
                continue
            rows[case] = self.measured(program, folder, *case)
            ours = self.predicted(program, folder, *case)
            print(*case, *rows[case], "" if self.agrees(case, ours, rows[case]) else f"DIFFERS {text_of(ours)}", flush=True)
            self.write(rows)

    def compare(self, program, folder):
        rows, wrong = self.read(), 0
        for case in self.cases:
            ours = self.predicted(program, folder, *case)
            if case not in rows or not self.agrees(case, ours, rows[case]):
                wrong += 1
                print(*case, "predicted", *ours, "run", *rows.get(case, ("none",)))
        print(f"{sum(map(len, rows.values()))} figures of {len(rows)} runs, {wrong} runs of another size")
        return 1 if wrong or not rows else 0

    def main(self, doc):
        program, *words = sys.argv[1:] or sys.exit(doc + __doc__)
        program = pathlib.Path(program).resolve()
        with tempfile.TemporaryDirectory() as folder:
            write_configs(pathlib.Path(folder), self.models)
            if words[:1] == ["record"]:
                return self.record(program, pathlib.Path(folder), words[1:])
            return self.compare(program, pathlib.Path(folder))
