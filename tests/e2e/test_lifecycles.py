# SPDX-License-Identifier: BSD-2-Clause
"""Processes that fork, exec, are spawned, become daemons, or cut themselves off."""

import os
import sys

import harness

PARENT = ("parent_site", 1009, 17)
CHILD = ("child_site", 103, 19)
LEAF = ("leaf_site", 107, 23)
NOBODY = 65534

# Forty children that live until the last one has begun; then the program says how many files it may open.
AT_ONCE = """
import os, resource, signal
ready, begun = os.pipe()
children = []
for _ in range(40):
    children.append(os.fork())
    if not children[-1]:
        bytearray(1000)
        os.write(begun, b"x")
        signal.pause()
for child in children:
    os.read(ready, 1)
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


# A program on a file system of its own, which can be unmounted soon after it has ended.
UNMOUNTING = """
import ctypes, os, shutil, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
folder, command = sys.argv[1:]
assert libc.mount(b"none", os.fsencode(folder), b"tmpfs", 0, None) == 0, os.strerror(ctypes.get_errno())
program = os.path.join(folder, "program")
shutil.copy(command, program)
subprocess.run([program], check=True)
for _ in range(600):
    if libc.umount2(os.fsencode(folder), 0) == 0:
        break
    time.sleep(0.05)
else:
    raise SystemExit("it is busy")
