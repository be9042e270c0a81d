# SPDX-License-Identifier: BSD-2-Clause
"""Libraries that are opened with RTLD_DEEPBIND, which the loader binds to libc before anything that is preloaded:
their blocks are recorded, those that they free are freed, and a free that nobody saw is said."""

import os
import shutil
import struct

import attaching
import harness


def ledger_of(text):
    lines = text.splitlines()
    return {name: [int(figure) for figure in figures]
            for name, *figures in (line.split() for line in lines[:lines.index("done")])}


class DeepBind(attaching.TestCase):
    def check(self, command, mode):
        result = harness.run(harness.record_command(self.recording, command, mode))
        self.assertEqual(result.status, 0, result.stderr)
        ledger = ledger_of(result.stdout)
        rows = [harness.top_rows(self.recording, value) for value in ("alloc", "inuse")]
        self.assertEqual({name: [row.get(name, dict.fromkeys(harness.FIGURES, 0))[key] for row in rows
                                 for key in ("cum_objects", "cum_bytes")] for name in ledger}, ledger)
        lost = harness.info(self.recording)["lost"]
        self.assertEqual({what: number for what, number in lost.items() if number}, {})

    def test_blocks_equal_the_ledger(self):
        command = [harness.program("deepbind"), harness.PROGRAMS]
        if os.path.exists(os.path.join(harness.PROGRAMS, "deepbound_cxx.so")):
            command.append("c++")
        for mode in ("mem-fast", "mem-record", "log-fast"):
            with self.subTest(mode=mode):
                self.check(command, mode)

    def test_a_library_that_dlmopen_opens_in_the_programs_namespace(self):
        self.check([harness.program("deepbind"), harness.PROGRAMS, "base"], "mem-fast")

    def test_a_libc_whose_headers_are_not_mapped(self):
        with open("/proc/self/maps", encoding="utf-8") as maps:
            paths = {line.split()[-1] for line in maps if line.rstrip().endswith("/libc.so.6")}
        if not paths:
            self.skipTest("Python's libc is not called libc.so.6")
        libc, far = self.path("libc.so.6"), 256 << 20
        shutil.copy(paths.pop(), libc)
        with open(libc, "r+b") as file:
            head = file.read(64)
            offset, = struct.unpack_from("<Q", head, 32)
            size, count = struct.unpack_from("<2H", head, 54)
            file.seek(offset)
            headers = file.read(size * count)
            file.seek(far)
            file.write(headers)
            file.seek(32)
            file.write(struct.pack("<Q", far))
        self.check(["env", "LD_LIBRARY_PATH=" + os.path.dirname(libc),
                    harness.program("deepbind"), harness.PROGRAMS], "mem-fast")

    def test_frees_that_were_missed_are_counted_and_said(self):
        for mode in ("mem-fast", "mem-record", "log-fast"):
            with self.subTest(mode=mode):
                result = harness.run(harness.record_command(
                    self.recording, [harness.program("unseen_frees")], mode))
                self.assertEqual(result.status, 0, result.stderr)
                rows = harness.top_rows(self.recording, "inuse")
                self.assertEqual([rows.get(name, {"flat_objects": 0, "flat_bytes": 0})[key] for name in
                                  ("first", "second") for key in ("flat_objects", "flat_bytes")],
                                 [0, 0, 1000, 100_000])
                packed = self.path("packed.hlz")
                harness.run([harness.HEAPLINE, "pack", "-f", "-o", packed, self.recording])
                for recording in (self.recording, packed):
                    lost = harness.info(recording)["lost"]
                    self.assertEqual((lost["missed_frees"], lost["unmatched_frees"], lost["events"]), (1000, 0, 0))
                    for view in ("top", "tree", "info"):
                        text = harness.run([harness.HEAPLINE, view, recording]).stdout
                        self.assertIn("MISSED: 1,000 frees were not seen", text)


if __name__ == "__main__":
    harness.main()
