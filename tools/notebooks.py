#!/usr/bin/env python3
"""notebooks.py -- runs the notebooks of docs/notebooks and compares what they show.

    tools/notebooks.py BUILD [--update] [FILE...]

Each notebook runs from the first cell to the last in a kernel of its own, with the package of
this checkout and the library in BUILD; what its cells show must be what the file has (exit 1), or
with --update becomes it.  Exit 77: this Python, or PLIMSOLL_TEST_PYTHON, has no nbclient and
ipykernel, or a notebook needs PyTorch, which it has not.
"""
import argparse
import difflib
import importlib.util
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "docs" / "notebooks"
PYTHON = os.environ.get("PLIMSOLL_TEST_PYTHON") or sys.executable
NEEDED = ("nbclient", "nbformat", "ipykernel")
BUILDING = re.compile(r"plimsoll: building the shim .*\n")  # on the first run only
TIMEOUT = 300  # seconds for a cell: the first one on the pretend GPU compiles its shim


def restart(build):
    """Runs this file again where the package can be imported."""
    places = [str(ROOT / "python"), os.environ.get("PYTHONPATH")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places)),
                   "PYTHONDONTWRITEBYTECODE": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1",
                   "PLIMSOLL_LIBRARY": str(build / "libplimsoll.so"),
                   "PLIMSOLL_PROGRAM": str(build / "plimsoll")}
    sys.stdout.flush()
    os.execve(PYTHON, [PYTHON, *sys.argv], environment)


def joined(text):
    return text if isinstance(text, str) else "".join(text)


def shown(cell):
    """What a cell shows, as lines: streams that follow each other are one."""
    parts = []
    for output in cell.get("outputs", []):
        if output["output_type"] == "stream":
            kind, text = output["name"], BUILDING.sub("", joined(output["text"]))
            if parts and parts[-1][0] == kind:
                text = parts.pop()[1] + text
            parts.append((kind, text))
        elif output["output_type"] == "error":
            parts.append(("error", f"{output['ename']}: {output['evalue']}"))
        else:
            parts += [(kind, joined(data) if isinstance(data, (str, list)) else str(data))
                      for kind, data in sorted(output["data"].items())]
    return [f"{kind}: {line}" for kind, text in parts for line in text.splitlines()]


def differences(old, new):
    for i, (before, after) in enumerate(zip(old.cells, new.cells)):
        if before.cell_type == "code" and shown(before) != shown(after):
            yield f"cell {i}:"
            yield from difflib.unified_diff(shown(before), shown(after), "in the file", "now", lineterm="")


def tidy(notebook):
    """Leaves out what differs from run to run: a stream may arrive in pieces."""
    for cell in notebook.cells:
        cell.metadata = {}
        outputs = []
        for output in cell.get("outputs", []):
            stream = output["output_type"] == "stream" and output["name"]
            if stream and outputs and outputs[-1].get("name") == stream:
                outputs[-1]["text"] += output["text"]
            else:
                outputs.append(output)
        if outputs:
            cell.outputs = outputs
        for output in cell.get("outputs", []):
            if "metadata" in output:
                output["metadata"] = {}
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                         "language_info": {"name": "python"}}


def run(path, update):
    """Whether the notebook shows what it has."""
    import nbformat
    from nbclient import NotebookClient
    old = nbformat.read(path, as_version=4)
    new = nbformat.read(path, as_version=4)
    NotebookClient(new, timeout=TIMEOUT, kernel_name="python3",
                   resources={"metadata": {"path": str(path.parent)}}).execute()
    if update:
        tidy(new)
        nbformat.write(new, path)
        return True
    found = list(differences(old, new))
    print(f"{path.name}: {'differs' if found else 'as it was'}", *found, sep="\n")
    return not found


def needs_torch(path):
    return "import torch" in path.read_text(encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    given = parser.parse_args()
    if os.environ.get("PLIMSOLL_PROGRAM") != str(given.build.resolve() / "plimsoll"):
        restart(given.build.resolve())
    missing = [name for name in NEEDED if not importlib.util.find_spec(name)]
    if missing:
        print("skipped: this Python has no", ", ".join(missing))
        return 77
    files = [f.resolve() for f in given.files] or sorted(NOTEBOOKS.glob("*.ipynb"))
    torch = importlib.util.find_spec("torch")
    left = [f for f in files if needs_torch(f) and not torch]
    for f in left:
        print(f"{f.name}: skipped, this Python has no torch")
    results = [run(f, given.update) for f in files if f not in left]
    return 1 if not all(results) else 77 if not results else 0


if __name__ == "__main__":
    sys.exit(main())
