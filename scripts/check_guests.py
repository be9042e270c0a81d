#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Fails where the core knows more of its guests than it did: the runtimes, each in a folder of src/guests.

Two numbers are counted in the sources outside of src/guests, and may only fall: lines that include a
guest's headers, other than the door itself, and files that name a language. Whoever lowers one writes
it down here.
"""

import re
import sys
from pathlib import Path

DOOR = ("guests/guest.h", "guests/outside.h", "guests/provider.h", "guests/tool.h", "guests/traits.h")
INCLUDE = re.compile(r'^\s*#\s*include\s+"(guests/[^"]+)"', re.M)
LANGUAGE = re.compile("lua|python|skynet|erlang|beam", re.I)
MOST_INCLUDES = 0
MOST_FILES = 2


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: check_guests.py TREE")
    tree = Path(sys.argv[1]) / "src"
    includes, names = [], []
    for path in sorted(tree.rglob("*.[ch]")):
        place = path.relative_to(tree)
        if place.parts[0] == "guests":
            continue
        text = path.read_text(encoding="utf-8")
        includes += [f"{place}: {header}" for header in INCLUDE.findall(text) if header not in DOOR]
        if LANGUAGE.search(text):
            names.append(str(place))
    failed = False
    for found, most, what in ((includes, MOST_INCLUDES, "includes of guests in the core"),
                              (names, MOST_FILES, "files of the core that name a language")):
        if len(found) != most:
            failed = True
            print(f"check_guests.py: {len(found)} {what}, where there were {most}; " +
                  ("these are all:" if len(found) > most else "write the new number into scripts/check_guests.py"))
            if len(found) > most:
                print("\n".join(f"  {line}" for line in found))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
