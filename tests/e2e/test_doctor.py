#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What `doctor` says of a target is so: each command that it names is run."""

import ctypes
import json
import os
import shlex
import shutil
import subprocess
import sys

import harness
from harness import HEAPLINE, Waiting, program, run

NOBODY = 65534
AS_USER = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
PTRACE_SEIZE = 0x4206

PYTHON = "import sys; kept = [str(i) * 9 for i in range(9999)]; print('ready', flush=True); sys.stdin.read()"
FILTERED = """import ctypes, struct, sys
libc, rule = ctypes.CDLL(None), ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7fff0000))  # allow all
libc.prctl(38, 1, 0, 0, 0)
libc.prctl(22, 2, ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(rule))), 0, 0)
print("ready", flush=True)
sys.stdin.read()"""
HIDDEN = "import ctypes, sys; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); print('ready', flush=True); sys.stdin.read()"


class Doctor(harness.TestCase):
    """What the tests below have in common."""

    def setUp(self):
        super().setUp()
        os.chmod(self.directory, 0o777)

    def ask(self, *options, status=0, **run_options):
        """The report, and its ways by name."""
        result = run([HEAPLINE, "doctor", "--json", *options], cwd=self.directory, **run_options)
        self.assertIn(result.status, (0, 1) if status is None else (status,),
                      result.stdout + result.stderr)
        said = json.loads(result.stdout)
        self.assertEqual(result.status == 0, any(row["works"] != "no" for row in said["rows"]))
        return said, {row["way"]: row for row in said["rows"]}

    def ask_process(self, pid, **options):
        return self.ask("-p", str(pid), **options)

    def fact(self, said, subject):
        return next((fact["text"] for fact in said["facts"] if fact["subject"] == subject), None)

    def do(self, command, **run_options):
        """Runs a command as its reader would, for a shorter time."""
        for verb in "stacks", "pgfault", "attach":
            command = command.replace(f"heapline {verb}", f"{HEAPLINE} {verb}")
        if command.endswith(" 60"):
            command = command.removesuffix("60") + "0.2"
        elif f"{HEAPLINE} attach" in command:  # until Ctrl-C
            command += " -d 0.2"
        if f"{HEAPLINE} attach" in command:
            command += " -f"
        if f"{HEAPLINE} stacks" in command:  # no measurement before
            command += " --max-overhead 100000"
        path = f"{os.path.dirname(HEAPLINE)}:{os.environ['PATH']}"
        result = run(["/bin/sh", "-c", command], env={"PATH": path}, cwd=self.directory,
                     **run_options)
        self.assertEqual(result.status, 0, f"{command}: {result.stdout}{result.stderr}")
        return result

    def do_all(self, rows, **run_options):
        """All advice but that for root."""
        for row in rows.values():
            if row["command"] and not row["command"].startswith("sudo "):
                with self.subTest(way=row["way"]):
                    self.do(row["command"], **run_options)

    def works(self, rows):
        return {name: row["works"] for name, row in rows.items() if name != "heap --core"}


