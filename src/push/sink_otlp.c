/* SPDX-License-Identifier: BSD-2-Clause */
/* Pushes profiles by OTLP over HTTP, see otlp.proto and otlp_message.h. */
#include "push/sink.h"

#include "base/cleanup.h"
#include "fleet/web.h"
#include "import/gzip.h"
#include "push/otlp_message.h"

#include "otlp.pb-c.h"

#define PREFIX	"otlp+" /* of http:// and https:// */
#define PATH	"/v1development/profiles"
#define PORT	"4318"
#define TYPE	"application/x-protobuf"
#define DEFLATE "Content-Encoding: gzip"

struct otlp_sink {
	struct hl_push_sink sink;
	struct hl_web *web;
	struct hl_web_place place;
};

static void otlp_free(struct hl_push_sink *sink)
{
	struct otlp_sink *otlp = (struct otlp_sink *)sink;

	hl_web_free(otlp->web);
	hl_web_place_release(&otlp->place);
	free(otlp);
}

/* A file of gzip that a message is packed into. */
struct deflated {
	ProtobufCBuffer base; /* first, so that append() finds the rest */
	struct hl_gzip_writer gzip;
};

static void append(ProtobufCBuffer *buffer, size_t size, const uint8_t *bytes)
{
	hl_gzip_writer_append(&((struct deflated *)buffer)->gzip, bytes, size);
}

static int put_message(const ProtobufCMessage *message, FILE *out, struct hl_error *err)
{
	size_t size = protobuf_c_message_get_packed_size(message);
	HL_FREED struct deflated *deflated = malloc(sizeof(*deflated));

	if (size > HL_PUSH_OTLP_BYTES_MAX)
		return hl_error_set(
			err, -EFBIG,
			"cannot push a profile of %zu bytes: servers of OTLP take %d MiB", size,
			HL_PUSH_OTLP_BYTES_MAX >> 20);
	if (!deflated || hl_gzip_writer_init(&deflated->gzip, out) < 0)
		return -ENOMEM;
	deflated->base = (ProtobufCBuffer){append};
	protobuf_c_message_pack_to_buffer(message, &deflated->base);
	/* Errors of out are its owner's to find. */
	hl_gzip_writer_finish(&deflated->gzip);
	hl_gzip_writer_release(&deflated->gzip);
	return 0;
}

static int otlp_encode(struct hl_push_sink *sink, const struct hl_push_look *look, int64_t from_ms,
		       FILE *out, struct hl_error *err)
{
	struct hl_push_otlp *message = NULL;

	(void)sink;
	int r = hl_push_otlp_new(look, from_ms, &message);
	if (r == 0)
		r = put_message(hl_push_otlp_message(message), out, err);
	hl_push_otlp_free(message);
	return r;
}

/* The sentence for what a server refused; ${answer} is its google.rpc.Status. */
static int say_refused(const struct otlp_sink *otlp, const struct hl_web_answer *answer,
		       struct hl_error *err)
{
	Otlp__Status *status =
		otlp__status__unpack(NULL, answer->size, (const uint8_t *)answer->text);

	if (status && *status->message) {
		*err = (struct hl_error){0};
		hl_error_set(err, -EREMOTEIO, "'%s' answered with status %ld: %.200s",
			     otlp->place.name, answer->status, status->message);
	}
	if (status)
		otlp__status__free_unpacked(status, NULL);
	return -EREMOTEIO;
}

/* What was taken may have been taken in part. */
static int judge_success(const struct otlp_sink *otlp, const struct hl_web_answer *answer,
			 struct hl_error *err)
{
	Otlp__ExportAnswer *said =
		otlp__export_answer__unpack(NULL, answer->size, (const uint8_t *)answer->text);
	const Otlp__PartialSuccess *part = said ? said->partial_success : NULL;
	int r = 0;

	if (part && part->rejected_profiles > 0)
		r = hl_error_set(err, -EREMOTEIO, "'%s' rejected %lld of %d profiles: %.200s",
				 otlp->place.name, (long long)part->rejected_profiles,
				 HL_PUSH_OTLP_PROFILES, part->error_message);
	if (said)
		otlp__export_answer__free_unpacked(said, NULL);
	return r;
}

/* The specification of OTLP has these tried again, and no others. */
static bool may_pass(long status)
{
	return status == 0 || status == 429 || (status >= 502 && status <= 504);
}

static int otlp_send(struct hl_push_sink *sink, char *bytes, size_t size, bool repeated,
		     struct hl_error *err)
{
	const struct otlp_sink *otlp = (const struct otlp_sink *)sink;
	struct hl_web_answer answer = {0};
	const struct hl_web_request request = {
		.url = otlp->place.url,
		.name = otlp->place.name,
		.user = otlp->place.user,
		.content_type = TYPE,
		.header = DEFLATE,
		.body = bytes,
		.size = size,
		.is_sent_once = true,
	};

	(void)repeated; /* profiles have numbers of their own, which not every server looks at */
	int r = hl_web_post(otlp->web, &request, &answer, err);
	if (r == 0)
		r = judge_success(otlp, &answer, err);
	else if (r != -ENOMEM && !may_pass(answer.status))
		r = say_refused(otlp, &answer, err);
	free(answer.text);
	return r;
}

static const struct hl_push_sink_kind kind = {
	.free = otlp_free,
	.encode = otlp_encode,
	.send = otlp_send,
};

bool hl_push_otlp_is_url(const char *url)
{
	return !strncmp(url, PREFIX, strlen(PREFIX)) && hl_web_is_url(url + strlen(PREFIX));
}

int hl_push_otlp_open(const char *url, struct hl_push_sink **ret_sink, struct hl_error *err)
{
	struct otlp_sink *otlp = calloc(1, sizeof(*otlp));

	if (!otlp)
		return hl_error_set(err, -ENOMEM, "out of memory");
	otlp->sink.kind = &kind;
	int r = hl_web_place_parse(url + strlen(PREFIX), PORT, PATH, &otlp->place);
	r = r == 0 ? hl_web_new(&otlp->web, err) : hl_error_set(err, r, "out of memory");
	if (r < 0)
		otlp_free(&otlp->sink);
	else
		*ret_sink = &otlp->sink;
	return r;
}
