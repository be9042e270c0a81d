# SPDX-License-Identifier: BSD-2-Clause
"""Clicks through the page of `heapline report`, and compares its figures with other reports."""

import contextlib
import re
from collections import Counter, defaultdict

import harness
from harness import ask, heapline
from report_page import Files, PageCase, READ_TABLE, bare

with contextlib.suppress(ImportError):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

VALUES = {"peak": ("bytes", "objects"), "inuse": ("bytes", "objects"),
          "alloc": ("bytes", "objects"), "temporary": ("objects",), "slack": ("bytes",)}


def setUpModule():
    Files.make()


def tearDownModule():
    Files.remove()


class Figures(PageCase):
    def setUp(self):
        self.open(Files.page)

    def tearDown(self):
        self.assert_quiet()

    def test_functions_have_the_figures_of_top_in_every_value_and_unit(self):
        for value, units in VALUES.items():
            for unit in units:
                self.choose(value, unit)
                rows = ask("top", Files.after, "--value", value, "--unit", unit, "-n", "0")["rows"]
                expected = Counter((bare(row["name"]), row[f"flat_{unit}"], row[f"cum_{unit}"])
                                   for row in rows)
                found = Counter((bare(name), flat, cum)
                                for name, _, flat, cum, *_ in self.table("functions"))
                with self.subTest(value=value, unit=unit):
                    self.assertEqual(found, expected)

    def test_lines_have_the_figures_of_lines(self):
        rows = ask("lines", Files.after, "--value", "alloc")["rows"]
        expected = Counter((f"{row['file']}:{row['line']}" if row["file"] else row["name"],
                            row["bytes"]) for row in rows)
        self.choose("alloc")
        found = Counter((name, flat) for name, _, flat, *_ in self.table("lines") if flat)
        self.assertEqual(found, expected)

    def test_totals_are_those_of_every_report(self):
        total = ask("top", Files.after)["total"]
        exact = self.run_script("return Object.fromEntries([...document.querySelectorAll("
                                "'.tiles label')].map(tile => [tile.querySelector('input').value,"
                                "tile.querySelector('.tile-figure').title]))")
        for value, units in VALUES.items():
            words = {"bytes": "bytes", "objects": "blocks"}
            self.assertEqual(exact[value], ", ".join(
                f"{total[f'{value}_{unit}']:,} {words[unit]}" for unit in units))

    def test_the_call_tree_has_the_sums_of_folded_stacks(self):
        sums = Counter()
        for row in ask("folded", Files.after, "--value", "peak")["rows"]:
            for depth in range(1, len(row["stack"]) + 1):
                sums[tuple(row["stack"][:depth])] += row["bytes"]
        self.show_tab("tree")
        path, compared = [], 0
        for level, name, figure in self.tree_rows():
            path[level - 1:] = [name]
            if level > 1:
                self.assertEqual(figure, sums[tuple(path[1:])], path)
                compared += 1
        self.assertGreater(compared, 10)

    def tree_rows(self):
        return self.run_script("""
            return [...document.querySelectorAll('.tree tbody tr')].filter(row => row.tabIndex > -2 &&
                row.querySelector('[data-figure]')).map(row => [
                Number(row.getAttribute('aria-level')), row.querySelector('.name').textContent,
                Number(row.querySelector('[data-figure]').dataset.figure)]);
        """)

    def test_the_reversed_flame_graph_begins_with_the_flat_figures_of_top(self):
        rows = ask("top", Files.after, "-n", "0")["rows"]
        self.find("#reversed").click()
        frames = self.frames()
        del frames["all"]
        self.assertGreater(len(frames), 20)
        for name, (figure, *_) in frames.items():
            source = name.removeprefix(bare(name))[2:-1]
            self.assertEqual(figure, sum(row["flat_bytes"] for row in rows if row["name"] == bare(name) and
                                         (row["file"] or "").endswith(source)), name)

    def test_reversed_stacks_end_at_their_outermost_frame(self):
        self.open(Files.evil_page)
        self.find("#reversed").click()
        self.point_at_row("click", 1)
        name = self.zoomed_frame()
        self.assertEqual(name, "round")  # the widest lies in the middle
        self.assertEqual(self.frames()["round"], (1280, 0))
        self.assertEqual(self.frames()["main"], (1280, 1280))

    def test_the_value_that_was_asked_for_is_shown_first(self):
        page = Files.folder / "blocks.html"
        heapline("report", "-o", str(page), "--value", "alloc", "--unit", "objects", str(Files.after))
        self.open(page)
        total = ask("top", Files.after)["total"]["alloc_objects"]
        self.assertEqual(self.frames()["all"][0], total)

    def test_a_value_without_the_unit_switches_the_unit_for_as_long_as_it_is_shown(self):
        self.choose("temporary")
        self.assertEqual(self.frames()["all"][0],
                         ask("top", Files.after)["total"]["temporary_objects"])
        self.assertFalse(self.find("input[value='bytes']").is_enabled())
        self.choose("peak")
        self.assertEqual(self.frames()["all"][0], ask("top", Files.after)["total"]["peak_bytes"])


