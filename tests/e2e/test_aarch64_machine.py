# SPDX-License-Identifier: BSD-2-Clause
"""Debian's arm64 kernel, booted under qemu: what heapline of that machine says there, of programs whose answers are known.

scripts/check_arm64.sh runs it; HL_ARM64_ROOT is the folder with the libraries of that machine. What runs there is
aarch64_guest.sh, and test_kernels.py has what both machines share. ``--boot`` shows what the guest wrote; with
``--boot cycles_s=3000 stops=10`` it attaches 200 times, and stops programs more often.
"""

import base64
import collections
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

import churn_ledger
import harness
import pprof_file
import test_attach
import test_bpf_stacks
import test_kernels
import test_services

SUITE, LARGE_PAGES = ("bookworm", ""), ("trixie", "16k")  # releases, and flavours of their kernels
ROOT = os.environ.get("HL_ARM64_ROOT", "/")
PROGRAMS = ("known_answer", "churn", "forking", "heap_target", "heap_target_static", "leaks", "waiting_calls", "attach_cycles", "attach_target", "streaming", "stacks",
            "stacks_signed", "gate.so", "walk_trace", "recorded_stacks", "libunwind_compare.so", "coroutines", "cxx_throw", "trace_heap", "pages",
            "pod_parts", "pod_kernel", "grow_parts", "oom_ledger", "slab_blocks", "lua_services")
LOADED = [f"usr/lib/aarch64-linux-gnu/{name}" for name in ("libmicrohttpd.so.12", "libunwind.so.8", "libjemalloc.so.2")]  # when they are needed
COMPARED_MIN = 5000
STORM, STORM_BLOCKS = 20, 37  # children of forking.c, and what each allocates
LIBRARIES = ("lib/aarch64-linux-gnu", "usr/lib/aarch64-linux-gnu")
BOOT_S = 900
ROUNDS = 2000
# Each keeps blocks in its second function, called by the third; says "ready" and, after a line, "ok".
SCRIPTS = {
    "lua": f"""collectgarbage('stop') local kept = {{}}
local function keep(i)
  kept[i] = {{name = 'kept ' .. i, {{i}}}}
end
local function round()
  for i = 1, {ROUNDS} do
    keep(i)
  end
end
io.write('ready\\n') io.flush() io.read()
round()
coroutine.wrap(round)()
io.write('ok\\n') io.flush() io.read()
""",
    "php": f"""<?php
function keep(&$kept, $i) {{
  $kept[] = str_repeat('kept ', 100 + $i % 100);
}}
function round_by_round(&$kept) {{
  for ($i = 0; $i < {ROUNDS}; $i++)
    keep($kept, $i);
}}
echo "ready\\n"; fgets(STDIN);
round_by_round($kept);
echo "ok\\n"; fgets(STDIN);
""",
    "ruby": f"""$kept = []
def keep(i)
  $kept << 'kept ' * (100 + i % 100)
end
def round
  {ROUNDS}.times {{ |i| keep(i) }}
end
$stdout.sync = true
puts 'ready'; gets
round
puts 'ok'; gets
""",
    "python": f"""import sys; kept = []
def keep(i):
    kept.append(b'kept ' * (200 + i % 100))

def round():
    for i in range({ROUNDS}):
        keep(i)
print('ready', flush=True); sys.stdin.readline()
round()
print('ok', flush=True); sys.stdin.readline()
""",
}
INTERPRETERS = {name: SCRIPTS[name.rstrip(".0123456789")] for name in
                ("lua5.1", "lua5.2", "lua5.3", "lua5.4", "php8.2", "ruby3.1", "python3.11")}
KEEP_LINE = 3
# What interpreters load as they begin.
READ_BY_INTERPRETERS = [*(f"usr/lib/python3.11/encodings/{name}.py" for name in ("__init__", "aliases", "utf_8", "ascii", "latin_1")),
                        *(f"usr/lib/aarch64-linux-gnu/ruby/3.1.0/enc/{name}.so" for name in ("encdb", "trans/transdb"))]
