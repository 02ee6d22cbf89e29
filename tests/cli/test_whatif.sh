#!/bin/sh
# What-if: combinations, order, resuming, reasons; and the report of it.
. "$(dirname "$0")/lib.sh"
mkdir "$scratch/made"

# Every combination, the last key fastest; each row equals the result of plan.
expect 0 whatif -w vgg16 -c "2x p100-server" -q --vary hosts=1,2 --vary pp=1,2 --no-simulate --csv
cp "$scratch/out" "$scratch/rows.csv"
order=$(cut -d, -f1,2 "$scratch/rows.csv" | tr -d '"\r' | tr '\n' ' ')
if [ "$order" = "hosts,pp 1,1 1,2 2,1 2,2 " ]; then pass; else fail "order of rows: $order"; fi
for hosts in 1 2; do
    for pp in 1 2; do
        expect 0 plan -w vgg16 -c "${hosts}x p100-server" --fix pp=$pp --no-simulate --json -q
        planned=$(sed -n 's/.*"step_time_s": \([^,]*\),.*/\1/p' "$scratch/out" | head -n 1)
        if grep -qF "\"$hosts\",\"$pp\"," "$scratch/rows.csv" &&
            grep -F "\"$hosts\",\"$pp\"," "$scratch/rows.csv" | grep -qF ",$planned,"; then
            pass
        else
            fail "hosts=$hosts pp=$pp: plan says $planned, what-if $(grep -F "\"$hosts\",\"$pp\"," "$scratch/rows.csv")"
        fi
    done
done

# Blanks around values are not part of them.
expect 0 whatif -w vgg16 -c "2x p100-server" -q --vary "hosts=1, 2 " --no-simulate --csv
expect_output '"1",4,' '"2",8,'

# Optimizers: memory and step next to each other; without the option the workload's.
expect 0 whatif -w gpt2 -c "1x dgx-a100" -q --fix dp=8,zero=0,micro_batch=8 --vary optimizer=adamw,adam8bit,adafactor,muon --no-simulate --json
cp "$scratch/out" "$scratch/optimizers.json"
expect 0 memory -w gpt2 -c "1x dgx-a100" -q --fix dp=8,zero=0,micro_batch=8 --json
if python3 - "$scratch/optimizers.json" "$scratch/out" <<'END'
import json
import sys

rows, own = (json.load(open(name)) for name in sys.argv[1:])
memory = [row["peak_memory_bytes"] for row in rows["rows"]]
step = [row["step_time_s"] for row in rows["rows"]]
adamw, eight_bits, adafactor, muon = memory
sys.exit(not (adamw > muon > eight_bits > adafactor and step[0] > step[1] and step[3] > step[2] and
              adamw == max(stage["total_bytes"] for stage in own["stages"])))
END
then pass; else fail "memory and steps of optimizers"; fi

# Lengths of sequences are typed as in the field: 1k is 1,024.
expect 0 whatif -w gpt2 -c "1x dgx-a100" -q --fix dp=8 --vary seq=1k,512 --no-simulate --csv
expect_output '"1k",8,' '"512",8,'
expect 0 plan -w gpt2 -c "1x dgx-a100" --seq 1k --fix dp=8 --no-simulate -q --json
expect_output '"tokens_per_sample": 1024'

# Links inside one host, whose rings close: no result is slower with more of them.
expect 0 whatif -w "gpt2-medium sequence=128" -c "1x dgx-a100" -q --fix tp=8 --vary bandwidth.nvlink3=x0.5,x1,x2 --no-simulate --csv
times=$(sed -n '2,4p' "$scratch/out" | cut -d, -f4 | tr '\n' ' ')
if echo "$times" | awk '{ exit !($1 > $2 && $2 > $3 && $3 > 0) }'; then pass; else fail "rates of NVLink: step times $times"; fi

