/* SPDX-License-Identifier: BSD-2-Clause */
/* Captures the frames of PHP that the calling thread runs; see php.h. */
#include "guests/php/php.h"

#include "unwind/saved.h"

#include <assert.h>

/* Registers of the interpreter, the last two of those that functions keep for their callers: r14 and r15, x27 and x28. */
#define SAVED_FRAME (HL_SAVED_FRAME - 2)
#define SAVED_OP    (HL_SAVED_FRAME - 1)

#define PRINT_FACTOR UINT64_C(0x9e3779b97f4a7c15)

/* Captures that must be in order before one is read without checks, and how many may fail until then. */
#define PROOFS	     16u
#define FAILURES     4u
#define CHECKED_MAX  1024u /* frames; of a deeper stack the inner ones are checked */
#define TEXT_MAX     (1u << 20)
#define WAITING_MAX  64u /* generators of one delegation; of more the first ones are given */
#define CLASS_BYTES  16u
#define OBJECT_BYTES 160u

/* ---- lines ---- */

static inline bool is_own_op(const struct hl_php_layout *layout, uint64_t function, uint64_t op)
{
	uint64_t bytes = hl_php_number(function, layout->op_count) * (uint64_t)HL_PHP_OP_BYTES;

	return op - hl_php_word(function, layout->ops) < bytes;
}

/* The line of ${op}, which a frame of ${function} runs; 0: unknown. */
static inline uint32_t line_of(const struct hl_php *php, const struct hl_php_layout *layout,
			       uint64_t function, uint64_t op)
{
	if (HL_UNLIKELY(!is_own_op(layout, function, op))) {
		/* An exception is handled by ops that are the interpreter's; or the frame has not begun. */
		bool throws = op - php->api.globals < php->api.globals_bytes;
		op = throws ? hl_php_word(php->api.globals, layout->thrown_at)
			    : hl_php_word(function, layout->ops);
		if (!is_own_op(layout, function, op))
			return 0;
	}
	return hl_php_number(op, HL_PHP_OP_LINE);
}

/*
 * The op that the innermost frame runs. The interpreter keeps it and the frame in two registers, and stores it before it
 * does what may fail: not before all that allocates.
 */
static inline uint64_t innermost_op(const struct hl_php_layout *layout,
				    const struct hl_script_caller *caller, uint64_t frame)
{
	uint64_t function = hl_php_word(frame, HL_PHP_FRAME_FUNCTION);
	uint64_t room[HL_SAVED_COUNT];

	if (function && hl_php_is_script(function)) {
		const uint64_t *saved = HL_SAVED_HANDED_ON
						? caller->saved
						: hl_saved_find(caller->unwind, caller->walk,
								caller->registers, room);
		if (saved && saved[SAVED_FRAME] == frame &&
		    is_own_op(layout, function, saved[SAVED_OP]))
			return saved[SAVED_OP];
	}
	return hl_php_word(frame, HL_PHP_FRAME_OP);
}

/* ---- frames ---- */

/* Texts that names are compared by have a hash. */
static inline uint64_t print_of_text(uint64_t text)
{
	uint64_t hash = hl_php_word(text, HL_PHP_TEXT_HASH);

	return (hash ? hash : hl_php_word(text, HL_PHP_TEXT_BYTES)) +
	       hl_php_word(text, HL_PHP_TEXT_COUNT);
}

/* Another function at the same address mostly differs in one of these: its name, class, file and lines. */
static inline uint32_t print_of(const struct hl_php_layout *layout, uint64_t function,
				bool is_script)
{
	uint64_t name = hl_php_word(function, HL_PHP_FUNCTION_NAME);
	uint64_t class = hl_php_word(function, HL_PHP_FUNCTION_CLASS);
	uint64_t print = name ? print_of_text(name) : 0;

	if (class)
		print = print * PRINT_FACTOR ^ print_of_text(hl_php_word(class, HL_PHP_CLASS_NAME));
	if (is_script) {
		uint64_t file = hl_php_word(function, layout->file);
		print = (print * PRINT_FACTOR ^ (file ? print_of_text(file) : 0)) * PRINT_FACTOR ^
			hl_php_word(function, layout->first_line);
	}
	return (uint32_t)(print * PRINT_FACTOR >> 32);
}

