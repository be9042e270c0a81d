# SPDX-License-Identifier: BSD-2-Clause
"""What libheapline-tags.so costs: time for a malloc and a free, and bytes of the heap."""

import json
import os
import re
import subprocess
from dataclasses import dataclass

from figure import Figure
from workloads import RunFailed

ADDED_MAX_NS = 2
HEAP_MAX_PERCENT = 5
ROUNDS = 15
PAIRS = 2000000
DEPTH = 12
ALLOCATORS = ("pymalloc", "malloc")
# Strings of many lengths, as programs keep them.
KEEPS = """
import sys
sys.path.insert(0, sys.argv[1])
import json_workload
documents = json_workload.build_documents(int(sys.argv[2]))
texts = json_workload.encode_documents(documents)
print("ready", flush=True)
sys.stdin.read()
"""


@dataclass
class TagsCost:
    """Fastest rounds, plain and with the library by turns."""

    plain_ns: float
    tagged_ns: float
    # By PYTHONMALLOC: bytes of chunks in use, with what the allocator keeps beside the blocks.
    plain_bytes: dict
    tagged_bytes: dict


def pair_ns(machine, prefix):
    pairs = 20000 if machine.small else PAIRS
    said = subprocess.run([*prefix, machine.build / "bench" / "alloc_ring", str(DEPTH), "1",
                           str(pairs)], check=True, capture_output=True, text=True).stdout
    return float(re.search(r"ns_per_pair=([\d.]+)", said)[1])


def heap_bytes(machine, heapline, prefix, allocator):
    """Of a python3 that keeps documents: live blocks with their headers."""
    demo = machine.build.parent / "demo"
    count = "500" if machine.small else "20000"
    with subprocess.Popen([*prefix, "/usr/bin/python3", "-c", KEEPS, demo, count],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env=dict(os.environ, PYTHONMALLOC=allocator)) as python:
        if python.stdout.readline() != "ready\n":
            raise RunFailed("python3 ended early")
        report = json.loads(subprocess.run([heapline, "heap", "--json", "-p", str(python.pid)],
                                           check=True, capture_output=True, text=True).stdout)
        python.stdin.close()
    total = report["total"]
    return total["inuse_bytes"] + 8 * total["inuse_blocks"] + total["mmapped_bytes"]


def measure_tags(machine, heapline):
    tagged = [heapline, "record", "--tags", "--"]
    rounds = 2 if machine.small else ROUNDS
    times = [(pair_ns(machine, []), pair_ns(machine, tagged)) for _ in range(rounds)]
    heaps = [{allocator: heap_bytes(machine, heapline, prefix, allocator)
              for allocator in ALLOCATORS} for prefix in ([], tagged)]
    return TagsCost(min(plain for plain, _ in times), min(with_tags for _, with_tags in times),
                    *heaps)


def heap_figure(cost, allocator, what, bar=""):
    figure = Figure(f"tag shim: heap of python3 with JSON documents, {what}", bar)
    if cost:
        percent = 100 * (cost.tagged_bytes[allocator] / cost.plain_bytes[allocator] - 1)
        figure.measured = f"{percent:.1f} %"
        figure.met = percent <= HEAP_MAX_PERCENT if bar else None
    return figure


def tags_figures(cost):
    pair = Figure(f"tag shim: time added per malloc+free pair, alloc ring at {DEPTH} frames",
                  f"at most {ADDED_MAX_NS} ns")
    if cost:
        added = cost.tagged_ns - cost.plain_ns
        pair.measured, pair.met = f"{added:.2f} ns on {cost.plain_ns:.1f}", added <= ADDED_MAX_NS
    return [pair, heap_figure(cost, "pymalloc", "as it is", f"at most {HEAP_MAX_PERCENT} % more"),
            heap_figure(cost, "malloc", "every object a malloc, 70 bytes on average")]
