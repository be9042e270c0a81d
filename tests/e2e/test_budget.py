#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A recorder that is short of memory goes on by samples, and no program is killed for it."""

import json
import os
import re
import signal
import subprocess
import time

import harness
import test_pod
from harness import HEAPLINE

MIB = 1 << 20
COUNT, SIZE = 300_000, 96
# What heapline needs in the group whatever the program does: the recorder's region, and the collector.
FIXED_BYTES = 5 * MIB


def sites(recording):
    """The bytes in use of each site."""
    stacks = harness.folded(recording, "inuse", "bytes")
    return [harness.under(stacks, site) for site in ("site_a", "site_b")]


class Budget(test_pod.Groups):
    def usage(self, group):
        with open(os.path.join(group, "memory.current" if self.is_v2 else "memory.usage_in_bytes"),
                  encoding="ascii") as file:
            return int(file.read())

    def work(self, command, group=None):
        """Starts it, and has it do its work; the process, which still runs or was killed, and what it has kept."""
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, preexec_fn=group and (lambda: self.join(group)))
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    @staticmethod
    def go(process):
        process.stdin.write("\n")
        process.stdin.flush()
        kept = re.match(r"kept (\d+) (\d+)", process.stdout.readline())
        return kept and [int(figure) for figure in kept.groups()]

    def end(self, process):
        process.stdin.close()
        said = process.stderr.read()
        process.stdout.close()
        process.stderr.close()
        return process.wait(), said

    def needed(self, size):
        """What the program needs alone."""
        with self.group("plain") as group:
            process = self.work([harness.program("blocks"), str(COUNT), str(size)], group)
            self.assertIsNotNone(self.go(process))
            with open(os.path.join(group, "memory.peak" if self.is_v2 else "memory.max_usage_in_bytes"),
                      encoding="ascii") as file:
                peak = int(file.read())
            self.assertEqual(self.end(process)[0], 0)
        return peak

    def expect_estimates(self, recording, kept, reason):
        info = harness.info(recording)
        for value, true in zip(sites(recording), kept):
            self.assertLess(abs(value - true), harness.deviation_of_samples(info, true))
        warning = " ".join(info["recording"]["warnings"])
        self.assertRegex(warning, rf"is sampled from [\d.]+ s on, one allocation about every \d+ KiB: {reason}")
        self.assertEqual(harness.report("top", recording)["total"]["alloc_objects"],
                         harness.info(recording)["total"]["alloc_objects"])

    def test_a_program_that_fits_alone_fits_with_a_recorder(self):
        for size in 24, SIZE, 400:
            needed = self.needed(size)
            for more in FIXED_BYTES, FIXED_BYTES + needed // 10:
                with self.subTest(size=size, more=more), self.group("limited") as group:
                    self.limit(group, needed + more)
                    recording = self.path("recorded.hl")
                    process = self.work(harness.record_command(
                        recording, [harness.program("blocks"), str(COUNT), str(size)], options=["-f"]), group)
                    kept = self.go(process)
                    status, said = self.end(process)
                    self.assertEqual(status, 0, said)
                    self.expect_estimates(recording, kept, "its control group had")

    def test_one_that_is_joined_fits_as_well(self):
        needed = self.needed(SIZE)
        with self.group("limited") as group:
            self.limit(group, needed + FIXED_BYTES)
            process = self.work([harness.program("blocks"), str(COUNT), str(SIZE)], group)
            recording = self.path("joined.hl")
            with subprocess.Popen([HEAPLINE, "attach", "-p", str(process.pid), "-o", recording],
                                  stderr=subprocess.PIPE, text=True) as attach:
                ask = [HEAPLINE, "ctl", "-p", str(process.pid), "status"]
                harness.wait_until(lambda: harness.run(ask).status == 0, "the recorder to be there")
                kept = self.go(process)
                refused = harness.run([HEAPLINE, "allocations", "-p", str(process.pid)])
                leaks = json.loads(harness.run([HEAPLINE, "leaks", "-p", str(process.pid), "--json"]).stdout)
                attach.send_signal(signal.SIGINT)
                self.assertEqual(attach.wait(), 0, attach.stderr.read())
            self.assertEqual(self.end(process)[0], 0)
            self.assertIn("is recorded by samples", refused.stderr)
            self.assertGreater(leaks["total"]["live_blocks"], COUNT / 3)  # by malloc's own lists
            self.expect_estimates(recording, kept, "its control group had")

    def test_a_group_above_that_is_full_of_page_cache_hides_no_limit(self):
        needed, file = self.needed(SIZE), self.path("read")
        with self.group("cached") as above:
            self.limit(above, needed + FIXED_BYTES + 30 * MIB)
            if self.is_v2:
                with open(os.path.join(above, "cgroup.subtree_control"), "w", encoding="ascii") as control:
                    control.write("+memory")
            below, reads = (os.path.join(above, name) for name in ("below", "reads"))
            os.mkdir(below)
            os.mkdir(reads)
            self.limit(below, needed + FIXED_BYTES)
            with subprocess.Popen(["sh", "-c", 'head -c 100M /dev/zero >"$0"; while :; do cat "$0" >/dev/null; done', file],
                                  preexec_fn=lambda: self.join(reads)) as reader:
                self.addCleanup(reader.kill)
                harness.wait_until(lambda: self.usage(above) > needed + FIXED_BYTES + 20 * MIB, "a full group", 60)
                recording = self.path("hidden.hl")
                process = self.work(harness.record_command(
                    recording, [harness.program("blocks"), str(COUNT), str(SIZE)], options=["-f"]), below)
                kept = self.go(process)
                status, said = self.end(process)
                reader.kill()
            self.assertEqual(status, 0, said)
            self.expect_estimates(recording, kept, "its control group had")

    def test_what_is_freed_to_the_last_block_is_near_nothing(self):
        """An estimate may be below zero."""
        for mode in "mem-fast", "log-fast":
            with self.subTest(mode):
                recording = self.path("freed.hl")
                process = self.work(harness.record_command(
                    recording, [harness.program("blocks"), str(COUNT), str(SIZE), "1"], mode,
                    options=["-f", "--max-memory", "3M"]))
                kept = self.go(process)
                status, said = self.end(process)
                self.assertEqual((status, kept), (0, [0, 0]), said)
                info = harness.info(recording)
                self.assertNotIn("damaged", said)
                self.assertFalse(any(info["lost"].values()), info["lost"])
                allocated = COUNT * SIZE
                for site, share in ("site_a", 2), ("site_b", 1):
                    row = harness.top_rows(recording, "alloc")[site]
                    deviation = harness.deviation_of_samples(info, allocated * share // 3)
                    self.assertLess(abs(row["cum_bytes"] - allocated * share // 3), deviation)
                    row = harness.top_rows(recording, "inuse").get(site, {"cum_bytes": 0})
                    self.assertLess(abs(row["cum_bytes"]), deviation)

    def test_a_limit_may_be_set_later(self):
        needed = self.needed(SIZE)
        for first in needed * 4, None:
            with self.subTest(first), self.group("lowered") as group:
                if first:
                    self.limit(group, first)
                recording = self.path("lowered.hl")
                process = self.work(harness.record_command(
                    recording, [harness.program("blocks"), str(COUNT), str(SIZE)], options=["-f"]), group)
                time.sleep(1)  # it is known by then
                self.limit(group, needed + FIXED_BYTES)
                time.sleep(1.5 if first else 6)
                kept = self.go(process)
                status, said = self.end(process)
                self.assertEqual(status, 0, said)
                self.expect_estimates(recording, kept, "its control group had")

    def test_one_that_is_closed_gives_its_memory_back_too(self):
        with self.group("closed") as group:
            self.limit(group, 1024 * MIB)
            process = self.work(harness.record_command(self.path("closed.hl"), [harness.program("trace_heap")]), group)

            def tell(order):
                process.stdin.write(order + "\n")
                process.stdin.flush()
                return process.stdout.readline()

            self.assertEqual(tell(f"malloc site_a {2 * COUNT} {SIZE}"), "ok\n")  # the recorder's table takes 8 MiB
            pid = harness.children_of(process.pid)[0]
            self.assertEqual(harness.run([HEAPLINE, "ctl", "-p", str(pid), "mode", "closed"]).status, 0)
            self.limit(group, self.usage(group) + 12 * MIB)
            time.sleep(1.5)
            self.assertEqual(tell(f"malloc site_b {COUNT // 2} {SIZE}"), "ok\n")  # 16 MiB
            status, errors = self.end(process)
            self.assertEqual(status, 0, errors)

    def test_where_there_is_room_all_is_exact(self):
        with self.group("roomy") as group:
            self.limit(group, 3 * self.needed(SIZE) + FIXED_BYTES)
            recording = self.path("exact.hl")
            process = self.work(harness.record_command(
                recording, [harness.program("blocks"), str(COUNT), str(SIZE)]), group)
            kept = self.go(process)
            status, said = self.end(process)
            self.assertEqual(status, 0, said)
            self.assertEqual(sites(recording), kept)
            self.assertEqual(harness.info(recording)["recording"]["sample_bytes"], 0)

    def test_the_recorder_keeps_to_its_bound(self):
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
        for bound in ["6M"] + ["1%"] * (machine < 2000 * MIB):  # the program may need more
            with self.subTest(bound):
                recording = self.path("bounded.hl")
                process = self.work(harness.record_command(
                    recording, [harness.program("blocks"), str(COUNT * 4), str(SIZE)],
                    options=["-f", "--max-memory", bound]))
                kept = self.go(process)
                said = json.loads(harness.run([HEAPLINE, "ctl", "-p", str(harness.children_of(process.pid)[0]), "status",
                                               "--json"]).stdout)
                self.assertLess(said["rows"][0]["recorder_bytes"], 6 * MIB)
                status, said = self.end(process)
                self.assertEqual(status, 0, said)
                self.expect_estimates(recording, kept, "the recorder used")


if __name__ == "__main__":
    harness.main()
