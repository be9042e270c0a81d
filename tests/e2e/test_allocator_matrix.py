#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Each live verb answers for a program with each allocator, plain, recorded and attached: what it
says equals the program's ledger, or it refuses with a reason and a command that works."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import time

import attaching
import harness
from harness import HEAPLINE, run

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
SHARED = (("jemalloc", "libjemalloc.so.2"), ("mimalloc", "libmimalloc.so.2"), ("mimalloc", "libmimalloc.so.3"),
          ("tcmalloc", "libtcmalloc_minimal.so.4"))
BUILT_IN = {"jemalloc": ("allocator_ledger_jemalloc", "allocator_ledger_jemalloc_no_pie"),
            "mimalloc": ("allocator_ledger_mimalloc",), "tcmalloc": ("allocator_ledger_tcmalloc",)}
WALKED = ("jemalloc", "mimalloc", "tcmalloc")  # from outside, as glibc's heap is
VERBS = (["heap"], ["carriers"], ["carriers", "--ask"], ["pins"], ["allocations"], ["leaks"],
         ["holders"], ["services"], ["doctor"], ["top"], ["live", "--once"])
QUICK = ("heap", "carriers", "pins", "allocations", "leaks", "holders", "doctor", "live")


class Program:
    """The ledger, which has said "ready"; ``live`` is what it has kept since then."""

    def __init__(self, command, env=None):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True,
                                        env=dict(os.environ, **(env or {})))
        self.pid = self.process.pid
        self.read()

    def read(self):
        for line in self.process.stdout:
            words = line.split()
            if words[0] == "live":
                self.blocks, self.requested, self.usable = map(int, words[1:])
            if words == ["ready"]:
                return
        raise AssertionError("the program ended")

    def go_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(harness.TIMEOUT_S)


