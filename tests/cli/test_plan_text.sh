#!/bin/sh
# The text of a plan: launch line, rates and memory, alternatives that differ, a command that
# reproduces it.
. "$(dirname "$0")/lib.sh"
cd "$scratch" || exit 1
check="$SOURCE/tests/cli/plan_text.py"

same() {
    if /usr/bin/python3 "$check" "$@" >said 2>&1; then pass; else fail "$*: $(tail -n 3 said)"; fi
}

# ---- Launch line and performance --------------------------------------------------------------------
expect 0 plan -w llama-3.1-70b -c "8x dgx-h100" --global-batch 512 --no-simulate -q
expect_output "llama-3.1-70b on 8x dgx-h100 (64 h100-sxm, nvlink4, 8 x 400 Gbit/s InfiniBand)" \
    "Batch       512 sequences x 8,192 tokens, micro-batch " ", accumulation " \
    "bf16; 16-bit gradients, fp32 optimizer states; " "Provenance  calibrated; mean error "
same text out
cp out llama.txt
expect 0 plan -w llama-3.1-70b -c "8x dgx-h100" --global-batch 512 --no-simulate -q -o llama.json
expect 0 estimate llama.json --json
cp out estimate.json
expect 0 whatif -w llama-3.1-70b -c "8x dgx-h100" --global-batch 512 --no-simulate -q --vary tp=4 --json
cp out whatif.json
expect 0 score llama.json --json
cp out score.json
expect 0 systems -w llama-3.1-70b -c "8x dgx-h100" --global-batch 512 --json -q
cp out systems.json
same rates llama.txt llama.json estimate.json whatif.json score.json systems.json
expect 0 report llama.json -o llama.html
report_holds llama.html 'abs(d["prediction"]["mfu"] / json.load(open("llama.json"))["prediction"]["mfu"] - 1) < 0.01 and d["plan"]["device_noun"] == "GPU" and d["plan"]["usable_memory_bytes"] == 84932978278'
page_says llama.html "MFU|" "TFLOP/s per GPU|" "tokens/s per GPU|" " of 79.1 GiB"
expect 0 plan -w resnet50 -c "2x dgx-1-v100" --no-simulate -q
expect_output "Layout      TP 1  PP 1  VPP 1  DP 16  CP 1  EP 1" " samples/s/GPU" " TFLOP/s/GPU" "of 15.8 GiB"
same text out
expect 0 plan -w llama-2-7b -c tpu-v4-64 --no-simulate -q
expect_output " tokens/s/TPU"
expect 0 plan -w lenet -c "2x p100-server" --global-batch 96 --fix replicas=6+2,pp=2 --no-simulate -q
expect_output "PP 2  VPP 1  DP 6+2" "stage  layers"
same text out

# ---- A simulated answer takes at most a second of CPU time -----------------------------------------------
if [ -z "${TY_SANITIZE:-}" ]; then
    if /usr/bin/python3 - "$TRAINYARD" >said 2>&1 <<'END'; then pass; else fail "$(tail -n 1 said)"; fi
import resource, subprocess, sys
question = ["plan", "-w", "llama-3.1-70b", "-c", "8x dgx-h100", "--global-batch", "512", "-q"]
out = subprocess.run([sys.argv[1], *question], capture_output=True, text=True, check=True).stdout
used = resource.getrusage(resource.RUSAGE_CHILDREN)
seconds = used.ru_utime + used.ru_stime
assert seconds <= 1, f"{seconds:.2f} s of CPU time"
assert "simulated" in out, out
END
fi

# ---- The printed command reproduces the plan -----------------------------------------------------------
sed -n '/^Reproduce/,$p' llama.txt | sed 's/^Reproduce *//' >again.sh
sed -i "s|^trainyard|'$TRAINYARD'|; s|\$| |" again.sh
sed -i 's/\\ $/\\/' again.sh
if sh again.sh --no-simulate >again.txt 2>err; then pass; else fail "the printed command fails: $(cat again.sh)"; fi
for line in Layout Batch Precision Framework Memory; do
    if [ "$(grep "^$line " again.txt)" = "$(grep "^$line " llama.txt)" ]; then pass; else fail "the printed command gives another $line"; fi
