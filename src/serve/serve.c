/* SPDX-License-Identifier: BSD-2-Clause */
/* HTTP by libmicrohttpd: who may ask, and what is answered; see serve.h. */
#include "serve/serve.h"

#include "base/cleanup.h"
#include "serve/catalog.h"
#include "serve/heaps.h"
#include "serve/http.h"
#include "serve/pages.h"
#include "serve/request.h"
#include "serve/run.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ftw.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ARGUMENTS_MAX 32
#define JSON_TYPE     "application/json"
#define HTML_TYPE     "text/html; charset=utf-8"
#define PROFILE_TYPE  "application/octet-stream"

static struct hl_http http;

struct hl_serve {
	const struct hl_serve_options *options;
	struct MHD_Daemon *daemon;
	struct hl_serve_heaps *heaps;
	int stop_fd; /* can be read when it ends */
};

/* ---- answers ---- */

/* Takes over ${response}. */
static enum MHD_Result send_response(struct MHD_Connection *connection, unsigned status,
				     const char *type, struct MHD_Response *response)
{
	if (!response)
		return MHD_NO;
	http.add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	http.add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	http.add_response_header(response, "X-Content-Type-Options", "nosniff");
	http.add_response_header(response, "X-Frame-Options", "DENY");
	http.add_response_header(response, "Referrer-Policy", "no-referrer");
	if (status == MHD_HTTP_UNAUTHORIZED)
		http.add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE,
					 "Basic realm=\"heapline\"");
	enum MHD_Result result = http.queue_response(connection, status, response);
	http.destroy_response(response);
	return result;
}

static enum MHD_Result send_error(struct MHD_Connection *connection, unsigned status,
				  const char *sentence)
{
	json_t *object = json_pack("{s:s%}", "error", sentence, strlen(sentence));
	char *text;

	if (!object) /* not UTF-8 */
		object = json_pack("{s:s}", "error", "the request is not UTF-8");
	text = object ? json_dumps(object, JSON_COMPACT) : NULL;
	json_decref(object);
	if (!text)
		return MHD_NO;
	return send_response(
		connection, status, JSON_TYPE,
		http.create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE));
}

static unsigned status_of(int r)
{
	switch (r) {
	case -ENOENT:
	case -ESRCH:
		return MHD_HTTP_NOT_FOUND;
	case -EINVAL:
		return MHD_HTTP_BAD_REQUEST;
	case -EIO: /* the verb's own: of what was asked for, not of the server */
		return MHD_HTTP_UNPROCESSABLE_CONTENT;
	case -EBUSY:
		return MHD_HTTP_SERVICE_UNAVAILABLE;
	case -ETIMEDOUT:
		return MHD_HTTP_GATEWAY_TIMEOUT;
	default:
		return MHD_HTTP_INTERNAL_SERVER_ERROR;
	}
}

/* ---- who may ask ---- */

/* Takes as long whatever the texts are, but for their lengths. */
static bool is_token(const char *token, const char *given)
{
	size_t length = strlen(token);
	unsigned char differs = 0;

	if (strlen(given) != length)
		return false;
	for (size_t i = 0; i < length; i++)
		differs |= (unsigned char)(token[i] ^ given[i]);
	return !differs;
}

static bool has_token(struct MHD_Connection *connection, const char *token)
{
	const char *header = http.lookup_connection_value(connection, MHD_HEADER_KIND,
							  MHD_HTTP_HEADER_AUTHORIZATION);
	char *password = NULL;

	if (!header)
		return false;
	if (!strncasecmp(header, "Bearer ", strlen("Bearer ")))
		return is_token(token, header + strlen("Bearer "));
	/* For programs that know names and passwords alone; any name. */
	char *name = http.basic_auth_get_username_password(connection, &password);
	bool is_right = password && is_token(token, password);
	http.free(name);
	http.free(password);
	return is_right;
}

/*
 * Whether the request was meant for this host. A page of another one can have its name resolve to
 * 127.0.0.1 and would then read what is here, if nobody has to say a token.
 */
static bool names_loopback(const struct hl_serve *serve, struct MHD_Connection *connection)
{
	char own[INET_ADDRSTRLEN] = "";
	const char *const names[] = {"localhost", "127.0.0.1", own};
	const char *host =
		http.lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
	size_t length = host ? strcspn(host, ":") : 0;

	if (!host)
		return true;
	inet_ntop(AF_INET, &serve->options->address.sin_addr, own, sizeof(own));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strlen(names[i]) == length && !strncasecmp(names[i], host, length))
			return true;
	return false;
}

