#!/bin/sh
# Surroundings of a run: number of processes, interrupts, launchers that die, access control.
. "$(dirname "$0")/lib.sh"
mkdir "$scratch/made" "$scratch/tmp"
work=$scratch/made
export TMPDIR="$scratch/tmp"
cores=$(getconf _NPROCESSORS_ONLN)

# Until the ranks have begun, for 60 s.
wait_for_ranks() {
    tries=0
    while [ $tries -lt 600 ] && ! ls "$TMPDIR"/trainyard-*/begun >/dev/null 2>&1; do
        tries=$((tries + 1))
        sleep 0.1
    done
    [ $tries -lt 600 ] || fail "the ranks do not begin"
}

# ranks_of PID: the workers below a trainyard's mpirun.
ranks_of() {
    pgrep -P "$(pgrep -P "$1" -x "mpirun|prterun")" -f trainyard-worker
}

expect 0 plan -w mlp -c local:2 --fix pp=1,compression=none -q -o "$work/plan.json"

# ---- Compile and link options of the programs -----------------------------------------------
if [ -z "${TY_SANITIZE:-}" ] && command -v readelf >/dev/null 2>&1; then
    for program in "$TRAINYARD" "$WORKER"; do
        readelf -Wh "$program" | grep -q 'Type: *DYN' && pass || fail "$program is not position-independent"
        readelf -Wl "$program" | grep -q GNU_RELRO && pass || fail "$program has no read-only relocations"
        readelf -Wd "$program" | grep -q 'BIND_NOW\|Flags:.*NOW' && pass || fail "$program binds late"
        readelf -Wl "$program" | grep 'GNU_STACK' | grep -q 'RW ' && pass || fail "$program has an executable stack"
        readelf -Wd "$program" | grep -q 'PATH).*\(\[:\|::\|:\]\)' && fail "$program looks for libraries where one stands" || pass
        readelf -Ws "$program" | grep -q '__stack_chk_fail' && pass || fail "$program has no stack protector"
        readelf -Ws "$program" | grep -q '_chk@\|_chk$' && pass || fail "$program checks no string functions"
    done
fi

# ---- Too many processes for the host's memory: refused before any is started ----------------
expect 1 plan -w mlp -c local:100000 -q -o "$work/none.json"
expect_error_line "100000 processes" "expected at most $((16 * cores)) on this machine" "$cores core"
expect 1 profile -w mlp --ranks 4096 -q -o "$work/none.json"
expect_error_line "4096 processes"
expect 0 plan -w mlp -c "32x p100-server" --global-batch 1024 --fix pp=1 --no-simulate -q -o "$work/foreign.json"
expect 1 run "$work/foreign.json" --anyway --steps 2 -q -o "$work/none.json"
expect_error_line "128 processes of a plan for 32x p100-server" "--backend replay"
expect 0 plan -w llama-2-13b -c "host:1 gpu:4 @h100 nvlink4 ndr400" --seq 128 --global-batch 4 --fix pp=1,tp=4 --no-simulate -q -o "$work/large.json"
if [ "$cores" -ge 2 ] && [ "$(awk '/MemAvailable/ {print int($2 / 1e6)}' /proc/meminfo)" -lt 180 ]; then
    expect 1 run "$work/large.json" --anyway --steps 2 -q -o "$work/none.json"
    expect_error_line "of memory that are free"
fi

