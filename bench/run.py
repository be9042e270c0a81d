#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Measures programs plain, under heapline and under other heap profilers: `make bench`.

All runs of a case are interleaved (one of each tool, then again), after one run of each that does
not count. A complete run writes docs/benchmarks.md.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TREE / "scripts"))

from events import measure_events  # noqa: E402
from faults import measure_faults  # noqa: E402
from fleet import measure_fleet  # noqa: E402
from heap import measure_heap  # noqa: E402
from holders import measure_holders  # noqa: E402
from join import measure_join  # noqa: E402
from leaks import measure_leaks  # noqa: E402
from logs import measure_logs  # noqa: E402
from lua import measure_lua  # noqa: E402
from memory import all_footprints, table_figures  # noqa: E402
from redis_path import add_redis_server  # noqa: E402
from report import Results, document, terminal_table  # noqa: E402
from servers import server_cases  # noqa: E402
from stacks import measure_stacks  # noqa: E402
from suite import suite_cases  # noqa: E402
from tags import measure_tags  # noqa: E402
from tools import OF_SCRIPTS, all_tools  # noqa: E402
from views import measure_views  # noqa: E402
from workloads import Machine, RunFailed, TooSlow, timed_cases  # noqa: E402

LIBC = "/lib/x86_64-linux-gnu/libc.so.6"
CASES = [*timed_cases(), *server_cases(), *suite_cases()]
PARTS = (*dict.fromkeys(case.part for case in CASES), "memory", "table", "symbols", "views", "logs",
         "events", "stacks", "faults", "lua", "tags", "heap", "join", "leaks", "holders", "fleet")


@dataclass
class Series:
    """What one tool measured in one case."""

    runs: list = field(default_factory=list)
    failure: str = ""  # why it has no runs

    @property
    def wall(self):
        """The median, of what others on the machine delayed as well."""
        return statistics.median(run.wall for run in self.runs)

    @property
    def cpu(self):
        """The least: a round that nobody disturbed."""
        return min(run.cpu for run in self.runs)

    @property
    def cpu_median(self):
        return statistics.median(run.cpu for run in self.runs)


def attempt(case, tool, machine, series):
    """One Run, or None and the reason in the series."""
    try:
        return case.measure(tool, machine)
    except (TooSlow, RunFailed, subprocess.CalledProcessError) as problem:
        series.failure = str(problem)
        return None


def measure_case(case, tools, machine, repeat):
    """Every tool's series, by name: a warm-up of each, then ``repeat`` interleaved rounds."""
    table = {tool.name: Series(failure=tool.absent) for tool in tools}
    for turn in range(repeat + 1):
        for tool in tools:
            series = table[tool.name]
            if series.failure:
                continue
            note(f"{case.title}: {'warm-up' if turn == 0 else f'round {turn}'}: {tool.name}")
            value = attempt(case, tool, machine, series)
            if turn > 0 and value is not None:
                series.runs.append(value)
    for series in table.values():
        if series.failure:
            series.runs.clear()
    return table


