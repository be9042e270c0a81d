#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`why` names planted causes: the verdict and the line, and never a wrong one with certainty."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import unittest
from pathlib import Path

import harness
import schemas
import test_pod
import test_tutorials
from harness import HEAPLINE, need, run

SCENES = os.path.join(harness.SOURCES, "servers")
JSON_BYTES = 4096
MIB = 1 << 20

# Programs in C. Each plants what its name says; "ready" when it has begun.
C_HEAD = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
static void *volatile sink;
static void ready(void) { puts("ready"); fflush(stdout); }
"""
C_PROGRAMS = {
    "leak": """
static __attribute__((noinline)) void lose(void) { sink = memset(malloc(5000), 1, 5000); }
int main(void) { for (ready();; usleep(2000)) { lose(); free(memset(malloc(700), 1, 700)); } }
""",
    "cache": """
char *cache[1 << 20]; /* not static: else what is only written is left out */
static size_t count;
static __attribute__((noinline)) void put(void) { cache[count++] = memset(malloc(2000), 1, 2000); }
int main(void) { for (ready();; usleep(1000)) put(); }
""",
    "fragments": """
static char *kept[1 << 20];
int main(void)
{
	for (size_t i = 0; i < 200000; i++)
		kept[i] = memset(malloc(200), 1, 200);
	for (size_t i = 0; i < 200000; i++)
		if (i % 20)
			free(kept[i]);
	for (ready();; usleep(1000))
		free(memset(malloc(100), 1, 100));
}
""",
    "retains": """
static char *kept[1 << 20];
int main(void)
{
	for (size_t i = 0; i < 20000; i++)
		kept[i] = memset(malloc(2000), 1, 2000);
	sink = malloc(2000);
	for (size_t i = 0; i < 20000; i++)
		free(kept[i]);
	for (ready();; usleep(1000))
		free(memset(malloc(100), 1, 100));
}
""",
    "wakes": """
static __attribute__((noinline)) void lose(void) { sink = memset(malloc(5000), 1, 5000); }
int main(void) { for (ready(), sleep(6);; usleep(2000)) lose(); }
""",
    "small": """
char *kept[1 << 20]; /* not static: else what is only written is left out */
int main(void)
{
	for (size_t i = 0; i < 1 << 20; i++)
		kept[i] = malloc(8);
	for (ready();; usleep(1000))
		free(memset(malloc(100), 1, 100));
}
""",
    "unused": """
int main(void)
{
	sink = memset(malloc(64 << 20), 1, 64 << 20);
	for (ready();; usleep(1000))
		free(memset(malloc(100), 1, 100));
}
""",
    "slabs": """
static __attribute__((noinline)) char *slab(void)
{
	return memset(mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 65536);
}
int main(void) { for (ready();; usleep(20000)) slab(); }
""",
    "works": """
static char *kept[5000];
int main(void)
{
	ready();
	for (size_t i = 0;; i++) {
		free(kept[i % 5000]);
		size_t size = 100 + i * 7919 % 900;
		kept[i % 5000] = memset(malloc(size), 1, size);
		if (i % 50 == 0)
			usleep(500);
	}
}
""",
}
CXX_PROGRAMS = {
    "lose": """
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <thread>
struct Session { std::string name = std::string(3000, 'x'); int number = 0; };
__attribute__((noinline)) static void forget(int number)
{
	Session *volatile session = new Session;
	session->number = number;
}
int main()
{
	std::puts("ready"), std::fflush(stdout);
	for (int i = 0;; i++, std::this_thread::sleep_for(std::chrono::milliseconds(2)))
		forget(i);
}
""",
    "pages": """
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <thread>
static std::map<int, std::string> pages;
__attribute__((noinline)) static const std::string &page(int number)
{
	auto found = pages.find(number);
	if (found == pages.end())
		found = pages.emplace(number, std::string(3000, 'x')).first;
	return found->second;
}
int main()
{
	std::puts("ready"), std::fflush(stdout);
	for (int i = 0;; i++, std::this_thread::sleep_for(std::chrono::milliseconds(2)))
		page(i);
}
""",
}
PYTHON_CACHE = """
import time
cache = {}
def handle(number):
    cache[number] = b"x" * 3000 + str(number).encode()
print("ready", flush=True)
for number in range(10**9):
    handle(number)
    time.sleep(0.002)
