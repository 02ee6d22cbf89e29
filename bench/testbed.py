#!/usr/bin/python3
"""Compares predicted and measured step times on slow networks: the tables of docs/results/own-runs.md.

    bench/testbed.py TRAINYARD [--hosts 2] [--rates 100mbit,400mbit,1gbit] [--workloads lenet,vgg-like,gpt-tiny]
                     [--steps 12] [--repeats 1] [--backend cpu] [-o result.json]

For each number of hosts and rate, it profiles messages and collectives in the testbed (tests/testbed/testbed), and
layers, compressors and updates on this machine. It does so just before the runs, since the machine's speed drifts by
a few percent over minutes. Every plan is estimated and simulated with both profiles, then runs in the testbed. A
Markdown table goes to stdout. Needs root. Hosts share this machine's cores, also in predictions.
"""
import argparse
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

TESTBED = pathlib.Path(__file__).resolve().parent.parent / "tests/testbed/testbed"
MICRO_BATCHES = {"gpt-tiny": "1,2,4", "deep-mlp": "64,128,256", "dlrm-tiny": "32,64,128"}  # what plans of their batches have
COMPRESSIONS = ("none", "fp16", "top-k:0.01", "powersgd-2")
VGG = {  # three blocks of VGG's form on small images
    "schema": "trainyard.zoo/1", "name": "vgg-like", "family": "sequential", "source": "VGG's form (Simonyan and Zisserman, 2014), three blocks",
    "input": [1, 28, 28], "sample_bytes": 785, "dataset": "fashion-mnist", "global_batch": 32,
    "optimizer": {"kind": "sgd", "learning_rate": 0.01, "momentum": 0.9, "weight_decay": 0},
    "layers": [layer for channels in (16, 32, 64) for layer in (
        {"kind": "conv2d", "out_channels": channels, "kernel": 3, "padding": 1}, {"kind": "relu"},
        {"kind": "pool", "kernel": 2})]
    + [{"kind": "flatten"}, {"kind": "linear", "out_features": 1024}, {"kind": "relu"},
       {"kind": "linear", "out_features": 10}, {"kind": "softmax_cross_entropy"}],
}  # fmt: skip
DEEP = {  # equal layers, whose exchanges an order can move from backward to the next forward
    "schema": "trainyard.zoo/1", "name": "deep-mlp", "family": "sequential", "source": "ten equal layers",
    "input": [1, 28, 28], "sample_bytes": 785, "dataset": "fashion-mnist", "global_batch": 512,
    "optimizer": {"kind": "sgd", "learning_rate": 0.01, "momentum": 0.9, "weight_decay": 0},
    "layers": [{"kind": "flatten"}] + 10 * [{"kind": "linear", "out_features": 640}, {"kind": "relu"}]
    + [{"kind": "linear", "out_features": 10}, {"kind": "softmax_cross_entropy"}],
}  # fmt: skip
OWN = {"vgg-like": VGG, "deep-mlp": DEEP}


def tables(hosts):
    """Unsharded tables on every host, dense and as rows, and tables sharded in every way."""
    yield "replicas, dense", f"pp=1,dp={hosts},compression=none"
    yield "replicas, rows", f"pp=1,dp={hosts},compression=rows"
    for shard in "row", "column", "table":
        yield f"tables by {shard}", f"pp=1,dp=1,ep={hosts},tables={shard},compression=none"


def strategies(hosts, workload):
    """(name, --fix). A hybrid has twice as many replicas of its first stage; every batch is divisible."""
    if workload.startswith("dlrm"):
        yield from tables(hosts)
        return
    for c in COMPRESSIONS:
        yield f"data parallel, {c}", f"pp=1,tp=1,compression={c}"
    for priority in "0", "1", "shorter":
        yield f"data parallel by layers, priority {priority}", f"pp=1,tp=1,compression=none,bucket=1B,priority={priority}"
    yield "parameter servers, on the workers", "pp=1,tp=1,compression=none,algorithm=parameter-server"
    for servers in range(1, hosts - 1):
        for shard in ("size", "tensor")[: 1 + (servers > 1)]:
            yield f"parameter servers, {servers} by {shard}", f"compression=none,servers={servers},shard={shard}"
    yield "1F1B", f"pp={hosts},tp=1,schedule=1f1b,compression=none"
    if hosts > 2:
        replicas = "+".join(["2"] + ["1"] * (hosts - 2))
        for c in COMPRESSIONS:
            yield f"hybrid {replicas}, {c}", f"replicas={replicas},schedule=1f1b,compression={c}"


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, pathlib.Path(folder)
        self.environment = dict(os.environ, XDG_CACHE_HOME=f"{folder}/cache")
        for name, network in OWN.items():
            (self.folder / f"{name}.json").write_text(json.dumps(network))

    def run(self, *words, rate=None, hosts=None, timeout=600):
        words = [self.options.trainyard, *map(str, words)]
        if rate:
            words = [str(TESTBED), str(hosts), rate, *words]
        made = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=timeout)
        if made.returncode:
            raise RuntimeError(f"{' '.join(words)}: {made.stderr.strip()[-300:]}")
        return made.stdout

    def workload(self, name):
        return self.folder / f"{name}.json" if name in OWN else name

    def profile(self, name, hosts, micro_batches="8,16,32,64", rate=None):
        path = self.folder / f"profile-{name}-{hosts}-{rate}.json"
        self.run("profile", "-w", self.workload(name), "--ranks", hosts, "--micro-batches", micro_batches, "-q", "-o", path,
                 rate=rate, hosts=hosts)  # fmt: skip
        return json.loads(path.read_text())

    def plan(self, name, hosts, fix, profile):
        path, source = self.folder / "plan.json", self.folder / "merged.json"
        source.write_text(json.dumps(profile))
        self.run("plan", "-w", self.workload(name), "-c", f"local:{hosts}", "--profile", source, "--fix", fix, "--no-simulate", "-q", "-o", path)
        return path

    def measure(self, name, hosts, rate, fix, profile):
        try:
            plan = self.plan(name, hosts, fix, profile)
        except RuntimeError as refusal:  # a batch that the replicas do not share, say
            return {"refused": str(refusal)[-160:]}
        predicted = [json.loads(self.run(reader, plan, "--json"))["step_time_s"] for reader in ("estimate", "simulate")]
        measured = []
        for _ in range(self.options.repeats):
            output = self.folder / "run.json"
            self.run("run", plan, "--backend", self.options.backend, "--steps", self.options.steps, "-q", "-o", output, rate=rate, hosts=hosts)
            measured.append(json.loads(output.read_text())["summary"]["step_time_s"])
        return {"estimate_s": predicted[0], "simulation_s": predicted[1], "measured_s": statistics.median(measured)}


