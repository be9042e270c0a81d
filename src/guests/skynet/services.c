/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Services: programs such as skynet run many scripts side by side, on whichever thread is free, and say
 * which one a thread works for by a number, the handle. It is the outermost frame of the scripts that run, a
 * label of HL_LABEL_SERVICE: "wl_echo a :0000000a".
 */
#include "guests/guest.h"

#include "base/frame_key.h"
#include "recorder/private_map.h"
#include "recorder/script.h"
#include "region/attached.h"
#include "unwind/saved.h"

#include <string.h>

#define NAME_BITS  12 /* services whose names are known at a time */
#define NAME_BYTES (HL_LABEL_NAME_MAX - sizeof(" :00000000") + 1)

#define BEING_WRITTEN UINT32_MAX /* no service has this handle */

struct name {
	_Atomic uint32_t handle; /* 0: not known; BEING_WRITTEN */
	uint32_t bytes;
	char text[NAME_BYTES];
};

struct names {
	struct name of[1u << NAME_BITS]; /* by the handle's low bits, which count up */
};

static uint32_t (*current_handle)(void);
static uint32_t (*handle_of_context)(const void *context);
static _Atomic(struct names *) known;

/* ---- as frames ---- */

static uint64_t current(void *state)
{
	(void)state;
	return current_handle();
}

static uint32_t capture(void *state, const struct hl_script_caller *caller,
			struct hl_script_frame *frames, uint32_t max, bool *ret_truncated)
{
	uint64_t handle = current(state);

	(void)caller, (void)ret_truncated;
	if (!handle || !max)
		return 0;
	frames[0] = (struct hl_script_frame){.function = handle};
	return 1;
}

/* Threads of skynet that run no service have the highest numbers. */
static const char *thread_of(uint32_t handle)
{
	static const char *const threads[] = {"main thread", "socket thread", "timer thread",
					      "monitor thread"};
	uint32_t number = UINT32_MAX - handle;

	return number < HL_COUNT_OF(threads) ? threads[number] : NULL;
}

static uint32_t put_text(char *text, const char *from, uint32_t bytes)
{
	memcpy(text, from, bytes);
	return bytes;
}

static uint32_t put_name(char *text, uint32_t handle)
{
	struct names *names = atomic_load_explicit(&known, memory_order_acquire);
	const struct name *name = names ? &names->of[handle % HL_COUNT_OF(names->of)] : NULL;

	if (!name || atomic_load_explicit(&name->handle, memory_order_acquire) != handle)
		return 0;
	uint32_t bytes = put_text(text, name->text, name->bytes);
	text[bytes++] = ' ';
	/* Another one may have come to lie there meanwhile. */
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&name->handle, memory_order_relaxed) == handle ? bytes : 0;
}

static bool describe(void *state, const struct hl_script_frame *frame,
		     struct hl_script_place *ret_place)
{
	/* Read under no lock, and only until this thread's next call. */
	static __attribute__((aligned(64))) struct {
		char text[HL_LABEL_NAME_MAX + 1];
	} texts[64];
	static _Atomic uint32_t next;
	uint32_t handle = (uint32_t)frame->function, bytes;
	char *text = texts[atomic_fetch_add(&next, 1) % HL_COUNT_OF(texts)].text;
	const char *thread = thread_of(handle);

	(void)state;
	if (thread) {
		bytes = put_text(text, thread, (uint32_t)strlen(thread));
	} else {
		bytes = put_name(text, handle);
		text[bytes++] = ':';
		for (int shift = 28; shift >= 0; shift -= 4)
			text[bytes++] = "0123456789abcdef"[handle >> shift & 15];
	}
	*ret_place = (struct hl_script_place){
		.function = text, .function_bytes = bytes, .source = "", .line = handle};
	return true;
}

/* Has each allocation ask the program for the handle; 0: none. */
static void open_services(const struct hl_attached_start *start)
{
	static const struct hl_script_provider provider = {
		.name = HL_SERVICE_PROVIDER,
		.capture = capture,
		.current = current,
		.describe = describe,
	};

	current_handle = (uint32_t(*)(void))start->current_service;
	handle_of_context = (uint32_t(*)(const void *))start->service_of;
	if (current_handle)
		hl_script_register(&provider);
}

/* The names are gone with its parent's memory. */
static void enter_child(void)
{
	atomic_store(&known, NULL);
}

/* ---- names ---- */

static struct names *names_of_all(void)
{
	struct names *names = atomic_load_explicit(&known, memory_order_acquire);

	if (names)
		return names;
	struct names *made = hl_private_map_new(sizeof(*made));
	if (!made || atomic_compare_exchange_strong(&known, &names, made))
		return made;
	hl_private_map_free(made, sizeof(*made));
	return names;
}

/* ${name} and a blank, as far as there is room behind ${bytes}; control characters would end a line. */
static uint32_t add_word(struct name *to, uint32_t bytes, const char *word)
{
	if (bytes && bytes < NAME_BYTES)
		to->text[bytes++] = ' ';
	for (; *word && bytes < NAME_BYTES; word++)
		to->text[bytes++] = (unsigned char)*word < ' ' || *word == ';' ? '?' : *word;
	return bytes;
}

static bool is_snlua(const char *kind)
{
	static const char snlua[] = "snlua";
	size_t i = 0;

	while (i < sizeof(snlua) - 1 && kind[i] == snlua[i])
		i++;
	return kind[i] == snlua[i];
}

static void name_service(const void *module, const void *context, const char *arguments)
{
	struct names *names =
		current_handle && handle_of_context && context ? names_of_all() : NULL;
	uint32_t handle = names ? handle_of_context(context) : 0, bytes = 0;

	/* Another program may have a function of this name. */
	if (!handle || !hl_memory_page_is_readable((uint64_t)module & ~UINT64_C(4095)))
		return;
	const char *kind = *(const char *const *)module;
	struct name *name = &names->of[handle % HL_COUNT_OF(names->of)];
	/* Of two that begin at once and would have the same place, one is shown by its handle alone. */
	if (atomic_exchange_explicit(&name->handle, BEING_WRITTEN, memory_order_acquire) ==
	    BEING_WRITTEN)
		return;
	atomic_thread_fence(memory_order_release);
	/* Who runs scripts is known by the script. */
	if (kind && !(arguments && is_snlua(kind)))
		bytes = add_word(name, bytes, kind);
	if (arguments && arguments[0])
		bytes = add_word(name, bytes, arguments);
	name->bytes = bytes;
	atomic_store_explicit(&name->handle, handle, memory_order_release);
	hl_script_forget(handle);
}

const struct hl_guest hl_guest_skynet = {
	.start = open_services,
	.enter_child = enter_child,
	.service_begins = name_service,
};
