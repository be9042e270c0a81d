#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Linux 6.18: who reads a hole of a file in tmpfs by read(2) leaves it a hole; who reads it by mmap(2) fills it, even with a descriptor
# and a mapping that can only read, as a user who may not write the file. The file's st_blocks grows, the pages count as shared memory, are charged to
# the reader's control group, and stay when the reader has ended: the kernel can take them back by swapping alone. On a disk's file system
# the same costs page cache, which it takes back by itself. The same holds of a memfd, and of shared memory without a file.
#
# Seen: a sparse file of 64 MiB has 0 blocks when it is made, 0 after cat (GNU coreutils), 131072 after a program that maps it
# (rg of ripgrep, which chooses a mapping for a single large file); a program that measures or searches shared memory so makes it as large as it may be.
# heapline reads pages of a process that are present, and no others. Needs root, to mount, and apt-get download.
set -euo pipefail

uname -r
folder=$(mktemp -d)
trap 'umount "$folder/tmpfs" 2>/dev/null || true; rm -rf "$folder"' EXIT
chmod 755 "$folder"
mkdir "$folder/tmpfs"
(cd "$folder" && apt-get download -qq ripgrep=13.0.0-4+b2 >/dev/null 2>&1 && dpkg-deb -x ripgrep_*.deb ripgrep)
rg=$folder/ripgrep/usr/bin/rg
"$rg" --version | head -1
mount -t tmpfs -o mode=755,size=128m tmpfs "$folder/tmpfs"
file=$folder/tmpfs/sparse
truncate -s 64M "$file"
made=$(stat -c %b "$file")
cat "$file" >/dev/null
read=$(stat -c %b "$file")
setpriv --reuid 65534 --regid 65534 --clear-groups "$rg" --mmap --text --count needle "$file" || true
mapped=$(stat -c %b "$file")
echo "blocks when made $made, after read() $read, after a mapping by a user who may only read $mapped"
[ "$made $read $mapped" = "0 0 131072" ]
