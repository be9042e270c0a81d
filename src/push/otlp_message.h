/* SPDX-License-Identifier: BSD-2-Clause */
/* A look as a message of OTLP: otlp.proto, ExportProfilesServiceRequest. */
#pragma once

#include "push/session.h"

#include <protobuf-c/protobuf-c.h>

#define HL_PUSH_OTLP_PROFILES 4 /* inuse_space, inuse_objects, alloc_space, alloc_objects */
#define HL_PUSH_OTLP_BYTES_MAX \
	(64 << 20) /* of a request, before it is deflated: what the specification recommends */

struct hl_push_otlp;

/*
 * The message of ${look}, of a window that began at ${from_ms}; its profile must stay. In use is what there is, allocated what was since the
 * look before. 0 or -ENOMEM.
 */
int hl_push_otlp_new(const struct hl_push_look *look, int64_t from_ms,
		     struct hl_push_otlp **ret_otlp);
const ProtobufCMessage *hl_push_otlp_message(const struct hl_push_otlp *otlp);
void hl_push_otlp_free(struct hl_push_otlp *otlp); /* NULL is fine */
