/* Chooses the number of actors: searches every number that is compatible with the remaining
 * learners, each as a separate question. */
#include "candidate.h"

#include <stdlib.h>

/* Without lag, actors and learners take turns, and 0 is tried first, so that it wins ties. With
 * lag, there must be actors. */
static bool is_sensible(const ty_plan_options *o, uint32_t devices, uint32_t batch, uint32_t actors)
{
    const uint32_t learners = devices - actors, larger = actors > learners ? actors : learners;

    if (actors == 0)
        return o->pins.lag == 0;
    return batch % larger == 0 && ty_actors_suit(actors, learners, larger);
}

/* Ties: fewest actors first. */
static int by_step(const void *left, const void *right)
{
    const ty_plan *a = *(ty_plan *const *)left, *b = *(ty_plan *const *)right;
    const double a_s = ty_plan_summary(a)->step_time_s, b_s = ty_plan_summary(b)->step_time_s;

    if (a_s < b_s || a_s > b_s)
        return a_s < b_s ? -1 : 1;
    return (ty_plan_actors(a) > ty_plan_actors(b)) - (ty_plan_actors(a) < ty_plan_actors(b));
}

/* Moves the fastest of `plans` to `out`, and the others to its candidates. */
static ty_status choose(ty_plan **plans, uint32_t count, ty_plan **out, ty_error *error)
{
    ty_plan_searched searched = {0};
    uint32_t row = 1;
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < count; i++) {
        searched.layouts += plans[i]->searched.layouts;
        searched.estimates += plans[i]->searched.estimates;
    }
    qsort(plans, count, sizeof *plans, by_step);
    for (uint32_t i = 1; i < count && status == TY_OK && plans[0]->candidate_count > 0; i++)
        status = ty_plan_put_beside(plans[0], plans[i], NULL, NULL, &row, error);
    if (status != TY_OK)
        return status;
    plans[0]->searched = searched;
    *out = plans[0];
    plans[0] = NULL; /* ownership passed */
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

    if (workload->learning != TY_LEARNING_REINFORCEMENT ||
        ty_is_pinned(&options->pins, TY_AXIS(ACTORS)))
        return ty_plan_search_once(workload, cluster, profile, options, out, error);
    TY_TRY(ty_check_memory((plans = ty_alloc(devices, sizeof *plans)) != NULL, error));
    for (uint32_t actors = 0; actors < devices; actors++) {
        ty_error why = {0};
        if (!is_sensible(&o, devices, batch, actors))
            continue;
        ty_pin(&o.pins, TY_AXIS_ACTORS, actors);
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
                         "actors of the others with %u samples per step",
                         o.pins.lag, devices, ty_cluster_name(cluster), batch);
    for (uint32_t i = 0; i < count; i++)
        ty_plan_free(plans[i]);
    ty_free(plans);
    return status;
}
