#!/bin/sh
# Clusters of other tools in, reports on them and files for other tools out.
. "$(dirname "$0")/lib.sh"
data=$SOURCE/tests/topologies/data

mkdir "$scratch/made"
expect 0 cluster list
expect_output "megatron-selene" "p4d.24xlarge"

# No host has more network than its source says, and every host of a large cloud has such a figure.
python3 - "$SOURCE/topologies/catalogue/hosts.json" >"$scratch/out" <<'PYTHON' && pass || fail "no network_bits_per_s: $(cat "$scratch/out")"
import json, sys
hosts = json.load(open(sys.argv[1]))["hosts"]
stated = ("aws", "azure", "gcp", "oci", "dgx", "nvl72", "vr200")
missing = [h["name"] for h in hosts if h["source"].startswith(stated) and "network_bits_per_s" not in h
           and h["name"] != "v100-pcie-server"]
print(*missing)
sys.exit(bool(missing))
PYTHON
mkdir "$scratch/more"
cp -r "$SOURCE/topologies" "$scratch/more/"
sed '/"name": "p3.16xlarge"/,/network_bits_per_s/s/"value": 25e9/"value": 20e9/' "$SOURCE/topologies/catalogue/hosts.json" \
    >"$scratch/more/topologies/catalogue/hosts.json"
TRAINYARD_DATA=$scratch/more expect 3 cluster list
expect_error_line "NICs of 2e+10 bits/s in total"

expect 0 cluster import "$data/nccl.xml" -o "$scratch/made/machine.json"
grep -q "nccl: 2 devices on 1 hosts" "$scratch/err" && pass || fail "import does not say what it read"
expect_only machine.json
expect 0 cluster check "$scratch/made/machine.json"
expect_output "2 devices on 1 hosts" "0.5 of its kind's width" "host-0/gpu-0 - host-0/pci-0000:01:00.0"
expect 0 cluster check "$data/nccl.xml" --json
expect_output '"schema": "trainyard.cluster-check/1"' '"kind": "slow_link"'

expect 2 cluster import "$data/topology.conf"
expect_error_line "names no devices" "--host"
expect 2 cluster import "$data/topology.conf" --host dgxa100
expect_error_line "did you mean" "dgx-a100"
expect 0 cluster import "$data/topology.conf" --host dgx-a100 --oversubscription 2 --quiet
expect_output '"trainyard.cluster/1"' '"login/gpu-7"'
expect 3 cluster import "$SOURCE/README.md"
expect_error_line "none of the formats"
expect 3 cluster import "$scratch/none.xml"
expect 2 cluster import

expect 0 cluster import "$data/topology.yaml" --host dgx-a100 --quiet
expect_output '"trainyard.cluster/1"' '"a03/gpu-7"'
printf '<graphs version="1"/>' >"$scratch/graph.xml"
expect 3 cluster import "$scratch/graph.xml"
expect_error_line "NCCL graph file" "expected a topology"

# A device without links is named.
"$TRAINYARD" cluster export "2x p100-server" --quiet | grep -v '"from": "host-0/gpu-1"' >"$scratch/isolated.json"
expect 3 cluster check "$scratch/isolated.json"
expect_error_line '"host-0/gpu-1"' "linked, directly or not, to all others"

# Content that programs reading --json rely on.
expect 0 cluster show "leaf:2 host:2 dgx-a100 oversub:2" --json
expect_output '"devices": 32' '"hosts": 4' '"bisection_bandwidth_bytes_per_s": 200000000000' \
    '"equivalence_classes": 1' '"links": [' '"from": "host-0/gpu-0", "to": "host-0/nvswitch", "kind": "nvlink3"'
expect 0 cluster check "leaf:2 host:2 dgx-a100 oversub:2"
expect_output "oversubscribed 2 : 1" "leaf-0 and 1 more" "cuts off 16 devices" "spine-0 and 2 more" \
    "device classes: 1" "32 x a100-sxm4-80gb"
expect 0 cluster check "11x p100-server-10gbe + 1x p100-server"
expect_output "linked like 4 devices only" "host-11/gpu-0 and 3 more" "device classes: 2"
expect 0 workload show gpt2 --json
expect_output '"parameters": 124439808' '"forward_flop_per_sample": 291648307200' \
    '"activation_bytes_per_sample": 438636548' '"layers": [' '"name": "embedding", "kind": "embedding"'

