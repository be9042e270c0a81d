#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""In how small a control group a program lives: alone, recorded in the group, and joined from outside.

usage: limits.py BUILD [SIZE...]      as root, with control groups of either version; BUILD has heapline and tests/e2e/blocks

For each block size a program keeps about 100 MB in blocks of it and then frees half of them. The table has the lowest limit, in steps of
1 MiB, from which on up to half as much again it was never killed.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MIB = 1 << 20
SIZES = (16, 24, 48, 72, 96, 128, 200, 400, 1000, 4000)


def hierarchy():
    v1 = Path("/sys/fs/cgroup/memory")
    return (v1, "memory.limit_in_bytes") if v1.is_dir() else (Path("/sys/fs/cgroup"), "memory.max")


class Group:
    def __init__(self):
        root, self.limit = hierarchy()
        self.path = root / f"heapline-limits-{os.getpid()}"
        self.path.mkdir()

    def set_limit(self, mib):
        (self.path / self.limit).write_text(str(mib * MIB))

    def start(self, command):
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                preexec_fn=lambda: (self.path / "cgroup.procs").write_text(str(os.getpid())))

    def remove(self):
        while self.path.exists():
            try:
                self.path.rmdir()
            except OSError:
                time.sleep(0.01)


def lives(process, joined=None):
    """Whether it does its work; `joined`: the heapline that has joined it."""
    process.stdout.readline()
    if joined:
        while b"memfd:heapline" not in Path(f"/proc/{process.pid}/maps").read_bytes():
            time.sleep(0.01)
        time.sleep(0.2)
    try:
        process.stdin.write("\n")
        process.stdin.flush()
        done = process.stdout.readline().startswith("kept")
        process.stdin.close()
    except BrokenPipeError:
        done = False
    if joined:
        joined.send_signal(signal.SIGINT)
        joined.wait()
    return process.wait() == 0 and done


def lowest(first, last, is_fine):
    """The lowest number from which on all are fine."""
    found = None
    for mib in range(last, first - 1, -1):
        if not is_fine(mib):
            return found
        found = mib
    return found


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build = Path(sys.argv[1])
    sizes = [int(word) for word in sys.argv[2:]] or SIZES
    heapline, program = str(build / "heapline"), str(build / "tests/e2e/blocks")
    group = Group()
    print("| bytes a block | blocks | alone | recorded | joined |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        recording = os.path.join(folder, "x.hl")
        for size in sizes:
            command = [program, str(100_000_000 // max(size + 8, 32)), str(size)]

            def alone(mib, command=command):
                group.set_limit(mib)
                return lives(group.start(command))

            def recorded(mib, command=command):
                group.set_limit(mib)
                return lives(group.start([heapline, "record", "-q", "-f", "-o", recording, "--", *command]))

            def joined(mib, command=command):
                group.set_limit(mib)
                process = group.start(command)
                with subprocess.Popen([heapline, "attach", "-q", "-p", str(process.pid), "-f", "-o", recording],
                                      stderr=subprocess.DEVNULL) as heapline_process:
                    return lives(process, heapline_process)

            least = lowest(60, 180, alone)
            last = least + least // 2
            figures = [least, lowest(least, last, recorded), lowest(least, last, joined)]
            print(f"| {size} | {command[1]} | " + " | ".join(f"{figure} MiB" for figure in figures) + " |", flush=True)
    group.remove()


if __name__ == "__main__":
    main()
