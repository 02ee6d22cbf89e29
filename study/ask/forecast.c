/* Forecast of a long run of a plan whose devices, hosts and links fail, at given or random
 * times. */
#include "ty_study.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_HORIZON_S (30.0 * 86400.0)
#define DEFAULT_REPAIR_S 86400.0
enum { MOST_LOST = 8 };

ty_forecast_question ty_forecast_question_default(void)
{
    return (ty_forecast_question){.horizon_s = DEFAULT_HORIZON_S,
                                  .repair_s = DEFAULT_REPAIR_S,
                                  .restart_s = (double)NAN,
                                  .seed = 1};
}

/* ---- Costs of a fault ---------------------------------------------------------------------- */

typedef struct faults {
    const ty_forecast_question *asked;
    const ty_plan_inputs *inputs;
    const ty_simulate_options *how;
    double step_time_s;
    bool *is_lost; /* [replica] */
    uint32_t lost_count;
    ty_forecast *out;
} faults;

/* Step time of other inputs; slowdowns refer to the stage replicas of the original plan. */
static ty_status simulate_other(const faults *f, const ty_plan_inputs *inputs, bool has_all_ranks,
                                double *step_time_s, ty_error *error)
{
    ty_simulate_options how = *f->how;
    ty_timeline *timeline = NULL;
    ty_step_summary summary;
    ty_status status;

    if (!has_all_ranks)
        how.slowdowns = NULL;
    TY_CHECK(ty_simulate(inputs->plan, inputs->program, inputs->costs, inputs->cluster, &how,
                         &timeline, error),
             status, done);
    TY_CHECK(ty_timeline_summarize(inputs->plan, inputs->program, timeline, &summary, error),
             status, done);
    *step_time_s = summary.step_time_s;
done:
    ty_timeline_free(timeline);
    return status;
}

/* Speed of the run over the remaining routes. */
static ty_status rate_without_link(const faults *f, uint32_t link, double *rate, ty_error *error)
{
    ty_plan_inputs inputs = *f->inputs;
    double step_time_s = 0.0;
    const uint32_t links = ty_cluster_link_count(inputs.cluster);
    double *factors = ty_alloc(links, sizeof *factors);
    ty_status status;

    TY_TRY(ty_check_memory(factors != NULL, error));
    for (uint32_t l = 0; l < links; l++)
        factors[l] = l == link ? 0.0 : 1.0;
    status = ty_cluster_impaired(f->inputs->cluster, factors, &inputs.cluster, error);
    ty_free(factors);
    *rate = 0.0;
    if (status != TY_OK)
        return status == TY_EINFEASIBLE ? TY_OK : status; /* cut off: no progress */
    status = simulate_other(f, &inputs, true, &step_time_s, error);
    if (status == TY_OK)
        *rate = fmin(1.0, f->step_time_s / step_time_s);
    ty_cluster_free(inputs.cluster);
    return status;
}

static uint32_t replica_of(const ty_plan *plan, uint32_t stage_replica)
{
    return stage_replica -
           ty_plan_first_replica(plan, ty_plan_stage_of_replica(plan, stage_replica));
}

/* Marks the replicas that lose a device. @return number of newly marked ones */
static uint32_t lose_replicas(faults *f, bool is_host, uint32_t index)
{
    const ty_plan *plan = f->inputs->plan;
    uint32_t count = 0;

    for (uint32_t r = 0; r < ty_plan_stage_replica_count(plan); r++)
        for (uint32_t replica_rank = 0; replica_rank < ty_plan_replica_ranks(plan);
             replica_rank++) {
            const uint32_t device = ty_plan_device_of_replica_rank(plan, r, replica_rank);
            const uint32_t found =
                is_host ? ty_cluster_device_host(f->inputs->cluster, device) : device;
            if (found != index || f->is_lost[replica_of(plan, r)])
                continue;
            f->is_lost[replica_of(plan, r)] = true;
            count++;
        }
    f->lost_count += count;
    return count;
}

