# SPDX-License-Identifier: BSD-2-Clause
"""What people see on a terminal: how far work is, and reports, which never get lost on the way."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import tempfile
import termios
import unittest
from pathlib import Path

import harness


def on_terminal(command, columns=80, **variables):
    """All that a command writes to a terminal of its own, and its exit status."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {name: text for name, text in os.environ.items()
                   if name not in ("PAGER", "HEAPLINE_PAGER", "LESS", "TERM")}
    environment.update({"TERM": "xterm"} | variables)
    environment = {name: text for name, text in environment.items() if text is not None}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment,
                          start_new_session=True) as process:
        os.close(theirs)
        written = b""
        try:
            while piece := os.read(ours, 65536):
                written += piece
        except OSError:  # EIO: nobody has the terminal open any more
            pass
        os.close(ours)
        status = process.wait(timeout=harness.TIMEOUT_S)
    return written.decode(errors="replace").replace("\r\n", "\n"), status


class Widths(harness.TestCase):
    """Reports fit the terminal; `lines` and `folded`, which other programs read, are not cut."""

    COMMANDS = (
        "top shop.hl", "top --by line shop.hl", "top --by thread shop.hl",
        "top --by address shop.hl", "top --by module shop.hl", "annotate shop shop.hl",
        "tree shop.hl", "tree --reversed shop.hl", "diff shop.hl two.hl",
        "diff --by stack shop.hl two.hl", "timeline logged.hl", "timeline --by function logged.hl",
        "peaks logged.hl", "growth logged.hl", "events logged.hl", "events --dump logged.hl",
        "events --lifetimes logged.hl", "sizes sized.hl", "info shop.hl", "info --stacks shop.hl")

    def assert_fits(self, command, columns):
        written, status = on_terminal([harness.HEAPLINE, *command], columns=columns,
                                      LC_ALL="C.UTF-8")
        self.assertEqual(status, 0, written)
        for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written).splitlines():
            self.assertLessEqual(len(line), columns, line)

    def test_reports_fit_wide_and_narrow_terminals(self):
        for name in ("shop", "two", "logged", "sized"):
            subprocess.run([os.path.join(harness.BUILD, "tests/cli/make_recording"), name,
                            self.path(f"{name}.hl")], check=True)
        for command in self.COMMANDS:
            verb, *options = [self.path(word) if word.endswith(".hl") else word
                              for word in command.split()]
            for columns in (80, 40):
                with self.subTest(command, columns=columns):
                    self.assert_fits([verb, "--no-pager", *options], columns)

    def test_help_fits_wide_and_narrow_terminals(self):
        for verb in harness.run([harness.HEAPLINE, "--complete", ""]).stdout.splitlines():
            for columns in (80, 40):
                with self.subTest(verb, columns=columns):
                    self.assert_fits(["help", verb.split("\t")[0]], columns)
        self.assert_fits(["help"], 40)


class Standstills(harness.TestCase):
    def test_a_process_that_is_to_stand_still_is_named_before(self):
        with subprocess.Popen(["sleep", "600"]) as process:
            self.addCleanup(process.kill)
            pid = str(process.pid)
            said = f"heapline: process {pid} is stopped from here on, while its memory is read, "
            written, _ = on_terminal([harness.HEAPLINE, "heap", "--stop", "-p", pid])
            self.assertTrue(written.startswith(said), written)
            self.assertNotIn(said, harness.run([harness.HEAPLINE, "heap", "--stop", "-p", pid]).stderr)
            process.kill()


