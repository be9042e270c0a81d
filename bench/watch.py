#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What `heapline watch` costs at rest, and whether what it keeps of kills is right.

usage: watch.py BUILD [KILLS [GROUPS [SECONDS [RUSHES]]]]     as root, with control groups of either version; BUILD has heapline and tests/e2e/oom_ledger

At rest: GROUPS groups (200) with a limit and a process that sleeps, for SECONDS (60). Then KILLS programs (1,000), each alone in a group that it fills, without and with
the service, in turns: a program counts its steps of 1 MiB in shared memory, and what was kept must be that to the last step. At last RUSHES programs (10), each of which
fills a group of 64 MiB within a third of a second: how many have a snapshot with their memory and their heap from before they were killed?
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MIB = 1 << 20
LIMIT = 32 * MIB
RUSH_MIB, RUSH_US = 64, 240_000  # without what the steps and pauses themselves take
OWN = MIB  # what the program has besides, at most


def hierarchy():
    v1 = Path("/sys/fs/cgroup/memory")
    return (v1, "memory.limit_in_bytes") if v1.is_dir() else (Path("/sys/fs/cgroup"), "memory.max")


class Group:
    """A group, which is removed with all that was started in it when the stack that it is entered into ends."""

    def __init__(self, name, limit):
        root, file = hierarchy()
        self.path = root / f"heapline-watch-{os.getpid()}-{name}"
        self.path.mkdir()
        self.processes = []
        (self.path / file).write_text(str(limit))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
        while self.path.exists():
            try:
                self.path.rmdir()
            except OSError:
                time.sleep(0.01)

    def start(self, command):
        self.processes = [process for process in self.processes if process.poll() is None]
        self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                               preexec_fn=lambda: (self.path / "cgroup.procs").write_text(str(os.getpid()))))
        return self.processes[-1]


class Service:
    def __init__(self, heapline, place, *options):
        self.process = subprocess.Popen([heapline, "watch", "--dir", place, *options], stderr=subprocess.PIPE, text=True)
        said = ""
        while "watching" not in (line := self.process.stderr.readline()):
            if not line:
                sys.exit(f"the service did not start: {said}")
            said += line

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.stderr.read()
        self.process.wait()

    def cpu_s(self):
        return int(Path(f"/proc/{self.process.pid}/schedstat").read_text().split()[0]) / 1e9  # of its one thread

    def rss(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024


def at_rest(heapline, place, count, seconds):
    with contextlib.ExitStack() as stack:
        for i in range(count):
            stack.enter_context(Group(i, 64 * MIB)).start(["sleep", "1000000"])
        service = stack.enter_context(Service(heapline, place))
        time.sleep(5)
        began, cpu_s = time.monotonic(), service.cpu_s()
        time.sleep(seconds)
        share = (service.cpu_s() - cpu_s) / (time.monotonic() - began)
        print(f"at rest, {count} groups: {100 * share:.3f}% of a core, {service.rss() / MIB:.1f} MiB resident", flush=True)


@contextlib.contextmanager
def ledger_file():
    path = Path(f"/dev/shm/heapline-watch-{os.getpid()}")
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def kill_one(program, group, ledger, pause_us=0):
    """The steps that it made before it was killed, and its number."""
    ledger.write_bytes(bytes(8))
    process = group.start([program, str(ledger), "1024", "1000", str(pause_us)])
    status = process.wait()
    assert status == -signal.SIGKILL, status
    return int.from_bytes(ledger.read_bytes(), "little"), process.pid


def kept(place):
    """What was kept of each process, by its number."""
    found = {}
    for path in Path(place).glob("*Z-kill-*/kill.json"):
        if ".partial" not in str(path):
            victim = json.loads(path.read_text())["victim"]
            found[victim["pid"]] = victim["anonymous_bytes"]
    return found


def kills(heapline, program, place, count):
    plain, watched, wrong = [], {}, 0
    with ledger_file() as ledger, Group("kills", LIMIT) as group:
        for _ in range(0, count, 50):
            batch = min(50, count - len(plain))
            plain += [kill_one(program, group, ledger)[0] for _ in range(batch)]
            with Service(heapline, place, "--cgroup", str(group.path), "--keep", "100000", "--max-disk", "1T"):
                for _ in range(batch):
                    steps, pid = kill_one(program, group, ledger)
                    watched[pid] = steps
                deadline = time.monotonic() + 60
                while len(kept(place)) < len(watched) and time.monotonic() < deadline:
                    time.sleep(0.1)
    found = kept(place)
    missing = [pid for pid in watched if pid not in found]
    for pid, steps in watched.items():
        wrong += pid in found and not steps * MIB <= found[pid] < (steps + 1) * MIB + OWN
    print(f"{len(watched)} kills: {len(missing)} not kept, {wrong} not within the last step of the ledger")
    for name, all_steps in ("without", plain), ("with", list(watched.values())):
        print(f"steps of 1 MiB before the kill, {name} the service: {min(all_steps)} to {max(all_steps)}, "
              f"mean {sum(all_steps) / len(all_steps):.2f}", flush=True)


def rushes(heapline, program, place, count):
    """Programs that fill a new group within RUSH_US: of how many there is a snapshot from before the kill?"""
    found, lives = 0, []
    for number in range(count):
        with ledger_file() as ledger, Group(f"rush{number}", RUSH_MIB * MIB) as group, \
                Service(heapline, place, "--cgroup", str(group.path)):
            time.sleep(2 + number / count)  # at different moments between two looks
            began = time.monotonic()
            steps, pid = kill_one(program, group, ledger, RUSH_US // RUSH_MIB)
            lives.append(time.monotonic() - began)
            while pid not in kept(place):
                time.sleep(0.01)
            time.sleep(1)
            for path in Path(place).glob(f"*Z-snapshot-*rush{number}/pod.json"):
                rows = [row for row in json.loads(path.read_text())["rows"] if row["pid"] == pid]
                if rows and (path.parent / f"heap-{pid}.json").exists():
                    found += 1
                    break
    if count:
        print(f"{found} of {count} that filled {RUSH_MIB} MiB, killed after {min(lives):.2f} to {max(lives):.2f} s, have a snapshot", flush=True)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build = Path(sys.argv[1]).resolve()
    given = [int(word) for word in sys.argv[2:]]
    count, groups, seconds, rush_count = given + [1000, 200, 60, 10][len(given):]
    heapline, program = str(build / "heapline"), str(build / "tests/e2e/oom_ledger")
    with tempfile.TemporaryDirectory() as place:
        if groups:
            at_rest(heapline, os.path.join(place, "rest"), groups, seconds)
        if count:
            kills(heapline, program, os.path.join(place, "kills"), count)
        rushes(heapline, program, os.path.join(place, "rushes"), rush_count)


if __name__ == "__main__":
    main()
