#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Lost blocks of programs that know what they have lost, and of programs that have lost nothing."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

import attaching
import busy_programs
import harness
import planted_programs
from harness import HEAPLINE, need, program, run

SCANS = 8  # of each busy program, running and stopped; bench/leaks_soak.py makes more


class Planted(planted_programs.Telling):
    """A program that says what it has lost."""

    def __init__(self, name, *kinds, **options):
        self.said = {}
        super().__init__(program(name), *kinds, **options)

    def hear(self, word, *words):
        self.said[word] = [int(number) for number in words]

    def plant_later(self):
        self.process.stdin.write("x")
        self.process.stdin.flush()
        self.listen()


# Programs that root starts like this may not use BPF.
WITHOUT_BPF = (["setpriv", "--bounding-set", "-bpf,-perfmon,-sys_admin"] if os.geteuid() == 0 else [])


# Loses 300 blocks whose addresses stay where its stack was deeper. Its first thread runs, or rests while another one runs.
STALE = """
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *run(void *unused) { for (volatile long i = 0;; i++); }
__attribute__((noinline)) static void lose(void)
{
	void *volatile blocks[4000];
	memset((void *)blocks, 0, sizeof(blocks));
	for (int i = 0; i < 300; i++)
		blocks[i] = malloc(500);
}
int main(int count, char **arguments)
{
	pthread_t thread;
	int runs = arguments[1][1] == 'u';
	if (!runs)
		pthread_create(&thread, NULL, run, NULL);
	lose();
	if (write(1, "ready\\n", 6) != 6)
		return 1;
	if (runs)
		run(NULL);
	for (;;)
		pause();
}
"""


def need_sleepers():
    """Skips where BPF may not tell which threads sleep."""
    result = run([HEAPLINE, "page-events", "-p", str(os.getpid()), "0.01"])
    if result.status:
        raise unittest.SkipTest(result.stderr.strip())
    if os.stat("/proc/self/ns/pid").st_ino != 0xeffffffc:
        raise unittest.SkipTest("the tests run in a PID namespace")


def ask(*options, prefix=()):
    """The report on a process or a core file."""
    result = run([*prefix, HEAPLINE, "leaks", "--json", *map(str, options)])
    if result.status:
        raise AssertionError(result.stderr)
    return json.loads(result.stdout)


def figures(report):
    """What does not depend on how the process was looked at."""
    total = {key: value for key, value in report["total"].items()
             if key not in ("passes", "stopped_us", "stopped_threads")}
    return total, report["rows"], report["blocks"]


