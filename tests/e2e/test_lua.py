#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Lines of Lua: record and attach name them in programs that know nothing of it."""

import os
import re
import signal
import subprocess

import attaching
import harness
from harness import HEAPLINE, wait_until

LEAK = """
local kept = {}
local function work(i)
  local t = {}
  for j = 1, 10 do t[j] = {j, i} end
  return #t
end
local function leak(i)
  kept[#kept + 1] = {name = 'leaked ' .. i, data = {i, i, i}}
end
local function round()
  for i = 1, 3000 do
    work(i)
    leak(i)
  end
end
io.write('ready\\n') io.flush()
if io.read() == 'leak' then
  round()
  collectgarbage()
  io.write('leaked\\n') io.flush()
  io.read()
end
os.exit(0)
"""
LEAK_LINE = 9
LEAKED_TABLES = 2 * 3000
INTERPRETERS = ("lua5.1", "lua5.2", "lua5.3", "lua5.4")


def game():
    return os.path.join(harness.SOURCES, "lua_game.lua")


def rows(recording, *options):
    return harness.report("lines", recording, *options)["rows"]


def lines_of(recording, script, *options):
    """(bytes, blocks) allocated by line of the script."""
    return {row["line"]: [row["bytes"], row["objects"]]
            for row in rows(recording, "--value", "alloc", "--stack", "script", *options)
            if row["file"] == script}


class EachLine(harness.TestCase):
    """Every byte and block of a game-like script has the line that the interpreter itself says."""

    def check(self, version, moved=()):
        host = harness.program("lua_host" + version)
        ledger = harness.run([host, game(), "ledger"])
        self.assertEqual(ledger.status, 0, ledger.stderr)
        expected = {int(line): [int(size), int(blocks)] for line, size, blocks in
                    (text.split() for text in ledger.stdout.splitlines())}
        for line, to in moved:
            expected[to] = [sum(pair) for pair in zip(expected.pop(line), expected[to])]
        recording = self.path("game.hl")
        result = harness.run(harness.record_command(recording, [host, game()]))
        self.assertEqual(result.status, 0, result.stderr)
        parent = harness.processes(recording)[0]["pid"]
        self.assertEqual(lines_of(recording, game(), "-p", str(parent)), expected)

    def test_the_hosts_allocator_is_folded(self):
        for version in ("51", "52", "53", "54"):
            with self.subTest(version):
                recording = self.path("game.hl")
                harness.run(harness.record_command(
                    recording, [harness.program("lua_host" + version), game()]))
                size = {True: 0, False: 0}
                for row in rows(recording, "--value", "alloc"):
                    size[row["file"] == game()] += row["bytes"]
                # Otherwise all would be the allocator's. Buffers of lauxlib, which calls it by itself, are.
                self.assertGreater(size[True], size[False])

    def test_of_5_1(self):
        # The ledger's hook needs room on the stack, which then grows on a line of the callee.
        self.check("51", [(50, 53)])

    def test_of_5_2(self):
        self.check("52")

    def test_of_5_3(self):
        self.check("53")

    def test_of_5_4(self):
        self.check("54")

    def test_of_a_forked_child(self):
        host = harness.program("lua_host54")
        recording = self.path("game.hl")
        harness.run(harness.record_command(recording, [host, game()]))
        processes = harness.processes(recording)
        self.assertEqual(len(processes), 2)
        lines = lines_of(recording, game(), "-p", str(processes[1]["pid"]))
        self.assertGreater(sum(size for size, _ in lines.values()), 5000)


