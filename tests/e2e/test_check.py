#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`heapline check`: limits are crossed exactly where they should be, and reports say by whom."""

import glob
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import unittest
import xml.etree.ElementTree

import harness
from harness import HEAPLINE, need, program, run

GUIDE = os.path.join(harness.SOURCES, "../../docs/check.md")

# grows_much keeps 103 blocks of 1009 bytes in run 1, and 211 of them in run 2.
MUCH = {1: 103 * 1009, 2: 211 * 1009}

FAILS = "import sys; sys.exit(7)"
STEADY = """
import time
kept = []
for _ in range(200):
    kept.append(bytes(20000))
    time.sleep(0.01)
"""

SHOP = """
#include <stdlib.h>
int main(void) {
    for (int i = 0; i < 3; i++) {
        volatile char *block = malloc(BYTES);
        block[0] = 1;
    }
    return 0;
}
"""

# Loses 10 blocks of 1000 bytes, in a child too, beside a thread that runs on; ends as its words say.
LOSES = """
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static void *volatile kept;
static __attribute__((noinline)) void lose(void) {
    for (int i = 0; i < 10; i++) {
        volatile char *block = malloc(1000);
        block[0] = 1;
    }
}
static void *run(void *unused) {
    volatile char *block = malloc(555);
    for (;;)
        block[0]++;
    return unused;
}
int main(int count, char **words) {
    pthread_t thread;
    char byte;
    kept = malloc(77);
    for (int i = 1; i < count; i++) {
        if (!strcmp(words[i], "lose"))
            lose();
        if (!strcmp(words[i], "thread"))
            pthread_create(&thread, NULL, run, NULL);
        if (!strcmp(words[i], "fork") && fork())
            wait(NULL);
        if (!strcmp(words[i], "read") && read(0, &byte, 1) < 0)
            return 1;
        if (!strcmp(words[i], "at-once"))
            _exit(0);
    }
    return 0;
}
"""


