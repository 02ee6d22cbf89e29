#!/usr/bin/env python3
"""Checks of test_plan_text.sh on the text of `plan` and on documents with rates."""
import json
import os
import pty
import re
import subprocess
import sys

SIZES = ["TP", "PP", "VPP", "DP", "CP", "EP", "MBS"]


def figure(pattern, text):
    found = re.search(pattern, text)
    assert found, (pattern, text)
    return float(found[1].replace(",", "")) * {"k": 1e3, "M": 1e6, "": 1}[found[2] if found.re.groups > 1 else ""]


def text_of(path):
    text = open(path, encoding="utf-8").read()
    lines = text.splitlines()
    for line in lines:
        assert len(line) <= 80 or line.lstrip().startswith("--fix "), line
        assert line == line.rstrip(), line
    labels = [line.split("  ")[0] for line in lines if line[:1].isupper()]
    order = ["Layout", "Batch", "Precision", "Framework", "Step time", "Throughput", "Efficiency", "Time", "Bottleneck",
             "Memory", "Provenance", "Alternatives", "Reproduce"]
    assert [label for label in labels if label in order] == [label for label in order if label in labels], labels
    assert set(order) - {"Alternatives", "Reproduce"} <= set(labels), labels
    return text


def check_alternatives(text):
    table = text.split("Alternatives\n")[1].split(" searched; ")[0].splitlines()
    assert table[0].split() == SIZES + ["step", "memory", "slower"], table[0]
    rows = [line for line in table[1:-1] if line[:32].strip()]
    assert 2 <= len(rows) <= 10, rows
    names = [tuple(row[:32].split()) + (row[57:].strip(),) for row in rows]
    assert all(len(name) == len(SIZES) + 1 for name in names) and len(set(names)) == len(names), names
    fits = ["does not fit" not in row for row in rows]
    assert fits == sorted(fits, reverse=True) and fits.count(False) <= 2, rows
    slower = [float(re.search(r"(-?\d+) %", row)[1]) for row, fit in zip(rows, fits) if fit]
    assert slower == sorted(slower), slower
    return rows


def rates(path, *documents):
    text = text_of(path)
    rows = check_alternatives(text)
    assert len({row[:32] for row in rows}) >= 4, rows
    tokens = figure(r"Throughput +([0-9.]+)([kM]?) tokens/s, ", text)
    each = figure(r"tokens/s, ([0-9.]+)([kM]?) tokens/s/GPU", text)
    mfu = figure(r"Efficiency +([0-9.]+)() % MFU", text)
    tflops = figure(r"MFU, ([0-9.]+)() TFLOP/s/GPU", text)
    peak = 989.4  # of an H100, bf16
    assert abs(each * 64 / tokens - 1) < 0.01 and abs(mfu / 100 * peak / tflops - 1) < 0.01, (tokens, each, mfu, tflops)
    # 6 flop per parameter and token, and in addition attention: 12 layers x width x sequence.
    flop = 6 * 70.6e9 + 12 * 80 * 8192 * 8192
    assert abs(each * flop * 1e-12 / tflops - 1) < 0.05, (each, tflops)
    for document in documents:
        root = json.load(open(document, encoding="utf-8"))
        found = root.get("prediction") or (root.get("rows") or [root])[0]
        if "systems" in root:
            found = next(row for row in root["systems"] if "mfu" in row)
        for key in ("mfu", "tflops_per_device", "tokens_per_s_per_device"):
            assert found[key] > 0, (document, key)
        assert abs(found["mfu"] * peak / found["tflops_per_device"] - 1) < 1e-9, document
        if "score" not in document:
            assert (root if "prediction" in root else found)["usable_memory_bytes"] == 84932978278, document
        if document in ("llama.json", "estimate.json", "score.json"):
            assert abs(100 * found["mfu"] / mfu - 1) < 0.01, document


def terminal(program, _):
    def printed(**environment):
        parent, child = pty.openpty()
        question = [program, "plan", "-w", "lenet", "-c", "1x p100-server", "--no-simulate", "-q"]
        with subprocess.Popen(question, stdout=child, env=dict(os.environ, TERM="xterm", **environment)) as process:
            os.close(child)
            text = b""
            try:
                while chunk := os.read(parent, 4096):
                    text += chunk
            except OSError:  # the other end is closed
                pass
            os.close(parent)
        assert process.returncode == 0
        return text.decode().replace("\r\n", "\n")

    bold, plain = printed(), printed(NO_COLOR="1")
    assert bold.startswith("\033[1mlenet on 1x p100-server") and "\n\033[1mLayout\033[0m  " in bold, bold[:400]
    assert "\033" not in plain and re.sub("\033\\[[0-9]*m", "", bold) == plain


if __name__ == "__main__":
    globals()[{"text": "text_of"}.get(sys.argv[1], sys.argv[1])](*sys.argv[2:])
