/* SPDX-License-Identifier: BSD-2-Clause */
/* Says that what was selected is not there; see profile.h. */
#include "profile/profile.h"

#include <errno.h>
#include <stdio.h>

#define WORDS_MAX 64

/* "process 4711", "process 4711/2", "process /2"; empty: any. */
static void put_process(const struct hl_profile_selection *selection, char words[WORDS_MAX])
{
	char pid[16] = "", sequence[16] = "";

	if (selection->pid)
		snprintf(pid, sizeof(pid), "%u", selection->pid);
	if (selection->by_sequence)
		snprintf(sequence, sizeof(sequence), "/%u", selection->sequence);
	snprintf(words, WORDS_MAX, "%s%s%s", pid[0] || sequence[0] ? "process " : "", pid,
		 sequence);
}

int hl_profile_selection_fail(const struct hl_profile_selection *selection, const char *name,
			      struct hl_error *err)
{
	char process[WORDS_MAX];

	put_process(selection, process);
	if (selection->tid)
		return hl_error_set(err, -ESRCH,
				    "no thread %u%s%s in '%s'; 'heapline top --by thread' lists "
				    "them",
				    selection->tid, process[0] ? " of " : "", process, name);
	if (!process[0])
		return hl_error_set(err, -ESRCH, "no process in '%s'", name);
	return hl_error_set(err, -ESRCH, "no %s in '%s'; 'heapline info' lists them%s", process,
			    name,
			    selection->by_sequence ? "" : ", and '-p /SEQ' picks one by its order");
}
