# SPDX-License-Identifier: BSD-2-Clause
"""How long `heapline holders` takes with a large heap of linked blocks, and in how much memory."""

import json
import os
import subprocess
from dataclasses import dataclass

from figure import MIB, Figure
from workloads import RunFailed

BLOCKS = 11_000_000
ROUNDS = 3
MAX_S = 12
BLOCK_BYTES, EDGE_BYTES, OWN_BYTES = 44, 8, 64 * MIB


@dataclass
class HoldersRun:
    """The fastest of ROUNDS: processor time, memory of heapline, and what it may have."""

    seconds: float
    resident: int
    allowed: int


def run_once(heapline, pid):
    with subprocess.Popen([heapline, "holders", "-p", str(pid), "--json"],
                          stdout=subprocess.PIPE) as holders:
        report = json.load(holders.stdout)
        _, status, usage = os.wait4(holders.pid, 0)
        holders.returncode = os.waitstatus_to_exitcode(status)
    if holders.returncode:
        raise RunFailed("heapline holders failed")
    total = report["total"]
    allowed = total["live_blocks"] * BLOCK_BYTES + total["edges"] * EDGE_BYTES + OWN_BYTES
    return HoldersRun(usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10, allowed)


def measure_holders(machine, heapline):
    blocks, rounds = (20000, 1) if machine.small else (BLOCKS, ROUNDS)
    with subprocess.Popen([machine.build / "bench" / "linked_blocks", str(blocks), "random"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as target:
        if target.stdout.readline() != "ready\n":
            raise RunFailed("linked_blocks ended early")
        runs = [run_once(heapline, target.pid) for _ in range(rounds)]
        target.stdin.close()
    return min(runs, key=lambda run: run.seconds)


def holders_figures(run):
    time = Figure("`holders`: 11 million blocks, linked at random", f"{MAX_S} s")
    memory = Figure("`holders`: memory of heapline",
                    f"{BLOCK_BYTES} bytes a block, {EDGE_BYTES} an edge and 64 MiB")
    if run:
        time.measured, time.met = f"{run.seconds:.1f} s", run.seconds <= MAX_S
        memory.measured = f"{run.resident / MIB:.0f} MiB of {run.allowed / MIB:.0f}"
        memory.met = run.resident <= run.allowed
    return [time, memory]
