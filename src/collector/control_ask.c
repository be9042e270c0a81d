/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds and asks collectors; see control_ask.h. */
#include "collector/control_ask.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/names.h"
#include "base/text.h"
#include "process/audit.h"
#include "recording/fields.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* A search comes by collectors that may be stopped, and by sockets of other programs. */
#define FIND_WAIT_NS   (2 * HL_NS_PER_SECOND)
#define ASK_WAIT_NS    (20 * HL_NS_PER_SECOND)
#define OTHERS_WAIT_NS (2 * HL_NS_PER_SECOND) /* for all collectors of another user */
#define SILENCE_NS     (30 * HL_NS_PER_SECOND)
#define SILENT_MAX     16 /* of more, the first are asked again earlier */
#define WAIT_FOR_EVER  UINT64_MAX

#define ANSWER_BYTES_MAX ((size_t)64 << 20)
#define OTHERS_BYTES_MAX \
	((size_t)4       \
	 << 20) /* of a collector that is not trusted: parsed, it takes 16 times as much */
#define PART_BYTES ((size_t)64 << 10)

/* ---- one question ---- */

/* Waits until ${fd} is ready for ${events}. 0, -ETIMEDOUT or another negative errno. */
static int wait_for(int fd, short events, uint64_t deadline_ns)
{
	struct pollfd poller = {.fd = fd, .events = events};

	for (;;) {
		uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC);
		int left_ms = -1;
		if (deadline_ns != WAIT_FOR_EVER)
			left_ms = now_ns < deadline_ns ? (int)((deadline_ns - now_ns) / 1000000 + 1)
						       : 0;
		int r = poll(&poller, 1, left_ms);
		if (r > 0)
			return 0;
		if (r == 0)
			return -ETIMEDOUT;
		if (errno != EINTR)
			return -errno;
	}
}

