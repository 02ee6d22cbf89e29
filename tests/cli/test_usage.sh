#!/bin/sh
# Usage errors, help, exit codes.
. "$(dirname "$0")/lib.sh"

expect 2
expect 2 plann
expect_error_line "unknown command 'plann'" "did you mean 'plan'"
expect 2 plan --worklod lenet
expect_error_line "--worklod" "did you mean '--workload'"
expect 2 plan --workload
expect_error_line "needs a value"
expect 2 plan --workload lenet
expect_error_line "--cluster"
expect 2 plan -w lenet -c "2x p100-server" --global-batch 0
expect_error_line "--global-batch"
expect 2 plan -w lenet -c "2x p100-server" --global-batch 12x
expect_error_line "--global-batch"
expect 2 plan -w lenet -c "2x p100-server" --fix pq=2
expect_error_line "unknown key 'pq'"
expect 0 plan -w gpt2 -c "2x dgx-a100" --stack Megatron --fix PP=2,DP=8,Interleave=1 --no-simulate -q
expect_output "TP 1  PP 2  VPP 1  DP 8  CP 1  EP 1" "Framework   megatron ("
expect 0 plan -w gpt2 -c "2x dgx-a100" --framework nemo --no-simulate -q
expect_output "Framework   nemo ("
expect 2 plan -w lenet -c "2x p100-server" --fix schedule=zigzag
expect_error_line "zigzag" "gpipe, 1f1b"
expect 2 plan -w lenet -c "2x p100-server" --fix compression=top-k
expect_error_line "top-k:0.01"
expect 2 plan -w lenet -c "2x p100-server" --fix compression=powersgd-0
expect_error_line "found rank 0"
expect 2 plan -w lenet -c "2x p100-server" --fix compression=gzip
expect_error_line "gzip" "powersgd-RANK"
expect 0 plan -w lenet -c "2x p100-server" --allow-lossy --no-simulate
expect 0 plan -w lenet -c "2x p100-server" --fix compression=powersgd-2,pp=1 --no-simulate
expect_output "DP 8  CP 1" "automatic, powersgd"
# Precision and compression are distinguished, and a page describes its times as the plan does.
expect 0 plan -w gpt2 -c "2x dgx-a100" --stack trainyard --precision fp16 --fix pp=1,compression=fp16 --no-simulate -q
expect_output "DP 16  CP 1  EP 1, ZeRO 1" "automatic, fp16" "Precision   fp16;"
for typed in BF16 bfloat16; do
    expect 0 plan -w lenet -c "2x dgx-a100" --precision $typed --fix pp=1 --no-simulate -q
    expect_output "--precision bf16 " "Precision   bf16;"
done
expect 0 plan -w gpt2 -c "2x dgx-a100" --stack megatron --fix pp=1 --no-simulate -q -o "$scratch/fitted.json"
expect_output "Provenance  calibrated; no held-out runs on a100-sxm4-80gb"
expect 0 report "$scratch/fitted.json" -o "$scratch/fitted.html"
report_holds "$scratch/fitted.html" 'd["plan"]["is_fitted"] and d["plan"]["certainty"].startswith("calibrated; no held-out runs on a100")'
expect 0 plan -w gpt-tiny -c "host:1 gpu:1 @v100-sxm2-16gb nvlink2 eth1" --fix pp=1,micro_batch=4,recompute=full:2 --no-simulate -o "$scratch/segments.json"
expect_output "full:2 recomputation"
expect 0 estimate "$scratch/segments.json" --program
expect_output "recompute"
expect 2 plan -w lenet -c "2x p100-server" --fix recompute=some
expect_error_line "found 'some'" "none, selective, elementwise, operator, full, full:K" "stage"
expect 2 plan -w lenet -c "2x p100-server" --fix recompute=full:0
expect_error_line "found 'full:0'" "K from 1 to"
expect 2 plan -w lenet -c "2x p100-server" --fix replicas=3+1
expect_error_line "needs 4 devices" "has 8"
expect 2 plan -w lenet -c "2x p100-server" --global-batch 128 --fix micro_batch=48
expect_error_line "128" "48"
expect 2 plan -w mlp -c "2x p100-server" --fix pp=8
expect_error_line "at most"
expect 2 estimate
expect 2 estimate a b
expect 2 simulate --resolution packet nothing.json
expect_error_line "flow or chunk"
expect 2 simulate --jitter 200% nothing.json
expect_error_line "200%" "0 % to 100 %"
expect 2 simulate --seeds 0 nothing.json
expect_error_line "seeds" "1 to 1000"
expect 2 workload dance
expect_error_line "dance" "list, show"
for limit in 5%junk 5x -1% nan ''; do
    expect 2 compare plan.json run.json --fail-over "$limit"
    expect_error_line "--fail-over" "percentage"