class Processes(Doctor):
    """As root, who may do all."""

    def setUp(self):
        super().setUp()
        harness.need_root()
        _, rows = self.ask()
        if rows["stacks"]["works"] == "no":
            self.skipTest(rows["stacks"]["reason"])

    def test_python_can_be_looked_at_from_outside(self):
        with Waiting([sys.executable, "-c", PYTHON]) as process:
            with open(f"/proc/{process.pid}/maps", encoding="utf-8") as maps:
                before = maps.read()
                said, rows = self.ask_process(process.pid)
                maps.seek(0)
                self.assertEqual(maps.read(), before)
            self.assertEqual(self.works(rows), {
                "record": "no", "attach": "yes", "ctl": "no", "stacks": "yes", "pgfault": "yes",
                "heap": "yes", "heap --stop": "yes", "allocations": "partly"})
            self.assertIn("glibc", self.fact(said, "allocator"))
            self.assertRegex(self.fact(said, "unwinding"), r"rules for \d+\.\d%")
            self.assertIn("runs already", rows["record"]["reason"])
            self.assertIn("heapline record -- ", rows["record"]["command"])
            self.do_all(rows)

    def test_a_static_program_can_be_traced_and_read(self):
        with Waiting([program("waits_static")]) as process:
            _, rows = self.ask_process(process.pid)
            self.assertEqual(rows["stacks"]["works"], "yes")
            self.assertEqual(rows["heap"]["works"], "yes")
            self.assertIn("heapline record -- ", rows["record"]["command"])
            self.assertNotIn("static", rows["record"]["reason"])
            self.do_all(rows)

    def test_of_a_stripped_static_program_only_pages_can_be_traced(self):
        with Waiting([program("waits_static_stripped")]) as process:
            _, rows = self.ask_process(process.pid)
            self.assertEqual((rows["stacks"]["works"], rows["pgfault"]["works"]), ("no", "yes"))
            self.assertIn("heapline pgfault -p", rows["stacks"]["command"])
            self.do_all(rows)

    def test_an_allocator_built_in_can_be_traced_and_read(self):
        with Waiting([program("waits_jemalloc")]) as process:
            _, rows = self.ask_process(process.pid)
            self.assertEqual((rows["heap"]["works"], rows["stacks"]["works"]), ("yes", "yes"))
            self.do_all(rows)

    def test_musl_has_few_rules_for_unwinding(self):
        with Waiting([program("waits_musl")]) as process:
            said, rows = self.ask_process(process.pid)
            self.assertEqual((rows["stacks"]["works"], rows["heap"]["works"]), ("partly", "yes"))
            self.assertIn("dynamically linked", self.fact(said, "program"))
            self.do_all(rows)

    def test_of_a_program_of_32_bits_only_pages_can_be_traced(self):
        with Waiting([program("waits_32")]) as process:
            said, rows = self.ask_process(process.pid)
            self.assertEqual({name for name, row in rows.items() if row["works"] != "no"},
                             {"pgfault"})
            self.assertIn("32 bits", self.fact(said, "program"))
            self.do_all(rows)

    def test_a_process_with_a_debugger_cannot_be_stopped(self):
        with Waiting([program("waits")]) as process:
            libc = ctypes.CDLL(None, use_errno=True)
            self.assertEqual(libc.ptrace(PTRACE_SEIZE, process.pid, None, None), 0)
            said, rows = self.ask_process(process.pid)
            self.assertEqual((rows["heap"]["works"], rows["heap --stop"]["works"]), ("yes", "no"))
            self.assertIn(f"process {os.getpid()} traces it", self.fact(said, "debugger"))
            self.assertNotIn("heap --core", rows)
            self.do(rows["heap"]["command"])

    def test_what_a_filter_permits_shows_as_the_process_is_joined(self):
        with Waiting([harness.need("/usr/bin/python3"), "-c", FILTERED]) as process:
            said, rows = self.ask_process(process.pid)
            self.assertEqual(rows["attach"]["works"], "partly")
            self.assertIn("a filter of system calls", self.fact(said, "seccomp"))

    def test_a_recorded_process_is_asked_through_its_recorder(self):
        recording = self.path("a recording.hl")
        with Waiting(harness.record_command(recording, [program("waits")])) as collector:
            [pid] = harness.children_of(collector.pid)
            _, rows = self.ask_process(pid)
            for way in "record", "ctl", "stacks", "pgfault", "allocations", "heap":
                self.assertEqual(rows[way]["works"], "yes", way)
            self.assertIn(recording, rows["record"]["reason"])
            _, its = self.ask_process(collector.pid)
            self.assertEqual({way for way, row in its.items() if row["works"] == "no"},
                             {"record", "allocations"})
            self.assertIn("records others", its["record"]["reason"])
            self.do(its["stacks"]["command"])
            harness.wait_until(lambda: run([HEAPLINE, "info", recording]).status == 0, "a save")
            self.do_all(rows)

    def test_a_recorder_that_is_closed_counts_nothing_until_it_is_switched_on(self):
        command = harness.record_command(self.path("c.hl"), [program("waits")], mode="closed")
        with Waiting(command) as collector:
            [pid] = harness.children_of(collector.pid)
            _, rows = self.ask_process(pid)
            self.assertEqual((rows["stacks"]["works"], rows["allocations"]["works"]), ("no", "no"))
            self.do(rows["stacks"]["command"])
            _, rows = self.ask_process(pid)
            self.assertEqual((rows["stacks"]["works"], rows["allocations"]["works"]),
                             ("yes", "yes"))

    def test_a_process_with_tags_knows_its_owners(self):
        with Waiting([HEAPLINE, "record", "--tags", "--", program("waits")]) as process:
            _, rows = self.ask_process(process.pid)
            self.assertEqual(rows["allocations"]["works"], "yes")
            self.assertIn("heapline allocations -p", rows["ctl"]["command"])

    def test_an_allocator_that_was_preloaded_is_preloaded_again(self):
        library = "libjemalloc.so.2"
        if not os.path.exists(f"/usr/lib/x86_64-linux-gnu/{library}"):
            self.skipTest(f"{library} is not installed")
        with Waiting([program("waits")], env={"LD_PRELOAD": library}) as process:
            _, rows = self.ask_process(process.pid)
            self.assertEqual((rows["heap"]["works"], rows["carriers --ask"]["works"]),
                             ("yes", "no"))
            self.assertIn(f"LD_PRELOAD={library} heapline record", rows["record"]["command"])
        left = os.path.join(harness.BUILD, "src/recorder/libheapline.so")  # its collector is gone
        left += f":{library}:libm.so.6"
        with Waiting([program("waits")], env={"LD_PRELOAD": left}) as process:
            _, rows = self.ask_process(process.pid)
            self.assertIn(f"LD_PRELOAD={library}:libm.so.6 heapline", rows["record"]["command"])
        command = harness.record_command(self.path("j.hl"), [program("waits")])
        with Waiting(command, env={"LD_PRELOAD": library}) as collector:
            [pid] = harness.children_of(collector.pid)
            _, rows = self.ask_process(pid)
            self.assertEqual(rows["carriers --ask"]["works"], "yes")
            self.do(rows["carriers --ask"]["command"])

    def test_the_name_of_a_node_is_one_word_of_a_shell(self):
        node = self.path("beam.smp")
        shutil.copy(program("waits"), node)
        with Waiting([node, "-name", "a'; touch b@host"]) as process:
            _, rows = self.ask_process(process.pid)
            self.assertEqual(shlex.split(rows["beam"]["command"]),
                             ["heapline", "beam", "--node", "a'; touch b@host", "carriers"])

    def test_a_thread_of_the_kernel_is_refused(self):
        with open("/proc/2/stat", encoding="ascii") as stat:
            if "kthreadd" not in stat.read():
                self.skipTest("process 2 is not the kernel's")
        self.assert_refused(run([HEAPLINE, "doctor", "-p", "2"]), "has no memory")

    def test_a_process_that_has_ended_is_refused(self):
        with subprocess.Popen(["true"]) as process:
            process.wait()
        self.assert_refused(run([HEAPLINE, "doctor", "-p", str(process.pid)]), str(process.pid))


