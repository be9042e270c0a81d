# SPDX-License-Identifier: BSD-2-Clause
"""Frames of scripts that a program's own interpreter runs, against what its script says."""

import json
import os
import subprocess

import harness

COUNT = 50
RUNS = 3 * COUNT  # of both threads
MIB = 1 << 20
BYTES_OF_LINES = {5: 3 * MIB // 2, 12: 100, 21: 200, 31: 400, 41: 500, 51: 600}  # of the script; line 5: one, then two
NATIVE_BYTES = 300  # by C that line 22 calls
MIXED = {
    "main": 3 * MIB // 2,
    "main;order": 100,
    "main;order;native;item": 200,
    "main;order;native;item;c_allocate": 300,
    "main;order;native;item;price": 400,
    "main;first": 500,
    "main;second": 600,
}
NATIVE = {
    "run;grow": 3 * MIB // 2,
    "run;allocate": 100 + 500 + 600,
    "run;native;run;allocate": 200 + 400,
    "run;native;run;c_allocate": 300,
}
SCRIPT = {
    "main": 3 * MIB // 2,
    "main;order": 100,
    "main;order;item": 200 + 300,
    "main;order;item;price": 400,
    "main;first": 500,
    "main;second": 600,
}


def lines_of(report):
    """{line: bytes} of the script."""
    return {row["line"]: row["bytes"] for row in report["rows"] if row["file"] == "shop.vm"}


def stacks_of(recording, kind, *options):
    """{stack from `work` on: bytes}; of scripts alone the whole stack."""
    found = {}
    output = harness.run([harness.HEAPLINE, "folded", "--value", "alloc", "--stack", kind, *options, recording])
    assert output.status == 0, output.stderr
    for line in output.stdout.splitlines():
        stack, number = line.rsplit(" ", 1)
        frames = stack.split(";")
        if frames[-1] == "work":
            continue  # the stack of the interpreter
        if kind != "script" and "work" not in frames:
            continue
        if kind != "script":
            frames = frames[frames.index("work") + 1:]
        key = ";".join(frames)
        found[key] = found.get(key, 0) + int(number)
    return found


def times(stacks, count):
    return {stack: number * count for stack, number in stacks.items()}


class ScriptsTest(harness.TestCase):
    def record_vm(self, *arguments, mode="mem-fast", options=()):
        recording = self.path("vm.hl")
        run = harness.run(harness.record_command(
            recording, [harness.program("script_vm"), *arguments], mode, options))
        self.assertEqual(run.status, 0, run.stderr)
        return recording

    def assert_lines(self, recording, count, *options):
        report = harness.report("lines", recording, "--value", "alloc", *options)
        expected = {line: number * count for line, number in BYTES_OF_LINES.items()}
        self.assertEqual(lines_of(report), expected)
        self.assertNotIn("script_unmatched", report["lost"])

    def test_lines_are_exact_in_all_modes(self):
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                self.assert_lines(self.record_vm(str(COUNT), mode=mode), RUNS)

    def test_lines_are_exact_with_sizes(self):
        recording = self.record_vm(str(COUNT), options=("--sizes",))
        self.assert_lines(recording, RUNS)
        rows = harness.report("sizes", recording, "--value", "alloc", "--focus", "^price$")["rows"]
        self.assertEqual([row["size_min"] for row in rows], [256])

    def test_stacks_are_mixed_native_or_of_scripts(self):
        recording = self.record_vm(str(COUNT))
        self.assertEqual(stacks_of(recording, "mixed"), times(MIXED, RUNS))
        self.assertEqual(stacks_of(recording, "native"), times(NATIVE, RUNS))
        found = stacks_of(recording, "script")
        del found["[native]"]
        self.assertEqual(found, times(SCRIPT, RUNS))

    def test_segments_that_are_copied_alone_have_the_names(self):
        recording = self.record_vm(str(COUNT), mode="log-fast")
        whole = harness.report("lines", recording, "--value", "inuse", "--at", "peak")
        alone = self.path("alone")
        os.mkdir(alone)
        for name in os.listdir(recording):
            if name.endswith(".hll"):
                os.link(os.path.join(recording, name), os.path.join(alone, name))
        copied = harness.report("lines", alone, "--value", "inuse", "--at", "peak")
        self.assertGreater(len(lines_of(whole)), 3)
        self.assertEqual(lines_of(copied), lines_of(whole))

    def test_packed_recordings_keep_scripts(self):
        recording = self.record_vm(str(COUNT), mode="log-fast")
        packed = self.path("vm.hlz")
        run = harness.run([harness.HEAPLINE, "pack", "-o", packed, recording])
        self.assertEqual(run.status, 0, run.stderr)
        self.assert_lines(packed, RUNS)
        self.assertEqual(stacks_of(packed, "mixed"), times(MIXED, RUNS))
        self.assertEqual(stacks_of(packed, "native"), times(NATIVE, RUNS))
        for path in (recording, packed):
            rows = harness.report("lines", path, "--at", "peak")["rows"]
            self.assertIn(51, {row["line"] for row in rows if row["file"] == "shop.vm"})

    def test_a_forked_child_goes_on_telling(self):
        self.assert_lines(self.record_vm(str(COUNT), "fork"), RUNS + 2)

    def test_recordings_are_compared_by_line(self):
        before = self.record_vm(str(COUNT))
        os.rename(before, self.path("before.hl"))
        after = self.record_vm(str(2 * COUNT))
        rows = harness.report("diff", after, self.path("before.hl"), "--value", "alloc", "--by", "line")["rows"]
        grown = {row["line"]: row["delta_bytes"] for row in rows if row["file"] == "shop.vm"}
        self.assertEqual(grown, {line: number * RUNS for line, number in BYTES_OF_LINES.items()})

    def test_the_program_runs_unrecorded(self):
        self.assertEqual(harness.run([harness.program("script_vm"), "3"]).status, 0)

    def test_samples_have_lines(self):
        recording = self.record_vm(str(10 * COUNT), options=("--sample", "1024"))
        report = harness.report("lines", recording, "--value", "alloc")
        self.assertEqual(set(lines_of(report)), set(BYTES_OF_LINES))
        self.assertNotIn("script_unmatched", report["lost"])

    def test_lines_are_exact_across_switches_of_the_mode(self):
        for mode in ("closed", *harness.RECORDING_MODES):
            with self.subTest(mode=mode):
                before = 0 if mode == "closed" else RUNS
                self.assert_lines(self.record_vm(str(COUNT), "modes", mode=mode), before + 4 * 2)

    def test_views_over_time_name_functions_of_scripts(self):
        recording = self.record_vm(str(COUNT), mode="log-fast", options=("--events",))
        report = harness.report("timeline", recording, "--by", "function", "--heaviest", "12")
        names = {key["name"] for key in report["keys"]}
        self.assertLessEqual({"order", "item", "price", "first", "second"}, names)
        rows = harness.report("events", recording, "--dump", "--stacks")["rows"]
        allocated = [row["name"] for row in rows if row["bytes"] == 400]
        self.assertEqual(allocated, ["price"] * RUNS)

    def test_a_running_program_shows_scripts(self):
        recording = self.path("vm.hl")
        environment = {"XDG_RUNTIME_DIR": self.directory}
        with harness.Waiting(harness.record_command(recording, [harness.program("script_vm"), str(COUNT), "wait"]),
                             env=environment, stderr=subprocess.DEVNULL) as collector:
            pid, = harness.children_of(collector.pid)
            result = harness.run([harness.HEAPLINE, "allocations", "-p", str(pid), "--json"], env=environment)
            self.assertEqual(result.status, 0, result.stderr)
            counts = {(row["origin"], row["type"]): sum(slot["blocks"] if isinstance(slot, dict) else slot
                                                        for slot in row["histogram"])
                      for row in json.loads(result.stdout)["rows"]}
            self.assertEqual(counts["shop", "price"], RUNS)
            self.assertEqual(counts["shop", "item"], RUNS)
            self.assertEqual(counts["script_vm", "c_allocate"], RUNS)

            def shown():
                live = harness.run([harness.HEAPLINE, "live", "-p", str(pid), "--once", "--json"], env=environment)
                self.assertEqual(live.status, 0, live.stderr)
                return {row["name"]: row["flat_bytes"] for row in json.loads(live.stdout)["rows"]}
            harness.wait_until(lambda: shown().get("price") == 400 * RUNS, "the recording to be saved")

    def test_sources_of_scripts_are_annotated(self):
        recording = self.record_vm(str(COUNT))
        with open(self.path("shop.vm"), "w", encoding="utf-8") as source:
            source.writelines(f"line {number}\n" for number in range(1, 60))
        run = harness.run([harness.HEAPLINE, "annotate", "--json", "--value", "alloc", "^price$", recording],
                          cwd=self.directory)
        self.assertEqual(run.status, 0, run.stderr)
        line, = [row for row in json.loads(run.stdout)["rows"] if row["flat_bytes"]]
        self.assertEqual((line["line"], line["flat_bytes"], line["source"]), (31, 400 * RUNS, "line 31"))

    def test_pictures_and_other_tools_get_scripts(self):
        recording = self.record_vm(str(COUNT))
        for command in (["flame"], ["export", "--format", "speedscope"], ["graph", "--format", "dot"], ["tree"]):
            with self.subTest(command=command):
                path = self.path("out")
                run = harness.run([harness.HEAPLINE, *command, "--value", "alloc", "--focus", "^price$", "-f", "-o", path,
                                   recording])
                self.assertEqual(run.status, 0, run.stderr)
                with open(path, encoding="utf-8") as output:
                    text = output.read()
                self.assertTrue("price" in text and "shop.vm" in text)

    def test_modules_are_runtimes(self):
        rows = harness.report("top", self.record_vm(str(COUNT)), "--value", "alloc")["rows"]
        modules = {row["name"]: row["module"] for row in rows}
        self.assertEqual(modules["price"], "shop")
        self.assertTrue(modules["c_allocate"].endswith("script_vm"))


if __name__ == "__main__":
    harness.main()
