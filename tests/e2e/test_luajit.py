#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Lines and traces of LuaJIT, and its objects, which its own allocator maps."""

import os
import subprocess

import attaching
import harness

# A leak in a loop of its own, for which LuaJIT compiles a trace; what is kept in between is small.
LEAK = """
%s
local kept, small = {}, {}
local function leak(count)
  for i = 1, count do
    kept[#kept + 1] = {name = i, data = {i, i, i}}
  end
end
local co = coroutine.wrap(function(count)
  for i = 1, 30 do small[i] = {i} end
  leak(count)
end)
io.write('ready\\n') io.flush()
if io.read() == 'leak' then
  co(20000)
  collectgarbage()
  io.write(collectgarbage('count') * 1024, '\\n') io.flush()
  io.read()
end
os.exit(0)
"""
LOOP_LINE, LEAK_LINE = 4, 5
# Of lua_game.lua: where coroutines are made, and where their stacks and its own are grown by lua_checkstack().
MAKER_LINE, GROWN_LINE, OWN_LINE = 84, 92, 94


def scripts(test):
    """(path, whether it is compiled) of both."""
    for name, first in (("compiled.lua", ""), ("interpreted.lua", "jit.off()")):
        path = test.path(name)
        with open(path, "w", encoding="utf-8") as file:
            file.write((LEAK % first)[1:])
        yield path, not first


def game():
    return os.path.join(harness.SOURCES, "lua_game.lua")


class EachLine(harness.TestCase):
    """Every byte and block of a game-like script has the line that the interpreter itself says."""

    def lines(self, recording):
        parent = harness.processes(recording)[0]["pid"]
        report = harness.report("lines", recording, "--value", "alloc", "--stack", "script", "-p", str(parent))
        self.assertNotIn("script_unmatched", report["lost"])
        return {row["line"]: [row["bytes"], row["objects"]] for row in report["rows"] if row["file"] == game()}

    def test_in_all_modes(self):
        host = harness.program("lua_hostjit")
        ledger = harness.run([host, game(), "ledger"])
        self.assertEqual(ledger.status, 0, ledger.stderr)
        expected = {int(line): [int(size), int(blocks)] for line, size, blocks in
                    (text.split() for text in ledger.stdout.splitlines())}
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                recording = self.path(f"{mode}.hl")
                result = harness.run(harness.record_command(recording, [host, game()], mode))
                self.assertEqual(result.status, 0, result.stderr)
                found = self.lines(recording)
                if GROWN_LINE in expected and GROWN_LINE not in found:
                    # Newer LuaJIT grows a stack by a function that runs on it. A coroutine has nothing but its maker
                    # then, and of the main state native code is said to have called.
                    both = zip(expected[MAKER_LINE], expected.pop(GROWN_LINE), strict=True)
                    expected[MAKER_LINE] = [sum(pair) for pair in both]
                    del expected[OWN_LINE]
                self.assertEqual(found, expected)


class Leaks(harness.TestCase):
    """A leak in a script is the first row: its line where the script is interpreted, its trace where it is compiled."""

    def check(self, recording, script, is_compiled, count):
        row = harness.report("top", recording, "--value", "inuse")["rows"][0]
        self.assertEqual((row["file"], row["line"]), (script, LOOP_LINE if is_compiled else LEAK_LINE))
        self.assertRegex(row["name"], r"^trace [0-9]+$" if is_compiled else r"^function <interpreted.lua:3>$")
        self.assertGreater(row["flat_objects"], 2 * 19000)
        report = harness.report("lines", recording, "--value", "inuse", "--stack", "script")
        self.assertNotIn("script_unmatched", report["lost"])
        size = sum(row["bytes"] for row in report["rows"] if row["file"] == script)
        # LuaJIT's own count has its libraries, too.
        self.assertGreater(size, 0.9 * count)
        self.assertLess(size, count)

    def run_script(self, command):
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def test_record_names_it(self):
        for script, is_compiled in scripts(self):
            with self.subTest(script):
                recording = script + ".hl"
                luajit = self.run_script(harness.record_command(recording, [harness.need("luajit"), script]))
                self.assertEqual(luajit.stdout.readline(), "ready\n")
                output, _ = luajit.communicate("leak\n\n", timeout=harness.TIMEOUT_S)
                self.assertEqual(luajit.returncode, 0)
                self.check(recording, script, is_compiled, float(output))


