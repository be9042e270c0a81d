# SPDX-License-Identifier: BSD-2-Clause
"""A random multi-threaded program that keeps its own ledger, compared stack by stack."""

import os

import harness

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
STACKS_AT_LEAST = 500
KEYS = (("alloc", "bytes"), ("alloc", "objects"), ("inuse", "bytes"), ("inuse", "objects"))


def read_ledger(text):
    """{(value, unit): {stack: number}} of what `ledger` prints; without stacks of 0."""
    ledger = {key: {} for key in KEYS}
    for line in text.splitlines():
        frames, *numbers = line.split()
        stack = tuple(frames.split(";"))
        for key, number in zip(KEYS, numbers):
            if int(number):
                ledger[key][stack] = ledger[key].get(stack, 0) + int(number)
    return ledger


def ledger_stacks(stacks):
    """The part of each stack that the program's ledger knows: from the first hop to the entry."""
    found = {}
    for frames, number in stacks.items():
        known = tuple(f for f in frames if f.startswith(("hop_", "by_")))
        if known and number:
            found[known] = found.get(known, 0) + number
    return found


class RandomLedger(harness.TestCase):
    def compare(self, seed, threads, mode, *words, **run_options):
        command = [harness.program("ledger"), str(seed), str(threads), "60000", *words]
        result, recording = self.record_well(command, mode, name=f"{seed}.hl", **run_options)
        expected = read_ledger(result.stdout)
        self.assertGreaterEqual(len(expected["alloc", "objects"]), STACKS_AT_LEAST)
        for value, unit in KEYS:
            with self.subTest(value=value, unit=unit, mode=mode, seed=seed, threads=threads):
                found = ledger_stacks(harness.folded(recording, value, unit))
                self.assertEqual(found, expected[value, unit])
        self.assert_nothing_lost(recording)

    def test_two_threads_equal_their_ledger_stack_by_stack_in_mem_record(self):
        self.compare(11, 2, "mem-record")

    def test_two_threads_equal_their_ledger_stack_by_stack_in_mem_fast(self):
        self.compare(12, 2, "mem-fast")

    def test_eight_threads_equal_their_ledger_stack_by_stack_in_mem_record(self):
        self.compare(13, 8, "mem-record")

    def test_eight_threads_equal_their_ledger_stack_by_stack_in_mem_fast(self):
        self.compare(14, 8, "mem-fast")

    def compare_small_blocks(self, library):
        """Of up to 40 bytes, where one entry of the block table has two owners."""
        path = os.path.join(LIBRARIES, library)
        if not os.path.exists(path):
            self.skipTest(f"no {path}")
        self.compare(15, 4, "mem-fast", "40", env={"LD_PRELOAD": path})

    def test_small_blocks_of_glibc_equal_their_ledger(self):
        self.compare(15, 4, "mem-fast", "40")

    def test_small_blocks_of_jemalloc_equal_their_ledger(self):
        self.compare_small_blocks("libjemalloc.so.2")

    def test_small_blocks_of_mimalloc_equal_their_ledger(self):
        self.compare_small_blocks("libmimalloc.so.2")

    def test_small_blocks_of_tcmalloc_equal_their_ledger(self):
        self.compare_small_blocks("libtcmalloc_minimal.so.4")


if __name__ == "__main__":
    harness.main()
