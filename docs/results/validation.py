#!/usr/bin/env python3
"""Makes the page of validation results from `trainyard validate --json`, and checks that no result
on it became worse.

    trainyard validate MEASUREMENTS --json | python3 validation.py write [TRAINYARD ROWS] >validation.md
    trainyard validate MEASUREMENTS --json | python3 validation.py stacks planner/stacks
    trainyard validate MEASUREMENTS --json | python3 validation.py check validation.md planner/stacks
    trainyard validate MEASUREMENTS --json | python3 validation.py memory TRAINYARD MEASUREMENTS

stacks writes the error on each device into every stack's file: "judged". check exits 1 and prints sources
with fewer rows, or with an error, order or regret that is worse than on the page by more than a thousandth.
It also fails if the error in a stack's file differs, or if a row is skipped for a reason that HELP does not
explain. memory runs the command of every row with published memory per device, and compares.
"""
import itertools
import json
import math
import pathlib
import re
import subprocess
import sys

TOLERANCE = 1e-3  # of a figure, and of nothing less than SMALLEST
SMALLEST = 1e-3
COLUMNS = ["mean_error", "median_error", "p90_error", "pair_order", "mean_regret"]
HEAD = ["predictor", "source", "rows", "mean", "median", "p90", "order", "regret"]
PAGE = """# Validation: results

Errors of predictions against published measurements, by predictor and source: held-out rows, then rows that a
constant was fitted to (`fitted`), then by stack and device (`stack NAME`). `pairs of layouts` is the error of the
predicted ratio of two step times that differ only in their layout. [How accurate is it?](README.md) explains
predictors, scores and fitted rows. No row is sampled or dropped. This command makes the page:

```
trainyard validate ../shared/data/measurements --json | python3 docs/results/validation.py write \\
  trainyard study/evidence/rows.json >docs/results/validation.md
```

The same with `stacks planner/stacks` writes the errors into the framework files (`judged`). A test fails if rows
become fewer, or if an error, an order or a regret becomes worse than here by more than a thousandth.

{predicted} of {rows} rows are predicted, {fitted} of them with a constant that was fitted to them.

| {head} |
| --- | --- |{dashes}
{table}

{intervals}## Not predicted

| rows | why | what would change it | sources |
| ---: | --- | --- | --- |
{skipped}
"""

INTERVALS = """## Prediction intervals

How often the 80 % interval of a step time holds, on rows that nothing was fitted to
(`trainyard validate study/evidence/rows.json`). Each row was judged without itself, without all rows of its source,
or without all rows on its device. Half width and error are shares of the expected time. A user's cluster is a new
source. A test fails outside 75 to 87 % over all kinds, below 65 % for a kind, or above a half width of 20 % (without
the row) or 32 % (without its source).

| without | kind | rows | coverage | median half width | mean error | median error |
| --- | --- | ---: | ---: | ---: | ---: | ---: |
{table}

"""

# Advice for each reason, by its beginning.
HELP = [
    ("more data took a quarter of the time", "nothing: the source measured the first calls of a program"),
    ("not in the zoo, and on the fewest", "a workload file of the network (`workload import`), so that its work is known and not only its gradients"),
    ("batch per device not stated", "`batch` of the record, from the run's configuration"),
    ("global batch not stated", "`batch` of the record, from the run's configuration"),
    ("no stack for this device and software", "a stack of that software, `like` another, in `language_stacks` of `published.json`; figures of one's own fit it (`calibrate --stack`)"),
    ("less than half of the samples a device", "a measured run of the series with a batch nearer to its own"),
    ("device not stated", "`cluster.gpu` of the record; the device's data sheet in `devices.json`"),
    ("layers or hidden size not stated", "`model` of the record, or its sizes under `language_models` of `published.json`"),
    ("layout not stated", "`parallel` of the record, from the submission's configuration"),
    ("runs again what others", "nothing is missing: the run is what the rest of its series stands on"),
    ("precision not stated", "`model.dtype` of the record"),
    ("does not fit", "what the record leaves out of recomputing and sharding; `plan` with the row's words says by how much"),
    ("model is not in the zoo", "a workload file of the network (`workload import`)"),
    ("not in the zoo, and its size", "the network's parameters under `gradients` of `published.json`, or a workload file"),
    ("a measure that is not", "a figure in seconds or samples a second of the same run"),
    ("number of steps to the target", "the steps that the run took, from its log"),
    ("unit in doubt", "the unit of the table, from those who published it"),
    ("network between nodes", "`cluster.inter_node` of the record"),
    ("no whole number of layers", "the layers a stage, as they were run (`model.layers`)"),
    ("one batch size", "the same benchmark at a second batch size"),
    ("a schedule that is not modelled", "a schedule that is (docs/reference/file-formats.md has them)"),
    ("the stated degrees", "the degrees or the number of devices, one of which is misprinted"),
    ("data parallelism was chosen", "nothing: the row says that nothing is won"),
    ("speed-up over itself", "nothing: it is 1 by definition"),
    ("expert groups across context", "experts and contexts on separate ranks"),
    ("adapters (LoRA)", "the base model's row of the same run; a workload of frozen layers (docs/guides/bring-a-model.md)"),
    ("number of devices not stated", "`cluster.gpus` of the record"),
    ("seq is stated in words", "`model.seq` of the record as a number"),
    ("sequence not stated", "`model.seq` of the record"),
    ("no predictor for memory", "`memory` with the row's layout answers it by hand; docs/results/README.md has the error of published memory"),
    ("no predictor for layer-profile", "`workload import` reads the profile itself: it is an input"),
    ("no predictor for accuracy", "a training run: `run --until`; no law predicts it"),
    ("no predictor for convergence", "`calibrate --data` measures the law's constants in a run of one's own"),
    ("no predictor for compression-ratio", "`plan --fix compression=` says the bytes of each compressor for a network"),
    ("no predictor for training-speed of", "a workload file of the network and a stack of the software; `plan` then answers, and `published.json` ties the row to it"),
    ("no predictor for time-to-train of", "the same, and the steps that the run took"),
]


