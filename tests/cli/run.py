#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Golden tests of the command line, as TAP.

usage: run.py [--record] [--sanitized] [--without GUEST,...] HEAPLINE MAKE_RECORDING [CASE...]

A case is a folder of cases/: `cmd` is run by sh in a folder with the recordings of
make_recording.c; `out`, `err` (absent when empty) and `status` (absent when 0) are what must come.
--record writes them as they come now: read the diff before you commit it. --sanitized skips the
cases whose `cmd` begins with "# not sanitized: " and the reason, --without those that begin with
"# guests: " and one of these.
"""

import argparse
import difflib
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import schemas  # pylint: disable=wrong-import-position

CASES = Path(__file__).resolve().parent / "cases"
RECORDINGS = ("shop", "snapshot", "later-snapshot", "attached", "leaking", "switched", "sized", "paged", "two", "none", "empty", "own-malloc", "replaced", "lossy", "logged",
              "logged-later", "two-logged", "broken-log", "begun", "early")
NOT_SANITIZED = "# not sanitized: "
GUESTS = "# guests: "
TIMEOUT_S = 300  # ends a hang; no case takes a tenth of it
JSON_SUFFIX = "-json"  # of the folder beside that of a case that keeps JSON

# The program; what it writes as JSON is kept besides, to be compared with its schema.
KEEPING_JSON = """#!/bin/sh
json=
for word; do [ "$word" != --json ] || json=1; done
[ "$json" ] && [ ! -c /dev/stdout ] || exec {heapline} "$@"
file=$(mktemp "$HEAPLINE_TEST_JSON"/XXXXXX)
{heapline} "$@" >"$file"
status=$?
cat "$file"
exit $status
"""


def make_template(folder, heapline, make_recording):
    """Fills `folder` with what every case begins with."""
    for name in RECORDINGS:
        subprocess.run([make_recording, name, f"{name}.hl"], cwd=folder, check=True)
    programs = folder / "bin"
    programs.mkdir()
    program = programs / "heapline"
    program.write_text(KEEPING_JSON.format(heapline=heapline))
    program.chmod(0o755)


def environment_of(folder):
    return {"PATH": f"{folder}/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC",
            "HEAPLINE_TEST_JSON": f"{folder}{JSON_SUFFIX}",
            "HOME": str(folder)}


def run_case(case, folder, environment):
    """What the case writes and how it ends: {file name: text}."""
    ended = subprocess.run(["sh", "-c", (case / "cmd").read_text()], cwd=folder, env=environment,
                           stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S)
    return {"out": ended.stdout.decode(errors="backslashreplace"),
            "err": ended.stderr.decode(errors="backslashreplace"),
            "status": f"{ended.returncode}\n" if ended.returncode else ""}


def check_json(paths):
    """The parts of a case's JSON that do not match its schema."""
    for path in paths:
        try:
            schemas.check_text(path.read_text(errors="replace"))
        except AssertionError as error:
            yield str(error)


def expected_text(case, name):
    path = case / name
    return path.read_text() if path.exists() else ""


def record(case, found):
    for name, text in found.items():
        path = case / name
        if text:
            path.write_bytes(text.encode())  # keeps CR as it came
        else:
            path.unlink(missing_ok=True)


def differences(case, found):
    for name, text in found.items():
        yield from difflib.unified_diff(expected_text(case, name).splitlines(), text.splitlines(),
                                        f"expected {name}", f"found {name}", lineterm="")


def copy_named(template, folder, command):
    """A folder for each case, with what its command can name, so that what one case changes no other one sees."""
    folder.mkdir()
    for path in template.iterdir():
        if path.name == "bin":
            (folder / path.name).symlink_to(path)  # a copy may be busy: another case's fork has it open
        elif path.stem in command or re.search(r"\*|\bls\b", command):
            (shutil.copytree if path.is_dir() else shutil.copy2)(path, folder / path.name)


def reason_to_skip(command, args):
    for line in itertools.takewhile(lambda line: line.startswith("# "), command.splitlines()):
        if args.sanitized and line.startswith(NOT_SANITIZED):
            return line.removeprefix(NOT_SANITIZED)
        missing = set(args.without.split(",")) & set(line.split())
        if line.startswith(GUESTS) and missing:
            return f"built without {' '.join(sorted(missing))}"
    return ""


def outcome_of(case, template, args):
    """Lines that say how what a case writes differs from what it should, and why it is not run, if it is not."""
    command = (case / "cmd").read_text()
    if reason := reason_to_skip(command, args):
        return [], reason
    folder = template.parent / case.name
    copy_named(template, folder, command)
    kept = Path(f"{folder}{JSON_SUFFIX}")
    kept.mkdir()
    found = run_case(case, folder, environment_of(folder))
    lines = list(check_json([*kept.iterdir(), *folder.glob("*.json")]))
    shutil.rmtree(folder, ignore_errors=True)
    if args.record:
        record(case, found)
    return lines + list(differences(case, found)), ""


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--sanitized", action="store_true")
    parser.add_argument("--without", metavar="GUEST,...", default="")
    parser.add_argument("heapline", type=Path)
    parser.add_argument("make_recording", type=Path)
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    cases = sorted(path.parent for path in CASES.glob("*/cmd")
                   if not args.cases or path.parent.name in args.cases)
    failed = 0
    print(f"1..{len(cases)}")
    with tempfile.TemporaryDirectory(prefix="heapline-test-") as parent, ThreadPoolExecutor(os.cpu_count()) as pool:
        template = Path(parent) / "template"
        template.mkdir()
        make_template(template, args.heapline.resolve(), args.make_recording.resolve())
        outcomes = pool.map(lambda case: outcome_of(case, template, args), cases)
        for number, (case, (lines, reason)) in enumerate(zip(cases, outcomes), 1):
            failed += bool(lines)
            print(f"{'not ok' if lines else 'ok'} {number} - {case.name.replace('-', ' ')}" + f" # skip {reason}" * bool(reason))
            print("".join(f"# {line}\n" for line in lines), end="", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
