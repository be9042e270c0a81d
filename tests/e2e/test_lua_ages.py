#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What outlived how many collections of its state: scripts whose collections are told, and ones that count
them by a finalizer."""

import json
import os
import signal
import subprocess

import attaching
import harness
from harness import HEAPLINE, wait_until

# Each maker has a line, and so have its blocks; the closure of a maker is one more block of its line.
MADE = {1: 101, 2: 211, 3: 307, 4: 401}
PHASES = """
local make = {}
make[1] = function() return {} end
make[2] = function() return {} end
make[3] = function() return {} end
make[4] = function() return {} end
make[5] = function() return {} end
local files, kept = {}, {{}, {}, {}, {}}
local function open(i) files[i] = io.open("/dev/null") end
local function keep(which, count)
  for i = 1, count do kept[which][i] = make[which]() end
end
local function drop(count)
  for i = 1, count do make[5]() end
end
io.write("begun\\n") io.flush() io.read()
collectgarbage("stop")
for i = 1, 20 do open(i) end
keep(1, 101)
collectgarbage()
keep(2, 211)
collectgarbage()
keep(3, 307)
drop(503)
collectgarbage()
keep(4, 401)
drop(509)
io.write("ready\\n") io.flush()
while io.read() == "once more" do
  collectgarbage()
  keep(4, 401)
  io.write("done\\n") io.flush()
end
os.exit(0)
"""
FIRST_MAKER = 3   # its line
OPEN_LINE = 9

# It says how many collections there were, and how many of what it keeps have outlived N = 1, 2, ... of them.
COUNTED = """
collectgarbage("restart")
local count, born, kept, kept_count = 0, {}, {}, 0
local function at_collection(call)
  if newproxy then getmetatable(newproxy(true)).__gc = call else setmetatable({}, {__gc = call}) end
end
local function collected()
  count = count + 1
  at_collection(collected)
end
at_collection(collected)
for i = 1, 20000 do born[i], kept[i] = 0, 0 end
local function make() return {} end
local seed = 12345
for i = 1, 200000 do
  local made = make()
  seed = (seed * 1103515245 + 12345) % 2147483648
  if seed % 31 == 0 then
    kept_count = kept_count + 1
    kept[kept_count], born[kept_count] = made, count
  end
end
local outlived = {count}
for n = 1, 6 do
  local sum = 0
  for i = 1, kept_count do if count - born[i] >= n then sum = sum + 1 end end
  outlived[n + 1] = sum
end
io.write(table.concat(outlived, " "), "\\n") io.flush()
io.read()
os.exit(0)
"""
COUNTED_LINE = 13
COUNTED_BLOCKS = 200000
VERSIONS = ("51", "52", "53", "54")

# Sizes of which no two are equal, on one line; and a seventh of them that is made again.
UNEVEN = """
local kept, text = {}, ("x"):rep(1000)
for i = 1, 700 do kept[i] = false end
local function make(i)
  kept[i] = text:sub(1, 100 + i)
end
for i = 1, 700 do make(i) end
collectgarbage()
io.write("ready\\n") io.flush() io.read()
for i = 7, 700, 7 do kept[i] = false end
collectgarbage()
for i = 7, 700, 7 do make(i) end
io.write("again\\n") io.flush() io.read()
os.exit(0)
"""
UNEVEN_LINE = 5

# It is collected all the time, and keeps what the last few collections have seen.
ALWAYS = """
local kept, bulk = {}, {}
local function make() return {} end
for i = 1, 100000 do bulk[i] = false end
io.write("begun\\n") io.flush()
local n = 0
while true do
  n = n + 1
  kept[n % 10 + 1] = make()
  collectgarbage()
