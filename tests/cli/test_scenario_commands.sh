#!/bin/sh
# Scenarios on the command line: printed, planned, simulated; run if the worker supports them;
# traces as profiles.
. "$(dirname "$0")/lib.sh"

while read -r name cluster; do
    expect 0 workload show "$name"
    expect 0 plan -w "$name" -c "$cluster" -o "$scratch/$name.json"
    expect 0 simulate "$scratch/$name.json"
    expect_output "Step time"
done <<END
transfer-resnet50 1x dgx1-v100
mean-teacher-cifar10 1x p100-server
mean-teacher-fashion 1x p100-server
corridor-evolution 1x p100-server
corridor-reinforce 1x p100-server
corridor-navigation robots
dqn-atari 1x v100-pcie-server
es-humanoid evolution-xeon
fedavg-cnn phones
pilotnet-navigation robots
collaborative-bert-base collaborating-sites
END
expect 0 plan -w fedavg-cnn -c phones --no-simulate
expect_output "every 300 steps"
expect 0 plan -w es-humanoid -c evolution-xeon --no-simulate
expect_output "Scores      1 bucket"
expect 0 workload show fedavg-cnn
expect_output "averaged every 300 steps"
expect 0 workload show mean-teacher-fashion
expect_output "follow the trained ones with a decay of 0.99; 500 samples have labels, one in 4"
expect 0 workload show transfer-resnet50
expect_output "trained: 209 k parameters"

# Replicas step independently; scenarios other than corridors are planned, not run.
expect 0 plan -w "fedavg-cnn batch=8" -c "1x p100-server" --fix pp=1,dp=4 --no-simulate -o "$scratch/f.json"
expect 0 run "$scratch/f.json" --anyway --steps 2 -o "$scratch/run.json"
expect 0 plan -w es-humanoid -c "1x p100-server" --fix pp=1,dp=4 --no-simulate -o "$scratch/e.json"
expect 1 run "$scratch/e.json" --anyway --steps 2 -q -o "$scratch/run.json"
expect_error_line "es-humanoid" "found data set synthetic, expected corridor"
# Nor does it measure a scenario that it does not run.
expect 1 profile -w es-humanoid --ranks 1 -q -o "$scratch/none.json"
if grep -q "trainyard-worker: es-humanoid: .* expected corridor" "$scratch/err"; then pass; else fail "es-humanoid is measured: $(tail -1 "$scratch/err")"; fi
# Complete episodes are measured; so is a teacher's model, with its loss.
expect 0 profile -w corridor-evolution --ranks 1 --micro-batches 2,4 -q -o "$scratch/episodes.json"
grep -q '"linear in_features=9' "$scratch/episodes.json" && pass || fail "episodes are not in the profile"
expect 0 profile -w mean-teacher-fashion --ranks 1 --micro-batches 2 -q -o "$scratch/taught.json"
# Actors: planned, simulated, replayed by their times, trained, and resumed; invalid plans of them
# are refused.
TRAINYARD_PROFILE_HASTE=100
export TRAINYARD_PROFILE_HASTE
expect 0 workload show corridor-reinforce
expect_output "reinforcement: episodes of 300 steps"
expect 0 profile -w corridor-reinforce --ranks 2 --micro-batches 8,16 -q -o "$scratch/played.json"
grep -q '"play 300 steps, linear in_features=9' "$scratch/played.json" && pass || fail "playing is not in the profile"
expect 0 plan -w corridor-reinforce -c local:2 --profile "$scratch/played.json" --fix actors=1,lag=1,micro_batch=16 -q -o "$scratch/actors.json"
expect_output "1 actor, lag 1" "actors, who play for those who learn"
expect 0 estimate "$scratch/actors.json" --program
expect_output "receive     micro-batch 0  gradient from stage 1  844 B" "2 steps ahead  micro-batch 0"
expect 0 simulate "$scratch/actors.json"
expect 0 run "$scratch/actors.json" --backend replay --steps 4 -q
expect 0 run "$scratch/actors.json" --steps 6 --checkpoint "$scratch/whole" --checkpoint-every 3 -q -o "$scratch/whole.json"
expect 0 run "$scratch/actors.json" --steps 3 --checkpoint "$scratch/half" --checkpoint-every 3 -q -o "$scratch/half.json"
expect 0 run "$scratch/actors.json" --steps 6 --checkpoint "$scratch/half" --checkpoint-every 3 --resume -q -o "$scratch/half.json"
[ "$(grep '"losses"' "$scratch/whole.json")" = "$(grep '"losses"' "$scratch/half.json")" ] && pass || fail "actors go on otherwise than they would have"
expect 0 compare "$scratch/actors.json" "$scratch/whole.json"
expect_output "  load " "  begin "
expect 0 report "$scratch/actors.json" "$scratch/whole.json" -q -o "$scratch/actors.html"
report_holds "$scratch/actors.html" '[] in d["plan"]["stages"][0]["spans"]'
expect 1 export "$scratch/actors.json" --to chakra -o "$scratch/chakra"
expect_error_line "playing episodes is none"
sed 's/"lag": 1/"lag": 40/' "$scratch/actors.json" >"$scratch/far.json"
expect 3 simulate "$scratch/far.json"
expect_error_line "/lag" "found 40"
sed 's/"seed": 1,/"seed": 1, "zero": 1,/' "$scratch/actors.json" >"$scratch/shards.json"
expect 3 simulate "$scratch/shards.json"
expect_error_line "found reinforcement, expected another: with ZeRO"
unset TRAINYARD_PROFILE_HASTE
# A teacher must be with its student, on the same devices.
expect 0 workload export mean-teacher-fashion -q -o "$scratch/taught-workload.json"
sed 's/"decay": 0.99/"decay": 1/' "$scratch/taught-workload.json" >"$scratch/stubborn.json"
expect 3 plan -w "$scratch/stubborn.json" -c "1x p100-server" --no-simulate
expect_error_line "/teacher/decay: found 1, expected a number >= 0 and < 1"
expect 2 plan -w mean-teacher-fashion -c "1x p100-server" --fix pp=2 --no-simulate
expect_error_line "a teacher follows what is trained"

