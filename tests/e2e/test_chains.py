#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Chains to blocks of programs that know what each word on the way is called."""

import json
import os
import random
import re
import shutil

import harness
import planted_programs
from harness import HEAPLINE, need, program, run


class Chained(planted_programs.Telling):
    """A program that says how the chain to each of some blocks reads."""

    def __init__(self, *command, **options):
        self.chains = {}
        super().__init__(*command, **options)

    def hear(self, word, *words):
        if word == "chain":
            self.chains[words[0]] = " ".join(words[1:])


def ask(*options, env=None):
    result = run([HEAPLINE, "holders", *map(str, options)], env=env)
    if result.status:
        raise AssertionError(result.stderr)
    return result.stdout


def told(text, address):
    """A chain as the programs tell it: without where the variable is, and the end."""
    line, = [line for line in text.splitlines() if f"-> {address}" in line]
    line = re.sub(r"^(\S+) \([^)]*\)", r"\1", line)
    line = re.sub(rf" -> {address}( \S+)?, 4,008 B$", "", line)
    return re.sub(r"0x[0-9a-f]+", "?", line)


def without_members(chain):
    """The same chain where no types are known."""
    return re.sub(r"-> \S+ \(", "-> ? (", chain)


def lines(chains):
    return "\n".join(chains)


class Chains(harness.TestCase):
    def expect(self, target, chains, *options, env=None):
        self.assertGreater(len(chains), 5)
        found = [told(ask(*target, "--path", address, *options, env=env), address) for address in chains]
        self.assertEqual(lines(found), lines(chains.values()))

    def copy(self, name):
        return shutil.copy(program(name), self.path(name))

    def change(self, *command):
        result = run(command)
        self.assertEqual(result.status, 0, result.stderr)

    def test_each_word_of_a_chain_is_called_by_its_member(self):
        with Chained(program("chains")) as chained:
            self.expect(["-p", chained.pid], chained.chains)
            self.expect(["-p", chained.pid], chained.chains, "--stop")

    def test_classes_and_containers_have_members_too(self):
        with Chained(program("chains_cxx")) as chained:
            self.expect(["-p", chained.pid], chained.chains)

    def test_a_core_file_says_the_same(self):
        gcore = need("gcore")
        with Chained(program("chains")) as chained:
            made = run([gcore, "-o", self.path("core"), str(chained.pid)])
            self.assertEqual(made.status, 0, made.stderr)
        self.expect(["--core", self.path(f"core.{chained.pid}")], chained.chains)

    def test_json_has_member_and_type_of_each_step(self):
        with Chained(program("chains")) as chained:
            address, = [address for address, chain in chained.chains.items() if "table.inner" in chain]
            steps = json.loads(ask("-p", chained.pid, address, "--json"))["chain"]
        self.assertEqual([(step["type"], step["member"], step["offset"]) for step in steps],
                         [("", ".inner.buckets[17]", 152), ("entry", "next", 0), ("entry", "next", 0),
                          ("entry", "value", 16), ("", "", 0)])

    def test_rows_in_json_name_the_first_word(self):
        with Chained(program("chains")) as chained:
            rows = json.loads(ask("-p", chained.pid, "--json"))["rows"]
        members = {row["name"]: row["member"] for row in rows}
        for name, member in {"table": ".inner.buckets[17]", "row": "[5]", "grid": "[2][1]", "sessions": "",
                             "of_thread": ".buffers[2].bytes", "local": ".buffers[1].bytes"}.items():
            self.assertEqual(members[name], member, name)

    def test_a_list_is_one_step(self):
        with Chained(program("chains")) as chained:
            address, = [address for address, chain in chained.chains.items() if chain.startswith("list ")]
            steps = json.loads(ask("-p", chained.pid, address, "--json"))["chain"]
        self.assertEqual(len(steps), 102)
        self.assertEqual([step["member"] for step in steps[1:100]], ["next"] * 99)

    def test_separate_debug_files_are_found(self):
        need("objcopy")
        path = self.copy("chains")
        self.change("objcopy", "--only-keep-debug", path, self.path("apart"))
        self.change("objcopy", "--strip-all", path)
        with Chained(path) as chained:
            address = next(iter(chained.chains))
            bare = ask("-p", chained.pid, "--path", address, env={"DEBUGINFOD_URLS": ""})
            rows = json.loads(ask("-p", chained.pid, "--json", env={"DEBUGINFOD_URLS": ""}))["rows"]
        self.assertEqual({row["member"] for row in rows if row["module"] == "chains"}, {""})
        self.assertNotIn("next", bare)
        self.assertRegex(bare, r"\.bss\+0x\w+ \(chains\)")
        self.change("objcopy", f"--add-gnu-debuglink={self.path('apart')}", path)
        with Chained(path) as chained:
            self.expect(["-p", chained.pid], chained.chains, env={"DEBUGINFOD_URLS": ""})

    def test_debuginfod_is_asked(self):
        need("objcopy")
        path = self.copy("chains")
        notes = run([need("readelf"), "-n", path]).stdout
        build_id = re.search(r"Build ID: (\w+)", notes).group(1)
        served = self.path(f"served/buildid/{build_id}")
        os.makedirs(served)
        self.change("objcopy", "--only-keep-debug", path, served + "/debuginfo")
        self.change("objcopy", "--strip-all", path)
        env = {"DEBUGINFOD_URLS": "file://" + self.path("served"),
               "DEBUGINFOD_CACHE_PATH": self.path("kept")}
        with Chained(path) as chained:
            self.expect(["-p", chained.pid], chained.chains, env=env)

    def test_without_types_steps_have_addresses(self):
        path = self.copy("chains")
        self.change(need("objcopy"), "--strip-debug", path)
        with Chained(path) as chained:
            for address, chain in chained.chains.items():
                text = ask("-p", chained.pid, "--path", address, env={"DEBUGINFOD_URLS": ""})
                expected = without_members(chain).split(" -> ", 1)[1:]
                if " x " not in chain:
                    self.assertEqual(told(text, address).split(" -> ", 1)[1:], expected, chain)

    def test_types_that_lie_are_left_alone(self):
        with Chained(program("lying_types")) as chained:
            self.expect(["-p", chained.pid], chained.chains)

    def test_damaged_debug_information_ends_no_chain(self):
        need("objcopy")
        path = self.copy("chains")
        self.change("objcopy", "--only-keep-debug", path, path + ".debug")
        with open(path + ".debug", "rb") as file:
            whole = bytearray(file.read())
        self.change("objcopy", "--strip-debug", path)
        headers = run([need("readelf"), "-SW", path + ".debug"]).stdout
        at, size = (int(text, 16) for text in re.search(
            r"\.debug_info\s+PROGBITS\s+\w+ (\w+) (\w+)", headers).groups())
        self.change("objcopy", f"--add-gnu-debuglink={path}.debug", path)
        chance = random.Random(1)
        changed = 0
        with Chained(path) as chained:
            for _ in range(40):
                damaged = bytearray(whole)
                for _ in range(chance.choice((1, 10, 200))):
                    damaged[at + chance.randrange(16, size)] = chance.randrange(256)
                with open(path + ".debug", "wb") as file:
                    file.write(damaged)
                address = chance.choice(list(chained.chains))
                text = ask("-p", chained.pid, "--path", address, env={"DEBUGINFOD_URLS": ""})
                changed += told(text, address) != chained.chains[address]
                self.assertIn(f"-> {address}", text)
        self.assertGreater(changed, 5)


if __name__ == "__main__":
    harness.main()
