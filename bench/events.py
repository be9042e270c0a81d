# SPDX-License-Identifier: BSD-2-Clause
"""What it takes to keep every event, and to read them again, beside heaptrack."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field

from views import ViewRun, fastest, run_once
from workloads import CompilerCase, PythonCase, RunFailed, ring_title

RING_PAIRS = 4_000_000


@dataclass
class Program:
    """What is recorded."""

    title: str
    command: list
    environment: dict = field(default_factory=dict)


@dataclass
class EventRun:
    """One program with `--events`; of heaptrack what there is, else None."""

    title: str
    pairs: int  # of malloc and free; blocks that were not freed count as pairs, too
    events: int
    written: int  # bytes of files of events
    read: ViewRun = None
    heaptrack_written: int = None
    heaptrack_read: ViewRun = None


def programs(machine):
    python, compiler = PythonCase(), CompilerCase()
    compiler.prepare(machine)
    ring = machine.build / "bench" / "alloc_ring"
    pairs = 10_000 if machine.small else RING_PAIRS
    return [Program(ring_title(24, 1), [ring, "24", "1", str(pairs)]),
            Program(python.title, python.command(machine), python.environment),
            Program(compiler.title, compiler.command(machine))]


def run_quietly(command, program, machine, check=True):
    subprocess.run([str(word) for word in [*command, *program.command]], check=check,
                   cwd=machine.scratch, env={**os.environ, **program.environment},
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def read_events(heapline, recording, machine):
    """None as long as heapline has no verb for it."""
    command = [heapline, "events", "--replay", recording]
    there = subprocess.run([heapline, "events", "--help"], capture_output=True, check=False)
    return fastest(command, machine) if there.returncode == 0 else None


def measure_heapline(program, machine, heapline):
    recording = machine.scratch / "events.hl"
    run_quietly([heapline, "record", "-q", "-f", "--mode", "log-fast", "--events", "-o", recording,
                 "--"], program, machine)
    total = json.loads(subprocess.run([heapline, "info", "--json", recording], check=True,
                                      capture_output=True, text=True).stdout)["total"]
    measured = EventRun(title=program.title, pairs=total["alloc_objects"],
                        events=2 * total["alloc_objects"] - total["inuse_objects"],
                        written=sum(path.stat().st_size for path in recording.glob("*.hle")),
                        read=read_events(heapline, recording, machine))
    shutil.rmtree(recording)
    return measured


def measure_heaptrack(program, machine, measured):
    if not shutil.which("heaptrack"):
        return
    # Its script says that a pipe of its own broke when all went well: the file tells.
    run_quietly(["heaptrack", "-o", machine.scratch / "events"], program, machine, check=False)
    path = next((path for path in machine.scratch.glob("events.*")
                 if path.suffix in (".zst", ".gz")), None)
    if not path:
        raise RunFailed("heaptrack left no file")
    measured.heaptrack_written = path.stat().st_size
    measured.heaptrack_read = run_once(["heaptrack_print", path], machine)
    path.unlink()


def measure_events(machine, heapline):
    """An EventRun for each program; raises CalledProcessError or RunFailed."""
    (machine.scratch / "cache").mkdir(exist_ok=True)
    runs = []
    for program in programs(machine):
        runs.append(measure_heapline(program, machine, heapline))
        measure_heaptrack(program, machine, runs[-1])
    return runs
