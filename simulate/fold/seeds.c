/* The same simulation with several seeds, one child process per core at once. */
#include "ty_simulate.h"

#include "child.h"
#include "engine.h"
#include "ty_base.h"

#include <math.h>
#include <unistd.h>

enum { MOST_CHILDREN = 64 };

/* The work of one child: every stride-th seed from the first. */
typedef struct share {
    const ty_plan *plan;
    const ty_program *program;
    const ty_costs *costs;
    const ty_cluster *cluster;
    const ty_simulate_options *options;
    uint32_t seeds, first, stride;
} share;

static ty_status simulate_one(const share *s, uint32_t index, double *step_time_s, ty_error *error)
{
    ty_simulate_options options = *s->options;
    ty_timeline *timeline = NULL;
    ty_step_summary summary;
    ty_status status;

    options.seed += index;
    options.devices = NULL;
    TY_CHECK(ty_simulate(s->plan, s->program, s->costs, s->cluster, &options, &timeline, error),
             status, done);
    TY_CHECK(ty_timeline_summarize(s->plan, s->program, timeline, &summary, error), status, done);
    *step_time_s = summary.step_time_s;
done:
    ty_timeline_free(timeline);
    return status;
}

static ty_status simulate_share(void *context, void *result, ty_error *error)
{
    const share *s = context;
    double *step_times_s = result;

    for (uint32_t index = s->first; index < s->seeds; index += s->stride) {
        ty_error cause = {0};
        const ty_status status = simulate_one(s, index, &step_times_s[index], &cause);
        if (status != TY_OK)
            return ty_fail(error, status, "seed %llu: %s",
                           (unsigned long long)(s->options->seed + index), cause.message);
    }
    return TY_OK;
}

ty_status ty_simulate_seeds(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                            const ty_cluster *cluster, const ty_simulate_options *options,
                            uint32_t seeds, double *step_times_s, ty_error *error)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const long most = cores < 1 ? 1 : cores > MOST_CHILDREN ? MOST_CHILDREN : cores;
    const uint32_t children = most < seeds ? (uint32_t)most : seeds;
    const size_t size = seeds * sizeof(double);
    double *times_s = ty_alloc(seeds, sizeof *times_s);
    ty_child *child[MOST_CHILDREN] = {0};
    share shares[MOST_CHILDREN];
    ty_status status = TY_OK;

    if (times_s == NULL && seeds > 0) {
        status = ty_fail(error, TY_ENOMEM, "simulation: memory ran out");
        goto cleanup;
    }
    /* Loaded here, not in each child; those report a failure, or do without. */
    (void)(options->engine != TY_ENGINE_FLOW && ty_engine_load_simgrid(NULL) == TY_OK);
    /* Each simulation has its own time limit; their number bounds the share's. */
    for (uint32_t c = 0; c < children; c++) {
        shares[c] = (share){plan, program, costs, cluster, options, seeds, c, children};
        TY_CHECK(ty_child_start(simulate_share, &shares[c], size, INFINITY, &child[c], error),
                 status, cleanup);
    }
    for (uint32_t c = 0; c < children; c++) {
        TY_CHECK(ty_child_wait(child[c], times_s, error), status, cleanup);
        for (uint32_t index = c; index < seeds; index += children)
            step_times_s[index] = times_s[index];
    }

cleanup:
    for (uint32_t c = 0; c < children; c++)
        ty_child_free(child[c]);
    ty_free(times_s);
    return status;
}
