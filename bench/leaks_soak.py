#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Scans busy programs that lose nothing by `heapline leaks`, and says what each false report is.

leaks_soak.py HEAPLINE LEAKS_CXX [--scans N] [--stop | --running] [NAME...]
"""

import argparse
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "e2e"))
import busy_programs

REVISITS, REVISIT_S = 5, 0.02
NEAR_BYTES = 32


def read_memory(pid, address, length):
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(length)
    except OSError:
        return b""


def words_of(data):
    return struct.unpack(f"<{len(data) // 8}Q", data[:len(data) // 8 * 8])


def find_references(pid, address):
    """Where the process has a word that points to the block; the process runs on meanwhile."""
    found = []
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        for line in maps:
            start, end, mode, path = re.match(r"(\w+)-(\w+) (\S+) \S+ \S+ \S+\s*(.*)", line).groups()
            start, end = int(start, 16), int(end, 16)
            if not mode.startswith("rw") or path.startswith("[v"):
                continue
            data = read_memory(pid, start, end - start)
            at = data.find(struct.pack("<Q", address))
            while at >= 0:
                if at % 8 == 0:
                    found.append(f"0x{start + at:x} {path}")
                at = data.find(struct.pack("<Q", address), at + 1)
    return found


def explain(pid, block):
    """Prints what a block is that was called lost, and what becomes of it."""
    address, size = int(block["address"], 16), block["size"]
    print(f"  {block['address']} {size} bytes, {block.get('type') or 'no class'}, "
          f"words {block['words']} text {block['text']!r}")
    for _ in range(REVISITS):
        near = read_memory(pid, address - NEAR_BYTES, size + 2 * NEAR_BYTES)
        words = words_of(near)
        if words:
            mangled = words[NEAR_BYTES // 8] ^ address >> 12
            print(f"    around {' '.join(f'{word:x}' for word in words[:12])}; "
                  f"the first word as a link of a free list: 0x{mangled:x}")
        print(f"    references: {find_references(pid, address) or 'none'}")
        time.sleep(REVISIT_S)


def scan(heapline, pid, options):
    result = subprocess.run([heapline, "leaks", "-p", str(pid), "--json", "--show", "20", *options],
                            capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(result.stderr)
    return json.loads(result.stdout)


def soak(heapline, name, pid, options, scans):
    """A block that every scan reports is lost; one that only some report is a false report."""
    bad, always = 0, None
    seen = {}
    for number in range(scans):
        report = scan(heapline, pid, options)
        blocks = {block["address"]: block for block in report["blocks"]}
        always = set(blocks) if always is None else always & set(blocks)
        new = [block for address, block in blocks.items() if address not in seen]
        seen.update(blocks)
        if number and new:
            bad += 1
            print(f"{name} {' '.join(options)}: scan {number}: {len(new)} new blocks after "
                  f"{report['total']['passes']} passes; {report['notes']}", flush=True)
            for block in new[:5]:
                explain(pid, block)
    how = "--stop" if options else "running"
    print(f"{name}, {how}: {scans} scans; {len(always or ())} blocks lost in all of them, "
          f"{len(seen) - len(always or ())} in some (in {bad} scans after the first)", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("heapline", type=Path)
    parser.add_argument("leaks_cxx", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(busy_programs.NAMES))
    parser.add_argument("--scans", type=int, default=1000)
    parser.add_argument("--stop", action="store_true", help="only with --stop")
    parser.add_argument("--running", action="store_true", help="only without")
    arguments = parser.parse_intermixed_args()
    for name in arguments.names or busy_programs.NAMES:
        with tempfile.TemporaryDirectory() as directory:
            with busy_programs.start(name, directory, arguments.leaks_cxx) as pid:
                if not pid:
                    print(f"{name}: not there")
                    continue
                for options in ((), ("--stop",)):
                    if (arguments.stop and not options) or (arguments.running and options):
                        continue
                    soak(arguments.heapline, name, pid, options, arguments.scans)


if __name__ == "__main__":
    main()
