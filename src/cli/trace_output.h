/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the result of a trace goes: a recording, folded lines, JSON, or text for people. */
#pragma once

#include "collector/directory.h"
#include "profile/filter.h"
#include "recording/recording.h"
#include "view/view.h"

struct hl_trace_output {
	const char *path; /* of the recording; NULL: none is kept */
	bool force;	  /* replace a recording that is there */
	bool folded;
	bool repeated; /* one of several: text has a short head, JSON is one line */
	uint64_t row_limit;
	enum hl_view_key by;	 /* line or function */
	struct hl_filter filter; /* of what is shown */
};

/* Makes the directory of the recording, if there is to be one, so that nothing is traced in vain.
 * 0 or a negative errno with a sentence. */
int hl_trace_output_open(const struct hl_trace_output *output, struct hl_directory *ret_directory,
			 struct hl_error *err);

/*
 * Keeps ${recording} in ${directory} if that is open; writes text, folded lines or JSON to standard
 * output if they were asked for, or no recording is kept. 0 or a negative errno with a sentence.
 */
int hl_trace_output_write(const struct hl_trace_output *output,
			  const struct hl_directory *directory, struct hl_recording *recording,
			  struct hl_error *err);

/* Removes the directory again unless ${keep}. */
void hl_trace_output_close(struct hl_directory *directory, bool keep);
