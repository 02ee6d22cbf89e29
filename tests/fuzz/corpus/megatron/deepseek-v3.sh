MODEL=(
  --multi-latent-attention --num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432
  --num-attention-heads 128 --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128
  --qk-pos-emb-head-dim 64 --v-head-dim 128 --qk-layernorm
  --num-experts 256 --moe-router-topk 8 --moe-ffn-hidden-size 2048
  --moe-shared-expert-intermediate-size 2048 --moe-layer-freq "([0]*3+[1]*58)"
  --moe-router-enable-expert-bias
  --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights
  --position-embedding-type rope --max-position-embeddings 163840 --vocab-size 129280
  --seq-length 4096
)
