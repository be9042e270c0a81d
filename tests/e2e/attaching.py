# SPDX-License-Identifier: BSD-2-Clause
"""Joins processes, for the tests of `heapline attach`."""

import contextlib
import os
import pathlib
import re
import subprocess

import harness
from harness import HEAPLINE, wait_until

ENDS_IN_S = 60.0
BUSY_TRIES = 8
# What heapline says of a thread that the machine has no time for, and what takes the recorder out.
BUSY = re.compile(r"did not stop in time; try again|than they can be stopped; try again"
                  r"|is still in the recorder, .* a later 'heapline attach' takes it out")
REASONS_OF_MACHINE = ("CAP_SYS_PTRACE", "ptrace_scope", "security policy")


class TestCase(harness.TestCase):
    """Skips where processes cannot be joined."""

    def setUp(self):
        super().setUp()
        self.recording = self.path("test.hl")
        self.environment = {"XDG_RUNTIME_DIR": self.directory}
        probe = harness.run([HEAPLINE, "attach", "-p", str(os.getpid()), "-d", "0.01", "-o",
                             self.path("probe.hl")])
        if probe.status != 0 and any(word in probe.stderr for word in REASONS_OF_MACHINE):
            self.skipTest(probe.stderr.strip())

    def attach(self, pid, *options, status=0):
        """Where it is to succeed, once more while the machine is too busy for it."""
        for _ in range(BUSY_TRIES):
            result = harness.run([HEAPLINE, "attach", "-p", str(pid), "-f", "-o", self.recording,
                                  *options], env=self.environment)
            if status != 0 or result.status != 1 or not BUSY.search(result.stderr):
                break
        self.assertEqual(result.status, status, result.stderr)
        return result

    def begin(self, pid, *options):
        """Returns once the process is patched, or it has ended without: the collector answers before."""
        audit = pathlib.Path(self.path("audit"))
        audit.write_bytes(b"")
        joined = f'act=attach result="done" pid={pid} '
        attach = subprocess.Popen(
            [HEAPLINE, "attach", "-p", str(pid), "-f", "-o", self.recording, *options],
            env=dict(os.environ, HEAPLINE_AUDIT=str(audit), **self.environment),
            stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.addCleanup(attach.kill)
        wait_until(lambda: attach.poll() is not None or joined in audit.read_text(),
                   "the process to be joined")
        return attach

    @contextlib.contextmanager
    def attached(self, pid, *options, expected=0):
        """heapline attach, from when it records until it has ended."""
        for _ in range(BUSY_TRIES):
            attach = self.begin(pid, *options)
            if attach.poll() is None:
                break
            with attach.stderr:
                said = attach.stderr.read()
            if not BUSY.search(said):
                break
        try:
            if attach.poll() is not None:
                raise AssertionError(f"ended early: {said}")
            yield attach
            status = attach.wait(ENDS_IN_S)
            said = "" if status == expected else attach.stderr.read()
            if (expected, status) == (0, 1) and BUSY.search(said):
                recording, self.recording = self.recording, self.path("later.hl")
                self.attach(pid, "-d", "0.01")
                self.recording = recording
            else:
                self.assertEqual(status, expected, said)
        finally:
            attach.kill()
            attach.wait()
            attach.stderr.close()

    def ctl(self, pid, *words, status=0):
        result = harness.run([HEAPLINE, "ctl", "-p", str(pid), *words], env=self.environment)
        if status is not None:
            self.assertEqual(result.status, status, result.stderr)
        return result
