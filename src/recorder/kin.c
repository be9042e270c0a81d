/* SPDX-License-Identifier: BSD-2-Clause */
/* Reports execs and children to the collector; see start.h. */
#include "recorder/start.h"

#include "recorder/private_map.h"
#include "recorder/recorder.h"
#include "recorder/sys.h"

#include <fcntl.h>
#include <string.h>

/* This process' region, or that of the nearest ancestor that has one. In ordinary memory, which
 * forked children inherit. */
static struct hl_region_header *_Atomic nearest;

/* A process that counted itself as unrecorded; its children are others. */
static uint32_t counted_pid;

/* A forked child that its parent counted and that has done nothing since. A child by vfork() that
 * runs a program takes this from its parent; the count is right all the same. */
static bool is_awaited;

void hl_kin_take(struct hl_region_header *region, size_t bytes)
{
	hl_private_map_adopt((char *)region + HL_REGION_HEAD, bytes - HL_REGION_HEAD);
	is_awaited = false;
	struct hl_region_header *before = atomic_exchange(&nearest, region);
	if (before)
		hl_sys_munmap(before, HL_REGION_HEAD);
}

bool hl_kin_are_followed(void)
{
	struct hl_region_header *header = atomic_load(&nearest);

	return header && (atomic_load(&header->flags) & HL_REGION_FOLLOW);
}

void hl_kin_count_forked(void)
{
	if (hl_kin_are_followed())
		atomic_fetch_add(&atomic_load(&nearest)->kin.awaited, 1);
}

void hl_kin_enter_child(void)
{
	is_awaited = hl_kin_are_followed();
}

/* The child is counted elsewhere. */
static void await_no_more(void)
{
	if (is_awaited)
		atomic_fetch_sub(&atomic_load(&nearest)->kin.awaited, 1);
	is_awaited = false;
}

void hl_kin_count_unrecorded(void)
{
	if (!hl_kin_are_followed())
		return;
	await_no_more();
	atomic_fetch_add(&atomic_load(&nearest)->kin.unrecorded, 1);
	counted_pid = hl_sys_getpid();
}

void hl_kin_leave(void)
{
	hl_kin_count_unrecorded();
	hl_sys6(SYS_mmap, (long)atomic_load(&nearest), (long)HL_REGION_HEAD, PROT_READ | PROT_WRITE,
		MAP_FIXED | MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

static void copy_name(char program[HL_KIN_NAME_MAX], const char *path)
{
	const char *name = strrchr(path, '/');

	name = name && name[1] ? name + 1 : path;
	size_t length = strnlen(name, HL_KIN_NAME_MAX - 1);
	memcpy(program, name, length);
	program[length] = '\0';
}

static void name_program(struct hl_region_kin *kin, const char *path, int fd)
{
	char link[32] = "/proc/self/fd/", target[256];

	if (path && path[0]) {
		copy_name(kin->program, path);
		return;
	}
	hl_sys_put_decimal(link + strlen(link), fd < 0 ? 0 : (uint32_t)fd);
	long length = hl_sys6(SYS_readlinkat, AT_FDCWD, (long)link, (long)target,
			      sizeof(target) - 1, 0, 0);
	target[length > 0 ? length : 0] = '\0';
	copy_name(kin->program, target);
}

struct hl_kin_exec hl_kin_begin_exec(const char *path, int fd)
{
	struct hl_kin_exec exec = {0};
	struct hl_region_header *header = atomic_load(&nearest);
	uint32_t pid = hl_sys_getpid();

	if (!header)
		return exec;
	if (header->pid == pid) {
		name_program(&header->kin, path, fd);
		exec.counter = &header->kin.replacing;
	} else if (hl_kin_are_followed()) {
		exec.counter = &header->kin.started;
		exec.was_awaited = is_awaited;
		await_no_more();
		/* It is one child, whether it or its next program is not recorded. */
		exec.moved = counted_pid == pid;
		if (exec.moved)
			atomic_fetch_sub(&header->kin.unrecorded, 1);
	}
	if (exec.counter)
		atomic_fetch_add(exec.counter, 1);
	return exec;
}

void hl_kin_fail_exec(struct hl_kin_exec exec)
{
	if (exec.counter)
		atomic_fetch_sub(exec.counter, 1);
	if (exec.moved)
		atomic_fetch_add(&atomic_load(&nearest)->kin.unrecorded, 1);
	if (exec.was_awaited) {
		hl_kin_count_forked();
		hl_kin_enter_child();
	}
}

void hl_kin_count_spawned(void)
{
	if (hl_kin_are_followed())
		atomic_fetch_add(&atomic_load(&nearest)->kin.started, 1);
}

void hl_kin_count_namespace(void)
{
	struct hl_region_header *header = atomic_load(&nearest);

	if (header && header->pid == hl_sys_getpid())
		atomic_fetch_add(&header->kin.namespaces, 1);
}

/* ---- the title ---- */

/* As the kernel laid them out: the arguments one after another, then the environment. */
static const char *title, *arguments_end, *title_end;
static char first_title[HL_KIN_TITLE_MAX]; /* as it was at the start */

/* The end of the strings of ${list} that follow each other from ${at} on. */
static const char *end_of(char *const *list, const char *at)
{
	for (; list && *list == at && *list; list++)
		at += strlen(at) + 1;
	return at;
}

static size_t bytes_of(const char *end)
{
	size_t bytes = (size_t)(end - title);

	return bytes < HL_KIN_TITLE_MAX ? bytes : HL_KIN_TITLE_MAX;
}

void hl_kin_keep_arguments(char *const *arguments, char *const *environment)
{
	if (!arguments || !arguments[0])
		return;
	arguments_end = end_of(arguments, arguments[0]);
	title_end = end_of(environment, arguments_end);
	title = arguments[0];
	memcpy(first_title, title, bytes_of(arguments_end));
}

void hl_kin_keep_title(void)
{
	struct hl_recorder *recorder = hl_recorder;

	if (!title || !hl_recorder_is_running(recorder))
		return;
	/* A title that is longer than the arguments goes on in the environment's place. */
	size_t bytes = bytes_of(arguments_end);
	if (arguments_end[-1] != '\0')
		bytes = strnlen(title, bytes_of(title_end));
	struct hl_region_kin *kin = &recorder->region.header->kin;
	if (memcmp(title, first_title, bytes) == 0)
		return;
	memcpy(kin->title, title, bytes);
	atomic_store(&kin->title_bytes, (uint32_t)bytes);
}
