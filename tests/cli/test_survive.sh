#!/bin/sh
# Exported jobs with checkpoints: ranks and launchers are killed, a file is damaged, a checkpoint
# fails, the time limit comes. Nobody helps, and the losses equal those of an undisturbed run.
. "$(dirname "$0")/lib.sh"
python=/usr/bin/python3
export TRAINYARD_WORKER="$WORKER" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TRAINYARD_PAUSE=0
cd "$scratch" || exit 1
cat >words.json <<'JSON'
{"schema": "trainyard.zoo/1", "name": "words", "family": "sequential", "source": "made up", "sequence": 8,
 "token_bytes": 4, "dataset": "synthetic", "global_batch": 8, "optimizer": {"kind": "adamw", "learning_rate": 0.001,
 "weight_decay": 0.01, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-08}, "layers": [{"kind": "embedding",
 "vocabulary": 300, "features": 32}, {"kind": "linear", "out_features": 300}, {"kind": "softmax_cross_entropy"}]}
JSON
steps=10000
expect 0 plan -w words.json -c local:2 --fix pp=1,dp=2,compression=none --no-simulate -q -o words-plan.json
expect 0 run words-plan.json --steps $steps -q -o whole.json
same_losses() {
    $python -c 'import json, sys; a, b = (json.load(open(p))["losses"] for p in sys.argv[1:]); sys.exit(a != b)' \
        whole.json "$1" && pass || fail "other losses in $1: $2"
}
step_of() { sed -n 's/.*"step": \([0-9]*\),.*/\1/p' "$1/latest.json" 2>/dev/null; }
# await FOLDER: the next checkpoint is written.
await() {
    old=$(step_of "$1")
    tries=0
    while [ "$(step_of "$1")" = "$old" ] && [ $tries -lt 600 ]; do
        tries=$((tries + 1))
        sleep 0.05
    done
}

