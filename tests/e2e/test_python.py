#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Lines of Python: record and attach name them in programs that know nothing of it."""

import collections
import functools
import glob
import os
import shutil
import subprocess
import tempfile
import unittest

import attaching
import harness
from harness import HEAPLINE
from pprof_file import PprofFile

COUNT = 500_000
LESS = 20_000  # where only the way in differs
ORACLE_FUNCTION = "oracle_block"


def interpreters():
    """Of all versions on this machine; further ones by HEAPLINE_PYTHONS, paths with ':' between them."""
    paths = [shutil.which(f"python3.{minor}", path="/usr/bin:/usr/local/bin") for minor in range(8, 15)]
    paths += os.environ.get("HEAPLINE_PYTHONS", "").split(":")
    return [path for path in paths if path]


def expression(python, text):
    return subprocess.run([python, "-c", f"import sysconfig, sys; print({text})"], check=True,
                          capture_output=True, text=True).stdout.strip()


@functools.lru_cache(maxsize=None)
def build_oracle(python):
    """The directory of the extension for ${python}; None without its headers."""
    include = expression(python, "sysconfig.get_paths()['include']")
    if not os.path.exists(os.path.join(include, "Python.h")) or not shutil.which("cc"):
        return None
    directory = tempfile.mkdtemp(prefix="python_oracle.")
    unittest.addModuleCleanup(shutil.rmtree, directory, ignore_errors=True)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-w", f"-I{include}", "-o",
                    os.path.join(directory, "python_oracle.so"),
                    os.path.join(harness.SOURCES, "python_oracle.c")], check=True)
    return directory


def told(path):
    """{stack: [blocks, bytes]} by the interpreter."""
    found = collections.defaultdict(lambda: [0, 0])
    with open(path, encoding="utf-8") as file:
        for line in file:
            blocks, size, stack = line.rstrip("\n").split(" ", 2)
            found[stack][0] += int(blocks)
            found[stack][1] += int(size)
    return dict(found)


class OracleCase(harness.TestCase):
    """Each block of an extension against what the interpreter says of its frames."""

    def recorded(self, recording, pid):
        """{stack: [blocks, bytes]} of the extension's blocks, by the recording."""
        path = self.path("stacks.pb.gz")
        result = harness.run([HEAPLINE, "export", "--format", "pprof", "--value", "alloc", "-p", str(pid),
                              "-f", "-o", path, recording])
        self.assertEqual(result.status, 0, result.stderr)
        file = PprofFile(path)
        columns = [file.types.index("alloc_objects"), file.types.index("alloc_space")]
        found = collections.defaultdict(lambda: [0, 0])
        for stack, values in file.places:
            if stack[0][0] != ORACLE_FUNCTION:
                continue
            places = [f"{name}:{line};" for _, name, line in reversed(stack) if name.endswith((".py", ">"))]
            for i, column in enumerate(columns):
                found["".join(places)][i] += values[column]
        return dict(found)

    def assert_equal_stacks(self, recording, pid, dump, at_least):
        expected, found = told(dump), self.recorded(recording, pid)
        wrong = {stack: (expected.get(stack), found.get(stack)) for stack in {*expected, *found}
                 if expected.get(stack) != found.get(stack)}
        self.assertEqual(wrong, {})
        self.assertGreaterEqual(sum(blocks for blocks, _ in expected.values()), at_least)

    def check(self, python, count, environment=(), mode="mem-fast"):
        oracle = build_oracle(python)
        if not oracle:
            self.skipTest(f"'{python}' has no headers, or there is no C compiler")
        recording, dump = self.path("places.hl"), self.path("dump")
        result = harness.run(
            harness.record_command(recording, [python, os.path.join(harness.SOURCES, "python_places.py"),
                                               dump, str(count)], mode),
            env={"PYTHONPATH": oracle, **dict(environment)})
        self.assertEqual((result.status, result.stdout), (0, "done\n"), result.stderr)
        parent, child = (process["pid"] for process in harness.processes(recording))
        self.assert_equal_stacks(recording, parent, dump, count)
        self.assert_equal_stacks(recording, child, dump + ".child", 1000)
        return recording


class EachBlock(OracleCase):
    def test_has_the_lines_that_the_interpreter_says(self):
        for python in interpreters():
            with self.subTest(python):
                self.check(python, COUNT)

    def test_with_objects_by_malloc(self):
        for python in interpreters():
            with self.subTest(python):
                self.check(python, LESS, {"PYTHONMALLOC": "malloc"})

    def test_in_a_log(self):
        for python in interpreters()[:1]:
            self.check(python, LESS, mode="log-record")

    def test_no_call_of_the_main_function_is_left_without_frames(self):
        for python in interpreters():
            with self.subTest(python):
                recording = self.check(python, LESS)
                self.assertNotIn("script_unmatched",
                                 harness.report("top", recording)["lost"])


