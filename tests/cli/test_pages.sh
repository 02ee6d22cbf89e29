#!/bin/sh
# A report's figures of cost, power, energy and memory, in common units; the candidates, each
# distinct.
. "$(dirname "$0")/lib.sh"
cd "$scratch" || exit 1

# ---- Cost and energy, if prices are known ----------------------------------------------------------
expect 0 plan -w vgg16 -c "2x p3.16xlarge" --no-simulate -q -o priced.json
expect 0 report priced.json -o priced.html
expect 0 plan -w vgg16 -c "2x p100-server" --no-simulate -q -o unpriced.json
expect 0 report unpriced.json -o unpriced.html
report_holds priced.html 'abs(docs["score"]["price_usd_per_hour"] - 2 * 24.48) < 0.01 and docs["score"]["power_w"]["expected"] > 0' # of the catalogue
report_holds unpriced.html '"price_usd_per_hour" not in docs["score"]'
report_holds priced.html 'abs(d["plan"]["usable_memory_bytes"] / 2**30 - 15.8) < 0.05'
if command -v chromium >/dev/null; then
    page_says priced.html "cost per hour|\$48.96|" "The cluster costs \$48.96 per hour."
    cp "$scratch/seen" seen
    expect 0 simulate priced.json --json
    /usr/bin/python3 - out seen <<'PYTHON' && pass || fail "the cards are not those of the plan: $(cat said)"
import json, re, sys
simulated = json.load(open(sys.argv[1]))
seen = open(sys.argv[2]).read()
card = lambda label: re.search(re.escape(label) + r"\|([^|]*)\|", seen)[1]
SCALES = {"": 1, "k": 1e3}
def watts(text, unit):
    number, scale = re.fullmatch(r"([0-9.]+) (k?)" + unit, text).groups()
    return float(number) * SCALES[scale]
million, power, energy = float(card("cost per million samples").lstrip("$")), watts(card("power"), "W"), watts(card("energy per million samples"), "Wh")
hours = 1e6 / simulated["samples_per_s"] / 3600
print(million, power, energy, hours, file=open("said", "w"))
assert abs(million / (48.96 * hours) - 1) < 0.01 and abs(energy / (power * hours) - 1) < 0.01
assert re.fullmatch(r"[0-9.]+ GiB of 15.8 GiB", card("memory of the fullest device"))
PYTHON
    page_says unpriced.html "power|"
    if grep -q "cost per" "$scratch/seen"; then fail "a cost without a price"; else pass; fi
fi

# ---- The memory of a device over time is that of the plan, for any number of stages ----------------
expect 0 plan -w gpt2 -c dgx-a100 --fix pp=4,interleave=3 --no-simulate -o interleaved.json
cp out printed
expect 0 simulate interleaved.json --json
cp out simulated.json
expect 0 report interleaved.json simulated.json -o interleaved.html
report_holds interleaved.html '[max(c["bytes"]) for c in docs["simulation"]["memory_over_time"]] == [sum(d["plan"]["stages"][s["like"]]["bytes"]) for s in d["plan"]["stages"]]'
page_says interleaved.html "Memory of a device over the simulated time" "pipeline rank 3|"

# ---- Instructions that run ahead of their step are included in the time per stage --------------------
expect 0 plan -w corridor-reinforce -c "1x p100-server" --fix actors=2,lag=1 --no-simulate -q -o ahead.json
expect 0 report ahead.json -o ahead.html
report_holds ahead.html 'abs(d["timeline"]["stage_parts"][0]["seconds"][0] / json.load(open("ahead.json"))["prediction"]["step_time_s"] - 1) < 0.05'

# ---- No two candidates look alike ------------------------------------------------------------------
expect 0 plan -w gpt2 -c dgx-a100 --no-simulate -o plan.json
/usr/bin/python3 - plan.json <<'PYTHON' && pass || fail "candidates that look alike: $(cat said)"
import collections, json, sys
counts = collections.Counter(row["name"] for row in json.load(open(sys.argv[1]))["candidates"])
print([n for n, k in counts.items() if k > 1], len(counts), file=open("said", "w"))
assert len(counts) > 5 and max(counts.values()) == 1
PYTHON
finish
