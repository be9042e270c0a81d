#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""How much memory the recorder takes: resident pages of the target with it, less those without.

usage: memory.py BUILD    prints what the block table takes, as `run.py --only table` does
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from figure import MIB, Figure
from servers import RedisCase
from workloads import CompilerCase, Machine, ObjectsCase, PythonCase, RunFailed, RustCase

POLL_S = 0.02
BIG_HEAP_MIB = 1024
RECORDING = "memory.hl"
LEAF_KIB = 10276  # struct hl_block_leaf (src/region/block_format.h) in whole pages


@dataclass
class Footprint:
    """Of one program, at the moment when it was largest. Bytes."""

    title: str
    plain_rss: int
    recorded_rss: int
    heap: int  # resident pages that hold malloc's blocks, in the plain run
    nodes: int
    blocks: int = 0  # that live; 0 where the bar is about bytes

    @property
    def recorder(self):
        return self.recorded_rss - self.plain_rss

    def allowed(self):
        """What the bar allows: 30 % of the heap and 100 bytes a stack node."""
        return int(0.3 * self.heap) + 100 * self.nodes


def children_of(pid):
    """All descendants of a process."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in path.read_text().split():
            found += [int(child), *children_of(int(child))]
    return found


def find_program(pid, name):
    """The process of that name among ``pid`` and its descendants, or None."""
    for candidate in [pid, *children_of(pid)]:
        try:
            if Path(f"/proc/{candidate}/comm").read_text().strip() == name[:15]:
                return candidate
        except OSError:
            continue
    return None


@dataclass
class Mapping:
    access: str
    path: str
    kib: int = 0
    resident: int = 0  # bytes


def mappings(pid):
    """Those of a process; none once it is gone."""
    found = []
    try:
        for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
            words = line.split(None, 5)
            if words[0] == "Size:":
                found[-1].kib = int(words[1])
            elif words[0] == "Rss:":
                found[-1].resident = int(words[1]) * 1024
            elif "-" in words[0]:
                found.append(Mapping(words[1], words[5] if len(words) > 5 else ""))
    except OSError:
        return []
    return found


def resident(pid):
    """(all resident bytes, those of the heap segment), or (0, 0) once the process is gone."""
    found = mappings(pid)
    return (sum(mapping.resident for mapping in found),
            sum(mapping.resident for mapping in found if mapping.path == "[heap]"))


def table_and_heap(pid):
    """Resident bytes of the block table's leaves, and of what may be heap: private memory without a file, but for stacks of
    the kernel's making."""
    found = mappings(pid)
    return (sum(mapping.resident for mapping in found
                if mapping.kib == LEAF_KIB and mapping.path.startswith("/dev/zero")),
            sum(mapping.resident for mapping in found
                if mapping.access == "rw-p" and mapping.path in ("", "[heap]")))


def command_under(recorder, command):
    if not recorder:
        return [str(word) for word in command]
    return [str(recorder), "record", "--mode", "mem-fast", "-f", "-o", RECORDING, "--",
            *map(str, command)]


def start(machine, recorder, command):
    return subprocess.Popen(command_under(recorder, command), cwd=machine.scratch, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL)


def waiting_footprint(machine, recorder, program, *words):
    """Of a program that says when it is ready, and waits."""
    command = [machine.build / "bench" / program, *words]
    with start(machine, recorder, command) as process:
        ready = process.stdout.readline()
        measured = resident(find_program(process.pid, program) or 0)
        process.stdin.close()
        if process.wait() or ready != "ready\n":
            raise RunFailed(f"{program} did not get ready")
    return measured


def big_heap_footprint(machine, recorder):
    return waiting_footprint(machine, recorder, "big_heap", 8 if machine.small else BIG_HEAP_MIB)


def block_count(machine):
    return 20_000 if machine.small else 20_000_000


def many_blocks_footprint(machine, recorder):
    return waiting_footprint(machine, recorder, "small_blocks", block_count(machine), 24)


def compiler_footprint(machine, recorder):
    command = CompilerCase().command(machine)
    largest = (0, 0)
    with start(machine, recorder, command) as process:
        while process.poll() is None:
            pid = find_program(process.pid, os.path.basename(command[0]))
            if pid:
                largest = max(largest, resident(pid))
            time.sleep(POLL_S)
        if process.returncode:
            raise RunFailed("cc1plus failed")
    return largest


