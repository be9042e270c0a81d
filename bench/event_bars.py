# SPDX-License-Identifier: BSD-2-Clause
"""The bars for `--events`, beside what a run measured."""

from figure import Figure

PAIR_BYTES_MAX = 4
READ_MIN = 50e6  # events a second


def size_figure(run):
    figure = Figure(f"`--events`, {run.title}",
                    f"at most {PAIR_BYTES_MAX} bytes a malloc+free pair")
    figure.measured = f"{run.written / run.pairs:.2f} bytes"
    if run.heaptrack_written:
        figure.measured += f" (heaptrack --raw {run.heaptrack_written / run.pairs:.2f})"
    figure.met = run.written <= PAIR_BYTES_MAX * run.pairs
    return figure


def read_figure(run):
    rate, replayed = (run.events / view.seconds for view in (run.read, run.replayed))
    figure = Figure(f"`events`, {run.title}", "50 million events/s",
                    f"{rate / 1e6:.0f} million; `--replay` {replayed / 1e6:.0f} million",
                    rate >= READ_MIN)
    if run.heaptrack_read:
        theirs = run.events / run.heaptrack_read.seconds
        figure.measured += f" (heaptrack_print {theirs / 1e6:.1f} million)"
    return figure


def event_figures(results):
    if not results.events:
        return [Figure("`--events`", f"at most {PAIR_BYTES_MAX} bytes a malloc+free pair"),
                Figure("`events`", "50 million events/s")]
    return ([size_figure(run) for run in results.events] +
            [read_figure(run) for run in results.events])
