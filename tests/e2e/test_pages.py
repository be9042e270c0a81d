# SPDX-License-Identifier: BSD-2-Clause
"""`pgfault` and `page-events` against programs that gain and lose pages in every way there is.

What the kernel says of Rss is the truth, to the page. Each program waits before and after what it
does, so that nothing moves while it is looked at.
"""

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import unittest

import harness
import schemas

CANNOT = 77  # the exit status of a scenario that this kernel cannot play
OTHER_PAGES = 160  # code, stacks and the C library's own: more than a scenario needs
OF_UNKNOWN_SIZE = ("churn", "lock_all", "threads")  # whose own pages nobody can tell beforehand
START_NOTE = "watching page faults"


def rollup(pid):
    """What smaps_rollup says, in pages."""
    figures = {}
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        for line in file.readlines()[1:]:
            key, _, value = line.partition(":")
            figures[key] = int(value.split()[0]) * 1024 // os.sysconf("SC_PAGESIZE")
    return figures


class Target:
    """A program of the tests that waits for a line before it starts, and another before it ends."""

    def __init__(self, name, *arguments):
        self.process = subprocess.Popen([harness.program(name), *arguments], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self.wait_for("ready")

    def wait_for(self, word):
        line = self.process.stdout.readline()
        if not line and self.process.wait() == CANNOT:
            raise unittest.SkipTest("this kernel cannot")
        if line != word + "\n":
            raise AssertionError(f"'{word}' expected, '{line}' said")

    def say(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def go(self):
        self.before = rollup(self.pid)  # probes have been placed, which may take a page
        self.say()
        self.wait_for("done")
        self.after = rollup(self.pid)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def growth(self, key="Rss"):
        return self.after[key] - self.before[key]


class Trace:
    """A trace of heapline's that goes on; it is started when this is."""

    def __init__(self, command, start_note):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.notes = []
        for line in self.process.stderr:
            self.notes.append(line)
            if start_note in line:
                return
        raise AssertionError("does not start: " + "".join(self.notes[-5:]))

    def end(self):
        """Its output, once it has ended."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        output, notes = self.process.communicate(timeout=harness.TIMEOUT_S)
        self.notes.append(notes)
        if self.process.returncode != 0:
            raise AssertionError(f"fails: {''.join(self.notes[-5:])}")
        schemas.check_text(output)
        return output


@functools.cache
def need_bpf():
    """Skips where programs may not be loaded, with the reason that heapline gives."""
    harness.need_root()
    result = harness.run([harness.HEAPLINE, "page-events", "-p", str(os.getpid()), "--json", "0.01"])
    if result.status != 0:
        raise unittest.SkipTest(result.stderr.strip())


def scenarios():
    result = harness.run([harness.program("pages"), "--list"])
    return json.loads(result.stdout)


class TestCase(harness.TestCase):
    def setUp(self):
        super().setUp()
        need_bpf()

    @contextlib.contextmanager
    def target(self, name, *arguments):
        target = Target(name, *arguments)
        try:
            yield target
        finally:
            target.end()

    def pgfault(self, target, *options, verb="pgfault", name="test.hl"):
        """A started trace that keeps a recording."""
        trace = Trace([harness.HEAPLINE, verb, "-p", str(target.pid), "--verbose", "--json",
                       "--force", "-o", self.path(name), *options], START_NOTE)
        self.addCleanup(trace.process.wait)
        self.addCleanup(trace.process.kill)
        self.addCleanup(trace.process.stdout.close)
        self.addCleanup(trace.process.stderr.close)
        self.addCleanup(trace.process.stdin.close)
        return trace

    def report(self, trace):
        return json.loads(trace.end())


def pages_under(report, function):
    """Pages of the stacks on which a function stands."""
    return sum(row["objects"] for row in report["rows"] if function in row["stack"])


class Scenarios(TestCase):
    def check_sum(self, report, target):
        self.assertEqual(report["total"]["pages"], target.growth())
        self.assertEqual(report["total"]["rss_growth_pages"], target.growth())
        self.assertEqual(report["total"]["anon_pages"], target.growth("Anonymous"))
        self.assertEqual(report["total"]["shmem_pages"], target.growth("Pss_Shmem"))
        self.assertEqual(sum(row["objects"] for row in report["rows"]), report["total"]["pages"])

    def check_stacks(self, report, scenario):
        wanted = 0
        for site in scenario["sites"]:
            wanted += site["pages"]
            with self.subTest(site["function"]):
                self.assertGreaterEqual(pages_under(report, site["function"]), site["pages"])
        self.assertGreaterEqual(report["total"]["released_pages"], scenario["released"])
        self.assertLessEqual(report["total"]["unattributed_pages"], scenario["unattributed"] + 3)
        self.assertEqual(report["total"]["lost_faults"], 0)
        if scenario["name"] not in OF_UNKNOWN_SIZE:
            total = report["total"]
            attributed = (total["pages"] + total["released_pages"] -
                          total["unattributed_pages"])
            self.assertLessEqual(attributed, wanted + OTHER_PAGES)

    def test_pages_equal_the_growth_of_rss_and_go_to_who_brought_them_in(self):
        for scenario in scenarios():
            with self.subTest(scenario["name"]), self.target("pages", scenario["name"]) as target:
                trace = self.pgfault(target)
                target.go()
                report = self.report(trace)
                self.check_sum(report, target)
                self.check_stacks(report, scenario)


class Kinds(TestCase):
    def test_one_kind_of_pages_is_shown_alone(self):
        for kind, growth in (("anon", lambda t: t.growth("Anonymous")),
                             ("shmem", lambda t: t.growth("Pss_Shmem")),
                             ("file", lambda t: t.growth() - t.growth("Anonymous"))):
            name = "shared_read_then_half_written" if kind == "shmem" else "old_file_written"
            with self.subTest(kind), self.target("pages", name) as target:
                trace = self.pgfault(target, "--kind", kind)
                target.go()
                report = self.report(trace)
                self.assertEqual(report["total"]["pages"], growth(target))
                self.assertEqual(sum(row["objects"] for row in report["rows"]),
                                 report["total"]["pages"])
                self.assertEqual(report["total"]["rss_growth_pages"], target.growth())


class Faults(TestCase):
    def test_each_fault_is_counted_for_its_stack(self):
        for name, site, faults in (("anon", "write_site", 4096),
                                   ("discard_in_rounds", "write_site", 4096 + 3 * 3072),
                                   ("fork_and_write_new", "write_again_site", 4096),
                                   ("read_into_fresh", "read_call_site", 4096)):
            with self.subTest(name), self.target("pages", name) as target:
                trace = self.pgfault(target, verb="page-events")
                before = self.faults_of(target.pid)
                target.go()
                counted = self.faults_of(target.pid) - before
                report = self.report(trace)
                self.assertEqual(sum(row["objects"] for row in report["rows"]), report["total"]["faults"])
                # The kernel may need two goes for a fault, and counts one; code may fault as well.
                self.assertIn(pages_under(report, site), range(faults, faults + 10))
                self.assertIn(report["total"]["faults"], range(counted, counted + 10))

    @staticmethod
    def faults_of(pid):
        """Minor and major ones."""
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            fields = file.read().rpartition(")")[2].split()
            return int(fields[7]) + int(fields[9])


class Live(TestCase):
    def test_figures_of_a_program_that_goes_on_are_of_one_moment(self):
        with self.target("pages", "churn_on") as target:
            target.go()
            trace = self.pgfault(target)
            self.wait_for_cpu(target.pid)
            report = self.report(trace)
            total = report["total"]
            self.assertLessEqual(abs(total["pages"] - total["rss_growth_pages"]), 2)
            self.assertEqual(sum(row["objects"] for row in report["rows"]),
                             report["total"]["pages"])

    def wait_for_cpu(self, pid):
        """Until the target has used a tenth of a second more."""
        def used():
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                return sum(map(int, file.read().rpartition(")")[2].split()[11:13]))
        enough = used() + 10
        harness.wait_until(lambda: used() >= enough, "the target to run")


class ToolCase(TestCase):
    """Tests that say when page_tool has to look, or what it has to do without."""

    def tool(self, target, *arguments, within=()):
        """page_tool, started."""
        shutil.rmtree(self.path("tool.hl"), ignore_errors=True)
        trace = Trace([*within, harness.program("page_tool"), str(target.pid),
                       self.path("tool.hl"), *arguments], START_NOTE)
        for stream in (trace.process.stdin, trace.process.stdout, trace.process.stderr):
            self.addCleanup(stream.close)
        self.assertEqual(trace.process.stdout.readline(), "started\n")
        return trace

    def look(self, trace):
        trace.process.stdin.write("\n")
        trace.process.stdin.flush()
        self.assertEqual(trace.process.stdout.readline(), "looked\n")

    def finish(self, trace):
        trace.process.stdin.close()
        trace.process.stdin = None
        notes = trace.process.stderr.read()
        self.assertEqual(trace.process.wait(), 0, notes)
        return harness.info(self.path("tool.hl"))

class Ends(ToolCase):
    def test_what_a_process_had_shortly_before_it_was_killed_is_told(self):
        with self.target("pages", "anon") as target:
            trace = self.tool(target)
            target.go()
            self.look(trace)
            target.process.kill()
            target.process.wait()
            info = self.finish(trace)
            self.assertEqual(info["total"]["pages"], target.growth())
            self.assertIn("the process ended before the trace ended", info["recording"]["warnings"][0])
            stacks = harness.folded(self.path("tool.hl"), "inuse", "objects")
            self.assertIn(harness.under(stacks, "write_site"), range(4096, 4096 + OTHER_PAGES))

    def test_nothing_is_told_of_a_process_that_was_killed_at_once(self):
        with self.target("pages", "anon") as target:
            trace = self.tool(target)
            target.go()
            target.process.kill()
            target.process.wait()
            info = self.finish(trace)
            self.assertEqual(info["total"]["pages"], 0)
            self.assertGreaterEqual(info["total"]["faults"], 4096)
            self.assertIn("the process ended before the trace ended", info["recording"]["warnings"][0])

    def test_a_trace_ends_when_its_target_is_killed_and_says_so(self):
        with self.target("pages", "anon") as target:
            trace = self.pgfault(target)
            target.go()
            target.process.kill()
            target.process.wait()
            output, _ = trace.process.communicate(timeout=harness.TIMEOUT_S)
            self.assertEqual(trace.process.returncode, 0)
            self.assertIn("ended before", " ".join(json.loads(output)["recording"]["warnings"]))

    def test_a_trace_ends_when_its_target_becomes_another_program_and_says_so(self):
        with self.target("pages", "become_another") as target:
            trace = self.pgfault(target)
            target.say()
            target.wait_for("ready")  # the other program is there
            output, _ = trace.process.communicate(timeout=harness.TIMEOUT_S)
            self.assertEqual(trace.process.returncode, 0)
            report = json.loads(output)
            self.assertIn("became another program", " ".join(report["recording"]["warnings"]))
            self.assertLess(report["total"]["faults"], 4096 + OTHER_PAGES)  # none of the other program

    def test_processes_that_the_target_begins_are_told_of(self):
        for name, expected in (("fork_and_write_new", ["it started 1 process, whose pages are not "
                                                       "counted"]),
                               ("child_of_vfork", [])):
            with self.subTest(name), self.target("pages", name) as target:
                trace = self.pgfault(target)
                target.go()
                self.assertEqual(self.report(trace)["recording"]["warnings"], expected)

    def test_nothing_is_left_in_the_kernel_when_heapline_is_killed(self):
        with self.target("pages", "anon") as target:
            trace = self.pgfault(target)
            programs = self.programs_of(trace.process.pid)
            self.assertTrue(programs)
            trace.process.kill()
            trace.process.wait()
            harness.wait_until(lambda: not programs & self.programs_loaded(), "programs to go")
            target.go()

    def programs_of(self, pid):
        """Ids of the BPF programs that a process holds."""
        ids = set()
        for name in os.listdir(f"/proc/{pid}/fdinfo"):
            with contextlib.suppress(OSError), \
                    open(f"/proc/{pid}/fdinfo/{name}", encoding="ascii") as file:
                ids |= {int(line.split()[1]) for line in file if line.startswith("prog_id:")}
        return ids

    def programs_loaded(self):
        result = harness.run([harness.need("bpftool"), "prog", "list", "--json"])
        return {program["id"] for program in json.loads(result.stdout)}


class OtherKernels(ToolCase):
    """What is not there is done in another way; or left out, and said."""

    def trace(self, name, *arguments, within=()):
        """Figures, sentences and stacks of a trace whose sum is right."""
        with self.target("pages", name) as target:
            trace = self.tool(target, *arguments, within=within)
            target.go()
            info = self.finish(trace)
            stacks = harness.folded(self.path("tool.hl"), "inuse", "objects")
            self.assertEqual(info["total"]["pages"], target.growth())
            return info["total"], info["recording"]["warnings"], stacks

    def check_sources(self, *arguments, within=()):
        for name, site in (("huge", "write_site"), ("read_into_fresh", "read_call_site")):
            with self.subTest(name):
                _, warnings, stacks = self.trace(name, *arguments, within=within)
                self.assertIn(harness.under(stacks, site), range(4096, 4096 + OTHER_PAGES))
                self.assertEqual(warnings, [])

    def test_page_faults_come_by_plain_tracepoints_where_typed_ones_are_refused(self):
        mount = ["unshare", "--mount", "sh", "-c",
                 'mount -t tracefs tracefs /sys/kernel/tracing && exec "$@"', "sh"]
        harness.need("unshare")
        result = harness.run([*mount, "test", "-d", "/sys/kernel/tracing/events/exceptions"])
        if result.status != 0:
            raise unittest.SkipTest("no tracepoints of page faults: " + result.stderr.strip())
        self.check_sources("tracepoint", within=mount)

    def test_page_faults_come_by_a_perf_event_where_there_are_no_tracepoints(self):
        self.check_sources("perf")

    def test_pagemap_is_read_where_it_cannot_be_scanned(self):
        for name in ("zero_page_then_half_written", "shared", "threads",
                     "huge_zero_page_then_half_written", "file_read_then_half_written"):
            with self.subTest(name):
                figures, warnings, _ = self.trace(name, "no-scan")
                self.assertLessEqual(figures["unattributed_pages"], 3)
                self.assertEqual(warnings, [])

    def test_pages_that_calls_brought_in_have_no_stack_where_probes_are_refused(self):
        for name in ("populate", "moved"):
            with self.subTest(name):
                figures, warnings, _ = self.trace(name, "no-calls")
                self.assertGreater(figures["unattributed_pages"], 3000)
                self.assertIn("[no fault seen]", warnings[0])

    def test_faults_that_found_no_room_are_counted_and_the_sum_is_right_all_the_same(self):
        figures, _, stacks = self.trace("anon", "ring=65536")
        records = 65536 // 32
        self.assertGreaterEqual(figures["lost_faults"], 4096 - records)
        self.assertGreater(harness.under(stacks, "write_site"), records - 100)
        self.assertGreaterEqual(figures["unattributed_pages"], 4096 - records)


if __name__ == "__main__":
    harness.main()