class FlameGraph(PageCase):
    def setUp(self):
        self.open(Files.page)

    def tearDown(self):
        self.assert_quiet()

    def test_a_click_zooms_and_a_button_zooms_out(self):
        self.assertFalse(self.find("#zoom-out").is_enabled())
        self.point_at_row("click", 2)
        name = self.zoomed_frame()
        self.assertNotEqual(name, "all")
        top = {row["name"]: row["cum_bytes"] for row in ask("top", Files.after, "-n", "0")["rows"]}
        self.assertEqual(self.frames()[name][0], top[name])
        self.find("#zoom-out").click()
        self.assertEqual(self.zoomed_frame(), "all")

    def test_flames_that_go_up_have_their_root_at_the_bottom(self):
        self.point_at_row("click", 1)
        first = self.zoomed_frame()
        self.find("#zoom-out").click()
        self.find("#flames-up").click()
        self.press(Keys.TAB)  # onto the canvas
        self.press(Keys.ARROW_UP, Keys.ARROW_UP, Keys.ARROW_DOWN, Keys.ENTER)
        self.assertEqual(self.zoomed_frame(), first)

    def test_the_keyboard_moves_zooms_and_is_announced(self):
        self.run_script("document.getElementById('flame-canvas').focus()")
        self.press(Keys.ARROW_DOWN)
        said = self.text("#live")
        self.assertIn("100.0%", said)
        self.press(Keys.ENTER)
        self.assertEqual(self.zoomed_frame(), said.partition(":")[0])
        self.press(Keys.BACKSPACE)
        self.assertEqual(self.zoomed_frame(), "all")
        self.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER, Keys.ESCAPE)
        self.assertEqual(self.zoomed_frame(), "all")

    def test_a_pointer_over_a_frame_tells_about_it(self):
        self.point_at_row("mousemove", 0)
        total = ask("top", Files.after)["total"]["peak_bytes"]
        self.assertIn(f"{total:,} bytes", self.text("#tip"))
        self.assertIn("100.0%", self.text("#tip"))

    def test_a_search_sums_the_stacks_that_it_finds(self):
        self.press("/")
        self.press("main")
        found = int(self.find("#search-result").get_attribute("data-figure"))
        stacks = ask("folded", Files.after, "--value", "peak")["rows"]
        self.assertEqual(found, sum(row["bytes"] for row in stacks
                                    if any("main" in name.lower() for name in row["stack"])))
        self.assertEqual(self.text("#live"), self.text("#search-result"))
        self.press(Keys.ESCAPE)
        self.assertEqual(self.text("#search-result"), "")

    def test_a_search_is_an_expression_or_else_text(self):
        self.find("#search").send_keys("^PyDict|_main$")
        found = int(self.find("#search-result").get_attribute("data-figure"))
        stacks = ask("folded", Files.after, "--value", "peak")["rows"]
        self.assertEqual(found, sum(row["bytes"] for row in stacks if any(
            re.search("^PyDict|_main$", name, re.IGNORECASE) for name in row["stack"])))
        self.find("#search").clear()
        self.find("#search").send_keys("ma(")  # no expression
        self.assertEqual(self.text("#search-result"), "No function has that in its name")

    def test_a_search_that_finds_nothing_says_so(self):
        self.find("#search").send_keys("no such function")
        self.assertEqual(self.text("#search-result"), "No function has that in its name")

    def test_matches_are_drawn_in_another_colour(self):
        match = "return getComputedStyle(document.documentElement).getPropertyValue('--match').trim()"
        color = self.run_script(match).lstrip("#")
        self.find("#search").send_keys("main")
        self.wait_for_paint()
        count = self.run_script("""
            const canvas = document.getElementById('flame-canvas');
            const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
            let count = 0;
            for (let i = 0; i < pixels.length; i += 4)
                count += pixels[i] === arguments[0] && pixels[i + 1] === arguments[1] && pixels[i + 2] === arguments[2];
            return count;
        """, *bytes.fromhex(color))
        self.assertGreater(count, 1000)

    def test_the_table_of_frames_zooms_too(self):
        self.frames()
        button = self.find("#frames-body button")
        name = button.text
        self.run_script("arguments[0].click()", button)
        self.assertEqual(self.zoomed_frame(), name)
        self.assertTrue(self.find("#frames-body button").text.startswith("Out to all"))


