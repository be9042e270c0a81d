# SPDX-License-Identifier: BSD-2-Clause
"""Threads that end in every way, and signal handlers that allocate."""

import json

import harness


class Threads(harness.TestCase):
    def answers_and_rows(self, scenario, mode):
        result, recording = self.record_well([harness.program("threads"), scenario], mode)
        answers = [json.loads(line) for line in result.stdout.splitlines()]
        rows = {value: harness.top_rows(recording, value) for value in ("alloc", "inuse")}
        return answers, rows, recording

    def compare(self, scenario):
        for mode in harness.RECORDING_MODES:
            answers, rows, recording = self.answers_and_rows(scenario, mode)
            self.assertTrue(answers)
            for answer in answers:
                function = answer.pop("function")
                for key, expected in answer.items():
                    value, unit = key.split("_")
                    row = rows[value].get(function, {})
                    with self.subTest(function=function, key=key, mode=mode):
                        self.assertEqual(row.get("cum_" + unit, 0), expected)
            self.assert_nothing_lost(recording)

    def test_blocks_of_a_thousand_ended_threads_stay_counted(self):
        self.compare("short-threads")

    def test_destructors_of_thread_specific_values_are_counted(self):
        self.compare("late-allocations")

    def test_destructors_of_thread_specific_values_belong_to_their_thread(self):
        _, recording = self.record_well([harness.program("threads"), "late-allocations"], "mem-fast")
        rows = harness.report("top", recording, "--by", "thread", "--value", "alloc")["rows"]
        self.assertEqual(len(rows), 102)
        self.assertEqual(len({row["tid"] for row in rows}), 102)

    def test_threads_cancelled_between_allocations_are_counted(self):
        self.compare("cancel-deferred")

    def test_threads_cancelled_at_any_instruction_are_counted(self):
        self.compare("cancel-asynchronous")

    def test_handlers_on_a_stack_of_their_own_have_what_they_interrupted_below_them(self):
        self.compare("signals-on-other-stack")

    def test_handlers_that_allocate_while_the_program_does_are_counted_or_reported_lost(self):
        for mode in harness.RECORDING_MODES:
            answers, rows, recording = self.answers_and_rows("signals", mode)
            lost = harness.info(recording)["lost"]["events"]
            missing = 0
            for answer in answers:
                with self.subTest(function=answer["function"], mode=mode):
                    # Flat: the handler's frames stand above those of what it interrupted.
                    recorded = rows["alloc"][answer["function"]]["flat_objects"]
                    self.assertLessEqual(recorded, answer["alloc_objects"])
                    missing += answer["alloc_objects"] - recorded
                    left = rows["inuse"].get(answer["function"], {"flat_objects": 0})
                    self.assertEqual(left["flat_objects"], 0)
            with self.subTest(mode=mode):
                self.assertLessEqual(missing, lost)


class OneAfterAnother(harness.TestCase):
    def rows(self, count, mode):
        _, recording = self.record_well([harness.program("sequence"), str(count)], mode)
        report = harness.report("top", recording, "--by", "thread", "--value", "alloc")
        workers = [row for row in report["rows"] if row["name"].startswith("worker")]
        return workers, recording

    def test_threads_that_follow_each_other_are_told_apart(self):
        for mode in harness.RECORDING_MODES:
            workers, _ = self.rows(5, mode)
            with self.subTest(mode=mode):
                found = {row["name"]: row["flat_bytes"] for row in workers}
                self.assertEqual(found, {f"worker-{i}": i * 1000 for i in range(1, 6)})
                self.assertEqual(len({row["tid"] for row in workers}), 5)

    def test_of_very_many_threads_later_ones_say_whose_figures_they_include(self):
        workers, recording = self.rows(300, "mem-fast")
        self.assertEqual(sum(row["flat_bytes"] for row in workers), 1000 * 300 * 301 // 2)
        shared = [row for row in workers if "earlier" in row["name"]]
        self.assertEqual(len(shared), 1)
        self.assertRegex(shared[0]["name"], r"^worker-300 and \d+ earlier ones$")
        written = harness.run([harness.HEAPLINE, "top", "--thread", str(shared[0]["tid"]), recording])
        self.assertRegex(written.stdout, r"WARNING: the figures of thread \d+ include those of \d+ that")


if __name__ == "__main__":
    harness.main()
