/* SPDX-License-Identifier: BSD-2-Clause */
/* Captures the frames of Python that the calling thread runs; see python.h. */
#include "guests/python/python.h"

#include "base/compiler.h"
#include "base/machine.h"
#include "unwind/saved.h"

#include <assert.h>

#define TAG_MASK UINT64_C(7) /* of a frame's reference to its code, from 3.14 on */

/* Captures that must be in order before one is read without checks, and how many may fail until then. */
#define PROOFS	     16u
#define FAILURES     4u
#define CHECKED_MAX  1024u /* frames; of a deeper stack the inner ones are checked */
#define FRAME_BYTES  112u  /* as far as one is read, and more */
#define CODE_BYTES   144u
#define TYPE_BYTES   56u
#define STRING_BYTES 32u

/* ---- the thread's state ---- */

typedef uint64_t state_fn(void);

/* Until 3.11 the current state is that of the thread that has the lock. */
static inline bool is_shared(const struct hl_python_layout *layout)
{
	return layout->minor < 12;
}

/*
 * ${current}, which may be of any thread, and may end at any moment: so it is not read, but the kernel is
 * asked whether its thread is the calling one. glibc's and musl's pthread_self() is the thread
 * pointer.
 */
static __attribute__((noinline)) bool is_of_this_thread(const struct hl_python *python,
							uint64_t current)
{
	uint32_t at = python->layout->minor < 11 ? 176 : 152; /* thread_id */
	uint64_t self = hl_machine_thread_pointer();

	return hl_memory_has_number(current + at, (uint32_t)self) &&
	       hl_memory_has_number(current + at + 4, (uint32_t)(self >> 32));
}

/*
 * The state that has the frames of the calling thread; 0: it has none. A thread without the lock runs
 * nothing, and its frames stay as they were. A thread that has been in several interpreters has a
 * state in each, and its own is the first of them.
 */
static inline uint64_t find_state(const struct hl_python *python,
				  const struct hl_python_layout *layout)
{
	uint64_t current = ((state_fn *)python->api.current_state)();

	if (HL_LIKELY(current) && !is_shared(layout))
		return current;
	uint64_t own = ((state_fn *)python->api.own_state)();
	if (HL_LIKELY(current == own) || !current || !own)
		return own;
	return is_of_this_thread(python, current) ? current : own;
}

/* ---- frames ---- */

static inline uint64_t first_frame(const struct hl_python_layout *layout, uint64_t state)
{
	uint64_t frame = hl_python_word(state, layout->state_frame);

	return layout->has_cframe && frame ? hl_python_word(frame, layout->cframe_frame) : frame;
}

/* A code object of the interpreter itself, which calls __init__() of a class: no function of anybody. */
static inline bool is_helper(const struct hl_python *python, const struct hl_python_layout *layout,
			     uint64_t code)
{
	return code - python->api.start < python->api.end - python->api.start &&
	       hl_python_word(code, layout->code_file) == hl_python_word(code, layout->code_name);
}

/*
 * Another code object at the same address mostly differs in one of these: where its texts are, how
 * long they are, and how they begin and end.
 */
static __attribute__((noinline)) uint32_t print_of(const struct hl_python_layout *layout,
						   uint64_t code)
{
	uint64_t name = hl_python_word(code, layout->code_name);
	uint64_t file = hl_python_word(code, layout->code_file);
	uint64_t lines = hl_python_word(code, layout->code_lines);
	uint64_t print = hl_python_number(code, layout->code_first_line);
	const uint64_t parts[] = {name, file, lines};

	for (unsigned i = 0; i < 3; i++) {
		if (!parts[i])
			continue;
		/* The count, and of a string the hash of all of it, where it has been asked for. */
		print = (print ^ parts[i] ^ hl_python_word(parts[i], 16) ^
			 hl_python_word(parts[i], 24)) *
			UINT64_C(0x9e3779b97f4a7c15);
	}
	uint64_t count = file ? hl_python_word(file, 16) : 0;
	if (count >= 8) { /* in any width, these bytes are part of it */
		uint64_t end;
		__builtin_memcpy(&end, (const char *)file + layout->ascii_bytes + count - 8, 8);
		print = (print ^ end) * UINT64_C(0x9e3779b97f4a7c15);
	}
	return (uint32_t)(print >> 32);
}

