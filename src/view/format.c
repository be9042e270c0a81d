/* SPDX-License-Identifier: BSD-2-Clause */
/* Formats numbers for people; see format.h. */
#include "view/format.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define NS_PER_MS 1000000u
#define NS_PER_S  1000000000u

static uint64_t magnitude(int64_t number)
{
	return number < 0 ? -(uint64_t)number : (uint64_t)number;
}

const char *hl_format_bytes(int64_t bytes, char buffer[HL_FORMAT_MAX])
{
	static const char units[] = "KMGTPE";
	uint64_t whole = magnitude(bytes);
	const char *sign = bytes < 0 ? "-" : "";
	double scaled = (double)whole;
	int unit = -1;

	/* What would round to 1024.0 is shown in the next unit. */
	while (scaled >= (unit < 0 ? 1024.0 : 1023.95) && units[unit + 1]) {
		scaled /= 1024;
		unit++;
	}
	if (unit < 0)
		snprintf(buffer, HL_FORMAT_MAX, "%s%llu B", sign, (unsigned long long)whole);
	else
		snprintf(buffer, HL_FORMAT_MAX, "%s%.1f %ciB", sign, scaled, units[unit]);
	return buffer;
}

const char *hl_format_count(int64_t count, char buffer[HL_FORMAT_MAX])
{
	char digits[HL_FORMAT_MAX];
	size_t length = (size_t)snprintf(digits, sizeof(digits), "%llu",
					 (unsigned long long)magnitude(count));
	char *out = buffer;

	if (count < 0)
		*out++ = '-';
	for (size_t i = 0; i < length; i++) {
		if (i && (length - i) % 3 == 0)
			*out++ = ',';
		*out++ = digits[i];
	}
	*out = '\0';
	return buffer;
}

const char *hl_format_percent(int64_t part, int64_t whole, char buffer[HL_FORMAT_MAX])
{
	if (whole == 0)
		return strcpy(buffer, "-");
	snprintf(buffer, HL_FORMAT_MAX, "%.1f%%", 100.0 * (double)part / (double)whole);
	return buffer;
}

const char *hl_format_duration(uint64_t ns, char buffer[HL_FORMAT_MAX])
{
	unsigned long long seconds = ns / NS_PER_S;

	if (seconds < 1)
		snprintf(buffer, HL_FORMAT_MAX, "%llu ms", (unsigned long long)ns / NS_PER_MS);
	else if (seconds < 60)
		snprintf(buffer, HL_FORMAT_MAX, "%.2f s", (double)ns / NS_PER_S);
	else if (seconds < 3600)
		snprintf(buffer, HL_FORMAT_MAX, "%llu min %llu s", seconds / 60, seconds % 60);
	else
		snprintf(buffer, HL_FORMAT_MAX, "%llu h %llu min", seconds / 3600,
			 seconds / 60 % 60);
	return buffer;
}

const char *hl_format_time(uint64_t realtime_ns, char buffer[HL_FORMAT_MAX])
{
	time_t seconds = (time_t)(realtime_ns / NS_PER_S);
	struct tm parts;

	buffer[0] = '\0';
	if (gmtime_r(&seconds, &parts))
		strftime(buffer, HL_FORMAT_MAX, "%Y-%m-%dT%H:%M:%SZ", &parts);
	return buffer;
}
