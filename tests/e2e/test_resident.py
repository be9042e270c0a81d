#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The bytes of each stack's blocks in RAM, of a program that knows them."""

import json
import os
import subprocess

import harness
from harness import HEAPLINE, need, program, run

PAGE = 4096


class Recorded:
    """A program under `heapline record` that says lines "NAME BYTES" and then "ready"."""

    def __init__(self, recording, command, mode="mem-fast", options=(), environment=None):
        self.recording = recording
        self.collector = subprocess.Popen(
            harness.record_command(recording, command, mode, options), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=dict(os.environ, **(environment or {})))
        self.said = {}
        for line in self.collector.stdout:
            if line == "ready\n":
                break
            name, size = line.split()
            self.said[name] = int(size)
        self.pid = harness.children_of(self.collector.pid)[0]
        harness.wait_until(lambda: harness.process_state(self.pid) == "S", "the program to wait")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.collector.stdin.close()
        self.collector.stdout.close()
        self.collector.wait(harness.TIMEOUT_S)


def figures(recording, value="resident"):
    """{function: bytes}, and the report's total of the value."""
    result = run([HEAPLINE, "top", "--json", "--value", value, recording])
    if result.status:
        raise AssertionError(result.stderr)
    report = json.loads(result.stdout)
    return {row["name"]: row["flat_bytes"] for row in report["rows"]}, report["total"]


