/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads what skynet-mprof dumps, a .pro file. All integers are big-endian:
 *
 *	u32 bytes that follow, u32 functions, then for each function
 *		u8 length of its name, the name, u64 id: a return address
 *	and until the end, for each stack
 *		u32 objects and u32 bytes allocated, u32 objects and u32 bytes freed,
 *		u32 depth, depth times u64 id, the leaf first
 *
 * Names are what backtrace_symbols(3) gives, "path(symbol+0xOFFSET) [0xADDRESS]", cut at 80 bytes.
 */
#include "import/import_text.h"
#include "import/import_values.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES   4
#define FUNCTION_BYTES 9  /* at least: a nameless one */
#define SAMPLE_BYTES   20 /* at least: a stack without frames */
#define NAME_MAX_BYTES 255

struct function {
	uint64_t id;
	uint32_t frame;
};

struct mprof {
	const struct hl_import_input *input;
	size_t offset; /* of what is read next */
	struct hl_builder builder;
	struct function *functions;
	uint32_t function_count;
	struct hl_index by_id; /* of functions, 1 added */
	struct hl_import_values values;
	uint32_t wrapped_stacks;
};

/* ---- bytes ---- */

/* The caller has made sure that they are there, see left(). */
static uint32_t read_u32(struct mprof *mprof)
{
	uint32_t word;

	memcpy(&word, mprof->input->bytes + mprof->offset, sizeof(word));
	mprof->offset += sizeof(word);
	return be32toh(word);
}

static uint64_t read_u64(struct mprof *mprof)
{
	uint64_t word;

	memcpy(&word, mprof->input->bytes + mprof->offset, sizeof(word));
	mprof->offset += sizeof(word);
	return be64toh(word);
}

static size_t left(const struct mprof *mprof)
{
	return mprof->input->size - mprof->offset;
}

static int bad(const struct mprof *mprof, size_t offset, const char *reason, struct hl_error *err)
{
	return hl_error_set(err, -EBADMSG, "cannot read '%s': at offset %zu, %s",
			    mprof->input->name, offset, reason);
}

/* ---- names ---- */

struct name {
	char text[NAME_MAX_BYTES + 1];
	const char *module; /* in text; "" when unknown */
	const char *symbol; /* in text; "" when unknown */
};

/* Splits name->text. What was cut off is missing, what is left of a symbol is taken for it. */
static void split_name(struct name *name)
{
	char *parenthesis = strrchr(name->text, '('); /* none in symbols, which are mangled */
	char *bracket = strstr(name->text, "[0x");

	name->module = name->text;
	name->symbol = "";
	if (parenthesis) {
		name->symbol = parenthesis + 1;
		parenthesis[1 + strcspn(name->symbol, "+-)")] = '\0';
		*parenthesis = '\0';
	} else if (bracket) {
		*bracket = '\0';
		if (bracket > name->text && bracket[-1] == ' ')
			bracket[-1] = '\0';
	}
}

/* The frame of the function ${id} called ${name}: its symbol in its module, else its address. */
static int add_frame(struct mprof *mprof, const struct name *name, uint64_t id, uint32_t *ret_frame)
{
	char address[32], *demangled = hl_symbols_demangle(name->symbol);
	struct hl_symbols_frame symbol = {.function_file = "", .file = ""};
	uint32_t module = 0;
	int r = 0;

	snprintf(address, sizeof(address), "0x%" PRIx64, id);
	symbol.function = demangled ? demangled : name->symbol[0] ? name->symbol : address;
	if (name->module[0])
		r = hl_builder_module(&mprof->builder, name->module, (const uint8_t *)"", 0, NULL,
				      &module);
	if (r == 0)
		r = hl_builder_frame(&mprof->builder, &symbol, module, id, ret_frame);
	free(demangled);
	return r;
}

/* ---- functions ---- */

