# SPDX-License-Identifier: BSD-2-Clause
"""Recordings that are asked and changed while they go on: by `heapline ctl`, and by the program
itself through heapline.h.
"""

import contextlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import time

import harness
from harness import HEAPLINE, report

LOG_MODES = ("log-record", "log-fast")
MODES = {"closed": 0, "mem-record": 1, "mem-fast": 2, "log-record": 3, "log-fast": 4}
OTHER_USER = 65534
ERRNO = {"EPERM": -1, "EAGAIN": -11, "EBUSY": -16, "EEXIST": -17, "EINVAL": -22,
         "ENAMETOOLONG": -36, "EOPNOTSUPP": -95, "ENOTCONN": -107}
HANDLED_IN_A_WHILE_S = 30.0


class Recorded:
    """control.c under `heapline record`, asked line by line."""

    def __init__(self, recording, runtime, mode, options=(), command=None):
        self.recording = recording
        library = os.path.join(harness.BUILD, "src/recorder")
        environment = dict(os.environ, XDG_RUNTIME_DIR=runtime, LD_LIBRARY_PATH=library)
        command = command or [harness.program("control")]
        self.collector = subprocess.Popen(
            harness.record_command(recording, command, mode, options), text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment, start_new_session=True)
        self.pid = harness.wait_until(self._child, "the program", HANDLED_IN_A_WHILE_S)

    def _child(self):
        children = harness.children_of(self.collector.pid)
        return children[0] if children else None

    def ask(self, line):
        """What the program answers, which it does once it has a recorder or none."""
        self.collector.stdin.write(line + "\n")
        return int(self.collector.stdout.readline())

    def end(self):
        self.collector.stdin.close()
        self.collector.stdin = None
        _, errors = self.collector.communicate(timeout=harness.TIMEOUT_S)
        return self.collector.returncode, errors

    def kill(self):
        if self.collector.poll() is None:
            os.killpg(self.collector.pid, signal.SIGKILL)
        for stream in (self.collector.stdin, self.collector.stdout, self.collector.stderr):
            if stream and not stream.closed:
                stream.close()
        self.collector.wait()


