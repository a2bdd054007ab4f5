"""A training loop on N cards, as its users write it: loop.py CONFIG STRATEGY CHECKPOINTS BATCH TOKENS [EXTRA], two steps.

STRATEGY is the text of plimsoll's --strategy, EXTRA words of +accumulate, +autocast, +clip and +lora, or
one of +fused and +forloop.
"""
import contextlib
import functools
import os
import sys

import torch
import torch.distributed as dist
import transformers

KERNELS = {"+fused": {"fused": True}, "+forloop": {"foreach": False}}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def blocks_of(model):
    return next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList))


def ddp(model, mesh=None, bucket_mib=None, first_mib=1, view=0, broadcast=1, no_sync=0):
    from torch.nn.parallel import DistributedDataParallel
    dist._DEFAULT_FIRST_BUCKET_BYTES = int(first_mib) << 20
    return DistributedDataParallel(model.to("cuda"), device_ids=[0], bucket_cap_mb=bucket_mib and int(bucket_mib),
                                   process_group=mesh and mesh.get_group(),
                                   gradient_as_bucket_view=bool(int(view)), broadcast_buffers=bool(int(broadcast)))


def fsdp2(model, mesh=None, param=None, reduce=None, reshard=None, replicate=None, no_sync=0):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    if replicate is not None:
        mesh = init_device_mesh("cuda", (int(replicate), dist.get_world_size() // int(replicate)), mesh_dim_names=("replicas", "parts"))
    options = {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(DTYPES.get(param), DTYPES.get(reduce))}
    if reshard is not None:
        options["reshard_after_forward"] = bool(int(reshard))
    for block in blocks_of(model):
        fully_shard(block, **options)
    return fully_shard(model, **options)


def replicate(model, mesh=None, param=None, reduce=None, divide_factor=None, no_sync=0):
    from torch.distributed._composable.replicate_with_fsdp import replicate
    from torch.distributed.fsdp import MixedPrecisionPolicy
    options = {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(DTYPES.get(param), DTYPES.get(reduce))}
    for block in blocks_of(model):
        replicate(block, **options)
    replicate(model, **options)
    for module in (*blocks_of(model), model) if divide_factor is not None else ():
        module.set_gradient_divide_factor(float(divide_factor))
    return model


def fsdp1(model, mesh=None, param=None, reduce=None, reshard=1, no_sync=0):
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    mixed = MixedPrecision(DTYPES.get(param), DTYPES.get(reduce)) if param or reduce else None
    return FullyShardedDataParallel(
        model, auto_wrap_policy=ModuleWrapPolicy({type(blocks_of(model)[0])}), device_id=torch.cuda.current_device(),
        sharding_strategy=ShardingStrategy.FULL_SHARD if int(reshard) else ShardingStrategy.SHARD_GRAD_OP,
        mixed_precision=mixed, use_orig_params=True, process_group=mesh and mesh.get_group())


zero1 = ddp


def make_optimizer(name, model, mesh=None, **options):
    if name == "zero1":
        from torch.distributed.optim import ZeroRedundancyOptimizer
        return ZeroRedundancyOptimizer([p for p in model.parameters() if p.requires_grad], torch.optim.AdamW, process_group=mesh and mesh.get_group())
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], **options)


def read_strategy(text):
    name, *items = text.split(",")
    return name, dict(item.split("=") for item in items)


def initialize(model, stage, batch, passes, bf16, **options):
    import torch._dynamo  # before DeepSpeed replaces functions of torch
    import deepspeed
    zero = {"stage": stage}
    for name, value in options.items():
        zero[name] = {"overlap_comm": bool(int(float(value))), "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}.get(name, int(float(value)))
    config = {"train_micro_batch_size_per_gpu": batch, "gradient_accumulation_steps": passes, "bf16": {"enabled": bf16}, "zero_optimization": zero,
              "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
    return deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(p for p in model.parameters() if p.requires_grad), config=config)[0]


def train_deepspeed(engine, passes, next_batch):
    for _ in range(2 * passes):
        x = next_batch()
        loss = engine(input_ids=x, labels=x).loss
        engine.backward(loss)
        engine.step()


def train_megatron(model, next_batch, passes, use_distributed_optimizer=0, grad_reduce_in_fp32=1, overlap_grad_reduce=0, bucket_size=None):
    """As megatron/training/training.py does, with PyTorch's fused AdamW in the place of Transformer Engine's or apex's."""
    torch.optim.AdamW = type("AdamW", (torch.optim.AdamW,), {"__init__": functools.partialmethod(torch.optim.AdamW.__init__, fused=True)})
    import megatron.core.optimizer as optimizers
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.transformer import TransformerConfig
    parallel_state.initialize_model_parallel()
    model = model.to("cuda")
    wrapped = DistributedDataParallel(
        TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=1),
        DistributedDataParallelConfig(grad_reduce_in_fp32=bool(int(grad_reduce_in_fp32)), use_distributed_optimizer=bool(int(use_distributed_optimizer)),
                                      overlap_grad_reduce=bool(int(overlap_grad_reduce)), bucket_size=bucket_size and int(float(bucket_size))), model)
    optimizer = optimizers.get_megatron_optimizer(
        optimizers.OptimizerConfig(optimizer="adam", lr=1e-4, bf16=model.dtype == torch.bfloat16, params_dtype=model.dtype, clip_grad=0.0,
                                   use_distributed_optimizer=bool(int(use_distributed_optimizer))), [wrapped])
    for _ in range(2):
        wrapped.zero_grad_buffer()
        optimizer.zero_grad()
        for k in range(passes):
            x = next_batch()
            with wrapped.no_sync() if k + 1 < passes else contextlib.nullcontext():
                loss = wrapped(input_ids=x, labels=x).loss
                loss.backward()
        wrapped.finish_grad_sync()
        optimizer.step()


def add_adapters(model):
    from peft import LoraConfig, get_peft_model
    return get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))


def skip_sync(model, skips):
    """For one pass."""
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(not skips)
        skips = False
    return model.no_sync() if skips else contextlib.nullcontext()


def main(path, strategy, checkpoints, batch, tokens, extra=""):
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    config = transformers.AutoConfig.from_pretrained(path)
    model = getattr(transformers, config.architectures[0])._from_config(config).train()
    if int(checkpoints):
        model.gradient_checkpointing_enable({"use_reentrant": checkpoints == "2"})
        if checkpoints == "2":
            model.enable_input_require_grads()
    name, options = read_strategy(strategy)

    def next_batch():
        return torch.randint(0, config.vocab_size, (int(batch), int(tokens)), device="cuda")

    if "+lora" in extra:
        model = add_adapters(model)
    passes = 3 if "no_sync" in options else 2 if "+accumulate" in extra else 1
    if name.startswith("ds_zero"):
        bf16 = model.dtype == torch.bfloat16
        train_deepspeed(initialize(model, int(name[-1]), int(batch), passes, bf16, **options), passes, next_batch)
        return
    if name == "megatron":
        train_megatron(model, next_batch, passes, **options)
        return
    model = globals()[name](model, **options)
    optimizer = make_optimizer(name, model, **KERNELS.get(extra, {}))
    for _ in range(2):
        for k in range(passes):
            x = next_batch()
            if not k:
                optimizer.zero_grad()
            with skip_sync(model, "no_sync" in options and k + 1 < passes):
                with torch.autocast("cuda", torch.bfloat16, enabled="+autocast" in extra):
                    loss = model(input_ids=x, labels=x).loss
                loss.backward()
        if "+clip" in extra:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