def scores(rows, predicted):
    """Error of the estimate or the simulation, pair order and regret within each workload and rate."""
    errors = [abs(r[predicted] / r["measured_s"] - 1) for r in rows]
    pairs, right, regrets = 0, 0, []
    for _, group in itertools.groupby(rows, key=lambda r: (r["hosts"], r["workload"], r["rate"])):
        group = list(group)
        for a, b in itertools.combinations(group, 2):
            pairs += 1
            right += (a[predicted] < b[predicted]) == (a["measured_s"] < b["measured_s"])
        chosen = min(group, key=lambda r: r[predicted])
        regrets.append(chosen["measured_s"] / min(r["measured_s"] for r in group) - 1)
    return {"rows": len(rows), "mean_error": statistics.mean(errors), "median_error": statistics.median(errors),
            "p90_error": sorted(errors)[int(0.9 * (len(errors) - 1))], "pairs": pairs,
            "pair_order": right / pairs if pairs else None, "mean_regret": statistics.mean(regrets),
            "median_regret": statistics.median(regrets)}  # fmt: skip


def scores_by_kind(rows):
    """Estimate and simulation: all rows, and those of data parallelism, pipelines and hybrids."""
    kinds = {"all": rows}
    for row in rows:
        kinds.setdefault(row["strategy"].partition(",")[0].partition(" 2+")[0], []).append(row)
    return {kind: {reader: scores(part, f"{reader}_s") for reader in ("estimate", "simulation")} for kind, part in kinds.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trainyard")
    parser.add_argument("--hosts", default="2")
    parser.add_argument("--rates", default="100mbit,400mbit,1gbit")
    parser.add_argument("--workloads", default="lenet,vgg-like,gpt-tiny")
    parser.add_argument("--only", default="", help="strategies whose names have this in them, or one of these with | between")
    parser.add_argument("--backend", default="cpu", help="replay: layers take their predicted time, whatever else the cores do")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--until", type=float, default=1e9, help="begin no row this many seconds after the start")
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    started, rows, refused = time.monotonic(), [], []
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder)
        for hosts in map(int, options.hosts.split(",")):
            for rate in options.rates.split(","):
                network = bench.profile("lenet", hosts, "32", rate)
                for name in options.workloads.split(","):
                    profile = bench.profile(name, hosts, MICRO_BATCHES.get(name, "8,16,32,64"))
                    profile.update({k: network[k] for k in ("transfer_times", "collective_times")})
                    for strategy, fix in (s for s in strategies(hosts, name) if any(o in s[0] for o in options.only.split("|"))):
                        if time.monotonic() - started > options.until:
                            break
                        made = bench.measure(name, hosts, rate, fix, profile)
                        made.update(hosts=hosts, rate=rate, workload=name, strategy=strategy)
                        (refused if "refused" in made else rows).append(made)
                        print(json.dumps(made), file=sys.stderr, flush=True)
    print("| hosts | rate | workload | strategy | estimated ms | simulated ms | measured ms | estimate | simulation |")
    print("| ---: | --- | --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for r in rows:
        e, s, m = (r[k] for k in ("estimate_s", "simulation_s", "measured_s"))
        print(f"| {r['hosts']} | {r['rate']} | {r['workload']} | {r['strategy']} | {e * 1e3:.1f} | {s * 1e3:.1f} | {m * 1e3:.1f} | {(e / m - 1) * 100:+.1f} % | {(s / m - 1) * 100:+.1f} % |")
    result = {"schema": "trainyard.bench_testbed/1", "date": time.strftime("%Y-%m-%d"), "cores": os.cpu_count(),
              "load_before": load, "load_after": os.getloadavg()[0], "scores": scores_by_kind(rows), "rows": rows, "refused": refused}  # fmt: skip
    print(json.dumps({k: v for k, v in result.items() if k not in ("rows", "refused")}, indent=1))
    if options.output:
        pathlib.Path(options.output).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
