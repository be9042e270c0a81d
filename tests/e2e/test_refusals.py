# SPDX-License-Identifier: BSD-2-Clause
"""Programs that the recorder enters as they begin; those that it cannot enter: one clear sentence,
and no misleading empty report."""

import os
import shutil
import subprocess
from pathlib import Path

import harness

NOBODY = 65534
OUTPUT = ("hello\n", 6)


class LibraryOfVerbs(harness.TestCase):
    def copy(self):
        shutil.copy(harness.HEAPLINE, self.directory)
        return self.path("heapline")

    def test_without_it_the_version_is_said_and_the_file_that_lacks_is_named(self):
        alone = self.copy()
        self.assertEqual(harness.run([alone, "--version"]).stdout, harness.run([harness.HEAPLINE, "version"]).stdout)
        Path(self.path("heapline-verbs.so")).write_text("no library")
        said = harness.run([alone, "-h"])
        self.assertEqual(said.status, 1)
        self.assertRegex(said.stderr, f"^heapline: cannot load the library of verbs: {self.path('heapline-verbs.so')}: .*; install heapline again\n$")

    def test_one_of_another_version_is_refused(self):
        alone, library = self.copy(), Path(self.path("heapline-verbs.so"))
        own = harness.run([harness.HEAPLINE, "version"]).stdout.split()[1]
        other = "9" + own[1:]
        library.write_bytes(Path(harness.BUILD, library.name).read_bytes().replace(f"\0{own}\0".encode(), f"\0{other}\0".encode()))
        said = harness.run([alone, "top", "-h"])
        self.assertEqual((said.status, said.stderr), (1, f"heapline: this is heapline {own}, but its library '{library}' is of version {other}; "
                                                         "install heapline again\n"))

    def test_it_is_found_where_the_dynamic_loader_is_executed(self):
        shown = harness.run(["readelf", "-p", ".interp", harness.HEAPLINE]) if shutil.which("readelf") else None
        if not shown:
            self.skipTest("no readelf")
        loader = shown.stdout.split()[-1]
        copy = self.copy()  # also where a recorder is not installed
        shutil.copy(f"{harness.BUILD}/heapline-verbs.so", self.directory)
        self.assertEqual(harness.run([loader, copy, "top", "-h"]).stdout, harness.run([harness.HEAPLINE, "top", "-h"]).stdout)
        result = harness.run([loader, harness.HEAPLINE, "record", "-o", self.path("r.hl"), harness.program("hello")])
        self.assertEqual((result.stdout, result.status), OUTPUT, result.stderr)
        self.assertIn("recorded ", result.stderr)


class Refusals(harness.TestCase):
    """What the tests below have in common."""

    def sentence(self, result):
        sentences = [line for line in result.stderr.splitlines() if line.strip()]
        self.assertEqual(len(sentences), 1, result.stderr)
        self.assertTrue(sentences[0].startswith("heapline: "), sentences[0])
        return sentences[0]

    def assert_not_recorded(self, command, words, **options):
        """The program is refused or runs as alone; one sentence says why; no report pretends."""
        result, recording = self.record(command, **options)
        self.assertRegex(self.sentence(result), words)
        self.assertNotIn("warning: warning", result.stderr)
        if result.stdout:
            self.assertEqual((result.stdout, result.status), OUTPUT)
        else:
            self.assertIn(result.status, (1, 125, 126))
        if os.path.exists(recording):
            shown = harness.run([harness.HEAPLINE, "top", recording], **options)
            self.assertRegex(shown.stdout + shown.stderr, words)

    def setuid_copy(self, owner):
        copy = self.path("hello_setuid")
        os.chmod(self.directory, 0o777)
        shutil.copy(harness.program("hello"), copy)
        os.chown(copy, owner, owner)
        os.chmod(copy, 0o4755)
        return copy


class Entered(Refusals):
    """Where preloading reaches nothing, the recorder comes in before the first instruction."""

    def assert_recorded(self, command):
        result, recording = self.record(command)
        self.assertEqual((result.stdout, result.status), OUTPUT, result.stderr)
        self.assertIn("heapline: recorded", result.stderr)
        rows = harness.top_rows(recording, "alloc")
        self.assertGreater(rows["main"]["cum_objects"], 0)
        shown = harness.run([harness.HEAPLINE, "info", recording])
        self.assertNotIn("attached at", shown.stdout)
        return rows

    def test_a_static_program_is_recorded(self):
        rows = self.assert_recorded([harness.program("hello_static")])
        self.assertIn("_dl_new_object", rows, "what it allocates before main()")

    def test_a_static_position_independent_program_is_recorded(self):
        self.assert_recorded([harness.program("hello_static_pie")])

    def test_a_program_of_another_libc_is_recorded(self):
        self.assert_recorded([harness.program("hello_musl")])

    def test_a_program_with_a_malloc_of_its_own_is_recorded(self):
        self.assert_recorded([harness.program("own_malloc")])

    def test_a_script_is_judged_by_its_interpreter(self):
        script = self.path("script")
        with open(script, "w", encoding="ascii") as file:
            file.write(f"#!{harness.program('hello_static')}\n")
        os.chmod(script, 0o755)
        self.assert_recorded([script])

    def test_an_ordinary_user_may(self):
        harness.need_root()
        harness.need_other_user(NOBODY)
        os.chmod(self.directory, 0o777)
        result, _ = self.record([harness.program("hello_static")], user=NOBODY, group=NOBODY,
                                extra_groups=[])
        self.assertEqual((result.stdout, result.status), OUTPUT, result.stderr)
        self.assertIn("heapline: recorded", result.stderr)


