#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Writes a file as C, so that a program can have it built in.

usage: embed.py INPUT OUTPUT.c SYMBOL

OUTPUT.c defines `const char SYMBOL[]`, with a NUL byte after it, and `const size_t SYMBOL_size`
without that byte.
"""

import sys
from pathlib import Path

ESCAPES = {ord("\n"): r"\n", ord("\t"): r"\t", ord('"'): r"\"", ord("\\"): r"\\", ord("?"): r"\?"}
CHUNK = 4000  # below what the C standard lets a compiler refuse


def escaped(byte):
    """One byte within a string literal; three octal digits never swallow what follows."""
    if byte in ESCAPES:
        return ESCAPES[byte]
    return chr(byte) if 0x20 <= byte < 0x7f else f"\\{byte:03o}"


def literals(content):
    """The bytes as string literals, a line of the file on each line."""
    for line in content.splitlines(keepends=True) or [b""]:
        for at in range(0, len(line), CHUNK) or [0]:
            yield '"' + "".join(map(escaped, line[at:at + CHUNK])) + '"'


def main():
    source, target, symbol = sys.argv[1:]
    content = Path(source).read_bytes()
    lines = "\n\t".join(literals(content))
    Path(target).write_text(
        f"/* Made from {Path(source).name} by scripts/embed.py. */\n"
        f"#include <stddef.h>\n\n"
        f"extern const char {symbol}[];\nextern const size_t {symbol}_size;\n\n"
        f"const char {symbol}[] =\n\t{lines};\n\nconst size_t {symbol}_size = {len(content)};\n")


if __name__ == "__main__":
    main()
