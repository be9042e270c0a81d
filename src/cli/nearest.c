/* SPDX-License-Identifier: BSD-2-Clause */
/* Compares words by their edit distance; see nearest.h. */
#include "cli/nearest.h"

#include <stdbool.h>
#include <string.h>

#define LENGTH_MAX 24 /* of words that are compared: longer than any verb or option */

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Optimal string alignment: edits that make ${a} into ${b}, where two letters swapped are one. */
static size_t distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
	size_t rows[LENGTH_MAX + 1][LENGTH_MAX + 1];

	for (size_t j = 0; j <= b_length; j++)
		rows[0][j] = j;
	for (size_t i = 1; i <= a_length; i++) {
		rows[i][0] = i;
		for (size_t j = 1; j <= b_length; j++) {
			size_t change = rows[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
			rows[i][j] = least(change, least(rows[i - 1][j] + 1, rows[i][j - 1] + 1));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				rows[i][j] = least(rows[i][j], rows[i - 2][j - 2] + 1);
		}
	}
	return rows[a_length][b_length];
}

const char *hl_nearest_word(const char *word, const char *const *words, size_t count)
{
	size_t length = strlen(word), nearest_edits = 1 + length / 4;
	const char *nearest = NULL;
	bool is_tied = false;

	if (length < 2 || length > LENGTH_MAX)
		return NULL;
	for (size_t i = 0; i < count; i++) {
		size_t other = strlen(words[i]), edits;
		if (other > LENGTH_MAX)
			continue;
		edits = strncmp(words[i], word, length) ? distance(word, length, words[i], other)
							: 0;
		if (edits > nearest_edits || edits >= length - 1)
			continue;
		is_tied = nearest && edits == nearest_edits;
		nearest_edits = edits;
		nearest = words[i];
	}
	return is_tied ? NULL : nearest;
}
