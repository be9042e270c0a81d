/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads the table of skynet's services, and their queues; see live_services.h. */
#include "guests/skynet/live_services.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "elf/elf.h"
#include "guests/outside.h"
#include "heap/owners/owner_table.h"
#include "process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TABLE_SYMBOL   "H"
#define SLOTS_MAX      (UINT32_C(1) << 24) /* a handle has as many bits beside its harbor */
#define QUEUE_CAP_MIN  64u
#define QUEUE_CAP_MAX  (UINT32_C(1) << 26)
#define BYTES_OF_SIZE  (UINT64_MAX >> 8) /* of a message's size; above is its type */
#define SERVICE_QUEUE  32u
#define SERVICE_HANDLE 96u
#define SERVICE_BYTES  104u

/* struct skynet_message */
struct message {
	uint32_t source, session;
	uint64_t data, size;
};

/* What follows the lock in struct handle_storage, and in struct message_queue. */
struct table {
	uint32_t harbor, next_handle, slot_count, reserved;
	uint64_t slots;
};

struct queue {
	uint32_t handle, cap, head, tail, release, in_global, overload, overload_threshold;
};

/* Bytes of a reader-writer lock and of a spin lock, as atomic variables or as those of pthread. */
static const struct locks {
	uint32_t table, queue;
	uint32_t ring; /* where the queue has the address of its messages */
} locks_of[] = {{8, 4, 40}, {56, 40, 72}};

struct reading {
	pid_t pid;
	struct hl_guest_service *services;
	size_t count, capacity;
	size_t strange; /* slots with something else */
};

/* The messages that wait, piece by piece: the ring itself may be large. */
static int read_ring(const struct reading *reading, uint64_t ring, const struct queue *queue,
		     struct hl_guest_service *ret_service)
{
	struct message piece[256];
	uint32_t left = queue->tail - queue->head + (queue->tail < queue->head ? queue->cap : 0);
	int r = 0;

	*ret_service = (struct hl_guest_service){.handle = queue->handle, .messages = left};
	for (uint32_t at = queue->head; left && r == 0; at %= queue->cap) {
		uint32_t count = queue->cap - at < left ? queue->cap - at : left;
		if (count > HL_COUNT_OF(piece))
			count = HL_COUNT_OF(piece);
		r = hl_owners_read_memory(reading->pid, ring + at * sizeof(*piece), piece,
					  count * sizeof(*piece));
		for (uint32_t i = 0; i < count && r == 0; i++)
			ret_service->bytes += piece[i].size & BYTES_OF_SIZE;
		at += count;
		left -= count;
	}
	return r;
}

/* -EPROTO where there is no service at ${service}, or it changes just now. */
static int read_service(const struct reading *reading, const struct locks *locks, uint64_t service,
			uint32_t place, uint32_t slot_count, struct hl_guest_service *ret_service)
{
	uint8_t bytes[SERVICE_BYTES], of_queue[128];
	struct queue queue;
	uint64_t address, ring, instance, module;
	uint32_t handle;

	if (hl_owners_read_memory(reading->pid, service, bytes, sizeof(bytes)) < 0)
		return -EPROTO;
	memcpy(&address, bytes + SERVICE_QUEUE, sizeof(address));
	memcpy(&handle, bytes + SERVICE_HANDLE, sizeof(handle));
	if ((handle & (slot_count - 1)) != place ||
	    hl_owners_read_memory(reading->pid, address, of_queue, locks->ring + sizeof(ring)) < 0)
		return -EPROTO;
	memcpy(&queue, of_queue + locks->queue, sizeof(queue));
	memcpy(&ring, of_queue + locks->ring, sizeof(ring));
	if (queue.handle != handle || queue.cap < QUEUE_CAP_MIN || queue.cap > QUEUE_CAP_MAX ||
	    queue.cap & (queue.cap - 1) || queue.head >= queue.cap || queue.tail >= queue.cap)
		return -EPROTO;
	int r = queue.head == queue.tail ? 0 : read_ring(reading, ring, &queue, ret_service);
	if (queue.head == queue.tail)
		*ret_service = (struct hl_guest_service){.handle = handle};
	if (r < 0)
		return r == -EFAULT ? -EPROTO : r;

	memcpy(&instance, bytes + HL_SKYNET_INSTANCE, sizeof(instance));
	memcpy(&module, bytes + HL_SKYNET_MODULE, sizeof(module));
	hl_skynet_name_read(reading->pid, service, instance, module, ret_service->name);
	return 0;
}