# mpirun: a rank, the launcher, and a rank with a damaged file after it. Step 9000 cannot be saved.
expect 0 export words-plan.json --to mpirun --steps $steps --checkpoint state --checkpoint-every 100 -q -o alone
mkdir -p alone/state
: >alone/state/step-9000
alone/launch.sh --oversubscribe >out 2>err &
pid=$!
launcher=''
for what in rank launcher flip; do
    before=$launcher
    tries=0
    while [ $tries -lt 600 ] && { [ -z "$launcher" ] || [ "$launcher" = "$before" ]; }; do
        launcher=$(pgrep -P $pid -x "mpirun|prterun")
        tries=$((tries + 1))
        sleep 0.05
    done
    sleep 0.7 # ranks of the killed launcher end within 0.5 s
    await alone/state
    victim=$launcher
    [ $what = launcher ] || victim=$(pgrep -P "$launcher" -f trainyard-worker | tail -1)
    kill -9 "$victim"
    if [ $what = flip ]; then
        $python - alone/state <<'CHANGE'
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
path = folder / f"step-{json.load(open(folder / 'latest.json'))['step']}" / "rank-1"
content = bytearray(path.read_bytes())
content[len(content) // 2] ^= 4
path.write_bytes(content)
CHANGE
    fi
done
wait $pid
got=$?
[ $got -eq 0 ] && pass || fail "launch.sh ends with $got: $(cat err)"
same_losses alone/run.json "$(cat err)"
[ "$(grep -c "starts again" err)" -eq 3 ] && pass || fail "not three starts after a failure: $(cat err)"
grep -q "warning: state/step-.*/rank-1: .*; training resumes from the checkpoint before it" err && pass || fail "the damage is not reported"
grep -q "warning: no checkpoint after step 9000, and training continues" err && pass || fail "the failed checkpoint is not reported"
[ "$(find alone/state -name 'rank-?' -perm 600 | wc -l)" -eq 4 ] && pass || fail "not two checkpoints of mode 0600"

# A signal to the script: ranks save, nothing starts again, and the next start resumes.
rm -r alone/state alone/run.json
alone/launch.sh --oversubscribe >out 2>err &
pid=$!
await alone/state
kill -TERM $pid
wait $pid
got=$?
[ $got -eq 130 ] && pass || fail "launch.sh ends with $got after SIGTERM: $(cat err)"
if grep -q "starts again" err; then fail "an interrupted job starts again"; else pass; fi
[ "$(step_of alone/state)" -lt $steps ] && pass || fail "it was not interrupted"

# Tries are bounded.
TRAINYARD_WORKER=/bin/false TRAINYARD_TRIES=1 alone/launch.sh --oversubscribe >out 2>err
got=$?
[ $got -eq 1 ] && grep -q "gives up after 2 failures" err && pass || fail "it ends with $got: $(cat err)"

# Slurm, with a stand-in for srun and one for scontrol, which notes what it is asked for: SIGUSR1
# before the time limit.
mkdir stand-ins
cat >stand-ins/srun <<'SRUN'
#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
exec mpirun -n 2 --oversubscribe "$@"
SRUN
cat >stand-ins/scontrol <<'SCONTROL'
#!/bin/sh
echo "$*" >>requeued
SCONTROL
chmod +x stand-ins/*
expect 0 export words-plan.json --to slurm --steps $steps --checkpoint state --checkpoint-every 500 --keep 1 -q -o queue
for line in '#SBATCH --requeue' '#SBATCH --signal=B:USR1@120' '#SBATCH --open-mode=append'; do
    grep -qxF -- "$line" queue/job.sbatch && pass || fail "job.sbatch lacks $line"
done
PATH=$PWD/stand-ins:$PATH SLURM_SUBMIT_DIR=$PWD/queue SLURM_JOB_ID=7 bash queue/job.sbatch >out 2>err &
pid=$!
await queue/state
kill -USR1 $pid
wait $pid
got=$?
[ $got -eq 130 ] && [ "$(cat queue/requeued)" = "requeue 7" ] && pass || fail "job.sbatch ends with $got: $(cat err)"
PATH=$PWD/stand-ins:$PATH SLURM_SUBMIT_DIR=$PWD/queue SLURM_JOB_ID=7 bash queue/job.sbatch >out 2>err
got=$?
[ $got -eq 0 ] && [ "$(wc -l <queue/requeued)" -eq 1 ] && pass || fail "job.sbatch ends with $got: $(cat err)"
same_losses queue/run.json "$(cat err)"

# The other targets: files that their tools accept, with the words of each.
expect 0 plan -w "gpt2 sequence=512" -c "2x dgx-a100" --fix pp=1,tp=1,cp=1,ep=1,sp=0,zero=0,compression=none,recompute=none --no-simulate -q -o hosts.json
for line in 'torchrun||--max_restarts=10' 'torchrun||CHECKPOINT = "/checkpoints"' 'torchrun||CHECKPOINT_EVERY = 500  #' 'torchrun||KEEP = 3 ' \
    'torchrun|slurm|#SBATCH --requeue' 'torchrun|k8s-jobset|maxRestarts: 10' 'torchrun|k8s-trainjob|maxRestarts: 10' \
    'torchrun|skypilot|max_restarts_on_errors: 10' 'deepspeed|slurm|scontrol requeue' 'accelerate||--max_restarts=10' \
    'k8s-pytorchjob||backoffLimit: 10' 'megatron||--save /checkpoints --load /checkpoints' 'megatron||--save-interval 500'; do
    to=${line%%|*}
    rest=${line#*|}
    on=${rest%%|*}
    rm -rf made
    expect 0 export hosts.json --to "$to" ${on:+--on "$on"} --checkpoint /checkpoints --checkpoint-every 500 --keep 3 -q -o made
    grep -rqF -- "${rest#*|}" made && pass || fail "$to ${on:+on $on} lacks ${rest#*|}"
    for script in made/*.sh made/*.sbatch; do
        if [ -f "$script" ] && command -v shellcheck >/dev/null && ! shellcheck "$script" >out; then fail "shellcheck: $(cat out)"; fi
    done
    for file in made/*.yaml; do
        [ -f "$file" ] && $python -c 'import jsonschema, yaml' 2>/dev/null || continue
        kinds=$(sed -n 's/^kind: //p' "$file" | tr '\n' ' ')
        case $file in *task.yaml) kinds=task ;; *accelerate.yaml) kinds=configuration ;; esac
        case $kinds in
        task) set -- "task of SkyPilot" ;;
        configuration) set -- "configuration of Accelerate" ;;
        *) set -- $kinds ;;
        esac
        $python "$SOURCE/tests/launch/check_yaml.py" "$file" "$@" >out && pass || fail "$file: $(cat out)"
    done
done
expect 0 export hosts.json --to k8s-mpijob --checkpoint state --checkpoint-every 10min -q -o pods
grep -q '"--resume"\|--resume /job' pods/mpijob.yaml && grep -q "restartPolicy: OnFailure" pods/mpijob.yaml && grep -q '"checkpoint_every_s": 600' pods/mpijob.yaml && pass || fail "mpijob.yaml"
if $python -c 'import jsonschema, yaml' 2>/dev/null; then
    $python "$SOURCE/tests/launch/check_yaml.py" pods/mpijob.yaml ConfigMap PersistentVolumeClaim MPIJob && pass || fail "mpijob.yaml"
fi
expect 1 export hosts.json --to k8s-mpijob --checkpoint /elsewhere
expect_error_line "--to k8s-mpijob" "expected a relative path"
expect 1 export hosts.json --to k8s-pytorchjob --checkpoint state
expect_error_line "expected an absolute path"
expect 2 export hosts.json --to chakra --checkpoint state -o chakra
expect_error_line "starts nothing"
expect 2 export hosts.json --to slurm --checkpoint-every 5
expect_error_line "--checkpoint-every: found without --checkpoint"
finish
