#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Fails where a room has more lines than its budget in CONTRIBUTING.md, or a folder of src is in no room.

Blank lines and comments count: a reader reads them. Whoever makes a room smaller lowers its budget.
"""

import re
import sys
from pathlib import Path

ROW = re.compile(r"^\| ([a-z]+) \| ((?:`[\w/]+` ?)+) \| ([0-9,]+) \|$", re.M)
SLACK = 20  # a budget is at most a twentieth above what its room has


def lines_by_folder(sources):
    """The lines of the .c, .h and .S files in each folder, by its path below src."""
    lines = {}
    for path in sources.rglob("*.[chS]"):
        folder = str(path.parent.relative_to(sources))
        lines[folder] = lines.get(folder, 0) + path.read_text(encoding="utf-8").count("\n")
    return lines


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: check_budgets.py TREE")
    tree = Path(sys.argv[1])
    lines = lines_by_folder(tree / "src")
    rows = ROW.findall((tree / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    if not rows:
        sys.exit("CONTRIBUTING.md lacks the table of rooms and budgets")
    faults = []
    for room, folders, number in rows:
        budget = int(number.replace(",", ""))
        folders = re.findall(r"`([^`]+)`", folders)
        faults += [f"room '{room}': the folder src/{folder} has no sources, or is in another room too"
                   for folder in folders if folder not in lines]
        total = sum(lines.pop(folder, 0) for folder in folders)
        if total > budget:
            faults.append(f"room '{room}' has {total:,} lines, its budget is {budget:,}: look for what can go")
        elif budget - total > total // SLACK:
            faults.append(f"room '{room}' has {total:,} lines, its budget is {budget:,}: lower it")
    faults += [f"the folder src/{folder} is in no room" for folder in sorted(lines)]
    if faults:
        print("\n".join(f"CONTRIBUTING.md: {fault}" for fault in faults))
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
