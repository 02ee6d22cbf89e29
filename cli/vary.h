/**
 * @file vary.h
 * One point of a what-if question: the options of `trainyard plan` with some keys set to other
 * values. Internal to cli/.
 *
 * Keys (docs/reports.md has them for people):
 *   workload, cluster, batch, seq,
 *   system, stack, precision, objective, task    the option of that name
 *   workload.KEY                          KEY=VALUE behind the workload: "gpt2 sequence=512"
 *   hosts                                 N of "Nx HOST", or of "host:N"
 *   pod, leaf, host, gpu, oversub         that word of a described fabric
 *   device                                the "@DEVICE" of a described fabric
 *   bandwidth.LINK, latency.LINK          of every link of that type; LINK may be "all"
 *   memory, compute, memory_bandwidth     of every device
 *   what --fix knows                      tp, pp, dp, zero, micro_batch, schedule, ...
 * Figures of links and devices are quantities ("100Gb/s", "5us", "80GiB") or factors ("x0.5").
 */
#ifndef TY_CLI_VARY_H
#define TY_CLI_VARY_H

#include "cli.h"

/** A figure of the cluster's document that is replaced after the cluster was opened. */
typedef struct vary_edit {
    const char *list;  /* "link_types", "device_types" */
    const char *name;  /* of the entry; NULL: every one */
    const char *field; /* "latency_s"; "peak_" stands for all peak rates */
    double value;
    bool is_factor;
} vary_edit;

#define VARY_MOST_KEYS 16

typedef struct vary_point {
    cli_options options; /* texts lie in `texts` or are the base's */
    ty_arena *texts;
    vary_edit edits[VARY_MOST_KEYS];
    uint32_t edit_count;
} vary_point;

/** Starts from the base; `point` must be cleared, also after a failure. */
ty_status vary_point_new(const cli_options *base, vary_point *point, ty_error *error) TY_MUST_CHECK;
void vary_point_clear(vary_point *point);

/** TY_EINVAL: no such key (with the nearest), or a value that this key cannot have. */
ty_status vary_set(vary_point *point, const char *key, const char *value,
                   ty_error *error) TY_MUST_CHECK;

/** Opens workload, cluster and profile of a point, with its edits made to the cluster. */
ty_status vary_open(const vary_point *point, cli_question *out, ty_error *error) TY_MUST_CHECK;

#endif
