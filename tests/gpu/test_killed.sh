#!/bin/sh
# Ranks as processes, over the stand-in for NCCL: they train as over the host's memory. And with one
# of them killed at a point from a seed, so that the other one must detect it and end.
#   KILLS  number of kills per plan (4)
. "$SOURCE/tests/cli/lib.sh"
python=${PYTHON:-python3}
cd "$scratch" || exit 1
export TRAINYARD_CUDA_PLUGIN="$EMULATOR" TRAINYARD_EMULATED_DEVICES=2 TRAINYARD_EMULATED_PATIENCE=60

# The exit of a rank; mpirun does not report that of a killed one.
cat >rank.sh <<'RANK'
"$WORKER" -q "$1/job.json" >"$1/said.$OMPI_COMM_WORLD_RANK" 2>&1
echo $? >"$1/code.$OMPI_COMM_WORLD_RANK"
RANK
# run JOB: a job of two processes, whose launcher ends neither because the other is gone
run() {
    rm -rf files "$1"/code.* "$1"/said.* "$1/run.json"
    mkdir files
    TRAINYARD_EMULATED_NCCL=$scratch/files timeout -k 5 100 mpirun --enable-recovery --allow-run-as-root --oversubscribe -n 2 \
        --mca mpi_yield_when_idle 1 sh rank.sh "$1" >mpirun.out 2>&1
    codes=$(cat "$1/code.0" "$1/code.1" 2>/dev/null | tr '\n' ' ')
    cat "$1"/said.* >said 2>/dev/null
    grep -q "FAIL emulator" said && fail "$1: $(grep 'FAIL emulator' said | head -n 1)"
}
losses() {
    "$python" -c 'import json, sys; print(*json.load(open(sys.argv[1]))["losses"])' "$1/run.json" 2>&1
}

killed=0
for job in replicas zero-3 halves; do
    mkdir $job
    "$CASES" --job mlp $job "$scratch/$job" >/dev/null || fail "no job $job"
    TRAINYARD_LINK=host run $job
    expected=$(losses $job)
    TRAINYARD_LINK=nccl
    export TRAINYARD_LINK
    run $job
    [ "$codes" = "0 0 " ] && pass || fail "$job: exit codes $codes: $(head -n 3 said)"
    grep -q "link nccl" $job/run.json && pass || fail "$job did not go over NCCL"
    if "$python" -c 'import sys
a, b = (list(map(float, text.split())) for text in sys.argv[1:])
assert len(a) == len(b) == 10 and all(abs(x - y) <= 1e-5 * abs(y) for x, y in zip(a, b)), (a, b)' "$(losses $job)" "$expected" 2>err
    then pass; else fail "$job trains otherwise over NCCL"; fi
    for seed in opening $(seq 1 "${KILLS:-4}"); do # while the link opens, and anywhere
        set -- 1 2
        [ $seed = opening ] || set -- $("$python" -c 'import random, sys; r = random.Random(sys.argv[1]); print(r.randrange(2), r.randint(1, 300))' "$job $seed")
        TRAINYARD_EMULATED_KILLED=$1:$2
        export TRAINYARD_EMULATED_KILLED
        run $job
        other=$((1 - $1))
        case "$codes" in
        "0 0 ") ;; # it ended before
        *137*)
            killed=$((killed + 1))
            [ "$(cat "$job/code.$1")" = 137 ] && [ "$(cat "$job/code.$other")" = 1 ] && pass || fail "$job, seed $seed: exit codes $codes"
            grep -q "the process of local rank $1 is gone" "$job/said.$other" && pass ||
                fail "$job, seed $seed: rank $other says $(head -n 2 "$job/said.$other")"
            ;;
        *) fail "$job, seed $seed: exit codes $codes: $(head -n 3 said)" ;;
        esac
    done
    unset TRAINYARD_EMULATED_KILLED TRAINYARD_LINK
done
[ $killed -ge "${KILLS:-4}" ] && pass || fail "killed $killed times only"
echo "killed $killed times"
finish
