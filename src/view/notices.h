/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is missing or doubtful in a profile or a log, a sentence each. Reports have them in their
 * head; pictures and files have them among their own texts or beside themselves.
 *
 *	struct hl_notices notices = {0};
 *	hl_notices_of_profile(&notices, profile);
 *	hl_notices_emit(&notices, emit);
 */
#pragma once

#include "base/compiler.h"
#include "profile/profile.h"
#include "view/emit.h"

struct hl_notice {
	char *text;
	bool is_warning; /* must not be overlooked */
};

/* Zero-initialized ones are empty. */
struct hl_notices {
	struct hl_notice *notices;
	size_t count, capacity;
	int error; /* -ENOMEM when one of them found no room */
};

/* Adds a sentence: a warning, or what is merely worth knowing. */
void hl_notices_warn(struct hl_notices *notices, const char *format, ...) HL_PRINTF(2, 3);
void hl_notices_add(struct hl_notices *notices, const char *format, ...) HL_PRINTF(2, 3);

/*
 * Adds all that is missing or doubtful in ${profile}; that it began in the middle comes first. What
 * JSON must have as well is a warning of the profile: hl_profile_warn().
 */
void hl_notices_of_profile(struct hl_notices *notices, const struct hl_profile *profile);

/* Adds how many events a log lacks; nothing when it has all. */
void hl_notices_of_log_loss(struct hl_notices *notices, const struct hl_profile *profile);

/* Adds which modules have no line numbers or no names; nothing when all have. */
void hl_notices_of_names(struct hl_notices *notices, const struct hl_profile *profile);

#define HL_NOTICES_REASON_MAX 384

/* Why no frame of ${profile} is of a script, and what helps: a clause. Returns ${text}. */
const char *hl_notices_no_scripts(const struct hl_profile *profile,
				  char text[HL_NOTICES_REASON_MAX]);

/* Writes them as lines of ${emit}, which keeps the error of a lack of memory, and releases them. */
void hl_notices_emit(struct hl_notices *notices, struct hl_emit *emit);

/* The same as a text of its own on ${out}. 0 or -ENOMEM. */
int hl_notices_put(struct hl_notices *notices, FILE *out);

void hl_notices_release(struct hl_notices *notices);
