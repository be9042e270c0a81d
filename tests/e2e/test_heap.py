# SPDX-License-Identifier: BSD-2-Clause
"""The walk of a heap from outside, compared with what the program itself says."""

import glob
import json
import os
import re
import resource
import select
import signal
import subprocess
import tempfile
import unittest
import unittest.mock

import harness
from harness import rss_of

MALLINFO = "arena ordblks smblks hblks hblkhd fsmblks uordblks fordblks keepcost".split()


def await_input(pid):
    harness.wait_until(lambda: harness.process_state(pid) == "S", "the program to wait for input")


class Target:
    """A running heap_target."""

    def __init__(self, *arguments, program="heap_target", env=None, cwd=None, cores=False):
        environment = dict(os.environ, **(env or {}))
        limit = resource.RLIM_INFINITY if cores else 0
        self.process = subprocess.Popen(
            [harness.program(program), *map(str, arguments)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env=environment, cwd=cwd,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (limit, limit)))

    def ask(self, command):
        """Its figures and its blocks after a command, once it waits for another one."""
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        figures, blocks = {}, {}
        for line in self.process.stdout:
            word, *numbers = line.split()
            if word == "end":
                await_input(self.process.pid)
                return figures, blocks
            if word == "block":
                blocks[int(numbers[0])] = int(numbers[1])
            else:
                figures[word] = int(numbers[0])
        raise AssertionError(f"the target ended while it was asked to '{command}'")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.kill()
        self.process.wait()


PYTHON = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in names]
libc.mallinfo2.restype = Info
blocks = [bytes(600 + i * 37 % 3000) for i in range(60000)]
kept = blocks[::20]
del blocks
os.write(1, b"end\\n")
while True:
    line = os.read(0, 100)
    if line == b"trim\\n":
        libc.malloc_trim(0)
    if not line:
        break
    info = libc.mallinfo2()
    os.write(1, b"arena %d\\nhblks %d\\nhblkhd %d\\nkeepcost %d\\npid %d\\nend\\n" % (
        info.arena, info.hblks, info.hblkhd, info.keepcost, os.getpid()))
"""
FILL = """CREATE TABLE IF NOT EXISTS numbers(a, b);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<100000)
INSERT INTO numbers SELECT i, hex(randomblob(i%90)) FROM n;
"""


class Python(Target):
    """A python3 that answers as heap_target does, as far as it knows without changing its heap."""

    def __init__(self):
        self.process = subprocess.Popen(["/usr/bin/python3", "-c", PYTHON],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def ask(self, command):
        figures, blocks = super().ask(command)
        self.pid = figures["pid"]
        return figures, blocks


class Sqlite:
    """The shell of sqlite3 with a database in memory. It trims its heap on SIGUSR1."""

    def __init__(self):
        environment = dict(os.environ, LD_PRELOAD=harness.program("trim.so"))
        self.process = subprocess.Popen([harness.need("sqlite3"), ":memory:"], env=environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self.ask("SELECT 1;")

    def tell(self, sql):
        self.process.stdin.write(sql + "SELECT 'do' || 'ne';\n")
        self.process.stdin.flush()

    def is_done(self):
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def ask(self, sql, answers=1):
        """Waits for ANSWERS answers, older ones included."""
        self.tell(sql)
        while answers:
            answers -= self.process.stdout.readline() == "done\n"
        await_input(self.pid)

    def trim(self):
        """What malloc_trim(0) returns there. It waits for input: it is not inside malloc."""
        self.process.send_signal(signal.SIGUSR1)
        return self.process.stdout.readline()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def expand(text):
    """The numbers of an array as gdb shows it: {1, 0 <repeats 12 times>, 3}."""
    for number, times in re.findall(r"(\d+)(?: <repeats (\d+) times>)?", text):
        yield from [number] * int(times or 1)


def dump(pid, *options):
    """What the walk found."""
    result = harness.run([harness.program("heap_dump"), *options, str(pid)])
    if os.geteuid() != 0 and "does not permit it" in result.stderr:
        raise unittest.SkipTest(result.stderr.strip())
    if result.status != 0:
        raise AssertionError(f"heap_dump fails: {result.stderr}")
    return json.loads(result.stdout)


def total(heap, *keys):
    """The sum over all arenas."""
    return sum(arena[key] for arena in heap["arenas"] for key in keys)


def states_of(pid):
    """The states of its threads, as letters."""
    states = set()
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/stat", encoding="ascii") as file:
            states.add(file.read().rpartition(")")[2].split()[0])
    return states


def threads_run(pid):
    """Whether its threads use the processor: time goes by for them."""
    def used():
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return sum(map(int, file.read().rpartition(")")[2].split()[11:13]))
    before = used()
    return harness.wait_until(lambda: used() > before, "threads that run")


def memory_of(pid):
    """Pages and page tables of a process, in KiB."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        pairs = (line.split(":") for line in file)
        fields = {name: value.split()[0] for name, value in pairs if value.endswith("kB\n")}
    return rss_of(pid), {name: fields[name] for name in ("VmPTE", "VmSwap", "VmSize")}


