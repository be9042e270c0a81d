# SPDX-License-Identifier: BSD-2-Clause
"""What it takes to keep every event, and to read them again, beside heaptrack."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from views import ViewRun, fastest, run_once
from workloads import CompilerCase, PythonCase, ring_title

RING_PAIRS = 4_000_000
INTERPRETER = Path("/usr/lib/heaptrack/libexec/heaptrack_interpret")


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
    read: ViewRun
    replayed: ViewRun  # and compared with the log
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


def run_quietly(command, program, machine):
    subprocess.run([str(word) for word in [*command, *program.command]], check=True,
                   cwd=machine.scratch, env={**os.environ, **program.environment},
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def measure_heapline(program, machine, heapline):
    recording = machine.scratch / "events.hl"
    run_quietly([heapline, "record", "-q", "-f", "--mode", "log-fast", "--events", "-o", recording,
                 "--"], program, machine)
    total = json.loads(subprocess.run([heapline, "info", "--json", recording], check=True,
                                      capture_output=True, text=True).stdout)["total"]
    measured = EventRun(title=program.title, pairs=total["alloc_objects"],
                        events=2 * total["alloc_objects"] - total["inuse_objects"],
                        written=sum(path.stat().st_size for path in recording.glob("*.hle")),
                        read=fastest([heapline, "events", recording], machine),
                        replayed=fastest([heapline, "events", "--replay", recording], machine))
    shutil.rmtree(recording)
    return measured


def interpret(raw, interpreted):
    """Makes of what heaptrack recorded what heaptrack_print reads. False where heaptrack cannot:
    1.4 does not get through some of its own files."""
    with open(interpreted, "wb") as out, \
         subprocess.Popen(["zstd", "-dc", raw], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as unpack:
        return subprocess.run([INTERPRETER], stdin=unpack.stdout, stdout=out,
                              stderr=subprocess.DEVNULL, check=False).returncode == 0


def measure_heaptrack(program, machine, measured):
    if not (shutil.which("heaptrack") and shutil.which("zstd") and INTERPRETER.exists()):
        return
    run_quietly(["heaptrack", "--raw", "-o", machine.scratch / "events"], program, machine)
    raw, interpreted = machine.scratch / "events.raw.zst", machine.scratch / "interpreted"
    measured.heaptrack_written = raw.stat().st_size
    if interpret(raw, interpreted):
        measured.heaptrack_read = run_once(["heaptrack_print", interpreted], machine)
    raw.unlink()
    interpreted.unlink()


def measure_events(machine, heapline):
    """An EventRun for each program; raises CalledProcessError or RunFailed."""
    (machine.scratch / "cache").mkdir(exist_ok=True)
    runs = []
    for program in programs(machine):
        runs.append(measure_heapline(program, machine, heapline))
        measure_heaptrack(program, machine, runs[-1])
    return runs