# A trace's annotations are the times of the layers that they name; kernels without annotations are
# refused.
event() { printf '{"ph": "X", "cat": "%s", "name": "%s", "ts": 1, "dur": %s, "args": {}}' "$1" "$2" "$3"; }
{
    printf '{"traceEvents": ['
    event gpu_user_annotation conv2d1 400000
    printf ','
    event gpu_user_annotation conv2d1.backward 600000
    printf ']}\n'
} >"$scratch/trace.json"
expect 0 profile import "$scratch/trace.json" -w lenet --micro-batches 128 -o "$scratch/p.json"
expect 0 plan -w lenet -c "1x p100-server" --fix pp=1,dp=4,micro_batch=32 --no-simulate -p "$scratch/p.json"
expect_output "Step time   250 ms" # a quarter of the samples in a quarter of a second
# Times measured on a V100 are scaled, which is reported.
expect 0 plan -w lenet -c "1x p100-server" --fix pp=1,dp=4,micro_batch=32 --no-simulate -p "$scratch/p.json" --profile-device v100-sxm2-16gb -o "$scratch/scaled.json"
tr -s ' \n' ' ' <"$scratch/out" | grep -q "Provenance layer times measured on another device (v100-sxm2-16gb by 1[.0-9]*), scaled to p100-pcie-16gb; the rest from data sheets" && pass || fail "a profile's times are not said to be scaled"
awk '/^Step time/ { exit !($3 > 300 && $4 == "ms") }' "$scratch/out" && pass || fail "a profile's times are not scaled: $(grep '^Step' "$scratch/out")"
grep -q '"scaled": "v100-sxm2-16gb by 1' "$scratch/scaled.json" && pass || fail "the plan's profile does not say that it is scaled"
expect 0 plan -w lenet -c "1x p100-server" --fix pp=1,dp=4,micro_batch=32 --no-simulate -p "$scratch/p.json" --profile-device p100-pcie-16gb
expect_output "Step time   250 ms"
expect 3 plan -w lenet -c local:2 -p "$scratch/p.json"
expect_error_line "p.json" "name the cluster"
expect 3 plan -w mlp -c "1x p100-server" -p "$scratch/p.json"
expect_error_line "p.json" "none of a layer of mlp"
expect 3 profile import "$scratch/trace.json" -w mlp --micro-batches 128 -o "$scratch/q.json"
expect_error_line "none of the 7 layers of mlp" "record_function"
expect 2 profile import "$scratch/trace.json" -w mlp
# If memory does not suffice nothing is measured: the system would kill the ranks during it.
expect 1 profile -w gpt2 --ranks 1 --micro-batches 1,4096 -q -o "$scratch/q.json"
expect_error_line "gpt2 with micro-batches of 4096" "profile smaller ones"
[ ! -e "$scratch/q.json" ] && pass || fail "half a profile is left"
# workload import detects a trace, compressed or not, and gives the same profile.
gzip -k "$scratch/trace.json"
for trace in trace.json trace.json.gz; do
    expect 0 workload import "$scratch/$trace" -w lenet --micro-batches 128 -o "$scratch/same.json"
    grep -q "profiler" "$scratch/err" && pass || fail "import does not say what it read"
    grep -v provenance "$scratch/p.json" >"$scratch/p" && grep -v provenance "$scratch/same.json" | cmp -s - "$scratch/p" && pass || fail "$trace gives another profile"
done
expect 0 plan -w lenet -c "1x p100-server" --fix pp=1,dp=4,micro_batch=32 --no-simulate -p "$scratch/same.json"
expect_output "Step time   250 ms"
expect 0 workload import "$scratch/trace.json" --quiet
expect_output '"trainyard.profile/1"' "annotation conv2d1"
expect 2 workload import "$scratch/trace.json" -w lenet
expect_error_line "--workload and --micro-batches together"
expect 2 workload import "$scratch/trace.json" --seq 5
expect 2 profile export "$scratch/trace.json"
finish