def expect_carriers_add_up(test, heap):
    """Whatever moved meanwhile, no carrier has more than it is large."""
    for carrier in heap["carriers"]:
        parts = (carrier["allocated_bytes"] + carrier["cached_bytes"] + carrier["free_bytes"]
                 + carrier["unscanned_bytes"])
        test.assertLessEqual(parts, carrier["total_bytes"])
        test.assertLessEqual(carrier["resident_bytes"], carrier["total_bytes"] + 8192)
    rss = dict(heap["rss"])
    test.assertEqual(rss.pop("rss_bytes"), sum(rss.values()))


def as_pages(figures):
    """mallinfo2's figures as whole pages of mappings: glibc 2.43 counts 16 bytes too many for each
    that realloc() moves."""
    return figures | {"hblkhd": figures["hblkhd"] & ~4095}


def as_mallinfo(heap):
    """What mallinfo2 would say of a heap that was walked."""
    free = total(heap, "free_bytes", "fastbin_bytes")
    return {
        "arena": total(heap, "system_bytes"),
        "ordblks": total(heap, "free_blocks"),
        "smblks": total(heap, "fastbin_blocks"),
        "hblks": heap["mmapped_blocks"],
        "hblkhd": heap["mmapped_bytes"],
        "fsmblks": total(heap, "fastbin_bytes"),
        "uordblks": total(heap, "system_bytes") - free,
        "fordblks": free,
        "keepcost": heap["arenas"][0]["top_bytes"],
    }


class Heap(unittest.TestCase):
    """Idle programs are read to the byte."""

    def expect_equal(self, target, *options):
        figures, blocks = target.ask("report")
        figures = as_pages(figures)
        heap = dump(figures["pid"], "--blocks", *options)
        walked = as_mallinfo(heap)
        self.assertEqual({key: figures[key] for key in MALLINFO}, walked, heap["notes"])
        self.expect_sums(heap)
        live = {address: size for address, size, _ in heap["blocks"]}
        self.assertEqual(blocks, {address: live.get(address) for address in blocks})
        self.assertEqual(len(live), total(heap, "inuse_blocks") + heap["mmapped_blocks"])
        self.assertLess(len(live) - len(blocks), 100)
        self.assertEqual(rss_of(figures["pid"]), heap["rss"]["rss_bytes"])
        return heap

    def expect_sums(self, heap):
        self.assertEqual(total(heap, "unscanned_bytes"), 0)
        self.assertEqual(heap["abandoned"], 0)
        self.assertEqual(heap["mmapped_bytes"], heap["mp_mmapped_bytes"])
        self.assertEqual(heap["mmapped_blocks"], heap["mp_mmapped_blocks"])
        own = {carrier["address"]: carrier["total_bytes"] - carrier["allocated_bytes"]
               - 8 * carrier["allocated_blocks"] - carrier["cached_bytes"]
               - carrier["free_bytes"] for carrier in heap["carriers"]
               if carrier["type"] != "mmapped chunk"}
        self.assertTrue(all(0 <= rest < 10000 for rest in own.values()), own)
        rss = dict(heap["rss"])
        self.assertEqual(rss.pop("rss_bytes"), sum(rss.values()))

    def test_one_thread(self):
        with Target(1, 20000) as target:
            heap = self.expect_equal(target)
        self.assertEqual(len(heap["arenas"]), 1)

    def test_nine_threads(self):
        with Target(9, 5000) as target:
            heap = self.expect_equal(target)
        self.assertEqual(len(heap["arenas"]), 9)

    def test_one_arena_for_nine_threads(self):
        with Target(9, 5000, env={"MALLOC_ARENA_MAX": "1"}) as target:
            heap = self.expect_equal(target)
        self.assertEqual(len(heap["arenas"]), 1)

    def test_arenas_that_no_thread_has(self):
        with Target("leave", 9, 5000) as target:
            heap = self.expect_equal(target)
        pooled = [c for c in heap["carriers"] if c["type"] == "arena heap" and c["in_pool"]]
        self.assertGreaterEqual(len(pooled), 8)

    def test_a_break_that_the_program_moved(self):
        with Target("own_brk", 1, 20000) as target:
            self.expect_equal(target)

    def test_a_break_that_cannot_move(self):
        with Target("no_brk", 2, 20000) as target:
            self.expect_equal(target)

    def test_a_child(self):
        with Target("fork", 3, 5000) as target:
            self.expect_equal(target)

    def test_pages_that_look_like_blocks(self):
        with Target("decoys", 1, 1000) as target:
            self.expect_equal(target)

    def test_huge_pages(self):
        for kind in "1", "2":
            tunable = {"GLIBC_TUNABLES": f"glibc.malloc.hugetlb={kind}"}
            with self.subTest(hugetlb=kind), Target(5, 5000, env=tunable) as target:
                self.expect_equal(target)

    def test_no_thread_caches(self):
        tunable = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
        with Target(3, 5000, env=tunable) as target:
            heap = self.expect_equal(target)
        self.assertEqual(total(heap, "tcache_bytes"), 0)


