#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Builds the tree in every way that must work and runs every test: what `make check` does.

Each part below is a build in build-check/ with the test suites that make sense there. The last
line says how many test cases passed, failed and were skipped in all parts together; the exit
status is 1 when any failed. With --suite all this happens in another release of Debian, and a
table of what ran where has its outcome.
"""

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import platforms
from redis_path import add_redis_server

TREE = Path(__file__).resolve().parent.parent
BUILDS = TREE / "build-check"
GUESTS = "-Dguests=beam,java,lua,php,python,ruby,skynet"  # all, also in a build that was set up when there were fewer
JOBS = str(min(os.cpu_count() or 2, 8))
SOURCES = ("src", "include", "tests", "bench")
# The layout of other versions differs.
CLANG_FORMAT_MAJOR = "14"
# Newer ones look before each function that is called by a pointer, where generated code has nothing.
SANITIZER_ARGS = "-Dc_args=-fno-sanitize-recover=all -fno-sanitize=function"
# A time limit only ends a hang. The limits in meson.build suit a quiet machine.
TIMEOUT_MULTIPLIER = "4"
# Many tests wait for what they test.
TEST_JOBS = str(int(JOBS) * 2)
SLOWEST_SHOWN = 40


@dataclass
class Part:
    """One build and the suites that run in it."""

    name: str
    says: str
    compiler: str
    suites: list
    options: list = field(default_factory=list)
    environment: dict = field(default_factory=dict)
    wrapper: list = field(default_factory=list)


PARTS = [
    Part("gcc", "gcc, release, every test", "gcc", []),
    Part(
        "clang",
        "clang, address and undefined behaviour sanitizers: unit and cli tests, fuzz targets",
        "clang",
        ["unit", "cli", "fuzz"],
        ["-Db_sanitize=address,undefined", "-Dfuzz=true", "-Db_lundef=false",
         "-Dbuildtype=debugoptimized", SANITIZER_ARGS],
        {"ASAN_OPTIONS": "detect_stack_use_after_return=1:allocator_may_return_null=1",
         "UBSAN_OPTIONS": "print_stacktrace=1"},
    ),
    Part(
        "tsan",
        "gcc, thread sanitizer: unit tests with threads",
        "gcc",
        ["threads"],
        # gcc warns that it sees no fences; what has them is not looked at.
        ["-Db_sanitize=thread", "-Dbuildtype=debugoptimized", "-Dc_args=-Wno-tsan"],
        {"TSAN_OPTIONS": "halt_on_error=1"},
        # The sanitizer does not cope with every layout that randomization can give.
        wrapper=["setarch", "--addr-no-randomize"],
    ),
    Part(
        "guests",
        "gcc, no guest built in: unit and cli tests",
        "gcc",
        ["unit", "cli"],
        # The quickest build that gcc 12 makes; warnings are for the other parts, this level has false ones.
        ["-Dguests=", "-Dbuildtype=plain", "-Doptimization=1", "-Dwerror=false"],
    ),
]

# What fits into a few minutes in a release that has nothing but what the build needs.
BASIC = Part("basic", "gcc, release: unit and cli tests, and recorded programs with known answers", "gcc",
             ["unit", "cli", "test_known_answer", "test_heap", "test_python"])
# What a developer runs between two edits, in a build that stays; `make quick` has set it up.
QUICK = Part("quick", "unit tests, the command line, checks of the tree", "", ["unit", "cli", "tree"], environment={"HL_ROUNDS": "40"})
DEVELOPMENT = TREE / "build-dev"
NEWCOMER = "debian13"
NEWCOMER_SUITE = "trixie"
NEWCOMER_SECONDS = 1200  # only a hang takes that long
RESULTS = "results.json"  # at the root of the release
ARM64 = "arm64"
ARM64_SECONDS = 1800  # as above
CANNOT = 77  # the exit status for what cannot be made here


class Tally:
    """Counts test cases; remembers why some failed or were skipped, and how long tests took."""

    def __init__(self):
        self.passed = 0
        self.durations = []  # (seconds of the processors, seconds, name of the test)
        self.failed = []
        self.skipped = []

    def add_results(self, part, results):
        """Counts what another run wrote with --results."""
        self.passed += results["passed"]
        self.failed += [f"{part}: {case}" for case in results["failed"]]
        self.skipped += [f"{part}: {case}" for case in results["skipped"]]

    def add_meson_test(self, part, record):
        """Counts one line of meson's testlog, case by case where its output names cases."""
        name = f"{part}: {record['name']}"
        output = record.get("stdout", "") + "\n" + record.get("stderr", "")
        cases = cases_in(output)
        verdict = record["result"]
        cpu = sum(float(part.replace(",", ".")) for part in found.groups()) if (found := CPU_TIME.search(output)) else 0.0
        output = CPU_TIME.sub("", output)
        self.durations.append((cpu, record["duration"], name))
        self.passed += len(cases["ok"])
        self.failed += [f"{name}: {case}" for case in cases["failed"]]
        self.skipped += [f"{name}: {case}" for case in cases["skipped"]]
        if verdict == "SKIP" and not cases["skipped"]:
            self.skipped.append(f"{name}: {last_line(output)}")
        elif verdict in ("OK", "EXPECTEDFAIL") and not any(cases.values()):
            self.passed += 1
        elif verdict not in ("OK", "EXPECTEDFAIL", "SKIP") and not cases["failed"]:
            self.failed.append(f"{name}: {verdict.lower()}: {last_line(output)}")


