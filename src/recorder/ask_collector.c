/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the collector and asks it; see start.h. */
#include "recorder/start.h"

#include "base/clock.h"
#include "recorder/sys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>

#define FIND_WAIT_S	   2  /* a collector that is stopped answers nobody */
#define ASK_WAIT_S	   60 /* for names of lines in the debug data of a large program */
#define ANSWER_BYTES_FIRST ((size_t)64 << 10)
#define ANSWER_BYTES_MAX   ((size_t)64 << 20)
#define QUESTION_BYTES	   512
#define LISTING_BYTES	   2048

static const char suffix[] = ".sock", greeting[] = "heapline/1 ";
static const char recorded[] = "\"recorded\":true", error_member[] = "{\"error\":\"";

/* As the kernel gives it, getdents64(2). */
struct entry {
	uint64_t inode;
	int64_t offset;
	unsigned short bytes;
	unsigned char type;
	char name[];
};

static void say(char *reason, const char *text, size_t bytes)
{
	bytes = bytes < HL_ASK_REASON_BYTES ? bytes : HL_ASK_REASON_BYTES - 1;
	memcpy(reason, text, bytes);
	reason[bytes] = '\0';
}

static int fail(char *reason, int error, const char *text)
{
	say(reason, text, strlen(text));
	return error;
}

void hl_answer_release(struct hl_answer *answer)
{
	if (answer->text)
		hl_sys_munmap(answer->text, answer->mapped_bytes);
	*answer = (struct hl_answer){0};
}

static bool make_room(struct hl_answer *answer)
{
	if (answer->bytes + 1 < answer->mapped_bytes)
		return true;
	size_t bytes = answer->mapped_bytes ? 2 * answer->mapped_bytes : ANSWER_BYTES_FIRST;
	if (bytes > ANSWER_BYTES_MAX)
		return false;
	long text = answer->text
			    ? hl_sys6(SYS_mremap, (long)answer->text, (long)answer->mapped_bytes,
				      (long)bytes, MREMAP_MAYMOVE, 0, 0)
			    : (long)hl_sys_mmap(bytes, PROT_READ | PROT_WRITE,
						MAP_PRIVATE | MAP_ANONYMOUS, -1);
	if (text == 0 || (text < 0 && text > -4096))
		return false;
	answer->text = (char *)text;
	answer->mapped_bytes = bytes;
	return true;
}

static uint64_t now_ms(void)
{
	return hl_clock_ns(HL_SYS_CLOCK) / 1000000;
}

/* A signal cuts a wait short. */
static int receive(int fd, uint64_t deadline_ms, struct hl_answer *answer)
{
	for (;;) {
		if (!make_room(answer))
			return -ENOMEM;
		long got = hl_sys6(SYS_recvfrom, fd, (long)(answer->text + answer->bytes),
				   (long)(answer->mapped_bytes - answer->bytes - 1), 0, 0, 0);
		if (got == 0)
			break;
		if (got > 0)
			answer->bytes += (size_t)got;
		else if (got != -EINTR && got != -EAGAIN)
			return (int)got;
		else if (now_ms() >= deadline_ms)
			return -ETIMEDOUT;
	}
	answer->text[answer->bytes] = '\0';
	return answer->bytes ? 0 : -ECONNRESET;
}

/* The directory of sockets is private to the user; its name might be another's. */
static bool is_trusted(int fd)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);

	return hl_sys6(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, (long)&peer, (long)&bytes, 0) ==
		       0 &&
	       (peer.uid == 0 || peer.uid == (uint32_t)HL_SYS(SYS_geteuid, 0, 0, 0));
}

static int converse_over(int fd, const struct sockaddr_un *address, const char *question,
			 uint64_t wait_s, struct hl_answer *answer)
{
	const struct timeval wait = {1, 0};
	uint64_t deadline_ms = now_ms() + wait_s * 1000;
	char line[QUESTION_BYTES];
	size_t bytes = strlen(question);
	long result;

	if (sizeof(greeting) + bytes > sizeof(line))
		return -ENAMETOOLONG;
	memcpy(line, greeting, sizeof(greeting) - 1);
	memcpy(line + sizeof(greeting) - 1, question, bytes);
	bytes += sizeof(greeting) - 1;
	line[bytes++] = '\n';
	hl_sys6(SYS_setsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, (long)&wait, sizeof(wait), 0);
	hl_sys6(SYS_setsockopt, fd, SOL_SOCKET, SO_SNDTIMEO, (long)&wait, sizeof(wait), 0);
	do {
		result = HL_SYS(SYS_connect, fd, address, sizeof(*address));
	} while ((result == -EINTR || result == -EAGAIN) && now_ms() < deadline_ms);
	if (result < 0)
		return (int)result;
	if (!is_trusted(fd))
		return -EPERM;
	result = hl_sys6(SYS_sendto, fd, (long)line, (long)bytes, MSG_NOSIGNAL, 0, 0);
	/* Who refuses us has answered already. */
	if (result < 0 && result != -EPIPE)
		return (int)result;
	return receive(fd, deadline_ms, answer);
}

