# SPDX-License-Identifier: BSD-2-Clause
"""The order of loads and stores, proved by spin: each model holds, and with any one of its barriers removed it does not.

docs/memory-order.md says what each model is of, and up to which bound.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
BARRIERS = re.compile(r'#include "order.inc"\n\n((?:#define .*\n)+)')
DONE = re.compile(r"errors: (\d+)")
SECONDS = 500  # less than meson gives the whole test


def search(model, without=None):
    """All that spin's search of the model says; ${without}: the barrier that is not there."""
    with tempfile.TemporaryDirectory() as folder:
        removed = [f"-DWITHOUT={without}"] if without else []
        for command in (["spin", *removed, "-a", str(model)], ["gcc", "-O0", "-w", "-DSAFETY", "-o", "pan", "pan.c"],
                        ["./pan", "-m1000000"]):
            done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  timeout=SECONDS, check=False)
            if done.returncode:
                raise AssertionError(f"{command[0]} {model.name}: {done.stdout}")
        return done.stdout


class Models(unittest.TestCase):
    def check(self, name):
        model = FOLDER / f"{name}.pml"
        said = search(model)
        self.assertEqual(DONE.search(said)[1], "0", said)
        self.assertNotIn("Search not completed", said)
        self.assertNotIn("max search depth too small", said)
        barriers = re.findall(r"^#define (\w+)", BARRIERS.search(model.read_text())[1], re.M)
        self.assertTrue(barriers)
        for barrier in barriers:
            with self.subTest(without=barrier):
                self.assertIn("assertion violated", search(model, barrier))

    def test_words_of_a_ring_are_read_as_they_were_written(self):
        self.check("ring")

    def test_a_cell_that_is_copied_while_its_thread_counts_has_whole_events(self):
        self.check("cell")

    def test_a_cell_has_its_values_at_the_last_mark_of_the_peak(self):
        self.check("peak")

    def test_two_threads_make_one_node_of_one_key(self):
        self.check("node")

    def test_each_block_is_found_where_it_was_set_and_objects_have_their_own_sizes(self):
        self.check("block")

    def test_stamps_put_an_event_behind_its_cause(self):
        self.check("stamp")

    def test_a_rule_that_is_believed_is_of_the_place_that_was_asked_for(self):
        self.check("rule")


if __name__ == "__main__":
    for tool in ("spin", "gcc"):
        if not shutil.which(tool):
            print(f"skipped: no {tool}")
            sys.exit(77)
    unittest.main(verbosity=2)
