#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Fails where the core knows more than it did of its guests, the runtimes in src/guests, or of the allocators in src/allocators.

Three numbers are counted and may only fall: outside of src/guests and of its part of src/arch lines that include a guest's headers, other than the door itself,
and files that name a language; outside of src/allocators files that name an allocator, which importers of such allocators' own files
do. Whoever lowers one writes it down here.
"""

import re
import sys
from pathlib import Path

DOOR = ("guests/guest.h", "guests/outside.h", "guests/provider.h", "guests/traits.h")
INCLUDE = re.compile(r'^\s*#\s*include\s+"(guests/[^"]+)"', re.M)
LANGUAGE = re.compile("lua|php|python|ruby|skynet|erlang|beam", re.I)
ALLOCATOR = re.compile("jemalloc|tcmalloc|mimalloc|rpmalloc|scudo", re.I)
MOST_INCLUDES = 0
MOST_FILES = 4
MOST_ALLOCATORS = 5


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: check_guests.py TREE")
    tree = Path(sys.argv[1]) / "src"
    includes, names, allocators = [], [], []
    for path in sorted(path for path in tree.rglob("*") if path.is_file()):
        place = path.relative_to(tree)
        text = path.read_text(encoding="utf-8")
        if place.parts[0] != "allocators" and ALLOCATOR.search(text):
            allocators.append(str(place))
        folder = place.parts[2] if place.parts[0] == "arch" and len(place.parts) > 2 else place.parts[0]
        if folder == "guests" or path.suffix not in (".c", ".h"):
            continue
        includes += [f"{place}: {header}" for header in INCLUDE.findall(text) if header not in DOOR]
        if LANGUAGE.search(text):
            names.append(str(place))
    failed = False
    for found, most, what in ((includes, MOST_INCLUDES, "includes of guests in the core"),
                              (names, MOST_FILES, "files of the core that name a language"),
                              (allocators, MOST_ALLOCATORS, "files outside of src/allocators that name an allocator")):
        if len(found) != most:
            failed = True
            print(f"check_guests.py: {len(found)} {what}, where there were {most}; " +
                  ("these are all:" if len(found) > most else "write the new number into scripts/check_guests.py"))
            if len(found) > most:
                print("\n".join(f"  {line}" for line in found))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
