# SPDX-License-Identifier: BSD-2-Clause
"""Processes that seccomp filters forbid system calls, on pain of death."""

import re
import subprocess
from pathlib import Path

import attaching
import harness

ROOT = Path(__file__).resolve().parents[2]
# What the image calls at its start, while filters are suspended.
AT_START = {"munlock", "prlimit64"}


def image_sources():
    listed = re.findall(r"'([\w./]+\.c)'", (ROOT / "src/recorder/image/meson.build").read_text())
    folder = ROOT / "src/recorder/image"
    return {(folder / name).resolve() for name in listed} | {
        ROOT / "src/recorder" / name for name in ("sys.h", "spin.h", "region_map.h", "thread.h")}


class Filters(attaching.TestCase):
    def test_what_the_recorder_calls_is_asked_of_filters(self):
        called = set()
        for source in image_sources():
            called |= set(re.findall(r"\bSYS_(\w+)", source.read_text()))
        asked = set(re.findall(r'\{"(\w+)", SYS_\1,', (ROOT / "src/hook/attach.c").read_text()))
        self.assertEqual(called - AT_START, asked)

    def test_a_process_that_may_not_do_what_is_needed_is_refused_and_lives(self):
        with subprocess.Popen([harness.program("trace_heap")], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True, bufsize=1) as target:
            self.assertEqual(target.stdout.readline(), "ready\n")
            self.tell(target, "seccomp site_g 0 0")
            result = self.attach(target.pid, status=1)
            self.assertIn("seccomp", result.stderr)
            self.tell(target, "malloc site_g 10 64")
            self.tell(target, "churn site_g 1000 64")
            target.stdin.close()
            self.assertEqual(target.wait(60), 0)

    def tell(self, target, line):
        target.stdin.write(line + "\n")
        self.assertEqual(target.stdout.readline(), "ok\n")


if __name__ == "__main__":
    harness.main()
