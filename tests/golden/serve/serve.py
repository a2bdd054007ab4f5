#!/usr/bin/env python3
"""Compares `plimsoll serve --engine hf` with runs of transformers' own generate() (generate.py), to the byte.

    tests/golden/runs.py says how to call it.

A row of runs.txt is a model of tests/golden/idiom/idiom.py, how many requests, tokens of the prompt, new tokens, the cache, and the
peak of requested bytes.  Where the pass over the prompts has the peak, and attention is a kernel, it is predicted to the byte; else it lies between the bounds.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

sys.path[:0] = [str(HERE.parent), str(HERE.parent / "idiom")]
import idiom  # noqa: E402  the models
import runs  # noqa: E402  what such scripts have in common

EXACT = ["llama", "mistral", "qwen2", "qwen3", "gpt2", "mistral_window", "gemma3_text"]
MODELS = {name: idiom.MODELS[name] for name in [*EXACT, "gemma2"]}  # whose attention runs op by op
SIZES = [(1, 256, 32), (4, 256, 32)]
LONG = (4, 16, 240)  # the last token has the peak
REQUESTED = ("weights", "KV cache", "temporaries")


def cases():
    return [(name, *size, cache) for name in MODELS for size in [*SIZES, LONG] for cache in ("dynamic", "static")]


def predicted(program, folder, name, batch, prompt, new, cache):
    parts = runs.ask([program, "serve", folder / name, "--engine", f"hf,new_tokens={new},cache_implementation={cache}", "--context", prompt + new,
                      "--concurrency", batch, "--gpu", runs.CARD, "--torch", runs.TORCH, "--json"], ("parts",))
    return tuple(sum(p[bound] for p in parts if p["part"] in REQUESTED) for bound in ("low", "high"))


def measured(program, folder, name, batch, prompt, new, cache):
    return runs.run(program, HERE / "generate.py", folder / name, batch, prompt, new, cache)


def agrees(case, bounds, peak):
    name, *size, cache = case
    exact = name in EXACT and tuple(size) in SIZES
    if exact and cache == "static":  # what passes over new tokens need at most depends on the compiler
        return bounds[0] == peak[0] <= bounds[1]
    return bounds == peak * 2 if exact else bounds[0] <= peak[0] <= bounds[1]


if __name__ == "__main__":
    sys.exit(runs.Runs(HERE / "runs.txt", MODELS, cases(), predicted, measured,
                       "model, requests, prompt, new tokens, cache, peak of requested bytes", agrees=agrees).main(__doc__))