class Tables(PageCase):
    def setUp(self):
        self.open(Files.page)
        self.show_tab("functions")

    def tearDown(self):
        self.assert_quiet()

    def heads(self):
        return {head.text.strip("▾▴ "): head for head in self.find_all("#functions thead th")}

    def column(self, place):
        return [row[place] for row in self.run_script(READ_TABLE, "functions")]

    def test_a_click_on_a_title_sorts_and_a_second_one_turns_the_order(self):
        self.assertEqual(self.heads()["Flat"].get_attribute("aria-sort"), "descending")
        self.assertEqual(self.column(2), sorted(self.column(2), reverse=True))
        self.heads()["Cum"].find_element(By.TAG_NAME, "button").click()
        self.assertEqual(self.heads()["Cum"].get_attribute("aria-sort"), "descending")
        self.assertEqual(self.heads()["Flat"].get_attribute("aria-sort"), "none")
        self.assertEqual(self.column(3), sorted(self.column(3), reverse=True))
        self.press(Keys.ENTER)  # the focus is still there
        self.assertEqual(self.heads()["Cum"].get_attribute("aria-sort"), "ascending")
        self.assertEqual(self.column(3), sorted(self.column(3)))
        self.assertEqual(self.text("#live"), "Sorted by Cum, ascending")

    def test_the_filter_keeps_matching_rows(self):
        everything = self.column(0)
        self.find("#functions input[type='search']").send_keys("Dict")
        found = self.run_script(READ_TABLE, "functions")
        self.assertTrue(0 < len(found) < len(everything))
        for name, place, *_ in found:
            self.assertIn("dict", f"{name} {place}".lower())
        self.assertIn(f"{len(found)} of", self.text("#live"))

    def test_a_name_leads_to_its_frames_in_the_flame_graph(self):
        rows = self.run_script(READ_TABLE, "functions")
        names = Counter(row[0] for row in rows)
        place = next(i for i, row in enumerate(rows) if names[row[0]] == 1 and row[3] > row[2])
        self.run_script("document.querySelectorAll('#functions button.name')[arguments[0]].click()", place)
        self.assertTrue(self.find("#flame").is_displayed())
        found = int(self.find("#search-result").get_attribute("data-figure"))
        self.assertEqual(found, rows[place][3])

    def test_the_call_tree_opens_and_closes_by_keyboard(self):
        self.show_tab("tree")
        first = self.find(".tree tbody tr")
        self.run_script("arguments[0].focus()", first)
        rows = len(self.find_all(".tree tbody tr"))
        self.press(Keys.ARROW_LEFT)
        self.assertEqual(first.get_attribute("aria-expanded"), "false")
        self.assertEqual(len(self.find_all(".tree tbody tr")), 1)
        self.press(Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
        self.assertEqual(first.get_attribute("aria-expanded"), "true")
        focused = self.driver.switch_to.active_element
        self.assertEqual(focused.get_attribute("aria-level"), "2")
        self.assertEqual(focused.get_attribute("aria-expanded"), "true")
        self.press(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
        self.assertEqual(self.driver.switch_to.active_element, first)
        self.assertGreater(rows, 10)

    def test_the_reversed_call_tree_begins_with_what_allocated(self):
        self.show_tab("tree")
        self.find("#tree-reversed").click()
        heaviest = ask("top", Files.after)["rows"][0]
        row = self.find_all(".tree tbody tr")[1]
        self.assertEqual(row.find_element(By.CSS_SELECTOR, ".name").text, heaviest["name"])
        self.assertEqual(int(row.find_element(By.CSS_SELECTOR, "[data-figure]").get_attribute(
            "data-figure")), heaviest["flat_bytes"])

    def test_tabs_follow_the_arrow_keys(self):
        self.press(Keys.ARROW_RIGHT)
        self.assertTrue(self.find("#tree").is_displayed())
        self.assertFalse(self.find("#functions").is_displayed())
        self.assertEqual(self.find("#tree-tab").get_attribute("aria-selected"), "true")
        self.press(Keys.HOME)
        self.assertTrue(self.find("#flame").is_displayed())


    def test_a_second_column_orders_what_is_equal_in_the_first(self):
        self.heads()["Blocks"].find_element(By.TAG_NAME, "button").click()
        name = self.heads()["Function"].find_element(By.TAG_NAME, "button")
        self.run_script("arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true, shiftKey: true}))",
                        name)
        rows = self.run_script(READ_TABLE, "functions")
        blocks = Counter(row[-1] for row in rows)
        self.assertGreater(blocks.most_common(1)[0][1], 2)  # else nothing is equal
        self.assertEqual([(row[-1], row[0]) for row in rows],
                         sorted(((row[-1], row[0]) for row in rows), key=lambda pair: (-pair[0], pair[1])))
        self.assertEqual(self.text("#live"), "Sorted by Blocks, descending, then by Function, ascending")


class Filters(PageCase):
    """What the reader leaves out, against the same in the command line."""

    def setUp(self):
        self.open(Files.page)

    def tearDown(self):
        self.assert_quiet()

    def add(self, role, text):
        self.run_script("document.getElementById('filter-role').value = arguments[0]", role)
        self.find("#filter-text").send_keys(text, Keys.ENTER)

    def assert_as_with(self, *options, recording=None, more_than=3):
        rows = ask("top", recording or Files.after, "-n", "0", *options)["rows"]
        expected = Counter((bare(row["name"]), row["flat_bytes"], row["cum_bytes"]) for row in rows
                           if row["flat_bytes"] or row["cum_bytes"])
        found = Counter((bare(name), flat, cum) for name, _, flat, cum, *_ in self.table("functions")
                        if flat or cum)
        self.assertEqual(found, expected)
        self.assertGreater(len(found), more_than)

    def test_filters_choose_among_what_is_shown_and_mind_letters_case(self):
        stacks = Files.folder / "plumbing.txt"
        stacks.write_text("main;serve;handle;std::map::operator[];my_alloc;xmalloc 500\n"
                          "main;serve;log_line;xmalloc 70\nmain;Serve;xmalloc 9\n")
        page = Files.write_page("plumbing", stacks)
        for role, text in (("focus", "xmalloc"), ("focus", "serve"), ("focus", "std::"),
                           ("ignore", "xmalloc"), ("ignore", "Serve"), ("hide", "my_alloc"),
                           ("hide", "xmalloc|log_line")):
            with self.subTest(role=role, text=text):
                self.open(page)
                self.add(role, text)
                self.assert_as_with(f"--{role}", text, recording=stacks, more_than=-1)

    def test_filters_show_what_top_shows_with_them(self):
        for role in ("focus", "ignore", "hide"):
            with self.subTest(role=role):
                self.open(Files.page)
                self.add(role, "PyDict|_json")
                self.assert_as_with(f"--{role}", "PyDict|_json")

    def test_filters_add_up_and_go_one_by_one(self):
        self.add("focus", "decode_documents")
        self.add("hide", "^JSON")
        self.assert_as_with("--focus", "decode_documents", "--hide", "^JSON")
        self.find("#filters li:first-child button").click()
        self.assertEqual(self.text("#filters"), "hidden: ^JSON×")
        self.find("#filters li button").click()
        self.assert_as_with()

    def test_hidden_frames_leave_the_flame_graph_and_the_trees(self):
        self.open(Files.evil_page)
        self.add("hide", "^main$")
        self.assertEqual(self.frames()["round"], (1280, 1280))
        self.assertNotIn("main", self.frames())

    def test_a_thread_shows_what_top_shows_of_it(self):
        recording = Files.folder / "two.hl"
        harness.make_recording(recording, "two")
        self.open(Files.write_page("two", recording))
        choices = self.run_script("return [...document.querySelectorAll('#thread option')].map(o => o.text)")
        self.assertGreater(len(choices), 2)
        for place, choice in enumerate(choices[1:]):
            tid = re.search(r" (\d+) of process (\d+)", choice)
            self.run_script("""const select = document.getElementById('thread');
                select.value = arguments[0]; select.dispatchEvent(new Event('change'));""", str(place))
            self.choose("alloc")
            rows = ask("top", recording, "-n", "0", "--value", "alloc", "--thread", tid[1], "--process", tid[2])["rows"]
            self.assertEqual(Counter((name, flat) for name, _, flat, *_ in self.table("functions") if flat),
                             Counter((row["name"], row["flat_bytes"]) for row in rows if row["flat_bytes"]), choice)

    def test_a_link_makes_every_choice_again(self):
        self.add("ignore", "Dict")
        self.choose("alloc", "objects")
        self.find("#reversed").click()
        self.point_at_row("click", 1)
        zoomed, frames = self.zoomed_frame(), self.frames()
        self.show_tab("sandwich")
        link = self.driver.current_url
        self.assertIn("#", link)
        self.driver.get("about:blank")
        self.driver.get(link)
        harness.wait_until(self.driver, lambda: self.run_script(
            "return performance.getEntriesByName('interactive').length"))
        self.assertTrue(self.find("#sandwich").is_displayed())
        self.show_tab("flame")
        self.assertEqual(self.zoomed_frame(), zoomed)
        self.assertEqual(self.frames(), frames)
        self.assertEqual(self.text("#filters"), "without: Dict×")

    def test_a_link_that_makes_no_sense_does_no_harm(self):
        self.driver.get("about:blank")
        self.driver.get(Files.page.as_uri() + "#thread=99&range=5&value=x&unit=y&tab=z&frame=no&function=no&hide-re=(")
        harness.wait_until(self.driver, lambda: self.run_script(
            "return performance.getEntriesByName('interactive').length"))
        self.assertTrue(self.find("#flame").is_displayed())


class CallersAndCallees(PageCase):
    def setUp(self):
        self.open(Files.page)

    def tearDown(self):
        self.assert_quiet()

    def rows(self, panel):
        return self.run_script("""return [...document.querySelectorAll(`#${arguments[0]} tbody tr`)].map(row => [
            Number(row.getAttribute('aria-level')), row.querySelector('.name').textContent,
            Number(row.querySelector('[data-figure]').dataset.figure)])""", panel)

    def test_a_function_stands_between_what_called_it_and_what_it_called(self):
        top = ask("top", Files.after, "-n", "0")["rows"]
        row = next(row for row in top if row["cum_bytes"] > row["flat_bytes"] > 0)
        self.show_tab("sandwich")
        box = self.find("#sandwich-name")
        self.run_script("arguments[0].select()", box)
        box.send_keys(row["name"], Keys.ENTER)
        callers, callees = Counter(), Counter()
        for stack in ask("folded", Files.after, "--value", "peak")["rows"]:
            if row["name"] in stack["stack"]:
                place = stack["stack"].index(row["name"])
                callers[stack["stack"][place - 1]] += stack["bytes"]
                if len(stack["stack"]) > place + 1:
                    callees[stack["stack"][place + 1]] += stack["bytes"]
        for panel, expected in (("callers", callers), ("callees", callees)):
            rows = self.rows(panel)
            self.assertEqual(rows[0], [1, row["name"], row["cum_bytes"]])
            self.assertEqual({name: figure for level, name, figure in rows if level == 2},
                             {name: figure for name, figure in expected.items() if figure})

    def test_the_menu_of_a_frame_leads_there_and_copies(self):
        self.point_at_row("click", 1)
        name = self.zoomed_frame()
        self.run_script("document.getElementById('flame-canvas').focus()")
        self.press("m")
        entries = [button.text for button in self.find_all("#menu button")]
        self.assertEqual(entries, ["Callers and callees", "Find in the flame graph", "Only stacks with it",
                                   "No stacks with it", "Hide frames of it", "Copy its name", "Copy the stack to it"])
        self.press(Keys.END, Keys.ENTER)
        harness.wait_until(self.driver, lambda: self.text("#live") == "Copied the stack")
        self.press("m", Keys.ESCAPE)
        self.assertFalse(self.find("#menu").is_displayed())
        self.press("m", Keys.ENTER)
        self.assertTrue(self.find("#sandwich").is_displayed())
        self.assertEqual(self.find("#sandwich-name").get_attribute("value"), name)

    def test_the_menu_of_a_row_hides_its_function(self):
        self.show_tab("functions")
        name = self.table("functions")[0][0]
        self.run_script("document.querySelector('#functions button.more').click()")
        self.find_all("#menu button")[4].click()
        self.assertEqual(self.text("#filters"), f"hidden: {name}×")
        self.assertNotIn(name, [row[0] for row in self.table("functions")])


class Comparison(PageCase):
    def setUp(self):
        self.open(Files.diff_page)
        self.choose("alloc")

    def tearDown(self):
        self.assert_quiet()

    def sums(self, recording):
        """By name, which several functions of a script may have."""
        sums = defaultdict(Counter)
        for row in ask("top", recording, "--value", "alloc", "-n", "0")["rows"]:
            sums[bare(row["name"])].update(flat=row["flat_bytes"], cum=row["cum_bytes"])
        return sums

    def test_functions_have_the_figures_of_both_and_their_growth(self):
        before, after = self.sums(Files.before), self.sums(Files.after)
        expected = {name: tuple(figure for key in ("flat", "cum")
                                for figure in (before[name][key], after[name][key],
                                               after[name][key] - before[name][key]))
                    for name in before.keys() | after.keys()}
        found = {}
        for name, _, *figures in self.table("functions"):
            found[bare(name)] = tuple(map(sum, zip(figures, found.get(bare(name), (0,) * 6))))
        self.assertEqual(found, expected)

    def test_the_widths_can_be_those_of_before_of_after_and_of_growth(self):
        totals = {recording: ask("top", recording)["total"]["alloc_bytes"]
                  for recording in (Files.before, Files.after)}
        self.assertEqual(self.frames()["all"][0], totals[Files.after])
        for width in ("before", "growth", "after"):
            self.choose(width)
            self.point_at_row("click", 1)
            self.assertNotEqual(self.zoomed_frame(), "all", width)
            self.find("#zoom-out").click()

    def test_growth_draws_what_grew_and_says_how_much_shrank(self):
        self.open(Files.write_page("small", Files.small_before, Files.small_after))
        self.choose("growth")
        self.point_at_row("click", 1)
        frames = self.frames()
        self.assertEqual(frames.pop("Out to all"), frames["main"])
        self.assertEqual(frames, {"main": (191, 0), "grew": (80, 80), "new": (7, 7)})
        self.assertEqual(self.text("#undrawn"), "Not drawn: 1 stack that shrank, -5 B in all")
        self.choose("before")
        self.assertEqual(set(self.frames()), {"Out to all", "main", "same", "grew", "shrank"})
        self.assertEqual(self.text("#undrawn"), "")

    def test_the_tip_tells_the_growth(self):
        self.point_at_row("mousemove", 0)
        self.assertIn("before", self.text("#tip"))
        self.assertIn("growth+", self.text("#tip"))

    def test_the_earlier_recording_is_named(self):
        self.assertIn("compared with", self.text("#facts"))
        self.assertIn("before.hl", self.text("#facts"))


class Head(PageCase):
    def tearDown(self):
        self.assert_quiet()

    def open_made(self, name):
        recording = Files.folder / f"{name}.hl"
        harness.make_recording(recording, name)
        self.open(Files.write_page(name, recording))

    def test_what_was_lost_is_said_in_the_words_of_other_reports(self):
        self.open_made("lossy")
        notes = [note.text for note in self.find_all("#notes li")]
        self.assertGreater(len(notes), 3)
        text = heapline("top", str(Files.folder / "lossy.hl"))
        for note in notes:
            self.assertIn(note, text)

    def test_modules_without_names_say_what_helps(self):
        self.open(Files.page)
        expected = {(row["path"].rpartition("/")[2], row["reason"])
                    for row in ask("info", Files.after)["modules"]
                    if row["reason"] and row["symbols"] != "unused"}
        self.run_script("document.getElementById('modules').open = true")
        found = {(row.find_element(By.TAG_NAME, "th").text,
                  row.find_elements(By.TAG_NAME, "td")[1].text)
                 for row in self.find_all("#modules-body tr")}
        self.assertEqual(found, expected)

    def test_pages_without_anything_in_them_open_all_the_same(self):
        for name in ("empty", "none"):
            self.open_made(name)
            for panel in ("functions", "tree", "sandwich", "lines", "flame"):
                self.show_tab(panel)
            self.assertEqual(self.frames(), {"all": (0, 0)})
            self.assertIn("EMPTY", self.text("#notes"))
            self.assert_quiet()


class Looks(PageCase):
    dark = True

    def background(self):
        color = self.run_script("return getComputedStyle(document.documentElement).backgroundColor")
        return sum(map(int, color.strip("rgb()").split(",")))

    def test_the_page_is_as_dark_as_the_system_until_the_switch_says_otherwise(self):
        self.open(Files.page)
        self.assertLess(self.background(), 150)
        self.find("#theme").click()
        self.assertEqual(self.text("#theme"), "Theme: light")
        self.assertGreater(self.background(), 600)
        self.find("#theme").click()
        self.assertLess(self.background(), 150)
        self.find("#theme").click()
        harness.set_system_dark(self.driver, False)
        harness.wait_until(self.driver, lambda: self.background() > 600)
        harness.set_system_dark(self.driver, True)
        self.assert_quiet()

    def test_a_small_window_is_never_scrolled_sideways(self):
        harness.set_window(self.driver, 800, 600)
        self.open(Files.diff_page)
        for panel in ("flame", "functions", "tree", "sandwich", "lines"):
            self.show_tab(panel)
            self.assertLessEqual(self.run_script("return document.documentElement.scrollWidth"), 800)
        harness.set_window(self.driver, 1280, 900)

    def test_all_tabs_are_seen_in_a_narrow_window(self):
        harness.set_window(self.driver, 500, 800)
        self.open(Files.page)
        rights = self.run_script("""return [...document.querySelectorAll('[role=tab]')]
            .map(tab => tab.getBoundingClientRect().right)""")
        harness.set_window(self.driver, 1280, 900)
        self.assertLessEqual(max(rights), 500)

    def test_every_control_has_a_name(self):
        self.open(Files.diff_page)
        for panel in ("flame", "functions", "tree", "lines"):
            self.show_tab(panel)
        nameless = self.run_script("""
            return [...document.querySelectorAll('button, input, canvas, [role=tablist], ul[aria-label]')]
                .filter(e => !(e.textContent.trim() || e.getAttribute('aria-label') ||
                    (e.labels && e.labels[0] && e.labels[0].textContent.trim())))
                .map(e => e.outerHTML.slice(0, 100));
        """)
        self.assertEqual(nameless, [])


class Untrusted(PageCase):
    def setUp(self):
        self.open(Files.evil_page)

    def test_names_are_text_whatever_they_say(self):
        names = {row[0] for row in self.table("functions")}
        self.assertIn("</script><img src=x onerror=alert(1)>", names)
        self.assertIn("\"quoted'&amp<b>", names)
        self.assertIn("\ufffdevil\ufffd\ufffdctl", names)
        self.assertEqual(self.find_all("img, b"), [])
        self.assert_quiet()

    def test_hidden_characters_are_nowhere_in_the_page(self):
        for panel in ("tree", "lines", "functions", "flame"):
            self.show_tab(panel)
        self.frames()
        markup = self.run_script("return document.body.outerHTML")
        self.assertNotIn("\u202e", markup)
        self.assertNotIn("\x07", markup)

    def test_only_the_known_value_is_offered(self):
        self.assertEqual(len(self.find_all(".tiles input")), 1)
        self.assertEqual(self.frames()["all"][0], 190 + 1280)

    def test_figures_are_rounded_as_in_text(self):
        self.assertIn("1.2 KiB", heapline("top", str(Files.evil)))
        self.show_tab("functions")
        cell = self.find("#functions tbody td[data-figure='1280']")
        self.assertEqual(cell.text, "1.2 KiB")


if __name__ == "__main__":
    harness.main(harness.missing_for_browser())
