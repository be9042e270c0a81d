# SPDX-License-Identifier: BSD-2-Clause
"""The committed page is what its sources make, and the sources are sound TypeScript."""

import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import harness

WEB = harness.TREE / "web"


class Bundle(unittest.TestCase):
    def test_the_committed_page_is_what_its_sources_make(self):
        if not shutil.which("esbuild"):
            self.skipTest("esbuild is not installed")
        with tempfile.NamedTemporaryFile(suffix=".html") as made:
            subprocess.run([sys.executable, WEB / "build.py", made.name], check=True)
            self.assertTrue(Path(made.name).read_bytes() == (WEB / "dist/report.html").read_bytes(),
                            "web/build.py web/dist/report.html makes another page")

    def test_the_sources_are_strict_typescript(self):
        if not shutil.which("tsc"):
            self.skipTest("node-typescript is not installed")
        said = subprocess.run(["tsc", "--noEmit", "-p", WEB], capture_output=True, text=True)
        self.assertEqual(said.stdout + said.stderr, "")


if __name__ == "__main__":
    harness.main()
