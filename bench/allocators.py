#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What it costs to read 1 GiB of small blocks of each allocator from outside: CPU time, memory, and whether the program changed.

usage: allocators.py BUILD [BLOCKS [FOLDER]]

A program keeps BLOCKS blocks of 16 to 160 bytes (default: 11,200,000) and has freed every tenth; "half" has then freed every second. Its allocator is a library that
is preloaded: the system's, or those of FOLDER. The table has the least of five runs each; "whole" is the command with the table of resident memory.
"""

import glob
import itertools
import json
import os
import subprocess
import sys
import tempfile

from heap import memory_of

LIBRARIES = (("glibc", None), ("jemalloc", "libjemalloc.so.2"), ("tcmalloc", "libtcmalloc_minimal.so.4"),
             ("mimalloc", "libmimalloc.so.[23]"))
RUNS = 5


def read(build, pid):
    """(CPU seconds of the command, peak RSS in MiB, report)"""
    with tempfile.TemporaryFile() as out:
        command = [f"{build}/heapline", "heap", "-p", str(pid), "--json"]
        child = os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, out.fileno(), 1)])
        _, status, used = os.wait4(child, 0)
        if status:
            sys.exit(f"heapline ended with status {os.waitstatus_to_exitcode(status)}")
        out.seek(0)
        return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, json.load(out)


def main(build, blocks="11200000", folder="/usr/lib/x86_64-linux-gnu"):
    print(f"{'allocator':15}{'live, MiB':>11}{'in RAM':>8}{'places':>12}{'whole, s':>10}{'MiB':>6}  program")
    for (name, library), freed in itertools.product(LIBRARIES, ((), ("0", "2"))):
        found = sorted(glob.glob(f"{folder}/{library}")) if library else [""]
        name += ", half" * bool(freed)
        if not found:
            print(f"{name:15}not installed")
            continue
        with subprocess.Popen([f"{build}/bench/small_blocks", blocks, *freed], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              env=dict(os.environ, LD_PRELOAD=found[0])) as program:
            program.stdout.readline()
            before = memory_of(program.pid)
            runs = [read(build, program.pid) for _ in range(RUNS)]
            after = memory_of(program.pid)
            report = runs[-1][2]
            print(f"{name:15}{report['total']['inuse_bytes'] / 2**20:11.0f}{report['total']['rss_bytes'] / 2**20:8.0f}{report['chunks']:12,}"
                  f"{min(run[0] for run in runs):10.2f}{min(run[1] for run in runs):6.0f}  {'unchanged' if before == after else f'{before}, then {after}'}")
            program.stdin.close()


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
