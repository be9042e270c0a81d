#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What a control group is charged with adds up, and each kind of memory has its row."""

import contextlib
import ctypes
import errno
import glob
import itertools
import json
import mmap
import os
import re
import signal
import struct
import subprocess
import tempfile
import unittest

import harness
import schemas
from harness import HEAPLINE

MIB = 1 << 20
# What the kernel keeps back for each processor before it counts, in pages of 4 KiB: 64, and some for objects.
BATCH_BYTES = 68 * 4096 * os.cpu_count()


def memory_hierarchy():
    """(where groups with memory are, whether they are of version 2)."""
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        mounts = [line.split() for line in file]
    for version, has_memory in (1, lambda options: "memory" in options.split(",")), (2, lambda options: True):
        for fields in mounts:
            kind, _, options = fields[fields.index("-") + 1:][:3]
            if kind == ("cgroup" if version == 1 else "cgroup2") and has_memory(options):
                return fields[4], version == 2
    raise unittest.SkipTest("no memory control groups are mounted here")


def check_parts(case, report, pid, child, tmpfs):
    """The rows of pod_parts, alone in its group."""
    case.assertEqual(sum(row["bytes"] for row in report["rows"]), report["usage_bytes"])
    rows = report["rows"]
    anonymous = {row["pid"]: row["bytes"] for row in rows if row["kind"] == "anonymous" and row["pid"]}
    case.assertEqual(set(anonymous), {pid, child})
    # half of what both have; and what a program has that only starts
    for who, mib in (pid, 20 + 6), (child, 9 + 6):
        case.assertGreaterEqual(anonymous[who], mib * MIB - BATCH_BYTES)
        case.assertLess(anonymous[who], (mib + 2) * MIB)
    shared = {}
    for row in rows:
        if row["kind"] == "shared" and row["pid"] and row["bytes"] >= MIB:  # not a file of the test's own
            case.assertIn(row["pid"], (pid, child))
            name = re.sub(r"^SYSV.*", "SYSV", row["name"])
            shared[name] = (row["bytes"], row["detail"])
    case.assertEqual(shared, {
        "memfd:frames": (16 * MIB, "mapped"), "memfd:queue": (8 * MIB, "open, not mapped"),
        os.path.join(tmpfs, "kept.bin"): (7 * MIB, "open, not mapped"),
        "shared anonymous memory": (5 * MIB, "mapped"), "SYSV": (4 * MIB, "mapped")})
    rest = {row["name"]: row["bytes"] for row in rows if row["kind"] == "shared" and not row["pid"]}
    case.assertLess(abs(sum(rest.values()) - 6 * MIB), BATCH_BYTES)
    if report["removed_bytes"] is not None:  # pages are known, by file
        case.assertEqual(rest[os.path.join(tmpfs, "left.bin")], 6 * MIB)
    unknown = sum(row["bytes"] for row in rows if row["kind"] == "unknown")
    case.assertLess(abs(unknown), BATCH_BYTES)


def check_kept(case, report, said, stat):
    """The rows of pod_kernel, alone in its group; `stat`: its memory.stat, of version 2."""
    told = {name: int(number) for name, number in re.findall(r"^(\w+) (\d+)$", said, re.M)}
    rows = {row["name"]: row["bytes"] for row in report["rows"] if row["kind"] != "anonymous"}
    case.assertGreater(told["unix"] * told["tcp"], 0)
    stacks = 401 * 16384
    case.assertLess(abs(rows.get("unknown", 0)), BATCH_BYTES, (report, stat))
    if stat is None:
        kept = rows["page tables, kernel stacks, pipes, sockets"]
        case.assertLess(abs(kept - stacks - told["unix"]), MIB)  # and page tables
        return
    stat = {name: int(number) for name, number in re.findall(r"^(\w+) (\d+)$", stat, re.M)}
    for name, key in ("kernel stacks", "kernel_stack"), ("page tables", "pagetables"), ("buffers of sockets", "sock"):
        case.assertLessEqual(abs(rows[name] - stat[key]), BATCH_BYTES, name)
    case.assertLess(abs(rows["kernel stacks"] - stacks), BATCH_BYTES)
    case.assertGreaterEqual(rows["buffers of sockets"], told["tcp"])
    whole = rows.get("buffers of pipes, unix sockets and others, whole pages", rows["other memory of the kernel"])
    case.assertLess(abs(whole - told["unix"]), BATCH_BYTES)


