# SPDX-License-Identifier: BSD-2-Clause
"""The image, laid out in a program of each libc by the program itself, which checks the counts."""

import os
import subprocess

import harness


class ImageTargets(harness.TestCase):
    def check(self, kind):
        program = harness.program(f"image_target{kind}")
        if not os.path.exists(program):
            self.skipTest(f"{os.path.basename(program)} cannot be built here")
        result = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_glibc(self):
        self.check("")

    def test_glibc_static(self):
        self.check("_static")

    def test_glibc_static_pie(self):
        self.check("_static_pie")

    def test_musl(self):
        self.check("_musl")

    def test_musl_static(self):
        self.check("_musl_static")


if __name__ == "__main__":
    harness.main()
