# SPDX-License-Identifier: BSD-2-Clause
"""Allocators that programs call by names of their own."""

import os
import subprocess

import attaching
import harness

# Function: blocks and bytes that it allocates, blocks that are left of them (every second one).
SITES = {
    "plain_site": (101, 17, 50),
    "clear_site": (103, 21, 52),
    "aligned_site": (107, 23, 53),
    "text_site": (113, 12, 56),
}
OWN_HEAPS = """
#include <stdio.h>
int mi_version(void) { return 209; }
__attribute__((noipa)) void *mi_heap_new(void) { return (void *)mi_version; }
__attribute__((noipa)) void mi_heap_destroy(void *heap) { (void)heap; }
int main(void) { CALL puts("ready"); fflush(stdout); return getchar() == 'x'; }
"""
RESIZED = ("resize_site", 109, 29, 3001, 55)


class Families(harness.TestCase):
    def assert_counts(self, family, extra=0):
        """${extra}: bytes that the allocator adds to each block."""
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                _, recording = self.record_well([harness.program(f"families_{family}")], mode)
                self.assert_sites(recording, family, extra)
                self.assert_nothing_lost(recording)
                self.assertEqual(harness.info(recording)["lost"]["unmatched_frees"], 0)
                if family != "forwarding":
                    row = harness.top_rows(recording, "alloc")["foreign_site"]
                    self.assertEqual((row["flat_objects"], row["flat_bytes"]), (151, 151 * 41))
                    self.assertNotIn("foreign_site", harness.top_rows(recording, "inuse"))

    def assert_sites(self, recording, family, extra):
        alloc = harness.top_rows(recording, "alloc")
        inuse = harness.top_rows(recording, "inuse")
        for site, (objects, size, left) in SITES.items():
            if family in ("jemalloc", "absent") and site == "plain_site":
                left -= 1  # one is freed by the function that is told the size
            add = 0 if not extra else 256 if site == "aligned_site" else extra
            self.assert_row(alloc, site, objects, objects * (size + add))
            self.assert_row(inuse, site, left, left * (size + add))
        site, objects, before, after, left = RESIZED
        self.assert_row(alloc, site, 2 * objects, objects * (before + after + 2 * extra))
        self.assert_row(inuse, site, left, left * (after + extra))

    def assert_row(self, rows, site, objects, size):
        row = rows[site]
        self.assertEqual((row["cum_objects"], row["cum_bytes"]), (objects, size), site)

    def test_mimalloc_is_recorded(self):
        self.assert_counts("mimalloc")

    def test_heaps_of_mimalloc_are_recorded_and_take_their_blocks_along(self):
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                _, recording = self.record_well([harness.program("families_mimalloc")], mode)
                alloc, inuse = (harness.top_rows(recording, value) for value in ("alloc", "inuse"))
                self.assert_row(alloc, "destroyed_site", 2 * 131, 131 * (37 + 3001))
                self.assertNotIn("destroyed_site", inuse)
                self.assert_row(alloc, "aligned_away_site", 8 * 19, 8 * 19 * 53)
                self.assertNotIn("aligned_away_site", inuse)
                self.assertNotIn("heaps_site", inuse)
                self.assertEqual(harness.info(recording)["lost"]["unmatched_frees"], 0)
                self.assert_row(inuse, "deleted_site", 137, 137 * 47)

    def test_heaps_of_threads_and_copied_texts_of_mimalloc_3_are_recorded(self):
        _, recording = self.record_well([harness.program("families_mimalloc")])
        alloc, inuse = (harness.top_rows(recording, value) for value in ("alloc", "inuse"))
        if "thread_heap_site" not in alloc:
            self.skipTest("this mimalloc has no heaps of threads")
        self.assert_row(alloc, "thread_heap_site", 5 * 139, 139 * (59 + 61 + 3001 + 11 + 67))
        self.assert_row(inuse, "thread_heap_site", 2 * 139, 139 * (59 + 3001))
        self.assert_row(alloc, "copied_text_site", 2 * 149, 149 * (12 + 7))
        self.assert_row(inuse, "copied_text_site", 149, 149 * 12)
        self.assertEqual(harness.info(recording)["lost"]["unmatched_frees"], 0)

    def test_functions_that_a_later_allocator_adds_are_recorded_where_they_are_known(self):
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                _, recording = self.record_well([harness.program("later")], mode)
                alloc, inuse = (harness.top_rows(recording, value) for value in ("alloc", "inuse"))
                self.assert_row(alloc, "heap_site", 101, 101 * 17)
                self.assert_row(inuse, "heap_site", 50 - 11, (50 - 11) * 17)
                self.assert_row(inuse, "resize_site", 11, 11 * 1009)
                self.assert_row(inuse, "text_site", 53, 53 * 12)
                self.assertEqual(harness.info(recording)["lost"]["unmatched_frees"], 0)

    def test_a_thread_is_recorded_after_a_new_handler_has_thrown(self):
        _, recording = self.record_well([harness.program("throwing")])
        inuse = harness.top_rows(recording, "inuse")
        self.assert_row(inuse, "after_site", 127, 127 * 19)
        self.assert_row(inuse, "resize_site", 1, 300 << 10)
        self.assertNotIn("before_site", inuse)
        self.assertNotIn("freed_site", inuse)
        self.assertEqual(harness.info(recording)["lost"]["unmatched_frees"], 0)
        self.assert_nothing_lost(recording)

    def test_jemalloc_is_recorded(self):
        self.assert_counts("jemalloc")

    def test_tcmalloc_is_recorded(self):
        self.assert_counts("tcmalloc")

    def test_a_block_that_is_resized_to_nothing_is_freed(self):
        _, recording = self.record_well([harness.program("families_tcmalloc")])
        self.assertEqual(harness.top_rows(recording, "alloc")["zero_site"]["cum_objects"], 127)
        self.assertNotIn("zero_site", harness.top_rows(recording, "inuse"))

    def test_an_allocator_that_calls_malloc_is_not_counted_twice(self):
        self.assert_counts("forwarding", extra=32)

    def test_nor_when_the_mode_was_closed_at_first(self):
        _, recording = self.record_well([harness.program("families_forwarding"), "closed"], "closed")
        self.assert_sites(recording, "forwarding", extra=32)
        self.assert_nothing_lost(recording)
        self.assertEqual(harness.info(recording)["lost"]["unmatched_frees"], 0)

    def test_malloc_takes_the_place_of_an_allocator_that_is_not_there(self):
        self.assert_counts("absent")

    def test_an_allocator_within_the_program_is_named_with_what_helps(self):
        program = harness.program("own_names")
        result, recording = self.record_well(["sh", "-c", '"$1"; "$1"', "sh", program])
        sentence = (f"'{program}' has an allocator of its own linked into it ('mi_malloc'), whose allocations are not "
                    "seen; 'heapline stacks -p PID' traces them while it runs")
        self.assertIn(f"heapline: {sentence}", result.stderr)
        self.assertEqual(harness.info(recording)["recording"]["warnings"], [sentence])

    def test_an_allocator_that_nothing_names_is_said_to_be_there(self):
        program = harness.program("hidden_allocator")
        if not os.path.exists(program):
            self.skipTest("libjemalloc_pic.a or objcopy is not here")
        said = f"'{program}' has jemalloc built in, none of whose functions it names"
        recorded = subprocess.run(harness.record_command(self.path("hidden.hl"), [program]), input="\n", text=True,
                                  capture_output=True, check=True, timeout=harness.TIMEOUT_S)
        self.assertIn(said, recorded.stderr)
        self.assertIn(said, harness.run([harness.HEAPLINE, "top", self.path("hidden.hl")]).stdout)
        doctor = harness.run([harness.HEAPLINE, "doctor", "--", program]).stdout
        self.assertRegex(doctor, r"record +partly[^\n]*\n(.*\n)*record: calls of jemalloc, which the program has built in")
        with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            self.assertEqual(process.stdout.readline(), b"ready\n")
            doctor = harness.run([harness.HEAPLINE, "doctor", "-p", str(process.pid)]).stdout
            attached = harness.run([harness.HEAPLINE, "attach", "-p", str(process.pid), "-d", "0.1", "-o", self.path("attached.hl")])
            heap = harness.run([harness.HEAPLINE, "heap", "--json", "-p", str(process.pid)])
            process.stdin.close()
        if attached.status == 0:
            self.assertIn(said, attached.stderr)
            self.assertRegex(doctor, r"attach +partly[^\n]*\n(.*\n)*attach: calls of jemalloc, which the program has built in")
        if heap.status == 0:
            self.assertIn("jemalloc", heap.stdout)

    def test_a_program_that_knows_allocators_by_their_texts_has_none_of_them(self):
        stripped = self.path("stripped")
        subprocess.run([harness.need("strip"), "-o", stripped, harness.HEAPLINE], check=True)
        doctor = harness.run([harness.HEAPLINE, "doctor", "--", stripped]).stdout
        self.assertRegex(doctor, r"\nrecord +yes ")
        self.assertNotIn("built in", doctor)

    def test_functions_of_an_allocator_that_are_not_known_are_named(self):
        program = harness.program("later")
        result, recording = self.record_well([program])
        sentence = (f"'{program}' calls functions of an allocator that this heapline does not know (mi_later_free, "
                    "mi_later_malloc); what they allocate and free is not seen")
        said = harness.info(recording)["recording"]["warnings"]
        self.assertIn(said, ([sentence], [sentence.replace("mi_later_free, mi_later_malloc", "mi_later_malloc, mi_later_free")]))
        self.assertIn(f"heapline: {said[0]}", result.stderr)
        doctor = harness.run([harness.HEAPLINE, "doctor", "--", program]).stdout
        self.assertIn("which this heapline does not know", doctor)

    def test_what_is_said_to_help_with_such_an_allocator_helps(self):
        harness.need_root()
        with subprocess.Popen([harness.program("own_names"), "on"]) as process:
            try:
                result = harness.run([harness.HEAPLINE, "stacks", "--json", "-p", str(process.pid), "1"])
            finally:
                process.kill()
        if result.status != 0:
            self.skipTest(result.stderr.strip())
        self.assertIn('"main"', result.stdout)


