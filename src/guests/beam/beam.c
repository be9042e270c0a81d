/* SPDX-License-Identifier: BSD-2-Clause */
/* Asks a live BEAM what its allocators hold; see beam.h. */
#include "guests/beam/beam.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "guests/beam/connection.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- arguments of the functions that a node is to call ---- */

static const struct {
	enum hl_beam_per per;
	const char *flag;
} flags[] = {
	{HL_BEAM_PER_PROCESS, "per_process"},
	{HL_BEAM_PER_PORT, "per_port"},
	{HL_BEAM_PER_MFA, "per_mfa"},
};

/* Names are UTF-8, as atoms have been since OTP 20. */
static int put_atom(ei_x_buff *out, const char *name)
{
	return ei_x_encode_atom_as(out, name, ERLANG_UTF8, ERLANG_UTF8);
}

static int put_number(ei_x_buff *out, const char *key, uint64_t number)
{
	return put_atom(out, key) | ei_x_encode_ulonglong(out, number);
}

static int put_atoms(ei_x_buff *out, const char *key, const char *const *names, size_t count)
{
	int r = put_atom(out, key) | ei_x_encode_list_header(out, (long)count);

	for (size_t i = 0; i < count; i++)
		r |= put_atom(out, names[i]);
	return r | ei_x_encode_empty_list(out);
}

/* Returns ${arguments}, or frees them where ${r} is not 0: some of it found no memory. */
static int finish(int r, ei_x_buff *arguments, ei_x_buff *ret_arguments)
{
	if (r == 0) {
		*ret_arguments = *arguments;
		return 0;
	}
	ei_x_free(arguments);
	return -ENOMEM;
}

int hl_request_options(const struct hl_beam_settings *settings, ei_x_buff *ret_arguments)
{
	const char *names[HL_COUNT_OF(flags)];
	size_t name_count = 0, schedulers = settings->scheduler_count;
	int pairs = (settings->histogram_start > 0) + (settings->histogram_width > 0) +
		    (settings->allocator_count > 0) + (schedulers > 0) + (settings->per > 0);
	ei_x_buff out;

	if (ei_x_new(&out) < 0)
		return -ENOMEM;
	int r = ei_x_encode_list_header(&out, 1) | ei_x_encode_map_header(&out, pairs);
	if (settings->histogram_start)
		r |= put_number(&out, "histogram_start", settings->histogram_start);
	if (settings->histogram_width)
		r |= put_number(&out, "histogram_width", settings->histogram_width);
	if (settings->allocator_count)
		r |= put_atoms(&out, "allocator_types", settings->allocators,
			       settings->allocator_count);
	if (schedulers)
		r |= put_atom(&out, "scheduler_ids") |
		     ei_x_encode_list_header(&out, (long)schedulers);
	for (size_t i = 0; i < schedulers; i++)
		r |= ei_x_encode_ulonglong(&out, settings->schedulers[i]);
	if (schedulers)
		r |= ei_x_encode_empty_list(&out);
	for (size_t i = 0; i < HL_COUNT_OF(flags); i++)
		if (settings->per & flags[i].per)
			names[name_count++] = flags[i].flag;
	if (settings->per)
		r |= put_atoms(&out, "flags", names, name_count);
	r |= ei_x_encode_empty_list(&out);
	return finish(r, &out, ret_arguments);
}

int hl_request_item(const char *item, ei_x_buff *ret_arguments)
{
	ei_x_buff out;

	if (ei_x_new(&out) < 0)
		return -ENOMEM;
	int r = ei_x_encode_list_header(&out, 1);
	r |= put_atom(&out, item);
	r |= ei_x_encode_empty_list(&out);
	return finish(r, &out, ret_arguments);
}

int hl_request_allocator(const char *allocator, ei_x_buff *ret_arguments)
{
	ei_x_buff out;

	if (ei_x_new(&out) < 0)
		return -ENOMEM;
	int r = ei_x_encode_list_header(&out, 1);
	r |= ei_x_encode_tuple_header(&out, 2);
	r |= put_atom(&out, "allocator") | put_atom(&out, allocator);
	r |= ei_x_encode_empty_list(&out);
	return finish(r, &out, ret_arguments);
}

