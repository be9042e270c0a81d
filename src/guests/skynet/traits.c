/* SPDX-License-Identifier: BSD-2-Clause */
/* What is known of skynet without a process at hand; see guests/traits.h. */
#include "guests/traits.h"

static const char *const plumbing[] = {
	"skynet_malloc", "skynet_calloc", "skynet_realloc", "skynet_strdup", "skynet_lalloc", NULL,
};

static const char *const functions[] = {
	"clone",
	"clone3",
	"__clone3",
	"start_thread",
	"thread_worker",
	"skynet_context_message_dispatch",
	"dispatch_message",
	"launch_cb",
	"init_cb",
	"luaB_coresume",
	"luaB_auxwrap",
	"timing_resume",
	"auxresume",
	"lua_resumeX",
	NULL,
};

static const char *const callbacks[] = {"_cb", "_cb_pre", "forward_cb", "_forward_pre", NULL};
static const char *const scripts[] = {"lualib/skynet.lua", "lualib/loader.lua", NULL};

static const struct hl_guest_host host = {
	.functions = functions,
	.library = "skynet.so",
	.callbacks = callbacks,
	.scripts = scripts,
	.current_service = "skynet_current_handle",
	.service_of = "skynet_context_handle",
	.service_begins = "skynet_module_instance_init",
	.collect = "by typing gc in the console twice, seconds apart",
};

const struct hl_guest_traits hl_guest_traits_skynet = {
	.language = "skynet",
	.plumbing = plumbing,
	.host = &host,
	.beside_malloc = "skynet_lalloc",
	/* Blocks of Lua have no cookie as those of its malloc have. */
	.presets = "preset skynet\n"
		   "beside skynet_lalloc\n"
		   "realloc=skynet_lalloc(ptr=1,type=2,size=3)\n",
};