# Functions that native code calls, and what allocates while what they held is let go: a traceback, a destructor, a callback.
ENDING = """
import weakref
class Held:
    def __del__(self):
        kept.append(bytearray(2000))
kept = []
def fails(i):
    raise ValueError(i)
def catches(i):
    try:
        return max([i], key=fails)
    except ValueError:
        return 0
def holds(i):
    held, other = Held(), Held()
    kept.append(weakref.ref(other, lambda reference: kept.append(bytearray(1000))))
    return i
for i in range(1000):
    catches(i)
list(map(holds, range(1000)))
"""


class Ending(harness.TestCase):
    def test_calls_whose_functions_have_ended_are_told_from_others(self):
        for python in interpreters():
            with self.subTest(python):
                recording = self.path("ending.hl")
                result = harness.run(harness.record_command(recording, [python, "-c", ENDING]))
                self.assertEqual(result.status, 0, result.stderr)
                report = harness.report("top", recording, "--stack", "script", "--value", "alloc", "-n", "0")
                self.assertNotIn("script_unmatched", report["lost"])
                rows = {row["name"]: row["flat_bytes"] for row in report["rows"]}
                self.assertGreaterEqual(rows["Held.__del__"], 2000 * 2000)
                self.assertNotIn("[ended]", rows)


JIT = """
import json
text = json.dumps([{str(i): [i, str(i)]} for i in range(20)])
def work(n):
    for i in range(n):
        json.loads(text)
work(6000)
"""


class Jit(harness.TestCase):
    def test_stacks_that_are_not_read_are_said(self):
        python = "/usr/bin/python3"
        if not os.path.exists(python) or expression(
                python, "getattr(sys, '_jit', None) and sys._jit.is_available()") != "True":
            self.skipTest("/usr/bin/python3 has no JIT")
        recording = self.path("jit.hl")
        for value, expected in ("1", True), ("0", False):
            harness.run(harness.record_command(recording, [python, "-c", JIT]), env={"PYTHON_JIT": value})
            said = harness.run([harness.HEAPLINE, "top", recording]).stdout
            self.assertEqual("Python's JIT" in said, expected, said)


HOSTED = """
import host
from python_oracle import allocate
def outer():
    allocate(100)
    host.run_again(inner)
def inner():
    allocate(200)
    sorted([1, 2], key=lambda value: allocate(300) or value)
for i in range(50):
    outer()
"""


class Embedded(OracleCase):
    """A program of its own, in its interpreter and in a sub-interpreter."""

    def test_has_the_lines_that_the_interpreter_says(self):
        for python in interpreters():
            with self.subTest(python):
                self.embed(python)

    def embed(self, python):
        oracle = build_oracle(python)
        library = expression(python, "'/'.join(sysconfig.get_config_vars('LIBDIR', 'LDLIBRARY'))")
        if not oracle or not library.endswith(".so") or not os.path.exists(library):
            self.skipTest(f"'{python}' has no headers or no shared library, or there is no C compiler")
        host, directory = self.path("host"), os.path.dirname(library)
        subprocess.run(["cc", "-w", "-I" + expression(python, "sysconfig.get_paths()['include']"), "-o", host,
                        os.path.join(harness.SOURCES, "python_host.c"), library, f"-Wl,-rpath,{directory}"], check=True)
        recording = self.path("host.hl")
        result = harness.run(harness.record_command(recording, [host, oracle, HOSTED]),
                             env={"PYTHONHOME": expression(python, "sys.base_prefix")}, cwd=self.directory)
        self.assertEqual(result.status, 0, result.stderr)
        self.assert_equal_stacks(recording, harness.processes(recording)[0]["pid"], self.path("dump"), 400)
        self.assertNotIn("script_unmatched", harness.report("top", recording)["lost"])


