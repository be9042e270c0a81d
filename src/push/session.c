/* SPDX-License-Identifier: BSD-2-Clause */
/* One recorded process, its labels and its figures; see session.h. */
#include "push/session.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/names.h"
#include "open/open.h"
#include "process/process.h"
#include "process/service.h"
#include "profile/filter.h"
#include "recording/recording_files.h"

#define XXH_INLINE_ALL
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <xxhash.h>

#define MS_PER_NS 1000000

/* ---- sessions ---- */

struct hl_push_session *hl_push_session_new(const char *recording, const struct hl_user *owner,
					    pid_t pid, uint32_t sequence)
{
	struct hl_push_session *session = calloc(1, sizeof(*session));

	if (!session)
		return NULL;
	session->pid = pid;
	session->sequence = sequence;
	session->recording = strdup(recording);
	session->owner = owner ? hl_user_copy(owner) : NULL;
	if (!session->recording || (owner && !session->owner)) {
		hl_push_session_free(session);
		return NULL;
	}
	return session;
}

void hl_push_session_forget(struct hl_push_session *session)
{
	session->is_known = false;
	session->is_forgotten = true;
	session->look_ms = 0;
	session->count = 0;
	session->now_count = 0;
	free(session->nodes);
	session->nodes = NULL;
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
	free(session->now);
	free(session->recording);
	free(session->owner);
	free(session);
}

int hl_push_figures_begin(struct hl_push_session *session)
{
	if (HL_ARRAY_RESERVE(session->now, session->now_capacity, session->count) < 0)
		return -ENOMEM;
	if (session->now_count < session->count)
		memset(&session->now[session->now_count], 0,
		       (session->count - session->now_count) * sizeof(*session->now));
	session->now_count = session->count;
	return 0;
}

uint32_t hl_push_figures_find(const struct hl_push_session *session, int64_t stack)
{
	uint32_t hash = (uint32_t)stack, at = hash, id;

	while ((id = hl_index_next(&session->index, hash, &at)))
		if (session->figures[id - 1].stack == stack)
			return id;
	return 0;
}

/* Looks that need no index have let it go. */
static int complete_index(struct hl_push_session *session)
{
	int r = 0;

	for (size_t i = session->index.used; r == 0 && i < session->count; i++)
		r = hl_index_add(&session->index, (uint32_t)session->figures[i].stack,
				 (uint32_t)i + 1);
	return r;
}

int hl_push_figures_add(struct hl_push_session *session, int64_t stack, size_t *ret_index)
{
	int r = complete_index(session);
	uint32_t id = r == 0 ? hl_push_figures_find(session, stack) : 0;

	if (r == 0 && !id) {
		r = HL_ARRAY_APPEND(session->figures, session->count, session->capacity,
				    (struct hl_push_figures){.stack = stack});
		id = (uint32_t)session->count;
		if (r == 0 && hl_push_figures_begin(session) < 0) {
			session->count--;
			r = -ENOMEM;
		}
		if (r == 0)
			r = complete_index(session);
	}
	if (r == 0)
		*ret_index = id - 1;
	return r;
}

int hl_push_session_add(struct hl_push_session *session, int64_t stack, const int64_t figures[4])
{
	size_t index;

	int r = hl_push_figures_add(session, stack, &index);
	if (r == 0)
		memcpy(session->figures[index].taken, figures,
		       sizeof(session->figures[index].taken));
	return r;
}

/* ---- labels ---- */

/* Sets one; ${text} is as the process has it, any bytes, of which some take more than they did. 0, -EINVAL with a sentence, or -ENOMEM. */
static int set_label(struct hl_push_session *session, enum hl_fleet_label label, const char *text,
		     struct hl_error *err)
{
	HL_FREED char *clean = hl_fleet_label_clean(text);