class Attached(attaching.TestCase, Leaks):
    """The same in one that runs already."""

    def test_record_names_it(self):
        for script, is_compiled in scripts(self):
            with self.subTest(script):
                luajit = self.run_script([harness.need("luajit"), script])
                try:
                    self.assertEqual(luajit.stdout.readline(), "ready\n")
                    with self.attached(luajit.pid):
                        luajit.stdin.write("leak\n")
                        luajit.stdin.flush()
                        count = float(luajit.stdout.readline())
                        self.ctl(luajit.pid, "detach")
                    self.check(self.recording, script, is_compiled, count)
                    luajit.communicate("\n", timeout=harness.TIMEOUT_S)
                    self.assertEqual(luajit.returncode, 0)
                finally:
                    luajit.kill()
                    luajit.wait()


class States(harness.TestCase):
    """States come and go; what one has in use is what it says itself."""

    COUNT = 10000

    def test_short_lived_states_leave_nothing(self):
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                recording = self.path(f"{mode}.hl")
                result = harness.run(harness.record_command(
                    recording, [harness.program("luajit_states"), str(self.COUNT)], mode))
                self.assertEqual(result.status, 0, result.stderr)
                total = harness.report("top", recording, "--value", "inuse")["total"]
                kept = int(result.stdout)
                # Beside it there is the buffer of standard output.
                self.assertLess(abs(total["inuse_bytes"] - kept), 8192)
                self.assertGreater(total["alloc_objects"], 100 * self.COUNT)


def storm():
    return os.path.join(harness.SOURCES, "luajit_storm.lua")


class Storm(harness.TestCase):
    """Traces are made, left and thrown away all the time, and others come to lie at their addresses."""

    def test_frames_fit_the_calls_of_the_interpreter(self):
        for mode in harness.RECORDING_MODES:
            with self.subTest(mode=mode):
                recording = self.path(f"{mode}.hl")
                result = harness.run(harness.record_command(recording, [harness.need("luajit"), storm(), "10"], mode))
                self.assertEqual(result.status, 0, result.stderr)
                report = harness.report("lines", recording, "--value", "inuse")
                self.assertNotIn("script_unmatched", report["lost"])
                # Beside it: the buffer of standard output, and what libgcc registers for the code of traces.
                self.assertLess(abs(report["total"]["inuse_bytes"] - float(result.stdout)), 32768)
                names = {row["name"] for row in harness.report("top", recording, "--value", "alloc")["rows"]}
                self.assertGreater(sum(name.startswith("trace ") for name in names), 20)
                self.assertIn("[trace compiler]", names)


class JoinedStorm(attaching.TestCase):
    """Joined and left again and again meanwhile, it goes on as if alone."""

    def test_it_ends_as_alone(self):
        stop = self.path("stop")
        luajit = subprocess.Popen([harness.need("luajit"), storm(), "1e9", stop], stdout=subprocess.PIPE, text=True)
        try:
            for _ in range(5):
                self.assertIsNone(luajit.poll())
                with self.attached(luajit.pid):
                    self.ctl(luajit.pid, "detach")
            with open(stop, "w", encoding="ascii"):
                pass
            output, _ = luajit.communicate(timeout=harness.TIMEOUT_S)
            self.assertEqual(luajit.returncode, 0)
            self.assertGreater(float(output), 100000)
        finally:
            luajit.kill()
            luajit.wait()


class Neovim(harness.TestCase):
    """A program that is linked with it."""

    def test_a_leak_in_a_script_is_the_first_row(self):
        recording, script = self.path("nvim.hl"), self.path("leak.lua")
        with open(script, "w", encoding="utf-8") as file:
            file.write("kept = {}\nfor i = 1, 50000 do\n  kept[i] = {name = i, data = {i, i, i}}\nend\n")
        command = [harness.need("nvim"), "--headless", "-u", "NONE", "-i", "NONE", "-n", "-c", "luafile " + script, "-c", "q"]
        result = harness.run(harness.record_command(recording, command))
        self.assertEqual(result.status, 0, result.stderr)
        row = harness.report("top", recording, "--value", "inuse")["rows"][0]
        self.assertEqual((row["file"], row["line"]), (script, 2))
        self.assertRegex(row["name"], "^trace [0-9]+$")
        self.assertGreater(row["flat_objects"], 2 * 49000)


