# SPDX-License-Identifier: BSD-2-Clause
"""Libraries that are loaded after the recorder has come: their allocators are recorded from their
constructors on, as often as they are opened and closed."""

import os
import shutil
import signal
import subprocess

import attaching
import harness

LIBRARY = harness.program("late_pool.so")
ANNOTATED = harness.program("late_annotated.so")
HOOKS = ["--hook=malloc=late_pool.so!late_take(size=2)", "--hook=free=late_pool.so!late_give"]


def code_of(pid):
    """The library's code as it is mapped, {name of the mapping: bytes}."""
    found = {}
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
        for line in maps:
            if " r-xp " in line and "/" in line:
                start, end = (int(text, 16) for text in line.split()[0].split("-"))
                memory.seek(start)
                found[line] = memory.read(end - start)
    return found


def read_only_mappings(pid, path):
    """Code, tables and relocations, but for those that the dynamic linker has written to."""
    found = []
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        for line in maps:
            if line.rstrip().endswith(path) and line.split()[1] in ("r--p", "r-xp"):
                start, end = (int(text, 16) for text in line.split()[0].split("-"))
                found.append((start, end, int(line.split()[2], 16)))
    return found[:3]  # header, code, constants; not what is read-only after relocation


class Late(attaching.TestCase):
    def ask(self, process, line):
        process.stdin.write(line + "\n")
        process.stdin.flush()
        ledger = None
        for said in process.stdout:
            if said == "done\n":
                return ledger
            ledger = [int(figure) for figure in said.split()[1:]]
        raise AssertionError("it ended")

    def open_copy(self):
        """The rules hold for any version of the library."""
        path = self.path("late_pool.so.2")
        shutil.copy(LIBRARY, path)
        return f"open {path}"

    def recorded(self, allowed=(), function="by_late"):
        rows = [harness.top_rows(self.recording, value).get(function) for value in ("alloc", "inuse")]
        lost = harness.info(self.recording)["lost"]
        self.assertEqual({what: number for what, number in lost.items() if number and what not in allowed}, {})
        return [row[key] if row else 0 for row in rows for key in ("flat_objects", "flat_bytes")]

    def test_opened_and_closed_a_hundred_times(self):
        for mode in ("mem-fast", "log-record"):
            with harness.Waiting([harness.program("late_host"), LIBRARY]) as process:
                with self.attached(process.pid, "--mode", mode, *HOOKS) as attach:
                    ledger = self.ask(process, "100")
                    attach.send_signal(signal.SIGINT)
                self.assertEqual(ledger[0], 4000)
                self.assertEqual(self.recorded(), ledger)
            self.assertEqual(process.returncode, 0)

    def test_while_threads_allocate(self):
        with harness.Waiting([harness.program("late_host"), LIBRARY]) as process:
            self.ask(process, "threads")
            with self.attached(process.pid, *HOOKS) as attach:
                ledger = self.ask(process, "20")
                attach.send_signal(signal.SIGINT)
            # each thread may hold a block from before
            self.assertEqual(self.recorded(allowed=["unmatched_frees"]), ledger)
        self.assertEqual(process.returncode, 0)

    def test_pools_of_libraries_that_tell_of_them(self):
        with harness.Waiting([harness.program("late_host"), ANNOTATED]) as process:
            for mode in ("mem-fast", "log-record"):
                with self.attached(process.pid, "--mode", mode) as attach:
                    ledger = self.ask(process, "20")
                    attach.send_signal(signal.SIGINT)
                self.assertEqual(self.recorded(function="[pool late]"), ledger)
        self.assertEqual(process.returncode, 0)

    def test_a_library_that_tells_stays_and_is_as_before(self):
        with harness.Waiting([harness.program("late_host"), LIBRARY]) as process:
            with self.attached(process.pid) as attach:
                ledger = self.ask(process, f"open {ANNOTATED}")
                attach.send_signal(signal.SIGINT)
            self.assertEqual(self.recorded(function="[pool late]"), ledger)
            with open(ANNOTATED, "rb") as file, open(f"/proc/{process.pid}/mem", "rb") as memory:
                for start, end, offset in read_only_mappings(process.pid, ANNOTATED):
                    file.seek(offset)
                    memory.seek(start)
                    expected = file.read(end - start)
                    self.assertEqual(memory.read(end - start)[:len(expected)], expected, hex(start))
        self.assertEqual(process.returncode, 0)

    def test_detaching_restores_what_is_open(self):
        with harness.Waiting([harness.program("late_host"), LIBRARY]) as process:
            with self.attached(process.pid, *HOOKS) as attach:
                ledger = self.ask(process, self.open_copy())
                patched = code_of(process.pid)
                attach.send_signal(signal.SIGINT)
            self.assertEqual(self.recorded(), ledger)
            left = code_of(process.pid)
            changed = [line for line in left if patched[line] != left[line]]
            self.assertTrue([line for line in changed if "late_pool.so.2" in line], changed)
            self.ask(process, "3")
            for line, code in left.items():
                path, offset = line.split()[-1], int(line.split()[2], 16)
                if os.path.exists(path):
                    with open(path, "rb") as file:
                        file.seek(offset)
                        self.assertEqual(file.read(len(code)), code[:os.path.getsize(path) - offset], path)
            # and once more: they are there already
            with self.attached(process.pid, *HOOKS) as attach:
                ledger = self.ask(process, "2")
                attach.send_signal(signal.SIGINT)
            self.assertEqual(self.recorded(), ledger)
        self.assertEqual(process.returncode, 0)

    def test_presets_hold_for_libraries_that_come_later(self):
        presets = self.path("presets")
        with open(presets, "w", encoding="utf-8") as file:
            file.write("preset late\nwhen late_give\nmalloc=late_take(size=2)\nfree=late_give\n")
        with harness.Waiting([harness.program("late_host"), LIBRARY]) as process:
            with self.attached(process.pid, "--presets", presets) as attach:
                ledger = self.ask(process, "5")
                attach.send_signal(signal.SIGINT)
            self.assertEqual(self.recorded(), ledger)

    def test_heapline_that_is_killed_or_stopped_holds_nobody_up(self):
        with harness.Waiting([harness.program("late_host"), LIBRARY]) as process:
            with self.attached(process.pid, *HOOKS, expected=-signal.SIGKILL) as attach:
                self.ask(process, self.open_copy())
                attach.send_signal(signal.SIGSTOP)
                self.ask(process, "1")
                attach.kill()
            self.ask(process, "2")
            # what was patched is known to the next one
            with self.attached(process.pid, *HOOKS) as attach:
                ledger = self.ask(process, "2")
                attach.send_signal(signal.SIGINT)
            self.assertEqual(self.recorded(), ledger)
        self.assertEqual(process.returncode, 0)

    def test_heapline_that_is_stopped_amid_an_answer_holds_nobody_up(self):
        def blocks():
            """What is recorded of libraries by now, after one more has come."""
            self.ask(process, "1")
            self.ctl(process.pid, "snapshot", "-f", self.path("now.hl"))
            return harness.top_rows(self.path("now.hl"), "alloc")["by_late"]["flat_objects"]

        with harness.Waiting([harness.program("late_host"), LIBRARY]) as process:
            with self.attached(process.pid, *HOOKS) as attach:
                before = blocks()
                attach.send_signal(signal.SIGSTOP)
                harness.wait_until(lambda: harness.process_state(attach.pid) == "T", "it to stop")
                with subprocess.Popen([harness.program("answering"), str(attach.pid)],
                                      stdout=subprocess.PIPE, text=True) as answering:
                    self.ask(process, self.open_copy())
                    said, _ = answering.communicate(timeout=harness.TIMEOUT_S)
                self.assertEqual(said, "asked\ngone on\n")
                self.assertEqual(harness.process_state(attach.pid), "T")
                attach.send_signal(signal.SIGCONT)
                harness.wait_until(lambda: blocks() > before, "the next library to be recorded")
                attach.send_signal(signal.SIGINT)
            warnings = harness.info(self.recording)["recording"]["warnings"]
            # The next library may come before a slow heapline goes on: then the warning names that one.
            self.assertEqual(len(warnings), 1)
            self.assertRegex(warnings[0], r"^functions that rules name in 'late_pool\.so(\.2)?' are not recorded: "
                                          r"it was loaded while heapline did not answer$")
        self.assertEqual(process.returncode, 0)

    def test_a_library_that_is_not_named_is_a_mistake(self):
        with harness.Waiting([harness.program("late_host"), LIBRARY]) as process:
            result = self.attach(process.pid, "--hook=malloc=late_take(size=2)", "-d", "0.1", status=1)
            self.assertIn("a library that is loaded later is to be named", result.stderr)
            result = self.attach(process.pid, *HOOKS, "-d", "0.1")
            self.assertIn("'late_take' of 'late_pool.so' is recorded when that is loaded", result.stderr)

    def test_a_program_that_is_entered_as_it_begins(self):
        """Of record no rules are asked: presets of the user's file hold."""
        presets = self.path("presets")
        with open(presets, "w", encoding="utf-8") as file:
            file.write("preset late\nwhen late_give\nmalloc=late_take(size=2)\nfree=late_give\n")
        result = harness.run(harness.record_command(self.recording, [harness.program("late_host_own_malloc"),
                                                                     LIBRARY, "10"]),
                             env={"HEAPLINE_PRESETS": presets}, stdin=subprocess.DEVNULL)
        self.assertEqual(result.status, 0, result.stderr)
        ledger = [int(figure) for figure in result.stdout.splitlines()[0].split()[1:]]
        self.assertEqual(self.recorded(), ledger)


if __name__ == "__main__":
    harness.main()
