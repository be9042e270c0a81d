/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes the bytes that will lie in the target, and places them there; see attach_parts.h. */
#include "hook/attach_parts.h"
#include "hook/image_bytes.h"

#include "base/cleanup.h"
#include "elf/elf.h"
#include "process/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- room: holes between mappings ---- */

/* Less than a jump has, for the few bytes by which displacements are counted from another place. */
#define REACH (HL_PATCH_REACH - HL_ATTACH_PAGE_BYTES)

#define LOWEST	      UINT64_C(0x10000) /* vm.mmap_min_addr, usually */
#define ADDRESSES_END (HL_USER_END - HL_ATTACH_PAGE_BYTES)

/* What [heap] may still grow into, and what [stack] may. */
#define HEAP_GROWTH  (UINT64_C(1) << 30)
#define STACK_GROWTH (UINT64_C(1) << 26)

bool hl_room_reaches(uint64_t address, uint64_t size, uint64_t near)
{
	uint64_t end = address + size;

	return address >= near ? end - near < REACH : near - address < REACH;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

struct hole {
	uint64_t start, end;
};

/* The hole below mapping ${index}, or above the last one, without what is others'. */
static struct hole hole_below(const struct hl_maps *maps, size_t index)
{
	const struct hl_map *above = index < maps->count ? &maps->maps[index] : NULL;
	const struct hl_map *below = index ? &maps->maps[index - 1] : NULL;
	struct hole hole = {below ? below->end : LOWEST, above ? above->start : ADDRESSES_END};

	if (below && !strcmp(below->path, "[heap]"))
		hole.start += HEAP_GROWTH;
	if (above && !strcmp(above->path, "[stack]"))
		hole.end -= hole.end < STACK_GROWTH ? hole.end : STACK_GROWTH;
	if (hole.end > ADDRESSES_END)
		hole.end = ADDRESSES_END;
	hole.start += HL_ATTACH_PAGE_BYTES;
	hole.end -= hole.end < HL_ATTACH_PAGE_BYTES ? hole.end : HL_ATTACH_PAGE_BYTES;
	return hole;
}

uint64_t hl_room_find(const struct hl_maps *maps, uint64_t near, uint64_t size)
{
	uint64_t best = 0;

	for (size_t i = 0; i <= maps->count; i++) {
		struct hole hole = hole_below(maps, i);
		if (hole.end <= hole.start || hole.end - hole.start < size)
			continue;
		uint64_t at = hole.end <= near ? hole.end - size : hole.start;
		if (hl_room_reaches(at, size, near) &&
		    (!best || distance(at, near) < distance(best, near)))
			best = at;
	}
	return best;
}

/* ---- the image: the ELF file that is built into heapline ---- */

static uint64_t round_up(uint64_t size)
{
	return (size + HL_ATTACH_PAGE_BYTES - 1) & ~(HL_ATTACH_PAGE_BYTES - 1);
}

static int protection_of(uint32_t flags)
{
	return (flags & PF_R ? PROT_READ : 0) | (flags & PF_W ? PROT_WRITE : 0) |
	       (flags & PF_X ? PROT_EXEC : 0);
}

/* Notes where the segments lie, and returns where the last one ends; 0 when they make no sense. */
static uint64_t find_parts(Elf *elf, struct hl_image *image)
{
	uint64_t end = 0;
	size_t count;
	GElf_Phdr segment;

	if (elf_getphdrnum(elf, &count) != 0)
		return 0;
	for (size_t i = 0; i < count && gelf_getphdr(elf, (int)i, &segment); i++) {
		if (segment.p_type != PT_LOAD || !segment.p_memsz)
			continue;
		uint64_t start = segment.p_vaddr & ~(HL_ATTACH_PAGE_BYTES - 1);
		if (image->part_count == HL_IMAGE_PARTS_MAX || start < end ||
		    segment.p_filesz > segment.p_memsz || segment.p_offset > hl_image_size ||
		    segment.p_filesz > hl_image_size - segment.p_offset)
			return 0;
		end = round_up(segment.p_vaddr + segment.p_memsz);
		image->parts[image->part_count].offset = start;
		image->parts[image->part_count].size = end - start;
		image->parts[image->part_count++].protection = protection_of(segment.p_flags);
	}
	return end;
}

static void fill(Elf *elf, struct hl_image *image)
{
	size_t count;
	GElf_Phdr segment;

	elf_getphdrnum(elf, &count);
	for (size_t i = 0; i < count && gelf_getphdr(elf, (int)i, &segment); i++)
		if (segment.p_type == PT_LOAD)
			memcpy(image->bytes + segment.p_vaddr, hl_image + segment.p_offset,
			       segment.p_filesz);
}

/* Lays the image out as if linked at 0. 0, -ENOMEM, or -EBADMSG: it was built wrongly. */
static int image_load(struct hl_image *ret_image, struct hl_error *err)
{
	struct hl_image image = {0};

	elf_version(EV_CURRENT);
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = elf_memory((char *)hl_image, hl_image_size);
	image.size = elf ? find_parts(elf, &image) : 0;
	if (!image.size ||
	    !hl_elf_find_symbol(elf, HL_ELF_DYNSYM, HL_ATTACHED_SYMBOL, &image.attached))
		return hl_error_set(err, -EBADMSG, "the recorder in heapline is damaged");
	image.bytes = calloc(1, image.size);
	if (!image.bytes)
		return hl_error_set(err, -ENOMEM, "out of memory");
	fill(elf, &image);
	*ret_image = image;
	return 0;
}

/* Applies the relocations for ${base}; once. */
static void image_relocate(struct hl_image *image, uint64_t base)
{
	GElf_Shdr header;
	GElf_Rela relocation;

	HL_CLEANUP(hl_elf_cleanup) Elf *elf = elf_memory((char *)hl_image, hl_image_size);
	Elf_Scn *section = elf ? hl_elf_find_section(elf, ".rela.dyn", &header) : NULL;
	Elf_Data *content = section ? elf_getdata(section, NULL) : NULL;
	for (int i = 0; content && gelf_getrela(content, i, &relocation); i++) {
		uint64_t address = base + (uint64_t)relocation.r_addend;
		memcpy(image->bytes + relocation.r_offset, &address, sizeof(address));
	}
}

struct hl_attached hl_image_attached(const struct hl_image *image)
{
	struct hl_attached attached;

	memcpy(&attached, image->bytes + image->attached, sizeof(attached));
	return attached;
}

static void image_release(struct hl_image *image)
{
	free(image->bytes);
	*image = (struct hl_image){0};
}

/* ---- placing: maps and fills memory of the target, by one stopped thread ---- */

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif

/* In the record page, behind what attach_parts.h says. */
#define NAME_OFFSET (HL_RECORD_PAGE_BYTES - 64)

static long map_block(struct hl_attach *attach, const struct hl_attach_block *block)
{
	long at = hl_remote_syscall(attach->remote, SYS_mmap, (long)block->address,
				    (long)block->size, PROT_READ,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (at < 0 || at == (long)block->address)
		return at;
	/* A kernel before 4.17 takes the address for a wish. */
	hl_remote_syscall(attach->remote, SYS_munmap, at, (long)block->size, 0, 0, 0, 0);
	return -EEXIST;
}

/* Before anything is written there: where memory that was writable may not become executable
 * (PR_SET_MDWE of prctl(2)), other memory takes its place. */
static long protect(struct hl_attach *attach, uint64_t address, uint64_t size, int protection)
{
	long r = hl_remote_syscall(attach->remote, SYS_mprotect, (long)address, (long)size,
				   protection, 0, 0, 0);

	if (r != -EACCES || !(protection & PROT_EXEC))
		return r;
	r = hl_remote_syscall(attach->remote, SYS_mmap, (long)address, (long)size, protection,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	return r < 0 ? r : 0;
}

static long protect_first_block(struct hl_attach *attach)
{
	const struct hl_image *image = &attach->image;
	uint64_t base = attach->blocks[0].address + HL_ATTACH_PAGE_BYTES;

	long r = protect(attach, attach->blocks[0].address, HL_ATTACH_PAGE_BYTES, PROT_READ);
	for (uint32_t i = 0; r == 0 && i < image->part_count; i++)
		r = protect(attach, base + image->parts[i].offset, image->parts[i].size,
			    image->parts[i].protection);
	if (r == 0)
		r = protect(attach, base + image->size, HL_ATTACH_TRAMPOLINE_BYTES,
			    PROT_READ | PROT_EXEC);
	return r;
}

/* Another heapline must not unmap what is not there: it may be the target's own by then. */
static void tell_blocks(struct hl_attach *attach, uint32_t count)
{
	hl_remote_write(attach->remote,
			attach->record.blocks[0].address +
				offsetof(struct hl_record_page, block_count),
			&count, sizeof(count));
}

/* Has heap/memory_live.c know the block: nothing else has both. The image belongs into a core file. */
static void mark_block(struct hl_attach *attach, const struct hl_attach_block *block)
{
	hl_remote_syscall(attach->remote, SYS_madvise, (long)block->address, (long)block->size,
			  MADV_NOHUGEPAGE, 0, 0, 0);
	hl_remote_syscall(attach->remote, SYS_madvise, (long)block->address, (long)block->size,
			  MADV_RANDOM, 0, 0, 0);
}

/* Maps and fills the blocks. -EEXIST: room has been taken meanwhile. What has been mapped stays. */
static long place_blocks(struct hl_attach *attach, uint32_t *ret_mapped)
{
	long r = 0;

	*ret_mapped = 0;
	for (uint32_t i = 0; r >= 0 && i < attach->record.block_count; i++) {
		const struct hl_attach_block *block = &attach->blocks[i];
		r = map_block(attach, block);
		if (r < 0)
			break;
		*ret_mapped = i + 1;
		/* At once, so that another heapline finds it should this one be killed. */
		if (i > 0)
			tell_blocks(attach, i + 1);
		else
			hl_remote_write(attach->remote, block->address, block->bytes,
					sizeof(attach->record));
		r = i ? protect(attach, block->address, block->size, PROT_READ | PROT_EXEC)
		      : protect_first_block(attach);
		if (r == 0)
			mark_block(attach, block);
		if (r == 0 &&
		    !hl_remote_write(attach->remote, block->address, block->bytes, block->size))
			r = -EIO;
	}
	return r;
}

void hl_attach_unmap_blocks(struct hl_attach *attach, uint32_t count)
{
	/* The record last: as long as anything is there, it says so. */
	while (count-- > 0) {
		if (count > 0)
			tell_blocks(attach, count);
		hl_remote_syscall(attach->remote, SYS_munmap,
				  (long)attach->record.blocks[count].address,
				  (long)attach->record.blocks[count].bytes, 0, 0, 0, 0);
	}
}

/* A memfd of the target; its number there. */
static long make_memfd(struct hl_attach *attach)
{
	static const char name[] = "heapline";
	uint64_t at = attach->blocks[0].address + NAME_OFFSET;

	if (!hl_remote_write(attach->remote, at, name, sizeof(name)))
		return -EIO;
	long fd = hl_remote_syscall(attach->remote, SYS_memfd_create, (long)at,
				    MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL, 0, 0, 0, 0);
	/* Older systems lack a flag. */
	if (fd == -EINVAL)
		fd = hl_remote_syscall(attach->remote, SYS_memfd_create, (long)at,
				       MFD_CLOEXEC | MFD_ALLOW_SEALING, 0, 0, 0, 0);
	return fd;
}

/* The target's descriptor ${fd}, of a memfd, as ours. */
static int fetch_descriptor(pid_t pid, long fd)
{
	pid_t thread = hl_proc_thread(pid);
	HL_CLOSED int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%ld", thread, fd);
	/* A first thread that has ended has no descriptors. */
	int ours = thread != pid ? open(path, O_RDWR | O_CLOEXEC)
		   : pidfd < 0	 ? -1
				 : (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
	return ours < 0 ? -errno : ours;
}

/* Whether descriptor ${fd} of the target is a memfd that some heapline has made. */
static bool is_memfd(const struct hl_attach *attach, int fd)
{
	static const char name[] = "/memfd:heapline (deleted)";
	char path[64], link[sizeof(name)];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", hl_proc_thread(attach->pid), fd);
	return readlink(path, link, sizeof(link)) == sizeof(name) - 1 &&
	       !memcmp(link, name, sizeof(name) - 1);
}

static void close_there(struct hl_attach *attach, int fd)
{
	if (is_memfd(attach, fd))
		hl_remote_syscall(attach->remote, SYS_close, fd, 0, 0, 0, 0, 0);
}

void hl_attach_close_memfd(struct hl_attach *attach)
{
	if (attach->region_fd >= 0)
		close_there(attach, attach->region_fd);
	attach->region_fd = -1;
}

void hl_attach_find_leftovers(struct hl_attach *attach)
{
	char path[32], comm[16] = "";

	attach->leftover_count = 0;
	if (hl_proc_read(attach->pid, "comm", comm, sizeof(comm)) < 0 ||
	    !strcmp(comm, "heapline\n"))
		return;
	snprintf(path, sizeof(path), "/proc/%d/fd", hl_proc_thread(attach->pid));
	DIR *directory = opendir(path);
	for (struct dirent *entry; directory && (entry = readdir(directory));) {
		int fd = atoi(entry->d_name);
		if (entry->d_name[0] != '.' && is_memfd(attach, fd) &&
		    attach->leftover_count < HL_COUNT_OF(attach->leftovers))
			attach->leftovers[attach->leftover_count++] = fd;
	}
	if (directory)
		closedir(directory);
}

/* With one thread stopped. */
long hl_attach_place(struct hl_attach *attach, int *ret_region_fd)
{
	uint32_t mapped;

	long r = place_blocks(attach, &mapped);
	if (r >= 0) {
		for (uint32_t i = 0; i < attach->leftover_count; i++)
			close_there(attach, attach->leftovers[i]);
		r = make_memfd(attach);
	}
	if (r >= 0) {
		attach->region_fd = (int)r;
		r = fetch_descriptor(attach->pid, r);
	}
	if (r >= 0) {
		*ret_region_fd = (int)r;
		attach->has_record = true;
		return 0;
	}
	hl_attach_close_memfd(attach);
	hl_attach_unmap_blocks(attach, mapped);
	return r;
}

/* ---- preparing ---- */

#define CODE_READ_MAX \
	(64 * HL_ATTACH_PAGE_BYTES) /* of a function, to look for jumps into its entry */

void hl_attach_forget_blocks(struct hl_attach *attach)
{
	for (size_t i = 0; i < HL_RECORD_BLOCKS_MAX; i++)
		free(attach->blocks[i].bytes);
	memset(attach->blocks, 0, sizeof(attach->blocks));
	image_release(&attach->image);
}

static int no_room(const struct hl_attach *attach, const char *module, struct hl_error *err)
{
	return hl_error_set(err, -ENOMEM,
			    "process %d has no free addresses within " HL_PATCH_REACH_TEXT
			    " of the code of '%s'",
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
	int r = image_load(&attach->image, err);

	if (r < 0)
		return r;
	uint64_t image_end = HL_ATTACH_PAGE_BYTES + attach->image.size;
	r = make_block(attach, main_entry(attach), image_end + HL_ATTACH_TRAMPOLINE_BYTES, err);
	if (r < 0)
		return r;
	struct hl_attach_block *block = &attach->blocks[0];
	image_relocate(&attach->image, block->address + HL_ATTACH_PAGE_BYTES);
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

/* The way from an entry to ${hook}, see relocate.h. Where it begins. */
static uint64_t put_way(struct hl_attach_block *block, int32_t stack_bytes, uint64_t hook)
{
	uint64_t at = block->address + block->used;
	size_t bytes = hl_relocate_way(at, stack_bytes, hook, block->bytes + block->used);

	block->used += (bytes + 15) & ~UINT64_C(15);
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
 * fail, and without those of prctl() and syscall() filters are not seen. */
static int prepare_hook(struct hl_attach *attach, const struct hl_entry *entry,
			struct hl_error *err)
{
	int r = hl_attach_prepare_patch(attach, entry, HL_ATTACH_NO_RULE, err);

	if (r != -ENOTSUP || entry->hook < HL_HOOK_MLOCKALL)
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
