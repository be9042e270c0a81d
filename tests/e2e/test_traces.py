#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""How traces begin and end, and that their results are recordings like any other."""

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import harness
import schemas
from test_terminal import on_terminal

NOBODY = 65534

# Keeps blocks, and touches pages, until somebody ends it.
TARGET = """
import sys, time
print("ready", flush=True)
kept = []
while True:
    kept.append(bytearray(5000))
    time.sleep(0.001)
"""

# Touches pages that no allocator knows, and calls none.
MAPS = """
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    puts("ready");
    for (;;) {
        memset(mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 1 << 20);
        usleep(20000);
    }
}
"""

# What each verb says once its probes count.
START_NOTES = {"stacks": "counting, by", "pgfault": "watching page faults",
               "page-events": "watching page faults"}


PYTHON = os.path.realpath(shutil.which("python3", path="/usr/bin") or sys.executable)


def trace_command(verb, pid, *options):
    unlimited = ["--max-overhead", "100000"] if verb == "stacks" else []  # begins at once
    return [harness.HEAPLINE, verb, "-p", str(pid), *unlimited, *options]


@functools.cache
def need_traces():
    result = harness.run(trace_command("page-events", os.getpid(), "0.01"))
    if result.status != 0:
        raise unittest.SkipTest(result.stderr.strip())


