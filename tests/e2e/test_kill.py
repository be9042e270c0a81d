# SPDX-License-Identifier: BSD-2-Clause
"""SIGKILL at random moments: the recording is complete up to the last event."""

import os
import random
import signal
import subprocess
import time

import harness
from churn_ledger import Ledger, counts_after, shared_path

KILLS = 200
LATEST_KILL_S = 0.06
SEED = 20071


class Kill(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.ledger_path = shared_path(self)

    def kill_once(self, moment, mode):
        """Records `churn`, kills it ${moment} seconds after its start; ledger and recording."""
        ledger = Ledger(self.ledger_path)
        self.addCleanup(ledger.close)
        recording = self.path("killed.hl")
        command = harness.record_command(
            recording, [harness.program("churn"), self.ledger_path], mode)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL) as process:
            pid = harness.wait_until(lambda: ledger.pid() or process.poll() is not None,
                                     "the program's start")
            self.assertIsNone(process.returncode, "ended before it was killed")
            time.sleep(moment)
            os.kill(pid, signal.SIGKILL)
            try:
                output, _ = process.communicate(timeout=harness.TIMEOUT_S)
            finally:
                process.kill()
        self.assertIn(process.returncode, (-signal.SIGKILL, 128 + signal.SIGKILL), output)
        return ledger, recording

    def compare(self, ledger, recording):
        for value in ("alloc", "inuse"):
            rows = harness.top_rows(recording, value)
            for thread in (0, 1):
                begun, done = ledger.progress(thread)
                self.assertIn(begun - done, (0, 1))
                before, after = counts_after(done), counts_after(begun)
                row = rows.get(f"churn_{thread}", {"cum_bytes": 0, "cum_objects": 0})
                for unit in ("bytes", "objects"):
                    key = f"{value}_{unit}"
                    self.assertIn(row["cum_" + unit], (before[key], after[key]),
                                  f"thread {thread}, {key}, {done} events done, {begun} begun")

    def test_recordings_of_programs_killed_at_random_moments_equal_the_programs_ledger(self):
        generator = random.Random(SEED)
        for number in range(KILLS):
            moment = generator.uniform(0, LATEST_KILL_S)
            mode = harness.RECORDING_MODES[number % 2]
            with self.subTest(kill=number, moment_ms=round(moment * 1000, 3), mode=mode):
                ledger, recording = self.kill_once(moment, mode)
                self.compare(ledger, recording)

    def test_a_program_that_ends_by_itself_equals_its_ledger_too(self):
        for mode in harness.RECORDING_MODES:
            ledger = Ledger(self.ledger_path)
            self.addCleanup(ledger.close)
            _, recording = self.record_well(
                [harness.program("churn"), self.ledger_path, "300001"], mode, name=f"{mode}.hl")
            self.assertEqual(ledger.progress(0), (300001, 300001))
            self.compare(ledger, recording)
            self.assert_nothing_lost(recording)


if __name__ == "__main__":
    harness.main()
