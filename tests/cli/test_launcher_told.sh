#!/bin/sh
# A launcher that is terminated, or killed.
. "$(dirname "$0")/lib.sh"
export OMPI_MCA_odls_base_sigkill_timeout=10 # it gives its ranks a second to save, which other processes may use up
mkdir "$scratch/tmp"
export TMPDIR="$scratch/tmp"

expect 0 plan -w mlp -c local:2 --fix pp=1,compression=none -q -o "$scratch/plan.json"
# A terminated launcher passes the signal on; a killed one leaves a checkpoint to resume from.
for signal in TERM KILL; do
    "$TRAINYARD" run "$scratch/plan.json" --steps 1000000 --checkpoint "$scratch/$signal" --checkpoint-every 2 -q -o "$scratch/none.json" \
        >"$scratch/out" 2>"$scratch/err" &
    pid=$!
    tries=0
    while [ $tries -lt 600 ] && ! [ -e "$scratch/$signal/latest.json" ]; do tries=$((tries + 1)); sleep 0.1; done
    launcher=$(pgrep -P $pid -x "mpirun|prterun")
    kind=$(cat "/proc/$launcher/comm")
    kill -$signal "$launcher"
    wait $pid
    got=$?
    if [ $got -eq 1 ]; then pass; else fail "exit code $got instead of 1 after SIG$signal to the launcher"; fi
    case $signal-$kind in
    TERM-prterun) text=" $scratch/TERM" ;; # which gives ranks a quarter of a second: saved, or a checkpoint to go on from
    TERM-*) text="saved in $scratch/TERM" ;;
    *) text="ended by signal 9 (Killed); --resume goes on from $scratch/KILL/latest.json" ;;
    esac
    if grep -qF "$text" "$scratch/err"; then pass; else fail "after SIG$signal to the launcher stderr lacks '$text'"; fi
done
finish
