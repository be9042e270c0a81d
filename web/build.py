#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Bundles the page of `heapline report`, and the script of `heapline flame`, into a file each, with esbuild.

usage: build.py FOLDER
"""

import base64
import hashlib
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "src"


def bundle(entry):
    """The file with all that it imports, made small."""
    said = subprocess.run(["esbuild", str(SOURCES / entry), "--bundle", "--minify", "--target=es2020",
                           "--charset=utf8", "--legal-comments=none", "--log-level=warning"],
                          capture_output=True, text=True, check=True)
    return said.stdout.strip()


def source_hash(text):
    """As a Content-Security-Policy names what may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def build_page():
    script, style = bundle("main.ts"), bundle("style.css")
    if "</script" in script or "</style" in style:
        sys.exit("build.py: the bundle would end its own element")
    page = (SOURCES / "page.html").read_text()
    for mark, text in {"@SCRIPT_HASH@": source_hash(script), "@STYLE_HASH@": source_hash(style),
                       "@STYLE@": style, "@SCRIPT@": script}.items():
        page = page.replace(mark, text)
    return page


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / "report.html").write_text(build_page())
    (folder / "flame.js").write_text(bundle("picture.ts") + "\n")
