# SPDX-License-Identifier: BSD-2-Clause
"""What it costs to push, to store and to ask what a thousand hosts allocate."""

import os
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from figure import MIB, Figure
from workloads import RunFailed

STACKS, HOSTS, HOURS = 5000, 1000, 24
CHANGED_EACH = 10  # of this many stacks, one changes in an hour
ROWS, ROWS_MAX_S = 1_000_000, 5
ASK_MAX_S, ROW_MAX_BYTES = 1, 8
PROCESSES, EVERY_S, WATCHED_S = 100, 15, 60
CORE_SHARE_MAX, RESIDENT_MAX = 0.01, 60 * MIB
ROUNDS = 3
HOUR_MS = 3_600_000


@dataclass
class FleetRun:
    rows_s: float = None
    top_s: float = None
    diff_s: float = None
    row_bytes: float = None
    push_share: float = None
    collect_share: float = None
    push_resident: int = None
    version: str = ""


# ---- SQLite ----

def write_windows(spool, rows):
    """What a push that met an outage would have left: windows of all stacks of one process each."""
    frames = "".join(f"function_{i}\\tserver\\t/src/server_{i}.c\\t{i}\\t\\t1\\n" for i in range(30))
    spool.mkdir()
    for window in range(rows // STACKS):
        lines = ["heapline window 1", "\t".join(map(str, (
            window, 1, 1_700_000_000_000 + window, 1_900_000_000_000, 0, 0 if window else STACKS, STACKS,
            "service", "1.0", f"host-{window}", "server", "1", "", "", "")))]
        if not window:
            lines += [f"{stack + 1}\tfunction_{stack}_0\\t\\t\\t0\\t\\t0\\n{frames}" for stack in range(STACKS)]
        lines += [f"{stack + 1}\t{stack * 48}\t{stack}\t{stack * 96}\t{stack * 2}" for stack in range(STACKS)]
        (spool / f"{window + 1:016x}.push").write_text("\n".join(lines) + "\n", encoding="ascii")


def measure_sqlite(machine, heapline, run):
    rows = STACKS if machine.small else ROWS
    spool, store = machine.scratch / "spool", machine.scratch / "fleet.db"
    write_windows(spool, rows)
    recording = machine.scratch / "true.hl"
    subprocess.run([heapline, "record", "-q", "-f", "-o", recording, "--", "true"], check=True)
    start = time.monotonic()
    subprocess.run([heapline, "push", "--to", store, "--spool", spool, "--spool-max", "10G", recording], check=True)
    run.rows_s = time.monotonic() - start
    if any(spool.glob("*.push")):
        raise RunFailed("the spool was not emptied")


# ---- ClickHouse ----

def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextmanager
def clickhouse(folder):
    """A server on loopback, with its settings as they come; the URL of its HTTP interface."""
    folder.mkdir()
    port = free_port()
    (folder / "users.xml").write_text(
        "<yandex><profiles><default/></profiles><quotas><default/></quotas><users><default><password/><networks>"
        "<ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></default></users></yandex>",
        encoding="ascii")
    (folder / "config.xml").write_text(
        f"<yandex><logger><level>error</level><log>{folder}/log</log><errorlog>{folder}/err</errorlog></logger>"
        f"<http_port>{port}</http_port><tcp_port>{free_port()}</tcp_port><listen_host>127.0.0.1</listen_host>"
        f"<path>{folder}/data/</path><tmp_path>{folder}/tmp/</tmp_path><mark_cache_size>1073741824</mark_cache_size>"
        f"<users_config>{folder}/users.xml</users_config><default_profile>default</default_profile>"
        "<default_database>default</default_database></yandex>", encoding="ascii")
    with subprocess.Popen(["clickhouse-server", f"--config-file={folder}/config.xml"], cwd=folder,
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(300):
                with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5):
                    break
                time.sleep(0.1)
            yield f"127.0.0.1:{port}"
        finally:
            server.kill()


def ask(place, sql, database="heapline"):
    with urllib.request.urlopen(f"http://{place}/?database={database}", sql.encode(), timeout=600) as answer:
        return answer.read().decode()


def fill(place, hosts):
    """
    A day of hosts with one process each. Numbers of processes and stacks are hashes, a process is first looked at at any millisecond and then at even
    seconds, and any stack may be
    the one of CHANGED_EACH that changed; the sizes of a stack's blocks are its own.
    """
    end_ms = int(time.time() * 1000)
    began_ms = end_ms // 2000 * 2000 - (HOURS + 1) * HOUR_MS
    session = "toInt64(intHash64({0} + 1000000) % 9223372036854775807)"
    ask(place, f"INSERT INTO sessions SELECT {session.format('number')}, "
               f"{began_ms}, {end_ms}, {end_ms + HOUR_MS}, 0, concat('service-', toString(number % 20)), "
               "concat('1.', toString(number % 3)), concat('host-', toString(number)), 'server', '1', '', '', '' "
               f"FROM system.numbers LIMIT {hosts}")
    frames = "".join(f"function_{i}\tserver\t/src/server_{i}.c\t{i}\t\t1\n" for i in range(20))
    ask(place, f"INSERT INTO stacks SELECT toInt64(intHash64(number) % 9223372036854775807), "
               f"concat('{frames}', 'leaf_', toString(number), '\tserver\t/src/leaf.c\t1\t\t1\n') "
               f"FROM system.numbers LIMIT {STACKS}")
    for hour in range(HOURS + 1):  # all stacks at first, then those that changed in an hour
        each = 1 if hour == 0 else CHANGED_EACH
        host, rank = f"intDiv(number, {STACKS // each})", f"number % {STACKS // each}"
        stack = f"({rank}) * {each} + intHash32(number * 25 + {hour}) % {each}"
        size = f"(16 + 8 * (intHash32({stack}) % 60))"
        late = f"intHash32({host}) % 2000" if hour == 0 else "0"
        objects, more = f"(intHash32(number * 31 + {hour}) % 40)", f"(1 + intHash32(number * 37 + {hour}) % 40)"
        ask(place, f"INSERT INTO changes (session, ms, stack, inuse_bytes, inuse_objects, alloc_bytes, alloc_objects) SELECT "
                   f"{session.format(host)}, toInt64({began_ms + hour * HOUR_MS} + intHash32({host} * 25 + {hour}) % {HOUR_MS // 2000} * 2000 + {late}), "
                   f"toInt64(intHash64({stack}) % 9223372036854775807), toInt64({size} * {objects}), toInt64({objects}), "
                   f"toInt64({size} * ({objects} + {more})), toInt64({objects} + {more}) "
                   f"FROM system.numbers LIMIT {hosts * STACKS // each}")
    ask(place, "OPTIMIZE TABLE deltas FINAL")
    ask(place, "OPTIMIZE TABLE totals FINAL")


def measure_clickhouse(machine, heapline, run):
    with clickhouse(machine.scratch / "clickhouse") as place:
        run.version = ask(place, "SELECT version()", "default").strip()
        url = f"clickhouse://{place}/heapline"
        subprocess.run([heapline, "fleet", "init", "--db", url], check=True)
        fill(place, 3 if machine.small else HOSTS)
        for question, options in (("top", []), ("diff", ["--since", "24h"])):
            times = []
            for _ in range(ROUNDS):
                start = time.monotonic()
                subprocess.run([heapline, "fleet", question, "--db", url, "--json", *options],
                               stdout=subprocess.DEVNULL, check=True)
                times.append(time.monotonic() - start)
            setattr(run, f"{question}_s", min(times))
        rows, size = ask(place, "SELECT sum(rows), sum(bytes_on_disk) FROM system.parts WHERE active AND "
                                "database = 'heapline' AND table = 'deltas'", "default").split()
        run.row_bytes = int(size) / int(rows)


# ---- a host ----

def cpu_of(pid):
    """Processor time of a process, its ended children not included."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_host(machine, heapline, run):
    """Processes that are recorded by samples' full opposite, every allocation, and one push for all of them."""
    count, watched_s = (2, 2) if machine.small else (PROCESSES, WATCHED_S)
    program = machine.build / "bench" / "many_stacks"
    environment = dict(os.environ, XDG_RUNTIME_DIR=str(machine.scratch))
    with ExitStack() as ends:
        recorders = []
        for number in range(count):
            recorder = subprocess.Popen(
                [heapline, "record", "-q", "-f", "--save-every", str(EVERY_S), "-o",
                 machine.scratch / f"host-{number}.hl", "--", program,
                 str(STACKS), str(watched_s + 600)], env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, start_new_session=True)
            ends.callback(recorder.wait)
            ends.callback(recorder.terminate)
            if recorder.stdout.readline() != b"ready\n":
                raise RunFailed("many_stacks ended early")
            recorders.append(recorder)
        push = subprocess.Popen([heapline, "push", "--all", "--to", machine.scratch / "host.db", "--spool",
                                 machine.scratch / "host-spool", "--every", str(1 if machine.small else EVERY_S)],
                                env=environment, stdin=subprocess.DEVNULL)
        ends.callback(push.wait)
        ends.callback(push.terminate)
        time.sleep(watched_s / 2)  # names are found, and kept
        before = [cpu_of(recorder.pid) for recorder in recorders], cpu_of(push.pid)
        start = time.monotonic()
        time.sleep(watched_s)
        seconds = time.monotonic() - start
        after = [cpu_of(recorder.pid) for recorder in recorders], cpu_of(push.pid)
        run.collect_share = (sum(after[0]) - sum(before[0])) / seconds
        run.push_share = (after[1] - before[1]) / seconds
        with open(f"/proc/{push.pid}/status", encoding="ascii") as status:
            run.push_resident = int(re.search(r"VmHWM:\s+(\d+)", status.read())[1]) << 10


def measure_fleet(machine, heapline):
    run = FleetRun()
    measure_sqlite(machine, heapline, run)
    measure_host(machine, heapline, run)
    if shutil.which("clickhouse-server"):
        measure_clickhouse(machine, heapline, run)
    return run


def fleet_figures(run):
    rows = Figure("`push`: 1 million rows into SQLite", f"{ROWS_MAX_S} s")
    host = Figure(f"collectors (`--save-every {EVERY_S}`) and `push`, {PROCESSES} processes of {STACKS:,} stacks, "
                  f"{STACKS // 20} of which allocate each second", "1 % of a core, 60 MiB")
    top = Figure("`fleet top`, ClickHouse, 1,000 hosts of 5,000 stacks, 24 h", f"{ASK_MAX_S} s")
    diff = Figure("`fleet diff`, the same", f"{ASK_MAX_S} s")
    size = Figure("ClickHouse, bytes for each stack and time that changed", f"{ROW_MAX_BYTES}")
    if run and run.rows_s:
        rows.measured, rows.met = f"{run.rows_s:.2f} s", run.rows_s <= ROWS_MAX_S
    if run and run.push_share is not None:
        host.measured = (f"push {run.push_share:.2%}, {run.push_resident / MIB:.0f} MiB; collectors "
                         f"{run.collect_share:.2%}")
        host.met = (run.push_share + run.collect_share <= CORE_SHARE_MAX and run.push_resident <= RESIDENT_MAX)
    if run and run.top_s:
        top.measured, top.met = f"{run.top_s:.2f} s, version {run.version}", run.top_s <= ASK_MAX_S
        diff.measured, diff.met = f"{run.diff_s:.2f} s", run.diff_s <= ASK_MAX_S
        size.measured, size.met = f"{run.row_bytes:.1f}", run.row_bytes <= ROW_MAX_BYTES
    return [rows, host, top, diff, size]
