/* SPDX-License-Identifier: BSD-2-Clause */
/* Where each release of PHP has what is read, and which of them an interpreter is; see php.h. */
#include "guests/php/php.h"

#include "unwind/cfi.h"

/* As the C compiler lays out zend_globals.h and zend_compile.h. */
static const struct hl_php_layout layouts[] = {
	{2, .globals_bytes = 1800, .thrown_at = 880, .op_count = 80, .ops = 88, .file = 152,
	 .first_line = 160},
	{4, .globals_bytes = 1984, .thrown_at = 952, .op_count = 96, .ops = 104, .file = 168,
	 .first_line = 176},
};

/* "Zend Engine v4.2.36, Copyright ..." */
static const char version_before[] = "Zend Engine v4.";

typedef const char *version_fn(void);

void hl_php_open(struct hl_php *php, const struct hl_php_api *api)
{
	const struct hl_cfi_code code = {api->eval_start, api->eval_end, api->start, api->end,
					 api->eh_frame_hdr};

	php->api = *api;
	hl_cfi_find_cold(&code, &php->cold_start, &php->cold_end);
}

enum hl_php_problem hl_php_choose(struct hl_php *php)
{
	const char *text = ((version_fn *)php->api.version)();
	uint32_t minor = 0, digits = 0;

	if (!text)
		return HL_PHP_NOT_STARTED;
	for (const char *before = version_before; *before; before++)
		if (*text++ != *before)
			return HL_PHP_UNKNOWN_VERSION;
	for (; *text >= '0' && *text <= '9' && digits < 3; digits++)
		minor = minor * 10 + (uint32_t)(*text++ - '0');
	for (uint32_t i = 0; digits && *text == '.' && i < HL_COUNT_OF(layouts); i++) {
		if (layouts[i].minor != minor)
			continue;
		if (layouts[i].globals_bytes != php->api.globals_bytes)
			return HL_PHP_OTHER_LAYOUT;
		atomic_store_explicit(&php->layout, &layouts[i], memory_order_release);
		return HL_PHP_FITS;
	}
	return HL_PHP_UNKNOWN_VERSION;
}

const char *hl_php_problem_text(enum hl_php_problem problem)
{
	static const char *const texts[] = {
		[HL_PHP_FITS] = "its frames are read",
		[HL_PHP_NOT_STARTED] = "it has not started",
		[HL_PHP_UNKNOWN_VERSION] = "heapline reads PHP 8.2 and 8.4",
		[HL_PHP_OTHER_LAYOUT] =
			"its structures are not laid out as in the release; use a released one",
		[HL_PHP_NOT_PROVED] = "its first frames were not in order; use a released version",
		[HL_PHP_THREAD_SAFE] = "it was built with thread safety (ZTS); use one without it",
		[HL_PHP_TOO_OFTEN] =
			"it was loaded at 17 addresses, of which the first 16 are known",
	};

	return texts[problem];
}
