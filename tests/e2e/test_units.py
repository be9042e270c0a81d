#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The units of systemd that the package brings do their job with the rights, the mounts and the limits that they name."""

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import urllib.error
import urllib.request

import harness
import test_pod

DEBIAN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "debian")
OTHER_USER = 65534
TOKEN = "0123456789abcdef0123456789abcdef"

# Without systemd: all is read-only but what the unit names, as ProtectSystem=strict has it.
MOUNTS = """
set -e
mount --make-rprivate /
mount --rbind / /
cut -d' ' -f5 /proc/self/mountinfo | sort -u | while read -r at; do
    case $(printf %b "$at") in /proc|/proc/*|/sys|/sys/*|/dev|/dev/*) ;;
    *) mount -o remount,bind,ro "$(printf %b "$at")" 2>/dev/null || true;; esac
done
for at in $WRITABLE; do mount --bind "$at" "$at"; mount -o remount,bind,rw "$at"; done
cd /
exec "$@"
"""

LARGE = "import asyncio, http.server, sqlite3, unittest.mock, xml.dom.minidom; print('ready', flush=True); input()"


def read_unit(name):
    """{key: [values]} of its section [Service]"""
    settings = {}
    with open(os.path.join(DEBIAN, f"heapline.{name}.service"), encoding="utf-8") as file:
        section = file.read().split("[Service]")[1].split("\n[")[0]
    for key, value in re.findall(r"^(\w+)=(.*)$", section, re.M):
        settings.setdefault(key, []).append(value)
    return settings


def pids_group(name, tasks_max):
    """A cgroup with the limit of the unit, or None where there is none to be had."""
    for base in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup"):
        group = os.path.join(base, name)
        with contextlib.suppress(OSError):
            os.mkdir(group)
            with open(os.path.join(group, "pids.max"), "w", encoding="ascii") as file:
                file.write(tasks_max)
            return group
        with contextlib.suppress(OSError):
            os.rmdir(group)
    return None


class Unit:
    """A process as the unit has it begun, with directories of the test where it names those of the host."""

    def __init__(self, test, name, environment, directories, without=()):
        self.settings = read_unit(name)
        words = shlex.split(self.settings["ExecStart"][0])
        environment = dict(environment, XDG_CACHE_HOME=directories["cache"])
        command = [self.expand(word, environment, directories) for word in words[1:]]
        # Each name of an unit's setting that is not understood here would make the test say less than it seems to.
        known = {"ProtectSystem": ["strict"], "NoNewPrivileges": ["yes"], "UMask": ["0077"]}
        for key, value in known.items():
            test.assertEqual(self.settings[key], value)
        capabilities = [word for word in self.settings["CapabilityBoundingSet"][0].split() if word not in without]
        rights = ",".join(["-all"] + ["+" + word.removeprefix("CAP_").lower() for word in capabilities])
        writable = " ".join([*" ".join(self.settings.get("ReadWritePaths", [])).split(), *directories.values()])
        group = pids_group(f"heapline-test-{os.getpid()}-{name}", self.settings["TasksMax"][0])
        if group:
            test.addCleanup(harness.wait_until, lambda: test_pod.Groups.removed(group), "the unit's group to be empty")

        def enter():
            os.umask(0o077)
            if group:
                with open(os.path.join(group, "cgroup.procs"), "w", encoding="ascii") as file:
                    file.write("0")

        self.log_path = test.path(f"{name}.log")
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["unshare", "-m", "sh", "-c", MOUNTS, "sh", "setpriv", "--no-new-privs", f"--bounding-set={rights}",
                 "--inh-caps=-all", harness.HEAPLINE, *command],
                stdin=subprocess.DEVNULL, stderr=log, preexec_fn=enter,
                env={"PATH": os.environ["PATH"], "WRITABLE": writable, **environment})
        test.addCleanup(self.end)

    @staticmethod
    def expand(word, environment, directories):
        for name, value in environment.items():
            word = word.replace("${" + name + "}", value)
        return re.sub(r"^/var/lib/[^/]+", directories["state"], word)

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(harness.TIMEOUT_S)

    def log(self):
        with open(self.log_path, encoding="utf-8") as file:
            return file.read()


class UnitsTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        harness.need_other_user(OTHER_USER)
        harness.need("setpriv")
        if harness.run(["unshare", "-m", "true"]).status != 0:
            self.skipTest("cannot make a mount namespace")
        os.chmod(self.directory, 0o755)
        self.directories = {name: self.path(name) for name in ("state", "cache")}
        for name in self.directories.values():
            os.mkdir(name)
        own = self.path("own")
        os.mkdir(own)
        os.chown(own, OTHER_USER, OTHER_USER)
        # A private recording of another user, whose control socket is private, too.
        self.recorder = self.enterContext(subprocess.Popen(
            harness.record_command(os.path.join(own, "x.hl"), [harness.program("control")]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=own,
            user=OTHER_USER, group=OTHER_USER, extra_groups=[], umask=0o077))
        self.addCleanup(self.recorder.stdin.close)
        self.tell("alloc 1000")
        self.pid = harness.children_of(self.recorder.pid)[0]

    def tell(self, line):
        self.recorder.stdin.write(line + "\n")
        self.recorder.stdin.flush()
        return self.recorder.stdout.readline()

    def start_serve(self, **options):
        credentials = self.path("credentials")
        os.mkdir(credentials, 0o700)
        with open(os.open(os.path.join(credentials, "token"), os.O_CREAT | os.O_WRONLY, 0o600), "w",
                  encoding="ascii") as file:
            file.write(TOKEN)
        with contextlib.closing(socket.socket()) as free:
            if free.connect_ex(("127.0.0.1", 7373)) == 0:
                self.skipTest("port 7373 is taken")
        unit = Unit(self, "heapline-serve", {"CREDENTIALS_DIRECTORY": credentials}, self.directories, **options)
        harness.wait_until(lambda: "serving on" in unit.log() or unit.process.poll() is not None, "it to serve")
        self.assertIsNone(unit.process.poll(), unit.log())
        return unit

    def ask(self, path):
        request = urllib.request.Request(f"http://127.0.0.1:7373{path}",
                                         headers={"Authorization": f"Bearer {TOKEN}"})
        try:
            with urllib.request.urlopen(request, timeout=harness.TIMEOUT_S) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def rows(self):
        return re.findall(rf'heapline_inuse_bytes{{pid="{self.pid}".*user="([^"]+)"}} (\d+)',
                          self.ask("/metrics")[1].decode())

    def test_serve_shows_processes_of_other_users(self):
        unit = self.start_serve()
        (row,) = self.rows()
        self.assertGreaterEqual(int(row[1]), 127000)
        for path in ("/", f"/api/heap?pid={self.pid}", f"/text/leaks?pid={self.pid}"):
            status, body = self.ask(path)
            self.assertEqual(status, 200, body)
        self.assertIn(str(self.pid).encode(), self.ask("/")[1])
        harness.wait_until(lambda: self.ask(f"/api/top?pid={self.pid}")[0] == 200, "a first save")
        status, body = self.ask(f"/debug/pprof/heap?pid={self.pid}&seconds=1")
        self.assertEqual(status, 200, body)
        harness.wait_until(lambda: b"heapline_cached_bytes{" in self.ask("/metrics")[1], "a heap to be read")
        with contextlib.ExitStack() as stack:
            for _ in range(64):  # as many as may be, each with a thread
                stack.enter_context(contextlib.closing(socket.create_connection(("127.0.0.1", 7373))))
            self.assertEqual(self.ask(f"/api/heap?pid={self.pid}")[0], 200)
        self.assertEqual(unit.end(), 0)
        self.assertNotIn("CAP_SETUID", unit.log())

    def test_serve_says_what_it_may_not_see(self):
        unit = self.start_serve(without=("CAP_SETUID",))
        self.assertEqual(self.rows(), [])
        self.assertIn("CAP_SETUID", unit.log())
        self.assertIn(b"CAP_SETUID", self.ask("/")[1])

    def start_large(self):
        """Another recorded process, with more stacks than a store takes without room beside its file."""
        python = harness.need("/usr/bin/python3")
        large = self.enterContext(subprocess.Popen(
            harness.record_command(os.path.join(self.path("own"), "large.hl"), [python, "-c", LARGE]), cwd="/",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            user=OTHER_USER, group=OTHER_USER, extra_groups=[], env=dict(os.environ, PYTHONMALLOC="malloc")))
        self.addCleanup(large.stdin.close)
        self.assertEqual(large.stdout.readline(), "ready\n")

    def test_push_sends_processes_of_other_users(self):
        self.start_large()
        store = os.path.join(self.directories["state"], "store.db")
        unit = Unit(self, "heapline-push", {"HEAPLINE_TO": store}, self.directories)

        def pushed():
            result = harness.run([harness.HEAPLINE, "fleet", "top", "--db", store, "--json"])
            self.assertIsNone(unit.process.poll(), unit.log())
            return result.status == 0 and "alloc_site" in result.stdout and json.loads(result.stdout)

        harness.wait_until(pushed, "the store to have it")
        self.assertEqual(unit.log(), "")

    def test_watch_keeps_who_was_killed(self):
        mount, is_v2 = test_pod.memory_hierarchy()
        group = os.path.join(mount, f"heapline-units-{os.getpid()}")
        os.mkdir(group)
        self.addCleanup(harness.wait_until, lambda: test_pod.Groups.removed(group), "the group to be empty")
        with open(os.path.join(group, "memory.max" if is_v2 else "memory.limit_in_bytes"), "w", encoding="ascii") as file:
            file.write("64M")
        ledger = self.path("ledger")
        with open(ledger, "wb") as file:
            file.write(bytes(8))
        unit = Unit(self, "heapline-watch", {}, self.directories)
        harness.wait_until(lambda: "watching" in unit.log() or unit.process.poll() is not None, "it to watch")
        subprocess.run([harness.program("oom_ledger"), ledger, "1024", "200", "100000"], check=False,
                       preexec_fn=lambda: test_pod.Groups.join(group))
        place = os.path.join(self.directories["state"], "watch")

        def told():
            result = harness.run([harness.HEAPLINE, "watch", "last", "--dir", place, "--json"])
            report = json.loads(result.stdout) if result.status == 0 else {}
            return report if report.get("killed") else None

        self.assertNotIn("kills are only counted", unit.log())
        self.assertNotIn("groups are looked at", unit.log())
        harness.wait_until(told, "the kill")
        report = told()
        self.assertEqual(os.path.basename(report["group"]), os.path.basename(group))
        self.assertIn("keep_step", " ".join(report["asked"]["stack"]))
        self.assertTrue(report["snapshots"])
        self.assertEqual(unit.end(), 0)


if __name__ == "__main__":
    harness.main()
