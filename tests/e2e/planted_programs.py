# SPDX-License-Identifier: BSD-2-Clause
"""Programs that know their blocks and tell: what is lost, what keeps them. Of planted and planted_cxx
there is one for each of their kinds."""

import re
import resource
import struct
import subprocess
from contextlib import contextmanager
from pathlib import Path

import harness

NAMES = ("planted", "planted_cxx")


class Telling:
    """A program that tells line by line what it planted, then "ready", and waits for the end of its
    input; ``cores``: it may leave a core file."""

    def __init__(self, *command, cores=False, cwd=None):
        limit = resource.RLIM_INFINITY if cores else 0
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=cwd,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (limit, limit)))
        self.pid = self.process.pid
        self.listen()

    def hear(self, word, *words):
        """Takes in a line."""
        raise NotImplementedError

    def listen(self):
        for line in self.process.stdout:
            word, *words = line.split()
            if word == "ready":
                break
            self.hear(word, *words)
        harness.wait_until(lambda: harness.process_state(self.pid) == "S", "the program to wait")

    def wait_for_threads(self):
        """Until each of its threads sleeps, and was switched away from."""
        tasks = Path(f"/proc/{self.pid}/task")
        harness.wait_until(lambda: all(task.read_text("ascii") != "running\n" for task in tasks.glob("*/syscall")),
                           "the program's threads to wait")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(harness.TIMEOUT_S)


def kinds_of(program):
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()


@contextmanager
def start(program, kind):
    """Yields the number of the process, and the usable bytes of each lost block by its address."""
    with subprocess.Popen([program, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:
        blocks = {}
        try:
            for line in process.stdout:
                if line == "ready\n":
                    break
                _, hidden, size = line.split()
                blocks[~int(hidden) & (1 << 64) - 1] = int(size)
            yield process.pid, blocks
        finally:
            process.kill()


def find_words(pid, blocks):
    """Where words lie outside the heap's lost blocks that lead to one of them."""
    found = []
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        lines = [re.match(r"(\w+)-(\w+) (\S+) \S+ \S+ \S+\s*(.*)", line).groups() for line in maps]
    inside = sorted((address, address + size) for address, size in blocks.items())
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for start_, end_, mode, path in lines:
            if not mode.startswith("rw") or path.startswith("[v"):
                continue
            first, last = int(start_, 16), int(end_, 16)
            memory.seek(first)
            data = memory.read(last - first)
            for offset, (word,) in enumerate(struct.iter_unpack("<Q", data)):
                at = first + offset * 8
                if word in blocks and not any(low <= at < high for low, high in inside):
                    found.append(f"the word at 0x{at:x} ({path or 'no file'}) leads to 0x{word:x}")
    return found
