/* SPDX-License-Identifier: BSD-2-Clause */
/* A structure of which chains.c knows nothing but its name. */
#include <stdlib.h>

struct opaque {
	long unused;
	struct {
		long unused;
		void *kept;
	} inner;
};

struct opaque *opaque_new(void *kept);

struct opaque *opaque_new(void *kept)
{
	struct opaque *opaque = calloc(1, sizeof(*opaque));

	opaque->inner.kept = kept;
	return opaque;
}
