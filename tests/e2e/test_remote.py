# SPDX-License-Identifier: BSD-2-Clause
"""Processes of every kind make system calls for heapline, and are as before."""

import os
import shutil
import signal
import subprocess
import time

import harness

CALLS = "mapped 1 unmapped 0 gone 1 refused -9"
KINDS = ("waits", "waits_static", "waits_static_stripped", "waits_musl", "waits_musl_static",
         "waits_jemalloc")


def tool(pid, *arguments, **options):
    return harness.run([harness.program("remote_tool"), str(pid), *arguments], **options)


def residue(pid):
    """What heapline might leave behind in a process that waits."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        mapped = [line for line in maps if "[heap]" not in line]
    tasks = sorted(os.listdir(f"/proc/{pid}/task"))
    policies = [os.sched_getscheduler(int(tid)) for tid in tasks]
    return mapped, sorted(os.listdir(f"/proc/{pid}/fd")), tasks, policies


def text_of(pid):
    """All code of a process."""
    text = b""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, \
            open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            addresses, flags = line.split()[:2]
            start, end = (int(part, 16) for part in addresses.split("-"))
            if flags == "r-xp" and "[" not in line:
                memory.seek(start)
                text += memory.read(end - start)
    return text


class Remote(harness.TestCase):
    def start(self, command, **options):
        process = subprocess.Popen(command, **options)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def start_sleep(self, **options):
        process = self.start(["sleep", "600"], **options)
        harness.wait_until(lambda: harness.process_state(process.pid) == "S", "sleep to sleep")
        return process

    def check_calls(self, pid, **options):
        result = tool(pid, "calls", **options)
        self.assertEqual((result.status, result.stdout), (0, f"pid {pid} {CALLS}\n"), result.stderr)

    def refusal(self, pid, *arguments, **options):
        result = tool(pid, *(arguments or ["calls"]), **options)
        self.assertEqual(result.status, 1)
        return result.stderr.splitlines()[0]

    def test_programs_of_every_kind_make_calls(self):
        for kind in KINDS:
            if not os.path.exists(os.path.join(harness.PROGRAMS, kind)):
                continue
            with self.subTest(kind), harness.Waiting([harness.program(kind), "still"]) as process:
                before = residue(process.pid), text_of(process.pid)
                self.check_calls(process.pid)
                stops = tool(process.pid, "stops", "50")
                self.assertEqual((stops.status, stops.stdout), (0, "threads 1\n"), stops.stderr)
                self.assertEqual((residue(process.pid), text_of(process.pid)), before)

    def test_a_program_without_the_code_for_it_makes_calls(self):
        """That is written over its entry point, and taken away again."""
        with harness.Waiting([harness.program("bare")]) as process:
            before = residue(process.pid), text_of(process.pid)
            for _ in range(20):
                self.check_calls(process.pid)
            self.assertEqual((residue(process.pid), text_of(process.pid)), before)

    def test_python_makes_calls(self):
        code = "import threading, time\n" \
               "for _ in range(3): threading.Thread(target=time.sleep, args=(600,)).start()\n" \
               "print('ready', flush=True); time.sleep(600)"
        process = self.start([harness.need("python3"), "-c", code], stdout=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        process.stdout.readline()
        self.check_calls(process.pid)
        self.assertEqual(tool(process.pid, "stops", "50").stdout, "threads 4\n")

    def test_a_stopped_process_stays_stopped(self):
        process = self.start_sleep()
        process.send_signal(signal.SIGSTOP)
        harness.wait_until(lambda: harness.process_state(process.pid) == "T", "sleep to stop")
        for _ in range(20):
            self.check_calls(process.pid)
            tool(process.pid, "stops", "5")
            harness.wait_until(lambda: harness.process_state(process.pid) == "T", "the stop")
        time.sleep(0.05)
        self.assertEqual(harness.process_state(process.pid), "T")
        process.send_signal(signal.SIGCONT)
        harness.wait_until(lambda: harness.process_state(process.pid) == "S", "sleep to go on")

    def test_root_enters_processes_of_others(self):
        harness.need_root()
        self.check_calls(self.start_sleep(user=65534, group=65534, extra_groups=[]).pid)

    def test_others_do_not_enter_processes_of_root(self):
        harness.need_other_user(65534)
        other = {"user": 65534, "group": 65534, "extra_groups": []}
        self.assertRegex(self.refusal(self.start_sleep().pid, **other),
                         r"^EACCES: cannot enter process '\d+': .*; run as root, or with the "
                         r"capabilities CAP_SYS_PTRACE and CAP_DAC_OVERRIDE")
        self.check_calls(self.start_sleep(**other).pid, **other)

    def test_a_debugged_process_is_refused(self):
        process = self.start_sleep()
        gdb = self.start([harness.need("gdb"), "-nx", "-q", "-p", str(process.pid)],
                         stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
        self.addCleanup(gdb.stdin.close)
        harness.wait_until(lambda: harness.process_state(process.pid) == "t", "gdb to stop sleep")
        self.assertEqual(self.refusal(process.pid),
                         f"EBUSY: cannot enter process '{process.pid}': process {gdb.pid} traces "
                         "it; end that one")

    def test_what_cannot_be_entered_is_refused(self):
        with harness.Waiting([harness.program("waits_32")]) as process:
            self.assertEqual(self.refusal(process.pid), "EOPNOTSUPP: cannot enter process "
                             f"'{process.pid}': it is a 32-bit program")

    def test_a_zombie_is_refused(self):
        process = self.start([shutil.which("true")])
        harness.wait_until(lambda: harness.process_state(process.pid) == "Z", "its end")
        self.assertEqual(self.refusal(process.pid),
                         f"ESRCH: process '{process.pid}' has ended")

    def test_a_thread_of_the_kernel_is_refused(self):
        harness.need_root()
        try:
            with open("/proc/2/comm", encoding="utf-8") as comm:
                name = comm.read().strip()
        except FileNotFoundError:
            name = ""
        if name != "kthreadd":
            self.skipTest("no thread of the kernel is to be seen")
        self.assertEqual(self.refusal(2), "EOPNOTSUPP: cannot enter process '2': it is a thread "
                         "of the kernel")


if __name__ == "__main__":
    harness.main()
