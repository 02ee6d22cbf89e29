#!/usr/bin/env python3
"""How far off answers are that name no stack: the rows of published measurements, asked as a user would.

    trainyard validate MEASUREMENTS --json | python3 defaults.py TRAINYARD [--most N]

Each row's own command runs without its --stack. Prints the error by source, then over all rows, and
exits 1 where the median is above MEDIAN or more than REFUSED of the rows are refused. Rows are those of
language models, and image networks on the fewest devices of a series, that no constant was fitted to.
--most N: at most N rows of a source, evenly spread, each counting for as many as it stands for.
"""
import argparse
import concurrent.futures
import json
import os
import statistics
import subprocess
import sys

MEDIAN = 0.13
REFUSED = 0.03
PREDICTORS = ("language-model", "data-parallel-absolute")
TIMES = ("s", "min")  # units in which a longer step is a larger figure


def rows_of(validation):
    """Rows by source that have a command with a stack of its own."""
    sources = {}
    for source in validation["sources"]:
        for row in source["predictions"]:
            if row["predictor"] in PREDICTORS and "predicted" in row and not row["is_fitted"]:
                if "--stack" in row.get("command", []):
                    sources.setdefault(source["source"], []).append(row)
    return sources


def ask(program, row):
    """The error of the row without its stack; None: refused. And the stack that answered."""
    command = list(row["command"])
    at = command.index("--stack")
    del command[at : at + 2]
    done = subprocess.run([program, *command], capture_output=True, text=True)
    if done.returncode != 0:
        return None, ""
    answer = json.loads(done.stdout)
    slower = answer["prediction"]["step_time_s"] / row["predicted_step_time_s"]
    figure = row["predicted"] * slower if row["unit"] in TIMES else row["predicted"] / slower
    return abs(figure / row["measured"] - 1), answer["stack"]["name"]


def weighted_median(errors):
    """Of (error, weight)."""
    half = sum(weight for _, weight in errors) / 2
    for error, weight in sorted(errors):
        half -= weight
        if half <= 0:
            return error
    return float("nan")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--most", type=int, default=sys.maxsize)
    options = parser.parse_args()
    everything, refused, asked = [], 0, 0
    print("| source | rows | refused | mean | median | stacks |")
    print("| --- | ---: | ---: | ---: | ---: | --- |")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for source, rows in sorted(rows_of(json.load(sys.stdin)).items()):
            taken = rows[:: max(1, -(-len(rows) // options.most))]
            weight = len(rows) / len(taken)
            answers = list(pool.map(lambda row: ask(options.program, row), taken))
            errors = [error for error, _ in answers if error is not None]
            names = ", ".join(sorted({name for _, name in answers if name}))
            mean, median = (statistics.mean(errors), statistics.median(errors)) if errors else (0, 0)
            print(f"| {source} | {len(taken)} | {len(taken) - len(errors)} | {mean:.1%} | {median:.1%} | {names} |")
            everything += [(error, weight) for error in errors]
            refused += weight * (len(taken) - len(errors))
            asked += weight * len(taken)
    mean = sum(error * weight for error, weight in everything) / sum(weight for _, weight in everything)
    median, share = weighted_median(everything), refused / asked
    print(f"| **all** | {asked:.0f} | {share:.1%} | {mean:.1%} | {median:.1%} | |")
    if median > MEDIAN or share > REFUSED:
        sys.exit(f"defaults.py: median {median:.1%} and {share:.1%} refused, expected at most {MEDIAN:.0%} and {REFUSED:.0%}")


if __name__ == "__main__":
    main()