static inline __attribute__((always_inline)) void
give_as(const struct hl_php *php, const struct hl_php_layout *layout, uint64_t function,
	uint32_t print, uint64_t op, uint64_t flags, struct hl_script_frame *ret_frame)
{
	bool is_script = hl_php_is_script(function);
	uint32_t line = is_script ? line_of(php, layout, function, op) : 0;
	uint64_t is_entry = is_script && flags & HL_PHP_FLAG_ENTRY;
	uint64_t place = line | (uint64_t)(uint16_t)print << 32 | is_entry << 48;

	/* In one piece, as it is compared: loads wait for several smaller stores. */
	ret_frame->function = function | (uint64_t)(print >> 16) << HL_PHP_FUNCTION_BITS;
	__builtin_memcpy(&ret_frame->at, &place, sizeof(place));
}

/* Its print. */
static inline __attribute__((always_inline)) uint32_t
give(const struct hl_php *php, const struct hl_php_layout *layout, uint64_t function, uint64_t op,
     uint64_t flags, struct hl_script_frame *ret_frame)
{
	uint32_t print = print_of(layout, function, hl_php_is_script(function));

	give_as(php, layout, function, print, op, flags, ret_frame);
	return print;
}

/* Whether ${function} stands for the outermost frame of a fiber: it has no name. What started the fiber is outward of it. */
static inline bool is_end_of_fiber(uint64_t function)
{
	return function && !hl_php_word(function, HL_PHP_FUNCTION_NAME) &&
	       !hl_php_is_script(function);
}

/* Whether ${frame}, which has no function, leads to generators that wait for the one inward of it. */
static bool is_delegation(const struct hl_php *php, uint64_t frame)
{
	if (!php->api.generator || hl_php_byte(frame, HL_PHP_FRAME_FLAGS) != HL_PHP_TYPE_OBJECT)
		return false;
	uint64_t class = hl_php_word(hl_php_word(frame, HL_PHP_FRAME_OBJECT), HL_PHP_OBJECT_CLASS);
	return class && class == hl_php_word(php->api.generator, 0);
}

/* Gives the generators that wait, the one that waits for the running one first; returns how many. */
static __attribute__((noinline)) uint32_t give_waiting(const struct hl_php *php,
						       const struct hl_php_layout *layout,
						       uint64_t delegation,
						       struct hl_script_frame *frames, uint32_t max)
{
	uint64_t waiting[WAITING_MAX], generator = hl_php_word(delegation, HL_PHP_FRAME_OBJECT);
	uint32_t count = 0, given = 0;

	for (uint64_t runs; count < WAITING_MAX; generator = runs) {
		runs = hl_php_word(generator, HL_PHP_GENERATOR_PARENT);
		if (!runs)
			break;
		waiting[count++] = hl_php_word(generator, HL_PHP_GENERATOR_FRAME);
	}
	while (count-- && given < max) {
		uint64_t frame = waiting[count];
		uint64_t function = frame ? hl_php_word(frame, HL_PHP_FRAME_FUNCTION) : 0;
		if (function) /* which no call of execute_ex() runs now */
			give(php, layout, function, hl_php_word(frame, HL_PHP_FRAME_OP), 0,
			     &frames[given++]);
	}
	return given;
}

/* ---- calls of execute_ex() ---- */

struct calls {
	const struct hl_php *php;
	uint32_t count;
};

static bool count_call(void *context, const struct hl_saved_frame *frame)
{
	struct calls *calls = context;
	const struct hl_php *it = calls->php;

	calls->count += frame->pc - it->api.eval_start < it->api.eval_end - it->api.eval_start ||
			frame->pc - it->cold_start < it->cold_end - it->cold_start;
	return true;
}

