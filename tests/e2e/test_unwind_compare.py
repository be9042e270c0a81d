#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Stacks of every kind in real programs equal libunwind's.

usage: test_unwind_compare.py PRELOAD PROGRAM [EXECUTABLE]

PROGRAM is python3, cc1plus, redis-server, or one of ours (then EXECUTABLE is it). PRELOAD is the library
of unwind_compare.c, empty when libunwind's headers were missing. Of all allocations that PROGRAM makes,
each of which is captured, a random part is compared: 10,000 at least, and not one may differ.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

COMPARISONS_MIN = 10_000
SKIPPED = 77

PYTHON_WORKLOAD = r"""
import argparse, asyncio, ctypes, decimal, email, json, pickle, random, re, sqlite3, unittest
import xml.dom.minidom
rows = [{"id": i, "tags": [str(i)] * 5, "at": {"x": i / 3}} for i in range(3000)]
for i in range(3):
    text = json.dumps(rows, indent=1 if i % 2 else None)
    assert json.loads(text)[7]["id"] == 7
    re.sub(r"(\d+)", lambda match: match.group(1) * 2, text[:50000])
pickle.loads(pickle.dumps(rows))
sorted(rows, key=lambda row: str(row))
table = sqlite3.connect(":memory:")
table.execute("create table t (a, b)")
table.executemany("insert into t values (?, ?)", [(i, str(i)) for i in range(2000)])
table.create_function("twice", 1, lambda x: x * 2)
table.execute("select sum(twice(a)) from t group by b order by b").fetchall()
xml.dom.minidom.parseString("<a>" + "<b c='d'>text</b>" * 500 + "</a>").toxml()
"""

CXX_WORKLOAD = r"""
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <thread>
#include <vector>
int main()
{
	std::regex pattern("a(b|c)*d");
	std::map<std::string, std::vector<int>> map;
	map["x"].push_back(3);
	for (auto &[key, value] : map)
		std::cout << key << std::regex_match(key, pattern) << value.size();
}
"""


def skip(reason):
    print("skipped:", reason)
    sys.exit(SKIPPED)


def require(program, *places):
    """The path of a program, looked for in ${places} first: a distribution's own, if it is there."""
    for path in places:
        if os.access(path, os.X_OK):
            return path
    path = shutil.which(program)
    if not path:
        skip(f"'{program}' is not installed")
    return path


def run_python(directory, environment):
    python = require("python3", "/usr/bin/python3")
    environment.update(PYTHONMALLOC="malloc", HL_COMPARE_EVERY="20")
    subprocess.run([python, "-c", PYTHON_WORKLOAD], env=environment, check=True)


def run_cc1plus(directory, environment):
    compiler = require("g++", "/usr/bin/g++")
    source = os.path.join(directory, "workload.cc")
    with open(source, "w", encoding="ascii") as file:
        file.write(CXX_WORKLOAD)
    environment.update(HL_COMPARE_EVERY="100")
    command = [compiler, "-std=c++17", "-O2", "-c", source, "-o", os.path.join(directory, "workload.o")]
    subprocess.run(command, env=environment, check=True)


def run_redis(directory, environment):
    server, benchmark, client = (require(name) for name in ("redis-server", "redis-benchmark", "redis-cli"))
    socket = os.path.join(directory, "redis.sock")
    environment.update(HL_COMPARE_EVERY="50")
    command = [server, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", directory]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 300
        while subprocess.run([client, "-s", socket, "ping"], capture_output=True, check=False).returncode and time.monotonic() < deadline:
            time.sleep(0.05)
        tests = "set,get,lpush,lrange_100,hset,zadd,spop"
        subprocess.run([benchmark, "-s", socket, "-q", "-n", "20000", "-t", tests],
                       stdout=subprocess.DEVNULL, check=True)
        subprocess.run([client, "-s", socket, "eval", "local t = {} for i = 1, 9999 do t[i] = i .. '' end "
                        "return cjson.encode(t)", "0"], stdout=subprocess.DEVNULL, check=True)
        subprocess.run([client, "-s", socket, "shutdown", "nosave"], check=True)
        process.wait(300)
    finally:
        process.kill()
        process.wait()


def run_cxx_throw(directory, environment):
    environment.update(HL_COMPARE_EVERY="10")
    subprocess.run([sys.argv[3], "5"], env=environment, check=True, stdout=subprocess.DEVNULL)


def run_coroutines(directory, environment):
    environment.update(HL_COMPARE_EVERY="2")
    subprocess.run([sys.argv[3], "4000"], env=environment, check=True, stdout=subprocess.DEVNULL)


PROGRAMS = {
    "python3": run_python,
    "cc1plus": run_cc1plus,
    "redis-server": run_redis,
    "cxx_throw": run_cxx_throw,
    "coroutines": run_coroutines,
}


def read_summary(prefix, program):
    """Adds up what all processes of that name said; differences are printed."""
    total = {}
    for path in glob.glob(prefix + ".*"):
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        summary = re.search(r"^summary: (.*) program (.*)$", text, re.M)
        if not summary or summary[2] != program:
            continue
        print(text, end="")
        for name, count in re.findall(r"(\w+) (\d+)", summary[1]):
            total[name] = total.get(name, 0) + int(count)
    return total


def main():
    preload, program = sys.argv[1:3]
    if not preload:
        skip("libunwind's headers are not installed")
    with tempfile.TemporaryDirectory() as directory:
        prefix = os.path.join(directory, "compare")
        environment = dict(os.environ, LD_PRELOAD=preload, HL_COMPARE_OUT=prefix)
        PROGRAMS[program](directory, environment)
        total = read_summary(prefix, program)
    if not total:
        sys.exit(f"'{program}' left no summary")
    if total["comparisons"] < COMPARISONS_MIN:
        sys.exit(f"only {total['comparisons']} comparisons")
    for name in ("differences", "unreached", "incomplete"):
        if total[name]:
            sys.exit(f"{total[name]} {name}")


if __name__ == "__main__":
    main()
