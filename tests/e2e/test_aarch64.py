# SPDX-License-Identifier: BSD-2-Clause
"""Recordings of programs of aarch64, by qemu-user; scripts/check_arm64.sh runs it where such programs run.

HL_OTHER_HEAPLINE, if it is set: heapline of this machine, in its build folder; each must read the recordings of the other as that does.
HL_ARM64_ROOT: Debian's arm64 packages, with interpreters.
"""

import json
import os
import re
import subprocess
import unittest
from unittest import mock

import harness
import test_annotations
import test_jit_names
import test_lua
import test_php
import test_python
import test_ruby
from harness import top_rows
from test_ledger import KEYS, ledger_stacks, read_ledger

MODES = ("mem-record", "mem-fast")
KINDS = ("", "_signed")
VIEWS = (("top", "--json"), ("tree", "--json"), ("folded",), ("sizes", "--json"), ("info", "--json"))


def setUpModule():
    if harness.machine() != harness.AARCH64:
        raise unittest.SkipTest("heapline is of another machine; scripts/check_arm64.sh has one of aarch64")


class Aarch64(harness.TestCase):
    def compare_counts(self, program, mode):
        result, recording = self.record_well([harness.program(program)], mode)
        reports = {value: top_rows(recording, value) for value in ("alloc", "inuse", "temporary")}
        compared = 0
        for answer in json.loads(result.stdout):
            for key, expected in answer.items():
                value, _, unit = key.partition("_")
                if value not in reports or expected < 0:
                    continue
                row = reports[value].get(answer["function"], {})
                with self.subTest(program=program, function=answer["function"], key=key, mode=mode):
                    self.assertEqual(row.get("cum_" + unit, 0), expected)
                    compared += 1
        self.assertGreater(compared, 20)
        self.assert_nothing_lost(recording)
        return recording

    def test_every_entry_point_of_C_counts_exactly(self):
        for mode in MODES:
            for kind in KINDS:
                self.compare_counts("known_answer" + kind, mode)

    def test_every_form_of_new_and_delete_counts_exactly(self):
        for mode in MODES:
            self.compare_counts("known_answer_cxx", mode)

    def test_threads_equal_their_ledger_stack_by_stack(self):
        for mode in MODES:
            for kind in KINDS:
                result, recording = self.record_well([harness.program("ledger" + kind), "11", "4", "20000"], mode)
                expected = read_ledger(result.stdout)
                for value, unit in KEYS:
                    with self.subTest(value=value, unit=unit, mode=mode, kind=kind):
                        found = ledger_stacks(harness.folded(recording, value, unit))
                        self.assertEqual(found, expected[value, unit])
                self.assert_nothing_lost(recording)

    def compare_views(self, recording, recorder, reader):
        for verb, *options in VIEWS:
            with self.subTest(verb=verb):
                own, others = (harness.run([heapline, verb, *options, recording]) for heapline in (recorder, reader))
                self.assertEqual(others.status, 0, others.stderr)
                self.assertEqual(re.sub(r"\s+", " ", others.stdout), re.sub(r"\s+", " ", own.stdout))

    def other_heapline(self):
        return os.environ.get("HL_OTHER_HEAPLINE") or self.skipTest("no HL_OTHER_HEAPLINE")

    def test_the_other_machine_reads_the_recording_alike(self):
        other = self.other_heapline()
        _, recording = self.record_well([harness.program("known_answer")], "mem-record")
        self.compare_views(recording, harness.HEAPLINE, other)

    def test_recordings_of_the_other_machine_are_read_alike(self):
        other = self.other_heapline()
        program = os.path.join(os.path.dirname(other), "tests/e2e/known_answer")
        if not os.path.exists(program):
            self.skipTest(f"no '{program}'")
        for mode in MODES:
            recording = self.path(mode + ".hl")
            result = harness.run([other, "record", "-f", "--mode", mode, "-o", recording, "--", program])
            self.assertEqual(result.status, 0, result.stderr)
            self.compare_views(recording, other, harness.HEAPLINE)


