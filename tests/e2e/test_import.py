# SPDX-License-Identifier: BSD-2-Clause
"""Files of other tools, compared with what those tools themselves say of them."""

import json
import os
import random
import re
import struct
import subprocess
import unittest

import harness

LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")

# Of "flat flat% sum% cum cum% name".
PPROF_LINE = re.compile(r"\s*(\d+)\s+[\d.]+%\s+[\d.]+%\s+(\d+)\s+[\d.]+%\s+(.*)")


def need_library(name):
    """Path of a library to preload; skips the test when there is none."""
    for folder in LIBRARIES:
        if os.path.exists(os.path.join(folder, name)):
            return os.path.join(folder, name)
    raise unittest.SkipTest(f"'{name}' is not installed")


def run_well(command, **options):
    result = harness.run(command, **options)
    if result.status != 0:
        raise AssertionError(f"{command} fails: {result.stderr}")
    return result.stdout


def cum_by_pprof(pprof, value, program, profile):
    """{function: cum} as google-pprof or jeprof has it; inlined functions are told by a word."""
    text = run_well([pprof, "--text", "--show_bytes", f"--{value}", program, profile])
    rows = {}
    for line in text.splitlines():
        match = PPROF_LINE.match(line)
        if match:
            rows[match[3].removesuffix(" (inline)")] = int(match[2])
    return rows


def functions_of_program(rows):
    """Those of the test programs that allocate."""
    return {name for name in rows if name.startswith(("site_", "cxx_", "size_"))}


def by_plain_name(rows):
    """Rows by names without parameters, which jeprof leaves out."""
    return {name.partition("(")[0]: row for name, row in rows.items()}


class HeapFiles(harness.TestCase):
    def only_file(self, suffix):
        files = [name for name in os.listdir(self.directory) if name.endswith(suffix)]
        self.assertEqual(len(files), 1, files)
        return self.path(files[0])

    def gperftools_file(self, name):
        """A heap file of a run, and what the program printed."""
        program = harness.program(name)
        environment = {"LD_PRELOAD": need_library("libtcmalloc.so.4"),
                       "HEAPPROFILE": self.path("run")}
        output = run_well([program], env=environment)
        return program, self.only_file(".heap"), output

    def jemalloc_file(self, name, lg_sample):
        program = harness.program(name)
        options = f"prof:true,prof_final:true,prof_accum:true,lg_prof_sample:{lg_sample}," \
            f"prof_prefix:{self.path('run')}"
        environment = {"LD_PRELOAD": need_library("libjemalloc.so.2"), "MALLOC_CONF": options}
        output = run_well([program], env=environment)
        if not any(name.endswith(".heap") for name in os.listdir(self.directory)):
            raise unittest.SkipTest("this jemalloc was built without profiling")
        return program, self.only_file(".heap"), output

    def compare_with_pprof(self, pprof, program, profile, values, error=0):
        """Compares cum in bytes; `error`: how many stacks are rounded, each by less than 1."""
        for value in values:
            expected = cum_by_pprof(pprof, f"{value}_space", program, profile)
            rows = by_plain_name(harness.top_rows(profile, value))
            functions = functions_of_program(expected)
            self.assertGreater(len(functions), 3)
            for function in functions:
                with self.subTest(function=function, value=value):
                    self.assertIn(function, rows)
                    self.assertAlmostEqual(rows[function]["cum_bytes"], expected[function],
                                           delta=error)

    def test_figures_of_gperftools_equal_google_pprofs(self):
        pprof = harness.need("google-pprof")
        program, profile, _ = self.gperftools_file("known_answer")
        self.compare_with_pprof(pprof, program, profile, ("inuse", "alloc"))

    def test_figures_of_gperftools_equal_the_programs_own(self):
        _, profile, output = self.gperftools_file("known_answer")
        rows = {value: harness.top_rows(profile, value) for value in ("inuse", "alloc")}
        for answer in json.loads(output):
            # tcmalloc counts what it rounds these sizes up to, and asprintf's way there varies.
            rounded = re.search("memalign|aligned_alloc|valloc|asprintf|realloc_zero",
                                answer["function"])
            for key in ("inuse_objects", "alloc_objects", "inuse_bytes", "alloc_bytes"):
                value, unit = key.split("_")
                if answer[key] < 0 or (rounded and (unit == "bytes" or value == "inuse")):
                    continue
                row = rows[value].get(answer["function"], {"cum_" + unit: 0})
                with self.subTest(function=answer["function"], key=key):
                    self.assertEqual(row["cum_" + unit], answer[key])

    def test_figures_of_jemalloc_equal_jeprofs(self):
        pprof = harness.need("jeprof")
        program, profile, _ = self.jemalloc_file("known_answer_cxx", 0)
        self.compare_with_pprof(pprof, program, profile, ("inuse", "alloc"), error=2)

    def test_blocks_of_jemalloc_equal_the_programs_own(self):
        _, profile, output = self.jemalloc_file("known_answer_cxx", 0)
        for value in ("inuse", "alloc"):
            rows = harness.top_rows(profile, value)
            for answer in json.loads(output):
                expected = answer.get(f"{value}_objects", -1)  # -1: the program does not know
                row = rows.get(answer["function"], {"cum_objects": 0})
                with self.subTest(function=answer["function"], value=value):
                    if expected >= 0:
                        self.assertEqual(row["cum_objects"], expected)

    def test_estimates_from_jemallocs_samples_equal_jeprofs(self):
        pprof = harness.need("jeprof")
        program, profile, _ = self.jemalloc_file("sizes", 14)
        self.compare_with_pprof(pprof, program, profile, ("inuse", "alloc"), error=2)

    def assert_without_allocator(self, program, profile):
        rows = harness.report("top", profile, "--value", "alloc", "--rows", "0")["rows"]
        modules = {os.path.basename(row["module"]) for row in rows}
        self.assertIn(os.path.basename(program), modules)
        self.assertFalse([name for name in modules if "malloc" in name])
        self.assertFalse([row for row in rows if row["name"] in ("malloc", "calloc")])

    def test_functions_of_tcmalloc_are_left_out(self):
        program, profile, _ = self.gperftools_file("known_answer")
        self.assert_without_allocator(program, profile)

    def test_functions_of_jemalloc_are_left_out(self):
        program, profile, _ = self.jemalloc_file("known_answer_cxx", 0)
        self.assert_without_allocator(program, profile)