static int read_slots(struct reading *reading, const struct locks *locks, const struct table *table)
{
	HL_FREED uint64_t *slots = calloc(table->slot_count, sizeof(*slots));
	int r = slots ? hl_owners_read_memory(reading->pid, table->slots, slots,
					      table->slot_count * sizeof(*slots))
		      : -ENOMEM;

	reading->count = reading->strange = 0;
	for (uint32_t i = 0; i < table->slot_count && r == 0; i++) {
		struct hl_guest_service service;
		if (!slots[i])
			continue;
		r = read_service(reading, locks, slots[i], i, table->slot_count, &service);
		if (r == 0)
			r = HL_ARRAY_APPEND(reading->services, reading->count, reading->capacity,
					    service);
		else if (r == -EPROTO)
			r = 0, reading->strange++;
	}
	return r;
}

/* One that begins or ends just now does not agree; most do. */
static int read_table(struct reading *reading, uint64_t variable)
{
	uint64_t storage;
	int r = -EPROTO;

	if (hl_owners_read_memory(reading->pid, variable, &storage, sizeof(storage)) < 0)
		return -EPROTO;
	for (size_t i = 0; i < HL_COUNT_OF(locks_of) && r == -EPROTO; i++) {
		struct table table;
		if (hl_owners_read_memory(reading->pid, storage + locks_of[i].table, &table,
					  sizeof(table)) < 0 ||
		    !table.slot_count || table.slot_count > SLOTS_MAX ||
		    table.slot_count & (table.slot_count - 1))
			continue;
		r = read_slots(reading, &locks_of[i], &table);
		if (r == -EFAULT || (r == 0 && reading->count <= reading->strange))
			r = -EPROTO;
	}
	return r;
}

/* Where the program's file is loaded: what is to be added to its addresses. */
static uint64_t bias_of(Elf *elf, int fd, const struct hl_maps *maps)
{
	GElf_Ehdr header;
	struct stat status;

	if (!gelf_getehdr(elf, &header) || header.e_type == ET_EXEC || fstat(fd, &status) < 0)
		return 0;
	for (size_t i = 0; i < maps->count; i++)
		if (maps->maps[i].inode == status.st_ino && !maps->maps[i].offset)
			return maps->maps[i].start;
	return 0;
}

static int read_symbols(struct reading *reading, Elf *elf, uint64_t bias)
{
	struct hl_elf_symbols all = {.elf = elf, .tables = HL_ELF_SYMTAB};
	int r = -ENOENT;

	while (r != 0 && r != -ENOMEM && hl_elf_symbols_next(&all))
		if (!strcmp(all.name, TABLE_SYMBOL) && all.symbol.st_size == sizeof(uint64_t))
			r = read_table(reading, all.symbol.st_value + bias);
	return r;
}

int hl_skynet_services_read(pid_t pid, struct hl_guest_service **ret_services, size_t *ret_count)
{
	struct reading reading = {.pid = pid};
	struct hl_maps maps = {0};
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/exe", hl_proc_thread(pid));
	HL_CLOSED int fd = open(path, O_RDONLY | O_CLOEXEC);
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = fd < 0 ? NULL : hl_elf_open(fd);
	if (!elf)
		return -ENOENT;
	int r = hl_maps_read(pid, &maps, NULL);
	if (r == 0)
		r = read_symbols(&reading, elf, bias_of(elf, fd, &maps));
	hl_maps_release(&maps);
	if (r < 0) {
		free(reading.services);
		return r;
	}
	*ret_services = reading.services;
	*ret_count = reading.count;
	return 0;
}

const struct hl_guest_outside hl_guest_outside_skynet = {
	.read_services = hl_skynet_services_read,
};