# How the lines of cmocka, of TAP and of Python's unittest name a case and its outcome.
CASE_LINES = (
    re.compile(r"\[\s+(?P<outcome>OK|FAILED|SKIPPED)\s+\] (?!(?:\w+: )?\d+ test)(?P<case>\S.*)"),
    re.compile(r"(?P<outcome>not ok|ok) \d+\s*-?\s*(?P<case>.*)"),
    re.compile(r"(?P<outcome>FAIL|ERROR): (?P<case>\S.*)"),
    re.compile(r"(?P<case>\S.*) \.\.\. (?P<outcome>ok|FAIL|ERROR|skipped)(?P<reason> .*)?$"),
)
REASON_CHARACTERS = 300
CPU_TIME = re.compile(r"^processor time: ([\d.,]+) \+ ([\d.,]+) s$", re.M)  # of scripts/timed.sh
OUTCOMES = {"ok": "ok", "skipped": "skipped"}  # every other one is a failure


def cases_in(output):
    """The test cases that a program's output names, by outcome."""
    cases = {"ok": [], "failed": [], "skipped": []}
    told = []  # since the last case: why the next one failed
    for line in output.splitlines():
        found = next(filter(None, (pattern.match(line) for pattern in CASE_LINES)), None)
        if not found:
            told = [] if line.startswith("[ RUN ") else [*told, line.strip()]
            continue
        case = found["case"] + (found.groupdict().get("reason") or "")
        outcome = OUTCOMES.get(found["outcome"].lower(), "failed")
        if outcome == "failed" and line.startswith("["):
            if any(known.startswith(f"{case}: ") for known in cases["failed"]):
                continue  # named again at the end
            case += ": " + "; ".join(filter(None, told))[-REASON_CHARACTERS:]
        told = []
        if re.search(r"#\s*skip", case, re.I):
            outcome = "skipped"
        if outcome == "ok" or case not in cases[outcome]:  # these are named twice
            cases[outcome].append(case)
    return cases


def last_line(output):
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"


def run(command, environment=None, **options):
    merged = {**os.environ, **(environment or {})}
    return subprocess.run(command, cwd=TREE, env=merged, check=False, **options)


def source_files():
    found = (path for top in SOURCES for path in (TREE / top).rglob("*"))
    return sorted(str(path.relative_to(TREE)) for path in found
                  if path.suffix in (".c", ".h", ".cc"))


def clang_format():
    """The pinned clang-format, or None."""
    for program in (f"clang-format-{CLANG_FORMAT_MAJOR}", "clang-format"):
        if shutil.which(program):
            said = run([program, "--version"], capture_output=True, text=True).stdout
            if f"version {CLANG_FORMAT_MAJOR}." in said:
                return program
    return None


