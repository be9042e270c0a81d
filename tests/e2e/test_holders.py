#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Who keeps the blocks of programs that know it themselves."""

import json
import subprocess

import harness
import planted_programs
from harness import HEAPLINE, need, program, run


INLINED = r"""
#include <stdio.h>
#include <stdlib.h>
void *keep[100];
static inline __attribute__((always_inline)) void *innermost(int n) { return malloc(n); }
static inline __attribute__((always_inline)) void *between(int n) { return innermost(n); }
__attribute__((noinline)) static void outermost(void)
{
	for (int i = 0; i < 100; i++)
		keep[i] = between(100 + i);
}
int main(void)
{
	outermost();
	puts("ready");
	fflush(stdout);
	return getchar() != EOF;
}
"""

SHARING = """
#include <stdio.h>
#include <stdlib.h>
void *first_of_many, *second_of_many, *third_of_many;
int main(void)
{
	first_of_many = second_of_many = third_of_many = malloc(100000);
	puts("ready");
	fflush(stdout);
	getchar();
}
"""


# 64 MiB of memory, mapped 96 times: 6 GiB are not read in 100 ms.
MAPPED = """
import mmap, os, sys
memory = os.memfd_create("memory")
os.truncate(memory, 64 << 20)
flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
kept = [mmap.mmap(memory, 64 << 20, flags) for _ in range(96)]
print("ready", flush=True)
sys.stdin.read()
"""
BOUND = "the process goes on after 100 ms"


class Kept(planted_programs.Telling):
    """A program that says what keeps its blocks: by name, its kind, blocks and bytes."""

    def __init__(self, *words, command=(), **options):
        self.holders, self.deepest = {}, None
        super().__init__(*([*command] or [program("holders"), *words]), **options)
        self.wait_for_threads()

    def hear(self, word, *words):
        if word == "deepest":
            self.deepest = words[0]
        elif word == "holder":
            self.holders[words[0]] = (words[1], int(words[2]), int(words[3]))


def ask(*options):
    """The report on a process or a core file."""
    result = run([HEAPLINE, "holders", "--json", *map(str, options)])
    if result.status:
        raise AssertionError(result.stderr)
    return json.loads(result.stdout)


def found_in(report):
    """Rows by what the program calls them, as it says them."""
    return {",".join(sorted(row["holders"])) or row["name"] or row["module"]:
            (row["kind"], row["held_blocks"], row["held_bytes"]) for row in report["rows"]}


