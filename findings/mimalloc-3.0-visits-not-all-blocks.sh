#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# mimalloc 3.0.1 (Debian 13, libmimalloc3 3.0.1+ds-2.1): mi_heap_visit_blocks() of the default heap with all blocks visits fewer blocks than the
# thread has. A page that became full is given up by its thread, and the visitor looks at the pages that the thread still has. mimalloc 2.0.9
# (Debian 12) visits all of them. Who counts live blocks by it, or looks for leaks, misses whole pages.
#
# Seen, of one thread that has made 60,000 blocks and freed every third, so that 40,000 live, in pages that are full: 2.0.9 visits 40,000, 3.0.1 visits
# 8,511.
# heapline reads mimalloc's pages from outside and finds all.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -oE 'https?://[^ ]*/debian/?( |$)' | head -n 1 | tr -d ' ' || true)
mkdir -p lists/partial cache/archives/partial
for release in bookworm trixie; do echo "deb ${mirror:-http://deb.debian.org/debian} $release main"; done >sources.list
apt=(-o "Dir::Etc::sourcelist=$folder/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$folder/lists"
	-o "Dir::Cache=$folder/cache" -o APT::Sandbox::User=root)
apt-get "${apt[@]}" update -qq
apt-get "${apt[@]}" download -qq libmimalloc2.0=2.0.9+ds-2 libmimalloc3=3.0.1+ds-2.1
for file in *.deb; do dpkg -x "$file" root; done

cat >visit.c <<'C'
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

void *mi_malloc(size_t size);
void mi_free(void *block);
void *mi_heap_get_default(void);
bool mi_heap_visit_blocks(const void *heap, bool all, bool (*visit)(const void *, const void *, void *, size_t, void *), void *context);
int mi_version(void);

static bool count(const void *heap, const void *area, void *block, size_t size, void *context)
{
	(void)heap, (void)area, (void)size;
	*(size_t *)context += block != NULL;
	return true;
}

int main(void)
{
	static char *blocks[60000];
	size_t visited = 0, live = 0;

	for (size_t i = 0; i < 60000; i++) {
		blocks[i] = mi_malloc(i % 3 ? 16 + i % 7 * 100 : 1000);
		blocks[i][0] = 1;
	}
	for (size_t i = 0; i < 60000; i += 3)
		mi_free(blocks[i]);
	for (size_t i = 0; i < 60000; i++)
		live += i % 3 != 0;
	mi_heap_visit_blocks(mi_heap_get_default(), true, count, &visited);
	printf("%d %zu %zu\n", mi_version(), live, visited);
}
C
for library in root/usr/lib/x86_64-linux-gnu/libmimalloc.so.2.0 root/usr/lib/x86_64-linux-gnu/libmimalloc.so.3; do
	gcc -O1 visit.c "$library" -Wl,-rpath,"$folder/root/usr/lib/x86_64-linux-gnu" -o visit
	./visit
done | tee seen
awk '{ old = NR == 1 && $3 >= $2; new = NR == 2 && $3 < $2 - 100; right += old || new } END { exit right != 2 }' seen
