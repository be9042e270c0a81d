# SPDX-License-Identifier: BSD-2-Clause
"""Packed recordings say what the recording says, where the recorded programs are no more."""

import os
import shutil

import harness

# Each verb in the forms that differ in what they take from a profile.
VIEWS = (
    "top --rows 0", "top --rows 0 --sort cum --value alloc --json", "top --by line",
    "top --by address", "top --by module --value inuse", "top --by thread --value alloc --json",
    "lines --value alloc", "tree --value alloc --threshold 0", "tree --reversed",
    "flame --value alloc", "flame --palette module", "graph --format dot --value alloc",
    "diff", "diff --by stack --value alloc --json", "annotate main", "sizes --value alloc",
    "sizes --json", "folded --value alloc", "folded --value temporary --unit objects",
    "export --format pprof", "export --format speedscope", "export --format heaptrack-folded",
    "export --format csv", "export --format json", "info", "info --stacks --json", "report --json",
)
# What a log alone knows.
LOG_VIEWS = (
    "timeline", "timeline --by function", "timeline --by module --format svg", "timeline --json",
    "peaks", "peaks --json", "growth", "growth --by line --json", "top --at peak --rows 0",
    "tree --at 100 --threshold 0", "folded --at peak", "events", "events --lifetimes --json",
    "events --dump", "diff --at 0 --at peak --by stack", "report --json",
)
SELECTIONS = ("top --rows 0 --json", "folded --value alloc", "sizes --value alloc", "lines --plain")

# Names only from the files themselves: nothing may be remembered from one test to the next.
WITHOUT_CACHE = {"HEAPLINE_SYMBOL_CACHE": "off"}


class Pack(harness.TestCase):
    def views(self, folder, commands):
        """{command: what it writes} about `test.hl`, seen from the folder that it is in."""
        said = {}
        for command in commands:
            verb, *options = command.split()
            operands = ["test.hl"] * (2 if verb == "diff" else 1)
            result = harness.run([harness.HEAPLINE, verb, *options, *operands], cwd=folder,
                                 env=WITHOUT_CACHE, errors="backslashreplace")
            said[command] = (result.status, result.stdout, result.stderr)
        return said

    def pack_into(self, folder):
        """A packed recording there that has the recording's name, so that not even that differs."""
        os.mkdir(folder)
        result = harness.run([harness.HEAPLINE, "pack", "-o", os.path.join(folder, "test.hl"),
                              self.path("test.hl")], env=WITHOUT_CACHE)
        self.assertEqual(result.status, 0, result.stderr)

    def record_copy(self, name, *arguments, mode="mem-fast", options=("--sizes",)):
        """Records a program that is there for this test only; the path of that copy."""
        copy = self.path(name)
        shutil.copy(harness.program(name), copy)
        self.record_well([copy, *arguments], mode=mode, options=options)
        return copy

    def assert_same(self, of_recording, of_pack):
        for command, (status, output, notes) in of_recording.items():
            with self.subTest(view=command):
                self.assertEqual(status, 0, notes)
                packed = [text.replace("packed recording", "recording")
                          for text in of_pack[command][1:]]
                self.assertEqual(of_pack[command][0], status)
                self.assertEqual(packed, [output, notes])

    def compare(self, name):
        copy = self.record_copy(name)
        elsewhere = self.path("elsewhere")
        of_recording = self.views(self.directory, VIEWS)
        self.pack_into(elsewhere)
        os.remove(copy)
        self.assert_same(of_recording, self.views(elsewhere, VIEWS))
        nameless = self.views(self.directory, ["top --rows 0"])
        self.assertNotEqual(nameless["top --rows 0"], of_recording["top --rows 0"])

    def record_log(self, rounds):
        return self.record_copy("phases", self.path("ledger"), str(rounds), mode="log-fast",
                                options=("--events",))

    def test_every_view_over_time_is_the_same_without_the_program(self):
        # On a busy machine several rounds may fall into one interval: growth has to see many.
        copy = self.record_log(rounds=30)
        of_recording = self.views(self.directory, LOG_VIEWS)
        self.assertIn("leak_site", of_recording["growth"][1])
        self.pack_into(self.path("elsewhere"))
        os.remove(copy)
        self.assert_same(of_recording, self.views(self.path("elsewhere"), LOG_VIEWS))

    def logs_of(self, folder):
        """A copy of the segments and of the events beside them, alone."""
        logs = self.path("logs")
        os.mkdir(logs)
        for name in os.listdir(folder):
            if name.endswith((".hll", ".hle")):
                shutil.copy(os.path.join(folder, name), logs)
        return logs

    def test_a_copied_segment_is_named_where_the_program_is(self):
        self.record_log(rounds=6)
        folder = self.path("test.hl")
        segment, = (name for name in os.listdir(folder) if name.endswith(".hll"))
        alone = self.path("alone.hll")
        shutil.copy(os.path.join(folder, segment), alone)
        for verb in ("timeline", "growth", "peaks"):
            of_recording, of_segment = (harness.report(verb, path) for path in (folder, alone))
            self.assertEqual(of_segment["rows"], of_recording["rows"])
        self.assertEqual(harness.report("timeline", self.logs_of(folder))["rows"],
                         harness.report("timeline", folder)["rows"])
        top = harness.run([harness.HEAPLINE, "top", alone])
        self.assertEqual(top.status, 0, top.stderr)
        self.assertIn("leak_site", top.stdout)
        self.assertIn("no recording.hlm beside the log", top.stdout)

    def test_every_view_is_the_same_without_a_program_in_C(self):
        self.compare("known_answer")

    def test_every_view_is_the_same_without_a_program_in_Cxx(self):
        self.compare("known_answer_cxx")

    def test_processes_and_threads_are_selected_as_in_the_recording(self):
        self.record_copy("threads", "late-allocations")
        rows = harness.report("top", self.path("test.hl"), "--by", "thread", "--rows", "0")["rows"]
        processes = harness.processes(self.path("test.hl"))
        commands = [f"{view} --process {row['pid']}/{row['sequence']}"
                    for view in SELECTIONS for row in processes]
        commands += [f"{view} --thread {row['tid']}" for view in SELECTIONS for row in rows[:3]]
        self.pack_into(self.path("elsewhere"))
        self.assert_same(self.views(self.directory, commands),
                         self.views(self.path("elsewhere"), commands))


if __name__ == "__main__":
    harness.main()
