#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The commands of the tutorials do what the tutorials say."""

import os
import re
import signal
import socket
import subprocess
import tempfile
import unittest
import unittest.mock

import harness
import test_pod

TUTORIALS = os.path.join(harness.SOURCES, "../../docs/tutorials")
MARK = "--- end of block ---"
FAILED = "--- failed ---"  # said by the shell itself: its children may hold its output open
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def blocks_of(text):
    """The commands of a tutorial, block by block."""
    return re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def need_traces():
    """Skips where the kernel, or want of privileges, forbids to trace our own process."""
    result = harness.run([harness.HEAPLINE, "page-events", "-p", str(os.getpid()), "0.01"])
    if result.status != 0:
        raise unittest.SkipTest(result.stderr.strip())


def need_attach(folder):
    """Skips where we may not trace even our own process."""
    result = harness.run([harness.HEAPLINE, "attach", "-p", str(os.getpid()), "-d", "0.01", "-o",
                          os.path.join(folder, "probe.hl")])
    if result.status != 0:
        raise unittest.SkipTest(result.stderr.strip())


class Session:
    """One shell that runs blocks of commands in a folder of its own, as a reader would."""

    def __init__(self, folder):
        path = os.path.dirname(harness.HEAPLINE) + os.pathsep + os.environ["PATH"]
        self.shell = subprocess.Popen(
            ["bash", "-e"], cwd=folder, env=dict(os.environ, PATH=path, LC_ALL="C.UTF-8"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True)
        # It ends with us, however we end, and its children with it.
        self.shell.stdin.write(
            f"trap 'trap \"\" PIPE; echo || :; echo {FAILED} || :; kill 0' EXIT\n")

    def run(self, block):
        """What a block writes; with status and end, as the shell says."""
        self.shell.stdin.write(f"{{\n{block}\n}} < /dev/null\necho '{MARK}'\n")
        self.shell.stdin.flush()
        said = ""
        while not said.endswith(MARK + "\n"):
            line = self.shell.stdout.readline()
            if not line or line == FAILED + "\n":
                raise AssertionError(f"failed: {block}\n{said}")
            said += line
        return said[: -len(MARK) - 1]

    def end(self):
        os.killpg(self.shell.pid, signal.SIGKILL)
        self.shell.wait()
        self.shell.stdin.close()
        self.shell.stdout.close()


def bytes_of(pattern, text):
    """The bytes that a pattern with a number and a unit finds."""
    found = re.search(pattern + r" (-?[0-9.]+) (B|KiB|MiB|GiB)\b", text)
    if not found:
        raise AssertionError(f"no '{pattern}' in:\n{text}")
    return float(found[1]) * UNITS[found[2]]


class Tutorials(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="heapline-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def play(self, name, replacements):
        """What each block of a tutorial writes."""
        with open(os.path.join(TUTORIALS, name), encoding="utf-8") as file:
            text = file.read()
        for old, new in replacements.items():
            text = text.replace(old, new)
        session = Session(self.folder)
        self.addCleanup(session.end)
        return [session.run(block) for block in blocks_of(text)]

    def test_a_leak_in_a_server_is_found_from_outside(self):
        for command in ("redis-server", "redis-cli", "bash"):
            harness.need(command)
        need_traces()
        said = self.play("leak-in-production.md", {"6399": str(free_port())})
        _, grows, _, cached, mended, _ = said
        self.assertIn("evalGenericCommand", grows)
        scripts = int(cached.split(":")[1])
        if scripts == 500:
            self.skipTest("this redis keeps the last 500 scripts alone, as 7.4 and later do, so that nothing leaks")
        self.assertGreater(scripts, 500)
        growth = bytes_of("gained", grows)
        pages = re.search(r"pages ([0-9,]+); rss growth ([0-9,]+) pages", grows)
        self.assertEqual(pages[1], pages[2])
        leak = harness.report("top", os.path.join(self.folder, "leak.hl"))
        self.assert_leak(leak)
        # Not bytes: Lua's table of strings may double once more. The values of all 1000 pages may be
        # older than two seconds where the server is slow; a leak that goes on keeps most blocks.
        blocks = re.search(r"not freed .* in ([0-9,]+) blocks?\n", mended)
        self.assertLess(int(blocks[1].replace(",", "")), leak["total"]["inuse_objects"] / 5)
        self.assertLess(bytes_of("gained", mended), growth / 2)

    def test_a_running_server_is_joined_and_left_as_it_was(self):
        for command in ("gcc", "bash"):
            harness.need(command)
        need_attach(self.folder)
        said = self.play("join.md", {})
        _, looked, leak, lines, going_on, log, after = said
        self.assertRegex(looked, r"\nattach +yes ")
        self.assertIn("blocks allocated before are not counted", leak)
        objects = {int(line): int(count.replace(",", "")) for count, line in
                   re.findall(r"([0-9,]+) +([0-9]+)  +\S.*(?:malloc|strdup|calloc)\(", lines)}
        self.assertEqual((objects[15], objects[20]), (100, 100))
        self.assertGreater(objects[19], 200)
        self.assertIn("open_basket", going_on)
        self.assertIn("the doors open", log)
        self.assertEqual(after, "nothing is mapped\n")

    def test_the_variable_that_keeps_memory_is_found(self):
        for command in ("gcc", "bash"):
            harness.need(command)
        said = self.play("who-keeps-it.md", {})
        _, lost, table, tree, chain, _ = said
        self.assertRegex(lost, r"\b0 B in 0 blocks are lost")
        self.assertRegex(table, r"variable +sessions +server \.bss\+0x\w+ +[0-9]+ x block of 24 B ->")
        # What a call left on the stack may lead to some of them, too: they stand in a row of what both hold.
        held = re.findall(r"^ *\S+ \S+ +\S+% +([0-9,]+) .*\bsessions\b", table, re.MULTILINE)
        self.assertEqual(sum(int(blocks.replace(",", "")) for blocks in held), 4000, table)
        self.assertRegex(tree, r"sessions \(server \.bss")
        self.assertRegex(chain, r"\nsessions\[15\] \(server \.bss\+0x\w+\) -> buffer \(\+16\) -> 0x\w+, 4,008 B\n")
        self.assertTrue(os.path.exists(os.path.join(self.folder, "held.svg")))

    def test_a_leak_in_a_script_is_found_from_outside_and_from_inside(self):
        for command in ("lua5.4", "bash"):
            harness.need(command)
        need_attach(self.folder)
        module = os.path.join(harness.BUILD, "lua/heapline_lua5.4.so")
        if not os.path.exists(module):
            self.skipTest("heapline was built without the headers of Lua 5.4")
        with unittest.mock.patch.dict(os.environ, LUA_CPATH_5_4=module):
            said = self.play("lua-leak.md", {})
        _, top, lines, _, inside, cured = said
        [first, *_] = re.findall(r"^ *[0-9.]+ .*(?:function|chunk).*$", top, re.M)
        self.assertRegex(first, r" game\.lua:[45].* function <game\.lua:3>$")
        self.assertRegex(lines, r"\b5\b.*table\.insert\(inbox")
        with open(os.path.join(self.folder, "leak.svg"), encoding="utf-8") as file:
            self.assertIn("function &lt;game.lua:3&gt;", file.read())
        first, size = re.search(r"^grown by [0-9]+\n(\S+) line:5 size:([0-9]+)$", inside, re.M).groups()
        self.assertEqual(first, "game.lua")
        self.assertAlmostEqual(int(size) / 10000, 480, delta=80)
        self.assertNotIn("game.lua line:5 ", cured)
        self.assertRegex(cured, r"-[0-9.]+ [KM]iB")

    def test_the_line_of_python_that_grows_is_found(self):
        for command in ("python3", "bash"):
            harness.need(command)
        need_attach(self.folder)
        _, _, lines, tree, kinds, types, *_ = self.play("python.md", {})
        self.assertRegex(lines, r"(?m)\A(?:(?:attached|note:).*\n)*(\S*/)?server\.py line:20 size:[0-9]+$")
        self.assertRegex(tree, r"wrapper\b")
        self.assertRegex(kinds, r"(?m)^ *[0-9.]+ [KM]iB .* str$")
        self.assertRegex(types, r"(?m)^str +[0-9,]+ ")

    def test_the_line_that_fills_a_container_is_found(self):
        for command in ("python3", "bash"):
            harness.need(command)
        harness.need_root()
        need_attach(self.folder)
        hierarchy = test_pod.memory_hierarchy()[0]
        if not os.access(hierarchy, os.W_OK):
            self.skipTest("no control group can be made here")
        name = f"heapline-oom-{os.getpid()}"
        self.addCleanup(test_pod.Groups.removed, os.path.join(hierarchy, name))
        _, charged, kill, lines, tree, _ = self.play("oom.md", {"/shop": f"/{name}"})
        self.assertRegex(charged, r"(?m)^the largest part is files in memory.* memfd:spool of python3 ")
        self.assertRegex(charged, r"(?m)^ *19\.1 MiB +[0-9.]+% +shared ")
        self.assertRegex(kill, rf"ended while the kernel killed 1 process of its control group for want of memory: '/{name}', "
                               r"whose limit is 96\.0 MiB")
        self.assertRegex(lines, r"(?m)^ *[5-7][0-9.]+ MiB +9[0-9.]+% .* (\S*/)?service\.py:9 +receive$")
        self.assertRegex(tree, r"\bwork\b")
        warnings = harness.info(os.path.join(self.folder, "grown.hl"))["recording"]["warnings"]
        self.assertRegex(" ".join(warnings), r"is sampled from [0-9.]+ s on")

    def assert_leak(self, top):
        total = top["total"]["inuse_bytes"]
        self.assertGreater(total, 100_000)
        for function in ("evalGenericCommand", "luaCreateFunction"):
            held = sum(row["cum_bytes"] for row in top["rows"] if row["name"] == function)
            self.assertGreater(held, total * (0.8 if function.startswith("eval") else 0.25))
        for picture in ("pages.svg", "leak.svg"):
            with open(os.path.join(self.folder, picture), encoding="utf-8") as file:
                self.assertIn("evalGenericCommand", file.read())


class OrdinaryUsers(unittest.TestCase):
    """Who may not trace is told what is missing."""

    def test_an_ordinary_user_is_told_what_is_missing(self):
        harness.need_other_user(65534)
        for verb in ("stacks", "pgfault", "page-events"):
            result = harness.run([harness.HEAPLINE, verb, "-p", "1", "1"], user=65534, group=65534,
                                 extra_groups=[])
            self.assertEqual(result.status, 1)
            self.assertRegex(result.stderr,
                             r"^heapline: cannot trace process '1': CAP_BPF, CAP_PERFMON.*missing; "
                             r"run heapline as root, or once 'sudo setcap cap_bpf,cap_perfmon,.*'\n$")


if __name__ == "__main__":
    harness.main()
