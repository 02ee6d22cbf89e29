#!/usr/bin/python3
"""Compares ways to run the ranks of one host: messages over shared memory or MPI, threads pinned or not.

    bench/bench_ranks.py TRAINYARD [--ways mpi,shared] [--rows mlp-dp2,gpt-tiny-pp2] [--steps 200] [-n 5] [-o result.json]

Ways: `mpi` and `shared` (TRAINYARD_LINK); with `-pinned` after it, both threads of each rank run on one core of
their own (taskset). Rows: a workload and dp2 (data parallel), pp2 (1F1B), tp2 (tensor parallel) or hybrid (2+1,
1F1B). A round runs every way once, in changing order. Figures are medians over rounds: wall milliseconds per step, and
CPU milliseconds, voluntary and involuntary context switches per step of all processes, less those of a run of a few
steps. On a busy machine only ratios mean something. A Markdown table goes to stdout.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import tempfile

SHAPES = {"dp2": ("local:2", "pp=1,tp=1,compression=none"), "pp2": ("local:2", "pp=2,tp=1,schedule=1f1b,compression=none"),
          "tp2": ("local:2", "pp=1,tp=2,compression=none"), "hybrid": ("local:3", "replicas=2+1,schedule=1f1b,compression=none")}  # fmt: skip
FEW_STEPS = 10
FIGURES = ("wall_ms", "cpu_ms", "voluntary", "involuntary")


def worker_of(trainyard):
    return os.environ.get("TRAINYARD_WORKER", str(pathlib.Path(trainyard).resolve().parent / "trainyard-worker"))


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, pathlib.Path(folder)
        self.pinned = self.folder / "pinned-worker"
        self.pinned.write_text(f'#!/bin/sh\nexec taskset -c "$OMPI_COMM_WORLD_LOCAL_RANK" "{worker_of(options.trainyard)}" "$@"\n')
        self.pinned.chmod(0o755)

    def run(self, environment, *words):
        subprocess.run([self.options.trainyard, *map(str, words)], env=environment, check=True, stdout=subprocess.DEVNULL)

    def plan(self, row):
        workload, shape = row.rsplit("-", 1)
        cluster, fix = SHAPES[shape]
        path = self.folder / f"{row}.json"
        self.run(dict(os.environ), "plan", "-w", workload, "-c", cluster, "--fix", fix, "--no-simulate", "-q", "-o", path)
        return path

    def environment(self, way):
        link, _, rest = way.partition("-")
        made = dict(os.environ, TRAINYARD_LINK=link)
        if rest == "pinned":
            made["TRAINYARD_WORKER"] = str(self.pinned)
        return made

    def totals(self, plan, way, steps):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        output = self.folder / "run.json"
        self.run(self.environment(way), "run", plan, "--steps", steps, "-q", "-o", output)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return [json.loads(output.read_text())["wall_s"] * 1e3,
                1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime),
                after.ru_nvcsw - before.ru_nvcsw, after.ru_nivcsw - before.ru_nivcsw]  # fmt: skip

    def measure(self, row):
        plan = self.plan(row)
        found = {way: [] for way in self.options.ways}
        for i in range(self.options.rounds):
            for k in range(len(self.options.ways)):
                way = self.options.ways[(i + k) % len(self.options.ways)]
                few, all_steps = (self.totals(plan, way, n) for n in (FEW_STEPS, self.options.steps + FEW_STEPS))
                found[way].append([(b - a) / self.options.steps for a, b in zip(few, all_steps)])
        return {way: dict(zip(FIGURES, map(statistics.median, zip(*rounds)))) for way, rounds in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trainyard")
    parser.add_argument("--ways", type=lambda text: text.split(","), default=["mpi", "shared"])
    parser.add_argument("--rows", type=lambda text: text.split(","),
                        default="mlp-dp2,lenet-dp2,gpt-tiny-dp2,mlp-pp2,lenet-pp2,gpt-tiny-pp2,gpt-tiny-tp2".split(","))  # fmt: skip
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("-n", "--rounds", type=int, default=5)
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    result = {"schema": "trainyard.bench_ranks/1", "steps": options.steps, "rounds": options.rounds, "rows": {}}
    print("| run | way | ms a step | CPU ms a step | sleeps a step | interruptions a step |\n| --- | --- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder)
        for row in options.rows:
            result["rows"][row] = bench.measure(row)
            for way, f in result["rows"][row].items():
                print(f"| {row} | {way} | {f['wall_ms']:.2f} | {f['cpu_ms']:.2f} | {f['voluntary']:.1f} | {f['involuntary']:.1f} |", flush=True)
    if options.output:
        pathlib.Path(options.output).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