/* How often native code has called execute_ex(); fewer, where the stack cannot be walked to its end. */
static uint32_t count_calls(const struct hl_php *php, const struct hl_script_caller *caller)
{
	struct calls calls = {.php = php};
	uint64_t saved[HL_SAVED_COUNT] = {0};

	for (unsigned k = 0; caller->saved && k < HL_SAVED_FRAME; k++)
		saved[k] = caller->saved[k];
	saved[HL_SAVED_FRAME] = caller->registers->bp;
	hl_saved_walk(caller->unwind, caller->walk, caller->registers, saved, count_call, &calls);
	return calls.count;
}

/* ---- what is as it was ---- */

/*
 * All that is read of a frame: if it is as it was, what is given of it is, too, and where the next one outward is. So once
 * a frame is found at which the last capture came by, those outward of it are compared where they were, without a load
 * that waits for another.
 */
struct step {
	uint64_t frame, function, op;
	uint64_t identity; /* of a script's function: another one may have come to lie there */
	/* How many frames are given of the steps up to this one, and how many of these are entries; as long as it is fresh, of
	 * itself. */
	uint32_t given, entries;
	uint32_t print; /* of the function, where it has one */
};

/* How many calls of execute_ex() the native stack ${node} has. */
struct known_calls {
	uint32_t node, calls;
};

#define CALLS_BITS 8

#define STEPS_MAX  256u
#define PLACE_BITS 6

struct memory {
	uint32_t depth;
	uint8_t places[1u
		       << PLACE_BITS]; /* by a hash of the frame, its step, where that is right */
	struct step steps[STEPS_MAX];  /* outermost first */
	struct step fresh[STEPS_MAX];  /* of the capture that goes on, innermost first */
	struct known_calls calls[1u << CALLS_BITS];
};

static_assert(sizeof(struct memory) <= HL_SCRIPT_MEMORY_BYTES, "the recorder has room for it");

static inline uint8_t *place_of(struct memory *memory, uint64_t frame)
{
	return &memory->places[frame * PRINT_FACTOR >> (64 - PLACE_BITS)];
}

static inline uint64_t identity_of(const struct hl_php_layout *layout, uint64_t function)
{
	return hl_php_word(function, layout->file) +
	       hl_php_word(function, layout->first_line) * PRINT_FACTOR;
}

/* Whether the frame of ${step} has the function that it had, which is read only then; that of *${seen} has been. */
static inline bool has_same_function(const struct hl_php_layout *layout, const struct step *step,
				     uint64_t *seen)
{
	uint64_t function = step->function;

	if (hl_php_word(step->frame, HL_PHP_FRAME_FUNCTION) != function)
		return false;
	if (function == *seen)
		return true;
	*seen = function;
	return !step->identity || identity_of(layout, function) == step->identity;
}

/* Whether the frame outward of steps[${at}] is the one that it was. */
static inline bool has_same_outer(const struct memory *memory, uint32_t at)
{
	uint64_t outer = at ? memory->steps[at - 1].frame : 0;

	return hl_php_word(memory->steps[at].frame, HL_PHP_FRAME_OUTER) == outer;
}

/*
 * How many of the outermost ${depth} steps are as they were, up to the first that is not; the frame of the innermost of them
 * is there. The word that leads to a frame is compared before the frame is, so each is there. What a frame was called by is
 * the op of the one outward of it: it is an entry if it was one.
 */
static inline uint32_t count_unchanged(const struct hl_php_layout *layout,
				       const struct memory *memory, uint32_t depth)
{
	uint32_t unchanged = depth;
	uint64_t seen = 0;

	for (uint32_t at = depth; at--;) {
		const struct step *step = &memory->steps[at];
		if (HL_UNLIKELY(!has_same_function(layout, step, &seen) ||
				hl_php_word(step->frame, HL_PHP_FRAME_OP) != step->op))
			unchanged = at;
		if (HL_UNLIKELY(!has_same_outer(memory, at)))
			return at;
	}
	return unchanged;
}

