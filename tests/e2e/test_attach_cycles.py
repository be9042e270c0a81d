#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A process that is entered and left again and again counts right each time, and nothing stays."""

import json
import subprocess

import attaching
import harness


class Cycles(attaching.TestCase):
    def enter(self, cycles, threads, *kinds):
        """attach_cycles.c compares counts, mappings, descriptors and priorities after each cycle."""
        result = subprocess.run(
            [harness.program("attach_cycles"), str(cycles), "2", str(threads), *kinds],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=harness.TIMEOUT_S, check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        told = json.loads(result.stdout)
        self.assertEqual((told["cycles"], told["failures"], told["status"]), (cycles, 0, 0))
        self.assertGreater(told["allocations"], cycles)
        return told

    def test_a_tool_that_is_killed_at_any_of_its_steps(self):
        """In between, what it left is taken out; bench/join.py takes each of the steps."""
        told = self.enter(60, 3, "killed")
        self.assertGreater(told["steps"], 500)
        self.assertGreater(told["killed"], 50)

    def test_a_tool_that_is_killed_while_children_wait_for_it(self):
        told = self.enter(60, 3, "forks", "joined", "killed")
        self.assertGreater(told["steps"], 50)
        self.assertGreater(told["killed"], 20)
        self.assertGreater(told["children"], 2)

    def test_all_at_once_with_children_that_are_entered_too(self):
        told = self.enter(200, 4, "threads", "forks", "signals", "libraries", "joined")
        self.assertGreater(told["children"], 10)

    def test_threads_that_stay(self):
        self.enter(60, 4)

    def test_threads_that_come_and_go_and_forks(self):
        self.enter(60, 4, "threads", "forks")

    def test_signals_and_libraries(self):
        self.enter(60, 4, "signals", "libraries")

    def test_many_threads(self):
        self.enter(20, 32)


if __name__ == "__main__":
    harness.main()
