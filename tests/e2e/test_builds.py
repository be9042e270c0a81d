# SPDX-License-Identifier: BSD-2-Clause
"""A program with known stacks, compiled and linked in every way that compilers and linkers of these releases have."""

import os
import re
import shutil
import signal
import subprocess
import sys

import attaching
import harness
from harness import HEAPLINE

SOURCE = os.path.join(harness.SOURCES, "builds.c")
COROUTINES = os.path.join(harness.SOURCES, "builds_coroutines.cc")
STACK = ("main", "work", "middle", "leaf")
BLOCKS, BYTES = 1000, 77000
STARTUP_STACKS = 2
POOL_KEPT = 300
COMPILERS = ("gcc", "clang")
USUAL = ("-O2", "-g")

# Kinds of debug information, by options of compilers.
DEBUG = {
    "DWARF 4": "-gdwarf-4",
    "DWARF 5": "-gdwarf-5",
    "DWARF in files of their own": "-gsplit-dwarf",
    "compressed by zlib": "-gz=zlib",
    "compressed by zstd": "-gz=zstd",
    "types apart": "-fdebug-types-section",
}
# Kinds of code.
CODE = {
    "optimized at link time": "-flto",
    "static": "-static",
    "static and relocated": "-static-pie",
    "not relocated": "-no-pie",
    "frame pointers": "-fno-omit-frame-pointer -mno-omit-leaf-frame-pointer",
    "not optimized": "-O0",
    "entries for indirect calls": "-fcf-protection=full",
    "entries for indirect calls where the source says so": "-fcf-protection=full -mmanual-endbr",
    "entries to be patched": "-fpatchable-function-entry=16",
    "entries to be patched, in part before the function": "-fpatchable-function-entry=12,5",
    "entries for ftrace": "-pg -mfentry -mnop-mcount -fno-pic -no-pie",
    "hardened": "-fhardened -O2",
    "checked stacks": "-fstack-protector-all -fstack-clash-protection",
    "zeroed registers": "-fzero-call-used-regs=used",
    "far code": "-mcmodel=large",
    "SFrame beside": "-Wa,--gsframe",
}
# Kinds of files.
LINKED = {
    "without unused parts": "-freorder-blocks-and-partition -ffunction-sections -Wl,--gc-sections",
    "packed relocations": "-Wl,-z,pack-relative-relocs",
    "no PLT": "-fno-plt -Wl,-z,now",
    "lazy PLT": "-Wl,-z,lazy",
    "marked PLT": "-Wl,-z,mark-plt",
    "code beside data": "-Wl,-z,noseparate-code",
    "no build id": "-Wl,--build-id=none",
    "old hash table": "-Wl,--hash-style=sysv",
    "by lld": "-fuse-ld=lld",
    "by lld, packed": "-fuse-ld=lld -Wl,-z,pack-relative-relocs,--icf=all",
    "by mold": "-fuse-ld=mold",
    "by mold, packed": "-fuse-ld=mold -Wl,-z,pack-relative-relocs,--icf=all",
}
# Without lines: elfutils up to 0.196 reads none from the 64-bit DWARF of clang 19 and later.
BARE = {
    "64-bit DWARF 5": "-gdwarf-5 -gdwarf64",
    "no section headers": "-Wl,-z,nosectionheader -rdynamic",
    "exported names alone": "-g0 -s -rdynamic",
}


