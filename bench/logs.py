# SPDX-License-Identifier: BSD-2-Clause
"""What logs take: the collector's time and memory, the size of segments, views of a day."""

import json
import os
import statistics
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from memory import find_program
from tools import LOG_FAST, Tool, record_tool
from servers import RedisCase
from views import ViewRun, fastest
from workloads import CompilerCase, PythonCase, RingCase

RUNS = 3
POLL_S = 0.005
SECONDS_OF_DAY = 86400
DAY_MS = 1000 * SECONDS_OF_DAY
VIEWS_AT = ("top", "lines", "flame")


class LongRedisCase(RedisCase):
    """Long enough that a day can be reckoned from it."""

    def __init__(self):
        super().__init__(16, 5_000_000)
        self.title += ", five times as many"


@dataclass
class LoggedRun:
    """One program under log-fast."""

    seconds: float
    log_bytes: int
    events: int
    nodes: int
    drain_seconds: float  # processor time of the threads that drained rings
    resident: int  # the collector's, at most, with what it shares with the program


@dataclass
class LoggedProgram:
    """Some runs of one program."""

    title: str
    runs: list

    def median(self, figure):
        return statistics.median(map(figure, self.runs))

    @property
    def bytes_per_second(self):
        return self.median(lambda run: run.log_bytes / run.seconds)

    @property
    def events_per_second(self):
        """Of one core that does nothing else."""
        return self.median(lambda run: run.events / run.drain_seconds)

    @property
    def most_resident(self):
        return max(self.runs, key=lambda run: run.resident)


@dataclass
class DayOfLog:
    """Views of 864,000 intervals."""

    written: int  # bytes of segments
    timeline: ViewRun
    at: dict  # by view: the slowest of some moments


@dataclass
class Logs:
    """What was measured; empty or None where something was missing."""

    programs: list = field(default_factory=list)
    drained: list = field(default_factory=list)  # lines of drain_bench
    day: DayOfLog = None


class CollectorWatch(threading.Thread):
    """Looks at the collector of a program that is about to be started, until it ends."""

    def __init__(self):
        super().__init__(daemon=True)
        self.resident = 0
        self.drain_ns = {}  # by thread
        self.over = threading.Event()

    def run(self):
        pid = None
        while not self.over.is_set():
            pid = pid or find_program(os.getpid(), "heapline")
            if pid:
                self.look(Path(f"/proc/{pid}"))
            time.sleep(POLL_S)

    def look(self, process):
        try:
            for line in (process / "status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    self.resident = int(line.split()[1]) * 1024
            for task in (process / "task").iterdir():
                if task.name != process.name:
                    self.drain_ns[task.name] = int((task / "schedstat").read_text().split()[0])
        except (OSError, IndexError):
            pass  # it has just ended, or one of its threads has

    def stop(self):
        self.over.set()
        self.join()


@dataclass(frozen=True)
class WatchedTool(Tool):
    """A recording with a log, of which each run is looked at before it is removed."""

    runs: list = field(default_factory=list)
    watches: list = field(default_factory=list)

    def wrap(self, command, scratch):
        self.watches.append(CollectorWatch())
        self.watches[-1].start()
        return super().wrap(command, scratch)

    def clean(self, scratch):
        watch = self.watches.pop()
        watch.stop()
        recording = Path(scratch) / "recording.hl"
        if recording.exists():
            self.runs.append(logged_run(self.prefix[0], recording, watch))
        super().clean(scratch)


def logged_run(heapline, recording, watch):
    said = json.loads(subprocess.run([heapline, "info", "--json", recording], check=True,
                                     capture_output=True, text=True).stdout)
    total = said["total"]
    return LoggedRun(seconds=said["recording"]["duration_ms"] / 1000,
                     log_bytes=sum(path.stat().st_size for path in recording.glob("*.hll")),
                     events=2 * total["alloc_objects"] - total["inuse_objects"],
                     nodes=said["counts"]["nodes"],
                     drain_seconds=max(sum(watch.drain_ns.values()), 1) / 1e9,
                     resident=watch.resident)


def measure_program(case, machine, heapline):
    case.prepare(machine)
    tool = WatchedTool(**vars(record_tool(heapline, LOG_FAST, "--mode", "log-fast")))
    for _ in range(RUNS):
        tool.runs.clear()
        case.measure(tool, machine)
        yield tool.runs[-1]  # the ring's first run finds out how many pairs take a second


def measure_programs(machine, heapline):
    cases = [RingCase(24, 1), PythonCase(), CompilerCase(), LongRedisCase()]
    return [LoggedProgram(case.title, list(measure_program(case, machine, heapline)))
            for case in cases if not case.missing()]


def measure_drain(machine):
    """Lines of bench/micro/drain_bench."""
    program = machine.build / "bench" / "micro" / "drain_bench"
    rounds = ["10"] if machine.small else []
    return subprocess.run([program, *rounds], capture_output=True, text=True,
                          check=True).stdout.splitlines()


def write_day(machine, heapline):
    """A recording of a program that did nothing, with the log of a busy day."""
    recording = machine.scratch / "day.hl"
    subprocess.run([heapline, "record", "-q", "-f", "--mode", "log-fast", "-o", recording, "--",
                    "/bin/true"], check=True)
    for segment in recording.glob("*.hll"):
        segment.unlink()
    subprocess.run([machine.build / "bench" / "micro" / "day_of_log", recording,
                    *(["1000"] if machine.small else [])], check=True)
    return recording


def slowest_at(view, moments, recording, machine, heapline):
    return max((fastest([heapline, view, "--at", moment, recording], machine)
                for moment in moments), key=lambda run: run.seconds)


def measure_day(machine, heapline):
    recording = write_day(machine, heapline)
    end_ms = 100_000 if machine.small else DAY_MS
    moments = ("peak", *(str(int(end_ms * part)) for part in (0.001, 0.3, 0.5, 0.8, 0.999)))
    return DayOfLog(written=sum(path.stat().st_size for path in recording.glob("*.hll")),
                    timeline=fastest([heapline, "timeline", recording], machine),
                    at={view: slowest_at(view, moments, recording, machine, heapline)
                        for view in VIEWS_AT})


def measure_logs(machine, heapline):
    """All of Logs; raises CalledProcessError, RunFailed or TooSlow."""
    (machine.scratch / "cache").mkdir(exist_ok=True)
    return Logs(programs=measure_programs(machine, heapline), drained=measure_drain(machine),
                day=measure_day(machine, heapline))
