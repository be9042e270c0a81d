#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# glibc 2.36 (x86-64; so does 2.41): __memcpy_chk compares two sizes and runs on into memcpy over the no-operations that align it. These are
# executed, yet no call frame information covers them: it ends with the comparison. A signal that comes there, such as a profiler's timer, finds a
# stack that libunwind 1.6.2 ends at the interrupted frame: all callers are missing. Programs that are built with _FORTIFY_SOURCE call such copies.
#
# Seen: a program steps through one call of __memcpy_chk by the trap flag and walks its stack after each instruction: 27 steps, in 5 of them main()
# is not on the stack. heapline gives padding between two functions with rules the rule of the function that follows.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for package in libc6=2.36-9+deb12u14 libunwind8=1.6.2-3 libunwind-dev=1.6.2-3 liblzma5=5.4.1-1+deb12u2; do
	apt-get -o APT::Sandbox::User=root download -qq "$package" >/dev/null
done
for file in *.deb; do dpkg -x "$file" root; done
cat >steps.c <<'C'
#define _GNU_SOURCE
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#include <signal.h>
#include <stdio.h>
#include <ucontext.h>

void *__memcpy_chk(void *to, const void *from, size_t bytes, size_t room);
int main(void);

static volatile int steps, cut;

static void step(int signal, siginfo_t *info, void *context)
{
	unw_cursor_t cursor;
	unw_word_t ip;
	int is_found = 0;

	(void)signal, (void)info;
	unw_init_local2(&cursor, context, UNW_INIT_SIGNAL_FRAME);
	do {
		unw_get_reg(&cursor, UNW_REG_IP, &ip);
		is_found |= ip - (unw_word_t)main < 400;
	} while (unw_step(&cursor) > 0);
	steps++;
	cut += !is_found;
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = step, .sa_flags = SA_SIGINFO};
	void *(*volatile copy)(void *, const void *, size_t, size_t) = __memcpy_chk;
	char from[64] = "", to[64];

	copy(to, from, 41, sizeof(to)); /* the loader binds it */
	sigaction(SIGTRAP, &action, NULL);
	__asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
	copy(to, from, 41, sizeof(to));
	__asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
	printf("%d steps, %d without main\n", steps, cut);
}
C
libraries=root/usr/lib/x86_64-linux-gnu:root/lib/x86_64-linux-gnu
gcc -O1 -mno-red-zone -Iroot/usr/include/x86_64-linux-gnu -Iroot/usr/include steps.c -o steps \
	root/usr/lib/x86_64-linux-gnu/libunwind.so.8 -Wl,-rpath-link,root/lib/x86_64-linux-gnu
said=$(root/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 --library-path "$libraries" ./steps)
echo "glibc 2.36-9+deb12u14, libunwind 1.6.2-3: $said"
[[ $said =~ ^[0-9]+\ steps,\ [1-9][0-9]*\ without\ main$ ]]
