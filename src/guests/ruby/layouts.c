/* SPDX-License-Identifier: BSD-2-Clause */
/* Which layout an interpreter has, and where in its module its loop is; see ruby.h. */
#include "guests/ruby/ruby.h"

#include "unwind/cfi.h"
#include "unwind/rule_cache.h"

#include <elf.h>
#include <string.h>

#define PAGE_BYTES UINT64_C(4096)

/* By struct rb_iseq_constant_body of vm_core.h, as the compiler lays it out with the headers of each release. */
static const struct hl_ruby_layout layouts[] = {
	{.release = 301,
	 .frame_bytes = 64,
	 .line_is_object = true,
	 .short_length_in_flags = true,
	 .has_transient_heap = true,
	 .body_lines = 120,
	 .body_line_count = 136,
	 .body_index = 144},
	{.release = 303,
	 .frame_bytes = 56,
	 .body_lines = 112,
	 .body_line_count = 128,
	 .body_index = 136},
	{.release = 304,
	 .frame_bytes = 56,
	 .body_lines = 112,
	 .body_line_count = 128,
	 .body_index = 136},
};

/* ---- its loop ---- */

/* Instructions are addresses of places in the loop, of which a table has them all: 202 in 3.1. Onigmo's, the largest of others, has
 * 98. */
#define PLACES_MIN 150u
#define OTHERS_MAX 16u

struct range {
	uint64_t begin, end;
};

static bool holds(struct range range, uint64_t address)
{
	return address - range.begin < range.end - range.begin;
}

/* Where the function that holds ${pc} begins and ends; 0, 0: unknown. */
static struct range function_of(const struct hl_ruby_api *api, uint64_t pc)
{
	struct hl_cfi_function function;
	uint64_t hdr = (uint64_t)api->eh_frame_hdr;
	/* Bounds as saved.c has them. */
	uint64_t low = hdr < api->start ? hdr : api->start;
	uint64_t high = hdr >= api->start && hdr < api->end ? api->end : UINT64_C(1) << 47;

	if (!hdr || hl_cfi_find_function(api->eh_frame_hdr, low, high, pc, &function) < 0)
		return (struct range){0};
	return (struct range){function.begin, function.end};
}

/* How many words from ${at} on are addresses inside the function of the first, but for a few in what the compiler has moved out of it. */
static uint32_t count_places(const struct hl_ruby_api *api, uint64_t at, uint64_t end,
			     struct range *ret_function)
{
	uint32_t count = 0, others = 0;

	*ret_function = function_of(api, hl_ruby_word(at, 0));
	for (; at + 8 <= end && others < OTHERS_MAX; at += 8) {
		bool is_inside = holds(*ret_function, hl_ruby_word(at, 0));
		count += is_inside;
		others += !is_inside;
	}
	return count;
}

static void find_loop(struct hl_ruby *ruby, struct range data, struct range text)
{
	const uint32_t last = 8 * (PLACES_MIN - 1);
	uint32_t count;

	for (uint64_t at = (data.begin + 7) & ~UINT64_C(7); at + last + 8 <= data.end;
	     at += 8 * (count ? count : 1)) {
		struct range function;
		count = 1;
		/* Other data mostly differs in one of these two words. */
		if (holds(text, hl_ruby_word(at, last)) && holds(text, hl_ruby_word(at, 0)))
			count = count_places(&ruby->api, at, data.end, &function);
		if (count >= PLACES_MIN) {
			ruby->loop_start = function.begin;
			ruby->loop_end = function.end;
			return;
		}
	}
}

/* The function that calls the loop is the main one, if there is just one; if there is none, the loop is part of it. */
static bool find_main(struct hl_ruby *ruby, struct range text)
{
	struct range loop = {ruby->loop_start, ruby->loop_end}, found = {0};

	for (uint64_t end = text.begin + HL_CALL_BYTES; end <= text.end; end++) {
		uint64_t at = end - 1;
		if (hl_instructions_called((const uint8_t *)end, end) != loop.begin ||
		    holds(loop, at) || holds(found, at))
			continue;
		struct range caller = function_of(&ruby->api, at);
		if (!caller.begin)
			continue;
		if (found.begin)
			return false;
		found = caller;
	}
	ruby->eval_start = found.begin ? found.begin : loop.begin;
	ruby->eval_end = found.begin ? found.end : loop.end;
	return true;
}

static struct range range_of(const struct hl_ruby_api *api, const Elf64_Phdr *segment,
			     uint64_t bias)
{
	struct range range = {segment->p_vaddr + bias, segment->p_vaddr + bias + segment->p_filesz};

	return holds((struct range){api->start, api->end}, range.begin) && range.end <= api->end
		       ? range
		       : (struct range){0};
}

/* By the program headers, which lie in the first page of the module. */
static bool find_functions(struct hl_ruby *ruby)
{
	const Elf64_Ehdr *header = (const Elf64_Ehdr *)ruby->api.start;
	const Elf64_Phdr *segments = (const Elf64_Phdr *)(ruby->api.start + header->e_phoff);
	struct range text = {0};

	if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
	    header->e_phoff + header->e_phnum * sizeof(*segments) > PAGE_BYTES)
		return false;
	uint64_t bias = header->e_type == ET_DYN ? ruby->api.start : 0;
	for (uint32_t i = 0; i < header->e_phnum; i++)
		if (segments[i].p_type == PT_LOAD && segments[i].p_flags & PF_X)
			text = range_of(&ruby->api, &segments[i], bias);
	for (uint32_t i = 0; i < header->e_phnum && !ruby->loop_start; i++)
		if (segments[i].p_type == PT_LOAD && !(segments[i].p_flags & PF_X))
			find_loop(ruby, range_of(&ruby->api, &segments[i], bias), text);
	return ruby->loop_start && find_main(ruby, text);
}

/* ---- all of it ---- */

enum hl_ruby_problem hl_ruby_open(struct hl_ruby *ruby, const struct hl_ruby_api *api)
{
	ruby->api = *api;
	for (uint32_t i = 0; i < HL_COUNT_OF(layouts); i++)
		if (layouts[i].release == api->release)
			ruby->layout = &layouts[i];
	if (!ruby->layout)
		return HL_RUBY_UNKNOWN_RELEASE;
	return hl_ruby_find_context(ruby) && find_functions(ruby) ? HL_RUBY_FITS
								  : HL_RUBY_OTHER_BUILD;
}

const char *hl_ruby_problem_text(enum hl_ruby_problem problem)
{
	static const char *const texts[] = {
		[HL_RUBY_FITS] = "its frames are read",
		[HL_RUBY_UNKNOWN_RELEASE] = "heapline reads Ruby 3.1, 3.3 and 3.4",
		[HL_RUBY_OTHER_BUILD] =
			"its loop was not found in its code; use a build by GCC with optimization",
		[HL_RUBY_NOT_PROVED] = "its first frames were not in order; use a released version",
	};

	return texts[problem];
}
