#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Servers, interpreters and allocators of this system as subjects of every verb that reads a process: a table of what was right,
what was refused with a sentence, and what was WRONG.

usage: versions.py BUILD [SUBJECT...]

Each subject keeps 500 blocks of 20,000 bytes, and as many again whenever it is asked to. It is looked at plain, under
'heapline record' and under 'heapline attach'. What is not installed is left out with the reason. `make versions SUITE=trixie`
does this in a system of that release, with its packages; the exit status is 1 when anything was wrong.
"""

import contextlib
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../scripts"))
from redis_path import add_redis_server  # pylint: disable=wrong-import-position

PLANTED = 500 * 20000
DRIFT_BYTES = 1 << 20  # between two readings of a process with threads of its own
WAIT_S = 120
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
LOOKS = ("heap", "carriers", "pins", "leaks", "holders", "allocations")
COLUMNS = (*LOOKS, "doctor", "record", "top", "lines", "attach", "attached")

PYTHON = """import sys
kept = []
def plant():
    for number in range(500):
        kept.append(bytearray(20000))
plant()
print("ready", flush=True)
for line in sys.stdin:
    plant()
    print("ready", flush=True)
"""
RUBY = """$stdout.sync = true
$kept = []
def plant
  500.times { |number| $kept << ("x" * 20000) }
end
plant
puts "ready"
while gets
  plant
  puts "ready"
