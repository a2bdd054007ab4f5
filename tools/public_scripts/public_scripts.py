#!/usr/bin/env python3
"""public_scripts.py -- runs the scripts that people have under `plimsoll run`, unmodified.

    public_scripts.py [NAME...] [--route cpu|stub|both] [--python P] [--cuda-python P]
                      [--sources FOLDER] [--work FOLDER] [--results FILE] [--limit SECONDS]
    public_scripts.py --list | --table

scripts.py names them: repository, commit, file, arguments.  Each repository is fetched at that
commit from GitHub, or taken from FOLDER/owner+name where a clone (bare or not) already is.  Data
are made (data.py), nothing else is downloaded.  The route `cpu` needs a CPU build of PyTorch
(--python, or PLIMSOLL_TEST_PYTHON), the route `stub` a CUDA build (--cuda-python, or
PLIMSOLL_TEST_CUDA_PYTHON); both need the packages of a script, which is left out without them.

Results are kept (--results, by default in build/) as one JSON object per line, so that a run of a
few scripts replaces their rows only; --table writes them into docs/pretend-gpu.md.  PLIMSOLL names
the program (default build/plimsoll).  Exit status: 1 if a script did not end as scripts.py says, or
if the two routes did not request the same bytes where scripts.py says that they do.
"""
import argparse
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

import data
from scripts import COMMITS, SCRIPTS

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PLIMSOLL = os.environ.get("PLIMSOLL", str(ROOT / "build" / "plimsoll"))
PAGE = ROOT / "docs" / "pretend-gpu.md"
RESULTS = ROOT / "build" / "public_scripts.jsonl"
BEGIN, END = "<!-- public scripts: begin -->", "<!-- public scripts: end -->"
CARD = "a100-80g"
ROUTES = {"cpu": "PLIMSOLL_TEST_PYTHON", "stub": "PLIMSOLL_TEST_CUDA_PYTHON"}


# ---- the script ---------------------------------------------------------------------------


def obtain(script, sources, work):
    """A folder with the repository at its commit, as far as the script needs it."""
    commit, part = COMMITS[script.repository], script.folder or os.path.dirname(script.file) or "."
    folder = work / script.repository.replace("/", "+")
    if (folder / part / ".commit").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    git = find_clone(script.repository, sources)
    if git is None:
        git = work / "clones" / script.repository.replace("/", "+")
        if not git.exists():
            subprocess.run(["git", "init", "--quiet", "--bare", str(git)], check=True)
        subprocess.run(["git", f"--git-dir={git}", "fetch", "--quiet", "--depth=1",
                        f"https://github.com/{script.repository}", commit], check=True)
    archive = subprocess.Popen(["git", f"--git-dir={git}", "archive", commit, part], stdout=subprocess.PIPE)
    subprocess.run(["tar", "x", "-C", str(folder)], stdin=archive.stdout)
    if archive.wait():
        sys.exit(f"{git} cannot give {part} of {script.repository} at commit {commit}")
    (folder / part / ".commit").write_text(commit)
    return folder


def find_clone(repository, sources):
    if sources is None:
        return None
    folder = pathlib.Path(sources) / repository.replace("/", "+")
    for git in (folder, folder / ".git", folder / "repo", folder / "repo" / ".git"):
        if (git / "objects").is_dir():
            return git
    return None


def missing_packages(python, script):
    """Those of the packages that the script needs which this Python does not have."""
    code = "import importlib.util as u, sys; print(*[p for p in sys.argv[1:] if not u.find_spec(p)])"
    done = subprocess.run([python, "-c", code, *script.packages.split()], capture_output=True, text=True)
    return done.stdout.split()


# ---- one run ------------------------------------------------------------------------------