def tracer_of(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        return re.search(r"TracerPid:\s+(\d+)", status.read())[1]


class Leaks(harness.TestCase):
    def expect_planted(self, *kinds):
        with Planted("leaks", *kinds) as planted:
            reports = [ask("-p", planted.pid), ask("-p", planted.pid, "--stop")]
        for report in reports:
            for word, (blocks, size) in planted.said.items():
                found = (report["total"][f"{word}_blocks"], report["total"][f"{word}_bytes"])
                self.assertEqual(found, (blocks, size), (word, kinds, report))
            # On a machine that is busy the process goes on before all is read, which is said.
            self.assertEqual([note for note in report["notes"] if "goes on after 100 ms" not in note], [])
        self.assertGreaterEqual(reports[0]["total"]["passes"],
                                5 if planted.said["lost"][0] else 1)
        self.assertGreaterEqual(reports[1]["total"]["passes"],
                                6 if planted.said["lost"][0] else 1)
        self.assertEqual(reports[1]["stopped"],
                         planted.said["lost"][0] + planted.said["possible"][0] > 0)
        return reports

    def test_each_kind_of_leak_is_found_to_the_byte(self):
        for kind in ("blocks", "mapped", "list", "tree", "ring", "rings", "inner", "ended", "arenas"):
            with self.subTest(kind):
                self.expect_planted(kind)

    def test_memcheck_counts_the_same_blocks(self):
        valgrind = need("valgrind")
        for kind in "blocks", "list", "tree", "ring", "rings", "inner", "ended":
            with self.subTest(kind):
                checked = run([valgrind, "--leak-check=full", program("leaks"), kind])
                self.assertEqual(checked.status, 0, checked.stderr)
                said = dict(re.findall(r"^(\w+) (\d+) ", checked.stdout, re.M))
                for word, what in (("lost", "definitely"), ("indirect", "indirectly"),
                                   ("possible", "possibly")):
                    found = re.search(rf"{what} lost: [\d,]+ bytes in ([\d,]+) blocks", checked.stderr)
                    self.assertEqual(found[1].replace(",", ""), said[word], (word, checked.stderr))

    def test_all_kinds_at_once_are_found_beside_what_is_kept(self):
        self.expect_planted("kept", "blocks", "mapped", "register", "list", "tree", "ring", "rings",
                            "inner", "ended", "arenas")

    def test_what_roots_of_every_kind_lead_to_is_not_lost(self):
        reports = self.expect_planted("kept", "register", "epoll")
        for report in reports:
            self.assertEqual(report["rows"], [])

    def test_pages_without_access_lead_to_blocks(self):
        self.expect_planted("closed", "tree")

    def test_what_the_kernel_alone_has_leads_to_blocks(self):
        self.expect_planted("handed", "tree")
        with Planted("leaks", "handed") as planted:
            kept = json.loads(run([HEAPLINE, "holders", "--json", "-p", str(planted.pid)]).stdout)
        rows = {row["holder"]: row["held_blocks"] for row in kept["rows"] if row["kind"] == "kernel"}
        self.assertEqual(len(rows), 101)
        self.assertEqual({name.rstrip("0123456789"): blocks for name, blocks in rows.items()},
                         {"epoll descriptor ": 100, "timer ": 1})
        self.assertEqual(kept["total"]["lost_blocks"], 0)

    def test_what_secret_memory_may_lead_to_is_not_called_lost(self):
        with self.planted_or_skipped("secret", "the kernel has no memfd_secret") as planted:
            reports = [ask("-p", planted.pid), ask("-p", planted.pid, "--stop")]
        for report in reports:
            self.expect_unknown(report, 100)
            self.assertEqual(report["total"]["unread_bytes"], 4096)
            self.assertIn("4 KiB of the process are memfd_secret memory", report["notes"][0])

    def test_what_swap_may_lead_to_is_not_called_lost_until_it_is_read(self):
        with self.planted_or_skipped("swapped", "there is no swap") as planted:
            self.expect_unknown(ask("-p", planted.pid), 100)
            report = ask("-p", planted.pid, "--swapped")
        self.assertEqual([report["total"]["lost_blocks"], report["total"]["unknown_blocks"]], [0, 0])
        self.assertEqual(report["notes"], [])

    @staticmethod
    def planted_or_skipped(kind, reason):
        planted = Planted("leaks", kind)
        if "absent" in planted.said:
            planted.__exit__()
            raise unittest.SkipTest(reason)
        return planted

    def expect_unknown(self, report, blocks):
        total = report["total"]
        self.assertEqual([total["lost_blocks"], total["indirect_blocks"], total["possible_blocks"]], [0, 0, 0])
        self.assertEqual(total["unknown_blocks"], blocks)
        self.assertEqual(total["unknown_bytes"], sum(row["unknown_bytes"] for row in report["rows"]))

    def test_pointers_in_packed_structs_lead_to_blocks_if_that_is_asked_for(self):
        with Planted("leaks", "packed") as planted:
            aligned = ask("-p", planted.pid)
            for options in [], ["--stop"]:
                report = ask("-p", planted.pid, "--unaligned", *options)
                self.assertEqual(report["total"]["lost_blocks"], 0, report)
            kept = json.loads(run([HEAPLINE, "holders", "--json", "--unaligned", "-p", str(planted.pid)]).stdout)
        self.assertGreater(aligned["total"]["lost_blocks"], 80)
        self.assertEqual(kept["total"]["lost_blocks"], 0)

    def test_pointers_behind_the_header_of_a_wrapper_are_pointers_to_the_block(self):
        self.expect_planted("headers")

    def test_what_lies_in_the_heap_outside_of_blocks_leads_to_blocks(self):
        for name in "leaks", "leaks_static":  # a static program's thread-local storage lies there
            for kinds in [], ["break"]:
                with self.subTest((name, kinds)):
                    with Planted(name, *kinds) as planted:
                        reports = [ask("-p", planted.pid), ask("-p", planted.pid, "--stop")]
                    for report in reports:
                        self.assertEqual(report["rows"], [])
                        self.assertEqual(report["total"]["possible_blocks"], 0)

    def test_free_chunks_that_malloc_is_moving_are_not_lost(self):
        self.planted_or_skipped("detached", "this glibc has no lists that it moves as a whole").__exit__()
        self.expect_planted("detached")
        with Planted("leaks", "detached", "list") as planted:
            report = ask("-p", planted.pid)
        self.assertEqual([report["total"]["lost_blocks"], report["total"]["lost_bytes"]],
                         planted.said["lost"])

    def test_rows_are_sizes_and_blocks_show_how_they_begin(self):
        with Planted("leaks", "blocks", "mapped") as planted:
            report = ask("-p", planted.pid, "--show", 3)
            text = run([HEAPLINE, "leaks", "-p", str(planted.pid), "--show", "3"])
        self.assertEqual(sum(row["lost_bytes"] for row in report["rows"]), planted.said["lost"][1])
        self.assertEqual(len(report["blocks"]), 3)
        first = report["blocks"][0]
        self.assertEqual(first["text"], "a block with a mapping of its ow")
        self.assertTrue(first["words"].startswith("206b636f6c622061 "), first)
        self.assertEqual(report["blocks"][1]["text"], "x" * 32)
        self.assertEqual(text.status, 0, text.stderr)
        self.assertIn("a block with a mapping of its ow", text.stdout)

    def test_objects_of_cxx_have_their_class_and_containers_are_followed(self):
        with Planted("leaks_cxx") as planted:
            reports = [ask("-p", planted.pid), ask("-p", planted.pid, "--stop")]
        for report in reports:
            total, (expected,) = report["total"], planted.said["lost"]
            found = total["lost_bytes"] + total["indirect_bytes"]
            self.assertLessEqual(found, expected, report)
            self.assertGreaterEqual(found, 0.99 * expected, report)
            self.assertEqual(total["possible_blocks"], 0, report)
            ducks = next(row for row in report["rows"] if row["type"] == "zoo::duck")
            self.assertGreaterEqual(ducks["lost_blocks"], 99)
            self.assertEqual(ducks["indirect_blocks"], ducks["lost_blocks"])
            self.assertTrue(any("_Sp_counted_ptr_inplace<zoo::parent" in row["type"] and
                                row["indirect_blocks"] == row["lost_blocks"]
                                for row in report["rows"]), report)

    def expect_stacks(self, options, least):
        command = [HEAPLINE, "record", *(options or ("-q", "-o", self.path("r.hl"))), "--",
                   program("leaks"), "blocks", "list"]
        with harness.Waiting(command) as started:
            pid = started.pid if options else harness.children_of(started.pid)[0]
            report = ask("-p", pid)
            text = run([HEAPLINE, "leaks", "-p", str(pid)])
        self.assertRegex(text.stdout, r"(?m)[ ;]block$")
        total = report["total"]
        self.assertGreaterEqual(total["lost_blocks"], 999)
        self.assertGreaterEqual(total["indirect_blocks"], 499)
        by_stack = [row for row in report["rows"] if row["stack"]]
        self.assertEqual(sum(row["lost_blocks"] for row in by_stack), total["lost_blocks"])
        for row in by_stack:
            self.assertGreaterEqual(len(row["stack"]), least)
            self.assertEqual(row["stack"], [frame["function"] for frame in row["frames"]])
            self.assertEqual(row["stack"][-1], "block")
            self.assertEqual(row["frames"][-1]["module"], "leaks")
        return by_stack

    def test_a_recorder_names_stacks(self):
        stacks = {row["stack"][-2]: row["lost_blocks"] for row in self.expect_stacks((), 4)}
        self.assertEqual(stacks["plant_blocks"], 999)

    def test_tags_name_callers(self):
        self.expect_stacks(("--tags",), 1)

    def test_lost_memory_is_a_recording_for_every_view(self):
        command = [HEAPLINE, "record", "-q", "-o", self.path("r.hl"), "--", program("leaks"), "blocks",
                   "list"]
        lost = self.path("lost.hl")
        with harness.Waiting(command) as started:
            pid = harness.children_of(started.pid)[0]
            total = ask("-p", pid)["total"]
            result = run([HEAPLINE, "leaks", "-p", str(pid), "-o", lost])
            self.assertEqual((result.status, result.stdout), (0, ""), result.stderr)
            self.assert_refused(run([HEAPLINE, "leaks", "-p", str(pid), "-o", lost]), "lost.hl")
        top = json.loads(run([HEAPLINE, "top", "--json", "--plumbing", lost]).stdout)
        self.assertEqual(top["total"]["inuse_bytes"], total["lost_bytes"] + total["indirect_bytes"])
        self.assertEqual(top["total"]["inuse_blocks"], total["lost_blocks"] + total["indirect_blocks"])
        self.assertIn("plant_list", {row["name"] for row in top["rows"]})
        self.assertRegex(run([HEAPLINE, "top", lost]).stdout,
                         rf"(?m)^lost .* in {top['total']['inuse_blocks']:,} blocks$")
        drawn = run([HEAPLINE, "flame", "-o", self.path("lost.svg"), lost])
        self.assertEqual(drawn.status, 0, drawn.stderr)
        with Planted("leaks", "blocks") as planted:
            other = self.path("other.hl")
            self.assert_refused(run([HEAPLINE, "leaks", "-p", str(planted.pid), "-o", other]),
                                "recorder", "other.hl")
            self.assertFalse(os.path.exists(other))

    def test_suppressions_leave_out_classes_and_functions(self):
        def ignore(*lines):
            with open(self.path("ignored"), "w", encoding="ascii") as file:
                file.write("\n".join(lines) + "\n")
            return "--ignore", self.path("ignored")
        with Planted("leaks_cxx") as planted:
            whole = ask("-p", planted.pid)["total"]
            for lines in (["leak:zoo::duck"], ["# a comment", "", "leak:^zoo::*ck$"],
                          ["leak:duck$ \t", "  "]):
                report = ask("-p", planted.pid, *ignore(*lines))
                self.assertFalse(any(row["type"] == "zoo::duck" for row in report["rows"]))
                total = report["total"]
                self.assertGreaterEqual(total["ignored_blocks"], 2 * 99)
                self.assertEqual(total["ignored_bytes"] + total["lost_bytes"] + total["indirect_bytes"],
                                 whole["lost_bytes"] + whole["indirect_bytes"])
            for line in "leak:duck$*no", "leak:^duck", "leak:d?ck", "leak:duck of another kind":
                self.assertEqual(ask("-p", planted.pid, *ignore(line))["total"]["ignored_blocks"], 0)
            self.assert_refused(run([HEAPLINE, "leaks", "-p", str(planted.pid),
                                     *ignore("leak:x", "race:x")]), "line 2", "leak:PATTERN")
        command = [HEAPLINE, "record", "-q", "-o", self.path("r.hl"), "--", program("leaks"), "blocks",
                   "list"]
        with harness.Waiting(command) as started:
            pid = harness.children_of(started.pid)[0]
            total = ask("-p", pid, *ignore("leak:plant_blocks"))["total"]
            self.assertEqual(total["ignored_blocks"], 999)
            self.assertEqual(total["indirect_blocks"], 499)
            total = ask("-p", pid, *ignore("leak:leaks.c"))["total"]
            self.assertEqual(total["lost_blocks"], 0)

    def test_a_limit_is_a_status(self):
        with Planted("leaks", "tree") as planted:
            least = planted.said["lost"][1] + planted.said["indirect"][1]
            passed = run([HEAPLINE, "leaks", "-p", str(planted.pid), "--fail-above", str(least)])
            failed = run([HEAPLINE, "leaks", "-p", str(planted.pid), "--fail-above", str(least - 1)])
        self.assertEqual(passed.status, 0, passed.stderr)
        self.assertEqual(failed.status, 3)
        self.assertIn("are lost, more than", failed.stderr)


class PlantedPrograms(harness.TestCase):
    """At least 99 % of what each of many programs has lost is found, and nothing else."""

    # What Memcheck counts alike: definitely lost is lost, indirectly lost indirect.
    MEMCHECK = {"planted": ("list", "circle", "tree", "array", "member_list"),
                "planted_cxx": ("second_base", "map", "cycle_of_shared", "array_with_count", "monotonic")}

    def expect_found(self, name, options):
        for kind in planted_programs.kinds_of(program(name)):
            with self.subTest(kind), planted_programs.start(program(name), kind) as (pid, blocks):
                total = ask("-p", pid, *options)["total"]
                found = total["lost_bytes"] + total["indirect_bytes"]
                planted = sum(blocks.values())
                if found < planted:
                    # A word of an ended thread or of a library may keep a block or two.
                    words = planted_programs.find_words(pid, blocks)
                    self.assertTrue(words, (kind, total))
                    self.assertGreaterEqual(found, 0.99 * planted, words)
                self.assertLessEqual(found, planted, total)

    def test_in_c(self):
        self.expect_found("planted", ())

    def test_in_cxx(self):
        self.expect_found("planted_cxx", ())

    def test_memcheck_counts_the_same(self):
        valgrind = need("valgrind")
        for name, kinds in self.MEMCHECK.items():
            for kind in kinds:
                with self.subTest(kind):
                    with planted_programs.start(program(name), kind) as (pid, _):
                        total = ask("-p", pid, "--stop")["total"]
                    checked = run([valgrind, "--leak-check=full", program(name), kind])
                    counted = [int(re.search(rf"{what} lost: [\d,]+ bytes in ([\d,]+) blocks", checked.stderr)[1].replace(",", ""))
                               for what in ("definitely", "indirectly", "possibly")]
                    expected = [total[f"{word}_blocks"] for word in ("lost", "indirect", "possible")]
                    # Data of valgrind's own library may lead into a block, at most what one of 200 rounds has planted.
                    by_valgrind = counted[2] - expected[2]
                    self.assertIn(by_valgrind, range(sum(expected) // 200 + 1), (kind, checked.stderr))
                    counted[1] += by_valgrind
                    self.assertEqual(counted[:2], expected[:2], (kind, checked.stderr))


class Attached(attaching.TestCase):
    """What a recorder in a running process keeps of blocks leads to none of them."""

    def test_what_is_lost_while_attach_records_is_found(self):
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode), Planted("leaks", "later", "blocks", "list") as planted:
                before = harness.report("heap", str(planted.pid), "-p")["total"]
                with self.attached(planted.pid, "--mode", mode) as attach:
                    planted.plant_later()
                    reports = [ask("-p", planted.pid), ask("-p", planted.pid, "--stop")]
                    heap = harness.report("heap", str(planted.pid), "-p")["total"]
                    attach.send_signal(signal.SIGINT)
                for report in reports:
                    for word, (blocks, size) in planted.said.items():
                        found = (report["total"][f"{word}_blocks"], report["total"][f"{word}_bytes"])
                        self.assertEqual(found, (blocks, size), (word, report["total"], report["notes"]))
                self.assertGreater(heap["resident_recorder_bytes"], 256 << 10)
                grown = heap["resident_anonymous_bytes"] - before["resident_anonymous_bytes"]
                self.assertLess(grown, 64 << 10)

    def test_what_musl_loses_while_attach_records_is_found(self):
        for name in "leaks_musl", "leaks_musl_static":
            with self.subTest(name), Planted(name, "later", "blocks", "list") as planted:
                with self.attached(planted.pid, "--mode", "mem-record") as attach:
                    planted.plant_later()
                    reports = [ask("-p", planted.pid), ask("-p", planted.pid, "--stop")]
                    attach.send_signal(signal.SIGINT)
                for report in reports:
                    # Blocks of up to 12 bytes, of each of which there is one, count as roots.
                    self.assertEqual(report["total"]["lost_blocks"], planted.said["lost"][0] - 12, report)
                    self.assertEqual([report["total"]["indirect_blocks"], report["total"]["indirect_bytes"]],
                                     planted.said["indirect"], report)


class Busy(harness.TestCase):
    """Programs that are in the middle of something have lost nothing."""

    def expect_none(self, name):
        with busy_programs.start(name, self.directory, program("leaks_cxx")) as pid:
            for options in ((), ("--stop",)):
                for _ in range(SCANS):
                    report = ask("-p", pid, "--show", 5, *options)
                    self.assertEqual(report["total"]["lost_blocks"], 0, report)
                    self.assertEqual(report["total"]["indirect_blocks"], 0, report)
                    self.assertGreater(report["total"]["live_blocks"], 100)

    def test_python(self):
        for name in "python-malloc", "python":
            with self.subTest(name):
                self.expect_none(name)

    def test_threads_that_rehash_maps(self):
        self.expect_none("rehash")

    def test_a_queue_without_a_lock(self):
        self.expect_none("queue")

    def test_sqlite(self):
        need("sqlite3")
        self.expect_none("sqlite")


class Cores(harness.TestCase):
    """A core file says what the process said."""

    def test_by_gcore(self):
        gcore = need("gcore")
        with Planted("leaks", "kept", "blocks", "tree", "rings", "inner", "ended", "arenas") as planted:
            live = ask("-p", planted.pid, "--stop", "--show", 10)
            self.assertEqual(run([gcore, "-o", self.path("core"), str(planted.pid)]).status, 0)
        core = ask("--core", f"{self.path('core')}.{planted.pid}", "--show", 10)
        self.assertEqual(figures(live), figures(core))
        self.assertTrue(core["from_core"])

    def test_a_core_that_is_cut_off_is_said(self):
        gcore = need("gcore")
        with harness.Waiting([program("leaks"), "blocks"]) as process:
            self.assertEqual(run([gcore, "-o", self.path("core"), str(process.pid)]).status, 0)
        core = f"{self.path('core')}.{process.pid}"
        for part in (1.01, 2):
            os.truncate(core, int(os.path.getsize(core) / part))
            for verb in ("heap", "leaks", "holders"):
                self.assert_refused(run([HEAPLINE, verb, "--core", core]), "core file is cut off")

    def test_a_pipe_where_a_mapped_file_was_is_not_opened(self):
        gcore = need("gcore")
        with open("/proc/self/maps", encoding="utf-8") as maps:
            libc = re.search(r"/\S*/libc\.so\.6$", maps.read(), re.M)
        if not libc:
            self.skipTest("the C library is not libc.so.6")
        copy = self.path("libc.so.6")
        shutil.copy(libc[0], copy)
        with harness.Waiting([program("leaks"), "blocks"],
                             env={"LD_LIBRARY_PATH": self.directory}) as process:
            self.assertEqual(run([gcore, "-o", self.path("core"), str(process.pid)]).status, 0)
        os.unlink(copy)
        os.mkfifo(copy)
        result = run([HEAPLINE, "leaks", "--core", f"{self.path('core')}.{process.pid}"])
        self.assert_refused(result, "libc.so.6")

    def test_by_the_kernel(self):
        with open("/proc/sys/kernel/core_pattern", encoding="ascii") as file:
            pattern = file.read().strip()
        if pattern.startswith("|") or "/" in pattern:
            self.skipTest(f"the kernel's core_pattern is '{pattern}'")
        with Planted("leaks_cxx", cores=True, cwd=self.directory) as planted:
            live = ask("-p", planted.pid, "--stop")
            planted.process.send_signal(signal.SIGABRT)
            planted.process.wait()
        cores = [name for name in os.listdir(self.directory) if name.startswith("core")]
        if not cores:
            self.skipTest("the kernel wrote no core file")
        core = ask("--core", self.path(cores[0]))
        self.assertEqual(figures(live), figures(core))


class Unharmed(harness.TestCase):
    def test_nothing_changes_in_the_process(self):
        with Planted("leaks", "kept", "tree", "arenas", "register") as planted:
            def resident():
                with open(f"/proc/{planted.pid}/smaps_rollup", encoding="ascii") as rollup:
                    return re.search(r"Rss:.*", rollup.read())[0]
            planted.wait_for_threads()
            before = resident()
            for options in ((), ("--stop",)):
                ask("-p", planted.pid, *options)
            self.assertEqual(resident(), before)
            self.assertEqual(tracer_of(planted.pid), "0")

    def test_a_process_that_sleeps_is_not_stopped(self):
        need_sleepers()
        with Planted("leaks", "register", "epoll", "list", "tree") as planted:
            def switches():
                return [re.findall(r"ctxt_switches:\s+(\d+)", status.read_text("utf-8"))
                        for status in sorted(Path(f"/proc/{planted.pid}/task").glob("*/status"))]
            planted.wait_for_threads()
            before = switches()
            report = ask("-p", planted.pid)
            said = run([HEAPLINE, "leaks", "-p", str(planted.pid)]).stdout
            self.assertEqual(switches(), before)
            stopped = ask("-p", planted.pid, prefix=WITHOUT_BPF)
            self.assertNotEqual(switches(), before)
        self.assertEqual(report["total"]["stopped_us"], 0)
        self.assertGreater(stopped["total"]["stopped_us"], 0)
        self.assertEqual(figures(report), figures(stopped))
        self.assertEqual([report["total"]["lost_blocks"], report["total"]["lost_bytes"]],
                         planted.said["lost"])
        self.assertEqual(report["notes"], [])
        self.assertIn("the process, which was not stopped\n", said)

    def test_of_threads_that_run_and_sleep_those_that_run_are_stopped(self):
        need_sleepers()
        with Planted("leaks", "register", "epoll", "list", "spin") as planted:
            report = ask("-p", planted.pid)
        self.assertGreater(report["total"]["stopped_us"], 0)
        self.assertEqual([report["total"]["lost_blocks"], report["total"]["lost_bytes"]],
                         planted.said["lost"])
        self.assertEqual(report["notes"], [])

    def test_words_below_the_first_threads_stack_pointer_lead_to_nothing(self):
        need_sleepers()
        with open(self.path("stale.c"), "w", encoding="ascii") as file:
            file.write(STALE)
        self.assertEqual(run([need("gcc"), "-O1", "-pthread", "-o", self.path("stale"), self.path("stale.c")]).status, 0)
        for kind in "main rests", "main runs":
            with self.subTest(kind), subprocess.Popen([self.path("stale"), *kind.split()[1:]], stdout=subprocess.PIPE) as stale:
                self.addCleanup(stale.kill)
                self.assertEqual(stale.stdout.readline(), b"ready\n")
                lost = ask("-p", stale.pid)["total"]["lost_blocks"]
                stale.kill()
            self.assertIn(lost, range(295, 301))  # one or two in registers and the frame

    def test_of_many_threads_those_that_wake_are_stopped(self):
        need_sleepers()
        with Planted("leaks", "crowd", "list") as planted:
            planted.wait_for_threads()
            report = ask("-p", planted.pid)
            said = run([HEAPLINE, "leaks", "-p", str(planted.pid)]).stdout
            others = ask("-p", planted.pid, prefix=WITHOUT_BPF)
        self.assertLess(report["total"]["stopped_threads"], 20)
        self.assertRegex(said, r"of which up to \d+ of 201 threads were stopped at once")
        self.assertEqual(others["total"]["stopped_threads"], 201)
        self.assertEqual([report["total"]["lost_blocks"], report["total"]["lost_bytes"]], planted.said["lost"])
        self.assertEqual(report["notes"], [])

    def test_blocks_of_threads_that_wake_in_turn_are_not_lost(self):
        with Planted("leaks", "turns", "register", "list", "tree") as planted:
            reports = [ask("-p", planted.pid, prefix=prefix) for prefix in ((), WITHOUT_BPF) * 3]
            exact = ask("-p", planted.pid, "--stop")
        for report in (*reports, exact):
            self.assertEqual([report["total"]["lost_blocks"], report["total"]["lost_bytes"]], planted.said["lost"])

    def test_no_thread_is_stopped_if_that_is_asked_for(self):
        with Planted("leaks", "spin", "list", "tree") as planted:
            report = ask("-p", planted.pid, "--no-stop", prefix=WITHOUT_BPF)
            refused = run([HEAPLINE, "leaks", "-p", str(planted.pid), "--stop", "--no-stop"])
        self.assertEqual([report["total"]["stopped_us"], report["total"]["stopped_threads"]], [0, 0])
        self.assertGreaterEqual(report["total"]["lost_blocks"], planted.said["lost"][0])
        self.assertLessEqual(report["total"]["lost_blocks"], planted.said["lost"][0] + 1)  # that in a register
        self.assertIn("as --no-stop asks", report["notes"][0])
        self.assertEqual(refused.status, 2)

    def test_no_system_call_is_interrupted(self):
        with Planted("leaks", "epoll") as planted:
            ask("-p", planted.pid)
            ask("-p", planted.pid, "--stop")
            for _ in range(20):
                result = run([HEAPLINE, "heap", "-p", str(planted.pid), "--stop"])
                self.assertEqual(result.status, 0, result.stderr)
        self.assertEqual(planted.process.returncode, 0)

    def test_each_call_that_waits_goes_on(self):
        for seccomp in ([], ["kill"], ["fail"], ["kill", "brief"]):
            with self.subTest(restart_syscall=seccomp), harness.waiting_calls(self, *seccomp) as pid:
                for options in (["heap", "--stop"], ["leaks"], ["leaks", "--stop"], ["holders"],
                                ["holders", "--stop"], ["pins", "--stop"]) * 2:
                    result = run([*WITHOUT_BPF, HEAPLINE, *options, "-p", str(pid)])
                    self.assertEqual(result.status, 0, result.stderr)

    def test_a_killed_heapline_leaves_the_process_running(self):
        with Planted("leaks", "blocks", "arenas") as planted:
            for delay in range(20):
                with subprocess.Popen([HEAPLINE, "leaks", "-p", str(planted.pid), "--stop"],
                                      stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL) as heapline:
                    time.sleep(delay / 1000)
                    heapline.kill()
                harness.wait_until(lambda: tracer_of(planted.pid) == "0", "the tracer to be gone")
                tasks = os.listdir(f"/proc/{planted.pid}/task")
                harness.wait_until(lambda: {harness.process_state(int(task)) for task in tasks}
                                   == {"S"}, "the threads to wait again")
        self.assertEqual(planted.process.returncode, 0)

    def test_a_traced_process_is_looked_at_without_its_registers(self):
        need("gdb")
        with Planted("leaks", "kept", "blocks") as planted:
            with subprocess.Popen(["gdb", "-q", "-nx", "-p", str(planted.pid)], text=True,
                                  stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL) as gdb:
                harness.wait_until(lambda: tracer_of(planted.pid) != "0", "gdb")
                report = ask("-p", planted.pid, prefix=WITHOUT_BPF)
                self.assert_refused(run([HEAPLINE, "leaks", "-p", str(planted.pid), "--stop"]),
                                    "traces it")
                gdb.communicate("detach\nquit\n", timeout=harness.TIMEOUT_S)
        self.assertEqual(report["total"]["lost_blocks"], planted.said["lost"][0])
        self.assertTrue(any("registers could not be read" in note for note in report["notes"]))

    def test_who_traces_one_thread_is_named(self):
        seize = ("import ctypes, sys\n"
                 "ptrace = ctypes.CDLL(None).ptrace\n"
                 "ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]\n"
                 "print(ptrace(0x4206, int(sys.argv[1]), None, None), flush=True)\n"  # PTRACE_SEIZE
                 "sys.stdin.read()\n")
        with Planted("leaks", "spin", "blocks") as planted:
            thread = max(map(int, os.listdir(f"/proc/{planted.pid}/task")))
            with subprocess.Popen([sys.executable, "-c", seize, str(thread)], text=True, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE) as tracer:
                self.assertEqual(tracer.stdout.readline(), "0\n")
                report = ask("-p", planted.pid, prefix=WITHOUT_BPF)
                tracer.communicate(timeout=harness.TIMEOUT_S)
        self.assertTrue(any(f": process {tracer.pid} traces it" in note for note in report["notes"]), report["notes"])

    def test_a_damaged_heap_is_said(self):
        with Planted("leaks", "kept", "damaged") as planted:
            for options in ((), ("--stop",)):
                report = ask("-p", planted.pid, *options)
                self.assertTrue(any("did not fit together" in note for note in report["notes"]),
                                report)
                self.assertTrue(any("unscanned" in note for note in report["notes"]))

    def test_what_cannot_be_read_is_said(self):
        self.assert_refused(run([HEAPLINE, "leaks", "-p", "4194304"]), "4194304")
        with open(self.path("text"), "w", encoding="ascii") as file:
            file.write("no core\n" * 100)
        self.assert_refused(run([HEAPLINE, "leaks", "--core", self.path("text")]), "core file")


if __name__ == "__main__":
    harness.main()
