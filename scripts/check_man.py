#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Compares heapline's table of verbs with the man pages, both ways.

usage: check_man.py HEAPLINE MAN_FOLDER
"""

import re
import subprocess
import sys
from pathlib import Path

# Verbs that stand in heapline(1) and have no page of their own.
IN_MAIN_PAGE = {"help", "version"}


def words(program, *line):
    """What the last word of a command line can be."""
    said = subprocess.run([program, "--complete", *line], capture_output=True, text=True,
                          check=True)
    return [offer.split("\t")[0] for offer in said.stdout.splitlines()]


def options_of_page(text):
    """The long options that head an entry of the page."""
    entries = re.findall(r"^\*-.*$", text, re.M)
    return {option for entry in entries for option in re.findall(r"--[a-z][a-z0-9-]*", entry)}


def options_of_verb(program, verb):
    listed = set(words(program, verb, "--"))
    return listed - {"--help"}  # every verb has it; heapline(1) says so


def page_problems(page, program, verb):
    """Differences between a verb's own page and its options."""
    listed, described = options_of_verb(program, verb), options_of_page(page.read_text())
    for option in sorted(listed - described):
        yield f"{page.name} does not describe {option}"
    for option in sorted(described - listed):
        yield f"{page.name} describes {option}, which heapline {verb} does not have"


def problems(program, folder):
    main_page = (folder / "heapline.1.scd").read_text()
    for verb in words(program, ""):
        page = folder / f"heapline-{verb}.1.scd"
        if not re.search(rf"^\*(heapline-)?{verb}\*", main_page, re.M):
            yield f"heapline.1.scd does not list the verb '{verb}'"
        if page.exists():
            yield from page_problems(page, program, verb)
        elif verb not in IN_MAIN_PAGE:
            yield f"the verb '{verb}' has no page {page.name}"
        else:
            for option in sorted(options_of_verb(program, verb)):
                if f"*{option}*" not in main_page:
                    yield f"heapline.1.scd does not describe {option} of '{verb}'"


def main():
    found = list(problems(sys.argv[1], Path(sys.argv[2])))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
