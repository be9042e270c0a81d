/* SPDX-License-Identifier: BSD-2-Clause */
/* Script frames in the recorder; see script.h. */
#include "recorder/script.h"

#include "base/frame_key.h"
#include "recorder/node.h"
#include "recorder/private_map.h"
#include "recorder/recorder.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

/* What is registered outlives the recorder: a forked child starts another one. */
static struct hl_script_provider providers[HL_SCRIPT_PROVIDERS_MAX];
static _Atomic uint32_t provider_count;
static _Atomic uint32_t registering;
struct hl_script_evals hl_script_evals;

/*
 * A function's address leads to one of these numbers, which hl_script_forget() raises: what was
 * remembered under another number is not used. The epoch counts all of that.
 */
#define GENERATION_BITS 12

static _Atomic uint32_t generations[1u << GENERATION_BITS];
static _Atomic uint32_t epoch;

#define SITE_BITS     12 /* of a thread's table of places and their sites */
#define STEP_BITS     11 /* of its table of steps */
#define PAIR_BITS     11 /* of its table of cells, two by two */
#define TYPE_BITS     11 /* of its table of types */
#define LABELLED_BITS 12
#define MASK_BITS     6 /* native stacks, where there are several providers */
#define LABEL_BITS    6 /* of its table of labels */

/* A frame of the last capture. */
struct step {
	uint64_t function, place; /* as in a frame: function; all after it, and the provider */
	uint32_t node;		  /* of the path up to here */
};

struct known_site {
	uint64_t function, place;
	uint32_t generation;
	uint32_t site;
};

/* What a frame becomes outward of which the path has the node ${parent}. */
struct known_step {
	uint64_t function, place;
	uint32_t parent, generation;
	uint32_t node; /* 0: nothing is known here */
};

/* Cells, of paths below a native stack and of labels; see pair_key() and hl_script_label_cell() for the keys. */
struct known_pair {
	uint64_t key;
	struct hl_cell *cell;
};

/* What a stack allocated last: a type, and the cell with it. */
struct known_type {
	const struct hl_cell *stack;
	const char *type;
	struct hl_cell *cell;
};

/* By where the text stands, which need not stay the same. */
struct known_label {
	const char *name;
	enum hl_label kind;
	uint32_t site;
	char text[HL_LABEL_NAME_MAX + 1];
};

/* Which providers have a frame of theirs in a native stack, by its node. */
struct known_mask {
	uint32_t node, mask;
};

struct hl_script_thread {
	uint32_t epoch; /* as it was when the path was remembered */
	uint32_t depth;
	/* The provider whose the memory is, how many steps are outward of its own, and how many those are. */
	uint32_t owner, owned_from, owned;
	uint64_t outer_function; /* of ${outer} */
	/* That provider, where it has a quick way, and ${outer}, or NULL, is all that is asked before it; or NULL. */
	const struct hl_script_provider *quick, *outer;
	uint32_t
		changed; /* what that way has found in the event that goes on; or HL_SCRIPT_GAVE_UP */
	struct step path[HL_SCRIPT_DEPTH_MAX]; /* outermost first */
	struct hl_script_frame frames[HL_SCRIPT_DEPTH_MAX];
	struct known_site sites[1u << SITE_BITS];
	struct known_step steps[1u << STEP_BITS];
	struct known_pair pairs[1u << PAIR_BITS][2]; /* the newer one first */
	struct known_type types[1u << TYPE_BITS];
	struct known_label labels[1u << LABEL_BITS];
	struct known_pair labelled[1u << LABELLED_BITS]; /* by a label's site and the node above */
	struct known_mask masks[1u << MASK_BITS];
	uint32_t mask_providers;	/* how many there were for these */
	uint32_t memory_of;		/* the provider that used the memory last, from 1; or 0 */
	struct hl_script_caller caller; /* of the event that goes on */
	struct hl_script_memory memory;
};

static uint64_t mix(uint64_t value)
{
	return value * UINT64_C(0x9e3779b97f4a7c15);
}

static _Atomic uint32_t *generation_of(uint64_t function)
{
	return &generations[mix(function) >> (64 - GENERATION_BITS)];
}

/* ---- registration ---- */

