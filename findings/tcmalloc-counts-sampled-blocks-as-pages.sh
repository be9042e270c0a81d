#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# gperftools 2.10 (Debian 12, libgoogle-perftools4 2.10-1): with TCMALLOC_SAMPLE_PARAMETER set, as for heap profiles in production,
# "generic.current_allocated_bytes" and malloc_stats() count each sampled small block as whole pages of 8 KiB: such a block has a span of its own. The
# less bytes between samples, the more the figure exceeds what the blocks have by malloc_usable_size(). Without sampling both are equal.
#
# Seen, of 1,000,000 live blocks of 100 bytes: 112,000,000 bytes by malloc_usable_size() and, without sampling, by current_allocated_bytes; with a sample
# each 4,096 bytes that says 297,831,920.
# heapline reads tcmalloc's spans from outside and counts the bytes of the blocks.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for package in libgoogle-perftools4=2.10-1 libtcmalloc-minimal4=2.10-1 libunwind8=1.6.2-3; do
	apt-get -o APT::Sandbox::User=root download -qq "$package" >/dev/null
done
for file in *.deb; do dpkg -x "$file" root; done
export LD_LIBRARY_PATH=$folder/root/usr/lib/x86_64-linux-gnu

cat >count.c <<'C'
#include <malloc.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

int MallocExtension_GetNumericProperty(const char *property, size_t *value);

int main(void)
{
	static char *blocks[1000000];
	size_t usable = 0, said = 0, before = 0;

	MallocExtension_GetNumericProperty("generic.current_allocated_bytes", &before);
	for (size_t i = 0; i < 1000000; i++) {
		blocks[i] = malloc(100);
		usable += malloc_usable_size(blocks[i]);
	}
	MallocExtension_GetNumericProperty("generic.current_allocated_bytes", &said);
	printf("%zu %zu\n", usable, said - before);
}
C
gcc -O1 -fno-builtin count.c "$LD_LIBRARY_PATH/libtcmalloc.so.4" -o count
for parameter in 0 4096; do
	printf '%s %s\n' "$parameter" "$(TCMALLOC_SAMPLE_PARAMETER=$parameter ./count)"
done | tee seen
awk '{ off = NR == 1 && $3 < $2 * 1.001; on = NR == 2 && $3 > $2 * 1.15; right += off || on } END { exit right != 2 }' seen
