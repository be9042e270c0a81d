/* SPDX-License-Identifier: BSD-2-Clause */
/* One recorded process, its labels and its figures; see session.h. */
#include "push/session.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/names.h"
#include "open/open.h"
#include "process/process.h"
#include "profile/filter.h"
#include "recording/recording_files.h"

#define XXH_INLINE_ALL
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <xxhash.h>

#define MS_PER_NS 1000000

/* ---- sessions ---- */

struct hl_push_session *hl_push_session_new(const char *recording, pid_t pid, uint32_t sequence)
{
	struct hl_push_session *session = calloc(1, sizeof(*session));

	if (session && !(session->recording = strdup(recording))) {
		free(session);
		return NULL;
	}
	if (session) {
		session->pid = pid;
		session->sequence = sequence;
	}
	return session;
}

void hl_push_session_forget(struct hl_push_session *session)
{
	session->is_known = false;
	session->count = 0;
	free(session->stacks);
	session->stacks = NULL;
	hl_index_release(&session->index);
}

void hl_push_session_free(struct hl_push_session *session)
{
	if (!session)
		return;
	hl_push_session_forget(session);
	for (size_t i = 0; i < HL_FLEET_LABEL_COUNT; i++)
		free(session->labels[i]);
	free(session->figures);
	free(session->recording);
	free(session);
}

struct hl_push_figures *hl_push_figures_find(const struct hl_push_session *session, int64_t stack)
{
	uint32_t hash = (uint32_t)stack, at = hash, id;

	while ((id = hl_index_next(&session->index, hash, &at)))
		if (session->figures[id - 1].stack == stack)
			return &session->figures[id - 1];
	return NULL;
}

struct hl_push_figures *hl_push_figures_add(struct hl_push_session *session, int64_t stack)
{
	struct hl_push_figures *known = hl_push_figures_find(session, stack);

	if (known)
		return known;
	if (HL_ARRAY_APPEND(session->figures, session->count, session->capacity,
			    (struct hl_push_figures){.stack = stack}) < 0)
		return NULL;
	if (hl_index_add(&session->index, (uint32_t)stack, (uint32_t)session->count) < 0) {
		session->count--;
		return NULL;
	}
	return &session->figures[session->count - 1];
}

int hl_push_session_add(struct hl_push_session *session, int64_t stack, const int64_t figures[4])
{
	struct hl_push_figures *known = hl_push_figures_add(session, stack);

	if (!known)
		return -ENOMEM;
	memcpy(known->taken, figures, sizeof(known->taken));
	return 0;
}

/* ---- labels ---- */

/* Sets one; ${text} is as the process has it, any bytes. 0, -EINVAL with a sentence, or -ENOMEM. */
static int set_label(struct hl_push_session *session, enum hl_fleet_label label, const char *text,
		     struct hl_error *err)
{
	if (strlen(text) > HL_FLEET_LABEL_BYTES)
		return hl_error_set(
			err, -EINVAL,
			"cannot push process %d: its label '%s' has %zu bytes, and may have "
			"%d; name it with --service or --version",
			session->pid, hl_fleet_label_names[label], strlen(text),
			HL_FLEET_LABEL_BYTES);
	session->labels[label] = strdup(text);
	return session->labels[label] ? 0 : -ENOMEM;
}

/* The build id of the executable in hexadecimal digits; "" when it is not known. */
static void put_build_id(const struct hl_profile *profile, uint32_t executable, char *text,
			 size_t size)
{
	text[0] = '\0';
	for (size_t i = 1; i < profile->module_count; i++) {
		const struct hl_profile_module *module = &profile->modules[i];
		if (!executable || module->path != executable)
			continue;
		for (size_t k = 0; k < module->build_id_bytes && 2 * k + 2 < size; k++)
			snprintf(text + 2 * k, 3, "%02x", module->build_id[k]);
	}
}

