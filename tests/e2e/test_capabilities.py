# SPDX-License-Identifier: BSD-2-Clause
"""The table of docs/containers.md: each command works with the capabilities that it lists, and not without any of them."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import harness

TABLE = Path(__file__).resolve().parents[2] / "docs/containers.md"
SUBJECT, WATCHER = 65533, 65534  # users
# What follows the name in the table, where -p PID alone will not do; seconds stand last.
ARGUMENTS = {"attach": "-d 0.2 -f -q -o attached.hl", "growth": "1", "stacks": "1", "pgfault": "1", "page-events": "1", "pod --growth": "1"}
ALLOCATES = """
import time
kept = []
print("ready", flush=True)
while True:
    kept.append(bytearray(20_000))
    if len(kept) > 2_000:
        kept.clear()
    time.sleep(0.005)
"""


def rows():
    """(command, its capabilities) of the table."""
    section = TABLE.read_text().split("\n## Capabilities\n")[1].split("\n## ")[0]
    found = re.findall(r"^\| (`.*) \| ([A-Z_ ]+) \|$", section, re.M)
    return [(command.removesuffix(" -p PID"), names.split()) for commands, names in found for command in re.findall(r"`([^`]+)`", commands)]


@contextlib.contextmanager
def subject():
    """A process of another user that allocates."""
    with subprocess.Popen(["/usr/bin/python3", "-c", ALLOCATES], stdout=subprocess.PIPE, cwd="/", start_new_session=True,
                          user=SUBJECT, group=SUBJECT, extra_groups=[]) as process:
        try:
            process.stdout.readline()
            yield process.pid
        finally:
            process.send_signal(signal.SIGKILL)


class Capabilities(harness.TestCase):
    def setUp(self):
        super().setUp()
        harness.need_other_user(WATCHER)
        harness.need("setpriv")
        os.chmod(self.directory, 0o777)

    def run_with(self, command, names, pid):
        listed = ",".join(["-all", *(f"+{name.lower()}" for name in names)])
        verb, *options = command.split()
        more = ARGUMENTS.get(command, "").split()
        options += [] if verb != "pod" else more
        return harness.run(["setpriv", f"--reuid={WATCHER}", f"--regid={WATCHER}", "--clear-groups", f"--inh-caps={listed}",
                            f"--ambient-caps={listed}", f"--bounding-set={listed}", harness.HEAPLINE, verb, *options, "-p", str(pid),
                            *(more if verb != "pod" else [])], cwd=self.directory)

    def test_each_command_works_with_what_is_listed_and_says_what_is_missing(self):
        if harness.run([harness.HEAPLINE, "stacks", "-p", str(os.getpid()), "0.1"]).status:
            self.skipTest("BPF programs do not load here")
        table = rows()
        self.assertGreater(len(table), 9)
        with subject() as pid:
            for command, names in table:
                with self.subTest(command):
                    said = self.run_with(command, names, pid)
                    self.assertEqual(said.status, 0, said.stderr)
                for name in names:
                    with self.subTest(f"{command} without {name}"):
                        said = self.run_with(command, [other for other in names if other != name], pid)
                        self.assertEqual(said.status, 1, said.stdout)
                        self.assertRegex(said.stderr, f"CAP_{name}|needs root|'heapline pod' shows what can be had")

    def test_with_capabilities_of_its_own_no_library_is_loaded_from_a_folder_of_its_user(self):
        folder = Path(tempfile.mkdtemp(dir="/var/lib", prefix="heapline-test-"))  # all of whose folders are root's
        self.addCleanup(shutil.rmtree, folder)
        os.chmod(folder, 0o755)
        library = folder / "heapline-verbs.so"
        for path in (harness.HEAPLINE, f"{harness.BUILD}/{library.name}"):
            shutil.copy(path, folder)
        if harness.run([harness.need("setcap"), "cap_sys_ptrace+ep", str(folder / "heapline")]).status:
            self.skipTest("no file may have capabilities here")
        run = [harness.need("setpriv"), f"--reuid={WATCHER}", f"--regid={WATCHER}", "--clear-groups", str(folder / "heapline"), "help"]
        said = harness.run(run)
        self.assertEqual(said.status, 0, said.stderr)
        library.write_text("not a library")
        self.assertIn(str(library), harness.run(run).stderr)
        os.chown(folder, WATCHER, WATCHER)
        self.assertNotIn(str(library), harness.run(run).stderr)


if __name__ == "__main__":
    harness.main()