/* ---- asking ---- */

#define OTP_WITH_PER 27 /* allocations() of earlier releases ignores flags */

/* A node that is being asked. */
struct conversation {
	struct hl_beam_connection connection;
	const struct hl_beam_settings *settings;
	struct hl_beam_report *report;
};

static int out_of_memory(struct hl_error *err)
{
	return hl_error_set(err, -ENOMEM, "out of memory");
}

static int explain_reply(const struct conversation *conversation, const char *function,
			 struct hl_error *err)
{
	return hl_error_set(err, -EBADMSG,
			    "cannot read the answer of node '%s' (OTP %s) to %s: it has another "
			    "form than OTP 21 to 29 give it; a newer heapline may know it",
			    conversation->settings->node, conversation->report->otp_release,
			    function);
}

/* ---- calls ---- */

/* An answer: its bytes, and the term in them that holds the function's value. */
struct answer {
	ei_x_buff bytes;
	struct hl_term term;
	enum hl_beam_answer kind;
};

static void release_answer(struct answer *answer)
{
	ei_x_free(&answer->bytes);
}

/* Calls a function of the node. Frees ${arguments}; the caller releases the answer, on failure,
 * too. */
static int ask(struct conversation *conversation, const char *module, const char *function,
	       ei_x_buff *arguments, struct answer *ret_answer, struct hl_error *err)
{
	uint64_t start = hl_clock_ns(CLOCK_MONOTONIC);

	int r = hl_connection_call(&conversation->connection, module, function, arguments,
				   &ret_answer->bytes, err);
	ei_x_free(arguments);
	if (r < 0)
		return r;
	conversation->report->answer_ns += hl_clock_ns(CLOCK_MONOTONIC) - start;
	const ei_x_buff *bytes = &ret_answer->bytes;
	conversation->report->answer_bytes += (uint64_t)bytes->index;
	if (hl_term_begin(&ret_answer->term, bytes->buff, (size_t)bytes->index) < 0 ||
	    hl_decode_reply(&ret_answer->term, &ret_answer->kind) < 0)
		return explain_reply(conversation, function, err);
	return 0;
}

/* erlang:system_info(${item}) */
static int ask_item(struct conversation *conversation, const char *item, struct answer *ret_answer,
		    struct hl_error *err)
{
	ei_x_buff arguments;

	if (hl_request_item(item, &arguments) < 0)
		return out_of_memory(err);
	return ask(conversation, "erlang", "system_info", &arguments, ret_answer, err);
}

/* instrument:${function}(Options) */
static int ask_instrument(struct conversation *conversation, const char *function,
			  struct answer *ret_answer, struct hl_error *err)
{
	ei_x_buff arguments;

	if (hl_request_options(conversation->settings, &arguments) < 0)
		return out_of_memory(err);
	return ask(conversation, "instrument", function, &arguments, ret_answer, err);
}

/* ---- failures ---- */

/* The sentence for ${r}, which a decoder returned. */
static int explain_decoding(const struct conversation *conversation, const char *function, int r,
			    struct hl_error *err)
{
	if (r == -ENOMEM)
		return out_of_memory(err);
	if (r == -ENODATA)
		return hl_error_set(
			err, r,
			"cannot show what node '%s' does not have: none of the "
			"allocators that were asked for is enabled there; ask for others "
			"with --allocator",
			conversation->settings->node);
	return explain_reply(conversation, function, err);
}

static int explain_kind(const struct conversation *conversation, const char *function,
			enum hl_beam_answer kind, struct hl_error *err)
{
	const struct hl_beam_settings *settings = conversation->settings;

	if (kind == HL_BEAM_BAD_ARGUMENT && settings->per)
		return hl_error_set(
			err, -EINVAL,
			"node '%s' (OTP %s) has no such allocator or scheduler, or no "
			"JIT, which --per mfa needs; leave options out to see which it is",
			settings->node, conversation->report->otp_release);
	if (kind == HL_BEAM_BAD_ARGUMENT)
		return hl_error_set(err, -EINVAL,
				    "node '%s' (OTP %s) has no such allocator or scheduler; leave "
				    "out --allocator and --scheduler to see which it has",
				    settings->node, conversation->report->otp_release);
	return hl_error_set(err, -EIO,
			    "node '%s' (OTP %s) fails to run instrument:%s(); try it in the node's "
			    "own shell",
			    settings->node, conversation->report->otp_release, function);
}

