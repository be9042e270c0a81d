#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Each live verb answers for servers and interpreters that people run, or refuses with a command that
works; what it says of memory equals what the kernel and the program itself say."""

import json
import os
import re
import subprocess

import harness
from harness import HEAPLINE, need, run, wait_until

VERBS = (["heap"], ["carriers"], ["pins"], ["allocations"], ["slabs"], ["leaks"], ["holders"],
         ["services"], ["doctor"])
FILL = ("for i=1,20000 do redis.call('set', 'key:'..i, string.rep('x', 60 + i % 800)) end "
        "for i=1,20000 do if i % 20 ~= 0 then redis.call('del', 'key:'..i) end end")
INTERPRETERS = {
    "php": ["-r", "$a = range(1, 99999); echo \"ready\\n\"; fgets(STDIN);"],
    "ruby": ["-e", "$stdout.sync = true; a = (1..99999).map(&:to_s); puts 'ready'; gets"],
    "node": ["-e", "const a = Array.from({length: 99999}, (_, i) => 'x' + i);"
                   "console.log('ready'); process.stdin.resume()"],
}
JAVA = """public class Held {
    public static void main(String[] words) throws Exception {
        byte[][] held = new byte[50][100000];
        System.out.println("ready");
        System.in.read();
        System.out.println(held.length);
    }
}
"""
# Of one backend of postgres: what it keeps, and what its own contexts say of that
PLANS = """DO $$ BEGIN FOR i IN 1..5000 LOOP EXECUTE format('PREPARE p%s AS SELECT %s', i, i); END LOOP; END $$;
SELECT pg_backend_pid(), sum(total_bytes) FROM pg_backend_memory_contexts;
"""
NOBODY = 65534
# Between two readings of a process that runs on
DRIFT_BYTES = 4 << 20


def rss_of(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        return int(re.search(r"^VmRSS:\s+(\d+)", status.read(), re.M)[1]) << 10


class RealServers(harness.TestCase):
    def expect_answers(self, pid):
        """What each verb says as JSON; None: it refuses."""
        said = {}
        for verb in VERBS:
            if run([HEAPLINE, "help", *verb]).status != 0:
                continue
            result = run([HEAPLINE, *verb, "--json", "-p", str(pid)])
            self.assertIn(result.status, (0, 1), (verb, result.stderr))
            said[verb[0]] = json.loads(result.stdout) if result.status == 0 else None
            if result.status == 1:
                self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
                commands = re.findall(r"'heapline ([a-z]+)", result.stderr)
                self.assertTrue(commands, (verb, result.stderr))
                if f"'heapline heap -p {pid}" in result.stderr:
                    self.assertIsNotNone(said["heap"], result.stderr)
        heap = said["heap"]
        self.assertIsNotNone(heap)
        self.assertEqual(sum(row["bytes"] for row in heap["resident"]), heap["total"]["rss_bytes"])
        self.assertLess(abs(heap["total"]["rss_bytes"] - rss_of(pid)), DRIFT_BYTES)
        return said

    def test_interpreters(self):
        for name, arguments in INTERPRETERS.items():
            with self.subTest(name):
                with harness.Waiting([need(name), *arguments]) as process:
                    said = self.expect_answers(process.pid)
                    self.assertGreater(said["leaks"]["total"]["live_bytes"], 0)
                    self.assertEqual(said["leaks"]["total"]["live_bytes"],
                                     said["holders"]["total"]["live_bytes"])

    def test_a_jvm(self):
        path = self.path("Held.java")
        with open(path, "w", encoding="utf-8") as source:
            source.write(JAVA)
        if not os.path.exists(os.path.join(os.path.dirname(os.path.realpath(need("java"))), "javac")):
            self.skipTest("java cannot compile here")
        with harness.Waiting([need("java"), "-Xmx64m", path]) as process:
            said = self.expect_answers(process.pid)
            parts = {row["part"]: row["bytes"] for row in said["heap"]["resident"]}
            java = next(value for part, value in parts.items() if part.startswith("Java objects"))
            self.assertGreater(java, 50 * 100000)
            self.assertLess(java, (64 << 20) + DRIFT_BYTES)

    def redis(self, *before):
        socket = self.path("socket")
        with subprocess.Popen([*before, need("redis-server"), "--port", "0", "--unixsocket", socket,
                               "--dir", self.directory, "--save", ""], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as process:
            try:
                wait_until(lambda: harness.listens(socket), "redis to listen")
                pid = harness.children_of(process.pid)[0] if before else process.pid
                client = [need("redis-cli"), "-s", socket]
                self.assertEqual(run([*client, "eval", FILL, "0"]).status, 0)
                said = self.expect_answers(pid)
                info = run([*client, "info", "memory"]).stdout
                return said, int(re.search(r"^used_memory:(\d+)", info, re.M)[1])
            finally:
                process.terminate()

    def test_redis(self):
        said, used = self.redis()
        parts = {row["part"]: row["bytes"] for row in said["heap"]["resident"]}
        if "jemalloc" in said["heap"]["allocator"]:
            self.assertGreater(parts["live blocks"] + parts["thread caches and fastbins"], used * 0.9)
            self.assertEqual(parts["other allocators"], 0)

    def test_redis_with_a_recorder(self):
        said, used = self.redis(*harness.record_command(self.path("r.hl"), []))
        lives = [said["allocations"]["total"]["inuse_bytes"]]
        lives += [said[verb]["total"]["live_bytes"] for verb in ("leaks", "holders")]
        for live in lives:  # libraries have blocks, too; redis counts usable bytes
            self.assertGreater(live, used * 0.7)
            self.assertLess(live, used * 1.3 + (1 << 20))

    def test_mariadb(self):
        server, data, socket = need("mariadbd"), self.path("data"), self.path("socket")
        os.mkdir(data)
        with subprocess.Popen([server, "--no-defaults", f"--datadir={data}", f"--socket={socket}",
                               "--skip-networking", "--skip-grant-tables", "--user=root",
                               "--innodb-buffer-pool-size=8M"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as process:
            try:
                wait_until(lambda: harness.listens(socket) or process.poll() is not None,
                           "mariadbd to listen")
                if process.poll() is not None:
                    self.skipTest("mariadbd needs its system tables here")
                said = self.expect_answers(process.pid)
                self.assertGreater(said["leaks"]["total"]["live_bytes"], 1 << 20)
            finally:
                process.kill()

    def test_postgres(self):
        tools = run(["sh", "-c", "dirname $(ls -d /usr/lib/postgresql/*/bin/postgres | tail -1)"]).stdout.strip()
        client = need("psql")
        if not tools or os.geteuid() != 0:
            self.skipTest("there is no postgres, or no user for it")
        os.chmod(self.directory, 0o777)
        data, user = self.path("data"), {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        made = run([f"{tools}/initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync"], **user)
        self.assertEqual(made.status, 0, made.stderr)
        with subprocess.Popen([f"{tools}/postgres", "-D", data, "-k", self.directory, "-F", "-c", "listen_addresses="],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **user) as server:
            try:
                ask = [client, "-h", self.directory, "-U", "postgres", "-At", "postgres"]
                wait_until(lambda: run([*ask, "-c", "select 1"]).status == 0, "postgres to listen")
                with subprocess.Popen(ask, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as session:
                    session.stdin.write(PLANS)
                    session.stdin.flush()
                    self.assertEqual(session.stdout.readline(), "DO\n")
                    pid, contexts = map(int, session.stdout.readline().split("|"))
                    said = self.expect_answers(pid)
                    session.stdin.close()
            finally:
                server.terminate()
        for verb in ("leaks", "holders"):
            live = said[verb]["total"]["live_bytes"]
            self.assertGreater(live, contexts * 0.9, verb)
            self.assertLess(live, contexts * 1.1 + (1 << 20), verb)


if __name__ == "__main__":
    harness.main()
