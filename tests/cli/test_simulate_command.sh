#!/bin/sh
# trainyard simulate, with and without disturbance: its output, its refusals, reproducible bytes.
. "$(dirname "$0")/lib.sh"
plan="$scratch/plan.json"
expect 0 plan -w gpt2 -c "2x dgx-a100" --fix pp=2,dp=8 --no-simulate -o "$plan"

expect 0 simulate "$plan"
expect_output "Step time" "Bottleneck" "critical" "busiest" "like it"
expect 0 simulate "$plan" --no-fold
expect_output "Bottleneck"

# The same seed, the same bytes; another seed, others.
expect 0 simulate "$plan" --straggler spread:5% --jitter 2% --seed 3 --seeds 4 --fail random --json
mv "$scratch/out" "$scratch/first"
expect 0 simulate "$plan" --straggler spread:5% --jitter 2% --seed 3 --seeds 4 --fail random --json
if cmp -s "$scratch/first" "$scratch/out"; then pass; else fail "the same seed gave other bytes"; fi
expect 0 simulate "$plan" --straggler spread:5% --jitter 2% --seed 4 --seeds 4 --fail random --json
if cmp -s "$scratch/first" "$scratch/out"; then fail "another seed gave the same bytes"; else pass; fi

expect 0 simulate "$plan" --straggler law
expect 0 simulate "$plan" --straggler 3=1.5,7=2
expect 0 simulate "$plan" --slow-link host-0/gpu-0:host-0/pcie-0=0.1
expect_output "host-0/gpu-0"
expect 0 simulate "$plan" --fail device:3@2h,host:1@1d,link:host-0/gpu-0:host-0/pcie-0@3d --horizon 10d --restart 5min --repair 12h
expect_output "goodput" "of 10 d with 3 failures"
expect 0 simulate "$plan" --fail random,device:3@2h --elastic --seeds 5
expect_output "fewer devices" "19 of 20"

# Stage replicas of several devices: each can be slow, and is printed.
expect 0 plan -w gpt2 -c "2x dgx-a100" --fix pp=2,dp=2,tp=4 --no-simulate -o "$scratch/lanes.json"
expect 0 simulate "$scratch/lanes.json" --straggler 3.2=1.5 --per-device --trace "$scratch/trace.json" --json
expect_output "device_utilisation"
count=$(grep -c '"device_utilisation": \[[^]]*\]' "$scratch/out")
if [ "$count" = 1 ]; then pass; else fail "found $count lists of devices, expected 1"; fi
if grep -q "stage replica 3 (stage 1, replica 1, rank 2)" "$scratch/trace.json"; then pass; else fail "no rank in the trace"; fi
expect 2 simulate "$scratch/lanes.json" --straggler 3.4=1.5
expect_error_line "rank 4" "below 4"

expect 2 simulate "$plan" --straggler 3=x
expect_error_line "--straggler" "RANK=FACTOR"
expect 2 simulate "$plan" --straggler 99=2
expect_error_line "stage replica 99" "below 16"
expect 2 simulate "$plan" --straggler spread:500%
expect_error_line "500%"
expect 2 simulate "$plan" --slow-link a:b=0.5
expect_error_line "'a'" "part of cluster"
expect 2 simulate "$plan" --slow-link host-0/gpu-0:host-1/gpu-0=0.5
expect_error_line "no link between"
expect 2 simulate "$plan" --slow-link host-0/gpu-0:host-0/pcie-0=2
expect_error_line "--slow-link" "0.000001 to 1"
for fault in foo device:3 device:99@1h host:7@1h gpu:1@1h device:3@soon link:a@1h device:3@2h,device:4@1h; do
    expect 2 simulate "$plan" --fail "$fault"
    expect_error_line "error"
done
expect 2 simulate "$plan" --fail random --horizon never
expect_error_line "--horizon"

# With another job on the cluster.
expect 0 plan -w alexnet -c "leaf:2 host:1 p100-server" --fix pp=1,dp=8 --no-simulate -o "$scratch/job.json"
expect 0 simulate "$scratch/job.json" --cluster "leaf:2 host:2 p100-server" --beside "$scratch/job.json"
expect_output "other job" "alone this job takes"
expect 2 simulate "$scratch/job.json" --beside "$scratch/job.json"
expect_error_line "job 1" "has 8"
expect 3 simulate "$scratch/job.json" --beside "$scratch/nothing.json"
# The engine is the user's choice, and named in the answer.
for engine in simgrid flow; do
    expect 0 simulate "$scratch/job.json" --engine $engine --json
    grep -q "\"engine\": \"$engine\"" "$scratch/out" && pass || fail "the answer does not name engine $engine"
done
expect 2 simulate "$scratch/job.json" --engine ns3
expect_error_line "--engine" "simgrid or flow"
# Without SimGrid on this host the flow engine simulates.
if [ -n "${PRELOAD:-}" ]; then
    export LD_PRELOAD="$PRELOAD"
    expect 0 plan -w gpt2 -c "2x dgx-a100" -o "$scratch/flow.json"
    grep -q " simulated$" "$scratch/out" && pass || fail "the plan is not called simulated"
    expect 0 report "$scratch/flow.json" -o "$scratch/flow.html"
    expect 0 simulate "$scratch/flow.json"
    expect_output "engine      flow"
    expect 1 simulate "$scratch/flow.json" --engine simgrid
    expect_error_line "SimGrid does not load"
    unset LD_PRELOAD
fi
finish
