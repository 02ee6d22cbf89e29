"""Code reads the table row of a kind instead of comparing kinds: kinds.py SOURCES.

Prints every comparison with an enumerator of a schedule, a compressor, an optimizer or a kind of layer, and every case of one, outside
the table of the kind. Ends with 1 if there is one. "none" of compressors is the absence of a kind and may be compared.
"""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
product = ("core", "workloads", "topologies", "planner", "simulate", "study", "execute", "reports", "cli")
header = {path.name: path.read_text() for path in root.glob("core/**/ty_*.h")}
text = "\n".join(header.values())


def enumerators(pattern, prefix=""):
    body = re.search(pattern, text, re.S)
    if body is None:
        sys.exit(f"kinds.py: no header has {pattern}")
    return [prefix + name for name in re.findall(r"[A-Z][A-Z0-9_]+", body.group(1))]


# The memory model and the stage builders of backends still compare kinds of layers.


def listed(macro):
    return re.findall(r"KIND\(([A-Z0-9_]+),", re.search(rf"#define {macro}\(KIND\)(.*?)\n\n", text, re.S).group(1))


tables = {
    "schedules.c": [n for n in enumerators(r"typedef enum ty_schedule \{(.*?)\}") if n != "TY_SCHEDULE_COUNT"],
    "compression.c": [f"TY_COMPRESSION_{n}" for n in listed("TY_COMPRESSIONS")],
    "optimizers.c": [n for n in enumerators(r"typedef enum ty_optimizer_kind \{(.*?)\}") if n != "TY_OPTIMIZER_COUNT"],
    "layers": [f"TY_LAYER_{n}" for n in listed("TY_LAYER_KINDS")],
}
if any(len(names) < 5 for names in tables.values()):
    sys.exit(f"kinds.py: hardly any kind was found: {tables}")

found = 0
for folder in product:
    for path in sorted((root / folder).rglob("*")):
        if path.suffix not in (".c", ".h", ".cu", ".cuh"):
            continue
        for table, names in tables.items():
            if path.name == table:
                continue
            kind = r"(?:\(\w+\))?(?:" + "|".join(names) + r")\b"
            for number, line in enumerate(path.read_text().split("\n"), 1):
                if re.search(rf"[=!]= *{kind}|{kind} *[=!]=|\bcase {kind}", line):
                    print(f"{path.relative_to(root)}:{number}: {line.strip()}")
                    found += 1
sys.exit(found > 0)