def refuse_copies():
    """Has pidfd_getfd(2) refused to this process, as filters of containers do."""
    rules = b"".join(struct.pack("HBBI", *rule) for rule in (
        (0x20, 0, 0, 0), (0x15, 0, 1, 438), (6, 0, 0, 0x50000 | errno.EPERM), (6, 0, 0, 0x7fff0000)))
    libc, kept = ctypes.CDLL(None), ctypes.create_string_buffer(rules)
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 4, ctypes.addressof(kept)))
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
        raise OSError("no filter can be set")


class Groups(harness.TestCase):
    """Tests that make groups of whichever version is mounted."""

    def setUp(self):
        super().setUp()
        harness.need_root()
        self.mount, self.is_v2 = memory_hierarchy()

    @contextlib.contextmanager
    def group(self, name="parts"):
        path = os.path.join(self.mount, f"heapline-{name}-{os.getpid()}")
        try:
            os.mkdir(path)
        except OSError as error:
            self.skipTest(f"no control group can be made here: {error}")
        try:
            if not os.path.exists(os.path.join(path, "memory.current" if self.is_v2 else "memory.usage_in_bytes")):
                self.skipTest("the memory controller is not enabled where groups are made")
            yield path
        finally:
            harness.wait_until(lambda: self.removed(path), "the group to be empty")

    @staticmethod
    def removed(path):
        for folder in sorted(glob.glob(f"{path}/**/", recursive=True), reverse=True):  # subgroups first
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        return not os.path.exists(path)

    @staticmethod
    def join(group):
        with open(os.path.join(group, "cgroup.procs"), "w", encoding="ascii") as file:
            file.write(str(os.getpid()))

    def limit(self, group, size):
        with open(os.path.join(group, "memory.max" if self.is_v2 else "memory.limit_in_bytes"), "w",
                  encoding="ascii") as file:
            file.write(str(size))


def check_growth(case, report, pid, disk):
    """What grow_parts has gained: to the page, but for what the kernel takes by itself."""
    def found(word):
        return sum(row["bytes"] for row in rows if word in row["stack"])

    def kernel_of(word):
        return sum(row["bytes"] for row in rows if word in row["stack"] and "kernel memory" in row["stack"])

    rows = report["rows"]
    total = sum(row["bytes"] for row in rows)
    case.assertEqual(total, report["total"]["usage_growth_bytes"])
    case.assertEqual(total, report["total"]["inuse_bytes"])
    moved = found("[no fault seen]")  # by the kernel, to make room for huge pages
    case.assertLess(moved, 2 * MIB)
    plain = [row for row in rows if not any(name.startswith("kernel memory") for name in row["stack"])]
    for function, mib in ("grow_anonymous", 16), ("grow_shared", 8), ("grow_file", 12 if disk else 0):
        size = sum(row["bytes"] for row in plain if function in row["stack"])
        case.assertLessEqual(size, mib * MIB, function)
        case.assertGreaterEqual(size + moved, mib * MIB, function)
    case.assertEqual(sum(row["bytes"] for row in plain if "grow_and_free" in row["stack"]), 0)
    case.assertLessEqual(abs(kernel_of("grow_pipes") - 20 * 65536), 65536)
    case.assertEqual(found("file in memory memfd:grown"), 8 * MIB)
    if disk:
        case.assertEqual(found(f"page cache {disk}/grown.bin"), 12 * MIB)
    if not moved:
        case.assertEqual(found("grow_anonymous") - kernel_of("grow_anonymous"), 16 * MIB)
    # of processes that began meanwhile the first stacks may be lost
    for function, mib in ("grow_child", 6), ("grow_other_program", 5):
        case.assertGreater(found(function), (mib - 1) * MIB)
        case.assertLessEqual(sum(row["bytes"] for row in plain if function in row["stack"]), mib * MIB)
    released = -sum(row["bytes"] for row in rows if "[released before the trace]" in row["stack"])
    case.assertGreaterEqual(released, 10 * MIB)
    case.assertLess(released, 10 * MIB + 2 * MIB)


