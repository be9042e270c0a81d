# SPDX-License-Identifier: BSD-2-Clause
"""slab_blocks: a program whose threads have blocks of many sizes on whichever allocator it runs."""

import json
import os
import subprocess

import harness
from harness import HEAPLINE, program, run

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
# Threads, blocks of each, how many of 1000 stay, seed
SMALL = (3, 8000, 300, 1)
HEAPS = (SMALL, (1, 20000, 20, 2), (2, 12000, 900, 3), (6, 4000, 500, 4), (4, 6000, 0, 5))


class Blocks:
    """The program, which has said "ready"; ``live`` is its ledger, ``figures`` what the allocator says, ``blocks`` each block
    where it was asked for them. ``library`` is preloaded if it is not built in."""

    def __init__(self, library, command="slab_blocks", *, arguments=SMALL, environment=None):
        environment = dict(environment or {})
        if command == "slab_blocks":
            if not os.path.exists(f"{LIBRARIES}/{library}"):
                raise harness.unittest.SkipTest(f"{library} is not installed")
            environment["LD_PRELOAD"] = f"{LIBRARIES}/{library}"
        self.threads = arguments[0]
        self.process = subprocess.Popen([program(command), *map(str, arguments)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=dict(os.environ, **environment))
        self.pid = self.process.pid
        self.listen()

    def listen(self):
        self.figures, self.blocks = {}, set()
        for line in self.process.stdout:
            word, *words = line.split()
            if word == "ready":
                return
            if word == "block":
                self.blocks.add(tuple(map(int, words)))
            elif word == "live":
                self.live = tuple(map(int, words))
            else:
                self.figures[words[0]] = int(words[1])
        raise AssertionError("the program ended")

    def tell(self, letter):
        self.process.stdin.write(letter)
        self.process.stdin.flush()
        self.listen()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(harness.TIMEOUT_S)


def ask(verb, *options):
    result = run([HEAPLINE, verb, "--json", *map(str, options)])
    if result.status:
        raise AssertionError(result.stderr)
    return json.loads(result.stdout)
