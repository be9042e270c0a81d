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
 * Names are what backtrace_symbols(3) gives, "path(symbol+0xOFFSET) [0xADDRESS]", cut at 80 bytes;
 * or "path(+0xOFFSET) [0xADDRESS]", the offset being that in the file. They tell where the file
 * was mapped, and so the place of each address in it.
 */
#include "import/importer.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/names.h"
#include "elf/elf.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LENGTH_BYTES   4
#define FUNCTION_BYTES 9  /* at least: a nameless one */
#define SAMPLE_BYTES   20 /* at least: a stack without frames */
#define NAME_MAX_BYTES 255

struct function {
	uint64_t id;
	char *symbol;	 /* mangled; "" when unknown */
	uint64_t offset; /* in the symbol; in the file where there is none */
	bool has_offset; /* it was not cut off */
	uint32_t module;
	uint32_t frame; /* 0: the module's file names the place */
};

/* A file that functions lie in, by number of the profile's module. */
struct mapping {
	uint64_t base; /* of what is mapped: an id less the address in the file */
	bool has_base, is_contradictory;
	bool is_there; /* the file lies at its path, and its symbols are where the dump says */
	bool is_other; /* another one lies there */
};

struct mprof {
	const struct hl_import_input *input;
	size_t offset; /* of what is read next */
	struct hl_builder builder;
	struct function *functions;
	uint32_t function_count;
	struct hl_index by_id; /* of functions, 1 added */
	struct mapping *mappings;
	size_t mapping_count;
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
	uint64_t offset;
	bool has_offset;
};

/* Splits name->text, which may be cut off: the rest of a symbol counts as the symbol. */
static void split_name(struct name *name)
{
	char *parenthesis = strrchr(name->text, '('); /* none in symbols, which are mangled */
	char *bracket = strstr(name->text, "[0x");
	const char *rest;

	name->module = name->text;
	name->symbol = "";
	if (parenthesis) {
		name->symbol = parenthesis + 1;
		char *sign = parenthesis + 1 + strcspn(name->symbol, "+-)");
		const char *end = sign + strlen(sign);
		name->has_offset = *sign == '+' &&
				   hl_import_text_hex(sign + 1, end, &name->offset, &rest) == 0 &&
				   *rest == ')';
		*sign = '\0';
		*parenthesis = '\0';
	} else if (bracket) {
		*bracket = '\0';
		if (bracket > name->text && bracket[-1] == ' ')
			bracket[-1] = '\0';
	}
}

/* ---- where files were mapped, and whether they are there ---- */

static void set_base(struct mapping *mapping, uint64_t base)
{
	mapping->is_contradictory |= mapping->has_base && mapping->base != base;

	mapping->has_base = true;
	mapping->base = base;
}

/* A symbol of a file that other files see; the name is the ELF file's. */
struct exported {
	const char *name;
	uint64_t value;
};

/* Zero-initialize; free items. */
struct exports {
	struct exported *items;
	size_t count, capacity;
};

static int by_name(const void *left, const void *right)
{
	const struct exported *a = left, *b = right;

	return strcmp(a->name, b->name);
}

/* How many are called ${name}, different versions of one symbol; the first of them. */
static size_t named_exports(const struct exports *exports, const char *name,
			    const struct exported **ret_first)
{
	size_t at = HL_LOWER_BOUND(i, exports->count, strcmp(exports->items[i].name, name) < 0);
	size_t count = 0;

	*ret_first = &exports->items[at];
	while (at + count < exports->count && !strcmp((*ret_first)[count].name, name))
		count++;
	return count;
}

/* Learns the base from symbols that are there once, if it is not known; then one version of each
 * must be where the dump says. */
static void compare_symbols(const struct mprof *mprof, uint32_t module,
			    const struct exports *exports)
{
	struct mapping *mapping = &mprof->mappings[module];

	for (int pass = 0; pass < 2; pass++)
		for (uint32_t i = 0; i < mprof->function_count; i++) {
			const struct function *function = &mprof->functions[i];
			const struct exported *found;
			uint64_t begin = function->id - function->offset;
			bool agrees = false;
			if (function->module != module || !function->symbol[0] ||
			    !function->has_offset || (pass == 0 && mapping->has_base))
				continue;
			size_t count = named_exports(exports, function->symbol, &found);
			if (pass == 0 && count == 1)
				set_base(mapping, begin - found->value);
			for (size_t k = 0; k < count; k++)
				agrees |= begin - found[k].value == mapping->base;
			mapping->is_other |= pass == 1 && !agrees;
		}
}

