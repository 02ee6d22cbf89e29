#!/usr/bin/env python3
"""One query has one step time in all commands: `plan --no-simulate`, `estimate`,
`whatif`, `systems` to 1e-9, `simulate` to 0.5 % without contention. (ask_again.py does the
same for `validate`.)

    one_answer.py TRAINYARD FOLDER
"""
import json
import pathlib
import subprocess
import sys

program, folder = sys.argv[1], pathlib.Path(sys.argv[2])

# Workload, cluster, other options, and whether traffic has contention.
QUESTIONS = [
    ("resnet50", "4x p100-server", [], False),
    ("vgg16", "2x dgx1-v100", ["--global-batch", "512"], False),
    ("vgg16", "4x p100-server", ["--fix", "pp=4,schedule=gpipe"], True),
    ("bert-base", "1x dgx-a100", ["--precision", "bf16", "--fix", "dp=8,zero=1"], False),
    ("gpt2", "2x dgx-a100", ["--fix", "tp=2"], False),
    ("gpt2", "2x dgx-a100", ["--stack", "megatron", "--fix", "tp=4,pp=2"], False),
    ("gpt2-xl", "4x dgx-a100", ["--fix", "pp=4,recompute=full", "--global-batch", "64"], False),
    ("gpt2", "4x dgx-h100", ["--fix", "cp=2,tp=2,zero=3"], True),
    ("llama-2-7b", "2x dgx-h100", ["--fix", "pp=2,tp=2", "--stack", "megatron"], False),
    ("mixtral-8x7b", "8x dgx-h100", ["--fix", "ep=8", "--global-batch", "128"], True),
    ("gpt2", "8x p100-server", ["--fix", "dp=16,pp=2,algorithm=ring"], True),
]
SYSTEMS = [("resnet50", "4x p100-server"), ("gpt2", "2x dgx-a100")]

failed = 0


def ask(*words):
    answer = subprocess.run([program, *words, "--json", "--quiet"], capture_output=True, text=True)
    if answer.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: exit code {answer.returncode}: {answer.stderr}")
    return json.loads(answer.stdout)


def expect(what, found, wanted, tolerance):
    global failed
    if abs(found / wanted - 1) > tolerance:
        print(f"{what}: {found!r}, but plan answers {wanted!r}")
        failed += 1


for number, (workload, cluster, words, is_crowded) in enumerate(QUESTIONS):
    question = ["-w", workload, "-c", cluster, *words]
    name = " ".join(question)
    path = str(folder / f"{number}.json")
    plan = ask("plan", *question, "--no-simulate", "-o", path)
    step_s = plan["prediction"]["step_time_s"]
    # The rest uses the plan's own file, or a new query.
    expect(f"estimate of {name}", ask("estimate", path)["step_time_s"], step_s, 1e-9)
    simulated_s = ask("simulate", path)["step_time_s"]
    if is_crowded:
        if simulated_s < step_s * (1 - 1e-6):
            print(f"simulate of {name}: {simulated_s!r}, less than alone, {step_s!r}")
            failed += 1
    else:
        expect(f"simulate of {name}", simulated_s, step_s, 5e-3)
    rows = ask("whatif", *question, "--no-simulate", "--vary", f"cluster={cluster}")["rows"]
    expect(f"whatif of {name}", rows[0]["step_time_s"], step_s, 1e-9)

systems = 0
for workload, cluster in SYSTEMS:
    for row in ask("systems", "-w", workload, "-c", cluster)["systems"]:
        if "step_time_s" not in row:
            continue
        plan = ask("plan", "-w", workload, "-c", cluster, "--system", row["system"], "--no-simulate")
        expect(f"systems: {workload} on {cluster} as {row['system']}", row["step_time_s"],
               plan["prediction"]["step_time_s"], 1e-9)
        systems += 1

print(f"asked {len(QUESTIONS)} questions and {systems} systems")
sys.exit(1 if failed or not systems else 0)
