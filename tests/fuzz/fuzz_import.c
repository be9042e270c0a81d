/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes a reader of other tools' files: IMPORTER says which, there is a program for each. What is
 * read must hold what profile.h promises; what is not must be an error with a sentence.
 */
#include "import/importer.h"

#include <stdlib.h>
#include <string.h>

extern const struct hl_importer IMPORTER;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* So that a report names the line. */
#define require(holds)                    \
	do {                              \
		if (!(holds))             \
			__builtin_trap(); \
	} while (0)

/* No path leads to a file of this machine, which would make runs differ. */
static void cut_paths(uint8_t *bytes, size_t size)
{
	bool binary = strcmp(IMPORTER.name, "mprof") == 0; /* paths follow their lengths */

	for (size_t i = 0; i < size; i++)
		if (bytes[i] == '/' &&
		    (binary || (i && (bytes[i - 1] == ' ' || bytes[i - 1] == '\t'))))
			bytes[i] = '_';
}

static void read_input(const struct hl_import_input *input)
{
	struct hl_profile *profile = NULL;
	struct hl_error err = {0};

	struct hl_import_input head = *input;
	uint8_t *text;
	size_t text_size;

	IMPORTER.detects(input);
	head.partial = true;
	IMPORTER.detects(&head);
	hl_import_foreign(input);
	if (hl_import_text_is_utf16(input->bytes, input->size)) {
		require(hl_import_text_from_utf16(input->bytes, input->size, &text, &text_size) ==
			0);
		require(text[text_size] == '\0' && text_size <= input->size / 2 * 3);
		free(text);
	}
	int r = IMPORTER.read(input, &profile, &err);
	require((r < 0) == (err.text[0] != '\0'));
	require((r < 0) == (profile == NULL));
	require(r < 0 || hl_profile_is_valid(profile));
	hl_profile_free(profile);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	uint8_t *copy = malloc(size + 1);

	require(copy);
	memcpy(copy, bytes, size);
	copy[size] = '\0';
	cut_paths(copy, size);
	read_input(&(struct hl_import_input){.name = "x", .bytes = copy, .size = size});
	free(copy);
	return 0;
}
