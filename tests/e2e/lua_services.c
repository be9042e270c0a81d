/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Services in Lua as skynet runs them: lua_services SCRIPT
 *
 * malloc() is the program's own, and puts a cookie before each block of an allocator with a prefix, which Lua
 * is given without one. Lua is linked statically. Services run on whichever thread is free, and what is
 * allocated meanwhile is theirs by a handle in thread-local storage. Functions that heapline knows skynet by
 * have its names. Built with LIBC_MALLOC it has no malloc() of its own, as skynet without jemalloc.
 *
 * Reads commands: "round N" has each service get N messages; "ledger" writes "c SERVICE bytes blocks" and "lua
  * SERVICE TYPE bytes blocks" of what was allocated since the last ledger, then "done"; "send N" puts messages of 1 to N bytes into the queue of
 * the second service; "forget" leaves a table of services that contradicts itself.
 */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define EXPORT __attribute__((visibility("default"), noinline))

#ifdef LIBC_MALLOC

#define pre_realloc realloc
#define pre_free    free

#else

/* ---- the allocator with a prefix ---- */

#define CLASS_FIRST 4u
#define CLASS_COUNT 28u
#define CHUNK_BYTES ((size_t)1 << 20)
#define HEAD_BYTES  16u

static _Atomic bool is_locked;
static char *chunk, *chunk_end;
static struct hole {
	struct hole *next;
} * holes[CLASS_COUNT];

static unsigned class_of(size_t size)
{
	unsigned class = CLASS_FIRST;

	while (((size_t)1 << class) < size + HEAD_BYTES)
		class ++;
	return class;
}

static char *cut(size_t bytes)
{
	if ((size_t)(chunk_end - chunk) < bytes) {
		size_t room = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
		chunk = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
		chunk_end = chunk + room;
	}
	chunk += bytes;
	return chunk - bytes;
}

EXPORT void *pre_malloc(size_t size)
{
	unsigned class = class_of(size);

	while (atomic_exchange(&is_locked, true))
		;
	char *block = (char *)holes[class];
	if (block)
		holes[class] = holes[class]->next;
	else
		block = cut((size_t)1 << class);
	atomic_store(&is_locked, false);
	*(size_t *)block = size;
	return block + HEAD_BYTES;
}

EXPORT void pre_free(void *block)
{
	if (!block)
		return;
	struct hole *hole = (struct hole *)((char *)block - HEAD_BYTES);
	unsigned class = class_of(*(size_t *)hole);
	while (atomic_exchange(&is_locked, true))
		;
	hole->next = holes[class];
	holes[class] = hole;
	atomic_store(&is_locked, false);
}

EXPORT void *pre_realloc(void *block, size_t size)
{
	void *moved = pre_malloc(size);

	if (block) {
		size_t old = *(size_t *)((char *)block - HEAD_BYTES);
		memcpy(moved, block, old < size ? old : size);
		pre_free(block);
	}
	return moved;
}

#endif

/* ---- services, and what they have allocated ---- */

#define SERVICES_MAX 8
#define TYPES	     16
#define MAIN_THREAD  ((uint32_t)-1)

struct sum {
	_Atomic uint64_t bytes, blocks;
};

struct context {
	void *instance, *module;
	uint32_t handle;
	const char *name;
	lua_State *state;
	size_t lua_bytes; /* as snlua counts them */
	pthread_mutex_t running;
};

static struct context contexts[SERVICES_MAX + 1]; /* by handle, from 1 */
static uint32_t context_count;
static struct sum of_c[SERVICES_MAX + 1], of_lua[SERVICES_MAX + 1][TYPES];
static pthread_key_t key;
static bool has_key;

EXPORT uint32_t skynet_current_handle(void)
{
	return has_key ? (uint32_t)(uintptr_t)pthread_getspecific(key) : MAIN_THREAD;
}

EXPORT uint32_t skynet_context_handle(struct context *context)
{
	return context->handle;
}

static void add(struct sum *sum, size_t bytes)
{
	sum->bytes += bytes;
	sum->blocks++;
}

static void count_c(size_t bytes)
{
	uint32_t handle = skynet_current_handle();

	if (handle <= SERVICES_MAX)
		add(&of_c[handle], bytes);
}

#ifndef LIBC_MALLOC

/* ---- malloc, with a cookie ---- */

struct cookie {
	size_t size;
	uint32_t handle, bytes;
};

static void *put_cookie(char *block, size_t size, size_t cookie_bytes)
{
	struct cookie cookie = {size, skynet_current_handle(), (uint32_t)cookie_bytes};

	count_c(size);
	memcpy(block + cookie_bytes - sizeof(cookie), &cookie, sizeof(cookie));
	return block + cookie_bytes;
}

static struct cookie cookie_of(const void *block)
{
	struct cookie cookie;

	memcpy(&cookie, (const char *)block - sizeof(cookie), sizeof(cookie));
	return cookie;
}

