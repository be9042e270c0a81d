#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What `record` knows of allocators that are called by names of their own, `attach` knows as well: each function in
src/allocators/inside/hooks.c has a line in src/allocators/presets.txt, or is in src/allocators/traits.c as one that throws, or has
a reason below.

    check_families.py ROOT"""

import pathlib
import re
import sys

# No rule says where these have their size, or nobody may pass them.
EXCEPT = {
    "mi_wcsdup": "a wide text", "mi_realpath": "a text if the caller has no room for it",
    "mi_heap_realpath": "the same", "mi_dupenv_s": "a text that it writes elsewhere",
    "mi_heap_alloc_new": "it may throw, and its blocks go with a heap", "mi_heap_alloc_new_n": "the same",
    "mi_theap_alloc_new": "the same", "mi_theap_alloc_new_n": "the same",
    "xallocx": "it resizes in place", "je_xallocx": "the same",
    "strdup": "that of libmimalloc has a line with its file", "strndup": "the same",
}
# jemalloc without a prefix has these beside malloc, and attach finds them there.
BESIDE_MALLOC = ("mallocx", "rallocx", "dallocx", "sdallocx")


def main():
    root = pathlib.Path(sys.argv[1])
    hooks = (root / "src/allocators/inside/hooks.c").read_text(encoding="utf-8")
    presets = (root / "src/allocators/presets.txt").read_text(encoding="utf-8")
    names = (root / "src/allocators/traits.c").read_text(encoding="utf-8")
    recorded = set(re.findall(r"^(?:ALLOCATE|ALIGN|MEMALIGN|RESIZE(?!_OR_THROW)|RELEASE)\w*\((\w+)", hooks, re.M))
    attached = set(re.findall(r"^(?:malloc|calloc|realloc|posix_memalign|free)=(\w+)", presets, re.M))
    attached |= set(re.findall(r'{"(\w+)", \w+, true}', names))
    attached |= {name for name in BESIDE_MALLOC if f'{{"{name}"' in names}
    wrong = sorted(recorded - attached - set(EXCEPT))
    for name in wrong:
        print(f"src/allocators/presets.txt: '{name}' is missing: record knows it", file=sys.stderr)
    for name in sorted(set(EXCEPT) & attached):
        print(f"{sys.argv[0]}: '{name}' has a line now", file=sys.stderr)
        wrong.append(name)
    if len(recorded) < 100:
        sys.exit("src/allocators/inside/hooks.c has another form")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
