# SPDX-License-Identifier: BSD-2-Clause
"""The bars that the project set itself, beside what a run measured."""

import re
from pathlib import Path

from event_bars import event_figures
from faults import faults_figures
from figure import MIB, Figure, view_figure
from fleet import fleet_figures
from heap import heap_figures
from holders import holders_figures
from join import join_figures
from leaks import leaks_figures
from log_bars import log_figures
from lua import lua_figures
from stacks import stacks_figures
from suite import geometric_mean
from tags import tags_figures
from tools import CLOSED, HEAPTRACK, LOG_FAST, MEM_FAST, NATIVE, PLAIN, SAMPLE, TRACEMALLOC
from views import Views
from workloads import CHILDREN_TITLE, TRUE_TITLE, ring_title


def added_figure(results, what, title, share, limit_ns=None):
    """What mem-fast adds to a pair, beside what heaptrack adds."""
    bar = f"at most 1/{share} of what heaptrack adds"
    if limit_ns:
        bar += f", and at most {limit_ns} ns"
    figure = Figure(f"processor time added to a malloc+free pair, {what}", bar)
    plain, ours, theirs = (results.cpu(title, tool) for tool in (PLAIN, MEM_FAST, HEAPTRACK))
    if plain and ours:
        added = ours - plain
        figure.measured = f"{added:.1f} ns beside {plain:.1f}"
        within = limit_ns is None or added <= limit_ns
        if theirs:
            figure.measured += f"; heaptrack {theirs - plain:.1f} ns: 1/{(theirs - plain) / added:.1f}"
            figure.met = within and added * share <= theirs - plain
        elif not within:
            figure.met = False
    return figure


def tool_figure(results, tool, limit_ns):
    figure = Figure(f"{tool}, alloc ring at 24 frames", f"at most +{limit_ns} ns a pair")
    plain, ours = (results.cpu(ring_title(24, 1), name) for name in (PLAIN, tool))
    if plain and ours:
        figure.measured = f"{ours - plain:+.1f} ns"
        figure.met = ours - plain <= limit_ns
    return figure


def ratio_figure(results, what, title, limit, ours=MEM_FAST, base=PLAIN):
    figure = Figure(f"{what}: processor time, {ours.removeprefix('heapline ')} / "
                    f"{base.removeprefix('heapline ')}", f"at most {limit}")
    less, more = results.cpu(title, base), results.cpu(title, ours)
    if less and more:
        figure.measured = f"{more / less:.2f}"
        theirs = results.cpu(title, HEAPTRACK)
        if theirs and base == PLAIN:
            figure.measured += f" (heaptrack {theirs / less:.2f})"
        figure.met = more / less <= limit
    return figure


def started_figure(results):
    """What it costs to be recorded at all."""
    figure = Figure("`record true`: processor time added", "at most 2 ms")
    plain, ours = (results.cpu(TRUE_TITLE, name) for name in (PLAIN, MEM_FAST))
    if plain and ours:
        figure.measured = f"{ours - plain:+.2f} ms"
        figure.met = ours - plain <= 2
    return figure


def scaling_figure(results):
    """What a thread pays because seven others run: nothing, beyond what plain threads pay."""
    figure = Figure("8 threads over 1, alloc ring at 24 frames, mem-fast",
                    "no event costs more processor time, beside plain threads, within 5 %")
    one, eight, plain_one, plain_eight = (
        results.cpu(ring_title(24, threads), tool)
        for tool in (MEM_FAST, PLAIN) for threads in (1, 8))
    if one and eight and plain_one and plain_eight:
        figure.measured = f"{eight / one:.2f} (plain {plain_eight / plain_one:.2f})"
        figure.met = eight / one <= 1.05 * max(1, plain_eight / plain_one)
    return figure


def objects_figure(results, title):
    figure = Figure("python3 JSON, every object with Python and native stack: processor time, "
                    "mem-fast / plain", "at most 1.8, and a third of what tracemalloc adds")
    plain, ours, theirs = (results.cpu(title, tool) for tool in (PLAIN, MEM_FAST, TRACEMALLOC))
    if plain and ours:
        figure.measured = f"{ours / plain:.2f}"
        if theirs:
            figure.measured += f" (tracemalloc with 25 frames {theirs / plain:.1f})"
        figure.met = ours / plain <= 1.8 and (not theirs or 3 * (ours - plain) <= theirs - plain)
    return figure


def suite_figure(results):
    figure = Figure("mimalloc-bench: geometric mean of processor time, mem-fast / plain",
                    "at most 1.6, and a quarter of heaptrack's")
    ours, theirs = (geometric_mean(results, tool, PLAIN) for tool in (MEM_FAST, HEAPTRACK))
    if ours:
        figure.measured = f"{ours:.2f}" + (f" (heaptrack {theirs:.2f})" if theirs else "")
        figure.met = ours <= 1.6 and (not theirs or ours <= theirs / 4)
    return figure