def figure(value):
    return "-" if value is None else f"{100 * value:.4g} %"


def scores(validation):
    """(predictor, source) -> rows and the figures of COLUMNS."""
    out = {}
    for source in validation["sources"]:
        for score in source["predictors"]:
            key = (score["predictor"], source["source"])
            out[key] = [score["rows"]] + [score[column] for column in COLUMNS]
        if source["fitted_rows"] > 0:
            fitted = [source["fitted_rows"]] + [source["fitted"][column] for column in COLUMNS]
            out[("fitted", source["source"])] = fitted
    for (stack, device), errors in judged(validation).items():
        out[(f"stack {stack}", device)] = spread(errors)
    for source, errors in ratios(validation).items():
        if errors:
            out[("pairs of layouts", source)] = spread(errors)
    return dict(sorted(out.items()))


def spread(errors):
    """A row of the table from sorted errors."""
    count = len(errors)
    figures = [sum(errors) / count, errors[(count - 1) // 2], errors[math.ceil(0.9 * count) - 1]]
    return [count] + figures + [None, None]


def ratios(validation):
    """source -> sorted errors of the ratio of two steps that differ by their --fix alone; "all"."""
    out = {"all": []}
    for source in validation["sources"]:
        questions = {}
        for row in source["predictions"]:
            if row["predictor"] == "language-model" and "--fix" in row.get("command", []):
                words = list(row["command"])
                del words[words.index("--fix") + 1]
                group = (*words, row["metric"])
                questions.setdefault(group, []).append(row["predicted"] / row["measured"])
        errors = sorted(
            max(a, b) / min(a, b) - 1
            for factors in questions.values()
            for a, b in itertools.combinations(factors, 2)
        )
        if errors:
            out[source["source"]] = errors
            out["all"] = sorted(out["all"] + errors)
    return out


def judged(validation):
    """(stack, device) -> sorted errors of steps of language models that nothing was fitted to."""
    out = {}
    for source in validation["sources"]:
        for row in source["predictions"]:
            if row["predictor"] != "language-model" or "command" not in row or row["is_fitted"]:
                continue
            stack = row["command"][row["command"].index("--stack") + 1]
            device = re.search(r"@([^ ]+)", row["command"][row["command"].index("--cluster") + 1])
            if device is None or " " in stack:
                continue
            error = abs(row["predicted"] / row["measured"] - 1)
            out.setdefault((stack, device.group(1)), []).append(error)
    return {key: sorted(errors) for key, errors in sorted(out.items())}


def judged_json(validation, stack):
    rows = [
        f'    {{"device": "{device}", "rows": {len(errors)}, '
        f'"mean_error": {sum(errors) / len(errors):.3g}}}'
        for (name, device), errors in judged(validation).items()
        if name == stack
    ]
    return ',\n  "judged": [\n' + ",\n".join(rows) + "\n  ]" if rows else ""


def stacks_with(validation, folder):
    """Path, text and what the text should be, of every stack."""
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        text = path.read_text()
        bare = re.sub(r',\n  "judged": \[\n.*?\n  \]', "", text, flags=re.S)
        assert bare.endswith("\n}\n"), path
        yield path, text, bare[:-3] + judged_json(validation, path.stem) + "\n}\n"


def reasons_of(validation):
    """reason -> rows, sources"""
    reasons = {}
    for source in validation["sources"]:
        for skip in source["skipped"]:
            why = skip["reason"]
            if " does not fit: " in why:
                why = "does not fit: by the memory model what ran needs more than a device has"
            why = re.sub(r"^(model is not in the zoo): .*", r"\1", why)
            rows, sources = reasons.get(why, (0, set()))
            reasons[why] = (rows + skip["rows"], sources | {source["source"]})
    return reasons


def skip_table(validation):
    ordered = sorted(reasons_of(validation).items(), key=lambda item: (-item[1][0], item[0]))
    return "\n".join(
        f"| {n} | {why} | {help_of(why) or '-'} | {', '.join(sorted(sources))} |"
        for why, (n, sources) in ordered
    )


def help_of(why):
    return next((text for beginning, text in HELP if why.startswith(beginning)), None)


def interval_section(program, rows):
    done = subprocess.run([program, "validate", rows, "--json"], stdout=subprocess.PIPE, check=True)
    lines = [
        [row["left_out"], row["kind"], str(row["rows"])]
        + [figure(row[key]) for key in ("coverage", "median_half_width", "mean_error", "median_error")]
        for row in json.loads(done.stdout)["rows"]
    ]
    return INTERVALS.format(table="\n".join("| " + " | ".join(line) + " |" for line in lines))


def write(validation, intervals):
    rows = sum(source["rows"] for source in validation["sources"])
    skipped = sum(source["skipped_rows"] for source in validation["sources"])
    lines = [
        "| " + " | ".join([*key, str(score[0]), *map(figure, score[1:])]) + " |"
        for key, score in scores(validation).items()
    ]
    print(
        PAGE.format(
            rows=rows,
            predicted=rows - skipped,
            fitted=sum(source["fitted_rows"] for source in validation["sources"]),
            head=" | ".join(HEAD),
            dashes=" ---: |" * (len(HEAD) - 2),
            table="\n".join(lines),
            skipped=skip_table(validation),
            intervals=intervals,
        ),
        end="",
    )


def read_page(path):
    out = {}
    with open(path) as page:
        for line in page:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if len(cells) != len(HEAD) or not cells[2].isdigit():
                continue
            figures = [None if c == "-" else float(c.rstrip(" %")) / 100 for c in cells[3:]]
            out[(cells[0], cells[1])] = [int(cells[2])] + figures
    return out


def check(validation, path, folder):
    found, written = scores(validation), read_page(path)
    worse = [] if written else [f"{path}: found no row of a table"]
    for key, old in written.items():
        name = " of ".join(key)
        if key not in found:
            worse.append(f"{name}: no row is predicted, {old[0]} are written")
            continue
        new = found[key]
        if new[0] < old[0]:
            worse.append(f"{name}: {new[0]} rows, {old[0]} are written")
        for column, was, now in zip(COLUMNS, old[1:], new[1:]):
            if was is None:
                continue
            margin = TOLERANCE * max(abs(was), SMALLEST)
            is_share_right = column == "pair_order"
            if now is None or (now < was - margin if is_share_right else now > was + margin):
                worse.append(f"{name}: {column} is {figure(now)}, {figure(was)} is written")
    for stack, text, wanted in stacks_with(validation, folder):
        if text != wanted:
            worse.append(f"{stack}: judged by other rows, or with other errors, than were found")
    for why in reasons_of(validation):
        if help_of(why) is None:
            worse.append(f"skipped, and nothing said of what a person could do: {why}")
    for line in worse:
        print(line)
    print(f"checked {len(written)} lines")
    return 1 if worse else 0


BYTES = {"GB": 1e9, "GiB": 2**30}


def memory(validation, program, folder):
    """Memory of the device that has most, predicted over what was published beside a step."""
    print("| source | rows | mean | median | signed | of it |")
    print("| --- | ---: | ---: | ---: | ---: | --- |")
    for source in validation["sources"]:
        path = pathlib.Path(folder) / (source["source"] + ".json")
        published = {}
        for record in json.loads(path.read_text())["records"] if path.exists() else []:
            for figure_ in record.get("also_measured") or []:
                if figure_["metric"] in ("memory_per_gpu", "memory_allocated_per_gpu"):
                    published[record["id"]] = figure_["value"] * BYTES[figure_["unit"]]
        errors = {}
        for row in source["predictions"]:
            if row["id"] not in published or row["predictor"] != "language-model":
                continue
            answer = subprocess.run([program, *row["command"]], stdout=subprocess.PIPE, check=True)
            most = max(sum(use.values()) for use in json.loads(answer.stdout)["memory"])
            errors[row["id"]] = most / published[row["id"]] - 1
        if errors:
            rows = sorted(abs(error) for error in errors.values())
            worst = max(errors, key=lambda name: abs(errors[name]))
            print(
                f"| {source['source']} | {len(rows)} | {figure(sum(rows) / len(rows))} | "
                f"{figure(rows[(len(rows) - 1) // 2])} | {figure(sum(errors.values()) / len(rows))} | "
                f"worst {worst}: {100 * errors[worst]:+.0f} % |"
            )


def main():
    if sys.argv[1:2] == ["write"] and len(sys.argv) in (2, 4):
        write(json.load(sys.stdin), interval_section(*sys.argv[2:]) if len(sys.argv) == 4 else "")
        return 0
    if len(sys.argv) == 3 and sys.argv[1] == "stacks":
        for path, _, wanted in stacks_with(json.load(sys.stdin), sys.argv[2]):
            path.write_text(wanted)
        return 0
    if len(sys.argv) == 4 and sys.argv[1] == "check":
        return check(json.load(sys.stdin), sys.argv[2], sys.argv[3])
    if len(sys.argv) == 4 and sys.argv[1] == "memory":
        memory(json.load(sys.stdin), sys.argv[2], sys.argv[3])
        return 0
    print(__doc__, file=sys.stderr)
    return 2


sys.exit(main())
