# SPDX-License-Identifier: BSD-2-Clause
"""Flame graphs in a browser: what they draw, and what they do when clicked, typed at and resized."""

import contextlib
import json
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

import harness

with contextlib.suppress(ImportError):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

SVG = "{http://www.w3.org/2000/svg}"
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

SHOP = """\
main;open_shop;read_file 30000
main;open_shop;parse;read_file 10000
main;serve;parse;grow 40000
main;serve;cart_add 19990
main;serve;cart_add;tiny;tinier 10
"""
GROWTH = """\
main;same 100 100
main;grew 100 200
main;new 0 50
main;gone;deep 70 0
"""
AWKWARD = 'f<a>&"b"]]><script>document.title="broken"</script>'


def flame(folded, *options):
    """What `heapline flame` writes about folded stacks."""
    ended = subprocess.run([harness.HEAPLINE, "flame", *options], input=folded.encode(),
                           capture_output=True, timeout=harness.TIMEOUT_S, check=True)
    return ended.stdout.decode()


def script_data(svg):
    for script in xml.etree.ElementTree.fromstring(svg).iter(SVG + "script"):
        if script.get("type") == "application/json":
            return json.loads(script.text)
    raise AssertionError("no data in the picture")


def numbers(text):
    """The numbers that flame_svg.c describes, without signs."""
    number = scale = 0
    for digit in map(DIGITS.index, text):
        number += (digit & 31) << scale
        scale += 5
        if digit < 32:
            yield number
            number = scale = 0


def signed(number):
    return -(number >> 1) if number & 1 else number >> 1


def decoded_rows(data):
    """(name, depth, value, self, base) of each frame, read without any of the script's code."""
    value, own, _, base = data["root"]
    stack = [(value, ["all", 0, value, own, base])]
    rows = [stack[0][1]]
    stream = numbers(data["frames"])
    for ended in stream:
        del stack[len(stack) - ended:]
        name = data["functions"][next(stream)][0]
        value = stack[-1][0] - next(stream)
        own = next(stream)
        if "other" in data:
            next(stream)
        base = signed(next(stream)) if data["diff"] else 0
        rows.append([name, len(stack), value, own, base])
        stack.append((value, rows[-1]))
    return rows


class Files(unittest.TestCase):
    """What is in the file, without a browser."""

    def test_the_data_of_the_script_are_the_rows_of_the_json(self):
        for folded in (SHOP, GROWTH):
            with self.subTest(folded=folded):
                rows = json.loads(flame(folded, "--json"))["rows"]
                self.assertEqual(decoded_rows(script_data(flame(folded))),
                                 [[row["name"], row["depth"], row["bytes"], row["self"],
                                   row.get("base", 0)] for row in rows])

    def test_without_script_all_but_the_narrow_frames_are_drawn_and_named(self):
        root = xml.etree.ElementTree.fromstring(flame(SHOP))
        frames = next(group for group in root.iter(SVG + "g") if group.get("id") == "frames")
        names = [text.text for text in frames.iter(SVG + "text")]
        self.assertEqual(sorted(names), sorted(["all", "main", "open_shop", "parse", "read_file",
                                                "read_file", "serve", "cart_add", "parse", "grow"]))

    def test_names_that_are_not_text_leave_the_picture_well_formed(self):
        data = script_data(flame(f"main;{AWKWARD}\x01\x1b[1m 7\n"))
        self.assertEqual(data["functions"][1][0], AWKWARD + "\x01\x1b[1m")


class Pictures(unittest.TestCase):
    """Each test opens a picture of its own, in the browser of the script."""

    @classmethod
    def setUpClass(cls):
        cls.page = harness.shared_browser()

    def open(self, folded, *options):
        folder = tempfile.TemporaryDirectory(prefix="heapline-flame-")
        self.addCleanup(folder.cleanup)
        path = Path(folder.name) / "x.svg"
        path.write_text(flame(folded, *options))
        harness.set_window(self.page, 1280, 700)
        harness.open_page(self.page, path)

    def tearDown(self):
        self.assertEqual(self.page.get_log("browser"), [])

    def script(self, source, *arguments):
        return self.page.execute_script(source, *arguments)

    def frames(self):
        """{label: [left, width]} of what is drawn and wide enough to be named."""
        return self.script("""return Object.fromEntries([...document.querySelectorAll('#frames > g')]
            .map(g => [g.getAttribute('aria-label'), [+g.firstChild.getAttribute('x'),
                +g.firstChild.getAttribute('width')]]))""")

    def names(self):
        return sorted(label.split(",")[0] for label in self.frames())

    def element(self, name):
        return self.page.find_element("xpath", f"//*[starts-with(@aria-label, '{name},')]")

    def keys(self, *keys):
        ActionChains(self.page).send_keys(*keys).perform()

    def hover(self, name):
        ActionChains(self.page).move_to_element(self.element(name)).perform()

    def tip(self):
        return self.script("""const tip = document.getElementById('tip');
            return tip.getAttribute('visibility') === 'visible' ?
                [...tip.querySelectorAll('text')].map(text => text.textContent) : []""")

    def focused(self):
        return (self.script("return document.activeElement.getAttribute('aria-label')") or "").split(",")[0]

    def found(self):
        """How many drawn frames are marked, and what is said of all."""
        return self.script("""return [document.querySelectorAll('#frames .found').length,
            document.querySelector('[role=status]').textContent]""")

    def text_of_box(self):
        return self.script("return document.getElementById('search').value")


