#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Lines of PHP: record and attach name them in programs that know nothing of it."""

import collections
import glob
import json
import os
import re
import signal
import socket
import subprocess
import urllib.request

import attaching
import harness
from harness import HEAPLINE, wait_until
from pprof_file import PprofFile

PLACES = os.path.join(harness.SOURCES, "php_places.php")
COUNT = 2000
FFI_BYTES = 96
WITHOUT_ORACLE = "it has no FFI, by which the script calls malloc()"


def interpreters():
    """Of all releases on this machine; further ones by HEAPLINE_PHPS, command lines with ':' between them."""
    paths = sorted(glob.glob("/usr/bin/php[0-9]*.[0-9]*") + glob.glob("/usr/local/bin/php[0-9]*.[0-9]*"))
    commands = [[path] for path in paths]
    return commands + [command.split() for command in os.environ.get("HEAPLINE_PHPS", "").split(":") if command]


def php():
    harness.need("php")
    return (interpreters() or [["php"]])[0]


def prints(command, text):
    return subprocess.run([*command, "-r", f"echo {text};"], check=True, capture_output=True, text=True).stdout


def told(path):
    """{stack: [blocks, bytes]} by the interpreter."""
    found = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            blocks, size, stack = line.rstrip("\n").split(" ", 2)
            found[stack] = [int(blocks), int(size)]
    return found


class Reading(harness.TestCase):
    def stacks(self, recording, pid=None, value="alloc"):
        """[(frames of PHP, outermost first, as 'function:line', blocks, bytes)]"""
        path = self.path("stacks.pb.gz")
        result = harness.run([HEAPLINE, "export", "--format", "pprof", "--value", value, "--stack", "script", "-f", "-o", path,
                              *(["-p", str(pid)] if pid else []), recording])
        self.assertEqual(result.status, 0, result.stderr)
        file = PprofFile(path)
        columns = [file.types.index(f"{value}_objects"), file.types.index(f"{value}_space")]
        for stack, values in file.places:
            yield [f"{name}:{line}" for name, _, line in reversed(stack)], values[columns[0]], values[columns[1]]

    def record(self, command, mode="mem-fast", status=0):
        recording = self.path("php.hl")
        result = harness.run(harness.record_command(recording, command, mode))
        self.assertEqual(result.status, status, result.stderr)
        return recording

    def write(self, text):
        path = self.path("script.php")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path


class EachBlock(Reading):
    """Each block of malloc() that a script asks for against what the interpreter says of its frames."""

    FFI_BLOCKS = 1

    def assert_equal_stacks(self, recording, pid, dump, at_least):
        expected, found = told(dump), collections.defaultdict(lambda: [0, 0])
        for places, blocks, size in self.stacks(recording, pid):
            if places[-1:] == ["malloc:0"]:
                stack = "".join(place + ";" for place in places[:-1])
                found[stack][0] += blocks
                found[stack][1] += size
        # FFI allocates a block of its own for each, where such blocks are recorded
        for figures in found.values():
            figures[0] //= 1 + self.FFI_BLOCKS
            figures[1] -= figures[0] * self.FFI_BLOCKS * FFI_BYTES
        wrong = {stack: (expected.get(stack), found.get(stack)) for stack in {*expected, *found}
                 if expected.get(stack) != found.get(stack)}
        self.assertEqual(wrong, {})
        self.assertGreaterEqual(sum(blocks for blocks, _ in expected.values()), at_least)

    def check(self, command, count, mode="mem-fast"):
        if prints(command, "extension_loaded('ffi')") != "1":
            self.skipTest(WITHOUT_ORACLE)
        dump = self.path("dump")
        recording = self.record([*command, PLACES, dump, str(count)], mode)
        parent, child = (process["pid"] for process in harness.processes(recording))
        self.assert_equal_stacks(recording, parent, dump, count)
        self.assert_equal_stacks(recording, child, dump + ".child", 1000)
        return recording

    def test_has_the_lines_that_the_interpreter_says(self):
        for command in interpreters():
            with self.subTest(command):
                recording = self.check(command, COUNT)
                self.assertNotIn("script_unmatched", harness.report("top", recording)["lost"])

    def test_in_a_log(self):
        self.check(php(), 200, mode="log-record")