/* A library that was loaded by a relative path, as skynet's are, is found from the current directory now, and by its whole path from then on. */
static int make_absolute(struct hl_profile *profile, uint32_t module)
{
	HL_FREED char *path =
		realpath(hl_profile_text(profile, profile->modules[module].path), NULL);

	return path ? hl_strings_intern(&profile->strings, path, &profile->modules[module].path)
		    : 0;
}

static int look_at_file(const struct mprof *mprof, uint32_t module)
{
	struct hl_profile *profile = mprof->builder.profile;
	const char *path = hl_profile_text(profile, profile->modules[module].path);
	struct mapping *mapping = &mprof->mappings[module];
	struct exports exports = {0};

	if (!path[0] || !hl_import_maps_may_hold_code(path))
		return 0;
	HL_CLOSED int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_elf_open(fd);
	if (!elf)
		return 0;
	struct hl_elf_symbols all = {.elf = elf, .tables = HL_ELF_DYNSYM};
	int r = 0;
	while (r == 0 && hl_elf_symbols_next(&all))
		if (all.symbol.st_shndx != SHN_UNDEF)
			r = HL_ARRAY_APPEND(exports.items, exports.count, exports.capacity,
					    (struct exported){all.name, all.symbol.st_value});
	if (exports.count)
		qsort(exports.items, exports.count, sizeof(*exports.items), by_name);
	compare_symbols(mprof, module, &exports);
	free(exports.items);
	mapping->is_there = mapping->has_base && !mapping->is_contradictory && !mapping->is_other;
	return r == 0 && mapping->is_there && path[0] != '/' ? make_absolute(profile, module) : r;
}

/* Finds where each file was mapped, as far as the names say. */
static int find_mappings(struct mprof *mprof)
{
	mprof->mapping_count = mprof->builder.profile->module_count;
	mprof->mappings = calloc(mprof->mapping_count, sizeof(*mprof->mappings));
	if (!mprof->mappings)
		return -ENOMEM;
	for (uint32_t i = 0; i < mprof->function_count; i++) {
		const struct function *function = &mprof->functions[i];
		if (function->module && function->has_offset && !function->symbol[0])
			set_base(&mprof->mappings[function->module],
				 function->id - function->offset);
	}
	int r = 0;
	for (uint32_t module = 1; r == 0 && module < mprof->mapping_count; module++)
		r = look_at_file(mprof, module);
	return r;
}

/* ---- frames ---- */

/* The frame of a function whose file is not there: its symbol; else its place, "lib.so+0x1f40", or
 * the address in the process where that in the file is not known. */
static int add_frame(struct mprof *mprof, struct function *function)
{
	const struct hl_profile *profile = mprof->builder.profile;
	const struct mapping *mapping = &mprof->mappings[function->module];
	const char *path = hl_profile_text(profile, profile->modules[function->module].path);
	HL_FREED char *demangled = hl_symbols_demangle(function->symbol);
	struct hl_symbols_frame symbol = {.function_file = "", .file = ""};
	bool has_base = mapping->has_base && !mapping->is_contradictory;
	uint64_t address = function->id - (has_base ? mapping->base : 0);
	char place[NAME_MAX_BYTES + 32];

	snprintf(place, sizeof(place), "%s%s0x%" PRIx64, has_base ? hl_path_basename(path) : "",
		 has_base ? "+" : "", address);
	symbol.function = demangled ? demangled : function->symbol[0] ? function->symbol : place;
	return hl_builder_frame(&mprof->builder, &symbol, function->module, address,
				&function->frame);
}

/* ---- functions ---- */

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
	*function = (struct function){.id = read_u64(mprof),
				      .symbol = strdup(name.symbol),
				      .offset = name.offset,
				      .has_offset = name.has_offset};
	int r = function->symbol ? 0 : -ENOMEM;
	if (r == 0 && name.module[0])
		r = hl_builder_module(&mprof->builder, name.module, (const uint8_t *)"", 0, NULL,
				      &function->module);
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

/* Adds the ${depth} frames from here on, the last of which is the outermost. */
static int read_stack(struct mprof *mprof, uint32_t depth, uint32_t *ret_node, struct hl_error *err)
{
	size_t begin = mprof->offset;
	uint32_t node = 0;

	for (uint32_t i = depth; i-- > 0;) {
		size_t at = begin + i * sizeof(uint64_t);
		mprof->offset = at;
		uint64_t id = read_u64(mprof);
		uint32_t hash = hl_hash_pair(id, 0), place = hash, number;
		while ((number = hl_index_next(&mprof->by_id, hash, &place)))
			if (mprof->functions[number - 1].id == id)
				break;
		if (!number)
			return bad(mprof, at, "a stack has a function that the list has not", err);
		const struct function *function = &mprof->functions[number - 1];
		/* the call is what is before its return address */
		uint64_t call = function->id - mprof->mappings[function->module].base - 1;
		int r = function->frame
				? hl_builder_child(&mprof->builder, node, function->frame, &node)
				: hl_builder_node(&mprof->builder, node, function->module, call,
						  &node);
		if (r < 0)
			return r;
	}
	mprof->offset = begin + depth * sizeof(uint64_t);
	*ret_node = node;
	return 0;
}

