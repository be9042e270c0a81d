# SPDX-License-Identifier: BSD-2-Clause
"""Two runs of a program that grows by known amounts, compared; and its call graph drawn."""

import json
import os
import re
import shutil
import xml.etree.ElementTree

import harness
from harness import report


def difference(before, after, *options):
    return report("diff", after, *options, before)  # the last operand comes last


class Growth(harness.TestCase):
    """growth.c, run twice: what `diff` says is what its own ledger says."""

    def record_growth(self, run, program="growth"):
        """Records the program as 'growth', wherever it comes from; its ledger and the recording."""
        folder = self.path(f"run-{run}")
        os.mkdir(folder)
        copy = shutil.copy(harness.program(program), f"{folder}/growth")
        result, recording = self.record_well([copy, str(run)], name=f"{run}.hl")
        return json.loads(result.stdout), recording

    def assert_deltas(self, rows, before, after):
        """Each function's row is the difference of the ledgers, and equal ones have no row."""
        found = {row["name"]: [row["delta_bytes"], row["delta_objects"]] for row in rows}
        for function, (size, blocks) in before.items():
            expected = [after[function][0] - size, after[function][1] - blocks]
            with self.subTest(function=function):
                self.assertEqual(found.get(function, [0, 0]), expected)
                self.assertEqual(function in found, expected != [0, 0])

    def callers(self, rows):
        """Rows by stack as rows by the function that called allocate()."""
        return [dict(row, name=row["stack"][-2]) for row in rows
                if row["stack"][-1] == "allocate"]

    def compare(self, second_program):
        before, first = self.record_growth(1)
        after, second = self.record_growth(2, second_program)
        growth = sum(after[name][0] - before[name][0] for name in before)
        for value in ("alloc", "inuse"):
            stacks = difference(first, second, "--by", "stack", "--value", value)
            self.assert_deltas(self.callers(stacks["rows"]), before, after)
            functions = difference(first, second, "--value", value)
            self.assertEqual([row["name"] for row in functions["rows"]], ["allocate"])
            self.assertEqual(functions["rows"][0]["delta_bytes"], growth)
            key = f"{value}_bytes"
            self.assertEqual(functions["total"][key] - functions["base"]["total"][key], growth)

    def test_growth_of_each_function_is_that_of_its_ledger(self):
        self.compare("growth")

    def test_functions_of_another_build_are_the_same_ones(self):
        self.compare("growth_rebuilt")

    def test_lines_of_one_build_are_compared_exactly(self):
        before, first = self.record_growth(1)
        after, second = self.record_growth(2)
        rows = difference(first, second, "--by", "line", "--value", "alloc")["rows"]
        self.assertEqual(len(rows), 1)
        self.assertEqual(rows[0]["name"], "allocate")
        self.assertEqual(rows[0]["delta_bytes"],
                         sum(after[name][0] - before[name][0] for name in before))

    def test_a_run_has_no_difference_from_itself(self):
        _, recording = self.record_growth(1)
        for key in ("function", "line", "module", "stack"):
            self.assertEqual(difference(recording, recording, "--by", key)["rows"], [])

    def test_rates_of_runs_of_different_length_are_compared(self):
        _, first = self.record_growth(1)
        _, second = self.record_growth(2)
        plain = difference(first, second, "--value", "alloc")
        scaled = difference(first, second, "--value", "alloc", "--normalize")
        rows = sum(row["delta_bytes"] for row in scaled["rows"])
        total = scaled["total"]["alloc_bytes"] - scaled["base"]["total"]["alloc_bytes"]
        self.assertEqual(rows, total)
        self.assertNotEqual(scaled["base"]["total"], plain["base"]["total"])


class Pictures(harness.TestCase):
    """The call graph as graphviz draws it has what --json says."""

    def setUp(self):
        super().setUp()
        harness.need("dot")
        _, self.recording = self.record_well([harness.program("growth"), "2"])
        self.graph = report("graph", self.recording, "--value", "alloc")

    def draw(self, name):
        picture = self.path(name)
        result = harness.run([harness.HEAPLINE, "graph", "--value", "alloc", "-o", picture,
                              self.recording])
        self.assertEqual(result.status, 0, result.stderr)
        return picture

    def test_an_svg_has_a_box_for_each_function_and_an_arrow_for_each_edge(self):
        root = xml.etree.ElementTree.parse(self.draw("x.svg")).getroot()
        space = {"svg": "http://www.w3.org/2000/svg"}
        kinds = [group.get("class") for group in root.iterfind(".//svg:g", space)]
        texts = {text.text.strip() for text in root.iterfind(".//svg:text", space) if text.text}
        self.assertEqual(kinds.count("node"), len(self.graph["rows"]) + 1)  # and the legend
        self.assertEqual(kinds.count("edge"), len(self.graph["edges"]))
        self.assertLessEqual({"grows_much", "comes", "allocate", "main"}, texts)
        self.assertTrue(any(re.fullmatch(r"growth\.c:\d+", text) for text in texts), texts)

    def test_a_png_is_one(self):
        with open(self.draw("x.png"), "rb") as picture:
            self.assertEqual(picture.read(8), b"\x89PNG\r\n\x1a\n")

    def test_the_graph_holds_the_whole_total(self):
        left_out = self.graph["left_out"]
        flat = sum(row["flat_bytes"] for row in self.graph["rows"])
        self.assertEqual(flat + left_out["flat_bytes"] + left_out["stackless_bytes"],
                         self.graph["total"]["alloc_bytes"])


class Tree(harness.TestCase):
    def test_cum_of_each_branch_is_that_of_top(self):
        _, recording = self.record_well([harness.program("growth"), "1"])
        top = harness.top_rows(recording, "alloc")
        tree = report("tree", recording, "--value", "alloc", "--threshold", "0")
        sums = {}
        for row in tree["rows"]:
            self.assertEqual(row["folded"], 0)
            sums[row["name"]] = sums.get(row["name"], 0) + row["cum_bytes"]
        for function in ("main", "grows_much", "stays", "allocate"):
            self.assertEqual(sums[function], top[function]["cum_bytes"])


if __name__ == "__main__":
    harness.main()
