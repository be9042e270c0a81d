#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Compares heapline's table of verbs with the man pages, both ways; and has heapline parse the examples of
the pages, of the README and of the tutorials, with -h at the end, so that none is run.

usage: check_man.py HEAPLINE MAN_FOLDER
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from man_page import assemble

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
    listed, described = options_of_verb(program, verb), options_of_page(assemble(page)[0])
    for option in sorted(listed - described):
        yield f"{page.name} does not describe {option}"
    for option in sorted(described - listed):
        yield f"{page.name} describes {option}, which heapline {verb} does not have"


def examples_of(path):
    """The command lines of heapline that readers are to type."""
    text = path.read_text()
    if path.suffix == ".scd":
        text = re.sub(r"\+\+$", "", text.partition("# EXAMPLES\n")[2].partition("\n# ")[0], flags=re.M)
    else:
        text = "\n".join(re.findall(r"^```.*?\n(.*?)^```", text, re.M | re.S)).replace("\\\n", " ")
    return re.findall(r"^\s*(?:\$ )?(?:build/)?(heapline [a-z].*)$", text, re.M)


def parse_line(example):
    """Its words, up to what the shell or the recorded program gets, with a process where one is to be filled in."""
    example = re.sub(r"--comm \S+", "-p 1", re.sub(r"\$\(.*?\)|\$\w+|\bPID\b", "1", example))
    lexer = shlex.shlex(example, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    line = []
    for word in lexer:
        if word == "--" or set(word) <= set("|&;<>"):
            break
        line.append(word)
    return line[1:]


def example_problems(program, path):
    for example in examples_of(path):
        said = subprocess.run([program, *parse_line(example), "-h"], capture_output=True, text=True,
                              check=False, stdin=subprocess.DEVNULL, env={"PATH": "/nonexistent"})
        if said.returncode:
            yield f"{path.name}: '{example}' is refused: {said.stderr.strip()}"


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


def part_problems(folder):
    """Parts that no page includes."""
    used = {file for page in folder.glob("*.scd") for file in assemble(page)[1]}
    for part in sorted(set(folder.glob("parts/*.scd")) - used):
        yield f"no page includes parts/{part.name}"


def main():
    program, folder = sys.argv[1], Path(sys.argv[2])
    found = [*problems(program, folder), *part_problems(folder)]
    tree = folder.parent
    for path in [*sorted(folder.glob("*.scd")), tree / "README.md", *sorted(tree.glob("docs/**/*.md"))]:
        found += example_problems(program, path)
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
