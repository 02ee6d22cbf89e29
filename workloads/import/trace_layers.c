/* Maps annotations of a trace to times of a workload's layers by the layers' names. */
#include "ty_workloads.h"

#include <stdio.h>
#include <string.h>

#define FORWARD_PREFIX "annotation "
#define BACKWARD_SUFFIX ".backward"

typedef struct matching {
    const ty_profile *trace;
    const ty_workload *workload;
    uint32_t samples;
    bool *takes_part; /* [layers]: in backward */
    uint32_t *counts; /* [layers]: layers summed in a row */
    ty_profile *profile;
    uint32_t matched, wanted;
    ty_error *error;
} matching;

static const ty_layer_time *find(const ty_profile *trace, const char *layer, const char *suffix)
{
    size_t prefix = strlen(FORWARD_PREFIX), length = strlen(layer);

    for (uint32_t i = 0; i < trace->layer_time_count; i++) {
        const char *name = trace->layer_times[i].signature;
        if (strncmp(name, FORWARD_PREFIX, prefix) == 0 &&
            strncmp(name + prefix, layer, length) == 0 &&
            strcmp(name + prefix + length, suffix) == 0)
            return &trace->layer_times[i];
    }
    return NULL;
}

/* Adds a layer's times to the row of its signature, which becomes a mean at the end. Takes the
 * signature. */
static void add(matching *m, char *signature, double forward_s, double backward_s)
{
    ty_profile *p = m->profile;
    uint32_t row = 0;

    while (row < p->layer_time_count && strcmp(p->layer_times[row].signature, signature) != 0)
        row++;
    if (row == p->layer_time_count)
        p->layer_times[p->layer_time_count++] =
            (ty_layer_time){.signature = signature, .micro_batch = m->samples};
    else
        ty_free(signature);
    p->layer_times[row].forward_s += forward_s;
    p->layer_times[row].backward_s += backward_s;
    m->counts[row]++;
}

/* A layer without kernels takes no time and needs no annotation. */
static ty_status match(matching *m, uint32_t layer)
{
    const ty_layer *l = &m->workload->layers[layer];
    const ty_layer_time *forward = find(m->trace, l->name, "");
    const ty_layer_time *backward = find(m->trace, l->name, BACKWARD_SUFFIX);
    bool needs_backward = m->takes_part[layer];
    char *signature = NULL;
    ty_status status;

    if (l->kernel_count == 0)
        return TY_OK;
    m->wanted++;
    if (forward == NULL && backward == NULL)
        return TY_OK;
    if (forward == NULL || (backward == NULL && needs_backward))
        return ty_fail(
            m->error, TY_EPARSE,
            "layer %s: the trace has an annotation \"%s%s\" but none \"%s%s\": a layer is "
            "timed both ways or not at all",
            l->name, l->name, forward == NULL ? BACKWARD_SUFFIX : "", l->name,
            forward == NULL ? "" : BACKWARD_SUFFIX);
    status = ty_layer_signature(m->workload, layer, &signature, m->error);
    if (status != TY_OK)
        return status;
    m->matched++;
    add(m, signature, forward->forward_s, needs_backward ? backward->forward_s : 0);
    return TY_OK;
}

static ty_status refuse(const matching *m)
{
    const char *first = m->workload->layers[0].name;

    return ty_fail(m->error, TY_EPARSE,
                   "found %u names in the trace, such as \"%s\", and none of the %u layers of %s; "
                   "kernels do not say which layer they belong to: record with "
                   "record_function(\"%s\"), and (\"%s" BACKWARD_SUFFIX "\") around its backward",
                   m->trace->layer_time_count, m->trace->layer_times[0].signature,
                   m->workload->layer_count, m->workload->name, first, first);
}

static ty_status match_all(matching *m)
{
    for (uint32_t layer = 0; layer < m->workload->layer_count; layer++)
        TY_TRY(match(m, layer));
    if (m->matched == 0)
        return refuse(m);
    for (uint32_t row = 0; row < m->profile->layer_time_count; row++) {
        m->profile->layer_times[row].forward_s /= m->counts[row];
        m->profile->layer_times[row].backward_s /= m->counts[row];
    }
    return TY_OK;
}

static ty_status note(const matching *m, ty_import_report *report)
{
    char text[160];

    if (report == NULL)
        return TY_OK;
    snprintf(text, sizeof text, "%u of the %u layers of %.60s that take time are in the trace%s",
             m->matched, m->wanted, m->workload->name,
             m->matched < m->wanted ? "; the others are planned by data sheets" : "");
    return ty_import_report_add(report, text, m->error);
}

/* Copies everything except the layers: machine and collectives. */
static ty_status copy_rest(const ty_profile *trace, const ty_workload *workload, ty_profile **out,
                           ty_error *error)
{
    ty_profile *p = ty_alloc(1, sizeof *p);

    TY_TRY(ty_check_memory(p != NULL, error));
    *p = *trace;
    p->machine = ty_strdup(trace->machine);
    p->backend = ty_strdup(trace->backend);
    p->date = ty_strdup(trace->date);
    p->versions = ty_strdup(trace->versions);
    p->layer_time_count = 0;
    p->layer_times = ty_alloc(workload->layer_count, sizeof *p->layer_times);
    p->collective_times = ty_alloc(trace->collective_time_count, sizeof *p->collective_times);
    p->transfer_times = NULL;
    p->codec_times = NULL;
    p->update_times = NULL;
    p->transfer_time_count = p->codec_time_count = p->update_time_count = 0;
    if (p->machine == NULL || p->backend == NULL || p->date == NULL || p->versions == NULL ||
        p->layer_times == NULL || p->collective_times == NULL) {
        ty_profile_free(p);
        return ty_fail(error, TY_ENOMEM, "out of memory");
    }
    for (uint32_t i = 0; i < trace->collective_time_count; i++)
        p->collective_times[i] = trace->collective_times[i];
    *out = p;
    return TY_OK;
}

ty_status ty_profile_of_trace(const ty_profile *trace, const ty_workload *workload,
                              uint32_t samples, ty_profile **out, ty_import_report *report,
                              ty_error *error)
{
    matching m = {.trace = trace, .workload = workload, .samples = samples, .error = error};
    ty_status status = TY_OK;

    if (samples == 0)
        return ty_fail(error, TY_EINVAL, "found 0 samples in a pass, expected at least 1");
    m.takes_part = ty_alloc(workload->layer_count, sizeof *m.takes_part);
    m.counts = ty_alloc(workload->layer_count, sizeof *m.counts);
    TY_CHECK(ty_check_memory(m.takes_part != NULL && m.counts != NULL, error), status, cleanup);
    ty_workload_mark_backward(workload, m.takes_part);
    TY_CHECK(copy_rest(trace, workload, &m.profile, error), status, cleanup);
    TY_CHECK(match_all(&m), status, cleanup);
    TY_CHECK(note(&m, report), status, cleanup);
    *out = m.profile;
    m.profile = NULL; /* ownership moved */

cleanup:
    ty_profile_free(m.profile);
    ty_free(m.takes_part);
    ty_free(m.counts);
    return status;
}
