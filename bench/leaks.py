# SPDX-License-Identifier: BSD-2-Clause
"""How long `heapline leaks` takes with a large heap of linked blocks, and in how much memory."""

import json
import os
import subprocess
import time
from dataclasses import dataclass

from figure import MIB, Figure
from workloads import RunFailed

BLOCKS = 11_000_000
ROUNDS = 3
PASS_MAX_S = {"order": 1.2, "random": 2.5}  # kind of linked_blocks
STOP_KIND = "lost"  # blocks that are lost are looked for once more while all threads are stopped
STOPPED_MAX_S = 0.4  # a GiB
CONVERGED_MAX_S = 2.8  # two processors
HEAP_SHARE_MAX, OWN_MAX = 0.03, 64 * MIB


@dataclass
class LeaksRun:
    """Processor time of a pass and of all, time from the command to its end, bytes of the heap and of
    heapline, how long all threads stood."""

    pass_s: float
    all_s: float
    elapsed_s: float
    passes: int
    heap: int
    resident: int
    stopped_s: float = 0


def run_once(heapline, pid, *options):
    """One report, the processor time and the time that it took, and how large heapline was."""
    start = time.monotonic()
    with subprocess.Popen([heapline, "leaks", "-p", str(pid), "--json", *options],
                          stdout=subprocess.PIPE) as leaks:
        report = json.load(leaks.stdout)
        _, status, usage = os.wait4(leaks.pid, 0)
        leaks.returncode = os.waitstatus_to_exitcode(status)
    if leaks.returncode:
        raise RunFailed("heapline leaks failed")
    elapsed = time.monotonic() - start
    return report["total"], usage.ru_utime + usage.ru_stime, elapsed, usage.ru_maxrss << 10


def measure_links(machine, heapline, kind, *options):
    """What each round took."""
    blocks, rounds = (20000, 1) if machine.small else (BLOCKS, ROUNDS)
    runs = []
    with subprocess.Popen([machine.build / "bench" / "linked_blocks", str(blocks), kind],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as target:
        if target.stdout.readline() != "ready\n":
            raise RunFailed("linked_blocks ended early")
        for _ in range(rounds):
            total, seconds, elapsed, resident = run_once(heapline, target.pid, *options)
            runs.append(LeaksRun(seconds / total["passes"], seconds, elapsed, total["passes"],
                                 total["live_bytes"], resident, total["stopped_us"] / 1e6))
        target.stdin.close()
    return runs


def measure_leaks(machine, heapline):
    runs = {kind: min(measure_links(machine, heapline, kind), key=lambda run: run.pass_s)
            for kind in PASS_MAX_S}
    stopped = measure_links(machine, heapline, STOP_KIND, "--stop")
    runs[STOP_KIND] = min(stopped, key=lambda run: run.stopped_s)
    runs["converged"] = min(measure_links(machine, heapline, STOP_KIND), key=lambda run: run.elapsed_s)
    return runs


def leaks_figures(runs):
    figures = []
    for kind, limit in PASS_MAX_S.items():
        words = "linked in order" if kind == "order" else "linked at random"
        figure = Figure(f"`leaks`: one pass over 11 million blocks, {words}", f"{limit} s of processor time")
        if runs:
            figure.measured = (f"{runs[kind].pass_s:.2f} s of processor time, "
                               f"{runs[kind].elapsed_s:.2f} s in all")
            figure.met = runs[kind].pass_s <= limit
        figures.append(figure)
    converged = Figure("`leaks`: all passes over 11 million blocks, linked at random, every 1,000th lost",
                       f"{CONVERGED_MAX_S} s")
    memory = Figure("`leaks`: memory of heapline", "3 % of the heap and 64 MiB")
    stopped = Figure("`leaks --stop`: all threads are stopped", f"{STOPPED_MAX_S} s a GiB")
    if runs:
        run = runs["converged"]
        converged.measured = (f"{run.elapsed_s:.2f} s, {run.all_s:.2f} s of processor time, "
                              f"{run.passes} passes")
        converged.met = run.elapsed_s <= CONVERGED_MAX_S
        run = runs["random"]
        memory.measured = f"{run.resident / MIB:.0f} MiB for {run.heap / MIB:.0f} MiB"
        memory.met = run.resident <= HEAP_SHARE_MAX * run.heap + OWN_MAX
        run = runs[STOP_KIND]
        a_gib = run.stopped_s * (1 << 30) / run.heap
        stopped.measured, stopped.met = f"{a_gib:.2f} s a GiB", a_gib <= STOPPED_MAX_S
    return [*figures, converged, memory, stopped]
