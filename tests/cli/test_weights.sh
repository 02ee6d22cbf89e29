#!/bin/sh
# Weights in and out as safetensors: small checkpoints with the names and layouts of Hugging Face,
# whose loss hf_weights.py computes by plain arithmetic; round trips; parallel plans; invalid files.
. "$(dirname "$0")/lib.sh"
mkdir "$scratch/made"
work=$scratch/made
tools=$SOURCE/tests/cli/hf_weights.py

# plan_of NAME FIX WORKLOAD WORDS...: for devices that need no measurement.
plan_of() {
    name=$1 fix=$2 workload=$3
    shift 3
    expect 0 plan -w "$workload" -c "1x dgx1-v100" --fix "$fix,compression=none" --precision fp32 --no-simulate -q -o "$work/$name.json" "$@"
}

# loss_is RUN WANTED: of the first step, to 1e-4 of it.
loss_is() {
    /usr/bin/python3 -c 'import json, sys
found, wanted = json.load(open(sys.argv[1]))["losses"][0], float(sys.argv[2])
assert abs(found - wanted) <= 1e-4 * wanted, (found, wanted)' "$work/$1" "$2"
}

first_loss() {
    loss_is "$@" && pass || fail "$1: not the loss of $2"
}

same() {
    /usr/bin/python3 "$tools" same "$@" && pass || fail "not the same weights: $*"
}

# Every window of the text is in the batch, so that the order has no effect.
text_of() {
    /usr/bin/python3 -c 'import random, sys
n = 18 # 12 windows of 7
length = next(l for l in range(n, 99) if l - l // 10 == n)
r = random.Random(5)
open(sys.argv[1], "wb").write(bytes(r.randrange(13) for _ in range(length)))' "$1"
}

for family in gpt2 llama qwen3 bert; do
    file=$work/$family.safetensors
    text_of "$work/$family.text"
    /usr/bin/python3 "$tools" workload $family "$work/$family-net.json"
    /usr/bin/python3 "$tools" write $family "$file"
    known=$(/usr/bin/python3 "$tools" loss $family "$file" "$work/$family.text")
    plan_of $family devices=1 "$work/$family-net.json"
    expect 0 run "$work/$family.json" --anyway --steps 1 --data "$work/$family.text" --init "$file" --save-weights "$work/$family-out.safetensors" -q -o "$work/$family-run.json"
    first_loss $family-run.json "$known"
    # Steps of 1e-30 change no bit.
    same "$file" "$work/$family-out.safetensors"
    [ $family = gpt2 ] || [ -n "${TY_ALL:-}" ] || continue
    # Without the file the loss is very different.
    expect 0 run "$work/$family.json" --anyway --steps 1 --data "$work/$family.text" -q -o "$work/none.json"
    if loss_is none.json "$known" 2>/dev/null; then fail "$family: random weights have the loss of the file's"; else pass; fi
    expect 0 run "$work/$family.json" --anyway --steps 1 --data "$work/$family.text" --init "$work/$family-out.safetensors" --save-weights "$work/$family-again.safetensors" -q -o "$work/$family-run.json"
    first_loss $family-run.json "$known"
    same "$work/$family-out.safetensors" "$work/$family-again.safetensors"
done

# Every type, names without the family's first word, an index, and a folder.
llama_loss=$(/usr/bin/python3 "$tools" loss llama "$work/llama.safetensors" "$work/llama.text")
mkdir "$work/model"
for how in "--type F16" "--type BF16" "--bare" "--shards 3"; do
    /usr/bin/python3 "$tools" write llama "$work/model/model.safetensors.index.json" $how
    case $how in --shards*) ;; *) mv "$work/model/model.safetensors.index.json" "$work/model/model.safetensors" ;; esac
    expect 0 run "$work/llama.json" --anyway --steps 1 --data "$work/llama.text" --init "$work/model" -q -o "$work/run.json"
    first_loss run.json "$llama_loss"
    rm -f "$work/model/model.safetensors"
done
expect 0 run "$work/llama.json" --anyway --steps 1 --data "$work/llama.text" --init "$work/model/model.safetensors.index.json" -o "$work/run.json"
grep -q "starts from .*index.json: 11 layers" "$scratch/err" && pass || fail "it does not say what it starts from"

