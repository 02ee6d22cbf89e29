#!/usr/bin/python3
"""Compares predicted and measured step times with images from a slow store: the table of docs/results/own-runs.md.

    bench/slow_store.py TRAINYARD [--ranks 1,2] [--rates 250,500,1000,2000] [--steps 24] [-o result.json]

RATES are in kilobytes per second. The images are noise. Every plan has storage=slow{bandwidth=RATE}, is estimated and
simulated, and runs with its data in a folder of that rate (tests/testbed/slow_folder). A Markdown table goes to stdout.
Needs root and /dev/fuse.
"""
import argparse
import json
import os
import pathlib
import random
import struct
import subprocess
import tempfile
import time
import zlib

SLOW = pathlib.Path(__file__).resolve().parent.parent / "tests/testbed/slow_folder"
SIDE, CLASSES, OF_CLASS, BATCH = 160, 3, 60, 12


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def images_make(folder):
    """@return mean bytes per training image; every tenth image is for testing"""
    numbers, sizes = random.Random(1), []
    for c in range(CLASSES):
        (folder / str(c)).mkdir(parents=True)
        for i in range(OF_CLASS):
            rows = b"".join(b"\0" + numbers.randbytes(3 * SIDE) for _ in range(SIDE))
            data = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0))
                    + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))  # fmt: skip
            (folder / str(c) / f"{i:03}.png").write_bytes(data)
            sizes += [len(data)] if (c * OF_CLASS + i) % 10 != 9 else []
    return round(sum(sizes) / len(sizes))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trainyard")
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--rates", default="250,500,1000,2000")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    rows, load = [], os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        network = {"schema": "trainyard.zoo/1", "name": "small-resnet", "family": "residual", "source": "two blocks of four channels",
                   "input": [3, 24, 24], "sample_bytes": images_make(scratch / "images"), "block": "basic", "blocks": [1, 1], "width": 4,
                   "classes": CLASSES, "dataset": "synthetic", "global_batch": BATCH,
                   "optimizer": {"kind": "sgd", "learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0}}  # fmt: skip
        (scratch / "net.json").write_text(json.dumps(network))
        (scratch / "slow").mkdir()

        def run(*words):
            made = subprocess.run(list(map(str, words)), capture_output=True, text=True)
            if made.returncode:
                raise SystemExit(f"{' '.join(map(str, words))}: {made.stderr.strip()[-300:]}")
            return made.stdout

        for ranks in map(int, options.ranks.split(",")):
            for rate in map(int, options.rates.split(",")):
                plan = scratch / "plan.json"
                run(options.trainyard, "plan", "-w", scratch / "net.json", "-c", f"local:{ranks} storage=slow{{bandwidth={rate}kB/s}}",
                    "--fix", "pp=1,compression=none,micro_batch=6", "--no-simulate", "-q", "-o", plan)  # fmt: skip
                estimate, simulation = (json.loads(run(options.trainyard, reader, plan, "--json"))["step_time_s"] for reader in ("estimate", "simulate"))
                run(SLOW, scratch / "images", scratch / "slow", rate * 1000, options.trainyard, "run", plan, "--data", scratch / "slow",
                    "--steps", options.steps, "-q", "-o", scratch / "run.json")  # fmt: skip
                measured = json.loads((scratch / "run.json").read_text())["wall_s"] / options.steps  # disturbed steps and all
                rows.append({"ranks": ranks, "rate_kb_per_s": rate, "estimate_s": estimate, "simulation_s": simulation, "measured_s": measured})
    print("| ranks | store | estimated ms | simulated ms | measured ms | estimate |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for r in rows:
        print(f"| {r['ranks']} | {r['rate_kb_per_s']} kB/s | {r['estimate_s'] * 1e3:.0f} | {r['simulation_s'] * 1e3:.0f} | {r['measured_s'] * 1e3:.0f} "
              f"| {(r['estimate_s'] / r['measured_s'] - 1) * 100:+.1f} % |")  # fmt: skip
    result = {"schema": "trainyard.bench_slow_store/1", "date": time.strftime("%Y-%m-%d"), "sample_bytes": network["sample_bytes"],
              "load_before": load, "load_after": os.getloadavg()[0], "rows": rows}  # fmt: skip
    if options.output:
        pathlib.Path(options.output).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
