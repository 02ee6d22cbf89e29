"""What `check speed|cases|sanitize|links` runs on the machine with the GPU.

Every item is a process group of its own with a time limit; its output lies in FOLDER/<command>/ while
it runs, and FOLDER/<command>.json is written anew behind each: whatever ends this program, what was
found so far is there. An item that takes too long leaves the stacks of its threads.
"""

import argparse
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SKIP, SANITIZER_CODE = 77, 86
LIMIT_S = 510  # of a command
IDLE_S = float(os.environ.get("CHECK_IDLE_S", 90))  # a case that says nothing for so long hangs

# workload, precision, batch, steps of the shorter of two runs, tokens of a sample
GPT = ("gpt2", "bf16", 16, 4, 1024)
RESNET = ("resnet50", "bf16", 128, 4, 0)
OTHERS = [("gpt2", "tf32", 8, 3, 1024), ("gpt-tiny", "bf16", 64, 20, 128), ("lenet", "fp32", 128, 50, 0),
          ("mlp", "fp32", 128, 50, 0)]
QUICK = ("mlp", "bf16", 2, 1, 0)

FAMILIES = ["updates", "passes", "plans", "lanes", "codecs", "schedules", "graphs", "links", "attention"]
QUICK_CASES = ["update sgd", "update momentum", "gradients mlp bf16", "plan small mlp, data parallel 2, ZeRO 0, compressed: bf16",
               "codec fp16", "plan mlp, 2bw", "graphs switched", "devices of ranks"]

SANITIZED = [  # what kernels there are, each tool on each
    ["update"], ["gradients gpt bf16"], ["gathers gpt bf16"], ["gradients lenet fp32"], ["gradients lstm fp32"], ["gradients resnet fp32"],
    ["codec"], ["contexts encoder"], ["graphs switched"],
]
JOBS = ["replicas", "lanes", "2bw", "interleaved", "zero-3", "late", "contexts", "one-bit", "powersgd"]
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]


def stacks_of(group):
    """Where every thread of a process group is."""
    said = []
    for pid in sorted(int(p) for p in os.listdir("/proc") if p.isdigit()):
        try:
            if os.getpgid(pid) != group:
                continue
            if shutil.which("gdb"):
                done = subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt"],
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=30)
                said.append(f"process {pid}:\n{done.stdout}")
                continue
            for task in sorted(os.listdir(f"/proc/{pid}/task")):
                lines = [f"process {pid} thread {task}:"]
                for name in ("comm", "wchan", "syscall", "stack"):
                    try:
                        with open(f"/proc/{pid}/task/{task}/{name}") as file:
                            lines.append(f"  {name}: {file.read().strip()}")
                    except OSError:
                        pass  # the kernel keeps it from us
                said.append("\n".join(lines))
        except (OSError, subprocess.TimeoutExpired):
            continue  # it is gone
    return "\n".join(said)


def lines_of(path):
    """A file of lines of JSON, the last of which may be cut short."""
    rows = []
    if os.path.exists(path):
        with open(path) as file:
            for line in file:
                try:
                    rows.append(json.loads(line))
                except ValueError:
                    break
    return rows


def device_attributes():
    """What the CUDA runtime knows of device 0, by the numbers of its attributes."""
    for name in ("libcudart.so", "libcudart.so.13", "libcudart.so.12"):
        try:
            runtime = ctypes.CDLL(name)
            break
        except OSError:
            continue
    else:
        return {"absent": "no CUDA runtime to load"}
    value, found = ctypes.c_int(), {}
    for attribute in range(1, 150):
        code = runtime.cudaDeviceGetAttribute(ctypes.byref(value), attribute, 0)
        if code == 0:
            found[attribute] = value.value
    return found or {"absent": f"cudaDeviceGetAttribute: error {code}"}


