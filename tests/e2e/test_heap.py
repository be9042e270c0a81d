# SPDX-License-Identifier: BSD-2-Clause
"""The walk of a heap from outside, compared with what the program itself says."""

import json
import os
import subprocess
import unittest

import harness

MALLINFO = "arena ordblks smblks hblks hblkhd fsmblks uordblks fordblks keepcost".split()


class Target:
    """A running heap_target."""

    def __init__(self, *arguments, program="heap_target", env=None):
        environment = dict(os.environ, **(env or {}))
        self.process = subprocess.Popen(
            [harness.program(program), *map(str, arguments)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env=environment)

    def ask(self, command):
        """Its figures and its blocks after a command."""
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        figures, blocks = {}, {}
        for line in self.process.stdout:
            word, *numbers = line.split()
            if word == "end":
                return figures, blocks
            if word == "block":
                blocks[int(numbers[0])] = int(numbers[1])
            else:
                figures[word] = int(numbers[0])
        raise AssertionError(f"the target ended while it was asked to '{command}'")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.kill()
        self.process.wait()


def dump(pid, *options):
    """What the walk found."""
    result = harness.run([harness.program("heap_dump"), *options, str(pid)])
    if result.status != 0:
        raise AssertionError(f"heap_dump fails: {result.stderr}")
    return json.loads(result.stdout)


def rss_of(pid):
    """Rss as the kernel counts it."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Rss:"))


def total(heap, *keys):
    """The sum over all arenas."""
    return sum(arena[key] for arena in heap["arenas"] for key in keys)


def as_mallinfo(heap):
    """What mallinfo2 would say of a heap that was walked."""
    free = total(heap, "free_bytes", "top_bytes", "fastbin_bytes")
    return {
        "arena": total(heap, "system_bytes"),
        "ordblks": total(heap, "free_blocks") + len(heap["arenas"]),
        "smblks": total(heap, "fastbin_blocks"),
        "hblks": heap["mmapped_blocks"],
        "hblkhd": heap["mmapped_bytes"],
        "fsmblks": total(heap, "fastbin_bytes"),
        "uordblks": total(heap, "system_bytes") - free,
        "fordblks": free,
        "keepcost": heap["arenas"][0]["top_bytes"],
    }


class Heap(unittest.TestCase):
    """Programs that stand still are read to the byte."""

    def expect_equal(self, target, *options):
        figures, blocks = target.ask("report")
        heap = dump(figures["pid"], "--blocks", *options)
        walked = as_mallinfo(heap)
        self.assertEqual({key: figures[key] for key in MALLINFO}, walked, heap["notes"])
        self.expect_sums(heap)
        live = {address: size for address, size, _ in heap["blocks"]}
        self.assertEqual(blocks, {address: live.get(address) for address in blocks})
        self.assertEqual(len(live), total(heap, "inuse_blocks") + heap["mmapped_blocks"])
        self.assertLess(len(live) - len(blocks), 1000)
        self.assertEqual(rss_of(figures["pid"]), heap["rss"]["rss_bytes"])
        return heap

    def expect_sums(self, heap):
        self.assertEqual(total(heap, "unscanned_bytes"), 0)
        self.assertEqual(heap["abandoned"], 0)
        self.assertEqual(heap["mmapped_bytes"], heap["mp_mmapped_bytes"])
        self.assertEqual(heap["mmapped_blocks"], heap["mp_mmapped_blocks"])
        own = {carrier["address"]: carrier["total_bytes"] - carrier["allocated_bytes"]
               - 8 * carrier["allocated_blocks"] - carrier["cached_bytes"]
               - carrier["free_bytes"] for carrier in heap["carriers"]
               if carrier["type"] != "mmapped chunk"}
        self.assertTrue(all(0 <= rest < 10000 for rest in own.values()), own)
        rss = dict(heap["rss"])
        self.assertEqual(rss.pop("rss_bytes"), sum(rss.values()))

    def test_one_thread(self):
        with Target(1, 20000) as target:
            heap = self.expect_equal(target)
        self.assertEqual(len(heap["arenas"]), 1)

    def test_nine_threads(self):
        with Target(9, 5000) as target:
            heap = self.expect_equal(target)
        self.assertEqual(len(heap["arenas"]), 9)

    def test_one_arena_for_nine_threads(self):
        with Target(9, 5000, env={"MALLOC_ARENA_MAX": "1"}) as target:
            heap = self.expect_equal(target)
        self.assertEqual(len(heap["arenas"]), 1)

    def test_arenas_that_no_thread_has(self):
        with Target("leave", 9, 5000) as target:
            heap = self.expect_equal(target)
        pooled = [c for c in heap["carriers"] if c["type"] == "arena heap" and c["in_pool"]]
        self.assertGreaterEqual(len(pooled), 8)

    def test_a_break_that_the_program_moved(self):
        with Target("own_brk", 1, 20000) as target:
            self.expect_equal(target)

    def test_a_break_that_cannot_move(self):
        with Target("no_brk", 2, 20000) as target:
            self.expect_equal(target)

    def test_a_child(self):
        with Target("fork", 3, 5000) as target:
            self.expect_equal(target)

    def test_huge_pages(self):
        for kind in "1", "2":
            tunable = {"GLIBC_TUNABLES": f"glibc.malloc.hugetlb={kind}"}
            with self.subTest(hugetlb=kind), Target(5, 5000, env=tunable) as target:
                self.expect_equal(target)

    def test_no_thread_caches(self):
        tunable = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
        with Target(3, 5000, env=tunable) as target:
            heap = self.expect_equal(target)
        self.assertEqual(total(heap, "tcache_bytes"), 0)


if __name__ == "__main__":
    harness.main()
