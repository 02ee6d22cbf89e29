#!/usr/bin/env python3
"""Requests the table of all systems on the clusters that they were made for. A row marked as equal to
another has its figures, and the page names the pair; each pair of the page occurs."""
import json
import os
import re
import subprocess
import sys

TRAINYARD, SOURCE = os.environ["TRAINYARD"], os.environ["SOURCE"]
TABLES = [("resnet50", cluster, []) for cluster in
          ("baidu-ring-40", "parameter-server-50", "bigdl-xeon", "moxing-v100", "gpipe-p100x8",
           "pipedream-a", "pipedream-b", "pipedream-c", "tensorflow-on-spark-k80", "ddp-v100")]
TABLES += [("lenet", "horovod-p100", []), ("vgg16", "pipedream-c", []), ("gpt2", "pipedream-c", []),
           ("gpt2", "tensorflow-on-spark-k80", []), ("gpt2", "ddp-v100", [])]
TABLES += [(workload, "pipedream-c", ["--stack", "trainyard"]) for workload in ("vgg16", "gpt2")]
FIGURES = ("step_time_s", "peak_memory_bytes", "strategy", "stack")

with open(f"{SOURCE}/docs/guides/compare-systems.md", encoding="utf-8") as page:
    section = page.read().split("## Rows that agree")[1].split("\n## ")[0]
known = set(re.findall(r"^\| `([a-z0-9-]+)`, `([a-z0-9-]+)` \|", section, re.MULTILINE))
met, failed = set(), 0


def fail(text):
    global failed
    failed += 1
    print(text)


for workload, cluster, options in TABLES:
    done = subprocess.run([TRAINYARD, "systems", "-w", workload, "-c", cluster, "--json", *options], check=True,
                          capture_output=True, text=True)
    rows = {row["system"]: row for row in json.loads(done.stdout)["systems"]}
    for name, row in rows.items():
        if "same_as" not in row:
            continue
        other = rows[row["same_as"]]
        met.add((name, row["same_as"]))
        if (name, row["same_as"]) not in known:
            fail(f"{workload} on {cluster}: {name} is the same as {row['same_as']}, which the page does not explain")
        for key in FIGURES:
            if row[key] != other[key]:
                fail(f"{workload} on {cluster}: {key} of {name} is {row[key]}, of {row['same_as']} {other[key]}")
for pair in sorted(known - met):
    fail(f"the page has {pair}, which was not met")
print(f"asked for {len(TABLES)} tables, met {len(met)} pairs")
sys.exit(1 if failed or not met else 0)