static inline uint32_t at_of(const struct hl_python_layout *layout, uint64_t frame, uint64_t code)
{
	if (layout->at_is_index)
		return hl_python_number(frame, layout->frame_at) + 1;
	/* One instruction before the first: the function has not begun. */
	uint64_t at = hl_python_word(frame, layout->frame_at) - code - layout->code_bytes;
	return (uint32_t)((int64_t)at >> 1) + 1;
}

/* Where its instruction is, as the interpreter keeps it. */
static inline uint64_t raw_at(const struct hl_python_layout *layout, uint64_t frame)
{
	return layout->at_is_index ? hl_python_number(frame, layout->frame_at)
				   : hl_python_word(frame, layout->frame_at);
}

static inline uint8_t mark_of(const struct hl_python_layout *layout, uint64_t frame)
{
	return layout->frame_mark ? hl_python_byte(frame, layout->frame_mark) : 1;
}

/* ---- what is as it was ---- */

/*
 * All that is read of a frame: if it is as it was, what is given of the frame is, too, and where the next
 * one outward is. So once a frame is found at which the last capture came by, those outward of it are
 * compared where they were, without a load that waits for another.
 */
struct step {
	uint64_t frame, previous, code, at;
	uint8_t mark;
	bool is_given;	/* the frame is among those that are given */
	uint16_t given; /* how many of the steps up to this one, the outermost first, are */
};

#define STEPS_MAX  256u
#define PLACE_BITS 6

struct memory {
	uint32_t depth;
	uint8_t places[1u
		       << PLACE_BITS]; /* by a hash of the frame, its step, where that is right */
	struct step steps[STEPS_MAX];  /* outermost first */
	struct step fresh[STEPS_MAX];  /* of the capture that goes on, innermost first */
};

static_assert(sizeof(struct memory) <= HL_SCRIPT_MEMORY_BYTES, "the recorder has room for it");

static inline uint8_t *place_of(struct memory *memory, uint64_t frame)
{
	return &memory->places[frame * UINT64_C(0x9e3779b97f4a7c15) >> (64 - PLACE_BITS)];
}

/*
 * Whether a frame is as it was in ${step}. Where the address of an instruction is kept, it is one in its code
 * object, and tells a mark from a function.
 */
static inline __attribute__((always_inline)) bool
is_unchanged(const struct hl_python_layout *layout, const struct step *step)
{
	uint64_t frame = step->frame;

	return hl_python_word(frame, layout->frame_previous) == step->previous &&
	       raw_at(layout, frame) == step->at &&
	       (!layout->at_is_index || hl_python_word(frame, layout->frame_code) == step->code) &&
	       (layout->mark_owner || mark_of(layout, frame) == step->mark);
}

/* The outermost ${depth} steps end with the innermost that is not as it was; 0: all of those are. */
static inline __attribute__((always_inline)) uint32_t
changed_depth(const struct hl_python_layout *layout, const struct memory *memory, uint32_t depth)
{
	for (const struct step *step = memory->steps + depth; step != memory->steps;) {
		step--;
		if (HL_UNLIKELY(!is_unchanged(layout, step)))
			return (uint32_t)(step + 1 - memory->steps);
	}
	return 0;
}

/* Puts the ${count} fresh steps inward of the outermost ${kept}; how many frames those gave. */
static inline uint32_t remember(struct memory *memory, uint32_t kept, uint32_t count)
{
	const uint16_t kept_given = kept ? memory->steps[kept - 1].given : 0;
	uint16_t given = kept_given;

	for (; count; kept++) {
		struct step *step = &memory->steps[kept];
		*step = memory->fresh[--count];
		given = (uint16_t)(given + step->is_given);
		step->given = given;
		*place_of(memory, step->frame) = (uint8_t)kept;
	}
	memory->depth = kept;
	return kept_given;
}

/* ---- the walk ---- */

/* For a mark without a frame inward of it: a frame is forgotten before what it holds is let go, and destructors,
 * callbacks and tracebacks allocate there. */
static inline __attribute__((always_inline)) void give_ended(const struct hl_python *python,
							     struct hl_script_frame *ret_frame)
{
	*ret_frame = (struct hl_script_frame){.function = python->api.eval_start, .is_entry = true};
}

