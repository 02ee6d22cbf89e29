#!/bin/sh
# tests/gpu/check from end to end: the archive of this build, the day on the emulator, and the day's
# results for a failing case, a crash, a part that hangs and a missing library.
. "$SOURCE/tests/cli/lib.sh"
python=${PYTHON:-python3}
archive=$scratch/day.tar.xz
day=$scratch/day
tools=$scratch/tools
out=$scratch/results
mkdir "$tools"
unset OUT LD_LIBRARY_PATH

# is_so EXPRESSION: of `r`, the results
is_so() {
    if "$python" -c 'import json, sys; r = json.load(open(sys.argv[1])); failed = " ".join(f["item"] + ": " + f["reason"] for f in r["failed"]); sys.exit(not eval(sys.argv[2]))' "$out/day.json" "$1" 2>"$scratch/err"; then
        pass
    else
        fail "not so: $1"
        head -c 3000 "$out/day.json"
    fi
}
# check CODE WORDS...
check() {
    wanted=$1
    shift
    rm -rf "$out"
    "$day/check" day --quick -o "$out" "$@" >"$scratch/said" 2>"$scratch/err" && got=0 || got=$?
    if [ $got -eq "$wanted" ]; then pass; else
        fail "exit code $got instead of $wanted: check day $*"
        tail -n 20 "$scratch/said" "$scratch/err"
    fi
    [ "$(find "$out" -type f | wc -l)" -le 8 ] && pass || fail "more than eight files"
}

sh "$SOURCE/tests/gpu/check" --day --build "$BUILD" -o "$archive" >"$scratch/said" 2>"$scratch/err" && pass || fail "no archive"
[ "$(wc -c <"$archive")" -le $((48 << 20)) ] && pass || fail "the archive is larger than 48 MiB"
sh "$SOURCE/tests/gpu/check" day 2>/dev/null && fail "ran without an archive" || { [ $? -eq 2 ] && pass || fail "another exit code"; }
tar -C "$scratch" -xJf "$archive"
[ -x "$day/bin/trainyard" ] && [ -f "$day/data/workloads/zoo/gpt2.json" ] && pass || fail "something is missing"
# The emulator is slow: a smaller network tries the same.
sed -i 's/"out_features": 1024/"out_features": 32/' "$day/data/workloads/zoo/mlp.json"
# Nothing in it needs a library of this machine's beside the C library and the driver's.
for program in trainyard trainyard-worker gpu_cases mpirun; do
    if LD_LIBRARY_PATH=$day/lib ldd "$day/bin/$program" | awk '$3 ~ /^\// && $3 !~ /\/(libc|libm|libdl|librt|libpthread|libresolv)\.so/ { print $3 }' |
        grep -v "^$day/lib/" >"$scratch/err"; then fail "$program uses what is not in the archive"; else pass; fi
done

if [ -e /dev/nvidiactl ]; then echo "there is a GPU here: no refusal to be seen"; else
    check 77
    is_so '"GPU" in r["skipped"][0]["reason"]'
fi

export TRAINYARD_CUDA_PLUGIN="$EMULATOR" TRAINYARD_EMULATED_DEVICES=2 TRAINYARD_EMULATED_PATIENCE=60
cat >"$tools/nvidia-smi" <<'SMI'
#!/bin/sh
# The used memory grows by a GiB with every query.
case "$*" in
*memory.used*) echo x >>"$LOOKS"; echo $(($(wc -l <"$LOOKS") * 1024)) ;;
*) printf '    Product Name                          : NVIDIA H200\n' ;;
esac
SMI
cat >"$tools/compute-sanitizer" <<'SANITIZER'
#!/bin/sh
# Runs the program, and complains if told to.
[ "$1 $3" = "--tool --error-exitcode" ] || exit 3
[ "$2" != "${COMPLAINT:-}" ] || exit "$4"
shift 4
exec "$@"
SANITIZER
cat >"$tools/ncu" <<'NCU'
#!/bin/sh
# Runs the program, as if with one kernel.
while [ "${1#-}" != "$1" ]; do
    case $1 in
    --csv) shift ;;
    *) shift 2 ;;
    esac
