# SPDX-License-Identifier: BSD-2-Clause
"""The tools that are compared: how each runs a command, and what it is compared with."""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
TCMALLOC = LIBRARIES / "libtcmalloc.so.4"
JEMALLOC = LIBRARIES / "libjemalloc.so.2"

PLAIN = "plain"
CLOSED = "heapline closed"
MEM_FAST = "heapline mem-fast"
LOG_RECORD = "heapline log-record"
LOG_FAST = "heapline log-fast"
SAMPLE = "heapline mem-fast --sample 512K"
HEAPTRACK = "heaptrack --raw"
NATIVE = "heapline mem-fast --no-scripts"
NO_OBJECTS = "heapline mem-fast --no-objects"
TRACEMALLOC = "tracemalloc, 25 frames"
MEMPROF = "php-memprof"
DHAT = "valgrind DHAT"
OF_MALLOC = ("tcmalloc, no profile", "gperftools HEAPPROFILE", "jemalloc, no profile", "jemalloc prof, 512 KiB", DHAT)
OF_SCRIPTS = (NATIVE, NO_OBJECTS, TRACEMALLOC, MEMPROF)  # what differs where scripts run


@dataclass(frozen=True)
class Tool:
    """``prefix`` goes before the command; ``{out}`` in any word is a fresh path in the scratch."""

    name: str
    baseline: str = PLAIN  # what its time is divided by: the same allocator without the tool
    prefix: tuple = ()
    environment: dict = field(default_factory=dict)
    absent: str = ""  # why it cannot be run here

    def wrap(self, command, scratch):
        """The command under this tool, and what to add to its environment."""
        out = Path(scratch) / "recording"
        words = [word.format(out=out) for word in self.prefix]
        added = {key: value.format(out=out) for key, value in self.environment.items()}
        return [*words, *map(str, command)], added

    def clean(self, scratch):
        """Removes what a run left, so that no run pays for another's files."""
        for path in Path(scratch).glob("recording*"):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def record_tool(program, name, *options):
    """The program heapline, recording with these options."""
    return Tool(name, prefix=(str(program), "record", *options, "-f", "-o", "{out}.hl", "--"),
                absent="" if Path(program).exists() else "not built")


def heapline_tools(program):
    modes = {
        CLOSED: ("--mode", "closed"),
        "heapline mem-record": ("--mode", "mem-record"),
        MEM_FAST: ("--mode", "mem-fast"),
        LOG_RECORD: ("--mode", "log-record"),
        LOG_FAST: ("--mode", "log-fast"),
        SAMPLE: ("--mode", "mem-fast", "--sample", "512K"),
        NATIVE: ("--mode", "mem-fast", "--no-scripts"),
        NO_OBJECTS: ("--mode", "mem-fast", "--no-objects"),
    }
    return [record_tool(program, name, *options) for name, options in modes.items()]


def rival_tools():
    no_heaptrack = "" if shutil.which("heaptrack") else "not installed"
    no_tcmalloc = "" if TCMALLOC.exists() else "not installed"
    no_valgrind = "" if shutil.which("valgrind") else "not installed"
    no_jemalloc = "" if JEMALLOC.exists() else "not installed"
    memprof = os.environ.get("PHP_MEMPROF", "")
    return [
        Tool(HEAPTRACK, prefix=("heaptrack", "--raw", "-o", "{out}"), absent=no_heaptrack),
        Tool("tcmalloc, no profile", environment={"LD_PRELOAD": str(TCMALLOC)},
             absent=no_tcmalloc),
        Tool("gperftools HEAPPROFILE", baseline="tcmalloc, no profile", absent=no_tcmalloc,
             environment={"LD_PRELOAD": str(TCMALLOC), "HEAPPROFILE": "{out}"}),
        Tool("jemalloc, no profile", environment={"LD_PRELOAD": str(JEMALLOC)},
             absent=no_jemalloc),
        Tool("jemalloc prof, 512 KiB", baseline="jemalloc, no profile", absent=no_jemalloc,
             environment={"LD_PRELOAD": str(JEMALLOC),
                          "MALLOC_CONF": "prof:true,lg_prof_sample:19"}),
        Tool(DHAT, prefix=("valgrind", "-q", "--tool=dhat", "--dhat-out-file={out}"), absent=no_valgrind),
        Tool(TRACEMALLOC, environment={"PYTHONTRACEMALLOC": "25"}),
        Tool(MEMPROF, environment={"PHP_INI_SCAN_DIR": f":{memprof}", "MEMPROF_PROFILE": "1"},
             absent="" if os.path.isfile(f"{memprof}/memprof.ini") else "PHP_MEMPROF does not name what bench/memprof.sh built"),
    ]


def all_tools(heapline):
    return [Tool(PLAIN), *heapline_tools(heapline), *rival_tools()]
