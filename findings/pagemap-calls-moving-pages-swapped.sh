#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Linux 6.18: while the kernel moves pages (compaction), /proc/PID/pagemap and PAGEMAP_SCAN say of them "swapped" (bit 62), on a machine without
# swap and while VmSwap of the process is 0. The documentation of pagemap names bit 62 "page swapped" alone. A reader that leaves out what
# is on swap misses pages that are in RAM.
#
# Seen with Python 3 as the reader, 400 MiB and compaction in a loop: some 800 pages in 270 looks within 20 s, VmSwap 0 kB.
# heapline believes the bit only of a process whose VmSwap is not 0. Needs root, to ask for compaction.
set -euo pipefail

uname -r
python3 - <<'P'
import ctypes, mmap, os, threading, time

memory = mmap.mmap(-1, 400 << 20)
for at in range(0, 400 << 20, 4096):
    memory[at] = 1
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
ended = threading.Event()

def compact():
    while not ended.is_set():
        with open("/proc/sys/vm/compact_memory", "w") as file:
            file.write("1")

threading.Thread(target=compact, daemon=True).start()
pagemap = os.open("/proc/self/pagemap", os.O_RDONLY)
swapped = looks = 0
until = time.monotonic() + 60
while time.monotonic() < until and not swapped:
    for at in range(0, 400 << 20, 128 << 20):
        entries = os.pread(pagemap, 32768 * 8, (start + at) // 4096 * 8)
        swapped += sum(1 for i in range(0, len(entries), 8) if entries[i + 7] & 0x40)
    looks += 1
ended.set()
with open("/proc/self/status") as file:
    on_swap = next(line.split()[1] for line in file if line.startswith("VmSwap"))
print(f"{swapped} pages called swapped within {looks} looks; VmSwap {on_swap} kB")
assert swapped and on_swap == "0"
P
