#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""release.sh and the table of releases, with a debootstrap that is made up: its release has this machine's /usr."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import platforms

SCRIPT = Path(__file__).resolve().parent / "release.sh"
SKELETON = """
for last in "$@"; do folder=$before before=$last; done
mkdir -p "$folder"/{usr,dev,proc,sys,tmp,root,etc/apt/apt.conf.d}
mount --bind /usr "$folder/usr"
for link in bin lib lib64 sbin; do ln -s "usr/$link" "$folder/$link"; done
"""


@unittest.skipIf(os.geteuid(), "only root can make a release")
class Release(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = Path(place.name)
        self.folder = self.place / "made"
        if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
            self.skipTest("no mount namespace can be made here")
        if subprocess.run(["git", "-C", SCRIPT.parent, "rev-parse", "-q", "--verify", "HEAD"],
                          capture_output=True, check=False).returncode:
            self.skipTest("this is not a checkout of git")

    def run_in(self, debootstrap, command, **environment):
        program = self.place / "debootstrap"
        program.write_text(f"#!/bin/bash\n{debootstrap}\n")
        program.chmod(0o755)
        return subprocess.run([SCRIPT, "trixie", self.folder, command], capture_output=True, text=True, check=False, timeout=60,
                              env={**os.environ, "PATH": f"{self.place}:{os.environ['PATH']}", **environment})

    def test_a_command_runs_on_a_copy_of_the_tree_and_nothing_stays_mounted(self):
        said = self.run_in(SKELETON, 'pwd; ls scripts/release.sh; echo "<${MINE:-}>"; test -e /proc/self/status; exit 5', MINE="x")
        self.assertEqual((said.returncode, said.stdout), (5, "/src\nscripts/release.sh\n<>\n"), said.stderr)
        self.assertNotIn(str(self.place), Path("/proc/mounts").read_text())
        self.assertEqual(list((self.folder / "proc").iterdir()), [])

    @unittest.skipUnless(shutil.which("pivot_root", path=f"{os.environ['PATH']}:/usr/sbin:/sbin"), "'pivot_root' is not installed")
    def test_user_namespaces_are_made_as_outside(self):
        command = ["unshare", "--user", "true"]
        outside = subprocess.run(command, capture_output=True, check=False).returncode
        said = self.run_in(SKELETON, f"{' '.join(command)}; echo $?; readlink /proc/self/root")
        self.assertEqual(said.stdout, f"{outside}\n/\n", said.stderr)

    def test_a_release_that_is_there_is_used_again(self):
        self.run_in(SKELETON, "true")
        self.assertTrue((self.folder / "made").exists())
        # Its /usr was mounted, and so is gone: the next command cannot even begin, but no release is made.
        said = self.run_in("echo again >&2; exit 1", "true")
        self.assertNotIn("debootstrap could not", said.stdout)

    def test_a_release_that_cannot_be_made_is_said(self):
        said = self.run_in("echo 'E: Failed getting release file'; exit 1", "true")
        self.assertEqual(said.returncode, 77)
        self.assertRegex(said.stdout, r"skipped: .*'trixie' \(status 1\): E: Failed getting release file\n")
        self.assertFalse((self.folder / "made").exists())

    def test_a_debootstrap_that_hangs_is_ended(self):
        said = self.run_in("exec sleep 1000", "true", RELEASE_SECONDS="1")
        self.assertEqual(said.returncode, 77)
        self.assertIn("(status 124)", said.stdout)


class Table(unittest.TestCase):
    def test_a_run_replaces_its_own_row_alone(self):
        with tempfile.TemporaryDirectory() as place:
            file = Path(place) / "platforms.md"
            file.write_text(f"before\n{platforms.BEGIN}\n{platforms.END}\nafter\n")
            run = {**platforms.versions(SCRIPT.parent), "parts": ["basic"], "passed": 3, "failed": [], "skipped": ["a: b"]}
            platforms.update(file, {**run, "system": "Debian 12.9"})
            platforms.update(file, {**run, "system": "Debian 13.1", "passed": 7})
            platforms.update(file, {**run, "system": "Debian 13.1", "failed": ["x"]})
            rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in file.read_text().splitlines() if "|" in line]
            self.assertEqual(rows[0], platforms.COLUMNS)
            self.assertEqual([(row[0], row[-4:-1]) for row in rows[2:]],
                             [("Debian 12.9", ["3", "0", "1"]), ("Debian 13.1", ["3", "1", "1"])])
            self.assertRegex(file.read_text(), r"(?s)^before\n.*\nafter\n$")


if __name__ == "__main__":
    unittest.main(verbosity=2)
