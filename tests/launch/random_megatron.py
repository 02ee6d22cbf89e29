"""Every plan of `plan --stack megatron` can be exported with `export --to megatron`, by Megatron's own rules, unless the plan has
said that it cannot: random_megatron.py TRAINYARD FOLDER COUNT. Transformers with and without experts, networks that
no argument of Megatron's describes, clusters, stacks, precisions and pins are drawn by the seed in TY_TEST_SEED; a
question that has no answer (code 2: a pin that it cannot have; 4: nothing fits) is not counted."""

import os
import pathlib
import random
import shutil
import subprocess
import sys

TRAINYARD, FOLDER, COUNT = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
CHECKER = pathlib.Path(__file__).with_name("check_megatron.py")
SEED = int(os.environ.get("TY_TEST_SEED", "11"))
DENSE = """gpt2 gpt2-medium gpt2-xl llama-2-7b llama-2-13b llama-3-8b llama-3.1-8b llama-3.1-70b qwen3-8b qwen3-32b
megatron-1.7b megatron-3.6b megatron-7.5b megatron-18.4b gpt3-175b""".split()
EXPERTS = "mixtral-8x7b mixtral-8x22b qwen3-30b-a3b qwen3-235b-a22b deepseek-v3".split()
OTHERS = "resnet50 bert-base t5-base gnmt-8 transfer-resnet50 windows".split()
WINDOWS = """{"model_type": "gemma2", "hidden_size": 2304, "intermediate_size": 9216, "num_attention_heads": 8,
"num_key_value_heads": 4, "num_hidden_layers": 26, "vocab_size": 256000, "sliding_window": 1024}"""
ALTERNATING = """--num-layers 16 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048
--max-position-embeddings 2048 --position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear
--vocab-size 32000 --num-experts 16 --moe-router-topk 2 --moe-ffn-hidden-size 8192 --ffn-hidden-size 8192
--moe-layer-freq 2"""  # experts in every other layer: what repeats are two
CLUSTERS = ["1x dgx-h100", "2x dgx-h100", "4x dgx-h100", "2x dgx-a100", "6x dgx-h100", "16x dgx-h200", "64x dgx-h100",
            "512x dgx-a100", "8x dgx1-v100"]
PINS = {"pp": [1, 2, 3, 4, 8], "tp": [1, 2, 4, 8], "cp": [1, 2, 4], "ep": [1, 2, 4, 8], "sp": [0, 1], "zero": [0, 1],
        "micro_batch": [1, 2, 4], "interleave": [1, 2, 4], "schedule": ["1f1b", "interleaved", "gpipe"],
        "recompute": ["none", "selective", "full", "full:2", "full:3", "full:4", "stage", "operator", "elementwise"],
        "dp": [1, 2, 4, 8]}


def question(draw):
    alternating = FOLDER / "alternating.args"
    alternating.write_text(ALTERNATING)
    (FOLDER / "windows.json").write_text(WINDOWS)
    kinds = draw.choice([DENSE, DENSE, DENSE, *[[*EXPERTS, alternating]] * 3, OTHERS])
    workload, cluster = draw.choice(kinds), draw.choice(CLUSTERS)
    workload = FOLDER / "windows.json" if workload == "windows" else workload
    pins = draw.sample(sorted(PINS), draw.choice([0, 0, 1, 1, 2, 3]))
    words = ["-w", f"{workload} batch={draw.choice([32, 64, 96, 128, 512, 1024])}", "-c", cluster]
    if pins:
        words += ["--fix", ",".join(f"{pin}={draw.choice(PINS[pin])}" for pin in pins)]
    if draw.random() < 0.25:
        words += ["--precision", draw.choice(["bf16", "fp16", "fp32", "fp8" if "h" in cluster else "fp16"])]
    return words + ["--stack", draw.choice(["megatron", "megatron", "megatron", "megatron-2021"])]


def main():
    draw, planned, told_so, failed = random.Random(SEED), 0, 0, 0
    for number in range(COUNT):
        words, plan, out = question(draw), FOLDER / "random.json", FOLDER / "random"
        told = f"seed {SEED}, question {number}: plan " + " ".join(f"'{word}'" if " " in word else word for word in words)
        asked = subprocess.run([TRAINYARD, "plan", *words, "--no-simulate", "-o", plan],
                               capture_output=True, text=True)
        if os.environ.get("TY_TELL"):
            print(told, asked.returncode, asked.stderr.strip()[:300])
        if asked.returncode in (2, 4):
            continue
        shutil.rmtree(out, ignore_errors=True)
        written = subprocess.run([TRAINYARD, "export", plan, "--to", "megatron", "-o", out, "--quiet"],
                                 capture_output=True, text=True)
        if "no launch files for this plan: --to megatron" in asked.stderr:
            told_so += 1
            if asked.returncode != 0 or written.returncode != 1 or "--to megatron: " not in written.stderr:
                print(f"{told}: {asked.stderr}, and export: {written.returncode}, {written.stderr}")
                failed += 1
            continue
        if asked.returncode != 0 or written.returncode != 0:
            print(f"{told}: {asked.stderr}{written.stderr}".strip())
            failed += 1
            continue
        ruled = subprocess.run([sys.executable, CHECKER, out, plan], capture_output=True, text=True)
        if ruled.returncode != 0:
            print(f"{told}: Megatron's rules: {(ruled.stdout + ruled.stderr).strip().splitlines()[-1]}")
            failed += 1
        planned += 1
    print(f"{planned} of {COUNT} questions have a plan, {failed} of them no launch folder; {told_so} said so")
    return failed > 0 or planned < COUNT / 5 or told_so == 0


if __name__ == "__main__":
    sys.exit(main())
