// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Reads which pages a memory control group is charged with, by walking the kernel's array of struct page, and names the
 * files that they are of. Each BPF program that wants that includes this file, once, after it has said by
 * HL_GROUP_PAGE(frame, pages, kind, inode) what is to be done with each page. Runs when it is called, and changes nothing.
 */
#pragma once

#ifndef __VMLINUX_H__
#define __VMLINUX_H__
#endif

#include <linux/bpf.h>
#include <stdbool.h>
#include <stdint.h>

#include <bpf/bpf_helpers.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "bpf/group_shared.h"

/* Types of the kernel, as far as they are read; libbpf fits them to the one that runs. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	uint64_t id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
	unsigned int flags;
	uint64_t serial_nr; /* never used again */
};

struct mem_cgroup {
	struct cgroup_subsys_state css;
};

struct obj_cgroup {
	struct mem_cgroup *memcg;
};

/* Linux 7.2 charges all pages by way of one, also those of users. */
struct obj_cgroup___all {
	bool is_root;
};

struct page {
	struct address_space *mapping;
	unsigned long memcg_data;
};

struct folio {
	unsigned int _folio_nr_pages;
};

struct folio___renamed {
	unsigned int _nr_pages;
};

/* Linux 6.9. Before it, what maps a part of a large folio is not seen. */
struct folio___mapped {
	struct {
		int counter;
	} _large_mapcount;
};

struct kmem_cache {
	unsigned int flags;
	unsigned int size;
	const char *name;
};

struct slab {
	struct kmem_cache *slab_cache;
	unsigned int objects : 15;
	unsigned long memcg_data;
};

/* Linux 6.10 */
struct slab___extended {
	unsigned long obj_exts;
};

/* Linux 7: whose an object is may be kept in the object. */
struct slab___strided {
	unsigned int stride;
};

struct slabobj_ext {
	struct obj_cgroup *objcg;
};

struct file_system_type {
	const char *name;
};

struct super_block {
	unsigned int s_dev;
	struct file_system_type *s_type;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct hlist_bl_node {
	struct hlist_bl_node **pprev;
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct hlist_bl_node d_hash;
	struct dentry *d_parent;
	struct qstr d_name;
	union {
		struct hlist_node d_alias;
	} d_u;
};

/* Linux 7. */
struct dentry___unnamed {
	union {
		struct hlist_node d_alias;
	};
};

struct inode {
	unsigned long i_ino;
	struct super_block *i_sb;
	struct hlist_head i_dentry;
};

struct address_space {
	struct inode *host;
};

#pragma clang attribute pop

enum pageflags { PG_dirty, PG_active, PG_head, PG_swapbacked, PG_mlocked };

/* Whether ${flags} of a page have bit ${name}, wherever this kernel has it. */
#define HAS_FLAG(flags, name) ((flags) >> bpf_core_enum_value(enum pageflags, name) & 1)

/* linux/memcontrol.h: below the pointer in memcg_data */
#define CHARGED_BY_OBJECT    1u /* slab */
#define CHARGED_AS_KERNEL    2u
#define CHARGE_POINTER(word) ((word) & ~UINT64_C(7))

#define MAPPING_ANONYMOUS 1u
#define MAPPING_FLAGS	  UINT64_C(3)

enum _slab_flag_bits { _SLAB_RECLAIM_ACCOUNT = 17 }; /* until Linux 6.9 */

#define GROUP_ONLINE	 2u /* linux/cgroup-defs.h: CSS_ONLINE */
#define GROUP_LEVELS_MAX 32
#define GROUPS_MAX	 4096 /* more are looked up again and again */
#define CACHES_MAX	 4096
#define OWNERS_READ	 64u

struct hl_group_scan scan;
struct hl_inode_name name;

/* ---- where struct page begins ---- */

/* The loader, as the first PID namespace numbers it; and the last page that it was given. */
uint32_t own_process;
uint64_t given_page;

SEC("syscall")
int note_process(void *context)
{
	own_process = bpf_get_current_pid_tgid() >> 32;
	return 0;
}

SEC("tp_btf/mm_page_alloc")
int BPF_PROG(page_given, struct page *page, unsigned int order)
{
	if (bpf_get_current_pid_tgid() >> 32 == own_process && !order)
		given_page = (uint64_t)page;
	return 0;
}

/* ---- groups ---- */

enum belongs { BELONGS_NOT = 1, BELONGS, BELONGS_TO_REMOVED };

/* What is known of a group; its address may be another one's by now. */
struct known_group {
	uint64_t serial;
	uint32_t belongs; /* enum belongs */
	uint32_t reserved;
};

/* By the address of a struct mem_cgroup or obj_cgroup. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, GROUPS_MAX);
	__type(key, uint64_t);
	__type(value, struct known_group);
} groups SEC(".maps");

static __always_inline struct cgroup_subsys_state *state_of(uint64_t charged, bool is_object)
{
	struct mem_cgroup *group = is_object ? BPF_CORE_READ((struct obj_cgroup *)charged, memcg)
					     : (struct mem_cgroup *)charged;

	return &group->css;
}

static __noinline uint32_t find_group(uint64_t charged, bool is_object)
{
	struct cgroup_subsys_state *state = state_of(charged, is_object);
	struct known_group found = {.serial = BPF_CORE_READ(state, serial_nr),
				    .belongs = BELONGS_NOT};
	uint32_t flags = BPF_CORE_READ(state, flags);

	for (int i = 0; i < GROUP_LEVELS_MAX && state; i++) {
		if (BPF_CORE_READ(state, cgroup, kn, id) == scan.group) {
			found.belongs = flags & GROUP_ONLINE ? BELONGS : BELONGS_TO_REMOVED;
			break;
		}
		state = BPF_CORE_READ(state, parent);
	}
	bpf_map_update_elem(&groups, &charged, &found, BPF_ANY);
	return found.belongs;
}

static __always_inline uint32_t group_of(uint64_t charged, bool is_object)
{
	struct known_group *known = bpf_map_lookup_elem(&groups, &charged);

	if (known && known->serial == BPF_CORE_READ(state_of(charged, is_object), serial_nr))
		return known->belongs;
	return find_group(charged, is_object);
}

/* ---- pages ---- */

/* By the address of a struct inode. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1); /* the loader sets it */
	__type(key, uint64_t);
	__type(value, struct hl_group_inode);
} inodes SEC(".maps");

