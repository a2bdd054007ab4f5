"""A training loop on N cards that each have a stage, or several: stage_loop.py CONFIG CARDS DP TP STRATEGY
SCHEDULE MICROBATCHES CHECKPOINTS BATCH TOKENS, two steps.

A stage is the model without the layers of the others, called with inputs_embeds where it is not the first.  SCHEDULE is
1f1b, gpipe, or interleaved,2, looped_bfs,2 or zero_bubble,2 with the number of stages of a card.  BATCH is that of a micro-batch.  With TP above 1, its modules are divided with the plan that transformers has for the family;
with DP above 1, STRATEGY shares them among the cards that have the same stage.
"""
import copy
import sys

import loop
import part_loop
import torch
import torch.distributed as dist
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import (PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble,
                                          ScheduleLoopedBFS)
from transformers.loss.loss_utils import ForCausalLMLoss

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B, "looped_bfs": ScheduleLoopedBFS,
             "zero_bubble": ScheduleInterleavedZeroBubble}


class Stage(torch.nn.Module):
    def __init__(self, whole, stage, stages):
        super().__init__()
        self.model, self.first, self.last = whole.model, stage == 0, stage == stages - 1
        n = len(self.model.layers)
        self.model.layers = self.model.layers[stage * n // stages:(stage + 1) * n // stages]
        self.lm_head = whole.lm_head if self.last else None
        if not self.first:
            self.model.embed_tokens = None
        if not self.last:
            self.model.norm = torch.nn.Identity()

    def forward(self, x):
        x = self.model(**{"input_ids" if self.first else "inputs_embeds": x}, use_cache=False).last_hidden_state
        return self.lm_head(x) if self.last else x


def main(path, cards, dp, tp, strategy, schedule, microbatches, checkpoints, batch, tokens):
    cards, dp, tp, microbatches, batch, tokens = map(int, (cards, dp, tp, microbatches, batch, tokens))
    schedule, _, each = schedule.partition(",")
    stages = cards * int(each or 1)
    dist.init_process_group("nccl")
    device = torch.device("cuda")
    mesh = init_device_mesh("cuda", (cards, dp, tp), mesh_dim_names=("pp", "dp", "tp"))
    at = mesh["pp"].get_local_rank()
    config = transformers.AutoConfig.from_pretrained(path)
    model = getattr(transformers, config.architectures[0])._from_config(config).train()
    if int(checkpoints):
        model.gradient_checkpointing_enable()
    modules = torch.nn.ModuleList(Stage(copy.deepcopy(model) if each else model, i, stages)
                                  for i in range(at, stages, cards))
    del model
    name, options = loop.read_strategy(strategy)
    if name != "fsdp2":
        modules.to(device)
    if tp > 1:
        for module in modules:
            part_loop.parallelize(module.model, mesh["tp"])
    if dp > 1:
        modules = torch.nn.ModuleList(getattr(loop, name)(module, mesh["dp"], **options) for module in modules)
    mine = [PipelineStage(module, at + i * cards, stages, device, group=mesh["pp"].get_group())
            for i, module in enumerate(modules)]
    schedule = SCHEDULES[schedule](mine if each else mine[0], microbatches,
                                   loss_fn=lambda logits, y: ForCausalLMLoss(logits, y, config.vocab_size))
    # its lists (foreach) do not mix DTensors with tensors
    optimizer = loop.make_optimizer(name, modules if each else modules[0], mesh["dp"],
                                    **({"foreach": False} if tp > 1 else {}))
    for _ in range(2):
        x = torch.randint(0, config.vocab_size, (microbatches * batch, tokens), device=device)
        optimizer.zero_grad()
        if at == 0:
            schedule.step(x)
        elif at == cards - 1:
            schedule.step(target=x, return_outputs=False)
        else:
            schedule.step()
        optimizer.step()


main(*sys.argv[1:])