LINES = """<?php
function lines(string $a, string $b, int $n)
{
	$kept = $a . $b;
	$kept
		= "$a, $n, $b";
	$kept .= $b;
	$list = [$a, $b, $n, $n, $n, $n, $n, $n, $n];
	$object = new stdClass;
	$numbers = [...$list, ...$list];
	$upper = 'prefix' . $a;
	$one = $a[3] . $b;
	foreach ([1] as $key => $value)
		$key = str_repeat($b, 2);
	return strlen($kept);
}
for ($i = 0; $i < 100; $i++)
	lines(str_repeat('a', 1000), str_repeat('b', 2000), $i + 100);
"""
# By line, what one call allocates there: a string has 24 bytes before its text and a NUL after it, and takes whole words.
LINES_EXPECTED = {4: [3032], 6: [32, 3032], 7: [5032], 8: [56, 264], 9: [40], 11: [1032], 12: [2032], 14: [4032]}
LINES_UNKNOWN = {10}


class MemoryManager(Reading):
    """Blocks of PHP's own allocator, most of which the interpreter asks for before it stores where it is."""

    def test_has_the_line_that_asks(self):
        for command in interpreters():
            with self.subTest(command):
                script = self.path("lines.php")
                with open(script, "w", encoding="utf-8") as file:
                    file.write(LINES)
                found = collections.defaultdict(lambda: [0, 0])
                for places, blocks, size in self.stacks(self.record([*command, script])):
                    line = next((place for place in reversed(places) if place.startswith("lines:")), "lines:0")
                    found[int(line.split(":")[1])][0] += blocks
                    found[int(line.split(":")[1])][1] += size
                self.assertEqual(set(found) - {0}, {*LINES_EXPECTED, *LINES_UNKNOWN})
                for line, sizes in LINES_EXPECTED.items():
                    self.assertEqual(found[line][0], 100 * len(sizes), f"line {line}")
                    self.assertLess(abs(found[line][1] / 100 - sum(sizes)), 8, f"line {line}")



# Functions that native code calls, and what allocates while what they held is let go; and fibers, whose callers run on another stack.
ENDING = """<?php
class Held
{
	function __destruct()
	{
		global $kept;
		$kept[] = str_repeat('x', 2000);
	}
}
$kept = [];
function fails($i) { throw new RuntimeException("$i"); }
function holds($i) { $held = new Held; return $i; }
function yields() { $held = new Held; yield 1; yield 2; }
for ($i = 0; $i < 1000; $i++)
	try {
		array_map('fails', [$i]);
	} catch (RuntimeException) {
	}
array_map('holds', range(1, 1000));
for ($i = 0; $i < 500; $i++) {
	$yields = yields();
	$yields->current();
	unset($yields);
	iterator_to_array(yields(), false);
	$fiber = new Fiber(fn() => array_map('holds', [Fiber::suspend()]));
	$fiber->start();
	$fiber->resume(1);
}
"""

FATAL = """<?php
function grow($kept, $depth) { $kept[] = str_repeat('x', 100000); return grow($kept, $depth + 1); }
grow([], 0);
"""

RUNNING = """<?php
class Cache
{
	private $kept = [];
	function keep($i) { $this->kept[$i % 1000] = str_repeat('k', 500 + $i % 100); }
}
function step($cache, $i) { $cache->keep($i); }
function run($cache) { $i = 0; while (true) { step($cache, $i++); if ($i % 50 == 0) usleep(500); } }
function down($n, $cache) { return $n ? down($n - 1, $cache) : run($cache); }
echo "ready\\n";
down((int)$argv[1], new Cache);
"""


