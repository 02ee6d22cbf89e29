#!/bin/sh
# Days and dollars of a training: plan, score, what-if and the settings file agree.
. "$(dirname "$0")/lib.sh"
cd "$scratch" || exit 1

# number KEY FILE: the first figure of that key.
number() {
    sed -n "s/.*\"$1\": \([0-9.e+-]*\).*/\1/p" "$2" | head -n 1
}

same() {
    if [ -n "$1" ] && [ "$1" = "$2" ]; then pass; else fail "$3: '$1' and '$2'"; fi
}

plan() {
    expect 0 "$@" -w gpt2 -c "2x dgx-a100" --no-simulate -q
}

# The line appears only on request.
plan plan
grep -q '^Cost' out && fail "a cost that nobody asked for" || pass
plan plan --tokens 300B --price a100=2 -o plan.json
grep -Eq '^Cost        [0-9.]* (hours|days), [$][0-9.,kM]* for 300B tokens at [$]2.00 per GPU-hour$' out && pass || fail "no line Cost: $(grep Cost out)"
plan plan --tokens 300B --price a100=2 --json
cp out planned.json
tokens=$(number tokens planned.json)
same "$tokens" 300000000000 "tokens"
days=$(number days planned.json)
rate=$(number tokens_per_s planned.json)
goodput=$(sed -n '/"cost"/,/}/s/.*"goodput": \([0-9.]*\).*/\1/p' planned.json | head -n 1)
if echo "$days $rate $goodput" | awk '{ d = 300e9 / $2 / $3 / 86400; exit !($1 / d > 0.999999 && $1 / d < 1.000001) }'; then pass; else fail "days $days at $rate tokens/s and goodput $goodput"; fi
cost=$(number cost_usd planned.json)
if echo "$cost $days" | awk '{ c = $2 * 24 * 16 * 2; exit !($1 / c > 0.999999 && $1 / c < 1.000001) }'; then pass; else fail "cost $cost of $days days"; fi

# One source: a plan that was saved, scored and varied in a table.
expect 0 score plan.json --tokens 300B --price a100=2 --json
same "$(number cost_usd out)" "$cost" "score"
expect 0 score plan.json --tokens 300B --price a100=2
expect_output "Cost        " " per million tokens" " MWh"
plan whatif --vary price=2,4,rental --vary failure_rate=x1,x100 --vary power=x1 --tokens 300B --json
same "$(number cost_usd out)" "$cost" "whatif"
plan whatif --vary price=2,4 --tokens 300B
expect_output "step" "tokens/s" "MFU" "memory" "days" "cost"
plan whatif --vary price=2,4 --tokens 300B --csv
grep -q ',days,cost_usd,cost_usd_per_million_tokens,energy_mwh,' out && pass || fail "columns: $(head -n 1 out)"
twice=$(head -n 1 out | tr -d '\r' | tr ',' '\n' | sort | uniq -d)
[ -z "$twice" ] && pass || fail "columns that come twice: $twice"
at=$(head -n 1 out | tr ',' '\n' | grep -n '^cost_usd$' | cut -d: -f1)
ratio=$(cut -d, -f"$at" out | tr -d '\r' | tail -n 2 | tr '\n' ' ')
if echo "$ratio" | awk '{ exit !($1 > 0 && $2 / $1 > 1.999999 && $2 / $1 < 2.000001) }'; then pass; else fail "twice the price costs $ratio"; fi
plan whatif --vary hosts=1,2
grep -q 'days' out && fail "days that nobody asked for" || pass

# Steps and passes over the data; invalid lengths.
plan plan --steps 1000 --json
same "$(sed -n '/"cost"/,/}/s/.*"steps": \([0-9]*\).*/\1/p' out | head -n 1)" 1000 "steps"
plan plan --epochs 2 --input data=1GB --json
grep -q '"days"' out && pass || fail "no days of two epochs"
expect 2 plan -w gpt2 -c "2x dgx-a100" --epochs 2 -q
expect_error_line "--epochs: the size of the data set is not known"
expect 2 plan -w resnet50 -c "2x dgx-a100" --tokens 1T -q
expect_error_line "--tokens: samples of resnet50 are not sequences"
expect 2 plan -w gpt2 -c "2x dgx-a100" --tokens 1T --steps 5 -q
expect_error_line "expected one"
expect 2 plan -w gpt2 -c "2x dgx-a100" --tokens -1 -q
expect_error_line '--tokens: found "-1"'
expect 2 plan -w gpt2 -c "2x dgx-a100" --tokens 1T --price cheap -q
expect_error_line "--price: found 'cheap'" "rental"
expect 2 whatif -w gpt2 -c "2x dgx-a100" --vary failure_rate=often -q
expect_error_line "failure_rate=often"

# Prices in the settings file; those of the command line take precedence. Steps to run are not a
# length to price.
printf 'price = a100=3\nsteps = 100\n' >settings
TRAINYARD_CONFIG=settings plan plan --tokens 1T
expect_output 'at $3.00 per GPU-hour'
TRAINYARD_CONFIG=settings plan plan --tokens 1T --price 1.5
expect_output 'at $1.50 per GPU-hour'
TRAINYARD_CONFIG=settings plan plan
grep -q '^Cost' out && fail "steps to run were priced" || pass

# An assumption is reported.
expect 0 plan -w "meta-llama/Meta-Llama-3-8B" -c "8x mi300x" --no-simulate
grep -qF 'workload "meta-llama/Meta-Llama-3-8B" taken as llama-3-8b' err && pass || fail "no note of the workload"
grep -qF 'cluster "8x mi300x" taken as 1x mi300x-server: 8 devices on 1 host' err && pass || fail "no note of the cluster"
expect 0 plan -w "gpt2 sequence=512" -c "2x dgx-a100" --no-simulate
[ ! -s err ] && pass || fail "a note where nothing was guessed"
finish
