# SPDX-License-Identifier: BSD-2-Clause
"""`pgfault` and `page-events` against programs that gain and lose pages in every way there is.

What the kernel says of Rss is the truth, to the page. Each program waits before and after what it
does, so that nothing moves while it is looked at.
"""

import contextlib
import json
import os
import signal
import subprocess
import unittest

import harness

CANNOT = 77  # the exit status of a scenario that this kernel cannot play
OTHER_PAGES = 160  # code, stacks and the C library's own: more than a scenario needs
OF_UNKNOWN_SIZE = ("churn", "lock_all", "threads")  # whose own pages nobody can tell beforehand
START_NOTE = "watching page faults"


def rollup(pid):
    """What smaps_rollup says, in pages."""
    figures = {}
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        for line in file.readlines()[1:]:
            key, _, value = line.partition(":")
            figures[key] = int(value.split()[0]) * 1024 // os.sysconf("SC_PAGESIZE")
    return figures


class Target:
    """A program of the tests that waits for a line before it starts, and another before it ends."""

    def __init__(self, name, *arguments):
        self.process = subprocess.Popen([harness.program(name), *arguments], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self.wait_for("ready")

    def wait_for(self, word):
        line = self.process.stdout.readline()
        if not line and self.process.wait() == CANNOT:
            raise unittest.SkipTest("this kernel cannot")
        if line != word + "\n":
            raise AssertionError(f"'{word}' expected, '{line}' said")

    def say(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def go(self):
        self.before = rollup(self.pid)  # probes have been placed, which may take a page
        self.say()
        self.wait_for("done")
        self.after = rollup(self.pid)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def growth(self, key="Rss"):
        return self.after[key] - self.before[key]


class Trace:
    """A trace of heapline's that goes on; it is started when this is."""

    def __init__(self, command, start_note):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.notes = []
        for line in self.process.stderr:
            self.notes.append(line)
            if start_note in line:
                return
        raise AssertionError("does not start: " + "".join(self.notes[-5:]))

    def end(self):
        """Its output, once it has ended."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        output, notes = self.process.communicate(timeout=harness.TIMEOUT_S)
        self.notes.append(notes)
        if self.process.returncode != 0:
            raise AssertionError(f"fails: {''.join(self.notes[-5:])}")
        return output


def need_bpf():
    """Skips where programs may not be loaded, with the reason that heapline gives."""
    harness.need_root()
    result = harness.run([harness.HEAPLINE, "page-events", "-p", str(os.getpid()), "--json", "0.01"])
    if result.status != 0:
        raise unittest.SkipTest(result.stderr.strip())


def scenarios():
    result = harness.run([harness.program("pages"), "--list"])
    return json.loads(result.stdout)


class TestCase(harness.TestCase):
    def setUp(self):
        super().setUp()
        need_bpf()

    @contextlib.contextmanager
    def target(self, name, *arguments):
        target = Target(name, *arguments)
        try:
            yield target
        finally:
            target.end()

    def pgfault(self, target, *options, verb="pgfault", name="test.hl"):
        """A started trace that keeps a recording."""
        trace = Trace([harness.HEAPLINE, verb, "-p", str(target.pid), "--verbose", "--json",
                       "--force", "-o", self.path(name), *options], START_NOTE)
        self.addCleanup(trace.process.wait)
        self.addCleanup(trace.process.kill)
        self.addCleanup(trace.process.stdout.close)
        self.addCleanup(trace.process.stderr.close)
        self.addCleanup(trace.process.stdin.close)
        return trace

    def report(self, trace):
        return json.loads(trace.end())


def pages_under(report, function):
    """Pages of the stacks on which a function stands."""
    return sum(row["objects"] for row in report["rows"] if function in row["frames"])


class Scenarios(TestCase):
    def check_sum(self, report, target):
        self.assertEqual(report["pages"], target.growth())
        self.assertEqual(report["rss_growth_pages"], target.growth())
        self.assertEqual(report["anon_pages"], target.growth("Anonymous"))
        self.assertEqual(report["shmem_pages"], target.growth("Pss_Shmem"))
        self.assertEqual(sum(row["objects"] for row in report["rows"]), report["pages"])

    def check_stacks(self, report, scenario):
        wanted = 0
        for site in scenario["sites"]:
            wanted += site["pages"]
            with self.subTest(site["function"]):
                self.assertGreaterEqual(pages_under(report, site["function"]), site["pages"])
        self.assertGreaterEqual(report["released_pages"], scenario["released"])
        self.assertLessEqual(report["unattributed_pages"], scenario["unattributed"] + 3)
        self.assertEqual(report["lost_faults"], 0)
        if scenario["name"] not in OF_UNKNOWN_SIZE:
            attributed = report["pages"] + report["released_pages"] - report["unattributed_pages"]
            self.assertLessEqual(attributed, wanted + OTHER_PAGES)

    def test_pages_equal_the_growth_of_rss_and_go_to_who_brought_them_in(self):
        for scenario in scenarios():
            with self.subTest(scenario["name"]), self.target("pages", scenario["name"]) as target:
                trace = self.pgfault(target)
                target.go()
                report = self.report(trace)
                self.check_sum(report, target)
                self.check_stacks(report, scenario)


if __name__ == "__main__":
    harness.main()