/* ---- what there is without `instrument` ---- */

/* erlang:system_info({allocator, ${allocator}}) */
static int ask_instances(struct conversation *conversation, const char *allocator,
			 struct hl_error *err)
{
	ei_x_buff arguments;
	HL_CLEANUP(release_answer) struct answer answer = {0};

	if (hl_request_allocator(allocator, &arguments) < 0)
		return out_of_memory(err);
	int r = ask(conversation, "erlang", "system_info", &arguments, &answer, err);
	if (r < 0)
		return r;
	if (answer.kind == HL_BEAM_BAD_ARGUMENT)
		return explain_kind(conversation, "carriers", answer.kind, err);
	if (answer.kind != HL_BEAM_VALUE)
		return explain_reply(conversation, "system_info", err);
	r = hl_decode_instances(&answer.term, allocator, &conversation->report->instances);
	return r < 0 ? explain_decoding(conversation, "system_info", r, err) : 0;
}

static int ask_all_instances(struct conversation *conversation, struct hl_error *err)
{
	HL_CLEANUP(release_answer) struct answer answer = {0};
	char allocator[HL_TERM_ATOM_MAX];
	uint32_t count;

	int r = ask_item(conversation, "alloc_util_allocators", &answer, err);
	if (r < 0)
		return r;
	if (hl_term_list(&answer.term, &count) < 0)
		return explain_reply(conversation, "system_info", err);
	for (uint32_t i = 0; r == 0 && i < count; i++) {
		if (hl_term_atom(&answer.term, allocator, sizeof(allocator)) < 0)
			return explain_reply(conversation, "system_info", err);
		r = ask_instances(conversation, allocator, err);
	}
	return r;
}

static bool is_chosen(const struct hl_beam_settings *settings, uint64_t scheduler)
{
	for (size_t i = 0; i < settings->scheduler_count; i++)
		if (settings->schedulers[i] == scheduler)
			return true;
	return !settings->scheduler_count;
}

/* Asks for sums, where the node cannot list carriers. The node names its allocators unless the user
 * did. */
static int fall_back(struct conversation *conversation, struct hl_error *err)
{
	const struct hl_beam_settings *settings = conversation->settings;
	struct hl_beam_instances *instances = &conversation->report->instances;
	size_t kept = 0;
	int r = 0;

	conversation->report->lacks_instrument = true;
	if (!settings->allocator_count)
		r = ask_all_instances(conversation, err);
	for (size_t i = 0; r == 0 && i < settings->allocator_count; i++)
		r = ask_instances(conversation, settings->allocators[i], err);
	/* system_info() itself cannot choose among schedulers. */
	for (size_t i = 0; i < instances->count; i++)
		if (is_chosen(settings, instances->instances[i].number))
			instances->instances[kept++] = instances->instances[i];
	instances->count = kept;
	return r;
}

/* ---- conversations ---- */

static int ask_carriers(struct conversation *conversation, struct hl_error *err)
{
	struct hl_beam_report *report = conversation->report;
	enum hl_log2_bounds bounds;
	HL_CLEANUP(release_answer) struct answer answer = {0};

	int r = ask_instrument(conversation, "carriers", &answer, err);
	if (r < 0)
		return r;
	if (answer.kind == HL_BEAM_UNDEFINED)
		return fall_back(conversation, err);
	if (answer.kind != HL_BEAM_VALUE)
		return explain_kind(conversation, "carriers", answer.kind, err);
	uint64_t start = hl_clock_ns(CLOCK_MONOTONIC);
	r = hl_decode_carriers(&answer.term, &report->carriers);
	report->decode_ns += hl_clock_ns(CLOCK_MONOTONIC) - start;
	if (r < 0)
		return explain_decoding(conversation, "carriers", r, err);
	report->unproven_bounds =
		!hl_decode_bounds(&report->carriers, report->otp_release, &bounds);
	return 0;
}

/* The bounds of allocations of a release that is not known: those of the node's carriers. Where it does not give
 * those, the bounds stay unproven. */