def unstated_libc(directory, release):
    """A copy of the C library in DIRECTORY whose version is stated as RELEASE."""
    with open("/proc/self/maps", encoding="ascii") as maps:
        path = next((line.split()[-1] for line in maps if "/libc.so.6" in line), None)
    if not path:
        raise unittest.SkipTest("the C library is not libc.so.6")
    with open(path, "rb") as file:
        library = file.read()
    stated = re.search(rb" release version 2\.\d\d", library)
    text = release.encode().ljust(len(stated[0]))
    with open(os.path.join(directory, "libc.so.6"), "wb") as file:
        file.write(library.replace(stated[0], text))


class UnknownVersion(Heap):
    """A version that is not known is read as a known one whose layout its heap agrees with."""

    RELEASE = " release version 2.99"
    ALLOCATOR = "glibc 2.99"
    NOTE = "this version of glibc is not known; its heap agrees with the layout of 2."

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        unstated_libc(scratch.name, self.RELEASE)
        environment = unittest.mock.patch.dict(os.environ, LD_LIBRARY_PATH=scratch.name)
        environment.start()
        self.addCleanup(environment.stop)

    def expect_equal(self, target, *options):
        heap = super().expect_equal(target, *options)
        self.assertEqual(heap["allocator"], self.ALLOCATOR)
        self.assertIn(self.NOTE, heap["notes"][0])
        self.assertEqual(len(heap["notes"]), 1)
        return heap

    def test_a_core(self):
        gcore = harness.need("gcore")
        with Target("compact", 3, 3000) as target, tempfile.TemporaryDirectory() as scratch:
            pid = target.ask("report")[0]["pid"]
            path = os.path.join(scratch, "core")
            self.assertEqual(harness.run([gcore, "-o", path, str(pid)]).status, 0)
            live, core = dump(pid, "--blocks"), dump(f"{path}.{pid}", "--blocks")
        self.assertIn(self.NOTE, core["notes"][0])
        self.assertEqual(live["blocks"], core["blocks"])

    def test_leaks(self):
        with Target(1, 5000) as target:
            pid = str(target.ask("report")[0]["pid"])
            result = harness.run([harness.HEAPLINE, "leaks", "-p", pid])
        self.assertEqual(result.status, 0, result.stderr)
        self.assertIn(self.NOTE, result.stdout + result.stderr)


class UnstatedVersion(UnknownVersion):
    """As is a library that does not say which version it is."""

    RELEASE = " of some time ago"
    ALLOCATOR = "glibc, version not stated"
    NOTE = "glibc does not state its version; its heap agrees with the layout of"


