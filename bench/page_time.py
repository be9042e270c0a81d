#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Opens a page of `heapline report` in a headless Chromium, several times, and prints after how many
milliseconds it could be used: the least of what the page itself says.

A script of its own, for the system's Python, which has Debian's python3-selenium. Ends with 77,
having said why, where something is missing.

usage: page_time.py PAGE.html RUNS
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "browser"))

import harness  # noqa: E402


def time_of(page):
    """In a browser that has never seen the page."""
    with harness.open_browser() as driver:
        harness.open_page(driver, page)
        return harness.marks(driver)["interactive"]


def main():
    page, runs = sys.argv[1], int(sys.argv[2])
    if missing := harness.missing_for_browser():
        print(f"not installed: {missing}")
        sys.exit(harness.SKIPPED_STATUS)
    print(min(time_of(page) for _ in range(runs)))


if __name__ == "__main__":
    main()
