# SPDX-License-Identifier: BSD-2-Clause
"""Logs: what they say equals what the program did and what the counters say."""

import glob
import os
import shutil
import time

import harness
from log_reading import LOG_MODES, LogTestCase, at_end, dump, stacks

MODES = harness.RECORDING_MODES
SPIKE_BYTES = 64 << 20


def run_figures(report):
    """A report without what differs from run to run: names, times, process ids, the mode, a command that names the recording."""
    report = dict(report)
    report.pop("recording")
    report.pop("next", None)
    report["total"] = {key: value for key, value in report["total"].items() if key != "recorder_memory_bytes"}
    return report


class SameFigures(LogTestCase):
    def compare_modes(self, command, reports):
        figures = {}
        for mode in MODES:
            _, recording = self.record_well(command, mode, name=f"{mode}.hl")
            figures[mode] = [run_figures(harness.report("top", recording, "--rows", "0", *options))
                             for options in reports]
            self.assertEqual(harness.info(recording)["recording"]["mode"], mode)
            figures[mode].append(run_figures(harness.info(recording))["total"])
            self.assert_nothing_lost(recording)
        for mode in MODES[1:]:
            self.assertEqual(figures[mode], figures[MODES[0]], mode)

    def test_the_four_modes_give_the_same_figures_of_a_program_with_known_counts(self):
        self.compare_modes([harness.program("known_answer")],
                           [("--value", value) for value in
                            ("inuse", "alloc", "peak", "temporary", "slack")])

    def test_the_four_modes_give_the_same_figures_of_a_random_program(self):
        self.compare_modes([harness.program("ledger"), "21", "1", "60000"],
                           [("--value", value, "--unit", unit) for value in ("inuse", "alloc")
                            for unit in ("bytes", "objects")])


class Ends(LogTestCase):
    """At the end of a log stands what the counters have."""

    def compare(self, command, options=(), status=0):
        for mode in LOG_MODES:
            with self.subTest(mode=mode, command=command[1:]):
                result, recording = self.record(command, mode, options)
                self.assertEqual(result.status, status, result.stderr)
                self.assert_log_equals_counters(recording)
                # On a busy machine threads wait for the collector: that loses nothing.
        warnings = harness.info(recording)["recording"].get("warnings", [])
        self.assertFalse([text for text in warnings if " waited for up to " not in text])

    def test_logs_of_programs_with_known_counts_end_with_their_counters(self):
        self.compare([harness.program("known_answer")])

    def test_logs_of_random_threads_end_with_their_counters(self):
        self.compare([harness.program("ledger"), "22", "2", "60000"])
        self.compare([harness.program("ledger"), "23", "8", "60000"])

    def test_logs_with_size_classes_samples_or_mappings_end_with_their_counters(self):
        ledger = [harness.program("ledger"), "24", "2", "60000"]
        self.compare(ledger, ["--sizes"])
        self.compare(ledger, ["--sample", "1K"])
        self.compare(ledger, ["--mappings"])

    def test_logs_of_a_thousand_short_threads_end_with_their_counters(self):
        for scenario in ("short-threads", "late-allocations", "cancel-deferred", "signals"):
            self.compare([harness.program("threads"), scenario])

    def test_logs_of_hundreds_of_busy_threads_lack_no_event(self):
        recording = self.path("crowd.hl")
        command = harness.record_command(recording, [harness.program("threads"), "crowd"],
                                         "log-fast")
        if os.geteuid() == 0:  # as for an ordinary user, the collector has no priority
            command = ["setpriv", "--inh-caps", "-sys_nice", "--bounding-set", "-sys_nice",
                       *command]
        result = harness.run(command)
        self.assertEqual(result.status, 0, result.stderr)
        self.assertEqual(dump(recording)["lost_events"], 0)
        self.assert_log_equals_counters(recording)

    def test_rings_of_ended_threads_are_used_again(self):
        _, recording = self.record_well([harness.program("threads"), "short-threads"], "log-fast")
        slots = harness.report("top", recording, "--by", "thread", "-n", "0", "--value", "alloc")["rows"]
        self.assertLessEqual(len(slots), 144)  # of a thousand threads; 128 are told apart
        self.assertEqual(harness.processes(recording)[0]["threads"], 1001)
        self.assert_log_equals_counters(recording)

    def test_each_program_image_has_a_log_of_its_own(self):
        for scenario in ("fork", "fork-twice", "fork-storm", "vfork-exec", "posix-spawn", "exec"):
            self.compare([harness.program("lifecycle"), scenario])

    def test_logs_in_many_segments_end_with_their_counters(self):
        command = [harness.program("ledger"), "25", "2", "600000"]
        _, recording = self.record_well(command, "log-fast", ["--log-segment-size", "1",
                                                              "--log-segments", "2"])
        files = sorted(name for name in os.listdir(recording) if name.startswith("memlog-"))
        self.assertLessEqual(len(files), 2)
        for name in files:
            self.assertRegex(name, r"^memlog-0-\d{8}T\d{6}-\d{6}\.hll$")
        self.assert_log_equals_counters(recording)

    def test_a_log_is_replaced_with_its_recording(self):
        command = [harness.program("known_answer")]
        _, recording = self.record_well(command, "log-fast")
        self.record_well(command, "mem-fast")
        self.assertFalse([name for name in os.listdir(recording) if "memlog" in name])


