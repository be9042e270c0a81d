# SPDX-License-Identifier: BSD-2-Clause
"""Programs that are run with another environment than heapline's, and children that run unrecorded."""

import os
import subprocess

import harness

LEAF_BYTES = 107 * 23  # what `lifecycle leaf` allocates at leaf_site

REPLACING = ("execve", "execv", "execvp", "execvpe", "execl", "execlp", "execle", "fexecve", "execveat",
             "number", "number-at", "many-variables")
STARTING = ("posix_spawn", "posix_spawnp", "vfork", "fork", "system", "popen")
REPLACED = "replaced by exec"


class Execs(harness.TestCase):
    def run_leaf(self, how, options=()):
        leaf = [harness.program("lifecycle"), "leaf"]
        return self.record_well([harness.program("execs"), how, *leaf], options=options)

    def leaf_bytes(self, recording):
        return harness.top_rows(recording, "alloc").get("leaf_site", {"cum_bytes": 0})["cum_bytes"]

    def unrecorded(self, recording):
        return harness.info(recording)["lost"]["unrecorded_children"]

    def ends(self, recording):
        return [row["end"] for row in harness.processes(recording)]

    def test_a_program_is_recorded_however_it_replaces_another(self):
        for how in REPLACING:
            with self.subTest(how=how):
                result, recording = self.run_leaf(how)
                self.assertEqual(self.leaf_bytes(recording), LEAF_BYTES)
                self.assertEqual(self.ends(recording), [REPLACED, "exited with status 0"])
                self.assertEqual(self.unrecorded(recording), 0)
                self.assertNotIn("unrecorded", result.stderr)

    def test_an_environment_that_has_no_room_for_more_is_passed_on_as_it_is(self):
        result, recording = self.run_leaf("full-environment")
        self.assertEqual(self.leaf_bytes(recording), 0)
        self.assertIn("went on as 'lifecycle', unrecorded", result.stderr)

    def test_a_program_is_recorded_however_it_is_started(self):
        for how in STARTING:
            with self.subTest(how=how):
                result, recording = self.run_leaf(how)
                self.assertEqual(self.leaf_bytes(recording), LEAF_BYTES)
                self.assertEqual(self.unrecorded(recording), 0)
                self.assertNotIn("unrecorded", result.stderr)

    def test_a_filter_that_a_child_by_vfork_installs_is_its_own(self):
        """Its program lives, unrecorded; the parent is recorded as before, and so is what it starts."""
        _, recording = self.run_leaf("vfork-filter")
        self.assertEqual(self.leaf_bytes(recording), LEAF_BYTES)
        self.assertEqual(self.unrecorded(recording), 1)
        self.assertNotIn("forbidden itself", harness.run([harness.HEAPLINE, "info", recording]).stdout)

    def test_children_by_vfork_leave_one_mapping_at_most_in_their_parent(self):
        _, recording = self.run_leaf("many-by-vfork")
        self.assertEqual(self.leaf_bytes(recording), 11 * LEAF_BYTES)

    def test_a_signal_handler_that_jumps_out_of_system_leaves_a_valid_environment(self):
        _, recording = self.run_leaf("jump")
        self.assertEqual(self.leaf_bytes(recording), LEAF_BYTES)

    def test_another_library_may_take_the_place_of_exit_too(self):
        other = os.path.abspath(harness.program("other_exit.so"))
        result, _ = self.record(["env", f"LD_PRELOAD={other}", harness.program("execs"), "exit-at-once"])
        self.assertEqual(result.status, 24, result.stderr)

    def test_the_shell_of_a_program_with_threads_is_counted_when_it_cannot_be_recorded(self):
        result, recording = self.run_leaf("system-with-threads")
        # The shell is not recorded; the program that it becomes finds no recorder either.
        self.assertEqual(self.leaf_bytes(recording), 0)
        self.assertEqual(self.unrecorded(recording), 1)
        self.assertIn(", 1 child ran unrecorded, at most", result.stderr)

    def test_a_call_of_exec_that_fails_changes_nothing(self):
        result, recording = self.record_well([harness.program("execs"), "failures"])
        self.assertEqual(self.ends(recording), ["exited with status 0"])
        self.assertEqual(self.unrecorded(recording), 0)
        self.assertNotIn("unrecorded", result.stderr)

    def test_wrappers_that_set_the_list_of_libraries_keep_their_own_after_the_recorder(self):
        other = os.path.abspath(harness.program("plugin_a.so"))
        perl = [harness.need("perl"), "-e", "print $ENV{LD_PRELOAD}"]
        for wrapper in (["env", f"LD_PRELOAD={other}"], ["env", "-i", f"LD_PRELOAD={other}"],
                        ["sh", "-c", f'LD_PRELOAD={other}; export LD_PRELOAD; exec "$@"', "sh"]):
            with self.subTest(wrapper=wrapper):
                result, recording = self.record_well([*wrapper, *perl])
                first, rest = result.stdout.split(":")
                self.assertIn("libheapline.so", first)
                self.assertEqual(rest, other)
                self.assertIn("perl", harness.processes(recording)[-1]["command"])

    def test_an_environment_that_is_complete_is_passed_on_as_it_is(self):
        script = 'env; exec sh -c env'
        result, _ = self.record_well(["sh", "-c", script])
        preloads = [line for line in result.stdout.splitlines() if line.startswith("LD_PRELOAD=")]
        self.assertEqual(len(preloads), 2)
        self.assertEqual(preloads[0], preloads[1])

    def test_a_recording_within_a_recording_is_left_alone(self):
        inner = self.path("inner.hl")
        leaf = [harness.program("lifecycle"), "leaf"]
        _, outer = self.record_well(harness.record_command(inner, leaf))
        self.assertEqual(self.leaf_bytes(inner), LEAF_BYTES)
        self.assertEqual(self.leaf_bytes(outer), 0)

    def test_a_program_is_left_alone_when_it_is_given_an_empty_socket(self):
        asan = harness.program("hello_asan")
        result, recording = self.record(["env", "-u", "LD_PRELOAD", "HEAPLINE_SOCKET=", asan])
        self.assertEqual(result.stdout, "hello\n", result.stderr)
        self.assert_went_on(result, recording, "hello_asan")

    def test_without_following_the_report_says_what_went_on(self):
        leaf = [harness.program("lifecycle"), "leaf"]
        result, recording = self.record_well([harness.program("execs"), "execve", *leaf],
                                             options=["--no-follow"])
        self.assert_went_on(result, recording, "lifecycle")
        self.assertEqual(self.unrecorded(recording), 0)

    def assert_went_on(self, result, recording, name):
        (process,) = harness.processes(recording)
        sentence = f"went on as '{name}', unrecorded"
        self.assertEqual(process["end"], f"{REPLACED}, {sentence}")
        self.assertIn(f"heapline: pid {process['pid']} {sentence}\n", result.stderr)
        shown = harness.run([harness.HEAPLINE, "top", recording]).stdout
        self.assertIn(f"UNSEEN: pid {process['pid']} {sentence}\n", shown)

    def test_a_program_that_becomes_a_static_one_does_not_get_its_exit_status(self):
        static = harness.program("hello_static")
        for how in ("execve", "number"):
            with self.subTest(how=how):
                result, recording = self.record([harness.program("execs"), how, static])
                self.assert_went_on(result, recording, "hello_static")

    def test_a_program_that_goes_on_behind_the_hooks_is_found_while_it_runs(self):
        sleep = harness.need("sleep")
        result, recording = self.record_well([harness.program("execs"), "instruction", sleep, "3"])
        self.assert_went_on(result, recording, "sleep")

    def test_static_children_are_counted(self):
        static = harness.program("hello_static")
        for how in ("posix_spawn", "posix_spawnp", "vfork", "fork"):
            with self.subTest(how=how):
                _, recording = self.record([harness.program("execs"), how, static])
                self.assertEqual(self.unrecorded(recording), 1)
        _, recording = self.record(["sh", "-c", '"$1"; "$1"; "$1"; true', "sh", static])
        self.assertEqual(self.unrecorded(recording), 3)

    def assert_one_child_is_missing(self, how, *program):
        """That is said once, with the reason where it is known."""
        result, recording = self.record([harness.program("execs"), how, *program])
        if result.status == 77:
            self.skipTest("a child may not leave the network namespace")
        self.assertEqual(result.status, 0, result.stderr)
        self.assertEqual(self.unrecorded(recording), 1)
        shown = harness.run([harness.HEAPLINE, "tree", recording]).stdout
        has_reason = "was not recorded: " in shown
        self.assertEqual("was not recorded: " in result.stderr, has_reason)
        self.assertEqual(", 1 child ran unrecorded, at most" in result.stderr, not has_reason)
        self.assertEqual("UNSEEN: 1 child ran unrecorded\n" in shown, not has_reason)

    def test_children_in_another_network_namespace_are_counted(self):
        leaf = [harness.program("lifecycle"), "leaf"]
        self.assert_one_child_is_missing("other-network")
        self.assert_one_child_is_missing("other-network", *leaf)

    def test_children_that_may_open_no_file_at_all_are_counted(self):
        self.assert_one_child_is_missing("no-descriptors")

    def test_children_of_a_time_when_the_collector_was_stopped_are_counted(self):
        self.assert_one_child_is_missing("stopped")

    def test_namespaces_of_libraries_are_named(self):
        result, recording = self.record_well([harness.program("execs"), "namespace"])
        sentence = "asked for 1 namespace by dlmopen()"
        self.assertIn(sentence, result.stderr)
        self.assertIn(sentence, harness.info(recording)["recording"]["warnings"][0])
        self.assertEqual(harness.top_rows(recording, "alloc")["in_namespace"]["flat_bytes"], 41)

    def test_processes_are_named_by_the_titles_that_they_had_at_the_end(self):
        _, recording = self.record_well([harness.program("execs"), "titles"])
        commands = [row["command"] for row in harness.processes(recording)]
        own = f"{harness.program('execs')} titles"
        self.assertEqual(commands, [own, "server: checkpointer", "server: writer", f"[worker] {own}"])

    def test_a_recording_that_goes_on_is_not_called_interrupted(self):
        recording = self.path("goes-on.hl")
        with subprocess.Popen(harness.record_command(recording, ["sleep", "100"]),
                              stderr=subprocess.DEVNULL) as recorder:
            try:
                harness.wait_until(lambda: harness.run(
                    [harness.HEAPLINE, "info", recording]).status == 0, "the recording's beginning")
                head = harness.info(recording)["recording"]
                self.assertEqual((head["complete"], head["running"]), (False, True))
                shown = harness.run([harness.HEAPLINE, "info", recording]).stdout
                self.assertIn("running: ", shown)
                self.assertNotIn("interrupted", shown)
            finally:
                recorder.kill()
        shown = harness.run([harness.HEAPLINE, "info", recording]).stdout
        self.assertIn("INCOMPLETE: the recording was interrupted", shown)
        self.assertNotIn("running: ", shown)


if __name__ == "__main__":
    harness.main()
