# SPDX-License-Identifier: BSD-2-Clause
"""What `heapline stacks` costs the program that it looks at, beside other tools that do it by BPF.

One process makes pairs of malloc and free again and again; what a pair costs more while a tool
looks on is what the tool costs. Fastest of several rounds, in processor time of the process.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field

from figure import MIB, Figure
from workloads import RunFailed

LIBC = "/lib/x86_64-linux-gnu/libc.so.6"
DEPTH = 15  # and five frames around it
FRAMES = 20
MANY_BLOCKS = 1_000_000
SAMPLE_BYTES = 512 << 10

FULL = "heapline stacks"
ALL = "heapline stacks --all"
SAMPLED = "heapline stacks --sample 512K"
MEMLEAK = "memleak-bpfcc"
BPFTRACE = "bpftrace script"

BPFTRACE_SCRIPT = """
uprobe:LIBC:malloc { @size[tid] = arg0; }
uretprobe:LIBC:malloc /@size[tid]/ {
    @stacks[retval] = ustack; @bytes[retval] = @size[tid]; delete(@size[tid]); }
uprobe:LIBC:free { delete(@stacks[arg0]); delete(@bytes[arg0]); }
interval:ms:200 { printf("running\\n"); }
""".replace("LIBC", LIBC)

FULL_MAX_NS, SAMPLED_MAX_NS, DETACH_MAX_MS = 4000, 1300, 100


@dataclass
class StacksCost:
    """Nanoseconds of processor time for each pair of malloc and free."""

    base_ns: float
    added_ns: dict = field(default_factory=dict)  # by tool
    absent: dict = field(default_factory=dict)  # tool -> why
    detach_ms: float = None
    many_blocks_ns: float = None  # added, while MANY_BLOCKS blocks are kept
    many_blocks_bytes: int = None  # of the kernel's memory
    many_blocks_lost: int = None


class Load:
    """A program that does one thing again and again, and says how long each took."""

    def __init__(self, machine, program, times, rounds, wrapper=()):
        self.times = times
        self.rounds = 2 if machine.small else rounds
        self.process = subprocess.Popen([*wrapper, machine.build / "bench" / program, str(DEPTH)],
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
        return min(float(self.tell(self.times)) for _ in range(self.rounds))


def pairs_of(machine):
    return Load(machine, "alloc_pairs", 2000 if machine.small else 100_000, 9)


class Watcher:
    """A tool that looks at a process from when it says so until it is interrupted."""

    def __init__(self, command, stream, ready):
        rest = tempfile.TemporaryFile("w+")  # what it says elsewhere
        streams = {"stdout": rest, "stderr": rest, stream: subprocess.PIPE}
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                        text=True, **streams,
                                        env={**os.environ, "PYTHONUNBUFFERED": "1"})
        self.stream = getattr(self.process, stream)
        for line in self.stream:
            if re.search(ready, line):
                return
        self.process.wait()
        rest.seek(0)
        last = (rest.read().strip().splitlines() or ["no message"])[-1]
        raise RunFailed(f"ends before it looks at anything: {last}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        said = self.stream.read()
        self.process.wait()
        return said


def heapline_command(heapline, pid, *options):
    return [heapline, "stacks", "-p", pid, "--verbose", "--max-overhead", "100000", "--folded",
            *options]


def watchers(heapline, pid):
    """By tool: its command, the stream where it says that it is ready, and how."""
    ours = "stderr", "counting, by"
    return {
        FULL: (heapline_command(heapline, pid), *ours),
        ALL: (heapline_command(heapline, pid, "--all"), *ours),
        SAMPLED: (heapline_command(heapline, pid, "--sample", SAMPLE_BYTES), *ours),
        # It prints its first table when all probes have been there for a second.
        MEMLEAK: ([shutil.which("memleak-bpfcc"), "-p", pid, "1"], "stdout",
                  "Top .* stacks"),
        # Probes are set in the order of the script.
        BPFTRACE: ([shutil.which("bpftrace"), "-p", pid, "-e", BPFTRACE_SCRIPT], "stdout",
                   "running"),
    }


def measure_tool(cost, tool, watcher, load):
    """What TOOL adds to a round of LOAD; returns what it said, None where it could not run."""
    command, stream, ready = watcher
    if not command[0]:
        cost.absent[tool] = "not installed"
        return None
    try:
        with Watcher(command, stream, ready) as running:
            cost.added_ns[tool] = load.fastest_ns() - cost.base_ns
            return running.stop()
    except RunFailed as problem:
        cost.absent[tool] = str(problem)
        return None


def measure_many_blocks(cost, heapline, machine):
    """The same while the table holds a million blocks more."""
    kept = 1000 if machine.small else MANY_BLOCKS
    recording = machine.scratch / "many.hl"
    with pairs_of(machine) as pairs:
        base_ns = pairs.fastest_ns()
        command = [*heapline_command(heapline, pairs.process.pid), "-o", recording]
        with Watcher(command, "stderr", "counting, by") as running:
            pairs.tell(-kept)
            cost.many_blocks_ns = pairs.fastest_ns() - base_ns
            running.stop()
    info = json.loads(subprocess.run([heapline, "info", "--json", recording], check=True,
                                     capture_output=True, text=True).stdout)
    cost.many_blocks_bytes = info["total"]["table_memory_bytes"]
    cost.many_blocks_lost = info["lost"]["events"]
    shutil.rmtree(recording)


def measure_stacks(machine, heapline):
    with pairs_of(machine) as pairs:
        cost = StacksCost(pairs.fastest_ns())
        for tool, watcher in watchers(heapline, pairs.process.pid).items():
            said = measure_tool(cost, tool, watcher, pairs)
            detached = re.search(r"detached in (\d+) ms", said or "")
            if tool == FULL and detached:
                cost.detach_ms = float(detached[1])
    measure_many_blocks(cost, heapline, machine)
    return cost


def added_figure(cost, tool, what, limit_ns=None):
    figure = Figure(f"`{tool}`: time added per {what} at {FRAMES} frames",
                    f"at most {limit_ns} ns" if limit_ns else "")
    if cost and tool in cost.added_ns:
        figure.measured = f"{cost.added_ns[tool]:.0f} ns on {cost.base_ns:.0f}"
        figure.met = cost.added_ns[tool] <= limit_ns if limit_ns else None
    elif cost:
        figure.measured = cost.absent.get(tool, figure.measured)
    return figure


def rival_figure(cost):
    rivals = [tool for tool in (MEMLEAK, BPFTRACE) if cost and tool in cost.added_ns]
    figure = Figure(f"`{FULL}` against {' and '.join(rivals) or f'{MEMLEAK} or {BPFTRACE}'}",
                    "at most half")
    if rivals and FULL in cost.added_ns:
        least = min(cost.added_ns[tool] for tool in rivals)
        figure.measured = f"{cost.added_ns[FULL] / least:.2f} ({least:.0f} ns)"
        figure.met = cost.added_ns[FULL] * 2 <= least
    return figure


def stacks_figures(cost):
    detach = Figure(f"`{FULL}`: probes taken away", f"in {DETACH_MAX_MS} ms")
    many = Figure(f"`{FULL}`: {MANY_BLOCKS:,} live blocks", "no loss")
    if cost and cost.detach_ms is not None:
        detach.measured, detach.met = f"{cost.detach_ms:.0f} ms", cost.detach_ms <= DETACH_MAX_MS
    if cost:
        many.measured = (f"{cost.many_blocks_lost} lost; {cost.many_blocks_bytes / MIB:.0f} MiB of "
                         f"the kernel's memory; {cost.many_blocks_ns:.0f} ns a pair")
        many.met = cost.many_blocks_lost == 0
    pair = "malloc+free pair"
    return [added_figure(cost, FULL, pair, FULL_MAX_NS),
            added_figure(cost, SAMPLED, pair, SAMPLED_MAX_NS), added_figure(cost, ALL, pair),
            rival_figure(cost), detach, many]