end
"""
ALWAYS_LINE = 3


class Ages(attaching.TestCase):
    def start(self, script, command, *prefix):
        path = self.path("script.lua")
        with open(path, "w", encoding="ascii") as file:
            file.write(script)
        process = subprocess.Popen([*prefix, command, path], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)
        return process

    def ask(self, process, command=""):
        process.stdin.write(command + "\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    def end(self, process):
        process.stdin.close()
        self.assertEqual(process.wait(), 0)

    def record(self, script, command, mode="mem-fast"):
        self.recording = self.path(f"{os.path.basename(command)}-{mode}.hl")
        return self.start(script, command, HEAPLINE, "record", "-f", "--mode", mode, "-o",
                          self.recording, "--")

    def survived(self, recording, count, *options):
        """{line: blocks}"""
        rows = harness.report("lines", recording, "--survived", str(count), "--stack", "script",
                              "--unit", "objects", *options)["rows"]
        return {row["line"]: row["objects"] for row in rows}

    def check_phases(self, recording, more=0):
        """${more}: collections after the three, in which the last maker's tables were replaced."""
        for count in range(1, 6 + more):
            lines = self.survived(recording, count)
            for which, made in MADE.items():
                age = 4 - which + more if which < 4 else 0
                with self.subTest(survived=count, maker=which):
                    # The closure is as old as the first table, and was made before.
                    self.assertEqual(lines.get(FIRST_MAKER + which - 1, 0),
                                     made * (age >= count) + (3 + more >= count))
            # Tables that were dropped lie there still, or have been freed: none has outlived a collection. The
            # closure and the table of makers have.
            self.assertEqual(lines.get(FIRST_MAKER + 4, 0), 2 * (3 + more >= count))

    def begin_phases(self, process):
        self.assertEqual(process.stdout.readline(), "begun\n")
        self.assertEqual(self.ask(process), "ready")

    def saved(self):
        """All that the script has done is in the recording by now; a log may have no interval at first."""
        self.saved_with(FIRST_MAKER + 3, MADE[4] + 1)

    def saved_with(self, line, blocks, value="inuse"):
        def has_blocks():
            result = harness.run([HEAPLINE, "lines", "--json", "--stack", "script", "--unit", "objects",
                                  "--value", value, self.recording])
            rows = json.loads(result.stdout)["rows"] if result.status == 0 else []
            return any(row["line"] == line and row["objects"] >= blocks for row in rows)
        wait_until(has_blocks, "a save")

    def test_a_recording_that_goes_on_says_what_outlived_each_collection(self):
        for version in VERSIONS:
            for mode in ("mem-fast", "log-record"):
                with self.subTest(version, mode=mode):
                    process = self.record(PHASES, harness.program("lua_host" + version), mode)
                    self.begin_phases(process)
                    self.saved()
                    self.check_phases(self.recording)
                    self.end(process)

    def test_a_snapshot_and_the_end_of_attach_keep_it(self):
        for version in VERSIONS:
            with self.subTest(version):
                process = self.start(PHASES, harness.program("lua_host" + version))
                self.assertEqual(process.stdout.readline(), "begun\n")
                snapshot = self.path(f"snapshot{version}.hl")
                with self.attached(process.pid) as attach:
                    self.assertEqual(self.ask(process), "ready")
                    self.ctl(process.pid, "snapshot", snapshot)
                    self.assertEqual(self.ask(process, "once more"), "done")
                    attach.send_signal(signal.SIGINT)
                for recording, more in ((snapshot, 0), (self.recording, 1)):
                    for count in range(1, 6):
                        lines = self.survived(recording, count)
                        for which in (1, 2, 3):
                            age = 4 - which + more
                            self.assertEqual(lines.get(FIRST_MAKER + which - 1, 0),
                                             MADE[which] * (age >= count))
                        # Those that were replaced after that collection are garbage now.
                        self.assertEqual(lines.get(FIRST_MAKER + 3, 0), MADE[4] * (more >= count))
                self.end(process)

    def test_estimated_sizes_add_up_to_the_sum_of_their_stack(self):
        def row(*options):
            rows = harness.report("lines", self.recording, "--stack", "script", *options)["rows"]
            return next(row for row in rows if row["line"] == UNEVEN_LINE)

        process = self.record(UNEVEN, harness.program("lua_host54"))
        self.assertEqual(process.stdout.readline(), "ready\n")
        self.saved_with(UNEVEN_LINE, 701)  # with the closure's
        inuse = row("--value", "inuse")
        self.assertEqual(row("--survived", "1"), inuse)
        self.assertEqual(self.ask(process), "again")
        self.saved_with(UNEVEN_LINE, 801, "alloc")
        self.assertEqual(row("--value", "inuse"), inuse)
        survived = row("--survived", "1")
        self.assertEqual(survived["objects"], 601)
        self.assertAlmostEqual(survived["bytes"] / inuse["bytes"], 6 / 7, delta=0.03)
        self.end(process)

    def test_what_c_has_that_a_script_called_is_not_of_lua(self):
        process = self.record(PHASES, harness.program("lua_host54"))
        self.begin_phases(process)
        self.saved()
        inuse = harness.report("lines", self.recording, "--value", "inuse", "--stack", "script",
                               "--unit", "objects")["rows"]
        blocks = {row["line"]: row["objects"] for row in inuse}[OPEN_LINE]
        survived = self.survived(self.recording, 3)[OPEN_LINE]
        # 20 streams of C; userdata, and what the table of them has become.
        self.assertEqual(blocks - survived, 20)
        self.assertGreaterEqual(survived, 20)
        self.end(process)

    def test_collections_that_run_by_themselves_are_counted_as_a_finalizer_counts_them(self):
        commands = [harness.program("lua_host" + version) for version in VERSIONS]
        for command in (*commands, "lua5.1"):
            with self.subTest(command):
                process = self.record(COUNTED, command)
                count, *expected = map(int, process.stdout.readline().split())
                self.assertGreater(count, 4)
                self.saved_with(COUNTED_LINE, COUNTED_BLOCKS + 1, "alloc")
                for n, most in enumerate(expected[:-1], 1):
                    # A finalizer runs after the sweep: what was allocated meanwhile has outlived one less,
                    # and what was allocated just before it, one more. The closure is one more block.
                    found = self.survived(self.recording, n)[COUNTED_LINE]
                    self.assertLessEqual(found, most + 1 + count)
                    self.assertGreaterEqual(found, expected[n])
                self.end(process)

    def test_what_is_allocated_while_it_is_read_has_outlived_none(self):
        process = self.record(ALWAYS, harness.program("lua_host54"))
        self.addCleanup(os.killpg, process.pid, signal.SIGTERM)
        self.assertEqual(process.stdout.readline(), "begun\n")
        self.saved_with(ALWAYS_LINE, 1000, "alloc")
        for _ in range(5):
            # The closure is one that lasts.
            self.assertEqual(self.survived(self.recording, 500)[ALWAYS_LINE], 1)

    def test_another_interpreter_in_the_process_takes_no_ages_away(self):
        process = self.record(PHASES, harness.program("lua_beside"))
        self.begin_phases(process)
        self.saved()
        self.check_phases(self.recording)
        self.end(process)

    def test_of_generational_collections_the_major_ones_count(self):
        process = self.record("collectgarbage('generational')" + PHASES, harness.program("lua_host54"))
        self.begin_phases(process)
        self.saved()
        self.check_phases(self.recording)
        result = harness.run([HEAPLINE, "top", "--survived", "1", self.recording])
        self.assertIn("of its collections only the major ones count", result.stdout)
        self.assertRegex(result.stdout, r"\nin use \S+ KiB in [\d,]+ blocks\n"
                                        r"survived 1: in use \S+ KiB in [\d,]+ blocks, of \S+ KiB in ")
        self.end(process)

    def test_minor_collections_do_not_count(self):
        process = self.record("collectgarbage('generational')\n" + COUNTED,
                              harness.program("lua_host54"))
        count, *expected = map(int, process.stdout.readline().split())
        self.assertGreater(count, 20)
        self.saved_with(COUNTED_LINE + 1, COUNTED_BLOCKS + 1, "alloc")
        found = [self.survived(self.recording, n).get(COUNTED_LINE + 1, 0) for n in range(1, 7)]
        # Of its collections few are major ones; what has outlived one of these, has outlived one of all.
        self.assertLess(found[5], expected[5] / 2)
        for n in range(5):
            self.assertLessEqual(found[n], expected[n] + 1 + count)
        self.end(process)

    def test_a_recording_that_has_ended_says_why_it_does_not_know(self):
        process = self.record(PHASES, harness.program("lua_host53"))
        self.begin_phases(process)
        self.end(process)
        result = harness.run([HEAPLINE, "top", "--survived", "1", self.recording])
        self.assertEqual(result.status, 1)
        self.assertIn("does not say which collections of Lua", result.stderr)


if __name__ == "__main__":
    harness.main()
