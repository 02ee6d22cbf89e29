#!/usr/bin/env python3
"""Asks published rows as a reader of their source would, and writes the evidence of prediction intervals.

    python3 docs/results/evidence.py TRAINYARD MEASUREMENTS study/evidence/rows.json [--most N]

`validate` turns each row into a question. Each question is asked with the framework that its source names, else
with none, and without what a reader would not state: the all-reduce algorithm, the bucket size, and a precision
that the source omits. Rows without a step time or without a plan are left out. --most N: at most N rows per source.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess

PREDICTORS = ("language-model", "data-parallel-absolute", "data-parallel-scaling")
TIMES = ("s", "min")  # units in which a longer step is a larger figure
# Frameworks named after a data set, and the one that `validate` takes for all image networks: not named.
NOT_NAMED = ("megatron-vtrain-node", "megatron-vtrain-cluster", "megatron-zero-bubble", "tensorflow-2017")
# MLPerf submissions of language models since Hopper ran NeMo, as their configuration files say.
NAMED = {("mlperf_training", "megatron"): "nemo"}
FACTORS = ("known_source_factor", "new_source_factor")
# Frameworks of sources that no stack has: their rows are evidence of the kind of network alone.
OTHERS = ("mxnet", "tensorflow", "oneflow", "paddlepaddle", "libai")
ABOUT = (
    "Published step times and what the planner answers to the same question, asked as a reader of the source would: "
    "written by docs/results/evidence.py. step_s follows from the published figure."
)
COLUMNS = (  # of a row; TEXTS are indices of the file's words
    "source citation model kind devices device generation hosts framework release precision parameters sequence "
    "global_batch is_assumed is_fitted step_s predicted_s"
).split()
TEXTS = ("source", "citation", "model", "kind", "device", "generation", "framework", "release", "precision")


def without(command, option):
    """The option's value, and the command without it."""
    if option not in command:
        return "", command
    at = command.index(option)
    return command[at + 1], command[:at] + command[at + 2 :]


def ways_to_ask(source, record, row):
    """Commands, the best first: with the framework that the source names, then with none."""
    stack, command = without(row["command"], "--stack")
    stack = NAMED.get((source, stack.split(" ")[0]), stack.split(" ")[0])
    if "dtype" not in record["model"] and row["predictor"] != "language-model":
        _, command = without(command, "--precision")
    fix, command = without(command, "--fix")
    fix = re.sub(r",(algorithm|bucket)=[^,]*", "", fix)
    bare = [*command, "--fix", fix]
    return [bare] if stack in NOT_NAMED else [[*bare, "--stack", stack], bare]


def kind_of(workload):
    """The kind of network, as in study/evidence/residuals.c."""
    layers = workload["layers"]
    if any(layer["kind"].startswith("conv") for layer in layers):
        return "image"
    if any("experts" in layer["attributes"] for layer in layers):
        return "mixture"
    heads = [layer["attributes"] for layer in layers if "heads" in layer["attributes"]]
    if not heads:
        return "other"
    return "dense" if any(attributes.get("is_causal") for attributes in heads) else "encoder"


def precision_of(workload):
    return workload.get("precision", "fp32" if workload["element_bytes"] == 4 else "bf16")


def framework_of(record, plan):
    """The framework of the answer, unless the source ran one of OTHERS."""
    words = f"{record.get('framework')} {record.get('software')}".lower()
    return next((name for name in OTHERS if name in words), plan["stack"]["name"])


def citation_of(record):
    source = record["source"]
    words = source.get("work") or source["stored"].split(" @")[0]
    return f"{words}, {source['table']}" if "table" in source and "work" not in source else words


def answer_of(program, commands):
    for command in commands:
        done = subprocess.run([program, *command], capture_output=True, text=True)
        if done.returncode == 0:
            return json.loads(done.stdout)
    return None


def four_digits(value):
    return float(f"{value:.4g}")


def row_of(program, source, record, row):
    """Values of COLUMNS; None: no plan."""
    plan = answer_of(program, ways_to_ask(source, record, row))
    if plan is None:
        return None
    slower = row["measured"] / row["predicted"]
    if row["unit"] not in TIMES:
        slower = 1 / slower
    workload, device = plan["workload"], plan["cluster"]["device_types"][0]
    release = framework_of(record, plan)
    assumed = row.get("assumed", "")
    return {
        "source": source,
        "citation": citation_of(record),
        "model": record["model"]["name"],
        "kind": kind_of(workload),
        "devices": plan["prediction"]["devices"],
        "device": device["name"],
        "generation": device.get("generation", ""),
        "hosts": sum(vertex["kind"] == "host" for vertex in plan["cluster"]["vertices"]),
        "framework": release.split("-")[0],
        "release": release,
        "precision": precision_of(workload),
        "parameters": four_digits(sum(layer["parameter_bytes"] for layer in workload["layers"]) / 4),
        "sequence": workload.get("tokens_per_sample", 0),
        "global_batch": plan["global_batch"],
        "is_assumed": int("recomputed" in assumed or "ZeRO" in assumed),  # recomputation or sharding is not stated
        "is_fitted": int(row["is_fitted"]),
        "step_s": four_digits(row["predicted_step_time_s"] * slower),
        "predicted_s": four_digits(plan["prediction"]["step_time_s"]),
    }


def questions_of(validation, records, most):
    """(source, record, row) of the rows that have a step time."""
    for source in validation["sources"]:
        rows = [
            row
            for row in source["predictions"]
            if row["predictor"] in PREDICTORS and "predicted_step_time_s" in row and row["metric"] != "scaling_efficiency"
        ]
        for row in rows[:: max(1, -(-len(rows) // most))]:
            yield source["source"], records[row["id"]], row


def document_of(rows, factors):
    """Text of the file. Sources come first in the words: their indices are small."""
    words = sorted({row["source"] for row in rows})
    words += sorted({row[key] for row in rows for key in TEXTS} - set(words))
    index = {word: i for i, word in enumerate(words)}
    head = {"schema": "trainyard.evidence/1", "about": ABOUT, **factors, "columns": COLUMNS}
    lines = [[index[row[key]] if key in TEXTS else row[key] for key in COLUMNS] for row in rows]
    parts = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    for key, values in {"words": words, "rows": lines}.items():
        texts = [json.dumps(value, separators=(",", ":")) for value in values]
        parts.append(f'  "{key}": [\n    ' + ",\n    ".join(texts) + "\n  ]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def factors_of(program, path):
    """The factors of intervals, which the program computes from the rows."""
    done = subprocess.run([program, "validate", path, "--json"], stdout=subprocess.PIPE, check=True)
    answer = json.loads(done.stdout)
    return {key: four_digits(answer[key]) for key in FACTORS}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("measurements")
    parser.add_argument("output")
    parser.add_argument("--most", type=int, default=10**9)
    options = parser.parse_args()
    done = subprocess.run([options.program, "validate", options.measurements, "--json"], stdout=subprocess.PIPE, check=True)
    records = {}
    for path in pathlib.Path(options.measurements).glob("*.json"):
        records |= {record["id"]: record for record in json.loads(path.read_text())["records"]}
    questions = list(questions_of(json.loads(done.stdout), records, options.most))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = list(pool.map(lambda question: row_of(options.program, *question), questions))
    rows = [row for row in rows if row is not None]
    path = pathlib.Path(options.output)
    path.write_text(document_of(rows, dict.fromkeys(FACTORS, 1)))
    path.write_text(document_of(rows, factors_of(options.program, path)))


main()
