#!/bin/sh
# A folder on a slow store: a run that reads it has the results of any other folder, and no step is
# faster than its samples arrive, as in the plan. Exit code 77 if nothing can be mounted.
. "$(dirname "$0")/../cli/lib.sh"
slow_folder=$(dirname "$0")/slow_folder
export TRAINYARD_WORKER="$WORKER"
mkdir "$scratch/images" "$scratch/slow" "$scratch/none"
needs "nothing is mounted" "$slow_folder" "$scratch/none" "$scratch/slow" 1e6 true
"$slow_folder" "$scratch/none" "$scratch/slow" 1e6 sh -c 'exit 5' >"$scratch/out" 2>&1
if [ $? -eq 5 ]; then pass; else fail "the command's exit code is lost"; fi

# Two classes of 30 images each; training reads all but every tenth, about 24 kB per image.
/usr/bin/python3 - "$scratch" <<'END_OF_IMAGES'
import glob, json, os, random, struct, sys, zlib
scratch, numbers = sys.argv[1], random.Random(5)
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
for c in range(2):
    os.mkdir(f"{scratch}/images/{c}")
    for i in range(30):
        rows = b"".join(b"\0" + bytes(numbers.randrange(100 * c, 100 * c + 150) for _ in range(270)) for _ in range(90))
        with open(f"{scratch}/images/{c}/{i:02}.png", "wb") as file:
            file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 90, 90, 8, 2, 0, 0, 0))
                       + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
sizes = [os.path.getsize(f) for i, f in enumerate(sorted(glob.glob(scratch + "/images/*/*.png"))) if i % 10 != 9]
json.dump({"schema": "trainyard.zoo/1", "name": "small-resnet", "family": "residual", "source": "a test", "input": [3, 24, 24],
           "sample_bytes": round(sum(sizes) / len(sizes)), "block": "basic", "blocks": [1, 1], "width": 4, "classes": 2,
           "dataset": "synthetic", "global_batch": 12,
           "optimizer": {"kind": "sgd", "learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0}}, open(scratch + "/net.json", "w"))
open(scratch + "/least", "w").write(str(min(sizes)))
END_OF_IMAGES

# The estimator, the simulator and the worker with a store of 400 kB/s.
expect 0 plan -w "$scratch/net.json" -c "local:2 storage=slow{bandwidth=400kB/s}" --fix pp=1,dp=2,micro_batch=6,compression=none --no-simulate -q --json
cp "$scratch/out" "$scratch/plan.json"
expect 0 estimate "$scratch/plan.json" --json
cp "$scratch/out" "$scratch/estimate.json"
expect 0 simulate "$scratch/plan.json" --json
cp "$scratch/out" "$scratch/simulation.json"
expect 0 run "$scratch/plan.json" --data "$scratch/images" --steps 6 -q -o "$scratch/here.json"
if "$slow_folder" "$scratch/images" "$scratch/slow" 400e3 "$TRAINYARD" run "$scratch/plan.json" --data "$scratch/slow" --steps 6 -q -o "$scratch/slow.json" >"$scratch/out" 2>"$scratch/err"; then
    pass
else
    fail "a run from a slow store: $(tail -3 "$scratch/err")"
fi
/usr/bin/python3 - "$scratch" >"$scratch/out" 2>&1 <<'END_OF_CHECK' && pass || fail "a step is not paced by its storage: $(tail -1 "$scratch/out")"
import json, sys
here, slow, estimate, simulation, net = (json.load(open(f"{sys.argv[1]}/{n}.json")) for n in ("here", "slow", "estimate", "simulation", "net"))
step_s = 12 * net["sample_bytes"] / 400e3
for predicted in estimate, simulation:
    assert abs(predicted["step_time_s"] / step_s - 1) < 0.02, (predicted["step_time_s"], step_s)
assert here["losses"] == slow["losses"] and len(here["losses"]) == 6, (here["losses"], slow["losses"])
# All steps together: no more than what the store gives at once after a rest, before the first, comes early.
least_s = 6 * 12 * int(open(sys.argv[1] + "/least").read()) / 400e3
assert slow["wall_s"] >= 0.95 * least_s, (slow["wall_s"], least_s)
END_OF_CHECK
# A last stage needs labels, and reads no images: each sample is read from the store once.
expect 0 plan -w "$scratch/net.json" -c "local:2 storage=slow{bandwidth=400kB/s}" --fix pp=2,micro_batch=6,compression=none --no-simulate -q -o "$scratch/piped.json"
"$slow_folder" "$scratch/images" "$scratch/slow" 4e6 "$TRAINYARD" run "$scratch/piped.json" --data "$scratch/slow" --steps 6 -q -o "$scratch/piped-run.json" >"$scratch/out" 2>"$scratch/err"
if [ $? -eq 0 ]; then pass; else fail "two stages from a slow store: $(tail -3 "$scratch/err")"; fi
read_bytes=$(sed -n 's/^slow_folder: \([0-9]*\) bytes.*/\1/p' "$scratch/err")
all_bytes=$(/usr/bin/python3 -c 'import json, sys; print(6 * 12 * json.load(open(sys.argv[1]))["sample_bytes"])' "$scratch/net.json")
# The next micro-batch is prefetched when the run ends.
if [ "$read_bytes" -ge $((all_bytes * 9 / 10)) ] && [ "$read_bytes" -le $((all_bytes * 13 / 10)) ]; then pass; else fail "two stages read $read_bytes bytes of $all_bytes"; fi
if [ -z "$(ls "$scratch/slow")" ]; then pass; else fail "the slow folder is still mounted"; fi
finish