static int send_line(int fd, const char *line, size_t size, uint64_t deadline_ns)
{
	while (size) {
		int r = wait_for(fd, POLLOUT, deadline_ns);
		if (r < 0)
			return r;
		ssize_t sent = send(fd, line, size, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		if (sent > 0) {
			line += sent;
			size -= (size_t)sent;
		}
	}
	return 0;
}

/* Reads all that comes until the connection ends. */
static int receive_all(int fd, size_t bytes_max, uint64_t deadline_ns, char **ret_bytes,
		       size_t *ret_size)
{
	char *bytes = NULL;
	size_t size = 0, capacity = 0;
	int r;

	while ((r = wait_for(fd, POLLIN, deadline_ns)) == 0) {
		r = hl_array_reserve(&bytes, &capacity, size + PART_BYTES, 1);
		if (r < 0)
			break;
		ssize_t got = recv(fd, bytes + size, capacity - size, MSG_DONTWAIT);
		/* Reset: who refused us did not read what we asked, but it did answer. */
		if (got == 0 || (got < 0 && errno == ECONNRESET && size)) {
			*ret_bytes = bytes;
			*ret_size = size;
			return 0;
		}
		if (got < 0 && errno != EAGAIN && errno != EINTR)
			r = -errno;
		size += got > 0 ? (size_t)got : 0;
		if (size > bytes_max)
			r = -EFBIG;
		if (r < 0)
			break;
	}
	free(bytes);
	return r;
}

/* Whose directory it is, where we are root and it is another user's; else 0. */
static uid_t other_owner(int directory_fd)
{
	struct stat status;

	return geteuid() == 0 && fstat(directory_fd, &status) == 0 ? status.st_uid : 0;
}

/* The socket is its user's alone: to connect to it root needs no right but to act as that user. */
static int connect_to(int directory_fd, pid_t collector, uid_t owner)
{
	HL_CLEANUP(hl_user_leave) struct hl_user_scope scope = {0};

	if (owner)
		(void)hl_user_enter_uid(owner, &scope); /* else root may do so itself, perhaps */
	int fd = hl_control_directory_connect(directory_fd, collector);
	return fd == -EAGAIN ? -ETIMEDOUT : fd; /* EAGAIN: too many wait for it already */
}

/*
 * Who listens, *${ret_user}, to be freed: NULL for our user, and for root in a directory of ours. -EPERM for anybody else, who could
 * tell us anything: a link in another user's directory may lead to a socket of root, which that user's program answers.
 */
static int identify(int fd, uid_t owner, struct hl_user **ret_user)
{
	HL_FREED struct hl_user *user = NULL;

	int r = hl_user_of_peer(fd, &user);
	if (r < 0)
		return r;
	if (owner ? user->uid != owner : user->uid != geteuid() && user->uid != 0)
		return -EPERM;
	*ret_user = owner ? HL_TAKE(user) : NULL;
	return 0;
}

/* *${ret_user} as identify() says, also where it did not answer; unchanged where nobody listens. */
static int ask(int directory_fd, pid_t collector, const struct hl_control_request *request,
	       uint64_t wait_ns, json_t **ret_answer, struct hl_user **ret_user)
{
	char line[HL_CONTROL_LINE_MAX], *bytes = NULL;
	size_t size = 0;
	uint64_t deadline_ns =
		wait_ns == WAIT_FOR_EVER ? WAIT_FOR_EVER : hl_clock_ns(CLOCK_MONOTONIC) + wait_ns;

	uid_t owner = other_owner(directory_fd);
	HL_CLOSED int fd = connect_to(directory_fd, collector, owner);
	if (fd < 0)
		return fd;
	int code = identify(fd, owner, ret_user);
	if (code < 0)
		return code;
	int r = send_line(fd, line, hl_control_protocol_format(request, line), deadline_ns);
	if (r == 0 || r == -EPIPE) /* who refuses us may have answered */
		r = receive_all(fd, *ret_user ? OTHERS_BYTES_MAX : ANSWER_BYTES_MAX, deadline_ns,
				&bytes, &size);
	if (r < 0)
		return r;
	json_t *answer = json_loadb(bytes, size, 0, NULL);
	free(bytes);
	if (!json_is_object(answer)) {
		json_decref(answer);
		return size ? -EBADMSG : -ECONNRESET;
	}
	*ret_answer = answer;
	return 0;
}

static const char *reason_of(int r)
{
	if (r == -ETIMEDOUT)
		return "it does not answer; is it stopped?";
	if (r == -ECONNRESET || r == -ECONNREFUSED || r == -EPIPE || r == -ENOENT)
		return "it has ended";
	if (r == -EBADMSG)
		return "its answer makes no sense";
	return strerror(-r);
}

static int ask_peer(const struct hl_control_peer *peer, const struct hl_control_request *request,
		    json_t **ret_answer, struct hl_error *err)
{
	/* To write a recording takes as long as the disk does. */
	bool writes = request->verb == HL_CONTROL_SNAPSHOT || request->verb == HL_CONTROL_REPLACE ||
		      request->verb == HL_CONTROL_DETACH;
	uint64_t usual_ns = writes ? WAIT_FOR_EVER : ASK_WAIT_NS;
	HL_FREED struct hl_user *user = NULL;
	json_t *answer = NULL;

	int r = ask(peer->directory_fd, peer->pid, request,
		    peer->wait_ns ? peer->wait_ns : usual_ns, &answer, &user);
	if (r == 0 && user && (!peer->user || peer->user->uid != user->uid)) {
		json_decref(answer);
		r = -EPERM; /* somebody else has its place now */
	}
	if (r < 0)
		return hl_error_set(err, r, "cannot ask the collector %d of '%s': %s", peer->pid,
				    peer->recording, reason_of(r));
	const json_t *error = json_object_get(answer, "error");
	if (error) {
		char *sentence = hl_control_ask_bytes(error);
		hl_error_set(err, -EREMOTEIO, "%s", sentence ? sentence : "out of memory");
		free(sentence);
		json_decref(answer);
		return -EREMOTEIO;
	}
	*ret_answer = answer;
	return 0;
}

int hl_control_ask(const struct hl_control_peer *peer, const struct hl_control_request *request,
		   json_t **ret_answer, struct hl_error *err)
{
	const char *change = hl_control_protocol_change(request);

	int r = ask_peer(peer, request, ret_answer, err);
	if (change)
		hl_audit(change, request->pid, r);
	return r;
}

char *hl_control_ask_bytes(const json_t *text)
{
	char *bytes;

	return hl_text_from_json(text, &bytes) == 0 ? bytes : strdup("");
}

char *hl_control_ask_words(const json_t *words)
{
	char *line = NULL;
	size_t size, i;
	const json_t *word;
	FILE *out = open_memstream(&line, &size);

	if (!out)
		return NULL;
	json_array_foreach(words, i, word) {
		char *bytes = hl_control_ask_bytes(word);
		if (i)
			fputc(' ', out);
		hl_words_put(out, bytes ? bytes : "");
		free(bytes);
	}
	if (fclose(out) == 0)
		return line;
	free(line);
	return NULL;
}

/* ---- the search ---- */

/* Collectors that did not answer, so that not each request waits for them. */
static struct {
	pthread_mutex_t lock;
	struct {
		pid_t pid;
		uint64_t until_ns; /* then they are asked again */
	} each[SILENT_MAX];
} silent = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_silent(pid_t pid, uint64_t now_ns)
{
	bool found = false;

	pthread_mutex_lock(&silent.lock);
	for (size_t i = 0; i < SILENT_MAX; i++)
		found |= silent.each[i].pid == pid && now_ns < silent.each[i].until_ns;
	pthread_mutex_unlock(&silent.lock);
	return found;
}

static void note_silence(pid_t pid, uint64_t now_ns)
{
	size_t at = 0;

	pthread_mutex_lock(&silent.lock);
	for (size_t i = 1; i < SILENT_MAX; i++)
		if (silent.each[i].until_ns < silent.each[at].until_ns)
			at = i;
	silent.each[at].pid = pid;
	silent.each[at].until_ns = now_ns + SILENCE_NS;
	pthread_mutex_unlock(&silent.lock);
}

/* How long the collector that is considered next may take; 0: it is left out. */
static uint64_t patience_ns(struct hl_control_peers *peers, pid_t collector)
{
	uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC);

	if (peers->skips_silent && is_silent(collector, now_ns))
		return 0;
	if (!peers->until_ns)
		return FIND_WAIT_NS;
	if (now_ns < peers->until_ns && peers->count - peers->user_first < HL_CONTROL_OTHERS_MAX)
		return peers->until_ns - now_ns < FIND_WAIT_NS ? peers->until_ns - now_ns
							       : FIND_WAIT_NS;
	peers->left_out++;
	return 0;
}

