/* SPDX-License-Identifier: BSD-2-Clause */
/* Chooses steps of axes; see timeline_axis.h. */
#include "view/timeline_axis.h"

#include "base/compiler.h"

#include <stddef.h>
#include <stdio.h>

#define SECOND UINT64_C(1000)
#define MINUTE (60 * SECOND)
#define HOUR   (60 * MINUTE)
#define DAY    (24 * HOUR)

static const int64_t byte_steps[] = {1, 2, 5, 10, 20, 50, 100, 200, 500};

static const uint64_t ms_steps[] = {
	100,	     200,	  500,	    SECOND,	2 * SECOND, 5 * SECOND,	 10 * SECOND,
	20 * SECOND, 30 * SECOND, MINUTE,   2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 20 * MINUTE,
	30 * MINUTE, HOUR,	  2 * HOUR, 3 * HOUR,	6 * HOUR,   12 * HOUR,	 DAY,
	2 * DAY,     5 * DAY,	  10 * DAY, 30 * DAY,	100 * DAY,
};

int64_t hl_timeline_byte_step(int64_t most, int tick_max)
{
	for (int64_t unit = 1; unit < INT64_MAX / 1024; unit *= 1024)
		for (size_t i = 0; i < HL_COUNT_OF(byte_steps); i++)
			if (most / tick_max < byte_steps[i] * unit)
				return byte_steps[i] * unit;
	return INT64_MAX / 1024;
}

uint64_t hl_timeline_ms_step(uint64_t length_ms, int tick_max)
{
	uint64_t step = 0;

	for (size_t i = 0; i < HL_COUNT_OF(ms_steps); i++) {
		step = ms_steps[i];
		if (length_ms / step <= (uint64_t)tick_max)
			return step;
	}
	return step * (length_ms / step / (uint64_t)tick_max + 1);
}

const char *hl_timeline_byte_label(int64_t bytes, int64_t step, char buffer[HL_FORMAT_MAX])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	size_t unit = 0;

	for (; step >= 1024 && unit + 1 < HL_COUNT_OF(units); step /= 1024) {
		bytes /= 1024;
		unit++;
	}
	snprintf(buffer, HL_FORMAT_MAX, "%lld %s", (long long)bytes, units[unit]);
	return buffer;
}

const char *hl_timeline_ms_label(uint64_t ms, uint64_t step_ms, char buffer[HL_FORMAT_MAX])
{
	static const struct {
		uint64_t ms;
		const char *name;
	} units[] = {{DAY, "d"}, {HOUR, "h"}, {MINUTE, "min"}, {SECOND, "s"}};
	size_t unit = 0;

	while (unit + 1 < HL_COUNT_OF(units) && step_ms < units[unit].ms)
		unit++;
	if (step_ms < SECOND)
		snprintf(buffer, HL_FORMAT_MAX, "%.1f s", (double)ms / (double)SECOND);
	else
		snprintf(buffer, HL_FORMAT_MAX, "%llu %s",
			 (unsigned long long)(ms / units[unit].ms), units[unit].name);
	return buffer;
}
