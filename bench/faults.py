# SPDX-License-Identifier: BSD-2-Clause
"""What `heapline pgfault` and `page-events` cost the program that they look at, beside bpftrace.

One process touches fresh pages again and again; what a touch costs more while a tool looks on is
what the tool costs. Fastest of several rounds, in processor time of the process. And what it takes
to compare the pages of a large process.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass, field

from figure import Figure
from stacks import DETACH_MAX_MS, Load, added_figure, measure_tool

PGFAULT = "heapline pgfault"
EVENTS = "heapline page-events"
BPFTRACE = "bpftrace one-liner"
BPFTRACE_SCRIPT = "software:page-faults:1 { @[ustack] = count(); } interval:ms:200 { printf(\"on\\n\"); }"

ADDED_MAX_NS = 3000
KEPT_PAGES = 1 << 18  # 1 GiB


@dataclass
class FaultsCost:
    """Nanoseconds of processor time for the first touch of a page."""

    base_ns: float
    added_ns: dict = field(default_factory=dict)  # by tool
    absent: dict = field(default_factory=dict)  # tool -> why
    lost: int = None  # faults without a record, of PGFAULT
    snapshot_ms: float = None  # of KEPT_PAGES
    detach_ms: float = None


def touches_of(machine):
    return Load(machine, "page_touches", 512 if machine.small else 16384, 15)


def watchers(heapline, pid):
    """By tool: its command, the stream where it says that it is ready, and how."""
    ours = "stderr", "watching page faults"
    return {
        PGFAULT: ([heapline, "pgfault", "-p", pid, "--verbose", "--folded"], *ours),
        EVENTS: ([heapline, "page-events", "-p", pid, "--verbose", "--folded"], *ours),
        BPFTRACE: ([shutil.which("bpftrace"), "-p", pid, "-e", BPFTRACE_SCRIPT], "stdout", "on"),
    }


def measure_snapshot(cost, heapline, machine):
    """As the tool says it; the fastest of a few."""
    took = []
    with touches_of(machine) as touches:
        touches.tell(-(512 if machine.small else KEPT_PAGES))
        for _ in range(touches.rounds):
            result = subprocess.run([str(word) for word in (
                heapline, "pgfault", "-p", touches.process.pid, "--verbose", "0.01")],
                check=True, capture_output=True, text=True)
            took.append(re.search(r"looked at \d+ pages in ([\d.]+) ms; detached in (\d+) ms",
                                  result.stderr))
    cost.snapshot_ms = min(float(said[1]) for said in took)
    cost.detach_ms = min(float(said[2]) for said in took)


def measure_faults(machine, heapline):
    with touches_of(machine) as touches:
        cost = FaultsCost(touches.fastest_ns())
        for tool, watcher in watchers(heapline, touches.process.pid).items():
            said = measure_tool(cost, tool, watcher, touches)
            if tool == PGFAULT and said is not None:
                lost = re.search(r"LOST: ([\d,]+) events", said)
                cost.lost = int(lost[1].replace(",", "")) if lost else 0
        cost.base_ns = min(cost.base_ns, touches.fastest_ns())
    measure_snapshot(cost, heapline, machine)
    return cost


def faults_figures(cost):
    detach = Figure(f"`{PGFAULT}`: probes taken away", f"in {DETACH_MAX_MS} ms")
    snapshot = Figure(f"`{PGFAULT}`: 1 GiB of pages of 4 KiB looked at, and Rss read", "")
    if cost and cost.snapshot_ms is not None:
        snapshot.measured = f"{cost.snapshot_ms:.1f} ms"
        detach.measured, detach.met = f"{cost.detach_ms:.0f} ms", cost.detach_ms <= DETACH_MAX_MS
    return [added_figure(cost, PGFAULT, "page fault", ADDED_MAX_NS),
            added_figure(cost, EVENTS, "page fault"), added_figure(cost, BPFTRACE, "page fault"),
            detach, snapshot]