class Stopping(unittest.TestCase):
    """--stop stops threads, and lets them go on whatever happens."""

    def test_a_stopped_walk_is_exact_while_threads_churn(self):
        with Target(3, 5000) as target:
            pid = target.ask("report")[0]["pid"]
            target.ask("churn")
            for _ in range(5):
                heap = dump(pid, "--stop")
                self.assertEqual(heap["was_stopped"], 1)
                self.assertEqual(heap["abandoned"], 0)
                self.assertEqual(heap["rereads"], 0)
                self.assertEqual(total(heap, "unscanned_bytes"), 0)
                self.assertEqual(heap["mmapped_blocks"], heap["mp_mmapped_blocks"])
                expect_carriers_add_up(self, heap)
            self.assertTrue(threads_run(pid))

    def test_a_traced_process_is_refused(self):
        gdb = harness.need("gdb")
        with Target(1, 100) as target:
            pid = target.ask("report")[0]["pid"]
            with subprocess.Popen([gdb, "-q", "-nx", "-batch", "-ex", "shell echo held", "-ex",
                                   "shell read line", "-p", str(pid)], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True) as tracer:
                for line in tracer.stdout:
                    if line.strip() == "held":
                        break
                result = harness.run([harness.program("heap_dump"), "--stop", str(pid)])
                tracer.stdin.write("\n")
                tracer.stdin.flush()
                tracer.stdout.read()
            self.assertEqual(result.status, 1)
            self.assertIn(f"cannot stop process '{pid}': process {tracer.pid} traces it",
                          result.stderr)
            self.assertTrue(target.ask("report")[0])

    def test_threads_go_on_when_the_walk_is_killed(self):
        with Target(2, 300000) as target:
            pid = target.ask("report")[0]["pid"]
            with subprocess.Popen([harness.program("heap_dump"), "--stop", "--blocks", str(pid)],
                                  stdout=subprocess.PIPE) as walk:
                walk.stdout.read(100000)  # it is amidst the blocks of the first arena
                self.assertEqual(states_of(pid), {"t"})
                walk.kill()
                walk.stdout.close()
            harness.wait_until(lambda: "t" not in states_of(pid), "threads to go on")
            self.assertTrue(target.ask("report")[0])


