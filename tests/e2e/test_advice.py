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
         ["stacks"], ["pgfault"])


def ask(pid, verb):
    seconds = ["0.2"] if verb[0] in ("stacks", "pgfault") else []
    result = run([HEAPLINE, *verb, "-p", str(pid), *seconds])
    said = result.stdout + result.stderr
    if result.status and re.search(r"CAP_|cannot trace here|kernel", said):
        raise unittest.SkipTest(said.strip().splitlines()[-1])
    return result.status, said


class Advice(unittest.TestCase):
    """Each process is asked about by each verb, and what they advise is done."""

    def advices(self, command, env=None):
        """What each verb says."""
        found, tried = {}, set()
        with Waiting(command, env=env) as process:
            for verb in VERBS:
                status, found[verb[-1]] = ask(process.pid, verb)
                advised = COMMAND.findall(found[verb[-1]])
                if status:
                    self.assertTrue(advised or "'heapline" in found[verb[-1]], found[verb[-1]])
                for name, pid, _ in advised:
                    self.assertEqual(int(pid), process.pid)
                    if name not in tried:
                        tried.add(name)
                        status, said = ask(process.pid, [name])
                        self.assertEqual(status, 0, f"{verb} advises {name}: {said}")
        return found

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
        found = self.advices([self.program("waits_static")])
        self.assertNotIn("'heapline record", found["allocations"])
        self.assertIn("heapline stacks -p PID", self.refused_by_record("waits_static", "static"))

    def test_a_static_program_without_symbols(self):
        found = self.advices([self.program("waits_static_stripped")])
        self.assertNotIn("heapline stacks", found["heap"] + found["allocations"])

    def test_musl(self):
        found = self.advices([self.program("waits_musl")])
        self.assertIn("musl's malloc", found["heap"])
        self.assertNotIn("record", found["heap"])
        self.refused_by_record("waits_musl", "musl")

    def test_static_musl(self):
        found = self.advices([self.program("waits_musl_static")])
        self.assertIn("found no heap of glibc", found["heap"])

    def test_32_bits(self):
        found = self.advices([self.program("waits_32")])
        for verb in "heap", "carriers", "pins", "allocations", "stacks":
            self.assertIn("is a 32-bit program", found[verb])
        self.assertIn("it is a 32-bit program", found["pgfault"])
        self.refused_by_record("waits_32", "32-bit")

    def test_jemalloc_in_the_program(self):
        found = self.advices([self.program("waits_jemalloc")])
        self.assertIn("jemalloc, built into its program", found["heap"])
        self.assertIn("'heapline stacks -p", found["heap"])
        self.assertIn("MALLOC_CONF=prof:true", found["heap"])
        self.assertNotIn("record", found["heap"])

    def test_jemalloc_in_a_stripped_program(self):
        found = self.advices([self.program("waits_jemalloc_stripped")])
        self.assertIn("'heapline pgfault -p", found["heap"])
        self.assertNotIn("heapline stacks", found["heap"])

    def test_allocators_as_libraries(self):
        for name in "jemalloc", "mimalloc", "tcmalloc":
            with self.subTest(allocator=name):
                paths = glob.glob(f"/usr/lib/x86_64-linux-gnu/lib{name}*.so.?*")
                if not paths:
                    self.skipTest(f"lib{name} is not installed")
                found = self.advices([self.program("waits")], env={"LD_PRELOAD": paths[0]})
                self.assertIn("'heapline stacks -p", found["heap"])
                self.assertIn("'heapline carriers --ask'", found["heap"])

    def test_python(self):
        self.advices([need("python3"), "-c",
                      "import sys; print('ready', flush=True); sys.stdin.read()"])


if __name__ == "__main__":
    harness.main()