class OtherRecordings(LogTestCase):
    """Files of a second recording of the same program, copied beside those of the first."""

    def setUp(self):
        super().setUp()
        hello = harness.program("hello")
        command = ["sh", "-c", f"{hello}; {hello}; true"]
        _, self.first = self.record_well(command, "log-fast", name="first.hl")
        _, self.second = self.record_well(command, "log-fast", name="second.hl")

    def copy(self, pattern):
        files = glob.glob(f"{self.second}/{pattern}")
        for file in files:
            shutil.copy(file, self.first)
        return [os.path.basename(file) for file in files]

    def assert_left_out(self, report, names):
        warnings = report["recording"]["warnings"]
        for name in names:
            self.assertTrue([text for text in warnings if name in text], (name, warnings))

    def test_their_processes_are_left_out_and_named(self):
        before = harness.report("top", self.first)
        names = self.copy("process-*")
        after = harness.report("top", self.first)
        self.assertEqual(len(names), 3)
        self.assertEqual(after["total"], before["total"])
        self.assertEqual(after["recording"]["processes"], 3)
        self.assert_left_out(after, names)

    def test_their_logs_are_no_processes_of_this_one(self):
        for file in glob.glob(f"{self.first}/*-1-*"):
            os.unlink(file)
        names = self.copy("memlog-1-*")
        self.assertEqual(len(names), 1)
        self.assert_left_out(harness.report("timeline", self.first), names)
        result = harness.run([harness.HEAPLINE, "timeline", "--process", "0/1", self.first])
        self.assertNotEqual(result.status, 0, result.stdout)


class Times(LogTestCase):
    def spike_of(self, recording):
        points = dump(recording)["points"]
        self.assertEqual([p["number"] for p in points], list(range(len(points))))
        spikes = [p for p in points if p["max_bytes"] >= SPIKE_BYTES]
        self.assertEqual(len(spikes), 1, points)
        return points, spikes[0]

    def record_spike(self, prefix=(), mode="log-fast", **options):
        begin = time.monotonic()
        _, recording = self.record_well([*prefix, harness.program("spike")], mode, **options)
        return recording, time.monotonic() - begin

    def assert_times(self, recording, elapsed_s):
        """The spike is a quarter of a second away from both ends."""
        points, spike = self.spike_of(recording)
        self.assertGreaterEqual(spike["number"], 2)
        self.assertGreaterEqual(len(points), spike["number"] + 2)
        self.assertLessEqual(len(points), elapsed_s * 10 + 1)

    def test_a_spike_of_five_milliseconds_is_in_the_log_to_the_byte(self):
        for mode in LOG_MODES:
            recording, elapsed_s = self.record_spike(mode=mode)
            self.assert_times(recording, elapsed_s)
            points, spike = self.spike_of(recording)
            base = points[spike["number"] - 1]["end_bytes"]
            self.assertEqual(spike["max_bytes"], base + SPIKE_BYTES)
            self.assertGreater(spike["rss_bytes"], 0)
            top = stacks(recording, str(spike["number"]), "max")
            self.assertEqual(sorted(top.values())[-2:], [(1009 * 127, 1009), (SPIKE_BYTES, 1)])
            self.assertNotIn((SPIKE_BYTES, 1), at_end(recording).values())

    def test_jumps_of_the_wall_clock_do_not_disturb_the_log(self):
        recording, elapsed_s = self.record_spike(
            env={"LD_PRELOAD": harness.program("wall_clock.so")})
        self.assert_times(recording, elapsed_s)

    def test_a_program_with_another_monotonic_clock_has_right_times(self):
        harness.need_root()
        clock = ["unshare", "--time", "--monotonic", "100000", "--"]
        if harness.run([*clock, "true"]).status != 0:
            self.skipTest("no time namespaces here")
        recording, elapsed_s = self.record_spike(clock)
        last = harness.processes(recording)[-1]["sequence"]
        points = dump(recording, sequence=last)["points"]
        self.assertTrue([p for p in points if p["max_bytes"] >= SPIKE_BYTES])
        self.assertLessEqual(len(points), elapsed_s * 10 + 1)


if __name__ == "__main__":
    harness.main()
