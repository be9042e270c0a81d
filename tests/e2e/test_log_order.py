# SPDX-License-Identifier: BSD-2-Clause
"""Logs of threads whose events come within a millisecond: their order is that in which one could
be because of another."""

import harness
from log_reading import LOG_MODES, LogTestCase, dump, stacks

CLOCK_SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
SPIKE_BYTES = 64 << 20
SPIKES = 3
CHURN_BYTES = 2 * 16 * 127  # at most in use
PASS_BYTES = 4 * 4096
MACHINERY_BYTES = 4096  # of threads and streams


def skip_reason():
    try:
        with open(CLOCK_SOURCE, encoding="ascii") as file:
            source = file.read().strip()
    except OSError as error:
        return f"no clock source: {error}"
    return "" if source in ("tsc", "kvm-clock") else f"the clock source is {source}"


class Order(LogTestCase):
    def setUp(self):
        super().setUp()
        reason = skip_reason()
        if reason:
            self.skipTest(reason)

    def record_order(self, scenario, mode, options=()):
        _, recording = self.record_well([harness.program("order"), scenario], mode, options)
        self.assert_log_equals_counters(recording)
        return recording

    def replay(self, recording):
        result = harness.run([harness.HEAPLINE, "events", "--replay", recording])
        self.assertEqual(result.status, 0, result.stderr)
        self.assertIn("equal: ", result.stdout)

    def test_a_spike_of_microseconds_among_busy_threads_is_in_the_log(self):
        for mode in LOG_MODES:
            recording = self.record_order("spike", mode, ["--events"])
            points = dump(recording)["points"]
            spikes = [p for p in points if p["max_bytes"] >= SPIKE_BYTES]
            self.assertTrue(1 <= len(spikes) <= SPIKES, points)
            for spike in spikes:
                self.assertLessEqual(spike["max_bytes"],
                                     SPIKE_BYTES + CHURN_BYTES + MACHINERY_BYTES)
                in_use = stacks(recording, str(spike["number"]), "max").values()
                self.assertIn((SPIKE_BYTES, 1), in_use)
                self.assertEqual(sum(number for number, _ in in_use), spike["max_bytes"])
            highest = max(row["bytes"] for row in harness.report("timeline", recording)["rows"])
            self.assertEqual(highest, max(p["max_bytes"] for p in points))
            self.replay(recording)

    def test_blocks_that_are_handed_over_are_never_more_than_there_are(self):
        for mode in LOG_MODES:
            recording = self.record_order("pass", mode, ["--events"])
            points = dump(recording)["points"]
            highest = max(p["max_bytes"] for p in points)
            self.assertGreaterEqual(highest, 4096)
            self.assertLessEqual(highest, PASS_BYTES + MACHINERY_BYTES)
            self.replay(recording)


if __name__ == "__main__":
    harness.main()