class Users(Doctor):
    """As an ordinary user: as nobody, where root runs the tests."""

    def setUp(self):
        super().setUp()
        if os.geteuid() == 0:
            harness.need_other_user(NOBODY)

    def wait_as_nobody(self, command):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True, cwd=self.directory, **AS_USER)
        self.addCleanup(process.wait)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process.pid

    def test_a_process_of_ones_own_can_be_read(self):
        pid = self.wait_as_nobody([program("waits")])
        said, rows = self.ask("-p", str(pid), **AS_USER)
        if self.fact(said, "kernel.yama.ptrace_scope"):
            self.skipTest(self.fact(said, "kernel.yama.ptrace_scope"))
        self.assertEqual((rows["stacks"]["works"], rows["heap"]["works"]), ("no", "yes"))
        self.assertIn("setcap cap_bpf,cap_perfmon+ep", rows["stacks"]["command"])
        self.do_all(rows, **AS_USER)

    def test_of_anothers_process_root_alone_sees_anything(self):
        harness.need_root()
        with Waiting([program("waits")]) as process:
            said, rows = self.ask("-p", str(process.pid), status=1, **AS_USER)
            self.assertIn("not this one", self.fact(said, "user"))
            self.assertEqual(rows["heap"]["command"], f"sudo heapline heap -p {process.pid}")
            self.do(rows["heap"]["command"].removeprefix("sudo "))
            self.assertEqual(rows["record"]["command"], "")

    def test_a_process_that_is_not_dumpable_is_roots(self):
        pid = self.wait_as_nobody(["/usr/bin/python3", "-c", HIDDEN])
        said, rows = self.ask("-p", str(pid), status=1, **AS_USER)
        self.assertIn("not dumpable", self.fact(said, "protection"))
        self.assertIn("cap_sys_ptrace", rows["stacks"]["command"])
        harness.need_root()
        self.do(rows["heap"]["command"].removeprefix("sudo "))

    def test_of_a_set_user_id_command_a_copy_can_be_recorded(self):
        harness.need_root()
        own = self.path("programs/hello_setuid")
        os.mkdir(os.path.dirname(own))
        shutil.copy(program("hello"), own)
        os.chmod(own, 0o4755)
        _, rows = self.ask("--", own, "an argument", **AS_USER)
        self.assertEqual(rows["record"]["works"], "no")
        self.assertIn("set-user-id", rows["record"]["reason"])
        result = run(["/bin/sh", "-c", rows["record"]["command"]], cwd=self.directory,
                     env={"PATH": f"{os.path.dirname(HEAPLINE)}:{os.environ['PATH']}"}, **AS_USER)
        self.assertEqual((result.stdout, result.status), ("hello\n", 6), result.stderr)
        self.assertIn("heapline: recorded", result.stderr)
        _, rows = self.ask("--", own, "long" * 500, status=None, **AS_USER)
        self.assertIn("a copy", rows["record"]["remedy"])
        self.assertEqual(rows["record"]["command"], "")  # it would be cut

    def test_no_way_is_held_out_for_a_command_whose_heap_cannot_be_read(self):
        _, rows = self.ask("--", program("waits_32"), status=None, **AS_USER)
        self.assertEqual((rows["record"]["works"], rows["heap"]["works"]), ("no", "no"))
        self.assertEqual(rows["heap"]["command"], "")
        for name in "waits_static_stripped", "hello_static_pie", "waits_musl", "waits_musl_static":
            with self.subTest(name=name):
                _, rows = self.ask("--", program(name), **AS_USER)
                self.assertEqual(rows["heap"]["works"], "partly")


