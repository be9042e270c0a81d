#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""tcmalloc's heap, read from outside without a recorder: it equals the program's ledger and tcmalloc's own figures."""

import json
from pathlib import Path

import harness
from harness import HEAPLINE, need, program, rss_of, run
from slab_blocks import HEAPS, SMALL, Blocks, ask

MINIMAL = "libtcmalloc_minimal.so.4"
BUILT_IN = ("slab_blocks_tcmalloc", "slab_blocks_tcmalloc_static", "slab_blocks_tcmalloc_stripped")


class TcmallocHeap(harness.TestCase):
    def expect_all(self, report, target, core=()):
        """Besides the ledger's there is a block for each thread, of libc, and few more."""
        total = report["total"]
        figures = {name.rpartition(".")[2]: value for name, value in target.figures.items()}
        self.assertEqual(report["allocator"], "tcmalloc")
        self.assertIn(total["inuse_blocks"] - target.live[0] - target.threads, range(12), target.live)
        self.assertEqual((report["lost"]["abandoned"], total["unscanned_bytes"]), (0, 0))
        self.assertEqual(report["notes"], [])
        if not figures:
            return  # it is built in, and nobody calls what tells them
        self.assertEqual(total["inuse_bytes"], figures["current_allocated_bytes"])
        self.assertEqual(total["tcache_bytes"], figures["current_total_thread_cache_bytes"] +
                         figures["transfer_cache_free_bytes"])
        # What a span has beyond its last block is tcmalloc's own, and counts as free in its figures.
        free = sum(figures[key] for key in ("central_cache_free_bytes", "pageheap_free_bytes",
                                            "pageheap_unmapped_bytes"))
        self.assertIn(free - total["free_bytes"], range(free // 8))
        carriers = ask("carriers", *(core or ("-p", target.pid)))["rows"]
        spans = [row for row in carriers if row["type"] == "spans"]
        self.assertEqual(sum(row["total_bytes"] for row in spans), figures["heap_size"])

    def test_live_and_cached_blocks_are_those_of_the_ledger_and_of_tcmalloc(self):
        for environment in {}, {"TCMALLOC_TRANSFER_NUM_OBJ": "7"}, {"TCMALLOC_AGGRESSIVE_DECOMMIT": "1"}:
            with self.subTest(**environment), Blocks(MINIMAL, environment=environment) as target:
                for options in [], ["--stop"]:
                    report = ask("heap", "-p", target.pid, *options)
                    self.expect_all(report, target)
                    self.assertEqual(report["total"]["rss_bytes"], rss_of(target.pid))
                    self.assertEqual(report["total"]["rss_bytes"],
                                     sum(row["bytes"] for row in report["resident"]))

    def test_every_block_of_the_ledger_is_found_with_its_size_and_none_too_many(self):
        for library in MINIMAL, "libtcmalloc.so.4":  # the latter with sampled blocks, in spans of their own
            with self.subTest(library), \
                    Blocks(library, environment={"TCMALLOC_SAMPLE_PARAMETER": "65536"}) as target:
                target.tell("l")
                result = run([program("heap_dump"), "--blocks", str(target.pid)])
                found = {tuple(block[:2]) for block in json.loads(result.stdout)["blocks"]}
                self.assertEqual(target.blocks - found, set())
                self.assertIn(len(found) - len(target.blocks) - target.threads, range(12))

    def test_built_in_and_stripped_it_is_found_all_the_same(self):
        for name in BUILT_IN:
            with self.subTest(name), Blocks(MINIMAL, name) as target:
                self.expect_all(ask("heap", "-p", target.pid), target)

    def test_a_core_file_says_the_same(self):
        gcore = need("gcore")
        with Blocks(MINIMAL) as target:
            live = ask("heap", "-p", target.pid)["total"]
            made = run([gcore, "-o", self.path("core"), str(target.pid)])
            self.assertEqual(made.status, 0, made.stderr)
        core = ["--core", self.path(f"core.{target.pid}")]
        report = ask("heap", *core)
        self.expect_all(report, target, core)
        for key in "inuse_bytes", "tcache_bytes", "free_bytes", "system_bytes":
            self.assertEqual(report["total"][key], live[key], key)

    def test_whatever_is_asked_of_blocks_is_of_all_of_them(self):
        with Blocks(MINIMAL) as target:
            heap = ask("heap", "-p", target.pid)["total"]
            for verb, word in ("leaks", "live"), ("holders", "live"), ("allocations", "inuse"):
                total = ask(verb, "-p", target.pid)["total"]
                self.assertEqual((total[f"{word}_blocks"], total[f"{word}_bytes"]),
                                 (heap["inuse_blocks"], heap["inuse_bytes"]), verb)

    def test_what_a_purge_gives_back_is_known_before(self):
        for arguments in HEAPS:
            with self.subTest(arguments), Blocks(MINIMAL, arguments=arguments) as target:
                before = ask("heap", "-p", target.pid)["total"]
                old = rss_of(target.pid, "Anonymous:")
                target.tell("p")
                fallen = old - rss_of(target.pid, "Anonymous:")
                after = ask("heap", "-p", target.pid)["total"]
                self.assertGreater(fallen, 1 << 20)
                self.assertLess(abs(before["trimmable_bytes"] - fallen), fallen / 100)
                self.assertEqual(after["trimmable_bytes"], 0)

    def test_a_heap_that_changes_is_read_within_a_hundredth(self):
        with Blocks(MINIMAL, arguments=(2, 40000, 700, 6)) as target:
            calm = ask("heap", "-p", target.pid)["total"]
            target.tell("b")
            totals = [ask("heap", "-p", target.pid)["total"] for _ in range(7)]
            distances = sorted(abs(total["inuse_blocks"] - calm["inuse_blocks"]) for total in totals)
            self.assertLess(distances[3], calm["inuse_blocks"] / 100, distances)
            self.assertLess(max(total["unscanned_bytes"] for total in totals), calm["system_bytes"] / 50)
            # A thread may stand between the chain that it took from a list and its own, with as many blocks as move together.
            stopped = ask("heap", "--stop", "-p", target.pid)["total"]
            self.assertIn(stopped["inuse_blocks"] - calm["inuse_blocks"], range(-4, 4 + 2 * 32))
            target.tell("b")
            self.expect_all(ask("heap", "-p", target.pid), target)

    def test_reading_leaves_the_process_as_it_was(self):
        with Blocks(MINIMAL) as target:
            before = Path(f"/proc/{target.pid}/statm").read_text("ascii")
            for verb in "heap", "carriers", "pins":
                ask(verb, "-p", target.pid)
            self.assertEqual(Path(f"/proc/{target.pid}/statm").read_text("ascii"), before)

    def test_the_version_for_debugging_is_refused_with_the_reason(self):
        for command in "slab_blocks", "slab_blocks_tcmalloc_debugging":
            with self.subTest(command), \
                    Blocks("libtcmalloc_minimal_debug.so.4", command, arguments=(1, 100, 500, 1)) as target:
                result = run([HEAPLINE, "carriers", "-p", str(target.pid)])
                self.assert_refused(result, "it is the one for debugging")
                result = run([HEAPLINE, "attach", "-p", str(target.pid), "-o", self.path("refused.hl")])
                self.assert_refused(result, "tcmalloc's version for debugging", f"'heapline stacks -p {target.pid} 60'")

    def test_googles_later_tcmalloc_is_known_by_its_section(self):
        """The program does not use it, and its own heap is glibc's."""
        copy = self.path("google")
        made = run([need("objcopy"), "--add-section", "google_malloc=/dev/null", program("slab_blocks"), copy])
        self.assertEqual(made.status, 0, made.stderr)
        with Blocks(MINIMAL, copy, arguments=(1, 100, 500, 1)) as target:
            report = ask("heap", "-p", target.pid)
        self.assertIn("the process also has tcmalloc, whose heap cannot be read", " ".join(report["notes"]))


if __name__ == "__main__":
    harness.main()
