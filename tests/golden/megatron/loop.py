"""Three iterations of Megatron-LM's scripts with megatron-core's own code and layers ("local"): loop.py [SCRIPT] ARGUMENTS

SCRIPT is pretrain_gpt.py, which is the default, pretrain_bert.py or pretrain_t5.py.

The arguments have the names and defaults of Megatron-LM's.  In the place of what Transformer Engine or apex would give are
PyTorch's fused AdamW, copies that are scaled in place, with sequence parallelism PyTorch's norms, which megatron-core's wrapper
refuses, and for the router of experts a product of PyTorch and a workspace.  On a pretend GPU no routes are computed: every expert is told that it has as many tokens.
"""
import argparse
import copy
import dataclasses
import functools
import math
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F

torch.optim.AdamW = type("AdamW", (torch.optim.AdamW,), {"__init__": functools.partialmethod(torch.optim.AdamW.__init__, fused=True)})

from megatron.core import parallel_state as mpu, tensor_parallel  # noqa: E402
from megatron.core.datasets.t5_dataset import T5MaskedWordPieceDataset  # noqa: E402
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads  # noqa: E402
from megatron.core.distributed.fsdp import mcore_fsdp_adapter  # noqa: E402
from megatron.core.distributed.fsdp.src.megatron_fsdp import param_and_grad_buffer  # noqa: E402
from megatron.core.models.bert.bert_layer_specs import bert_layer_local_spec  # noqa: E402
from megatron.core.models.bert.bert_model import BertModel  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_layer_local_spec  # noqa: E402
from megatron.core.models.T5 import T5Model, t5_spec  # noqa: E402
from megatron.core.num_microbatches_calculator import get_num_microbatches, init_num_microbatches_calculator  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, clip_grads, get_megatron_optimizer, optimizer as mixed_precision  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.rerun_state_machine import get_rerun_state_machine  # noqa: E402
from megatron.core.tensor_parallel import data  # noqa: E402
from megatron.core.utils import get_attr_wrapped_model  # noqa: E402
from megatron.core.transformer import MLATransformerConfig, TransformerConfig, multi_latent_attention, torch_norm  # noqa: E402
from megatron.core.transformer.dot_product_attention import DotProductAttention  # noqa: E402
from megatron.core.transformer.module import Float16Module  # noqa: E402
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules  # noqa: E402
from megatron.core.transformer.moe import moe_utils, token_dispatcher  # noqa: E402

ITERATIONS = 3

for module in clip_grads, mixed_precision:
    module.multi_tensor_scale_impl = lambda _, __, lists, scale: [y.copy_(x).mul_(scale) for x, y in zip(*lists)]


# of what ranks tell one another there is nothing to read
param_and_grad_buffer.validate_uneven_dtensor = mcore_fsdp_adapter.FullyShardedDataParallel.sync_rng_states_across_tp_group = lambda _: None


