#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""jemalloc's heap, read from outside without a recorder: it equals the program's ledger and jemalloc's own figures."""

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

import harness
from harness import need, program, rss_of, run
from slab_blocks import HEAPS, SMALL, Blocks, ask

BUILT_IN = ("slab_blocks_jemalloc", "slab_blocks_jemalloc_static", "slab_blocks_jemalloc_stripped")
CONFIGURATIONS = ("", "narenas:1", "percpu_arena:percpu", "retain:false", "tcache:false",
                  "dirty_decay_ms:100,muzzy_decay_ms:5000", "lg_tcache_max:20")
STATS_BUFFER_BYTES = 65536
ANSWER_BYTES = 32768
FILL = "for i = 0, 49999 do redis.call('set', 'key:' .. i, string.rep('x', 60 + i % 500)) end"
EXTRA_BLOCKS = 8  # libc has one for each thread, and libraries a few


def blocks(command, *, arguments=SMALL, configuration=""):
    return Blocks("libjemalloc.so.2", command, arguments=arguments, environment={"MALLOC_CONF": configuration})


class JemallocHeap(harness.TestCase):
    def expect_all(self, report, target):
        """Besides the ledger's there is a block for each thread, of libc, and few more."""
        total, figures = report["total"], target.figures
        self.assertTrue(report["allocator"].startswith("jemalloc"), report["allocator"])
        self.assertIn(total["inuse_blocks"] - target.live[0] - target.threads, range(EXTRA_BLOCKS), target.live)
        self.assertEqual(report["lost"]["abandoned"], 0)
        self.assertEqual(total["unscanned_bytes"], 0)
        self.assertEqual(total["inuse_bytes"] + total["tcache_bytes"] + figures["stats.arenas.4096.internal"],
                         figures["stats.allocated"])
        self.assertEqual(total["system_bytes"], figures["stats.mapped"] + figures["stats.retained"])

    def test_live_and_cached_blocks_are_those_of_the_ledger_and_of_jemalloc(self):
        for configuration in CONFIGURATIONS:
            with self.subTest(configuration), blocks("slab_blocks", configuration=configuration) as target:
                for options in [], ["--stop"]:
                    report = ask("heap", "-p", target.pid, *options)
                    self.expect_all(report, target)
                    self.assertEqual(report["total"]["rss_bytes"], rss_of(target.pid))
                    self.assertEqual(report["total"]["rss_bytes"],
                                     sum(row["bytes"] for row in report["resident"]))

    def test_each_block_of_the_ledger_is_found_and_hardly_another(self):
        for arguments in HEAPS:
            with self.subTest(arguments), blocks("slab_blocks", arguments=arguments) as target:
                target.tell("l")
                dump = run([program("heap_dump"), "--blocks", str(target.pid)])
                self.assertEqual(dump.status, 0, dump.stderr)
                found = {tuple(block[:2]) for block in json.loads(dump.stdout)["blocks"]}
                self.assertEqual(target.blocks - found, set())
                self.assertLessEqual(len(found - target.blocks), target.threads + EXTRA_BLOCKS)

    def test_built_in_and_stripped_it_is_found_all_the_same(self):
        for name in BUILT_IN:
            with self.subTest(name), blocks(name) as target:
                self.expect_all(ask("heap", "-p", target.pid), target)

    def test_a_core_file_says_the_same(self):
        gcore = need("gcore")
        with blocks("slab_blocks") as target:
            live = ask("heap", "-p", target.pid)["total"]
            made = run([gcore, "-o", self.path("core"), str(target.pid)])
            self.assertEqual(made.status, 0, made.stderr)
            report = ask("heap", "--core", self.path(f"core.{target.pid}"))
        self.expect_all(report, target)
        for key in "inuse_bytes", "tcache_bytes", "free_bytes", "system_bytes":
            self.assertEqual(report["total"][key], live[key], key)

    def test_what_a_purge_gives_back_is_known_before(self):
        for arguments in HEAPS:
            with self.subTest(arguments), \
                    blocks("slab_blocks", arguments=arguments, configuration="dirty_decay_ms:-1") as target:
                before = ask("heap", "-p", target.pid)["total"]
                old = rss_of(target.pid, "Anonymous:")
                target.tell("p")
                fallen = old - rss_of(target.pid, "Anonymous:")
                after = ask("heap", "-p", target.pid)["total"]
                self.assertGreater(fallen, 1 << 20)
                self.assertLess(abs(before["trimmable_bytes"] - fallen), fallen / 100)
                self.assertEqual(after["trimmable_bytes"], 0)

    def test_a_heap_that_changes_is_read_within_a_hundredth(self):
        with blocks("slab_blocks", arguments=(2, 40000, 700, 6)) as target:
            calm = ask("heap", "-p", target.pid)["total"]
            target.tell("b")
            for _ in range(5):
                total = ask("heap", "-p", target.pid)["total"]
                self.assertLess(abs(total["inuse_blocks"] - calm["inuse_blocks"]), calm["inuse_blocks"] / 100)
                self.assertLess(total["unscanned_bytes"], calm["system_bytes"] / 100)
            target.tell("b")
            self.expect_all(ask("heap", "-p", target.pid), target)

    def test_reading_leaves_the_process_as_it_was(self):
        with blocks("slab_blocks") as target:
            before = Path(f"/proc/{target.pid}/statm").read_text("ascii")
            for verb in "heap", "carriers", "pins":
                ask(verb, "-p", target.pid)
            self.assertEqual(Path(f"/proc/{target.pid}/statm").read_text("ascii"), before)

    def test_redis_says_the_same_of_itself(self):
        server, client = need("redis-server"), need("redis-cli")
        if "malloc=jemalloc" not in run([server, "--version"]).stdout:
            self.skipTest("redis-server does not use jemalloc")
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "socket")
            command = [server, "--port", "0", "--unixsocket", path, "--dir", scratch, "--save", ""]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
                harness.wait_until(lambda: harness.listens(path), "redis to listen")
                run([client, "-s", path, "eval", FILL, "0"])
                # What jemalloc prints its figures through is its own, too, while it does.
                printed = run([client, "-s", path, "memory", "malloc-stats"]).stdout
                internal = int(re.search(r"internal: +(\d+)", printed).group(1)) - STATS_BUFFER_BYTES

                def distance():
                    """Redis asks jemalloc ten times a second, and the answer itself was a block."""
                    said = run([client, "-s", path, "info", "memory"]).stdout
                    total = ask("heap", "-p", process.pid)["total"]
                    known = total["inuse_bytes"] + total["tcache_bytes"] + internal
                    return abs(known - int(re.search(r"allocator_allocated:(\d+)", said).group(1)))

                harness.wait_until(lambda: distance() <= ANSWER_BYTES, f"{distance()} to be small", 30)
                process.terminate()


if __name__ == "__main__":
    harness.main()
