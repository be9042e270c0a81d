# SPDX-License-Identifier: BSD-2-Clause
"""Runs programs plain and recorded, and reads recordings through heapline's own reports.

Every test script ends with `harness.main()`. Meson sets HL_BUILD (the build directory) and
HL_PROGRAMS (where the recorded test programs were built).
"""

import contextlib
import ctypes
import fnmatch
import functools
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import unittest
from typing import NamedTuple

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import schemas  # pylint: disable=wrong-import-position

BUILD = os.environ.get("HL_BUILD", os.path.join(os.path.dirname(__file__), "../../build"))
PROGRAMS = os.environ.get("HL_PROGRAMS", os.path.join(BUILD, "tests/e2e"))
SOURCES = os.path.dirname(os.path.abspath(__file__))
HEAPLINE = os.path.abspath(os.path.join(BUILD, "heapline"))
RECORDING_MODES = ("mem-record", "mem-fast", "log-record", "log-fast")
TIMEOUT_S = 600  # ends a hang; on a busy machine nothing here takes a tenth of it
TEST_TIMEOUT_S = 900  # ends a test that hangs, whatever it waits for
CLEANUP_TIMEOUT_S = 30  # between further alarms, while it cleans up
STRANGERS_WAIT_S = 60  # no test stops a collector for as long
SKIPPED_STATUS = 77  # meson's
AARCH64 = 183  # EM_AARCH64

# Meson sets it; it would have the allocator write to every byte of gigabytes that programs ask for.
os.environ.pop("MALLOC_PERTURB_", None)

# Recalled stacks are compared with walked ones in all that is recorded.
os.environ.setdefault("HEAPLINE_CHECK_RECALL", "16")

# Who runs tests by nohup ignores it, and so would every program here.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Names that tests look up are kept for the length of one script: they come from the files as they
# are, and not from what another version of heapline made of them.
os.environ.pop("HEAPLINE_SYMBOL_CACHE", None)
_cache = tempfile.TemporaryDirectory(prefix="heapline-cache-")
os.environ["XDG_CACHE_HOME"] = _cache.name


class Run(NamedTuple):
    """How one program ended and what it wrote."""

    status: int
    stdout: str
    stderr: str


def machine():
    """The number of the machine that heapline was built for, as ELF has it."""
    with open(HEAPLINE, "rb") as file:
        return struct.unpack_from("<H", file.read(20), 18)[0]


def program(name):
    """Path of a built test program; skips the test when it was not built."""
    path = os.path.abspath(os.path.join(PROGRAMS, name))
    if not os.path.exists(path):
        raise unittest.SkipTest(f"program '{name}' was not built on this machine")
    return path


def need(command):
    """Path of a program of the system; skips the test when there is none."""
    path = shutil.which(command)
    if not path:
        raise unittest.SkipTest(f"'{command}' is not installed")
    return path


def need_root():
    if os.geteuid() != 0:
        raise unittest.SkipTest("needs root")


def need_other_user(uid):
    """Skips unless we may become this user, and it may run heapline."""
    need_root()
    try:
        status = run([HEAPLINE, "version"], user=uid, group=uid, extra_groups=[]).status
    except OSError:
        raise unittest.SkipTest(f"this namespace has no user {uid}") from None
    if status != 0:
        raise unittest.SkipTest(f"user {uid} may not run '{HEAPLINE}'")


def run(command, env=None, timeout=TIMEOUT_S, **options):
    """Runs a command to its end, alone in a process group that does not outlive a timeout."""
    environment = dict(os.environ, **(env or {}))
    options.setdefault("stdin", subprocess.DEVNULL)
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    with subprocess.Popen(command, env=environment, text=True, start_new_session=True,
                          **options) as process:
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            stdout, stderr = process.communicate()
            raise AssertionError(f"hangs: {command}\n{stdout}\n{stderr}") from None
    schemas.check_text(stdout or "")
    return Run(process.returncode, stdout or "", stderr or "")


def record_command(recording, command, mode="mem-fast", options=()):
    """What records a command, instead of an older recording."""
    return [HEAPLINE, "record", "-f", "--mode", mode, *options, "-o", recording, "--", *command]


def files_of(directory):
    """What each file below it holds."""
    contents = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                contents[os.path.relpath(path, directory)] = file.read()
    return contents


def wait_until(condition, what, timeout=300.0):
    """Waits for a condition that another process brings about; its value once it is true."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:.0f} s in vain for {what}")
        time.sleep(0.002)
    return value


def listens(path):
    """Whether a server listens at the socket: the file is there before that."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(path) == 0


class Waiting:
    """A program that says "ready" and then waits for the end of its input."""

    def __init__(self, command, env=None, **options):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=dict(os.environ, **(env or {})), **options)
        if not any(line.strip() == "ready" for line in self.process.stdout):
            raise AssertionError(f"'{command[0]}' ended before it was ready")
        wait_until(lambda: process_state(self.process.pid) == "S", f"'{command[0]}' to wait")

    def __enter__(self):
        return self.process

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.wait(TIMEOUT_S)
        self.process.stdout.close()


