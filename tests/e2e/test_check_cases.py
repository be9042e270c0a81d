#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`heapline check --per-test`: each test case has its own figures, by whatever framework it is noted."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import unittest
import xml.etree.ElementTree

import harness
from harness import HEAPLINE, need, program, run

TREE = os.path.join(harness.SOURCES, "../..")
PLUGIN = os.path.join(TREE, "python")
INCLUDE = os.path.join(TREE, "include")

GOOGLE = """
#include <gtest/gtest.h>
#include <heapline/testing.h>
#include <cstdlib>
#include <vector>
static void *volatile kept;
class Many : public ::testing::TestWithParam<int> {};
TEST_P(Many, Allocates) {
    std::vector<char> block(1000 + GetParam());
    if (GetParam() == 3) kept = malloc(77);
}
INSTANTIATE_TEST_SUITE_P(Odd, Many, ::testing::Range(0, 5));
TEST(Other, Skipped) { GTEST_SKIP() << "a reason that is kept"; }
TEST(Other, DISABLED_Never) {}
TEST(Other, Aborts) { if (getenv("ABORT")) abort(); }
"""

CATCH = """
#define CATCH_CONFIG_MAIN
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#include <heapline/testing.h>
#include <cstdlib>
static void *volatile kept;
TEST_CASE("keeps | nothing") { free(malloc(1000)); SECTION("part") { free(malloc(2000)); } }
TEST_CASE("keeps 77000 bytes") { kept = malloc(77000); }
#ifdef SKIP
TEST_CASE("skipped") { kept = malloc(88000); SKIP("a reason that is kept"); }
#endif
"""

PYTHON = '''
import pytest
kept = []
def keep():
    kept.append(bytearray(100_000))
@pytest.mark.parametrize("text", ["plain", 'a|`<b>&"c"'])
def test_named(text):
    bytearray(1000)
def test_keeps():
    keep()
@pytest.mark.heapline(leaks="20 KiB")
def test_leaks():
    keep()
@pytest.mark.heapline(peak="1 MiB", allocations=1_000_000)
def test_peak():
    bytearray(5_000_000)
@pytest.mark.heapline(peak="1 MiB", leaks="20 KiB")
def test_within():
    a = []
    a.append(a)
    bytearray(1000)
def test_skipped():
    pytest.skip("no")
'''


def has_module(python, name):
    return run([python, "-c", f"import {name}"]).status == 0


