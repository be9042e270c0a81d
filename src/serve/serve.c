/* SPDX-License-Identifier: BSD-2-Clause */
/* HTTP by libmicrohttpd: who may ask, and what is answered; see serve.h. */
#include "serve/serve.h"

#include "base/cleanup.h"
#include "serve/access.h"
#include "serve/catalog.h"
#include "serve/command.h"
#include "serve/connections.h"
#include "serve/heaps.h"
#include "serve/http.h"
#include "serve/pages.h"
#include "serve/request.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ARGUMENTS_MAX 32
#define JSON_TYPE     "application/json"
#define TEXT_TYPE     "text/plain; charset=utf-8"
#define HTML_TYPE     "text/html; charset=utf-8"
#define PROFILE_TYPE  "application/octet-stream"

static struct hl_http http;

struct hl_serve {
	const struct hl_serve_options *options;
	struct MHD_Daemon *daemon;
	struct hl_serve_heaps *heaps;
	struct hl_connections *connections;
	atomic_bool has_said; /* that something is hidden */
	int stop_fd;	      /* can be read when it ends */
};

static int fd_of(struct MHD_Connection *connection)
{
	return http.get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

static struct hl_connections_entry *connection_of(struct MHD_Connection *connection)
{
	return http.get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)
		->socket_context;
}

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
	if (status == MHD_HTTP_SERVICE_UNAVAILABLE)
		http.add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "10");
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
	HL_CLEANUP(hl_command_release) struct hl_command command;
	struct hl_error err = {0};
	uint64_t bytes = 0;
	char seconds[16];

	int r = hl_command_make(catalog, request, serve->stop_fd, fd_of(connection), &command,
				&err);
	if (r == 0)
		r = hl_run_verb(&command.run, &bytes, &err);
	if (r == -ECANCELED)
		return MHD_NO; /* the connection is closed */
	if (r < 0)
		return send_error(connection, status_of(r), err.text);
	struct MHD_Response *response = http.create_response_from_fd64(bytes, r); /* closes it */
	if (!response)
		close(r);
	else if (request->refresh) {
		snprintf(seconds, sizeof(seconds), "%u", request->refresh);
		http.add_response_header(response, "Refresh", seconds);
	}
	return send_response(connection, MHD_HTTP_OK,
			     request->is_text ? TEXT_TYPE : types[request->kind], response);
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
	hl_serve_heaps_fill(serve->heaps, catalog, !is_index);
	int r = (is_index ? hl_serve_index : hl_serve_metrics)(catalog, out);
	if (fclose(out) != 0 || r < 0) {
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

/* The log has it once; the page / has it as it is now. */
static void say_hidden(struct hl_serve *serve, const struct hl_catalog *catalog)
{
	char sentence[HL_CATALOG_HIDDEN_MAX];

	if (hl_catalog_hidden(catalog, sentence) && !atomic_exchange(&serve->has_said, true))
		serve->options->say(sentence);
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
	int r = hl_request_parse(path, arguments.all, arguments.count, serve->options->option_of,
				 &request, &err);
	bool lists = request.kind == HL_REQUEST_INDEX || request.name || request.before;
	if (r == 0 && hl_catalog_read(&catalog, serve->options->directories,
				      lists ? serve->options->directory_count : 0) < 0)
		r = hl_error_set(&err, -ENOMEM, "out of memory");
	if (r < 0)
		return send_error(connection, status_of(r), err.text);
	say_hidden(serve, &catalog);
	return request.verb ? answer_by_verb(serve, connection, &catalog, &request)
			    : answer_by_catalog(serve, connection, &catalog, &request);
}

static char begun, has_nul; /* states of a request */

static enum MHD_Result take_request(void *context, struct MHD_Connection *connection,
				    const char *path, const char *method, const char *version,
				    const char *body, size_t *body_bytes, void **state)
{
	struct hl_serve *serve = context;
	const char *sentence;

	(void)body;
	/* The decoded text of a request would end there. */
	if (*state == &has_nul)
		return send_error(connection, MHD_HTTP_BAD_REQUEST,
				  "the address has a NUL, '%00'; leave it out");
	/* libmicrohttpd calls once with the headers alone; answers wait for the next call. */
	if (!*state) {
		*state = &begun;
		return MHD_YES;
	}
	if (*body_bytes) {
		*body_bytes = 0;
		return MHD_YES;
	}
	if (!hl_connections_begin_answer(serve->connections, connection_of(connection)))
		return send_error(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
				  "too many requests are being answered; ask again later");
	unsigned status =
		hl_access_refusal(&http, connection, method, version, serve->options->token,
				  &serve->options->address, &sentence);
	return status ? send_error(connection, status, sentence) : answer(serve, connection, path);
}

/* ---- connections ---- */

/* Becomes what the state of the request begins with. */
static void *see_address(void *context, const char *address, struct MHD_Connection *connection)
{
	(void)context, (void)connection;
	return strstr(address, "%00") ? &has_nul : NULL;
}

static void on_completed(void *context, struct MHD_Connection *connection, void **state,
			 enum MHD_RequestTerminationCode how)
{
	struct hl_serve *serve = context;

	(void)state, (void)how;
	hl_connections_end_answer(serve->connections, connection_of(connection));
}

static void on_connection(void *context, struct MHD_Connection *connection, void **own,
			  enum MHD_ConnectionNotificationCode code)
{
	struct hl_serve *serve = context;

	if (code == MHD_CONNECTION_NOTIFY_STARTED)
		*own = hl_connections_open(
			serve->connections, fd_of(connection),
			http.get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)
				->client_addr);
	else
		hl_connections_close(serve->connections, *own);
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
	if (!serve)
		return hl_error_set(err, -ENOMEM, "out of memory");
	inet_ntop(AF_INET, &address->sin_addr, host, sizeof(host));
	serve->options = options;
	serve->stop_fd = eventfd(0, EFD_CLOEXEC);
	r = serve->stop_fd < 0 ? -errno : hl_serve_heaps_new(serve->stop_fd, &serve->heaps);
	if (r == 0)
		r = hl_connections_new(serve->stop_fd, &serve->connections);
	if (r < 0) {
		hl_serve_stop(serve);
		return hl_error_set(err, r, "cannot begin to serve: %s", strerror(-r));
	}
	errno = 0;
	serve->daemon = http.start_daemon(
		MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
			MHD_USE_ITC,
		0, NULL, NULL, take_request, serve, MHD_OPTION_SOCK_ADDR, address,
		MHD_OPTION_CONNECTION_LIMIT, (unsigned)(HL_CONNECTIONS_MAX + HL_CONNECTIONS_SPARE),
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, HL_SERVE_CONNECTION_BYTES,
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)HL_SERVE_TIMEOUT_S,
		MHD_OPTION_URI_LOG_CALLBACK, see_address, serve, MHD_OPTION_NOTIFY_COMPLETED,
		on_completed, serve, MHD_OPTION_NOTIFY_CONNECTION, on_connection, serve,
		MHD_OPTION_END);
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
	if (serve->stop_fd >= 0)
		eventfd_write(serve->stop_fd, 1);
	if (serve->daemon)
		http.stop_daemon(serve->daemon);
	hl_connections_free(serve->connections);
	hl_serve_heaps_free(serve->heaps);
	if (serve->stop_fd >= 0)
		close(serve->stop_fd);
	free(serve);
}