# Every option of plan can be varied: systems, compressors, sharding, parallel sizes, objectives.
expect 0 whatif -w vgg16 -c "2x p100-server" -q --vary system=horovod,gpipe --no-simulate --csv
expect_output '"horovod",8,' '"gpipe",8,' "full recompute"
expect 0 whatif -w "gpt2 sequence=128" -c "1x dgx-a100" -q --vary tp=1,2 --vary zero=1,2 --vary compression=none,fp16 --no-simulate --csv
expect_output '"1","1","none",8,' '"2","2","fp16",8,' "tensor parallel 2, ZeRO 2"
expect 0 whatif -w vgg16 -c "2x p100-server" -q --vary staleness=0,1 --fix pp=1,compression=none --no-simulate --csv
expect_output '"0",8,' '"1",8,' "data parallel 8, staleness 1"
expect 0 whatif -w resnet50 -c "1x p3.16xlarge" -q --vary objective=throughput,cost --vary precision=fp32,fp16 --task resnet50-imagenet --no-simulate --csv
expect_output '"throughput","fp32",8,' '"cost","fp16",8,'
# Hosts of a cluster, as users type it.
for typed in "8x a100" A100 "dgx-a100 x 2" "DGX-A100 storage=nvme"; do
    expect 0 whatif -w vgg16 -c "$typed" -q --vary hosts=1,2 --no-simulate --csv
    expect_output '"1",8,' '"2",16,'
done
# Storage and options of samples: plans limited by them report it, with the level.
expect 0 whatif -w resnet50 -c "2x p100-server storage=nvme storage=nas{bandwidth=10MB/s}" -q --fix dp=8 --input data=10TB --no-simulate --csv \
    --vary storage.bandwidth=x1,x2,100GB/s --vary input.epoch=first,later
expect_output '"x1","first",8,' '"100GB/s","later",8,' "input (nas)"
times=$(sed -n '2,7p' "$scratch/out" | cut -d, -f5 | tr '\n' ' ')
if echo "$times" | awk '{ exit !($1 / $3 > 1.99 && $1 / $3 < 2.01 && $5 < $3 && $2 < $1 * 0.63 && $5 == $6) }'; then pass; else fail "rates of the store and the first epoch: step times $times"; fi
expect 0 whatif -w resnet50 -c "1x p100-server" -q --fix dp=4 --input decode=1 --no-simulate --csv --vary input.cores=1,8
expect_output "input (decoding)"
expect 2 whatif -w resnet50 -c "1x p100-server" -q --no-simulate --vary storage.bandwidth=x2 --json
expect_output 'has no storage'

# Faster devices take less time, down to the limits of the interconnect and of launches.
expect 0 whatif -w vgg16 -c "4x p100-server" -q --vary compute=x1,x1000 --no-simulate --csv
times=$(sed -n '2,3p' "$scratch/out" | cut -d, -f4 | tr '\n' ' ')
if echo "$times" | awk '{ exit !($1 > 2 * $2 && $2 > 0) }'; then pass; else fail "compute x1000: step times $times"; fi

# The same document for any number of processes and any interruption. A key's rows count in any
# order.
expect 0 whatif -w vgg16 -c "2x p100-server" -q --vary hosts=1,3 --vary "cluster=2x dgx-a100,2x p100-server" --no-simulate --json
expect_output '"devices": 8' '"devices": 24' '"devices": 4' '"devices": 12'
expect 0 whatif -w vgg16 -c "2x p100-server" -q --vary hosts=1,2,4 --vary bandwidth.all=x0.5,x1 -o "$scratch/whole.json"
expect 0 whatif -w vgg16 -c "2x p100-server" -q --vary hosts=1,4 --vary bandwidth.all=x1 -o "$scratch/part.json"
expect 0 whatif -w vgg16 -c "2x p100-server" -q --vary hosts=1,2,4 --vary bandwidth.all=x0.5,x1 \
    --rows "$scratch/part.json" -o "$scratch/resumed.json"
