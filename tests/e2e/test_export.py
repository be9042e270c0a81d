# SPDX-License-Identifier: BSD-2-Clause
"""Exported files of real programs say what heapline's own views say, to the byte."""

import csv
import glob
import io
import itertools
import json
import os
import re
from collections import Counter

import harness
from perfetto_file import PerfettoFile
from pprof_file import PprofFile

VALUES = {
    "alloc": ("alloc_space", "alloc_objects"),
    "inuse": ("inuse_space", "inuse_objects"),
    "peak": ("peak_space", "peak_objects"),
    "temporary": (None, "temporary_objects"),
    "slack": ("slack_space", None),
}
DHAT_VIEWER = "/usr/libexec/valgrind/dh_view.js"
# Has the viewer's own code build its tree of a file, without a page.
OPEN_DHAT = """
const fs = require("fs"), vm = require("vm");
const [viewer, file] = process.argv.slice(1);
const context = {document: {}, window: {}, console, performance: {now: () => 0}, Intl};
vm.createContext(context);
vm.runInContext(fs.readFileSync(viewer, "utf8") + `
globalThis.open = text => {
  gData = JSON.parse(text);
  gSelect = {childNodes: gSelectData.map(() => ({})), selectedIndex: 0};
  buildTree();
  return [gRoot._totalBytes, gRoot._totalBlocks, gRoot._atTGmaxBytes, gRoot._atTEndBytes];
};`, context);
console.log(JSON.stringify(context.open(fs.readFileSync(file, "utf8"))));
"""
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


def firefox_stacks(thread, table):
    """(names of functions, innermost first; weight) of each sample."""
    texts, functions, frames, stacks = (thread[key] for key in ("stringArray", "funcTable", "frameTable", "stackTable"))
    for table_of in (functions, frames, stacks, thread[table]):
        lengths = {len(column) for column in table_of.values() if isinstance(column, list)}
        assert lengths == {table_of["length"]}, lengths

    def names(stack):
        while stack is not None:
            yield texts[functions["name"][frames["func"][stacks["frame"][stack]]]]
            stack = stacks["prefix"][stack]

    return [(list(names(stack)), weight) for stack, weight in zip(thread[table]["stack"], thread[table]["weight"])]


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

    def assert_heaviest(self, stacks, recording, value, unit):
        """The ten heaviest functions of stacks, innermost first, are those of `top`, with the same figures."""
        flat, cum = Counter(), Counter()
        for names, number in stacks:
            flat[names[0]] += number
            cum.update(dict.fromkeys(names, number))
        expected = top_of_view(recording, value, unit)
        heaviest = sorted(expected, key=lambda name: expected[name], reverse=True)[:10]
        self.assertTrue(heaviest)
        self.assertEqual({name: (flat[name], cum[name]) for name in heaviest}, {name: expected[name] for name in heaviest})
        self.assertEqual(sum(flat.values()), sum(number for number, _ in expected.values()))

    def test_dhat_shows_what_top_shows(self):
        for command, options in ((program(), ["--no-scripts"]), ([harness.program("known_answer")], [])):
            _, recording = self.record_well(command, options=options)
            exported = json.loads(self.exported_text(recording, "dhat"))
            frames = [re.sub(r" \([^()]*:\d+\)$", "", text) for text in exported["ftbl"]]
            for key, value, unit in (("tb", "alloc", "bytes"), ("tbk", "alloc", "objects"), ("gb", "peak", "bytes"),
                                     ("gbk", "peak", "objects"), ("eb", "inuse", "bytes"), ("ebk", "inuse", "objects")):
                with self.subTest(command[0], key=key):
                    self.assert_heaviest([([frames[frame] for frame in point["fs"]], point[key]) for point in exported["pps"]],
                                         recording, value, unit)
            places = [tuple(point["fs"]) for point in exported["pps"]]
            self.assertEqual(len(set(places)), len(places))  # the viewer refuses a place that comes twice

    def test_valgrinds_viewer_opens_dhat_with_the_same_totals(self):
        node = harness.need("node")
        if not os.path.exists(DHAT_VIEWER):
            self.skipTest(f"there is no '{DHAT_VIEWER}'; valgrind has it")
        _, recording = self.record_well(program(), options=["--no-scripts"])
        result = harness.run([node, "-e", OPEN_DHAT, DHAT_VIEWER, self.export(recording, "dhat")])
        self.assertEqual(result.status, 0, result.stderr)
        total = harness.info(recording)["total"]
        self.assertEqual(json.loads(result.stdout), [total[key] for key in (
            "alloc_bytes", "alloc_objects", "peak_bytes", "inuse_bytes")])

    def test_firefox_shows_what_top_shows(self):
        for command, options in ((program(), ["--no-scripts"]), ([harness.program("known_answer")], [])):
            _, recording = self.record_well(command, options=options)
            for value, unit in (("peak", "bytes"), ("inuse", "bytes"), ("alloc", "objects")):
                exported = json.loads(self.exported_text(recording, "firefox", "--value", value, "--unit", unit))
                thread, = exported["threads"]
                with self.subTest(command[0], value=value, unit=unit):
                    self.assert_heaviest(firefox_stacks(thread, "samples"), recording, value, unit)
            allocated = [(names, number) for names, number in firefox_stacks(thread, "nativeAllocations") if number > 0]
            self.assert_heaviest(allocated, recording, "alloc", "bytes")
            self.assert_heaviest(firefox_stacks(thread, "nativeAllocations"), recording, "inuse", "bytes")
            self.assertEqual(exported["counters"], [])

    def test_perfetto_shows_what_top_shows(self):
        for command, options in ((program(), ["--no-scripts"]), ([harness.program("known_answer")], [])):
            _, recording = self.record_well(command, options=options)
            trace = PerfettoFile(self.export(recording, "perfetto"))
            for figure, value, unit in ((lambda sample: sample.get(2, 0), "alloc", "bytes"),
                                        (lambda sample: sample.get(2, 0) - sample.get(3, 0), "inuse", "bytes"),
                                        (lambda sample: sample.get(5, 0) - sample.get(6, 0), "inuse", "objects")):
                with self.subTest(command[0], value=value, unit=unit):
                    self.assert_heaviest(trace.stacks("malloc", figure), recording, value, unit)
            self.assert_heaviest(trace.stacks("malloc at the peak", lambda sample: sample.get(8, 0)), recording, "peak", "bytes")
            self.assertEqual(trace.counters, {})

    def test_a_log_becomes_counters_over_time(self):
        script = "import time\nkept = []\nfor i in range(5): kept.append([str(j) * 9 for j in range(20000)]); time.sleep(0.15)"
        _, recording = self.record_well([harness.need("python3"), "-c", script], mode="log-fast")
        rows = harness.report("timeline", recording, "--rows", "0")["rows"]
        expected = [(row["ms"], row["bytes"]) for row in rows]
        trace = PerfettoFile(self.export(recording, "perfetto"))
        self.assertEqual([(time // 10**6, number) for time, number in trace.counters["in use"]], expected)
        exported = json.loads(self.exported_text(recording, "firefox"))
        samples = exported["counters"][0]["samples"]
        self.assertEqual(list(zip(samples["time"], itertools.accumulate(samples["count"]))), expected)
        self.assertLessEqual(json.loads(self.exported_text(recording, "dhat"))["tg"], 1000 * rows[-1]["ms"])

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
