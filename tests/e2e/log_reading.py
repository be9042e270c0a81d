# SPDX-License-Identifier: BSD-2-Clause
"""Reads logs of recordings through `log_dump`, and compares them with the counters."""

import json
import os
import time

import harness
from test_faults import Steps

LOG_MODES = ("log-record", "log-fast")


def dump(recording, *arguments, sequence=0):
    result = harness.run([harness.program("log_dump"), recording, str(sequence), *arguments])
    if result.status != 0:
        raise AssertionError(f"log_dump {arguments} fails: {result.stderr}")
    return json.loads(result.stdout)


def stacks(recording, *arguments, sequence=0):
    """{stack of frame keys: (bytes, objects)}, stacks without either left out."""
    sums = {}
    for stack, number_of_bytes, objects in dump(recording, *arguments, sequence=sequence)["stacks"]:
        before = sums.get(stack, (0, 0))
        sums[stack] = (before[0] + number_of_bytes, before[1] + objects)
    return {stack: sum_ for stack, sum_ in sums.items() if sum_ != (0, 0)}


def at_end(recording, sequence=0):
    return stacks(recording, "last", "end", sequence=sequence)


def counters(recording, sequence=0):
    return stacks(recording, "counters", sequence=sequence)


class LogTestCase(harness.TestCase):
    def assert_log_equals_counters(self, recording):
        """The logs of all processes end with what the counters have in use; nothing is lost."""
        for process in harness.processes(recording):
            sequence = process["sequence"]
            log = dump(recording, sequence=sequence)
            self.assertEqual((log["lost_events"], log["missing"], log["cut_off"]), (0, 0, False))
            self.assertEqual(at_end(recording, sequence), counters(recording, sequence))

    def record_on_full_disk(self, options):
        """Path of the recording of `steps`, whose disk was full for half a second on the way."""
        harness.need_root()
        small, saved = self.path("small"), self.path("saved.hl")
        os.mkdir(small)
        command = harness.record_command(f"{small}/test.hl", [harness.program("steps")], "log-fast",
                                         options)
        script = ("mount -t tmpfs -o size=256k,mode=777 heapline-test \"$0\" && saved=$1 && "
                  "shift && \"$@\"; status=$?; cp -r \"$0/test.hl\" \"$saved\"; exit $status")
        steps = Steps(self, ["unshare", "-m", "/bin/sh", "-c", script, small, saved, *command])
        steps.step()
        time.sleep(0.3)
        inside = ["nsenter", "-m", "-r", "-t", str(steps.process.pid), "/bin/sh", "-c"]
        filled = harness.run([*inside, f"cat /dev/zero > {small}/filler"])
        self.assertIn("No space left", filled.stderr)
        for _ in range(5):
            steps.step()
            time.sleep(0.12)
        self.assertEqual(harness.run([*inside, f"rm {small}/filler"]).status, 0)
        steps.step()
        time.sleep(0.3)
        rest, status = steps.finish()
        self.assertEqual((rest, status), (b"done\n", 5), steps.messages)
        return saved