if cmp -s "$scratch/whole.json" "$scratch/resumed.json"; then pass; else fail "resumed and whole documents differ"; fi
# An existing row is not recomputed: a mark in it survives.
sed 's/"limited_by": "compute"/"limited_by": "a mark"/' "$scratch/whole.json" >"$scratch/marked.json"
expect 0 whatif -w vgg16 -c "2x p100-server" -q --vary hosts=1,2,4 --vary bandwidth.all=x0.5,x1 \
    --rows "$scratch/marked.json" --json
expect_output "a mark" '"is_complete": true'

# Refusals.
expect 3 whatif -w vgg16 -c "2x p100-server" -q --vary hosts=1 --seed 2 --rows "$scratch/whole.json"
expect_error_line "question" "another question"
expect 2 whatif -w vgg16 -c "2x p100-server" -q
expect_error_line "--vary"
expect 2 whatif -w vgg16 -c "2x p100-server" -q --vary hots=1
expect_error_line "unknown key 'hots'" "did you mean hosts?"
expect 2 whatif -w vgg16 -c "2x p100-server" -q --vary colour=red
expect_error_line "unknown key 'colour'" "objective" "bandwidth.LINK"
expect 2 whatif -w vgg16 -c "2x p100-server" -q --vary objective=cots
expect_error_line "objective=cots" "did you mean cost"
expect 2 whatif -w vgg16 -c "2x p100-server" -q --vary hosts=
expect_error_line "KEY=VALUE"
expect 2 whatif -w vgg16 -c "2x p100-server" -q --vary hosts=0
expect_error_line "hosts=0"
expect 2 whatif -w vgg16 -c "2x p100-server" -q --vary compute=5
expect_error_line "factor"
expect 2 whatif -w vgg16 -c "2x p100-server" -q --vary bandwidth.all=-3GB/s
expect_error_line "bandwidth.all"
expect 2 whatif -w vgg16 -c "2x p100-server" -q --vary leaf=2
expect_error_line "leaf:"
expect 3 whatif -w vgg16 -c "2x p100-server" -q --vary "workload=vgg16,vgg17"
expect_error_line "vgg17"
expect 4 whatif -w gpt3-175b -c "1x dgx-a100" -q --vary pp=1 --fix tp=1 --csv
if grep -q "does not fit" "$scratch/out"; then pass; else fail "no reason in the table"; fi
if [ "$(ls -A "$scratch/made" | wc -l)" -eq 0 ]; then pass; else fail "files left behind"; fi

# Reports of documents, and refused ones.
expect 4 plan -w gpt3-175b -c "1x dgx-a100" --fix pp=1,tp=1 -q --json
cp "$scratch/out" "$scratch/failed.json"
expect_output "trainyard.infeasible/1" "does not fit"
expect 0 report "$scratch/failed.json" "$scratch/whole.json" -o "$scratch/report.html"
report_holds "$scratch/report.html" '"does not fit" in docs["infeasible"]["reason"] and docs["whatif"]["vary"] and "plan" not in d'
page_says "$scratch/report.html" "No plan fits." "Fastest: " "Every combination"
echo '{"schema":"trainyard.zoo/1"}' >"$scratch/other.json"
expect 3 report "$scratch/other.json" -o "$scratch/made/none.html"
expect_error_line "trainyard.zoo/1" "expected one of"
# A plan with its own simulation, two plans next to each other; not three, not the simulation of
# another plan, not a simulation alone.
for hosts in 1 2; do
    expect 0 plan -w vgg16 -c "${hosts}x p100-server" --no-simulate -q -o "$scratch/plan-$hosts.json"
    expect 0 simulate "$scratch/plan-$hosts.json" --json
    cp "$scratch/out" "$scratch/simulated-$hosts.json"
