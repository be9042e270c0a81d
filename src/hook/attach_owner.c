/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Says in the region that its heapline lives, so that everybody can see when it does not: the kernel
 * marks a robust futex whatever ends its owner, in any namespace; see set_robust_list(2).
 *
 * The C library's robust mutexes keep their links in the shared memory, which the target can write.
 * So the list is of our own and here, and leads to a word alone.
 */
#include "hook/attach_parts.h"

#include <linux/futex.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of the thread that has brought a recorder in. It takes the place of the C library's, which nobody
 * uses here. */
static struct {
	const struct hl_attach *attach; /* NULL: of nobody */
	struct hl_region_header *header;
	struct robust_list entry;
	struct robust_list_head head, *before;
	size_t before_bytes;
} owned;

void hl_attach_own(const struct hl_attach *attach)
{
	if (owned.attach || attach->region_copy < 0)
		return;
	void *header = mmap(NULL, sizeof(*owned.header), PROT_READ | PROT_WRITE, MAP_SHARED,
			    attach->region_copy, 0);
	if (header == MAP_FAILED)
		return;
	owned.attach = attach;
	owned.header = header;
	owned.entry.next = &owned.head.list;
	owned.head.list.next = &owned.entry;
	owned.head.futex_offset = (char *)&owned.header->children.owner - (char *)&owned.entry;
	/* Where it fails, as in a sandbox, nobody will see our end, and none is seen too early. */
	syscall(SYS_get_robust_list, 0, &owned.before, &owned.before_bytes);
	syscall(SYS_set_robust_list, &owned.head, sizeof(owned.head));
	atomic_store(&owned.header->children.owner, (uint32_t)gettid());
}

void hl_attach_disown(const struct hl_attach *attach)
{
	if (owned.attach != attach)
		return;
	atomic_store(&owned.header->children.owner, FUTEX_OWNER_DIED);
	syscall(SYS_set_robust_list, owned.before, sizeof(*owned.before));
	munmap(owned.header, sizeof(*owned.header));
	owned.attach = NULL;
}

bool hl_attach_has_lost_owner(const struct hl_attach *attach)
{
	static const char region[] = "/memfd:heapline";
	struct hl_region_header header;
	struct hl_region_children children;

	for (size_t i = 0; i < attach->maps.count; i++) {
		const struct hl_map *map = &attach->maps.maps[i];
		if (strncmp(map->path, region, strlen(region)) != 0)
			continue;
		/* In a forked child there is this page of its parent's region, and its own region. */
		if (map->offset == HL_REGION_CHILDREN_START &&
		    hl_remote_read(attach->remote,
				   map->start + offsetof(struct hl_region_header, children) -
					   HL_REGION_CHILDREN_START,
				   &children, sizeof(children)))
			return children.owner & FUTEX_OWNER_DIED;
		if (!map->offset && map->flags & HL_MAP_WRITE &&
		    hl_remote_read(attach->remote, map->start, &header, sizeof(header)) &&
		    !memcmp(header.magic, HL_REGION_MAGIC, sizeof(header.magic)) &&
		    header.version == HL_REGION_VERSION &&
		    header.pid == attach->record.target_pid && header.children.owner)
			return header.children.owner &
			       FUTEX_OWNER_DIED; /* 0: it may just be coming */
	}
	return false;
}
