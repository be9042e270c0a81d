/* SPDX-License-Identifier: BSD-2-Clause */
/* Says what a frame of PHP is called: its function, with its class, its file and line. */
#include "guests/php/php.h"

/* Names with classes are put together, one after the other: the next ones of the same thread and those of others do not
 * see them before they have been copied. */
#define NAMES	   16u
#define NAME_BYTES 512u

static char names[NAMES][NAME_BYTES];
static _Atomic uint32_t next_name;

struct text {
	const char *bytes;
	uint32_t count;
};

/* Up to a NUL, after which names of classes without one say where they stand. */
static struct text text_of(uint64_t string)
{
	struct text text = {(const char *)string + HL_PHP_TEXT_BYTES, 0};
	uint64_t count = hl_php_word(string, HL_PHP_TEXT_COUNT);

	while (text.count < count && text.bytes[text.count] && text.count < UINT32_MAX)
		text.count++;
	return text;
}

static uint32_t add(char *name, uint32_t at, struct text text)
{
	for (uint32_t i = 0; i < text.count && at < NAME_BYTES; i++)
		name[at++] = text.bytes[i];
	return at;
}

static struct text name_of(uint64_t function)
{
	uint64_t name = hl_php_word(function, HL_PHP_FUNCTION_NAME);
	uint64_t class = hl_php_word(function, HL_PHP_FUNCTION_CLASS);

	if (!name) /* the code of a file outside of its functions */
		return (struct text){"{main}", 6};
	if (!class)
		return text_of(name);
	char *both = names[atomic_fetch_add(&next_name, 1) % NAMES];
	uint32_t count = add(both, 0, text_of(hl_php_word(class, HL_PHP_CLASS_NAME)));
	count = add(both, count, (struct text){"::", 2});
	return (struct text){both, add(both, count, text_of(name))};
}

bool hl_php_describe(const struct hl_php *php, const struct hl_script_frame *frame,
		     struct hl_script_place *ret_place)
{
	const struct hl_php_layout *layout =
		atomic_load_explicit(&php->layout, memory_order_relaxed);
	uint64_t function = frame->function & HL_PHP_FUNCTION_MASK;
	struct text file = {"", 0};
	uint64_t path = 0;

	if (function == php->api.eval_start) { /* its function has ended */
		*ret_place = (struct hl_script_place){.function = "", .source = ""};
		return true;
	}
	if (hl_php_is_script(function))
		path = hl_php_word(function, layout->file);
	if (path)
		file = text_of(path);
	struct text name = name_of(function);
	*ret_place = (struct hl_script_place){
		.function = name.bytes,
		.function_bytes = name.count,
		.source = file.bytes,
		.source_bytes = file.count,
		.line = frame->at,
		.first_line = path ? hl_php_number(function, layout->first_line) : 0,
	};
	return true;
}
