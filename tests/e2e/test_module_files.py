# SPDX-License-Identifier: BSD-2-Clause
"""Programs and libraries that are not at their path, or not any more, have their names: what the recording needs of them is in
it. Each view here begins with an empty cache of names."""

import os
import shutil
import signal
import struct
import subprocess
import tempfile

import attaching
import harness
from harness import HEAPLINE

SOURCES = os.path.join(harness.SOURCES, "names")
LOADER = "/lib64/ld-linux-x86-64.so.2"
NOBODY = 65534
PAGE_BYTES = 4096
PT_LOAD, PT_PHDR, PF_X, PF_R = 1, 6, 1, 4
BYTES = 100 * 100


class Kept:
    """What the tests below have in common."""

    def build(self, name="kept", *options, source="kept.c"):
        path = self.path(name)
        built = harness.run([harness.need("gcc"), "-O1", "-g", "-o", path, *options,
                             os.path.join(SOURCES, source)])
        self.assertEqual(built.status, 0, built.stderr)
        return path

    def library(self, name, version):
        return self.build(name, "-shared", "-fPIC", f'-DVERSION="{version}"',
                          source="kept_library.c")

    def start(self, *command, **options):
        """The process, once it is ready."""
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, bufsize=1, **options)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def allocate(self, process):
        process.stdin.write("\n")
        self.assertEqual(process.stdout.readline(), "done\n")

    def forget_names(self):
        os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(dir=self.directory)

    def assert_named(self, recording, function="keep", file="kept.c", module="kept",
                     times=1):
        self.forget_names()
        report = harness.report("top", recording, "--value", "alloc")
        rows = {row["name"]: row for row in report["rows"]}
        self.assertIn(function, rows)
        self.assertEqual(rows[function]["flat_bytes"], times * BYTES)
        self.assertEqual((os.path.basename(rows[function]["file"]),
                          os.path.basename(rows[function]["module"])), (file, module))


def move_headers(path):
    """Moves the program headers into a last segment of their own, at an address that equals their offset, as BOLT does."""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    at, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    headers = [struct.unpack_from("<IIQQQQQQ", data, at + 56 * number) for number in range(count)]
    end = max([len(data), *(header[3] + header[6] for header in headers)])
    new, size = (end + PAGE_BYTES - 1) // PAGE_BYTES * PAGE_BYTES, 56 * (count + 2)
    last = max(number for number, header in enumerate(headers) if header[0] == PT_LOAD)
    headers[last + 1:last + 1] = [(PT_LOAD, PF_R | PF_X, new, new, new, size, size, PAGE_BYTES)]
    headers[:0] = [(PT_PHDR, PF_R, new, new, new, size, size, 8)]
    data += bytes(new - len(data)) + b"".join(struct.pack("<IIQQQQQQ", *header) for header in headers)
    struct.pack_into("<Q", data, 32, new)
    struct.pack_into("<H", data, 56, count + 2)
    with open(path, "wb") as file:
        file.write(data)


class Recorded(Kept, harness.TestCase):
    def record_while(self, change, *command, mode="mem-fast", **options):
        """The recording of a program that allocates once after change()."""
        recording = self.path("test.hl")
        process = self.start(*harness.record_command(recording, list(command), mode), **options)
        change()
        self.allocate(process)
        _, said = process.communicate()
        self.assertEqual(process.returncode, 0, said)
        return recording

    def test_a_program_that_runs_from_a_memfd_has_names(self):
        path = self.build()
        recording = self.record_while(lambda: None, path, "-m", path)
        self.assert_named(recording, module="memfd:kept-copy")

    def test_an_ordinary_users_program_that_runs_from_a_memfd_has_names(self):
        harness.need_root()
        harness.need_other_user(NOBODY)
        path = self.build()
        os.chmod(self.directory, 0o777)
        recording = self.record_while(lambda: None, path, "-m", path, user=NOBODY, group=NOBODY,
                                      extra_groups=[])
        self.assert_named(recording, module="memfd:kept-copy")

    def test_a_program_that_is_deleted_while_it_runs_has_names(self):
        for options in ((), ("-Wl,--build-id=none",)):
            with self.subTest(options=options):
                path = self.build("kept", *options)
                shutil.rmtree(self.path("test.hl"), ignore_errors=True)
                self.assert_named(self.record_while(lambda path=path: os.unlink(path), path))

    def test_a_library_that_is_deleted_while_it_is_used_has_names_in_a_log(self):
        path, library = self.build(), self.library("libkept.so", "1")
        recording = self.path("test.hl")
        process = self.start(*harness.record_command(recording, [path, library], "log-fast"))
        self.allocate(process)
        harness.wait_until(lambda: library in {module["path"] for module
                                               in harness.info(recording)["modules"]},
                           "a save with the library")
        os.unlink(library)
        self.allocate(process)
        _, said = process.communicate()
        self.assertEqual(process.returncode, 0, said)
        self.assert_named(recording, "library_keep", "kept_library.c", "libkept.so", 2)

    def test_a_packed_recording_and_a_copy_of_the_folder_have_the_names(self):
        path = self.build()
        recording = self.record_while(lambda: os.unlink(path), path)
        copy, packed = self.path("copy.hl"), self.path("packed.hlz")
        shutil.copytree(recording, copy)
        self.forget_names()
        result = harness.run([HEAPLINE, "pack", "-o", packed, recording])
        self.assertEqual(result.status, 0, result.stderr)
        self.assert_named(packed)
        self.assert_named(copy)

    def test_a_library_that_bolt_has_rewritten_is_unwound(self):
        """The second program brings its own malloc: modules come from /proc/PID/maps then."""
        library, own = self.library("libkept.so", "1"), os.path.join(harness.SOURCES, "ways_malloc.c")
        move_headers(library)
        for name, options in (("kept", []), ("kept_own", [own, "-O0"])):
            with self.subTest(name):
                shutil.rmtree(self.path("test.hl"), ignore_errors=True)
                recording = self.record_while(lambda: None, self.build(name, *options), library)
                self.assert_named(recording, "library_keep", "kept_library.c", "libkept.so")
                self.assert_nothing_lost(recording)
                info = harness.report("info", recording)
                self.assertIn("libkept.so", {os.path.basename(module["path"]) for module in info["modules"] if module.get("build_id")})

    def test_files_that_are_at_their_path_are_not_copied(self):
        path = self.build()
        recording = self.record_while(lambda: None, path)
        self.assertEqual([name for name in os.listdir(recording) if name.endswith(".elf")], [])

    def test_a_recording_with_copies_can_be_replaced(self):
        path = self.build()
        recording = self.record_while(lambda: os.unlink(path), path)
        result = harness.run([HEAPLINE, "record", "-f", "-o", recording, "--", "true"])
        self.assertEqual(result.status, 0, result.stderr)
        self.assertEqual([name for name in os.listdir(recording) if name.endswith(".elf")], [])

    def test_a_program_that_the_dynamic_loader_starts_is_recorded_by_its_name(self):
        if not os.path.exists(LOADER):
            self.skipTest(f"there is no {LOADER}")
        for options in ((), ("-Wl,--build-id=none",)):
            path = self.build("kept", *options)
            for mode in ("mem-fast", "log-fast"):
                with self.subTest(options=options, mode=mode):
                    shutil.rmtree(self.path("test.hl"), ignore_errors=True)
                    recording = self.record_while(lambda: None, LOADER, "--library-path", "/none",
                                                  path, mode=mode)
                    self.assert_named(recording)
                    modules = {module["path"] for module in harness.info(recording)["modules"]}
                    self.assertIn(path, modules)


