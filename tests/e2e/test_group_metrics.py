#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Balances of containers in `heapline serve` equal `heapline pod`, and what is made of them names what there is."""

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import tempfile
import time
import urllib.request

import harness
import test_pod
import test_push
import test_serve
from harness import HEAPLINE
from otlp_file import metrics_of

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs")
UID = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
ID = "5d41402abc4b2a76b9719d911017c5925d41402abc4b2a76b9719d911017c592"
SLACK = test_pod.BATCH_BYTES
# Of /metrics, and in the JSON of 'pod', where it is there.
FIGURES = {"usage_bytes": "usage_bytes", "limit_bytes": "limit_bytes", "working_set_bytes": "working_set_bytes",
           "reclaimable_bytes": "reclaimable_bytes", "swap_bytes": "swap_bytes", "unreclaimable_bytes": None,
           "recorder_bytes": None}
KINDS = "anonymous", "shared", "cache", "kernel", "unknown"


def groups_of(text):
    """{cgroup: {figure: value}} of an answer of /metrics; and the labels beside."""
    figures, labels = {}, {}
    for name, said, value in re.findall(r"^heapline_cgroup_(\w+){(.*)} (\d+)$", text, re.M):
        pairs = dict(re.findall(r'(\w+)="([^"]*)"', said))
        group = pairs.pop("cgroup")
        figures.setdefault(group, {})[name] = int(value)
        labels[group] = pairs
    return figures, labels


class GroupsCase(test_pod.Groups):
    """Groups, and a server."""

    def serve(self, *options):
        return self.enterContext(test_serve.Server(self.directory, *options, tmpdir=self.directory))

    def ask(self, server):
        return groups_of(server.get("/metrics").decode())

    def own(self, figures):
        """Without groups of other tests that record at the same time."""
        return {group: said for group, said in figures[0].items() if re.search(rf"-{os.getpid()}\b", group)}

    def name_of(self, group):
        return group[len(self.mount):]

    def make_below(self, group, *names):
        """Subgroups, one below the other; the last one."""
        for name in names:
            if self.is_v2:
                with open(os.path.join(group, "cgroup.subtree_control"), "w", encoding="ascii") as file:
                    file.write("+memory")
            group = os.path.join(group, name)
            os.mkdir(group)
        return group

    @contextlib.contextmanager
    def parts(self, group):
        """pod_parts in the group; its pid."""
        with tempfile.TemporaryDirectory(dir="/dev/shm") as tmpfs, \
                subprocess.Popen([harness.program("pod_parts"), tmpfs, "-"], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True, preexec_fn=lambda: self.join(group)) as process:
            process.stdout.readline()
            self.assertEqual(process.stdout.readline(), "ready\n")
            try:
                yield process.pid
            finally:
                process.stdin.close()
                process.wait()
            self.assertEqual(process.returncode, 0)

    @contextlib.contextmanager
    def attached(self, pid):
        """A recorder in the process, whose collector is elsewhere."""
        with subprocess.Popen([HEAPLINE, "attach", "-p", str(pid), "-o", self.path(f"{pid}.hl")],
                              stderr=subprocess.DEVNULL) as attach:
            try:
                ask = [HEAPLINE, "ctl", "-p", str(pid), "status"]
                harness.wait_until(lambda: harness.run(ask).status == 0, "the recorder to be there")
                yield
            finally:
                attach.send_signal(signal.SIGINT)


