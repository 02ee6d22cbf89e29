#!/bin/sh
# docs/design/recipes.md: all names in it exist; every recipe can be followed in a copy of the
# sources (recipes/follow.py), its C code compiles, and its catalogue entries can be planned with.
# Under `slow` the copy is built, without optimization and CUDA, and gives the results in the
# recipes.
. "$(dirname "$0")/lib.sh"
recipes=$SOURCE/docs/design/recipes.md
cd "$SOURCE" || exit 1

# Files and symbols.
grep -o '`[^`]*`' "$recipes" | tr -d '`' | sort -u >"$scratch/named"
while IFS= read -r name; do
    case $name in
    *NAME* | *' '* | -* | ctest*) continue ;; # patterns and commands
    *.c | *.h | *.json | *.md | *.sh | *.py | */)
        if [ -e "$name" ] || [ -n "$(git ls-files "*/$name" 2>/dev/null || find . -path ./build -prune -o -name "$name" -print)" ]; then pass; else fail "recipes.md names $name"; fi ;;
    ty_* | TY_* | codec_*)
        if grep -rqw "$name" core planner simulate execute reports topologies workloads --include='*.[ch]'; then pass; else fail "recipes.md names $name"; fi ;;
    esac
done <"$scratch/named"
[ $passed -gt 20 ] || fail "recipes.md names hardly anything"

# Kinds are rows of tables.
if /usr/bin/python3 "$SOURCE/tests/recipes/kinds.py" "$SOURCE" >"$scratch/err" 2>&1; then pass; else fail "kinds are compared outside their tables"; fi

# All recipes together.
copy=$scratch/copy
mkdir "$copy" "$scratch/made"
(tar -cf - --exclude=./build --exclude=./.git --exclude='./tests/fuzz/corpus' .) | (cd "$copy" && tar -xf -)
if /usr/bin/python3 "$SOURCE/tests/recipes/follow.py" "$copy" 2>"$scratch/err"; then pass; else
    fail "a recipe cannot be followed"
    finish
    exit 1
fi

# The device, its host, its cluster, the model: data for the existing program.
cd "$scratch/made" || exit 1
export TRAINYARD_DATA="$copy" XDG_CACHE_HOME="$scratch/cache"
# figure KEY FILE: the first number of a document with this key.
figure() { sed -n "s/.*\"$1\": *\([-0-9.e+]*\).*/\1/p" "$2" | head -n 1; }
expect 0 cluster show two-tenfold
expect_output "tenfold"
for cluster in two-tenfold "2x p100-server"; do
    expect 0 plan -w vgg16 -c "$cluster" --fix devices=1 --no-simulate -q --json
    cp "$scratch/out" "${cluster%% *}.json"
done
if [ "$(echo "$(figure step_time_s two-tenfold.json) $(figure step_time_s 2x.json)" | awk '{ print ($1 < 0.8 * $2) }')" = 1 ]; then pass; else
    fail "ten times the rates: $(figure step_time_s two-tenfold.json) s a step against $(figure step_time_s 2x.json) s"
fi
expect 0 workload show lenet-again
expect_output "lenet-again"

# The model family: by its name, by a type and by a class; Llama's parameters, and a window in every
# second block.
for key in '"model_type": "llama"' '"model_type": "every_other"' '"model_type": "every_second"' '"architectures": ["EveryOtherForCausalLM"]'; do
    echo "{$key, \"num_hidden_layers\": 8, \"hidden_size\": 64, \"intermediate_size\": 128, \"num_attention_heads\": 4, \"vocab_size\": 1000}" >config.json
    expect 0 workload import config.json -o family.json
    windows=$(grep -o '"window": *128' family.json | wc -l) bytes=$(grep -o '"parameter_bytes": *[0-9]*' family.json | cksum)
    if [ "$windows" = "${expected:-0}" ] && [ "$bytes" = "${of_llama:=$bytes}" ]; then pass; else fail "$key: $windows windows"; fi
    expected=4
done
# A launch target is a row and a template, and no other product code.
touched=$(diff -rq "$SOURCE/reports" "$copy/reports")
if [ "$(echo "$touched" | wc -l)" -eq 2 ] && echo "$touched" | grep -q 'launch/launch.c' && echo "$touched" | grep -q 'templates: start.sh.in'; then pass; else
    fail "a launch target touches: $touched"
fi