def recorded_share(machine, heapline, name, command, environment):
    """(table, heap) of a program when its heap is largest."""
    largest = (0, 0)
    with subprocess.Popen(command_under(heapline, command), cwd=machine.scratch,
                          env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            pid = find_program(process.pid, name)
            if pid:
                largest = max(largest, table_and_heap(pid), key=lambda share: share[1])
            time.sleep(POLL_S)
        if process.returncode:
            raise RunFailed(f"{name} failed")
    return largest


def redis_share(machine, heapline):
    """The same of a redis-server after a load."""
    case = RedisCase(16, 600_000)
    with subprocess.Popen(command_under(heapline, case.command(machine)), cwd=machine.scratch,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        case.wait_ready(machine, server)
        case.load(machine)
        share = table_and_heap(find_program(server.pid, "redis-server") or 0)
        case.stop(machine)
    return share


def share_figure(title, measure):
    """What the table alone takes: an eighth of a heap of glibc's."""
    figure = Figure(f"block table, {title}", "at most 12.5 % of the heap's resident pages")
    try:
        table, heap = measure()
    except (RunFailed, OSError, subprocess.CalledProcessError) as problem:
        figure.measured = str(problem)
        return figure
    if heap:
        figure.measured = f"{100 * table / heap:.1f} %: {table / MIB:.1f} of {heap / MIB:.1f} MiB"
        figure.met = table <= 0.125 * heap
    return figure


def added_figure(machine, heapline):
    """What exact recording adds, with all that the recorder has."""
    blocks = 20_000 if machine.small else 2_000_000
    plain, heap = waiting_footprint(machine, None, "small_blocks", blocks, 80)
    recorded, _ = waiting_footprint(machine, heapline, "small_blocks", blocks, 80)
    return Figure(f"recorder's memory, {blocks:,} blocks of 80 bytes", "at most 14 % of the heap",
                  f"{100 * (recorded - plain) / heap:.1f} %: {(recorded - plain) / MIB:.1f} of "
                  f"{heap / MIB:.1f} MiB", recorded - plain <= 0.14 * heap)


def table_figures(machine, heapline):
    """The bars of the block table."""
    figures = [added_figure(machine, heapline)]
    for case in (PythonCase(), ObjectsCase(), CompilerCase(), RustCase()):
        if case.missing():
            figures.append(Figure(f"block table, {case.title}", "", case.missing()))
            continue
        case.prepare(machine)
        command = case.command(machine)
        figures.append(share_figure(case.title, lambda case=case, command=command: recorded_share(
            machine, heapline, os.path.basename(command[0]), command, case.environment)))
    if not RedisCase(16, 1).missing():
        figures.append(share_figure("redis-server, jemalloc",
                                    lambda: redis_share(machine, heapline)))
    return figures


def node_count(machine, heapline):
    """Stack nodes of the recording that was just made: its stacks and all their beginnings."""
    said = subprocess.run([str(heapline), "info", "--stacks", "--json", RECORDING],
                          cwd=machine.scratch, capture_output=True, text=True, check=True).stdout
    nodes = set()
    for row in json.loads(said)["stacks"]:
        frames = tuple(frame for frame in row["stack"] if not frame.endswith(" inlined)"))
        nodes.update(hash(frames[:depth]) for depth in range(1, len(frames) + 1))
    return len(nodes)


def footprint(title, measure, machine, heapline):
    plain_rss, heap = measure(machine, None)
    recorded_rss, _ = measure(machine, heapline)
    return Footprint(title, plain_rss, recorded_rss, heap, node_count(machine, heapline))


def all_footprints(machine, heapline):
    CompilerCase().prepare(machine)
    programs = {f"heap of {BIG_HEAP_MIB} MiB in small blocks": big_heap_footprint,
                "cc1plus": compiler_footprint}
    found = [footprint(title, measure, machine, heapline) for title, measure in programs.items()]
    blocks = block_count(machine)
    found.append(footprint(f"{blocks // 1_000_000} million blocks of 24 bytes",
                           many_blocks_footprint, machine, heapline))
    found[-1].blocks = blocks
    return found


def main():
    build = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as scratch:
        for figure in table_figures(Machine(build, Path(scratch), small=False),
                                    build / "heapline"):
            print(" | ".join(figure.row()), flush=True)


if __name__ == "__main__":
    main()
