# SPDX-License-Identifier: BSD-2-Clause
"""Timelines, moments, peaks and growth equal a replay of the program's own ledger."""

import itertools
import os
import shutil
import struct

import harness
from log_reading import LOG_MODES, dump

SITES = ("leak_site", "cache_site", "pool_site", "spike_site")
ROUNDS = 24
SPIKE_BYTES = 64 << 20
INTERVAL_MS = 100


class Ledger:
    """What the program did: totals[i] is what its sites had in use after i events."""

    def __init__(self, path):
        with open(path, "rb") as file:
            (count,) = struct.unpack("<Q", file.read(8))
            self.events = [struct.unpack("<qQ", file.read(16)) for _ in range(count)]
        self.totals = list(itertools.accumulate((size for size, _ in self.events), initial=0))

    def sites_after(self, count):
        """{function: bytes in use} after COUNT events, those with nothing left out."""
        sums = dict.fromkeys(SITES, 0)
        for size, site in self.events[:count]:
            sums[SITES[site]] += size
        return {site: size for site, size in sums.items() if size}


class Replay:
    """
    Which events happened in which interval. The ticks of the program's own events are unknown, but
    what was in use at an interval's end tells after which event it ended: replay tries all that
    fit, and those that are left when every interval has its maximum to the byte are right.
    """

    def __init__(self, ledger, points, base):
        self.ledger = ledger
        self.ends_of = {}
        for index, total in enumerate(ledger.totals):
            self.ends_of.setdefault(total + base, []).append(index)
        self.base = base
        self.chain = self.find(points)

    def maximum(self, begin, end):
        return max(self.ledger.totals[begin:end + 1]) + self.base

    def steps(self, begin, point):
        return [end for end in self.ends_of.get(point["end_bytes"], ())
                if end >= begin and self.maximum(begin, end) == point["max_bytes"]]

    def find(self, points):
        """[(events before the interval, events after it)], or None."""
        chains = {0: None}
        for point in points:
            chains = {end: (begin, chain) for begin, chain in chains.items()
                      for end in self.steps(begin, point)}
        if len(self.ledger.events) not in chains:
            return None
        found, end = [], len(self.ledger.events)
        chain = chains[end]
        while chain:
            begin, chain = chain
            found.append((begin, end))
            end = begin
        return found[::-1]

    def at_maximum(self, interval):
        """How many events had happened at the first maximum of the interval."""
        begin, end = self.chain[interval]
        highest = self.maximum(begin, end) - self.base
        return begin + self.ledger.totals[begin:end + 1].index(highest)


