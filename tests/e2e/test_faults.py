# SPDX-License-Identifier: BSD-2-Clause
"""Want of memory, disk space, recording or collector: the program must not notice."""

import contextlib
import ctypes
import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import threading
import time
from pathlib import Path

import harness

PR_SET_CHILD_SUBREAPER = 36
NOBODY = 65534
STEPS_STATUS = 5
EXHAUST_STATUS = 3
BLOCK_BYTES = 100003  # of exhaust.c
STEP = ("step_site", 1009, 127)


class Steps:
    """`steps` under record, driven byte by byte; its stderr is collected as it comes."""

    def __init__(self, test, command, **options):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, start_new_session=True, **options)
        self.messages = b""
        self.reader = threading.Thread(target=self._read_messages)
        self.reader.start()
        test.addCleanup(self._end)

    def _read_messages(self):
        self.messages = self.process.stderr.read()

    def _end(self):
        self.process.kill()
        self.process.wait()
        # The program may go on, with the same stderr, until its input ends.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()

    def step(self):
        self.process.stdin.write(b".")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line == b"step\n", f"the program says {line}"

    def finish(self):
        """Ends the input; what the program says last, and heapline's status."""
        self.process.stdin.close()
        rest = self.process.stdout.read()
        status = self.process.wait(harness.TIMEOUT_S)
        self.reader.join()
        return rest, status


class Faults(harness.TestCase):
    def steps_command(self, recording, options=()):
        return harness.record_command(recording, [harness.program("steps")], options=options)

    def assert_steps(self, recording, steps):
        function, objects, size = STEP
        row = harness.top_rows(recording, "inuse")[function]
        self.assertEqual((row["cum_objects"], row["cum_bytes"]),
                         (objects * steps, objects * steps * size))

    def assert_one_sentence(self, text):
        sentences = [line for line in text.splitlines() if line.startswith("heapline: ")]
        self.assertEqual(len(sentences), 1, text)
        return sentences[0]


