/* SPDX-License-Identifier: BSD-2-Clause */
/* Describes circumstances as JSON, which can be kept and compared; see symbols_cache.h. */
#include "symbols/symbols_cache.h"

#include "elf/elf.h"
#include "recording/fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* A server may have received the file since, so its answer expires after this time. */
#define SERVER_ANSWER_S (24 * 60 * 60)

/* ---- files ---- */

/* Appends ${path} with size and time of the file there. Takes the path, which may be NULL: out of
 * memory. */
static int add_file(json_t *files, char *path)
{
	struct stat status;

	if (!path)
		return -1;
	if (stat(path, &status) < 0)
		status = (struct stat){0};
	json_t *file =
		json_pack("{s:o*, s:I, s:I}", "path", hl_text_to_json(path), "bytes",
			  (json_int_t)status.st_size, "mtime_ns",
			  (json_int_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec);
	free(path);
	return json_array_append_new(files, file);
}

static char *linked_path(const char *root, const char *path, const char *below, const char *link)
{
	const char *slash = strrchr(path, '/');
	int directory = slash ? (int)(slash - path) : 0;
	char *linked;

	if (asprintf(&linked, "%s%.*s%s/%s", root, directory, path, below, link) < 0)
		return NULL;
	return linked;
}

/* ---- all of it ---- */

/* Takes ${files}; ${r} is negative where they are not complete. */
static json_t *describe(json_t *files, int r)
{
	const char *servers = getenv("DEBUGINFOD_URLS");

	if (r < 0) {
		json_decref(files);
		return NULL;
	}
	return json_pack("{s:s, s:o*, s:o}", "heapline", HL_VERSION, "debuginfod_urls",
			 hl_text_to_json(servers ? servers : ""), "files", files);
}

json_t *hl_symbols_circumstances_new(const char *path, const uint8_t *build_id,
				     size_t build_id_bytes, const char *debug_link)
{
	char debug_path[HL_ELF_DEBUG_PATH_MAX], *package;
	json_t *files = json_array();

	/* The file first; then its package, and where libdwfl looks for a separate debug file. */
	int r = add_file(files, strdup(path));
	if (r == 0)
		r = add_file(files, asprintf(&package, "%s.dwp", path) < 0 ? NULL : package);
	if (r == 0 && hl_elf_debug_path(HL_ELF_DEBUG_DIRECTORY, build_id, build_id_bytes,
					debug_path, sizeof(debug_path)))
		r = add_file(files, strdup(debug_path));
	if (r == 0 && debug_link)
		r = add_file(files, linked_path("", path, "", debug_link));
	if (r == 0 && debug_link)
		r = add_file(files, linked_path("", path, "/.debug", debug_link));
	if (r == 0 && debug_link)
		r = add_file(files, linked_path(HL_ELF_DEBUG_DIRECTORY, path, "", debug_link));
	json_t *object = describe(files, r);
	if (object && json_object_set_new(object, "described_s", json_integer(time(NULL))) < 0) {
		json_decref(object);
		return NULL;
	}
	return object;
}

bool hl_symbols_circumstances_hold(const json_t *recorded, const char *path)
{
	const json_t *files = json_object_get(recorded, "files");
	const char *servers = json_string_value(json_object_get(recorded, "debuginfod_urls"));
	json_t *described = json_object_get(recorded, "described_s");
	json_int_t age_s = (json_int_t)time(NULL) - json_integer_value(described);
	bool is_fresh = !servers || !servers[0] || (age_s >= 0 && age_s < SERVER_ANSWER_S);
	json_t *expected = hl_text_to_json(path), *files_now = json_array();
	int r = files_now ? 0 : -1;

	for (size_t i = 0; r == 0 && i < json_array_size(files); i++) {
		const json_t *text = json_object_get(json_array_get(files, i), "path");
		char *file = NULL;
		hl_text_from_json(text, &file);
		r = add_file(files_now, file);
	}
	json_t *now = describe(files_now, r);
	bool equal = now && expected && is_fresh &&
		     json_object_set(now, "described_s", described) == 0 &&
		     json_equal(recorded, now) &&
		     json_equal(json_object_get(json_array_get(files, 0), "path"), expected);
	json_decref(now);
	json_decref(expected);
	return equal;
}
