# SPDX-License-Identifier: BSD-2-Clause
"""Programs that preload the recorder without `heapline record`, as a service does that another starts."""

import json
import os
import shutil
import signal
import subprocess

import harness
from harness import HEAPLINE, top_rows, wait_until

RECORDER = os.path.abspath(os.path.join(harness.BUILD, "src/recorder/libheapline.so"))


KEPT, LATE = 3_000_017, 7_000_003


def environment(options, recorder=RECORDER):
    return {"LD_PRELOAD": recorder, "HEAPLINE_RECORD": options}


class Preloaded(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.recording = self.path("own.hl")
        self.environment = environment(f"-q -o {self.recording}")
        self.waiting = [harness.need("/usr/bin/python3"), "-c",
                        f"kept = bytes({KEPT}); import sys; print('ready', flush=True); "
                        f"sys.stdin.read(); late = bytes({LATE})"]

    def finish(self):
        """The collector outlives its program by the time of the last save."""
        wait_until(lambda: not self.collectors(), "the collector to end")

    def collectors(self):
        """Processes of heapline that serve this recording."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:
                continue
            if b"--preloaded" in words and self.recording.encode() in words:
                found.append(int(pid))
        return found

    def test_a_preloaded_program_is_counted_exactly(self):
        result = harness.run([harness.program("known_answer")], env=self.environment)
        self.assertEqual(result.status, 0, result.stderr)
        self.finish()
        rows = top_rows(self.recording, "alloc")
        for answer in json.loads(result.stdout):
            if answer.get("alloc_objects", -1) >= 0:
                row = rows.get(answer["function"], {})
                self.assertEqual(row.get("cum_objects", 0), answer["alloc_objects"], answer)
        self.assert_nothing_lost(self.recording)

    def test_a_program_that_an_unrecorded_one_starts_does_not_stand_for_a_static_child(self):
        starts = 'LD_PRELOAD="$P" HEAPLINE_SOCKET="$S" "$PROGRAM"; true'
        wrapped = ('env -u LD_PRELOAD P="$LD_PRELOAD" S="$HEAPLINE_SOCKET" HEAPLINE_SOCKET= '
                   f"""sh -c 'sh -c "$STARTS"; true'; true""")
        result = harness.run(["sh", "-c", '"$STATIC"; sh -c "$WRAPPED"; true'], env={
            **self.environment, "STATIC": harness.program("hello_static"), "PROGRAM": harness.program("hello"),
            "STARTS": starts, "WRAPPED": wrapped})
        self.assertEqual(result.stdout, "hello\nhello\n", result.stderr)
        self.finish()
        info = harness.info(self.recording)
        self.assertEqual(len(info["rows"]), 4)
        self.assertEqual(info["lost"]["unrecorded_children"], 1)

    def test_options_are_those_of_record(self):
        harness.run([harness.program("hello")],
                    env=environment(f" --mode log-record   -q -o {self.recording} "))
        self.finish()
        self.assertEqual(harness.info(self.recording)["recording"]["mode"], "log-record")

    def test_the_program_sees_no_child_and_no_descriptor_of_the_collector(self):
        script = ("import os\n"
                  "try: print(os.wait())\n"
                  "except ChildProcessError: print('no child')\n"
                  "print(os.listdir('/proc/self/fd'))")
        plain = harness.run([*self.waiting[:2], script])
        preloaded = harness.run([*self.waiting[:2], script], env=self.environment)
        self.assertEqual(preloaded.stdout, plain.stdout)
        self.finish()
        self.assertEqual(len(harness.processes(self.recording)), 1)

    def test_children_and_replaced_programs_are_recorded(self):
        hello = harness.program("hello")
        harness.run(["/bin/sh", "-c", f"{hello}; env -i {hello}; exec {hello}"],
                    env=self.environment)
        self.finish()
        commands = [row["command"] for row in harness.processes(self.recording)]
        self.assertEqual(commands.count(hello), 3, commands)

    def test_a_killed_program_leaves_a_complete_recording(self):
        with harness.Waiting(self.waiting, self.environment) as process:
            process.kill()
        self.finish()
        total = harness.info(self.recording)["total"]
        self.assertTrue(KEPT < total["inuse_bytes"] < KEPT + LATE, total)

    def test_the_end_of_a_whole_service_does_not_cut_the_recording(self):
        """A service manager sends SIGTERM to all processes of a service at once."""
        with harness.Waiting(self.waiting, self.environment) as process:
            collector = wait_until(self.collectors, "the collector")[0]
            os.kill(collector, signal.SIGTERM)
            self.assertIsNone(process.poll())
        self.finish()
        self.assertGreater(harness.info(self.recording)["total"]["peak_bytes"], KEPT + LATE)

    def test_where_no_collector_can_start_the_program_runs_unrecorded(self):
        hello = harness.program("hello")
        plain = harness.run([hello])
        alone = self.path("libheapline.so")
        shutil.copy(RECORDER, alone)
        for options, recorder, reason in (
                ("", alone, "is not beside the recorder; name it in HEAPLINE_PROGRAM"),
                (f"-o {self.path('absent')}/a.hl", RECORDER, "No such file or directory"),
                ("--nonsense", RECORDER, "has no option '--nonsense'"),
                ("-q " * 60, RECORDER, "more than 48 words"),
                (f"-o {self.path('two words')}", RECORDER, "cannot hold 'words'"),
                ("--tags", RECORDER, "no '--tags'")):
            result = harness.run([hello], env=environment(options, recorder))
            with self.subTest(options=options):
                self.assertEqual((result.status, result.stdout), (plain.status, plain.stdout))
                self.assertIn(reason, result.stderr)
                self.assertIn("heapline", result.stderr.splitlines()[0])

    def test_another_place_of_heapline_is_named_in_the_environment(self):
        alone = self.path("libheapline.so")
        shutil.copy(RECORDER, alone)
        harness.run([harness.program("hello")],
                    env={**environment(f"-o {self.recording}", alone),
                         "HEAPLINE_PROGRAM": HEAPLINE})
        self.finish()
        self.assertEqual(len(harness.processes(self.recording)), 1)

    def test_a_program_without_standard_streams_is_recorded(self):
        hello = harness.program("hello")
        harness.run(["/bin/sh", "-c", f"exec {hello} <&- >&- 2>&-"], env=self.environment)
        self.finish()
        self.assertIn(hello, [row["command"] for row in harness.processes(self.recording)])

    def test_a_limit_of_descriptors_is_said(self):
        words = [f"{name}='{value}'" for name, value in self.environment.items()]
        result = harness.run(["/bin/sh", "-c", f"ulimit -n 4; {' '.join(words)} exec "
                                               f"{harness.program('hello')}"])
        self.assertIn("no process or descriptor is left", result.stderr)

    def test_a_wrong_place_of_heapline_is_said(self):
        hello = harness.program("hello")
        result = harness.run([hello],
                             env={**self.environment, "HEAPLINE_PROGRAM": "/nonexistent"})
        self.assertEqual(result.status, harness.run([hello]).status)
        self.assertIn("HEAPLINE_PROGRAM", result.stderr)

    def test_the_option_is_refused_where_no_recorder_asked(self):
        with open(os.devnull, "rb") as file:
            result = subprocess.run([HEAPLINE, "record", "--preloaded", str(file.fileno())],
                                    pass_fds=[file.fileno()], capture_output=True, text=True,
                                    check=False)
        self.assertEqual(result.returncode, 125)
        self.assertIn("HEAPLINE_RECORD", result.stderr)


if __name__ == "__main__":
    harness.main()
