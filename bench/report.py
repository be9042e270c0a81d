# SPDX-License-Identifier: BSD-2-Clause
"""Turns measurements into tables."""

import datetime
import os
import platform
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from bars import figures
from faults import FaultsCost
from figure import MIB
from heap import HeapWalk
from join import Joined
from logs import Logs
from lua import LuaCost
from stacks import StacksCost
from tags import TagsCost
from views import Views


@dataclass
class Results:
    """Everything one run of the benchmarks measured."""

    repeat: int
    cases: dict = field(default_factory=dict)  # title -> (case, {tool name: series})
    skipped: dict = field(default_factory=dict)  # title -> why
    footprints: list = field(default_factory=list)
    table: list = field(default_factory=list)  # of Figure
    symbols: list = field(default_factory=list)  # lines of symbols_bench
    views: Views = None
    logs: Logs = None
    events: list = field(default_factory=list)  # of EventRun
    stacks: StacksCost = None
    faults: FaultsCost = None
    lua: LuaCost = None
    tags: TagsCost = None
    heap: HeapWalk = None
    join: Joined = None
    leaks: dict = None
    fleet: object = None
    holders: object = None
    load_before: tuple = field(default_factory=os.getloadavg)

    def add(self, case, table):
        self.cases[case.title] = (case, table)

    def series(self, title, tool):
        """The series if it was measured, else None."""
        case_and_table = self.cases.get(title)
        series = case_and_table[1].get(tool) if case_and_table else None
        return series if series and series.runs else None

    def cpu(self, title, tool):
        """The least processor time of the rounds, None if it was not measured."""
        series = self.series(title, tool)
        return series.cpu if series else None


def number(value):
    """Three significant digits, without an exponent."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def rows_of(case, table, tools):
    """Cells under HEADINGS, as text, for each tool."""
    for tool in tools:
        if tool.name not in table:
            continue
        series, base = table[tool.name], table[tool.baseline]
        if not series.runs:
            yield tool.name, "-", "-", "-", "-", "-", series.failure or "not measured"
            continue
        compared = ["-", "-", "-"]
        if tool.name != tool.baseline and base.runs:
            compared = [ratio(series.cpu, base.cpu), number_with_sign(series.cpu - base.cpu),
                        ratio(series.wall, base.wall)]
        yield (tool.name, number(series.cpu), number(series.cpu_median), *compared[:2],
               number(series.wall), compared[2])


def ratio(value, base):
    return f"{value / base:.2f}" if base else "-"


def number_with_sign(value):
    return ("+" if value >= 0 else "-") + number(abs(value))


HEADINGS = ("tool", "CPU, least", "CPU, median", "ratio", "added", "time, median", "ratio of times")


def terminal_table(case, table, tools):
    rows = [HEADINGS, *rows_of(case, table, tools)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = [f"\n{case.title} ({case.unit})"]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        lines.append("  ".join(cells))
    return "\n".join(lines)


def markdown_table(headings, rows):
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def first_line(command):
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return "not there"
    return said.splitlines()[0] if said else "unknown"


def machine_rows(results):
    info = Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*: (.*)", info)
    memory = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())
    release = Path("/etc/os-release").read_text()
    system = re.search(r'PRETTY_NAME="(.*)"', release)
    return [
        ("processor", f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores"),
        ("memory", f"{int(memory[1]) // MIB} GiB"),
        ("kernel", platform.release()),
        ("system", f"{system[1] if system else 'unknown'}, {' '.join(platform.libc_ver())}"),
        ("compiler", first_line(["gcc", "--version"])),
        ("load before", f"{results.load_before[0]:.2f}"),
    ]


def document(results, tools):
    """docs/benchmarks.md."""
    bars = figures(results)
    missed = [figure.what for figure in bars if figure.met is False]
    decided = [figure for figure in bars if figure.met is not None]
    unmeasured = [figure.what for figure in bars if figure.met is None]
    parts = [
        "# Benchmarks",
        "Written by `make bench`; do not edit. All numbers come from one run on one machine, "
        f"{datetime.date.today().isoformat()}: for each case one run of each tool that does not "
        f"count, then {results.repeat} interleaved rounds. Ratios compare with the same program on "
        "the same allocator without the tool, the first by the least processor time of all rounds, "
        "the tool's own processes included; `added` is the difference of the two.",
        markdown_table(("machine", ""), machine_rows(results)),
        "## Figures to reach",
        markdown_table(("what", "bar", "measured", "met"), [figure.row() for figure in bars]),
        f"{len(decided) - len(missed)} of {len(decided)} figures that were measured met their bar. "
        "Missed: " + ("; ".join(missed) if missed else "none of them") + ".",
    ]
    if unmeasured:
        parts.append("Not decided by this run: " + "; ".join(unmeasured) + ".")
    parts.append("## What was measured")
    for case, table in results.cases.values():
        parts += [f"### {case.title}", f"In {case.unit}; less is better.",
                  markdown_table(HEADINGS, rows_of(case, table, tools))]
    if results.skipped:
        parts.append("## Not run")
        parts.append(markdown_table(("what", "why"), results.skipped.items()))
    parts.append(HOW)
    return "\n\n".join(parts) + "\n"


HOW = """## How to read this

