#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Lost blocks of other allocators: of those that cannot be walked by the block table of a recorder."""

import json
import os
import subprocess

import busy_programs
import harness
from harness import HEAPLINE, need, program, run
from other_allocators import MODES, TABLE, WALKED, Recorded, installed, not_walked, preload

TOO_SMALL = 16  # blocks of up to that many bytes count as held
MUSL = ("leaks_musl", "leaks_musl_static")
PLANTED = ("kept", "blocks", "list", "tree", "ring")
KEPT = ("kept", "register", "epoll")


def ask(pid, *options):
    result = run([HEAPLINE, "leaks", "--json", "-p", str(pid), *options])
    if result.status:
        raise AssertionError(result.stderr)
    return json.loads(result.stdout)


class LeaksTables(harness.TestCase):
    def each(self, command, environment=None):
        for library in installed():
            for mode in MODES:
                with self.subTest((library, mode)):
                    with Recorded(self.path("test.hl"), mode, command,
                                  {**preload(library), **(environment or {})}) as recorded:
                        recorded.allocator = WALKED.get(library, TABLE)
                        yield recorded

    def each_of_musl(self, *kinds):
        for name in MUSL:
            for mode in MODES:
                with self.subTest((name, mode)):
                    with Recorded(self.path("test.hl"), mode, [program(name), *kinds], {}) as recorded:
                        yield recorded

    def expect_planted(self, recorded, allocator):
        blocks = next(int(line[1]) for line in recorded.lines if line[0] == "lost")
        for options in [], ["--stop"]:
            report = ask(recorded.pid, *options)
            total = report["total"]
            found = total["lost_blocks"] + total["possible_blocks"]
            self.assertLessEqual(found, blocks, report)
            self.assertGreaterEqual(found, blocks - TOO_SMALL, report)
            self.assertIn(allocator, report["allocator"])
            stacks = [row["stack"] for row in report["rows"]]
            self.assertEqual(sum("plant_blocks" in stack for stack in stacks), 1, stacks)
            self.assertEqual(sum("plant_list" in stack or "node" in stack
                                 for stack in stacks), 3, stacks)

    def test_planted_leaks_are_found_with_their_stacks(self):
        for recorded in self.each([program("leaks"), *PLANTED]):
            self.expect_planted(recorded, recorded.allocator)

    def test_planted_leaks_of_musl_are_found_with_their_stacks(self):
        for recorded in self.each_of_musl(*PLANTED):
            self.expect_planted(recorded, "musl's mallocng")

    def test_what_is_kept_is_not_lost(self):
        for recorded in self.each([program("leaks"), *KEPT]):
            for options in [], ["--stop"]:
                self.assertEqual(ask(recorded.pid, *options)["rows"], [])

    def test_what_is_kept_under_musl_is_not_lost(self):
        for recorded in self.each_of_musl(*KEPT):
            for options in [], ["--stop"]:
                self.assertEqual(ask(recorded.pid, *options)["rows"], [])
                held = run([HEAPLINE, "holders", "--json", "-p", str(recorded.pid), *options])
                self.assertEqual(json.loads(held.stdout)["total"]["lost_bytes"], 0, held)

    def test_a_busy_python_has_lost_nothing(self):
        command = [need("python3"), "-c", busy_programs.PYTHON]
        for recorded in self.each(command, {"PYTHONMALLOC": "malloc"}):
            for options in [], ["--stop"]:
                report = ask(recorded.pid, *options)
                self.assertEqual(report["total"]["lost_blocks"], 0, report["rows"])

    def test_without_a_recorder_it_says_what_helps(self):
        environment = dict(os.environ, **preload(not_walked()))
        with subprocess.Popen([program("leaks"), "blocks"], env=environment, text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            while process.stdout.readline() != "ready\n":
                pass
            result = run([HEAPLINE, "leaks", "-p", str(process.pid)])
            process.stdin.close()
        self.assert_refused(result, "cannot be read from outside")


if __name__ == "__main__":
    harness.main()