def note(text):
    """Progress, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def measure_symbols(machine):
    """Lines of bench/micro/symbols_bench: a library with debug information, and a program without."""
    compiler = subprocess.run(["gcc", "-print-prog-name=cc1"], capture_output=True, text=True,
                              check=False).stdout.strip()
    program = machine.build / "bench" / "micro" / "symbols_bench"
    count = ["10000"] if machine.small else []
    return [subprocess.run([str(program), path, *count], capture_output=True, text=True,
                           check=True).stdout.strip() for path in (LIBC, compiler)]


def offer_rivals():
    """Installs the other tools if the user says so; without them their rows say why."""
    deps = str(TREE / "scripts" / "deps.sh")
    missing = subprocess.run([deps, "--missing", "bench"], capture_output=True, text=True,
                             check=False)
    if missing.returncode == 0:
        return
    print(missing.stderr.strip().replace("missing:", "not installed:"), file=sys.stderr)
    answer = os.environ.get("BENCH_INSTALL", "")
    if not answer and sys.stdin.isatty():
        answer = input("Install them, to compare with? [y/N] ")
    if answer.lower() in ("y", "yes"):
        subprocess.run([deps, "bench"], check=False)
    else:
        print("Going on without them; BENCH_INSTALL=yes installs them.", file=sys.stderr)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=TREE / "build", help="where heapline is")
    parser.add_argument("--only", default="", help=f"parts, by comma, of: {' '.join(PARTS)}")
    parser.add_argument("--repeat", type=int, default=7, help="rounds that count (7)")
    parser.add_argument("--small", action="store_true", help="tiny inputs: tries the runner only")
    parser.add_argument("--output", type=Path, help="write the document there")
    options = parser.parse_args()
    options.only = options.only.split(",") if options.only else list(PARTS)
    if unknown := set(options.only) - set(PARTS):
        parser.error(f"no part '{unknown.pop()}'; there are: {' '.join(PARTS)}")
    if options.repeat < 1:
        parser.error("--repeat begins at 1")
    return options


def measure_others(options, machine, heapline, results):
    """What is not a table of tools: by part, what it is called, and where its figures go."""
    others = {
        "table": ("the block table", "table", lambda: table_figures(machine, heapline)),
        "symbols": ("symbolization", "symbols", lambda: measure_symbols(machine)),
        "views": ("views", "views", lambda: measure_views(machine, heapline)),
        "logs": ("logs", "logs", lambda: measure_logs(machine, heapline)),
        "events": ("events", "events", lambda: measure_events(machine, heapline)),
        "stacks": ("stacks", "stacks", lambda: measure_stacks(machine, heapline)),
        "lua": ("scripts of Lua", "lua", lambda: measure_lua(machine, heapline)),
        "tags": ("tags", "tags", lambda: measure_tags(machine, heapline)),
        "heap": ("heap walks", "heap", lambda: measure_heap(machine)),
        "join": ("joining", "join", lambda: measure_join(machine, heapline)),
        "holders": ("holders", "holders", lambda: measure_holders(machine, heapline)),
        "leaks": ("lost blocks", "leaks", lambda: measure_leaks(machine, heapline)),
        "fleet": ("a fleet", "fleet", lambda: measure_fleet(machine, heapline)),
        "faults": ("page faults", "faults", lambda: measure_faults(machine, heapline)),
        # Last: it makes this process large, which is the least that the kernel says of a child's largest size.
        "memory": ("recorder's memory", "footprints", lambda: all_footprints(machine, heapline)),
    }
    for part, (title, place, measure) in others.items():
        if part not in options.only:
            continue
        note(title)
        try:
            setattr(results, place, measure())
        except (TooSlow, RunFailed, subprocess.CalledProcessError, OSError) as problem:
            results.skipped[title] = str(problem)
        note("")


def measure_all(options, machine, results):
    heapline = options.build / "heapline"
    for case in CASES:
        if case.part not in options.only:
            continue
        if case.missing():
            results.skipped[case.title] = case.missing()
            continue
        case.prepare(machine)
        tools = [tool for tool in all_tools(heapline)
                 if tool.name in case.tools or not (case.tools or tool.name in OF_SCRIPTS)]
        table = measure_case(case, tools, machine, options.repeat)
        results.add(case, table)
        note("")
        print(terminal_table(case, table, tools), flush=True)
    measure_others(options, machine, heapline, results)


def main():
    options = parse_arguments()
    options.build = options.build.resolve()
    offer_rivals()
    with tempfile.TemporaryDirectory(prefix="heapline-bench-") as scratch:
        add_redis_server(Path(scratch) / "bin")
        results = Results(repeat=options.repeat)
        complete = set(options.only) == set(PARTS) and not options.small
        try:
            measure_all(options, Machine(options.build, Path(scratch), options.small), results)
        except KeyboardInterrupt:  # what was measured until then is shown
            complete = False
    text = document(results, all_tools(options.build / "heapline"))
    output = options.output or (TREE / "docs" / "benchmarks.md" if complete else None)
    if output:
        output.write_text(text)
        print(f"written: {output}")
    else:
        print(text)


if __name__ == "__main__":
    main()
