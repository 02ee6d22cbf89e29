/* How many devices only play: every number that goes together with those who are left to learn is
 * searched, each as a question of its own. */
#include "candidate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Without lag actors and learners take turns, and 0 goes first, so that it wins where all are
 * alike. With lag there have to be some. */
static bool is_sensible(const ty_plan_options *o, uint32_t devices, uint32_t batch, uint32_t actors)
{
    const uint32_t learners = devices - actors, larger = actors > learners ? actors : learners;

    if (actors == 0)
        return o->lag == 0;
    return batch % larger == 0 && ty_actors_suit(actors, learners, larger);
}

/* The best of a number of actors, told behind the chosen one, where the best of each strategy are:
 * as the others there by their steps. @param told of them already */
static ty_status tell(const ty_plan *loser, uint32_t told, ty_plan *best, ty_error *error)
{
    const ty_candidate *from = loser->candidates;
    ty_candidate *rows, added;
    uint32_t at = 1;
    char reason[64];

    rows = ty_resize(best->candidates, (size_t)best->candidate_count + 1, sizeof *rows);
    if (rows == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    best->candidates = rows;
    snprintf(reason, sizeof reason, "%.2g %% slower with so many actors",
             100 * (ty_plan_summary(loser)->step_time_s / ty_plan_summary(best)->step_time_s - 1));
    added = (ty_candidate){.name = ty_strdup(from->name),
                           .step_time_s = from->step_time_s,
                           .simulated_step_time_s = from->simulated_step_time_s,
                           .peak_memory_bytes = from->peak_memory_bytes,
                           .reason = ty_strdup(reason),
                           .fix = from->fix != NULL ? ty_strdup(from->fix) : NULL};
    while (at <= told && ty_candidate_step_s(&rows[at]) <= ty_candidate_step_s(&added))
        at++;
    memmove(&rows[at + 1], &rows[at], (best->candidate_count - at) * sizeof *rows);
    rows[at] = added;
    best->candidate_count++;
    return added.name != NULL && added.reason != NULL && (from->fix == NULL || added.fix != NULL)
               ? TY_OK
               : ty_fail(error, TY_ENOMEM, "out of memory");
}

/* Of `plans` the fastest to `out`, with a word on the others. */
static ty_status choose(ty_plan **plans, uint32_t count, ty_plan **out, ty_error *error)
{
    uint32_t best = 0, told = 0;
    ty_plan_searched searched = {0};
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < count; i++) {
        best = ty_plan_summary(plans[i])->step_time_s < ty_plan_summary(plans[best])->step_time_s
                   ? i
                   : best;
        searched.layouts += plans[i]->searched.layouts;
        searched.estimates += plans[i]->searched.estimates;
    }
    for (uint32_t i = 0; i < count && status == TY_OK; i++)
        if (i != best && plans[i]->candidate_count > 0 && plans[best]->candidate_count > 0)
            status = tell(plans[i], told++, plans[best], error);
    if (status != TY_OK)
        return status;
    plans[best]->searched = searched;
    *out = plans[best];
    plans[best] = NULL; /* given away */
    return TY_OK;
}

ty_status ty_plan_search(const ty_workload *workload, const ty_cluster *cluster,
                         const ty_profile *profile, const ty_plan_options *options, ty_plan **out,
                         ty_error *error)
{
    const uint32_t devices = ty_cluster_device_count(cluster);
    const uint32_t batch =
        options->global_batch > 0 ? options->global_batch : workload->global_batch;
    ty_plan **plans;
    ty_plan_options o = *options;
    ty_error first = {0};
    uint32_t count = 0;
    ty_status status = TY_OK;

    if (workload->learning != TY_LEARNING_REINFORCEMENT || options->fix_actors)
        return ty_plan_search_once(workload, cluster, profile, options, out, error);
    plans = ty_alloc(devices, sizeof *plans);
    if (plans == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (o.actors = 0; o.actors < devices; o.actors++) {
        ty_error why = {0};
        if (!is_sensible(&o, devices, batch, o.actors))
            continue;
        status = ty_plan_search_once(workload, cluster, profile, &o, &plans[count], &why);
        if (status == TY_OK)
            count++;
        else if (status == TY_ENOMEM || status == TY_EINTERRUPTED || first.status == TY_OK)
            first = why;
        if (status == TY_ENOMEM || status == TY_EINTERRUPTED)
            break;
    }
    if (count > 0 && first.status != TY_ENOMEM)
        status = choose(plans, count, out, error);
    else if (first.status != TY_OK)
        status = ty_fail(error, first.status, "%s", first.message);
    else
        status = ty_fail(error, TY_EINVAL,
                         "lag: found %u, expected 0: no number of the %u devices of %s can be "
                         "actors of the others with %u samples a step",
                         o.lag, devices, ty_cluster_name(cluster), batch);
    for (uint32_t i = 0; i < count; i++)
        ty_plan_free(plans[i]);
    ty_free(plans);
    return status;
}