/* Fills the region's list up to ${count}; who registers does so under the lock. */
static void announce(struct hl_region_header *header, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct hl_script_provider *from = &providers[i];
		struct hl_region_provider *to = &header->providers[i];
		size_t bytes = strlen(from->name);
		if (bytes >= sizeof(to->name))
			bytes = sizeof(to->name) - 1;
		memcpy(to->name, from->name, bytes);
		to->eval_start = from->eval_start;
		to->eval_end = from->eval_end;
		to->cold_start = from->cold_start;
		to->cold_end = from->cold_end;
		to->text_start = from->text_start;
		to->text_end = from->text_end;
		to->alloc_start = from->alloc_start;
		to->alloc_end = from->alloc_end;
	}
	/* Who sees the number sees the providers. */
	atomic_store_explicit(&header->provider_count, count, memory_order_release);
	if (hl_script_has_evals())
		atomic_fetch_or(&header->mode, HL_MODE_SCRIPT);
}

/* Under the lock. */
static void add_eval(const struct hl_script_provider *provider)
{
	uint32_t count = atomic_load_explicit(&hl_script_evals.count, memory_order_relaxed);
	uint64_t start = provider->eval_start;

	if (!provider->capture)
		return;
	hl_script_evals.of[count++] = (struct hl_script_eval){
		.start = start,
		.bytes = start ? provider->eval_end - start : UINT64_MAX,
	};
	if (provider->cold_start)
		hl_script_evals.of[count++] = (struct hl_script_eval){
			.start = provider->cold_start,
			.bytes = provider->cold_end - provider->cold_start,
		};
	if (provider->resume_start)
		hl_script_evals.of[count++] = (struct hl_script_eval){
			.start = provider->resume_start,
			.bytes = provider->resume_end - provider->resume_start,
		};
	/* Release: who sees it counted sees it. */
	atomic_store_explicit(&hl_script_evals.count, count, memory_order_release);
}

void hl_script_enter_child(void)
{
	atomic_store(&registering, 0);
}

void hl_script_announce(struct hl_recorder *recorder)
{
	announce(recorder->region.header, atomic_load(&provider_count));
}

int hl_script_register(const struct hl_script_provider *provider)
{
	int r = 0;

	hl_spin_lock(&registering);
	uint32_t count = atomic_load_explicit(&provider_count, memory_order_relaxed);
	if (count < HL_SCRIPT_PROVIDERS_MAX) {
		providers[count] = *provider;
		atomic_store_explicit(&provider_count, count + 1, memory_order_release);
		add_eval(provider);
		/* Release: who finds nothing changed since has asked all who were to be asked. */
		atomic_fetch_add_explicit(&epoch, 1, memory_order_release);
		if (hl_recorder_is_running(hl_recorder)) {
			announce(hl_recorder->region.header, count + 1);
			/* Only after that: stacks that are walked from now on are asked for. */
			hl_rule_cache_invalidate(&hl_recorder->unwind);
		}
	} else {
		r = -ENOSPC;
	}
	hl_spin_unlock(&registering);
	return r;
}

void hl_script_forget(uint64_t function)
{
	/* Release: a thread that learns of a new object at this address from the caller sees that
	 * the one before is gone. */
	atomic_fetch_add_explicit(generation_of(function), 1, memory_order_release);
	atomic_fetch_add_explicit(&epoch, 1, memory_order_release);
}

/* ---- which stacks are asked for ---- */

static bool is_eval(uint64_t key, uint32_t count)
{
	uint64_t pc = key & HL_FRAME_PC_MASK;
	bool is_inside = false;

	for (uint32_t i = 0; i < count; i++)
		is_inside |= pc - hl_script_evals.of[i].start < hl_script_evals.of[i].bytes;
	return is_inside || hl_frame_key_is_generated(key);
}

bool hl_script_is_asked(struct hl_walk *walk, uint32_t kept)
{
	uint32_t count = atomic_load_explicit(&hl_script_evals.count, memory_order_acquire);
	uint32_t flag = kept ? walk->frames[kept - 1].flags & HL_FRAME_IN_SCRIPT : 0;

	for (uint32_t i = kept; i < walk->depth; i++) {
		struct hl_walk_frame *frame = &walk->frames[i];
		flag |= is_eval(frame->key, count) ? HL_FRAME_IN_SCRIPT : 0;
		frame->flags = (frame->flags & ~(uint32_t)HL_FRAME_IN_SCRIPT) | flag;
	}
	return flag;
}