class Served(GroupsCase):
    def test_figures_are_those_of_pod(self):
        with self.group() as group, self.parts(group) as pid, self.attached(pid):
            self.limit(group, 512 << 20)
            server = self.serve()

            def differ():
                own = self.ask(server)[0][self.name_of(group)]
                report = json.loads(harness.run([HEAPLINE, "pod", "--cgroup", group, "--json"]).stdout)
                self.assertLessEqual(set(FIGURES), set(own))
                # 'pod' counts slab of version 1 by its pages
                pairs = [(own[name], report[key] or 0) for name, key in FIGURES.items()
                         if key and (self.is_v2 or key != "reclaimable_bytes")]
                pairs += [(own[f"{kind}_bytes"], report["total"][f"{kind}_bytes"]) for kind in KINDS]
                return any(abs(mine - theirs) > SLACK for mine, theirs in pairs)

            # The kernel may be two seconds late with memory.stat.
            harness.wait_until(lambda: not differ(), "the figures to be the same", 20)
            figures, labels = self.ask(server)
            own = figures[self.name_of(group)]
            self.assertEqual(own["limit_bytes"], 512 << 20)
            self.assertEqual(own["oom_kills_total"], 0)
            self.assertLessEqual(abs(sum(own[f"{kind}_bytes"] for kind in KINDS) - own["usage_bytes"]), SLACK)
            self.assertEqual(own["unreclaimable_bytes"], own["usage_bytes"] - own["reclaimable_bytes"])
            self.assertGreater(own["recorder_bytes"], 0)
            self.assertEqual(labels[self.name_of(group)], {})

    def test_a_container_is_one_group_with_its_labels(self):
        forms = (("kubepods.slice", f"kubepods-pod{UID.replace('-', '_')}.slice", f"cri-containerd-{ID}.scope"), UID), \
            (("kubepods", "burstable", f"pod{UID}", ID), UID), \
            (("system.slice", f"docker-{ID}.scope"), None), (("docker", ID), None), \
            (("machine.slice", f"libpod-{ID}.scope"), None), \
            (("kubepods.slice", f"kubepods-pod{UID.replace('-', '_')}.slice", f"crio-{ID}.scope"), UID)
        for names, pod in forms:
            with self.subTest(names), self.group("forms") as group:
                container = self.make_below(group, *names)
                below = self.make_below(container, "init.scope")
                os.mkdir(os.path.join(os.path.dirname(container), f"crio-conmon-{ID}.scope"))
                expected = {"container": ID, "pod": pod} if pod else {"container": ID}
                with self.parts(below) as pid:
                    figures, labels = self.ask(self.serve("--containers"))
                    with self.attached(pid):
                        recorded, _ = self.ask(self.serve())
                name = self.name_of(container)
                self.assertEqual({key: said for key, said in labels.items() if key.startswith(self.name_of(group))},
                                 {name: expected})
                self.assertGreater(figures[name]["usage_bytes"], 60 << 20)
                self.assertEqual([key for key in recorded if key.startswith(self.name_of(group))], [name])

    def test_patterns_choose_groups_and_limits_above_count(self):
        with self.group("above") as above:
            self.limit(above, 256 << 20)
            below = self.make_below(above, "one", "two")
            name = self.name_of(above)
            for pattern, chosen in (f"{name}/*/two", {name, f"{name}/one/two"}), (f"{name}/o*", {
                    name, f"{name}/one", f"{name}/one/two"}), (above, {name}), (f"{above}/o?e", {name, f"{name}/one"}):
                figures = self.own(self.ask(self.serve("--cgroup", pattern)))
                self.assertEqual(set(figures), chosen, pattern)
                self.assertEqual({own["limit_bytes"] for own in figures.values()}, {256 << 20})
            self.assertTrue(below)
            self.assertEqual(self.own(self.ask(self.serve("--cgroup", "/no/such/group"))), {})

    def test_there_are_bounds(self):
        with self.group("many") as group:
            self.make_below(group, "0")
            for number in range(1, 260):
                os.mkdir(os.path.join(group, str(number)))
            server = self.serve("--cgroup", f"{self.name_of(group)}/*")
            text = server.get("/metrics").decode()
            figures = groups_of(text)
            self.assertEqual(len(figures[0]), 256)
            left_out = int(re.search(r"^heapline_cgroups_left_out (\d+)$", text, re.M)[1])
            self.assertGreaterEqual(left_out, 260 - len(self.own(figures)))
            self.assertLess(left_out, 20)
        result = harness.run([HEAPLINE, "serve", *["--cgroup", "x"] * 9])
        self.assertEqual(result.status, 2)
        self.assertIn("'--cgroup' is given more than 8 times", result.stderr)

    def test_kills_are_counted(self):
        with self.group("killed") as group:
            self.limit(group, 16 << 20)
            server = self.serve("--cgroup", self.name_of(group))
            code = "kept = []\nwhile True: kept.append(bytearray(100_000))"
            result = harness.run([harness.need("python3"), "-c", code], preexec_fn=lambda: self.join(group))
            self.assertEqual(result.status, -9)
            own = self.ask(server)[0][self.name_of(group)]
            self.assertEqual((own["oom_kills_total"], own["limit_bytes"]), (1, 16 << 20))

    def test_the_dashboard_and_the_alerts_name_what_there_is(self):
        with self.group() as group, self.parts(group) as pid, self.attached(pid):
            self.limit(group, 512 << 20)
            server = self.serve()
            harness.wait_until(lambda: b"heapline_cached_bytes{" in server.get("/metrics"), "a heap to be read")
            text = server.get("/metrics").decode()
            if promtool := test_serve.shutil.which("promtool"):
                result = subprocess.run([promtool, "check", "metrics"], input=text, text=True, capture_output=True,
                                        check=False)
                self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        there = set(re.findall(r"^(heapline_\w+)[{ ]", text, re.M))
        with open(os.path.join(DOCS, "heapline-dashboard.json"), encoding="utf-8") as file:
            dashboard = json.load(file)
        asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]] + \
            [variable["query"]["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
        with open(os.path.join(DOCS, "heapline-alerts.yml"), encoding="utf-8") as file:
            asked += re.findall(r"expr: (?:>-\n)?((?:.*\n)(?: {10}.*\n)*)", file.read())
        self.assertGreater(len(asked), 15)
        for expression in asked:
            names = set(re.findall(r"heapline_\w+", expression))
            self.assertTrue(names, expression)
            self.assertLessEqual(names, there, expression)

    def test_prometheus_accepts_what_the_dashboard_asks(self):
        promtool = harness.need("promtool")
        with open(os.path.join(DOCS, "heapline-dashboard.json"), encoding="utf-8") as file:
            panels = json.load(file)["panels"]
        rules = [{"record": f"panel:{panel['id']}:{target['refId']}",
                  "expr": target["expr"].replace("$__rate_interval", "5m")}
                 for panel in panels for target in panel["targets"]]
        with open(self.path("rules.yml"), "w", encoding="utf-8") as file:
            json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
        result = harness.run([promtool, "check", "rules", self.path("rules.yml")])
        self.assertEqual(result.status, 0, result.stdout + result.stderr)


    def test_a_container_with_its_own_namespace_of_groups_finds_those_of_the_host(self):
        """As a DaemonSet has it: the host's groups are mounted, and their names begin at the container's own."""
        harness.need_root()
        wrapper = [harness.need("unshare"), "--cgroup"]
        with self.group("wide") as group, self.group("tool") as tool, self.parts(group) as pid:
            inner = self.make_below(tool, "one", "two")

            def ask(*words):
                return harness.run([*wrapper, HEAPLINE, "pod", *words, "--json"], preexec_fn=lambda: self.join(inner))

            if ask("-p", str(os.getpid())).status and harness.run([*wrapper, "true"]).status:
                self.skipTest("no namespace of groups can be made here")
            for words in ("-p", str(pid)), ("--cgroup", self.name_of(group)), ("--cgroup", group):
                with self.subTest(words):
                    said = ask(*words)
                    self.assertEqual(said.status, 0, said.stderr)
                    report = json.loads(said.stdout)
                    self.assertEqual(report["group"], self.name_of(group))
                    self.assertIn(pid, [row["pid"] for row in report["rows"]])
            self.assertEqual(ask("--cgroup", "/../../../../../nowhere").status, 1)

    def test_each_panel_of_the_dashboard_has_data_in_prometheus(self):
        with open(os.path.join(DOCS, "heapline-dashboard.json"), encoding="utf-8") as file:
            panels = json.load(file)["panels"]
        with self.group() as group, self.parts(group) as pid, self.attached(pid):
            self.limit(group, 512 << 20)
            server = self.serve()
            harness.wait_until(lambda: b"heapline_cached_bytes{" in server.get("/metrics"), "a heap to be read")
            ask = self.enterContext(test_serve.prometheus(self.directory, server.port, self.path("token")))
            for panel in panels:
                for target in panel["targets"]:
                    question = target["expr"].replace("$instance", ".*").replace("$cgroup", f".*-{os.getpid()}").replace("$__rate_interval", "5m")
                    with self.subTest(f"{panel['title']} {target['refId']}"):
                        self.assertNotIn("$", question)
                        harness.wait_until(lambda question=question: ask(question), question)

    def test_alerts_fire_when_they_should_and_not_before(self):
        promtool = harness.need("promtool")
        rules = os.path.join(DOCS, "heapline-alerts.yml")
        process = 'service="app", script="", pid="7", instance="node"'
        group = 'cgroup="/pods/web", instance="node"'

        def series(name, labels, values):
            return {"series": f"{name}{{{labels}}}", "values": values}

        # Figures each minute; what fires then.
        cases = {
            "HeapGrows": (
                ([series("heapline_inuse_bytes", process, "100000000+2000000x90")], "90m", True),
                ([series("heapline_inuse_bytes", process, "100000000+2000000x90")], "45m", False),  # not for half an hour yet
                ([series("heapline_inuse_bytes", process, "100000000+2000000x20 140000000+0x70")], "90m", False),  # a cache that is full
                ([series("heapline_inuse_bytes", process, "9000000000+2000000x90")], "90m", False)),  # by less than a tenth
            "HeapNotRecorded": (
                ([series("heapline_lost_events_total", process, "0+10x20")], "15m", True),
                ([series("heapline_lost_events_total", process, "5+0x20")], "15m", False)),
            "GroupNearlyFull": (
                ([series("heapline_cgroup_unreclaimable_bytes", group, "95+0x20"), series("heapline_cgroup_limit_bytes", group, "100+0x20")], "10m", True),
                ([series("heapline_cgroup_unreclaimable_bytes", group, "89+0x20"), series("heapline_cgroup_limit_bytes", group, "100+0x20")], "10m", False),
                ([series("heapline_cgroup_unreclaimable_bytes", group, "95+0x20")], "10m", False)),  # without a limit
            "GroupKilled": (
                ([series("heapline_cgroup_oom_kills_total", group, "0x5 1x10")], "10m", True),
                ([series("heapline_cgroup_oom_kills_total", group, "3x20")], "10m", False)),
        }
        with open(rules, encoding="utf-8") as file:
            self.assertEqual(set(re.findall(r"- alert: (\w+)", file.read())), set(cases))
        for name, tries in cases.items():
            for number, (figures, after, fires) in enumerate(tries):
                test = {"interval": "1m", "input_series": figures, "alert_rule_test": [{"eval_time": after, "alertname": name, "exp_alerts": []}]}
                with open(self.path("test.yml"), "w", encoding="utf-8") as file:
                    json.dump({"rule_files": [os.path.abspath(rules)], "evaluation_interval": "1m", "tests": [test]}, file)
                said = harness.run([promtool, "test", "rules", self.path("test.yml")])
                with self.subTest(f"{name} {number}"):
                    # An alert that was not expected is the one difference.
                    self.assertEqual(said.status != 0, fires, said.stdout + said.stderr)
                    if fires:
                        self.assertRegex(said.stdout + said.stderr, f'alertname="{name}".*severity=')


class Pushed(GroupsCase):
    def push(self, to, *options):
        return harness.run([HEAPLINE, "push", "--to", to, "--spool", self.path("spool"), *options])

    def rows(self, store):
        with contextlib.closing(sqlite3.connect(store)) as database:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute("SELECT * FROM balances ORDER BY ms")]

    def test_a_store_has_them(self):
        store = self.path("fleet.db")
        with self.group("pushed") as group:
            container = self.make_below(group, f"pod{UID}", ID)
            with self.parts(container) as pid, self.attached(pid):
                harness.wait_until(lambda: not self.push(store, "-p", str(pid), "--once").status, "a window to be pushed")
                self.limit(container, 512 << 20)
                self.assertEqual(self.push(store, "-p", str(pid), "--once").status, 0)
                report = json.loads(harness.run([HEAPLINE, "pod", "--cgroup", container, "--json"]).stdout)
            first, last = self.rows(store)
            self.assertGreater(last["ms"], first["ms"])
            self.assertEqual({name: last[name] for name in ("host", "cgroup", "container", "pod", "limit_bytes", "oom_kills")}, {
                "host": os.uname().nodename, "cgroup": self.name_of(container), "container": ID, "pod": UID,
                "limit_bytes": 512 << 20, "oom_kills": 0})
            for kind in KINDS:
                self.assertLessEqual(abs(last[f"{kind}_bytes"] - report["total"][f"{kind}_bytes"]), 4 * SLACK, kind)
            self.assertEqual(last["unreclaimable_bytes"], last["usage_bytes"] - last["reclaimable_bytes"])
            self.assertIn(first["limit_bytes"], (None, report["limit_bytes"]))
            self.assertGreater(last["recorder_bytes"], 0)

    def test_clickhouse_has_them(self):
        with test_push.clickhouse(self.directory) as url, self.group("pushed") as group, self.parts(group) as pid, \
                self.attached(pid):
            server, database = re.fullmatch(r"clickhouse://([^/]+)/(\w+)", url).groups()

            def ask(sql):
                with urllib.request.urlopen(f"http://{server}/?database={database}", sql.encode()) as response:
                    return response.read().decode()

            result = harness.run([HEAPLINE, "fleet", "init", "--db", url])
            self.assertEqual(result.status, 0, result.stderr)
            ask("DROP TABLE balances")  # as a store of an older heapline
            harness.wait_until(lambda: not self.push(url, "-p", str(pid), "--once").status, "a window to be pushed")
            rows = [json.loads(line) for line in ask("SELECT * FROM balances FORMAT JSONEachRow").splitlines()]
            self.assertEqual([row["cgroup"] for row in rows], [self.name_of(group)])
            self.assertEqual(sum(int(rows[0][f"{kind}_bytes"]) for kind in KINDS), int(rows[0]["usage_bytes"]))
            self.assertIn(rows[0]["limit_bytes"], (None, str(json.loads(
                harness.run([HEAPLINE, "pod", "--cgroup", group, "--json"]).stdout)["limit_bytes"])))

    def test_clickhouse_answers_each_panel_of_the_dashboard(self):
        with open(os.path.join(DOCS, "heapline-fleet-dashboard.json"), encoding="utf-8") as file:
            dashboard = json.load(file)
        with test_push.clickhouse(self.directory) as url, self.group("panels") as group, self.parts(group) as pid, self.attached(pid), \
                test_serve.Recorded(self.path("recorded.hl")) as recorded:
            recorded.tell("alloc 1000")
            server, database = re.fullmatch(r"clickhouse://([^/]+)/(\w+)", url).groups()

            def ask(sql):
                with urllib.request.urlopen(f"http://{server}/?database={database}", sql.encode()) as response:
                    return response.read().decode()

            self.limit(group, 512 << 20)
            self.assertEqual(harness.run([HEAPLINE, "fleet", "init", "--db", url]).status, 0)
            harness.wait_until(lambda: not self.push(url, "-p", str(pid), "--once").status, "a window to be pushed")
            harness.wait_until(lambda: not self.push(url, "-p", str(recorded.pid), "--once").status and ask("SELECT 1 FROM deltas LIMIT 1"),
                               "stacks to be pushed")
            now_ms = int(time.time() * 1000)
            ask(f"INSERT INTO balances (host, cgroup, ms, usage_bytes, oom_kills) VALUES ('h', 'c', {now_ms}, 1, 0), ('h', 'c', {now_ms + 1}, 1, 2)")
            service, = (variable["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query")
            values = {"${__from}": str(now_ms - 3_600_000), "${__to}": str(now_ms + 600_000), "${__interval_ms}": "15000",
                      "${service:singlequote}": ",".join(f"'{name}'" for name in ask(service).split())}
            for panel in dashboard["panels"]:
                (target,) = panel["targets"]
                question = target["rawSql"]
                for name, value in values.items():
                    question = question.replace(name, value)
                with self.subTest(panel["title"]):
                    self.assertNotIn("$", question)
                    rows = ask(question).splitlines()
                    self.assertTrue(rows)
                    if panel["type"] == "timeseries":
                        self.assertRegex(rows[0], r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\t[^\t]+\t-?[\d.e]+$")

    def test_a_collector_of_opentelemetry_has_them(self):
        with self.group("pushed") as group, self.parts(self.make_below(group, f"docker-{ID}.scope")) as pid, \
                self.attached(pid), test_push.Backend() as backend:
            url = f"otlp+http://127.0.0.1:{backend.port}/base"
            options = "--experimental", "-p", str(pid), "--once"
            harness.wait_until(lambda: not self.push(url, *options).status, "a window to be pushed")
            (attributes, metrics), = metrics_of(dict(zip(backend.paths, backend.bodies))["/base/v1/metrics"][1])
            name = f"{self.name_of(group)}/docker-{ID}.scope"
            self.assertEqual(attributes, {"host.name": os.uname().nodename, "process.linux.cgroup": name, "container.id": ID})
            own = {key.rsplit(".", 1)[1]: value for key, (value, *_) in metrics.items()}
            self.assertEqual(sum(own[kind] for kind in KINDS), own["usage"])
            self.assertGreater(own["recorder"], 0)
            self.assertEqual(metrics["heapline.cgroup.oom_kills"][2:], ("{process}", True))
            self.assertEqual(metrics["heapline.cgroup.usage"][2:], ("By", False))
            self.assertLess(abs(metrics["heapline.cgroup.usage"][1] - time.time_ns()), 600 * 10**9)
            backend.refuses = "/v1/metrics"  # a server that takes profiles alone
            result = self.push(url, *options)
            self.assertEqual(result.status, 0, result.stderr)
            self.assertIn("; what containers are charged with is not pushed", result.stderr)
            self.assertNotIn("dropped", result.stderr)

    def test_an_old_store_is_given_the_table_and_an_outage_loses_none(self):
        store = self.path("fleet.db")
        with self.group("pushed") as group, self.parts(group) as pid, self.attached(pid):
            harness.wait_until(lambda: not self.push(store, "-p", str(pid), "--once").status, "a window to be pushed")
            with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as database:
                database.execute("DROP TABLE balances")
                database.execute("BEGIN EXCLUSIVE")  # longer than a store is waited for
                away = self.push(store, "-p", str(pid), "--once")
                database.execute("ROLLBACK")
            self.assertIn("in the spool", away.stderr)
            self.assertEqual(self.push(store, "-p", str(pid), "--once").status, 0)
            self.assertEqual([row["cgroup"] for row in self.rows(store)], [self.name_of(group)] * 2)


if __name__ == "__main__":
    harness.main()
