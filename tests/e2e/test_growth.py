#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Programs with a garbage collector, with a leak and without: growth tells them apart."""

import os
from concurrent.futures import ThreadPoolExecutor

import harness

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "collected")
STEPS = "400"
STEADY_PERCENT = 50
NO_LEAK = "nothing grew steadily to the end; no leak seen"


class Collected(harness.TestCase):
    def assert_leaks_are_found(self, *command):
        def record(kind):
            return self.record_well([*command, kind, STEPS], mode="log-fast",
                                    options=["--mappings"], name=f"{kind}.hl")[1]

        kinds = ("leak", "none")
        with ThreadPoolExecutor() as both:  # they sleep most of the time
            recordings = list(both.map(record, kinds))
        for kind, recording in zip(kinds, recordings):
            report = harness.report("growth", recording)
            steady = [row for row in report["rows"] if row["steady_percent"] >= STEADY_PERCENT]
            text = harness.run([harness.HEAPLINE, "growth", recording]).stdout
            if kind == "leak":
                self.assertTrue(
                    steady or report["total_steady_percent"] >= STEADY_PERCENT, text)
                self.assertNotIn(NO_LEAK, text)
                self.assertIn("leak score", text)
            else:
                self.assertEqual(steady, [])
                self.assertLess(report["total_steady_percent"], STEADY_PERCENT, text)
                self.assertIn(NO_LEAK, text)
                self.assertNotIn("leak score", text)

    def test_python(self):
        self.assert_leaks_are_found(harness.need("python3"), os.path.join(SOURCES, "collected.py"))

    def test_ruby(self):
        self.assert_leaks_are_found(harness.need("ruby"), os.path.join(SOURCES, "collected.rb"))

    def test_node(self):
        self.assert_leaks_are_found(harness.need("node"), os.path.join(SOURCES, "collected.js"))

    def test_java(self):
        compiler, java = harness.need("javac"), harness.need("java")
        compiled = harness.run([compiler, "-d", self.directory,
                                os.path.join(SOURCES, "Collected.java")])
        self.assertEqual(compiled.status, 0, compiled.stderr)
        self.assert_leaks_are_found(java, "-XX:+UseSerialGC", "-cp", self.directory, "Collected")


if __name__ == "__main__":
    harness.main()
