/* SPDX-License-Identifier: BSD-2-Clause */
/* For tests of what reads other tools' files: reads, and asks of what was read. */
#pragma once

#include "guests/traits.h"
#include "open/open.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fail_allocations.h"

static struct hl_error error;

/* From a copy of just the bytes, so that sanitizers see every step past their end. */
static inline int read_bytes(const struct hl_importer *importer, const void *bytes, size_t size,
			     struct hl_profile **ret_profile)
{
	uint8_t *copy = __real_malloc(size ? size : 1);
	struct hl_import_input input = {.name = "x", .bytes = copy, .size = size};

	memcpy(copy, bytes, size);
	error = (struct hl_error){0};
	int r = hl_open_import_bytes(importer, &input, ret_profile, &error);
	free(copy);
	return r;
}

static inline bool detects(const struct hl_importer *importer, const void *bytes, size_t size)
{
	struct hl_import_input input = {.name = "x", .bytes = bytes, .size = size};

	return importer->detects(&input);
}

static inline struct hl_profile *must_read(const struct hl_importer *importer, const void *bytes,
					   size_t size)
{
	struct hl_profile *profile = NULL;

	if (read_bytes(importer, bytes, size, &profile) < 0)
		fail_msg("%s", error.text);
	assert_true(hl_profile_is_valid(profile));
	assert_true(profile->imported);
	assert_string_equal(error.text, "");
	return profile;
}

static inline struct hl_profile *must_read_text(const struct hl_importer *importer,
						const char *text)
{
	assert_true(detects(importer, text, strlen(text)));
	return must_read(importer, text, strlen(text));
}

static inline void must_refuse(const struct hl_importer *importer, const void *bytes, size_t size,
			       const char *sentence)
{
	struct hl_profile *profile = NULL;

	assert_int_equal(read_bytes(importer, bytes, size, &profile), -EBADMSG);
	assert_string_equal(error.text, sentence);
	assert_null(profile);
}

/* Reads all beginnings of ${bytes}: each is a profile or an error with a sentence. */
static inline void read_every_beginning(const struct hl_importer *importer, const void *bytes,
					size_t size)
{
	for (size_t length = 0; length < size; length++) {
		struct hl_profile *profile = NULL;
		int r = read_bytes(importer, bytes, length, &profile);
		assert_true((r < 0) == (error.text[0] != '\0'));
		assert_true(r < 0 || hl_profile_is_valid(profile));
		hl_profile_free(profile);
	}
}

static inline const char *frame_name(const struct hl_profile *profile, uint32_t frame)
{
	return hl_profile_text(profile, profile->functions[profile->frames[frame].function].name);
}

/* The node of the stack "a;b;c". */
static inline uint32_t node_of(const struct hl_profile *profile, const char *stack)
{
	char *copy = strdup(stack), *rest = copy, *name;
	uint32_t node = 0;

	while ((name = strsep(&rest, ";"))) {
		uint32_t child = node + 1, end = profile->nodes[node].end;
		while (child < end &&
		       strcmp(frame_name(profile, profile->nodes[child].frame), name))
			child = profile->nodes[child].end;
		if (child >= end)
			fail_msg("no '%s' of '%s'", name, stack);
		node = child;
	}
	free(copy);
	return node;
}

static inline const struct hl_profile_counters *counters_of(const struct hl_profile *profile,
							    const char *stack)
{
	return &profile->counters[node_of(profile, stack)];
}

static inline const char *only_warning(const struct hl_profile *profile)
{
	assert_int_equal(profile->warning_count, 1);
	return hl_profile_text(profile, profile->warnings[0]);
}

/* Asserts that ${importer} (NULL: none) takes the file for one of its kind, and no other one does.
 */
static inline void must_be_taken_by(const struct hl_importer *importer, const void *bytes,
				    size_t size)
{
	const struct hl_importer *importers[] = {&hl_importer_legacy, &hl_importer_folded};

	for (size_t i = 0; i < HL_COUNT_OF(importers); i++)
		assert_int_equal(detects(importers[i], bytes, size), importers[i] == importer);
	for (size_t i = 0; hl_guest_importers[i]; i++)
		assert_int_equal(detects(hl_guest_importers[i], bytes, size),
				 hl_guest_importers[i] == importer);
}

/* Makes each allocation of the reader fail in turn. */
static inline void must_survive_want_of_memory(const struct hl_importer *importer,
					       const void *bytes, size_t size)
{
	struct hl_profile *profile = NULL;

	FOR_EACH_FAILING_ALLOCATION(r, read_bytes(importer, bytes, size, &profile))
	{
		assert_int_equal(r, -ENOMEM);
		assert_null(profile);
		assert_string_equal(error.text, "cannot read 'x': out of memory");
	}
	assert_true(hl_profile_is_valid(profile));
	hl_profile_free(profile);
}
