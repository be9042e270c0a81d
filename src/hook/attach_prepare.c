/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes the bytes that will lie in the target; see attach_parts.h. */
#include "hook/attach_parts.h"

#include "base/cleanup.h"
#include "hook/room.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CODE_READ_MAX \
	(64 * HL_ATTACH_PAGE_BYTES) /* of a function, to look for jumps into its entry */

void hl_attach_forget_blocks(struct hl_attach *attach)
{
	for (size_t i = 0; i < HL_RECORD_BLOCKS_MAX; i++)
		free(attach->blocks[i].bytes);
	memset(attach->blocks, 0, sizeof(attach->blocks));
	hl_image_release(&attach->image);
}

static int no_room(const struct hl_attach *attach, const char *module, struct hl_error *err)
{
	return hl_error_set(err, -ENOMEM,
			    "process %d has no free addresses within 2 GiB of the code of '%s'",
			    attach->pid, module);
}

static int make_block(struct hl_attach *attach, const struct hl_entry *near, uint64_t size,
		      struct hl_error *err)
{
	uint32_t index = attach->record.block_count;

	if (index == HL_RECORD_BLOCKS_MAX)
		return no_room(attach, near->module, err);
	struct hl_attach_block *block = &attach->blocks[index];
	*block = (struct hl_attach_block){.size = size, .bytes = calloc(1, size)};
	block->address = hl_room_find(&attach->maps, near->address, size);
	if (!block->bytes)
		return hl_error_set(err, -ENOMEM, "out of memory");
	if (!block->address)
		return no_room(attach, near->module, err);
	attach->record.blocks[index] = (struct hl_record_block){block->address, size};
	attach->record.block_count++;
	return 0;
}

/* malloc, or what allocates where there is none. */
static const struct hl_entry *main_entry(const struct hl_attach *attach)
{
	for (uint32_t i = 0; i < attach->found.count; i++)
		if (attach->found.entries[i].hook == HL_HOOK_MALLOC)
			return &attach->found.entries[i];
	return &attach->found.extras[0];
}

/* The block near malloc: record page, image, trampolines. */
static int make_first_block(struct hl_attach *attach, struct hl_error *err)
{
	int r = hl_image_load(&attach->image, err);

	if (r < 0)
		return r;
	uint64_t image_end = HL_ATTACH_PAGE_BYTES + attach->image.size;
	r = make_block(attach, main_entry(attach), image_end + HL_ATTACH_TRAMPOLINE_BYTES, err);
	if (r < 0)
		return r;
	struct hl_attach_block *block = &attach->blocks[0];
	hl_image_relocate(&attach->image, block->address + HL_ATTACH_PAGE_BYTES);
	memcpy(block->bytes + HL_ATTACH_PAGE_BYTES, attach->image.bytes, attach->image.size);
	block->used = image_end;
	attach->record.attached = block->address + HL_ATTACH_PAGE_BYTES + attach->image.attached;
	return 0;
}

/* The block from which ${entry} can be reached, made if need be. */
static int choose_block(struct hl_attach *attach, const struct hl_entry *entry,
			struct hl_attach_block **ret_block, struct hl_error *err)
{
	for (uint32_t i = 0; i < attach->record.block_count; i++) {
		struct hl_attach_block *block = &attach->blocks[i];
		if (hl_room_reaches(block->address, block->size, entry->address) &&
		    block->size - block->used >= HL_ATTACH_ROOM_MAX) {
			*ret_block = block;
			return 0;
		}
	}
	*ret_block = &attach->blocks[attach->record.block_count];
	return make_block(attach, entry, HL_ATTACH_PAGE_BYTES, err);
}

/* The way from an entry to ${hook}, wherever that is; on it ${stack_bytes} are added to the stack
 * pointer, which the function's first instruction has taken. Where it begins. */
