#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Where resident memory lies, in programs whose layout is known: the parts of `heapline heap`."""

import json
import os
import re
import subprocess
import tempfile
import unittest

import harness
from harness import HEAPLINE, Waiting, need, need_root, program, run

BYTES = 48 << 20
SLACK = 2 << 20  # other pages of so small a program

JAVA_KEEPS = """
public class Keeps {
    public static void main(String[] arguments) throws Exception {
        byte[][] kept = new byte[30000][];
        for (int i = 0; i < kept.length; i++) kept[i] = new byte[3000];
        System.gc();
        System.out.println("ready");
        System.in.read();
        System.out.println(kept.length);
    }
}
"""

WEB_ASSEMBLY = """
const memory = new WebAssembly.Memory({initial: 800, maximum: 1000});
new Uint8Array(memory.buffer).fill(1);
console.log("ready");
process.stdin.on("end", () => console.log(memory.buffer.byteLength)).resume();
"""


def read(path):
    with open(path, encoding="ascii") as file:
        return file.read()


def kernel_rss(pid):
    """What smaps_rollup counts, to the page."""
    return int(re.search(r"^Rss:\s+(\d+) kB", read(f"/proc/{pid}/smaps_rollup"), re.M)[1]) << 10


def heap_of(pid):
    result = run([HEAPLINE, "heap", "-p", str(pid), "--json"])
    if result.status:
        raise AssertionError(result.stderr)
    return json.loads(result.stdout)


def parts_of(heap):
    return {row["part"]: row["bytes"] for row in heap["resident"]}


