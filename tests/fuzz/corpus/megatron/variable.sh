LAYERS=24
python pretrain_gpt.py --num-layers $LAYERS --hidden-size 1024 --num-attention-heads 16
