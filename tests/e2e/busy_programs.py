# SPDX-License-Identifier: BSD-2-Clause
"""Programs in the middle of something that have lost no block."""

import glob
import os
import pwd
import shutil
import subprocess
import time
from contextlib import contextmanager

PYTHON = """
import json, select, sys
class Node:
    def __init__(self, next):
        self.next = next
print("ready", flush=True)
kept, chain, i = {}, None, 0
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(3000):
        i += 1
        kept[i % 5000] = [("x%d" % i) * 3, {"a": i, "b": [i] * (i % 7)}]
        chain = Node(chain) if i % 50 else None
    json.loads(json.dumps(list(kept.values())[:200]))
"""

SQLITE = """CREATE TABLE numbers(a PRIMARY KEY, b);
CREATE INDEX by_b ON numbers(b);
SELECT 'ready';
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n)
INSERT OR REPLACE INTO numbers SELECT i % 5000, hex(randomblob(i % 90)) FROM n LIMIT 100000000;
"""

NGINX = """daemon off; worker_processes 1; pid nginx.pid; error_log stderr;
events {{ worker_connections 256; }}
http {{ access_log off; server {{ listen unix:{0}/socket; root {0}; gzip on; gzip_min_length 1; }} }}
"""

NAMES = ("python-malloc", "python", "sqlite", "rehash", "queue", "postgres", "nginx")
WARM_S = 0.5
START_LIMIT_S = 30


@contextmanager
def _started(command, text=None, env=None, ready=True):
    """Yields the process, which has said "ready"; its end is not waited for."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env=dict(os.environ, **(env or {}))) as process:
        try:
            if text:
                process.stdin.write(text)
                process.stdin.flush()
            if ready and not any(line.split() == ["ready"] for line in process.stdout):
                raise RuntimeError(f"{command[0]} ended early")
            time.sleep(WARM_S)
            yield process.pid
        finally:
            process.kill()


@contextmanager
def _postgres(directory):
    """Yields the backend of a pgbench without end."""
    programs = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    if not programs or not shutil.which("pgbench") or os.geteuid() != 0:
        yield None
        return
    user = pwd.getpwnam("postgres")
    as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    os.chown(directory, user.pw_uid, user.pw_gid)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
    data = f"{directory}/data"
    subprocess.run([*as_user, f"{programs[-1]}/initdb", "-D", data, "-A", "trust"], check=True, **quiet)
    bench = ["pgbench", "-h", directory, "-U", "postgres", "postgres"]
    with subprocess.Popen([*as_user, f"{programs[-1]}/postgres", "-D", data, "-k", directory, "-c",
                           "listen_addresses="], **quiet) as server:
        try:
            limit = time.monotonic() + START_LIMIT_S
            while subprocess.run([*bench, "-i", "-q"], check=False, **quiet).returncode:
                if time.monotonic() > limit:
                    raise RuntimeError("postgres does not answer")
                time.sleep(0.1)
            with subprocess.Popen([*bench, "-n", "-T", "100000"], **quiet) as load:
                try:
                    time.sleep(WARM_S)
                    yield _child_of(server.pid, "[local]")
                finally:
                    load.kill()
        finally:
            server.terminate()


def _child_of(server, title):
    """The first child of a server whose title has this word, as soon as there is one."""
    limit = time.monotonic() + START_LIMIT_S
    while time.monotonic() < limit:
        with open(f"/proc/{server}/task/{server}/children", encoding="ascii") as children:
            for child in children.read().split():
                with open(f"/proc/{child}/cmdline", encoding="utf-8") as words:
                    if title in words.read():
                        return int(child)
        time.sleep(0.1)
    raise RuntimeError(f"process {server} has no child '{title}'")


@contextmanager
def _nginx(directory):
    """Yields a worker that compresses a file again and again."""
    nginx, bench = shutil.which("nginx"), shutil.which("curl")
    if not nginx or not bench:
        yield None
        return
    os.chmod(directory, 0o755)
    with open(f"{directory}/text", "w", encoding="ascii") as file:
        file.write("some text " * 10000)
    with open(f"{directory}/conf", "w", encoding="ascii") as file:
        file.write(NGINX.format(directory))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([nginx, "-p", directory, "-c", f"{directory}/conf"], **quiet) as server:
        try:
            time.sleep(WARM_S)
            with subprocess.Popen([bench, "-s", "--compressed", "--unix-socket", f"{directory}/socket",
                                   "http://x/text?[1-100000000]"], **quiet) as load:
                try:
                    yield _child_of(server.pid, "worker process")
                finally:
                    load.kill()
        finally:
            server.terminate()


def start(name, directory, leaks_cxx):
    """A context with the number of a process that is busy; None where its program is missing."""
    if name.startswith("python"):
        allocator = "malloc" if name == "python-malloc" else "pymalloc"
        return _started(["/usr/bin/python3", "-c", PYTHON], env={"PYTHONMALLOC": allocator})
    if name == "sqlite":
        return _started(["sqlite3", ":memory:"], text=SQLITE)
    if name == "postgres":
        return _postgres(directory)
    if name == "nginx":
        return _nginx(directory)
    return _started([str(leaks_cxx), {"rehash": "busy", "queue": "queue"}[name]])