class Pools(harness.TestCase):
    """Programs that tell of their pools by heapline.h, and link nothing of heapline."""

    def test_each_pool_has_what_the_program_says(self):
        for name in ("annotated", "annotated_fixed"):
            for mode in MODES:
                with self.subTest(program=name, mode=mode):
                    result, recording = self.record_well([harness.program(name), "now"], mode)
                    ledger = test_annotations.figures_of(result.stdout.splitlines())
                    rows = [top_rows(recording, value) for value in ("alloc", "inuse")]
                    found = {pool: [row[pool][key] for row in rows for key in ("flat_objects", "flat_bytes")] for pool in ledger}
                    self.assertEqual(found, ledger)


class LuaStacks(test_lua.Mixed):
    """Lua and C by turns, in threads: the lines are those that a program of ours knows."""

    def stacks(self, recording, value, unit):
        # Debian's libc of aarch64 is here without the names of its own functions.
        return {re.sub(r"^(libc[^;]*;)+", "start_thread;", stack): number
                for stack, number in super().stacks(recording, value, unit).items()}


class LuaProgram(harness.TestCase):
    def test_a_leak_is_the_first_row_of_the_interpreter_of_Debian(self):
        lua, script = interpreter("lua5.4"), self.path("leak.lua")
        with open(script, "w", encoding="utf-8") as file:
            file.write(test_lua.LEAK)
        recording, said = self.path("lua.hl"), self.path("said")
        with open(said, "w", encoding="ascii") as file:
            file.write("leak\n\n")
        with open(said, encoding="ascii") as file:
            result = harness.run(harness.record_command(recording, [lua, script]), stdin=file)
        self.assertEqual(result.status, 0, result.stderr)
        test_lua.Interpreters.check_first(self, recording, script, "lua5.4")


def interpreter(name):
    path = os.path.join(os.environ.get("HL_ARM64_ROOT", "/nonexistent"), "usr/bin", name)
    if not os.path.exists(path):
        raise unittest.SkipTest(f"no '{name}' of aarch64")
    return path


class PythonLines(test_python.OracleCase):
    """Each block of an extension against what Python says of its frames."""

    SCRIPT = """
import sys, threading
from python_oracle import allocate, allocate_released, dump
def inner(n):
    allocate(n)
    return [allocate(n + i) for i in range(3)]
def outer(n):
    inner(n)
    sorted([1, 2], key=lambda value: allocate_released(300) or value)
    return (allocate(value) for value in (500, 600))
def work():
    for i in range(300):
        list(outer(i % 7))
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
work()
for thread in threads:
    thread.join()
dump(sys.argv[1])
"""

    def check_python(self, environment=(), mode="mem-fast"):
        python, script, dump = interpreter("python3.11"), self.path("places.py"), self.path("dump")
        root = os.environ["HL_ARM64_ROOT"]

        def compile_by_cross_compiler(command, **options):
            if command[0] == "cc":
                command = ["aarch64-linux-gnu-gcc", "--sysroot=" + root, *command[1:]]
            return run(command, **options)

        run = subprocess.run
        test_python.build_oracle.cache_clear()
        with mock.patch.object(subprocess, "run", compile_by_cross_compiler):
            oracle = test_python.build_oracle(python)
        with open(script, "w", encoding="utf-8") as file:
            file.write(self.SCRIPT)
        _, recording = self.record_well([python, script, dump], mode, env={"PYTHONPATH": oracle, **dict(environment)})
        self.assert_equal_stacks(recording, harness.processes(recording)[0]["pid"], dump, 3 * 300 * 8)

    def test_blocks_have_the_lines_that_the_interpreter_says(self):
        for mode in MODES:
            with self.subTest(mode=mode):
                self.check_python(mode=mode)

    def test_with_objects_by_malloc(self):
        self.check_python({"PYTHONMALLOC": "malloc"})


