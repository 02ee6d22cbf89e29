#!/bin/sh
# Clusters of thousands of devices: uneven trees of switches, hosts of two kinds, idle devices, and
# results after an interrupt.
. "$(dirname "$0")/lib.sh"

# tree HOSTS SEED: a topology.conf with leaves of 8 to 32 hosts, below middle switches of 2 to 12
# leaves.
tree() {
    awk -v hosts="$1" -v seed="$2" '
        function below(n) { return int(rand() * n) }
        BEGIN {
            srand(seed)
            for (host = 0; host < hosts; host += count) {
                count = 8 + below(25)
                if (count > hosts - host) count = hosts - host
                printf "SwitchName=leaf%d Nodes=n[%d-%d]\n", leaves++, host, host + count - 1
            }
            for (leaf = 0; leaf < leaves; leaf += count) {
                count = 2 + below(11)
                if (count > leaves - leaf) count = leaves - leaf
                list = ""
                for (i = 0; i < count; i++) list = list (i > 0 ? "," : "") "leaf" (leaf + i)
                printf "SwitchName=middle%d Switches=%s\n", middles, list
                all = all (middles++ > 0 ? "," : "") "middle" (middles - 1)
            }
            printf "SwitchName=root Switches=%s\n", all
        }'
}

tree 1000 7 >"$scratch/tree.conf"
expect 0 cluster import "$scratch/tree.conf" --host dgx-a100 -q -o "$scratch/tree.json"

# 1,536 samples do not divide by 8,000 devices: some stay idle, and the search is reported.
expect 0 plan -w gpt3-175b -c "$scratch/tree.json" --no-simulate -o "$scratch/plan.json"
expect_output "of 8000 devices stay idle"
grep -q "searched plans for 8000 of 8000 devices: none yet" "$scratch/err" && pass || fail "no progress"
grep -q "per step so far" "$scratch/err" && pass || fail "no progress with a plan"
grep -q '"idle_devices": [1-9]' "$scratch/plan.json" && pass || fail "idle_devices is not in the plan"
expect 0 plan -w resnet50 -c "$scratch/tree.json" --no-simulate -q
expect_output "of 8000 devices stay idle"
[ -s "$scratch/err" ] && fail "--quiet told something" || pass
expect 0 estimate "$scratch/plan.json"
expect 0 plan -w gpt3-175b -c "$scratch/tree.json" --no-simulate -q --json --fix devices=4096
expect_output '"idle_devices": 3904'
expect 2 plan -w gpt3-175b -c "$scratch/tree.json" --no-simulate -q --fix devices=4097
expect_error_line "devices: found 4097, expected the same number of each"

# If a plan exists at the interrupt, it is the answer.
mkfifo "$scratch/notes"
"$TRAINYARD" plan -w resnet50 -c "$scratch/tree.json" --global-batch 16000 >"$scratch/out" \
    2>"$scratch/notes" </dev/null &
planner=$!
while read -r line; do
    case $line in
    *"per step so far"*) kill -INT "$planner" ;;
    *"interrupted: this is the best plan found so far"*) is_said=yes ;;
    esac
done <"$scratch/notes"
wait "$planner"
code=$?
[ $code -eq 130 ] && pass || fail "exit code $code instead of 130 after an interrupt"
[ "${is_said:-}" = yes ] && pass || fail "an interrupted search does not say so"
expect_output "Step time"

# Ten times as many hosts in an uneven tree.
tree 10240 7 >"$scratch/tree.conf"
expect 0 cluster import "$scratch/tree.conf" --host dgx-a100 -q -o "$scratch/tree.json"
expect 0 plan -w gpt3-175b -c "$scratch/tree.json" --no-simulate
expect_output "Step time"
grep -q "searched plans for [0-9]* of 81920 devices" "$scratch/err" && pass || fail "no progress"

# The largest valid cluster.
expect 0 memory -w gpt3-175b -c "32768x dgx-a100" -q
expect_output "activ"
expect 0 cluster show "32768x dgx-a100" -q
for format in slurm nccl dot; do
    expect 0 cluster export "32768x dgx-a100" --to $format -q -o "$scratch/exported"
done

# Idle devices are reported, may run other work, and are priced.
expect 0 plan -w resnet50 -c "128x dgx-a100" --global-batch 4096 --fix pp=1,compression=none --top 1 -o "$scratch/plan.json"
grep -q "simulated a plan: [0-9.]* [mu]*s per step" "$scratch/err" && pass || fail "no word of what is simulated"
expect 0 plan -w mlp -c "2x dgx-a100" --no-simulate -q -o "$scratch/mlp.json"
expect_output "13 of 16 devices stay idle"
expect 0 report "$scratch/mlp.json" -o "$scratch/report.html"
report_holds "$scratch/report.html" 'd["plan"]["idle_devices"] == 13 and d["plan"]["launched"] == 3'
expect 0 whatif -w mlp -c "dgx-a100" --vary hosts=1,2 --no-simulate --json
expect_output '"idle_devices": 5' '"idle_devices": 13'
finish
