# SPDX-License-Identifier: BSD-2-Clause
"""What heapline beam says of a live node equals what the node's own shell says."""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

import harness

COOKIE = "A_COOKIE_FOR_TESTS"

# A quiet node: it says what its own module says when it is asked to, and is silent otherwise.
# Data of known size: ETS rows, some deleted; binaries outside of heaps; one too large for a carrier
# of many blocks.
NODE = r"""
-module(heapline_node).
-export([main/1]).

main([Keep]) ->
    Keep == "without" andalso code:del_path(tools) andalso code:del_path(runtime_tools),
    Table = ets:new(table, [public]),
    [ets:insert(Table, {N, lists:duplicate(10, N)}) || N <- lists:seq(1, 100000)],
    [ets:delete(Table, N) || N <- lists:seq(1, 100000), N rem 7 =/= 0],
    Small = [binary:copy(<<N>>, 1000) || N <- lists:seq(1, 5000)],
    Large = binary:copy(<<1>>, 3000000),
    erlang:garbage_collect(),
    io:format("ready~n"),
    serve({Table, Small, Large}).

serve(Data) ->
    case io:get_line("") of
        eof ->
            halt();
        Line ->
            {ok, Tokens, _} = erl_scan:string(Line),
            {ok, Expressions} = erl_parse:parse_exprs(Tokens),
            {value, Value, _} = erl_eval:exprs(Expressions, []),
            io:format("~0p~n", [Value]),
            serve(Data)
    end.
"""


