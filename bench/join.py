# SPDX-License-Identifier: BSD-2-Clause
"""What `heapline attach` costs the process that it joins: how long it is stopped, and each pair.

    bench/join.py BUILD CYCLES   enters and leaves a process CYCLES times, while its threads come and
                                 go, fork, get signals and load libraries, and compares its counts
    bench/join.py BUILD killed   is killed at each of its steps, and comes back
    bench/join.py BUILD orphans  the same from where children that the process forks ask for it
"""

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from figure import Figure
from stacks import Load
from workloads import RunFailed

MILLISECONDS = 5  # that the recorder stays in a cycle
SECONDS = 75  # that a row may take: on a busy machine it is of fewer cycles
STORMS = {  # what a row says -> cycles, threads, bar in microseconds at p99
    "64 threads that do nothing but allocate": (1000, 64, 5000),
    "500 such threads": (200, 500, 15000),
}
REDIS = "redis-server under load"
REDIS_CYCLES, REDIS_MAX_US = 1000, 5000
PAIR_SHARE = 1.15  # of what preloading adds
PAIRS, PAIR_ROUNDS = 20_000, 400  # a round is shorter than a time slice
BEGIN_SECONDS = 10


@dataclass
class Joined:
    """Microseconds that all threads were stopped, and nanoseconds that a pair took more."""

    stops: dict = field(default_factory=dict)  # row -> what attach_cycles printed
    preloaded_ns: float = None
    attached_ns: float = None
    afterwards_ns: float = None


def cycles(build, *arguments):
    """What attach_cycles says, which compares counts and what is left after each cycle."""
    program = build / "bench" / "attach_cycles"
    result = subprocess.run([program, *map(str, arguments)],
                            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RunFailed(f"attach_cycles: {result.stderr.strip() or result.stdout.strip()}")
    return json.loads(result.stdout)


def measure_redis(machine):
    """Joins a server while clients ask it as fast as they can."""
    socket = str(machine.scratch / "joined.sock")
    server = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", socket, "--save", "",
                               "--appendonly", "no"], stdout=subprocess.DEVNULL, start_new_session=True)
    clients = subprocess.Popen(["redis-benchmark", "-s", socket, "-t", "set,get,lpush", "-r", "100000",
                                "-d", "64", "-l", "-q"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        time.sleep(1)
        return cycles(machine.build, 5 if machine.small else REDIS_CYCLES, MILLISECONDS,
                      f"pid:{server.pid}", f"seconds:{SECONDS}")
    finally:
        for process in clients, server:
            process.kill()
            process.wait()


class Attached:
    """heapline attach, from when its recorder is in the process."""

    def __init__(self, heapline, pid, recording):
        self.process = subprocess.Popen([heapline, "attach", "-q", "-p", str(pid), "-f", "-o",
                                         recording], stdin=subprocess.DEVNULL)
        maps, end = Path(f"/proc/{pid}/maps"), time.monotonic() + BEGIN_SECONDS
        while "memfd:heapline" not in maps.read_text(encoding="utf-8"):
            if self.process.poll() is not None or time.monotonic() > end:
                raise RunFailed("heapline attach does not begin")
            time.sleep(0.01)
        time.sleep(0.2)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


def pairs_of(machine, *wrapper):
    return Load(machine, "alloc_pairs", PAIRS, 1, wrapper)


def fastest_of(machine, *loads):
    """Nanoseconds for a pair, of each; in turns, since the machine is not the same at all times."""
    rounds = [[float(load.tell(PAIRS)) for load in loads]
              for _ in range(2 if machine.small else PAIR_ROUNDS)]
    return [min(times) for times in zip(*rounds)]


def measure_pairs(machine, heapline, joined):
    recording = machine.scratch / "joined.hl"
    wrapper = heapline, "record", "-q", "-f", "-o", machine.scratch / "preloaded.hl"
    with pairs_of(machine, *wrapper) as preloaded, pairs_of(machine) as plain, \
            pairs_of(machine) as entered:
        with Attached(heapline, entered.process.pid, recording):
            preloaded_ns, base, attached_ns = fastest_of(machine, preloaded, plain, entered)
        joined.preloaded_ns, joined.attached_ns = preloaded_ns - base, attached_ns - base
        base, afterwards_ns = fastest_of(machine, plain, entered)
        joined.afterwards_ns = afterwards_ns - base


def measure_join(machine, heapline):
    joined = Joined()
    measure_pairs(machine, heapline, joined)
    for row, (count, threads, _) in STORMS.items():
        joined.stops[row] = cycles(machine.build, 5 if machine.small else count, MILLISECONDS,
                                   16 if machine.small else threads, f"seconds:{SECONDS}")
    if shutil.which("redis-server") and shutil.which("redis-benchmark"):
        joined.stops[REDIS] = measure_redis(machine)
    return joined


def stop_figure(joined, row, max_us):
    figure = Figure(f"`attach`: {row} stopped, p99 of in and out", f"{max_us / 1000:.0f} ms")
    said = joined.stops.get(row.removeprefix("all ")) if joined else None
    if joined and row == REDIS and not said:
        figure.measured = "skipped: 'redis-server' or 'redis-benchmark' is not installed"
    if said:
        worst = max(said["patch_p99_us"], said["detach_p99_us"])
        figure.measured = (f"{said['patch_p99_us'] / 1000:.1f} and "
                           f"{said['detach_p99_us'] / 1000:.1f} ms "
                           f"({said['cycles']:,} cycles)")
        figure.met = worst <= max_us
    return figure


def join_figures(joined):
    pair = Figure("`attach`: added to a pair, 20 frames", f"{PAIR_SHARE:.2f} of preloaded")
    after = Figure("`attach`: added to a pair once it has left", "")
    if joined and joined.attached_ns is not None:
        share = joined.attached_ns / joined.preloaded_ns
        pair.measured = (f"+{joined.attached_ns:.1f} ns, preloaded +{joined.preloaded_ns:.1f}: "
                         f"{share:.2f}")
        pair.met = share <= PAIR_SHARE
        after.measured = f"{joined.afterwards_ns:+.1f} ns"
    return [*(stop_figure(joined, f"all {row}", max_us) for row, (_, _, max_us) in STORMS.items()),
            stop_figure(joined, REDIS, REDIS_MAX_US), pair, after]


def main():
    build, count = Path(sys.argv[1]), sys.argv[2]
    if count == "killed":
        said = cycles(build, 0, 1, 3, "killed")
    elif count == "orphans":
        said = cycles(build, 0, MILLISECONDS, 3, "forks", "joined", "killed")
    else:
        said = cycles(build, count, MILLISECONDS, 16, "threads", "forks", "signals", "libraries", "joined")
    print(json.dumps(said))


if __name__ == "__main__":
    main()
