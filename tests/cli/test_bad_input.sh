#!/bin/sh
# Bad files: exit code 3, one line with file, pointer, found and expected, and no output files.
. "$(dirname "$0")/lib.sh"
mkdir "$scratch/made"
plan=$scratch/good.json

expect 0 plan -w lenet -c "1x p100-server" --fix pp=2,dp=2 --no-simulate -o "$plan"

# edit NAME SED-EXPRESSION: a damaged copy of the plan.
edit() {
    bad=$scratch/$1.json
    sed "$2" "$plan" >"$bad"
    if cmp -s "$plan" "$bad"; then fail "the edit of $1 changed nothing"; fi
}

head -c 3000 "$plan" >"$scratch/truncated.json"
expect 3 estimate "$scratch/truncated.json"
expect_error_line "truncated.json"
: >"$scratch/empty.json"
expect 3 estimate "$scratch/empty.json"
expect_error_line "empty.json"
expect 3 estimate "$scratch/absent.json"
expect_error_line "absent.json"
edit unknown-key '0,/"global_batch"/s//"globall_batch"/'
expect 3 estimate "$bad"
expect_error_line "unknown-key.json" "global"
edit negative '0,/"replicas": [0-9]*/s//"replicas": -2/'
expect 3 estimate "$bad"
expect_error_line "negative.json:/stages/0/replicas" "-2" "expected"
edit nan '0,/"replicas": [0-9]*/s//"replicas": NaN/'
expect 3 estimate "$bad"
expect_error_line "nan.json:/stages/0/replicas: found NaN"
edit huge '0,/"micro_batch_size": [0-9]*/s//"micro_batch_size": 1e400/'
expect 3 estimate "$bad"
expect_error_line "huge.json" "micro_batch_size: found NaN, Infinity or a number beyond 1.8e308"
edit other-workload '0,/"out_channels": 20/s//"out_channels": 21/'
expect 3 estimate "$bad"
expect_error_line "other-workload.json"
edit digest '0,/"workload_digest": "./s//"workload_digest": "x/'
expect 3 estimate "$bad"
expect_error_line "digest.json" "workload"

expect 0 workload export lenet -o "$scratch/w.json"
sed '0,/"inputs": \[0\]/s//"inputs": [5]/' "$scratch/w.json" >"$scratch/cycle.json"
expect 3 workload show "$scratch/cycle.json"
expect_error_line "cycle.json" "inputs" "5"
sed 's/"trainyard.workload\/1"/"trainyard.workload\/9"/' "$scratch/w.json" >"$scratch/schema.json"
expect 3 workload show "$scratch/schema.json"
expect_error_line "schema.json" "trainyard.workload/9"

# The worker refuses a corrupt data set, and no run file appears.
mkdir "$scratch/data"
for part in train-images-idx3 train-labels-idx1 t10k-images-idx3 t10k-labels-idx1; do
    printf 'not an IDX file' >"$scratch/data/$part-ubyte"
done
export XDG_CACHE_HOME="$scratch/cache"
expect 0 plan -w mlp -c "1x p100-server" --fix pp=1,dp=4 --no-simulate -o "$scratch/mlp.json"
expect 3 run "$scratch/mlp.json" --anyway --steps 2 --data "$scratch/data" -q -o "$scratch/made/run.json"
expect_error_line "train-images-idx3-ubyte" "found" "expected"
expect_only

# A name with a newline, a separator or a terminal's control sequence is refused when it is read,
# and the message shows it escaped.
escape=$(printf '\033')
for hidden in '\n' '\u2028' '\u0085' '\u001b[2J' '\u202e'; do
    sed "0,/\"cluster_name\": \"/s//&a\\${hidden}b/" "$plan" >"$scratch/hidden.json"
    expect 3 export "$scratch/hidden.json" --to mpirun
    expect_error_line "hidden.json:/cluster_name" "expected a string without controls"
    expect 0 cluster export "1x p100-server" -o "$scratch/c.json"
    sed "0,/\"name\": \"/s//&a\\${hidden}b/" "$scratch/c.json" >"$scratch/hidden.json"
    expect 3 cluster export "$scratch/hidden.json" --to slurm
    expect_error_line "hidden.json:/name" "expected a string without controls"