class Memory(Faults):
    def compare_exhaustion(self, command, mode="mem-fast"):
        plain = harness.run(command)
        self.assertEqual((plain.status, plain.stdout), (EXHAUST_STATUS, "no more memory\n"))
        result, recording = self.record(command, mode)
        self.assertEqual((result.status, result.stdout), (plain.status, plain.stdout),
                         result.stderr)
        return result, recording

    def test_a_program_that_exhausts_its_address_space_ends_as_alone(self):
        for mode in harness.RECORDING_MODES:
            # The recorder's own address space counts: below it, the program gets nothing at all.
            enough = (13 if mode.startswith("log") else 4) << 30
            for limit, blocks in ((200 << 20, 0), (enough, 1000)):
                with self.subTest(mode=mode, limit=limit):
                    _, recording = self.compare_exhaustion(
                        [harness.program("exhaust"), str(limit)], mode)
                    nothing = {"cum_bytes": 0, "cum_objects": 0}
                    row = harness.top_rows(recording, "alloc").get("exhaust_site", nothing)
                    lost = harness.info(recording)["lost"]["events"]
                    self.assertEqual(row["cum_bytes"], row["cum_objects"] * BLOCK_BYTES)
                    self.assertGreaterEqual(row["cum_objects"] + lost, blocks)
                    left = harness.top_rows(recording, "inuse").get("exhaust_site", nothing)
                    self.assertEqual((left["cum_bytes"], left["cum_objects"]), (0, 0))

    def test_stacks_that_there_is_no_memory_for_are_counted_as_lost(self):
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                _, recording = self.compare_exhaustion([harness.program("many_stacks")], mode)
                self.assertGreater(harness.info(recording)["lost"]["events"], 0)

    def test_a_program_that_starts_with_little_address_space_ends_as_alone(self):
        for kilobytes in (1000000, 300000, 100000, 50000):
            with self.subTest(kilobytes=kilobytes):
                self.compare_exhaustion(
                    ["/bin/sh", "-c", f"ulimit -v {kilobytes}; exec \"$0\"",
                     harness.program("exhaust")])

    def test_a_limit_of_private_memory_is_the_programs_own(self):
        command = [harness.program("data_limit"), str(64 << 20)]
        plain = harness.run(command)
        self.assertEqual(plain.status, 0, plain.stderr)
        expected = [line.split() for line in plain.stdout.splitlines()]
        self.assertEqual([who for who, _ in expected], ["child", "parent"])
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                result, recording = self.record(command, mode)
                self.assertEqual(result.status, 0, result.stderr)
                found = [line.split() for line in result.stdout.splitlines()]
                for (who, blocks), (_, wanted) in zip(found, expected, strict=True):
                    self.assertGreater(int(blocks), int(wanted) * 0.99, who)
                site = harness.top_rows(recording, "alloc")["limited_site"]
                self.assertEqual(site["cum_objects"], sum(int(blocks) for _, blocks in found))

    def test_all_memory_is_locked_where_the_programs_own_may_be(self):
        for flags in (1, 2, 3, 7):  # MCL_CURRENT, MCL_FUTURE, both, and with MCL_ONFAULT
            for limit, fails in ((7 << 20, False), (1 << 20, flags != 2)):
                command = [harness.program("lock_limit"), str(limit), str(flags)]
                failed, locked = map(int, harness.run(command).stdout.split())
                self.assertEqual(bool(failed), fails)
                for mode in ("mem-fast", "log-fast"):
                    with self.subTest(flags=flags, limit=limit, mode=mode):
                        result, recording = self.record(command, mode)
                        also_failed, also_locked = map(int, result.stdout.split())
                        self.assertEqual(also_failed, failed)
                        self.assertGreaterEqual(also_locked, locked * 0.9)
                        self.assertLessEqual(also_locked, locked * 1.1)
                        site = harness.top_rows(recording, "alloc")["locked_site"]
                        # On a busy machine events after the call may be lost; they are counted.
                        lost = harness.info(recording)["lost"]["events"]
                        self.assertGreaterEqual(site["cum_objects"], 200 - lost)
                        self.assertGreaterEqual(site["cum_objects"], 100)

    def test_most_of_a_limited_address_space_is_the_programs_own(self):
        command = ["/bin/sh", "-c", 'ulimit -v 65536; exec "$0" "$1"', harness.program("data_limit"),
                   str(1 << 40)]
        expected = [int(line.split()[1]) for line in harness.run(command).stdout.splitlines()]
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                result, recording = self.record(command, mode)
                found = [int(line.split()[1]) for line in result.stdout.splitlines()]
                for blocks, wanted in zip(found, expected, strict=True):
                    self.assertGreater(blocks, wanted * 0.6)
                site = harness.top_rows(recording, "alloc")["limited_site"]
                self.assertEqual(site["cum_objects"], sum(found))
                self.assertIn("of the 64 MiB of address space", result.stderr)
                self.assertIn("of the 64 MiB of address space",
                              str(harness.info(recording)["recording"]["warnings"]))

    def test_a_small_limit_of_address_space_is_said_before_the_program_starts(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (200 << 20, 200 << 20))
        result, _ = self.record(["/bin/sh", "-c", "echo begun >&2"], preexec_fn=limit)
        said, begun, _ = result.stderr.partition("begun\n")
        self.assertIn("address space, which is limited to 200.0 MiB; raise 'ulimit -v'", said)
        self.assertTrue(begun)

    def record_limited(self, kilobytes, mode, program):
        """Records with a limit of private memory for heapline, too."""
        def limit():
            resource.setrlimit(resource.RLIMIT_DATA, (kilobytes << 10, kilobytes << 10))
        return self.record([program], mode, preexec_fn=limit)

    def test_a_limit_of_private_memory_leaves_room_for_heapline_itself(self):
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                result, recording = self.record_limited(64 << 10, mode, harness.program("steps"))
                self.assertEqual(result.status, STEPS_STATUS, result.stderr)
                self.assertIn("heapline: recorded ", self.assert_one_sentence(result.stderr))

    def test_a_process_that_heapline_has_no_memory_for_is_refused_for_that_reason(self):
        refusals = []
        for kilobytes in (1024, 896, 768, 704, 640, 576, 512):
            result, _ = self.record_limited(kilobytes, "log-fast", harness.program("steps"))
            self.assertNotIn("ended before the recorder", result.stderr)
            if "was not recorded" in result.stderr:
                refusals.append(self.assert_one_sentence(result.stderr))
        for sentence in refusals:
            self.assertRegex(sentence, "was not recorded: heapline had no memory")
        self.assertTrue(refusals)

    def test_a_program_whose_region_cannot_be_mapped_runs_and_that_is_said(self):
        result, recording = self.compare_exhaustion(
            ["/bin/sh", "-c", "ulimit -v 8000; exec \"$0\"", harness.program("exhaust")])
        said = result.stderr + str(harness.info(recording)["recording"]["warnings"])
        self.assertRegex(said, "memory|address space|unrecorded|not recorded")


