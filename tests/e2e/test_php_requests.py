#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""php-fpm: which of what is in use was allocated in requests that have ended, and in how many."""

import collections
import glob
import json
import os
import socket
import struct
import subprocess

import attaching
import harness
from harness import HEAPLINE, wait_until

# Blocks of malloc() that scripts ask for by FFI. What is kept outlives its request; what a request finds in the file of its
# worker, it frees, so one such block lives at a time; the memory manager frees the rest.
SCRIPT = """<?php
class Work
{
	static function keep($c, $count)
	{
		for ($i = 0; $i < $count; $i++)
			$c->malloc(1000);
	}
	static function replace($c, $old)
	{
		$c->free($old);
		return $c->malloc(5000);
	}
	static $managed = [];
}
$c = FFI::cdef('size_t malloc(size_t); void free(size_t);');
Work::keep($c, (int)($_GET['keep'] ?? 0));
$file = __DIR__ . '/block-' . getmypid();
file_put_contents($file, Work::replace($c, is_file($file) ? (int)file_get_contents($file) : 0));
Work::$managed[] = str_repeat('x', 50000);
if (isset($_GET['wait'])) {
	touch(__DIR__ . '/waits');
	while (!is_file(__DIR__ . '/go'))
		usleep(10000);
}
echo getmypid();
"""
KEEP_LINE, REPLACE_LINE = 7, 12

CONFIGURATION = """[global]
error_log = {folder}/fpm.log
[www]
listen = {folder}/socket
pm = static
pm.max_children = {workers}
user = {user}
php_admin_value[ffi.enable] = 1
"""


def servers():
    """Of all releases on this machine; further ones by HEAPLINE_FPMS, command lines with ':' between them."""
    commands = [[path] for path in sorted(glob.glob("/usr/sbin/php-fpm[0-9]*"))]
    return commands + [command.split() for command in os.environ.get("HEAPLINE_FPMS", "").split(":") if command]


def record(kind, content=b""):
    """Of FastCGI."""
    return struct.pack(">BBHHBB", 1, kind, 1, len(content), 0, 0) + content


