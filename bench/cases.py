#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What `heapline check --per-test` costs over 1,000 small tests: processor time beside a plain run, minima of interleaved rounds.

    bench/cases.py BUILD [ROUNDS]     pytest with tests that hardly allocate, pytest with 1,200 allocations a test, tests/e2e/cases.c
"""

import os
import resource
import subprocess
import sys
import tempfile

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEAD = "import json, pytest\n@pytest.mark.parametrize('i', range(1000))\ndef test_small(i):\n"
SUITES = {
    "pytest, few allocations": "    words = f'number {i}'.split()\n    assert int(words[1]) == i\n",
    "pytest, 1,200 allocations": "    data = {str(k): list(range(k % 7)) for k in range(50)}\n    assert json.loads(json.dumps(data)) == data\n",
}


def cpu_seconds(command, env):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(name, build, plain, checked, rounds, env):
    best = {}
    for _ in range(rounds):
        for key, command in (("plain", plain), ("checked", [os.path.join(build, "heapline"), "check", "--per-test", "--", *checked])):
            best[key] = min(best.get(key, float("inf")), cpu_seconds(command, env))
    print(f"{name:28} {best['plain']:7.3f} s {best['checked']:7.3f} s  {best['checked'] / best['plain']:.2f}", flush=True)


def main():
    build, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    env = dict(os.environ, PYTHONPATH=os.path.join(TREE, "python"))
    with tempfile.TemporaryDirectory() as folder:
        for name, body in SUITES.items():
            path = os.path.join(folder, "test_many.py")
            with open(path, "w", encoding="ascii") as file:
                file.write(HEAD + body)
            command = ["/usr/bin/python3", "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", path]
            measure(name, build, command, [*command, "-p", "pytest_heapline"], rounds, env)
    program = [os.path.join(build, "tests/e2e/cases"), "1000"]
    measure("cases.c, 8 allocations", build, program, program, rounds, env)


if __name__ == "__main__":
    main()
