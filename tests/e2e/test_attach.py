#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Processes that heapline joins while they run count exactly, and are left as they were."""

import contextlib
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import time

import attaching
import harness
from harness import HEAPLINE, report, wait_until

THREADS_MAX = 16
LEDGER = struct.Struct("10Q")
EDGES = 2  # events that the look of a thread and the recorder may see differently
BYTES_MAX = 1000

FORKS = """
import os, signal, time
asked = False
def ask(*_):
    global asked
    asked = True
signal.signal(signal.SIGUSR1, ask)
print("ready", flush=True)
kept = []
while True:
    kept.append("visitor " + str(len(kept)) * 200)
    time.sleep(0.0001)
    if asked:
        asked = False
        child = os.fork()
        if child:
            print(child, flush=True)
"""

KEEPS = """
import sys
print("ready", flush=True)
kept = []
while True:
    kept.append("visitor " + str(len(kept)) * 20)
    if len(kept) % 1000 == 0:
        import time; time.sleep(0.01)
"""


class Ledger:
    """What attach_target.c wrote to its column PATCHED, as a sum over its threads."""

    def __init__(self, path):
        with open(path, "rb") as file:
            rows = [LEDGER.unpack(file.read(LEDGER.size)) for _ in range(THREADS_MAX)]
        (self.allocs, self.alloc_bytes, self.frees, self.free_bytes,
         self.older_frees) = (sum(row[column] for row in rows) for column in range(1, 10, 2))


