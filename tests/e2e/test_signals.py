# SPDX-License-Identifier: BSD-2-Clause
"""Signals and the terminal: `record` stands between them and the program, unnoticed."""

import os
import pty
import signal
import subprocess
import termios

import harness

FORWARDED = (("HUP", signal.SIGHUP), ("USR1", signal.SIGUSR1), ("USR2", signal.SIGUSR2),
             ("QUIT", signal.SIGQUIT))


def read_until(fd, text, seen=b""):
    """Reads until ${text} has come; everything read so far. The end of a terminal is EIO."""
    while text not in seen:
        try:
            chunk = os.read(fd, 4096)
        except OSError:
            chunk = b""
        if not chunk:
            raise AssertionError(f"the program ended before it said {text}: {seen}")
        seen += chunk
    return seen


def read_rest(fd, seen):
    while True:
        try:
            chunk = os.read(fd, 4096)
        except OSError:
            return seen
        if not chunk:
            return seen
        seen += chunk


class Forwarding(harness.TestCase):
    def start(self, **options):
        command = harness.record_command(self.path("test.hl"), [harness.program("signals")])
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, start_new_session=True, **options)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        read_until(process.stdout.fileno(), b"ready\n")
        return process

    def assert_counts(self):
        row = harness.top_rows(self.path("test.hl"), "inuse")["patient_site"]
        self.assertEqual((row["cum_objects"], row["cum_bytes"]), (1009, 1009 * 31))

    def test_signals_sent_to_heapline_reach_the_program_once(self):
        process = self.start()
        said = b""
        for name, number in FORWARDED:
            process.send_signal(number)
            said = read_until(process.stdout.fileno(), f"got {name}\n".encode(), said)
        process.send_signal(signal.SIGTERM)
        said = read_rest(process.stdout.fileno(), said)
        self.assertEqual(process.wait(harness.TIMEOUT_S), 7)
        self.assertEqual(said.decode().split("\n"),
                         [f"got {name}" for name, _ in FORWARDED] + ["got TERM", ""])
        self.assert_counts()

    def test_a_program_that_dies_of_a_signal_gives_heapline_the_status_of_a_shell(self):
        process = self.start()
        child = harness.wait_until(lambda: harness.children_of(process.pid), "the program")[0]
        os.kill(child, signal.SIGSEGV)
        status = process.wait(harness.TIMEOUT_S)
        self.assertIn(status, (-signal.SIGSEGV, 128 + signal.SIGSEGV))
        self.assert_counts()
        self.assertRegex(harness.processes(self.path("test.hl"))[0]["end"], "SEGV|signal 11")


class Terminal(harness.TestCase):
    def start(self, command):
        """(pid, our end of its terminal)."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(command[0], command)
        self.addCleanup(os.close, terminal)
        return pid, terminal

    def test_ctrl_c_reaches_the_program_once_and_the_terminal_stays_as_it_was(self):
        recording = self.path("test.hl")
        command = harness.record_command(recording, [harness.program("signals")])
        pid, terminal = self.start(command)
        before = termios.tcgetattr(terminal)
        said = read_until(terminal, b"ready")
        os.write(terminal, b"\x03")
        said = read_rest(terminal, said)
        _, status = os.waitpid(pid, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 8, said)
        self.assertEqual(said.count(b"got INT"), 1, said)
        self.assertEqual(termios.tcgetattr(terminal), before)
        row = harness.top_rows(recording, "inuse")["patient_site"]
        self.assertEqual((row["cum_objects"], row["cum_bytes"]), (1009, 1009 * 31))

    def test_the_program_reads_the_terminal_as_if_it_were_alone(self):
        recording = self.path("test.hl")
        command = harness.record_command(recording, [harness.program("steps")])
        pid, terminal = self.start(command)
        os.write(terminal, b"\n")
        said = read_until(terminal, b"step")
        os.write(terminal, b"\x04")
        said = read_rest(terminal, said)
        _, status = os.waitpid(pid, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 5, said)


if __name__ == "__main__":
    harness.main()
