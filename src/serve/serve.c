/* SPDX-License-Identifier: BSD-2-Clause */
/* HTTP by libmicrohttpd: who may ask, and what is answered; see serve.h. */
#include "serve/serve.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/library.h"
#include "serve/catalog.h"
#include "serve/command.h"
#include "serve/pages.h"
#include "serve/request.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <microhttpd.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTION_BYTES ((size_t)32 << 10) /* of a request */
#define TIMEOUT_S	 30		    /* that a connection may be silent */
#define ARGUMENTS_MAX	 32
#define JSON_TYPE	 "application/json"
#define TEXT_TYPE	 "text/plain; charset=utf-8"
#define HTML_TYPE	 "text/html; charset=utf-8"
#define PROFILE_TYPE	 "application/octet-stream"

/* ---- libmicrohttpd, loaded when it is needed: GnuTLS, which it brings along, takes a millisecond ---- */

#define HTTP_LIBRARY "libmicrohttpd.so.12"
#define HTTP_FUNCTIONS(FUNCTION)                   \
	FUNCTION(start_daemon)                     \
	FUNCTION(stop_daemon)                      \
	FUNCTION(get_daemon_info)                  \
	FUNCTION(get_connection_info)              \
	FUNCTION(create_response_from_fd64)        \
	FUNCTION(create_response_from_buffer)      \
	FUNCTION(add_response_header)              \
	FUNCTION(queue_response)                   \
	FUNCTION(destroy_response)                 \
	FUNCTION(lookup_connection_value)          \
	FUNCTION(get_connection_values)            \
	FUNCTION(basic_auth_get_username_password) \
	FUNCTION(free)

/* MHD_start_daemon() and so on. */
static struct {
#define HTTP_MEMBER(name) __typeof__(&MHD_##name) name;
	HTTP_FUNCTIONS(HTTP_MEMBER)
#undef HTTP_MEMBER
} http;

/* Fills ${http} for the rest of the process. 0, or -ENOENT with a sentence when the library is not there. */
static int http_load(struct hl_error *err)
{
	static const char *const names[] = {HTTP_FUNCTIONS(HL_LIBRARY_NAME)};

	return hl_library_load(HTTP_LIBRARY, "MHD_", names, HL_COUNT_OF(names), &http, "serve",
			       "libmicrohttpd12", err);
}

/* ---- who may ask: whoever has the token, where there is one, and no page of another site ---- */

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
static bool names_loopback(const struct sockaddr_in *address, const char *host)
{
	char own[INET_ADDRSTRLEN] = "";
	const char *const names[] = {"localhost", "127.0.0.1", own};
	size_t length = host ? strcspn(host, ":") : 0;

	if (!host)
		return true;
	inet_ntop(AF_INET, &address->sin_addr, own, sizeof(own));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strlen(names[i]) == length && !strncasecmp(names[i], host, length))
			return true;
	return false;
}

static enum MHD_Result count_host(void *context, enum MHD_ValueKind kind, const char *key,
				  const char *value)
{
	unsigned *count = context;

	(void)kind, (void)value;
	*count += !strcasecmp(key, MHD_HTTP_HEADER_HOST);
	return MHD_YES;
}

/* RFC 9112, section 3.2: a request of HTTP/1.1 has one line Host, and none has more. */
static bool names_one_host(struct MHD_Connection *connection, const char *version)
{
	unsigned count = 0;

	http.get_connection_values(connection, MHD_HEADER_KIND, count_host, &count);
	return count == 1 || (count == 0 && strcasecmp(version, MHD_HTTP_VERSION_1_1) != 0);
}

/*
 * Whether a page of another site had the browser send the request, be it only as the address of a picture: it could not
 * read the answer, but the work would be done (https://www.w3.org/TR/fetch-metadata/).
 */
static bool is_of_another_site(struct MHD_Connection *connection, const char *host)
{
	const char *site =
		http.lookup_connection_value(connection, MHD_HEADER_KIND, "Sec-Fetch-Site");
	const char *origin =
		http.lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ORIGIN);
	const char *origin_host = origin ? strstr(origin, "://") : NULL;

	if (site && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0)
		return true;
	return origin &&
	       (!host || !origin_host || strcasecmp(origin_host + strlen("://"), host) != 0);
}

/*
 * Judges the header of a request. ${token}: NULL when none is needed; ${address}: where we listen. 0; or the status to refuse it
 * with, and a sentence in *${ret_sentence}.
 */
