"""Follows docs/design/recipes.md in a copy of the sources: follow.py COPY.

Adds a schedule, a compressor, an axis, a layer kind, a collective algorithm, a preset, a launch target, a device with its host, a model family, a
model and a cluster, each by its recipe. Each addition behaves like an existing entry, so that
test_recipes.sh can compare the two.
Ends with 1 if a recipe names a location that no longer exists.
"""

import json
import pathlib
import sys

copy = pathlib.Path(sys.argv[1])


touched = set()
limit = None


def recipe(title, most):
    """Begins a recipe that changes at most this number of product files."""
    finish_recipe()
    global limit
    limit = (title, most)


def finish_recipe():
    if limit is not None and len(touched) > limit[1]:
        sys.exit(f"{limit[0]}: {len(touched)} files, expected at most {limit[1]}: {' '.join(sorted(touched))}")
    touched.clear()


def write(path, text):
    touched.add(path)
    (copy / path).write_text(text)


def edit(path, anchor, text, before=False):
    """Inserts text after (or before) the first line that has the anchor."""
    lines = (copy / path).read_text().splitlines(keepends=True)
    for number, line in enumerate(lines):
        if anchor in line:
            lines.insert(number if before else number + 1, text + "\n")
            write(path, "".join(lines))
            return
    sys.exit(f"{path}: nothing has '{anchor}'")


def replace(path, old, new):
    text = (copy / path).read_text()
    if old not in text:
        sys.exit(f"{path}: nothing has '{old}'")
    write(path, text.replace(old, new, 1))


def add_entry(path, member, entry):
    document = json.loads((copy / path).read_text())
    document[member].append(entry)
    write(path, json.dumps(document, indent=1))


def entry_of(path, member, name):
    return next(e for e in json.loads((copy / path).read_text())[member] if e["name"] == name)


# A schedule: every micro-batch runs forward and backward before the next begins.
recipe("a schedule", 4)
edit("core/ty_axes.h", "TY_SCHEDULE_COUNT", "    TY_TURNS,", before=True)
edit("core/model/schedules.c", "rows[TY_SCHEDULE_COUNT] = {",
     '    [TY_TURNS] = {.name = "turns", .is_usual = true, .most_zero = MOST_ZERO, .warmup_times = 1},')
write("planner/lower/schedule_turns.c", '''\
/* Turns: no two micro-batches are in the pipe at once. */
#include "lowering.h"

ty_status ty_schedule_turns(ty_lowering *l)
{
    ty_lower_pass pass = {.stage = l->pipeline_rank};
    ty_status status = TY_OK;

    for (; pass.micro_batch < l->micro_batches; pass.micro_batch++) {
        TY_CHECK(ty_lower_forward(l, pass), status, done);
        TY_CHECK(ty_lower_backward(l, pass, pass.micro_batch + 1 == l->micro_batches), status, done);
    }
done:
    return status;
}
''')
edit("planner/lower/lowering.h", "ORDER(TY_GPIPE", "    ORDER(TY_TURNS, ty_schedule_turns) \\")

# A compressor: half precision under another name.
recipe("a compressor", 4)
edit("core/ty_profile.h", 'KIND(FP16, fp16, "fp16")', '    KIND(AGAIN, again, "fp16-again") \\')
edit("core/model/compression.c", "kinds[TY_COMPRESSION_COUNT] = {",
     "    [TY_COMPRESSION_AGAIN] = {.phases = 1, .summed = TY_PRECISION_FP16, .is_elementwise = true,\n"
     "                              .wire_bytes = halves_wire, .encode_passes = {1.5}, .decode_passes = 1.5},")
write("execute/codec/codec_again.c", (copy / "execute/codec/codec_fp16.c").read_text().replace("codec_fp16", "codec_again"))
edit("study/catalogue/convergence.json", '"name": "fp16"',
     '    {"name": "fp16-again", "low": 1, "expected": 1, "high": 1.02, "source": "half"},')

# An axis: staleness under another name.
recipe("an axis", 4)
edit("core/ty_axes.h", "    TY_AXIS_COUNT", "    TY_AXIS_LATE,", before=True)
edit("core/ty_axes.h", "    uint32_t lag;", "    uint32_t late;")
edit("core/plan/plan_axes.c", "[TY_AXIS_LAG] =",
     '    [TY_AXIS_LATE] = {"late", AT(late), NUMBER, .values = "0 1", .most = TY_MAX_STALENESS, .kinds = 2},')
