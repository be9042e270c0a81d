/* SPDX-License-Identifier: BSD-2-Clause */
/* Starts the recorder, in a program and in its forked children; see start.h. */
#include "recorder/start.h"

#include "recorder/hooks.h"
#include "recorder/libc.h"
#include "recorder/private_map.h"
#include "recorder/recall_check.h"
#include "recorder/sys.h"
#include "recorder/thread.h"

#include <pthread.h>
#include <sys/prctl.h>

/* Programs can be forbidden to read the time stamp counter; to do so all the same kills them. */
static bool may_read_clock(void)
{
	int state = 0;

	return HL_SYS(SYS_prctl, PR_GET_TSC, &state, 0) == 0 && state == PR_TSC_ENABLE;
}

static bool set_up(struct hl_recorder *recorder, void *region, size_t bytes)
{
	if (!hl_recorder_set_up(recorder, region, bytes, may_read_clock()))
		return false;
	struct hl_region_header *header = recorder->region.header;
	if (!hl_hooks_reach_program())
		atomic_fetch_or(&header->flags, HL_REGION_OWN_MALLOC);
	hl_hooks_mapping_record(atomic_load(&header->flags) & HL_REGION_MAPPINGS);
	hl_recorder_announce(recorder);
	return true;
}

/* Gets a region and sets everything up around it. The caller has claimed phase STARTING. */
static enum hl_phase start(struct hl_recorder *recorder, enum hl_hello_kind kind)
{
	size_t bytes;
	int32_t collector_pid;

	void *region = hl_connect_get_region(kind, &bytes, &collector_pid);
	if (!region)
		return HL_PHASE_OFF;
	recorder->region.collector_pid = collector_pid;
	recorder->inherits = kind == HL_HELLO_FORK;
	if (set_up(recorder, region, bytes)) {
		hl_kin_take(region, bytes);
		return HL_PHASE_RUNNING;
	}
	struct hl_region_header *header = region;
	atomic_store(&header->state, HL_REGION_STOPPED);
	hl_private_map_adopt(region, bytes);
	return HL_PHASE_OFF;
}

static bool start_in_child(struct hl_recorder *recorder)
{
	uint32_t forked = HL_PHASE_FORKED;

	if (!atomic_compare_exchange_strong(&recorder->phase, &forked, HL_PHASE_STARTING))
		return forked == HL_PHASE_RUNNING;
	hl_private_map_forget();
	enum hl_phase phase = hl_private_map_renew(recorder, sizeof(*recorder))
				      ? start(recorder, HL_HELLO_FORK)
				      : HL_PHASE_OFF;
	if (phase != HL_PHASE_RUNNING)
		hl_kin_count_unrecorded();
	atomic_store(&recorder->phase, phase);
	return phase == HL_PHASE_RUNNING;
}

/*
 * ---- forks by signal handlers that interrupted the recorder ----
 *
 * Elsewhere a forked child finds the recorder's memory wiped and starts again at its first event.
 * But when such a handler returns, the child goes on in the middle of the event that was
 * interrupted: there the recorder and its thread must be as they were, and what is counted must
 * reach nobody. Such a child is not recorded; programs that it runs are.
 */

#define REST_BYTES (sizeof(struct hl_recorder) - HL_PRIVATE_MAP_HEAD)

static void *rest_of_recorder(void)
{
	return (char *)hl_recorder + HL_PRIVATE_MAP_HEAD;
}

static void before_fork(void)
{
	struct hl_thread *thread = hl_thread_self();

	hl_kin_count_forked();
	if (!hl_thread_is_inside(thread))
		return;
	hl_private_map_keep(thread, thread->tables, sizeof(*thread->tables));
	hl_private_map_keep(hl_recorder, rest_of_recorder(), REST_BYTES);
}

static void after_fork_in_parent(void)
{
	struct hl_thread *thread = hl_thread_self();

	if (!hl_thread_is_inside(thread))
		return;
	hl_private_map_wipe(thread, thread->tables, sizeof(*thread->tables));
	hl_private_map_wipe(hl_recorder, NULL, 0);
}

static void after_fork_in_child(void)
{
	struct hl_thread *thread = hl_thread_self();

	hl_kin_enter_child();
	hl_script_enter_child();
	if (!hl_thread_is_inside(thread)) {
		atomic_store(&hl_seccomp_calling, 0); /* those were other threads */
		return;
	}
	/* Puts one that is closed and full in the place of the region, which is the parent's. */
	hl_private_map_replace(thread->tables, sizeof(*thread->tables));
	hl_kin_leave();
	hl_private_map_separate(thread->tables, sizeof(*thread->tables));
	hl_private_map_separate(rest_of_recorder(), REST_BYTES);
	hl_region_map_close(&hl_recorder->region);
	/* Nobody reads its rings. */
	atomic_store(&hl_recorder->region.header->flags, HL_REGION_LOSSY);
	atomic_store(&hl_recorder->phase, HL_PHASE_OFF);
	hl_thread_become(NULL);
}

void hl_start(char *const *environment)
{
	struct hl_invitation own;
	const char *socket = hl_environment_value(environment, HL_ENV_SOCKET);
	const char *token = hl_environment_value(environment, HL_ENV_TOKEN);

	if (!socket && hl_own_collector_start(environment, &own)) {
		socket = own.socket;
		token = own.token;
	}
	if (!hl_connect_set_collector(socket, token) || !hl_thread_init(start_in_child))
		return;
	hl_environment_keep(environment, hl_libc_own_path(), socket, token);
	hl_cases_set_directory(hl_environment_value(environment, HL_ENV_CASES));
	hl_recall_check_read_environment(environment);
	/* A forked child goes on using it, wiped. */
	struct hl_recorder *recorder = hl_private_map_new_headed(sizeof(*recorder));
	if (!recorder)
		return;
	atomic_store(&recorder->phase, HL_PHASE_STARTING);
	hl_recorder = recorder;
	if (pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0)
		return;
	atomic_store(&recorder->phase, start(recorder, HL_HELLO_START));
	if (hl_connect_is_entered())
		hl_recorder = NULL; /* forked children are not to say hello, either */
}
