"""Folds the results of `tests/gpu/check day` into docs/results/gpu.json and writes docs/results/gpu.md.
Writes the measured rates into the catalogue, as constants of the framework `trainyard` (planner/stacks/trainyard.json).

python3 docs/results/gpu.py [RESULTS...]
RESULTS: folders with a day.json. A day replaces an earlier one of the same commit and date.
"""

import csv
import json
import os
import re
import sys
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "%": 1.0, "": 1.0}
TIME, READ, WRITTEN = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
FAMILIES = [("matrix products", r"nvjet|gemm|cublas|cutlass::Kernel"), ("attention", r"sdpa|attention|matmul_dq|dot_do_o"),
            ("convolutions", r"xmma|cudnn|cask|nhwc")]
SHOWN_KERNELS = 12


def kernels_of(path):
    """[{name, family, launches, seconds, bytes}], longest first, from a table of ncu."""
    with open(path) as file:
        rows = list(csv.DictReader(file))
    units, found = rows[0], {}
    for row in rows[1:]:
        name = re.sub(r"^void |[<(].*", "", row["Kernel Name"])
        family = next((f for f, pattern in FAMILIES if re.search(pattern, name)), "own kernels")
        kernel = found.setdefault(name, {"name": name, "family": family, "launches": 0, "seconds": 0.0, "bytes": 0.0})

        def value(key):
            return float(row[key].replace(",", "")) * UNITS[units[key]] if row.get(key) else 0.0

        kernel["launches"] += 1
        kernel["seconds"] += value(TIME)
        kernel["bytes"] += value(READ) + value(WRITTEN)
    return sorted(found.values(), key=lambda k: -k["seconds"])


def product_rate(folder):
    """FLOP/s of the largest product of a training step, from the profile of GPT-2: the head's forward pass."""
    path = os.path.join(folder, "profile-gpt2.json")
    if not os.path.exists(path):
        return None
    with open(path) as file:
        heads = [t for t in json.load(file)["layer_times"] if t["signature"].startswith("linear ")]
    head = max(heads, key=lambda t: t["micro_batch"])
    features, classes = (int(re.search(rf"{key}=(\d+)", head["signature"])[1]) for key in ("in_features", "out_features"))
    tokens = int(re.search(r"input=(\d+)x", head["signature"])[1])
    return 2.0 * head["micro_batch"] * tokens * features * classes / head["forward_s"]


def day_of(folder):
    with open(os.path.join(folder, "day.json")) as file:
        day = json.load(file)
    for benchmark in day.get("benchmarks", {}).values():
        benchmark["losses"] = benchmark["losses"][:1] + benchmark["losses"][-1:]
    day.get("machine", {}).pop("attributes", None)
    for found in day.get("predictions", {}).values():
        found.pop("losses", None)
    day["trained_product_flop_per_s"] = product_rate(folder)
    day["kernels"] = {}
    for name in sorted(os.listdir(folder)):
        if name.startswith("kernels-") and os.path.getsize(os.path.join(folder, name)) > 100:
            day["kernels"][name[len("kernels-"):-len(".csv")]] = kernels_of(os.path.join(folder, name))
    return day


def ms(seconds):
    return "-" if seconds is None else f"{seconds * 1e3:.1f}"


def percent(share):
    return "-" if share is None else f"{share * 100:+.1f} %"


