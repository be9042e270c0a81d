#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Fails where a source includes what the map of CONTRIBUTING.md does not allow its folder.

The map is a table with one row for each folder: what it is, and which folders it may include. A
folder includes only folders above it in the table, so there is no circle. Every folder that holds
sources has a row, and every row has a folder.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

MACHINES = ("src/arch/aarch64", "src/arch/x86_64")  # a folder of src there is part of the one of the same name here
ROOTS = (*MACHINES, "include", "src")  # where the paths of includes begin
ROW = re.compile(r"^\| `(?P<folder>[^`]+)` \|[^|]+\| (?P<allowed>[^|]+) \|$")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
# Headers that the build generates, by the source that they are made from.
GENERATED = {".pb-c.h": ".proto", ".skel.h": ".bpf.c"}


@dataclass
class Row:
    """A folder of the map; folders are named as includes name them, without their root."""

    line: int
    path: str
    allowed: set


def read_map(text):
    """The rows by folder, in their order."""
    rows = {}
    for number, line in enumerate(text.splitlines(), 1):
        found = ROW.match(line)
        root, _, folder = found["folder"].partition("/") if found else ("", "", "")
        if root in ROOTS:
            rows[folder] = Row(number, found["folder"], set(re.findall(r"`([^`]+)`", found["allowed"])))
    return rows


def sources(tree):
    return sorted(path for root in ("include", "src") for path in (tree / root).rglob("*.[ch]"))


def folder_with(tree, path):
    """The folder that a source is part of, from the tree."""
    folder = str(path.parent.relative_to(tree))
    for machine in MACHINES:
        folder = re.sub(rf"^{machine}/", "src/", folder)
    return folder


def check_rows(tree, rows):
    """Whether the map and the folders of the tree are the same, and arrows point up the table."""
    folders = {folder_with(tree, path) for path in sources(tree)}
    for folder in sorted(folders - {row.path for row in rows.values()}):
        yield f"CONTRIBUTING.md: the map has no row for {folder}"
    above = set()
    for folder, row in rows.items():
        place = f"CONTRIBUTING.md:{row.line}"
        if row.path not in folders:
            yield f"{place}: there is no folder {row.path} with sources"
        for other in sorted(row.allowed - above):
            yield f"{place}: {folder} may include {other}, which is not the name of a row above it"
        above.add(folder)


def folder_of(tree, included):
    """The folder of an included file; "" where there is no such file."""
    if "/" in included:
        exists = any((tree / root / included).exists() for root in ROOTS)
        return str(Path(included).parent) if exists else ""
    for suffix, made_from in GENERATED.items():
        name = included.removesuffix(suffix)
        while name:  # NAME_VARIANT is made from the source NAME
            for source in (tree / "src").rglob(name + made_from):
                return str(source.parent.relative_to(tree / "src"))
            name = name.rpartition("_")[0]
    return ""


def check_includes(tree, rows):
    for path in sources(tree):
        own = folder_with(tree, path).partition("/")[2]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found = INCLUDE.match(line)
            if not found or own not in rows:
                continue
            other = folder_of(tree, found[1])
            place = f"{path.relative_to(tree)}:{number}"
            if not other:
                yield f'{place}: "{found[1]}" is not a path from src or include'
            elif other != own and other not in rows[own].allowed:
                yield f"{place}: {own} may not include {other}; see the map in CONTRIBUTING.md"


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: check_layers.py TREE")
    tree = Path(sys.argv[1])
    rows = read_map((tree / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    if not rows:
        sys.exit("CONTRIBUTING.md: there is no map of folders")
    failures = [*check_rows(tree, rows), *check_includes(tree, rows)]
    for failure in failures:
        print(failure)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