done

# ---- Bold on a terminal, unless colors are off -----------------------------------------------------------
same terminal "$TRAINYARD" llama.json

# ---- Memory that exists ----------------------------------------------------------------------------------
fixed="tp=4,pp=8,dp=2,sp=1,zero=1,micro_batch=1,recompute=none,schedule=1f1b"
expect 0 plan -w llama-3.1-70b -c "8x dgx-h100" --global-batch 512 --stack megatron --fix "$fixed" --no-simulate -q
expect_output " of 79.1 GiB on stage 0, a tight fit; activations " "bf16; fp32 main gradients and optimizer states; "
expect 0 plan -w llama-3.1-70b -c "8x dgx-h100" --global-batch 512 --stack megatron --fix "$fixed" --memory-reserve 0% --no-simulate -q
expect_output " of 79.1 GiB on stage 0; activations " "--memory-reserve 0%"
expect 4 plan -w llama-3.1-70b -c "8x dgx-h100" --global-batch 512 --stack megatron --fix "$fixed" --memory-reserve 8 --no-simulate -q
expect_error_line "does not fit"
for reserve in -1% 100% nan half; do
    expect 2 plan -w lenet -c "1x p100-server" --memory-reserve=$reserve
    expect_error_line "--memory-reserve: found '$reserve'"
done
expect 0 memory -w llama-3.1-70b -c "8x dgx-h100" --global-batch 512 --stack megatron --fix "$fixed" --memory-reserve 0%
expect 4 memory -w llama-3.1-70b -c "8x dgx-h100" --global-batch 512 --stack megatron --fix "$fixed" --memory-reserve 8%
# Published runs: a pinned layout is accepted if it fits without the reserve, with a note.
model="transformer blocks=24 features=2048 heads=16 hidden_features=8192 sequence=2048"
ran() {
    expect 0 plan --no-simulate --global-batch "$@"
    if grep -q "^the pinned layout needs .* GiB: it fits, but not within the memory reserve of 4 %" "$scratch/err"; then pass; else fail "no note: $*"; fi
    expect_output ", a tight fit; "
    expect 4 plan --no-simulate --memory-reserve 4% --global-batch "$@"
}
ran 512 -w "$model vocabulary=51200 positions=2048" -c "host:2 gpu:4 @v100-sxm2-32gb nvlink2=150GB/s opa100" --stack megatron-2021 \
    --precision fp16 --fix tp=1,cp=1,ep=1,pp=4,dp=2,sp=0,zero=0,recompute=none,schedule=1f1b,micro_batch=2,compression=none
ran 512 -w "$model vocabulary=51200 positions=2048" -c "host:2 gpu:4 @v100-sxm2-16gb nvlink2=150GB/s opa100" --stack megatron-2021 \
    --precision fp16 --fix tp=1,cp=1,ep=1,pp=2,dp=4,sp=0,zero=0,recompute=full,schedule=1f1b,micro_batch=2,compression=none
ran 320 -w "$model vocabulary=50368 positions=2048" -c "host:4 gpu:8 @a100-sxm4-40gb nvlink3=300GB/s hdr200=25GB/s" --stack pytorch-fsdp \
    --precision bf16 --fix tp=1,cp=1,ep=1,pp=1,dp=32,sp=0,zero=3,recompute=none,micro_batch=10,compression=none
# A T4 of 16 GB has 14.6 GiB.
expect 0 plan -w bert-large -c "host:1 gpu:1 @t4 pcie3 eth10" --fix micro_batch=4 --global-batch 16 --no-simulate -q
expect_output " of 14.6 GiB"
expect 0 plan -w lenet -c local:2 --no-simulate -q
expect_output "Memory      " "/device"
finish