class Drawing(Pictures):
    def test_frames_are_as_wide_as_their_share(self):
        self.open(SHOP)
        drawn = self.frames()
        left, width = drawn["serve, 58.6 KiB (60,000 bytes), 60.0%"]
        whole = drawn["main, 97.7 KiB (100,000 bytes), 100.0%"][1] + 1
        self.assertAlmostEqual(width + 1, whole * 0.6, places=1)
        self.assertAlmostEqual(left, 12 + whole * 0.4, places=1)

    def test_the_picture_fills_the_window_and_follows_it(self):
        self.open(SHOP)
        for width in (1280, 1000):
            harness.set_window(self.page, width, 700)
            harness.wait_until(self.page, lambda: self.script(
                "return document.documentElement.getAttribute('width')") == str(width))
            self.assertEqual(self.frames()["all, 97.7 KiB (100,000 bytes), 100.0%"], [12, width - 25])

    def test_nothing_is_fetched_from_elsewhere(self):
        self.open(SHOP)
        self.assertEqual(self.script("return performance.getEntriesByType('resource').length"), 0)

    def test_icicles_have_the_root_on_top_and_flames_at_the_bottom(self):
        for options, root_is_above in (((), True), (("--flames-up",), False)):
            self.open(SHOP, *options)
            above = self.element("all").rect["y"] < self.element("main").rect["y"]
            self.assertEqual(above, root_is_above)

    def test_a_deep_picture_opens_with_its_title_in_view(self):
        deep = ";".join(f"f{i}" for i in range(300)) + " 1000\n"
        for options in ((), ("--flames-up",)):
            self.open(deep, *options)
            top, bottom = self.script("""const box = document.querySelector(".title")
                .getBoundingClientRect(); return [box.top, box.bottom]""")
            self.assertGreaterEqual(top, 0)
            self.assertLessEqual(bottom, 60)

    def test_a_dark_system_gets_a_dark_picture(self):
        def lightness(selector):
            color = self.script("return getComputedStyle(document.querySelector(arguments[0])).fill", selector)
            return sum(map(int, color.strip("rgb()").split(",")))

        self.open(SHOP)
        for dark, in_order in ((False, lambda a, b: a > b), (True, lambda a, b: a < b)):
            harness.set_system_dark(self.page, dark)
            self.assertTrue(in_order(lightness("#paper"), lightness(".title")))
            self.assertTrue(in_order(lightness("#frames rect"), lightness("#frames text")))
        harness.set_system_dark(self.page, False)

    def test_reversed_frames_have_their_callers_above_them(self):
        self.open(SHOP, "--reversed")
        self.assertIn("read_file, 39.1 KiB (40,000 bytes), 40.0%", self.frames())

    def test_names_stay_text(self):
        self.open(f"main;{AWKWARD} 7\n")
        self.assertEqual(self.script("return document.title"), "standard input: in use, bytes")
        self.assertEqual(self.script("return document.querySelectorAll('script').length"), 2)
        self.page.find_elements("css selector", "#frames > g")[2].click()
        self.assertIn(f"{AWKWARD}, 7 bytes, 100.0%", self.frames())

    def test_of_many_frames_only_those_that_can_be_seen_are_drawn(self):
        self.open("".join(f"main;f{i % 317};g{i % 331};h{i} {i % 13 + 1}\n" for i in range(33000)))
        self.assertLess(self.script("return document.querySelectorAll('#frames > *').length"), 10000)
        self.page.find_elements("css selector", "#frames > rect")[0].click()
        self.assertGreater(self.script("return document.querySelectorAll('#frames > *').length"), 200)

    def test_an_empty_picture_says_so_and_has_one_frame(self):
        self.open("main 0\n")
        self.assertEqual(list(self.frames()), ["all, 0 bytes, -"])