/* Puts the ${count} fresh steps inward of the outermost ${kept}; how many frames those gave. */
static inline uint32_t remember(struct memory *memory, uint32_t kept, uint32_t count)
{
	const uint32_t kept_given = kept ? memory->steps[kept - 1].given : 0;
	uint32_t given = kept_given, entries = kept ? memory->steps[kept - 1].entries : 0;

	for (; count; kept++) {
		struct step *step = &memory->steps[kept];
		*step = memory->fresh[--count];
		step->given = given += step->given;
		step->entries = entries += step->entries;
		*place_of(memory, step->frame) = (uint8_t)kept;
	}
	memory->depth = kept;
	return kept_given;
}

/* ---- the walk ---- */

static inline void note_step(const struct hl_php_layout *layout, uint64_t frame, uint64_t function,
			     uint64_t op, uint64_t flags, struct step *ret_step)
{
	bool is_script = function && hl_php_is_script(function);

	*ret_step = (struct step){
		.frame = frame,
		.function = function,
		.op = op,
		.identity = is_script ? identity_of(layout, function) : 0,
		.given = function != 0,
		.entries = is_script && flags & HL_PHP_FLAG_ENTRY,
	};
}

/*
 * A call of execute_ex() whose function has ended, but not what that held: destructors run, and allocate, after its frame
 * has been taken out of the list. Marks for ${count} such calls are given outward of the innermost entry, ${at} of
 * ${frames}. Returns how many there is room for.
 */
static __attribute__((noinline)) uint32_t give_ended(const struct hl_php *php,
						     struct hl_script_frame *frames, uint32_t at,
						     uint32_t frame_count, uint32_t max,
						     uint32_t count)
{
	if (count > max - frame_count)
		count = max - frame_count;
	for (uint32_t i = frame_count; count && i-- > at + 1;)
		frames[i + count] = frames[i];
	for (uint32_t i = 0; i < count; i++)
		frames[at + 1 + i] =
			(struct hl_script_frame){.function = php->api.eval_start, .is_entry = true};
	return count;
}

/* How many marks have to be given. */
static inline uint32_t count_ended(const struct hl_php *php, const struct hl_script_caller *caller,
				   struct memory *memory, uint32_t entries)
{
	struct known_calls *known =
		&memory->calls[caller->native_node * PRINT_FACTOR >> (64 - CALLS_BITS)];

	if (HL_UNLIKELY(known->node != caller->native_node))
		*known = (struct known_calls){caller->native_node, count_calls(php, caller)};
	return known->calls > entries ? known->calls - entries : 0;
}

static uint32_t walk_frames(const struct hl_php *php, const struct hl_php_layout *layout,
			    const struct hl_script_caller *caller, struct hl_script_frame *frames,
			    uint32_t max, bool *ret_truncated)
{
	struct hl_script_memory *known = caller->memory;
	struct memory *memory = (struct memory *)known->bytes;
	uint32_t count = 0, fresh = 0, kept = 0, depth = memory->depth;
	uint64_t frame = hl_php_word(php->api.globals, HL_PHP_CURRENT);
	uint64_t op = frame ? innermost_op(layout, caller, frame) : 0;
	uint64_t ignored = 0; /* flags */
	uint32_t entries = 0, entry = 0;
	struct step *step_of_entry = NULL;
	bool is_plain = true;

	memory->depth = 0;
	if (!depth || memory->steps[depth - 1].given != known->known)
		depth = 0;
	for (; frame; frame = hl_php_word(frame, HL_PHP_FRAME_OUTER), op = 0) {
		uint32_t at = *place_of(memory, frame);
		if (fresh && at < depth && memory->steps[at].frame == frame) {
			depth = count_unchanged(layout, memory, at + 1);
			if (HL_LIKELY(depth == at + 1)) {
				kept = depth;
				break;
			}
		}
		uint64_t function = hl_php_word(frame, HL_PHP_FRAME_FUNCTION);
		if (fresh)
			op = hl_php_word(frame, HL_PHP_FRAME_OP);
		uint64_t flags = hl_php_word(frame, HL_PHP_FRAME_FLAGS) & ~ignored;
		struct step *step = &memory->fresh[fresh < STEPS_MAX ? fresh : STEPS_MAX - 1];
		note_step(layout, frame, function, op, flags, step);
		if (HL_UNLIKELY(step->entries) && !entries++) {
			entry = count;
			step_of_entry = step;
		}
		fresh++;
		if (HL_UNLIKELY(count == max)) {
			*ret_truncated |= function != 0;
			return count;
		}
		if (HL_UNLIKELY(is_end_of_fiber(function))) {
			ignored = HL_PHP_FLAG_ENTRY; /* those calls are on another native stack */
			is_plain = false;
			depth = 0;
		} else if (HL_LIKELY(function)) {
			step->print = give(php, layout, function, op, flags, &frames[count++]);
		} else if (is_delegation(php, frame)) {
			count += give_waiting(php, layout, frame, frames + count, max - count);
			is_plain = false;
			depth = 0;
		}
	}
	if (entries) {
		uint32_t ended =
			count_ended(php, caller, memory,
				    entries + (kept ? memory->steps[kept - 1].entries : 0));
		if (HL_UNLIKELY(ended)) {
			ended = give_ended(php, frames, entry, count, max, ended);
			count += ended;
			step_of_entry->given += ended;
			step_of_entry->entries += ended;
		}
	}
	if (HL_UNLIKELY(kept + fresh > STEPS_MAX || kept + count > max))
		return kept ? HL_SCRIPT_GAVE_UP : count; /* nothing is remembered now */
	if (HL_LIKELY(is_plain))
		known->kept = remember(memory, kept, fresh);
	return count;
}

