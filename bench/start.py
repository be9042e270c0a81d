#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Processor time of the shortest programs under `heapline record`: one that does nothing, and a shell that runs 200 of them.

start.py HEAPLINE... : minima of interleaved rounds, and those of the program by itself. Recordings lie in memory and are removed at the end:
a file system without a journal looks for inodes that were not freed a moment ago, which would be measured, too.
"""

import argparse
import itertools
import os
import resource
import subprocess
import tempfile

CHILDREN = 200
SHELL = f"i=0; while [ $i -lt {CHILDREN} ]; do /bin/true; i=$((i+1)); done"
CASES = (("true", ["/bin/true"], 20), (f"{CHILDREN} children of a shell", ["/bin/sh", "-c", SHELL], 1))


def cpu_ms(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("heapline", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        number = itertools.count()
        ways = {"plain": lambda: []} | {
            path: lambda path=path: [path, "record", "-q", "-o", f"{scratch}/{next(number)}", "--"]
            for path in given.heapline}
        for title, command, runs in CASES:
            least = dict.fromkeys(ways, float("inf"))
            for _, way in itertools.product(range(given.rounds), ways):
                least[way] = min(least[way], *(cpu_ms(ways[way]() + command) for _ in range(runs + 1)))
            print(title)
            for way, ms in least.items():
                print(f"  {ms:8.2f} ms  {ms / least['plain']:5.2f} times  +{ms - least['plain']:.2f} ms  {way}")


if __name__ == "__main__":
    main()
