# SPDX-License-Identifier: BSD-2-Clause
"""Joins processes, for the tests of `heapline attach`."""

import contextlib
import os
import subprocess

import harness
from harness import HEAPLINE, wait_until

ENDS_IN_S = 60.0
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
        result = harness.run([HEAPLINE, "attach", "-p", str(pid), "-f", "-o", self.recording,
                              *options], env=self.environment)
        self.assertEqual(result.status, status, result.stderr)
        return result

    @contextlib.contextmanager
    def attached(self, pid, *options, expected=0):
        """heapline attach, from when it records until it has ended."""
        attach = subprocess.Popen(
            [HEAPLINE, "attach", "-p", str(pid), "-f", "-o", self.recording, *options],
            env=dict(os.environ, **self.environment), stderr=subprocess.PIPE, text=True,
            start_new_session=True)
        try:
            wait_until(lambda: attach.poll() is not None or
                       self.ctl(pid, "status", status=None).status == 0, "the recording")
            if attach.poll() is not None:
                raise AssertionError(f"ended early: {attach.stderr.read()}")
            yield attach
            self.assertEqual(attach.wait(ENDS_IN_S), expected)
        finally:
            attach.kill()
            attach.wait()
            attach.stderr.close()

    def ctl(self, pid, *words, status=0):
        result = harness.run([HEAPLINE, "ctl", "-p", str(pid), *words], env=self.environment)
        if status is not None:
            self.assertEqual(result.status, status, result.stderr)
        return result