ALL_KINDS = "kept blocks mapped register list tree ring rings inner ended arenas"  # of leaks.c


def libraries(path):
    """{path in the machine: path here} of what a program is linked with, the loader included."""
    said = subprocess.run(["readelf", "-ld", path], capture_output=True, text=True, check=True).stdout
    found = {}
    for name in re.findall(r"\(NEEDED\).*\[(\S+)\]", said):
        for folder in LIBRARIES:
            if name not in found and os.path.exists(library := os.path.join(ROOT, folder, name)):
                found[name] = library
    return {f"usr/lib/aarch64-linux-gnu/{name}": library for name, library in found.items()} | \
        {loader.lstrip("/"): os.path.join(ROOT, loader.lstrip("/")) for loader in re.findall(r"interpreter: (\S+)\]", said)}


def guest_files(folder, directory):
    """Files of the machine, by their paths there. ``directory``: for those that are written."""
    for name, script in INTERPRETERS.items():
        with open(f"{directory}/{name}.script", "w", encoding="ascii") as file:
            file.write(script)
    files = {"bin/busybox": f"{folder}/busybox", "hl/heapline": harness.HEAPLINE,
             "hl/heapline-verbs.so": os.path.join(harness.BUILD, "heapline-verbs.so"),
             "hl/src/recorder/libheapline.so.0": os.path.join(harness.BUILD, "src/recorder/libheapline.so.0"),
             "init": os.path.join(harness.SOURCES, "aarch64_guest.sh"),
             "hl/litmus": os.path.join(harness.BUILD, "tests/model/litmus"),
             **{path: os.path.join(ROOT, path) for path in (*LOADED, *READ_BY_INTERPRETERS)},
             **{f"bin/{name}": os.path.join(ROOT, "usr/bin", name) for name in INTERPRETERS},
             **{f"hl/{name}.script": f"{directory}/{name}.script" for name in INTERPRETERS},
             **{f"hl/{name}": os.path.join(harness.SOURCES, name) for name in ("guest.sh", "guest_traces.sh", "lua_services.lua")},
             **{f"hl/{name}": path for name in PROGRAMS if os.path.exists(path := os.path.join(harness.PROGRAMS, name))}}
    looked_at = set()
    while left := set(files) - looked_at:
        for path in left - {"bin/busybox"}:
            with open(files[path], "rb") as file:
                if file.read(4) == b"\x7fELF":
                    files |= libraries(files[path])
        looked_at |= left
    return files


