# SPDX-License-Identifier: BSD-2-Clause
"""Servers and interpreters are joined while they work, and go on as if nobody had come."""

import contextlib
import glob
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading

import attaching
import harness
from harness import HEAPLINE, wait_until

TIMES = 3  # each is joined, in turn with a log and without
OTHER_USER = {"user": 65534, "group": 65534, "extra_groups": []}

PYTHON = """
import json, os, sys, threading
def work():
    while True:
        json.dumps([{"a": list(range(300))} for _ in range(50)])
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
os._exit(0)
"""

PROCESSES = """
import multiprocessing, sys
def work(n):
    sys.exit(sum(len("visitor " + str(i) * 200) for i in range(n)) % 97)
multiprocessing.set_start_method("fork")
print("ready", flush=True)
for line in sys.stdin:
    children = [multiprocessing.Process(target=work, args=(1000,)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    print(*[child.exitcode for child in children], flush=True)
"""
EXIT_STATUS = sum(len("visitor " + str(i) * 200) for i in range(1000)) % 97

NODE = """
let kept = [];
setInterval(() => {
    for (let i = 0; i < 100; i++) kept.push(Buffer.allocUnsafeSlow(20000));
    if (kept.length > 2000) kept = [];
    require("crypto").pbkdf2("a", "b", 1000, 64, "sha512", () => {});
    require("zlib").gzip(Buffer.alloc(100000), () => {});
}, 5);
process.stdin.on("end", () => process.exit(0));
process.stdin.resume();
console.log("ready");
"""

JAVA = """
import java.util.zip.Deflater;
public class Work {
    static void work() {
        while (true) {
            Deflater deflater = new Deflater();
            deflater.setInput(new byte[100000]);
            deflater.finish();
            deflater.deflate(new byte[1000]);
            deflater.end();
        }
    }
    public static void main(String[] arguments) throws Exception {
        Thread thread = new Thread(Work::work);
        thread.setDaemon(true);
        thread.start();
        System.out.println("ready");
        System.in.read();
    }
}
"""

GO = """
package main
/*
#include <stdlib.h>
#include <string.h>
static void *take(size_t n) { void *p = malloc(n); memset(p, 1, n); return p; }
static void give(void *p) { free(p); }
*/
import "C"
import ("fmt"; "os")
func work() {
    made := map[int][]byte{}
    for i := 0; ; i++ {
        C.give(C.take(100))
        made[i % 1000] = make([]byte, 500)
    }
}
func main() {
    for i := 0; i < 4; i++ { go work() }
    fmt.Println("ready")
    os.Stdin.Read(make([]byte, 1))
}
"""

NGINX = """
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/errors;
events {{}}
http {{
    access_log off; client_body_temp_path {folder}/a; proxy_temp_path {folder}/b;
    fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
    server {{ listen unix:{folder}/socket; root {folder}/root; gzip on; gzip_types *; }}
}}
"""

SQL = """do $$ declare x text; begin loop
select string_agg(md5(g::text), ',' order by random()) into x from generate_series(1, 3000) g;
end loop; end $$;
"""


def need_postgres():
    """The folder of its programs, which Debian keeps out of PATH."""
    found = glob.glob("/usr/lib/postgresql/*/bin/initdb")
    return os.path.dirname(found[0] if found else harness.need("initdb"))


