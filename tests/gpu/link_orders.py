#!/usr/bin/env python3
"""Seeded orders of completion of every plan of gpu_links.c on emulated devices, as a table.

usage: link_orders.py BUILD [--orders 1000] [--jobs 2] [TEXT ...]

A plan is tried whose name has one of the texts, or any if there is none. Of each: how many runs there were, how long
they took, by the clock and of processors, in how many different orders operations began on the devices, in how many
different ones kernels of the link began and ended, and whether all went well: no deadlock, no broken rule, gradients and losses those of the CPU backend.
The devices' memory and NCCL's rules are watched as in the tests (docs/guides/train-on-gpus.md). Exit status: 0 all went well, else 1.
"""
import argparse
import concurrent.futures
import datetime
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def plans():
    with open(os.path.join(HERE, "gpu_links.c")) as file:
        return re.findall(r'^    \{"(link [^"]*)"', file.read(), re.M)


def measure(build, plan, orders):
    tests = os.path.join(build, "tests")
    environment = dict(os.environ, TRAINYARD_DATA=os.path.dirname(os.path.dirname(HERE)),
                       TRAINYARD_CUDA_PLUGIN=os.path.join(tests, "libtrainyard_cuda_emulated.so"),
                       TRAINYARD_EMULATED_DEVICES="4", TRAINYARD_EMULATED_PATIENCE="30", TRAINYARD_LINK_TABLE="1",
                       TRAINYARD_LINK_ORDERS=str(orders))
    ran = subprocess.run([os.path.join(tests, "gpu_cases"), "--quick", "=" + plan], env=environment, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    found = re.search(r"^orders of %s: (\d+) in ([\d.]+) s, ([\d.]+) s of processors, (\d+) of operations, (\d+) of the link's$" % re.escape(plan),
                      ran.stdout, re.M)
    is_right = ran.returncode == 0 and "FAIL" not in ran.stdout and found and int(found[1]) == orders
    return found.groups() if found else ("0", "-", "-", "-", "-"), is_right, ran.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--orders", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_intermixed_args()
    build = os.path.abspath(arguments.build)
    asked = [p for p in plans() if not arguments.texts or any(t in p for t in arguments.texts)]
    begun, failed, runs, used = time.monotonic(), 0, 0, 0.0
    print("| plan | runs | seconds | of processors | orders of operations | of the link | result |\n"
          "| --- | ---: | ---: | ---: | ---: | ---: | --- |")
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for plan, (row, is_right, said) in zip(asked, pool.map(lambda p: measure(build, p, arguments.orders), asked)):
            print("| %s | %s | %s |" % (plan[len("link "):], " | ".join(row), "ok" if is_right else "FAIL"), flush=True)
            runs += int(row[0])
            used += float(row[2]) if row[2] != "-" else 0
            if not is_right:
                failed += 1
                print(said, file=sys.stderr)
    print("\n%d plans, %d runs, %.0f s in %d processes at once, %.0f s of processors, %s: %d failed" % (
        len(asked), runs, time.monotonic() - begun, arguments.jobs, used, datetime.date.today(), failed))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
