#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""
check_prose.py: fails on turns of phrase that a reader has to read twice, with file and line.

For each it says what to write instead. Sources, tests, documentation and messages are read alike.
The output of programs in docs/benchmarks*.md is left as it was printed, and CHANGELOG.md as it was announced.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACES = ["src", "include", "man", "docs", "README.md", "CONTRIBUTING.md", "tests",
          "scripts", "bench", "web/src", ":!docs/benchmarks*", ":!scripts/check_prose.py"]
PATTERNS = [
    (r"(?<!there )\b(?:is|are) none\b", "say what it is, or what is missing"),
    (r"\bso (?:many|often|much)\b", "name the number"),
    (r"\b(?:of|for) who\b(?!,)", "name who it is: the caller, the reader"),
    (r"\bnobody knows\b", "'is unknown'"),
    (r"\banew\b", "'again'"),
    (r"\b(?:goes|go|comes?|begins?|ends?|lies|right|directly|bytes?|NUL|NULL|what is) behind\b",
     "'after' or 'beyond'"),
    (r"\bunless said otherwise\b", "'by default'"),
    (r"\ball zero is\b", "'zero-initialize'"),
    (r"\bin place of\b", "'instead of'"),
    (r"\bsome \d", "'about'"),
    (r"/\* As \w+\(", "'Like f(), but' or 'Same contract as f()'"),
    (r"(?<=[\w)}'])(?<!\bthere)(?<!\bhere) (?:is|are|was|were) no (?!longer|more|less|better|worse|faster|smaller|room|memory|UTF)\w+",
     "'is not a'"),
    (r"\b(?:stands?|stood|standing) still\b", "'is stopped' or 'waits'"),
    (r"(?:^[\s/*#]*|[.] )(?-i:Of) [^.,;\"]*\b(?:nothing|(?:is|are) not known)\b", "the subject first: 'nothing of ...'"),
    (r"\bwhat of (?:it|its|that|the|those|each)\b", "'the part of'"),
    (r"\btaken for (?!each|all|certain|\d)\w+", "'counts as' or 'is mistaken for'"),
    (r"\b(?:value|word|walk|frame|pointer|address|block|byte|count)s? (?:meets?|met)\b", "'reaches' or 'sees'"),
    (r"\b(?:says?|tells?) what (?:is|was) lost\b", "'reports losses'"),
    (r"\b(?:or_gone|take_again|is_unwalked)\b", "a name that is not half a sentence"),
]


def tracked():
    """The text files of the project that hold prose, images and recordings left out."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--", *PLACES],
                            capture_output=True, check=False)
    if listed.returncode:
        print("skipped: not a git work tree")
        sys.exit(77)
    for name in listed.stdout.decode().split("\0"):
        path = ROOT / name
        if name and path.is_file() and path.suffix not in (".svg", ".png"):
            yield name, path


def compiled(patterns):
    """The patterns, whatever the case of letters."""
    return [(re.compile(pattern, re.IGNORECASE), remedy) for pattern, remedy in patterns]


def main():
    """Prints each hit; 1 when there is any."""
    patterns = compiled(PATTERNS)
    hits = 0
    for name, path in tracked():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue  # not text
        for number, line in enumerate(lines, 1):
            for pattern, remedy in patterns:
                found = pattern.search(line)
                if found and "is None" not in found[0] and "are None" not in found[0]:
                    print(f"{name}:{number}: '{found[0]}': write {remedy}")
                    hits += 1
    return 1 if hits else 0


if __name__ == "__main__":
    sys.exit(main())