done
expect 2 report plan.json
expect_error_line "-o FILE"

# Spaces between pins, as people quote them.
expect 0 plan -w vgg16 -c "2x p100-server" --fix "pp=2,dp=4" --no-simulate -q --json
mv "$scratch/out" "$scratch/dense.json"
expect 0 plan -w vgg16 -c "2x p100-server" --fix " pp=2, dp=4 " --no-simulate -q --json
if cmp -s "$scratch/out" "$scratch/dense.json"; then pass; else fail "pins with spaces between them are others"; fi

# User-specified layouts follow the answer, in order, each with the result of its --fix.
expect 0 plan -w gpt2 -c dgx-a100 --no-simulate -q --against "pp=2,dp=4; tp=8;dp=8,zero=0,micro_batch=1" -o "$scratch/against.json"
expect_output "has heads 12"
grep -Eq "^ +8 +- +- +- +- +- +- +[a-z]" "$scratch/out" && pass || fail "the refused layout is not listed"
/usr/bin/python3 - "$scratch/against.json" "$TRAINYARD" <<'END' && pass || fail "layouts beside the answer are not those of --fix"
import json, subprocess, sys
plan = json.load(open(sys.argv[1]))
chosen, two, refused, small = plan["candidates"][:4]
assert chosen["reason"] == "chosen" and "pp=2,dp=4" in two["fix"] and "micro_batch=1," in small["fix"]
assert refused["fix"] == "tp=8" and refused["step_time_s"] == 0 and "heads 12" in refused["reason"], refused
for row in two, small:
    asked = subprocess.run([sys.argv[2], "plan", "-w", "gpt2", "-c", "dgx-a100", "--no-simulate", "--json", "--fix", row["fix"]],
                           stdout=subprocess.PIPE, check=True)
    assert json.loads(asked.stdout)["prediction"]["step_time_s"] == row["step_time_s"], row
    slower = 100 * (row["step_time_s"] / chosen["step_time_s"] - 1)
    assert slower > 0.5 and abs(float(row["reason"].split(" %")[0]) - slower) < 0.51, row
END
expect 2 plan -w gpt2 -c dgx-a100 --no-simulate -q --against "pp=2;nonsense=3"
expect_error_line '--against "nonsense=3": ' "nonsense"
expect 2 plan -w mlp -c dgx-a100 -q --phases x.json --against pp=2
expect_error_line "--phases and --against: expected one of them"

# A pinned value stays pinned if it does not fit and another would (here 1F1B would, by 4 GiB).
expect 4 plan -w "llama-3.1-405b sequence=131072" -c "2048x dgx-h100" --global-batch 128 --stack nemo --no-simulate -q \
    --fix tp=8,cp=16,pp=16,dp=8,recompute=none,interleave=4
expect_error_line "does not fit" "interleaved 64 stages"
expect 0 plan -w "llama-3.1-405b sequence=131072" -c "2048x dgx-h100" --global-batch 128 --stack nemo --no-simulate -q \
    --fix tp=8,cp=16,pp=16,dp=8,recompute=none,interleave=1

expect 2 partition
expect_error_line "GRAPH"
expect 2 partition graph.txt
expect_error_line "--machines"
expect 2 partition graph.txt --machines 4x2 --bandwidths 10GB/s
expect_error_line "--bandwidths" "4x2"
expect 2 partition graph.txt --machines 4xx --bandwidths 10GB/s,1GB/s
expect_error_line "--machines"
expect 2 partition graph.txt --mode zigzag
expect_error_line "zigzag" "pipedream or flat"
expect 2 partition graph.txt --machines 4 --bandwidths 10GB/s --ratio none
expect_error_line "--ratio" "none"
expect 2 partition graph.txt --machines 4 --bandwidths 10GB/s --merge all
expect_error_line "--merge" "branches"
expect 2 partition graph.txt --machines 4 --bandwidths 10GB/s --memory 16XB
expect_error_line "--memory"
expect 3 partition nothing.txt --machines 4 --bandwidths 10GB/s
expect_error_line "nothing.txt"
cat > "$scratch/chain.txt" <<'END'
node1 -- Input -- forward_compute_time=9, backward_compute_time=0, activation_size=64, parameter_size=0
node2 -- Conv -- forward_compute_time=10, backward_compute_time=20, activation_size=1e6, parameter_size=4e6
node3 -- ReLU -- forward_compute_time=1, backward_compute_time=1, activation_size=1e6, parameter_size=0
node4 -- Linear -- forward_compute_time=4, backward_compute_time=6, activation_size=4e3, parameter_size=4e8
	node1 -- node2
	node2 -- node3
	node3 -- node4
