/* SPDX-License-Identifier: BSD-2-Clause */
/* Eight levels of height; see sparkline.h. */
#include "view/sparkline.h"

#include <langinfo.h>
#include <string.h>

#define LEVELS 8

static const char *const blocks[LEVELS] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
static const char *const letters[LEVELS] = {"_", ".", "-", "~", "=", "+", "*", "#"};

static int64_t highest(const struct hl_history *history, size_t first, size_t end)
{
	int64_t bytes = 0;

	for (size_t i = first; i < end; i++)
		if (history->points[i].max_bytes > bytes)
			bytes = history->points[i].max_bytes;
	return bytes;
}

const char *hl_sparkline(const struct hl_history *history, size_t width,
			 char buffer[HL_SPARKLINE_MAX])
{
	const char *const *signs = strcmp(nl_langinfo(CODESET), "UTF-8") == 0 ? blocks : letters;
	size_t count = history->point_count, columns = HL_SPARKLINE_COLUMNS;
	int64_t most = highest(history, 0, count);
	char *at = buffer;

	if (width && width < columns)
		columns = width;
	if (count < columns)
		columns = count;
	for (size_t i = 0; i < columns; i++) {
		int64_t bytes = highest(history, i * count / columns, (i + 1) * count / columns);
		size_t level =
			most ? (size_t)((double)bytes / (double)most * (LEVELS - 1) + 0.5) : 0;
		at = stpcpy(at, signs[level]);
	}
	*at = '\0';
	return buffer;
}
