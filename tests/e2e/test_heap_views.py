#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Heaps of running programs through heapline's own reports: heap, carriers, allocations, pins."""

import json
import os
import re
import signal
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

import harness
from harness import HEAPLINE, need, program, run

PYTHON_KEEPS = """
import sys
kept = [("x%d" % i) * 3 for i in range(100000)]
large = bytearray(5 << 20)
print("ready", flush=True)
sys.stdin.read()
"""


class Waiting:
    """A program that says "ready" and then waits for the end of its input."""

    def __init__(self, command, env=None):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=dict(os.environ, **(env or {})))
        for line in self.process.stdout:
            if line.strip() == "ready":
                return
        raise AssertionError(f"'{command[0]}' ended before it was ready")

    def __enter__(self):
        return self.process

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.wait(harness.TIMEOUT_S)
        self.process.stdout.close()


def waiting_python(*prefix, **options):
    return Waiting([*prefix, need("python3"), "-c", PYTHON_KEEPS],
                   env={"PYTHONMALLOC": "malloc"}, **options)


def ask(verb, pid, *options):
    result = run([HEAPLINE, verb, "-p", str(pid), "--json", *options])
    if result.status:
        raise AssertionError(result.stderr)
    return json.loads(result.stdout)


def resident_bytes(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
        return int(re.search(r"^Rss:\s+(\d+) kB", rollup.read(), re.M)[1]) * 1024


class Heaps(unittest.TestCase):
    def test_the_parts_of_resident_memory_are_its_sum(self):
        with waiting_python() as python:
            heap = ask("heap", python.pid)
            rss = resident_bytes(python.pid)
        self.assertEqual(heap["total"]["rss_bytes"], rss)
        self.assertEqual(sum(part["bytes"] for part in heap["resident"]), rss)
        self.assertGreater(heap["total"]["inuse_blocks"], 100000)
        self.assertGreaterEqual(heap["total"]["mmapped_bytes"], 5 << 20)

    def test_reading_a_heap_changes_nothing_in_the_process(self):
        with waiting_python() as python:
            before = resident_bytes(python.pid)
            for verb in ("heap", "carriers", "allocations", "pins"):
                ask(verb, python.pid)
            self.assertEqual(resident_bytes(python.pid), before)

    def test_stopped_or_not_a_program_that_waits_has_one_heap(self):
        with waiting_python() as python:
            running, stopped = ask("heap", python.pid), ask("heap", python.pid, "--stop")
            with open(f"/proc/{python.pid}/status", encoding="utf-8") as status:
                self.assertRegex(status.read(), r"TracerPid:\s+0\n")
        self.assertEqual(running["total"], stopped["total"])
        self.assertTrue(stopped["stopped"])

    def test_carriers_add_up_to_the_heap(self):
        with waiting_python() as python:
            heap, carriers = ask("heap", python.pid), ask("carriers", python.pid)
        self.assertEqual(sum(row["allocated_blocks"] for row in carriers["rows"]),
                         heap["total"]["inuse_blocks"] + heap["total"]["mmapped_blocks"])

    def test_carriers_are_drawn(self):
        with tempfile.TemporaryDirectory() as scratch, waiting_python() as python:
            picture = os.path.join(scratch, "carriers.svg")
            result = run([HEAPLINE, "carriers", "-p", str(python.pid), "-o", picture])
            self.assertEqual(result.status, 0, result.stderr)
            root = xml.etree.ElementTree.parse(picture).getroot()
        self.assertTrue(root.tag.endswith("svg"))

    def test_what_was_kept_is_compared_and_limited(self):
        with tempfile.TemporaryDirectory() as scratch, waiting_python() as python:
            first, second = os.path.join(scratch, "1"), os.path.join(scratch, "2")
            for path in (first, second):
                result = run([HEAPLINE, "heap", "-p", str(python.pid), "--save", path])
                self.assertEqual(result.status, 0, result.stderr)
            limited = run([HEAPLINE, "heap", "-p", str(python.pid), "--fail-above", "rss=1M",
                           "--fail-above", "rss=100G"])
            grown = run([HEAPLINE, "heap", "--diff", first, second, "--fail-above", "rss=1M"])
            again = run([HEAPLINE, "heap", "-p", str(python.pid), "--save", first])
        self.assertEqual(limited.status, 3)
        self.assertIn("rss_bytes is", limited.stderr)
        self.assertEqual(grown.status, 0, grown.stderr)
        self.assertIn("rss_bytes", grown.stdout)
        self.assertEqual(again.status, 1)

    def test_watching_ends_with_the_process(self):
        with waiting_python() as python:
            watcher = subprocess.Popen([HEAPLINE, "heap", "-p", str(python.pid), "--json",
                                        "--watch", "1"], stdout=subprocess.PIPE, text=True)
            first = watcher.stdout.readline()
        with watcher.stdout:
            text = first + watcher.stdout.read()
        self.assertEqual(watcher.wait(harness.TIMEOUT_S), 0)
        self.assertIn("heapline/heap/1", text)

    def test_a_process_that_cannot_be_read_is_an_error_with_a_reason(self):
        for arguments, reason in (
                (["-p", "2147483646"], "no process"),
                (["--core", "/dev/null"], "core"),
                (["--core", "/nonexistent"], "No such file"),
        ):
            result = run([HEAPLINE, "heap", *arguments])
            self.assertEqual((result.status, result.stdout), (1, ""))
            self.assertIn(reason, result.stderr)
        harness.need_other_user(65534)
        with waiting_python() as python:
            result = run([HEAPLINE, "heap", "-p", str(python.pid)], user=65534, group=65534,
                         extra_groups=[])
        self.assertEqual(result.status, 1)
        self.assertIn("CAP_SYS_PTRACE", result.stderr)


class Owners(unittest.TestCase):
    def test_tags_tell_libraries_functions_and_what_the_program_says(self):
        with Waiting([HEAPLINE, "record", "--tags", "--", program("tagged"), "wait"]) as tagged:
            found = ask("allocations", tagged.pid)
        self.assertEqual(found["source"], "tags")
        # The loader has a block of that time, too, for the thread that was made then.
        outer = [row for row in found["rows"]
                 if row["type"] == "outer" and row["origin"] == "tagged"]
        self.assertEqual([row["blocks"] for row in outer], [1])
        self.assertGreaterEqual(outer[0]["bytes"], 5000)
        self.assertLess(outer[0]["bytes"], 5016)

    def test_nearly_every_block_of_python_has_a_tag(self):
        with waiting_python(HEAPLINE, "record", "--tags", "--") as python:
            found = ask("allocations", python.pid)
        self.assertLessEqual(found["unknown"]["blocks"], 3)
        self.assertGreater(sum(row["blocks"] for row in found["rows"]), 100000)

    def test_without_either_sizes_are_shown_and_the_way_to_more(self):
        with waiting_python() as python:
            found = ask("allocations", python.pid)
        self.assertEqual(found["source"], "none")
        self.assertIn("record --tags", " ".join(found["notes"]))
        self.assertEqual(len(found["rows"]), 1)

    def expect_recorder_to_agree(self, mode):
        """What is read from outside is what the recording has in use in the end."""
        with tempfile.TemporaryDirectory() as scratch:
            recording = os.path.join(scratch, "r.hl")
            command = [HEAPLINE, "record", "-q", "--mode", mode, "-o", recording, "--"]
            with waiting_python(*command) as recorder:
                with open(f"/proc/{recorder.pid}/task/{recorder.pid}/children",
                          encoding="ascii") as children:
                    python = int(children.read().split()[0])
                found = ask("allocations", python)
                os.kill(python, signal.SIGKILL)
                recorder.wait(harness.TIMEOUT_S)
            top = json.loads(run([HEAPLINE, "top", "--json", "--value", "inuse", "--by", "module",
                                  "-n", "0", recording]).stdout)
        by_library = {}
        for row in found["rows"]:
            blocks, size = by_library.get(row["origin"], (0, 0))
            by_library[row["origin"]] = (blocks + row["blocks"], size + row["bytes"])
        recorded = {os.path.basename(row["name"]): (row["flat_objects"], row["flat_bytes"])
                    for row in top["rows"] if row["flat_objects"]}
        self.assertEqual(found["source"], "recorder")
        self.assertEqual(by_library, recorded)

    def test_a_recorders_array_is_what_its_recording_says(self):
        self.expect_recorder_to_agree("mem-fast")

    def test_a_recorders_hash_is_what_its_recording_says(self):
        self.expect_recorder_to_agree("mem-record")


if __name__ == "__main__":
    harness.main()
