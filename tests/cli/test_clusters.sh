#!/bin/sh
# Clusters of other tools in, reports on them and files for other tools out.
. "$(dirname "$0")/lib.sh"
data=$SOURCE/tests/topologies/data

mkdir "$scratch/made"
expect 0 cluster list
expect_output "megatron-selene" "p4d.24xlarge"

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

expect 0 cluster check "leaf:4 host:8 gpu:8 @h100 nvlink4 ndr400 oversub:4"
expect_output "device classes: 1" "oversubscribed 4 : 1" "leaf-0 and 3 more" "cuts off 192 devices"
expect 0 cluster export "leaf:2 host:2 dgx-a100" --to slurm
expect_output "SwitchName=spine-0 Switches=leaf-0,leaf-1" "SwitchName=leaf-1 Nodes=host-2,host-3"
expect 0 cluster export dgx-h100 --to nccl -o "$scratch/made/dgx.xml"
expect 0 cluster check "$scratch/made/dgx.xml"
expect_output "8 devices on 1 hosts" "device classes: 1"
expect 2 cluster export dgx-h100 --to nvcl
expect_error_line "did you mean" "nccl"
finish
