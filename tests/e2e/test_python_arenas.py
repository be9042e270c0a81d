# SPDX-License-Identifier: BSD-2-Clause
"""Arenas of Python's objects, read from outside, as the interpreter itself describes them."""

import json
import os
import re
import signal
import subprocess

import harness
from harness import HEAPLINE, process_state, wait_until

# Nothing is allocated between the description and the wait.
FRAGMENTED = """
import signal, sys
kept = [[str(i) * (i % 9), float(i), {i: (i,)}] for i in range(60000)]
del kept[1::2], kept[7::11], kept[5000:9000]
keep_one_of_many = [object() for _ in range(40000)][::200]
describe, pause = sys._debugmallocstats, signal.pause
describe(); pause()
"""

CLASS = re.compile(r"^ +\d+ +(\d+) +(\d+) +(\d+) +(\d+)$")


def described(text):
    """{block size: (pools, used blocks, free blocks)} and the number of arenas."""
    classes = {}
    for line in text.splitlines():
        if match := CLASS.match(line):
            size, *numbers = map(int, match.groups())
            classes[size] = tuple(numbers)
    return classes, int(re.search(r"arenas allocated current += +([\d,]+)", text)[1].replace(",", ""))


class Arenas(harness.TestCase):
    def start(self, script):
        python = harness.need("/usr/bin/python3")
        text = self.path("description")
        with open(text, "w", encoding="ascii") as file:
            process = subprocess.Popen([python, "-c", script], stderr=file)
        self.addCleanup(process.wait)
        self.addCleanup(process.send_signal, signal.SIGKILL)

        def is_described():
            with open(text, encoding="ascii") as file:
                return "Total" in file.read() and process_state(process.pid) == "S"

        wait_until(is_described, "Python to describe its arenas")
        with open(text, encoding="ascii") as file:
            return process.pid, file.read()

    def heap(self, *options):
        result = harness.run([HEAPLINE, "heap", "--python-arenas", *options])
        self.assertEqual(result.status, 0, result.stderr)
        return result.stdout

    def assert_as_described(self, report, text):
        classes, arenas = described(text)
        self.assertGreater(len(classes), 10)
        self.assertEqual({row["block_bytes"]: (row["pools"], row["used_blocks"], row["free_blocks"])
                          for row in report["python_classes"]}, classes)
        total = report["python"]
        self.assertEqual(total["arenas"], arenas)
        self.assertEqual(total["used_bytes"], sum(size * row[1] for size, row in classes.items()))
        self.assertEqual(total["free_bytes"], sum(size * row[2] for size, row in classes.items()))

    def test_pools_of_a_process_are_those_that_python_describes(self):
        pid, text = self.start(FRAGMENTED)
        for options in ([], ["--stop"]):
            with self.subTest(options=options):
                self.assert_as_described(json.loads(self.heap("-p", str(pid), "--json", *options)),
                                         text)
        self.assertIn("pools in", self.heap("-p", str(pid)))

    def test_pools_in_a_core_are_those_that_python_describes(self):
        gcore = harness.need("gcore")
        pid, text = self.start(FRAGMENTED)
        harness.run([gcore, "-o", self.path("core"), str(pid)])
        core = self.path(f"core.{pid}")
        if not os.path.exists(core):
            self.skipTest("gcore may not attach here")
        self.assert_as_described(json.loads(self.heap("--core", core, "--json")), text)

    def test_a_program_without_python_has_no_arenas(self):
        with harness.Waiting(["/bin/sh", "-c", "echo ready; read line; :"]) as process:
            report = json.loads(self.heap("-p", str(process.pid), "--json"))
        self.assertNotIn("python", report)
        self.assertTrue(any("no arenas" in note for note in report["notes"]))


if __name__ == "__main__":
    harness.main()
