#!/usr/bin/env python3
"""Makes the page of headline figures and predictions, each by one plain command.

    python3 claims.py write TRAINYARD MEASUREMENTS >claims.md
    python3 claims.py check TRAINYARD MEASUREMENTS claims.md

claims.json in this folder has commands and published figures. Of the measurements that it names, the page has
every row that `trainyard validate` predicts. check runs all commands again, prints the lines of the page that
change, and exits 1 if there are any.
"""
import json
import pathlib
import shlex
import subprocess
import sys

CLAIMS = pathlib.Path(__file__).with_name("claims.json")
PAGE = """# Claims: results

Headline figures of well-known systems and runs, compared with the prediction of one plain command. Nothing is fitted
to a row of the first three tables. [Why claims differ](about-claims.md) explains the differences. This command makes
the page:

```
python3 docs/results/claims.py write build/release/trainyard ../shared/data/measurements >docs/results/claims.md
```

A test runs every command again. `plan` stands for `trainyard plan --no-simulate`. Seconds are per step unless a row
says otherwise.
"""


def ask(trainyard, words):
    out = subprocess.run(
        [trainyard, "plan", *words, "--no-simulate", "--quiet", "--json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    plan = json.loads(out)
    return plan["prediction"]["step_time_s"], plan["global_batch"]


def command(words):
    return "`plan " + shlex.join(words).replace("'", '"') + "`"


def predict(trainyard, claim):
    step_s, batch = ask(trainyard, claim["plan"])
    if "against" in claim:
        other_s, other_batch = ask(trainyard, claim["against"])
        return batch / step_s / (other_batch / other_s)
    if "scale" in claim:  # number of steps
        return step_s * claim["scale"]
    return step_s


def figure(value, claim):
    return f"{value:.3g} times" if claim.get("measures") == "speed-up" else f"{value:.4g} s"


def plans(trainyard, groups):
    for group in groups:
        yield f"\n## {group['title']}\n"
        if "band" in group:
            yield "Aim: predicted over published from {} to {}.\n".format(*group["band"])
        yield "| claim | published | predicted | of it | command | source |"
        yield "| --- | ---: | ---: | ---: | --- | --- |"
        for claim in group["claims"]:
            found = predict(trainyard, claim)
            ratio = found / claim["measured"]
            mark = ""
            if "band" in group and not group["band"][0] <= ratio <= group["band"][1]:
                mark = " (missed)"
            asked = command(claim["plan"])
            if "against" in claim:
                asked += " against " + command(claim["against"])
            yield (
                f"| {claim['claim']} | {figure(claim['measured'], claim)} | {figure(found, claim)} "
                f"| {ratio:.2f}{mark} | {asked} | {claim['source']} |"
            )


def rows(trainyard, measurements, names):
    yield "\n## Rows of the papers' tables\n"
    yield "By `trainyard validate FILE --json`, in the file's units.\n"
    yield "| file | row | metric | published | predicted | of it |"
    yield "| --- | --- | --- | ---: | ---: | ---: |"
    for name in names:
        path = pathlib.Path(measurements) / f"{name}.json"
        out = subprocess.run(
            [trainyard, "validate", path, "--json"], stdout=subprocess.PIPE, check=True
        ).stdout
        for row in json.loads(out)["sources"][0]["predictions"]:
            if "predicted" in row:
                yield (
                    f"| `{name}.json` | {row['id'].split('/', 1)[1]} | {row['metric'].replace('_', ' ')} "
                    f"| {row['measured']:.4g} | {row['predicted']:.4g} | {row['predicted'] / row['measured']:.2f} |"
                )


def page(trainyard, measurements):
    claims = json.loads(CLAIMS.read_text())
    lines = list(plans(trainyard, claims["groups"]))
    lines += rows(trainyard, measurements, claims["measurements"])
    return PAGE + "\n".join(lines) + "\n"


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "write":
        print(page(*sys.argv[2:]), end="")
        return 0
    if len(sys.argv) == 5 and sys.argv[1] == "check":
        found = page(*sys.argv[2:4]).splitlines()
        written = pathlib.Path(sys.argv[4]).read_text().splitlines()
        others = [line for line in found if line not in written]
        gone = [line for line in written if line not in found]
        for line in others:
            print("found: " + line)
        for line in gone:
            print("written: " + line)
        print(f"checked {sum(line.startswith('| ') for line in written)} lines")
        return 1 if others or gone else 0
    print(__doc__, file=sys.stderr)
    return 2


sys.exit(main())
