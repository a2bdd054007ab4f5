"""world.py WHAT -- a training script for N GPUs, as anybody writes it."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

VOCABULARY, HIDDEN, BLOCKS = 8192, 1024, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln = nn.LayerNorm(HIDDEN)
        self.up = nn.Linear(HIDDEN, 4 * HIDDEN)
        self.down = nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.ln(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList([Block() for _ in range(BLOCKS)])
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.emb(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def ddp(view=False):
    return nn.parallel.DistributedDataParallel(Net().cuda(), device_ids=[0],
                                               gradient_as_bucket_view=view)


def fsdp1(use_orig_params=True):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    return FullyShardedDataParallel(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}),
                                    device_id=torch.cuda.current_device(), use_orig_params=use_orig_params)


def shard(shape=None, names=None, checkpoints=False, **kwargs):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cuda", shape or (dist.get_world_size(),), mesh_dim_names=names)
    model = Net().cuda()
    for i, layer in enumerate(model.layers):
        if checkpoints:
            model.layers[i] = layer = checkpoint_wrapper(layer)
        fully_shard(layer, mesh=mesh, **kwargs)
    return fully_shard(model, mesh=mesh, **kwargs)


def fsdp2_bf16():
    from torch.distributed.fsdp import MixedPrecisionPolicy
    return shard(mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))


def tensor_parallel(model, mesh):
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                   SequenceParallel, parallelize_module)
    for layer in model.layers:
        parallelize_module(layer, mesh, {
            "ln": SequenceParallel(), "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1))})
    return parallelize_module(model, mesh, {
        "emb": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())})


def fsdp2_tp():
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cuda", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
    with torch.device("meta"):
        model = Net()
    tensor_parallel(model, mesh["tp"])
    for i, layer in enumerate(model.layers):
        model.layers[i] = layer = checkpoint_wrapper(layer)
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    model.to_empty(device="cuda")
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    return model


def tp():
    from torch.distributed.device_mesh import init_device_mesh
    return tensor_parallel(Net().cuda(), init_device_mesh("cuda", (dist.get_world_size(),)))


MODELS = {"ddp": ddp, "ddp_view": lambda: ddp(True), "zero1": ddp, "fsdp1": fsdp1,
          "fsdp1_flat": lambda: fsdp1(False),
          "fsdp2": shard, "fsdp2_bf16": fsdp2_bf16,
          "fsdp2_checkpoints": lambda: shard(checkpoints=True),
          "hsdp": lambda: shard((2, dist.get_world_size() // 2), ("replicate", "shard")), "tp": tp, "fsdp2_tp": fsdp2_tp}


def optimizer_of(what, model):
    if what == "zero1":
        from torch.distributed.optim import ZeroRedundancyOptimizer
        return ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def say(*words):
    """A line in one piece: several ranks may write at once."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")


def objects():
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, {"rank": dist.get_rank()})
    one = [{"rank": dist.get_rank()}]
    dist.broadcast_object_list(one, src=0)
    dist.barrier()
    say("objects", [each["rank"] for each in everyone], one[0]["rank"])


def train(model, optimizer, after=lambda i: None):
    tokens = torch.randint(0, VOCABULARY, (4, 256), device="cuda")
    for i in range(2):
        optimizer.zero_grad()
        logits = model(tokens)
        loss = nn.functional.cross_entropy(logits.float().view(-1, VOCABULARY), tokens.view(-1))
        loss.backward()
        optimizer.step()
        after(i)


def tracked(what):
    """What PyTorch's own tracker of fully_shard says, and what was allocated."""
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    model = MODELS[what]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    tracker = FSDPMemTracker(model, optimizer)

    def after(i):
        if i == 0:
            tracker.reset_mod_stats()
            torch.cuda.reset_peak_memory_stats()
    with tracker:
        train(model, optimizer, after)
    said = tracker.get_tracker_snapshot("peak")[torch.device("cuda:0")]["Total"]
    say("tracked", said, torch.cuda.max_memory_allocated())


def main(what, *options):
    dist.init_process_group("gloo" if "gloo" in options else "nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    say("rank", dist.get_rank(), dist.get_world_size(), dist.get_backend())
    if "tracked" in options:
        tracked(what)
    else:
        objects()
        model = MODELS[what]()
        train(model, optimizer_of(what, model))
        say("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
