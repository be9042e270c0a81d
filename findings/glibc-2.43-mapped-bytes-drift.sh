#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# glibc 2.43 (Debian unstable, libc6 2.43-7): mallinfo2().hblkhd, "bytes in mapped regions", grows by 16 bytes more than the
# mapping each time realloc() has mremap() enlarge a block with a mapping of its own, and free() does not take these back. So it is not 0
# when no such block is left (hblks 0), and a server that grows large buffers reports ever more. 2.36 and 2.41 are exact.
#
# Seen, after 100 such calls of realloc(): 2.36 and 2.41 say 7,606,272 bytes in one block, and 0 after free(); 2.43 says 7,607,872 and 1,600.
# heapline counts the mappings themselves, so its figure is less than mallinfo2()'s there.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -oE 'https?://[^ ]*/debian/?( |$)' | head -n 1 | tr -d ' ' || true)
mkdir -p lists/partial cache/archives/partial
echo "deb ${mirror:-http://deb.debian.org/debian} sid main" >sources.list
apt=(-o "Dir::Etc::sourcelist=$folder/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$folder/lists"
	-o "Dir::Cache=$folder/cache" -o APT::Sandbox::User=root)
apt-get "${apt[@]}" update -qq
apt-get "${apt[@]}" download -qq libc6=2.43-7
dpkg -x libc6_2.43-7_amd64.deb root

cat >grow.c <<'C'
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
	char *block = malloc(1 << 20);

	for (size_t i = 1; i <= 100; i++) {
		block = realloc(block, (1 << 20) + i * 65536);
		block[0] = 1;
	}
	struct mallinfo2 held = mallinfo2();
	free(block);
	struct mallinfo2 freed = mallinfo2();
	printf("held: hblks %zu hblkhd %zu; freed: hblks %zu hblkhd %zu\n", held.hblks, held.hblkhd, freed.hblks, freed.hblkhd);
}
C
gcc -O1 grow.c -o grow
libraries=$(dirname "$(find root -name libc.so.6)")
printf 'this release: %s\n' "$(./grow)" | tee seen
printf '2.43-7: %s\n' "$("$(find root -name 'ld-linux-x86-64.so.2' | head -n 1)" --library-path "$libraries" ./grow)" | tee -a seen
grep -q '^this release: held: hblks 1 hblkhd 7606272; freed: hblks 0 hblkhd 0$' seen
grep -q '^2.43-7: held: hblks 1 hblkhd 7607872; freed: hblks 0 hblkhd 1600$' seen
