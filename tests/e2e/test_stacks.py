# SPDX-License-Identifier: BSD-2-Clause
"""Stacks that are not what they seem."""

import json
import os
import shutil
from unittest import mock

import harness
from harness import folded

FRAMES_KEPT = 1024


def counts_by(stacks, function, of):
    """{how often ${of} stands on a stack: number}, over the stacks on which ${function} stands."""
    counts = {}
    for frames, number in stacks.items():
        if function in frames:
            depth = frames.count(of)
            counts[depth] = counts.get(depth, 0) + number
    return counts


class Stacks(harness.TestCase):
    def record_stacks(self, scenario, mode="mem-fast"):
        _, recording = self.record_well([harness.program("stacks"), scenario], mode)
        return recording

    def test_coroutines_on_their_own_stacks_are_never_mixed(self):
        recording = self.record_stacks("coroutines")
        stacks = folded(recording, "alloc", "bytes")
        of_turn = 211 * (67 + 71)
        # Coroutine n stands n * 3 + 1 frames deep; odd and even ones in functions of their own.
        self.assertEqual(counts_by(stacks, "even_deeper", "even_deeper"), {1: of_turn, 7: of_turn})
        self.assertEqual(counts_by(stacks, "odd_deeper", "odd_deeper"), {4: of_turn, 10: of_turn})
        for frames in stacks:
            self.assertFalse("even_deeper" in frames and "odd_deeper" in frames, frames)
            if "even_deeper" in frames or "odd_deeper" in frames:
                self.assertIn("coroutine_body", frames)
                # The C library's own names are in its debug package.
                if any("__libc_start_call_main" in other for other in stacks):
                    self.assertEqual(frames[0], "__start_context")
        self.assert_nothing_lost(recording)

    def test_stacks_after_longjmp_are_right(self):
        recording = self.record_stacks("longjmp")
        stacks = folded(recording, "alloc", "objects")
        self.assertEqual(counts_by(stacks, "leave", "dive"), {depth: 10 for depth in range(1, 101)})
        self.assertEqual(counts_by(stacks, "jump", "dive")[0], 1000)
        self.assert_nothing_lost(recording)

    def test_recursion_deeper_than_is_kept_keeps_the_leaf_side_and_says_truncated(self):
        recording = self.record_stacks("deep")
        stacks = folded(recording, "alloc", "objects")
        counts = counts_by(stacks, "recurse", "recurse")
        self.assertEqual(counts.pop(500), 17)
        (depth, number), = counts.items()
        self.assertEqual(number, 13)
        self.assertLessEqual(depth, FRAMES_KEPT)
        self.assertGreater(depth, FRAMES_KEPT - 8)
        self.assertEqual(harness.info(recording)["lost"]["truncated_stacks"], 13)

    def test_frames_that_grow_or_are_realigned_are_walked_through(self):
        recording = self.record_stacks("unusual-frames")
        stacks = folded(recording, "alloc", "objects")
        for frames in stacks:
            if "stack_site" in frames:
                self.assertIn("unusual_frames", frames)
                self.assertIn("main", frames)
        growing = {f: n for f, n in stacks.items() if "realigned_frame" not in f}
        self.assertEqual(counts_by(growing, "growing_frame", "growing_frame"),
                         {depth: 103 for depth in range(1, 7)})
        both = {f: n for f, n in stacks.items() if "realigned_and_growing_frame" in f}
        self.assertEqual(counts_by(both, "realigned_and_growing_frame",
                                   "realigned_and_growing_frame"),
                         {depth: 109 * 2 for depth in range(1, 6)})
        self.assertEqual(harness.under(stacks, "realigned_frame"), 107 * 3 + 109 * 5)
        self.assert_nothing_lost(recording)