done
printf '{"schema": "trainyard.plan/1", "a%s[2Jb": 1}' "$escape" >"$scratch/hidden.json"
expect 3 estimate "$scratch/hidden.json"
expect 3 estimate "$scratch/a${escape}[2J"
expect_error_line "a?[2J"
expect 3 estimate "$scratch/$(printf 'a\302\2332J')"
expect_error_line "a??2J"
if grep -q "$escape" "$scratch/err"; then fail "a message commands the terminal"; else pass; fi

# A byte order mark is not part of the content; a pipe without a writer does not block forever.
printf '\357\273\277' >"$scratch/marked.json"
cat "$plan" >>"$scratch/marked.json"
expect 0 estimate "$scratch/marked.json"
mkfifo "$scratch/pipe"
expect 3 estimate "$scratch/pipe"
expect_error_line "pipe: found a pipe that nothing came from"
cat "$plan" >"$scratch/pipe" &
expect 0 estimate "$scratch/pipe"
wait
# Several readers in turn would each wait, or find that the first one has emptied it.
expect 3 check "$scratch/pipe"
expect_output "pipe: found a pipe, expected a file"
# A byte order mark before a text changes nothing in any format.
marked() { # FILE COMMAND...: the command's answer about the file, and about the file with the mark
    original=$1
    shift
    cp "$original" "$scratch/plain"
    { printf '\357\273\277'; cat "$original"; } >"$scratch/with"
    mkdir -p "$scratch/in"
    for form in plain with; do
        mv "$scratch/$form" "$scratch/in/file.txt"
        expect 0 "$@" "$scratch/in/file.txt"
        cp "$scratch/out" "$scratch/$form.out"
    done
    if [ -s "$scratch/plain.out" ] && cmp -s "$scratch/plain.out" "$scratch/with.out"; then pass; else fail "a mark changes what is read of $original"; fi
}
for file in topology.conf topology.yaml ibnetdiscover.txt nccl.xml smi.txt; do
    marked "$SOURCE/tests/topologies/data/$file" cluster import --host dgx-a100 -q -o -
done
corpus=$SOURCE/tests/fuzz/corpus
marked "$corpus/slurm_yaml/block.yaml" cluster import --host dgx-a100 -q -o -
for file in megatron/llama-2-7b.txt megatron/mixtral.yaml pipedream/chain.graph.txt hf/bert-base.json calculon/tiny.json; do
    marked "$corpus/$file" workload import -q -o -
done
marked "$corpus/pipedream/chain.graph.txt" partition --machines 2 --bandwidths 1GB/s
marked "$corpus/kineto/steps.json" workload import -q -o -
{ printf '\357\273\277'; echo 'no-simulate = true'; } >"$scratch/config"
TRAINYARD_CONFIG="$scratch/config" expect 0 plan -w lenet -c "1x p100-server" -q
marked "$SOURCE/tests/workloads/data/megatron.yaml" plan -c "1x dgx-a100" --no-simulate -q --config
marked "$SOURCE/tests/workloads/data/torchtitan.toml" plan -c "8x dgx-a100" --no-simulate -q --config
# No reader waits for a pipe in place of data: neither libraries nor memory maps.
mkdir "$scratch/pipes"
mkfifo "$scratch/pipes/train-images-idx3-ubyte"
expect 3 run "$scratch/mlp.json" --anyway --steps 2 --data "$scratch/pipes" -q -o "$scratch/made/run.json"
expect_error_line "train-images-idx3-ubyte: found a pipe, expected a file"
expect 3 data text "$scratch/pipe"
expect_error_line "pipe: found a pipe, expected a file"
# An invalid query about this host is refused before any measurement: none can run here.
while read -r code ranks words; do
    TRAINYARD_WORKER=/bin/false XDG_CACHE_HOME="$scratch/unmeasured" expect "$code" ${words%%|*} -w mlp -c "local:$ranks" # several words
    expect_error_line "${words#*|}"