# Tensor parallelism, stages, sharded optimizer states: the saved weights are complete, and equal to
# those of one device.
sed 's/1e-30/0.05/' "$work/gpt2-net.json" >"$work/learning.json"
plan_of alone devices=1 "$work/learning.json"
expect 0 run "$work/alone.json" --anyway --steps 3 --data "$work/gpt2.text" --init "$work/gpt2.safetensors" --save-weights "$work/alone.safetensors" --checkpoint "$work/state" -q -o "$work/run.json"
for fix in devices=2,tp=2 devices=2,pp=2 devices=2,dp=2,zero=3 devices=4,tp=2,pp=2; do
    plan_of divided $fix "$work/learning.json"
    expect 0 run "$work/divided.json" --anyway --steps 3 --data "$work/gpt2.text" --init "$work/gpt2.safetensors" --save-weights "$work/divided.safetensors" -q -o "$work/run.json"
    same "$work/alone.safetensors" "$work/divided.safetensors" 1e-5
done
# Sharded tables are saved complete, and initial ones are sharded on loading.
plan_of clicks devices=1 dlrm-tiny
expect 0 run "$work/clicks.json" --anyway --steps 3 --save-weights "$work/clicks.safetensors" -q -o "$work/run.json"
expect 0 run "$work/clicks.json" --anyway --steps 1 --init "$work/clicks.safetensors" -q -o "$work/again.json"
known=$(/usr/bin/python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["losses"][0])' "$work/again.json")
for fix in devices=2,ep=2,tables=row devices=4,ep=4,tables=column devices=2,ep=2,tables=table devices=4,dp=2,ep=2,tables=table,zero=1; do
    plan_of divided "pp=1,$fix" dlrm-tiny
    expect 0 run "$work/divided.json" --anyway --steps 3 --save-weights "$work/divided.safetensors" -q -o "$work/run.json"
    same "$work/clicks.safetensors" "$work/divided.safetensors" 1e-3
    expect 0 run "$work/divided.json" --anyway --steps 1 --init "$work/clicks.safetensors" -q -o "$work/run.json"
    first_loss run.json "$known"
done
# From a checkpoint, without steps left to train.
expect 0 run "$work/alone.json" --anyway --steps 3 --data "$work/gpt2.text" --checkpoint "$work/state" --resume --save-weights "$work/kept.safetensors" -q -o "$work/run.json"
same "$work/alone.safetensors" "$work/kept.safetensors"

# Transfer learning: lenet's convolutions stay frozen, and the rest trains from its weights.
plan_of lenet devices=1 lenet
expect 0 run "$work/lenet.json" --anyway --steps 5 --save-weights "$work/lenet.safetensors" -q -o "$work/run.json"
plan_of transfer devices=2,dp=2 transfer-lenet
expect 0 run "$work/transfer.json" --anyway --steps 5 --init "$work/lenet.safetensors" --save-weights "$work/transfer.safetensors" -q -o "$work/run.json"
/usr/bin/python3 - "$work/lenet.safetensors" "$work/transfer.safetensors" "$work/head.safetensors" <<'END' && pass || fail "frozen layers changed, or the others did not"
import json, struct, sys
def read(path):
    b = open(path, "rb").read()
    n = struct.unpack("<Q", b[:8])[0]
    h = json.loads(b[8:8 + n])
    return {k: (v, b[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]) for k, v in h.items() if k != "__metadata__"}
a, b = read(sys.argv[1]), read(sys.argv[2])
assert list(a) == list(b) and len(a) == 8, (list(a), list(b))
for i, name in enumerate(a):
    assert (a[name][1] == b[name][1]) == (i < 4), name
# As many, with another head.
head, data = {}, b""
for i, (name, (t, numbers)) in enumerate(a.items()):
    if i >= 6:
        t, numbers = {"dtype": "F32", "shape": [3]}, bytes(12)
    head[name] = t | {"data_offsets": [len(data), len(data) + len(numbers)]}
    data += numbers
text = json.dumps(head).encode()
open(sys.argv[3], "wb").write(struct.pack("<Q", len(text)) + text + data)
END
expect 0 run "$work/transfer.json" --anyway --steps 1 --init "$work/head.safetensors" -o "$work/run.json"
grep -q "starts from .*: 3 layers, and 1 that it does not have, or of another shape" "$scratch/err" && pass || fail "a new head is not told"
expect 3 run "$work/lenet.json" --anyway --steps 1 --init "$work/head.safetensors" -q -o "$work/none.json"
expect_error_line "of [3], expected [10, 500] for layer"

# Errors in files: reported by name, with the expectation.
cat >"$work/spoil.py" <<'END'
import json, struct, sys
path, out, how = sys.argv[1:]
b = open(path, "rb").read()
n = struct.unpack("<Q", b[:8])[0]
head, data = json.loads(b[8:8 + n]), b[8 + n:]
name = "transformer.h.1.ln_2.bias"
last = list(head)[-1]
if how == "missing":
    head["extra.bias"] = head.pop(name)