static const struct function *find_function(const struct mprof *mprof, uint64_t id)
{
	uint32_t hash = hl_hash_pair(id, 0), at = hash, number;

	while ((number = hl_index_next(&mprof->by_id, hash, &at)))
		if (mprof->functions[number - 1].id == id)
			return &mprof->functions[number - 1];
	return NULL;
}

static int read_function(struct mprof *mprof, struct hl_error *err)
{
	struct function *function = &mprof->functions[mprof->function_count];
	size_t begin = mprof->offset;
	struct name name = {.text = ""};

	size_t length = left(mprof) ? mprof->input->bytes[mprof->offset++] : 0;
	if (left(mprof) < length + sizeof(uint64_t))
		return bad(mprof, begin, "the list of functions goes on past the end of the file",
			   err);
	memcpy(name.text, mprof->input->bytes + mprof->offset, length);
	mprof->offset += length;
	split_name(&name);
	function->id = read_u64(mprof);
	int r = add_frame(mprof, &name, function->id, &function->frame);
	if (r == 0)
		r = hl_index_add(&mprof->by_id, hl_hash_pair(function->id, 0),
				 mprof->function_count + 1);
	mprof->function_count++;
	return r;
}

static int read_functions(struct mprof *mprof, struct hl_error *err)
{
	size_t begin = mprof->offset;
	int r = 0;

	uint32_t count = read_u32(mprof);
	if (count > left(mprof) / FUNCTION_BYTES)
		return bad(mprof, begin, "more functions are announced than the file has room for",
			   err);
	mprof->functions = calloc((size_t)count + 1, sizeof(*mprof->functions));
	if (!mprof->functions)
		return -ENOMEM;
	for (uint32_t i = 0; r == 0 && i < count; i++)
		r = read_function(mprof, err);
	return r;
}

/* ---- stacks ---- */

/*
 * What is in use by two counters of 32 bits that go on at 0 past 4 GiB. If more seems to be freed
 * than was allocated, either the one wrapped and the other did not yet, or it is so: skynet-mprof
 * counts the free of a block for the one that had its address before. The smaller number is it.
 */
static int64_t in_use(uint32_t allocated, uint32_t freed, bool *wrapped)
{
	int64_t difference = (int64_t)allocated - freed;

	if (difference >= INT32_MIN)
		return difference;
	*wrapped = true;
	return difference + (INT64_C(1) << 32);
}

static void read_counters(struct mprof *mprof, struct hl_import_value *ret_value)
{
	uint32_t alloc_objects = read_u32(mprof), alloc_bytes = read_u32(mprof);
	uint32_t free_objects = read_u32(mprof), free_bytes = read_u32(mprof);
	bool wrapped = false;

	*ret_value = (struct hl_import_value){
		.alloc_bytes = free_bytes + in_use(alloc_bytes, free_bytes, &wrapped),
		.alloc_objects = free_objects + in_use(alloc_objects, free_objects, &wrapped),
		.free_bytes = free_bytes,
		.free_objects = free_objects,
	};
	mprof->wrapped_stacks += wrapped;
}

/* Adds the ${depth} frames from here on, the last of which is the outermost. */
static int read_stack(struct mprof *mprof, uint32_t depth, uint32_t *ret_node, struct hl_error *err)
{
	size_t begin = mprof->offset;
	uint32_t node = 0;

	for (uint32_t i = depth; i-- > 0;) {
		size_t at = begin + i * sizeof(uint64_t);
		mprof->offset = at;
		const struct function *function = find_function(mprof, read_u64(mprof));
		if (!function)
			return bad(mprof, at, "a stack has a function that the list has not", err);
		int r = hl_builder_child(&mprof->builder, node, function->frame, &node);
		if (r < 0)
			return r;
	}
	mprof->offset = begin + depth * sizeof(uint64_t);
	*ret_node = node;
	return 0;
}