static void copy_text(char *to, const char *from, size_t bytes)
{
	for (size_t i = 0; from[i] && i < bytes - 1; i++)
		to[i] = from[i];
}

static void say(struct hl_region_header *header, const char *runtime, const char *reason,
		uint32_t state)
{
	struct hl_region_refusal *refusal = &header->refusal;
	uint32_t none = HL_REFUSAL_NONE;

	if (!atomic_compare_exchange_strong(&refusal->state, &none, HL_REFUSAL_WRITING))
		return;
	copy_text(refusal->runtime, runtime, sizeof(refusal->runtime));
	copy_text(refusal->reason, reason, sizeof(refusal->reason));
	/* Release: who sees it sees the reason. */
	atomic_store_explicit(&refusal->state, state, memory_order_release);
}

void hl_script_refuse(struct hl_region_header *header, const char *runtime, const char *reason)
{
	say(header, runtime, reason, HL_REFUSAL_WRITTEN);
}

void hl_script_note(struct hl_region_header *header, const char *runtime, const char *what)
{
	say(header, runtime, what, HL_REFUSAL_NOTED);
}

/* ---- from frames to nodes ---- */

static __attribute__((noinline)) struct hl_script_thread *make_own(struct hl_thread *thread)
{
	struct hl_script_thread *own = hl_private_map_new(sizeof(*own));

	if (own)
		own->caller = (struct hl_script_caller){
			.unwind = &hl_recorder->unwind,
			.walk = &thread->tables->walk,
			.memory = &own->memory,
			.stamp = &thread->stamp,
		};
	return thread->script = own;
}

static inline struct hl_script_thread *own_of(struct hl_thread *thread)
{
	return HL_LIKELY(thread->script) ? thread->script : make_own(thread);
}

static uint32_t describe(struct hl_recorder *recorder, const struct hl_script_frame *frame,
			 uint32_t provider)
{
	const struct hl_script_provider *it = &providers[provider];
	struct hl_region_site site = {.provider = provider};
	struct hl_script_place place = {0};
	uint32_t number = 0;

	if (!it->describe(it->state, frame, &place))
		return 0;
	site.line = place.line;
	site.first_line = place.first_line;
	hl_spin_lock(&recorder->sites.lock);
	if (hl_script_sites_put_name(&recorder->sites, &recorder->region, place.function,
				     place.function_bytes, &site.function) &&
	    hl_script_sites_put_name(&recorder->sites, &recorder->region, place.source,
				     place.source_bytes, &site.source))
		number = hl_script_sites_put(&recorder->sites, &recorder->region, site);
	hl_spin_unlock(&recorder->sites.lock);
	return number;
}

static uint32_t find_site(struct hl_recorder *recorder, struct hl_script_thread *own,
			  const struct hl_script_frame *frame, uint64_t place, uint32_t provider)
{
	struct known_site *known =
		&own->sites[(mix(frame->function) ^ mix(place)) >> (64 - SITE_BITS)];
	uint32_t generation =
		atomic_load_explicit(generation_of(frame->function), memory_order_acquire);

	if (known->function == frame->function && known->place == place &&
	    known->generation == generation)
		return known->site;
	*known = (struct known_site){frame->function, place, generation,
				     describe(recorder, frame, provider)};
	return known->site;
}

/* What follows the function in a frame, as one number; all of it but the provider at its top. */
static inline uint64_t place_of(const struct hl_script_frame *frame, uint32_t provider)
{
	uint64_t place;

	__builtin_memcpy(&place, &frame->at, sizeof(place)); /* no call, as memcpy() is here */
	return place | (uint64_t)provider << 56;
}

/* Makes ${step}, whose function and place are known, that of ${frame} outward of which the path has the node
 * ${parent}. False without nodes. */
