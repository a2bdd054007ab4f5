"""A training loop on N cards that divide the model: part_loop.py CONFIG TP DP CHECKPOINTS BATCH TOKENS, two steps.

The plan is the one that transformers has for these families, base_model_tp_plan of the config's class.
"""
import os
import sys

import torch
import torch.distributed as dist
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

STYLES = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel}


def parallelize(model, mesh):
    plan = {name.replace("layers.*.", ""): STYLES[style]() for name, style in model.config.base_model_tp_plan.items()}
    for block in model.base_model.layers:
        parallelize_module(block, mesh, plan)


def main(path, tp, dp, checkpoints, batch, tokens):
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    config = transformers.AutoConfig.from_pretrained(path)
    model = getattr(transformers, config.architectures[0])._from_config(config).train()
    if int(checkpoints):
        model.gradient_checkpointing_enable()
    mesh = init_device_mesh("cuda", (int(dp), int(tp)), mesh_dim_names=("dp", "tp"))
    if int(dp) == 1:
        model.to("cuda")
    parallelize(model, mesh["tp"])
    if int(dp) > 1:
        for block in model.base_model.layers:
            fully_shard(block, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
    # its lists (foreach) do not take DTensors beside tensors
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    for _ in range(2):
        x = torch.randint(0, config.vocab_size, (int(batch), int(tokens)), device="cuda")
        optimizer.zero_grad()
        loss = model(input_ids=x, labels=x).loss
        loss.backward()
        optimizer.step()


main(*sys.argv[1:])
