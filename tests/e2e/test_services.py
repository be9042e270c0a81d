#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Services in Lua: each block has the service that it is of and its type, whichever thread allocated it, as
the host counts them itself. With SKYNET_DIR, of a built checkout of skynet, too."""

import json
import os
import re
import socket
import subprocess

import attaching
import harness

SCRIPT = os.path.join(harness.SOURCES, "lua_services.lua")
TYPES = {0: "part of an object", 4: "string", 5: "table", 6: "function", 7: "userdata", 8: "thread",
         9: "upvalue", 10: "proto"}
RECEIVE = "receive"  # the function in C that allocates what is kept, and the line of the script that calls it
KEEP_LINE = 15


def sums(recording, key, *options, value="alloc"):
    """{row: [bytes, blocks]}"""
    rows = harness.report("top", recording, "--by", key, "--value", value, *options)["rows"]
    return {row["name"]: [row["flat_bytes"], row["flat_objects"]] for row in rows}


def add(sum_of, key, figures):
    for i, figure in enumerate(figures):
        sum_of.setdefault(key, [0, 0])[i] += figure


class Ledger:
    def __init__(self, lines):
        self.services, self.types = {}, {}
        for words in map(str.split, lines):
            if words == ["done"]:
                return
            figures = [int(word) for word in words[-2:]]
            if figures[1]:
                add(self.services, words[1], figures)
                add(self.types, TYPES[int(words[2])] if words[0] == "lua" else "[no type]", figures)
        raise AssertionError("it ended")


class Host(attaching.TestCase):
    program = "lua_services"

    def ask(self, process, command):
        process.stdin.write(command + "\n")
        process.stdin.flush()
        return iter(process.stdout.readline, "")

    def start(self, *prefix):
        process = subprocess.Popen([*prefix, harness.program(self.program), SCRIPT], text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def end(self, process):
        process.stdin.close()
        self.assertEqual(process.wait(), 0)

    def check(self, ledger, names):
        services = sums(self.recording, "service")
        self.assertEqual({names[name]: services.get(names[name]) for name in ledger.services},
                         {names[name]: figures for name, figures in ledger.services.items()})
        total = [sum(figures) for figures in zip(*services.values())]
        for key in ("type", "function"):
            self.assertEqual([sum(figures) for figures in zip(*sums(self.recording, key).values())], total)
        of_services = "|".join(names[name] for name in ledger.services)
        self.assertEqual(sums(self.recording, "type", "--service", f"^({of_services})$"), ledger.types)
        lost = harness.info(self.recording)["lost"]
        self.assertEqual({name: count for name, count in lost.items() if count}, {})

    def check_sheet(self, pid, names):
        """What `services` says is what the recorder has counted and the kernel says."""
        sheet = harness.report("services", str(pid), "-p")
        self.assertEqual(sheet["by"], "service")
        status = next(row for row in json.loads(self.ctl(pid, "status", "--json").stdout)["rows"]
                      if row["pid"] == pid)
        total = sheet["total"]
        self.assertEqual([total["inuse_bytes"], total["inuse_blocks"]],
                         [status["inuse_bytes"], status["inuse_objects"]])
        rows = {row["service"]: row for row in sheet["rows"]}
        self.assertLessEqual(set(names), set(rows))
        for key in "inuse_bytes", "lua_bytes", "lua_blocks", "c_bytes", "c_blocks", "resident_bytes":
            self.assertEqual(sum(row[key] for row in rows.values()), total[key], key)
        parts = {row["part"]: row["bytes"] for row in sheet["resident"]}
        self.assertEqual(parts["blocks of all services"], total["resident_bytes"])
        self.assertEqual(sum(parts.values()), total["rss_bytes"])
        self.assertLess(abs(parts["remainder"]), total["rss_bytes"] / 50)
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            rss = next(int(line.split()[1]) * 1024 for line in file if line.startswith("Rss:"))
        self.assertAlmostEqual(total["rss_bytes"], rss, delta=rss / 50)
        self.assertEqual(sheet["lost"], {"events": 0, "unscanned_bytes": 0})
        return rows

    def check_kept(self, rows, name, messages):
        """The hoarder keeps a block of 100 bytes in C for each message, and its objects in Lua."""
        self.assertEqual([rows[name]["c_bytes"], rows[name]["c_blocks"]], [100 * messages, messages])
        self.assertEqual({row["c_blocks"] for row in rows.values() if row["handle"] in (1, 3)}, {0})
        self.assertGreater(rows[name]["lua_blocks"], 2 * messages)

    def check_leak(self, service, messages):
        stacks = harness.folded(self.recording, "inuse", "objects", "--service", service, "--focus",
                                RECEIVE)
        self.assertEqual(sum(stacks.values()), messages)
        rows = harness.report("lines", self.recording, "--value", "inuse", "--stack", "script", "--service",
                              service)["rows"]
        self.assertEqual([row["objects"] for row in rows if row["file"] == SCRIPT and row["line"] == KEEP_LINE],
                         [messages])
        rooted = harness.folded(self.recording, "inuse", "objects", "--root", "service", "--focus", RECEIVE)
        self.assertEqual({stack[0] for stack in rooted}, {service})
        tree = [harness.HEAPLINE, "tree", "--root", "service", "--service", "hoarder", self.recording]
        self.assertNotIn("start_thread", harness.run(tree).stdout)
        self.assertIn("start_thread", harness.run([*tree, "--plumbing"]).stdout)

    def test_what_is_recorded_from_the_start_is_the_hosts_ledger(self):
        for mode in ("mem-fast", "log-record"):
            with self.subTest(mode):
                self.recording = self.path(mode + ".hl")
                process = self.start(*harness.record_command(self.recording, [], mode))
                next(self.ask(process, "round 200"))
                ledger = Ledger(self.ask(process, "ledger"))
                child = next(child for child in harness.children_of(process.pid)
                             if os.path.basename(os.readlink(f"/proc/{child}/exe")) == self.program)
                names = {name: f"{name} :{handle:08x}"
                         for handle, name in enumerate(("echo", "hoarder", "idle"), 1)}
                self.check_kept(self.check_sheet(child, names.values()), names["hoarder"], 200)
                self.end(process)
                self.assertEqual(set(ledger.services), set(names))
                self.check(ledger, names)
                self.check_leak(names["hoarder"], 200)

    def test_what_is_recorded_after_joining_is_the_hosts_ledger(self):
        process = self.start()
        next(self.ask(process, "round 20"))
        Ledger(self.ask(process, "ledger"))
        with self.attached(process.pid):
            next(self.ask(process, "round 200"))
            ledger = Ledger(self.ask(process, "ledger"))
            # The third one is idle.
            rows = self.check_sheet(process.pid, ["echo :00000001", "hoarder :00000002"])
            self.check_kept(rows, "hoarder :00000002", 200)
            harness.wait_until(lambda: "hoarder :00000002" in sums(self.recording, "service"), "the save")
            self.ctl(process.pid, "detach")
        self.end(process)
        # Its blocks are of C, and those of other services have types.
        top = harness.run([harness.HEAPLINE, "top", "--by", "type", "--service", "hoarder", "--focus", RECEIVE, self.recording])
        self.assertIn("[no type]", top.stdout)
        self.assertNotIn("Lua tells types", top.stdout)
        # Services that began before have told their names to nobody, and their states have them.
        self.check(ledger, {name: f"{name} :{handle:08x}"
                            for handle, name in enumerate(("echo", "hoarder", "idle"), 1)})

    def test_where_the_table_contradicts_itself_services_keep_their_handles(self):
        process = self.start()
        next(self.ask(process, "round 20"))
        next(self.ask(process, "forget"))
        with self.attached(process.pid):
            next(self.ask(process, "round 20"))
            self.ctl(process.pid, "detach")
        self.end(process)
        self.assertLessEqual({":00000001", ":00000002"}, set(sums(self.recording, "service")))

    def test_messages_that_wait_are_those_in_the_queues(self):
        process = self.start(*harness.record_command(self.recording, []))
        next(self.ask(process, "round 20"))
        child = next(child for child in harness.children_of(process.pid)
                     if os.path.basename(os.readlink(f"/proc/{child}/exe")) == self.program)
        for sent, messages, size in ((0, 0, 0), (10, 10, 55), (7, 17, 55 + 28)):
            next(self.ask(process, f"send {sent}"))
            sheet = harness.report("services", str(child), "-p")
            self.assertEqual([(row["service"], row["queued_messages"], row["queued_bytes"])
                              for row in sheet["rows"] if row["queued_messages"]],
                             [("hoarder :00000002", messages, size)] if messages else [])
            self.assertEqual([sheet["total"]["queued_messages"], sheet["total"]["queued_bytes"]],
                             [messages, size])
        hidden = "1 of them, for which 17 messages wait; --sort waiting shows these first"
        for key, first, is_hidden in (("bytes", "echo", True), ("waiting", "hoarder", False)):
            said = harness.run([harness.HEAPLINE, "services", "-p", str(child), "-n", "1", "--sort", key]).stdout
            self.assertRegex(said, rf"(?m)^{first} ")
            self.assertEqual(hidden in said, is_hidden, said)
        next(self.ask(process, "forget"))
        said = harness.run([harness.HEAPLINE, "services", "-p", str(child)])
        self.assertIn("messages that wait are not shown: skynet's table of services is not where it is known "
                      "to be", said.stdout)
        self.end(process)

    def test_it_is_repeated_until_the_process_ends(self):
        process = self.start(*harness.record_command(self.recording, []))
        next(self.ask(process, "round 20"))
        child = next(child for child in harness.children_of(process.pid)
                     if os.path.basename(os.readlink(f"/proc/{child}/exe")) == self.program)
        with subprocess.Popen([harness.HEAPLINE, "services", "-p", str(child), "--json", "-w", "1"], text=True,
                              stdout=subprocess.PIPE) as watcher:
            self.addCleanup(watcher.kill)
            begins = f'"pid": {child}'
            said = []
            while sum(begins in line for line in said) < 2:  # the second report has begun
                said.append(watcher.stdout.readline())
                self.assertTrue(said[-1], said)
            self.end(process)
            watcher.stdout.read()
            self.assertEqual(watcher.wait(harness.TIMEOUT_S), 0)

    def test_without_symbols_it_says_that_queues_are_not_found(self):
        stripped = self.path("stripped")
        subprocess.run(["strip", "-o", stripped, harness.program(self.program)], check=True)
        with subprocess.Popen([*harness.record_command(self.recording, []), stripped, SCRIPT], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            self.addCleanup(process.kill)
            self.assertEqual(process.stdout.readline(), "ready\n")
            next(self.ask(process, "round 20"))
            child = next(child for child in harness.children_of(process.pid)
                         if os.readlink(f"/proc/{child}/exe") == stripped)
            said = harness.run([harness.HEAPLINE, "services", "-p", str(child)])
            process.stdin.close()
        self.assertIn("no symbols that name skynet's table of services", said.stdout)


class HostWithoutMalloc(Host):
    """As skynet without jemalloc: the recorder comes in once the C library is there."""

    program = "lua_services_libc"


class Refused(attaching.TestCase):
    """Without what the sheet is made of, what would help is said."""

    def refuse(self, pid):
        result = harness.run([harness.HEAPLINE, "services", "-p", str(pid)])
        self.assertEqual((result.status, result.stdout), (1, ""))
        return result.stderr

    def test_a_process_that_is_not_recorded(self):
        process = subprocess.Popen([harness.program("lua_services"), SCRIPT], text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with process:
            self.assertEqual(process.stdout.readline(), "ready\n")
            self.assertIn(f"'heapline attach -p {process.pid}' records it", self.refuse(process.pid))
            process.kill()

    def test_a_process_without_lua_is_not_to_be_recorded_for_it(self):
        with subprocess.Popen(["sleep", "60"]) as process:
            said = self.refuse(process.pid)
            self.assertIn("none of its files has Lua", said)
            self.assertIn(f"'heapline heap -p {process.pid}' shows where its memory is", said)
            self.assertNotIn("attach", said)
            process.kill()

    def test_a_program_without_services_and_types(self):
        with subprocess.Popen(["sleep", "60"]) as process:
            with self.attached(process.pid):
                self.assertIn("has seen neither services nor states of Lua nor types", self.refuse(process.pid))
                self.ctl(process.pid, "detach")
            process.kill()


STEPS = ("""
local kept = {}
function step() for i = 1, 5000 do kept[#kept + 1] = {i} end end
""", """
local kept = {}
function step()
  for i = 1, 1000 do kept[#kept + 1] = "text " .. #kept end
  kept.file = kept.file or io.open("/dev/null")
end
""")


class States(attaching.TestCase):
    """Each state of Lua has a row, and says what it has itself."""

    def start(self, version, *prefix, steps=STEPS):
        scripts = [self.path("one.lua"), self.path("two.lua")]
        for path, text in zip(scripts, steps):
            with open(path, "w", encoding="ascii") as file:
                file.write(text)
        process = subprocess.Popen([*prefix, harness.program("lua_states" + version), *scripts], text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process, scripts

    def ask(self, process, command):
        process.stdin.write(command + "\n")
        process.stdin.flush()
        return [int(word) for word in process.stdout.readline().split()[:-1]]

    def check(self, pid, scripts, counted):
        sheet = harness.report("services", str(pid), "-p")
        self.assertEqual(sheet["by"], "state")
        rows = {row["state"]: row for row in sheet["rows"]}
        for key in "inuse_bytes", "lua_bytes", "c_bytes", "lua_blocks", "c_blocks", "resident_bytes":
            self.assertEqual(sum(row[key] for row in rows.values()), sheet["total"][key], key)
        parts = {row["part"]: row["bytes"] for row in sheet["resident"]}
        self.assertEqual(sum(parts.values()), sheet["total"]["rss_bytes"])
        self.assertEqual(parts["shared memory"], 0)  # it has none; the recorder's is its own
        self.assertEqual({row["state"]: row["counted_bytes"] for row in sheet["rows"] if row["number"]},
                         dict(zip(scripts, counted)))
        for script, count in zip(scripts, counted):
            self.assertLess(rows[script]["lua_bytes"], count)
        return rows

    def test_of_a_recording(self):
        for version in "51", "52", "53", "54":
            with self.subTest(version):
                self.recording = self.path(f"states{version}.hl")
                process, scripts = self.start(version, *harness.record_command(self.recording, []))
                counted = self.ask(process, "step")
                pid = next(child for child in harness.children_of(process.pid)
                           if os.readlink(f"/proc/{child}/exe").endswith("lua_states" + version))
                rows = self.check(pid, scripts, counted)
                # The tables and their items, and the table of them all. What a state begins with is nobody's.
                self.assertIn(rows[scripts[0]]["lua_blocks"], range(10001, 10010))
                self.assertGreater(rows[scripts[0]]["lua_bytes"], 0.9 * counted[0])
                self.assertEqual([rows[script]["c_blocks"] for script in scripts], [0, 1])
                counted = self.ask(process, "close")
                rows = self.check(pid, scripts[:1], counted)
                self.assertNotIn(scripts[1], rows)
                process.stdin.close()
                process.wait()

    def test_a_state_that_follows_a_closed_one(self):
        """Each has its own row, also if it lies where the closed one lay or if there have been more states than rows. What outlives
        a state is never another's."""
        leaking = [text.replace("step()", "step() leak()") for text in STEPS]
        for version, *commands in ("51", "again", "step"), ("54", "again", "step"), ("54", "many", "again", "step"):
            with self.subTest(version=version, commands=commands):
                self.recording = self.path("again.hl")
                process, (script, closed) = self.start(version, *harness.record_command(self.recording, []), steps=leaking)
                counted = [self.ask(process, command) for command in ("step", *commands)][-1]
                pid = next(child for child in harness.children_of(process.pid)
                           if os.readlink(f"/proc/{child}/exe").endswith("lua_states" + version))
                rows = {(row["state"], row["number"]): row for row in harness.report("services", str(pid), "-p")["rows"]}
                process.stdin.close()
                process.wait()
                old, new = sorted(number for name, number in rows if name == script)
                self.assertEqual([rows[script, number]["counted_bytes"] for number in (old, new)], counted)
                self.assertEqual([rows[script, number]["c_blocks"] for number in (old, new)], [2, 1])
                self.assertIn(rows[script, new]["lua_blocks"], range(10001, 10010) if version == "51" else range(10000, 10010))
                left = rows.pop((closed + " (closed)", 2))
                self.assertEqual((left["counted_bytes"], left["c_blocks"]), (0, 1))
                names = {name for name, number in rows if rows[name, number]["counted_bytes"]}
                self.assertEqual(names, {script})

    def test_while_states_are_made(self):
        """No row has the blocks of others."""
        self.recording = self.path("made.hl")
        process, _ = self.start("54", *harness.record_command(self.recording, []))
        pid = next(child for child in harness.children_of(process.pid)
                   if os.readlink(f"/proc/{child}/exe").endswith("lua_states54"))
        process.stdin.write("kept\n")
        process.stdin.flush()
        options = str(pid), "-n", "0", "-p"
        sheets = [harness.report("services", *options) for _ in range(4)]
        self.assertEqual(process.stdout.readline().split()[-1], "done")
        most = max(row["lua_blocks"] for row in harness.report("services", *options)["rows"] if row["number"])
        for row in (row for sheet in sheets for row in sheet["rows"] if row["number"]):
            self.assertLessEqual(row["lua_blocks"], most)
        process.stdin.close()
        process.wait()

    def test_of_a_process_that_was_joined(self):
        process, scripts = self.start("54")
        self.ask(process, "step")
        with self.attached(process.pid):
            counted = self.ask(process, "step")
            rows = self.check(process.pid, scripts, counted)
            # The first block of all is allocated before the interpreter is known.
            self.assertIn(rows[scripts[0]]["lua_blocks"], range(10000, 10010))
            self.ctl(process.pid, "detach")
        process.stdin.close()

    def test_what_is_in_ram_of_blocks_within_others_is_not_known(self):
        process, scripts = self.start("54", "env", "INNER=1")
        with self.attached(process.pid, "--hook", "realloc=cut_realloc(ptr=2,type=3,size=4)"):
            self.ask(process, "step")
            sheet = harness.report("services", str(process.pid), "-p")
            text = harness.run([harness.HEAPLINE, "services", "-p", str(process.pid)]).stdout
            self.ctl(process.pid, "detach")
        process.stdin.close()
        rows = {row["state"]: row for row in sheet["rows"]}
        self.assertIn(rows[scripts[0]]["lua_blocks"], range(10000, 10010))
        self.assertEqual([rows[script]["resident_bytes"] for script in scripts], [None, None])
        self.assertNotIn("resident_bytes", sheet["total"])
        self.assertEqual(sum(part["bytes"] for part in sheet["resident"]), sheet["total"]["rss_bytes"])
        self.assertIn("\nin RAM is not known of blocks that an allocator of --hook cuts from blocks of malloc()", text)
        self.assertRegex(text, r"\nsum +[\d.]+ [KM]iB .* -  +-  ")  # and no number


CONFIG = """
root = "./"
luaservice = root.."service/?.lua;{directory}/?.lua"
lualoader = root.."lualib/loader.lua"
lua_path = root.."lualib/?.lua;"..root.."lualib/?/init.lua"
lua_cpath = root.."luaclib/?.so"
cpath = root.."cservice/?.so"
thread = 4
harbor = 0
start = "calls"
bootstrap = "snlua bootstrap"
"""
CALLS = """
local skynet = require "skynet"
require "skynet.manager"
skynet.start(function()
    local hoarder = skynet.newservice("hoarder", "one")
  local busy = skynet.newservice("busy")
  skynet.send(busy, "lua", "hold")
  for i = 1, {waiting} do
    skynet.send(busy, "lua", string.rep("x", 1000))
  end
  skynet.newservice("debug_console", "127.0.0.1", {port})
  for i = 1, 500 do
    skynet.call(hoarder, "lua", {{i, "text " .. i}})
  end
  print("used " .. skynet.call(hoarder, "lua"))
  io.flush()
  while not io.open "{directory}/go" do
    skynet.sleep(10)
  end
  skynet.abort()
end)
"""
HOARDER = """
local skynet = require "skynet"
local kept = {}
skynet.start(function()
  skynet.dispatch("lua", function(_, _, message)
    kept[#kept + 1] = message and {message, skynet.pack(message)}
    skynet.ret(skynet.pack(collectgarbage "count"))
  end)
end)
"""
HOARD_LINE = 6
# It is stopped in its first message, while the others wait.
BUSY = """
local skynet = require "skynet"
skynet.start(function()
  skynet.dispatch("lua", function(_, _, what)
    while what == "hold" and not io.open "{directory}/go" do
      os.execute "sleep 0.05"
    end
  end)
end)
"""
WAITING = 70
WAITING_BYTES = 1003  # as skynet.pack() writes a string of 1,000



COOKIE_BYTES = 16  # before each block of C


def cookie_bytes(checkout):
    """What `cmem` counts for a block beside what was asked for: 1.8.0 counts no cookie, later ones do."""
    with open(os.path.join(checkout, "skynet-src/malloc_hook.c"), encoding="utf-8") as file:
        return COOKIE_BYTES if "sz += cookie_size" in file.read() else 0


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def ask_console(port, command):
    """{handle: number} of what skynet's debug console answers, of lines like ':0000000a\t24108'."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as console:
        console.sendall(command.encode() + b"\n")
        answer = b""
        while b"<CMD OK>" not in answer:
            answer += console.recv(1 << 16)
    return {int(handle, 16): float(number)
            for handle, number in re.findall(r"^:(\w{8})\t([\d.]+)", answer.decode(), re.M)}


class Skynet(attaching.TestCase):
    """The real one, as it was built: with jemalloc or without."""

    def check_sheet(self, sheet, cmem, mem, cookie_bytes):
        """`services` has what the console says, but for what is going on meanwhile."""
        rows = {row["handle"]: row for row in sheet["rows"]}
        for handle, bytes_of_c in cmem.items():
            row = rows.get(handle)
            if row and row["service"].startswith(("hoarder", "datacenterd", "service_mgr", "cdummy")):
                # Blocks of calloc() have a cookie of up to twice the size of an element.
                self.assertAlmostEqual(row["c_bytes"] + cookie_bytes * row["c_blocks"], bytes_of_c, delta=64)
        for handle, kib in mem.items():
            if rows[handle]["service"].startswith(("hoarder", "datacenterd", "service_mgr", "cdummy")):
                self.assertAlmostEqual(rows[handle]["lua_bytes"] / 1024, kib, delta=6)
        self.assertEqual(sum(part["bytes"] for part in sheet["resident"]), sheet["total"]["rss_bytes"])

    def test_what_a_service_keeps_is_found_by_service_and_line(self):
        directory = os.environ.get("SKYNET_DIR")
        if not directory:
            self.skipTest("SKYNET_DIR is not set: it names a checkout of skynet that has been built")
        port = free_port()
        calls = CALLS.format(directory=self.directory, port=port, waiting=WAITING)
        for name, text in (("calls.lua", calls), ("hoarder.lua", HOARDER),
                           ("busy.lua", BUSY.format(directory=self.directory)),
                           ("config", CONFIG.format(directory=self.directory))):
            with open(self.path(name), "w", encoding="utf-8") as file:
                file.write(text)
        recording = self.path("skynet.hl")
        snapshot = self.path("snapshot.hl")
        with subprocess.Popen(harness.record_command(recording, ["./skynet", self.path("config")]), text=True,
                              cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            self.addCleanup(process.kill)
            used = next(float(line.split()[1]) for line in process.stdout if line.startswith("used"))
            pid = next(child for child in harness.children_of(process.pid)
                       if os.path.basename(os.readlink(f"/proc/{child}/exe")) == "skynet")
            mem, cmem = ask_console(port, "mem"), ask_console(port, "cmem")
            sheet = harness.report("services", str(pid), "-p")
            self.ctl(pid, "snapshot", snapshot)
            with open(self.path("go"), "w", encoding="utf-8"):
                pass
            process.stdout.read()
            self.assertEqual(process.wait(), 0)
        self.check_sheet(sheet, cmem, mem, cookie_bytes(directory))
        self.assertEqual([(row["queued_messages"], row["queued_bytes"]) for row in sheet["rows"]
                          if row["service"].startswith("busy ")],
                         # What `mem` has asked it waits, too.
                         [(WAITING + 1, WAITING * WAITING_BYTES + len("xMEM"))])
        services = sums(snapshot, "service", value="inuse")
        hoarder = next(name for name in services if name.startswith("hoarder one :"))
        of_lua = sum(figures[0] for name, figures in sums(
            snapshot, "type", "--service", hoarder, value="inuse").items() if name != "[no type]")
        # As the service says itself; its state was begun by another one.
        self.assertAlmostEqual(of_lua / 1024, used, delta=used / 20)
        rows = harness.report("lines", snapshot, "--value", "inuse", "--stack", "script", "--service",
                              hoarder)["rows"]
        kept = next(row for row in rows if os.path.basename(row["file"]) == "hoarder.lua")
        self.assertEqual(kept["line"], HOARD_LINE)
        packed = harness.folded(snapshot, "inuse", "objects", "--service", hoarder, "--type", "table")
        self.assertGreater(sum(packed.values()), 500)


GROWING = """
local skynet = require "skynet"
require "skynet.manager"
skynet.start(function()
  local hoarder = skynet.newservice("hoarder", "one")
  print("ready " .. skynet.address(hoarder))
  io.flush()
  while not io.open "{directory}/go" do
    skynet.call(hoarder, "lua", {{"text " .. skynet.now()}})
    skynet.sleep(1)
  end
  skynet.abort()
end)
"""


class Tutorial(attaching.TestCase):
    def test_its_commands_find_the_line(self):
        checkout = os.environ.get("SKYNET_DIR")
        if not checkout:
            self.skipTest("SKYNET_DIR is not set: it names a checkout of skynet that has been built")
        for name, text in (("calls.lua", GROWING.format(directory=self.directory)), ("hoarder.lua", HOARDER),
                           ("config", CONFIG.format(directory=self.directory))):
            with open(self.path(name), "w", encoding="utf-8") as file:
                file.write(text)
        with open(os.path.join(harness.SOURCES, "../../docs/tutorials/skynet.md"), encoding="utf-8") as file:
            blocks = re.findall(r"^```sh\n(.*?)^```$", file.read(), re.M | re.S)
        with subprocess.Popen(["./skynet", self.path("config")], cwd=checkout, text=True,
                              stdout=subprocess.PIPE) as process:
            self.addCleanup(process.kill)
            ready = next(line for line in process.stdout if line.startswith("ready :"))
            blocks = [block.replace(":HANDLE", ready.split()[1]) for block in blocks]
            environment = dict(os.environ, PID=str(process.pid),
                               PATH=os.path.dirname(harness.HEAPLINE) + os.pathsep + os.environ["PATH"])
            said = [subprocess.run(["bash", "-ec", block], cwd=self.directory, env=environment, check=True,
                                   capture_output=True, text=True).stdout for block in blocks]
            with open(self.path("go"), "w", encoding="utf-8"):
                pass
            process.stdout.read()
            self.assertEqual(process.wait(), 0)
        self.assertRegex(said[1], r"hoarder :0000000\w")
        self.assertRegex(said[2], r"(?m)^hoarder :0000000\w .*\n[\s\S]*^RSS ")
        self.assertRegex(said[3], r"table[\s\S]*\[no type\]|\[no type\][\s\S]*table")
        self.assertRegex(said[4], rf"hoarder.lua:{HOARD_LINE} ")
        with open(self.path("game.svg"), encoding="utf-8") as file:
            self.assertRegex(file.read(), r"hoarder :0000000\w")


# Runs its program once more, and forks a child that goes on to main().
CONSTRUCTOR = """
#include <stdlib.h>
#include <unistd.h>
pid_t child;
__attribute__((constructor)) static void before(int count, char **words) {
    (void)count;
    if (!getenv("AGAIN")) {
        setenv("AGAIN", "1", 1);
        execv("/proc/self/exe", words);
    }
    child = fork();
}
"""

# As skynet: an allocator beside malloc.
BEGUN = """
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
extern pid_t child;
void *skynet_lalloc(void *block, size_t old, size_t size) { (void)old; return realloc(block, size); }
int main(void) {
    int status;
    for (int i = 0; i < 100; i++)
        if (!malloc(77)) return 1;
    if (!child) return 7;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7 ? 3 : 1;
}
"""


class Beginning(harness.TestCase):
    """A program that is entered before its libraries' constructors goes on as it would, whatever they do."""

    def test_constructors_may_run_the_program_again_and_fork(self):
        gcc = harness.need("gcc")
        for name, text in (("begins.c", CONSTRUCTOR), ("main.c", BEGUN)):
            with open(self.path(name), "w", encoding="ascii") as file:
                file.write(text)
        subprocess.run([gcc, "-shared", "-fPIC", "-o", self.path("libbegins.so"), self.path("begins.c")], check=True)
        program = self.path("begins")
        subprocess.run([gcc, "-rdynamic", "-o", program, self.path("main.c"), "-L", self.directory, "-lbegins",
                        f"-Wl,-rpath,{self.directory}"], check=True)
        recording = self.path("begins.hl")
        result = harness.run(harness.record_command(recording, [program]))
        self.assertEqual(result.status, 3, result.stderr)
        row = harness.top_rows(recording, "alloc")["main"]
        self.assertEqual((row["flat_objects"], row["flat_bytes"]), (200, 15400))
        self.assertEqual([row["end"] for row in harness.processes(recording)],
                         ["replaced by exec", "exited with status 3", "ended"])


if __name__ == "__main__":
    harness.main()
