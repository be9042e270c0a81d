#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Pages of Ruby's objects, read from outside, are those that Ruby itself counts."""

import json

import harness
from harness import HEAPLINE
from test_ruby import rubies

SCRIPT = """
require "json"
require "objspace"
kept = (1..60_000).map { |i| "a text #{i}" * (i % 3 + 1) }
arrays = (1..3000).map { |i| [i] * (i % 12) }
kept.select!.with_index { |_, i| i % 7 == 0 }
GC.start
GC.compact if ARGV[1] == "compact"
GC.disable
pinned = 0
if ARGV[1] == "compact"
  ObjectSpace.dump_all(output: File.open(ARGV[0], "w")).close
  File.foreach(ARGV[0]) { |line| pinned += 1 if line.match?(/"marked":true.*"pinned":true/) }
end
pools = GC.respond_to?(:stat_heap) ? GC.stat_heap : {}
counts, stat = ObjectSpace.count_objects, GC.stat
$stdout.sync = true
counts = ObjectSpace.count_objects(counts)
puts "ready"
$stdin.gets
puts JSON.dump(counts: counts, pages: stat[:heap_allocated_pages], pinned: pinned, pools: pools.values)
"""
# Objects that come into being between the count and the wait: texts that are written and read.
LATER = 16


class Pages(harness.TestCase):
    def look(self, ruby, *options, compact=""):
        with open(self.path("pages.rb"), "w", encoding="utf-8") as file:
            file.write(SCRIPT)
        with harness.Waiting([ruby, "--disable=gems", self.path("pages.rb"), self.path("dump"), compact]) as process:
            result = harness.run([HEAPLINE, "heap", "-p", str(process.pid), "--ruby", "--stop", *options])
            self.assertEqual(result.status, 0, result.stderr)
            process.stdin.write("go\n")
            process.stdin.flush()
            told = json.loads(process.stdout.readline())
        return result.stdout, told

    def report(self, ruby, compact=""):
        text, told = self.look(ruby, "--json", compact=compact)
        return json.loads(text), told

    def test_are_those_that_ruby_counts(self):
        for ruby in rubies():
            with self.subTest(ruby):
                report, told = self.report(ruby)
                sums, counts = report["ruby"], told["counts"]
                self.assertEqual(sums["pages"], told["pages"])
                self.assertEqual(sums["slots"], counts["TOTAL"])
                self.assertAlmostEqual(sums["live_slots"], counts["TOTAL"] - counts["FREE"], delta=LATER)
                self.assertEqual((sums["unread_pages"], sums["pinned_slots"]), (0, 0))
                pools = {pool["slot_size"]: pool["heap_eden_pages"] + pool.get("heap_tomb_pages", 0) for pool in told["pools"]}
                if pools:
                    self.assertEqual({row["slot_bytes"]: row["pages"] for row in report["ruby_pools"]}, pools)
                row = next(row for row in report["resident"] if row["part"] == "Ruby objects (GC heap)")
                self.assertAlmostEqual(row["bytes"], sums["pages"] * sums["page_bytes"], delta=0.2 * row["bytes"])

    def test_pinned_slots_are_known_after_a_compaction(self):
        for ruby in rubies():
            with self.subTest(ruby):
                report, told = self.report(ruby, "compact")
                self.assertGreater(told["pinned"], 100)
                self.assertEqual(report["ruby"]["pinned_slots"], told["pinned"])
                self.assertLessEqual(report["ruby"]["pinned_pages"], report["ruby"]["pages"])

    def test_are_shown_as_a_table(self):
        text, _ = self.look(rubies()[0])
        self.assertRegex(text, r"Ruby slot +pages +live +bytes +free +free bytes +empty pages +spare")
        self.assertRegex(text, r"Ruby's objects use .* GC.compact could give back at most .* pages; what is pinned is known")

    def test_a_process_without_ruby_has_none(self):
        with harness.Waiting(["/bin/sh", "-c", "echo ready; read line"]) as process:
            result = harness.run([HEAPLINE, "heap", "-p", str(process.pid), "--ruby"])
        self.assertIn("no pages of Ruby's objects are in the process", result.stdout + result.stderr)


if __name__ == "__main__":
    harness.main()