/* What ${frame}, which runs ${code}, gives. */
static inline __attribute__((always_inline)) void give(const struct hl_python *python,
						       const struct hl_python_layout *layout,
						       uint64_t frame, uint64_t code, uint8_t mark,
						       struct hl_script_frame *ret_frame)
{
	uint32_t print = python->ends_are_told ? 0 : print_of(layout, code);
	bool is_entry = !layout->mark_owner && mark;
	uint64_t place = at_of(layout, frame, code) | (uint64_t)(uint16_t)print << 32 |
			 (uint64_t)is_entry << 48;

	/* In one piece, as it is compared: loads wait for several smaller stores. */
	ret_frame->function = code | (uint64_t)(print >> 16) << HL_PYTHON_CODE_BITS;
	__builtin_memcpy(&ret_frame->at, &place, sizeof(place));
}

static inline __attribute__((always_inline)) uint32_t
walk_frames(const struct hl_python *python, const struct hl_python_layout *layout, uint64_t state,
	    struct hl_script_frame *frames, uint32_t max, struct hl_script_memory *known,
	    bool *ret_truncated)
{
	struct memory *memory = (struct memory *)known->bytes;
	uint32_t count = 0, fresh = 0, kept = 0;
	uint32_t marked = 0;		/* up to here frames have their entry */
	uint32_t depth = memory->depth; /* of the steps that may be as they were */

	memory->depth = 0;
	if (!depth || memory->steps[depth - 1].given != known->known || !python->ends_are_told)
		depth = 0;
	for (uint64_t frame = first_frame(layout, state), outer; frame; frame = outer) {
		uint8_t mark = mark_of(layout, frame);
		bool is_mark = layout->mark_owner && mark >= layout->mark_owner;
		uint32_t at = *place_of(memory, frame);
		/* A mark is told of the frame inward of it, so it is kept with that alone. */
		if (at < depth && memory->steps[at].frame == frame && !is_mark) {
			depth = changed_depth(layout, memory, at + 1);
			if (HL_LIKELY(!depth)) {
				kept = at + 1;
				break;
			}
			depth--;
		}
		outer = hl_python_word(frame, layout->frame_previous);
		uint64_t word = hl_python_word(frame, layout->frame_code), code = word & ~TAG_MASK;
		bool is_given = is_mark ? count == marked
					: !(layout->mark_owner &&
					    HL_UNLIKELY(is_helper(python, layout, code)));
		if (HL_LIKELY(fresh < STEPS_MAX))
			memory->fresh[fresh] = (struct step){
				frame, outer, word, raw_at(layout, frame), mark, is_given, 0};
		fresh++;
		if (is_mark && !is_given) {
			frames[count - 1].is_entry = true;
			marked = count;
		}
		if (!is_given)
			continue;
		if (HL_UNLIKELY(count == max)) {
			*ret_truncated = true;
			return count;
		}
		if (is_mark) {
			give_ended(python, &frames[count]);
			marked = ++count;
		} else {
			give(python, layout, frame, code, mark, &frames[count++]);
		}
	}
	if (HL_UNLIKELY(kept + fresh > STEPS_MAX || kept + fresh > max))
		return kept ? HL_SCRIPT_GAVE_UP : count; /* nothing is remembered now */
	if (HL_LIKELY(python->ends_are_told))
		known->kept = remember(memory, kept, fresh);
	return count;
}

/* With offsets that the compiler knows. */
#define WALK(minor)                                                                                \
	case minor:                                                                                \
		return walk_frames(python, &hl_python_layouts[(minor)-HL_PYTHON_MINOR_MIN], state, \
				   frames, max, known, ret_truncated)

static uint32_t walk(const struct hl_python *python, uint64_t state, struct hl_script_frame *frames,
		     uint32_t max, struct hl_script_memory *known, bool *ret_truncated)
{
	switch (python->layout->minor) {
		WALK(8);
		WALK(9);
		WALK(10);
		WALK(11);
		WALK(12);
		WALK(13);
		WALK(14);
	default:
		return 0;
	}
}

/* Whether the function of the innermost step, which has changed, only runs on, as a loop does. */
static inline __attribute__((always_inline)) bool runs_on(const struct hl_python_layout *layout,
							  const struct step *step)
{
	uint64_t frame = step->frame;

	return step->is_given && !(layout->mark_owner && step->mark >= layout->mark_owner) &&
	       hl_python_word(frame, layout->frame_code) == step->code &&
	       hl_python_word(frame, layout->frame_previous) == step->previous &&
	       mark_of(layout, frame) == step->mark;
}

