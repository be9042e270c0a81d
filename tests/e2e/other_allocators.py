# SPDX-License-Identifier: BSD-2-Clause
"""Programs with another allocator than glibc's, under `heapline record`."""

import os
import subprocess

import harness

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
ALLOCATORS = ("libjemalloc.so.2", "libmimalloc.so.2", "libtcmalloc_minimal.so.4")
MODES = ("mem-fast", "mem-record")
TABLE = "by the recorder's table"
WALKED = {"libjemalloc.so.2": "jemalloc", "libmimalloc.so.2": "mimalloc",
          "libtcmalloc_minimal.so.4": "tcmalloc"}  # as reports call them


def installed():
    found = [name for name in ALLOCATORS if os.path.exists(f"{LIBRARIES}/{name}")]
    if not found:
        raise harness.unittest.SkipTest("no allocator besides glibc's is installed")
    return found


def not_walked():
    found = [name for name in installed() if name not in WALKED]
    if not found:
        raise harness.unittest.SkipTest("no allocator is installed whose heap cannot be walked")
    return found[0]


def preload(library):
    return {"LD_PRELOAD": f"{LIBRARIES}/{library}"}


class Recorded:
    """A program under `heapline record` that has said "ready"; ``lines`` are the words of each line before.

    The end of its input ends it.
    """

    def __init__(self, recording, mode, command, environment):
        self.collector = subprocess.Popen(
            harness.record_command(recording, command, mode, ["-f"]), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=dict(os.environ, **environment))
        self.lines = []
        for line in self.collector.stdout:
            if line == "ready\n":
                break
            self.lines.append(line.split())
        self.pid = harness.children_of(self.collector.pid)[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.collector.stdin.close()
        self.collector.stdout.close()
        self.collector.wait(harness.TIMEOUT_S)