/* Step times of ever smaller plans. Removes the last replicas, as the choice hardly matters. */
static ty_status measure_shrinking(const faults *f, uint32_t lost, ty_error *error)
{
    ty_plan *plan = NULL;
    ty_status status = ty_plan_copy(f->inputs->plan, &plan, error);

    f->out->rates[0] = 1.0;
    f->out->question.rate_count = 1;
    for (uint32_t k = 1; status == TY_OK && k <= lost; k++) {
        ty_plan *smaller = NULL;
        ty_plan_inputs inputs = {0};
        double step_time_s = 0.0;
        status = ty_plan_without_replica(plan, plan->stages[0].replicas - 1, &smaller, error);
        ty_plan_free(plan);
        plan = NULL;
        if (status == TY_OK)
            status = ty_plan_copy(smaller, &plan, error);
        if (status == TY_OK)
            status = ty_plan_inputs_from(smaller, &inputs, error);
        else
            ty_plan_free(smaller);
        if (status == TY_OK)
            status = simulate_other(f, &inputs, false, &step_time_s, error);
        if (status == TY_OK)
            f->out->rates[f->out->question.rate_count++] =
                fmin(1.0, (double)inputs.plan->global_batch / step_time_s /
                              ((double)f->inputs->plan->global_batch / f->step_time_s));
        ty_plan_inputs_clear(&inputs);
    }
    ty_plan_free(plan);
    return status;
}

/* ---- Reading the question ------------------------------------------------------------------ */

static ty_status take_faults(faults *f, ty_error *error)
{
    ty_forecast *out = f->out;

    for (uint32_t i = 0; i < f->asked->fault_count; i++) {
        const ty_fault *fault = &f->asked->faults[i];
        const uint32_t counts[] = {[TY_FAULT_DEVICE] = ty_cluster_device_count(f->inputs->cluster),
                                   [TY_FAULT_HOST] = ty_cluster_host_count(f->inputs->cluster),
                                   [TY_FAULT_LINK] = ty_cluster_link_count(f->inputs->cluster)};
        ty_known_fault known = {.time_s = fault->time_s, .rate = 1.0};
        if (fault->index >= counts[fault->kind])
            return ty_fail(error, TY_EINVAL, "fault %u: found index %u, expected one below %u", i,
                           fault->index, counts[fault->kind]);
        if (fault->kind == TY_FAULT_LINK)
            TY_TRY(rate_without_link(f, fault->index, &known.rate, error));
        else if (f->asked->is_elastic)
            known.replicas = lose_replicas(f, fault->kind == TY_FAULT_HOST, fault->index);
        TY_TRY(ty_check_memory(
            (out->names[i] = ty_strdup(fault->name != NULL ? fault->name : "")) != NULL, error));
        out->known[out->question.known_count++] = known;
    }
    return TY_OK;
}

/* Rates and durations: the question's, else the defaults. */
static ty_status take_times(const faults *f, ty_error *error)
{
    ty_endurance_question *q = &f->out->question;
    ty_score_question usual = ty_score_question_default();
    ty_failure_question failures;
    ty_failure_forecast forecast;

    usual.checkpoint_interval_s = f->asked->checkpoint_interval_s;
    TY_TRY(ty_failure_question_of(f->inputs->plan, f->inputs->cluster, &usual, &failures, error));
    if (!isnan(f->asked->restart_s))
        failures.restart_s = f->asked->restart_s;
    TY_TRY(ty_failures(&failures, &forecast, error));
    q->horizon_s = f->asked->horizon_s;
    q->repair_s = f->asked->repair_s;
    q->checkpoint_interval_s = forecast.checkpoint_interval_s;
    q->checkpoint_write_s = failures.checkpoint_write_s;
    q->restart_s = failures.restart_s;
    q->failure_rate_per_s = f->asked->is_random ? 1.0 / forecast.system_mtbf_s : 0.0;
    q->seed = f->asked->seed;
    q->known = f->out->known;
    q->rates = f->out->rates;
    return TY_OK;
}

/* ---- The run ------------------------------------------------------------------------------- */

