# SPDX-License-Identifier: BSD-2-Clause
"""Logs of programs and collectors that are killed or stopped, and on disks that are full."""

import ctypes
import json
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import harness
from churn_ledger import Ledger, counts_after, shared_path
from log_reading import LOG_MODES, LogTestCase, at_end, counters, dump

KILLS = 200
LATEST_KILL_S = 0.06
SEED = 30071
PR_SET_CHILD_SUBREAPER = 36
THREADS = 2  # of churn


class Churning(LogTestCase):
    """`churn` while it is recorded, with the ledger that it keeps."""

    def setUp(self):
        super().setUp()
        self.ledger_path = shared_path(self)
        self.recording = self.path("churn.hl")

    def start(self, mode, options=(), events=()):
        """(ledger, heapline, pid of the program)."""
        ledger = Ledger(self.ledger_path)
        self.addCleanup(ledger.close)
        command = harness.record_command(
            self.recording, [harness.program("churn"), self.ledger_path, *events], mode, options)
        heapline = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                    stdin=subprocess.DEVNULL)
        self.addCleanup(heapline.stdout.close)
        self.addCleanup(heapline.wait)
        self.addCleanup(heapline.kill)
        pid = harness.wait_until(lambda: ledger.pid() or heapline.poll() is not None, "churn")
        self.assertIsNone(heapline.returncode, "ended too early")
        return ledger, heapline, pid

    def done(self, ledger):
        return [ledger.progress(thread)[1] for thread in range(THREADS)]

    def await_done(self, ledger, events):
        harness.wait_until(lambda: self.done(ledger) == [events] * THREADS, "the last event")

    def points_once(self, enough):
        """The points of the log of a program that goes on, when they are enough; it may hold nothing yet."""
        def look():
            result = harness.run([harness.program("log_dump"), self.recording, "0"])
            points = json.loads(result.stdout)["points"] if result.status == 0 else []
            return points and enough(points) and points

        return harness.wait_until(look, "more of the log")

    def assert_end_is_within_one_event_of_each_thread(self):
        log, counted = at_end(self.recording), counters(self.recording)
        different = {stack: (log.get(stack), counted.get(stack))
                     for stack in set(log) | set(counted) if log.get(stack) != counted.get(stack)}
        self.assertLessEqual(len(different), THREADS, different)
        for in_log, in_counters in different.values():
            objects = (in_log or (0, 0))[1] - (in_counters or (0, 0))[1]
            self.assertLessEqual(abs(objects), THREADS, different)


class Kills(Churning):
    def test_logs_of_programs_killed_at_random_moments_have_all_events(self):
        generator = random.Random(SEED)
        for number in range(KILLS):
            moment = generator.uniform(0, LATEST_KILL_S)
            mode = LOG_MODES[number % 2]
            with self.subTest(kill=number, moment_ms=round(moment * 1000, 3), mode=mode):
                _, heapline, pid = self.start(mode)
                time.sleep(moment)
                os.kill(pid, signal.SIGKILL)
                output, _ = heapline.communicate(timeout=harness.TIMEOUT_S)
                self.assertEqual(heapline.returncode, 128 + signal.SIGKILL, output)
                log = dump(self.recording)
                self.assertEqual((log["lost_events"], log["missing"], log["cut_off"]),
                                 (0, 0, False))
                self.assert_end_is_within_one_event_of_each_thread()

    def kill_collector(self, with_program):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        events = 8000000
        ledger, heapline, pid = self.start("log-fast", events=[str(events)])
        self.points_once(len)
        if with_program:
            os.kill(pid, signal.SIGSTOP)  # so that neither sees the other's death
            heapline.kill()
            os.kill(pid, signal.SIGKILL)
        else:
            heapline.kill()
            heapline.wait()
            self.await_done(ledger, events)
        heapline.wait()
        _, status = os.waitpid(pid, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status),
                         -signal.SIGKILL if with_program else 0)
        log = dump(self.recording)
        self.assertTrue(log["cut_off"])
        self.assertGreaterEqual(len(log["points"]), 1)
        for number_of_bytes, objects in at_end(self.recording).values():
            self.assertGreaterEqual(number_of_bytes, 0)
            self.assertLessEqual(objects, 200)

    def test_a_log_whose_collector_is_killed_is_read_up_to_its_last_interval(self):
        self.kill_collector(with_program=False)

    def test_a_log_is_read_when_collector_and_program_are_killed(self):
        self.kill_collector(with_program=True)


