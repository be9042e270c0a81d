/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether an interpreter agrees with one of the layouts that are known. */
#include "guests/python/python.h"

#include "base/compiler.h"
#include "unwind/cfi.h"

#include <string.h>

/* ---- what the interpreter says of itself ---- */

/* Of types, in bytes. */
#define TYPE_BASIC_SIZE 32u
#define TYPE_MEMBERS	240u

/* A PyMemberDef: name, type, offset. */
#define MEMBER_OFFSET 16u
#define MEMBER_BYTES  40u
#define MEMBERS_MAX   32u

static bool same_text(const char *one, const char *other)
{
	while (*one && *one == *other)
		one++, other++;
	return *one == *other;
}

/* The offset of the member ${name} of objects of ${type}; 0: it has no such member. */
static uint64_t member(uint64_t type, const char *name)
{
	uint64_t members = hl_python_word(type, TYPE_MEMBERS);

	for (uint32_t i = 0; members && i < MEMBERS_MAX; i++, members += MEMBER_BYTES) {
		const char *known = (const char *)hl_python_word(members, 0);
		if (!known)
			break;
		if (same_text(known, name))
			return hl_python_word(members, MEMBER_OFFSET);
	}
	return 0;
}

static bool agrees(uint64_t told, uint64_t known)
{
	return !told || told == known;
}

static bool fits_members(const struct hl_python_layout *layout, const struct hl_python_api *api)
{
	uint64_t code = api->code_type, frame = api->frame_type;
	bool has_frames = layout->at_is_index;

	return member(code, "co_firstlineno") == layout->code_first_line &&
	       member(code, "co_filename") == layout->code_file &&
	       member(code, "co_name") == layout->code_name &&
	       agrees(member(code, "co_qualname"), layout->code_full_name) &&
	       agrees(member(code, "co_linetable"), layout->code_lines) &&
	       agrees(member(code, "co_lnotab"), layout->code_lines) &&
	       (has_frames || hl_python_word(code, TYPE_BASIC_SIZE) == layout->code_bytes) &&
	       (!has_frames || (member(frame, "f_back") == layout->frame_previous &&
				member(frame, "f_code") == layout->frame_code)) &&
	       agrees(member(frame, "f_lasti"), layout->frame_at);
}

/* By what only one of them has; 3.8 and 3.9 do not differ here. */
static uint32_t minor_of_old(const struct hl_python_api *api)
{
	return member(api->code_type, "co_linetable") ? 10 : 9;
}

/* ---- the table at the start of _PyRuntime, from 3.13 on ---- */

#define TABLE_COOKIE "xdebugpy"
#define TABLE_WORDS  72u /* as far as is looked, and less than any version has */
#define ANY	     UINT64_MAX

/* Whether ${count} words stand one after the other somewhere in it: versions add fields before them. */
static bool has_words(const uint64_t *table, const uint64_t *words, uint32_t count)
{
	for (uint32_t i = 0; i + count <= TABLE_WORDS; i++) {
		uint32_t k = 0;
		while (k < count && (words[k] == ANY || words[k] == table[i + k]))
			k++;
		if (k == count)
			return true;
	}
	return false;
}

static enum hl_python_problem check_table(const struct hl_python_layout *layout,
					  const struct hl_python_api *api)
{
	const uint64_t *table = (const uint64_t *)api->runtime;
	/* The previous, the next, the interpreter, the frame. */
	const uint64_t state[] = {0, 8, 16, layout->state_frame};
	/* ..., the first local variable, the owner. */
	const uint64_t frame[] = {layout->frame_previous, layout->frame_code, layout->frame_at, ANY,
				  layout->frame_mark};
	/* ..., the number of arguments, names and kinds of variables, the instructions. */
	const uint64_t code[] = {layout->code_file,
				 layout->code_name,
				 layout->code_full_name,
				 layout->code_lines,
				 layout->code_first_line,
				 ANY,
				 ANY,
				 ANY,
				 layout->code_bytes};

	if (layout->minor < 13)
		return HL_PYTHON_FITS;
	if (!table || memcmp(table, TABLE_COOKIE, sizeof(TABLE_COOKIE) - 1) != 0 ||
	    table[1] >> 16 != api->version >> 16)
		return HL_PYTHON_OTHER_LAYOUT;
	if (table[2])
		return HL_PYTHON_FREE_THREADED;
	return has_words(table, state, HL_COUNT_OF(state)) &&
			       has_words(table, frame, HL_COUNT_OF(frame)) &&
			       has_words(table, code, HL_COUNT_OF(code))
		       ? HL_PYTHON_FITS
		       : HL_PYTHON_OTHER_LAYOUT;
}

/* ---- the rest of the main function ---- */

