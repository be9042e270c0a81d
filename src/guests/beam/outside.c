/* SPDX-License-Identifier: BSD-2-Clause */
/* What is known of BEAMs from outside: the form in which their own tools write carriers; see guests/outside.h. */
#include "guests/outside.h"

#include "cli/cli.h"
#include "guests/beam/beam.h"

static const struct hl_option form_options[] = {
	{"term", 0, NULL, "write a term of Erlang", HL_OPTION_FLAG,
	 offsetof(struct hl_guest_request, form), NULL},
	{0},
};

const struct hl_guest_outside hl_guest_outside_beam = {
	.form = {hl_erlang_term_put_carriers, hl_erlang_term_put_allocations},
	.options[HL_GUEST_OPTIONS_FORM] = form_options,
};
