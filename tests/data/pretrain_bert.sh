#!/bin/bash
# BERT-large in the words of Megatron-LM.
torchrun --nproc_per_node 8 pretrain_bert.py \
    --num-layers 24 --hidden-size 1024 --num-attention-heads 16 \
    --seq-length 512 --max-position-embeddings 512 --attention-backend unfused \
    --micro-batch-size 4 --global-batch-size 128 --bf16 \
    --pipeline-model-parallel-size 2
