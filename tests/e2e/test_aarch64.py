# SPDX-License-Identifier: BSD-2-Clause
"""Recordings of programs of aarch64, by qemu-user; scripts/check_arm64.sh runs it where such programs run.

HL_OTHER_HEAPLINE, if it is set: heapline of this machine, which must read those recordings as heapline of the other does.
"""

import json
import os
import re
import struct
import unittest

import harness
from harness import top_rows
from test_ledger import KEYS, ledger_stacks, read_ledger

AARCH64 = 183  # EM_AARCH64
MODES = ("mem-record", "mem-fast")
KINDS = ("", "_signed")
VIEWS = (("top", "--json"), ("tree", "--json"), ("folded",), ("sizes", "--json"), ("info", "--json"))


def setUpModule():
    with open(harness.HEAPLINE, "rb") as file:
        if struct.unpack_from("<H", file.read(20), 18)[0] != AARCH64:
            raise unittest.SkipTest("heapline is of another machine; scripts/check_arm64.sh has one of aarch64")


class Aarch64(harness.TestCase):
    def compare_counts(self, program, mode):
        result, recording = self.record_well([harness.program(program)], mode)
        reports = {value: top_rows(recording, value) for value in ("alloc", "inuse", "temporary")}
        compared = 0
        for answer in json.loads(result.stdout):
            for key, expected in answer.items():
                value, _, unit = key.partition("_")
                if value not in reports or expected < 0:
                    continue
                row = reports[value].get(answer["function"], {})
                with self.subTest(program=program, function=answer["function"], key=key, mode=mode):
                    self.assertEqual(row.get("cum_" + unit, 0), expected)
                    compared += 1
        self.assertGreater(compared, 20)
        self.assert_nothing_lost(recording)
        return recording

    def test_every_entry_point_of_C_counts_exactly(self):
        for mode in MODES:
            for kind in KINDS:
                self.compare_counts("known_answer" + kind, mode)

    def test_every_form_of_new_and_delete_counts_exactly(self):
        for mode in MODES:
            self.compare_counts("known_answer_cxx", mode)

    def test_threads_equal_their_ledger_stack_by_stack(self):
        for mode in MODES:
            for kind in KINDS:
                result, recording = self.record_well([harness.program("ledger" + kind), "11", "4", "20000"], mode)
                expected = read_ledger(result.stdout)
                for value, unit in KEYS:
                    with self.subTest(value=value, unit=unit, mode=mode, kind=kind):
                        found = ledger_stacks(harness.folded(recording, value, unit))
                        self.assertEqual(found, expected[value, unit])
                self.assert_nothing_lost(recording)

    def test_the_other_machine_reads_the_recording_alike(self):
        other = os.environ.get("HL_OTHER_HEAPLINE")
        if not other:
            self.skipTest("no HL_OTHER_HEAPLINE")
        _, recording = self.record_well([harness.program("known_answer")], "mem-record")
        for verb, *options in VIEWS:
            with self.subTest(verb=verb):
                own, others = (harness.run([heapline, verb, *options, recording]) for heapline in (harness.HEAPLINE, other))
                self.assertEqual(others.status, 0, others.stderr)
                self.assertEqual(re.sub(r"\s+", " ", others.stdout), re.sub(r"\s+", " ", own.stdout))

    def test_what_is_not_there_yet_is_refused_with_a_sentence(self):
        for words in (["attach", "-p", str(os.getpid())],):
            with self.subTest(verb=words[0]):
                result = harness.run([harness.HEAPLINE, *words])
                self.assertNotEqual(result.status, 0)
                self.assertIn("not available on aarch64 yet", result.stderr)


if __name__ == "__main__":
    harness.main()