static uint64_t put_way(struct hl_attach_block *block, int32_t stack_bytes, uint64_t hook)
{
	static const uint8_t add[] = {0x48, 0x8d, 0xa4, 0x24};	/* lea stack_bytes(%rsp), %rsp */
	static const uint8_t jump[] = {0xff, 0x25, 0, 0, 0, 0}; /* jmp *0(%rip) */
	uint64_t at = block->address + block->used;
	uint8_t *code = block->bytes + block->used, *start = code;

	if (stack_bytes) {
		memcpy(code, add, sizeof(add));
		memcpy(code + sizeof(add), &stack_bytes, sizeof(stack_bytes));
		code += sizeof(add) + sizeof(stack_bytes);
	}
	if (hl_relocate_jump(at + (uint64_t)(code - start), hook, code) == 0) {
		code += HL_PATCH_BYTES;
	} else {
		memcpy(code, jump, sizeof(jump));
		memcpy(code + sizeof(jump), &hook, sizeof(hook));
		code += sizeof(jump) + sizeof(hook);
	}
	block->used += ((uint64_t)(code - start) + 15) & ~UINT64_C(15);
	return at;
}

/*
 * glibc's functions call others of their library, of other files: no caller can know that they leave
 * a register alone.
 */
static uint64_t hook_of(const struct hl_attach *attach, const struct hl_entry *entry, int rule)
{
	const struct hl_attached attached = hl_image_attached(&attach->image);

	if (rule != HL_ATTACH_NO_RULE)
		return attached.rule_stubs + (uint64_t)rule * HL_ATTACHED_RULE_STUB_BYTES;
	if (attach->found.has_glibc_chunks && attached.light_hooks[entry->hook] &&
	    !strcmp(entry->module, main_entry(attach)->module))
		return attached.light_hooks[entry->hook];
	return attached.hooks[entry->hook];
}

/* Reads all of a function and the padding behind it, for jumps back to its beginning. */
static int read_function(struct hl_attach *attach, const struct hl_entry *entry, uint8_t **ret_code,
			 size_t *ret_size, struct hl_error *err)
{
	size_t size = entry->bytes ? (entry->bytes + 15) & ~UINT64_C(15) : HL_ENTRY_MAX;

	if (size < HL_ENTRY_MAX)
		size = HL_ENTRY_MAX;
	if (entry->bytes > CODE_READ_MAX)
		return hl_error_set(err, -ENOTSUP,
				    "'%s' of process %d is longer than any allocator's function",
				    entry->name, attach->pid);
	*ret_code = malloc(size);
	if (!*ret_code)
		return hl_error_set(err, -ENOMEM, "out of memory");
	if (!hl_remote_read(attach->remote, entry->address, *ret_code, size)) {
		free(*ret_code);
		*ret_code = NULL;
		return hl_error_set(
			err, -ENOTSUP,
			"the code of '%s' of process %d cannot be read: '%s' may just have been "
			"unloaded; try again",
			entry->name, attach->pid, entry->module);
	}
	*ret_size = size;
	return 0;
}

/* Where a jump for ${entry} stands behind the first ${first_bytes}, which take ${stack_bytes} of the
 * stack. ${code} is the function's. */
static int prepare_behind(struct hl_attach *attach, const struct hl_entry *entry, uint64_t hook,
			  struct hl_attach_block *block, const uint8_t *code, size_t size,
			  size_t first_bytes, int32_t stack_bytes, struct hl_error *err)
{
	struct hl_attach_patch *patch = &attach->patches[attach->record.patch_count];
	uint64_t address = entry->address + first_bytes, start = block->used;
	uint64_t function_bytes = entry->bytes ? entry->bytes - first_bytes : 0;
	struct hl_relocated moved;

	*patch = (struct hl_attach_patch){
		.entry = entry, .word = entry->word, .word_addend = entry->word_addend};
	if (stack_bytes || !hl_room_reaches(hook, 1, address))
		hook = put_way(block, stack_bytes, hook);
	patch->real = block->address + block->used;
	patch->trampoline = patch->real + first_bytes;
	int r = hl_relocate(code + first_bytes, size - first_bytes, address, function_bytes,
			    patch->trampoline, &moved, err);
	if (r == 0)
		r = hl_relocate_jump(address, hook, patch->in_record.jump);
	if (r < 0) {
		block->used = start;
		return r;
	}
	memcpy(block->bytes + block->used, code, first_bytes);
	memcpy(block->bytes + block->used + first_bytes, moved.code, moved.code_bytes);
	block->used += (first_bytes + moved.code_bytes + UINT64_C(15)) & ~UINT64_C(15);
	patch->room = block->address + start;
	patch->room_end = block->address + block->used;
	patch->entry_bytes = moved.entry_bytes;
	memcpy(patch->twin, moved.twin, sizeof(patch->twin));
	patch->in_record.address = address;
	memcpy(patch->in_record.original, code + first_bytes, HL_PATCH_BYTES);
	return 0;
}