class Pagers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="heapline-test-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.file = os.path.join(cls.folder.name, "many.folded")
        # More than a pipe holds, so that a writer would wait for a reader.
        with open(cls.file, "w", encoding="ascii") as file:
            for number in range(20_000):
                file.write(f"main;function_{number} {number + 1}\n")
        cls.command = [harness.HEAPLINE, "top", "-n", "0", cls.file]

    def pager_script(self, text):
        path = Path(self.folder.name) / f"{self._testMethodName}.sh"
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="ascii")
        path.chmod(0o755)
        return str(path)

    def test_a_pager_that_cannot_run_does_not_lose_the_report(self):
        for pager in ("nonexistent", "/etc/passwd", "false", " ", ""):
            with self.subTest(pager=pager):
                written, status = on_terminal(self.command, HEAPLINE_PAGER=pager)
                self.assertEqual(status, 0)
                self.assertIn("function_19999", written)
                self.assertIn("function_0\n", written)

    def test_without_less_the_report_comes_directly_and_in_silence(self):
        written, status = on_terminal(self.command, PATH="/nonexistent")
        self.assertEqual(status, 0)
        self.assertIn("function_0\n", written)
        self.assertNotIn("not found", written)

    def test_a_small_report_survives_a_bad_pager_too(self):
        written, _ = on_terminal([harness.HEAPLINE, "top", "-n", "3", self.file], PAGER="false")
        self.assertIn("function_19999", written)

    def test_a_pager_that_is_left_early_ends_the_report(self):
        pager = self.pager_script("read line; echo \"seen: $line\"")
        written, status = on_terminal(self.command, HEAPLINE_PAGER=pager)
        self.assertEqual(status, 0)
        self.assertIn("seen: ", written)
        self.assertNotIn("function_0\n", written)

    def test_less_is_told_to_scroll_sideways_rather_than_to_wrap(self):
        pager = self.pager_script("cat >/dev/null; echo \"LESS=$LESS\"")
        self.assertIn("LESS=FRSX", on_terminal(self.command, PAGER=pager)[0])
        self.assertIn("LESS=R", on_terminal(self.command, PAGER=pager, LESS="R")[0])

    def test_a_terminal_that_can_do_nothing_has_no_pager(self):
        pager = self.pager_script("cat >/dev/null; echo PAGED")
        self.assertIn("PAGED", on_terminal(self.command, PAGER=pager)[0])
        for terminal in ("dumb", None):
            with self.subTest(terminal=terminal):
                written, _ = on_terminal(self.command, PAGER=pager, TERM=terminal)
                self.assertNotIn("PAGED", written)
                self.assertIn("function_0\n", written)


class Progress(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = Path(self.directory)

    def start(self, *arguments, **variables):
        """heapline with standard error on a terminal, whose other end it returns too."""
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        process = subprocess.Popen([harness.HEAPLINE, *arguments], cwd=self.folder,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs,
                                   env=dict(os.environ, **variables), start_new_session=True)
        os.close(theirs)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, ours

    @staticmethod
    def read_until(terminal, words):
        """Reads what the terminal shows until these words are there; waits as long as it takes."""
        written = b""
        while words not in written:
            written += os.read(terminal, 4096)

    @staticmethod
    def read_rest(terminal):
        written = b""
        try:
            while piece := os.read(terminal, 4096):
                written += piece
        except OSError:  # EIO: the other end is closed
            pass
        return written

    def test_reading_another_tools_file_is_shown_while_it_takes_long(self):
        os.mkfifo(self.folder / "stacks")
        for verb in (["top"], ["import", "-o", "x.hlpack"]):
            with self.subTest(verb=verb):
                process, terminal = self.start(*verb, "stacks")
                with open(self.folder / "stacks", "w", encoding="ascii") as stacks:
                    stacks.write("main;parse 10\n")
                    self.read_until(terminal, b"\rreading\x1b[K")
                rest = self.read_rest(terminal)
                self.assertEqual(process.wait(timeout=harness.TIMEOUT_S), 0)
                self.assertIn(b"\r\x1b[K", rest)  # wiped

    def test_writing_is_shown_while_it_takes_long(self):
        (self.folder / "stacks").write_text("main;parse 10\n", encoding="ascii")
        programs = self.folder / "bin"
        programs.mkdir()
        os.mkfifo(self.folder / "go")
        (programs / "dot").write_text("#!/bin/sh\ncat >/dev/null\ncat go\n", encoding="ascii")
        (programs / "dot").chmod(0o755)
        process, terminal = self.start("graph", "-o", "x.svg", "stacks",
                                       PATH=f"{programs}:{os.environ['PATH']}")
        self.read_until(terminal, b"\rwriting\x1b[K")
        (self.folder / "go").write_text("<svg/>\n", encoding="ascii")
        self.assertIn(b"\r\x1b[K", self.read_rest(terminal))
        self.assertEqual(process.wait(timeout=harness.TIMEOUT_S), 0)


if __name__ == "__main__":
    harness.main()
