#!/usr/bin/env python3
"""Compares `plimsoll estimate --dp` with ranks of jobs that run torch's own code (loop.py), to the byte.

    tests/golden/runs.py says how to call it.

A row of runs.txt is a model, the number of ranks, the rank, checkpoints as 0, 1 or 2 (reentrant), batch and tokens, the text of
--strategy, what else was set (OPTIONS) or -, and the peak of requested bytes.  Two steps, AdamW.  With few tokens the peak is where a strategy's
own buffers are, not at the loss.  KNOWN has the rows that are not equal, and why.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

sys.path.insert(0, str(HERE.parent))
import runs  # noqa: E402  what such scripts have in common

WIDE = {"vocab_size": 2003, "max_position_embeddings": 1024, "hidden_size": 512, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 1408}
GPT = {"vocab_size": 2003, "n_positions": 1024, "n_embd": 512, "n_layer": 4, "n_head": 8}
BF16, FP32 = {"dtype": "bfloat16"}, {"dtype": "float32"}
MODELS = {
    "llama": ("llama", "LlamaForCausalLM", {**WIDE, **BF16}),
    "llama_fp32": ("llama", "LlamaForCausalLM", {**WIDE, **FP32}),
    "gpt2": ("gpt2", "GPT2LMHeadModel", {**GPT, **BF16}),  # its head is its embedding
    "gpt2_fp32": ("gpt2", "GPT2LMHeadModel", {**GPT, **FP32}),
}
THREE = {**WIDE, "num_hidden_layers": 3, **BF16}
OTHERS = {
    "qwen2": ("qwen2", "Qwen2ForCausalLM", THREE),
    "qwen3": ("qwen3", "Qwen3ForCausalLM", {**THREE, "head_dim": 64}),
    "gemma": ("gemma", "GemmaForCausalLM", {**THREE, "head_dim": 64}),
    "mixtral": ("mixtral", "MixtralForCausalLM", {**THREE, "num_local_experts": 4}),
    "phi": ("phi", "PhiForCausalLM", THREE),
    "gpt_neox": ("gpt_neox", "GPTNeoXForCausalLM", {key: THREE[key] for key in THREE if key != "num_key_value_heads"}),
    "opt": ("opt", "OPTForCausalLM", {"vocab_size": 2003, "max_position_embeddings": 1024, "hidden_size": 512, "word_embed_proj_dim": 512,
                                      "num_hidden_layers": 3, "num_attention_heads": 8, "ffn_dim": 2048, **BF16}),
}
MODELS.update(OTHERS)
MANY, FEW = (4, 256), (1, 16)
STRATEGIES = ["ddp", "ddp,view=1", "ddp,bucket_mib=4", "zero1", "fsdp2", "fsdp2,reshard=0", "fsdp2,reshard=1",
              "fsdp2,param=bf16,reduce=fp32", "replicate", "replicate,param=bf16,reduce=fp32",
              "fsdp1", "fsdp1,reshard=0", "fsdp1,param=bf16", "fsdp1,param=bf16,reduce=fp32",
              "ds_zero1", "ds_zero1,reduce_bucket_size=1e6", "ds_zero2", "ds_zero2,reduce_bucket_size=1e6",
              "ds_zero2,reduce_bucket_size=1e6,overlap_comm=1", "ds_zero2,reduce_bucket_size=1e6,offload_optimizer=1"]
# Of modules here and there, and of the next ones: much and little of each.
ZERO3 = ["ds_zero3", "ds_zero3,reduce_bucket_size=1e6,stage3_prefetch_bucket_size=5e5",
         "ds_zero3,reduce_bucket_size=1e6,stage3_prefetch_bucket_size=0,stage3_param_persistence_threshold=1e3,overlap_comm=0",
         "ds_zero3,reduce_bucket_size=2e5,stage3_prefetch_bucket_size=1e6,stage3_max_live_parameters=3e6,stage3_max_reuse_distance=1e6,sub_group_size=3e5",
         "ds_zero3,reduce_bucket_size=1e6,stage3_max_reuse_distance=0,offload_optimizer=1",
         "ds_zero3,reduce_bucket_size=1e6,stage3_prefetch_bucket_size=5e5,offload_param=1",
         "ds_zero3,reduce_bucket_size=1e6,stage3_max_live_parameters=2e6,offload_optimizer=1,offload_param=1"]
MEGATRON = ["megatron", "megatron,grad_reduce_in_fp32=0", "megatron,use_distributed_optimizer=1",
            "megatron,use_distributed_optimizer=1,overlap_grad_reduce=1,bucket_size=1e6",
            "megatron,use_distributed_optimizer=1,grad_reduce_in_fp32=0,overlap_grad_reduce=1,bucket_size=3e5"]


# Where the two differ, and by how much the estimate is above the run:
PADDED = "_chunk_cat of a CPU build makes padded copies where ranks do not divide the rows, the CUDA kernel does not"
KEPT = "fsdp2,reshard=0"  # whose peak is in forward, or at the first reduce-scatter
HELD = "the graph of transformers' layers holds what they are given by name until the next loss: cosines and sines"
KNOWN = {("llama", 8, 2, "ddp"): (-67584, HELD), ("llama", 6, 1, KEPT): (-2024436, PADDED), ("gpt2", 7, 1, KEPT): (-1968046, PADDED)}


def difference(case):
    name, world, _, checkpoint, _, _, strategy, _ = case
    return KNOWN.get((name, world, checkpoint, strategy), (0, ""))[0]


def cases():
    """Ranks first, middle and last of 8; 6 and 7 ranks do not divide the rows."""
    rows = [(name, world, rank, 0, *FEW, strategy) for name in ("llama_fp32", "gpt2_fp32")
            for strategy in STRATEGIES for world, rank in ((8, 0), (8, 3), (8, 7))]
    rows += [(name, world, world - 1, 1, *FEW, strategy) for name, world in (("llama", 6), ("gpt2", 7))
             for strategy in STRATEGIES]
    rows += [(name, 8, 3, checkpoint, *MANY, strategy) for name in ("llama", "gpt2")
             for checkpoint in (0, 1) for strategy in STRATEGIES]
    rows += [(name, 8, rank, 0, *FEW, strategy) for name in ("llama", "llama_fp32", "gpt2") for rank in (0, 3, 7)
             for strategy in ("fsdp2,replicate=2", "fsdp2,replicate=4,reduce=fp32", "fsdp2,replicate=2,param=bf16,reduce=fp32")]
    rows += [("llama", 6, 5, checkpoint, *MANY, "fsdp2,replicate=2") for checkpoint in (0, 1)]
    rows += [(name, world, rank, checkpoint, *size, strategy) for name, world, rank in (("llama", 8, 3), ("gpt2_fp32", 7, 6), ("llama_fp32", 6, 0))
             for checkpoint in (0, 1) for size in (FEW, MANY) for strategy in ZERO3]
    rows += [(name, world, rank, 0, *FEW, strategy) for name, world, rank in (("llama", 8, 0), ("llama", 8, 3), ("llama", 8, 7), ("gpt2_fp32", 7, 0), ("gpt2_fp32", 7, 6))
             for strategy in MEGATRON]
    rows += [(name, 8, 3, checkpoint, *MANY, strategy) for name in ("gpt2", "llama_fp32") for checkpoint in (0, 1) for strategy in MEGATRON]
    rows += [(name, 8, 3, checkpoint, *MANY, strategy) for name in OTHERS for checkpoint in (0, 1)
             for strategy in ("fsdp1", "replicate", "ds_zero2,reduce_bucket_size=1e6", ZERO3[1], MEGATRON[2])]
    rows += [("llama", 8, 3, 2, *MANY, strategy) for strategy in ("ddp", "zero1", "ds_zero2,reduce_bucket_size=1e6", ZERO3[1], MEGATRON[0], MEGATRON[3])]
    rows += [(name, world, 1, 0, *FEW, "replicate") for name, world in (("llama_fp32", 2), ("gpt2_fp32", 4))]
    rows += [(name, 8, 3, 0, *size, "replicate,param=bf16,reduce=fp32,divide_factor=1") for name in ("llama_fp32", "gpt2_fp32") for size in (FEW, MANY)]
    rows = [(*row, "-") for row in rows]
    rows += [("llama_fp32", 8, 3, 0, *FEW, "replicate", extra) for extra in ("+fused", "+forloop")]
    rows += [("llama", 8, 3, checkpoint, *MANY, strategy, "+accumulate") for checkpoint in (0, 1) for strategy in (MEGATRON[0], MEGATRON[3])]
    rows += [(name, 8, 3, checkpoint, *MANY, strategy, extra) for name in ("llama", "gpt2_fp32") for checkpoint in (0, 1)
             for strategy in (ZERO3[1], ZERO3[3]) for extra in ("+accumulate", "+lora", "+lora+accumulate") if "+lora" not in extra or name == "llama"]
    for strategy in ("ddp", "ddp,view=1", "zero1", "fsdp2", "fsdp2,reshard=0", "replicate", "fsdp1", "fsdp1,reshard=0"):
        rows += [("llama_fp32" if "+autocast" in extra else "llama", 8, 3, 0, *MANY, strategy, extra)
                 for extra in ("+accumulate", "+autocast", "+autocast+accumulate", "+clip", "+lora", "+lora+accumulate")
                 if not strategy.startswith("fsdp1") or "+lora" not in extra and "+clip" not in extra]
    rows += [(name, 8, 3, checkpoint, *MANY, f"{strategy},no_sync=1", "+passes") for name in ("llama", "gpt2_fp32") for checkpoint in (0, 1)
             for strategy in ("ddp", "ddp,view=1", "zero1", "fsdp2", "fsdp2,reshard=0", "fsdp2,param=bf16,reduce=fp32",
                              "fsdp2,replicate=2", "replicate", "replicate,param=bf16,reduce=fp32", "fsdp1", "fsdp1,reshard=0", "fsdp1,param=bf16,reduce=fp32")]
    return rows


OPTIONS = {"+passes": ["--accumulate", 3], "+accumulate": ["--accumulate", 2], "+autocast": ["--autocast", "bf16"], "+clip": ["--clip"],
           "+fused": ["--optimizer", "adamw,impl=fused"], "+forloop": ["--optimizer", "adamw,impl=forloop"],
           "+lora": ["--lora", "r=16,targets=q_proj+v_proj"]}


def predicted(program, folder, name, world, rank, checkpoint, batch, tokens, strategy, extra, **figure):
    more = [word for option, words in OPTIONS.items() if option in extra for word in words]
    return runs.estimate(program, folder / name, "--batch", batch, "--seq", tokens, "--optimizer", "adamw",
                         "--checkpoint", ("none", "blocks", "blocks,reentrant")[checkpoint], "--dp", world, "--rank", rank,
                         "--strategy", strategy, "--transformers", "5.23", *more, **figure)


def measured(program, folder, name, world, rank, checkpoint, batch, tokens, strategy, extra, **figure):
    return runs.run(program, HERE / "loop.py", folder / name, strategy, checkpoint, batch, tokens, extra,
                    options=("--world", world, "--rank", rank), **figure)


def agrees(case, ours, run):
    return ours[0] == run[0] + difference(case)


if __name__ == "__main__":
    sys.exit(runs.Runs(HERE / "runs.txt", MODELS, cases(), predicted, measured,
                       "model, ranks, rank, checkpoints, batch, tokens, --strategy, other options, peak of requested bytes",
                       packages=("deepspeed", "megatron-core", "peft"), agrees=agrees).main(__doc__))