def run(script, route, python, options):
    """A result: the row of the table."""
    row = {"name": script.name, "route": route}
    missing = missing_packages(python, script)
    if missing:
        return row | {"verdict": "left out", "remarks": "needs " + ", ".join(missing)}
    root = ROOT if script.repository is None else obtain(script, options.sources, options.work)
    file = root / script.file
    folder = root / script.folder if script.folder is not None else file.parent
    if script.repository is None:
        folder = options.work / "own"
    folder.mkdir(parents=True, exist_ok=True)
    for made in script.data.split():
        subprocess.run([python, str(HERE / "data.py"), made], cwd=folder, check=True,
                       env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})
    tape = options.work / "tapes" / f"{script.name.replace(' ', '_').replace('/', '_')}.{route}"
    tape.parent.mkdir(exist_ok=True)
    steps = ["--steps", str(script.steps)] if script.steps else []
    command = [PLIMSOLL, "run", "--gpu", CARD, *script.options.split(), *steps, "--limit", str(options.limit),
               "--json", "--save", str(tape), "--", python, str(file), *shlex.split(script.args)]
    environment = os.environ | {"PYTHONPATH": str(folder), "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
    began = time.monotonic()
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment,
                              stdin=subprocess.DEVNULL, timeout=options.limit + 60)
    except subprocess.TimeoutExpired:
        return row | {"seconds": options.limit, "verdict": "does not end", "remarks": ""}
    row["seconds"] = round(time.monotonic() - began, 1)
    log = options.work / "logs" / tape.name
    log.parent.mkdir(exist_ok=True)
    log.write_text(f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}")
    return row | judge(script, done, tape)


def judge(script, done, tape):
    """What the report says of the run, in the words of the table."""
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"schema"')]
    if not reports:
        return {"verdict": "no report", "remarks": last_words(done.stderr)}
    report = reports[0]
    if "cards" in report and report["schema"].startswith("plimsoll/machine"):
        report = report["cards"][report["fullest"]]
    result = {"peak": report["peak_requested"], "allocated": report["peak_allocated"],
              "reserved": report["peak_reserved"], "steps": report["steps"], "end": report["end"],
              "remarks": remarks(report), "tape": fingerprint(tape)}
    if report["end"] == "done" and not report["peak_requested"]:
        result |= {"verdict": "does not use the card", "remarks": last_words(done.stderr)}
    elif report["end"] == "done":
        result["verdict"] = "fits" if report["cards"][0]["fits"] == "yes" else "does not fit"
    elif report["end"] == "memory":
        result["verdict"] = "does not fit"
    elif report["end"] == "early":
        result["verdict"] = "does not end"
    else:
        result |= {"verdict": "fails", "remarks": last_words(done.stderr)}
    return result


def remarks(report):
    """The first lines on values that the script read, shortened."""
    kinds = {re.sub(r"\(.*?\)", "", caveat["what"]).split(":")[0].strip() for caveat in report["caveats"]}
    guesses = sum(" guess" in caveat["what"] for caveat in report["caveats"])
    others = sorted(kind for kind in kinds if " guess" not in kind and not kind.startswith(("PyTorch's own", "holds ")))
    words = [f"{guesses} line{'s' * (guesses > 1)} read{'s' * (guesses == 1)} a guess"] if guesses else []
    return "; ".join(words + others)


def last_words(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt|plimsoll)\b.*", line)]
    return (errors or lines or [""])[-1][:300]


def fingerprint(path):
    """The requests of a tape in their order, the releases between two of them in any order."""
    digest, released, size = hashlib.sha256(), [], {}
    if not path.exists():
        return None
    for line in open(path):
        words = line.split()
        if words and words[0] == "+":
            size[words[1]] = int(words[2])
            digest.update(repr((sorted(released), int(words[2]))).encode())
            released = []
        elif words and words[0] == "-":
            released.append(size[words[1]])
    return digest.hexdigest()


# ---- the table ----------------------------------------------------------------------------


def load_results(path):
    if not path.exists():
        return {}
    rows = map(json.loads, path.read_text().splitlines())
    return {(row["name"], row["route"]): row for row in rows}


