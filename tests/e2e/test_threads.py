# SPDX-License-Identifier: BSD-2-Clause
"""Threads that end in every way, and signal handlers that allocate."""

import json
import re
import signal

import attaching
import harness

KIB = 1024
RECORDER_MEMORY = ("/memfd:heapline", "/dev/zero")  # the region; its private tables


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
        packed = self.path("packed.hl")
        self.assertEqual(harness.run([harness.HEAPLINE, "pack", "-o", packed, recording]).status, 0)
        for file in recording, packed:
            self.assertEqual(harness.info(file)["rows"][0]["threads"], 301)


class AThousandAtOnce(harness.TestCase):
    THREADS, STACKS, LEVELS = 1000, 100, 7
    KEPT, ALLOCATED = 1, 3  # blocks of a stack and thread

    def recorder_bytes(self, pid):
        """Resident, of what the recorder has mapped in a process."""
        total, counts = 0, False
        with open(f"/proc/{pid}/smaps", encoding="utf-8", errors="replace") as smaps:
            for line in smaps:
                if re.match(r"[0-9a-f]+-", line):
                    counts = any(name in line for name in RECORDER_MEMORY)
                elif counts and line.startswith("Rss:"):
                    total += int(line.split()[1]) * KIB
        return total

    def ledger(self, blocks, by_size):
        """{turns: number} that each stack must have."""
        expected = {}
        for stack in range(self.STACKS):
            turns = tuple("turn_right" if stack >> (self.LEVELS - 1 - level) & 1 else "turn_left"
                          for level in range(self.LEVELS))
            expected[turns] = self.THREADS * blocks * (self.STACKS + stack if by_size else 1)
        return expected

    def found(self, recording, value, unit):
        turns = {}
        for frames, number in harness.folded(recording, value, unit).items():
            known = tuple(frame for frame in frames if frame in ("turn_left", "turn_right"))
            if known:
                turns[known] = turns.get(known, 0) + number
        return turns

    def compare(self, mode):
        recording = self.path("test.hl")
        command = harness.record_command(recording, [harness.program("threads"), "multitude"], mode, ["-q"])
        with harness.Waiting(command) as heapline:
            (program,) = harness.children_of(heapline.pid)
            taken = self.recorder_bytes(program)
        self.assertEqual(heapline.returncode, 0)
        for value, blocks in (("alloc", self.ALLOCATED), ("inuse", self.KEPT)):
            for unit in ("objects", "bytes"):
                with self.subTest(value=value, unit=unit):
                    self.assertEqual(self.found(recording, value, unit),
                                     self.ledger(blocks, unit == "bytes"))
        self.assert_nothing_lost(recording)
        return taken

    def test_a_thousand_threads_equal_their_ledger_stack_by_stack_in_every_mode(self):
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                taken = self.compare(mode)
                self.assertGreater(taken, self.THREADS * 16 * KIB)  # it was found
                self.assertLess(taken, self.THREADS * 512 * KIB)


class Mappings(attaching.TestCase):
    """A process may have about 65,530 mappings, of which each of its threads has two by itself.

    With glibc 2.42 and later stacks that lie side by side are one. Each mapping of the recorder between them parts them.
    """
    THREADS = 1000
    MOST = 200

    def count(self, process, times=1):
        process.stdin.write("go\n" * times)
        process.stdin.flush()
        return [int(process.stdout.readline()) for _ in range(times)]

    def command(self, threads=THREADS):
        return [harness.program("thread_mappings"), str(threads)]

    def recorders(self, pid):
        """How many mappings of a process are the recorder's."""
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
            return sum(any(name in line for name in RECORDER_MEMORY) for line in maps)

    def assert_few(self, counts, plain, pid):
        own = self.recorders(pid)
        self.assertIn(own, range(1, self.MOST))
        for count in counts:
            self.assertLess(count - plain, self.MOST + own)

    def test_threads_cost_none(self):
        with harness.Waiting(self.command()) as process:
            plain = self.count(process)[0]
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                with harness.Waiting(harness.record_command(self.recording, self.command(), mode, ["-q"])) as process:
                    (program,) = harness.children_of(process.pid)
                    self.assert_few(self.count(process, 2), plain, program)
                with harness.Waiting(self.command()) as process:
                    with self.attached(process.pid, "--mode", mode) as attach:
                        self.assert_few(self.count(process, 2), plain, process.pid)
                        attach.send_signal(signal.SIGINT)
                    self.assertEqual(self.recorders(process.pid), 0)
                    self.assertLess(self.count(process)[0] - plain, self.MOST)  # holes part stacks, too


if __name__ == "__main__":
    harness.main()
