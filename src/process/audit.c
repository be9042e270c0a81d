/* SPDX-License-Identifier: BSD-2-Clause */
/* Composes lines of the audit trail and sends them; see audit.h. */
#include "process/audit.h"

#include "base/cleanup.h"
#include "base/self.h"
#include "process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#define COMMAND_SHOWN_MAX 512 /* bytes of our own command line */
#define ANCESTORS_MAX	  8u
#define STAT_PARENT	  4 /* of /proc/PID/stat */
#define LOGINUID_UNSET	  "4294967295"

/* In quotes, and such that it can neither end them nor the line. */
static void put_quoted(FILE *out, const char *bytes, size_t length)
{
	fputc('"', out);
	for (size_t i = 0; i < length; i++) {
		unsigned char byte = (unsigned char)bytes[i];
		if (byte == '"' || byte == '\\')
			fprintf(out, "\\%c", byte);
		else if (byte < ' ' || byte >= 0x7f)
			fprintf(out, "\\x%02x", byte);
		else
			fputc(byte, out);
	}
	fputc('"', out);
}

/* ---- who ---- */

/* The verb in the command line of a process that is heapline; NULL: it is something else. */
static const char *verb_of(const char *line, size_t length)
{
	const char *end = line + length, *name = strrchr(line, '/');

	if (strcmp(name ? name + 1 : line, "heapline"))
		return NULL;
	const char *word = line + strlen(line) + 1;
	while (word < end &&
	       (!strcmp(word, HL_SELF_AS_USER) || !strcmp(word, HL_SELF_WITH_PARENT))) {
		word += strlen(word) + 1;
		word += word < end ? strlen(word) + 1 : 0;
	}
	return word < end ? word : NULL;
}

/* The verb with which somebody began what we are a part of: serve, mcp ...; that of a terminal or a script is its own front. */
static void put_front(FILE *out)
{
	char front[32] = "cli";
	pid_t pid = getppid();

	for (unsigned depth = 0; pid > 1 && depth < ANCESTORS_MAX; depth++) {
		HL_FREED char *line = NULL;
		size_t length;
		uint64_t parent;
		if (hl_proc_read_all(pid, "cmdline", &line, &length) < 0 || !length)
			break;
		const char *verb = verb_of(line, length);
		if (!verb || hl_process_stat_field(pid, STAT_PARENT, &parent) < 0)
			break;
		snprintf(front, sizeof(front), "%s", verb);
		pid = (pid_t)parent;
	}
	fputs(" via=", out);
	put_quoted(out, front, strlen(front));
}

static void put_caller(FILE *out)
{
	HL_FREED char *command = NULL, *login = NULL;
	size_t length, login_length;

	bool has_login = hl_proc_read_all(getpid(), "loginuid", &login, &login_length) == 0 &&
			 strcmp(login, LOGINUID_UNSET);
	fprintf(out, " uid=%d loginuid=%s", (int)getuid(), has_login ? login : "unset");
	put_front(out);
	if (hl_proc_read_all(getpid(), "cmdline", &command, &length) < 0 || !length)
		return;
	for (size_t i = 0; i + 1 < length; i++)
		command[i] = command[i] ? command[i] : ' ';
	fputs(" command=", out);
	put_quoted(out, command, length - 1 < COMMAND_SHOWN_MAX ? length - 1 : COMMAND_SHOWN_MAX);
}

/* ---- what ---- */

static void put_subject(FILE *out, pid_t pid)
{
	HL_CLEANUP(hl_process_facts_release) struct hl_process_facts facts = {0};

	fprintf(out, " pid=%d", (int)pid);
	if (pid <= 0 || hl_process_facts_read(pid, &facts, NULL) < 0)
		return;
	time_t start = (time_t)(facts.start_realtime_ns / 1000000000);
	struct tm utc;
	char text[32] = "";
	if (gmtime_r(&start, &utc))
		strftime(text, sizeof(text), "%FT%TZ", &utc);
	fputs(" comm=", out);
	put_quoted(out, facts.comm, strlen(facts.comm));
	fprintf(out, " started=%s owner=%u", text, (unsigned)facts.uid);
}

static char *compose(const char *act, pid_t pid, const char *result, size_t *ret_length)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, ret_length);

	if (!out)
		return NULL;
	fprintf(out, "act=%s result=", act);
	put_quoted(out, result, strlen(result));
	put_subject(out, pid);
	put_caller(out);
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

/* ---- where to ---- */

/* What reads a FIFO or the log may be stopped, perhaps by us. */
static void append(const char *path, const char *text)
{
	HL_CLOSED int fd =
		open(path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
	HL_FREED char *line = NULL;
	time_t now = time(NULL);
	struct tm utc;
	char when[32];

	if (fd < 0 || !gmtime_r(&now, &utc))
		return;
	strftime(when, sizeof(when), "%FT%TZ", &utc);
	int length = asprintf(&line, "%s heapline[%d]: %s\n", when, (int)getpid(), text);
	if (length < 0)
		line = NULL;
	else if (write(fd, line, (size_t)length) < 0)
		return; /* as audit.h says */
}

/* In the form of syslog(3), which itself would wait for a log that takes nothing. */
static void send_to_log(const char *text)
{
	const struct sockaddr_un log = {.sun_family = AF_UNIX, .sun_path = "/dev/log"};
	HL_CLOSED int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	HL_FREED char *line = NULL;
	time_t now = time(NULL);
	struct tm local;
	char when[32];

	if (fd < 0 || !localtime_r(&now, &local))
		return;
	strftime(when, sizeof(when), "%b %e %T", &local);
	int length = asprintf(&line, "<%d>%s heapline[%d]: %s", LOG_AUTHPRIV | LOG_NOTICE, when,
			      (int)getpid(), text);
	if (length < 0)
		line = NULL;
	else
		sendto(fd, line, (size_t)length, MSG_DONTWAIT | MSG_NOSIGNAL,
		       (const struct sockaddr *)&log, sizeof(log));
}

static void put_line(const char *act, pid_t pid, const char *result)
{
	if (pid == getpid()) /* it looks at itself, as to measure what a probe costs */
		return;
	int before = errno;
	const char *path = secure_getenv("HEAPLINE_AUDIT");
	size_t length;
	HL_FREED char *text = compose(act, pid, result, &length);

	if (text && path && path[0])
		append(path, text);
	else if (text)
		send_to_log(text);
	errno = before;
}

void hl_audit(const char *act, pid_t pid, int result)
{
	char reason[128];

	put_line(act, pid, result < 0 ? strerror_r(-result, reason, sizeof(reason)) : "done");
}

void hl_audit_begin(const char *act, pid_t pid)
{
	put_line(act, pid, "begins");
}