class CtlCase(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.runtime = self.path("run")
        os.mkdir(self.runtime, 0o700)

    def start(self, mode="mem-fast", options=(), name="test.hl", command=None):
        recorded = Recorded(self.path(name), self.runtime, mode, options, command)
        self.addCleanup(recorded.kill)
        if not command:
            recorded.ask("alloc 1")  # it has a region from here on
        return recorded

    def ctl(self, pid, *words, **options):
        environment = {"XDG_RUNTIME_DIR": self.runtime}
        return harness.run([HEAPLINE, "ctl", "-p", str(pid), *words], env=environment, **options)

    def ctl_well(self, pid, *words):
        result = self.ctl(pid, *words)
        self.assertEqual(result.status, 0, result.stderr)
        return result

    def status(self, pid):
        return json.loads(self.ctl_well(pid, "status", "--json").stdout)

    def row(self, recorded):
        rows = self.status(recorded.pid)["rows"]
        return next(row for row in rows if row["pid"] == recorded.pid)

    def is_saved(self, recorded):
        return os.path.exists(os.path.join(recorded.recording, f"process-0-{recorded.pid}.hlp"))

    def socket_path(self, recorded):
        return os.path.join(self.runtime, "heapline", f"{recorded.collector.pid}.sock")

    def connect(self, recorded):
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(harness.TIMEOUT_S)
        self.addCleanup(client.close)
        client.connect(self.socket_path(recorded))
        return client

    def talk(self, recorded, request):
        """What the collector answers to these bytes, until it hangs up."""
        client = self.connect(recorded)
        answer = b""
        # It does not read what is too much, and may hang up before anything is sent.
        with contextlib.suppress(ConnectionError):
            client.sendall(request)
        with contextlib.suppress(ConnectionError):
            while part := client.recv(65536):
                answer += part
        return answer

    def marks(self, recording):
        """The names in the log, in the order of the segments that hold them."""
        return [mark["text"] for mark in report("timeline", recording)["marks"]]

    def log_has(self, recorded, mark):
        """Whether the log of a recording that goes on holds MARK; it may hold nothing yet."""
        result = harness.run([HEAPLINE, "timeline", "--json", recorded.recording])
        return result.status == 0 and mark in [
            found["text"] for found in json.loads(result.stdout)["marks"]]

    def marks_in_meta(self, recording):
        """The names that stand in the recording itself."""
        return [mark["text"] for mark in report("info", recording)["marks"]]


class Status(CtlCase):
    def test_status_says_what_the_program_did(self):
        recorded = self.start()
        before = self.row(recorded)
        recorded.ask("alloc 1009")
        after = self.row(recorded)
        self.assertEqual(after["inuse_objects"] - before["inuse_objects"], 1009)
        self.assertEqual(after["inuse_bytes"] - before["inuse_bytes"], 1009 * 127)
        self.assertEqual(after["events"] - before["events"], 1009)
        self.assertGreaterEqual(after["peak_bytes"], after["inuse_bytes"])
        self.assertEqual((after["mode"], after["lost_events"]), ("mem-fast", 0))
        self.assertGreater(after["stack_nodes"], 0)
        self.assertNotIn("log_segments", after)
        self.assertIn("control", after["command"])

    def test_status_names_the_recording_and_its_collector(self):
        recorded = self.start()
        status = self.status(recorded.pid)
        self.assertEqual(status["schema"], "heapline/ctl-status/1")
        self.assertEqual(status["recording"]["name"], os.path.realpath(recorded.recording))
        self.assertEqual(status["recording"]["collector"], recorded.collector.pid)
        self.assertEqual(status["recording"]["mode"], "mem-fast")
        text = self.ctl_well(recorded.collector.pid, "status").stdout
        self.assertIn(recorded.recording, text)
        self.assertIn(str(recorded.pid), text)

    def test_status_of_a_log_counts_its_segments(self):
        recorded = self.start("log-fast")
        harness.wait_until(lambda: self.row(recorded)["log_bytes"] > 0, "a segment")
        row = self.row(recorded)
        self.assertEqual((row["log_segments"], row["log_segments_kept"]), (1, 10))
        self.assertEqual(row["lost_log_events"], 0)

    def test_status_lists_each_process(self):
        recorded = self.start()
        child = recorded.ask("fork")
        self.addCleanup(os.kill, child, signal.SIGKILL)

        def pids():
            return sorted(row["pid"] for row in self.status(recorded.pid)["rows"])
        harness.wait_until(lambda: pids() == sorted([recorded.pid, child]), "both processes")
        self.assertEqual(self.status(child)["recording"], self.status(recorded.pid)["recording"])


class Reset(CtlCase):
    def site(self, recording, value):
        row = harness.top_rows(recording, value).get("alloc_site", {})
        return row.get("cum_objects", 0), row.get("cum_bytes", 0)

    def test_figures_count_from_a_reset_and_what_is_in_use_stays(self):
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                recorded = self.start(mode, name=f"{mode}.hl")
                recorded.ask("alloc 2000")
                recorded.ask("release 1500")
                high = self.row(recorded)["peak_bytes"]
                self.ctl_well(recorded.pid, "reset")
                self.assertEqual(self.row(recorded)["events"], 0)
                recorded.ask("alloc 203")
                recorded.ask("release 101")
                row = self.row(recorded)
                self.assertEqual(row["events"], 203 + 101)
                self.assertLess(row["peak_bytes"], high - 1200 * 127)
                snapshot = self.path(f"{mode}-snapshot.hl")
                self.ctl_well(recorded.pid, "snapshot", snapshot)
                recorded.ask("alloc 7")
                self.assertEqual(recorded.end()[0], 0)
                # The block by which start() sees that it records is the first to be freed.
                left = 2001 - 1500 + 203 - 101
                for recording, more in ((snapshot, 0), (recorded.recording, 7)):
                    self.assertEqual(self.site(recording, "alloc"), (203 + more,
                                                                     (203 + more) * 127))
                    self.assertEqual(self.site(recording, "inuse"), (left + more,
                                                                     (left + more) * 127))
                    peak = self.site(recording, "peak")[0]
                    self.assertTrue(left <= peak <= 2001 - 1500 + 203, peak)
                    info = harness.info(recording)
                    self.assertEqual(info["lost"]["damaged"], 0)
                    self.assertGreater(info["recording"]["reset_ms"], 0)
                    self.assertIn("\nreset at 20", harness.run([HEAPLINE, "top", recording]).stdout)
                self.assertIn("reset", self.marks_in_meta(recorded.recording))
                if mode in LOG_MODES:  # the history is whole
                    self.assertIn("reset", self.marks(recorded.recording))
                    rows = report("timeline", recorded.recording)["rows"]
                    self.assertGreaterEqual(max(row["bytes"] for row in rows), 2001 * 127)

    def test_a_recording_without_a_reset_has_the_same_in_use(self):
        """A reset changes nothing of what is in use: at no stack, and not in the sum."""
        totals = []
        for resets in (0, 3):
            recorded = self.start(name=f"{resets}.hl")
            for _ in range(3):
                recorded.ask("alloc 211")
                if resets:
                    self.ctl_well(recorded.pid, "reset")
                recorded.ask("release 100")
            recorded.end()
            totals.append({name: row["cum_bytes"] for name, row
                           in harness.top_rows(recorded.recording, "inuse").items()})
        self.assertEqual(totals[0], totals[1])

    def test_all_processes_are_reset_or_one(self):
        recorded = self.start()
        child = recorded.ask("fork")
        self.addCleanup(os.kill, child, signal.SIGKILL)

        def events():
            return {row["pid"]: row["events"] for row in self.status(recorded.pid)["rows"]}
        harness.wait_until(lambda: events().get(child), "the child")
        self.assertGreater(min(events().values()), 0)
        self.ctl_well(child, "reset")
        self.assertEqual(events()[child], 0)
        self.assertGreater(events()[recorded.pid], 0)
        self.ctl_well(child, "--all", "reset")
        self.assertEqual(set(events().values()), {0})

    def test_a_packed_recording_says_that_it_was_reset(self):
        recorded = self.start()
        recorded.ask("alloc 100")
        self.ctl_well(recorded.pid, "reset")
        recorded.end()
        packed = self.path("packed.hlpack")
        self.assertEqual(harness.run([HEAPLINE, "pack", recorded.recording, "-o", packed]).status, 0)
        for name in (recorded.recording, packed):
            self.assertGreater(report("top", name)["recording"]["reset_ms"], 0)


class Mode(CtlCase):
    def test_closed_programs_are_not_counted_until_they_are_switched_back(self):
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                recorded = self.start(mode, name=f"{mode}.hl")
                self.ctl_well(recorded.pid, "mode", "closed")
                before = self.row(recorded)
                self.assertEqual(before["mode"], "closed")
                self.assertEqual(recorded.ask("status"), MODES["closed"])
                recorded.ask("alloc 1009")
                self.assertEqual(self.row(recorded)["events"], before["events"])
                self.ctl_well(recorded.pid, "mode", mode)
                recorded.ask("alloc 503")
                self.assertEqual(self.row(recorded)["events"], before["events"] + 503)
                self.assertEqual(recorded.end()[0], 0)

    def test_a_recording_shows_the_last_mode_that_counts(self):
        recorded = self.start("closed")
        self.ctl_well(recorded.pid, "mode", "mem-fast")
        recorded.ask("alloc 503")
        self.ctl_well(recorded.pid, "mode", "closed")
        self.assertEqual(recorded.end()[0], 0)
        self.assertEqual(report("info", recorded.recording)["recording"]["mode"], "mem-fast")
        recorded = self.start("mem-fast", name="all.hl")
        self.ctl_well(recorded.pid, "--all", "mode", "mem-record")
        self.assertEqual(recorded.end()[0], 0)
        self.assertEqual(report("info", recorded.recording)["recording"]["mode"], "mem-record")

    def test_switches_of_the_mode_leave_marks(self):
        for mode, marks in (("log-fast", self.marks), ("mem-record", self.marks_in_meta)):
            with self.subTest(mode=mode):
                recorded = self.start(mode, name=f"{mode}.hl")
                for wanted in ("closed", "closed", mode):
                    self.ctl_well(recorded.pid, "mode", wanted)
                for wanted in ("closed", mode, mode):
                    self.assertEqual(recorded.ask(f"mode {MODES[wanted]}"), 0)
                self.assertEqual(recorded.end()[0], 0)
                self.assertEqual(marks(recorded.recording), ["mode closed", f"mode {mode}"] * 2)

    def test_views_say_for_how_long_a_process_was_closed(self):
        """Switched off at the start, from outside or by the program; and not where it never was."""
        def pauses(recorded):
            return [text for text in report("top", recorded.recording)["recording"]["warnings"]
                    if "'closed'" in text]

        for start, switches, count in (("closed", ("mem-fast",), 1), ("mem-fast", ("closed",), 1),
                                       ("log-fast", ("closed", "log-fast"), 1),
                                       ("mem-fast", ("mem-record", "log-fast"), 0)):
            for by_program in (False, True):
                with self.subTest(start=start, switches=switches, by_program=by_program):
                    recorded = self.start(start, name=f"{start}-{len(switches)}-{by_program}.hl")
                    for wanted in switches:
                        recorded.ask("alloc 101")
                        time.sleep(0.05)
                        if by_program:
                            self.assertEqual(recorded.ask(f"mode {MODES[wanted]}"), 0)
                        else:
                            self.ctl_well(recorded.pid, "mode", wanted)
                    time.sleep(0.05)
                    self.assertEqual(recorded.end()[0], 0)
                    self.assertEqual(len(pauses(recorded)), count, pauses(recorded))
                    for text in pauses(recorded):
                        closed, lived = re.fullmatch(
                            rf"process {recorded.pid} was in mode 'closed' for ([0-9.]+) of "
                            r"([0-9.]+) s: .*", text).groups()
                        self.assertTrue(0.04 < float(closed) < float(lived), text)

    def test_modes_that_are_none_are_refused(self):
        recorded = self.start()
        self.assert_refused(self.ctl(recorded.pid, "mode", "nonsense"), "'nonsense'", "log-fast")
        self.assertEqual(recorded.ask("mode 5"), ERRNO["EINVAL"])

    def test_any_mode_follows_any_other_as_often_as_wanted(self):
        """From outside and by the program, one after another; the counters are exact, and a log
        that began late has what was in use before.
        """
        recorded = self.start("off")
        counted = unmatched = 0
        by_program = False
        for before in MODES:
            for mode in MODES:
                for wanted in (before, mode):
                    if by_program:
                        self.assertEqual(recorded.ask(f"mode {MODES[wanted]}"), 0)
                    else:
                        self.ctl_well(recorded.pid, "mode", wanted)
                    recorded.ask("alloc 101")
                    counted += 101 * (wanted != "closed")
                # The oldest blocks are of another mode, or of none.
                recorded.ask("release 53")
                by_program = not by_program
        released = 53 * len(MODES) ** 2
        self.assertEqual(recorded.ask("mode 4"), 0)
        recorded.ask(f"release {released}")
        row = self.row(recorded)
        harness.wait_until(lambda: self.row(recorded)["ms"] >= row["ms"] + 200, "an interval")
        recorded.ask("alloc 1")
        counted += 1
        self.assertEqual(recorded.end()[0], 0)
        site = harness.top_rows(recorded.recording, "alloc")["alloc_site"]
        left = harness.top_rows(recorded.recording, "inuse")["alloc_site"]
        self.assertEqual(site["cum_objects"], counted)
        info = harness.info(recorded.recording)
        freed = counted - left["cum_objects"]
        self.assertEqual(left["cum_bytes"], left["cum_objects"] * 127)
        self.assertGreater(info["lost"]["unmatched_frees"], 0)
        self.assertLess(freed, 2 * released)
        self.assertLessEqual(freed + info["lost"]["unmatched_frees"], 2 * released + 2)
        self.assertEqual((row["lost_events"], info["lost"]["events"]), (0, 0))
        timeline = report("timeline", recorded.recording)["rows"]
        last = timeline[-1]["bytes"]  # the maximum of its interval, so before any buffer is freed
        self.assertGreaterEqual(last, info["total"]["inuse_bytes"])
        self.assertLess(last, info["total"]["inuse_bytes"] + 8192)

    def test_a_log_that_begins_late_begins_with_what_is_in_use(self):
        for by_program in (False, True):
            recorded = self.start("mem-fast", name=f"{by_program}.hl")
            recorded.ask("alloc 1009")
            if by_program:
                self.assertEqual(recorded.ask("mode 4"), 0)
            else:
                self.ctl_well(recorded.pid, "mode", "log-fast")
            harness.wait_until(lambda: "log_segments" in self.row(recorded), "the log")
            recorded.ask("alloc 503")
            self.assertEqual(recorded.end()[0], 0)
            rows = report("timeline", recorded.recording)["rows"]
            self.assertGreaterEqual(min(row["bytes"] for row in rows), 1009 * 127)
            self.assertGreaterEqual(max(row["bytes"] for row in rows), (1009 + 503) * 127)

    def test_processes_to_come_begin_in_the_mode_that_all_were_switched_to(self):
        recorded = self.start("closed")
        self.ctl_well(recorded.pid, "--all", "mode", "mem-record")
        child = recorded.ask("fork")
        self.addCleanup(os.kill, child, signal.SIGKILL)
        harness.wait_until(lambda: len(self.status(recorded.pid)["rows"]) == 2, "the child")
        self.assertEqual([row["mode"] for row in self.status(child)["rows"]], ["mem-record"] * 2)

    def test_all_processes_are_switched_at_once(self):
        recorded = self.start()
        child = recorded.ask("fork")
        self.addCleanup(os.kill, child, signal.SIGKILL)
        harness.wait_until(lambda: len(self.status(recorded.pid)["rows"]) == 2, "the child")
        self.ctl_well(recorded.pid, "--all", "mode", "closed")
        self.assertEqual([row["mode"] for row in self.status(child)["rows"]], ["closed"] * 2)
        self.ctl_well(child, "mode", "mem-fast")
        self.assertEqual(sorted(row["mode"] for row in self.status(child)["rows"]),
                         ["closed", "mem-fast"])

    def test_the_program_switches_itself(self):
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                recorded = self.start(mode, name=f"{mode}.hl")
                self.assertEqual(recorded.ask("status"), MODES[mode])
                self.assertEqual(recorded.ask("mode 0"), 0)
                self.assertEqual(self.row(recorded)["mode"], "closed")
                self.assertEqual(recorded.ask(f"mode {MODES[mode]}"), 0)
                self.assertEqual(self.row(recorded)["mode"], mode)
                self.assertEqual(recorded.end()[0], 0)


class Mark(CtlCase):
    def test_marks_stand_in_the_log(self):
        for mode in LOG_MODES:
            with self.subTest(mode=mode):
                recorded = self.start(mode, name=f"{mode}.hl")
                self.ctl_well(recorded.pid, "mark", "from outside")
                self.assertEqual(recorded.ask("mark from inside"), 0)
                self.ctl_well(recorded.collector.pid, "mark", "everywhere")
                self.assertEqual(recorded.end()[0], 0)
                self.assertEqual(sorted(self.marks(recorded.recording)),
                                 ["everywhere", "from inside", "from outside"])
                self.assertEqual(sorted(self.marks_in_meta(recorded.recording)),
                                 sorted(self.marks(recorded.recording)))

    def test_marks_without_a_log_stand_in_the_recording(self):
        recorded = self.start()
        self.ctl_well(recorded.pid, "mark", "größer")
        self.assertEqual(recorded.ask("mark from inside"), 0)
        self.assertEqual(recorded.end()[0], 0)
        self.assertEqual(sorted(self.marks_in_meta(recorded.recording)),
                         ["from inside", "größer"])
        packed = self.path("packed")
        harness.run([HEAPLINE, "pack", "-o", packed, recorded.recording])
        self.assertEqual(report("info", packed)["marks"],
                         report("info", recorded.recording)["marks"])

    def test_a_mark_has_the_time_at_which_it_was_set(self):
        recorded = self.start("log-fast")
        before = self.row(recorded)["ms"]
        recorded.ask("mark now")
        after = self.row(recorded)["ms"]
        recorded.end()
        self.assertTrue(before <= report("timeline", recorded.recording)["marks"][0]["ms"] <= after)

    def test_every_mark_that_was_taken_is_kept(self):
        recorded = self.start("log-fast")
        self.assertEqual(recorded.ask("everywhere"), 0)
        taken = recorded.ask("flood 1000")
        self.assertLess(taken, 1000)
        self.assertGreater(taken, 0)
        recorded.end()
        marks = self.marks(recorded.recording)
        self.assertEqual({name: marks.count(name) for name in set(marks)},
                         {"in a handler": 1, "one": 100, "two": 100, "three": 100, "four": 100,
                          "flood": taken})
        warnings = harness.info(recorded.recording)["recording"]["warnings"]
        self.assertTrue(any("faster than" in warning for warning in warnings), warnings)

    def test_names_that_are_none_are_refused(self):
        recorded = self.start()
        for name in ("", "two\nlines", "esc\x1b[31m", "x" * 240):
            self.assert_refused(self.ctl(recorded.pid, "mark", name), "mark")
        self.assertEqual(recorded.ask("mark " + "x" * 240), ERRNO["ENAMETOOLONG"])
        self.assertEqual(recorded.ask("mark "), ERRNO["EINVAL"])
        self.assertEqual(recorded.ask("mark esc\x1b[31m"), ERRNO["EINVAL"])
        self.assertEqual(recorded.ask("mark " + "x" * 239), 0)
        recorded.end()
        self.assertEqual(self.marks_in_meta(recorded.recording), ["x" * 239])


class Snapshot(CtlCase):
    def test_a_snapshot_opens_while_the_program_runs_on(self):
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                recorded = self.start(mode, name=f"{mode}.hl")
                recorded.ask("alloc 1009")
                snapshot = self.path(f"snapshot-{mode}.hl")
                self.ctl_well(recorded.pid, "snapshot", snapshot)
                recorded.ask("alloc 503")
                rows = harness.top_rows(snapshot, "inuse")
                self.assertEqual(rows["alloc_site"]["flat_objects"], 1010)
                found = report("info", snapshot)
                self.assertFalse(found["recording"]["complete"])
                self.assertTrue(found["recording"]["snapshot"])
                text = harness.run([HEAPLINE, "top", snapshot]).stdout
                self.assertIn("a snapshot, taken while the recording went on", text)
                self.assertNotIn("INCOMPLETE", text)
                self.assertEqual(found["rows"][0]["pid"], recorded.pid)
                self.assertEqual(recorded.end()[0], 0)
                rows = harness.top_rows(recorded.recording, "inuse")
                self.assertEqual(rows["alloc_site"]["flat_objects"], 1513)

    def test_a_snapshot_has_the_log_as_it_stands(self):
        recorded = self.start("log-fast")
        recorded.ask("alloc 1009")
        self.ctl_well(recorded.pid, "mark", "before")
        harness.wait_until(lambda: self.log_has(recorded, "before"), "the mark")
        self.ctl_well(recorded.pid, "snapshot", self.path("snapshot.hl"))
        recorded.ask("mark after")
        recorded.end()
        self.assertEqual(self.marks(self.path("snapshot.hl")), ["before"])
        self.assertEqual(self.marks(recorded.recording), ["before", "after"])

    def test_a_snapshot_has_the_processes_that_have_ended(self):
        program = harness.program("hello")
        recorded = self.start(command=["/bin/sh", "-c", f"{program}; {program}; sleep 60 & wait"])
        harness.wait_until(lambda: self.ctl(recorded.pid, "status").status == 0 and self.status(
            recorded.pid)["recording"]["ended_processes"] >= 2, "both ends")
        self.ctl_well(recorded.pid, "snapshot", self.path("snapshot.hl"))
        commands = [row["command"] for row in report("info", self.path("snapshot.hl"))["rows"]]
        self.assertEqual(commands.count(program), 2)

    def test_what_is_there_is_not_overwritten_unless_forced(self):
        recorded = self.start()
        os.mkdir(self.path("other"))
        with open(self.path("other/file"), "w", encoding="ascii"):
            pass
        self.assert_refused(self.ctl(recorded.pid, "snapshot", "-f", self.path("other")),
                            "not a recording")
        self.assert_refused(self.ctl(recorded.pid, "snapshot", self.path("other/file")), "not a recording")
        self.ctl_well(recorded.pid, "snapshot", self.path("snapshot.hl"))
        self.assert_refused(self.ctl(recorded.pid, "snapshot", self.path("snapshot.hl")), "-f")
        recorded.ask("alloc 1009")
        self.ctl_well(recorded.pid, "snapshot", "-f", self.path("snapshot.hl"))
        rows = harness.top_rows(self.path("snapshot.hl"), "inuse")
        self.assertEqual(rows["alloc_site"]["flat_objects"], 1010)

    def test_a_recording_is_not_replaced_by_itself(self):
        recorded = self.start()
        self.assert_refused(self.ctl(recorded.pid, "snapshot", "-f", recorded.recording),
                            "the recording itself")
        recorded.end()
        self.assertEqual(len(harness.processes(recorded.recording)), 1)

    def test_paths_are_those_of_who_asks(self):
        recorded = self.start()
        os.mkdir(self.path("elsewhere"))
        result = self.ctl(recorded.pid, "snapshot", "here.hl", cwd=self.path("elsewhere"))
        self.assertEqual(result.status, 0, result.stderr)
        harness.info(self.path("elsewhere/here.hl"))
        self.assert_refused(self.ctl(recorded.pid, "snapshot", self.path("no/such/place.hl")),
                            "No such file")

    def test_the_program_asks_for_reports(self):
        recorded = self.start()
        recorded.ask("alloc 1009")
        path = self.path("report.hl")
        self.assertEqual(recorded.ask(f"report {path}"), 0)
        self.assertEqual(harness.top_rows(path, "inuse")["alloc_site"]["flat_objects"], 1010)
        self.assertEqual(recorded.ask(f"report {path}"), ERRNO["EEXIST"])
        self.assertEqual(recorded.ask("report"), ERRNO["EINVAL"])
        self.assertEqual(recorded.ask("report " + "x" * 4096), ERRNO["ENAMETOOLONG"])
        recorded.end()
        warnings = harness.info(recorded.recording)["recording"]["warnings"]
        self.assertTrue(any(path in warning for warning in warnings), warnings)

    def test_a_relative_report_lies_where_the_program_is(self):
        recorded = self.start(command=["/bin/sh", "-c", f"cd {self.directory} && exec " +
                                       harness.program("control")])
        self.assertEqual(recorded.ask("report inside.hl"), 0)
        harness.info(self.path("inside.hl"))

    def test_one_report_is_made_at_a_time(self):
        recorded = self.start()
        os.kill(recorded.collector.pid, signal.SIGSTOP)
        try:
            self.assertEqual(recorded.ask(f"ask {self.path('first.hl')}"), 0)
            self.assertEqual(recorded.ask(f"ask {self.path('second.hl')}"), ERRNO["EBUSY"])
        finally:
            os.kill(recorded.collector.pid, signal.SIGCONT)
        harness.wait_until(lambda: os.path.exists(self.path("first.hl/recording.hlm")), "it")
        self.assertFalse(os.path.exists(self.path("second.hl")))

    def test_a_program_that_changed_its_user_gets_no_report(self):
        harness.need_other_user(OTHER_USER)
        os.chmod(self.directory, 0o777)
        recorded = self.start()
        self.assertEqual(recorded.ask(f"become {OTHER_USER}"), 0)
        self.assertEqual(recorded.ask(f"report {self.path('report.hl')}"), ERRNO["EPERM"])
        self.assertFalse(os.path.exists(self.path("report.hl")))


class LogSegments(CtlCase):
    SMALL = ("--log-segment-size", "1K")

    def segments(self, recorded):
        return [name for name in os.listdir(recorded.recording) if name.endswith(".hll")]

    def fill(self, recorded, count):
        """Allocates until there are at least COUNT segments."""
        def enough():
            recorded.ask("alloc 11")
            return len(self.segments(recorded)) >= count
        harness.wait_until(enough, f"{count} segments")

    def test_older_segments_are_deleted_at_once(self):
        recorded = self.start("log-fast", self.SMALL)
        self.fill(recorded, 4)
        self.ctl_well(recorded.pid, "log-segments", "2")
        harness.wait_until(lambda: len(self.segments(recorded)) == 2, "two segments")
        self.assertEqual(self.row(recorded)["log_segments_kept"], 2)
        self.assertEqual(recorded.ask("kept"), 2)

    def test_the_program_sets_how_many_are_kept(self):
        recorded = self.start("log-fast", self.SMALL)
        self.assertEqual(recorded.ask("kept"), 10)
        self.fill(recorded, 4)
        self.assertEqual(recorded.ask("keep 2"), 0)
        harness.wait_until(lambda: len(self.segments(recorded)) == 2, "two segments")
        self.assertEqual(recorded.ask("kept"), 2)
        self.assertEqual(self.row(recorded)["log_segments_kept"], 2)
        for count in (0, 1000001):
            self.assertEqual(recorded.ask(f"keep {count}"), ERRNO["EINVAL"])

    def test_processes_to_come_keep_as_many_when_all_are_meant(self):
        recorded = self.start("log-fast")
        self.ctl_well(recorded.pid, "--all", "log-segments", "3")
        child = recorded.ask("fork")
        self.addCleanup(os.kill, child, signal.SIGKILL)
        harness.wait_until(lambda: len(self.status(recorded.pid)["rows"]) == 2, "the child")
        self.assertEqual([row["log_segments_kept"] for row in self.status(child)["rows"]], [3, 3])

    def test_without_a_log_there_are_none(self):
        recorded = self.start()
        self.assert_refused(self.ctl(recorded.pid, "log-segments", "3"), "no log", "log-fast")
        self.assertEqual(recorded.ask("kept"), ERRNO["EOPNOTSUPP"])
        self.assertEqual(recorded.ask("keep 3"), ERRNO["EOPNOTSUPP"])

    def test_numbers_that_are_none_are_refused(self):
        recorded = self.start("log-fast")
        for number in ("0", "-1", "many", "1000001", "99999999999"):
            self.assert_refused(self.ctl(recorded.pid, "--", "log-segments", number), number)


class StacksOfARecordedProcess(CtlCase):
    """`heapline stacks` reads the recorder, because probes would cut the stacks that it walks."""

    def setUp(self):
        super().setUp()
        self.recorded = self.start(name="app.hl", command=[harness.program("trace_heap")])
        self.assertEqual(self.recorded.collector.stdout.readline(), "ready\n")
        self.do("malloc", "site_a", 1000, 64)

    def do(self, *words):
        self.recorded.collector.stdin.write(" ".join(map(str, words)) + "\n")
        self.assertEqual(self.recorded.collector.stdout.readline(), "ok\n")

    def command(self, *options):
        return [HEAPLINE, "stacks", "-p", str(self.recorded.pid), *options]

    def test_what_changed_between_snapshots_is_shown(self):
        stacks = subprocess.Popen(
            self.command("--interval", "0.5", "--json"), text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=dict(os.environ, XDG_RUNTIME_DIR=self.runtime))
        self.addCleanup(stacks.kill)
        lines = [stacks.stdout.readline()]
        self.do("malloc", "site_b", 300, 100)
        self.do("free", "site_a", 400)
        lines.append(stacks.stdout.readline())
        stacks.send_signal(signal.SIGINT)
        rest, said = stacks.communicate(timeout=harness.TIMEOUT_S)
        self.assertEqual(stacks.returncode, 0, said)
        self.assertIn("app.hl': reading its recorder, without probes", said)
        sums = {"site_a": [0, 0], "site_b": [0, 0]}
        for line in lines + rest.splitlines():
            for row in json.loads(line)["rows"]:
                for site in set(row["stack"]) & set(sums):
                    sums[site][0] += row["objects"]
                    sums[site][1] += row["bytes"]
                    self.assertIn("main", row["stack"])
        self.assertEqual(sums, {"site_a": [-400, -400 * 64], "site_b": [300, 300 * 100]})

    def test_lines_of_scripts_are_named(self):
        script = self.path("grows.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write("kept = []\nprint('ready', flush=True)\nwhile input():\n"
                       "    kept += [bytearray(5000) for _ in range(2000)]\n    print('ok', flush=True)\n")
        recorded = self.start(name="script.hl", command=[harness.need("python3"), script])
        self.assertEqual(recorded.collector.stdout.readline(), "ready\n")
        self.recorded = recorded
        stacks = subprocess.Popen(
            self.command("--interval", "0.5", "--json"), text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=dict(os.environ, XDG_RUNTIME_DIR=self.runtime))
        self.addCleanup(stacks.kill)
        said = stacks.stdout.readline()
        self.do("grow")
        while 'grows.py", "line": 4' not in said and said.count("\n") < 100:
            said += stacks.stdout.readline()
        self.assertIn('grows.py", "line": 4', said)
        self.assertNotIn("[unknown]", said)
        stacks.send_signal(signal.SIGINT)
        stacks.communicate(timeout=harness.TIMEOUT_S)

    def test_what_only_probes_can_do_is_refused(self):
        for option, value in (("--older", "1"), ("--sample", "512K"), ("--object", "libc")):
            with self.subTest(option):
                result = harness.run(self.command(option, value, "1"),
                                     {"XDG_RUNTIME_DIR": self.runtime})
                self.assertEqual(result.status, 1, result.stderr)
                self.assertIn(f"without {option} it is read from the recorder", result.stderr)

    def test_a_recorder_that_counts_nothing_is_named(self):
        self.ctl_well(self.recorded.pid, "mode", "closed")
        result = harness.run(self.command("1"), {"XDG_RUNTIME_DIR": self.runtime})
        self.assertEqual(result.status, 1, result.stderr)
        self.assertIn(f"'heapline ctl -p {self.recorded.pid} mode mem-fast'", result.stderr)


class WithoutCollector(CtlCase):
    def talk_to_program(self, lines):
        library = os.path.join(harness.BUILD, "src/recorder")
        result = harness.run([harness.program("control")], env={"LD_LIBRARY_PATH": library},
                             stdin=subprocess.PIPE if lines is None else self.input(lines))
        return [int(line) for line in result.stdout.split()]

    def input(self, lines):
        with open(self.path("input"), "w", encoding="ascii") as file:
            file.writelines(line + "\n" for line in lines)
        file = open(self.path("input"), encoding="ascii")
        self.addCleanup(file.close)
        return file

    def test_every_function_says_that_nothing_is_recorded(self):
        lines = ["mark x", "report x", "kept", "keep 3", "mode 0", "status", "small"]
        self.assertEqual(self.talk_to_program(lines), [ERRNO["ENOTCONN"]] * 6 + [0])

    def test_the_struct_of_before_there_were_reports_is_understood(self):
        recorded = self.start()
        self.assertEqual(recorded.ask("small"), 0)


class WhoIsWho(CtlCase):
    def test_collectors_are_read_as_any_process(self):
        """They have the memory of their recorder mapped, whose addresses are those of the program."""
        recorded = self.start()
        for verb, status in (("heap", 0), ("allocations", 0), ("carriers", 0), ("pins", 0), ("holders", 0), ("leaks", 0),
                             ("doctor", 0), ("pod", 0), ("services", 1)):
            with self.subTest(verb):
                result = harness.run([HEAPLINE, verb, "-p", str(recorded.collector.pid)])
                self.assertEqual(result.status, status, result.stderr)
                self.assertNotIn("Bad address", result.stderr)
        self.assertIn("'heapline attach -p", result.stderr)

    def test_processes_that_are_not_recorded_are_refused(self):
        self.start()
        result = self.ctl(os.getpid(), "status")
        self.assert_refused(result, "not being recorded")
        gone = subprocess.Popen(["true"])
        gone.wait()
        self.assert_refused(self.ctl(gone.pid, "status"), "no such process")

    def test_another_runtime_directory_is_said_to_be_a_reason(self):
        recorded = self.start()
        os.mkdir(self.path("other"), 0o700)
        for pid in (recorded.pid, recorded.collector.pid):
            result = self.ask_undisturbed(harness.run, [HEAPLINE, "ctl", "-p", str(pid), "status"],
                                          env={"XDG_RUNTIME_DIR": self.path("other")})
            self.assert_refused(result, "set XDG_RUNTIME_DIR as it was for 'heapline record'")

    def test_the_right_one_of_several_collectors_is_found(self):
        first, second = self.start(name="first.hl"), self.start(name="second.hl")
        for recorded in (first, second):
            self.assertEqual(self.status(recorded.pid)["recording"]["collector"],
                             recorded.collector.pid)

    def test_a_process_of_several_recordings_is_refused_with_their_names(self):
        outer = self.start(name="outer.hl", command=record_of_sleep(self.path("inner.hl")))
        inner = outer.pid
        harness.wait_until(lambda: os.path.exists(self.path("run/heapline") + f"/{inner}.sock"),
                           "the inner collector")
        harness.wait_until(lambda: self.ctl(inner, "status").status == 1, "its recorder")
        self.assert_refused(self.ctl(inner, "status"), "several recordings", "outer.hl",
                            "inner.hl")

    def test_a_collector_that_was_killed_is_cleaned_up_by_the_next(self):
        dead = self.start(name="dead.hl")
        path = self.socket_path(dead)
        os.kill(dead.collector.pid, signal.SIGKILL)
        dead.collector.wait()
        self.assertTrue(os.path.exists(path))
        self.assertEqual(self.ctl(dead.pid, "status").status, 1)
        living = self.start(name="living.hl")
        self.assertFalse(os.path.exists(path))
        self.assertEqual(self.ctl(living.pid, "status").status, 0)
        os.kill(dead.pid, signal.SIGKILL)

    def test_the_socket_goes_with_the_recording(self):
        recorded = self.start()
        path = self.socket_path(recorded)
        self.assertEqual(os.stat(path).st_mode & 0o7777, 0o600)
        self.assertEqual(os.stat(os.path.dirname(path)).st_mode & 0o7777, 0o700)
        recorded.end()
        self.assertFalse(os.path.exists(path))

    def test_directories_that_are_not_private_are_not_used(self):
        os.mkdir(os.path.join(self.runtime, "heapline"), 0o755)
        os.chmod(os.path.join(self.runtime, "heapline"), 0o755)
        recorded = self.start()
        self.assertFalse(os.path.exists(self.socket_path(recorded)))
        self.assertEqual(self.status(recorded.pid)["rows"][0]["pid"], recorded.pid)
        os.chmod(os.path.join(self.runtime, "heapline"), 0o700)

    def test_links_are_not_followed(self):
        os.mkdir(self.path("target"), 0o700)
        os.symlink(self.path("target"), os.path.join(self.runtime, "heapline"))
        self.start()
        self.assertEqual(os.listdir(self.path("target")), [])

    def test_other_users_are_refused(self):
        harness.need_other_user(OTHER_USER)
        recorded = self.start()
        user = {"user": OTHER_USER, "group": OTHER_USER, "extra_groups": []}
        self.assert_refused(self.ctl(recorded.pid, "status", **user), "another user")
        # Even where the file system would let them.
        for path in (self.directory, self.runtime, os.path.dirname(self.socket_path(recorded))):
            os.chmod(path, 0o755)
        os.chmod(self.socket_path(recorded), 0o666)
        talk = "import socket,sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); " \
               "print(s.recv(999).decode())"
        result = harness.run(["/usr/bin/python3", "-c", talk, self.socket_path(recorded)], **user)
        self.assertIn("error", result.stdout + result.stderr)
        self.assertIn("root may ask", result.stdout)

    def test_root_asks_what_another_user_records(self):
        harness.need_other_user(OTHER_USER)
        os.chmod(self.directory, 0o777)
        os.chown(self.runtime, OTHER_USER, OTHER_USER)
        harness.need("setpriv")
        command = ["setpriv", f"--reuid={OTHER_USER}", f"--regid={OTHER_USER}", "--clear-groups",
                   "env", "-u", "XDG_RUNTIME_DIR"]
        with subprocess.Popen(command + harness.record_command(self.path("theirs.hl"),
                                                               ["sleep", "60"]),
                              start_new_session=True, stderr=subprocess.DEVNULL) as process:
            try:
                pids = harness.wait_until(lambda: harness.children_of(process.pid), "the sleep")
                harness.wait_until(lambda: self.ctl(pids[0], "status").status == 0, "a recorder")
                self.assert_snapshot_where_they_may_not_write(pids[0])
            finally:
                os.killpg(process.pid, signal.SIGTERM)

    def assert_snapshot_where_they_may_not_write(self, pid):
        roots = self.path("roots")
        os.mkdir(roots, 0o700)
        snapshot = os.path.join(roots, "snapshot.hl")
        self.ctl_well(pid, "snapshot", snapshot)
        self.assert_refused(self.ctl(pid, "snapshot", snapshot), "-f")
        self.ctl_well(pid, "snapshot", "-f", snapshot)
        found = report("info", snapshot)
        self.assertTrue(found["recording"]["snapshot"])
        self.assertEqual([row["command"] for row in found["rows"]], ["sleep 60"])
        for name in [".", *os.listdir(snapshot)]:
            self.assertEqual(os.stat(os.path.join(snapshot, name)).st_uid, 0)
        self.assertEqual([name for name in os.listdir(self.directory) if "snapshot" in name], [])


def record_of_sleep(recording):
    """A command that records, to be recorded."""
    return [HEAPLINE, "record", "-f", "-o", recording, "--", "sleep", "60"]


class Clients(CtlCase):
    """What others than `heapline ctl` may send."""

    def assert_error(self, answer):
        self.assertIn("error", json.loads(answer))

    def test_malformed_requests_are_answered_with_a_sentence(self):
        recorded = self.start()
        for request in (b"\n", b"hello\n", b"heapline/2 status 0\n", b"heapline/1 destroy 0\n",
                        b"heapline/1 status\n", b"heapline/1 status x\n",
                        b"heapline/1 status 99999999999999999999\n",
                        b"heapline/1 status 0 more\n", b"heapline/1 mode 0 \x00\n",
                        b"heapline/1 snapshot 0 relative\n", b"heapline/1 mark 0 \x1b\n",
                        b"heapline/1 status 0\nheapline/1 status 0\n", b"\xff" * 100 + b"\n"):
            with self.subTest(request=request):
                self.assert_error(self.talk(recorded, request))
        self.assertIn("processes", json.loads(self.talk(recorded, b"heapline/1 status 0\n")))

    def test_requests_without_an_end_are_refused(self):
        recorded = self.start()
        self.assert_error(self.talk(recorded, b"heapline/1 mark 0 " + b"x" * 10000))
        self.assertEqual(self.row(recorded)["mode"], "mem-fast")

    def test_requests_that_come_in_pieces_are_understood(self):
        recorded = self.start()
        client = self.connect(recorded)
        for byte in b"heapline/1 status 0\n":
            client.sendall(bytes([byte]))
        answer = b""
        while part := client.recv(65536):
            answer += part
        self.assertIn("processes", json.loads(answer))

    def test_who_says_nothing_is_hung_up_on(self):
        recorded = self.start()
        client = self.connect(recorded)
        self.assertEqual(self.ctl(recorded.pid, "status").status, 0)
        self.assertEqual(client.recv(1), b"")

    def test_many_at_once_keep_neither_program_nor_recording(self):
        recorded = self.start()
        silent = [self.connect(recorded) for _ in range(16)]
        self.assert_error(self.talk(recorded, b""))
        recorded.ask("alloc 1009")
        for client in silent:
            client.close()
        harness.wait_until(lambda: self.ctl(recorded.pid, "status").status == 0, "a free place")
        self.assertEqual(recorded.end()[0], 0)
        rows = harness.top_rows(recorded.recording, "inuse")
        self.assertEqual(rows["alloc_site"]["flat_objects"], 1010)

    def test_many_askers_are_all_answered(self):
        recorded = self.start()
        environment = dict(os.environ, XDG_RUNTIME_DIR=self.runtime)
        command = [HEAPLINE, "ctl", "-p", str(recorded.pid), "mark", "x"]
        askers = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
                  for _ in range(12)]
        for asker in askers:
            _, errors = asker.communicate(timeout=harness.TIMEOUT_S)
            self.assertEqual(asker.returncode, 0, errors)
        recorded.end()
        self.assertEqual(self.marks_in_meta(recorded.recording), ["x"] * 12)

    def test_who_goes_away_before_the_answer_does_no_harm(self):
        recorded = self.start()
        for request in (b"heapline/1 status 0\n", b"heapline/1 snapshot 0 " +
                        self.path("snapshot.hl").encode() + b"\n"):
            client = self.connect(recorded)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(request)
            client.close()
        harness.wait_until(lambda: os.path.exists(self.path("snapshot.hl/recording.hlm")), "it")
        self.assertEqual(self.ctl(recorded.pid, "status").status, 0)

    def test_a_stopped_collector_is_reported_as_such(self):
        recorded = self.start()
        os.kill(recorded.collector.pid, signal.SIGSTOP)
        try:
            result = self.ctl(recorded.pid, "status")
            # One without a recorder is nobody's, whoever is stopped.
            with subprocess.Popen(["sleep", "1000"]) as other:
                others = self.ctl(other.pid, "status")
                other.kill()
        finally:
            os.kill(recorded.collector.pid, signal.SIGCONT)
        self.assert_refused(result, str(recorded.collector.pid), "does not answer")
        self.assert_refused(others, f"process {other.pid}: it is not being recorded")


if __name__ == "__main__":
    harness.main()
