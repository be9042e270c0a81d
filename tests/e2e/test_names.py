# SPDX-License-Identifier: BSD-2-Clause
"""Stacks of programs whose functions are hard to name, as they must be written."""

import os
import re
from collections import Counter

import harness

SOURCES = os.path.join(harness.SOURCES, "names")
# What is below main is the C library's, and named only where its debug package is installed.
RUNTIME = r"libc\.so|^_start$"

C_STACKS = """\
main;descend;descend;descend;keep 100
main;descend;descend;keep 100
main;descend;keep 100
main;inlined;keep_two;keep 2001
"""
# Flat bytes by line: where the call of malloc stands.
C_LINES = {"names.c:10": 2301}
CXX_STACKS = """\
main;(anonymous namespace)::Box<char, 100>::fill() const 100
main;(anonymous namespace)::Box<double, 10>::fill() const 80
main;main::{lambda(unsigned long)#1}::operator()(unsigned long) const 400
main;shop::Cart::operator+=(int) 300
"""
RUST_STACKS = """\
names::main;names::boxed 200
names::main;names::pantry::Jar::filled 1000
"""
TWICE_STACKS = "main;call;library_allocate 1100\n"


class Names(harness.TestCase):
    def setUp(self):
        super().setUp()
        # Copies with and without names have one build id, and the cache would name them all.
        os.environ["XDG_CACHE_HOME"] = self.path("cache")

    def compile(self, compiler, source, output, *options):
        path = self.path(output)
        built = harness.run([harness.need(compiler), *options, "-g", "-o", path,
                             os.path.join(SOURCES, source)])
        self.assertEqual(built.status, 0, built.stderr)
        return path

    def change(self, *command):
        changed = harness.run([harness.need(command[0]), *command[1:]])
        self.assertEqual(changed.status, 0, changed.stderr)

    def stacks(self, command, *options, **run_options):
        """What `folded` writes of all that the command allocated."""
        _, recording = self.record_well(command, **run_options)
        written = harness.run([harness.HEAPLINE, "folded", "--value", "alloc", *options,
                               recording])
        self.assertEqual(written.status, 0, written.stderr)
        return written.stdout

    def test_recursive_and_inlined_functions_of_C_have_frames_of_their_own(self):
        for compiler in ("gcc", "clang"):
            path = self.compile(compiler, "names.c", "names", "-O2",
                                "-fno-optimize-sibling-calls")
            with self.subTest(compiler=compiler):
                self.assertEqual(self.stacks([path], "--hide", RUNTIME), C_STACKS)

    def test_bytes_of_inlined_functions_are_at_the_line_of_the_call(self):
        path = self.compile("gcc", "names.c", "names", "-O2", "-fno-optimize-sibling-calls")
        _, recording = self.record_well([path])
        rows = harness.report("lines", recording, "--value", "alloc")["rows"]
        lines = {f"{os.path.basename(row['file'])}:{row['line']}": row["bytes"] for row in rows}
        self.assertEqual(lines, C_LINES)

    def test_templates_lambdas_and_operators_of_cxx_are_demangled(self):
        path = self.compile("g++", "names.cc", "names", "-O2", "-fno-optimize-sibling-calls")
        self.assertEqual(self.stacks([path], "--hide", RUNTIME), CXX_STACKS)

    def test_inlined_lambdas_of_cxx_are_named_apart_from_the_library_around_them(self):
        path = self.compile("g++", "invoked.cc", "invoked", "-O2", "-pthread")
        _, recording = self.record_well([path])
        rows = harness.top_rows(recording, "alloc")
        sites = {name: row["cum_bytes"] for name, row in rows.items() if "{lambda#" in name}
        self.assertEqual(sites, {"main::{lambda#1}::operator()": 1009,
                                 "main::{lambda#2}::operator()": 2003})
        self.assertFalse([name for name in rows if re.match(r"operator\(\)|_+invoke|_M_", name)])
        folded = harness.run([harness.HEAPLINE, "folded", "--value", "alloc", "--focus",
                              "lambda#1", recording]).stdout
        self.assertIn("std::__invoke_impl<", folded)

    def test_functions_of_rust_are_named_by_their_paths(self):
        path = self.compile("rustc", "names.rs", "names", "-Copt-level=2")
        # The standard library's frames differ from version to version; names of today say types, too.
        found = self.stacks([path], "--focus", "names::", "--hide", r"^(std|core|alloc|main$|_|<([^n]|n[^a]))")
        found = re.sub(r"<(names::pantry::Jar)>|(names::boxed)::<u64>", r"\1\2", found)
        self.assertEqual(sorted(found.splitlines()), RUST_STACKS.splitlines())

    def test_a_library_opened_twice_is_one_function_wherever_it_lay(self):
        library = self.compile("gcc", "library.c", "library.so", "-O2", "-shared", "-fPIC")
        twice = self.compile("gcc", "twice.c", "twice", "-O2", "-fno-optimize-sibling-calls")
        options = ["--focus", "library_allocate", "--hide", RUNTIME]
        self.assertEqual(self.stacks([twice, library], *options), TWICE_STACKS)

    def test_a_library_opened_by_a_relative_path_has_its_names(self):
        self.compile("gcc", "library.c", "library.so", "-O2", "-shared", "-fPIC")
        twice = self.compile("gcc", "twice.c", "twice", "-O2", "-fno-optimize-sibling-calls")
        options = ["--focus", "library_allocate", "--hide", RUNTIME]
        self.assertEqual(self.stacks([twice, "./library.so"], *options, cwd=self.directory),
                         TWICE_STACKS)

    def test_a_separate_debug_file_names_as_much_as_the_program_did(self):
        path = self.compile("gcc", "names.c", "names", "-O2", "-fno-optimize-sibling-calls")
        self.change("objcopy", "--only-keep-debug", path, path + ".debug")
        self.change("strip", path)
        self.change("objcopy", f"--add-gnu-debuglink={path}.debug", path)
        self.assertEqual(self.stacks([path], "--hide", RUNTIME), C_STACKS)

    def test_without_debug_information_functions_have_names_but_inlined_ones_none(self):
        path = self.compile("gcc", "names.c", "names", "-O2", "-fno-optimize-sibling-calls")
        self.change("strip", "--strip-debug", path)
        self.assertEqual(self.stacks([path], "--hide", RUNTIME), """\
main;descend 100
main;descend;descend 100
main;descend;descend;descend 100
main;inlined 2001
""")

    def test_in_a_stripped_program_calls_of_one_function_stay_together(self):
        path = self.compile("gcc", "names.c", "names", "-O2", "-fno-optimize-sibling-calls")
        self.change("strip", path)
        found = self.stacks([path], "--hide", RUNTIME)
        # Addresses are the compiler's choice; who is who shows in how often they occur.
        names = [name for name, _ in Counter(re.findall(r"names\+0x[0-9a-f]+", found)).most_common()]
        self.assertEqual(len(names), 4, found)
        letters = dict(zip(names, ("descend", "start", "main", "inlined")))
        found = re.sub(r"names\+0x[0-9a-f]+", lambda name: letters[name[0]], found)
        self.assertEqual(sorted(found.splitlines()), [
            "start;main;descend 100",
            "start;main;descend;descend 100",
            "start;main;descend;descend;descend 100",
            "start;main;inlined 2001",
        ])


if __name__ == "__main__":
    harness.main()
