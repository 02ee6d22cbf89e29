#!/bin/sh
# Under a limit of the address space, as batch systems set it: an answer or an error, never a hang.
. "$(dirname "$0")/lib.sh"
export TMPDIR="$scratch"
if [ -n "${TY_SANITIZE:-}" ]; then
    echo "skipped: a sanitizer reserves the address space"
    exit 77
fi

expect 0 plan -w mlp -c local:2 --fix pp=1,compression=none -q -o "$scratch/plan.json"

for limit in 65536 133000 204800 512000 ${TY_ALL:+50000 120000 131072 150000 307200}; do
    for command in "plan -w lenet -c 1x\ p100-server --fix pp=2,dp=2 -q" "simulate $scratch/plan.json" "run $scratch/plan.json --steps 2 -q -o $scratch/run.json"; do
        eval "set -- $command"
        (
            # shellcheck disable=SC3045
            ulimit -v $limit
            exec timeout -s KILL 120 "$TRAINYARD" "$@" # a launcher that hangs is abandoned after 30
        ) >"$scratch/out" 2>"$scratch/err" </dev/null
        got=$?
        if [ $got -eq 137 ]; then
            fail "hangs below $limit KiB: $command"
        elif [ $got -ne 0 ] && [ ! -s "$scratch/err" ]; then
            fail "exit code $got without a word below $limit KiB: $command"
        elif [ $got -ne 0 ] && [ $got -ne 1 ] && [ $got -ne 127 ]; then # 127: the system's loader
            fail "crashes ($got) below $limit KiB: $command"
        elif [ $limit -ge 512000 ] && [ $got -ne 0 ] && [ "$1" != run ]; then
            fail "500 MiB are not enough: $command"
        else
            pass
        fi
    done
done

# One thread, for any number of cores.
OPENBLAS_NUM_THREADS=64 "$TRAINYARD" plan -w resnet50 -c "16x dgx-a100" --top 20 -q >/dev/null 2>&1 &
pid=$!
sleep 0.3
threads=$(sed -n 's/^Threads:\t//p' /proc/$pid/status 2>/dev/null)
if [ "${threads:-1}" -eq 1 ]; then pass; else fail "planning has $threads threads"; fi
wait $pid

# Child processes have the caller's memory settings and no others.
cat >"$scratch/worker" <<EOF
#!/bin/sh
env >"$scratch/environment"
exit 1
EOF
chmod +x "$scratch/worker"
for own in "" glibc.malloc.check=0; do
    rm -f "$scratch/environment"
    env ${own:+GLIBC_TUNABLES=$own} TRAINYARD_WORKER="$scratch/worker" "$TRAINYARD" run "$scratch/plan.json" --steps 2 -q -o "$scratch/run.json" >/dev/null 2>&1 </dev/null
    found=$(sed -n 's/^GLIBC_TUNABLES=//p' "$scratch/environment")
    if [ -s "$scratch/environment" ] && [ "$found" = "$own" ]; then pass; else fail "a worker has GLIBC_TUNABLES=$found, expected '$own'"; fi
done
finish