int hl_attach_prepare_patch(struct hl_attach *attach, const struct hl_entry *entry, int rule,
			    struct hl_error *err)
{
	HL_FREED uint8_t *code = NULL;
	size_t size = 0;
	int32_t stack_bytes;
	struct hl_attach_block *block;

	int r = choose_block(attach, entry, &block, err);
	if (r < 0)
		return r;
	r = read_function(attach, entry, &code, &size, err);
	if (r < 0)
		return r;
	uint64_t hook = hook_of(attach, entry, rule);
	size_t first_bytes =
		hl_relocate_first(code, size, entry->address, entry->bytes, &stack_bytes);
	r = first_bytes ? prepare_behind(attach, entry, hook, block, code, size, first_bytes,
					 stack_bytes, err)
			: -ENOTSUP;
	if (r == -ENOTSUP) {
		*err = (struct hl_error){0};
		r = prepare_behind(attach, entry, hook, block, code, size, 0, 0, err);
	}
	if (r == -ENOTSUP) {
		const struct hl_error why = *err;
		*err = (struct hl_error){0};
		return hl_error_set(
			err, r, "'%s' of '%s': %s%s", entry->name, entry->module, why.text,
			entry->is_asked ? "; have --hook name a function that calls it" : "");
	}
	if (r < 0)
		return r;
	struct hl_attach_patch *patch = &attach->patches[attach->record.patch_count];
	patch->rule = rule;
	attach->record.patches[attach->record.patch_count++] = patch->in_record;
	return 0;
}

/* What nobody has asked for is left out where it cannot be patched. */
static int prepare_rule(struct hl_attach *attach, uint32_t index, struct hl_error *err)
{
	const struct hl_entry *entry = &attach->found.extras[index];

	attach->rules_used[index] = true;
	int r = hl_attach_prepare_patch(attach, entry, (int)index, err);

	if (r != -ENOTSUP || entry->is_asked)
		return r;
	attach->left_out[index] = true;
	*err = (struct hl_error){0};
	return 0;
}

/* Without the hook of the dynamic linker libraries that come later are not recorded, without that of mlockall() it may
 * fail. */
static int prepare_hook(struct hl_attach *attach, const struct hl_entry *entry,
			struct hl_error *err)
{
	int r = hl_attach_prepare_patch(attach, entry, HL_ATTACH_NO_RULE, err);

	if (r != -ENOTSUP || (entry->hook != HL_HOOK_LIBRARIES && entry->hook != HL_HOOK_MLOCKALL))
		return r;
	*err = (struct hl_error){0};
	return 0;
}

/* All that can be made ready without the target: bytes for addresses that are free now. */
int hl_attach_prepare(struct hl_attach *attach, struct hl_error *err)
{
	hl_attach_forget_blocks(attach);
	memset(attach->left_out, 0, sizeof(attach->left_out));
	memset(attach->rules_used, 0, sizeof(attach->rules_used));
	attach->record = (struct hl_record_page){0};
	hl_record_page_sign(&attach->record, attach->pid);
	int r = make_first_block(attach, err);
	for (uint32_t i = 0; r == 0 && i < attach->found.count; i++)
		r = prepare_hook(attach, &attach->found.entries[i], err);
	for (uint32_t i = 0; r == 0 && i < attach->found.extra_count; i++)
		r = prepare_rule(attach, i, err);
	if (r < 0)
		return r;
	struct hl_record_page page = attach->record;
	page.block_count = 1;
	memcpy(attach->blocks[0].bytes, &page, sizeof(page));
	return 0;
}
