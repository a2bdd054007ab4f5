#!/usr/bin/env python3
"""Compares `plimsoll estimate --transformers VERSION` with runs of that release (releases_loop.py), to the byte.

    tests/golden/runs.py says how to call it; the release is that of the python, or, to compare, of each file.

A row of a file is a model with its type, attention, what is run, batch and tokens, and the peak of requested bytes.
"""
import importlib.metadata
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

sys.path.insert(0, str(HERE.parent))
import runs  # noqa: E402  what such scripts have in common

WIDE = {"vocab_size": 2003, "hidden_size": 512, "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4,
        "intermediate_size": 704, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 1024}
BERT = {k: v for k, v in WIDE.items() if k != "num_key_value_heads"}
CLASSES = {  # model type, class, sizes
    "llama": ("llama", "LlamaForCausalLM", WIDE),
    "mistral": ("mistral", "MistralForCausalLM", {**WIDE, "sliding_window": None}),
    "qwen2": ("qwen2", "Qwen2ForCausalLM", WIDE),
    "gemma": ("gemma", "GemmaForCausalLM", {**WIDE, "head_dim": 64}),
    "phi3": ("phi3", "Phi3ForCausalLM", {**WIDE, "sliding_window": None}),
    "gpt2": ("gpt2", "GPT2LMHeadModel", {"vocab_size": 2003, "n_embd": 512, "n_layer": 3, "n_head": 8, "bos_token_id": 1, "eos_token_id": 2}),
    "bert": ("bert", "BertForMaskedLM", BERT),
    "roberta": ("roberta", "RobertaForMaskedLM", BERT),
    "t5": ("t5", "T5ForConditionalGeneration", {"vocab_size": 2003, "d_model": 512, "d_kv": 64, "d_ff": 704, "num_layers": 3, "num_heads": 8,
                                                "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}),
}
MODELS = {f"{name}_{dtype}": (kind, cls, {**sizes, "dtype": full, "torch_dtype": full}) for name, (kind, cls, sizes) in CLASSES.items()
          for dtype, full in (("bf16", "bfloat16"), ("fp32", "float32"))}
SINCE = {"phi3": 441}  # the release that the class came with
# Bytes by which forward passes differ: what cuDNN's attention takes with a mask, and a number of tokens that T5 has on the card.
NEAR = {("4.38", "llama_bf16"): 272, ("4.38", "gemma_bf16"): 272, ("4.46", "t5_bf16"): -8, ("4.51", "t5_bf16"): -8}
KINDS = [("bf16", "default", "train"), ("fp32", "default", "train"), ("bf16", "default", "checkpoints"), ("bf16", "eager", "train"),
         ("bf16", "default", "infer")]


def number_of(release):
    major, minor = map(int, release.split(".")[:2])
    return 100 * major + minor


def cases(release):
    return [(f"{name}_{dtype}", *rest, 8, 200) for name in CLASSES if SINCE.get(name, 0) <= number_of(release) for dtype, *rest in KINDS]


def runs_of(release):
    def predicted(program, folder, name, attention, kind, batch, tokens):
        words = ["--attention", attention] * (attention != "default")
        words += ["--infer"] if kind == "infer" else ["--optimizer", "adamw", "--checkpoint", "blocks" if kind == "checkpoints" else "none"]
        return runs.estimate(program, folder / name, "--transformers", release, "--batch", batch, "--seq", tokens, *words)

    def measured(program, folder, name, *rest):
        return runs.run(program, HERE / "releases_loop.py", folder / name, *rest)

    def agrees(case, ours, run):
        return ours[0] - run[0] == (NEAR.get((release, case[0]), 0) if case[2] == "infer" else 0)

    return runs.Runs(HERE / f"{release}.txt", MODELS, cases(release), predicted, measured,
                     "model, attention, what is run, batch, tokens, peak of requested bytes", agrees=agrees)


def main():
    if sys.argv[2:3] == ["record"]:
        return runs_of(".".join(importlib.metadata.version("transformers").split(".")[:2])).main(__doc__)
    return max([runs_of(path.stem).main(__doc__) or 0 for path in sorted(HERE.glob("[0-9]*.txt"))], default=1)


if __name__ == "__main__":
    sys.exit(main())
