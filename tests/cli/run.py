#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Golden tests of the command line, as TAP.

usage: run.py [--record] [--sanitized] [--without GUEST,...] HEAPLINE MAKE_RECORDING [CASE...]

A case is a file of cases/. It begins with a command, which sh runs in a folder with the recordings of
make_recording.c. The expected output follows: "=== out" and its lines, "=== err" and its lines, each
absent when empty, "=== status N" when N is not 0. --record writes them as they come now: read the diff
before you commit it. A new case is a file with a command. --sanitized skips the cases that begin with
"# not sanitized: " and the reason, --without those that begin with "# guests: " and one of these.
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
SECTION = re.compile(r"^=== (out|err|status)(?: (\d+)|(, without a newline at the end))?\n", re.M)
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


def read_case(path):
    """The case's command, and what is expected: {section: text}."""
    command, *sections = SECTION.split(path.read_bytes().decode())
    expected = dict.fromkeys(("out", "err", "status"), "")
    for name, status, is_cut, text in zip(*[iter(sections)] * 4):
        expected[name] = f"{status}\n" if status else text[:-1] if is_cut else text
    return command, expected


def record(path, command, found):
    sections = [command]
    for name, text in found.items():
        if name == "status" and text:
            sections.append(f"=== status {text}")
        elif text:
            sections.append(f"=== {name}\n{text}" if text.endswith("\n") else
                            f"=== {name}, without a newline at the end\n{text}\n")
    path.write_bytes("".join(sections).encode())  # keeps CR as it came


def run_case(command, folder, environment):
    """What the command writes and how it ends: {section: text}."""
    ended = subprocess.run(["sh", "-c", command], cwd=folder, env=environment,
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


def differences(expected, found):
    for name, text in found.items():
        yield from difflib.unified_diff(expected[name].splitlines(), text.splitlines(),
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
    command, expected = read_case(case)
    if reason := reason_to_skip(command, args):
        return [], reason
    folder = template.parent / case.stem
    copy_named(template, folder, command)
    kept = Path(f"{folder}{JSON_SUFFIX}")
    kept.mkdir()
    found = run_case(command, folder, environment_of(folder))
    lines = list(check_json([*kept.iterdir(), *folder.glob("*.json")]))
    shutil.rmtree(folder, ignore_errors=True)
    if args.record:
        record(case, command, found)
        return lines, ""
    return lines + list(differences(expected, found)), ""


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--sanitized", action="store_true")
    parser.add_argument("--without", metavar="GUEST,...", default="")
    parser.add_argument("heapline", type=Path)
    parser.add_argument("make_recording", type=Path)
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    cases = sorted(path for path in CASES.iterdir() if not args.cases or path.stem in args.cases)
    failed = 0
    print(f"1..{len(cases)}")
    with tempfile.TemporaryDirectory(prefix="heapline-test-") as parent, ThreadPoolExecutor(os.cpu_count()) as pool:
        template = Path(parent) / "template"
        template.mkdir()
        make_template(template, args.heapline.resolve(), args.make_recording.resolve())
        outcomes = pool.map(lambda case: outcome_of(case, template, args), cases)
        for number, (case, (lines, reason)) in enumerate(zip(cases, outcomes), 1):
            failed += bool(lines)
            print(f"{'not ok' if lines else 'ok'} {number} - {case.stem.replace('-', ' ')}" + f" # skip {reason}" * bool(reason))
            print("".join(f"# {line}\n" for line in lines), end="", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