def parse():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("script", nargs="?", default="pretrain_gpt.py", choices=SCRIPTS)
    for name in ("hidden-size", "num-attention-heads", "max-position-embeddings", "micro-batch-size", "vocab-size"):
        parser.add_argument("--" + name, type=int, required=True)
    for name, default in (("q-lora-rank", None), ("kv-lora-rank", 32), ("qk-head-dim", 128), ("qk-pos-emb-head-dim", 64), ("v-head-dim", 128)):
        parser.add_argument("--" + name, type=int, default=default)
    for name in ("num-layers", "seq-length", "encoder-num-layers", "encoder-seq-length", "decoder-seq-length", "ffn-hidden-size", "kv-channels", "global-batch-size", "num-layers-per-virtual-pipeline-stage", "num-experts",
                 "moe-ffn-hidden-size", "expert-tensor-parallel-size", "microbatch-group-size-per-virtual-pipeline-stage",
                 "moe-shared-expert-intermediate-size", "moe-router-num-groups", "moe-router-group-topk"):
        parser.add_argument("--" + name, type=int)
    for name, default in (("num-query-groups", 1), ("make-vocab-size-divisible-by", 128), ("tensor-model-parallel-size", 1),
                          ("pipeline-model-parallel-size", 1), ("expert-model-parallel-size", 1), ("moe-router-topk", 2)):
        parser.add_argument("--" + name, type=int, default=default)
    for name, default in (("attention-dropout", 0.1), ("hidden-dropout", 0.1), ("clip-grad", 1.0), ("moe-aux-loss-coeff", 0.0)):
        parser.add_argument("--" + name, type=float, default=default)
    for name in ("group-query-attention", "untie-embeddings-and-output-weights", "swiglu", "qk-layernorm", "bf16", "fp16",
                 "moe-shared-expert-gate", "moe-router-enable-expert-bias", "attention-softmax-in-fp32", "sequence-parallel", "use-distributed-optimizer", "overlap-grad-reduce",
                 "overlap-param-gather", "deterministic-mode", "overlap-p2p-communication-warmup-flush", "use-megatron-fsdp"):
        parser.add_argument("--" + name, action="store_true")
    for name in ("bias-gelu-fusion", "bias-swiglu-fusion", "bias-dropout-fusion", "masked-softmax-fusion", "rope-fusion",
                 "gradient-accumulation-fusion", "persist-layer-norm"):
        parser.add_argument("--no-" + name, action="store_false", dest={"rope-fusion": "apply_rope_fusion"}.get(name, name.replace("-", "_")))
    for name, kind in (("granularity", str), ("method", str), ("num-layers", int)):
        parser.add_argument("--recompute-" + name, type=kind)
    parser.add_argument("--recompute-modules", nargs="*")
    parser.add_argument("--moe-layer-freq", type=eval, default=1)
    parser.add_argument("--moe-router-score-function", choices=["softmax", "sigmoid"], default="softmax")
    parser.add_argument("--moe-router-topk-scaling-factor", type=float)
    parser.add_argument("--multi-latent-attention", action="store_true")
    parser.add_argument("--rope-type", choices=["yarn", "rope"], default="yarn")
    parser.add_argument("--bert-no-binary-head", action="store_false", dest="bert_binary_head")
    parser.add_argument("--spec", choices=["local"])
    parser.add_argument("--disable-bias-linear", action="store_false", dest="add_bias_linear")
    parser.add_argument("--position-embedding-type", choices=["learned_absolute", "rope", "none"], default="learned_absolute")
    parser.add_argument("--normalization", choices=["LayerNorm", "RMSNorm"], default="LayerNorm")
    parser.add_argument("--moe-token-dispatcher-type", choices=["allgather", "alltoall"], default="allgather")
    parser.add_argument("--moe-router-load-balancing-type", choices=["sinkhorn", "aux_loss", "none"], default="aux_loss")
    parser.add_argument("--moe-router-dtype", choices=["fp32"])
    parser.add_argument("--transformer-impl", choices=["local"], required=True)
    parser.add_argument("--load")
    parser.add_argument("--megatron-fsdp-main-grads-dtype", choices=["auto", "fp32"], default="auto")
    return derive(parser.parse_args())


def derive(args):
    """What validate_args() and core_transformer_config_from_args() make of the arguments."""
    data_parallel_size = dist.get_world_size() // (args.tensor_model_parallel_size * args.pipeline_model_parallel_size)
    args.global_batch_size = args.global_batch_size or args.micro_batch_size * data_parallel_size
    init_num_microbatches_calculator(dist.get_rank(), None, args.global_batch_size, args.micro_batch_size, data_parallel_size)
    args.num_layers, args.seq_length = args.num_layers or args.encoder_num_layers, args.seq_length or args.encoder_seq_length
    args.num_moe_experts = args.num_experts
    args.moe_ffn_hidden_size = args.moe_ffn_hidden_size or None
    args.kv_channels = args.kv_channels or args.hidden_size // args.num_attention_heads
    args.ffn_hidden_size = args.ffn_hidden_size or (int(4 * args.hidden_size * 2 / 3 / 64) * 64 if args.swiglu else 4 * args.hidden_size)
    args.num_query_groups = args.num_query_groups if args.group_query_attention else None
    args.gated_linear_unit, args.activation_func = args.swiglu, F.silu if args.swiglu else F.gelu
    args.bias_activation_fusion = args.bias_swiglu_fusion if args.swiglu else args.bias_gelu_fusion and args.add_bias_linear
    args.add_qkv_bias = args.add_bias_linear
    args.sequence_parallel &= args.tensor_model_parallel_size > 1
    args.apply_rope_fusion &= args.position_embedding_type == "rope"
    args.params_dtype = args.pipeline_dtype = torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else torch.float32
    args.deallocate_pipeline_outputs = True
    args.virtual_pipeline_model_parallel_size = args.num_layers_per_virtual_pipeline_stage and \
        args.num_layers // args.pipeline_model_parallel_size // args.num_layers_per_virtual_pipeline_stage
    args.overlap_p2p_comm = args.virtual_pipeline_model_parallel_size is not None
    args.batch_p2p_comm = not args.overlap_p2p_comm
    args.overlap_p2p_comm_warmup_flush = args.overlap_p2p_communication_warmup_flush
    args.microbatch_group_size_per_vp_stage = args.microbatch_group_size_per_virtual_pipeline_stage
    args.grad_reduce_in_fp32, args.check_for_nan_in_grad = args.bf16, True
    args.optimizer, args.lr, args.min_lr = "adam", 1e-4, 0.0
    if args.use_megatron_fsdp:
        args.data_parallel_sharding_strategy, args.grad_reduce_in_fp32 = "optim_grads_params", args.megatron_fsdp_main_grads_dtype == "fp32"
        args.megatron_fsdp_main_grads_dtype = torch.float32 if args.grad_reduce_in_fp32 else None  # of later versions
        args.bucket_size = max(40000000, 1000000 * data_parallel_size) if args.overlap_grad_reduce else None  # as get_model()
    multiple = args.make_vocab_size_divisible_by * args.tensor_model_parallel_size
    args.padded_vocab_size = math.ceil(args.vocab_size / multiple) * multiple
    return args


