# SPDX-License-Identifier: BSD-2-Clause
"""Processes that seccomp filters forbid system calls, on pain of death."""

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path

import attaching
import harness

ROOT = Path(__file__).resolve().parents[2]
# System calls by number, on x86-64.
MMAP, MUNMAP, SOCKET, MUNLOCK = 9, 11, 41, 150


def image_sources():
    """Files of the recorder in a process that it has joined. Not hooks_lock.c: it makes calls only when the program calls mlockall()."""
    listed = re.findall(r"'([\w./]+\.c)'", (ROOT / "src/recorder/image/meson.build").read_text())
    listed.remove("../hooks_lock.c")
    folder = ROOT / "src/recorder/image"
    return {(folder / name).resolve() for name in listed} | {
        ROOT / "src/recorder" / name for name in ("sys.h", "spin.h", "region_map.h", "thread.h")}


class Filters(attaching.TestCase):
    def test_what_the_recorder_calls_is_asked_of_filters(self):
        called = set()
        for source in image_sources():
            called |= set(re.findall(r"\bSYS_(\w+)", source.read_text()))
        asked = set(re.findall(r'\{"(\w+)", SYS_\1,', (ROOT / "src/hook/attach.c").read_text()))
        self.assertEqual(called, asked)

    def test_a_filter_is_asked_of_what_the_recorder_does_at_its_start(self):
        with self.target() as target:
            self.tell(target, f"seccomp site_g {MUNLOCK} 0")
            self.refused(target, "munlock()")
            self.lives(target)

    def test_a_process_that_may_do_what_is_needed_is_joined_and_left(self):
        with self.target() as target:
            self.tell(target, f"seccomp site_g {SOCKET} 0")
            self.need_filters_read(target)
            for _ in range(2):
                self.attach(target.pid, "-d", "0.1")
            self.lives(target)

    def test_what_a_killed_collector_left_is_taken_out_if_filters_permit_it(self):
        with self.target() as target:
            attach = subprocess.Popen(
                [harness.HEAPLINE, "attach", "-p", str(target.pid), "-o", self.path("killed.hl")],
                env=dict(os.environ, **self.environment), stderr=subprocess.DEVNULL)
            harness.wait_until(lambda: self.ctl(target.pid, "status", status=None).status == 0,
                               "the recording")
            attach.kill()
            attach.wait()
            self.tell(target, f"seccomp site_g {MUNMAP} 0")
            self.refused(target, "munmap()")
            self.lives(target)

    def test_a_filter_that_comes_later_is_asked_of_what_the_recorder_does_at_its_end(self):
        for call, stays in (MMAP, False), (MUNMAP, True):
            with self.subTest(call=call), self.target() as target:
                self.need_filters_read(target)
                with self.attached(target.pid, expected=int(stays)) as attach:
                    self.tell(target, f"seccomp site_g {call} 0")
                    attach.send_signal(signal.SIGINT)
                    attach.wait(harness.TIMEOUT_S)
                    said = attach.stderr.read()
                maps = Path(f"/proc/{target.pid}/maps").read_text(encoding="utf-8")
                self.assertEqual("memfd:heapline" in maps, stays)
                self.assertEqual("munmap()" in said and "its recorder stays" in said, stays, said)
                self.lives(target)

    def test_a_process_that_dies_as_the_recorder_leaves_is_said(self):
        with self.target() as target:
            self.need_filters_read(target)
            with self.attached(target.pid, expected=1) as attach:
                self.tell(target, f"unseen site_g {MUNMAP} 8192")
                attach.send_signal(signal.SIGINT)
                attach.wait(harness.TIMEOUT_S)
                said = attach.stderr.read()
            self.assertIn("was killed by its seccomp filter", said)
            self.assertEqual(target.wait(60), -signal.SIGSYS)

    def test_a_process_that_may_not_do_what_is_needed_is_refused_and_lives(self):
        harness.run(harness.record_command(self.recording, [harness.program("hello")]))
        older = harness.files_of(self.recording)
        self.assertIn("recording.hlm", older)
        with self.target() as target:
            self.tell(target, "seccomp site_g 0 0")
            for mode in "mem-fast", "log-fast":
                result = self.attach(target.pid, "--mode", mode, status=1)
                self.assertIn("seccomp", result.stderr)
                self.assertEqual(harness.files_of(self.recording), older)
            self.lives(target)

    @contextlib.contextmanager
    def target(self):
        with subprocess.Popen([harness.program("trace_heap")], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True, bufsize=1) as target:
            self.assertEqual(target.stdout.readline(), "ready\n")
            yield target

    def need_filters_read(self, target):
        result = harness.run([harness.HEAPLINE, "attach", "-p", str(target.pid), "-d", "0.01",
                              "-o", self.path("filters.hl")])
        if "CAP_SYS_ADMIN" in result.stderr:
            self.skipTest(result.stderr.strip())

    def refused(self, target, call):
        self.need_filters_read(target)
        result = self.attach(target.pid, status=1)
        self.assertIn("seccomp filter does not permit", result.stderr)
        self.assertIn(call, result.stderr)

    def lives(self, target):
        self.tell(target, "malloc site_g 10 64")
        self.tell(target, "churn site_g 1000 64")
        target.stdin.close()
        self.assertEqual(target.wait(60), 0)

    def tell(self, target, line):
        target.stdin.write(line + "\n")
        self.assertEqual(target.stdout.readline(), "ok\n")


if __name__ == "__main__":
    harness.main()
