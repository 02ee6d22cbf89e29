#!/bin/sh
# tests/gpu/check from end to end: the bundle that is made of this build, its four commands on the
# emulator, and what they make of a program that crashes, one that hangs, and a sanitizer that complains.
. "$SOURCE/tests/cli/lib.sh"
python=${PYTHON:-python3}
bundle=$scratch/bundle
tools=$scratch/tools
out=$scratch/results
mkdir "$tools"
unset OUT LD_LIBRARY_PATH

# is_so EXPRESSION: of `r`, a command's results
is_so() {
    if "$python" -c 'import json, sys; r = json.load(open(sys.argv[1])); sys.exit(not eval(sys.argv[2]))' "$1" "$2" 2>"$scratch/err"; then
        pass
    else
        fail "$1: not so: $2"
        head -c 3000 "$1"
    fi
}
# check CODE WORDS...
check() {
    wanted=$1
    shift
    "$bundle/check" "$@" --quick -o "$out" >"$scratch/said" 2>"$scratch/err" && got=0 || got=$?
    if [ $got -eq "$wanted" ]; then pass; else
        fail "exit code $got instead of $wanted: check $*"
        tail -n 20 "$scratch/said"
    fi
}

sh "$SOURCE/tests/gpu/check" --bundle "$bundle" --build "$BUILD" >"$scratch/said" 2>"$scratch/err" && pass || fail "no bundle"
sh "$SOURCE/tests/gpu/check" speed 2>/dev/null && fail "ran without a bundle" || { [ $? -eq 2 ] && pass || fail "another exit code"; }
[ -x "$bundle/bin/trainyard" ] && [ -f "$bundle/data/workloads/zoo/gpt2.json" ] && pass || fail "something is missing"
# What is slow here is the emulator, not what is tried.
sed -i 's/"out_features": 1024/"out_features": 32/' "$bundle/data/workloads/zoo/mlp.json"
# Nothing in it needs a library of this machine's beside the C library and the driver's.
for program in trainyard trainyard-worker gpu_cases mpirun; do
    if LD_LIBRARY_PATH=$bundle/lib ldd "$bundle/bin/$program" | awk '$3 ~ /^\// && $3 !~ /\/(libc|libm|libdl|librt|libpthread|libresolv)\.so/ { print $3 }' |
        grep -v "^$bundle/lib/" >"$scratch/err"; then fail "$program uses what is not in the bundle"; else pass; fi
done

# Without a GPU there is nothing to find.
if [ -e /dev/nvidiactl ]; then echo "there is a GPU here: no refusal to be seen"; else
    check 77 speed
    is_so "$out/speed.json" '"GPU" in r["skipped"]'
fi

export TRAINYARD_CUDA_PLUGIN="$EMULATOR" TRAINYARD_EMULATED_DEVICES=2 TRAINYARD_EMULATED_PATIENCE=60
cat >"$tools/nvidia-smi" <<'SMI'
#!/bin/sh
# What is used grows by a GiB with every look.
case "$*" in
*memory.used*) echo x >>"$LOOKS"; echo $(($(wc -l <"$LOOKS") * 1024)) ;;
*) printf '    Product Name                          : NVIDIA H200\n' ;;
esac
SMI
cat >"$tools/compute-sanitizer" <<'SANITIZER'
#!/bin/sh
# Runs the program; complains of what racecheck sees where it was told to.
[ "$1 $3" = "--tool --error-exitcode" ] && [ "$5" = --log-file ] || exit 3
[ "$2" != "${COMPLAINT:-}" ] || exit "$4"
shift 6
exec "$@"
SANITIZER
chmod +x "$tools"/*
export LOOKS="$scratch/looks"
PATH=$tools:$PATH

check 0 speed
is_so "$out/speed.json" 'not r["failures"] and r["gpus"] == ["NVIDIA H200"] and r["planned_as"] == "h200-sxm"'
is_so "$out/speed.json" '[(b["has_graphs"], b["attention"]) for b in r["benchmarks"]] == [(True, "auto"), (True, "own"), (False, "auto")] and isinstance(r["benchmarks"][0]["step_time_s"], float)' # of one step on a busy machine any
is_so "$out/speed.json" 'r["predictions"]["mlp"]["comparison"]["step_time_error"] is not None and r["predictions"]["mlp"]["predicted_device_bytes"] > 1e7 and r["predictions"]["mlp"]["measured_device_bytes"] > 0'
is_so "$out/speed.json" 'r["sweeps"]["2"]["logs"] == 4 and "share a GPU" in r["sweeps"]["4"]["absent"]'
is_so "$out/speed.json" 'all("step_time_s" in p or "absent" in p for p in r["pytorch"].values()) and len(r["pytorch"]) == 2'
# What is measured is what a plan takes: of the layers, and of two GPUs' collectives.
swept=$(echo "$out"/speed/profile-*-2-gpus.json)
is_so "$swept" '{c["kind"] for c in r["collective_times"]} == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"} and len(r["layer_times"]) > 0'
expect 0 plan -w mlp -c "leaf:1 host:1 gpu:2 @h200 nvlink4 ndr400" --precision bf16 -p "$swept" --no-simulate -q -o "$scratch/with.json"
grep -q measured "$scratch/with.json" && pass || fail "the plan rests on nothing measured"

check 0 cases
is_so "$out/cases.json" 'not r["failures"] and {row["name"] for rows in r["cases"].values() for row in rows} >= {"update sgd", "gradients mlp bf16", "plan mlp, 2bw 2 stages", "graphs switched"}'
is_so "$out/cases.json" 'all(row["passed"] for rows in r["cases"].values() for row in rows)'

check 0 links
is_so "$out/links.json" 'len(r["links"]) == 1 and all(len(l["host"]) == 10 for l in r["links"].values())'

check 0 sanitize
is_so "$out/sanitize.json" '[t.split("-")[0] for t, passed in r["tools"].items() if passed] == ["memcheck", "racecheck", "synccheck", "initcheck"]'
COMPLAINT=racecheck
export COMPLAINT
check 1 sanitize
is_so "$out/sanitize.json" '[f.split("-")[0] for f in r["failures"]] == ["racecheck"] and len(r["tools"]) == 4'

# A case that crashes and one that hangs are named, and those behind them run.
mv "$bundle/bin/gpu_cases" "$bundle/bin/gpu_cases.true"
cat >"$bundle/bin/gpu_cases" <<'WRAPPER'
#!/bin/sh
begin() {
    for word; do [ "$last" != -o ] || lines=$word; last=$word; done
    printf '{"begins": "%s"}\n' "$name" >>"$lines"
}
last=
case "$*" in
*"updates --from 0 "*) name="a crash"; begin "$@"; kill -SEGV $$ ;;
*"passes --from 0 "*) name="a case without end"; begin "$@"; sleep 1000 ;;
esac
exec "$0.true" "$@"
WRAPPER
chmod +x "$bundle/bin/gpu_cases"
CHECK_IDLE_S=20
export CHECK_IDLE_S
check 1 cases
is_so "$out/cases.json" 'len(r["failures"]) == 2 and "a crash: exit code -11" in r["failures"][0] and "a case without end: no end" in r["failures"][1]'
grep -q "no end after" "$out"/cases/passes-0.err && grep -q "process [0-9]" "$out"/cases/passes-0.err && pass || fail "no stacks of what hangs"
finish