class Overwritten(Faults):
    """A program that writes over its region is said to have done so, or its figures are right."""

    BLOCKS, BLOCK_BYTES = 5003, 127

    def record_overwritten(self, mode, *arguments):
        command = [harness.program("overwrite"), *arguments]
        recording = self.path("test.hl")
        # The recording ends within a second of the program; the limit ends a hang.
        result = harness.run(harness.record_command(recording, command, mode), timeout=120)
        self.assertEqual(result.status, 3, result.stderr)
        return result, recording

    def assert_said(self, result, recording):
        self.assertIn("damaged: the program overwrote heapline's memory", result.stderr)
        self.assertGreater(harness.info(recording)["lost"]["damaged"], 0)
        top = harness.run([harness.HEAPLINE, "top", recording])
        self.assertIn("DAMAGED: the program overwrote heapline's memory", top.stdout)

    def test_counters_that_cannot_be_are_not_shown(self):
        for mode in harness.RECORDING_MODES:
            for counter in ("objects", "freed"):
                with self.subTest(mode=mode, counter=counter):
                    result, recording = self.record_overwritten(mode, counter)
                    self.assert_said(result, recording)
                    total = harness.info(recording)["total"]
                    for figure in ("alloc_objects", "alloc_bytes", "inuse_bytes"):
                        self.assertGreaterEqual(total[figure], 0)
                        self.assertLess(total[figure], 1 << 24)

    def test_the_status_says_so_while_the_program_runs(self):
        recording = self.path("test.hl")
        command = harness.record_command(recording, [harness.program("overwrite"), "wait"])
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as recorder:
            def rows():
                status = harness.run([harness.HEAPLINE, "ctl", "-p", str(recorder.pid), "status",
                                      "--json"])
                return json.loads(status.stdout)["rows"] if status.status == 0 else []
            harness.wait_until(lambda: [row["damaged"] for row in rows()] == [1], "the damage")
            text = harness.run([harness.HEAPLINE, "ctl", "-p", str(recorder.pid), "status"])
            self.assertIn("DAMAGED: process", text.stdout)
            os.kill(rows()[0]["pid"], signal.SIGKILL)

    def test_a_region_full_of_junk_ends_as_any_other(self):
        for mode in harness.RECORDING_MODES:
            for byte in ("0", "165", "255"):
                with self.subTest(mode=mode, byte=byte):
                    result, recording = self.record_overwritten(mode, "all", byte)
                    self.assert_said(result, recording)

    def test_pages_of_junk_are_noticed_or_do_no_harm(self):
        pages = 13
        for mode in ("mem-record", "log-fast"):
            noticed = 0
            for page in range(pages):
                for byte in ("0", "1", "165", "255"):
                    with self.subTest(mode=mode, page=page, byte=byte):
                        result, recording = self.record_overwritten(
                            mode, "page", str(page), str(pages), byte)
                        lost = harness.info(recording)["lost"]
                        noticed += lost["damaged"] > 0
                        if lost["damaged"]:
                            self.assert_said(result, recording)
                            continue
                        site = harness.top_rows(recording, "alloc").get("overwritten_site")
                        if site:  # else the pages were those with its name
                            self.assertEqual((site["cum_objects"], site["cum_bytes"]),
                                             (self.BLOCKS, self.BLOCKS * self.BLOCK_BYTES))
            self.assertGreater(noticed, pages)


