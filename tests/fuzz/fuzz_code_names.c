/* SPDX-License-Identifier: BSD-2-Clause */
/* Fuzzes what is read of files that runtimes write for perf, and the parts of names. */
#include "process/code_names.h"
#include "scratch.h"
#include "symbols/symbols.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	enum { PLACES = 16 };
	struct hl_recording_code places[PLACES];

	for (size_t i = 0; i < PLACES; i++)
		places[i] = (struct hl_recording_code){.address = 0x100 * i};
	require(hl_code_names_dump(bytes, size, 1 << 20, places, PLACES) == 0);
	require(hl_code_names_map((const char *)bytes, size, places, PLACES) == 0);
	for (size_t i = 0; i < PLACES; i++) {
		struct hl_symbols_frame frame;
		if (!places[i].name)
			continue;
		size_t length = strlen(places[i].name);
		hl_symbols_split(places[i].name, &frame);
		require(strlen(frame.function) + strlen(frame.file) <=
			length + strlen("(anonymous)"));
		free(places[i].name);
	}
	return 0;
}