static int read_sample(struct mprof *mprof, struct hl_error *err)
{
	struct hl_import_value value;
	size_t begin = mprof->offset;

	if (left(mprof) < SAMPLE_BYTES)
		return bad(mprof, begin, "the last stack is cut off", err);
	read_counters(mprof, &value);
	begin = mprof->offset;
	uint32_t depth = read_u32(mprof);
	if (depth > left(mprof) / sizeof(uint64_t))
		return bad(mprof, begin, "a stack goes on past the end of the file", err);
	int r = read_stack(mprof, depth, &value.node, err);
	if (r == 0 && !depth) /* a stack that could not be walked */
		r = hl_builder_node(&mprof->builder, 0, HL_BUILDER_PSEUDO, 0, &value.node);
	return r < 0 ? r : hl_import_values_add(&mprof->values, &value);
}

/* ---- all of it ---- */

static bool has_right_length(const struct hl_import_input *input)
{
	uint32_t length;

	if (input->size < 2 * LENGTH_BYTES)
		return false;
	memcpy(&length, input->bytes, sizeof(length));
	return be32toh(length) == (input->partial ? input->whole_size : input->size) - LENGTH_BYTES;
}

/* Whether the first function looks like one: an address of a program, called after a file. */
static bool has_function(const struct hl_import_input *input)
{
	size_t begin = 2 * LENGTH_BYTES;

	if (input->size < begin + FUNCTION_BYTES || input->bytes[LENGTH_BYTES])
		return false;
	size_t length = input->bytes[begin];
	const uint8_t *name = input->bytes + begin + 1, *id = name + length;
	if (!length || input->size < begin + FUNCTION_BYTES + length)
		return false;
	return (name[0] == '.' || name[0] == '/' || name[0] == '[') && !id[0] && !id[1];
}

/* The length is the only mark; files that were cut off are known by what they begin with. */
static bool detects(const struct hl_import_input *input)
{
	return has_right_length(input) || has_function(input);
}

static int read_parts(struct mprof *mprof, struct hl_error *err)
{
	if (!has_right_length(mprof->input))
		return bad(mprof, 0,
			   "the length is not that of the file; it was cut off, or is another "
			   "kind of file",
			   err);
	mprof->offset = LENGTH_BYTES;
	int r = hl_builder_init(&mprof->builder);
	if (r == 0)
		r = read_functions(mprof, err);
	while (r == 0 && left(mprof))
		r = read_sample(mprof, err);
	return r;
}

static int warn_of_wraps(const struct mprof *mprof, struct hl_profile *profile)
{
	char sentence[160];

	if (!mprof->wrapped_stacks)
		return 0;
	snprintf(sentence, sizeof(sentence),
		 "the counters of %" PRIu32
		 " stack%s passed 4 GiB and began again at 0: what is in "
		 "use is right, what was allocated is more than shown",
		 mprof->wrapped_stacks, mprof->wrapped_stacks == 1 ? "" : "s");
	return hl_import_warn(profile, sentence);
}

static int finish(struct mprof *mprof, struct hl_profile **ret_profile)
{
	struct hl_profile *profile;

	int r = hl_import_values_finish(&mprof->values, false, &mprof->builder, &profile);
	if (r < 0)
		return r;
	for (int unit = 0; unit < HL_UNIT_COUNT; unit++) {
		profile->known[HL_VALUE_INUSE][unit] = true;
		profile->known[HL_VALUE_ALLOC][unit] = true;
	}
	r = warn_of_wraps(mprof, profile);
	if (r < 0)
		hl_profile_free(profile);
	else
		*ret_profile = profile;
	return r;
}

static int read_mprof(const struct hl_import_input *input, struct hl_profile **ret_profile,
		      struct hl_error *err)
{
	struct mprof mprof = {.input = input};

	int r = read_parts(&mprof, err);
	if (r == 0)
		r = finish(&mprof, ret_profile);
	hl_builder_release(&mprof.builder);
	hl_index_release(&mprof.by_id);
	hl_import_values_release(&mprof.values);
	free(mprof.functions);
	return hl_import_fail(input, r, err);
}

const struct hl_importer hl_importer_mprof = {
	.name = "mprof",
	.detects = detects,
	.read = read_mprof,
};
