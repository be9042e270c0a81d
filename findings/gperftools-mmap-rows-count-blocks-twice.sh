#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# gperftools 2.10 (Debian 12): with HEAP_PROFILE_MMAP=true the rows of a heap profile add up to more than twice what
# its first line says is in use. The first line counts blocks of malloc alone; the rows hold the blocks and also the
# mappings that tcmalloc made for them, so each block counts twice. google-pprof prints the sum of the rows as "Total".
#
# Seen, for a program that keeps 5,000 blocks of 10,000 bytes: first line 50,000,000 bytes, rows about 114,000,000.
# heapline leaves the allocator's own rows out (docs/formats-import.md).
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for package in libgoogle-perftools4=2.10-1 libtcmalloc-minimal4=2.10-1 libunwind8=1.6.2-3 liblzma5; do
	apt-get -o APT::Sandbox::User=root download -qq "$package" >/dev/null
done
for file in *.deb; do dpkg -x "$file" root; done
libraries=$folder/root/usr/lib/x86_64-linux-gnu:$folder/root/lib/x86_64-linux-gnu

cat >keep.c <<'C'
#include <stdlib.h>
#include <string.h>
static void *kept[5000];
int main(void)
{
	for (int i = 0; i < 5000; i++)
		memset(kept[i] = malloc(10000), 1, 10000);
	return 0;
}
C
gcc -O1 -fno-builtin -o keep keep.c
LD_LIBRARY_PATH=$libraries LD_PRELOAD=libtcmalloc.so.4 HEAPPROFILE=$folder/profile HEAP_PROFILE_MMAP=true ./keep 2>/dev/null
file=$(ls profile.*.heap | tail -n 1)
first=$(awk 'NR == 1 { print $4 }' "$file")
rows=$(awk 'NR > 1 && /@/ { gsub(/\[.*/, ""); sum += $2 } /^MAPPED/ { exit } END { print sum }' "$file")
echo "gperftools 2.10: first line $first bytes in use, sum of the rows $rows"
[ "$first" -ge 50000000 ] && [ "$first" -lt 51000000 ] && [ "$rows" -gt $((first * 2)) ]
