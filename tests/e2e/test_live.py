# SPDX-License-Identifier: BSD-2-Clause
"""A recording that is watched while it goes on: as lines of JSON, as text, and on a terminal."""

import fcntl
import itertools
import json
import os
import re
import signal
import shutil
import subprocess
import sys
import time

import harness
import schemas
from harness import HEAPLINE

STEP = 1009 * 127  # what steps.c allocates for each byte it reads
STEP_TEXT = "125.1 KiB"
TWO_STEPS_TEXT = "250.3 KiB"
OFTEN = ("--interval", "0.1")


class LiveCase(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.environment = dict(os.environ, XDG_RUNTIME_DIR=self.directory, LC_ALL="C.UTF-8")
        self.recording = self.path("test.hl")
        self.collector = subprocess.Popen(
            harness.record_command(self.recording, [harness.program("steps")]), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=self.environment, cwd=self.directory, start_new_session=True)
        self.addCleanup(self.kill)
        self.step()
        self.pid, = harness.children_of(self.collector.pid)

    def kill(self):
        if self.collector.poll() is None:
            os.killpg(self.collector.pid, signal.SIGKILL)
        self.collector.stdin.close()
        self.collector.stdout.close()
        self.collector.wait()

    def step(self):
        """The program allocates once more."""
        self.collector.stdin.write("x")
        self.collector.stdin.flush()
        self.assertEqual(self.collector.stdout.readline(), "step\n")

    def end(self):
        self.collector.stdin.close()
        self.collector.wait(harness.TIMEOUT_S)

    def live(self, *options, **variables):
        return harness.run([HEAPLINE, "live", *options], env=self.environment | variables,
                           cwd=self.directory)

    def wait_for_save(self, steps):
        """Until the recording knows what was allocated."""
        def is_saved():
            rows = [row for row in json.loads(self.live("-p", str(self.pid), "--once",
                                                        "--json").stdout)["rows"]
                    if row["name"] == "step_site"]
            return rows and rows[0]["flat_bytes"] == steps * STEP
        harness.wait_until(is_saved, f"{steps} steps to be saved")


class Memory(harness.TestCase):
    def test_the_recorders_memory_is_one_figure_and_no_part_of_rss(self):
        program = "import sys; x = [bytes(100) for _ in range(300000)]; print('ready', flush=True); sys.stdin.read()"
        recording = self.path("test.hl")
        with harness.Waiting(harness.record_command(recording, [sys.executable, "-c", program],
                                                    mode="log-fast")) as started:
            pid, = harness.children_of(started.pid)

            def ask(*words):
                answers = []

                def is_answered():  # the collector may be busy
                    result = harness.run([HEAPLINE, *words, "-p", str(pid), "--json"])
                    answers.append(result.stdout)
                    return result.status == 0 and result.stdout
                harness.wait_until(is_answered, f"'{words[0]}' to answer")
                return json.loads(answers[-1])
            heap = ask("heap")["total"]
            recorder = heap["resident_recorder_bytes"]
            self.assertGreater(recorder, 4 << 20)
            status, = ask("ctl", "status")["rows"]
            live = ask("live", "--once")["total"]
            for figure in status["recorder_bytes"], live["recorder_bytes"]:
                self.assertAlmostEqual(figure, recorder, delta=recorder / 10)
            without = heap["rss_bytes"] - recorder
            self.assertAlmostEqual(live["rss_bytes"], without, delta=without / 10)
        # At its end the program frees its objects.
        highest = max(row["rss_bytes"] for row in harness.report("timeline", recording)["rows"])
        self.assertAlmostEqual(highest, without, delta=without / 10)
        figure = harness.info(recording)["total"]["recorder_memory_bytes"]
        self.assertAlmostEqual(figure, recorder, delta=recorder / 10)
        self.assertIn("RSS is without heapline's recorder", harness.run([HEAPLINE, "timeline", recording]).stdout)


class Lines(LiveCase):
    def lines(self, *options):
        """What --json writes, line by line, each checked."""
        with subprocess.Popen([HEAPLINE, "live", "--json", *OFTEN, *options], text=True,
                              stdout=subprocess.PIPE, env=self.environment) as process:
            for line in process.stdout:
                document = json.loads(line)
                schemas.check(document)
                yield document
            self.assertEqual(process.wait(harness.TIMEOUT_S), 0)

    @staticmethod
    def row(document):
        return next((row for row in document["rows"] if row["name"] == "step_site"), {})

    def until(self, lines, steps):
        """The first line with as many steps."""
        for document in lines:
            row = self.row(document)
            if row.get("flat_bytes") == steps * STEP:
                return document, row
        raise AssertionError(f"no line has {steps} steps")

    def test_each_line_has_what_is_in_use_and_what_was_added_since_the_first(self):
        self.wait_for_save(1)
        lines = self.lines("-p", str(self.pid))
        first, row = self.until(lines, 1)
        self.assertEqual((row["flat_objects"], row["delta_bytes"]), (1009, 0))
        self.assertEqual(first["state"], "running")
        self.assertGreaterEqual(first["total"]["inuse_bytes"], STEP)
        self.assertGreater(first["total"]["rss_bytes"], STEP)
        self.step()
        _, row = self.until(lines, 2)
        self.assertEqual((row["delta_bytes"], row["delta_objects"]), (STEP, 1009))
        self.assertEqual((row["alloc_bytes"], row["alloc_cum_bytes"]), (2 * STEP, 2 * STEP))
        self.assertGreater(row["rate_bytes"], 0)
        # Nothing is allocated any more: a rate of earlier saves is not a rate of now.
        idle = next(line for line in lines if not self.row(line)["rate_bytes"])
        self.assertEqual(idle["total"]["rate_bytes"], 0)
        self.end()
        *_, last = lines
        self.assertEqual(last["state"], "ended")
        self.assertIn("exited with status 5", last["end"])
        self.assertIn("heapline top", last["end"])
        self.assertEqual(self.row(last)["flat_bytes"], 2 * STEP)

    def test_the_recording_says_the_same_as_the_process(self):
        self.wait_for_save(1)
        by_name = json.loads(self.live("test.hl", "--once", "--json").stdout)
        self.assertEqual(self.row(by_name)["flat_bytes"], STEP)
        self.assertEqual(by_name["state"], "running")

    def test_lines_and_modules_and_threads_add_up_to_the_same(self):
        self.wait_for_save(1)
        totals = set()
        for key in ("function", "line", "module", "thread"):
            document = json.loads(self.live("-p", str(self.pid), "--once", "--json", "--by",
                                            key).stdout)
            self.assertEqual(document["by"], key)
            totals.add(sum(row["flat_bytes"] for row in document["rows"]))
        self.assertEqual(len(totals), 1, totals)

    def test_rows_are_limited_and_sorted_as_asked(self):
        self.wait_for_save(1)
        document = json.loads(self.live("-p", str(self.pid), "--once", "--json", "-n", "1",
                                        "--sort", "cum", "--column", "alloc").stdout)
        highest, = document["rows"]
        everything = json.loads(self.live("-p", str(self.pid), "--once", "--json", "--sort",
                                          "cum").stdout)["rows"]
        self.assertEqual(highest["alloc_cum_bytes"],
                         max(row["alloc_cum_bytes"] for row in everything))

    def test_a_collector_that_dies_is_told(self):
        self.wait_for_save(1)
        lines = self.lines("-p", str(self.pid))
        next(lines)
        self.collector.send_signal(signal.SIGKILL)
        *_, last = lines
        self.assertEqual(last["state"], "ended")
        self.assertIn("the collector has died", last["end"])
        self.assertEqual(self.row(last)["flat_bytes"], STEP)

    def test_lines_go_on_while_the_collector_is_stopped_and_are_live_again_afterwards(self):
        self.wait_for_save(1)
        lines = self.lines("-p", str(self.pid))
        next(lines)
        self.collector.send_signal(signal.SIGSTOP)
        silent = (line for line in lines if line["state"] == "silent")
        for document in itertools.islice(silent, 20):  # more than can wait at its socket
            self.assertIn(f"process {self.collector.pid}) does not answer", document["silence"])
            self.assertEqual(self.row(document)["flat_bytes"], STEP)
        self.collector.send_signal(signal.SIGCONT)
        self.step()
        document, _ = self.until((line for line in lines if line["state"] == "running"), 2)
        self.assertNotIn("silence", document)
        self.end()
        *_, last = lines
        self.assertEqual(last["state"], "ended")

    def test_another_recording_with_the_same_process_id_is_not_watched(self):
        self.wait_for_save(1)
        # A file that is being saved has another name as long.
        copy = shutil.copytree(self.recording, self.path("copy.hl"), ignore=shutil.ignore_patterns(".*.tmp"))
        directory = os.open(copy, os.O_RDONLY)
        self.addCleanup(os.close, directory)
        fcntl.flock(directory, fcntl.LOCK_EX)  # so it goes on
        self.step()
        document = json.loads(self.live("copy.hl", "--once", "--json").stdout)
        self.assertEqual(document["state"], "running")
        self.assertLess(document["total"]["inuse_bytes"], 2 * STEP)


class Text(LiveCase):
    def test_without_a_name_it_lists_what_is_recorded(self):
        said = self.live().stdout
        self.assertRegex(said, rf"(?m)^ *{self.pid} +mem-fast .* {re.escape(self.recording)} .*steps")
        self.end()
        self.assertNotIn(self.recording, self.live().stdout)

    def test_one_screen_is_text_without_a_terminal(self):
        self.wait_for_save(1)
        result = self.live("-p", str(self.pid), "--once")
        self.assertEqual(result.status, 0, result.stderr)
        self.assertRegex(result.stdout, rf"(?m)^ *{STEP_TEXT} .*step_site")
        self.assertRegex(result.stdout, rf"^running  test\.hl  pid {self.pid}  .*steps\n")
        self.assertTrue(self.live("-p", str(self.pid), "--once", LC_ALL="C").stdout.isascii())

    def test_a_finished_recording_shows_its_last_state_and_says_so(self):
        self.end()
        result = self.live("test.hl", "--once")
        self.assertEqual(result.status, 0, result.stderr)
        self.assertRegex(result.stdout, rf"(?m)^ *{STEP_TEXT} .*step_site")
        self.assertIn("this is the last state: exited with status 5; see 'heapline top test.hl'",
                      result.stdout)
        lines = self.live("test.hl", "--json").stdout.splitlines()
        self.assertEqual([json.loads(line)["state"] for line in lines], ["ended"])

    def test_memory_of_another_process_with_its_number_is_not_shown(self):
        """The recording is of process 4711, which has ended since, as has its collector."""
        harness.need("unshare")
        script = 'echo 4710 >/proc/sys/kernel/ns_last_pid; sleep 60 & test $! = 4711 || exit 77\n' \
                 '"$1" lossy lossy.hl && "$2" live --once lossy.hl'
        result = harness.run(["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", script,
                              "sh", os.path.join(harness.BUILD, "tests/cli/make_recording"), harness.HEAPLINE], cwd=self.directory)
        if result.status == 77 or "unshare:" in result.stderr:
            self.skipTest(f"numbers of processes cannot be chosen here: {result.stderr.strip()}")
        self.assertIn("the collector has died", result.stdout)
        self.assertNotIn("Rss", result.stdout)
        self.assertNotIn("1 thread", result.stdout)

    def test_a_process_that_is_not_recorded_is_refused_with_what_works(self):
        result = self.live("-p", str(os.getpid()), "--once")
        self.assert_refused(result, "it is not being recorded")
        # Where this user may not join it, doctor names what works.
        self.assertRegex(result.stderr, f"'heapline (attach|doctor) -p {os.getpid()}'")

    def test_a_file_of_another_tool_is_refused(self):
        with open(self.path("x.folded"), "w", encoding="ascii") as file:
            file.write("main;work 17\n")
        self.assert_refused(self.live("x.folded", "--once"), "another tool's file",
                            "'heapline top x.folded'")

    def test_a_recording_that_cannot_be_read_is_not_called_new(self):
        meta = os.path.join(self.recording, "recording.hlm")
        os.unlink(meta)
        os.mkdir(meta)
        self.assert_refused(self.live("-p", str(self.pid), "--once"), "cannot read",
                            "recording.hlm")

    def test_without_a_terminal_the_ways_to_do_without_are_named(self):
        result = self.live("-p", str(self.pid))
        self.assertEqual(result.status, 2)
        self.assertIn("needs a terminal; --once or --json", result.stderr)
        self.assertEqual(self.live("--once").status, 2)
        self.assertEqual(self.live("--once", "-p", str(self.pid), "test.hl").status, 2)


class Screen(LiveCase):
    """Keys are sent and the screen is read through tmux."""

    def setUp(self):
        tmux = harness.need("tmux")
        super().setUp()
        self.tmux = [tmux, "-S", self.path("tmux.sock"), "-f", "/dev/null"]
        self.wait_for_save(1)

    def run_tmux(self, *words):
        result = harness.run([*self.tmux, *words], env=self.environment)
        self.assertEqual(result.status, 0, result.stderr)
        return result.stdout

    def show(self, *options, columns=80, lines=24, **variables):
        words = [f"{name}={value}" for name, value in variables.items()]
        command = ["env", *words, HEAPLINE, "live", *OFTEN, *options]
        self.addCleanup(harness.run, [*self.tmux, "kill-server"])
        self.run_tmux("new-session", "-d", "-x", str(columns), "-y", str(lines), "-c",
                      self.directory, " ".join(command) + "; echo status $?; read line")
        self.see("step_site")

    def screen(self, *options):
        return self.run_tmux("capture-pane", "-p", *options)

    def see(self, *patterns):
        """The screen once it matches all of them; it may be seen half drawn before."""
        try:
            return harness.wait_until(
                lambda: (screen := self.screen()) and all(re.search(pattern, screen)
                                                          for pattern in patterns) and screen,
                f"{patterns} on the screen")
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{self.screen()}") from None

    def see_no(self, pattern):
        return harness.wait_until(
            lambda: (screen := self.screen()) and not re.search(pattern, screen) and screen,
            f"no '{pattern}' on the screen")

    def send(self, *keys):
        self.run_tmux("send-keys", *keys)

    def test_figures_follow_the_program_and_growth_counts_from_the_mark(self):
        self.show("-p", str(self.pid))
        self.see("in use +[0-9.]+ KiB +█", "(?m)^Rss ")
        self.step()
        self.see(rf"{TWO_STEPS_TEXT} .* {STEP_TEXT} step_site")
        self.send("m")
        self.see(rf"{TWO_STEPS_TEXT} .* 0 B step_site")
        self.send("u")
        self.see("2,018 .*step_site")

    def test_a_row_leads_to_its_callers_and_callees_and_back(self):
        self.show("-p", str(self.pid))
        self.send("/")
        self.send("-l", "step_site")
        self.see("only rows with 'step_site'")
        self.send("Enter")
        self.see("q quit")
        self.send("Escape")
        self.see_no("only rows")
        self.send("Enter")
        self.see(r"callers \(<\) and callees \(>\) of step_site", rf"{STEP_TEXT} .* < main",
                 rf"{STEP_TEXT} .* = step_site")
        self.send("Enter")  # of the first row, main
        self.see("callees .* of main", rf"{STEP_TEXT} .* > step_site")
        self.send("Escape")
        self.see("callees .* of step_site")
        self.send("Escape")
        self.see_no("callees")

    def test_keys_sort_and_change_what_rows_are(self):
        self.show("-p", str(self.pid))
        self.see(r"in use\*")
        self.send("Right")
        self.see(r"allocated\*")
        self.send("Left", "Left")
        self.see(r"function\*, flat, bytes")
        self.send("c")
        self.see(r"function\*, cum, bytes")
        self.see(r" main ")
        self.send("b")
        self.see(r"line\*, cum")
        self.see(r"steps\.c:\d+  step_site")
        self.send("b")
        self.see(r"module\*, cum")
        self.send("b")
        self.see(rf"steps \({self.pid}\)")
        self.send("?")
        self.see("Graphs begin at zero")
        self.send("x")
        self.see_no("Graphs begin at zero")

    def test_a_screen_has_as_many_rows_as_asked_for(self):
        self.show("-p", str(self.pid), "-n", "2")
        self.see(rf"{STEP_TEXT} .*step_site")
        self.send("c")  # now each caller has a row
        lines = self.see("function, cum").splitlines()
        first = next(number for number, line in enumerate(lines) if "function, cum" in line) + 1
        self.assertTrue(all(lines[first:first + 2]))
        self.assertEqual(lines[first + 2], "")

    def test_the_screen_waits_while_it_is_paused(self):
        self.show("-p", str(self.pid))
        self.send("Space")
        self.see("paused; space goes on")
        self.step()
        self.wait_for_save(2)
        time.sleep(1)  # ten intervals, in which a screen that is not paused would follow
        self.assertNotIn(TWO_STEPS_TEXT, self.see("step_site"))
        self.send("Space")
        self.see(rf"{TWO_STEPS_TEXT} .*step_site")

    def test_small_and_resized_terminals_are_filled_and_never_exceeded(self):
        self.show("-p", str(self.pid), columns=40, lines=12)
        for columns, lines in ((40, 12), (100, 34), (20, 5), (80, 24)):
            with self.subTest(columns=columns, lines=lines):
                self.run_tmux("resize-window", "-x", str(columns), "-y", str(lines))
                screen = harness.wait_until(
                    lambda: len((now := self.screen()).splitlines()) == lines and
                    re.search(rf"^running.*(\n.*){{{lines - 1}}}q quit", now) and now,
                    "a full screen")
                self.assertLessEqual(max(map(len, screen.splitlines())), columns)
                self.assertEqual("no room for rows" in screen, lines == 5)
        self.assertRegex(screen, rf"(?m)^ *{STEP_TEXT} .*step_site")

    def test_colour_can_be_had_or_not(self):
        self.show("-p", str(self.pid))
        harness.wait_until(lambda: re.search("\x1b\\[[0-9;]*31m", self.screen("-e")), "colour on the screen")
        self.tmux[2] = self.path("other.sock")  # a server that ends may still take a session
        self.show("-p", str(self.pid), NO_COLOR=1)
        self.assertNotRegex(self.screen("-e"), "\x1b\\[[0-9;]*3[0-7]m")

    def test_the_last_state_stays_when_the_program_ends_and_q_quits(self):
        self.show("-p", str(self.pid))
        self.end()
        self.see("^ended ", r"exited\s+with\s+status\s+5;\s+see\s+'heapline\s+top\s+test.hl'",
                 rf"{STEP_TEXT} .*step_site", "(?m)^Rss +-  .*█")  # how it was stays
        self.send("Down")
        self.send("q")
        self.see("status 0")

    def test_keys_work_while_the_collector_is_stopped(self):
        self.show("-p", str(self.pid))
        self.collector.send_signal(signal.SIGSTOP)
        self.see("^silent ", rf"process\s+{self.collector.pid}\)\s+does\s+not\s+answer",
                 rf"{STEP_TEXT} .*step_site")
        self.send("?")
        self.see("Graphs begin at zero")
        self.send("x")
        self.see_no("Graphs begin at zero")
        self.collector.send_signal(signal.SIGCONT)
        self.see("^running ")
        self.see_no("does not answer")
        self.collector.send_signal(signal.SIGSTOP)
        self.send("q")
        self.see("status 0")

    def test_it_can_be_stopped_by_the_shell_and_goes_on(self):
        self.addCleanup(harness.run, [*self.tmux, "kill-server"])
        self.run_tmux("new-session", "-d", "-x", "80", "-y", "24", "-c", self.directory,
                      "bash --norc -i")
        self.send(f"{HEAPLINE} live test.hl", "Enter")
        self.see("q quit")
        self.send("C-z")
        self.see("Stopped")
        self.send("fg", "Enter")
        self.see("q quit")
        self.send("C-c")
        self.see_no("q quit")

    def test_a_terminal_that_cannot_place_the_cursor_is_refused(self):
        self.addCleanup(harness.run, [*self.tmux, "kill-server"])
        self.run_tmux("new-session", "-d", "-x", "80", "-y", "24", "-c", self.directory,
                      f"TERM=dumb {HEAPLINE} live test.hl; echo status $?; read line")
        self.assertIn("--once and --json", self.see("status 1").replace("\n", ""))


if __name__ == "__main__":
    harness.main()