class Output(Faults):
    def test_a_full_standard_output_is_the_programs_own_matter(self):
        command = [harness.program("steps")]
        with open("/dev/full", "wb") as full:
            for argv in (command, self.steps_command(self.path("test.hl"))):
                with open(harness.SOURCES + "/program.h", "rb") as some_input:
                    result = harness.run(argv, stdin=some_input, stdout=full)
                self.assertEqual(result.status, 4, result.stderr)
        self.assert_steps(self.path("test.hl"), 1)

    def test_a_full_standard_error_does_not_change_the_status(self):
        with open("/dev/full", "wb") as full:
            result = harness.run(self.steps_command(self.path("test.hl")), stderr=full)
        self.assertEqual((result.status, result.stdout), (STEPS_STATUS, "done\n"))
        harness.info(self.path("test.hl"))

    def test_closed_standard_streams_do_not_change_the_status(self):
        command = self.steps_command(self.path("test.hl"))
        result = harness.run(["/bin/sh", "-c", "exec \"$@\" <&- >&- 2>&-", "sh", *command])
        plain = harness.run(["/bin/sh", "-c", "exec \"$@\" <&- >&- 2>&-", "sh", command[-1]])
        self.assertEqual(result.status, plain.status)

    def test_a_recording_onto_dev_full_is_refused_in_one_sentence(self):
        for command in (self.steps_command("/dev/full"),
                        [harness.HEAPLINE, "record", "-o", "/dev/full", harness.program("steps")]):
            result = harness.run(command)
            self.assertTrue(stat.S_ISCHR(os.stat("/dev/full").st_mode))
            self.assertIn("/dev/full", self.assert_one_sentence(result.stderr))
            self.assertNotEqual(result.status, 0)
            self.assertEqual(result.stdout, "")


class RecordingGone(Faults):
    def test_a_recording_removed_while_the_program_runs_is_reported_at_the_end(self):
        recording = self.path("test.hl")
        steps = Steps(self, self.steps_command(recording))
        steps.step()

        def is_removed():
            shutil.rmtree(recording, ignore_errors=True)  # files come and go while it is saved
            return not os.path.exists(recording)

        harness.wait_until(is_removed, "the recording to be gone")
        steps.step()
        rest, status = steps.finish()
        self.assertEqual((rest, status), (b"done\n", STEPS_STATUS), steps.messages)
        if not os.path.exists(recording):
            self.assertRegex(steps.messages.decode(), r"heapline: .*'.*test\.hl'")

    def test_a_recording_that_becomes_unwritable_is_reported_at_the_end(self):
        harness.need_other_user(NOBODY)
        os.chmod(self.directory, 0o777)
        recording = self.path("test.hl")
        steps = Steps(self, self.steps_command(recording), user=NOBODY, group=NOBODY,
                      extra_groups=[])
        steps.step()
        os.chmod(recording, 0o500)
        os.chmod(self.directory, 0o555)
        steps.step()
        rest, status = steps.finish()
        self.assertEqual((rest, status), (b"done\n", STEPS_STATUS), steps.messages)
        self.assertRegex(steps.messages.decode(), r"heapline: .*test\.hl")


JSON_WORKLOAD = str(Path(__file__).resolve().parents[2] / "demo" / "json_workload.py")


