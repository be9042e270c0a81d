#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Lines of Ruby: record and attach name them in programs that know nothing of it."""

import collections
import os
import re
import shutil
import unittest

import attaching
import harness
from harness import HEAPLINE
from pprof_file import PprofFile

ROUNDS = 2000
LESS = 200  # where only the way in differs
ORACLE_FUNCTION, ORACLE_CALL = "oracle_block", "oracle_call"
PLACES = os.path.join(harness.SOURCES, "ruby_places.rb")


def rubies():
    """Of all releases on this machine; further ones by HEAPLINE_RUBIES, paths with ':' between them."""
    paths = [shutil.which(f"ruby3.{minor}", path="/usr/bin") for minor in (1, 3, 4)]
    paths += os.environ.get("HEAPLINE_RUBIES", "").split(":")
    paths = [path for path in paths if path and harness.run([path, "-rfiddle", "-e", "1"]).status == 0]
    if not paths:
        raise unittest.SkipTest("none of ruby3.1, ruby3.3 and ruby3.4 is installed, with fiddle")
    return paths


def has_yjit(ruby):
    return harness.run([ruby, "--yjit", "-e", "exit(RubyVM::YJIT.enabled? ? 0 : 1)"]).status == 0


def is_3_4(ruby):
    return harness.run([ruby, "-e", "exit(RUBY_VERSION >= '3.4' ? 0 : 1)"]).status == 0


def told(path):
    """{stack: [blocks, bytes]} by the interpreter."""
    found = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            blocks, size, stack = line.rstrip("\n").split(" ", 2)
            found[stack] = [int(blocks), int(size)]
    return found


def as_told_by_3_4(stack):
    """It leaves out the frame of what rescues, or ensures, and calls the code of eval() as what it is called from."""
    stack = re.sub(r"[^;]*:\d+;(?:rescue|ensure) in ([^;]*:\d+;)", r"\1", stack)
    return stack.replace("<compiled>:", "block in <main>:")


class OracleCase(harness.TestCase):
    """Each block of a function in C against what the interpreter says of its frames."""

    is_3_4 = False

    def stacks(self, recording, pid):
        path = self.path("stacks.pb.gz")
        result = harness.run([HEAPLINE, "export", "--format", "pprof", "--value", "alloc", "-p", str(pid),
                              "-f", "-o", path, recording])
        self.assertEqual(result.status, 0, result.stderr)
        file = PprofFile(path)
        columns = [file.types.index("alloc_objects"), file.types.index("alloc_space")]
        return [(stack, [values[column] for column in columns]) for stack, values in file.places
                if stack[0][0] == ORACLE_FUNCTION]

    def assert_equal_stacks(self, recording, pid, dump, at_least):
        expected, found = told(dump), collections.defaultdict(lambda: [0, 0])
        for stack, values in self.stacks(recording, pid):
            places = "".join(f"{name}:{line};" for name, file, line in reversed(stack)
                             if file.endswith(".rb") or file.startswith("<internal"))
            places = as_told_by_3_4(places) if self.is_3_4 else places
            found[places] = [a + b for a, b in zip(found[places], values)]
        wrong = {stack: (expected.get(stack), found.get(stack)) for stack in {*expected, *found}
                 if expected.get(stack) != found.get(stack)}
        self.assertEqual(wrong, {})
        self.assertGreaterEqual(sum(blocks for blocks, _ in expected.values()), at_least)

    def check(self, ruby, rounds, options=(), mode="mem-fast", script=PLACES):
        recording, dump = self.path("places.hl"), self.path("dump")
        self.is_3_4 = is_3_4(ruby)
        command = [ruby, *options, script, harness.program("ruby_oracle.so"), dump, str(rounds)]
        result = harness.run(harness.record_command(recording, command, mode))
        self.assertEqual((result.status, result.stdout), (0, "done\n"), result.stderr)
        by_pid = {process["pid"]: process for process in harness.processes(recording)}
        processes = [pid for pid in by_pid if any(self.stacks(recording, pid))]
        self.assertEqual(len(processes), 2, by_pid)
        self.assert_equal_stacks(recording, processes[0], dump, 20 * rounds)
        self.assert_equal_stacks(recording, processes[1], dump + ".child", 400)
        return recording


