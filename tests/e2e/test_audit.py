#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Whatever enters, leaves, stops, probes or asks another process leaves a line: who did what to which process, and how it ended."""

import contextlib
import os
import re
import socket

import harness
import test_serve
from mcp_client import Client

FIELD = re.compile(r'([a-z]+)=("(?:[^"\\]|\\.)*"|[^" ]+)(?: |$)')
# What names itself by its argument, says so, and waits.
NAMED = 'printf %s "$1" >/proc/$$/comm; echo ready; read -r end'
# Another /dev than that of the machine, in which "log" is the socket $1; then the command.
OWN_LOG = """
mkdir "$2" && mount -t tmpfs none "$2" && for name in null zero random urandom; do
    touch "$2/$name" && mount --bind "/dev/$name" "$2/$name" || exit 99
done
touch "$2/log" && mount --bind "$1" "$2/log" && mount --rbind "$2" /dev || exit 99
shift 2
exec "$@"
"""


def fields(line):
    """{name: value} of a line that has nothing else; texts stay in their quotes."""
    text = line[line.index("act="):]
    found = FIELD.findall(text)
    if "".join(f"{name}={value} " for name, value in found) != text + " ":
        raise AssertionError(f"not fields: {line}")
    return dict(found)


class Audit(harness.TestCase):
    def named(self, name="patient"):
        return self.enterContext(harness.Waiting(["/bin/sh", "-c", NAMED, "sh", name]))

    def lines(self):
        with contextlib.suppress(FileNotFoundError), open(self.path("audit"), encoding="ascii") as file:
            return [fields(line.rstrip("\n")) for line in file]
        return []

    def environment(self):
        return {"HEAPLINE_AUDIT": self.path("audit")}

    def heapline(self, *arguments, **options):
        return harness.run([harness.HEAPLINE, *arguments], env=self.environment(), cwd=self.directory, **options)

    def check(self, line, act, process, **more):
        expected = {"act": act, "result": '"done"', "pid": str(process.pid), "comm": '"patient"', "owner": str(os.getuid()),
                    "uid": str(os.getuid()), "via": '"cli"', **more}
        self.assertEqual({**line, **expected}, line)
        self.assertRegex(line["started"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertRegex(line["loginuid"], r"^(unset|\d+)$")

    def attach(self, process, *command):
        return [*command, harness.HEAPLINE, "attach", "-p", str(process.pid), "-d", "0.1", "-f", "-q", "-o", self.path("a.hl")]

    def test_attach_and_detach_are_in_the_file_that_the_environment_names(self):
        process = self.named()
        said = self.heapline(*self.attach(process)[1:])
        self.assertEqual((said.status, said.stderr), (0, ""))
        begun, entered, left = self.lines()
        self.check(begun, "attach", process, result='"begins"')
        self.check(entered, "attach", process)
        self.check(left, "detach", process)
        self.assertIn(f"heapline attach -p {process.pid} ", entered["command"])
        self.assertEqual(os.stat(self.path("audit")).st_mode & 0o777, 0o600)

    def test_names_cannot_forge_a_line(self):
        process = self.named('a" b\n\\=\xe9')
        self.heapline(*self.attach(process)[1:])
        self.check(self.lines()[1], "attach", process, comm='"a\\" b\\x0a\\\\=\\xc3\\xa9"')

    def test_stops_are_named_and_reading_is_not(self):
        process = self.named()
        self.assertEqual(self.heapline("heap", "-p", str(process.pid)).status, 0)
        self.assertEqual(self.lines(), [])
        self.assertEqual(self.heapline("leaks", "-p", str(process.pid), "--stop").status, 0)
        (line,) = self.lines()  # of several passes
        self.check(line, "stop", process)

    def test_what_is_refused_is_named_with_the_reason(self):
        harness.need_other_user(test_serve.OTHER_USER)
        process = self.named()
        other = test_serve.OTHER_USER
        os.chmod(self.directory, 0o777)
        said = self.heapline(*self.attach(process)[1:], user=other, group=other, extra_groups=[])
        self.assertEqual(said.status, 1, said.stderr)
        (line,) = self.lines()
        self.check(line, "attach", process, result='"Permission denied"', uid=str(other))

    def test_what_is_asked_of_a_recording_is_named(self):
        recorded = self.enterContext(test_serve.Recorded(self.path("r.hl")))
        for verb in ("status", "reset"):
            self.assertEqual(self.heapline("ctl", "-p", str(recorded.pid), verb).status, 0)
        self.assertEqual(self.heapline("ctl", "-p", str(recorded.pid), "mode", "closed").status, 0)
        self.assertEqual([(line["act"], line["pid"], line["result"]) for line in self.lines()],
                         [("reset", str(recorded.pid), '"done"'), ("mode", str(recorded.pid), '"done"')])

    def test_the_service_that_began_it_is_named(self):
        process = self.named()
        with Client(env=dict(os.environ, **self.environment())) as client:
            client.call("leaks", pid=process.pid)
        (line,) = self.lines()
        self.check(line, "stop", process, via='"mcp"')
        os.remove(self.path("audit"))
        os.environ.update(self.environment())
        self.addCleanup(os.environ.pop, "HEAPLINE_AUDIT")
        server = self.enterContext(test_serve.Server(self.directory, tmpdir=self.directory))
        recorded = self.enterContext(test_serve.Recorded(self.path("r.hl")))
        server.get(f"/api/leaks?pid={recorded.pid}")
        self.assertEqual([(line["act"], line["pid"], line["via"]) for line in self.lines()],
                         [("stop", str(recorded.pid), '"serve"')])

    def test_probes_of_the_kernel_are_named(self):
        process = self.named()
        for verb in "stacks", "pgfault", "page-events":
            with contextlib.suppress(FileNotFoundError):
                os.remove(self.path("audit"))
            said = self.heapline(verb, "-p", str(process.pid), "0.1")
            if said.status:
                self.skipTest("BPF programs do not load here")
            lines = self.lines()
            with self.subTest(verb):
                self.assertEqual({line["act"] for line in lines}, {"probe"})
                self.check(lines[0], "probe", process)

    # ---- the system's log ----

    def own_log(self):
        """A socket that nobody reads yet, and the words before a command for which it is /dev/log."""
        harness.need_root()
        harness.need("unshare")
        log = self.enterContext(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        log.bind(self.path("log"))
        log.settimeout(harness.TIMEOUT_S)
        words = ["unshare", "-m", "--propagation", "private", "sh", "-c", OWN_LOG, "sh", self.path("log"), self.path("dev")]
        if harness.run([*words, "true"]).status:
            self.skipTest("no file system can be mounted here")
        os.rmdir(self.path("dev"))
        return log, words

    def test_without_a_file_lines_go_to_the_system_s_log(self):
        log, words = self.own_log()
        process = self.named()
        said = harness.run(self.attach(process, *words))
        self.assertEqual((said.status, said.stderr), (0, ""))
        for act, result in ("attach", "begins"), ("attach", "done"), ("detach", "done"):
            line = log.recv(4096).decode()
            # authpriv (10) and notice (5), as syslog(3) begins a line
            self.assertRegex(line, r"^<85>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d heapline\[\d+\]: act=")
            self.check(fields(line), act, process, result=f'"{result}"')

    def test_a_log_that_nobody_reads_holds_nobody_up(self):
        log, words = self.own_log()
        process = self.named()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as filler, \
                contextlib.suppress(BlockingIOError):
            for _ in range(100_000):
                filler.sendto(b"full", self.path("log"))
        said = harness.run(self.attach(process, *words))
        self.assertEqual((said.status, said.stderr), (0, ""))
        self.assertEqual(log.recv(4096), b"full")
        reader = self.path("fifo")
        os.mkfifo(reader)
        said = harness.run(self.attach(process), env={"HEAPLINE_AUDIT": reader})
        self.assertEqual((said.status, said.stderr), (0, ""))

    def test_where_nothing_can_be_written_the_verb_goes_on(self):
        process = self.named()
        for place in ("/dev/full", "/nowhere/audit", self.directory):
            said = harness.run(self.attach(process), env={"HEAPLINE_AUDIT": place})
            self.assertEqual((said.status, said.stderr), (0, ""), place)


if __name__ == "__main__":
    harness.main()