def configured(kind, args):
    return kind(**{field.name: getattr(args, field.name) for field in dataclasses.fields(kind) if hasattr(args, field.name)})


def allow_sequence_parallel_norms():
    """Of Transformer Engine's and apex's norms, what the rest of megatron-core relies on is this mark of their weights."""
    wrapper = torch_norm.WrappedTorchNorm.__new__

    def marked(cls, config, *args, **kwargs):
        norm = wrapper(cls, dataclasses.replace(config, sequence_parallel=False), *args, **kwargs)
        for weight in norm.parameters():
            weight.sequence_parallel = config.sequence_parallel
        return norm

    torch_norm.WrappedTorchNorm.__new__ = marked


def as_transformer_engine(weight, x, dtype, layout, bias=None, grad=False, kept=[]):
    """What general_gemm() of Transformer Engine makes: a result, and a workspace that is kept."""
    if not kept:
        kept.append(torch.empty(32 << 20, dtype=torch.uint8, device=x.device))
    columns = {"TN": weight.shape[0], "NN": weight.shape[-1], "NT": weight.shape[-1]}[layout]
    return [torch.empty(*(x.shape[-1:] if layout == "NT" else x.shape[:-1]), columns, dtype=dtype, device=x.device)]


class MaskedSelect(torch.autograd.Function):
    """Of as many elements as even routes select."""

    @staticmethod
    def forward(ctx, x, mask, rows):
        ctx.save_for_backward(x, mask)
        return x.new_empty(rows)

    @staticmethod
    def backward(ctx, _):
        return torch.zeros_like(ctx.saved_tensors[0]), None, None


