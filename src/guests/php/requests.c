/* SPDX-License-Identifier: BSD-2-Clause */
/* Counts requests of PHP and stamps blocks with them; see requests.h. */
#include "guests/php/requests.h"

#include "guests/guest.h"
#include "guests/php/php.h"
#include "recorder/block.h"
#include "recorder/private_map.h"
#include "recorder/recorder.h"

enum {
	PLACE_OF_REQUESTS,
	PLACE_OF_REFUSAL, /* not NULL: there was no memory, or another guest stamps */
};

static struct hl_php_requests *known_requests(struct hl_recorder *recorder)
{
	return atomic_load_explicit(&recorder->guest_places[HL_GUEST_PHP][PLACE_OF_REQUESTS],
				    memory_order_acquire);
}

static __attribute__((noinline)) uint32_t begin(struct hl_recorder *recorder,
						const struct hl_php_api *api)
{
	_Atomic(void *) *places = recorder->guest_places[HL_GUEST_PHP];
	struct hl_php_requests *made, *requests;

	if (recorder->hash_only || atomic_load(&places[PLACE_OF_REFUSAL]))
		return 0;
	made = hl_private_map_new(sizeof(*made));
	if (made) {
		made->around_start = api->around_start;
		made->around_end = api->around_end;
		atomic_store(&made->number, 1);
	}
	requests = made ? hl_guests_stamp_by(recorder, HL_GUEST_PHP, made) : NULL;
	if (made && requests != made)
		hl_private_map_free(made, sizeof(*made));
	atomic_store(&places[requests ? PLACE_OF_REQUESTS : PLACE_OF_REFUSAL],
		     requests ? (void *)requests : (void *)recorder);
	return requests ? atomic_load(&requests->number) : 0;
}

uint32_t hl_php_request(struct hl_recorder *recorder, const struct hl_php_api *api)
{
	struct hl_php_requests *requests = known_requests(recorder);

	return HL_LIKELY(requests) ? atomic_load_explicit(&requests->number, memory_order_relaxed)
				   : begin(recorder, api);
}

void hl_php_requests_stamp(struct hl_thread *thread, const void *block)
{
	struct hl_php_requests *requests = known_requests(hl_recorder);
	uintptr_t at = (uintptr_t)block;
	uint32_t value = thread->stamp.value;

	thread->stamp.value = 0;
	/* Others have no entry of their own, and no tool asks for one. */
	if (!requests || at & 15 || at >> HL_BLOCK_ADDRESS_BITS)
		return;
	hl_block_entry *entry =
		hl_block_array_make(&requests->stamps, hl_block_stamp_plane(at), at);
	if (HL_LIKELY(entry))
		atomic_store_explicit(entry, value, memory_order_relaxed);
}

void hl_php_requests_end(struct hl_recorder *recorder)
{
	struct hl_php_requests *requests = known_requests(recorder);

	if (requests)
		atomic_fetch_add_explicit(&requests->number, 1, memory_order_relaxed);
}
