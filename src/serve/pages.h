/* SPDX-License-Identifier: BSD-2-Clause */
/* Answers that are made of the catalog and of groups alone. */
#pragma once

#include "serve/catalog.h"
#include "serve/groups.h"

#include <stdio.h>

/* The page that lists processes and recordings, with links to what can be asked of each. 0 or -ENOMEM. */
int hl_serve_index(const struct hl_catalog *catalog, FILE *out);

#define HL_METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/*
 * Figures of all processes in Prometheus' text format 0.0.4
 * (https://prometheus.io/docs/instrumenting/exposition_formats/), labelled by pid, command,
 * service, script, container and user; and of ${groups}, labelled by cgroup, container and pod. 0 or -ENOMEM.
 */
int hl_serve_metrics(const struct hl_catalog *catalog, const struct hl_groups *groups, FILE *out);