done
"$@" >/dev/null || exit
printf '"ID","Kernel Name","gpu__time_duration.sum"\n"","","ns"\n"0","norm","1000"\n'
NCU
chmod +x "$tools"/*
export LOOKS="$scratch/looks"
PATH=$tools:$PATH

check 0
is_so 'not r["failed"] and r["machine"]["gpus"] == ["NVIDIA H200"] and r["machine"]["planned_as"] == "h200-sxm"'
is_so 'set(r["rates"]) == {"lazy", "eager"} and r["rates"]["lazy"]["copy_bytes_per_s"] > 0'
is_so 'set(r["benchmarks"]) == {"mlp", "mlp-deterministic", "mlp-again", "mlp-own-attention", "mlp-no-graphs"} and r["repeats"] == {"mlp": True}'
is_so 'r["benchmarks"]["mlp"]["graphs"] > 0 and r["benchmarks"]["mlp-no-graphs"]["graphs"] == 0 and len(r["benchmarks"]["mlp"]["losses"]) == 3'
is_so 'all(r["predictions"]["mlp"][how]["predicted_step_time_s"] > 0 for how in ("by-profile", "a-priori")) and r["predictions"]["mlp"]["measured_device_bytes"] > 0'
is_so 'r["cases"]["passed"] >= 4 and r["cases"]["failed"] == 0 and len(r["ranks"]["ranks-replicas-host"]) == 10'
is_so 'len(r["part_seconds"]) == 10 and [s["item"] for s in r["skipped"]] == ["pytorch"]'
grep -q norm "$out/kernels-mlp.csv" && [ -s "$out/profile-mlp.json" ] && [ -s "$out/comparison.json" ] && [ -s "$out/logs.tgz" ] && pass || fail "a file is missing"

# The short form, with a sanitizer that complains.
COMPLAINT=memcheck
export COMPLAINT
check 0 --budget 210 --parts 8
is_so 'set(r["part_seconds"]) == {"environment", "sanitize"} and "memcheck" in failed'

# A case that fails and one that crashes are named, and the cases after them run.
mv "$day/bin/gpu_cases" "$day/bin/gpu_cases.true"
cat >"$day/bin/gpu_cases" <<'WRAPPER'
#!/bin/sh
lines=
last=
for word; do [ "$last" != -o ] || lines=$word; last=$word; done
case "$*" in
*"--from 0 "*"--family updates"*) printf '{"begins": "a crash"}\n' >>"$lines"; kill -SEGV $$ ;;
*"--from 0 "*"--family passes"*) printf '{"begins": "a failure"}\n{"name": "a failure", "passed": false, "message": "3 of 4 are wrong"}\n' >>"$lines"; exit 1 ;;
*--bench*) [ -z "${HANGS:-}" ] || sleep 1000 ;;
esac
exec "$0.true" "$@"
WRAPPER
chmod +x "$day/bin/gpu_cases"
check 0 --parts 6
is_so '"a crash: exit code -11" in failed and "a failure: 3 of 4 are wrong" in failed and r["cases"]["failed"] == 2'
grep -q '"a crash"' "$out/cases.jsonl" && pass || fail "cases.jsonl lacks the crash"

# A part that hangs costs its limit and no more than the budget; what does not fit any more is skipped.
HANGS=yes
export HANGS
check 0 --budget 25 --parts 2,5,6
is_so '"took too long" in failed and r["seconds"] < 25 + 35 and "s left of the budget" in r["skipped"][-1]["reason"]'
unset HANGS

# A library that does not load is named, and what does not need it is measured.
for library in "$day"/lib/libigraph*; do : >"$library"; done
check 0 --parts 1,5
is_so '"libigraph" in failed and r["cases"]["passed"] > 0 and len(r["part_seconds"]) == 3'
finish
