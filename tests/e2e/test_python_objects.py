# SPDX-License-Identifier: BSD-2-Clause
"""Objects of Python, which its allocator cuts from arenas: each is recorded, once."""

import os
import re
import shutil
import signal
import subprocess

import attaching
import harness
from harness import RECORDING_MODES, processes, report, top_rows

SMALL = ("small_malloc", "small_calloc", "small_realloc")
KEPT = 20_011

# Blocks that grow from a small one to a large one, and shrink again; frames, generators, exceptions.
WORKLOAD = """
import gc, json, re, sys
def grow(n):
    text = b''
    array = bytearray()
    for i in range(n):
        array += b'x' * (i % 97)
        if i % 50 == 49:
            del array[7:]
    return array
def generate(n):
    for i in range(n):
        yield {str(i): (i, [i] * (i % 80))}
def fail(n):
    try:
        return 1 // 0 if not n else fail(n - 1)
    except ZeroDivisionError as error:
        raise ValueError(n) from error
kept = [*generate(2000)]
lines = json.dumps(kept)
json.loads(lines)
for depth in range(40):
    try:
        fail(depth)
    except ValueError:
        pass
grow(3000)
re.compile('(a|b)*c{3,5}' * 20)
exec('def f%d(): return [x for x in range(9)]\\n' * 50 % tuple(range(50)))
gc.collect()
"""

THREADS = """
import threading
def work():
    kept = []
    for i in range(20000):
        kept.append((i, float(i)))
        if i % 3:
            kept.pop(i % len(kept))
threads = [threading.Thread(target=work) for _ in range(5)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""

# Each child says by its status that it was not ended by a signal.
FORKS = """
import os, sys
print("ready", flush=True)
sys.stdin.readline()
children = []
for _ in range(20):
    child = os.fork()
    if not child:
        kept = [bytearray(size) for size in range(300)]
        os._exit(7)
    children.append(child)
print({os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children}, flush=True)
"""

INTERPRETERS = """
try:
    import _interpreters as interpreters
except ImportError:  # before 3.13
    import _xxsubinterpreters as interpreters
for _ in range(4):
    it = interpreters.create()
    interpreters.run_string(it, 'kept = [str(i) * 3 for i in range(5000)]; import json; json.dumps(kept)')
    interpreters.destroy(it)
"""

FORK = """
import os
kept = [float(i) for i in range(5000)]
child = os.fork()
kept += [str(i) for i in range(3000 if child else 9000)]
if child:
    os.waitpid(child, 0)
"""

GROWING = """import os
kept = [bytearray(2000) for _ in range(4000)]
os._exit(0)
"""

# Both are kept: what is let go may be given out again by lists of free objects, as whole numbers are from 3.14 on.
PLANTED = f"""
kept = []
def plant():
    for number in range(1000, 1000 + {KEPT}):
        kept.append(float(number))
        kept.append(number)
plant()
"""

# heapline comes first, and wraps the allocator at a call of malloc by a thread with the interpreter's lock.
LATE = """
import ctypes, os, sys
old = [float(i) for i in range(10000)]
print("ready", flush=True)
sys.stdin.readline()
large = [bytearray(1000 * i) for i in range(50)]
ctypes.CDLL(os.environ["LATE"])
del old[::2]
"""

STORM = """
import ctypes, sys, threading
class Allocator(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("context", "malloc", "calloc", "realloc", "free")]
def allocators():
    both = [Allocator(), Allocator()]
    for domain, it in enumerate(both, 1):
        ctypes.pythonapi.PyMem_GetAllocator(domain, ctypes.byref(it))
    return [bytes(it) for it in both]
before = allocators()
stops = False
sums = []
def work():
    rounds = 0
    while not stops:
        kept = [(float(i), str(i), bytearray(i * 3)) for i in range(400)]
        assert sum(it[0] for it in kept) == 79800
        rounds += 1
    sums.append(rounds)
