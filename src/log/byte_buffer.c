/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory for byte buffers; see segment.h. */
#include "log/segment.h"

#include <stdlib.h>
#include <string.h>

#define CAPACITY_MIN 4096

uint8_t *hl_byte_buffer_reserve(struct hl_byte_buffer *buffer, size_t more)
{
	if (buffer->failed)
		return NULL;
	if (more > buffer->capacity - buffer->size) {
		size_t wanted = 2 * buffer->capacity + more;
		if (wanted < CAPACITY_MIN)
			wanted = CAPACITY_MIN;
		uint8_t *bytes = reallocarray(buffer->bytes, wanted, 1);
		if (!bytes) {
			buffer->failed = true;
			return NULL;
		}
		buffer->bytes = bytes;
		buffer->capacity = wanted;
	}
	return buffer->bytes + buffer->size;
}

void hl_byte_buffer_put(struct hl_byte_buffer *buffer, const void *bytes, size_t size)
{
	uint8_t *room = hl_byte_buffer_reserve(buffer, size);

	if (!room || !size)
		return;
	memcpy(room, bytes, size);
	buffer->size += size;
}

void hl_byte_buffer_release(struct hl_byte_buffer *buffer)
{
	free(buffer->bytes);
	*buffer = (struct hl_byte_buffer){0};
}
