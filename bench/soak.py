#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Records a program for hours, with small segments, and checks that figures stay right.

The program (bench/soak_target.c) keeps a ledger of its own. Every minute it is stopped, and then
`top` and `timeline` of the recording that is still being written must say what the ledger says, to
the byte; disk use and memory must not grow. Exit status 0: all of that held until the end.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from memory import find_program

TREE = Path(__file__).resolve().parent.parent
SEGMENT_BYTES = 64 << 10
SEGMENTS = 3
# A segment ends after the piece with which it is full, and one more is there for a moment.
DISK_MAX = (SEGMENTS + 1) * 2 * SEGMENT_BYTES
# Of the collector and of the program, over what they had at the first check. What the program has
# in use goes up and down by some megabytes.
GROWTH_MAX = {"collector": 4 << 20, "program": 32 << 20}
STILL_S = 0.7  # some intervals, all of whose events have been written then
INTERVAL_S = 0.1
VIEW_LIMIT_S = 60


@dataclass
class Ledger:
    """What the program says of itself, in bytes."""

    in_use: int
    most: int  # since it was asked
    pulse: int  # allocated and freed in each interval while it is stopped
    of_function: list

    @classmethod
    def read(cls, line):
        in_use, most, pulse, *of_function = map(int, line.split())
        return cls(in_use, most, pulse, of_function)


class Soak:
    """One recording, and all that was wrong with it."""

    def __init__(self, build, scratch):
        self.heapline, self.recording = build / "heapline", scratch / "soak.hl"
        self.wrong = []
        self.baseline = None  # bytes of the program that are not in its ledger
        self.first_resident = {}
        self.process = subprocess.Popen(
            [self.heapline, "record", "-q", "-f", "-o", self.recording, "--mode", "log-fast",
             "--log-segment-size", str(SEGMENT_BYTES), "--log-segments", str(SEGMENTS), "--",
             build / "bench" / "soak_target"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def expect(self, holds, what):
        if not holds:
            self.wrong.append(what)
            print(f"WRONG: {what}", file=sys.stderr, flush=True)

    def expect_equal(self, found, expected, what):
        self.expect(found == expected, f"{what}: {found} instead of {expected}")

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def view(self, *words):
        said = subprocess.run([self.heapline, *words, "--json", self.recording],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=VIEW_LIMIT_S, check=False)
        if said.returncode:
            self.expect(False, f"{' '.join(words)}: {said.stderr.strip()}")
            return None
        return json.loads(said.stdout)

    # ---- figures ----

    def check_timeline(self, ledger, asked):
        """The last interval's maximum, and the highest one since ``asked``. The last one's ms."""
        timeline = self.view("timeline")
        if not timeline:
            return None
        self.expect_equal(timeline["log"]["lost_events"], 0, "events lost from the log")
        rows = timeline["rows"]
        last = rows[-1]
        if self.baseline is None:
            self.baseline = last["bytes"] - ledger.in_use - ledger.pulse
        self.expect_equal(last["bytes"], self.baseline + ledger.in_use + ledger.pulse,
                          "last interval of the timeline")
        since = int((time.monotonic() - asked) / INTERVAL_S) + 1
        self.expect_equal(max(row["bytes"] for row in rows[-since:]),
                          self.baseline + ledger.most, "highest interval of the timeline")
        return last["ms"]

    def check_functions(self, ledger, pulse, *moment):
        """What is in use by function, and in all."""
        top = self.view("top", "-n", "0", *moment)
        if not top:
            return
        found = {row["name"]: row["flat_bytes"] for row in top["rows"]}
        for number, expected in enumerate(ledger.of_function):
            name = f"soak_{number}"
            self.expect_equal(found.get(name, 0), expected + (0 if number else pulse), name)
        self.expect_equal(sum(found.values()), self.baseline + ledger.in_use + pulse,
                          "in use at the end")

    # ---- what must not grow ----

    def resident(self):
        """Bytes of the collector and of the program."""
        program = find_program(self.process.pid, "soak_target")
        pids = {"collector": self.process.pid, "program": program}
        found = {}
        for name, pid in pids.items():
            status = Path(f"/proc/{pid}/status").read_text()
            found[name] = int(status.split("VmRSS:")[1].split()[0]) * 1024
        return found

    def log_bytes(self):
        return sum(path.stat().st_size for path in self.recording.glob("*.hll"))

    def check_growth(self):
        disk, resident = self.log_bytes(), self.resident()
        self.first_resident = self.first_resident or resident
        self.expect(disk <= DISK_MAX, f"the log has {disk} bytes, over {DISK_MAX}")
        for name, most in GROWTH_MAX.items():
            grown = resident[name] - self.first_resident[name]
            self.expect(grown <= most, f"the {name} grew by {grown} bytes")
        return disk, resident

    # ---- the whole ----

    def check(self):
        asked = time.monotonic()
        self.tell("stop")
        ledger = Ledger.read(self.process.stdout.readline())
        time.sleep(STILL_S)
        last_ms = self.check_timeline(ledger, asked)
        if last_ms is not None:
            self.check_functions(ledger, ledger.pulse, "--at", str(last_ms))
        disk, resident = self.check_growth()
        self.tell("go on")
        print(f"at {last_ms} ms: {ledger.in_use} bytes in use; log {disk}, "
              + ", ".join(f"{name} {size >> 10} KiB" for name, size in resident.items())
              + f"; {len(self.wrong)} wrong", flush=True)

    def finish(self):
        """Lets the program end, and looks at the finished recording."""
        self.process.stdin.close()
        ledger = Ledger.read(self.process.stdout.readline())
        self.expect_equal(self.process.wait(), 0, "exit status")
        self.check_functions(ledger, 0, "--value", "inuse")
        timeline = self.view("timeline")
        if timeline:
            self.expect_equal(timeline["log"]["segments"], SEGMENTS, "segments")
            self.expect(timeline["log"]["complete"], "the log is not complete")
        self.expect(self.log_bytes() <= DISK_MAX, "the finished log is too large")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=TREE / "build", help="where heapline is")
    parser.add_argument("--minutes", type=float, default=120, help="how long (120)")
    parser.add_argument("--every", type=float, default=60, help="seconds between checks (60)")
    options = parser.parse_args()
    options.build = options.build.resolve()
    return options


def main():
    options = parse_arguments()
    end = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="heapline-soak-") as scratch:
        soak = Soak(options.build, Path(scratch))
        try:
            while time.monotonic() < end:
                time.sleep(min(options.every, max(1, end - time.monotonic())))
                soak.check()
            soak.finish()
        finally:
            soak.process.kill()
    print(f"{len(soak.wrong)} wrong in {options.minutes:g} minutes")
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