static int fill_labels(struct hl_push_session *session, const struct hl_push_labels *given,
		       const struct hl_profile *profile, struct hl_error *err)
{
	const struct hl_profile_process *process = &profile->processes[0];
	const char *command = hl_profile_text(profile, process->command);
	char pid[16], build_id[2 * HL_BUILD_ID_MAX + 1], container[HL_PUSH_CONTAINER_MAX],
		pod[HL_PUSH_CONTAINER_MAX], cgroups[4096];
	HL_FREED char *program = strndup(command, strcspn(command, " "));

	if (!program)
		return -ENOMEM;
	if (hl_proc_read(session->pid, "cgroup", cgroups, sizeof(cgroups)) < 0)
		cgroups[0] = '\0'; /* it has ended */
	hl_push_find_container(cgroups, container, pod);
	snprintf(pid, sizeof(pid), "%d", session->pid);
	put_build_id(profile, process->executable, build_id, sizeof(build_id));
	const char *const labels[HL_FLEET_LABEL_COUNT] = {
		[HL_FLEET_SERVICE] = given->service ? given->service : hl_path_basename(program),
		[HL_FLEET_VERSION] = given->version ? given->version : "",
		[HL_FLEET_HOST] = hl_profile_text(profile, profile->host),
		[HL_FLEET_COMMAND] = command,
		[HL_FLEET_PID] = pid,
		[HL_FLEET_BUILD_ID] = build_id,
		[HL_FLEET_CONTAINER] = container,
		[HL_FLEET_POD] = pod,
	};
	int r = 0;
	for (size_t i = 0; r == 0 && i < HL_FLEET_LABEL_COUNT; i++)
		r = set_label(session, (enum hl_fleet_label)i, labels[i], err);
	return r;
}

/* A number that the same recording has in every look, and no other one has. */
static int64_t make_id(const struct hl_push_session *session, const struct hl_profile *profile)
{
	HL_FREED char *text = NULL;
	int length = asprintf(&text, "%s %" PRIu64 " %u %d", session->labels[HL_FLEET_HOST],
			      profile->start_realtime_ns, session->sequence, session->pid);

	return length < 0 ? 0 : (int64_t)(XXH3_64bits(text, (size_t)length) & INT64_MAX);
}

/* ---- reading ---- */

