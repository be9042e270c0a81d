#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Programs with the library for tags run as without it, and every block says who allocated it."""

import glob
import os
import subprocess
import unittest

import harness
from harness import HEAPLINE, need, program, run

# Other allocators, by what their packages call them
ALLOCATORS = ("jemalloc", "tcmalloc_minimal", "mimalloc")


def tagged(*command, **options):
    """Runs a command as users do."""
    return run([HEAPLINE, "record", "--tags", "--", *command], **options)


def allocator(name):
    found = sorted(glob.glob(f"/usr/lib/x86_64-linux-gnu/lib{name}.so.*"))
    if not found:
        raise unittest.SkipTest(f"lib{name} is not installed")
    return found[0]


class Tags(unittest.TestCase):
    def expect_nothing_wrong(self, result):
        self.assertEqual((result.status, result.stdout), (0, ""), result.stderr)

    def test_every_entry_point_leaves_a_tag_that_leads_to_its_caller(self):
        self.expect_nothing_wrong(tagged(program("tagged")))

    def test_operators_new_leave_tags_and_throw_as_ever(self):
        self.expect_nothing_wrong(tagged(program("tagged_cxx")))

    def test_other_allocators_work_below_the_library(self):
        for name in ALLOCATORS:
            with self.subTest(allocator=name):
                arguments = ["no failure"] if name == "mimalloc" else []
                self.expect_nothing_wrong(
                    tagged(program("tagged_cxx"), *arguments, env={"LD_PRELOAD": allocator(name)}))

    def test_real_programs_say_what_they_say_without_it(self):
        words = "import json; print(len(json.dumps([{str(i): [i] * 5} for i in range(20000)])))"
        python = need("python3")
        for environment in ({}, {"PYTHONMALLOC": "malloc"}):
            self.assertEqual(tagged(python, "-c", words, env=environment),
                             run([python, "-c", words], env=environment))
        query = "WITH RECURSIVE n(i) AS (SELECT 1 UNION SELECT i+1 FROM n WHERE i<20000) " \
                "SELECT count(*), sum(i), group_concat(i % 7) FROM n;"
        sqlite = [need("sqlite3"), ":memory:", query]
        self.assertEqual(tagged(*sqlite), run(sqlite))

    def test_the_program_takes_the_place_of_heapline(self):
        result = tagged("/bin/sh", "-c", "echo $PPID $$; exit 7")
        self.assertEqual(result.status, 7)
        self.assertEqual(int(result.stdout.split()[0]), os.getpid())

    def test_control_says_that_nothing_is_recorded(self):
        with subprocess.Popen([HEAPLINE, "record", "--tags", "--", "/bin/sh", "-c",
                               "echo begun; read line"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            result = run([HEAPLINE, "ctl", "-p", str(process.pid), "status"])
            process.stdin.close()
        self.assertEqual(result.status, 1)
        self.assertIn("tags its blocks and records nothing; 'heapline allocations -p "
                      f"{process.pid}'", result.stderr)

    def test_options_of_recordings_are_refused(self):
        for option in (["-o", "x.hl"], ["--sizes"], ["--events"], ["--sample", "4K"]):
            result = run([HEAPLINE, "record", "--tags", *option, "--", "/bin/true"])
            self.assertEqual(result.status, 2)
            self.assertIn("makes no recording", result.stderr)

    def test_programs_that_cannot_preload_are_refused(self):
        result = tagged(program("hello_static"))
        self.assertEqual(result.status, 125)
        self.assertIn("static", result.stderr)


if __name__ == "__main__":
    harness.main()
