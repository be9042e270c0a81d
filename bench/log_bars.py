# SPDX-License-Identifier: BSD-2-Clause
"""The bars for logs, beside what a run measured."""

import re

from figure import MIB, Figure, view_figure
from logs import SECONDS_OF_DAY, VIEWS_AT, Logs, LongRedisCase
from tools import LOG_FAST, MEM_FAST, PLAIN
from workloads import ring_title

EVENTS_MIN = 40e6  # a second
NODE_BYTES = 100


def added_ratio_figure(results):
    """The collector reads on the other core."""
    figure = Figure("processor time added to a malloc+free pair at 24 frames, log-fast / mem-fast",
                    "at most 1.4")
    title = ring_title(24, 1)
    plain, mem, log = (results.cpu(title, tool) for tool in (PLAIN, MEM_FAST, LOG_FAST))
    if plain and mem and log:
        ratio = (log - plain) / (mem - plain)
        figure.measured = f"{ratio:.2f}: {log - plain:.1f} ns, {mem - plain:.1f} ns"
        figure.met = ratio <= 1.4
    return figure


DRAINED_LINE = re.compile(r"(?P<what>.+): (?P<bytes>[0-9.]+) bytes an event, "
                          r"(?P<rate>[0-9.]+) million events/s")


def drain_figures(logs):
    what, bar = "events drained per second of one core", "40 million"
    found = [match for match in map(DRAINED_LINE.fullmatch, logs.drained) if match]
    rows = [Figure(f"{what}, {line['what']}", bar,
                   f"{line['rate']} million, {line['bytes']} bytes each",
                   float(line["rate"]) * 1e6 >= EVENTS_MIN) for line in found]
    rows += [Figure(f"{what}, {program.title}", bar,
                    f"{program.events_per_second / 1e6:.0f} million",
                    program.events_per_second >= EVENTS_MIN) for program in logs.programs]
    return rows or [Figure(what, bar)]


def collector_figures(logs):
    what, bar = "collector's memory", "64 MB and 100 bytes a stack node"
    rows = []
    for program in logs.programs:
        run = program.most_resident
        allowed = 64e6 + NODE_BYTES * run.nodes
        rows.append(Figure(f"{what}, {program.title}", bar,
                           f"{run.resident / MIB:.1f} MiB of {allowed / MIB:.1f} MiB "
                           f"({run.nodes:,} nodes)", run.resident <= allowed))
    return rows or [Figure(what, bar)]


def size_figures(logs):
    what, bar = "log-fast, size of the log", "200 KB/s"
    rows = [Figure(f"{what}, {program.title}", bar,
                   f"{program.bytes_per_second / 1e3:.0f} KB/s: "
                   f"{program.median(lambda run: run.log_bytes) / 1e6:.2f} MB in "
                   f"{program.median(lambda run: run.seconds):.1f} s",
                   program.bytes_per_second <= 200e3)
            for program in logs.programs if program.title != ring_title(24, 1)]
    rows = rows or [Figure(what, bar)]
    day = Figure("log of redis-server under load, a day", "1 GB")
    for program in logs.programs:
        if program.title == LongRedisCase().title:
            gigabytes = program.bytes_per_second * SECONDS_OF_DAY / 1e9
            day.measured = f"{gigabytes:.2f} GB, reckoned from {program.runs[0].seconds:.0f} s"
            day.met = gigabytes <= 1
    return [*rows, day]


def day_figures(logs):
    bar, limits = "1 s, 300 MB", {"seconds_max": 1, "resident_max": 300e6}
    timeline, at = (logs.day.timeline, logs.day.at) if logs.day else (None, dict.fromkeys(VIEWS_AT))
    return [view_figure("`timeline` of a day, 864,000 intervals", bar, timeline, **limits),
            *(view_figure(f"`{view} --at` of a day, the slowest of some moments", bar, run,
                          **limits) for view, run in at.items())]


def log_figures(results):
    logs = results.logs or Logs()
    return [added_ratio_figure(results), *drain_figures(logs), *collector_figures(logs),
            *size_figures(logs), *day_figures(logs)]