/* Whether the frame that is given of the innermost of ${depth} steps is followed by a mark. */
static inline __attribute__((always_inline)) bool
is_before_mark(const struct hl_python_layout *layout, const struct memory *memory, uint32_t depth)
{
	const struct step *step = memory->steps + depth - 1;

	while (layout->mark_owner && step-- != memory->steps)
		if (step->is_given || step->mark >= layout->mark_owner)
			return !step->is_given;
	return false;
}

/* All that it needs has been proved by the capture that filled ${known}. */
static inline __attribute__((always_inline)) uint32_t
recapture(const struct hl_python *python, const struct hl_python_layout *layout,
	  struct hl_script_memory *known, struct hl_script_frame *frames, uint32_t max)
{
	struct memory *memory = (struct memory *)known->bytes;
	uint32_t depth = memory->depth;
	bool truncated = false;

	uint64_t state = HL_LIKELY(depth) ? find_state(python, layout) : 0;
	if (HL_UNLIKELY(!state))
		return HL_SCRIPT_GAVE_UP;
	struct step *last = &memory->steps[depth - 1];
	bool is_last = first_frame(layout, state) == last->frame;
	uint32_t changed = is_last ? changed_depth(layout, memory, depth) : depth;
	if (!changed) {
		known->kept = last->given;
		return 0;
	}
	if (is_last && changed == depth && runs_on(layout, last) &&
	    !changed_depth(layout, memory, depth - 1)) {
		give(python, layout, last->frame, last->code & ~TAG_MASK, last->mark, frames);
		frames->is_entry |= is_before_mark(layout, memory, depth);
		last->at = raw_at(layout, last->frame);
		known->kept = last->given - 1u;
		return 1;
	}
	uint32_t count = walk_frames(python, layout, state, frames, max, known, &truncated);
	return truncated ? HL_SCRIPT_GAVE_UP : count;
}

#define RECAPTURE(minor)                                                                          \
	static uint32_t recapture_##minor(const struct hl_python *python,                         \
					  struct hl_script_memory *memory,                        \
					  struct hl_script_frame *frames, uint32_t max)           \
	{                                                                                         \
		return recapture(python, &hl_python_layouts[(minor)-HL_PYTHON_MINOR_MIN], memory, \
				 frames, max);                                                    \
	}
RECAPTURE(8)
RECAPTURE(9)
RECAPTURE(10)
RECAPTURE(11)
RECAPTURE(12)
RECAPTURE(13)
RECAPTURE(14)

hl_python_recapture_fn *hl_python_recapture(const struct hl_python *python)
{
	switch (python->layout->minor) {
	case 8:
		return recapture_8;
	case 9:
		return recapture_9;
	case 10:
		return recapture_10;
	case 11:
		return recapture_11;
	case 12:
		return recapture_12;
	case 13:
		return recapture_13;
	default:
		return recapture_14;
	}
}

/* ---- proof ---- */

/* Whether ${object} has a type that is called ${name}, of at most seven bytes. */
HL_READS_STACK static bool is_of_type(uint64_t object, const char *name, uint64_t *ret_type)
{
	if (!hl_memory_object_is_readable(object, STRING_BYTES))
		return false;
	uint64_t type = hl_python_word(object, HL_PYTHON_TYPE);
	if (!hl_memory_object_is_readable(type, TYPE_BYTES))
		return false;
	uint64_t text = hl_python_word(type, HL_PYTHON_TYPE_NAME);
	if (!hl_memory_object_is_readable(text & ~UINT64_C(7), 16))
		return false;
	for (const char *at = (const char *)text; *at == *name; at++, name++)
		if (!*name) {
			*ret_type = type;
			return true;
		}
	return false;
}

/* The type may have been copied into a program that was linked against the library: it is the one that
 * code objects have. Those of frozen modules lie in the program, where compilers align them to 8 on aarch64. */