def at(value, *keys):
    """value[keys[0]][keys[1]]..., or None."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def row(*cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def table(head, rows):
    return [row(*head), row(*("---" if i == 0 else "---:" for i in range(len(head))))] + [row(*r) for r in rows] + [""]


def summary(days):
    lines = []
    for name, title in (("gpt2", "GPT-2 124M, 16 x 1,024 tokens, bf16"), ("resnet50", "ResNet-50, 128 images, bf16")):
        rows = []
        for day in days:
            found = at(day, "benchmarks", name)
            run = at(day, "predictions", name) or {}
            rows.append((day["date"][:10], f"`{day['commit']}`", (at(day, "machine", "gpus") or ["-"])[0], ms(at(found, "step_time_s")),
                         ms(at(found, "device_time_s")), ms(at(run, "summary", "step_time_s")),
                         ms(at(day, "pytorch", f"torch-{name}-compile", "step_time_s")),
                         ms(at(day, "pytorch", f"torch-{name}-eager", "step_time_s")),
                         percent(at(run, "by-profile", "step_time_error")), percent(at(run, "a-priori", "step_time_error"))))
        lines += [f"## {title}", "", "Milliseconds per step:", "",
                  "- *step* and *device* repeat one batch, by the clock of the host and of the device;",
                  "- *run* is `trainyard run` with its input;",
                  "- torch.compile sees model and loss together;",
                  "- the errors are those of the predicted step time.", ""]
        lines += table(("date", "commit", "GPU", "step", "device", "run", "torch.compile", "PyTorch eager",
                        "predicted by profile", "a priori"), rows)
    return lines


def last_with(days, key):
    """The latest day that has something under a key."""
    return next((day for day in reversed(days) if day.get(key)), {})


def benchmarks(day, compared):
    rows = [(name, ms(b["step_time_s"]), ms(b["forward_s"]), ms(b["backward_s"]), ms(b["update_s"]),
             f"{b['samples_per_s']:,.0f}", f"{b['peak_bytes'] / 2**30:.2f}", b["graphs"]) for name, b in day.get("benchmarks", {}).items()]
    rows += [(name, ms(t["step_time_s"]), "-", "-", "-", f"{t['samples_per_s']:,.0f}", f"{t['peak_bytes'] / 2**30:.2f}", "-")
             for name, t in compared.get("pytorch", {}).items()]
    return ["## Benchmarks", "", f"Commit `{day['commit']}`; PyTorch's rows were measured with commit `{compared.get('commit')}`.",
            "Times in milliseconds, memory in GiB.", ""] + table(
        ("benchmark", "step", "forward", "backward", "update", "samples/s", "memory", "graphs"), rows)


def kernels(day):
    lines = []
    for name, found in day.get("kernels", {}).items():
        total_s = sum(k["seconds"] for k in found)
        families = {}
        for kernel in found:
            families[kernel["family"]] = families.get(kernel["family"], 0) + kernel["seconds"]
        said = ", ".join(f"{family} {ms(s)} ms" for family, s in sorted(families.items(), key=lambda f: -f[1]))
        lines += [f"## Kernels of one step of {name}", ""]
        lines += textwrap.wrap(f"{sum(k['launches'] for k in found)} launches, {ms(total_s)} ms without the gaps between them: {said}.",
                               116) + [""]
        lines += table(("kernel", "launches", "ms", "share", "TB/s"),
                       [(f"`{k['name'][:48]}`", k["launches"], f"{k['seconds'] * 1e3:.2f}", f"{k['seconds'] / total_s:.1%}",
                         f"{k['bytes'] / k['seconds'] / 1e12:.2f}") for k in found[:SHOWN_KERNELS]])
    return lines


def figure(value):
    return float(f"{value:.3g}")


def mean_share(measured, rate, peak, what):
    """The mean over the cards of a generation, so that they keep the order of their data sheets."""
    shares = [rate(day) / device[peak]["value"] for day, device in measured]
    cards = " and ".join(day["machine"]["gpus"][0] for day, _ in measured)
    said = ", ".join(f"{share:.3f} on {day['date'][:10]} with commit {day['commit']}" for (day, _), share in zip(measured, shares))
    return {"value": figure(sum(shares) / len(shares)), "source": f"measured on {cards}: {what}, {said}"}


def catalogue(days):
    """The shares of the devices' rates that the worker reaches, by generation, from the newest day of each card. Devices that the
    catalogue says are slower for their data sheet, by their power limit, keep the catalogue's shares."""
    with open(os.path.join(SOURCE, "topologies", "catalogue", "devices.json")) as file:
        devices = {device["name"]: device for device in json.load(file)["devices"]}
    devices = {name: {**devices.get(device.get("like"), {}), **device} for name, device in devices.items()}
    newest = {day["machine"]["planned_as"]: day for day in days if day.get("trained_product_flop_per_s")}
    rows = []
    for generation in sorted({devices[name]["generation"] for name in newest}):
        measured = [(day, devices[name]) for name, day in newest.items() if devices[name]["generation"] == generation]
        least = min(device["matmul_efficiency"]["value"] for _, device in measured)
        rows.append({"device": generation,
                     "product_share": mean_share(measured, lambda day: day["trained_product_flop_per_s"], "peak_fp16_flop_per_s",
                                                 "forward pass of the head of GPT-2, bf16"),
                     "memory_share": mean_share(measured, lambda day: day["rates"]["lazy"]["copy_bytes_per_s"],
                                                "memory_bandwidth_bytes_per_s", "copy in device memory")})
        rows += [{"device": d["name"], "product_share": "device", "memory_share": "device"} for d in devices.values()
                 if d["generation"] == generation and d["matmul_efficiency"]["value"] < least]
    path = os.path.join(SOURCE, "planner", "stacks", "trainyard.json")
    with open(path) as file:
        stack = json.load(file)
    fitted = stack.pop("fitted")
    stack["on"] = rows
    stack["fitted"] = fitted
    text = json.dumps({key: value for key, value in stack.items() if key != "on"}, indent=2)
    lines = ",\n".join("    " + json.dumps(row) for row in rows)
    with open(path, "w") as file:
        file.write(text.replace('  "fitted"', f'  "on": [\n{lines}\n  ],\n  "fitted"') + "\n")


