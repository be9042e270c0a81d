/* SPDX-License-Identifier: BSD-2-Clause */
/* Captures the frames of Ruby that the calling thread runs; see ruby.h. */
#include "guests/ruby/ruby.h"

#include "base/machine.h"
#include "unwind/rule_cache.h"
#include "unwind/saved.h"

#include <assert.h>

/* Captures that must be in order before one is read without checks, and how many may fail until then. */
#define PROOFS	    16u
#define FAILURES    4u
#define CHECKED_MAX 1024u /* frames; of a deeper stack the inner ones are checked */
#define BODY_BYTES  160u  /* as far as one is read, and more */

/* ---- the thread's context ---- */

#define UNALLOCATED UINT64_MAX

/*
 * Where the calling thread has the address of its context; 0: nowhere. As __tls_get_addr() of glibc finds it, which would allocate
 * what is not there: a thread that runs Ruby has it. The table begins with a generation, and the word before that says how many modules
 * it has.
 */
HL_READS_STACK static inline uint64_t place_of_context(const struct hl_ruby *ruby)
{
	if (HL_UNLIKELY(!ruby->tls))
		return hl_machine_thread_pointer() + (uint64_t)ruby->tls_offset;
	uint64_t module = ruby->tls[0];
	uint64_t table = *(const uint64_t *)(hl_machine_thread_pointer() + HL_MACHINE_DTV);
	if (HL_UNLIKELY(module > *(const uint64_t *)(table - 16)))
		return 0;
	uint64_t memory = *(const uint64_t *)(table + 16 * module);
	/* 0: the thread is older than the module. */
	return HL_LIKELY(memory && memory != UNALLOCATED) ? memory + ruby->tls[1] : 0;
}

static inline uint64_t find_context(const struct hl_ruby *ruby)
{
	uint64_t place = place_of_context(ruby);

	return HL_LIKELY(place) ? hl_ruby_word(place, 0) : 0;
}

/* Where its frames begin, which is the innermost, and end. False: it has none, as before it runs and once it has ended. */
static inline bool find_frames(uint64_t context, uint64_t *ret_frame, uint64_t *ret_end)
{
	uint64_t stack = hl_ruby_word(context, HL_RUBY_CONTEXT_STACK);

	*ret_frame = hl_ruby_word(context, HL_RUBY_CONTEXT_FRAME);
	*ret_end = stack + 8 * hl_ruby_word(context, HL_RUBY_CONTEXT_WORDS);
	return stack && *ret_frame >= stack && *ret_frame < *ret_end;
}

/* ---- frames ---- */

/* All that is read of a frame: if it is as it was, what is given of the frame is, too. */
struct step {
	uint64_t pc, iseq, environment;
	uint32_t flags;
	uint16_t given; /* how many of the steps up to this one, the outermost first, are */
};

#define STEPS_MAX 1024u

struct memory {
	uint64_t end; /* of the frames */
	uint32_t depth;
	struct step steps[STEPS_MAX]; /* outermost first */
};

static_assert(sizeof(struct memory) <= HL_SCRIPT_MEMORY_BYTES, "the recorder has room for it");

static inline uint32_t flags_of(uint64_t environment)
{
	return (uint32_t)hl_ruby_word(environment, 0) & HL_RUBY_FLAGS;
}

static inline bool is_unchanged(uint64_t frame, const struct step *step)
{
	uint64_t environment = hl_ruby_word(frame, HL_RUBY_FRAME_ENV);

	return hl_ruby_word(frame, HL_RUBY_FRAME_PC) == step->pc &&
	       hl_ruby_word(frame, HL_RUBY_FRAME_ISEQ) == step->iseq &&
	       environment == step->environment && flags_of(environment) == step->flags;
}

/*
 * Another body at the same address mostly differs in one of these: where its texts, its code and its lines are, how
 * much of each there is, and how its name ends.
 */
