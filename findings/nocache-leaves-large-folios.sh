#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Linux 6.18, ext4: POSIX_FADV_DONTNEED drops whole folios alone, and those of ext4 are large by now (up to 2 MiB after readahead or a large write). A
# program that reads a file and drops each piece behind it, as backups do so as not to fill the page cache, drops next to nothing: each piece is a
# part of a folio. `dd iflag=nocache` of GNU coreutils 9.1, whose manual says that it discards cached data progressively, leaves nearly all of the
# file in the page cache, and so charged to the container that it runs in, even with pieces of 1 MiB. Dropping the whole file at
# once (count=0) leaves nothing.
#
# Seen, a file of 64 MiB, pages in the page cache after it was read by dd iflag=nocache from an empty one: bs=4K 16256 of 16384, bs=64K 15552 to 15936,
# bs=1M 5120 to 8704, whole file 0. `heapline pod` shows such files by name. Needs root, for a loop device.
set -euo pipefail

uname -r
folder=$(mktemp -d -p /var/tmp)
trap 'umount "$folder/disk" 2>/dev/null || true; rm -rf "$folder"' EXIT
mkdir "$folder/disk"
(cd "$folder" && apt-get download -qq coreutils=9.1-1 util-linux-extra=2.38.1-5+deb12u3 >/dev/null 2>&1 &&
	for package in *.deb; do dpkg-deb -x "$package" packages; done)
dd=$folder/packages/bin/dd
fincore=$folder/packages/usr/bin/fincore
"$dd" --version | head -1
"$fincore" --version
truncate -s 256M "$folder/image"
/sbin/mkfs.ext4 -q "$folder/image"
mount -o loop "$folder/image" "$folder/disk"
file=$folder/disk/file
head -c 64M /dev/urandom >"$file"
sync
drop() { "$dd" if="$file" iflag=nocache count=0 status=none; }
pages() { "$fincore" -nb -o pages "$file" | tr -d ' '; }
drop
echo "dropped at once: $(pages) pages left"
[ "$(pages)" -eq 0 ]
for size in 4K 64K 1M; do
	drop
	"$dd" if="$file" of=/dev/null bs=$size iflag=nocache status=none
	echo "read and dropped by $size: $(pages) pages left of 16384"
	[ "$(pages)" -gt 1024 ]
done
