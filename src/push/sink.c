/* SPDX-License-Identifier: BSD-2-Clause */
/* Chooses a sink; see sink.h. */
#include "push/sink.h"

#include "fleet/store.h"
#include "fleet/web.h"

#include <errno.h>

int hl_push_sink_open(const char *url, bool experimental, struct hl_push_sink **ret_sink,
		      struct hl_error *err)
{
	if (hl_push_otlp_is_url(url) && !experimental)
		return hl_error_set(
			err, -EINVAL,
			"cannot push to '%s': profiles of OTLP are in development and may change; "
			"--experimental sends them as version 1.11.0 has them",
			url);
	if (hl_push_otlp_is_url(url))
		return hl_push_otlp_open(url, ret_sink, err);
	if (hl_web_is_url(url))
		return hl_push_pyroscope_open(url, ret_sink, err);
	if (hl_fleet_is_url(url))
		return hl_push_store_open(url, ret_sink, err);
	return hl_error_set(
		err, -EINVAL,
		"cannot push to '%s': name a file of SQLite, clickhouse://HOST/DATABASE, http:// "
		"or "
		"https:// for Pyroscope, or otlp+http:// or otlp+https:// for OpenTelemetry",
		url);
}

void hl_push_sink_free(struct hl_push_sink *sink)
{
	if (sink)
		sink->kind->free(sink);
}