static int read_sample(struct mprof *mprof, struct hl_error *err)
{
	struct hl_import_value value = {0};
	size_t begin = mprof->offset;
	bool wrapped = false;

	if (left(mprof) < SAMPLE_BYTES)
		return bad(mprof, begin, "the last stack is cut off", err);
	uint32_t alloc_objects = read_u32(mprof), alloc_bytes = read_u32(mprof);
	uint32_t free_objects = read_u32(mprof), free_bytes = read_u32(mprof);
	value.counters = (struct hl_profile_counters){
		.alloc_bytes = free_bytes + in_use(alloc_bytes, free_bytes, &wrapped),
		.alloc_objects = free_objects + in_use(alloc_objects, free_objects, &wrapped),
		.free_bytes = free_bytes,
		.free_objects = free_objects,
	};
	mprof->wrapped_stacks += wrapped;
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

/* The length is the only mark. A file that was cut off is known by its first function: an address
 * of a program, called after a file. */
static bool detects(const struct hl_import_input *input)
{
	size_t begin = 2 * LENGTH_BYTES;

	if (has_right_length(input))
		return true;
	if (input->size < begin + FUNCTION_BYTES || input->bytes[LENGTH_BYTES])
		return false;
	size_t length = input->bytes[begin];
	const uint8_t *name = input->bytes + begin + 1, *id = name + length;
	if (!length || input->size < begin + FUNCTION_BYTES + length)
		return false;
	return (name[0] == '.' || name[0] == '/' || name[0] == '[') && !id[0] && !id[1];
}

static int finish(struct mprof *mprof, struct hl_profile **ret_profile)
{
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = NULL;

	int r = hl_import_values_finish(&mprof->values, false, &mprof->builder, &profile);
	if (r < 0)
		return r;
	for (int unit = 0; unit < HL_UNIT_COUNT; unit++) {
		profile->known[HL_VALUE_INUSE][unit] = true;
		profile->known[HL_VALUE_ALLOC][unit] = true;
	}
	if (mprof->wrapped_stacks)
		r = hl_profile_warn(profile,
				    "the counters of %" PRIu32
				    " stack%s passed 4 GiB and began again at 0: what is in "
				    "use is right, what was allocated is more than shown",
				    mprof->wrapped_stacks, mprof->wrapped_stacks == 1 ? "" : "s");
	for (size_t i = 1; r == 0 && i < mprof->mapping_count; i++)
		if (mprof->mappings[i].is_other)
			r = hl_profile_warn(
				profile,
				"'%s' is not the file that was profiled: its functions have the "
				"names of the dump, and no lines",
				hl_profile_text(profile, profile->modules[i].path));
	if (r == 0)
		*ret_profile = HL_TAKE(profile);
	return r;
}

static int read_mprof(const struct hl_import_input *input, struct hl_profile **ret_profile,
		      struct hl_error *err)
{
	struct mprof mprof = {.input = input, .offset = LENGTH_BYTES, .values.tell_sizes = true};

	if (!has_right_length(input))
		return bad(&mprof, 0,
			   "the length is not that of the file; it was cut off, or is another "
			   "kind of file",
			   err);
	int r = hl_builder_init(&mprof.builder);
	if (r == 0)
		r = read_functions(&mprof, err);
	if (r == 0)
		r = find_mappings(&mprof);
	for (uint32_t i = 0; r == 0 && i < mprof.function_count; i++)
		if (!mprof.mappings[mprof.functions[i].module].is_there)
			r = add_frame(&mprof, &mprof.functions[i]);
	while (r == 0 && left(&mprof))
		r = read_sample(&mprof, err);
	if (r == 0)
		r = finish(&mprof, ret_profile);
	hl_builder_release(&mprof.builder);
	hl_index_release(&mprof.by_id);
	hl_import_values_release(&mprof.values);
	for (uint32_t i = 0; i < mprof.function_count; i++)
		free(mprof.functions[i].symbol);
	free(mprof.functions);
	free(mprof.mappings);
	return hl_importer_fail(input, r, err);
}

const struct hl_importer hl_importer_mprof = {
	.name = "mprof",
	.detects = detects,
	.read = read_mprof,
};
