/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the kind of a file and chooses its reader; see open.h. */
#include "open/open.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "fleet/query.h"
#include "guests/traits.h"
#include "import/gzip.h"
#include "import/importer.h"
#include "log/log.h"
#include "pack/pack.h"
#include "recording/recording.h"
#include "recording/recording_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Ten times what the largest programs give, and what any machine has memory for. */
#define INFLATED_MAX (UINT32_C(256) << 20)
#define MAGIC	     "HEAPLINE" /* of every file of heapline's own */
#define SQLITE_MARK  "SQLite format 3"

/* In the order of how sure their marks are, those of guests after the first: folded text has none and comes last. */
static const struct hl_importer *const importers[] = {
	&hl_importer_pprof,
	&hl_importer_legacy,
	&hl_importer_v8,
	&hl_importer_folded,
};

static int fail(struct hl_error *err, int code, const char *name)
{
	return hl_error_set(err, code, "cannot read '%s': %s", name, strerror(-code));
}

/* ---- files of other tools ---- */

/* A format that is known but not read may look like folded text. */
static const struct hl_importer *find_importer(const struct hl_import_input *input)
{
	for (size_t i = 0; i < HL_COUNT_OF(importers); i++) {
		if (importers[i]->detects(input) &&
		    (importers[i] != &hl_importer_folded || !hl_import_foreign(input)))
			return importers[i];
		for (size_t g = 0; i == 0 && hl_guest_importers[g]; g++)
			if (hl_guest_importers[g]->detects(input))
				return hl_guest_importers[g];
	}
	return NULL;
}

static int nothing_known(const struct hl_import_input *input, struct hl_error *err)
{
	if (!input->size)
		return hl_error_set(err, -EBADMSG, "cannot read '%s': it is empty", input->name);
	if (input->size >= strlen(MAGIC) && !memcmp(input->bytes, MAGIC, strlen(MAGIC)))
		return hl_error_set(err, -EBADMSG,
				    "cannot read '%s': it is one file of a recording; name the "
				    "directory that it is in",
				    input->name);
	if (input->size >= strlen(HL_EVENTS_MAGIC) &&
	    !memcmp(input->bytes, HL_EVENTS_MAGIC, strlen(HL_EVENTS_MAGIC)))
		return hl_log_source_refuse_events(input->name, err);
	const char *foreign = hl_import_foreign(input);
	if (foreign)
		return hl_error_set(err, -EBADMSG, "cannot read '%s': it is %s", input->name,
				    foreign);
	return hl_error_set(err, -EBADMSG,
			    "cannot read '%s': not a recording, and not a file type listed in "
			    "'heapline help import'",
			    input->name);
}

static int import_decoded(const struct hl_importer *importer, const struct hl_import_input *input,
			  struct hl_profile **ret_profile, struct hl_error *err)
{
	struct hl_profile *profile;

	if (!importer)
		importer = find_importer(input);
	if (!importer)
		return nothing_known(input, err);
	int r = importer->read(input, &profile, err);
	if (r < 0)
		return r;
	profile->imported = true;
	profile->complete = true;
	profile->unfiltered_total = profile->total;
	r = hl_strings_intern(&profile->strings, input->name, &profile->name);
	if (r == 0 && !profile->source) /* some importers say more than their name */
		r = hl_strings_intern(&profile->strings, importer->name, &profile->source);
	if (r == 0 && !profile->mode)
		profile->mode = profile->source;
	if (r < 0) {
		hl_profile_free(profile);
		return fail(err, r, input->name);
	}
	*ret_profile = profile;
	return 0;
}

static int import_inflated(const struct hl_importer *importer, const struct hl_import_input *input,
			   struct hl_profile **ret_profile, struct hl_error *err)
{
	struct hl_import_input decoded = {.name = input->name};
	uint8_t *text;

