/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads the table of skynet's services, their names and their queues; see balance.h. */
#include "guests/skynet/balance.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "elf/elf.h"
#include "guests/outside.h"
#include "heap/owners/owner_table.h"
#include "process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names ---- */

#define VARIABLE     "SERVICE_NAME"
#define LUA_LAUNCHER "snlua"

/* Types of Lua's objects, and the bit that values have which refer to such. */
#define TYPE_TABLE   5u
#define SHORT_STRING 0x44u
#define TABLE_VALUE  0x45u

/* Offsets that 5.4 and 5.5 share, and of what differs each one's. */
#define OBJECT_TYPE	8u
#define STATE_GLOBAL	24u
#define TABLE_NODES_LOG 11u
#define TABLE_ARRAY	16u
#define TABLE_NODES	24u
#define STRING_LENGTH	11u
static const uint32_t text_offsets[] = {24,
					32}; /* of a short string; the latter with an identifier */

#define GLOBAL_WORDS  32u /* of global_State, among which the registry is */
#define NODES_LOG_MAX 12u /* a table of global variables is smaller */

struct node {
	uint64_t value;
	uint8_t type, key_type;
	int32_t next;
	uint64_t key;
};

static bool read_word(pid_t pid, uint64_t address, uint64_t *ret_word)
{
	return hl_owners_read_memory(pid, address, ret_word, sizeof(*ret_word)) == 0;
}

static bool is_table(pid_t pid, uint64_t object)
{
	uint8_t type;

	return hl_owners_read_memory(pid, object + OBJECT_TYPE, &type, 1) == 0 &&
	       type == TYPE_TABLE;
}

/* A name becomes part of a line. */
static void keep_name(const char *text, char ret_name[HL_GUEST_SERVICE_NAME_MAX])
{
	size_t length = 0;

	for (; *text && length + 1 < HL_GUEST_SERVICE_NAME_MAX; text++)
		ret_name[length++] = (unsigned char)*text < ' ' || *text == ';' ? '?' : *text;
	ret_name[length] = '\0';
}

/* The short string at ${object}, whose text is at ${offset} there. */
static bool read_string(pid_t pid, uint64_t object, uint32_t offset, char text[64])
{
	uint8_t bytes[32 +
		      41]; /* which is as long as short strings get, with the byte at their end */

	if (hl_owners_read_memory(pid, object, bytes, offset + STRING_LENGTH) < 0)
		return false;
	uint8_t length = bytes[STRING_LENGTH];
	if (length > 40 || hl_owners_read_memory(pid, object, bytes, offset + length + 1u) < 0 ||
	    bytes[offset + length] || memchr(bytes + offset, 0, length))
		return false;
	memcpy(text, bytes + offset, length + 1u);
	return true;
}

/* The variable's value in ${node}, if that has it. */
static bool read_variable(pid_t pid, const struct node *node,
			  char ret_name[HL_GUEST_SERVICE_NAME_MAX])
{
	char text[64];

	for (size_t i = 0; i < sizeof(text_offsets) / sizeof(*text_offsets); i++)
		if (read_string(pid, node->key, text_offsets[i], text) && !strcmp(text, VARIABLE) &&
		    read_string(pid, node->value, text_offsets[i], text)) {
			keep_name(text, ret_name);
			return true;
		}
	return false;
}

static bool find_variable(pid_t pid, uint64_t table, char ret_name[HL_GUEST_SERVICE_NAME_MAX])
{
	struct node nodes[64];
	uint64_t at;
	uint8_t log;

	if (!is_table(pid, table) ||
	    hl_owners_read_memory(pid, table + TABLE_NODES_LOG, &log, 1) < 0 ||
	    log > NODES_LOG_MAX || !read_word(pid, table + TABLE_NODES, &at))
		return false;
	for (uint32_t left = 1u << log, count; left; left -= count, at += count * sizeof(*nodes)) {
		count = left < sizeof(nodes) / sizeof(*nodes) ? left
							      : sizeof(nodes) / sizeof(*nodes);
		if (hl_owners_read_memory(pid, at, nodes, count * sizeof(*nodes)) < 0)
			return false;
		for (uint32_t i = 0; i < count; i++)
			if (nodes[i].type == SHORT_STRING && nodes[i].key_type == SHORT_STRING &&
			    read_variable(pid, &nodes[i], ret_name))
				return true;
	}
	return false;
}

/*
 * The second value of the array of the ${registry} is the table of global variables: 5.4 has values of two words from
 * the array's address on, 5.5 the words of values below it.
 */
static bool find_in_registry(pid_t pid, uint64_t registry, char ret_name[HL_GUEST_SERVICE_NAME_MAX])
{
	uint64_t array, table;

	if (!read_word(pid, registry + TABLE_ARRAY, &array))
		return false;
	return (read_word(pid, array + 2 * sizeof(table), &table) &&
		find_variable(pid, table, ret_name)) ||
	       (read_word(pid, array - 2 * sizeof(table), &table) &&
		find_variable(pid, table, ret_name));
}

static bool find_in_state(pid_t pid, uint64_t state, char ret_name[HL_GUEST_SERVICE_NAME_MAX])
{
	uint64_t global, words[GLOBAL_WORDS];

	if (!read_word(pid, state + STATE_GLOBAL, &global) ||
	    hl_owners_read_memory(pid, global, words, sizeof(words)) < 0)
		return false;
	for (size_t i = 0; i + 1 < GLOBAL_WORDS; i++)
		if ((words[i + 1] & 0xff) == TABLE_VALUE && is_table(pid, words[i]) &&
		    find_in_registry(pid, words[i], ret_name))
			return true;
	return false;
}

/*
 * The name of the service at ${context}, whose ${instance} ${module} runs: of one in Lua, the value of the global variable
 * SERVICE_NAME, which skynet's loader sets, and of others their module's. "" where neither is found, as while a
 * service starts. Known are the structures of Lua 5.4 and 5.5, with and without an identifier in strings.
 */
static void read_name(pid_t pid, uint64_t context, uint64_t instance, uint64_t module,
		      char ret_name[HL_GUEST_SERVICE_NAME_MAX])
{
	char kind[HL_GUEST_SERVICE_NAME_MAX];
	uint64_t text, lua[2]; /* struct snlua: the state, and whose it is */

	ret_name[0] = '\0';
	if (!read_word(pid, module, &text) ||
	    hl_owners_read_memory(pid, text, kind, sizeof(kind)) < 0 ||
	    !memchr(kind, 0, sizeof(kind)))
		return;
	if (strcmp(kind, LUA_LAUNCHER) != 0)
		keep_name(kind, ret_name);
	else if (hl_owners_read_memory(pid, instance, lua, sizeof(lua)) == 0 && lua[1] == context)
		find_in_state(pid, lua[0], ret_name);
}

/* ---- the table, and the queues ---- */

/* Where struct skynet_context has what the service is, and who runs it. */
#define HL_SKYNET_INSTANCE 0u
#define HL_SKYNET_MODULE   8u

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
	read_name(reading->pid, service, instance, module, ret_service->name);
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
