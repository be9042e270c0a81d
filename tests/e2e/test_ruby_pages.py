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

    def test_the_transient_heap_of_3_1_has_the_elements_of_young_arrays_and_hashes(self):
        """It counts what an object leads to: 6 elements of 8 bytes, and tables of 8 pairs."""
        ruby = rubies()[0]
        if not ruby.endswith("3.1"):
            self.skipTest("Ruby 3.1 is not installed")
        script = ("$stdout.sync = true; GC.start; GC.disable; puts 'ready'; $stdin.gets\n"
                  "$arrays = Array.new(2000) { |i| [i, i, i, i, i, i] }; puts 'arrays'; $stdin.gets\n"
                  "$hashes = Array.new(1000) { |i| {a: i, b: i} }; puts 'hashes'; $stdin.gets\n"
                  "$arrays = nil; GC.enable; GC.start; puts 'end'; $stdin.gets\n")
        found = []
        with harness.Waiting([ruby, "--disable=gems", "-e", script]) as process:
            for last in (False, False, False, True):
                result = harness.run([HEAPLINE, "heap", "-p", str(process.pid), "--ruby", "--stop", "--json"])
                self.assertEqual(result.status, 0, result.stderr)
                found.append(json.loads(result.stdout))
                process.stdin.write("go\n")
                process.stdin.flush()
                if not last:
                    process.stdout.readline()
        sums = [report["ruby"] for report in found]
        self.assertEqual({sum["transient_bytes"] for sum in sums}, {32 << 20})
        for earlier, later, elements, size in ((0, 1, 2000, 6 * 8), (1, 2, 1000, 8 * 16)):
            self.assertAlmostEqual(sums[later]["transient_live_elements"] - sums[earlier]["transient_live_elements"], elements, delta=LATER)
            self.assertAlmostEqual(sums[later]["transient_live_bytes"] - sums[earlier]["transient_live_bytes"], elements * size, delta=LATER * 64)
        self.assertLess(sums[3]["transient_live_elements"], 1000 + LATER)
        row, = (row for row in found[2]["resident"] if row["part"] == "Ruby's transient heap")
        mapping, = (mapping for mapping in found[2]["mappings"] if mapping["part"] == row["part"])
        self.assertEqual(mapping["name"], f"arena of 32.0 MiB, {sums[2]['transient_live_bytes'] / 1024:.1f} KiB live")
        self.assertLess(sums[2]["transient_live_bytes"], row["bytes"])

    def test_a_recording_says_that_the_transient_heap_is_not_in_it(self):
        for ruby in rubies():
            with self.subTest(ruby):
                harness.run([HEAPLINE, "record", "-q", "-f", "-o", self.path("r.hl"), "--", ruby, "--disable=gems", "-e", "[[1] * 6]"])
                warnings = harness.info(self.path("r.hl"))["recording"]["warnings"]
                said = [text for text in warnings if "elements of small arrays and hashes lie in its transient heap" in text]
                self.assertEqual(len(said), ruby.endswith("3.1"), warnings)

    def test_a_process_without_ruby_has_none(self):
        with harness.Waiting(["/bin/sh", "-c", "echo ready; read line"]) as process:
            result = harness.run([HEAPLINE, "heap", "-p", str(process.pid), "--ruby"])
        self.assertIn("no pages of Ruby's objects are in the process", result.stdout + result.stderr)


if __name__ == "__main__":
    harness.main()