class MemoryWatch:
    """The most of a GPU's memory that was in use, as nvidia-smi tells it twice a second."""

    def __init__(self):
        self.least = self.most = None
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def look(self):
        done = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if done.returncode == 0:
            used = int(done.stdout.split()[0]) << 20
            self.least = used if self.least is None else min(self.least, used)
            self.most = used if self.most is None else max(self.most, used)

    def watch(self):
        while not self.is_over.is_set():
            self.look()
            self.is_over.wait(0.5)

    def __enter__(self):
        if shutil.which("nvidia-smi"):
            self.look()
            self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        if self.thread.is_alive():
            self.thread.join()

    def bytes(self):
        return None if self.most is None else self.most - self.least


class Check:
    def __init__(self, command, folder, is_quick):
        self.command, self.is_quick = command, is_quick
        self.started = time.monotonic()
        self.path = os.path.join(folder, command + ".json")
        self.folder = os.path.join(folder, command)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        self.failures = []
        self.result = {"schema": "trainyard.gpu/2", "command": command,
                       "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "failures": self.failures}
        self.environment = self.environment_make()

    @staticmethod
    def environment_make():
        # Libraries of pip's CUDA packages, for machines that have no others.
        libraries = [os.path.join(HERE, "lib"), "/usr/local/cuda/lib64", "/usr/local/nvidia/lib64"]
        for folder in sys.path:
            nvidia = os.path.join(folder, "nvidia")
            if os.path.isdir(nvidia):
                libraries += [os.path.join(nvidia, p, "lib") for p in sorted(os.listdir(nvidia))]
        libraries += os.environ.get("LD_LIBRARY_PATH", "").split(":")
        own = {
            "TRAINYARD_DATA": os.path.join(HERE, "data"),
            "TRAINYARD_WORKER": os.path.join(HERE, "bin", "trainyard-worker"),
            "TRAINYARD_CONFIG": os.devnull,
            "LD_LIBRARY_PATH": ":".join(path for path in libraries if os.path.isdir(path)),
            "PATH": os.path.join(HERE, "bin") + ":" + os.environ.get("PATH", ""),
            "OPAL_PREFIX": HERE,
            "OMPI_MCA_mca_base_component_path": os.path.join(HERE, "lib", "openmpi"),
        }
        plugin = os.path.join(HERE, "bin", "libtrainyard-cuda.so")
        return {"TRAINYARD_CUDA_PLUGIN": plugin, **os.environ, **own}

    # ---- Items

    def left_s(self):
        return LIMIT_S - (time.monotonic() - self.started)

    def save(self):
        self.result["seconds"] = round(time.monotonic() - self.started, 1)
        with open(self.path + ".new", "w") as file:
            json.dump(self.result, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.path + ".new", self.path)

    def fail(self, what, why):
        self.failures.append(f"{what}: {why}")
        print(f"FAIL {what}: {why[-300:]}", flush=True)
        self.save()

    def run(self, name, command, limit_s=120, watched=None, **environment):
        """The exit code, 124 when it took too long, and what the program wrote on its standard output.
        @param watched a file that grows while all is well"""
        out, err = (os.path.join(self.folder, name + end) for end in (".out", ".err"))
        limit_s = min(limit_s, self.left_s())
        if limit_s < 5:
            return 124, ""
        with open(out, "w") as out_file, open(err, "w") as err_file:
            process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out_file,
                                       stderr=err_file, env={**self.environment, **environment}, cwd=self.folder,
                                       start_new_session=True)
            code = self.wait(process, limit_s, watched, err_file)
        with open(out, errors="replace") as file:
            return code, file.read()

    @staticmethod
    def wait(process, limit_s, watched, err_file):
        started = moved = time.monotonic()
        size = 0
        while process.poll() is None:
            now = time.monotonic()
            if watched and os.path.exists(watched) and os.path.getsize(watched) != size:
                size, moved = os.path.getsize(watched), now
            if now - started > limit_s or (watched and now - moved > IDLE_S):
                err_file.write(f"\ncheck: no end after {now - started:.0f} s\n{stacks_of(process.pid)}\n")
                err_file.flush()
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return 124
            time.sleep(0.05)
        try:
            os.killpg(process.pid, signal.SIGKILL)  # whom it left behind
        except ProcessLookupError:
            pass
        return process.returncode

    def said(self, name):
        """The end of what an item complained of."""
        texts = []
        for end in (".err", ".out"):
            with open(os.path.join(self.folder, name + end), errors="replace") as file:
                texts.append(file.read().strip())
        return next((text[-300:] for text in texts if text), "no word")

    def attempt(self, name, command, limit_s=120, **environment):
        """As run; a failure is noted. The output, or None."""
        if self.left_s() < 5:
            self.fail(name, "no time left")
            return None
        code, out = self.run(name, command, limit_s, **environment)
        if code == 0:
            print(f"ok   {name}", flush=True)
            return out
        self.fail(name, "took too long" if code == 124 else f"exit code {code}: {self.said(name)}")
        return None

    def skip_without_gpu(self):
        code, out = self.run("gpu", [self.program("gpu_cases"), "--family", "none"])
        if code == SKIP:
            self.result["skipped"] = out.strip()
            self.save()
            print(out.strip())
            sys.exit(SKIP)

    @staticmethod
    def program(name):
        return os.path.join(HERE, "bin", name)

    def file(self, name):
        return os.path.join(self.folder, name)

    # ---- Speed

    def machine(self):
        self.result["attributes"] = device_attributes()
        if shutil.which("nvidia-smi"):
            code, out = self.run("nvidia-smi", ["nvidia-smi", "-q"])
            names = [line.split(":", 1)[1].strip() for line in out.splitlines() if "Product Name" in line]
            self.result["gpus"] = names if code == 0 else []
        else:
            self.result["gpus"] = []
        with open(os.path.join(HERE, "data", "topologies", "catalogue", "devices.json")) as file:
            known = [device["name"] for device in json.load(file)["devices"]]
        words = self.result["gpus"][0].lower().split() if self.result["gpus"] else []
        alike = [name for name in known if name.split("-")[0] in words]
        self.device = alike[0] if alike else "h100-sxm"
        self.result["planned_as"] = self.device
        self.save()

    def cluster(self, gpus):
        return f"leaf:1 host:1 gpu:{gpus} @{self.device} nvlink4 ndr400"

    def bench(self, row, graphs="1", attention="auto"):
        workload, precision, batch, steps, tokens = row
        name = f"bench-{workload.split()[0]}-{precision}" + ("" if graphs == "1" else "-queued")
        name += "" if attention == "auto" else "-own-attention"
        out = self.attempt(name, [self.program("gpu_cases"), "--bench", workload, precision, batch, steps],
                           TRAINYARD_CUDA_GRAPHS=graphs, TRAINYARD_CUDA_ATTENTION=attention)
        if out is None:
            return
        found = json.loads(out)
        found["has_graphs"], found["attention"] = graphs == "1", attention
        if tokens:
            found["tokens_per_s"] = found["samples_per_s"] * tokens
        self.result.setdefault("benchmarks", []).append(found)
        print(f"     {found['step_time_s'] * 1e3:.2f} ms a step, {found['samples_per_s']:.1f} samples/s", flush=True)
        self.save()

    def profile(self, row):
        workload, precision, batch, _, _ = row
        path = self.file(f"profile-{workload.split()[0]}.json")
        sizes = f"{max(1, batch // 4)},{batch}"
        out = self.attempt(f"profile-{workload.split()[0]}",
                           [self.program("trainyard"), "profile", "-w", workload, "--backend", "cuda", "--precision",
                            precision, "--micro-batches", sizes, "-q", "-o", path])
        return path if out is not None else None

    def reality(self, row, profile):
        """One GPU's plan by its own profile: predicted and measured step, operations and memory."""
        workload, precision, batch, steps, _ = row
        short = workload.split()[0]
        plan, run = self.file(f"plan-{short}.json"), self.file(f"run-{short}.json")
        command = [self.program("trainyard"), "plan", "-w", workload, "-c", self.cluster(1), "--precision", precision,
                   "--global-batch", batch, "--fix", f"micro_batch={batch}", "--no-simulate", "-q", "-o", plan]
        if self.attempt(f"plan-{short}", command + (["-p", profile] if profile else [])) is None:
            return
        with MemoryWatch() as watch:
            is_run = self.attempt(f"run-{short}", [self.program("trainyard"), "run", plan, "--backend", "cuda",
                                                   "--precision", precision, "--steps", 5 * steps, "-q", "-o", run])
        if is_run is None:
            return
        out = self.attempt(f"compare-{short}", [self.program("trainyard"), "compare", plan, run, "--json"])
        if out is None:
            return
        with open(plan) as file:
            predicted = json.load(file)["memory"][0]
        compared = json.loads(out)
        self.result.setdefault("predictions", {})[workload] = {
            "comparison": compared, "predicted_memory": predicted, "predicted_device_bytes": sum(predicted.values()),
            "measured_device_bytes": watch.bytes(),  # with the context of CUDA and its libraries
        }
        self.save()

    def torch(self, row):
        workload, _, batch, _, _ = row
        for how in ("eager", "compile"):
            name = f"torch-{workload}-{how}"
            code, out = self.run(name, [sys.executable, os.path.join(HERE, "torch_baselines.py"), workload, how, batch],
                                 100)
            said = json.loads(out.splitlines()[-1]) if code == 0 else {"absent": out.strip() or self.said(name)}
            self.result.setdefault("pytorch", {})[name] = said
            print(f"     {name}: {said}", flush=True)
            self.save()

    def sweep(self, profile):
        """Of 2, 4, 8 GPUs, as many as there are; then what was measured beside the layers, in a profile."""
        self.result["sweeps"] = {}
        workload, precision = (QUICK if self.is_quick else GPT)[:2]
        for gpus in (2, 4, 8):
            logs = []
            for collective in COLLECTIVES:
                name = f"sweep-{collective}-{gpus}"
                command = [self.program("gpu_cases"), "--sweep", collective, gpus, 1 << (14 if self.is_quick else 26)]
                code, _ = self.run(name, command, 40)
                if code == SKIP:
                    self.result["sweeps"][str(gpus)] = {"absent": self.said(name)}
                    print(f"     sweep of {gpus} GPUs: {self.said(name)}", flush=True)
                    return
                if code != 0:
                    self.fail(name, self.said(name))
                    continue
                logs.append(self.file(name + ".out"))
            path = self.file(f"profile-{workload.split()[0]}-{gpus}-gpus.json")
            with_layers = ["--profile", profile] if profile else []
            if not logs or self.attempt(f"calibrate-{gpus}", [self.program("trainyard"), "calibrate", *logs, "-c",
                                                              self.cluster(gpus), *with_layers, "-o", path]) is None:
                continue
            profile = path
            self.result["sweeps"][str(gpus)] = {"profile": os.path.basename(path), "logs": len(logs)}
            self.attempt(f"plan-{gpus}-gpus",
                         [self.program("trainyard"), "plan", "-w", workload, "-c", self.cluster(gpus), "--precision",
                          precision, "-p", path, "--no-simulate", "-q", "-o", self.file(f"plan-{gpus}-gpus.json")])
            self.save()

    def speed(self):
        first = QUICK if self.is_quick else GPT
        self.machine()
        self.bench(first)
        self.bench(first, attention="own")
        profile = self.profile(first)
        self.reality(first, profile)
        if not self.is_quick:
            self.bench(RESNET)
            self.reality(RESNET, self.profile(RESNET))
        self.sweep(profile)
        self.torch(GPT)
        self.bench(first, "0")
        if self.is_quick:
            return
        self.torch(RESNET)
        self.bench(RESNET, "0")
        for row in OTHERS:
            self.bench(row)

    # ---- Cases

    def family(self, family):
        """Behind a case that failed, crashed or hung a new process goes on: it may have spoiled the device."""
        lines, begun, rows = self.file(family + ".jsonl"), 0, []
        while True:
            command = [self.program("gpu_cases"), *(["--quick"] if self.is_quick else []), "--family", family, "--from",
                       begun, "--stop", "-o", lines, *(QUICK_CASES if self.is_quick else [])]
            seen, first = len(lines_of(lines)), begun
            code, _ = self.run(f"{family}-{first}", command, LIMIT_S, watched=lines)
            found = lines_of(lines)[seen:]
            begun += sum("begins" in row for row in found)
            new = [row for row in found if "name" in row]
            if found and "begins" in found[-1] and code != 0:
                why = "no end" if code == 124 else f"exit code {code}"
                new.append({"name": found[-1]["begins"], "passed": False,
                            "message": f"{why}: {self.said(f'{family}-{first}')[-200:]}"})
            rows += new
            self.result.setdefault("cases", {})[family] = rows
            for row in new:
                if not row["passed"]:
                    self.fail(row["name"], row["message"])
            self.save()
            if code == 0 or not found:
                break
            if self.left_s() < 10:
                self.fail(family, f"no time behind {begun} cases")
                break
        print(f"     {family}: {sum(row['passed'] for row in rows)} of {len(rows)} passed", flush=True)

    def cases(self):
        for family in FAMILIES:
            self.family(family)

    # ---- Sanitizers

    def sanitize(self):
        tool = shutil.which("compute-sanitizer", path=self.environment["PATH"] + ":/usr/local/cuda/bin")
        self.result["sanitizer"] = tool or "absent: no compute-sanitizer in PATH or /usr/local/cuda/bin"
        self.save()
        if tool is None:
            print(self.result["sanitizer"])
            sys.exit(SKIP)
        for check in ("memcheck", "racecheck", "synccheck", "initcheck"):
            for names in SANITIZED[:1] if self.is_quick else SANITIZED:
                item = check + "-" + names[0].replace(" ", "-")
                done = self.attempt(item, [tool, "--tool", check, "--error-exitcode", SANITIZER_CODE,
                                           "--log-file", self.file(item + ".%p.log"), self.program("gpu_cases"),
                                           "--quick", *names])
                self.result.setdefault("tools", {})[item] = done is not None
                self.save()

    # ---- Links

    def losses(self, name, job, **environment):
        folder = self.file(name)
        os.makedirs(folder)
        workload = QUICK[0] if self.is_quick else "gpt-tiny sequence=32"
        out = self.attempt(name + "-job", [self.program("gpu_cases"), "--job", workload, job, folder])
        if out is None or self.attempt(name, [
                self.program("mpirun"), "--allow-run-as-root", "--oversubscribe", "-n", 2,
                self.program("trainyard-worker"), "-q", os.path.join(folder, "job.json")], 60, **environment) is None:
            return None
        with open(out.strip()) as file:
            return json.load(file)["losses"]

    def links(self):
        for job in JOBS[:1] if self.is_quick else JOBS:
            host = self.losses(f"{job}-host", job, TRAINYARD_LINK="host")
            nccl = None
            if not self.is_quick:  # the emulator's NCCL is of one process
                nccl = self.losses(f"{job}-nccl", job, TRAINYARD_LINK="nccl", TRAINYARD_NCCL_SHARED_GPU="1",
                                   NCCL_DEBUG="INFO")
            self.result.setdefault("links", {})[job] = {"host": host, "nccl": nccl}
            if host and nccl and any(abs(a - b) > 1e-4 * abs(a) for a, b in zip(host, nccl)):
                self.fail(job, "NCCL and host links train differently")
            self.save()

    def main(self):
        self.skip_without_gpu()
        getattr(self, self.command)()
        self.save()
        print(f"{self.path}: {len(self.failures)} failures in {self.result['seconds']:.0f} s")
        return 1 if self.failures else 0


def main():
    parser = argparse.ArgumentParser(prog="check", description="Tests and benchmarks on a machine with a GPU.")
    parser.add_argument("command", choices=["speed", "cases", "sanitize", "links"])
    parser.add_argument("-o", dest="folder", default=os.environ.get("OUT") or os.path.join(HERE, "results"))
    parser.add_argument("--quick", action="store_true", help="a few small ones, for the emulator")
    asked = parser.parse_args()
    os.makedirs(asked.folder, exist_ok=True)
    return Check(asked.command, os.path.abspath(asked.folder), asked.quick).main()


if __name__ == "__main__":
    sys.exit(main())
