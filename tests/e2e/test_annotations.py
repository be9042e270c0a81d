# SPDX-License-Identifier: BSD-2-Clause
"""Programs that tell of their pools by heapline.h: nothing is linked, next to nothing is paid, and the
recording equals the program's ledger, whether it is preloaded, brought in, or joined later."""

import os
import re
import shutil
import signal
import subprocess
import unittest

import attaching
import harness

PROGRAMS = [name for name in ("annotated", "annotated_cxx", "annotated_fixed", "annotated_static")
            if os.path.exists(os.path.join(harness.PROGRAMS, name))]
CHUNK = 65536
CHUNKS = 20


def figures_of(lines):
    """The ledger up to "done": {function: [blocks, bytes, blocks kept, bytes kept]}."""
    ledger = {}
    for line in lines:
        if line.strip() == "done":
            return ledger
        name, *figures = line.rsplit(maxsplit=4)
        ledger[f"[pool {name}]"] = [int(figure) for figure in figures]
    raise AssertionError("it ended")


class Cost(unittest.TestCase):
    def disassembly(self, program, function):
        harness.need("objdump")
        text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", f"--disassemble={function}", program],
                              check=True, capture_output=True, text=True).stdout
        return [line.split("\t")[1] for line in text.splitlines() if line.startswith(" ") and "\t" in line]

    def test_without_a_recorder_it_is_a_test_of_one_word(self):
        for name in ("annotated", "annotated_cxx"):
            if name not in PROGRAMS:
                continue
            code = self.disassembly(harness.program(name), "give")
            end = next(i for i, line in enumerate(code) if re.match(r"ret|jmp ", line))
            straight = code[:end]
            branches = [line for line in straight if line.startswith("j")]
            self.assertEqual(len(branches), 1, code)
            self.assertFalse([line for line in straight if line.startswith("call")], code)

    def test_no_symbol_is_needed(self):
        harness.need("nm")
        for name in PROGRAMS:
            symbols = subprocess.run(["nm", "-D", harness.program(name)], check=False, capture_output=True,
                                     text=True).stdout
            kinds = re.findall(r"(\w) hl_\w+", symbols)
            self.assertEqual(set(kinds) - {"w"}, set(), symbols)
            with harness.Waiting([harness.program(name), "now"]) as process:
                pass
            self.assertEqual(process.returncode, 0)


class Annotations(attaching.TestCase):
    def ask(self, process, line):
        process.stdin.write(line + "\n")
        process.stdin.flush()
        return figures_of(iter(process.stdout.readline, ""))

    def check(self, ledger, chunks=CHUNKS):
        rows = [harness.top_rows(self.recording, value) for value in ("alloc", "inuse")]
        found = {name: [row[name][key] for row in rows for key in ("flat_objects", "flat_bytes")]
                 for name in ledger}
        self.assertEqual(found, ledger)
        self.assertEqual([rows[0]["work"]["flat_objects"], rows[0]["work"]["flat_bytes"]],
                         [chunks, chunks * CHUNK])
        # the stacks lead through who cuts them, and filters know pools
        total = sum(figures[2] for figures in ledger.values())
        stacks = harness.folded(self.recording, "inuse", "objects", "--focus", r"\[pool ")
        self.assertEqual(sum(stacks.values()), total)
        self.assertEqual([stack for stack in stacks if "cut" not in str(stack)], [])
        lost = harness.info(self.recording)["lost"]
        self.assertEqual({what: number for what, number in lost.items() if number}, {})

    def test_recorded_from_the_start(self):
        for name in PROGRAMS:
            for mode in ("mem-fast", "log-record"):
                with self.subTest(program=name, mode=mode):
                    result = harness.run(harness.record_command(
                        self.recording, [harness.program(name), "now"], mode))
                    self.assertEqual(result.status, 0, result.stderr)
                    self.check(figures_of(result.stdout.splitlines()))

    def test_pools_that_tell_heaptrack_are_recorded(self):
        for how in ([], ["by dlsym"]):
            for mode in ("mem-fast", "log-record"):
                with self.subTest(how=how, mode=mode):
                    result = harness.run(harness.record_command(
                        self.recording, [harness.program("heaptrack_pool"), *how], mode))
                    self.assertEqual(result.status, 0, result.stderr)
                    ledger = figures_of(result.stdout.splitlines())
                    rows = [harness.top_rows(self.recording, value) for value in ("alloc", "inuse")]
                    self.assertEqual({name: [row[name][key] for row in rows
                                             for key in ("flat_objects", "flat_bytes")] for name in ledger},
                                     ledger)
                    self.assertEqual(rows[0]["cut"]["cum_objects"], 1000)
                    self.assertEqual(rows[0]["enlarge"]["cum_objects"], 200)
                    self.assertEqual(harness.info(self.recording)["lost"]["unmatched_frees"], 0)

    def test_joined_and_left(self):
        for name in PROGRAMS:
            with self.subTest(program=name), harness.Waiting([harness.program(name)]) as process:
                for mode in ("mem-fast", "mem-record", "log-fast"):
                    with self.attached(process.pid, "--mode", mode) as attach:
                        ledger = self.ask(process, "more")
                        attach.send_signal(signal.SIGINT)
                    self.check(ledger)
                    self.ask(process, "unrecorded")
            self.assertEqual(process.returncode, 0)

    def test_stripped(self):
        harness.need("strip")
        path = self.path("annotated")
        shutil.copy(harness.program("annotated"), path)
        subprocess.run(["strip", path], check=True)
        with harness.Waiting([path]) as process:
            with self.attached(process.pid) as attach:
                ledger = self.ask(process, "more")
                attach.send_signal(signal.SIGINT)
        rows = harness.top_rows(self.recording, "alloc")
        self.assertEqual({name: rows[name]["flat_objects"] for name in ledger},
                         {name: figures[0] for name, figures in ledger.items()})

    def test_marks_and_modes(self):
        with harness.Waiting([harness.program("annotated")]) as process:
            self.ask(process, "mark nobody sees it")
            with self.attached(process.pid) as attach:
                ledger = self.ask(process, "mark joined")
                self.ask(process, "mode 0")
                attach.send_signal(signal.SIGINT)
            marks = [mark["text"] for mark in harness.info(self.recording)["marks"]]
            self.assertIn("joined", marks)
            rows = harness.top_rows(self.recording, "alloc")
            for name, figures in ledger.items():
                self.assertEqual(rows[name]["flat_objects"], figures[0])


if __name__ == "__main__":
    harness.main()
