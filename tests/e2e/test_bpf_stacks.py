#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Stacks that BPF programs find equal those that the recorder finds in the same calls.

A program runs under `heapline record`, and probes sit on the recorder's own entry points: what both
have counted between two moments must be equal, stack by stack. A snapshot of the recording is taken
at each of them, while the program waits at a gate.
"""

import collections
import functools
import os
import re
import struct
import signal
import subprocess

import harness

ENTRY_POINTS = ("malloc", "calloc", "realloc", "reallocarray", "posix_memalign", "aligned_alloc",
                "memalign", "valloc", "pvalloc")
FRAMES_MAX = 512  # of a stack in the kernel

PYTHON_WORKLOAD = r"""
import os, re, json, sys, weakref
gate = os.environ["GATE_OF_SCRIPT"]
def wait_at_gate():
    with open(gate + ".at", "wb") as file:
        file.write(b"x")
    with open(gate + ".go", "rb") as file:
        file.read(1)
def recurse(depth):
    return [str(depth)] if depth == 0 else recurse(depth - 1) + [str(depth)]
def work():
    rows = [{"id": i, "tags": [str(i)] * 5, "at": {"x": i / 3}} for i in range(300)]
    text = json.dumps(rows, indent=1)
    assert json.loads(text)[7]["id"] == 7
    re.sub(r"(\d+)", lambda match: match.group(1) * 2, text[:20000])
    sorted(rows, key=lambda row: str(row))
    try:
        recurse(100000)
    except RecursionError:
        pass
    return sum(1 for line in text.splitlines() if "tags" in line)
