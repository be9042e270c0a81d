/* SPDX-License-Identifier: BSD-2-Clause */
/* What is known of BEAMs from outside: the form in which their own tools write carriers; see guests/outside.h. */
#include "guests/outside.h"

#include "cli/cli.h"
#include "guests/beam/views.h"

static bool wants_term;

static const struct hl_option form_options[] = {
	{"term", 0, NULL, "write a term of Erlang", HL_OPTION_FLAG, &wants_term, NULL},
	{0},
};

const struct hl_guest_outside hl_guest_outside_beam = {
	.form = {&wants_term, hl_erlang_term_put_carriers, hl_erlang_term_put_allocations},
	.options[HL_GUEST_OPTIONS_FORM] = form_options,
};