/* The file of the process within its recording, open; -1 when there is none. */
static int open_file(const struct hl_push_session *session)
{
	HL_FREED char *path = NULL;

	if (asprintf(&path, "%s/" HL_PROCESS_FILE, session->recording, session->sequence,
		     (uint32_t)session->pid) < 0)
		return -1;
	return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

/* When it was written; 0 where that cannot be told. */
static uint64_t written_ns(int fd)
{
	struct stat status;

	if (fd < 0 || fstat(fd, &status) < 0)
		return 0;
	return (uint64_t)status.st_mtim.tv_sec * HL_NS_PER_SECOND +
	       (uint64_t)status.st_mtim.tv_nsec;
}

/* Sums up the values of ${process} by stack. -ESTALE when there are stacks that are not known. */
static int add_values(struct hl_push_session *session, const struct hl_recording_process *process)
{
	if (process->node_count + (size_t)1 != session->stack_count)
		return -ESTALE;
	for (size_t i = 0; i < session->count; i++)
		memset(session->figures[i].now, 0, sizeof(session->figures[i].now));
	for (uint32_t i = 0; i < process->value_count; i++) {
		const struct hl_recording_value *value = &process->values[i];
		struct hl_push_figures *figures =
			value->node < session->stack_count
				? hl_push_figures_find(session, session->stacks[value->node])
				: NULL;
		if (!figures)
			return -ESTALE;
		figures->now[0] += (int64_t)(value->alloc_bytes - value->free_bytes);
		figures->now[1] += (int64_t)(value->alloc_objects - value->free_objects);
		figures->now[2] += (int64_t)value->alloc_bytes;
		figures->now[3] += (int64_t)value->alloc_objects;
	}
	return 0;
}

/* Takes the figures of known stacks alone. 0; -ESTALE when that is not enough. */
static int read_values(struct hl_push_session *session, bool *ret_ended)
{
	HL_CLEANUP(hl_recording_process_release) struct hl_recording_process process = {0};
	HL_CLOSED int fd = open_file(session);
	uint64_t saved_ns = written_ns(fd);

	if (!session->stacks || !saved_ns)
		return -ESTALE;
	if (saved_ns == session->saved_ns) {
		for (size_t i = 0; i < session->count; i++)
			memcpy(session->figures[i].now, session->figures[i].taken,
			       sizeof(session->figures[i].now));
		*ret_ended = false;
		return 0;
	}
	int r = hl_recording_read_process(fd, session->recording, &process, NULL);
	if (r == 0)
		r = add_values(session, &process);
	for (size_t i = 0; r < 0 && i < session->count; i++)
		memset(session->figures[i].now, 0, sizeof(session->figures[i].now));
	if (r < 0)
		return -ESTALE;
	session->saved_ns = saved_ns;
	*ret_ended = process.complete;
	return 0;
}

/* Notes the stacks of the recorder's own nodes, which are those ${nodes} of ${profile}, for read_values(). */
static int note_stacks(struct hl_push_session *session, const struct hl_profile *profile,
		       const uint32_t *nodes, size_t count)
{
	HL_FREED int64_t *numbers = hl_push_number_stacks(profile);

	free(session->stacks);
	session->stacks = count ? calloc(count, sizeof(*session->stacks)) : NULL;
	session->stack_count = count;
	if (!numbers || (count && !session->stacks))
		return -ENOMEM;
	for (size_t i = 1; i < count; i++)
		session->stacks[i] = nodes[i] < profile->node_count ? numbers[nodes[i]] : 0;
	return 0;
}

static int read_profile(struct hl_push_session *session, struct hl_profile **ret_profile,
			struct hl_error *err)
{
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = NULL;
	HL_FREED uint32_t *nodes = NULL;
	HL_CLOSED int fd = open_file(session);
	size_t count = 0;
	const struct hl_profile_selection selection = {.pid = (uint32_t)session->pid,
						       .by_sequence = true,
						       .sequence = session->sequence,
						       .ret_nodes = &nodes,
						       .ret_node_count = &count};
	/* Stacks are as views show them. */
	const struct hl_filter filter = {.fold_plumbing = true};

	/* Of the file before it is read: what is saved meanwhile is read again. */
	session->saved_ns = written_ns(fd);
	int r = hl_open_profile(session->recording, &selection, &profile, err);
	const struct hl_node_ids follow = {nodes, count};
	if (r == 0)
		r = hl_filter_apply(&filter, profile, nodes ? &follow : NULL, err);
	if (r == 0)
		r = note_stacks(session, profile, nodes, count);
	if (r == 0)
		*ret_profile = HL_TAKE(profile);
	return r;
}

int hl_push_session_read(struct hl_push_session *session, const struct hl_push_labels *given,
			 bool wants_profile, struct hl_profile **ret_profile, bool *ret_ended,
			 struct hl_error *err)
{
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = NULL;

	*ret_profile = NULL;
	if (!wants_profile && read_values(session, ret_ended) == 0)
		return 0;
	int r = read_profile(session, &profile, err);
	if (r < 0)
		return r;
	if (!session->id) {
		r = fill_labels(session, given, profile, err);
		session->began_ms = (int64_t)(profile->start_realtime_ns / MS_PER_NS);
		session->id = r == 0 ? make_id(session, profile) : 0;
		if (r == 0 && !session->id)
			r = -ENOMEM;
	}
	if (r < 0)
		return hl_error_set(err, r, "cannot push process %d: %s", session->pid,
				    strerror(-r));
	*ret_ended = profile->processes[0].complete || !profile->running;
	*ret_profile = HL_TAKE(profile);
	return 0;
}