static inline bool find_step(struct hl_recorder *recorder, struct hl_thread *thread,
			     const struct hl_script_frame *frame, uint32_t provider,
			     uint32_t parent, struct step *step)
{
	struct hl_script_thread *own = thread->script;
	uint64_t hash = mix(step->function ^ mix(step->place)) ^ mix(parent);
	struct known_step *known = &own->steps[hash >> (64 - STEP_BITS)];
	uint32_t generation =
		atomic_load_explicit(generation_of(step->function), memory_order_acquire);

	if (HL_UNLIKELY(known->function != step->function || known->place != step->place ||
			known->parent != parent || known->generation != generation ||
			!known->node)) {
		uint32_t site = find_site(recorder, own, frame, step->place, provider);
		uint32_t node = hl_node_intern(&recorder->region, &thread->tables->nodes, parent,
					       hl_site_frame_key(site, frame->is_entry));
		if (HL_UNLIKELY(node == HL_NODE_NONE))
			return false;
		*known = (struct known_step){step->function, step->place, parent, generation, node};
	}
	step->node = known->node;
	return true;
}

/*
 * Adds ${count} frames of ${provider}, innermost first, to the path, from its step ${depth} on.
 * *${kept}: how many steps, from the outermost, are as they were. False without nodes.
 */
static bool add_frames(struct hl_recorder *recorder, struct hl_thread *thread, uint32_t count,
		       uint32_t provider, uint32_t depth, uint32_t *kept)
{
	struct hl_script_thread *own = thread->script;
	const struct hl_script_frame *frame = own->frames + count;
	struct step *step = own->path + depth, *end = step + count;

	if (*kept >= depth) {
		const struct step *same_end =
			own->path + (own->depth < depth + count ? own->depth : depth + count);
		while (step < same_end && step->function == frame[-1].function &&
		       step->place == place_of(frame - 1, provider))
			step++, frame--;
		*kept = (uint32_t)(step - own->path);
	}
	uint32_t node = step == own->path ? 0 : step[-1].node;
	for (; step < end; step++) {
		frame--;
		step->function = frame->function;
		step->place = place_of(frame, provider);
		if (HL_UNLIKELY(!find_step(recorder, thread, frame, provider, node, step))) {
			own->depth = 0;
			return false;
		}
		node = step->node;
	}
	return true;
}

static bool is_of(const struct hl_script_provider *provider, uint64_t pc)
{
	return !provider->eval_start ||
	       pc - provider->eval_start < provider->eval_end - provider->eval_start ||
	       pc - provider->cold_start < provider->cold_end - provider->cold_start ||
	       pc - provider->resume_start < provider->resume_end - provider->resume_start;
}

/* Bits: which of ${count} providers are to be asked for the native stack ${node}. */
static uint32_t find_mask(const struct hl_recorder *recorder, uint32_t node, uint32_t count)
{
	uint32_t mask = 0, all = (1u << count) - 1;

	for (; node && mask != all; node = recorder->region.nodes[node].parent) {
		uint64_t key = atomic_load_explicit(&recorder->region.nodes[node].frame,
						    memory_order_relaxed);
		if (hl_frame_key_is_generated(key))
			return all;
		for (uint32_t i = 0; i < count; i++)
			mask |= (uint32_t)is_of(&providers[i], key & HL_FRAME_PC_MASK) << i;
	}
	return mask;
}

/* One that has no frame in the stack may be running in another thread at this moment. */
static uint32_t mask_of(const struct hl_recorder *recorder, struct hl_script_thread *own,
			uint32_t node, uint32_t count)
{
	struct known_mask *known = &own->masks[mix(node) >> (64 - MASK_BITS)];

	if (HL_UNLIKELY(own->mask_providers != count)) {
		memset(own->masks, 0, sizeof(own->masks));
		own->mask_providers = count;
	}
	if (HL_UNLIKELY(known->node != node))
		*known = (struct known_mask){node, find_mask(recorder, node, count)};
	return known->mask;
}

/* The memory is one provider's; another one finds it as at first. */
static void take_memory(struct hl_script_thread *own, uint32_t provider)
{
	if (HL_LIKELY(own->memory_of == provider + 1))
		return;
	memset(own->memory.bytes, 0, sizeof(own->memory.bytes));
	own->memory_of = provider + 1;
}