static __attribute__((noinline)) uint32_t print_of(const struct hl_ruby_layout *layout,
						   uint64_t body)
{
	struct hl_ruby_text name = hl_ruby_text(layout, hl_ruby_word(body, HL_RUBY_BODY_NAME));
	const uint64_t parts[] = {
		hl_ruby_word(body, HL_RUBY_BODY_CODE),
		hl_ruby_word(body, HL_RUBY_BODY_PATH),
		hl_ruby_word(body, layout->body_lines),
		hl_ruby_number(body, HL_RUBY_BODY_WORDS),
		hl_ruby_word(body, HL_RUBY_BODY_LINE),
		hl_ruby_number(body, layout->body_line_count),
		(uint64_t)name.bytes,
	};
	uint64_t print = name.count, end;

	if (name.count >= sizeof(end)) {
		__builtin_memcpy(&end, name.bytes + name.count - sizeof(end), sizeof(end));
		print ^= end;
	}
	for (unsigned i = 0; i < HL_COUNT_OF(parts); i++)
		print = (print ^ parts[i]) * UINT64_C(0x9e3779b97f4a7c15);
	return (uint32_t)(print >> 32);
}

/* What ${step} gives. False: nothing, as it is a function of C, or the collector is about to move it. */
static inline __attribute__((always_inline)) bool give(const struct hl_ruby_layout *layout,
						       const struct step *step,
						       struct hl_script_frame *ret_frame)
{
	if (!hl_ruby_is_function(step->flags) || !step->pc || !hl_ruby_is_object(step->iseq))
		return false;
	uint64_t iseq = hl_ruby_place(step->iseq);
	if (HL_UNLIKELY(!hl_ruby_is_iseq(iseq)))
		return false;
	uint64_t body = hl_ruby_word(iseq, HL_RUBY_ISEQ_BODY);
	uint64_t at = (step->pc - hl_ruby_word(body, HL_RUBY_BODY_CODE)) / 8;
	uint32_t print = print_of(layout, body);
	uint64_t place = (uint32_t)at | (uint64_t)(uint16_t)print << 32 |
			 (uint64_t)((step->flags & HL_RUBY_FLAG_FINISH) != 0) << 48;

	/* In one piece, as it is compared: loads wait for several smaller stores. */
	ret_frame->function = body | (uint64_t)(print >> 16) << HL_RUBY_BODY_BITS;
	__builtin_memcpy(&ret_frame->at, &place, sizeof(place));
	return true;
}

static inline struct step read_step(uint64_t frame)
{
	struct step step = {
		.pc = hl_ruby_word(frame, HL_RUBY_FRAME_PC),
		.iseq = hl_ruby_word(frame, HL_RUBY_FRAME_ISEQ),
		.environment = hl_ruby_word(frame, HL_RUBY_FRAME_ENV),
	};

	step.flags = flags_of(step.environment);
	return step;
}

/* How many of the outermost steps are as they were in the last capture. */
static inline __attribute__((always_inline)) uint32_t
count_kept(const struct memory *memory, uint32_t frame_bytes, uint64_t end, uint32_t depth)
{
	uint32_t kept = 0, most = memory->depth < depth ? memory->depth : depth;

	for (uint64_t frame = end; kept < most; kept++) {
		frame -= frame_bytes;
		if (HL_UNLIKELY(!is_unchanged(frame, &memory->steps[kept])))
			break;
	}
	return kept;
}

/* Of a stack that is not remembered: its inner frames. */
static __attribute__((noinline)) uint32_t walk_all(const struct hl_ruby_layout *layout,
						   uint64_t frame, uint64_t end,
						   struct hl_script_frame *frames, uint32_t max,
						   bool *ret_truncated)
{
	uint32_t count = 0;
	struct hl_script_frame one = {0};

	for (; frame < end; frame += layout->frame_bytes) {
		struct step step = read_step(frame);
		if (!give(layout, &step, &one))
			continue;
		if (count == max) {
			*ret_truncated = true;
			break;
		}
		frames[count++] = one;
	}
	return count;
}

/* Reads the steps inward of the outermost ${kept}, and fills ${frames} with what they give; how many, or HL_SCRIPT_GAVE_UP: with those
 * that are kept there are more than ${max}. */
static inline __attribute__((always_inline)) uint32_t
read_steps(const struct hl_ruby_layout *layout, uint32_t frame_bytes, struct memory *memory,
	   uint64_t frame, uint32_t kept, struct hl_script_frame *frames, uint32_t max)
{
	uint16_t given = kept ? memory->steps[kept - 1].given : 0;
	uint32_t count = 0;

	for (uint32_t i = memory->depth; i-- > kept; frame += frame_bytes) {
		struct step *step = &memory->steps[i];
		*step = read_step(frame);
		if (HL_UNLIKELY(given + count >= max))
			return HL_SCRIPT_GAVE_UP;
		step->given = give(layout, step, &frames[count]);
		count += step->given;
	}
	for (uint32_t i = kept; i < memory->depth; i++)
		memory->steps[i].given = given = (uint16_t)(given + memory->steps[i].given);
	return count;
}

