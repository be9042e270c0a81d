#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A server in C++ leaks in a map: every view names its own function and line first."""

import json
import os
import re
import signal
import subprocess
import tempfile
import unittest

import harness
from test_traces import need_traces

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "request_server.cc")
NAME = "shop::handle_request"
WIDTH = 80


def leaking_lines():
    with open(SOURCE, encoding="ascii") as file:
        return {number for number, text in enumerate(file, 1) if "/* LEAK" in text}


class Server(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.script = harness.need("script")
        folder = tempfile.TemporaryDirectory(prefix="heapline-e2e-")
        cls.addClassCleanup(folder.cleanup)
        cls.recording = os.path.join(folder.name, "test.hl")
        ended = harness.run(harness.record_command(
            cls.recording, [harness.program("request_server"), "1500", "1000"], "log-fast"))
        assert ended.status == 0, ended.stderr

    def on_terminal(self, verb, *options):
        command = [harness.HEAPLINE, verb, "--no-pager", "--color=never", *options, self.recording]
        line = " ".join(f"'{word}'" for word in command)
        result = harness.run([self.script, "-qec", f"stty cols {WIDTH}; {line}", "/dev/null"])
        return result.stdout.replace("\r\n", "\n")

    def first_row(self, verb, *options):
        """The row below the titles of the table."""
        text = self.on_terminal(verb, *options)
        rows = text.splitlines()
        titles = next(i for i, row in enumerate(rows) if re.search(r"  (where|stack)\b", row))
        self.assertLessEqual(max(map(len, rows[titles:titles + 2])), WIDTH, text)
        return rows[titles + 1]

    def assert_own(self, row):
        self.assertIn(NAME[:9], row)  # as much as fits beside a whole place
        place = re.search(r"cc:(\d+)", row)  # the rest of its name may be cut off
        self.assertTrue(place, row)
        self.assertIn(int(place.group(1)), leaking_lines())

    def test_top_begins_with_the_function_and_line_that_leak(self):
        self.assert_own(self.first_row("top"))
        self.assert_own(self.first_row("top", "--by", "line"))

    def test_lines_begins_with_the_line_that_leaks(self):
        first = harness.run([harness.HEAPLINE, "lines", "--plain", self.recording]).stdout.splitlines()[0]
        path, line = re.match(r"(.*) line:(\d+) size:\d+$", first).groups()
        self.assertEqual(os.path.basename(path), "request_server.cc")
        self.assertIn(int(line), leaking_lines())

    def test_growth_begins_with_the_function_and_line_that_leak(self):
        self.assert_own(self.first_row("growth"))
        rows = harness.report("growth", self.recording, "--by", "function")["rows"]
        self.assertTrue(rows[0]["name"].startswith(NAME), rows[0])
        self.assertGreaterEqual(rows[0]["steady_percent"], 50)

    def test_growth_and_peaks_take_filters(self):
        everything = harness.report("growth", self.recording)["rows"]
        chosen = harness.report("growth", self.recording, "--focus", "handle_request")["rows"]
        names = {row["name"].split("(")[0] for row in chosen}
        self.assertEqual(names, {NAME, "shop::parse"} & names | {NAME})
        self.assertLess(len(chosen), len(everything))
        hidden = harness.report("growth", self.recording, "--hide", "handle_request")["rows"]
        self.assertTrue(hidden[0]["name"].split("<")[0].endswith("serve"), hidden[0])
        peak = harness.report("peaks", self.recording, "--ignore", "handle_request",
                              "--stacks", "0")["rows"][0]
        self.assertTrue(peak["stacks"])
        self.assertFalse([stack for stack in peak["stacks"] if "handle_request" in
                          str(stack["stack"])])

    def test_peaks_begin_with_the_function_that_leaks(self):
        self.assertIn(NAME, self.on_terminal("peaks"))
        stack = harness.report("peaks", self.recording)["rows"][0]["stacks"][0]["stack"]
        self.assertTrue(str(stack[-1]).find(NAME) >= 0, stack)

    def test_plumbing_is_shown_on_request(self):
        plain = harness.top_rows(self.recording, "peak")
        rows = harness.report("top", self.recording)["rows"]
        self.assertIn("operator new(unsigned long)", plain)
        self.assertNotIn("operator new(unsigned long)", [row["name"] for row in rows])
        self.assertEqual(sum(row["flat_bytes"] for row in rows),
                         sum(row["flat_bytes"] for row in plain.values()))
        text = harness.run([harness.HEAPLINE, "top", "--plumbing", self.recording]).stdout
        self.assertNotIn("folded", text)

    def test_files_for_other_programs_have_whole_stacks(self):
        folded, exported = (harness.run([harness.HEAPLINE, *verb, self.recording]).stdout
                            for verb in (["folded"], ["export", "--format", "folded"]))
        self.assertEqual(folded, exported)
        self.assertIn(";operator new(unsigned long) ", folded)

    def test_json_has_names_in_full(self):
        rows = harness.report("top", self.recording, "--rows", "0")["rows"]
        names = [row["name"] for row in rows]
        self.assertTrue([name for name in names if "serve<" in name and "<...>" not in name], names)


class RunningServer(unittest.TestCase):
    def test_stacks_begin_with_the_function_and_line_that_leak(self):
        need_traces()
        with subprocess.Popen([harness.program("request_server"), "60000", "1000"],
                              stdout=subprocess.PIPE) as server:
            try:
                self.assertEqual(server.stdout.readline(), b"serving\n")
                command = [harness.HEAPLINE, "stacks", "-p", str(server.pid), "1"]
                result = harness.run(command)
                self.assertEqual(result.status, 0, result.stderr)
                report = json.loads(harness.run([*command, "--json"]).stdout)
            finally:
                server.kill()
        first = next(line for line in result.stdout.splitlines() if line.startswith("    "))
        self.assertIn(NAME, first)
        self.assertIn(int(re.search(r"request_server\.cc:(\d+)", first).group(1)), leaking_lines())
        self.assertIn(" serve<...>(", result.stdout)
        self.assertTrue(report["plumbing_folded"])

    def names_of_owners(self, pid, *options):
        result = harness.run([harness.HEAPLINE, "allocations", "-p", str(pid), "--json", *options])
        self.assertEqual(result.status, 0, result.stderr)
        return {row["type"] for row in json.loads(result.stdout)["rows"]}

    def test_allocations_are_those_of_the_functions_that_wanted_them(self):
        with tempfile.TemporaryDirectory(prefix="heapline-e2e-") as folder:
            for mode in ("mem-fast", "mem-record"):
                command = harness.record_command(os.path.join(folder, mode + ".hl"),
                                                 [harness.program("request_server"), "60000", "1000"],
                                                 mode)
                with subprocess.Popen(command, stdout=subprocess.PIPE) as recorder:
                    self.assertEqual(recorder.stdout.readline(), b"serving\n")
                    server, = harness.children_of(recorder.pid)
                    try:
                        harness.wait_until(lambda pid=server: any(
                            name.startswith(NAME) for name in self.names_of_owners(pid)), NAME)
                        self.assertFalse([name for name in self.names_of_owners(server)
                                          if "operator new" in name])
                        self.assertIn("operator new(unsigned long)",
                                      self.names_of_owners(server, "--plumbing"))
                    finally:
                        os.kill(server, signal.SIGKILL)
                        recorder.wait()

    def test_blocks_with_tags_say_that_they_name_plumbing(self):
        command = [harness.HEAPLINE, "record", "--tags", "--", harness.program("request_server"), "60000",
                   "1000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
            try:
                self.assertEqual(server.stdout.readline(), b"serving\n")
                options = [harness.HEAPLINE, "allocations", "-p", str(server.pid), "--json"]
                folded, named = (json.loads(harness.run([*options, *more]).stdout)["notes"]
                                 for more in ([], ["--plumbing"]))
            finally:
                server.kill()
        self.assertTrue([note for note in folded if "a tag keeps one function only" in note], folded)
        self.assertFalse(named)


if __name__ == "__main__":
    harness.main()
