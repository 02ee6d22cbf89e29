"""Fills the parts of docs/schemas that follow from tables of core's readers: names, and figures with
their bounds. The rest of a schema is written by hand.

    build/ci/tests/schema_tables | python3 docs/schemas.py docs/schemas           # writes them anew
    build/ci/tests/schema_tables | python3 docs/schemas.py docs/schemas --check   # says what differs
"""

import json
import pathlib
import sys

folder, is_check = pathlib.Path(sys.argv[1]), sys.argv[2:] == ["--check"]
tables = json.load(sys.stdin)
SMALLEST = 2.2250738585072014e-308  # DBL_MIN: above 0

# Lists of names: file, and where in it.
NAMES = {
    "schedule": [("stack.json", "properties/plans/properties/schedules/items")],
    "recompute": [("stack.json", "properties/plans/properties/recomputes/items"),
                  ("plan.json", "properties/stages/items/properties/recompute")],
    "compression": [("stack.json", "properties/plans/properties/compressions/items")],
    "collective": [("collective.json", "properties/collective")],
    "precision": [("workload.json", "properties/precision")],
    "provenance": [("plan.json", "properties/provenance"), ("stack.json", "properties/provenance")],
    "stack_attention": [("stack.json", "properties/attention")],
    "stack_memory": [("stack.json", "properties/memory")],
    "vertex": [("cluster.json", "properties/vertices/items/properties/kind")],
}


def number(least, most):
    """As the files have it: whole numbers without a point."""
    whole = [int(x) if x == int(x) else x for x in (least, most)]
    lower = {"exclusiveMinimum": 0} if least == SMALLEST else {"minimum": whole[0]}
    return {"type": "number", **lower, "maximum": whole[1]}


def constant(row):
    value = number(row["minimum"], row["maximum"])
    if row["may_be_of_device"]:
        value = {"anyOf": [value, {"const": "device"}]}
    with_source = {"type": "object", "required": ["value", "source"],
                   "properties": {"value": value, "source": {"type": "string", "minLength": 1}},
                   "additionalProperties": False}
    return {"anyOf": [value, with_source]}


def part(schema, where):
    for key in where.split("/"):
        schema = schema[key]
    return schema


def renew(properties, made, others):
    """`made` in their order where the first of them was; of what else there is, `others` stay."""
    at = next(i for i, key in enumerate(properties) if key in made)
    before = {k: v for i, (k, v) in enumerate(properties.items()) if i < at}
    after = {k: v for k, v in properties.items() if k in others and k not in before}
    properties.clear()
    properties.update({**before, **made, **after})


schemas = {path.name: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
for table, places in NAMES.items():
    for name, where in places:
        part(schemas[name], where)["enum"] = tables[table]

stack = schemas["stack.json"]["properties"]
made = {row["key"]: constant(row) for row in tables["stack_constants"]}
renew(stack, made, ["on", "attention", "memory", "has_dropout", "overlaps_exchange", "has_equal_stages",
                    "plans", "fitted", "judged"])
some = tables["stack_constants_of_devices"]  # the first of them
renew(stack["on"]["items"]["properties"], dict(list(made.items())[:some]), [])

device = part(schemas["cluster.json"], "properties/device_types/items")
made = {row["key"]: number(row["minimum"], row["maximum"]) for row in tables["device_figures"]}
renew(device["properties"], made, ["memory_bytes"])
device["required"] = (["name", "source"] + [row["key"] for row in tables["device_figures"] if not row["is_optional"]]
                      + ["memory_bytes"])
own = schemas["device.json"]["properties"]  # of which no figure must be
renew(own, made, ["memory_bytes", "like", "port"])
storage = part(schemas["cluster.json"], "properties/storage/items")
made = {row["key"]: number(row["minimum"], row["maximum"]) for row in tables["storage_figures"]}
renew(storage["properties"], made, [])
storage["required"] = (["name", "source", "is_shared"]
                       + [row["key"] for row in tables["storage_figures"] if not row["is_optional"]])
link = part(schemas["cluster.json"], "properties/link_types/items/properties")
for key, bounds in tables["link_figures"].items():
    link[key] = {**number(*bounds), **({"description": link[key]["description"]} if "description" in link[key] else {})}

wrong = 0
for name, schema in schemas.items():
    path = folder / name
    if schema == json.loads(path.read_text()) and list(map(str, schema)) == list(map(str, json.loads(path.read_text()))):
        continue
    wrong += 1
    if is_check:
        print(f"{path}: is not what core's tables say; write it anew with docs/schemas.py")
    else:
        path.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")
sys.exit(is_check and wrong > 0)
