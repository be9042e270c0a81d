#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What programs are told of their own lines: by hl_report_lines(), and by the module of Lua."""

import os
import subprocess

import attaching
import harness
import test_ctl
from harness import HEAPLINE
from test_ctl import ERRNO

BLOCK = 127
VERSIONS = {"lua5.1": "5.1", "lua5.2": "5.2", "lua5.3": "5.3", "lua5.4": "5.4"}
MODES = ("MEM_RECORD", "MEM_FAST", "LOG_RECORD", "LOG_FAST")

# Each answers on its standard output; the module is found by the variable MODULE.
PRELUDE = """
package.cpath = os.getenv('MODULE')
local h = require 'heapline'
local function tell(name, value, reason) print(name, value, reason) io.flush() end
local function size_of(report, line)
  for _, row in ipairs(report.mem_report) do
    local size = row:match('line:' .. line .. ' size:(%-?%d+)$')
    if size and row:find(arg[0], 1, true) == 1 then return tonumber(size) end
  end
end
"""
# The example of the game driver's manual, with a table for each call.
KEPT = PRELUDE + """
tell('mode', h.set_enable_mem_profiler(h.MemRecordType[arg[1]]))
local kept = {}
for i = 1, 10000 do kept[i] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, i} end
local report = h.get_mem_report()
tell('bytes', size_of(report, 14))
tell('total', report.total_size)
tell('first', report.mem_report[1])
"""
KEPT_LINE = 14
FREED = PRELUDE + """
local kept = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
local before = h.get_mem_report()
kept = nil
collectgarbage() collectgarbage()
local after = h.get_mem_report()
tell('before', size_of(before, 12))
tell('after', size_of(after, 12))
tell('grown', size_of(h.diff(before, after), 12))
local sum = 0
for _, row in ipairs(after.mem_report) do sum = sum + tonumber(row:match('size:(%-?%d+)$')) end
tell('sum', sum - after.total_size)
tell('ordered', (function()
  local last = math.huge
  for _, row in ipairs(after.mem_report) do
    local size = tonumber(row:match('size:(%-?%d+)$'))
    if size > last then return false end
    last = size
  end
  return true
end)())
"""
SWITCHES = PRELUDE + """
local order = {'CLOSED', 'MEM_RECORD', 'MEM_FAST', 'LOG_RECORD', 'LOG_FAST'}
local kept, expected = {}, 0
for _, from in ipairs(order) do
  for _, to in ipairs(order) do
    for _, mode in ipairs({from, to}) do
      if not h.set_enable_mem_profiler(h[mode]) then tell('refused', mode) end
      kept[#kept + 1] = string.rep('x', 10000 + #kept)
      if mode ~= 'CLOSED' then expected = expected + 10000 + #kept - 1 end
    end
  end
end
collectgarbage()
local size = size_of(h.get_mem_report(), 18)
tell('share', size >= expected and size < 1.05 * expected)
"""
OVER_TIME = PRELUDE + """
tell('mode', h.set_enable_mem_profiler('log-fast'))
local kept = string.rep('x', 1000000)
io.read()
tell('number', h.get_mem_profiler_log_number())
tell('set', h.set_mem_profiler_log_number(7))
tell('number', h.get_mem_profiler_log_number())
local last = h.start_mem_log_profiler(2)
local times = h.get_all_time_size()
tell('last', last == times[#times][1])
tell('highest', times[#times][2] >= 1000000)
tell('at the end', size_of(h.get_mem_report_with_time(last), 13))
tell('later', size_of(h.get_mem_report_with_time(1e9), 13))
tell('mark', h.mark('seen'))
tell('wrong mark', h.mark('two\\nlines'))
tell('error', pcall(h.set_enable_mem_profiler, 4))
tell('tagged', pcall(h.tag, 'name', error, 'passed on'))
tell('result', h.tag('name', math.max, 3, 4))
"""
JOINED = PRELUDE + """
io.read()
tell('mode', h.set_enable_mem_profiler(h.MEM_RECORD))
local kept = string.rep('x', 1000000)
tell('bytes', size_of(h.get_mem_report(), 14))
tell('mark', h.mark('joined'))
tell('log', h.set_enable_mem_profiler(h.LOG_FAST))
tell('set', h.set_mem_profiler_log_number(7))
tell('number', h.get_mem_profiler_log_number())
io.read()
"""
ALONE = PRELUDE + """
for _, name in ipairs {'get_mem_report', 'start_mem_log_profiler', 'get_all_time_size',
                       'get_mem_profiler_log_number', 'set_enable_mem_profiler'} do
  tell(name, h[name]())
end
tell('get_mem_report_with_time', h.get_mem_report_with_time(0))
tell('set_mem_profiler_log_number', h.set_mem_profiler_log_number(3))
tell('mark', h.mark('m'))
h.pool_alloc('pool', h, 10) h.pool_free('pool', h)
"""


