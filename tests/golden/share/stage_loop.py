"""A training loop on N cards that each have a stage: stage_loop.py CONFIG STAGES DP TP STRATEGY SCHEDULE MICROBATCHES
CHECKPOINTS BATCH TOKENS, two steps.

A stage is the model without the layers of the others, called with inputs_embeds where it is not the first.  BATCH is
that of a micro-batch.  With TP above 1, its modules are divided with the plan that transformers has for the family;
with DP above 1, STRATEGY shares them among the cards that have the same stage.
"""
import sys

import loop
import part_loop
import torch
import torch.distributed as dist
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from transformers.loss.loss_utils import ForCausalLMLoss

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


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


def main(path, stages, dp, tp, strategy, schedule, microbatches, checkpoints, batch, tokens):
    stages, dp, tp, microbatches, batch, tokens = map(int, (stages, dp, tp, microbatches, batch, tokens))
    dist.init_process_group("nccl")
    device = torch.device("cuda")
    mesh = init_device_mesh("cuda", (stages, dp, tp), mesh_dim_names=("pp", "dp", "tp"))
    at = mesh["pp"].get_local_rank()
    config = transformers.AutoConfig.from_pretrained(path)
    model = getattr(transformers, config.architectures[0])._from_config(config).train()
    if int(checkpoints):
        model.gradient_checkpointing_enable()
    module = Stage(model, at, stages)
    del model
    name, options = loop.read_strategy(strategy)
    if name != "fsdp2":
        module.to(device)
    if tp > 1:
        part_loop.parallelize(module.model, mesh["tp"])
    if dp > 1:
        module = getattr(loop, name)(module, mesh["dp"], **options)
    stage = PipelineStage(module, at, stages, device, group=mesh["pp"].get_group())
    schedule = SCHEDULES[schedule](stage, microbatches,
                                   loss_fn=lambda logits, y: ForCausalLMLoss(logits, y, config.vocab_size))
    # its lists (foreach) do not take DTensors beside tensors
    optimizer = loop.make_optimizer(name, module, mesh["dp"], **({"foreach": False} if tp > 1 else {}))
    for _ in range(2):
        x = torch.randint(0, config.vocab_size, (microbatches * batch, tokens), device=device)
        optimizer.zero_grad()
        if at == 0:
            schedule.step(x)
        elif at == stages - 1:
            schedule.step(target=x, return_outputs=False)
        else:
            schedule.step()
        optimizer.step()


main(*sys.argv[1:])
