# SPDX-License-Identifier: BSD-2-Clause
"""Lines of a program whose source says what each of them allocates: `lines`, `annotate`, `top`."""

import json
import os
import re
import shutil

import harness

SOURCE = os.path.join(harness.SOURCES, "source_lines.cc")
OWN_FUNCTIONS = "keep|descend|main|operator"


def expected():
    """{line: (flat, cum)} as (bytes, blocks) of the lines that the source says something about."""
    figures = {}
    with open(SOURCE, encoding="ascii") as source:
        for number, line in enumerate(source, 1):
            if found := re.search(r"// ([=+]) (\d+) (\d+)$", line):
                sums = int(found[2]), int(found[3])
                figures[number] = (sums if found[1] == "=" else (0, 0), sums)
    return figures


def is_source(row):
    return os.path.basename(row["file"]) == os.path.basename(SOURCE)


def by_line(rows):
    """{line: (flat, cum)} of the rows in the source; a line of several functions is summed."""
    figures = {}
    for row in filter(is_source, rows):
        flat, cum = figures.get(row["line"], ((0, 0), (0, 0)))
        figures[row["line"]] = ((flat[0] + row["flat_bytes"], flat[1] + row["flat_objects"]),
                                (cum[0] + row["cum_bytes"], cum[1] + row["cum_objects"]))
    return figures


class SourceLinesCase(harness.TestCase):
    def setUp(self):
        super().setUp()
        _, self.recording = self.record_well([harness.program("source_lines")])

    def text(self, verb, *arguments):
        result = harness.run([harness.HEAPLINE, verb, "--value", "alloc", *arguments,
                              self.recording])
        self.assertEqual(result.status, 0, result.stderr)
        return result.stdout

    def assert_figures(self, figures):
        for line, sums in expected().items():
            self.assertEqual(figures.get(line), sums, f"line {line}")

    def test_every_line_has_its_flat_and_cum_in_top(self):
        rows = harness.report("top", self.recording, "--by", "line", "--value", "alloc")["rows"]
        self.assert_figures(by_line(rows))

    def test_a_narrow_terminal_cuts_no_line_number_off(self):
        """Every place of the table ends as one of the JSON rows does."""
        script = harness.need("script")
        rows = harness.report("top", self.recording, "--by", "line", "--value", "alloc")["rows"]
        numbers = {row["line"] for row in rows}
        for width in (60, 80, 100):
            command = (f"stty cols {width}; '{harness.HEAPLINE}' top -b line --value alloc "
                       f"--no-pager --color=never '{self.recording}'")
            shown = harness.run([script, "-qec", command, "/dev/null"]).stdout
            found = [int(number) for number in re.findall(r"  \S*\.\w+:(\d+)(?=\s)", shown)]
            self.assertTrue(found, shown)
            self.assertLessEqual(set(found), numbers)

    def test_every_line_has_its_flat_and_cum_in_annotate(self):
        report = json.loads(self.text("annotate", "--json", OWN_FUNCTIONS))
        self.assert_figures(by_line(report["rows"]))

    def test_lines_writes_what_each_line_allocated_itself_and_the_total(self):
        own, total = {}, 0
        *lines, last = self.text("lines", "--plain").splitlines()
        for line in lines:
            path, number, size = re.fullmatch(r"(.*) line:(\d+) size:(\d+)", line).groups()
            total += int(size)
            if path.endswith("source_lines.cc"):
                own[int(number)] = int(size)
        with open(SOURCE, encoding="ascii") as source:
            lines = [line.strip() for line in source]
        # What the C++ library allocates for a thread is the statement's; compilers choose the line.
        begin = next(i for i, line in enumerate(lines, 1) if line.startswith("std::thread worker"))
        statement = range(begin, lines.index("worker.join();") + 1)
        of_thread = sum(own.pop(line, 0) for line in statement)
        self.assertGreater(of_thread, 0)
        self.assertEqual(own, {line: flat[0] for line, (flat, _) in expected().items() if flat[0]})
        self.assertEqual(last, f"total size:{total}")
        self.assertEqual(total, harness.info(self.recording)["total"]["alloc_bytes"])

    def test_annotate_shows_figures_beside_the_source(self):
        text = self.text("annotate", "descend")
        self.assertRegex(text, r"211 B +1 +211 B +1 +\d+ +kept = std::malloc\(211\);")
        self.assertRegex(text, r"\n +1\.4 KiB +5 +\d+ +int below = descend\(depth - 1\);")
        self.assertNotIn("keep_two", text)

    def test_annotate_finds_sources_that_were_moved(self):
        folder = self.path("moved/tests/e2e")
        os.makedirs(folder)
        shutil.copy(SOURCE, folder)
        text = self.text("annotate", "--source-path", self.path("moved"), "descend")
        self.assertIn(f"source: {folder}/source_lines.cc", text)


if __name__ == "__main__":
    harness.main()
