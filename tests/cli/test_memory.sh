#!/bin/sh
# The predicted memory of plans against the resident memory of ranks on this host's cores. No
# profile is measured for it: the described cluster of cores has times that do not matter.
. "$(dirname "$0")/lib.sh"
export TRAINYARD_WORKER="$WORKER"
[ -z "$TY_SANITIZE" ] || {
    echo "0 passed: skipped, a sanitizer keeps memory of its own"
    exit 77
}

cat >"$scratch/cores.json" <<'END'
{"schema": "trainyard.cluster/1", "name": "cores",
 "device_types": [{"name": "cpu", "source": "made for a test", "peak_fp32_flop_per_s": 1e11,
   "peak_tf32_flop_per_s": 0, "peak_fp16_flop_per_s": 0, "memory_bandwidth_bytes_per_s": 1e10,
   "launch_overhead_s": 1e-6, "matmul_efficiency": 1, "memory_efficiency": 1, "core_share": 1,
   "power_w": 0, "memory_bytes": 16000000000}],
 "link_types": [{"name": "memory", "source": "made for a test", "bandwidth_bytes_per_s": 1e10,
   "latency_s": 1e-6}],
 "vertices": [{"name": "host", "kind": "host", "cores": 2},
   {"name": "rank-0", "kind": "device", "type": "cpu", "host": "host"},
   {"name": "rank-1", "kind": "device", "type": "cpu", "host": "host"}],
 "links": [{"from": "rank-0", "to": "host", "type": "memory"},
   {"from": "rank-1", "to": "host", "type": "memory"}]}
END

figure() {
    sed -n 's/.*"'"$1"'": \([0-9]*\).*/\1/p' "$scratch/out"
}

# within_a_tenth STEPS WORKLOAD PINS OPTIONS...: the largest rank, predicted and measured
within_a_tenth() {
    steps=$1 workload=$2 pins=$3
    shift 3
    expect 0 plan -w "$workload" -c "$scratch/cores.json" --fix "$pins,compression=none" \
        --precision fp32 --no-simulate -q -o "$scratch/plan.json" "$@"
    expect 0 run "$scratch/plan.json" --anyway --steps "$steps" -q -o "$scratch/run.json"
    expect 0 compare "$scratch/plan.json" "$scratch/run.json" --json
    predicted=$(figure predicted_peak_memory_bytes)
    measured=$(figure measured_peak_memory_bytes)
    if awk -v p="$predicted" -v m="$measured" 'BEGIN { exit !(p > 0.9 * m && p < 1.1 * m) }'; then
        pass
    else
        fail "$workload with $pins: predicted are $predicted bytes, measured $measured"
    fi
}

for pins in pp=1,dp=2,micro_batch=64 pp=2,schedule=1f1b,micro_batch=32; do
    within_a_tenth 3 mlp "$pins"
    within_a_tenth 3 lenet "$pins"
done
within_a_tenth 2 gpt-tiny pp=1,dp=2,micro_batch=4
within_a_tenth 2 gpt-tiny pp=2,schedule=1f1b,micro_batch=2
# A large model takes long. With larger buckets a slow rank stores more or less, as data arrives
# before it is requested.
if [ -n "${TY_ALL:-}" ]; then
    within_a_tenth 1 resnet18 pp=1,dp=2,micro_batch=2,bucket=4MiB --global-batch 8
fi
within_a_tenth 1 resnet18 pp=2,schedule=1f1b,micro_batch=1 --global-batch 2
finish
