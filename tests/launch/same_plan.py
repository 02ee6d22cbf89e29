"""Whether a plan and the plan made from its launch file are the same: same_plan.py PLAN BACK HELD...
BACK is a plan by `plan --config`; HELD what the file's format holds beside the layout's lanes: model (layers, their
sizes and the optimizer), batch (a step's samples), micro, schedule (and the stages' layers), precision, recompute."""

import json
import sys

PLAN, BACK = (json.load(open(path)) for path in sys.argv[1:3])
HELD = sys.argv[3:]


def same(what, of):
    there, back = of(PLAN), of(BACK)
    if there != back and isinstance(there, list) and isinstance(back, list) and len(there) == len(back):
        there, back = next((a, b) for a, b in zip(there, back) if a != b)
    assert there == back, (what, there, back)


def model(plan):
    """Names depend on the reader, and a vocabulary may be padded: none here is."""
    return [(layer["kind"], layer["attributes"], layer["parameter_bytes"], layer["output_bytes"], layer["inputs"])
            for layer in plan["workload"]["layers"]]


for lanes in ("tensor_parallel", "context_parallel", "expert_parallel"):
    same(lanes, lambda plan: plan.get(lanes, 1))
same("sequence_parallel", lambda plan: plan.get("sequence_parallel", False))
same("zero", lambda plan: plan.get("zero", 0))
same("interleave", lambda plan: plan.get("interleave", 1))
same("replicas", lambda plan: [stage["replicas"] for stage in plan["stages"]])
same("sequence", lambda plan: plan["workload"]["tokens_per_sample"])
same("compression", lambda plan: {bucket.get("compression", "none") for bucket in plan["buckets"]})
if "model" in HELD:
    same("model", model)
if "optimizer" in HELD:
    same("optimizer", lambda plan: plan["optimizer"])
if "batch" in HELD:
    same("batch", lambda plan: plan["global_batch"])
if "micro" in HELD:
    same("micro", lambda plan: (plan["micro_batch_size"], plan["micro_batches"]))
if "schedule" in HELD:
    same("schedule", lambda plan: plan["schedule"] if len(plan["stages"]) > 1 else None)
    same("stages", lambda plan: [(stage["first_layer"], stage["layer_count"]) for stage in plan["stages"]])
if "precision" in HELD:
    same("precision", lambda plan: (plan["workload"].get("precision"), plan["workload"]["element_bytes"]))
if "recompute" in HELD:
    same("recompute", lambda plan: [(stage["recompute"], stage.get("recompute_blocks")) for stage in plan["stages"]])