expect 0 cluster check "leaf:4 host:8 gpu:8 @h100 nvlink4 ndr400 oversub:4"
expect_output "device classes: 1" "oversubscribed 4 : 1" "leaf-0 and 3 more" "cuts off 192 devices"
expect 0 cluster export "leaf:2 host:2 dgx-a100" --to slurm
expect_output "SwitchName=spine-0 Switches=leaf-0,leaf-1" "SwitchName=leaf-1 Nodes=host-2,host-3"
expect 0 cluster export dgx-h100 --to nccl -o "$scratch/made/dgx.xml"
expect 0 cluster check "$scratch/made/dgx.xml"
expect_output "8 devices on 1 hosts" "device classes: 1"
# A processor's link that is not PCIe has its own bandwidth, and the file can be read back.
expect 0 cluster export "1x gb200-tray" --to nccl -o "$scratch/made/tray.xml"
if [ "$(grep -c '<c2c bw="360000" count="1"/>' "$scratch/made/tray.xml")" -eq 4 ]; then pass; else fail "C2C of a GB200 tray"; fi
expect 0 cluster import "$scratch/made/tray.xml"
expect 2 cluster export "1x dgx-a100 + 1x p100-server" --to nccl
expect_error_line "found hosts that differ" "--host host-1"
expect 0 cluster export "1x dgx-a100 + 1x p100-server" --to nccl --host host-1 -o "$scratch/made/p100.xml"
expect 0 cluster check "$scratch/made/p100.xml"
expect_output "4 devices on 1 hosts"
expect 2 cluster export dgx-h100 --to nvcl
expect_error_line "did you mean" "nccl"
expect 0 cluster export "leaf:2 host:2 dgx-a100 oversub:2" --to simgrid -o "$scratch/made/platform.xml"
expect 0 cluster show "$scratch/made/platform.xml" --json
expect_output '"devices": 32' '"bisection_bandwidth_bytes_per_s": 200000000000'
expect 2 cluster export dgx-h100 --to simgrd
expect_error_line "did you mean" "simgrid"
expect 2 cluster export dgx-h100 --to simgrid --host host-0

# Every system has its authors' cluster, and plans for it; so have the other places.
cat >"$scratch/ready" <<END
baidu-ring baidu-ring-40 1280
parameter-server parameter-server-50 800
tensorflow-on-spark tensorflow-on-spark-k80 1024
bigdl bigdl-xeon 1024
horovod horovod-p100 8192
ddp ddp-v100 1024
moxing moxing-v100 4096
gpipe gpipe-p100x8 256
pipedream pipedream-a 256
pipedream pipedream-b 1024
pipedream pipedream-c 256
pipedream-2bw pipedream-2bw-v100 1024
megatron megatron-selene 6144
zero zero-v100 3200
ddp two-clouds 1024
ddp tpu-v4-64 1024
horovod cloud-to-edge 1024
END
while read -r system cluster batch; do
    network=resnet50 fix=
    [ "$system" = megatron ] && network=megatron-22b fix="--fix tp=8,pp=1"
    # shellcheck disable=SC2086 # two words or none
    expect 0 plan -w "$network batch=$batch" -c "$cluster" --system "$system" $fix --no-simulate -q
    expect_output "Step time"
done <"$scratch/ready"
expect 0 systems -w lenet -c "1x p100-server" --json
grep -o '"system": "[a-z0-9-]*"' "$scratch/out" | cut -d '"' -f 4 | sort -u >"$scratch/systems"
[ "$(wc -l <"$scratch/systems")" -ge 12 ] && pass || fail "systems: $(cat "$scratch/systems")"
while read -r system; do
    grep -q "^$system " "$scratch/ready" && pass || fail "no cluster is ready for $system"
done <"$scratch/systems"

# Any two equal rows need a reason on the page.
if python3 "$SOURCE/tests/cli/same_rows.py" >"$scratch/out" 2>"$scratch/err"; then pass; else
    fail "rows: $(cat "$scratch/out")"
fi

# One collective by itself.
expect 0 cluster collective "2x dgx-h100" --size 64MiB,1GiB
expect_output "all_reduce among 16 devices of 2x dgx-h100" "64 MiB" "1 GiB" "NVLSTree Simple"
expect 0 cluster collective "2x dgx-h100" --collective all_gather --ranks 8 --json
expect_output '"schema": "trainyard.collective/1"' '"ranks": 8' '"hosts": 1' '"size_bytes": 1024' '"size_bytes": 1073741824'
expect_output '"calls": "launched"'
expect 0 cluster collective "2x dgx-h100" --per-host 1 --size 1GiB
expect_output "all_reduce among 2 devices of 2x dgx-h100, 1 per host"
expect 2 cluster collective "2x dgx-h100" --per-host 1 --ranks 3
expect_error_line "found 3 ranks, expected 2 to the 2 devices of \"2x dgx-h100\", of each host"
expect 0 cluster collective "1x dgx-h100" --size 4KiB --queued
expect_output "nothing else on the links, queued" "Ring LL"
expect 2 cluster collective "2x dgx-a100" --algorithm NVLS --size 1GB
expect_error_line "NVLS, which these devices have no all_reduce with"
expect 2 cluster collective dgx-h100 --algorithm NVS
expect_error_line "did you mean 'NVLS'?"
expect 2 cluster collective dgx-h100 --ranks 9
expect_error_line "found 9 ranks, expected 2 to the 8 devices"
expect 2 cluster collective dgx-h100 --size 1MB,
expect_error_line '--size: found ""'
expect 2 cluster collective dgx-h100 --collective all_reduc
expect_error_line "--collective: found 'all_reduc'"
expect 2 cluster collective
expect_error_line "collective needs a cluster"
finish