static bool is_code(const struct hl_python *python, uint64_t code, uint64_t *ret_type)
{
	const struct hl_python_layout *layout = python->layout;
	uint64_t string, bytes;

	return !(code & 7) && hl_memory_object_is_readable(code, CODE_BYTES) &&
	       is_of_type(code, "code", ret_type) &&
	       is_of_type(hl_python_word(code, layout->code_name), "str", &string) &&
	       is_of_type(hl_python_word(code, layout->code_file), "str", &string) &&
	       is_of_type(hl_python_word(code, layout->code_lines), "bytes", &bytes);
}

static bool is_at_in_code(const struct hl_python_layout *layout, uint64_t code, uint32_t at)
{
	uint64_t count = hl_python_word(code, HL_PYTHON_SIZE);

	/* Until 3.10 the instructions are an object of their own, at 48. */
	if (layout->at_is_index)
		return at <= hl_python_word(hl_python_word(code, 48), HL_PYTHON_SIZE);
	return at <= count + 1;
}

/* Whether all that walk_frames() reads is there and in order. *${ret_marks}: entries among the frames. */
static bool check_frames(const struct hl_python *python, uint64_t state, uint64_t *ret_type,
			 uint32_t *ret_marks)
{
	const struct hl_python_layout *layout = python->layout;
	uint32_t marks = 0;

	if (!hl_memory_object_is_readable(state, 184) ||
	    (layout->has_cframe && hl_python_word(state, layout->state_frame) &&
	     !hl_memory_object_is_readable(hl_python_word(state, layout->state_frame), 16)))
		return false;
	uint64_t frame = first_frame(layout, state);
	for (uint32_t i = 0; frame && i < CHECKED_MAX; i++) {
		if (!hl_memory_object_is_readable(frame, FRAME_BYTES))
			return false;
		uint8_t mark = layout->frame_mark ? hl_python_byte(frame, layout->frame_mark) : 1;
		uint64_t code = hl_python_word(frame, layout->frame_code) & ~TAG_MASK;
		bool is_mark = layout->mark_owner && mark >= layout->mark_owner;
		if (mark > layout->mark_owner + 1u)
			return false;
		if (!is_mark && !(is_code(python, code, ret_type) &&
				  is_at_in_code(layout, code, at_of(layout, frame, code))))
			return false;
		marks += layout->mark_owner ? is_mark : mark;
		frame = hl_python_word(frame, layout->frame_previous);
	}
	*ret_marks = marks;
	return true;
}

static __attribute__((noinline)) bool prove(struct hl_python *python, uint64_t state,
					    const struct hl_script_caller *caller)
{
	/* Fewer calls, where the stack cannot be walked to its end. */
	const struct hl_saved_range mains[] = {{python->api.eval_start, python->api.eval_end},
					       {python->cold_start, python->cold_end}};
	uint32_t marks = 0;
	uint64_t type = 0;
	uint32_t calls = hl_saved_count_calls(caller->unwind, caller->walk, caller->registers,
					      caller->saved, mains, HL_COUNT_OF(mains));

	if (!calls || hl_python_is_refused(python))
		return false; /* nothing runs, or nothing that can be compared */
	if (!check_frames(python, state, &type, &marks) || calls > marks) {
		atomic_fetch_add_explicit(&python->failures, 1, memory_order_relaxed);
		return false;
	}
	if (!type)
		return false; /* entries alone, as where the last function has just returned */
	atomic_store_explicit(&python->code_type, type, memory_order_relaxed);
	atomic_fetch_add_explicit(&python->proofs, 1, memory_order_release);
	return true;
}

bool hl_python_is_refused(const struct hl_python *python)
{
	return atomic_load_explicit(&python->proofs, memory_order_relaxed) < PROOFS &&
	       atomic_load_explicit(&python->failures, memory_order_relaxed) >= FAILURES;
}

uint32_t hl_python_capture(struct hl_python *python, const struct hl_script_caller *caller,
			   struct hl_script_frame *frames, uint32_t max, bool *ret_truncated)
{
	uint64_t state = find_state(python, python->layout);

	if (!state)
		return 0;
	if (HL_UNLIKELY(atomic_load_explicit(&python->proofs, memory_order_acquire) < PROOFS) &&
	    !prove(python, state, caller))
		return 0;
	uint32_t count;
	do
		count = walk(python, state, frames, max, caller->memory, ret_truncated);
	while (HL_UNLIKELY(count == HL_SCRIPT_GAVE_UP));
	return count;
}
