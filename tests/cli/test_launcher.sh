#!/bin/sh
# Launchers that hang, as Open MPI's does if memory or files are limited: a run ends all the same.
. "$(dirname "$0")/lib.sh"
mkdir "$scratch/made" "$scratch/tmp" "$scratch/bin"
work=$scratch/made
export TMPDIR="$scratch/tmp"

expect 0 plan -w mlp -c local:2 --fix pp=1,compression=none --global-batch 64 --no-simulate -q -o "$work/plan.json"

# A fake mpirun with the given lines: `rank` becomes a process in its own group that ignores
# SIGTERM.
mpirun() {
    cat >"$scratch/bin/rank" <<'RANK'
#!/bin/sh
trap '' TERM INT
echo $$ >>"$TMPDIR/ranks"
while [ -e "$TMPDIR/ranks" ]; do sleep 1; done
RANK
    printf '#!/bin/sh\nrank() { setsid "%s/bin/rank" & }\n%s\n' "$scratch" "$1" >"$scratch/bin/mpirun"
    chmod +x "$scratch/bin/mpirun" "$scratch/bin/rank"
    : >"$TMPDIR/ranks"
}

# is_alive PID: it was killed, but may not have ended or been reaped yet.
is_alive() {
    tries=0
    while [ $tries -lt 100 ]; do
        case "$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$1/status" 2>/dev/null)" in
        '' | Z | X) return 1 ;;
        esac
        tries=$((tries + 1))
        sleep 0.1
    done
}

# expect_end PATIENCE CODE TEXT...: the run ends with it, and no process that its mpirun started is
# left.
expect_end() {
    patience=$1
    wanted=$2
    shift 2
    PATH="$scratch/bin:$PATH" TRAINYARD_START_SECONDS=$patience timeout -s KILL 300 "$TRAINYARD" run "$work/plan.json" --steps 2 -q \
        -o "$work/none.json" >"$scratch/out" 2>"$scratch/err"
    got=$?
    if [ $got -eq "$wanted" ]; then pass; else fail "exit code $got instead of $wanted"; fi
    for text in "$@"; do
        if grep -qF -- "$text" "$scratch/err"; then pass; else fail "stderr lacks '$text'"; fi
    done
    for rank in $(cat "$TMPDIR/ranks"); do
        if is_alive "$rank"; then
            fail "a rank outlives its launcher"
            kill -9 "$rank"
        else
            pass
        fi
    done
    rm "$TMPDIR/ranks"
    if [ -z "$(ls "$TMPDIR")" ]; then pass; else fail "left behind: $(ls "$TMPDIR")"; fi
}

mpirun 'rank; rank; wait'
expect_end 1 1 "mpirun was killed after 1 s: it did not bring up the ranks"
mpirun 'while :; do :; done & rank; wait'
expect_end 1 1 "mpirun was killed after 1 s: it did not bring up the ranks"
mpirun 'sleep 0.1 & exec sleep 1000'
expect_end 1 1 "mpirun was killed after 1 s: it "
# Ranks have begun: one that ended without being reaped, and none at all.
# shellcheck disable=SC2016
mpirun ': >"$TRAINYARD_SIGNS/begun"; rank; sleep 0.1 & exec sleep 1000'
expect_end 3 1 "mpirun was killed after 3 s: it took no note of ranks that ended"
# shellcheck disable=SC2016
mpirun ': >"$TRAINYARD_SIGNS/begun"; exec sleep 1000'
expect_end 3 1 "mpirun was killed after 3 s: it took no note of ranks that ended"
# Silent ranks that have begun may be waiting for a disk.
# shellcheck disable=SC2016
mpirun ': >"$TRAINYARD_SIGNS/begun"; rank; sleep 8; rm "$TMPDIR/ranks"; wait; : >"$TMPDIR/ranks"; : >"$TRAINYARD_SIGNS/said"; exit 7'
expect_end 3 1
if grep -q "was killed" "$scratch/err"; then fail "a run that has begun is given up"; else pass; fi

# The limits are reported, and so is a checkpoint to resume from.
expect 0 run "$work/plan.json" --steps 2 --checkpoint "$scratch/state" -q -o "$work/run.json"
mpirun 'exec sleep 1000'
(
    # shellcheck disable=SC3045
    ulimit -f 100000
    PATH="$scratch/bin:$PATH" TRAINYARD_START_SECONDS=3 exec "$TRAINYARD" run "$work/plan.json" --steps 4 --checkpoint "$scratch/state" \
        --resume -q -o "$work/none.json"
) >"$scratch/out" 2>"$scratch/err"
expect_error_line "under a limit of " " for the size of a file" "--resume goes on from $scratch/state/latest.json"

# They are also reported if a rank ends by itself: Open MPI's ranks die if memory is limited, by a
# signal or silently.
for ending in 'kill -SEGV $$' 'exit 139' 'exit 1'; do
    mpirun "$ending"
    (
        # shellcheck disable=SC3045
        ulimit -f 100000
        PATH="$scratch/bin:$PATH" exec "$TRAINYARD" run "$work/plan.json" --steps 4 -q -o "$work/none.json"
    ) >"$scratch/out" 2>"$scratch/err"
    expect_error_line "ended " ", under a limit of " " for the size of a file"
done

# Open MPI's own launcher, with files too small for the ranks' shared memory, and without memory for
# a rank.
if [ -z "${TY_SANITIZE:-}" ]; then
    for limits in "-f 586" "-v 143000" "-v 150000"; do
        for _ in 1 ${TY_ALL:+2 3 4}; do
            (
                trap '' XFSZ
                # shellcheck disable=SC2086,SC3045
                ulimit $limits
                TRAINYARD_START_SECONDS=5 exec timeout -s KILL 300 "$TRAINYARD" run "$work/plan.json" --steps 24 -q -o "$work/none.json"
            ) >"$scratch/out" 2>"$scratch/err" </dev/null
            got=$?
            if [ $got -eq 137 ]; then
                fail "hangs below ulimit $limits"
            elif [ $got -ne 0 ] && [ ! -s "$scratch/err" ]; then
                fail "exit code $got without a word below ulimit $limits"
            else
                pass
            fi
        done
    done
fi
finish
