# SPDX-License-Identifier: BSD-2-Clause
"""`record --sizes` and `sizes`: what blocks of each size come to, and who allocated them."""

import json

import harness
from test_ledger import STACKS_AT_LEAST, ledger_stacks, read_ledger

VALUES = ("alloc", "inuse", "temporary", "peak")
UNITS = ("bytes", "objects")
FUNCTIONS_ASKED_FOR = ("--focus", "^site_")


def report(recording, value, *options):
    """With all stacks."""
    return harness.report("sizes", recording, "--stacks", "0", "--value", value, *options)


def digits_of(row):
    """The number of binary digits of a class' sizes."""
    return row["size_min"].bit_length()


def by_class(rows, unit):
    return {digits_of(row): row[unit] for row in rows if row[unit]}


def by_class_and_site(rows, unit):
    """{(class, function): number} of the stacks in which a site_ stands."""
    found = {}
    for row in rows:
        for stack in row["stacks"]:
            for function in {name for name in stack["stack"] if name.startswith("site_")}:
                key = digits_of(row), function
                found[key] = found.get(key, 0) + stack[unit]
    return {key: number for key, number in found.items() if number}


def figure(answer, value, unit):
    return answer[value + "_objects"] * (1 if unit == "objects" else answer["size"])


def summed(answers, value, unit, key_of):
    """{key: number} of what the program says of itself, without zeros."""
    sums = {}
    for answer in answers:
        key = key_of(answer)
        sums[key] = sums.get(key, 0) + figure(answer, value, unit)
    return {key: number for key, number in sums.items() if number}


class SizesCase(harness.TestCase):
    def assert_classes_add_up(self, recording, *options, values=VALUES):
        for value in values:
            found = harness.report("sizes", recording, "--value", value, *options)
            total = dict(found["total"], temporary_bytes=0)
            for unit in UNITS:
                with self.subTest(value=value, unit=unit):
                    self.assertEqual(sum(row.get(unit, 0) for row in found["rows"]),
                                     total[f"{value}_{unit}"])
            for key in ("slack_bytes", "inuse_bytes"):
                with self.subTest(value=value, key=key):
                    self.assertEqual(sum(row[key] for row in found["rows"]), total[key])


class KnownSizes(SizesCase):
    def answers_and_recording(self, mode, *options):
        result, recording = self.record_well([harness.program("size_classes")], mode, options)
        return [json.loads(line) for line in result.stdout.splitlines()], recording

    def compare(self, mode):
        answers, recording = self.answers_and_recording(mode, "--sizes")
        for value in ("alloc", "inuse", "temporary"):
            found = report(recording, value, *FUNCTIONS_ASKED_FOR)
            self.assertIs(found["exact"], True)
            for unit in ("objects",) if value == "temporary" else UNITS:
                with self.subTest(value=value, unit=unit, mode=mode):
                    self.assertEqual(
                        by_class(found["rows"], unit),
                        summed(answers, value, unit, lambda a: a["size"].bit_length()))
                    self.assertEqual(
                        by_class_and_site(found["rows"], unit),
                        summed(answers, value, unit,
                               lambda a: (a["size"].bit_length(), a["function"])))
        self.assert_nothing_lost(recording)

    def test_each_class_and_each_stack_in_it_is_exact_in_mem_record(self):
        self.compare("mem-record")

    def test_each_class_and_each_stack_in_it_is_exact_in_mem_fast(self):
        self.compare("mem-fast")

    def test_slack_of_each_class_is_exact(self):
        answers, recording = self.answers_and_recording("mem-fast", "--sizes")
        expected = {}
        for answer in answers:
            digits = answer["size"].bit_length()
            expected[digits] = expected.get(digits, 0) + answer["slack_bytes"]
        rows = report(recording, "inuse", *FUNCTIONS_ASKED_FOR)["rows"]
        self.assertEqual({digits_of(row): row["slack_bytes"] for row in rows}, expected)

    def test_classes_add_up_to_the_totals(self):
        for options in ((), ("--sizes",), ("--sizes", "--sample", "4K")):
            _, recording = self.answers_and_recording("mem-fast", *options)
            values = [value for value in VALUES if value != "temporary" or "--sample" not in options]
            with self.subTest(options=options):
                self.assert_classes_add_up(recording, values=values)

    def test_the_totals_are_the_same_with_and_without_sizes(self):
        _, with_sizes = self.answers_and_recording("mem-fast", "--sizes")
        expected = {value: harness.folded(with_sizes, value, "objects") for value in VALUES}
        _, without = self.answers_and_recording("mem-fast")
        for value in ("alloc", "inuse", "temporary"):
            with self.subTest(value=value):
                self.assertEqual(harness.folded(without, value, "objects"), expected[value])

    def test_without_sizes_each_stack_counts_in_the_class_of_its_mean(self):
        answers, recording = self.answers_and_recording("mem-fast")
        found = report(recording, "alloc", *FUNCTIONS_ASKED_FOR)
        self.assertIs(found["exact"], False)
        in_bytes = summed(answers, "alloc", "bytes", lambda a: a["function"])
        in_objects = summed(answers, "alloc", "objects", lambda a: a["function"])
        classes = {}
        for digits, function in by_class_and_site(found["rows"], "objects"):
            classes.setdefault(function, []).append(digits)
        for function in ("site_one_size", "site_aligned"):
            mean = in_bytes[function] // in_objects[function]
            self.assertEqual(classes[function], [mean.bit_length()])
        text = harness.run([harness.HEAPLINE, "sizes", recording]).stdout
        self.assertIn("by the mean size of each stack; 'heapline record --sizes' tells each "
                      "size apart", text)

    def test_sampled_blocks_have_a_class(self):
        answers, recording = self.answers_and_recording("mem-fast", "--sizes", "--sample", "4K")
        found = report(recording, "alloc", *FUNCTIONS_ASKED_FOR)
        self.assertIs(found["exact"], True)
        known = summed(answers, "alloc", "objects",
                       lambda a: (a["size"].bit_length(), a["function"]))
        sampled = by_class_and_site(found["rows"], "objects")
        self.assertTrue(sampled)
        self.assertLessEqual(set(sampled), set(known))
        # A block of a hundred times the distance is as good as certain to be hit.
        self.assertEqual(sampled[19, "site_grow"], known[19, "site_grow"])

    def test_a_packed_recording_tells_sizes_apart_as_well(self):
        _, recording = self.answers_and_recording("mem-fast", "--sizes")
        packed = self.path("packed.hlpack")
        result = harness.run([harness.HEAPLINE, "pack", "-o", packed, recording])
        self.assertEqual(result.status, 0, result.stderr)
        self.assertEqual(report(packed, "alloc")["rows"], report(recording, "alloc")["rows"])


