#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Fails where the image that heapline brings into running processes needs a loader or libc.

usage: check_image.py IMAGE

It is laid out by hand: it may have no undefined symbol and no thread-local storage, relocations of
one kind alone, and no needed library, and it exports one symbol.
"""

import re
import subprocess
import sys


def readelf(image, *options):
    return subprocess.run(["readelf", "-W", *options, image], check=True, capture_output=True, text=True).stdout


def complaints(image):
    for line in readelf(image, "--dyn-syms", "-s").splitlines():
        columns = line.split()
        if len(columns) >= 8 and columns[0].rstrip(":").isdigit() and columns[0] != "0:":
            if columns[6] == "UND":
                yield f"undefined symbol: {columns[7]}"
            if columns[3] == "TLS":
                yield f"thread-local symbol: {columns[7]}"
            if columns[4] != "LOCAL" and columns[7] != "hl_attached":
                yield f"exported symbol: {columns[7]}"
    for kind in re.findall(r"\bR_[A-Z]\w+", readelf(image, "-r")):
        if not kind.endswith("_RELATIVE"):
            yield f"relocation: {kind}"
    for line in readelf(image, "-l", "-d").splitlines():
        for unwanted in ("TLS ", "INTERP ", "(NEEDED)", "(INIT", "(FINI", "(TEXTREL)"):
            if unwanted in line:
                yield f"unwanted: {line.strip()}"
        if line.split()[:1] == ["LOAD"] and "RWE" in line.replace(" ", ""):
            yield f"writable code: {line.strip()}"
    if "hl_attached" not in readelf(image, "--dyn-syms"):
        yield "hl_attached is not exported"


def main():
    found = sorted(set(complaints(sys.argv[1])))
    for complaint in found:
        print(f"{sys.argv[1]}: {complaint}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
