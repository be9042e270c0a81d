/* SPDX-License-Identifier: BSD-2-Clause */
/* What a BEAM said, given back. */
#include "heap/beam/beam.h"

void hl_beam_report_release(struct hl_beam_report *report)
{
	hl_carriers_release(&report->carriers);
	hl_beam_instances_release(&report->instances);
	hl_allocations_release(&report->allocations);
}
