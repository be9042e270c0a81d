# SPDX-License-Identifier: BSD-2-Clause
"""Kept events: each is one that happened, and they tell the same as the log and the counters."""

import os
import signal
import sys
import time

import harness
from churn_ledger import SIZE_STEP, SIZES, WINDOW
from test_log_faults import THREADS, Churning
from log_reading import LOG_MODES, LogTestCase

KEEP = ["--events"]
SMALL_FILES = ["--events", "--log-segment-size", "1", "--log-segments", "100000"]
KILLS = 20
BLOCKS = 400000
RANDOM_BLOCKS = f"""
import random
kept = {{}}
for _ in range({BLOCKS}):
    kept[random.randrange(20000)] = bytes(random.randrange(600, 6000))
"""


def events(recording, *options):
    """The report of `heapline events`, and how it ended."""
    result = harness.run([harness.HEAPLINE, "events", "--json", *options, recording])
    if not result.stdout:
        raise AssertionError(result.stderr)
    return harness.json.loads(result.stdout), result.status


def event_files(recording):
    return sorted(name for name in os.listdir(recording) if name.startswith("events-"))


def churned(count):
    """What a thread of churn allocates and frees, in order."""
    sizes = [k % SIZES * SIZE_STEP + 1 for k in range(count)]
    allocated = freed = 0
    for number in range(count):
        if number >= WINDOW and (number - WINDOW) % 2 == 0:
            yield -sizes[freed]
            freed += 1
        else:
            yield sizes[allocated]
            allocated += 1


class Equality(LogTestCase):
    """Events add up to the counters, and replayed they are the log."""

    def assert_equal_to_log_and_counters(self, recording, totals=True):
        self.assert_log_equals_counters(recording)
        for process in harness.processes(recording):
            sequence = f"/{process['sequence']}"
            replay, status = events(recording, "--replay", "-p", sequence)
            self.assertEqual((replay["equal"], status), (True, 0), replay)
            self.assertEqual(replay["uncertain_intervals"], 0)
            self.assertGreater(replay["states"], 0)
            self.assertEqual(replay["files"]["missing_events"], 0)
            self.assertTrue(replay["files"]["complete"])
            if totals:
                summary, _ = events(recording, "-p", sequence)
                counted = harness.info(recording, process["sequence"])["total"]
                self.assertEqual([summary["alloc_bytes"], summary["alloc_objects"]],
                                 [counted["alloc_bytes"], counted["alloc_objects"]])

    def compare(self, command, options=KEEP, totals=True):
        for mode in LOG_MODES:
            with self.subTest(mode=mode, command=command[1:], options=options):
                result, recording = self.record(command, mode, options)
                self.assertEqual(result.status, 0, result.stderr)
                self.assert_equal_to_log_and_counters(recording, totals)

    def test_events_of_programs_with_known_counts(self):
        self.compare([harness.program("known_answer")])

    def test_events_of_random_threads_in_one_file_and_in_many(self):
        self.compare([harness.program("ledger"), "31", "8", "60000"])
        self.compare([harness.program("ledger"), "32", "2", "600000"], SMALL_FILES)

    def test_events_of_samples_mappings_and_size_classes(self):
        ledger = [harness.program("ledger"), "33", "2", "60000"]
        self.compare(ledger, KEEP + ["--sample", "1K"])
        self.compare(ledger, KEEP + ["--sizes"])
        self.compare(ledger, KEEP + ["--mappings"], totals=False)  # of parts of mappings

    def test_events_of_a_thousand_short_threads(self):
        self.compare([harness.program("threads"), "short-threads"])

    def test_each_program_image_has_events_of_its_own(self):
        self.compare([harness.program("lifecycle"), "fork-twice"])
        self.compare([harness.program("lifecycle"), "exec"])

    def test_old_files_are_deleted_and_the_rest_is_equal(self):
        command = [harness.program("ledger"), "34", "2", "600000"]
        options = ["--events", "--log-segment-size", "1", "--log-segments", "2"]
        _, recording = self.record_well(command, "log-fast", options)
        self.assertLessEqual(len(event_files(recording)), 2)
        replay, status = events(recording, "--replay")
        self.assertEqual((replay["equal"], status), (True, 0))

    def test_events_are_replaced_with_their_recording(self):
        command = [harness.program("known_answer")]
        _, recording = self.record_well(command, "log-fast", KEEP)
        self.assertTrue(event_files(recording))
        self.record_well(command, "log-fast")
        self.assertFalse(event_files(recording))

    def test_reports_do_not_depend_on_how_many_threads_read(self):
        command = [harness.program("ledger"), "35", "4", "600000"]
        _, recording = self.record_well(command, "log-fast", SMALL_FILES)
        for report in ([], ["--lifetimes"], ["--replay"], ["--dump", "--stacks", "-n", "1000"]):
            texts = {harness.run([harness.HEAPLINE, "events", *report, "-j", str(jobs),
                                  recording]).stdout for jobs in (1, 2, 7)}
            self.assertEqual(len(texts), 1, report)


