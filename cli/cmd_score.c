/* trainyard score: time to target, money and energy of a plan; and the search for the plan that is
 * best by one of them. */
#include "cli.h"

#include <math.h>

#include <stdio.h>
#include <string.h>

#define LARGEST_RATE 1e6 /* as plans have it */

static const char *const objectives[] = {"throughput", "time-to-target", "cost", "energy"};
enum { THROUGHPUT, TIME_TO_TARGET, COST, ENERGY, OBJECTIVE_COUNT };

ty_status objective_find(const char *name, int *out, ty_error *error)
{
    const char *close;

    for (*out = 0; *out < OBJECTIVE_COUNT; ++*out)
        if (name == NULL || strcmp(name, objectives[*out]) == 0)
            return TY_OK;
    close = ty_suggest(name, objectives, OBJECTIVE_COUNT, sizeof objectives[0]);
    return ty_fail(
        error, TY_EINVAL,
        "--objective: found '%s', expected throughput, time-to-target, cost or energy%s%s", name,
        close != NULL ? "; did you mean " : "", close != NULL ? close : "");
}

/* How late the gradients of a plan are. */
static ty_staleness_kind staleness_of(const ty_plan *plan)
{
    if (plan->staleness > 0)
        return TY_STALENESS_DELAYED;
    if (plan->schedule == TY_PIPEDREAM)
        return TY_STALENESS_WEIGHT_STASHING;
    return plan->schedule == TY_PIPEDREAM_2BW ? TY_STALENESS_DOUBLE_BUFFERED : TY_STALENESS_NONE;
}

static ty_status score_plan(const ty_plan *plan, const ty_cluster *cluster,
                            const ty_convergence *task, ty_score *out, ty_error *error)
{
    ty_score_question question = ty_score_question_default();

    question.task = task;
    question.staleness = staleness_of(plan);
    return ty_score_plan(plan, cluster, &question, out, error);
}

/* The task that is named, or the one known for the workload; NULL where there is none. */
static ty_status open_task(const char *name, const char *workload, ty_convergence **out,
                           ty_error *error)
{
    ty_error ignored = {0};
    ty_status status;

    *out = NULL;
    if (name != NULL)
        return ty_convergence_open(name, out, error);
    status = ty_convergence_of_workload(workload, out, &ignored);
    return status == TY_EIO
               ? TY_OK
               : (status == TY_OK ? TY_OK : ty_fail(error, status, "%s", ignored.message));
}

ty_status score_open(const ty_plan *plan, const ty_cluster *cluster, const char *task_name,
                     ty_score *out, ty_error *error)
{
    ty_convergence *task = NULL;
    ty_status status = open_task(task_name, plan->workload->name, &task, error);

    if (status == TY_OK)
        status = score_plan(plan, cluster, task, out, error);
    ty_convergence_free(task);
    return status;
}

/* ---- Learning rate ------------------------------------------------------------------------- */

static ty_status parse_rate(const char *text, double *out, ty_error *error)
{
    char after;

    if (sscanf(text, "%lf%c", out, &after) != 1 || !(*out > 0) || *out > LARGEST_RATE)
        return ty_fail(error, TY_EINVAL,
                       "--learning-rate: found '%s', expected a number above 0 and up to %g", text,
                       LARGEST_RATE);
    return TY_OK;
}

ty_status learning_rate_set(const cli_options *options, ty_plan *plan, ty_error *error)
{
    ty_convergence *task = NULL;
    double rate;
    bool is_beyond;
    ty_status status = TY_OK;

    if (options->learning_rate != NULL) {
        TY_CHECK(parse_rate(options->learning_rate, &rate, error), status, done);
        plan->optimizer.learning_rate = rate;
        return TY_OK;
    }
    if (options->task == NULL)
        return TY_OK;
    TY_CHECK(ty_convergence_open(options->task, &task, error), status, done);
    if (!(task->learning_rate > 0))
        goto done;
    TY_CHECK(ty_learning_rate(task, task->learning_rate, task->batch, plan->global_batch, &rate,
                              &is_beyond, error),
             status, done);
    plan->optimizer.learning_rate = rate;
    if (!options->quiet)
        fprintf(stderr, "learning rate %.4g for a batch of %u, by the calibration's rule (%s)\n",
                rate, plan->global_batch, ty_scaling_rule_name(task->scaling_rule));
done:
    ty_convergence_free(task);
    return status;
}

/* ---- Printing ------------------------------------------------------------------------------ */

static void interval_line(const char *label, const ty_interval *i, double unit, const char *name,
                          ty_text *text)
{
    ty_text_addf(text, "%-11s %.3g %s (%.3g to %.3g)\n", label, i->expected / unit, name,
                 i->low / unit, i->high / unit);
}

static void score_to_text(const ty_score *s, ty_text *text)
{
    if (s->has_target) {
        ty_text_addf(text, "%-11s %.4g (%.3g samples)\n", "steps", s->steps,
                     s->samples_to_target.expected);
        interval_line("to target", &s->time_to_target_s, 3600, "h", text);
    }
    if (s->has_target && s->has_price)
        interval_line("money", &s->money_usd, 1, "USD", text);
    if (s->has_target && s->has_power)
        interval_line("energy", &s->energy_j, 3.6e6, "kWh", text);
    if (s->has_power)
        interval_line("power", &s->power_w, 1e3, "kW", text);
    ty_text_addf(text, "%-11s %.2f %% of the time, a checkpoint of %.3g GB every %.3g min\n",
                 "goodput", 100 * s->failures.goodput, (double)s->checkpoint_bytes / 1e9,
                 s->failures.checkpoint_interval_s / 60);
    if (s->is_bound_by_input)
        ty_text_addf(text, "%-11s %s\n", "input", s->input_bound_by);
    ty_text_addf(text, "%s", s->notes != NULL ? s->notes : "");
}