@contextlib.contextmanager
def waiting_calls(case, *seccomp):
    """The pid of a process with a thread in each call that a stop may interrupt; no call returns."""
    with subprocess.Popen([program("waiting_calls"), *seccomp], stdin=subprocess.PIPE, text=True,
                          stdout=subprocess.PIPE) as waits:
        case.assertEqual(waits.stdout.readline(), "ready\n")
        tasks = [int(task) for task in os.listdir(f"/proc/{waits.pid}/task")]
        case.assertGreater(len(tasks), 5)
        if "brief" not in seccomp:
            wait_until(lambda: {process_state(task) for task in tasks} == {"S"}, "the threads to wait")
        yield waits.pid
        said, _ = waits.communicate(timeout=TIMEOUT_S)
    case.assertEqual((waits.returncode, said), (0, ""))


def symbol_address(path, function):
    """Of the file, where its code lies at offsets that are its addresses."""
    for option in ("--defined-only", "-D"):
        symbols = run([need("nm"), option, path]).stdout
        if found := re.search(rf"^([0-9a-f]+) [tTwWi] {function}(?:@.*)?$", symbols, re.M):
            return int(found[1], 16)
    raise AssertionError(f"'{path}' has no function '{function}'")


def set_probe(test, pid, path, offset, returns=False):
    """A uprobe or uretprobe in a process, as another tool would set it, until what is returned is closed."""
    source = "/sys/bus/event_source/devices/uprobe"
    if not os.path.exists(source):
        test.skipTest("this kernel has no uprobes")
    with open(f"{source}/type", encoding="ascii") as file:
        kind = int(file.read())
    name = ctypes.create_string_buffer(path.encode())
    # struct perf_event_attr: type, size, config (bit 0: return), ..., config1, config2
    attributes = struct.pack("<IIQ", kind, 112, returns) + bytes(40)
    attributes += struct.pack("<QQ", ctypes.addressof(name), offset) + bytes(40)
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(298, attributes, pid, -1, -1, 0)  # perf_event_open
    if fd < 0:
        test.skipTest(f"no probe can be set: {os.strerror(ctypes.get_errno())}")
    return os.fdopen(fd, "rb", buffering=0)


def rss_of(pid, part="Rss:"):
    """Rss as the kernel counts it; "Anonymous:" leaves out files, whose pages come unasked."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(part))


def process_state(pid):
    """A letter, as in /proc/PID/stat."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
        return stat.read().rpartition(")")[2].split()[0]


def report(verb, recording, *options):
    """One report as the object that --json prints."""
    result = run([HEAPLINE, verb, "--json", *options, recording])
    if result.status != 0:
        raise AssertionError(f"'{verb} {' '.join(options)}' fails: {result.stderr}")
    return json.loads(result.stdout)


def info(recording, sequence=None):
    """Meta data and totals, of one process if asked for, which has its number in order of birth."""
    selection = [] if sequence is None else ["--process", f"/{sequence}"]
    return report("info", recording, *selection)


def processes(recording):
    """What `info` says of each process, in order of their birth."""
    return sorted(info(recording)["rows"], key=lambda row: row["sequence"])


FIGURES = ("flat_bytes", "flat_objects", "cum_bytes", "cum_objects")


def top_rows(recording, value, sequence=None, options=()):
    """{function name: row} of `top`, with plumbing; functions of one name are added up, absent
    figures are 0."""
    selection = [] if sequence is None else ["--process", f"/{sequence}"]
    rows = {}
    for row in report("top", recording, "--plumbing", "--value", value, "--rows", "0",
                      *selection, *options)["rows"]:
        sums = rows.setdefault(row["name"], dict.fromkeys(FIGURES, 0))
        for key in FIGURES:
            sums[key] += row.get(key, 0)
    return rows


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


def folded(recording, value, unit, *options):
    """{tuple of function names, outermost first: number} of `folded`."""
    result = run([HEAPLINE, "folded", "--value", value, "--unit", unit, *options, recording])
    if result.status != 0:
        raise AssertionError(f"'folded' fails: {result.stderr}")
    return parse_folded(result.stdout)


def parse_folded(text):
    stacks = {}
    for line in text.splitlines():
        frames, _, number = line.rpartition(" ")
        key = tuple(frames.split(";"))
        stacks[key] = stacks.get(key, 0) + int(number)
    return stacks


def deviation_of_samples(what, size):
    """By how much an estimate of bytes may differ: five standard deviations, as each sample stands for the mean
    distance of samples. `what`: info()."""
    mean = what["recording"]["sample_bytes"]
    return 5 * (mean * (size + mean)) ** 0.5


def under(stacks, function):
    """The sum over the stacks on which a function stands."""
    return sum(number for frames, number in stacks.items() if function in frames)


