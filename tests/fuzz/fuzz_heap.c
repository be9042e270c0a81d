/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Heaps of other processes, damaged in every way. The first byte says what the rest is:
 *
 *	C	a core file
 *	other	a version of glibc, whose heap is laid out; then its damage, 12 bytes each: the
 *part, the word there, and what is written to it; or a page that is taken away
 */
#include "heap/glibc.h"
#include "heap/glibc_reader.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "glibc_image.h"
#include "heap_checks.h"
#include "scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void read_image(struct builder *builder)
{
	const struct hl_heap_settings settings = {.want_pins = true, .strip_count = 7};
	struct hl_heap *heap = calloc(1, sizeof(*heap));
	struct hl_glibc glibc;

	require(heap);
	if (hl_glibc_roots_find(&builder->image.base, &glibc, NULL) == 0 &&
	    hl_glibc_heap_read(&builder->image.base, &glibc, &settings, heap, NULL) == 0)
		check(heap);
	hl_heap_free(heap);
}

static void fuzz_image(const uint8_t *bytes, size_t size)
{
	static struct builder builder;

	builder_make(&builder, &versions[bytes[0] % VERSION_COUNT]);
	damage_all(&builder.image, bytes + 1, size - 1);
	read_image(&builder);
	look_for_leaks(&builder.image);
	image_release(&builder.image);
}

static void fuzz_core(const uint8_t *bytes, size_t size)
{
	const struct hl_heap_settings settings = {0};
	struct hl_heap *heap;
	char path[64];
	int fd = memfd_create("core", MFD_CLOEXEC);

	require(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (hl_heap_read_core(path, &settings, &heap, NULL) == 0) {
		check(heap);
		hl_heap_free(heap);
	}
	struct hl_leaks *leaks;
	if (hl_leaks_read(0, path, &look, &leaks, NULL) == 0)
		check_leaks(leaks);
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	if (size && bytes[0] == 'C')
		fuzz_core(bytes + 1, size - 1);
	else if (size)
		fuzz_image(bytes, size);
	return 0;
}
