"""Questions that users asked in public, with the answers confirmed there.

python3 run.py TRAINYARD [ID...]
Each case of cases.json has asks: a command, and the figure or verdict that is right. A figure is right within 20 %.
"fits" and "does not fit" are exit status 0 and 4. A case that is not right yet says what is missing. Exit status 1: a
case is not as the table says, or fewer than LEAST are right.
"""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LEAST, TOLERANCE = 29, 0.2


def answer(trainyard, command):
    done = subprocess.run([trainyard, *command, "--json", "-q"], cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        return done.returncode, json.loads(done.stdout), done.stderr
    except ValueError:
        return done.returncode, {}, done.stderr


def find(document, key):
    """The first value under a key, outermost first."""
    level = [document]
    while level:
        following = []
        for value in level:
            if isinstance(value, dict):
                if key in value:
                    return value[key]
                following += value.values()
            elif isinstance(value, list):
                following += value
        level = following
    return None


def is_right(trainyard, ask):
    code, document, said = answer(trainyard, ask["command"])
    if "verdict" in ask:
        return code == {"fits": 0, "does not fit": 4, "refused": 2}[ask["verdict"]], f"exit status {code} {said.strip()[:100]}"
    found = find(document, ask["key"])
    if isinstance(found, list):
        found = sum(item.get("kind") == ask["kind"] for item in found)
    if code != 0 or not isinstance(found, (int, float)):
        return False, f"exit status {code} {said.strip()[:100]}"
    found *= ask.get("times", 1)
    if "ratio_to" in ask:
        code, other, said = answer(trainyard, ask["ratio_to"])
        found /= find(other, ask["key"]) or float("nan")
    return abs(found / ask["value"] - 1) <= ask.get("tolerance", TOLERANCE), f"{found:.4g}, right is {ask['value']}"


def main(trainyard, wanted):
    with open(os.path.join(HERE, "cases.json")) as file:
        cases = json.load(file)["cases"]
    right, surprises = 0, []
    for case in cases:
        if wanted and case["id"] not in wanted:
            continue
        outcomes = [is_right(trainyard, ask) for ask in case.get("asks", [])]
        ok = bool(outcomes) and all(good for good, _ in outcomes)
        right += ok
        expected = "missing" not in case
        print(f"{case['id']} {'right' if ok else 'WRONG' if expected else 'not yet'}: {case['question']}")
        for good, said in outcomes:
            print(f"      {'+' if good else '-'} {said}")
        if not expected:
            print(f"      missing: {case['missing']}")
        if ok != expected:
            surprises.append(case["id"])
    print(f"{right} of {len(cases)} right")
    if surprises:
        print("not as the table says: " + " ".join(surprises))
    return 1 if surprises or (not wanted and right < LEAST) else 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1]), sys.argv[2:]))
