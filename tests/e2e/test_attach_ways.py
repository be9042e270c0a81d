# SPDX-License-Identifier: BSD-2-Clause
"""One program with every libc and allocator is joined: the recording equals the program's ledger."""

import signal

import attaching
import harness

WAYS = ("", "_static", "_static_pie", "_musl", "_musl_static", "_jemalloc", "_jemalloc_in",
        "_jemalloc_static", "_mimalloc", "_mimalloc_in", "_tcmalloc", "_own", "_cookie")
# A thread that ends has glibc free what it keeps of freed blocks, as if they were blocks again.
KEPT_BY_GLIBC = 2 * 64 * 7
GLIBC = ("", "_static", "_static_pie")
MUSL = ("_musl", "_musl_static")  # much of it comes without information about its frames


class Ways(attaching.TestCase):
    def ask(self, process):
        """Has the program allocate; its ledger, {function: figures}, and frees of older blocks."""
        process.stdin.write("\n")
        process.stdin.flush()
        ledger = {}
        for line in process.stdout:
            if line == "done\n":
                return ledger, ledger.pop("older")[0]
            name, *figures = line.split()
            ledger[name] = [int(figure) for figure in figures]
        raise AssertionError("it ended")

    def check(self, kind):
        with harness.Waiting([harness.program("ways" + kind)]) as process:
            self.ask(process)
            for mode in ("mem-fast", "log-fast"):
                with self.attached(process.pid, "--mode", mode) as attach:
                    expected, older_frees = self.ask(process)
                    attach.send_signal(signal.SIGINT)
                self.compare(kind, expected, older_frees)
            self.ask(process)
        self.assertEqual(process.returncode, 7)

    def compare(self, kind, expected, older_frees):
        allocated = harness.top_rows(self.recording, "alloc")
        in_use = harness.top_rows(self.recording, "inuse")
        none = dict.fromkeys(harness.FIGURES, 0)
        found = {}
        for name in expected:
            rows = allocated.get(name, none), in_use.get(name, none)
            found[name] = [row[key] for row in rows for key in ("flat_objects", "flat_bytes")]
        self.assertEqual(found, expected)
        lost = harness.info(self.recording)["lost"]
        lost = {what: number for what, number in lost.items() if number}
        unmatched = lost.pop("unmatched_frees")
        self.assertGreaterEqual(unmatched, older_frees)
        self.assertLessEqual(unmatched, older_frees + (KEPT_BY_GLIBC if kind in GLIBC else 0))
        if kind in MUSL:
            lost.pop("incomplete_stacks")
        self.assertEqual(lost, {})


for way in WAYS:
    setattr(Ways, f"test_with{way or '_glibc'}", lambda self, kind=way: self.check(kind))


if __name__ == "__main__":
    harness.main()