def check_format(tally):
    program = clang_format()
    if not program:
        tally.skipped.append(f"format: there is no clang-format {CLANG_FORMAT_MAJOR}")
        return
    if run([program, "--dry-run", "-Werror", "--ferror-limit=3", *source_files()]).returncode:
        tally.failed.append("format: run `make format`")
    else:
        tally.passed += 1


def fix_format():
    program = clang_format()
    if not program:
        sys.exit(f"check.py: cannot format: there is no clang-format {CLANG_FORMAT_MAJOR}; "
                 "install it with: make check")
    sys.exit(run([program, "-i", *source_files()]).returncode)


def configure(part, directory):
    """Sets the build up, silently unless that fails."""
    again = ["--reconfigure"] if (directory / "build.ninja").exists() else []
    compilers = {"CC": part.compiler, "CXX": {"gcc": "g++", "clang": "clang++"}[part.compiler]}
    setup = run(["meson", "setup", *again, "-Dwerror=true", "-Dtests=true", "-Dbench=true", GUESTS, *part.options,
                 str(directory)], compilers, capture_output=True, text=True)
    if setup.returncode:
        print(setup.stdout, setup.stderr, flush=True)
    return setup.returncode == 0


def introspect(directory, what):
    said = run(["meson", "introspect", f"--{what}", str(directory)], capture_output=True)
    return json.loads(said.stdout or "[]")


def suites_of(test):
    """The suites a test says it is in, the folder of tests/ that it comes from, and its script."""
    named = {suite.split(":")[-1] for suite in test["suite"]} | {Path(word).stem for word in test["cmd"]}
    folders = {found[1] for word in test["cmd"] if (found := re.search(r"/tests/(\w+)/", word))}
    return named | folders


def tests_of(part, directory):
    """The tests of the part's suites."""
    return [test for test in introspect(directory, "tests")
            if not part.suites or suites_of(test) & set(part.suites)]


def needed_targets(tests, directory):
    """What ninja has to build: all of src, what is installed, and what these tests need; of tests in Python all programs
    beside them."""
    targets = introspect(directory, "targets")
    needed = {id for test in tests for id in test["depends"]} | {target["id"] for target in targets if target["installed"]}
    folders = [TREE / "src"] + [TREE / "tests/e2e"] * any("e2e" in suites_of(test) for test in tests)
    needed |= {target["id"] for target in targets
               if any(Path(target["defined_in"]).is_relative_to(folder) for folder in folders)}
    return sorted(os.path.relpath(name, directory) for target in targets
                  if target["id"] in needed for name in target["filename"])


def run_part(part, tally):
    directory = DEVELOPMENT if part is QUICK else BUILDS / part.name
    if not (bring_up_to_date(directory) if part is QUICK else configure(part, directory)):
        tally.failed.append(f"{part.name}: meson setup failed")
        return
    tests = tests_of(part, directory)
    if not tests:
        tally.skipped.append(f"{part.name}: no test of the suites {' '.join(part.suites)}")
        return
    targets = needed_targets(tests, directory) if part.suites else []
    if run(["ninja", "-C", str(directory), "-j", JOBS, *targets]).returncode:
        tally.failed.append(f"{part.name}: the build failed")
        return
    tally.passed += 1  # it builds without a warning
    log = directory / "meson-logs" / "testlog-timed.sh.json"  # named by the wrapper
    log.unlink(missing_ok=True)
    names = [test["name"] for test in tests]
    run([*part.wrapper, "meson", "test", "-C", str(directory), "--no-rebuild",
         "--num-processes", TEST_JOBS, "--timeout-multiplier", TIMEOUT_MULTIPLIER, "--print-errorlogs",
         "--wrapper", shlex.quote(str(TREE / "scripts/timed.sh")), *names], part.environment)
    records = log.read_text().splitlines() if log.exists() else []
    for record in records:
        tally.add_meson_test(part.name, json.loads(record))
    if len(records) < len(tests):
        tally.failed.append(f"{part.name}: {len(tests) - len(records)} tests did not run")