END
expect 0 partition "$scratch/chain.txt" --machines 4 --bandwidths 10GB/s --ratio 1
expect_output "3 layers, 3 states" "11 ms" "node2 .. node3" "node4 .. node4"
expect 0 partition "$scratch/chain.txt" --machines 2x2 --bandwidths 10GB/s,1GB/s --mode flat --ratio 1 --json
expect_output '"schema": "trainyard.partition/1"' '"mode": "flat"' '"states": 3' '"layers": ["node3", "node4"]'
expect 4 partition "$scratch/chain.txt" --machines 2 --bandwidths 1GB/s --straight --memory 1MB
expect_error_line "states"
expect 4 partition "$scratch/chain.txt" --machines 9 --bandwidths 1GB/s --straight
expect_error_line "idle"
expect 0 partition "$scratch/chain.txt" --machines 9 --bandwidths 1GB/s --straight --fewer
sed 's/node3 -- node4/node3 -- node9/' "$scratch/chain.txt" > "$scratch/broken.txt"
expect 3 partition "$scratch/broken.txt" --machines 4 --bandwidths 10GB/s
expect_error_line "broken.txt" "node9"

for command in $("$TRAINYARD" --help | awk '/^  [a-z]/ { print $1 }'); do
    expect 0 $command --help
    expect_output "usage: trainyard $command"
    if awk 'length($0) > 80 { exit 1 }' "$scratch/out"; then pass; else fail "$command --help is wider than 80 columns"; fi
done
expect 2 layout -w gpt2 -c "2x dgx-a100"
expect_error_line "unknown command 'layout'"
expect 4 plan -w gpt3-175b -c "1x dgx-a100" --no-simulate
expect_error_line "does not fit"
expect 0 plan -w lenet -c "1x p100-server" --system ddp --no-simulate -q
cp "$scratch/out" "$scratch/ddp"
expect 0 plan -w lenet -c "1x p100-server" --system DDP --no-simulate -q
cmp -s "$scratch/out" "$scratch/ddp" && pass || fail "DDP is not ddp"
expect 2 systems --workload lenet
expect_error_line "--cluster"
expect 2 plan --workload lenet --cluster "1x p100-server" --system horrovod
expect_error_line "horrovod" "horovod"
expect 0 systems --workload lenet --cluster "1x p100-server" --json
expect_output '"schema": "trainyard.systems/1"' '"system": "horovod"' '"reason"' '"global_batch": 128'
expect 0 systems --workload lenet --cluster baidu-ring-40
expect_output "160 samples per step"
expect 0 plan --workload lenet --cluster baidu-ring-40 --system horovod --no-simulate
expect_error_line "a batch of 160, the next that all 40 devices share: usual are 128"
expect 4 plan --workload vgg16 --cluster "2x p100-server" --system horovod --fix zero=2
expect_error_line "horovod has no zero=2: its zero is 0"

expect 2 plan --workload resnet50 --cluster "1x p3.16xlarge" --objective cots
expect_error_line "cots" "did you mean cost"
expect 2 plan --workload lenet --cluster "1x p3.16xlarge" --objective cost
expect_error_line "--task"
expect 0 plan --workload resnet50 --cluster "1x p3.16xlarge" --objective cost --no-simulate -o "$scratch/cheap.json"
expect 0 score "$scratch/cheap.json"
expect_output "money" "to target" "goodput"
expect 0 score "$scratch/cheap.json" --json
expect_output '"schema": "trainyard.score/1"'

# Stale gradients are considered only if their additional steps are counted.
expect 0 plan -w vgg16 -c "8x p100-server" --fix pp=1 --no-simulate -o "$scratch/fast.json"
if grep -q staleness "$scratch/fast.json"; then fail "throughput alone makes gradients late"; else pass; fi
expect 0 plan -w resnet50 -c "host:8 gpu:1 @v100-sxm2-16gb nvlink2 eth1" --stack trainyard --fix pp=1,compression=none --objective time-to-target --no-simulate -o "$scratch/late.json"
if grep -q '"staleness": 1' "$scratch/late.json"; then pass; else fail "a slow network makes no gradients late"; fi
expect 0 plan -w resnet50 -c "host:8 gpu:1 @v100-sxm2-16gb nvlink2 eth1" --fix pp=1,compression=none,staleness=0 --objective time-to-target --no-simulate -o "$scratch/fresh.json"
if grep -q '"staleness": 1' "$scratch/fresh.json"; then fail "gradients are late though nobody wants it"; else pass; fi

expect 0 --help
expect_output "Exit codes"
if awk 'length($0) > 80 { exit 1 }' "$scratch/out"; then pass; else fail "--help is wider than 80 columns"; fi
expect 0 --version
expect_output "trainyard 0."

