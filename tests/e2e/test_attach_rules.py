# SPDX-License-Identifier: BSD-2-Clause
"""Functions that rules name are recorded, wherever their arguments are: the recording equals the
program's ledger."""

import json
import os
import signal
import socket
import subprocess
import urllib.request

import attaching
import harness

RULES = ("malloc=my_alloc(size=3)", "calloc=my_calloc(count=2,size=3)",
         "realloc=my_realloc(ptr=3,size=4)", "free=my_free(ptr=2)")
HOOKS = [f"--hook={rule}" for rule in RULES]
HEADER_BYTES = 16  # of each block, before it
POOLS = ("by_alloc", "by_calloc", "by_realloc", "by_sweep")


LIBRARIES = ("libjemalloc.so.2", "libmimalloc.so.2", "libtcmalloc_minimal.so.4")


def live(verb, process, *options):
    """What a verb reports of the process as it runs."""
    result = harness.run([harness.HEAPLINE, verb, "-p", str(process.pid), "--json", *options])
    if result.status != 0:
        raise AssertionError(result.stderr)
    return json.loads(result.stdout)


class Rules(attaching.TestCase):
    def ask(self, process, line):
        """Has the program allocate; {function: [blocks, bytes, blocks kept, bytes kept]}."""
        process.stdin.write(line + "\n")
        process.stdin.flush()
        ledger = {}
        for said in process.stdout:
            if said == "done\n":
                return ledger
            name, *figures = said.split()
            ledger[name] = [int(figure) for figure in figures]
        raise AssertionError("it ended")

    def allocations(self, process, line, *options):
        """The ledger, and what was recorded of these functions and of 'cut', which they call."""
        with self.attached(process.pid, *options) as attach:
            ledger = self.ask(process, line)
            attach.send_signal(signal.SIGINT)
        allocated = harness.top_rows(self.recording, "alloc")
        self.assertEqual([name for name in allocated if name.startswith("0x")], [])
        in_use = harness.top_rows(self.recording, "inuse")
        none = dict.fromkeys(harness.FIGURES, 0)
        found = {}
        for name in (*ledger, "cut"):
            rows = allocated.get(name, none), in_use.get(name, none)
            found[name] = [row[key] for row in rows for key in ("flat_objects", "flat_bytes")]
        lost = harness.info(self.recording)["lost"]
        self.assertEqual({what: number for what, number in lost.items() if number}, {})
        return ledger, found

    def within(self, ledger):
        """What malloc() gives to the functions of the pool."""
        blocks, size, kept, kept_size = (sum(ledger[name][i] for name in POOLS) for i in range(4))
        return [blocks, size + HEADER_BYTES * blocks, kept, kept_size + HEADER_BYTES * kept]

    def test_pieces_of_memory_that_is_mapped(self):
        with harness.Waiting([harness.program("pools")]) as process:
            for mode in ("mem-fast", "mem-record", "log-fast"):
                ledger, found = self.allocations(process, "arena", "--mode", mode, *HOOKS)
                self.assertEqual(found, {**ledger, "cut": [0, 0, 0, 0]})
        self.assertEqual(process.returncode, 0)

    def test_pieces_end_with_the_block_that_they_lie_in(self):
        with harness.Waiting([harness.program("pools")]) as process:
            for mode in ("mem-fast", "mem-record", "log-fast", "log-record"):
                ledger, found = self.allocations(process, "regions", "--mode", mode, *HOOKS)
                del found["cut"]
                self.assertEqual(found, ledger)
        self.assertEqual(process.returncode, 0)

    def test_a_pool_that_is_reset_has_nothing_in_use(self):
        with harness.Waiting([harness.program("pools")]) as process:
            for mode in ("mem-fast", "log-fast", "log-record"):
                ledger, found = self.allocations(process, "requests", "--mode", mode, *HOOKS,
                                                 "--hook=reset=my_reset")
                self.assertEqual(found, {**ledger, "cut": [0, 0, 0, 0]})
                self.assertEqual(ledger["by_alloc"][2:], [0, 0])
        self.assertEqual(process.returncode, 0)

    def test_calls_of_malloc_within_count_for_the_outer_function(self):
        with harness.Waiting([harness.program("pools")]) as process:
            for mode in ("mem-fast", "mem-record", "log-fast"):
                ledger, found = self.allocations(process, "malloc", "--mode", mode, *HOOKS)
                self.assertEqual(found, {**ledger, "cut": [0, 0, 0, 0]})
        self.assertEqual(process.returncode, 0)

    def test_pieces_are_seen_while_the_process_runs(self):
        """Wherever they lie, and not the blocks that they are cut from."""
        for line in ("arena", "malloc"):
            with harness.Waiting([harness.program("pools")]) as process, \
                    self.attached(process.pid, *HOOKS) as attach:
                ledger = self.ask(process, line)
                report = live("allocations", process, "-n", "0")
                found = {row["type"]: [row["inuse_blocks"], row["inuse_bytes"]] for row in report["rows"]}
                self.assertEqual({name: found[name] for name in ledger if ledger[name][2]},
                                 {name: kept for name, (_, _, *kept) in ledger.items() if kept[0]})
                self.assertEqual(any("are cut up by pools" in note for note in report["notes"]), line == "malloc")
                self.assertLess(report["unknown"]["inuse_blocks"], 100)
                attach.send_signal(signal.SIGINT)

    def test_a_pointer_to_a_piece_keeps_the_block_that_it_lies_in(self):
        with harness.Waiting([harness.program("pools")]) as process:
            with self.attached(process.pid, *HOOKS) as attach:
                self.ask(process, "keep")
                for options in ((), ("--stop",)):
                    leaks = live("leaks", process, *options)
                    self.assertEqual((leaks["total"]["possible_blocks"], leaks["total"]["lost_blocks"]), (0, 0), leaks["rows"])
                attach.send_signal(signal.SIGINT)
            # without a recorder pieces are unknown
            self.assertEqual(live("leaks", process)["total"]["possible_blocks"], 1)

    def test_layers(self):
        with harness.Waiting([harness.program("pools")]) as process:
            for mode in ("mem-fast", "mem-record", "log-fast"):
                ledger, found = self.allocations(process, "malloc", "--mode", mode, "--layers",
                                                 *HOOKS)
                self.assertEqual(found, {**ledger, "cut": self.within(ledger)})
        self.assertEqual(process.returncode, 0)

    def test_without_rules_malloc_is_all_that_counts(self):
        with harness.Waiting([harness.program("pools")]) as process:
            ledger, found = self.allocations(process, "malloc", "--layers")
            self.assertEqual(found, {**dict.fromkeys(POOLS, [0, 0, 0, 0]),
                                     "by_malloc": ledger["by_malloc"],
                                     "cut": self.within(ledger)})

    def test_some_rules_of_a_pool(self):
        """Blocks that are freed by no function of a rule stay in use."""
        with harness.Waiting([harness.program("pools")]) as process:
            ledger, found = self.allocations(process, "arena", HOOKS[0])
            self.assertEqual(found["by_alloc"], ledger["by_alloc"][:2] * 2)
            self.assertEqual(found["by_calloc"], [0, 0, 0, 0])
            self.assertEqual(found["by_malloc"], ledger["by_malloc"])

    def test_presets_of_a_file(self):
        presets = self.path("presets")
        with harness.Waiting([harness.program("pools")]) as process:
            for when, options in (("when my_alloc", ()), ("# nothing", ("--hook=@pools",))):
                with open(presets, "w", encoding="utf-8") as file:
                    file.write("preset others\nwhen nobody\nmalloc=malloc_of_nobody\n")
                    file.write("\n".join(("preset pools", when, *RULES, "")))
                ledger, found = self.allocations(process, "arena", "--presets", presets, *options)
                self.assertEqual(found, {**ledger, "cut": [0, 0, 0, 0]})
            # nobody asks for it
            ledger, found = self.allocations(process, "arena", "--presets", presets)
            self.assertEqual(found["by_alloc"], [0, 0, 0, 0])

    def test_presets_of_heaplines_own_that_hold_by_themselves(self):
        with harness.Waiting([harness.program("entry_target_prefixed")]) as process:
            with self.attached(process.pid) as attach:
                process.stdin.write("prefixed 3e8\n")
                process.stdin.flush()
                self.assertEqual(process.stdout.readline(), "ok\n")
                attach.send_signal(signal.SIGINT)
            total = harness.report("info", self.recording)["total"]
            self.assertEqual([total[key] for key in ("alloc_objects", "alloc_bytes", "inuse_objects",
                                                     "inuse_bytes")], [1000, 100000, 500, 50000])

    def test_samples_of_blocks_that_are_freed_leave_nothing(self):
        with harness.Waiting([harness.program("pools")]) as process:
            for line in ("arena", "malloc"):
                ledger, found = self.allocations(process, line, "--sample", "64", *HOOKS)
                self.assertEqual(found["cut"], [0, 0, 0, 0])
                for name in ledger:
                    self.assertLess(abs(found[name][1] - ledger[name][1]), ledger[name][1] / 3)

    def test_operators_of_other_allocators(self):
        """They do not call malloc; some throw."""
        for library in LIBRARIES:
            path = f"/usr/lib/x86_64-linux-gnu/{library}"
            # that of Debian is in C, and aborts
            refusal = [] if library == "libmimalloc.so.2" else ["refusal"]
            if not os.path.exists(path):
                print(f"skipped: {library} is not installed")
                continue
            with self.subTest(library=library), \
                    harness.Waiting([harness.program("operators"), *refusal],
                                    env={"LD_PRELOAD": path}) as process:
                for options in ((), ("--mode=log-record",), ("--layers",)):
                    ledger, found = self.allocations(process, "go", *options)
                    del found["cut"]
                    self.assertEqual(found, ledger)
            self.assertEqual(process.returncode, 0)

    def test_a_storm_is_joined_and_left(self):
        with harness.Waiting([harness.program("pools")]) as process:
            counted, none = 0, {"flat_objects": 0}
            self.ask(process, "storm")
            for i in range(10):
                layers = ["--layers"] if i % 2 else []
                self.attach(process.pid, "-d", "0.3", *layers, *HOOKS)
                self.assertIsNone(process.poll())
                self.assertEqual(harness.info(self.recording)["lost"]["events"], 0)
                # four threads hold 16 blocks each
                rows = harness.top_rows(self.recording, "inuse")
                for name, most in (("rage", 4 * 16), ("cut", 4 * 16 + 4 if layers else 0)):
                    self.assertLessEqual(rows.get(name, none)["flat_objects"], most)
                counted += harness.report("info", self.recording)["total"]["alloc_objects"]
        self.assertGreater(counted, 1000)
        self.assertEqual(process.returncode, 0)

    def test_functions_that_are_left_by_longjmp(self):
        for options in ((), ("--layers",)):
            with harness.Waiting([harness.program("pools")]) as process:
                with self.attached(process.pid, *options, *HOOKS) as attach:
                    self.ask(process, "jump")
                    ledger = self.ask(process, "arena")
                    self.ask(process, "jump")
                    attach.send_signal(signal.SIGINT)
                rows = harness.top_rows(self.recording, "alloc")
                self.assertEqual([rows["by_alloc"][key] for key in ("flat_objects", "flat_bytes")],
                                 ledger["by_alloc"][:2])
            self.assertEqual(process.returncode, 0)

    def test_rules_that_do_not_fit(self):
        with harness.Waiting([harness.program("pools")]) as process:
            for hook, what, status in (
                    ("malloc=nobody(size=3)", "no function 'nobody'", 1),
                    ("malloc=my_alloc(size=7)", "arguments have the numbers 1 to 6", 2),
                    ("malloc=my_alloc(size=3", "a ')' is missing", 2),
                    ("free=my_free(size=2)", "no such argument", 2),
                    ("free=too_short(ptr=2)", "'too_short' of 'pools': the function", 1),
                    ("@nobody", "no preset 'nobody'", 2),
                    ("@nginx", "no function 'ngx_palloc'", 1)):
                result = self.attach(process.pid, f"--hook={hook}", "-d", "0.1", status=status)
                self.assertIn(what, result.stderr)
            result = self.attach(process.pid, "--presets=/nonexistent", "-d", "0.1", status=1)
            self.assertIn("'/nonexistent'", result.stderr)
            self.ask(process, "malloc")
        self.assertEqual(process.returncode, 0)


