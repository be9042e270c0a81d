#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Fails when docs/architecture.md or CONTRIBUTING.md name a function or a file of src that does not exist.

A function is a word with "()" after it; a hook has the name of the function that it stands in for.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ("docs/architecture.md", "CONTRIBUTING.md")
# A declaration begins in the first column: a name, perhaps after its type, or alone on the line after that.
DECLARED = re.compile(r"^(?:[A-Za-z_].*?[ *])??(?:HL_HOOK\()?([a-z]\w*)\)?\(", re.M)
NAMED = re.compile(r"\b([a-z]\w*)\(\)")
FILE = re.compile(r"(?<![\w/-])(?:src|scripts|tests|man|docs|include)/[\w./*-]*\w")


def functions():
    """The functions that src declares or defines."""
    return {name for path in (ROOT / "src").rglob("*.[ch]") for name in DECLARED.findall(path.read_text())}


def problems(name, known):
    """What a document names and the tree does not have."""
    for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
        for function in NAMED.findall(line):
            if function not in known:
                yield f"{name}:{number}: no function {function}() in src"
        for path in FILE.findall(line):
            if "VERB" not in path and "NAME" not in path and not list(ROOT.glob(path)):
                yield f"{name}:{number}: no file {path}"


def main():
    known = functions()
    found = [problem for name in DOCUMENTS for problem in problems(name, known)]
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
