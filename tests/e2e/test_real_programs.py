# SPDX-License-Identifier: BSD-2-Clause
"""Programs of the system: the same output and status as alone, and exact counts.

The exact count comes from `count.so`, a preloaded library that stands behind the recorder and counts
what passes through it to the allocator, for each process by itself.
"""

import glob
import os
import subprocess

import harness

PYTHON = "/usr/bin/python3"
PYTHON_JSON = """
rows = [{"number": n, "name": "row %d" % n, "list": list(range(n % 7))} for n in range(20000)]
text = json.dumps(rows)
for turn in range(3):
    rows = json.loads(text)
print(len(text), rows[-1])
"""
SQL = """
create table t(a integer primary key, b text, c real);
with recursive n(x) as (select 1 union all select x + 1 from n where x < 20000)
  insert into t select x, 'text number ' || x, x * 1.5 from n;
create index i on t(b);
select count(*), sum(c), max(b) from t;
select b from t where b like '%777%' order by c desc limit 3;
"""
CXX_SOURCE = """
#include <iostream>
#include <map>
#include <string>
#include <vector>
int main() {
  std::map<std::string, std::vector<int>> m;
  for (int i = 0; i < 10; i++) m[std::to_string(i)].push_back(i);
  std::cout << m.size() << std::endl;
}
"""


class Counted(harness.TestCase):
    def record_counted(self, command, mode, env=None, **options):
        """Records a command with count.so behind the recorder; {pid: (objects, bytes)} too."""
        counts = self.path("counts-" + mode)
        os.mkdir(counts)
        script = "LD_PRELOAD=\"$LD_PRELOAD $0\"; export LD_PRELOAD; exec \"$@\""
        result, recording = self.record(
            ["/bin/sh", "-c", script, harness.program("count.so"), *command], mode,
            env=dict(env or {}, HEAPLINE_TEST_COUNT=counts + "/count"), **options)
        by_pid = {}
        for name in glob.glob(counts + "/count.*"):
            with open(name, encoding="ascii") as file:
                objects, size = map(int, file.read().split())
            by_pid[int(name.rpartition(".")[2])] = (objects, size)
        return result, recording, by_pid

    def assert_counts(self, recording, by_pid):
        """
        The last program of each process has just what count.so counted in it, but for one block of
        one byte: the recorder asks once whether the program's malloc is the one that it sees.
        """
        last = {process["pid"]: process for process in harness.processes(recording)}
        self.assertTrue(by_pid)
        for pid, (objects, size) in by_pid.items():
            total = harness.info(recording, last[pid]["sequence"])["total"]
            with self.subTest(command=last[pid]["command"]):
                self.assertEqual((total["alloc_objects"] + 1, total["alloc_bytes"] + 1),
                                 (objects, size))

    def compare(self, command, env=None, **options):
        plain = harness.run(command, env=env, **options)
        for mode in harness.RECORDING_MODES:
            result, recording, by_pid = self.record_counted(command, mode, env, **options)
            self.assertEqual((result.status, result.stdout), (plain.status, plain.stdout),
                             result.stderr)
            self.assert_counts(recording, by_pid)
            self.assert_nothing_lost(recording)
        return recording


class RealPrograms(Counted):
    def test_python_with_json_is_counted_to_the_last_byte(self):
        harness.need(PYTHON)
        self.compare([PYTHON, "-c", PYTHON_JSON],
                     env={"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"})

    def test_sqlite_in_memory_is_counted_to_the_last_byte(self):
        self.compare([harness.need("sqlite3"), ":memory:", SQL])

    def test_each_process_of_a_compiler_driver_is_counted_to_the_last_byte(self):
        source, binary = self.path("program.cc"), self.path("program")
        with open(source, "w", encoding="ascii") as file:
            file.write(CXX_SOURCE)
        recording = self.compare([harness.need("g++"), "-O1", "-o", binary, source])
        self.assertEqual(harness.run([binary]).stdout, "10\n")
        # Some are called x86_64-linux-gnu-as.
        names = {os.path.basename(process["command"].split()[0]).split("-")[-1]
                 for process in harness.processes(recording)}
        self.assertLessEqual({"cc1plus", "as", "g++"}, names)

    def test_redis_with_jemalloc_serves_its_clients_and_has_in_use_what_it_says(self):
        server, benchmark, client = map(
            harness.need, ("redis-server", "redis-benchmark", "redis-cli"))
        socket = self.path("socket")
        for mode in harness.RECORDING_MODES:
            recording = self.path(mode + ".hl")
            command = harness.record_command(recording, [
                server, "--port", "0", "--unixsocket", socket, "--save", "", "--dir",
                self.directory, "--loglevel", "warning"], mode)
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  start_new_session=True) as process:
                try:
                    harness.wait_until(lambda: harness.run(
                        [client, "-s", socket, "ping"]).stdout == "PONG\n", "the server")
                    load = harness.run([benchmark, "-s", socket, "-n", "20000", "-c", "8", "-r",
                                        "5000", "-d", "300", "-t", "set,get,lpush,hset", "-q"])
                    self.assertEqual(load.status, 0, load.stderr)
                    memory = harness.run([client, "-s", socket, "info", "memory"]).stdout
                    harness.run([client, "-s", socket, "shutdown", "nosave"])
                    self.assertEqual(process.wait(harness.TIMEOUT_S), 0)
                finally:
                    process.kill()
            used = int(memory.split("used_memory:")[1].split()[0])
            total = harness.info(recording)["total"]
            self.assertGreater(total["alloc_objects"], 50000)
            # What redis calls used is usable size; its clients have left since it said so.
            self.assertAlmostEqual(total["inuse_bytes"] + total["slack_bytes"], used,
                                   delta=used / 10)
            self.assert_nothing_lost(recording)


if __name__ == "__main__":
    harness.main()
