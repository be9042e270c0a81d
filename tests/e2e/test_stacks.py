# SPDX-License-Identifier: BSD-2-Clause
"""Stacks that are not what they seem."""

import json

import harness
from harness import folded

FRAMES_KEPT = 1024


def counts_by(stacks, function, of):
    """{how often ${of} stands on a stack: number}, over the stacks on which ${function} stands."""
    counts = {}
    for frames, number in stacks.items():
        if function in frames:
            depth = frames.count(of)
            counts[depth] = counts.get(depth, 0) + number
    return counts


class Stacks(harness.TestCase):
    def record_stacks(self, scenario, mode="mem-fast"):
        _, recording = self.record_well([harness.program("stacks"), scenario], mode)
        return recording

    def test_coroutines_on_their_own_stacks_are_never_mixed(self):
        recording = self.record_stacks("coroutines")
        stacks = folded(recording, "alloc", "bytes")
        of_turn = 211 * (67 + 71)
        # Coroutine n stands n * 3 + 1 frames deep; odd and even ones in functions of their own.
        self.assertEqual(counts_by(stacks, "even_deeper", "even_deeper"), {1: of_turn, 7: of_turn})
        self.assertEqual(counts_by(stacks, "odd_deeper", "odd_deeper"), {4: of_turn, 10: of_turn})
        for frames in stacks:
            self.assertFalse("even_deeper" in frames and "odd_deeper" in frames, frames)
            if "even_deeper" in frames or "odd_deeper" in frames:
                self.assertIn("coroutine_body", frames)
        self.assert_nothing_lost(recording)

    def test_stacks_after_longjmp_are_right(self):
        recording = self.record_stacks("longjmp")
        stacks = folded(recording, "alloc", "objects")
        self.assertEqual(counts_by(stacks, "leave", "dive"), {depth: 10 for depth in range(1, 101)})
        self.assertEqual(counts_by(stacks, "jump", "dive")[0], 1000)
        self.assert_nothing_lost(recording)

    def test_recursion_deeper_than_is_kept_keeps_the_leaf_side_and_says_truncated(self):
        recording = self.record_stacks("deep")
        stacks = folded(recording, "alloc", "objects")
        counts = counts_by(stacks, "recurse", "recurse")
        self.assertEqual(counts.pop(500), 17)
        (depth, number), = counts.items()
        self.assertEqual(number, 13)
        self.assertLessEqual(depth, FRAMES_KEPT)
        self.assertGreater(depth, FRAMES_KEPT - 8)
        self.assertEqual(harness.info(recording)["lost"]["truncated_stacks"], 13)

    def test_frames_that_grow_or_are_realigned_are_walked_through(self):
        recording = self.record_stacks("unusual-frames")
        stacks = folded(recording, "alloc", "objects")
        for frames in stacks:
            if "stack_site" in frames:
                self.assertIn("unusual_frames", frames)
                self.assertIn("main", frames)
        growing = {f: n for f, n in stacks.items() if "realigned_frame" not in f}
        self.assertEqual(counts_by(growing, "growing_frame", "growing_frame"),
                         {depth: 103 for depth in range(1, 7)})
        both = {f: n for f, n in stacks.items() if "realigned_and_growing_frame" in f}
        self.assertEqual(counts_by(both, "realigned_and_growing_frame",
                                   "realigned_and_growing_frame"),
                         {depth: 109 * 2 for depth in range(1, 6)})
        self.assertEqual(harness.under(stacks, "realigned_frame"), 107 * 3 + 109 * 5)
        self.assert_nothing_lost(recording)


class Exceptions(harness.TestCase):
    def test_exceptions_across_a_hundred_frames_leave_right_stacks(self):
        for mode in harness.RECORDING_MODES:
            _, recording = self.record_well([harness.program("exceptions")], mode)
            stacks = {frames: number
                      for frames, number in folded(recording, "alloc", "objects").items()
                      if any(f.startswith("climb_site(") for f in frames)}
            climbing = {f: n for f, n in stacks.items()
                        if not any("releases" in frame for frame in f)}
            climb = "climb(int)"
            by_depth = counts_by(climbing, "handle()", climb)
            self.assertEqual(by_depth.pop(0), 300)
            self.assertEqual(by_depth, {depth: 300 for depth in range(1, 101)})
            # Each destructor runs in the landing pad of its own frame, at its own depth.
            falling = {f: n for f, n in stacks.items() if f not in climbing}
            self.assertEqual(counts_by(falling, "handle()", climb),
                             {depth: 300 for depth in range(1, 101)})
            self.assert_nothing_lost(recording)


class Libraries(harness.TestCase):
    def test_libraries_at_one_address_after_each_other_are_told_apart(self):
        command = [harness.program("dlopen_same_address"), harness.program("plugin_a.so"),
                   harness.program("plugin_b.so")]
        for mode in harness.RECORDING_MODES:
            result, recording = self.record_well(command, mode)
            self.assertGreater(json.loads(result.stdout)["coincidences"], 0)
            rows = harness.top_rows(recording, "alloc")
            for function, size in (("plugin_a_site", 109), ("plugin_b_site", 113)):
                self.assertEqual((rows[function]["cum_objects"], rows[function]["cum_bytes"]),
                                 (707, 707 * size), function)
            self.assert_nothing_lost(recording)


if __name__ == "__main__":
    harness.main()
