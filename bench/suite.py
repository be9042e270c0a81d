# SPDX-License-Identifier: BSD-2-Clause
"""The programs of mimalloc-bench, built by bench/mimalloc_bench.sh."""

import os
import re
import statistics
from dataclasses import dataclass
from pathlib import Path

from workloads import Case, Run, RunFailed, run

PART = "mimalloc"
THREADS = str(os.cpu_count())


@dataclass(frozen=True)
class Program:
    """``count`` finds what a program of a fixed duration did: a pattern, whose number is times
    ``scale`` and, if it is a rate, times the seconds of the run.
    """

    name: str
    arguments: tuple
    count: str = ""
    scale: float = 1
    seconds: float = 1


PROGRAMS = (
    Program("cfrac", ("17545186520507317056371138836327483792789528",)),
    Program("espresso", ("largest.espresso",)),
    Program("larson", ("2", "8", "1000", "5000", "100", "4141", THREADS),
            r"Throughput =\s*([0-9]+) operations", seconds=2),
    Program("xmalloc-test", ("-w", THREADS, "-t", "2", "-s", "64"),
            r"free/sec: ([0-9.]+) M", 1e6, 2),
    Program("rptest", (THREADS, "0", "1", "2", "500", "1000", "100", "8", "16000")),
    Program("glibc-thread", (THREADS,), r"([0-9]+) iterations"),
    Program("mstress", (THREADS, "50", "25")),
    Program("alloc-test", ("1",)),
)


class SuiteCase(Case):
    """One program: seconds, or for one of a fixed duration what a million operations took."""

    part = PART

    def __init__(self, program):
        self.program = program
        self.directory = Path(os.environ.get("MIMALLOC_BENCH", ""))
        self.title = f"mimalloc-bench {program.name}"
        if program.count:
            self.unit = "s for a million operations"

    def missing(self):
        if (self.directory / self.program.name).is_file() and self.directory.is_absolute():
            return ""
        return "MIMALLOC_BENCH does not name what bench/mimalloc_bench.sh built"

    def measure(self, tool, machine):
        command = [self.directory / self.program.name, *self.program.arguments]
        (machine.scratch / "largest.espresso").write_bytes(
            (self.directory / "largest.espresso").read_bytes())
        said, took = run(tool, command, machine, limit_s=300)
        if not self.program.count:
            return took
        found = re.search(self.program.count, said)
        if not found:
            raise RunFailed("it printed no figure")
        operations = float(found[1]) * self.program.scale * self.program.seconds
        return took.over(operations / 1e6)


def suite_cases():
    return [SuiteCase(program) for program in PROGRAMS]


def geometric_mean(results, tool, baseline):
    """Of the ratios of processor time over the programs that both ran; None without any."""
    titles = [case.title for case in suite_cases()]
    pairs = [(results.cpu(title, tool), results.cpu(title, baseline)) for title in titles]
    ratios = [mine / theirs for mine, theirs in pairs if mine and theirs]
    return statistics.geometric_mean(ratios) if ratios else None