class HistoryTestCase(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.ledger_path = self.path("ledger")

    def record_phases(self, mode="log-fast", options=(), rounds=ROUNDS):
        command = [harness.program("phases"), self.ledger_path, str(rounds)]
        _, recording = self.record_well(command, mode, options)
        self.assert_nothing_lost(recording)
        return recording

    def replay(self, recording):
        """(points but the last, in which the program ends; their replay). It begins with main()."""
        points = dump(recording)["points"][:-1]
        ledger = Ledger(self.ledger_path)
        base = points[-1]["end_bytes"] - ledger.totals[-1]
        while points[0]["end_bytes"] < base:
            points = points[1:]
        replay = Replay(ledger, points, base)
        self.assertIsNotNone(replay.chain, "the log is not a replay of the ledger")
        return points, replay

    def sites(self, recording, *options):
        rows = harness.report("top", recording, "--rows", "0", *options)["rows"]
        return {row["name"]: row["flat_bytes"] for row in rows if row["name"] in SITES}


class KnownAnswer(HistoryTestCase):
    def test_every_interval_has_the_maximum_of_a_replay_of_the_ledger(self):
        for mode in LOG_MODES:
            with self.subTest(mode=mode):
                recording = self.record_phases(mode)
                points, _ = self.replay(recording)
                rows = harness.report("timeline", recording)["rows"]
                self.assertEqual([row["ms"] for row in rows],
                                 [i * INTERVAL_MS for i in range(len(rows))])
                maxima = {row["ms"]: row["bytes"] for row in rows}
                for point in points:
                    self.assertEqual(maxima[point["number"] * INTERVAL_MS], point["max_bytes"])
                self.assertTrue(all(row["rss_bytes"] for row in rows[:-1]))

    def test_a_moment_shows_what_the_ledger_says_of_each_function(self):
        recording = self.record_phases()
        points, replay = self.replay(recording)
        for interval, point in enumerate(points):
            moment = str(point["number"] * INTERVAL_MS + interval)
            expected = replay.ledger.sites_after(replay.at_maximum(interval))
            self.assertEqual(self.sites(recording, "--at", moment), expected, moment)
            total = harness.report("lines", recording, "--at", moment)["total"]
            self.assertEqual(total["inuse_bytes"], point["max_bytes"])

    def test_the_timeline_by_function_has_the_same_figures_as_the_moments(self):
        recording = self.record_phases()
        points, replay = self.replay(recording)
        timeline = harness.report("timeline", recording, "--by", "function", "--heaviest", "12")
        names = [key["name"] for key in timeline["keys"]]
        rows = {row["ms"]: row for row in timeline["rows"]}
        for interval, point in enumerate(points):
            row = rows[point["number"] * INTERVAL_MS]
            self.assertEqual(sum(row["by"]), row["bytes"])
            found = {name: size for name, size in zip(names, row["by"]) if name in SITES and size}
            self.assertEqual(found, replay.ledger.sites_after(replay.at_maximum(interval)))

    def test_the_highest_peak_is_the_spike_and_what_it_came_from(self):
        recording = self.record_phases()
        points, replay = self.replay(recording)
        row = harness.report("peaks", recording, "--stacks", "0")["rows"][0]
        interval = max(range(len(points)), key=lambda i: points[i]["max_bytes"])
        self.assertEqual(row["bytes"], points[interval]["max_bytes"])
        self.assertEqual(row["ms"] // INTERVAL_MS, points[interval]["number"])
        self.assertEqual(sum(replay.ledger.sites_after(replay.at_maximum(interval)).values()),
                         row["bytes"] - replay.base)
        spike = row["stacks"][0]
        self.assertEqual((spike["growth_bytes"], spike["bytes"]), (SPIKE_BYTES, SPIKE_BYTES))
        self.assertEqual(spike["stack"][-1], "spike_site")
        at_peak = self.sites(recording, "--at", "peak")
        self.assertEqual(at_peak["spike_site"], SPIKE_BYTES)

    def test_two_moments_of_a_recording_are_compared(self):
        recording = self.record_phases()
        points, replay = self.replay(recording)
        first, last = 2, len(points) - 1
        before, after = (replay.ledger.sites_after(replay.at_maximum(i)) for i in (first, last))
        rows = harness.report("diff", recording,
                              "--at", str(points[first]["number"] * INTERVAL_MS),
                              "--at", str(points[last]["number"] * INTERVAL_MS))["rows"]
        found = {row["name"]: row["delta_bytes"] for row in rows if row["name"] in SITES}
        expected = {site: after.get(site, 0) - before.get(site, 0) for site in SITES}
        self.assertEqual(found, {site: delta for site, delta in expected.items() if delta})


class Growth(HistoryTestCase):
    def test_a_leak_comes_before_a_cache_and_a_pool(self):
        recording = self.record_phases()
        last = dump(recording)["points"][-3]["number"] * INTERVAL_MS
        rows = harness.report("growth", recording, "--between", "0", str(last),
                              "--by", "function")["rows"]
        scores = {row["name"]: row["steady_percent"] for row in rows}
        self.assertEqual(rows[0]["name"], "leak_site")
        self.assertGreaterEqual(scores["leak_site"], 50)
        self.assertLess(scores.get("cache_site", 0), 50)
        self.assertLess(scores.get("spike_site", 0), 50)


class Segments(HistoryTestCase):
    def test_reports_do_not_depend_on_the_number_of_threads(self):
        recording = self.record_phases(options=["--log-segment-size", "200",
                                                "--log-segments", "1000"])
        reports = {}
        for jobs in ("1", "2", "5"):
            reports[jobs] = [harness.report(*report, "--jobs", jobs) for report in (
                ("timeline", recording, "--by", "function"),
                ("growth", recording),
                ("peaks", recording),
                ("top", recording, "--at", "peak"))]
            self.assertEqual(reports[jobs], reports["1"])

    def test_copied_segments_say_the_same_of_their_time(self):
        recording = self.record_phases(options=["--log-segment-size", "200",
                                                "--log-segments", "1000"])
        whole = harness.report("timeline", recording, "--by", "module")["rows"]
        names = sorted(name for name in os.listdir(recording) if name.startswith("memlog-"))
        self.assertGreater(len(names), 3)
        part = self.path("part.hl")
        shutil.copytree(recording, part, ignore=lambda _, entries: set(entries) & set(names[:2]))
        rows = harness.report("timeline", part, "--by", "module")["rows"]
        self.assertLess(len(rows), len(whole))
        self.assertEqual([row["bytes"] for row in rows],
                         [row["bytes"] for row in whole[-len(rows):]])
        moment = str(rows[0]["ms"])
        self.assertEqual(self.sites(part, "--at", moment), self.sites(recording, "--at", moment))


if __name__ == "__main__":
    harness.main()
