/* SPDX-License-Identifier: BSD-2-Clause */
/* Loads PHP's library COUNT times, each time at another address, and runs a function there that allocates: php_reload LIBRARY COUNT */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

typedef int init_fn(int argc, char **argv);
typedef int eval_fn(const char *code, void *result, const char *name);
typedef void shutdown_fn(void);

static const char code[] = "function step%d() { for ($i = 0; $i < 100; $i++) $kept[] = "
			   "str_repeat('x', 1000); } step%d();";

static int fail(const char *what)
{
	fprintf(stderr, "%s\n", what);
	return 1;
}

int main(int argc, char **argv)
{
	char *arguments[] = {"php", NULL}, text[sizeof(code) + 20];
	int count = argc == 3 ? atoi(argv[2]) : 0;
	Dl_info where;

	for (int i = 0; i < count; i++) {
		void *library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
		if (!library)
			return fail(dlerror());
		init_fn *init = (init_fn *)dlsym(library, "php_embed_init");
		eval_fn *eval = (eval_fn *)dlsym(library, "zend_eval_string");
		shutdown_fn *shutdown = (shutdown_fn *)dlsym(library, "php_embed_shutdown");
		if (!init || !eval || !shutdown || !dladdr((void *)init, &where))
			return fail("it is not PHP's library");
		init(1, arguments);
		snprintf(text, sizeof(text), code, i, i);
		eval(text, NULL, "script");
		shutdown();
		dlclose(library);
		if (dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD))
			return fail("it stays loaded");
		if (mmap(where.dli_fbase, 4096, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED)
			return fail("its address is not free");
	}
	return 0;
}