static int converse(const struct sockaddr_un *address, const char *question, uint64_t wait_s,
		    struct hl_answer *ret_answer)
{
	struct hl_answer answer = {0};
	int fd = (int)HL_SYS(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return fd;
	int r = converse_over(fd, address, question, wait_s, &answer);
	hl_sys_close(fd);
	if (r == 0)
		*ret_answer = answer;
	else
		hl_answer_release(&answer);
	return r;
}

static bool records_us(const struct sockaddr_un *address)
{
	struct hl_answer answer = {0};

	if (converse(address, "find 0", FIND_WAIT_S, &answer) < 0)
		return false;
	bool records = strstr(answer.text, recorded) != NULL;
	hl_answer_release(&answer);
	return records;
}

/* Whether one of the sockets in ${listing}, in the directory ${path} of ${path_bytes}, is of our collector, whose
 * address is left. */
static bool search_listing(const char *listing, size_t bytes, struct sockaddr_un *address,
			   size_t path_bytes)
{
	for (size_t at = 0; at < bytes;) {
		const struct entry *entry = (const struct entry *)(listing + at);
		size_t length = strlen(entry->name), end = length - (sizeof(suffix) - 1);
		at += entry->bytes;
		if (length < sizeof(suffix) || strcmp(entry->name + end, suffix) != 0 ||
		    entry->name[0] == '.' || path_bytes + length + 1 > sizeof(address->sun_path))
			continue;
		memcpy(address->sun_path + path_bytes, entry->name, length + 1);
		if (records_us(address))
			return true;
	}
	return false;
}

/* The same of all of the directory that ${address} names, with a slash at its end. */
static bool search_directory(struct sockaddr_un *address)
{
	_Alignas(struct entry) char listing[LISTING_BYTES];
	size_t path_bytes = strlen(address->sun_path);
	bool found = false;
	long bytes;

	int fd = (int)hl_sys6(SYS_openat, AT_FDCWD, (long)address->sun_path,
			      O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, 0, 0);
	if (fd < 0)
		return false;
	while (!found && (bytes = HL_SYS(SYS_getdents64, fd, listing, sizeof(listing))) > 0)
		found = search_listing(listing, (size_t)bytes, address, path_bytes);
	hl_sys_close(fd);
	return found;
}

/* The places of control_ask.h, in their order. */
static bool find_collector(struct sockaddr_un *address)
{
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
	char uid[16];

	hl_sys_put_decimal(uid, (uint32_t)HL_SYS(SYS_geteuid, 0, 0, 0));
	const char *const places[][3] = {
		{runtime && runtime[0] == '/' ? runtime : NULL, "/heapline/", ""},
		{"/run/user/", uid, "/heapline/"},
		{"/tmp/heapline-", uid, "/"},
	};
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		*address = (struct sockaddr_un){.sun_family = AF_UNIX};
		if (!places[i][0] || strlen(places[i][0]) > sizeof(address->sun_path) / 2)
			continue;
		for (size_t j = 0; j < 3; j++)
			strcat(address->sun_path, places[i][j]);
		if (search_directory(address))
			return true;
	}
	return false;
}

/* What the collector says against it, but for quotation marks and backslashes, which its sentences lack. */
static int refused(struct hl_answer *answer, char *reason)
{
	const char *text = answer->text + sizeof(error_member) - 1;

	say(reason, text, strcspn(text, "\""));
	hl_answer_release(answer);
	return -EREMOTEIO;
}

int hl_ask_collector(const char *question, struct hl_answer *ret_answer,
		     char ret_reason[HL_ASK_REASON_BYTES])
{
	struct sockaddr_un address;
	struct hl_answer answer = {0};

	if (!find_collector(&address))
		return fail(
			ret_reason, -ENOTCONN,
			"no collector of this user records this process; start it with 'heapline "
			"record', or join it with 'heapline attach'");
	int r = converse(&address, question, ASK_WAIT_S, &answer);
	if (r == -ETIMEDOUT)
		return fail(ret_reason, r,
			    "the collector does not answer; is it stopped? Ask again later");
	if (r < 0)
		return fail(ret_reason, r,
			    "the collector ended while it was asked; the recording has ended");
	if (strncmp(answer.text, error_member, sizeof(error_member) - 1) == 0)
		return refused(&answer, ret_reason);
	*ret_answer = answer;
	return 0;
}
