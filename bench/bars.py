# SPDX-License-Identifier: BSD-2-Clause
"""The bars that the project set itself, beside what a run measured."""

import re
from pathlib import Path

from event_bars import event_figures
from faults import faults_figures
from figure import MIB, Figure, view_figure
from heap import heap_figures
from log_bars import log_figures
from stacks import stacks_figures
from tags import tags_figures
from tools import HEAPTRACK, MEM_FAST, PLAIN, SAMPLE
from views import Views
from workloads import ring_title


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
        *log_figures(results),
        *event_figures(results),
        *stacks_figures(results.stacks),
        *faults_figures(results.faults),
        *tags_figures(results.tags),
        *heap_figures(results.heap),
    ]
