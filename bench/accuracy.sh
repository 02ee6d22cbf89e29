#!/bin/sh
# Compares predicted and measured step times on this machine, as the Markdown table of docs/results/own-runs.md.
#   bench/accuracy.sh [build/release/trainyard] [runs]
# Profiles the machine for each workload and cluster, plans four strategies, runs each `runs` times
# (default 3) for 60 steps and takes the median.
set -eu
trainyard=${1:-build/release/trainyard}
runs=${2:-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME="$work/cache"

# value FILE KEY: the first number of that key.
value() {
    sed -n "s/.*\"$2\": *\([-0-9.e+]*\).*/\1/p" "$1" | head -n 1
}

# strategy WORKLOAD NAME CLUSTER FIX
strategy() {
    plan=$work/plan.json
    # A small learning rate, since only time is compared: sparsified gradients may diverge at the usual one.
    "$trainyard" plan -w "$1" -c "$3" --fix "$4" --learning-rate 0.001 --no-simulate -q -o "$plan" >/dev/null
    "$trainyard" estimate "$plan" --json >"$work/estimate.json"
    "$trainyard" simulate "$plan" --json >"$work/simulate.json"
    : >"$work/measured"
    i=0
    while [ $i -lt "$runs" ]; do
        "$trainyard" run "$plan" --steps 60 -q -o "$work/run.json" >/dev/null
        "$trainyard" compare "$plan" "$work/run.json" --json >"$work/compare.json"
        value "$work/compare.json" measured_step_time_s >>"$work/measured"
        i=$((i + 1))
    done
    measured=$(sort -g "$work/measured" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')
    spread=$(sort -g "$work/measured" | awk '{ v[NR] = $1 } END { printf "%.1f", (v[NR] / v[1] - 1) * 100 }')
    awk -v w="$1" -v n="$2" -v e="$(value "$work/estimate.json" step_time_s)" \
        -v s="$(value "$work/simulate.json" step_time_s)" -v m="$measured" -v spread="$spread" 'BEGIN {
        printf "| %s | %s | %.2f | %.2f | %.2f | %s %% | %+.1f %% | %+.1f %% |\n",
            w, n, e * 1e3, s * 1e3, m * 1e3, spread, (e / m - 1) * 100, (s / m - 1) * 100 }'
}

echo "| workload | strategy | estimated ms | simulated ms | measured ms | spread of runs | estimate | simulation |"
echo "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
for workload in mlp lenet gpt-tiny; do
    strategy $workload "data parallel 2" local:2 pp=1,tp=1,compression=none
    strategy $workload "1F1B, 2 stages" local:2 pp=2,schedule=1f1b,compression=none
    strategy $workload "hybrid 2+1" local:3 replicas=2+1,schedule=1f1b,compression=none
    strategy $workload "data parallel 2, top-k 1 %" local:2 pp=1,tp=1,compression=top-k:0.01
done