class Traces(unittest.TestCase):
    def setUp(self):
        need_traces()
        folder = tempfile.TemporaryDirectory(prefix="heapline-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def start_target(self, command=(PYTHON, "-c", TARGET), **options):
        target = subprocess.Popen(command, stdout=subprocess.PIPE, **options)
        self.addCleanup(target.stdout.close)
        self.addCleanup(target.wait)
        self.addCleanup(target.kill)
        self.assertEqual(target.stdout.readline(), b"ready\n")
        return target

    def start_trace(self, verb, pid, *options):
        """A trace that has begun to count."""
        trace = subprocess.Popen(trace_command(verb, pid, "--verbose", *options),
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        self.addCleanup(trace.stdout.close)
        self.addCleanup(trace.stderr.close)
        self.addCleanup(trace.kill)
        for line in trace.stderr:
            if START_NOTES[verb] in line:
                return trace
        raise AssertionError(f"'{verb}' does not start")

    def path(self, name):
        return os.path.join(self.folder, name)

    def test_interrupted_traces_report_what_they_found(self):
        target = self.start_target()
        for verb, number in zip(START_NOTES, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
                                strict=True):
            with self.subTest(verb, signal=number):
                trace = self.start_trace(verb, target.pid, "--json")
                trace.send_signal(number)
                said, _ = trace.communicate(timeout=harness.TIMEOUT_S)
                self.assertEqual(trace.returncode, 0)
                self.assertEqual(json.loads(said)["schema"], f"heapline/{verb}/2")
                schemas.check_text(said)

    def test_a_trace_ends_after_its_duration(self):
        target = self.start_target()
        result = harness.run(trace_command("pgfault", target.pid, "--json", ".25"))
        self.assertEqual(result.status, 0)
        self.assertEqual(result.stderr, "")
        self.assertGreaterEqual(json.loads(result.stdout)["recording"]["duration_ms"], 250)

    def test_a_trace_of_a_process_that_ends_says_so(self):
        for verb in START_NOTES:
            with self.subTest(verb):
                target = self.start_target()
                trace = self.start_trace(verb, target.pid, "--json")
                target.kill()
                target.wait()
                said, notes = trace.communicate(timeout=harness.TIMEOUT_S)
                self.assertEqual(trace.returncode, 0, notes)
                self.assertIn(f"process {target.pid} ended before the trace did", notes)
                json.loads(said)

    def test_results_are_recordings_that_every_view_reads(self):
        target = self.start_target()
        for verb in ("stacks", "pgfault"):
            with self.subTest(verb):
                recording = self.path(f"{verb}.hl")
                result = harness.run(trace_command(verb, target.pid, "-o", recording, "--folded", "0.3"))
                self.assertEqual(result.status, 0, result.stderr)
                self.assertIn(f"in '{recording}'; see 'heapline top {recording}'", result.stderr)
                self.check_views(recording, result.stdout)

    def check_views(self, recording, folded):
        """Each view has the same total as the folded lines that came with the recording."""
        total = sum(int(line.rpartition(" ")[2]) for line in folded.splitlines())
        self.assertGreater(total, 0)
        self.assertEqual(harness.run([harness.HEAPLINE, "folded", recording]).stdout, folded)
        for verb in ("top", "tree", "info", "flame", "lines", "folded"):
            report = harness.report(verb, recording)
            self.assertIn(total, report["total"].values(), verb)
        for verb, name in (("flame", "x.svg"), ("report", "x.html"), ("export", "x.pb.gz"),
                           ("graph", "x.dot"), ("pack", "x.hlpack")):
            result = harness.run([harness.HEAPLINE, verb, "-f", "-o", self.path(name), recording])
            self.assertEqual(result.status, 0, result.stderr)
        self.assertEqual(harness.run([harness.HEAPLINE, "folded", self.path("x.hlpack")]).stdout,
                         folded)
        same = harness.run([harness.HEAPLINE, "diff", recording, recording])
        self.assertEqual(same.status, 0, same.stderr)

    def functions(self, pid):
        """The names of all frames of a trace, none of them from an earlier run."""
        result = harness.run(trace_command("page-events", pid, "--json", "0.2"),
                             env={"HEAPLINE_SYMBOL_CACHE": "off"})
        self.assertEqual(result.status, 0, result.stderr)
        return {name for row in json.loads(result.stdout)["rows"] for name in row["stack"]}

    def test_functions_of_another_mount_namespace_have_their_names(self):
        harness.need_root()
        unshare = harness.need("unshare")
        python = self.path("hidden-python")
        script = 'mount -t tmpfs none "$0" && cp "$1" "$2" && exec "$2" -c "$3"'
        try:
            target = self.start_target([unshare, "-m", "sh", "-c", script, self.folder, PYTHON, python,
                                        TARGET])
        except AssertionError:
            raise unittest.SkipTest("no mount namespace may be made here") from None
        self.assertFalse(os.path.exists(python))
        self.assertIn("_PyEval_EvalFrameDefault", self.functions(target.pid))

    def test_functions_of_a_replaced_program_have_their_names(self):
        python = shutil.copy(PYTHON, self.path("replaced-python"))
        target = self.start_target([python, "-c", TARGET])
        os.unlink(python)
        shutil.copy("/bin/true", python)
        self.assertIn("_PyEval_EvalFrameDefault", self.functions(target.pid))

    def test_recordings_know_the_names_of_programs_that_are_gone(self):
        keep_names = {"HEAPLINE_SYMBOL_CACHE": ""}
        python = shutil.copy(PYTHON, self.path("gone-python"))
        target = self.start_target([python, "-c", TARGET])
        os.unlink(python)
        recording = self.path("x.hl")
        result = harness.run(trace_command("page-events", target.pid, "-o", recording, "0.2"),
                             env=keep_names)
        self.assertEqual(result.status, 0, result.stderr)
        target.kill()
        target.wait()
        folded = harness.run([harness.HEAPLINE, "folded", recording], env=keep_names)
        self.assertIn("_PyEval_EvalFrameDefault", folded.stdout)

    def test_probes_are_named_with_verbose_alone(self):
        target = self.start_target()
        for options in ([], ["--verbose"]):
            command = trace_command("stacks", target.pid, "--no-pager", *options, "0.1")
            written, status = on_terminal(command)
            self.assertEqual(status, 0, written)
            self.assertEqual(" probes: " in written, bool(options), written)

    def test_stacks_says_how_rss_grew_beside_the_blocks(self):
        target = self.start_target()
        result = harness.run(trace_command("stacks", target.pid, "--json", "1"))
        total = json.loads(result.stdout)["total"]
        self.assertGreater(total["rss_growth_bytes"], total["inuse_bytes"] / 2)
        result = harness.run(trace_command("stacks", target.pid, "1"))
        self.assertRegex(result.stdout, r"RSS growth \d.*, of which blocks that were not freed are \d+\.\d%")
        result = harness.run(trace_command("stacks", target.pid, "-a", "-o", self.path("all.hl"), "0.2"))
        self.assertRegex(result.stderr, r", allocated \S+ \S+ by \d+ stack")

    def build_maps(self):
        with open(self.path("maps.c"), "w", encoding="ascii") as file:
            file.write(MAPS)
        subprocess.run([harness.need("gcc"), "-o", self.path("maps"), self.path("maps.c")], check=True)
        return self.path("maps")

    def test_an_empty_result_names_what_grew_and_what_shows_it(self):
        target = self.start_target([self.build_maps()])
        for command in (trace_command("stacks", target.pid, "1"),
                        [harness.HEAPLINE, "attach", "-p", str(target.pid), "-d", "1", "-o", self.path("maps.hl")]):
            result = harness.run(command)
            self.assertRegex(result.stdout + result.stderr,
                             rf"not one call of malloc in process {target.pid} \(maps\), while RSS rose by \d+\.\d MiB: "
                             rf"'heapline pgfault -p {target.pid} 60' shows")
        result = harness.run([harness.HEAPLINE, "top", self.path("maps.hl")])
        self.assertIn(f"'heapline pgfault -p {target.pid} 60'", result.stdout)
        self.assertIn("EMPTY", result.stdout)

    def test_a_program_that_is_run_by_a_link_has_the_name_of_the_link(self):
        os.symlink(self.build_maps(), self.path("server"))
        target = self.start_target([self.path("server")])
        result = harness.run(trace_command("pgfault", target.pid, "0.5"))
        self.assertIn("main (server)", result.stdout)
        self.assertNotIn("(maps)", result.stdout)

    def test_blocks_that_were_freed_again_were_allocated(self):
        source = MAPS.replace("1 << 20", "1 << 17").replace("<stdio.h>", "<stdio.h>\n#include <stdlib.h>") \
            .replace("usleep(", "void *volatile block = malloc(100); free(block); usleep(")
        with open(self.path("freed.c"), "w", encoding="ascii") as file:
            file.write(source)
        subprocess.run([harness.need("gcc"), "-o", self.path("freed"), self.path("freed.c")], check=True)
        target = self.start_target([self.path("freed")])
        result = harness.run(trace_command("stacks", target.pid, "1"))
        self.assertIn("everything allocated during the trace was freed", result.stdout)
        self.assertNotIn("not one call of malloc", result.stdout)
        self.assertRegex(result.stdout, rf"at most 0\.0 MiB from malloc in process {target.pid} \(freed\), while RSS "
                                        rf"rose by \d+\.\d MiB: 'heapline pgfault -p {target.pid} 60' shows")

    def test_php_is_told_of_its_own_allocator(self):
        php = harness.need("php")
        script = 'echo "ready\n"; for ($kept = [];; usleep(9000)) $kept[] = str_repeat("x", 300000);'
        target = self.start_target([php, "-r", script])
        result = harness.run(trace_command("stacks", target.pid, "1"))
        self.assertIn(f"'heapline attach -p {target.pid}' records the allocator of PHP", result.stdout)
        result = harness.run([harness.HEAPLINE, "heap", "-p", str(target.pid)])
        self.assertIn(f"'heapline attach -p {target.pid} -d 60' records who allocates and keeps it", result.stdout)

    def test_luajit_is_told_of_its_own_allocator(self):
        luajit = harness.need("luajit")
        script = ('io.stdout:setvbuf("no") print("ready") local ffi = require("ffi") ffi.cdef("int usleep(unsigned)") '
                  'local kept = {} while true do for i = 1, 1000 do kept[#kept + 1] = {i} end ffi.C.usleep(2000) end')
        target = self.start_target([luajit, "-e", script])
        result = harness.run(trace_command("stacks", target.pid, "1"))
        self.assertIn(f"'heapline attach -p {target.pid}' records the allocator of LuaJIT", result.stdout)
        result = harness.run([harness.HEAPLINE, "heap", "-p", str(target.pid)])
        self.assertIn(f"'heapline attach -p {target.pid} -d 60' records the allocator of LuaJIT", result.stdout)

    def test_force_without_a_recording_means_folded(self):
        target = self.start_target()
        for verb, options in (("stacks", ["-f"]), ("stacks", ["-af"]), ("pgfault", ["-f"])):
            result = harness.run(trace_command(verb, target.pid, *options, "0.3"))
            self.assertEqual(result.status, 0, result.stderr)
            self.assertRegex(result.stdout, r"(?m)\A(.+;.+ -?\d+\n)+\Z")

    def test_a_recording_is_replaced_when_forced_alone(self):
        target = self.start_target()
        command = trace_command("page-events", target.pid, "-o", self.path("x.hl"), "0.1")
        self.assertEqual(harness.run(command).status, 0)
        refused = harness.run(command)
        self.assertEqual(refused.status, 1)
        self.assertIn("use --force to replace a recording", refused.stderr)
        self.assertEqual(harness.run([*command, "--force"]).status, 0)

    def test_a_trace_that_fails_leaves_no_recording(self):
        harness.need_other_user(NOBODY)
        os.chmod(self.folder, 0o777)
        result = harness.run(trace_command("pgfault", 1, "-o", self.path("x.hl"), "1"), user=NOBODY,
                             group=NOBODY, extra_groups=[])
        self.assertEqual(result.status, 1)
        self.assertFalse(os.path.exists(self.path("x.hl")))

    def test_two_capabilities_are_enough_for_ones_own_processes(self):
        harness.need_other_user(NOBODY)
        setpriv = harness.need("setpriv")
        if not os.path.exists("/usr/bin/python3"):
            raise unittest.SkipTest("an ordinary user needs /usr/bin/python3")
        target = self.start_target(user=NOBODY, group=NOBODY, extra_groups=[])
        sets = [f"--{kind}=-all,+bpf,+perfmon" for kind in ("inh-caps", "ambient-caps", "bounding-set")]
        user = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        for verb in START_NOTES:
            with self.subTest(verb):
                result = harness.run([setpriv, *user, *sets,
                                      *trace_command(verb, target.pid, "--json", "0.2")])
                if "CAP_SYS_ADMIN" in result.stderr:
                    raise unittest.SkipTest(result.stderr.strip())
                self.assertEqual(result.status, 0, result.stderr)
                self.assertEqual(json.loads(result.stdout)["schema"], f"heapline/{verb}/2")


if __name__ == "__main__":
    harness.main()
