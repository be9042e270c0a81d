#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Instructions of one malloc() and free() under the recorder, on each machine: counted by qemu-user, of two runs of bench/alloc_ring.c
that differ in the number of pairs.

instructions.py BUILD_X86_64 BUILD_AARCH64 ROOT_OF_ARM64: builds of one kind (-Dbuildtype=plain -Doptimization=2), with
bench/; where the kernel runs programs of aarch64 (scripts/check_arm64.sh has such namespaces).
"""

import os
import pathlib
import subprocess
import sys
import tempfile

DEPTHS = (12, 24)
PAIRS = 50_000


def count(qemu, plugin, build, root, depth, pairs, options):
    """Instructions that the program has run."""
    program = [qemu, *(["-L", root] if root else []), "-plugin", plugin]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        if options:
            recorder = os.path.join(build, "src/recorder/libheapline.so")
            program += ["-E", f"LD_PRELOAD={recorder}", "-E", f"HEAPLINE_RECORD=-q {options} -o {folder}/r.hl"]
        read, write = os.pipe()
        command = [*program, os.path.join(build, "bench/alloc_ring"), str(depth), "1", str(pairs)]
        with subprocess.Popen(["bash", "-c", f'exec "$@" 3>&{write}', "bash", *command], pass_fds=[write], stdout=subprocess.DEVNULL) as child:
            os.close(write)
            with os.fdopen(read) as said:
                counts = [int(line) for line in said]
        if child.returncode or not counts:
            sys.exit(f"instructions.py: {' '.join(command)} ended with {child.returncode}")
        return max(counts)


def main():
    x86_64, aarch64, root = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        plugin = os.path.join(folder, "count.so")
        source = pathlib.Path(__file__).with_name("count_instructions.c")
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", plugin, source], check=True)
        machines = {"x86-64": ("qemu-x86_64", plugin, x86_64, None), "aarch64": ("qemu-aarch64", plugin, aarch64, root)}
        for depth in DEPTHS:
            for mode in ("", "mem-fast", "log-fast"):
                options = f"--mode {mode}" if mode else ""
                pair = {name: (count(*machine, depth, 2 * PAIRS, options) - count(*machine, depth, PAIRS, options)) / PAIRS
                        for name, machine in machines.items()}
                print(f"{depth} frames, {mode or 'plain'}: " + ", ".join(f"{name} {number:.0f}" for name, number in pair.items()) +
                      f", ratio {pair['aarch64'] / pair['x86-64']:.2f}", flush=True)


if __name__ == "__main__":
    main()
