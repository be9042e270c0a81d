#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""
check_blank_lines.py [--fix] [FOLDER ...]: a blank line separates the declarations at a function's top
from its first statement. Prints where it is missing, or inserts it. Inner blocks have none.

clang-format sees to the rest: never two blank lines, none after '{' or before '}'. The sources are
read as text in its layout, with tabs.
"""

import re
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
FOLDERS = ["src", "include", "tests", "bench"]
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
# TYPE NAME and what may follow a name; ATTRIBUTE(...) may stand before it.
DECLARATION = re.compile(
    r"(?!(?:return|goto|else|case|sizeof|typedef)\b)(?:\w+\([^()]*\)\s+)?(?:\w+\s+)*"
    r"(?:\w+[\s*]+(?:const\s+)?\w+\s*(?:[=;,[]|$)|\w+\s+\(\*\w+\)\()|(?:(?:static|const)\s+)*"
    r"(?:struct|union|enum)\s*(?:\w+\s*)?\{")


def without_comments(text):
    """The text with its lines kept: comments are NUL bytes, strings are empty."""
    text = STRING.sub('""', text)
    return COMMENT.sub(lambda found: re.sub(r"[^\n]+", "\0", found[0]), text)


def statement_end(lines, at):
    """The last line of the statement that begins at ${at}; of one with a block, the line of its '{'."""
    text = ""
    for end in range(at, len(lines)):
        text += lines[end].replace("\0", "").strip()
        if text.count("(") == text.count(")") and (
                text.endswith(";") and text.count("{") == text.count("}")
                or text.endswith("{") and not DECLARATION.match(text)):
            return end
    return len(lines)


def missing_line(lines, top):
    """Before which line of the function whose '{' is ${top} a blank one is missing; None: nowhere."""
    declarations, at = [], top + 1
    while at < len(lines) and lines[at] != "}":
        line = lines[at].replace("\0", "").strip()
        if not lines[at] or line.startswith("#"):
            return None
        if line and not DECLARATION.match(line):
            break
        end = statement_end(lines, at) if line else at
        if line:
            declarations.append((at, " ".join(lines[at:end + 1])))
        at = end + 1
    if not declarations or at >= len(lines) or lines[at] == "}":
        return None
    while lines[at - 1].strip("\t ").startswith("\0"):
        at -= 1  # comments go with the statement
    # The last declaration is the first statement where it calls, and its result is tested next.
    last, text = declarations[-1]
    name = re.search(r"(\w+)\s*=.*\b(?!sizeof)\w+\(", text)
    if len(declarations) > 1 and name and re.match(rf"\t(?:if|while) .*\b{name[1]}\b", lines[at]):
        at = last
        while lines[at - 1].strip("\t ").startswith("\0"):
            at -= 1
    return at


def missing_lines(path):
    lines = without_comments(path.read_text()).split("\n")
    found = [missing_line(lines, top) for top, line in enumerate(lines) if line == "{"]
    return [at for at in found if at is not None]


def sources_in(folders):
    """What git knows or would add: not what a build has made."""
    listed = subprocess.run(["git", "-C", TREE, "ls-files", "-z", "--cached", "--others",
                             "--exclude-standard", "--", *folders],
                            capture_output=True, check=False)
    if listed.returncode:
        print("skipped: not a git work tree")
        sys.exit(77)
    paths = [TREE / name for name in listed.stdout.decode().split("\0")]
    return sorted(path for path in paths if path.suffix in (".c", ".h") and path.is_file())


def main(arguments):
    folders = [folder for folder in arguments if folder != "--fix"] or FOLDERS
    count = 0
    for path in sources_in(folders):
        missing = missing_lines(path)
        if "--fix" in arguments and missing:
            lines = path.read_text().split("\n")
            for at in reversed(missing):
                lines.insert(at, "")
            path.write_text("\n".join(lines))
            continue
        for at in missing:
            print(f"{path.relative_to(TREE)}:{at + 1}: a blank line is missing after declarations")
        count += len(missing)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
