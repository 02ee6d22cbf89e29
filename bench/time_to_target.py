#!/usr/bin/python3
"""Compares predicted and measured time to a target accuracy: the tables of docs/results/own-runs.md.

    bench/time_to_target.py TRAINYARD -o result.json [--workload lenet] [--until accuracy=0.88] [--steps-only | --times-only]

It calibrates at one batch size on two local ranks. For other batch sizes, a compressor and asynchronous 1F1B, it
predicts steps and time and trains to the target once per seed, with the learning rate of the calibration's rule. Seeds
of the calibration and of the measured runs differ. Steps do not depend on the load of the machine, so --steps-only may
run next to other work. --times-only then measures the step times of the same plans on a quiet machine and completes the
table: time to target = steps x measured seconds per step, without evaluations. Rows in the result file are not
repeated. A Markdown table goes to stdout.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

RANKS = 2
CALIBRATION_SEED = 1001  # of its first run; measured runs have 1, 2, ...
EVALUATED_SAMPLES = 5120  # between two evaluations, at every batch size
TIMED_STEPS = 300
DATA_PARALLEL = "pp=1,tp=1,compression=none"  # steps to target are those of one rank, which is quicker beside other work


def rows(options):
    """(name, global batch, --fix)"""
    for batch in options.batches.split(","):
        yield f"batch {batch}", int(batch), DATA_PARALLEL
    for name in filter(None, options.compressions.split(",")):
        yield name, options.batch, f"pp=1,tp=1,compression={name}"
    if not options.no_asynchronous:
        yield "asynchronous 1F1B, 2 stages", options.batch, f"pp=2,tp=1,schedule=pipedream,compression=none,micro_batch={options.batch}"


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder, self.environment = options, pathlib.Path(folder), dict(os.environ)
        self.result = {"schema": "trainyard.bench_time_to_target/1", "workload": options.workload, "until": options.until,
                       "batch": options.batch, "rows": {}}  # fmt: skip
        if options.output and os.path.exists(options.output):
            self.result = json.loads(pathlib.Path(options.output).read_text())
        self.calibration = self.folder / "calibration.json"

    def save(self):
        if self.options.output:
            pathlib.Path(self.options.output).write_text(json.dumps(self.result, indent=1) + "\n")

    def run(self, *words):
        words = [self.options.trainyard, *map(str, words)]
        made = subprocess.run(words, env=self.environment, capture_output=True, text=True)
        if made.returncode:
            raise RuntimeError(f"{' '.join(words)}: {made.stderr.strip()[-400:]}")
        return made.stdout

    def data(self):
        return ["--data", self.options.data] if self.options.data else []

    def calibrate(self):
        if "calibration" not in self.result:
            o = self.options
            words = ["calibrate", "-w", o.workload, "-c", f"local:{RANKS}", "--until", o.until, "--global-batch", o.batch,
                     "--seeds", o.calibration_runs, "--seed", CALIBRATION_SEED, "--evaluate-every", max(1, EVALUATED_SAMPLES // o.batch),
                     "--learning-rate", o.learning_rate, "-q", "--json", *self.data()]  # fmt: skip
            if o.compressions:
                words += ["--compressions", o.compressions]
            started = time.monotonic()
            self.result["calibration"] = json.loads(self.run(*words))
            self.result["calibration_s"] = time.monotonic() - started
            self.save()
        self.calibration.write_text(json.dumps(self.result["calibration"]))

    def plan(self, batch, fix, seed, ranks=RANKS):
        path = self.folder / "plan.json"
        self.run("plan", "-w", self.options.workload, "-c", f"local:{ranks}", "--global-batch", batch, "--fix", fix,
                 "--task", self.calibration, "--seed", seed, "--no-simulate", "-q", "-o", path)  # fmt: skip
        return path

    def row(self, name, batch, fix):
        plan = self.plan(batch, fix, 1)
        score = json.loads(self.run("score", plan, "--task", self.calibration, "--json"))
        row = self.result["rows"].setdefault(name, {"batch": batch, "fix": fix, "steps": {}})
        steps = {k: v / batch for k, v in score["samples_to_target"].items()}
        if row.get("predicted_steps") != steps:
            row.pop("predicted_s", None)  # of an earlier calibration
        row["predicted_steps"] = steps
        row["learning_rate"] = json.loads(plan.read_text())["optimizer"]["learning_rate"]
        return row

    def measure_steps(self):
        for seed in range(1, self.options.seeds + 1):
            for name, batch, fix in rows(self.options):
                row = self.row(name, batch, fix)
                if str(seed) not in row["steps"]:
                    row["steps"][str(seed)] = self.steps_to_target(batch, fix, seed)
                    print(f"{name}, seed {seed}: {row['steps'][str(seed)]} steps", file=sys.stderr, flush=True)
                    self.save()

    def steps_to_target(self, batch, fix, seed):
        """Number of steps; None: not reached."""
        output = self.folder / "run.json"
        plan = self.plan(batch, fix, seed, 1 if fix == DATA_PARALLEL else RANKS)
        self.run("run", plan, "--until", self.options.until, "--evaluate-every", max(1, EVALUATED_SAMPLES // batch),
                 "--steps", self.options.most_steps * self.options.batch // batch, "-q", "-o", output, *self.data())  # fmt: skip
        last = json.loads(output.read_text())["evaluations"][-1]
        key, target = self.options.until.split("=")
        is_met = last["accuracy"] >= float(target) if key == "accuracy" else last["loss"] <= float(target)
        return last["step"] if is_met else None

    def measure_times(self):
        """Plans again with a profile of the quiet machine; steps do not depend on it."""
        self.environment["XDG_CACHE_HOME"] = str(self.folder / "cache")
        self.result["load_at_times"] = os.getloadavg()[0]
        for name, batch, fix in rows(self.options):
            row = self.row(name, batch, fix)
            plan = self.plan(batch, fix, 1)
            score = json.loads(self.run("score", plan, "--task", self.calibration, "--json"))
            row["predicted_s"], row["predicted_step_s"] = score["time_to_target_s"], score["step_time_s"]
            times = []
            for _ in range(self.options.repeats):
                output = self.folder / "run.json"
                self.run("run", plan, "--steps", TIMED_STEPS, "-q", "-o", output, *self.data())
                made = json.loads(output.read_text())
                times.append(made["wall_s"] / len(made["losses"]))
            row["measured_step_s"] = statistics.median(times)
            print(f"{name}: {row['measured_step_s'] * 1e3:.2f} ms a step", file=sys.stderr, flush=True)
            self.save()


def percent(predicted, measured):
    return f"{(predicted / measured - 1) * 100:+.1f} %"


def table(result):
    lines = ["| | batch | learning rate | predicted steps | measured, median of seeds (all) | error | predicted s | measured s | error |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for name, row in result["rows"].items():
        steps = list(row["steps"].values())
        reached = sorted(s for s in steps if s is not None)
        if not reached or len(reached) < len(steps):
            measured, error = f"reached by {len(reached)} of {len(steps)}", ""
        else:
            median, p = statistics.median(reached), row["predicted_steps"]
            measured = f"{median:.0f} ({', '.join(f'{s}' for s in reached)})"
            error = percent(p["expected"], median) + ("" if p["low"] <= median <= p["high"] else ", outside")
        p = row["predicted_steps"]
        line = f"| {name} | {row['batch']} | {row['learning_rate']:.4g} | {p['expected']:.0f} ({p['low']:.0f} to {p['high']:.0f}) | {measured} | {error} |"
        if "measured_step_s" in row and "predicted_s" in row and error:
            taken, s = median * row["measured_step_s"], row["predicted_s"]
            line += f" {s['expected']:.1f} ({s['low']:.1f} to {s['high']:.1f}) | {taken:.1f} | {percent(s['expected'], taken)} |"
        else:
            line += " | | |"
        lines.append(line)
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trainyard")
    parser.add_argument("--workload", default="lenet")
    parser.add_argument("--until", default="accuracy=0.88")
    parser.add_argument("--batch", type=int, default=128, help="that the calibration is made at")
    parser.add_argument("--learning-rate", type=float, default=0.02, help="of the calibration: late gradients diverge at lenet's 0.05")
    parser.add_argument("--batches", default="32,256,512", help="that are predicted")
    parser.add_argument("--compressions", default="top-k:0.01")
    parser.add_argument("--no-asynchronous", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--calibration-runs", type=int, default=3)
    parser.add_argument("--most-steps", type=int, default=20000, help="of the calibrated batch")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data")
    parser.add_argument("--steps-only", action="store_true")
    parser.add_argument("--times-only", action="store_true", help="of a result that has the steps")
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder)
        if options.times_only and "calibration" not in bench.result:
            parser.error("--times-only needs a result of --steps-only: give its file with -o")
        bench.calibrate()
        if not options.times_only:
            bench.measure_steps()
        if not options.steps_only:
            bench.measure_times()
        bench.result["date"] = time.strftime("%Y-%m-%d")
        bench.save()
        print(table(bench.result))


if __name__ == "__main__":
    main()
