# SPDX-License-Identifier: BSD-2-Clause
"""The table of what ran where, in docs/platforms.md: `make check SUITE=...` writes its row."""

import os
import platform
import re
import subprocess
from pathlib import Path

BEGIN, END = "<!-- written by make check SUITE=... -->", "<!-- until here -->"
COLUMNS = ["system", "kernel", "glibc", "gcc", "clang", "python3", "other runtimes", "parts", "passed", "failed", "skipped", "commit"]

# What prints a version, and what it is called here; the version is its first number with a dot.
RUNTIMES = {"lua": ["lua5.4", "-v"], "luajit": ["luajit", "-v"], "node": ["node", "--version"], "ruby": ["ruby", "--version"],
            "php": ["php", "--version"], "java": ["java", "-version"], "gdb": ["gdb", "--version"]}


def said(command, cwd=None):
    """What a program prints; "" where it is not installed."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    except FileNotFoundError:
        return ""
    return run.stdout + run.stderr


def version(command):
    found = re.search(r"\d+(\.\d+)+", said(command))
    return found[0] if found else ""


def versions(tree):
    """The versions of this system, by the columns of the table."""
    release = platform.freedesktop_os_release()
    number = Path("/etc/debian_version").read_text().strip() if release["ID"] == "debian" else release.get("VERSION_ID", "")
    runtimes = {name: version(command) for name, command in RUNTIMES.items()}
    return {
        "system": f"{release['NAME'].removesuffix(' GNU/Linux')} {number}",
        "kernel": version(["uname", "-r"]),
        "glibc": os.confstr("CS_GNU_LIBC_VERSION").split()[-1],
        "gcc": version(["gcc", "--version"]),
        "clang": version(["clang", "--version"]),
        "python3": version(["/usr/bin/python3", "--version"]),
        "other runtimes": ", ".join(f"{name} {number}" for name, number in runtimes.items() if number),
        "commit": said(["git", "rev-parse", "--short=8", "HEAD"], tree).strip(),
    }


def update(path, results):
    """Puts the results of a run, as check.py writes them, into the table; one of the same system and parts goes."""
    before, table, after = re.fullmatch(f"(.*{re.escape(BEGIN)}\n)(.*)({re.escape(END)}.*)", path.read_text(), re.DOTALL).groups()
    cells = {**results, "parts": " ".join(results["parts"]), "failed": len(results["failed"]), "skipped": len(results["skipped"])}
    new = [str(cells[column]) for column in COLUMNS]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    key = lambda row: (row[0], row[COLUMNS.index("parts")])
    rows = sorted([row for row in rows if key(row) != key(new)] + [new])
    lines = [COLUMNS, ["---"] * len(COLUMNS), *rows]
    path.write_text(before + "".join(f"| {' | '.join(line)} |\n" for line in lines) + after)
