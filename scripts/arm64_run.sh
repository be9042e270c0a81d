#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Runs a command in namespaces in which the kernel runs programs of aarch64 by qemu-user (binfmt_misc): nothing of this system changes.
#
#   scripts/arm64_run.sh COMMAND ARGUMENT...
#
# QEMU_LD_PREFIX, if it is set: a folder with the libraries of such programs (scripts/arm64_root.sh), which lie beside those of this
# system then, since what is executed without environment does not have that variable.
set -eu
enter='if test -d "${QEMU_LD_PREFIX:-}/emulator"; then mount -t overlay -o "lowerdir=$QEMU_LD_PREFIX/usr/lib:/usr/lib" overlay /usr/lib; fi &&
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc &&
printf %s ":heapline-arm64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:$(command -v qemu-aarch64):F" \
	>/proc/sys/fs/binfmt_misc/register && exec "$@"'
exec unshare --user --map-root-user --mount --kill-child -- bash -c "$enter" bash "$@"