class TestCase(unittest.TestCase):
    """A directory of its own for each test, and the question that most tests ask."""

    maxDiff = None
    longMessage = True

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="heapline-e2e-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.directory, name)

    def record(self, command, mode="mem-fast", options=(), name="test.hl", **run_options):
        """Records a command; its Run and the path of the recording."""
        recording = self.path(name)
        result = run(record_command(recording, command, mode, options), **run_options)
        return result, recording

    def record_well(self, command, mode="mem-fast", options=(), name="test.hl", **run_options):
        """Records a command that must end with status 0."""
        result, recording = self.record(command, mode, options, name, **run_options)
        self.assertEqual(result.status, 0, result.stderr + result.stdout)
        return result, recording

    def assert_refused(self, result, *parts):
        """heapline failed with a single line of its own that holds all parts."""
        self.assertEqual(result.status, 1, result.stdout + result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        for part in parts:
            self.assertIn(part, result.stderr)

    def ask_undisturbed(self, ask, *arguments, **options):
        """What ask(...) answers once no collector is stopped that has nothing to do with the test:
        heapline cannot know what such a one records."""
        def answer():
            result = ask(*arguments, **options)
            return None if "a collector that does not answer" in result.stderr else result

        try:
            return wait_until(answer, "a stopped collector", STRANGERS_WAIT_S)
        except AssertionError:
            return self.skipTest("a collector that has nothing to do with the test is stopped")

    def assert_nothing_lost(self, recording):
        lost = dict(info(recording)["lost"])
        lost.pop("unmatched_frees", None)
        lost.pop("inherited_frees", None)
        self.assertFalse(any(lost.values()), f"lost: {lost}")


def _skip_what_is_not_here():
    """Skips tests that HL_NOT_HERE names: {SCRIPT/CLASS.TEST, as a shell would match it: reason}."""
    script = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    for pattern, reason in json.loads(os.environ.get("HL_NOT_HERE", "{}")).items():
        for case in vars(sys.modules["__main__"]).values():
            for name in unittest.defaultTestLoader.getTestCaseNames(case) if isinstance(case, type) else ():
                if fnmatch.fnmatchcase(f"{script}/{case.__name__}.{name}", pattern):
                    setattr(case, name, unittest.skip(reason)(getattr(case, name)))


def _end_what_is_left():
    """Kills what tests have left behind: it may hold the output, whose end meson waits for."""
    mark = f"XDG_CACHE_HOME={_cache.name}".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/environ", "rb") as file:
                if int(pid) != os.getpid() and mark in file.read().split(b"\0"):
                    with open(f"/proc/{pid}/cmdline", "rb") as words:
                        print(f"left behind: {pid} {words.read()[:200]}", file=sys.stderr)
                    os.kill(int(pid), signal.SIGKILL)


def _show_where_it_hangs(main_pid, signal_, frame):
    """meson's limit is over: it would else only say so."""
    if os.getpid() != main_pid:
        signal.signal(signal_, signal.SIG_DFL)
        os.kill(os.getpid(), signal_)
    traceback.print_stack(frame)
    _end_what_is_left()
    os._exit(1)


class Hang(BaseException):
    """No test expects it."""


class _SentenceResult(unittest.TextTestResult):
    def startTest(self, test):
        """A test that hangs fails, and its traceback shows where."""
        def fail(*_):
            raise Hang(test.id())

        super().startTest(test)
        signal.signal(signal.SIGALRM, fail)
        signal.setitimer(signal.ITIMER_REAL, TEST_TIMEOUT_S, CLEANUP_TIMEOUT_S)

    def stopTest(self, test):
        signal.setitimer(signal.ITIMER_REAL, 0)
        super().stopTest(test)

    def getDescription(self, test):
        sentence, _, rest = str(test).partition(" ")
        _, _, parameters = rest.partition(") ")
        return f"{sentence.removeprefix('test_').replace('_', ' ')} {parameters}".rstrip()


def main():
    """Runs the tests of the calling script; exits with 77 when all of them were skipped."""
    if not os.path.exists(HEAPLINE):
        print(f"skipped: '{HEAPLINE}' was not built")
        sys.exit(SKIPPED_STATUS)
    _skip_what_is_not_here()
    signal.signal(signal.SIGTERM, functools.partial(_show_where_it_hangs, os.getpid()))
    runner = unittest.TextTestRunner(verbosity=2, resultclass=_SentenceResult)
    program_ = unittest.main(module="__main__", exit=False, testRunner=runner)
    _end_what_is_left()
    result = program_.result
    if not result.wasSuccessful():
        sys.exit(1)
    # A class that is skipped as a whole is one entry, and none of its tests has run.
    skipped = sum(isinstance(test, unittest.TestCase) for test, _ in result.skipped)
    if result.skipped and skipped == result.testsRun:
        print("skipped: " + "; ".join(sorted({reason for _, reason in result.skipped})))
        sys.exit(SKIPPED_STATUS)
    sys.exit(0)
