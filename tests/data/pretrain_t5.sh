#!/bin/bash
# T5-base in the words of Megatron-LM.
torchrun --nproc_per_node 8 pretrain_t5.py \
    --encoder-num-layers 12 --decoder-num-layers 12 --hidden-size 768 --num-attention-heads 12 \
    --encoder-seq-length 512 --decoder-seq-length 128 --max-position-embeddings 512 \
    --tokenizer-type BertWordPieceCase --vocab-extra-ids 100 \
    --micro-batch-size 16 --global-batch-size 512 --bf16 --attention-backend auto
