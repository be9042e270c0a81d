/* SPDX-License-Identifier: BSD-2-Clause */
/* What is known of Ruby without a process at hand; see guests/traits.h. */
#include "guests/traits.h"

static const char *const providers[] = {"ruby", NULL};

static const char *const plumbing[] = {
	"ruby_xmalloc*",       "ruby_xcalloc*",
	"ruby_xrealloc*",      "ruby_strdup",
	"ruby_mimmalloc",      "objspace_xmalloc*",
	"objspace_xcalloc*",   "objspace_xrealloc*",
	"rb_xmalloc_mul_add*", "rb_xrealloc_mul_add*",
	"rb_gc_impl_malloc",   "rb_gc_impl_calloc",
	"rb_gc_impl_realloc",  NULL,
};

static const struct hl_guest_command commands[] = {
	{"ruby", "-r -I -C -E", NULL, "-e"},
	{0},
};

/* ruby_process_options() also loads RubyGems, which is a part of Ruby, by the prelude; and by rb_funcallv() what '-r' names. */
static const struct hl_guest_start starts[] = {
	{"ruby_setup", "ruby", "Ruby's start"},
	{"ruby_process_options", "ruby", "Ruby's start"},
	{0},
};

const struct hl_guest_traits hl_guest_traits_ruby = {
	.language = "Ruby",
	.providers = providers,
	.plumbing = plumbing,
	.commands = commands,
	.starts = starts,
	.main_function = "rb_funcallv",
	.prelude = "<internal:gem_prelude>",
	.hidden_loop_remedy = "use a Ruby that is built by GCC with optimization",
	.generated_remedy = "run it without --yjit",
	.no_types_reason = "classes of Ruby's objects are not recorded",
};
