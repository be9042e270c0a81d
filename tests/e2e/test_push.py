#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`heapline push` and `heapline fleet`: what is sent and stored equals what views show, whatever becomes of the backend."""

import base64
import contextlib
import email
import glob
import http.server
import io
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import threading
import time
import urllib.parse
import urllib.request

import harness
from harness import HEAPLINE
from otlp_file import OtlpRequest
from pprof_file import PprofFile
from test_tutorials import Session, blocks_of, free_port

STEP_BYTES, STEP_OBJECTS = 1009 * 127, 1009  # what steps.c allocates for each byte it reads
FLEET = os.path.join(harness.SOURCES, "../../docs/fleet.md")
OFTEN = ("--every", "0.1")


# Instead of a loop without an end, until all has been pushed.
UNTIL_PUSHED = """\
for attempt in $(seq 300); do
	sleep 1
	heapline fleet growth --db fleet.db --by version --since 1h 2>&1 | grep -A1 '^1[.]1  *1 .*MiB' | grep -q '^1[.]0  *1 ' &&
		heapline fleet diff --db fleet.db --version 1.1 --against 1.0 2>&1 | grep -q render && break
done
"""


# What 'fleet init --keep 30' has a ClickHouse of today make, by its reference documentation: codecs stand after the type of a stored column and
# never at an ALIAS, which is not stored (CREATE TABLE, column compression codecs); a table's TTL is an expression of a Date (ALTER TABLE ... MODIFY TTL);
# LowCardinality takes strings. Version 26.7 ran each of them.
TODAYS_STATEMENTS = """\
SELECT version()
CREATE DATABASE IF NOT EXISTS d
CREATE TABLE IF NOT EXISTS sessions (session Int64, began_ms Int64, last_ms Int64, until_ms Int64, ended_ms Int64, service LowCardinality(String), \
version LowCardinality(String), host LowCardinality(String), command LowCardinality(String), pid LowCardinality(String), build_id LowCardinality(String), \
container LowCardinality(String), pod LowCardinality(String)) ENGINE = ReplacingMergeTree(last_ms) ORDER BY session
CREATE TABLE IF NOT EXISTS stacks (stack Int64, frames String CODEC(ZSTD(1))) ENGINE = ReplacingMergeTree ORDER BY stack
CREATE TABLE IF NOT EXISTS deltas (stack Int64 CODEC(ZSTD(1)), day Date CODEC(ZSTD(1)), session Int64 CODEC(ZSTD(1)), tick UInt16 CODEC(ZSTD(1)), \
late_ms Int16 CODEC(ZSTD(1)), inuse_low Int8 CODEC(ZSTD(1)), inuse_high Int64 CODEC(ZSTD(1)), alloc_low Int8 CODEC(ZSTD(1)), alloc_high Int64 CODEC(ZSTD(1)), \
size Int64 CODEC(ZSTD(1)), inuse_rest Int64 CODEC(ZSTD(1)), alloc_rest Int64 CODEC(ZSTD(1)), \
ms Int64 ALIAS toInt64(toUInt16(day)) * 86400000 + tick * 2000 + late_ms, inuse_bytes Int64 ALIAS (inuse_low + 256 * inuse_high) * size + inuse_rest, \
inuse_objects Int64 ALIAS inuse_low + 256 * inuse_high, alloc_bytes Int64 ALIAS (alloc_low + 256 * alloc_high) * size + alloc_rest, \
alloc_objects Int64 ALIAS alloc_low + 256 * alloc_high) ENGINE = MergeTree PARTITION BY day ORDER BY (stack, session, tick)
CREATE TABLE IF NOT EXISTS totals (session Int64, stack Int64, inuse_bytes Int64, inuse_objects Int64, alloc_bytes Int64, alloc_objects Int64) \
ENGINE = SummingMergeTree ORDER BY (session, stack)
CREATE TABLE IF NOT EXISTS changes (session Int64, ms Int64, stack Int64, inuse_bytes Int64, inuse_objects Int64, alloc_bytes Int64, alloc_objects Int64) \
ENGINE = Null
CREATE MATERIALIZED VIEW IF NOT EXISTS deltas_of_changes TO deltas AS SELECT stack, toDate(toUInt16(intDiv(ms, 86400000))) AS day, session, \
toUInt16(intDiv(ms % 86400000, 2000)) AS tick, toInt16(ms % 2000) AS late_ms, toInt8(inuse_objects) AS inuse_low, \
intDiv(inuse_objects - inuse_low, 256) AS inuse_high, toInt8(alloc_objects) AS alloc_low, intDiv(alloc_objects - alloc_low, 256) AS alloc_high, \
if(alloc_objects = 0, intDivOrZero(inuse_bytes, inuse_objects), intDivOrZero(alloc_bytes, alloc_objects)) AS size, \
inuse_bytes - inuse_objects * size AS inuse_rest, alloc_bytes - alloc_objects * size AS alloc_rest FROM changes
CREATE MATERIALIZED VIEW IF NOT EXISTS totals_of_changes TO totals AS SELECT session, stack, inuse_bytes, inuse_objects, alloc_bytes, alloc_objects FROM changes
CREATE TABLE IF NOT EXISTS balances (host LowCardinality(String), cgroup LowCardinality(String), container LowCardinality(String), pod LowCardinality(String), ms Int64 CODEC(ZSTD(1)), usage_bytes Nullable(Int64) CODEC(ZSTD(1)), limit_bytes Nullable(Int64) CODEC(ZSTD(1)), working_set_bytes Nullable(Int64) CODEC(ZSTD(1)), reclaimable_bytes Nullable(Int64) CODEC(ZSTD(1)), unreclaimable_bytes Nullable(Int64) CODEC(ZSTD(1)), anonymous_bytes Nullable(Int64) CODEC(ZSTD(1)), shared_bytes Nullable(Int64) CODEC(ZSTD(1)), cache_bytes Nullable(Int64) CODEC(ZSTD(1)), kernel_bytes Nullable(Int64) CODEC(ZSTD(1)), unknown_bytes Nullable(Int64) CODEC(ZSTD(1)), swap_bytes Nullable(Int64) CODEC(ZSTD(1)), recorder_bytes Nullable(Int64) CODEC(ZSTD(1)), oom_kills Nullable(Int64) CODEC(ZSTD(1)), day Date MATERIALIZED toDate(toUInt16(intDiv(ms, 86400000)))) ENGINE = ReplacingMergeTree PARTITION BY day ORDER BY (host, cgroup, ms)
ALTER TABLE deltas MODIFY TTL day + INTERVAL 30 DAY
ALTER TABLE balances MODIFY TTL day + INTERVAL 30 DAY
"""


class Backend(http.server.ThreadingHTTPServer):
    """Takes requests, or does what `mood` says: fail (status 500), refuse (400), cut, answer after taking (lose), hang."""

    daemon_threads = True

    def __init__(self, port=0, bodies=()):
        """``bodies``: what came to another one before."""
        self.bodies, self.paths, self.mood, self.woken = list(bodies), [], "", threading.Event()
        self.status, self.answer, self.refused = 0, b"said by the backend\n", 0  # status: instead of what the mood says
        super().__init__(("127.0.0.1", port), _Handler)
        self.refuses = None  # a part of paths
        self.logins = []
        self.version = b"26.7.2.1\n"  # what ClickHouse says when it is asked; b"": another server
        self.loses = 0  # the number of the request whose answer is lost; connections are kept then
        self.port = self.server_address[1]
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def __exit__(self, *_):
        self.woken.set()
        self.shutdown()
        self.thread.join()
        self.server_close()

    def handle_error(self, *_):
        pass


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        server, body = self.server, self.rfile.read(int(self.headers["Content-Length"]))
        server.logins.append(self.headers["Authorization"])
        if server.mood == "cut":
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if server.mood == "hang":
            server.woken.wait(harness.TIMEOUT_S)
            return
        status = server.status or {"fail": 500, "refuse": 400}.get(server.mood, 200)
        if server.refuses and server.refuses in self.path:
            status = 400
        server.refused += status >= 300
        if status == 200 or server.status:
            server.paths.append(self.path)
            server.bodies.append((self.headers["Content-Type"], body))
        if server.mood == "lose" or (server.loses and len(server.bodies) == server.loses):
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if server.loses:
            self.protocol_version, self.close_connection = "HTTP/1.1", False
        self.send_response(status)
        answer = server.version if body == b"SELECT version()" and server.version else server.answer
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def parts_of(content_type, body):
    """{name: bytes} of a form, read by Python's own parser of such messages."""
    message = email.message_from_bytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body)
    return {re.search('name="([^"]+)"', part["Content-Disposition"])[1]: part.get_payload(decode=True)
            for part in message.get_payload()}


