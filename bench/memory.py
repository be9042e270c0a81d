# SPDX-License-Identifier: BSD-2-Clause
"""How much memory the recorder takes: resident pages of the target with it, less those without."""

import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from workloads import CompilerCase, RunFailed

POLL_S = 0.02
BIG_HEAP_MIB = 1024
RECORDING = "memory.hl"


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


def resident(pid):
    """(all resident bytes, those of the heap segment), or (0, 0) once the process is gone."""
    total = heap = 0
    in_heap = False
    try:
        for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
            if line.startswith("Rss:"):
                size = int(line.split()[1]) * 1024
                total += size
                heap += size if in_heap else 0
            elif "-" in line.split(" ", 1)[0]:
                in_heap = line.endswith("[heap]")
    except OSError:
        return 0, 0
    return total, heap


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
