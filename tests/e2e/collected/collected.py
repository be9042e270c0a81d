# SPDX-License-Identifier: BSD-2-Clause
"""Makes garbage, and keeps some of it when asked to: collected.py leak|none STEPS"""

import gc
import sys
import time

kept = []
for step in range(int(sys.argv[2])):
    garbage = [{"name": f"request {step}/{i}", "data": [i] * 20} for i in range(500)]
    for one in garbage:
        one["self"] = one  # for the collector, not for counts of references
    if sys.argv[1] == "leak":
        kept.extend(garbage[:50])
    if step % 4 == 3:  # much more often than a log has intervals
        gc.collect()
    time.sleep(0.008)
