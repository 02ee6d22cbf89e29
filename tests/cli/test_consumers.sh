#!/bin/sh
# Exported files are started by the software that they are for: torchrun of PyTorch, Open MPI,
# Slurm, torchrun under Slurm. (tests/simulate tests our platforms with SimGrid.) Skipped if one of
# them is not installed.
. "$(dirname "$0")/lib.sh"
. "$SOURCE/tests/launch/slurm.sh"
python=/usr/bin/python3 # Debian's, with Debian's modules
export TRAINYARD_WORKER="$WORKER" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cd "$scratch" || exit 1
for command in slurmctld slurmd munged sbatch mpirun; do
    command -v $command >/dev/null || { echo "skipped: $command is not here (slurmctld slurmd slurm-client munge openmpi-bin)"; exit 77; }
done
$python -c 'import torch.distributed.run' 2>/dev/null || { echo "skipped: python3-torch is not here"; exit 77; }
[ "$(id -u)" -eq 0 ] || { echo "skipped: Slurm's daemons need root"; exit 77; }

# Training that ends with the result of one process with the entire batch: the plan's ranks, passes,
# precision and buckets come from trainyard_plan.py only.
cat >train.py <<'END_OF_SCRIPT'
import sys, torch, torch.distributed as dist
import trainyard_plan as plan


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = torch.nn.Linear(16, 16)

    def forward(self, x):
        return torch.tanh(self.inside(x))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block() for _ in range(max(plan.BLOCKS, 2))])
        self.last = torch.nn.Linear(16, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def train(model, optimizer, samples, around):
    losses = []
    for step in range(4):
        optimizer.zero_grad()
        for number, x in enumerate(samples):
            with around(number):
                loss = model(x).square().mean() / len(samples)
                loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses


dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
assert ranks == plan.PROCESSES == int(sys.argv[1]), (ranks, plan.PROCESSES)
assert plan.GLOBAL_BATCH == plan.MICRO_BATCH * plan.PASSES * ranks
torch.manual_seed(plan.SEED)
batch = torch.randn(ranks, plan.PASSES, plan.MICRO_BATCH, 16)
torch.manual_seed(plan.SEED)
alone = Net()
torch.manual_seed(plan.SEED)
model = plan.wrap(Net())
train(model, plan.optimizer(model), list(batch[rank]), lambda n: plan.accumulating(model, n))
import contextlib
settings = dict(plan.OPTIMIZER_SETTINGS)
train(alone, plan.OPTIMIZER(alone.parameters(), **settings), list(batch.transpose(0, 1).reshape(plan.PASSES, -1, 16)), lambda n: contextlib.nullcontext())
for mine, whole in zip(model.parameters(), alone.parameters()):
    assert torch.allclose(mine, whole, rtol=1e-4, atol=1e-6), (mine - whole).abs().max()
print("rank", rank, "of", ranks, "is where one process is")
END_OF_SCRIPT

# torchrun, two and four processes; gradient accumulation; recomputation; ZeRO 1.
run_torch="$python -m torch.distributed.run --redirects 1 --tee 1" # Debian's 1.13 under Python 3.11 takes no --redirects 0
while IFS='|' read -r ranks workload batch fix; do
    expect 0 plan -w "$workload" -c "local:$ranks" --fix "pp=1,dp=$ranks,compression=none,$fix" --global-batch "$batch" --no-simulate -q -o "torch-$ranks.json"
    expect 0 export "torch-$ranks.json" --to torchrun --script train.py -o "torch-$ranks" --quiet --force
    cp train.py "torch-$ranks/"
    if TORCHRUN="$run_torch --log_dir $scratch/log" OMP_NUM_THREADS=1 timeout 200 "torch-$ranks/launch.sh" "$ranks" >out 2>err &&
        [ "$(cat out err | grep -c 'is where one process is')" -eq "$ranks" ]; then pass; else fail "torchrun of $ranks, $fix: $(tail -n 3 err)"; fi
done <<END
2|mlp|32|micro_batch=8
2|mlp|32|micro_batch=16,zero=1
4|mlp|64|micro_batch=4
4|gpt-tiny|8|micro_batch=2,recompute=full
END

# Open MPI: a run with mpirun has the losses of `run`.
expect 0 plan -w mlp -c local:2 --fix pp=1,dp=2,compression=none --global-batch 32 --no-simulate -q -o plan.json
expect 0 run plan.json --steps 6 -q -o run.json
expect 0 export plan.json --to mpirun --steps 6 -o mpi --quiet
same() { # same FOLDER: its run is ours
    if $python -c 'import json, sys; a, b = (json.load(open(p))["losses"] for p in sys.argv[1:]); sys.exit(a != b or len(a) != 6)' run.json "$1/run.json"; then pass; else
        fail "$1 trains something else"
    fi
}
if mpi/launch.sh --oversubscribe >out 2>err; then pass; else fail "launch.sh of mpirun"; fi
same mpi

# Slurm's own reader of topology.conf finds the switches of `cluster export`, their levels and
# everything below each.
while IFS='|' read -r nodes cluster; do
    expect 0 cluster export "$cluster" --to slurm -o topology.conf
    if slurm_topology topology.conf "$nodes" >shown && SLURM_CONF=$scratch/topology/slurm.conf $python - topology.conf shown <<'PYTHON'; then pass; else fail "Slurm reads the topology of $cluster otherwise: $(cat shown)"; fi
import re, subprocess, sys

def switches(path):
    with open(path) as lines:
        return {w["SwitchName"]: w for w in (dict(re.findall(r"(\w+)=(\S+)", line)) for line in lines if line.startswith("SwitchName"))}

def names(words):
    return set(subprocess.run(["scontrol", "show", "hostnames", words], check=True, capture_output=True, text=True).stdout.split())

def below(written, switch):
    one = written[switch]
    parts = [below(written, name) for name in (names(one["Switches"]) if "Switches" in one else ())]
    return 1 + max([level for level, _ in parts], default=-1), set().union(names(one.get("Nodes", "")), *[nodes for _, nodes in parts])

written, shown = switches(sys.argv[1]), switches(sys.argv[2])
assert written and written.keys() == shown.keys(), (written.keys(), shown.keys())
for name, one in shown.items():
    assert (int(one["Level"]), names(one["Nodes"])) == below(written, name), (one, below(written, name))
PYTHON
done <<END
host-[0-11]|leaf:3 host:4 gpu:8 @h100-sxm nvlink4 ndr400 oversub:2
host-[0-15]|pod:2 leaf:4 host:2 gpu:4 @a100-sxm4-80gb nvlink3 hdr200
host-[0-1]|2x dgx-a100
END

# Slurm: the worker, and torchrun on a host that Slurm starts.
if slurm_start; then pass; else fail "Slurm does not start: $(tail -n 2 slurm/d.log slurm/ctld.log)"; fi
mpi_of_slurm=pmix
srun --mpi=list 2>&1 | grep -q pmix || mpi_of_slurm=none
expect 0 export plan.json --to slurm --steps 6 -o sbatch --quiet
if (cd sbatch && TRAINYARD_MPI=$mpi_of_slurm timeout 200 sbatch --wait job.sbatch) >out 2>err; then pass; else fail "sbatch: $(cat out sbatch/*.out)"; fi
same sbatch
expect 0 export torch-2.json --to torchrun --on slurm --script train.py -o on-slurm --quiet
cp train.py on-slurm/
if (cd on-slurm && TORCHRUN="$run_torch --log_dir $scratch/log" OMP_NUM_THREADS=1 timeout 200 sbatch --wait job.sbatch 2) >out 2>err &&
    [ "$(cat on-slurm/*.out | grep -c 'is where one process is')" -eq 2 ]; then pass; else fail "torchrun under Slurm: $(cat out err on-slurm/*.out | tail -n 5)"; fi
# The versions on the page are the tested ones.
if grep -q '^12' /etc/debian_version 2>/dev/null; then
    for had in "openmpi-bin|Open MPI" "slurmctld|Slurm" "python3-torch|PyTorch" "libsimgrid-dev|SimGrid"; do
        version=$(dpkg-query -W -f '${Version}' "${had%|*}" | sed 's/[+-].*//')
        if grep -qF "| ${had#*|} | $version (Debian 12) |" "$SOURCE/docs/guides/export.md"; then pass; else
            fail "docs/guides/export.md names another version of ${had#*|} than $version"; fi
    done
fi
finish
