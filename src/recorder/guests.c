/* SPDX-License-Identifier: BSD-2-Clause */
/* Which guests there are; see guest.h. */
#include "guests/guest.h"

#include "recorder/recorder.h"
#include "recorder/sys.h"

const struct hl_guest *const hl_guests[HL_GUESTS] = {
#ifdef HL_WITH_LUA
	[HL_GUEST_LUA] = &hl_guest_lua,
#endif
#ifdef HL_WITH_PYTHON
	[HL_GUEST_PYTHON] = &hl_guest_python,
#endif
#if defined(HL_WITH_SKYNET) && defined(HL_ATTACHED)
	[HL_GUEST_SKYNET] = &hl_guest_skynet,
#endif
};

struct hl_guest_wants hl_guest_wants;

void hl_guests_set_up(struct hl_recorder *recorder)
{
	for (uint32_t i = 0; i < HL_GUESTS; i++) {
		const struct hl_guest *guest = hl_guests[i];
		if (guest && guest->find_generated)
			recorder->unwind.find_generated = guest->find_generated;
		if (guest && guest->type)
			hl_guest_wants.type = guest->type;
		if (guest && guest->stamp)
			hl_guest_wants.stamp = guest->stamp;
	}
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