class CheckCases(harness.TestCase):
    def check(self, *words, **options):
        return run([HEAPLINE, "check", "--per-test", *words], **options)

    def cases_of(self, *words, status=0, **options):
        """The report on a command, by name."""
        report = self.path("report.json")
        result = self.check("--json", "-f", "-o", report, *words, **options)
        self.assertEqual(result.status, status, result.stderr)
        with open(report, encoding="utf-8") as file:
            document = json.load(file)
        harness.schemas.check(document)
        self.document = document
        return {row["name"]: row for row in document["rows"]}

    @staticmethod
    def ledger(number):
        """What case ${number} of cases.c allocates."""
        sizes = [100 + i for i in range(number % 7 + 3)]
        return len(sizes) + 2, sum(sizes) + 14000, max(sum(sizes), 9000)

    def test_each_case_has_exactly_what_it_allocates(self):
        rows = self.cases_of("--", program("cases"), "1000", "leak", "617", "nested", "5", "skip", "6")
        self.assertEqual(len(rows), 999)
        self.assertNotIn('case <6>|`&"', rows)
        for number in (i for i in range(1000) if i != 6):
            row = rows[f'case <{number}>|`&"']
            extra = number == 617
            allocations, total, peak = self.ledger(number)
            self.assertEqual((row["allocations"], row["allocated_bytes"], row["peak_bytes"], row["kept_blocks"], row["kept_bytes"]),
                             (allocations + extra, total + 77 * extra, peak, extra, 77 * extra), row)
            self.assertEqual((row["lost_events"], row["unfinished"], row["process"]), (0, False, False))

    def test_one_leak_among_1000_cases_is_found_with_its_line(self):
        rows = self.cases_of("--inuse-at-end", "0", "--", program("cases"), "1000", "leak", "617", status=3)
        self.assertEqual(self.document["crossed"], 1)
        crossed, = rows['case <617>|`&"']["crossed"]
        self.assertEqual((crossed["limit"], crossed["figure"], crossed["most"], crossed["stack_figure"]), ("inuse-at-end", 77, 0, 77))
        with open(os.path.join(harness.SOURCES, "cases.c"), encoding="utf-8") as file:
            line = next(number for number, text in enumerate(file, 1) if "malloc(77)" in text)
        self.assertRegex(crossed["stack"], rf"^leak \(cases\.c:{line}\) < (run_specially < )?main")

    def test_a_piece_of_a_pool_may_begin_where_its_block_does(self):
        row = self.cases_of("--", program("cases"), "2", "pool", "1")['case <1>|`&"']
        self.assertEqual((row["allocations"], row["kept_blocks"], row["kept_bytes"]), (self.ledger(1)[0] + 2, 2, 5060), row)

    def test_other_threads_count_and_forked_children_do_not(self):
        rows = self.cases_of("--", program("cases"), "3", "thread", "1", "fork", "2")
        allocations, total, _ = self.ledger(1)
        row = rows['case <1>|`&"']
        # The thread's stack and the like, which libc allocates, are the case's as well.
        self.assertGreaterEqual(row["allocations"], allocations + 10)
        self.assertGreaterEqual(row["allocated_bytes"], total + 10000)
        self.assertGreaterEqual(row["kept_bytes"], 1000)
        row = rows['case <2>|`&"']
        self.assertEqual((row["allocations"], row["kept_bytes"]), (self.ledger(2)[0], 0))

    def test_a_case_in_which_the_process_is_killed_did_not_end(self):
        rows = self.cases_of("--peak", "1M", "--", program("cases"), "10", "kill", "4", status=128 + 9)
        self.assertEqual([row["unfinished"] for row in rows.values()], [False] * 4 + [True])
        self.assertEqual(self.document["unfinished"], 1)
        result = self.check("--junit", self.path("j.xml"), "--", program("cases"), "10", "kill", "4")
        self.assertRegex(result.stderr, r"^no limit was crossed by 5 test cases; 1 did not end\n")
        suite = xml.etree.ElementTree.parse(self.path("j.xml")).getroot()[0]
        self.assertIsNotNone(suite[4].find("error"))
        # Who runs tests may go on after that, and say that all is well.
        result = self.check("--", "/bin/sh", "-c", f"{program('cases')} 10 kill 4; true")
        self.assertEqual(result.status, 1)
        self.assertIn("cannot tell whether limits were kept: 1 test case did not end", result.stderr)

    def test_odd_names_are_quoted_everywhere(self):
        result = self.check("--inuse-at-end", "0", "--junit", self.path("j.xml"), "--markdown", self.path("m.md"),
                            "--", program("cases"), "2", "leak", "1")
        self.assertEqual(result.status, 3, result.stderr)
        self.assertTrue(result.stderr.startswith("1 of 2 test cases crossed a limit\n"), result.stderr)
        suite = xml.etree.ElementTree.parse(self.path("j.xml")).getroot()[0]
        self.assertEqual([case.get("name") for case in suite], ['case <0>|`&"', 'case <1>|`&"'])
        self.assertIn("inuse-at-end 77 B, at most 0 B; 77 B by leak", suite[1].find("failure").get("message"))
        self.assertIsNone(suite[0].find("failure"))
        with open(self.path("m.md"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.assertEqual(lines[0], "### Memory: 1 of 2 test cases crossed a limit")
        # A cell ends at a bar, and code at a backtick: neither stands in a name.
        for line in lines[2:6]:
            self.assertEqual(line.count("|"), 7, line)

    def test_a_baseline_has_the_cases_of_before(self):
        base, command = self.path("base.json"), program("cases")
        self.cases_of("--save-baseline", base, "--", command, "5")
        rows = self.cases_of("--baseline", base, "--", command, "5")
        self.assertEqual((self.document["crossed"], self.document["not_in_baseline"]), (0, 0))
        rows = self.cases_of("--baseline", base, "--", command, "6", "leak", "3", status=3)
        self.assertEqual((self.document["crossed"], self.document["not_in_baseline"]), (1, 1))
        self.assertEqual([(crossed["limit"], crossed["most"], crossed["baseline"]) for crossed in rows['case <3>|`&"']["crossed"]],
                         [("inuse-at-end", 0, True), ("allocs", self.ledger(3)[0], True)])
        self.assertEqual(self.document["not_run"], [])
        self.cases_of("--baseline", base, "--", command, "4")
        self.assertEqual(self.document["not_run"], ['case <4>|`&"'])
        table = self.path("not_run.md")
        result = self.check("--baseline", base, "--allow", "10%", "--markdown", table, "--", command, "3")
        self.assertEqual(result.status, 0, result.stderr)
        self.assertTrue(result.stderr.startswith("no limit was crossed by 3 test cases; 2 of the baseline not run\n"
                                                 'in the baseline, and not run: case <3>|`&", case <4>|`&"\n'), result.stderr)
        with open(table, encoding="utf-8") as file:
            self.assertIn("in the baseline, and not run: case <3>/", file.read())
        # A tenth of eight allocations is less than one.
        self.cases_of("--baseline", base, "--allow", "10%", "--", command, "5", "leak", "3", status=3)
        with open(base, "w", encoding="utf-8") as file:
            file.write("{}")
        result = self.check("--baseline", base, "--", "touch", self.path("ran"))
        self.assertEqual(result.status, 1)
        self.assertIn("it is not one of test cases; write it with '--save-baseline'", result.stderr)
        self.assertFalse(os.path.exists(self.path("ran")))

    def test_a_file_that_cannot_be_written_does_not_cost_the_report(self):
        result = self.check("--junit", self.path("none/j.xml"), "--", program("cases"), "2")
        self.assertEqual(result.status, 1)
        self.assertTrue(result.stderr.startswith("no limit was crossed by 2 test cases\n"), result.stderr)
        self.assertIn("none/j.xml': No such file", result.stderr)

    def test_what_no_case_can_have_is_refused(self):
        for words, reason in ((["--growth", "1M/min"], "'growth' is not a limit of test cases"),
                              (["--lost", "0"], "'lost' is not a limit"), (["--peak", "1", "--focus", "x"], "have no focus")):
            result = self.check(*words, "--", "/bin/true")
            self.assertEqual(result.status, 2)
            self.assertIn(reason, result.stderr)
        result = self.check("--peak", "1", "name.hl")
        self.assertEqual(result.status, 2)
        result = self.check("--", program("cases"), "0")
        self.assertEqual(result.status, 1)
        self.assertIn("no test case was seen: the program noted none", result.stderr)

    def test_each_process_is_a_case_where_that_is_said(self):
        command = ["sh", "-c", f"{program('known_answer')}; {program('known_answer')}; true"]
        result = self.check("--", *command)  # its recorder was closed: nothing is known
        self.assertEqual(result.status, 1)
        self.assertIn("no test case was seen: the program noted none", result.stderr)
        result = run([HEAPLINE, "check", "--per-process", "--json", "-o", self.path("cases.json"), "--", *command])
        self.assertEqual(result.status, 0, result.stderr)
        with open(self.path("cases.json"), encoding="utf-8") as file:
            cases = [row for row in json.load(file)["rows"] if row["name"].endswith("known_answer")]
        self.assertEqual(len(cases), 2)
        for row in cases:
            self.assertGreater(row["allocations"], 0, row)

    def test_a_number_that_is_used_again_is_of_its_parent_s_case(self):
        harness.need_root()
        words = [need("unshare"), "-pf", "--mount-proc"]
        answer = program("known_answer")
        # The second program has the number of the first, and is started by the second case.
        script = f'{answer} & a=$!; wait $a; sh -c "echo $((a - 1)) >/proc/sys/kernel/ns_last_pid && {answer}; true"; true'
        result = run([*words, HEAPLINE, "check", "--per-process", "--json", "-o", self.path("cases.json"), "--", "sh", "-c", script])
        if "ns_last_pid" in result.stderr or "unshare" in result.stderr:
            self.skipTest(f"no number can be chosen here: {result.stderr}")
        self.assertEqual(result.status, 0, result.stderr)
        with open(self.path("cases.json"), encoding="utf-8") as file:
            first, second = json.load(file)["rows"]
        self.assertGreaterEqual(second["allocations"], first["allocations"], (first, second))

    def test_a_stack_without_a_name_crosses_its_limit_too(self):
        harness.need_root()
        words = [need("unshare"), "-pf"]  # numbers of processes are not those of the recording
        if run([*words, "true"]).status:
            self.skipTest("no namespace of processes can be made here")
        rows = self.cases_of("--leak-per-stack", "76", "--", *words, program("cases"), "3", "leak", "1", status=3)
        self.assertEqual([row["figure"] for row in rows['case <1>|`&"']["crossed"]], [77])
        self.cases_of("--leak-per-stack", "77", "--", *words, program("cases"), "3", "leak", "1")

    def test_a_case_of_which_events_were_lost_proves_nothing(self):
        lost = r"""
import os, struct
form = "=QIIQIIQQQQQQQII"
with open(os.environ["HEAPLINE_CASES"] + "/1-1", "wb") as file:
    for kind in 1, 2:  # it begins, and ends
        file.write(struct.pack(form, 0x3130455341434c48, struct.calcsize(form) + 8, kind, 1, 1, 1, 1, 5, 50, 50, 0, 0, kind - 1, 0, 4) + b"name\0\0\0\0")
"""
        rows = self.cases_of("--peak", "100", "--", sys.executable, "-c", lost, status=1)
        self.assertEqual(rows["name"]["lost_events"], 1)
        result = self.check("--peak", "100", "--", sys.executable, "-c", lost)
        self.assertIn("events of 1 test case could not be counted", result.stderr)
        self.assertEqual(self.check("--peak", "100", "--", sys.executable, "-c", lost.replace("kind - 1", "0")).status, 0)

    def test_a_case_that_could_not_be_noted_is_missed(self):
        harness.need_root()
        words = [need("setpriv"), "--reuid", "65534", "--clear-groups", "--", program("cases"), "3"]
        if run(words).status:
            self.skipTest("no program of the tests can be run as another user")
        for limit in [], ["--peak", "1"]:
            result = self.check(*limit, "--", *words)
            self.assertEqual(result.status, 1, result.stderr)
            self.assertIn("could not note its test cases", result.stderr)

    def test_long_names_leave_the_limit_in_sight(self):
        long = "import ctypes; l = ctypes.CDLL(None); l.hl_case_begin(b'a' * 900 + b'end'); kept = bytearray(1000); l.hl_case_end(None)"
        result = self.check("--inuse-at-end", "0", "--", sys.executable, "-c", long)
        self.assertEqual(result.status, 3, result.stderr)
        self.assertRegex(result.stderr, r"CROSSED .* \.\.\.a{50,80}end  inuse-at-end")
        table = self.path("cases.md")
        self.check("--peak", "1", "--markdown", table, "--", program("cases"), "25")
        with open(table, encoding="utf-8") as file:
            self.assertIn("and 5 more, 5 of which crossed a limit\n", file.read())

    def test_the_program_runs_the_same_without_heapline(self):
        result = run([program("cases"), "10", "leak", "3"])
        self.assertEqual((result.status, result.stdout), (0, "done\n"))

    # ---- C++ ----

    def build(self, text, *libraries):
        source, built = self.path("tests.cc"), self.path("tests")
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)
        result = run([need("g++"), "-std=c++17", "-g", "-I", INCLUDE, "-o", built, source, *libraries])
        if "No such file" in result.stderr or "cannot find -l" in result.stderr:
            raise unittest.SkipTest("the framework is not installed: " + result.stderr.strip().splitlines()[0])
        self.assertEqual(result.status, 0, result.stderr)
        return built

    def test_google_test(self):
        tests = self.build(GOOGLE, "-lgtest", "-lgtest_main", "-lpthread")
        rows = self.cases_of("--inuse-at-end", "0", "--", tests, status=3)
        self.assertEqual({name: row["kept_bytes"] for name, row in rows.items()},
                         {"Other.Aborts": 0, **{f"Odd/Many.Allocates/{i}": 77 * (i == 3) for i in range(5)}})
        first, *others = (rows[f"Odd/Many.Allocates/{i}"]["allocated_bytes"] for i in range(3))
        self.assertEqual(others, [first + 1, first + 2])
        self.assertIn("Many_Allocates_Test::TestBody() (tests.cc:10)", rows["Odd/Many.Allocates/3"]["crossed"][0]["stack"])
        result = self.check("--", tests, env={"ABORT": "1"})
        self.assertIn("1 did not end", result.stderr)
        self.assertEqual(run([tests]).status, 0)

    def test_catch2(self):
        tests = self.build(CATCH, *([] if os.path.exists("/usr/include/catch2/catch.hpp") else ["-lCatch2Main", "-lCatch2"]))
        rows = self.cases_of("--inuse-at-end", "50K", "--", tests, status=3)
        self.assertEqual(list(rows), ["keeps | nothing", "keeps 77000 bytes"])
        self.assertEqual([len(row["crossed"]) for row in rows.values()], [0, 1])
        self.assertGreaterEqual(rows["keeps | nothing"]["allocations"], 2)

    # ---- pytest ----

    def pytest(self, *words):
        """Words that run PYTHON with the plugin as it is installed, and their environment."""
        python = next((path for path in (shutil.which("python3"), "/usr/bin/python3") if path and has_module(path, "pytest")), None)
        if not python:
            raise unittest.SkipTest("pytest is not installed")
        site = self.path("site")
        info = os.path.join(site, "pytest_heapline-0.1.0.dist-info")
        if not os.path.isdir(info):
            os.makedirs(info)
            shutil.copy(os.path.join(PLUGIN, "pytest_heapline.py"), site)
            with open(os.path.join(info, "METADATA"), "w", encoding="ascii") as file:
                file.write("Metadata-Version: 2.1\nName: pytest-heapline\nVersion: 0.1.0\n")
            shutil.copy(os.path.join(PLUGIN, "entry_points.txt"), info)
            with open(self.path("test_some.py"), "w", encoding="utf-8") as file:
                file.write(PYTHON)
        return python, [python, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", self.path(""),
                        self.path("test_some.py"), *words], {"PYTHONPATH": site}

    def test_pytest(self):
        _, command, env = self.pytest()
        rows = self.cases_of("--inuse-at-end", "50K", "--", *command, env=env, status=3)
        self.assertEqual(sorted(rows), sorted("test_some.py::" + name for name in (
            "test_named[plain]", 'test_named[a|`<b>&"c"]', "test_keeps", "test_leaks", "test_peak", "test_within")))
        self.assertEqual({name for name, row in rows.items() if row["crossed"]},
                         {"test_some.py::test_keeps", "test_some.py::test_leaks"})
        self.assertIn("keep (test_some.py:5) < test_keeps", rows["test_some.py::test_keeps"]["crossed"][0]["stack"])
        self.assertGreaterEqual(rows["test_some.py::test_peak"]["peak_bytes"], 5_000_000)

    def test_where_each_test_is_skipped_no_limit_is_crossed(self):
        _, command, env = self.pytest("-k", "test_skipped")
        self.assertEqual(self.cases_of("--peak", "1", "--", *command, env=env), {})
        self.assertEqual(self.cases_of("--per-process", "--peak", "1", "--", *command, env=env), {})

    def test_markers_of_pytest_fail_tests(self):
        for verb in (["check", "--per-test"], ["record", "-q", "-f", "-o", self.path("r.hl")]):
            with self.subTest(verb=verb):
                _, command, env = self.pytest()
                result = run([HEAPLINE, *verb, "--", *command], env=env)
                self.assertEqual(result.status, 1, result.stdout + result.stderr)
                self.assertRegex(result.stdout, r"heapline: the test kept 9[78]\.\d KiB when it ended, at most 20\.0 KiB; most of it by "
                                 r"keep \(.*test_some\.py:5\) < test_leaks \(.*test_some\.py:13\)")
                self.assertRegex(result.stdout, r"heapline: the test had 4\.8 MiB in use at its peak, at most 1\.0 MiB; most of it by test_peak")
                self.assertIn("2 failed, 4 passed, 1 skipped", result.stdout)
                self.assertIn("heapline: largest peaks", result.stdout)

    def test_pytest_without_heapline_says_what_to_run(self):
        _, command, env = self.pytest()
        result = run(command, env=env)
        self.assertEqual(result.status, 0, result.stdout)
        self.assertIn("limits of 3 tests were not checked, because nothing is being recorded; run: heapline check --per-test -- pytest",
                      result.stdout)
        result = run([*command, "--heapline-required"], env=env)
        self.assertEqual(result.status, 4)
        self.assertIn("nothing is being recorded; run: heapline check --per-test", result.stderr)

    def test_limits_of_a_test_that_cannot_be_counted_are_not_passed_over(self):
        _, command, env = self.pytest()
        with open(self.path("test_some.py"), "w", encoding="utf-8") as file:
            file.write("""
import ctypes, pytest
@pytest.fixture
def other():
    library = ctypes.CDLL(None)
    assert library.hl_case_begin(b"another") == 0  # a process has one case at a time
    yield
    library.hl_case_drop()
@pytest.mark.heapline(peak=1000)
def test_busy(other):
    bytearray(100_000)
""")
        result = run([HEAPLINE, "record", "-q", "-o", self.path("r.hl"), "--", *command], env=env)
        self.assertEqual(result.status, 0, result.stdout)
        self.assertIn("limits of 1 test were not checked, because the recorder could not count them", result.stdout)

    def test_workers_of_xdist_have_cases_of_their_own(self):
        python, command, env = self.pytest("-n", "2")
        if not has_module(python, "xdist"):
            self.skipTest("pytest-xdist is not installed")
        rows = self.cases_of("--inuse-at-end", "50K", "--", *command, env=env, status=3)
        self.assertEqual(len(rows), 6)
        self.assertEqual({name for name, row in rows.items() if row["crossed"]},
                         {"test_some.py::test_keeps", "test_some.py::test_leaks"})

    # ---- runners that start a process for each test ----

    def test_ctest_and_meson_say_what_their_tests_are_called(self):
        folder = self.path("project")
        os.makedirs(folder)
        with open(os.path.join(folder, "meson.build"), "w", encoding="utf-8") as file:
            file.write("project('p')\ntest('leaks | some', find_program('%s'), args: ['1'])\n"
                       "test('quiet', find_program('%s'), args: ['0'])\n" % (program("growth"), program("cases")))
        with open(os.path.join(folder, "CMakeLists.txt"), "w", encoding="utf-8") as file:
            file.write('cmake_minimum_required(VERSION 3.19)\nproject(p NONE)\nenable_testing()\n'
                       'add_test(NAME "leaks | some" COMMAND %s 1)\nadd_test(NAME quiet COMMAND %s 0)\n'
                       % (program("growth"), program("cases")))
        ran = 0
        for tool, setup, command in (
                ("meson", ["setup", "build", folder], ["meson", "test", "-C", "build"]),
                ("cmake", ["-S", folder, "-B", "made"], ["ctest", "--test-dir", "made"])):
            if not shutil.which(tool) or not shutil.which(command[0]):
                continue
            ran += 1
            with self.subTest(tool=tool):
                self.assertEqual(run([tool, *setup], cwd=self.path("")).status, 0)
                rows = self.cases_of("--inuse-at-end", "10K", "--", *command, cwd=self.path(""), status=3)
                self.assertEqual(sorted(rows), ["leaks | some", "quiet"])
                crossed, = rows["leaks | some"]["crossed"]
                self.assertTrue(rows["leaks | some"]["process"])
                self.assertIn("grows_much", crossed["stack"])
                self.assertFalse(rows["quiet"]["crossed"])
        if shutil.which("ctest"):
            with open(os.path.join(folder, "CMakeLists.txt"), "a", encoding="utf-8") as file:
                file.write(f"add_test(NAME notes COMMAND {program('cases')} 2)\n")
            self.assertEqual(run(["cmake", "-S", folder, "-B", "made"], cwd=self.path("")).status, 0)
            rows = self.cases_of("--inuse-at-end", "10K", "--", "ctest", "--test-dir", "made", cwd=self.path(""), status=3)
            # A test that notes its cases does not hide those that note none.
            self.assertEqual(sorted(rows), ['case <0>|`&"', 'case <1>|`&"', "leaks | some", "quiet"])
        if not ran:
            self.skipTest("neither meson nor cmake is installed")

    # ---- the action ----

    def test_the_action_uses_its_inputs_and_options_that_exist(self):
        if importlib.util.find_spec("yaml") is None:
            self.skipTest("python3-yaml is not installed")
        import yaml  # pylint: disable=import-outside-toplevel
        with open(os.path.join(TREE, "action/action.yml"), encoding="utf-8") as file:
            action = yaml.safe_load(file)
        self.assertEqual(action["runs"]["using"], "composite")
        text = json.dumps(action["runs"])
        for name, about in action["inputs"].items():
            self.assertIn(f"inputs.{name} ", text)
            self.assertTrue(about["description"])
        script = action["runs"]["steps"][-1]["run"]
        options = set(re.findall(r"(--[a-z-]+)", script))
        known = run([HEAPLINE, "check", "--help"]).stdout
        for option in options:
            self.assertIn(option, known)
        self.assertIn("--per-test", options)
        # The script itself, as a runner would start it.
        env = {"INPUT_COMMAND": f"{program('cases')} 3 \"leak\"\n1", "INPUT_OPTIONS": f"--inuse-at-end 0\n--save-baseline '{self.path('a base.json')}'", "INPUT_BASELINE": "",
               "INPUT_ALLOW": "0%", "INPUT_SAVE_BASELINE": "", "INPUT_JUNIT": self.path("j.xml"),
               "GITHUB_STEP_SUMMARY": self.path("summary.md"), "RUNNER_TEMP": self.path(""),
               "PATH": os.path.dirname(HEAPLINE) + ":" + os.environ["PATH"]}
        result = run(["bash", "-e", "-c", script], env=env)
        self.assertEqual(result.status, 3, result.stdout + result.stderr)
        with open(self.path("summary.md"), encoding="utf-8") as file:
            self.assertIn("1 of 3 test cases crossed a limit", file.read())
        self.assertTrue(os.path.exists(self.path("j.xml")))
        self.assertTrue(os.path.exists(self.path("a base.json")))
        result = run(["bash", "-e", "-c", script], env={**env, "INPUT_OPTIONS": "--no-such-option"})
        self.assertEqual(result.status, 2)
        with open(self.path("summary.md"), encoding="utf-8") as file:
            self.assertEqual(file.read().count("1 of 3 test cases"), 1)  # the report of the step before is not this one's
        self.assertEqual(run(["bash", "-e", "-c", script], env={**env, "INPUT_COMMAND": "'no end"}).status, 1)


if __name__ == "__main__":
    harness.main()
