#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Checks programs again and again by `heapline check`, and says whose verdicts are not always the same.

checks_soak.py HEAPLINE [--checks N] [NAME...]
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

LIMITS = ("peak", "inuse-at-end", "allocs", "leak-per-stack")
MARGIN = 0.1  # of a figure, by which limits are above and below it
EXIT_DONE, EXIT_LIMIT = 0, 3

SQL = """CREATE TABLE t(a PRIMARY KEY, b); CREATE INDEX i ON t(b);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 3000)
INSERT INTO t SELECT i, i * 7919 % 1000 FROM n; SELECT sum(b) FROM t GROUP BY b % 10;"""

PROGRAMS = {
    "python": ["python3", "-I", "-c", "import json; json.loads(json.dumps([{'a': [i] * 5} for i in range(2000)]))"],
    "perl": ["perl", "-e", "my %h = map { $_ => [1 .. 5] } 1 .. 3000; print scalar keys %h"],
    "sqlite": ["sqlite3", ":memory:", SQL],
    "gcc": ["gcc", "-O1", "-c", "-x", "c", "-o", "/dev/null", "program.c"],
    "bash": ["bash", "--norc", "-c", "for i in {1..2000}; do a[i]=$i; done; echo ${#a[@]}"],
    "awk": ["awk", "BEGIN { for (i = 0; i < 5000; i++) a[i] = i \"x\"; print length(a) }"],
    "sort": ["sort", "text"],
    "xz": ["xz", "-1", "-T1", "-k", "-c", "text"],
    "grep": ["grep", "-cE", "(a|b)+c?[0-9]{3}", "text"],
    "tar": ["tar", "-cf", "/dev/null", "text", "program.c"],
}


def check(heapline, folder, command, limits):
    """The exit status and the figure of each limit."""
    words = [word for name, most in limits.items() for word in (f"--{name}", str(most))]
    result = subprocess.run([heapline, "check", "--json", "-f", "-o", folder / "report.json", *words, "--", *command],
                            cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if result.returncode not in (EXIT_DONE, EXIT_LIMIT):
        sys.exit(f"{command[0]}: status {result.returncode}: {result.stderr}")
    with open(folder / "report.json", encoding="utf-8") as file:
        return result.returncode, {row["limit"]: row["figure"] for row in json.load(file)["rows"]}


def soak(heapline, folder, name, checks):
    """Whether each check with room says yes, and each without says no."""
    command = PROGRAMS[name]
    _, first = check(heapline, folder, command, dict.fromkeys(LIMITS, "1T"))
    above = {limit: int(figure * (1 + MARGIN)) + 1 for limit, figure in first.items()}
    below = {limit: int(figure * (1 - MARGIN)) for limit, figure in first.items()}
    wrong, differing = 0, set()
    for number in range(checks):
        status, figures = check(heapline, folder, command, below if number % 2 else above)
        wrong += status != (EXIT_LIMIT if number % 2 else EXIT_DONE)
        differing |= {limit for limit in LIMITS if figures[limit] != first[limit]}
    print(f"{name}: {checks} checks, {wrong} wrong verdicts; figures that were not always the same: "
          f"{', '.join(sorted(differing)) or 'none'}", flush=True)
    return wrong == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("heapline", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROGRAMS))
    parser.add_argument("--checks", type=int, default=100, help="of each program")
    arguments = parser.parse_args()
    is_right = True
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "program.c").write_text("".join(f"int f{i}(int a) {{ return a * {i}; }}\n" for i in range(300)),
                                          encoding="ascii")
        (folder / "text").write_text("".join(f"{i * 7919 % 10007} ab{i}\n" for i in range(20000)), encoding="ascii")
        for name in arguments.names or PROGRAMS:
            if shutil.which(PROGRAMS[name][0]):
                is_right &= soak(arguments.heapline.resolve(), folder, name, arguments.checks)
            else:
                print(f"{name}: not there")
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()