class Order(Churning):
    def test_a_dump_has_each_event_of_each_thread_in_its_order(self):
        count = 30000
        _, heapline, _ = self.start("log-fast", KEEP, events=[str(count)])
        heapline.communicate(timeout=harness.TIMEOUT_S)
        self.assertEqual(heapline.returncode, 0)
        dumped = harness.run([harness.HEAPLINE, "events", "--dump", self.recording])
        self.assertEqual(dumped.status, 0, dumped.stderr)
        threads, tick = {}, 0
        for line in dumped.stdout.splitlines():
            at, thread, size, _ = line.split()
            self.assertGreaterEqual(int(at), tick)
            tick = int(at)
            threads.setdefault(thread, []).append(int(size))
        expected = list(churned(count))
        self.assertEqual(len(threads), THREADS)
        for sizes in threads.values():
            before = len(sizes) - count  # what the C library did to start a thread
            self.assertLess(before, 10)
            self.assertEqual(sizes[before:before + count], expected)


class Kills(Churning):
    def test_events_of_killed_programs_are_all_there(self):
        for number in range(KILLS):
            with self.subTest(kill=number):
                _, heapline, pid = self.start("log-fast", KEEP)
                time.sleep(0.003 * number)
                os.kill(pid, signal.SIGKILL)
                heapline.communicate(timeout=harness.TIMEOUT_S)
                replay, status = events(self.recording, "--replay")
                self.assertEqual((replay["equal"], status), (True, 0), replay)
                self.assertEqual(replay["uncertain_intervals"], 0)
                self.assertTrue(replay["files"]["complete"])

    def has_many_events(self):
        """Whether those of a recording that goes on can be read, which may hold nothing yet."""
        result = harness.run([harness.HEAPLINE, "events", "--json", "--replay", self.recording])
        return result.stdout and harness.json.loads(result.stdout)["events"] > 1000

    def test_events_whose_collector_is_killed_are_read_up_to_the_last_whole_piece(self):
        _, heapline, pid = self.start("log-fast", KEEP)
        harness.wait_until(self.has_many_events, "more than a thousand events")
        os.kill(pid, signal.SIGSTOP)
        heapline.kill()
        os.kill(pid, signal.SIGKILL)
        heapline.wait()
        replay, status = events(self.recording, "--replay")
        self.assertEqual((replay["equal"], status), (True, 0), replay)
        self.assertFalse(replay["files"]["complete"])
        self.assertGreater(replay["events"], 1000)


class FullDisk(LogTestCase):
    def test_a_full_disk_loses_events_which_is_said_and_those_after_them_are_right(self):
        saved = self.record_on_full_disk(SMALL_FILES)
        replay, status = events(saved, "--replay")
        self.assertEqual((replay["equal"], status), (True, 0), replay)
        self.assertGreaterEqual(replay["files"]["missing_events"], 1)
        self.assertRegex(" ".join(harness.info(saved)["recording"]["warnings"]),
                         r"\d+ events? of process \d+ could not be kept: No space left on device "
                         r"but what is left for the counters and the log; make room, .*\(-o\)")

    def test_events_that_fill_the_disk_leave_room_for_the_counters(self):
        harness.need_root()
        small, saved = self.path("small"), self.path("saved.hl")
        os.mkdir(small)
        script = ("mount -t tmpfs -o size=1m heapline-test \"$0\" && saved=$1 && shift && \"$@\"; "
                  "status=$?; cp -r \"$0/test.hl\" \"$saved\"; exit $status")
        command = harness.record_command(f"{small}/test.hl", [sys.executable, "-c", RANDOM_BLOCKS],
                                         "log-fast", [*KEEP, "--no-scripts", "--no-objects"])
        result = harness.run(["unshare", "-m", "/bin/sh", "-c", script, small, saved, *command])
        self.assertEqual(result.status, 0, result.stderr)
        replay, status = events(saved, "--replay")
        self.assertEqual((replay["equal"], status), (True, 0), replay)
        self.assertGreater(replay["files"]["missing_events"], 0)
        recorded = harness.info(saved)
        self.assertTrue(recorded["recording"]["complete"], recorded["recording"])
        self.assertGreaterEqual(recorded["total"]["alloc_objects"], BLOCKS)


if __name__ == "__main__":
    harness.main()