# Errors in a family are refused with their location.
while IFS='|' read -r step place; do
    sed "s/\"name\": \"every_other\"/\"name\": \"wrong\"/; s/\"steps\": \\[/\"steps\": [$step, /" "$copy/workloads/families/every_other.json" >"$copy/workloads/families/wrong.json"
    echo '{"model_type": "wrong", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 1000}' >config.json
    expect 3 workload import config.json -o family.json
    expect_error_line "wrong.json:/steps/0$place"
done <<'END'
{"set": {"window": "no_such_name + 1"}}|/set/window: found "no_such_name + 1", expected an expression
{"set": {"window": "(1"}}|/set/window: found "(1", expected an expression
{"sizes": {"window": "w"}, "minimun": 0}|/minimun: found an unknown key, expected "minimum"?
{"sets": {"window": 1}}|: found an object, expected a step
END
rm "$copy/workloads/families/wrong.json"

# Every C file that a recipe changes or adds.
changed=$(cd "$copy" && find core planner simulate execute reports -name '*.c' | while IFS= read -r file; do
    cmp -s "$file" "$SOURCE/$file" || echo "$file"
done)
[ "$(echo "$changed" | wc -l)" -ge 7 ] || fail "recipes change only $changed"
folders=$(cd "$copy" && find core workloads topologies planner simulate execute reports -type d -not -path '*/cuda*' | sed 's/^/-I/')
for file in $changed; do
    if (cd "$copy" && cc -std=c11 -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE -Wall -Wswitch-enum -Werror -fsyntax-only $folders "$file") 2>"$scratch/err"; then pass; else fail "$file of the copy does not compile"; fi
done
if [ -z "${TY_ALL:-}" ]; then
    finish
    exit
fi

if CCACHE_BASEDIR=$copy cmake -S "$copy" -B "$copy/build" -G Ninja -DCMAKE_BUILD_TYPE=None -DTY_WITH_CUDA=OFF >"$scratch/log" 2>&1 &&
    cmake --build "$copy/build" --target trainyard trainyard-worker >>"$scratch/log" 2>&1; then pass; else
    tail -n 30 "$scratch/log"
    fail "the copy does not build"
    finish
    exit 1
fi
TRAINYARD=$copy/build/trainyard
export TRAINYARD_WORKER="$copy/build/trainyard-worker"
same() { # same WHAT KEY A B
    if [ -n "$(figure "$2" "$3")" ] && [ "$(figure "$2" "$3")" = "$(figure "$2" "$4")" ]; then pass; else
        fail "$1: $2 is $(figure "$2" "$3") and $(figure "$2" "$4")"
    fi
}

# The schedule runs; no two micro-batches are in the pipeline together, so it takes longer than
# GPipe.
for schedule in turns gpipe; do
    expect 0 plan -w lenet -c "1x p100-server" --fix pp=4,schedule=$schedule,micro_batch=16 --no-simulate -q -o $schedule.json
    expect 0 simulate $schedule.json --json
    cp "$scratch/out" $schedule-simulated.json
done
if [ "$(echo "$(figure step_time_s turns-simulated.json) $(figure step_time_s gpipe-simulated.json)" | awk '{ print ($1 > 1.2 * $2) }')" = 1 ]; then pass; else
    fail "turns takes $(figure step_time_s turns-simulated.json) s, gpipe $(figure step_time_s gpipe-simulated.json) s"
fi
expect 0 plan -w mlp -c local:2 --fix pp=2,schedule=turns -q -o turns-local.json
expect 0 plan -w mlp -c local:2 --fix pp=2,schedule=gpipe -q -o gpipe-local.json
losses() { # of a run, to five digits: orders of sums differ
    sed -n '/"losses"/,/]/p' "$1" | grep -oE '[0-9]+\.[0-9]+' | awk '{ printf "%.4f ", $1 }'
}
for schedule in turns gpipe; do
    expect 0 run $schedule-local.json --steps 8 -q -o $schedule-run.json
done
if [ -n "$(losses turns-run.json)" ] && [ "$(losses turns-run.json)" = "$(losses gpipe-run.json)" ]; then pass; else fail "turns learns $(losses turns-run.json), gpipe $(losses gpipe-run.json)"; fi

# The compressor: the same bytes and the same losses as fp16.
for codec in fp16-again fp16; do
    expect 0 plan -w vgg16 -c "2x p100-server" --stack trainyard --fix pp=1,compression=$codec --no-simulate -q --json
    cp "$scratch/out" $codec.json
    expect 0 plan -w mlp -c local:2 --fix pp=1,compression=$codec,micro_batch=64,bucket=25MiB,algorithm=ring -q -o $codec-local.json
    expect 0 run $codec-local.json --steps 8 -q -o $codec-run.json