end
"""
PHP = """<?php
$kept = [];
function plant(&$kept) {
    for ($number = 0; $number < 500; $number++)
        $kept[] = str_repeat("x", 20000);
}
plant($kept);
echo "ready\n";
while (fgets(STDIN)) {
    plant($kept);
    echo "ready\n";
}
"""
LUA = """local kept = {}
local function plant()
  for number = 1, 500 do
    kept[#kept + 1] = string.rep(string.char(65 + #kept % 26), 20000) .. #kept
  end
end
plant()
print("ready") io.stdout:flush()
for line in io.lines() do
  plant()
  print("ready") io.stdout:flush()
end
"""
NODE = """const kept = [];
function plant() {
  for (let number = 0; number < 500; number++)
    kept.push(new ArrayBuffer(20000));
  console.log("ready");
}
plant();
process.stdin.on("data", plant);
"""
JAVA = """import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
public class Plant {
    static final ArrayList<ByteBuffer> kept = new ArrayList<>();
    static void plant() {
        for (int number = 0; number < 500; number++)
            kept.add(ByteBuffer.allocateDirect(20000));
        System.out.println("ready");
    }
    public static void main(String[] words) throws Exception {
        plant();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        while (input.readLine() != null)
            plant();
    }
}
"""
ERLANG = ("Plant = fun() -> R = [binary:copy(<<0>>, 20000) || _ <- lists:seq(1, 500)], io:format(\"ready~n\"), R end, "
          "Loop = fun F(Kept) -> case io:get_line(\"\") of eof -> halt(); _ -> F([Plant() | Kept]) end end, Loop([Plant()]).")
FILL = "local n = tonumber(redis.call('incr', 'n')) for i = 1, 500 do redis.call('set', n .. ':' .. i, string.rep('x', 20000)) end"


class Wrong(Exception):
    """An answer that is not what the subject knows."""


class Refused(Exception):
    """A refusal with a sentence."""


def until(condition, what):
    deadline = time.monotonic() + WAIT_S
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise Wrong(f"waited in vain for {what}")
        time.sleep(0.05)
    return value


class Script:
    """A program that reads lines, and answers each with "ready" once it has planted."""

    def __init__(self, name, command, text="", suffix="", line=None, in_malloc=True, is_recorded=True, environment=None):
        self.name, self.command, self.text, self.suffix, self.line = name, command, text, suffix, line
        self.in_malloc, self.is_recorded, self.environment = in_malloc, is_recorded, environment or {}

    def missing(self):
        library = self.environment.get("LD_PRELOAD")
        return f"'{self.command[0]}' is not installed" if not shutil.which(self.command[0]) else \
            f"'{library}' is not installed" if library and not os.path.exists(library) else None

    @contextlib.contextmanager
    def started(self, directory, before=()):
        self.planted = 0
        path = os.path.join(directory, f"Plant{self.suffix}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text)
        command = [*before, *self.command, *([path] if self.suffix else [])]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              cwd=directory, env=dict(os.environ, **self.environment)) as process:
            try:
                self.process = process
                self.hear()
                self.pid = child_of(process.pid) if before else process.pid
                yield self
                process.stdin.close()
                if process.wait(WAIT_S):
                    raise Wrong(f"the program ended with status {process.returncode}")
            finally:
                process.kill()

    def hear(self):
        if not any(line == "ready\n" for line in self.process.stdout):
            raise Wrong("the program ended")
        self.planted += PLANTED
        until_idle(self.process.pid)

    def plant(self):
        self.process.stdin.write("more\n")
        self.process.stdin.flush()
        self.hear()


class Server:
    """A server, and a client that has it plant."""

    line, session, in_malloc, is_recorded = None, None, True, True

    def __init__(self, name, program, function):
        self.name, self.program, self.function = name, program, function

    def missing(self):
        return None if shutil.which(self.program) else f"'{self.program}' is not installed"

    @contextlib.contextmanager
    def started(self, directory, before=()):
        self.planted, self.socket = 0, os.path.join(directory, "socket")
        prepared = self.prepare(directory)
        with subprocess.Popen([*before, *prepared], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              cwd=directory) as process:
            try:
                until(lambda: self.answers(process), f"'{self.program}' to answer")
                self.pid = self.work_pid(child_of(process.pid) if before else process.pid)
                self.plant()
                until_idle(self.pid)
                yield self
                if self.session:
                    self.session.communicate(timeout=WAIT_S)
                os.kill(child_of(process.pid) if before else process.pid, signal.SIGTERM)
                process.wait(WAIT_S)
            finally:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                process.kill()

    def answers(self, process):
        if process.poll() is not None:
            raise Wrong(f"the server ended with status {process.returncode}")
        return self.ask(self.ping).returncode == 0

    def work_pid(self, pid):
        return pid


class Redis(Server):
    ping = "ping"

    def prepare(self, directory):
        return [self.program, "--port", "0", "--unixsocket", self.socket, "--dir", directory, "--save", ""]

    def ask(self, *words):
        return subprocess.run([self.program.replace("-server", "-cli"), "-s", self.socket, *words], capture_output=True, text=True, check=False)

    def plant(self):
        self.ask("eval", FILL, "0")
        self.planted += PLANTED


class MariaDB(Server):
    ping = "select 1"

    def prepare(self, directory):
        os.mkdir(os.path.join(directory, "data"))
        self.prepares = 0
        return [self.program, "--no-defaults", f"--datadir={directory}/data", f"--socket={self.socket}", "--skip-networking",
                "--skip-grant-tables", "--user=root", "--innodb-buffer-pool-size=8M", "--innodb-log-buffer-size=2M"]

    def ask(self, text):
        return subprocess.run(["mariadb", "-S", self.socket, "-e", text], capture_output=True, text=True, check=False)

    def used(self):
        return int(re.search(r"Memory_used\s+(\d+)", self.ask("show global status like 'Memory_used'").stdout)[1])

    def work_pid(self, pid):
        self.session = subprocess.Popen(["mariadb", "-n", "-S", self.socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return pid

    def plant(self):
        before = self.used()
        for _ in range(800):
            self.prepares += 1
            self.session.stdin.write(f"prepare p{self.prepares} from 'select {self.prepares}';\n")
        self.session.stdin.write("select 'ready';\n")
        self.session.stdin.flush()
        while self.session.stdout.readline() != "ready\n":
            pass
        self.planted += self.used() - before


class Postgres(Server):
    ping = "select 1"

    def missing(self):
        self.tools = max(glob.glob("/usr/lib/postgresql/*/bin"), default="")
        return None if self.tools and os.geteuid() == 0 else "postgres is not installed, or this is not root"

    def prepare(self, directory):
        os.chmod(directory, 0o777)
        self.prepares, self.directory = 0, directory
        other = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
        subprocess.run([*other, f"{self.tools}/initdb", "-D", f"{directory}/data", "-A", "trust", "-U", "postgres", "--no-sync"],
                       check=True, stdout=subprocess.DEVNULL)
        return [*other, f"{self.tools}/postgres", "-D", f"{directory}/data", "-k", directory, "-F", "-c", "listen_addresses="]

    def client(self, *words):
        return ["psql", "-h", self.directory, "-U", "postgres", "-qAt", *words]

    def ask(self, text):
        return subprocess.run(self.client("-c", text), capture_output=True, text=True, check=False)

    def work_pid(self, pid):
        self.session = subprocess.Popen(self.client(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.say("select pg_backend_pid();")
        return int(self.session.stdout.readline())

    def say(self, text):
        self.session.stdin.write(text + "\n")
        self.session.stdin.flush()

    def used(self):
        self.say("select sum(total_bytes) from pg_backend_memory_contexts;")
        return int(self.session.stdout.readline())

    def plant(self):
        before, first = self.used(), self.prepares
        self.prepares += 2500
        self.say(f"do $$ begin for i in {first + 1}..{self.prepares} loop execute format('prepare p%s as select %s', i, i); end loop; end $$;")
        self.planted += self.used() - before


def until_idle(pid):
    """Until the process, which may have threads of its own, takes no time of the processors any more: compilers, collections."""
    def ticks():
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return sum(map(int, stat.read().rpartition(")")[2].split()[11:13]))
    before = None
    for _ in range(40):
        before, last = ticks(), before
        if before == last:
            break
        time.sleep(0.25)


def child_of(pid):
    def first():
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return file.read().split()
    return int(until(first, "the recorded program")[0])


SUBJECTS = [
    *(Script(name, [name], PYTHON, ".py", r"Plant.py:5 +plant") for name in ("python3", "python3.14")),
    *(Script(f"python, {allocator}", ["/usr/bin/python3"], PYTHON, ".py", r"Plant.py:5 +plant",
             environment={"LD_PRELOAD": next(iter(sorted(glob.glob(f"{LIBRARIES}/{library}"))), library)})
      for allocator, library in (("jemalloc", "libjemalloc.so.2"), ("mimalloc", "libmimalloc.so.[23]"), ("tcmalloc", "libtcmalloc_minimal.so.4"))),
    Script("ruby", ["ruby"], RUBY, ".rb", r"Plant.rb:4 +.*plant"),
    Script("php", ["php"], PHP, ".php", r"Plant.php:5 +plant|php +str_repeat", in_malloc=False),
    Script("lua5.4", ["lua5.4"], LUA, ".lua", r"Plant.lua:4"),
    Script("node", ["node", "--perf-basic-prof"], NODE, ".js"),
    *(Script(f"java {os.path.basename(path).split('-')[1]}", [f"{path}/bin/java", "-Xmx64m"], JAVA, ".java")
      for path in sorted(glob.glob("/usr/lib/jvm/java-[0-9][0-9]-openjdk-*"))),
    Script("erlang", ["erl", "-noshell", "-eval", ERLANG], in_malloc=False, is_recorded=False),
    Redis("redis", "redis-server", "lua|sds|[sS]et|eval"), Redis("valkey", "valkey-server", "lua|sds|[sS]et|eval"),
    MariaDB("mariadb", "mariadbd", "Prepared_statement"), Postgres("postgres", "postgres", "Prepare|CachedPlan|copyObject"),
]


class Asking:
    """heapline, asked about one subject; ``cells`` is its row of the table."""

    def __init__(self, heapline, subject, directory):
        self.heapline, self.subject, self.directory, self.cells = heapline, subject, directory, {}

    def run(self, *words):
        return subprocess.run([self.heapline, *map(str, words)], capture_output=True, text=True, check=False, cwd=self.directory)

    def ask(self, verb, *words):
        result = self.run(verb, "--json", *words)
        if result.returncode == 1 and len(result.stderr.splitlines()) == 1 and not result.stdout:
            raise Refused(result.stderr.strip())
        if result.returncode:
            raise Wrong(f"status {result.returncode}: {result.stderr.strip()}")
        return json.loads(result.stdout)

    @contextlib.contextmanager
    def cell(self, column):
        try:
            yield
            self.cells.setdefault(column, ("right", ""))
        except Refused as refused:
            self.cells[column] = ("refused", str(refused))
        except (Wrong, subprocess.SubprocessError, OSError, KeyError, TypeError, ValueError) as wrong:
            self.cells[column] = ("WRONG", f"{type(wrong).__name__}: {wrong}")

    def expect_held(self, what, held, least=None):
        """What is held is the planted bytes and what the program has besides, unless they are not in malloc's heap."""
        planted = self.subject.planted if least is None else least
        # Contexts of postgres have some more than their blocks.
        if self.subject.in_malloc and not planted * 0.85 <= held:
            raise Wrong(f"{what}: {held:,} bytes, of which {planted:,} were planted")

    def live(self):
        """What it is now: a Java VM gives memory back some time later."""
        return live_of(self.ask("heap", "-p", self.subject.pid))

    def look(self, column, verb, live):
        """The verb about the process; what is live equals ``live``, what `heap` says, if that is known."""
        with self.cell(column):
            before = resident(self.subject.pid)
            report = self.ask(verb, "-p", self.subject.pid)
            if verb == "heap":
                rss = report["total"]["rss_bytes"]
                if sum(row["bytes"] for row in report["resident"]) != rss or abs(rss - before) > 4 * DRIFT_BYTES:
                    raise Wrong(f"RSS is {before:,}, the report's {rss:,}, its rows' {sum(row['bytes'] for row in report['resident']):,}")
                if report["lost"]["abandoned"] or not report["total"].get("inuse_bytes"):
                    raise Refused(" ".join(report["notes"]))
                live = live_of(report)
                self.expect_held("live", live)
                return live
            found = report["total"].get("live_bytes", report["total"].get("inuse_bytes"))
            def differs(live):
                return abs(found - live) > max(DRIFT_BYTES, live // 50)
            if live and found is not None and verb != "pins" and differs(live) and differs(self.live()):
                raise Wrong(f"live: {found:,} bytes, {live:,} by 'heap'")
            lost = report["total"].get("lost_bytes", 0)
            if lost > self.subject.planted / 20 and verb == "leaks":
                raise Wrong(f"lost: {lost:,} bytes")
        return None

    def look_plain(self):
        live = None
        for verb in LOOKS:
            said = self.look(verb, verb, live)
            live = live or said
        with self.cell("doctor"):
            result = self.run("doctor", "-p", self.subject.pid)
            if result.returncode or not re.search(r"^attach +yes", result.stdout, re.M):
                raise Wrong(result.stderr.strip() or "it says that attach does not work")

    def expect_recording(self, path, planted, column):
        info = self.ask("info", path)
        lost = {key: value for key, value in info["lost"].items() if value and key not in ("unmatched_frees", "inherited_frees", "incomplete_stacks")}
        if lost:
            raise Wrong(f"lost: {lost}")
        rows = self.ask("top", "--value", "alloc", "-n", "0", path)["rows"]
        held = sum(row.get("flat_bytes", 0) for row in rows)
        if self.subject.is_recorded and held < planted * 0.95:
            raise Wrong(f"recorded: {held:,} bytes of {planted:,}")
        function = getattr(self.subject, "function", None)
        if function and not any(re.search(function, row["name"]) and row.get("cum_bytes", 0) > planted / 2 for row in rows):
            raise Wrong(f"no function like '{function}' has {planted:,} bytes; first: {[row['name'] for row in rows[:5]]}")
        if self.subject.line:
            with self.cell(column):
                said = self.run("lines", "--value", "alloc", path).stdout
                if not re.search(self.subject.line, "\n".join(said.splitlines()[:15])):
                    raise Wrong(f"no line like '{self.subject.line}' in the first 15 of 'lines'")

    def record(self):
        path = os.path.join(self.directory, "record.hl")
        self.cells.setdefault("lines", ("-", ""))
        with self.cell("record"):
            with self.subject.started(self.directory, [self.heapline, "record", "-q", "-f", "-o", path, "--"]):
                self.subject.plant()
                for verb in ("leaks", "holders", "allocations"):
                    report = self.ask(verb, "-p", self.subject.pid)
                    self.expect_held(f"{verb} of the recorded process", report["total"].get("live_bytes", report["total"].get("inuse_bytes")))
        self.cells.pop("lines") if self.subject.line else None
        with self.cell("top"):
            self.expect_recording(path, self.subject.planted, "lines")

    def attach(self):
        path = os.path.join(self.directory, "attach.hl")
        with self.cell("attach"):
            command = [self.heapline, "attach", "-p", str(self.subject.pid), "-f", "-o", path]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as collector:
                until(lambda: collector.poll() is not None or self.run("ctl", "-p", self.subject.pid, "status").returncode == 0, "attach")
                before = self.subject.planted
                self.subject.plant()
                until_idle(self.subject.pid)
                if collector.poll() is None:
                    for verb in LOOKS:
                        self.look(f"attached {verb}", verb, None)
                    collector.send_signal(signal.SIGINT)
                said = collector.communicate(timeout=WAIT_S)[1].strip()
                if collector.returncode:
                    raise Refused(said) if collector.returncode == 1 and len(said.splitlines()) == 1 else Wrong(said)
            self.expect_recording(path, self.subject.planted - before, "attached lines")
            self.subject.plant()  # it goes on as before
        bad = [f"{name}: {self.cells.pop(name)[1]}" for name in list(self.cells) if name.startswith("attached ") and self.cells[name][0] == "WRONG"]
        with self.cell("attached"):
            if bad:
                raise Wrong("; ".join(bad))

    def ask_all(self):
        with self.cell("attach"), self.subject.started(self.directory):
            self.look_plain()
            self.attach()
        shutil.rmtree(os.path.join(self.directory, "data"), ignore_errors=True)
        self.record()
        return self.cells


def live_of(report):
    return report["total"]["inuse_bytes"] + report["total"]["mmapped_bytes"]


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        return int(re.search(r"^VmRSS:\s+(\d+)", status.read(), re.M)[1]) << 10


def main(build, *names):
    add_redis_server(tempfile.gettempdir())
    width, wrong = max(len(subject.name) for subject in SUBJECTS) + 1, 0
    print(" " * width + " ".join(f"{column:11}" for column in COLUMNS))
    for subject in SUBJECTS:
        if names and subject.name not in names:
            continue
        if missing := subject.missing():
            print(f"{subject.name:{width}}left out: {missing}")
            continue
        with tempfile.TemporaryDirectory(prefix="versions-") as directory:
            cells = Asking(os.path.abspath(f"{build}/heapline"), subject, directory).ask_all()
        print(f"{subject.name:{width}}" + " ".join(f"{cells.get(column, ('-', ''))[0]:11}" for column in COLUMNS), flush=True)
        for column, (verdict, reason) in cells.items():
            if reason:
                print(f"    {column}: {verdict}: {reason}", flush=True)
        wrong += sum(verdict == "WRONG" for verdict, _ in cells.values())
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
