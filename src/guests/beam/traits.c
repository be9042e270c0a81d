/* SPDX-License-Identifier: BSD-2-Clause */
/* What is known of the BEAM without a node at hand; see guests/traits.h. */
#include "guests/traits.h"

#include "recording/recording.h"

#include <ctype.h>
#include <string.h>

static const char *const plumbing[] = {
	"erts_alloc*", "erts_realloc*", "erts_alcu_*",	"erts_sys_alloc", "erts_sys_realloc",
	"enif_alloc",  "enif_realloc",	"driver_alloc", "driver_realloc", NULL,
};

static const struct hl_code_runtime code_runtimes[] = {
	{.file = "beam.smp",
	 .language = "Erlang",
	 .start = "erl +JPperf true",
	 .version = " (OTP 25 and later)"},
	{.file = NULL},
};

static const struct hl_guest_kept kept = {
	.language = "Erlang",
	.runs = "process_main", /* without a compiler of its own */
	.loads = "erts_finish_loading",
	.what = "Erlang's runtime and loaded code",
};

/* "$lists:map/2" */
static bool names_code(const char *name)
{
	const char *slash = strrchr(name, '/');

	return name[0] == '$' && strchr(name, ':') && slash && isdigit((unsigned char)slash[1]);
}

const struct hl_guest_traits hl_guest_traits_beam = {
	.language = "Erlang",
	.plumbing = plumbing,
	.code_runtimes = code_runtimes,
	.kept = &kept,
	.names_code = names_code,
	.wrapped = "beam",
	.foreign = {"=erl_crash_dump:",
		    "a crash dump of Erlang, which heapline does not read; 'cdv "
		    "FILE' shows it (package erlang-observer)"},
};
