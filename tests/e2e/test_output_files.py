# SPDX-License-Identifier: BSD-2-Clause
"""What -o names is written whole or not at all, and nothing else is touched."""

import contextlib
import os
import resource
import signal
import subprocess
from pathlib import Path

import harness

SMALL_BYTES = 100  # less than any report of stacks.folded


def limit_files():
    """Files end here as on a full disk, with an error."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL_BYTES, SMALL_BYTES))


class OutputFiles(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = Path(self.directory)
        self.input = self.folder / "stacks.folded"
        self.input.write_text("".join(f"main;function_{i} {i + 1}\n" for i in range(2_000)),
                              encoding="ascii")

    def heapline(self, *arguments, **options):
        return harness.run([harness.HEAPLINE, *map(str, arguments)], cwd=self.folder, **options)

    def assert_only(self, *names):
        """Nothing lies in the folder but the input and these."""
        self.assertEqual(sorted(os.listdir(self.folder)), sorted([self.input.name, *names]))

    def test_the_reason_why_a_file_cannot_be_written_is_said_and_nothing_is_left(self):
        (self.folder / "sub").mkdir()
        for verb in (["top", "-n0"], ["tree", "--threshold=0"], ["flame"], ["lines"],
                     ["graph", "--format=dot"], ["report"], ["folded"], ["export"],
                     ["export", "--format=csv"], ["export", "--format=json"],
                     ["export", "--format=speedscope"], ["pack"], ["import"]):
            with self.subTest(verb=verb):
                result = self.heapline(*verb, "-o", "sub/../x", self.input,
                                       preexec_fn=limit_files)
                self.assertEqual(result.status, 1)
                self.assertEqual(result.stderr,
                                 "heapline: cannot write 'sub/../x': File too large\n")
                self.assert_only("sub")

    def test_a_full_device_is_named_with_its_reason(self):
        for verb in ("top", "flame", "export", "report", "folded"):
            with self.subTest(verb=verb):
                result = self.heapline(verb, "-o", "/dev/full", self.input)
                self.assertEqual(result.status, 1)
                self.assertEqual(result.stderr, "heapline: cannot write '/dev/full': "
                                                "No space left on device\n")

    def test_a_signal_leaves_nothing_behind(self):
        programs = self.folder / "bin"
        programs.mkdir()
        dot = programs / "dot"
        dot.write_text("#!/bin/sh\nexec sleep 60\n", encoding="ascii")
        dot.chmod(0o755)
        environment = dict(os.environ, PATH=f"{programs}:{os.environ['PATH']}")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signal=number):
                with subprocess.Popen([harness.HEAPLINE, "graph", "-o", "x.svg", self.input],
                                      cwd=self.folder, env=environment,
                                      start_new_session=True) as process:
                    harness.wait_until(lambda: list(self.folder.glob(".heapline-*.part")),
                                       "the temporary file")
                    process.send_signal(number)
                    self.assertEqual(process.wait(timeout=harness.TIMEOUT_S), -number)
                    with contextlib.suppress(ProcessLookupError):  # dot, if it began at all
                        os.killpg(process.pid, signal.SIGKILL)
                self.assert_only("bin")

    def test_what_is_read_is_not_overwritten(self):
        packed = self.folder / "x.hlpack"
        self.heapline("pack", "-o", packed, self.input)
        harness.run(harness.record_command(str(self.folder / "x.hl"), ["/bin/true"]))
        (self.folder / "link").symlink_to(self.input.name)
        part = self.folder / "x.hl" / "recording.hlm"
        for verb in ("top", "flame", "pack", "export"):
            for output, source in ((self.input, self.input), ("link", self.input),
                                   (packed, packed), (part, "x.hl")):
                with self.subTest(verb=verb, output=output):
                    read = self.folder / output
                    before = read.read_bytes()
                    result = self.heapline(verb, "-f", "-o", output, source)
                    self.assertEqual(result.status, 1)
                    self.assertIn("which is being read", result.stderr)
                    self.assertEqual(read.read_bytes(), before)
        for source in (["-"], [self.folder / "x.hl", self.input]):
            with self.subTest(source=source), open(self.input, "rb") as file:
                result = self.heapline("flame", "-f", "-o", self.input, *source, stdin=file)
                self.assertIn("is the same file", result.stderr)

    def test_an_existing_file_keeps_its_mode_and_its_links(self):
        for verb in ("top", "pack"):
            with self.subTest(verb=verb):
                target = self.folder / "target"
                target.write_text("old", encoding="ascii")
                target.chmod(0o640)
                link = self.folder / "link"
                link.unlink(missing_ok=True)
                link.symlink_to("target")
                self.assertEqual(self.heapline(verb, "-f", "-o", link, self.input).status, 0)
                self.assertTrue(link.is_symlink())
                self.assertEqual(target.stat().st_mode & 0o7777, 0o640)
                self.assertGreater(target.stat().st_size, len("old"))
                self.assert_only("link", "target")

    def test_a_link_to_what_is_not_there_makes_it(self):
        (self.folder / "link").symlink_to("new")
        self.assertEqual(self.heapline("top", "-o", "link", self.input).status, 0)
        self.assertIn("function_1999", (self.folder / "new").read_text(encoding="utf-8"))
        self.assert_only("link", "new")

    def test_a_new_file_has_the_mode_that_the_umask_leaves(self):
        self.assertEqual(self.heapline("top", "-o", "x", self.input, umask=0o027).status, 0)
        self.assertEqual((self.folder / "x").stat().st_mode & 0o7777, 0o640)

    def test_names_may_be_as_long_as_the_file_system_allows(self):
        name = "n" * os.pathconf(self.folder, "PC_NAME_MAX")
        for verb in ("top", "pack"):
            with self.subTest(verb=verb):
                self.assertEqual(self.heapline(verb, "-f", "-o", name, self.input).stderr,
                                 "" if verb == "top" else
                                 f"heapline: packed '{self.input}' into '{name}'\n")
        self.assert_only(name)

    def test_devices_and_pipes_are_written_to_without_force(self):
        self.assertEqual(self.heapline("flame", "-o", "/dev/null", self.input).stderr, "")
        self.assertIn("function_1999",
                      self.heapline("top", "-o", "/dev/stdout", self.input).stdout)
        with open(self.folder / "redirected", "wb") as file:
            self.heapline("top", "-o", "/dev/stdout", self.input, stdout=file)
        self.assertIn("function_1999", (self.folder / "redirected").read_text(encoding="utf-8"))
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        with subprocess.Popen(["cat", fifo], stdout=subprocess.PIPE, text=True) as reader:
            self.assertEqual(self.heapline("top", "-o", fifo, self.input).status, 0)
            self.assertIn("function_1999", reader.communicate(timeout=harness.TIMEOUT_S)[0])

    def test_a_directory_is_said_to_be_one(self):
        (self.folder / "sub").mkdir()
        for verb in ("top", "pack", "flame"):
            for force in ([], ["-f"]):
                result = self.heapline(verb, *force, "-o", "sub", self.input)
                self.assertEqual(result.stderr, "heapline: cannot write 'sub': it is a directory; "
                                                "name a file with -o\n")


if __name__ == "__main__":
    harness.main()