/* All that it needs has been proved by the capture that filled the memory. */
uint32_t hl_php_recapture(const struct hl_php *php, const struct hl_script_caller *caller,
			  struct hl_script_frame *frames, uint32_t max)
{
	const struct hl_php_layout *layout =
		atomic_load_explicit(&php->layout, memory_order_relaxed);
	struct memory *memory = (struct memory *)caller->memory->bytes;
	uint32_t depth = memory->depth;
	bool truncated = false;

	if (HL_UNLIKELY(!depth))
		return HL_SCRIPT_GAVE_UP;
	struct step *last = &memory->steps[depth - 1];
	uint64_t frame = hl_php_word(php->api.globals, HL_PHP_CURRENT), seen = 0;
	if (HL_LIKELY(frame == last->frame && last->function) &&
	    has_same_function(layout, last, &seen) && has_same_outer(memory, depth - 1) &&
	    count_unchanged(layout, memory, depth - 1) == depth - 1) {
		uint64_t op = innermost_op(layout, caller, frame);
		bool is_same = op == last->op;
		if (!is_same)
			give_as(php, layout, last->function, last->print, op,
				hl_php_word(frame, HL_PHP_FRAME_FLAGS), frames);
		last->op = op;
		caller->memory->kept = last->given - !is_same;
		return !is_same;
	}
	uint32_t count = walk_frames(php, layout, caller, frames, max, &truncated);
	return truncated ? HL_SCRIPT_GAVE_UP : count;
}

/* ---- proof ---- */

/* Whether a string lies at ${text}: it ends where it says. */
static bool is_text(uint64_t text)
{
	if (!hl_memory_object_is_readable(text, HL_PHP_TEXT_BYTES + 8))
		return false;
	uint64_t count = hl_php_word(text, HL_PHP_TEXT_COUNT),
		 end = text + HL_PHP_TEXT_BYTES + count;
	return count < TEXT_MAX && hl_memory_object_is_readable(end & ~UINT64_C(7), 8) &&
	       !hl_php_byte(text, HL_PHP_TEXT_BYTES + (uint32_t)count);
}

