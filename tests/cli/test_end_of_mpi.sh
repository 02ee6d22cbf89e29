#!/bin/sh
# A crash in MPI_Finalize, after the end of a run: the run's outcome is unchanged, and nothing is
# reported. PRELOAD: the library with such an MPI_Finalize.
. "$(dirname "$0")/lib.sh"
export TRAINYARD_WORKER="$WORKER"
cd "$scratch" || exit 1
expect 0 plan -w mlp -c local:2 --fix dp=2 --no-simulate -q -o plan.json
printf 'these are no weights' >spoilt.safetensors
expect 0 run plan.json --anyway --steps 3 -q -o plain.json
losses() {
    "${PYTHON:-python3}" -c 'import json, sys; print(json.load(open(sys.argv[1]))["losses"])' "$1"
}
for CRASH in 11 7 6; do
    export CRASH LD_PRELOAD="$PRELOAD"
    expect 0 run plan.json --anyway --steps 3 -q -o run.json
    [ ! -s "$scratch/err" ] && pass || fail "signal $CRASH: a run says $(head -n 1 "$scratch/err")"
    expect 3 run plan.json --anyway --steps 1 --init spoilt.safetensors -q -o none.json
    expect_error_line "spoilt.safetensors"
    unset LD_PRELOAD
    [ "$(losses run.json)" = "$(losses plain.json)" ] && pass || fail "signal $CRASH: other losses"
    rm -f run.json
done
finish
