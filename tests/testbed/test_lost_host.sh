#!/bin/sh
# A host lost while the launcher has a message for it: TCP retransmits it, and does not check
# whether the host still exists. Exit code 77 if there are no network namespaces.
. "$(dirname "$0")/../cli/lib.sh"
testbed=$(dirname "$0")/testbed
needs "the testbed does not start" "$testbed" 2 1gbit true
expect 0 plan -w mlp -c local:2 --fix pp=1,tp=1,compression=none --global-batch 64 --no-simulate -q -o "$scratch/plan.json"

# Rank 1 is there, and waits for rank 0. Then its cable is cut, and rank 0 starts: the launcher's
# message to the second host's daemon is never acknowledged.
cat >"$scratch/worker" <<END
#!/bin/sh
if [ "\${OMPI_COMM_WORLD_RANK:-\${PMIX_RANK:-}}" = 1 ]; then
    (sleep 4; ip link set eth0 down) >/dev/null 2>&1 &
else
    sleep 6
fi
exec "$WORKER" "\$@"
END
chmod +x "$scratch/worker"
TRAINYARD_START_SECONDS=8 TRAINYARD_WORKER=$scratch/worker timeout 100 "$testbed" 2 1gbit "$TRAINYARD" run "$scratch/plan.json" \
    --steps 6 -q -o "$scratch/made.json" >"$scratch/out" 2>"$scratch/err" </dev/null
got=$?
if [ $got -eq 1 ]; then pass; else fail "exit code $got instead of 1 (124: it had not ended after 100 s)"; fi
expect_error_line "mpirun was killed after 8 s: it had no answer from another host"
if [ -e "$scratch/made.json" ]; then fail "a run that lost a host has a result"; else pass; fi
finish
