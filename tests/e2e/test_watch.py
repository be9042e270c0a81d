#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What a group had near its limit is kept, whatever happens to the group, the service and the disk."""

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import tempfile

import harness
import test_pod
from harness import HEAPLINE

MIB = 1 << 20


class Watch(test_pod.Groups):
    def setUp(self):
        super().setUp()
        self.place = self.path("watch")

    @contextlib.contextmanager
    def watch(self, *options, groups=(), prefix=(), **popen):
        """The service, begun by `prefix`; said() has its sentences."""
        named = [word for group in groups for word in ("--cgroup", group)]
        with open(self.path("said"), "w+", encoding="utf-8", errors="replace") as said, \
                subprocess.Popen([*prefix, HEAPLINE, "watch", "--dir", self.place, *named, *options],
                                 stderr=said, **popen) as service:
            def begun():
                with open(said.name, encoding="utf-8", errors="replace") as file:
                    return "watching" in file.read() or service.poll() is not None
            harness.wait_until(begun, "the service to begin")
            self.assertIsNone(service.poll(), open(said.name, encoding="utf-8").read())
            try:
                yield service
            finally:
                service.send_signal(signal.SIGTERM)
                service.send_signal(signal.SIGCONT)
                self.assertIn(service.wait(), (0, -signal.SIGKILL))

    def said(self):
        with open(self.path("said"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def ledger(self, name="ledger"):
        """A word in shared memory that is charged to the group of the test."""
        path = os.path.join("/dev/shm", f"heapline-{name}-{os.getpid()}")
        with open(path, "wb") as file:
            file.write(bytes(8))
        self.addCleanup(lambda: os.path.exists(path) and os.remove(path))
        return path

    @contextlib.contextmanager
    def grow(self, group, mib, step_kib=1024, pause_us=0, ledger=None):
        """A program in the group that grows by `mib` MiB."""
        command = [harness.program("oom_ledger"), ledger or self.ledger(), str(step_kib), str(mib), str(pause_us)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              preexec_fn=lambda: self.join(group)) as process:
            try:
                yield process
            finally:
                process.kill()

    @staticmethod
    def grow_on(process):
        """As much again as it has grown by first."""
        process.stdin.write("x")
        process.stdin.flush()

    @contextlib.contextmanager
    def recorded(self, process):
        """Records a process of a test; the recording."""
        recording = self.path("recorded.hl")
        with subprocess.Popen([HEAPLINE, "attach", "-q", "-p", str(process.pid), "-o", recording]) as attach:
            harness.wait_until(lambda: not harness.run([HEAPLINE, "ctl", "-p", str(process.pid), "status"]).status,
                               "it to be recorded")
            try:
                yield recording
            finally:
                process.kill()
                attach.wait()

    def entries(self, kind):
        return sorted(name for name in os.listdir(self.place) if f"Z-{kind}-" in name and not name.endswith(".partial"))

    def wait_for(self, kind, count=1):
        harness.wait_until(lambda: len(self.entries(kind)) >= count, f"{count} of kind {kind}")
        return self.entries(kind)

    def load(self, entry, file):
        with open(os.path.join(self.place, entry, file), encoding="utf-8") as stream:
            return json.load(stream)

    def last(self):
        report = harness.run([HEAPLINE, "watch", "last", "--dir", self.place, "--json"])
        self.assertEqual(report.status, 0, report.stderr)
        text = harness.run([HEAPLINE, "watch", "last", "--dir", self.place])
        self.assertEqual(text.status, 0, text.stderr)
        return json.loads(report.stdout), text.stdout

    def test_a_group_at_its_share_is_kept(self):
        with self.group("watched") as group, self.watch(groups=[group]):
            self.limit(group, 64 * MIB)
            with self.grow(group, 60) as process:
                self.assertEqual(process.stdout.readline(), "grown\n")
                entry = self.wait_for("snapshot")[0]
                report, text = self.last()
                pid = process.pid
            snapshot = self.load(entry, "snapshot.json")
            self.assertIn(snapshot["cause"], ("share", "near"))
            self.assertEqual(snapshot["processes"][0]["pid"], pid)
            pod = self.load(entry, "pod.json")
            self.assertEqual(sum(row["bytes"] for row in pod["rows"]), pod["usage_bytes"])
            for file in f"heap-{pid}.json", f"holders-{pid}.json":
                self.assertEqual(self.load(entry, file)["process"]["pid"], pid)
            self.assertFalse(self.load(entry, f"heap-{pid}.json")["stopped"])
            self.assertIsNone(report["killed"])
            self.assertEqual([row["pid"] for row in report["rows"]], [row["pid"] for row in pod["rows"]])
            self.assertIn("no kill is known", text)
            listed = json.loads(harness.run([HEAPLINE, "watch", "list", "--dir", self.place, "--json"]).stdout)
            self.assertEqual([row["entry"] for row in listed["rows"]], self.entries("snapshot")[::-1])

    def test_processes_are_stopped_only_if_allowed(self):
        with self.group("stopped") as group, self.watch("--allow-stop", groups=[group]):
            self.limit(group, 64 * MIB)
            with self.grow(group, 60) as process:
                self.assertEqual(process.stdout.readline(), "grown\n")
                entry = self.wait_for("snapshot")[0]
                self.assertTrue(self.load(entry, f"heap-{process.pid}.json")["stopped"])
                self.assertIsNone(process.poll())

    def test_page_cache_alone_is_no_reason(self):
        with self.group("cached") as group, self.watch(groups=[group]):
            self.limit(group, 32 * MIB)
            with open(self.path("large"), "wb") as file:
                file.write(bytes(64 * MIB))
                os.fsync(file.fileno())
            subprocess.run(["cat", file.name], check=True, stdout=subprocess.DEVNULL,
                           preexec_fn=lambda: self.join(group))
            with self.grow(group, 31) as process:
                self.assertEqual(process.stdout.readline(), "grown\n")
                entry = self.wait_for("snapshot")[0]
            self.assertGreater(self.load(entry, "snapshot.json")["usage_bytes"], 29 * MIB)
            self.assertLess(self.load(entry, "snapshot.json")["cache_bytes"], 6 * MIB)

    def test_page_cache_of_a_group_above_hides_nothing(self):
        with self.group("above") as above:
            if self.is_v2:
                with open(os.path.join(above, "cgroup.subtree_control"), "w", encoding="ascii") as file:
                    file.write("+memory")
            self.limit(above, 64 * MIB)
            near, cached = (os.path.join(above, name) for name in ("near", "cached"))
            os.mkdir(near)
            os.mkdir(cached)
            self.limit(near, 32 * MIB)
            with self.watch(groups=[near]):
                subprocess.run(["dd", "if=/dev/zero", f"of={self.path('large')}", "bs=1M", "count=128", "conv=fsync"],
                               check=True, stderr=subprocess.DEVNULL, preexec_fn=lambda: self.join(cached))
                with self.grow(near, 29) as process:
                    self.assertEqual(process.stdout.readline(), "grown\n")
                    entry = self.wait_for("snapshot")[0]
                self.assertEqual(self.load(entry, "snapshot.json")["limit_bytes"], 32 * MIB)

    def test_who_owns_the_blocks_of_a_recorded_process(self):
        with self.group("blocks") as group, self.watch("--share", "50", groups=[group]):
            self.limit(group, 128 * MIB)
            with self.grow(group, 40) as process, self.recorded(process):
                self.grow_on(process)
                entry = self.wait_for("snapshot")[0]
            said = {step["file"]: step["said"] for step in self.load(entry, "snapshot.json")["steps"] if not step["done"]}
            self.assertEqual(said, {})
            for file in "allocations", "holders":
                self.assertTrue(self.load(entry, f"{file}-{process.pid}.json")["rows"])

    def test_steady_growth_is_noticed_before(self):
        with self.group("steady") as group, self.grow(group, 70) as process:
            self.assertEqual(process.stdout.readline(), "grown\n")  # all at once, which would be a reason
            self.limit(group, 128 * MIB)
            with self.watch(groups=[group]), self.grow(group, 30, 128, 100_000):
                entry = self.wait_for("snapshot")[0]
            self.assertEqual(self.load(entry, "snapshot.json")["cause"], "growth")

    def test_a_group_that_fills_within_a_second_has_its_snapshot(self):
        kept = []
        for number in range(5):  # on a busy machine the service may be too late
            with self.group(f"fills{number}") as group:
                self.limit(group, 64 * MIB)
                with self.watch(groups=[group]):
                    with self.grow(group, 200, pause_us=7_000) as process:
                        self.assertEqual(process.wait(), -signal.SIGKILL)
                    self.wait_for("kill", number + 1)
                    harness.wait_until(lambda: "partial" not in str(os.listdir(self.place)), "snapshots to be complete")
                kept = [snapshot for snapshot in (self.load(entry, "snapshot.json") for entry in self.entries("snapshot"))
                        if process.pid in [process["pid"] for process in snapshot["processes"]]]
            if kept:
                break
        self.assertTrue(kept, self.said())
        self.assertGreaterEqual(kept[0]["usage_bytes"], 31 * MIB)
        self.assertGreaterEqual(kept[0]["processes"][0]["anonymous_bytes"], 30 * MIB)

    def test_alarms_that_cannot_be_set_are_said_once(self):
        with self.group("silent") as group:
            self.limit(group, 32 * MIB)
            lock = "mount --bind {0} {0} && mount -o remount,ro,bind {0} && exec \"$@\"".format(self.mount)
            with self.watch(groups=[group], prefix=[harness.need("unshare"), "-m", "sh", "-c", lock, "sh"]):
                with self.grow(group, 20), self.grow(group, 9):
                    self.wait_for("snapshot")  # by looks
                found = re.findall("groups are looked at every 2 seconds.*Read-only file system", self.said())
                self.assertEqual(len(found), 1, self.said())

    def test_two_groups_at_once(self):
        with self.group("one") as one, self.group("two") as two, self.watch(groups=[one, two]):
            for group in one, two:
                self.limit(group, 64 * MIB)
            with self.grow(one, 60) as first, self.grow(two, 60) as second:
                for process in first, second:
                    self.assertEqual(process.stdout.readline(), "grown\n")
                harness.wait_until(lambda: len({self.load(entry, "snapshot.json")["group"]
                                                for entry in self.entries("snapshot")}) == 2, "a snapshot of each")

    def test_all_groups_with_a_limit_are_found_again(self):
        with self.watch(), self.group("late gr\toup") as group:
            self.limit(group, 64 * MIB)
            with self.grow(group, 60) as process:
                self.assertEqual(process.stdout.readline(), "grown\n")
                name = os.path.basename(group)
                harness.wait_until(lambda: any(os.path.basename(self.load(entry, "snapshot.json")["group"]) == name
                                               for entry in self.entries("snapshot")), "its snapshot")

    def test_a_group_that_vanishes_is_forgotten(self):
        with self.group("stays") as stays, self.watch("--share", "50") as service:
            self.limit(stays, 64 * MIB)
            for _ in range(3):
                with self.group("gone") as group:
                    self.limit(group, 32 * MIB)
                    with self.grow(group, 30, pause_us=20_000):
                        harness.wait_until(lambda: not os.path.exists(self.place) or "gone" in str(os.listdir(self.place)),
                                           "a snapshot to begin")
            with self.grow(stays, 60):
                harness.wait_until(lambda: any("stays" in entry for entry in self.entries("snapshot")), "its snapshot")
            self.assertIsNone(service.poll())

    def test_who_is_killed_loses_the_partial_alone(self):
        with self.group("lost") as group:
            self.limit(group, 64 * MIB)
            with self.grow(group, 60) as process:
                self.assertEqual(process.stdout.readline(), "grown\n")
                with self.watch(groups=[group]):
                    self.wait_for("snapshot")
                kept = self.entries("snapshot")
                with self.watch(groups=[group]) as service:
                    harness.wait_until(lambda: "partial" in str(os.listdir(self.place)), "a snapshot to begin")
                    service.kill()
                self.assertEqual(len(self.last()[0]["snapshots"]), min(len(kept), 2))
                partial = [name for name in os.listdir(self.place) if name.endswith(".partial")]
                with self.watch(groups=[group]):
                    self.wait_for("snapshot", len(kept) + 1)
                    for name in partial:
                        self.assertFalse(os.path.exists(os.path.join(self.place, name)))
                self.assertEqual(self.entries("snapshot")[:len(kept)], kept)

    def test_a_full_disk_drops_the_oldest(self):
        os.mkdir(self.place)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "none", self.place], check=False)
        if mounted.returncode:
            self.skipTest("no tmpfs can be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", self.place], check=True)
        old = [f"20200101T00000{i}.000Z-snapshot-old" for i in range(3)]
        for name in old:
            os.mkdir(os.path.join(self.place, name))
            with open(os.path.join(self.place, name, "ballast"), "wb") as file:
                file.write(bytes(332 << 10))
        with self.group("full") as group, self.watch(groups=[group]):
            self.limit(group, 64 * MIB)
            with self.grow(group, 60) as process:
                self.assertEqual(process.stdout.readline(), "grown\n")
                harness.wait_until(lambda: self.entries("snapshot")[-1] not in old, "a new snapshot")
                report, _ = self.last()
                self.assertEqual(report["missing"], [])
                self.assertNotIn(old[0], self.entries("snapshot"))

    def test_what_a_full_disk_does_not_take_is_named_and_leaves_nothing(self):
        os.mkdir(self.place)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256K", "none", self.place], check=False).returncode:
            self.skipTest("no tmpfs can be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", self.place], check=True)
        with contextlib.suppress(OSError), open(os.path.join(self.place, "ballast"), "wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        with self.group("full") as group, self.watch("--share", "50", groups=[group]):
            self.limit(group, 32 * MIB)
            with self.grow(group, 24) as process:
                self.assertEqual(process.stdout.readline(), "grown\n")
                harness.wait_until(lambda: "cannot make a snapshot of" in self.said(), "the sentence")
            with self.grow(group, 100) as process:
                self.assertEqual(process.wait(), -signal.SIGKILL)
                harness.wait_until(lambda: "which cannot be kept: No space left on device" in self.said(), "the kill")
            left = [name for name in os.listdir(self.place) if name not in ("ballast", "lock")]
            self.assertEqual([name for name in left if "-kill-" in name], [])
            os.remove(file.name)
            with self.grow(group, 24) as process:
                self.wait_for("snapshot")  # the second try

    def test_a_process_that_cannot_be_joined_is_named(self):
        with self.group("joined") as group, self.grow(group, 88) as process, self.recorded(process):
            self.limit(group, 128 * MIB)
            with self.watch("--attach-sample", "--share", "50", groups=[group]):
                harness.wait_until(lambda: f"recording process {process.pid} has failed: " in self.said(), "the sentence")
                self.wait_for("snapshot")
                self.assertEqual(self.entries("recording"), [])

    def test_a_group_that_is_made_again_is_known_at_once(self):
        with self.group("again") as group:
            pass
        os.mkdir(group)
        with self.watch(groups=[group]):
            for count in 1, 2:
                os.path.exists(group) and os.rmdir(group)
                os.mkdir(group)
                self.limit(group, 32 * MIB)
                with self.grow(group, 100) as process:
                    self.assertEqual(process.wait(), -signal.SIGKILL)
                self.wait_for("kill", count)
            harness.wait_until(lambda: self.removed(group), "the group to be empty")

    def test_damaged_entries_are_told_as_far_as_they_go(self):
        entry = os.path.join(self.place, "20260101T000000.000Z-kill-x")
        os.makedirs(entry)
        damaged = {"realtime_ms": None, "victim": {"pid": "x", "command": [None, 1], "stack": [None, {}]},
                   "asked": {"stack": [1]}, "missing": [None, 2]}
        for text in json.dumps(damaged), "[]", "null", "{\"asked\": 1, \"missing\": {}}":
            with open(os.path.join(entry, "kill.json"), "w", encoding="ascii") as file:
                file.write(text)
            self.last() if text[0] == "{" else harness.run([HEAPLINE, "watch", "last", "--dir", self.place])
        os.remove(file.name)
        os.mkfifo(file.name)
        result = harness.run([HEAPLINE, "watch", "last", "--dir", self.place])
        self.assertEqual(result.status, 1)
        self.assertIn("no kill and no snapshot", result.stderr)

    def test_the_grower_is_joined(self):
        with self.group("joined") as group, self.watch("--attach-sample", groups=[group]) as service:
            self.limit(group, 96 * MIB)
            with self.grow(group, 88) as process:
                self.assertEqual(process.stdout.readline(), "grown\n")
                entry = self.wait_for("recording")[0]
                recording = os.path.join(self.place, entry, f"{process.pid}.hl")
                harness.wait_until(lambda: os.path.exists(recording), "the recording")
                self.wait_for("snapshot")
                self.assertEqual(self.last()[0]["recording"], recording)
                service.send_signal(signal.SIGTERM)
                self.assertEqual(service.wait(), 0, self.said())
                self.assertIsNone(process.poll())
            self.assertEqual(harness.run([HEAPLINE, "info", recording]).status, 0)

    def test_what_it_started_ends_with_it(self):
        with self.group("joined") as group, self.grow(group, 88) as process, \
                self.watch("--attach-sample", groups=[group]) as service:
            self.limit(group, 96 * MIB)
            entry = self.wait_for("recording")[0]
            recording = os.path.join(self.place, entry, f"{process.pid}.hl")
            harness.wait_until(lambda: os.path.exists(recording), "the recording")
            service.kill()
            harness.wait_until(lambda: harness.run([HEAPLINE, "ctl", "-p", str(process.pid), "status"]).status, "its end")
            self.assertIsNone(process.poll())
            self.assertEqual(harness.run([HEAPLINE, "info", recording]).status, 0)

    def figures_of(self, entry, ledger, step_kib):
        """Checks the figures of a kill against the ledger of the program."""
        kill = self.load(entry, "kill.json")
        with open(ledger, "rb") as file:
            written = int.from_bytes(file.read(8), "little") * step_kib * 1024
        anonymous = kill["victim"]["anonymous_bytes"]
        # What the program has beside, as it starts, is less than a MiB.
        self.assertGreaterEqual(anonymous, written)
        self.assertLess(anonymous, written + step_kib * 1024 + MIB)
        return kill

    def test_a_kill_is_kept_to_the_last_allocation(self):
        with self.group("killed") as group, self.watch("--share", "50", groups=[group]):
            self.limit(group, 32 * MIB)
            ledger = self.ledger()
            with self.grow(group, 24, ledger=ledger) as process:
                self.wait_for("snapshot")
                self.grow_on(process)
                self.assertEqual(process.wait(), -signal.SIGKILL)
                kill = self.figures_of(self.wait_for("kill")[0], ledger, 1024)
            self.assertEqual(kill["victim"]["pid"], process.pid)
            self.assertEqual(kill["victim"]["command"], process.args)
            self.assertEqual(kill["limit_bytes"], 32 * MIB)
            self.assertEqual(kill["group"], kill["victim_group"])
            self.assertEqual(os.path.basename(kill["group"]), os.path.basename(group))
            functions = [frame.split()[0] for frame in kill["asked"]["stack"]]
            self.assertEqual(functions[functions.index("keep_step"):][:3], ["keep_step", "grow_to", "main"])
            report, text = self.last()
            self.assertEqual(report["victim"]["pid"], process.pid)
            self.assertIn(report["snapshots"][-1]["cause"], ("share", "near"))
            self.assertTrue(report["rows"])
            self.assertIn("keep_step oom_ledger.c", text)

    def test_who_asked_and_who_was_killed_are_in_different_groups(self):
        with self.group("above") as above, self.watch(groups=[above]):
            if self.is_v2:
                with open(os.path.join(above, "cgroup.subtree_control"), "w", encoding="ascii") as file:
                    file.write("+memory")
            self.limit(above, 64 * MIB)
            for name in "large", "small":
                os.mkdir(os.path.join(above, name))
            ledger = self.ledger("large")
            with self.grow(f"{above}/large", 59, ledger=ledger) as large:
                self.assertEqual(large.stdout.readline(), "grown\n")
                self.wait_for("snapshot")  # which has its mappings: it may be gone before these are read
                with self.grow(f"{above}/small", 60, 4, 100) as small:
                    self.assertEqual(large.wait(), -signal.SIGKILL)
                    kill = self.figures_of(self.wait_for("kill")[0], ledger, 1024)
            self.assertEqual((kill["victim"]["pid"], kill["asked"]["pid"]), (large.pid, small.pid))
            name = os.path.basename(above)
            self.assertTrue(kill["group"].endswith(name))
            self.assertTrue(kill["victim_group"].endswith(f"{name}/large"))
            self.assertTrue(kill["asked"]["group"].endswith(f"{name}/small"))
            self.assertIn("keep_step", " ".join(kill["asked"]["stack"]))
            self.assertNotIn("keep_step", " ".join(kill["victim"]["stack"]))
            if kill["victim"]["command"]:
                self.assertTrue(" ".join(kill["victim"]["stack"]).endswith("_start (oom_ledger)"), kill)
                self.assertEqual(kill["victim"]["command"], large.args)
            else:  # on a busy machine the kernel's reaper takes its pages before it runs
                self.assertIn("the command line could not be read any more", kill["missing"])

    def stopped_namer(self, service, group):
        """Has a process of the group killed; the child of the service that names its stack, which is stopped."""
        def read(pid, file):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/{file}", "rb") as stream:
                return stream.read()
            return b""

        children = f"/proc/{service.pid}/task/{service.pid}/children"
        if not os.path.exists(children):
            self.skipTest(f"the kernel has no {children}")
        while True:
            kept = len(self.entries("kill"))
            with self.grow(group, 100) as process:
                self.assertEqual(process.wait(), -signal.SIGKILL)
            while len(self.entries("kill")) == kept:
                with open(children, encoding="ascii") as file:
                    for pid in map(int, file.read().split()):
                        # one that is about to become another program is not the first to be killed yet
                        if read(pid, "cmdline") == read(service.pid, "cmdline") and read(pid, "oom_score_adj") == b"1000\n":
                            os.kill(pid, signal.SIGSTOP)
                            return pid

    def test_stacks_that_are_not_named_in_time_are_missing(self):
        with self.group("unnamed") as group, self.watch(groups=[group]) as service:
            self.limit(group, 32 * MIB)
            namer = self.stopped_namer(service, group)
            kept = len(self.entries("kill"))
            os.kill(namer, signal.SIGKILL)
            kill = self.load(self.wait_for("kill", kept + 1)[-1], "kill.json")
            self.assertEqual(kill["asked"]["stack"], [])
            self.assertIn("the stacks have no names: naming them took more", kill["missing"][-1])

    def test_a_service_that_is_killed_while_it_names_leaves_the_directory_free(self):
        with self.group("unnamed") as group:
            self.limit(group, 32 * MIB)
            with self.watch(groups=[group]) as service:
                self.stopped_namer(service, group)
                kept = len(self.entries("kill"))
                service.kill()
                service.wait()
            with self.watch(groups=[group]):
                self.assertEqual(len(self.entries("kill")), kept + 1)  # its figures

    def test_a_kill_just_before_the_end_is_kept(self):
        with self.group("last") as group, self.watch(groups=[group]) as service:
            self.limit(group, 32 * MIB)
            service.send_signal(signal.SIGSTOP)
            with self.grow(group, 100) as process:
                self.assertEqual(process.wait(), -signal.SIGKILL)
            service.send_signal(signal.SIGTERM)
            service.send_signal(signal.SIGCONT)
            self.assertEqual(service.wait(), 0)
            kill = self.load(self.entries("kill")[0], "kill.json")
            self.assertEqual(kill["victim"]["pid"], process.pid)
            self.assertEqual(kill["missing"], ["the stacks have no names: the service ended meanwhile"])

    def test_a_recorded_process_leads_to_its_recording(self):
        with self.group("recorded") as group, self.watch("--share", "50", groups=[group]):
            self.limit(group, 32 * MIB)
            with self.grow(group, 10) as process, self.recorded(process) as recording:
                self.grow_on(process)
                self.wait_for("snapshot")
                self.grow_on(process)
                self.grow_on(process)
                self.assertEqual(process.wait(), -signal.SIGKILL)
                self.wait_for("kill")
            self.assertEqual(self.last()[0]["recording"], recording)

    def test_kills_elsewhere_are_left_out(self):
        with self.group("named") as group, self.group("other") as other, self.watch(groups=[group]):
            for at in group, other:
                self.limit(at, 32 * MIB)
            for at in other, group:
                with self.grow(at, 100) as process:
                    self.assertEqual(process.wait(), -signal.SIGKILL)
            entry = self.wait_for("kill")
            self.assertEqual(len(entry), 1)
            self.assertTrue(self.load(entry[0], "kill.json")["group"].endswith(os.path.basename(group)))

    def test_without_bpf_kills_are_counted(self):
        setpriv = harness.need("setpriv")
        with self.group("counted") as group:
            self.limit(group, 32 * MIB)
            without = [setpriv, "--bounding-set=-bpf,-perfmon,-sys_admin", "--inh-caps=-all"]
            with self.watch(groups=[group], prefix=without) as service:
                with self.grow(group, 100) as process:
                    self.assertEqual(process.wait(), -signal.SIGKILL)
                self.wait_for("kill")
                harness.wait_until(lambda: "the kernel has killed 1 process of" in self.said(), "the sentence")
                report, text = self.last()
                self.assertIsNone(report["victim"])
                self.assertIn("who was killed, and who asked for memory, is not known", text)
                self.assertEqual(report["limit_bytes"], 32 * MIB)
                for ends in False, True:
                    service.send_signal(signal.SIGSTOP)
                    for _ in range(2):
                        with self.grow(group, 100) as process:
                            self.assertEqual(process.wait(), -signal.SIGKILL)
                    if ends:
                        service.terminate()
                    service.send_signal(signal.SIGCONT)
                    self.wait_for("kill", 3 if ends else 2)
                    newest = self.load(self.entries("kill")[-1], "kill.json")
                    self.assertEqual(newest["kills"], 2)
                    self.assertIn("2 processes were killed between two looks at the group", newest["missing"])

    def test_a_directory_that_cannot_be_written_is_an_error(self):
        with tempfile.NamedTemporaryFile() as file:
            result = harness.run([HEAPLINE, "watch", "--dir", f"{file.name}/watch"])
            self.assertEqual(result.status, 1)
            self.assertIn("--dir DIR", result.stderr)
        with self.group("twice") as group, self.watch(groups=[group]):
            result = harness.run([HEAPLINE, "watch", "--dir", self.place])
            self.assertEqual(result.status, 1)
            self.assertIn("another 'heapline watch'", result.stderr)

    def test_groups_beyond_its_descriptors_are_counted(self):
        with contextlib.ExitStack() as stack:
            for number in range(40):
                self.limit(stack.enter_context(self.group(f"many{number}")), 64 * MIB)
            few = (64, 64)
            stack.enter_context(self.watch(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, few)))
            self.assertIn("groups cannot be watched: there are too few descriptors", self.said())

    def test_a_directory_is_private_however_it_is_given(self):
        with self.group("slash") as group:
            self.place += "/"
            with self.watch(groups=[group]):
                self.assertEqual(os.stat(self.place).st_mode & 0o777, 0o700)

    def test_it_says_when_it_is_in_a_group_that_it_watches(self):
        with self.group("own") as group, self.watch(groups=[group], preexec_fn=lambda: self.join(group)):
            harness.wait_until(lambda: "is itself in" in self.said(), "the sentence")


if __name__ == "__main__":
    harness.main()