	if (!hl_import_text_is_utf16(input->bytes, input->size))
		return import_decoded(importer, input, ret_profile, err);
	if (hl_import_text_from_utf16(input->bytes, input->size, &text, &decoded.size) < 0)
		return fail(err, -ENOMEM, input->name);
	decoded.bytes = text;
	int r = import_decoded(importer, &decoded, ret_profile, err);
	free(text);
	return r;
}

int hl_open_import_bytes(const struct hl_importer *importer, const struct hl_import_input *input,
			 struct hl_profile **ret_profile, struct hl_error *err)
{
	struct hl_import_input inflated = {.name = input->name};
	uint8_t *bytes;

	if (!hl_gzip_detect(input->bytes, input->size))
		return import_inflated(importer, input, ret_profile, err);
	int r = hl_gzip_inflate(input->bytes, input->size, input->name, INFLATED_MAX, &bytes,
				&inflated.size, err);
	if (r < 0)
		return hl_error_set(err, r, "cannot read '%s': %s", input->name, strerror(-r));
	inflated.bytes = bytes;
	r = import_inflated(importer, &inflated, ret_profile, err);
	free(bytes);
	return r;
}

/* 0 when ${importer} (NULL: any importer) may read a file with that head, else a negative errno. */
static int check_head(const struct hl_importer *importer, const struct hl_import_input *head,
		      struct hl_error *err)
{
	struct hl_import_input text = *head;
	uint8_t *decoded = NULL;
	int r = 0;

	if (!head->partial || hl_gzip_detect(head->bytes, head->size))
		return 0;
	if (hl_import_text_is_utf16(head->bytes, head->size)) {
		if (hl_import_text_from_utf16(head->bytes, head->size, &decoded, &text.size) < 0)
			return fail(err, -ENOMEM, head->name);
		text.bytes = decoded;
	}
	if (importer ? !importer->detects(&text) : !find_importer(&text))
		r = nothing_known(&text, err);
	free(decoded);
	return r;
}

int hl_open_import(struct hl_input *file, const struct hl_importer *importer,
		   struct hl_profile **ret_profile, struct hl_error *err)
{
	struct hl_import_input input = {.name = file->name,
					.bytes = file->head,
					.size = file->head_size,
					.partial = file->head_size == HL_INPUT_HEAD_BYTES,
					.whole_size = file->size};
	uint8_t *bytes;

	int r = check_head(importer, &input, err);
	if (r == 0)
		r = hl_input_read(file, &bytes, &input.size, err);
	if (r < 0)
		return r;
	input.bytes = bytes;
	input.partial = false;
	r = hl_open_import_bytes(importer, &input, ret_profile, err);
	free(bytes);
	return r;
}

/* ---- any file ---- */

static int open_log(struct hl_log_source *source, const struct hl_profile_selection *selection,
		    struct hl_profile **ret_profile, struct hl_error *err)
{
	struct hl_profile_selection at = selection ? *selection : (struct hl_profile_selection){0};

	/* A segment alone does not say what was in use when the recording ended. */
	if (at.at.kind == HL_MOMENT_NONE)
		at.at.kind = HL_MOMENT_PEAK;
	return hl_moment_load(source, &at, ret_profile, err);
}

/* -ENOENT: it has no meta data. */
static int load_directory(const char *path, const struct hl_profile_selection *selection,
			  struct hl_profile **ret_profile, struct hl_error *err)
{
	struct hl_recording *recording = NULL;

	int r = hl_recording_open(path, &recording, err);
	if (r == 0 && selection && selection->filler)
		r = selection->filler->fill(selection->filler, recording, err);
	if (r == 0)
		r = hl_profile_load(recording, selection, ret_profile, err);
	hl_recording_free(recording);
	return r;
}

/* A recording without files of processes may have their logs. */
static int open_directory(const char *path, const struct hl_profile_selection *selection,
			  struct hl_profile **ret_profile, struct hl_error *err)
{
	bool at_moment = selection && selection->at.kind != HL_MOMENT_NONE;
	struct hl_profile *empty = NULL, *later = NULL;
	struct hl_log_source source;
	struct hl_error why = {0};