class EachBlock(OracleCase):
    def test_has_the_lines_that_the_interpreter_says(self):
        for ruby in rubies():
            with self.subTest(ruby):
                recording = self.check(ruby, ROUNDS)
                self.assertNotIn("script_unmatched", harness.report("top", recording)["lost"])

    def test_in_a_log(self):
        self.check(rubies()[0], LESS, mode="log-record")

    def test_in_code_that_yjit_has_made(self):
        ruby = next((ruby for ruby in rubies() if has_yjit(ruby)), None)
        if not ruby:
            self.skipTest("no Ruby here has YJIT")
        recording = self.check(ruby, LESS, ["--yjit", "--yjit-call-threshold=2"])
        lost = harness.report("top", recording)["lost"]
        self.assertNotIn("script_unmatched", lost)
        self.assertNotIn("unwound_stacks", lost)

    def test_while_the_collector_moves_objects(self):
        ruby, moving = rubies()[0], self.path("moving.rb")
        with open(moving, "w", encoding="utf-8") as file:
            file.write(f"GC.auto_compact = true\nload {PLACES!r}\n")
        self.check(ruby, LESS, script=moving)

    def test_below_a_function_in_c_that_calls_ruby(self):
        recording = self.check(rubies()[0], LESS)
        nested = [[name for name, _, _ in stack] for pid in (p["pid"] for p in harness.processes(recording))
                  for stack, _ in self.stacks(recording, pid) if ORACLE_CALL in [name for name, _, _ in stack]]
        self.assertTrue(nested)
        for names in nested:
            at = names.index(ORACLE_CALL)
            self.assertIn("block", names[:at])
            self.assertIn("block in <main>", names[at:])


DEEP = """
def down(n)
  n == 0 ? "x" * 5000 : down(n - 1)
end
kept = [down(3000)]
Fiber.new { kept << down(100) }.resume
"""


class Deep(harness.TestCase):
    def test_of_a_deep_recursion_the_inner_frames_are_known(self):
        recording = self.path("deep.hl")
        result = harness.run(harness.record_command(recording, [rubies()[0], "--disable=gems", "-e", DEEP]))
        self.assertEqual(result.status, 0, result.stderr)
        rows = {row["name"]: row for row in harness.report("top", recording, "--value", "alloc", "-n", "0")["rows"]}
        self.assertGreaterEqual(rows["down"]["flat_bytes"], 10000)


LEAKS = {
    "plain script": """
kept = []
2000.times { |i| kept << "x" * (1000 + i % 100) } # planted
Process.kill(:KILL, $$)
""",
    "forked process": """
fork do
  kept = []
  2000.times { |i| kept << "x" * (1000 + i % 100) } # planted
  exit!
end
Process.wait
""",
    "threads": """
kept = Queue.new
4.times.map { Thread.new { 500.times { |i|
  kept << "x" * (1000 + i % 100) # planted
} } }.each(&:join)
Process.kill(:KILL, $$)
""",
    "Struct and Hash": """
Item = Struct.new(:name, :text)
kept = {}
2000.times do |i|
  kept[i] = Item.new("a", "x" * 2000) # planted
end
Process.kill(:KILL, $$)
""",
}


class Leaks(harness.TestCase):
    """What a program keeps is the first row, by file and line."""

    def test_is_the_first_row(self):
        for kind, text in LEAKS.items():
            with self.subTest(kind):
                self.check(kind, text)

    def check(self, kind, text):
        script, recording = self.path("leak.rb"), self.path(kind.replace(" ", "_") + ".hl")
        with open(script, "w", encoding="utf-8") as file:
            file.write(text)
        line = 1 + next(i for i, row in enumerate(text.splitlines()) if "# planted" in row)
        harness.run(harness.record_command(recording, [rubies()[0], "--disable=gems", script]))
        first = harness.report("lines", recording, "--value", "inuse", "--stack", "script")["rows"]
        first = [row for row in first if row["file"]][0]
        self.assertEqual((os.path.basename(first["file"]), first["line"]), ("leak.rb", line))