static void add_silent(struct hl_control_peers *peers, pid_t collector)
{
	size_t length = strlen(peers->silent);

	note_silence(collector, hl_clock_ns(CLOCK_MONOTONIC));
	if (length + sizeof(", 4294967295") <= sizeof(peers->silent))
		snprintf(peers->silent + length, sizeof(peers->silent) - length, "%s%d",
			 length ? ", " : "", collector);
}

/* Asks one collector whether it records ${pid} (0: takes any); those that do not answer do not. */
static int consider(struct hl_control_peers *peers, int directory_fd, pid_t collector, pid_t pid)
{
	const struct hl_control_request request = {.verb = HL_CONTROL_FIND, .pid = pid};
	HL_FREED struct hl_user *user = NULL;
	json_t *answer;

	uint64_t wait_ns = patience_ns(peers, collector);
	if (!wait_ns)
		return 0;
	int r = ask(directory_fd, collector, &request, wait_ns, &answer, &user);
	if (r == -ETIMEDOUT)
		add_silent(peers, collector);
	peers->denied += r == -EACCES || r == -EPERM;
	if (r < 0)
		return 0;
	bool records =
		!pid || collector == pid || json_is_true(json_object_get(answer, "recorded"));
	if (records)
		r = HL_ARRAY_RESERVE(peers->peers, peers->capacity, peers->count + 1);
	if (records && r == 0) {
		struct hl_control_peer peer = {
			.pid = collector,
			.directory_fd = fcntl(directory_fd, F_DUPFD_CLOEXEC, 0),
			.recording = hl_control_ask_bytes(json_object_get(answer, "recording")),
			.user = HL_TAKE(user),
		};
		peers->peers[peers->count++] = peer;
		r = peer.recording ? 0 : -ENOMEM;
	}
	json_decref(answer);
	return r;
}

