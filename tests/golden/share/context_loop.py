"""A training loop on N cards that divide sequences: context_loop.py CONFIG STRATEGY CP DP CHECKPOINTS BATCH TOKENS, two steps.

As the Trainer does it with accelerate's parallelism configuration: ring attention of torch's context_parallel, without
masks because of accelerate's hooks, of labels that are shifted before; the strategy shares among all ranks.
"""
import os
import sys

import loop  # next to this file: how strategies wrap a model
import torch
import torch.distributed as dist
import transformers
from accelerate.big_modeling import _attach_context_parallel_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel


def next_batch(vocab, batch, tokens):
    """What context_parallel() divides in place."""
    ids = torch.randint(0, vocab, (batch, tokens), device="cuda")
    labels = ids.clone()
    return {"input_ids": ids, "labels": labels, "shift_labels": labels.roll(-1, 1),
            "position_ids": torch.arange(tokens, device="cuda").repeat(batch, 1)}


def main(path, strategy, cp, dp, checkpoints, batch, tokens):
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    config = transformers.AutoConfig.from_pretrained(path)
    model = getattr(transformers, config.architectures[0])._from_config(config).train()
    model.config.use_cache = False
    if int(checkpoints):
        model.gradient_checkpointing_enable()
    mesh = init_device_mesh("cuda", (int(dp), int(cp)), mesh_dim_names=("dp", "cp"))
    everyone = mesh["dp", "cp"]._flatten("dp_cp")
    _attach_context_parallel_hooks(model)
    name, options = loop.read_strategy(strategy)
    model = getattr(loop, name)(model, everyone, **options)
    optimizer = loop.make_optimizer(name, model, everyone)
    for _ in range(2):
        inputs = next_batch(config.vocab_size, int(batch), int(tokens))
        optimizer.zero_grad()
        with context_parallel(mesh["cp"], buffers=list(inputs.values()), buffer_seq_dims=[1] * len(inputs),
                              no_restore_buffers=set(inputs.values())):
            loss = model(**inputs).loss
            loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