work()
wait_at_gate()
work()
wait_at_gate()
"""


@functools.cache
def real_path(path):
    return os.path.realpath(path) if "/" in path else path


def parse(text):
    """({stack: count}, {loss: number}) of what walk_trace or recorded_stacks print."""
    stacks, losses = collections.Counter(), {}
    for line in text.splitlines():
        words = line.split()
        if words[0] == "#":
            losses[words[1]] = losses.get(words[1], 0) + int(words[2])
        else:
            frames = []
            for word in words[1:]:
                path, _, address = word.rpartition("+")
                frames.append((real_path(path), address))
            stacks[tuple(frames[-FRAMES_MAX:])] += int(words[0])
    return stacks, losses


class Gate:
    """The other side of gate.c."""

    def __init__(self, path):
        self.path = path
        os.mkfifo(path + ".at")
        os.mkfifo(path + ".go")

    def await_program(self):
        with open(self.path + ".at", "rb") as file:
            file.read(1)

    def let_go(self):
        with open(self.path + ".go", "wb") as file:
            file.write(b"x")


class Walk:
    """walk_trace at work."""

    def __init__(self, test, pid, *place):
        self.process = subprocess.Popen([harness.program("walk_trace"), str(pid), *place],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        test.addCleanup(self.end)
        self.code = ""
        if self.read_line() is None or self.read_line() != "ready":
            reason = self.process.stderr.read()
            if "Operation not permitted" in reason or "Permission denied" in reason:
                test.skipTest("BPF is not allowed here: " + reason.strip().splitlines()[-1])
            raise AssertionError(reason)

    def read_line(self):
        """The next line; None at the end. What code walk_trace knows is kept."""
        line = self.process.stdout.readline()
        if line.startswith("code "):
            self.code = line.strip()
        return line.strip() if line else None

    def await_code(self, pid):
        """Until it knows the executable mappings that the process has now."""
        wanted = "code"
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
            for line in maps:
                place, rights, _, _, _, *path = line.split()
                if "x" in rights and path not in (["[vsyscall]"], ["[uprobes]"]):
                    wanted += " " + " ".join([place, *path]).replace("[vdso]", "linux-vdso.so.1")
        while self.code != wanted:
            if self.read_line() is None:
                raise AssertionError(self.process.stderr.read())

    def finish(self):
        stdout, stderr = self.process.communicate()
        if self.process.returncode != 0:
            raise AssertionError(stderr)
        return parse("".join(line for line in stdout.splitlines(True) if not line.startswith("code")))

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class BpfStacks(harness.TestCase):
    def setUp(self):
        super().setUp()
        harness.need_root()

    def recorded_now(self, pid, name):
        """Stacks of all allocations so far."""
        path = self.path(name)
        result = harness.run([harness.HEAPLINE, "ctl", "-p", str(pid), "snapshot", path])
        self.assertEqual(result.status, 0, result.stderr)
        stacks = harness.run([harness.program("recorded_stacks"), path])
        self.assertEqual(stacks.status, 0, stacks.stderr)
        return parse(stacks.stdout)[0]

    def start_recorded(self, command, gate, env):
        """The process of heapline and that of the program, which waits at the gate."""
        collector = subprocess.Popen(
            harness.record_command(self.path("whole.hl"), command),
            env=dict(os.environ, **env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True)

        def end():  # the program, too, which may stand at its gate with the pipes open
            if collector.poll() is None:
                os.killpg(collector.pid, signal.SIGKILL)
            collector.communicate()

        self.addCleanup(end)
        gate.await_program()
        program, = harness.children_of(collector.pid)
        return collector, program

    def compare(self, command, env=None, preload=True, stops=0):
        """Stacks that both saw between the gates, and what the walk lost.

        At ${stops} gates in between the program waits until its mappings are known.
        """
        gate = Gate(self.path("gate"))
        env = dict(env or {}, **({"LD_PRELOAD": harness.program("gate.so"),
                                  "HEAPLINE_TEST_GATE": gate.path} if preload else
                                 {"GATE_OF_SCRIPT": gate.path}))
        collector, pid = self.start_recorded(command, gate, env)
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
            library, = {line.split()[-1] for line in maps if "libheapline.so" in line}
        walk = Walk(self, pid, library, *ENTRY_POINTS)
        before = self.recorded_now(pid, "before.hl")
        gate.let_go()
        gate.await_program()
        for _ in range(stops):
            walk.await_code(pid)
            gate.let_go()
            gate.await_program()
        recorded = self.recorded_now(pid, "after.hl") - before
        walked, losses = walk.finish()
        gate.let_go()
        _, stderr = collector.communicate(timeout=harness.TIMEOUT_S)
        self.assertEqual(collector.returncode, 0, stderr)
        self.assert_same(walked, recorded, losses)
        return walked, losses

    def assert_same(self, walked, recorded, losses):
        if walked == recorded:
            return
        text = [f"losses: {losses}"]
        for title, stacks in (("walked only", walked - recorded),
                              ("recorded only", recorded - walked)):
            text.append(f"{title}: {len(stacks)} stacks, {sum(stacks.values())} events")
            for stack, count in sorted(stacks.items(), key=lambda item: -item[1])[:3]:
                frames = "\n    ".join(f"{path}+{address}" for path, address in stack[-40:])
                text.append(f"  {count} ({len(stack)} frames)\n    {frames}")
        self.fail("\n".join(text))

    def test_stacks_of_python_equal_the_recorders(self):
        walked, losses = self.compare(["/usr/bin/python3", "-c", PYTHON_WORKLOAD],
                                      {"PYTHONMALLOC": "malloc"}, preload=False)
        self.assertGreater(sum(walked.values()), 20000)
        self.assertGreater(len(walked), 150)
        self.assertEqual(losses, {})

    def test_stacks_of_cxx_without_frame_pointers_equal_the_recorders(self):
        walked, losses = self.compare([harness.program("cxx_throw")])
        self.assertGreater(sum(walked.values()), 10000)
        losses.pop("truncated", None)  # a regular expression, matched by recursion
        self.assertEqual(losses, {})

    def test_stacks_by_debug_frames_alone_equal_the_recorders(self):
        for level in range(4):
            with self.subTest(level=level):
                self.directory = self.path(str(level))
                os.mkdir(self.directory)
                walked, losses = self.compare([harness.program(f"without_eh_frame_{level}")])
                self.assertEqual(sum(walked.values()), 101)
                self.assertGreater(min(len(stack) for stack in walked), 5)
                self.assertEqual(losses, {})

    def test_stacks_by_frame_pointers_that_functions_make_equal_the_recorders(self):
        for level, expected in ((0, {}), (2, {"incomplete": 101})):
            with self.subTest(level=level):
                self.directory = self.path(str(level))
                os.mkdir(self.directory)
                program = self.path("without_rules")
                changed = harness.run([harness.need("objcopy"), "-R", ".debug_frame",
                                       harness.program(f"without_eh_frame_{level}"), program])
                self.assertEqual(changed.status, 0, changed.stderr)
                walked, losses = self.compare([program])
                self.assertEqual(sum(walked.values()), 101)
                self.assertEqual(losses, expected)

    def test_stacks_by_the_instructions_of_functions_equal_the_recorders(self):
        for scenario in ("elsewhere", "framed", "handed", "mixed", "unframed", "started-by-jump",
                         "started-by-nop"):
            with self.subTest(scenario):
                self.directory = self.path(scenario)
                os.mkdir(self.directory)
                walked, losses = self.compare([harness.program("bare_frames"), scenario])
                self.assertEqual(sum(walked.values()), 101)
                self.assertEqual(losses, {"incomplete": 101} if scenario == "unframed" else {})

    def test_return_probes_of_other_tools_are_named_and_their_stacks_counted_as_incomplete(self):
        program = harness.program("without_eh_frame_2")
        gate = Gate(self.path("gate"))
        env = {"LD_PRELOAD": harness.program("gate.so"), "HEAPLINE_TEST_GATE": gate.path}
        collector, pid = self.start_recorded([program], gate, env)
        probe = harness.set_probe(self, pid, program, harness.symbol_address(program, "large_frame"),
                                  returns=True)
        self.addCleanup(probe.close)
        gate.let_go()
        gate.await_program()
        gate.let_go()
        _, stderr = collector.communicate(timeout=harness.TIMEOUT_S)
        self.assertEqual(collector.returncode, 0, stderr)
        recording = self.path("whole.hl")
        stacks = {frames: number
                  for frames, number in harness.folded(recording, "alloc", "objects").items()
                  if "leaf" in frames}
        self.assertEqual(stacks, {("[uretprobe trampoline]", "large_frame", "many_values", "leaf"):
                                  101})
        self.assertEqual(harness.info(recording)["lost"]["incomplete_stacks"], 101)
        shown = harness.run([harness.HEAPLINE, "top", recording])
        self.assertIn("return probes", shown.stdout + shown.stderr)

    def test_stacks_of_every_unusual_kind_equal_the_recorders(self):
        for scenario in ("coroutines", "longjmp", "unusual-frames", "interrupted"):
            with self.subTest(scenario):
                self.directory = self.path(scenario)
                os.mkdir(self.directory)
                walked, losses = self.compare([harness.program("stacks"), scenario])
                self.assertGreater(sum(walked.values()), 100)
                self.assertEqual(losses, {})

    def test_deeper_stacks_keep_the_leaf_side_and_are_counted(self):
        walked, losses = self.compare([harness.program("stacks"), "deep"])
        self.assertEqual(losses, {"truncated": 13})
        self.assertEqual(max(len(stack) for stack in walked), FRAMES_MAX)

    def test_stacks_below_code_that_comes_and_goes_equal_the_recorders(self):
        plugins = [harness.program(f"plugin_{letter}.so") for letter in "ab"]
        walked, losses = self.compare([harness.program("new_code"), *plugins], stops=3)
        self.assertEqual(losses, {})
        by_plugin = {plugin: sum(count for stack, count in walked.items()
                                 if os.path.realpath(plugin) in {path for path, _ in stack})
                     for plugin in plugins}
        self.assertEqual(by_plugin, {plugin: 14 for plugin in plugins})
        generated = {stack: count for stack, count in walked.items()
                     if any(path == "?" for path, _ in stack)}
        self.assertEqual(sorted(generated.values()), [7, 7, 11])


if __name__ == "__main__":
    harness.main()