class Mprof(harness.TestCase):
    """Against the rules of skynet-mprof's own -top, written down once more."""

    @staticmethod
    def dump(functions, samples):
        body = struct.pack(">I", len(functions))
        for address, name in functions.items():
            body += struct.pack(">B", len(name)) + name.encode() + struct.pack(">Q", address)
        for counters, stack in samples:
            body += struct.pack(f">5I{len(stack)}Q", *counters, len(stack), *stack)
        return struct.pack(">I", len(body)) + body

    @staticmethod
    def make(generator):
        functions = {0x7F0000000000 + 16 * i: f"./skynet(f{i}+0x{i:x}) [0x{0x7f0000000000 + 16 * i:x}]"
                     for i in range(40)}
        addresses = list(functions)
        samples = []
        for _ in range(200):
            size, allocated = generator.randint(1, 5000), generator.randint(1, 9)
            freed = generator.randint(0, allocated)
            # Leaves come from the one half, so that the other is never a leaf.
            stack = [generator.choice(addresses[:20])] + generator.choices(
                addresses, k=generator.randint(0, 12))
            counters = (allocated, allocated * size, freed, freed * size)
            samples.append((counters, stack))
        return functions, samples

    @staticmethod
    def figures(samples, value):
        """{address: [flat bytes, flat objects, cum bytes, cum objects]}, and who is a leaf."""
        sums, leaves = {}, set()
        for (alloc_objects, alloc_bytes, free_objects, free_bytes), stack in samples:
            count = alloc_objects - (free_objects if value == "inuse" else 0)
            size = alloc_bytes - (free_bytes if value == "inuse" else 0)
            if not size:
                continue
            leaves.add(stack[0])
            for address in set(stack):
                figures = sums.setdefault(address, [0, 0, 0, 0])
                figures[2] += size
                figures[3] += count
            sums[stack[0]][0] += size
            sums[stack[0]][1] += count
        return sums, leaves

    def ranking(self, samples, value, by_flat):
        sums, leaves = self.figures(samples, value)
        if by_flat:
            weights = {address: (address in leaves, *(figures[:2] if address in leaves
                                                      else figures[2:]))
                       for address, figures in sums.items()}
        else:
            weights = {address: tuple(figures[2:]) for address, figures in sums.items()}
        return [(sums[address], weight) for address, weight in
                sorted(weights.items(), key=lambda item: item[1], reverse=True)]

    def test_addresses_rank_as_mprofs_own_top_ranks_them(self):
        generator = random.Random(11)
        for number in range(10):
            functions, samples = self.make(generator)
            path = self.path(f"{number}.pro")
            with open(path, "wb") as file:
                file.write(self.dump(functions, samples))
            for value in ("inuse", "alloc"):
                for sort in ("flat", "cum"):
                    rows = harness.report("top", path, "--by", "address", "--value", value,
                                          "--sort", sort)["rows"]
                    found = [[row[key] for key in harness.FIGURES] for row in rows]
                    expected = [figures for figures, _ in
                                self.ranking(samples, value, sort == "flat")]
                    with self.subTest(file=number, value=value, sort=sort):
                        self.assertEqual(found, expected)


    def test_files_that_lie_there_give_function_and_line(self):
        """As skynet loads its libraries: by relative paths. An offset in a file that is gone stays what it is."""
        compiler = harness.need("gcc")
        source = "#include <stdlib.h>\n" + "void *packed(size_t size)\n{\n\treturn realloc(malloc(size), size);\n}\n"
        with open(self.path("packed.c"), "w", encoding="ascii") as file:
            file.write(source)
        subprocess.run([compiler, "-g", "-O1", "-fPIC", "-shared", "-o", "packed.so", "packed.c"],
                       cwd=self.directory, check=True)
        offset = harness.symbol_address(self.path("packed.so"), "packed")
        base = 0x7F1234560000
        # Somewhere in its one line.
        functions = {base + offset + 8: f"./packed.so(+0x{offset + 8:x}) [0x{base + offset + 8:x}]",
                     0x7F7777770000: "./gone.so(+0xb55d) [0x7f7777770000]"}
        with open(self.path("x.pro"), "wb") as file:
            file.write(self.dump(functions, [((3, 300, 1, 100), [base + offset + 8]),
                                             ((5, 70, 0, 0), [0x7F7777770000])]))

        def rows(directory):
            said = harness.run([harness.HEAPLINE, "top", "--json", self.path("x.pro")], cwd=directory)
            return {row["name"]: (os.path.basename(row["file"]), row["line"])
                    for row in json.loads(said.stdout)["rows"]}
        self.assertEqual(rows(self.directory)["packed"], ("packed.c", 4))
        self.assertIn("gone.so+0xb55d", rows(self.directory))
        elsewhere = rows("/")
        self.assertEqual(set(elsewhere), {"gone.so+0xb55d", f"packed.so+0x{offset + 8:x}"})


class Folded(harness.TestCase):
    def test_a_recording_survives_being_folded_and_imported(self):
        _, recording = self.record_well([harness.program("known_answer")])
        for value, unit in (("inuse", "bytes"), ("alloc", "objects"), ("peak", "bytes")):
            text = run_well([harness.HEAPLINE, "folded", "--value", value, "--unit", unit,
                             recording])
            with open(self.path("stacks"), "w", encoding="utf-8") as file:
                file.write(text)
            packed = self.path("stacks.hlpack")
            run_well([harness.HEAPLINE, "import", "-f", "--value", value, "--unit", unit,
                      "-o", packed, self.path("stacks")])
            with self.subTest(value=value, unit=unit):
                self.assertGreater(len(text.splitlines()), 10)
                self.assertEqual(run_well([harness.HEAPLINE, "folded", packed]), text)
                self.assertEqual(harness.report("top", packed)["total"][f"{value}_{unit}"],
                                 harness.report("top", recording)["total"][f"{value}_{unit}"])


if __name__ == "__main__":
    harness.main()