/* ---- By an objective ----------------------------------------------------------------------- */

/* HUGE_VAL: not known. */
static double figure_of(const ty_score *s, int objective)
{
    if (objective == TIME_TO_TARGET)
        return s->time_to_target_s.expected;
    if (objective == COST)
        return s->has_price ? s->money_usd.expected : HUGE_VAL;
    return s->has_power ? s->energy_j.expected : HUGE_VAL;
}

typedef struct best_plan {
    ty_plan *plan;
    double figure;
    ty_error refusal; /* of the last batch that cannot be planned */
} best_plan;

/* @param refusal where there is no such plan; another one may do */
static ty_status try_plan(const cli_question *q, const ty_plan_options *how,
                          const ty_convergence *task, int objective, best_plan *best,
                          ty_error *refusal, ty_error *error)
{
    ty_plan *plan = NULL;
    ty_score score = {0};
    double figure;
    ty_status status = ty_plan_search(q->workload, q->cluster, q->profile, how, &plan, refusal);

    if (status == TY_EINVAL || status == TY_EINFEASIBLE)
        return TY_OK;
    if (status != TY_OK)
        return ty_fail(error, status, "%s", refusal->message);
    TY_CHECK(score_plan(plan, q->cluster, task, &score, error), status, done);
    figure = figure_of(&score, objective);
    if (figure < best->figure) {
        ty_plan_free(best->plan);
        best->plan = plan;
        best->figure = figure;
        plan = NULL;
    }
done:
    ty_score_clear(&score);
    ty_plan_free(plan);
    return status;
}

/* Gradients that are a step late take more steps, which are counted, and shorter ones. Later ones
 * hide no more of the exchanges that are predicted. */
static ty_status try_batch(const cli_question *q, const ty_plan_options *how, uint32_t batch,
                           const ty_convergence *task, int objective, best_plan *best,
                           ty_error *error)
{
    ty_plan_options with_batch = *how;
    ty_error ignored = {0};
    ty_status status;

    with_batch.global_batch = batch;
    status = try_plan(q, &with_batch, task, objective, best, &best->refusal, error);
    if (status != TY_OK || how->fix_staleness)
        return status;
    with_batch.staleness = 1;
    return try_plan(q, &with_batch, task, objective, best, &ignored, error);
}

ty_status plan_by_objective(const cli_options *options, const cli_question *q, int objective,
                            ty_plan_options *how, ty_plan **out, ty_error *error)
{
    const uint32_t usual = q->workload->global_batch;
    best_plan best = {.figure = HUGE_VAL};
    ty_convergence *task = NULL;
    ty_status status = TY_OK;

    TY_CHECK(open_task(options->task, q->workload->name, &task, error), status, done);
    if (task == NULL) {
        status = ty_fail(error, TY_EINVAL,
                         "--objective %s: how %s converges is not known: give --task NAME or a "
                         "calibration file",
                         objectives[objective], q->workload->name);
        goto done;
    }
    /* Eight times less to eight times more, unless a batch was asked for. */
    for (int power = -3; power <= 3; power++) {
        const double batch =
            power < 0 ? usual / (double)(1 << -power) : (double)usual * (1 << power);
        if (options->global_batch > 0 && power != 0)
            continue;
        if (batch < 1 || batch > UINT32_MAX)
            continue;
        TY_CHECK(
            try_batch(q, how,
                      options->global_batch > 0 ? (uint32_t)options->global_batch : (uint32_t)batch,
                      task, objective, &best, error),
            status, done);
    }
    if (best.plan == NULL)
        status = best.refusal.status != TY_OK
                     ? ty_fail(error, best.refusal.status, "%s", best.refusal.message)
                     : ty_fail(error, TY_EINFEASIBLE, "--objective %s: the cluster has no %s",
                               objectives[objective], objective == COST ? "prices" : "power");
    *out = best.plan;
    best.plan = NULL;
done:
    ty_plan_free(best.plan);
    ty_convergence_free(task);
    return status;
}

/* ---- The command --------------------------------------------------------------------------- */

exit_code cmd_score(const cli_options *options)
{
    exit_code code;
    ty_error error = {0};
    plan_inputs inputs = {0};
    ty_score score = {0};
    ty_text text = {0};

    if (plan_inputs_load(options->files[0], NULL, &inputs, &error) != TY_OK)
        return report_bad_input(&error);
    if (score_open(inputs.plan, inputs.cluster, options->task, &score, &error) != TY_OK) {
        code = report_bad_input(&error);
        goto cleanup;
    }
    if (options->json) {
        ty_json_writer w = ty_json_writer_on(&text);
        ty_score_to_json(&score, &w, NULL);
        ty_text_add(&text, "\n");
    } else {
        score_to_text(&score, &text);
    }
    code = print_text(&text);

cleanup:
    ty_score_clear(&score);
    plan_inputs_clear(&inputs);
    ty_text_clear(&text);
    return code;
}
