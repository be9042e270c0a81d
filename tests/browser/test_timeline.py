# SPDX-License-Identifier: BSD-2-Clause
"""The timeline of a page: what is chosen there is what `--at` shows of the same moment."""

import contextlib
import re
import subprocess
from collections import Counter

import harness
from harness import ask, heapline
from report_page import Files, PageCase, bare

with contextlib.suppress(ImportError):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

WITH_LOG = ("--mode", "log-fast")
PROCESSES = ("import subprocess, sys\n"
             "kept = [bytes(40000) for _ in range(200)]\n"
             "subprocess.run([sys.executable, '-c', 'small = 1'])\n")


class Logs:
    """Recordings with a log, and their pages."""

    @classmethod
    def make(cls):
        Files.make_folder()
        cls.python, cls.several, cls.plain = (Files.folder / f"{name}.hl"
                                              for name in ("python", "several", "plain"))
        harness.record_demo(cls.python, 2, options=WITH_LOG)
        harness.record_python(cls.several, "-c", PROCESSES, options=WITH_LOG)
        harness.make_recording(cls.plain, "shop")
        for name in ("logged", "broken-log", "day"):
            harness.make_recording(Files.folder / f"{name}.hl", name)
        cls.logged, cls.broken, cls.day = (Files.folder / f"{name}.hl"
                                           for name in ("logged", "broken-log", "day"))
        cls.pages = {recording: Files.write_page(recording.stem, recording)
                     for recording in (cls.python, cls.several, cls.plain, cls.logged, cls.broken,
                                       cls.day)}


def setUpModule():
    Logs.make()


def tearDownModule():
    Files.remove()


def moment_of(state):
    """Each "at 1,659 ms" of a sentence."""
    return [int(ms.replace(",", "")) for ms in re.findall(r"at ([\d,]+) ms", state)]


def rows_at(recording, ms, unit="bytes"):
    """What `top --at` says: (name, flat, cum) of each function that had something."""
    rows = ask("top", recording, "--at", str(ms), "--unit", unit, "-n", "0")["rows"]
    return Counter((bare(row["name"]), row[f"flat_{unit}"], row[f"cum_{unit}"]) for row in rows)


class TimelineCase(PageCase):
    recording = None

    def setUp(self):
        self.open(Logs.pages[self.recording or Logs.python])

    def tearDown(self):
        self.assert_quiet()

    def state(self):
        return self.text("#timeline-state")

    def chart(self):
        return self.find("#timeline-canvas")

    def drag(self, from_x, to_x):
        """Between places of the chart, as shares of its width from its middle: -0.5 to 0.5."""
        width = self.chart().size["width"]
        (ActionChains(self.driver).move_to_element_with_offset(self.chart(), int(from_x * width), 0)
         .click_and_hold().move_by_offset(int((to_x - from_x) * width), 0).release().perform())
        self.wait_for_paint()

    def press_on_chart(self, *keys):
        self.run_script("document.getElementById('timeline-canvas').focus()")
        self.press(*keys)

    def extend(self, key, times):
        """Presses a key with shift."""
        actions = ActionChains(self.driver).key_down(Keys.SHIFT)
        for _ in range(times):
            actions.send_keys(key)
        actions.key_up(Keys.SHIFT).perform()

    def wait_for_total(self, figure):
        """Views follow the keyboard in their own time."""
        self.show_tab("flame")
        harness.wait_until(self.driver, lambda: self.frames()["all"][0] == figure)

    def show_aspect(self, aspect):
        self.find(f"#timeline-aspects input[value='{aspect}'] + .face").click()

    def table_rows(self):
        """(name, flat, cum) of each function."""
        return Counter((bare(name), flat, cum) for name, _, flat, cum, *_ in self.table("functions"))