class Exceptions(harness.TestCase):
    def test_exceptions_across_a_hundred_frames_leave_right_stacks(self):
        for mode in harness.RECORDING_MODES:
            _, recording = self.record_well([harness.program("exceptions")], mode)
            stacks = {frames: number
                      for frames, number in folded(recording, "alloc", "objects").items()
                      if any(f.startswith("climb_site(") for f in frames)}
            climbing = {f: n for f, n in stacks.items()
                        if not any("releases" in frame for frame in f)}
            climb = "climb(int)"
            by_depth = counts_by(climbing, "handle()", climb)
            self.assertEqual(by_depth.pop(0), 300)
            self.assertEqual(by_depth, {depth: 300 for depth in range(1, 101)})
            # Each destructor runs in the landing pad of its own frame, at its own depth.
            falling = {f: n for f, n in stacks.items() if f not in climbing}
            self.assertEqual(counts_by(falling, "handle()", climb),
                             {depth: 300 for depth in range(1, 101)})
            self.assert_nothing_lost(recording)


class Libraries(harness.TestCase):
    def setUp(self):
        super().setUp()
        # Names are to come from the files that lie there now.
        self.enterContext(mock.patch.dict(os.environ, HEAPLINE_SYMBOL_CACHE="off"))

    def test_libraries_at_one_address_after_each_other_are_told_apart(self):
        command = [harness.program("hot_reload"), "101", "-", harness.program("plugin_a.so"),
                   harness.program("plugin_b.so")]
        for mode in harness.RECORDING_MODES:
            result, recording = self.record_well(command, mode)
            self.assertGreater(json.loads(result.stdout)["coincidences"], 101)
            rows = harness.top_rows(recording, "alloc")
            for function, size in (("plugin_a_site", 101), ("plugin_b_site", 102)):
                self.assertEqual((rows[function]["cum_objects"], rows[function]["cum_bytes"]),
                                 (707, 707 * size), function)
            self.assert_nothing_lost(recording)

    def reload(self, rounds, path, *libraries):
        """A recording in which each library in turn was copied to the path, or is there, and was
        loaded."""
        for _ in range(10):  # a mapping of the recorder may have come between two of them
            result, recording = self.record_well(
                [harness.program("hot_reload"), str(rounds), path, *libraries], name="reload.hl")
            coincidences = json.loads(result.stdout)["coincidences"]
            if coincidences == rounds * len(libraries):
                break
        self.assertEqual(coincidences, rounds * len(libraries), "at other addresses")
        self.assert_nothing_lost(recording)
        return recording

    def modules_at(self, path, recording):
        return [module for module in harness.info(recording)["modules"] if module["path"] == path]

    def bytes_of_sites(self, recording):
        """{function: allocated bytes} of the rows that are named."""
        return {name: row["flat_bytes"] for name, row in harness.top_rows(recording, "alloc").items()
                if name.endswith("_site")}

    def test_a_library_copied_over_another_is_never_named_by_the_other(self):
        for suffix in ("", "_no_id", "_id1", "_id2", "_id6", "_id64", "_id300"):
            with self.subTest(suffix):
                libraries = [harness.program(f"plugin_{letter}{suffix}.so") for letter in "ab"]
                path = self.path("plugin.so")
                recording = self.reload(5, path, *libraries)
                # A copy of a file without a build id of its own is another one: it has another time.
                loads = 5 if suffix in ("", "_id64", "_id300") else 1
                self.assertEqual(len(self.modules_at(path, recording)), 10 // loads)
                self.assertEqual(self.bytes_of_sites(recording), {"plugin_b_site": loads * 7 * 102})
                shown = harness.run([harness.HEAPLINE, "top", "--value", "alloc", recording])
                self.assertRegex(shown.stdout, r"plugin\.so\+0x")
                self.assertRegex(shown.stdout + shown.stderr, "CHANGED .*: plugin.so;")
                shutil.copy(libraries[0], path)
                self.assertEqual(self.bytes_of_sites(recording),
                                 {"plugin_a_site": loads * 7 * 101} if loads > 1 else {})

    def test_a_library_loaded_again_unchanged_is_the_same_module(self):
        for suffix in ("", "_no_id", "_id1"):
            with self.subTest(suffix):
                path = self.path("plugin.so")
                shutil.copy(harness.program(f"plugin_a{suffix}.so"), path)
                recording = self.reload(50, "-", path)
                self.assertEqual(self.bytes_of_sites(recording), {"plugin_a_site": 50 * 7 * 101})
                self.assertEqual(len(self.modules_at(path, recording)), 1)

    def test_a_file_without_build_id_that_was_written_since_gives_no_names(self):
        path = self.path("plugin.so")
        shutil.copy(harness.program("plugin_a_no_id.so"), path)
        recording = self.reload(3, "-", path)
        self.assertEqual(self.bytes_of_sites(recording), {"plugin_a_site": 3 * 7 * 101})
        times = os.stat(path)
        shutil.copy(harness.program("plugin_b_no_id.so"), path)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        self.assertEqual(os.stat(path).st_size, times.st_size, "no difference but the names")
        self.assertEqual(self.bytes_of_sites(recording), {})
        shutil.copy(harness.program("plugin_a_no_id.so"), path)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        self.assertEqual(self.bytes_of_sites(recording), {"plugin_a_site": 3 * 7 * 101})


class DebugFrames(harness.TestCase):
    CALLERS = ("main", "growing_frame", "large_frame", "many_values", "leaf")

    def test_code_with_rules_in_debug_frame_alone_has_all_its_callers(self):
        for level in range(4):
            with self.subTest(level=level):
                program = harness.program(f"without_eh_frame_{level}")
                _, recording = self.record_well([program], name=f"{level}.hl")
                stacks = folded(recording, "alloc", "objects")
                callers = {tuple(f for f in frames if f in self.CALLERS): number
                           for frames, number in stacks.items() if "leaf" in frames}
                self.assertEqual(callers, {self.CALLERS: 101})
                self.assert_nothing_lost(recording)

    def test_frame_pointers_are_believed_where_functions_make_them(self):
        # On aarch64 all are taken to have records, as musl's do: that of growing_frame, for its alloca(), is the first.
        without = ("main", "leaf") if harness.machine() == harness.AARCH64 else ("leaf",)
        for level, frames in ((0, self.CALLERS), (2, without)):
            with self.subTest(level=level):
                program = self.path(f"without_rules_{level}")
                changed = harness.run([harness.need("objcopy"), "-R", ".debug_frame",
                                       harness.program(f"without_eh_frame_{level}"), program])
                self.assertEqual(changed.status, 0, changed.stderr)
                _, recording = self.record_well([program], name=f"{level}.hl")
                stacks = {tuple(f for f in stack if f in self.CALLERS): number
                          for stack, number in folded(recording, "alloc", "objects").items()
                          if "leaf" in stack}
                self.assertEqual(stacks, {frames: 101})
                self.assertEqual(harness.info(recording)["lost"]["incomplete_stacks"],
                                 101 if frames == ("leaf",) else 0)

    def test_code_without_any_rule_ends_the_stack_as_incomplete(self):
        program = self.path("without_rules")
        stripped = harness.run([harness.need("strip"), "-o", program,
                                harness.program("without_eh_frame_2")])
        self.assertEqual(stripped.status, 0, stripped.stderr)
        _, recording = self.record_well([program])
        stacks = folded(recording, "alloc", "objects")
        self.assertEqual([len(frames) for frames, number in stacks.items() if number == 101], [1])
        self.assertEqual(harness.info(recording)["lost"]["incomplete_stacks"], 101)


GO_PROGRAM = """package main

/*
#include <stdlib.h>
static void *keep_in_c(int bytes) { return malloc(bytes); }
*/
import "C"

//go:noinline
func call(n int) {
	if n == 0 {
		C.keep_in_c(1009)
		return
	}
	call(n - 1)
}

func main() {
	done := make(chan bool)
	for i := 0; i < 103; i++ {
		go func() { call(5); done <- true }()
		<-done
	}
}
"""


class BareFrames(harness.TestCase):
    """Functions without call frame information, or with some that does not know of other stacks."""

    def stacks_of(self, scenario, program=None):
        """The frames of the scenario's one stack, outermost first; how many stacks are incomplete."""
        _, recording = self.record_well([program or harness.program("bare_frames"), scenario],
                                        name=f"{scenario}.hl")
        frames, = (frames for frames, number in folded(recording, "alloc", "objects").items()
                   if "bare_site" in frames and number == 101)
        return frames, harness.info(recording)["lost"]["incomplete_stacks"]

    def test_calls_on_another_stack_have_their_callers_on_the_stack_before(self):
        for scenario, inner in (
                # The caller of a function that has no frame pointer of its own is left out.
                ("elsewhere", ("on_stack", "call_elsewhere", "go_on")),
                ("framed", ("on_stack", "wrapper", "call_framed", "go_on")),
                ("handed", ("on_stack", "wrapper", "call_handed", "go_on"))):
            with self.subTest(scenario):
                frames, incomplete = self.stacks_of(scenario)
                self.assertEqual(frames[frames.index("main"):],
                                 ("main", scenario, "change_stacks") + inner * 3 +
                                 ("on_stack", "bare_site"))
                self.assertEqual(incomplete, 0)

    def test_frame_pointers_made_in_other_ways_are_believed_and_no_others(self):
        frames, incomplete = self.stacks_of("mixed")
        self.assertEqual(frames[frames.index("main"):],
                         ("main", "mixed", "call_mixed", "middle", "call_stored", "bare_site"))
        self.assertEqual(incomplete, 0)
        self.assertEqual(self.stacks_of("unframed"), (("call_unframed", "bare_site"), 101))

    def test_frame_pointers_of_functions_without_a_size_in_a_static_program_are_believed(self):
        """Such is frame_dummy() of gcc, which calls what allocates since gcc 13."""
        program = self.path("unsized")
        unsized = [option for name in ("call_mixed", "call_stored") for option in ("-N", name)]
        made = harness.run([harness.need("objcopy"), *unsized, harness.program("bare_frames_static"), program])
        self.assertEqual(made.status, 0, made.stderr)
        frames, incomplete = self.stacks_of("mixed", program)
        self.assertEqual([name for name in frames[frames.index("main"):] if "+0x" not in name],
                         ["main", "mixed", "middle", "bare_site"])
        self.assertEqual(incomplete, 0)

    def test_stacks_that_start_where_no_call_returns_are_complete(self):
        for scenario, start in (("started-by-jump", "start_by_jump"),
                                ("started-by-nop", "start_by_nop")):
            with self.subTest(scenario):
                self.assertEqual(self.stacks_of(scenario), ((start, "coroutine", "bare_site"), 0))

    def test_c_called_by_go_has_its_callers_in_go(self):
        go = harness.need("go")
        harness.need("gcc")
        with open(self.path("main.go"), "w", encoding="utf-8") as file:
            file.write(GO_PROGRAM)
        for flags in ("", "-s -w"):  # without symbols, Go's own table has the names
            with self.subTest(flags=flags):
                program = self.path("program" + flags.replace(" ", ""))
                built = harness.run([go, "build", "-ldflags", flags, "-o", program,
                                     self.path("main.go")],
                                    env={"HOME": self.path("home"), "GO111MODULE": "off",
                                         "CGO_ENABLED": "1"})
                if built.status != 0:
                    self.skipTest("go cannot build with C here: " + built.stderr)
                _, recording = self.record_well([program], name=f"{flags}.hl")
                called = {frames: number
                          for frames, number in folded(recording, "alloc", "objects").items()
                          if "main.call" in frames}
                self.assertEqual(sum(called.values()), 103)
                for frames in called:
                    self.assertEqual(frames[0], "runtime.goexit")
                    self.assertEqual(frames.count("main.call"), 6)
                    # Go calls it, and it is or calls what is in C: without symbols, nameless where Go's table ends before it.
                    called_in_c = frames[frames.index("main._Cfunc_keep_in_c") + 1:]
                    self.assertIn("cgocall", "".join(called_in_c[:2]))
                    self.assertIn("Cfunc_keep_in_c" if not flags else "", frames[-2])
                # Threads are made on stacks of the scheduler, in functions that never return.
                self.assertLess(harness.info(recording)["lost"]["incomplete_stacks"], 20)


if __name__ == "__main__":
    harness.main()