class Programs(Refusals):
    def refused(self, section):
        """What is said of a static program without malloc that has a section of this name."""
        path, content = self.path("program"), self.path("content")
        with open(content, "w", encoding="ascii") as file:
            file.write("content")
        made = harness.run([harness.need("objcopy"), "--add-section", f"{section}={content}",
                            harness.program("waits_static_stripped"), path])
        self.assertEqual(made.status, 0, made.stderr)
        result, _ = self.record([path])
        doctor = harness.run([harness.HEAPLINE, "doctor", "--", path]).stdout
        return self.sentence(result), doctor

    def test_a_go_program_is_told_of_gos_own_profiles(self):
        for said in self.refused(".go.buildinfo"):
            self.assertIn("it is a Go program without C code", said)
            self.assertIn("/debug/pprof/heap", said)
            self.assertNotIn("symbols", said)

    def test_a_go_program_that_names_a_loader_is_told_the_same(self):
        """-buildmode=pie: it is linked with no library all the same, and has symbols or none."""
        go = harness.need("go")
        with open(self.path("main.go"), "w", encoding="ascii") as file:
            file.write("package main\nimport \"syscall\"\nfunc main() { syscall.Write(1, []byte(\"ready\\n\")); syscall.Read(0, make([]byte, 1)) }\n")
        for flags in "", "-s":
            program = self.path("program" + flags)
            built = harness.run([go, "build", "-buildmode=pie", "-ldflags", flags, "-o", program, self.path("main.go")],
                                env={"GOCACHE": os.environ.get("GOCACHE", self.path("cache")), "PATH": os.environ["PATH"],
                                     "GO111MODULE": "off", "CGO_ENABLED": "0"})
            self.assertEqual(built.status, 0, built.stderr)
            self.assert_not_recorded([program], "it is a Go program without C code")
            with harness.Waiting([program]) as process:
                pid = str(process.pid)
                attach = harness.run([harness.HEAPLINE, "attach", "-p", pid, "-d", "1", "-o", self.path("go.hl")])
                why = harness.run([harness.HEAPLINE, "why", "-p", pid, "--for", "1"])
            self.assertNotIn("try again", attach.stderr)
            self.assertRegex(attach.stderr, "static and stripped" if flags else "another allocator")
            self.assertNotIn("live blocks 0 B", why.stdout)

    def test_a_free_pascal_program_is_told_of_cmem(self):
        for said in self.refused(".fpcdata"):
            self.assertIn("Free Pascal", said)
            self.assertIn("uses cmem", said)

    def test_a_static_program_with_symbols_and_without_malloc_is_told_so(self):
        self.assert_not_recorded([harness.program("bare")], "none of its functions is called malloc")

    def test_a_static_program_without_symbols_is_not_recorded(self):
        self.assert_not_recorded([harness.program("waits_static_stripped")], "no symbols")

    def hidden_libc(self):
        """A program that has musl's libc.a inside, no symbols, and a loader that it has no use for."""
        source = self.path("inside.c")
        with open(source, "w", encoding="ascii") as file:
            file.write("#include <stdio.h>\n#include <stdlib.h>\nint main(void)\n"
                       "{ puts(malloc(100) ? \"ready\" : \"\"); fflush(stdout); return getchar() != EOF; }\n")
        subprocess.run([harness.need("musl-gcc"), "-pie", "-fPIE", "-s", "-Wl,-Bstatic", source,
                        "-o", self.path("inside")], check=True)
        return self.path("inside")

    def test_a_program_without_symbols_that_has_its_libc_inside_is_not_recorded(self):
        self.assert_not_recorded([self.hidden_libc()], "linked with no library and has no symbols")

    def test_attach_warns_of_a_program_that_has_its_libc_inside(self):
        with harness.Waiting([self.hidden_libc()]) as process:
            pid = str(process.pid)
            result = harness.run([harness.HEAPLINE, "attach", "-p", pid, "-d", "1", "-o",
                                  self.path("inside.hl")])
            heap = harness.run([harness.HEAPLINE, "heap", "-p", pid])
        self.assertIn("has a C library built in, none of whose functions it names", result.stderr)
        self.assertIn("heapline heap -p PID", result.stderr)
        self.assertIn("musl's mallocng", heap.stdout)

    def test_a_program_of_32_bits_is_not_recorded(self):
        self.assert_not_recorded([harness.program("hello_32")], "32|x86-64|machine")

    def test_a_program_with_addresssanitizer_is_not_recorded(self):
        self.assert_not_recorded([harness.program("hello_asan")], "AddressSanitizer|malloc")

    def with_sanitizers(self):
        """Programs into which one is linked: those whose libraries are installed."""
        compiler, built = harness.need("gcc"), []
        for name, library in ("address", "asan"), ("leak", "lsan"), ("thread", "tsan"):
            program = self.path(f"with_{library}")
            command = [compiler, f"-fsanitize={name}", f"-static-lib{library}", os.path.join(harness.SOURCES, "hello.c"), "-o", program]
            if not subprocess.run(command, capture_output=True, check=False).returncode:
                built.append(program)
        if not built:
            self.skipTest("no sanitizer's library can be linked")
        return built

    def test_a_program_that_a_sanitizer_is_linked_into_is_not_recorded(self):
        """By name, or by what no allocator has."""
        for program in self.with_sanitizers():
            with self.subTest(program):
                self.assert_not_recorded([program], "a sanitizer is linked into it|AddressSanitizer")

    def test_a_child_with_a_sanitizer_runs_as_without_recorder_and_is_counted(self):
        for program in [*self.with_sanitizers(), harness.program("hello_asan")]:
            with self.subTest(program):
                command = [program, "a b", ""]
                alone = harness.run(command)
                result, recording = self.record(["sh", "-c", '"$@"; exit $?', "sh", *command])
                self.assertEqual((result.stdout, result.status), (alone.stdout, alone.status), result.stderr)
                self.assertIn("1 child ran unrecorded", result.stderr)
                self.assertEqual(harness.info(recording)["lost"]["unrecorded_children"], 1)

    def test_a_setuid_program_is_not_recorded(self):
        harness.need_root()
        self.assert_not_recorded([self.setuid_copy(NOBODY)], "set-?u(ser-)?id")

    def test_an_ordinary_users_setuid_program_is_not_recorded(self):
        harness.need_root()
        harness.need_other_user(NOBODY)
        self.assert_not_recorded([self.setuid_copy(0)], "set-?u(ser-)?id", user=NOBODY,
                                 group=NOBODY, extra_groups=[])


