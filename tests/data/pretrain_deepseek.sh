#!/bin/bash
# DeepSeek-V2-Lite in the words of Megatron-LM, on 8 cards.
torchrun --nproc_per_node 8 pretrain_gpt.py \
    --num-layers 27 --hidden-size 2048 --ffn-hidden-size 10944 --num-attention-heads 16 \
    --multi-latent-attention --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 \
    --position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear --qk-layernorm \
    --num-experts 64 --moe-router-topk 6 --moe-ffn-hidden-size 1408 --moe-layer-freq "([0]*1+[1]*26)" \
    --moe-shared-expert-intermediate-size 2816 --moe-aux-loss-coeff 0.001 --moe-grouped-gemm \
    --moe-token-dispatcher-type alltoall --expert-model-parallel-size 8 \
    --seq-length 4096 --max-position-embeddings 4096 --vocab-size 102400 \
    --micro-batch-size 1 --global-batch-size 64 --bf16 --use-distributed-optimizer \
    --attention-dropout 0 --hidden-dropout 0 --untie-embeddings-and-output-weights
