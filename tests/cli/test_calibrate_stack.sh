#!/bin/sh
# Step times, one figure, a trace or a log become constants of a framework that every command
# accepts.
. "$(dirname "$0")/lib.sh"
mkdir "$scratch/made" "$scratch/made/deep"
cd "$scratch/made" || exit 1

# near A B SHARE: A is within SHARE of B.
near() {
    if awk "BEGIN { d = $1 / $2 - 1; exit !(d < $3 && d > -$3) }"; then pass; else fail "$1 is not within $3 of $2"; fi
}
value() { # value KEY FILE: the first number or the value of a constant
    sed -n "s/.*\"$1\": {\"value\": \([0-9.e-]*\),.*/\1/p; s/.*\"$1\": \([0-9.e-]*\),*$/\1/p" "$2" | head -n 1
}

# ---- Rows from a framework with other constants determine these constants.
truth="megatron product_share=0.6 network_share=0.5"
echo "workload,cluster,global_batch,fix,step_s" >rows.csv
printf '[' >rows.json
comma=""
while read -r workload hosts batch fix; do
    expect 0 plan -w "$workload" -c "${hosts}x dgx-a100" --global-batch "$batch" --fix "$fix" --stack "$truth" --no-simulate --json
    step=$(value step_time_s "$scratch/out")
    echo "$workload, ${hosts}x dgx-a100, $batch, \"$fix\", $step" >>rows.csv
    printf '%s{"workload": "%s", "cluster": "%sx dgx-a100", "global_batch": %s, "%s": %s, "%s": "%s", "step_s": %s}' "$comma" \
        "$workload" "$hosts" "$batch" "${fix%%=*}" "$(echo "${fix%%,*}" | cut -d= -f2)" \
        "$(echo "${fix#*,}" | cut -d= -f1)" "$(echo "${fix#*,}" | cut -d= -f2)" "$step" >>rows.json
    comma=", "
done <<END
gpt2-medium 2 128 dp=16,micro_batch=8
gpt2-medium 8 64 dp=64,micro_batch=1
gpt2 16 128 dp=128,micro_batch=1
gpt2-medium 1 64 dp=8,micro_batch=8
llama-3-8b 4 32 dp=4,tp=8
gpt2-large 4 32 dp=32,micro_batch=1
END
echo ']' >>rows.json
expect 0 calibrate --stack megatron rows.csv -o mine.json
expect_output "left out" "of rows left out of the fit" "fitted      a100-sxm4-80gb:product_share 0.6" "fitted      network_share 0.5" \
    "left alone  logit_bytes" "untold      " "written     mine.json"
near "$(value product_share mine.json)" 0.6 0.01
near "$(value network_share mine.json)" 0.5 0.03
grep -q '"like": "megatron"' mine.json || fail "the stack is not like the one it was fitted from"
grep -q '"source": "fitted by trainyard calibrate to rows.csv, 20' mine.json || fail "a constant has no source"
[ "$(grep -c '"value"' mine.json)" -eq 2 ] || fail "more is written than changed"
expect 0 check mine.json
expect 0 calibrate --stack megatron rows.csv --json
cp "$scratch/out" fit.json
expect_output '"schema": "trainyard.fit/1"' '"left_out_s": ' '"left_alone": '
awk -v RS=, '/"(after|left_out)": [{]/ { n++; sub(/.*: /, ""); if ($0 + 0 > 0.01) bad = 1 } END { exit !(n == 2 && !bad) }' fit.json &&
        pass || fail "rows are not recovered within 1 %"
# JSON has the same content, with keys of --fix as columns.
expect 0 calibrate --stack megatron rows.json -o same.json
near "$(value product_share same.json)" "$(value product_share mine.json)" 1e-9
printf '{"schema": "trainyard.steps/1", "rows": %s}' "$(cat rows.json)" >steps.json
expect 0 calibrate --stack megatron steps.json -o same.json
near "$(value network_share same.json)" "$(value network_share mine.json)" 1e-9
# Rows that add no information leave the framework's constants unchanged.
expect 0 calibrate --stack "$PWD/mine.json" rows.csv -o deep/again.json
expect_output "fitted      nothing"
[ "$(grep -c '"value"' deep/again.json)" -eq 0 ] && pass || fail "a stack that is right was changed"
# Constants by name, fitted or not.
expect 0 calibrate --stack megatron rows.csv --constants product_share -o one.json
[ "$(grep -c '"value"' one.json)" -eq 1 ] && pass || fail "not the one constant that was asked for"

# ---- Every command accepts the file, from any folder.
fix="dp=16,micro_batch=8"
for stack in mine.json deep/again.json; do
    expect 0 plan -w gpt2-medium -c "2x dgx-a100" --global-batch 128 --fix $fix --stack $stack --no-simulate -o plan.json
    near "$(value step_time_s plan.json)" "$(sed -n 's/.*", //p' rows.csv | head -n 1)" 0.01
done
expect 0 estimate plan.json --stack mine.json --json
expect_output '"stack": "mine"'
expect 0 simulate plan.json --stack mine.json --json
expect_output '"stack": "mine"'
expect 0 memory -w gpt2-medium -c "2x dgx-a100" --stack mine.json
expect_output "Framework   mine ("
expect 0 whatif -w gpt2-medium -c "1x dgx-a100" --global-batch 128 --vary stack=megatron,mine.json --fix dp=8 --no-simulate -q
expect 0 systems -w gpt2-medium -c "1x dgx-a100" --global-batch 128 --stack mine.json
expect 0 stack show mine.json
expect_output "fitted by trainyard calibrate to rows.csv"

# ---- One figure with a given layout: fits compute_scale, and the plan reproduces it.
layout="-w gpt2-xl --global-batch 256 --fix dp=16,micro_batch=8"
for figure in "--mfu 0.41" "--step-time 1500ms" "--tokens-per-s 190000"; do
    # shellcheck disable=SC2086
    expect 0 calibrate --stack megatron $figure $layout -c "2x dgx-a100" -o figure.json --json
    measured=$(sed -n 's/.*"measured_s": \([0-9.e-]*\),.*/\1/p' "$scratch/out")
    # shellcheck disable=SC2086
    expect 0 plan $layout -c "2x dgx-a100" --stack figure.json --no-simulate --json
    near "$(value step_time_s "$scratch/out")" "$measured" 0.001
    grep -q '"compute_scale": {"value": ' figure.json || fail "$figure fits another constant"
    grep -q "to $figure, 20" figure.json || fail "$figure is no source"
done
near "$measured" "$(awk 'BEGIN { print 256 * 1024 / 190000 }')" 1e-5
# Two rows determine no more than one does, which is reported.
head -n 3 rows.csv >two.csv
expect 0 calibrate --stack megatron two.csv -o two.json
grep -q "two.csv: 2 rows tell compute_scale" "$scratch/err" || fail "it is not said what two rows tell"
[ "$(grep -c '"value"' two.json)" -eq 1 ] && grep -q compute_scale two.json && pass || fail "two rows fit more than compute_scale"

# A held-out row is predicted from a fit to the others: any value between them, not the median of
# all three.
expect 0 plan -w gpt2-medium -c "2x dgx-a100" --global-batch 128 --fix $fix --stack megatron --no-simulate --json
base=$(value step_time_s "$scratch/out")
for scale in 1.3 1.5 1.9; do
    echo "gpt2-medium,2x dgx-a100,128,\"$fix\",$(awk "BEGIN { printf \"%.9g\", $scale * $base }")"
done >scaled.csv
{ head -n 1 rows.csv && cat scaled.csv; } >three.csv
expect 0 calibrate --stack megatron three.csv --constants compute_scale --json
near "$(sed -n 's/.*"name": "three.csv:4", .*"left_out_s": \([0-9.e-]*\).*/\1/p' "$scratch/out")" "$(awk "BEGIN { print 1.38 * $base }")" 0.065
near "$(sed -n 's/.*"name": "three.csv:4", .*"after_s": \([0-9.e-]*\).*/\1/p' "$scratch/out")" "$(awk "BEGIN { print 1.5 * $base }")" 0.01

# ---- A log of nccl-tests: half as fast inside the host.
{
    echo "all_reduce_perf -b 64M -e 1G"
    echo "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong"
    for i in 0 1 2 3 4 5 6 7; do echo "#  Rank  $i Group  0 Pid 1 on alpha device  $i [0x0f] NVIDIA A100"; done
    expect 0 cluster collective "1x dgx-a100" --size 64MiB,128MiB,256MiB,512MiB,1GiB --json
    tr -d '\n' <"$scratch/out" | sed 's/"size_bytes": /\n/g' | sed -n 's/^\([0-9]*\),.*"time_s": \([0-9.e-]*\),.*/\1 \2/p' |
        awk '{ t = 2e6 * $2; printf "%d %d float sum -1 %.2f 1.0 1.75 0 %.2f 1.0 1.75 0\n", $1, $1 / 4, t, t }'
} >half.log
[ "$(grep -c ' float ' half.log)" -eq 5 ] || fail "the log was not made"
expect 0 calibrate --stack megatron half.log -c "1x dgx-a100" -o network.json
expect_output "all_reduce of 64 MiB" "left out" "network_share"
near "$(value host_link_share network.json)" 0.5 0.05
if grep -q '"network_share"' network.json; then fail "a log of one host changed the network between hosts"; else pass; fi

# ---- A trace: products that take twice as long halve their share.
kernels() { # kernels PRODUCTS_US ATTENTION_US PASSES_US: two steps
    printf '{"deviceProperties": [{"name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85000000000}], "traceEvents": ['
    at=0
    for step in 5 6; do
        printf '{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#%s", "ts": %s, "dur": 900000},' $step $at
        for row in "ampere_bf16_s16816gemm_bf16_128x128 $1" "flash_fwd_kernel $2" "vectorized_elementwise_kernel $3" "ncclDevKernel_AllReduce_Sum_bf16_RING_LL 5000"; do
            printf '{"ph": "X", "cat": "kernel", "name": "%s", "ts": %s, "dur": %s},' "${row% *}" $at "${row##* }"
        done
        at=1000000
    done
    printf '{"ph": "i", "name": "end", "ts": 2000000}]}'
}
kernels 1000 1000 1000 >first.json
traced="-w gpt2-medium --global-batch 64 --fix dp=8,micro_batch=8,recompute=none"
# shellcheck disable=SC2086
expect 0 calibrate --stack megatron first.json $traced -c "1x dgx-a100" --json
seconds() { sed -n "s/.*\"name\": \"first.json: $1\", .*\"before_s\": \([0-9.e-]*\),.*/\1/p" "$scratch/out" | awk '{ printf "%.6g", 1e6 * $1 }'; }
products=$(seconds products)
attention=$(seconds attention)
passes=$(seconds passes)
# Products run at 0.8738 of the peak, slightly less for their edges; two micro-batches instead of
# one take the same time.
# shellcheck disable=SC2086
expect 0 calibrate --stack megatron --mfu 1 $traced -c "1x dgx-a100" --json -o /dev/null
peak_us=$(sed -n 's/.*"measured_s": \([0-9.e-]*\),.*/\1/p' "$scratch/out" | awk '{ print 1e6 * $1 }')
near "$(awk "BEGIN { print $products + $attention }")" "$(awk "BEGIN { print $peak_us / 0.8738 }")" 0.1
expect 0 calibrate --stack megatron first.json -w gpt2-medium --global-batch 64 --fix dp=8,micro_batch=4,recompute=none -c "1x dgx-a100" --json
near "$(seconds products)" "$products" 0.02
kernels "$(awk "BEGIN { print 2 * $products }")" "$attention" "$passes" >trace.json
# shellcheck disable=SC2086
expect 0 calibrate --stack megatron trace.json $traced -c "1x dgx-a100" -o traced.json
grep -q "trace.json: 2 steps of .* collectives are left alone" "$scratch/err" || fail "it is not said what a trace does not tell"
near "$(value product_share traced.json)" "$(awk 'BEGIN { print 0.8738 / 2 }')" 0.03
expect 0 plan -w gpt2-medium -c "1x dgx-a100" --stack traced.json --no-simulate

# ---- Errors name their location, and nothing is written.
bad() { # bad CODE "text|text" FILE-OR-OPTIONS...
    code=$1
    texts=$2
    shift 2
    expect "$code" calibrate --stack megatron "$@" -o none.json
    old=$IFS
    IFS='|'
    # shellcheck disable=SC2086
    expect_error_line $texts
    IFS=$old
    if [ -e none.json ]; then fail "a failed calibration left a file"; else pass; fi
}
echo "workload,cluster,steps" >bad.csv
bad 3 "bad.csv:1: found 'steps'|did you mean 'step_s'" bad.csv
printf 'workload,cluster,fix\nlenet,1x dgx-a100,\n' >bad.csv
bad 3 "bad.csv:1: found no column of a figure" bad.csv
printf 'workload,step_s\ngpt2,1.5\n' >bad.csv
bad 3 "bad.csv:2: names no cluster" bad.csv
printf 'workload,cluster,step_s\n# of last week\ngpt2,1x dgx-a100\n' >bad.csv
bad 3 "bad.csv:3: found less fields than the 3 columns" bad.csv
printf 'workload,cluster,fix,step_s\ngpt2,1x dgx-a100,dp=8,micro_batch=1,0.4\n' >bad.csv
bad 3 "bad.csv:2: found more fields|in quotes" bad.csv
printf 'workload,cluster,step_s,mfu\ngpt2,1x dgx-a100,0.4,0.3\n' >bad.csv
bad 3 "bad.csv:2: found step_s and mfu, expected one figure" bad.csv
printf 'workload,cluster,step_s,mfu\ngpt2,1x dgx-a100,,\n' >bad.csv
bad 3 "bad.csv:2: has no figure" bad.csv
printf 'workload,cluster,step_s\ngpt2,1x dgx-a100,4 parsecs\n' >bad.csv
bad 3 "bad.csv:2: step_s: |4 parsecs" bad.csv
printf 'workload,cluster,step_s\ngpt2,1x dgx-a100,-1\n' >bad.csv
bad 3 "bad.csv:2: step_s: " bad.csv
printf 'workload,cluster,dp,step_s\ngpt2,1x dgx-a100,7,1\n' >bad.csv
bad 3 "bad.csv:2: " bad.csv
printf 'workload,cluster,tp,dp,step_s\ngpt3-175b,1x dgx-a100,1,8,1000\n' >bad.csv
bad 3 "bad.csv:2: |does not fit" bad.csv
printf 'workload,cluster,tokens_per_s\nresnet50,1x dgx-a100,1000\n' >bad.csv
bad 3 "bad.csv:2: tokens_per_s: samples of resnet50 are not made of tokens" bad.csv
printf 'workload,cluster,global_batch,tokens_per_s\ngpt2,1x dgx-a100,64,1e9\n' >bad.csv
bad 3 "bad.csv:2: tokens_per_s: found 1e+09, which is|% of the peak of the plan's 8 devices" bad.csv
printf '[{"workload": "gpt2", "cluster": "1x dgx-a100", "step_s": [1]}]' >bad.json
bad 3 "bad.json:/0/step_s: " bad.json
printf '[{"workload": "gpt2", "step": 1}]' >bad.json
bad 3 "bad.json:/0|found 'step'" bad.json
: >bad.csv
bad 3 "bad.csv: found no line" bad.csv
echo "workload,cluster,step_s" >bad.csv
bad 3 "bad.csv: found no row" bad.csv
printf 'workload,cluster,step_s\ngpt2,1x dgx-a100,0.5\n' >one.csv
bad 3 "one.csv: found 1 row, expected 3 and more for network_share" one.csv --constants network_share
bad 2 "did you mean 'product_share'" rows.csv --constants product_shar
bad 3 "half.log: found a log of nccl-tests beside a table of steps" rows.csv half.log
bad 2 "--cluster is needed" half.log
bad 3 "half.log: found 8 ranks" half.log -c "1x p100-server"
# shellcheck disable=SC2086
bad 3 "--mfu: found '4'|400 % of the peak" --mfu 4 $layout -c "2x dgx-a100"
# shellcheck disable=SC2086
bad 3 "--tokens-per-s: tokens_per_s: found 1e+08, which is" --tokens-per-s 1e8 $layout -c "2x dgx-a100"
bad 3 "--step-time: a step of |go to hosts and the network" --step-time 40ms -w gpt2-xl -c "16x dgx-a100" --global-batch 128 --fix dp=128
bad 3 "--mfu: names no workload" --mfu 0.4 -c "2x dgx-a100"
bad 2 "found --mfu and --step-time, expected one figure" --mfu 0.4 --step-time 1 -w gpt2 -c "2x dgx-a100"
bad 2 "expected files or a figure, found both" rows.csv --mfu 0.4
bad 2 "--stack needs rows, a trace, logs, --mfu, --tokens-per-s or --step-time"
expect 2 calibrate rows.csv --mfu 0.4
expect_error_line "--stack is needed"
expect 2 calibrate --stack "megatron product_share=0.5" rows.csv
expect_error_line "expected a name or a file"
expect 2 calibrate --stack megatrn rows.csv
expect_error_line "did you mean 'megatron'"

# A log cannot be fitted into a framework that is a default for all users.
echo "stack = megatron" >conf
TRAINYARD_CONFIG=$PWD/conf expect 0 calibrate half.log -c "1x dgx-a100" -o profile.json
grep -q 'trainyard.profile/1' profile.json && pass || fail "a default stack turned a profile into a stack"
finish
