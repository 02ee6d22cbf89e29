#!/bin/sh
# Images and tokens of other programs on the command line: training, resuming, and skipping
# unreadable ones.
. "$(dirname "$0")/lib.sh"
mkdir "$scratch/made"
work=$scratch/made

# Three classes of 12 images each, distinguished by their colors, as folders and as tar files.
/usr/bin/python3 - "$work" <<'END'
import io, os, random, struct, sys, tarfile, zlib
work, numbers = sys.argv[1], random.Random(3)
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
def png(side, colour):
    rows = b"".join(b"\0" + bytes(min(255, max(0, c + numbers.randint(-40, 40))) for _ in range(side) for c in colour) for _ in range(side))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
os.makedirs(work + "/shards")
tars = [tarfile.open(f"{work}/shards/{s}.tar", "w") for s in range(2)]
for c, colour in enumerate(((200, 60, 60), (60, 200, 60), (60, 60, 200))):
    os.makedirs(f"{work}/images/class{c}")
    for i in range(12):
        data = png(20 + i, colour)
        open(f"{work}/images/class{c}/{i:02}.png", "wb").write(data)
        for name, inside in ((f"{c}{i:02}.png", data), (f"{c}{i:02}.cls", str(c).encode())):
            info = tarfile.TarInfo(name)
            info.size = len(inside)
            tars[c * 12 + i >= 20].addfile(info, io.BytesIO(inside))
for tar in tars:
    tar.close()
