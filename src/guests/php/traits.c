/* SPDX-License-Identifier: BSD-2-Clause */
/* What is known of PHP without a process at hand; see guests/traits.h. */
#include "guests/traits.h"

static const char *const providers[] = {"php", NULL};

/* clang-format off */
static const char *const plumbing[] = {
	"__zend_malloc", "__zend_calloc", "__zend_realloc", "_emalloc*", "_ecalloc", "_erealloc*",
	"_estrdup", "_estrndup", "_safe_emalloc", "_safe_malloc", "_safe_erealloc", "_safe_realloc",
	"zend_mm_*", "_zend_mm_*", "tracked_malloc",
	"_safe_femalloc", "_safe_pemalloc", "zend_string_alloc*", NULL,
};
/* clang-format on */

static const struct hl_guest_command commands[] = {{"php", "-c -d", "-f", "-r"}, {0}};

const struct hl_guest_traits hl_guest_traits_php = {
	.language = "PHP",
	.ages = "requests of PHP",
	.providers = providers,
	.plumbing = plumbing,
	.commands = commands,
	.generated_remedy = "run it with -d opcache.jit=off",
	.unmatched_reason =
		", as where opcache's JIT made what runs, and destructors run as it ends",
};
