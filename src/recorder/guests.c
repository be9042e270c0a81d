/* SPDX-License-Identifier: BSD-2-Clause */
/* What the recorder has its guests do; see guests/guest.h. */
#include "guests/guest.h"

#include "recorder/recorder.h"
#include "recorder/sys.h"

struct hl_guest_wants hl_guest_wants;

/* The first guest whose code it is says so. */
static uint64_t find_generated(struct hl_unwind *unwind, struct hl_walk *walk, uint64_t sp)
{
	uint64_t rule = 0;

	for (uint32_t i = 0; i < HL_GUESTS && !rule; i++)
		if (hl_guests[i] && hl_guests[i]->find_generated)
			rule = hl_guests[i]->find_generated(unwind, walk, sp);
	return rule;
}

void hl_guests_set_up(struct hl_recorder *recorder)
{
	for (uint32_t i = 0; i < HL_GUESTS; i++) {
		const struct hl_guest *guest = hl_guests[i];
		if (guest && guest->find_generated)
			recorder->unwind.find_generated = find_generated;
		if (guest && guest->type)
			hl_guest_wants.type = guest->type;
	}
}

void *hl_guests_stamp_by(struct hl_recorder *recorder, enum hl_guest_id guest, void *made)
{
	uint64_t known = 0, own = (uintptr_t)made | guest;

	if (atomic_compare_exchange_strong(&recorder->region.header->guest_table, &known, own))
		known = own;
	if ((known & HL_GUEST_TABLE_ID_MASK) != guest)
		return NULL;
	atomic_store(&hl_guest_wants.stamp, hl_guests[guest]->stamp);
	return (void *)(known & ~HL_GUEST_TABLE_ID_MASK);
}

bool hl_guests_note(struct hl_region_header *header, const struct hl_guest_module *module)
{
	bool found = false;

	for (uint32_t i = 0; i < HL_GUESTS; i++)
		if (hl_guests[i] && hl_guests[i]->note && hl_guests[i]->note(header, module))
			found = true;
	return found;
}

void hl_guests_open(struct hl_recorder *recorder)
{
	/* Only one thread does: this is the pid of its process, or 0. A forked child inherits its parent's. */
	static _Atomic uint32_t opener;
	uint32_t self = hl_sys_getpid(), seen = atomic_load(&opener);

	if (seen == self || !atomic_compare_exchange_strong(&opener, &seen, self))
		return;
	/* Before the guests look: who finds another interpreter notes it first, then sets the flag. */
	atomic_fetch_and(&recorder->region.header->mode, ~HL_MODE_PROBE);
	HL_GUESTS_CALL(open, recorder);
	atomic_store(&opener, 0);
}
