/* SPDX-License-Identifier: BSD-2-Clause */
/* Chooses a sink; see sink.h. */
#include "push/sink.h"

#include "fleet/store.h"

#include <errno.h>
#include <string.h>

int hl_push_sink_open(const char *url, struct hl_push_sink **ret_sink, struct hl_error *err)
{
	if (!strncmp(url, "http://", strlen("http://")) ||
	    !strncmp(url, "https://", strlen("https://")))
		return hl_push_pyroscope_open(url, ret_sink, err);
	if (hl_fleet_is_url(url))
		return hl_push_store_open(url, ret_sink, err);
	return hl_error_set(
		err, -EINVAL,
		"cannot push to '%s': name a file of SQLite, clickhouse://HOST/DATABASE, or the "
		"http:// or https:// URL of a server that takes pprof by POST",
		url);
}

void hl_push_sink_free(struct hl_push_sink *sink)
{
	if (sink)
		sink->kind->free(sink);
}
