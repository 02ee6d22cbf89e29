#!/usr/bin/env python3
"""Finds the error of answers without --stack: rows of published measurements, asked as a user would.

    trainyard validate MEASUREMENTS --json | python3 defaults.py TRAINYARD [--most N] [--write PAGE | --check PAGE]

Each row's own command runs without its --stack. Prints error, pair order, regret and the refused share by
device family, then over all rows, and exits 1 if the median exceeds MEDIAN or the refused share REFUSED.
Rows are those of language models, and image networks on the fewest devices of a series, that no constant was
fitted to.
--most N: at most N rows per source, evenly spread, each weighted by the rows that it represents.
--write PAGE: writes the page defaults.md. --check PAGE: exits 1 if the error or the refused share of all rows
exceeds that of the page by more than WORSE.
"""
import argparse
import concurrent.futures
import datetime
import functools
import itertools
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys

MEDIAN = 0.13
REFUSED = 0.03
WORSE = 0.005
PREDICTORS = ("language-model", "data-parallel-absolute")
TIMES = ("s", "min")  # units in which a longer step is a larger figure
HEAD = ["device family", "rows", "refused", "mean", "median", "p90", "pair order", "regret"]
PAGE = """# Predictions without a framework named: results

How far off is the answer of a user who names model, cluster and layout, but no framework? The published rows that
no constant was fitted to were asked without `--stack`, so that the planner chose its default.

```
trainyard validate ../shared/data/measurements --json | python3 docs/results/defaults.py TRAINYARD --write docs/results/defaults.md
```

Commit {commit}, {date}. A refused row has no plan with the default framework, and no error. Pair order: share of
pairs of configurations of one model on one cluster whose order is right. Regret: how much slower the
predicted-best configuration is than the measured-best one.

{table}

A slow test (`defaults`) asks all rows again. It fails if the median exceeds {median}, if more than {refused} are refused, or if
one of these figures or the mean is worse than here by more than {worse}.
"""


def option(row, name):
    command = row["command"]
    return command[command.index(name) + 1] if name in command else ""


def rows_of(validation):
    """Rows by source that have a command with a stack of its own."""
    sources = {}
    for source in validation["sources"]:
        for row in source["predictions"]:
            if row["predictor"] in PREDICTORS and "predicted" in row and not row["is_fitted"]:
                if "--stack" in row.get("command", []):
                    sources.setdefault(source["source"], []).append(row)
    return sources


@functools.lru_cache(maxsize=None)
def family_of(program, cluster):
    """The generation of the devices of a cluster."""
    done = subprocess.run([program, "cluster", "export", cluster], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["device_types"][0]["generation"]


def ask(program, source, row, weight):
    """The row without its stack: its family, weight, group of rows that compare, and, unless it is refused, figures."""
    command = list(row["command"])
    at = command.index("--stack")
    del command[at : at + 2]
    done = subprocess.run([program, *command], capture_output=True, text=True)
    is_time = row["unit"] in TIMES
    cluster = option(row, "--cluster")
    answer = {
        "family": family_of(program, cluster),
        "weight": weight,
        "group": (source, option(row, "--workload"), cluster, row["metric"], is_time and option(row, "--global-batch")),
    }
    if done.returncode == 0:
        slower = json.loads(done.stdout)["prediction"]["step_time_s"] / row["predicted_step_time_s"]
        figure = row["predicted"] * slower if is_time else row["predicted"] / slower
        sign = 1 if is_time else -1  # as costs: less is better
        answer |= {"error": abs(figure / row["measured"] - 1), "costs": (figure**sign, row["measured"] ** sign)}
    return answer


def percentile(errors, share):
    """Of (error, weight)."""
    left = share * sum(weight for _, weight in errors)
    for error, weight in sorted(errors):
        left -= weight
        if left <= 0:
            return error
    return math.nan


def order_and_regret(answers):
    """Share of pairs in the right order, and the mean slowdown of the predicted best, over groups of rows."""
    groups, points, regrets = {}, [], []
    for answer in answers:
        groups.setdefault(answer["group"], []).append(answer["costs"])
    for costs in groups.values():
        for (predicted, measured), (other, measured_other) in itertools.combinations(costs, 2):
            if measured != measured_other:
                points.append(0.5 if predicted == other else (predicted < other) == (measured < measured_other))
        if len(costs) > 1:
            regrets.append(min(costs)[1] / min(measured for _, measured in costs) - 1)
    return [statistics.mean(figures) if figures else math.nan for figures in (points, regrets)]


def figures_of(answers):
    """Rows, then refused share, mean, median, p90, pair order, regret."""
    answered = [answer for answer in answers if "error" in answer]
    errors = [(answer["error"], answer["weight"]) for answer in answered]
    rows, weight = (sum(answer["weight"] for answer in some) for some in (answers, answered))
    mean = sum(error * weight for error, weight in errors) / weight if errors else math.nan
    return [rows, 1 - weight / rows, mean, percentile(errors, 0.5), percentile(errors, 0.9), *order_and_regret(answered)]


def percent(share):
    return f"{100 * share:.1f} %"


def line(cells):
    return "| " + " | ".join(cells) + " |"


def table_of(families):
    """@param families name -> figures"""
    lines = [line(HEAD), line(["---"] + ["---:"] * (len(HEAD) - 1))]
    for name, (rows, *shares) in families.items():
        lines.append(line([name, f"{rows:.0f}"] + ["-" if math.isnan(share) else percent(share) for share in shares]))
    return "\n".join(lines)


def worse_than(page, figures):
    """What exceeds the page's figures of all rows: refused share, mean, median."""
    row = re.search(r"^\| \*\*all\*\* \|(.*)\|$", pathlib.Path(page).read_text(), re.MULTILINE).group(1)
    shown = [float(cell.strip().rstrip(" %")) / 100 for cell in row.split("|")[1:4]]
    return [f"{name} {percent(found)}, and {percent(old)} on {page}" for name, found, old in zip(HEAD[2:5], figures[1:4], shown) if found > old + WORSE]


def write(page, table):
    root = pathlib.Path(__file__).parent
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True, check=True)
    bounds = {"median": percent(MEDIAN), "refused": percent(REFUSED), "worse": percent(WORSE)}
    text = PAGE.format(commit=commit.stdout.strip(), date=datetime.date.today(), table=table, **bounds)
    pathlib.Path(page).write_text(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--most", type=int, default=sys.maxsize)
    parser.add_argument("--write", metavar="PAGE")
    parser.add_argument("--check", metavar="PAGE")
    options = parser.parse_args()
    questions = []
    for source, rows in sorted(rows_of(json.load(sys.stdin)).items()):
        taken = rows[:: max(1, -(-len(rows) // options.most))]
        questions += [(options.program, source, row, len(rows) / len(taken)) for row in taken]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        answers = list(pool.map(lambda question: ask(*question), questions))
    families = {}
    for answer in answers:
        families.setdefault(answer["family"], []).append(answer)
    families = {name: figures_of(families[name]) for name in sorted(families, key=lambda name: -len(families[name]))}
    families["**all**"] = figures_of(answers)
    table = table_of(families)
    print(table)
    if options.write:
        write(options.write, table)
    share, median = families["**all**"][1], families["**all**"][3]
    if median > MEDIAN or share > REFUSED:
        sys.exit(f"defaults.py: median {percent(median)} and {percent(share)} refused, expected at most {percent(MEDIAN)} and {percent(REFUSED)}")
    if options.check and (worse := worse_than(options.check, families["**all**"])):
        sys.exit("defaults.py: " + "; ".join(worse))


if __name__ == "__main__":
    main()