class Figures(TimelineCase):
    def test_a_dragged_range_shows_what_was_in_use_at_its_maximum(self):
        self.drag(-0.2, 0.2)
        [ms] = moment_of(self.state())
        for unit in ("bytes", "objects"):
            self.choose(unit)
            with self.subTest(unit=unit):
                self.assertEqual(self.table_rows(), rows_at(Logs.python, ms, unit))

    def test_the_maximum_is_the_highest_interval_of_the_range(self):
        self.press_on_chart(Keys.HOME)
        self.extend(Keys.ARROW_RIGHT, 4)
        points = ask("timeline", Logs.python)["rows"][:5]
        [ms] = moment_of(self.state())
        highest = max(points, key=lambda point: point["bytes"])
        self.assertEqual(ms // 100 * 100, highest["ms"])
        self.wait_for_total(highest["bytes"])

    def test_every_moment_has_the_total_of_the_timeline(self):
        for point in ask("timeline", Logs.python)["rows"]:
            self.press_on_chart(Keys.HOME if point["ms"] == 0 else Keys.ARROW_RIGHT)
            self.wait_for_total(point["bytes"])

    def test_growth_has_the_figures_of_diff_between_its_ends(self):
        self.drag(-0.4, 0.3)
        self.show_aspect("growth")
        first, last = moment_of(self.state())
        before, after = (ask("top", Logs.python, "--at", str(ms))["total"]["inuse_bytes"]
                         for ms in (first, last))
        rows = ask("diff", Logs.python, "--at", str(first), "--at", str(last), "-n", "0")["rows"]
        expected = Counter((bare(row["name"]), row["before_bytes"], row["after_bytes"]) for row in rows
                           if row["before_bytes"] != row["after_bytes"])
        found = Counter((bare(name), flat_before, flat_after) for name, _, flat_before, flat_after, *_
                        in self.table("functions") if flat_before != flat_after)
        self.assertEqual(found, expected)
        self.show_tab("flame")
        self.assertEqual(self.frames()["all"][0], after)
        self.choose("before")
        self.assertEqual(self.run_script("return document.querySelectorAll('#legend li').length"), 5)
        self.choose("growth")
        self.assertNotEqual(before, after)

    def test_source_lines_and_the_call_tree_show_the_moment_too(self):
        self.drag(-0.2, 0.2)
        [ms] = moment_of(self.state())
        rows = ask("lines", Logs.python, "--at", str(ms))["rows"]
        expected = Counter((f"{row['file']}:{row['line']}" if row["file"] else row["name"],
                            row["bytes"]) for row in rows if row["bytes"])
        self.assertEqual(Counter((name, flat) for name, _, flat, *_ in self.table("lines") if flat),
                         expected)
        self.show_tab("tree")
        total = ask("top", Logs.python, "--at", str(ms))["total"]["inuse_bytes"]
        self.assertEqual(int(self.find(".tree [data-figure]").get_attribute("data-figure")), total)

    def test_without_a_range_the_page_shows_the_whole_recording_again(self):
        self.choose("alloc")
        whole = self.table("functions")
        self.drag(-0.2, 0.2)
        self.show_aspect("growth")
        self.find("#timeline-clear").click()
        self.assertEqual(self.table("functions"), whole)
        self.assertTrue(self.find("input[value='alloc']").is_selected())
        self.assertFalse(self.find("#timeline-clear").is_enabled())

    def test_values_that_are_not_known_over_time_cannot_be_chosen(self):
        self.drag(-0.2, 0.2)
        enabled = [one.get_attribute("value") for one in self.find_all("#values input")
                   if one.is_enabled()]
        self.assertEqual(enabled, ["inuse"])


class Control(TimelineCase):
    def test_arrows_move_shift_extends_and_escape_ends_it(self):
        recording = ask("timeline", Logs.python)["rows"]
        self.press_on_chart(Keys.ARROW_LEFT)
        self.assertTrue(self.state().startswith(f"{recording[-1]['ms'] / 1000:g} s – "))
        self.press_on_chart(Keys.HOME, Keys.ARROW_RIGHT)
        self.assertTrue(self.state().startswith("0.1 s – 0.2 s: at its maximum, "), self.state())
        self.extend(Keys.ARROW_RIGHT, 2)
        self.assertTrue(self.state().startswith("0.1 s – 0.4 s: "), self.state())
        self.extend(Keys.ARROW_LEFT, 3)
        self.assertTrue(self.state().startswith("0 s – 0.2 s: "), self.state())
        self.press(Keys.ESCAPE)
        self.assertIn("Drag over the chart", self.state())

    def test_what_is_chosen_is_announced(self):
        self.drag(-0.2, 0.2)
        self.assertEqual(self.text("#live"), self.state())
        self.find("#timeline-clear").click()
        self.assertEqual(self.text("#live"), "The whole recording")

    def test_the_pointer_reads_what_was_in_use(self):
        ActionChains(self.driver).move_to_element(self.chart()).perform()
        points = ask("timeline", Logs.python)["rows"]
        ms, figure = re.match(r"([\d,]+) ms · ([\d.]+ \w+)", self.text("#timeline-hover")).groups()
        point = points[int(ms.replace(",", "")) // 100]
        self.assertEqual(figure, f"{point['bytes'] / 2**20:.1f} MiB")
        self.assertIn("RSS", self.text("#timeline-hover"))

    def touch(self, *places):
        """A finger goes along places of the chart: shares of its width, pixels from its top."""
        left, top, width = self.run_script(
            "const box = document.getElementById('timeline-canvas').getBoundingClientRect();"
            "return [box.left, box.top, box.width]")
        steps = [("touchMove", [{"x": left + x * width, "y": top + y}]) for x, y in places]
        for kind, points in [("touchStart", steps[0][1]), *steps[1:], ("touchEnd", [])]:
            self.driver.execute_cdp_cmd("Input.dispatchTouchEvent",
                                        {"type": kind, "touchPoints": points})

    def test_a_finger_that_scrolls_changes_no_range(self):
        self.press_on_chart(Keys.HOME)
        state = self.state()
        self.touch((0.5, 100), (0.5, 80), (0.5, 40), (0.5, 10))
        harness.wait_until(self.driver, lambda: self.state() == state)

    def test_a_finger_drags_too(self):
        self.touch((0.3, 60), (0.4, 60), (0.7, 60))
        [ms] = moment_of(self.state())
        self.assertEqual(self.frames()["all"][0],
                         ask("top", Logs.python, "--at", str(ms))["total"]["inuse_bytes"])

    def test_the_table_has_every_part_and_chooses_it(self):
        self.run_script("document.getElementById('timeline-table').open = true")
        self.wait_for_paint()
        points = ask("timeline", Logs.python)["rows"]
        figures = self.run_script("return [...document.querySelectorAll('#timeline-body tr')].map("
                                  "row => Number(row.querySelector('[data-figure]').dataset.figure))")
        self.assertEqual(figures, [point["bytes"] for point in points])
        self.find_all("#timeline-body button")[1].click()
        self.assertEqual(self.frames()["all"][0], points[1]["bytes"])

    def test_the_chart_is_drawn_in_the_colours_of_the_theme(self):
        picture = "return document.getElementById('timeline-canvas').toDataURL()"
        self.wait_for_paint()
        light = self.run_script(picture)
        for _ in range(2):
            self.find("#theme").click()
        self.assertNotEqual(self.run_script(picture), light)


class Kinds(TimelineCase):
    def test_without_a_log_there_is_no_timeline(self):
        self.open(Logs.pages[Logs.plain])
        self.assertFalse(self.find("#timeline").is_displayed())

    def test_a_filtered_page_has_no_timeline(self):
        page = Files.folder / "filtered.html"
        heapline("report", "-o", str(page), "--focus", "main", str(Logs.logged))
        self.open(page)
        self.assertFalse(self.find("#timeline").is_displayed())

    def test_of_several_processes_the_highest_is_shown_and_said(self):
        self.open(Logs.pages[Logs.several])
        pid = ask("timeline", Logs.several)["recording"]["pid"]
        self.assertIn(f"pid {pid}: of 2 processes", self.text("#timeline-process"))
        self.drag(-0.4, 0.4)
        self.assertIn("of this process alone", self.state())
        [ms] = moment_of(self.state())
        self.assertEqual(self.table_rows(), rows_at(Logs.several, ms))

    def test_a_made_log_is_right_to_the_byte_in_every_interval(self):
        self.open(Logs.pages[Logs.logged])
        for point in ask("timeline", Logs.logged)["rows"]:
            self.press_on_chart(Keys.HOME if point["ms"] == 0 else Keys.ARROW_RIGHT)
            self.wait_for_total(point["bytes"])
            self.assertEqual(self.table_rows(), rows_at(Logs.logged, point["ms"]))

    def test_marks_and_holes_are_in_the_table(self):
        self.open(Logs.pages[Logs.broken])
        self.run_script("document.getElementById('timeline-table').open = true")
        self.wait_for_paint()
        timeline = ask("timeline", Logs.broken)
        self.assertTrue(timeline["log"]["holes"])
        words = self.text("#timeline-body")
        self.assertIn("not all of it could be written", words)
        for mark in timeline["marks"]:
            if mark["ms"] >= timeline["log"]["first_ms"]:
                self.assertIn(mark["text"].replace("\x1b", "\ufffd"), words)

    def assert_doubts_are_said(self, recording):
        notes = [note.text for note in self.find_all("#notes li")]
        text = heapline("timeline", str(recording))
        doubts = re.findall(r"^(?:GAP|HOLE|LOST|note): .*", text, re.MULTILINE)
        self.assertTrue(doubts)
        for doubt in doubts:
            self.assertIn(doubt, notes)
        return doubts

    def test_what_is_missing_in_the_log_is_said_in_the_words_of_the_timeline(self):
        self.open(Logs.pages[Logs.broken])
        self.assert_doubts_are_said(Logs.broken)

    def test_an_early_end_of_the_log_is_said(self):
        recording = Files.folder / "short.hl"
        harness.make_recording(recording, "broken-log")
        for segment in sorted(recording.glob("memlog-*"))[-5:]:
            segment.unlink()
        self.open(Files.write_page("short", recording))
        self.assertTrue(any("before the process did" in doubt
                            for doubt in self.assert_doubts_are_said(recording)))

    def test_any_range_of_a_day_has_its_exact_maximum(self):
        self.open(Logs.pages[Logs.day])
        for from_x, to_x in ((-0.4, -0.38), (-0.1, 0.25), (0.3, 0.3)):
            self.drag(from_x, to_x)
            [ms] = moment_of(self.state())
            total = ask("top", Logs.day, "--at", str(ms))["total"]["inuse_bytes"]
            self.assertEqual(self.frames()["all"][0], total)
            shown = self.find("#timeline-state")
            [highest] = ask("timeline", Logs.day, "-n", "1", "--between",
                            shown.get_attribute("data-from-ms"),
                            str(int(shown.get_attribute("data-to-ms")) - 1))["rows"]
            self.assertEqual((highest["ms"], highest["bytes"]), (ms // 100 * 100, total))

    def test_a_log_that_cannot_be_read_leaves_the_rest_of_the_page(self):
        recording = Files.folder / "damaged.hl"
        harness.make_recording(recording, "logged")
        for segment in recording.glob("*.hll"):
            content = bytearray(segment.read_bytes())
            content[len(content) // 3] ^= 0xff
            segment.write_bytes(content)
        page = Files.folder / "damaged.html"
        said = subprocess.run([harness.HEAPLINE, "report", "-o", page, recording],
                              capture_output=True, text=True)
        self.assertEqual(said.returncode, 0)
        self.assertIn("nothing is shown over time", said.stderr)
        self.open(page)
        self.assertFalse(self.find("#timeline").is_displayed())


if __name__ == "__main__":
    harness.main(harness.missing_for_browser())