class Holders(harness.TestCase):
    def expect_sums(self, report):
        total, rows = report["total"], report["rows"]
        for unit in "bytes", "blocks":
            self.assertEqual(sum(row[f"held_{unit}"] for row in rows), total[f"selected_{unit}"])
        for kind in "shared", "lost":
            self.assertEqual(sum(row["held_bytes"] for row in rows if row["kind"] == kind),
                             total[f"{kind}_bytes"])

    def expect_planted(self, planted, report):
        found = found_in(report)
        for name, expected in planted.holders.items():
            self.assertEqual(found.get(name), expected, (name, found))
        self.expect_sums(report)
        self.assertEqual(report["total"]["selected_bytes"], report["total"]["live_bytes"])
        self.assertEqual(report["total"]["lost_bytes"], 0)

    def test_each_kind_of_holder_is_found_to_the_byte(self):
        with Kept() as planted:
            running, stopped = ask("-p", planted.pid), ask("-p", planted.pid, "--stop")
        self.expect_planted(planted, running)
        self.expect_planted(planted, stopped)
        goes_on = [note for note in stopped["notes"] if BOUND in note]  # on a machine that is busy
        self.assertTrue(stopped["stopped"] or goes_on)
        self.assertEqual(stopped["notes"], goes_on)
        for row in stopped["rows"]:
            if row["name"] == "static_table":
                self.assertEqual(row["module"], "holders")
                self.assertRegex(row["place"], r"^\.bss\+0x")
            if row["name"] == "shared_left":
                shared = planted.holders["shared_left,shared_right"]
                self.assertEqual((row["shared_blocks"], row["shared_bytes"]), shared[1:])

    def test_a_core_file_says_the_same(self):
        gcore = need("gcore")
        with Kept() as planted:
            live = ask("-p", planted.pid, "--stop")
            made = run([gcore, "-o", self.path("core"), str(planted.pid)])
            self.assertEqual(made.status, 0, made.stderr)
        report = ask("--core", self.path(f"core.{planted.pid}"))
        self.expect_planted(planted, report)
        self.assertEqual(report["rows"], live["rows"])

    def test_the_chain_to_a_block_has_each_step_with_its_offset(self):
        with Kept() as planted:
            report = ask("-p", planted.pid, planted.deepest)
            inside = hex(int(planted.deepest, 16) + 77)
            text = run([HEAPLINE, "holders", "-p", str(planted.pid), "--path", inside])
            nowhere = run([HEAPLINE, "holders", "-p", str(planted.pid), "0x1000"])
        steps = report["chain"]
        self.assertRegex(steps[0]["step"], r"^chain \(holders \.bss\+0x[0-9a-f]+\)$")
        self.assertEqual([(step["offset"], step["size"]) for step in steps],
                         [(0, 0), (24, 88), (8, 120), (0, 4008)])
        self.assertEqual(steps[-1]["address"], planted.deepest)
        self.assertEqual(report["total"]["selected_blocks"], 1)
        self.assertEqual([row["name"] for row in report["rows"]], ["chain"])
        self.assertRegex(text.stdout, r"chain \(holders \.bss\+0x\w+\) -> 0x\w+ node \(\+24\) -> 0x\w+ "
                                      rf"\(\+8\) -> {planted.deepest}, 4,008 B")
        self.assertNotIn("global_list", text.stdout)
        self.assertEqual(nowhere.status, 1)
        self.assertIn("no live block", nowhere.stderr)

    def test_blocks_of_a_size_are_asked_for(self):
        with Kept() as planted:
            report = ask("-p", planted.pid, "--size", 5000)
        self.expect_sums(report)
        self.assertEqual(report["total"]["selected_blocks"], 1)
        self.assertEqual([sorted(row["holders"]) for row in report["rows"]],
                         [["shared_left", "shared_right"]])

    def test_two_of_many_who_share_are_named_in_the_table(self):
        path = self.path("sharing")
        subprocess.run([need("gcc"), "-x", "c", "-o", path, "-"], input=SHARING, text=True, check=True)
        with harness.Waiting([path]) as process:
            row, = [row for row in ask("-p", process.pid)["rows"] if row["kind"] == "shared"]
            table = run([HEAPLINE, "holders", "-p", str(process.pid)]).stdout
        self.assertEqual(sorted(row["holders"]), ["first_of_many", "second_of_many", "third_of_many"])
        first, second, _ = row["holders"]
        self.assertRegex(table, rf"\[shared by 3\] {first}, {second}, \.\.\. ")

    def test_blocks_of_a_class_are_asked_for(self):
        with Kept(command=[program("holders_cxx")]) as planted:
            report = ask("-p", planted.pid, "--class", "zoo::duck")
            whole = ask("-p", planted.pid)
            tree = ask("-p", planted.pid, "--tree", "--depth", 0)["tree"]
            bad = run([HEAPLINE, "holders", "-p", str(planted.pid), "--class", "("])
        self.expect_sums(report)
        self.assertEqual(found_in(report)["ducks"][1], planted.holders["ducks"][1])
        self.assertEqual(report["total"]["selected_blocks"], planted.holders["ducks"][1])
        self.expect_sums(whole)
        for name in "names", "numbers", "text":
            self.assertEqual(found_in(whole).get(name), planted.holders[name], (name, whole))
        self.assertIn("zoo::duck", [row["name"] for row in tree])
        self.assertEqual(bad.status, 1)
        self.assertIn("--class", bad.stderr)

    def test_blocks_of_a_stack_are_asked_for(self):
        command = [HEAPLINE, "record", "-q", "-o", self.path("r.hl"), "--", program("holders")]
        with harness.Waiting(command) as started:
            pid = harness.children_of(started.pid)[0]
            report = ask("-p", pid, "--stack", "^plant_ring$")
        self.expect_sums(report)
        self.assertEqual([(row["name"], row["held_blocks"]) for row in report["rows"]],
                         [("static_ring", 50)])
        with Kept() as planted:
            self.assert_refused(run([HEAPLINE, "holders", "-p", str(planted.pid), "--stack", "x"]),
                                "heapline record")

    def test_a_stack_is_found_by_functions_into_which_others_were_inlined(self):
        path = self.path("inlined")
        subprocess.run([need("gcc"), "-g", "-O1", "-x", "c", "-o", path, "-"], input=INLINED, text=True, check=True)
        with harness.Waiting([HEAPLINE, "record", "-q", "-o", self.path("r.hl"), "--", path]) as started:
            pid = harness.children_of(started.pid)[0]
            for function in "innermost", "between", "outermost":
                report = ask("-p", pid, "--stack", f"^{function}$")
                self.assertEqual(report["total"]["selected_blocks"], 100, function)
            leaks = json.loads(run([HEAPLINE, "leaks", "--json", "-p", str(pid)]).stdout)
        self.assertEqual(leaks["total"]["lost_blocks"], 0)

    def test_the_tree_adds_up(self):
        with Kept() as planted:
            report = ask("-p", planted.pid, "--tree", "--depth", 0)
        rows, total = report["tree"], report["total"]
        self.assertNotIn("rows", report)
        for unit in "bytes", "blocks":
            self.assertEqual(sum(row[f"held_{unit}"] for row in rows if row["depth"] == 1),
                             total[f"live_{unit}"])
            self.assertEqual(sum(row[f"own_{unit}"] for row in rows), total[f"live_{unit}"])
        names = [row["name"] for row in rows if row["depth"] == 1]
        self.assertTrue(any(name.startswith("global_list (holders .bss+") for name in names), names)

    def test_what_is_held_is_a_recording_for_every_view(self):
        held = self.path("held.hl")
        with Kept() as planted:
            made = run([HEAPLINE, "holders", "-p", str(planted.pid), "-o", held])
            again = run([HEAPLINE, "holders", "-p", str(planted.pid), "-o", held])
        self.assertEqual(made.status, 0, made.stderr)
        self.assertIn("heapline flame", made.stderr)
        self.assertEqual(again.status, 1)
        folded = run([HEAPLINE, "folded", held]).stdout
        self.assertIn(f"global_list;block of 56 B {planted.holders['global_list'][2]}\n", folded)
        flame = run([HEAPLINE, "flame", "-o", self.path("held.svg"), held])
        self.assertEqual(flame.status, 0, flame.stderr)

    def test_a_damaged_heap_is_said(self):
        with Kept("damaged") as planted:
            for options in (), ("--stop",):
                report = ask("-p", planted.pid, *options)
                self.expect_sums(report)
                self.assertTrue(any("did not fit together" in note for note in report["notes"]),
                                report["notes"])
                self.assertTrue(any("unscanned" in note for note in report["notes"]))

    def test_the_process_goes_on_as_before(self):
        with Kept() as planted:
            def pages():
                with open(f"/proc/{planted.pid}/statm", encoding="ascii") as file:
                    return file.read()
            before = pages()
            for options in (), ("--stop",):
                ask("-p", planted.pid, *options)
            self.assertEqual(pages(), before)
            harness.wait_until(lambda: harness.process_state(planted.pid) == "S", "the program to wait again")

    def test_a_python_is_read_to_the_sum(self):
        code = "import sys; kept = [bytearray(3000) for _ in range(500)]; print('ready', flush=True); sys.stdin.read()"
        python = need("python3")
        with Kept(command=["env", "PYTHONMALLOC=malloc", python, "-c", code]) as planted:
            report = ask("-p", planted.pid, "--stop")
            chain = ask("-p", planted.pid, "--stop", "--size", 3001)
        self.expect_sums(report)
        self.assertLess(report["total"]["lost_bytes"], report["total"]["live_bytes"] / 100)
        self.assertGreaterEqual(chain["total"]["selected_blocks"], 500)

    def test_a_process_with_much_memory_goes_on_before_all_is_read(self):
        with Kept(command=[need("python3"), "-c", MAPPED]) as planted:
            for options in ("--stop",), ():
                report = ask("-p", planted.pid, *options)
                self.expect_sums(report)
                self.assertEqual(any(BOUND in note for note in report["notes"]), bool(options), report["notes"])

    def test_what_cannot_be_read_is_said(self):
        self.assert_refused(run([HEAPLINE, "holders", "-p", "4194304"]), "4194304")
        with open(self.path("text"), "w", encoding="ascii") as file:
            file.write("no core\n" * 100)
        self.assert_refused(run([HEAPLINE, "holders", "--core", self.path("text")]), "core file")


if __name__ == "__main__":
    harness.main()
