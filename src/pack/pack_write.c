/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes packed recordings; see pack.h. */
#include "pack/pack_sections.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct packing {
	const struct hl_profile *profile;
	struct hl_container_writer writer;
	struct hl_error *err;
	bool has_resident;
};

static int out_of_memory(struct packing *packing)
{
	return hl_error_set(packing->err, -ENOMEM, "cannot write '%s': out of memory",
			    packing->writer.name);
}

static int add_structs(struct packing *packing, uint32_t type, const struct hl_columns *columns,
		       const void *structs, size_t count)
{
	return hl_columns_write(columns, &packing->writer, type, structs, count, packing->err);
}

/* Of arrays whose element 0 stands for "none". */
static int add_numbered(struct packing *packing, uint32_t type, const struct hl_columns *columns,
			const void *structs, size_t count)
{
	return add_structs(packing, type, columns, (const char *)structs + columns->struct_bytes,
			   count - 1);
}

static int add_nodes(struct packing *packing)
{
	const struct hl_profile *profile = packing->profile;
	HL_FREED struct hl_pack_node *nodes = calloc(profile->node_count, sizeof(*nodes));

	if (!nodes)
		return out_of_memory(packing);
	for (size_t i = 1; i < profile->node_count; i++) {
		const struct hl_profile_node *node = &profile->nodes[i];
		nodes[i] = (struct hl_pack_node){nodes[node->parent].depth + 1, node->frame};
	}
	return add_numbered(packing, HL_PACK_NODES, &hl_pack_node_columns, nodes,
			    profile->node_count);
}

/* Counters by node as rows of no thread. */
static int add_counters(struct packing *packing, uint32_t type,
			const struct hl_profile_counters *counters)
{
	size_t node_count = counters ? packing->profile->node_count : 0, count = 0;
	HL_FREED struct hl_profile_row *rows = calloc(node_count + 1, sizeof(*rows));

	if (!rows)
		return out_of_memory(packing);
	for (uint32_t i = 0; i < node_count; i++)
		if (hl_profile_counters_any(&counters[i]))
			rows[count++] = (struct hl_profile_row){i, HL_PACK_NO_THREAD, counters[i]};
	int r = add_structs(packing, type, &hl_pack_row_columns, rows, count);
	if (r == 0 && type == HL_PACK_ROWS && packing->has_resident)
		r = add_structs(packing, HL_PACK_RESIDENT, &hl_pack_resident_columns, rows, count);
	return r;
}

static bool has_scripts(const struct hl_profile *profile)
{
	for (size_t i = 1; i < profile->module_count; i++)
		if (profile->modules[i].script)
			return true;
	return false;
}

static bool has_rare(const struct hl_profile *profile, size_t counter)
{
	return hl_lost_counters[counter].pack_section && hl_lost_value(&profile->lost, counter);
}

static int add_sections(struct packing *packing)
{
	const struct hl_profile *profile = packing->profile;
	HL_FREED char *meta = hl_pack_meta_write(profile);

	int r = meta ? hl_container_writer_add(&packing->writer, HL_PACK_META, meta, strlen(meta),
					       false, packing->err)
		     : out_of_memory(packing);
	if (r == 0)
		r = hl_container_writer_add_texts(&packing->writer, HL_PACK_TEXTS,
						  &profile->strings, packing->err);
	if (r == 0)
		r = add_structs(packing, HL_PACK_PROCESSES, &hl_pack_process_columns,
				profile->processes, profile->process_count);
	if (r == 0)
		r = add_structs(packing, HL_PACK_INHERITED, &hl_pack_inherited_columns,
				profile->processes, profile->process_count);
	for (size_t i = 0; r == 0 && i < HL_LOST_COUNT; i++)
		if (has_rare(profile, i))
			r = add_structs(packing, hl_lost_counters[i].pack_section,
					&hl_pack_lost_columns[i], profile->processes,
					profile->process_count);
	if (r == 0)
		r = add_structs(packing, HL_PACK_THREADS, &hl_pack_thread_columns, profile->threads,
				profile->thread_count);
	if (r == 0)
		r = add_numbered(packing, HL_PACK_MODULES, &hl_pack_module_columns,
				 profile->modules, profile->module_count);
	if (r == 0)
		r = add_numbered(packing, HL_PACK_PRINTS, &hl_pack_print_columns, profile->modules,
				 profile->module_count);
	if (r == 0)
		r = add_numbered(packing, HL_PACK_FUNCTIONS, &hl_pack_function_columns,
				 profile->functions, profile->function_count);
	if (r == 0)
		r = add_numbered(packing, HL_PACK_FRAMES, &hl_pack_frame_columns, profile->frames,
				 profile->frame_count);
	if (r == 0 && has_scripts(profile))
		r = add_numbered(packing, HL_PACK_SCRIPTS, &hl_pack_script_columns, profile->frames,
				 profile->frame_count);
	if (r == 0)
		r = add_nodes(packing);
	if (r == 0)
		r = profile->thread_count ? add_structs(packing, HL_PACK_ROWS, &hl_pack_row_columns,
							profile->rows, profile->row_count)
					  : add_counters(packing, HL_PACK_ROWS, profile->counters);
	if (r == 0 && packing->has_resident && profile->thread_count)
		r = add_structs(packing, HL_PACK_RESIDENT, &hl_pack_resident_columns, profile->rows,
				profile->row_count);
	if (r == 0)
		r = add_structs(packing, HL_PACK_SIZES, &hl_pack_size_columns, profile->sizes,
				profile->size_count);
	if (r == 0)
		r = add_counters(packing, HL_PACK_BASE, profile->base);
	return r;
}

int hl_pack_write(const struct hl_profile *profile, const struct hl_pack_log *log, int fd,
		  const char *name, struct hl_error *err)
{
	struct packing packing = {
		.profile = profile,
		.err = err,
		.has_resident = profile->known[HL_VALUE_RESIDENT][HL_UNIT_BYTES] ||
				profile->known[HL_VALUE_SWAPPED][HL_UNIT_BYTES],
	};
	uint32_t sections = HL_PACK_SECTION_COUNT + has_scripts(profile) + packing.has_resident +
			    (log ? HL_PACK_LOG_SECTION_COUNT : 0);

	for (size_t i = 0; i < HL_LOST_COUNT; i++)
		sections += has_rare(profile, i);
	hl_container_writer_init_fd(&packing.writer, fd, name, HL_KIND_PACK, sections);
	packing.writer.compression_level = HL_COMPRESSION_SMALL;
	int r = add_sections(&packing);
	if (r == 0 && log)
		r = hl_pack_log_write(log, &packing.writer, err);
	if (r == 0)
		r = hl_container_writer_finish(&packing.writer, true, err);
	hl_container_writer_release(&packing.writer);
	return r;
}
