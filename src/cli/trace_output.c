/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes the results of traces; see trace_run.h. */
#include "cli/trace_run.h"

#include "base/clock.h"
#include "cli/output.h"
#include "cli/terminal_progress.h"
#include "collector/module_files.h"
#include "process/maps.h"
#include "profile/symbols_advice.h"
#include "profile/trace_kind.h"
#include "view/format.h"
#include "view/view.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int hl_trace_output_open(const char *path, bool force, struct hl_directory *ret_directory,
			 struct hl_error *err)
{
	struct hl_directory directory = {.fd = -1};

	int r = path ? hl_directory_init(&directory, path, force, err) : 0;
	if (r == 0)
		*ret_directory = directory;
	return r;
}

void hl_trace_output_close(struct hl_directory *directory, bool keep)
{
	if (!keep)
		hl_directory_remove(directory);
	hl_directory_release(directory);
}

/* ---- a view ---- */

/* The target's own files, while it lives: it may see others under their paths than we do, or go on
 * with some that were replaced. */
struct target_files {
	struct hl_file_finder finder;
	pid_t pid;
	struct hl_maps maps; /* empty until needed */
	char path[PATH_MAX];
};

static const char *find_file(struct hl_file_finder *finder, const char *path)
{
	struct target_files *files = (struct target_files *)finder;

	if (!files->maps.count && hl_maps_read(files->pid, &files->maps, NULL) < 0)
		return NULL;
	for (size_t i = 0; i < files->maps.count; i++) {
		const struct hl_map *map = &files->maps.maps[i];
		if (map->flags & HL_MAP_EXEC && !strcmp(map->path, path) &&
		    hl_maps_file_path(files->pid, map, files->path, sizeof(files->path)) == 0)
			return files->path;
	}
	return NULL;
}

static int load(const struct hl_trace_target *target, const struct hl_recording *recording,
		struct hl_profile **ret_profile, struct hl_error *err)
{
	struct hl_terminal_progress progress;
	struct target_files files = {.finder = {find_file},
				     .pid = (pid_t)recording->processes[0].pid};
	struct hl_profile_selection selection = {.files = &files.finder,
						 .progress = &progress.progress};
	struct hl_profile *profile = NULL;

	hl_terminal_progress_init(&progress, "naming functions");
	int r = hl_profile_load(recording, &selection, &profile, err);
	if (r == 0)
		r = hl_filter_apply(&target->filter, profile, NULL, err);
	hl_terminal_progress_clear(&progress);
	hl_maps_release(&files.maps);
	if (r < 0)
		hl_profile_free(profile);
	else
		*ret_profile = profile;
	return r;
}

/* JSON in one line: line feeds stand between its words alone. */
static int show_in_one_line(const struct hl_profile *profile, struct hl_view_options *options,
			    struct hl_error *err)
{
	FILE *out = options->out;
	char *json = NULL;
	size_t size;

	options->out = open_memstream(&json, &size);
	if (!options->out)
		return hl_error_set(err, -ENOMEM, "out of memory");
	int r = hl_stacks_view(profile, options, err);
	if (fclose(options->out) == 0 && r == 0) {
		for (const char *at = json; *at; at += strspn(at, "\n ")) {
			size_t length = strcspn(at, "\n");
			fwrite(at, 1, length, out);
			at += length;
		}
		putc('\n', out);
	}
	free(json);
	return r;
}

static int show(const struct hl_trace_target *target, const struct hl_recording *recording,
		struct hl_error *err)
{
	struct hl_view_options options = target->view.options;
	bool json = target->view.output.json, has_head = target->repeated && !json;
	struct hl_profile *profile = NULL;
	struct hl_report_output report;

	options.stacks.brief = target->repeated;
	int r = load(target, recording, &profile, err);
	if (r < 0)
		return r;
	hl_symbols_advice_add(profile, HL_DPKG_DIRECTORY); /* or goes without advice */
	r = hl_view_options_choose_value(&target->view, profile, target->folded, &options, err);
	if (r == 0 && has_head) {
		time_t end = (time_t)((recording->start_realtime_ns + recording->duration_ns) /
				      HL_NS_PER_SECOND);
		char clock[16], duration[HL_FORMAT_MAX];
		struct tm parts;
		strftime(clock, sizeof(clock), "%H:%M:%S", localtime_r(&end, &parts));
		printf("%s, growth of the last %s\n", clock,
		       hl_format_duration(recording->duration_ns, duration));
	}
	if (r == 0)
		r = hl_report_output_open(&report, &target->view.output,
					  !target->folded && !json && !target->repeated, err);
	if (r == 0) {
		options.json = json;
		options.color = hl_view_output_has_color(report.options);
		options.notes = stderr;
		options.out = report.out;
		r = target->folded	       ? hl_folded_view(profile, &options, err)
		    : target->repeated && json ? show_in_one_line(profile, &options, err)
					       : hl_stacks_view(profile, &options, err);
		r = hl_report_output_close(&report, r, err);
	}
	if (has_head)
		putchar('\n');
	if (target->repeated)
		fflush(stdout);
	hl_profile_free(profile);
	return r;
}

/* Names are known later, too, when the target and its own files are gone. */
static void keep_files(struct hl_recording_process *process, int directory_fd)
{
	struct hl_held_files held = {0};
	struct hl_module_files *files = hl_module_files_new(&held);

	if (!files)
		return;
	hl_module_files_look(files, (pid_t)process->pid, process->module_count);
	hl_module_files_keep(files, process, 0, directory_fd);
	hl_module_files_free(files);
}

int hl_trace_output_write(const struct hl_trace_target *target,
			  const struct hl_directory *directory, struct hl_recording *recording,
			  struct hl_error *err)
{
	bool keeps = directory->fd >= 0;
	bool shows = !keeps || target->folded || target->view.output.json;

	if (keeps) {
		int r = 0;
		for (uint32_t i = 0; r == 0 && i < recording->process_count; i++) {
			keep_files(&recording->processes[i], directory->fd);
			r = hl_recording_write_process(directory->fd, &recording->processes[i],
						       err);
		}
		if (r == 0)
			r = hl_recording_write_meta(directory->fd, recording, err);
		if (r < 0)
			return r;
		hl_directory_sync(directory);
		char duration[HL_FORMAT_MAX], bytes[HL_FORMAT_MAX];
		const struct hl_recording_process *process = &recording->processes[0];
		const struct hl_trace_kind *kind = hl_trace_kind_of(recording->mode);
		uint64_t sum = 0;
		for (uint32_t i = 0; i < process->value_count; i++)
			sum += process->values[i].alloc_bytes - process->values[i].free_bytes;
		hl_cli_note("traced process %u for %s, %s %s by %u stack%s in '%s'; see 'heapline "
			    "top %s'",
			    process->pid, hl_format_duration(recording->duration_ns, duration),
			    kind && strcmp(kind->word, "not freed") != 0 ? kind->word : "kept",
			    hl_format_bytes((int64_t)sum, bytes), process->value_count,
			    hl_format_plural(process->value_count), target->path, target->path);
	}
	return shows ? show(target, recording, err) : 0;
}