class Server(attaching.TestCase):
    def setUp(self):
        super().setUp()
        if not servers():
            self.skipTest("'php-fpm' is not installed")
        self.servers = []
        self.script = self.path("work.php")
        with open(self.script, "w", encoding="utf-8") as file:
            file.write(SCRIPT)

    def serve(self, command, workers, *prefix):
        for name in glob.glob(self.path("block-*")) + glob.glob(self.path("socket")):
            os.unlink(name)
        with open(self.path("fpm.conf"), "w", encoding="utf-8") as file:
            file.write(CONFIGURATION.format(folder=self.directory, workers=workers, user="root" if os.geteuid() == 0 else "nobody"))
        command = [*command, "-R", "-n", "-F", "-d", "extension=ffi", "-y", self.path("fpm.conf")]
        modules = subprocess.run([*command[:-4], "-d", "extension=ffi", "-m"], capture_output=True, text=True, check=False)
        if "FFI" not in modules.stdout:
            self.skipTest("it has no FFI, by which the script calls malloc()")
        for server in self.servers:
            server.terminate()
            server.wait()
        server = subprocess.Popen([*prefix, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  start_new_session=True)
        self.servers = [server]
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        wait_until(lambda: server.poll() is not None or harness.listens(self.path("socket")), "php-fpm")
        return server

    def send(self, query=""):
        text = b""
        for key, value in (("REQUEST_METHOD", "GET"), ("SCRIPT_FILENAME", self.script), ("QUERY_STRING", query)):
            text += struct.pack(">BI", len(key), len(value) | 1 << 31) + key.encode() + value.encode()
        connection = socket.socket(socket.AF_UNIX)
        self.addCleanup(connection.close)
        connection.connect(self.path("socket"))
        connection.sendall(record(1, struct.pack(">HB5x", 1, 0)) + record(4, text) + record(4) + record(5))
        return connection

    def receive(self, connection):
        """The process that has answered."""
        with connection:
            answer, out = b"".join(iter(lambda: connection.recv(65536), b"")), b""
        while answer:
            _, kind, _, length, padding, _ = struct.unpack(">BBHHBB", answer[:8])
            out += answer[8:8 + length] if kind == 6 else b""
            answer = answer[8 + length + padding:]
        return int(out.split(b"\r\n\r\n", 1)[1])

    def ask(self, query="", times=1):
        return collections.Counter(self.receive(self.send(query)) for _ in range(times))

    def survived(self, count, focus="Work::", recording=None):
        """{line: (blocks, bytes)} of what the script asked for itself, and the number of requests."""
        result = harness.run([HEAPLINE, "top", "--json", "-n", "0", "--stack", "script", "--survived", str(count), "--focus", focus,
                              recording or self.recording])
        if "requests of PHP its blocks have outlived" in result.stderr:
            return {}, 0
        self.assertEqual(result.status, 0, result.stderr)
        report = json.loads(result.stdout)
        return ({row["line"]: (row["cum_objects"], row["cum_bytes"]) for row in report["rows"] if row["name"].startswith("Work::")},
                report["total"].get("requests", 0))


    def assert_survived(self, count, focus, lines, requests):
        """A server answers before it ends a request; and the recording is up to a second behind."""
        wait_until(lambda: self.survived(count, focus) == (lines, requests), f"{lines} of {requests} requests", 60)


class Recorded(Server):
    def begin(self, command, workers, mode="mem-fast"):
        return self.serve(command, workers, HEAPLINE, "record", "-f", "--mode", mode, "-o", self.recording, "--")

    def check(self, command, mode):
        self.begin(command, 2, mode)
        served = self.ask("keep=10", 20) + self.ask("keep=0", 4)
        self.assert_survived(1, "Work::keep", {KEEP_LINE: (200, 200000)}, 20)
        self.assert_survived(1, "Work::replace", {REPLACE_LINE: (len(served), 5000 * len(served))}, len(served))
        # those that kept something, and the last one of each worker
        self.assertIn(self.survived(1)[1], range(20, 20 + len(served) + 1))
        older, requests = self.survived(2)
        self.assertNotIn(REPLACE_LINE, older)
        self.assertEqual(older[KEEP_LINE][0], 10 * requests)

    def test_blocks_belong_to_the_requests_that_allocated_them(self):
        for command in servers():
            for mode in "mem-fast", "log-record":
                with self.subTest(command, mode=mode):
                    self.check(command, mode)

    def test_a_request_that_runs_has_not_ended(self):
        self.begin(servers()[0], 2)
        self.ask("keep=3")
        waiting = self.send("keep=7&wait")
        wait_until(lambda: os.path.exists(self.path("waits")), "the request")
        self.assert_survived(1, "Work::keep", {KEEP_LINE: (3, 3000)}, 1)
        open(self.path("go"), "w", encoding="utf-8").close()
        self.receive(waiting)
        self.assert_survived(1, "Work::keep", {KEEP_LINE: (10, 10000)}, 2)

    def test_a_recording_that_has_ended_says_why_it_does_not_know(self):
        server = self.begin(servers()[0], 1)
        self.ask("keep=3")
        server.terminate()
        server.wait()
        result = harness.run([HEAPLINE, "top", "--survived", "1", self.recording])
        self.assertEqual(result.status, 1)
        self.assertIn("requests of PHP its blocks have outlived", result.stderr)


class Attached(Server):
    def check(self, command):
        self.serve(command, 1)
        pid, = self.ask("keep=100", 3)
        with self.attached(pid) as attach:
            self.assertEqual(self.ask("keep=10", 8), {pid: 8})
            self.assert_survived(1, "Work::keep", {KEEP_LINE: (80, 80000)}, 8)
            self.ctl(pid, "snapshot", self.path("snapshot.hl"))
            self.ask("keep=0", 2)
            self.assert_survived(3, "Work::keep", {KEEP_LINE: (80, 80000)}, 8)
            attach.send_signal(2)
        for recording, age in (self.path("snapshot.hl"), 1), (self.recording, 3):
            # what was kept before is not known, and the first of its blocks that a request sees is not the recorder's
            self.assertEqual(self.survived(1, "Work::keep", recording=recording),
                             ({KEEP_LINE: (80, 80000)}, 8))
            self.assertEqual(self.survived(age + 2, "Work::keep", recording=recording)[1], 6)
            self.assertEqual(self.survived(1, "Work::replace", recording=recording),
                             ({REPLACE_LINE: (1, 5000)}, 1))

    def test_the_requests_since_it_joined_are_known(self):
        for command in servers():
            with self.subTest(command):
                self.check(command)


if __name__ == "__main__":
    harness.main()