class Attached(attaching.TestCase):
    """What attach sees of them."""

    def record_attached(self, name, own_frees):
        """OWN_FREES: calls by which the allocator frees what it has made itself, unseen."""
        environment = dict(os.environ, FAMILIES_WAIT="1")
        with subprocess.Popen([harness.program(name)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True, env=environment) as process:
            process.stdout.readline()
            with self.attached(process.pid):
                process.stdin.close()
                process.wait(harness.TIMEOUT_S)
        self.assertLessEqual(harness.info(self.recording)["lost"]["unmatched_frees"], own_frees)
        return (harness.top_rows(self.recording, value) for value in ("alloc", "inuse"))

    def assert_row(self, rows, site, objects, size):
        self.assertEqual((rows[site]["cum_objects"], rows[site]["cum_bytes"]), (objects, size), site)

    def assert_sites(self, name, frees_one=False, own_frees=0):
        alloc, inuse = self.record_attached(name, own_frees)
        for site, (objects, size, left) in SITES.items():
            left -= frees_one and site == "plain_site"
            self.assert_row(alloc, site, objects, objects * size)
            self.assert_row(inuse, site, left, left * size)
        site, objects, before, after, left = RESIZED
        self.assert_row(alloc, site, 2 * objects, objects * (before + after))
        self.assert_row(inuse, site, left, left * after)
        return alloc, inuse

    def test_mimalloc(self):
        alloc, inuse = self.assert_sites("families_mimalloc", own_frees=4)  # heaps
        self.assert_row(inuse, "deleted_site", 137, 137 * 47)
        self.assertIn("destroyed_site", inuse)
        self.assertEqual(harness.info(self.recording)["recording"]["warnings"],
                         ["blocks that 'mi_heap_destroy' frees count as in use to the end; 'heapline record' sees them freed"])
        if "thread_heap_site" in alloc:
            self.assert_row(alloc, "thread_heap_site", 5 * 139, 139 * (59 + 61 + 3001 + 11 + 67))
            self.assert_row(inuse, "thread_heap_site", 2 * 139, 139 * (59 + 3001))
            self.assert_row(alloc, "copied_text_site", 2 * 149, 149 * (12 + 7))
            self.assert_row(inuse, "copied_text_site", 149, 149 * 12)

    def test_a_heap_that_nobody_makes_is_not_warned_of(self):
        """A program that mimalloc is linked into has the function that ends heaps, whether it calls that or not."""
        for calls in (False, True):
            with self.subTest(calls=calls):
                with open(self.path("own.c"), "w", encoding="ascii") as file:
                    file.write(OWN_HEAPS.replace("CALL", "mi_heap_destroy(mi_heap_new());" if calls else ""))
                subprocess.run([harness.need("gcc"), "-O1", "-o", self.path("own"), self.path("own.c")], check=True)
                with harness.Waiting([self.path("own")]) as process:
                    harness.run([harness.HEAPLINE, "attach", "-f", "-p", str(process.pid), "-d", "0.1", "-o", self.path("own.hl")])
                warnings = harness.info(self.path("own.hl"))["recording"]["warnings"]
                self.assertEqual(len([text for text in warnings if "'mi_heap_destroy' frees" in text]), calls, warnings)

    def test_jemalloc(self):
        self.assert_sites("families_jemalloc", frees_one=True)
        self.assertEqual(harness.info(self.recording)["recording"]["warnings"], [])

    def test_tcmalloc(self):
        self.assert_sites("families_tcmalloc")


if __name__ == "__main__":
    harness.main()