class Zoom(Pictures):
    def test_a_click_zooms_and_keeps_the_callers(self):
        self.open(SHOP)
        whole = self.frames()["main, 97.7 KiB (100,000 bytes), 100.0%"]
        self.element("serve").click()
        self.assertEqual(self.names(), ["all", "cart_add", "grow", "main", "parse", "serve"])
        self.assertEqual(self.frames()["serve, 58.6 KiB (60,000 bytes), 60.0%"], whole)

    def test_the_button_resets(self):
        self.open(SHOP)
        before = self.frames()
        button = self.page.find_element("id", "reset")
        self.assertEqual(button.get_attribute("visibility"), "hidden")
        self.element("grow").click()
        self.assertNotEqual(self.frames(), before)
        button.click()
        self.assertEqual(self.frames(), before)

    def test_what_was_too_narrow_is_drawn_when_zoomed_to(self):
        self.open(SHOP + "main;serve;cart_add;odd 2000\n")
        self.assertNotIn("tinier", self.names())
        self.element("cart_add").click()
        narrow = "[...document.querySelectorAll('#frames > *')].at(-3)"
        self.script(f"{narrow}.dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
        self.assertIn("odd", self.names())


class Keyboard(Pictures):
    def test_arrows_move_among_frames(self):
        for options, inward, outward in (((), Keys.ARROW_DOWN, Keys.ARROW_UP),
                                         (("--flames-up",), Keys.ARROW_UP, Keys.ARROW_DOWN)):
            self.open(SHOP, *options)
            self.keys(inward)
            self.assertEqual(self.focused(), "all")
            path = []
            for key in (inward, inward, Keys.ARROW_LEFT, inward, Keys.ARROW_LEFT, outward):
                self.keys(key)
                path.append(self.focused())
            self.assertEqual(path, ["main", "serve", "open_shop", "read_file", "parse", "open_shop"])

    def test_tab_moves_too_and_the_tooltip_follows(self):
        self.open(SHOP)
        self.keys(Keys.TAB, Keys.TAB)
        self.assertEqual(self.focused(), "main")
        self.assertEqual(self.tip()[0], "main")

    def test_enter_zooms_and_escape_resets(self):
        self.open(SHOP)
        before = self.frames()
        self.keys(Keys.TAB, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)
        self.assertEqual(self.names(), ["all", "cart_add", "grow", "main", "parse", "serve"])
        self.assertEqual(self.focused(), "serve")
        self.keys(Keys.ESCAPE)
        self.assertEqual(self.frames(), before)


class Search(Pictures):
    def test_matches_are_marked_and_their_share_is_shown(self):
        self.open(SHOP)
        self.keys("/")
        self.keys("^PARSE$|read")
        self.assertEqual(self.found(), [4, "80.0% matched: 78.1 KiB in 4 frames"])

    def test_what_matches_above_a_match_counts_once(self):
        self.open(SHOP)
        self.keys("/", "main|serve|cart")
        self.assertEqual(self.found()[1], "100.0% matched: 97.7 KiB in 3 frames")

    def test_matches_stay_marked_when_zoomed_and_the_second_escape_ends_the_search(self):
        self.open(SHOP)
        self.keys("/", "cart")
        self.element("serve").click()
        self.assertEqual(self.found()[0], 1)
        self.keys(Keys.ESCAPE)
        self.assertIn("open_shop", self.names())
        self.assertEqual(self.found()[0], 1)
        self.keys(Keys.ESCAPE)
        self.assertEqual(self.found(), [0, ""])

    def test_escape_in_the_box_ends_the_search(self):
        self.open(SHOP)
        self.keys("/", "cart", Keys.ESCAPE)
        self.assertEqual(self.found(), [0, ""])

    def test_control_f_and_the_button_open_the_box(self):
        self.open(SHOP)
        ActionChains(self.page).key_down(Keys.CONTROL).send_keys("f").key_up(Keys.CONTROL).perform()
        self.keys("grow")
        self.assertEqual(self.text_of_box(), "grow")
        self.open(SHOP)
        self.page.find_element("id", "find").click()
        self.keys("serve")
        self.assertEqual(self.text_of_box(), "serve")

    def test_what_is_no_expression_is_said(self):
        self.open(SHOP)
        self.keys("/", "(")
        self.assertEqual(self.found(), [0, "not a regular expression"])


class Tooltips(Pictures):
    def test_a_frame_tells_its_name_value_and_share(self):
        self.open(SHOP)
        self.hover("cart_add")
        self.assertEqual(self.tip()[:3], ["cart_add", "19.5 KiB (20,000 bytes), 20.0% of all",
                                          "itself 19.5 KiB (19,990 bytes)"])

    def test_compared_frames_tell_both_values(self):
        self.open(GROWTH)
        self.hover("grew")
        self.assertEqual(self.tip()[1:3], ["200 bytes, 57.1% of all",
                                           "before 100 bytes: +100 B, +100.0%"])

    def test_other_counts_are_plain_numbers(self):
        self.open(SHOP, "--countname", "samples")
        self.hover("cart_add")
        self.assertEqual(self.tip()[1], "20,000 samples, 20.0% of all")


if __name__ == "__main__":
    harness.main(harness.missing_for_browser())
