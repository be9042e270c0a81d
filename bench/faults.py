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
from stacks import DEPTH, DETACH_MAX_MS, FRAMES, Watcher
from workloads import RunFailed

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


class Touches:
    """The program that touches pages."""

    def __init__(self, machine):
        self.pages = 512 if machine.small else 16384
        self.rounds = 2 if machine.small else 15
        self.process = subprocess.Popen([machine.build / "bench" / "page_touches", str(DEPTH)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def tell(self, number):
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def fastest_ns(self):
        return min(float(self.tell(self.pages)) for _ in range(self.rounds))


def watchers(heapline, pid):
    """By tool: its command, the stream where it says that it is ready, and how."""
    ours = "stderr", "watching page faults"
    return {
        PGFAULT: ([heapline, "pgfault", "-p", pid, "--verbose", "--folded"], *ours),
        EVENTS: ([heapline, "page-events", "-p", pid, "--verbose", "--folded"], *ours),
        BPFTRACE: ([shutil.which("bpftrace"), "-p", pid, "-e", BPFTRACE_SCRIPT], "stdout", "on"),
    }


def measure_tool(cost, tool, watcher, touches):
    command, stream, ready = watcher
    if not command[0]:
        cost.absent[tool] = "not installed"
        return
    try:
        with Watcher(command, stream, ready) as running:
            cost.added_ns[tool] = touches.fastest_ns() - cost.base_ns
            said = running.stop()
    except RunFailed as problem:
        cost.absent[tool] = str(problem)
        return
    if tool == PGFAULT:
        lost = re.search(r"LOST: ([\d,]+) events", said)
        cost.lost = int(lost[1].replace(",", "")) if lost else 0


def measure_snapshot(cost, heapline, machine):
    """As the tool says it; the fastest of a few."""
    took = []
    with Touches(machine) as touches:
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
    with Touches(machine) as touches:
        cost = FaultsCost(touches.fastest_ns())
        for tool, watcher in watchers(heapline, touches.process.pid).items():
            measure_tool(cost, tool, watcher, touches)
        cost.base_ns = min(cost.base_ns, touches.fastest_ns())
    measure_snapshot(cost, heapline, machine)
    return cost


def added_figure(cost, tool, limit_ns=None):
    figure = Figure(f"`{tool}`: time added per page fault at {FRAMES} frames",
                    f"at most {limit_ns} ns" if limit_ns else "")
    if cost and tool in cost.added_ns:
        figure.measured = f"{cost.added_ns[tool]:.0f} ns on {cost.base_ns:.0f}"
        figure.met = cost.added_ns[tool] <= limit_ns if limit_ns else None
    elif cost:
        figure.measured = cost.absent.get(tool, figure.measured)
    return figure


def faults_figures(cost):
    detach = Figure(f"`{PGFAULT}`: probes taken away", f"in {DETACH_MAX_MS} ms")
    snapshot = Figure(f"`{PGFAULT}`: 1 GiB of pages of 4 KiB looked at, and Rss read", "")
    if cost and cost.snapshot_ms is not None:
        snapshot.measured = f"{cost.snapshot_ms:.1f} ms"
        detach.measured, detach.met = f"{cost.detach_ms:.0f} ms", cost.detach_ms <= DETACH_MAX_MS
    return [added_figure(cost, PGFAULT, ADDED_MAX_NS), added_figure(cost, EVENTS),
            added_figure(cost, BPFTRACE), detach, snapshot]