/* Brings the path up to date. False without nodes. */
static bool capture(struct hl_recorder *recorder, struct hl_thread *thread,
		    const struct hl_script_caller *caller)
{
	struct hl_script_thread *own = thread->script;
	/* The epoch first: with the one that a new provider begins, that is among those that are asked. */
	uint32_t now = atomic_load_explicit(&epoch, memory_order_acquire);
	uint32_t count = atomic_load_explicit(&provider_count, memory_order_acquire);
	uint32_t kept = 0, depth = 0, asked = 0, owner = HL_SCRIPT_PROVIDERS_MAX;
	const struct hl_script_provider *outer = NULL, *last = NULL;

	if (own->epoch != now) {
		own->epoch = now;
		own->depth = 0;
	}
	thread->stamp.value = 0;
	uint32_t wanted = count > 1 ? mask_of(recorder, own, caller->native_node, count) : 1;
	bool is_any_left_out = false;
	for (uint32_t i = 0; i < count; i++) {
		bool truncated = false;
		uint32_t from = depth, max = HL_SCRIPT_DEPTH_MAX - depth;
		if (!providers[i].capture)
			continue;
		if (!(wanted >> i & 1)) {
			is_any_left_out = true;
			continue;
		}
		asked++;
		last = &providers[i];
		if (last->current)
			outer = last;
		bool is_known =
			own->depth && own->owner == i && own->owned_from == depth && kept == depth;
		if (providers[i].remembers)
			take_memory(own, i);
		own->memory.known = is_known ? own->owned : 0;
		own->memory.kept = 0;
		uint32_t frames = providers[i].capture(providers[i].state, caller, own->frames, max,
						       &truncated);
		frames = frames < max ? frames : max;
		thread->in_region->lost.truncated_stacks += truncated;
		if (own->memory.kept)
			kept = depth += own->memory.kept;
		if (frames && HL_UNLIKELY(!add_frames(recorder, thread, frames, i, depth, &kept)))
			return false;
		depth += frames;
		if (providers[i].remembers && depth > from) {
			/* Of two such ones, who has written into it last is not known. */
			owner = owner == HL_SCRIPT_PROVIDERS_MAX ? i : HL_SCRIPT_PROVIDERS_MAX + 1;
			own->owned_from = from;
			own->owned = depth - from;
		}
	}
	own->depth = depth;
	own->owner = owner;
	const struct hl_script_provider *it = depth && owner < count ? &providers[owner] : NULL;
	own->outer = outer;
	own->outer_function = own->owned_from ? own->path[0].function : 0;
	/* The quick way does not look which of several runs. */
	own->quick = it && it->recapture && last == it && asked == 1u + (outer != NULL) &&
				     !is_any_left_out
			     ? it
			     : NULL;
	return true;
}

/* Of the path, which is not empty, below ${stack}: node of the path, and above it the address of the cell
 * without its lowest bits, which are 0, and its highest, which all cells share. The cell is not read: one at which
 * nothing counts is not in the cache. */
static inline uint64_t pair_key(const struct hl_script_thread *own, const struct hl_cell *stack)
{
	static_assert(offsetof(struct hl_cell_chunk, cells) % 64 == 0, "six bits");
	return (uint64_t)stack << (HL_NODE_BITS - 6) | own->path[own->depth - 1].node;
}

static inline struct known_pair *pair_of(struct hl_script_thread *own, uint64_t key)
{
	struct known_pair *pair = own->pairs[mix(key) >> (64 - PAIR_BITS)];

	return pair + (pair[1].key == key);
}

/* The cell of the path below ${stack}. */
static struct hl_cell *path_cell(struct hl_recorder *recorder, struct hl_thread *thread,
				 struct hl_cell *stack)
{
	struct hl_script_thread *own = thread->script;

	if (!own->depth)
		return stack;
	uint64_t key = pair_key(own, stack);
	struct known_pair *known = pair_of(own, key);
	if (HL_LIKELY(known->key == key))
		return known->cell;
	uint32_t node = hl_node_intern(&recorder->region, &thread->tables->nodes, stack->node,
				       hl_path_frame_key(own->path[own->depth - 1].node));
	if (HL_UNLIKELY(node == HL_NODE_NONE))
		return NULL;
	struct hl_cell *cell = hl_cells_get(&thread->cells, &recorder->region, node);
	if (HL_LIKELY(cell)) {
		known[1] = known[0]; /* the first of the two, as neither is this one */
		*known = (struct known_pair){.key = key, .cell = cell};
	}
	return cell;
}

