/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names of machine code that lies in no file, by what the runtime that made it writes for perf:
 * perf-PID.map, lines of `START SIZE NAME` in hexadecimal, and jit-PID.dump (jitdump), binary
 * records with timestamps. Both may be anything: they are the target's.
 */
#pragma once

#include "recording/recording.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Names those of ${count} ${places}, in rising order of address, whose name is NULL, by the text
 * of a map or the bytes of a dump. The last line that has an address names it; of a dump, the newest
 * record that is not younger than ${before_ns} of CLOCK_MONOTONIC. What makes no sense is left out,
 * and in a dump, where records have no marks to begin again at, all after it. 0 or -ENOMEM.
 */
int hl_code_names_map(const char *text, size_t length, struct hl_recording_code *places,
		      size_t count);
int hl_code_names_dump(const uint8_t *bytes, size_t size, uint64_t before_ns,
		       struct hl_recording_code *places, size_t count);

/* Where a process may have such files, which can be read after its end, too. */
struct hl_code_files {
	int directory_fds[2]; /* /tmp as the process sees it, and where it works; -1: unknown */
	uint32_t pid, uid;    /* pid: in its own namespace, which is in the files' names */
	pid_t asked_pid;      /* in ours, where its runtime may be asked to write them; or 0 */
	uint64_t
		start_realtime_ns; /* of the process: older files are of another one with its pid */
};

#define HL_CODE_FILE_NAME_MAX 32u

#define HL_CODE_FILES_NONE ((struct hl_code_files){.directory_fds = {-1, -1}})

/* Looks again, unless ${pid} has ended: a process may change its user, its root and where it works.
 * ${files} is to be released. */
void hl_code_files_refresh(struct hl_code_files *files, pid_t pid);

/*
 * Gives ${process} the names of its frames outside every module, by what these files said until
 * ${before_ns}. Files count that belong to the process' user or to root, and are not older than it; of one that is longer than
 * 128 MiB its end, and of a dump its beginning. ${ret_refused} is the name of one that would be needed and cannot be opened, or is no
 * regular file of these users; "": there is none. ${ret_nameless}: how many places have no name then. Where some lack one,
 * the runtime is asked, which takes up to 4 seconds; a map that it writes and that was not there is removed again. 0 or -ENOMEM.
 */
int hl_code_files_name(const struct hl_code_files *files, uint64_t before_ns,
		       struct hl_recording_process *process,
		       char ret_refused[HL_CODE_FILE_NAME_MAX], size_t *ret_nameless);

/* The sentence for such a file: its name, and the process that made the code. */
#define HL_CODE_FILE_REFUSED                                                                  \
	"'%s' was not read for the names of code that process %d made: it cannot be opened, " \
	"is not a regular file, or belongs to neither the process' user nor root"

void hl_code_files_release(struct hl_code_files *files);
