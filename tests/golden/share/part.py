#!/usr/bin/env python3
"""Compares `plimsoll estimate --tp` with ranks of jobs that run torch's own code (part_loop.py), to the byte.

    tests/golden/runs.py says how to call it.

A row of part_runs.txt is a model, --tp, --dp, --sequence-parallel as 0 or 1, the rank, checkpoints as 0 or 1, batch and tokens, and the peak of requested bytes.  Where --dp is above 1, the strategy is fsdp2.  Two steps, AdamW.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

sys.path.insert(0, str(HERE.parent))
import runs  # noqa: E402  what such scripts have in common

WIDE = {"vocab_size": 2003, "max_position_embeddings": 1024, "hidden_size": 512, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 1408}
EVEN = {**WIDE, "vocab_size": 2000}  # which the cards divide
BF16, FP32 = {"dtype": "bfloat16"}, {"dtype": "float32"}
MODELS = {
    "llama": ("llama", "LlamaForCausalLM", {**WIDE, **BF16}),
    "llama_fp32": ("llama", "LlamaForCausalLM", {**WIDE, **FP32}),
    "llama_bias": ("llama", "LlamaForCausalLM", {**WIDE, **BF16, "attention_bias": True, "mlp_bias": True}),
    "mistral": ("mistral", "MistralForCausalLM", {**WIDE, **BF16}),
    "qwen2": ("qwen2", "Qwen2ForCausalLM", {**WIDE, **BF16}),
    "gemma": ("gemma", "GemmaForCausalLM", {**WIDE, **BF16, "head_dim": 64}),
    "gemma2": ("gemma2", "Gemma2ForCausalLM", {**WIDE, **BF16, "head_dim": 64}),
    "qwen3": ("qwen3", "Qwen3ForCausalLM", {**WIDE, **BF16, "head_dim": 64}),
    "gemma3": ("gemma3_text", "Gemma3ForCausalLM", {**WIDE, **BF16, "head_dim": 64}),
    "phi": ("phi", "PhiForCausalLM", {**WIDE, **BF16}),
    "gpt_neox": ("gpt_neox", "GPTNeoXForCausalLM", {**WIDE, **BF16}),
    "even": ("llama", "LlamaForCausalLM", {**EVEN, **BF16}),
    "even_fp32": ("llama", "LlamaForCausalLM", {**EVEN, **FP32}),
    "even_bias": ("llama", "LlamaForCausalLM", {**EVEN, **BF16, "attention_bias": True, "mlp_bias": True}),
    "even_mistral": ("mistral", "MistralForCausalLM", {**EVEN, **BF16}),
    "even_qwen2": ("qwen2", "Qwen2ForCausalLM", {**EVEN, **BF16}),
    "even_table": ("llama", "LlamaForCausalLM", {**EVEN, **BF16, "vocab_size": 32000, "num_hidden_layers": 1}),
}
MANY, FEW = (4, 256), (1, 16)
# The estimate is above the run by this where layers are checkpointed.  Attention and MLP read the same input, and the
# second forward pass stops in the MLP, before it uses the attention's sum over ranks.  PyTorch never waits for this sum
# ("8 unwaited collective calls", it warns) and never frees it: 16 KiB in each of 4 layers and 2 steps.
UNWAITED = {"phi": -(16 << 10) * 4 * 2, "gpt_neox": -(16 << 10) * 4 * 2}


def agrees(case, ours, run):
    name, _, _, _, _, checkpoint, *_ = case
    return ours[0] == run[0] + (UNWAITED.get(name, 0) if checkpoint else 0)


def cases():
    """Ranks first, middle and last."""
    rows = [(name, tp, 1, 0, rank, checkpoint, *MANY) for name in ("llama", "llama_fp32") for checkpoint in (0, 1)
            for tp, rank in ((2, 0), (4, 1), (4, 3))]
    rows += [("llama", 2, 1, 0, 1, checkpoint, *FEW) for checkpoint in (0, 1)]
    rows += [(name, 2, 1, 0, 1, checkpoint, *size) for name in ("llama_bias", "mistral", "qwen2", "gemma", "gemma2",
                                             "phi", "gpt_neox")
             for checkpoint, size in ((0, MANY), (1, FEW))]
    rows += [(name, tp, 1, 0, 1, checkpoint, *size) for name in ("qwen3", "gemma3") for tp in (2, 4)
             for checkpoint, size in ((0, MANY), (1, MANY), (1, FEW))]
    rows += [("llama", 2, dp, 0, rank, checkpoint, *size) for checkpoint in (0, 1) for size in (MANY, FEW)
             for dp, rank in ((2, 0), (2, 3), (3, 5))]  # 3 ranks do not divide the rows
    rows += [(name, tp, 1, 1, rank, checkpoint, *size) for name in ("even", "even_fp32")
             for tp, rank in ((2, 0), (4, 1), (4, 3)) for checkpoint, size in ((0, MANY), (1, MANY), (1, FEW))]
    rows += [(name, 2, 1, 1, 1, checkpoint, *size) for name in ("even_bias", "even_mistral", "even_qwen2", "even_table")
             for checkpoint, size in ((0, MANY), (1, FEW))]
    rows += [(name, 2, dp, 1, rank, checkpoint, *size) for name in ("even", "even_table")
             for checkpoint, size in ((1, MANY), (0, FEW)) for dp, rank in ((2, 0), (2, 3), (3, 5))]
    return rows


def predicted(program, folder, name, tp, dp, sequence, rank, checkpoint, batch, tokens):
    return runs.estimate(program, folder / name, "--batch", batch, "--seq", tokens, "--optimizer", "adamw",
                         "--checkpoint", "blocks" if checkpoint else "none", "--tp", tp,
                         *(["--dp", dp, "--strategy", "fsdp2"] if dp > 1 else []),
                         *(["--sequence-parallel"] if sequence else []), "--rank", rank)


def measured(program, folder, name, tp, dp, sequence, rank, *rest):
    return runs.run(program, HERE / "part_loop.py", folder / name, tp, dp, sequence, *rest,
                    options=("--world", tp * dp, "--rank", rank))


if __name__ == "__main__":
    sys.exit(runs.Runs(HERE / "part_runs.txt", MODELS, cases(), predicted, measured,
                       "model, tp, dp, sequence parallelism, rank, checkpoints, batch, tokens, peak of requested bytes",
                       agrees=agrees).main(__doc__))