def page(days):
    last = days[-1]
    rates = at(last, "rates", "lazy") or {}
    lines = ["# Results on a GPU", "",
             "`python3 docs/results/gpu.py RESULTS` writes this page from the results of `tests/gpu/check day`.",
             "[GPUs](../guides/train-on-gpus.md) explains the backend.", ""]
    lines += summary(days)
    lines += ["## Last measurement", "", "These are the facts of the newest row.", "", f"- Commit `{last['commit']}`, {last['date'][:10]}, {last['seconds']:.0f} s; "
              f"{(at(last, 'machine', 'gpus') or ['-'])[0]}, driver {at(last, 'machine', 'driver')}."]
    if rates:
        lines.append(f"- Copy in device memory {rates['copy_bytes_per_s'] / 1e12:.2f} TB/s (read and written); "
                     f"product of {rates['side']} x {rates['side']} matrices in {rates['precision']} "
                     f"{rates['product_flop_per_s'] / 1e12:.0f} TFLOP/s.")
    if last.get("trained_product_flop_per_s"):
        lines += [f"- Largest product of a training step, the head of GPT-2 forward: {last['trained_product_flop_per_s'] / 1e12:.0f} TFLOP/s.",
                  "- The framework `trainyard` uses the rates of this product and of the copy to predict steps on such GPUs."]
    for day in days:
        cases = day.get("cases", {})
        lines.append(f"- Cases against the CPU backend with commit `{day['commit']}`: {cases.get('passed', 0)} passed, "
                     f"{cases.get('failed', 0)} failed.")
    lines += [f"- Same seed, same bits, attention in a fixed order: {name} {'yes' if same else 'NO'}." for name, same in last.get("repeats", {}).items()]
    for note in (note for day in reversed(days) for note in day.get("notes", [])):
        lines += textwrap.wrap("- " + note, 116, subsequent_indent="  ")
    lines.append("")
    measured = last_with(days, "benchmarks")
    lines += benchmarks(measured, last_with(days, "pytorch")) + kernels(last_with(days, "kernels"))
    lines += ["## Failed and skipped", "", "Items that did not pass, by commit.", ""]
    lines += table(("commit", "item", "reason"), [(f"`{day['commit']}`", item["item"], " ".join(item["reason"].split())[-120:].replace("|", "/"))
                                                  for day in days for kind in ("failed", "skipped") for item in day[kind]])
    return "\n".join(lines).rstrip() + "\n"


def main(folders):
    kept = os.path.join(HERE, "gpu.json")
    days = []
    if os.path.exists(kept):
        with open(kept) as file:
            days = json.load(file)
    for folder in folders:
        day = day_of(folder)
        day.update({"notes": d["notes"] for d in days if (d["date"], d["commit"]) == (day["date"], day["commit"]) and "notes" in d})
        days = [d for d in days if (d["date"], d["commit"]) != (day["date"], day["commit"])] + [day]
    days.sort(key=lambda d: d["date"])
    shown = last_with(days, "kernels")
    for day in days:  # earlier tables of kernels are in the history
        if day is not shown:
            day.pop("kernels", None)
    with open(kept, "w") as file:
        json.dump(days, file, indent=1)
        file.write("\n")
    with open(os.path.join(HERE, "gpu.md"), "w") as file:
        file.write(page(days))
    if last_with(days, "trained_product_flop_per_s"):
        catalogue(days)


if __name__ == "__main__":
    main(sys.argv[1:])
