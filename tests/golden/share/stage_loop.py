"""A training loop on N cards that each have a stage: stage_loop.py CONFIG STAGES TP SCHEDULE MICROBATCHES CHECKPOINTS
BATCH TOKENS, two steps.

A stage is the model without the layers of the others, called with inputs_embeds where it is not the first.  BATCH is
that of a micro-batch.  With TP above 1, its modules are divided with the plan that transformers has for the family.
"""
import sys

import torch
import torch.distributed as dist
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers.loss.loss_utils import ForCausalLMLoss

STYLES = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel}
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


def main(path, stages, tp, schedule, microbatches, checkpoints, batch, tokens):
    stages, tp, microbatches, batch, tokens = map(int, (stages, tp, microbatches, batch, tokens))
    dist.init_process_group("nccl")
    device = torch.device("cuda")
    mesh = init_device_mesh("cuda", (stages, tp), mesh_dim_names=("pp", "tp"))
    at = mesh["pp"].get_local_rank()
    config = transformers.AutoConfig.from_pretrained(path)
    model = getattr(transformers, config.architectures[0])._from_config(config).train()
    if int(checkpoints):
        model.gradient_checkpointing_enable()
    module = Stage(model, at, stages).to(device)
    del model
    if tp > 1:
        plan = {name.replace("layers.*.", ""): STYLES[style]() for name, style in config.base_model_tp_plan.items()}
        for block in module.model.layers:
            parallelize_module(block, mesh["tp"], plan)
    stage = PipelineStage(module, at, stages, device, group=mesh["pp"].get_group())
    schedule = SCHEDULES[schedule](stage, microbatches,
                                   loss_fn=lambda logits, y: ForCausalLMLoss(logits, y, config.vocab_size))
    optimizer = torch.optim.AdamW(module.parameters(), foreach=False if tp > 1 else None)
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
