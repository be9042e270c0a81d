#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The functions by which a process allocates are found from outside, where it says that they are."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import harness

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
FAMILY = {"malloc", "calloc", "realloc", "reallocarray", "free", "free_sized",
          "free_aligned_sized", "posix_memalign", "aligned_alloc", "memalign", "valloc", "pvalloc",
          "dlclose", "_dl_debug_state", "mlockall"}
LOADER = {"dlclose", "_dl_debug_state", "mlockall", "prctl", "syscall"}  # not the allocator's
OWN = {"malloc", "calloc", "realloc", "free"}  # of programs with an allocator of their own
CTYPES = """
import ctypes
program = ctypes.CDLL(None)
libc = ctypes.CDLL("libc.so.6")  # the program's malloc may be a stub
for name in %r:
    function = getattr(libc, name, None) or getattr(program, name, None)
    if function:
        print(name, hex(ctypes.cast(function, ctypes.c_void_p).value))
print("ready", flush=True)
input()
""" % sorted(FAMILY | LOADER | {"malloc_usable_size", "_dl_find_object"})


class Target:
    """A program that says where its functions are, and then obeys."""

    def __init__(self, command, env=None, **options):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=dict(os.environ, **(env or {})), **options)
        self.pid = self.process.pid
        self.truth = {}
        for line in self.process.stdout:
            if line == "ready\n":
                return
            name, number = line.split()
            self.truth[name] = int(number, 0)
        raise AssertionError(f"{command} did not get ready")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(harness.TIMEOUT_S)
        self.process.stdin.close()
        self.process.stdout.close()

    def says_ok(self, command, address):
        self.process.stdin.write(f"{command} {address:x}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline() == "ok\n"


def find(pid, *hooks):
    result = harness.run([harness.program("entry_dump"), str(pid), *hooks])
    return json.loads(result.stdout)


def addresses(found, kind="entries"):
    return {entry["name"]: entry["address"] for entry in found[kind]}


def stack_of(pid):
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        match = re.search(r"^(\w+)-(\w+) .*\[stack\]$", maps.read(), re.MULTILINE)
    return range(int(match[1], 16), int(match[2], 16) + 1)


class EntriesTest(unittest.TestCase):
    def compare(self, target, names=None):
        """What was found is what the target says; ${names}: all that must be there."""
        return self.compare_found(target, find(target.pid), names)

    def compare_found(self, target, found, names=None):
        self.assertNotIn("error", found)
        named = addresses(found)
        for name, address in named.items():
            if name in target.truth or name != "_dl_debug_state":  # C programs cannot name it
                self.assertEqual(address, target.truth.get(name), name)
        self.assertEqual(len(set(named.values())), len(found["entries"]))
        wanted = (FAMILY if names is None else names) & target.truth.keys()
        self.assertEqual({target.truth[name] for name in wanted} - set(named.values()), set())
        return found

    def compare_circumstances(self, target, found):
        truth = target.truth
        for name in ("program_headers", "program_header_count", "program_entry"):
            if name in truth:
                self.assertEqual(found[name], truth[name], name)
        self.assertGreater(found["stack_end"], truth["local"])
        self.assertIn(found["stack_end"], stack_of(target.pid))
        if "stack_end" in truth:
            self.assertEqual(found["stack_end"], truth["stack_end"])
        self.assertEqual(found["find_object"], truth.get("_dl_find_object", 0))
        self.assertTrue(target.says_ok("clock", found["clock"]))

    def examine(self, kind, allocator, names=None, env=None, usable=True):
        with Target([harness.program("entry_target" + kind)], env) as target:
            found = self.compare(target, names)
            self.compare_circumstances(target, found)
            self.assertEqual(found["allocator"], allocator)
            self.assertEqual(found["is_static"], "static" in kind)
            usable_size = target.truth.get("malloc_usable_size", 0) if usable else 0
            self.assertEqual(found["usable_size"], usable_size)
            if usable_size:
                self.assertTrue(target.says_ok("usable", found["usable_size"]))
            return found

    def test_glibc_in_programs_of_every_layout(self):
        for kind in ("", "_no_pie", "_now", "_lazy", "_far", "_prelinked"):
            with self.subTest(kind=kind):
                found = self.examine(kind, "glibc")
                self.assertTrue(found["has_glibc_chunks"])
                self.assertTrue(all(entry["bytes"] for entry in found["entries"]))

    def test_static_glibc(self):
        for kind in ("_static", "_static_pie"):
            with self.subTest(kind=kind):
                self.assertTrue(self.examine(kind, "glibc")["has_glibc_chunks"])

    def test_musl(self):
        for kind in ("_musl", "_musl_static"):
            with self.subTest(kind=kind):
                self.assertFalse(self.examine(kind, "musl")["has_glibc_chunks"])

    def test_a_malloc_of_the_programs_own(self):
        for kind in ("_own", "_own_stripped", "_own_no_pie", "_hidden"):
            with self.subTest(kind=kind):
                program = "entry_target" + kind
                found = self.examine(kind, program, OWN, usable=False)
                self.assertFalse(found["has_glibc_chunks"])
                modules = {entry["name"]: entry["module"] for entry in found["entries"]}
                self.assertEqual((modules["malloc"], modules["free"]), (program, program))

    def test_a_static_program_with_a_malloc_of_its_own(self):
        with Target([harness.program("entry_target_static_own")]) as target:
            found = self.compare(target, OWN)
            self.assertFalse(found["has_glibc_chunks"])

    def test_indirect_functions(self):
        for kind in ("_indirect", "_static_indirect"):
            with self.subTest(kind=kind):
                with Target([harness.program("entry_target" + kind)]) as target:
                    self.compare(target, OWN)

    def test_an_indirect_function_that_nobody_calls(self):
        with Target([harness.program("entry_target_indirect_unused")]) as target:
            found = find(target.pid)
        self.assertEqual(found["code"], "ENOENT")
        self.assertIn("are indirect functions", found["error"])

    def test_a_32_bit_program(self):
        with subprocess.Popen([harness.program("waits_32")], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            found = find(process.pid)
            process.kill()
        self.assertEqual(found["code"], "ENOENT")
        self.assertIn("has no program of this machine", found["error"])

    def test_preloaded_allocators(self):
        for library, allocator in (("libjemalloc.so.2", "jemalloc"), ("libmimalloc.so.2", "mimalloc"),
                                   ("libtcmalloc_minimal.so.4", "tcmalloc")):
            path = os.path.join(LIBRARIES, library)
            if not os.path.exists(path):
                print(f"skipped: {library} is not installed")
                continue
            for kind in ("", "_lazy", "_now"):
                with self.subTest(library=library, kind=kind):
                    # what the allocator lacks nobody asks libc for here
                    found = self.examine(kind, allocator, OWN,
                                         {"LD_PRELOAD": path})
                    self.assertFalse(found["has_glibc_chunks"])
                    self.assertEqual({entry["module"].split(".")[0] for entry in found["entries"]
                                      if entry["name"] not in LOADER}, {library.split(".")[0]})

    def test_operators_of_other_allocators(self):
        operators = ["_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t", "_ZdlPv", "_ZdlPvm"]
        for library in ("libjemalloc.so.2", "libmimalloc.so.2", "libtcmalloc_minimal.so.4"):
            path = os.path.join(LIBRARIES, library)
            if not os.path.exists(path):
                print(f"skipped: {library} is not installed")
                continue
            with self.subTest(library=library):
                with Target([harness.program("entry_target_operators")],
                            {"LD_PRELOAD": path}) as target:
                    found = find(target.pid)
                    both = set(addresses(found).values()) | set(addresses(found, "extras").values())
                    self.assertEqual({target.truth[name] for name in operators} - both, set())
                    self.assertEqual(len(both), len(found["entries"] + found["extras"]))
                throwing = {entry["address"] for entry in found["extras"] if entry["throws"]}
                self.assertIn(target.truth["_Znwm"], throwing)
                self.assertNotIn(target.truth["_ZnwmRKSt9nothrow_t"], throwing)
                with Target([harness.program("entry_target")], {"LD_PRELOAD": path}) as target:
                    self.assertEqual(find(target.pid)["extras"], [])

    def test_operators_of_an_allocator_in_a_program_without_symbols(self):
        """Their names are those that its libraries call them by."""
        with Target([harness.program("entry_target_stripped_tcmalloc")]) as target:
            found = find(target.pid)
        both = set(addresses(found).values()) | set(addresses(found, "extras").values())
        self.assertEqual({target.truth[name] for name in ("_Znwm", "_Znam", "_ZdlPv", "_ZdlPvm")} - both, set())

    def test_a_prefixed_allocator_is_extra_where_there_is_another_one(self):
        with Target([harness.program("entry_target_prefixed")]) as target:
            found = self.compare(target)
            self.assertEqual(found["allocator"], "glibc")
            self.assertEqual(addresses(found, "extras"), {
                name: target.truth[name] for name in ("je_malloc", "je_free")})

    def test_a_prefixed_allocator_below_malloc_is_left_out(self):
        with Target([harness.program("entry_target_layered")]) as target:
            found = self.compare(target, OWN)
            self.assertEqual(found["extras"], [])

    def test_functions_that_are_asked_for_are_extra(self):
        with Target([harness.program("entry_target_prefixed")]) as target:
            truth = target.truth
            for hooks in (["malloc=je_malloc", "free=entry_target_prefixed!je_free"],
                          ["malloc=je_malloc"], ["malloc=je_malloc(size=2)", "free=je_free(ptr=2)"]):
                found = self.compare_found(target, find(target.pid, *hooks))
                self.assertEqual(addresses(found, "extras"), {
                    name: truth[name] for name in ("je_malloc", "je_free")})
                self.assertEqual(found["usable_size"], truth["malloc_usable_size"])
            places = {entry["name"]: entry["places"] for entry in found["extras"]}
            self.assertEqual(places, {"je_malloc": [2, 0, 0], "je_free": [0, 0, 2]})

    def test_functions_that_are_asked_for_must_be_there(self):
        with Target([harness.program("entry_target")]) as target:
            for hook, what in (("malloc=nobody", "'nobody'"),
                               ("malloc=0x7ffffffff000", "'0x7ffffffff000'"), ("malloc=libc!nobody", "'libc'"),
                               ("@nginx", "'ngx_palloc'")):
                found = find(target.pid, hook)
                self.assertEqual(found.get("code"), "ENOENT", hook)
                self.assertIn(what, found["error"])
            self.assertNotIn("error", find(target.pid, "malloc=libc!malloc"))
            # that library may still be loaded
            self.assertNotIn("error", find(target.pid, "free=libnone.so!free"))

    def test_a_preset_that_is_asked_for(self):
        names = ("PyObject_Malloc", "PyObject_Calloc", "PyObject_Realloc", "PyObject_Free")
        script = CTYPES.replace("for name in [", "for name in %r + [" % list(names))
        with Target([sys.executable, "-c", script]) as target:
            found = find(target.pid, "@python")
            for name in names:
                self.assertEqual(addresses(found, "extras")[name], target.truth[name], name)
            self.assertEqual(addresses(found)["malloc"], target.truth["malloc"])

    def test_addresses_in_a_program_without_symbols(self):
        with Target([harness.program("entry_target_static_stripped")]) as target:
            truth = target.truth
            hooks = [f"{name}={truth[name]:#x}" for name in ("malloc", "free", "calloc", "realloc")]
            found = find(target.pid, *hooks)
            self.assertEqual({entry["address"] for entry in found["entries"]},
                             {truth[name] for name in ("malloc", "free", "calloc", "realloc")})
            self.assertEqual((found["find_object"], found["usable_size"]), (0, 0))
            self.assertEqual(found["stack_end"], max(stack_of(target.pid)))
            found = find(target.pid, hooks[0] + "(size=2)", hooks[1])
            self.assertEqual(found["entries"], [])
            self.assertEqual({entry["address"] for entry in found["extras"]},
                             {truth["malloc"], truth["free"]})

    def test_a_separate_debug_file(self):
        harness.need_root()  # to have a place for one that is not the system's
        objcopy = harness.need("objcopy")
        program = harness.program("entry_target_static")
        notes = harness.run([harness.need("readelf"), "--notes", program]).stdout
        build_id = re.search(r"Build ID: (\w+)", notes)[1]
        with tempfile.TemporaryDirectory() as scratch:
            directory = os.path.join(scratch, "usr/lib/debug/.build-id", build_id[:2])
            debug = os.path.join(directory, build_id[2:] + ".debug")
            os.makedirs(directory)
            harness.run([objcopy, "--only-keep-debug", program, debug])
            harness.run([objcopy, "--strip-all", program, os.path.join(scratch, "program")])
            with Target(["/program"], preexec_fn=lambda: os.chroot(scratch)) as target:
                self.assertEqual(self.compare(target)["allocator"], "glibc")
                with tempfile.TemporaryDirectory() as outside:
                    away = shutil.move(debug, os.path.join(outside, "debug"))
                    os.symlink(away, debug)  # of the system, not of the target
                    self.assertEqual(find(target.pid).get("code"), "ENOENT")
                    os.unlink(debug)
                    shutil.move(away, os.path.join(scratch, "debug"))
                os.symlink("/debug", debug)
                self.compare(target)
                os.unlink(debug)
                self.assertEqual(find(target.pid)["code"], "ENOENT")

    def test_checked_blocks_have_no_plain_headers(self):
        path = os.path.join(LIBRARIES, "libc_malloc_debug.so.0")
        if not os.path.exists(path):
            self.skipTest("libc has no libc_malloc_debug.so")
        with Target([harness.program("entry_target")],
                    {"LD_PRELOAD": path, "MALLOC_CHECK_": "3"}) as target:
            found = find(target.pid)
            self.assertFalse(found["has_glibc_chunks"])
            modules = {entry["module"] for entry in found["entries"] if entry["name"] not in LOADER}
            self.assertEqual(modules, {"libc_malloc_debug.so.0"})
            self.assertTrue(target.says_ok("usable", found["usable_size"]))

    def test_a_program_that_was_given_to_its_loader(self):
        for loader, kind, allocator in (("/lib64/ld-linux-x86-64.so.2", "", "glibc"),
                                        ("/lib/ld-musl-x86_64.so.1", "_musl", "musl")):
            if not os.path.exists(loader):
                print(f"skipped: no {loader}")
                continue
            with self.subTest(kind=kind):
                with Target([loader, harness.program("entry_target" + kind)]) as target:
                    if kind == "_musl":  # tells the program where its loader lies
                        for name in ("headers", "header_count", "entry"):
                            del target.truth["program_" + name]
                    found = self.compare(target)
                    self.compare_circumstances(target, found)
                    self.assertEqual(found["allocator"], allocator)

    def test_python(self):
        with Target([sys.executable, "-c", CTYPES]) as target:
            found = self.compare(target)
            self.assertEqual(found["allocator"], "glibc")
            self.assertEqual(found["usable_size"], target.truth["malloc_usable_size"])

    def test_redis_with_jemalloc(self):
        redis = harness.need("redis-server")
        if "jemalloc" not in harness.run([redis, "--version"]).stdout:
            self.skipTest("redis-server does not use jemalloc")
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "redis")
            with subprocess.Popen([redis, "--port", "0", "--unixsocket", path, "--dir", scratch],
                                  stdout=subprocess.DEVNULL) as process:
                try:
                    harness.wait_until(lambda: harness.listens(path), "redis to listen")
                    found = find(process.pid)
                finally:
                    process.kill()
        self.assertEqual(found["allocator"], "jemalloc")
        modules = {entry["name"]: entry["module"] for entry in found["entries"]}
        self.assertEqual(modules["malloc"], modules["free"])
        self.assertNotIn("libc.so", modules["malloc"])

    def test_a_static_program_without_symbols_is_refused(self):
        with Target([harness.program("entry_target_static_stripped")]) as target:
            found = find(target.pid)
        self.assertEqual(found["code"], "ENOENT")
        self.assertIn("'entry_target_static_stripped' is static and stripped; ", found["error"])

    def test_files_that_have_been_deleted(self):
        harness.need_root()  # map_files
        with tempfile.TemporaryDirectory() as scratch:
            for kind in ("_own", "_hidden", "_static"):
                with self.subTest(kind=kind):
                    path = shutil.copy(harness.program("entry_target" + kind), scratch)
                    with Target([path]) as target:
                        os.unlink(path)
                        self.compare(target, OWN)

    def test_another_root(self):
        harness.need_root()
        with tempfile.TemporaryDirectory() as scratch:
            shutil.copy(harness.program("entry_target_static"), os.path.join(scratch, "program"))
            with Target(["/program"], preexec_fn=lambda: os.chroot(scratch)) as target:
                self.compare_circumstances(target, self.compare(target))

    def test_another_mount_namespace(self):
        harness.need_root()
        unshare = harness.need("unshare")
        if harness.run([unshare, "--mount", "true"]).status != 0:
            self.skipTest("no mount namespaces here")
        with tempfile.TemporaryDirectory() as scratch:
            program = harness.program("entry_target")
            script = f"mount -t tmpfs none {scratch} && cp {program} {scratch}/p && exec {scratch}/p"
            with Target([unshare, "--mount", "sh", "-c", script]) as target:
                self.compare_circumstances(target, self.compare(target))


if __name__ == "__main__":
    harness.main()
