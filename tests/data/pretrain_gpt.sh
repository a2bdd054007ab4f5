#!/bin/bash
# A launch script of Megatron-LM's examples, shortened.
export CUDA_DEVICE_MAX_CONNECTIONS=1
NUM_LAYERS=24

GPT_MODEL_ARGS=(
    --num-layers $NUM_LAYERS
    --hidden-size 2048
    --num-attention-heads 16
    --seq-length 2048
    --max-position-embeddings 2048
    --attention-backend auto
)

TRAINING_ARGS=(
    --micro-batch-size 4
    --global-batch-size 512
    --weight-decay 0.1
    --adam-beta1 0.9
    --bf16
    --clip-grad 1.0
    --use-distributed-optimizer # shares out master weights
)

MODEL_PARALLEL_ARGS=(
    --tensor-model-parallel-size 2
    --pipeline-model-parallel-size 2
    --sequence-parallel
)

torchrun --nproc_per_node 8 pretrain_gpt.py ${GPT_MODEL_ARGS[@]} ${TRAINING_ARGS[@]} ${MODEL_PARALLEL_ARGS[@]}