static unsigned access_refusal(struct MHD_Connection *connection, const char *method,
			       const char *version, const char *token,
			       const struct sockaddr_in *address, const char **ret_sentence)
{
	const char *host =
		http.lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);

	if (!names_one_host(connection, version)) {
		*ret_sentence =
			"a request of HTTP/1.1 needs one line 'Host', and this one has none "
			"or several";
		return MHD_HTTP_BAD_REQUEST;
	}
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
		*ret_sentence = "heapline serve only answers GET and HEAD";
		return MHD_HTTP_METHOD_NOT_ALLOWED;
	}
	if (is_of_another_site(connection, host)) {
		*ret_sentence = "heapline serve does not answer pages of other sites; open the "
				"address itself";
		return MHD_HTTP_FORBIDDEN;
	}
	if (token && !has_token(connection, token)) {
		*ret_sentence = "the token is missing or wrong; send it as a bearer token or as "
				"a password";
		return MHD_HTTP_UNAUTHORIZED;
	}
	if (!token && !names_loopback(address, host)) {
		*ret_sentence = "heapline serve without a token only answers to localhost, "
				"127.0.0.1 and the address that it listens on";
		return MHD_HTTP_FORBIDDEN;
	}
	return 0;
}

/* ---- connections ---- */

/*
 * Bounds what connections may take: how many there are, how long one may send the header of a request, and how long
 * its answer may take. Where room is needed, whoever has taken longest to send a header has to go. Thread-safe.
 */

#define CONNECTIONS_MAX		64 /* a further one ends the one that is longest at its header */
#define CONNECTIONS_SPARE	16 /* beyond these, while those that have to go do so */
#define CONNECTIONS_ANSWERS_MAX 32 /* at once, for one address; further ones are refused */
#define CONNECTIONS_HEADER_S	10
#define CONNECTIONS_ANSWER_S	900 /* from a request to the last byte of its answer */

#define LOOK_MS 500

enum state {
	STATE_FREE,
	STATE_HEADER,
	STATE_ANSWER,
	STATE_ENDED, /* it was shut down, and is still open */
};

struct connection {
	enum state state;
	int fd;
	in_addr_t address;
	uint64_t since_ns; /* it is in this state */
};

struct connections {
	pthread_mutex_t lock;
	pthread_t minder;
	int stop_fd;
	struct connection all[CONNECTIONS_MAX + CONNECTIONS_SPARE];
};

/* Its thread sees the end of the stream, or cannot send any more. */
static void end(struct connection *connection)
{
	shutdown(connection->fd, SHUT_RDWR);
	connection->state = STATE_ENDED;
}

static void enter(struct connection *connection, enum state state)
{
	connection->state = state;
	connection->since_ns = hl_clock_ns(CLOCK_MONOTONIC);
}

static size_t count_of(const struct connections *connections)
{
	size_t count = 0;

	for (size_t i = 0; i < HL_COUNT_OF(connections->all); i++)
		count += connections->all[i].state == STATE_HEADER ||
			 connections->all[i].state == STATE_ANSWER;
	return count;
}

static void end_late(struct connections *connections, uint64_t now_ns)
{
	static const uint64_t limits_s[] = {[STATE_HEADER] = CONNECTIONS_HEADER_S,
					    [STATE_ANSWER] = CONNECTIONS_ANSWER_S,
					    [STATE_ENDED] = 0};

	pthread_mutex_lock(&connections->lock);
	for (size_t i = 0; i < HL_COUNT_OF(connections->all); i++) {
		struct connection *connection = &connections->all[i];
		uint64_t limit_ns = limits_s[connection->state] * HL_NS_PER_SECOND;
		if (limit_ns && now_ns - connection->since_ns > limit_ns)
			end(connection);
	}
	pthread_mutex_unlock(&connections->lock);
}

static void *mind(void *context)
{
	struct connections *connections = context;
	struct pollfd stop = {.fd = connections->stop_fd, .events = POLLIN};

	while (poll(&stop, 1, LOOK_MS) <= 0)
		end_late(connections, hl_clock_ns(CLOCK_MONOTONIC));
	return NULL;
}

/* Begins to mind them, on a thread that ends when ${stop_fd} can be read. 0 or a negative errno. */
static int connections_new(int stop_fd, struct connections **ret_connections)
{
	struct connections *connections = calloc(1, sizeof(*connections));

	if (!connections)
		return -ENOMEM;
	connections->stop_fd = stop_fd;
	pthread_mutex_init(&connections->lock, NULL);
	int error = pthread_create(&connections->minder, NULL, mind, connections);
	if (error) {
		pthread_mutex_destroy(&connections->lock);
		free(connections);
		return -error;
	}
	*ret_connections = connections;
	return 0;
}

/* After ${stop_fd} can be read. NULL is fine. */
static void connections_free(struct connections *connections)
{
	if (!connections)
		return;
	pthread_join(connections->minder, NULL);
	pthread_mutex_destroy(&connections->lock);
	free(connections);
}

/* Ends the one that has been longest at its header. Under the lock. */
static void make_room(struct connections *connections)
{
	struct connection *oldest = NULL;

	for (size_t i = 0; i < HL_COUNT_OF(connections->all); i++) {
		struct connection *connection = &connections->all[i];
		if (connection->state == STATE_HEADER &&
		    (!oldest || connection->since_ns < oldest->since_ns))
			oldest = connection;
	}
	if (oldest)
		end(oldest);
}