def bring_up_to_date(directory):
    """Lets meson see what has changed in its files, or it would name targets that are gone."""
    return run(["ninja", "-C", str(directory), "build.ninja"], stdout=subprocess.DEVNULL).returncode == 0


def run_one(name, word):
    """Runs the script or unit test of this name in the build for development, of a script only the cases with ``word``."""
    if not bring_up_to_date(DEVELOPMENT):
        return 1
    part = Part(name, "", "", [name, f"test_{name}"])
    tests = [test for test in tests_of(part, DEVELOPMENT) if not word or "e2e" in suites_of(test)]
    if not tests:
        sys.exit(f"check.py: no test '{name}'; a test is named by its file in tests/unit or tests/e2e, as 'attach' or 'test_attach'")
    if run(["ninja", "-C", str(DEVELOPMENT), *needed_targets(tests, DEVELOPMENT)]).returncode:
        return 1
    return run(["meson", "test", "-C", str(DEVELOPMENT), "--no-rebuild", "--verbose", "--timeout-multiplier", TIMEOUT_MULTIPLIER,
                *(["--test-args", f"-k {word}"] if word else []), *(test["name"] for test in tests)]).returncode


def run_bounded(command, log, seconds):
    """Runs a command, all that it writes goes into a file: its exit status, None if it was ended after ``seconds``."""
    log.parent.mkdir(exist_ok=True)
    with log.open("w") as output:
        child = subprocess.Popen(command, cwd=TREE, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                                 env=dict(os.environ, PYTHONUNBUFFERED="1"))
        try:
            return child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(child.pid, signal.SIGTERM)  # meson ends its tests then
                child.wait(30)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def run_newcomer():
    """Runs the basic check in a fresh release that is not this one: (exit status, file of the output, seconds)."""
    folder = BUILDS / NEWCOMER
    shutil.rmtree(folder, ignore_errors=True)
    started = time.monotonic()
    log = folder.with_suffix(".out")
    status = run_bounded(release_command(NEWCOMER_SUITE, folder, [BASIC.name]), log, NEWCOMER_SECONDS)
    return status, log, time.monotonic() - started


def check_arm64(tally):
    """Runs tests for aarch64 by qemu-user, and in a booted machine; heapline of the part gcc reads the recordings too, if it is there."""
    started = time.monotonic()
    print(f"\n== {ARM64}: cross build for aarch64, its tests and recorded programs by qemu", flush=True)
    other = BUILDS / "gcc" / "heapline"
    log = (BUILDS / ARM64).with_suffix(".out")
    status = run_bounded([str(TREE / "scripts/check_arm64.sh"), str(BUILDS / ARM64), *([str(other)] if other.exists() else [])], log, ARM64_SECONDS)
    output = log.read_text(errors="replace")
    cases = cases_in(output)
    tally.passed += len(cases["ok"])
    tally.failed += [f"{ARM64}: {case}" for case in cases["failed"]]
    tally.skipped += [f"{ARM64}: {case}" for case in cases["skipped"]]
    if status == CANNOT and not cases["skipped"]:
        tally.skipped.append(f"{ARM64}: {last_line(output)}")
    elif status != 0:
        print(output)
    if status is None:
        tally.failed.append(f"{ARM64}: did not end within {ARM64_SECONDS} s, after: {last_line(output)}")
    elif status not in (0, CANNOT) and not cases["failed"]:
        tally.failed.append(f"{ARM64}: {last_line(output)}")
    print(f"== {ARM64}: {time.monotonic() - started:.0f} s", flush=True)


def add_newcomer(tally, status, log, seconds):
    """Counts what run_newcomer() has found, and removes the release."""
    folder = BUILDS / NEWCOMER
    print(f"\n== {NEWCOMER}: {BASIC.says}, in a fresh Debian", flush=True)
    results = folder / RESULTS
    if status == CANNOT:
        tally.skipped.append(f"{NEWCOMER}: {last_line(log.read_text())}")
    elif results.exists():
        outcome = json.loads(results.read_text())
        if outcome["failed"]:
            print(log.read_text())
        tally.add_results(NEWCOMER, outcome)
    else:
        print(log.read_text())
        tally.failed.append(f"{NEWCOMER}: " + (f"did not end within {NEWCOMER_SECONDS} s" if status is None
                                               else last_line(log.read_text())))
    shutil.rmtree(folder, ignore_errors=True)
    print(f"== {NEWCOMER}: {seconds:.0f} s", flush=True)


