#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The pages of docs/servers find what their scenes plant, as do the commands that heapline itself names first: when
something grows at night, the answer is within the first ten lines."""

import glob
import os
import re

import harness
import test_pod
import test_tutorials
from harness import HEAPLINE, need, run

PAGES = os.path.join(harness.SOURCES, "../../docs/servers")
SCENES = os.path.join(harness.SOURCES, "servers")
FIRST_LINES = 10
# Of a trace, no measurement of its price before it begins
SHORTLY = {"stacks": ["--max-overhead", "100000", "2"], "pgfault": ["2"], "attach": ["-d", "2", "-f", "-o", "first.hl"]}

CHURN = """
import ctypes, time
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
def keep():
    libc.memset(libc.malloc(30000), 1, 30000)
for number in range(10**9):
    keep()
    if number == 1000:
        print("ready", flush=True)
    if number > 1000:
        time.sleep(0.005)
"""
SPOOL = """
import os, time
spool = os.memfd_create("spool")
for number in range(3000):
    os.write(spool, b"y" * 10000)
print("ready", flush=True)
time.sleep(600)
"""
SLABS = """
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static __attribute__((noinline)) char *slab(void)
{
	return memset(mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 65536);
}
int main(void)
{
	for (int i = 0;; i++) {
		slab();
		if (i == 300)
			puts("ready"), fflush(stdout);
		if (i > 300)
			usleep(5000);
	}
}
"""


class Servers(harness.TestCase):
    def start(self, scene):
        """The process that a scene is about."""
        test_tutorials.need_attach(self.directory)
        self.session = test_tutorials.Session(self.directory)
        self.addCleanup(self.session.end)
        self.session.run(scene)
        return int(self.session.run("echo $PID"))

    def play(self, page, *programs):
        """The process of a page's scene, and what each block of the page writes."""
        for program in ("bash", *programs):
            need(program)
        with open(os.path.join(PAGES, f"{page}.md"), encoding="utf-8") as file:
            blocks = test_tutorials.blocks_of(file.read())
        pid = self.start(f". {SCENES}/{page}.sh")
        return pid, [self.session.run(block) for block in blocks]

    def need_guest(self, name):
        if not os.path.exists(os.path.join(harness.BUILD, f"src/guests/{name}")):
            self.skipTest(f"heapline was built without what it knows of {name}")

    def first_answer(self, pid, planted, heap=None, *top):
        """Does what `heap` names first; what is planted is in the first lines that it writes."""
        heap = heap or run([HEAPLINE, "heap", "-p", str(pid)]).stdout
        verb = re.search(rf"'heapline ([a-z]+) -p {pid}\b", heap)[1]
        if verb != "attach":
            test_tutorials.need_traces()
        result = run([HEAPLINE, verb, "-p", str(pid), *SHORTLY[verb]], cwd=self.directory)
        self.assertEqual(result.status, 0, result.stderr)
        if verb == "attach":
            self.assertIn("see 'heapline top first.hl'", result.stderr)
            result = run([HEAPLINE, "top", *top, "first.hl"], cwd=self.directory)
        self.assertRegex("\n".join(result.stdout.splitlines()[:FIRST_LINES]), planted)

    def test_what_one_connection_of_mariadb_prepares(self):
        pid, (heap, top, thread) = self.play("mariadb", "mariadbd", "mariadb")
        self.assertRegex(heap, r"\n  (nearly all of it is live|(but for files )?live blocks are the largest part), ")
        self.assertRegex(top, r"(?m)^.* 9\d\.\d% .* Prepared_statement::Prepared_statement\(THD\*\)$")
        self.assertRegex(thread, rf"(?m)^\S+ \w+ +100\.0% .* {pid} +\d+  mariadbd$")
        self.first_answer(pid, r"Prepared_statement|mysql_sql_stmt_prepare", heap)

    def test_what_a_backend_of_postgres_prepares(self):
        harness.need_root()
        if run(["sh", "-c", "ls /usr/lib/postgresql/*/bin/initdb"]).status != 0:
            self.skipTest("there is no postgres")
        os.chmod(self.directory, 0o777)
        pid, (heap, top, tree) = self.play("postgres", "psql", "setpriv")
        self.assertRegex(heap, r"\n  (nearly all of it is live|(but for files )?live blocks are the largest part), ")
        self.assertRegex(top, r"(copyObjectImpl|C\w+CachedPlan)\n")
        self.assertRegex(tree, r" (9\d|100)\.\d% .*PrepareQuery ")
        self.first_answer(pid, r"C\w+CachedPlan|Prepare(Query|dStatement)|copyObjectImpl", heap)

    def test_buffers_that_node_keeps(self):
        pid, (heap, top, script) = self.play("node", "node")
        self.assertRegex(heap, r"\n  (but for files )?live blocks are the largest part, ")
        self.assertIn("JavaScript objects (V8's heap)", heap)
        self.assertRegex(top, r"(?m)^.* 9\d\.\d% .*ArrayBufferAllocator::Allocate")
        self.assertRegex(script, r"(?m)^.* (9\d|100)\.\d% .* shop\.js:[58] +(keepBody|handle)$")
        self.first_answer(pid, r"ArrayBufferAllocator::Allocate", heap)

    def test_deflaters_that_a_jvm_keeps(self):
        pid, (heap, tops, tree) = self.play("jvm", "java", "javac")
        self.assertRegex(heap, r"\n  (but for files )?live blocks are the largest part, ")
        self.assertRegex(heap, r"\nJava objects \(the JVM's heap\) ")
        self.assertRegex(tops, r"(?m)^.* 9\d\.\d% .* deflateInit2_$")
        self.assertIn("java.util.zip.Deflater.init(", tops)
        self.assertIn("void Shop.compress(byte[], boolean)", tree)
        self.first_answer(pid, r"deflateInit2_", heap)

    def test_keys_that_redis_has_deleted(self):
        _, (heap, carriers, tree) = self.play("redis", "redis-server", "redis-cli")
        self.assertIn("pushGenericCommand", tree)
        if "jemalloc" not in heap.splitlines()[0]:
            self.skipTest("this redis-server has another allocator than jemalloc")
        verdict = r"(retention and )?fragmentation: malloc has [0-9.]+ MiB in memory: [0-9.]+ MiB live, "
        self.assertRegex("\n".join(heap.splitlines()[:FIRST_LINES]), verdict)
        self.assertRegex(heap, r"keep \d\d\.\d MiB of pages in memory")
        self.assertRegex(carriers, r"\n0-10 % +\d\d\.\d MiB +[5-9]\d\.\d%")

    def test_what_a_request_of_php_keeps(self):
        if not glob.glob("/usr/sbin/php-fpm*"):
            self.skipTest("php-fpm is not installed")
        self.need_guest("php")
        pid, (heap, top, tree) = self.play("php-fpm", "cgi-fcgi", "setpriv")
        self.assertRegex(heap, r"\n  not in malloc's heap, .*: PHP's memory \(zend_mm's chunks\), ")
        self.assertRegex(top, r" 100\.0% .* import\.php:5 +Catalog::keep\n")
        self.assertRegex(tree, r"\{main\} \(import\.php:10\)\n.*Catalog::keep \(import\.php:5\)")
        self.first_answer(pid, r"import\.php:5 +Catalog::keep\n", heap)

    def test_pages_that_an_application_in_puma_keeps(self):
        self.need_guest("ruby")
        pid, (heap, top, tree) = self.play("rails", "puma", "curl")
        self.assertRegex(heap, r"\n  (nearly all of it is live|(but for files )?live blocks are the largest part), ")
        for said in (top, tree):
            self.assertRegex(said, r"\brender\b")
        self.assertRegex(tree, r"call \(config\.ru:12\)\n.*render \(config\.ru:7\)\n")
        self.first_answer(pid, r"config\.ru:7 +render\n", heap)

    def test_messages_that_a_service_of_skynet_keeps(self):
        if "SKYNET_DIR" not in os.environ:
            self.skipTest("SKYNET_DIR is not set: it names a checkout of skynet that has been built")
        pid, (heap, services, lines) = self.play("skynet")
        self.assertRegex(heap, r"\n  (nearly all of it is live|live blocks are the largest part), ")
        self.assertRegex(services, r" 9\d\.\d% .* hall :0000000\w\n")
        self.assertRegex(lines, r" (9\d|100)\.\d% .* skynet\.lua:\d+ ")
        self.assertIn("then 'heapline top --by service --value inuse FILE' shows which service has it", heap)
        self.first_answer(pid, r" 9\d\.\d% .* hall :0000000\w\n", heap, "--by", "service", "--value", "inuse")

    def test_the_line_of_python_that_calls_malloc(self):
        with open(self.path("churn.py"), "w", encoding="utf-8") as file:
            file.write(CHURN)
        pid = self.start(f"{need('python3')} churn.py > log & PID=$!\n"
                         "until grep -q ready log; do kill -0 $PID; sleep 0.1; done")
        self.first_answer(pid, r"churn\.py:7 +keep\n")
        # The same one, always recorded and pushed to a store
        self.session.run(f"heapline attach -q -p {pid} -o always.hl &\n"
                         f"until heapline ctl -p {pid} status > status.txt 2>&1; do sleep 0.1; done\n"
                         f"until heapline push --once --to fleet.db --service churn -p {pid} 2>&1; do sleep 0.2; done\n"
                         f"sleep 2; heapline push --once --to fleet.db --service churn -p {pid}")
        for view, planted in (("growth", r"(?m)^churn +1 .* 100\.0% "), ("diff", r" \d+\.\d MiB .*\bkeep\b")):
            said = self.session.run(f"heapline fleet {view} --db fleet.db")
            self.assertRegex("\n".join(said.splitlines()[:FIRST_LINES]), planted)

    def test_a_file_in_memory_that_fills_a_container(self):
        harness.need_root()
        hierarchy, is_v2 = test_pod.memory_hierarchy()
        group = os.path.join(hierarchy, f"heapline-night-{os.getpid()}")
        limit = os.path.join(group, "memory.max" if is_v2 else "memory.limit_in_bytes")
        self.addCleanup(lambda: harness.wait_until(lambda: test_pod.Groups.removed(group), "the group to be empty"))
        if run(["sh", "-c", f"mkdir {group} && echo 96M > {limit}"]).status != 0:
            self.skipTest("no control group can be made here")
        with open(self.path("spool.py"), "w", encoding="utf-8") as file:
            file.write(SPOOL)
        pid = self.start(f"sh -c 'echo $$ > {group}/cgroup.procs; exec {need('python3')} spool.py' > log & PID=$!\n"
                         "until grep -q ready log; do kill -0 $PID; sleep 0.1; done")
        doctor = run([HEAPLINE, "doctor", "-p", str(pid)]).stdout
        self.assertRegex(doctor, rf"  control group: /\S+ has \d+\.\d MiB of 96\.0 MiB, its limit; 'heapline pod -p {pid}'")
        pod = run([HEAPLINE, "pod", "-p", str(pid)]).stdout
        self.assertRegex("\n".join(pod.splitlines()[:FIRST_LINES]), r"the largest part is files in memory.* memfd:spool of python3 ")

    def test_mappings_that_a_program_makes_for_itself(self):
        with open(self.path("slabs.c"), "w", encoding="utf-8") as file:
            file.write(SLABS)
        self.assertEqual(run([need("gcc"), "-g", "-O1", "-o", self.path("slabs"), self.path("slabs.c")]).status, 0)
        pid = self.start("./slabs > log & PID=$!\nuntil grep -q ready log; do kill -0 $PID; sleep 0.1; done")
        heap = run([HEAPLINE, "heap", "-p", str(pid)]).stdout
        self.assertRegex(heap, r"\n  not in malloc's heap, .*: other anonymous mappings, ")
        self.first_answer(pid, r"slab \(slabs\.c:8\)", heap)


if __name__ == "__main__":
    harness.main()