class Builds(attaching.TestCase):
    def build(self, compiler, options, name="program", source=SOURCE):
        """The program; None where the compiler, or its linker, does not know the options."""
        program = self.path(name)
        # Some options write files beside.
        made = harness.run([compiler, *USUAL, *options.split(), "-o", program, source], cwd=self.directory)
        return program if made.status == 0 and "unused" not in made.stderr else None

    def each(self, kinds, check, compilers=COMPILERS):
        """Has each kind built by each compiler, and calls check(program); says which cannot be built here."""
        compilers, others = [name for name in compilers if shutil.which(name)], []
        if not compilers:
            self.skipTest("neither gcc nor clang is here")
        for compiler in compilers:
            for what, options in kinds.items():
                program = self.build(compiler, options)
                if not program:
                    others.append(f"{compiler} {options}")
                    continue
                with self.subTest(what, compiler=compiler):
                    check(program)
        if others:
            print("not built here: " + "; ".join(others), file=sys.stderr)

    def assert_stacks(self):
        """Those of leaf() are what the source says, and complete."""
        found = {}
        for frames, number in harness.folded(self.recording, "alloc", "objects").items():
            names = tuple(re.split(r"[.( ]", frame)[0] for frame in frames)
            if "leaf" in names:
                key = names[names.index("main") if "main" in names else 0:]
                found[key] = found.get(key, 0) + number
        self.assertEqual(found, {STACK: BLOCKS})
        lost = {what: number for what, number in harness.info(self.recording)["lost"].items() if number}
        # Of startup code without rules: frame_dummy() of static programs, and _init() with -pg.
        self.assertLessEqual(lost.pop("incomplete_stacks", 0), STARTUP_STACKS)
        self.assertEqual(lost, {})
        row = harness.top_rows(self.recording, "alloc")["leaf"]
        self.assertEqual((row["flat_objects"], row["flat_bytes"]), (BLOCKS, BYTES))

    def assert_lines(self):
        with open(SOURCE, encoding="ascii") as source:
            line, = (number for number, text in enumerate(source, 1) if "// = " in text)
        lines = {(os.path.basename(row["file"]), row["line"]): row["flat_bytes"] for row in harness.report(
            "top", self.recording, "--by", "line", "--value", "alloc", "-n", "0")["rows"]}
        self.assertEqual(lines.get((os.path.basename(SOURCE), line)), BYTES)

    def assert_recorded(self, program):
        self.record_well([program], options=["-f"])
        self.assert_stacks()

    def test_every_kind_is_recorded(self):
        def check(program):
            self.assert_recorded(program)
            self.assert_lines()
        self.each({**DEBUG, **CODE, **LINKED}, check)
        self.each(BARE, self.assert_recorded)

    def test_every_kind_of_code_is_joined(self):
        def check(program):
            with harness.Waiting([program, "done"]) as process, \
                    self.attached(process.pid, "--hook=malloc=pool_alloc", "--hook=free=pool_free") as attach:
                self.go(process)
                attach.send_signal(signal.SIGINT)
            self.assert_stacks()
            rows = harness.top_rows(self.recording, "inuse")
            self.assertEqual(rows["work"]["flat_objects"], POOL_KEPT)
        self.each({**CODE, **LINKED, **BARE}, check)

    def go(self, process):
        process.stdin.write("go\n")
        process.stdin.flush()
        self.assertEqual(process.stdout.readline().strip(), "done")

    def test_every_kind_of_code_is_traced(self):
        def check(program):
            with harness.Waiting([program, "done"]) as process:
                trace = subprocess.Popen(
                    [HEAPLINE, "stacks", "--all", "-p", str(process.pid), "--verbose", "-f", "-o", self.recording],
                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                self.addCleanup(trace.kill)
                said = ""
                while "counting, by" not in said:
                    said = trace.stderr.readline()
                    if not said:
                        self.skipTest("processes cannot be traced here")
                self.go(process)
                trace.send_signal(signal.SIGINT)
                said = trace.communicate(timeout=harness.TIMEOUT_S)[1]
            self.assertEqual(trace.returncode, 0, said)
            self.assert_stacks()
        self.each({**CODE, **BARE}, check, COMPILERS[:1])

    def test_coroutines_have_their_functions_and_callers(self):
        for compiler in "g++", "clang++":
            if not shutil.which(compiler):
                continue
            with self.subTest(compiler):
                program = self.build(compiler, "-std=c++20", source=COROUTINES)
                if not program:
                    self.skipTest(f"{compiler} knows no C++20")
                self.record_well([program], options=["-f"])
                found = {}
                for frames, number in harness.folded(self.recording, "alloc", "objects").items():
                    names = tuple(re.split(r"[.(]", frame)[0] for frame in frames
                                  if "coroutine_handle<" not in re.split(r"[(]", frame)[0])
                    if "main" in names:
                        key = names[names.index("main"):]
                        found[key] = found.get(key, 0) + number
                self.assertEqual(found, {("main", "resume_all", "count_down", "leaf"): 1000,
                                         ("main", "count_down", "operator new"): 50})
                self.assert_nothing_lost(self.recording)

    def test_code_with_sframe_alone_is_cut_and_said(self):
        """What .sframe says is not read: the stacks are incomplete, and never wrong."""
        compiler, objcopy = harness.need("gcc"), harness.need("objcopy")
        part = self.build(compiler, "-Wa,--gsframe -c", name="part.o")
        if not part:
            self.skipTest("this assembler makes no .sframe")
        changed = harness.run([objcopy, "-R", ".eh_frame", "-R", ".rela.eh_frame", part])
        self.assertEqual(changed.status, 0, changed.stderr)
        program = self.build(compiler, "", source=part)
        self.record_well([program], options=["-f"])
        stacks = {frames: number for frames, number in harness.folded(self.recording, "alloc", "objects").items()
                  if "leaf" in frames}
        self.assertEqual(stacks, {("leaf",): BLOCKS})
        self.assertGreaterEqual(harness.info(self.recording)["lost"]["incomplete_stacks"], BLOCKS)


if __name__ == "__main__":
    harness.main()