static int ask_bounds(struct conversation *conversation, struct hl_error *err)
{
	const struct hl_beam_settings *settings = conversation->settings;
	struct hl_beam_settings plain = *settings;
	struct hl_beam_report *report = conversation->report;
	struct hl_error why = {0};

	plain.histogram_start = plain.histogram_width = plain.per = 0;
	conversation->settings = &plain;
	int r = ask_carriers(conversation, &why);
	conversation->settings = settings;
	if (r == -ENOMEM)
		return out_of_memory(err);
	if (r < 0)
		hl_carriers_release(&report->carriers);
	report->lacks_instrument = false; /* it gave allocations */
	report->unproven_bounds = !hl_decode_bounds(&report->carriers, report->otp_release,
						    &report->allocations.shape.bounds);
	return 0;
}

static int ask_allocations(struct conversation *conversation, struct hl_error *err)
{
	const struct hl_beam_settings *settings = conversation->settings;
	const char *release = conversation->report->otp_release;
	HL_CLEANUP(release_answer) struct answer answer = {0};

	if (settings->per && strtol(release, NULL, 10) < OTP_WITH_PER)
		return hl_error_set(
			err, -ENOTSUP,
			"node '%s' (OTP %s) cannot tell allocations apart by process, port or "
			"function: that needs OTP %d; leave out --per",
			settings->node, release, OTP_WITH_PER);
	int r = ask_instrument(conversation, "allocations", &answer, err);
	if (r < 0)
		return r;
	if (answer.kind == HL_BEAM_UNDEFINED)
		return hl_error_set(
			err, -ENOSYS,
			"cannot ask node '%s' (OTP %s) for allocations: it lacks the "
			"module 'instrument'; install it there (Debian: erlang-tools up "
			"to OTP 25, erlang-runtime-tools from 26 on)",
			settings->node, release);
	if (answer.kind != HL_BEAM_VALUE)
		return explain_kind(conversation, "allocations", answer.kind, err);
	uint64_t start = hl_clock_ns(CLOCK_MONOTONIC);
	r = hl_decode_allocations(&answer.term, &conversation->report->allocations);
	conversation->report->decode_ns += hl_clock_ns(CLOCK_MONOTONIC) - start;
	if (r < 0)
		return explain_decoding(conversation, "allocations", r, err);
	if (hl_decode_knows_release(release, &conversation->report->allocations.shape.bounds))
		return 0;
	return ask_bounds(conversation, err);
}

static int converse(const struct hl_beam_settings *settings, struct hl_beam_report *report,
		    int (*ask_for)(struct conversation *conversation, struct hl_error *err),
		    struct hl_error *err)
{
	struct conversation conversation = {.settings = settings, .report = report};
	HL_CLEANUP(release_answer) struct answer answer = {0};
	struct hl_cookie cookie;

	int r = hl_cookie_read(settings->cookie_path, &cookie, err);
	if (r < 0)
		return r;
	if (cookie.is_exposed)
		snprintf(report->exposed_cookie_path, sizeof(report->exposed_cookie_path), "%.511s",
			 cookie.path);
	uint64_t start = hl_clock_ns(CLOCK_MONOTONIC);
	r = hl_connection_open(settings, &cookie, &conversation.connection, err);
	report->connect_ns = hl_clock_ns(CLOCK_MONOTONIC) - start;
	explicit_bzero(&cookie, sizeof(cookie));
	if (r < 0)
		return r;
	r = ask_item(&conversation, "otp_release", &answer, err);
	if (r == 0 &&
	    (answer.kind != HL_BEAM_VALUE ||
	     hl_term_string(&answer.term, report->otp_release, sizeof(report->otp_release)) < 0))
		r = explain_reply(&conversation, "system_info", err);
	if (r == 0)
		r = ask_for(&conversation, err);
	hl_connection_close(&conversation.connection);
	return r;
}

int hl_beam_carriers(const struct hl_beam_settings *settings, struct hl_beam_report *report,
		     struct hl_error *err)
{
	return converse(settings, report, ask_carriers, err);
}

int hl_beam_allocations(const struct hl_beam_settings *settings, struct hl_beam_report *report,
			struct hl_error *err)
{
	return converse(settings, report, ask_allocations, err);
}