def time_figures(results):
    def title_of(part, text=""):
        return next((title for title, (case, _) in results.cases.items()
                     if case.part == part and text in title), "")

    return [
        added_figure(results, "24 frames", ring_title(24, 1), 10, 50),
        added_figure(results, "64 frames", ring_title(64, 1), 15, 65),
        added_figure(results, "24 frames, 12 fresh", ring_title(24, 1, 12), 6),
        added_figure(results, "24 frames, 20 fresh", ring_title(24, 1, 20), 3),
        tool_figure(results, CLOSED, 3),
        tool_figure(results, SAMPLE, 3),
        scaling_figure(results),
        ratio_figure(results, "python3 JSON, native stacks", title_of("python"), 1.35, NATIVE),
        ratio_figure(results, "python3 JSON, with scripts", title_of("python"), 1.45),
        objects_figure(results, title_of("objects")),
        ratio_figure(results, "cc1plus", title_of("cc1plus"), 1.22),
        ratio_figure(results, "clang++ -O2 on templates", title_of("clang"), 1.35),
        ratio_figure(results, "skynet, all of C and Lua", title_of("skynet"), 1.6),
        ratio_figure(results, "skynet", title_of("skynet"), 1.02, CLOSED),
        ratio_figure(results, "ruby, lines and native stacks", title_of("ruby"), 1.6),
        ratio_figure(results, "php, lines and native stacks", title_of("php"), 1.6),
        ratio_figure(results, "Rust program", title_of("rust"), 1.4),
        ratio_figure(results, "redis-server, 16 in a pipeline", title_of("redis", ", 16 in"), 1.18),
        ratio_figure(results, "redis-server, no pipeline", title_of("redis", ", 1 in"), 1.03),
        suite_figure(results),
        started_figure(results),
        ratio_figure(results, CHILDREN_TITLE, CHILDREN_TITLE, 2.0),
        ratio_figure(results, "alloc ring at 24 frames", ring_title(24, 1), 1.15, LOG_FAST,
                     MEM_FAST),
        ratio_figure(results, "python3 JSON", title_of("python"), 1.15, LOG_FAST, MEM_FAST),
    ]


def memory_figures(results):
    bar = "at most 30 % of the heap's resident pages + 100 bytes a stack node"
    if not results.footprints:
        return [Figure("recorder's memory, mem-fast", bar)]
    figures_of = [Figure(f"recorder's memory, mem-fast, {item.title}", bar,
                         f"{item.recorder / MIB:.1f} MiB of {item.allowed() / MIB:.1f} MiB "
                         f"(heap {item.heap / MIB:.1f} MiB, {item.nodes:,} nodes)",
                         item.recorder <= item.allowed())
                  for item in results.footprints if not item.blocks]
    return figures_of + [Figure(f"recorder's memory, mem-fast, {item.title}",
                                "at most 8 bytes a block, and 1 MiB for the recorder's start",
                                f"{item.recorder / item.blocks:.2f} bytes a block: "
                                f"{item.recorder / MIB:.1f} MiB",
                                item.recorder <= 8 * item.blocks + MIB)
                         for item in results.footprints if item.blocks]


SYMBOLS_LINE = re.compile(r"(?P<path>.+): \d+ addresses, \d+ frames, (?P<source>.+), [0-9.]+ s, "
                          r"(?P<rate>\d+) addresses/s")


def symbols_figures(results):
    """One for each file that symbols_bench looked addresses up in."""
    what, bar = "distinct addresses symbolized", "1 million in 10 s"
    found = [match for match in map(SYMBOLS_LINE.fullmatch, results.symbols) if match]
    return [Figure(f"{what}, {Path(line['path']).name} ({line['source']})", bar,
                   f"1 million in {1e6 / int(line['rate']):.1f} s", int(line["rate"]) >= 1e5)
            for line in found] or [Figure(what, bar)]


def names_figure(views):
    figure = Figure("second `top` on a program with debug information", "10 times faster")
    if views.top_without_names and views.top_with_names:
        first, second = views.top_without_names.seconds, views.top_with_names.seconds
        figure.measured = f"{first / second:.1f} times: {first:.3f} s, then {second:.3f} s"
        figure.met = first >= 10 * second
    return figure


def page_figure(views):
    figure = Figure("`report` of cc1plus in headless Chromium, until it can be used", "under 2 s")
    run = views.page_of_compiler
    if run and run.seconds is not None:
        figure.measured = f"{run.seconds:.2f} s"
        figure.met = run.seconds < 2
    elif run:
        figure.measured = f"skipped: {run.missing}"
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
        page_figure(views),
        names_figure(views),
    ]


def figures(results):
    return [
        *time_figures(results),
        *memory_figures(results),
        *results.table,
        *symbols_figures(results),
        *view_figures(results),
        *log_figures(results),
        *event_figures(results),
        *stacks_figures(results.stacks),
        *faults_figures(results.faults),
        *lua_figures(results.lua),
        *tags_figures(results.tags),
        *heap_figures(results.heap),
        *join_figures(results.join),
        *leaks_figures(results.leaks),
        *holders_figures(results.holders),
        *fleet_figures(results.fleet),
    ]