class Returned(unittest.TestCase):
    """What malloc_trim would return is told beforehand."""

    def expect_prediction(self, target, heap_of):
        before = target.ask("report")[0]
        heap = heap_of(before["pid"])
        predicted = total(heap, "trimmable_bytes")
        old = rss_of(before["pid"], "Anonymous:")
        target.ask("trim")
        actual = old - rss_of(before["pid"], "Anonymous:")
        self.assertGreater(predicted, 1 << 20)
        self.assertLess(abs(actual - predicted), max(actual // 100, 65536), heap["arenas"])
        self.assertLess(total(heap_of(before["pid"]), "trimmable_bytes"), predicted // 20)

    def test_one_arena(self):
        with Target(1, 60000) as target:
            self.expect_prediction(target, dump)

    def test_many_arenas_that_are_left(self):
        with Target("leave", 9, 20000) as target:
            self.expect_prediction(target, dump)


    def test_python(self):
        with Python() as python:
            self.expect_prediction(python, dump)

    def test_sqlite(self):
        with Sqlite() as sqlite:
            sqlite.ask("ATTACH ':memory:' AS other; CREATE TABLE numbers(a);"
                       "CREATE TABLE other.numbers(a);")
            for _ in range(200):  # pages of both lie between each other
                for database in "main", "other":
                    sqlite.tell(f"INSERT INTO {database}.numbers VALUES(hex(randomblob(20000)));")
            sqlite.ask("SELECT 1; DETACH other;", 401)
            heap = dump(sqlite.pid)
            predicted, old = total(heap, "trimmable_bytes"), rss_of(sqlite.pid, "Anonymous:")
            self.assertEqual(sqlite.trim(), "trimmed 1\n")
            actual = old - rss_of(sqlite.pid, "Anonymous:")
        self.assertGreater(predicted, 1 << 20)
        self.assertLess(abs(actual - predicted), max(actual // 100, 65536))


    def test_pinned_pages(self):
        """Pages are returned when the blocks are freed that pin them."""
        tunable = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
        with Target("compact", 1, 60000, env=tunable) as target:
            _, blocks = target.ask("trim")
            pid = target.process.pid
            pins = [pin for pin in dump(pid, "--pins")["pins"]
                    if any(pin["start"] <= block < pin["end"] for block in blocks)][:40]
            self.assertGreater(len(pins), 10)
            self.assertEqual(pins, sorted(pins, key=lambda pin: -pin["returned_bytes"]))
            for pin in pins:
                self.assertLessEqual(pin["live_bytes"], (pin["end"] - pin["start"]) // 8)
                old = rss_of(pid, "Anonymous:")
                target.ask(f"free {pin['start']} {pin['end']}")
                returned = old - rss_of(pid, "Anonymous:")
                self.assertIn(returned, (pin["returned_bytes"], pin["returned_bytes"] + 4096), pin)


class Programs(unittest.TestCase):
    """Programs of the system."""

    def test_python_to_the_byte(self):
        with Python() as python:
            python.ask("report")  # what the first one allocates is there from now on
            figures = as_pages(python.ask("report")[0])
            del figures["pid"]
            heap = dump(python.pid)
            self.assertEqual(figures, {key: as_mallinfo(heap)[key] for key in figures})
            self.assertEqual(heap["rss"]["rss_bytes"], rss_of(python.pid))

    def test_sqlite_under_load(self):
        with Sqlite() as sqlite:
            sqlite.tell(FILL * 3)
            walks = 0
            while not sqlite.is_done():
                expect_carriers_add_up(self, dump(sqlite.pid))
                walks += 1
            self.assertGreater(walks, 3)
            sqlite.ask("SELECT count(*) FROM numbers;")
            heap = dump(sqlite.pid)
            self.assertEqual(total(heap, "unscanned_bytes"), 0)
            self.assertEqual(heap["mmapped_bytes"], heap["mp_mmapped_bytes"])

    def test_thread_caches_as_the_debugger_sees_them(self):
        gdb = harness.need("gdb")
        with Target("compact", 9, 3000) as target:
            pid = target.ask("report")[0]["pid"]
            heap = dump(pid)
            said = [harness.run([gdb, "-q", "-nx", "-batch", "-p", str(pid), "-ex",
                                 f"thread apply all -q -s output tcache->{member}"]).stdout
                    for member in ("counts", "num_slots")]
        used, unused = (re.findall(r"\{[^{}]*\}", text) for text in said)
        if len(used) + len(unused) != 9:
            self.skipTest("gdb does not see 'tcache': libc6-dbg is not installed")
        places = 16  # of a list with glibc 2.43, which counts those that are left
        counts = [[places - int(number) if unused else int(number) for number in expand(text)]
                  for text in used or unused]
        self.assertEqual(sum(map(sum, counts)), total(heap, "tcache_blocks"))
        self.assertEqual(sum(count * (32 + 16 * i) for row in counts
                             for i, count in enumerate(row)), total(heap, "tcache_bytes"))


class Unchanged(unittest.TestCase):
    """Reading changes nothing in the process."""

    def test_pages_and_page_tables_are_as_before(self):
        with Target(3, 30000) as target:
            pid = target.ask("report")[0]["pid"]
            target.ask("trim")
            before = memory_of(pid)
            for options in [], ["--blocks"], ["--stop"]:
                dump(pid, *options)
            self.assertEqual(before, memory_of(pid))


class Churn(unittest.TestCase):
    """Programs that run on are read nearly whole, and what was not read is said."""

    def test_two_threads_of_small_blocks(self):
        with Target(2, 60000) as target:
            pid = target.ask("report")[0]["pid"]
            target.ask("churn")
            given_up, seen = 0, 0
            for _ in range(20):
                heap = dump(pid)
                expect_carriers_add_up(self, heap)
                given_up += total(heap, "unscanned_bytes")
                seen += total(heap, "system_bytes")
                if heap["abandoned"]:
                    self.assertGreater(total(heap, "unscanned_bytes"), 0)
            self.assertLess(given_up, seen / 100)
            self.assertTrue(threads_run(pid))


class Others(unittest.TestCase):
    """Heaps of other allocators are read, or named."""

    def test_preloaded_libraries(self):
        for name in "jemalloc", "mimalloc", "tcmalloc":
            found = glob.glob(f"/usr/lib/x86_64-linux-gnu/lib{name}*.so.?*")
            with self.subTest(allocator=name):
                if not found:
                    self.skipTest(f"lib{name} is not installed")
                waits = "import sys; print('ready', flush=True); sys.stdin.read()"
                with harness.Waiting([harness.need("python3"), "-c", waits],
                                     {"LD_PRELOAD": found[0], "PYTHONMALLOC": "malloc"}) as process:
                    result = harness.run([harness.program("heap_dump"), str(process.pid)])
                self.assertEqual(result.status, 0, result.stderr)
                self.assertIn(name, json.loads(result.stdout)["allocator"])

    def test_redis(self):
        redis = harness.need("redis-server")
        version = harness.run([redis, "--version"]).stdout
        if "malloc=jemalloc" not in version:
            self.skipTest(f"redis-server does not use jemalloc: {version.strip()}")
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "socket")
            with subprocess.Popen([redis, "--port", "0", "--unixsocket", path, "--dir", scratch,
                                   "--save", ""], stdout=subprocess.DEVNULL) as process:
                harness.wait_until(lambda: harness.listens(path), "redis to listen")
                result = harness.run([harness.program("heap_dump"), str(process.pid)])
                process.terminate()
        self.assertEqual(result.status, 0, result.stderr)
        self.assertIn("jemalloc", json.loads(result.stdout)["allocator"])

    def test_python_does_not_allocate_by_the_mimalloc_in_it(self):
        waits = "import sys; print(1, flush=True); sys.stdin.read()"
        with subprocess.Popen([harness.need("python3"), "-c", waits], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            process.stdout.readline()  # it runs
            result = harness.run([harness.program("heap_dump"), str(process.pid)])
            process.stdin.close()
        if result.status:  # the version is not known
            self.assertIn("the C library is glibc 2.", result.stderr)
        self.assertNotIn("mimalloc", result.stderr)

    def test_glibc_in_a_static_program(self):
        with Target(1, 1000, program="heap_target_static") as target:
            figures, blocks = target.ask("report")
            heap = dump(figures["pid"], "--blocks")
            figures = as_pages(figures)
            self.assertEqual({key: figures[key] for key in MALLINFO}, as_mallinfo(heap))
            live = {address: size for address, size, _ in heap["blocks"]}
            self.assertEqual(blocks, {address: live.get(address) for address in blocks})
            self.assertIn("static", heap["allocator"])


class Cores(unittest.TestCase):
    """A core file says what the process said."""

    RESIDENT = ("free_resident_bytes", "trimmable_bytes", "resident_bytes")

    def expect_same(self, live, core, knows_pages):
        for heap in live, core:
            for row in [] if knows_pages else heap["arenas"] + heap["carriers"]:
                for key in self.RESIDENT:  # a page of zeros may have been in memory or not
                    row.pop(key, None)
        for key in ("arenas", "carriers", "mmapped_bytes", "mmapped_blocks", "blocks",
                    "trim_threshold", "allocator"):
            self.assertEqual(live[key], core[key], key)
        self.assertEqual(core["abandoned"], 0)

    def test_by_gcore(self):
        gcore = harness.need("gcore")
        with Target("compact", 3, 3000) as target, tempfile.TemporaryDirectory() as scratch:
            pid = target.ask("report")[0]["pid"]
            live = dump(pid, "--blocks")
            path = os.path.join(scratch, "core")
            self.assertEqual(harness.run([gcore, "-o", path, str(pid)]).status, 0)
            self.expect_same(live, dump(f"{path}.{pid}", "--blocks"), False)

    def test_by_the_kernel(self):
        with open("/proc/sys/kernel/core_pattern", encoding="ascii") as file:
            pattern = file.read().strip()
        if "/" in pattern or pattern.startswith("|") or "%" in pattern:
            self.skipTest(f"the kernel's core_pattern is '{pattern}'")
        with tempfile.TemporaryDirectory() as scratch:
            with Target("compact", 3, 3000, cwd=scratch, cores=True) as target:
                pid = target.ask("report")[0]["pid"]
                live = dump(pid, "--blocks")
                target.process.stdin.write("crash\n")
                target.process.stdin.flush()
                target.process.wait(harness.TIMEOUT_S)
            paths = [os.path.join(scratch, name) for name in os.listdir(scratch)]
            if not paths:
                self.skipTest("the kernel wrote no core file")
            self.expect_same(live, dump(paths[0], "--blocks"), True)

    def test_what_is_none_is_refused(self):
        for path in "/etc/passwd", "/bin/true", "/nowhere":
            result = harness.run([harness.program("heap_dump"), path])
            self.assertEqual(result.status, 1)
            self.assertIn(f"'{path}'", result.stderr)


if __name__ == "__main__":
    harness.main()
