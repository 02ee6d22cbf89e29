#!/bin/sh
# Outsiders on the network of a run: ranks without the job's secret, and a stranger that connects
# and sends nothing, nonsense, or recorded messages. Exit code 77 if there are no network
# namespaces.
. "$(dirname "$0")/../cli/lib.sh"
testbed=$(dirname "$0")/testbed
stranger=$(dirname "$0")/stranger
export TRAINYARD_WORKER="$WORKER"
needs "the testbed does not start" "$testbed" 2 1gbit true
expect 0 plan -w mlp -c local:2 --fix pp=1,tp=1,compression=none --global-batch 64 --no-simulate -q -o "$scratch/plan.json"
good=0123456789abcdef0123456789abcdef-good

# ---- Ranks without the secret --------------------------------------------------------------------
# A worker that on rank 1 has another secret, or a file of one that all may read.
cat >"$scratch/worker" <<END
#!/bin/sh
if [ "\${OMPI_COMM_WORLD_RANK:-\${PMIX_RANK:-}}" = 1 ]; then
    if [ -n "\${FOREIGN_FILE:-}" ]; then
        unset TRAINYARD_SECRET
        export TRAINYARD_SECRET_FILE="\$FOREIGN_FILE"
    else
        export TRAINYARD_SECRET="0123456789abcdef0123456789abcdef-evil"
    fi
fi
exec "$WORKER" "\$@"
END
chmod +x "$scratch/worker"
over_hosts() { # CODE WORDS...: a run over two hosts
    code=$1
    shift
    "$testbed" 2 1gbit "$TRAINYARD" run "$scratch/plan.json" --steps 6 -o "$scratch/there.json" "$@" >"$scratch/out" 2>"$scratch/err"
    got=$?
    if [ $got -eq "$code" ]; then pass; else fail "exit code $got instead of $code: $(tail -2 "$scratch/err")"; fi
}
TRAINYARD_WORKER=$scratch/worker over_hosts 1 -q
if grep -q "rank 1 does not have the secret of this job" "$scratch/err"; then pass; else fail "a rank with another secret is not named: $(cat "$scratch/err")"; fi
if [ -e "$scratch/there.json" ]; then fail "a run with a foreign rank has a result"; else pass; fi
(umask 022 && echo $good >"$scratch/secret")
TRAINYARD_WORKER=$scratch/worker FOREIGN_FILE="$scratch/secret" over_hosts 1 -q
if grep -q "$scratch/secret: the job's secret is open to others, expected mode 0600" "$scratch/err"; then pass; else fail "a secret that all may read is taken: $(cat "$scratch/err")"; fi
# The same file for all, with the correct permissions.
chmod 600 "$scratch/secret"
TRAINYARD_SECRET_FILE=$scratch/secret over_hosts 0
if grep -q "taken at their word" "$scratch/err"; then fail "with a secret ranks are taken at their word"; else pass; fi
# Started by hand without a secret: reported.
cat >"$scratch/bare" <<END
#!/bin/sh
unset TRAINYARD_SECRET
exec "$WORKER" "\$@"
END
chmod +x "$scratch/bare"
TRAINYARD_WORKER=$scratch/bare over_hosts 0
if grep -q "ranks of other hosts are taken at their word: there is no secret of the job" "$scratch/err"; then pass; else fail "nobody says that there is no secret"; fi

# ---- A stranger on the network --------------------------------------------------------------------
# attack WHERE WHOSE STEPS: two hosts train, and are listened to; from a third one, or from the second itself, as
# another user of it could, somebody connects to their ranks, or to their launchers. Sets $got.
printf '%s\n' "$good" TRAINYARD_SECRET= >"$scratch/patterns"
cat >"$scratch/attack.sh" <<END
#!/bin/sh
switch=ty\$PPID-sw # the testbed is our parent
"$stranger" "\$switch" "ty\$PPID-\$1" "\$2" 10 10.77.0.1 10.77.0.2 >"$scratch/stranger.json" 2>"$scratch/stranger.err" &
stranger=\$!
sleep 1
"$TRAINYARD" run "$scratch/plan.json" --steps \$3 -q -o "$scratch/attacked.json" &
run=\$!
# Nobody who looks at command lines sees the secret.
while kill -0 \$run 2>/dev/null; do
    if cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -qF -f "$scratch/patterns"; then touch "$scratch/seen"; fi
    sleep 0.5
done
wait \$run
code=\$?
wait \$stranger
exit \$code
END
attack() {
    rm -f "$scratch/attacked.json"
    TRAINYARD_SECRET=$good timeout 200 "$testbed" 3 1gbit sh "$scratch/attack.sh" "$@" >"$scratch/out" 2>"$scratch/err"
    got=$?
    /usr/bin/python3 - "$scratch/stranger.json" <<'END' >"$scratch/out" 2>&1 && pass || fail "the stranger did not come through: $(tail -1 "$scratch/out") $(cat "$scratch/stranger.err")"
import json, sys
did = json.load(open(sys.argv[1]))
assert did["hellos"] > 0 and all(count > 0 for count in did["taken"].values()), did
END
}
alike() {
    /usr/bin/python3 - "$scratch" <<'END' >"$scratch/out" 2>&1 && pass || fail "$1: $(tail -1 "$scratch/out")"
import json, sys
alone, attacked = (json.load(open(f"{sys.argv[1]}/{name}.json"))["losses"] for name in ("alone", "attacked"))
assert len(alone) == len(attacked) and all(abs(a - b) <= 1e-5 * a for a, b in zip(alone, attacked)), (alone[-1], attacked[-1])
END
}
steps=60
expect 0 run "$scratch/plan.json" --steps $steps -q -o "$scratch/alone.json"
attack 2 ranks $steps
if [ $got -eq 0 ]; then pass; else fail "exit code $got with a stranger at host 2: $(tail -3 "$scratch/err")"; fi
alike "a stranger at host 2 among the ranks"
# A hello from a rank's own address may arrive before that rank's, or several at once, after which
# MPI fails: the run ends with a message (SECURITY.md) or continues.
attack 1 ranks $steps
if [ $got -eq 0 ]; then
    alike "a stranger at host 1 among the ranks"
elif [ $got -eq 1 ] && grep -Eq "does not (prove to rank|have the secret|come back)" "$scratch/err"; then
    pass
else
    fail "exit code $got with a stranger at host 1: $(tail -3 "$scratch/err")"
fi
# An attacker can make Open MPI's launcher abandon a run (SECURITY.md), but not hang it or change
# its training.
attack 2 launcher $steps
if [ $got -eq 0 ]; then
    alike "a stranger at the launcher"
elif [ $got -eq 1 ] && grep -q "^trainyard: error: mpirun " "$scratch/err"; then
    pass
else
    fail "exit code $got with a stranger at the launcher: $(tail -3 "$scratch/err")"
fi
if [ -e "$scratch/seen" ]; then fail "the secret is on a command line"; else pass; fi
finish
