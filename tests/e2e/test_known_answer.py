# SPDX-License-Identifier: BSD-2-Clause
"""Recordings of programs whose every count is known beforehand."""

import json
import re

import harness
from harness import top_rows


class KnownAnswer(harness.TestCase):
    def compare(self, program, mode, slack):
        command = [harness.program(program)]
        plain = harness.run(command)
        result, recording = self.record_well(command, mode)
        # A block may be somewhat larger where what the loader freed before main lies otherwise.
        told = [re.sub(r'"slack_bytes": \d+', "", run.stdout) for run in (result, plain)]
        self.assertEqual(*told)
        answers = json.loads(result.stdout)
        reports = {value: top_rows(recording, value) for value in ("alloc", "inuse", "temporary")}
        if slack:
            reports["slack"] = top_rows(recording, "slack")
        for answer in answers:
            for key, expected in answer.items():
                if key == "function" or expected < 0:
                    continue
                value, unit = key.split("_")
                if value not in reports:
                    continue
                row = reports[value].get(answer["function"], {})
                with self.subTest(function=answer["function"], key=key, mode=mode):
                    self.assertEqual(row.get("cum_" + unit, 0), expected)
        self.assert_nothing_lost(recording)

    def test_every_entry_point_of_C_counts_exactly_in_mem_record(self):
        self.compare("known_answer", "mem-record", slack=True)

    def test_every_entry_point_of_C_counts_exactly_in_mem_fast(self):
        self.compare("known_answer", "mem-fast", slack=True)

    def test_every_form_of_new_and_delete_counts_exactly_in_mem_record(self):
        self.compare("known_answer_cxx", "mem-record", slack=False)

    def test_every_form_of_new_and_delete_counts_exactly_in_mem_fast(self):
        self.compare("known_answer_cxx", "mem-fast", slack=False)


class Peak(harness.TestCase):
    def compare(self, threads, mode):
        result, recording = self.record_well([harness.program("peak"), str(threads)], mode)
        answer = json.loads(result.stdout)
        tolerance = answer["peak_bytes"] / 100
        total = harness.info(recording)["total"]["peak_bytes"]
        self.assertAlmostEqual(total, answer["peak_bytes"], delta=tolerance)
        rows = top_rows(recording, "peak")
        for function, expected in answer["functions"].items():
            with self.subTest(function=function, threads=threads, mode=mode):
                row = rows.get(function, {"cum_bytes": 0})
                self.assertAlmostEqual(row["cum_bytes"], expected, delta=tolerance)

    def test_the_peak_of_one_thread_is_found_within_one_percent(self):
        for mode in harness.RECORDING_MODES:
            self.compare(1, mode)

    def test_the_peak_of_four_threads_is_found_within_one_percent(self):
        for mode in harness.RECORDING_MODES:
            self.compare(4, mode)


if __name__ == "__main__":
    harness.main()
