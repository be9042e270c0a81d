/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes the reader of pprof's files, inflated: what is read holds what profile.h promises, and is
 * the same when it is written and read again; what is not read is an error with a sentence.
 */
#include "import/gzip.h"
#include "open/open.h"
#include "view/view.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#define INFLATED_MAX (16u << 20)

/* So that a report names the line. */
#define require(holds)                    \
	do {                              \
		if (!(holds))             \
			__builtin_trap(); \
	} while (0)

static struct hl_profile *read_input(const uint8_t *bytes, size_t size)
{
	const struct hl_import_input input = {.name = "x", .bytes = bytes, .size = size};
	struct hl_profile *profile = NULL;
	struct hl_error err = {0};

	hl_importer_pprof.detects(&input);
	int r = hl_importer_pprof.read(&input, &profile, &err);
	require((r < 0) == (err.text[0] != '\0'));
	require((r < 0) == (profile == NULL));
	require(r < 0 || hl_profile_is_valid(profile));
	return profile;
}

static struct hl_profile *write_and_read(const struct hl_profile *profile, FILE *null)
{
	struct hl_error err = {0};
	char *bytes;
	uint8_t *inflated;
	size_t size, inflated_size;
	struct hl_view_options options = {.out = open_memstream(&bytes, &size), .notes = null};

	require(options.out);
	require(hl_pprof_view(profile, &options, &err) == 0);
	require(fclose(options.out) == 0);
	require(hl_gzip_inflate((const uint8_t *)bytes, size, "x", INFLATED_MAX, &inflated,
				&inflated_size, &err) == 0);
	struct hl_profile *again = read_input(inflated, inflated_size);
	free(inflated);
	free(bytes);
	return again;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	static FILE *null;
	uint8_t *copy = malloc(size + 1);

	if (!null)
		null = fopen("/dev/null", "w");
	require(copy && null);
	memcpy(copy, bytes, size);
	copy[size] = '\0';
	for (size_t i = 0; i < size; i++) /* no path leads to a file of this machine */
		copy[i] = copy[i] == '/' ? '_' : copy[i];
	struct hl_profile *profile = read_input(copy, size);
	if (profile) {
		struct hl_profile *again = write_and_read(profile, null);
		require(again);
		require(!memcmp(&profile->total, &again->total, sizeof(profile->total)));
		require(!memcmp(profile->known, again->known, sizeof(profile->known)));
		hl_profile_free(again);
	}
	hl_profile_free(profile);
	free(copy);
	return 0;
}
