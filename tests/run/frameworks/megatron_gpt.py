"""Megatron-core's GPT: megatron_gpt.py TP [sequence], tensor and sequence parallel.

Without Transformer Engine and Apex it takes PyTorch's own layers.  Its wrapper of PyTorch's LayerNorm
refuses sequence parallelism, for which its gradients would have to be summed: the spec below
marks the weights, as Megatron's own norms do.
"""
import os
import sys

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.distributed.finalize_model_grads import finalize_model_grads
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_config import TransformerConfig

LAYERS, LENGTH, VOCABULARY = 4, 512, 8192


class Norm(torch.nn.LayerNorm):
    def __init__(self, config, hidden_size, eps=1e-5, **kwargs):
        super().__init__(hidden_size, eps)
        for p in self.parameters():
            p.sequence_parallel = config.sequence_parallel


def spec(config):
    layer = get_gpt_layer_local_spec()
    layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = Norm
    return TransformerBlockSubmodules([layer] * config.num_layers, Norm)


def main(tensor, *options):
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=int(tensor))
    model_parallel_cuda_manual_seed(1)
    half = {"bf16": True, "params_dtype": torch.bfloat16}
    config = TransformerConfig(
        num_layers=LAYERS, hidden_size=1024, num_attention_heads=16, ffn_hidden_size=4096,
        pipeline_dtype=torch.bfloat16, tensor_model_parallel_size=int(tensor),
        sequence_parallel="sequence" in options, **half)
    model = GPTModel(config, spec(config), VOCABULARY, LENGTH).cuda().bfloat16()
    count = sum(p.numel() for p in model.parameters())
    model = DistributedDataParallel(
        config, DistributedDataParallelConfig(use_distributed_optimizer=True), model)
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=1e-3, use_distributed_optimizer=True, **half), [model])
    made = torch.cuda.memory_allocated()
    tokens = torch.randint(0, VOCABULARY, (2, LENGTH), device="cuda")
    positions = torch.arange(LENGTH, device="cuda").expand(2, -1)
    mask = torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool, device="cuda").triu(1)
    for _ in range(2):
        model.zero_grad_buffer()
        optimizer.zero_grad()
        model(tokens, positions, mask, labels=tokens).mean().backward()
        finalize_model_grads([model])
        stepped, _, _ = optimizer.step()
    state = sum(v.nbytes for o in optimizer.chained_optimizers
                for s in o.optimizer.state.values() for v in s.values() if torch.is_tensor(v)
                and v.is_cuda and v.dim())
    print("parameters", count, "made", made, "state", state, "stepped", stepped,
          "peak", torch.cuda.max_memory_allocated())


main(*sys.argv[1:])
