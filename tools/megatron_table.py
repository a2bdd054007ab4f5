#!/usr/bin/env python3
"""Compares `plimsoll estimate` with the memory that Megatron-LM's functional tests recorded.

    tools/megatron_table.py PROGRAM MEGATRON-LM [WORD]

MEGATRON-LM is a checkout of that repository.  Each test of the training of GPT, with and without experts, BERT and T5 has its arguments
(model_config.yaml) and, for each kind of machine, what the last rank logged (golden_values_*.json): compared is the last
"mem-max-allocated-bytes" with the peak of allocated bytes.  Nothing is set per test: what the file does not say is the script, which its
folder is named after, the card, and how many there are of it (tests/test_utils/recipes: 8, of GB200 two machines of 4, or one).  Recipes
name H100 and GB200: files of other machines are left from earlier versions of the tests.  A WORD chooses the tests whose name has it.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict

CARDS = {"h100": "h100", "gb200": "gb200"}  # the others: A100
SCRIPTS = {"gpt3": "pretrain_gpt.py", "bert": "pretrain_bert.py", "t5": "pretrain_t5.py"}  # by the first word of a test's name
TORCH = "2.9"


def argument(text, name):
    found = re.search(rf"^\s*--{name}:\s*(\d+)", text, re.M)
    return int(found[1]) if found else 1


def predict(program, config, environment):
    """Bytes, or why there are none."""
    text = config.read_text()
    world = 4 if "1node" in config.parent.name and "gb200" in environment else 8
    parts = argument(text, "tensor-model-parallel-size") * argument(text, "pipeline-model-parallel-size") * argument(text, "context-parallel-size")
    card = next((card for word, card in CARDS.items() if word in environment), "a100-80gb")
    words = ["--gpu", card, "--torch", TORCH, "--advice", "none", "--rank", str(world - 1), "--json"]
    if world > parts:
        words += ["--dp", str(world // parts)]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(f"# {SCRIPTS[config.parent.name.split('_')[0]]}\n{text}")
        file.flush()
        run = subprocess.run([program, "estimate", file.name, *words], capture_output=True, text=True)
    if run.returncode:
        return None, run.stderr.strip().replace(file.name, "model_config.yaml")
    return json.loads(run.stdout)["memory"]["peak_allocated"], ""


def count_runs(config):
    """A few tests train more than once, each time with other numbers of cards."""
    return len(re.findall(r"^\s*--tensor-model-parallel-size:", config.read_text(), re.M))


def measured(path):
    try:
        values = json.loads(path.read_text())["mem-max-allocated-bytes"]["values"]
    except (ValueError, KeyError, TypeError):  # an empty file, or one of another kind of test
        return None
    numbers = [value for _, value in sorted((int(step), value) for step, value in values.items()) if isinstance(value, (int, float))]
    return numbers[-1] if numbers else None


def summary(errors):
    sizes = sorted(map(abs, errors))
    return (f"{len(errors)} rows: median {100 * sizes[len(sizes) // 2]:.2f} %, nine in ten within {100 * sizes[len(sizes) * 9 // 10]:.1f} %, "
            f"worst {100 * sizes[-1]:.1f} %, {sum(e < 0 for e in errors)} too low") if sizes else "no rows"


def find_rows(checkout, word):
    tests = pathlib.Path(checkout) / "tests/functional_tests/test_cases"
    paths = [path for folder in ("[gm][po][te]/gpt3_*", "bert/*", "t5/*") for path in sorted(tests.glob(f"{folder}/golden_values_*.json"))]
    for path in paths:
        config, peak = path.parent / "model_config.yaml", measured(path)
        if peak is not None and config.exists() and word in path.parent.name:
            yield path.parent.name, path.stem.removeprefix("golden_values_"), config, peak


def main(program, checkout, word=""):
    left_out, errors = Counter(), defaultdict(list)
    print("| test | recorded as | MiB recorded | predicted | error |\n| --- | --- | ---: | ---: | ---: |")
    for case, environment, config, peak in find_rows(checkout, word):
        if '"release"' in config.read_text():
            left_out["a release test: on how many cards is not said"] += 1
            continue
        if count_runs(config) > 1:
            left_out["several runs in one test"] += 1
            continue
        predicted, why = predict(program, config, environment)
        if predicted is None:
            left_out[why.removeprefix("plimsoll: ")] += 1
            continue
        errors["h100" in environment or "gb200" in environment].append(predicted / peak - 1)
        print(f"| {case} | {environment} | {peak / 2**20:.1f} | {predicted / 2**20:.1f} | {100 * (predicted / peak - 1):+.1f} % |")
    print(f"\nH100 and GB200: {summary(errors[True])}\nothers: {summary(errors[False])}\nleft out:")
    for why, n in left_out.most_common():
        print(f"{n:4} {why}")


if __name__ == "__main__":
    main(*sys.argv[1:])
