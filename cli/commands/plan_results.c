/* A plan with its predictions and its measurement. */
#include "cli.h"

#include <string.h>

void plan_results_clear(plan_results *f)
{
    ty_comparison_free(f->comparison);
    ty_run_free(f->run);
    ty_timeline_free(f->simulated);
    ty_timeline_free(f->estimated);
    ty_plan_inputs_clear(&f->inputs);
}

ty_status plan_results_read(const char *plan_path, const char *run_path, const ty_watch *watch,
                            plan_results *f, ty_error *error)
{
    ty_digest digest;

    TY_TRY(ty_plan_inputs_load(plan_path, NULL, watch, &f->inputs, error));
    if (run_path == NULL)
        return TY_OK;
    TY_TRY(ty_run_load(run_path, &f->run, error));
    TY_TRY(ty_plan_inputs_of_worker(&f->inputs, error));
    TY_TRY(ty_plan_digest(f->inputs.plan, &digest, error));
    if (strcmp(digest.hex, f->run->plan_digest.hex) != 0)
        return ty_fail(error, TY_EPARSE,
                       "%s:/plan_digest: found %.12s..., expected %.12s... of %s: the run is of "
                       "another plan",
                       run_path, f->run->plan_digest.hex, digest.hex, plan_path);
    if (f->run->timeline == NULL) /* of a finished checkpoint */
        return TY_OK;
    TY_TRY(ty_timeline_check(f->inputs.plan, f->inputs.program, f->run->timeline, run_path, error));
    return TY_OK;
}

ty_status plan_results_make(plan_results *f, ty_error *error)
{
    ty_simulate_options how = ty_simulate_options_default();
    const ty_plan_inputs *in = &f->inputs;

    if (f->estimated == NULL)
        TY_TRY(ty_estimate(in->plan, in->program, in->costs,
                           3 + 2 * ty_program_largest_lead(in->program), &f->estimated, error));
    how.steps += 2 * ty_program_largest_lead(in->program);
    if (f->simulated == NULL)
        TY_TRY(
            ty_simulate(in->plan, in->program, in->costs, in->cluster, &how, &f->simulated, error));
    if (f->run != NULL && f->run->timeline != NULL)
        TY_TRY(ty_compare(in->plan, in->program, f->simulated != NULL ? f->simulated : f->estimated,
                          f->run, &f->comparison, error));
    return TY_OK;
}

void interval_spread(ty_interval from, double scale, double to[3])
{
    to[0] = from.low * scale;
    to[1] = from.expected * scale;
    to[2] = from.high * scale;
}