class FullFileSystem(Faults):
    def fill_and_finish(self, namespaces, size, **options):
        """Records on a small tmpfs in namespaces of its own that fills up meanwhile."""
        mounted = self.path("small")
        os.mkdir(mounted)
        os.chmod(self.directory, 0o755)
        os.chmod(mounted, 0o777)
        command = self.steps_command(f"{mounted}/test.hl")
        steps = Steps(self, [
            "unshare", *namespaces, "/bin/sh", "-c",
            "mount -t tmpfs -o size=$0,mode=777 heapline-test \"$1\" && shift && exec \"$@\"",
            size, mounted, *command], **options)
        steps.step()
        entered = [namespace for namespace in namespaces if namespace != "-r"]  # nsenter -r: its root
        filled = harness.run(["nsenter", *entered, "-r", "-t", str(steps.process.pid), "/bin/sh", "-c",
                              f"cat /dev/zero > {mounted}/filler"])
        self.assertIn("No space left", filled.stderr)
        steps.step()
        rest, status = steps.finish()
        self.assertEqual((rest, status), (b"done\n", STEPS_STATUS), steps.messages)
        self.assertRegex(steps.messages.decode(), "(?i)no space left")
        self.assertRegex(steps.messages.decode(), "the figures of 1 of 1 process are missing, or those of an earlier save|"
                                                  "there is no recording: ")
        # The counters are known all the same.
        self.assertRegex(steps.messages.decode(), r"recorded [1-9][\d,]* allocations? of 1 process, "
                                                  r"at most [1-9]")

    def test_a_full_file_system_is_reported_at_the_end(self):
        harness.need_root()
        self.fill_and_finish(["-m"], "64k")

    def test_a_full_file_system_is_not_blamed_on_the_program(self):
        harness.need_root()
        mounted = self.path("small")
        os.mkdir(mounted)
        result = harness.run([
            "unshare", "-m", "/bin/sh", "-c",
            'mount -t tmpfs -o size=512k heapline-test "$0" && '
            '"$1" record --mode log-fast -o "$0/test.hl" -- /usr/bin/python3 "$2" 2 >&2; '
            '"$1" info "$0/test.hl"',
            mounted, harness.HEAPLINE, JSON_WORKLOAD])
        self.assertIn("No space left on device", result.stderr)
        self.assertNotIn("damaged", result.stdout)

    def test_a_file_system_too_small_from_the_start_is_reported(self):
        harness.need_root()
        self.fill_and_finish(["-m"], "8k")

    def test_a_full_file_system_is_reported_to_an_ordinary_user_too(self):
        options = {}
        if os.geteuid() == 0:
            harness.need_other_user(NOBODY)
            options = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        if harness.run(["unshare", "-rm", "true"], **options).status != 0:
            self.skipTest("ordinary users may not make mount namespaces here")
        self.fill_and_finish(["-U", "-r", "-m"], "64k", **options)


def shell_wait(recording, pattern):
    """What a shell does, without a child, until the recording has a file of such a name."""
    files = f"set -- {recording}/{pattern}"
    return f'{files}; while [ ! -e "$1" ]; do {files}; done'


