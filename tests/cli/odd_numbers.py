"""Output of `trainyard check` for documents with one number replaced: odd_numbers.py TRAINYARD FOLDER FILE...

In each file every numeric key in turn, of a list that of its first row, becomes NaN, Infinity, -Infinity, 1e308 and
2^53. A value that is not finite is refused at its location; 2^53 may be a number, but never an integer.
Prints the failures, and the count of tried numbers."""

import json
import os
import subprocess
import sys

program, folder = sys.argv[1:3]
MARK = "a number stands here"
REFUSED = ("NaN", "Infinity", "-Infinity", "1e308")
# Numbers in other tools' files are not checked one by one.
SHOWN = ("trainyard.estimate/1", "trainyard.simulation/2", "trainyard.whatif/1")


def numbers(value, pointer, key, seen):
    """Pointers of the numeric keys below a value that were not seen: rows of a list count as one, and a
    document counts as one wherever it is."""
    if isinstance(value, dict):
        key = value.get("schema", key)
        for name, each in value.items():
            name = name.replace("~", "~0").replace("/", "~1")
            yield from numbers(each, pointer + "/" + name, key + "/" + name, seen)
    elif isinstance(value, list):
        for i, each in enumerate(value):
            yield from numbers(each, "%s/%d" % (pointer, i), key + "/*", seen)
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and key not in seen:
        seen.add(key)
        yield pointer


def marked(document, pointer):
    """The document's text with a mark where the number is."""
    value, parts = document, [p.replace("~1", "/").replace("~0", "~") for p in pointer.split("/")[1:]]
    for part in parts[:-1]:
        value = value[int(part) if isinstance(value, list) else part]
    last = int(parts[-1]) if isinstance(value, list) else parts[-1]
    kept, value[last] = value[last], MARK
    made = json.dumps(document)
    value[last] = kept
    return made


tried = wrong = 0
seen = set()
for path in sys.argv[3:]:
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    document.pop("digest", None)  # which would notice, too
    tries = []
    for pointer in numbers(document, "", "", seen):
        made = marked(document, pointer)
        for text in (*REFUSED, "9007199254740992"):
            name = os.path.join(folder, "%d.json" % len(tries))
            with open(name, "w", encoding="utf-8") as file:
                file.write(made.replace('"%s"' % MARK, text))
            tries.append((name, pointer, text))
    if not tries:
        continue
    done = subprocess.run([program, "check", "--json", *(name for name, _, _ in tries)], stdout=subprocess.PIPE, check=False)
    for (name, pointer, text), said in zip(tries, json.loads(done.stdout)["files"], strict=True):
        message = said.get("message", "")
        if text in REFUSED and not (text == "1e308" and document["schema"] in SHOWN):
            # A number that determines another is refused at either place.
            is_right = not said["is_good"] and message.startswith(name + ":/")
            if text != "1e308":
                is_right = message.startswith("%s:%s: found NaN, Infinity or " % (name, pointer))
        else:
            is_right = said["is_good"] or message.startswith(name + ":")
        if not is_right:
            wrong += 1
            print("%s%s = %s: %s" % (path, pointer, text, message or "taken"))
    tried += len(tries)
print("%d numbers in %d files" % (tried, len(sys.argv) - 3))
sys.exit(wrong > 0 or tried < 500)
