"""`check day`: what one GPU can answer in a few minutes, most wanted first.

Each part has a time limit and is skipped if too little of the budget is left. Every command is a
process group of its own. FOLDER gets at most eight files; day.json is rewritten after every item, so
whatever ends this program, the results so far are there.

Exit status: 0 the results are complete, whatever failed is in them; 1 the device or the archive
cannot be used; 77 there is no GPU.
"""

import argparse
import collections
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
SKIP, SANITIZER_CODE = 77, 86
REASON = 300  # characters of a reason that are kept

Part = collections.namedtuple("Part", "name limit_s least_s")
PARTS = [Part("environment", 30, 5), Part("smoke", 40, 10), Part("gpt2", 60, 15), Part("resnet50", 60, 15),
         Part("kernels", 70, 15), Part("loop", 100, 20), Part("cases", 60, 20), Part("pytorch", 170, 25),
         Part("sanitize", 30, 15), Part("ranks", 40, 10)]

Network = collections.namedtuple("Network", "name workload precision batch tokens")
GPT2 = Network("gpt2", "gpt2", "bf16", 16, 1024)
RESNET50 = Network("resnet50", "resnet50", "bf16", 128, 0)
SMALL = Network("mlp", "mlp", "bf16", 2, 0)  # sizes that the emulator supports

SMOKE = ["=gradients gpt bf16", "=gradients gpt fp32", "=gradients lenet bf16", "=gradients resnet bf16", "=gradients resnet fp32",
         "=gradients lstm bf16", "=gradients mixtures bf16", "=attention wide bf16", "update", "=codec top-k 2 %", "=codec powersgd-6",
         "=codec one-bit", "graphs mlp, one rank", "plan mlp, ZeRO 3"]
SMOKE_QUICK = ["=update sgd", "=gradients mlp bf16", "=codec fp16", "=graphs switched"]
FAMILIES = ["updates", "passes", "plans", "lanes", "codecs", "schedules", "graphs", "attention"]
SANITIZED = [("memcheck", "=gradients gpt bf16"), ("memcheck", "=gradients resnet bf16"), ("memcheck", "=codec one-bit"),
             ("racecheck", "=gradients gpt bf16"), ("racecheck", "=gradients lenet bf16")]
JOBS = [("replicas", "host"), ("lanes", "host"), ("zero-3", "host"), ("replicas", "nccl")]
METRICS = ["gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum",
           "dram__throughput.avg.pct_of_peak_sustained_elapsed",
           "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active"]


def json_lines(path):
    """The objects in a file of JSON lines, whose last line may be cut short."""
    rows = []
    if os.path.exists(path):
        with open(path, errors="replace") as file:
            for line in file:
                try:
                    rows.append(json.loads(line))
                except ValueError:
                    break
    return rows


def device_attributes():
    """Attributes of device 0 by their number in the CUDA runtime."""
    for name in ("libcudart.so", "libcudart.so.13", "libcudart.so.12"):
        try:
            runtime = ctypes.CDLL(name)
            break
        except OSError:
            continue
    else:
        return {}
    value, found = ctypes.c_int(), {}
    for attribute in range(1, 150):
        if runtime.cudaDeviceGetAttribute(ctypes.byref(value), attribute, 0) == 0:
            found[attribute] = value.value
    return found


def catalogue_name(product):
    """The catalogue's device for nvidia-smi's product name: the entry whose `reported_as` or name fits best."""
    with open(os.path.join(HERE, "data", "topologies", "catalogue", "devices.json")) as file:
        names = [device["name"] for device in json.load(file)["devices"]]
    words = product.lower().replace("-", " ").split()
    alike = [name for name in names if name.split("-")[0] in words]
    return alike[0] if alike else None


class MemoryWatch:
    """The largest growth of the GPU's used memory, sampled twice per second."""

    def __init__(self):
        self.least = self.most = None
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def sample(self):
        done = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if done.returncode == 0 and done.stdout.split():
            used = int(done.stdout.split()[0]) << 20
            self.least = used if self.least is None else min(self.least, used)
            self.most = used if self.most is None else max(self.most, used)

    def watch(self):
        while not self.is_over.is_set():
            self.sample()
            self.is_over.wait(0.5)

    def __enter__(self):
        if shutil.which("nvidia-smi"):
            self.sample()
            self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        if self.thread.is_alive():
            self.thread.join()

    def bytes(self):
        return None if self.most is None else self.most - self.least


