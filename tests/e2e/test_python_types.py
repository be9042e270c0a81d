# SPDX-License-Identifier: BSD-2-Clause
"""Types of Python's objects in recordings: what lives is joined with the lines that allocated it."""

import subprocess

import attaching
import harness
from harness import HEAPLINE, RECORDING_MODES, run
from other_allocators import Recorded
from test_python_arenas import present_pages

# Objects of two classes at two lines each, some of them freed again; threads; items of lists, which are parts.
MADE = """
import sys, threading
class Page:
    __slots__ = ("text",)
class Row:
    __slots__ = ("page",)
def one_line(count):
    return [Page() for _ in range(count)]
def another_line(count):
    return [Page() for _ in range(count)]
def rows(count):
    return [Row() for _ in range(count)]
def lists(count):
    return [[None] * 70 for _ in range(count)]
kept, threads = [], []
def make():
    made = [one_line(3000), one_line(500), another_line(2000), rows(700), lists(900)]
    del made[0][1000:2000], made[2][::4]
    kept.append(made)
if "attach" in sys.argv:
    print("ready", flush=True)
    spare = [[] for _ in range(1000)]  # the interpreter keeps some that are free, whose bytes are older than the recording
    sys.stdin.readline()
    make()
    print("made", flush=True)
else:
    for _ in range(3):
        threads.append(threading.Thread(target=make))
        threads[-1].start()
        threads[-1].join()
    print("ready", flush=True)
sys.stdin.readline()
"""
# By line: what one call of make() leaves.
PAGES = {8: 2500, 10: 1500}
ROWS = {12: 700}
LISTS, LISTS_BYTES = 900, 70 * 8
OBJECT_BYTES = 40  # one slot, and the links of the collector


class Types(attaching.TestCase):
    def setUp(self):
        super().setUp()
        self.python = harness.need("/usr/bin/python3")
        self.script = self.path("made.py")
        with open(self.script, "w", encoding="ascii") as file:
            file.write(MADE)

    def recorded(self, mode="mem-fast"):
        return Recorded(self.recording, mode, [self.python, self.script], {})

    def snapshot(self, pid):
        result = run([HEAPLINE, "ctl", "-p", str(pid), "snapshot", "-f", self.path("now.hl")])
        self.assertEqual(result.status, 0, result.stderr)
        self.assertNotIn("lacks", result.stderr)
        return self.path("now.hl")

    def by_line(self, recording, kind):
        """{line: objects}, and {line: bytes}, of what lives of a type, by the line that allocated it."""
        rows = [row for row in harness.report("top", recording, "--value", "inuse", "-n", "0", "--type",
                                              kind, "--by", "line")["rows"] if row["flat_objects"]]
        self.assertEqual({row["file"] for row in rows}, {self.script})
        return ({row["line"]: row["flat_objects"] for row in rows},
                {row["line"]: row["flat_bytes"] for row in rows})

    def assert_types(self, recording, times):
        for kind, lines in (("^__main__.Page$|^Page$", PAGES), ("^Row$", ROWS)):
            objects, sizes = self.by_line(recording, kind)
            self.assertEqual(objects, {line: count * times for line, count in lines.items()})
            self.assertEqual(sizes, {line: count * times * OBJECT_BYTES for line, count in lines.items()})
        report = harness.report("top", recording, "--value", "inuse", "-n", "0", "--by", "type")
        rows = {row["name"]: row for row in report["rows"]}
        self.assertGreaterEqual(rows["list"]["flat_objects"], LISTS * times)
        self.assertGreaterEqual(rows["list (parts)"]["flat_bytes"], LISTS * times * LISTS_BYTES)
        # Whatever has no type is in a row of its own: nothing is lost, or counted twice.
        total = harness.report("top", recording, "--value", "inuse")["total"]
        for key in ("objects", "bytes"):
            self.assertEqual(sum(row[f"flat_{key}"] for row in report["rows"]), total[f"inuse_{key}"])

    def test_live_objects_of_a_class_are_found_by_the_lines_that_made_them(self):
        for mode in RECORDING_MODES:
            with self.subTest(mode=mode), self.recorded(mode) as recorded:
                self.assert_types(self.snapshot(recorded.pid), 3)

    def test_a_recording_that_goes_on_has_the_types_of_now(self):
        with self.recorded() as recorded:
            harness.wait_until(lambda: harness.info(self.recording)["total"]["inuse_objects"] >=
                               harness.info(self.snapshot(recorded.pid))["total"]["inuse_objects"],
                               "a save of what lives")
            self.assert_types(self.recording, 3)
            self.assertNotIn("no block here has a type",
                             run([HEAPLINE, "top", "--by", "type", self.recording]).stdout)

    def test_what_is_not_asked_for_stays_as_it_was(self):
        with self.recorded() as recorded:
            snapshot = self.snapshot(recorded.pid)
            packed = self.path("now.hlz")
            self.assertEqual(run([HEAPLINE, "pack", "-o", packed, snapshot]).status, 0)
            for path in (snapshot, packed):
                by_line = {row["line"]: row for row in harness.report(
                    "top", path, "--value", "inuse", "-n", "0", "--by", "line")["rows"]
                    if row["file"] == self.script}
                # The items of the list itself are of that line as well.
                self.assertGreater(by_line[8]["flat_objects"], PAGES[8] * 3)
                alloc = {row["line"]: row for row in harness.report(
                    "top", path, "--value", "alloc", "-n", "0", "--by", "line")["rows"]
                    if row["file"] == self.script}
                self.assertGreaterEqual(alloc[8]["flat_objects"], 3 * 3500)
            self.assert_types(packed, 3)

    def test_no_page_is_touched_that_is_not_in_memory(self):
        with self.recorded() as recorded:
            self.snapshot(recorded.pid)
            before = present_pages(recorded.pid)
            self.snapshot(recorded.pid)
            self.assertEqual(present_pages(recorded.pid), before)

    def test_attach_keeps_the_types_of_what_it_has_seen(self):
        process = subprocess.Popen([self.python, self.script, "attach"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True, bufsize=1)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "ready\n")
        with self.attached(process.pid):
            process.stdin.write("\n")
            self.assertEqual(process.stdout.readline(), "made\n")
            self.ctl(process.pid, "detach")
        self.assert_types(self.recording, 1)
        text = run([HEAPLINE, "top", "--by", "type", self.recording]).stdout
        self.assertIn("because types are known of what is in use alone", text)

    def test_a_program_that_has_ended_has_advice(self):
        with self.recorded():
            pass
        for options in (["--by", "type"], ["--type", "^Page$"]):
            with self.subTest(options=options):
                text = run([HEAPLINE, "top", *options, self.recording]).stdout
                self.assertIn("no block", text)
                self.assertIn("'heapline ctl -p PID snapshot OUT.hl'", text)


if __name__ == "__main__":
    harness.main()
