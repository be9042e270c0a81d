/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What annotations of heapline.h, and of heaptrack's heaptrack_api.h, call while the recorder is preloaded. The linker binds them in
 * programs and libraries; but of a program that is not position independent it leaves out the word that says so.
 */
#define HL_WITHOUT_ANNOTATIONS /* those are for programs */
#include "heapline/heapline.h"

#include "recorder/hooks.h"
#include "unwind/unwind.h"

#include <link.h>
#include <string.h>
#include <sys/auxv.h>

HL_EXPORT void hl_recorded_pool_alloc(const char *pool, const void *block, size_t size);
HL_EXPORT void hl_recorded_pool_free(const char *pool, const void *block);
HL_EXPORT int hl_recorded_mark(const char *name);
HL_EXPORT int hl_recorded_mode(int mode);
HL_EXPORT void heaptrack_malloc(void *block, size_t size);
HL_EXPORT void heaptrack_realloc(void *block, size_t size, void *moved);
HL_EXPORT void heaptrack_free(void *block);

void hl_recorded_pool_alloc(const char *pool, const void *block, size_t size)
{
	hl_pools_alloc(pool, block, size, HL_CALLER);
}

void hl_recorded_pool_free(const char *pool, const void *block)
{
	(void)pool;
	hl_pools_free(block);
}

int hl_recorded_mark(const char *name)
{
	return hl_mark(name);
}

int hl_recorded_mode(int mode)
{
	return hl_mode_set((enum hl_recording_mode)mode);
}

/* ---- heaptrack_api.h: programs declare these weak, or look them up by dlsym() ---- */

#define HEAPTRACK_POOL "heaptrack"

void heaptrack_malloc(void *block, size_t size)
{
	hl_pools_alloc(HEAPTRACK_POOL, block, size, HL_CALLER);
}

/* ${moved} NULL: it failed, and ${block} is as before. */
void heaptrack_realloc(void *block, size_t size, void *moved)
{
	if (!moved)
		return;
	if (moved != block)
		hl_pools_free(block);
	hl_pools_alloc(HEAPTRACK_POOL, moved, size, HL_CALLER);
}

void heaptrack_free(void *block)
{
	hl_pools_free(block);
}

/* In a segment of notes: what the note of heapline.h leads to is set. */
static void set_words(const char *notes, size_t size)
{
	static const char owner[] = "heapline";

	ElfW(Nhdr) note;

	for (size_t at = 0; size - at >= sizeof(note) && at < size;) {
		memcpy(&note, notes + at, sizeof(note));
		size_t name = at + sizeof(note), text = name + ((note.n_namesz + 3u) & ~3u);
		if (note.n_namesz == sizeof(owner) && note.n_type == 1 &&
		    text + sizeof(int64_t) <= size &&
		    memcmp(notes + name, owner, sizeof(owner)) == 0) {
			int64_t distance;
			memcpy(&distance, notes + text, sizeof(distance));
			*(void **)(uintptr_t)(notes + text + distance) = hl_recorded_pool_alloc;
		}
		at = text + ((note.n_descsz + 3u) & ~3u);
	}
}

void hl_annotations_begin(void)
{
	const ElfW(Phdr) *headers = (const ElfW(Phdr) *)getauxval(AT_PHDR);
	size_t count = headers ? getauxval(AT_PHNUM) : 0;
	bool is_fixed = false;

	for (size_t i = 0; i < count; i++)
		is_fixed |=
			headers[i].p_type == PT_PHDR && headers[i].p_vaddr == (uintptr_t)headers;
	for (size_t i = 0; i < count && is_fixed; i++)
		if (headers[i].p_type == PT_NOTE && headers[i].p_align <= 4)
			set_words((const char *)headers[i].p_vaddr, headers[i].p_memsz);
}