/* One begins: the header of its first request is to come. NULL where there is no room for it, so that it is not minded. */
static struct connection *connections_open(struct connections *connections, int fd,
					   const struct sockaddr *address)
{
	const struct sockaddr_in *from = (const void *)address;
	struct connection *opened = NULL;

	pthread_mutex_lock(&connections->lock);
	if (count_of(connections) >= CONNECTIONS_MAX)
		make_room(connections);
	for (size_t i = 0; !opened && i < HL_COUNT_OF(connections->all); i++)
		if (connections->all[i].state == STATE_FREE)
			opened = &connections->all[i];
	if (opened) {
		opened->fd = fd;
		opened->address = from->sin_family == AF_INET ? from->sin_addr.s_addr : 0;
		enter(opened, STATE_HEADER);
	}
	pthread_mutex_unlock(&connections->lock);
	return opened;
}

/* To be called before its socket is closed; NULL is fine. */
static void connections_close(struct connections *connections, struct connection *connection)
{
	if (!connection)
		return;
	pthread_mutex_lock(&connections->lock);
	connection->state = STATE_FREE;
	pthread_mutex_unlock(&connections->lock);
}

/* The header of a request is complete. Whether it may be answered: not where as many others are. */
static bool connections_begin_answer(struct connections *connections, struct connection *connection)
{
	size_t others = 0;

	if (!connection)
		return false;
	pthread_mutex_lock(&connections->lock);
	for (size_t i = 0; i < HL_COUNT_OF(connections->all); i++)
		others += connections->all[i].state == STATE_ANSWER &&
			  connections->all[i].address == connection->address;
	if (connection->state == STATE_HEADER)
		enter(connection, STATE_ANSWER);
	pthread_mutex_unlock(&connections->lock);
	return others < CONNECTIONS_ANSWERS_MAX;
}

/* The answer was sent: the header of the next request is to come. */
static void connections_end_answer(struct connections *connections, struct connection *connection)
{
	if (!connection)
		return;
	pthread_mutex_lock(&connections->lock);
	if (connection->state == STATE_ANSWER)
		enter(connection, STATE_HEADER);
	pthread_mutex_unlock(&connections->lock);
}

/* ---- the server ---- */

struct hl_serve {
	const struct hl_serve_options *options;
	struct MHD_Daemon *daemon;
	struct hl_serve_heaps *heaps;
	struct connections *connections;
	atomic_bool has_said; /* that something is hidden */
	int stop_fd;	      /* can be read when it ends */
};

static int fd_of(struct MHD_Connection *connection)
{
	return http.get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

static struct connection *connection_of(struct MHD_Connection *connection)
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
		r = hl_command_run(&command.run, &bytes, &err);
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
	HL_CLEANUP(hl_groups_release) struct hl_groups groups = {0};
	int r = is_index ? hl_serve_index(catalog, out)
			 : hl_groups_read(&groups, catalog, &serve->options->groups);
	if (r == 0 && !is_index)
		r = hl_serve_metrics(catalog, &groups, out);
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
	if (!connections_begin_answer(serve->connections, connection_of(connection)))
		return send_error(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
				  "too many requests are being answered; ask again later");
	unsigned status = access_refusal(connection, method, version, serve->options->token,
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
	connections_end_answer(serve->connections, connection_of(connection));
}

static void on_connection(void *context, struct MHD_Connection *connection, void **own,
			  enum MHD_ConnectionNotificationCode code)
{
	struct hl_serve *serve = context;

	if (code == MHD_CONNECTION_NOTIFY_STARTED)
		*own = connections_open(
			serve->connections, fd_of(connection),
			http.get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)
				->client_addr);
	else
		connections_close(serve->connections, *own);
}

/* ---- all of it ---- */

int hl_serve_start(const struct hl_serve_options *options, struct hl_serve **ret_serve,
		   unsigned *ret_port, struct hl_error *err)
{
	const struct sockaddr_in *address = &options->address;
	char host[INET_ADDRSTRLEN];

	int r = http_load(err);
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
		r = connections_new(serve->stop_fd, &serve->connections);
	if (r < 0) {
		hl_serve_stop(serve);
		return hl_error_set(err, r, "cannot begin to serve: %s", strerror(-r));
	}
	errno = 0;
	serve->daemon = http.start_daemon(
		MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
			MHD_USE_ITC,
		0, NULL, NULL, take_request, serve, MHD_OPTION_SOCK_ADDR, address,
		MHD_OPTION_CONNECTION_LIMIT, (unsigned)(CONNECTIONS_MAX + CONNECTIONS_SPARE),
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
		(unsigned)TIMEOUT_S, MHD_OPTION_URI_LOG_CALLBACK, see_address, serve,
		MHD_OPTION_NOTIFY_COMPLETED, on_completed, serve, MHD_OPTION_NOTIFY_CONNECTION,
		on_connection, serve, MHD_OPTION_END);
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
	connections_free(serve->connections);
	hl_serve_heaps_free(serve->heaps);
	if (serve->stop_fd >= 0)
		close(serve->stop_fd);
	free(serve);
}
