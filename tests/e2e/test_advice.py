#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What heapline advises works for the process that it is about."""

import glob
import os
import re
import subprocess
import tempfile
import unittest

import harness
from harness import HEAPLINE, Waiting, need, run

COMMAND = re.compile(r"'heapline ([a-z]+) -p (\d+)( 60)?'")
VERBS = (["heap"], ["carriers"], ["carriers", "--ask"], ["pins"], ["allocations"],
         ["stacks"], ["pgfault"], ["leaks"], ["holders"], ["growth"])


OPTIONS = {"stacks": ["--max-overhead", "100000", "0.2"],  # which needs no measurement before
           "pgfault": ["0.2"], "attach": ["-d", "0.2"]}


def ask(pid, verb):
    with tempfile.TemporaryDirectory() as scratch:  # where recordings go
        result = run([HEAPLINE, *verb, "-p", str(pid), *OPTIONS.get(verb[0], [])], cwd=scratch)
    said = result.stdout + result.stderr
    if result.status and re.search(r"CAP_|cannot trace here|kernel", said):
        raise unittest.SkipTest(said.strip().splitlines()[-1])
    return result.status, said


class Advice(unittest.TestCase):
    """Each process is asked about by each verb, and what they advise is done."""

    def advices(self, command, env=None):
        """What each verb says."""
        with Waiting(command, env=env) as process:
            answers = {" ".join(verb): ask(process.pid, verb) for verb in VERBS}
            for verb, (status, said) in list(answers.items()):
                advised = COMMAND.findall(said)
                if status:
                    self.assertTrue(advised or "'heapline" in said, said)
                for name, pid, _ in advised:
                    self.assertEqual(int(pid), process.pid)
                    if name not in answers:
                        answers[name] = ask(process.pid, [name])
                    self.assertEqual(answers[name][0], 0, f"{verb} advises {name}: {answers[name][1]}")
            for verb in [verb for verb in VERBS if not (answers["heap"][0] or answers[" ".join(verb)][0])]:
                said = ask(process.pid, [*verb, "--json"])[1]
                answers[f"next of {verb[0]}"] = 0, "".join(re.findall(r'"next": "(.*)"', said))
                for name, seconds in re.findall(r'"next": "heapline ([a-z]+) -p \d+( \d+)?"', said):
                    again = [name, *(["0.2"] if seconds and name not in OPTIONS else [])]
                    if name not in answers or seconds:
                        answers[name] = ask(process.pid, again)
                    self.assertEqual(answers[name][0], 0, f"{verb} goes on with {again}: {answers[name][1]}")
        return {verb.removeprefix("carriers "): said for verb, (_, said) in answers.items()}

    def program(self, name):
        path = os.path.join(harness.PROGRAMS, name)
        if not os.path.exists(path):
            self.skipTest(f"'{name}' could not be built here")
        return path

    def refused_by_record(self, name, reason):
        with tempfile.TemporaryDirectory() as scratch:
            result = run([HEAPLINE, "record", "-o", os.path.join(scratch, "r.hl"), "--",
                          self.program(name)], stdin=subprocess.DEVNULL)
        self.assertEqual(result.status, 125)
        self.assertIn(reason, result.stderr)
        return result.stderr

    def test_glibc(self):
        found = self.advices([self.program("waits")])
        self.assertIn("'heapline record", found["allocations"])

    def test_a_static_program(self):
        self.advices([self.program("waits_static")])

    def test_a_static_program_without_symbols(self):
        found = self.advices([self.program("waits_static_stripped")])
        self.assertNotIn("heapline stacks", found["heap"] + found["allocations"])
        self.assertRegex(found["next of allocations"], "^heapline pgfault ")
        self.assertIn("heapline pgfault -p PID",
                      self.refused_by_record("waits_static_stripped", "static"))

    def test_a_static_program_with_symbols_and_without_malloc(self):
        found = self.advices([self.program("bare")])
        for verb in "heap", "pins", "leaks", "holders", "growth":
            self.assertIn("'heapline pgfault -p", found[verb])
            self.assertNotIn("'heapline record", found[verb])

    def test_musl(self):
        found = self.advices([self.program("waits_musl")])
        self.assertIn("musl's malloc", found["heap"])
        self.assertNotIn("record", found["heap"])

    def test_static_musl(self):
        found = self.advices([self.program("waits_musl_static")])
        self.assertIn("musl's mallocng", found["heap"])
        self.assertIn("'heapline stacks -p", found["heap"])

    def test_32_bits(self):
        found = self.advices([self.program("waits_32")])
        for verb in "heap", "carriers", "pins", "allocations", "stacks":
            self.assertIn("is a 32-bit program", found[verb])
        self.assertIn("it is a 32-bit program", found["pgfault"])
        self.refused_by_record("waits_32", "32-bit")

    def test_jemalloc_in_the_program_whose_heap_is_read(self):
        for name in "waits_jemalloc", "waits_jemalloc_stripped":
            with self.subTest(name):
                found = self.advices([self.program(name)])
                self.assertIn(', jemalloc 5.', found["heap"])
                self.assertIn('mallctl("arena.4096.purge")', found["heap"])

    def test_python(self):
        self.advices([need("python3"), "-c",
                      "import sys; print('ready', flush=True); sys.stdin.read()"])


if __name__ == "__main__":
    harness.main()