done <<'END'
2 3 plan --fix servers=3|servers: found 3, expected fewer than the 3 devices of local:3
2 3 plan --fix servers=1,algorithm=ring|servers: found 1, expected 0: another algorithm
2 3 memory --fix shard=tensor|shard: found "tensor" without servers
2 2 plan --fix ep=2,tables=row|tables: found "row", expected "whole": mlp has no embedding_bag
2 2 plan --fix pp=2,staleness=1|staleness: found 1, expected 0: no stage has replicas
2 2 plan --fix staleness=99|--fix staleness: found "99", expected a whole number from 0 to 64
2 2 plan --fix pp=3|--fix pp: found "3", expected a whole number from 1 to 2
2 2 plan --fix devices=3|--fix devices: found "3"
2 2 plan --global-batch 3 --fix micro_batch=2|a global batch of 3 cannot be cut into micro-batches of 2
2 2 plan --precision fp33|--precision: found 'fp33'
2 2 plan --stack nosuch|no stack or file 'nosuch'
2 2 plan --system ddpp|unknown system 'ddpp'; did you mean ddp
2 2 plan --objective speed|--objective: found 'speed'
2 2 plan --objective cost|how mlp converges is not known
2 2 plan --system ddp --objective cost|--objective and --system: found both
3 2 plan --task nosuch|no known task is called 'nosuch'
2 2 plan --input speed=1|--input
2 2 calibrate --until accuracy=0.5 --fix pp=3|--fix pp: found "3"
END
TRAINYARD_WORKER=/bin/false XDG_CACHE_HOME="$scratch/unmeasured" expect 1 plan -w mlp -c local:2 -q # a valid one measures
grep -q "ended with code 1 and without a word" "$scratch/err" && pass || fail "nothing is measured"
# More ranks than this host supports are also refused there; an invalid cache folder is reported,
# and no cache is used.
many=$((16 * $(nproc) + 1))
for words in plan memory profile; do
    ranks="-c local:$many"
    [ $words != profile ] || ranks="--ranks $many"
    # shellcheck disable=SC2086 # two words
    TRAINYARD_WORKER=/bin/false XDG_CACHE_HOME="$scratch/unmeasured" expect 1 $words -w mlp $ranks
    expect_error_line "$many processes, expected at most $((many - 1)) on this machine"
done
TRAINYARD_WORKER=/bin/false XDG_CACHE_HOME="$scratch/config/cache" expect 1 plan -w mlp -c local:2 # below a file
if grep -q "warning: measurements are not kept: $scratch/config/cache: Not a directory" "$scratch/err" &&
    grep -q "ended with code 1 and without a word" "$scratch/err"; then pass; else fail "a cache folder that cannot be"; fi
# One table of exit codes: an unknown name is bad input, an invalid query is a usage error in every
# command, and a query without a plan is neither.
expect 3 plan -w lenet -c "1x p100-server" --objective time-to-target --task nosuch --no-simulate -q
expect_error_line "no known task is called 'nosuch'" "expected a calibration file, resnet50-imagenet, " " or "
expect 3 score "$plan" --task nosuch
expect 3 whatif -w lenet -c "1x p100-server" -q --vary task=nosuch
expect 3 plan -w nosuch -c "1x p100-server" -q
expect 3 plan -w lenet -c "host:1 gpu:4 @p100 nosuch" -q
expect 2 whatif -w lenet -c "1x p100-server" -q --vary bandwidth.nosuch=x1,x2
expect_error_line "no combination makes sense"
expect_output 'has no link type "nosuch" with a bandwidth_bytes_per_s; it has pcie3'
expect 0 whatif -w lenet -c "1x p100-server" -q --vary cluster="1x p100-server,1x dgx-a100" --vary bandwidth.nvlink3=x1
expect_output 'no plan: cluster "1x p100-server" has no link type "nvlink3"'
expect 4 plan -w gpt3-175b -c "1x p100-server" --no-simulate -q
# A figure beyond the range of numbers is printed as it was written.
expect 2 simulate "$plan" --straggler 0=1e999
expect_error_line "found factor '1e999', expected 0.01 to 1e6"
expect 2 cluster import "$SOURCE/tests/topologies/data/topology.conf" --host dgx-a100 --oversubscription 1e999
expect_error_line "found '1e999', expected 1 to 1000"
# A contradiction is refused; a repetition is not.
expect 2 plan -w lenet -c "1x p100-server" --fix pp=2,pp=4 --no-simulate
expect_error_line "found pp=2 and pp=4"
expect 0 plan -w lenet -c "1x p100-server" --fix pp=2,pp=2 --no-simulate -q