class MappingsAmongSizes(SizesCase):
    def test_mappings_count_in_the_class_of_their_mean(self):
        _, recording = self.record_well([harness.program("mappings")], "mem-fast",
                                        ["--sizes", "--mappings"])
        found = report(recording, "alloc", "--focus", r"^\[(mmap|brk)\]$")
        self.assertIs(found["exact"], False)
        self.assertTrue(found["rows"])
        self.assertIs(report(recording, "alloc", "--ignore", r"^\[(mmap|brk)\]$")["exact"], True)
        self.assert_classes_add_up(recording)


def ledger_stacks_by_size(rows, unit):
    """{(hops and entry, digits): number}: of each stack the part that the ledger knows."""
    found = {}
    for row in rows:
        for stack in row["stacks"]:
            known = ledger_stacks({tuple(reversed(stack["stack"])): stack[unit]})
            for frames, number in known.items():
                key = *frames, str(digits_of(row))
                found[key] = found.get(key, 0) + number
    return found


class RandomLedgerBySize(SizesCase):
    def compare(self, seed, threads, mode):
        command = [harness.program("ledger"), str(seed), str(threads), "60000", "2000", "by-size"]
        result, recording = self.record_well(command, mode, ["--sizes"], name=f"{seed}.hl")
        expected = read_ledger(result.stdout)
        self.assertGreaterEqual(len(expected["alloc", "objects"]), 4 * STACKS_AT_LEAST)
        for value in ("alloc", "inuse"):
            rows = report(recording, value)["rows"]
            for unit in UNITS:
                with self.subTest(value=value, unit=unit, mode=mode, threads=threads):
                    self.assertEqual(ledger_stacks_by_size(rows, unit), expected[value, unit])
        self.assert_nothing_lost(recording)
        self.assert_classes_add_up(recording)

    def test_two_threads_equal_their_ledger_by_stack_and_size_in_mem_record(self):
        self.compare(21, 2, "mem-record")

    def test_two_threads_equal_their_ledger_by_stack_and_size_in_mem_fast(self):
        self.compare(22, 2, "mem-fast")

    def test_eight_threads_equal_their_ledger_by_stack_and_size_in_mem_record(self):
        self.compare(23, 8, "mem-record")

    def test_eight_threads_equal_their_ledger_by_stack_and_size_in_mem_fast(self):
        self.compare(24, 8, "mem-fast")


if __name__ == "__main__":
    harness.main()
