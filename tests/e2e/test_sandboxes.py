# SPDX-License-Identifier: BSD-2-Clause
"""Programs that give up system calls after they have started."""

import harness

PARENT_BLOCKS = 1009


class Sandboxes(harness.TestCase):
    def run_scenario(self, scenario, mode):
        """The program survives; the recording says how many of its counts were lost."""
        _, recording = self.record_well([harness.program("lifecycle"), scenario], mode)
        recorded = harness.top_rows(recording, "alloc")["parent_site"]["cum_objects"]
        lost = harness.info(recording)["lost"]["events"]
        self.assertGreater(recorded, 0)
        self.assertLessEqual(recorded, PARENT_BLOCKS)
        self.assertGreaterEqual(recorded + lost, PARENT_BLOCKS)

    def test_a_filter_that_allows_what_the_manual_lists_does_not_end_the_program(self):
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                self.run_scenario("seccomp-filter", mode)

    def test_a_program_that_forbids_itself_the_time_stamp_counter_is_recorded(self):
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                _, recording = self.record_well([harness.program("lifecycle"), "no-time-stamps"], mode)
                rows = harness.top_rows(recording, "alloc")
                self.assertEqual([rows[site]["cum_objects"] for site in ("parent_site", "child_site")], [1009, 103])
                self.assert_nothing_lost(recording)


if __name__ == "__main__":
    harness.main()