class CollectorGone(Faults):
    def setUp(self):
        super().setUp()
        # The program's status must be had although its parent is gone.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def start_program(self, program):
        """Starts a program that reads its input; Steps, the program's pid and the recording."""
        recording = self.path("test.hl")
        steps = Steps(self, harness.record_command(recording, program))
        child = harness.wait_until(lambda: harness.children_of(steps.process.pid), "a program")[0]
        return steps, child, recording

    def test_the_program_goes_on_when_the_collector_is_killed(self):
        steps, child, recording = self.start_program([harness.program("steps")])
        steps.step()
        harness.wait_until(
            lambda: harness.run([harness.HEAPLINE, "info", recording]).status == 0,
            "the first save")
        steps.process.kill()
        steps.process.wait()
        steps.step()
        steps.step()
        steps.process.stdin.close()
        self.assertEqual(steps.process.stdout.read(), b"done\n")
        _, status = os.waitpid(child, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), STEPS_STATUS)
        report = harness.info(recording)
        self.assertFalse(report["recording"]["complete"])

    def test_a_recording_that_ends_in_the_first_second_names_the_program(self):
        self.assert_named_at_once([harness.program("steps")], 1)

    def test_a_recording_that_ends_soon_after_an_exec_names_the_new_program(self):
        wait = shell_wait(self.path("test.hl"), "process-0-*")
        self.assert_named_at_once(["sh", "-c", f"{wait}; exec {harness.program('steps')}"], 2)

    def assert_named_at_once(self, program, count):
        """The collector is killed in less than the second after which all that has changed is
        saved. A busy machine may take longer, but not each time."""
        for _ in range(8):
            steps, child, recording = self.start_program(program)
            steps.step()
            time.sleep(0.6)
            steps.process.kill()
            steps.process.wait()
            steps.process.stdin.close()
            os.waitpid(child, 0)
            info = harness.run([harness.HEAPLINE, "info", "--json", recording])
            pids = [row["pid"] for row in json.loads(info.stdout)["rows"]] if not info.status else []
            if pids == [child] * count:
                return
            shutil.rmtree(recording)
        self.fail(f"{pids} are named each time, not {child} {count} times")

    def test_a_recording_that_has_children_has_the_program_that_started_them(self):
        recording = self.path("test.hl")
        script = "; ".join([harness.program("hello"), shell_wait(recording, "process-1-*"),
                            "kill -9 $PPID"])
        for _ in range(5):
            harness.run(harness.record_command(recording, ["sh", "-c", script]))
            self.assertEqual([row["sequence"] for row in harness.processes(recording)], [0, 1])

    def stop_for_twenty_children(self, mode, prefix=()):
        """They run while the collector is stopped, and twenty more when it goes on. How many
        milliseconds the former took, and what the program wrote to stderr."""
        recording = self.path("test.hl")
        collector = subprocess.Popen(
            harness.record_command(recording, [*prefix, harness.program("handshakes")], mode),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(collector.kill)

        def run_twenty():
            collector.stdin.write("go\n")
            collector.stdin.flush()
            return int(collector.stdout.readline())

        self.assertEqual(collector.stdout.readline(), "ready\n")
        collector.send_signal(signal.SIGSTOP)
        try:
            elapsed_ms = run_twenty()
        finally:
            collector.send_signal(signal.SIGCONT)
        # The next hello is answered once the collector has come to the one that was in vain.
        harness.wait_until(lambda: "heapline-silent-" not in open("/proc/net/unix").read(),
                           "the collector to go on")
        run_twenty()
        _, stderr = collector.communicate(timeout=harness.TIMEOUT_S)
        self.assertEqual(collector.returncode, 0)
        self.assertEqual(harness.info(recording)["lost"]["unrecorded_children"], 20)
        recorded = [row["sequence"] for row in harness.processes(recording)
                    if "child_site" in harness.top_rows(recording, "alloc", row["sequence"])]
        self.assertEqual(len(recorded), 1 + 20)
        return elapsed_ms, stderr

    def test_one_child_waits_for_a_collector_that_is_stopped_and_the_others_go_on(self):
        for mode in ("mem-fast", "log-fast"):
            with self.subTest(mode=mode):
                _, stderr = self.stop_for_twenty_children(mode)
                self.assertEqual(stderr.count("was not recorded"), 1, stderr)

    def test_one_child_in_another_pid_namespace_waits_for_a_collector_that_is_stopped(self):
        """Whether the collector is stopped is not to be seen there: the wait is the longest."""
        other = ("unshare", "-rpf")
        if harness.run([*other, "true"]).status != 0:
            self.skipTest("no other PID namespace may be made here")
        elapsed_ms, _ = self.stop_for_twenty_children("mem-fast", other)
        self.assertLess(elapsed_ms, 20 * 2000 / 2)

    def test_children_born_after_the_collector_was_killed_run_unrecorded(self):
        script = ("echo ready; read go; \"$0\" fork && \"$0\" posix-spawn && \"$0\" exec && "
                  "echo well")
        steps, child, _ = self.start_program(["/bin/sh", "-c", script,
                                               harness.program("lifecycle")])
        self.assertEqual(steps.process.stdout.readline(), b"ready\n")  # past its exec
        steps.process.kill()
        steps.process.wait()
        steps.process.stdin.write(b"go\n")
        steps.process.stdin.flush()
        self.assertEqual(steps.process.stdout.read(), b"well\n")
        _, status = os.waitpid(child, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 0)


if __name__ == "__main__":
    harness.main()
