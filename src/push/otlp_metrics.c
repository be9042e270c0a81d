/* SPDX-License-Identifier: BSD-2-Clause */
/* What control groups are charged with as metrics of OTLP; see sink.h and otlp.proto. */
#include "base/cleanup.h"
#include "base/text.h"
#include "otlp.pb-c.h"
#include "push/sink.h"

#define ATTRIBUTES   4
#define NAME_BYTES   64
#define NS_PER_MS    1000000
#define CUMULATIVE   2
#define BYTES_SUFFIX "_bytes"

/* Labels as the semantic conventions name them. */
static const char *const attribute_names[ATTRIBUTES] = {"host.name", "process.linux.cgroup",
							"container.id", "k8s.pod.uid"};

/* The messages of one group, which point to each other. */
struct resource {
	Otlp__ResourceMetrics metrics_of;
	Otlp__Resource resource;
	Otlp__KeyValue attributes[ATTRIBUTES], *attribute_list[ATTRIBUTES];
	Otlp__AnyValue values[ATTRIBUTES];
	Otlp__ScopeMetrics scope_metrics, *scope_list[1];
	Otlp__InstrumentationScope scope;
	Otlp__Metric metrics[HL_GROUP_FIGURES], *metric_list[HL_GROUP_FIGURES];
	Otlp__Gauge gauges[HL_GROUP_FIGURES];
	Otlp__Sum sum;
	Otlp__NumberDataPoint points[HL_GROUP_FIGURES], *point_list[HL_GROUP_FIGURES];
	char names[HL_GROUP_FIGURES][NAME_BYTES];
	char *cgroup; /* in UTF-8 */
};

static void put_attributes(struct resource *to, const struct hl_group *group, const char *host)
{
	const char *const texts[ATTRIBUTES] = {host, to->cgroup, group->container, group->pod};

	to->resource = (Otlp__Resource)OTLP__RESOURCE__INIT;
	to->resource.attributes = to->attribute_list;
	for (size_t i = 0; i < ATTRIBUTES; i++) {
		if (!texts[i][0])
			continue;
		to->values[i] = (Otlp__AnyValue)OTLP__ANY_VALUE__INIT;
		to->values[i].value_case = OTLP__ANY_VALUE__VALUE_STRING_VALUE;
		to->values[i].string_value = (char *)texts[i];
		to->attributes[i] = (Otlp__KeyValue)OTLP__KEY_VALUE__INIT;
		to->attributes[i].key = (char *)attribute_names[i];
		to->attributes[i].value = &to->values[i];
		to->attribute_list[to->resource.n_attributes++] = &to->attributes[i];
	}
}

/* heapline.cgroup.usage, in By; kills are a sum, the others gauges. */
static void put_metric(struct resource *to, size_t figure, int64_t number, int64_t ms)
{
	const struct hl_group_figure_name *said = &hl_group_figure_names[figure];
	const char *suffix = strstr(said->name, BYTES_SUFFIX);
	Otlp__Metric *metric = &to->metrics[figure];
	Otlp__NumberDataPoint *point = &to->points[figure];

	snprintf(to->names[figure], NAME_BYTES, "heapline.cgroup.%.*s",
		 (int)(suffix ? (size_t)(suffix - said->name) : strlen(said->name)), said->name);
	*point = (Otlp__NumberDataPoint)OTLP__NUMBER_DATA_POINT__INIT;
	point->time_unix_nano = (uint64_t)ms * NS_PER_MS;
	point->value_case = OTLP__NUMBER_DATA_POINT__VALUE_AS_INT;
	point->as_int = number;
	to->point_list[figure] = point;
	*metric = (Otlp__Metric)OTLP__METRIC__INIT;
	metric->name = to->names[figure];
	metric->description = (char *)said->help;
	metric->unit = (char *)(suffix ? "By" : "{process}");
	if (figure == HL_GROUP_OOM_KILLS) {
		to->sum = (Otlp__Sum)OTLP__SUM__INIT;
		to->sum.n_data_points = 1;
		to->sum.data_points = &to->point_list[figure];
		to->sum.aggregation_temporality = CUMULATIVE;
		to->sum.is_monotonic = true;
		metric->data_case = OTLP__METRIC__DATA_SUM;
		metric->sum = &to->sum;
	} else {
		to->gauges[figure] = (Otlp__Gauge)OTLP__GAUGE__INIT;
		to->gauges[figure].n_data_points = 1;
		to->gauges[figure].data_points = &to->point_list[figure];
		metric->data_case = OTLP__METRIC__DATA_GAUGE;
		metric->gauge = &to->gauges[figure];
	}
	to->metric_list[to->scope_metrics.n_metrics++] = metric;
}

static int put_group(struct resource *to, const struct hl_group *group, const char *host,
		     int64_t ms)
{
	to->cgroup = hl_utf8_clean(group->name);
	if (!to->cgroup)
		return -ENOMEM;
	put_attributes(to, group, host);
	to->scope = (Otlp__InstrumentationScope)OTLP__INSTRUMENTATION_SCOPE__INIT;
	to->scope.name = (char *)"heapline";
	to->scope.version = (char *)HL_VERSION;
	to->scope_metrics = (Otlp__ScopeMetrics)OTLP__SCOPE_METRICS__INIT;
	to->scope_metrics.scope = &to->scope;
	to->scope_metrics.metrics = to->metric_list;
	to->scope_list[0] = &to->scope_metrics;
	for (size_t i = 0; i < HL_GROUP_FIGURES; i++)
		if (group->figures[i] >= 0)
			put_metric(to, i, group->figures[i], ms);
	to->metrics_of = (Otlp__ResourceMetrics)OTLP__RESOURCE_METRICS__INIT;
	to->metrics_of.resource = &to->resource;
	to->metrics_of.n_scope_metrics = 1;
	to->metrics_of.scope_metrics = to->scope_list;
	return 0;
}

int hl_push_otlp_groups(const struct hl_groups *groups, const char *host, int64_t ms, FILE *out)
{
	struct resource *resources = calloc(groups->count + 1, sizeof(*resources));
	HL_FREED Otlp__ResourceMetrics **list =
		calloc(groups->count + 1, sizeof(Otlp__ResourceMetrics *));
	Otlp__ExportMetrics message = OTLP__EXPORT_METRICS__INIT;
	int r = resources && list ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < groups->count; i++) {
		r = put_group(&resources[i], &groups->groups[i], host, ms);
		list[i] = &resources[i].metrics_of;
	}
	message.n_resource_metrics = groups->count;
	message.resource_metrics = list;
	if (r == 0)
		r = hl_push_otlp_put(&message.base, out, NULL);
	for (size_t i = 0; resources && i < groups->count; i++)
		free(resources[i].cgroup);
	free(resources);
	return r;
}
