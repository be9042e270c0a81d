# SPDX-License-Identifier: BSD-2-Clause
"""A headless Chromium that tests click through, and what they ask of it."""

import contextlib
import shutil
import tempfile
from pathlib import Path

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--hide-scrollbars")
WAIT_S = 60


def missing():
    """Why no browser can be started here; "" when one can."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "python3-selenium is not installed"
    absent = [program for program in ("chromium", "chromedriver") if not shutil.which(program)]
    return f"{', '.join(absent)} is not installed" if absent else ""


@contextlib.contextmanager
def browser(width=1280, height=900, dark=False):
    """A browser with a profile of its own, which sees a light or a dark system."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    with tempfile.TemporaryDirectory(prefix="heapline-browser-", ignore_cleanup_errors=True) as folder:
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for flag in (*FLAGS, f"--user-data-dir={folder}", f"--window-size={width},{height}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
        try:
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
                "width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
                {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})
            yield driver
        finally:
            driver.quit()


def open_page(driver, path):
    """Opens the file, and waits until it can be used."""
    from selenium.webdriver.support.ui import WebDriverWait

    driver.get(Path(path).resolve().as_uri())
    WebDriverWait(driver, WAIT_S).until(lambda page: marks(page).get("interactive"))


def marks(driver):
    """Milliseconds from the start of loading to each of the page's marks."""
    return driver.execute_script(
        "return Object.fromEntries(performance.getEntriesByType('mark').map(m => [m.name, m.startTime]))")


def console_errors(driver):
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
