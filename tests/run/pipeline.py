"""pipeline.py 1f1b|gpipe -- each rank is a stage; for how many micro-batches it holds activations."""

import gc
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

MICRO_BATCHES, SIZE = 8, 1024


class Saved:
    """What the graph of a micro-batch saves; it dies when its backward has run."""
    alive = most = 0

    def __init__(self, tensor):
        self.tensor = tensor
        Saved.alive += 1
        Saved.most = max(Saved.most, Saved.alive)

    def __del__(self):
        Saved.alive -= 1


class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(SIZE, SIZE)

    def forward(self, x):
        x = self.linear(x)
        with torch.autograd.graph.saved_tensors_hooks(Saved, lambda saved: saved.tensor):
            return torch.relu(x)


def main(schedule):
    dist.init_process_group("nccl")
    rank, size = dist.get_rank(), dist.get_world_size()
    stage = PipelineStage(Stage().cuda(), rank, size, torch.device("cuda"))
    steps = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}[schedule](
        stage, n_microbatches=MICRO_BATCHES, loss_fn=nn.functional.mse_loss)
    x = torch.randn(MICRO_BATCHES * 256, SIZE, device="cuda")
    for i in range(2):
        if i:  # the first step also finds out shapes
            gc.collect()
            before = Saved.most = Saved.alive
        if rank == 0:
            steps.step(x)
        elif rank == size - 1:
            steps.step(target=x, losses=[])
        else:
            steps.step()
    sys.stdout.write(f"stage {rank} holds {Saved.most - before}\n")  # in one piece, as others write too
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
