# SPDX-License-Identifier: BSD-2-Clause
"""The shared file in which `churn` says how far its threads came, and what counts follow."""

import mmap
import struct
import tempfile

BYTES = 4096
WINDOW = 61
SIZES = 997
SIZE_STEP = 7
PROGRESS_OFFSETS = (64, 128)  # of struct progress in struct ledger

_PERIOD = [k * SIZE_STEP + 1 for k in range(SIZES)]
_PREFIX = [0]
for _size in _PERIOD:
    _PREFIX.append(_PREFIX[-1] + _size)


def _bytes_of_first(count):
    """Bytes of the first ${count} allocations of a thread."""
    return count // SIZES * _PREFIX[-1] + _PREFIX[count % SIZES]


def counts_after(events):
    """What a thread has (allocated bytes, objects, in use bytes, objects) after EVENTS events."""
    freed = (events - WINDOW + 1) // 2 if events > WINDOW else 0
    allocated = events - freed
    alloc_bytes = _bytes_of_first(allocated)
    return {"alloc_bytes": alloc_bytes, "alloc_objects": allocated,
            "inuse_bytes": alloc_bytes - _bytes_of_first(freed),
            "inuse_objects": allocated - freed}


def shared_path(test):
    """A file in memory for the length of a test."""
    memory = tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="heapline-e2e-ledger-")
    test.addCleanup(memory.close)
    return memory.name


class Ledger:
    def __init__(self, path):
        self.path = path
        with open(path, "wb+") as file:
            file.truncate(BYTES)
            self.memory = mmap.mmap(file.fileno(), BYTES)

    def pid(self):
        return struct.unpack_from("<I", self.memory, 0)[0]

    def progress(self, thread):
        """(begun, done) of a thread; exact once the program is dead."""
        return struct.unpack_from("<QQ", self.memory, PROGRESS_OFFSETS[thread])

    def close(self):
        self.memory.close()