def check_suite(suite, parts):
    """Everything in a release of Debian, which is kept for the next time; its last line is that of the run there."""
    folder = BUILDS / suite
    results = folder / RESULTS
    results.unlink(missing_ok=True)
    BUILDS.mkdir(exist_ok=True)
    status = run(release_command(suite, folder, parts), stdin=subprocess.DEVNULL).returncode
    if results.exists():
        platforms.update(TREE / "docs/platforms.md", json.loads(results.read_text()))
    return status


def release_command(suite, folder, parts):
    """What runs these parts in a release of Debian."""
    sets = "basic" if parts == [BASIC.name] else "deb check"
    return ["scripts/release.sh", suite, str(folder),
            f"scripts/deps.sh build {sets} && python3 scripts/check.py --results /{RESULTS} {' '.join(parts)}"]


def report(tally):
    if tally.durations:
        cpu, seconds = (sum(times) for times in zip(*(entry[:2] for entry in tally.durations)))
        print(f"\nSlowest tests, of {cpu:.0f} s of the processors and {seconds:.0f} s in all:")
        for cpu, seconds, name in sorted(tally.durations, reverse=True)[:SLOWEST_SHOWN]:
            print(f"{cpu:7.1f} s  {seconds:7.1f} s  {name}")
    for title, reasons in (("Skipped", tally.skipped), ("Failed", tally.failed)):
        if reasons:
            print(f"\n{title}:")
            print("\n".join(f"  {reason}" for reason in reasons))
    print(f"\n{tally.passed} passed, {len(tally.failed)} failed, {len(tally.skipped)} skipped")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ["format", *(part.name for part in PARTS), ARM64, NEWCOMER]
    extra = [BASIC.name, QUICK.name]
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of: {' '.join([*names, *extra])}")
    parser.add_argument("--test", metavar="NAME", help="run one script or unit test in build-dev/")
    parser.add_argument("--word", help="with --test: only the cases of a script whose names have this word")
    parser.add_argument("--suite", help="run in this release of Debian, as trixie or sid, in build-check/")
    parser.add_argument("--results", type=Path, metavar="FILE", help="write the outcome and the versions, as JSON")
    parser.add_argument("--fix-format", action="store_true", help="format the sources, no test")
    options = parser.parse_args()
    if unknown := set(options.parts) - {*names, *extra}:
        parser.error(f"no part '{unknown.pop()}'; there are: {' '.join([*names, *extra])}")
    if options.fix_format:
        fix_format()
    if options.test:
        return run_one(options.test, options.word)
    if options.suite:
        return check_suite(options.suite, options.parts or [name for name in names if name not in (ARM64, NEWCOMER)])
    add_redis_server(BUILDS / "bin")
    tally = Tally()
    wanted = options.parts or names
    if "format" in wanted:
        check_format(tally)
    with ProcessPoolExecutor(1) as beside:  # a release is mostly waited for; Ctrl-C ends both
        newcomer = beside.submit(run_newcomer) if NEWCOMER in wanted else None
        for part in [*PARTS, BASIC, QUICK]:
            if part.name in wanted:
                started = time.monotonic()
                print(f"\n== {part.name}: {part.says}", flush=True)
                run_part(part, tally)
                print(f"== {part.name}: {time.monotonic() - started:.0f} s", flush=True)
        if ARM64 in wanted:
            check_arm64(tally)
        if newcomer:
            add_newcomer(tally, *newcomer.result())
    if options.results:
        outcome = {"passed": tally.passed, "failed": tally.failed, "skipped": tally.skipped, "parts": wanted}
        options.results.write_text(json.dumps(outcome | platforms.versions(TREE), indent=1))
    report(tally)
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
