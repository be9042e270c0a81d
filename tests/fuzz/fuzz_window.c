/* SPDX-License-Identifier: BSD-2-Clause */
/* Windows of a fleet, as a spool may hold them. */
#include "fleet/store.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct hl_fleet_window window;
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, bytes, size);
	text[size] = '\0';
	hl_fleet_window_read(text, size, &window);
	hl_fleet_window_release(&window);
	free(text);
	return 0;
}