/*
 * Compilers move what is rarely run out of a function, to a place that has call frame information of its
 * own but no name; or, by a profile, most of it. The two parts jump into each other in many places, and no other
 * function jumps into the middle of the main one.
 */
#define PLACES_MAX 16u
#define JUMPS_MIN  16u

struct place {
	uint64_t begin, end;
	uint32_t jumps;
};

/* Where the instruction at ${code}, if it is a jump over a distance of four bytes, goes to; 0: of any other. */
static uint64_t jump_target(const uint8_t *code)
{
	bool is_conditional = code[0] == 0x0f && (code[1] & 0xf0) == 0x80;
	int32_t distance;

	if (!is_conditional && code[0] != 0xe9)
		return 0;
	code += 1 + is_conditional;
	__builtin_memcpy(&distance, code, sizeof(distance));
	return (uint64_t)code + 4 + (uint64_t)(int64_t)distance;
}

#define JUMP_BYTES 6u /* of the longer one */

/* How many jumps there are from [${begin}, ${end}) to behind the beginning of the main function. */
static uint32_t count_jumps_back(const struct hl_python_api *api, uint64_t begin, uint64_t end)
{
	uint64_t inside = api->eval_start + 1;
	uint32_t jumps = 0;

	for (uint64_t at = begin; at + JUMP_BYTES <= end; at++)
		jumps += jump_target((const uint8_t *)at) - inside < api->eval_end - inside;
	return jumps;
}

void hl_python_find_cold(struct hl_python *python)
{
	const struct hl_python_api *api = &python->api;
	uint64_t hdr = (uint64_t)api->eh_frame_hdr;
	struct place places[PLACES_MAX] = {0}, *most = places;
	uint32_t count = 0;

	/* Bounds as saved.c has them. */
	uint64_t low = hdr < api->start ? hdr : api->start;
	uint64_t high = hdr >= api->start && hdr < api->end ? api->end : UINT64_C(1) << 47;
	for (uint64_t at = api->eval_start; hdr && at + JUMP_BYTES <= api->eval_end; at++) {
		uint64_t target = jump_target((const uint8_t *)at);
		struct hl_cfi_function function;
		uint32_t i = 0;
		if (target - api->eval_start < api->eval_end - api->eval_start ||
		    target - api->start >= api->end - api->start)
			continue;
		while (i < count && target - places[i].begin >= places[i].end - places[i].begin)
			i++;
		if (i == count) {
			if (count == PLACES_MAX ||
			    hl_cfi_find_function(api->eh_frame_hdr, low, high, target, &function) <
				    0 ||
			    function.begin < api->start || function.end > api->end)
				continue;
			places[count++] = (struct place){function.begin, function.end, 0};
		}
		places[i].jumps++;
	}
	for (uint32_t i = 0; i < count; i++) {
		places[i].jumps += count_jumps_back(api, places[i].begin, places[i].end);
		if (places[i].jumps > most->jumps)
			most = &places[i];
	}
	if (most->jumps < JUMPS_MIN)
		return;
	python->cold_start = most->begin;
	python->cold_end = most->end;
}

/* ---- all of it ---- */

enum hl_python_problem hl_python_open(struct hl_python *python, const struct hl_python_api *api)
{
	uint32_t minor = api->version ? api->version >> 16 & 0xff : minor_of_old(api);

	if ((api->version && api->version >> 24 != 3) || minor < HL_PYTHON_MINOR_MIN ||
	    minor > HL_PYTHON_MINOR_MAX)
		return HL_PYTHON_UNKNOWN_VERSION;
	const struct hl_python_layout *layout = &hl_python_layouts[minor - HL_PYTHON_MINOR_MIN];
	enum hl_python_problem problem = check_table(layout, api);
	if (problem == HL_PYTHON_FITS && !fits_members(layout, api))
		problem = HL_PYTHON_OTHER_LAYOUT;
	if (problem != HL_PYTHON_FITS)
		return problem;
	python->layout = layout;
	python->api = *api;
	hl_python_find_cold(python);
	return HL_PYTHON_FITS;
}

const char *hl_python_problem_text(enum hl_python_problem problem)
{
	static const char *const texts[] = {
		[HL_PYTHON_FITS] = "its frames are read",
		[HL_PYTHON_UNKNOWN_VERSION] = "heapline reads CPython 3.8 to 3.14",
		[HL_PYTHON_FREE_THREADED] =
			"it was built without a global interpreter lock; use one with it",
		[HL_PYTHON_OTHER_LAYOUT] =
			"its structures are not laid out as in the release; use a released one",
		[HL_PYTHON_NOT_PROVED] =
			"its first frames were not in order; use a released version",
	};

	return texts[problem];
}