# If output cannot be written, no partial file remains.
expect 1 plan -w lenet -c "1x p100-server" --no-simulate -o "$scratch/no/such/folder/plan.json"
expect_error_line "no/such/folder"
if [ "$(id -u)" -eq 0 ] && mkdir "$scratch/full" && mount -t tmpfs -o size=16k none "$scratch/full" 2>/dev/null; then
    expect 1 plan -w vgg16 -c "1x dgx-a100" --no-simulate -o "$scratch/full/plan.json"
    if [ -z "$(ls -A "$scratch/full")" ]; then pass; else fail "a full disk keeps: $(ls -A "$scratch/full")"; fi
    head -c 20000 /dev/zero >"$scratch/full/filler" 2>/dev/null
    expect 1 whatif -w lenet -c "1x p100-server" --no-simulate --vary batch=64 -q -o "$scratch/full/table.json"
    expect_error_line "table.json: No space left on device"
    expect 1 data tokenize "$0" -o "$scratch/full/tokens"
    expect_error_line "tokens: No space left on device"
    mount -o remount,ro "$scratch/full"
    expect 1 export "$plan" --to mpirun -o "$scratch/full/launch"
    expect_error_line "$scratch/full/launch: Read-only file system"
    umount "$scratch/full"
else
    echo "skipped: the full disk (needs root and a tmpfs)"
fi
# Standard output that is full or closed.
for words in help --version "help plan" "plan -w lenet -c local:1 --no-simulate -q"; do
    # shellcheck disable=SC2086 # several words
    "$TRAINYARD" $words >/dev/full 2>"$scratch/err"
    got=$?
    [ $got -eq 1 ] && pass || fail "exit code $got of $words on a full disk"
    expect_error_line "standard output: No space left on device"
    # shellcheck disable=SC2086 # several words
    "$TRAINYARD" $words >&- 2>"$scratch/err"
    got=$?
    [ $got -eq 1 ] && pass || fail "exit code $got of $words without an output"
    expect_error_line "standard output: Bad file descriptor"
done

# Empty names, settings that are no text, names that cannot be seen.
expect 2 plan -w lenet -c local:1 -o ''
expect_error_line "--output: found an empty name, expected FILE"
expect 2 run "$plan" --checkpoint=
expect_error_line "--checkpoint: found an empty name, expected DIR"
printf 'seed = 1\nprecision = bf\00016\n' >"$scratch/settings"
TRAINYARD_CONFIG=$scratch/settings expect 3 config
expect_error_line "settings:2: found a NUL byte"
for hidden in '\u200b' '\udb40\udc41'; do
    "$TRAINYARD" workload export lenet | sed "s/\"name\": \"lenet\"/\"name\": \"le$(printf '%s' "$hidden" | sed 's/\\/\\\\/g')net\"/" >"$scratch/hidden.json"
    expect 3 workload show "$scratch/hidden.json"
    expect_error_line "/name: found" "invisible characters"
done
expect 4 systems -w llama-3.1-405b -c "1x dgx-a100" --json
expect_error_line "no system has a plan"
finish
