#!/bin/sh
# What a manager reads on a report of a plan: money, power and energy in the units people use, the memory of a device over
# time, the candidates each told apart.
. "$(dirname "$0")/lib.sh"
cd "$scratch" || exit 1

# ---- Cost and energy in the headline, where prices are known --------------------------------------
expect 0 plan -w vgg16 -c "2x p3.16xlarge" --no-simulate -q -o priced.json
expect 0 report priced.json --no-charts -o priced.html
expect 0 plan -w vgg16 -c "2x p100-server" --no-simulate -q -o unpriced.json
expect 0 report unpriced.json --no-charts -o unpriced.html
expect 0 simulate priced.json --json
/usr/bin/python3 - out priced.html unpriced.html <<'PYTHON' && pass || fail "the headline is not that of the plan: $(cat said)"
import json, re, sys
simulated = json.load(open(sys.argv[1]))

def cards(path):
    page = open(path, encoding="utf-8").read()
    (listed,) = re.findall(r'<ul class="cards">(.*?)</ul>', page)
    return dict(re.findall(r'<li><span class="faint">(.*?)</span><b>(.*?)</b></li>', listed))

priced, unpriced = cards(sys.argv[2]), cards(sys.argv[3])
print(priced, unpriced, file=open("said", "w"))
hour, million = (float(priced[k].lstrip("$")) for k in ("cost an hour", "cost of a million samples"))
SCALES = {"": 1, "k": 1e3}
power, energy = (float(number) * SCALES[scale] for number, scale in
                 (re.fullmatch(unit, priced[k]).groups() for k, unit in
                  (("power", r"([0-9.]+) (k?)W"), ("energy of a million samples", r"([0-9.]+) (k?)Wh"))))
hours = 1e6 / simulated["samples_per_s"] / 3600
assert abs(hour - 2 * 24.48) < 0.01, hour  # what the catalogue says of p3.16xlarge
assert abs(million / (hour * hours) - 1) < 0.01, million
assert abs(energy / (power * hours) - 1) < 0.01, energy
assert re.fullmatch(r"[0-9.]+ GiB of 15.8 GiB", priced["memory of the fullest device"])
assert not any(k.startswith("cost") for k in unpriced)
PYTHON

# ---- The memory of a device over time is that of the plan, however many stages it has --------------
expect 0 plan -w gpt2 -c dgx-a100 --fix pp=4,interleave=3 --no-simulate -o interleaved.json
cp out printed
expect 0 simulate interleaved.json --json
cp out simulated.json
expect 0 report interleaved.json simulated.json --no-charts -o interleaved.html
/usr/bin/python3 - interleaved.json simulated.json interleaved.html <<'PYTHON' && pass || fail "memory over time is not the plan's: $(cat said)"
import json, re, sys
plan, simulated = (json.load(open(p)) for p in sys.argv[1:3])
page = open(sys.argv[3], encoding="utf-8").read()
most = [max(curve["bytes"]) for curve in simulated["memory_over_time"]]
planned = [sum(v for k, v in stage.items() if k.endswith("_bytes")) for stage in plan["memory"][:4]]
print(most, planned, file=open("said", "w"))
assert len(most) == 4 and most == planned
(table,) = re.findall(r'<figure class="chart" id="chart-memory-time">.*?</figure>', page, re.S)
rows = [re.findall(r"<td>([0-9.]+) GiB</td>", line) for line in table.splitlines()]
tops = [max(map(float, column)) for column in zip(*(row for row in rows if row))]
print(tops, file=open("said", "a"))
assert len(tops) == 4 and all(abs(top * 2**30 / p - 1) < 0.06 for top, p in zip(tops, planned))
PYTHON

# ---- What runs ahead of its step is in the bars of what each stage does ------------------------------
expect 0 plan -w corridor-reinforce -c "1x p100-server" --fix actors=2,lag=1 --no-simulate -q -o ahead.json
expect 0 report ahead.json --no-charts -o ahead.html
/usr/bin/python3 - ahead.json ahead.html <<'PYTHON' && pass || fail "actors are idle in the page's bars"
import json, re, sys
step_s = json.load(open(sys.argv[1]))["prediction"]["step_time_s"]
bars = re.search(r"one rank a bar.*?<tbody>(.*?)</tbody>", open(sys.argv[2], encoding="utf-8").read(), re.S)[1]
row = re.search(r">rank 0</td><td>([0-9.]+) (us|ms|s)<", bars)
assert abs(float(row[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1}[row[2]] / step_s - 1) < 0.05, (row[0], step_s)
PYTHON

# ---- No two candidates look alike ------------------------------------------------------------------
expect 0 plan -w gpt2 -c dgx-a100 --no-simulate -o plan.json
/usr/bin/python3 - plan.json <<'PYTHON' && pass || fail "candidates that look alike: $(cat said)"
import collections, json, sys
counts = collections.Counter(row["name"] for row in json.load(open(sys.argv[1]))["candidates"])
print([n for n, k in counts.items() if k > 1], len(counts), file=open("said", "w"))
assert len(counts) > 5 and max(counts.values()) == 1
PYTHON
finish
