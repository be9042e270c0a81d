#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Children that a joined process forks are recorded from the fork on, and left with it."""

import contextlib
import json
import os
import signal
import time

import attaching
import harness
from harness import wait_until

# As in forking.c
BLOCK_BYTES, CHILD_BLOCKS, MORE_BLOCKS, STORM_BLOCKS, AT_ONCE = 101, 1009, 211, 37, 8
FREED = CHILD_BLOCKS // 2


class Forking(attaching.TestCase):
    def setUp(self):
        super().setUp()
        self.children = []

    def ask(self, process, command):
        """The number that it answers."""
        process.stdin.write(command + "\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    def fork(self, process, command="fork"):
        child = self.ask(process, command)
        self.children.append(child)
        return child

    def have_allocate(self, child, environment=None):
        """Has a child allocate its MORE_BLOCKS, and waits until they are counted."""
        os.kill(child, signal.SIGUSR1)

        def events():
            said = harness.run([harness.HEAPLINE, "ctl", "-p", str(child), "status", "--json"], env=environment)
            return next(row["events"] for row in json.loads(said.stdout)["rows"] if row["pid"] == child)
        wait_until(lambda: events() >= CHILD_BLOCKS + FREED + MORE_BLOCKS, "the child's blocks")

    def kill(self, pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def rows(self):
        return {row["pid"]: row for row in harness.processes(self.recording)}

    def assert_left(self, pid):
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
            for line in maps:
                self.assertNotIn("memfd:heapline", line)
                self.assertFalse("r-xp" in line and len(line.split()) == 5, line)
        self.assertNotIn("heapline", " ".join(os.readlink(f"/proc/{pid}/fd/{fd}")
                                              for fd in os.listdir(f"/proc/{pid}/fd")))

    def assert_counts(self, row, allocated, freed):
        self.assertEqual((row["alloc_bytes"], row["inuse_bytes"]),
                         (allocated * BLOCK_BYTES, (allocated - freed) * BLOCK_BYTES), row)
        self.assertEqual(row["lost_events"], 0)


class Children(Forking):
    PROGRAM = "forking"

    @contextlib.contextmanager
    def target(self):
        with harness.Waiting([harness.program(self.PROGRAM)]) as process:
            try:
                yield process
            finally:
                for child in self.children:
                    self.kill(child)

    def end(self, attach):
        attach.send_signal(signal.SIGINT)
        attach.wait(attaching.ENDS_IN_S)

    def test_each_block_of_children_and_their_children_is_counted(self):
        for mode in ("mem-fast", "mem-record", "log-fast"):
            with self.subTest(mode), self.target() as process:
                with self.attached(process.pid, "--mode", mode) as attach:
                    child, nested = self.fork(process), self.fork(process, "nest")
                    [between] = [pid for pid in harness.children_of(process.pid) if pid != child]
                    self.children.append(between)
                    self.have_allocate(child, self.environment)
                    self.end(attach)
                rows = self.rows()
                self.assert_counts(rows[child], CHILD_BLOCKS + MORE_BLOCKS, FREED)
                self.assert_counts(rows[between], CHILD_BLOCKS, FREED)
                self.assert_counts(rows[nested], MORE_BLOCKS, 0)
                self.assertEqual(rows[nested]["parent_pid"], between)
                lost = harness.info(self.recording)["lost"]
                self.assertNotIn("unrecorded_children",
                                 {what for what, number in lost.items() if number})
                self.assertEqual(lost["unmatched_frees"], 0)  # inherited ones are not such
                for pid in (process.pid, child, between, nested):
                    self.assert_left(pid)
                os.kill(child, signal.SIGUSR1)
                self.attach(child, "-d", "0.01")
                self.assert_left(child)

    def test_a_recording_goes_on_when_the_parent_has_ended(self):
        with self.target() as process:
            with self.attached(process.pid) as attach:
                child = self.fork(process)
                process.kill()
                process.wait()
                self.have_allocate(child, self.environment)
                self.assertIsNone(attach.poll())
                self.kill(child)
                self.assertEqual(attach.wait(attaching.ENDS_IN_S), 0)
        self.assert_counts(self.rows()[child], CHILD_BLOCKS + MORE_BLOCKS, FREED)

    def test_a_child_that_is_killed_is_complete(self):
        with self.target() as process:
            with self.attached(process.pid) as attach:
                child = self.fork(process)
                self.kill(child)
                self.end(attach)
            self.assert_counts(self.rows()[child], CHILD_BLOCKS, FREED)

    def test_a_child_that_becomes_another_program_ends_there(self):
        with self.target() as process:
            with self.attached(process.pid) as attach:
                child = self.fork(process, "exec")
                wait_until(lambda: "sleep" in open(f"/proc/{child}/comm", encoding="ascii").read(),
                           "the other program")
                time.sleep(1.5)  # the collector looks once a second
                self.end(attach)
            self.assert_counts(self.rows()[child], CHILD_BLOCKS, FREED)
            self.assertTrue(os.path.exists(f"/proc/{child}"))

    def test_children_of_a_heapline_that_was_killed_can_be_joined(self):
        with self.target() as process:
            with self.attached(process.pid, expected=-signal.SIGKILL) as attach:
                child = self.fork(process)
                said = self.attach(child, status=1).stderr
                self.assertIn(f"process {child} is attached to already, by pid {attach.pid}", said)
                attach.kill()
                attach.wait()
            os.kill(child, signal.SIGUSR1)
            late = self.fork(process)  # does not wait for an answer
            for pid in (child, process.pid):
                self.attach(pid, "-d", "0.01")
                self.assert_left(pid)
            self.attach(late, "-d", "0.01")

    def test_a_stopped_heapline_holds_children_for_two_seconds_at_most(self):
        with self.target() as process:
            with self.attached(process.pid) as attach:
                attach.send_signal(signal.SIGSTOP)
                child = self.fork(process)
                attach.send_signal(signal.SIGCONT)
                self.end(attach)
            self.assertNotIn(child, self.rows())
            self.assertEqual(harness.info(self.recording)["lost"]["unrecorded_children"], 1)

    def test_a_storm_of_forks_is_joined_and_left(self):
        with self.target() as process:
            process.stdin.write("storm 2000\n")
            process.stdin.flush()
            recorded = 0
            for time_of in range(10):
                self.attach(process.pid, "-d", "0.2", "--mode",
                            ("mem-fast", "log-fast")[time_of % 2])
                rows = self.rows()
                rows.pop(process.pid)
                # At the end some are left in the middle.
                partial = [row for row in rows.values()
                           if row["alloc_bytes"] < STORM_BLOCKS * BLOCK_BYTES]
                for row in rows.values():
                    if row not in partial:
                        self.assert_counts(row, STORM_BLOCKS, 0)
                self.assertLessEqual(len(partial), AT_ONCE)
                recorded += len(rows) - len(partial)
            self.assertEqual(process.stdout.readline(), "0\n")
            self.assertGreater(recorded, 10)


class Namespaces(attaching.TestCase):
    def test_children_in_another_pid_and_mount_namespace_are_found(self):
        """As a sidecar container finds them, or the host: they know themselves by other numbers."""
        harness.need_root()
        with harness.Waiting([harness.need("unshare"), "--pid", "--mount", "--fork", "--kill-child",
                              harness.program("forking")]) as process:
            [inner] = harness.children_of(process.pid)
            with self.attached(inner) as attach:
                process.stdin.write("fork\n")
                process.stdin.flush()
                self.assertLess(int(process.stdout.readline()), 10)
                [child] = harness.children_of(inner)
                attach.send_signal(signal.SIGINT)
                attach.wait(attaching.ENDS_IN_S)
            os.kill(child, signal.SIGKILL)
            rows = {row["pid"]: row for row in harness.processes(self.recording)}
            self.assertEqual(rows[child]["alloc_bytes"], CHILD_BLOCKS * BLOCK_BYTES)


class StaticMusl(Children):
    """Without glibc's list of modules, and its frames."""

    PROGRAM = "forking_musl"


class OfEnteredPrograms(Forking):
    """Programs that `record` brings the recorder into as they begin."""

    @contextlib.contextmanager
    def recorded(self, program, *options):
        """From its beginning to its end; its children, which have its standard output, too, run on."""
        waiting = harness.Waiting(harness.record_command(self.recording, [harness.program(program)],
                                                         options=options))
        try:
            yield waiting.process
        finally:
            waiting.process.stdin.close()
            waiting.process.wait(harness.TIMEOUT_S)
            waiting.process.stdout.close()

    def check(self, program):
        for mode in ("mem-fast", "log-fast"):
            with self.subTest(mode), self.recorded(program, "--mode", mode) as process:
                child, nested = self.fork(process), self.fork(process, "nest")
                [target] = harness.children_of(process.pid)
                [between] = [pid for pid in harness.children_of(target) if pid != child]
                self.children.append(between)
                self.have_allocate(child)
            self.assertEqual(process.returncode, 0)
            rows = self.rows()
            self.assert_counts(rows[child], CHILD_BLOCKS + MORE_BLOCKS, FREED)
            self.assert_counts(rows[between], CHILD_BLOCKS, FREED)
            self.assert_counts(rows[nested], MORE_BLOCKS, 0)
            self.assertEqual(rows[nested]["parent_pid"], between)
            lost = harness.info(self.recording)["lost"]
            self.assertEqual((lost["unrecorded_children"], lost["unmatched_frees"]), (0, 0))
            for pid in self.children:
                self.assert_left(pid)
                self.kill(pid)
            self.children.clear()

    def tearDown(self):
        for pid in self.children:
            self.kill(pid)

    def test_of_static_musl(self):
        self.check("forking_musl")

    def test_of_musl(self):
        self.check("forking_musl_dynamic")

    def test_of_a_malloc_of_its_own(self):
        self.check("forking_own_malloc")

    def test_of_static_glibc(self):
        self.check("forking_static")

    def test_are_waited_for_when_asked(self):
        with self.recorded("forking_own_malloc", "--wait") as process:
            child = self.fork(process)
            [target] = harness.children_of(process.pid)
            process.stdin.close()  # its child becomes heapline's
            wait_until(lambda: not os.path.exists(f"/proc/{target}"), "the program's end")
            self.have_allocate(child)
            self.assertIsNone(process.poll())
            self.kill(child)
        self.assert_counts(self.rows()[child], CHILD_BLOCKS + MORE_BLOCKS, FREED)

    def test_are_left_alone_when_asked(self):
        with self.recorded("forking_own_malloc", "--no-follow") as process:
            child = self.fork(process)
        self.assertNotIn(child, self.rows())
        self.assertEqual(harness.info(self.recording)["lost"]["unrecorded_children"], 0)

    def test_that_become_other_programs_end_there(self):
        with self.recorded("forking_own_malloc") as process:
            child = self.fork(process, "exec")
            wait_until(lambda: "sleep" in open(f"/proc/{child}/comm", encoding="ascii").read(),
                       "the other program")
        self.assert_counts(self.rows()[child], CHILD_BLOCKS, FREED)
        self.assertTrue(os.path.exists(f"/proc/{child}"))

    def test_a_storm_of_forks(self):
        with self.recorded("forking_own_malloc") as process:
            [target] = harness.children_of(process.pid)
            self.assertEqual(self.ask(process, "storm 50"), 0)
        rows = self.rows()
        rows.pop(target)
        for row in rows.values():
            self.assert_counts(row, STORM_BLOCKS, 0)
        unseen = harness.info(self.recording)["lost"]["unrecorded_children"]
        self.assertEqual(len(rows) + unseen, 50)
        self.assertGreater(len(rows), 5)


if __name__ == "__main__":
    harness.main()