def store_results(path, results):
    order = {script.name: i for i, script in enumerate(SCRIPTS)}
    rows = sorted((row for row in results.values() if row["name"] in order),
                  key=lambda row: (order[row["name"]], row["route"]))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def same_bytes(results, name):
    """Whether both routes made the same requests in the same order; None if one did not run."""
    tapes = [results.get((name, route), {}).get("tape") for route in ROUTES]
    return tapes[0] == tapes[1] if all(tapes) else None


def mebibytes(count):
    return f"{count / 2**20:,.1f}"


def table(results):
    lines = ["| script | route | time | peak, MiB | verdict | remarks |", "| --- | --- | ---: | ---: | --- | --- |"]
    for script in SCRIPTS:
        rows = [results[key] for key in ((script.name, route) for route in ROUTES) if key in results]
        equal = same_bytes(results, script.name)
        for i, row in enumerate(rows):
            words = [row["remarks"]] if row["remarks"] else []
            if equal is not None and i == 1:
                words.append("equal to the byte" if equal else script.differs or "differs")
            lines.append("| " + " | ".join([
                script.title() if i == 0 else "", row["route"], f"{row['seconds']:.0f} s" if "seconds" in row else "",
                mebibytes(row["peak"]) if "peak" in row else "", row["verdict"], "; ".join(words)]) + " |")
    lines += ["", "Of these commits:", ""]
    used = {script.repository for script in SCRIPTS if script.repository}
    lines += [f"* {name} {COMMITS[name]}" for name in COMMITS if name in used]
    return "\n".join(lines)


def update_page(results):
    text = PAGE.read_text()
    head, rest = text.split(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n{table(results)}\n{END}{rest.split(END)[1]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="scripts, or the beginning of their names")
    parser.add_argument("--route", choices=("cpu", "stub", "both"), default="cpu")
    parser.add_argument("--python", default=os.environ.get(ROUTES["cpu"]))
    parser.add_argument("--cuda-python", default=os.environ.get(ROUTES["stub"]))
    parser.add_argument("--sources", metavar="FOLDER", help="clones, as FOLDER/owner+name")
    parser.add_argument("--work", metavar="FOLDER", type=pathlib.Path, help="for checkouts and data, kept")
    parser.add_argument("--results", metavar="FILE", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--limit", type=int, default=300, help="seconds for a script")
    parser.add_argument("--list", action="store_true", help="only name the scripts")
    parser.add_argument("--table", action="store_true", help="only write the results into docs/pretend-gpu.md")
    options = parser.parse_args()
    chosen = [s for s in SCRIPTS if not options.names or any(s.name.startswith(n) for n in options.names)]
    if options.list:
        print("\n".join(f"{s.name:32} {s.repository or 'ours'}: {s.file} {s.args}" for s in chosen))
        return 0
    if options.table:
        update_page(load_results(options.results))
        return 0
    pythons = {"cpu": options.python, "stub": options.cuda_python}
    routes = list(ROUTES) if options.route == "both" else [options.route]
    for route in routes:
        if not pythons[route]:
            parser.error(f"the route {route} needs a Python: --python, --cuda-python or {ROUTES[route]}")
    temporary = tempfile.TemporaryDirectory() if options.work is None else None
    options.work = pathlib.Path(temporary.name) if temporary else options.work.resolve()
    results, bad = load_results(options.results), 0
    for script in chosen:
        for route in [r for r in routes if r in script.routes.split()]:
            row = run(script, route, pythons[route], options)
            results[script.name, route] = row
            good = row["verdict"] in (script.expected, "left out")
            bad += not good
            print(f"{'ok  ' if good else 'FAIL'} {script.name:28} {route:4} {row.get('seconds', 0):6.1f} s "
                  f"{row.get('peak', 0):14,}  {row['verdict']}  {row['remarks'][:150]}", flush=True)
            store_results(options.results, results)
        if len(routes) == 2 and same_bytes(results, script.name) is False:
            bad += not script.differs
            print(f"{'    ' if script.differs else 'FAIL'} {script.name}: the routes differ", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