replace("planner/search/candidate_plan.c", "plan->staleness = q->pins->staleness;",
        "plan->staleness = q->pins->staleness + q->pins->late;")
edit("planner/search/candidate_pins.c", "ty_pins_take(pins, asked, TY_AXIS_CYCLE);",
     "    ty_pins_take(pins, asked, TY_AXIS_LATE);")

# A layer kind: linear layers under another name, in a separate file.
recipe("a layer kind", 4)
edit("core/ty_workload.h", "KIND(RELU, relu)", "    KIND(DENSE, dense) \\", before=True)
linear = (copy / "core/model/layers/layer_linear.c").read_text().split("/* ---- softmax_cross_entropy")[0]
write("core/model/layers/layer_dense.c", linear.replace("linear", "dense"))
edit("planner/cost/kernels.c", "[TY_LAYER_LINEAR] = linear", "        [TY_LAYER_DENSE] = linear,")
edit("execute/cpu/cpu_layer.h", "X(LINEAR, cpu_linear)", "    X(DENSE, cpu_linear) \\")
finish_recipe()
limit = None  # collectives and presets change any number of files

# A collective algorithm: the ring under another name.
edit("core/ty_profile.h", "TY_ALGORITHM_COUNT", "    TY_AROUND, /* a ring */", before=True)
replace("core/model/profile.c", '"block-manager"};', '"block-manager", "around"};')
edit("simulate/pattern.c", "[TY_RING] = TY_SHAPE_RING", "        [TY_AROUND] = TY_SHAPE_RING,")

# A preset: DistributedDataParallel's choices under another name.
edit("planner/search/systems.c", "static const preset presets[] = {", '''\
    {{"mine", "buckets of 25 MiB overlapped with backward", "made for a test"},
     .may = "compression=none",
     .tries = WHOLE ",bucket=25MiB"},''')

touched.clear()

# A launch target: torchrun's settings, started by parallel-ssh. One row, one template.
recipe("a launch target", 2)
edit("reports/launch/launch.c", "static const launch_target targets[] = {", '''\
    {.name = "parallel-ssh",
     .title = "parallel-ssh: script and settings for your training script",
     .files = "trainyard_plan.py start.sh",
     .next = "./start.sh",
     .refuses = DATA_PARALLEL BLOCKS,
     .bits = 8},''')
write("reports/launch/templates/start.sh.in", '''\
#!/bin/sh
{{>comments|comment}}
{{>environment}}
script={{script|shell}}
exec parallel-ssh -i{{#each hosts}} -H {{name}}{{/each}} torchrun --nnodes={{host_count}} --nproc_per_node={{per_host}} "$script"
''')

finish_recipe()
limit = None

# A device and a host with it: a P100 with ten times the rates.
catalogue = "topologies/catalogue/"
device = entry_of(catalogue + "devices.json", "devices", "p100-pcie-16gb")
device["name"] = "tenfold"
device["matches"] = ["name:Tenfold"]
for key in device:
    if key.startswith("peak_"):
        device[key]["value"] *= 10
add_entry(catalogue + "devices.json", "devices", device)
host = entry_of(catalogue + "hosts.json", "hosts", "p100-server")
add_entry(catalogue + "hosts.json", "hosts", {**host, "name": "tenfold-server", "device": "tenfold"})

# A model family: Llama with windows in every second block, under another name. One file.
touched.clear()
recipe("a model family", 1)
family = json.loads((copy / "workloads/families/llama.json").read_text())
windows = [{"set": {"window": 128, "window_interval": 2}}]
write("workloads/families/every_other.json", json.dumps(
    {**family, "name": "every_other", "types": ["every_second"], "steps": windows + family["steps"]}))

finish_recipe()
limit = None

# A model, and a cluster.
network = json.loads((copy / "workloads/zoo/lenet.json").read_text())
write("workloads/zoo/lenet-again.json", json.dumps({**network, "name": "lenet-again"}))
cluster = json.loads((copy / (catalogue + "clusters.json")).read_text())["clusters"][0]
add_entry(catalogue + "clusters.json", "clusters", {**cluster, "name": "two-tenfold", "line": "2x tenfold-server"})