class Commands(Doctor):
    def test_an_ordinary_command_can_be_recorded(self):
        _, rows = self.ask("--", "/bin/echo", "two words", "$HOME")
        self.assertEqual(rows["record"]["works"], "yes")
        self.assertIn("two words $HOME\n", self.do(rows["record"]["command"]).stdout)

    def test_a_script_is_judged_by_its_interpreter(self):
        script = self.path("script")
        with open(script, "w", encoding="ascii") as file:
            file.write(f"#!{program('hello_static')}\n")
        os.chmod(script, 0o755)
        said, rows = self.ask("--", script)
        self.assertEqual(rows["record"]["works"], "yes")
        self.assertIn("static", rows["record"]["reason"])
        self.assertIn("hello_static", self.fact(said, "program"))

    def test_a_python_whose_loop_is_not_found_keeps_its_scripts_native(self):
        source, built = self.path("tail.c"), self.path("tail")
        with open(source, "w", encoding="ascii") as file:
            file.write("int _PyEval_EvalFrameDefault(int x) { return 3 * x; }\n"
                       "int main(int c, char **v) { return v && !_PyEval_EvalFrameDefault(c); }\n")
        subprocess.run(["cc", "-O1", "-rdynamic", "-o", built, source], check=True)
        said, _ = self.ask("--", built)
        self.assertIn("was not found", self.fact(said, "scripts"))
        for python in sys.executable, os.path.realpath("/usr/bin/python3"):
            said, _ = self.ask("--", python)
            self.assertIsNone(self.fact(said, "scripts"))

    def test_a_program_with_its_own_malloc_can_be_recorded(self):
        _, rows = self.ask("--", program("own_malloc"))
        self.assertEqual(rows["record"]["works"], "yes")
        self.assertIn("malloc of its own", rows["record"]["reason"])
        result = run(["/bin/sh", "-c", rows["record"]["command"]], cwd=self.directory,
                     env={"PATH": f"{os.path.dirname(HEAPLINE)}:{os.environ['PATH']}"})
        self.assertIn("heapline: recorded", result.stderr)

    def test_what_traces_a_command_works(self):
        harness.need_root()
        _, rows = self.ask("--", program("waits_static"))
        self.assertEqual(rows["record"]["works"], "yes")
        if rows["stacks"]["works"] == "no":
            self.skipTest(rows["stacks"]["reason"])
        for way in "stacks", "heap":
            # A background job of sh has no input, and would end at once: so it ends when the shell does.
            command = rows[way]["command"].replace(" &", " < fifo > /dev/null 9>&- &")
            self.do(f"rm -f fifo; mkfifo fifo; exec 9<> fifo; {command}")

    def test_a_command_that_is_missing_is_refused(self):
        self.assert_refused(run([HEAPLINE, "doctor", "--", "heapline-no-such-program"],
                                env={"PATH": "/usr/bin:/bin"}),
                            "heapline-no-such-program", "not found")

    def test_a_process_and_a_command_exclude_each_other(self):
        self.assertEqual(run([HEAPLINE, "doctor", "-p", "1", "--", "true"]).status, 2)

    def test_without_a_target_the_machine_is_judged(self):
        said, rows = self.ask()
        self.assertEqual(rows["record"]["works"], "yes")
        self.assertIn("Linux", self.fact(said, "kernel"))
        shown = run([HEAPLINE, "doctor"])
        self.assertIn("the machine", shown.stdout)


if __name__ == "__main__":
    harness.main()
