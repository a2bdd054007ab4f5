"""A training loop on N cards that share out experts: experts_loop.py CONFIG STRATEGY EP DP CHECKPOINTS BATCH TOKENS, two steps.

Expert parallelism is that of transformers (apply_expert_parallelism with the plan of the config's class), and as there fully_shard has a
mesh of its own for experts: of the cards that have the same ones.  STRATEGY is fsdp2 with its options.

On a pretend GPU no routes are computed: every card is told that it sends, and gets, as many rows as each other one.
"""
import os
import sys

import loop  # next to this file: how strategies wrap a model
import torch
import torch.distributed as dist
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers.distributed.expert_parallel import apply_expert_parallelism


def route_evenly(cards, rows):
    """The sizes of the exchange are all that the host reads."""
    read = torch.Tensor.tolist
    torch.Tensor.tolist = lambda x: [[rows // cards] * cards] * 2 if x.is_cuda and x.shape == (2, cards) else read(x)


def share_out(model, ep, dp, param=None, reduce=None):
    mesh = init_device_mesh("cuda", (dp // ep, ep), mesh_dim_names=("same", "ep"))
    cards = init_device_mesh("cuda", (dp, 1), mesh_dim_names=("dp", "tp"))
    plan = model._expand_parallel_plan(dict(model.ep_plan))
    apply_expert_parallelism(model, mesh["ep"], cards["tp"], plan)
    policy = {"mp_policy": MixedPrecisionPolicy(loop.DTYPES.get(param), loop.DTYPES.get(reduce))}
    for block in loop.blocks_of(model):
        for name, module in block.named_modules():
            if name.endswith(".experts"):
                fully_shard(module, mesh=mesh["same"], **policy)
                module.set_gradient_divide_factor(float(dp))
                if dp > ep:
                    module.set_force_sum_reduction_for_comms(True)
        fully_shard(block, mesh=cards["dp"], **policy)
    fully_shard(model, mesh=cards["dp"], **policy)


def main(path, strategy, ep, dp, checkpoints, batch, tokens):
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    config = transformers.AutoConfig.from_pretrained(path)
    with torch.device("meta"):
        model = getattr(transformers, config.architectures[0])._from_config(config).train()
    if int(checkpoints):
        model.gradient_checkpointing_enable()
    share_out(model, int(ep), int(dp), **loop.read_strategy(strategy)[1])
    model.to_empty(device="cuda")
    for module in model.modules():
        if hasattr(module, "e_score_correction_bias"):  # which from_pretrained leaves in fp32
            module.e_score_correction_bias = module.e_score_correction_bias.float()
    route_evenly(int(ep), int(batch) * int(tokens) * config.num_experts_per_tok)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        x = torch.randint(0, config.vocab_size, (int(batch), int(tokens)), device="cuda")
        optimizer.zero_grad()
        loss = model(input_ids=x, labels=x).loss
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
