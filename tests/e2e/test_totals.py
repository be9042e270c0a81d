# SPDX-License-Identifier: BSD-2-Clause
"""Every view adds up to the same totals, whatever it is asked for."""

import json
import os
import re

import harness
from harness import report

MAKE_RECORDING = os.path.join(harness.BUILD, "tests/cli/make_recording")
UNITS = {
    "inuse": ("bytes", "objects"),
    "alloc": ("bytes", "objects"),
    "peak": ("bytes", "objects"),
    "temporary": ("objects",),
    "slack": ("bytes",),
}
SCRIPT = "import json; kept = [json.loads('[' + '[1, \"a\"],' * 50 + '{}]') for _ in range(200)]"


def sum_of(rows, key):
    return sum(row[key] for row in rows)


def exported_figure(node, value, unit):
    """The file has what was freed instead of what is in use."""
    if value == "inuse":
        return node.get(f"alloc_{unit}", 0) - node.get(f"free_{unit}", 0)
    return node.get(f"{value}_{unit}", 0)


def known_units(recording):
    """Samples tell nothing of what is temporary."""
    sampled = report("info", recording)["recording"]["sample_bytes"] != 0
    return {value: units for value, units in UNITS.items() if value != "temporary" or not sampled}


def own(view, unit):
    """What has no frame at all, which stands beside the rows of trees and graphs."""
    place, prefix = ("stackless", "") if "stackless" in view else ("left_out", "stackless_")
    return view[place][f"{prefix}{unit}"]


class Totals(harness.TestCase):
    def made(self, kind):
        path = self.path(f"{kind}.hl")
        if not os.path.exists(path):
            result = harness.run([MAKE_RECORDING, kind, path])
            self.assertEqual(result.status, 0, result.stderr)
        return path

    def python3(self):
        return self.record_well([harness.need("python3"), "-c", SCRIPT], options=["--sizes"])[1]

    def exported(self, recording, options):
        result = harness.run([harness.HEAPLINE, "export", "--format", "json", *options, recording])
        self.assertEqual(result.status, 0, result.stderr)
        return json.loads(result.stdout)

    def sums(self, recording, value, unit, selection, exported):
        """{view: sum of what it shows}, each from rows and never from the view's own total."""
        def view(verb, *options):
            return report(verb, recording, "--value", value, "--unit", unit, *selection, *options)

        def top(key):
            return sum_of(view("top", "--by", key)["rows"], f"flat_{unit}")

        tree, reversed_ = (view("tree", "--threshold", "0", *more) for more in ([], ["--reversed"]))
        flame, graph = view("flame"), view("graph", "--nodes", "10", "--edge-threshold", "0")
        outer = [row for row in reversed_["rows"] if row["depth"] == 1]
        return {
            **{f"top by {key}": top(key) for key in ("function", "line", "address", "module")},
            "lines": sum_of(view("lines")["rows"], unit),
            "tree": sum_of(tree["rows"], f"flat_{unit}") + own(tree, unit),
            "tree, of its branches": own(tree, unit) + sum_of(
                [row for row in tree["rows"] if row["depth"] == 1], f"cum_{unit}"),
            "tree reversed": sum_of(outer, f"cum_{unit}") + own(reversed_, unit),
            "flame": flame["rows"][0][unit] + flame["left_out"]["negative"],
            "flame, of its frames": sum_of(flame["rows"], "self") + flame["left_out"]["negative"],
            "graph": sum_of(graph["rows"], f"flat_{unit}") + own(graph, unit)
                     + graph["left_out"][f"flat_{unit}"],
            "sizes": sum_of(view("sizes")["rows"], unit),
            "folded": sum(harness.folded(recording, value, unit, *selection).values()),
            "folded --json": sum_of(view("folded")["rows"], unit),
            "export json": sum(exported_figure(node, value, unit) for node in exported["nodes"]),
            "export json, its total": exported["total"].get(f"{value}_{unit}", 0),
        }

    def assert_views_agree(self, recording, *selection):
        totals = report("info", recording, *selection)["total"]
        exported = self.exported(recording, selection)
        known = known_units(recording)
        self.assertEqual("temporary" in known, "temporary_objects" in totals)
        for value, units in known.items():
            for unit in units:
                with self.subTest(value=value, unit=unit, selection=selection):
                    sums = self.sums(recording, value, unit, selection, exported)
                    self.assertEqual(sums, dict.fromkeys(sums, totals[f"{value}_{unit}"]))

    def assert_threads_agree(self, recording, *selection):
        """Threads add up where all of a recording is shown, and what they do not hold is said."""
        for value, units in known_units(recording).items():
            view = report("top", recording, "--by", "thread", "--value", value, *selection)
            for unit in units:
                self.assertEqual(sum_of(view["rows"], f"flat_{unit}"),
                                 view["total"][f"{value}_{unit}"], (value, unit))

    def test_views_of_made_recordings_agree(self):
        for kind in ("shop", "two", "empty", "lossy", "sized"):
            with self.subTest(kind=kind):
                self.assert_views_agree(self.made(kind))
                self.assert_threads_agree(self.made(kind))

    def test_views_of_one_process_agree(self):
        two = self.made("two")
        for process in harness.processes(two):
            self.assert_views_agree(two, "--process", f"/{process['sequence']}")

    def test_views_of_filtered_stacks_agree(self):
        two = self.made("two")
        name = report("top", two, "--value", "alloc")["rows"][0]["name"]
        for option in ("--focus", "--ignore", "--hide"):
            self.assert_views_agree(two, option, re.escape(name))
            self.assert_threads_agree(two, option, re.escape(name))
        self.assert_views_agree(two, "--hide", ".")

    def test_views_of_a_real_program_agree(self):
        """But for names of plumbing, which `folded` and `export` alone show."""
        recording = self.python3()
        self.assert_views_agree(recording)
        self.assert_threads_agree(recording)
        self.assert_views_agree(recording, "--focus", "PyDict|PyUnicode|decode", "--hide", "libc")


if __name__ == "__main__":
    harness.main()
