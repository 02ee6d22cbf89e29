"""Makes schemas from the tables of readers and writers. Those of workloads, plans, programs, jobs, profiles,
timelines, runs, samples, checkpoints, clusters, phases, summaries and optimizers are made completely; in others only
names, and figures with their bounds. The rest, and documents that are only written, are by hand.

    build/ci/tests/schema_tables | python3 docs/schemas.py docs/schemas           # writes them
    build/ci/tests/schema_tables | python3 docs/schemas.py docs/schemas --check   # prints differences
"""

import json
import pathlib
import sys


def whole(x):
    """Integers without a decimal point, as in the files."""
    return int(x) if x == int(x) else x


folder, is_check = pathlib.Path(sys.argv[1]), sys.argv[2:] == ["--check"]
tables = json.load(sys.stdin, parse_float=lambda text: whole(float(text)))
SMALLEST = 2.2250738585072014e-308  # DBL_MIN: above 0

# Lists of names: file, and place in it.
NAMES = {
    "schedule": [("stack.json", "properties/plans/properties/schedules/items")],
    "recompute": [("stack.json", "properties/plans/properties/recomputes/items")],
    "compression": [("stack.json", "properties/plans/properties/compressions/items")],
    "collective": [("collective.json", "properties/collective")],
    "provenance": [("stack.json", "properties/provenance")],
    "stack_attention": [("stack.json", "properties/attention")],
    "stack_memory": [("stack.json", "properties/memory")],
}


def number(least, most):
    lower = {"exclusiveMinimum": 0} if least == SMALLEST else {"minimum": least}
    return {"type": "number", **lower, "maximum": most}


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
    """Puts `made` in place of the first of them, in their order; of other members, `others` stay."""
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
                    "plans", "fitted", "judged", "switches"])
some = tables["stack_constants_of_devices"]  # the first of them
renew(stack["on"]["items"]["properties"], dict(list(made.items())[:some]), [])

FIGURES_ONLY = "device.json"  # of which none must be, and which has a name, like and port besides
for name, record in tables["records"].items():
    if name == FIGURES_ONLY:
        renew(schemas[name]["properties"], record["properties"], ["like", "port"])
        continue
    known = schemas[name]
    if "schema" in known["properties"]:
        record["required"].insert(0, "schema")
        record["properties"] = {"schema": known["properties"]["schema"], **record["properties"]}
    known.update(record)

attributes = part(schemas["workload.json"], "properties/layers/items/properties/attributes")
attributes.update({"type": "object", "properties": tables["attributes"], "additionalProperties": False})

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