done
same "fp16-again" step_time_s fp16-again.json fp16.json
if [ -n "$(losses fp16-run.json)" ] && [ "$(losses fp16-again-run.json)" = "$(losses fp16-run.json)" ]; then pass; else fail "fp16-again learns $(losses fp16-again-run.json), fp16 $(losses fp16-run.json)"; fi

# The layer kind: linear layers by another name have the same cost, and train the same.
expect 0 workload export mlp -o linear.json
sed 's/"kind": *"linear"/"kind": "dense"/' linear.json >dense.json
for kind in dense linear; do
    expect 0 plan -w $kind.json -c "2x p100-server" --fix pp=1,compression=none --no-simulate -q --json
    cp "$scratch/out" $kind-plan.json
    expect 0 plan -w $kind.json -c local:2 --fix pp=1,compression=none,micro_batch=64 -q -o $kind-local.json
    expect 0 run $kind-local.json --steps 8 -q -o $kind-run.json
done
same dense step_time_s dense-plan.json linear-plan.json
if grep -q '"dense' dense.json && [ -n "$(losses dense-run.json)" ] && [ "$(losses dense-run.json)" = "$(losses linear-run.json)" ]; then pass; else
    fail "dense learns $(losses dense-run.json), linear $(losses linear-run.json)"
fi

# The algorithm: a ring's times, estimated and simulated; and it runs.
for algorithm in around ring; do
    expect 0 plan -w vgg16 -c "2x p100-server" --fix pp=1,compression=none,algorithm=$algorithm --no-simulate -q -o $algorithm.json
    expect 0 estimate $algorithm.json --json
    cp "$scratch/out" $algorithm-estimated.json
    expect 0 simulate $algorithm.json --json --resolution chunk
    cp "$scratch/out" $algorithm-simulated.json
done
same around step_time_s around-estimated.json ring-estimated.json
same around step_time_s around-simulated.json ring-simulated.json
expect 0 plan -w mlp -c local:2 --fix pp=1,compression=none,algorithm=around -q -o around-local.json
expect 0 run around-local.json --steps 4 -q

# The axis: read, varied and printed; the plan is that of the one it copies.
for axis in late staleness; do
    expect 0 plan -w vgg16 -c "2x p100-server" --fix pp=1,dp=8,micro_batch=16,compression=none,bucket=25MiB,algorithm=ring,$axis=1 --no-simulate -q -o $axis.json
    expect 0 estimate $axis.json --json
    cp "$scratch/out" $axis-estimated.json
done
same late step_time_s late-estimated.json staleness-estimated.json
expect 0 plan -w vgg16 -c "2x p100-server" --fix pp=1,late=1 --no-simulate -q
expect_output ",late=1"
expect 0 whatif -w vgg16 -c "2x p100-server" --vary late=0,1 --csv -q
expect 4 plan -w vgg16 -c "2x p100-server" --system ddp --fix late=1 -q
expect_error_line "ddp has no late=1: its late is 0"

# The preset: listed, and as good as the one it copies.
expect 0 systems -w vgg16 -c "2x p100-server" -q
expect_output "mine"
for system in mine ddp; do
    expect 0 plan -w vgg16 -c "2x p100-server" --system $system --no-simulate -q --json
    cp "$scratch/out" $system.json
done
same mine step_time_s mine.json ddp.json

# The launch target: its own script with the plan's hosts, and torchrun's settings.
expect 0 plan -w vgg16 -c "2x p100-server" --fix pp=1,compression=none --no-simulate -q -o launched.json
for to in parallel-ssh torchrun; do
    expect 0 export launched.json --to $to -o $to -q
done
if grep -q 'parallel-ssh -i -H host-0 -H host-1 torchrun --nnodes=2 --nproc_per_node=4' parallel-ssh/start.sh && [ -x parallel-ssh/start.sh ]; then pass; else
    fail "start.sh of the launch target"
fi
if [ "$(grep -v '^#' parallel-ssh/trainyard_plan.py)" = "$(grep -v '^#' torchrun/trainyard_plan.py)" ]; then pass; else fail "other settings than torchrun's"; fi
expect 0 plan -w vgg16 -c "2x p100-server" --fix pp=2,compression=none --no-simulate -q -o piped.json
expect 1 export piped.json --to parallel-ssh
expect_error_line "--to parallel-ssh: it has no pipelines"
finish
