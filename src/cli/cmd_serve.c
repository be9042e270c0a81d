/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline serve: recordings and recorded processes of this host over HTTP. */
#include "cli/cli.h"

#include "base/cleanup.h"
#include "base/compiler.h"
#include "serve/serve.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_HOST "127.0.0.1"
#define DEFAULT_PORT 7373
#define TOKEN_LEAST  16 /* bytes */
#define TOKEN_MOST   256

struct request {
	const char *listen, *token_file; /* NULL: not given */
	struct hl_option_texts cgroups;
	bool containers;
};

static const struct request defaults;

static const struct hl_option options[] = {
	{"listen", 0, "ADDRESS",
	 "HOST:PORT or PORT, HOST an IPv4 address (default: 127.0.0.1:7373)", HL_OPTION_TEXT,
	 HL_AT(listen), NULL},
	{"token-file", 0, "FILE", "answer only who sends what FILE holds", HL_OPTION_TEXT,
	 HL_AT(token_file), NULL},
	{"cgroup", 0, "PATTERN", "also the balance of groups whose path matches, up to 8 patterns",
	 HL_OPTION_TEXTS, HL_AT(cgroups), NULL},
	{"containers", 0, NULL, "also the balance of all containers", HL_OPTION_FLAG,
	 HL_AT(containers), NULL},
	{0},
};

static int read_address(const char *listen_at, struct sockaddr_in *ret_address,
			struct hl_error *err)
{
	char host[INET_ADDRSTRLEN] = DEFAULT_HOST;
	uint64_t port = DEFAULT_PORT;
	const char *colon = listen_at ? strrchr(listen_at, ':') : NULL;
	size_t length = colon ? (size_t)(colon - listen_at) : 0;

	*ret_address = (struct sockaddr_in){.sin_family = AF_INET};
	if (length && length < sizeof(host))
		snprintf(host, sizeof(host), "%.*s", (int)length, listen_at);
	if (length >= sizeof(host) || inet_pton(AF_INET, host, &ret_address->sin_addr) != 1 ||
	    (listen_at &&
	     (hl_option_parse_number(colon ? colon + 1 : listen_at, false, &port) < 0 ||
	      port > UINT16_MAX)))
		return hl_error_set(
			err, -EINVAL,
			"cannot listen on '%s': that is not an IPv4 address and port; write "
			"one as 127.0.0.1:7373",
			listen_at);
	ret_address->sin_port = htons((uint16_t)port);
	return 0;
}

static bool is_loopback(const struct sockaddr_in *address)
{
	return ntohl(address->sin_addr.s_addr) >> 24 == 127;
}

