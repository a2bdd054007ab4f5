#!/usr/bin/env python3
"""Compares `plimsoll estimate --ep` with ranks of jobs that run transformers' own expert parallelism (experts_loop.py), to the byte.

    tests/golden/runs.py says how to call it.

A row of experts_runs.txt is a model, --strategy, --ep, --dp, the rank, checkpoints as 0 or 1, batch and tokens, and the peak of requested
bytes.  Two steps, AdamW.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

sys.path.insert(0, str(HERE.parent))
import runs  # noqa: E402  what such scripts have in common

WIDE = {"vocab_size": 2003, "max_position_embeddings": 1024, "hidden_size": 512, "num_hidden_layers": 3,
        "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 704, "num_experts_per_tok": 2}
MIXTRAL = {**WIDE, "num_local_experts": 8}
QWEN = {**WIDE, "num_experts": 8, "moe_intermediate_size": 704, "shared_expert_intermediate_size": 512}
MODELS = {
    "mixtral": ("mixtral", "MixtralForCausalLM", MIXTRAL),
    "mixtral_fp32": ("mixtral", "MixtralForCausalLM", {**MIXTRAL, "dtype": "float32"}),
    "mixtral_12": ("mixtral", "MixtralForCausalLM", {**MIXTRAL, "num_local_experts": 12}),
    "qwen2_moe": ("qwen2_moe", "Qwen2MoeForCausalLM", QWEN),
    "qwen3_moe": ("qwen3_moe", "Qwen3MoeForCausalLM", {**QWEN, "head_dim": 64}),
    "gpt_oss": ("gpt_oss", "GptOssForCausalLM", {**MIXTRAL, "head_dim": 64}),
    "deepseek_v3": ("deepseek_v3", "DeepseekV3ForCausalLM",
                    {**WIDE, "num_key_value_heads": 8, "n_routed_experts": 8, "moe_intermediate_size": 704, "n_shared_experts": 1,
                     "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "q_lora_rank": 128, "kv_lora_rank": 64,
                     "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64}),
}
MANY, FEW = (2, 256), (1, 16)


def cases():
    """Ranks first, middle and last."""
    rows = [(name, "fsdp2", ep, dp, rank, checkpoint, *size) for name in ("mixtral", "mixtral_fp32") for checkpoint in (0, 1)
            for size in (MANY, FEW) for ep, dp, rank in ((2, 2, 1), (4, 4, 0), (2, 4, 3), (2, 8, 4), (4, 8, 7))]
    rows += [("mixtral_12", "fsdp2", 2, 4, rank, 0, *MANY) for rank in (0, 1, 3)]
    rows += [(name, strategy, ep, dp, 1, checkpoint, *MANY) for name in ("mixtral", "mixtral_fp32") for checkpoint in (0, 1)
             for strategy in ("fsdp2,param=bf16,reduce=fp32", "fsdp2,reduce=fp32") for ep, dp in ((2, 2), (2, 4))]
    rows += [(name, "fsdp2", ep, dp, 1, checkpoint, *MANY) for name in ("qwen2_moe", "qwen3_moe", "gpt_oss", "deepseek_v3")
             for checkpoint, ep, dp in ((0, 4, 4), (1, 2, 4))]
    return rows


def predicted(program, folder, name, strategy, ep, dp, rank, checkpoint, batch, tokens):
    return runs.estimate(program, folder / name, "--batch", batch, "--seq", tokens, "--optimizer", "adamw",
                         "--checkpoint", "blocks" if checkpoint else "none", "--ep", ep, "--dp", dp, "--strategy", strategy,
                         "--rank", rank)


def measured(program, folder, name, strategy, ep, dp, rank, *rest):
    return runs.run(program, HERE / "experts_loop.py", folder / name, strategy, ep, dp, *rest,
                    options=("--world", dp, "--rank", rank))


if __name__ == "__main__":
    sys.exit(runs.Runs(HERE / "experts_runs.txt", MODELS, cases(), predicted, measured,
                       "model, strategy, ep, dp, rank, checkpoints, batch, tokens, peak of requested bytes").main(__doc__))
