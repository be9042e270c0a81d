/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests by libcurl; see web.h. */
#include "fleet/web.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/library.h"
#include "base/text.h"

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <stdatomic.h>
#undef curl_easy_setopt
#undef curl_easy_getinfo

#define LIBRARY "libcurl.so.4"
#define WORDS	200 /* of an answer, in messages */
#define SLOW_NS HL_NS_PER_SECOND

#define FUNCTIONS(FUNCTION)     \
	FUNCTION(easy_init)     \
	FUNCTION(easy_cleanup)  \
	FUNCTION(easy_reset)    \
	FUNCTION(easy_setopt)   \
	FUNCTION(easy_getinfo)  \
	FUNCTION(easy_perform)  \
	FUNCTION(easy_strerror) \
	FUNCTION(slist_append)  \
	FUNCTION(slist_free_all)

/* curl_easy_init() and so on. */
struct functions {
#define MEMBER(name) __typeof__(&curl_##name) name;
	FUNCTIONS(MEMBER)
#undef MEMBER
};

struct hl_web {
	struct functions curl;
	CURL *handle;
	struct curl_slist *headers;
	uint64_t begin_ns;	      /* of the request, CLOCK_MONOTONIC */
	char reason[CURL_ERROR_SIZE]; /* of the last failure, in a sentence; "": none was given */
};

static _Atomic uint64_t end_ns;
static long answer_s = HL_WEB_ANSWER_S;
static void (*note_slow)(void *context);
static void *slow_context;

struct body {
	char *text;
	size_t size, capacity;
};

int hl_web_new(struct hl_web **ret_web, struct hl_error *err)
{
	static const char *const names[] = {FUNCTIONS(HL_LIBRARY_NAME)};
	struct hl_web *web = calloc(1, sizeof(*web));

	if (!web)
		return hl_error_set(err, -ENOMEM, "out of memory");
	int r = hl_library_load(LIBRARY, "curl_", names, HL_COUNT_OF(names), &web->curl,
				"send over HTTP", "libcurl4", err);
	if (r == 0 && !(web->handle = web->curl.easy_init()))
		r = hl_error_set(err, -ENOMEM, "out of memory");
	if (r < 0)
		free(web);
	else
		*ret_web = web;
	return r;
}

void hl_web_free(struct hl_web *web)
{
	if (!web)
		return;
	web->curl.easy_cleanup(web->handle);
	free(web);
}

/* Less than was given ends the transfer. */
static size_t take_bytes(char *bytes, size_t one, size_t count, void *context)
{
	struct body *body = context;

	(void)one; /* always 1 */
	if (body->size + count > HL_WEB_ANSWER_MAX ||
	    HL_ARRAY_RESERVE(body->text, body->capacity, body->size + count + 1) < 0)
		return 0;
	memcpy(body->text + body->size, bytes, count);
	body->size += count;
	body->text[body->size] = '\0';
	return count;
}

void hl_web_end_by(uint64_t ns)
{
	atomic_store(&end_ns, ns);
}

void hl_web_answer_within(long seconds)
{
	answer_s = seconds;
}

void hl_web_when_slow(void (*note)(void *context), void *context)
{
	note_slow = note;
	slow_context = context;
}

static bool is_over(void)
{
	uint64_t until_ns = atomic_load(&end_ns);

	return until_ns && hl_clock_ns(CLOCK_MONOTONIC) >= until_ns;
}

/* Called about once a second, and whenever bytes come or go. */
static int note_progress(void *context, curl_off_t download, curl_off_t downloaded,
			 curl_off_t upload, curl_off_t uploaded)
{
	const struct hl_web *web = context;

	(void)download, (void)downloaded, (void)upload, (void)uploaded;
	if (note_slow && hl_clock_ns(CLOCK_MONOTONIC) - web->begin_ns >= SLOW_NS)
		note_slow(slow_context);
	return is_over();
}

/* Only what is asked for: no redirects, which could lead elsewhere, and no other protocols. */
static int set_options(struct hl_web *web, const struct hl_web_request *request, struct body *body)
{
	const char *type = request->content_type ? request->content_type : "text/plain";
	HL_FREED char *content_type = NULL;

	if (asprintf(&content_type, "Content-Type: %s", type) < 0)
		return -ENOMEM;
	/* A request goes without the question whether it may. */
	const char *const headers[] = {content_type, "Expect:", request->header};
	for (size_t i = 0; i < HL_COUNT_OF(headers) && headers[i]; i++) {
		struct curl_slist *longer = web->curl.slist_append(web->headers, headers[i]);
		if (!longer)
			return -ENOMEM;
		web->headers = longer;
	}
	web->curl.easy_reset(web->handle);
	web->curl.easy_setopt(web->handle, CURLOPT_URL, request->url);
	web->curl.easy_setopt(web->handle, CURLOPT_PROTOCOLS_STR, "http,https");
	web->curl.easy_setopt(web->handle, CURLOPT_NOSIGNAL, 1L);
	web->curl.easy_setopt(web->handle, CURLOPT_CONNECTTIMEOUT, (long)HL_WEB_CONNECT_S);
	web->curl.easy_setopt(web->handle, CURLOPT_TIMEOUT, answer_s);
	web->reason[0] = '\0';
	web->curl.easy_setopt(web->handle, CURLOPT_ERRORBUFFER, web->reason);
	web->curl.easy_setopt(web->handle, CURLOPT_NOPROGRESS, 0L);
	web->curl.easy_setopt(web->handle, CURLOPT_XFERINFOFUNCTION, note_progress);
	web->curl.easy_setopt(web->handle, CURLOPT_XFERINFODATA, web);
	web->curl.easy_setopt(web->handle, CURLOPT_USERAGENT, "heapline/" HL_VERSION);
	web->curl.easy_setopt(web->handle, CURLOPT_HTTPHEADER, web->headers);
	if (request->user)
		web->curl.easy_setopt(web->handle, CURLOPT_USERPWD, request->user);
	/* The library itself repeats what got no answer over a connection that it had kept. */
	web->curl.easy_setopt(web->handle, CURLOPT_FRESH_CONNECT, request->is_sent_once ? 1L : 0L);
	web->curl.easy_setopt(web->handle, CURLOPT_POST, 1L);
	web->curl.easy_setopt(web->handle, CURLOPT_POSTFIELDS, request->body);
	web->curl.easy_setopt(web->handle, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->size);
	web->curl.easy_setopt(web->handle, CURLOPT_WRITEFUNCTION, take_bytes);
	web->curl.easy_setopt(web->handle, CURLOPT_WRITEDATA, body);
	return 0;
}