class Matrix(attaching.TestCase):
    @contextlib.contextmanager
    def in_state(self, state, name, env, *arguments):
        """The program, whose ledger is of what a recorder has seen, if there is one."""
        command = [harness.program(name), *arguments]
        if state == "recorded":
            env = dict(env or {}, **self.environment)
            with Program(harness.record_command(self.path("r.hl"), command), env) as program:
                [program.pid] = harness.children_of(program.process.pid)
                yield program
            return
        with Program(command, env) as program:
            if state == "plain":
                yield program
                return
            with self.attached(program.pid) as attach:
                program.go_on()
                yield program
                attach.send_signal(2)

    def each(self, name, env=None):
        for state in "plain", "recorded", "attached":
            with self.subTest(program=name, state=state, **(env or {})):
                with self.in_state(state, name, env) as program:
                    yield state, program

    def ask(self, program, *verb, status=0):
        result = run([HEAPLINE, *verb, "--json", "-p", str(program.pid)], env=self.environment)
        self.assertEqual(result.status, status, (verb, result.stdout, result.stderr))
        return json.loads(result.stdout) if status == 0 else result.stderr

    def says(self, program):
        """What doctor says of the allocator."""
        report = self.ask(program, "doctor")
        return {row["way"]: (row["works"], row["reason"].partition(";")[0])
                for row in report["rows"] if row["way"] in ("heap", "heap --stop")}

    def expect_ledger(self, program):
        """Of an allocator that cannot be walked a recorder knows what it has seen: requested bytes."""
        owners = self.ask(program, "allocations")
        rows = [row for row in owners["rows"] if row["type"] in ("by_malloc", "by_calloc")]
        self.assertEqual((sum(row["inuse_blocks"] for row in rows),
                          sum(row["inuse_bytes"] for row in rows)),
                         (program.blocks, program.requested))
        everything = (owners["total"]["inuse_blocks"], owners["total"]["inuse_bytes"])
        for verb in "leaks", "holders":
            report = self.ask(program, verb)
            self.assertIn("by the recorder's table: requested bytes", report["allocator"])
            total = report["total"]
            self.assertEqual((total["live_blocks"], total["live_bytes"]), everything, verb)
        self.assertEqual(total["selected_bytes"], total["live_bytes"])

        def counted():
            total = self.ask(program, "top")["total"]
            return total["inuse_blocks"], total["inuse_bytes"]

        # The recording is saved once a second.
        harness.wait_until(lambda: counted() == everything, f"{everything} in 'top', which has {counted()}")

    def expect_heap(self, state, program):
        """The parts add up to what the kernel says; with a recorder the live ones are those in RAM."""
        heap = self.ask(program, "heap")
        parts = {row["part"]: row["bytes"] for row in heap["resident"]}
        self.assertEqual(sum(parts.values()), heap["total"]["rss_bytes"])
        verdict = heap["answers"][0]["answer"]
        if state == "plain":
            self.assertEqual(parts["live blocks"], 0)
            self.assertGreater(parts["other allocators"], program.requested)
            self.assertRegex(verdict, r"unknown: .* 'heapline stacks -p \d+ 60'")
            return
        # Each of its bytes was written to.
        self.assertLess(abs(parts["live blocks"] - program.requested), program.requested // 20, parts)
        self.assertRegex(verdict, r"'heapline allocations -p \d+'")
        # A program that is recorded from its start has no block that the recorder does not know.
        self.assertEqual("older blocks" in verdict, state == "attached", verdict)

    def expect_answers(self, state, program):
        """Status 0, or a refusal with a reason and commands that can be run; no status of a signal."""
        for verb in (*VERBS, ["stacks", "0.2"]) if os.geteuid() == 0 else VERBS:
            if "--ask" in verb and state == "recorded":
                continue  # it would answer when it allocates next
            result = run([HEAPLINE, *verb, "-p", str(program.pid)], env=self.environment)
            self.assertIn(result.status, (0, 1), (verb, result.stderr))
            if result.status == 0:
                continue
            self.assertEqual(result.stdout, "", verb)
            commands = re.findall(r"'heapline ([a-z]+)((?: -p \d+)?)((?: --ask)?)[^']*'", result.stderr)
            self.assertTrue(commands, (verb, result.stderr))
            for name, target, ask in commands:
                if name in QUICK and target and not ask:
                    works = run([HEAPLINE, name, *target.split()], env=self.environment)
                    self.assertEqual(works.status, 0, (verb, name, works.stderr))

    def variants(self, walked):
        """Of allocators that are walked or not: name, program, environment."""
        for allocator, library in SHARED:
            if os.path.exists(f"{LIBRARIES}/{library}") and (allocator in WALKED) == walked:
                yield allocator, "allocator_ledger", {"LD_PRELOAD": f"{LIBRARIES}/{library}"}
        for allocator, names in BUILT_IN.items():
            for name in names:
                if os.path.exists(os.path.join(harness.PROGRAMS, name)) and (allocator in WALKED) == walked:
                    yield allocator, name, {}

    def test_what_is_live_equals_the_ledger(self):
        for _, name, env in self.variants(walked=False):
            for state, program in self.each(name, env):
                if state != "plain":
                    self.expect_ledger(program)
                self.expect_heap(state, program)
                self.expect_answers(state, program)

    def test_more_allocations_than_any_other_test_has_equal_the_ledger(self):
        """More than 2^20 of each stack: where a reader thinks that no time has passed, that is damage."""
        for _, name, env in self.variants(walked=False):
            with self.in_state("recorded", name, env, str(1100000)) as program:
                self.expect_ledger(program)

    def test_what_is_live_in_a_heap_that_is_walked_equals_the_ledger(self):
        glibcs = [("glibc", name, {}) for name in ("allocator_ledger", "allocator_ledger_no_pie")]
        for allocator, name, env in (*glibcs, *self.variants(walked=True)):
            for state, program in self.each(name, env):
                owners = self.ask(program, "allocations")
                rows = [row for row in owners["rows"] if row["type"] in ("by_malloc", "by_calloc")]
                if state != "plain":
                    self.assertEqual(sum(row["inuse_bytes"] for row in rows), program.requested)
                lives = [self.ask(program, verb)["total"]["live_bytes"] for verb in ("leaks", "holders")]
                times = 2 if state == "attached" else 1  # usable bytes; when attached, older blocks as well
                for live in lives:
                    self.assertLess(abs(live - times * program.usable), times * program.usable // 50)
                # The ends of large ones were never written to.
                resident = self.ask(program, "heap")["resident"][0]["bytes"]
                self.assertGreater(resident, times * program.requested * 0.98)
                self.assertLess(resident, times * program.usable * 1.02)
                self.expect_answers(state, program)

    def test_an_allocator_built_in_is_the_same_with_a_recorder(self):
        for allocator, names in BUILT_IN.items():
            for name in names:
                if not os.path.exists(os.path.join(harness.PROGRAMS, name)):
                    continue
                said = {}
                for state, program in self.each(name):
                    said[state] = self.says(program)
                    if allocator not in WALKED:
                        self.assertIn(f"{allocator}, built into its program", said[state]["heap"][1])
                self.assertEqual(said["recorded"], said["plain"])
                self.assertEqual(said["attached"], said["plain"])

    def test_a_built_in_allocator_answers(self):
        for allocator, programs in BUILT_IN.items():
            for state, program in self.each(programs[0]):
                if state == "plain":
                    self.assertIn("there is no recorder in it", self.ask(program, "carriers", "--ask", status=1))
                    continue
                command = [HEAPLINE, "carriers", "--ask", "--json", "-p", str(program.pid)]
                with subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                                      env=dict(os.environ, **self.environment)) as asking:
                    while asking.poll() is None:  # it answers when it allocates
                        program.process.stdin.write("\n")
                        program.process.stdin.flush()
                        time.sleep(0.05)
                    self.assertEqual(json.loads(asking.stdout.read())["allocator"], allocator)

    def test_the_program_is_found_whatever_became_of_its_file(self):
        path = harness.program("allocator_ledger_jemalloc")
        with Program(["/lib64/ld-linux-x86-64.so.2", path]) as program:
            self.assertEqual(self.says(program)["heap"][0], "yes")
        shutil.copy(path, self.path("copy"))
        with Program([self.path("copy")]) as program:
            os.unlink(self.path("copy"))
            self.assertEqual(self.says(program)["heap"][0], "yes")
        with open(path, "rb") as file, os.fdopen(os.memfd_create("copy"), "wb") as copy:
            shutil.copyfileobj(file, copy)
            copy.flush()
            shown = os.open(f"/proc/self/fd/{copy.fileno()}", os.O_RDONLY)
        self.addCleanup(os.close, shown)  # which nobody may write to while it runs
        with Program([f"/proc/{os.getpid()}/fd/{shown}"]) as program:
            self.assertEqual(self.says(program)["heap"][0], "yes")


if __name__ == "__main__":
    harness.main()