class FullRings(Churning):
    def await_waits(self, pid):
        """Until each thread sleeps, as `churn` itself never does."""
        tasks = Path(f"/proc/{pid}/task")
        nanosleep = "35 "
        harness.wait_until(lambda: sum(task.read_text("ascii").startswith(nanosleep)
                                       for task in tasks.glob("*/syscall")) == THREADS, "the threads to wait")

    def test_a_program_waits_for_a_collector_that_is_stopped_for_a_while(self):
        for mode in LOG_MODES:
            ledger, heapline, pid = self.start(mode, events=["3000000"])
            os.kill(heapline.pid, signal.SIGSTOP)
            self.await_waits(pid)
            self.assertNotIn(3000000, self.done(ledger))
            os.kill(heapline.pid, signal.SIGCONT)
            output, _ = heapline.communicate(timeout=harness.TIMEOUT_S)
            self.assertEqual(heapline.returncode, 0, output)
            self.assertEqual(self.done(ledger), [3000000] * THREADS)
            self.assert_log_equals_counters(self.recording)

    def test_a_collector_that_is_stopped_for_seconds_costs_no_event(self):
        ledger, heapline, pid = self.start("log-fast", events=["3000000"])
        os.kill(heapline.pid, signal.SIGSTOP)
        self.await_waits(pid)
        time.sleep(2)  # long enough that they wait
        self.assertNotIn(3000000, self.done(ledger))
        os.kill(heapline.pid, signal.SIGCONT)
        output, _ = heapline.communicate(timeout=harness.TIMEOUT_S)
        self.assertEqual(heapline.returncode, 0, output)
        self.assertRegex(output.decode(), r"\d threads? of process \d+ waited for up to "
                                          r"\d\.\d s, because the collector did not read events")
        self.assertEqual(dump(self.recording)["lost_events"], 0)
        self.assert_log_equals_counters(self.recording)

    def test_a_lossy_program_goes_on_while_the_collector_is_stopped_and_counts_what_it_drops(self):
        events = 3000000
        ledger, heapline, _ = self.start("log-fast", ["--lossy"], [str(events)])
        os.kill(heapline.pid, signal.SIGSTOP)
        self.await_done(ledger, events)
        os.kill(heapline.pid, signal.SIGCONT)
        output, _ = heapline.communicate(timeout=harness.TIMEOUT_S)
        self.assertEqual(heapline.returncode, 0, output)
        lost = dump(self.recording)["lost_events"]
        self.assertGreater(lost, 0)
        self.assertRegex(output.decode(), rf"log of process \d+ lacks {lost:,} events.* "
                                          r"its figures are right again from \d+ ms on")
        self.assertEqual(at_end(self.recording), counters(self.recording))
        expected = counts_after(events)
        rows = harness.top_rows(self.recording, "alloc")
        for thread in range(THREADS):
            self.assertEqual(rows[f"churn_{thread}"]["cum_objects"], expected["alloc_objects"])
        self.assert_nothing_lost(self.recording)  # of the counters

    def test_a_log_that_lost_events_is_right_again_while_the_program_goes_on(self):
        ledger, heapline, pid = self.start("log-fast", ["--events"])
        self.points_once(len)
        os.kill(heapline.pid, signal.SIGSTOP)
        # Rings have no room for these. Ten seconds on nobody waits for a collector that is stopped.
        stopped_at = max(self.done(ledger))
        harness.wait_until(lambda: min(self.done(ledger)) > stopped_at + 3000000,
                           "events that are lost")
        stopped = self.points_once(len)[-1]["number"]
        os.kill(heapline.pid, signal.SIGCONT)
        resumed = self.points_once(lambda found: found[-1]["number"] > stopped + 90)
        points = self.points_once(lambda found: len(found) > len(resumed) + 30)
        os.kill(pid, signal.SIGKILL)
        output, _ = heapline.communicate(timeout=harness.TIMEOUT_S)
        said = re.search(r"lacks ([\d,]+) events.*right again from \d+ ms on", output.decode())
        self.assertTrue(said, output)
        self.assertGreater(int(said[1].replace(",", "")), 1000000)
        # Two seconds are time for a second re-base, should a thread have been in an event at the first.
        for point in points[len(resumed) + 20:]:
            self.assertLessEqual(point["max_bytes"], THREADS * (61 + 1) * 997 * 7)
            self.assertGreaterEqual(point["end_bytes"], 0)
        self.assert_end_is_within_one_event_of_each_thread()
        result = harness.run([harness.HEAPLINE, "events", "--replay", self.recording])
        self.assertEqual(result.status, 0, result.stderr)
        marks = harness.report("timeline", self.recording)["marks"]
        self.assertTrue([mark for mark in marks if "re-based after" in str(mark)], marks)

    def test_a_program_goes_on_when_its_collector_has_died(self):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        ledger, heapline, pid = self.start("log-fast", events=["3000000"])
        heapline.kill()
        heapline.wait()
        self.await_done(ledger, 3000000)
        _, status = os.waitpid(pid, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 0)

    def test_a_daemon_does_not_wait_for_a_collector_that_has_left(self):
        status_file = self.path("status")
        script = f"('{harness.program('churn')}' '{self.ledger_path}' 2000000; echo $? > " \
                 f"'{status_file}.new'; mv '{status_file}.new' '{status_file}') & sleep 0.2"
        Ledger(self.ledger_path).close()
        _, recording = self.record_well(["/bin/sh", "-c", script], "log-fast")
        harness.wait_until(lambda: os.path.exists(status_file), "the daemon's end")
        with open(status_file, encoding="ascii") as file:
            self.assertEqual(file.read(), "0\n")
        for process in harness.processes(recording):
            dump(recording, sequence=process["sequence"])


class FullDisk(LogTestCase):
    def test_a_full_disk_leaves_intervals_out_and_the_figures_after_them_right(self):
        # A segment for each interval: else the rest of the last page takes many intervals.
        saved = self.record_on_full_disk(["--log-segment-size", "1"])
        log = dump(saved)
        self.assertGreaterEqual(log["missing"], 1)
        self.assertEqual(at_end(saved), counters(saved))
        self.assertRegex(" ".join(harness.info(saved)["recording"]["warnings"]),
                         r"\d+ intervals? of the log of process \d+ could not be written: "
                         r"No space left on device; make room, .*\(-o\)")


if __name__ == "__main__":
    harness.main()
