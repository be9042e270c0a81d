# SPDX-License-Identifier: BSD-2-Clause
"""Python's objects and their arenas, read from outside, as the interpreter itself describes them."""

import json
import os
import re
import signal
import struct
import subprocess

import harness
from harness import HEAPLINE, process_state, wait_until

# Nothing is allocated between the description and the wait.
FRAGMENTED = """
import signal, sys
kept = [[str(i) * (i % 9), float(i), {i: (i,)}] for i in range(60000)]
del kept[1::2], kept[7::11], kept[5000:9000]
keep_one_of_many = [object() for _ in range(40000)][::200]
describe, pause = sys._debugmallocstats, signal.pause
describe(); pause()
"""

# Buffers that "churn" replaces again and again.
BUFFERS = """
import os, sys, threading
buffers = [bytearray(9000) for _ in range(2000)]
def churn():
    while True:
        for i in range(len(buffers)):
            buffers[i] = bytearray(9000)
if sys.argv[1:]:
    threading.Thread(target=churn, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
os._exit(0)
"""

# What is made between two looks, and what the interpreter says of it after the second.
STAGES = """
import collections, gc, json, sys
try:
    import numpy
except ImportError:
    numpy = None

class Slots:
    __slots__ = ("first", "second")

class Plain:
    def __init__(self, number):
        self.number, self.other = number % 100, None

class Derived(dict):
    pass

def pause():
    print("ready", flush=True)
    sys.stdin.readline()

def make():
    yield (Slots() for i in range(5000))
    yield (Plain(i) for i in range(4000))
    yield (Derived(word=i % 100) for i in range(700))
    yield ([None] * (i % 150) for i in range(3000))
    yield ({key: None for key in range(i % 40)} for i in range(2000))
    yield (set(range(i % 100)) for i in range(1500))
    yield ((i % 100,) * (i % 30 + 1) for i in range(2500))
    yield (i + 0.5 for i in range(6000))
    yield (2 ** 70 + i for i in range(1200))
    yield ("%d %s" % (i, "x" * (i % 900)) for i in range(7000))
    yield (bytearray(i) for i in range(1000))
    yield (collections.deque([None] * 300) for i in range(200))
    if numpy:
        yield (numpy.zeros(i) for i in range(1, 1000))

gc.collect()
gc.disable()
kept = []
pause()
kept = [list(objects) for objects in make()]
gc.collect()
pause()
counts, sizes = collections.Counter(), collections.Counter()
for it in (it for objects in [kept, *kept] for it in objects):
    counts[type(it).__name__] += 1
    sizes[type(it).__name__] += sys.getsizeof(it)
if sys.version_info < (3, 11):  # each object with attributes has a dictionary
    counts["dict"] += len(kept[1])
    sizes["dict"] += sum(sys.getsizeof(vars(it)) for it in kept[1])
print(json.dumps([counts, sizes]))
"""

# Objects with one reference more than there are words that lead to them.
REFERRED = """
import ctypes, sys
class Page:
    __slots__ = ("text",)
pages = []
for i in range(3000):
    page = Page()
    page.text = "x" * (800 + i % 50)
    pages.append(page)
for i in range(500):
    lost = str(i) * 600
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(lost))
for i in range(700):
    number = i + 0.5
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(number))
lost = number = None
print("ready", flush=True)
sys.stdin.readline()
"""

PAGE_BYTES, PAGE_ENTRY = os.sysconf("SC_PAGE_SIZE"), struct.Struct("=Q")
PAGE_PRESENT = 1 << 63

CLASS = re.compile(r"^ +\d+ +(\d+) +(\d+) +(\d+) +(\d+)$")


def described(text):
    """{block size: (pools, used blocks, free blocks)} and the number of arenas."""
    classes = {}
    for line in text.splitlines():
        if match := CLASS.match(line):
            size, *numbers = map(int, match.groups())
            classes[size] = tuple(numbers)
    return classes, int(re.search(r"arenas allocated current += +([\d,]+)", text)[1].replace(",", ""))


