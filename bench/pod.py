#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What one balance of a control group costs: seconds, memory, and the part of the usage that it cannot place.

usage: pod.py BUILD      as root, with control groups of either version

A program in a group of its own keeps 512 MiB and has 512 MiB of one file in the page cache; then 40,000 files of 4 KiB besides. The table has the
least of five runs each.
"""

import json
import os
import subprocess
import sys
import tempfile

from limits import MIB, Group

ONE_FILE = "import os,sys; kept = b'x' * (512 << 20); open(sys.argv[1] + '/big', 'wb').write(kept); print('ready', flush=True); sys.stdin.read()"
MANY_FILES = "import os,sys\nfor i in range(40000): open(f'{sys.argv[1]}/{i}', 'wb').write(bytes(4096))\nprint('ready', flush=True); sys.stdin.read()"


def balance(build, group):
    """(wall seconds, CPU seconds, peak RSS in bytes, report)"""
    with tempfile.TemporaryFile() as out:
        command = [f"{build}/heapline", "pod", "--cgroup", str(group.path), "--json"]
        started = os.times()
        pid = os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, out.fileno(), 1)])
        _, status, used = os.wait4(pid, 0)
        wall = os.times().elapsed - started.elapsed
        if status:
            sys.exit(f"heapline ended with status {os.waitstatus_to_exitcode(status)}")
        out.seek(0)
        return wall, used.ru_utime + used.ru_stime, used.ru_maxrss << 10, json.load(out)


def main(build):
    print(f"{'group':24}{'seconds':>9}{'CPU':>7}{'MiB':>6}{'rows':>8}{'by file, MiB':>14}{'not placed, pages':>19}")
    for name, code in ("1 GiB, one large file", ONE_FILE), ("40,000 files", MANY_FILES):
        group = Group()
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            program = group.start([sys.executable, "-c", code, folder])
            program.stdout.readline()
            os.sync()
            runs = [balance(build, group) for _ in range(5)]
            report = runs[-1][3]
            unplaced = sum(row["bytes"] for row in report["rows"] if not row["pid"] and row["active_bytes"] is None
                           and row["kind"] != "kernel")
            by_file = sum(row["bytes"] for row in report["rows"] if row["active_bytes"] is not None)
            print(f"{name:24}{min(run[0] for run in runs):9.2f}{min(run[1] for run in runs):7.2f}"
                  f"{min(run[2] for run in runs) / MIB:6.0f}{len(report['rows']):8,}{by_file / MIB:14.1f}{unplaced // 4096:19,}")
            program.stdin.close()
            program.wait()
        group.remove()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