class Day:
    def __init__(self, asked):
        self.asked = asked
        self.started = time.monotonic()
        self.folder = os.path.abspath(asked.folder)
        self.work = tempfile.mkdtemp(prefix="trainyard-day-")
        self.device = "h100-sxm"
        self.lock = threading.Lock()
        self.part_ends = self.started + asked.budget
        self.first = SMALL if asked.quick else GPT2
        self.second = None if asked.quick else RESNET50
        self.result = {"schema": "trainyard.gpu-day/1", "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                       "commit": self.commit(), "budget_s": asked.budget, "done": [], "skipped": [], "failed": []}
        self.machine_environment = dict(os.environ)
        self.environment = self.own_environment()

    @staticmethod
    def commit():
        try:
            with open(os.path.join(HERE, "commit")) as file:
                return file.read().strip()
        except OSError:
            return None

    @staticmethod
    def own_environment():
        """For the archive's programs; PyTorch and the host's tools use the host's libraries."""
        libraries = [os.path.join(HERE, "lib"), "/usr/local/cuda/lib64", "/usr/local/nvidia/lib64"]
        for folder in sys.path:  # libraries of Python's CUDA packages
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
            "PMIX_MCA_mca_base_component_path": os.path.join(HERE, "lib", "pmix"),
            "PMIX_MCA_pcompress_base_silence_warning": "1",
        }
        plugin = os.path.join(HERE, "bin", "libtrainyard-cuda.so")
        return {"TRAINYARD_CUDA_PLUGIN": plugin, **os.environ, **own}

    # ---- Results

    def save(self):
        with self.lock:
            self.result["seconds"] = round(time.monotonic() - self.started, 1)
            path = os.path.join(self.folder, "day.json")
            with open(path + ".new", "w") as file:
                json.dump(self.result, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            os.replace(path + ".new", path)

    def note(self, kind, item, reason=None):
        self.result[kind].append(item if reason is None else {"item": item, "reason": reason[-REASON:]})
        print(f"{time.monotonic() - self.started:6.1f} s  {kind:8}{item}" + (f": {reason[-REASON:]}" if reason else ""), flush=True)
        self.save()

    def put(self, section, item, value):
        self.result.setdefault(section, {})[item] = value
        self.save()

    def keep(self, path, name=None):
        """Copies a file to the results."""
        if os.path.exists(path):
            shutil.copy(path, os.path.join(self.folder, name or os.path.basename(path)))

    def pack_logs(self):
        with tarfile.open(os.path.join(self.folder, "logs.tgz"), "w:gz") as archive:
            for name in sorted(os.listdir(self.work)):
                path = os.path.join(self.work, name)
                if name.endswith((".out", ".err")) and os.path.getsize(path) < 4 << 20:
                    archive.add(path, name)

    # ---- Processes

    def left_s(self):
        return self.part_ends - time.monotonic()

    def run(self, name, command, limit_s=60, environment=None, **added):
        """The exit code, 124 if it took too long, and the standard output."""
        out, err = (os.path.join(self.work, name + end) for end in (".out", ".err"))
        limit_s = min(limit_s, self.left_s())
        if limit_s < 1:
            return 124, ""
        with open(out, "w") as out_file, open(err, "w") as err_file:
            process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out_file, stderr=err_file,
                                       env={**(environment or self.environment), **added}, cwd=self.work,
                                       start_new_session=True)
            try:
                code = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                code = 124
            finally:  # on an interrupt, too
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()
        with open(out, errors="replace") as file:
            return code, file.read()

    def words(self, name):
        """The end of an item's error output."""
        for end in (".err", ".out"):
            with open(os.path.join(self.work, name + end), errors="replace") as file:
                text = file.read().strip()
            if text:
                return text[-REASON:]
        return "no output"

    def attempt(self, name, command, limit_s=60, **added):
        """Like run, and records the outcome. Returns the output, or None."""
        code, out = self.run(name, command, limit_s, **added)
        if code == 0:
            self.note("done", name)
            return out
        self.note("failed", name, "took too long" if code == 124 else f"exit code {code}: {self.words(name)}")
        return None

    @staticmethod
    def program(name):
        return os.path.join(HERE, "bin", name)

    def path(self, name):
        return os.path.join(self.work, name)

    # ---- Parts

    def environment_part(self):
        code, out = self.run("device", [self.program("gpu_cases"), "--family", "none"])
        if code == SKIP:
            self.note("skipped", "day", out.strip() or "no GPU")
            sys.exit(SKIP)
        self.put("machine", "attributes", device_attributes())
        if shutil.which("nvidia-smi"):
            _, out = self.run("nvidia-smi", ["nvidia-smi", "-q"], environment=self.machine_environment)
            products = [line.split(":", 1)[1].strip() for line in out.splitlines() if "Product Name" in line]
            drivers = [line.split(":", 1)[1].strip() for line in out.splitlines() if "Driver Version" in line]
            self.put("machine", "gpus", products)
            self.put("machine", "driver", drivers[0] if drivers else None)
            self.device = (catalogue_name(products[0]) if products else None) or self.device
        self.put("machine", "planned_as", self.device)
        self.put("machine", "cores", os.cpu_count())
        libc = os.confstr("CS_GNU_LIBC_VERSION") if hasattr(os, "confstr") else None
        self.put("machine", "libc", libc)
        missing = []
        for program in ("trainyard", "trainyard-worker", "gpu_cases", "mpirun"):
            _, out = self.run("ldd-" + program, ["ldd", self.program(program)])
            missing += [f"{program}: {line.split()[0]}" for line in out.splitlines() if "not found" in line]
        if missing:
            self.note("failed", "libraries", ", ".join(missing))
        for loading in ("LAZY", "EAGER"):
            started = time.monotonic()
            out = self.attempt(f"rates-{loading.lower()}",
                               [self.program("gpu_cases"), "--rates", self.first.precision, 64 if self.asked.quick else 8192], 25,
                               CUDA_MODULE_LOADING=loading)
            if out is None:
                continue
            rates = json.loads(out)
            rates["process_s"] = round(time.monotonic() - started, 3)
            self.put("rates", loading.lower(), rates)
        if "rates" not in self.result:
            self.pack_logs()
            self.save()
            print("the plugin cannot use the device", file=sys.stderr)
            sys.exit(1)

    def smoke_part(self):
        names = SMOKE_QUICK if self.asked.quick else SMOKE
        self.cases_run([(f"smoke-{i}", ["--quick"] + [name]) for i, name in enumerate(names)], 4)

    def bench(self, name, network, steps, *words, **added):
        out = self.attempt(name, [self.program("gpu_cases"), "--bench", network.workload, network.precision, network.batch, steps, *words],
                           CUDA_MODULE_LOADING="LAZY", **added)
        if out is None:
            return None
        found = json.loads(out)
        found["samples_per_s"] = network.batch / found["step_time_s"]
        if network.tokens:
            found["tokens_per_s"] = found["samples_per_s"] * network.tokens
        self.put("benchmarks", name, found)
        print(f"          {found['step_time_s'] * 1e3:.2f} ms per step, {found['device_time_s'] * 1e3:.2f} ms on the device, "
              f"peak {found['peak_bytes'] / 2**30:.2f} GiB", flush=True)
        return found

    def repeats(self, name, network, steps):
        """A benchmark, and two deterministic ones from one seed: their losses must be equal bit for bit."""
        self.bench(name, network, steps)
        first, again = (self.bench(f"{name}-{which}", network, min(steps, 12), "--deterministic") for which in ("deterministic", "again"))
        if first and again:
            self.put("repeats", name, first["losses"] == again["losses"])

    def gpt2_part(self):
        self.repeats(self.first.name, self.first, 3 if self.asked.quick else 60)
        few = 2 if self.asked.quick else 12
        self.bench(self.first.name + "-own-attention", self.first, few, TRAINYARD_CUDA_ATTENTION="own")
        self.bench(self.first.name + "-no-graphs", self.first, few, TRAINYARD_CUDA_GRAPHS="0")
        if not self.asked.quick:
            self.bench("gpt2-50304", self.first._replace(workload="gpt2 vocabulary=50304"), few)

    def resnet50_part(self):
        if self.second is None:
            return
        self.repeats("resnet50", self.second, 60)
        self.bench("resnet50-256", self.second._replace(batch=256), 12)
        self.bench("resnet50-no-graphs", self.second, 12, TRAINYARD_CUDA_GRAPHS="0")

    def kernels_part(self):
        tool = shutil.which("ncu", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")
        if tool is None:
            self.note("skipped", "kernels", "no ncu in PATH or /usr/local/cuda/bin")
            return
        for network in filter(None, (self.first, self.second)):
            name = "kernels-" + network.name
            code, out = self.run(name, [tool, "--clock-control", "none", "--csv", "--page", "raw", "--metrics", ",".join(METRICS),
                                        "--profile-from-start", "off", self.program("gpu_cases"), "--bench-profiled", network.workload, network.precision,
                                        network.batch], 60, CUDA_MODULE_LOADING="LAZY", TRAINYARD_CUDA_GRAPHS="0")
            with open(os.path.join(self.folder, name + ".csv"), "w") as file:
                file.write("\n".join(line for line in out.splitlines() if line.startswith('"')) + "\n")
            if code == 0:
                self.note("done", name)
            else:
                self.note("failed", name, "took too long" if code == 124 else f"exit code {code}: {self.words(name)}")

    def cluster(self):
        return f"leaf:1 host:1 gpu:1 @{self.device} nvlink4 ndr400"

    def plan(self, network, how, profile):
        path = self.path(f"plan-{network.name}-{how}.json")
        command = [self.program("trainyard"), "plan", "-w", network.workload, "-c", self.cluster(), "--precision", network.precision,
                   "--stack", "trainyard", "--global-batch", network.batch, "--fix", f"micro_batch={network.batch}",
                   "--no-simulate", "-q", "-o", path]
        out = self.attempt(f"plan-{network.name}-{how}", command + (["-p", profile] if profile else []))
        return path if out is not None else None

    def worker_alone(self, name, plan, steps, path):
        """One rank without a launcher, if mpirun does not work here."""
        folder = self.path(name + "-alone")
        os.makedirs(folder, exist_ok=True)
        out = self.attempt(name + "-export", [self.program("trainyard"), "export", plan, "--to", "mpirun", "--steps", steps,
                                              "--backend", "cuda", "-o", folder])
        jobs = [f for f in os.listdir(folder) if f.endswith("job.json")]
        if out is None or not jobs:
            return False
        job = os.path.join(folder, jobs[0])
        with open(job) as file:
            written = json.load(file)
        written["output"] = path
        with open(job, "w") as file:
            json.dump(written, file)
        return self.attempt(name + "-alone", [self.program("trainyard-worker"), "-q", job]) is not None

    def loop(self, network, comparison):
        """Profile, plan by it and a priori, run the plan, compare each prediction with the run."""
        profile, run = self.path(f"profile-{network.name}.json"), self.path(f"run-{network.name}.json")
        if self.attempt("profile-" + network.name,
                        [self.program("trainyard"), "profile", "-w", network.workload, "--backend", "cuda", "--precision",
                         network.precision, "--micro-batches", f"{max(1, network.batch // 4)},{network.batch}", "-q", "-o",
                         profile]) is None:
            profile = None
        else:
            self.keep(profile)
        plans = {how: self.plan(network, how, with_profile)
                 for how, with_profile in (("by-profile", profile), ("a-priori", None)) if with_profile or how == "a-priori"}
        plans = {how: plan for how, plan in plans.items() if plan}
        if not plans:
            return
        plan, name = next(iter(plans.values())), "run-" + network.name
        with MemoryWatch() as watch:
            is_run = self.attempt(name, [self.program("trainyard"), "run", plan, "--backend", "cuda", "--precision",
                                         network.precision, "--steps", 4 if self.asked.quick else 30, "-q", "-o", run]) is not None
        if not is_run and not self.asked.quick:
            is_run = self.worker_alone(name, plan, 30, run)
        if not is_run:
            return
        with open(run) as file:
            measured = json.load(file)
        found = {"summary": measured.get("summary"), "wall_s": measured.get("wall_s"), "versions": measured.get("versions"),
                 "losses": measured.get("losses"), "peak_memory_bytes": measured.get("peak_memory_bytes"),
                 "measured_device_bytes": watch.bytes()}
        for how, plan in plans.items():
            out = self.attempt(f"compare-{network.name}-{how}", [self.program("trainyard"), "compare", plan, run, "--json"])
            if out is not None:
                comparison.setdefault(network.name, {})[how] = json.loads(out)
                found[how] = {key: value for key, value in json.loads(out).items() if not isinstance(value, (list, dict))}
            with open(plan) as file:
                found.setdefault("predicted_memory", {})[how] = json.load(file).get("memory", [None])[0]
        with open(os.path.join(self.folder, "comparison.json"), "w") as file:
            json.dump(comparison, file)
        self.put("predictions", network.name, found)

    def loop_part(self):
        comparison = {}
        for network in filter(None, (self.first, self.second)):
            self.loop(network, comparison)

    def case_group(self, name, words):
        """One process of gpu_cases; after a case that crashed or hung, another one continues after it."""
        lines, begun, rows = self.path(name + ".jsonl"), 0, []
        while self.left_s() > 1:
            seen, first = len(json_lines(lines)), begun
            code, _ = self.run(f"{name}-{begun}", [self.program("gpu_cases"), "--from", begun, "--stop", "-o", lines, *words], 600,
                               CUDA_MODULE_LOADING="LAZY")
            found = json_lines(lines)[seen:]
            begun += sum("begins" in row for row in found)
            rows += [row for row in found if "name" in row]
            if found and "begins" in found[-1] and code != 0:
                if self.left_s() <= 1:
                    break  # the limit ended it, not the case
                rows.append({"name": found[-1]["begins"], "passed": False,
                             "message": f"exit code {code}: {self.words(f'{name}-{first}')}"})
            if code == 0 or not found:
                break
        return rows

    def cases_run(self, groups, at_once):
        with ThreadPoolExecutor(at_once) as pool:
            for rows in pool.map(lambda group: self.case_group(*group), groups):
                for row in rows:
                    if not row["passed"]:
                        self.note("failed", row["name"], row.get("message", ""))
                with self.lock:
                    counts = self.result.setdefault("cases", {"passed": 0, "failed": 0})
                    counts["passed"] += sum(row["passed"] for row in rows)
                    counts["failed"] += sum(not row["passed"] for row in rows)
                    with open(os.path.join(self.folder, "cases.jsonl"), "a") as file:
                        file.writelines(json.dumps(row) + "\n" for row in rows)
                self.save()

    def cases_part(self):
        warming = []
        if not self.asked.quick:  # PyTorch compiles meanwhile, into a cache that its part uses
            pool = ThreadPoolExecutor(2)
            warming = [pool.submit(self.run, f"torch-warming-{network.name}", self.torch_command(network, "compile", "--warm-up"), 58,
                                   self.machine_environment, **self.torch_cache()) for network in (RESNET50, GPT2)]
        words = self.asked.case or (["=update sgd"] if self.asked.quick else [])
        self.cases_run([(family, ["--quick", "--family", family, *words]) for family in FAMILIES], 8)
        for compiling in warming:
            compiling.result()

    def torch_cache(self):
        return {"TORCHINDUCTOR_CACHE_DIR": self.path("inductor"), "TRITON_CACHE_DIR": self.path("triton")}

    @staticmethod
    def torch_command(network, how, *words):
        return [shutil.which("python3") or sys.executable, os.path.join(HERE, "torch_baselines.py"), network.name, how,
                network.batch, *words]

    def pytorch_part(self):
        if self.asked.quick:
            self.note("skipped", "pytorch", "nothing to compare on the emulator")
            return
        for network, how, words in ((RESNET50, "compile", []), (GPT2, "compile", []), (GPT2, "eager", []), (RESNET50, "eager", []),
                                    (GPT2, "compile", ["--vocabulary", "50304"])):
            name = f"torch-{network.name}-{how}" + ("-" + words[1] if words else "")
            code, out = self.run(name, self.torch_command(network, how, *words), 80, self.machine_environment, **self.torch_cache())
            if code == 0:
                self.put("pytorch", name, json.loads(out.splitlines()[-1]))
                self.note("done", name)
            else:
                self.note("failed", name, "took too long" if code == 124 else out.strip() or self.words(name))

    def sanitize_part(self):
        tool = shutil.which("compute-sanitizer", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")
        if tool is None:
            self.note("skipped", "sanitize", "no compute-sanitizer in PATH or /usr/local/cuda/bin")
            return

        def one(item):
            check, case = item
            name = f"{check}-{case.strip('=').replace(' ', '-')}"
            return self.attempt(name, [tool, "--tool", check, "--error-exitcode", SANITIZER_CODE, self.program("gpu_cases"), "--quick",
                                       case], CUDA_MODULE_LOADING="LAZY",
                                # Races inside cuDNN's attention are not ours to report.
                                **({"TRAINYARD_CUDA_ATTENTION": "own"} if check == "racecheck" else {}))

        with ThreadPoolExecutor(5) as pool:
            list(pool.map(one, [("memcheck", "=update sgd")] if self.asked.quick else SANITIZED))

    def ranks_part(self):
        """Two processes on one GPU, through the host and through NCCL, must train alike."""
        losses = {}
        for job, link in JOBS[:1] if self.asked.quick else JOBS:
            name = f"ranks-{job}-{link}"
            folder = self.path(name)
            os.makedirs(folder)
            workload = SMALL.workload if self.asked.quick else "gpt-tiny sequence=32"
            out = self.attempt(name + "-job", [self.program("gpu_cases"), "--job", workload, job, folder])
            added = {"TRAINYARD_LINK": link}
            if link == "nccl":
                added.update(TRAINYARD_NCCL_SHARED_GPU="1", NCCL_DEBUG="WARN")
            if out is None or self.attempt(name, [self.program("mpirun"), "--allow-run-as-root", "--oversubscribe", "-n", 2,
                                                  self.program("trainyard-worker"), "-q", os.path.join(folder, "job.json")],
                                           20, **added) is None:
                continue
            with open(out.strip()) as file:
                losses[job, link] = json.load(file)["losses"]
            self.put("ranks", name, losses[job, link])
        pairs = [(losses.get((job, "host")), found) for (job, link), found in losses.items() if link == "nccl"]
        if any(host and any(abs(a - b) > 1e-4 * abs(a) for a, b in zip(host, nccl)) for host, nccl in pairs):
            self.note("failed", "ranks", "NCCL and the host link train differently")

    def main(self):
        wanted = [int(p) for p in re.split("[ ,]+", self.asked.parts)] if self.asked.parts else range(len(PARTS))
        self.save()
        try:
            for number, part in enumerate(PARTS):
                if number != 0 and number not in wanted:
                    continue
                left_s = self.started + self.asked.budget - time.monotonic()
                if left_s < part.least_s:
                    self.note("skipped", part.name, f"{left_s:.0f} s left of the budget, {part.least_s} needed")
                    continue
                began = time.monotonic()
                self.part_ends = began + min(part.limit_s, left_s)
                try:
                    getattr(self, part.name + "_part")()
                except Exception:  # an exception in one part must not end the others
                    self.note("failed", part.name, traceback.format_exc())
                self.put("part_seconds", part.name, round(time.monotonic() - began, 1))
        except KeyboardInterrupt:
            self.note("skipped", "the rest", "interrupted")
        self.pack_logs()
        self.save()
        shutil.rmtree(self.work, ignore_errors=True)
        print(f"{self.folder}/day.json: {len(self.result['done'])} done, {len(self.result['skipped'])} skipped, "
              f"{len(self.result['failed'])} failed in {self.result['seconds']:.0f} s")
        return 0


def main():
    parser = argparse.ArgumentParser(prog="check", description="What one GPU can answer in a few minutes.")
    parser.add_argument("command", choices=["day"])
    parser.add_argument("-o", dest="folder", default=os.path.join(HERE, "results"), help="where the results go")
    parser.add_argument("--budget", type=float, default=420, help="seconds for everything")
    parser.add_argument("--parts", help="only these, by number: " + ", ".join(f"{i} {p.name}" for i, p in enumerate(PARTS)))
    parser.add_argument("--case", action="append", help="only cases with this name, in part 6")
    parser.add_argument("--quick", action="store_true", help="small networks, for the emulator")
    asked = parser.parse_args()
    os.makedirs(asked.folder, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return Day(asked).main()


if __name__ == "__main__":
    sys.exit(main())