@contextlib.contextmanager
def clickhouse(folder):
    """A server of Debian's own on loopback; its URL."""
    server = harness.need("clickhouse-server")
    port = free_port()
    users = ("<yandex><profiles><default/></profiles><quotas><default/></quotas><users><default><password/>"
             "<networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></default>"
             "</users></yandex>")
    with open(f"{folder}/users.xml", "w", encoding="ascii") as file:
        file.write(users)
    with open(f"{folder}/config.xml", "w", encoding="ascii") as file:
        file.write(f"<yandex><logger><level>error</level><log>{folder}/log</log><errorlog>{folder}/err</errorlog>"
                   f"</logger><http_port>{port}</http_port><tcp_port>{free_port()}</tcp_port>"
                   f"<listen_host>127.0.0.1</listen_host><path>{folder}/data/</path><tmp_path>{folder}/tmp/</tmp_path>"
                   f"<mark_cache_size>67108864</mark_cache_size><users_config>{folder}/users.xml</users_config>"
                   "<default_profile>default</default_profile><default_database>default</default_database></yandex>")

    def answers():
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return b"Ok." in connection.makefile("rb").read()
        return None

    with subprocess.Popen([server, f"--config-file={folder}/config.xml"], cwd=folder, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            harness.wait_until(lambda: process.poll() is not None or answers(), "ClickHouse")
            if process.poll() is not None:
                raise AssertionError("clickhouse-server does not run")
            yield f"clickhouse://127.0.0.1:{port}/heapline_test"
        finally:
            process.kill()


SUMMED = "inuse_bytes", "inuse_objects", "alloc_bytes", "alloc_objects"


class PushCase(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.store, self.spool = self.path("fleet.db"), self.path("spool")
        self.environment = {"XDG_STATE_HOME": self.directory, "XDG_RUNTIME_DIR": self.directory}

    def push(self, to, *arguments, **options):
        return harness.run([HEAPLINE, "push", "--to", to, "--spool", self.spool, *arguments],
                           env=self.environment, **options)

    def push_well(self, to, *arguments):
        result = self.push(to, *arguments)
        self.assertEqual(result.status, 0, result.stderr)
        self.assertEqual(result.stderr, "")

    def fleet(self, question, *options, db=None):
        result = harness.run([HEAPLINE, "fleet", question, "--db", db or self.store, *options, "--json"])
        self.assertEqual(result.status, 0, result.stderr)
        return json.loads(result.stdout)

    def ask(self, sql):
        with contextlib.closing(sqlite3.connect(self.store)) as store:
            return store.execute(sql).fetchall()

    def record_program(self):
        """A recording of scripts and native code, with thousands of stacks."""
        _, recording = self.record_well([harness.need("python3"), "-c", "import json, re; x = [str(i) for i in range(9999)]"])
        return recording


def by_place(report):
    """{(function, module, file): figures}, whatever folder modules and files were in."""
    rows = {}
    for row in report["rows"]:
        key = row["name"], os.path.basename(row["module"]), os.path.basename(row["file"])
        sums = rows.setdefault(key, dict.fromkeys(harness.FIGURES, 0))
        for figure in harness.FIGURES:
            sums[figure] += row[figure]
    return rows


class Recordings(PushCase):
    def assert_equals_views(self, recording, db):
        for value in ("inuse", "alloc"):
            with self.subTest(db=db, value=value):
                stored = self.fleet("top", "--value", value, db=db)
                shown = harness.report("top", recording, "--value", value)
                self.assertEqual(by_place(stored), by_place(shown))
                self.assertGreater(len(shown["rows"]), 20)
                self.assertEqual({key: stored["total"][key] for key in ("inuse_bytes", "alloc_objects")},
                                 {key: shown["total"][key] for key in ("inuse_bytes", "alloc_objects")})

    def test_what_is_stored_equals_the_recording(self):
        recording = self.record_program()
        self.push_well(self.store, recording)
        self.assert_equals_views(recording, self.store)
        self.push_well(self.store, recording)
        self.assert_equals_views(recording, self.store)  # again changes nothing

    def test_a_frame_is_stored_once_and_old_stores_are_converted(self):
        _, recording = self.record_well([harness.program("lifecycle"), "leaf"])
        self.push_well(self.store, recording)
        stacks = self.ask("SELECT stack, frames FROM stacks ORDER BY stack")
        frames = [line for _, text in stacks for line in text.splitlines()]
        self.assertEqual(self.ask("SELECT COUNT(*) FROM frames"), [(len(set(frames)),)])
        (listed,), = self.ask("SELECT SUM(LENGTH(frames)) FROM stack_frames")
        self.assertLess(listed, sum(len(text) for _, text in stacks) / 8)
        shown = self.fleet("top")["rows"]
        # As stores were before: all names in a table.
        with contextlib.closing(sqlite3.connect(self.store)) as store:
            store.executescript("DROP VIEW stacks; DROP TABLE frames; DROP TABLE stack_frames;"
                                "CREATE TABLE stacks (stack INTEGER PRIMARY KEY, frames TEXT NOT NULL);"
                                "CREATE TABLE all_totals AS SELECT session, stack, SUM(inuse_bytes) AS inuse_bytes,"
                                " SUM(inuse_objects) AS inuse_objects, SUM(alloc_bytes) AS alloc_bytes,"
                                " SUM(alloc_objects) AS alloc_objects FROM totals GROUP BY session, stack;"
                                "DROP VIEW totals; DROP TABLE summed; DROP TABLE sums;"
                                "CREATE TABLE totals (session INTEGER NOT NULL, stack INTEGER NOT NULL, inuse_bytes INTEGER NOT NULL,"
                                " inuse_objects INTEGER NOT NULL, alloc_bytes INTEGER NOT NULL, alloc_objects INTEGER NOT NULL,"
                                " PRIMARY KEY (session, stack)) WITHOUT ROWID;"
                                "INSERT INTO totals SELECT * FROM all_totals; DROP TABLE all_totals")
            store.executemany("INSERT INTO stacks VALUES (?, ?)", stacks)
            store.commit()
        self.assertEqual(self.fleet("top")["rows"], shown)
        self.push_well(self.store, recording)
        self.assertEqual(self.ask("SELECT type FROM sqlite_master WHERE name IN ('stacks', 'totals')"), [("view",), ("view",)])
        self.assertEqual(self.ask("SELECT stack, frames FROM stacks ORDER BY stack"), stacks)
        self.assertEqual(self.ask("SELECT name FROM sqlite_master WHERE name = 'old_stacks'"), [])
        self.assertEqual(self.fleet("top")["rows"], shown)

    def test_a_path_with_a_blank_names_its_own_service(self):
        os.makedirs(self.path("My App"))
        for name in "one", "two":
            shutil.copy(harness.program("lifecycle"), self.path(f"My App/{name}"))
            _, recording = self.record_well([self.path(f"My App/{name}"), "leaf"], name=f"{name}.hl")
            self.push_well(self.store, recording)
        self.assertEqual(sorted(self.ask("SELECT service FROM sessions")), [("one",), ("two",)])

    def test_clickhouse_answers_as_sqlite_does(self):
        recording = self.record_program()
        with clickhouse(self.directory) as url:
            self.push_well(url, "--service", "it's \\ a \"service\"", recording)
            self.push_well(self.store, "--service", "it's \\ a \"service\"", recording)
            self.assert_equals_views(recording, url)
            self.push_well(url, recording)
            self.assert_equals_views(recording, url)
            for question in (["growth", "--by", "version"], ["hosts", "--focus", "PyObject"],
                             ["growth", "--service", "it's \\ a \"service\""], ["diff"], ["top", "--by", "module"]):
                with self.subTest(question=question):
                    rows = self.fleet(*question)["rows"]
                    self.assertEqual(self.fleet(*question, db=url)["rows"], rows)
                    self.assertTrue(rows)
            self.push_many_stacks(url, recording)
            found, = self.fleet("hosts", "--service", "many", "--focus", "function_", db=url)["rows"]
            self.assertEqual(found["inuse_bytes"], 40000 * 48)
            result = harness.run([HEAPLINE, "fleet", "init", "--db", url, "--keep", "3"])
            self.assertIn(result.status, (0, 1))  # old servers delete nothing, and that is said
            self.assertIn("--keep" if result.status else "", result.stderr)

    def test_the_log_of_a_store_that_is_read_meanwhile_stays_small(self):
        _, recording = self.record_well([harness.program("lifecycle"), "leaf"])
        self.push_well(self.store, recording)
        with contextlib.closing(sqlite3.connect(self.store, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT COUNT(*) FROM sessions").fetchone()
            for session in range(1, 4):
                self.push_many_stacks(self.store, recording, session)
            self.assertGreater(os.path.getsize(f"{self.store}-wal"), 8 << 20)  # nobody else empties it then
            reader.execute("COMMIT")
            self.push_many_stacks(self.store, recording, 4)
            self.assertLess(os.path.getsize(f"{self.store}-wal"), 8 << 20)
        self.assertEqual(self.ask("SELECT SUM(alloc_objects) FROM totals WHERE session < 5"), [(4 * 40000,)])

    def test_sums_are_written_rarely_and_are_right_at_any_time(self):
        _, recording = self.record_well([harness.program("lifecycle"), "leaf"])
        now_ms = int(time.time() * 1000)
        waiting, base_ms = [], 0
        for window in range(9):
            ms = now_ms - 20000 + window * 1000
            self.push_window(self.store, recording, (7, now_ms - 30000, base_ms, ms, now_ms + 600_000, 0, 0 if window else 600,
                                                     600, "many", "", "host-many", "", "1", "", "", ""))
            base_ms = ms
            total = self.ask("SELECT COUNT(DISTINCT stack), SUM(inuse_bytes), SUM(alloc_objects) FROM totals WHERE session = 7")
            self.assertEqual(total, [(600, (window + 1) * 600 * 48, (window + 1) * 600)])
            waiting += [row for row, in self.ask("SELECT waiting FROM sums WHERE session = 7")]
        # summed up once there are more than 1,024, and then more than twice as many as stacks
        self.assertEqual(waiting, [600, 0, 600, 1200, 0, 600, 1200, 0, 600])
        self.assertEqual(self.ask("SELECT SUM(alloc_objects) FROM summed WHERE session = 7"), [(8 * 600,)])
        (kept,), = self.ask("SELECT COUNT(*) FROM deltas WHERE session = 7")
        self.assertEqual(kept, 9 * 600)

    def push_many_stacks(self, url, recording, session=1):
        """A window of as many stacks that a list of them is longer than servers take unless they are told."""
        now_ms = int(time.time() * 1000)
        self.push_window(url, recording, (session, now_ms - 1000, now_ms, now_ms + 600_000, 0, 40000, 40000,
                                          "many", "", "host-many", "", "1", "", "", ""))

    def push_window(self, url, recording, head):
        """A window as the spool has it, with as many stacks and rows as its head says before the labels."""
        lines = [f"heapline window {len(head) - 14}", "\t".join(map(str, head))]
        lines += [f"{stack + 10 ** 18}\tfunction_{stack}\\t\\t\\t0\\t\\t0\\n" for stack in range(head[-10])]
        lines += [f"{stack + 10 ** 18}\t48\t1\t48\t1" for stack in range(head[-9])]
        os.makedirs(self.spool, exist_ok=True)
        with open(f"{self.spool}/{1:016x}.push", "w", encoding="ascii") as file:
            file.write("\n".join(lines) + "\n")
        self.push_well(url, recording)

    def test_todays_clickhouse_gets_codecs_a_ttl_and_dictionaries(self):
        with Backend() as backend:
            backend.answer = b"26.7.2.1\n"
            result = harness.run([HEAPLINE, "fleet", "init", "--db", f"clickhouse://127.0.0.1:{backend.port}/d", "--keep", "30"])
            self.assertEqual((result.status, result.stderr), (0, ""))
            said = [body.decode() + "\n" for _, body in backend.bodies]
        self.assertEqual("".join(said), TODAYS_STATEMENTS)

    def test_a_recording_is_followed_to_its_end(self):
        """Most looks read figures of known stacks alone; what they add up to is the whole."""
        recording = self.path("grows.hl")
        script = ("import json\nkept = []\nfor i in range(12):\n    kept.append([str(j) for j in range(i * 200)])\n"
                  "    input() if i % 4 == 0 else None\n    kept.append(json.dumps(kept)) if i % 4 == 3 else None\n")
        with subprocess.Popen(harness.record_command(recording, [harness.need("python3"), "-c", script]), text=True, stdin=subprocess.PIPE,
                              env=dict(os.environ, **self.environment), stderr=subprocess.DEVNULL) as recorder:
            harness.wait_until(lambda: os.path.exists(recording), "the recording")
            with subprocess.Popen([HEAPLINE, "push", "--to", self.store, "--spool", self.spool, *OFTEN, recording], text=True,
                                  env=dict(os.environ, **self.environment), stderr=subprocess.PIPE) as pusher:
                for looks in range(1, 4):
                    harness.wait_until(lambda count=looks: self.looks() >= count, f"look {looks}")
                    recorder.stdin.write("\n")
                    recorder.stdin.flush()
                self.assertEqual(pusher.communicate(timeout=harness.TIMEOUT_S)[1], "")
            self.assertEqual(pusher.returncode, 0)
        self.assert_equals_views(recording, self.store)

    def looks(self):
        """How many found a change; the store is made meanwhile."""
        with contextlib.suppress(sqlite3.OperationalError):
            return self.ask("SELECT COUNT(DISTINCT ms) FROM deltas")[0][0]
        return 0

    def test_every_view_opens_a_store(self):
        recording = self.record_program()
        self.push_well(self.store, "--service", "shop", recording)
        result = harness.run([HEAPLINE, "tree", "--json", f"sqlite:{self.store}?service=shop"])
        self.assertEqual(result.status, 0, result.stderr)
        for name in ("out.svg", "out.hl"):
            result = harness.run([HEAPLINE, "fleet", "top", "--db", self.store, "-o", self.path(name)])
            self.assertEqual(result.status, 0, result.stderr)
        self.assertEqual(harness.report("info", self.path("out.hl"))["total"],
                         harness.report("info", f"sqlite:{self.store}")["total"])
        with open(self.path("out.svg"), encoding="utf-8") as picture:
            self.assertIn("</svg>", picture.read())

    def test_pyroscope_gets_what_the_views_show(self):
        recording = self.record_program()
        with Backend() as backend:
            self.push_well(f"http://127.0.0.1:{backend.port}", "--service", "shop{a=b}, c", "--version", "1.4-β",
                           recording)
        path, = backend.paths
        url = urllib.parse.urlsplit(path)
        query = urllib.parse.parse_qs(url.query, strict_parsing=True)
        self.assertEqual(url.path, "/ingest")
        name = re.fullmatch(r"([^{]*)\{([^{}]*)\}", query["name"][0])
        self.assertEqual(name[1], "shop_a_b___c")
        labels = dict(label.split("=") for label in name[2].split(","))
        self.assertEqual(labels["version"], "1.4-__")
        self.assertEqual(int(labels["pid"]), harness.info(recording)["recording"]["pid"])
        self.assertLess(int(query["from"][0]), int(query["until"][0]))
        parts = parts_of(*backend.bodies[0])
        self.assertEqual(set(parts), {"profile", "sample_type_config"})
        kinds = json.loads(parts["sample_type_config"])
        with open(self.path("got.pb.gz"), "wb") as file:
            file.write(parts["profile"])
        profile = PprofFile(self.path("got.pb.gz"))
        self.assertEqual(dict(zip(profile.types, profile.units)),
                         {"inuse_space": "bytes", "inuse_objects": "count", "alloc_space": "bytes",
                          "alloc_objects": "count"})
        self.assertEqual({name: kind["units"] for name, kind in kinds.items()},
                         {name: "bytes" if "space" in name else "objects" for name in profile.types})
        total = harness.info(recording)["total"]
        for type_, figure in (("inuse_space", "inuse_bytes"), ("inuse_objects", "inuse_objects"),
                              ("alloc_space", "alloc_bytes"), ("alloc_objects", "alloc_objects")):
            column = profile.types.index(type_)
            self.assertEqual(sum(values[column] for _, values in profile.samples), total[figure], type_)

    def test_opentelemetry_gets_what_the_views_show(self):
        recording = self.record_program()
        name = "shop \"a\"\n" + b"\xff".decode(errors="surrogateescape")
        with Backend() as backend:
            url = f"otlp+http://127.0.0.1:{backend.port}"
            result = self.push(url, recording)
            self.assert_refused(result, "in development and may change; --experimental sends them")
            self.push_well(url, "--experimental", "--service", name, "--version", "1.4", recording)
        self.assertEqual(backend.paths, ["/v1development/profiles"])
        (content_type, body), = backend.bodies
        self.assertEqual(content_type, "application/x-protobuf")
        request = OtlpRequest(body)
        # As `heapline top` has it, by total and by function.
        for kind, value, unit in (("inuse_space", "inuse", "bytes"), ("inuse_objects", "inuse", "objects"),
                                  ("alloc_space", "alloc", "bytes"), ("alloc_objects", "alloc", "objects")):
            shown = harness.report("top", recording, "--value", value)
            self.assertEqual(request.total(kind), shown["total"][f"{value}_{unit}"], kind)
            flat = {}
            for row in shown["rows"]:
                flat[row["name"]] = flat.get(row["name"], 0) + row[f"flat_{unit}"]
            self.assertEqual(request.flat(kind), {name: figure for name, figure in flat.items() if figure}, kind)
            profile = request.profiles[kind]
            self.assertEqual(profile["unit"], "bytes" if unit == "bytes" else "count")
            self.assertGreater(profile["duration_ns"], 0)
        self.assertEqual(len({profile["id"] for profile in request.profiles.values()}), 4)
        process = harness.info(recording)["recording"]
        self.assertEqual(request.resource["service.name"], "shop \"a\"\n\ufffd")
        self.assertEqual(request.resource["service.version"], "1.4")
        self.assertEqual(request.resource["process.pid"], process["pid"])
        self.assertEqual(request.resource["host.name"], socket.gethostname())
        self.assertRegex(request.resource["process.executable.build_id.gnu"], "^[0-9a-f]{16,}$")
        self.assertEqual(request.scope[0], "heapline")
        # Entry 0 of each table is empty; no text stands there twice.
        self.assertEqual([table[0] for number, table in request.tables.items() if number != 4], [{}] * 5)
        self.assertEqual(request.texts[0], "")
        self.assertEqual(len(set(request.texts)), len(request.texts))
        places = {place for stack, _ in request.profiles["alloc_space"]["samples"] for place in stack}
        self.assertTrue(any(os.path.basename(module).startswith("python3") for _, _, _, module, *_ in places))

    def test_what_servers_of_opentelemetry_say_is_understood(self):
        """Only what its specification calls passing is tried again; a part that was rejected is not success."""
        _, recording = self.record_well([harness.program("lifecycle"), "leaf"])
        refusal = b"\x08\x03\x12\x0anot today\n"
        part = b"\x0a\x0c\x08\x03\x12\x08too much"
        for status, answer, said, waits in ((400, refusal, "answered with status 400: not today", 0),
                                            (500, refusal, "answered with status 500: not today", 0),
                                            (503, b"", "answered with status 503", 1),
                                            (429, b"", "answered with status 429", 1),
                                            (200, part, "rejected 3 of 4 profiles: too much", 0)):
            with self.subTest(status=status), Backend() as backend:
                backend.status, backend.answer = status, answer
                result = self.push(f"otlp+http://127.0.0.1:{backend.port}/base/", "--experimental", recording)
                self.assertIn(said, result.stderr)
                self.assertEqual(result.status, 0 if waits else 1)
                self.assertEqual(len(glob.glob(f"{self.spool}/*.push")), waits)
                self.assertEqual(set(backend.paths), {"/base/v1development/profiles"})
                for name in glob.glob(f"{self.spool}/*.push"):
                    os.unlink(name)

    def test_labels_that_cannot_be_stored_are_refused(self):
        _, recording = self.record_well([harness.program("lifecycle"), "leaf"])
        result = self.push(self.store, "--service", "x" * 65536, recording)
        self.assertEqual(result.status, 1)
        self.assertIn("'service' has 65536 bytes", result.stderr)
        result = self.push(self.store, "--service", "\udcff" * 2000, recording)  # each becomes U+FFFD
        self.assertIn("'service' has 6000 bytes", result.stderr)
        names = ["tab\there", "line\nbreak", "quo'te\"s", "back\\slash", b"not \xff UTF-8".decode(errors="surrogateescape")]
        for name in names:
            self.assertEqual(self.push(self.store, "--service", name, recording).status, 0)
            self.assertEqual({row["name"] for row in self.fleet("growth", "--service", name)["rows"]},
                             {os.fsencode(name).decode(errors="replace")})
            os.unlink(self.store)
        self.assertEqual(self.push(self.store, "--service", "", recording).status, 2)

    def test_of_a_long_command_line_the_beginning_is_kept(self):
        for long in "x" * 65536, "x" + "\udcff" * 4000:
            _, recording = self.record_well([harness.program("lifecycle"), "leaf", long])
            self.push_well(self.store, recording)
            kept, = self.ask("SELECT length(CAST(command AS BLOB)), service FROM sessions")
            self.assertIn(kept, [(count, "lifecycle") for count in range(4094, 4097)])  # whole characters
            os.unlink(self.store)

    def test_the_processes_of_a_round_are_one_insert_for_each_table(self):
        _, recording = self.record_well([harness.need("sh"), "-c", f"{harness.program('lifecycle')} leaf; "
                                         f"{harness.program('lifecycle')} leaf; true"])
        with Backend() as backend:
            backend.answer = b""
            self.push_well(f"clickhouse://127.0.0.1:{backend.port}/d", recording)
            inserts = {table: body.decode().splitlines() for path, (_, body) in zip(backend.paths, backend.bodies)
                       for table in re.findall("INTO%20([a-z]+)", path)}
            self.assertEqual(sum("INSERT" in path for path in backend.paths), 3)
        sessions = {line.split("\t")[0] for line in inserts["sessions"]}
        self.assertGreaterEqual(len(sessions), 2)
        self.assertEqual({line.split("\t")[0] for line in inserts["changes"]}, sessions)
        self.assertTrue({line.split("\t")[2] for line in inserts["changes"]} <=
                        {line.split("\t")[0] for line in inserts["stacks"]})

    def test_what_gets_no_answer_is_not_repeated_in_silence(self):
        """Over a connection that was kept libcurl would do so."""
        _, recording = self.record_well([harness.need("sh"), "-c", f"{harness.program('lifecycle')} leaf; true"])
        for scheme in "http", "otlp+http":
            with self.subTest(scheme=scheme), Backend() as backend:
                backend.answer, backend.loses = b"", 2
                result = self.push(f"{scheme}://127.0.0.1:{backend.port}", "--experimental", recording)
                self.assertIn("cannot reach", result.stderr)
                self.assertEqual(backend.bodies[1], backend.bodies[2])

    def test_one_refused_insert_is_not_counted_twice(self):
        """What an insert of all processes left half done is asked for before each is sent on its own."""
        _, recording = self.record_well([harness.program("lifecycle"), "leaf"])
        with Backend() as backend:
            backend.answer, backend.refuses = b"", "INTO%20sessions"
            result = self.push(f"clickhouse://127.0.0.1:{backend.port}/d", recording)
            self.assertIn("answered with status 400", result.stderr)
            asked = [body for _, body in backend.bodies if b"COUNT(*) FROM deltas" in body]
            self.assertTrue(asked)

    def test_totals_that_clickhouse_failed_to_write_come_with_the_next_attempt(self):
        """One insert goes into two tables; here the server takes it into the first one only."""
        _, recording = self.record_well([harness.program("lifecycle"), "leaf"])
        with clickhouse(self.directory) as url:
            def ask(sql):
                place, database = re.search("//(.*)/(.*)", url).groups()
                with urllib.request.urlopen(f"http://{place}/?database={database}", sql.encode()) as answer:
                    return answer.read().decode()

            self.assertEqual(harness.run([HEAPLINE, "fleet", "init", "--db", url]).status, 0)
            columns = ", ".join(f"{name} Int64" for name in ("session", "stack", *SUMMED))
            make = f"CREATE TABLE totals ({columns}%s) ENGINE = SummingMergeTree ORDER BY (session, stack)"
            ask("DROP TABLE totals")
            ask(make % ", unfilled Int64")
            port = re.search(r":(\d+)/", url)[1]
            with Relay(int(port)) as relay:
                relay.loses = b"INTO%20changes"
                self.assertIn("waits in", self.push(url.replace(port, str(relay.port)), recording).stderr)
            sums = ", ".join(f"SUM({name})" for name in SUMMED)
            stored = ask(f"SELECT {sums} FROM deltas")
            self.assertNotEqual(stored.split(), ["0"] * 4)
            self.assertEqual(ask("SELECT COUNT(*) FROM totals"), "0\n")
            ask("DROP TABLE totals")
            ask(make % "")
            self.assertEqual(self.push(url, recording).status, 0)
            self.assertEqual(ask(f"SELECT {sums} FROM deltas"), stored)
            self.assertEqual(ask(f"SELECT {sums} FROM totals"), stored)
            # With its answer, which names a column that nobody fills: that is for the server's people to mend.
            ask("DROP TABLE totals")
            ask(make % ", unfilled Int64")
            _, recording = self.record_well([harness.program("lifecycle"), "leaf"], name="other.hl")
            self.assertRegex(self.push(url, recording).stderr, "unfilled.* waits in")
            twice = ask(f"SELECT {sums} FROM deltas")
            self.assertEqual(twice.split(), [str(2 * int(sum_)) for sum_ in stored.split()])
            ask("DROP TABLE totals")
            ask(make % "")
            self.assertEqual(self.push(url, recording).status, 0)
            self.assertEqual(ask(f"SELECT {sums} FROM deltas"), twice)
            self.assertEqual(ask(f"SELECT {sums} FROM totals"), stored)

    def test_an_answer_that_is_no_row_is_said(self):
        _, recording = self.record_well([harness.program("lifecycle"), "leaf"])
        with Backend() as backend:
            backend.answer = b"a page of another server\n"
            result = self.push(f"clickhouse://127.0.0.1:{backend.port}/d", recording)
        self.assertEqual(result.status, 1)
        self.assertIn("not a row of a store; it was not sent", result.stderr)

    def test_a_server_that_takes_everything_is_not_clickhouse(self):
        _, recording = self.record_well([harness.program("lifecycle"), "leaf"])
        for answer in b"", b"ok\n", b"<html>":
            with self.subTest(answer=answer), Backend() as backend:
                backend.answer, backend.version = answer, b""
                url = f"clickhouse://127.0.0.1:{backend.port}/d"
                result = self.push(url, recording)
                self.assertEqual(result.status, 1)
                self.assertIn("is not ClickHouse; name its HTTP port", result.stderr)
                self.assert_refused(harness.run([HEAPLINE, "fleet", "init", "--db", url]), "is not ClickHouse")
                self.assertEqual({body for _, body in backend.bodies}, {b"SELECT version()"})
                # There can be nothing of a command: it is not asked.
                result = self.push(url, "--", harness.program("lifecycle"), "leaf")
                self.assertIn("is not ClickHouse", result.stderr)

    def test_a_password_stands_in_no_command_line(self):
        _, recording = self.record_well([harness.program("lifecycle"), "leaf"])
        with open(self.path("password"), "w", encoding="ascii") as file:
            file.write("se:k@et\n")
        given = "Basic " + base64.b64encode(b"me:se:k@et").decode()
        with Backend() as backend:
            for scheme in "http", "clickhouse", "otlp+http":
                url = f"{scheme}://me@127.0.0.1:{backend.port}"
                for options, environment in ((["--password-file", self.path("password")], {}),
                                             ([], {"HEAPLINE_STORE_PASSWORD": "se:k@et"})):
                    with self.subTest(scheme=scheme, options=options):
                        backend.logins.clear()
                        backend.answer = b"" if scheme != "clickhouse" else b"1\n"
                        harness.run([HEAPLINE, "push", "--to", url, "--experimental", "--spool", self.spool, *options, recording],
                                    env={**self.environment, **environment})
                        self.assertEqual(set(backend.logins), {given})
            with open(self.path("password"), "w", encoding="ascii") as file:
                file.write("\nsecond\n")
            self.assert_refused(self.push(url, "--password-file", self.path("password"), recording), "first line is empty")
            self.assert_refused(self.push(url, "--password-file", self.path("none"), recording), "cannot read the password")

    def test_a_password_in_the_url_is_hidden_and_no_program_inherits_one(self):
        with Backend() as backend:
            backend.answer = b""
            script = "import os; print(open(f'/proc/{os.environ[\"PUSH\"]}/cmdline').read(), os.environ.get('HEAPLINE_STORE_PASSWORD'))"
            command = ["sh", "-c", 'PUSH=$$ exec "$@"', "sh", HEAPLINE, "push", "--to", f"http://me:secret@127.0.0.1:{backend.port}",
                       "--spool", self.spool, "--", harness.need("python3"), "-c", script]
            result = harness.run(command, env={**self.environment, "HEAPLINE_STORE_PASSWORD": "other"})
            self.assertEqual((result.status, result.stderr), (0, ""))
            self.assertNotIn("secret", result.stdout)
            self.assertIn("//me:******@127", result.stdout)
            self.assertTrue(result.stdout.endswith("None\n"), result.stdout)
            self.assertEqual(set(backend.logins), {"Basic " + base64.b64encode(b"me:secret").decode()})

    def test_what_is_no_store_is_refused(self):
        other = self.path("other.db")
        with contextlib.closing(sqlite3.connect(other)) as database:
            database.execute("CREATE TABLE theirs (a)")
        _, recording = self.record_well([harness.program("lifecycle"), "leaf"])
        self.assert_refused(self.push(other, recording), "another program's database")
        for options, why in (([self.path("none.db")], "heapline push"), (["ftp://host/x"], "neither"),
                             (["clickhouse://host/a-b"], "letters, digits"),
                             ([recording], "cannot")):
            result = harness.run([HEAPLINE, "fleet", "top", "--db", *options])
            self.assert_refused(result, why)
        self.push_well(self.store, recording)
        result = harness.run([HEAPLINE, "fleet", "top", "--db", self.store, "--service", "nobody"])
        self.assert_refused(result, "fleet hosts --db")
        result = harness.run([HEAPLINE, "top", f"sqlite:{self.store}?colour=red"])
        self.assert_refused(result, "not by 'colour'")

    def test_what_cannot_be_stored_is_no_success(self):
        _, recording = self.record_well([harness.program("lifecycle"), "leaf"])
        self.push_well(self.store, recording)
        damaged = self.path("damaged.db")
        with open(self.store, "rb") as good, open(damaged, "wb") as bad:
            bad.write(good.read(4096) + bytes(range(256)) * 100)
        result = self.push(damaged, recording)
        self.assertEqual(result.status, 1)
        self.assertRegex(result.stderr, "malformed|not a database")
        closed = f"http://127.0.0.1:{free_port()}"
        result = self.push(closed.replace("http", "clickhouse"), recording)
        self.assertEqual(result.status, 1)
        self.assertIn("the last figures of 1 process were not pushed", result.stderr)
        # There can be nothing of a command, so it can wait.
        result = self.push(closed.replace("http", "clickhouse"), "--", harness.program("lifecycle"), "leaf")
        self.assertEqual(result.status, 0, result.stderr)
        self.assertEqual(len(glob.glob(f"{self.spool}/*.push")), 1)

    def test_a_store_can_be_asked_by_who_may_not_write_to_it(self):
        harness.need_other_user(65534)
        recording = self.record_program()
        self.push_well(self.store, recording)
        os.chmod(self.directory, 0o755)
        os.chmod(self.store, 0o444)
        ask = [HEAPLINE, "fleet", "top", "--db", self.store, "--json"]
        before = os.listdir(self.directory)
        result = harness.run(ask, user=65534, group=65534, extra_groups=[])
        self.assertEqual(result.status, 0, result.stderr)
        self.assertEqual(json.loads(result.stdout)["rows"], self.fleet("top")["rows"])
        self.assertEqual(os.listdir(self.directory), before)

    def test_versions_and_hosts_are_compared_per_process(self):
        for version, byte_count in (("1", 2), ("2", 4), ("2", 8)):
            _, recording = self.record_steps(byte_count)
            self.push_well(self.store, "--service", "shop", "--version", version, recording)
        # Of ended processes only those are watched that ended at the moment: ask for it.
        self.ask_nothing("UPDATE sessions SET ended_ms = 0, until_ms = until_ms + 1000000")
        diff = self.fleet("diff", "--version", "2", "--against", "1")
        self.assertRegex(diff["base"]["source"], r"version 1, at 20\d\d-")
        row, = [row for row in diff["rows"] if row["name"] == "step_site"]
        self.assertEqual((row["before_bytes"], row["after_bytes"]), (2 * STEP_BYTES, 6 * STEP_BYTES))
        growth = self.fleet("growth", "--by", "version", "--focus", "step_site")["rows"]
        self.assertEqual([(row["name"], row["processes"], row["inuse_bytes"], row["growth_bytes"]) for row in growth],
                         [("2", 2, 12 * STEP_BYTES, 12 * STEP_BYTES), ("1", 1, 2 * STEP_BYTES, 2 * STEP_BYTES)])
        hosts = self.fleet("hosts", "--focus", "step_site")["rows"]
        self.assertEqual([row["inuse_bytes"] for row in hosts], [14 * STEP_BYTES])
        self.assertEqual(self.fleet("hosts", "--focus", "no_such_function")["rows"][0]["inuse_bytes"], 0)

    def ask_nothing(self, sql):
        with contextlib.closing(sqlite3.connect(self.store)) as store:
            store.execute(sql)
            store.commit()

    def record_steps(self, count):
        read, write = os.pipe()
        os.write(write, b"x" * count)
        os.close(write)
        try:
            return self.record([harness.program("steps")], stdin=read)
        finally:
            os.close(read)


class ProcessCase(PushCase):
    """A program that allocates when it is told, and a pusher beside it."""

    def setUp(self):
        super().setUp()
        self.recording = self.path("test.hl")
        self.recorder = self.start(harness.record_command(self.recording, [harness.program("steps")]),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.step()
        self.pid, = harness.children_of(self.recorder.pid)
        self.steps = 1

    def start(self, command, **options):
        process = subprocess.Popen(command, text=True, cwd=self.directory, start_new_session=True,
                                   env=dict(os.environ, **self.environment), **options)
        self.addCleanup(self.kill, process)
        return process

    def kill(self, process):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()

    def step(self):
        self.recorder.stdin.write("x")
        self.recorder.stdin.flush()
        self.assertEqual(self.recorder.stdout.readline(), "step\n")
        self.steps = getattr(self, "steps", 0) + 1

    def end(self):
        self.recorder.stdin.close()
        self.recorder.wait(harness.TIMEOUT_S)

    def wait_for_save(self):
        harness.wait_until(lambda: self.push(self.path("other.db"), "--once", "-p", str(self.pid)).status == 0,
                           "a save")

    def start_push(self, to, *options, whom=None):
        with open(self.path("said"), "w", encoding="utf-8") as said:
            return self.start([HEAPLINE, "push", "--to", to, "--spool", self.spool, *OFTEN, *options,
                               *(whom or ("-p", str(self.pid)))], stderr=said)

    def said(self):
        with open(self.path("said"), encoding="utf-8") as file:
            return file.read()

    def stored(self, column="inuse_bytes"):
        """Sums of the stacks of step_site; the store is written to meanwhile."""
        with contextlib.suppress(sqlite3.OperationalError):
            return self.ask(f"SELECT SUM({column}) FROM totals WHERE stack IN "
                            "(SELECT stack FROM stacks WHERE frames LIKE '%step_site%')")[0][0] or 0
        return 0

    def wait_for(self, steps, backend=None):
        """Until as many steps are in the store, or came to a backend since it was born."""
        if backend is None:
            harness.wait_until(lambda: self.stored() == steps * STEP_BYTES, f"{steps} steps in the store")
        else:
            harness.wait_until(lambda: self.received(backend) == steps * STEP_BYTES, f"{steps} steps to arrive")

    def received(self, backend):
        """The sum of what was allocated in all profiles that came."""
        total = 0
        for content_type, body in list(backend.bodies):
            with open(self.path("got.pb.gz"), "wb") as file:
                file.write(parts_of(content_type, body)["profile"])
            profile = PprofFile(self.path("got.pb.gz"))
            total += profile.top("alloc_space").get("step_site", (0, 0))[0]
        return total


class Processes(ProcessCase):
    def test_changes_of_a_process_are_stored_until_it_ends(self):
        pusher = self.start_push(self.store, "--service", "shop")
        self.wait_for(1)
        self.step()
        self.step()
        self.wait_for(3)
        row, = self.fleet("growth")["rows"]
        self.assertEqual((row["name"], row["processes"]), ("shop", 1))
        moments = self.fleet("when", "--since", "10m", "--step", "1", "--focus", "step_site")["rows"]
        self.assertEqual(moments[-1]["inuse_bytes"], 3 * STEP_BYTES)
        self.assertEqual(sum(row["alloc_bytes"] for row in moments), 3 * STEP_BYTES)
        self.assertEqual(len(self.fleet("when", "--since", "10m", "-n", "6")["rows"]), 6)
        self.assertEqual(len(self.fleet("when", "--since", "10m", "--step", "1", "-n", "6")["rows"]), 6)
        self.assert_since_counts_from_until()
        self.end()
        self.assertEqual(pusher.wait(harness.TIMEOUT_S), 0, self.said())
        self.assertEqual(self.said(), "")
        self.assertEqual(self.stored("alloc_objects"), 3 * STEP_OBJECTS)
        ended, = self.ask("SELECT ended_ms = last_ms FROM sessions")
        self.assertEqual(ended, (1,))

    def assert_since_counts_from_until(self):
        until = "2026-01-02 12:00:00"
        report = self.fleet("growth", "--until", until, "--since", "8m")
        self.assertEqual(report["until_ms"] - report["since_ms"], 8 * 60 * 1000)
        late = harness.run([HEAPLINE, "fleet", "diff", "--db", self.store, "--until", until,
                            "--since", "2026-01-02 12:01:00"])
        self.assertEqual(late.status, 2)
        self.assertIn("--since is not before --until", late.stderr)

    def test_a_pusher_that_was_killed_is_followed_by_another(self):
        for steps in range(1, 4):
            pusher = self.start_push(self.store, whom=("--all",) if steps == 2 else None)
            self.wait_for(steps)
            os.kill(pusher.pid, signal.SIGKILL)
            pusher.wait()
            self.step()
        pusher = self.start_push(self.store)
        self.wait_for(4)
        pusher.send_signal(signal.SIGTERM)
        self.assertEqual(pusher.wait(harness.TIMEOUT_S), 0)
        self.assertEqual(self.stored("alloc_bytes"), 4 * STEP_BYTES)
        self.assertEqual(self.ask(f"SELECT COUNT(*) FROM sessions WHERE pid = '{self.pid}'"), [(1,)])

    def push_twice(self, to, sums):
        """Two pushes of one process, of which one is killed and comes again; what `sums` says at the end."""
        ways = ("-p", str(self.pid)), ("--all",), (self.recording,)
        pushers = []

        def start(index, way):
            said = open(self.path(f"said {index}"), "a", encoding="utf-8")
            self.addCleanup(said.close)
            return self.start([HEAPLINE, "push", "--to", to, "--spool", self.path(f"spool {index}"), *OFTEN, *way], stderr=said)

        for index in range(2):
            pushers.append(start(index, ways[index]))
        for killed in 0, 1:
            for _ in range(3):
                self.step()
                harness.wait_until(lambda: sums()[0] == self.steps * STEP_BYTES, "a step in the store")
            os.kill(pushers[killed].pid, signal.SIGKILL)
            pushers[killed].wait()
            self.step()
            pushers[killed] = start(killed, ways[killed + 1])
        harness.wait_until(lambda: sums()[0] == self.steps * STEP_BYTES, "all steps in the store")
        self.end()
        for index, pusher in enumerate(pushers):
            if index == 0:  # follows all processes, and those to come
                pusher.send_signal(signal.SIGTERM)
            self.assertEqual(pusher.wait(harness.TIMEOUT_S), 0)
        said = ""
        for index in range(2):
            with open(self.path(f"said {index}"), encoding="utf-8") as file:
                said += file.read()
        self.assertIn("one push is enough", said)
        return sums()

    def test_two_pushes_of_one_process_count_it_once(self):
        def sums():
            return self.stored("inuse_bytes"), self.stored("alloc_bytes"), self.stored("alloc_objects")

        self.assertEqual(self.push_twice(self.store, sums), (self.steps * STEP_BYTES, self.steps * STEP_BYTES, self.steps * STEP_OBJECTS))
        self.assertEqual(self.ask("SELECT SUM(alloc_bytes) FROM deltas"), self.ask("SELECT SUM(alloc_bytes) FROM totals"))

    def test_two_pushes_of_one_process_count_it_once_in_clickhouse(self):
        with clickhouse(self.directory) as url:
            def sums():
                result = harness.run([HEAPLINE, "fleet", "top", "--db", url, "--value", "alloc", "--json"])
                rows = {row["name"]: row for row in json.loads(result.stdout or '{"rows": []}')["rows"]}
                return rows["step_site"]["flat_bytes"] if "step_site" in rows else 0, rows.get("step_site", {}).get("flat_objects")

            self.assertEqual(self.push_twice(url, sums), (self.steps * STEP_BYTES, self.steps * STEP_OBJECTS))

    def test_an_outage_loses_nothing_and_is_said_once(self):
        for mood in ("fail", "cut", "gone"):
            with self.subTest(mood=mood), Backend() as backend:
                port = backend.port
                pusher = self.start_push(f"http://127.0.0.1:{port}")
                steps = self.steps
                self.wait_for(steps, backend)
                with contextlib.ExitStack() as stack:
                    if mood == "gone":
                        backend.shutdown()
                        backend.server_close()
                    else:
                        backend.mood = mood
                    for _ in range(3):
                        self.step()
                        harness.wait_until(lambda: os.path.isdir(self.spool) and
                                           len(glob.glob(f"{self.spool}/*.push")) > 2, "windows in the spool")
                    if mood == "gone":
                        backend = stack.enter_context(Backend(port, backend.bodies))
                    backend.mood = ""
                    self.wait_for(steps + 3, backend)
                    harness.wait_until(lambda: "sending again" in self.said(), "the end of the outage")
                    pusher.send_signal(signal.SIGINT)
                    self.assertEqual(pusher.wait(harness.TIMEOUT_S), 0)
                self.assertEqual(len(self.said().splitlines()), 2, self.said())
                self.assertEqual(glob.glob(f"{self.spool}/*.push"), [])

    def test_a_store_that_is_away_from_the_beginning_is_said_once(self):
        """Nothing waits in the spool then: what the store has of the process is asked again and again."""
        with Backend() as backend:
            backend.mood, backend.answer = "fail", b""
            pusher = self.start_push(f"clickhouse://127.0.0.1:{backend.port}/d")
            harness.wait_until(lambda: "until it answers what it has" in self.said(), "an outage")
            harness.wait_until(lambda: backend.refused >= 5, "more attempts")
            backend.mood = ""
            harness.wait_until(lambda: any("INTO%20sessions" in path for path in list(backend.paths)), "what is stored")
            pusher.send_signal(signal.SIGTERM)
            self.assertEqual(pusher.wait(harness.TIMEOUT_S), 0, self.said())
        self.assertEqual(len(self.said().splitlines()), 2, self.said())
        self.assertIn("sending again", self.said())

    def test_answers_that_are_lost_count_nothing_twice(self):
        """SQLite knows a window by its time; ClickHouse is asked before it is sent again."""
        with clickhouse(self.directory) as url:
            port = int(re.search(r":(\d+)/", url)[1])
            with Relay(port) as relay:
                pusher = self.start_push(url.replace(str(port), str(relay.port)), "--service", "shop")

                def total():
                    result = harness.run([HEAPLINE, "fleet", "hosts", "--db", url, "--focus", "step_site", "--json"])
                    return sum(row["inuse_bytes"] for row in json.loads(result.stdout or '{"rows": []}')["rows"])

                harness.wait_until(lambda: relay.count > 6 and total() == self.steps * STEP_BYTES, "the first steps")
                relay.loses = b""
                self.step()
                harness.wait_until(lambda: "cannot reach" in self.said(), "an outage")
                relay.loses = None
                self.step()
                harness.wait_until(lambda: total() == self.steps * STEP_BYTES, "all steps")
                pusher.send_signal(signal.SIGTERM)
                self.assertEqual(pusher.wait(harness.TIMEOUT_S), 0, self.said())
            self.assertEqual(total(), self.steps * STEP_BYTES)

    def test_a_full_spool_drops_the_oldest_and_sums_are_right_again(self):
        pusher = self.start_push(self.store)
        self.wait_for(self.steps)
        holder = sqlite3.connect(self.store, isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
        # Once a window is there, it has read what the spool holds.
        harness.wait_until(lambda: glob.glob(f"{self.spool}/*.push"), "a window in the spool")
        for index in range(200):  # what another push left there
            with open(f"{self.spool}/{index + 16:016x}.push", "wb") as file:
                file.write(b"x" * 1000)
        holder.execute("ROLLBACK")
        holder.close()
        pusher.send_signal(signal.SIGTERM)
        pusher.wait(harness.TIMEOUT_S)
        self.step()
        result = self.push(self.store, "--spool-max", "64K", "--once", "-p", str(self.pid))
        self.assertEqual(result.status, 1)
        self.assertIn("it is damaged", result.stderr)
        self.assertEqual(glob.glob(f"{self.spool}/*.push"), [])

        def push_again():
            result = self.push(self.store, "--once", "-p", str(self.pid))
            self.assertEqual((result.status, result.stderr), (0, ""))
            return self.stored() == self.steps * STEP_BYTES

        harness.wait_until(push_again, "all steps in the store")

    def test_a_full_disk_is_said_once(self):
        """Neither the store nor the spool can be written to, while the store answers that it has nothing."""
        self.wait_for_save()
        limited = self.start(["sh", "-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "sh", HEAPLINE, "push", "--to", self.store,
                              "--spool", self.spool, *OFTEN, "-p", str(self.pid)], stderr=subprocess.PIPE)
        said = limited.stderr.readline()

        def count_reads():
            with open(f"/proc/{limited.pid}/io", encoding="ascii") as file:
                return int(re.search(r"syscr: (\d+)", file.read())[1])

        for _ in range(4):
            reads = count_reads()
            self.step()
            harness.wait_until(lambda least=reads: count_reads() > least + 10, "another look")
        self.end()
        self.assertEqual(limited.wait(harness.TIMEOUT_S), 1)
        said += limited.stderr.read()
        self.assertRegex(said, "cannot .*fleet.db.*waits in")
        self.assertNotIn("sending again", said)
        self.assertEqual(said.count("fleet.db"), 1, said)
        self.assertEqual(said.count("cannot write to the spool"), 1, said)

    def test_a_spool_that_is_full_says_so_once(self):
        with Backend() as backend:
            self.wait_for_save()
            backend.mood = "fail"
            pusher = self.start_push(f"http://127.0.0.1:{backend.port}", "--spool-max", "64K")
            harness.wait_until(lambda: "is full" in self.said(), "a full spool")
            pusher.send_signal(signal.SIGTERM)
            self.assertEqual(pusher.wait(harness.TIMEOUT_S), 1)
            kept = sum(map(os.path.getsize, glob.glob(f"{self.spool}/*.push")))
            self.assertTrue(0 < kept <= 64 << 10, kept)
            self.assertEqual(self.said().count("is full"), 1)
            self.assertRegex(self.said(), r"windows? (was|were) dropped")

    def test_what_is_refused_is_said_and_dropped(self):
        with Backend() as backend:
            self.wait_for_save()
            backend.mood = "refuse"
            result = self.push(f"http://127.0.0.1:{backend.port}", "--once", "-p", str(self.pid))
            self.assertEqual(result.status, 1)
            self.assertIn("answered with status 400: said by the backend", result.stderr)
            self.assertIn("1 window was dropped", result.stderr)

    def test_what_hangs_is_in_the_spool_until_it_is_answered(self):
        with Backend() as backend:
            backend.mood, backend.answer = "hang", b""
            pusher = self.start_push(f"http://127.0.0.1:{backend.port}")
            harness.wait_until(lambda: glob.glob(f"{self.spool}/*.push"), "what is being sent in the spool")
            self.assertEqual(self.said(), "")
            pusher.kill()
            pusher.wait()
            backend.mood = ""
            backend.woken.set()
            result = self.push(f"http://127.0.0.1:{backend.port}", "--once", "-p", str(self.pid))
            self.assertEqual((result.status, result.stderr, len(backend.bodies)), (0, "", 2))
            self.assertEqual(glob.glob(f"{self.spool}/*.push"), [])

    def test_a_port_that_nobody_listens_on_is_said_in_the_words_of_libcurl(self):
        self.wait_for_save()
        port = free_port()
        result = self.push(f"http://127.0.0.1:{port}", "--once", "-p", str(self.pid))
        self.assertRegex(result.stderr, rf"cannot reach 'http://127.0.0.1:{port}': .*127.0.0.1(:| port ){port}\b.*; what is pushed waits in")

    def test_the_program_does_not_notice_a_backend_that_hangs(self):
        with Backend() as backend:
            backend.mood = "hang"
            pusher = self.start_push(f"http://127.0.0.1:{backend.port}")
            for _ in range(3):
                self.step()
            pusher.kill()
            backend.woken.set()
            self.end()

    def test_usage_errors_name_the_remedy(self):
        for arguments, status, why in ((["-p", "1"], 2, "needs --to"), (["--to", "x.db"], 2, "nothing to push"),
                                       (["--to", "x.db", "--all", "-p", "1"], 2, "exclude one another"),
                                       (["--to", "x.db", "--every", "0.01", "--all"], 2, "0.1 or more"),
                                       (["--to", "gopher://x", "--all"], 1, "clickhouse://"),
                                       (["--to", "x.db", "missing.hl"], 1, "missing.hl"),
                                       (["--to", "x.db", "-p", str(os.getpid())], 1, "attach")):
            result = harness.run([HEAPLINE, "push", *arguments], env=self.environment, cwd=self.directory)
            self.assertEqual(result.status, status, arguments)
            self.assertIn(why, result.stderr)


class RareSaves(ProcessCase):
    def test_saves_can_be_rare_and_nothing_is_missing_at_the_end(self):
        self.end()
        command = harness.record_command(self.recording, [harness.program("steps")], options=("--save-every", "3600"))
        self.recorder = self.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.step()
        pid, = harness.children_of(self.recorder.pid)
        status = [HEAPLINE, "ctl", "-p", str(pid), "status", "--json"]
        harness.wait_until(lambda: glob.glob(f"{self.recording}/process-*.hlp"), "the first save")
        self.step()
        self.step()
        known = json.loads(harness.run(status, env=self.environment).stdout)["rows"][0]["inuse_bytes"]
        self.assertGreaterEqual(known, 3 * STEP_BYTES)
        saved = harness.top_rows(self.recording, "inuse").get("step_site", {"flat_bytes": 0})
        self.assertLess(saved["flat_bytes"], 3 * STEP_BYTES)
        self.end()
        self.assertEqual(harness.top_rows(self.recording, "inuse")["step_site"]["flat_bytes"], 3 * STEP_BYTES)
        self.kill(self.recorder)


class Relay:
    """Passes requests on to another port of loopback, and may lose the answers from a request that has `loses` on."""

    def __init__(self, port):
        self.to, self.loses, self.count = port, None, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()

    def run(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with contextlib.suppress(OSError), client, client.makefile("rb") as requests, \
                socket.create_connection(("127.0.0.1", self.to)) as server, server.makefile("rb") as answers:
            while head := self.read_message(requests):
                server.sendall(head)
                answer = self.read_message(answers)
                self.count += 1
                if self.loses is not None and self.loses in head:
                    self.loses = b""
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(answer)

    @staticmethod
    def read_message(stream):
        """A request or an answer of HTTP with all of its body."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = stream.readline()
            if not line:
                return head
            head += line
        if found := re.search(rb"(?i)content-length: (\d+)", head):
            return head + stream.read(int(found[1]))
        if not re.search(rb"(?i)transfer-encoding: chunked", head):
            return head
        body = b""
        while not body.endswith(b"0\r\n\r\n"):
            size = stream.readline()
            body += size + stream.read(int(size, 16) + 2)
        return head + body


class Commands(PushCase):
    def test_a_command_is_pushed_to_its_end_and_its_status_kept(self):
        read, write = os.pipe()
        os.write(write, b"xx")
        os.close(write)
        result = self.push(self.store, "--", harness.program("steps"), stdin=read)
        os.close(read)
        self.assertEqual((result.status, result.stderr), (5, ""))
        self.assertEqual(result.stdout, "step\nstep\ndone\n")
        rows = {row["name"]: row for row in self.fleet("top", "--value", "alloc")["rows"]}
        self.assertEqual(rows["step_site"]["flat_objects"], 2 * STEP_OBJECTS)
        self.assertEqual(self.push(self.store, "--", "/no/such/program").status, 127)

    def start_hanging(self, backend, *command, kind="http"):
        """A push of a program, of which the backend has a request that it does not answer."""
        backend.mood, self.environment["TMPDIR"] = "hang", self.path("temporary")
        os.makedirs(self.path("temporary"), exist_ok=True)
        pusher = subprocess.Popen([HEAPLINE, "push", "--to", f"{kind}://127.0.0.1:{backend.port}", "--spool", self.spool, "--version", "1.4", *OFTEN,
                                   "--", *command], env=dict(os.environ, **self.environment), stdin=subprocess.PIPE,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(pusher.stderr.close)
        self.addCleanup(pusher.wait)
        self.addCleanup(pusher.kill)
        harness.wait_until(lambda: backend.logins, "a request")
        return pusher

    def test_a_push_that_is_told_to_end_keeps_what_is_not_sent(self):
        """A server that does not answer has 30 s for each request, and Kubernetes kills after as many."""
        with Backend() as backend:
            pusher = self.start_hanging(backend, harness.program("steps"))
            pusher.send_signal(signal.SIGTERM)
            pusher.wait(20)
            said = pusher.stderr.read()
            self.assertIn("did not answer before the end", said)
            self.assertRegex(said, "windows? waits? in the spool")
            self.assertTrue(glob.glob(f"{self.spool}/*.push"))
            self.assertEqual(os.listdir(self.path("temporary")), [])

    def test_what_a_push_that_was_killed_left_is_sent_by_the_next(self):
        with Backend() as backend:
            pusher = self.start_hanging(backend, harness.program("steps"))
            pusher.kill()
            pusher.wait()
            left, = os.listdir(self.path("temporary"))
            backend.woken.set()
            backend.mood, backend.answer = "", b""
            url, lifecycle = f"http://127.0.0.1:{backend.port}", harness.program("lifecycle")
            self.push(url, "--", lifecycle, "leaf")
            self.assertEqual(os.listdir(self.path("temporary")), [left])  # the recorder goes on
            pusher.stdin.write("x")
            pusher.stdin.close()

            def push_again(to, *options):
                return harness.run([HEAPLINE, "push", "--to", to, *options, "--", lifecycle, "leaf"], env=self.environment).stderr

            other = push_again(self.store, "--spool", self.path("elsewhere"))
            self.assertEqual((other, os.listdir(self.path("temporary"))), ("", [left]))  # it was for another place
            harness.wait_until(lambda: "sent 1 recording" in push_again(url, "--spool", self.spool), "what was left")
            self.assertEqual(os.listdir(self.path("temporary")), [])
            self.assertTrue(any("steps%7B" in path and "version%3D1.4" in path for path in backend.paths), backend.paths)

    def test_a_kill_while_the_server_hangs_loses_nothing_and_repeats_nothing(self):
        with Backend() as backend:
            pusher = self.start_hanging(backend, harness.program("steps"), kind="clickhouse")
            pusher.stdin.write("x")
            pusher.stdin.flush()
            harness.wait_until(lambda: glob.glob(f"{self.spool}/*.push"), "what is being sent in the spool")
            pusher.kill()
            pusher.wait()
        def push_another():
            return self.push(self.store, "--", harness.program("lifecycle"), "leaf").stderr

        self.assertEqual((push_another(), glob.glob(f"{self.spool}/*.push")), ("", []))
        self.assertEqual(self.ask("SELECT version FROM sessions WHERE service = 'steps'"), [("1.4",)])
        pusher.stdin.write("xx")  # the program goes on
        pusher.stdin.close()
        harness.wait_until(lambda: "sent 1 recording" in push_another(), "what was left")
        self.assertEqual((os.listdir(self.path("temporary")), pusher.stderr.read()), ([], ""))  # it was killed before it gave up
        for table in "totals", "deltas":
            self.assertEqual(self.ask(f"SELECT SUM(alloc_bytes), SUM(alloc_objects), SUM(inuse_bytes) FROM {table} WHERE stack IN "
                                      "(SELECT stack FROM stacks WHERE frames LIKE '%step_site%')"),
                             [(3 * STEP_BYTES, 3 * STEP_OBJECTS, 3 * STEP_BYTES)])
        self.assertEqual(push_another(), "")

    def test_children_are_sessions_of_their_own(self):
        result = self.push(self.store, "--service", "all", "--", harness.need("sh"), "-c",
                           f"{harness.program('lifecycle')} leaf; {harness.program('lifecycle')} leaf; true")
        self.assertEqual(result.status, 0, result.stderr)
        self.assertEqual(len([command for command, in self.ask("SELECT command FROM sessions")
                              if "leaf" in command and not command.startswith("/bin/sh") and " -c " not in command]), 2)

    def test_the_walk_through_a_fleet_does_what_it_says(self):
        harness.need("python3")
        with open(FLEET, encoding="utf-8") as file:
            blocks = blocks_of(re.sub(r"until heapline .*done\n", lambda _: UNTIL_PUSHED, file.read()))
        session = Session(self.directory)
        self.addCleanup(session.end)
        session.run("export XDG_STATE_HOME=$PWD/state")
        said = [session.run(block) for block in blocks]
        self.assertRegex(said[1], r"(?m)^1\.1 +1 .*\n1\.0 +1 ")
        self.assertRegex(said[2], r"render")
        self.assertRegex(said[3], r"\n\S+ +2 ")


if __name__ == "__main__":
    harness.main()
