#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Prints figures of the sources' shape: figures.py [FOLDER ...], by default src.

They show where the tree grows pieces that a reader has to hop between: static functions with one
caller, headers with one declaration, exported functions that a file's name does not lead to. The
sources are read as text in the layout of clang-format, so the figures are close, not exact.
"""

import re
import sys
from collections import Counter
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
LONG = 80
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
WORD = re.compile(r"\b\w+\b")


class Function:
    """A definition: its head ends above a line that is "{", its body at the next line that is "}"."""

    def __init__(self, path, head, lines):
        self.path = path
        self.name = re.search(r"(\w+)\(", head)[1]
        self.is_static = "static" in head.split("(")[0].split()
        self.is_for_programs = "HL_EXPORT" in head  # its name is libc's, or the library's promise
        self.lines = lines


def functions_of(path, code):
    lines = code.split("\n")
    found = []
    for at in [at for at, line in enumerate(lines) if line == "{"]:
        top = at
        while top > 0 and lines[top - 1] and lines[top - 1][0] not in "#}" and lines[top - 1][-1] != ";":
            top -= 1
        head = " ".join(lines[top:at])
        if re.search(r"\w\(", head) and "=" not in head:
            found.append(Function(path, head, lines.index("}", at) - top + 1))
    return [function for function in found if function.name not in ("main", "__attribute__")]


def uses_of(names, code):
    """How often each name is used in the file: where it is not on an unindented line."""
    used = "\n".join(line for line in code.split("\n") if line[:1] in ("\t", " "))
    return Counter(word for word in WORD.findall(used) if word in names)


def share(part, whole):
    return f"{100 * part / whole:.0f} %" if whole else "-"


def has_prefix(function):
    """hl_FILE_..., or hl_FILE itself, the file's name in the singular or the plural."""
    stem = function.path.stem
    bare = re.sub(r"^_*hl_", "", function.name)
    return any(bare == word or bare.startswith(word + "_") for word in (stem, stem.rstrip("s")))


def print_figures(folders):
    sources = [path for folder in folders for path in sorted(Path(folder).rglob("*.[ch]"))
               if not path.name.endswith(".bpf.c")]
    if not sources:
        sys.exit(f"figures.py: {' '.join(map(str, folders))}: no sources; name folders of src")
    lines = static = once = exported = prefixed = 0
    lengths = []
    for path in sources:
        text = path.read_text()
        lines += text.count("\n")
        code = STRING.sub('""', COMMENT.sub("", text))
        functions = functions_of(path, code)
        lengths += [function.lines for function in functions]
        if path.suffix == ".h":
            continue
        own = [function for function in functions if function.is_static]
        uses = uses_of({function.name for function in own}, code)
        static += len(own)
        once += sum(uses[function.name] == 1 for function in own)
        public = [function for function in functions
                  if not function.is_static and not function.is_for_programs]
        exported += len(public)
        prefixed += sum(has_prefix(function) for function in public)
    lengths.sort()
    suffixes = Counter(path.suffix for path in sources)
    rows = [
        ("lines of .c and .h", f"{lines:,}"),
        ("static functions with one caller", f"{share(once, static)} of {static:,}"),
        ("headers / .c files", f"{suffixes['.h']} / {suffixes['.c']}"),
        (f"function length: median / 90 % / over {LONG}",
         f"{lengths[len(lengths) // 2]} / {lengths[len(lengths) * 9 // 10]} / "
         f"{sum(length > LONG for length in lengths)}"),
        ("exported functions with their file's prefix", f"{share(prefixed, exported)} of {exported:,}"),
    ]
    print("| what | figure |\n|---|---|")
    for name, figure in rows:
        print(f"| {name} | {figure} |")


if __name__ == "__main__":
    print_figures([Path(folder) for folder in sys.argv[1:]] or [TREE / "src"])