class RubyLines(test_ruby.OracleCase):
    """Each block of a function in C against what Ruby says of its frames."""

    WITHOUT_CHILDREN = """
def fork; end
def Process.wait(*); end
load %r
"""

    def test_blocks_have_the_lines_that_the_interpreter_says(self):
        ruby, script, dump = interpreter("ruby3.1"), self.path("places.rb"), self.path("dump")
        with open(script, "w", encoding="utf-8") as file:
            file.write(self.WITHOUT_CHILDREN % test_ruby.PLACES)
        for mode in MODES:
            with self.subTest(mode=mode):
                _, recording = self.record_well([ruby, script, harness.program("ruby_oracle.so"), dump, "100"], mode)
                self.assert_equal_stacks(recording, harness.processes(recording)[0]["pid"], dump, 2000)
                self.assertNotIn("script_unmatched", harness.report("top", recording)["lost"])


class PhpLines(test_php.EachBlock):
    """Each block of malloc() against what PHP says of its frames. Its own memory manager is recorded from outside, by ptrace."""

    FFI_BLOCKS = 0

    def test_has_the_lines_that_the_interpreter_says(self):
        command = [interpreter("php8.2"), "-n", "-d", "extension=ffi", "-d", "ffi.enable=1", "-d", "disable_functions=pcntl_fork",
                   test_php.PLACES]
        recording, dump = self.path("places.hl"), self.path("dump")
        result = harness.run([harness.HEAPLINE, "record", "--no-pools", "-o", recording, "--", *command, dump, "200"])
        self.assertEqual(result.status, 0, result.stderr)
        self.assert_equal_stacks(recording, harness.processes(recording)[0]["pid"], dump, 1000)

    test_in_a_log = None


class JavaFrames(harness.TestCase):
    """Stacks of Java, whose compiled methods have frames of known size."""

    MADE = 1 + 6 + 3  # the stub for calls, methods of Chain, of Deflater

    def test_are_whole(self):
        java = interpreter("../lib/jvm/java-17-openjdk-arm64/bin/java")
        with open(self.path("Chain.java"), "w", encoding="ascii") as file:
            file.write(test_jit_names.CHAIN)
        built = harness.run([harness.need("javac"), "--release", "17", "Chain.java"], cwd=self.directory)
        self.assertEqual(built.status, 0, built.stderr)
        with open(self.path("said"), "w", encoding="ascii") as file:
            file.write("leak\n")
        for options in ("-Xint",), ("-Xcomp",), ("-XX:CompileCommand=exclude,Chain*::inner",):
            with self.subTest(options=options):
                self.check([java, "-Xmx64m", *options, "-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,Chain*::*",
                            "-XX:CompileCommand=dontinline,*Deflater*::*", "-cp", self.directory, "Chain"])

    def check(self, command):
        recording = self.path("java.hl")
        with open(self.path("said"), encoding="ascii") as file:
            result = harness.run(harness.record_command(recording, command), stdin=file)
        self.assertEqual(result.status, 0, result.stderr)
        blocks = 0
        for stack, count in harness.folded(recording, "alloc", "objects").items():
            frames = list(stack)
            inits = [at for at, frame in enumerate(frames) if "Deflater_init" in frame]
            if inits:
                calls = [at for at, frame in enumerate(frames) if "JavaCalls::call_helper" in frame]
                self.assertEqual(len(calls), 1, frames)
                self.assertEqual(inits[0] - calls[0] - 1, self.MADE, frames)
                blocks += count
        self.assertGreaterEqual(blocks, 200)


class LuaJit(harness.TestCase):
    def test_is_refused_with_a_sentence_and_goes_on(self):
        script = self.path("count.lua")
        with open(script, "w", encoding="utf-8") as file:
            file.write("local kept = {}\nfor i = 1, 20000 do kept[i] = ('x'):rep(i) end\nprint(#kept)\n")
        result, recording = self.record_well([interpreter("luajit"), script], options=["--no-objects"])
        self.assertEqual(result.stdout, "20000\n")
        self.assertIn("its frames are known on x86-64 alone", harness.run([harness.HEAPLINE, "top", recording]).stdout)


if __name__ == "__main__":
    harness.main()