/* Words of a run of struct page. */
static uint64_t words[HL_FRAMES_READ * HL_STRUCT_PAGE_BYTES / 8];
static bool has_words;

static __noinline struct hl_group_inode *inode_of(uint64_t address)
{
	struct hl_group_inode *found = bpf_map_lookup_elem(&inodes, &address);

	if (found)
		return found;
	struct inode *inode = (struct inode *)address;
	struct hl_group_inode made = {
		.number = BPF_CORE_READ(inode, i_ino),
		.device = BPF_CORE_READ(inode, i_sb, s_dev),
	};
	bpf_map_update_elem(&inodes, &address, &made, BPF_NOEXIST);
	return bpf_map_lookup_elem(&inodes, &address);
}

static __always_inline bool is_mapped(uint64_t page, bool is_large, int count)
{
	struct folio___mapped *folio = (struct folio___mapped *)page;

	if (is_large && bpf_core_field_exists(folio->_large_mapcount))
		count = BPF_CORE_READ(folio, _large_mapcount.counter);
	return count >= 0;
}

static __noinline uint64_t pages_of_large(uint64_t page)
{
	struct folio *folio = (struct folio *)page;
	struct folio___renamed *renamed = (struct folio___renamed *)page;

	if (bpf_core_field_exists(folio->_folio_nr_pages))
		return BPF_CORE_READ(folio, _folio_nr_pages);
	if (bpf_core_field_exists(renamed->_nr_pages))
		return BPF_CORE_READ(renamed, _nr_pages);
	return 1;
}

static __always_inline uint64_t frame_of(uint64_t page)
{
	return (page - scan.page_structs) / HL_STRUCT_PAGE_BYTES;
}