def boot(*variables, kernel=SUITE):
    """What the guest wrote, with those variables; skips the test where it cannot be booted."""
    qemu = harness.need("qemu-system-aarch64")
    for tool in "apt-get", "readelf":
        harness.need(tool)
    release, flavour = kernel
    folder = test_kernels.download(release, "arm64", flavour)
    with tempfile.TemporaryDirectory(prefix="heapline-arm64-") as directory:
        with open(f"{directory}/initrd", "wb") as output:
            test_kernels.archive(guest_files(folder, directory), output)
        command = [qemu, "-machine", "virt", "-accel", "tcg,thread=multi", "-cpu", "max,pauth-impdef=on", "-m", "1024", "-smp", "2", "-display", "none", "-no-reboot",
                   "-nodefaults", "-serial", f"file:{directory}/said", "-kernel", f"{folder}/vmlinuz", "-initrd", f"{directory}/initrd",
                   "-append", " ".join(("console=ttyAMA0 loglevel=1 panic=-1", *variables))]
        try:
            subprocess.run(command, timeout=BOOT_S * (5 if variables else 1), check=False, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            pass
        with open(f"{directory}/said", encoding="utf-8", errors="replace") as file:
            said = file.read().replace("\r", "")
    if "@@@end\n" not in said:
        raise AssertionError(f"the machine did not end in {BOOT_S} s: {said[-2500:]}")
    return said


class Programs(test_kernels.ShortTraces):
    """What a machine says in its short form, too."""

    kernel, variables, kills_min = SUITE, (), 12
    unattributed_max = 1  # [uprobes]: where the kernel steps over instructions that a probe replaced

    @classmethod
    def setUpClass(cls):
        if harness.machine() != harness.AARCH64:
            raise unittest.SkipTest("heapline is of another machine; scripts/check_arm64.sh has one of aarch64")
        cls.said = test_kernels.parse(boot(*cls.variables, kernel=cls.kernel))
        cls.release = tuple(map(int, cls.said["release"][1].split(".")[:2]))

    def test_a_recorded_program_counts_exactly(self):
        status, output, errors = self.said["record"]
        self.assertEqual(status, 0, errors)
        compared = 0
        for answer in json.loads(output):
            rows = {row["name"]: row for row in self.report("top")["rows"]}
            for unit in "bytes", "objects":
                if answer.get(f"alloc_{unit}", -1) >= 0:
                    self.assertEqual(rows.get(answer["function"], {}).get(f"cum_{unit}", 0), answer[f"alloc_{unit}"], answer)
                    compared += 1
        self.assertGreater(compared, 10)

    def test_a_program_that_is_killed_has_its_events(self):
        kills = [name for name in self.said if name.startswith("killed ")]
        self.assertGreaterEqual(len(kills), self.kills_min)
        for name in kills:
            status, ledger, errors = self.said[name]
            self.assertEqual((status, errors), (128 + signal.SIGKILL, ""), name)
            ledger = base64.b64decode(ledger)
            for value in "alloc", "inuse":
                rows = {row["name"]: row for row in self.report(f"{value} of {name}")["rows"]}
                for thread, offset in enumerate(churn_ledger.PROGRESS_OFFSETS):
                    begun, done = struct.unpack_from("<QQ", ledger, offset)
                    before, after = churn_ledger.counts_after(done), churn_ledger.counts_after(begun)
                    for unit in "bytes", "objects":
                        key = f"{value}_{unit}"
                        self.assertIn(rows.get(f"churn_{thread}", {}).get(f"cum_{unit}", 0), (before[key], after[key]), (name, key, begun, done))

    def test_children_of_a_recorded_program_count_exactly(self):
        status, output, errors = self.said["family"]
        self.assertEqual((status, output), (0, "ready\n0\n"), errors)
        recorded = len(self.report("info of family")["rows"]) - 1
        if recorded != STORM:  # on a busy machine a child may be answered too late
            self.assertIn("too busy to answer it", errors)
        rows = {row["name"]: row for row in self.report("top of family")["rows"]}
        self.assertEqual(rows["allocate"]["flat_objects"], recorded * STORM_BLOCKS)

    def test_pages_are_as_large_as_expected(self):
        self.assertEqual(int(self.said["pages"][1]) * 1024, self.page_bytes)

    def test_a_process_that_is_entered_and_left_again_and_again(self):
        for name in "cycles", "cycles of all":
            status, output, errors = self.said[name]
            self.assertEqual((status, errors), (0, ""), output)
            told = json.loads(output)
            self.assertEqual((told["failures"], told["status"]), (0, 0))
            self.assertGreater(told["cycles"], 0)

    def test_attach_counts_as_the_program_does(self):
        self.assertEqual([self.said[name][0] for name in ("attach", "attached program")], [0, 7], self.said["attach"])
        both = base64.b64decode(self.said["ledgers"][1])
        with tempfile.TemporaryDirectory(prefix="heapline-arm64-") as folder:
            for name, part in ("before", both[:len(both) // 2]), ("after", both[len(both) // 2:]):
                with open(f"{folder}/{name}", "wb") as file:
                    file.write(part)
            before, after = (test_attach.Ledger(f"{folder}/{name}") for name in ("before", "after"))
        total = self.report("info of attach")["total"]
        self.assertGreater(total["alloc_objects"], 1000)
        for found, counted in (total["alloc_objects"], "allocs"), (total["alloc_objects"] - total["inuse_objects"], "frees"):
            self.assertLessEqual(abs(found - getattr(after, counted) + getattr(before, counted)), 3 * test_attach.EDGES, counted)


class Aarch64Machine(Programs, test_kernels.Traces, unittest.TestCase):
    def need(self, program):
        if not os.path.exists(os.path.join(harness.PROGRAMS, program)):
            self.skipTest(f"program '{program}' was not built on this machine")

    def test_stacks_in_the_kernel_equal_the_recorders(self):
        compared = 0
        for name, (status, output, errors) in self.said.items():
            scenario = name.removeprefix("walked ")
            if scenario == name:
                continue
            with self.subTest(scenario):
                self.assertEqual(status, 0, errors)
                lines = (line for line in output.splitlines(True) if line != "ready\n" and not line.startswith("code"))
                walked, losses = test_bpf_stacks.parse("".join(lines))
                before, after = (test_bpf_stacks.parse(self.said[f"recorded {at} {scenario}"][1])[0] for at in ("before", "after"))
                self.assertEqual(walked, after - before)
                self.assertEqual(losses, {})
                self.assertGreater(sum(walked.values()), 100)
                compared += 1
        self.assertGreater(compared, 7)

    def test_stacks_equal_libunwinds(self):
        total = collections.Counter()
        for name, (_, output, _) in self.said.items():
            if name.startswith("compared "):
                self.assertEqual(self.said[name.replace("compared", "ran", 1)][0], 0)
                total.update({key: int(count) for key, count in re.findall(r"(\w+) (\d+)", output.partition("summary: ")[2])})
        self.assertEqual((total["differences"], total["unreached"]), (0, 0), self.said)
        self.assertGreater(total["comparisons"], COMPARED_MIN)

    def test_two_processors_see_no_forbidden_order(self):
        status, output, errors = self.said["litmus"]
        self.assertEqual(status, 0, output + errors)
        self.assertEqual(len(re.findall(r": 100000 rounds, 0 forbidden$", output, re.M)), 5)

    def test_heaps_equal_mallinfo2(self):
        for program in "heap_target", "heap_target_static":
            for option in "", " --stop", " --core":
                with self.subTest(program=program, option=option):
                    self.check_heap(f"heap{option} of {program}", f"mallinfo of {program}")
                    self.assertEqual(self.report(f"heap{option} of {program}")["total"]["unscanned_bytes"], 0)

    def test_jemallocs_heap_equals_its_own_figures(self):
        total, said = self.report("heap of jemalloc")["total"], self.said["figures of jemalloc"][1]
        figures = {name: int(number) for name, number in re.findall(r"^(?:figure )?(\S+) (\d+)", said, re.M)}
        self.assertEqual(total["unscanned_bytes"], 0)
        self.assertEqual(total["inuse_bytes"] + total["tcache_bytes"] + figures["stats.arenas.4096.internal"], figures["stats.allocated"])
        self.assertEqual(total["system_bytes"], figures["stats.mapped"] + figures["stats.retained"])
        self.assertIn(total["inuse_blocks"] - figures["live"], range(3, 3 + 8))  # each thread has one, and libraries a few
        self.assertEqual(len(self.report("carriers of jemalloc")["rows"]), total["carriers"])
        self.assertEqual(self.report("leaks of jemalloc")["total"]["lost_blocks"], 0)

    def test_carriers_and_pins_are_listed(self):
        for program in "heap_target", "heap_target_static":
            heap = self.report(f"heap of {program}")["total"]
            self.assertEqual(len(self.report(f"carriers of {program}")["rows"]), heap["carriers"])
            self.assertEqual(self.said[f"pins of {program}"][0], 0)

    def test_each_kind_of_leak_is_found_to_the_byte(self):
        self.need("leaks")
        compared = 0
        for name in self.said:
            kinds = name.removeprefix("planted ")
            for leaks in ("leaks", "leaks --stop") if kinds != name else ():
                with self.subTest(leaks=leaks, kinds=kinds):
                    self.check_leaks(f"{leaks} {kinds}", name)
                    notes = self.report(f"{leaks} {kinds}")["notes"]
                    # The machine is emulated.
                    self.assertEqual([note for note in notes if not re.search("goes on after|more than a second", note)], [])
                    compared += 1
        self.assertGreater(compared, 20)

    def test_a_core_file_has_the_leaks_of_the_process(self):
        self.need("leaks")
        self.check_leaks("leaks --core", f"planted {ALL_KINDS}")

    def test_no_system_call_is_interrupted(self):
        for seccomp in "", "fail", "kill", "kill brief":
            with self.subTest(restart_syscall=seccomp):
                status, output, errors = self.said[f"waits {seccomp}"]
                self.assertEqual((status, output), (0, "ready\ncalls 0\n"), errors)

    def kept(self, name):
        """{frames of the script, outermost first, as 'function:line': [blocks, bytes]} of what its functions have allocated"""
        status, output, errors = self.said[f"lines of {name}"]
        self.assertEqual(status, 0, errors)
        with tempfile.NamedTemporaryFile(prefix="heapline-arm64-") as written:
            written.write(base64.b64decode(output))
            written.flush()
            file = pprof_file.PprofFile(written.name)
        columns = [file.types.index(f"alloc_{unit}") for unit in ("objects", "space")]
        kept = collections.defaultdict(lambda: [0, 0])
        for frames, values in file.places:
            stack = tuple(f"{function}:{line}" for function, path, line in reversed(frames) if path.endswith(".script"))
            if len(stack) > 2:
                kept[stack] = [a + values[column] for a, column in zip(kept[stack], columns)]
        return dict(kept)

    def test_scripts_that_are_entered_have_the_lines_that_they_have_when_recorded(self):
        for name in INTERPRETERS:
            with self.subTest(name):
                for step in "recorded", "joined", "left":
                    self.assertEqual(self.said[f"{step} {name}"][0], 0, self.said[f"{step} {name}"])
                recorded, joined = (self.kept(f"{step} {name}") for step in ("recorded", "joined"))
                self.assertEqual(joined, recorded)
                blocks = sum(blocks for stack, (blocks, _) in joined.items() if stack[-1].endswith(f":{KEEP_LINE}"))
                self.assertGreaterEqual(blocks, ROUNDS)

    def test_services_that_are_entered_have_the_blocks_that_their_host_counts(self):
        self.need("lua_services")
        for step in "joined", "left":
            self.assertEqual(self.said[f"{step} services"][0], 0, self.said[f"{step} services"])
        answers = iter(self.said["left services"][1].splitlines())
        self.assertEqual(next(answers), "ready")
        ledgers = [test_services.Ledger(answers) for _ in range(4)]  # two are of "round", and empty
        rows = {row["name"]: [row["flat_bytes"], row["flat_objects"]] for row in self.report("blocks of services")["rows"]}
        for handle, name in enumerate(("echo", "hoarder"), 1):
            self.assertEqual(rows.get(f"{name} :{handle:08x}"), ledgers[-1].services[name])

    def test_attach_makes_no_calls_in_streaming_mode(self):
        if self.said["streamed "][0] == 2:
            self.skipTest("this machine has no SME")
        self.assertEqual([self.said[f"streamed {beside}"][0] for beside in ("", "beside")], [0, 0])
        status, _, errors = self.said["streaming "]
        self.assertEqual(status, 1)
        self.assertIn("SME's streaming mode; try again", errors)
        self.assertEqual(self.said["streaming beside"][0], 0, self.said["streaming beside"])

    def test_holders_have_names(self):
        self.need("leaks")
        for name in "holders", "holders --core":
            rows = {(row["kind"], row["name"]) for row in self.report(name)["rows"]}
            self.assertLessEqual({("variable", "kept"), ("thread-local", "of_thread")}, rows)


class LargePages(Programs, unittest.TestCase):
    kernel, variables = LARGE_PAGES, ("short=1", "kills=4", "cycles_s=10")
    page_bytes, kills_min = 16384, 4


if __name__ == "__main__":
    if sys.argv[1:2] == ["--boot"]:
        print(boot(*sys.argv[2:]))
    else:
        harness.main()