def rss_of(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
        return next(int(line.split()[1]) for line in rollup if line.startswith("Rss:")) * 1024


def has_swap():
    with open("/proc/swaps", encoding="utf-8") as swaps:
        return len(swaps.readlines()) > 1


class Resident(harness.TestCase):
    def start(self, mode="mem-fast", options=(), environment=None):
        return Recorded(self.path("test.hl"), [program("resident")], mode, options, environment)

    def snapshot(self, recorded, name="now.hl"):
        result = run([HEAPLINE, "ctl", "-p", str(recorded.pid), "snapshot", self.path(name)])
        self.assertEqual(result.status, 0, result.stderr)
        self.assertNotIn("lacks", result.stderr)
        return self.path(name)

    def expect(self, recorded, found, slack=0):
        """Each function's bytes are what the program says, less what no table knows of a block."""
        for name, size in recorded.said.items():
            self.assertLessEqual(found.get(name, 0), size, (name, found))
            self.assertGreaterEqual(found.get(name, 0), size - slack, (name, found))

    def test_a_snapshot_knows_to_the_byte_what_lies_in_ram(self):
        for mode in "mem-fast", "mem-record", "log-fast":
            with self.subTest(mode), self.start(mode) as recorded:
                found, total = figures(self.snapshot(recorded, mode + ".hl"))
                self.expect(recorded, found)
                self.assertLess(recorded.said["untouched"], PAGE)  # its header's page
                self.assertGreater(total["inuse_bytes"], 5 << 30)
                self.assertEqual(total["resident_bytes"], sum(found.values()))

    def test_a_recording_that_goes_on_shows_what_is_in_ram_now_and_changes_nothing(self):
        with self.start() as recorded:
            # The collector writes stacks down a little later. This maps what is read of libraries, too.
            harness.wait_until(lambda: recorded.said.keys() <= figures(recorded.recording, "inuse")[0].keys(), "the recording to have all stacks")
            before = rss_of(recorded.pid)
            found, _ = figures(recorded.recording)
            self.assertEqual(rss_of(recorded.pid), before)
            self.expect(recorded, found)
            text = run([HEAPLINE, "top", "--value", "resident", recorded.recording]).stdout
        self.assertIn(" of live blocks in RAM now)", text)
        result = run([HEAPLINE, "top", "--value", "resident", recorded.recording])
        self.assert_refused(result, "holds no resident", "'heapline ctl -p PID snapshot OUT.hl'")

    def test_every_view_shows_it(self):
        with self.start() as recorded:
            snapshot = self.snapshot(recorded)
        total = figures(snapshot)[1]["resident_bytes"]
        for verb, key in (("tree", "cum_bytes"), ("lines", "bytes")):
            result = run([HEAPLINE, verb, "--json", "--value", "resident", "-n", "0", snapshot]
                         if verb == "lines" else
                         [HEAPLINE, verb, "--json", "--value", "resident", snapshot])
            self.assertEqual(result.status, 0, result.stderr)
            report = json.loads(result.stdout)
            self.assertEqual(report["value"], "resident")
            self.assertEqual(max(row[key] for row in report["rows"]) if verb == "tree"
                             else sum(row[key] for row in report["rows"]), total)
        folded = harness.folded(snapshot, "resident", "bytes")
        self.assertEqual(sum(folded.values()), total)
        by_thread = harness.report("top", snapshot, "--value", "resident", "--by", "thread")
        self.assertEqual(by_thread["rows"][0]["flat_bytes"], total)
        packed = self.path("packed.hlz")
        self.assertEqual(run([HEAPLINE, "pack", "-o", packed, snapshot]).status, 0)
        self.assertEqual(figures(packed), figures(snapshot))
        for kind, name in ("flame", "x.svg"), ("report", "x.html"), ("graph", "x.dot"):
            out = self.path(name)
            result = run([HEAPLINE, kind, "--value", "resident", "-o", out, snapshot])
            self.assertEqual(result.status, 0, result.stderr)

    def test_other_allocators_blocks_count_by_the_recorders_table(self):
        library = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
        if not os.path.exists(library):
            self.skipTest("libjemalloc2 is not installed")
        preload = {"LD_PRELOAD": library}
        with self.start("mem-record", environment=preload) as recorded:
            found, total = figures(self.snapshot(recorded))
            heap = run([HEAPLINE, "heap", "-p", str(recorded.pid)])
            self.assertIn(heap.status, (0, 1), heap.stderr)
            self.assertIn("jemalloc", heap.stdout + heap.stderr)
        # The hash knows what was requested, of which the program says the usable size.
        self.expect(recorded, found, slack=2003 * 64)
        self.assertGreater(total["resident_bytes"], 20 << 20)

    def expect_balance(self, pid):
        """The parts of Rss add up to what the kernel says, to the page; returns {innermost function:
        bytes} of live blocks."""
        run([HEAPLINE, "heap", "-p", str(pid)])  # maps what it reads of libraries
        before = rss_of(pid)
        result = run([HEAPLINE, "heap", "--json", "--stop", "-p", str(pid)])
        self.assertEqual(result.status, 0, result.stderr)
        self.assertEqual(rss_of(pid), before)
        heap = json.loads(result.stdout)
        parts = {row["part"]: row["bytes"] for row in heap["resident"]}
        stacks = {}
        for row in heap["stacks"]:
            name = row["stack"][0] if row["stack"] else ""
            stacks[name] = stacks.get(name, 0) + row["bytes"]
        self.assertEqual(heap["total"]["rss_bytes"], before)
        self.assertEqual(sum(parts.values()), before)
        self.assertEqual(sum(stacks.values()), parts["live blocks"])
        return stacks

    def test_the_balance_of_a_heap_goes_down_to_stacks(self):
        with self.start() as recorded:
            stacks = self.expect_balance(recorded.pid)
            self.expect(recorded, stacks)
            self.assertLess(stacks.get("", 0), PAGE)  # of before the recorder
            text = run([HEAPLINE, "heap", "-p", str(recorded.pid)]).stdout
        self.assertRegex(text, r"\n  touched < main < \S+ +8.0 MiB ")

    def test_the_balance_of_python_goes_down_to_stacks(self):
        code = ("kept = [b'x' * 5000 for _ in range(2000)]\n"
                "print('ready', flush=True); input()")
        with Recorded(self.path("test.hl"), [need("python3"), "-c", code]) as recorded:
            stacks = self.expect_balance(recorded.pid)
        self.assertGreater(sum(stacks.values()), 8 << 20)
        self.assertLess(stacks.get("", 0), 64 << 10)

    def test_what_is_swapped_out_is_told_apart(self):
        with self.start() as recorded:
            found, total = figures(self.snapshot(recorded), "swapped")
        if not has_swap():
            self.assertEqual((found, total["swapped_bytes"]), ({}, 0))
            self.skipTest("this machine has no swap")
        self.assertGreater(found["paged_out"], 0)

    def test_samples_are_refused_in_a_sentence(self):
        with self.start(options=["--sample", "512K"]) as recorded:
            result = run([HEAPLINE, "top", "--value", "resident", recorded.recording])
        self.assert_refused(result, "recorded by samples")


if __name__ == "__main__":
    harness.main()
