"""Processor time of a suite's tests, one after the other: what they cost whatever else the machine does.

    python3 tests/cpu_times.py [-R REGEX] PRESET

Of each test user and system time of all its processes, those included that outlive their parent; a test that fails or is
skipped is marked. The sum over two cores is the least that the suite can take there.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36


def tests(preset, pattern):
    words = ["ctest", "--preset", preset, "--show-only=json-v1"] + (["-R", pattern] if pattern else [])
    listed = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    for test in listed["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        if "command" in test:
            yield test["name"], test["command"], properties


def measure(command, properties):
    environment = dict(os.environ, **dict(word.split("=", 1) for word in properties.get("ENVIRONMENT", [])))
    begun = time.monotonic()
    child = subprocess.Popen(command, env=environment, cwd=properties["WORKING_DIRECTORY"], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    used, status, ended = 0.0, None, None
    while ended is None or time.monotonic() < ended + 10:  # processes that continue are not waited for
        try:
            pid, code, usage = os.wait4(-1, 0 if ended is None else os.WNOHANG)
        except ChildProcessError:
            break
        if pid == 0:
            time.sleep(0.05)
            continue
        used += usage.ru_utime + usage.ru_stime
        if pid == child.pid:
            status, ended = code, time.monotonic()
    child.returncode = os.waitstatus_to_exitcode(status)
    return used, time.monotonic() - begun, child.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("preset")
    parser.add_argument("-R", metavar="REGEX", help="tests whose names match")
    arguments = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    total = 0.0
    print(f"{'CPU s':>7} {'wall s':>7}  test")
    for name, command, properties in tests(arguments.preset, arguments.R):
        used, wall, code = measure(command, properties)
        total += used
        print(f"{used:7.1f} {wall:7.1f}  {name}{'' if code == 0 else f'  (exit code {code})'}", flush=True)
    print(f"{total:7.1f}          all; {total / 120:.1f} minutes on two cores")


if __name__ == "__main__":
    sys.exit(main())