static int search_directory(struct hl_control_peers *peers, int directory_fd, pid_t pid)
{
	pid_t *collectors;
	size_t count;

	int r = hl_control_directory_list(directory_fd, &collectors, &count);
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	for (size_t i = 0; r == 0 && i < count; i++)
		r = consider(peers, directory_fd, collectors[i], pid);
	free(collectors);
	return r;
}

/* Directories of one user that were looked at: XDG_RUNTIME_DIR is mostly /run/user/UID. */
struct seen {
	struct stat directories[HL_CONTROL_PLACES];
	unsigned count;
};

static bool is_seen(struct seen *seen, int fd)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		return true;
	for (unsigned i = 0; i < seen->count; i++)
		if (seen->directories[i].st_dev == status.st_dev &&
		    seen->directories[i].st_ino == status.st_ino)
			return true;
	seen->directories[seen->count++] = status;
	return false;
}

static int search_user(struct hl_control_peers *peers, uid_t uid, pid_t pid)
{
	struct seen seen = {0};
	int r = 0;

	for (unsigned place = 0; r == 0 && place < HL_CONTROL_PLACES; place++) {
		int fd = hl_control_directory_open(place, uid);
		if (fd < 0)
			continue;
		if (!is_seen(&seen, fd))
			r = search_directory(peers, fd, pid);
		close(fd);
	}
	return r;
}

int hl_control_ask_search(pid_t pid, struct hl_control_peers *peers)
{
	struct stat status;
	char path[32];

	*peers = (struct hl_control_peers){0};
	int r = search_user(peers, geteuid(), pid);
	snprintf(path, sizeof(path), "/proc/%d", pid);
	if (r == 0 && geteuid() == 0 && stat(path, &status) == 0 && status.st_uid != 0)
		r = search_user(peers, status.st_uid, pid);
	return r;
}

/* Appends the users whose number follows ${prefix} in the names of ${directory}, once each. */
static int add_users(const char *directory, const char *prefix, uid_t **users, size_t *count,
		     size_t *capacity)
{
	DIR *stream = opendir(directory);
	int r = 0;

	for (const struct dirent *entry; stream && r == 0 && (entry = readdir(stream));) {
		const char *digits = entry->d_name + strlen(prefix);
		char *end;
		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
			continue;
		unsigned long uid = strtoul(digits, &end, 10);
		bool is_known = end == digits || *end || uid > UINT32_MAX;
		for (size_t i = 0; !is_known && i < *count; i++)
			is_known = (*users)[i] == uid;
		if (!is_known)
			r = HL_ARRAY_APPEND(*users, *count, *capacity, (uid_t)uid);
	}
	if (stream)
		closedir(stream);
	return r;
}

int hl_control_ask_list(struct hl_control_peers *peers)
{
	HL_FREED uid_t *users = NULL;
	size_t count = 0, capacity = 0;
	uid_t self = geteuid();

	*peers = (struct hl_control_peers){.skips_silent = true};
	int r = HL_ARRAY_APPEND(users, count, capacity, self);
	if (r == 0 && self == 0)
		r = add_users("/run/user", "", &users, &count, &capacity);
	if (r == 0 && self == 0)
		r = add_users("/tmp", "heapline-", &users, &count, &capacity);
	for (size_t i = 0; r == 0 && i < count; i++) {
		if (users[i] != self)
			peers->until_ns = hl_clock_ns(CLOCK_MONOTONIC) + OTHERS_WAIT_NS;
		peers->user_first = peers->count;
		r = search_user(peers, users[i], 0);
	}
	return r;
}

void hl_control_ask_release(struct hl_control_peers *peers)
{
	for (size_t i = 0; i < peers->count; i++) {
		if (peers->peers[i].directory_fd >= 0)
			close(peers->peers[i].directory_fd);
		free(peers->peers[i].recording);
		free(peers->peers[i].user);
	}
	free(peers->peers);
	*peers = (struct hl_control_peers){0};
}