static bool is_function(const struct hl_php_layout *layout, uint64_t function)
{
	if (!hl_memory_object_is_readable(function, HL_PHP_FUNCTION_BYTES))
		return false;
	uint8_t type = hl_php_byte(function, HL_PHP_FUNCTION_TYPE);
	uint64_t name = hl_php_word(function, HL_PHP_FUNCTION_NAME);
	uint64_t class = hl_php_word(function, HL_PHP_FUNCTION_CLASS);
	if ((name && !is_text(name)) ||
	    (class && (!hl_memory_object_is_readable(class, CLASS_BYTES) ||
		       !is_text(hl_php_word(class, HL_PHP_CLASS_NAME)))))
		return false;
	return type == HL_PHP_NATIVE ||
	       ((type == HL_PHP_SCRIPT || type == HL_PHP_EVALUATED) &&
		hl_memory_object_is_readable(hl_php_word(function, layout->ops), HL_PHP_OP_BYTES) &&
		is_text(hl_php_word(function, layout->file)));
}

static bool is_op_in_order(const struct hl_php *php, const struct hl_php_layout *layout,
			   uint64_t function, uint64_t op)
{
	return !hl_php_is_script(function) ||
	       (!(op & 7) && (!op || is_own_op(layout, function, op) ||
			      op - php->api.globals < php->api.globals_bytes));
}

/* Whether all that walk_frames() reads is there and in order. *${ret_entries}: entries among the frames. */
static bool check_frames(const struct hl_php *php, const struct hl_php_layout *layout,
			 uint32_t *ret_entries)
{
	uint64_t frame = hl_php_word(php->api.globals, HL_PHP_CURRENT);
	uint32_t entries = 0;

	for (uint32_t i = 0; frame && i < CHECKED_MAX; i++) {
		if (!hl_memory_object_is_readable(frame, HL_PHP_FRAME_BYTES))
			return false;
		uint64_t function = hl_php_word(frame, HL_PHP_FRAME_FUNCTION);
		if (function &&
		    (!is_function(layout, function) ||
		     !is_op_in_order(php, layout, function, hl_php_word(frame, HL_PHP_FRAME_OP))))
			return false;
		if (!function && hl_php_byte(frame, HL_PHP_FRAME_FLAGS) == HL_PHP_TYPE_OBJECT &&
		    !hl_memory_object_is_readable(hl_php_word(frame, HL_PHP_FRAME_OBJECT),
						  OBJECT_BYTES))
			return false;
		entries += function && hl_php_is_script(function) &&
			   hl_php_number(frame, HL_PHP_FRAME_FLAGS) & HL_PHP_FLAG_ENTRY;
		frame = hl_php_word(frame, HL_PHP_FRAME_OUTER);
	}
	*ret_entries = entries + (frame != 0); /* the outermost frame is one */
	return true;
}

static __attribute__((noinline)) bool prove(struct hl_php *php, const struct hl_php_layout *layout,
					    const struct hl_script_caller *caller)
{
	uint32_t entries = 0, calls = count_calls(php, caller);

	if (hl_php_is_refused(php))
		return false;
	/* A call whose function has just ended is without its entry; and code of the JIT is not counted. */
	if (!check_frames(php, layout, &entries) || calls > entries + 1) {
		atomic_fetch_add_explicit(&php->failures, 1, memory_order_relaxed);
		return false;
	}
	if (!entries)
		return false;
	atomic_fetch_add_explicit(&php->proofs, 1, memory_order_release);
	return true;
}

bool hl_php_is_refused(const struct hl_php *php)
{
	return atomic_load_explicit(&php->proofs, memory_order_relaxed) < PROOFS &&
	       atomic_load_explicit(&php->failures, memory_order_relaxed) >= FAILURES;
}

uint32_t hl_php_capture(struct hl_php *php, const struct hl_script_caller *caller,
			struct hl_script_frame *frames, uint32_t max, bool *ret_truncated)
{
	const struct hl_php_layout *layout =
		atomic_load_explicit(&php->layout, memory_order_acquire);
	uint32_t count;

	if (HL_UNLIKELY(atomic_load_explicit(&php->proofs, memory_order_acquire) < PROOFS) &&
	    !prove(php, layout, caller))
		return 0;
	do
		count = walk_frames(php, layout, caller, frames, max, ret_truncated);
	while (HL_UNLIKELY(count == HL_SCRIPT_GAVE_UP));
	return count;
}
