#!/bin/sh
# Every example of `help` and of the man pages runs and ends with 0, in the order of the commands:
# later ones read the output of earlier ones. With TY_ALL measurements run in full, and so does
# `demo`, which otherwise only `readme` runs.
. "$(dirname "$0")/lib.sh"
manual=$(dirname "$TRAINYARD")/cli/manual
mkdir "$scratch/made" "$scratch/bin"
ln -s "$TRAINYARD" "$scratch/bin/trainyard"
PATH="$scratch/bin:$PATH"
export TRAINYARD_WORKER="$WORKER"
# A launcher may be root here, and have more ranks than cores.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe # as Open MPI 4 and 5 have it
[ -z "${TY_ALL:-}" ] || unset TRAINYARD_PROFILE_HASTE
cd "$scratch/made" || exit 1

# Files that the reader provides.
cp "$SOURCE/docs/examples/encoder.graph.txt" graph.txt
cp "$SOURCE/tests/topologies/data/nccl.xml" topology.xml
cp "$SOURCE/tests/fuzz/corpus/hf/llama-2-7b.json" config.json
cp "$SOURCE/README.md" book.txt
cat >all_reduce_perf.log <<'END'
# nThread 1 nGpus 2 minBytes 8 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#  Rank  0 Pid 1 on host-0 device  0 [0x07] NVIDIA A100
#  Rank  1 Pid 1 on host-0 device  1 [0x08] NVIDIA A100
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1    20.00   52.43   52.43      0    20.00   52.43   52.43      0
END
cat >rows.csv <<'END'
workload,cluster,global_batch,seq,fix,step_s
gpt2-medium,2x dgx-a100,128,1024,"dp=16,micro_batch=8",0.1997
gpt2-medium,8x dgx-a100,64,1024,"dp=64,micro_batch=1",0.0623
END
cat >published.json <<'END'
{"schema": 1, "family": "law", "count": 1, "records": [{"id": "law/a", "kind": "accuracy", "source": {"work": "made"},
 "confidence": "read", "measured": {"metric": "top1", "value": 76, "unit": "%"}}]}
END

for command in $(trainyard --help | awk '/^  [a-z]/ { print $1 }'); do
    for form in "help $command" "$command --help"; do
        trainyard $form | sed '1,/^For example:$/d; s/^  //' >"$scratch/help"
        # Man pages write a hyphen with a backslash before it, and a backslash as \e.
        sed -n '/^\.SH EXAMPLES$/,/^\.fi$/ { /^\./d; s/\\-/-/g; s/\\e/\\/g; p; }' "$manual/trainyard-$command.1" >"$scratch/man"
        [ -s "$scratch/help" ] && cmp -s "$scratch/help" "$scratch/man" && pass ||
            fail "trainyard $form and the man page have other examples, or none"
    done
    cat "$scratch/help" >>"$scratch/commands"
done

while IFS= read -r line; do
    [ "$line" != "trainyard demo" ] || [ -n "${TY_ALL:-}" ] || continue
    sh -c "$line" >"$scratch/out" 2>"$scratch/err" </dev/null
    got=$?
    if [ $got -eq 0 ]; then pass; else fail "exit code $got instead of 0: $line"; fi
    [ -s "$scratch/out" ] || [ -s "$scratch/err" ] || printf '%s\n' "$line" | grep -q -e ' -o ' && pass || fail "prints and writes nothing: $line"
    for file in $(printf '%s\n' "$line" | sed -n 's/.* \(-o\|--trace\) \([^ ]*\).*/\2/p'); do
        [ -e "$file" ] && pass || fail "does not write $file: $line"
        case $file in
        *trace.json | *.html | *.tokens | launch) ;; # of kinds that check does not read
        *) expect 0 check "$file" ;;
        esac
    done
done <"$scratch/commands"
[ "$(wc -l <"$scratch/commands")" -ge 30 ] || fail "help has hardly any examples"
finish