def free_port():
    """A port of loopback that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Node:
    """A node of the test, which answers expressions written to its input."""

    def __init__(self, world, name, keep="with", flags=(), host="localhost", long_name=False):
        self.name = f"{name}@{host}"
        command = [
            "erl", "-noshell", "-start_epmd", "false", *flags,
            "-name" if long_name else "-sname", self.name, "-setcookie", COOKIE,
            "-kernel", "inet_dist_use_interface", "{127,0,0,1}",
            "-pa", world.directory, "-run", "heapline_node", "main", keep,
        ]  # fmt: skip
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=world.environment, start_new_session=True,
        )  # fmt: skip
        try:
            line = self.read_line()
            if line != "ready":
                raise AssertionError(f"the node says '{line}'")
        except AssertionError:
            self.stop()
            raise

    def read_line(self, timeout=harness.TIMEOUT_S):
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([self.process.stdout], [], [], timeout)[0]:
                raise AssertionError(f"the node is silent after '{line}'")
            byte = os.read(self.process.stdout.fileno(), 1)
            if not byte:
                raise AssertionError(f"the node ended after '{line}'")
            line += byte
        return line.decode().strip()

    def ask(self, expression):
        """What the node's own interpreter makes of an expression, as text."""
        self.process.stdin.write(expression.encode() + b".\n")
        self.process.stdin.flush()
        return self.read_line()

    def release(self):
        return int(self.ask("erlang:system_info(otp_release)").strip('"'))

    def stop(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class World:
    """An epmd of the test's own, and a compiled module for nodes."""

    def __init__(self, directory):
        self.directory = directory
        self.port = free_port()
        self.environment = dict(os.environ, ERL_EPMD_PORT=str(self.port),
                                ERL_EPMD_ADDRESS="127.0.0.1", HOME=directory)
        self.environment.pop("XDG_CONFIG_HOME", None)
        self.cookie = os.path.join(directory, "cookie")
        self.write_cookie(self.cookie, COOKIE)
        source = os.path.join(directory, "heapline_node.erl")
        with open(source, "w", encoding="ascii") as file:
            file.write(NODE)
        subprocess.run(["erlc", "-o", directory, source], check=True, timeout=harness.TIMEOUT_S)
        # It does not outlive the test, whatever ends that; a node ends with its standard input.
        command = [harness.need("setpriv"), "--pdeathsig", "KILL", "epmd"]
        self.epmd = subprocess.Popen(command, env=self.environment,
                                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL, start_new_session=True)
        harness.wait_until(self.epmd_answers, "epmd")

    def epmd_answers(self):
        asked = subprocess.run(["epmd", "-names"], env=self.environment, check=False,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return asked.returncode == 0

    @staticmethod
    def write_cookie(path, text, mode=0o400):
        with open(path, "w", encoding="ascii") as file:
            file.write(text + "\n")
        os.chmod(path, mode)

    def stop(self):
        self.epmd.kill()
        self.epmd.wait()


class Shared:
    """What the tests share: a world, and a node that has the module. Made when first needed."""

    world = node = None

    @classmethod
    def make(cls):
        """Skips the test where that cannot be."""
        for command in ("erl", "erlc", "epmd"):
            harness.need(command)
        said = harness.run([harness.HEAPLINE, "beam", "--node", "nobody@localhost", "--cookie-file",
                            "/dev/null", "carriers"])
        if "without libei" in said.stderr:
            raise unittest.SkipTest("heapline was built without libei")
        if not cls.world:
            cls.world = World(tempfile.mkdtemp(prefix="heapline-beam-"))
        if not cls.node:
            cls.node = Node(cls.world, "full", flags=["+Muatags", "true"])
            cls.node.ask("code:ensure_loaded(instrument)")
        if cls.node.ask("code:which(instrument)") == "non_existing":
            raise unittest.SkipTest("Erlang's module 'instrument' is not installed")


def tearDownModule():
    if Shared.node:
        Shared.node.stop()
    if Shared.world:
        Shared.world.stop()
        shutil.rmtree(Shared.world.directory, ignore_errors=True)


class BeamTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        Shared.make()
        self.world, self.node = Shared.world, Shared.node

    def start(self, *arguments, **options):
        node = Node(self.world, *arguments, **options)
        self.addCleanup(node.stop)
        return node

    def beam(self, node, *words, cookie=None, **environment):
        """Runs heapline beam on a node, named by itself or its name."""
        name = node.name if isinstance(node, Node) else node
        cookie_words = ["--cookie-file", cookie or self.world.cookie]
        return harness.run([harness.HEAPLINE, "beam", "--node", name, *cookie_words, *words],
                           env=dict(self.world.environment, **environment))

    def beam_well(self, *arguments, **options):
        result = self.beam(*arguments, **options)
        self.assertEqual(result.status, 0, result.stderr)
        return result.stdout

    def beam_json(self, *arguments):
        return json.loads(self.beam_well(*arguments, "--json"))


class Carriers(BeamTest):
    """heapline beam carriers"""

    # A connection takes a few hundred bytes of ETS while it lasts. In the pool nobody allocates,
    # and literals are made by loading code alone: these are equal to the byte.
    QUIET = "ets_alloc,literal_alloc"
    OWN = "instrument:carriers(#{allocator_types => [ets_alloc,literal_alloc]})"

    @staticmethod
    def settled(answer):
        """An expression: what an answer, itself an expression, says of carriers at rest."""
        return (f"lists:sort([C || C <- element(2, element(2, {answer})),"
                " element(2, C) orelse element(1, C) =:= literal_alloc])")

    def test_carriers_equal_those_of_the_nodes_own_module(self):
        own = self.node.ask(self.settled(self.OWN))
        path = self.path("carriers.term")
        self.beam_well(self.node, "carriers", "--allocator", self.QUIET, "--term", "-o", path)
        seen = self.node.ask(self.settled(f'hd(element(2, file:consult("{path}")))'))
        self.assertEqual(seen, own)
        self.assertGreater(own.count("ets_alloc,true"), 2)
        self.assertIn("literal_alloc", own)

    def test_the_report_has_the_sums_of_the_nodes_own_module(self):
        own = self.node.ask(
            "lists:foldl(fun({_,_,T,U,B,F}, {N,T0,U0,C0,S0,F0}) -> {N+1, T0+T, U0+U,"
            " C0+lists:sum([C || {_,C,_} <- B]), S0+lists:sum([S || {_,_,S} <- B]),"
            f" F0+lists:sum(tuple_to_list(F))}} end, {{0,0,0,0,0,0}}, {self.settled(self.OWN)})")
        report = self.beam_json(self.node, "carriers", "--allocator", self.QUIET)
        rows = [row for row in report["rows"]
                if row["in_pool"] or row["allocator"] == "literal_alloc"]
        sums = [sum(row[key] for row in rows)
                for key in ("total_bytes", "unscanned_bytes", "allocated_blocks",
                            "allocated_bytes", "free_blocks")]
        self.assertEqual(own.strip("{}").split(","), [str(n) for n in (len(rows), *sums)])

    def test_sums_in_the_report_are_those_of_its_rows(self):
        report = self.beam_json(self.node, "carriers")
        self.assertEqual(report["schema"], "heapline/beam-carriers/1")
        for key in ("total_bytes", "inuse_bytes", "inuse_blocks", "free_blocks"):
            self.assertEqual(report["total"][key], sum(row[key] for row in report["rows"]))
            self.assertEqual(report["total"][key], sum(row[key] for row in report["allocators"]))
        self.assertEqual(
            report["free_histogram"]["counts"],
            [sum(column) for column in zip(*(row["free_histogram"] for row in report["rows"]))])

    def test_a_binary_too_large_to_share_a_carrier_has_one_of_its_own(self):
        report = self.beam_json(self.node, "carriers", "--allocator", "binary_alloc")
        single = [row for row in report["rows"] if row["type"] == "sbc"]
        self.assertTrue([row for row in single if 3000000 <= row["total_bytes"] < 3200000])
        self.assertTrue(all(row["allocated_blocks"] == 1 for row in single))

    def test_options_are_passed_on(self):
        report = self.beam_json(self.node, "carriers", "--allocator", "ets_alloc", "--allocator",
                                "eheap_alloc", "--scheduler", "1", "--histogram-start", "64",
                                "--histogram-width", "5")
        self.assertEqual({row["allocator"] for row in report["rows"]},
                         {"ets_alloc", "eheap_alloc"})
        self.assertEqual(report["free_histogram"]["first_bytes"],
                         [0, 0, 128, 256, 512] if self.node.release() >= 27
                         else [0, 128, 384, 896, 1920])
        everything = self.beam_json(self.node, "carriers", "--allocator",
                                    "ets_alloc,eheap_alloc")
        self.assertLess(report["total"]["carriers"], everything["total"]["carriers"])

    def test_tables_and_pictures_show_the_same_carriers(self):
        table = self.beam_well(self.node, "carriers", "--allocator", self.QUIET, "--rows", "0")
        report = self.beam_json(self.node, "carriers", "--allocator", self.QUIET)
        rows = [line for line in table.splitlines() if " mbc " in line]
        self.assertEqual(len(rows), report["total"]["carriers"])
        self.assertIn(f"1 KiB .. <{2 if self.node.release() >= 27 else 3} KiB", table)
        picture = self.path("carriers.svg")
        self.beam_well(self.node, "carriers", "--allocator", self.QUIET, "-o", picture)
        groups = xml.etree.ElementTree.parse(picture).getroot().iter(
            "{http://www.w3.org/2000/svg}g")
        self.assertEqual(len(list(groups)), report["total"]["carriers"])

    def test_heapline_is_a_hidden_node_and_leaves_nothing(self):
        for _ in range(3):
            self.beam_well(self.node, "carriers")
        self.assertEqual(self.node.ask("nodes()"), "[]")
        harness.wait_until(lambda: self.node.ask("nodes(hidden)") == "[]", "heapline to be gone")
        names = harness.run(["epmd", "-names"], env=self.world.environment).stdout
        self.assertNotIn("heapline", names)


class Heap(BeamTest):
    """heapline heap leads from the process to its node."""

    def heap(self, node):
        return harness.report("heap", str(node.process.pid), "-p")

    def test_the_next_command_asks_the_node(self):
        report = self.heap(self.node)
        self.assertEqual(report["next"], f"heapline beam --node {self.node.name} carriers")
        self.assertIn(f"'{report['next']}' shows what each allocator of the node has", json.dumps(report["answers"]))


class Allocations(BeamTest):
    """heapline beam allocations"""

    def test_allocations_equal_those_of_the_nodes_own_module(self):
        types = "maps:get(system, element(3, element(2, {})))"
        mine = types.format("instrument:allocations(#{allocator_types => [ets_alloc]})")
        own = self.node.ask(f"[maps:get(K, {mine}) || K <- [db_segment, db_tab]]")
        terms = self.node.ask(f"tuple_to_list(maps:get(db_term, {mine}))")
        path = self.path("allocations.term")
        self.beam_well(self.node, "allocations", "--allocator", "ets_alloc", "--term", "-o", path)
        seen = types.format(f'hd(element(2, file:consult("{path}")))')
        self.assertEqual(self.node.ask(f"[maps:get(K, {seen}) || K <- [db_segment, db_tab]]"), own)
        # The connection has entries of its own, of this type.
        seen_terms = json.loads(self.node.ask(f"tuple_to_list(maps:get(db_term, {seen}))"))
        for seen_count, own_count in zip(seen_terms, json.loads(terms), strict=True):
            self.assertLessEqual(abs(seen_count - own_count), 20)
        self.assertGreater(sum(seen_terms), 14000)

    def test_known_blocks_stand_in_the_slot_of_their_size(self):
        report = self.beam_json(self.node, "allocations", "--allocator", "binary_alloc")
        binaries = [row for row in report["rows"]
                    if (row["origin"], row["type"]) == ("system", "binary")]
        self.assertEqual(len(binaries), 1)
        slot = binaries[0]["histogram"].index(max(binaries[0]["histogram"]))
        self.assertGreaterEqual(binaries[0]["histogram"][slot], 5000)
        first = report["histogram"]["first_bytes"]
        self.assertTrue(first[slot] <= 1000 + 63 < first[slot + 1], first)  # with their headers
        self.assertEqual(binaries[0]["inuse_blocks"], sum(binaries[0]["histogram"]))
        self.assertEqual(report["total"]["inuse_blocks"],
                         sum(row["inuse_blocks"] for row in report["rows"]))

    def test_allocations_take_no_more_than_the_node_has_in_use(self):
        report = self.beam_json(self.node, "allocations", "--allocator", "ets_alloc")
        least = sum(count * first for count, first in zip(
            report["histogram"]["counts"], report["histogram"]["first_bytes"]))
        inuse = self.beam_json(self.node, "carriers", "--allocator",
                               "ets_alloc")["total"]["inuse_bytes"]
        self.assertLessEqual(least, inuse)
        self.assertGreater(2.1 * least, inuse)  # slots double, and every block is tagged

    def test_free_blocks_take_what_their_carriers_have_free(self):
        report = self.beam_json(self.node, "carriers", "--histogram-start", "64",
                                "--histogram-width", "32")
        first = [*report["free_histogram"]["first_bytes"], 2**62]
        checked = 0
        for row in report["rows"]:
            if row["unscanned_bytes"] or not row["free_blocks"]:
                continue
            least = sum(n * first[slot] for slot, n in enumerate(row["free_histogram"]))
            below = sum(n * first[slot + 1] for slot, n in enumerate(row["free_histogram"]))
            free = row["total_bytes"] - row["inuse_bytes"]
            self.assertTrue(least <= free < below + 4096, row)
            checked += 1
        self.assertGreater(checked, 5)

    def test_a_node_without_tags_is_told_how_to_have_them(self):
        node = self.start("plain", flags=["+Muatags", "false"])
        self.assertIn("+Muatags true", self.beam_well(node, "allocations"))
        self.assertEqual(self.beam_json(node, "allocations")["rows"], [])

    def test_what_the_release_cannot_do_is_said(self):
        if self.node.release() >= 27:
            self.skipTest("this release can")
        self.assert_refused(self.beam(self.node, "allocations", "--per", "process"), "OTP 27")


class WithoutTheModule(BeamTest):
    """A node of a minimal installation."""

    def test_sums_are_shown_in_place_of_carriers(self):
        node = self.start("bare", "without")
        self.assertEqual(node.ask("code:which(instrument)"), "non_existing")
        report = self.beam_json(node, "carriers", "--allocator", "ets_alloc")
        self.assertFalse(report["node"]["instrument"])
        own = node.ask(
            "{lists:sum([element(2, lists:keyfind(carriers_size, 1, S)) || {instance, _, L} <- "
            "erlang:system_info({allocator, ets_alloc}), {K, S} <- L, "
            "lists:member(K, [mbcs, sbcs, mbcs_pool])]),"
            "lists:sum([element(2, lists:keyfind(size, 1, B)) || {instance, _, L} <- "
            "erlang:system_info({allocator, ets_alloc}), {K, S} <- L, "
            "lists:member(K, [mbcs, sbcs, mbcs_pool]), {blocks, T} <- S, {_, B} <- T])}")
        total = report["total"]
        carriers, blocks = (int(number) for number in own.strip("{}").split(","))
        self.assertEqual(total["total_bytes"], carriers)
        self.assertLess(abs(total["inuse_bytes"] - blocks), 8192)  # the connection has some
        self.assertGreater(total["total_bytes"], 2**20)
        table = self.beam_well(node, "carriers")
        self.assertIn("lacks the module 'instrument'", table)
        self.assertIn("ets_alloc", table)
        one = self.beam_json(node, "carriers", "--scheduler", "1")
        self.assertEqual({row["instance"] for row in one["rows"]}, {1})
        self.assert_refused(self.beam(node, "allocations"), "erlang-tools")
        self.assert_refused(self.beam(node, "carriers", "--term"), "only sums")
        self.assert_refused(self.beam(node, "carriers", "-o", self.path("x.svg")), "only sums")
        self.assertFalse(os.path.exists(self.path("x.svg")))


class Refusals(BeamTest):
    """Each error is one sentence with a remedy."""

    def test_a_wrong_cookie(self):
        wrong = self.path("wrong")
        self.world.write_cookie(wrong, "NOT_THE_COOKIE")
        result = self.beam(self.node, "carriers", cookie=wrong)
        self.assert_refused(result, "cookie", wrong, "--cookie-file")
        self.assertNotIn("NOT_THE_COOKIE", result.stderr)

    def test_no_cookie_and_a_cookie_at_home(self):
        command = [harness.HEAPLINE, "beam", "--node", self.node.name, "carriers"]
        nobody = dict(self.world.environment, HOME=self.path("nobody"))
        self.assert_refused(harness.run(command, env=nobody), ".erlang.cookie", "--cookie-file")
        self.world.write_cookie(self.path(".erlang.cookie"), COOKIE)
        result = harness.run(command, env=dict(self.world.environment, HOME=self.directory))
        self.assertEqual((result.status, result.stderr), (0, ""))

    def test_a_cookie_that_others_can_read(self):
        exposed = self.path("exposed")
        self.world.write_cookie(exposed, COOKIE, 0o644)
        result = self.beam(self.node, "carriers", cookie=exposed)
        self.assertEqual(result.status, 0)
        self.assertIn("chmod 400", result.stderr)

    def test_doctor_names_the_node_of_a_process(self):
        said = harness.run([harness.HEAPLINE, "doctor", "--json", "-p",
                            str(Shared.node.process.pid)])
        [row] = [row for row in json.loads(said.stdout)["rows"] if row["way"] == "beam"]
        self.assertEqual(row["command"], f"heapline beam --node {Shared.node.name} carriers")
        self.assertIn("cookie", row["reason"])

    def test_a_node_that_is_not_there(self):
        self.assert_refused(self.beam("nobody@localhost", "carriers"), "nobody@localhost",
                            "there are: ", "full")

    def test_no_epmd(self):
        port = str(free_port())
        self.assert_refused(self.beam(self.node, "carriers", ERL_EPMD_PORT=port), "no epmd", port)

    def test_names_that_are_not_whole(self):
        self.assert_refused(self.beam("full", "carriers"), "NAME@HOST")
        self.assert_refused(self.beam("full@host.invalid", "carriers"), "host.invalid")

    def test_unknown_allocators_and_schedulers(self):
        self.assert_refused(self.beam(self.node, "carriers", "--allocator", "no_alloc"),
                            "--allocator")
        self.assert_refused(self.beam(self.node, "carriers", "--scheduler", "1000"),
                            "--scheduler")

    def test_allocators_that_are_not_enabled(self):
        node = self.start("disabled", flags=["+MEe", "false"])
        self.assert_refused(self.beam(node, "carriers", "--allocator", "ets_alloc"), "enabled")

    def test_a_node_that_is_stopped(self):
        node = self.start("stopped")
        emulator = int(node.ask("list_to_integer(os:getpid())"))
        os.kill(emulator, signal.SIGSTOP)
        try:
            self.assert_refused(self.beam(node, "carriers", "--timeout", "1"), "does not answer",
                                "--timeout")
        finally:
            os.kill(emulator, signal.SIGCONT)
        self.beam_well(node, "carriers")

    def test_names_with_a_domain_or_an_address(self):
        node = self.start("long", host="127.0.0.1", long_name=True)
        self.beam_well(node, "carriers")
        self.beam_well("long@localhost", "carriers")

    def test_a_file_that_exists_is_kept(self):
        kept = self.path("kept")
        with open(kept, "w", encoding="ascii") as file:
            file.write("mine")
        self.assert_refused(self.beam(self.node, "carriers", "-o", kept), kept)
        with open(kept, encoding="ascii") as file:
            self.assertEqual(file.read(), "mine")


if __name__ == "__main__":
    harness.main()