/* Counts a page that has a struct address_space. */
static __noinline int count_file(uint64_t page, uint64_t flags, uint64_t mapping, uint64_t pages,
				 int mapcount)
{
	struct address_space *space = (struct address_space *)(mapping & ~MAPPING_FLAGS);
	bool is_memory = HAS_FLAG(flags, PG_swapbacked);

	uint32_t kind = is_memory ? HL_GROUP_SHARED : HL_GROUP_FILE;
	uint64_t address = (uint64_t)BPF_CORE_READ(space, host);
	scan.pages[kind] += pages;
	HL_GROUP_PAGE(frame_of(page), pages, kind, address);
	struct hl_group_inode *inode = inode_of(address);
	if (!inode) {
		scan.lost += pages;
		return 0;
	}
	inode->is_memory = is_memory;
	inode->pages += pages;
	if (HAS_FLAG(flags, PG_active))
		inode->active += pages;
	if (HAS_FLAG(flags, PG_dirty))
		inode->dirty += pages;
	if (HAS_FLAG(flags, PG_mlocked))
		inode->locked += pages;
	if (is_mapped(page, pages > 1, mapcount))
		inode->mapped += pages;
	return 0;
}

static __noinline int count_page(uint32_t at, uint64_t page)
{
	const uint64_t *word = &words[(at & (HL_FRAMES_READ - 1)) * 8];
	uint64_t flags = word[0], mapping = word[3], charged = word[7];
	bool is_kernels = charged & CHARGED_AS_KERNEL;
	bool is_object = is_kernels || bpf_core_field_exists(struct obj_cgroup___all, is_root);
	uint32_t belongs = group_of(CHARGE_POINTER(charged), is_object);

	if (belongs == BELONGS_NOT)
		return 0;
	uint64_t pages = HAS_FLAG(flags, PG_head) ? pages_of_large(page) : 1;
	if (belongs == BELONGS_TO_REMOVED)
		scan.removed += pages;
	if (!is_kernels && mapping && !(mapping & MAPPING_ANONYMOUS))
		return count_file(page, flags, mapping, pages, (int)(uint32_t)word[6]);
	uint32_t kind = is_kernels ? HL_GROUP_KERNEL
			: mapping  ? HL_GROUP_ANONYMOUS
				   : HL_GROUP_OTHER;
	scan.pages[kind] += pages;
	HL_GROUP_PAGE(frame_of(page), pages, kind, 0);
	return 0;
}

/* ---- objects of the kernel ---- */

/* By the address of a struct kmem_cache. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, CACHES_MAX);
	__type(key, uint64_t);
	__type(value, struct hl_group_cache);
} caches SEC(".maps");

/* The slab that is looked at: where it says whose its objects are. */
static struct {
	uint64_t owners, stride;
	uint64_t last_owner; /* of the object before */
	bool last_belongs;
	uint64_t count; /* that belong to the group */
	uint64_t read[OWNERS_READ];
} slab;

static long look_at_object(uint32_t i, void *context)
{
	uint32_t at = i % OWNERS_READ;
	uint64_t owner;

	if (slab.stride != sizeof(uint64_t)) {
		if (bpf_probe_read_kernel(&owner, sizeof(owner),
					  (const void *)(slab.owners + i * slab.stride)))
			return 1;
	} else {
		/* What follows the last owner is read, too, and not used. */
		if (!at &&
		    bpf_probe_read_kernel(slab.read, sizeof(slab.read),
					  (const void *)(slab.owners + i * sizeof(uint64_t))))
			return 1;
		owner = slab.read[at];
	}
	if (!owner)
		return 0;
	if (owner != slab.last_owner) {
		slab.last_owner = owner;
		slab.last_belongs = group_of(owner, true) != BELONGS_NOT;
	}
	slab.count += slab.last_belongs;
	return 0;
}

static __always_inline bool is_reclaimable(uint32_t flags)
{
	uint32_t bit = bpf_core_enum_value_exists(enum _slab_flag_bits, _SLAB_RECLAIM_ACCOUNT)
			       ? bpf_core_enum_value(enum _slab_flag_bits, _SLAB_RECLAIM_ACCOUNT)
			       : _SLAB_RECLAIM_ACCOUNT;

	return flags >> (bit & 31) & 1;
}

static __noinline int count_objects(uint64_t address)
{
	struct hl_group_cache *found = bpf_map_lookup_elem(&caches, &address);

	if (!found) {
		struct kmem_cache *cache = (struct kmem_cache *)address;
		struct hl_group_cache made = {
			.object_bytes = BPF_CORE_READ(cache, size) + sizeof(uint64_t),
			.is_reclaimable = is_reclaimable(BPF_CORE_READ(cache, flags)),
		};
		bpf_probe_read_kernel_str(made.name, sizeof(made.name), BPF_CORE_READ(cache, name));
		bpf_map_update_elem(&caches, &address, &made, BPF_NOEXIST);
		found = bpf_map_lookup_elem(&caches, &address);
	}
	if (found)
		found->objects += slab.count;
	return 0;
}

