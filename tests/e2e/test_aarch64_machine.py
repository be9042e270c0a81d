# SPDX-License-Identifier: BSD-2-Clause
"""Debian's arm64 kernel, booted under qemu: what heapline of that machine says there, of programs whose answers are known.

scripts/check_arm64.sh runs it; HL_ARM64_ROOT is the folder with the libraries of that machine. What runs there is
aarch64_guest.sh, and test_kernels.py has what both machines share. ``--boot`` shows what the guest wrote.
"""

import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest

import harness
import test_kernels
from test_aarch64 import AARCH64

SUITE = "bookworm"
ROOT = os.environ.get("HL_ARM64_ROOT", "/")
PROGRAMS = ("known_answer",)
LIBRARIES = ("lib/aarch64-linux-gnu", "usr/lib/aarch64-linux-gnu")
BOOT_S = 600


def libraries(path):
    """{path in the machine: path here} of what a program is linked with, the loader included."""
    said = subprocess.run(["readelf", "-ld", path], capture_output=True, text=True, check=True).stdout
    found = {}
    for name in re.findall(r"\(NEEDED\).*\[(\S+)\]", said):
        for folder in LIBRARIES:
            if name not in found and os.path.exists(library := os.path.join(ROOT, folder, name)):
                found[name] = library
    return {f"usr/lib/aarch64-linux-gnu/{name}": library for name, library in found.items()} | \
        {loader.lstrip("/"): os.path.join(ROOT, loader.lstrip("/")) for loader in re.findall(r"interpreter: (\S+)\]", said)}


def guest_files(folder):
    """Files of the machine, by their paths there."""
    files = {"bin/busybox": f"{folder}/busybox", "hl/heapline": harness.HEAPLINE,
             "hl/src/recorder/libheapline.so.0": os.path.join(harness.BUILD, "src/recorder/libheapline.so.0"),
             "init": os.path.join(harness.SOURCES, "aarch64_guest.sh"),
             "hl/guest.sh": os.path.join(harness.SOURCES, "guest.sh"),
             **{f"hl/{name}": harness.program(name) for name in PROGRAMS}}
    looked_at = set()
    while left := set(files) - looked_at:
        for path in left - {"init", "hl/guest.sh", "bin/busybox"}:
            files |= libraries(files[path])
        looked_at |= left
    return files


def boot():
    """What the guest wrote; skips the test where it cannot be booted."""
    qemu = harness.need("qemu-system-aarch64")
    for tool in "apt-get", "readelf":
        harness.need(tool)
    folder = test_kernels.download(SUITE, "arm64")
    with tempfile.TemporaryDirectory(prefix="heapline-arm64-") as directory:
        with open(f"{directory}/initrd", "wb") as output:
            test_kernels.archive(guest_files(folder), output)
        command = [qemu, "-machine", "virt", "-cpu", "max,pauth-impdef=on", "-m", "1024", "-smp", "2", "-display", "none", "-no-reboot",
                   "-nodefaults", "-serial", f"file:{directory}/said", "-kernel", f"{folder}/vmlinuz", "-initrd", f"{directory}/initrd",
                   "-append", "console=ttyAMA0 loglevel=1 panic=-1"]
        try:
            subprocess.run(command, timeout=BOOT_S, check=False, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            pass
        with open(f"{directory}/said", encoding="utf-8", errors="replace") as file:
            said = file.read().replace("\r", "")
    if "@@@end\n" not in said:
        raise AssertionError(f"the machine did not end in {BOOT_S} s: {said[-2500:]}")
    return said


class Aarch64Machine(test_kernels.Machine, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with open(harness.HEAPLINE, "rb") as file:
            if struct.unpack_from("<H", file.read(20), 18)[0] != AARCH64:
                raise unittest.SkipTest("heapline is of another machine; scripts/check_arm64.sh has one of aarch64")
        cls.said = test_kernels.parse(boot())

    def test_a_recorded_program_counts_exactly(self):
        status, output, errors = self.said["record"]
        self.assertEqual(status, 0, errors)
        compared = 0
        for answer in json.loads(output):
            rows = {row["name"]: row for row in self.report("top")["rows"]}
            for unit in "bytes", "objects":
                if answer.get(f"alloc_{unit}", -1) >= 0:
                    self.assertEqual(rows.get(answer["function"], {}).get(f"cum_{unit}", 0), answer[f"alloc_{unit}"], answer)
                    compared += 1
        self.assertGreater(compared, 10)


if __name__ == "__main__":
    if sys.argv[1:] == ["--boot"]:
        print(boot())
    else:
        harness.main()
