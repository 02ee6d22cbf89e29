#!/bin/sh
# Two and four hosts with a slow interconnect: a plan trains as on one host, and no step is faster
# than its gradients fit through the cables. Exit code 77 if there are no network namespaces.
. "$(dirname "$0")/../cli/lib.sh"
testbed=$(dirname "$0")/testbed
export TRAINYARD_WORKER="$WORKER"
ip netns list 2>/dev/null | sed 's/ .*//' >"$scratch/before" # of others
needs "the testbed does not start" "$testbed" 2 100mbit ip netns list
space=$(sed -n 's/^\(ty[0-9]*-sw\).*/\1/p' "$scratch/out" | grep -vxFf "$scratch/before" | tail -1)
if [ -n "$space" ] && ! ip netns list | grep -qw "$space"; then pass; else fail "namespaces are left: $space"; fi
"$testbed" 2 fast true >"$scratch/out" 2>"$scratch/err"
if [ $? -eq 2 ] && grep -q "expected one such as" "$scratch/err"; then pass; else fail "a rate without sense is taken"; fi
"$testbed" 2 1gbit sh -c 'exit 5' >"$scratch/out" 2>&1
if [ $? -eq 5 ]; then pass; else fail "the command's exit code is lost"; fi

# A cable that is already slower than its rate gets that rate.
mkdir "$scratch/bin"
cat >"$scratch/bin/tc" <<END
#!/bin/sh
case "\$*" in *"dev port1 root"*) "$(command -v tc)" qdisc add dev port1 root tbf rate 2mbit burst 16kb latency 200ms ;; esac
exec "$(command -v tc)" "\$@"
END
chmod +x "$scratch/bin/tc"
# shellcheck disable=SC2016 # the testbed is the parent of what it runs
PATH="$scratch/bin:$PATH" "$testbed" 2 1gbit sh -c 'ip netns exec "ty$PPID-sw" tc qdisc show dev port1' >"$scratch/out" 2>"$scratch/err"
if [ $? -eq 0 ] && grep -q "tbf .* rate 1Gbit" "$scratch/out"; then pass; else fail "a slowed cable: $(cat "$scratch/out")"; fi

# alike FILE FILE: losses to rounding
cat >"$scratch/alike.py" <<'END'
import json, sys
here, there = (json.load(open(path)) for path in sys.argv[1:3])
least_s = float(sys.argv[3])
rounding = float(sys.argv[4]) if len(sys.argv) > 4 else 1e-6
assert len(here["losses"]) == len(there["losses"]) >= 6
assert all(abs(a - b) <= rounding * a for a, b in zip(here["losses"], there["losses"])), (here["losses"], there["losses"])
assert there["summary"]["step_time_s"] >= least_s, (there["summary"]["step_time_s"], least_s)
END
# case HOSTS RATE FIX LEAST-STEP-S
try() {
    expect 0 plan -w lenet -c "local:$1" --fix "$3" --global-batch 48 --no-simulate -q -o "$scratch/plan.json"
    expect 0 run "$scratch/plan.json" --steps 6 -q -o "$scratch/here.json"
    if "$testbed" "$1" "$2" "$TRAINYARD" run "$scratch/plan.json" --steps 6 -q -o "$scratch/there.json" >"$scratch/out" 2>"$scratch/err"; then
        pass
    else
        fail "$1 hosts at $2, $3: $(tail -3 "$scratch/err")"
    fi
    if /usr/bin/python3 "$scratch/alike.py" "$scratch/here.json" "$scratch/there.json" "$4" >"$scratch/out" 2>&1; then pass; else fail "$1 hosts at $2, $3: $(tail -1 "$scratch/out")"; fi
}
# 1.72 MB of gradients: each of two replicas sends that much, each of four 1.5 times that. The
# buckets of six full queues may pass at once.
try 2 100mbit pp=1,tp=1,compression=none 0.12
try 2 100mbit pp=1,tp=1,compression=none,bucket=1B,priority=1 0
try 2 400mbit pp=2,schedule=1f1b,compression=none 0
try 4 400mbit pp=1,tp=1,compression=none 0.04
# One command's DDP run on one rank, on two and on four trains the same, and the file for two runs
# on one host or two without change.
for ranks in 1 2 4; do
    expect 0 plan -w lenet -c "local:$ranks" --system ddp --global-batch 48 --no-simulate -q -o "$scratch/ddp-$ranks.json"
    expect 0 run "$scratch/ddp-$ranks.json" --steps 6 -q -o "$scratch/ddp-run-$ranks.json"
    if /usr/bin/python3 "$scratch/alike.py" "$scratch/ddp-run-1.json" "$scratch/ddp-run-$ranks.json" 0 1e-5 >"$scratch/out" 2>&1; then pass; else fail "ddp on $ranks ranks: $(tail -1 "$scratch/out")"; fi
done
if "$testbed" 2 100mbit "$TRAINYARD" run "$scratch/ddp-2.json" --steps 6 -q -o "$scratch/there.json" >"$scratch/out" 2>"$scratch/err"; then
    pass
else
    fail "ddp on two hosts: $(tail -3 "$scratch/err")"
fi
if /usr/bin/python3 "$scratch/alike.py" "$scratch/ddp-run-2.json" "$scratch/there.json" 0 >"$scratch/out" 2>&1; then pass; else fail "ddp on two hosts: $(tail -1 "$scratch/out")"; fi
finish
