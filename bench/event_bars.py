# SPDX-License-Identifier: BSD-2-Clause
"""The bars for `--events`, beside what a run measured."""

from figure import Figure

PAIR_BYTES_MAX = 4
READ_MIN = 50e6  # events a second


def size_figure(run):
    figure = Figure(f"`--events`, {run.title}", f"at most {PAIR_BYTES_MAX} bytes a malloc+free pair")
    figure.measured = f"{run.written / run.pairs:.2f} bytes"
    if run.heaptrack_written:
        figure.measured += f" (heaptrack {run.heaptrack_written / run.pairs:.2f})"
    figure.met = run.written <= PAIR_BYTES_MAX * run.pairs
    return figure


def read_figure(run):
    figure = Figure(f"events read, {run.title}", "50 million a second")
    if run.read:
        rate = run.events / run.read.seconds
        figure.measured = f"{rate / 1e6:.1f} million in {run.read.seconds:.2f} s"
        if run.heaptrack_read:
            theirs = run.events / run.heaptrack_read.seconds
            figure.measured += f" (heaptrack_print {theirs / 1e6:.1f} million)"
        figure.met = rate >= READ_MIN
    return figure


def event_figures(results):
    return ([size_figure(run) for run in results.events] +
            [read_figure(run) for run in results.events])
