# SPDX-License-Identifier: BSD-2-Clause
"""How long views take, how much memory, and how large what they write is."""

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from workloads import CompilerCase, RunFailed

BENCH = Path(__file__).resolve().parent
PAGE_TIMEOUT_S = 300
RUNS = 5  # the fastest counts: the others measured what else the machine did

# A program with debug information, for which names are looked up in many places.
NAMED_TYPES = 40


@dataclass
class ViewRun:
    """The fastest of several runs of one command."""

    seconds: float
    resident: int  # at most, in bytes
    written: int  # bytes of standard output


@dataclass
class PageRun:
    """A page in a browser: when it could be used, or why that is not known."""

    seconds: float = None
    missing: str = ""


@dataclass
class Views:
    """What was measured; None where something was missing."""

    top_of_million: ViewRun = None
    top_of_compiler: ViewRun = None
    flame_of_compiler: ViewRun = None
    report_of_compiler: ViewRun = None
    page_of_compiler: PageRun = None
    top_without_names: ViewRun = None
    top_with_names: ViewRun = None


def environment(machine):
    """Names are kept in the scratch folder, and debug information is not fetched from anywhere."""
    kept = {name: value for name, value in os.environ.items() if name != "DEBUGINFOD_URLS"}
    return {**kept, "XDG_CACHE_HOME": str(machine.scratch / "cache")}


def run_once(command, machine):
    output = machine.scratch / "view.out"
    # Until it executes the command, a child has this process' memory, whose peak counts as its own.
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    with open(output, "wb") as out:
        started = time.perf_counter()
        process = subprocess.Popen([str(word) for word in command], stdout=out,
                                   stderr=subprocess.DEVNULL, cwd=machine.scratch,
                                   env=environment(machine))
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RunFailed(f"'{command[1]}' ended with status {process.returncode}")
    return ViewRun(seconds, usage.ru_maxrss * 1024, output.stat().st_size)


def fastest(command, machine, before=lambda: None):
    """Of RUNS runs, after each call of ``before``."""
    runs = []
    for _ in range(RUNS):
        before()
        runs.append(run_once(command, machine))
    return min(runs, key=lambda run: run.seconds)


def open_page(heapline, recording, machine):
    """The report of a recording in Chromium."""
    page = machine.scratch / "page.html"
    subprocess.run([heapline, "report", "-f", "-o", page, recording], check=True,
                   env=environment(machine))
    try:
        said = subprocess.run(["/usr/bin/python3", BENCH / "page_time.py", page, str(RUNS)],
                              capture_output=True, text=True, timeout=PAGE_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return PageRun(missing=str(problem))
    if said.returncode:
        return PageRun(missing=(said.stdout or said.stderr).strip().splitlines()[-1])
    return PageRun(float(said.stdout) / 1000)


def record(heapline, name, command, machine):
    recording = machine.scratch / name
    subprocess.run([heapline, "record", "-q", "-f", "-o", recording, "--", *command], check=True,
                   cwd=machine.scratch, stdout=subprocess.DEVNULL)
    return recording


def forget_names(machine):
    for path in (machine.scratch / "cache" / "heapline" / "symbols").glob("*"):
        path.unlink()


def named_program(count):
    """C++ with as many instances of templates as types, each of which allocates."""
    lines = ["#include <functional>", "#include <map>", "#include <memory>", "#include <set>",
             "#include <string>", "#include <vector>"]
    for number in range(count):
        lines.append(f"""
struct item_{number} {{ int value[{number % 17 + 1}]; }};
__attribute__((noinline)) static void work_{number}(int depth, void (*next)(int)) {{
	std::map<std::string, std::vector<item_{number}>> by_name;
	by_name[std::to_string(depth) + " is a key of item_{number}"].resize(depth + 1);
	std::function<void()> make = [&] {{
		auto item = std::make_shared<item_{number}>();
		std::set<int> values{{depth, {number}}};
	}};
	make();
	if (next) next(depth);
}}""")
    calls = "".join(f"\n\twork_{number}(1, [](int d) {{ work_{(number * 7 + 1) % count}(d, "
                    "nullptr); });" for number in range(count))
    return "\n".join(lines) + f"\nint main() {{{calls}\n}}\n"


def build_named_program(machine):
    source, program = machine.scratch / "named.cc", machine.scratch / "named"
    source.write_text(named_program(4 if machine.small else NAMED_TYPES))
    subprocess.run(["g++", "-g", "-O1", "-o", program, source], check=True)
    return program


def measure_views(machine, heapline):
    """All of Views; raises CalledProcessError or RunFailed."""
    views = Views()
    (machine.scratch / "cache").mkdir(exist_ok=True)
    million = machine.scratch / "million.hl"
    subprocess.run([machine.build / "bench" / "make_recording", "large", million], check=True)
    views.top_of_million = fastest([heapline, "top", million], machine)
    compiler = CompilerCase()
    compiler.prepare(machine)
    recording = record(heapline, "compiler.hl", compiler.command(machine), machine)
    views.top_of_compiler = fastest([heapline, "top", recording], machine)
    views.flame_of_compiler = fastest([heapline, "flame", recording], machine)
    views.report_of_compiler = fastest([heapline, "report", recording], machine)
    views.page_of_compiler = open_page(heapline, recording, machine)
    recording = record(heapline, "named.hl", [build_named_program(machine)], machine)
    views.top_without_names = fastest([heapline, "top", recording], machine,
                                      before=lambda: forget_names(machine))
    views.top_with_names = fastest([heapline, "top", recording], machine)
    return views
