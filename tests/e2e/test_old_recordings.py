# SPDX-License-Identifier: BSD-2-Clause
"""Recordings that an older version wrote say the same in every later one.

recordings/NAME-VERSION.hl was written by that version, and NAME-VERSION.json is what it said of it then. Neither is ever made again:
when the format changes, a recording of the new form is put beside them, by `test_old_recordings.py --keep NAME-VERSION.hl`.
"""

import json
import sys
from pathlib import Path

import harness

RECORDINGS = Path(__file__).resolve().parent / "recordings"
# Stacks, names, figures, moments and sizes; nothing that depends on the machine.
TEXTS = ("folded --value alloc", "folded --value temporary --unit objects")
TABLES = ("top --json -n 20", "sizes --json -n 3", "lines --json -n 20 --value alloc")
LOG_TEXTS = ("folded --at peak",)
LOG_TABLES = ("timeline --json",)


def ask(view, recording):
    verb, *options = view.split()
    said = harness.run([harness.HEAPLINE, verb, *options, str(recording)])
    assert said.status == 0, f"{view} {recording}: {said.stderr}"
    return said.stdout


def say(recording):
    """What the views of a recording say, by view: a list of lines, or the rows of a table."""
    has_log = json.loads(ask("info --json", recording))["recording"]["mode"].startswith("log")
    said = {view: ask(view, recording).splitlines() for view in TEXTS + LOG_TEXTS * has_log}
    return said | {view: json.loads(ask(view, recording))["rows"] for view in TABLES + LOG_TABLES * has_log}


class OldRecordings(harness.TestCase):
    def assert_still_says(self, now, then, where):
        """All of ``then`` is in ``now``: later versions may add members to an object."""
        if isinstance(then, dict):
            self.assertLessEqual(set(then), set(now), where)
            for name, value in then.items():
                self.assert_still_says(now[name], value, f"{where}: {name}")
        elif isinstance(then, list):
            self.assertEqual(len(now), len(then), where)
            for place, (one, other) in enumerate(zip(now, then)):
                self.assert_still_says(one, other, f"{where}: {place}")
        else:
            self.assertEqual(now, then, where)

    def test_they_say_what_they_said(self):
        recordings = sorted(RECORDINGS.glob("*.hl"))
        self.assertTrue(recordings)
        for recording in recordings:
            with self.subTest(recording.name):
                self.assert_still_says(say(recording), json.loads(recording.with_suffix(".json").read_text()), recording.name)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--keep"]:
        for name in map(Path, sys.argv[2:]):
            name.with_suffix(".json").write_text(json.dumps(say(name)).replace("], \"", "],\n\"") + "\n")
    else:
        harness.main()
