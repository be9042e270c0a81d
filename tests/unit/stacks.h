/* SPDX-License-Identifier: BSD-2-Clause */
/* Profiles made by hand from stacks written as text, for tests of what compares and shows them. */
#pragma once

#include "profile/builder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/*
 * One stack, from the root: "main:12;parse:7;read!/lib/libio.so". A frame is the name of a
 * function, the line (of app.c) where it is, if known, and the module, if it is not /bin/app.
 */
struct stack {
	const char *frames;
	int64_t bytes, objects; /* in use, allocated, and at the peak */
};

static inline uint32_t stack_frame(struct hl_builder *builder, char *text, uint64_t address)
{
	char *module_path = strchr(text, '!'), *line = strrchr(text, ':');
	struct hl_symbols_frame symbol = {.function_file = "", .file = ""};
	uint32_t module, frame, entry;

	if (module_path)
		*module_path++ = '\0';
	if (line) {
		*line++ = '\0';
		symbol.line = (uint32_t)atoi(line);
		symbol.function_line = symbol.line / 10 * 10;
		symbol.file = symbol.function_file = "/src/app.c";
	}
	symbol.function = text;
	if (module_path && strstr(module_path, ".lua")) {
		symbol.file = symbol.function_file = module_path;
		assert_int_equal(hl_builder_runtime(builder, "lua", &module), 0);
		assert_int_equal(hl_builder_site(builder, &symbol, module, &frame, &entry), 0);
		return frame;
	}
	assert_int_equal(hl_builder_module(builder, module_path ? module_path : "/bin/app",
					   (const uint8_t *)"id", 2, NULL, &module),
			 0);
	builder->profile->modules[module].used = true;
	assert_int_equal(hl_builder_frame(builder, &symbol, module, address, &frame), 0);
	return frame;
}

static inline uint32_t stack_node(struct hl_builder *builder, const char *frames, uint64_t address)
{
	char *text = strdup(frames), *rest = text, *word;
	uint32_t node = 0;

	while ((word = strsep(&rest, ";")) && *word)
		assert_int_equal(
			hl_builder_child(builder, node, stack_frame(builder, word, address), &node),
			0);
	free(text);
	return node;
}

static inline void add_stack(struct hl_profile *profile, uint32_t node, const struct stack *stack)
{
	struct hl_profile_counters counters = {
		.alloc_bytes = stack->bytes,
		.alloc_objects = stack->objects,
		.peak_bytes = stack->bytes,
		.peak_objects = stack->objects,
	};

	hl_profile_counters_add(&profile->counters[node], &counters);
	hl_profile_counters_add(&profile->total, &counters);
}

/* The profile ${name} of ${stacks}, that end with a zero; frames lie at ${address}. */
static inline struct hl_profile *profile_of(const char *name, const struct stack *stacks,
					    uint64_t address)
{
	struct hl_builder builder;
	struct hl_profile *profile;
	uint32_t nodes[64], *final_ids;
	size_t count = 0;

	assert_int_equal(hl_builder_init(&builder), 0);
	for (; stacks[count].frames; count++)
		nodes[count] = stack_node(&builder, stacks[count].frames, address);
	assert_int_equal(hl_builder_finish(&builder, &final_ids, &profile), 0);
	for (size_t i = 0; i < count; i++)
		add_stack(profile, final_ids[nodes[i]], &stacks[i]);
	assert_int_equal(hl_strings_intern(&profile->strings, name, &profile->name), 0);
	hl_profile_know_all(profile);
	profile->complete = true;
	profile->recorded_process_count = 1;
	free(final_ids);
	hl_builder_release(&builder);
	assert_true(hl_profile_is_valid(profile));
	return profile;
}

/* The names from the root to ${node}, joined by ';'. */
static inline void path_of(const struct hl_profile *profile, uint32_t node, char *buffer,
			   size_t size)
{
	if (!node) {
		buffer[0] = '\0';
		return;
	}
	path_of(profile, profile->nodes[node].parent, buffer, size);
	uint32_t function = profile->frames[profile->nodes[node].frame].function;
	size_t used = strlen(buffer);
	snprintf(buffer + used, size - used, "%s%s", used ? ";" : "",
		 hl_profile_text(profile, profile->functions[function].name));
}
