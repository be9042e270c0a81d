#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What `heapline watch` costs at rest, and whether what it keeps of kills is right.

usage: watch.py BUILD [KILLS [GROUPS [SECONDS]]]     as root, with control groups of either version; BUILD has heapline and tests/e2e/oom_ledger

At rest: GROUPS groups (200) with a limit and a process that sleeps, for SECONDS (60). Then KILLS programs (1,000), each alone in a group that it fills, without and with
the service, in turns: a program counts its steps of 1 MiB in shared memory, and what was kept must be that to the last step.
"""

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
OWN = MIB  # what the program has besides, at most


def hierarchy():
    v1 = Path("/sys/fs/cgroup/memory")
    return (v1, "memory.limit_in_bytes") if v1.is_dir() else (Path("/sys/fs/cgroup"), "memory.max")


class Group:
    def __init__(self, name, limit):
        root, file = hierarchy()
        self.path = root / f"heapline-watch-{os.getpid()}-{name}"
        self.path.mkdir()
        (self.path / file).write_text(str(limit))

    def start(self, command):
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                preexec_fn=lambda: (self.path / "cgroup.procs").write_text(str(os.getpid())))

    def remove(self):
        while self.path.exists():
            try:
                self.path.rmdir()
            except OSError:
                time.sleep(0.01)


class Service:
    def __init__(self, heapline, place, *options):
        self.process = subprocess.Popen([heapline, "watch", "--dir", place, *options], stderr=subprocess.PIPE, text=True)
        while "watching" not in self.process.stderr.readline():
            assert self.process.poll() is None

    def cpu_s(self):
        return int(Path(f"/proc/{self.process.pid}/schedstat").read_text().split()[0]) / 1e9  # of its one thread

    def rss(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.stderr.read()
        self.process.wait()


def at_rest(heapline, place, count, seconds):
    groups = [Group(i, 64 * MIB) for i in range(count)]
    sleepers = [group.start(["sleep", "1000000"]) for group in groups]
    service = Service(heapline, place)
    time.sleep(5)
    began, cpu_s = time.monotonic(), service.cpu_s()
    time.sleep(seconds)
    share = (service.cpu_s() - cpu_s) / (time.monotonic() - began)
    print(f"at rest, {count} groups: {100 * share:.3f}% of a core, {service.rss() / MIB:.1f} MiB resident", flush=True)
    service.end()
    for sleeper, group in zip(sleepers, groups):
        sleeper.kill()
        sleeper.wait()
        group.remove()


def kill_one(program, group, ledger):
    """The steps that it made before it was killed, and its number."""
    ledger.write_bytes(bytes(8))
    process = group.start([program, str(ledger), "1024", "1000", "0"])
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
    group, ledger = Group("kills", LIMIT), Path(f"/dev/shm/heapline-watch-{os.getpid()}")
    plain, watched, wrong = [], {}, 0
    for _ in range(0, count, 50):
        batch = min(50, count - len(plain))
        plain += [kill_one(program, group, ledger)[0] for _ in range(batch)]
        service = Service(heapline, place, "--cgroup", str(group.path), "--keep", "100000", "--max-disk", "1T")
        for _ in range(batch):
            steps, pid = kill_one(program, group, ledger)
            watched[pid] = steps
        deadline = time.monotonic() + 60
        while len(kept(place)) < len(watched) and time.monotonic() < deadline:
            time.sleep(0.1)
        service.end()
    found = kept(place)
    missing = [pid for pid in watched if pid not in found]
    for pid, steps in watched.items():
        wrong += pid in found and not steps * MIB <= found[pid] < (steps + 1) * MIB + OWN
    print(f"{len(watched)} kills: {len(missing)} not kept, {wrong} not within the last step of the ledger")
    for name, all_steps in ("without", plain), ("with", list(watched.values())):
        print(f"steps of 1 MiB before the kill, {name} the service: {min(all_steps)} to {max(all_steps)}, "
              f"mean {sum(all_steps) / len(all_steps):.2f}", flush=True)
    ledger.unlink()
    group.remove()


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build = Path(sys.argv[1]).resolve()
    count, groups, seconds = [int(word) for word in sys.argv[2:]] + [1000, 200, 60][len(sys.argv) - 2:]
    heapline, program = str(build / "heapline"), str(build / "tests/e2e/oom_ledger")
    with tempfile.TemporaryDirectory() as place:
        at_rest(heapline, os.path.join(place, "rest"), groups, seconds)
        kills(heapline, program, os.path.join(place, "kills"), count)


if __name__ == "__main__":
    main()