class Children(Refusals):
    def compare(self, child):
        script = "\"$0\"; echo status $?; exec \"$1\" leaf"
        command = ["/bin/sh", "-c", script, child, harness.program("lifecycle")]
        result, recording = self.record_well(command)
        self.assertEqual(result.stdout, "hello\nstatus 6\n")
        row = harness.top_rows(recording, "alloc")["leaf_site"]
        self.assertEqual((row["cum_objects"], row["cum_bytes"]), (107, 107 * 23))

    def test_a_static_child_runs_unrecorded_beside_its_recorded_parent(self):
        self.compare(harness.program("hello_static"))

    def test_a_child_of_another_libc_runs_unrecorded_beside_its_recorded_parent(self):
        self.compare(harness.program("hello_musl"))

    def test_a_child_of_32_bits_runs_unrecorded_beside_its_recorded_parent(self):
        self.compare(harness.program("hello_32"))

    def test_a_setuid_child_runs_unrecorded_beside_its_recorded_parent(self):
        harness.need_root()
        self.compare(self.setuid_copy(NOBODY))

    def test_a_child_with_a_malloc_of_its_own_runs_beside_its_recorded_parent(self):
        self.compare(harness.program("own_malloc"))


class NotPrograms(Refusals):
    def assert_ends_with(self, command, status):
        result, recording = self.record(command)
        self.assertEqual(result.status, status, result.stderr)
        self.assertIn(command[0], self.sentence(result))
        self.assertFalse(os.path.exists(recording), "leaves a recording of nothing")

    def test_a_missing_program_ends_with_127(self):
        self.assert_ends_with([self.path("missing")], 127)
        self.assert_ends_with(["heapline-no-such-program"], 127)

    def test_a_file_that_may_not_be_executed_ends_with_126(self):
        plain_file = self.path("plain")
        with open(plain_file, "w", encoding="ascii") as file:
            file.write("no program\n")
        self.assert_ends_with([plain_file], 126)

    def test_a_directory_ends_with_126(self):
        self.assert_ends_with([self.directory], 126)

    def test_an_older_recording_is_as_it_was_when_the_new_one_cannot_begin(self):
        script = self.path("script")
        with open(script, "w", encoding="ascii") as file:
            file.write("#!/heapline-no-such-program\n")
        os.chmod(script, 0o755)
        _, recording = self.record([harness.program("hello")])
        older = harness.files_of(recording)
        self.assertIn("recording.hlm", older)
        result, _ = self.record([script])
        self.assertEqual(result.status, 127, result.stderr)
        self.assertEqual(harness.files_of(recording), older)


if __name__ == "__main__":
    harness.main()