class Scripts(Reading):
    def test_calls_whose_functions_have_ended_are_told_from_others(self):
        for command in interpreters():
            with self.subTest(command):
                recording = self.record([*command, self.write(ENDING)])
                report = harness.report("top", recording, "--stack", "script", "--value", "alloc", "-n", "0")
                self.assertNotIn("script_unmatched", report["lost"])
                rows = {row["name"]: row["cum_bytes"] for row in report["rows"]}
                self.assertGreaterEqual(rows["Held::__destruct"], 2000 * 2500)
                self.assertNotIn("[ended]", rows)

    def test_a_script_that_ends_by_a_fatal_error(self):
        for command in interpreters():
            with self.subTest(command):
                recording = self.record([*command, "-d", "memory_limit=20M", self.write(FATAL)], status=255)
                rows = harness.top_rows(recording, "alloc", options=["--stack", "script"])
                self.assertGreaterEqual(rows["str_repeat"]["flat_bytes"], 100 * 100000)
                self.assertIn("{main}", rows)

    def test_frames_beyond_those_that_are_kept_are_said_to_be_lost(self):
        script = self.write("<?php function f($n) { return $n ? f($n - 1) : str_repeat('x', 5000); } f(20000);")
        recording = self.record([*php(), script])
        self.assertGreater(harness.report("top", recording)["lost"]["truncated_stacks"], 0)
        self.assertEqual([places[-2:] for places, _, size in self.stacks(recording) if size == 5032],
                         [["f:1", "str_repeat:0"]])

    def test_a_script_that_is_killed(self):
        script = self.write("<?php function f() { $kept = str_repeat('x', 5000); posix_kill(getmypid(), 9); } f();")
        recording = self.record([*php(), script], status=137)
        self.assertIn(["{main}:1", "f:1", "str_repeat:0"],
                      [places for places, _, size in self.stacks(recording, value="inuse") if size == 5032])

    def test_scripts_are_left_out_on_demand(self):
        recording = self.path("native.hl")
        harness.run(harness.record_command(recording, [*php(), self.write(ENDING)], options=["--no-scripts"]))
        self.assertNotIn("Held::__destruct", harness.top_rows(recording, "alloc"))


STOPS_BEFORE_IT_TRACES = """
#include <signal.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>
long ptrace(int request, ...)
{
    static int calls;
    long word[3];
    va_list words;
    va_start(words, request);
    for (int i = 0; i < 3; i++)
        word[i] = va_arg(words, long);
    va_end(words);
    if (!calls++)
        kill(getpid(), SIGSTOP);
    return syscall(SYS_ptrace, request, word[0], word[1], word[2]);
}
"""


