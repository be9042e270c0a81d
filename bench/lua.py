# SPDX-License-Identifier: BSD-2-Clause
"""What the recorder costs a script of Lua: for each table, for each frame, and in memory."""

import shutil
import subprocess
from dataclasses import dataclass

from figure import MIB, Figure
from memory import find_program, resident
from workloads import BENCH, RunFailed

PROGRAM = "lua5.4"
SHALLOW, DEEP = 10, 60  # calls
TABLES, ROUNDS = 200_000, 25
PAIRS = 10_000_000
FRAME_MAX_NS, GROWTH_MAX_MIB = 3, 5


@dataclass
class LuaCost:
    """Nanoseconds for a table: the fastest rounds, by turns. Bytes of growth beyond the plain run's."""

    plain_ns: float
    recorded_ns: float
    frame_ns: float
    grown_bytes: int


class Script:
    """A script that makes tables when it is told to."""

    def __init__(self, machine, name, depth, *wrapper):
        words = [part.format(out=machine.scratch / f"{name}.hl") for part in wrapper]
        self.process = subprocess.Popen([*words, PROGRAM, BENCH / "programs" / "tables.lua", str(depth)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def make(self, tables):
        """Nanoseconds of processor time for each."""
        self.process.stdin.write(f"{tables}\n")
        self.process.stdin.flush()
        said = self.process.stdout.readline()
        if not said:
            raise RunFailed(f"{PROGRAM} ended early")
        return float(said)

    def resident(self):
        """Bytes of the script's process, which the wrapper has started."""
        return resident(find_program(self.process.pid, PROGRAM))[0]

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def growth(script, pairs):
    """Bytes that the process grows by in that number of pairs, once it has made some."""
    script.make(max(1, pairs // 10))
    before = script.resident()
    script.make(pairs)
    return script.resident() - before


def measure_lua(machine, heapline):
    if not shutil.which(PROGRAM):
        raise RunFailed(f"no {PROGRAM}")
    record = (str(heapline), "record", "-q", "-f", "-o", "{out}")
    scripts = [Script(machine, "plain", SHALLOW), Script(machine, "plain-deep", DEEP),
               Script(machine, "recorded", SHALLOW, *record, "--"),
               Script(machine, "recorded-deep", DEEP, *record, "--")]
    try:
        times = [[script.make(TABLES // 100 if machine.small else TABLES) for script in scripts]
                 for _ in range(2 if machine.small else ROUNDS)]
        plain, plain_deep, recorded, recorded_deep = (min(column) for column in zip(*times))
        pairs = PAIRS // 1000 if machine.small else PAIRS
        grown = growth(scripts[2], pairs) - growth(scripts[0], pairs)
    finally:
        for script in scripts:
            script.end()
    added = (recorded_deep - plain_deep) - (recorded - plain)
    return LuaCost(plain, recorded, added / (DEEP - SHALLOW), grown)


def lua_figures(cost):
    frame = Figure("Lua: added to a table for each frame of the script", f"at most {FRAME_MAX_NS} ns")
    memory = Figure(f"Lua: growth of the recorder's memory in {PAIRS:,} pairs", f"under {GROWTH_MAX_MIB} MiB")
    if cost:
        frame.measured = (f"{cost.frame_ns:.1f} ns; a table {cost.plain_ns:.0f} ns plain, "
                          f"{cost.recorded_ns:.0f} ns recorded below {SHALLOW} calls")
        frame.met = cost.frame_ns <= FRAME_MAX_NS
        memory.measured = f"{cost.grown_bytes / MIB:.2f} MiB"
        memory.met = cost.grown_bytes < GROWTH_MAX_MIB * MIB
    return [frame, memory]