PHP = """class Kept { public static $all = []; }
function work() {
    for ($i = 0; $i < 20000; $i++) {
        $range = range(0, 5);
        $text = str_repeat("a", 10 + $i % 100);
        if ($i % 4 == 0) Kept::$all[] = [$i, $text, new ArrayObject($range)];
    }
}
echo "ready\\n";
while (fgets(STDIN)) {
    $before = memory_get_usage();
    work();
    echo memory_get_usage() - $before, "\\n";
}
"""


REQUEST = """<?php
$all = [];
for ($i = 0; $i < 20000; $i++) $all[] = str_repeat("x", 100) . $i;
$huge = str_repeat("y", 5000000);
echo "done";
"""


class Pools(attaching.TestCase):
    """Pools that presets know are held without an option."""

    def php(self):
        return harness.Waiting([harness.need("php"), "-n", "-r", PHP])

    def test_php_is_recorded_as_it_counts_itself(self):
        for mode in ("mem-fast", "log-record"):
            with self.php() as process:
                with self.attached(process.pid, "--mode", mode) as attach:
                    process.stdin.write("\n")
                    process.stdin.flush()
                    growth = int(process.stdout.readline())
                    attach.send_signal(signal.SIGINT)
                    self.assertIn("pools held: php", attach.communicate()[1])
                total = harness.report("info", self.recording)["total"]
                # it counts what it rounds sizes up to
                self.assertLess(total["inuse_bytes"], growth)
                self.assertGreater(total["inuse_bytes"], growth * 0.9)
            self.assertEqual(process.returncode, 0)

    def test_reports_of_a_process_with_pools_agree(self):
        with self.php() as process, self.attached(process.pid) as attach:
            process.stdin.write("\n")
            process.stdin.flush()
            growth = int(process.stdout.readline())
            found = live("allocations", process)["total"]["inuse_bytes"]
            self.assertLess(found, growth)
            self.assertGreater(found, growth * 0.9)
            for verb, *options in (("heap",), ("leaks",), ("holders", "--stack", "_emalloc")):
                notes = live(verb, process, *options)["notes"]
                self.assertTrue([note for note in notes if "pieces of pools" in note], (verb, notes))
            result = harness.run([harness.HEAPLINE, "heap", "-p", str(process.pid)])
            self.assertIn(f"'heapline allocations -p {process.pid}' shows who allocated them", result.stdout)
            self.assertNotIn("pgfault", result.stdout)
            attach.send_signal(signal.SIGINT)

    def test_pools_are_left_out_where_nobody_wants_them(self):
        with self.php() as process:
            with self.attached(process.pid, "--no-pools") as attach:
                process.stdin.write("\n")
                process.stdin.flush()
                process.stdout.readline()
                attach.send_signal(signal.SIGINT)
                self.assertNotIn("pools held", attach.communicate()[1])
            self.assertLess(harness.report("info", self.recording)["total"]["alloc_objects"], 100)

    def test_doctor_knows(self):
        with self.php() as process:
            result = harness.run([harness.HEAPLINE, "doctor", "-p", str(process.pid)])
            self.assertIn("it holds the pools of php", result.stdout)

    def test_php_that_is_recorded_from_the_start(self):
        script = "$kept = []; for ($i = 0; $i < 50000; $i++) $kept[] = [$i]; echo memory_get_usage();"
        php = harness.need("php")
        result = harness.run(harness.record_command(self.recording, [php, "-n", "-r", script], "mem-fast"))
        self.assertEqual(result.status, 0, result.stderr)
        usage = int(result.stdout)
        self.assertGreater(harness.report("info", self.recording)["total"]["peak_bytes"], usage * 0.9)

    def test_php_has_nothing_in_use_at_the_end_of_a_request(self):
        page = self.path("page.php")
        with open(page, "w", encoding="utf-8") as file:
            file.write(REQUEST)
        php = harness.need("php")
        for mode in ("mem-fast", "log-record"):
            result = harness.run(harness.record_command(self.recording, [php, "-n", page], mode))
            self.assertEqual(result.stdout, "done", result.stderr)
            total = harness.report("info", self.recording)["total"]
            self.assertGreater(total["alloc_bytes"], 7_000_000)
            self.assertLess(total["inuse_bytes"], 300_000)
        result = harness.run([harness.HEAPLINE, "check", "--leak-per-stack", "300K", "--", php, "-n", page])
        self.assertEqual(result.status, 0, result.stderr)
        # what PHP gets from malloc() for its pools stays in use there
        result = harness.run([harness.HEAPLINE, "check", "--allocs", "20000", "--no-pools", "--", php, "-n", page])
        self.assertEqual(result.status, 0, result.stderr)

    def test_requests_of_php_do_not_add_up(self):
        page = self.path("page.php")
        with open(page, "w", encoding="utf-8") as file:
            file.write(REQUEST)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        server = subprocess.Popen([harness.need("php"), "-n", "-S", f"127.0.0.1:{port}", page],
                                  stderr=subprocess.PIPE, text=True)
        self.addCleanup(server.stderr.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.assertIn("started", server.stderr.readline())
        with self.attached(server.pid) as attach:
            for _ in range(2):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as answer:
                    self.assertEqual(answer.read(), b"done")
            attach.send_signal(signal.SIGINT)
        total = harness.report("info", self.recording)["total"]
        self.assertGreater(total["alloc_bytes"], 14_000_000)
        self.assertLess(total["inuse_bytes"], 300_000)


if __name__ == "__main__":
    harness.main()