class Mixed(harness.TestCase):
    """Stacks with Lua and without, in one process: each block has the stack that it was allocated with."""

    COUNT = 3000
    CALLERS = (
        "main",
        "main;work_alone",
        "start_thread;work_alone",
        "main;function <mixed:12>;function <mixed:2>;work_in_lua",
        "main;function <mixed:12>;resume;function <mixed:5>;work_in_lua",
    )
    LINES = {3: 100 + 700, 7: 100 + 700}

    def stacks(self, recording, value, unit):
        """{stack from main() or the thread's beginning on: figure}, of work()."""
        output = harness.run([HEAPLINE, "folded", "--value", value, "--unit", unit, "--stack", "mixed",
                              "--focus", "^work$", recording])
        self.assertEqual(output.status, 0, output.stderr)
        return {re.sub(r"^.*?;(?=main;|start_thread;)", "", stack): int(number) for stack, number in
                (line.rsplit(" ", 1) for line in output.stdout.splitlines())}

    def expected(self, of_work, of_grow):
        return {caller + stack: self.COUNT * number for caller in self.CALLERS
                for stack, number in ((";work", of_work), (";work;grow", of_grow)) if number}

    def record(self, *options, mode="mem-fast", arguments=()):
        recording = self.path("mixed.hl")
        result = harness.run(harness.record_command(
            recording, [harness.program("lua_mixed"), str(self.COUNT), *arguments], mode, options))
        self.assertEqual(result.status, 0, result.stderr)
        return recording

    def check(self, *options, mode="mem-fast"):
        recording = self.record(*options, mode=mode)
        self.assertEqual(self.stacks(recording, "alloc", "bytes"), self.expected(100, 700))
        self.assertEqual(self.stacks(recording, "alloc", "objects"), self.expected(1, 1))
        self.assertEqual(self.stacks(recording, "inuse", "bytes"), self.expected(0, 700))
        lines = lines_of(recording, "mixed")
        for line, size in self.LINES.items():
            self.assertGreaterEqual(lines[line][0], size * self.COUNT)  # and buffers of Lua's own

    def test_lines_are_exact_in_all_modes(self):
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                self.check(mode=mode)

    def test_lines_are_exact_with_sizes(self):
        self.check("--sizes")

    def test_native_stacks_are_those_of_the_probe_alone(self):
        """What one thread allocates while another probes the interpreter has native frames, and what it
        allocates later, from the same stacks, has not."""
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                stacks = self.stacks(self.record(mode=mode, arguments=["early"]), "alloc", "objects")
                for leaf in (";work", ";work;grow"):
                    native = sum(number for stack, number in stacks.items()
                                 if stack.endswith(";work_in_lua" + leaf) and "<mixed:" not in stack)
                    scripts = [stacks.get(caller + leaf, 0) for caller in self.CALLERS if "<mixed:" in caller]
                    self.assertGreaterEqual(min(scripts), self.COUNT)  # those after the probe
                    self.assertEqual(sum(scripts) + native, 2 * 2 * self.COUNT)
                    self.assertEqual([stacks[caller + leaf] for caller in self.CALLERS[:3]],
                                     [2 * self.COUNT, self.COUNT, self.COUNT])


