# SPDX-License-Identifier: BSD-2-Clause
"""Pages of real recordings, and what tests do on them and read from them."""

import contextlib
import re
import shutil
import tempfile
import unittest
from pathlib import Path

import harness
from harness import heapline

with contextlib.suppress(ImportError):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

ROW_HEIGHT = 20  # of the flame graph, in pixels
EVIL_STACKS = ("main;</script><img src=x onerror=alert(1)> 100\n"
               "main;\"quoted'&amp<b> 20\n"
               "main;\u202eevil\x07\x01ctl 30\n"
               "main;${alert(1)}</style> 40\n"
               "main;round 1280\n")

# Every row of the table in a panel: its name, then its exact figures.
READ_TABLE = """
    const panel = document.getElementById(arguments[0]);
    for (let more = panel.querySelector('.table-view > button'); !more.hidden;) more.click();
    return [...panel.querySelectorAll('tbody tr')].map(row => [
        row.querySelector('.name').textContent, row.querySelector('.place').textContent,
        ...[...row.querySelectorAll('[data-figure]')].map(cell => Number(cell.dataset.figure))]);
"""


def bare(name):
    """Without the source that the page puts behind a name which functions of several scripts have."""
    return re.sub(r" \([^()]*\)$", "", name)


class Files:
    """Recordings and pages, made once for all tests."""

    @classmethod
    def make_folder(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="heapline-browser-"))

    @classmethod
    def make(cls):
        cls.make_folder()
        cls.before, cls.after = cls.folder / "before.hl", cls.folder / "after.hl"
        harness.record_demo(cls.before, 1)
        harness.record_demo(cls.after, 2)
        cls.evil = cls.folder / "evil.folded"
        cls.evil.write_text(EVIL_STACKS)
        cls.small_before, cls.small_after = cls.folder / "b.folded", cls.folder / "a.folded"
        cls.small_before.write_text("main;same 100\nmain;grew 50\nmain;shrank 9\n")
        cls.small_after.write_text("main;same 100\nmain;grew 80\nmain;shrank 4\nmain;new 7\n")
        cls.page = cls.write_page("one", cls.after)
        cls.diff_page = cls.write_page("diff", cls.before, cls.after)
        cls.evil_page = cls.write_page("evil", cls.evil)

    @classmethod
    def write_page(cls, name, *recordings):
        page = cls.folder / f"{name}.html"
        heapline("report", "-o", str(page), *map(str, recordings))
        return page

    @classmethod
    def remove(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)


class PageCase(unittest.TestCase):
    """Each test loads the page afresh, in the browser of the script."""

    maxDiff = None
    dark = False

    @classmethod
    def setUpClass(cls):
        cls.driver = harness.shared_browser()
        harness.set_system_dark(cls.driver, cls.dark)

    def open(self, page):
        self.driver.get_log("browser")  # forgets what came before
        harness.open_page(self.driver, page)

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def find_all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def run_script(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def text(self, selector):
        return self.run_script("return document.querySelector(arguments[0]).textContent", selector)

    def choose(self, *keys):
        """Clicks on radio buttons: values, units or widths."""
        for key in keys:
            self.find(f"input[value='{key}'] + .face").click()

    def show_tab(self, panel):
        self.find(f"#{panel}-tab").click()

    def table(self, panel):
        self.show_tab(panel)
        return self.run_script(READ_TABLE, panel)

    def press(self, *keys):
        """Presses keys, whatever has the focus."""
        ActionChains(self.driver).send_keys(*keys).perform()

    def point_at_row(self, event, row):
        """Moves to the middle of a row of the flame graph, or clicks there."""
        self.run_script("""
            const [event, y] = arguments;
            const canvas = document.getElementById('flame-canvas');
            document.getElementById('flame-scroll').scrollTop = 0;
            const box = canvas.getBoundingClientRect();
            canvas.dispatchEvent(new MouseEvent(event, {bubbles: true,
                clientX: box.left + box.width / 2, clientY: box.top + y}));
        """, event, (row + 0.5) * ROW_HEIGHT)

    def wait_for_paint(self):
        self.run_script("return new Promise(resolve => requestAnimationFrame(() => setTimeout(resolve)))")

    def frames(self):
        """The flame graph's table: {name: (total, own)} by the sentence of its rows."""
        self.run_script("document.getElementById('frames').open = true")
        self.run_script("return new Promise(resolve => setTimeout(resolve))")
        rows = self.run_script("""
            return [...document.querySelectorAll('#frames-body tr')].map(row => [
                row.querySelector('th').textContent,
                ...[...row.querySelectorAll('[data-figure]')].map(cell => Number(cell.dataset.figure))]);
        """)
        return {name: tuple(figures) for name, *figures in rows}

    def zoomed_frame(self):
        self.frames()
        return self.text("#frames-body strong")

    def assert_quiet(self):
        """Nothing was complained of, and nothing was loaded."""
        self.assertEqual(self.driver.get_log("browser"), [])
        self.assertEqual(self.run_script("return performance.getEntriesByType('resource').length"), 0)
