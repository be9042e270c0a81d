#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Heaps of running programs through heapline's own reports: heap, carriers, allocations, pins."""

import glob
import json
import os
import re
import signal
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

import attaching
import harness
from harness import HEAPLINE, Waiting, need, program, run
from test_terminal import on_terminal

PYTHON_KEEPS = """
import sys
kept = [("x%d" % i) * 3 for i in range(100000)]
large = bytearray(5 << 20)
print("ready", flush=True)
sys.stdin.read()
"""

# The shared mapping lies right below the private one, as a file's data lie below its .bss.
MAPPED_BESIDE_SHARED = """
import mmap, sys
private = mmap.mmap(-1, 40 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
private.write(b"x" * (40 << 20))
shared = mmap.mmap(-1, 1 << 20)
print("ready", flush=True)
sys.stdin.read()
"""

NODE_KEEPS = """
const kept = [];
for (let i = 0; i < 1500000; i++) kept.push({number: i, text: "x" + i});
console.log("ready");
process.stdin.on("end", () => console.log(kept.length)).resume();
"""
JAVA_KEEPS = """
public class Keeps {
    public static void main(String[] arguments) throws Exception {
        byte[][] kept = new byte[30000][];
        for (int i = 0; i < kept.length; i++) kept[i] = new byte[3000];
        System.out.println("ready");
        System.in.read();
        System.out.println(kept.length);
    }
}
"""


def waiting_python(*prefix, **options):
    return Waiting([*prefix, need("python3"), "-c", PYTHON_KEEPS],
                   env={"PYTHONMALLOC": "malloc"}, **options)


def program_of(recorder):
    """Its number, once it waits: what it does before that may change its heap."""
    pid, = harness.children_of(recorder.pid)
    harness.wait_until(lambda: harness.process_state(pid) == "S", "the program to wait")
    return pid


def ask(verb, pid, *options):
    result = run([HEAPLINE, verb, "-p", str(pid), "--json", *options])
    if result.status:
        raise AssertionError(result.stderr)
    return json.loads(result.stdout)


