#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`heapline serve`: what it answers equals the views, and whoever asks cannot do more than read."""

import base64
import contextlib
import glob
import http.client
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

import harness
from pprof_file import PprofFile

BLOCK_BYTES = 127  # of control.c's alloc_site
CONNECTIONS_MAX = 64
CONNECTIONS_SPARE = 16
WAITS_MAX = 4
TOKEN = "0123456789abcdef0123456789abcdef"


OTHER_USER = 65534


def write_token(path):
    with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as file:
        file.write(TOKEN)


class Server:
    """`heapline serve` on a free port of loopback."""

    def __init__(self, directory, *options, tmpdir, user=None):
        self.headers = {}
        if os.geteuid() == 0 and user is None and "--token-file" not in options:
            token = os.path.join(tmpdir, "token")
            write_token(token)
            options += ("--token-file", token)
            self.headers = {"Authorization": f"Bearer {TOKEN}"}
        who = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        self.process = subprocess.Popen(
            [harness.HEAPLINE, "serve", "--listen", "127.0.0.1:0", *options, directory],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=dict(os.environ, TMPDIR=tmpdir), **who)
        line = self.process.stderr.readline()
        found = re.search(r"http://([0-9.]+):(\d+)/", line)
        if not found:
            raise AssertionError(f"it does not serve: {line}{self.process.stderr.read()}")
        self.port = int(found[2])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(harness.TIMEOUT_S)
        self.process.stderr.close()

    def ask(self, path, method="GET", address="127.0.0.1", **headers):
        """(status, headers, body)"""
        connection = http.client.HTTPConnection(address, self.port, timeout=harness.TIMEOUT_S)
        with contextlib.closing(connection):
            connection.putrequest(method, path, skip_host="Host" in headers)
            for name, value in {**self.headers, **headers}.items():
                connection.putheader(name, value)
            connection.endheaders()
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def get(self, path):
        status, _, body = self.ask(path)
        if status != 200:
            raise AssertionError(f"'{path}': {status} {body.decode()}")
        return body

    def refusal(self, path, method="GET", **headers):
        """(status, sentence); what libmicrohttpd 1.0 refuses by itself has a page of its own."""
        status, _, body = self.ask(path, method, **headers)
        if body.startswith(b"<html>"):
            return status, re.sub(rb"<[^>]*>", b" ", body).decode()
        return status, json.loads(body)["error"]


