#!/bin/sh
# Man pages, completion, defaults from files, check, colour.
. "$(dirname "$0")/lib.sh"
manual=$(dirname "$TRAINYARD")/cli/manual
mkdir "$scratch/bin" "$scratch/made"
ln -s "$TRAINYARD" "$scratch/bin/trainyard"
PATH="$scratch/bin:$PATH"
cd "$scratch" || exit 1
here() { # here WHAT COMMAND
    if command -v "$2" >/dev/null; then return 0; fi
    echo "skipped: $1 ($2 is not here)"
    return 1
}

# A page for every command, without mistakes; its options are those of --help.
for command in $("$TRAINYARD" --help | awk '/^  [a-z]/ { print $1 }'); do
    page=$manual/trainyard-$command.1
    if [ -s "$page" ]; then pass; else fail "no man page of $command"; continue; fi
    grep -q "trainyard.-$command" "$manual/trainyard.1" && pass || fail "trainyard.1 lacks $command"
    "$TRAINYARD" $command --help | sed -n 's/^ *\(-., \)\{0,1\}\(--[a-z-]*\).*/\2/p' | sort -u >help
    sed 's/\\-/-/g' "$page" | sed -n 's/^\\fB\(-.\\fR, \\fB\)\{0,1\}\(--[a-z-]*\)\\fR.*/\2/p' | sort -u >man
    if cmp -s help man; then pass; else fail "the man page of $command has other options than --help"; fi
    if grep -q " $command) words=" "$manual/trainyard.bash"; then pass; else fail "bash does not complete $command"; fi
