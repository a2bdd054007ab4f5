"""A training loop on N cards that divide the model: part_loop.py CONFIG TP DP SEQUENCE CHECKPOINTS BATCH TOKENS, two steps.

The plan is the one that transformers has for these families, base_model_tp_plan of the config's class.  With SEQUENCE
1 it is that of torchtitan for Llama, with sequence parallelism between the products, on the same modules.
"""
import os
import sys

import torch
import torch.distributed as dist
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                               parallelize_module)

STYLES = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel}


def parallelize(model, mesh):
    # norms of heads (replicated_with_grad_allreduce) are left as they are: the sum of their gradients takes no memory
    plan = {name.replace("layers.*.", ""): STYLES[style]() for name, style in model.config.base_model_tp_plan.items()
            if style in STYLES}
    for block in model.base_model.layers:
        parallelize_module(block, mesh, plan)


def parallelize_sequence(model, mesh):
    parallelize_module(model, mesh, {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "model.norm": SequenceParallel(),
        "lm_head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())})
    for block in model.model.layers:
        parallelize_module(block, mesh, {
            "input_layernorm": SequenceParallel(),
            "self_attn": PrepareModuleInput(input_kwarg_layouts={"hidden_states": Shard(1)},
                                            desired_input_kwarg_layouts={"hidden_states": Replicate()}),
            **{f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"},
            "self_attn.o_proj": RowwiseParallel(output_layouts=Shard(1)),
            "post_attention_layernorm": SequenceParallel(),
            "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(),
            "mlp.down_proj": RowwiseParallel(output_layouts=Shard(1))})


def main(path, tp, dp, sequence, checkpoints, batch, tokens):
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    config = transformers.AutoConfig.from_pretrained(path)
    model = getattr(transformers, config.architectures[0])._from_config(config).train()
    if int(checkpoints):
        model.gradient_checkpointing_enable()
    mesh = init_device_mesh("cuda", (int(dp), int(tp)), mesh_dim_names=("dp", "tp"))
    if int(dp) == 1:
        model.to("cuda")
    sequence = bool(int(sequence))
    (parallelize_sequence if sequence else parallelize)(model, mesh["tp"])
    if int(dp) > 1:
        for block in model.base_model.layers:
            fully_shard(block, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
    # its lists (foreach) do not mix DTensors with tensors
    optimizer = torch.optim.AdamW(model.parameters(), foreach=None if sequence else False)
    for _ in range(2):
        x = torch.randint(0, config.vocab_size, (int(batch), int(tokens)), device="cuda")
        # a rank has a part of the tokens, so that the model cannot count them
        positions = {"position_ids": torch.arange(int(tokens), device="cuda")[None]} if sequence else {}
        optimizer.zero_grad()
        loss = model(input_ids=x, labels=x, **positions).loss
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