"""


class Lifecycle(harness.TestCase):
    def run_scenario(self, scenario, *arguments, mode="mem-fast", options=()):
        command = [harness.program("lifecycle"), scenario, *arguments]
        plain = harness.run(command)
        self.assertEqual(plain.status, 0, plain.stderr)
        result, recording = self.record_well(command, mode, options)
        self.assertEqual(result.stdout, plain.stdout)
        return recording

    def assert_entry(self, recording, entry, site, times=1):
        """Process number ${entry} of the recording has ${times} times the counts of a site."""
        function, objects, size = site
        rows = harness.top_rows(recording, "alloc", entry)
        row = rows.get(function, {"cum_objects": 0, "cum_bytes": 0})
        self.assertEqual((row["cum_objects"], row["cum_bytes"]),
                         (objects * times, objects * times * size), f"{function} of entry {entry}")

    def assert_sum(self, recording, *sites_and_times):
        """All processes together have exactly these counts."""
        rows = harness.top_rows(recording, "alloc")
        for function, objects, size in (PARENT, CHILD, LEAF):
            times = dict((site[0], n) for site, n in sites_and_times).get(function, 0)
            row = rows.get(function, {"cum_objects": 0, "cum_bytes": 0})
            self.assertEqual((row["cum_objects"], row["cum_bytes"]),
                             (objects * times, objects * times * size), function)

    def assert_parent_and_child(self, recording):
        self.assert_entry(recording, 0, PARENT)
        self.assert_entry(recording, 1, CHILD)
        self.assert_sum(recording, (PARENT, 1), (CHILD, 1))

    def test_a_forked_child_has_an_entry_of_its_own(self):
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                recording = self.run_scenario("fork", mode=mode)
                self.assert_parent_and_child(recording)
                self.assert_nothing_lost(recording)

    def test_a_child_that_leaves_by__exit_is_recorded(self):
        self.assert_parent_and_child(self.run_scenario("fork-_exit"))

    def test_grandchildren_have_entries_of_their_own(self):
        recording = self.run_scenario("fork-twice")
        self.assert_entry(recording, 0, PARENT)
        self.assert_entry(recording, 1, CHILD)
        self.assert_entry(recording, 2, CHILD)
        self.assert_sum(recording, (PARENT, 1), (CHILD, 2))

    def test_children_of_a_program_that_has_become_another_user_are_recorded(self):
        harness.need_root()
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                recording = self.run_scenario("change-user", mode=mode)
                self.assert_entry(recording, 0, PARENT)
                self.assert_entry(recording, 1, CHILD)
                self.assert_entry(recording, 2, CHILD)
                self.assert_sum(recording, (PARENT, 1), (CHILD, 2))
                self.assertEqual(harness.info(recording)["recording"]["warnings"], [])

    def test_a_program_that_another_user_runs_is_recorded(self):
        harness.need_other_user(NOBODY)
        command = [harness.need("setpriv"), f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
                   harness.program("lifecycle"), "exec"]
        _, recording = self.record_well(command)
        self.assert_sum(recording, (PARENT, 1), (LEAF, 1))
        self.assertEqual(harness.info(recording)["recording"]["warnings"], [])

    def test_forks_while_other_threads_allocate_neither_hang_nor_miscount(self):
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                recording = self.run_scenario("fork-storm", mode=mode)
                self.assert_entry(recording, 0, PARENT)
                self.assert_sum(recording, (PARENT, 1), (CHILD, 53))
                self.assertEqual(len(harness.processes(recording)), 54)

    def test_a_child_that_frees_inherited_blocks_leaves_the_parents_figures_alone(self):
        recording = self.run_scenario("free-in-child")
        self.assert_parent_and_child(recording)
        lost = harness.info(recording, 1)["lost"]
        self.assertEqual((lost["inherited_frees"], lost["unmatched_frees"]), (211, 0))
        self.assertEqual(harness.info(recording, 0)["lost"]["inherited_frees"], 0)
        packed = self.path("packed.hlp")
        harness.run([harness.HEAPLINE, "pack", "-o", packed, recording])
        self.assertEqual(harness.info(packed, 1)["lost"], lost)
        self.assertEqual(harness.info(packed, 0)["lost"]["inherited_frees"], 0)

    def test_a_program_execed_after_vfork_is_recorded(self):
        recording = self.run_scenario("vfork-exec")
        self.assert_sum(recording, (PARENT, 1), (LEAF, 1))

    def test_a_spawned_program_is_recorded(self):
        recording = self.run_scenario("posix-spawn")
        self.assert_sum(recording, (PARENT, 1), (LEAF, 1))

    def test_a_program_run_by_system_is_recorded(self):
        recording = self.run_scenario("system")
        self.assert_sum(recording, (PARENT, 1), (LEAF, 1))

    def test_a_program_that_replaces_itself_has_two_entries(self):
        recording = self.run_scenario("exec")
        self.assert_entry(recording, 0, PARENT)
        self.assert_entry(recording, 1, LEAF)
        self.assert_sum(recording, (PARENT, 1), (LEAF, 1))

    def test_a_program_that_is_execed_without_environment_is_recorded(self):
        recording = self.run_scenario("exec-without-environment")
        self.assert_sum(recording, (PARENT, 1), (LEAF, 1))

    def test_a_program_that_has_ended_does_not_keep_its_file_system_mounted(self):
        harness.need_root()
        folder = self.path("mounted")
        os.mkdir(folder)
        self.record_well([harness.need("unshare"), "-m", sys.executable, "-c", UNMOUNTING, folder, harness.need("true")])

    def test_no_follow_records_the_first_program_alone(self):
        recording = self.run_scenario("fork", options=["--no-follow"])
        self.assert_sum(recording, (PARENT, 1))
        recording = self.run_scenario("posix-spawn", options=["--no-follow"])
        self.assert_sum(recording, (PARENT, 1))

    def test_record_waits_for_a_daemon_when_asked_to(self):
        recording = self.run_scenario("daemon", options=["--wait"])
        self.assert_sum(recording, (PARENT, 1), (CHILD, 1))

    def test_record_that_waits_records_a_daemon_of_another_user(self):
        harness.need_root()
        recording = self.run_scenario("daemon-of-another-user", options=["--wait"])
        self.assert_sum(recording, (PARENT, 1), (CHILD, 1))

    def test_a_program_that_closes_all_files_is_recorded(self):
        self.assert_parent_and_child(self.run_scenario("close-all-files"))

    def test_a_program_that_clears_its_environment_is_recorded_with_its_children(self):
        self.assert_parent_and_child(self.run_scenario("clear-environment"))

    def test_a_program_that_changes_its_root_is_recorded_with_its_children(self):
        harness.need_root()
        empty = self.path("root")
        os.mkdir(empty)
        self.assert_parent_and_child(self.run_scenario("chroot", empty))

    def test_children_of_a_program_that_may_not_open_files_are_recorded(self):
        self.assert_parent_and_child(self.run_scenario("few-files"))

    def test_children_of_a_program_that_may_open_one_file_more_are_recorded(self):
        self.assert_parent_and_child(self.run_scenario("one-more-file"))

    def test_more_processes_at_a_time_than_descriptors_may_be_open_are_recorded(self):
        few = ["sh", "-c", 'ulimit -Sn 64; exec "$@"', "-"]
        command = harness.record_command(self.path("test.hl"), [harness.need("python3"), "-c", AT_ONCE])
        result = harness.run([*few, *command])
        self.assertEqual((result.status, result.stdout), (0, "64\n"), result.stderr)
        self.assertEqual(len(harness.processes(self.path("test.hl"))), 1 + 40)

    def test_programs_that_are_execed_with_one_free_descriptor_are_recorded(self):
        recording = self.run_scenario("exec-with-one-more-file")
        self.assert_sum(recording, (PARENT, 1), (LEAF, 1))

    def test_a_daemon_outlives_a_record_that_does_not_wait(self):
        self.assert_entry(self.run_scenario("daemon"), 0, PARENT)

    def test_children_that_a_signal_handler_forks_live_wherever_it_interrupted(self):
        for mode in harness.RECORDING_MODES:
            for options in ([], ["--no-follow"]):
                result, recording = self.record([harness.program("fork_in_handler")], mode, options)
                with self.subTest(mode=mode, options=options):
                    self.assertEqual((result.status, result.stdout), (0, "0\n"), result.stderr)
                    rows = harness.top_rows(recording, "inuse", sequence=0)
                    self.assertEqual(rows.get("step", {}).get("cum_objects", 0), 0)

    def test_children_that_a_handler_forks_within_the_first_event_live(self):
        result, _ = self.record([harness.program("fork_in_handler"), "1400", "7"])
        self.assertEqual((result.status, result.stdout), (0, "0\n"), result.stderr)


if __name__ == "__main__":
    harness.main()
