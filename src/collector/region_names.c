/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks nodes and modules up; see region_names.h. */
#include "collector/region_names.h"

#include "base/frame_key.h"

#include <stdlib.h>
#include <string.h>

static bool is_published(const struct hl_region_view *view, uint32_t id)
{
	return id && id <= hl_region_read_node_count(view) && hl_region_read_node(view, id).frame;
}

/* As in a recording: a parent that is not there makes the node one of the outermost, a frame in a
 * module that is not known keeps its address. */
static bool find_node(const struct hl_log_names *log_names, uint32_t id, uint64_t *ret_frame,
		      uint32_t *ret_parent)
{
	const struct hl_region_names *names = (const struct hl_region_names *)log_names;

	if (!is_published(&names->view, id))
		return false;
	struct hl_recording_node node = hl_region_read_node(&names->view, id);
	if (!hl_frame_key_is_valid(node.frame, hl_region_read_module_count(&names->view)))
		node.frame &= HL_FRAME_PC_MASK;
	*ret_frame = node.frame;
	*ret_parent = is_published(&names->view, node.parent) ? node.parent : 0;
	return true;
}

static uint32_t count_modules(const struct hl_log_names *log_names)
{
	return hl_region_read_module_count(&((const struct hl_region_names *)log_names)->view);
}

static bool find_module(const struct hl_log_names *log_names, uint32_t number,
			struct hl_log_module *ret_module)
{
	struct hl_region_names *names = (struct hl_region_names *)(uintptr_t)log_names;
	struct hl_recording_module *module = &names->module;

	if (!number || number > hl_region_read_module_count(&names->view))
		return false;
	hl_region_names_release(names);
	if (hl_region_read_module(&names->view, number - 1, module) < 0)
		return false;
	*ret_module = (struct hl_log_module){
		.path = hl_region_module_is_main(module) ? names->executable : module->path,
		.start = module->start,
		.end = module->end,
		.load_bias = module->load_bias,
		.build_id_bytes = module->build_id_bytes,
	};
	memcpy(ret_module->build_id, module->build_id, module->build_id_bytes);
	return true;
}

static bool find_provider(const struct hl_log_names *log_names, uint32_t index,
			  struct hl_region_provider *ret_provider)
{
	const struct hl_region_names *names = (const struct hl_region_names *)log_names;
	const struct hl_region_header *header = names->view.base;

	if (index >= HL_SCRIPT_PROVIDERS_MAX ||
	    index >= atomic_load_explicit(&header->provider_count, memory_order_acquire))
		return false;
	*ret_provider = header->providers[index];
	return true;
}

/* The name that begins at ${start}; "" where the program has written over it. */
static void read_name(const struct hl_region_view *view, uint32_t start,
		      char ret_text[HL_SITE_NAME_MAX + 1])
{
	const struct hl_region_header *header = view->base;
	const char *area = hl_region_read_area(view, HL_AREA_NAMES);
	uint32_t end = hl_region_read_bounded(
		view, HL_AREA_NAMES,
		atomic_load_explicit(&header->name_bytes, memory_order_acquire), 1);
	struct hl_region_name name;

	ret_text[0] = '\0';
	if (start >= end || end - start < sizeof(name))
		return;
	memcpy(&name, area + start, sizeof(name));
	if (name.bytes > HL_SITE_NAME_MAX || hl_region_name_bytes(name.bytes) > end - start)
		return;
	memcpy(ret_text, area + start + sizeof(name), name.bytes);
	ret_text[name.bytes] = '\0';
}

static bool find_site(const struct hl_log_names *log_names, uint32_t number,
		      struct hl_log_site *ret_site)
{
	struct hl_region_names *names = (struct hl_region_names *)(uintptr_t)log_names;
	const struct hl_region_view *view = &names->view;
	const struct hl_region_header *header = view->base;
	const struct hl_region_site *sites = hl_region_read_area(view, HL_AREA_SITES);
	uint32_t count = hl_region_read_bounded(
		view, HL_AREA_SITES,
		atomic_load_explicit(&header->site_count, memory_order_acquire), sizeof(*sites));
	uint32_t providers = atomic_load_explicit(&header->provider_count, memory_order_acquire);

	if (!number || number > count)
		return false;
	struct hl_region_site site = sites[number - 1];
	read_name(view, site.function, names->function);
	read_name(view, site.source, names->source);
	*ret_site = (struct hl_log_site){
		.provider = site.provider < providers ? site.provider : 0,
		.line = site.line,
		.first_line = site.first_line,
		.function = names->function,
		.source = names->source,
	};
	return true;
}

void hl_region_names_init(struct hl_region_names *names, const struct hl_region_view *view,
			  const char *executable)
{
	*names = (struct hl_region_names){
		.names = {.node = find_node,
			  .module_count = count_modules,
			  .module = find_module,
			  .provider = find_provider,
			  .site = find_site},
		.view = *view,
		.executable = executable,
	};
}

void hl_region_names_release(struct hl_region_names *names)
{
	free(names->module.path);
	names->module.path = NULL;
}