- *alloc ring* (`bench/alloc_ring.c`): a malloc+free pair of 16 to 271 bytes with 1,024 live blocks, \
from 256 stacks whose innermost frames change from pair to pair: 3 to 6, or as many as the title says. \
Its processor time is that of its own threads.
- *closed* passes every call through: the price of having the recorder in place.
- *heaptrack --raw* leaves interpretation out; its compressor runs on the other core.
- *gperftools HEAPPROFILE* records every call, *jemalloc prof* one sample in 512 KiB: compare the \
latter with `--sample 512K`. A tool that needs more than 12 times the plain time is not waited for.
- *redis-server* of Debian allocates with jemalloc; plain is that. Its processor time, and that of \
postgres with all its processes, is what the server and the tool used from start to end.
- *valgrind DHAT* counts each access to a block as well, on a processor that valgrind imitates.
- *php-memprof*: what `bench/memprof.sh` built, without the dump that it writes on demand.
- *mimalloc-bench*: programs that `bench/mimalloc_bench.sh` built; those of a fixed duration show what \
a million operations took.
- *Short programs*: means of 20 runs, of the shell 2, a recorder's start and its saving included.
- The recorder's memory is the largest resident size of the target with the recorder, shared pages \
included, less that without it. The heap is the resident part of the heap segment without it.
- Views (`bench/views.py`): the fastest of 5 runs. The million stack nodes are made up; a program \
of many templates stands for those with debug information, and its first `top` finds no kept names. \
How long a page takes is its own mark, from the start of loading, each time in a browser with a fresh \
profile.
- Logs (`bench/logs.py`): medians of 3 runs. Events drained of a program are its mallocs and frees \
over the processor time of the thread that drains its rings, which wakes 1,000 times a second and \
writes the log as well; those without a program (`bench/micro/drain_bench.c`) fill a ring over and \
over. The collector's memory counts pages that it shares with the program. The day \
(`bench/micro/day_of_log.c`) is made up: about 50 of 4,000 nodes change in each interval.
- Events (`bench/events.py`): `events` decodes and counts them all, `--replay` also compares them \
with the log. heaptrack_print, which does more than to count, reads files that \
`heaptrack_interpret` made, unpacked; where it gives up there is no figure.
- Stacks (`bench/stacks.py`): one process makes pairs before and while a tool looks on; the fastest \
of 9 rounds, in processor time of that process, and the difference of the two. It is built with frame \
pointers, which the other tools need. The bpftrace script keeps stack and size of each live block, as \
heapline does; its probes sit at the first instruction of functions. The million blocks are made while \
the trace runs, and kept.
- Page faults (`bench/faults.py`): one process touches 16,384 fresh pages before and while a tool \
looks on; the fastest of 15 rounds, in processor time of that process, and the difference of the two. \
The bpftrace script counts the faults of each stack, which it walks by frame pointers.
- Scripts of Lua (`bench/lua.py`): lua5.4 makes tables below 10 and below 60 calls, in turns with each tool; the fastest of \
25 rounds, in processor time of the script. A frame costs a fiftieth of what the difference of the two depths grows by. \
The growth is that of RSS, less that of the plain run.
- Heap walks (`bench/heap.py`): the fastest of 10 rounds, in processor time of the tool, on a program \
that is stopped.
- Joining (`bench/join.py`): a process is entered and left again and again; how long all its threads were stopped is \
measured from the first stop to the last go. After each cycle the counts are compared with the program's own. The pair \
is that of the part about stacks, under `record` and under `attach`.
- Holders (`bench/holders.py`): the fastest of 3 rounds, in processor time of the tool.
- Lost blocks (`bench/leaks.py`): the fastest of 3 rounds, in processor time of the tool; with `--stop` the \
least wall time that the target was stopped."""
