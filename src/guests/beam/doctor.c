/* SPDX-License-Identifier: BSD-2-Clause */
/* How 'heapline doctor' says that a node of Erlang can be asked; see guests/tool.h. */
#include "cli/doctor.h"

#include "base/words.h"
#include "guests/tool.h"
#include "guests/traits.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The name that a node of Erlang was started with, or NULL. */
static const char *node_name(const struct hl_process_facts *facts)
{
	for (char **word = facts->command; word[0] && word[1]; word++)
		if (!strcmp(word[0], "-name") || !strcmp(word[0], "-sname"))
			return word[1];
	return NULL;
}

static void judge(struct hl_doctor *doctor, const struct hl_process_facts *facts)
{
	const char *name = node_name(facts);
	char host[64] = "", node[320]; /* of a name Erlang takes 255 bytes */

	if (strncmp(facts->comm, "beam", 4) != 0)
		return;
	if (!name) {
		struct hl_doctor_way *way = hl_doctor_add(doctor, "beam", HL_DOCTOR_NO, "%s", "");
		snprintf(way->reason, sizeof(way->reason), "the node has no name to reach it by");
		snprintf(way->remedy, sizeof(way->remedy), "start it with -sname NAME");
		return;
	}
	gethostname(host, sizeof(host) - 1);
	host[strcspn(host, ".")] = '\0';
	snprintf(node, sizeof(node), "%.255s%s%s", name, strchr(name, '@') ? "" : "@",
		 strchr(name, '@') ? "" : host);
	struct hl_doctor_way *way = hl_doctor_add(doctor, "beam", HL_DOCTOR_PARTLY, "%s", "");
	FILE *out = fmemopen(way->command, sizeof(way->command), "w");
	if (out) {
		fputs("heapline beam --node ", out);
		hl_words_put(out, node);
		fputs(" carriers", out);
		fclose(out);
	}
	snprintf(way->reason, sizeof(way->reason), "it takes the node's cookie (--cookie-file)");
}

extern const struct hl_verb hl_verb_beam;

const struct hl_guest_tool hl_guest_tool_beam = {
	.traits = &hl_guest_traits_beam,
	.verb = &hl_verb_beam,
	.judge = judge,
};
