#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Assembles a man page: replaces each line `; include NAME ...` of PAGE by parts/NAME.scd beside it.

usage: man_page.py PAGE OUTPUT DEPFILE

Several parts on one line are separated by an empty line. Parts may include others. The files that were read are
written to DEPFILE, in the syntax of make. For scdoc such a line is a comment.
"""

import sys
from pathlib import Path

INCLUDE = "; include "


def assemble(page, folder=None):
    """(the text of the page, the files it was made of). A part that does not exist raises FileNotFoundError."""
    folder = folder or page.parent / "parts"
    lines, files = [], [page]
    for line in page.read_text().splitlines():
        if not line.startswith(INCLUDE):
            lines.append(line)
            continue
        parts = [assemble(folder / f"{name}.scd", folder) for name in line.removeprefix(INCLUDE).split()]
        lines.append("\n\n".join(text.rstrip("\n") for text, _ in parts))
        files += [file for _, read in parts for file in read]
    return "\n".join(lines) + "\n", files


def main():
    page, output, depfile = sys.argv[1:]
    try:
        text, files = assemble(Path(page))
    except FileNotFoundError as error:
        sys.exit(f"man_page.py: cannot assemble '{page}': no part '{error.filename}'")
    Path(output).write_text(text)
    Path(depfile).write_text(f"{output}: {' '.join(map(str, files))}\n")


if __name__ == "__main__":
    main()