EXPORT void *malloc(size_t size)
{
	return put_cookie(pre_malloc(size + sizeof(struct cookie)), size, sizeof(struct cookie));
}

EXPORT void free(void *block)
{
	if (block)
		pre_free((char *)block - cookie_of(block).bytes);
}

EXPORT void *calloc(size_t count, size_t size)
{
	size_t bytes = count * size + sizeof(struct cookie);

	return put_cookie(memset(pre_malloc(bytes), 0, bytes), count * size, sizeof(struct cookie));
}

EXPORT void *realloc(void *block, size_t size)
{
	if (!block)
		return put_cookie(pre_malloc(size + sizeof(struct cookie)), size,
				  sizeof(struct cookie));
	size_t cookie_bytes = cookie_of(block).bytes;
	return put_cookie(pre_realloc((char *)block - cookie_bytes, size + cookie_bytes), size,
			  cookie_bytes);
}

EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
	if (alignment < sizeof(struct cookie))
		alignment = sizeof(struct cookie);
	char *block = pre_malloc(size + 2 * alignment);
	size_t skip = alignment - (uintptr_t)block % alignment;
	return put_cookie(block, size, skip < sizeof(struct cookie) ? skip + alignment : skip);
}

EXPORT void *memalign(size_t alignment, size_t size)
{
	return aligned_alloc(alignment, size);
}

EXPORT int posix_memalign(void **ret_block, size_t alignment, size_t size)
{
	*ret_block = aligned_alloc(alignment, size);
	return 0;
}

#endif

/* ---- Lua ---- */

EXPORT void *skynet_lalloc(void *block, size_t old_bytes, size_t bytes)
{
	uint32_t handle = skynet_current_handle();

	if (bytes == 0) {
		pre_free(block);
		return NULL;
	}
	if (handle <= SERVICES_MAX)
		add(&of_lua[handle][block ? 0 : old_bytes % TYPES], bytes);
	return pre_realloc(block, bytes);
}

static void *lalloc(void *ud, void *block, size_t old_bytes, size_t bytes)
{
	struct context *context = ud;

	context->lua_bytes += bytes - (block ? old_bytes : 0);
	return skynet_lalloc(block, old_bytes, bytes);
}

/* What a service that does not let go of its messages has. */
static void *kept[100000];
static _Atomic uint32_t kept_count;

static __attribute__((noinline)) void *receive(size_t bytes)
{
	void *message = malloc(bytes);

#ifdef LIBC_MALLOC
	count_c(bytes);
#endif
	memset(message, 1, bytes);
	return message;
}

/* receive(bytes, keep) */
static int call_receive(lua_State *state)
{
	void *message = receive((size_t)luaL_checkinteger(state, 1));

	if (lua_toboolean(state, 2))
		kept[kept_count++] = message;
	else
		free(message);
	return 0;
}

/* ---- threads ---- */

struct module {
	const char *name;
	void *handle, *create;
	int (*init)(void *instance, struct context *context, const char *arguments);
};

EXPORT int skynet_module_instance_init(struct module *module, void *instance,
				       struct context *context, const char *arguments)
{
	return module->init(instance, context, arguments);
}

static int init_service(void *instance, struct context *context, const char *arguments)
{
	context->instance = instance;
	context->name = arguments;
	return 0;
}

/* Read once, by the main thread: the C library allocates for a file. */
static char chunk_name[4096] = "@", script[1 << 16];
static size_t script_bytes;

static bool read_script(const char *path)
{
	FILE *file = fopen(path, "r");

	if (!file)
		return false;
	strncat(chunk_name, path, sizeof(chunk_name) - 2);
	script_bytes = fread(script, 1, sizeof(script), file);
	return fclose(file) == 0 && script_bytes < sizeof(script);
}

static void show_state(struct context *context);

static bool start_state(struct context *context)
{
	context->state = lua_newstate(lalloc, context);
	luaL_openlibs(context->state);
	lua_pushstring(context->state, context->name);
	lua_setglobal(context->state, "name");
	lua_pushstring(context->state, context->name); /* as skynet's loader does */
	lua_setglobal(context->state, "SERVICE_NAME");
	lua_register(context->state, "receive", call_receive);
	show_state(context);
	return luaL_loadbuffer(context->state, script, script_bytes, chunk_name) == LUA_OK &&
	       lua_pcall(context->state, 0, 0, 0) == LUA_OK;
}

static void dispatch(struct context *context, int message)
{
	pthread_mutex_lock(&context->running);
	pthread_setspecific(key, (void *)(uintptr_t)context->handle);
	if (!context->state && !start_state(context))
		fprintf(stderr, "%s\n", lua_tostring(context->state, -1)), exit(1);
	lua_getglobal(context->state, "message");
	lua_pushinteger(context->state, message);
	if (lua_pcall(context->state, 1, 0, 0) != LUA_OK)
		fprintf(stderr, "%s\n", lua_tostring(context->state, -1)), exit(1);
	pthread_setspecific(key, NULL);
	pthread_mutex_unlock(&context->running);
}