int ty_compare_numbers(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static ty_status endure_seeds(ty_forecast *out, uint32_t seeds, ty_error *error)
{
    ty_status status = TY_OK;
    double *goodputs = ty_alloc(seeds, sizeof *goodputs);

    TY_TRY(ty_check_memory(goodputs != NULL, error));
    for (uint32_t i = 0; status == TY_OK && i < seeds; i++) {
        ty_endurance_question question = out->question;
        ty_endurance endurance;
        question.seed += i;
        status = ty_endure(&question, &endurance, error);
        if (status != TY_OK)
            break;
        if (i == 0)
            out->endurance = endurance;
        goodputs[i] = endurance.goodput;
    }
    if (status == TY_OK) {
        qsort(goodputs, seeds, sizeof *goodputs, ty_compare_numbers);
        out->seeds = seeds;
        out->p50_goodput = goodputs[seeds - (uint32_t)ceil(0.5 * seeds)];
        out->p5_goodput = goodputs[seeds - (uint32_t)ceil(0.95 * seeds)];
    }
    ty_free(goodputs);
    return status;
}

static ty_status endure(faults *f, ty_error *error)
{
    ty_forecast *out = f->out;
    const uint32_t replicas = f->inputs->plan->stages[0].replicas;
    uint32_t lost;

    TY_TRY(take_faults(f, error));
    TY_TRY(take_times(f, error));
    lost = f->lost_count + (f->asked->is_random ? MOST_LOST / 2 : 0);
    lost = lost < MOST_LOST ? lost : MOST_LOST;
    if (f->asked->is_elastic)
        TY_TRY(measure_shrinking(f, lost < replicas || replicas < 2 ? lost : replicas - 1, error));
    return endure_seeds(out, f->asked->seeds > 0 ? f->asked->seeds : 1, error);
}

ty_status ty_forecast_find(const ty_plan_inputs *inputs, const ty_simulate_options *how,
                           double step_time_s, const ty_forecast_question *question,
                           ty_forecast *out, ty_error *error)
{
    faults f = {
        .asked = question, .inputs = inputs, .how = how, .step_time_s = step_time_s, .out = out};
    ty_status status;

    *out = (ty_forecast){0};
    out->known = ty_alloc(question->fault_count, sizeof *out->known);
    out->names = ty_alloc(question->fault_count, sizeof *out->names);
    out->rates = ty_alloc(MOST_LOST + 1, sizeof *out->rates);
    f.is_lost = ty_alloc(ty_plan_stage_replica_count(inputs->plan), sizeof *f.is_lost);
    if (out->known == NULL || out->names == NULL || out->rates == NULL || f.is_lost == NULL)
        status = ty_fail(error, TY_ENOMEM, "out of memory");
    else
        status = endure(&f, error);
    ty_free(f.is_lost);
    return status;
}

void ty_forecast_clear(ty_forecast *forecast)
{
    for (uint32_t i = 0; forecast->names != NULL && i < forecast->question.known_count; i++)
        ty_free(forecast->names[i]);
    ty_free(forecast->names);
    ty_free(forecast->known);
    ty_free(forecast->rates);
    *forecast = (ty_forecast){0};
}

void ty_forecast_to_json(const ty_forecast *o, ty_json_writer *w)
{
    const ty_endurance_question *q = &o->question;
    const struct {
        const char *name;
        double value;
    } figures[] = {
        {"horizon_s", q->horizon_s},
        {"failure_rate_per_s", q->failure_rate_per_s},
        {"checkpoint_interval_s", q->checkpoint_interval_s},
        {"checkpoint_write_s", q->checkpoint_write_s},
        {"restart_s", q->restart_s},
        {"repair_s", q->repair_s},
        {"goodput", o->endurance.goodput},
        {"p50_goodput", o->p50_goodput},
        {"p5_goodput", o->p5_goodput},
        {"work_s", o->endurance.work_s},
        {"degraded_s", o->endurance.degraded_s},
        {"lost_s", o->endurance.lost_s},
        {"checkpoint_s", o->endurance.checkpoint_s},
        {"down_s", o->endurance.down_s},
    };

    ty_json_open(w, "endurance", '{');
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        ty_json_put_number(w, figures[i].name, figures[i].value);
    ty_json_put_uint(w, "failures", o->endurance.failures);
    ty_json_put_uint(w, "checkpoints", o->endurance.checkpoints);
    ty_json_open(w, "faults", '[');
    for (uint32_t i = 0; i < q->known_count; i++) {
        ty_json_open(w, NULL, '{');
        ty_json_put_string(w, "name", o->names[i]);
        ty_json_put_number(w, "time_s", o->known[i].time_s);
        ty_json_put_number(w, "rate", o->known[i].rate);
        ty_json_put_uint(w, "replicas", o->known[i].replicas);
        ty_json_close(w, '}');
    }
    ty_json_close(w, ']');
    ty_json_open(w, "shrunken_rates", '[');
    for (uint32_t k = 0; k < q->rate_count; k++)
        ty_json_put_number(w, NULL, o->rates[k]);
    ty_json_close(w, ']');
    ty_json_close(w, '}');
}
