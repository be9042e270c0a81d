# SPDX-License-Identifier: BSD-2-Clause
"""What is measured: each case runs one program under a tool and returns a Run."""

import os
import re
import resource
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tools import (CLOSED, HEAPTRACK, LOG_FAST, MEM_FAST, MEMPROF, NATIVE, NO_OBJECTS, OF_MALLOC, PLAIN,
                   SAMPLE, TRACEMALLOC)

BENCH = Path(__file__).resolve().parent
TREE = BENCH.parent

SECONDS = "s"
MILLISECONDS = "ms a run"
NS_PER_PAIR = "ns a pair"

# A tool that needs more than this many times the plain run is not waited for.
PATIENCE = 12
PATIENCE_FLOOR_S = 60


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


@dataclass(frozen=True)
class Run:
    """One run, in the unit of its case. Less is better.

    Processor time is that of the program and of all that the tool runs beside it, unless the case
    says otherwise; another load on the machine changes it less than the time that passes.
    """

    wall: float
    cpu: float

    def over(self, count):
        return Run(self.wall / count, self.cpu / count)


def children_cpu_s():
    """Processor time of all children that were waited for, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(tool, command, machine, limit_s=None, environment=None, stdin=subprocess.DEVNULL):
    """Runs a command under a tool; returns its standard output and the Run in seconds. Raises
    TooSlow or RunFailed.
    """
    words, added = tool.wrap(command, machine.scratch)
    cpu_s, started = children_cpu_s(), time.perf_counter()
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
    took = Run(time.perf_counter() - started, children_cpu_s() - cpu_s)
    if process.returncode:
        last = (stderr.strip().splitlines() or ["no message"])[-1]
        raise RunFailed(f"exit status {process.returncode}: {last}")
    return stdout, took


class Case:
    """One table: a program under every tool."""

    part = ""
    title = ""
    unit = SECONDS
    tools = (PLAIN, MEM_FAST, HEAPTRACK)  # names of those that are compared; nothing: all

    def missing(self):
        """Why this case cannot run here, or nothing."""
        return ""

    def prepare(self, machine):
        """Makes the inputs, once."""

    def measure(self, tool, machine):
        """One Run in ``unit``."""
        raise NotImplementedError


def ring_title(depth, threads, chain=6):
    inner = "" if chain == 6 else f", {chain} of them fresh"
    return f"alloc ring, {depth} frames{inner}, {threads} thread{'s' if threads > 1 else ''}"


class RingCase(Case):
    """bench/alloc_ring, which takes its own times: processor time is that of its threads alone."""

    part = "ring"
    unit = NS_PER_PAIR
    tools = (PLAIN, CLOSED, MEM_FAST, LOG_FAST, SAMPLE, HEAPTRACK)
    RUN_NS = 1.0e9
    PAIRS_MAX = 10_000_000

    def __init__(self, depth, threads, chain=6):
        self.shape = (depth, threads, chain)
        self.title = ring_title(*self.shape)
        if self.shape == (24, 1, 6):
            self.tools = ()
        self.pairs = {}  # by tool: as many as take about a second

    def measure(self, tool, machine):
        if tool.name not in self.pairs:
            estimate_ns = self.run_pairs(tool, machine, 2_000 if machine.small else 20_000).wall
            run_ns = self.RUN_NS / 100 if machine.small else self.RUN_NS
            self.pairs[tool.name] = min(self.PAIRS_MAX, int(run_ns / estimate_ns) + 1)
        return self.run_pairs(tool, machine, self.pairs[tool.name])

    def run_pairs(self, tool, machine, pairs):
        depth, threads, chain = self.shape
        ring = machine.build / "bench" / "alloc_ring"
        said, _ = run(tool, [ring, depth, threads, pairs, chain], machine, limit_s=120)
        found = re.search(r"ns_per_pair=([0-9.]+) cpu_ns_per_pair=([0-9.]+)", said)
        if not found:
            raise RunFailed("the ring printed no figure")
        return Run(float(found[1]), float(found[2]))


class TimedCase(Case):
    """A command that counts from its start to its end."""

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
            took = run(tool, self.command(machine), machine, limit_s, self.environment, stdin)[1]
        if tool.name == PLAIN:
            self.plain_s = took.wall
        return took


TRUE_TITLE = "`true`"
CHILDREN_TITLE = "200 children of a shell"


class ShortCase(Case):
    """A program that ends at once: what a tool takes to start and to save."""

    part = "short"
    unit = MILLISECONDS

    def __init__(self, title, runs, *words):
        self.title, self.runs, self.words = title, runs, words

    def measure(self, tool, machine):
        command = [str(word).format(build=machine.build) for word in self.words]
        runs = [run(tool, command, machine, limit_s=30)[1]
                for _ in range(1 if machine.small else self.runs)]
        return Run(sum(one.wall for one in runs), sum(one.cpu for one in runs)).over(
            len(runs) / 1000)


class PythonCase(TimedCase):
    """Native stacks alone, as other tools have, and those with the frames of Python."""

    part = "python"
    tools = (*RingCase.tools, NATIVE, TRACEMALLOC, *OF_MALLOC)
    title = "python3 on JSON, PYTHONMALLOC=malloc"
    program = "/usr/bin/python3"
    environment = {"PYTHONMALLOC": "malloc"}

    def command(self, machine):
        return [self.program, TREE / "demo" / "json_workload.py", 1 if machine.small else 20]


class ObjectsCase(PythonCase):
    """Every object, which no other tool for native code sees."""

    part = "objects"
    tools = (PLAIN, MEM_FAST, NATIVE, NO_OBJECTS, TRACEMALLOC)
    title = "python3 on JSON, every object"
    environment = {}

    def command(self, machine):
        return [*super().command(machine)[:-1], 1 if machine.small else 5]


class SkynetCase(TimedCase):
    """Messages between services of skynet, a checkout that has been built: tables that are packed, unpacked and
    copied, and all that they allocate in Lua and in C.
    """

    part = "skynet"
    title = "skynet, messages between 8 services"
    tools = (PLAIN, CLOSED, MEM_FAST, LOG_FAST)
    checkout = os.environ.get("SKYNET_DIR", "")

    def missing(self):
        return "" if self.checkout else "needs SKYNET_DIR, a checkout of skynet that has been built"

    def prepare(self, machine):
        shutil.copytree(BENCH / "programs" / "skynet", machine.scratch / "skynet")
        self.environment = {"SKYNET_DIR": os.path.abspath(self.checkout),
                            "SKYNET_CALLS": "100" if machine.small else "10000"}  # of each pair

    def command(self, machine):
        return [Path(self.checkout).resolve() / "skynet", machine.scratch / "skynet" / "config"]


class ScriptCase(TimedCase):
    """A script of bench/programs that makes many small objects."""

    part = "scripts"
    rounds = 30

    def __init__(self, program, script):
        self.program, self.script = program, script
        self.title = f"{program} {script}"

    def command(self, machine):
        return [self.program, BENCH / "programs" / self.script, 1 if machine.small else self.rounds]


class LinesCase(ScriptCase):
    """With functions and lines of the script, and with native stacks alone."""

    tools = (*RingCase.tools, NATIVE)

    def __init__(self, program, script):
        super().__init__(program, script)
        self.part = program


class PhpCase(LinesCase):
    """Beside php-memprof, which keeps the function of each live block, without lines and without native stacks."""

    tools = (PLAIN, CLOSED, MEM_FAST, NATIVE, MEMPROF)
    rounds = 120

    def __init__(self, script):
        super().__init__("php", script)


class RustCase(TimedCase):
    part = "rust"
    tools = ()
    title = "a Rust program, 3 million allocations"
    program = "rustc"

    def prepare(self, machine):
        subprocess.run(["rustc", "-O", "-g", "-o", machine.scratch / "words",
                        BENCH / "programs" / "words.rs"], check=True)

    def command(self, machine):
        return [machine.scratch / "words", 1 if machine.small else 30]


class CompilerCase(TimedCase):
    """A compiler alone, on preprocessed text, so that nothing but the compiler is recorded."""

    tools = ()

    def __init__(self, part="cc1plus", driver="g++", options=("-O1",), classes=12):
        self.part, self.program, self.options, self.classes = part, driver, options, classes
        self.title = f"{part} {' '.join(options)} on a large translation unit"

    def prepare(self, machine):
        source = machine.scratch / "unit.cc"
        source.write_text(translation_unit(1 if machine.small else self.classes))
        subprocess.run([self.program, "-std=c++17", "-E", "-o", self.preprocessed(machine), source],
                       check=True)

    def preprocessed(self, machine):
        return machine.scratch / f"{self.part}.ii"

    def command(self, machine):
        if self.part != "cc1plus":  # clang compiles in its own process
            return [self.program, "-fintegrated-cc1", "-c", "-std=c++17", *self.options,
                    self.preprocessed(machine), "-o", "/dev/null"]
        said = subprocess.run([self.program, "-print-prog-name=cc1plus"], check=True, text=True,
                              capture_output=True)
        return [said.stdout.strip(), "-quiet", "-fpreprocessed", "-std=c++17", *self.options,
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


RING_DEPTHS = (9, 24, 64)
RING_THREADS = (1, 8)
RING_CHAINS = (12, 20)


def timed_cases():
    rings = [RingCase(depth, threads) for depth in RING_DEPTHS for threads in RING_THREADS]
    rings += [RingCase(24, 1, chain) for chain in RING_CHAINS]
    return [*rings, PythonCase(), ObjectsCase(), SkynetCase(), CompilerCase(),
            CompilerCase("clang", "clang++", ("-O2",), classes=6), RustCase(),
            LinesCase("ruby", "words.rb"), *map(PhpCase, ("words.php", "template.php", "documents.php", "objects.php")),
            ScriptCase("node", "words.js"), SqliteCase(),
            ShortCase(TRUE_TITLE, 20, "/bin/true"),
            ShortCase(CHILDREN_TITLE, 2, "/bin/sh", "-c", "i=0; while [ $i -lt 200 ]; do /bin/true; i=$((i+1)); done"),
            ShortCase("10 ms of pairs", 20, "{build}/bench/alloc_ring", 24, 1, 150_000)]