static void *work(void *messages)
{
	for (int i = 0; i < *(int *)messages; i++)
		for (uint32_t handle = 1; handle <= context_count; handle++)
			dispatch(&contexts[handle], i);
	return NULL;
}

static void run_round(int messages)
{
	pthread_t threads[2];

	messages /= 2;
	for (int i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, work, &messages))
			exit(1);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

static void write_ledger(void)
{
	for (uint32_t handle = 1; handle <= context_count; handle++) {
		const char *name = contexts[handle].name;
		printf("c %s %llu %llu\n", name, (unsigned long long)of_c[handle].bytes,
		       (unsigned long long)of_c[handle].blocks);
		for (int type = 0; type < TYPES; type++)
			if (of_lua[handle][type].blocks)
				printf("lua %s %d %llu %llu\n", name, type,
				       (unsigned long long)of_lua[handle][type].bytes,
				       (unsigned long long)of_lua[handle][type].blocks);
	}
	printf("done\n");
	fflush(stdout);
	memset(of_c, 0, sizeof(of_c));
	memset(of_lua, 0, sizeof(of_lua));
}

/* ---- services in a table, and messages that wait for them, as skynet keeps them ---- */

struct message {
	uint32_t source;
	int session;
	void *data;
	size_t size; /* the highest byte is the message's type */
};

struct queue {
	int lock;
	uint32_t handle;
	int cap, head, tail, release, in_global, overload, overload_threshold;
	struct message *messages;
	struct queue *next;
};

struct service {
	void *instance, *module, *user, *callback;
	struct queue *queue;
	void *log;
	uint64_t cost, start;
	char result[32];
	uint32_t handle;
};

#define QUEUE_CAP  64
#define SLOT_COUNT 4

static struct message messages[SLOT_COUNT][QUEUE_CAP];
static struct queue queues[SLOT_COUNT];
static struct service services[SLOT_COUNT], *slots[SLOT_COUNT];

/* What skynet's module for Lua has of a service. */
static struct launched {
	lua_State *state;
	struct service *service;
} launched[SLOT_COUNT];

static struct module snlua = {.name = "snlua", .init = init_service};

static void show_state(struct context *context)
{
	uint32_t handle = context->handle;

	launched[handle] = (struct launched){context->state, &services[handle]};
	services[handle].instance = &launched[handle];
}

static struct storage {
	int write_lock, read_lock;
	uint32_t harbor, next_handle;
	int slot_count;
	struct service **slots;
} storage = {.slot_count = SLOT_COUNT, .slots = slots};
static __attribute__((used)) struct storage *H = &storage;

/* The queue begins near the end of its messages. */
static void list_service(uint32_t handle)
{
	queues[handle] = (struct queue){.handle = handle,
					.cap = QUEUE_CAP,
					.head = QUEUE_CAP - 4,
					.tail = QUEUE_CAP - 4,
					.messages = messages[handle]};
	services[handle].module = &snlua;
	services[handle].queue = &queues[handle];
	services[handle].handle = handle;
	slots[handle] = &services[handle];
}

static void send_to(uint32_t handle, size_t bytes)
{
	struct queue *queue = &queues[handle];

	queue->messages[queue->tail].size = bytes | (size_t)10 << 56;
	queue->tail = (queue->tail + 1) % QUEUE_CAP;
}

int main(int argc, char **argv)
{
	static const char *const names[] = {"echo", "hoarder", "idle"};
	char command[32];
	int number;

	if (argc != 2 || pthread_key_create(&key, NULL))
		return 2;
	pthread_setspecific(key, (void *)(uintptr_t)MAIN_THREAD);
	has_key = true;
	if (!read_script(argv[1]))
		return 2;
	for (uint32_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct context *context = &contexts[++context_count];
		context->handle = context_count;
		pthread_mutex_init(&context->running, NULL);
		list_service(context->handle);
		if (skynet_module_instance_init(&snlua, NULL, context, names[i]))
			return 1;
	}
	printf("ready\n");
	fflush(stdout);
	while (scanf("%31s", command) == 1) {
		if (!strcmp(command, "round") && scanf("%d", &number) == 1) {
			run_round(number);
			printf("done\n");
			fflush(stdout);
		} else if (!strcmp(command, "ledger")) {
			write_ledger();
		} else if (!strcmp(command, "send") && scanf("%d", &number) == 1) {
			for (int i = 1; i <= number; i++)
				send_to(2, (size_t)i);
			printf("done\n");
			fflush(stdout);
		} else if (!strcmp(command, "forget")) {
			slots[1] = slots[2]; /* it has another handle */
			slots[3] = slots[2];
			printf("done\n");
			fflush(stdout);
		}
	}
	return 0;
}
