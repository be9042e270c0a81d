#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# qemu-user 7.2 (Debian 12, qemu-user 1:7.2+dfsg-7+deb12u18+b3): madvise(MADV_REMOVE) of shared memory returns 0 and removes nothing. A program that
# trusts the answer finds its old contents where the kernel would give it zeros; madvise(2) has EINVAL for advice that is not there.
#
# Seen, of a page of 7s that is removed: the kernel's own answer is 0 and the page is 0; in the emulator the answer is 0 and the page is 7.
# heapline looks at the first page that it removes, and clears by hand where that has not gone.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -oE 'https?://[^ ]*/debian/?( |$)' | head -n 1 | tr -d ' ' || true)
mkdir -p lists/partial cache/archives/partial
echo "deb ${mirror:-http://deb.debian.org/debian} bookworm main" >sources.list
apt=(-o "Dir::Etc::sourcelist=$folder/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$folder/lists"
	-o "Dir::Cache=$folder/cache" -o APT::Sandbox::User=root)
apt-get "${apt[@]}" update -qq
apt-get "${apt[@]}" download -qq qemu-user-static
for file in *.deb; do dpkg -x "$file" root; done
cat >remove.c <<'C'
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

int main(void)
{
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memset(page, 7, 4096);
	int answer = madvise(page, 4096, MADV_REMOVE);
	printf("answer %d, page %d\n", answer, page[0]);
	return 0;
}
C
cc -static -o remove remove.c
kernel=$(./remove) emulator=$(root/usr/bin/qemu-x86_64-static ./remove)
dpkg-deb -f ./*.deb Package Version
echo "kernel: $kernel; emulator: $emulator"
[[ $kernel == "answer 0, page 0" && $emulator == "answer 0, page 7" ]]
