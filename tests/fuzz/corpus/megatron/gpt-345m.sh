#!/bin/bash
# A GPT as in Megatron-LM's examples, in every spelling.
export CUDA_DEVICE_MAX_CONNECTIONS=1
NNODES=${SLURM_NNODES:-1}
GPT_ARGS="
    --num-layers 24 \
    --hidden-size=1024 \
    --num-attention-heads 16 \
    --seq-length 1024 --max-position-embeddings '1024' \
    --micro-batch-size 4   # not a size
    --global-batch-size 16
    --lr 1.5e-4 --train-iters $ITERATIONS
    --fp16
"
DATA_ARGS=( --tokenizer-type GPT2BPETokenizer
  --vocab-file "/data/my vocabulary.json" )
torchrun pretrain_gpt.py $GPT_ARGS "${DATA_ARGS[@]}" --data-path $DATA
