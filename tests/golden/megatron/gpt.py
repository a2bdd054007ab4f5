#!/usr/bin/env python3
"""Compares estimates of Megatron-LM's arguments with ranks of jobs that run megatron-core's own code (loop.py).

    tests/golden/runs.py says how to call it.

A row of runs.txt is the number of ranks, the rank, arguments beyond BASE, and the peak of requested bytes of three iterations.
Peaks agree if they differ by less than SCALARS, what the loop's report of the loss and its counts of tokens take: an estimate
has none of them.  What torch.compile fuses on a card, and Transformer Engine, no CPU build of PyTorch runs: tools/megatron_table.py
compares these with what a card recorded.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

sys.path.insert(0, str(HERE.parent))
import runs  # noqa: E402  what such scripts have in common

SCALARS = 256
BASE = """--hidden-size 512 --num-attention-heads 8 --max-position-embeddings 256 --vocab-size 2003 --transformer-impl local
          --no-persist-layer-norm --no-masked-softmax-fusion --no-gradient-accumulation-fusion --no-bias-gelu-fusion
          --no-bias-dropout-fusion""".split()
SIZES = "--num-layers 3 --seq-length 256 --micro-batch-size 4"
STAGES = "--num-layers 8 --seq-length 256 --micro-batch-size 4"
MODELS = ["", "--attention-softmax-in-fp32", "--swiglu --no-bias-swiglu-fusion", "--position-embedding-type rope --no-rope-fusion",
          "--position-embedding-type none", "--hidden-dropout 0 --attention-dropout 0", "--normalization RMSNorm --disable-bias-linear",
          "--group-query-attention --num-query-groups 4", "--kv-channels 128", "--qk-layernorm", "--deterministic-mode",
          "--untie-embeddings-and-output-weights --ffn-hidden-size 1536", "--recompute-granularity selective",
          "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
          "--recompute-granularity full --recompute-method block --recompute-num-layers 2"]
PARTS = ["", "--sequence-parallel", "--sequence-parallel --position-embedding-type rope --no-rope-fusion --recompute-granularity selective",
         "--untie-embeddings-and-output-weights --use-distributed-optimizer --overlap-grad-reduce --deterministic-mode",
         "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
         "--group-query-attention --num-query-groups 4 --qk-layernorm --sequence-parallel"]
EXPERTS = "--num-experts 4 --disable-bias-linear --sequence-parallel"
SINKHORN = f"{EXPERTS} --moe-router-load-balancing-type sinkhorn --moe-router-topk 1"
MIXTURES = [(1, 0, SINKHORN), (1, 0, f"{EXPERTS} --moe-aux-loss-coeff 0.01"), (2, 1, f"{SINKHORN} --expert-model-parallel-size 2"),
            (1, 0, f"{EXPERTS} --swiglu --no-bias-swiglu-fusion --moe-router-dtype fp32"),
            (4, 3, f"{SINKHORN} --expert-model-parallel-size 2 --tensor-model-parallel-size 2 --use-distributed-optimizer"),
            (4, 0, f"{EXPERTS} --expert-model-parallel-size 4 --tensor-model-parallel-size 2 --expert-tensor-parallel-size 1"),
            (8, 5, f"{EXPERTS} --expert-model-parallel-size 2 --tensor-model-parallel-size 2 --use-distributed-optimizer --deterministic-mode"),
            (4, 2, f"{EXPERTS} --expert-model-parallel-size 2 --tensor-model-parallel-size 2 --moe-token-dispatcher-type alltoall"),
            (4, 1, f"{EXPERTS} --expert-model-parallel-size 4 --moe-token-dispatcher-type alltoall --moe-ffn-hidden-size 1024 --swiglu --no-bias-swiglu-fusion"),
            (2, 0, f"{EXPERTS} --expert-model-parallel-size 2 --moe-router-dtype fp32 --moe-aux-loss-coeff 0.01")]
BERT = "pretrain_bert.py --spec local --num-layers 4 --seq-length 256 --micro-batch-size 4"
T5 = "pretrain_t5.py --encoder-num-layers 3 --encoder-seq-length 256 --decoder-seq-length 64 --micro-batch-size 4"
OTHERS = [(1, 0, f"{BERT} --bf16"), (1, 0, f"{BERT} --bf16 --bert-no-binary-head --attention-softmax-in-fp32"),
          (1, 0, f"{BERT} --untie-embeddings-and-output-weights --recompute-granularity selective"),
          (1, 0, f"{BERT} --fp16 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1"),
          (4, 3, f"{BERT} --bf16 --tensor-model-parallel-size 2 --use-distributed-optimizer"),
          (4, 1, f"{BERT} --bf16 --tensor-model-parallel-size 4 --sequence-parallel"),
          *((2, rank, f"{BERT} --bf16 --pipeline-model-parallel-size 2 --global-batch-size 32") for rank in (0, 1)),
          *((4, rank, f"{BERT} --bf16 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1 --global-batch-size 32 "
                      "--use-distributed-optimizer") for rank in (0, 2, 3)),
          (4, 1, f"{BERT} --bf16 --pipeline-model-parallel-size 4 --global-batch-size 16 --recompute-granularity full --recompute-method block "
                 "--recompute-num-layers 1"),
          (1, 0, f"{T5} --bf16"), (1, 0, f"{T5} --bf16 --attention-softmax-in-fp32 --untie-embeddings-and-output-weights"), (1, 0, T5),
          (1, 0, f"{T5} --bf16 --recompute-granularity selective"),
          (1, 0, f"{T5} --fp16 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1"),
          (1, 0, f"{T5} --bf16 --global-batch-size 16 --recompute-granularity full --recompute-method block --recompute-num-layers 1"),
          (4, 3, f"{T5} --bf16 --tensor-model-parallel-size 2 --use-distributed-optimizer --deterministic-mode"),
          (4, 1, f"{T5} --bf16 --tensor-model-parallel-size 4 --sequence-parallel --kv-channels 32")]
LATENT = f"{SIZES} --multi-latent-attention --kv-lora-rank 64 --qk-head-dim 32 --qk-pos-emb-head-dim 16 --v-head-dim 24"
LATENTS = [(1, 0, f"{LATENT} --bf16 --q-lora-rank 96"), (1, 0, LATENT), (1, 0, f"{LATENT} --fp16 --q-lora-rank 96 --recompute-granularity selective"),
           (1, 0, f"{LATENT} --bf16 --q-lora-rank 96 --qk-layernorm --rope-type rope --position-embedding-type rope --no-rope-fusion"),
           (1, 0, f"{LATENT} --bf16 --q-lora-rank 96 --qk-layernorm --recompute-granularity full --recompute-method uniform --recompute-num-layers 1"),
           (2, 1, f"{LATENT} --bf16 --q-lora-rank 96 --tensor-model-parallel-size 2"),
           (8, 5, f"{LATENT} --bf16 --q-lora-rank 96 --qk-layernorm --tensor-model-parallel-size 4 --sequence-parallel --use-distributed-optimizer"),
           (4, 3, f"{LATENT} --bf16 --qk-layernorm --tensor-model-parallel-size 2 {EXPERTS} --expert-model-parallel-size 2 --normalization RMSNorm"),
           *((4, rank, f"{LATENT.replace('layers 3', 'layers 4')} --bf16 --q-lora-rank 96 --pipeline-model-parallel-size 2 --tensor-model-parallel-size 2 "
                      "--sequence-parallel --global-batch-size 16") for rank in (1, 2))]
DEEPSEEK = "--moe-shared-expert-intermediate-size 512 --moe-router-score-function sigmoid --moe-router-enable-expert-bias --moe-router-topk-scaling-factor 2.5"
SHARED = [(1, 0, f"{SIZES} --bf16 {EXPERTS} --moe-shared-expert-intermediate-size 1024"),
          (1, 0, f"{SIZES} --bf16 {EXPERTS} --moe-shared-expert-intermediate-size 512 --moe-shared-expert-gate --swiglu --no-bias-swiglu-fusion"),
          (1, 0, f"{SIZES} --bf16 {EXPERTS} --moe-layer-freq ([0]*1+[1]*2)"),
          (1, 0, f"{SIZES} --bf16 {EXPERTS} {DEEPSEEK} --moe-router-num-groups 2 --moe-router-group-topk 1 --moe-router-dtype fp32 --moe-aux-loss-coeff 0.01"),
          (4, 2, f"{SIZES} --bf16 {EXPERTS} {DEEPSEEK} --expert-model-parallel-size 2 --tensor-model-parallel-size 2 --moe-token-dispatcher-type alltoall"),
          (4, 1, f"{LATENT} --bf16 --q-lora-rank 96 --qk-layernorm {EXPERTS} {DEEPSEEK} --moe-layer-freq ([0]+[1]*2) --expert-model-parallel-size 4 "
                 "--moe-token-dispatcher-type alltoall --moe-ffn-hidden-size 512 --swiglu --no-bias-swiglu-fusion --moe-router-dtype fp32"),
          *((4, rank, f"{STAGES} --bf16 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2 {EXPERTS} "
                      "--moe-layer-freq 3 --moe-shared-expert-intermediate-size 512 --expert-model-parallel-size 2 --global-batch-size 32") for rank in (0, 3)),
          (8, 6, f"{STAGES} --bf16 --pipeline-model-parallel-size 2 --tensor-model-parallel-size 2 {EXPERTS} {DEEPSEEK} "
                 "--moe-layer-freq [1,0,0,1]*2 --expert-model-parallel-size 2 --global-batch-size 16")]
PARTLY = "--recompute-granularity selective --recompute-modules"
MODULES = [(1, 0, f"{SIZES} --bf16 --disable-bias-linear {PARTLY} mlp"),
           (8, 5, f"{SIZES} --bf16 --disable-bias-linear {PARTLY} core_attn mlp --tensor-model-parallel-size 4 --sequence-parallel"),
           (1, 0, f"{SIZES} --bf16 {EXPERTS} {PARTLY} moe"),
           (4, 2, f"{SIZES} --bf16 {EXPERTS} {PARTLY} moe --expert-model-parallel-size 2 --tensor-model-parallel-size 2 --moe-token-dispatcher-type alltoall"),
           (1, 0, f"{SIZES} --bf16 {EXPERTS} {PARTLY} shared_experts core_attn --moe-shared-expert-intermediate-size 512"),
           (1, 0, f"{SIZES} --bf16 {EXPERTS} {PARTLY} moe mlp --moe-layer-freq ([0]*1+[1]*2)")]

FSDP = f"{SIZES} --bf16 --use-megatron-fsdp --use-distributed-optimizer"
WIDE = f"{FSDP} --megatron-fsdp-main-grads-dtype fp32"
SHARDED = [*((4, rank, each) for rank in (0, 3) for each in (FSDP, WIDE)), (4, 2, f"{WIDE} --load checkpoints"),
           (4, 1, FSDP.replace(" --bf16", "")),
           (2, 1, f"{WIDE} --global-batch-size 24"), (3, 1, f"{WIDE} --untie-embeddings-and-output-weights"),
           (8, 5, f"{WIDE} --tensor-model-parallel-size 2 --sequence-parallel --global-batch-size 32"),
           (4, 2, f"{FSDP} --swiglu --no-bias-swiglu-fusion --normalization RMSNorm --disable-bias-linear --ffn-hidden-size 1536"),
           *((4, 3, f"--num-layers 8 --seq-length 64 --micro-batch-size 1{each.removeprefix(SIZES)}") for each in (FSDP, WIDE)),
           (4, 2, f"--num-layers 2 --seq-length 64 --micro-batch-size 1{WIDE.removeprefix(SIZES)} --vocab-size 90000 --overlap-grad-reduce "
                  "--untie-embeddings-and-output-weights"),
           (1, 0, WIDE), *((2, 0, f"{each} {EXPERTS} --expert-model-parallel-size 2") for each in (FSDP, WIDE)), (4, 1, f"{WIDE} {EXPERTS} --expert-model-parallel-size 2"),
           (8, 6, f"{FSDP} {EXPERTS} --expert-model-parallel-size 2 --tensor-model-parallel-size 2 --moe-token-dispatcher-type alltoall")]


def cases():
    rows = [(1, 0, f"{SIZES} --bf16 {more}".strip()) for more in MODELS]
    rows += [(1, 0, f"{SIZES} {more}") for more in ("--fp16", "--fp16 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
                                                  "--deterministic-mode")]
    rows += [(1, 0, "--num-layers 2 --seq-length 64 --micro-batch-size 1 --bf16")]
    rows += [(2, rank, f"{SIZES} {more}") for rank in (0, 1) for more in ("--bf16 --use-distributed-optimizer", "--use-distributed-optimizer")]
    rows += [(8, 5, f"{SIZES} --bf16 --tensor-model-parallel-size 4 {more}".strip()) for more in PARTS]
    for world, parts in ((4, "--pipeline-model-parallel-size 4"), (4, "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 1")):
        rows += [(world, rank, f"{STAGES} --bf16 {parts} --global-batch-size 32") for rank in range(world)]
    split = "--pipeline-model-parallel-size 2"
    rows += [(4, 0, f"{STAGES} --bf16 {split} --num-layers-per-virtual-pipeline-stage 1 --global-batch-size 32 --use-distributed-optimizer "
                    "--overlap-grad-reduce --overlap-param-gather"),
             (4, 3, f"{STAGES} --bf16 {split} --num-layers-per-virtual-pipeline-stage 2 --global-batch-size 48 --use-distributed-optimizer "
                    "--untie-embeddings-and-output-weights"),
             (4, 3, f"{STAGES} --fp16 --pipeline-model-parallel-size 4 --global-batch-size 8"),
             (4, 2, f"{STAGES} --bf16 --pipeline-model-parallel-size 4 --global-batch-size 8 --attention-softmax-in-fp32"),
             (4, 1, f"{STAGES} --bf16 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 1 --global-batch-size 64 "
                    "--position-embedding-type rope --no-rope-fusion --recompute-granularity full --recompute-method block --recompute-num-layers 1")]
    rows += [(8, rank, f"{STAGES} --bf16 {split} --tensor-model-parallel-size 2 --sequence-parallel --global-batch-size 32 --use-distributed-optimizer {more}".strip())
             for rank in (0, 5) for more in ("", "--recompute-granularity full --recompute-method block --recompute-num-layers 2")]
    groups = f"{STAGES} --bf16 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 1 --global-batch-size 40"
    rows += [(4, rank, f"{groups} --microbatch-group-size-per-virtual-pipeline-stage 5{more}") for rank in (0, 2, 3)
             for more in ("", " --overlap-p2p-communication-warmup-flush")]
    rows += [(world, rank, f"{SIZES} --bf16 {more}") for world, rank, more in MIXTURES]
    rows += OTHERS + LATENTS + SHARED + MODULES + SHARDED
    rows += [(8, rank, f"{STAGES} --bf16 {split} --tensor-model-parallel-size 2 {SINKHORN} --expert-model-parallel-size 2 --global-batch-size 32")
             for rank in (0, 7)]
    return rows


def size(words, name):
    return int(words[words.index(name) + 1]) if name in words else 1


def predicted(program, folder, world, rank, text):
    words = [*BASE, *text.split()]
    path = folder / "arguments.txt"
    path.write_text(" ".join(words) + "\n")
    data = world // size(words, "--tensor-model-parallel-size") // size(words, "--pipeline-model-parallel-size")
    return runs.estimate(program, path, *(["--dp", data] if data > 1 else []), "--rank", rank)


def measured(program, folder, world, rank, text):
    return runs.run(program, HERE / "loop.py", *BASE, *text.split(), options=("--world", world, "--rank", rank))


def agrees(case, ours, run):
    return 0 <= run[0] - ours[0] < SCALARS


if __name__ == "__main__":
    sys.exit(runs.Runs(HERE / "runs.txt", {}, cases(), predicted, measured, "ranks, rank, arguments, peak of requested bytes",
                       packages=("megatron-core", "einops"), agrees=agrees).main(__doc__))
