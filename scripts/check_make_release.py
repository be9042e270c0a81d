#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""make_release.py in clones of this checkout: what it writes, that it is the same twice, and what it refuses."""

import hashlib
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import make_release

TREE = Path(__file__).resolve().parent.parent
URL = "https://example.org/heapline"
WHEN = {"SOURCE_DATE_EPOCH": "1800000000", "GIT_AUTHOR_NAME": "T", "GIT_AUTHOR_EMAIL": "t@example.org",
        "GIT_COMMITTER_NAME": "T", "GIT_COMMITTER_EMAIL": "t@example.org"}


@unittest.skipUnless(shutil.which("reuse"), "'reuse' is not installed")
class MakeRelease(unittest.TestCase):
    def setUp(self):
        if subprocess.run(["git", "-C", TREE, "rev-parse", "-q", "--verify", "HEAD"], capture_output=True, check=False).returncode:
            self.skipTest("this is not a checkout of git")
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = Path(place.name)

    def clone(self, name):
        subprocess.run(["git", "clone", "-q", "--shared", TREE, self.place / name], check=True)
        return self.place / name

    def release(self, tree, version="9.8.7", url=URL):
        return subprocess.run([TREE / "scripts/make_release.py", version, url, tree.with_suffix(".out")], text=True, check=False,
                              capture_output=True, timeout=60, env={**os.environ, **WHEN, "HL_TREE": str(tree)})

    def git(self, tree, *words):
        return subprocess.run(["git", "-C", tree, *words], check=True, capture_output=True, text=True).stdout

    def test_a_release_has_its_version_in_each_place_and_is_the_same_twice(self):
        tree = self.clone("tree")
        said = self.release(tree)
        self.assertEqual((said.returncode, said.stderr), (0, ""))
        self.assertIn("git tag -s v9.8.7", said.stdout)
        self.assertEqual(self.git(tree, "status", "--porcelain"), "")
        folder = tree.with_suffix(".out")
        tarball = folder / "heapline-9.8.7.tar.xz"
        self.git(tree, "clone", "-q", ".", self.place / "again")
        make_release.TREE = self.place / "again"
        make_release.write_tarball("9.8.7", self.place / tarball.name)
        self.assertEqual((self.place / tarball.name).read_bytes(), tarball.read_bytes())
        self.assertEqual((folder / "heapline-9.8.7.tar.xz.sha256").read_text(),
                         f"{hashlib.sha256(tarball.read_bytes()).hexdigest()}  heapline-9.8.7.tar.xz\n")
        subprocess.run(["tar", "-xf", tarball, "-C", self.place], check=True)
        made = self.place / "heapline-9.8.7"
        self.assertIn("  version: '9.8.7',\n", (made / "meson.build").read_text())
        self.assertIn("## Unreleased\n\n## 9.8.7, 2027-01-15\n\n###", (made / "CHANGELOG.md").read_text())
        self.assertTrue((made / "debian/changelog").read_text().startswith("heapline (9.8.7) unstable;"))
        self.assertIn(f"git clone {URL} heapline", (made / "README.md").read_text())
        self.assertIn('\nversion: 9.8.7\nappVersion: "9.8.7"\n', (made / "deploy/helm/heapline/Chart.yaml").read_text())
        for name in ("debian/watch", "debian/upstream/metadata"):
            self.assertIn(URL, (made / name).read_text())
        bill = (folder / "heapline-9.8.7.spdx").read_text()
        self.assertTrue(bill.startswith("SPDXVersion: SPDX-2.1\n"))
        self.assertIn("FileName: ./src/cli/main.c\n", bill)

    def test_what_cannot_be_released_is_refused_and_left_as_it_was(self):
        tree = self.clone("tree")
        head = self.git(tree, "rev-parse", "HEAD")
        for version, url, why in (("0.0.1", URL, "is not newer than"), ("1.0", URL, "which has three numbers"),
                                  ("9.8.7", "URL", "is not the project's address"), ("9.8.7", "https://example.org/x y", "is not the project's address")):
            said = self.release(tree, version, url)
            self.assertNotEqual(said.returncode, 0)
            self.assertIn("make_release.py: no release was made: ", said.stderr)
            self.assertIn(why, said.stderr)
        (tree / "new.txt").write_text("a file that nobody committed\n")
        self.assertIn("commit or stash them", self.release(tree).stderr)
        (tree / "new.txt").unlink()
        self.git(tree, "tag", "v9.8.7")
        self.assertIn("the tag v9.8.7 exists already", self.release(tree).stderr)
        self.git(tree, "tag", "-d", "v9.8.7")
        self.assertEqual((self.git(tree, "rev-parse", "HEAD"), self.git(tree, "status", "--porcelain")), (head, ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
