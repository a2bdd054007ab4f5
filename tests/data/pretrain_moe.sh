#!/bin/bash
# Arguments of a mixture of experts, as people give them to Megatron-LM's pretrain_gpt.py.
torchrun --nproc_per_node 8 pretrain_gpt.py \
    --num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 \
    --swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope --vocab-size 32000 \
    --num-experts 16 --moe-router-topk 2 --moe-ffn-hidden-size 1408 --moe-grouped-gemm --moe-token-dispatcher-type alltoall \
    --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-2 --moe-router-dtype fp32 \
    --tensor-model-parallel-size 2 --expert-model-parallel-size 4 --expert-tensor-parallel-size 1 --sequence-parallel \
    --micro-batch-size 2 --global-batch-size 64 --bf16 --use-distributed-optimizer
