#!/bin/busybox sh
# SPDX-License-Identifier: BSD-2-Clause
# The first process of a machine that test_aarch64_machine.py boots. Runs heapline on programs whose answers are known; see
# guest.sh.
port=/dev/ttyAMA0
. /hl/guest.sh

run record heapline record -o known.hl -- known_answer
run top heapline top --json --plumbing --value alloc --rows 0 known.hl

end