/* The first line of the file, which others must not be able to read. */
static int read_token(const char *token_file, char token[TOKEN_MOST + 1], struct hl_error *err)
{
	HL_CLOSED int fd = open(token_file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat status;

	if (fd < 0 || fstat(fd, &status) < 0)
		return hl_error_set(err, -errno, "cannot read the token in '%s': %s", token_file,
				    strerror(errno));
	if (!S_ISREG(status.st_mode) || (status.st_mode & 077))
		return hl_error_set(err, -EPERM,
				    "cannot use the token in '%s': others may read it; 'chmod 600 "
				    "%s' keeps it secret",
				    token_file, token_file);
	ssize_t size = read(fd, token, TOKEN_MOST);
	if (size < 0)
		return hl_error_set(err, -errno, "cannot read the token in '%s': %s", token_file,
				    strerror(errno));
	token[size] = '\0';
	token[strcspn(token, "\r\n")] = '\0';
	size_t length = strlen(token);
	for (size_t i = 0; i < length; i++)
		if (!isgraph((unsigned char)token[i]))
			length = 0;
	if (length < TOKEN_LEAST)
		return hl_error_set(err, -EINVAL,
				    "cannot use the token in '%s': its first line has to be %d to "
				    "%d letters and digits without spaces; 'openssl rand -hex 16' "
				    "makes one",
				    token_file, TOKEN_LEAST, TOKEN_MOST);
	return 0;
}

static int check_directories(const char *const *directories, size_t count, struct hl_error *err)
{
	for (size_t i = 0; i < count; i++) {
		struct stat status;
		int r = stat(directories[i], &status) < 0 ? -errno : 0;
		if (r == 0 && !S_ISDIR(status.st_mode))
			r = -ENOTDIR;
		if (r < 0)
			return hl_error_set(err, r,
					    "cannot serve the recordings in '%s': %s; name a "
					    "directory that holds them",
					    directories[i], strerror(-r));
	}
	return 0;
}

/*
 * Options that choose what is shown. What else verbs have names files, stops the process, changes how text is laid out, is decided by the
 * path of the request, or makes a status, which an answer has not.
 */
static const char *const asked_options[] = {"arenas",
					    "at",
					    "between",
					    "by",
					    "class",
					    "depth",
					    "focus",
					    "freed",
					    "full",
					    "heaviest",
					    "hide",
					    "histogram-start",
					    "histogram-width",
					    "ignore",
					    "no-stop",
					    "normalize",
					    "path",
					    "plumbing",
					    "plumbing-also",
					    "reversed",
					    "root",
					    "rows",
					    "service",
					    "show",
					    "size",
					    "sort",
					    "stack",
					    "stacks",
					    "survived",
					    "thread",
					    "threshold",
					    "tree",
					    "type",
					    "unaligned",
					    "unit",
					    "valley",
					    "value"};

static bool is_asked(const struct hl_option *option)
{
	const struct hl_option *shown;

	for (size_t i = 0; i < HL_COUNT_OF(asked_options); i++)
		if (strcmp(asked_options[i], option->name) == 0)
			return true;
	for (size_t i = 0; hl_guests_outside[i]; i++)
		for (shown = hl_guests_outside[i]->options[HL_GUEST_OPTIONS_HEAP];
		     shown && shown->name; shown++)
			if (shown == option)
				return true;
	return false;
}

static enum hl_request_option option_of(const char *verb_name, const char *name)
{
	const struct hl_option *all[HL_OPTIONS_MAX];
	const struct hl_verb *verb = hl_verb_find(verb_name);
	size_t count = verb ? hl_options_of(verb, all) : 0, i = 0;

	while (i < count && strcmp(all[i]->name, name) != 0)
		i++;
	/* The same name may be that of a file elsewhere: leaks --ignore FILE. */
	if (i == count || !is_asked(all[i]) || all[i]->kind == HL_OPTION_RENAMED ||
	    (all[i]->argument && strstr(all[i]->argument, "FILE")))
		return HL_REQUEST_OPTION_NONE;
	if (!all[i]->argument)
		return HL_REQUEST_OPTION_FLAG;
	if (all[i]->kind == HL_OPTION_RANGE)
		return HL_REQUEST_OPTION_RANGE;
	return all[i]->kind == HL_OPTION_TEXTS ? HL_REQUEST_OPTION_TEXTS : HL_REQUEST_OPTION_TEXT;
}

static void say(const char *sentence)
{
	hl_cli_note("%s", sentence);
}

static int serve(struct hl_serve_options *how, struct hl_error *err)
{
	char host[INET_ADDRSTRLEN];
	struct hl_serve *server;
	sigset_t ends;
	unsigned port;
	int signal_number;

	/* Blocked before the server's threads begin, so that none of them takes it. */
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	signal(SIGPIPE, SIG_IGN);
	int r = hl_serve_start(how, &server, &port, err);
	if (r < 0)
		return r;
	inet_ntop(AF_INET, &how->address.sin_addr, host, sizeof(host));
	hl_cli_note("serving on http://%s:%u/ until Ctrl-C", host, port);
	sigwait(&ends, &signal_number);
	hl_serve_stop(server);
	return 0;
}

/* Whether it can match anything: it is not empty, and each '[' has its ']'. */
static bool is_pattern(const char *text)
{
	bool is_whole = *text;

	for (const char *at = text; is_whole && *at; at++) {
		if (*at == '\\' && at[1])
			at++;
		else if (*at == '[') {
			at += 1 + (at[1] == '!' || at[1] == '^');
			at = *at ? strchr(at + 1, ']') : NULL;
			is_whole = at;
			at = at ? at : "]";
		}
	}
	return is_whole;
}

static int run_serve(void *parsed, int argc, char **argv)
{
	static const char *const here[] = {"."};
	const struct request *request = parsed;
	const char *token_file = request->token_file;
	char token[TOKEN_MOST + 1];
	struct hl_error err = {0};
	struct hl_serve_options how = {
		.directories = argc ? (const char *const *)argv : here,
		.directory_count = argc ? (size_t)argc : 1,
		.groups = {request->cgroups.texts, request->cgroups.count, request->containers},
		.option_of = option_of,
		.say = say,
	};

	if (request->cgroups.count > HL_OPTION_TEXTS_MAX)
		return hl_cli_usage_error(&hl_verb_serve, "'--cgroup' is given more than %d times",
					  HL_OPTION_TEXTS_MAX);
	for (size_t i = 0; i < request->cgroups.count; i++)
		if (!is_pattern(request->cgroups.texts[i]))
			return hl_cli_usage_error(
				&hl_verb_serve,
				"'--cgroup' takes a pattern such as '/kubepods*', "
				"not '%s'",
				request->cgroups.texts[i]);
	int r = read_address(request->listen, &how.address, &err);
	if (r == 0 && token_file)
		r = read_token(token_file, token, &err);
	how.token = token_file ? token : NULL;
	if (r == 0 && !token_file && !is_loopback(&how.address))
		r = hl_error_set(&err, -EPERM,
				 "cannot listen on '%s' without a token: whoever reaches it could "
				 "read what it serves; add --token-file FILE",
				 request->listen);
	if (r == 0 && !token_file && geteuid() == 0)
		r = hl_error_set(
			&err, -EPERM,
			"cannot serve as root without a token: every user of this host "
			"could read the processes of all others; add --token-file FILE, or "
			"serve as another user");
	if (r == 0)
		r = check_directories(how.directories, how.directory_count, &err);
	if (r == 0)
		r = serve(&how, &err);
	return r < 0 ? hl_cli_error("%s", err.text) : HL_EXIT_DONE;
}

const struct hl_verb hl_verb_serve = {
	.name = "serve",
	.group = HL_GROUP_LIVE,
	.arguments = "[DIRECTORY...]",
	.summary = "serve recordings and recorded processes of this host over HTTP",
	.options = options,
	HL_REQUEST(defaults),
	.run = run_serve,
	.effect = HL_VERB_STAYS,
};
