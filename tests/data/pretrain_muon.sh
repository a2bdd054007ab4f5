#!/bin/bash
# GPT with Muon, whose layer-wise distributed optimizer shares out matrices as wholes.
torchrun --nproc_per_node 4 pretrain_gpt.py \
    --num-layers 12 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 --max-position-embeddings 1024 \
    --micro-batch-size 4 --global-batch-size 32 --transformer-impl transformer_engine --use-mcore-models \
    --disable-bias-linear --bf16 --optimizer muon --muon-momentum 0.9 --muon-scale-mode spectral \
    --use-distributed-optimizer --vocab-size 50257
