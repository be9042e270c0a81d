/* SPDX-License-Identifier: BSD-2-Clause */
/* Judges who asks; see access.h. */
#include "serve/access.h"

#include "base/compiler.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

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

static bool has_token(const struct hl_http *http, struct MHD_Connection *connection,
		      const char *token)
{
	const char *header = http->lookup_connection_value(connection, MHD_HEADER_KIND,
							   MHD_HTTP_HEADER_AUTHORIZATION);
	char *password = NULL;

	if (!header)
		return false;
	if (!strncasecmp(header, "Bearer ", strlen("Bearer ")))
		return is_token(token, header + strlen("Bearer "));
	/* For programs that know names and passwords alone; any name. */
	char *name = http->basic_auth_get_username_password(connection, &password);
	bool is_right = password && is_token(token, password);
	http->free(name);
	http->free(password);
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

/* ---- the header ---- */

static enum MHD_Result count_host(void *context, enum MHD_ValueKind kind, const char *key,
				  const char *value)
{
	unsigned *count = context;

	(void)kind, (void)value;
	*count += !strcasecmp(key, MHD_HTTP_HEADER_HOST);
	return MHD_YES;
}

/* RFC 9112, section 3.2: a request of HTTP/1.1 has one line Host, and none has more. */
static bool names_one_host(const struct hl_http *http, struct MHD_Connection *connection,
			   const char *version)
{
	unsigned count = 0;

	http->get_connection_values(connection, MHD_HEADER_KIND, count_host, &count);
	return count == 1 || (count == 0 && strcasecmp(version, MHD_HTTP_VERSION_1_1) != 0);
}

/*
 * Whether a page of another site had the browser send the request, be it only as the address of a picture: it could not
 * read the answer, but the work would be done (https://www.w3.org/TR/fetch-metadata/).
 */
static bool is_of_another_site(const struct hl_http *http, struct MHD_Connection *connection,
			       const char *host)
{
	const char *site =
		http->lookup_connection_value(connection, MHD_HEADER_KIND, "Sec-Fetch-Site");
	const char *origin =
		http->lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ORIGIN);
	const char *origin_host = origin ? strstr(origin, "://") : NULL;

	if (site && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0)
		return true;
	return origin &&
	       (!host || !origin_host || strcasecmp(origin_host + strlen("://"), host) != 0);
}

unsigned hl_access_refusal(const struct hl_http *http, struct MHD_Connection *connection,
			   const char *method, const char *version, const char *token,
			   const struct sockaddr_in *address, const char **ret_sentence)
{
	const char *host =
		http->lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);

	if (!names_one_host(http, connection, version)) {
		*ret_sentence =
			"a request of HTTP/1.1 needs one line 'Host', and this one has none "
			"or several";
		return MHD_HTTP_BAD_REQUEST;
	}
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
		*ret_sentence = "heapline serve only answers GET and HEAD";
		return MHD_HTTP_METHOD_NOT_ALLOWED;
	}
	if (is_of_another_site(http, connection, host)) {
		*ret_sentence = "heapline serve does not answer pages of other sites; open the "
				"address itself";
		return MHD_HTTP_FORBIDDEN;
	}
	if (token && !has_token(http, connection, token)) {
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