expect 0 workload list
expect_output lenet vgg16 gpt2
expect 0 workload show lenet
expect_output "431" conv
expect 0 workload show gpt2 --json
expect_output '"parameters": 124439808'
expect 0 cluster list
expect_output dgx-a100 dgx1-v100
expect 0 cluster show "2x dgx-a100" --json
expect_output '"devices": 16' '"hosts": 2' '"equivalence_classes": 1' '"bisection_bandwidth_bytes_per_s"'
expect_output '"device_types"' '"devices": 16' '"fp16": 312000000000000' '"host_types"'
# Every kind of device and host, with its description and vendor.
expect 0 cluster show "1x dgx-a100 + 2x dgx1-v100"
expect_output "8 x a100-sxm4-80gb, 80 GiB (usable 79.1 GiB) at " "312 Tflop/s fp16" "16 x v100-sxm2-" "  by NVIDIA A100 data sheet"
expect 0 cluster show "2x p4d.24xlarge"
expect_output "2 x p4d.24xlarge, " " USD an hour each ("
expect 0 cluster show "64x dgx-a100"
expect_output "... and " " more links (--json has all)"
if [ "$(wc -l <"$scratch/out")" -lt 1100 ]; then pass; else fail "all links of a large cluster are shown"; fi
more=$(sed -n 's/^\.\.\. and \([0-9]*\) more.*/\1/p' "$scratch/out")
expect 0 cluster show "64x dgx-a100" --json
if [ "$(grep -c '"kind"' "$scratch/out")" -eq $((1000 + more)) ]; then pass; else fail "--json has not the 1,000 and $more links"; fi
expect 3 workload show lenett
expect_error_line "lenett" "lenet"
expect 3 cluster show "2x dgx-a10"
expect_error_line "dgx-a10"

# Names as users type them: the output shows their meaning.
while IFS='|' read -r typed meant; do
    expect 0 workload show "$typed"
    expect_output "$meant: "
done <<'NAMES'
GPT2|gpt2
GPT-2-XL|gpt2-xl
gpt 2|gpt2
Llama 3 8B batch=64|llama-3-8b
gpt-3|gpt3-175b
bert|bert-base-mlm
T5|t5-base
deepseek|deepseek-v3
Llama_2_7B|llama-2-7b
resnet|resnet50
NAMES
while IFS='|' read -r typed meant; do
    expect 0 cluster show "$typed"
    expect_output "$meant: "
done <<'NAMES'
8x a100|1x dgx-a100
8 H100|1x dgx-h100
H100x8|1x dgx-h100
h100 x 16|2x dgx-h100
p4d|1x p4d.24xlarge
p5|1x p5.48xlarge
2x DGX-H100|2x dgx-h100
A100|1x dgx-a100
8xMI300X|1x mi300x-server
4090|1x rtx-4090-server
910B|1x ascend-910b-server
16x 910b|2x ascend-910b-server
gpu_8x_rtx4090|gpu_8x_rtx4090
8x A100 80GB|1x dgx-a100
8x a100-40gb|1x dgx-a100-40gb
16x V100-32GB|2x dgx1-v100-32gb
H100x1|1x dgx-h100 gpu:1
4x a100|1x dgx-a100 gpu:4
aws p5|1x p5.48xlarge
host:1 gpu:8 @A100 nvlink3 hdr200|host:1 gpu:8 @A100 nvlink3 hdr200
NAMES
expect 3 cluster show "2 nodes of 16 h100"
expect_error_line 'found 16 devices a host, and dgx-h100 has 8'
expect 3 cluster show "8x a10"
expect_error_line 'found a10, a device without a usual host' '"host:H gpu:G @a10 LINK NETWORK"'
expect 3 cluster show laptop
expect_error_line 'expected a host of the catalogue (trainyard cluster list)'
expect 3 workload show gpipe-transformer # two of them
expect_error_line "no workload or file 'gpipe-transformer'"

# Lists: a line with size and description each, names alone for programs.
expect 0 workload list
expect_output "lenet                        431 k  LeNet as in Caffe"
expect 0 cluster list
expect_output "dgx-a100                     8 x a100-sxm4-80gb, 80 GiB"
expect 0 cluster list --quiet
if grep -q ' ' "$scratch/out"; then fail "list --quiet has more than names"; else pass; fi

# Help by every name, with examples that begin with the command.
expect 0 -V
expect_output "trainyard 0."
for command in $("$TRAINYARD" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do
    expect 0 help "$command"
    expect_output "usage: trainyard $command" "For example:" "  trainyard $command"
    cp "$scratch/out" "$scratch/by-help"
    expect 0 "$command" --help
    cmp -s "$scratch/out" "$scratch/by-help" && pass || fail "help $command and $command --help differ"
done
expect 0 help help
expect_output "usage: trainyard COMMAND"
expect 2 help plann
expect_error_line "did you mean 'plan'"
finish