@contextlib.contextmanager
def prometheus(folder, port, token):
    """A Prometheus that scrapes the server at `port` each second; the function that asks it, which returns what it found."""
    program = harness.need("prometheus")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        own = free.getsockname()[1]
    config = os.path.join(folder, "prometheus.yml")
    with open(config, "w", encoding="ascii") as file:
        json.dump({"scrape_configs": [{
            "job_name": "heapline", "scrape_interval": "1s", "authorization": {"credentials_file": token},
            "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}]}, file)

    def ask(question):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{own}/api/v1/query?query={urllib.parse.quote(question)}") as response:
                return json.load(response)["data"]["result"]
        except (urllib.error.URLError, ConnectionError):
            return None

    with subprocess.Popen([program, f"--config.file={config}", f"--web.listen-address=127.0.0.1:{own}",
                           f"--storage.tsdb.path={os.path.join(folder, 'data')}"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield ask
        finally:
            process.kill()


class Recorded:
    """A program under record that allocates what it is told."""

    def __init__(self, recording, options=()):
        self.recording = recording
        self.process = subprocess.Popen(
            harness.record_command(recording, [harness.program("control")], options=options),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.tell("alloc 0")
        self.pid = harness.children_of(self.process.pid)[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.wait(harness.TIMEOUT_S)
        self.process.stdout.close()

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


def metrics(text):
    """{name: {pid: value}}"""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\d+)", line).groups()
            pid = re.search(r'pid="(\d+)"', labels or "")
            found.setdefault(name, {})[int(pid[1]) if pid else None] = int(value)
    return found


class ServeTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.recordings = self.path("recordings")
        os.mkdir(self.recordings)

    def start_recorded(self, name="live.hl", **options):
        recorded = Recorded(os.path.join(self.recordings, name), **options)
        self.enterContext(recorded)
        return recorded

    def start(self, *options):
        self.server = self.enterContext(Server(self.recordings, *options, tmpdir=self.directory))
        return self.server

    def start_without_token(self, *options):
        """Of a user who may do so."""
        user = None
        if os.geteuid() == 0:
            harness.need_other_user(OTHER_USER)
            user = OTHER_USER
        return self.enterContext(Server("/", *options, tmpdir="/tmp", user=user))

    def is_waiting(self):
        """Whether the server waits for what comes after its first snapshot."""
        tasks = f"/proc/{self.server.process.pid}/task"
        has_child = False
        for task in os.listdir(tasks):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                with open(f"{tasks}/{task}/children", encoding="ascii") as file:
                    has_child |= bool(file.read())
        return glob.glob(self.path("heapline-serve-*/before.hl")) and not has_child

    def profile(self, server, path):
        file = self.path("profile.pb.gz")
        with open(file, "wb") as out:
            out.write(server.get(path))
        return PprofFile(file)


class AnswersTest(ServeTest):
    def test_metrics_are_the_figures_of_the_process(self):
        recorded = self.start_recorded()
        server = self.start()
        before = metrics(server.get("/metrics").decode())
        recorded.tell("alloc 1000")
        recorded.tell("release 300")
        after = metrics(server.get("/metrics").decode())

        def growth(name):
            return after[name][recorded.pid] - before[name][recorded.pid]

        self.assertEqual(growth("heapline_allocated_objects_total"), 1000)
        self.assertEqual(growth("heapline_allocated_bytes_total"), 1000 * BLOCK_BYTES)
        self.assertEqual(growth("heapline_freed_objects_total"), 300)
        self.assertEqual(growth("heapline_freed_bytes_total"), 300 * BLOCK_BYTES)
        self.assertEqual(growth("heapline_inuse_objects"), 700)
        self.assertEqual(growth("heapline_inuse_bytes"), 700 * BLOCK_BYTES)
        self.assertGreater(after["heapline_resident_bytes"][recorded.pid], 100 << 10)
        self.assertEqual(after["heapline_lost_events_total"][recorded.pid], 0)

    def test_metrics_say_what_malloc_keeps(self):
        recorded = self.start_recorded()
        recorded.tell("alloc 1000")
        recorded.tell("release 1000")
        server = self.start()

        def read():
            found = metrics(server.get("/metrics").decode())
            return recorded.pid in found.get("heapline_cached_bytes", {}) and found

        # The first answer does not wait for the heap.
        self.assertFalse(read())
        found = harness.wait_until(read, "the heap to be read")
        self.assertLess(found["heapline_heap_age_seconds"][recorded.pid], 60)
        result = harness.run([harness.HEAPLINE, "heap", "-p", str(recorded.pid), "--json"])
        total = json.loads(result.stdout)["total"]
        self.assertGreater(total["free_resident_bytes"] + total["tcache_bytes"], 4096)
        self.assertEqual(found["heapline_cached_bytes"][recorded.pid],
                         total["tcache_bytes"] + total["fastbin_bytes"])
        self.assertEqual(found["heapline_retained_bytes"][recorded.pid],
                         total["free_resident_bytes"])
        # All that the recorder has in RAM, as 'heap' counts it, and not what it shares with its collector alone.
        self.assertGreater(total["resident_recorder_bytes"], 0)
        self.assertAlmostEqual(found["heapline_recorder_bytes"][recorded.pid], total["resident_recorder_bytes"],
                               delta=1 << 20)

    def test_labels_name_service_script_and_user(self):
        folder = self.path("My App")
        os.mkdir(folder)
        script = os.path.join(folder, "svc.py")
        with open(script, "w", encoding="ascii") as file:
            file.write("print(flush=True); input()")
        programs = [os.path.join(folder, name) for name in ("one", "two")]
        for program in programs:
            shutil.copy(harness.program("control"), program)
        for number, command in enumerate([[program] for program in programs] + [[sys.executable, script]]):
            process = self.enterContext(subprocess.Popen(
                harness.record_command(self.path(f"recordings/{number}.hl"), command),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
            self.addCleanup(process.stdin.close)
            if number < 2:
                process.stdin.write("alloc 1\n")
                process.stdin.flush()
            process.stdout.readline()
        text = self.start().get("/metrics").decode()
        user = pwd.getpwuid(os.geteuid()).pw_name
        for labels in ('service="one"', 'service="two"',
                       f'service="{os.path.basename(sys.executable)}",script="svc.py"'):
            self.assertRegex(text, f'heapline_inuse_bytes{{pid="[0-9]+",command="[^"]+",{labels}(,container="[^"]+")?,user="{user}"}}')

    def test_prometheus_accepts_the_metrics(self):
        promtool = harness.need("promtool")
        rules = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/heapline-alerts.yml")
        result = harness.run([promtool, "check", "rules", rules])
        self.assertEqual(result.status, 0, result.stdout + result.stderr)
        self.start_recorded()
        text = self.start().get("/metrics").decode()
        result = subprocess.run([promtool, "check", "metrics"], input=text, text=True,
                                capture_output=True, check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)

    def test_prometheus_scrapes_them_with_a_token_and_can_be_asked(self):
        recorded = self.start_recorded()
        recorded.tell("alloc 1000")
        token = self.path("token")
        with open(os.open(token, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as file:
            file.write(TOKEN + "\n")
        server = self.start("--token-file", token)
        ask = self.enterContext(prometheus(self.directory, server.port, token))
        question = f'heapline_inuse_bytes{{pid="{recorded.pid}"}}'
        result = harness.wait_until(lambda: ask(question), "Prometheus to have scraped it")
        self.assertEqual(result[0]["metric"]["command"], "control")
        self.assertGreaterEqual(int(result[0]["value"][1]), 1000 * BLOCK_BYTES)

    def test_profiles_have_the_sums_of_top(self):
        recorded = self.start_recorded()
        recorded.tell("alloc 1000")
        recorded.tell("release 300")
        server = self.start()
        snapshot = self.path("snapshot.hl")
        result = harness.run([harness.HEAPLINE, "ctl", "-p", str(recorded.pid), "snapshot", snapshot])
        self.assertEqual(result.status, 0, result.stderr)
        expected = harness.info(snapshot)["total"]

        def is_saved():
            profile = self.profile(server, f"/debug/pprof/heap?pid={recorded.pid}")
            return profile if profile.top("inuse_objects").get("alloc_site", (0, 0))[0] == 700 else None

        heap = harness.wait_until(is_saved, "the collector to save the recording")
        self.assertEqual(heap.default, "inuse_space")
        for type_, figure in (("inuse_space", "inuse_bytes"), ("inuse_objects", "inuse_objects"),
                              ("alloc_space", "alloc_bytes"), ("alloc_objects", "alloc_objects")):
            flat = sum(row[0] for row in heap.top(type_).values())
            self.assertEqual(flat, expected[figure], type_)
        allocs = self.profile(server, f"/debug/pprof/allocs?pid={recorded.pid}")
        self.assertEqual(allocs.default, "alloc_space")
        text = server.get(f"/pprof/heap?pid={recorded.pid}").decode()
        self.assertTrue(text.startswith("--- symbol\n"))
        self.assertIn(f"\nheap profile: {expected['inuse_objects']}: {expected['inuse_bytes']} [", text)

    def test_seconds_give_what_comes_within_them(self):
        recorded = self.start_recorded()
        recorded.tell("alloc 1000")
        server = self.start()
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        with contextlib.closing(connection):
            connection.request("GET", f"/debug/pprof/allocs?pid={recorded.pid}&seconds=10",
                               headers=server.headers)
            harness.wait_until(self.is_waiting, "the first snapshot")
            recorded.tell("alloc 50")
            recorded.tell("release 1010")
            response = connection.getresponse()
            body = response.read()
        self.assertEqual(response.status, 200, body)
        file = self.path("growth.pb.gz")
        with open(file, "wb") as out:
            out.write(body)
        growth = PprofFile(file)
        self.assertEqual(growth.top("alloc_objects")["alloc_site"][0], 50)
        self.assertEqual(growth.top("inuse_objects")["alloc_site"][0], 50 - 1010)

    def test_views_are_those_of_heapline(self):
        self.record_well([harness.program("known_answer")], name="recordings/known.hl")
        server = self.start()
        known = os.path.join(self.recordings, "known.hl")
        for path, command in (
                ("/api/top?recording=known.hl&rows=3&value=alloc",
                 ["top", "--json", "--rows", "3", "-v", "alloc", known]),
                ("/api/info?recording=known.hl", ["info", "--json", known]),
                ("/api/lines?recording=known.hl&focus=main",
                 ["lines", "--json", "--focus", "main", known]),
                ("/api/tree?recording=known.hl&plumbing=", ["tree", "--json", "--plumbing", known]),
                ("/api/diff?recording=known.hl&before=known.hl", ["diff", "--json", known, known]),
                ("/api/info?recording=known.hl&stacks=", ["info", "--json", "--stacks", known]),
                ("/api/top?recording=known.hl&root=type&focus=main&focus=alloc",
                 ["top", "--json", "--root", "type", "--focus", "main", "--focus", "alloc", known]),
                ("/api/lines?recording=known.hl&freed=", ["lines", "--json", "--freed", known]),
                ("/text/top?recording=known.hl", ["top", known]),
                ("/report?recording=known.hl", ["report", known])):
            with self.subTest(path=path):
                expected = harness.run([harness.HEAPLINE, *command])
                self.assertEqual(expected.status, 0, expected.stderr)
                self.assertEqual(server.get(path).decode(), expected.stdout)

    def test_the_heap_of_a_process_is_read_as_it_is(self):
        recorded = self.start_recorded()
        recorded.tell("alloc 1000")
        heap = json.loads(self.start().get(f"/api/heap?pid={recorded.pid}"))
        self.assertEqual(heap["schema"], "heapline/heap/1")
        self.assertGreaterEqual(heap["total"]["inuse_bytes"], 1000 * BLOCK_BYTES)

    def test_options_that_choose_what_is_shown_are_arguments(self):
        self.record_well([harness.program("known_answer")], mode="log-fast", name="recordings/log.hl")
        recorded = self.start_recorded()
        server = self.start()
        refused = {}
        for verb in ("top", "lines", "tree", "timeline", "peaks", "growth", "sizes", "info", "diff", "heap", "carriers",
                     "allocations", "leaks", "holders"):
            offered = harness.run([harness.HEAPLINE, "--complete", verb, "--"]).stdout
            of_heap = verb in ("heap", "carriers", "allocations", "leaks", "holders")
            where = f"pid={recorded.pid}" if of_heap else "recording=log.hl&before=log.hl"
            for option in re.findall("^--(\\S+)", offered, re.M):
                _, _, body = server.ask(f"/api/{verb}?{where}&{option}=%20bad")
                if b"there is no argument" in body:
                    refused.setdefault(option, set()).add(verb)
        # Files, layout of text, what the address decides, what touches the process, statuses. A new option of a view is either
        # one of these, or is to be added to those that cmd_serve.c takes.
        self.assertEqual(sorted(refused), sorted([
            "ask", "at-exit", "color", "comm", "core", "diff", "fail-above", "force", "format", "help", "ignore", "jobs", "json", "keep",
            "no-pager", "output", "plain", "process", "save", "stop", "swapped", "term", "watch"]))
        self.assertEqual(refused["ignore"], {"leaks"})
        self.assertEqual(json.loads(server.get("/api/peaks?recording=log.hl&between=0,1&valley=10"))["schema"],
                         "heapline/peaks/1")

    def test_the_page_lists_what_there_is_and_its_links_work(self):
        self.record_well([harness.program("known_answer")], name='recordings/a "quoted" <name>.hl')
        recorded = self.start_recorded()
        server = self.start()
        harness.wait_until(lambda: server.ask(f"/api/info?pid={recorded.pid}")[0] == 200,
                           "a first save")
        page = server.get("/").decode()
        self.assertIn("a &#34;quoted&#34; &#60;name&#62;.hl", page)
        self.assertNotIn("<name>", page)
        links = {link.replace("&amp;", "&") for link in re.findall(r'href="([^"]+)"', page)}
        # Others may be recording, too, and end at any time.
        own = [link for link in sorted(links) if link == "/metrics" or
               re.search(rf"pid={recorded.pid}\b|recording=a%20%22", link)]
        self.assertEqual(len(own), 12, links)
        for link in own:
            with self.subTest(link=link):
                server.get(link)

    def test_recordings_of_one_name_keep_theirs(self):
        folders = [self.path(name) for name in ("one", "two")]
        for folder in folders:
            os.mkdir(folder)
            self.record_well([harness.program("known_answer")],
                             name=os.path.join(os.path.basename(folder), "same.hl"))
        names = []
        for order in (folders, folders[::-1]):
            with Server(order[0], order[1], tmpdir=self.directory) as server:
                page = server.get("/").decode()
                names.append(set(re.findall(r"/text/top\?recording=(same[^\"]*)", page)))
                for name in names[-1]:
                    server.get(f"/api/top?recording={name}")
        self.assertEqual(names[0], names[1])
        self.assertEqual(len(names[0]), 2)

    def test_more_recordings_than_are_listed_are_counted(self):
        for number in range(1003):
            with open(os.path.join(self.recordings, f"r{number}.hl"), "w", encoding="ascii"):
                pass
        page = self.start().get("/").decode()
        self.assertRegex(page, r"\d+ older recordings are not listed")

    def test_a_collector_that_did_not_answer_is_left_alone_for_a_while(self):
        recorded, other = self.start_recorded("stopped.hl"), self.start_recorded("other.hl")
        server = self.start()

        def seen():
            return metrics(server.get("/metrics").decode())["heapline_inuse_bytes"]

        self.assertIn(recorded.pid, seen())
        os.kill(recorded.process.pid, signal.SIGSTOP)
        try:
            self.assertNotIn(recorded.pid, seen())
        finally:
            os.kill(recorded.process.pid, signal.SIGCONT)
        figures = seen()
        self.assertNotIn(recorded.pid, figures)
        self.assertIn(other.pid, figures)

    def test_two_processes_are_told_apart(self):
        one, other = self.start_recorded("one.hl"), self.start_recorded("other.hl")
        one.tell("alloc 10")
        other.tell("alloc 20")
        server = self.start()
        status, sentence = server.refusal("/debug/pprof/heap")
        self.assertEqual(status, 400)
        self.assertRegex(sentence, "^[0-9]+ processes are being recorded")
        for recorded, count in ((one, 10), (other, 20)):
            path = f"/api/top?pid={recorded.pid}&value=alloc&unit=objects&focus=alloc_site"

            def is_saved(path=path, count=count):
                status, _, body = server.ask(path)
                return status == 200 and json.loads(body)["total"]["alloc_objects"] == count

            harness.wait_until(is_saved, "the collector to save the recording")


class RefusalsTest(ServeTest):
    def test_what_is_asked_wrongly_gets_a_sentence(self):
        self.record_well([harness.program("known_answer")], name="recordings/a.hl")
        server = self.start()
        for path, expected in (
                ("/nothing", 404), ("/api/", 404), ("/api/record", 404), ("/api/top/x", 404),
                ("/api/top?recording=../recordings/a.hl", 404), ("/../../etc/passwd", 404),
                ("/api/top?recording=/etc/passwd", 404), ("/%2e%2e/%2e%2e/etc/passwd", 404),
                ("/api/top?pid=1", 404), ("/api/heap?pid=1", 404),
                ("/api/top?recording=a.hl&output=/tmp/x", 400), ("/api/leaks?ignore=/etc/shadow", 400),
                ("/api/heap?stop=", 400), ("/api/top?recording=a.hl&rows=many", 400),
                ("/api/top?recording=a.hl&focus=(", 400), ("/api/diff?recording=a.hl", 400),
                ("/debug/pprof/heap?seconds=0&pid=1", 400), ("/metrics?rows=1", 400),
                ("/debug/pprof/heap?seconds=601", 400), ("/api/top?recording=a.hl%00x", 400),
                ("/api/top?recording=a.hl&focus=%00", 400), ("/api/top%00?recording=a.hl", 400),
                ("/api/top?recording=b.hl&recording=a.hl", 400), ("/api/top?recording=a.hl&rows=1&rows=2", 400),
                ("/api/top?recording=a.hl&between=1,2", 400), ("/api/peaks?recording=a.hl&between=1", 400),
                ("/api/peaks?recording=a.hl&between=1,--output", 400), ("/api/top?pid=-1", 400),
                ("/debug/pprof/heap?recording=a.hl&seconds=1", 400),
                ("/api/top?recording=a.hl&focus=" + "x" * 2000, 400),
                ("/?" + "&".join(f"a{i}=1" for i in range(100)), 400)):
            with self.subTest(path=path[:80]):
                status, sentence = server.refusal(path)
                self.assertEqual(status, expected, sentence)
                self.assertGreater(len(sentence), 10)
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE"):
            with self.subTest(method=method):
                self.assertEqual(server.ask("/metrics", method)[0], 405)
        self.assertEqual(server.ask("/metrics", "HEAD")[0], 200)

    def test_damaged_recordings_cost_an_answer_and_no_more(self):
        for name in ("empty.hl", "folder.hl"):
            path = os.path.join(self.recordings, name)
            if name.startswith("folder"):
                os.mkdir(path)
            else:
                with open(path, "wb"):
                    pass
        os.symlink("/etc", os.path.join(self.recordings, "link.hl"))
        server = self.start()
        self.assertNotIn(b"link.hl", server.get("/"))
        self.assertEqual(server.ask("/api/top?recording=link.hl")[0], 404)
        for name in ("empty.hl", "folder.hl"):
            status, sentence = server.refusal(f"/api/top?recording={name}")
            self.assertEqual(status, 422)
            self.assertIn(name, sentence)

    def test_nobody_without_the_token_is_answered(self):
        token = self.path("token")
        write_token(token)
        server = self.start("--token-file", token)

        def basic(text):
            return {"Authorization": "Basic " + base64.b64encode(text.encode()).decode()}

        for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": f"Bearer {TOKEN}x"},
                        {"Authorization": f"Bearer {TOKEN[:-1]}"}, basic("me:wrong"), basic(TOKEN),
                        {"Authorization": "Basic !!!"}, {"Authorization": "x" * 5000}):
            with self.subTest(headers=headers):
                self.assertEqual(server.ask("/metrics", **headers)[0], 401)
        for headers in ({"Authorization": f"Bearer {TOKEN}"}, basic(f"me:{TOKEN}")):
            self.assertEqual(server.ask("/metrics", **headers)[0], 200)
        # With a token any name of the host will do: a proxy's, for one.
        headers = {"Authorization": f"Bearer {TOKEN}", "Host": "metrics.example"}
        self.assertEqual(server.ask("/metrics", **headers)[0], 200)

    def test_root_asks_for_a_token(self):
        harness.need_root()
        result = harness.run([harness.HEAPLINE, "serve", self.recordings], timeout=60)
        self.assert_refused(result, "--token-file")

    def test_pages_of_other_sites_cannot_ask(self):
        server = self.start_without_token()
        self.assertEqual(server.ask("/metrics", Host="evil.example")[0], 403)
        self.assertEqual(server.ask("/metrics", Host=f"localhost:{server.port}")[0], 200)
        self.assertEqual(server.ask("/metrics", Host=f"127.0.0.2:{server.port}")[0], 403)

    def test_pages_of_other_sites_cannot_have_a_browser_ask(self):
        server = self.start()
        own = f"localhost:{server.port}"
        for headers, expected in (
                ({"Sec-Fetch-Site": "cross-site"}, 403), ({"Sec-Fetch-Site": "same-site"}, 403),
                ({"Origin": "http://other.example"}, 403), ({"Origin": "null"}, 403),
                ({"Origin": f"http://{own}x"}, 403), ({"Origin": f"http://{own}"}, 200),
                ({"Sec-Fetch-Site": "same-origin"}, 200), ({"Sec-Fetch-Site": "none"}, 200)):
            with self.subTest(headers=headers):
                self.assertEqual(server.ask("/metrics", Host=own, **headers)[0], expected)

    def test_a_request_names_one_host(self):
        server = self.start()
        token = "".join(f"{name}: {value}\r\n" for name, value in server.headers.items())
        for head, expected in (("GET / HTTP/1.1\r\n", 400), ("GET / HTTP/1.0\r\n", 200),
                               ("GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n", 400),
                               ("GET / HTTP/1.0\r\nHost: localhost\r\nhost: a.example\r\n", 400)):
            with self.subTest(head=head):
                with socket.create_connection(("127.0.0.1", server.port), timeout=harness.TIMEOUT_S) as connection:
                    connection.sendall(f"{head}{token}Connection: close\r\n\r\n".encode())
                    self.assertIn(f" {expected} ".encode(), connection.recv(100))

    def test_a_server_on_another_loopback_address_answers_to_it(self):
        server = self.start_without_token("--listen", "127.0.0.2:0")
        own = f"127.0.0.2:{server.port}"
        self.assertEqual(server.ask("/metrics", address="127.0.0.2", Host=own)[0], 200)
        self.assertEqual(server.ask("/metrics", address="127.0.0.2", Host="evil.example")[0], 403)

    def test_bad_settings_are_refused(self):
        open_token = self.path("open")
        with open(open_token, "w", encoding="ascii") as file:
            file.write(TOKEN)
        os.chmod(open_token, 0o644)
        short = self.path("short")
        with open(os.open(short, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as file:
            file.write("short")
        right = self.path("right")
        write_token(right)
        server = self.start()
        for options, part in (
                (["--listen", "0.0.0.0:0"], "without a token"), (["--listen", "nonsense"], "127.0.0.1:7373"),
                (["--listen", "127.0.0.1:70000"], "127.0.0.1:7373"),
                (["--listen", f"127.0.0.1:{server.port}", "--token-file", right], "cannot listen on"),
                (["--token-file", open_token], "chmod 600"), (["--token-file", short], "16 to 256"),
                (["--token-file", self.path("none")], "No such file"),
                (["--token-file", right, self.path("none")], "No such file")):
            with self.subTest(options=options):
                result = harness.run([harness.HEAPLINE, "serve", *options], timeout=60)
                self.assert_refused(result, part)


class BoundsTest(ServeTest):
    def test_a_thousand_connections_that_say_nothing_are_bounded(self):
        recorded = self.start_recorded()
        server = self.start()
        server.get("/metrics")
        sockets = []
        with contextlib.ExitStack() as stack:
            for _ in range(1000):
                try:
                    connection = socket.create_connection(("127.0.0.1", server.port), timeout=10)
                except OSError:
                    break
                stack.enter_context(connection)
                sockets.append(connection)
                with contextlib.suppress(OSError):
                    connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
            threads = len(os.listdir(f"/proc/{server.process.pid}/task"))
            self.assertLessEqual(threads, CONNECTIONS_MAX + CONNECTIONS_SPARE + 4)
            # Who asks is answered meanwhile: the one that is longest at its header has to go.
            figures = harness.wait_until(lambda: self.try_metrics(server), "it to answer")
        self.assertGreater(len(sockets), CONNECTIONS_MAX)
        self.assertIn(recorded.pid, figures["heapline_inuse_bytes"])

    def test_a_header_that_does_not_end_is_ended(self):
        server = self.start()
        with socket.create_connection(("127.0.0.1", server.port), timeout=harness.TIMEOUT_S) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-")
            connection.settimeout(1)

            def is_closed():
                try:
                    connection.sendall(b"a")  # it is not silent
                    return connection.recv(100) == b""
                except TimeoutError:
                    return False
                except OSError:
                    return True

            harness.wait_until(is_closed, "the server to close it", timeout=60)

    def test_work_ends_when_the_client_has_gone(self):
        recorded = self.start_recorded()
        server = self.start()
        head = "".join(f"{name}: {value}\r\n" for name, value in server.headers.items())

        def wait_and_leave():
            with socket.create_connection(("127.0.0.1", server.port), timeout=harness.TIMEOUT_S) as connection:
                connection.sendall(f"GET /debug/pprof/heap?pid={recorded.pid}&seconds=600 HTTP/1.1\r\n"
                                   f"Host: localhost\r\n{head}\r\n".encode())
                harness.wait_until(self.is_waiting, "the first snapshot")

        for _ in range(WAITS_MAX + 2):  # more than may wait at once
            wait_and_leave()
            harness.wait_until(lambda: not glob.glob(self.path("heapline-serve-*")), "the snapshots to go")
        self.assertEqual(server.ask("/metrics")[0], 200)

    def test_few_wait_at_once(self):
        recorded = self.start_recorded()
        server = self.start()
        path = f"/debug/pprof/heap?pid={recorded.pid}&seconds=600"
        with contextlib.ExitStack() as stack:
            for number in range(WAITS_MAX):
                connection = stack.enter_context(contextlib.closing(
                    http.client.HTTPConnection("127.0.0.1", server.port)))
                connection.request("GET", path, headers=server.headers)
                harness.wait_until(
                    lambda number=number: len(glob.glob(self.path("heapline-serve-*/before.hl"))) > number,
                    "the first snapshot")
            status, headers, body = server.ask(path)
            self.assertEqual((status, headers["Retry-After"]), (503, "10"), body)
            self.assertEqual(server.ask("/metrics")[0], 200)

    @staticmethod
    def try_metrics(server):
        try:
            return metrics(server.get("/metrics").decode())
        except (OSError, http.client.HTTPException):
            return None

    def test_it_ends_at_once_while_somebody_waits(self):
        recorded = self.start_recorded()
        server = self.start()
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        with contextlib.closing(connection):
            connection.request("GET", f"/debug/pprof/heap?pid={recorded.pid}&seconds=600",
                               headers=server.headers)
            harness.wait_until(self.is_waiting, "the first snapshot")
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(60), 0)

    def test_another_users_processes_are_not_there(self):
        uid = OTHER_USER
        harness.need_other_user(uid)
        recorded = self.start_recorded()
        with subprocess.Popen([harness.HEAPLINE, "serve", "--listen", "127.0.0.1:0", "/"],
                              stderr=subprocess.PIPE, text=True, user=uid, group=uid,
                              extra_groups=[]) as process:
            self.addCleanup(process.kill)
            port = re.search(r":(\d+)/", process.stderr.readline())[1]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
                self.assertNotIn(recorded.pid, metrics(response.read().decode()).get(
                    "heapline_inuse_bytes", {}))
            with self.assertRaises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api/heap?pid={recorded.pid}")
            self.assertEqual(refused.exception.code, 404)
            process.terminate()
            process.wait(harness.TIMEOUT_S)


# Listens where collectors of its user do, and names whatever it is told.
LYING_COLLECTOR = """
import json, os, socket, sys
user, directory, recording, *processes = sys.argv[1:]
os.setgroups([])
os.setgid(int(user))
os.setuid(int(user))
os.makedirs(directory, 0o700, exist_ok=True)
listener = socket.socket(socket.AF_UNIX)
listener.bind(f"{directory}/{os.getpid()}.sock")
listener.listen()
print(flush=True)
rows = [{"pid": int(pid), "sequence": 0, "command": ["postgres"], "mode": "mem-fast", "ms": 1, "inuse_bytes": 1 << 62}
        for pid in processes]
while True:
    connection, _ = listener.accept()
    asked = connection.recv(4096)
    connection.sendall(json.dumps({"recorded": True, "recording": recording, "processes": rows}).encode())
    connection.close()
"""


class OtherUsersTest(ServeTest):
    """Root's server believes what a collector of another user says about that user alone."""

    def setUp(self):
        super().setUp()
        harness.need_other_user(OTHER_USER)
        os.chmod(self.directory, 0o755)

    def start_collector(self, recording, *pids):
        directory = f"/tmp/heapline-{OTHER_USER}"
        process = self.enterContext(subprocess.Popen(
            [sys.executable, "-c", LYING_COLLECTOR, str(OTHER_USER), directory, recording, *[str(pid) for pid in pids]],
            stdout=subprocess.PIPE))
        self.addCleanup(self.remove_socket, f"{directory}/{process.pid}.sock")
        self.addCleanup(process.kill)
        process.stdout.readline()

    @staticmethod
    def remove_socket(path):
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)

    def start_victim(self, **options):
        process = self.enterContext(subprocess.Popen(["sleep", "1000"], **options))
        self.addCleanup(process.kill)
        return process.pid

    def test_processes_and_recordings_of_root_are_not_shown(self):
        private = self.path("private")
        os.mkdir(private, 0o700)
        self.record_well([harness.program("known_answer")], name="private/secret.hl")
        secret = os.path.join(private, "secret.hl")
        victim = self.start_victim()
        for recording in (secret, "/"):  # the other may be seen, and is not a recording
            self.start_collector(recording, victim)
        server = self.start()
        self.assertNotIn(victim, metrics(server.get("/metrics").decode()).get("heapline_inuse_bytes", {}))
        self.assertEqual(server.ask("/api/info?recording=secret.hl")[0], 404)
        for view in ("heap", "leaks", "holders"):
            self.assertEqual(server.ask(f"/api/{view}?pid={victim}")[0], 404)
        harness.wait_until(lambda: b"not that user" in server.get("/"), "both collectors to have answered in time")

    def test_files_that_the_user_may_not_read_are_not_read(self):
        """The recording may be seen, and leads to one that may not."""
        self.record_well([harness.program("known_answer")], name="private.hl")
        target = self.path("private.hl")
        recording = self.path("theirs.hl")
        os.mkdir(recording)
        os.chown(recording, OTHER_USER, OTHER_USER)
        for name in os.listdir(target):
            os.chmod(os.path.join(target, name), 0o600)
            os.symlink(os.path.join(target, name), os.path.join(recording, name))
        own = self.start_victim(user=OTHER_USER, group=OTHER_USER, extra_groups=[])
        self.start_collector(recording, own, own, own)
        server = self.start()
        text = server.get("/metrics").decode()
        # One row for each process, which names whose it is.
        self.assertEqual(len(re.findall(f'inuse_bytes{{pid="{own}"[^}}]*user="nobody"', text)), 1)
        status, sentence = server.refusal("/api/info?recording=theirs.hl")
        self.assertEqual(status, 422, sentence)
        self.assertIn("Permission denied", sentence)
        self.assertEqual(server.ask(f"/api/heap?pid={own}")[0], 200)

    def test_push_does_not_read_for_another_user(self):
        private = self.path("private")
        os.mkdir(private, 0o700)
        self.record_well([harness.program("known_answer")], name="private/secret.hl")
        sequence, pid = re.findall(r"process-(\d+)-(\d+)", " ".join(os.listdir(os.path.join(private, "secret.hl"))))[0]
        self.assertEqual(sequence, "0")
        self.start_collector(os.path.join(private, "secret.hl"), pid, os.getpid())
        store = self.path("store.db")
        process = self.enterContext(subprocess.Popen(
            [harness.HEAPLINE, "push", "--all", "--every", "1", "--to", store, "--spool", self.path("spool")],
            stderr=subprocess.DEVNULL, env=dict(os.environ, XDG_CACHE_HOME=self.path("cache"))))
        self.addCleanup(process.kill)
        recorded = self.start_recorded()  # which it sees, so that it has seen the other

        def top():
            result = harness.run([harness.HEAPLINE, "fleet", "top", "--db", store, "--json"])
            return result.stdout if result.status == 0 and "alloc_site" in result.stdout else None

        recorded.tell("alloc 1000")
        self.assertNotIn("known_answer", harness.wait_until(top, "the store to have what is recorded"))


if __name__ == "__main__":
    harness.main()
