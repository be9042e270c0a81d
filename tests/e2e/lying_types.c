/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Variables whose debug information, written by hand below, lies: types that contain themselves, or
 * have no bytes. Says what chains.c does. Is compiled without any debug information of its own.
 */
#include "wipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* DWARF 4: one unit with one entry for each line. References are to labels of this section. */
#define REFERENCE(type) ".long lying_" #type " - lying_unit\n\t"
#define VARIABLE(name, type)             \
	".uleb128 2\n\t.string \"" #name \
	"\"\n\t" REFERENCE(type) ".uleb128 9\n\t.byte 3\n\t.quad " #name "\n\t"
#define ENTRY(type, code)  "lying_" #type ": .uleb128 " #code "\n\t"
#define NAMED(name)	   ".string \"" #name "\"\n\t"
#define BYTES(bytes)	   ".long " #bytes "\n\t"
#define MEMBER(name, type) ".uleb128 5\n\t" NAMED(name) REFERENCE(type) ".byte 0\n\t"
#define BOUND(count)	   ".uleb128 7\n\t.quad " #count "\n\t"
#define END		   ".byte 0\n\t"

__asm__(".section .debug_abbrev,\"\",@progbits\n\t"
	"lying_abbreviations:\n\t"
	".uleb128 1, 0x11\n\t.byte 1\n\t.uleb128 0, 0\n\t"			      /* unit */
	".uleb128 2, 0x34\n\t.byte 0\n\t.uleb128 3, 8, 0x49, 0x13, 2, 0x18, 0, 0\n\t" /* variable */
	".uleb128 3, 0x16\n\t.byte 0\n\t.uleb128 3, 8, 0x49, 0x13, 0, 0\n\t"	      /* typedef */
	".uleb128 4, 0x17\n\t.byte 1\n\t.uleb128 3, 8, 0xb, 6, 0, 0\n\t"	      /* union */
	".uleb128 5, 0xd\n\t.byte 0\n\t.uleb128 3, 8, 0x49, 0x13, 0x38, 0xb, 0, 0\n\t" /* member */
	".uleb128 6, 0x1\n\t.byte 1\n\t.uleb128 0x49, 0x13, 0, 0\n\t"		       /* array */
	".uleb128 7, 0x21\n\t.byte 0\n\t.uleb128 0x37, 7, 0, 0\n\t"	 /* its bound */
	".uleb128 8, 0x13\n\t.byte 1\n\t.uleb128 3, 8, 0xb, 6, 0, 0\n\t" /* structure */
	".uleb128 9, 0xd\n\t.byte 0\n\t.uleb128 3, 8, 0x49, 0x13, 0x6b, 0xb, 0xd, 0xb, 0, 0\n\t" /* bits */
	".uleb128 10, 0xf\n\t.byte 0\n\t.uleb128 0x49, 0x13, 0, 0\n\t"		/* pointer */
	".uleb128 11, 0x13\n\t.byte 0\n\t.uleb128 0xb, 6, 0x49, 0x13, 0, 0\n\t" /* no name, but a type */
	".byte 0\n\t"
	".section .debug_info,\"\",@progbits\n\t"
	"lying_unit: .long lying_end - lying_version\n\t"
	"lying_version: .2byte 4\n\t.long lying_abbreviations\n\t.byte 8\n\t"
	".uleb128 1\n\t" ENTRY(first_name, 3) NAMED(first_name) REFERENCE(second_name) ENTRY(
		second_name,
		3) NAMED(second_name) REFERENCE(first_name) ENTRY(either, 4) NAMED(either) BYTES(8)
		MEMBER(left, either) MEMBER(right, either) END ENTRY(russian_doll, 8) NAMED(
			russian_doll) BYTES(8) MEMBER(inner,
						      russian_doll) END ENTRY(nothing,
									      8) NAMED(nothing)
			BYTES(0) END ENTRY(nothings, 6) REFERENCE(nothing) BOUND(100) END ENTRY(
				arrays,
				6) REFERENCE(arrays) BOUND(3) END ENTRY(endless,
									10) REFERENCE(endless)
				ENTRY(space, 6) REFERENCE(endless) BOUND(0x10000000000) BOUND(
					0x10000000000) BOUND(0x10000000000) END ENTRY(flags, 8)
					NAMED(flags) BYTES(8) ".uleb128 9\n\t" NAMED(bits) REFERENCE(
						endless) ".byte 0, 64\n\t" END ENTRY(nowhere, 3)
						NAMED(nowhere) ".long 0x7fffffff\n\t" ENTRY(
							nameless,
							11) BYTES(8) REFERENCE(nameless) ENTRY(to_nameless,
											       10) REFERENCE(nameless)
							VARIABLE(without_a_name, to_nameless) VARIABLE(
								ring_of_names,
								first_name) VARIABLE(either_in_itself,
										     either)
								VARIABLE(doll_in_itself, russian_doll) VARIABLE(
									without_bytes,
									nothings) VARIABLE(array_of_itself,
											   arrays)
									VARIABLE(too_many, space) VARIABLE(
										bit_field, flags)
										VARIABLE(outside,
											 nowhere)
											VARIABLE(
												to_itself,
												endless)
												END
	"lying_end:\n\t"
	".text\n");

void *ring_of_names, *either_in_itself, *doll_in_itself, *without_bytes, *array_of_itself,
	*too_many, *bit_field, *outside, *to_itself, *without_a_name;

static void *keep(const char *chain)
{
	void **first = calloc(1, 64), *kept = malloc(4000);

	memset(kept, 'k', 4000);
	first[0] = kept;
	printf("chain %p %s\n", kept, chain);
	return first;
}

static __attribute__((noinline)) void plant(void)
{
	ring_of_names = keep("ring_of_names -> ? (+0)");
	either_in_itself = keep("either_in_itself -> ? (+0)");
	doll_in_itself = keep("doll_in_itself -> ? (+0)");
	without_bytes = keep("without_bytes -> ? (+0)");
	array_of_itself = keep("array_of_itself -> ? (+0)");
	too_many = keep("too_many -> ? (+0)");
	bit_field = keep("bit_field -> ? (+0)");
	outside = keep("outside -> ? (+0)");
	to_itself = keep("to_itself -> [0] (+0)");
	without_a_name = keep("without_a_name -> ? (+0)");
}

int main(void)
{
	static char output[1 << 16];
	char letter;

	setvbuf(stdout, output, _IOFBF, sizeof(output));
	plant();
	wipe();
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &letter, 1) > 0)
		;
	_exit(0);
}
