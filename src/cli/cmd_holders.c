/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline holders: which variables, stacks and mappings keep the blocks of a heap. */
#include "cli/families.h"
#include "heap/graph/holders.h"
#include "import/importer.h"
#include "open/open.h"
#include "view/heap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_DEFAULT 6u

struct request {
	struct hl_heap_target target;
	const char *stack, *class, *path; /* as they are written; NULL: not given */
	uint64_t size, depth;
	bool tree;
};

static const struct request defaults = {
	.target.output.row_limit = HL_EMIT_ROWS_DEFAULT,
	.depth = DEPTH_DEFAULT,
};

static const struct hl_option options[] = {
	{"rows", 'n', "N", "at most N rows; 0: all (default: 30, in JSON all)", HL_OPTION_COUNT,
	 HL_AT(target.output.row_limit), NULL},
	{"stack", 0, "RE", "blocks that a stack with a function allocated that RE matches",
	 HL_OPTION_TEXT, HL_AT(stack), NULL},
	{"class", 0, "RE", "blocks whose class RE matches", HL_OPTION_TEXT, HL_AT(class), NULL},
	{"size", 0, "BYTES", "blocks that the program asked for with BYTES", HL_OPTION_BYTES,
	 HL_AT(size), NULL},
	{"path", 0, "ADDRESS", "show the shortest chain of pointers to the block at ADDRESS alone",
	 HL_OPTION_TEXT, HL_AT(path), NULL},
	{"tree", 0, NULL, "show what hangs on what, as a tree", HL_OPTION_FLAG, HL_AT(tree), NULL},
	{"depth", 0, "N", "levels of the tree; 0: all (default: 6)", HL_OPTION_COUNT, HL_AT(depth),
	 NULL},
	{0},
};

/* An address in hexadecimal, with 0x before it or without. */
static int parse_address(const char *text, uint64_t *ret_address)
{
	char *end;

	errno = 0;
	unsigned long long address = strtoull(text, &end, 16);
	if (errno || end == text || *end || text[0] == '-' || !address)
		return hl_cli_usage_error(&hl_verb_holders,
					  "'%s' is not an address; write it as 0x5581f0a2c2a0",
					  text);
	*ret_address = address;
	return HL_EXIT_DONE;
}

/* ---- as a recording ---- */

static bool is_recording(const char *path)
{
	size_t length = path ? strlen(path) : 0;

	return length > 3 && strcmp(path + length - 3, ".hl") == 0;
}

/* Packed, since holders and blocks are not frames that symbols could name. */
static int write_recording(const struct hl_holders *holders, const char *path, struct hl_error *err)
{
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = NULL;
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	if (out)
		hl_holders_fold(out, holders);
	int r = out && fclose(out) == 0 ? 0 : -ENOMEM;
	if (r == 0 && size == 0)
		r = hl_error_set(err, -ENODATA, "cannot write '%s': no block was asked for", path);
	if (r == 0)
		r = hl_open_import_bytes(&hl_importer_folded,
					 &(struct hl_import_input){.name = path,
								   .bytes = (const uint8_t *)text,
								   .size = size},
					 &profile, err);
	if (r == 0)
		r = hl_output_file_write_packed(profile, NULL, path, err);
	if (r == 0)
		hl_cli_note("%s are held; see 'heapline flame %s'",
			    HL_HEAP_BYTES(holders->selected.bytes), path);
	free(text);
	return r < 0 ? hl_error_set(err, r, "cannot write '%s': %s", path, strerror(-r)) : r;
}

/* ---- all ---- */

static int write_report(const struct request *request, const struct hl_holders *holders,
			bool has_address, struct hl_error *err)
{
	struct hl_report_output output;

	int r = hl_report_output_open(&output, &request->target.output, true, err);
	if (r < 0)
		return r;
	const struct hl_holders_report report = {
		.emit = hl_report_output_emit(&output),
		.tree = request->tree,
		.depth_limit = request->depth,
		.chain = has_address,
		.chain_alone = request->path != NULL,
	};
	return hl_report_output_close(&output, hl_holders_view(holders, &report), err);
}

/* Whether the line makes sense; what is asked for goes to ${settings}. */
static int check(struct request *request, int argc, char **argv,
		 struct hl_holders_settings *settings, bool *ret_records)
{
	struct hl_heap_target *target = &request->target;
	const char *address = request->path ? request->path : argc ? argv[0] : NULL;
	int status;

	if (request->path && argc)
		return hl_cli_usage_error(&hl_verb_holders, "unexpected argument '%s'", argv[0]);
	status = hl_heap_target_check(&hl_verb_holders, argc ? argc - 1 : 0, argv + (argc ? 1 : 0),
				      target);
	if (status == HL_EXIT_DONE)
		status = hl_view_output_obey_name(&hl_verb_holders, &target->output, NULL, false);
	if (status == HL_EXIT_DONE && address)
		status = parse_address(address, &settings->address);
	*ret_records = is_recording(target->output.path);
	if (status == HL_EXIT_DONE && *ret_records && target->output.json)
		status = hl_cli_usage_error(&hl_verb_holders,
					    "--json writes no recording; name another output");
	settings->stop = target->stop;
	settings->reads_swapped = target->swapped;
	settings->reads_unaligned = target->unaligned;
	settings->size = request->size;
	settings->names_words = !request->tree && target->output.json;
	return status;
}

static int compile(const char *text, const char *option, regex_t *expression,
		   const regex_t **ret_expression, struct hl_error *err)
{
	int r = text ? hl_expression_compile(text, option, expression, err) : 0;

	if (text && r == 0)
		*ret_expression = expression;
	return r;
}

static int run_holders(void *parsed, int argc, char **argv)
{
	struct request *request = parsed;
	const struct hl_view_output *to = &request->target.output;
	struct hl_holders_settings settings = {0};
	struct hl_holders *holders = NULL;
	struct hl_error err = {0};
	regex_t stack, class;
	bool records = false;

	int status = check(request, argc, argv, &settings, &records);
	if (status != HL_EXIT_DONE)
		return status;
	int r = records ? hl_output_file_check_regular(to->path, to->force, NULL, 0, &err)
			: hl_report_output_check(to, NULL, 0, &err);
	if (r == 0)
		r = compile(request->stack, " of --stack", &stack, &settings.stack, &err);
	if (r == 0)
		r = compile(request->class, " of --class", &class, &settings.type, &err);
	if (r == 0)
		r = hl_holders_read((pid_t)request->target.pid, request->target.core, &settings,
				    &holders, &err);
	if (r == 0)
		r = records ? write_recording(holders, to->path, &err)
			    : write_report(request, holders, settings.address != 0, &err);
	hl_holders_free(holders);
	if (settings.stack)
		regfree(&stack);
	if (settings.type)
		regfree(&class);
	return r < 0 ? hl_cli_error("%s", err.text) : HL_EXIT_DONE;
}

const struct hl_verb hl_verb_holders = {
	.name = "holders",
	.group = HL_GROUP_ALLOCATORS,
	.arguments = "-p PID | --core FILE [ADDRESS]",
	.summary = "show which variables, stacks and mappings keep the live blocks",
	.options = options,
	.shared_options = {HL_HEAP_TARGET_OPTIONS, hl_heap_graph_options, hl_view_json_options,
			   hl_view_color_options, hl_view_output_options},
	HL_REQUEST(defaults),
	.run = run_holders,
};