# ---- The cache is a folder of the user, or there is none -------------------------------------
planted=$scratch/precious
echo precious >"$planted"
in_cache() { # WHERE EXPECTED-TEXT...: a plan that measures, with its cache there
    where=$1
    shift
    XDG_CACHE_HOME=$where "$TRAINYARD" plan -w lenet -c local:1 --global-batch 16 -o "$work/none.json" >"$scratch/out" 2>"$scratch/err"
    got=$?
    if [ $got -eq 0 ]; then pass; else fail "exit code $got instead of 0 with a cache in $where"; fi
    for text in "$@"; do
        if grep -qF -- "$text" "$scratch/err"; then pass; else fail "stderr lacks '$text'"; fi
    done
    if [ "$(cat "$planted")" = precious ]; then pass; else fail "a planted link is written through"; fi
}
in_cache "$scratch/mine" "kept in $scratch/mine/trainyard/profile-"
if [ "$(stat -c %a "$scratch/mine/trainyard")" = 700 ]; then pass; else fail "the cache is open to others"; fi
kept=$(ls "$scratch/mine/trainyard")
rm "$scratch/mine/trainyard/$kept"
# Partial files of processes that ended, and those of a running one.
touch -d '2 days ago' "$scratch/mine/trainyard/.new-7777" "$scratch/mine/trainyard/.trainyard-7777-0.tmp"
: >"$scratch/mine/trainyard/.new-8888"
ln -s "$planted" "$scratch/mine/trainyard/$kept"
in_cache "$scratch/mine" "kept in"
if [ "$(cd "$scratch/mine/trainyard" && ls -A)" = ".new-8888
$kept" ]; then pass; else fail "the cache keeps $(ls -A "$scratch/mine/trainyard")"; fi
if [ -L "$scratch/mine/trainyard/$kept" ]; then fail "a link stays in the cache"; else pass; fi
mkdir "$scratch/linked" "$scratch/elsewhere"
ln -s "$scratch/elsewhere" "$scratch/linked/trainyard"
in_cache "$scratch/linked" "not kept" "expected one"
if [ -z "$(ls "$scratch/elsewhere")" ]; then pass; else fail "the cache follows a link"; fi
mkdir -p "$scratch/open/trainyard"
chmod 777 "$scratch/open/trainyard"
in_cache "$scratch/open" "not kept" "that all may write to"
if [ "$(id -u)" -eq 0 ]; then
    mkdir -p "$scratch/theirs/trainyard"
    chown 12345 "$scratch/theirs/trainyard"
    in_cache "$scratch/theirs" "not kept" "a folder of user 12345"
fi
in_cache /proc/self "not kept" # nothing can be made there
# Unwritable files are reported as such; the superuser can write everywhere, so use another user.
mkdir "$scratch/denied"
chmod 500 "$scratch/denied"
nobody=
[ "$(id -u)" -ne 0 ] || nobody="setpriv --reuid=65534 --regid=65534 --clear-groups"
if $nobody "$TRAINYARD" --version >/dev/null 2>&1; then
    # shellcheck disable=SC2086 # several words, or none
    XDG_CACHE_HOME="$scratch/denied" TMPDIR=/tmp TRAINYARD_WORKER=/bin/false $nobody "$TRAINYARD" plan -w lenet -c local:1 >"$scratch/out" 2>"$scratch/err"
    if grep -q "not kept: $scratch/denied[^:]*: Permission denied" "$scratch/err"; then pass; else fail "a folder that is closed is not said to be: $(cat "$scratch/err")"; fi
fi
(unset HOME XDG_CACHE_HOME; cd / && "$TRAINYARD" plan -w lenet -c local:1 --global-batch 17 -q >/dev/null 2>&1)
if [ -e /tmp/.cache/trainyard ]; then fail "/tmp/.cache is somebody's"; else pass; fi
if [ "$(id -u)" -eq 0 ] && mkdir "$scratch/small" && mount -t tmpfs -o size=4k none "$scratch/small" 2>/dev/null; then
    in_cache "$scratch/small" "not kept" "$scratch/small/trainyard/profile-" "No space left"
    umount "$scratch/small"
fi
# Names of workloads are not paths.
expect 0 workload export lenet -o "$work/w.json"
long=$(printf 'a/%.0s' $(seq 150))
sed "0,/\"name\": \"lenet\"/s||\"name\": \"../../$long\"|" "$work/w.json" >"$work/odd.json"
XDG_CACHE_HOME="$scratch/mine" expect 0 plan -w "$work/odd.json" -c local:1 --global-batch 16 -o "$work/odd-plan.json"
if grep -q "kept in $scratch/mine/trainyard/profile-" "$scratch/err"; then pass; else fail "a name with slashes is not kept"; fi
expect 0 export "$work/odd-plan.json" --to mpirun

# ---- Unwritable outputs are found before training; results are not lost ----------------------
for where in "$scratch/no/such/run.json" "$work"; do
    expect 1 run "$work/plan.json" --steps 100000 --checkpoint "$scratch/never" -q -o "$where"
    expect_error_line "$where"
done
if [ -e "$scratch/never/latest.json" ]; then fail "trained for a result that has no place"; else pass; fi
expect 1 run "$work/plan.json" --steps 100000 -q -o "$work/none.json" --metrics "$scratch/no/such/m.prom"
expect_error_line "no/such/m.prom"
echo file >"$scratch/file"
expect 1 run "$work/plan.json" --steps 100000 --checkpoint "$scratch/file/state" -q -o "$work/none.json"
expect_error_line "file/state"
if [ "$(id -u)" -eq 0 ] && mkdir "$scratch/full" && mount -t tmpfs -o size=64k none "$scratch/full" 2>/dev/null; then
    # Space for a byte when it begins, and for no result when it ends.
    head -c 57000 /dev/zero >"$scratch/full/filler"
    expect 1 run "$work/plan.json" --steps 30 -q -o "$scratch/full/run.json"
    expect_error_line "No space left" "the result is in "
    saved=$(sed -n 's/.*the result is in //p' "$scratch/err")
    expect 0 compare "$work/plan.json" "$saved"
    expect 1 run "$work/plan.json" --steps 30 --checkpoint "$scratch/kept" -q -o "$scratch/full/run.json"
    expect_error_line "No space left" "the result is in $scratch/kept/result.json"
    expect 0 run "$work/plan.json" --steps 30 --checkpoint "$scratch/kept" --resume -q -o "$work/again.json"
    expect 0 compare "$work/plan.json" "$work/again.json"
    # Checkpoints, weights or logs that run out of space do not cost the result.
    rm -rf "$scratch/kept"
    for what in "--checkpoint $scratch/full/state" "--checkpoint $scratch/kept --save-weights $scratch/full/w.safetensors"; do
        # shellcheck disable=SC2086 # several words
        expect 1 run "$work/plan.json" --steps 30 $what -q -o "$work/unsaved.json"
        expect_error_line "No space left" "the result is of the 30 steps until then"
        if grep -q "^2 stage replicas (cpu), 30 steps in " "$scratch/out"; then pass; else fail "a result is not shown: $what"; fi
        expect 0 compare "$work/plan.json" "$work/unsaved.json"
        rm -f "$work/unsaved.json"
    done
    rm -rf "$scratch/full/state"
    head -c 8000 /dev/zero >>"$scratch/full/filler" 2>/dev/null || true
    expect 1 run "$work/plan.json" --steps 30 -q --metrics "$scratch/full/m.prom"
    expect_error_line "$scratch/full/m.prom" "No space left"
    umount "$scratch/full"
fi
# One run per folder.
"$TRAINYARD" run "$work/plan.json" --steps 1000000 --checkpoint "$scratch/one" --checkpoint-every 10 -q -o "$work/none.json" >/dev/null 2>&1 &
pid=$!
wait_for_ranks
expect 1 run "$work/plan.json" --steps 10 --checkpoint "$scratch/one" -q -o "$work/none.json"
expect_error_line "another run is using this folder" "process "
kill -9 $pid $(ranks_of $pid)
wait $pid 2>/dev/null
sleep 1
rm -rf "$TMPDIR"/trainyard-*
tries=0
while [ $tries -lt 20 ] && ! [ -e "$scratch/one/latest.json" ]; do tries=$((tries + 1)); sleep 0.1; done
if [ -e "$scratch/one/latest.json" ]; then
    # The newest whole one, which latest.json may not name yet.
    step=$(ls "$scratch"/one/step-*/checkpoint.json | sed 's/.*step-\([0-9]*\).*/\1/' | sort -n | tail -n 1)
    expect 0 run "$work/plan.json" --steps $((step + 3)) --checkpoint "$scratch/one" --resume -q -o "$work/again.json"
fi

# ---- A worker without messages ----------------------------------------------------------------
TRAINYARD_WORKER=/bin/false expect 1 run "$work/plan.json" --steps 2 -q -o "$work/none.json"
if grep -q "mpirun and trainyard-worker ended with code 1 and without a word" "$scratch/err"; then pass; else fail "a false worker goes unmentioned"; fi
# A worker that reports success without running: an earlier run's result is not its own.
expect 0 run "$work/plan.json" --steps 2 -q -o "$work/earlier.json"
TRAINYARD_WORKER=/bin/true expect 1 run "$work/plan.json" --steps 2 -q -o "$work/earlier.json"
expect_error_line "mpirun and trainyard-worker ended with code 0 and without a word"
rm -f "$work/none.json"

# ---- No library is loaded from the current folder ---------------------------------------------
mkdir "$scratch/stand" "$scratch/bare"
cp "$WORKER" "$scratch/bare/trainyard-worker" # without its plugin
for library in libtrainyard-cuda.so libsodium.so.23 libmpi.so.40; do
    echo "no library" >"$scratch/stand/$library"
done
if (cd "$scratch/stand" && "$scratch/bare/trainyard-worker" --version) >"$scratch/out" 2>"$scratch/err"; then pass; else fail "the worker loads libraries of the folder: $(cat "$scratch/err")"; fi
rm "$scratch/stand/libsodium.so.23" "$scratch/stand/libmpi.so.40"
(cd "$scratch/stand" && LD_LIBRARY_PATH=. TRAINYARD_DATA=$SOURCE TRAINYARD_WORKER=$scratch/bare/trainyard-worker exec "$TRAINYARD" profile -w lenet \
    --backend cuda --ranks 1 --micro-batches 1 -q -o "$work/none.json") >"$scratch/out" 2>"$scratch/err"
got=$?
if [ $got -eq 1 ] && ! grep -q "libtrainyard-cuda.so: \(file too short\|invalid ELF header\)" "$scratch/err"; then pass; else
    fail "exit code $got: the worker loads a plugin of the folder: $(cat "$scratch/err")"; fi

# ---- Ctrl-C in a long step: the step ends, results are kept -----------------------------------
expect 0 profile -w mlp --ranks 2 --micro-batches 32,1024 -q -o "$work/profile.json"
expect 0 plan -w mlp -c local:2 -p "$work/profile.json" --global-batch 32768 --fix pp=1,compression=none,micro_batch=1024 \
    --no-simulate -q -o "$work/long.json"
# Inputs outside the measured range are reported, with the consequence.
large() { "$TRAINYARD" plan -w mlp -c local:2 -p "$work/profile.json" --global-batch $((2 * $1)) --fix "pp=1,compression=none,micro_batch=$1" \
    --no-simulate -o "$scratch/large.json" >"$scratch/out" 2>"$scratch/err"; }
large 32768
if grep -q "warning: the step rests on times outside what was measured (a micro-batch is of 32768; measured: 32 to 1024): between" "$scratch/err"; then
    pass; else fail "nobody says that nothing was measured"; fi
expect 0 estimate "$scratch/large.json" --json
if /usr/bin/python3 - "$scratch/large.json" "$scratch/out" <<'PYTHON'
import json, sys
plan, estimate = (json.load(open(path)) for path in sys.argv[1:])
band = plan["outside_measurements"]
assert 0 < band["least_step_time_s"] <= estimate["step_time_s"] <= band["most_step_time_s"]
assert band["least_step_time_s"] < band["most_step_time_s"]
PYTHON
then pass; else fail "the estimate lies outside of its band"; fi
sed 's/"most_step_time_s": .*/"most_step_time_s": 1e-9/' "$scratch/large.json" >"$scratch/turned.json"
expect 3 estimate "$scratch/turned.json"
expect_error_line "turned.json:/outside_measurements/most_step_time_s: found 1e-9, expected"
# The tests that docs/design/robustness.md names for each finding exist.
if /usr/bin/python3 - "$SOURCE" <<'PYTHON'
import pathlib, re, sys
source = pathlib.Path(sys.argv[1])
table = (source / "docs/design/robustness.md").read_text(encoding="utf-8").split("## Guarantees of runs and commands")[1].split("\n\n## ")[0]
cells = [row.strip("| ").split(" | ")[-1] for row in table.splitlines() if row.startswith("| ")][2:]
tests = "".join(p.read_text(encoding="utf-8") for p in (source / "tests").rglob("test_*.c"))
entries = "".join(p.read_text(encoding="utf-8") for p in (source / "tests").rglob("CMakeLists.txt"))
missing = []
for name in re.findall("`([^`]+)`", " ".join(cells)):
    if "/" in name:
        there = name.startswith("./") or (source / name).exists()
    else:
        there = f", {name}" in tests or re.search(rf"[( ]{name.removeprefix('fuzz_')}\b", entries)
    missing += [] if there else [name]
print(missing)
sys.exit(bool(missing) or len(cells) < 25)
PYTHON
then pass; else fail "tests that docs/design/robustness.md names are missing"; fi
# For sizes that divide badly, sizes that divide are suggested, also in the plan, which can be read
# again; sizes that divide give no message.
divided() { "$TRAINYARD" plan -w bert-base -c dgx-a100 --global-batch "$1" --no-simulate --json -o "$scratch/divided.json" \
    >"$scratch/out" 2>"$scratch/err"; }
divided 52
if grep -q "warning: a batch of 52 divides badly over 8 devices: by the estimate 48 does [0-9]* %, 56 [0-9]* % more samples per second$" "$scratch/err"
then pass; else fail "nobody says that 52 samples divide badly over 8 devices"; fi
# Six devices and a batch of 60: only one size is much better.
divided 60
if grep -q "warning: a batch of 60 divides badly over 8 devices: by the estimate 64 does [0-9]* % more samples per second$" "$scratch/err"
then pass; else fail "nobody says that 60 samples divide badly over 8 devices"; fi
expect 0 estimate "$scratch/divided.json"
sed 's/"lost_share": .*/"lost_share": 2,/' "$scratch/divided.json" >"$scratch/turned.json"
expect 3 estimate "$scratch/turned.json"
expect_error_line "turned.json:/divides_badly/global_batch/lost_share: found 2, expected"
divided 64
if grep -q "divides" "$scratch/err" "$scratch/divided.json"; then fail "64 samples divide over 8 devices"; else pass; fi
large 1024
if grep -q "outside" "$scratch/err" "$scratch/large.json"; then fail "what was measured counts as not measured"; else pass; fi

"$TRAINYARD" run "$work/long.json" --steps 100 --checkpoint "$scratch/long" -o "$work/none.json" >"$scratch/out" 2>"$scratch/err" &
pid=$!
wait_for_ranks
sleep 0.5
kill -INT $pid
wait $pid
got=$?
if [ $got -eq 130 ]; then pass; else fail "exit code $got instead of 130"; fi
if [ -f "$scratch/long/latest.json" ]; then pass; else fail "an interrupt in a long step leaves no checkpoint"; fi
if grep -q "saved in $scratch/long" "$scratch/err"; then pass; else fail "nobody says what was saved"; fi
expect 0 check "$work/none.json"
rm "$work/none.json"
# A second one does not wait.
"$TRAINYARD" run "$work/long.json" --steps 100 --checkpoint "$scratch/twice" -q -o "$work/none.json" >"$scratch/out" 2>"$scratch/err" &
pid=$!
wait_for_ranks
kill -INT $pid
sleep 0.3
kill -INT $pid
wait $pid
got=$?
if [ $got -eq 130 ]; then pass; else fail "exit code $got instead of 130"; fi
if [ -z "$(ls "$TMPDIR" | grep trainyard)" ]; then pass; else fail "left behind: $(ls "$TMPDIR")"; fi

# ---- A launcher that dies ends its children; other users cannot connect -----------------------
for victim in launcher trainyard; do
    "$TRAINYARD" run "$work/plan.json" --steps 1000000 -q -o "$work/none.json" >"$scratch/out" 2>"$scratch/err" &
    pid=$!
    wait_for_ranks
    launcher=$(pgrep -P $pid -x "mpirun|prterun")
    ranks=$(ranks_of $pid)
    if [ "$(echo "$ranks" | wc -w)" -eq 2 ]; then pass; else fail "there are not two ranks: $ranks"; fi
    if [ $victim = launcher ] && command -v ss >/dev/null 2>&1; then
        for process in $launcher $ranks; do
            # In our network namespace; in a separate one nobody else could connect.
            if ss -Hltnp 2>/dev/null | grep "pid=$process," | awk '{print $4}' | grep -v -e '^127\.' -e '^\[::1\]'; then
                fail "a process of a local run listens beyond the loopback"
            else
                pass
            fi
        done
        # A stray connection is not waited for.
        enter=
        if [ "$(id -u)" -eq 0 ] && command -v nsenter >/dev/null; then enter="nsenter -t $launcher -n"; fi
        $enter ss -Hltnp 2>/dev/null | grep "pid=$launcher," | awk '{print $4}' | sed 's/.*://' >"$scratch/ports"
        if [ -z "$enter" ] || [ -s "$scratch/ports" ]; then pass; else fail "the launcher listens nowhere"; fi
        $enter /usr/bin/python3 - "$scratch/ports" <<'PYTHON' &
import socket, sys, time
held = []
for port in open(sys.argv[1]).read().split():
    for start in (b"", b"\0" * 64, b"GET / HTTP/1.0\r\n\r\n"):
        s = socket.create_connection(("127.0.0.1", int(port)), 2)
        s.sendall(start)
        held.append(s)
time.sleep(4)
PYTHON
        stranger=$!
        sleep 1
        kill -USR1 "$launcher"
        wait $pid
        got=$?
        if [ $got -eq 130 ]; then pass; else fail "exit code $got instead of 130 with a stranger connected"; fi
        kill $stranger 2>/dev/null
        wait $stranger 2>/dev/null
        "$TRAINYARD" run "$work/plan.json" --steps 1000000 -q -o "$work/none.json" >"$scratch/out" 2>"$scratch/err" &
        pid=$!
        wait_for_ranks
        launcher=$(pgrep -P $pid -x "mpirun|prterun")
        ranks=$(ranks_of $pid)
    fi
    # Shared memory of the ranks; other tests have theirs.
    segments=$(for rank in $ranks; do sed -n 's,.*\(/dev/shm/trainyard-[^/ ]*\).*,\1,p' "/proc/$rank/maps"; done | sort -u)
    if [ $victim = launcher ]; then kill -9 "$launcher"; else kill -9 $pid; fi
    wait $pid 2>/dev/null
    tries=0
    while [ $tries -lt 50 ] && ps -o pid= -p "$(echo $ranks | tr ' ' ',')" >/dev/null; do
        tries=$((tries + 1))
        sleep 0.2
    done
    for rank in $ranks; do
        if kill -0 "$rank" 2>/dev/null; then
            fail "a rank outlives its $victim"
            kill -9 "$rank"
        else
            pass
        fi
    done
    # Open MPI's own files are in the run's folder, and are removed with it.
    if ls -d "$TMPDIR"/ompi.* "$TMPDIR"/prte* >/dev/null 2>&1; then
        fail "Open MPI's files are left by a killed $victim: $(ls "$TMPDIR")"
    else
        pass
    fi
    # The next start removes leftovers that are a day old: partial files and folders of runs, but
    # nothing that another user has there.
    mkdir -m 700 "$TMPDIR/trainyard-backup" "$TMPDIR/trainyard-halfof" "$TMPDIR/trainyard-halfof/ompi.host.0"
    echo mine >"$TMPDIR/trainyard-backup/letter"
    echo half >"$TMPDIR/trainyard-halfof/.trainyard-7777-0.tmp"
    ln -s "$TMPDIR/trainyard-backup" "$TMPDIR/trainyard-halfof/ompi.host.0/link"
    : >"$TMPDIR/trainyard-run-abcdef"
    : >"$TMPDIR/trainyard-run-young0"
    # shellcheck disable=SC2086
    touch -c -d '10 minutes ago' "$TMPDIR"/trainyard-* $segments 2>/dev/null
    touch -c -d '2 days ago' "$TMPDIR/trainyard-run-abcdef"
    expect 0 run "$work/plan.json" --steps 2 -q -o "$work/none.json"
    rm "$work/none.json"
    if [ "$(cat "$TMPDIR/trainyard-backup/letter")" = mine ]; then pass; else fail "a start removes what is not its own"; fi
    if [ -e "$TMPDIR/trainyard-run-young0" ]; then pass; else fail "a start removes files that may be in use"; fi
    rm -rf "$TMPDIR/trainyard-backup" "$TMPDIR/trainyard-run-young0"
    if ls -d "$TMPDIR"/trainyard-* >/dev/null 2>&1; then
        fail "left by a killed $victim: $(ls "$TMPDIR")"
        rm -rf "$TMPDIR"/trainyard-*
    else
        pass
    fi
    for segment in $segments; do
        if [ -e "$segment" ]; then fail "left by a killed $victim: $segment"; else pass; fi
    done
done
finish