class Check(harness.TestCase):
    def check(self, *words, **options):
        return run([HEAPLINE, "check", *words], **options)

    def verdicts(self, *words):
        result = self.check("--json", *words)
        self.assertIn(result.status, (0, 3), result.stderr)
        rows = json.loads(result.stdout)["rows"]
        self.assertEqual(result.status, 3 if any(row["crossed"] for row in rows) else 0)
        return rows

    def record_run(self, number):
        name = f"run{number}.hl"
        self.record_well([program("growth"), str(number)], name=name)
        return self.path(name)

    def test_a_limit_is_crossed_by_one_byte_more_and_not_before(self):
        recording = self.record_run(1)
        total = harness.info(recording)["total"]
        exact = {"peak": total["peak_bytes"], "inuse-at-end": total["inuse_bytes"],
                 "allocs": total["alloc_objects"], "leak-per-stack": MUCH[1]}
        for limit, figure in exact.items():
            for most, is_crossed in ((figure, False), (figure - 1, True)):
                with self.subTest(limit=limit, most=most):
                    row, = self.verdicts(f"--{limit}", str(most), recording)
                    self.assertEqual((row["figure"], row["most"], row["crossed"]),
                                     (figure, most, is_crossed))

    def test_the_stack_to_blame_is_named_with_its_share(self):
        recording = self.record_run(1)
        row, = self.verdicts("--inuse-at-end", "1K", recording)
        self.assertRegex(row["stack"], r"^allocate < grows_much < main")
        self.assertEqual(row["stack_figure"], MUCH[1])
        result = self.check("--inuse-at-end", "1K", recording)
        self.assertEqual(result.status, 3)
        self.assertRegex(result.stdout, r"\nCROSSED +inuse-at-end .*1\.0 KiB +allocate < grows_much")
        self.assertIn(f"see 'heapline top {recording}'", result.stdout)

    def test_a_focus_leaves_out_other_stacks(self):
        recording = self.record_run(1)
        row, = self.verdicts("--inuse-at-end", "0", "--focus", "^shrinks$", recording)
        self.assertEqual((row["figure"], row["focus"]), (53 * 307, "^shrinks$"))

    def test_a_baseline_names_what_grew(self):
        before, after = self.record_run(1), self.record_run(2)
        rows = self.verdicts("--baseline", before, after)
        self.assertEqual([row["limit"] for row in rows], ["peak", "inuse-at-end", "allocs"])
        for row in rows:
            self.assertTrue(row["crossed"] and row["baseline"], row)
            self.assertRegex(row["stack"], "^allocate < grows_much")
        self.assertEqual(rows[1]["stack_figure"], MUCH[2] - MUCH[1])
        allowed = self.verdicts("--baseline", before, "--allow", "200%", after)
        self.assertEqual([row["crossed"] for row in allowed], [False] * 3)
        self.assertEqual([row["crossed"] for row in self.verdicts("--baseline", before, before)],
                         [False] * 3)

    def test_a_file_has_limits_of_parts(self):
        recording = self.record_run(1)
        with open(self.path("limits"), "w", encoding="utf-8") as file:
            file.write('[tool.other]\npeak = 1\n[check] # all\n peak = "200M"\nallocs = 1e6\n'
                       "[check.parser]\nfocus = '^grows_' # \"both\"\ninuse-at-end = 0\n")
        rows = self.verdicts("--limits", self.path("limits"), recording)
        self.assertEqual([(row["limit"], row["most"], row.get("title"), row.get("focus"))
                          for row in rows],
                         [("peak", 200 << 20, None, None), ("allocs", 10**6, None, None),
                          ("inuse-at-end", 0, "parser", "^grows_")])
        self.assertEqual(rows[2]["figure"], MUCH[1] + 7 * 11)
        shutil.copy(self.path("limits"), self.path(".heapline.toml"))
        result = self.check(recording, cwd=self.path(""))
        self.assertEqual(result.status, 3)
        self.assertIn("inuse-at-end (parser)", result.stdout)

    def test_a_file_that_is_wrong_is_refused_with_its_line(self):
        recording = self.record_run(1)
        for text, line, reason in (
                ("[check]\npeek = 1\n", 2, "there is no limit 'peek'"),
                ("[check]\n\npeak = many\n", 3, "a limit is not a number: 'many'"),
                ("[check\n", 1, "no ']' ends '[check'"),
                ("[check]\npeak\n", 2, "no '=' stands in 'peak'"),
                ("[check]\npeak = \"1\n", 2, "quotes or escapes are wrong in the value of 'peak'"),
                ("[check]\nallow = lots\n", 2, "no percentage is 'lots'"),
                ("[check]\npeak = 1\nallocs = 1\npeak = 2\n", 4, "the table has two values of 'peak'"),
                ("[check.]\npeak = 1\n", 1, "no name stands in '[check.'")):
            with self.subTest(text=text):
                with open(self.path("limits"), "w", encoding="utf-8") as file:
                    file.write(text)
                result = self.check("--limits", self.path("limits"), recording)
                self.assertEqual(result.status, 1)
                self.assertIn(f"line {line} of '{self.path('limits')}': {reason}", result.stderr)

    def test_a_command_is_run_and_its_status_is_kept(self):
        tmp = self.path("tmp")
        os.mkdir(tmp)
        run_1 = [program("growth"), "1"]
        good = self.check("--peak", "1G", "--", *run_1, env={"TMPDIR": tmp})
        self.assertEqual(good.status, 0, good.stderr)
        self.assertEqual(json.loads(good.stdout)["grows_much"], [MUCH[1], 103])
        self.assertIn("no limit of 1 was crossed", good.stderr)
        crossed = self.check("--peak", "1K", "--", *run_1, env={"TMPDIR": tmp})
        self.assertEqual(crossed.status, 3)
        self.assertIn("'--recording NAME.hl' keeps the recording", crossed.stderr)
        failed = self.check("--peak", "1G", "--", sys.executable, "-c", FAILS, env={"TMPDIR": tmp})
        self.assertEqual(failed.status, 7, failed.stderr)
        missing = self.check("--peak", "1G", "--", "/nowhere/program", env={"TMPDIR": tmp})
        self.assertEqual(missing.status, 127)
        self.assertEqual(missing.stderr.count("heapline:"), 1, missing.stderr)
        self.assertEqual(os.listdir(tmp), [])
        kept = self.check("--peak", "1G", "--recording", self.path("kept.hl"), "--", *run_1)
        self.assertEqual(kept.status, 0, kept.stderr)
        self.assertEqual(harness.info(self.path("kept.hl"))["recording"]["processes"], 1)

    def test_a_signal_leaves_nothing_behind(self):
        tmp = self.path("tmp")
        os.mkdir(tmp)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(number), subprocess.Popen(
                    [HEAPLINE, "check", "--peak", "1G", "--", "sleep", "100"],
                    env=dict(os.environ, TMPDIR=tmp), stderr=subprocess.PIPE) as check:
                harness.wait_until(lambda: glob.glob(f"{tmp}/*/check.hl/*"), "the recording")
                recorder, = harness.children_of(check.pid)
                harness.wait_until(lambda: harness.children_of(recorder), "the program")
                sleeper, = harness.children_of(recorder)
                check.send_signal(number)
                check.communicate(timeout=harness.TIMEOUT_S)
                self.assertEqual(check.returncode, -number)
                self.assertEqual(os.listdir(tmp), [])
                self.assertFalse(os.path.exists(f"/proc/{sleeper}"))

    def test_a_damaged_recording_is_no_success(self):
        recording = self.record_run(1)
        self.assertEqual(self.check("--peak", "1G", recording).status, 0)
        damaged = self.path("damaged.hl")
        run(harness.record_command(damaged, [program("overwrite"), "objects"]))
        result = self.check("--peak", "1G", "--json", "--junit", self.path("d.xml"), damaged)
        self.assertEqual(result.status, 1)
        self.assertTrue(json.loads(result.stdout)["damaged"])
        self.assertIn("record it again", result.stderr)
        suite = xml.etree.ElementTree.parse(self.path("d.xml")).getroot()[0]
        self.assertEqual((suite.get("tests"), suite.get("errors")), ("2", "1"))
        self.assertEqual(self.check("--allocs", "0", damaged).status, 3)

    def test_an_interrupted_recording_is_no_success(self):
        recording, sleep = self.path("killed.hl"), "import time; time.sleep(60)"
        recorder = subprocess.Popen(harness.record_command(recording, [sys.executable, "-c", sleep]))
        try:
            harness.wait_until(lambda: (said := run([HEAPLINE, "info", "--json", recording])).status == 0 and
                               json.loads(said.stdout)["total"]["alloc_objects"], "a save")
        finally:
            sleeper, = harness.children_of(recorder.pid)
            recorder.kill()
            recorder.wait()
            os.kill(sleeper, signal.SIGKILL)
        result = self.check("--peak", "1G", "--json", "--junit", self.path("k.xml"), recording)
        self.assertEqual(result.status, 1)
        self.assertEqual([json.loads(result.stdout)[name] for name in ("interrupted", "damaged")], [True, False])
        self.assertIn(f"'{recording}' was interrupted", result.stderr)
        suite = xml.etree.ElementTree.parse(self.path("k.xml")).getroot()[0]
        self.assertEqual((suite.get("tests"), suite.get("errors")), ("2", "1"))
        self.assertEqual(self.check("--allocs", "0", recording).status, 3)

    def test_a_figure_that_rounds_to_its_limit_is_exact(self):
        recording = self.record_run(1)
        peak = harness.info(recording)["total"]["peak_bytes"]
        result = self.check("--peak", str(peak - 1), "--markdown", self.path("exact.md"), recording)
        self.assertIn(f"{peak:,} B  {peak - 1:,} B", result.stdout)
        with open(self.path("exact.md"), encoding="utf-8") as file:
            self.assertIn(f"| {peak:,} B | {peak - 1:,} B |", file.read())

    def test_a_damaged_baseline_is_no_success(self):
        recording, damaged = self.record_run(1), self.path("damaged.hl")
        words = "--focus", "^overwritten_site", recording
        self.assertEqual(self.check("--baseline", recording, *words).status, 0)
        run(harness.record_command(damaged, [program("overwrite"), "objects"]))
        result = self.check("--baseline", damaged, *words)
        self.assertEqual(result.status, 1, result.stdout + result.stderr)
        self.assertIn(f"'{damaged}' is damaged", result.stderr)

    def test_a_damaged_log_is_no_success(self):
        # Most of the log is of the later half, so that the damage leaves intervals before it.
        command = [sys.executable, "-c", "import time; time.sleep(0.3); import asyncio, decimal, json, unittest.mock; "
                                         "time.sleep(0.3)"]
        recording = self.record_well(command, mode="log-fast")[1]
        self.assertEqual(self.check("--rss", "1G", recording).status, 0)
        log = max(glob.glob(os.path.join(recording, "*.hll")), key=os.path.getsize)
        with open(log, "r+b") as file:
            # What is inside is read only where there is no index.
            for place in os.path.getsize(log) // 2, os.path.getsize(log) - 64:
                file.seek(place)
                file.write(b"\xa5" * 64)
        result = self.check("--rss", "1G", recording)
        self.assertEqual(result.status, 1, result.stdout + result.stderr)
        self.assertIn(f"'{recording}' is damaged", result.stderr)
        self.assertEqual(self.check("--peak", "1G", recording).status, 0)
        self.assertEqual(self.check("--rss", "1K", recording).status, 3)

    def test_a_recording_is_opened_once(self):
        need("strace")
        recording = self.record_run(1)
        result = run(["strace", "-f", "-e", "trace=openat", "-o", self.path("calls"), HEAPLINE, "check",
                      "--peak", "1G", "--allocs", "1G", "--inuse-at-end", "1G", "--leak-per-stack", "1G",
                      recording])
        self.assertEqual(result.status, 0, result.stderr)
        with open(self.path("calls"), encoding="utf-8") as calls:
            self.assertEqual(len(re.findall(r'"[^"]*recording\.hlm"', calls.read())), 1)

    def test_what_leaks_finds_has_a_limit(self):
        command = [HEAPLINE, "record", "-q", "-o", self.path("r.hl"), "--", program("leaks"), "list"]
        with harness.Waiting(command) as started:
            pid, = harness.children_of(started.pid)
            found = run([HEAPLINE, "leaks", "-p", str(pid), "-o", self.path("lost.hl")])
            self.assertEqual(found.status, 0, found.stderr)
        row, = self.verdicts("--lost", "0", self.path("lost.hl"))
        self.assertTrue(row["crossed"] and row["figure"] > 0)
        self.assertIn("plant_list", row["stack"])
        row, = self.verdicts("--lost", str(row["figure"]), "--junit", self.path("l.xml"),
                             self.path("lost.hl"))
        self.assertFalse(row["crossed"])
        suite = xml.etree.ElementTree.parse(self.path("l.xml")).getroot()[0]
        self.assertIsNotNone(suite.find("testcase[@name='lost']"))
        self.assert_refused(self.check("--lost", "0", self.record_run(1)), "'heapline leaks -p PID")

    def build_loses(self):
        with open(self.path("loses.c"), "w", encoding="ascii") as file:
            file.write(LOSES)
        subprocess.run([harness.need("gcc"), "-g", "-O1", "-pthread", "-o", self.path("loses"), self.path("loses.c")],
                       check=True)
        return self.path("loses")

    def verdict_of_command(self, limit, *words):
        report = self.path("verdict.json")
        result = self.check("--json", "--force", "-o", report, "--lost", *limit, "--", *words)
        with open(report, encoding="utf-8") as file:
            row, = json.load(file)["rows"]
        self.assertEqual(result.status, 3 if row["crossed"] else 0, result.stderr)
        return row

    def test_what_a_command_loses_has_a_limit(self):
        loses = self.build_loses()
        for words, lost in (([], 0), (["lose"], 10000), (["thread", "lose"], 10000), (["fork", "lose"], 20000),
                            (["lose", "thread"], 10000)):
            for _ in range(3):  # always the same
                with self.subTest(words=words):
                    row = self.verdict_of_command(["0"], loses, *words)
                    self.assertEqual(row["figure"], lost)
                    self.assertEqual("lose < main" in row.get("stack", ""), lost > 0)
        row = self.verdict_of_command(["10000"], loses, "lose")
        self.assertFalse(row["crossed"])
        row = self.verdict_of_command(["0", "--focus", "no_such_function"], loses, "lose")
        self.assertEqual(row["figure"], 0)
        kept = self.path("kept.hl")
        self.check("--lost", "0", "--recording", kept, "--", loses, "lose")
        row, = self.verdicts("--lost", "0", kept)
        self.assertEqual(row["figure"], 10000)
        self.assertEqual(harness.info(self.path("kept.lost-0.hl"))["rows"][0]["end"], "ended")
        result = self.check("--lost", "0", "--", loses, "lose", "at-once")
        self.assertEqual(result.status, 1)
        self.assertIn("nobody has looked for its lost blocks", result.stderr)

    def test_who_looks_for_lost_blocks_does_not_hold_the_program(self):
        command = [HEAPLINE, "record", "-q", "--leaks", "-o", self.path("r.hl"), "--", self.build_loses(), "lose", "read"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as recorder:
            pid, = harness.wait_until(lambda: harness.children_of(recorder.pid), "the program")
            harness.wait_until(lambda: os.path.exists(self.path("r.hl")) and
                               "lose" in run([HEAPLINE, "top", self.path("r.hl")]).stdout, "a save")
            ended = os.pidfd_open(pid)
            recorder.kill()
            recorder.stdin.close()
            self.assertTrue(select.select([ended], [], [], harness.TIMEOUT_S)[0])
            os.close(ended)

    def test_growth_and_rss_are_measured_over_time(self):
        result = self.check("--json", "--growth", "1M/min", "--rss", "1K", "-o", self.path("c.json"),
                            "--", sys.executable, "-c", STEADY)
        self.assertEqual(result.status, 3, result.stderr)
        with open(self.path("c.json"), encoding="utf-8") as file:
            growth, rss = json.load(file)["rows"]
        self.assertTrue(growth["crossed"] and rss["crossed"])
        self.assertGreater(rss["figure"], 200 * 20000)
        recording = self.record_run(1)
        result = self.check("--growth", "1M/min", recording)
        self.assertEqual(result.status, 1)
        self.assertIn("'heapline record --mode log-fast' keeps one", result.stderr)

    def test_verdicts_are_written_for_servers_and_pull_requests(self):
        recording = self.record_run(1)
        result = self.check("--peak", "1K", "--allocs", "1M", "--junit", self.path("j.xml"),
                            "--markdown", self.path("m.md"), recording)
        self.assertEqual(result.status, 3)
        suite = xml.etree.ElementTree.parse(self.path("j.xml")).getroot()[0]
        self.assertEqual((suite.get("tests"), suite.get("failures")), ("2", "1"))
        failure = suite.find("testcase[@name='peak']/failure")
        self.assertIn("at most 1.0 KiB", failure.get("message"))
        self.assertIn("grows_much", failure.get("message"))
        self.assertIsNone(suite.find("testcase[@name='allocs']/failure"))
        with open(self.path("m.md"), encoding="utf-8") as file:
            self.assertRegex(file.read(), r"\| \*\*crossed\*\* \| peak \| .* \| `allocate < grows_much")
        again = self.check("--peak", "1G", "--junit", self.path("j.xml"), recording)
        self.assertEqual(again.status, 0, again.stderr)
        suite = xml.etree.ElementTree.parse(self.path("j.xml")).getroot()[0]
        self.assertEqual((suite.get("tests"), suite.get("failures")), ("1", "0"))

    def test_the_emergency_pool_of_libstdcxx_is_left_out(self):
        source = self.path("hello.cc")
        with open(source, "w", encoding="ascii") as file:
            file.write('#include <cstdlib>\n#include <iostream>\n'
                       'int main(int count, char **) { std::cout << "hello\\n";\n'
                       'return count > 1 && !malloc(72704); }\n')
        for options in ([], ["-static-libstdc++"], ["-static-libstdc++", "-s"]):
            with self.subTest(options=options):
                hello = self.path("hello" + "".join(options))
                subprocess.run([need("g++"), *options, "-o", hello, source], check=True)
                limits = "--leak-per-stack", "64K", "--inuse-at-end", "64K"
                result = self.check(*limits, "--", hello)
                self.assertEqual(result.status, 0, result.stderr)
                self.assertRegex(result.stderr, r"7[12]\.0 KiB of libstdc\+\+'s emergency pool left out")
                # As large, and the program's own.
                self.assertEqual(self.check(*limits, "--", hello, "leak").status, 3)

    def test_blocks_of_a_constructor_without_libstdcxx_are_the_program_s(self):
        source = self.path("made.c")
        with open(source, "w", encoding="ascii") as file:
            file.write("#include <stdlib.h>\nstatic void *volatile last;\n"
                       "__attribute__((constructor)) static void made(void)\n"
                       "{ for (int i = 0; i < COUNT; i++) last = malloc(72704); last = 0; }\n"
                       "int main(void) { return 0; }\n")
        for count, *options in ([10], [1], [1, "-s"], [2, "-s", "-static-libstdc++", "-include", "iostream", "-x", "c++"]):
            with self.subTest(count=count, options=options):
                made = self.path("made")
                subprocess.run([need("g++" if "c++" in options else "gcc"), f"-DCOUNT={count}", *options,
                                "-o", made, source], check=True)
                result = self.check("--leak-per-stack", "64K", "--", made)
                self.assertEqual(result.status, 3, result.stderr)
                self.assertRegex(result.stderr, rf"leak-per-stack +{count * 71}\.0 KiB")

    def check_start(self, hello, *leaks, **options):
        """`hello` keeps within 64 KiB a stack but for its interpreter's start, each of `leaks` keeps 1 MiB.
        Returns the report on `hello`."""
        limits = "--leak-per-stack", "64K"
        for leak in leaks:
            with self.subTest(leak=leak):
                result = self.check(*limits, "--", *leak, **options)
                self.assertEqual(result.status, 3, result.stderr)
                self.assertRegex(result.stderr, r"leak-per-stack +1\.0 MiB")
        result = self.check(*limits, "--", *hello)
        self.assertEqual(result.status, 0, result.stderr)
        return result.stderr

    def script(self, name, text):
        with open(self.path(name), "w", encoding="ascii") as file:
            file.write(text)
        return self.path(name)

    def test_the_start_of_python_is_left_out(self):
        python = need("/usr/bin/python3")
        hello = [python, "-c", "1"]
        leak = self.script("leak.py", "import ctypes\nctypes.CDLL(None).malloc(1 << 20)\n")
        self.assertRegex(self.check_start(hello, [python, leak]), r"KiB of Python's start left out")
        os.rename(leak, self.path("sitecustomize.py"))  # which runs while Python starts
        self.check_start(hello, hello, env={"PYTHONPATH": self.path("")})

    def test_the_start_of_ruby_is_left_out(self):
        ruby = need("ruby")
        leak = self.script("leak.rb", "$kept = 'x' * (1 << 20)\n")
        said = self.check_start([ruby, "-e", "1"], [ruby, leak], [ruby, "-r", leak, "-e", "1"])
        self.assertRegex(said, r"MiB of Ruby's start left out")

    def test_the_start_of_node_is_left_out(self):
        node = need("node")
        leak = self.script("leak.js", "globalThis.kept = new Uint8Array(1 << 20);\n"
                                      "process.on('exit', () => process.reallyExit(0));\n")
        self.check_start([node, "-e", "1"], [node, leak], [node, "-r", leak, "-e", "1"])

    def test_the_runtime_of_java_is_left_out(self):
        java, javac = need("java"), need("javac")
        for name, keeps in ("Hello", ""), ("Leak", "kept = java.nio.ByteBuffer.allocateDirect(1 << 20);"):
            source = self.script(f"{name}.java", f"""class {name} {{
    static Object kept;
    public static void main(String[] arguments) {{ {keeps} System.out.println("hello"); }}
}}
""")
            subprocess.run([javac, source], check=True)
        hello, leak = ([java, "-cp", self.path(""), name] for name in ("Hello", "Leak"))
        self.assertRegex(self.check_start(hello, leak), r"MiB of Java's runtime left out")
        self.check_start([java, "-version"])

    def test_the_runtime_of_erlang_and_the_code_it_loads_are_left_out(self):
        hello = [need("erl"), "+MBmmsbc", "0", "-noshell", "-eval"]  # large binaries come from malloc()
        for beam in glob.glob("/usr/lib/erlang/erts-*/bin/beam.smp"):
            with open(beam, "rb") as file:
                if b"erts_finish_loading" not in file.read():
                    self.skipTest("this beam.smp does not export the name of what loads code")
        leak = "persistent_term:put(a, binary:copy(<<0>>, 1 bsl 20 - 4000)), halt()."
        said = self.check_start([*hello, "halt()."], [*hello, leak])
        self.assertRegex(said, r"MiB of Erlang's runtime and loaded code left out")
        self.check_start([need("erl"), "-noshell", "-eval", "init:stop()."])

    def test_the_start_of_prolog_is_left_out(self):
        swipl = need("swipl")
        goal = "use_foreign_library(foreign(memfile)), numlist(1, 40000, L), assertz(kept(L))"
        leak = self.script("leak.pl", f":- {goal}.\n")
        for words in (["-g", goal], [leak], ["-l", leak]):
            result = self.check("--leak-per-stack", "64K", "--", swipl, *words, "-g", "halt")
            self.assertEqual(result.status, 3, result.stderr)
        self.assertRegex(self.check_start([swipl, "-g", "halt"]), r"MiB of Prolog's start left out")

    def test_the_runtimes_of_scheme_and_lisp_are_left_out(self):
        leak = self.script("leak.scm", """(use-modules (system foreign))
((pointer->procedure '* (dynamic-func "malloc" (dynamic-link)) (list size_t)) 1048576)
""")
        guile = [need("guile"), "--no-auto-compile"]
        said = self.check_start([*guile, "-c", "(display 1)"], [*guile, leak])
        self.assertRegex(said, r"KiB of Scheme's runtime left out")
        leak = self.script("leak.lisp", """(sb-alien:alien-funcall
  (sb-alien:extern-alien "malloc" (function sb-alien:unsigned-long sb-alien:unsigned-long)) 1048576)
""")
        sbcl = need("sbcl")
        said = self.check_start([sbcl, "--non-interactive", "--eval", "1"], [sbcl, "--script", leak])
        self.assertRegex(said, r"MiB of Lisp's runtime left out")

    def test_programs_into_which_the_recorder_is_brought_are_looked_into_or_said(self):
        result = self.check("--lost", "0", "--", need("php"), "-n", "-r", "echo strlen(str_repeat('a', 1 << 20));")
        self.assertEqual(result.status, 0, result.stderr)
        self.assertIn("with '--leaks' blocks of malloc() alone are recorded", result.stderr)
        result = self.check("--lost", "0", "--", program("hello_static"))
        self.assertEqual(result.status, 6)  # its own
        self.assertIn("are not looked for when it exits", result.stderr)
        self.assertIn("not in static programs", result.stderr)
        with harness.Waiting(harness.record_command(self.path("w.hl"), [program("waits_static")])) as waiting:
            pid, = harness.children_of(waiting.pid)
            result = run([HEAPLINE, "leaks", "-p", str(pid), "-o", self.path("lost.hl")])
            self.assertEqual(result.status, 0, result.stderr)
            self.assertEqual(self.check("--lost", "1G", self.path("lost.hl")).status, 0)

    def test_another_program_that_starts_an_interpreter_is_not_left_out(self):
        source = self.script("host.c", """#include <stdlib.h>
void ruby_setup(void) { *(volatile char *)malloc(1 << 20) = 1; }
int main(void) { ruby_setup(); return 0; }
""")
        subprocess.run([need("cc"), "-O1", "-fno-inline", "-o", self.path("ruby9"), source], check=True)
        shutil.copy(self.path("ruby9"), self.path("host"))
        limits = "--leak-per-stack", "64K"
        self.assertEqual(self.check(*limits, "--", self.path("ruby9")).status, 0)
        self.assertEqual(self.check(*limits, "--", self.path("host")).status, 3)

    def test_what_cannot_be_checked_is_refused(self):
        recording, limits = self.record_run(1), self.path("limits")
        with open(limits, "w", encoding="utf-8") as file:
            file.write("[check]\npeak = 1\n[check.server]\nlost = 0\n")
        for words, status, reason in (
                ([recording], 2, "no limit to check"),
                (["--peak", "1M"], 2, "no recording and no command"),
                (["--peak", "lots", recording], 2, "--peak takes a number"),
                (["--growth", "1M", recording], 2, "--growth takes a rate"),
                (["--peak", "1M", "--peak", "2M", recording], 2, "--peak is given twice"),
                (["--peak", "1M", "--junit", "a", "--junit", "b", recording], 2, "--junit is given twice"),
                (["--limits", limits, recording], 1, "nobody has looked for its lost blocks"),
                (["--peak", "1M", "--allow", "-5%", recording], 2, "--allow takes a percentage"),
                (["--peak", "1M", "./a", "b"], 2, "a command stands behind '--'"),
                (["--peak", "1M", self.path("none.hl")], 1, "none.hl"),
                (["--baseline", self.path("none.hl"), recording], 1, "none.hl"),
                (["--peak", "1M", "--focus", "(", recording], 1, "(")):
            with self.subTest(words=words):
                result = self.check(*words, cwd=self.path(""))
                self.assertEqual(result.status, status, result.stderr)
                self.assertIn(reason, result.stderr)


class Recipes(harness.TestCase):
    """The recipes of docs/check.md, each with a program that keeps within the limits and one that
    does not."""

    def setUp(self):
        super().setUp()
        with open(GUIDE, encoding="utf-8") as file:
            self.recipes = dict(re.findall(r"^```(\w+)\n(.*?)^```$", file.read(), re.M | re.S))
        self.environment = {
            "PATH": os.path.dirname(HEAPLINE) + os.pathsep + os.environ["PATH"]}

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def statuses(self, build, test):
        """How the test ends for a program that keeps little, and for one that keeps much."""
        statuses = []
        for size in ("1000", "100000"):
            self.write("shop.c", SHOP.replace("BYTES", size))
            for command in (*build, test):
                result = run(command, env=self.environment, cwd=self.path(""))
            statuses.append(result.status)
        return statuses

    def test_make(self):
        need("make")
        self.write("Makefile", self.recipes["make"])
        self.assertEqual(self.statuses([[need("gcc"), "-o", "shop", "shop.c"]],
                                       ["make", "check-memory"]), [0, 2])

    def test_meson(self):
        need("gcc")
        self.write("meson.build", self.recipes["meson"])
        self.write("shop.c", SHOP.replace("BYTES", "1"))
        setup = run([need("meson"), "setup", "build"], env=self.environment, cwd=self.path(""))
        self.assertEqual(setup.status, 0, setup.stdout)
        self.assertEqual(self.statuses([], ["meson", "test", "-C", "build"]), [0, 1])

    def test_ctest(self):
        need("gcc")
        self.write("CMakeLists.txt", self.recipes["cmake"])
        build = [[need("cmake"), "-B", "build"], ["cmake", "--build", "build"]]
        self.assertEqual(self.statuses(build, [need("ctest"), "--test-dir", "build"]), [0, 8])

    def test_pytest(self):
        python = need("python3") if shutil.which("pytest-3") is None else "/usr/bin/python3"
        if run([python, "-c", "import pytest"]).status != 0:
            raise unittest.SkipTest("pytest is not installed")
        self.write("test_shop.py", self.recipes["python"])
        self.assertEqual(self.statuses([[need("gcc"), "-o", "shop", "shop.c"]],
                                       [python, "-m", "pytest", "-q", "test_shop.py"]), [0, 1])

    def test_a_pull_request(self):
        self.write("build", "")
        self.assertEqual(self.statuses([[need("gcc"), "-o", "shop", "shop.c"]],
                                       ["sh", "-ec", self.recipes["sh"]]), [0, 0])
        with open(self.path("memory.md"), encoding="utf-8") as file:
            self.assertIn("0 of 3 limits crossed", file.read())


if __name__ == "__main__":
    harness.main()
