# SPDX-License-Identifier: BSD-2-Clause
"""Sampling: estimates are unbiased over sizes, and as near as the mathematics says."""

import json
import math

import harness

MEAN_BYTES = 65536
SIGMAS = 6  # one wrong alarm in half a billion comparisons


def error_of_objects(count, size):
    """
    Bound on the error of an estimated number of blocks.

    A block of s bytes is sampled with probability p = 1 - exp(-s/m) and then stands for 1/p blocks,
    so that n blocks are estimated as n with variance n (1-p)/p. The distance to the next sample has
    no memory, so blocks are independent.
    """
    p = -math.expm1(-size / MEAN_BYTES)
    return SIGMAS * math.sqrt(count * (1 - p) / p) + 1 / p


class Sampling(harness.TestCase):
    def compare(self, mode):
        result, recording = self.record_well(
            [harness.program("sizes")], mode, ["--sample", "64K"])
        rows = {value: harness.top_rows(recording, value) for value in ("alloc", "inuse")}
        sums = {}
        for answer in map(json.loads, result.stdout.splitlines()):
            for value in ("alloc", "inuse"):
                count, size = answer[value + "_objects"], answer["size"]
                row = rows[value].get(answer["function"], {"cum_objects": 0, "cum_bytes": 0})
                error = error_of_objects(count, size)
                with self.subTest(function=answer["function"], value=value, mode=mode):
                    self.assertAlmostEqual(row["cum_objects"], count, delta=error)
                    self.assertAlmostEqual(row["cum_bytes"], count * size, delta=error * size)
                expected, variance = sums.get(value, (0, 0))
                sums[value] = (expected + count * size, variance + (error * size) ** 2)
        for value, (expected, variance) in sums.items():
            found = sum(row["cum_bytes"] for name, row in rows[value].items()
                        if name.startswith(("size_", "reused_")))
            self.assertAlmostEqual(found, expected, delta=math.sqrt(variance))

    def test_estimates_from_samples_are_within_their_error_in_mem_record(self):
        self.compare("mem-record")

    def test_estimates_from_samples_are_within_their_error_in_mem_fast(self):
        self.compare("mem-fast")


if __name__ == "__main__":
    harness.main()
