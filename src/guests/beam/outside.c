/* SPDX-License-Identifier: BSD-2-Clause */
/* What is known of BEAMs from outside: the form in which their own tools write carriers, and their names; see guests/outside.h. */
#include "guests/outside.h"

#include "base/text.h"
#include "cli/cli.h"
#include "guests/beam/beam.h"
#include "process/process.h"

#include <string.h>
#include <unistd.h>

/* ---- names ---- */

bool hl_beam_find_node(const struct hl_process_facts *facts, char ret_node[HL_BEAM_NODE_MAX])
{
	const char *name = NULL;
	char host[64] = "";

	if (strncmp(facts->comm, "beam", 4) != 0)
		return false;
	for (char **word = facts->command; word[0] && word[1] && !name; word++)
		if (!strcmp(word[0], "-name") || !strcmp(word[0], "-sname"))
			name = word[1];
	gethostname(host, sizeof(host) - 1);
	host[strcspn(host, ".")] = '\0';
	bool has_host = name && strchr(name, '@');
	snprintf(ret_node, HL_BEAM_NODE_MAX, "%.255s%s%s", name ? name : "",
		 name && !has_host ? "@" : "", name && !has_host ? host : "");
	return true;
}

void hl_beam_put_command(const char *node, char *command, size_t size)
{
	FILE *out = fmemopen(command, size, "w");

	if (!out)
		return;
	fputs("heapline beam --node ", out);
	hl_words_put(out, node);
	fputs(" carriers", out);
	fclose(out);
}

static bool advise(const struct hl_process_facts *facts, struct hl_guest_advice *ret_advice)
{
	char node[HL_BEAM_NODE_MAX];

	if (!hl_beam_find_node(facts, node))
		return false;
	if (node[0])
		hl_beam_put_command(node, ret_advice->command, sizeof(ret_advice->command));
	ret_advice->what = node[0] ? "shows what each allocator of the node has"
				   : "'heapline beam' shows what each allocator of a node has that "
				     "has a name (erl -sname NAME)";
	return true;
}

/* ---- forms ---- */

static const struct hl_option form_options[] = {
	{"term", 0, NULL, "write a term of Erlang", HL_OPTION_FLAG,
	 offsetof(struct hl_guest_request, form), NULL},
	{0},
};

const struct hl_guest_outside hl_guest_outside_beam = {
	.advise = advise,
	.form = {hl_erlang_term_put_carriers, hl_erlang_term_put_allocations},
	.options[HL_GUEST_OPTIONS_FORM] = form_options,
};