/* ---- places ---- */

bool hl_web_is_url(const char *url)
{
	return !strncmp(url, "http://", strlen("http://")) ||
	       !strncmp(url, "https://", strlen("https://"));
}

char *hl_web_user(const char *user, size_t length)
{
	const char *password = getenv(HL_WEB_PASSWORD);
	char *text;

	if (!password || memchr(user, ':', length))
		return strndup(user, length);
	return asprintf(&text, "%.*s:%s", (int)length, user, password) < 0 ? NULL : text;
}

void hl_web_place_release(struct hl_web_place *place)
{
	free(place->url);
	free(place->name);
	free(place->user);
	*place = (struct hl_web_place){0};
}

int hl_web_place_parse(const char *url, const char *port, const char *path,
		       struct hl_web_place *place)
{
	const char *host = strstr(url, "://") + strlen("://");
	const char *at = memrchr(host, '@', strcspn(host, "/"));
	const char *rest = at ? at + 1 : host;
	size_t scheme = (size_t)(host - url), length = strlen(rest), tail = strlen(path);

	while (length && rest[length - 1] == '/')
		length--;
	size_t authority = strcspn(rest, "/");
	const char *end = memchr(rest, ']', authority); /* of an address of IPv6 */
	const char *name = end ? end : rest;
	bool has_port = memchr(name, ':', authority - (size_t)(name - rest));
	bool has_path = length >= tail && !strncmp(rest + length - tail, path, tail);
	*place = (struct hl_web_place){0};
	if (at && !(place->user = hl_web_user(host, (size_t)(at - host))))
		return -ENOMEM;
	if (asprintf(&place->name, "%.*s%.*s", (int)scheme, url, (int)length, rest) < 0)
		place->name = NULL;
	if (asprintf(&place->url, "%.*s%.*s%s%s%.*s%s", (int)scheme, url, (int)authority, rest,
		     port && !has_port ? ":" : "", port && !has_port ? port : "",
		     (int)(length - authority), rest + authority, has_path ? "" : path) < 0)
		place->url = NULL;
	return place->name && place->url ? 0 : -ENOMEM;
}

/* ---- requests ---- */

/* Bytes of the first line of ${text} that can be shown: none of what is not text. */
static size_t words_of(const char *text)
{
	size_t length = strcspn(text, "\r\n"), most = length < WORDS ? length : WORDS, count = 0;
	uint32_t code_point;

	while (count < most) {
		int bytes = hl_utf8_decode(text + count, &code_point);
		if (!bytes || hl_utf8_is_control(code_point))
			return 0;
		count += (size_t)bytes;
	}
	return count;
}

static int judge(struct hl_web *web, const struct hl_web_request *request, CURLcode code,
		 const struct hl_web_answer *answer, struct hl_error *err)
{
	if (code == CURLE_ABORTED_BY_CALLBACK)
		return hl_error_set(err, -EAGAIN,
				    "cannot reach '%s': it did not answer before the end",
				    request->name);
	if (code != CURLE_OK)
		return hl_error_set(err, -EAGAIN, "cannot reach '%s': %s", request->name,
				    *web->reason ? web->reason : web->curl.easy_strerror(code));
	if (answer->status >= 200 && answer->status < 300)
		return 0;
	int words = (int)words_of(answer->text);
	return hl_error_set(err,
			    answer->status == 429 || answer->status >= 500 ? -EAGAIN : -EREMOTEIO,
			    "'%s' answered with status %ld%s%.*s", request->name, answer->status,
			    words ? ": " : "", words, answer->text);
}

int hl_web_post(struct hl_web *web, const struct hl_web_request *request,
		struct hl_web_answer *ret_answer, struct hl_error *err)
{
	struct body body = {0};

	*ret_answer = (struct hl_web_answer){0};
	int r = HL_ARRAY_RESERVE(body.text, body.capacity, 1);
	if (r == 0) {
		body.text[0] = '\0';
		r = set_options(web, request, &body);
	}
	if (r == 0) {
		web->begin_ns = hl_clock_ns(CLOCK_MONOTONIC);
		CURLcode code =
			is_over() ? CURLE_ABORTED_BY_CALLBACK : web->curl.easy_perform(web->handle);
		*ret_answer = (struct hl_web_answer){body.text, body.size, 0};
		if (code == CURLE_OK)
			web->curl.easy_getinfo(web->handle, CURLINFO_RESPONSE_CODE,
					       &ret_answer->status);
		r = judge(web, request, code, ret_answer, err);
	} else {
		free(body.text);
	}
	web->curl.slist_free_all(web->headers);
	web->headers = NULL;
	return r == -ENOMEM ? hl_error_set(err, r, "out of memory") : r;
}
