# SPDX-License-Identifier: BSD-2-Clause
"""Programs that forbid themselves system calls while they are recorded: they live, and what they allocate is counted or said to be
lost."""

import signal
import subprocess
import sys

import attaching
import harness

PLANTED = {"before": 1000, "after": 40000, "deep": 301, "by_thread": 4000}
WAYS = ("prctl", "syscall", "tsync", "syscall-prctl")
FILTERS = [(way, action, what) for way in WAYS for action in ("kill", "trap", "errno") for what in ("memory", "most")]
STRICT = [(way, "kill", "strict") for way in ("prctl", "thread", "syscall", "syscall-prctl")]
WARNING = "has forbidden itself system calls that the recorder needs"
# On pain of death: sendto, connect, socket
EXECUTES = """
import ctypes, os, struct, subprocess
libc = ctypes.CDLL(None, use_errno=True)
code = struct.pack("HBBI", 0x20, 0, 0, 0)
for number in 44, 42, 41:
    code += struct.pack("HBBI", 0x15, 0, 1, number) + struct.pack("HBBI", 6, 0, 0, 0x80000000)
code = ctypes.create_string_buffer(code + struct.pack("HBBI", 6, 0, 0, 0x7fff0000))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 7 + 1, ctypes.addressof(code)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
assert subprocess.run(["/bin/echo", "spawned"]).returncode == 0
assert os.system("/bin/echo system") == 0
os.execv("/bin/echo", ["echo", "executed"])
"""
# A filter by libseccomp that kills for mprotect, madvise and socket.
BY_LIBRARY = """
import ctypes
library = ctypes.CDLL("libseccomp.so.2")
library.seccomp_init.restype = ctypes.c_void_p
context = ctypes.c_void_p(library.seccomp_init(0x7fff0000))
for number in 10, 28, 41:
    assert library.seccomp_rule_add(context, 0x80000000, number, 0) == 0
assert library.seccomp_load(context) == 0
kept = [bytearray(1000 + number) for number in range(10000)]
"""
# Forbids itself madvise, all of its memory being locked; prints by how many KiB it grew.
LOCKED = """
import ctypes, struct
def resident():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
libc = ctypes.CDLL(None)
assert libc.mlockall(3) == 0
code = ctypes.create_string_buffer(struct.pack("HBBI" * 4, 0x20, 0, 0, 0, 0x15, 0, 1, 28, 6, 0, 0, 0x50001, 6, 0, 0, 0x7fff0000))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 4, ctypes.addressof(code)))
before = resident()
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
print(resident() - before)
"""


class Filters(attaching.TestCase):
    def test_little_is_brought_in_for_a_filter_where_memory_is_locked(self):
        harness.need_root()  # to lock as much
        for mode in "mem-fast", "log-fast":
            command = harness.record_command(self.path(f"{mode}.hl"), ["/usr/bin/python3", "-c", LOCKED], mode)
            result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=harness.TIMEOUT_S)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertLess(int(result.stdout), 64 << 10)

    def test_a_recorded_program_lives_and_all_is_counted(self):
        for mode in "mem-fast", "log-record":
            for words in FILTERS + STRICT:
                with self.subTest(mode=mode, words=words):
                    result = self.record(mode, *words)
                    self.assertEqual(result.returncode, 0, result.stderr)
                    self.assert_counted(words)

    def test_a_joined_process_lives_and_all_is_counted(self):
        for mode in "mem-fast", "log-fast":
            for words in FILTERS + STRICT:
                with self.subTest(mode=mode, words=words), self.target(*words) as target:
                    with self.attached(target.pid, "--mode", mode):
                        self.go(target)
                    self.assert_counted(words)

    def test_a_filter_that_the_kernel_refuses_changes_nothing(self):
        result = self.record("mem-fast", "none", "kill", "memory")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assert_counted(("none", "kill", "memory"))
        self.assertNotIn("seccomp", result.stderr)

    def test_a_filter_that_nobody_could_see_is_said(self):
        if "\nSeccomp:\t0\n" not in open("/proc/self/status", encoding="utf-8").read():
            self.skipTest("these tests run under a filter themselves")
        with self.target("instruction", "errno", "memory", "wait") as target:
            with self.attached(target.pid) as attach:
                target.stdin.write("\n")
                target.stdin.flush()
                self.assertEqual(target.stdout.readline(), "installed\n")
                harness.wait_until(lambda: "has not seen come" in harness.run(
                    [harness.HEAPLINE, "info", self.recording]).stdout, "the warning")
                self.go(target)
                attach.wait(harness.TIMEOUT_S)
            self.assert_counted(("instruction", "errno", "memory"))

    def test_a_program_that_dies_of_a_filter_that_nobody_could_see_is_said_to_have(self):
        result = self.record("mem-fast", "instruction", "kill", "memory")
        self.assertEqual(result.returncode, 128 + signal.SIGSYS)
        said = harness.run([harness.HEAPLINE, "info", self.recording]).stdout
        self.assertRegex(said, r"was killed by SIGSYS: .* heapline-record\(1\)")

    def test_a_filter_by_libseccomp_is_seen(self):
        alone = subprocess.run([sys.executable, "-c", BY_LIBRARY], capture_output=True, text=True, check=False,
                               timeout=harness.TIMEOUT_S)
        if alone.returncode:
            self.skipTest(f"without heapline, too: {alone.stderr.strip().splitlines()[-1:]}")
        result = subprocess.run(harness.record_command(self.recording, [sys.executable, "-c", BY_LIBRARY]), capture_output=True,
                                text=True, check=False, timeout=harness.TIMEOUT_S)
        self.assertEqual(result.returncode, 0, result.stderr)
        said = harness.run([harness.HEAPLINE, "info", self.recording]).stdout
        self.assertIn(WARNING, said)

    def test_programs_that_it_starts_live_unrecorded(self):
        result = subprocess.run(
            harness.record_command(self.recording, [sys.executable, "-c", EXECUTES]), capture_output=True, text=True,
            check=False, timeout=harness.TIMEOUT_S)
        self.assertEqual((result.returncode, result.stdout), (0, "spawned\nsystem\nexecuted\n"), result.stderr)

    # ---- what the tests share ----

    def target(self, *words):
        target = subprocess.Popen([harness.program("filters"), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  text=True)
        self.addCleanup(target.kill)
        self.assertEqual(target.stdout.readline(), "ready\n")
        return target

    def go(self, target):
        target.stdin.write("\n")
        target.stdin.flush()
        self.assertEqual(target.wait(harness.TIMEOUT_S), 0)

    def record(self, mode, *words):
        return subprocess.run(
            harness.record_command(self.recording, [harness.program("filters"), *words], mode), input="\n",
            capture_output=True, text=True, check=False, timeout=harness.TIMEOUT_S)

    def assert_counted(self, words):
        rows = harness.top_rows(self.recording, "alloc")
        planted = dict(PLANTED, by_thread=2000) if words[2] == "strict" else PLANTED
        self.assertEqual({name: rows[name]["cum_objects"] for name in planted}, planted)
        lost = harness.info(self.recording)["lost"]
        self.assertEqual((lost["events"], lost["incomplete_stacks"]), (0, 0))
        said = harness.run([harness.HEAPLINE, "info", self.recording]).stdout
        self.assertEqual(WARNING in said, words[0] in (*WAYS, "thread"), said)
        self.assertNotIn("lacks", said)  # events of the log


if __name__ == "__main__":
    harness.main()
