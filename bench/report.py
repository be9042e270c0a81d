# SPDX-License-Identifier: BSD-2-Clause
"""Turns measurements into tables, and says which of the project's bars they meet."""

import datetime
import os
import platform
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tools import HEAPTRACK, MEM_FAST, PLAIN, SAMPLE
from views import Views

MIB = 1 << 20


@dataclass
class Results:
    """Everything one run of the benchmarks measured."""

    repeat: int
    cases: dict = field(default_factory=dict)  # title -> (case, {tool name: series})
    skipped: dict = field(default_factory=dict)  # title -> why
    footprints: list = field(default_factory=list)
    symbols: list = field(default_factory=list)  # lines of symbols_bench
    views: Views = None
    load_before: tuple = field(default_factory=os.getloadavg)

    def add(self, case, table):
        self.cases[case.title] = (case, table)

    def series(self, title, tool):
        """The series if it was measured, else None."""
        case_and_table = self.cases.get(title)
        series = case_and_table[1][tool] if case_and_table else None
        return series if series and series.values else None

    def median(self, title, tool):
        series = self.series(title, tool)
        return series.median if series else None


def number(value):
    """Three significant digits, without an exponent."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def rows_of(case, table, tools):
    """(tool, median, spread, ratio to its baseline, added) as text, for each tool."""
    for tool in tools:
        series = table[tool.name]
        if not series.values:
            yield tool.name, "-", series.failure or "not measured", "-", "-"
            continue
        low, high = min(series.values), max(series.values)
        base = table[tool.baseline]
        ratio = added = "-"
        if tool.name != tool.baseline and base.values:
            ratio = f"{series.median / base.median:.2f}"
            added = number_with_sign(series.median - base.median)
        yield tool.name, number(series.median), f"{number(low)} .. {number(high)}", ratio, added


def number_with_sign(value):
    return ("+" if value >= 0 else "-") + number(abs(value))


HEADINGS = ("tool", "median", "min .. max", "ratio", "added")


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


@dataclass
class Figure:
    """One of the bars that the project set itself."""

    what: str
    bar: str
    measured: str = "not measured"
    met: bool = None

    def row(self):
        verdict = {None: "-", True: "yes", False: "**no**"}[self.met]
        return (self.what, self.bar, self.measured, verdict)


def ring_title(depth, threads):
    return f"alloc ring, {depth} frames, {threads} thread{'s' if threads > 1 else ''}"


def added_figure(results, depth, divisor, limit_ns=None):
    title = ring_title(depth, 1)
    bar = f"at most 1/{divisor} of what heaptrack adds"
    if limit_ns:
        bar += f", and at most {limit_ns} ns"
    figure = Figure(f"time added per malloc+free pair at {depth} frames, mem-fast, 1 thread", bar)
    plain, ours, theirs = (results.median(title, tool) for tool in (PLAIN, MEM_FAST, HEAPTRACK))
    if plain and ours:
        added = ours - plain
        figure.measured = f"{added:.1f} ns"
        within = limit_ns is None or added <= limit_ns
        if theirs:
            figure.measured += f"; heaptrack {theirs - plain:.1f} ns: 1/{(theirs - plain) / added:.1f}"
            figure.met = within and added * divisor <= theirs - plain
        elif not within:
            figure.met = False
    return figure


def ratio_figure(results, what, title, limit, more_is_better=False):
    bar = f"at {'least' if more_is_better else 'most'} {limit}"
    figure = Figure(what, bar)
    plain, ours = results.median(title, PLAIN), results.median(title, MEM_FAST)
    if plain and ours:
        ratio = ours / plain
        figure.measured = f"{ratio:.2f}"
        theirs = results.median(title, HEAPTRACK)
        if theirs:
            figure.measured += f" (heaptrack {theirs / plain:.2f})"
        figure.met = ratio >= limit if more_is_better else ratio <= limit
    return figure


def scaling_figure(results):
    figure = Figure("2 threads over 1 thread, alloc ring at 24 frames, mem-fast",
                    "at least 1.8 in events per second")
    one, two = (results.median(ring_title(24, threads), MEM_FAST) for threads in (1, 2))
    if one and two:
        ratio = 2 * one / two
        figure.measured = f"{ratio:.2f}"
        plain_one, plain_two = (results.median(ring_title(24, n), PLAIN) for n in (1, 2))
        figure.measured += f" (plain {2 * plain_one / plain_two:.2f})"
        figure.met = ratio >= 1.8
    return figure


def sample_figures(results, redis_title):
    pair = Figure("`--sample 512K`, alloc ring at 24 frames", "at most 5 ns a pair")
    plain, ours = (results.median(ring_title(24, 1), tool) for tool in (PLAIN, SAMPLE))
    if plain and ours:
        pair.measured = f"{ours - plain:.1f} ns"
        pair.met = ours - plain <= 5
    redis = Figure("`--sample 512K`, redis-server", "not distinguishable from plain")
    base, sampled = (results.series(redis_title, tool) for tool in (PLAIN, SAMPLE))
    if base and sampled:
        redis.measured = (f"{sampled.median / base.median:.3f} of plain; plain varies from "
                          f"{min(base.values) / base.median:.3f} to "
                          f"{max(base.values) / base.median:.3f}")
        redis.met = sampled.median >= min(base.values)
    return [pair, redis]


def memory_figures(results):
    bar = "at most 30 % of the heap's resident pages + 100 bytes a stack node"
    if not results.footprints:
        return [Figure("recorder's memory, mem-fast", bar)]
    return [Figure(f"recorder's memory, mem-fast, {item.title}", bar,
                   f"{item.recorder / MIB:.1f} MiB of {item.allowed() / MIB:.1f} MiB "
                   f"(heap {item.heap / MIB:.1f} MiB, {item.nodes:,} nodes)",
                   item.recorder <= item.allowed()) for item in results.footprints]


SYMBOLS_LINE = re.compile(r"(?P<path>.+): \d+ addresses, \d+ frames, (?P<source>.+), [0-9.]+ s, "
                          r"(?P<rate>\d+) addresses/s")


def symbols_figures(results):
    """One for each file that symbols_bench looked addresses up in."""
    what, bar = "distinct addresses symbolized", "1 million in 10 s"
    found = [match for match in map(SYMBOLS_LINE.fullmatch, results.symbols) if match]
    return [Figure(f"{what}, {Path(line['path']).name} ({line['source']})", bar,
                   f"1 million in {1e6 / int(line['rate']):.1f} s", int(line["rate"]) >= 1e5)
            for line in found] or [Figure(what, bar)]


def view_figure(what, bar, run, seconds_max=None, resident_max=None, written_max=None):
    """Each limit is a bar, where there is one; ``run`` may be None."""
    figure = Figure(what, bar)
    if run:
        measured = ((f"{run.seconds:.2f} s", run.seconds, seconds_max),
                    (f"{run.resident / MIB:.0f} MiB resident", run.resident, resident_max),
                    (f"{run.written / MIB:.2f} MiB written", run.written, written_max))
        figure.measured = ", ".join(text for text, _, limit in measured if limit)
        figure.met = all(value <= limit for _, value, limit in measured if limit)
    return figure


def names_figure(views):
    figure = Figure("second `top` on a program with debug information", "10 times faster")
    if views.top_without_names and views.top_with_names:
        first, second = views.top_without_names.seconds, views.top_with_names.seconds
        figure.measured = f"{first / second:.1f} times: {first:.3f} s, then {second:.3f} s"
        figure.met = first >= 10 * second
    return figure


def view_figures(results):
    views = results.views or Views()
    return [
        view_figure("`top` on 1 million stack nodes, symbols cached", "1 s, 500 MB",
                    views.top_of_million, seconds_max=1, resident_max=500e6),
        view_figure("`top` of cc1plus, symbols cached", "1 s, 500 MB", views.top_of_compiler,
                    seconds_max=1, resident_max=500e6),
        view_figure("`flame` of cc1plus", "1 s, 3 MB", views.flame_of_compiler, seconds_max=1,
                    written_max=3e6),
        view_figure("`report` of cc1plus", "15 MB", views.report_of_compiler, written_max=15e6),
        names_figure(views),
    ]


def figures(results):
    titles = {case.part: title for title, (case, _) in results.cases.items()}
    return [
        added_figure(results, 24, 4, 90),
        added_figure(results, 64, 5),
        ratio_figure(results, "python3 JSON, mem-fast / plain", titles.get("python"), 1.35),
        ratio_figure(results, "cc1plus, mem-fast / plain", titles.get("cc1plus"), 1.5),
        ratio_figure(results, "redis-server throughput, mem-fast / plain", titles.get("redis"),
                     0.92, more_is_better=True),
        scaling_figure(results),
        *sample_figures(results, titles.get("redis")),
        *memory_figures(results),
        *symbols_figures(results),
        *view_figures(results),
    ]


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
    unmeasured = [figure.what for figure in bars if figure.met is None]
    parts = [
        "# Benchmarks",
        "Written by `make bench`; do not edit. All numbers come from one run on one machine, "
        f"{datetime.date.today().isoformat()}: for each case one run of each tool that does not "
        f"count, then {results.repeat} interleaved rounds; medians, with the smallest and the "
        "largest value. A ratio compares with the same program on the same allocator without the "
        "tool; `added` is the difference.",
        markdown_table(("machine", ""), machine_rows(results)),
        "## Figures to reach",
        markdown_table(("what", "bar", "measured", "met"), [figure.row() for figure in bars]),
        "Missed: " + ("; ".join(missed) if missed else "none of those measured") + ".",
    ]
    if unmeasured:
        parts.append("Not decided by this run: " + "; ".join(unmeasured) + ".")
    parts.append("## What was measured")
    for case, table in results.cases.values():
        better = "more is better" if case.more_is_better else "less is better"
        parts += [f"### {case.title}", f"In {case.unit}; {better}.",
                  markdown_table(HEADINGS, rows_of(case, table, tools))]
    if results.skipped:
        parts.append("## Not run")
        parts.append(markdown_table(("what", "why"), results.skipped.items()))
    parts.append(HOW)
    return "\n\n".join(parts) + "\n"


HOW = """## How to read this

- *alloc ring* (`bench/alloc_ring.c`): a malloc+free pair of 16 to 271 bytes with 1,024 live blocks, \
from 256 stacks whose innermost 3 to 6 frames change from pair to pair.
- *closed* passes every call through: the price of having the recorder in place.
- *heaptrack --raw* leaves interpretation out; its compressor runs on the other core.
- *gperftools HEAPPROFILE* records every call, *jemalloc prof* one sample in 512 KiB: compare the \
latter with `--sample 512K`. A tool that needs more than 12 times the plain time is not waited for.
- *redis-server* of Debian allocates with jemalloc; plain is that.
- The recorder's memory is the largest resident size of the target with the recorder, shared pages \
included, less that without it. The heap is the resident part of the heap segment without it.
- Views (`bench/views.py`): the fastest of 5 runs. The million stack nodes are made up; a program \
of many templates stands for those with debug information, and its first `top` finds no kept names."""
