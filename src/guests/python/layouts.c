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

/* ---- all of it ---- */

void hl_python_find_cold(struct hl_python *python)
{
	const struct hl_python_api *api = &python->api;
	const struct hl_cfi_code code = {api->eval_start, api->eval_end, api->start, api->end,
					 api->eh_frame_hdr};

	hl_cfi_find_cold(&code, &python->cold_start, &python->cold_end);
}

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
