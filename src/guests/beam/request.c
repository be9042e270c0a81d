/* SPDX-License-Identifier: BSD-2-Clause */
/* Arguments of the functions that a node is to call; see connection.h. */
#include "guests/beam/connection.h"

#include "base/compiler.h"

#include <errno.h>
#include <string.h>

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