DIFFERENT = PRELUDE + """
local report = {total_size = 1, mem_report = {'a.lua line:1 size:1'}}
tell('same', #h.diff(report, report).mem_report)
for i, wrong in ipairs {{}, {total_size = 1, mem_report = {'?'}}, 'text'} do
  tell('before' .. i, select(2, pcall(h.diff, wrong, report)))
  tell('after' .. i, select(2, pcall(h.diff, report, wrong)))
end
"""


def module(version):
    path = os.path.join(harness.BUILD, f"lua/heapline_lua{version}.so")
    if not os.path.exists(path):
        raise harness.unittest.SkipTest(f"heapline was built without the headers of Lua {version}")
    return path


def with_each_lua(test):
    """Runs the test with each interpreter for which there is a module."""
    def run(self):
        for program, version in VERSIONS.items():
            with self.subTest(program):
                harness.need(program)
                module(version)
                test(self, program)
    run.__name__ = test.__name__
    return run


class Scripts:
    """Scripts that find the module, and collectors in the folder of the test."""

    def script(self, text):
        path = self.path("script.lua")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def where(self, version):
        return {"XDG_RUNTIME_DIR": self.directory, "MODULE": module(version)}


class FromC(test_ctl.CtlCase):
    def test_a_line_has_what_is_in_use_now_whatever_the_mode(self):
        for mode in ("mem-record", "mem-fast", "log-record", "log-fast"):
            with self.subTest(mode):
                recorded = self.start(mode, name=mode + ".hl")
                recorded.ask("alloc 999")
                self.assertEqual(recorded.ask("lines -1"), 1000 * BLOCK)
                recorded.ask("release 400")
                self.assertEqual(recorded.ask("lines -1"), 600 * BLOCK)
                recorded.kill()

    def test_moments_of_a_log(self):
        recorded = self.start("log-fast")
        recorded.ask("alloc 999")
        harness.wait_until(lambda: recorded.ask("times") > 0, "the first interval")
        harness.wait_until(lambda: recorded.ask("lines 0") == 1000 * BLOCK or
                           recorded.ask("times") > 1000 * BLOCK, "the blocks in the log")
        recorded.kill()

    def test_without_a_log_moments_are_refused(self):
        recorded = self.start("mem-fast")
        self.assertEqual(recorded.ask("lines 0"), -121)  # EREMOTEIO
        self.assertEqual(recorded.ask("times"), -121)
        self.assertEqual(recorded.end()[0], 0)

    def test_a_forked_child_is_told_of_itself(self):
        recorded = self.start()
        recorded.ask("alloc 99")
        recorded.ask("fork")
        self.assertEqual(recorded.ask("lines -1"), 100 * BLOCK)

    def test_without_a_collector_there_is_none(self):
        library = os.path.join(harness.BUILD, "src/recorder")
        result = harness.run(["sh", "-c", f"echo 'lines -1\ntimes' | {harness.program('control')}"], env={
            "LD_LIBRARY_PATH": library, "XDG_RUNTIME_DIR": self.runtime})
        self.assertEqual(result.stdout.split(), [str(ERRNO["ENOTCONN"])] * 2)


