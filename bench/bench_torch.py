#!/usr/bin/python3
"""Compares training by trainyard and by PyTorch, in turns: the same models, batches and arithmetic.

    bench_torch.py TRAINYARD [-n REPEATS] [--networks mlp,lenet,gpt-tiny] [--ranks 1,2] >result.json

Needs python3-torch and libopenblas0-pthread. Each rank has one thread on both sides. PyTorch trains on
batches in memory; trainyard reads, shuffles and converts its samples. The table has wall time per step,
which other processes lengthen, and CPU time of all ranks, which they hardly change. The first steps of
each run do not count. Each repeat runs both sides; figures are medians.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

NETWORKS = {  # batch per rank, warm-up steps, timed steps
    "mlp": (128, 30, 300),
    "lenet": (128, 20, 150),
    "gpt-tiny": (8, 4, 24),
}
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
ENVIRONMENT.pop("OPENBLAS_CORETYPE", None)  # a forced choice can halve OpenBLAS's speed


# ---- PyTorch: run as a program of its own for each measurement ----


def torch_network(name):
    import torch
    from torch import nn

    if name == "mlp":
        return nn.Sequential(
            nn.Flatten(), nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
        )
    if name == "lenet":
        return nn.Sequential(
            nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10),
        )  # fmt: skip

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x, mask):
            b, t, d = x.shape
            q, k, v = self.project(self.norm1(x)).split(d, 2)
            q, k, v = (y.view(b, t, self.heads, d // self.heads).transpose(1, 2) for y in (q, k, v))
            scores = (q @ k.transpose(2, 3)) * (d // self.heads) ** -0.5 + mask
            x = x + self.out((scores.softmax(3) @ v).transpose(1, 2).reshape(b, t, d))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self, vocabulary=256, width=256, heads=4, blocks=4, length=128):
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
            self.norm = nn.LayerNorm(width)
            self.mask = torch.full((length, length), float("-inf")).triu(1)

        def forward(self, tokens):
            x = self.tokens(tokens) + self.places.weight
            for block in self.blocks:
                x = block(x, self.mask)
            return self.norm(x) @ self.tokens.weight.T

    return Gpt()


def torch_batches(name, size):
    import torch

    if name == "gpt-tiny":
        return [(torch.randint(0, 256, (size, 128)), torch.randint(0, 256, (size, 128))) for _ in range(8)]
    return [(torch.rand(size, 1, 28, 28), torch.randint(0, 10, (size,))) for _ in range(8)]


def torch_rank(name, rank, ranks, port):
    import torch

    size, warmup, steps = NETWORKS[name]
    torch.set_num_threads(1)
    torch.manual_seed(1)
    network = torch_network(name)
    parameters = sum(p.numel() for p in network.parameters())
    if ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
        network = torch.nn.parallel.DistributedDataParallel(network)
    if name == "gpt-tiny":
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.01)
    else:
        optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    batches = torch_batches(name, size)
    for step in range(warmup + steps):
        if step == warmup:
            started, started_cpu = time.monotonic(), time.process_time()
        x, y = batches[step % len(batches)]
        optimizer.zero_grad(set_to_none=True)
        scores = network(x)
        loss = torch.nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1))
        loss.backward()
        optimizer.step()
    made = {
        "wall_s": (time.monotonic() - started) / steps,
        "cpu_s": (time.process_time() - started_cpu) / steps,
        "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "parameters": parameters,
        "version": torch.__version__,
    }
    print(json.dumps(made))


def torch_measure(name, ranks):
    port = 20000 + os.getpid() % 20000
    started = [
        subprocess.Popen(
            [sys.executable, __file__, "--torch-rank", name, str(rank), str(ranks), str(port)],
            env=ENVIRONMENT, stdout=subprocess.PIPE, text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    made = [json.loads(process.communicate()[0]) for process in started]
    return {
        "wall_s": max(m["wall_s"] for m in made),
        "cpu_s": sum(m["cpu_s"] for m in made),
        "memory_bytes": max(m["memory_bytes"] for m in made),
        "version": made[0]["version"],
        "parameters": made[0]["parameters"],
    }


# ---- trainyard ----


def trainyard(program, *arguments):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([program, *map(str, arguments)], env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def plan_make(program, folder, name, ranks):
    path = f"{folder}/{name}-{ranks}.json"
    batch = NETWORKS[name][0] * ranks
    fixed = f"pp=1,tp=1,micro_batch={NETWORKS[name][0]}" + (",compression=none" if ranks > 1 else "")
    trainyard(program, "plan", "-w", name, "-c", f"local:{ranks}", "--global-batch", batch, "--fix", fixed,
              "--no-simulate", "-q", "-o", path)  # fmt: skip
    return path


def trainyard_measure(program, plan):
    """CPU time is the difference of two runs of different length, without the cost of the start."""
    name = os.path.basename(plan).rsplit("-", 1)[0]
    _, warmup, steps = NETWORKS[name]
    output = plan + ".run"
    short = trainyard(program, "run", plan, "--steps", warmup, "-q", "-o", output)
    with open(output) as file:
        short_wall = json.load(file)["wall_s"]
    long = trainyard(program, "run", plan, "--steps", warmup + steps, "-q", "-o", output)
    with open(output) as file:
        run = json.load(file)
    return {
        "wall_s": (run["wall_s"] - short_wall) / steps,
        "cpu_s": (long - short) / steps,
        "memory_bytes": max(run["peak_memory_bytes"]),
        "version": run["versions"],
    }


# ---- Both ----


def row(program, folder, name, ranks, repeats):
    plan = plan_make(program, folder, name, ranks)
    sides = {"trainyard": [], "torch": []}
    for _ in range(repeats):
        sides["trainyard"].append(trainyard_measure(program, plan))
        sides["torch"].append(torch_measure(name, ranks))
    batch = NETWORKS[name][0] * ranks
    made = {"network": name, "ranks": ranks, "global_batch": batch, "repeats": repeats}
    for side, figures in sides.items():
        wall, cpu = (statistics.median(f[key] for f in figures) for key in ("wall_s", "cpu_s"))
        made[side] = {
            "step_time_s": wall,
            "best_step_time_s": min(f["wall_s"] for f in figures),
            "cpu_s_per_step": cpu,
            "samples_per_s": batch / wall,
            "samples_per_cpu_s": batch / cpu,
            "memory_bytes": max(f["memory_bytes"] for f in figures),
            "version": figures[0]["version"],
        }
    ours, theirs = made["trainyard"], made["torch"]
    made["speedup"] = theirs["step_time_s"] / ours["step_time_s"]
    made["best_speedup"] = theirs["best_step_time_s"] / ours["best_step_time_s"]
    made["cpu_speedup"] = theirs["cpu_s_per_step"] / ours["cpu_s_per_step"]
    made["memory_ratio"] = ours["memory_bytes"] / theirs["memory_bytes"]
    return made


def main():
    if sys.argv[1:2] == ["--torch-rank"]:
        return torch_rank(sys.argv[2], *map(int, sys.argv[3:6]))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trainyard")
    parser.add_argument("-n", "--repeats", type=int, default=3)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--ranks", default="1,2")
    options = parser.parse_args()
    result = {"schema": "trainyard.bench_torch/1", "date": time.strftime("%Y-%m-%d"), "cores": os.cpu_count(),
              "load_before": os.getloadavg()[0], "rows": []}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for ranks in map(int, options.ranks.split(",")):
            for name in options.networks.split(","):
                result["rows"].append(row(options.trainyard, folder, name, ranks, options.repeats))
                print(json.dumps(result["rows"][-1]), file=sys.stderr)
    result["load_after"] = os.getloadavg()[0]
    json.dump(result, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
