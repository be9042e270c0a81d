# SPDX-License-Identifier: BSD-2-Clause
"""How long `heapline heap` takes to read a large heap of small blocks, and what that changes in it."""

import re
import subprocess
from dataclasses import dataclass

from figure import Figure
from workloads import RunFailed

BLOCKS = 11_200_000  # 1 GiB
ROUNDS = 10
ROOTS_MAX_US = 1000
WALK_MAX_MS = 500


@dataclass
class HeapWalk:
    """The fastest of ROUNDS in processor time, and memory of the process that was read, in KiB."""

    roots_us: float
    walk_ms: float
    chunks: int
    bytes: int
    before: dict
    after: dict


def memory_of(pid):
    """Pages and page tables."""
    found = {}
    for name in "smaps_rollup", "status":
        with open(f"/proc/{pid}/{name}", encoding="ascii") as file:
            found |= dict(re.findall(r"^(Rss|VmPTE|VmSwap):\s+(\d+) kB$", file.read(), re.M))
    return found


def measure_heap(machine):
    blocks, rounds = (20000, 2) if machine.small else (BLOCKS, ROUNDS)
    with subprocess.Popen([machine.build / "bench" / "small_blocks", str(blocks)],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as target:
        if target.stdout.readline() != "ready\n":
            raise RunFailed("small_blocks ended early")
        before = memory_of(target.pid)
        said = subprocess.run([machine.build / "bench" / "micro" / "heap_bench", str(target.pid),
                               str(rounds)], check=True, capture_output=True, text=True).stdout
        after = memory_of(target.pid)
        target.stdin.close()
    number = dict(re.findall(r"(\w+)=([\d.]+)", said))
    return HeapWalk(float(number["roots_us"]), float(number["walk_ms"]), int(number["chunks"]),
                    int(number["system_bytes"]), before, after)


def heap_figures(walk):
    roots = Figure("`heap`: roots of a stripped glibc found", "under 1 ms")
    time = Figure("`heap`: 1 GiB of small blocks walked", "under 0.5 s")
    change = Figure("`heap`: Rss and page tables of the program that is read", "unchanged")
    if walk:
        roots.measured, roots.met = f"{walk.roots_us / 1000:.2f} ms", walk.roots_us < ROOTS_MAX_US
        time.measured = (f"{walk.walk_ms / 1000:.3f} s: {walk.chunks / 1e6:.1f} million chunks in "
                         f"{walk.bytes >> 20} MiB")
        time.met = walk.walk_ms < WALK_MAX_MS
        change.met = walk.before == walk.after
        change.measured = "unchanged" if change.met else f"{walk.before}, then {walk.after}"
    return [roots, time, change]