"""
PYTHON_LEAK = """
import ctypes, time
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
def query():
    libc.memset(libc.malloc(30000), 1, 30000)
print("ready", flush=True)
while True:
    query()
    time.sleep(0.01)
"""
PYTHON_SPOOL = """
import os, time
spool = os.memfd_create("spool")
print("ready", flush=True)
while True:
    os.write(spool, b"y" * 100000)
    time.sleep(0.02)
"""
PYTHON_RESTS = """
import time
kept = [str(number) * 9 for number in range(20000)]
print("ready", flush=True)
time.sleep(600)
"""
PYTHON_READS = """
import time
part = b"z" * 200000
print("ready", flush=True)
with open("data.bin", "wb") as file:
    while file.tell() < 60 << 20:
        file.write(part)
        time.sleep(0.005)
time.sleep(600)
"""
RUBY_CACHE = """
class Pages
  def initialize
    @pages = {}
  end
  def render(number)
    @pages[number] = "page #{number} " * 400
  end
end
pages = Pages.new
puts "ready"
$stdout.flush
(0..10**9).each do |number|
  pages.render(number)
  sleep 0.002
end
"""
PHP_CACHE = """<?php
class Catalog {
    private static array $items = [];
    static function keep(int $number): void {
        self::$items[] = str_repeat("item $number ", 300);
    }
}
echo "ready\\n";
for ($number = 0; ; $number++) {
    Catalog::keep($number);
    usleep(2000);
}
"""


class Why(harness.TestCase):
    def setUp(self):
        super().setUp()
        test_tutorials.need_attach(self.directory)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def start(self, command, group=None, **options):
        """A program that runs until the test ends, once it has said that it is ready."""
        if group:
            command = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", *command]
        process = subprocess.Popen(command, cwd=self.directory, stdout=subprocess.PIPE, text=True,
                                   stderr=subprocess.DEVNULL, **options)
        self.addCleanup(self.end, process)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.communicate()

    def compile(self, name, compiler="gcc", text=None):
        suffix = {"gcc": "c", "g++": "cc"}[compiler]
        source = self.write(f"{name}.{suffix}", text or C_HEAD + C_PROGRAMS[name])
        built = run([need(compiler), "-g", "-O1", "-fno-builtin", "-o", self.path(name), source])
        self.assertEqual(built.status, 0, built.stderr)
        return [self.path(name)]

    def scene(self, name, more=""):
        session = test_tutorials.Session(self.directory)
        self.addCleanup(session.end)
        session.run(f". {SCENES}/{name}.sh\n{more}")
        return int(session.run("echo $PID"))

    def group(self, limit=None):
        harness.need_root()
        hierarchy, is_v2 = test_pod.memory_hierarchy()
        path = os.path.join(hierarchy, f"heapline-why-{os.getpid()}")
        self.addCleanup(lambda: harness.wait_until(lambda: test_pod.Groups.removed(path), "the group to be empty"))
        file = "memory.max" if is_v2 else "memory.limit_in_bytes"
        if run(["sh", "-c", f"mkdir {path}" + (f" && echo {limit} > {path}/{file}" if limit else "")]).status != 0:
            self.skipTest("no control group can be made here")
        return path

    def ask(self, *target, seconds=4, status=0, **options):
        """The page as JSON, which is as its schema says."""
        result = run([HEAPLINE, "why", *map(str, target), "--for", str(seconds), "--json"], cwd=self.directory, **options)
        self.assertEqual(result.status, status, result.stderr)
        self.assertLessEqual(len(result.stdout.encode()), JSON_BYTES)
        page = json.loads(result.stdout)
        schemas.check(page)
        return page

    def expect(self, page, causes, line=None):
        """One of `causes`, and `line` in the line or the stack; a wrong one must at least not be certain."""
        verdict = page["verdict"]
        self.assertIn(verdict["cause"], causes.split(), json.dumps(page, indent=1))
        if line:
            place = page["line"] or {}
            said = [f"{place.get('function')} ({os.path.basename(place.get('file', ''))}:{place.get('line')})",
                    *page["stack"]]
            self.assertRegex("\n".join(said), line, json.dumps(page, indent=1))
        return page

    def expect_of(self, command, causes, line=None, **options):
        return self.expect(self.ask("-p", self.start(command).pid, **options), causes, line)

    # ---- leaks ----

    def test_a_leak_of_c(self):
        page = self.expect_of(self.compile("leak"), "leak", r"^lose \(leak\.c:11\)")
        self.assertEqual(page["verdict"]["certainty"], "certain")

    def test_a_leak_of_cxx(self):
        self.expect_of(self.compile("lose", "g++", CXX_PROGRAMS["lose"]), "leak", r"^forget\(int\) \(lose\.cc:10\)")

    def test_a_leak_of_a_c_function_that_python_calls(self):
        self.expect_of([need("python3"), self.write("svc.py", PYTHON_LEAK)], "leak", r"^query \(svc\.py:7\)")

    # ---- caches without bound ----

    def test_a_cache_of_c(self):
        page = self.expect_of(self.compile("cache"), "cache", r"^put \(cache\.c:13\)")
        self.assertIn("cache", page["holder"])

    def test_a_cache_of_cxx(self):
        self.expect_of(self.compile("pages", "g++", CXX_PROGRAMS["pages"]), "cache", r"^page\(int\) \(pages\.cc:12\)")

    def test_a_cache_of_python(self):
        self.expect_of([need("python3"), self.write("svc.py", PYTHON_CACHE)], "cache", r"^handle \(svc\.py:5\)")

    def test_a_cache_of_ruby(self):
        self.expect_of([need("ruby"), self.write("svc.rb", RUBY_CACHE)], "cache", r"render \(svc\.rb:7\)")

    def test_a_cache_of_php(self):
        self.expect_of([need("php"), self.write("svc.php", PHP_CACHE)], "cache", r"keep \(svc\.php:5\)")

    def test_deflaters_of_java(self):
        need("javac")
        self.expect(self.ask("-p", self.scene("jvm")), "cache", r"Shop\.compress|Deflater\.init")

    def test_buffers_of_node(self):
        need("node")
        self.expect(self.ask("-p", self.scene("node")), "cache", r"shop\.js:|NodeArrayBufferAllocator")

    def test_statements_of_postgres(self):
        harness.need_root()
        if run(["sh", "-c", "ls /usr/lib/postgresql/*/bin/initdb"]).status != 0:
            self.skipTest("there is no postgres")
        need("psql"), need("setpriv")
        os.chmod(self.directory, 0o777)
        self.expect(self.ask("-p", self.scene("postgres")), "cache growth", r"CachedPlan|Prepare|copyObject")

    def test_lists_of_redis(self):
        need("redis-server")
        pid = self.scene("redis", "(while sleep 0.001; do echo \"lpush more $(printf %04000d 1)\"; done | "
                                  "redis-cli -s socket > more.log) &\nsleep 1")
        self.expect(self.ask("-p", pid), "cache", r"pushGenericCommand|quicklist|lpPrepend|lpInsert")

    # ---- other growth ----

    def test_mappings_of_a_program(self):
        self.expect_of(self.compile("slabs"), "growth", r"^slab \(slabs\.c:13\)")

    def test_a_file_in_memory(self):
        page = self.expect_of([need("python3"), self.write("svc.py", PYTHON_SPOOL)], "growth")
        self.assertIn("spool", page["verdict"]["sentence"])

    def test_page_cache_of_a_group(self):
        group = self.group("128M")
        self.start([need("python3"), self.write("svc.py", PYTHON_READS)], group)
        self.expect(self.ask("--cgroup", group), "page-cache")

    def test_a_neighbour_in_the_group(self):
        group = self.group("512M")
        quiet = self.start([need("python3"), self.write("quiet.py", PYTHON_RESTS)], group)
        loud = self.start([need("python3"), self.write("svc.py", PYTHON_CACHE)], group)
        page = self.expect(self.ask("-p", quiet.pid), "another-process")
        self.assertEqual(page["next"], f"heapline why -p {loud.pid}")
        self.expect(self.ask("--cgroup", group), "cache", r"^handle \(svc\.py:5\)")

    def test_a_process_that_grows_beside_one_that_grows_faster(self):
        """Also where that one gains for a moment only: each of a group's processes has its own cause."""
        group = self.group("512M")
        asked = self.start(self.compile("cache"), group)
        other = self.start([need("python3"), "-c", "import time\nprint('ready', flush=True)\nkept = []\n"
                            "while True: len(kept) > 250 or kept.append(bytearray(b'x') * (1 << 20)); time.sleep(0.02)"], group)
        page = self.expect(self.ask("-p", asked.pid), "cache", r"^put \(cache\.c:13\)")
        self.assertRegex(json.dumps(page["evidence"]), rf"process {other.pid} \(python3[.\d]*\) of the same control group gained more")

    # ---- nothing grows ----

    def test_fragmentation_of_glibc(self):
        self.expect_of(self.compile("fragments"), "fragmentation")

    def test_fragmentation_of_jemalloc_in_redis(self):
        need("redis-server")
        page = self.expect(self.ask("-p", self.scene("redis", "kill %2; sleep 0.5")), "fragmentation")
        self.assertRegex(page["next"], r"^heapline pins -p \d+$")

    def test_retention_of_glibc(self):
        page = self.expect_of(self.compile("retains"), "retention")
        self.assertIn("malloc_trim(0)", page["remedy"])

    def test_a_program_that_works(self):
        self.expect_of(self.compile("works"), "nothing-unusual")

    def test_a_program_that_rests(self):
        page = self.expect_of([need("python3"), self.write("svc.py", PYTHON_RESTS)], "nothing-unusual")
        self.assertIn("it was read from outside; nothing was put into it", page["done_to_process"])

    def test_a_program_that_rests_first_is_entered_when_it_runs(self):
        self.expect_of(self.compile("wakes"), "leak", r"^lose \(wakes\.c:11\)", seconds=16)

    def test_headers_of_small_blocks(self):
        page = self.expect_of(self.compile("small"), "waste")
        self.assertRegex(page["verdict"]["sentence"], r"^[\d.]+ MiB are the allocator's headers")

    def test_memory_that_nobody_touches(self):
        page = self.expect_of(self.compile("unused"), "nothing-unusual")
        self.assertRegex(page["verdict"]["sentence"], r"but 6\d\.?\d? MiB of it were not touched")
        self.assertRegex(page["next"], r"^heapline holders -p \d+$")

    # ---- what ends meanwhile ----

    def test_after_a_moment_that_a_signal_ended_no_page_counts_as_not_touched(self):
        program = self.start(self.compile("unused"))

        def touched():
            with open(f"/proc/{program.pid}/smaps_rollup", encoding="ascii") as file:
                return int(re.search(r"Referenced: +(\d+)", file.read())[1])

        before = touched()
        asked = subprocess.Popen([HEAPLINE, "why", "-p", str(program.pid), "--for", "10"], text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.directory)
        self.addCleanup(self.end, asked)
        harness.wait_until(lambda: touched() < before / 2, "the marks to be cleared")
        asked.send_signal(signal.SIGINT)
        said = asked.communicate(timeout=harness.TIMEOUT_S)[0]
        if "a signal ended it" not in said:
            self.skipTest("the moment was over before the signal came")
        self.assertNotIn("not touched", said)
        self.assertIn("marks of touched pages were cleared", said)

    def begin(self, program, *options, **more):
        """`why` of `program` that has begun to record it."""
        asked = subprocess.Popen([HEAPLINE, "why", "-p", str(program.pid), "--for", "60", "--json", *options], text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.directory, **more)
        self.addCleanup(self.end, asked)
        self.assertIn("attaching", asked.stderr.readline())
        return asked

    def test_of_a_process_that_has_ended_the_next_command_works(self):
        for options in [], ["--keep", "ended.hl"]:
            program = self.start(self.compile("cache"))
            asked = self.begin(program, *options)
            if options:
                harness.wait_until(lambda: list(Path(self.path("ended.hl")).glob("memlog-*")), "the recording")
            program.kill()
            page = json.loads(asked.communicate(timeout=harness.TIMEOUT_S)[0])
            schemas.check(page)
            self.assertIn("the process has ended meanwhile", page["not_looked_at"])
            self.assertEqual(page["next"], "heapline report ended.hl" if options else "")
        self.expect(page, "growth unknown")
        self.assertEqual(run([HEAPLINE, *page["next"].split()[1:]], cwd=self.directory).status, 0)

    def test_what_a_killed_why_left_the_next_one_removes(self):
        program = self.start(self.compile("works"))
        os.mkdir(self.path("tmp"))
        environment = {**os.environ, "TMPDIR": self.path("tmp")}
        asked = self.begin(program, env=environment)
        left = harness.wait_until(lambda: list(Path(self.path("tmp")).glob("heapline-*/why.hl")), "the recording")[0]
        recording = os.open(left, os.O_RDONLY)
        self.addCleanup(os.close, recording)
        self.assertFalse(self.may_lock(recording))
        asked.kill()
        harness.wait_until(lambda: self.may_lock(recording), "the recorder to end by itself")
        self.assertTrue(left.exists())
        page = self.ask("-p", program.pid, env=environment)
        self.assertIn("it was entered, recorded, and left as it was", page["done_to_process"])
        self.assertEqual(os.listdir(self.path("tmp")), [])

    @staticmethod
    def may_lock(file):
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(file, fcntl.LOCK_UN)
        return True

    # ---- how it is asked ----

    def test_outside_enters_nothing(self):
        page = self.expect(self.ask("-p", self.start(self.compile("cache")).pid, "--outside"), "cache growth unknown")
        self.assertFalse([done for done in page["done"] if "attach" in done["command"]])
        self.assertNotIn("attach", page["next"])
        self.assertNotIn("growth", page["next"])

    def test_a_dry_run_does_nothing(self):
        program = self.start(self.compile("cache"))
        result = run([HEAPLINE, "why", "-p", str(program.pid), "-n"])
        self.assertEqual(result.status, 0)
        for verb in "doctor", "pod", "heap", "attach", "leaks", "holders":
            self.assertRegex(result.stdout, rf"(?m)^heapline {verb} -p {program.pid}\b")
        result = run([HEAPLINE, "why", "-p", str(program.pid), "-n", "--outside"])
        self.assertNotIn("attach", result.stdout)

    def test_the_page_as_html_has_pictures(self):
        program = self.start(self.compile("leak"))
        result = run([HEAPLINE, "why", "-p", str(program.pid), "--for", "4", "--html"], cwd=self.directory)
        self.assertEqual(result.status, 0, result.stderr)
        self.assertEqual(result.stdout.count("<figure><svg"), 2)
        self.assertIn("lose (leak.c:11)", result.stdout)

    def test_a_signal_ends_it_and_the_page_says_so(self):
        program = self.start(self.compile("leak"))
        asked = subprocess.Popen([HEAPLINE, "why", "-p", str(program.pid), "--for", "60"], text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        asked.stderr.readline()  # it attaches
        asked.send_signal(signal.SIGINT)
        said = asked.communicate(timeout=harness.TIMEOUT_S)[0]
        self.assertIn("a signal ended it", said)
        self.assertIsNone(program.poll())

    def test_what_is_not_there_is_an_error(self):
        result = run([HEAPLINE, "why", "-p", "4194304"])
        self.assertEqual((result.status, result.stdout), (1, ""))
        self.assertEqual(run([HEAPLINE, "why"]).status, 2)
        result = run([HEAPLINE, "why", "--cgroup", "/sys/fs/cgroup/heapline-none"])
        self.assertEqual((result.status, result.stdout), (1, ""))
        self.assertIn("heapline-none' is not", result.stderr)

    def test_a_stopped_process_is_said_to_be_stopped(self):
        program = self.start(self.compile("works"))
        program.send_signal(signal.SIGSTOP)
        said = run([HEAPLINE, "why", "-p", str(program.pid), "--for", "1"]).stdout
        self.assertIn("the process is stopped, so it was not entered", said)
        self.assertIn("unknown (possible): the process is stopped, by a signal or a debugger", said)
        program.send_signal(signal.SIGCONT)

    def test_without_rights_it_leads_to_what_says_so(self):
        if os.geteuid() != 0:
            self.skipTest("only root can give up its rights")
        program = self.start(self.compile("cache"))
        try:
            asked = subprocess.run([HEAPLINE, "why", "-p", str(program.pid), "--for", "3", "--json"], check=False,
                                   stdout=subprocess.PIPE, user=65534, group=65534, extra_groups=[])
        except PermissionError:
            self.skipTest("others cannot run this build")
        page = json.loads(asked.stdout)
        self.assertEqual((page["verdict"]["cause"], page["next"]), ("unknown", f"heapline doctor -p {program.pid}"))
        self.assertIn("you may not look into the process", page["verdict"]["sentence"])

    def test_a_thread_of_the_kernel_is_an_error(self):
        if not os.path.exists("/proc/2/comm") or os.path.exists("/proc/2/exe") or \
                open("/proc/2/comm", encoding="ascii").read() != "kthreadd\n":
            self.skipTest("threads of the kernel are not seen here")
        result = run([HEAPLINE, "why", "-p", "2"])
        self.assertEqual((result.status, result.stdout), (1, ""))
        self.assertIn("thread of the kernel", result.stderr)

    def test_what_is_ended_early_claims_nothing(self):
        """Also where it was begun with SIGINT ignored, as a shell without job control does by '&'."""
        program = self.start(self.compile("works"))
        for ignored in signal.SIGUSR1, signal.SIGINT:
            asked = subprocess.Popen([HEAPLINE, "why", "-p", str(program.pid), "--for", "60"], text=True,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     preexec_fn=lambda s=ignored: signal.signal(s, signal.SIG_IGN))
            asked.stderr.readline()  # it attaches
            asked.send_signal(signal.SIGTERM)
            said = asked.communicate(timeout=harness.TIMEOUT_S)[0]
            self.assertRegex(said, r"verdict +unknown")
            self.assertNotIn("-> 0 B", said)
            self.assertRegex(said, "left as it was|it was not entered")
            self.assertNotIn("not seen    'heapline attach'", said)
        self.assertEqual(run([HEAPLINE, "why", "-p", "1", "--cgroup", "/"]).status, 2)

    def test_a_recorder_that_may_be_left_behind_is_said(self):
        program = self.start(self.compile("cache"))

        def recorder():
            with open(f"/proc/{program.pid}/maps", encoding="utf-8", errors="replace") as maps:
                return "memfd:heapline" in maps.read()
        asked = subprocess.Popen([HEAPLINE, "why", "-p", str(program.pid), "--for", "6", "--json"], text=True, stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL)
        self.addCleanup(self.end, asked)
        harness.wait_until(recorder, "the recorder in the program")
        with open(f"/proc/{asked.pid}/task/{asked.pid}/children", encoding="ascii") as children:
            attach, = map(int, children.read().split())
        os.kill(attach, signal.SIGKILL)
        page = json.loads(asked.communicate(timeout=harness.TIMEOUT_S)[0])
        self.assertIn("the recorder may be in it still: 'heapline attach' on it once more takes it out", page["done_to_process"])
        self.assertEqual(run([HEAPLINE, "attach", "-p", str(program.pid), "-d", "1", "-o", self.path("again.hl")]).status, 0)
        self.assertFalse(recorder())

    def test_a_full_disk_does_not_keep_it_from_entering(self):
        harness.need_root()
        program, disk = self.start(self.compile("leak")), self.path("disk")
        os.mkdir(disk)
        script = 'mount -t tmpfs -o size=64k heapline-test "$0" && cat /dev/zero 2>/dev/null >"$0/filler"; exec "$@"'
        result = run([need("unshare"), "-m", "sh", "-c", script, disk, HEAPLINE, "why", "-p", str(program.pid), "--for", "4", "--json",
                      "--keep", os.path.join(disk, "kept.hl")])
        page = json.loads(result.stdout)
        self.assertIn("it was entered, and left as it was; the recording is not whole", page["done_to_process"])
        self.assertIn("No space left", " ".join(page["not_looked_at"]))

    def test_many_threads_are_announced(self):
        threads = "import threading, time\nfor _ in range(500): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n" \
                  "print('ready', flush=True)\nkept = []\nwhile True: kept.append(bytearray(100)); time.sleep(0.0001)"
        program = self.start([sys.executable, "-c", threads])
        asked = subprocess.Popen([HEAPLINE, "why", "-p", str(program.pid), "--for", "60"], text=True, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE)
        self.addCleanup(self.end, asked)
        self.assertRegex(asked.stderr.readline(), "it stops twice for about (9|10) ms")
        asked.send_signal(signal.SIGINT)
        asked.wait(harness.TIMEOUT_S)

    def test_the_recording_is_kept(self):
        program = self.start(self.compile("cache"))
        page = self.ask("-p", program.pid, "--keep", "kept.hl")
        self.assertIn("put", run([HEAPLINE, "top", "kept.hl"], cwd=self.directory).stdout)
        self.assertEqual(page["verdict"]["cause"], "cache")


if __name__ == "__main__":
    harness.main()
