/* SPDX-License-Identifier: BSD-2-Clause */
/* Walks and names the stack of a process that has gone, by a copy of it and the files that it had mapped; see kill.h. */
#include "watch/kill.h"

#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/machine.h"
#include "base/names.h"
#include "bpf/walker.h"
#include "process/maps.h"
#include "symbols/symbols.h"
#include "unwind/rule.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define FRAMES_MAX 64u
#define MAPS_MAX   256u

struct module {
	uint64_t start, end, offset; /* in bytes */
	uint64_t inode;
	char path[HL_OOM_PARTS * (HL_OOM_PART_NAME + 1) + PATH_MAX / 8];
	bool is_tried, has_table;
	struct hl_code_table table;
	struct hl_symbols *symbols;
};

struct walk {
	const struct hl_oom_record *record;
	const pid_t *pids;
	size_t pid_count;
	struct module *modules;
	size_t count;
	struct hl_arch_frame at;
	uint64_t link; /* what a register says that the frame returns to; 0: it has called */
	json_t *names;
};

/* ---- files ---- */

static void add_from_record(struct walk *walk)
{
	for (uint32_t i = 0; i < walk->record->map_count; i++) {
		const struct hl_oom_map *map = &walk->record->maps[i];
		struct module *module = &walk->modules[walk->count++];
		size_t length = 0;
		*module = (struct module){.start = map->start,
					  .end = map->end,
					  .offset = map->offset * (uint64_t)sysconf(_SC_PAGESIZE),
					  .inode = map->inode};
		for (unsigned part = HL_OOM_PARTS; part-- > 0;)
			if (map->parts[part][0])
				length += (size_t)snprintf(module->path + length,
							   sizeof(module->path) - length, "/%.39s",
							   map->parts[part]);
	}
}

static void add_from_text(struct walk *walk, const char *text)
{
	HL_CLEANUP(hl_maps_release) struct hl_maps maps = {0};

	if (!text || hl_maps_parse(text, strlen(text), &maps, NULL) < 0)
		return;
	for (size_t i = 0; i < maps.count && walk->count < MAPS_MAX; i++) {
		const struct hl_map *map = &maps.maps[i];
		struct module *module = &walk->modules[walk->count];
		if (!map->inode || !(map->flags & HL_MAP_EXEC))
			continue;
		*module = (struct module){.start = map->start,
					  .end = map->end,
					  .offset = map->offset,
					  .inode = map->inode};
		snprintf(module->path, sizeof(module->path), "%s", map->path);
		walk->count++;
	}
}

/* A path by which the file of the module is found, wherever its process saw it. */
static int open_file(const struct walk *walk, const struct module *module, char path[PATH_MAX + 64])
{
	for (size_t i = 0; i <= walk->pid_count; i++) {
		struct stat status;
		if (i < walk->pid_count)
			snprintf(path, PATH_MAX + 64, "/proc/%d/root%s", walk->pids[i],
				 module->path);
		else
			snprintf(path, PATH_MAX + 64, "%s", module->path);
		int fd = hl_maps_open_regular(path);
		if (fd >= 0 && fstat(fd, &status) == 0 && status.st_ino == module->inode)
			return fd;
		if (fd >= 0)
			close(fd);
	}
	return -ENOENT;
}

static void read_module(const struct walk *walk, struct module *module)
{
	char path[PATH_MAX + 64];

	module->is_tried = true;
	HL_CLOSED int fd = open_file(walk, module, path);
	if (fd < 0)
		return;
	module->has_table = hl_code_table_read(fd, 0, &module->table) == 0;
	if (module->has_table)
		hl_symbols_open(path, module->table.build_id, module->table.build_id_bytes,
				&module->symbols);
}

static struct module *find_module(struct walk *walk, uint64_t pc)
{
	for (size_t i = 0; i < walk->count; i++) {
		struct module *module = &walk->modules[i];
		if (pc - module->start >= module->end - module->start || !module->inode)
			continue;
		if (!module->is_tried)
			read_module(walk, module);
		return module;
	}
	return NULL;
}

/* ---- steps, as those of src/unwind/rule.c ---- */

static bool read_word(const struct walk *walk, uint64_t address, uint64_t *ret_word)
{
	uint64_t offset = address - walk->record->sp;

	if (offset % 8 || offset >= walk->record->stack_bytes)
		return false;
	*ret_word = walk->record->stack[offset / 8];
	return true;
}

static bool step_by_frame_pointer(struct walk *walk)
{
	struct hl_arch_frame *at = &walk->at;
	uint64_t frame = at->bp, bp, ra;

	if (!read_word(walk, frame, &bp) || !read_word(walk, frame + 8, &ra) || !ra)
		return false;
	ra = hl_machine_code_address(ra);
	*at = (struct hl_arch_frame){.pc = ra - 1, .sp = HL_ARCH_SP_BEYOND(frame, bp), .bp = bp};
	return true;
}

