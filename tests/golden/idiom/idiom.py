#!/usr/bin/env python3
"""Compares `plimsoll estimate` with runs of loop.py, `loss = model(input_ids=x, labels=x).loss`, to the byte.

    tests/golden/idiom/idiom.py PROGRAM                   compares; needs no PyTorch
    tests/golden/idiom/idiom.py PROGRAM record [NAME...]  runs the models under `plimsoll run`, and writes runs.txt;
                                                          the python in front of PATH has torch and transformers

A row of runs.txt is a model of the table below, use_cache and checkpoints as 0 or 1, and the peak of requested bytes.
Batch 4, two steps, AdamW, bf16, or fp32 under autocast.
"""
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
RUNS = HERE / "runs.txt"
CARD, TORCH = "h100", "2.13"

SMALL = {"vocab_size": 8000, "max_position_embeddings": 1024}
WIDE = {**SMALL, "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8}
LLAMA = {**WIDE, "num_key_value_heads": 4, "intermediate_size": 1408}
GPT = {"vocab_size": 8000, "n_positions": 1024, "n_embd": 512, "n_layer": 4, "n_head": 8}
WINDOW = {"sliding_window": 128}  # shorter than the sequence

MODELS = {  # model type, class, sizes
    "llama": ("llama", "LlamaForCausalLM", LLAMA),
    "mistral": ("mistral", "MistralForCausalLM", LLAMA),
    "qwen2": ("qwen2", "Qwen2ForCausalLM", LLAMA),
    "gemma2": ("gemma2", "Gemma2ForCausalLM", {**LLAMA, "head_dim": 64}),
    "qwen3": ("qwen3", "Qwen3ForCausalLM", {**LLAMA, "head_dim": 64}),
    "mixtral": ("mixtral", "MixtralForCausalLM", {**LLAMA, "num_local_experts": 4}),
    "gpt_neox": ("gpt_neox", "GPTNeoXForCausalLM", {**WIDE, "intermediate_size": 2048}),
    "opt": ("opt", "OPTForCausalLM",
            {**WIDE, "max_position_embeddings": 2048, "ffn_dim": 2048, "word_embed_proj_dim": 512}),
    "phi": ("phi", "PhiForCausalLM", LLAMA),
    "gpt2": ("gpt2", "GPT2LMHeadModel", GPT),
    # more, with and without the cache
    "gpt2_124m": ("gpt2", "GPT2LMHeadModel", {}),
    "mistral_window": ("mistral", "MistralForCausalLM", {**LLAMA, **WINDOW}),
    "gemma3_text": ("gemma3_text", "Gemma3ForCausalLM", {**LLAMA, **WINDOW, "head_dim": 64}),
    "phi3": ("phi3", "Phi3ForCausalLM", {**LLAMA, "pad_token_id": 0}),
    "falcon": ("falcon", "FalconForCausalLM",
               {"vocab_size": 8000, "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8}),
    "bloom": ("bloom", "BloomForCausalLM", {"vocab_size": 8000, "hidden_size": 512, "n_layer": 4, "n_head": 8}),
    "qwen2_moe": ("qwen2_moe", "Qwen2MoeForCausalLM",
                  {**LLAMA, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 256,
                   "shared_expert_intermediate_size": 512}),
    # in fp32, under autocast to bf16
    "llama_autocast": ("llama", "LlamaForCausalLM", {**LLAMA, "dtype": "float32"}),
    "mistral_autocast": ("mistral", "MistralForCausalLM", {**LLAMA, **WINDOW, "dtype": "float32"}),
    "qwen3_autocast": ("qwen3", "Qwen3ForCausalLM", {**LLAMA, "head_dim": 64, "dtype": "float32"}),
    "gpt2_autocast": ("gpt2", "GPT2LMHeadModel", {**GPT, "dtype": "float32"}),
}
LONG = {"gpt2_124m": 1024}  # other sequences have 512 tokens
ALL = list(MODELS)[:10]  # also with checkpoints


def cases(name):
    both = name in ALL or name.endswith("_autocast")
    return [(cache, checkpoint) for cache in (0, 1) for checkpoint in ((0, 1) if both else (0,))]


def write_configs(folder, models):
    for name, (kind, model, sizes) in models.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(
            json.dumps({"model_type": kind, "architectures": [model], "dtype": "bfloat16", **sizes}))


def peak_of(command, at):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    report = json.loads(done.stdout)
    for key in at:
        report = report[key]
    return report


def predicted(program, folder, name, cache, checkpoint):
    return peak_of([program, "estimate", folder / name, "--batch", "4", "--seq", str(LONG.get(name, 512)), "--optimizer", "adamw",
                    "--cache", "on" if cache else "off", "--checkpoint", "blocks" if checkpoint else "none",
                    *(["--autocast", "bf16"] if name.endswith("_autocast") else []),
                    "--advice", "none", "--gpu", CARD, "--torch", TORCH, "--json"], ("memory", "peak_requested"))


def measured(program, folder, name, cache, checkpoint):
    return peak_of([program, "run", "--gpu", CARD, "--json", "--", "python", HERE / "loop.py", folder / name,
                    str(cache), str(checkpoint), str(LONG.get(name, 512))], ("peak_requested",))


def read_runs():
    rows = {}
    for line in RUNS.read_text().splitlines():
        if not line.startswith("#"):
            name, cache, checkpoint, peak = line.split()
            rows[name, int(cache), int(checkpoint)] = int(peak)
    return rows


def record(program, folder, names):
    rows = read_runs() if names else {}
    for name in names or MODELS:
        for cache, checkpoint in cases(name):
            rows[name, cache, checkpoint] = measured(program, folder, name, cache, checkpoint)
            print(name, cache, checkpoint, rows[name, cache, checkpoint], flush=True)
    import torch
    import transformers
    head = [f"# recorded {datetime.date.today()} by: tests/golden/idiom/idiom.py PROGRAM record",
            f"# torch {torch.__version__}, transformers {transformers.__version__}, plimsoll run --gpu {CARD};"
            " model, use_cache, checkpoints, peak of requested bytes"]
    RUNS.write_text("\n".join(head + [f"{n} {c} {k} {rows[n, c, k]}" for n in MODELS for c, k in cases(n)]) + "\n")


def compare(program, folder):
    rows, wrong = read_runs(), 0
    for name in MODELS:
        for case in cases(name):
            peak = predicted(program, folder, name, *case)
            wrong += peak != rows.get((name, *case))
            if peak != rows.get((name, *case)):
                print(f"{name}, use_cache={case[0]}, checkpoints={case[1]}: estimate {peak}, run {rows.get((name, *case))}")
    print(f"{len(rows)} runs, {wrong} of another size")
    return 1 if wrong or len(rows) != sum(len(cases(n)) for n in MODELS) else 0


def main(doc, models, record, compare):
    """Of this script and of those that are like it: record(program, folder, names) or compare(program, folder)."""
    program, *words = sys.argv[1:] or sys.exit(doc)
    program = pathlib.Path(program).resolve()
    with tempfile.TemporaryDirectory() as folder:
        write_configs(pathlib.Path(folder), models)
        if words[:1] == ["record"]:
            return record(program, pathlib.Path(folder), words[1:])
        return compare(program, pathlib.Path(folder))


if __name__ == "__main__":
    sys.exit(main(__doc__, MODELS, record, compare))