def cached_pages(path):
    """How many pages of a file are in the page cache, as mincore(2) says, which brings nothing in."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = os.path.getsize(path)
    if not size:
        return 0
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), size) as memory:
        view = ctypes.c_char.from_buffer(memory)
        there = (ctypes.c_ubyte * (-(-size // 4096)))()
        failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(view)), ctypes.c_size_t(size), there)
        del view
    assert not failed, os.strerror(ctypes.get_errno())
    return sum(page & 1 for page in there)


class Pod(Groups):
    @contextlib.contextmanager
    def parts(self, group, tmpfs, disk):
        """The program in the group; yields its pid and its child's."""
        with subprocess.Popen([harness.program("pod_parts"), tmpfs, disk], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True, preexec_fn=lambda: self.join(group)) as process:
            child = int(process.stdout.readline().split()[1])
            self.assertEqual(process.stdout.readline(), "ready\n")
            yield process.pid, child
            process.stdin.close()
            self.assertEqual(process.wait(), 0)

    def pod(self, *options):
        result = harness.run([HEAPLINE, "pod", *options, "--json"])
        self.assertEqual(result.status, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(sum(row["bytes"] for row in report["rows"]), report["usage_bytes"])
        return report

    def test_rows_add_up(self):
        with self.group() as group, tempfile.TemporaryDirectory(dir="/dev/shm") as tmpfs, \
                self.parts(group, tmpfs, self.directory) as (pid, child):
            for options in ("--cgroup", group), ("-p", str(pid)), ("--cgroup", group[len(self.mount):]):
                with self.subTest(options[0]):
                    report = self.pod(*options)
                    check_parts(self, report, pid, child, tmpfs)
                    self.assertEqual(report["processes"], 2)
                    self.assertEqual(report["limit_bytes"] is None, report["limit_group"] == "")
            cached = {row["path"]: row["cached_bytes"] for row in report["files"]}
            file = os.path.join(self.directory, "cached.bin")
            system = subprocess.run(["stat", "-f", "-c", "%T", self.directory], capture_output=True, text=True,
                                    check=True).stdout.strip()
            release = tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])
            if system != "tmpfs" and release >= (6, 5):  # otherwise it has no page cache, or no cachestat()
                self.assertEqual(cached[file], 10 * MIB)
                self.assertGreaterEqual(report["total"]["cache_bytes"], 10 * MIB - BATCH_BYTES)

    def test_what_the_kernel_keeps_for_a_program_has_rows(self):
        with self.group("kept") as group, \
                subprocess.Popen([harness.program("pod_kernel")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                 preexec_fn=lambda: self.join(group)) as program:
            said = "".join(itertools.takewhile(lambda line: line != "ready\n", program.stdout))
            report = self.pod("--cgroup", group)
            self.need_pages(report)
            stat = None
            if self.is_v2:
                with open(os.path.join(group, "memory.stat"), encoding="ascii") as file:
                    stat = file.read()
            check_kept(self, report, said, stat)

    def heap(self, pid, **who):
        result = harness.run([HEAPLINE, "heap", "-p", str(pid), "--json"], **who)
        self.assertEqual(result.status, 0, result.stderr)
        return json.loads(result.stdout)

    def test_what_is_in_no_rss_has_rows_in_heap(self):
        with self.group() as group, tempfile.TemporaryDirectory(dir="/dev/shm") as tmpfs, \
                self.parts(group, tmpfs, "-") as (pid, child):
            parent, child = self.heap(pid), self.heap(child)
            kept = os.path.join(tmpfs, "kept.bin")
            self.assertEqual(parent["open_files"], [{"name": "memfd:queue", "bytes": 8 * MIB},
                                                    {"name": kept, "bytes": 7 * MIB}])
            self.assertEqual(child["open_files"], [])
            beside = parent["beside"]
            inherited = child["beside"]["pipes"]  # those of the test, which are empty
            self.assertEqual((beside["open_file_bytes"], beside["pipe_bytes"]), (15 * MIB, 50 * 65536))
            self.assertEqual((beside["pipes"], beside["unread_pipes"]), (50 + inherited, 0))
            self.assertEqual(beside["pipe_capacity_bytes"], 50 * 65536 + child["beside"]["pipe_capacity_bytes"])
            self.assertEqual(child["beside"]["pipe_bytes"], 0)
            self.assertEqual(beside["kernel_stack_bytes"], 65 * 16384)
            with open(f"/proc/{pid}/status", encoding="ascii") as file:
                tables = int(re.search(r"^VmPTE:\s+(\d+) kB", file.read(), re.M)[1]) << 10
            self.assertEqual(beside["page_table_bytes"], tables)
            said = harness.run([HEAPLINE, "heap", "-p", str(pid)]).stdout
            rows = re.split(r"\n\n", said[said.index("\nnot in RSS "):].lstrip("\n"))[0].splitlines()[1:]
            self.assertEqual([re.split(r"  +", row) for row in rows[:3]], [
                ["memfd:queue, open, not mapped", "8.0 MiB"], [f"{kept}, open, not mapped", "7.0 MiB"],
                [f"in {50 + inherited} pipes, which may hold {(50 + inherited) / 16:.1f} MiB", "3.1 MiB"]])
            self.assertEqual([row.split("  ")[0] for row in rows[3:]],
                             ["page tables", "kernel stacks (16 KiB a thread)"])

    def test_what_is_in_no_rss_and_may_not_be_seen_is_said(self):
        """Who may not copy descriptors sees all but what is in pipes, and the report says so."""
        code = "import mmap, os\n" \
               "for name, size in ('mapped', 3), ('open', 2):\n" \
               "    fd = os.memfd_create(name); os.write(fd, bytes(size << 20))\n" \
               "    if name == 'mapped': kept = mmap.mmap(fd, size << 20)\n" \
               "read, write = os.pipe(); os.write(write, bytes(5000)); print('ready', flush=True); input()"
        user = {"user": 65534, "group": 65534, "extra_groups": []}
        with subprocess.Popen([harness.need("/usr/bin/python3"), "-c", code], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **user) as holder:
            self.assertEqual(holder.stdout.readline(), "ready\n")
            heap = self.heap(holder.pid, **user)
            self.assertEqual(heap["open_files"], [{"name": "memfd:open", "bytes": 2 * MIB}])
            self.assertEqual((heap["beside"]["pipe_bytes"], heap["beside"]["unread_pipes"]), (5000, 0))
            heap = self.heap(holder.pid, **user, preexec_fn=refuse_copies)
            self.assertEqual(heap["beside"]["unread_pipes"], heap["beside"]["pipes"])
            self.assertIn("what lies in ", " ".join(heap["notes"]))
            other = {"user": 65533, "group": 65533, "extra_groups": []}
            self.assert_refused(harness.run([HEAPLINE, "heap", "-p", str(holder.pid)], **other),
                                f"cannot read the mappings of process '{holder.pid}': Permission denied; run as root")
            holder.stdin.close()
            self.assertEqual(holder.wait(), 1)  # EOFError

    def in_group(self, group, code, *arguments):
        """Runs Python in the group; what it leaves in the page cache stays charged to it."""
        subprocess.run([harness.need("/usr/bin/python3"), "-c", code, *arguments], check=True,
                       preexec_fn=lambda: self.join(group))

    def need_pages(self, report):
        """Skips where the pages of a group cannot be read."""
        if report["removed_bytes"] is None:
            self.skipTest(" ".join(report["notes"]))

    def files_of(self, report, kind="cache"):
        return {row["name"]: row for row in report["rows"] if row["kind"] == kind and row["name"].startswith("/")}

    def test_page_cache_is_known_by_file_page_for_page(self):
        """1,000 files, some of them sparse, read in part, dropped in part, or with odd names."""
        code = "import os, sys\n" \
               "os.chdir(sys.argv[1])\n" \
               "for i in range(1000):\n" \
               "    name = f'file{i}' if i % 100 else f'odd\\n {i} \\t\\\\ \u00e9'\n" \
               "    with open(name, 'wb') as file:\n" \
               "        if i % 7 == 0: file.seek(i * 5000)\n" \
               "        file.write(os.urandom(1 + i * 37 % 90000)); file.flush(); os.fsync(file.fileno())\n" \
               "        if i % 3 == 0: os.posix_fadvise(file.fileno(), 0, 8192, os.POSIX_FADV_DONTNEED)\n"
        with self.group() as group:
            self.in_group(group, code, self.directory)
            report = self.pod("--cgroup", group)
            self.need_pages(report)
            paths = [entry.path for entry in os.scandir(self.directory)]
            self.assertEqual(len(paths), 1000)
            rows = self.files_of(report, "shared" if self.is_in_memory() else "cache")
            pages = {path: (rows[path]["bytes"] // 4096 if path in rows else 0, cached_pages(path)) for path in paths}
            self.assertEqual({path: both for path, both in pages.items() if both[0] != both[1]}, {})
            self.assertGreater(sum(there for _, there in pages.values()), 4000)

    def is_in_memory(self):
        return subprocess.run(["stat", "-f", "-c", "%T", self.directory], capture_output=True, text=True,
                              check=True).stdout.strip() == "tmpfs"

    def test_pages_of_files_are_dirty_mapped_locked_and_deleted(self):
        code = "import ctypes, mmap, os, sys\n" \
               "os.chdir(sys.argv[1])\n" \
               "def make(name, mib):\n" \
               "    file = open(name, 'w+b'); file.write(os.urandom(mib << 20)); file.flush(); os.fsync(file.fileno())\n" \
               "    return file\n" \
               "dirty = make('dirty', 5)\n" \
               "mapped = make('mapped', 3)\n" \
               "memory = mmap.mmap(mapped.fileno(), 3 << 20)\n" \
               "for at in range(0, 3 << 20, 4096): memory[at]\n" \
               "locked = make('locked', 2)\n" \
               "kept = mmap.mmap(locked.fileno(), 2 << 20)\n" \
               "address = ctypes.addressof(ctypes.c_char.from_buffer(kept))\n" \
               "assert ctypes.CDLL(None).mlock(ctypes.c_void_p(address), ctypes.c_size_t(2 << 20)) == 0\n" \
               "deleted = make('deleted', 4); os.unlink('deleted')\n" \
               "closed = make('closed', 1); closed.close()\n" \
               "os.write(dirty.fileno(), b'x'); os.pwrite(dirty.fileno(), bytes(5 << 20), 0)\n" \
               "print('ready', flush=True); sys.stdin.readline(); os._exit(0)\n"
        if self.is_in_memory():
            self.skipTest("the folder of the test is in memory, where nothing is page cache of a disk")
        with self.group() as group, subprocess.Popen(
                [harness.need("/usr/bin/python3"), "-c", code, self.directory], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, text=True, preexec_fn=lambda: self.join(group)) as program:
            self.assertEqual(program.stdout.readline(), "ready\n")
            report = self.pod("--cgroup", group)
            self.need_pages(report)
            rows = {os.path.basename(name): row for name, row in self.files_of(report).items()}
            for name, mib in ("dirty", 5), ("mapped", 3), ("locked", 2), ("deleted (deleted)", 4), ("closed", 1):
                row = rows[name]
                # what is written at its end is a page of its own
                self.assertLessEqual(abs(row["bytes"] - mib * MIB), 4096, name)
                self.assertEqual(row["pid"], None if name == "closed" else program.pid)
            self.assertGreaterEqual(rows["dirty"]["dirty_bytes"], 4 * MIB)  # some may be on disk by now
            self.assertEqual(rows["mapped"]["mapped_bytes"], 3 * MIB)
            self.assertEqual(rows["locked"]["locked_bytes"], 2 * MIB)
            self.assertEqual(rows["closed"]["mapped_bytes"], 0)
            program.communicate("\n")

    def test_what_removed_subgroups_hold_is_found(self):
        with self.group("holds") as group:
            if self.is_v2:
                with open(os.path.join(group, "cgroup.subtree_control"), "w", encoding="ascii") as file:
                    file.write("+memory")
            below = os.path.join(group, "removed")
            os.mkdir(below)
            self.in_group(below, "import sys; open(sys.argv[1], 'wb').write(bytes(9 << 20))", self.path("held"))
            harness.wait_until(lambda: self.removed(below), "the subgroup to be empty")
            report = self.pod("--cgroup", group)
            self.need_pages(report)
            kind = "shared" if self.is_in_memory() else "cache"
            self.assertEqual(self.files_of(report, kind)[self.path("held")]["bytes"], 9 * MIB)
            if not self.is_v2:  # of version 2 what is charged moves to the group above
                self.assertGreaterEqual(report["removed_bytes"], 9 * MIB)

    def test_objects_of_the_kernel_have_rows_by_kind(self):
        """100,000 names that were looked for and not found."""
        code = "import os, sys\nfor i in range(100000): os.path.exists(f'{sys.argv[1]}/no{i}')"
        with self.group() as group:
            self.in_group(group, code, self.directory)
            report = self.pod("--cgroup", group)
            self.need_pages(report)
            slab = {row["name"]: row for row in report["rows"] if row["name"].startswith("slab ")}
            self.assertRegex(slab["slab dentry"]["detail"], r"^100\d\d\d objects, reclaimable$")
            self.assertGreaterEqual(report["reclaimable_bytes"], slab["slab dentry"]["bytes"])
            self.assertLess(sum(row["bytes"] for row in slab.values()), report["total"]["kernel_bytes"] + MIB)

    def growth(self, group, *options, disk="-"):
        """Runs grow_parts in the group and follows it; (its pid, what was said)."""
        with subprocess.Popen([harness.program("grow_parts"), disk], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True, preexec_fn=lambda: self.join(group)) as program:
            self.assertEqual(program.stdout.readline(), "ready\n")
            with subprocess.Popen([HEAPLINE, "pod", "--cgroup", group, "--growth", "3600", *options],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tracing:
                line = "."
                while "following" not in line and line:
                    line = tracing.stderr.readline()
                program.stdin.write("\n")
                program.stdin.flush()
                done = program.stdout.readline()
                tracing.send_signal(signal.SIGINT)
                said, errors = tracing.communicate()
                self.assertEqual(tracing.returncode, 0, errors)
            self.assertEqual(done, "done\n")
            program.stdin.close()
            self.assertEqual(program.wait(), 0)
            return program.pid, said

    def test_growth_is_known_by_stack_and_file(self):
        disk = "-" if self.is_in_memory() else self.directory
        with self.group("grows") as group:
            pid, said = self.growth(group, "--json", "--verbose", disk=disk)
            report = json.loads(said)
            schemas.check(report)
            check_growth(self, report, pid, None if disk == "-" else disk)

    def test_growth_is_a_recording_of_several_processes(self):
        recording = self.path("grown.hl")
        with self.group("kept") as group:
            pid, _ = self.growth(group, "--verbose", "-o", recording)
        info = harness.info(recording)
        self.assertIn(pid, [process["pid"] for process in info["rows"]])
        self.assertGreaterEqual(len(info["rows"]), 4)  # the group, the program, its child, the other one
        top = harness.run([HEAPLINE, "top", recording, "-n", "4"]).stdout
        self.assertRegex(top, r"27\.0 MiB .* touch\n")
        self.assertEqual(harness.run([HEAPLINE, "flame", recording, "-o", self.path("grown.svg")]).status, 0)

    def test_a_group_that_is_removed_ends_the_growth(self):
        with self.group("ends") as group, subprocess.Popen(
                [HEAPLINE, "pod", "--cgroup", group, "--growth", "3600", "--verbose", "--folded"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tracing:
            line = "."
            while "following" not in line and line:
                line = tracing.stderr.readline()
            os.rmdir(group)
            _, errors = tracing.communicate()
            self.assertEqual(tracing.returncode, 0, errors)
            self.assertIn("the group was removed before the trace ended", errors)

    def test_nobody_is_killed_for_what_the_kernel_keeps_for_programs(self):
        """Its memory is charged to the group that heapline runs in: there it takes little, or refuses."""
        code = "import sys; kept = b'x' * (14 << 20); print('ready', flush=True); sys.stdin.readline()"
        with self.group("small") as group:
            self.limit(group, 40 * MIB)
            with subprocess.Popen([harness.need("/usr/bin/python3"), "-c", code], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True, preexec_fn=lambda: self.join(group)) as program:
                self.assertEqual(program.stdout.readline(), "ready\n")
                result = harness.run([HEAPLINE, "pod", "--cgroup", group, "--json"],
                                     preexec_fn=lambda: self.join(group))
                self.assertEqual(result.status, 0, result.stderr)
                self.need_pages(json.loads(result.stdout))
                result = harness.run([HEAPLINE, "pod", "--cgroup", group, "--growth", "1"],
                                     preexec_fn=lambda: self.join(group))
                self.assert_refused(result, "reading its pages takes about ")
                self.assertIsNone(program.poll())
                program.communicate("\n")
                self.assertEqual(program.returncode, 0)

    def test_growth_without_rights_says_what_it_needs(self):
        harness.need_other_user(65534)
        with self.group() as group:
            result = harness.run([HEAPLINE, "pod", "--cgroup", group, "--growth", "1"], user=65534, group=65534,
                                 extra_groups=[])
            self.assert_refused(result, f"cannot follow the pages of '{group[len(self.mount):]}': this needs root")

    def test_subgroups_and_limits_of_groups_above_count(self):
        with self.group("above") as above:
            below = os.path.join(above, "below")
            limit = "memory.max" if self.is_v2 else "memory.limit_in_bytes"
            if self.is_v2:
                with open(os.path.join(above, "cgroup.subtree_control"), "w", encoding="ascii") as file:
                    file.write("+memory")
            os.mkdir(below)
            with open(os.path.join(above, limit), "w", encoding="ascii") as file:
                file.write(str(512 * MIB))
            with tempfile.TemporaryDirectory(dir="/dev/shm") as tmpfs, \
                    self.parts(below, tmpfs, "-") as (pid, child):
                check_parts(self, self.pod("--cgroup", above), pid, child, tmpfs)
                report = self.pod("-p", str(pid))
                self.assertEqual((report["limit_bytes"], report["limit_group"]),
                                 (512 * MIB, above[len(self.mount):]))
                said = harness.run([HEAPLINE, "pod", "-p", str(pid)]).stdout
                self.assertIn(f"of 512.0 MiB, the limit of {above[len(self.mount):]}", said)
                self.assertIn("the largest part is files in memory: tmpfs, memfd, shared memory, ", said)
                self.assertIn(f"; of its rows the largest is memfd:frames of pod_parts ({pid}), 16.0 MiB\n", said)
                self.assertIn(f"next: heapline heap -p {pid}\n", said)
                next_one = harness.run([HEAPLINE, "heap", "-p", str(pid)])
                self.assertEqual(next_one.status, 0, next_one.stderr)

    def test_parts_of_processes_are_those_of_heap(self):
        with self.group() as group, tempfile.TemporaryDirectory(dir="/dev/shm") as tmpfs, \
                self.parts(group, tmpfs, "-") as (pid, _):
            row = next(row for row in self.pod("--cgroup", group, "--parts")["rows"]
                       if row["pid"] == pid and row["kind"] == "anonymous")
            parts = {part["part"]: part["bytes"] for part in row["parts"]}
            resident = {part["part"]: part["bytes"] for part in self.heap(pid)["resident"]}
            self.assertEqual(parts, {name: resident[name] for name in parts})
            # 6 MiB of it are shared out with the child
            self.assertLess(abs(sum(parts.values()) - 6 * MIB - row["bytes"]), MIB)
            self.assertRegex(row["detail"], r"^\d+\.\d MiB ")
            self.assertTrue(all("parts" not in row for row in self.pod("--cgroup", group)["rows"]))

    def test_an_empty_group_has_no_processes(self):
        with self.group("empty") as group:
            report = self.pod("--cgroup", group)
            self.assertEqual((report["processes"], report["rss_bytes"]), (0, 0))
            self.assertNotIn("next:", harness.run([HEAPLINE, "pod", "--cgroup", group]).stdout)

    def test_what_is_no_group_is_refused(self):
        for path in "/proc", "/no/such/group", os.path.join(self.mount, "../.."):
            result = harness.run([HEAPLINE, "pod", "--cgroup", path])
            self.assert_refused(result, f"'{path}' is not a memory control group; name its directory")

    def test_watching_ends_with_the_group(self):
        with self.group("watched") as group, \
                subprocess.Popen([HEAPLINE, "pod", "--cgroup", group, "-i", "1"], stdout=subprocess.PIPE,
                                 text=True) as watching:
            for _ in range(2):
                harness.wait_until(lambda: watching.stdout.readline().startswith("group /"), "a report")
            os.rmdir(group)
            watching.stdout.read()
            self.assertEqual(watching.wait(), 0)

    def test_files_on_overlay_are_in_the_page_cache_too(self):
        folders = {name: self.path(name) for name in ("lower", "upper", "work", "merged")}
        for folder in folders.values():
            os.mkdir(folder)
        with open(os.path.join(folders["lower"], "image"), "wb") as file:
            file.write(os.urandom(6 * MIB))
        options = "lowerdir={lower},upperdir={upper},workdir={work}".format(**folders)
        if subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, folders["merged"]],
                          capture_output=True, check=False).returncode:
            self.skipTest("no overlay can be mounted here")
        try:
            image = os.path.join(folders["merged"], "image")
            with open(image, "rb") as file:
                self.assertEqual(len(file.read()), 6 * MIB)
                cached = {row["path"]: row["cached_bytes"] for row in self.pod("-p", str(os.getpid()))["files"]}
                self.assertEqual(cached[image], 6 * MIB)
        finally:
            subprocess.run(["umount", folders["merged"]], check=True)

    def test_a_lease_is_not_broken(self):
        """Whoever opens a file that is leased for writing has its holder sent SIGIO, which ends it."""
        code = "import fcntl, sys\nfile = open(sys.argv[1], 'w')\n" \
               "fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)\nprint('ready', flush=True)\nsys.stdin.readline()"
        with subprocess.Popen([harness.need("python3"), "-c", code, os.path.join(self.directory, "leased")],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            self.assertEqual(holder.stdout.readline(), "ready\n")
            self.pod("-p", str(holder.pid))
            holder.stdin.close()
            self.assertEqual(holder.wait(), 0)

    def test_a_kill_for_want_of_memory_is_said(self):
        """And before: that the recorder's memory counts to a group which has little left."""
        code = "import sys; kept = []; print('ready', flush=True); sys.stdin.readline()\n" \
               "while True: kept.append(bytearray(100_000))"
        with self.group("limited") as group:
            self.limit(group, 32 * MIB)
            for options, is_warned in ((), True), (("--sample", "512K"), False):
                with self.subTest(options), subprocess.Popen(
                        [harness.need("python3"), "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                        text=True, preexec_fn=lambda: self.join(group)) as program:
                    program.stdout.readline()
                    recording = os.path.join(self.directory, "killed.hl")
                    with subprocess.Popen([HEAPLINE, "attach", "-p", str(program.pid), "-f", "-o", recording,
                                           *options], stderr=subprocess.PIPE, text=True) as attach:
                        ask = [HEAPLINE, "ctl", "-p", str(program.pid), "status"]
                        harness.wait_until(lambda: harness.run(ask).status == 0, "the recorder to be there")
                        program.stdin.write("\n")
                        program.stdin.flush()
                        said = attach.stderr.read()
                    self.assertEqual(program.wait(), -9)
                    self.assertEqual("left of its limit of 32.0 MiB" in said, is_warned, said)
                    kill = f"process {program.pid} ended while the kernel killed 1 process of its control group " \
                           f"for want of memory: '{group[len(self.mount):]}', whose limit is 32.0 MiB"
                    self.assertIn(kill, said)
                    self.assertIn(kill, " ".join(harness.info(recording)["recording"]["warnings"]))

    def test_without_rights_what_is_missing_is_said(self):
        with self.group() as group, tempfile.TemporaryDirectory(dir="/dev/shm") as tmpfs, \
                self.parts(group, tmpfs, "-"):
            result = harness.run([HEAPLINE, "pod", "--cgroup", group, "--json"], user=65534, group=65534,
                                 extra_groups=[])
            self.assertEqual(result.status, 0, result.stderr)
            report = json.loads(result.stdout)
            self.assertEqual(sum(row["bytes"] for row in report["rows"]), report["usage_bytes"])
            self.assertIn("files of 2 of 2 processes may not be seen", " ".join(report["notes"]))


if __name__ == "__main__":
    harness.main()