def resident_bytes(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
        return int(re.search(r"^Rss:\s+(\d+) kB", rollup.read(), re.M)[1]) * 1024


class Heaps(unittest.TestCase):
    def test_the_parts_of_resident_memory_are_its_sum(self):
        with waiting_python() as python:
            heap = ask("heap", python.pid)
            rss = resident_bytes(python.pid)
        self.assertEqual(heap["total"]["rss_bytes"], rss)
        self.assertEqual(sum(part["bytes"] for part in heap["resident"]), rss)
        self.assertGreater(heap["total"]["inuse_blocks"], 100000)
        total = heap["total"]
        self.assertGreaterEqual(total["mmapped_bytes"], 5 << 20)
        for figures in total, *heap["rows"]:
            self.assertEqual(figures["system_bytes"], sum(figures[f"{part}_bytes"] for part in (
                "inuse", "tcache", "fastbin", "free", "unscanned", "overhead")))
            self.assertGreaterEqual(figures["free_bytes"], figures["top_bytes"])
            self.assertGreaterEqual(figures["free_bytes"], figures["free_resident_bytes"])

    def test_reading_a_heap_changes_nothing_in_the_process(self):
        with waiting_python() as python:
            before = resident_bytes(python.pid)
            for verb in ("heap", "carriers", "allocations", "pins"):
                ask(verb, python.pid)
            self.assertEqual(resident_bytes(python.pid), before)

    def test_narrow_terminals_show_what_carriers_hold_rather_than_where_they_are(self):
        with waiting_python() as python:
            written, status = on_terminal([HEAPLINE, "carriers", "--no-pager", "-p", str(python.pid)],
                                          columns=40)
        self.assertEqual(status, 0)
        self.assertRegex(written, r"(?m)^allocator +total +in use$")
        self.assertNotIn("0x", written)

    def test_stopped_or_not_a_program_that_waits_has_one_heap(self):
        with waiting_python() as python:
            running, stopped = ask("heap", python.pid), ask("heap", python.pid, "--stop")
            with open(f"/proc/{python.pid}/status", encoding="utf-8") as status:
                self.assertRegex(status.read(), r"TracerPid:\s+0\n")
        self.assertEqual(running["total"], stopped["total"])
        self.assertTrue(stopped["stopped"])

    def expect_outside(self, command, part, least, env=None, shown_by="'heapline pgfault -p {} 60'"):
        """Most of a program's memory is not malloc's, and has a name."""
        with Waiting(command, env=env) as process:
            heap = ask("heap", process.pid)
        parts = {row["part"]: row["bytes"] for row in heap["resident"]}
        self.assertEqual(sum(parts.values()), heap["total"]["rss_bytes"])
        named = next(size for name, size in parts.items() if name.startswith(part))
        self.assertGreater(named, least, parts)
        verdict = heap["answers"][0]["answer"]
        self.assertIn(part, verdict)
        self.assertIn(shown_by.format(process.pid), verdict)

    def test_objects_of_python_have_a_name(self):
        self.expect_outside([need("python3"), "-c", PYTHON_KEEPS.replace("100000", "600000")],
                            "Python objects", 30 << 20, env={"PYTHONMALLOC": ""},
                            shown_by="'heapline attach -p {} -d 60'")

    def test_memory_beside_a_shared_mapping_is_not_a_files(self):
        self.expect_outside([need("python3"), "-c", MAPPED_BESIDE_SHARED], "other anonymous", 39 << 20)

    def test_objects_of_node_have_a_name(self):
        self.expect_outside([need("node"), "-e", NODE_KEEPS], "JavaScript objects", 30 << 20,
                            shown_by="V8's own heap snapshots")

    def test_objects_of_java_have_a_name(self):
        with tempfile.TemporaryDirectory() as scratch:
            source = os.path.join(scratch, "Keeps.java")
            with open(source, "w", encoding="utf-8") as file:
                file.write(JAVA_KEEPS)
            self.expect_outside([need("java"), "-Xmx512m", source], "Java objects", 60 << 20,
                                shown_by="'jcmd {} GC.class_histogram' lists Java objects by class")

    def test_parts_of_java_are_those_that_it_tracks_itself(self):
        java, jcmd = need("java"), need("jcmd")
        with tempfile.TemporaryDirectory() as scratch:
            source = os.path.join(scratch, "Keeps.java")
            with open(source, "w", encoding="utf-8") as file:
                file.write(JAVA_KEEPS)
            for collector, error in ("Serial", 0), ("Parallel", 0), ("G1", 1 << 20):
                with Waiting([java, "-Xms256m", "-Xmx256m", "-XX:+AlwaysPreTouch", f"-XX:+Use{collector}GC",
                                      "-XX:NativeMemoryTracking=summary", source]) as process:
                    parts = {row["part"]: row["bytes"] for row in ask("heap", process.pid)["resident"]}
                    tracked = harness.run([jcmd, str(process.pid), "VM.native_memory", "summary"]).stdout
                for part, words in ("Java objects (the JVM's heap)", "Java Heap"), ("code made at run time (JIT)", "Code"):
                    committed = int(re.search(fr"-\s+{words} \(reserved=\d+KB, committed=(\d+)KB", tracked)[1]) << 10
                    allowed = error if words == "Java Heap" else committed // 10
                    self.assertLessEqual(abs(parts[part] - committed), allowed, (collector, part))

    def test_a_recorders_memory_is_no_heap(self):
        with tempfile.TemporaryDirectory() as scratch:
            command = [HEAPLINE, "record", "-q", "-o", os.path.join(scratch, "r.hl"), "--"]
            with waiting_python(*command) as recorder:
                python = program_of(recorder)
                heap, carriers = ask("heap", python), ask("carriers", python)
        total = heap["total"]
        self.assertGreater(total["resident_recorder_bytes"], 1 << 20)
        self.assertEqual(total["mmapped_unlocated_bytes"], 0, heap["notes"])
        self.assertEqual(total["mmapped_bytes"],
                         sum(row["total_bytes"] for row in carriers["rows"]
                             if row["type"] == "mmapped chunk"))

    def test_carriers_add_up_to_the_heap(self):
        with waiting_python() as python:
            heap, carriers = ask("heap", python.pid), ask("carriers", python.pid)
        self.assertEqual(carriers["total"]["inuse_blocks"],
                         heap["total"]["inuse_blocks"] + heap["total"]["mmapped_blocks"])
        for key in "free_bytes", "free_resident_bytes":
            self.assertEqual(carriers["total"][key], heap["total"][key])
        self.assertEqual(max(row["largest_free_bytes"] for row in carriers["rows"]),
                         heap["total"]["largest_free_bytes"])

    def test_carriers_are_drawn(self):
        with tempfile.TemporaryDirectory() as scratch, waiting_python() as python:
            picture = os.path.join(scratch, "carriers.svg")
            result = run([HEAPLINE, "carriers", "-p", str(python.pid), "-o", picture])
            self.assertEqual(result.status, 0, result.stderr)
            root = xml.etree.ElementTree.parse(picture).getroot()
        self.assertTrue(root.tag.endswith("svg"))

    def test_the_name_of_the_output_chooses_the_form(self):
        with tempfile.TemporaryDirectory() as scratch, waiting_python() as python:
            for verb in "heap", "carriers", "allocations", "pins":
                named = os.path.join(scratch, f"{verb}.json")
                result = run([HEAPLINE, verb, "-p", str(python.pid), "-o", named])
                self.assertEqual(result.status, 0, result.stderr)
                with open(named, encoding="utf-8") as file:
                    self.assertTrue(json.load(file)["schema"].startswith(f"heapline/{verb}/"))
                table = os.path.join(scratch, f"{verb}.csv")
                result = run([HEAPLINE, verb, "-p", str(python.pid), "-o", table])
                self.assertEqual(result.status, 2)
                self.assertIn(f"'{verb}' writes no CSV", result.stderr)

    def test_what_was_kept_is_compared_and_limited(self):
        with tempfile.TemporaryDirectory() as scratch, waiting_python() as python:
            first, second = os.path.join(scratch, "1"), os.path.join(scratch, "2")
            for path in (first, second):
                result = run([HEAPLINE, "heap", "-p", str(python.pid), "--save", path])
                self.assertEqual(result.status, 0, result.stderr)
            limited = run([HEAPLINE, "heap", "-p", str(python.pid), "--fail-above", "rss=1M",
                           "--fail-above", "rss=100G"])
            grown = run([HEAPLINE, "heap", "--diff", first, second, "--fail-above", "rss=1M"])
            again = run([HEAPLINE, "heap", "-p", str(python.pid), "--save", first])
        self.assertEqual(limited.status, 3)
        self.assertIn("rss_bytes is", limited.stderr)
        self.assertEqual(grown.status, 0, grown.stderr)
        self.assertIn("\nRSS ", grown.stdout)
        self.assertEqual(again.status, 1)

    def test_watching_ends_with_the_process(self):
        with waiting_python() as python:
            watcher = subprocess.Popen([HEAPLINE, "heap", "-p", str(python.pid), "--json",
                                        "--watch", "1"], stdout=subprocess.PIPE, text=True)
            first = watcher.stdout.readline()
        with watcher.stdout:
            text = first + watcher.stdout.read()
        self.assertEqual(watcher.wait(harness.TIMEOUT_S), 0)
        self.assertIn("heapline/heap/1", text)

    def test_a_process_that_cannot_be_read_is_an_error_with_a_reason(self):
        for arguments, reason in (
                (["-p", "2147483646"], "no process"),
                (["--core", "/dev/null"], "core"),
                (["--core", "/nonexistent/core"], "cannot open"),
        ):
            result = run([HEAPLINE, "heap", *arguments])
            self.assertEqual((result.status, result.stdout), (1, ""))
            self.assertIn(reason, result.stderr)
        harness.need_other_user(65534)
        with waiting_python() as python:
            result = run([HEAPLINE, "heap", "-p", str(python.pid)], user=65534, group=65534,
                         extra_groups=[])
        self.assertEqual(result.status, 1)
        self.assertIn("CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH", result.stderr)


PYTHON_ALLOCATES = """
import sys, threading
kept = [b"x" * (i % 900) for i in range(50000)]
del kept[::3]
def allocate():
    while True:
        [b"y" * size for size in range(100)]
threading.Thread(target=allocate, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


class Slabs(unittest.TestCase):
    """What allocators say of themselves, asked through a recorder in the process."""

    def ask_python(self, library, mode="mem-fast"):
        paths = sorted(glob.glob(f"/usr/lib/x86_64-linux-gnu/lib{library}.so.*"))
        if not paths:
            self.skipTest(f"lib{library} is not installed")
        with tempfile.TemporaryDirectory() as scratch:
            recording = os.path.join(scratch, "r.hl")
            command = [HEAPLINE, "record", "-q", "--mode", mode, "-o", recording, "--",
                       need("python3"), "-c", PYTHON_ALLOCATES]
            with Waiting(command, env={"PYTHONMALLOC": "malloc",
                                       "LD_PRELOAD": paths[0]}) as recorder:
                python = program_of(recorder)
                return ask("carriers", python, "--ask")

    def expect_slabs(self, found):
        rows = found["rows"]
        self.assertGreater(sum(row["used_blocks"] for row in rows), 33000)
        self.assertGreater(found["total"]["inuse_bytes"], 33000 * 400)
        for row in rows:
            self.assertLessEqual(row["used_blocks"], row["blocks"])
            self.assertLessEqual(row["full_slabs"], row["slabs"])
        occupied = {part["from_percent"]: part["bytes"] for part in found["occupancy"]}
        # Every third block was freed: two thirds of most slabs are in use.
        self.assertEqual(max(occupied, key=occupied.get), 62)

    def test_jemalloc_tells_how_full_its_slabs_are(self):
        found = self.ask_python("jemalloc")
        self.assertEqual(found["allocator"], "jemalloc")
        self.expect_slabs(found)

    def test_mimalloc_tells_of_the_heap_of_a_thread(self):
        found = self.ask_python("mimalloc", mode="mem-record")
        self.assertEqual(found["allocator"], "mimalloc")
        self.assertEqual(len(found["occupancy"]), 8)

    def test_tcmalloc_tells_its_sums(self):
        found = self.ask_python("tcmalloc_minimal", mode="log-fast")
        self.assertEqual(found["allocator"], "tcmalloc")
        self.assertGreater(found["total"]["inuse_bytes"], 33000 * 400)

    def test_without_a_recorder_nobody_can_be_asked(self):
        with waiting_python() as python:
            result = run([HEAPLINE, "carriers", "--ask", "-p", str(python.pid)])
        self.assertEqual(result.status, 1)
        self.assertIn("only jemalloc, mimalloc and tcmalloc can be asked", result.stderr)

    def test_a_program_that_allocates_nothing_is_not_waited_for_without_end(self):
        with tempfile.TemporaryDirectory() as scratch:
            recording = os.path.join(scratch, "r.hl")
            with waiting_python(HEAPLINE, "record", "-q", "-o", recording, "--") as recorder:
                python = program_of(recorder)
                result = run([HEAPLINE, "carriers", "--ask", "-p", str(python)])
        self.assertEqual(result.status, 1)
        self.assertIn("answers when it allocates", result.stderr)


class JoinedSlabs(attaching.TestCase):
    """The same, where the recorder comes into a process that runs."""

    def ask(self, library):
        paths = sorted(glob.glob(f"/usr/lib/x86_64-linux-gnu/lib{library}.so.*"))
        if not paths:
            self.skipTest(f"lib{library} is not installed")
        with Waiting([need("python3"), "-c", PYTHON_ALLOCATES],
                     env={"PYTHONMALLOC": "malloc", "LD_PRELOAD": paths[0]}) as python:
            with self.attached(python.pid) as attach:
                answer = run([HEAPLINE, "carriers", "--json", "--ask", "-p", str(python.pid)], env=self.environment)
                attach.send_signal(signal.SIGINT)
            self.assertEqual(answer.status, 0, answer.stderr)
            found = json.loads(answer.stdout)
            self.assertIsNone(python.poll())
        return found["allocator"], found["total"]["inuse_bytes"]

    def test_jemalloc_answers(self):
        allocator, inuse_bytes = self.ask("jemalloc")
        self.assertEqual(allocator, "jemalloc")
        self.assertGreater(inuse_bytes, 33000 * 400)

    def test_mimalloc_answers(self):
        self.assertEqual(self.ask("mimalloc")[0], "mimalloc")  # of the thread that answers

    def test_tcmalloc_answers(self):
        allocator, inuse_bytes = self.ask("tcmalloc_minimal")
        self.assertEqual(allocator, "tcmalloc")
        self.assertGreater(inuse_bytes, 33000 * 400)


class Owners(unittest.TestCase):
    def test_tags_tell_libraries_functions_and_what_the_program_says(self):
        with Waiting([HEAPLINE, "record", "--tags", "--", program("tagged"), "wait"]) as tagged:
            found = ask("allocations", tagged.pid)
        self.assertEqual(found["source"], "tags")
        # The loader has a block of that time, too, for the thread that was made then.
        outer = [row for row in found["rows"]
                 if row["type"] == "outer" and row["origin"] == "tagged"]
        self.assertEqual([row["inuse_blocks"] for row in outer], [1])
        self.assertGreaterEqual(outer[0]["inuse_bytes"], 5000)
        self.assertLess(outer[0]["inuse_bytes"], 5016)

    def test_nearly_every_block_of_python_has_a_tag(self):
        with waiting_python(HEAPLINE, "record", "--tags", "--") as python:
            found = ask("allocations", python.pid)
        self.assertLessEqual(found["unknown"]["inuse_blocks"], 3)
        self.assertGreater(sum(row["inuse_blocks"] for row in found["rows"]), 100000)

    def test_without_either_sizes_are_shown_and_the_way_to_more(self):
        with waiting_python() as python:
            found = ask("allocations", python.pid)
        self.assertEqual(found["source"], "none")
        self.assertIn("record --tags", " ".join(found["notes"]))
        self.assertEqual(len(found["rows"]), 1)

    def expect_recorder_to_agree(self, mode):
        """What is read from outside is what the recording has in use in the end."""
        with tempfile.TemporaryDirectory() as scratch:
            recording = os.path.join(scratch, "r.hl")
            command = [HEAPLINE, "record", "-q", "--mode", mode, "-o", recording,
                       "--"]
            with waiting_python(*command) as recorder:
                python = program_of(recorder)
                found = ask("allocations", python)
                os.kill(python, signal.SIGKILL)
                recorder.wait(harness.TIMEOUT_S)
            top = json.loads(run([HEAPLINE, "top", "--json", "--value", "inuse", "--by", "module",
                                  "-n", "0", recording]).stdout)
        by_library = {}
        for row in found["rows"]:
            blocks, size = by_library.get(row["origin"], (0, 0))
            by_library[row["origin"]] = (blocks + row["inuse_blocks"],
                                         size + row["inuse_bytes"])
        recorded = {os.path.basename(row["name"]): (row["flat_objects"], row["flat_bytes"])
                    for row in top["rows"] if row["flat_objects"]}
        self.assertEqual(found["source"], "recorder")
        self.assertEqual(by_library, recorded)

    def test_a_recorders_array_is_what_its_recording_says(self):
        self.expect_recorder_to_agree("mem-fast")

    def test_a_recorders_hash_is_what_its_recording_says(self):
        self.expect_recorder_to_agree("mem-record")


if __name__ == "__main__":
    harness.main()
