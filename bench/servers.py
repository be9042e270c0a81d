# SPDX-License-Identifier: BSD-2-Clause
"""Servers under load: what a request costs the server, its recorder included."""

import csv
import os
import pwd
import shutil
import subprocess
import time
from pathlib import Path

from workloads import Case, Run, RunFailed, TooSlow

US_PER_REQUEST = "us a request"
POLL_S = 0.02
POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


class ServerCase(Case):
    """Starts the server under a tool, loads it from outside, and ends it.

    Processor time is the server's and its tool's, from their start to their end; the time that
    passes is that of the load.
    """

    unit = US_PER_REQUEST
    START_LIMIT_S = 30
    END_LIMIT_S = 60
    LOAD_LIMIT_S = 120

    def command(self, machine):
        raise NotImplementedError

    def is_ready(self, machine):
        raise NotImplementedError

    def load(self, machine):
        """Sends requests; how many, and the seconds that they took."""
        raise NotImplementedError

    def stop(self, machine):
        raise NotImplementedError

    def measure(self, tool, machine):
        command, added = tool.wrap(self.command(machine), machine.scratch)
        with subprocess.Popen(command, env={**os.environ, **added}, cwd=machine.scratch,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              start_new_session=True) as server:
            try:
                self.wait_ready(machine, server)
                requests, seconds = self.load(machine)
                self.stop(machine)
                cpu_s = self.cpu_of_ended(server)
            except (TooSlow, RunFailed, subprocess.CalledProcessError):
                if server.poll() is None:
                    os.killpg(server.pid, 9)
                raise
            finally:
                tool.clean(machine.scratch)
        return Run(seconds * 1e6, cpu_s * 1e6).over(requests)

    def wait_ready(self, machine, server):
        limit = time.monotonic() + self.START_LIMIT_S
        while not self.is_ready(machine):
            if server.poll() is not None:
                raise RunFailed(f"the server ended with status {server.returncode}")
            if time.monotonic() > limit:
                raise TooSlow(f"no answer in {self.START_LIMIT_S} s")
            time.sleep(POLL_S)

    def cpu_of_ended(self, server):
        """Waits for the end; seconds of the process and of those that it waited for."""
        limit = time.monotonic() + self.END_LIMIT_S
        while True:
            pid, status, used = os.wait4(server.pid, os.WNOHANG)
            if pid:
                server.returncode = os.waitstatus_to_exitcode(status)
                return used.ru_utime + used.ru_stime
            if time.monotonic() > limit:
                raise TooSlow(f"the server did not end in {self.END_LIMIT_S} s")
            time.sleep(POLL_S)

    def client(self, *words):
        """What a client prints that puts the load on."""
        try:
            return subprocess.run([str(word) for word in words], capture_output=True, text=True,
                                  check=True, timeout=self.LOAD_LIMIT_S).stdout
        except subprocess.TimeoutExpired:
            raise TooSlow(f"over {self.LOAD_LIMIT_S} s") from None


class RedisCase(ServerCase):
    """redis-server under redis-benchmark, on a unix socket."""

    part = "redis"
    KINDS = ("set", "get", "lpush")

    def __init__(self, pipeline, requests):
        self.pipeline, self.requests = pipeline, requests  # requests of each kind
        self.title = f"redis-server, set/get/lpush, {pipeline} in a pipeline"

    def missing(self):
        absent = [name for name in ("redis-server", "redis-benchmark", "redis-cli")
                  if not shutil.which(name)]
        return f"no {absent[0]}" if absent else ""

    def command(self, machine):
        return ["redis-server", "--port", "0", "--unixsocket", machine.scratch / "redis.sock",
                "--save", "", "--appendonly", "no"]

    def ask(self, machine, *words):
        return subprocess.run(["redis-cli", "-s", machine.scratch / "redis.sock", *words],
                              capture_output=True, text=True, check=False).stdout

    def is_ready(self, machine):
        return "PONG" in self.ask(machine, "ping")

    def load(self, machine):
        requests = 1000 if machine.small else self.requests
        said = self.client("redis-benchmark", "-s", machine.scratch / "redis.sock", "-t",
                           ",".join(self.KINDS), "-n", requests, "-r", 100000, "-d", 64, "-P",
                           self.pipeline, "--csv")
        rates = [float(row["rps"]) for row in csv.DictReader(said.splitlines())]
        if len(rates) != len(self.KINDS):
            raise RunFailed("redis-benchmark printed no figures")
        return requests * len(rates), sum(requests / rate for rate in rates)

    def stop(self, machine):
        self.ask(machine, "shutdown", "nosave")


class PostgresCase(ServerCase):
    """postgres and its processes under pgbench's reads, on a unix socket."""

    part = "postgres"
    title = "postgres, pgbench -S"
    TRANSACTIONS = 30_000

    def missing(self):
        if not POSTGRES or not shutil.which("pgbench"):
            return "no postgres"
        return "" if os.geteuid() == 0 else "needs root, to start it as another user"

    def as_user(self, *words):
        return ["setpriv", f"--reuid={self.user.pw_uid}", f"--regid={self.user.pw_gid}",
                "--clear-groups", *map(str, words)]

    def prepare(self, machine):
        self.user = pwd.getpwnam("postgres")
        self.directory = machine.scratch / "postgres"
        self.directory.mkdir()
        os.chown(self.directory, self.user.pw_uid, self.user.pw_gid)
        machine.scratch.chmod(0o755)
        subprocess.run(self.as_user(POSTGRES[-1] / "initdb", "-D", self.directory / "data", "-A",
                                    "trust"), check=True, capture_output=True, cwd="/")
        self.is_filled = False

    def command(self, machine):
        return self.as_user(POSTGRES[-1] / "postgres", "-D", self.directory / "data", "-k",
                            self.directory, "-c", "listen_addresses=")

    def pgbench(self, *words):
        return self.client("pgbench", "-h", self.directory, "-U", "postgres", *words, "postgres")

    def is_ready(self, machine):
        return subprocess.run(["psql", "-h", self.directory, "-U", "postgres", "-c", "select 1"],
                              capture_output=True, check=False).returncode == 0

    def load(self, machine):
        if not self.is_filled:
            self.pgbench("-i", "-q")
            self.is_filled = True
        transactions = 100 if machine.small else self.TRANSACTIONS
        started = time.perf_counter()
        self.pgbench("-S", "-n", "-c", 2, "-t", transactions // 2)
        return transactions, time.perf_counter() - started

    def stop(self, machine):
        pid = int((self.directory / "data" / "postmaster.pid").read_text().splitlines()[0])
        os.kill(pid, 2)  # its fast shutdown


def server_cases():
    return [RedisCase(16, 1_000_000), RedisCase(1, 100_000), PostgresCase()]
