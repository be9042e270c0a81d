/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where verbs write: the file that -o names, the pager, and the report that goes to either.
 *
 * A file is written under a temporary name beside it and put in its place when it is whole, so that
 * what fails or is interrupted leaves nothing half written. What stands there already keeps its
 * mode and owner, and symbolic links are followed. Devices and pipes are written to as they are.
 */
#pragma once

#include "base/error.h"
#include "cli/view_options.h"
#include "view/emit.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

/* ---- files ---- */

struct hl_output_file {
	const char *path; /* as the user named it */
	char *target;	  /* where it lies, behind symbolic links */
	char *temporary;  /* NULL: written in place */
	FILE *out;
	int fd;	   /* of ${out} */
	int error; /* errno of the first write that failed, or 0 */
};

/*
 * Whether ${path} may be written, asked before the work begins: it does not exist, ${force} allows
 * overwriting it, or it is a device or a pipe; and it is not one of the ${input_count} ${inputs}
 * or a file in one of them. 0 or a negative errno with a sentence.
 */
int hl_output_file_check(const char *path, bool force, char *const *inputs, size_t input_count,
			 struct hl_error *err);

/* Like hl_output_file_check(), for what cannot be written to a device or a pipe. */
int hl_output_file_check_regular(const char *path, bool force, char *const *inputs,
				 size_t input_count, struct hl_error *err);

/*
 * Opens ${path}, which passed a check, into ${file}, which must not move until it is closed. One
 * can be open at a time: until then, a signal that ends the program takes the temporary away. 0 or
 * a negative errno with a sentence, after which there is nothing to close.
 */
int hl_output_file_open(struct hl_output_file *file, const char *path, struct hl_error *err);

/*
 * Puts the file in its place if ${keep} and nothing went wrong, or else removes the temporary. 0;
 * or a negative errno with a sentence, instead of another one in ${err}, when a write failed.
 */
int hl_output_file_close(struct hl_output_file *file, bool keep, struct hl_error *err);

struct hl_pack_log;

/* Packs ${profile}, loaded with keep_rows, and ${log} (NULL: none) into ${path}. 0 or a negative
 * errno with a sentence. */
int hl_output_file_write_packed(const struct hl_profile *profile, const struct hl_pack_log *log,
				const char *path, struct hl_error *err);

/* ---- the pager ---- */

struct hl_pager {
	pid_t pid; /* 0 if there is none */
	FILE *out; /* the pager, or standard output */
	int input; /* what the pager reads; the minder's */
	bool minded;
	pthread_t minder; /* waits for the pager, so that nothing is lost when it cannot run */
};

/* ---- reports ---- */

/* Where a report goes. */
struct hl_report_output {
	const struct hl_view_output *options;
	struct hl_pager pager;
	struct hl_output_file file;
	FILE *out;
};

enum hl_report_form {
	HL_REPORT_TABLE, /* or JSON */
	HL_REPORT_GUEST, /* see hl_guests_form() */
	HL_REPORT_SVG,
};

/*
 * The form that ${verb} writes to ${output}: a guest's if ${guest}, as by its --term; a picture, if it ${draws}
 * any, or JSON where the output is named so. HL_EXIT_DONE, or HL_EXIT_USAGE after a report.
 */
int hl_report_output_choose_form(const struct hl_verb *verb, struct hl_view_output *output,
				 bool guest, bool draws, enum hl_report_form *ret_form);

/*
 * Whether the output can be written at all, before any work is done for it; what is read, as in
 * hl_output_file_check(), is not to be overwritten. 0 or a negative errno with a sentence.
 */
int hl_report_output_check(const struct hl_view_output *options, char *const *inputs,
			   size_t input_count, struct hl_error *err);

/*
 * Opens it as ${options}, which must stay, say; ${output} must not move until it is closed. A report that is for people (${pages}) goes
 * through a pager if it is a terminal. 0 or a negative errno with a sentence, after which
 * there is nothing to close.
 */
int hl_report_output_open(struct hl_report_output *output, const struct hl_view_output *options,
			  bool pages, struct hl_error *err);

/* How a report is written to it. */
static inline struct hl_emit_options hl_report_output_emit(const struct hl_report_output *output)
{
	return (struct hl_emit_options){.out = output->out,
					.json = output->options->json,
					.color = hl_view_output_has_color(output->options),
					.row_limit = output->options->row_limit};
}

/*
 * Closes it after ${r}, what writing the report returned: a file is kept unless that is negative.
 * ${r}, or a negative errno with a sentence. An error of standard output is reported when the
 * program ends; a pager that was left early is not an error.
 */
int hl_report_output_close(struct hl_report_output *output, int r, struct hl_error *err);

/*
 * Has ${write} write a report of ${subject} as ${output} says to standard output, all at once, so that a terminal does not flicker; on one it takes the place of
 * what was there. 0 or a negative errno.
 */
int hl_report_output_screen(const struct hl_view_output *output,
			    int (*write)(const void *subject, const struct hl_emit_options *how),
			    const void *subject);

/* ---- terminal progress ---- */

/*
 * Shows on standard error, if that is a terminal, what work is done that takes over a second, and
 * how far it has come where that is known. A thread of its own shows it, so that work need not
 * report in time.
 */

struct hl_terminal_progress {
	struct hl_progress progress;
	bool is_running; /* the thread is there */
	pthread_t thread;
	pthread_cond_t ended;
	bool ends;
	const char *phase;  /* NULL: nothing is shown for it */
	const char *detail; /* of the phase, and how much of it is done; NULL: none is known */
	unsigned percent;
	bool shown;
};

/* Begins with ${phase}: "reading". One can be there at a time, and must not move. */
void hl_terminal_progress_init(struct hl_terminal_progress *progress, const char *phase);

/* What is done from here on; NULL when the terminal is needed for something else. */
void hl_terminal_progress_phase(struct hl_terminal_progress *progress, const char *phase);

/* Wipes what was shown, and shows nothing more. Twice is fine. */
void hl_terminal_progress_clear(struct hl_terminal_progress *progress);

/* Wipes what is shown, if anything is, so that a sentence can be written in its place. */
void hl_terminal_progress_wipe(void);
