# SPDX-License-Identifier: BSD-2-Clause
"""--comm: a process is named instead of numbered."""

import json
import shutil
import subprocess
from pathlib import Path

import harness

NAME = "heapline-test-a-long-name"  # longer than comm, which holds 15 bytes


class ProcessNames(harness.TestCase):
    def start(self, name=NAME):
        path = Path(self.path(name))
        path.parent.mkdir(exist_ok=True)
        shutil.copy(shutil.which("sleep"), path)
        process = subprocess.Popen([path, "600"])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def named(self, name):
        """What ctl says of a process with a name: its refusal has the number that was found."""
        return harness.run([harness.HEAPLINE, "ctl", "--comm", name, "status"])

    def test_the_only_process_of_a_name_is_found(self):
        process = self.start()
        for name in (NAME, NAME[:15]):
            self.assertIn(f"cannot control process {process.pid}:", self.named(name).stderr)

    def test_several_processes_of_a_name_are_listed(self):
        pids = sorted(self.start(f"{letter}/{NAME}").pid for letter in ("a", "b"))
        refused = self.named(NAME)
        self.assertEqual(refused.status, 1)
        self.assertEqual(refused.stderr,
                         f"heapline: 2 processes are called '{NAME}': {pids[0]} ({NAME}), "
                         f"{pids[1]} ({NAME}); name one of them with -p\n")

    def test_a_program_with_a_sanitizer_that_is_started_again_keeps_the_name_of_its_link(self):
        source = Path(self.path("name.c"))
        source.write_text('#include <stdio.h>\n#include <sys/prctl.h>\n'
                          'int main(void) { char name[16]; prctl(PR_GET_NAME, name); puts(name); return 0; }\n')
        if harness.run([harness.need("gcc"), "-fsanitize=address", "-o", self.path("name"), source]).status:
            self.skipTest("gcc has no address sanitizer here")
        Path(self.path("link")).symlink_to("name")
        result, _ = self.record_well(["sh", "-c", f"cd {self.directory}; ./link; ./name"])
        self.assertEqual(result.stdout, "link\nname\n")

    def test_of_a_title_the_program_counts(self):
        title = f"{NAME}: master process (/etc/php/8.2/fpm/php-fpm.conf)"
        process = subprocess.Popen([title, "600"], executable=shutil.which("sleep"))
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertIn(f"cannot control process {process.pid}:", self.named(NAME).stderr)

    def test_blocks_of_a_program_that_is_run_by_a_link_have_the_name_of_the_link(self):
        source = Path(self.path("check.c"))
        source.write_text('#include <stdio.h>\n#include <stdlib.h>\nstatic void *kept[1000];\n'
                          'int main(void) { for (int i = 0; i < 1000; i++) kept[i] = malloc(1000);\n'
                          'puts("ready"); fflush(stdout); return getchar(); }\n')
        subprocess.run([harness.need("gcc"), "-g", "-o", self.path("check"), source], check=True)
        Path(self.path("server")).symlink_to("check")
        process = subprocess.Popen(harness.record_command(self.path("r.hl"), [self.path("server")]),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate, "x")
        self.assertEqual(process.stdout.readline(), "ready\n")
        [pid] = harness.children_of(process.pid)
        rows = json.loads(harness.run([harness.HEAPLINE, "allocations", "--json", "-p", str(pid)]).stdout)["rows"]
        self.assertIn(("server", "main"), [(row["origin"], row["type"]) for row in rows])
        holders = harness.run([harness.HEAPLINE, "holders", "-p", str(pid)])
        self.assertRegex(holders.stdout, r"kept +server ", holders.stderr)

    def test_a_name_that_no_process_has_is_an_error(self):
        refused = self.named(NAME)
        self.assertEqual(refused.status, 1)
        self.assertEqual(refused.stderr, f"heapline: no process is called '{NAME}'\n")

if __name__ == "__main__":
    harness.main()
