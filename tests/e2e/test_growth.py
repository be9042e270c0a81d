#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Programs with a garbage collector, with a leak and without: growth tells them apart."""

import contextlib
import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import attaching
import harness

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "collected")
STEPS = 400
STEADY_PERCENT = 50
NO_LEAK = "nothing grew steadily to the end; no leak seen"


LONGER = "a longer recording shows whether it is a leak"


class Collected(harness.TestCase):
    def recorded(self, command, kind, steps):
        return self.record_well([*command, kind, str(steps)], mode="log-fast",
                                options=["--mappings"], name=f"{kind}.hl")[1]

    def growth(self, recording):
        """The rows that are steady, how steady all is, and what is said."""
        report = harness.report("growth", recording)
        steady = [row for row in report["rows"] if row["steady_percent"] >= STEADY_PERCENT]
        return (steady, report["total_steady_percent"],
                harness.run([harness.HEAPLINE, "growth", recording]).stdout)

    def assert_leaks_are_found(self, *command):
        kinds = ("leak", "none")
        with ThreadPoolExecutor() as both:  # they sleep most of the time
            recordings = list(both.map(lambda kind: self.recorded(command, kind, STEPS), kinds))
        for kind, recording in zip(kinds, recordings):
            steady, total, text = self.growth(recording)
            if kind == "leak" and LONGER in text:  # the machine had no time for it now and then
                steady, total, text = self.growth(self.recorded(command, kind, 3 * STEPS))
            if kind == "leak":
                self.assertTrue(steady or total >= STEADY_PERCENT, text)
                self.assertNotIn(NO_LEAK, text)
                self.assertIn("leak score", text)
            else:
                self.assertEqual(steady, [])
                self.assertLess(total, STEADY_PERCENT, text)
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


LEAKS = """
import time
kept = []
def keep():
    kept.append(bytes(4096))
def churn():
    return [bytes(50000) for _ in range(3)]
print(1, flush=True)
while True:
    keep(), churn(), time.sleep(0.002)
"""


class RunningProcess(attaching.TestCase):
    """growth -p PID SECONDS: one command."""

    def setUp(self):
        super().setUp()
        self.environment["TMPDIR"] = self.path("temporary")
        os.mkdir(self.path("temporary"))

    def growth(self, *words):
        return harness.run([harness.HEAPLINE, "growth", *words], env=self.environment,
                           cwd=self.directory)

    @contextlib.contextmanager
    def leaking(self):
        with subprocess.Popen([harness.need("python3"), "-c", LEAKS],
                              stdout=subprocess.PIPE) as process:
            try:
                process.stdout.readline()
                yield process
            finally:
                process.kill()

    def test_what_leaks_is_ranked_and_nothing_stays_behind(self):
        with self.leaking() as process:
            before = os.listdir(f"/proc/{process.pid}/fd")
            ended = self.growth("-p", str(process.pid), "3", "--json", "--by", "function")
            self.assertEqual(ended.status, 0, ended.stderr)
            self.assertEqual(os.listdir(f"/proc/{process.pid}/fd"), before)
        report = json.loads(ended.stdout)
        self.assertEqual(report["recording"]["name"], f"process {process.pid}")  # no path that is gone
        rows = report["rows"]
        self.assertEqual(rows[0]["name"], "keep")
        self.assertGreaterEqual(rows[0]["steady_percent"], STEADY_PERCENT)
        self.assertEqual([row for row in rows if row["name"].startswith("churn")
                          and row["steady_percent"] >= STEADY_PERCENT], [])
        self.assertEqual(os.listdir(self.path("temporary")), [])

    def test_of_a_process_that_allocates_nothing_it_claims_nothing(self):
        with subprocess.Popen([harness.need("sleep"), "60"]) as process:
            try:
                ended = self.growth("-p", str(process.pid), "1")
            finally:
                process.kill()
        self.assertEqual(ended.status, 0, ended.stderr)
        self.assertIn("nothing was counted, so that it is not known what grew", ended.stdout)
        self.assertNotIn(NO_LEAK, ended.stdout)

    def test_the_recording_is_kept_where_it_is_named(self):
        with self.leaking() as process:
            ended = self.growth("-p", str(process.pid), "1", "--keep", "kept.hl")
        self.assertEqual(ended.status, 0, ended.stderr)
        tree = harness.run([harness.HEAPLINE, "tree", "-n", "1", self.path("kept.hl")]).stdout
        self.assertIn("showing in use, bytes (not freed when the recording ended), because the "
                      "process ran on afterwards", tree)
        self.assertIn("keep", tree)
        self.assertEqual(os.listdir(self.path("temporary")), [])

    def test_a_recorded_process_is_shown_without_seconds(self):
        with self.leaking() as process, self.attached(process.pid, "--mode", "log-fast"):
            pid = str(process.pid)
            self.assert_refused(self.growth("-p", pid, "1"), "recorded already", "without SECONDS")
            for verb in ("growth", "top", "timeline"):
                def show(verb=verb):
                    shown = harness.run([harness.HEAPLINE, verb, "-p", pid], env=self.environment, cwd="/")
                    self.assertIn(f"showing '{self.recording}'", shown.stderr)
                    if shown.status:  # the first save takes a second
                        self.assertRegex(shown.stderr, f"nothing of process {pid} is saved yet|no interval yet")
                    return shown.status == 0

                harness.wait_until(show, "the first save")
            self.ctl(process.pid, "detach")

    def test_a_process_that_is_not_recorded_is_refused_whatever_is_in_the_directory(self):
        def refused(verb, pid):
            shown = harness.run([harness.HEAPLINE, verb, "-p", str(pid)], env=self.environment, cwd=self.directory)
            self.assertEqual((shown.status, shown.stdout), (1, ""))
            return shown.stderr

        with self.leaking() as process:
            for others in None, "other.hl":  # another program's
                if others:
                    self.record_well([harness.program("lifecycle"), "leaf"], name=others)
                for verb in "growth", "top", "timeline":
                    self.assertEqual(refused(verb, process.pid), f"heapline: cannot show process {process.pid}: it is not being recorded; "
                                     f"'heapline attach -p {process.pid}' records it from now on\n")
        self.assertIn("no process", refused("top", process.pid))  # it may have been: it has ended

    def test_failures_name_the_reason(self):
        self.assert_refused(self.growth("-p", str(os.getppid() + (1 << 22)), "1"), "there is no process")
        self.assertEqual(self.growth("--keep", "kept.hl", "some.hl").status, 2)
        for seconds in "0", "abc":
            ended = self.growth("-p", str(os.getpid()), seconds)
            self.assertEqual(ended.status, 2)
            self.assertIn(f"'{seconds}' is neither a recording nor SECONDS, which is a number greater than 0", ended.stderr)
        self.assertEqual(os.listdir(self.path("temporary")), [])


if __name__ == "__main__":
    harness.main()