class FromLua(Scripts, harness.TestCase):
    def run_recorded(self, program, text, *arguments):
        """{name: the rest of its line} of what the script tells."""
        command = harness.record_command(
            self.path("test.hl"), [harness.need(program), self.script(text), *arguments], "mem-fast", ["-f"])
        result = harness.run(command, env=self.where(VERSIONS[program]))
        self.assertEqual(result.status, 0, result.stderr)
        return dict(line.split("\t", 1) for line in result.stdout.splitlines())

    @with_each_lua
    def test_the_line_that_made_10000_tables_has_nearly_all_in_each_mode_alike(self, program):
        told = [self.run_recorded(program, KEPT, mode) for mode in MODES]
        for one in told:
            self.assertEqual(one["mode"], "true\tnil")
            size = int(one["bytes"].split()[0])
            self.assertGreater(size, 0.99 * int(one["total"].split()[0]))
            self.assertTrue(one["first"].startswith(self.path(f"script.lua line:{KEPT_LINE} size:")))
        self.assertEqual(len({one["bytes"] for one in told}), 1, told)

    @with_each_lua
    def test_lines_whose_memory_was_freed_stay(self, program):
        told = self.run_recorded(program, FREED)
        self.assertGreater(int(told["before"].split()[0]), 10 * 8)
        self.assertEqual(told["after"].split()[0], "0")
        self.assertEqual(int(told["grown"].split()[0]), -int(told["before"].split()[0]))
        self.assertEqual(told["sum"].split()[0], "0")
        self.assertEqual(told["ordered"].split()[0], "true")

    @with_each_lua
    def test_from_each_mode_to_each(self, program):
        told = self.run_recorded(program, SWITCHES)
        self.assertEqual(told, {"share": "true\tnil"})

    @with_each_lua
    def test_over_time(self, program):
        command = harness.record_command(
            self.path("test.hl"), [harness.need(program), self.script(OVER_TIME)], "mem-fast", ["-f"])
        lua = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env=dict(os.environ, **self.where(VERSIONS[program])))
        self.addCleanup(lua.kill)
        lua.stdout.readline()
        # The log begins when the collector sees the mode, and has whole intervals.
        harness.wait_until(self.log_has_the_string, "the log")
        told = dict(line.split("\t", 1) for line in lua.communicate("\n", harness.TIMEOUT_S)[0].splitlines())
        self.assertEqual(lua.returncode, 0)
        self.assertEqual(told["number"], "7\tnil")
        for name in ("set", "last", "highest", "mark"):
            self.assertEqual(told[name], "true\tnil")
        for name in ("at the end", "later"):
            self.assertGreater(int(told[name].split()[0]), 1000000)
        self.assertEqual(told["wrong mark"], "nil\tthe name of the mark is empty or has control characters; "
                                             "use one line of plain text")
        self.assertRegex(told["error"], "^false\t.*modes are words, not numbers; use MemRecordType.MEM_RECORD, ")
        self.assertEqual(told["tagged"], "false\tpassed on")
        self.assertEqual(told["result"], "4\tnil")
        marks = [mark["text"] for mark in harness.info(self.path("test.hl"))["marks"]]
        self.assertIn("seen", marks)

    def log_has_the_string(self):
        result = harness.run([HEAPLINE, "timeline", "--format", "csv", self.path("test.hl")])
        return result.status == 0 and any(int(row.split(",")[1]) > 1000000
                                          for row in result.stdout.splitlines()[1:])

    @with_each_lua
    def test_luarocks_has_what_it_needs_in_the_rockspec(self, program):
        tree = os.path.join(harness.SOURCES, "../..")
        version = VERSIONS[program]
        folder = f"/usr/include/lua{version}"
        make = harness.need("make")
        if not os.path.exists(os.path.join(folder, "lua.h")):
            self.skipTest(f"the headers of Lua {version} are not in {folder}")
        tell = self.script("dofile(arg[1]) for name, text in pairs(build.build_variables) do print(name .. '=' .. text) end "
                           "print(build.build_target) print(build.install.lib.heapline)")
        rockspec = os.path.join(tree, "lua/heapline-scm-1.rockspec")
        *variables, target, file = harness.run([harness.need(program), tell, rockspec]).stdout.splitlines()
        self.assertIn(f"LUA_MODULE={file}", variables)
        made = self.path("heapline.so")
        known = {"$(CC)": "gcc", "$(LUA_INCDIR)": folder, file: made}
        # As its back-end for make does.
        built = harness.run([make, target, *(f"{name}={known[text]}" for name, text in (word.split("=") for word in variables))],
                            cwd=tree)
        self.assertEqual((built.status, built.stderr), (0, ""))
        self.assert_answers_alone(program, made)

    def assert_answers_alone(self, program, made):
        result = harness.run([harness.need(program), self.script(ALONE)],
                             env={"XDG_RUNTIME_DIR": self.directory, "MODULE": made})
        self.assertEqual((result.status, len(result.stdout.splitlines())), (0, 8), result.stderr)

    @with_each_lua
    def test_make_builds_it_for_any_headers(self, program):
        make, tree = harness.need("make"), os.path.join(harness.SOURCES, "../..")
        made, folder = self.path("heapline.so"), f"/usr/include/lua{VERSIONS[program]}"
        if not os.path.exists(os.path.join(folder, "lua.h")):
            self.skipTest(f"the headers of this Lua are not in {folder}")
        wrong = harness.run([make, "lua-module", "LUA_INC=" + self.directory], cwd=tree)
        self.assertIn(f"no lua.h in '{self.directory}'", wrong.stderr)
        built = harness.run([make, "lua-module", "LUA_INC=" + folder, "LUA_MODULE=" + made], cwd=tree)
        self.assertEqual((built.status, built.stderr), (0, ""))
        self.assert_answers_alone(program, made)

    @with_each_lua
    def test_without_a_recording_each_function_returns_nil_and_why(self, program):
        result = harness.run([harness.need(program), self.script(ALONE)],
                             env=self.where(VERSIONS[program]))
        self.assertEqual(result.status, 0, result.stderr)
        rows = result.stdout.splitlines()
        self.assertEqual(len(rows), 8)
        for row in rows:
            self.assertRegex(row, "\tnil\tno collector of this user records this process; ")

    @with_each_lua
    def test_what_is_no_report_has_no_difference(self, program):
        result = harness.run([harness.need(program), self.script(DIFFERENT)], env=self.where(VERSIONS[program]))
        rows = [row.split("\t") for row in result.stdout.splitlines()]
        self.assertEqual((rows[0][:2], len(rows)), (["same", "0"], 7), result.stderr)
        for name, said, _ in rows[1:]:
            self.assertIn(f"bad argument #{1 if name.startswith('before') else 2} to 'diff'", said)
            self.assertNotIn("heapline.diff:", said)

    def test_luajit_loads_the_module_of_5_1(self):
        result = harness.run([harness.need("luajit"), self.script(ALONE)],
                             env=self.where("5.1"))
        self.assertEqual((result.status, len(result.stdout.splitlines())), (0, 8), result.stderr)


class Joined(Scripts, attaching.TestCase):
    """The same functions in a program that heapline attach has joined, which has no library of its own."""

    def test_a_program_that_was_joined(self):
        lua = subprocess.Popen([harness.need("lua5.4"), self.script(JOINED)], text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               env=dict(os.environ, **self.where("5.4")))
        self.addCleanup(lua.communicate)
        self.addCleanup(lua.kill)
        with self.attached(lua.pid):
            lua.stdin.write("\n")
            lua.stdin.flush()
            told = dict(lua.stdout.readline().rstrip("\n").split("\t", 1) for _ in range(6))
            self.ctl(lua.pid, "detach")
        self.assertGreater(int(told["bytes"].split()[0]), 1000000)
        self.assertEqual([told[name] for name in ("mode", "mark", "log", "set", "number")],
                         ["true\tnil"] * 4 + ["7\tnil"])


if __name__ == "__main__":
    harness.main()