static __noinline int count_slab(uint64_t page)
{
	struct slab *found = (struct slab *)page;
	struct slab___extended *extended = (struct slab___extended *)page;
	struct slab___strided *strided = (struct slab___strided *)page;

	slab.owners = CHARGE_POINTER(bpf_core_field_exists(extended->obj_exts)
					     ? BPF_CORE_READ(extended, obj_exts)
					     : BPF_CORE_READ(found, memcg_data));
	slab.stride = bpf_core_field_exists(strided->stride)
			      ? BPF_CORE_READ_BITFIELD_PROBED(strided, stride)
		      : bpf_core_type_exists(struct slabobj_ext)
			      ? bpf_core_type_size(struct slabobj_ext)
			      : sizeof(uint64_t);
	slab.count = 0;
	bpf_loop(BPF_CORE_READ_BITFIELD_PROBED(found, objects), look_at_object, NULL, 0);
	return slab.count ? count_objects((uint64_t)BPF_CORE_READ(found, slab_cache)) : 0;
}

/* ---- all of it ---- */

static long look_at(uint32_t i, void *context)
{
	uint32_t at = i & (HL_FRAMES_READ - 1);
	uint64_t page = scan.page_structs + (scan.first + i) * HL_STRUCT_PAGE_BYTES;

	if (!at)
		has_words = !bpf_probe_read_kernel(words, sizeof(words), (const void *)page);
	if (!has_words)
		return 0;
	scan.seen++;
	/* Of tail pages the first word is a pointer to the head, with bit 0 set. */
	uint64_t charged = words[at * 8 + 7];
	if (words[at * 8 + 1] & 1 || !CHARGE_POINTER(charged))
		return 0;
	return charged & CHARGED_BY_OBJECT ? count_slab(page) : count_page(at, page);
}

static __always_inline bool is_known_layout(void)
{
	struct page *page = NULL;

	return bpf_core_type_size(struct page) == HL_STRUCT_PAGE_BYTES &&
	       bpf_core_field_exists(page->memcg_data) &&
	       bpf_core_field_offset(struct page, mapping) == 24 &&
	       bpf_core_field_offset(struct page, memcg_data) == 56;
}

SEC("syscall")
int scan_frames(void *context)
{
	scan.is_strange = !is_known_layout();
	if (!scan.is_strange)
		bpf_loop(scan.count, look_at, NULL, 0);
	return 0;
}

/* ---- names ---- */

static __always_inline struct dentry *first_alias(struct inode *inode)
{
	uint64_t alias = (uint64_t)BPF_CORE_READ(inode, i_dentry.first);
	struct dentry___unnamed *unnamed = NULL;

	if (!alias)
		return NULL;
	if (bpf_core_field_exists(unnamed->d_alias))
		return (struct dentry *)(alias -
					 bpf_core_field_offset(struct dentry___unnamed, d_alias));
	return (struct dentry *)(alias - bpf_core_field_offset(struct dentry, d_u.d_alias));
}

SEC("syscall")
int name_inode(void *context)
{
	struct inode *inode = (struct inode *)name.inode;

	name.count = 0;
	name.system[0] = '\0';
	if (BPF_CORE_READ(inode, i_ino) != name.number ||
	    BPF_CORE_READ(inode, i_sb, s_dev) != name.device)
		return 0;
	bpf_probe_read_kernel_str(name.system, sizeof(name.system),
				  BPF_CORE_READ(inode, i_sb, s_type, name));
	struct dentry *entry = first_alias(inode);
	if (!entry)
		return 0;
	name.is_deleted = !BPF_CORE_READ(entry, d_hash.pprev);
	for (uint32_t i = 0; i < HL_INODE_NAMES; i++) {
		struct dentry *parent = BPF_CORE_READ(entry, d_parent);
		/* The root of a file system; but a memfd is in no directory, and has a name. */
		if ((parent == entry && i) || !parent)
			break;
		if (bpf_probe_read_kernel_str(name.names[i], HL_INODE_NAME_SIZE,
					      BPF_CORE_READ(entry, d_name.name)) < 0)
			break;
		if (parent == entry && name.names[i][0] == '/')
			break;
		name.count = i + 1;
		entry = parent;
	}
	return 0;
}