END
cat >"$work/net.json" <<'END'
{"schema": "trainyard.zoo/1", "name": "small-resnet", "family": "residual", "source": "a test", "input": [3, 24, 24], "sample_bytes": 1729,
 "block": "basic", "blocks": [1, 1], "width": 4, "classes": 3, "dataset": "synthetic", "global_batch": 12,
 "optimizer": {"kind": "sgd", "learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0}}
END
expect 0 plan -w "$work/net.json" -c "1x dgx1-v100" --fix devices=2,dp=2,micro_batch=3,compression=none --precision fp32 --no-simulate -q -o "$work/plan.json"
expect 0 plan -w "$work/net.json" -c "1x dgx1-v100" --fix devices=2,pp=2,micro_batch=3,compression=none --precision fp32 --no-simulate -q -o "$work/piped.json"
expect 0 run "$work/plan.json" --anyway --steps 12 --data "$work/images" --checkpoint "$work/whole" -q -o "$work/run.json"
expect 0 run "$work/plan.json" --anyway --steps 12 --data "$work/shards" -q -o "$work/shards.json"
expect 0 run "$work/plan.json" --anyway --steps 5 --data "$work/shards" --checkpoint "$work/state" -q -o "$work/part.json"
expect 0 run "$work/plan.json" --anyway --steps 12 --data "$work/shards" --checkpoint "$work/state" --resume -q -o "$work/resumed.json"
/usr/bin/python3 - "$work" <<'END' && pass || fail "losses of folders, tar files and of a run that went on differ, or nothing is learnt"
import json, sys
folders, shards, resumed = (json.load(open(f"{sys.argv[1]}/{n}.json"))["losses"] for n in ("run", "shards", "resumed"))
assert folders == shards == resumed and len(folders) == 12, (folders, shards, resumed)
assert folders[-1] < 0.6 * folders[0], folders
END
expect 0 run "$work/piped.json" --anyway --steps 12 --data "$work/images" -q -o "$work/piped-run.json"

# Read rates on this host: images, the same in tar files, and data in memory.
/usr/bin/python3 - "$work" <<'END'
import struct, sys
for part, count in (("train", 50), ("t10k", 10)):
    with open(f"{sys.argv[1]}/{part}-images-idx3-ubyte", "wb") as f:
        f.write(struct.pack(">4B3I", 0, 0, 8, 3, count, 28, 28) + bytes(784 * count))
    with open(f"{sys.argv[1]}/{part}-labels-idx1-ubyte", "wb") as f:
        f.write(struct.pack(">4BI", 0, 0, 8, 1, count) + bytes(count))
END
expect 0 profile -w "$work/net.json" --data "$work/images" -q --json
cp "$scratch/out" "$work/of-images.json"
expect 0 profile -w "$work/net.json" --data "$work/shards" -q -o "$work/of-shards.json"
expect 0 profile -w lenet --data "$work" -q --json
cp "$scratch/out" "$work/of-idx.json"
/usr/bin/python3 - "$work" <<'END' && pass || fail "what profile --data says is not what is there"
import glob, json, os, sys
work = sys.argv[1]
images, shards, idx = (json.load(open(f"{work}/of-{n}.json")) for n in ("images", "shards", "idx"))
files = sorted(glob.glob(work + "/images/*/*.png"))
stored = sum(os.path.getsize(f) for i, f in enumerate(files) if i % 10 != 9)  # every tenth is for testing
for made in images, shards:
    assert made["samples"] == made["visited"] == 33 and made["skipped"] == 0, made
    assert abs(made["data_bytes"] - stored) < 1 and abs(made["sample_bytes"] * 33 - stored) < 1, (made, stored)
    assert [r["threads"] for r in made["rates"]][0] == 1 and made["rates"][-1]["threads"] == made["cores"], made
assert idx["samples"] == 50 and idx["sample_bytes"] == 785 and idx["data_bytes"] == 50 * 785, idx
assert [r["threads"] for r in idx["rates"]] == [0], idx
for made in images, shards, idx:
    rates = {r["threads"]: r["samples_per_s"] for r in made["rates"]}
    told = made["input"]
    assert min(rates.values()) > 0 and made["first_visit_samples_per_s"] > 0, made
    assert abs(told["decode_samples_per_s"] * max(1, told["cores"]) / rates[told["cores"]] - 1) < 2e-3, made
    assert rates[told["cores"]] >= 0.95 * max(rates.values()), made
END
expect 0 check "$work/of-shards.json"
# The printed options are those that a plan accepts, and its step is no shorter than the rates
# allow.
words=$(sed -n 's/^  "words": "\(.*\)"$/\1/p' "$work/of-images.json")
expect 0 plan -w "$work/net.json" -c "1x dgx1-v100" --input "$words" --fix devices=2,dp=2,micro_batch=3,compression=none --precision fp32 --no-simulate --json
/usr/bin/python3 - "$work" "$scratch/out" <<'END' && pass || fail "a plan is not paced by what was measured"
import json, sys
made, plan = json.load(open(sys.argv[1] + "/of-images.json")), json.load(open(sys.argv[2]))
assert plan["input"] == made["input"], plan["input"]
rate = made["input"]["decode_samples_per_s"] * made["input"]["cores"]
assert plan["prediction"]["step_time_s"] >= 12 / rate * 0.999, (plan["prediction"], rate)
END
expect 3 profile -w "$work/net.json" --data "$work/whole" -q
expect_error_line "found no images"
expect 2 profile -w "$work/net.json" --data "$work/images" --ranks 2
expect_error_line "--data measures the reading of samples alone"
expect 2 profile -w "$work/net.json" --json
expect_error_line "--json: found without --data"
expect 2 profile -w "$work/net.json" --bad-samples 3
expect_error_line "--bad-samples: found without --data"
expect 2 profile --data "$work/images"
expect_error_line "--workload is needed"
expect 0 run "$work/plan.json" --anyway --steps 60 --until accuracy=0.9 --evaluate-every 10 --data "$work/images" -q -o "$work/until.json"

# A truncated file: named, or skipped, in the same way by both stages.
head -c 300 "$work/images/class1/03.png" >"$work/cut" && mv "$work/cut" "$work/images/class1/03.png"
expect 1 run "$work/plan.json" --anyway --steps 12 --data "$work/images" -q -o "$work/none.json"
grep -q "class1/03.png: damaged PNG" "$scratch/err" && pass || fail "the sample is not named"
grep -q -- "--bad-samples N skips up to N of them" "$scratch/err" && pass || fail "what would help is not said"
expect 3 profile -w "$work/net.json" --data "$work/images" -q
expect_error_line "class1/03.png: damaged PNG" "--bad-samples N skips up to N of them"
expect 0 profile -w "$work/net.json" --data "$work/images" --bad-samples 1 -q
expect_output "skipped       1 that cannot be read" "to plan with  --input data="
expect 0 run "$work/plan.json" --anyway --steps 12 --data "$work/images" --bad-samples 1 -o "$work/skipped.json"
grep -q "skipped [12] samples that cannot be read" "$scratch/err" && pass || fail "what was skipped is not said"
expect 0 run "$work/piped.json" --anyway --steps 12 --data "$work/images" --bad-samples 1 -q -o "$work/skipped.json"
expect 2 run "$work/plan.json" --anyway --steps 1 --data "$work/images" --bad-samples none -q -o "$work/none.json"
expect_error_line --bad-samples '"none"'
expect 3 run "$work/plan.json" --anyway --steps 1 --data "$work/state" -q -o "$work/none.json"
expect_error_line "found no images, expected folders of classes"
expect 1 run "$work/plan.json" --anyway --steps 1 --data "$work/nowhere" -q -o "$work/none.json"
expect_error_line "nowhere"

# Tokens in files of Megatron-LM and llm.c are the same samples.
/usr/bin/python3 - "$work" <<'END'
import random, struct, sys
work, numbers = sys.argv[1], random.Random(4)
tokens = [numbers.randrange(50) for _ in range(400)]
packed = struct.pack("<400H", *tokens)
open(work + "/mega.bin", "wb").write(packed)
open(work + "/mega.idx", "wb").write(b"MMIDIDX\0\0" + struct.pack("<QBQQ2i2q2q", 1, 8, 2, 2, 150, 250, 0, 300, 0, 2))
open(work + "/llmc.bin", "wb").write(struct.pack("<256i", 20240520, 1, 400, *[0] * 253) + packed)
open(work + "/bytes.txt", "wb").write(bytes(tokens))
END
expect 0 plan -w "gpt-tiny sequence=16" -c "1x dgx1-v100" --fix devices=1 --precision fp32 --no-simulate -q -o "$work/gpt.json"
for file in mega.bin llmc.bin bytes.txt; do
    expect 0 run "$work/gpt.json" --anyway --steps 2 --data "$work/$file" -q -o "$work/$file.json"
done
/usr/bin/python3 - "$work" <<'END' && pass || fail "the same tokens have other losses"
import json, sys
a, b, c = (json.load(open(f"{sys.argv[1]}/{n}.json"))["losses"] for n in ("mega.bin", "llmc.bin", "bytes.txt"))
assert a == b == c, (a, b, c)
END
rm "$work/mega.idx"
printf 'MMIDIDX\0\0short' >"$work/mega.idx"
expect 3 run "$work/gpt.json" --anyway --steps 1 --data "$work/mega.bin" -q -o "$work/none.json"
expect_error_line "mega.idx: found no index of version 1"
finish
