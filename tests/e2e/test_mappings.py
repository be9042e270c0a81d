# SPDX-License-Identifier: BSD-2-Clause
"""`record --mappings`: memory that the program maps without the allocator."""

import json

import harness


class Mappings(harness.TestCase):
    def test_mmap_munmap_mremap_and_sbrk_are_counted_exactly(self):
        for mode in harness.RECORDING_MODES:
            result, recording = self.record_well(
                [harness.program("mappings")], mode, ["--mappings"])
            rows = {value: harness.top_rows(recording, value) for value in ("alloc", "inuse")}
            for answer in json.loads(result.stdout):
                for value in rows:
                    row = rows[value].get(answer["function"], {})
                    with self.subTest(function=answer["function"], value=value, mode=mode):
                        self.assertEqual(row.get("cum_bytes", 0), answer[value + "_bytes"])

    def test_mappings_are_not_counted_unless_asked_for(self):
        _, recording = self.record_well([harness.program("mappings")])
        rows = harness.top_rows(recording, "alloc")
        self.assertFalse([name for name in rows if name.endswith("_site")])


if __name__ == "__main__":
    harness.main()