class RunByOthers(Reading):
    """What PHP's memory manager gives is recorded of an interpreter that another program runs, as of one that record starts."""

    def kept(self, recording):
        return [blocks for _, blocks, size in self.stacks(recording) if size == blocks * 5032]

    def words(self, first=""):
        return " ".join([*php(), self.write(f"<?php {first} $kept = str_repeat('x', 5000); exit(3);")])

    def test_a_shell_runs_it_or_becomes_it(self):
        words = self.words()
        for shell, status, blocks in ((f"{words}; exit $?", 3, 1), (f"exec {words}", 3, 1), (f"sh -c '{words}; true' && {words}", 3, 2)):
            with self.subTest(shell):
                recording = self.record(["sh", "-c", shell], status=status)
                self.assertEqual(self.kept(recording), [blocks])
                self.assertEqual(harness.report("top", recording)["lost"]["unrecorded_children"], 0)

    def test_several_begin_at_once(self):
        recording = self.record(["sh", "-c", f"for i in 1 2 3 4 5 6 7 8; do {self.words()} & done; wait"])
        self.assertEqual(self.kept(recording), [8])
        self.assertEqual([row["end"] for row in harness.processes(recording) if "unrecorded" in row["end"]], [])

    def test_pools_are_left_out_on_demand(self):
        recording = self.path("none.hl")
        result = harness.run(harness.record_command(recording, ["sh", "-c", f"{self.words()}; true"], options=["--no-pools"]))
        self.assertEqual(result.status, 0, result.stderr)
        self.assertEqual(self.kept(recording), [])

    def test_under_a_limit_of_its_memory_it_is_preloaded(self):
        recording = self.record(["sh", "-c", f"ulimit -v 8000000; {self.words()}; exit $?"], status=3)
        self.assertEqual(self.kept(recording), [])
        self.assertEqual([row["end"] for row in harness.processes(recording)][1:], ["ended"])

    def test_one_that_cannot_be_entered_is_preloaded(self):
        """Another tracer has it."""
        tracer = harness.need("strace")
        recording = self.record(["sh", "-c", f"{tracer} -qq -o {self.path('trace')} -e trace=none {self.words()}; exit $?"], status=3)
        self.assertEqual(self.kept(recording), [])
        self.assertEqual([row["end"] for row in harness.processes(recording) if "unrecorded" in row["end"]], [])
        self.assertIn("only blocks of malloc() are recorded", harness.run([HEAPLINE, "info", recording]).stdout)

    def test_what_it_executes_is_recorded(self):
        calls = {"system": "system('env sort /dev/null');", "exec": "exec('env sort /dev/null');",
                 "proc_open": "proc_close(proc_open(['sort', '/dev/null'], [], $pipes));",
                 "forked": "if (!pcntl_fork()) pcntl_exec('/usr/bin/sort', ['/dev/null']); pcntl_wait($status);"}
        for name, call in calls.items():
            for command in (["sh", "-c", f"{self.words(call)}; exit $?"], [*php(), self.write(f"<?php {call} exit(3);")]):
                with self.subTest(name, command=command[0]):
                    recording = self.record(command, status=3)
                    commands = [row["command"].removeprefix("/usr/bin/") for row in harness.processes(recording)]
                    self.assertEqual(commands.count("sort /dev/null"), 1)
                    self.assertEqual(harness.report("top", recording)["lost"]["unrecorded_children"], 0)

    def test_it_goes_on_when_heapline_is_killed(self):
        """Before the first 20 answers, requests of ptrace, or writes, and later ones; HEAPLINE_KILLS says before how many of these."""
        tracer, trace = harness.need("strace"), self.path("trace")
        command = harness.record_command(self.path("killed.hl"), ["sh", "-c", f"{self.words('echo 1;')}; echo $?"])
        watched = [tracer, "-qq", "-o", trace, "-e", "trace=sendmsg,ptrace,pwrite64"]
        self.assertEqual(harness.run([*watched, *command]).status, 0)
        with open(trace, encoding="utf-8") as file:
            calls = [line.split("(")[0] for line in file]
        steps = [(call, calls[:at + 1].count(call)) for at, call in enumerate(calls) if "sendmsg" in calls[:at + 1]]
        self.assertGreater(len(steps), 50)
        later = max(1, (len(steps) - 20) // int(os.environ.get("HEAPLINE_KILLS", "10")))
        for call, number in steps[:20] + steps[20::later]:
            with self.subTest(call, number=number):
                result = harness.run([*watched, "-e", f"inject={call}:signal=KILL:when={number}", *command])
                self.assertEqual(result.stdout, "13\n")

    def run_while_heapline_is_stopped(self, library, lasts, said):
        """A program that ends before heapline goes on, or once heapline has ${said} that."""
        recording, go = self.path(f"{lasts}.hl"), self.path("go")
        words = self.words("echo 'runs'; " + f"while (!file_exists('{go}')) usleep(9999);" * lasts)

        def written():
            with open(output.name, encoding="ascii") as file:
                return file.read()

        def is_said():
            return said in harness.run([HEAPLINE, "info", recording]).stdout

        with open(self.path("output"), "wb") as output:
            heapline = subprocess.Popen(harness.record_command(recording, ["sh", "-c", f"{words}; echo $?"]), start_new_session=True,
                                        env=dict(os.environ, LD_PRELOAD=library), stdin=subprocess.DEVNULL, stdout=output)
        try:
            wait_until(lambda: written() == ("runs" if lasts else "runs3\n"), "a program that does not wait")
            self.assertEqual(harness.process_state(heapline.pid), "T")
            heapline.send_signal(signal.SIGCONT)
            if lasts:
                wait_until(is_said, "the warning")
                with open(go, "w", encoding="ascii"):
                    pass
            self.assertEqual(heapline.wait(harness.TIMEOUT_S), 0)
            self.assertEqual(written(), "runs3\n")
            self.assertTrue(is_said())
        finally:
            if heapline.poll() is None:
                os.killpg(heapline.pid, signal.SIGKILL)
                heapline.wait()

    def test_it_does_not_wait_for_a_heapline_that_is_stopped(self):
        """Just before it enters the program."""
        library = self.path("stops.so")
        with open(self.path("stops.c"), "w", encoding="ascii") as file:
            file.write(STOPS_BEFORE_IT_TRACES)
        self.assertEqual(harness.run([harness.need("gcc"), "-shared", "-fPIC", "-o", library, self.path("stops.c")]).status, 0)
        for lasts, said in (False, "stopped or too busy to answer it"), (True, "did not wait for heapline"):
            with self.subTest(lasts=lasts):
                self.run_while_heapline_is_stopped(library, lasts, said)


class Reloaded(Reading):
    """A server that loads PHP's library again and again; one that is not installed is named by HEAPLINE_LIBPHP."""

    def steps(self, count):
        libraries = [os.environ.get("HEAPLINE_LIBPHP"), *glob.glob("/usr/lib/libphp*.so")]
        library = next((path for path in libraries if path), None)
        if not library:
            self.skipTest("no library of PHP (libphp-embed) is installed")
        recording = self.path("reload.hl")
        result = harness.run(harness.record_command(recording, [harness.program("php_reload"), library, str(count)]),
                             env={"USE_ZEND_ALLOC": "0"})
        self.assertEqual(result.status, 0, result.stderr)
        rows = harness.top_rows(recording, "alloc", options=["--stack", "script", "-n", "0"])
        return {name for name in rows if name.startswith("step")}, result.stderr

    def test_each_address_has_its_lines(self):
        steps, said = self.steps(16)
        self.assertEqual(steps, {f"step{i}" for i in range(16)})
        self.assertNotIn("stay native", said)

    def test_too_many_addresses_are_said(self):
        steps, said = self.steps(18)
        self.assertEqual(steps, {f"step{i}" for i in range(16)})
        self.assertIn("it was loaded at 17 addresses", said)


class Attached(attaching.TestCase):
    stacks = Reading.stacks

    def test_a_running_script_has_its_lines(self):
        for command in interpreters():
            for depth in 3, 150:
                with self.subTest(command, depth=depth):
                    self.check(command, depth)

    def check(self, command, depth):
        script = self.path("running.php")
        with open(script, "w", encoding="utf-8") as file:
            file.write(RUNNING)
        with subprocess.Popen([*command, script, str(depth)], stdout=subprocess.PIPE, text=True) as process:
            try:
                self.assertEqual(process.stdout.readline(), "ready\n")
                self.attach(process.pid, "-d", "0.5")
            finally:
                process.kill()
        expected = ["{main}:11", *["down:9"] * (depth + 1), "run:8", "step:7", "Cache::keep:5", "str_repeat:0"]
        found = collections.Counter()
        for places, blocks, _ in self.stacks(self.recording):
            found[tuple(places)] += blocks
        self.assertGreater(found[tuple(expected)], 100)
        # the first one is what has heapline look for the interpreter
        self.assertLessEqual(sum(found.values()) - found[tuple(expected)], 1, found)



JIT = """<?php
function build($n)
{
	$list = [];
	for ($i = 0; $i < $n; $i++)
		$list[] = str_repeat('x', $i % 100) . 'y';
	return count($list);
}
for ($i = 0; $i < 500; $i++)
	build(200);
"""


class Jit(Reading):
    def test_code_of_the_jit_has_its_function(self):
        for command in interpreters():
            for kind in "off", "tracing", "function":
                with self.subTest(command, kind=kind):
                    self.check([*command, "-d", "opcache.enable_cli=1", "-d", "opcache.jit_buffer_size=64M",
                                "-d", f"opcache.jit={kind}"])

    def check(self, command):
        if prints(command, "function_exists('opcache_get_status') && opcache_get_status() ? 1 : 0") != "1":
            self.skipTest("PHP has no opcache")
        script = self.path("jit.php")
        with open(script, "w", encoding="utf-8") as file:
            file.write(JIT)
        rows = harness.top_rows(self.record([*command, script]), "alloc", options=["--stack", "script"])
        # 99 of 100 calls of str_repeat() and each concatenation allocate
        self.assertGreaterEqual(rows["build"]["cum_objects"], 500 * 200 + 500 * 198)
        self.assertGreaterEqual(rows["str_repeat"]["cum_objects"], 500 * 198 * 0.99)


# Allocates and frees blocks of all sizes, beside 200,000 that it keeps.
RESTLESS = """
for ($i = 0, $kept = []; $i < 200000; $i++) $kept[] = str_repeat(chr($i & 63), 100);
echo "ready\\n";
while (true) {
    for ($i = 0, $blocks = []; $i < 3000; $i++) $blocks[] = str_repeat("b", 1 + $i % 2900);
}
"""
FILLED = """<?php
$kept = [];
for ($i = 0; $i < 20000; $i++)
	$kept[] = str_repeat('x', $i % 3500);
for ($i = 0; $i < 20000; $i += 3)
	unset($kept[$i]);
$large = str_repeat('l', 100000);
$huge = [str_repeat('h', 5000000), str_repeat('h', 3000000)];
fwrite(STDOUT, implode(' ', [memory_get_peak_usage(true), memory_get_peak_usage(), memory_get_usage(true), memory_get_usage()]) . "\\n");
fwrite(STDOUT, (string)memory_get_usage() . "\\n");
while (true)
	usleep(10000); // which allocates nothing
"""

PAGE = "<?php $kept = []; for ($i = 0; $i < 300; $i++) $kept[] = str_repeat('x', 100000); echo 'page';"


class Memory(harness.TestCase):
    """What the memory manager holds, by what it says itself."""

    def heap(self, pid, *options):
        result = harness.run([HEAPLINE, "heap", "--php", "-p", str(pid), "--json", *options])
        self.assertEqual(result.status, 0, result.stderr)
        return json.loads(result.stdout)

    def test_is_what_php_counts(self):
        for command in interpreters():
            with self.subTest(command):
                self.check(command)

    def check(self, command):
        script = self.path("filled.php")
        with open(script, "w", encoding="utf-8") as file:
            file.write(FILLED)
        with subprocess.Popen([*command, script], stdout=subprocess.PIPE, text=True) as process:
            try:
                peak_mapped, peak, mapped, _ = map(int, process.stdout.readline().split())
                used = int(process.stdout.readline())
                report = self.heap(process.pid)
                text = harness.run([HEAPLINE, "heap", "-p", str(process.pid)]).stdout
            finally:
                process.kill()
        php = report["php"]
        self.assertEqual((php["used_bytes"], php["mapped_bytes"], php["peak_bytes"], php["mapped_peak_bytes"]),
                         (used, mapped, peak, peak_mapped))
        # and the parts are all of that
        self.assertEqual(php["used_bytes"], sum(row["used_bytes"] for row in report["php_bins"]) +
                         php["large_bytes"] + php["huge_bytes"])
        self.assertEqual(php["mapped_bytes"], (php["chunks"] + php["cached_chunks"] << 21) + php["huge_bytes"])
        self.assertEqual(php["huge_blocks"], 2)
        self.assertNotIn("changed", str(report["notes"]))
        self.assertIn("PHP's memory (zend_mm's chunks)", text)
        self.assertIn("--php' shows what they are cut into", text)
        self.assertRegex(text, r"\n  not in malloc's heap, .*is the largest part: zend_mm uses .*heapline attach")

    def test_what_it_says_itself_is_read_even_if_its_lists_change_meanwhile(self):
        with subprocess.Popen([*php(), "-r", RESTLESS], stdout=subprocess.PIPE, text=True) as process:
            try:
                self.assertEqual(process.stdout.readline(), "ready\n")
                reports = [self.heap(process.pid)["php"] for _ in range(20)]
            finally:
                process.kill()
        for report in reports:
            self.assertGreater(report["used_bytes"], 20 << 20)
            self.assertGreaterEqual(report["mapped_bytes"], report["used_bytes"])

    def test_a_server_keeps_chunks_for_the_next_request(self):
        page = self.path("page.php")
        with open(page, "w", encoding="utf-8") as file:
            file.write(PAGE)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with subprocess.Popen([*php(), "-S", f"127.0.0.1:{port}", page], stderr=subprocess.DEVNULL) as server:
            try:
                wait_until(lambda: not socket.socket().connect_ex(("127.0.0.1", port)), "the server")
                for _ in range(5):
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
                        self.assertEqual(answer.read(), b"page")
                report = self.heap(server.pid)
                text = harness.run([HEAPLINE, "heap", "-p", str(server.pid)]).stdout
            finally:
                server.kill()
        # cached chunks are PHP's, too, and neither a leak nor mappings of whoever
        self.assertRegex(text, r"\n  retention outside of malloc's heap: PHP's memory \(zend_mm's chunks\) has .*: zend_mm uses .*"
                               r" in \d+ cached ones; the end of each request gives back ")
        others = re.search(r"\nother anonymous mappings +(\S+) (.)i?B", text)
        self.assertTrue(not others or others[2] != "M" or float(others[1]) < 2, text)
        self.assertGreater(report["php"]["cached_chunks"], 5)
        self.assertEqual(report["php"]["mapped_bytes"],
                         (report["php"]["chunks"] + report["php"]["cached_chunks"]) << 21)
        self.assertNotIn("changed", str(report["notes"]))

    def test_opcaches_memory_is_what_it_says(self):
        command = [*php(), "-d", "opcache.enable_cli=1"]
        if prints(command, "function_exists('opcache_get_status') && opcache_get_status() ? 1 : 0") != "1":
            self.skipTest("PHP has no opcache")
        script = self.path("status.php")
        with open(script, "w", encoding="utf-8") as file:
            file.write("<?php fwrite(STDOUT, implode(' ', opcache_get_status(false)['memory_usage']) . \"\\n\");"
                       "while (true) usleep(10000);")
        with subprocess.Popen([*command, script], stdout=subprocess.PIPE, text=True) as process:
            try:
                used, free, wasted = map(int, process.stdout.readline().split()[:3])
                report = self.heap(process.pid)["php"]
            finally:
                process.kill()
        self.assertEqual((report["opcache_bytes"], report["opcache_free_bytes"], report["opcache_wasted_bytes"]),
                         (used + free + wasted, free, wasted))

    def test_a_process_without_the_manager_is_said_to_have_none(self):
        with harness.Waiting([*php(), "-r", "echo \"ready\\n\"; fgets(STDIN);"], env={"USE_ZEND_ALLOC": "0"}) as process:
            report = self.heap(process.pid)
        self.assertIn("USE_ZEND_ALLOC=0", str(report["notes"]))
        self.assertNotIn("php", report)


if __name__ == "__main__":
    harness.main()
