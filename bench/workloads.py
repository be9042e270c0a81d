# SPDX-License-Identifier: BSD-2-Clause
"""What is measured: each case runs one program under a tool and returns one number."""

import csv
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tools import PLAIN

TREE = Path(__file__).resolve().parent.parent

SECONDS = "s"
NS_PER_PAIR = "ns a pair"
PER_SECOND = "requests/s"

# A tool that needs more than this many times the plain run is not waited for.
PATIENCE = 12
PATIENCE_FLOOR_S = 30


class TooSlow(Exception):
    """The run was ended because it took too long; the text says how long."""


class RunFailed(Exception):
    """The run gave no number; the text says why."""


@dataclass
class Machine:
    """Where a case finds its programs and puts its files."""

    build: Path
    scratch: Path
    small: bool  # tiny inputs, to try the runner itself


def run(tool, command, machine, limit_s=None, environment=None, stdin=subprocess.DEVNULL):
    """Runs a command under a tool; returns its standard output. Raises TooSlow or RunFailed."""
    words, added = tool.wrap(command, machine.scratch)
    process = subprocess.Popen(words, env={**os.environ, **(environment or {}), **added},
                               cwd=machine.scratch, stdin=stdin, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        stdout, stderr = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        raise TooSlow(f"over {limit_s:.0f} s") from None
    finally:
        tool.clean(machine.scratch)
    if process.returncode:
        last = (stderr.strip().splitlines() or ["no message"])[-1]
        raise RunFailed(f"exit status {process.returncode}: {last}")
    return stdout


class Case:
    """One row of numbers. ``unit`` decides whether less or more is better."""

    part = ""
    title = ""
    unit = SECONDS

    def missing(self):
        """Why this case cannot run here, or nothing."""
        return ""

    def prepare(self, machine):
        """Makes the inputs, once."""

    def measure(self, tool, machine):
        """One run; a number in ``unit``."""
        raise NotImplementedError

    @property
    def more_is_better(self):
        return self.unit == PER_SECOND


def ring_title(depth, threads):
    return f"alloc ring, {depth} frames, {threads} thread{'s' if threads > 1 else ''}"


class RingCase(Case):
    """bench/alloc_ring at one depth and number of threads."""

    part = "ring"
    unit = NS_PER_PAIR
    RUN_NS = 1.0e9
    PAIRS_MAX = 10_000_000

    def __init__(self, depth, threads):
        self.depth, self.threads = depth, threads
        self.title = ring_title(depth, threads)
        self.pairs = {}  # by tool: as many as take about a second

    def measure(self, tool, machine):
        if tool.name not in self.pairs:
            estimate_ns = self.run_pairs(tool, machine, 2_000 if machine.small else 20_000)
            run_ns = self.RUN_NS / 100 if machine.small else self.RUN_NS
            self.pairs[tool.name] = min(self.PAIRS_MAX, int(run_ns / estimate_ns) + 1)
        return self.run_pairs(tool, machine, self.pairs[tool.name])

    def run_pairs(self, tool, machine, pairs):
        ring = machine.build / "bench" / "alloc_ring"
        said = run(tool, [ring, self.depth, self.threads, pairs], machine, limit_s=120)
        found = re.search(r"ns_per_pair=([0-9.]+)", said)
        if not found:
            raise RunFailed("the ring printed no figure")
        return float(found[1])


class TimedCase(Case):
    """A command whose wall clock time counts."""

    program = ""
    plain_s = None
    environment = {}

    def missing(self):
        return "" if shutil.which(self.program) else f"no {self.program}"

    def command(self, machine):
        raise NotImplementedError

    def stdin(self, machine):
        """The path of what the command reads."""
        return os.devnull

    def measure(self, tool, machine):
        limit_s = max(PATIENCE_FLOOR_S, PATIENCE * self.plain_s) if self.plain_s else None
        with open(self.stdin(machine), encoding="utf-8") as stdin:
            started = time.perf_counter()
            run(tool, self.command(machine), machine, limit_s, self.environment, stdin)
            elapsed_s = time.perf_counter() - started
        if tool.name == PLAIN:
            self.plain_s = elapsed_s
        return elapsed_s


class PythonCase(TimedCase):
    part = "python"
    title = "python3 on JSON, PYTHONMALLOC=malloc"
    program = "/usr/bin/python3"
    environment = {"PYTHONMALLOC": "malloc"}

    def command(self, machine):
        return [self.program, TREE / "demo" / "json_workload.py", 1 if machine.small else 20]


class CompilerCase(TimedCase):
    """cc1plus alone, on preprocessed text, so that nothing but the compiler is recorded."""

    part = "cc1plus"
    title = "cc1plus -O1 on a large translation unit"
    program = "g++"

    def prepare(self, machine):
        source = machine.scratch / "unit.cc"
        source.write_text(translation_unit(1 if machine.small else 12))
        subprocess.run(["g++", "-std=c++17", "-E", "-o", self.preprocessed(machine), source],
                       check=True)

    def preprocessed(self, machine):
        return machine.scratch / "unit.ii"

    def command(self, machine):
        said = subprocess.run(["g++", "-print-prog-name=cc1plus"], check=True, text=True,
                              capture_output=True)
        return [said.stdout.strip(), "-quiet", "-fpreprocessed", "-std=c++17", "-O1",
                self.preprocessed(machine), "-o", "/dev/null"]


def translation_unit(classes):
    """C++ that instantiates the standard library's templates with many types."""
    lines = [f"#include <{header}>" for header in
             ("algorithm", "functional", "map", "memory", "numeric", "regex", "set", "string",
              "unordered_map", "variant", "vector")]
    for number in range(classes):
        lines.append(f"""
struct item_{number} {{
	std::string name; int value[{number + 1}]; double weight;
	bool operator<(const item_{number} &o) const {{ return name < o.name; }}
}};
double work_{number}(const std::vector<item_{number}> &items) {{
	std::map<std::string, item_{number}> by_name;
	std::unordered_map<int, std::vector<item_{number}>> by_value;
	std::variant<int, std::string, item_{number}> last;
	for (const auto &i : items) {{
		by_name.emplace(i.name, i); by_value[i.value[0]].push_back(i); last = i;
	}}
	auto copy = items;
	std::sort(copy.begin(), copy.end());
	std::function<double(double, const item_{number} &)> add =
		[](double sum, const item_{number} &i) {{ return sum + i.weight; }};
	return std::accumulate(copy.begin(), copy.end(), double(by_name.size() + by_value.size()), add);
}}""")
    return "\n".join(lines) + "\n"


class SqliteCase(TimedCase):
    part = "sqlite"
    title = "sqlite3 in memory"
    program = "sqlite3"

    def prepare(self, machine):
        rows = 2000 if machine.small else 1_100_000
        (machine.scratch / "work.sql").write_text(f"""
create table t(id integer primary key, name text, value real, tag text);
insert into t with recursive c(x) as (select 1 union all select x + 1 from c where x < {rows})
  select x, 'name ' || (x * 7919 % {rows}), x * 1.5, 'tag' || (x % 997) from c;
create index by_name on t(name);
create index by_tag on t(tag, value);
select count(*), sum(length(g)) from (select group_concat(name) g from t group by tag);
select count(*) from t a join t b on a.name = 'name ' || b.id where b.id % 5 = 0;
update t set name = name || ' again' where id % 3 = 0;
delete from t where id % 4 = 0;
select count(*), sum(value) from t;
""")

    def stdin(self, machine):
        return machine.scratch / "work.sql"

    def command(self, machine):
        return ["sqlite3", ":memory:"]


class RedisCase(Case):
    """Throughput of redis-server under redis-benchmark, pipelined, on a unix socket."""

    part = "redis"
    title = "redis-server, set/get/lpush, 16 in a pipeline"
    unit = PER_SECOND
    START_LIMIT_S = 20
    requests = 1_000_000  # of each kind

    def missing(self):
        absent = [name for name in ("redis-server", "redis-benchmark", "redis-cli")
                  if not shutil.which(name)]
        return f"no {absent[0]}" if absent else ""

    def measure(self, tool, machine):
        socket = machine.scratch / "redis.sock"
        command, added = tool.wrap(["redis-server", "--port", "0", "--unixsocket", socket, "--save",
                                    "", "--appendonly", "no"], machine.scratch)
        with subprocess.Popen(command, env={**os.environ, **added}, cwd=machine.scratch,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              start_new_session=True) as server:
            try:
                self.wait_ready(socket, server)
                return self.throughput(socket, 1000 if machine.small else self.requests)
            finally:
                self.stop(socket, server)
                tool.clean(machine.scratch)
                socket.unlink(missing_ok=True)

    def wait_ready(self, socket, server):
        limit = time.monotonic() + self.START_LIMIT_S
        while "PONG" not in self.ask(socket, "ping"):
            if server.poll() is not None:
                raise RunFailed(f"redis-server ended with status {server.returncode}")
            if time.monotonic() > limit:
                raise TooSlow(f"no answer in {self.START_LIMIT_S} s")
            time.sleep(0.05)

    @staticmethod
    def ask(socket, *words):
        return subprocess.run(["redis-cli", "-s", socket, *words], capture_output=True, text=True,
                              check=False).stdout

    @staticmethod
    def throughput(socket, requests):
        """Requests per second over the three kinds of request together."""
        try:
            said = subprocess.run(
                ["redis-benchmark", "-s", socket, "-t", "set,get,lpush", "-n", str(requests), "-r",
                 "100000", "-d", "64", "-P", "16", "--csv"],
                capture_output=True, text=True, check=True, timeout=120).stdout
        except subprocess.TimeoutExpired:
            raise TooSlow("over 120 s") from None
        rates = [float(row["rps"]) for row in csv.DictReader(said.splitlines())]
        if len(rates) != 3:
            raise RunFailed("redis-benchmark printed no figures")
        return len(rates) / sum(1 / rate for rate in rates)

    def stop(self, socket, server):
        self.ask(socket, "shutdown", "nosave")
        try:
            server.wait(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, 9)


RING_DEPTHS = (9, 24, 64)
RING_THREADS = (1, 2)


def all_cases():
    rings = [RingCase(depth, threads) for depth in RING_DEPTHS for threads in RING_THREADS]
    return [*rings, PythonCase(), CompilerCase(), RedisCase(), SqliteCase()]
