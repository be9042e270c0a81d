/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where looks go: the seam of `heapline push`. A look is encoded at once and sent at once, or from the spool when the sink is back,
 * so what is sent is always what was encoded.
 */
#pragma once

#include "push/session.h"
#include "serve/groups.h"

struct hl_push_sink;

/*
 * The sink at ${url}: a store (fleet/store.h); http:// and https:// for a server that takes pprof as Pyroscope does; otlp+http:// and
 * otlp+https:// for one of OpenTelemetry, where ${experimental} allows it. 0 or a negative errno with a sentence.
 */
int hl_push_sink_open(const char *url, bool experimental, struct hl_push_sink **ret_sink,
		      struct hl_error *err);
void hl_push_sink_free(struct hl_push_sink *sink); /* NULL is fine */

/* ---- what a kind of sink has; a sink begins with it ---- */

struct hl_push_sink_kind {
	void (*free)(struct hl_push_sink *sink);

	/* Writes ${look}, of a window that began at ${from_ms}, to ${out}, whose errors it leaves there. 0 or a negative errno with a
	 * sentence. */
	int (*encode)(struct hl_push_sink *sink, const struct hl_push_look *look, int64_t from_ms,
		      FILE *out, struct hl_error *err);

	/*
	 * Sends what was encoded, ${size} bytes with a NUL after them, which it may change. ${repeated}: it may have arrived already. With a
	 * sentence: -EAGAIN when the same may succeed later; 1 when it was what encode_groups() wrote, and, with a sentence, no more of these are wanted; -EEXIST and -ESTALE as hl_fleet_insert(), where sessions are to be recalled; any other
	 * negative errno when it is refused for good.
	 */
	int (*send)(struct hl_push_sink *sink, char *bytes, size_t size, bool repeated,
		    struct hl_error *err);

	/*
	 * Sends ${count} looks of which the profiles are not needed, without encoding them first. As send(); after a failure some of each
	 * may have arrived. NULL: they have to be encoded.
	 */
	int (*send_looks)(struct hl_push_sink *sink, const struct hl_push_look *looks, size_t count,
			  struct hl_error *err);

	/* Writes what ${groups} of ${host} are charged with at ${ms}, in order to be sent. 0 or -ENOMEM. NULL: it takes no such thing. */
	int (*encode_groups)(struct hl_push_sink *sink, const struct hl_groups *groups,
			     const char *host, int64_t ms, FILE *out);

	/* Tells ${session} what the sink has of it. As send(). NULL: it needs no figures from before. */
	int (*recall)(struct hl_push_sink *sink, struct hl_push_session *session,
		      struct hl_error *err);
};

struct hl_push_sink {
	const struct hl_push_sink_kind *kind;
};

/* ---- the kinds ---- */

int hl_push_otlp_open(const char *url, struct hl_push_sink **ret_sink, struct hl_error *err);
bool hl_push_otlp_is_url(const char *url);

/* Writes a message of OTLP, deflated; its errors are those of ${out}, -EFBIG with a sentence, and -ENOMEM. */
struct ProtobufCMessage;
int hl_push_otlp_put(const struct ProtobufCMessage *message, FILE *out, struct hl_error *err);

/* Writes what ${groups} of ${host} are charged with at ${ms} as such a message. */
int hl_push_otlp_groups(const struct hl_groups *groups, const char *host, int64_t ms, FILE *out);