	if (!clean)
		return -ENOMEM;
	size_t bytes = strlen(clean), cut = HL_FLEET_LABEL_BYTES;
	if (bytes > cut && label != HL_FLEET_COMMAND)
		return hl_error_set(
			err, -EINVAL,
			"cannot push process %d: its label '%s' has %zu bytes, and may have "
			"%d; name it with --service or --version",
			session->pid, hl_fleet_label_names[label], bytes, HL_FLEET_LABEL_BYTES);
	if (bytes > cut) {
		/* Nobody can name it otherwise; its beginning, of whole characters, tells what runs. */
		while (((unsigned char)clean[cut] & 0xc0) == 0x80)
			cut--;
		clean[cut] = '\0';
	}
	session->labels[label] = HL_TAKE(clean);
	return 0;
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
	char pid[16], build_id[2 * HL_BUILD_ID_MAX + 1], container[HL_SERVICE_CONTAINER_MAX],
		pod[HL_SERVICE_CONTAINER_MAX], cgroups[4096];
	struct hl_service service;

	hl_service_of(command, hl_profile_text(profile, process->executable), &service);
	if (hl_proc_read(session->pid, "cgroup", cgroups, sizeof(cgroups)) < 0)
		cgroups[0] = '\0'; /* it has ended */
	hl_service_container(cgroups, container, pod);
	snprintf(pid, sizeof(pid), "%d", session->pid);
	put_build_id(profile, process->executable, build_id, sizeof(build_id));
	const char *const labels[HL_FLEET_LABEL_COUNT] = {
		[HL_FLEET_SERVICE] = given->service ? given->service : service.name,
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
	if (process->node_count + (size_t)1 != session->node_count)
		return -ESTALE;
	for (uint32_t i = 0; i < process->value_count; i++) {
		const struct hl_recording_value *value = &process->values[i];
		uint32_t figures =
			value->node < session->node_count ? session->nodes[value->node] : 0;
		if (!figures)
			return -ESTALE;
		int64_t *now = session->now[figures - 1].figures;
		now[0] += (int64_t)(value->alloc_bytes - value->free_bytes);
		now[1] += (int64_t)(value->alloc_objects - value->free_objects);
		now[2] += (int64_t)value->alloc_bytes;
		now[3] += (int64_t)value->alloc_objects;
	}
	return 0;
}

/* Takes the figures of known stacks alone. 0; -ESTALE when that is not enough; -ENOMEM. */
static int read_values(struct hl_push_session *session, bool *ret_ended)
{
	HL_CLEANUP(hl_recording_process_release) struct hl_recording_process process = {0};
	HL_CLOSED int fd = open_file(session);
	uint64_t saved_ns = written_ns(fd);

	if (!session->nodes || !saved_ns)
		return -ESTALE;
	session->now_count = 0;
	if (hl_push_figures_begin(session) < 0)
		return -ENOMEM;
	if (saved_ns == session->saved_ns) {
		for (size_t i = 0; i < session->count; i++)
			memcpy(session->now[i].figures, session->figures[i].taken,
			       sizeof(session->now[i].figures));
		*ret_ended = false;
		return 0;
	}
	int r = hl_recording_read_values(fd, session->recording, &process, NULL);
	if (r == 0)
		r = add_values(session, &process);
	if (r < 0)
		return r == -ENOMEM ? r : -ESTALE;
	session->saved_ns = saved_ns;
	*ret_ended = process.complete;
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

	/* Noted before the file is read: after a save in between it is read again. */
	session->saved_ns = written_ns(fd);
	int r = hl_open_profile(session->recording, &selection, &profile, err);
	const struct hl_node_ids follow = {nodes, count};
	if (r == 0)
		r = hl_filter_apply(&filter, profile, nodes ? &follow : NULL, err);
	if (r < 0)
		return r;
	free(session->nodes);
	session->nodes = HL_TAKE(nodes);
	session->node_count = count;
	session->now_count = 0;
	*ret_profile = HL_TAKE(profile);
	return hl_push_figures_begin(session);
}

int hl_push_session_read(struct hl_push_session *session, const struct hl_push_labels *given,
			 bool wants_profile, struct hl_profile **ret_profile, bool *ret_ended,
			 struct hl_error *err)
{
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = NULL;
	HL_CLEANUP(hl_user_leave) struct hl_user_scope scope = {0};

	*ret_profile = NULL;
	int r = hl_user_enter(session->owner, &scope);
	if (r < 0)
		return hl_error_set(err, r,
				    "cannot push process %d: root may not act as user %u: %s",
				    session->pid, session->owner->uid, strerror(-r));
	r = wants_profile ? -ESTALE : read_values(session, ret_ended);
	if (r != -ESTALE)
		return r;
	r = read_profile(session, &profile, err);
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
