"""What tests/gpu/check runs on the machine with the GPU: cases, benchmarks, NCCL; one JSON file."""

import itertools
import json
import os
import subprocess
import sys
import time

SKIP = 77
LIMIT_S = 520  # of everything together
BENCHES = [  # workload, precision, batch, steps of the shorter of two runs
    ("gpt2", "bf16", 16, 4),
    ("gpt2", "tf32", 8, 3),
    ("gpt-tiny", "bf16", 64, 20),
    ("lenet", "fp32", 128, 50),
    ("mlp", "fp32", 128, 50),
]
JOBS = [  # of two processes; gpu_cases --job
    "replicas", "lanes", "2bw", "interleaved", "zero-3", "late", "contexts", "one-bit", "powersgd",
]
TOKENS = {"gpt2": 1024, "gpt-tiny": 128}


def torch_tokens_per_s(batch, length=1024, layers=12, width=768, heads=12, vocabulary=50257):
    """GPT-2 124M as PyTorch users write it: bf16 autocast, fused AdamW, its own attention."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            q, k, v = (
                part.view(*part.shape[:2], heads, -1).transpose(1, 2)
                for part in self.project(self.first(x)).chunk(3, -1)
            )
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(x.shape))
            return x + self.down(functional.gelu(self.up(self.second(x)), approximate="tanh"))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = nn.LayerNorm(width)

        def forward(self, tokens):
            x = self.tokens(tokens) + self.positions.weight
            for block in self.blocks:
                x = block(x)
            return functional.linear(self.norm(x), self.tokens.weight)

    net = Net().cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=6e-4, fused=True)
    tokens = torch.randint(vocabulary, (batch, length), device="cuda")
    seconds = []
    for _ in range(8):
        torch.cuda.synchronize()
        started = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = net(tokens)
            loss = functional.cross_entropy(logits.view(-1, vocabulary), tokens.view(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return {"version": torch.__version__, "tokens_per_s": batch * length / sorted(seconds)[3]}


class Check:
    def __init__(self, here):
        self.here = here
        self.started = time.monotonic()
        self.result = {"schema": "trainyard.gpu/1", "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        self.failures = []
        # Libraries of pip's CUDA packages, for machines that have no others.
        extra = []
        for folder in sys.path:
            nvidia = os.path.join(folder, "nvidia")
            if os.path.isdir(nvidia):
                extra += [os.path.join(nvidia, p, "lib") for p in os.listdir(nvidia)]
        path = os.environ.get("LD_LIBRARY_PATH", "")
        self.environment = dict(
            os.environ,
            TRAINYARD_DATA=os.path.join(here, "data"),
            TRAINYARD_CUDA_PLUGIN=os.path.join(here, "bin", "libtrainyard-cuda.so"),
            LD_LIBRARY_PATH=":".join([path] + [f for f in extra if os.path.isdir(f)]),
            OPAL_PREFIX=here,
            OMPI_MCA_mca_base_component_path=os.path.join(here, "lib", "openmpi"),
        )

    def left_s(self):
        return max(1.0, LIMIT_S - (time.monotonic() - self.started))

    def run(self, *command, **environment):
        try:
            return subprocess.run(
                [str(c) for c in command],
                env=dict(self.environment, **environment),
                timeout=self.left_s(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 124, "", "no time left")

    def fail(self, what, done):
        self.failures.append(what)
        print(f"FAIL {what}: {(done.stderr or done.stdout).strip()[-400:]}", flush=True)

    def program(self, name):
        return os.path.join(self.here, "bin", name)

    def cases(self):
        path = os.path.join(self.here, "cases.json")
        done = self.run(self.program("gpu_cases"), "-o", path)
        print(done.stdout, end="", flush=True)
        if done.returncode == SKIP:
            sys.exit(SKIP)
        if done.returncode != 0:
            self.fail("cases", done)
        if os.path.exists(path):
            try:
                with open(path) as file:
                    self.result["cases"] = json.load(file)["cases"]
            except ValueError:
                self.failures.append("cases: the program ended early")

    def benches(self):
        self.result["benchmarks"] = []
        for (workload, precision, batch, steps), graphs in itertools.product(BENCHES, "10"):
            if graphs == "0" and precision == "tf32":
                continue  # bf16 says it
            done = self.run(
                self.program("gpu_cases"), "--bench", workload, precision, batch, steps,
                TRAINYARD_CUDA_GRAPHS=graphs,
            )
            if done.returncode != 0:
                self.fail(f"bench {workload} {precision}", done)
                continue
            row = json.loads(done.stdout)
            row["has_graphs"] = graphs == "1"
            if workload in TOKENS:
                row["tokens_per_s"] = row["samples_per_s"] * TOKENS[workload]
            self.result["benchmarks"].append(row)
            print(json.dumps(row), flush=True)

    def losses(self, folder, name, job, **environment):
        written = self.run(self.program("gpu_cases"), "--job", "gpt-tiny sequence=32", job, folder)
        if written.returncode != 0:
            self.fail(name, written)
            return None
        done = self.run(
            self.program("mpirun"), "--allow-run-as-root", "--oversubscribe", "-n", 2,
            self.program("trainyard-worker"), "-q", os.path.join(folder, "job.json"), **environment,
        )
        if done.returncode != 0:
            self.fail(name, done)
            return None
        with open(written.stdout.strip()) as file:
            return json.load(file)["losses"]

    def nccl(self):
        folder = os.path.join(self.here, "jobs")
        os.makedirs(folder, exist_ok=True)
        self.result["links"] = {}
        for what in JOBS:
            host = self.losses(folder, f"{what} through the host", what, TRAINYARD_LINK="host")
            nccl = self.losses(
                folder, f"{what} through NCCL", what, TRAINYARD_LINK="nccl", TRAINYARD_NCCL_SHARED_GPU="1"
            )
            self.result["links"][what] = {"host": host, "nccl": nccl}
            if host and nccl and any(abs(a - b) > 1e-4 * abs(a) for a, b in zip(host, nccl)):
                self.failures.append(f"{what}: NCCL and host links train differently")

    def torch(self):
        try:
            self.result["pytorch"] = torch_tokens_per_s(16)
            print(json.dumps(self.result["pytorch"]), flush=True)
        except Exception as problem:  # another program's failure is not ours
            self.result["pytorch"] = {"absent": f"{type(problem).__name__}: {problem}"[:200]}

    def main(self, path):
        self.cases()
        self.benches()
        self.nccl()
        self.torch()
        smi = self.run("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader") \
            if os.access("/usr/bin/nvidia-smi", os.X_OK) else None
        self.result["gpu"] = smi.stdout.strip() if smi else None
        self.result["seconds"] = time.monotonic() - self.started
        self.result["failures"] = self.failures
        with open(path, "w") as file:
            json.dump(self.result, file, indent=2)
        print(f"{path}: {len(self.failures)} failures in {self.result['seconds']:.0f} s")
        sys.exit(1 if self.failures else 0)


if __name__ == "__main__":
    root = sys.argv[1]
    output = sys.argv[3] if len(sys.argv) == 4 and sys.argv[2] == "-o" else os.path.join(root, "gpu.json")
    Check(root).main(output)