LEAKS = {
    "plain script": """
kept = []
def leak(i):
    kept.append(bytes(1000 + i % 100))  # planted
for i in range(2000):
    leak(i)
import os
os._exit(0)
""",
    "asyncio": """
import asyncio, os
kept = []
async def handle(reader, writer):
    line = await reader.readline()
    kept.append(line * 2000)  # planted
    writer.close()
async def main():
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for i in range(300):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"a line of a client\\n")
        await reader.read()
        writer.close()
    os._exit(0)
asyncio.run(main())
""",
    "numpy": """
import os
import numpy
kept = []
for i in range(500):
    kept.append(numpy.zeros(2000) + i)  # planted
os._exit(0)
""",
    "pytest": """
import os
kept = []
def test_leak():
    for i in range(20000):
        kept.append(bytes(1000))  # planted
    os._exit(0)
""",
    "gunicorn": """
import os, signal, socket, threading
from gunicorn.app.base import BaseApplication
kept = []
def application(environ, start_response):
    kept.append(bytes(1000))  # planted
    if len(kept) == 1000:
        os.kill(os.getppid(), signal.SIGTERM)
        os._exit(0)
    start_response("200 OK", [])
    return []
def ask():
    while True:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect("socket")
            client.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
            client.recv(4096)
class Server(BaseApplication):
    def load_config(self):
        self.cfg.set("bind", "unix:socket")
        self.cfg.set("post_fork", lambda server, worker: threading.Thread(target=ask, daemon=True).start())
    def load(self):
        return application
Server().run()
""",
    "spawned process": """
import multiprocessing, os
def work():
    kept = []
    for i in range(6000):
        kept.append(bytes(1000))  # planted
    os._exit(0)
if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start()
    process.join()
""",
    "forked process": """
import multiprocessing, os
def work():
    kept = []
    for i in range(2000):
        kept.append(bytes(1000))  # planted
    os._exit(0)
if __name__ == "__main__":
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
""",
}
NEEDS = {"numpy": "numpy", "pytest": "pytest", "gunicorn": "gunicorn"}


class Leaks(harness.TestCase):
    """What a program keeps is the first row, by file and line."""

    def test_is_the_first_row(self):
        for kind in LEAKS:
            with self.subTest(kind):
                self.check(kind)

    def check(self, kind):
        python, script = harness.need("/usr/bin/python3"), self.path("test_leak.py")
        if kind in NEEDS and harness.run([python, "-c", f"import {NEEDS[kind]}"]).status != 0:
            self.skipTest(f"'{python}' has no module '{NEEDS[kind]}'")
        with open(script, "w", encoding="utf-8") as file:
            file.write(LEAKS[kind])
        line = 1 + next(i for i, text in enumerate(LEAKS[kind].splitlines()) if "# planted" in text)
        command = [python, "-m", "pytest", "-q", script] if kind == "pytest" else [python, script]
        recording = self.path(kind.replace(" ", "_") + ".hl")
        result = harness.run(harness.record_command(recording, command), cwd=self.directory)
        self.assertEqual(result.status, 0, result.stderr)
        # Functions of numpy are not part of the interpreter, and have no lines of their own.
        options = ("--stack", "script") if kind == "numpy" else ()
        first = harness.report("lines", recording, "--value", "inuse", *options)["rows"][0]
        self.assertEqual((os.path.basename(first["file"]), first["line"]), ("test_leak.py", line))


class LeftNative(harness.TestCase):
    def test_without_scripts_no_frame_is_pythons(self):
        recording = self.path("native.hl")
        python = harness.need("/usr/bin/python3")
        result = harness.run(harness.record_command(recording, [python, "-c", "print('done')"],
                                                    options=("--no-scripts",)))
        self.assertEqual((result.status, result.stdout), (0, "done\n"), result.stderr)
        names = {row["name"] for row in harness.report("top", recording, "--value", "alloc", "-n", "0")["rows"]}
        self.assertTrue(any("PyEval_EvalFrameDefault" in name or name.startswith("Py") for name in names), names)
        self.assertNotIn("<module>", names)
        native = harness.run([harness.HEAPLINE, "top", "--stack", "script", "--by", "type", recording])
        self.assertIn("no frames of scripts, so that all is [native]; it was recorded with --no-scripts\n", native.stderr)
        self.assertIn("no block here has a type: it was recorded with --no-scripts, which leaves types of Lua out",
                      " ".join(native.stdout.split()))


class Attached(OracleCase, attaching.TestCase):
    """The same in an interpreter that runs already."""

    def test_has_the_lines_that_the_interpreter_says(self):
        for python in interpreters():
            with self.subTest(python):
                self.join(python, COUNT)

    def test_twice(self):
        python = harness.need("/usr/bin/python3")
        for _ in range(2):
            self.join(python, LESS)

    def join(self, python, count):
        oracle, dump = build_oracle(python), self.path("dump")
        if not oracle:
            self.skipTest(f"'{python}' has no headers, or there is no C compiler")
        with harness.Waiting([python, os.path.join(harness.SOURCES, "python_places.py"), dump, str(count), "wait"],
                             {"PYTHONPATH": oracle}) as process:
            with self.attached(process.pid):
                process.stdin.write("go\n")
                process.stdin.flush()
                self.assertEqual(process.stdout.readline(), "done\n")
                self.ctl(process.pid, "detach")
            self.assert_equal_stacks(self.recording, process.pid, dump, count)
            process.stdin.write("\n")
        self.assertEqual(process.returncode, 0)


if __name__ == "__main__":
    harness.main()