class Target:
    """attach_target.c, and what is done with it."""

    def __init__(self, folder, threads):
        self.threads = threads
        self.ledger_path = os.path.join(folder, "ledger")
        self.process = subprocess.Popen(
            [harness.program("attach_target"), self.ledger_path, str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self.await_ready()

    def await_ready(self):
        if self.process.stdout.readline() != "ready\n":
            raise AssertionError("'attach_target' ended before it was ready")

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def says(self, lines):
        return [self.process.stdout.readline().rstrip() for _ in range(lines)]

    def ledger(self):
        return Ledger(self.ledger_path)

    def is_alive(self):
        return self.process.poll() is None and harness.process_state(self.pid) in "RSD"

    def end(self):
        """Its exit status, at the end of its input."""
        self.process.stdin.close()
        self.process.stdin = None
        status = self.process.wait(attaching.ENDS_IN_S)
        self.process.stdout.close()
        return status

    def kill(self):
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                stream.close()


def traces_of(pid):
    """What of a process must be the same before and after."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        ranges = maps.read().splitlines()
    tasks = sorted(os.listdir(f"/proc/{pid}/task"))
    policies = [(os.sched_getscheduler(int(task)), os.getpriority(os.PRIO_PROCESS, int(task)))
                for task in tasks]
    descriptors = {fd: os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    return ranges, tasks, policies, descriptors


def code_of(ranges):
    """Those of the mappings that hold code; a storm changes others."""
    return [line for line in ranges if "x" in line.split()[1] or "memfd" in line]


class Attach(attaching.TestCase):
    """What the tests below have in common."""

    def target(self, threads=2):
        target = Target(self.directory, threads)
        self.addCleanup(target.kill)
        return target

    def await_events(self, pid):
        """Until some have been recorded: on a busy machine threads run late."""
        wait_until(lambda: json.loads(self.ctl(pid, "status", "--json").stdout)
                   ["rows"][0]["events"] > 1000, "events")

    def assert_near(self, found, expected, tolerance, what):
        self.assertLessEqual(abs(found - expected), tolerance,
                             f"{what}: {found} recorded, {expected} in the ledger")

    def assert_like_ledger(self, before, after, threads, recording=None):
        """The recording has the events that the ledger gained meanwhile."""
        info = report("info", recording or self.recording)
        total = info["total"]
        kept = total["alloc_objects"] - total["inuse_objects"]
        kept_bytes = total["alloc_bytes"] - total["inuse_bytes"]
        events = EDGES * threads
        self.assertGreater(total["alloc_objects"], 1000)
        self.assert_near(total["alloc_objects"], after.allocs - before.allocs, events, "allocs")
        self.assert_near(kept, after.frees - before.frees, events, "frees")
        self.assert_near(info["lost"]["unmatched_frees"], after.older_frees - before.older_frees,
                         events, "frees of older blocks")
        self.assert_near(total["alloc_bytes"], after.alloc_bytes - before.alloc_bytes,
                         events * BYTES_MAX, "bytes")
        self.assert_near(kept_bytes, after.free_bytes - before.free_bytes, events * BYTES_MAX,
                         "freed bytes")
        self.assert_nothing_lost(recording or self.recording)
        self.assertTrue(info["recording"]["attached"])
        return info


class Counts(Attach):
    def test_a_storm_is_counted_as_the_program_itself_counts_it(self):
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                target = self.target()
                before = target.ledger()
                result = self.attach(target.pid, "-d", "1", "--mode", mode)
                self.assert_like_ledger(before, target.ledger(), target.threads)
                self.assertRegex(result.stderr, r"was stopped for [0-9.]+ ms to attach")
                rows = harness.top_rows(self.recording, "alloc")
                for site in ("take_by_malloc", "take_by_calloc", "change_by_realloc"):
                    self.assertGreater(rows[site]["flat_objects"], 0)
                    self.assertGreaterEqual(rows["storm"]["cum_objects"], rows[site]["flat_objects"])
                self.assertEqual(target.end(), 7)

    def test_a_process_can_be_joined_again(self):
        target = self.target()
        for _ in range(3):
            # A recording knows the blocks of its own time alone: those of an earlier one are older.
            before = target.ledger()
            self.attach(target.pid, "-d", "0.5")
            after = target.ledger()
            total = report("info", self.recording)["total"]
            self.assert_near(total["alloc_objects"], after.allocs - before.allocs,
                             EDGES * target.threads, "allocs")
        self.assertEqual(target.end(), 7)

    def test_reports_say_since_when_blocks_are_counted(self):
        target = self.target()
        self.attach(target.pid, "-d", "0.5")
        text = harness.run([HEAPLINE, "top", self.recording]).stdout
        self.assertRegex(text, r"\nattached at \d{4}-\d\d-\d\dT\S+; blocks allocated before are not "
                               r"counted\n")
        self.assertIn("of blocks allocated before the recording (harmless)", text)
        [row] = report("info", self.recording)["rows"]
        self.assertEqual((row["pid"], row["end"]), (target.pid, "was still running"))


class Options(Attach):
    def test_blocks_are_told_apart_by_size(self):
        target = self.target()
        self.attach(target.pid, "-d", "0.3", "--sizes")
        rows = report("sizes", self.recording)["rows"]
        self.assertTrue(rows)
        self.assertLessEqual(max(row["size_min"] for row in rows), BYTES_MAX)

    def test_events_are_kept(self):
        target = self.target(threads=1)
        self.attach(target.pid, "-d", "0.3", "--mode", "log-fast", "--events")
        result = harness.run([HEAPLINE, "events", self.recording])
        self.assertEqual(result.status, 0, result.stderr)
        kept = re.search(r" events: ([0-9,]+) blocks of .* allocated, ", result.stdout)
        self.assertEqual(int(kept[1].replace(",", "")),
                         report("info", self.recording)["total"]["alloc_objects"])

    def test_samples_estimate_the_whole(self):
        target = self.target()
        before = target.ledger()
        self.attach(target.pid, "-d", "1", "--sample", "16K")
        info = report("info", self.recording)
        taken = target.ledger().alloc_bytes - before.alloc_bytes
        self.assertEqual(info["recording"]["sample_bytes"], 16384)
        # Some thousands of samples: a deviation of a fifth is more than ten times the usual one.
        self.assert_near(info["total"]["alloc_bytes"], taken, taken / 5, "estimated bytes")

    def test_a_terminal_says_how_to_end_it(self):
        target = self.target()
        terminal, end = pty.openpty()
        attach = subprocess.Popen([HEAPLINE, "attach", "-p", str(target.pid), "-o", self.recording],
                                  stdin=end, stdout=end, stderr=end, start_new_session=True,
                                  preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(end)
        said = b""
        while b"\n" not in said:
            said += os.read(terminal, 4096)
        self.assertIn(f"joined 'attach_target' (pid {target.pid}), recording to '{self.recording}'; Ctrl-C "
                      f"leaves it as it was, 'heapline live -p {target.pid}' watches".encode(), said)
        os.write(terminal, b"\x03")
        with contextlib.suppress(OSError):  # EIO: the terminal has no other end
            while more := os.read(terminal, 4096):
                said += more
        self.assertEqual(attach.wait(attaching.ENDS_IN_S), 0, said)
        os.close(terminal)
        self.assertIn(b"was stopped for", said)
        self.assertEqual(target.end(), 7)


class Residue(Attach):
    def test_a_process_is_left_as_it_was(self):
        target = self.target(threads=0)
        before = traces_of(target.pid)
        for mode in ("mem-fast", "log-fast"):
            self.attach(target.pid, "-d", "0.2", "--mode", mode)
            self.assertEqual(traces_of(target.pid), before)
        self.assertEqual(target.end(), 7)

    def test_what_a_thread_is_still_inside_of_is_taken_out_later(self):
        target = self.target(threads=0)
        target.ask("slow\nthe end")  # the first call makes the heap
        self.assertEqual(target.says(2), ["inside", "done"])
        before = traces_of(target.pid)
        hooks = ("--hook", "malloc=slow_malloc", "--hook", "free=slow_free")
        with self.attached(target.pid, *hooks, expected=1) as attach:
            target.ask("slow")
            self.assertEqual(target.says(1), ["inside"])
            attach.send_signal(signal.SIGINT)
            said = attach.stderr.read()
        self.assertIn("is still in the recorder", said)
        self.assertTrue(report("info", self.recording)["recording"]["complete"])
        self.assertNotEqual(traces_of(target.pid), before)
        target.ask("the end")
        self.assertEqual(target.says(1), ["done"])
        self.attach(target.pid, "-d", "0.1")
        self.assertEqual(traces_of(target.pid), before)
        self.assertEqual(target.end(), 7)

    def test_nothing_stays_after_a_storm(self):
        target = self.target(threads=4)
        before, *others_before = traces_of(target.pid)
        self.attach(target.pid, "-d", "0.3", "--mode", "log-fast")
        after, *others = traces_of(target.pid)
        self.assertEqual(others, others_before)
        self.assertEqual(code_of(after), code_of(before))
        self.assertEqual(target.end(), 7)

    def test_nothing_stays_where_a_thread_cannot_be_stopped(self):
        target = self.target(threads=1)
        before, *others_before = traces_of(target.pid)
        target.ask("vfork")
        [child] = wait_until(lambda: harness.children_of(target.pid), "the child")
        wait_until(lambda: harness.process_state(target.pid) == "D", "it to wait for its child")
        try:
            self.assertIn("vfork()", self.attach(target.pid, status=1).stderr)
            after, *others = traces_of(target.pid)
            self.assertEqual(others, others_before)
            self.assertEqual(code_of(after), code_of(before))
        finally:
            os.kill(child, signal.SIGKILL)
        self.assertEqual(target.end(), 7)


class Probes(Attach):
    def untouched(self, pid, functions):
        """File and offset of those functions whose first instruction is as it was."""
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
            libc = next(line.split() for line in maps if "/libc.so.6" in line and "r-xp" in line)
        path, bias = libc[5], int(libc[0].split("-")[0], 16) - int(libc[2], 16)
        with open(f"/proc/{pid}/mem", "rb") as memory, open(path, "rb") as file:
            for function in functions:
                offset = harness.symbol_address(path, function)
                memory.seek(bias + offset)
                file.seek(offset)
                if memory.read(1) == file.read(1):
                    yield path, offset

    def probed(self, target, returns):
        """Sets probes, and has the target come by."""
        functions = "malloc", "free", "calloc", "realloc"
        probes = [harness.set_probe(self, target.pid, path, offset, returns)
                  for path, offset in self.untouched(target.pid, functions)]
        if not probes:
            self.skipTest("no first instruction of this libc can be undone")
        allocs = target.ledger().allocs
        wait_until(lambda: target.ledger().allocs > allocs + 10000, "allocations")
        return probes

    def test_probes_that_another_tool_sets_on_what_is_patched(self):
        """The kernel makes the instruction that the file has there, and goes on behind it."""
        target = self.target()
        before = target.ledger()
        with self.attached(target.pid) as attach:
            for probe in self.probed(target, returns=False):
                probe.close()
            attach.send_signal(signal.SIGINT)
        self.assert_like_ledger(before, target.ledger(), target.threads)
        self.assertEqual(target.end(), 7)

    def test_probes_that_outlive_the_recorder(self):
        for returns in (False, True):
            with self.subTest(returns=returns):
                target = self.target()
                with self.attached(target.pid) as attach:
                    probes = self.probed(target, returns)
                    attach.send_signal(signal.SIGINT)
                self.assertGreater(report("info", self.recording)["total"]["alloc_objects"], 10000)
                for probe in probes:
                    probe.close()
                self.assertTrue(target.is_alive())
                self.assertEqual(target.end(), 7)


class Control(Attach):
    def look(self, pid):
        live = harness.run([HEAPLINE, "live", "-p", str(pid), "--once"], env=self.environment)
        self.assertEqual(live.status, 0, live.stderr)
        return live.stdout

    def test_it_is_asked_and_changed_as_any_recording(self):
        target = self.target()
        snapshot = self.path("snapshot.hl")
        before = target.ledger()
        with self.attached(target.pid):
            status = json.loads(self.ctl(target.pid, "status", "--json").stdout)
            self.assertEqual([row["pid"] for row in status["rows"]], [target.pid])
            self.await_events(target.pid)
            self.ctl(target.pid, "mode", "log-fast")
            self.ctl(target.pid, "mark", "here")
            self.ctl(target.pid, "snapshot", snapshot)
            wait_until(lambda: "take_by_malloc" in self.look(target.pid), "it to be saved")
            for text in (self.look(target.pid), harness.run([HEAPLINE, "top", self.recording]).stdout):
                self.assertRegex(text, r"\nattached at \S+; blocks allocated before are not counted\n")
            said = self.ctl(target.pid, "detach").stderr
            self.assertIn(self.recording, said)
            info = self.assert_like_ledger(before, target.ledger(), target.threads)
        self.assertIn("here", [mark["text"] for mark in info["marks"]])
        copy = report("info", snapshot)["recording"]
        self.assertTrue(copy["snapshot"] and copy["attached"])
        self.assertEqual(target.end(), 7)

    def test_a_reset_amid_a_storm_counts_from_there(self):
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                target = self.target()
                start = target.ledger()
                with self.attached(target.pid, "--mode", mode):
                    self.await_events(target.pid)
                    before = target.ledger()
                    self.ctl(target.pid, "reset")
                    after = target.ledger()
                    self.await_events(target.pid)
                    self.ctl(target.pid, "detach")
                    end = target.ledger()
                self.assertEqual(target.end(), 7)
                total = report("info", self.recording)["total"]
                edge = EDGES * target.threads
                self.assertTrue(end.allocs - after.allocs - edge <= total["alloc_objects"]
                                <= end.allocs - before.allocs + edge, total)
                self.assertTrue(end.alloc_bytes - after.alloc_bytes - edge * BYTES_MAX
                                <= total["alloc_bytes"]
                                <= end.alloc_bytes - before.alloc_bytes + edge * BYTES_MAX, total)
                kept = end.allocs - end.frees - (start.allocs - start.frees)
                self.assert_near(total["inuse_objects"], kept, edge, "in use")
                kept = end.alloc_bytes - end.free_bytes - (start.alloc_bytes - start.free_bytes)
                self.assert_near(total["inuse_bytes"], kept, edge * BYTES_MAX, "bytes in use")
                self.assert_nothing_lost(self.recording)

    def test_who_owns_its_blocks_is_known(self):
        with harness.Waiting([harness.program("waits")]) as process:
            with self.attached(process.pid) as attach:
                wait_until(lambda: json.loads(self.ctl(process.pid, "status", "--json").stdout)
                           ["rows"][0]["inuse_objects"] > 10, "blocks")
                said = harness.run([HEAPLINE, "allocations", "--json", "-p", str(process.pid)])
                self.assertEqual(said.status, 0, said.stderr)
                owned = json.loads(said.stdout)
                self.assertEqual(owned["source"], "recorder")
                self.assertGreater(owned["total"]["inuse_blocks"], 10)
                doctor = harness.run([HEAPLINE, "doctor", "--json", "-p", str(process.pid)],
                                     env=self.environment)
                ways = {row["way"]: row for row in json.loads(doctor.stdout)["rows"]}
                self.assertEqual((ways["record"]["works"], ways["attach"]["works"]), ("yes", "no"))
                self.assertIn("is being recorded", ways["attach"]["reason"])
                attach.send_signal(signal.SIGINT)

    def test_it_can_begin_closed(self):
        target = self.target()
        with self.attached(target.pid, "--mode", "off") as attach:
            time.sleep(0.2)
            self.ctl(target.pid, "mode", "mem-fast")
            self.await_events(target.pid)
            attach.send_signal(signal.SIGINT)
        text = harness.run([HEAPLINE, "top", self.recording]).stdout
        self.assertIn("was in mode 'closed'", text)
        self.assertEqual(target.end(), 7)

    def test_none_of_its_threads_stays_in_a_hurry(self):
        target = self.target()
        with self.attached(target.pid) as attach:
            usual = os.getpriority(os.PRIO_PROCESS, 0)  # the thread that watches the group's limit has its own
            wait_until(lambda: {os.getpriority(os.PRIO_PROCESS, int(thread))
                                for thread in os.listdir(f"/proc/{attach.pid}/task")} <= {usual, -10}
                       and os.getpriority(os.PRIO_PROCESS, attach.pid) == usual, "the usual niceness")
            attach.send_signal(signal.SIGINT)
        self.assertEqual(target.end(), 7)

    def test_signals_end_it(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signal=number):
                target = self.target()
                before = target.ledger()
                with self.attached(target.pid) as attach:
                    self.await_events(target.pid)
                    attach.send_signal(number)
                self.assert_like_ledger(before, target.ledger(), target.threads)
                self.assertEqual(target.end(), 7)

    def test_nobody_else_can_join_meanwhile(self):
        target = self.target()
        with self.attached(target.pid) as attach:
            result = harness.run([HEAPLINE, "attach", "-p", str(target.pid), "-o",
                                  self.path("second.hl")], env=self.environment)
            self.assert_refused(result, "attached to already", f"ctl -p {target.pid} detach")
            self.assertFalse(os.path.exists(self.path("second.hl")))
            attach.send_signal(signal.SIGINT)
        self.assertEqual(target.end(), 7)


class Ends(Attach):
    def end_of(self):
        info = report("info", self.recording)
        self.assertTrue(info["recording"]["complete"])
        self.assertGreater(info["total"]["alloc_objects"], 0)
        return info["rows"][0]["end"]

    def test_the_process_exits(self):
        target = self.target()
        with self.attached(target.pid):
            self.await_events(target.pid)
            target.end()
        self.assertEqual(self.end_of(), "ended")

    def test_the_process_is_killed(self):
        target = self.target()
        with self.attached(target.pid):
            self.await_events(target.pid)
            target.process.kill()
            target.process.wait()
        self.assertEqual(self.end_of(), "ended")

    def test_the_process_becomes_another_program(self):
        target = self.target()
        with self.attached(target.pid) as attach:
            self.await_events(target.pid)
            target.ask("exec")
            attach.wait(attaching.ENDS_IN_S)
            self.assertIn("went on as 'cat'", attach.stderr.read())
        self.assertIn("went on as 'cat'", self.end_of())
        self.assertTrue(target.is_alive())

    def test_the_process_begins_again(self):
        target = self.target()
        with self.attached(target.pid):
            self.await_events(target.pid)
            target.ask("again")
            target.await_ready()
        self.assertIn("went on as 'attach_target'", self.end_of())
        before = target.ledger()
        self.attach(target.pid, "-d", "0.3")
        self.assert_like_ledger(before, target.ledger(), target.threads)
        self.assertEqual(target.end(), 7)

    def test_the_collector_is_killed(self):
        for mode in ("mem-fast", "log-fast"):
            with self.subTest(mode=mode):
                target = self.target()
                ranges_before, *others_before = traces_of(target.pid)
                with self.attached(target.pid, "--mode", mode, expected=-signal.SIGKILL) as attach:
                    self.await_events(target.pid)  # it answers before it has patched the program
                    attach.kill()
                    attach.wait()
                self.assertTrue(target.is_alive())
                told = harness.run([HEAPLINE, "doctor", "-p", str(target.pid)]).stdout
                self.assertIn("left behind by a heapline that has ended", told)
                self.assertNotIn("JIT", told)
                before = target.ledger()
                wait_until(lambda: target.ledger().allocs + target.ledger().frees >
                           before.allocs + before.frees + 10000, "the program to go on")
                with self.attached(target.pid) as attach:
                    self.await_events(target.pid)
                    attach.send_signal(signal.SIGINT)
                self.assertGreater(report("info", self.recording)["total"]["alloc_objects"], 1000)
                ranges, *others = traces_of(target.pid)
                self.assertEqual(others, others_before)
                self.assertEqual(code_of(ranges), code_of(ranges_before))
                self.assertEqual(target.end(), 7)


    def test_a_full_disk_is_said_at_once_and_at_the_end_by_the_status(self):
        harness.need_root()
        target, small = self.target(), self.path("small")
        os.mkdir(small)
        script = ('mount -t tmpfs -o size=64k heapline-test "$0" && '
                  'cat /dev/zero 2>/dev/null >"$0/filler"; exec "$@"')
        attach = subprocess.Popen(
            ["unshare", "-m", "/bin/sh", "-c", script, small, HEAPLINE, "attach", "-p",
             str(target.pid), "-o", f"{small}/full.hl"], stderr=subprocess.PIPE, text=True)
        self.addCleanup(attach.stderr.close)
        self.addCleanup(attach.kill)
        said = ""
        while "No space left on device" not in said:
            said = attach.stderr.readline()
            self.assertTrue(said, "heapline ended and did not say why")
        self.assertIn("make room", said)
        before = target.ledger()
        wait_until(lambda: target.ledger().allocs > before.allocs, "the program to go on")
        attach.send_signal(signal.SIGINT)
        said = attach.communicate(timeout=harness.TIMEOUT_S)[1]
        self.assertRegex(said, "there is no recording: .*No space left on device; make room")
        self.assertNotIn("does not say", said)
        self.assertEqual(attach.returncode, 1)
        self.assertEqual(target.end(), 7)


class Programs(Attach):
    def test_a_child_is_recorded_and_left_with_its_parent(self):
        parent = subprocess.Popen([sys.executable, "-c", FORKS], stdout=subprocess.PIPE, text=True,
                                  env=dict(os.environ, PYTHONMALLOC="malloc"))
        self.addCleanup(parent.wait)
        self.addCleanup(parent.kill)
        self.addCleanup(parent.stdout.close)
        self.assertEqual(parent.stdout.readline(), "ready\n")
        with self.attached(parent.pid) as attach:
            self.await_events(parent.pid)
            os.kill(parent.pid, signal.SIGUSR1)
            child = int(parent.stdout.readline())
            self.addCleanup(os.kill, child, signal.SIGKILL)
            wait_until(lambda: self.ctl(child, "status", status=None).status == 0, "the child")
            self.await_events(child)
            attach.send_signal(signal.SIGINT)
            attach.wait(attaching.ENDS_IN_S)
        for row in harness.processes(self.recording):
            self.assertGreater(row["alloc_bytes"], 1000, row)
        for pid in (parent.pid, child):
            with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
                self.assertNotIn("heapline", maps.read())
        self.assertIsNone(parent.poll())
        os.kill(child, 0)

    def test_python_is_named(self):
        env = dict(os.environ, PYTHONMALLOC="malloc")
        with subprocess.Popen([sys.executable, "-c", KEEPS], env=env, text=True,
                              stdout=subprocess.PIPE) as process:
            try:
                self.assertEqual(process.stdout.readline(), "ready\n")
                self.attach(process.pid, "-d", "0.5")
            finally:
                process.kill()
        rows = report("top", self.recording, "-v", "inuse", "-n", "0", "--plumbing",
                      "--stack", "native")["rows"]
        cum = {row["name"]: row["cum_bytes"] for row in rows}
        total = report("info", self.recording)["total"]["inuse_bytes"]
        self.assertGreater(total, 10000)
        self.assertGreater(cum["_start"], total * 0.9)
        self.assertTrue(any(name.startswith(("PyUnicode", "_PyUnicode")) for name in cum), cum)

    def test_what_is_not_recorded_is_said_once_and_kept(self):
        target = self.target(threads=0)
        with open(self.path("presets"), "w", encoding="ascii") as file:
            file.write("preset slow\nwhen slow_malloc\nmalloc=slow_malloc\nfree=tiny_free\n")
        said = self.attach(target.pid, "-d", "0.2", "--presets", file.name).stderr
        self.assertEqual(said.count("calls to 'tiny_free'"), 1, said)
        [warning] = report("info", self.recording)["recording"]["warnings"]
        self.assertIn("calls to 'tiny_free'", warning)

    def test_redis_is_named(self):
        server, client = harness.need("redis-server"), harness.need("redis-cli")
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = str(listener.getsockname()[1])
        with subprocess.Popen([server, "--port", port, "--save", "", "--dir", self.directory],
                              stdout=subprocess.DEVNULL) as process:
            try:
                wait_until(lambda: harness.run([client, "-p", port, "ping"]).status == 0, "redis")
                with self.attached(process.pid) as attach:
                    script = "for i=1,2000 do redis.call('set', 'key:'..i, string.rep('x', 100)) end"
                    harness.run([client, "-p", port, "eval", script, "0"])
                    attach.send_signal(signal.SIGINT)
                self.assertEqual(harness.run([client, "-p", port, "dbsize"]).stdout.strip(), "2000")
            finally:
                process.kill()
        rows = harness.top_rows(self.recording, "inuse")
        total = report("info", self.recording)["total"]
        self.assertGreater(total["inuse_bytes"], 200_000)
        self.assertGreater(rows["evalGenericCommand"]["cum_bytes"], total["inuse_bytes"] * 0.5)

    def assert_allocates(self):
        self.assertGreater(report("info", self.recording)["total"]["alloc_objects"], 0)

    def test_a_process_in_a_container_is_joined_from_the_host(self):
        harness.need_root()
        unshare = harness.need("unshare")
        shutil.copy(harness.program("waits_static"), self.path("waits"))
        with harness.Waiting([unshare, "--mount", "--pid", "--fork", "chroot", self.directory,
                              "/waits"]) as process:
            [inner] = harness.children_of(process.pid)
            self.attach(inner, "-d", "1")
        self.assert_allocates()

    def test_a_process_is_joined_from_its_own_namespace_of_processes(self):
        harness.need_root()
        waits = harness.program("waits")
        # The shell is the first process there: all others end with it.
        script = (f"sleep 60 | {waits} & "
                  f"until [ \"$(readlink /proc/$!/exe)\" = {waits} ]; do sleep 0.05; done; "
                  f"{HEAPLINE} attach --comm waits -d 1 -o {self.recording}; true")
        result = harness.run([harness.need("unshare"), "--pid", "--fork", "--mount-proc", "sh", "-c",
                              script], env=self.environment)
        self.assertIn("recorded", result.stderr)
        self.assert_allocates()

    def test_a_heapline_that_was_killed_in_another_pid_namespace_is_followed(self):
        harness.need_root()
        target = harness.program("attach_target")
        # No shell has the end of the pipe: it stays open.
        script = (f"sleep 1000 | {target} {self.path('ledger')} 2 & "
                  f"until [ \"$(readlink /proc/$!/exe)\" = {target} ]; do sleep 0.05; done; "
                  f"{HEAPLINE} attach --comm attach_target -o {self.path('inner.hl')}; sleep 1000")
        with subprocess.Popen([harness.need("unshare"), "--pid", "--fork", "--kill-child",
                               "--mount-proc", "sh", "-c", script], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL,
                              env=dict(os.environ, **self.environment)) as outer:
            try:
                pid, tool = (wait_until(lambda name=name: self.find_below(outer.pid, name), name)
                             for name in ("attach_target", "heapline"))
                # Its recording appears when all is ready.
                wait_until(lambda: os.path.exists(self.path("inner.hl")) and
                           "memfd:heapline" in self.maps_of(pid), "it to be joined")

                def refused():  # once the other one has let go of it
                    result = harness.run([HEAPLINE, "attach", "-p", str(pid), "-o", self.recording])
                    return "traces it" not in result.stderr and result

                self.assert_refused(wait_until(refused, "the other heapline to patch it"), "from another PID namespace")
                os.kill(tool, signal.SIGKILL)
                wait_until(lambda: not self.find_below(outer.pid, "heapline"), "its end")
                self.attach(pid, "-d", "0.5")
                self.assertGreater(report("info", self.recording)["total"]["alloc_objects"], 1000)
                self.assert_nothing_lost(self.recording)
                # The ledger's column is of times when malloc is patched; once it was not.
                before = Ledger(self.path("ledger"))
                self.attach(pid, "-d", "0.5")
                self.assert_like_ledger(before, Ledger(self.path("ledger")), 2)
                self.assertNotIn("memfd:heapline", self.maps_of(pid))
                self.assertIn(harness.process_state(pid), "RS")
            finally:
                outer.kill()

    def maps_of(self, pid):
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
            return maps.read()

    def find_below(self, pid, name):
        """The descendant that is called NAME; None when there is none."""
        try:
            children = harness.children_of(pid)
        except OSError:  # it has ended meanwhile
            return None
        for child in children:
            with contextlib.suppress(OSError):
                with open(f"/proc/{child}/comm", encoding="utf-8") as comm:
                    if comm.read() == name + "\n":
                        return child
            if found := self.find_below(child, name):
                return found
        return None

    def test_a_program_that_is_linked_with_the_recorder_is_joined(self):
        library = {"LD_LIBRARY_PATH": os.path.join(harness.BUILD, "src/recorder")}
        with subprocess.Popen([harness.program("control")], stdin=subprocess.PIPE, text=True,
                              stdout=subprocess.PIPE, env=dict(os.environ, **library)) as process:
            def ask(line):
                process.stdin.write(line + "\n")
                process.stdin.flush()
                return int(process.stdout.readline())
            ask("alloc 101")
            for _ in range(2):
                before = traces_of(process.pid)
                with self.attached(process.pid) as attach:
                    self.assertEqual(ask("alloc 1009"), 1009)
                    self.assertEqual(ask("release 100"), 100)
                    attach.send_signal(signal.SIGINT)
                for value, blocks in (("alloc", 1009), ("inuse", 1009)):
                    row = harness.top_rows(self.recording, value)["alloc_site"]
                    self.assertEqual((row["flat_objects"], row["flat_bytes"]),
                                     (blocks, blocks * 127))
                ask("alloc 3")
                ask("release 900")
                self.assertEqual(traces_of(process.pid)[1:], before[1:])
                self.assertNotIn("memfd:heapline", self.maps_of(process.pid))
            process.stdin.close()
            self.assertEqual(process.wait(harness.TIMEOUT_S), 0)

    def test_what_cannot_be_joined_is_refused_in_one_sentence(self):
        stripped = harness.program("waits_static_stripped")
        with harness.Waiting([stripped]) as process:
            result = harness.run([HEAPLINE, "attach", "-p", str(process.pid), "-o", self.recording])
            self.assert_refused(result)
        command = harness.record_command(self.path("x.hl"), [harness.program("waits")], options=["-q"])
        with harness.Waiting(command) as collector:
            [pid] = harness.children_of(collector.pid)
            result = harness.run([HEAPLINE, "attach", "-p", str(pid), "-o", self.recording])
            self.assert_refused(result, f"heapline ctl -p {pid}")
        self.assertFalse(os.path.exists(self.recording))

    def test_advice_names_the_way_in(self):
        target = self.target(threads=0)
        for verb in (["live", "--once"], ["ctl", "status"]):
            result = harness.run([HEAPLINE, verb[0], "-p", str(target.pid), *verb[1:]],
                                 env=self.environment)
            self.assert_refused(result, f"'heapline attach -p {target.pid}' records it from now on")


class CollectorElsewhere(attaching.TestCase):
    """A process that is joined, by a heapline that cannot be found."""

    def test_no_probe_is_set_on_functions_that_were_changed(self):
        with harness.Waiting([harness.need("python3"), "-c", KEEPS]) as process:
            with self.attached(process.pid):
                result = harness.run([HEAPLINE, "stacks", "-p", str(process.pid), "1"],
                                     env={"XDG_RUNTIME_DIR": self.path("other")})
                self.assertEqual(result.status, 1, result.stderr)
                self.assertIn("heapline is attached to it", result.stderr)
                self.ctl(process.pid, "detach")
            process.kill()


if __name__ == "__main__":
    harness.main()
