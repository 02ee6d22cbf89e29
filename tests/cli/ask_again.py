#!/usr/bin/env python3
"""Types the commands that `validate --json` prints: every predicted row has one, and every n-th
row's answer must be its own number to 1e-9.

    ask_again.py TRAINYARD VALIDATION.json EVERY
"""
import json
import subprocess
import sys

program, path, every = sys.argv[1], sys.argv[2], int(sys.argv[3])
with open(path) as file:
    validation = json.load(file)
rows = [
    row
    for source in validation["sources"]
    for row in source["predictions"]
    if "predicted" in row
]
wrong = 0
for row in rows:
    if "command" not in row:
        print(f"{row['id']}: predicted without a command")
        sys.exit(1)
for row in rows[::every]:
    answer = subprocess.run([program, *row["command"]], capture_output=True, text=True)
    if answer.returncode != 0:
        print(f"{row['id']}: exit code {answer.returncode}: {answer.stderr.strip()}")
        wrong += 1
        continue
    figure = json.loads(answer.stdout)
    for key in row["answer_at"].split("/")[1:]:
        figure = figure[int(key) if isinstance(figure, list) else key]
    if abs(figure / row["answer"] - 1) > 1e-9:
        print(f"{row['id']}: {figure!r}, not {row['answer']!r}")
        wrong += 1
print(f"asked {len(rows[::every])} of {len(rows)} rows")
sys.exit(1 if wrong or not rows else 0)
