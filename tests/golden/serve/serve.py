#!/usr/bin/env python3
"""Compares `plimsoll serve --engine hf` with runs of transformers' own generate() (generate.py), to the byte.

    tests/golden/serve/serve.py PROGRAM                   compares; needs no PyTorch
    tests/golden/serve/serve.py PROGRAM record [NAME...]  runs the models under `plimsoll run`, and writes runs.txt;
                                                          the python in front of PATH has torch and transformers

A row of runs.txt is a model of tests/golden/idiom/idiom.py, how many requests, tokens of the prompt, new tokens, and the peak of
requested bytes.  Where the pass over the prompts has the peak, and attention is a kernel, it is predicted to the byte; else it lies between the bounds.
"""
import datetime
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
RUNS = HERE / "runs.txt"
CARD, TORCH = "h100", "2.13"

sys.path.insert(0, str(HERE.parent / "idiom"))
import idiom  # noqa: E402  the models, and what the scripts have in common

EXACT = ["llama", "mistral", "qwen2", "qwen3", "gpt2"]
MODELS = {name: idiom.MODELS[name] for name in [*EXACT, "gemma2"]}  # whose attention runs op by op
SIZES = [(1, 256, 32), (4, 256, 32)]
LONG = (4, 16, 240)  # the last token has the peak
REQUESTED = ("weights", "KV cache", "temporaries")


def cases():
    return [(name, *size) for name in MODELS for size in [*SIZES, LONG]]


def predicted(program, folder, name, batch, prompt, new):
    parts = idiom.peak_of([program, "serve", folder / name, "--engine", f"hf,new_tokens={new}", "--context", str(prompt + new),
                           "--concurrency", str(batch), "--gpu", CARD, "--torch", TORCH, "--json"], ("parts",))
    return tuple(sum(p[bound] for p in parts if p["part"] in REQUESTED) for bound in ("low", "high"))


def measured(program, folder, name, batch, prompt, new):
    return idiom.peak_of([program, "run", "--gpu", CARD, "--json", "--", "python", HERE / "generate.py", folder / name,
                          str(batch), str(prompt), str(new)], ("peak_requested",))


def is_right(bounds, peak, exact):
    return bounds == (peak, peak) if exact else bounds[0] <= peak <= bounds[1]


def read_runs():
    rows = {}
    for line in RUNS.read_text().splitlines():
        if not line.startswith("#"):
            name, *numbers, peak = line.split()
            rows[name, *map(int, numbers)] = int(peak)
    return rows


def record(program, folder, names):
    rows = read_runs() if names else {}
    for case in cases():
        if not names or case[0] in names:
            rows[case] = measured(program, folder, *case)
            print(*case, rows[case], *predicted(program, folder, *case), flush=True)
    import torch
    import transformers
    head = [f"# recorded {datetime.date.today()} by: tests/golden/serve/serve.py PROGRAM record",
            f"# torch {torch.__version__}, transformers {transformers.__version__}, plimsoll run --gpu {CARD};"
            " model, requests, prompt, new tokens, peak of requested bytes"]
    RUNS.write_text("\n".join(head + [" ".join(map(str, (*case, rows[case]))) for case in cases() if case in rows]) + "\n")


def compare(program, folder):
    rows, wrong = read_runs(), 0
    for case in cases():
        bounds, peak = predicted(program, folder, *case), rows.get(case)
        right = peak is not None and is_right(bounds, peak, case[0] in EXACT and case[1:] in SIZES)
        wrong += not right
        if not right:
            print(*case, "serve", *bounds, "run", peak)
    print(f"{len(rows)} runs, {wrong} of another size")
    return 1 if wrong or len(rows) != len(cases()) else 0


if __name__ == "__main__":
    sys.exit(idiom.main(__doc__, MODELS, record, compare))
