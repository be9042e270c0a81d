#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Linux 6.18: cachestat(2) of a file on an overlay file system, on which containers' images lie, reports 0 pages in the page cache while
# mincore(2) of the same file, opened the same way, reports all of them: a mapping leads to the file below, whose pages these are, and
# cachestat() looks at the overlay's own inode. The call succeeds. fincore of util-linux 2.38, which uses mincore(), has the right figure.
#
# Seen: 6 MiB read through the overlay: mincore 1536 pages, cachestat 0; of the file below cachestat 1536. `heapline pod` uses
# mincore() for such files. Needs root, to mount, and Linux 6.5.
set -euo pipefail

uname -r
folder=$(mktemp -d)
trap 'umount "$folder/merged" 2>/dev/null || true; rm -rf "$folder"' EXIT
mkdir "$folder"/{lower,upper,work,merged}
head -c $((6 << 20)) /dev/urandom >"$folder/lower/file"
mount -t overlay overlay -o "lowerdir=$folder/lower,upperdir=$folder/upper,workdir=$folder/work" "$folder/merged"
cat "$folder/merged/file" >/dev/null
python3 - "$folder/merged/file" "$folder/lower/file" <<'P'
import ctypes, mmap, os, sys

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
CACHESTAT = 451


def pages(path):
    """(by mincore, by cachestat)"""
    fd, size = os.open(path, os.O_RDONLY), os.path.getsize(path)
    at = libc.mmap(None, ctypes.c_size_t(size), mmap.PROT_READ, mmap.MAP_SHARED, fd, ctypes.c_long(0))
    resident = (ctypes.c_ubyte * (size // mmap.PAGESIZE))()
    assert libc.mincore(ctypes.c_void_p(at), ctypes.c_size_t(size), resident) == 0
    whole, cached = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    assert libc.syscall(CACHESTAT, fd, whole, cached, 0) == 0, os.strerror(ctypes.get_errno())
    return sum(byte & 1 for byte in resident), cached[0]


overlay, below = map(pages, sys.argv[1:])
print(f"overlay: mincore {overlay[0]}, cachestat {overlay[1]}; below: mincore {below[0]}, cachestat {below[1]}")
assert overlay == (1536, 0) and below == (1536, 1536)
P