def route_evenly(args):
    """All that the host reads of the routes are these sizes."""
    k, experts, ep = args.moe_router_topk, args.num_experts, args.expert_model_parallel_size
    local, etp = experts // ep, args.expert_tensor_parallel_size or args.tensor_model_parallel_size
    tokens = args.seq_length * args.micro_batch_size // (args.tensor_model_parallel_size if args.sequence_parallel else 1)
    each = tokens * k * etp // local  # rows of an expert
    moe_utils.te_general_gemm = as_transformer_engine
    torch.Tensor.masked_select = lambda x, mask: MaskedSelect.apply(x, mask, mask.numel() * k // experts)
    read = torch.Tensor.tolist
    torch.Tensor.tolist = lambda x: [each] * local if x.shape == (local,) and x.device.type == "cpu" else read(x)

    def told(self, point, tokens_per_expert):
        self.input_splits = self.output_splits = [tokens * k // ep] * ep
        self.output_splits_tp = torch.full((etp,), tokens * k, device="cpu")
        if self.num_local_experts > 1:
            self.num_global_tokens_per_local_expert = torch.full((etp * ep, local), tokens * k // experts, device="cpu")
        return torch.full((local,), each, device="cpu")

    token_dispatcher.MoEAlltoAllTokenDispatcher._maybe_dtoh_and_synchronize = told


class SizedAttention(DotProductAttention):
    """As Transformer Engine's, with sizes of its own for keys and values; megatron-core's own takes none."""

    def __init__(self, config, k_channels=None, v_channels=None, **kwargs):
        super().__init__(config, **kwargs)
        if v_channels:
            self.hidden_size_per_partition = v_channels * self.num_attention_heads_per_partition


class WholeLinear(torch.nn.Linear):
    """As Transformer Engine's, whose weight is whole on every rank."""

    def __init__(self, size, out, config, init_method, **_):
        super().__init__(size, out, bias=False)
        self.weight.sequence_parallel = config.sequence_parallel

    def forward(self, x):
        return super().forward(x), None


multi_latent_attention.Linear, multi_latent_attention.HAVE_TE = WholeLinear, False
mcore_fsdp_adapter.TELinear = WholeLinear


def make_gpt(args, config, ends, vp_stage):
    if args.moe_layer_freq != 1:
        spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization=args.normalization, vp_stage=vp_stage)
    else:
        spec = get_gpt_layer_local_spec(num_experts=args.num_experts, qk_layernorm=args.qk_layernorm, normalization=args.normalization,
                                        multi_latent_attention=args.multi_latent_attention)
    for layer in getattr(spec, "layer_specs", [spec]) if args.multi_latent_attention else []:
        parts = layer.submodules.self_attention.submodules
        parts.core_attention, parts.linear_q_down_proj, parts.linear_kv_down_proj = SizedAttention, WholeLinear, WholeLinear
    return GPTModel(config, spec, args.padded_vocab_size, args.max_position_embeddings, parallel_output=True,
                    position_embedding_type=args.position_embedding_type, vp_stage=vp_stage, **ends)


def make_bert(args, config, ends, vp_stage):
    return BertModel(config, 2 if args.bert_binary_head else 0, bert_layer_local_spec, args.padded_vocab_size, args.max_position_embeddings,
                     add_binary_head=args.bert_binary_head, parallel_output=True, vp_stage=vp_stage, **ends)


def make_t5(args, config, ends, vp_stage):
    """The norm after a block is Transformer Engine's; this has the same tensors."""
    blocks = [TransformerBlockSubmodules([layer] * args.num_layers, layer_norm=torch_norm.WrappedTorchNorm)
              for layer in (t5_spec.encoder_model_with_local_spec(), t5_spec.decoder_model_with_local_spec())]
    return T5Model(config, copy.deepcopy(config), *blocks, args.padded_vocab_size, args.max_position_embeddings, parallel_output=True,
                   position_embedding_type=args.position_embedding_type, **ends)


def make_stage(args, config, vp_stage):
    """One of the model's stages that this rank has, as model_provider() makes it."""
    ends = {"pre_process": mpu.is_pipeline_first_stage(ignore_virtual=False, vp_stage=vp_stage),
            "post_process": mpu.is_pipeline_last_stage(ignore_virtual=False, vp_stage=vp_stage),
            "share_embeddings_and_output_weights": not args.untie_embeddings_and_output_weights}
    return SCRIPTS[args.script][0](args, config, ends, vp_stage)


def make_model(args):
    """As get_model() of megatron/training/training.py."""
    config = configured(MLATransformerConfig if args.multi_latent_attention else TransformerConfig, args)
    size = args.virtual_pipeline_model_parallel_size
    model = [make_stage(args, config, stage) for stage in (range(size) if size else [None])]
    for stage in model:
        for weight in stage.parameters():
            tensor_parallel.set_defaults_if_not_set_tensor_model_parallel_attributes(weight)
        stage.cuda(torch.cuda.current_device())
    if args.bf16 or args.fp16:
        model = [Float16Module(config, stage) for stage in model]
    wrapper = mcore_fsdp_adapter.FullyShardedDataParallel if args.use_megatron_fsdp else DistributedDataParallel
    with torch.cuda.stream(torch.cuda.Stream()):
        return [wrapper(config, configured(DistributedDataParallelConfig, args), stage, disable_bucketing=at > 0)
                for at, stage in enumerate(model)]


def batches(args):
    """What a data loader gives, on the host."""
    size = args.micro_batch_size, args.seq_length
    if args.script == "pretrain_gpt.py":
        mask = torch.ones(args.micro_batch_size, 1, args.seq_length, args.seq_length).tril() < 0.5
        batch = {"tokens": torch.zeros(size, dtype=torch.int64), "labels": torch.zeros(size, dtype=torch.int64), "loss_mask": torch.ones(size),
                 "attention_mask": mask, "position_ids": torch.arange(args.seq_length).repeat(args.micro_batch_size, 1)}
    elif args.script == "pretrain_bert.py":
        batch = {key: torch.ones(size if key != "is_random" else size[:1], dtype=torch.int64)
                 for key in ("text", "types", "labels", "is_random", "loss_mask", "padding_mask")}
    else:
        batch = {key: torch.ones(size if "enc" in key else (size[0], args.decoder_seq_length), dtype=torch.int64)
                 for key in ("text_enc", "text_dec", "labels", "loss_mask", "enc_mask", "dec_mask")}
    while True:
        yield batch


def get_batch(loader, vp_stage):
    """As that of pretrain_gpt.py: tensor rank 0 has all tensors of the batch, and broadcasts those that the stage needs."""
    first, last = (which(ignore_virtual=False, vp_stage=vp_stage) for which in (mpu.is_pipeline_first_stage, mpu.is_pipeline_last_stage))
    if not first and not last:
        return {}
    if mpu.get_tensor_model_parallel_rank() == 0:
        batch = {name: part.cuda(non_blocking=True) for name, part in next(loader).items()}
    else:
        batch = {name: torch.empty(part.shape, dtype=part.dtype, device="cuda") for name, part in next(loader).items()}
    for name in () if first and last else ("labels", "loss_mask") if first else ("tokens", "position_ids"):
        del batch[name]
    for part in batch.values():
        dist.broadcast(part, mpu.get_tensor_model_parallel_src_rank(), mpu.get_tensor_model_parallel_group())
    return batch


def broadcast_batch(loader):
    """All numbers are in one tensor.  Ranks are told their sizes first; on a pretend GPU there is nothing to read, so the host knows them."""
    batch = next(loader)
    sizes = {key: list(numbers.shape) for key, numbers in batch.items()}, {key: numbers.numel() for key, numbers in batch.items()}
    data._build_key_size_numel_dictionaries = lambda *_: (*sizes, sum(sizes[1].values()))
    return data.broadcast_data(list(batch), batch, torch.int64)


def loss_func(loss_mask, output_tensor):
    losses = output_tensor.view(-1).float()
    loss_mask = loss_mask.view(-1).float()
    loss = torch.sum(losses * loss_mask)
    num_tokens = loss_mask.sum().clone().detach().to(torch.int)
    report = {"lm loss": torch.cat([loss.clone().detach().view(1), num_tokens.view(1)])}
    for rejected, what in ((torch.isnan, "NaN"), (torch.isinf, "Inf")):
        get_rerun_state_machine().validate_result(loss, rejected, f"found {what} in local forward loss calculation")
    return loss, num_tokens, report


def step_gpt(loader, model):
    batch = get_batch(loader, get_attr_wrapped_model(model, "vp_stage"))
    tokens, labels, loss_mask, attention_mask, position_ids = map(batch.get, ("tokens", "labels", "loss_mask", "attention_mask", "position_ids"))
    del batch
    output_tensor = model(tokens, position_ids, attention_mask, labels=labels, loss_mask=loss_mask)
    return output_tensor, functools.partial(loss_func, loss_mask)


def bert_loss_func(loss_mask, sentence_order, output_tensor):
    lm_loss_, sop_logits = output_tensor
    lm_loss_ = lm_loss_.float()
    loss_mask = loss_mask.float()
    loss = lm_loss = torch.sum(lm_loss_.view(-1) * loss_mask.reshape(-1)) / loss_mask.sum()
    losses = {"lm loss": lm_loss}
    if sop_logits is not None:
        sop_loss = losses["sop loss"] = F.cross_entropy(sop_logits.view(-1, 2).float(), sentence_order.view(-1), ignore_index=-1)
        loss = lm_loss + sop_loss
    averaged_losses = torch.cat([each.clone().detach().view(1) for each in losses.values()])
    dist.all_reduce(averaged_losses, group=mpu.get_data_parallel_group())
    return loss, dict(zip(losses, averaged_losses / mpu.get_data_parallel_group().size()))


def step_bert(loader, model):
    batch = broadcast_batch(loader)
    tokens, types, sentence_order = batch["text"].long(), batch["types"].long(), batch["is_random"].long()
    loss_mask, lm_labels, padding_mask = batch["loss_mask"].float(), batch["labels"].long(), batch["padding_mask"].long()
    del batch
    stage = get_attr_wrapped_model(model, "add_binary_head", return_model_obj=True)
    output_tensor = model(tokens, padding_mask, tokentype_ids=types if stage.add_binary_head else None, lm_labels=lm_labels)
    return output_tensor, functools.partial(bert_loss_func, loss_mask, sentence_order)


def step_t5(loader, model):
    batch = broadcast_batch(loader)
    tokens_enc, tokens_dec, labels = batch["text_enc"].long(), batch["text_dec"].long(), batch["labels"].long()
    loss_mask = batch["loss_mask"].float()
    masks = T5MaskedWordPieceDataset.config_attention_mask(tokens_enc, tokens_dec, batch["enc_mask"] < 0.5, batch["dec_mask"] < 0.5, True)
    del batch
    output_tensor = model(tokens_enc, tokens_dec, *masks, lm_labels=labels)
    return output_tensor, functools.partial(loss_func, loss_mask)


SCRIPTS = {"pretrain_gpt.py": (make_gpt, step_gpt), "pretrain_bert.py": (make_bert, step_bert), "pretrain_t5.py": (make_t5, step_t5)}


def reduce_losses(reported):
    """Each is a sum with a count of tokens, or a mean."""
    if len(reported[0]) == 1:
        return torch.cat(reported).mean()
    total = torch.vstack(reported).sum(dim=0)
    dist.all_reduce(total, group=mpu.get_data_parallel_group(with_context_parallel=True))
    return total[0] / total[1]


def train_step(args, forward_backward_func, model, optimizer, loader):
    machine = get_rerun_state_machine()
    while machine.should_run_forward_backward(None):
        for stage in model:
            stage.zero_grad_buffer()
        optimizer.zero_grad()
        losses_reduced = forward_backward_func(
            forward_step_func=SCRIPTS[args.script][1], data_iterator=loader, model=model, num_microbatches=get_num_microbatches(),
            seq_length=args.seq_length, micro_batch_size=args.micro_batch_size, decoder_seq_length=args.decoder_seq_length, forward_only=False)
    machine.should_checkpoint_and_exit()
    optimizer.step()
    if not mpu.is_pipeline_last_stage():
        return {}
    return {key: reduce_losses([report[key].view(-1) for report in losses_reduced]) for key in losses_reduced[0]}


def train(args, model, optimizer):
    config = model[0].config
    config.grad_scale_func = optimizer.scale_loss
    config.finalize_model_grads_func = finalize_model_grads
    if args.overlap_grad_reduce:
        config.no_sync_func, config.grad_sync_func = ([getattr(stage, name) for stage in model] for name in ("no_sync", "start_grad_sync"))
        if len(model) == 1:
            config.no_sync_func, config.grad_sync_func = config.no_sync_func[0], config.grad_sync_func[0]
    hooked = args.use_distributed_optimizer and args.overlap_param_gather
    if hooked:
        for stage in model:
            stage.disable_forward_pre_hook(param_sync=False)
    forward_backward_func, loader = get_forward_backward_func(), batches(args)
    loaders = [loader] * len(model) if len(model) > 1 else loader
    for iteration in range(ITERATIONS):
        loss_dict = train_step(args, forward_backward_func, model, optimizer, loaders)  # noqa: F841  it lives until the next one
        if hooked and not iteration:
            for stage in model:
                stage.enable_forward_pre_hook()


def main():
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl")
    args = parse()
    torch.use_deterministic_algorithms(args.deterministic_mode)
    mpu.initialize_model_parallel(args.tensor_model_parallel_size, args.pipeline_model_parallel_size, args.virtual_pipeline_model_parallel_size,
                                  expert_model_parallel_size=args.expert_model_parallel_size,
                                  expert_tensor_parallel_size=args.expert_tensor_parallel_size)
    tensor_parallel.model_parallel_cuda_manual_seed(1234)
    if args.sequence_parallel:
        allow_sequence_parallel_norms()
    model = make_model(args)
    if args.num_experts:
        route_evenly(args)
    optimizer = get_megatron_optimizer(configured(OptimizerConfig, args), model)
    if args.use_megatron_fsdp and args.load:  # whether there is a checkpoint or not
        for each in getattr(optimizer, "chained_optimizers", [optimizer]):
            each._init_optimizer_states_with_dummy_values()
    for stage in model:
        stage.train()
    train(args, model, optimizer)


if __name__ == "__main__":
    main()