/* What the quick way has found: ${count} frames inward of those that are kept. */
static __attribute__((noinline)) struct hl_cell *cell_of_changed(struct hl_recorder *recorder,
								 struct hl_thread *thread,
								 struct hl_cell *stack,
								 uint32_t count)
{
	struct hl_script_thread *own = thread->script;
	uint32_t kept = own->owned_from + own->memory.kept, depth = kept + count;

	if (count && HL_UNLIKELY(!add_frames(recorder, thread, count, own->owner, kept, &kept)))
		return NULL;
	own->depth = depth;
	own->owned = depth - own->owned_from;
	return path_cell(recorder, thread, stack);
}

static __attribute__((noinline)) struct hl_cell *cell_of_capture(struct hl_recorder *recorder,
								 struct hl_thread *thread,
								 struct hl_cell *stack,
								 const struct hl_registers *caller)
{
	struct hl_script_thread *own = own_of(thread);

	if (HL_UNLIKELY(!own))
		return NULL;
	own->caller.registers = caller;
	own->caller.saved = thread->saved;
	own->caller.native_node = stack->node;
	if (HL_UNLIKELY(!capture(recorder, thread, &own->caller)))
		return NULL;
	return path_cell(recorder, thread, stack);
}

/* Whether what gives the outermost frame gives the same one. */
static inline bool is_same_outer(const struct hl_script_thread *own)
{
	const struct hl_script_provider *outer = own->outer;

	return !outer || outer->current(outer->state) == own->outer_function;
}

struct hl_cell *hl_script_same_cell(struct hl_thread *thread, struct hl_cell *stack,
				    const struct hl_registers *caller)
{
	struct hl_script_thread *own = thread->script;

	if (HL_UNLIKELY(!own))
		return NULL;
	own->changed = HL_SCRIPT_GAVE_UP;
	if (HL_UNLIKELY(!own->depth || !own->quick ||
			own->epoch != atomic_load_explicit(&epoch, memory_order_acquire) ||
			!is_same_outer(own)))
		return NULL;
	uint64_t key = pair_key(own, stack);
	const struct known_pair *known = pair_of(own, key);
	struct hl_cell *cell = known->key == key ? known->cell : NULL;
	__builtin_prefetch(cell, 1); /* it comes into the cache meanwhile */
	own->memory.known = own->owned;
	own->memory.kept = 0;
	own->caller.registers = caller;
	own->caller.saved = thread->saved;
	if (own->quick->by_stack)
		own->caller.native_node = stack->node;
	own->changed = own->quick->recapture(own->quick->state, &own->caller, own->frames,
					     HL_SCRIPT_DEPTH_MAX);
	return HL_LIKELY(!own->changed && own->memory.kept == own->owned) ? cell : NULL;
}

struct hl_cell *hl_script_other_cell(struct hl_recorder *recorder, struct hl_thread *thread,
				     struct hl_cell *stack, const struct hl_registers *caller)
{
	const struct hl_script_thread *own = thread->script;

	return !own || own->changed == HL_SCRIPT_GAVE_UP
		       ? cell_of_capture(recorder, thread, stack, caller)
		       : cell_of_changed(recorder, thread, stack, own->changed);
}

/* ---- labels ---- */

static const struct hl_script_provider label_providers[HL_LABEL_COUNT] = {
	[HL_LABEL_POOL] = {.name = HL_POOL_PROVIDER},
	[HL_LABEL_TYPE] = {.name = HL_TYPE_PROVIDER},
	[HL_LABEL_SERVICE] = {.name = HL_SERVICE_PROVIDER},
};

/* The number of the provider whose sites are labels of ${kind}, registered at the first one; UINT32_MAX: there
 * are too many others. */
static uint32_t label_provider(struct hl_recorder *recorder, enum hl_label kind)
{
	static _Atomic uint32_t known[HL_LABEL_COUNT]; /* + 1 */
	uint32_t number = atomic_load(&known[kind]);

	if (HL_LIKELY(number))
		return number - 1;
	hl_spin_lock(&recorder->sites.lock);
	if (!atomic_load(&known[kind]) && hl_script_register(&label_providers[kind]) == 0) {
		number = atomic_load(&provider_count);
		while (number && providers[number - 1].name != label_providers[kind].name)
			number--;
		atomic_store(&known[kind], number);
	}
	hl_spin_unlock(&recorder->sites.lock);
	return atomic_load(&known[kind]) - 1;
}