static inline __attribute__((always_inline)) uint32_t
walk_frames(const struct hl_ruby_layout *layout, uint32_t frame_bytes, uint64_t context,
	    struct hl_script_memory *known, struct hl_script_frame *frames, uint32_t max,
	    bool *ret_truncated)
{
	struct memory *memory = (struct memory *)known->bytes;
	uint64_t frame, end;

	if (HL_UNLIKELY(!find_frames(context, &frame, &end)))
		return 0;
	uint64_t depth = (end - frame) / frame_bytes;
	if (HL_UNLIKELY(memory->end != end || !memory->depth ||
			memory->steps[memory->depth - 1].given != known->known))
		memory->depth = 0;
	if (HL_LIKELY(depth <= STEPS_MAX)) {
		uint32_t kept = count_kept(memory, frame_bytes, end, (uint32_t)depth);
		memory->end = end;
		memory->depth = (uint32_t)depth;
		uint32_t count = read_steps(layout, frame_bytes, memory, frame, kept, frames, max);
		known->kept = kept ? memory->steps[kept - 1].given : 0;
		if (HL_LIKELY(count != HL_SCRIPT_GAVE_UP))
			return count;
	}
	memory->depth = 0;
	known->kept = 0;
	return walk_all(layout, frame, end, frames, max, ret_truncated);
}

/* With an offset that the compiler knows. */
static inline uint32_t walk(const struct hl_ruby *ruby, uint64_t context,
			    struct hl_script_memory *known, struct hl_script_frame *frames,
			    uint32_t max, bool *ret_truncated)
{
	const struct hl_ruby_layout *layout = ruby->layout;

	return layout->frame_bytes == 64
		       ? walk_frames(layout, 64, context, known, frames, max, ret_truncated)
		       : walk_frames(layout, 56, context, known, frames, max, ret_truncated);
}

uint32_t hl_ruby_recapture(const struct hl_ruby *ruby, struct hl_script_memory *memory,
			   struct hl_script_frame *frames, uint32_t max)
{
	uint64_t context = find_context(ruby);
	bool truncated = false;

	if (HL_UNLIKELY(!context))
		return HL_SCRIPT_GAVE_UP;
	uint32_t count = walk(ruby, context, memory, frames, max, &truncated);
	return truncated ? HL_SCRIPT_GAVE_UP : count;
}

/* ---- generated code ---- */

/*
 * YJIT's code is entered from the interpreter's. It pushes three registers, rbp is not among them, and some
 * words more where it calls functions with all of its registers kept; methods that it calls itself are of the same frame.
 */
#define GENERATED_WORDS_MIN 4u /* with the return address */
#define GENERATED_WORDS_MAX 10u

HL_READS_STACK uint64_t hl_ruby_generated_frame(const struct hl_ruby *ruby, struct hl_walk *walk,
						uint64_t sp)
{
	for (uint32_t i = GENERATED_WORDS_MIN; i <= GENERATED_WORDS_MAX; i++) {
		uint64_t at = sp + 8 * (i - 1);
		if (!hl_memory_is_readable(walk, at))
			return 0;
		uint64_t pc = hl_ruby_word(at, 0);
		if (pc - 8 - ruby->api.start < ruby->api.end - 8 - ruby->api.start &&
		    hl_instructions_follow_call((const uint8_t *)pc))
			return 8 * (uint64_t)i;
	}
	return 0;
}

/* ---- proof ---- */