def present_pages(pid):
    """How many pages of each writable mapping are in memory."""
    pages = {}
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, \
            open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pagemap:
        for line in maps:
            addresses, access = line.split()[:2]
            first, end = (int(address, 16) // PAGE_BYTES for address in addresses.split("-"))
            if access.startswith("rw"):
                entries = os.pread(pagemap.fileno(), (end - first) * PAGE_ENTRY.size,
                                   first * PAGE_ENTRY.size)
                pages[addresses] = sum(entry & PAGE_PRESENT != 0
                                       for entry, in PAGE_ENTRY.iter_unpack(entries))
    return pages


class Arenas(harness.TestCase):
    def start(self, script):
        python = harness.need("/usr/bin/python3")
        text = self.path("description")
        with open(text, "w", encoding="ascii") as file:
            process = subprocess.Popen([python, "-c", script], stderr=file)
        self.addCleanup(process.wait)
        self.addCleanup(process.send_signal, signal.SIGKILL)

        def is_described():
            with open(text, encoding="ascii") as file:
                return "Total" in file.read() and process_state(process.pid) == "S"

        wait_until(is_described, "Python to describe its arenas")
        with open(text, encoding="ascii") as file:
            return process.pid, file.read()

    def heap(self, *options):
        result = harness.run([HEAPLINE, "heap", "--python-arenas", *options])
        self.assertEqual(result.status, 0, result.stderr)
        return result.stdout

    def assert_as_described(self, report, text):
        classes, arenas = described(text)
        self.assertGreater(len(classes), 10)
        self.assertEqual({row["block_bytes"]: (row["pools"], row["used_blocks"], row["free_blocks"])
                          for row in report["python_classes"]}, classes)
        total = report["python"]
        self.assertEqual(total["arenas"], arenas)
        self.assertEqual(total["used_bytes"], sum(size * row[1] for size, row in classes.items()))
        self.assertEqual(total["free_bytes"], sum(size * row[2] for size, row in classes.items()))

    def test_pools_of_a_process_are_those_that_python_describes(self):
        pid, text = self.start(FRAGMENTED)
        for options in ([], ["--stop"]):
            with self.subTest(options=options):
                self.assert_as_described(json.loads(self.heap("-p", str(pid), "--json", *options)),
                                         text)
        self.assertIn("pools in", self.heap("-p", str(pid)))

    def test_pools_in_a_core_are_those_that_python_describes(self):
        gcore = harness.need("gcore")
        pid, text = self.start(FRAGMENTED)
        harness.run([gcore, "-o", self.path("core"), str(pid)])
        core = self.path(f"core.{pid}")
        if not os.path.exists(core):
            self.skipTest("gcore may not attach here")
        self.assert_as_described(json.loads(self.heap("--core", core, "--json")), text)

    def types(self, pid):
        report = json.loads(self.heap("--python-types", "-p", str(pid), "--stop", "--json"))
        total = report["python_objects"]
        self.assertEqual(total["unscanned_bytes"], 0)
        self.assertEqual(total["objects"], sum(row["objects"] for row in report["python_types"]))
        self.assertEqual(total["pinned_bytes"], report.get("python", {"free_bytes": 0})["free_bytes"])
        return {row["type"]: row for row in report["python_types"]}

    def test_no_page_is_touched_that_is_not_in_memory(self):
        pid, _ = self.start(FRAGMENTED)
        before = present_pages(pid)
        self.heap("--python-types", "-p", str(pid))
        self.assertEqual(present_pages(pid), before)

    def grown(self, **environment):
        """{type: (objects, bytes)} that came between two looks, and {type: objects}, {type: bytes} of Python."""
        process = subprocess.Popen([harness.need("/usr/bin/python3"), "-c", STAGES],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env={**os.environ, **environment})
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        looks = []
        for _ in range(2):
            self.assertEqual(process.stdout.readline(), "ready\n")
            looks.append(self.types(process.pid))
            process.stdin.write("\n")
            process.stdin.flush()
        counts, sizes = json.loads(process.stdout.readline())
        none = {"objects": 0, "bytes": 0}
        return {name.rpartition(".")[2]: tuple(row[key] - looks[0].get(name, none)[key]
                                               for key in ("objects", "bytes"))
                for name, row in looks[1].items()}, counts, sizes

    def assert_grown_as_described(self, **environment):
        grown, counts, sizes = self.grown(**environment)
        self.assertGreater(len(counts), 11)
        for name, count in counts.items():
            with self.subTest(type=name, **environment):
                objects, size = grown[name]
                # The interpreter's own strings come and go.
                self.assertAlmostEqual(objects, count, delta=5 if name == "str" else 0)
                # Python counts what it asked for; each object has at most a block of its own and one part or
                # a few, and blocks are multiples of 16 bytes.
                self.assertGreaterEqual(size, sizes[name] * 0.99)
                self.assertLess(size, sizes[name] * 1.05 + 48 * count)

    def test_objects_by_type_are_those_that_python_has_made(self):
        self.assert_grown_as_described()

    def test_objects_that_malloc_gave_are_found_as_well(self):
        self.assert_grown_as_described(PYTHONMALLOC="malloc")

    def test_parts_that_move_while_they_are_read_are_said_to_be_missing(self):
        for rounds, how in (1, []), (5, ["churn"]):
            with harness.Waiting([harness.need("/usr/bin/python3"), "-c", BUFFERS, *how]) as process:
                for _ in range(rounds):
                    report = json.loads(self.heap("--python-types", "-p", str(process.pid), "--json"))
                    rows = {row["type"]: row for row in report["python_types"]}
                    said = re.findall(r"parts of (\d+) of Python's objects moved while they were read", "\n".join(report["notes"]))
                    is_whole = rows["bytearray"]["part_bytes"] > 0.98 * 2000 * 9000
                    self.assertTrue(said or is_whole, report["notes"])
                    if rounds == 1:  # nothing moves, but words that are not used any more may lead to blocks that wait for reuse
                        self.assertTrue(is_whole)
                        self.assertLess(int((said or [0])[0]), 10)

    def test_a_program_without_python_has_no_arenas(self):
        with harness.Waiting(["/bin/sh", "-c", "echo ready; read line; :"]) as process:
            report = json.loads(self.heap("-p", str(process.pid), "--json"))
        self.assertNotIn("python", report)
        self.assertTrue(any("no arenas" in note for note in report["notes"]))

    def referred(self, verb, *options, **environment):
        with harness.Waiting([harness.need("/usr/bin/python3"), "-c", REFERRED], environment) as process:
            result = harness.run([HEAPLINE, verb, "-p", str(process.pid), "--stop", "--json", *options])
        self.assertEqual(result.status, 0, result.stderr)
        return json.loads(result.stdout)

    def test_lost_objects_are_named_by_their_types(self):
        for environment, kinds in (({}, {"str": 500}), ({"PYTHONMALLOC": "malloc"}, {"str": 500, "float": 700})):
            rows = self.referred("leaks", **environment)["rows"]
            for kind, count in kinds.items():
                with self.subTest(type=kind, **environment):
                    lost = sum(row["lost_blocks"] + row["possible_blocks"]
                               for row in rows if row["type"] == kind)
                    # A word that nobody will use may still lead to a few, and the interpreter has lost some.
                    self.assertAlmostEqual(lost, count, delta=count * 0.05)

    def test_objects_of_a_type_are_asked_for(self):
        report = self.referred("holders", "--class", "^Page$", PYTHONMALLOC="malloc")
        self.assertEqual(report["total"]["selected_blocks"], 3000)

    def test_what_arenas_keep_is_one_row_that_is_called_as_in_the_balance_sheet(self):
        rows = self.referred("holders")["rows"]
        of_python = [row for row in rows if row["holder"] == "Python objects (pymalloc's arenas)"]
        self.assertEqual([(row["kind"], row["place"]) for row in of_python], [("mapping", "")])
        self.assertIn(of_python[0]["holder"], {name for row in rows for name in row["holders"]})
        self.assertFalse([row["holder"] for row in rows if row["holder"] == "[anon]" and row["held_bytes"] > 65536])


if __name__ == "__main__":
    harness.main()