done
expect 0 report "$scratch/plan-1.json" "$scratch/simulated-1.json" -o "$scratch/report.html"
report_holds "$scratch/report.html" 'd["timeline"]["items"] and not d["timeline"]["is_measured"]'
expect 0 report "$scratch/plan-1.json" "$scratch/plan-2.json" -o "$scratch/report.html"
report_holds "$scratch/report.html" 'd["plan"]["cluster"] == "1x p100-server" and d["other"]["plan"]["cluster"] == "2x p100-server"'
page_says "$scratch/report.html" "plan-2.json: vgg16 on 2x p100-server" "A takes "
# Each has the step time of its own simulation.
for side in 1 2; do
    step=$(sed -n 's/.*"step_time_s": *\([0-9.e-]*\).*/\1/p' "$scratch/simulated-$side.json" | head -n 1)
    report_holds "$scratch/report.html" "abs((d, d['other'])[$side - 1]['prediction']['step_time_s'] / $step - 1) < 1e-9"
done
expect 2 report "$scratch/plan-1.json" "$scratch/plan-2.json" "$scratch/plan-1.json" -o "$scratch/made/none.html"
expect_error_line "at most 2 side by side"
expect 3 report "$scratch/plan-1.json" "$scratch/simulated-2.json" -o "$scratch/made/none.html"
expect_error_line "simulated-2.json"
expect 2 report "$scratch/simulated-1.json" -o "$scratch/made/none.html"
expect_error_line "without its plan"
expect_only
# A combination that does not finish, for lack of memory or because its process was killed, affects
# no other one.
odd=32768 # hosts, which need some hundred megabytes
if [ -z "${TY_SANITIZE:-}" ]; then
    (
        ulimit -v 200000
        "$TRAINYARD" whatif -w resnet50 -c "1x p3.16xlarge" --stack trainyard -q --vary hosts=$odd,1 --no-simulate -o "$scratch/lost.json"
    ) >"$scratch/out" 2>"$scratch/err"
    got=$?
    if [ $got -eq 1 ]; then pass; else fail "exit code $got instead of 1 where memory runs out"; fi
    expect_error_line "1 of 2 combinations came to no end"
    expect_output "$odd  no plan: out of memory" "1  "
    expect 0 check "$scratch/lost.json"
fi
"$TRAINYARD" whatif -w resnet50 -c "1x p3.16xlarge" -q --vary hosts=$odd,1 --no-simulate -o "$scratch/killed.json" >"$scratch/out" 2>"$scratch/err" &
pid=$!
tries=0
until pgrep -P $pid >"$scratch/child" || [ $tries -eq 100 ]; do
    tries=$((tries + 1))
    sleep 0.05
done
kill -9 "$(head -n 1 "$scratch/child")"
wait $pid
got=$?
if [ $got -eq 1 ]; then pass; else fail "exit code $got instead of 1 where a process is killed"; fi
expect_output "no plan: the process of this combination died (signal 9, as where memory runs out)" "hosts " "MFU"
grep -q "^$odd  *no plan" "$scratch/out" && grep -q "^1  *[0-9.]* [mu]*s " "$scratch/out" && pass || fail "rows are not called by their values"
# Repeated without the fault: another value in its place shows that the row does not count as done.
expect 0 whatif -w resnet50 -c "1x p3.16xlarge" -q --vary batch=256,512 --no-simulate -o "$scratch/whole.json"
sed 's/"values": {"batch": "512"}, .*}/"values": {"batch": "512"}, "reason": "died", "is_lost": true}/' "$scratch/whole.json" >"$scratch/holed.json"
grep -q is_lost "$scratch/holed.json" && pass || fail "no row was taken out"
expect 0 whatif -w resnet50 -c "1x p3.16xlarge" -q --vary batch=256,512 --no-simulate --rows "$scratch/holed.json" -o "$scratch/again.json"
if cmp -s "$scratch/whole.json" "$scratch/again.json"; then pass; else fail "a row that was lost is not tried again"; fi
finish