class LeftNative(harness.TestCase):
    def test_without_scripts_no_frame_is_rubys(self):
        recording = self.path("native.hl")
        result = harness.run(harness.record_command(recording, [rubies()[0], "-e", "print 'done'"],
                                                    options=("--no-scripts",)))
        self.assertEqual((result.status, result.stdout), (0, "done"), result.stderr)
        names = {row["name"] for row in harness.report("top", recording, "--value", "alloc", "-n", "0")["rows"]}
        self.assertTrue(any(name.startswith("rb_") for name in names), names)
        self.assertNotIn("<main>", names)


class Attached(OracleCase, attaching.TestCase):
    """The same in an interpreter that runs already."""

    def test_has_the_lines_that_the_interpreter_says(self):
        for ruby in rubies():
            with self.subTest(ruby):
                self.join(ruby, ROUNDS)

    def test_in_code_that_yjit_has_made(self):
        ruby = next((ruby for ruby in rubies() if has_yjit(ruby)), None)
        if not ruby:
            self.skipTest("no Ruby here has YJIT")
        self.join(ruby, LESS, "--yjit", "--yjit-call-threshold=2")

    def test_twice(self):
        for _ in range(2):
            self.join(rubies()[0], LESS)

    def join(self, ruby, rounds, *options):
        dump, oracle = self.path("dump"), harness.program("ruby_oracle.so")
        self.is_3_4 = is_3_4(ruby)
        with harness.Waiting([ruby, *options, PLACES, oracle, dump, str(rounds), "wait"]) as process:
            with self.attached(process.pid):
                process.stdin.write("go\n")
                process.stdin.flush()
                self.assertEqual(process.stdout.readline(), "done\n")
                self.ctl(process.pid, "detach")
            self.assert_equal_stacks(self.recording, process.pid, dump, 20 * rounds)
            process.stdin.write("\n")
        self.assertEqual(process.returncode, 0)


class InPython(harness.TestCase):
    """Two interpreters whose stacks take turns, in one thread and in two."""

    CODE = """
import ctypes, glob, sys, threading
ruby = ctypes.CDLL(sorted(glob.glob("/usr/lib/x86_64-linux-gnu/libruby-3.*.so.3.*"))[0], mode=ctypes.RTLD_GLOBAL)
ruby.rb_eval_string_protect.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
state = ctypes.c_int(0)
def deep(n):
    return [b"x" * 2000, deep(n - 1)] if n else []
def churn():
    while not done.is_set():
        deep(50)
done = threading.Event()
thread = threading.Thread(target=churn)
thread.start()
ruby.ruby_setup()
for i in range(50):
    ruby.rb_eval_string_protect(b"def f(n) = n == 0 ? 'x' * 5000 : f(n - 1); 300.times { |i| f(i % 10); [nil] * (100 + i) }", ctypes.byref(state))
    deep(20)
done.set()
thread.join()
print("done")
"""

    def test_each_has_its_own_frames(self):
        rubies()
        recording = self.path("both.hl")
        result = harness.run(harness.record_command(recording, [harness.need("python3"), "-c", self.CODE]))
        self.assertEqual((result.status, result.stdout), (0, "done\n"), result.stderr)
        folded = harness.run([HEAPLINE, "folded", "--stack", "script", "--value", "alloc", recording]).stdout
        self.assertTrue(any("deep" in line for line in folded.splitlines()), folded[:2000])
        self.assertTrue(any("f (" in line or "f:" in line or ";f" in line for line in folded.splitlines()), folded[:2000])
        mixed = [line for line in folded.splitlines() if "churn" in line and "(eval" in line]
        self.assertEqual(mixed, [])  # the other thread's


if __name__ == "__main__":
    harness.main()
