# SPDX-License-Identifier: BSD-2-Clause
"""Exported files of real programs say what heapline's own views say, to the byte."""

import csv
import glob
import io
import json
import re
from collections import Counter

import harness
from pprof_file import PprofFile

VALUES = {
    "alloc": ("alloc_space", "alloc_objects"),
    "inuse": ("inuse_space", "inuse_objects"),
    "peak": ("peak_space", "peak_objects"),
    "temporary": (None, "temporary_objects"),
    "slack": ("slack_space", None),
}
SCRIPT = "import json; kept = [json.loads('[' + '[1, \"a\"],' * 50 + '{}]') for _ in range(200)]"


def program():
    return [harness.need("python3"), "-c", SCRIPT]


def top_of_view(recording, value, unit):
    """{function: (flat, cum)} of the view, as pprof adds them up: by name alone.

    A function may call another one of its name, as a checked inline of libc does: such stacks count once.
    """
    cum = Counter()
    for stack, number in harness.folded(recording, value, unit).items():
        cum.update(dict.fromkeys(stack, number))
    figures = {name: (row[f"flat_{unit}"], cum[name]) for name, row in harness.top_rows(recording, value).items()}
    return {name: figure for name, figure in figures.items() if any(figure)}


def uncounted(stacks):
    return {stack: number for stack, number in stacks.items() if number}


