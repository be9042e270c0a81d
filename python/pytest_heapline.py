# SPDX-License-Identifier: BSD-2-Clause
"""pytest plugin: what each test allocates, as heapline's recorder counts it in this process.

    heapline check --per-test -- pytest                  lists tests, their peaks, allocations and what they keep
    @pytest.mark.heapline(peak="10 MiB", leaks="1 KiB")  fails a test that needs more

Counted are blocks that are allocated while the test's function runs, on all threads; not those of fixtures. Without heapline
the tests run as ever, and the summary says which limits were not checked.
"""

import ctypes
import gc
import re

import pytest

PLACE_BYTES = 512
LARGEST = 5
COMMAND = "heapline check --per-test -- pytest ..."
# Keyword of the marker: member of the case, member that names its place, whether it is bytes, words for a message.
LIMITS = {
    "peak": ("peak_bytes", "peak_by", True, "had {} in use at its peak"),
    "allocations": ("allocations", "allocated_by", False, "made {} allocations"),
    "leaks": ("kept_bytes", "kept_by", True, "kept {} when it ended"),
}
SUFFIXES = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


class Case(ctypes.Structure):
    """struct hl_case of heapline.h."""

    _fields_ = [("size", ctypes.c_size_t)]
    _fields_ += [(name, ctypes.c_uint64) for name in
                 ("allocations", "allocated_bytes", "peak_bytes", "kept_blocks", "kept_bytes", "lost")]
    _fields_ += [(name, ctypes.c_char * PLACE_BYTES) for name in ("peak_by", "kept_by", "allocated_by")]


def parse(value):
    """10, "10", "10K", "10 MiB", "1.5G": a number."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", str(value).strip().lower())
    if not match:
        raise ValueError(f"{value!r} is not a number such as 1000 or '10 MiB'")
    return int(float(match[1]) * (1 << SUFFIXES[match[2]]))


def show(number, is_bytes):
    if not is_bytes:
        return f"{number:,}"
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"


def limits_of(item):
    """The nearest marker's: {keyword: number}; None where there is no marker."""
    marker = item.get_closest_marker("heapline")
    if marker is None:
        return None
    unknown = sorted(set(marker.kwargs) - set(LIMITS))
    if marker.args or unknown:
        pytest.fail(f"the marker 'heapline' takes {', '.join(LIMITS)}, not {(unknown or marker.args)[0]!r}", pytrace=False)
    try:
        return {keyword: parse(value) for keyword, value in marker.kwargs.items()}
    except ValueError as error:
        pytest.fail(f"the marker 'heapline': {error}", pytrace=False)


class Plugin:
    def __init__(self):
        library = ctypes.CDLL(None)  # has the recorder where that is preloaded
        self.hl_begin = getattr(library, "hl_case_begin", None)
        self.hl_end = getattr(library, "hl_case_end", None)
        self.hl_drop = getattr(library, "hl_case_drop", None)
        self.case = Case(size=ctypes.sizeof(Case))
        self.is_open = False
        self.limits = None
        self.is_recording = self.begin("pytest")
        if self.is_recording:
            self.drop()

    def begin(self, name):
        status = self.hl_begin(name.encode("utf-8", "replace")[:1023]) if self.hl_begin else -1
        self.is_open = status == 0
        return self.is_open

    def end(self):
        if self.is_open:
            self.is_open = False
            self.hl_end(ctypes.byref(self.case))
            return self.case
        return None

    def drop(self):
        self.is_open = False
        self.hl_drop()

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_call(self, item):
        """The innermost wrapper: nearly nothing but the test is between its begin and its end."""
        self.limits = limits_of(item)
        if self.is_recording:
            name = item.nodeid
            if not name.isprintable():
                name = re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\x{ord(match[0]):02x}", name)
            self.begin(name)
        if self.limits and not self.is_open:
            item.user_properties.append(("heapline.unchecked", True))
        outcome = yield
        if self.is_open and outcome.excinfo and issubclass(outcome.excinfo[0], pytest.skip.Exception):
            self.drop()
        elif self.is_open:  # the test failed
            self.keep(item, self.end())

    @staticmethod
    def keep(item, case):
        """In the report of the test, which pytest hands on: to the process that reports, and to --junitxml."""
        item.user_properties += [("heapline.peak_bytes", case.peak_bytes), ("heapline.allocations", case.allocations),
                                 ("heapline.kept_bytes", case.kept_bytes)]

    def pytest_terminal_summary(self, terminalreporter):
        largest, unchecked = [], 0
        for reports in terminalreporter.stats.values():
            for report in reports:
                figures = dict(getattr(report, "user_properties", ()))
                if getattr(report, "when", None) != "call" or not hasattr(report, "nodeid"):
                    continue
                unchecked += "heapline.unchecked" in figures
                if "heapline.peak_bytes" in figures:
                    largest.append((figures["heapline.peak_bytes"], figures["heapline.allocations"],
                                    figures["heapline.kept_bytes"], report.nodeid))
        if largest:
            terminalreporter.section("heapline: largest peaks")
        for peak, allocations, kept, nodeid in sorted(largest, reverse=True)[:LARGEST]:
            terminalreporter.line(f"{show(peak, True):>10} {allocations:>12,} allocations {show(kept, True):>10} kept  {nodeid}")
        if unchecked:
            terminalreporter.section("heapline")
            why = "the recorder could not count them" if self.is_recording else f"nothing is being recorded; run: {COMMAND}"
            terminalreporter.line(f"limits of {unchecked} test{'s' * (unchecked != 1)} were not checked, because {why}")


class Judge:
    """Comes after what runs the test, and within the wrapper."""

    def __init__(self, plugin):
        self.plugin = plugin

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_call(self, item):
        plugin = self.plugin
        limits = plugin.limits
        if limits and "leaks" in limits and plugin.is_open:
            gc.collect()  # what only cycles keep is not a leak
        case = plugin.end()
        if case is None:
            return
        plugin.keep(item, case)
        complaints = ["could not be counted exactly"] if limits and case.lost else []
        for keyword, most in (limits or {}).items():
            member, place, is_bytes, words = LIMITS[keyword]
            figure = getattr(case, member)
            if figure > most:
                where = getattr(case, place).decode("utf-8", "replace")
                complaints.append(f"{words.format(show(figure, is_bytes))}, at most {show(most, is_bytes)}"
                                  + (f"; most of it by {where}" if where else ""))
        if complaints:
            pytest.fail("heapline: the test " + "; it ".join(complaints), pytrace=False)


def pytest_addoption(parser):
    parser.getgroup("heapline").addoption(
        "--heapline-required", action="store_true",
        help="fail at once where nothing is being recorded, so that no limit of a test could be checked")


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "heapline(peak, allocations, leaks): fail the test if it has more bytes in use, makes more allocations, or "
        "keeps more bytes; numbers, or texts such as '10 MiB'")
    plugin = Plugin()
    if config.getoption("--heapline-required") and not plugin.is_recording:
        raise pytest.UsageError(f"heapline: nothing is being recorded; run: {COMMAND}")
    config.pluginmanager.register(plugin, "heapline-cases")
    config.pluginmanager.register(Judge(plugin), "heapline-judge")
