#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""How much `heapline leaks` finds of what programs lose, beside Memcheck's leak check.

planted_leaks.py HEAPLINE FOLDER [--stop] [--memcheck N]: FOLDER has the programs planted and planted_cxx.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "e2e"))
import planted_programs


def memcheck(command):
    """Bytes that Memcheck calls lost or possibly lost, as the program asked for them."""
    checked = subprocess.run(["valgrind", "--leak-check=full", "--show-leak-kinds=none", *command],
                             stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    blocks = {}
    for word in "definitely", "indirectly", "possibly":
        found = re.search(rf"{word} lost: [\d,]+ bytes in ([\d,]+) blocks", checked.stderr)
        blocks[word] = int(found[1].replace(",", "")) if found else 0
    return blocks


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("heapline", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--stop", action="store_true")
    parser.add_argument("--memcheck", type=int, default=0, metavar="N", help="of the first N of each")
    arguments = parser.parse_args()
    options = ["--stop"] if arguments.stop else []
    planted_bytes = found_bytes = 0
    for name in planted_programs.NAMES:
        program = arguments.folder / name
        for number, kind in enumerate(planted_programs.kinds_of(program)):
            with planted_programs.start(program, kind) as (pid, blocks):
                result = subprocess.run([arguments.heapline, "leaks", "-p", str(pid), "--json",
                                         "--show", "100000", *options],
                                        capture_output=True, text=True, check=True)
                total = json.loads(result.stdout)["total"]
                missed = sum(blocks.values()) - total["lost_bytes"] - total["indirect_bytes"]
                words = planted_programs.find_words(pid, blocks) if missed > 0 else []
            planted_bytes += sum(blocks.values())
            found_bytes += sum(blocks.values()) - max(missed, 0)
            line = (f"{name} {kind}: {len(blocks)} blocks; found {total['lost_blocks']} lost, "
                    f"{total['indirect_blocks']} indirect, {total['possible_blocks']} possible")
            if number < arguments.memcheck and shutil.which("valgrind"):
                line += f"; Memcheck {memcheck([program, kind])}"
            print(line, flush=True)
            for word in words[:5]:
                print(f"  {word}")
    print(f"{found_bytes} of {planted_bytes} bytes: {100 * found_bytes / planted_bytes:.2f} %")


if __name__ == "__main__":
    main()