class Interpreters(harness.TestCase):
    """A leak in a script is the first row, in Debian's stripped interpreters."""

    def check_first(self, recording, script, name):
        first = rows(recording, "--value", "inuse")[0]
        self.assertEqual((first["file"], first["line"]), (script, LEAK_LINE))
        top = harness.report("top", recording, "--value", "inuse", "--stack", "script")["rows"][0]
        self.assertIn(f"<{os.path.basename(script)}:{LEAK_LINE - 1}>", top["name"])
        tables = rows(recording, "--value", "inuse", "--type", "^table$")
        self.assertEqual([row["objects"] for row in tables if row["line"] == LEAK_LINE],
                         [] if name == "lua5.1" else [LEAKED_TABLES])

    def script(self):
        path = self.path("leak.lua")
        with open(path, "w", encoding="utf-8") as file:
            file.write(LEAK)
        return path

    def test_record_names_the_line(self):
        for name in INTERPRETERS:
            with self.subTest(name):
                recording, script = self.path(name + ".hl"), self.script()
                lua = subprocess.Popen(
                    harness.record_command(recording, [harness.need(name), script]),
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                self.assertEqual(lua.stdout.readline(), "ready\n")
                lua.communicate("leak\n\n", timeout=harness.TIMEOUT_S)
                self.assertEqual(lua.returncode, 0)
                self.check_first(recording, script, name)


# Each chunk is garbage before the next one is loaded, which mostly comes to lie where it was.
CHUNKS = """
local load, kept = loadstring or load, {}
for i = 1, 256 do kept[i] = 0 end
for i = 1, 200 do
  local lines = i <= 100 and 0 or 4
  local chunk = load(("\\n"):rep(lines) .. "local kept, i = ... kept[i] = {1, 2, 3}",
                     i <= 100 and "=old" or "=new")
  chunk(kept, i)
  chunk = nil
  collectgarbage()
end
"""


class Chunks(harness.TestCase):
    def test_one_that_lies_where_another_was_has_its_own_lines(self):
        script = self.path("chunks.lua")
        with open(script, "w", encoding="utf-8") as file:
            file.write(CHUNKS)
        for name in (*INTERPRETERS, "luajit"):
            with self.subTest(name):
                recording = self.path(name + ".hl")
                command = [harness.need(name), *(["-joff"] if name == "luajit" else []), script]
                result = harness.run(harness.record_command(recording, command))
                self.assertEqual(result.status, 0, result.stderr)
                tables = {(row["file"], row["line"]): row["objects"]
                          for row in rows(recording, "--value", "alloc", "--stack", "script")
                          if row["file"] in ("old", "new")}
                self.assertEqual(list(tables), [("new", 5), ("old", 1)])
                self.assertEqual(len(set(tables.values())), 1, tables)


class Attached(attaching.TestCase, Interpreters):
    """The same in one that runs already."""

    def test_record_names_the_line(self):
        for name in INTERPRETERS:
            with self.subTest(name):
                script = self.script()
                lua = subprocess.Popen([harness.need(name), script], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)
                try:
                    self.assertEqual(lua.stdout.readline(), "ready\n")
                    with self.attached(lua.pid):
                        lua.stdin.write("leak\n")
                        lua.stdin.flush()
                        self.assertEqual(lua.stdout.readline(), "leaked\n")
                        self.ctl(lua.pid, "detach")
                    self.check_first(self.recording, script, name)
                    lua.communicate("\n", timeout=harness.TIMEOUT_S)
                    self.assertEqual(lua.returncode, 0)
                finally:
                    lua.kill()
                    lua.wait()


YIELDED = """
local function inner(i)
  coroutine.yield()
  local t = {i, i}
  return pcall(function() return {i, t} end)
end
local resume = coroutine.resume
for i = 1, 100 do
  local co = coroutine.create(function()
    pcall(pcall, inner, i)
  end)
  resume(co)
  pcall(function() resume(co) end)
end
"""


class Yielded(harness.TestCase):
    """Coroutines that yielded inside of pcall(), whose calls by native code are gone when they go on."""

    def test_frames_fit_the_calls_of_the_interpreter(self):
        script = self.path("yielded.lua")
        with open(script, "w", encoding="utf-8") as file:
            file.write(YIELDED)
        for name in ("lua5.2", "lua5.3", "lua5.4"):
            with self.subTest(name):
                recording = self.path(name + ".hl")
                result = harness.run(harness.record_command(recording, [harness.need(name), script]))
                self.assertEqual(result.status, 0, result.stderr)
                report = harness.report("lines", recording, "--value", "alloc")
                self.assertNotIn("script_unmatched", report["lost"])
                blocks = {row["line"]: row["objects"] for row in report["rows"] if row["file"] == script}
                self.assertGreaterEqual(blocks[4], 200)
                folded = harness.run([harness.HEAPLINE, "folded", "--value", "alloc", "--stack", "script", recording])
                self.assertRegex(folded.stdout, r"main chunk;function <yielded.lua:13>;"
                                 r"function <yielded.lua:9>;function <yielded.lua:2>;function <yielded.lua:5> [1-9]")


IN_C = """
local kept = {}
local function begin()
  local made = coroutine.wrap(string.rep)
  return made
end
for i = 1, 100 do
  local run = begin()
  kept[i] = run('x' .. i, 1000)
end
"""


class InC(harness.TestCase):
    """A coroutine that runs a function in C is charged to the line that made it, not to the one that resumes it."""

    def test_the_line_that_made_it_is_charged(self):
        script = self.path("in_c.lua")
        with open(script, "w", encoding="utf-8") as file:
            file.write(IN_C)
        for name, *options in (["lua5.2"], ["lua5.3"], ["lua5.4"], ["luajit"], ["luajit", "-joff"]):
            for mode in ("mem-fast", "log-record"):
                with self.subTest(name, options=options, mode=mode):
                    recording = self.path(f"{name}{len(options)}{mode}.hl")
                    command = [harness.need(name), *options, script]
                    result = harness.run(harness.record_command(recording, command, mode))
                    self.assertEqual(result.status, 0, result.stderr)
                    report = harness.report("lines", recording, "--value", "alloc")
                    self.assertNotIn("script_unmatched", report["lost"])
                    size = {row["line"]: row["bytes"] for row in report["rows"] if row["file"] == script}
                    self.assertGreater(size[4], 100 * 1000 * 3)
                    self.assertLess(size[9], 50000)


MESSAGES = """
collectgarbage('stop') -- which allocates by itself, too
local kept = {}
for i = 1, 6000 do
  kept[i] = load('return {id = ' .. i .. '}')()
end
"""


class Messages(harness.TestCase):
    """A program that loads each message as a chunk has 4,096 names and no more; none of its blocks is lost."""

    def test_names_end_and_blocks_do_not(self):
        script = self.path("messages.lua")
        with open(script, "w", encoding="ascii") as file:
            file.write(MESSAGES)
        for name in "lua5.4", "luajit":
            with self.subTest(name):
                recording = self.path(name + ".hl")
                result = harness.run(harness.record_command(recording, [harness.need(name), script]))
                self.assertEqual(result.status, 0, result.stderr)
                report = harness.report("lines", recording, "--value", "alloc", "--stack", "script")
                blocks = {row["file"]: row["objects"] for row in report["rows"] if row["file"].startswith("[string")}
                others = blocks.pop('[string "..."]')
                each, = set(blocks.values())
                self.assertEqual(len(blocks), 4096)
                self.assertEqual(others, each * (6000 - 4096))


NESTED = """
local kept = {}
local function nest(depth)
  if depth == 0 then
    for i = 1, 100 do kept[i] = {} end
  else
    coroutine.wrap(nest)(depth - 1)
  end
end
nest(tonumber(arg[1]))
os.exit(0)
"""
NESTED_LINE = 5


class Nested(harness.TestCase):
    """Beyond the calls of the interpreter that are known in one stack lines are right all the same, and it is said why frames are not."""

    def test_more_calls_than_are_known(self):
        script = self.path("nested.lua")
        with open(script, "w", encoding="ascii") as file:
            file.write(NESTED)
        for depth, is_told in ("30", False), ("70", True):
            recording = self.path(depth + ".hl")
            harness.run(harness.record_command(recording, [harness.need("lua5.4"), script, depth]))
            rows = harness.report("lines", recording, "--value", "alloc", "--unit", "objects", "--stack", "script")["rows"]
            self.assertGreaterEqual(next(row for row in rows if row["line"] == NESTED_LINE)["objects"], 100)
            head = harness.run([HEAPLINE, "top", "-n", "1", recording]).stdout
            self.assertEqual("as where more than 63 calls of Lua are nested, of which the inner 63 are known" in head, is_told)


class Hidden(harness.TestCase):
    """An interpreter that exports nothing is not found, and the recording says so."""

    def test_a_warning_names_the_version(self):
        host = harness.program("lua_host_hidden")
        recording = self.path("hidden.hl")
        result = harness.run(harness.record_command(recording, [host, game()]))
        self.assertEqual(result.status, 0, result.stderr)
        [warning] = harness.info(recording)["recording"]["warnings"]
        self.assertRegex(warning, f"'{host}' has Lua 5.4.[0-9]+ linked into it, none of whose functions")
        scripts = harness.run([harness.HEAPLINE, "top", "--stack", "script", recording])
        self.assertIn("has no frames of scripts", scripts.stderr)

    def test_it_says_what_helps(self):
        source, program = self.path("text.c"), self.path("text")
        for text, version, options, remedy in (
                ("LuaJIT 2.1.0-beta3", "LuaJIT 2.1.0-beta3", (), "link it with -rdynamic"),
                ("$LuaVersion: Lua 5.4.4  $", "Lua 5.4.4", ("-static",), "link it dynamically, with -rdynamic")):
            with self.subTest(version):
                with open(source, "w", encoding="ascii") as file:
                    file.write(f'#include <stdlib.h>\nconst char text[] = "{text}";\n'
                               "int main(void) { return !malloc(100); }\n")
                subprocess.run([harness.need("gcc"), *options, "-o", program, source], check=True)
                result = harness.run(harness.record_command(self.path("text.hl"), [program]))
                self.assertIn(f"has {version} linked into it, none of whose functions it exports, so that lines of "
                              f"scripts are not seen; {remedy}\n", result.stderr)


class Redis(harness.TestCase):
    """A script that a server was sent."""

    def test_eval_has_the_line_of_the_script(self):
        server, client = harness.need("redis-server"), harness.need("redis-cli")
        recording, socket = self.path("redis.hl"), self.path("redis.socket")
        redis = subprocess.Popen(
            harness.record_command(recording, [server, "--port", "0", "--unixsocket", socket,
                                               "--save", ""]), stdout=subprocess.DEVNULL)
        ask = [client, "-s", socket]
        try:
            wait_until(lambda: harness.run([*ask, "ping"]).stdout == "PONG\n", "the server")
            script = "local t = {}\nfor i = 1, 20000 do\n  t[i] = {i, 'value' .. i}\nend\nreturn #t"
            self.assertEqual(harness.run([*ask, "eval", script, "0"]).stdout.strip(), "20000")
            harness.run([*ask, "shutdown", "nosave"])
            self.assertEqual(redis.wait(harness.TIMEOUT_S), 0)
        finally:
            if redis.poll() is None:
                redis.send_signal(signal.SIGTERM)
                redis.wait()
        first = rows(recording)[0]
        self.assertEqual((first["file"], first["line"]), ("user_script", 3))


if __name__ == "__main__":
    harness.main()