done
if here "lint of man pages" mandoc; then
    # Without a date pages are the same in every build.
    mandoc -T lint -W warning "$manual"/*.1 | grep -v 'missing date' >out
    if [ ! -s out ]; then pass; else
        fail "man pages"
        head -n 5 out
    fi
fi

# Shells accept the completion, and bash completes with it.
bash -n "$manual/trainyard.bash" && pass || fail "bash completion"
complete_words() {
    bash -c '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _trainyard; printf "%s\n" "${COMPREPLY[@]}"' \
        "$manual/trainyard.bash" "$@" | sort | tr '\n' ' '
}
words=$(complete_words trainyard es)
[ "$words" = "estimate " ] && pass || fail "bash completes es to $words"
words=$(complete_words trainyard plan --wor)
[ "$words" = "--workload " ] && pass || fail "bash completes --wor to $words"
words=$(complete_words trainyard plan --workload lene)
[ "$words" = "lenet " ] && pass || fail "bash completes lene to $words"
words=$(complete_words trainyard plan --stack megatron-v)
[ "$words" = "megatron-vtrain-cluster megatron-vtrain-node " ] && pass || fail "bash completes megatron-v to $words"
# Keys of --fix, then their values, after the last comma; text that readline has split off at an
# equals sign is not repeated.
complete_fix() {
    bash -c '. "$0"; COMP_LINE="trainyard plan -w lenet --fix $1"; COMP_POINT=${#COMP_LINE}; COMP_WORDS=(trainyard plan -w lenet --fix "$1")
        COMP_CWORD=5; _trainyard; printf "%s\n" "${COMPREPLY[@]}"' "$manual/trainyard.bash" "$1" | sort | tr '\n' ' '
}
[ "$(complete_fix s)" = "schedule= servers= shard= sp= staleness= " ] && pass || fail "bash completes --fix s to $(complete_fix s)"
[ "$(complete_fix zero=)" = "0 1 2 3 " ] && pass || fail "bash completes --fix zero= to $(complete_fix zero=)"
[ "$(complete_fix tp=2,sched)" = "2,schedule= " ] && pass || fail "bash completes --fix tp=2,sched to $(complete_fix tp=2,sched)"
[ "$(complete_fix tp=2,schedule=pi)" = "pipedream pipedream-2bw " ] && pass || fail "bash completes a second pin to $(complete_fix tp=2,schedule=pi)"
# All keys are in the completion, the help and the page.
for key in $(complete_fix ''); do
    grep -q "$key" "$manual/trainyard-plan.1" && "$TRAINYARD" plan --help | grep -q "[ (]$key" && pass || fail "the help or the manual lacks --fix $key"
    grep -q "[( ]$key" "$manual/_trainyard" && grep -q " $key" "$manual/trainyard.fish" && pass || fail "zsh or fish does not complete --fix $key"
done
words=$(complete_words trainyard export p.json --to k8s)
[ "$words" = "k8s-mpijob k8s-pytorchjob " ] && pass || fail "bash completes k8s to $words"
words=$(complete_words trainyard workload im)
[ "$words" = "import " ] && pass || fail "bash completes im to $words"
if here "zsh completion" zsh; then zsh -n "$manual/_trainyard" && pass || fail "zsh completion"; fi
if here "fish completion" fish; then
    HOME=$scratch fish -c "source $manual/trainyard.fish; complete -C 'trainyard estim'" >out 2>err
    grep -q '^estimate' out && pass || fail "fish completion: $(cat out err)"
fi

# Defaults: the user's file, then the folder's, then the command line.
unset TRAINYARD_CONFIG
export XDG_CONFIG_HOME="$scratch/xdg"
mkdir -p xdg/trainyard
printf '# mine\ncluster = 1x dgx-a100\nplan.no-simulate = true\nquiet = true\n' >xdg/trainyard/config
expect 0 plan -w lenet --json
expect_output '"cluster_name": "1x dgx-a100"'
printf 'cluster = 2x p100-server\n' >trainyard.conf
expect 0 plan -w lenet --json
expect_output '"cluster_name": "2x p100-server"'
expect 0 plan -w lenet -c "1x dgx1-v100" --json
expect_output '"cluster_name": "1x dgx1-v100"'
expect 0 config --show-origin
expect_output "trainyard.conf:1	cluster = 2x p100-server" "xdg/trainyard/config:3	plan.no-simulate = true"
expect 0 config --json
expect_output '"schema": "trainyard.config/1"' '"command": "plan"'
TRAINYARD_CONFIG=/dev/null expect 0 config
[ ! -s "$scratch/out" ] && pass || fail "TRAINYARD_CONFIG does not stand in for the files"
for line in 'clutser = x' 'cluster' 'top = many' 'plan.data = x' 'output = x' 'nothing.top = 1' 'quiet = yes' 'cluster ='; do
    printf '\n%s\n' "$line" >trainyard.conf
    expect 3 plan -w lenet
    expect_error_line "trainyard.conf:2" "found" "expected"
done
printf 'clutser = x\n' >trainyard.conf
expect 3 config
expect_error_line "did you mean 'cluster'"
# The defaults file in the current folder cannot start programs or name other folders.
rm trainyard.conf
expect 0 plan -w lenet -c "1x p100-server" --fix pp=1 --no-simulate -o conf-plan.json
for line in 'script = here.py' 'export.image = registry.example/x' 'data = /etc' 'run.checkpoint = ../elsewhere' 'task = a/../../b' \
    'profile = ~/p.json' 'workload = /tmp/w.json' 'cluster = host:1 gpu:8 @../mine.json nvlink4 ndr400'; do
    printf '%s\n' "$line" >trainyard.conf
    expect 3 export conf-plan.json --to torchrun
    expect_error_line "trainyard.conf:1" "--trust-config"
    expect 0 export conf-plan.json --to torchrun --trust-config
    cp trainyard.conf named.conf
    rm trainyard.conf
    TRAINYARD_CONFIG=named.conf expect 0 export conf-plan.json --to torchrun
done
# Nor can a link in it, even to a file that does not exist yet.
mkdir -p inside/deep
ln -s / away
ln -s /not-yet nowhere
ln -s deep inside/near
for line in 'run.checkpoint = away/state' 'data = away' 'run.checkpoint = nowhere' 'run.checkpoint = inside/../away' 'data = ./away/x'; do
    printf '%s\n' "$line" >trainyard.conf
    expect 3 export conf-plan.json --to torchrun
    expect_error_line "trainyard.conf:1" "--trust-config"
    expect 0 export conf-plan.json --to torchrun --trust-config
done
printf 'run.checkpoint = inside/near/state\nrun.data = inside//deep\n' >trainyard.conf
expect 0 export conf-plan.json --to torchrun
rm away nowhere
printf 'run.checkpoint = state\nrun.data = a/b..c\n' >trainyard.conf
expect 0 export conf-plan.json --to torchrun
printf 'trust-config = true\n' >trainyard.conf
expect 3 config
rm trainyard.conf
export TRAINYARD_CONFIG=/dev/null

# check: our files and those of other tools, ignored keys, errors.
expect 0 plan -w lenet -c "1x p100-server" --fix pp=2,dp=2 --no-simulate -o made/plan.json
expect 0 workload export lenet -o made/workload.json
expect 0 cluster export "2x dgx-a100" -o made/cluster.json
samples=$SOURCE/tests/fuzz/corpus
sed 's/"hidden_size"/"made_up_key": 1, "hidden_size"/' "$samples/hf/llama-2-7b.json" >made/config.json
printf '{"schema": "trainyard.device/1", "name": "mine", "source": "us", "like": "h100-sxm"}' >made/device.json
expect 0 check made/plan.json made/workload.json made/cluster.json made/device.json made/config.json "$samples/megatron/gpt-345m.sh" \
    "$SOURCE/tests/topologies/data/nccl.xml" "$samples/onnx/block.onnx" "$SOURCE/workloads/zoo/lenet.json"
expect_output "made/plan.json: trainyard.plan/1, good" "trainyard.cluster/1" "trainyard.device/1, good" "trainyard.zoo/1" "made_up_key" "Megatron-LM arguments, good" \
    "options not read"
sed 's/"replicas": 2/"replicas": -2/' made/plan.json >made/bad.json
printf '{"schema": "trainyard.plam/1"}' >made/schema.json
expect 3 check made/workload.json made/bad.json made/schema.json "$SOURCE/README.md" none.json
expect_output "made/workload.json: trainyard.workload/1, good" "made/bad.json: bad:" "/stages/0/replicas: found -2" \
    'did you mean "trainyard.plan/1"' "README.md: bad:" "no such file"
expect 3 check made/bad.json --json
expect_output '"schema": "trainyard.check/1"' '"is_good": false'
# Files that reports, calibrate, partition, score and validate read.
expect 0 whatif -w vgg16 -c "2x p100-server" --vary hosts=1,2 --no-simulate -q -o made/whatif.json
expect 0 estimate made/plan.json --json
cp "$scratch/out" made/estimate.json
expect 0 score made/plan.json --json
cp "$scratch/out" made/score.json
printf '%s' '{"schema": 1, "family": "law", "count": 1, "records": [
 {"id": "law/a", "kind": "accuracy", "source": {"work": "made"}, "confidence": "read", "measured": {"metric": "top1", "value": 76, "unit": "%"}}]}' >made/records.json
{
    echo '# nThread 1 nGpus 2 minBytes 8 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 validation: 1'
    echo '#  Rank  0 Pid 1 on host-0 device  0 [0x07] NVIDIA A100'
    echo '#  Rank  1 Pid 1 on host-0 device  1 [0x08] NVIDIA A100'
    echo '#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong'
    echo '     1048576        262144     float     sum      -1    20.00   52.43   52.43      0    20.00   52.43   52.43      0'
} >made/all_reduce.log
expect 0 check made/whatif.json made/estimate.json made/score.json made/records.json made/all_reduce.log \
    "$SOURCE/docs/examples/encoder.graph.txt"
expect_output "trainyard.whatif/1, good" "trainyard.estimate/1, good" "trainyard.score/1, good" "published measurements, good" \
    "nccl-tests log, good" "PipeDream graph.txt, good"
# And queries of other programs, with a description.
expect 0 check "$SOURCE/tests/workloads/data/torchtitan.toml" "$SOURCE/tests/workloads/data/accelerate.yaml" \
    "$SOURCE/tests/workloads/data/maxtext.yml" "$SOURCE/tests/workloads/data/nemo.yaml"
expect_output "torchtitan.toml: torchtitan TOML, good" "accelerate.yaml: an Accelerate configuration, good" "(--workload)" \
    "maxtext.yml: MaxText YAML, good" "nemo.yaml: NeMo, Megatron-Bridge or Megatron-LM YAML, good" "--vocabulary N"
sed 's/"samples_per_s": [0-9.]*/"samples_per_s": -1/' made/whatif.json >made/bad.json
expect 3 check made/bad.json
expect_output "/rows/0/samples_per_s: found -1"
expect 2 check

# Color on terminals only, and never with NO_COLOR.
if here "colour" script; then
    TERM=xterm script -qec "'$TRAINYARD' estimate none.json" /dev/null >out 2>&1 </dev/null
    grep -q "$(printf '\033\\[1;31m')" out && pass || fail "no colour on a terminal"
    TERM=xterm NO_COLOR=1 script -qec "'$TRAINYARD' estimate none.json" /dev/null >out 2>&1 </dev/null
    grep -q "$(printf '\033')" out && fail "colour in spite of NO_COLOR" || pass
fi
"$TRAINYARD" estimate none.json 2>err
grep -q "$(printf '\033')" err && fail "colour in a file" || pass
expect 2 workload exprt lenet
expect_error_line "did you mean 'export'"
finish