/* Whether all that is read of ${step} is there and in order. */
static bool check_step(const struct hl_ruby *ruby, const struct step *step)
{
	const struct hl_ruby_layout *layout = ruby->layout;

	if (!hl_memory_object_is_readable(step->iseq, 24))
		return false;
	uint64_t iseq = hl_ruby_place(step->iseq);
	if (!hl_memory_object_is_readable(iseq, 24) || !hl_ruby_is_iseq(iseq))
		return false;
	uint64_t body = hl_ruby_word(iseq, HL_RUBY_ISEQ_BODY);
	if (!hl_memory_object_is_readable(body, BODY_BYTES))
		return false;
	uint64_t code = hl_ruby_word(body, HL_RUBY_BODY_CODE);
	uint64_t words = hl_ruby_number(body, HL_RUBY_BODY_WORDS);
	uint64_t name = hl_ruby_word(body, HL_RUBY_BODY_NAME),
		 path = hl_ruby_word(body, HL_RUBY_BODY_PATH);
	return step->pc - code <= 8 * words && !(step->pc & 7) &&
	       hl_memory_object_is_readable(code, 8) &&
	       hl_ruby_word(code, 0) - ruby->loop_start < ruby->loop_end - ruby->loop_start &&
	       hl_memory_object_is_readable(hl_ruby_word(body, layout->body_lines), 8) &&
	       hl_memory_object_is_readable(name, 40) && hl_memory_object_is_readable(path, 40) &&
	       *hl_ruby_text(layout, name).bytes != '?' &&
	       hl_memory_object_is_readable(hl_ruby_path(body), 40) &&
	       *hl_ruby_text(layout, hl_ruby_path(body)).bytes != '?';
}

/* Whether all frames are there and in order. *${ret_entries}: those of Ruby that native code has called; UINT32_MAX: unknown, as
 * not all have been checked. */
static bool check_frames(const struct hl_ruby *ruby, uint64_t context, uint32_t *ret_entries)
{
	uint32_t frame_bytes = ruby->layout->frame_bytes;
	uint64_t frame, end;

	*ret_entries = 0;
	if (!hl_memory_object_is_readable(context, 24))
		return false;
	if (!find_frames(context, &frame, &end))
		return true; /* none is running */
	if ((end - frame) % frame_bytes)
		return false;
	for (uint32_t i = 0; frame < end; i++, frame += frame_bytes) {
		if (i == CHECKED_MAX) {
			*ret_entries = UINT32_MAX;
			break;
		}
		if (!hl_memory_object_is_readable(frame, frame_bytes) ||
		    !hl_memory_object_is_readable(hl_ruby_word(frame, HL_RUBY_FRAME_ENV), 8))
			return false;
		struct step step = read_step(frame);
		if (!hl_ruby_is_function(step.flags) || !step.pc)
			continue;
		if (!check_step(ruby, &step))
			return false;
		*ret_entries += (step.flags & HL_RUBY_FLAG_FINISH) != 0;
	}
	return true;
}

static __attribute__((noinline)) bool prove(struct hl_ruby *ruby,
					    const struct hl_script_caller *caller)
{
	const struct hl_saved_range mains[] = {{ruby->eval_start, ruby->eval_end}};
	uint32_t entries = 0;

	if (hl_ruby_is_refused(ruby))
		return false;
	uint32_t calls = hl_saved_count_calls(caller->unwind, caller->walk, caller->registers,
					      caller->saved, mains, HL_COUNT_OF(mains));
	uint64_t place = calls ? place_of_context(ruby) : 0;
	if (!place)
		return false; /* nothing runs, or nothing that can be compared */
	uint64_t context = hl_memory_object_is_readable(place, 8) ? hl_ruby_word(place, 0) : 0;
	if (!check_frames(ruby, context, &entries) || calls > entries) {
		atomic_fetch_add_explicit(&ruby->failures, 1, memory_order_relaxed);
		return false;
	}
	atomic_fetch_add_explicit(&ruby->proofs, 1, memory_order_release);
	return true;
}

bool hl_ruby_is_refused(const struct hl_ruby *ruby)
{
	return atomic_load_explicit(&ruby->proofs, memory_order_relaxed) < PROOFS &&
	       atomic_load_explicit(&ruby->failures, memory_order_relaxed) >= FAILURES;
}

uint32_t hl_ruby_capture(struct hl_ruby *ruby, const struct hl_script_caller *caller,
			 struct hl_script_frame *frames, uint32_t max, bool *ret_truncated)
{
	if (HL_UNLIKELY(atomic_load_explicit(&ruby->proofs, memory_order_acquire) < PROOFS) &&
	    !prove(ruby, caller))
		return 0;
	uint64_t context = find_context(ruby);
	return context ? walk(ruby, context, caller->memory, frames, max, ret_truncated) : 0;
}