	int r = at_moment ? -ENOENT : load_directory(path, selection, &empty, &why);
	if (r < 0 && r != -ENOENT)
		return hl_error_set(err, r, "%s", why.text);
	if (r == 0 && empty->process_count) {
		*ret_profile = empty;
		return 0;
	}
	r = hl_log_source_open(&source, path, err);
	if (r == 0 && empty && !source.log.recording->process_count)
		*ret_profile = empty;
	else if (r == 0)
		r = open_log(&source, selection, ret_profile, err);
	/* The file of its first process may have come in between. */
	if (r == -ENOENT && empty && load_directory(path, selection, &later, &why) == 0 &&
	    later->process_count) {
		*ret_profile = later;
		r = 0;
	} else {
		hl_profile_free(later);
	}
	if (r < 0 || *ret_profile != empty)
		hl_profile_free(empty);
	hl_log_source_release(&source);
	return r;
}

/* Recording takes a moment longer than the program; views show the program's duration. */
static void set_duration(struct hl_profile *profile)
{
	if (profile->process_count == 1)
		profile->duration_ns = profile->processes[0].duration_ns;
}

static int open_store(const struct hl_input *input, struct hl_profile **ret_profile,
		      struct hl_error *err)
{
	HL_FREED char *url = hl_fleet_url(input->name);

	if (!url)
		return fail(err, -ENOMEM, input->name);
	return hl_fleet_profile(url, ret_profile, err);
}

int hl_open_profile_input(struct hl_input *input, const struct hl_profile_selection *selection,
			  struct hl_profile **ret_profile, struct hl_error *err)
{
	bool at_moment = selection && selection->at.kind != HL_MOMENT_NONE;
	struct hl_log_source source;
	int r;

	if (at_moment || hl_log_source_is_segment(input)) {
		r = hl_log_source_open_input(&source, input, err);
		if (r == 0)
			r = open_log(&source, selection, ret_profile, err);
		hl_log_source_release(&source);
	} else if (hl_pack_detect(input->head, input->head_size)) {
		r = hl_input_make_file(input, err);
		if (r == 0)
			r = hl_pack_read(input->fd, input->name, selection, ret_profile, err);
	} else if (hl_input_begins_with(input, SQLITE_MARK, strlen(SQLITE_MARK))) {
		r = open_store(input, ret_profile, err);
	} else if (selection && (selection->pid || selection->by_sequence || selection->tid)) {
		r = hl_error_set(err, -EINVAL,
				 "cannot select a process or thread of '%s': it is another tool's "
				 "file, which does not tell them apart",
				 input->name);
	} else {
		r = hl_open_import(input, NULL, ret_profile, err);
	}
	if (r == 0)
		set_duration(*ret_profile);
	return r;
}

int hl_open_profile(const char *path, const struct hl_profile_selection *selection,
		    struct hl_profile **ret_profile, struct hl_error *err)
{
	HL_CLEANUP(hl_input_close) struct hl_input input = HL_INPUT_NONE;

	if (hl_fleet_is_url(path))
		return hl_fleet_profile(path, ret_profile, err);
	if (!hl_input_is_directory(path)) {
		int r = hl_input_open(&input, path, err);
		return r < 0 ? r : hl_open_profile_input(&input, selection, ret_profile, err);
	}
	int r = open_directory(path, selection, ret_profile, err);
	if (r == 0)
		set_duration(*ret_profile);
	return r;
}

int hl_open_saved_ns(const char *path, uint64_t *ret_ns)
{
	HL_FREED char *meta = NULL;
	struct stat status;

	if (asprintf(&meta, "%s/" HL_META_FILE, path) < 0)
		return -ENOMEM;
	if (stat(meta, &status) < 0 && stat(path, &status) < 0)
		return -errno;
	*ret_ns = (uint64_t)status.st_mtim.tv_sec * HL_NS_PER_SECOND +
		  (uint64_t)status.st_mtim.tv_nsec;
	return 0;
}
