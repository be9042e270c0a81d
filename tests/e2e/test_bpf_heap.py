#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`heapline stacks` finds, from outside, exactly the blocks that a program keeps.

The programs do what they are told, line by line, and only while they are not looked at or are: so
what a trace must show is known to the byte.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
import unittest

import harness
from harness import HEAPLINE, TIMEOUT_S

WAYS = ("session", "multi", "perf")
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
LIBC = "/lib/x86_64-linux-gnu/libc.so.6"
GLIBC_CALLS = ("malloc", "calloc", "realloc", "reallocarray", "memalign", "aligned_alloc",
               "posix_memalign", "valloc", "pvalloc")
MUSL_CALLS = GLIBC_CALLS[:-2]
EXCHANGE_SLOTS = 64
NEW_KINDS = 4  # of operator new in trace_heap_cxx.cc


class Target:
    """A program that obeys."""

    def __init__(self, command, env=None):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, bufsize=1, env=dict(os.environ, **(env or {})))
        self.expect("ready")
        self.pid = self.process.pid

    def expect(self, word):
        line = self.process.stdout.readline()
        if line != word + "\n":
            raise AssertionError(f"the target says {line!r} instead of {word!r}")

    def tell(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")

    def do(self, *words):
        self.tell(*words)
        self.expect("ok")

    def end(self):
        """Its exit status after it was told no more."""
        self.process.stdin.close()
        status = self.process.wait(TIMEOUT_S)
        self.process.stdout.close()
        return status

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.end()


class Trace:
    """heapline stacks, from when it counts until it is interrupted."""

    def __init__(self, pid, recording, *options):
        self.recording = recording
        self.process = subprocess.Popen(
            [HEAPLINE, "stacks", "-p", str(pid), "--verbose", "--max-overhead", "100000",
             "-o", recording, *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.stderr = []  # a list: the other thread appends to it
        for line in self.process.stderr:
            self.stderr.append(line)
            if "counting, by" in line:
                break
        else:
            raise AssertionError("does not count: " + self.said())
        self.reader = threading.Thread(target=self.read_on)
        self.reader.start()

    def read_on(self):
        for line in self.process.stderr:
            self.stderr.append(line)

    def said(self):
        """All but what libbpf says."""
        return "".join(line for line in self.stderr if "libbpf:" not in line)

    def wait(self):
        self.process.stdout.read()
        status = self.process.wait(TIMEOUT_S)
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return status

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        return self.wait()


def why_refused():
    """What keeps traces from being made here, or "" when nothing does."""
    with subprocess.Popen(["sleep", "60"]) as process:
        result = harness.run([HEAPLINE, "stacks", "-p", str(process.pid), "0.01"])
        process.kill()
    return result.stderr.strip() if result.status else ""


def changed_code(pid, library="libc.so.6"):
    """How many bytes of a library's code in memory are not those of its file: breakpoints."""
    changed = 0
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb") as mem:
        for line in maps:
            match = re.match(r"(\w+)-(\w+) r-xp (\w+) \S+ \d+ +(\S+)", line)
            if not match or not match[4].endswith(library):
                continue
            start, end, offset = (int(match[i], 16) for i in (1, 2, 3))
            mem.seek(start)
            code = mem.read(end - start)
            with open(match[4], "rb") as file:
                file.seek(offset)
                original = file.read(len(code))
            changed += sum(a != b for a, b in zip(code, original))
    return changed


class HeapTest(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        reason = why_refused()
        if reason:
            raise unittest.SkipTest(reason)

    def target(self, name="trace_heap", env=None, prefix=()):
        target = Target([*prefix, harness.program(name)], env)
        self.addCleanup(target.kill)
        return target

    def trace(self, target, *options):
        return Trace(target.pid, self.path("trace.hl"), "--force", "--max-overhead", "1000000",
                     *options)

    def start(self, *options):
        """A target and a trace of it."""
        target = self.target()
        return target, self.trace(target, *options)

    def finish(self, trace):
        status = trace.stop()
        self.assertEqual(status, 0, trace.said())

    def kept(self, trace, unit="bytes", value="inuse"):
        return harness.folded(trace.recording, value, unit)

    def assert_sites(self, trace, expected, whole_stacks=True):
        """Blocks by function: {name: [sizes]}; and nothing is lost."""
        for unit, number in (("bytes", sum), ("objects", len)):
            stacks = self.kept(trace, unit)
            for site, sizes in expected.items():
                self.assertEqual(harness.under(stacks, site), number(sizes), (site, unit, stacks))
        lost = dict(harness.info(trace.recording)["lost"])
        lost.pop("unmatched_frees")
        if not whole_stacks:
            lost.pop("incomplete_stacks")
        self.assertFalse(any(lost.values()), f"lost: {lost}")


class Ledger(HeapTest):
    """What the program keeps is what is shown."""

    def test_in_every_way_of_probing_what_is_kept_is_known_to_the_byte(self):
        for way in WAYS:
            with self.subTest(way):
                target, trace = self.start("--probes", way)
                sites = {**self.make_each_call(target), **self.grow_blocks(target),
                         **self.fail_calls(target), **self.exchange_blocks(target),
                         **self.make_blocks_in_a_child(target), **self.forbid_system_calls(target)}
                self.finish(trace)
                self.assertEqual(target.end(), 0)
                self.assert_sites(trace, sites)

    def make_each_call(self, target):
        for i, call in enumerate(GLIBC_CALLS):
            target.do(call, "site_a", 100, 64 + 2 * i)
            target.do(call, "site_b", i, 4096)
        target.do("free", "site_a", 300)
        target.do("churn", "site_b", 1000, 100)
        sizes = [64 + 2 * i for i in range(len(GLIBC_CALLS)) for _ in range(100)]
        return {"site_a": sizes[:-300], "site_b": [4096] * sum(range(len(GLIBC_CALLS)))}

    def grow_blocks(self, target):
        target.do("malloc", "site_d", 20, 10)
        target.do("grow", "site_d", 50, 100)
        return {"site_d": [5010] * 20}

    def fail_calls(self, target):
        for _ in range(10):
            target.do("fail", "site_c", 0, 0)
        return {"site_c": [500] * 10}

    def exchange_blocks(self, target):
        target.do("exchange", "site_e", 10_000, 48)
        return {"exchange_blocks": [48] * EXCHANGE_SLOTS}

    def make_blocks_in_a_child(self, target):
        target.do("fork", "site_f", 1000, 64)
        return {"site_f": []}

    def forbid_system_calls(self, target):
        if os.uname().release.startswith(("6.11.", "6.12.", "6.13.")):
            return {}  # these kernels would end the target, and heapline refuses
        target.do("seccomp", "site_g", 0, 0)
        target.do("malloc", "site_g", 10, 64)
        target.do("churn", "site_g", 1000, 64)
        return {"site_g": [64] * 10}

    def test_threads_free_each_others_blocks(self):
        target, trace = self.start()
        target.do("malloc", "site_a", 5000, 48)
        target.do("free_elsewhere", "site_a", 4990)
        self.finish(trace)
        # Below site_a is what the thread needs for itself as well.
        self.assert_sites(trace, {"make_blocks": [48] * 10})

    def test_blocks_from_before_grow_into_the_trace_or_are_freed_without_a_match(self):
        target = self.target()
        target.do("malloc", "site_b", 20, 10)
        target.do("malloc", "site_d", 50, 1000)
        trace = self.trace(target)
        target.do("grow", "site_b", 1, 100)
        target.do("free", "site_d", 50)
        self.finish(trace)
        self.assert_sites(trace, {"site_b": [110] * 20, "site_d": []})
        self.assertEqual(harness.info(trace.recording)["lost"]["unmatched_frees"], 20 + 50)

    def test_many_blocks_are_kept_without_loss(self):
        target, trace = self.start()
        target.do("malloc", "site_a", 300_000, 16)
        self.finish(trace)
        self.assert_sites(trace, {"site_a": [16] * 300_000})
        memory = harness.info(trace.recording)["total"]["table_memory_bytes"]
        self.assertGreater(memory, 16 << 20)
        self.assertLess(memory, 256 << 20)

    def test_only_old_blocks_are_shown_if_asked_for(self):
        target, trace = self.start("--older", "2")
        target.do("malloc", "site_a", 10, 100)
        time.sleep(2.1)  # it is time that makes them old
        target.do("malloc", "site_b", 10, 100)
        self.finish(trace)
        self.assert_sites(trace, {"site_a": [100] * 10, "site_b": []})


class Reloads(HeapTest):
    """Libraries that differ in names alone, each copied over the one before and loaded."""

    def setUp(self):
        super().setUp()
        self.library = self.path("plugin.so")

    def load(self, target, letter):
        shutil.copy(harness.program(f"plugin_{letter}.so"), self.library)
        target.do("load", self.library)

    def assert_named(self, recording, expected):
        """{letter: blocks' sizes} of the versions, by views that are made while each lies there."""
        modules = [module for module in harness.info(recording)["modules"]
                   if module["path"] == self.library]
        self.assertEqual(len(modules), len(expected))
        for letter, sizes in expected.items():
            shutil.copy(harness.program(f"plugin_{letter}.so"), self.library)
            row = harness.top_rows(recording, "inuse").get(f"plugin_{letter}_site", {})
            self.assertEqual((row.get("flat_objects", 0), row.get("flat_bytes", 0)),
                             (len(sizes), sum(sizes)), letter)

    def test_each_version_of_a_library_has_its_own_names(self):
        target, trace = self.start()
        sizes = {"a": 101, "b": 1009, "c": 10007}
        for round_, (letter, size) in enumerate(sizes.items(), 1):
            if round_ == 1:
                self.load(target, letter)
            else:
                trace.process.send_signal(signal.SIGSTOP)  # it learns of the library after its calls
                self.load(target, letter)
                target.do("loaded", "site_a", 5, size)
                trace.process.send_signal(signal.SIGCONT)
            harness.wait_until(lambda: trace.said().count(f"'{self.library}' was loaded") == round_,
                               "the library to be read")
            target.do("loaded", "site_a", 7, size)
            target.do("unload", self.library)
        self.finish(trace)
        self.assert_named(trace.recording, {"a": [101] * 7, "b": [1009] * 12, "c": [10007] * 12})
        self.assertEqual(harness.info(trace.recording)["lost"]["incomplete_stacks"], 10)
        self.assertEqual(harness.info(trace.recording)["recording"]["warnings"], [])

    def test_a_version_that_is_gone_before_it_was_read_has_no_names(self):
        target, trace = self.start()
        self.load(target, "a")
        harness.wait_until(lambda: f"'{self.library}' was loaded" in trace.said(),
                           "the library to be read")
        target.do("unload", self.library)
        trace.process.send_signal(signal.SIGSTOP)
        self.load(target, "b")
        target.do("loaded", "site_a", 5, 101)
        target.do("unload", self.library)
        self.load(target, "c")
        target.do("loaded", "site_a", 7, 1009)
        trace.process.send_signal(signal.SIGCONT)
        self.finish(trace)
        warnings = harness.info(trace.recording)["recording"]["warnings"]
        self.assertIn("unloaded before heapline could read it", " ".join(warnings))
        self.assert_named(trace.recording, {"a": [], "c": [1009] * 7})


class Modes(HeapTest):
    def test_all_allocations_count_whether_freed_or_not(self):
        for way in WAYS:
            with self.subTest(way):
                target, trace = self.start("--all", "--probes", way)
                target.do("churn", "site_a", 10_000, 30)
                target.do("malloc", "site_b", 10, 30)
                target.do("free", "site_b", 10)
                self.finish(trace)
                stacks = self.kept(trace, value="alloc")
                self.assertEqual(harness.under(stacks, "site_a"), 300_000)
                self.assertEqual(harness.under(stacks, "site_b"), 300)
                self.assertEqual(harness.info(trace.recording)["recording"]["mode"], "stacks-all")

    def estimates(self, *options):
        """Bytes and objects that samples of 16 KiB say were made, relative to what was."""
        target, trace = self.start("--sample", "16384", *options)
        target.do("malloc", "site_a", 200_000, 64)
        target.do("malloc", "site_b", 2000, 16384)
        target.do("malloc", "site_c", 10, 10 << 20)
        target.do("churn", "site_d", 100_000, 1000)
        self.finish(trace)
        value = "alloc" if "--all" in options else "inuse"
        wanted = {"site_a": (200_000, 64), "site_b": (2000, 16384), "site_c": (10, 10 << 20)}
        for unit in ("bytes", "objects"):
            stacks = self.kept(trace, unit, value)
            for site, (count, size) in wanted.items():
                truth = count * size if unit == "bytes" else count
                yield f"{site} {unit}", harness.under(stacks, site) / truth
            churned = 100_000_000 if unit == "bytes" else 100_000
            yield f"site_d {unit}", harness.under(stacks, "site_d") / churned

    def test_samples_estimate_what_is_kept(self):
        # 781 samples of site_a: 3.6 % standard deviation; six of them are 22 %.
        for what, ratio in self.estimates():
            if what.startswith("site_d"):
                self.assertEqual(ratio, 0, what)
            else:
                self.assertAlmostEqual(ratio, 1, delta=0.22, msg=what)

    def test_samples_estimate_all_that_was_allocated(self):
        for what, ratio in self.estimates("--all"):
            self.assertAlmostEqual(ratio, 1, delta=0.22, msg=what)

    def test_blocks_without_room_are_counted_and_said(self):
        target, trace = self.start("--max-blocks", "100")
        target.do("malloc", "site_a", 1000, 64)
        self.finish(trace)
        lost = harness.info(trace.recording)["lost"]
        kept = harness.under(self.kept(trace, "objects"), "site_a")
        self.assertGreater(lost["events"], 0)
        self.assertEqual(kept + lost["events"], 1000)
        self.assertEqual(lost["bytes"], 64 * lost["events"])
        warnings = harness.info(trace.recording)["recording"]["warnings"]
        self.assertIn("--max-blocks", " ".join(warnings))

    def test_one_object_alone_is_probed_if_asked_for(self):
        target = self.target()
        result = harness.run([HEAPLINE, "stacks", "-p", str(target.pid), "-O", "no-such", "0.1"])
        self.assertEqual(result.status, 1)
        self.assertIn("'no-such'", result.stderr)
        trace = self.trace(target, "-O", "libc.so")
        target.do("malloc", "site_a", 10, 64)
        self.finish(trace)
        self.assert_sites(trace, {"site_a": [64] * 10})

    @staticmethod
    def limited_stacks(target):
        """A trace for a second, under a limit that a busy target exceeds on a busy machine too."""
        return [HEAPLINE, "stacks", "-p", str(target.pid), "1", "--max-overhead", "5"]

    def test_a_busy_program_is_not_slowed_down_unasked(self):
        target = self.target()
        target.tell("churn", "site_a", 10_000_000_000, 64)
        result = harness.run(self.limited_stacks(target))
        self.assertEqual(result.status, 3, result.stdout)
        self.assertIn("--max-overhead", result.stderr)
        self.assertIn("times as long", result.stderr)
        self.assertIn(f"'heapline pgfault -p {target.pid}'", result.stderr)
        self.assertEqual(changed_code(target.pid), 0)
        target.process.kill()

    def test_what_is_advised_when_it_costs_too_much_works(self):
        target = self.target()
        target.tell("churn", "site_a", 10_000_000_000, 64)
        result = harness.run(self.limited_stacks(target))
        for _ in range(20):  # on a busy machine a measurement may be off: then it is taken again
            self.assertEqual(result.status, 3, result.stdout)
            advice = re.search(r"use (--.+?) \((?:about|at least)", result.stderr)
            result = harness.run([*self.limited_stacks(target),
                                  *(advice[1].split() if advice else [])])
            if result.status == 0:
                break
        self.assertEqual(result.status, 0, result.stderr)
        self.assertIn("sampled about every", result.stdout)
        target.process.kill()

    def test_samples_of_small_blocks_are_said_to_cost_less(self):
        target = self.target()
        target.tell("churn", "site_a", 10_000_000_000, 64)
        result = harness.run(self.limited_stacks(target))
        self.assertEqual(result.status, 3, result.stdout)
        costs = re.search(r"cost it (?:at least )?(\d+) %.* --sample .*\((?:about|at least) (\d+) %\)",
                          result.stderr)
        # Both by one rate of calls: 2.35 to 4.4 probes for each block.
        self.assertLess(int(costs[2]) / int(costs[1]), 0.7, result.stderr)
        target.process.kill()

    def test_a_program_that_does_nothing_but_allocate_is_said_to_be_slowed_down_much(self):
        target = self.target()
        target.tell("churn", "site_a", 10_000_000_000, 64)

        def measured():
            """What is said of it when it is not other work that slows it down; None before."""
            result = harness.run([*self.limited_stacks(target), "--sample", "512K"])
            self.assertEqual(result.status, 3, result.stdout)
            return re.search(r"at more than \d+ (million|thousand) allocator calls.*", result.stderr)

        said = harness.wait_until(measured, "a rate that is only bounded")[0]
        times = re.search(r"([\d.]+) times as long", said)
        self.assertGreater(float(times[1]), 10, said)  # it is some hundred times
        target.process.kill()

    def test_a_program_that_was_stopped_while_it_was_measured_is_measured_when_it_goes_on(self):
        target = self.target()
        target.tell("churn", "site_a", 10_000_000_000, 64)
        target.process.send_signal(signal.SIGSTOP)
        trace = Trace(target.pid, self.path("trace.hl"), "--max-overhead", "5", "60")
        self.assertIn("too few calls", trace.said())
        target.process.send_signal(signal.SIGCONT)
        self.assertEqual(trace.wait(), 3, trace.said())
        self.assertIn(f"ended: tracing process '{target.pid}' costs it", trace.said())
        self.assertIn("--max-overhead", trace.said())
        self.assertEqual(changed_code(target.pid), 0)
        self.assertIn("recording", harness.info(trace.recording))  # what was found until then
        target.process.kill()

    def test_a_program_that_was_stopped_and_does_little_is_traced_to_the_end(self):
        target = self.target()
        target.process.send_signal(signal.SIGSTOP)
        trace = Trace(target.pid, self.path("trace.hl"), "--max-overhead", "5")
        target.process.send_signal(signal.SIGCONT)
        target.do("malloc", "site_a", 10, 64)
        self.finish(trace)
        self.assert_sites(trace, {"site_a": [64] * 10})


class Intervals(HeapTest):
    """Reports of one trace, a line each."""

    def setUp(self):
        super().setUp()
        self.target_ = self.target()
        self.process = subprocess.Popen(
            [HEAPLINE, "stacks", "-p", str(self.target_.pid), "--interval", "0.5", "--json",
             "--verbose", "--max-overhead", "100000"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.process.stdout.close)
        self.addCleanup(self.process.kill)
        for line in self.process.stderr:
            if "counting, by" in line:
                break
        self.reader = threading.Thread(target=self.process.stderr.read)
        self.reader.start()

    def growth(self, line, site="site_a"):
        report = json.loads(line)
        self.assertEqual(report["schema"], "heapline/stacks/2")
        self.assertEqual(report["recording"]["mode"], "stacks-growth")
        rows = [row for row in report["rows"] if site in row["stack"]]
        return sum(row["objects"] for row in rows), sum(row["bytes"] for row in rows)

    def test_each_interval_has_what_changed_in_it_and_all_add_up(self):
        self.target_.do("malloc", "site_a", 1000, 64)
        found = []
        while sum(objects for objects, _ in found) < 1000 and len(found) < 100:
            found.append(self.growth(self.process.stdout.readline()))
        self.target_.do("free", "site_a", 400)
        self.target_.do("malloc", "site_b", 3, 100)
        found.append(self.growth(self.process.stdout.readline()))
        self.process.send_signal(signal.SIGINT)
        found += [self.growth(line) for line in self.process.stdout]
        self.assertEqual(self.process.wait(TIMEOUT_S), 0)
        self.reader.join()
        self.process.stderr.close()
        self.assertEqual(sum(objects for objects, _ in found), 600, found)
        self.assertEqual(sum(size for _, size in found), 600 * 64, found)
        self.assertEqual(sum(min(objects, 0) for objects, _ in found), -400, found)


class Allocators(HeapTest):
    def check_calls(self, target, calls, *options, whole_stacks=True):
        trace = self.trace(target, *options)
        for i, call in enumerate(calls):
            target.do(call, "site_a", 100, 64 + 2 * i)
        target.do("free", "site_a", 150)
        target.do("grow", "site_a", 3, 1000)
        target.do("churn", "site_c", 1000, 100)
        target.do("fail", "site_b", 0, 0)
        self.finish(trace)
        sizes = [64 + 2 * i for i in range(len(calls)) for _ in range(100)]
        self.assert_sites(trace, {"site_a": [size + 3000 for size in sizes[:-150]], "site_c": []},
                          whole_stacks)

    def test_musl_is_found_in_its_loader(self):
        # Much of musl comes without information about its frames.
        self.check_calls(self.target("trace_heap_musl"), MUSL_CALLS, whole_stacks=False)

    def test_static_programs_have_their_allocator_in_themselves(self):
        for name, calls, whole_stacks in (("trace_heap_musl_static", MUSL_CALLS, False),
                                          ("trace_heap_static", GLIBC_CALLS, True)):
            with self.subTest(name):
                self.check_calls(self.target(name), calls, whole_stacks=whole_stacks)

    def test_preloaded_allocators_are_found(self):
        # mimalloc's functions begin by moving their arguments: in every way of setting probes.
        for name, ways in (("libjemalloc.so.2", ("session",)),
                           ("libtcmalloc_minimal.so.4", ("session",)),
                           ("libmimalloc.so.2.0", WAYS)):
            for way in ways:
                with self.subTest(name, way=way):
                    library = os.path.join(LIBRARIES, name)
                    if not os.path.exists(library):
                        self.skipTest(f"'{library}' is not installed")
                    self.check_calls(self.target(env={"LD_PRELOAD": library}), MUSL_CALLS,
                                     "--probes", way)

    def test_functions_of_an_allocator_under_its_own_names_are_found(self):
        if not os.path.exists(harness.program("trace_heap_mimalloc")):
            self.skipTest("mimalloc is not installed")
        target = self.target("trace_heap_mimalloc")
        trace = self.trace(target)
        target.do("more")
        self.finish(trace)
        self.assert_sites(trace, {"expands": [1015] * 100, "resizes": [5000, 3000] * 100, "aligns": [300] * 100})

    def test_an_allocator_that_is_mapped_meanwhile_is_found(self):
        target, trace = self.start()
        target.do("load", harness.program("late_allocator.so"))
        harness.wait_until(lambda: re.search("counting, by .*late_allocator", trace.said()),
                           "the allocator to be found")
        target.do("loaded", "site_a", 10, 64)
        self.finish(trace)
        self.assert_sites(trace, {"site_a": [64] * 10})
        warnings = harness.info(trace.recording)["recording"]["warnings"]
        self.assertIn("mapped during the trace", " ".join(warnings))

    def check_cxx(self, library, *options, prefix=()):
        env = {"LD_PRELOAD": library} if library else {}
        target = self.target("trace_heap_cxx", env=env, prefix=prefix)
        trace = self.trace(target, *options)
        # Multiples of the alignment, to which libstdc++ rounds.
        target.do("new", 100, 128)
        target.do("delete", 40)
        exceptions = 0 if "mimalloc" in library else 3  # which ends the program, traced or not
        target.do("throw", exceptions)
        target.do("new", 10, 3200)
        self.finish(trace)
        self.assertEqual(target.end(), exceptions)
        return trace

    def test_operators_new_count_once_over_every_allocator(self):
        for name in ("", "libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2.0"):
            with self.subTest(name):
                library = os.path.join(LIBRARIES, name) if name else ""
                if name and not os.path.exists(library):
                    self.skipTest(f"'{library}' is not installed")
                trace = self.check_cxx(library)
                stacks, objects = self.kept(trace), self.kept(trace, "objects")
                self.assertEqual(sum(objects.values()), NEW_KINDS * 70, objects)
                self.assertEqual(sum(stacks.values()), NEW_KINDS * (60 * 128 + 10 * 3200), stacks)
                self.assert_nothing_lost(trace.recording)
                self.assertEqual(harness.info(trace.recording)["lost"]["unmatched_frees"], 0)

    def test_operators_that_throw_are_left_alone_where_that_would_end_the_program(self):
        library = os.path.join(LIBRARIES, "libjemalloc.so.2")
        if not os.path.exists(library):
            self.skipTest(f"'{library}' is not installed")
        limited = ("sh", "-c", 'ulimit -v 8388608 && exec "$0"')  # KiB: any request may fail
        for way, prefix in (("multi", ()), ("perf", ()), ("session", limited)):
            with self.subTest(way):
                trace = self.check_cxx(library, "--probes", way, prefix=prefix)
                warnings = harness.info(trace.recording)["recording"]["warnings"]
                self.assertIn("_Znwm of libjemalloc.so.2", " ".join(warnings))
                if way == "session" or tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 13):
                    self.assertNotIn("a kernel from 6.13", " ".join(warnings))


class Surroundings(HeapTest):
    def test_a_library_that_was_deleted_is_probed(self):
        library = shutil.copy(LIBC, self.path("libc.so.6"))
        target = self.target(env={"LD_LIBRARY_PATH": self.directory})
        os.unlink(library)
        trace = self.trace(target)
        target.do("malloc", "site_a", 10, 64)
        self.finish(trace)
        self.assert_sites(trace, {"site_a": [64] * 10})

    def test_a_library_that_was_replaced_is_probed_as_it_is_mapped(self):
        library = shutil.copy(LIBC, self.path("libc.so.6"))
        target = self.target(env={"LD_LIBRARY_PATH": self.directory})
        os.unlink(library)
        shutil.copy(harness.program("plugin_a.so"), library)
        trace = self.trace(target)
        target.do("malloc", "site_a", 10, 64)
        self.finish(trace)
        self.assert_sites(trace, {"site_a": [64] * 10})

    def test_a_target_in_another_mount_namespace_is_probed(self):
        harness.need("unshare")
        script = 'mount -t tmpfs none "$0" && cp "$1" "$0/libc.so.6" && ' \
            'export LD_LIBRARY_PATH="$0" && exec "$2"'
        target = self.target(prefix=("unshare", "-m", "sh", "-c", script, self.directory, LIBC))
        self.assertFalse(os.path.exists(self.path("libc.so.6")))
        trace = Trace(target.pid, self.path("trace.hl"))
        target.do("malloc", "site_a", 10, 64)
        self.finish(trace)
        self.assert_sites(trace, {"site_a": [64] * 10})


class Ends(HeapTest):
    def test_nothing_is_left_when_heapline_is_killed(self):
        for way in WAYS:
            with self.subTest(way):
                target, trace = self.start("--probes", way)
                self.assertGreater(changed_code(target.pid), 0)
                trace.process.kill()
                trace.wait()
                harness.wait_until(lambda: changed_code(target.pid) == 0, "probes to go away")
                target.do("malloc", "site_a", 10, 64)
                self.assertEqual(target.end(), 0)

    def test_nothing_is_left_after_a_trace(self):
        target, trace = self.start()
        self.assertGreater(changed_code(target.pid), 0)
        self.finish(trace)
        self.assertEqual(changed_code(target.pid), 0)

    def test_a_target_that_is_killed_is_reported_up_to_its_end(self):
        target, trace = self.start()
        target.do("malloc", "site_a", 10, 64)
        target.process.kill()
        self.assertEqual(trace.wait(), 0, trace.said())
        self.assertIn("ended before", trace.said())
        self.assertEqual(harness.under(self.kept(trace), "site_a"), 640)

    def test_a_target_that_becomes_another_program_is_reported_up_to_there(self):
        target, trace = self.start()
        target.do("malloc", "site_a", 10, 64)
        target.tell("exec", harness.program("trace_heap"))
        target.expect("ready")
        target.do("malloc", "site_b", 10, 64)
        self.assertEqual(trace.wait(), 0, trace.said())
        stacks = self.kept(trace)
        self.assertEqual(harness.under(stacks, "site_a"), 640, stacks)
        self.assertEqual(harness.under(stacks, "site_b"), 0, stacks)
        warnings = harness.info(trace.recording)["recording"]["warnings"]
        self.assertIn("replaced itself", " ".join(warnings))
        self.assertEqual(changed_code(target.pid), 0)


if __name__ == "__main__":
    harness.main()
