/* SPDX-License-Identifier: BSD-2-Clause */
/* Tables of functions that Go's linker writes. */
#include "base/go_functions.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct hl_go_functions functions;
	struct hl_go_function function;

	if (!hl_go_functions_open(bytes, size, &functions))
		return 0;
	for (size_t i = 0; i < functions.count; i++) {
		if (!hl_go_functions_get(&functions, i, &function))
			continue;
		if (function.end <= function.start ||
		    (function.name && strlen(function.name) >= size))
			abort();
		hl_go_functions_find(&functions, function.start, &function);
	}
	return 0;
}
