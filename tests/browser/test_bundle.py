# SPDX-License-Identifier: BSD-2-Clause
"""The committed bundles are what their sources make, and the sources are sound TypeScript."""

import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import harness

WEB = harness.TREE / "web"
ESBUILD = "0.17."  # what made the committed bundles: each version writes somewhat other text


def version_of(program):
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]


class Bundle(unittest.TestCase):
    def test_the_committed_bundles_are_what_their_sources_make(self):
        if not shutil.which("esbuild"):
            self.skipTest("esbuild is not installed")
        version = version_of("esbuild")
        if not version.startswith(ESBUILD):
            self.skipTest(f"esbuild {ESBUILD}* made the bundles, and here is {version}")
        with tempfile.TemporaryDirectory(prefix="heapline-bundle-") as folder:
            subprocess.run([sys.executable, WEB / "build.py", folder], check=True)
            for name in ("report.html", "flame.js"):
                self.assertTrue((Path(folder) / name).read_bytes() == (WEB / "dist" / name).read_bytes(),
                                f"web/build.py web/dist makes another {name}")

    def test_the_sources_are_strict_typescript(self):
        if not shutil.which("tsc"):
            self.skipTest("node-typescript is not installed")
        # The way of finding modules that TypeScript 4 to 6 have in common is one that 6 warns of.
        options = ["--ignoreDeprecations", "6.0"] if int(version_of("tsc").split(".")[0]) >= 6 else []
        said = subprocess.run(["tsc", "--noEmit", "-p", WEB, *options], capture_output=True, text=True)
        self.assertEqual(said.stdout + said.stderr, "")


if __name__ == "__main__":
    harness.main()
