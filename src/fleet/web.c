/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests by libcurl; see web.h. */
#include "fleet/web.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/library.h"

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#undef curl_easy_setopt
#undef curl_easy_getinfo

#define LIBRARY "libcurl.so.4"
#define WORDS	200 /* of an answer, in messages */

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
};

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
	web->curl.easy_setopt(web->handle, CURLOPT_TIMEOUT, (long)HL_WEB_ANSWER_S);
	web->curl.easy_setopt(web->handle, CURLOPT_USERAGENT, "heapline/" HL_VERSION);
	web->curl.easy_setopt(web->handle, CURLOPT_HTTPHEADER, web->headers);
	if (request->user)
		web->curl.easy_setopt(web->handle, CURLOPT_USERPWD, request->user);
	web->curl.easy_setopt(web->handle, CURLOPT_POST, 1L);
	web->curl.easy_setopt(web->handle, CURLOPT_POSTFIELDS, request->body);
	web->curl.easy_setopt(web->handle, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->size);
	web->curl.easy_setopt(web->handle, CURLOPT_WRITEFUNCTION, take_bytes);
	web->curl.easy_setopt(web->handle, CURLOPT_WRITEDATA, body);
	return 0;
}

static int judge(struct hl_web *web, const struct hl_web_request *request, CURLcode code,
		 const struct body *body, struct hl_error *err)
{
	long status = 0;

	if (code != CURLE_OK)
		return hl_error_set(err, -EAGAIN, "cannot reach '%s': %s", request->name,
				    web->curl.easy_strerror(code));
	web->curl.easy_getinfo(web->handle, CURLINFO_RESPONSE_CODE, &status);
	if (status >= 200 && status < 300)
		return 0;
	size_t words = body->text ? strcspn(body->text, "\r\n") : 0;
	return hl_error_set(err, status == 429 || status >= 500 ? -EAGAIN : -EREMOTEIO,
			    "'%s' answered with status %ld%s%.*s", request->name, status,
			    words ? ": " : "", (int)(words < WORDS ? words : WORDS),
			    words ? body->text : "");
}

int hl_web_post(struct hl_web *web, const struct hl_web_request *request,
		struct hl_web_answer *ret_answer, struct hl_error *err)
{
	struct body body = {0};

	int r = HL_ARRAY_RESERVE(body.text, body.capacity, 1);
	if (r == 0) {
		body.text[0] = '\0';
		r = set_options(web, request, &body);
	}
	if (r == 0)
		r = judge(web, request, web->curl.easy_perform(web->handle), &body, err);
	web->curl.slist_free_all(web->headers);
	web->headers = NULL;
	*ret_answer = (struct hl_web_answer){body.text, body.size};
	return r == -ENOMEM ? hl_error_set(err, r, "out of memory") : r;
}
