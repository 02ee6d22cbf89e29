#!/usr/bin/env python3
"""Makes the page of slow tests: the last pass of each, by commit. `./bootstrap test slow` calls it.

    ctest --preset slow --show-only=json-v1 | python3 slow.py PAGE JUNIT.xml COMMIT >slow.md

PAGE is the previous page, if there is one. A test that did not run or pass keeps the row of its last pass, followed by
its result since then. Removed tests lose their row.
"""
import datetime
import json
import pathlib
import re
import sys
import xml.etree.ElementTree

PAGE = """# The slow suite: results

What `./bootstrap test slow` runs (label `slow`; the names of tests behind it, as in `./bootstrap test slow -R gpu_`, run a part) and writes here: of
each test the commit at which it passed last, the day and the seconds, and how it ended since then, where that was no pass.

| test | passed at | on | seconds | since |
| --- | --- | --- | ---: | --- |
{rows}
"""


def rows_of(page):
    """Test -> [commit, day, seconds, since]."""
    rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| "))
    return {row[0]: row[1:] for row in rows if len(row) == 5}


def ends_of(junit):
    """Test -> (how it ended, seconds, a reason)."""
    ends = {}
    for case in xml.etree.ElementTree.parse(junit).iter("testcase"):
        skipped, failed = case.find("skipped"), case.find("failure")
        said = case.findtext("system-out") or ""
        reason = re.search(r"skipped[:,] *([^\n]*)", said)
        if skipped is not None or case.get("status") in ("notrun", "disabled"):
            end = ("skipped", reason.group(1) if reason else (skipped.get("message") if skipped is not None else ""))
        elif failed is not None or case.get("status") == "fail":
            end = ("failed", failed.get("message") if failed is not None else "")
        elif re.match(r"skipped:", said):  # which a script says that CTest takes for passed
            end = ("skipped", reason.group(1))
        else:
            end = ("passed", "")
        ends[case.get("name")] = (end[0], float(case.get("time")), end[1].strip())
    return ends


def record(tests, page, ends, commit, day):
    rows = rows_of(page)
    out = []
    for test in tests:
        row = rows.get(test, ["-", "-", "-", ""])
        if test in ends:
            end, seconds, reason = ends[test]
            if end == "passed":
                row = [commit, day, f"{seconds:.0f}", ""]
            else:
                row[3] = f"{end} at {commit} on {day}" + (f": {reason}" if reason else "")
        out.append("| " + " | ".join([test, *(word.replace("|", "/") for word in row)]) + " |")
    return PAGE.format(rows="\n".join(out))


def main(words):
    if len(words) != 3:
        sys.exit(__doc__)
    page, junit, commit = words
    tests = [test["name"] for test in json.load(sys.stdin)["tests"]]
    written = pathlib.Path(page).read_text(encoding="utf-8") if pathlib.Path(page).exists() else ""
    sys.stdout.write(record(tests, written, ends_of(junit), commit, datetime.date.today().isoformat()))


if __name__ == "__main__":
    main(sys.argv[1:])
