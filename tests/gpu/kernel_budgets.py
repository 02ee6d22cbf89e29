"""Registers, spills, stack and static shared memory of every kernel, by ptxas, against a budget.

python3 kernel_budgets.py NVCC INCLUDE_DIR... -- SOURCE...
Compiles each source for sm_80 and sm_90 and reads what `ptxas -v` says. A kernel above its budget fails:
more registers than the file's budget, anything spilled, or more static shared memory than 16 KiB. With 80
registers six blocks of 128 threads share a multiprocessor's 65536, or three
of 256; with 64 four of 256, with 48 five.
"""

import collections
import os
import re
import subprocess
import sys
import tempfile

ARCHITECTURES = ("sm_80", "sm_90")
MOST_SHARED = 16 * 1024  # bytes per block
REGISTERS = collections.defaultdict(lambda: 48, {"attention": 80, "pool": 80, "batch_norm": 64})  # per thread, by the source's name
KERNELS = {"norm_held": 80, "gradients_held": 128}  # and of kernels that store rows in registers: three blocks, two


def usage(nvcc, source, architecture, includes):
    """{kernel: (registers, spilled bytes, stack bytes, shared bytes)}"""
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc, "-cubin", "-arch=" + architecture, "-std=c++17", "-O3", "-Xptxas", "-v"]
        command += [f"-I{path}" for path in includes] + [source, "-o", os.path.join(folder, "made.cubin")]
        if os.path.basename(source).startswith("codec_"):
            command.append("--fmad=false")
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{source}, {architecture}: {done.stdout[-1000:]}")
    found, name, stack, spilled = {}, None, 0, 0
    for line in done.stdout.splitlines():
        if match := re.search(r"Function properties for (\S+)", line):
            name = match.group(1)
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            stack, spilled = int(match.group(1)), int(match.group(2)) + int(match.group(3))
        elif (match := re.search(r"Used (\d+) registers", line)) and name:
            shared = re.search(r"(\d+) bytes smem", line)
            found[name] = (int(match.group(1)), spilled, stack, int(shared.group(1)) if shared else 0)
    return found


def main(nvcc, includes, sources):
    failures = kernels = 0
    budget = os.environ.get("KERNEL_REGISTERS")  # a budget that a test makes too small
    for source in sources:
        stem = os.path.splitext(os.path.basename(source))[0]
        for architecture in ARCHITECTURES:
            found = usage(nvcc, source, architecture, includes)
            if not found:
                sys.exit(f"{source}, {architecture}: found no kernel in what ptxas says")
            kernels += len(found)
            most = int(budget) if budget else REGISTERS[stem]
            for name, (registers, spilled, stack, shared) in sorted(found.items()):
                held = max((value for part, value in KERNELS.items() if part in name), default=0)
                if registers > (most if budget else max(most, held)) or spilled > 0 or shared > MOST_SHARED:
                    failures += 1
                    print(f"FAIL {architecture} {name}: {registers} registers (budget {most}), {spilled} bytes "
                          f"spilled, {shared} bytes shared")
            top = max(found.values())
            print(f"ok   {stem} {architecture}: {len(found)} kernels, at most {top[0]} registers, "
                  f"{max(row[3] for row in found.values())} bytes static shared", flush=True)
    print(f"{kernels} kernels, {failures} failed")
    return failures > 0


if __name__ == "__main__":
    cut = sys.argv.index("--")
    sys.exit(main(sys.argv[1], sys.argv[2:cut], sys.argv[cut + 1 :]))