class Attached(Kept, attaching.TestCase):
    def attach_while(self, process):
        with self.attached(process.pid) as attach:
            self.allocate(process)
            attach.send_signal(signal.SIGINT)
        return self.recording

    def test_a_program_that_was_deleted_before_has_names(self):
        path = self.build()
        process = self.start(path)
        os.unlink(path)
        self.assert_named(self.attach_while(process))

    def test_a_library_that_was_replaced_before_has_names(self):
        path, library = self.build(), self.library("libkept.so", "1")
        process = self.start(path, library)
        os.rename(self.library("other.so", "2"), library)
        self.assert_named(self.attach_while(process), "library_keep", "kept_library.c",
                          "libkept.so")

    def test_a_program_that_the_dynamic_loader_started_has_names(self):
        if not os.path.exists(LOADER):
            self.skipTest(f"there is no {LOADER}")
        for options in ((), ("-Wl,--build-id=none",)):
            with self.subTest(options=options):
                process = self.start(LOADER, self.build("kept", *options))
                self.assert_named(self.attach_while(process))

    def contained(self, *options):
        """A process in a root of its own, whose number and process."""
        tried = harness.run([harness.need("bwrap"), "--unshare-all", "--ro-bind", "/", "/", "true"])
        if tried.status != 0:
            self.skipTest(f"no container can be made here: {tried.stderr.strip()}")
        root = self.path("root")
        os.makedirs(os.path.join(root, "app"))
        program = self.build("kept", *options)
        listed = harness.run(["ldd", program])
        for word in listed.stdout.split():
            if word.startswith("/") and not options:
                os.makedirs(root + os.path.dirname(word), exist_ok=True)
                shutil.copy(word, root + word)
        shutil.move(program, os.path.join(root, "app/kept"))
        process = self.start("bwrap", "--unshare-all", "--ro-bind", root, "/",
                             "--die-with-parent", "/app/kept")
        pid = process.pid
        while os.readlink(f"/proc/{pid}/exe") != "/app/kept":
            pid = harness.children_of(pid)[0]
        return pid, process

    def test_programs_of_containers_have_names_while_they_run_and_later(self):
        for options in ((), ("-static",)):
            with self.subTest(options=options):
                shutil.rmtree(self.path("root"), ignore_errors=True)
                pid, process = self.contained(*options)
                snapshot = self.path(f"snapshot{len(options)}.hl")
                with self.attached(pid) as attach:
                    self.allocate(process)
                    self.ctl(pid, "snapshot", snapshot)
                    self.assert_named(snapshot)
                    attach.send_signal(signal.SIGINT)
                process.kill()
                process.wait()
                shutil.rmtree(self.path("root"))
                self.assert_named(self.recording)
                self.assert_named(snapshot)

    def test_a_trace_of_a_deleted_program_has_names_later(self):
        harness.need_root()
        path = self.build()
        process = self.start(path)
        os.unlink(path)
        trace = self.path("trace.hl")
        tracing = subprocess.Popen([HEAPLINE, "stacks", "-p", str(process.pid), "-o", trace,
                                    "--max-overhead", "100000", "--verbose"],
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(tracing.stderr.close)
        self.addCleanup(tracing.wait)
        self.addCleanup(tracing.kill)
        said = ""
        while "counting, by" not in said:
            said = tracing.stderr.readline()
            if not said:
                self.skipTest("traces do not work here")
        self.allocate(process)
        tracing.send_signal(signal.SIGINT)
        tracing.wait()
        process.kill()
        self.forget_names()
        rows = harness.report("top", trace)["rows"]
        self.assertEqual({row["name"]: row["flat_bytes"] for row in rows}.get("keep"), BYTES)


if __name__ == "__main__":
    harness.main()