class Exports(harness.TestCase):
    def export(self, recording, form, *options):
        output = self.path(f"exported.{form}")
        result = harness.run([harness.HEAPLINE, "export", "--format", form, "-f", "-o", output,
                              *options, recording])
        self.assertEqual(result.status, 0, result.stderr)
        return output

    def exported_text(self, recording, form, *options):
        with open(self.export(recording, form, *options), encoding="utf-8", newline="") as file:
            return file.read()

    def test_pprof_shows_what_top_shows(self):
        for command in (program(), [harness.program("known_answer")]):
            # Many functions of Python have one name, by which pprof adds up.
            _, recording = self.record_well(command, options=["--no-scripts"])
            exported = PprofFile(self.export(recording, "pprof"))
            self.assertEqual(exported.default, "peak_space")
            for value, (space, objects) in VALUES.items():
                for unit, type_ in (("bytes", space), ("objects", objects)):
                    if not type_:
                        continue
                    with self.subTest(command=command[0], type=type_):
                        self.assertEqual(exported.top(type_), top_of_view(recording, value, unit))

    def assert_text(self, tool, option, recording, value, unit):
        """The heaviest functions, which these tools add up by name."""
        result = harness.run([harness.need(tool), "--text", "--show_bytes", "--nodefraction=0", f"--{option}",
                              self.export(recording, "gperftools")])
        self.assertEqual(result.status, 0, result.stderr)
        found = {name: int(flat) for flat, name in
                 re.findall(r"(?m)^ *(\d+) +[\d.]+% +[\d.]+% +\d+ +[\d.]+% (.+)$", result.stdout)}
        expected = {re.sub("^<(.*)>$", r"[\1]", name): flat for name, (flat, _) in
                    top_of_view(recording, value, unit).items()}
        self.assertEqual(sum(found.values()), sum(expected.values()))
        largest = sorted(expected, key=expected.get)[-10:]
        self.assertEqual({name: found.get(name, 0) for name in largest}, {name: expected[name] for name in largest})

    def test_pprofs_of_allocators_show_what_top_shows(self):
        _, recording = self.record_well([harness.program("known_answer")])
        for tool in ("google-pprof", "jeprof"):
            for option, value, unit in (("inuse_space", "inuse", "bytes"), ("inuse_objects", "inuse", "objects"),
                                        ("alloc_space", "alloc", "bytes"), ("alloc_objects", "alloc", "objects")):
                with self.subTest(tool=tool, option=option):
                    self.assert_text(tool, option, recording, value, unit)
        _, scripts = self.record_well(program())
        self.assert_text("google-pprof", "alloc_objects", scripts, "alloc", "objects")

    def test_an_exported_file_is_read_with_the_same_figures(self):
        _, recording = self.record_well(program())
        exported = self.export(recording, "pprof")
        for value in VALUES:
            with self.subTest(value=value):
                expected = harness.report("top", recording, "--value", value)
                found = harness.report("top", exported, "--value", value)
                self.assertEqual(found["rows"], expected["rows"])
                del expected["total"]["recorder_memory_bytes"]  # of the recording, not of its stacks
                self.assertEqual(found["total"], expected["total"])

    def test_csv_has_the_figures_of_folded(self):
        _, recording = self.record_well(program())
        text = self.exported_text(recording, "csv")
        self.assertEqual(text.count("\n"), text.count("\r\n"))
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
        for value, unit in (("alloc", "objects"), ("inuse", "bytes"), ("slack", "bytes")):
            expected = harness.folded(recording, value, unit)
            found = {tuple(row["stack"].split(";")): int(row[f"{value}_{unit}"]) for row in rows}
            self.assertEqual(uncounted(found), expected)

    def test_speedscope_has_the_figures_of_folded(self):
        _, recording = self.record_well(program())
        file = json.loads(self.exported_text(recording, "speedscope", "--value", "inuse"))
        names = [frame["name"] for frame in file["shared"]["frames"]]
        shown = file["profiles"][file["activeProfileIndex"]]
        self.assertEqual((shown["name"], shown["unit"]), ("in use, bytes", "bytes"))
        found = {tuple(names[index].replace(";", ":") for index in stack): weight
                 for stack, weight in zip(shown["samples"], shown["weights"], strict=True)}
        self.assertEqual(found, harness.folded(recording, "inuse", "bytes"))

    def test_json_alone_gives_every_stack(self):
        _, recording = self.record_well(program())
        file = json.loads(self.exported_text(recording, "json"))
        names = [function.get("label", function.get("name")) for function in file["functions"]]
        stacks, sums = [()], Counter()
        for node in file["nodes"][1:]:
            name = names[file["frames"][node["frame"]]["function"]]
            stacks.append(stacks[node["parent"]] + (name,))
        for stack, node in zip(stacks, file["nodes"]):
            sums[stack] += node.get("peak_bytes", 0)
        self.assertEqual(uncounted(sums), harness.folded(recording, "peak", "bytes"))
        by_thread = sum(row.get("alloc_bytes", 0) for row in file["by_thread"])
        self.assertEqual(by_thread, file["total"]["alloc_bytes"])

    def test_heaptracks_own_lines_are_among_them(self):
        heaptrack, printer = harness.need("heaptrack"), harness.need("heaptrack_print")
        command = [harness.program("known_answer")]
        harness.run([heaptrack, "-o", self.path("other"), *command], cwd=self.directory)
        _, recording = self.record_well(command)
        harness.run([printer, *glob.glob(self.path("other*")), "-F", self.path("other.txt"),
                     "--flamegraph-cost-type", "allocations"])
        with open(self.path("other.txt"), encoding="utf-8") as file:
            expected = stacks_of_simple_sites(file.read())
        found = stacks_of_simple_sites(self.exported_text(
            recording, "heaptrack-folded", "--value", "alloc", "--unit", "objects"))
        self.assertGreater(len(expected), 5)
        self.assertLessEqual(expected.items(), found.items())


def stacks_of_simple_sites(text):
    """{frames: number} without zeros of the stacks below one function.

    Frames are sorted, because heaptrack writes inlined functions before those they are inlined in; from 1.5 on it
    calls f, inlined in main, main::f.
    """
    sums = Counter()
    for line in re.sub(r"\w+::", "", text).splitlines():
        frames, _, number = line.rpartition(" ")
        assert frames.endswith(";"), line
        if "call_simple_sites (known_answer.c);" in frames:
            sums[tuple(sorted(frames.split(";")))] += int(number)
    return uncounted(sums)


if __name__ == "__main__":
    harness.main()
