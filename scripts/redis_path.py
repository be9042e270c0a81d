# SPDX-License-Identifier: BSD-2-Clause
"""Makes redis-server callable where only Debian's redis-tools is installed.

The package holds the server's program under another name; the package redis-server would also
start a service, which nobody asked for.
"""

import os
import shutil
from pathlib import Path


def add_redis_server(directory):
    """Appends ``directory`` to PATH with a link redis-server in it, unless PATH has one."""
    program = shutil.which("redis-check-rdb")
    if shutil.which("redis-server") or not program:
        return
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    link = directory / "redis-server"
    link.unlink(missing_ok=True)
    link.symlink_to(program)
    os.environ["PATH"] += os.pathsep + str(directory.resolve())