class Targets(attaching.TestCase):
    def join(self, pid, at_least):
        for time in range(TIMES):
            self.attach(pid, "-d", "0.5", "--mode", ("mem-fast", "log-fast")[time % 2])
            info = harness.info(self.recording)
            self.assertGreater(info["total"]["alloc_objects"], at_least)
            lost = {what for what, number in info["lost"].items() if number}
            # Frames of code that is made as the program runs have no descriptions.
            self.assertLessEqual(lost, {"unmatched_frees", "incomplete_stacks"})
            with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
                self.assertNotIn("memfd:heapline", maps.read())

    @contextlib.contextmanager
    def server(self, command, **options):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              **options) as process:
            try:
                yield process
                self.assertIsNone(process.poll())
                process.terminate()
                self.assertEqual(process.wait(harness.TIMEOUT_S), 0)
            finally:
                process.kill()

    def check(self, command, at_least):
        """A program that says "ready", works, and exits at the end of its input."""
        with harness.Waiting(command) as process:
            self.join(process.pid, at_least)
            self.assertIsNone(process.poll())
        self.assertEqual(process.returncode, 0)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def test_python(self):
        self.check([sys.executable, "-c", PYTHON], 100)

    def assert_recorded(self, *pids):
        """Children of a process that was joined, which have been left with it."""
        rows = {row["pid"]: row for row in harness.processes(self.recording)}
        for pid in pids:
            self.assertGreater(rows[pid]["alloc_bytes"], 1000)
            with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
                self.assertNotIn("memfd:heapline", maps.read())

    def test_children_that_python_forks_later(self):
        def work():
            process.stdin.write("work\n")
            process.stdin.flush()
            self.assertEqual(process.stdout.readline().split(), [str(EXIT_STATUS)] * 3)
        with harness.Waiting([sys.executable, "-c", PROCESSES]) as process:
            with self.attached(process.pid) as attach:
                work()
                attach.send_signal(signal.SIGINT)
                attach.wait(attaching.ENDS_IN_S)
            info = harness.info(self.recording)
            self.assertEqual(len(info["rows"]), 4, info)
            self.assertFalse(info["lost"].get("unrecorded_children"), info)
            work()
        self.assertEqual(process.returncode, 0)

    def test_node(self):
        self.check([harness.need("node"), "-e", NODE], 100)

    def test_java(self):
        self.check([harness.need("java"), self.write("Work.java", JAVA)], 100)

    def test_go(self):
        env = dict(os.environ, GOCACHE=self.path("cache"), GOPATH=self.path("path"),
                   GO111MODULE="off", GOFLAGS="")
        built = harness.run([harness.need("go"), "build", "-p", "2", "-o", self.path("work"),
                             self.write("work.go", GO)], env=env)
        self.assertEqual(built.status, 0, built.stderr)
        self.check([self.path("work")], 100)

    def test_redis(self):
        server, benchmark, client = (harness.need(name) for name in
                                     ("redis-server", "redis-benchmark", "redis-cli"))
        path = self.path("socket")
        with self.server([server, "--port", "0", "--unixsocket", path, "--save", "", "--dir",
                          self.directory, "--io-threads", "2"]) as process:
            wait_until(lambda: harness.run([client, "-s", path, "ping"]).stdout == "PONG\n",
                       "the server")
            with self.load([benchmark, "-s", path, "-n", "1000000000", "-c", "4", "-r", "1000",
                            "-d", "300", "-t", "set,lpush"]):
                self.join(process.pid, 100)

    @contextlib.contextmanager
    def load(self, command, **options):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              **options) as process:
            try:
                yield
                self.assertIsNone(process.poll(), "nobody serves it any more")
            finally:
                process.kill()

    @contextlib.contextmanager
    def nginx(self):
        nginx = harness.need("nginx")
        os.mkdir(self.path("root"))
        os.chmod(self.directory, 0o755)
        self.write("root/index.html", "text\n" * 1000)
        conf = self.write("conf", NGINX.format(folder=self.directory))
        with self.server([nginx, "-p", self.directory, "-c", conf]) as process:
            wait_until(lambda: harness.children_of(process.pid), "a worker")
            served, end = [], threading.Event()

            def ask():
                while not end.is_set():
                    with socket.socket(socket.AF_UNIX) as stream:
                        stream.connect(self.path("socket"))
                        stream.sendall(b"GET / HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n")
                        served.append(stream.makefile("rb").read().startswith(b"HTTP/1.1 200"))
            thread = threading.Thread(target=ask)
            thread.start()
            try:
                yield process
            finally:
                end.set()
                thread.join()
            self.assertTrue(served and all(served))

    def test_nginx(self):
        with self.nginx() as process:
            self.join(harness.children_of(process.pid)[0], 100)

    def test_workers_that_nginx_forks_later(self):
        with self.nginx() as process:
            [before] = harness.children_of(process.pid)
            with self.attached(process.pid) as attach:
                process.send_signal(signal.SIGHUP)
                [worker] = wait_until(lambda: [child for child in harness.children_of(process.pid)
                                               if child != before], "another worker")
                wait_until(lambda: self.ctl(worker, "status", status=None).status == 0, "it")
                attach.send_signal(signal.SIGINT)
                attach.wait(attaching.ENDS_IN_S)
            self.assert_recorded(worker)

    @contextlib.contextmanager
    def postgres(self):
        """The server, and the beginning of commands for a session."""
        harness.need_other_user(65534)
        programs, psql = need_postgres(), harness.need("psql")
        data = self.path("data")
        shutil.chown(self.directory, OTHER_USER["user"])
        made = harness.run([f"{programs}/initdb", "-D", data, "-A", "trust", "-U", "tester", "-N"],
                           env={"LC_ALL": "C"}, cwd="/", **OTHER_USER)
        self.assertEqual(made.status, 0, made.stderr)
        session = [psql, "-h", self.directory, "-U", "tester", "-d", "postgres", "-At"]
        with self.server([f"{programs}/postgres", "-D", data, "-k", self.directory, "-c",
                          "listen_addresses="], cwd="/", **OTHER_USER) as process:
            wait_until(lambda: harness.run([*session, "-c", "select 1"]).stdout == "1\n", "it")
            yield process, session

    @contextlib.contextmanager
    def backend(self, session):
        """Its number, while it works."""
        with self.load([*session, "-c", SQL]):
            query = "select pid from pg_stat_activity where query like 'do%' and state='active'"
            pid = int(wait_until(lambda: harness.run([*session, "-c", query]).stdout, "a backend"))
            yield pid
        harness.run([*session, "-c", f"select pg_terminate_backend({pid})"])

    def test_postgres(self):
        with self.postgres() as (_, session), self.backend(session) as pid:
            self.join(pid, 100)

    def test_backends_that_postgres_forks_later(self):
        with self.postgres() as (process, session):
            with self.attached(process.pid) as attach:
                with self.backend(session) as pid:
                    wait_until(lambda: self.ctl(pid, "status", status=None).status == 0, "it")
                    attach.send_signal(signal.SIGINT)
                    attach.wait(attaching.ENDS_IN_S)
                    self.assert_recorded(pid)
            self.assertEqual(harness.run([*session, "-c", "select 1"]).stdout, "1\n")


if __name__ == "__main__":
    harness.main()
