# SPDX-License-Identifier: BSD-2-Clause
"""One of the bars that the project set itself, and whether a run met it."""

from dataclasses import dataclass

MIB = 1 << 20


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