class Preloaded(harness.TestCase):
    """Where the recorder is preloaded, as with --mappings, and where another one is brought in beside it."""

    def test_what_it_maps_is_counted_with_mappings(self):
        recording = self.path("jit.hl")
        script = "local t = {} for i = 1, 100000 do t[i] = {i} end"
        command = [harness.need("luajit"), "-e", script]
        result = harness.run(harness.record_command(recording, command, options=["--mappings"]))
        self.assertEqual(result.status, 0, result.stderr)
        top = harness.report("top", recording, "--value", "peak", "--by", "module")
        self.assertGreater(top["total"]["peak_bytes"], 100000 * 32)

    def test_lines_of_what_malloc_gives_and_a_warning(self):
        recording, script = self.path("jit.hl"), self.path("open.lua")
        with open(script, "w", encoding="utf-8") as file:
            file.write("local kept = {}\nfor i = 1, 20 do\n  kept[i] = io.open('/dev/null')\nend\nos.exit(0)\n")
        # A program with a limit of its memory is not entered.
        command = ["sh", "-c", f"ulimit -v 16000000; exec {harness.need('luajit')} {script}"]
        result = harness.run(harness.record_command(recording, command))
        self.assertEqual(result.status, 0, result.stderr)
        warnings = "".join(harness.info(recording)["recording"]["warnings"])
        self.assertIn("runs LuaJIT, whose objects are not seen", warnings)
        self.assertIn("its memory is limited", warnings)
        rows = harness.report("lines", recording, "--value", "inuse", "--stack", "script")["rows"]
        self.assertEqual([(row["line"], row["objects"]) for row in rows if row["file"] == script], [(3, 20)])

    def test_one_that_another_program_executes_is_entered(self):
        recording = self.path("jit.hl")
        command = ["env", harness.need("luajit"), "-e", "local t = {} for i = 1, 100000 do t[i] = {i} end"]
        result = harness.run(harness.record_command(recording, command))
        self.assertEqual(result.status, 0, result.stderr)
        self.assertGreater(harness.report("top", recording, "--value", "peak")["total"]["peak_bytes"], 100000 * 32)

    def test_no_objects_leaves_them_out(self):
        recording = self.path("jit.hl")
        script = "local t = {} for i = 1, 100000 do t[i] = {i} end"
        command = [harness.need("luajit"), "-e", script]
        result = harness.run(harness.record_command(recording, command, options=["--no-objects"]))
        self.assertEqual(result.status, 0, result.stderr)
        self.assertLess(harness.report("top", recording, "--value", "peak")["total"]["peak_bytes"], 100000)


# The stack of each coroutine grows until it is moved by mremap(), and the old one is gone.
DEEP = """
local function deep(n) if n == 0 then return 0 end return 1 + deep(n - 1) end
io.write('ready\\n') io.flush()
io.read()
for i = 1, 5 do
  local made = coroutine.create(function() return deep(60000) end)
  local ok, said = coroutine.resume(made)
  assert(not ok and said:find('stack overflow'), said)
  collectgarbage()
end
io.write('done\\n') io.flush()
io.read()
"""


class MovedStacks(attaching.TestCase):
    """A state whose stack is being moved is not read."""

    def test_with_mappings(self):
        for option in "-jon", "-joff":
            result = harness.run(harness.record_command(self.recording, [harness.need("luajit"), option, self.script()],
                                                        options=["--mappings"]))
            self.assertEqual(result.status, 0, result.stderr)

    def test_with_layers(self):
        luajit = subprocess.Popen([harness.need("luajit"), self.script()], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        try:
            self.assertEqual(luajit.stdout.readline(), "ready\n")
            with self.attached(luajit.pid, "--layers"):
                luajit.stdin.write("go\n")
                luajit.stdin.flush()
                self.assertEqual(luajit.stdout.readline(), "done\n")
                self.ctl(luajit.pid, "detach")
            luajit.communicate("\n", timeout=harness.TIMEOUT_S)
            self.assertEqual(luajit.returncode, 0)
        finally:
            luajit.kill()
            luajit.wait()

    def script(self):
        path = self.path("deep.lua")
        with open(path, "w", encoding="ascii") as file:
            file.write(DEEP)
        return path


if __name__ == "__main__":
    harness.main()
