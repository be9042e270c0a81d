#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The heap of musl (mallocng), read from outside without a recorder."""

import json
import random
import re
from pathlib import Path

import harness
import planted_programs
from harness import HEAPLINE, need, program, run

KINDS = ("musl", "musl_static")
PLANTED = ("kept", "blocks", "list", "tree", "ring")
KEPT = ("kept", "register", "epoll")
SMALLEST = 12  # blocks of up to that many bytes, of each of which there is one, count as held


class Musl(planted_programs.Telling):
    """A program that says how many blocks and bytes there are of a kind."""

    def __init__(self, *command, **options):
        self.said = {}
        super().__init__(*command, **options)

    def hear(self, word, *words):
        self.said[word] = tuple(map(int, words))


def ask(verb, *options):
    result = run([HEAPLINE, verb, "--json", *map(str, options)])
    if result.status:
        raise AssertionError(result.stderr)
    return json.loads(result.stdout)


class MuslHeap(harness.TestCase):
    def each(self, name, *arguments):
        for kind in KINDS:
            with self.subTest(kind), Musl(program(f"{name}_{kind}"), *arguments) as target:
                yield target

    def expect_heap(self, report, live):
        total = report["total"]
        self.assertEqual(report["allocator"], "musl's mallocng")
        self.assertEqual((total["inuse_blocks"], total["inuse_bytes"]), live)
        self.assertEqual(total["system_bytes"], sum(
            total[key] for key in ("inuse_bytes", "free_bytes", "overhead_bytes", "unscanned_bytes")))
        self.assertEqual(report["lost"]["abandoned"], 0)

    def test_each_block_counts_with_the_bytes_that_were_asked_for(self):
        for target in self.each("blocks", "all"):
            for options in [], ["--stop"]:
                report = ask("heap", "-p", target.pid, *options)
                self.expect_heap(report, target.said["live"])
                text = Path(f"/proc/{target.pid}/smaps_rollup").read_text("ascii")
                rss = int(re.search(r"Rss: +(\d+) kB", text).group(1)) * 1024
                self.assertEqual(report["total"]["rss_bytes"], rss)
            carriers = ask("carriers", "-p", target.pid)
            self.assertEqual(sum(row["allocated_blocks"] for row in carriers["rows"]),
                             target.said["live"][0])

    def test_a_core_file_says_the_same(self):
        gcore = need("gcore")
        for target in self.each("blocks", "all"):
            made = run([gcore, "-o", self.path("core"), str(target.pid)])
            self.assertEqual(made.status, 0, made.stderr)
            self.expect_heap(ask("heap", "--core", self.path(f"core.{target.pid}")), target.said["live"])

    def test_reading_leaves_the_process_as_it_was(self):
        for target in self.each("blocks", "all"):
            before = Path(f"/proc/{target.pid}/statm").read_text("ascii")
            for verb in "heap", "leaks", "holders":
                for options in [], ["--stop"]:
                    ask(verb, "-p", target.pid, *options)
            self.assertEqual(Path(f"/proc/{target.pid}/statm").read_text("ascii"), before)
            harness.wait_until(lambda pid=target.pid: harness.process_state(pid) == "S", "the program to wait again")

    def test_what_keeps_the_blocks_is_named(self):
        for target in self.each("blocks", "all"):
            row = ask("holders", "-p", target.pid)["rows"][0]
            self.assertEqual((row["name"], row["held_blocks"]), ("blocks", target.said["live"][0]))

    def test_planted_leaks_are_found_without_a_recorder(self):
        for target in self.each("leaks", *PLANTED):
            for options in [], ["--stop"]:
                total = ask("leaks", "-p", target.pid, *options)["total"]
                self.assertLessEqual(total["lost_blocks"], target.said["lost"][0])
                self.assertGreaterEqual(total["lost_blocks"], target.said["lost"][0] - SMALLEST)
                self.assertEqual(total["indirect_blocks"], target.said["indirect"][0])
                self.assertEqual(total["possible_blocks"], 0)

    def test_what_is_kept_is_not_lost(self):
        for target in self.each("leaks", *KEPT):
            for options in [], ["--stop"]:
                self.assertEqual(ask("leaks", "-p", target.pid, *options)["rows"], [])
                self.assertEqual(ask("holders", "-p", target.pid, *options)["total"]["lost_bytes"], 0)

    def test_a_program_that_allocates_all_the_time_has_lost_nothing(self):
        for kind in KINDS:
            with self.subTest(kind), harness.Waiting([program(f"blocks_{kind}"), "busy"]) as target:
                for options in [[]] * 5 + [["--stop"]] * 5:
                    self.assertEqual(ask("leaks", "-p", target.pid, *options)["rows"], [])
                    total = ask("heap", "-p", target.pid, *options)["total"]
                    self.assertGreater(total["inuse_blocks"], 1000)

    def test_a_damaged_heap_is_said_and_ends_nothing(self):
        chance = random.Random(1)
        for target in self.each("blocks", "all"):
            areas = [row for row in ask("carriers", "-p", target.pid)["rows"] if row["type"] in ("metas", "groups")]
            seen = 0
            with open(f"/proc/{target.pid}/mem", "r+b", buffering=0) as memory:
                for _ in range(20):
                    area = chance.choice(areas)
                    for _ in range(50):
                        memory.seek(area["address"] + chance.randrange(24, area["total_bytes"], 2))
                        memory.write(chance.randbytes(2))
                    for verb in "heap", "leaks", "holders":
                        result = run([HEAPLINE, verb, "--json", "-p", str(target.pid)])
                        self.assertEqual(result.status, 0, result.stderr)
                        seen += "did not fit together" in result.stdout
            self.assertGreater(seen, 10)


if __name__ == "__main__":
    harness.main()