threads = [threading.Thread(target=work) for _ in range(6)]
for thread in threads: thread.start()
print("ready", flush=True)
sys.stdin.readline()
stops = True
for thread in threads: thread.join()
print(allocators() == before, all(sums), flush=True)
"""


class TestCase(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.python = harness.need("/usr/bin/python3")
        self.oracle = harness.program("objects_oracle.so")

    def small(self, recording, value, sequence=None):
        # In native stacks what the allocator takes from malloc for itself has other leaves.
        rows = top_rows(recording, value, sequence, ["--stack", "native"])
        return (sum(rows[name]["flat_objects"] for name in SMALL if name in rows),
                sum(rows[name]["flat_bytes"] for name in SMALL if name in rows))

    def counted(self):
        """What the oracle has counted in each process, in order of pids."""
        counted = []
        for name in sorted(os.listdir(self.directory)):
            if name.startswith("oracle."):
                with open(self.path(name), encoding="ascii") as file:
                    counted.append({line.split()[0]: tuple(map(int, line.split()[1:]))
                                    for line in file})
                os.unlink(self.path(name))
        self.assertTrue(counted, "the oracle has seen no Python")
        return counted

    def assert_equal_counts(self, recording, counted):
        self.assertGreater(counted["allocated"][0], 20_000)
        self.assertEqual(self.small(recording, "alloc"), counted["allocated"])
        self.assertEqual(self.small(recording, "inuse"), counted["inuse"])
        self.assert_nothing_lost(recording)


class Objects(TestCase):

    def record_python(self, script, *arguments, mode="mem-fast", options=(), env=None):
        return self.record_well([self.python, *arguments, "-c", script], mode=mode, options=options,
                                env={"PYTHONHASHSEED": "0", **(env or {})})[1]

    def record_with_oracle(self, script, **options):
        """The recording, and what the oracle has counted in each process, in order of pids."""
        recording = self.record_python(script, env={"LD_PRELOAD": self.oracle,
                                                    "ORACLE": self.path("oracle")}, **options)
        return recording, self.counted()

    def assert_recorded(self, script, **options):
        recording, (counted,) = self.record_with_oracle(script, **options)
        self.assert_equal_counts(recording, counted)

    def test_where_no_malloc_is_called_what_lists_objects_is_named(self):
        """A chain of small objects, which pymalloc cuts from arenas: the recorder opens Python at a call of malloc."""
        script = ("class Node:\n  __slots__ = ('next',)\n  def __init__(self, n): self.next = n\n"
                  "import time\nhead = None\nfor i in range(200_000): head = Node(head)\nprint('ready', flush=True)\n"
                  "while True:\n  for i in range(300): head = Node(head)\n  time.sleep(0.002)")
        chain = subprocess.Popen([self.python, "-c", script], stdout=subprocess.PIPE, text=True)
        self.addCleanup(chain.stdout.close)
        self.addCleanup(chain.wait)
        self.addCleanup(chain.kill)
        chain.stdout.readline()
        result = harness.run([harness.HEAPLINE, "attach", "-p", str(chain.pid), "-d", "0.2", "-o", self.path("chain.hl")])
        named = re.search(rf"'heapline (heap -p {chain.pid} --python-types)' lists", result.stderr)
        types = harness.run([harness.HEAPLINE, *named[1].split()]).stdout if named else ""
        if not named and "not one call of malloc" not in result.stderr:
            self.skipTest("it has called malloc meanwhile")
        self.assertRegex(types, r"\bNode\b", result.stderr)

    def test_each_object_is_recorded_once_in_every_mode(self):
        for mode in RECORDING_MODES:
            with self.subTest(mode=mode):
                self.assert_recorded(WORKLOAD, mode=mode)

    def test_objects_have_size_classes(self):
        self.assert_recorded(WORKLOAD, options=["--sizes"])

    def test_objects_of_threads_are_recorded(self):
        self.assert_recorded(THREADS)

    def test_objects_of_other_interpreters_of_the_process_are_recorded(self):
        self.assert_recorded(INTERPRETERS, options=["--no-scripts"])

    def test_a_forked_child_records_its_own_objects(self):
        recording, counted = self.record_with_oracle(FORK)
        rows = [row["sequence"] for row in processes(recording)
                if self.small(recording, "alloc", row["sequence"])[0]]
        self.assertEqual(len(rows), 2)
        self.assertCountEqual([self.small(recording, "alloc", row) for row in rows],
                              [each["allocated"] for each in counted])

    def test_samples_of_objects_stand_for_all(self):
        recording, (counted,) = self.record_with_oracle(WORKLOAD, options=["--sample", "512"])
        blocks, size = self.small(recording, "alloc")
        # Several thousand samples: five standard deviations are less than a tenth.
        self.assertAlmostEqual(size / counted["allocated"][1], 1, delta=0.1)
        self.assertAlmostEqual(blocks / counted["allocated"][0], 1, delta=0.1)

    def planted(self, recording):
        return report("info", recording)["total"]["alloc_objects"]

    def test_objects_are_recorded_whatever_the_environment_says_of_the_allocator(self):
        for options, env in (((), {"PYTHONMALLOC": "pymalloc"}), ((), {"PYTHONMALLOC": "debug"}),
                             (("-X", "dev"), {}), ((), {"PYTHONMALLOC": "malloc"})):
            with self.subTest(options=options, env=env):
                with_objects = self.planted(self.record_python(PLANTED, *options, env=env))
                without = self.planted(self.record_python("", *options, env=env))
                self.assertAlmostEqual(with_objects - without, 2 * KEPT, delta=KEPT / 10)

    def test_where_all_objects_are_of_malloc_none_counts_twice(self):
        env = {"PYTHONMALLOC": "malloc"}
        counts = [self.planted(self.record_python(WORKLOAD, env=env, options=options))
                  for options in ((), ["--no-objects"])]
        self.assertEqual(*counts)

    def test_arenas_do_not_count_beside_their_objects(self):
        mapped = [sum(row["flat_bytes"] for name, row in
                      top_rows(self.record_python(PLANTED, options=options), "alloc").items()
                      if name == "[mmap]")
                  for options in (["--mappings"], ["--mappings", "--no-objects"])]
        self.assertGreaterEqual(mapped[1] - mapped[0], KEPT * 48)

    def test_objects_can_be_left_out(self):
        recording, _ = self.record_with_oracle(WORKLOAD, options=["--no-objects"])
        self.assertEqual(self.small(recording, "alloc"), (0, 0))

    def test_large_blocks_that_grow_belong_to_their_line(self):
        harness.need("strip")
        stripped = self.path("libheapline.so.0")
        shutil.copy(os.path.join(harness.BUILD, "src/recorder/libheapline.so.0"), stripped)
        subprocess.run(["strip", "--strip-all", "--remove-section=.note.gnu.build-id", stripped], check=True)
        for env in {}, {"HEAPLINE_RECORDER": stripped}:
            with self.subTest(**env):
                recording = self.record_python(GROWING, env=env)
                first = harness.report("lines", recording, "--value", "inuse")["rows"][0]
                self.assertEqual((first["file"], first["line"]), ("<string>", 2))
                self.assertGreater(first["bytes"], 4000 * 2000)
                self.assertNotIn("libheapline", harness.run([harness.HEAPLINE, "top", recording]).stdout)


class Attached(attaching.TestCase, TestCase):
    """The same in an interpreter that runs already."""

    def test_each_object_from_then_on_is_recorded_once_in_every_mode(self):
        for script in (WORKLOAD, THREADS):
            for mode in RECORDING_MODES:
                with self.subTest(mode=mode, threads=script == THREADS):
                    environment = {"ORACLE": self.path("oracle"), "LATE": self.oracle,
                                   "PYTHONHASHSEED": "0"}
                    with harness.Waiting([self.python, "-c", LATE + script], environment) as process:
                        with self.attached(process.pid, "--mode", mode):
                            process.stdin.write("\n")
                            process.stdin.flush()
                            process.wait(attaching.ENDS_IN_S)
                    self.assertEqual(process.returncode, 0)
                    self.assert_equal_counts(self.recording, *self.counted())

    def test_a_storm_of_threads_has_its_own_allocator_again(self):
        with harness.Waiting([self.python, "-c", STORM]) as process:
            for _ in range(5):
                for seconds in ("0.3", "10"):  # a busy machine may not let it run at once
                    self.attach(process.pid, "-d", seconds)
                    allocations = report("info", self.recording)["total"]["alloc_objects"]
                    if allocations > 1000:
                        break
                self.assertGreater(allocations, 1000)
            process.stdin.write("\n")
            process.stdin.flush()
            self.assertEqual(process.stdout.readline(), "True True\n")
        self.assertEqual(process.returncode, 0)

    def test_objects_can_be_left_out(self):
        means = []
        with harness.Waiting([self.python, "-c", STORM]) as process:
            for options in ((), ("--no-objects",)):
                self.attach(process.pid, "-d", "0.3", *options)
                total = report("info", self.recording)["total"]
                means.append(total["alloc_bytes"] / total["alloc_objects"])
            process.stdin.write("\n")
        self.assertLess(means[0] * 2, means[1])


class Unrecorded(harness.TestCase):
    """Forked children of which there is no recorder: its memory is not theirs."""

    def start(self, *command):
        return subprocess.Popen(
            [*command, harness.HEAPLINE, "record", "-o", self.path("test.hl"), "--", harness.need("/usr/bin/python3"),
             "-c", FORKS], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def test_children_go_on_when_the_collector_has_died(self):
        with self.start() as collector:
            self.assertEqual(collector.stdout.readline(), "ready\n")
            collector.send_signal(signal.SIGKILL)
            collector.wait(harness.TIMEOUT_S)
            collector.stdin.write("\n")
            collector.stdin.flush()
            self.assertEqual(collector.stdout.readline(), "{7}\n")

    def test_children_go_on_when_the_collector_has_no_descriptors_for_them(self):
        with self.start("sh", "-c", 'ulimit -n 24; exec "$@"', "sh") as collector:
            said = collector.communicate("\n", harness.TIMEOUT_S)
            self.assertEqual((collector.returncode, said[0]), (0, "ready\n{7}\n"), said[1])
            self.assertRegex(said[1], "not recorded: (Too many open files|the collector ran out of file descriptors)")


if __name__ == "__main__":
    harness.main()
