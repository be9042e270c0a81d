# SPDX-License-Identifier: BSD-2-Clause
"""Makes pages of real recordings, and opens them in a headless Chromium that tests click through.

Every test script ends with `harness.main()`. Meson sets HL_BUILD, the build directory, and
HL_MAKE_RECORDING, a program that makes recordings by hand.
"""

import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
HEAPLINE = Path(os.environ.get("HL_BUILD", TREE / "build")).resolve() / "heapline"
MAKE_RECORDING = os.environ.get("HL_MAKE_RECORDING", HEAPLINE.parent / "tests/cli/make_recording")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync")
TIMEOUT_S = 600  # ends a hang; on a busy machine nothing here takes a tenth of it
POLL_S = 0.02
SKIPPED_STATUS = 77  # meson's


def missing_for_browser():
    """What is not installed that these tests need; "" when all is."""
    absent = [program for program in ("chromium", "chromedriver") if not shutil.which(program)]
    try:
        import selenium  # noqa: F401
    except ImportError:
        absent.append("python3-selenium")
    return ", ".join(absent)


# ---- heapline ----

def heapline(*words):
    """What heapline writes."""
    ended = subprocess.run([HEAPLINE, *words], capture_output=True, text=True, timeout=TIMEOUT_S)
    if ended.returncode:
        raise AssertionError(f"heapline {words} ended with {ended.returncode}: {ended.stderr}")
    return ended.stdout


@functools.cache
def ask(verb, recording, *words):
    """The JSON of a report, which is asked for once in a script."""
    return json.loads(heapline(verb, "--json", *words, str(recording)))


def record_python(recording, *words, options=()):
    """Records a Python program, every object of which is an allocation."""
    subprocess.run([HEAPLINE, "record", "-o", recording, *options, "--", "/usr/bin/python3", *words],
                   check=True, capture_output=True, timeout=TIMEOUT_S,
                   env={**os.environ, "PYTHONMALLOC": "malloc"})


def record_demo(recording, rounds, options=()):
    """Records the program of the demo."""
    record_python(recording, str(TREE / "demo/json_workload.py"), str(rounds), options=options)


def make_recording(recording, name):
    """One of the recordings of tests/cli/make_recording.c."""
    subprocess.run([MAKE_RECORDING, name, recording], check=True, timeout=TIMEOUT_S)


# ---- the browser ----

@contextlib.contextmanager
def open_browser():
    """A browser with a fresh profile, in front of a light system."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    with tempfile.TemporaryDirectory(prefix="heapline-browser-",
                                     ignore_cleanup_errors=True) as folder:
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for flag in (*FLAGS, f"--user-data-dir={folder}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
        try:
            set_window(driver, 1280, 900)
            set_system_dark(driver, False)
            yield driver
        finally:
            driver.quit()


_shared = contextlib.ExitStack()


@functools.cache
def shared_browser():
    """The one browser of a script; main() closes it."""
    return _shared.enter_context(open_browser())


def set_window(driver, width, height):
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})


def set_system_dark(driver, dark):
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
        {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})


def marks(driver):
    """Milliseconds from the start of loading to each mark that the page has reached."""
    return driver.execute_script("return Object.fromEntries(performance.getEntriesByType('mark')"
                                 ".map(mark => [mark.name, mark.startTime]))")


def wait_until(driver, condition):
    """Waits for what the browser does in its own time."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(driver, TIMEOUT_S, poll_frequency=POLL_S).until(lambda _: condition())


def open_page(driver, page):
    """Opens the file, and waits until it can be used."""
    driver.get(Path(page).resolve().as_uri())
    wait_until(driver, lambda: "interactive" in marks(driver))


# ---- tests ----

class Result(unittest.TextTestResult):
    """Says as what a test is known: its sentence."""

    def getDescription(self, test):
        return test.id().rpartition(".")[2].removeprefix("test_").replace("_", " ")


def main(missing=""):
    """Runs the tests of the script, unless something that they need is missing."""
    if missing:
        print(f"skipped: not installed: {missing}")
        sys.exit(SKIPPED_STATUS)
    with _shared:
        unittest.main(verbosity=2, testRunner=unittest.TextTestRunner(resultclass=Result, verbosity=2))
