/* SPDX-License-Identifier: BSD-2-Clause */
/* Limits that end with exit status 3 when they are crossed; see heap_limits.h. */
#include "cli/heap_limits.h"

#include "cli/options.h"
#include "view/format.h"
#include "view/heap_words.h"

#include <errno.h>
#include <string.h>

int hl_heap_limit_parse(const char *text, struct hl_heap_limit *ret_limit)
{
	const char *sign = strchr(text, '=');
	int figure = sign ? hl_heap_figure_find(text, (size_t)(sign - text)) : -EINVAL;
	if (figure < 0 || hl_option_parse_number(sign + 1, true, &ret_limit->most) < 0)
		return -EINVAL;
	ret_limit->figure = (enum hl_heap_figure)figure;
	return 0;
}

int hl_heap_limits_parse(const struct hl_verb *verb, const struct hl_option_texts *texts,
			 struct hl_heap_limit limits[HL_OPTION_TEXTS_MAX])
{
	if (texts->count > HL_OPTION_TEXTS_MAX)
		return hl_cli_usage_error(verb, "'--fail-above' is given more than %d times",
					  HL_OPTION_TEXTS_MAX);
	for (size_t i = 0; i < texts->count; i++)
		if (hl_heap_limit_parse(texts->texts[i], &limits[i]) < 0)
			return hl_cli_usage_error(
				verb,
				"bad value '%s' of option '--fail-above': not FIGURE=NUMBER, such "
				"as free-resident=1G; --json shows the figures under 'total'",
				texts->texts[i]);
	return HL_EXIT_DONE;
}

static const char *format(enum hl_heap_figure figure, int64_t number, char buffer[HL_FORMAT_MAX])
{
	return hl_heap_figure_is_bytes(figure) ? hl_format_bytes(number, buffer)
					       : hl_format_count(number, buffer);
}

int hl_heap_limits_check(const struct hl_heap_limit *limits, size_t count,
			 const struct hl_heap_figures *before, const struct hl_heap_figures *after)
{
	int status = HL_EXIT_DONE;
	for (size_t i = 0; i < count; i++) {
		enum hl_heap_figure figure = limits[i].figure;
		char number[HL_FORMAT_MAX], most[HL_FORMAT_MAX];
		int64_t found = hl_heap_number(after->numbers[figure]) -
				(before ? hl_heap_number(before->numbers[figure]) : 0);
		if (found <= hl_heap_number(limits[i].most))
			continue;
		hl_cli_note("%s %s %s, more than %s", hl_heap_figure_names[figure],
			    before ? "has grown by" : "is", format(figure, found, number),
			    format(figure, hl_heap_number(limits[i].most), most));
		status = HL_EXIT_LIMIT;
	}
	return status;
}
