#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The heap of mimalloc, read from outside without a recorder."""

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import time
from pathlib import Path

import harness
from harness import HEAPLINE, need, program, rss_of, run

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
KINDS = ("holes", "emptied", "threads", "remote", "large")
THREADS = 4  # of the ledger; for each the C library has a block, too


def installed():
    """Those of each major version."""
    return [path for name in ("libmimalloc.so.2", "libmimalloc.so.3")
            if os.path.exists(path := f"{LIBRARIES}/{name}")]


class Ledger:
    """A program with a heap of ${kind}, whose live blocks are in ``blocks``: usable bytes by address."""

    def __init__(self, kind, path, library=None, name="mimalloc_ledger"):
        environment = dict(os.environ, **({"LD_PRELOAD": library} if library else {}))
        self.process = subprocess.Popen([program(name), kind, path], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, env=environment)
        self.pid = self.process.pid
        if self.process.stdout.readline() != b"ready\n":
            raise AssertionError("the ledger ended")
        lines = Path(path).read_text("ascii").splitlines()
        self.blocks = {int(address): int(usable) for address, usable in map(str.split, lines)}

    def collect(self):
        self.process.stdin.write(b"c")
        self.process.stdin.flush()
        self.process.stdout.readline()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(harness.TIMEOUT_S)


def dump(*arguments):
    result = run([program("heap_dump"), *map(str, arguments)])
    if result.status:
        raise AssertionError(result.stderr)
    return json.loads(result.stdout)


def total(heap, key):
    return sum(arena[key] for arena in heap["arenas"])


class Mimalloc(harness.TestCase):
    def ledger(self, kind, library=None, name="mimalloc_ledger"):
        return Ledger(kind, self.path("ledger"), library, name)

    def each(self, *kinds):
        if not installed():
            self.skipTest("no mimalloc is installed")
        for library in installed():
            for kind in kinds:
                with self.subTest(library=library, kind=kind), self.ledger(kind, library) as ledger:
                    yield ledger

    def expect_ledger(self, ledger, heap):
        found = {address: usable for address, usable, _ in heap["blocks"]}
        self.assertEqual({address: found.get(address) for address in ledger.blocks}, ledger.blocks)
        self.assertLessEqual(len(found) - len(ledger.blocks), THREADS)
        self.assertEqual((total(heap, "unscanned_bytes"), heap["abandoned"]), (0, 0))

    def test_each_live_block_is_one_of_the_ledger(self):
        for ledger in self.each(*KINDS):
            before = Path(f"/proc/{ledger.pid}/statm").read_text("ascii")
            for options in [], ["--stop"]:
                self.expect_ledger(ledger, dump(*options, "--blocks", ledger.pid))
            self.assertEqual(Path(f"/proc/{ledger.pid}/statm").read_text("ascii"), before)

    def test_a_purge_gives_back_what_was_foretold(self):
        for ledger in self.each(*KINDS):
            time.sleep(1.5)  # releases before 2.1.4 give back only what has waited for a while
            foretold = total(dump(ledger.pid), "trimmable_bytes")
            before = rss_of(ledger.pid, "Anonymous:")
            ledger.collect()
            self.assertLess(abs(before - rss_of(ledger.pid, "Anonymous:") - foretold), before // 100)

    def test_parts_add_up_to_what_the_kernel_counts(self):
        for ledger in self.each("remote"):
            result = run([HEAPLINE, "heap", "--json", "-p", str(ledger.pid)])
            self.assertEqual(result.status, 0, result.stderr)
            heap = json.loads(result.stdout)
            parts = {row["part"]: row["bytes"] for row in heap["resident"]}
            self.assertEqual(heap["allocator"], "mimalloc")
            self.assertEqual(sum(parts.values()), rss_of(ledger.pid))
            self.assertEqual(parts.get("other allocators", 0), 0)
            # The ledger's array, and little else that is not known.
            self.assertLess(parts["other anonymous mappings"], 1 << 20)
            sums = heap["total"]
            self.assertEqual(sums["system_bytes"], sum(sums[key] for key in (
                "inuse_bytes", "tcache_bytes", "free_bytes", "overhead_bytes", "unscanned_bytes")))
            self.assertGreater(sums["tcache_bytes"], 0)  # another thread has freed some

    def test_a_core_file_says_the_same(self):
        gcore = need("gcore")
        for ledger in self.each("remote"):
            made = run([gcore, "-o", self.path("core"), str(ledger.pid)])
            self.assertEqual(made.status, 0, made.stderr)
            heap = dump("--blocks", self.path(f"core.{ledger.pid}"))
            self.expect_ledger(ledger, heap)
            live = dump(ledger.pid)
            for key in "inuse_bytes", "tcache_bytes":
                self.assertEqual(total(heap, key), total(live, key), key)

    def test_symbols_are_not_needed(self):
        strip = need("strip")
        if not installed():
            self.skipTest("no mimalloc is installed")
        for library in installed():
            # The name, too, says nothing.
            copy = shutil.copy(os.path.realpath(library), self.path("plain.so"))
            self.assertEqual(run([strip, copy]).status, 0)
            with self.subTest(library=library), self.ledger("holes", copy) as ledger:
                self.expect_ledger(ledger, dump("--blocks", ledger.pid))

    def test_built_into_its_program(self):
        if not os.path.exists(os.path.join(harness.PROGRAMS, "mimalloc_ledger_in")):
            self.skipTest("there is no libmimalloc.a")
        with self.ledger("threads", name="mimalloc_ledger_in") as ledger:
            self.expect_ledger(ledger, dump("--blocks", ledger.pid))

    def test_while_threads_allocate_the_sums_are_within_a_percent(self):
        for ledger in self.each("storm"):
            live = sum(ledger.blocks.values())
            found = [total(dump(ledger.pid), "inuse_bytes") for _ in range(9)]
            self.assertLess(abs(statistics.median(found) - live), live // 100, found)
            stopped = dump("--stop", ledger.pid)
            # A thread may have been stopped within the allocator, so that its page does not fit together.
            self.assertLess(abs(total(stopped, "inuse_bytes") - live),
                            live // 1000 + total(stopped, "unscanned_bytes"))

    def test_pages_that_few_blocks_keep_are_pins(self):
        for ledger in self.each("emptied"):
            with contextlib.closing(ledger.process.stdin):
                pins = dump("--pins", ledger.pid)["pins"]
                self.assertGreater(sum(pin["returned_bytes"] for pin in pins),
                                   10 * sum(pin["live_bytes"] for pin in pins))


if __name__ == "__main__":
    harness.main()