class Parts(unittest.TestCase):
    def read_kind(self, kind, env=None):
        """The parts of a program with 48 MiB of one kind, which are RSS as the kernel has it."""
        with Waiting([program("resident_parts"), kind], env=env) as process:
            heap = heap_of(process.pid)
            self.assertEqual(heap["total"]["rss_bytes"], kernel_rss(process.pid))
        parts = parts_of(heap)
        self.assertEqual(sum(parts.values()), heap["total"]["rss_bytes"])
        return heap, parts

    def expect(self, kind, part):
        heap, parts = self.read_kind(kind)
        self.assertAlmostEqual(parts[part], BYTES, delta=SLACK, msg=parts)
        return heap

    def test_what_was_reserved_first_is_no_stack(self):
        self.expect("reservation", "other anonymous mappings")

    def test_stacks_need_no_guard_pages(self):
        self.expect("threads", "stacks")

    def test_stacks_may_be_memory_of_the_program(self):
        self.expect("own-stacks", "stacks")

    def test_memory_above_a_data_file_is_no_variable(self):
        self.expect("above-a-file", "other anonymous mappings")

    def test_private_data_of_files_are_no_variables(self):
        self.expect("zeros", "private data of files")
        self.expect("private-memfd", "private data of files")

    def test_shared_memory_is_shared(self):
        heap = self.expect("shared-memfd", "shared memory")
        largest = next(row for row in heap["mappings"] if row["part"] == "shared memory")
        self.assertEqual((largest["name"], largest["bytes"]), ("memfd:frames", BYTES))

    def test_a_file_that_is_shared_is_a_file(self):
        """The kernel writes its pages back, and takes them, when it needs memory: it is not what to act on."""
        heap = self.expect("shared-file", "files")
        verdict = next(row["answer"] for row in heap["answers"] if row["question"].startswith("leak"))
        self.assertNotIn("shared memory", verdict)

    def test_the_programs_own_libc_is_read(self):
        self.expect("second-libc", "live blocks")

    def test_what_was_given_back_lazily_is_said(self):
        heap, parts = self.read_kind("lazily")
        self.assertAlmostEqual(parts["other anonymous mappings"], BYTES, delta=SLACK)
        # The kernel may have taken some back by now.
        self.assertLessEqual(heap["beside"]["lazy_free_bytes"], BYTES)
        self.assertGreater(heap["beside"]["lazy_free_bytes"], BYTES // 2)
        self.assertIn("given back by madvise(MADV_FREE)", heap["answers"][0]["answer"])

    def test_huge_pages_are_not_in_rss(self):
        need_root()
        setting = "/proc/sys/vm/nr_hugepages"
        before = read(setting)
        self.addCleanup(lambda: self.set_huge_pages(setting, before))
        self.set_huge_pages(setting, str(2 * BYTES >> 21))
        if int(read(setting)) < 2 * BYTES >> 21:
            raise unittest.SkipTest("no huge pages are free")
        for kind, env in (("huge-pages", None),
                          ("huge-blocks", {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=2"})):
            heap, parts = self.read_kind(kind, env)
            self.assertGreaterEqual(heap["beside"]["huge_page_bytes"], BYTES)
            self.assertLess(sum(parts.values()), 8 << 20, parts)

    @staticmethod
    def set_huge_pages(setting, count):
        with open(setting, "w", encoding="ascii") as file:
            file.write(count)


def rss_of_java_heap(pid):
    """The kernel's figure for the memfd of ZGC; 0: another collector."""
    mapping = re.compile(r"^[0-9a-f]+-[0-9a-f]+ .*java_heap.*\n(?:[A-Z].*\n)*?Rss: +([0-9]+) kB", re.M)
    return sum(int(rss) << 10 for rss in mapping.findall(read(f"/proc/{pid}/smaps")))


class Runtimes(unittest.TestCase):
    def test_java_objects_are_where_the_jvm_says(self):
        """With heaps below 32 GiB and above, and in a memfd: never less than was kept, nor more than NMT says."""
        java, jcmd, javac = need("java"), need("jcmd"), need("javac")
        with tempfile.TemporaryDirectory() as scratch:
            source = os.path.join(scratch, "Keeps.java")
            with open(source, "w", encoding="utf-8") as file:
                file.write(JAVA_KEEPS)
            subprocess.run([javac, "-d", scratch, source], check=True)
            for options in (["-Xmx256m", "-XX:+UseSerialGC"], ["-Xmx33g"],
                            ["-Xmx256m", "-XX:-UseCompressedOops"], ["-Xmx256m", "-XX:+UseZGC"]):
                with self.subTest(options=options):
                    self.check_java([java, *options, "-XX:NativeMemoryTracking=summary", "-cp",
                                     scratch, "Keeps"], jcmd)

    def check_java(self, command, jcmd):
        with Waiting(command) as process:
            before = rss_of_java_heap(process.pid)
            parts = parts_of(heap_of(process.pid))
            rss = max(before, rss_of_java_heap(process.pid))
            told = subprocess.run([jcmd, str(process.pid), "VM.native_memory", "summary"],
                                  check=True, capture_output=True, encoding="utf-8").stdout
        kept = 30000 * 3000
        committed = int(re.search(r"Java Heap \(reserved=\d+KB, committed=(\d+)KB", told)[1]) << 10
        stacks = int(re.search(r"\(stack: reserved=\d+KB, committed=(\d+)KB", told)[1]) << 10
        self.assertGreater(parts["Java objects (the JVM's heap)"], kept)
        # ZGC maps its heap, a memfd, at three addresses: RSS counts a page once for each that used it.
        self.assertLessEqual(parts["Java objects (the JVM's heap)"], rss + SLACK if rss else committed)
        self.assertAlmostEqual(parts["stacks"], stacks, delta=1 << 20)
        self.assertLess(parts["likely the JVM's metaspace and GC"], kept // 2)

    def test_the_archive_of_classes_is_not_the_answer_of_a_fresh_jvm(self):
        """It is mapped privately, and relocated as the machine starts: most of its pages are the process' own then."""
        java, javac = need("java"), need("javac")
        with tempfile.TemporaryDirectory() as scratch:
            with open(os.path.join(scratch, "Keeps.java"), "w", encoding="utf-8") as file:
                file.write(JAVA_KEEPS.replace("30000", "3"))
            subprocess.run([javac, "-d", scratch, os.path.join(scratch, "Keeps.java")], check=True)
            for options in (["-Xshare:auto"], ["-Xshare:auto", "-XX:+UseSerialGC"], ["-Xshare:off"]):
                with self.subTest(options=options), Waiting([java, *options, "-Xmx64m", "-cp", scratch, "Keeps"]) as process:
                    heap = heap_of(process.pid)
                verdict = next(row["answer"] for row in heap["answers"] if row["question"].startswith("leak"))
                parts = {part: size for part, size in parts_of(heap).items() if "files" not in part}
                self.assertNotIn("private data of files", verdict)
                self.assertIn(max(parts, key=parts.get), verdict)

    def test_memory_of_web_assembly_is_neither_stack_nor_object(self):
        with Waiting([need("node"), "-e", WEB_ASSEMBLY]) as process:
            parts = parts_of(heap_of(process.pid))
        self.assertAlmostEqual(parts["other anonymous mappings"], 800 << 16, delta=2 << 20)
        self.assertLess(parts["stacks"], 2 << 20)

    def test_the_heap_of_sbcl_is_no_variable(self):
        keeps = ("(progn (defvar *kept* (loop for i below 500000 collect (make-array 12)))"
                 " (format t \"ready~%\") (finish-output) (read-line *standard-input* nil))")
        with Waiting([need("sbcl"), "--noinform", "--no-userinit", "--disable-debugger", "--eval",
                      keeps, "--quit"]) as process:
            parts = parts_of(heap_of(process.pid))
        self.assertGreater(parts["other anonymous mappings"], 500000 * 13 * 8)
        self.assertLess(parts["variables of program and libraries"], 2 << 20)


if __name__ == "__main__":
    harness.main()