/* A pool is a frame like others, which says by its name what it is. */
static uint32_t put_label(struct hl_recorder *recorder, enum hl_label kind, const char *name,
			  uint32_t name_bytes)
{
	static const char pool[] = "[pool ";
	char text[sizeof(pool) + HL_LABEL_NAME_MAX];
	uint32_t number = 0, bytes = kind == HL_LABEL_POOL ? sizeof(pool) - 1 : 0;
	struct hl_region_site site = {.provider = label_provider(recorder, kind)};

	if (site.provider == UINT32_MAX)
		return 0;
	memcpy(text, pool, bytes);
	for (uint32_t i = 0; i < name_bytes; i++)
		text[bytes++] = (unsigned char)name[i] < ' ' || name[i] == ';' ? '?' : name[i];
	if (kind == HL_LABEL_POOL)
		text[bytes++] = ']';
	hl_spin_lock(&recorder->sites.lock);
	if (hl_script_sites_put_name(&recorder->sites, &recorder->region, text, bytes,
				     &site.function) &&
	    hl_script_sites_put_name(&recorder->sites, &recorder->region, "", 0, &site.source))
		number = hl_script_sites_put(&recorder->sites, &recorder->region, site);
	hl_spin_unlock(&recorder->sites.lock);
	return number;
}

/* The site of label ${name}; 0 without room. */
static uint32_t find_label(struct hl_recorder *recorder, struct hl_script_thread *own,
			   enum hl_label kind, const char *name)
{
	struct known_label *known = &own->labels[mix((uintptr_t)name + kind) >> (64 - LABEL_BITS)];
	uint32_t bytes = 0;

	if (HL_LIKELY(known->site && known->name == name && known->kind == kind)) {
		while (name[bytes] && name[bytes] == known->text[bytes])
			bytes++;
		if (HL_LIKELY(name[bytes] == known->text[bytes] || bytes == HL_LABEL_NAME_MAX))
			return known->site;
	}
	known->kind = kind;
	known->name = name;
	for (bytes = 0; bytes < HL_LABEL_NAME_MAX && name[bytes]; bytes++)
		known->text[bytes] = name[bytes];
	known->text[bytes] = '\0';
	known->site = put_label(recorder, kind, known->text, bytes);
	return known->site;
}

struct hl_cell *hl_script_label_cell(struct hl_recorder *recorder, struct hl_thread *thread,
				     struct hl_cell *stack, enum hl_label kind, const char *name)
{
	struct hl_script_thread *own = stack ? own_of(thread) : NULL;
	uint32_t site = own ? find_label(recorder, own, kind, name) : 0;

	if (!site)
		return stack;
	uint64_t nodes = (uint64_t)site << HL_NODE_BITS | stack->node;
	struct known_pair *known = &own->labelled[mix(nodes) >> (64 - LABELLED_BITS)];
	if (HL_LIKELY(known->key == nodes))
		return known->cell;
	uint32_t node = hl_node_intern(&recorder->region, &thread->tables->nodes, stack->node,
				       hl_site_frame_key(site, false));
	if (HL_UNLIKELY(node == HL_NODE_NONE))
		return NULL;
	struct hl_cell *cell = hl_cells_get(&thread->cells, &recorder->region, node);
	if (HL_LIKELY(cell))
		*known = (struct known_pair){.key = nodes, .cell = cell};
	return cell;
}

struct hl_cell *hl_script_type_cell(struct hl_recorder *recorder, struct hl_thread *thread,
				    struct hl_cell *stack, const char *type)
{
	struct hl_script_thread *own = stack ? own_of(thread) : NULL;

	if (HL_UNLIKELY(!own))
		return stack;
	struct known_type *known = &own->types[mix((uintptr_t)stack) >> (64 - TYPE_BITS)];
	if (HL_UNLIKELY(known->stack != stack || known->type != type)) {
		struct hl_cell *cell =
			hl_script_label_cell(recorder, thread, stack, HL_LABEL_TYPE, type);
		if (!cell)
			return NULL;
		*known = (struct known_type){stack, type, cell};
	}
	return known->cell;
}

void hl_script_release(struct hl_thread *thread)
{
	if (thread->script)
		hl_private_map_free(thread->script, sizeof(*thread->script));
	thread->script = NULL;
}