elif how == "extra":
    head["some.more"] = {"dtype": "F32", "shape": [1], "data_offsets": [len(data), len(data) + 4]}
    data += bytes(4)
elif how == "shape":
    head[name]["shape"] = [4, 2]
elif how == "type":
    head[name]["dtype"], head[name]["shape"] = "I32", [8]
elif how == "unknown":
    head[name]["dtype"] = "F5"
elif how == "overlap":
    head[name]["data_offsets"] = [x - 4 for x in head[name]["data_offsets"]]
elif how == "beyond":
    head[last]["data_offsets"][1] += 400
elif how == "huge":
    head[name]["shape"] = [9007199254740991, 9007199254740991]
elif how == "negative":
    head[name]["data_offsets"] = [-32, 0]
elif how == "trailing":
    data += bytes(100)
text = json.dumps(head).encode()
length = {"long": 10 ** 10, "short": len(text) - 3, "most": 2 ** 64 - 1}.get(how, len(text))
if how == "cut":
    data = data[:-10]
open(out, "wb").write(struct.pack("<Q", length) + text + data if how != "empty" else b"")
END
spoilt() {
    how=$1
    shift
    /usr/bin/python3 "$work/spoil.py" "$work/gpt2.safetensors" "$work/spoilt.safetensors" "$how"
    expect 3 run "$work/gpt2.json" --anyway --steps 1 --data "$work/gpt2.text" --init "$work/spoilt.safetensors" -q -o "$work/none.json"
    expect_error_line "spoilt.safetensors" "$@"
}
spoilt missing "found no tensor transformer.h.1.ln_2.bias, expected one of [8] for layer block2.mlp_norm (names of gpt2)"
spoilt extra "found tensor some.more, expected none but those of the layers of small-gpt2"
spoilt shape "found tensor transformer.h.1.ln_2.bias of [4, 2], expected [8] for layer block2.mlp_norm"
spoilt type "found tensor transformer.h.1.ln_2.bias of I32, expected F32, F16, BF16 or F64"
spoilt unknown "transformer.h.1.ln_2.bias" "a dtype of safetensors"
spoilt overlap "begins at byte"
spoilt beyond "data_offsets/1" "expected an integer"
spoilt huge "fewer than 2^53 elements"
spoilt negative "data_offsets/0"
spoilt trailing "bytes of data, expected the"
spoilt long "found a header of 10000000000 bytes"
spoilt most "found a header of 18446744073709551615 bytes"
spoilt short "line 1, column"
spoilt cut "data_offsets"
spoilt empty "found an empty file, expected safetensors"
expect 1 run "$work/gpt2.json" --anyway --steps 1 --data "$work/gpt2.text" --init "$work/absent" -q -o "$work/none.json"
expect_error_line "absent: No such file"
printf '{"weight_map": {"a": "../gpt2.safetensors"}}' >"$work/model/out.index.json"
expect 3 run "$work/gpt2.json" --anyway --steps 1 --data "$work/gpt2.text" --init "$work/model/out.index.json" -q -o "$work/none.json"
expect_error_line "/weight_map/a" "in the index's own folder"
printf '{"weight_map": {"a": "model-00001-of-00003.safetensors"}}' >"$work/model/out.index.json"
expect 3 run "$work/gpt2.json" --anyway --steps 1 --data "$work/gpt2.text" --init "$work/model/out.index.json" -q -o "$work/none.json"
expect_error_line "/weight_map/a" "expected a file that has this tensor"
expect 1 run "$work/gpt2.json" --anyway --steps 1 --data "$work/gpt2.text" --init "$work/state" -q -o "$work/none.json"
expect_error_line "found a folder without model.safetensors"
expect 2 run "$work/alone.json" --anyway --steps 4 --data "$work/gpt2.text" --checkpoint "$work/state" --resume --init "$work/gpt2.safetensors" -q -o "$work/none.json"
expect_error_line "--init: found with --resume"
expect 1 run "$work/gpt2.json" --anyway --steps 1 --data "$work/gpt2.text" --save-weights "$work/no/where" -q -o "$work/none.json"
expect_error_line "no/where"
expect 1 run "$work/gpt2.json" --anyway --steps 1 --backend replay --init "$work/gpt2.safetensors" -q -o "$work/none.json"
expect_error_line 'trains nothing: found a file of weights'
finish
