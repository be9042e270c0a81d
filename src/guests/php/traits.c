/* SPDX-License-Identifier: BSD-2-Clause */
/* What is known of PHP without a process at hand; see guests/traits.h. */
#include "guests/traits.h"

static const char *const providers[] = {"php", NULL};

static const struct hl_guest_command commands[] = {{"php", "-c -d", "-f", "-r"}, {0}};

const struct hl_guest_traits hl_guest_traits_php = {
	.language = "PHP",
	.ages = "requests of PHP",
	.providers = providers,
	.commands = commands,
	.generated_remedy = "run it with -d opcache.jit=off",
	.unmatched_reason =
		", as where opcache's JIT made what runs, and destructors run as it ends",
};