/* ---- verbs ---- */

/* What a request becomes: a verb's arguments, and what they were made of. */
struct line {
	char *arguments[HL_REQUEST_OPTIONS_MAX + 8]; /* NULL-terminated */
	size_t count;
	char process[64];
	char *directory;      /* of snapshots; removed in the end; NULL: none */
	char *before, *after; /* paths of snapshots */
};

static void add(struct line *line, const char *argument)
{
	line->arguments[line->count++] = (char *)argument;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status, (void)kind, (void)place;
	return remove(path);
}

static void release_line(struct line *line)
{
	if (line->directory)
		nftw(line->directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	free(line->directory);
	free(line->before);
	free(line->after);
}

/* Which process a request without a name means. */
static int choose_process(const struct hl_catalog *catalog, const struct hl_request *request,
			  const struct hl_catalog_process **ret_process, struct hl_error *err)
{
	pid_t pid = request->pid;

	if (!pid && catalog->process_count != 1)
		return hl_error_set(err, -EINVAL,
				    "%zu processes are being recorded; add pid=PID or "
				    "recording=NAME, / lists them",
				    catalog->process_count);
	*ret_process = pid ? hl_catalog_process(catalog, pid) : &catalog->processes[0];
	if (!*ret_process)
		return hl_error_set(err, -ESRCH,
				    "process %d is not being recorded; / lists those that are",
				    pid);
	return 0;
}

static int choose_recording(const struct hl_catalog *catalog, const char *name,
			    const char **ret_path, struct hl_error *err)
{
	const struct hl_catalog_recording *recording = hl_catalog_recording(catalog, name);

	if (!recording)
		return hl_error_set(err, -ENOENT,
				    "there is no recording '%.200s'; / lists those that there are",
				    name);
	*ret_path = recording->path;
	return 0;
}

static int take_snapshot(const struct line *line, pid_t pid, const char *name, char **ret_path,
			 struct hl_error *err)
{
	char number[16];
	uint64_t bytes;

	if (asprintf(ret_path, "%s/%s.hl", line->directory, name) < 0) {
		*ret_path = NULL;
		return hl_error_set(err, -ENOMEM, "out of memory");
	}
	snprintf(number, sizeof(number), "%d", pid);
	char *const arguments[] = {"-p", number, "snapshot", *ret_path, NULL};
	int fd = hl_run_verb("ctl", arguments, &bytes, err);
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

/* Has what comes within the next seconds be shown. */
static int wait_for_growth(struct hl_serve *serve, struct line *line, pid_t pid, uint32_t seconds,
			   struct hl_error *err)
{
	const char *base = getenv("TMPDIR");
	struct pollfd stop = {.fd = serve->stop_fd, .events = POLLIN};

	if (asprintf(&line->directory, "%s/heapline-serve-XXXXXX", base && *base ? base : "/tmp") <
	    0)
		line->directory = NULL;
	if (!line->directory || !mkdtemp(line->directory)) {
		free(line->directory);
		line->directory = NULL;
		return hl_error_set(err, -errno, "cannot make a directory for snapshots: %s",
				    strerror(errno));
	}
	int r = take_snapshot(line, pid, "before", &line->before, err);
	if (r == 0 && poll(&stop, 1, (int)seconds * 1000) > 0)
		r = hl_error_set(err, -EBUSY, "heapline serve ends; ask again when it runs");
	if (r == 0)
		r = take_snapshot(line, pid, "after", &line->after, err);
	if (r == 0) {
		add(line, line->before);
		add(line, line->after);
	}
	return r;
}

/* The recordings that the request is about. */
static int add_operands(struct hl_serve *serve, const struct hl_catalog *catalog,
			const struct hl_request *request, struct line *line, struct hl_error *err)
{
	const struct hl_catalog_process *process;
	const char *path = NULL, *before = NULL;
	int r;

	if (request->name) {
		if (request->pid) {
			snprintf(line->process, sizeof(line->process), "--process=%d",
				 request->pid);
			add(line, line->process);
		}
		r = choose_recording(catalog, request->name, &path, err);
	} else {
		r = choose_process(catalog, request, &process, err);
		if (r < 0)
			return r;
		snprintf(line->process, sizeof(line->process), "--process=%d/%u", process->pid,
			 process->sequence);
		add(line, line->process);
		path = catalog->recordings[process->recording].path;
		if (request->seconds)
			return wait_for_growth(serve, line, process->pid, request->seconds, err);
	}
	if (r == 0 && request->seconds)
		return hl_error_set(err, -EINVAL,
				    "'seconds' waits for what a process does; name it with pid=PID "
				    "in place of recording=NAME");
	if (r == 0 && request->before)
		r = choose_recording(catalog, request->before, &before, err);
	add(line, "--"); /* paths are what collectors of other users say, where root serves */
	if (r == 0 && before)
		add(line, before);
	if (r == 0)
		add(line, path);
	return r;
}

static int make_line(struct hl_serve *serve, const struct hl_catalog *catalog,
		     const struct hl_request *request, struct line *line, struct hl_error *err)
{
	const struct hl_catalog_process *process;

	for (size_t i = 0; i < request->option_count; i++)
		add(line, request->options[i]);
	if (request->kind == HL_REQUEST_VIEW || request->kind == HL_REQUEST_HEAP)
		add(line, "--json");
	if (request->kind != HL_REQUEST_HEAP)
		return add_operands(serve, catalog, request, line, err);
	int r = choose_process(catalog, request, &process, err);
	if (r == 0) {
		snprintf(line->process, sizeof(line->process), "--pid=%d", process->pid);
		add(line, line->process);
	}
	return r;
}

/* ---- requests ---- */

static enum MHD_Result answer_by_verb(struct hl_serve *serve, struct MHD_Connection *connection,
				      const struct hl_catalog *catalog,
				      const struct hl_request *request)
{
	static const char *const types[] = {
		[HL_REQUEST_PROFILE] = PROFILE_TYPE,
		[HL_REQUEST_REPORT] = HTML_TYPE,
		[HL_REQUEST_VIEW] = JSON_TYPE,
		[HL_REQUEST_HEAP] = JSON_TYPE,
	};
	HL_CLEANUP(release_line) struct line line = {0};
	struct hl_error err = {0};
	uint64_t bytes = 0;
	char seconds[16];

	int r = make_line(serve, catalog, request, &line, &err);
	if (r == 0)
		r = hl_run_verb(request->verb, line.arguments, &bytes, &err);
	if (r < 0)
		return send_error(connection, status_of(r), err.text);
	struct MHD_Response *response = http.create_response_from_fd64(bytes, r); /* closes it */
	if (!response)
		close(r);
	else if (request->refresh) {
		snprintf(seconds, sizeof(seconds), "%u", request->refresh);
		http.add_response_header(response, "Refresh", seconds);
	}
	return send_response(connection, MHD_HTTP_OK, types[request->kind], response);
}

static enum MHD_Result answer_by_catalog(struct hl_serve *serve, struct MHD_Connection *connection,
					 struct hl_catalog *catalog,
					 const struct hl_request *request)
{
	bool is_index = request->kind == HL_REQUEST_INDEX;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return MHD_NO;
	if (!is_index)
		hl_serve_heaps_fill(serve->heaps, catalog);
	(is_index ? hl_serve_index : hl_serve_metrics)(catalog, out);
	if (fclose(out) != 0) {
		free(text);
		return MHD_NO;
	}
	return send_response(connection, MHD_HTTP_OK, is_index ? HTML_TYPE : HL_METRICS_TYPE,
			     http.create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE));
}

struct arguments {
	struct hl_request_argument all[ARGUMENTS_MAX];
	size_t count; /* how many came: more than there is room for, perhaps */
};

static enum MHD_Result take_argument(void *context, enum MHD_ValueKind kind, const char *key,
				     const char *value)
{
	struct arguments *arguments = context;

	(void)kind;
	if (arguments->count < ARGUMENTS_MAX)
		arguments->all[arguments->count] = (struct hl_request_argument){key, value};
	arguments->count++;
	return MHD_YES;
}

static enum MHD_Result answer(struct hl_serve *serve, struct MHD_Connection *connection,
			      const char *path)
{
	HL_CLEANUP(hl_catalog_release) struct hl_catalog catalog = {0};
	HL_CLEANUP(hl_request_release) struct hl_request request = {0};
	struct arguments arguments = {0};
	struct hl_error err = {0};

	http.get_connection_values(connection, MHD_GET_ARGUMENT_KIND, take_argument, &arguments);
	if (arguments.count > ARGUMENTS_MAX)
		return send_error(connection, MHD_HTTP_BAD_REQUEST, "there are too many arguments");
	int r = hl_request_parse(path, arguments.all, arguments.count, &request, &err);
	bool lists = request.kind == HL_REQUEST_INDEX || request.name || request.before;
	if (r == 0 && hl_catalog_read(&catalog, serve->options->directories,
				      lists ? serve->options->directory_count : 0) < 0)
		r = hl_error_set(&err, -ENOMEM, "out of memory");
	if (r < 0)
		return send_error(connection, status_of(r), err.text);
	return request.verb ? answer_by_verb(serve, connection, &catalog, &request)
			    : answer_by_catalog(serve, connection, &catalog, &request);
}

static enum MHD_Result take_request(void *context, struct MHD_Connection *connection,
				    const char *path, const char *method, const char *version,
				    const char *body, size_t *body_bytes, void **state)
{
	static int begun;
	struct hl_serve *serve = context;
	const char *token = serve->options->token;

	(void)version, (void)body;
	/* libmicrohttpd calls once with the headers alone; answers wait for the next call. */
	if (!*state) {
		*state = &begun;
		return MHD_YES;
	}
	if (*body_bytes) {
		*body_bytes = 0;
		return MHD_YES;
	}
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return send_error(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
				  "heapline serve only answers GET and HEAD");
	if (token && !has_token(connection, token))
		return send_error(connection, MHD_HTTP_UNAUTHORIZED,
				  "the token is missing or wrong; send it as a bearer token or as "
				  "a password");
	if (!token && !names_loopback(serve, connection))
		return send_error(connection, MHD_HTTP_FORBIDDEN,
				  "heapline serve without a token only answers to localhost, "
				  "127.0.0.1 and the address that it listens on");
	return answer(serve, connection, path);
}

/* ---- all of it ---- */

int hl_serve_start(const struct hl_serve_options *options, struct hl_serve **ret_serve,
		   unsigned *ret_port, struct hl_error *err)
{
	const struct sockaddr_in *address = &options->address;
	char host[INET_ADDRSTRLEN];

	int r = hl_http_load(&http, err);
	if (r < 0)
		return r;
	struct hl_serve *serve = calloc(1, sizeof(*serve));
	inet_ntop(AF_INET, &address->sin_addr, host, sizeof(host));
	struct hl_serve_heaps *heaps = hl_serve_heaps_new();
	if (!serve || !heaps) {
		free(serve);
		hl_serve_heaps_free(heaps);
		return hl_error_set(err, -ENOMEM, "out of memory");
	}
	serve->options = options;
	serve->heaps = heaps;
	serve->stop_fd = eventfd(0, EFD_CLOEXEC);
	errno = 0;
	serve->daemon = http.start_daemon(
		MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
			MHD_USE_ITC,
		0, NULL, NULL, take_request, serve, MHD_OPTION_SOCK_ADDR, address,
		MHD_OPTION_CONNECTION_LIMIT, (unsigned)HL_SERVE_CONNECTIONS_MAX,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, HL_SERVE_CONNECTION_BYTES,
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)HL_SERVE_TIMEOUT_S, MHD_OPTION_END);
	const union MHD_DaemonInfo *info =
		serve->daemon ? http.get_daemon_info(serve->daemon, MHD_DAEMON_INFO_BIND_PORT)
			      : NULL;
	if (!info) {
		r = errno ? -errno : -EIO;
		hl_serve_stop(serve);
		return hl_error_set(err, r,
				    "cannot listen on %s:%u: %s; choose another address with "
				    "--listen",
				    host, ntohs(address->sin_port), strerror(-r));
	}
	*ret_port = info->port;
	*ret_serve = serve;
	return 0;
}

void hl_serve_stop(struct hl_serve *serve)
{
	eventfd_write(serve->stop_fd, 1);
	if (serve->daemon)
		http.stop_daemon(serve->daemon);
	close(serve->stop_fd);
	hl_serve_heaps_free(serve->heaps);
	free(serve);
}