static bool read_place(const struct walk *walk, struct hl_rule_place place, uint64_t *ret_value)
{
	if (place.is_stored && !read_word(walk, place.base, &place.base))
		return false;
	*ret_value = place.base + place.addend;
	return true;
}

static bool step(struct walk *walk, hl_rule rule)
{
	struct hl_arch_frame *at = &walk->at;
	uint64_t cfa, ra = walk->link, bp = at->bp, context = at->sp;
	struct hl_rule_place place;

	walk->link = 0;
	if (HL_ARCH_IS_RECORD(rule))
		rule = HL_RULE_NONE;
	switch (hl_rule_kind_of(rule)) {
	case HL_RULE_NONE:
	case HL_RULE_OTHER_STACK:
		return step_by_frame_pointer(walk);
	case HL_RULE_SIGNAL:
		return read_word(walk, context + hl_arch_ucontext_offset(HL_ARCH_RETURN_REGISTER),
				 &walk->link) &&
		       read_word(walk, context + HL_UCONTEXT_RSP, &at->sp) &&
		       read_word(walk, context + HL_UCONTEXT_RBP, &at->bp) &&
		       read_word(walk, context + HL_UCONTEXT_RIP, &at->pc) && at->pc;
	default:
		break;
	}
	bool is_register = HL_ARCH_RETURN_IN_REGISTER(rule);
	if (!hl_rule_find_cfa(rule, at, 0, &place) || !read_place(walk, place, &cfa) ||
	    cfa < at->sp ||
	    (!is_register &&
	     (cfa == at->sp || !read_word(walk, HL_ARCH_RETURN_AT(rule, cfa), &ra))) ||
	    !ra || (!is_register && !read_place(walk, hl_rule_find_bp(rule, at, cfa), &bp)))
		return false;
	ra = hl_machine_code_address(ra);
	*at = (struct hl_arch_frame){.pc = ra - 1, .sp = cfa, .bp = bp};
	return true;
}

/* ---- names ---- */

static void name_frame(const struct walk *walk, const struct module *module, uint64_t address)
{
	const struct hl_symbols_frame *frames = NULL;
	size_t count = 0;
	char text[1024];

	if (module->symbols && hl_symbols_find(module->symbols, address, &frames, &count) < 0)
		count = 0;
	for (size_t i = 0; i < count; i++) {
		const struct hl_symbols_frame *frame = &frames[i];
		if (!*frame->function)
			snprintf(text, sizeof(text), "%s+0x%" PRIx64,
				 hl_path_basename(module->path), address);
		else if (frame->line)
			snprintf(text, sizeof(text), "%s %s:%u", frame->function,
				 hl_path_basename(frame->file), frame->line);
		else
			snprintf(text, sizeof(text), "%s (%s)", frame->function,
				 hl_path_basename(module->path));
		json_array_append_new(walk->names, hl_watch_text(text));
	}
	if (!count) {
		snprintf(text, sizeof(text), "%s+0x%" PRIx64, hl_path_basename(module->path),
			 address);
		json_array_append_new(walk->names, hl_watch_text(text));
	}
}

static void walk_stack(struct walk *walk)
{
	uint64_t record = 0; /* by which the last frame was left, with a guess */

	for (unsigned i = 0; i < FRAMES_MAX; i++) {
		uint64_t pc = walk->at.pc;
		struct module *module = find_module(walk, pc);
		if (!module) {
			json_array_append_new(walk->names,
					      json_sprintf("[unknown code] 0x%" PRIx64, pc));
			return;
		}
		uint64_t offset = pc - module->start + module->offset, address = offset;
		hl_rule rule = HL_RULE_NONE;
		if (module->has_table && hl_code_table_address(&module->table, offset, &address))
			rule = hl_code_table_rule(&module->table, address);
		name_frame(walk, module, address);
		hl_rule_correct_sp(rule, record, &walk->at);
		record = HL_ARCH_GUESSES_SP(rule) ? walk->at.bp : 0;
		if (!step(walk, rule))
			return;
	}
}

json_t *hl_watch_stack_name(const struct hl_oom_record *record, const char *const maps_texts[2],
			    const pid_t *pids, size_t count)
{
	HL_FREED struct module *modules = calloc(HL_OOM_MAPS + MAPS_MAX, sizeof(*modules));
	struct walk walk = {.record = record,
			    .pids = pids,
			    .pid_count = count,
			    .modules = modules,
			    .at = {record->ip - record->in_call, record->sp, record->bp},
			    .link = record->link,
			    .names = json_array()};

	if (!modules || !record->stack_bytes)
		return walk.names;
	add_from_record(&walk);
	add_from_text(&walk, maps_texts[0]);
	add_from_text(&walk, maps_texts[1]);
	walk_stack(&walk);
	for (size_t i = 0; i < walk.count; i++) {
		hl_symbols_free(modules[i].symbols);
		if (modules[i].has_table)
			hl_code_table_release(&modules[i].table);
	}
	return walk.names;
}
