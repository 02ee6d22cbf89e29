/* The best plan for a question: by the search, a system, or an objective that includes the steps to
 * the target. */
#include "question.h"

#include <math.h>
#include <string.h>

/* ---- Objectives ---------------------------------------------------------------------------- */

static const char *const objectives[TY_OBJECTIVE_COUNT] = {"throughput", "time-to-target", "cost",
                                                           "energy"};

ty_status ty_objective_find(const char *name, ty_objective *out, ty_error *error)
{
    const char *close;

    for (int i = 0; i < TY_OBJECTIVE_COUNT; i++)
        if (name == NULL || strcmp(name, objectives[i]) == 0) {
            *out = (ty_objective)i;
            return TY_OK;
        }
    close = ty_suggest(name, objectives, TY_OBJECTIVE_COUNT, sizeof objectives[0]);
    return ty_fail(
        error, TY_EINVAL,
        "--objective: found '%s', expected throughput, time-to-target, cost or energy%s%s", name,
        close != NULL ? "; did you mean " : "", close != NULL ? close : "");
}

/* ---- Scores -------------------------------------------------------------------------------- */

/* @param learning_rate 0: the rule's */
static ty_status score_plan(const ty_plan *plan, const ty_cluster *cluster,
                            const ty_convergence *task, const ty_cost_question *cost,
                            double learning_rate, ty_score *out, ty_error *error)
{
    static const ty_staleness_kind of_versions[] = {
        [TY_WEIGHTS_ONE] = TY_STALENESS_NONE,
        [TY_WEIGHTS_DOUBLE] = TY_STALENESS_DOUBLE_BUFFERED,
        [TY_WEIGHTS_IN_FLIGHT] = TY_STALENESS_WEIGHT_STASHING,
    };
    ty_score_question question = ty_score_question_default();

    if (cost != NULL)
        question.cost = *cost;
    question.task = task;
    question.learning_rate = learning_rate;
    question.staleness = plan->staleness > 0
                             ? TY_STALENESS_DELAYED
                             : of_versions[ty_schedule_at(plan->schedule)->versions];
    return ty_score_plan(plan, cluster, &question, out, error);
}

/* Opens the named task, or the workload's; NULL if there is none. */
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

ty_status ty_plan_score(const ty_plan *plan, const ty_cluster *cluster, const char *task_name,
                        const ty_cost_question *cost, ty_score *out, ty_error *error)
{
    const ty_optimizer *own = &plan->optimizer, *usual = &plan->workload->optimizer;
    double rate = own->learning_rate;
    ty_convergence *task = NULL;
    ty_status status = open_task(task_name, plan->workload->name, &task, error);

    /* A phase may have another momentum than its workload: converts the rate so that training
     * covers the same distance per step. */
    if (ty_optimizer_row_of(own->kind)->is_descent && ty_optimizer_row_of(usual->kind)->is_descent)
        rate = own->learning_rate * (1 - usual->momentum) / (1 - own->momentum);
    if (status == TY_OK)
        status = score_plan(plan, cluster, task, cost, rate, out, error);
    ty_convergence_free(task);
    return status;
}

/* ---- By an objective ----------------------------------------------------------------------- */

typedef struct best_plan {
    const ty_cost_question *cost;
    ty_plan *plan;
    double figure;
    ty_error refusal; /* for the last batch without a plan */
} best_plan;

/* @param refusal if there is no such plan; other batches are still tried */
static ty_status try_plan(const ty_question_inputs *q, const ty_plan_options *how,
                          const ty_convergence *task, ty_objective objective, best_plan *best,
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
    TY_CHECK(score_plan(plan, q->cluster, task, best->cost, 0, &score, error), status, done);
    if (objective == TY_TIME_TO_TARGET)
        figure = score.time_to_target_s.expected;
    else if (objective == TY_COST)
        figure = score.has_price ? score.money_usd.expected : HUGE_VAL; /* unknown price */
    else
        figure = score.has_power ? score.energy_j.expected : HUGE_VAL;
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

/* Gradients with a staleness of one step need more steps, which count, and shorter ones. A larger
 * staleness hides no more of the predicted communication. */
static ty_status try_batch(const ty_question_inputs *q, const ty_plan_options *how, uint32_t batch,
                           const ty_convergence *task, ty_objective objective, best_plan *best,
                           ty_error *error)
{
    ty_plan_options with_batch = *how;
    ty_error ignored = {0};
    ty_status status;

    with_batch.global_batch = batch;
    status = try_plan(q, &with_batch, task, objective, best, &best->refusal, error);
    if (status != TY_OK || ty_is_pinned(&how->pins, TY_AXIS(STALENESS)))
        return status;
    ty_pin(&with_batch.pins, TY_AXIS_STALENESS, 1);
    return try_plan(q, &with_batch, task, objective, best, &ignored, error);
}

/* Convergence of the workload, which an objective needs. */
static ty_status objective_task(const ty_question *question, const ty_workload *workload,
                                ty_objective objective, ty_convergence **out, ty_error *error)
{
    ty_status status = open_task(question->task, workload->name, out, error);

    if (status == TY_OK && *out == NULL)
        return ty_fail(error, TY_EINVAL,
                       "--objective %s: how %s converges is not known: give --task NAME or a "
                       "calibration file",
                       objectives[objective], workload->name);
    return status;
}

/* Tries global batches other than the usual one, unless one is specified. */
static ty_status plan_by_objective(const ty_question *question, const ty_question_inputs *q,
                                   ty_objective objective, ty_plan_options *how, ty_plan **out,
                                   ty_error *error)
{
    const uint32_t usual = q->workload->global_batch;
    best_plan best = {.cost = &question->cost, .figure = HUGE_VAL};
    ty_convergence *task = NULL;
    ty_status status = TY_OK;

    TY_CHECK(objective_task(question, q->workload, objective, &task, error), status, done);
    /* From an eighth to eight times the usual batch, unless one is specified. */
    for (int power = -3; power <= 3; power++) {
        const double batch =
            power < 0 ? usual / (double)(1 << -power) : (double)usual * (1 << power);
        if (question->global_batch > 0 && power != 0)
            continue;
        if (batch < 1 || batch > UINT32_MAX)
            continue;
        TY_CHECK(try_batch(q, how,
                           question->global_batch > 0 ? question->global_batch : (uint32_t)batch,
                           task, objective, &best, error),
                 status, done);
    }
    if (best.plan == NULL)
        status = best.refusal.status != TY_OK
                     ? ty_fail(error, best.refusal.status, "%s", best.refusal.message)
                     : ty_fail(error, TY_EINFEASIBLE, "--objective %s: the cluster has no %s",
                               objectives[objective], objective == TY_COST ? "prices" : "power");
    *out = best.plan;
    best.plan = NULL;
done:
    ty_plan_free(best.plan);
    ty_convergence_free(task);
    return status;
}

/* ---- By the search, or a system ------------------------------------------------------------ */

/* CPU time limit per simulation of an answer. */
#define SIMULATION_CPU_S 1.0

/* Simulates the planner's finalists. */
static ty_status simulate_finalist(void *context, const ty_plan *plan, const ty_program *program,
                                   const ty_costs *costs, ty_step_summary *summary, ty_error *error)
{
    ty_status status = TY_OK;
    const ty_cluster *cluster = context;
    ty_simulate_options options = ty_simulate_options_default();
    ty_timeline *timeline = NULL;

    options.cpu_limit_s = SIMULATION_CPU_S;
    options.steps += 2 * ty_program_largest_lead(program); /* for warm-up and cool-down */
    TY_CHECK(ty_simulate(plan, program, costs, cluster, &options, &timeline, error), status, done);
    TY_CHECK(ty_timeline_summarize(plan, program, timeline, summary, error), status, done);
done:
    ty_timeline_free(timeline);
    return status;
}

static ty_status find_system(const char *name, const ty_system **out, ty_error *error)
{
    const char *names[64];
    size_t count = 0;
    const char *close;
    bool is_whole;

    if ((*out = ty_system_find(name)) != NULL)
        return TY_OK;
    while (count < 64 && ty_system_at((uint32_t)count) != NULL) {
        names[count] = ty_system_at((uint32_t)count)->name;
        count++;
    }
    close = ty_name_find(name, names, count, sizeof names[0], &is_whole);
    if (is_whole) { /* "DDP" */
        *out = ty_system_find(close);
        return TY_OK;
    }
    close = ty_suggest(name, names, count, sizeof names[0]);
    return ty_fail(error, TY_EINVAL, "--system: unknown system '%s'%s%s; trainyard systems has all",
                   name, close != NULL ? "; did you mean " : "", close != NULL ? close : "");
}

/* Reads the way of planning: a system, an objective, or the plain search. */
static ty_status read_way(const ty_question *question, ty_objective *objective,
                          const ty_system **system, ty_error *error)
{
    ty_status status = ty_objective_find(question->objective, objective, error);

    *system = NULL;
    if (status != TY_OK)
        return status;
    if (*objective != TY_THROUGHPUT && question->system != NULL)
        return ty_fail(error, TY_EINVAL, "--objective and --system: found both, expected one");
    return question->system != NULL ? find_system(question->system, system, error) : TY_OK;
}

ty_status ty_question_check(const ty_question *question, const ty_question_inputs *q,
                            ty_error *error)
{
    ty_objective objective = TY_THROUGHPUT;
    const ty_system *system;
    ty_convergence *task = NULL;
    ty_plan_options options;
    ty_deployment deployment;
    ty_status status = TY_OK;

    TY_CHECK(read_way(question, &objective, &system, error), status, done);
    TY_CHECK(ty_question_deploy(question, q, &deployment, error), status, done);
    TY_CHECK(ty_plan_options_of(question, q, &options, error), status, done);
    if (objective != TY_THROUGHPUT)
        TY_CHECK(objective_task(question, q->workload, objective, &task, error), status, done);
    else if (question->task != NULL)
        TY_CHECK(ty_convergence_open(question->task, &task, error), status, done);
    /* Systems have their own choices, and objectives try other batches. */
    if (objective == TY_THROUGHPUT && system == NULL)
        status = ty_plan_search_check(q->workload, q->cluster, q->profile, &options, error);
done:
    ty_convergence_free(task);
    return status;
}

ty_status ty_question_find(const ty_question *question, const ty_question_inputs *q,
                           ty_plan_options *how, ty_plan **out, ty_error *error)
{
    ty_objective objective = TY_THROUGHPUT;
    const ty_system *system;

    TY_TRY(read_way(question, &objective, &system, error));
    if (objective != TY_THROUGHPUT)
        return plan_by_objective(question, q, objective, how, out, error);
    if (system != NULL)
        return ty_plan_system(system, q->workload, q->cluster, q->profile, how, out, error);
    return ty_plan_search(q->workload, q->cluster, q->profile, how, out, error);
}

/* A pinned layout may be known to run, and the default reserve is a guess. So if it fits usable
 * memory, but not within the default reserve, the answer is the layout with a note.
 */
static ty_status find_within_memory(const ty_question *question, const ty_question_inputs *q,
                                    const ty_watch *watch, ty_plan_options *how, ty_plan **out,
                                    ty_error *error)
{
    const double reserve = how->memory_reserve;
    ty_error refusal = {0};
    ty_memory_peak peak;
    char bytes[32], usable[32];
    const ty_status status = ty_question_find(question, q, how, out, &refusal);

    if (status == TY_OK)
        return TY_OK;
    if (status != TY_EINFEASIBLE || question->fix == NULL || question->memory_reserve != NULL)
        return ty_fail(error, status, "%s", refusal.message);
    how->memory_reserve = 0;
    if (ty_question_find(question, q, how, out, NULL) != TY_OK)
        return ty_fail(error, status, "%s", refusal.message);
    (*out)->memory_reserve = reserve; /* the question's reserve */
    if (ty_plan_memory_peak(*out, &peak)) {
        ty_format_memory((double)peak.bytes, bytes);
        ty_format_memory((double)peak.usable_bytes, usable);
        ty_watch_note(watch,
                      "the pinned layout needs %s of %s: it fits, but not within the memory "
                      "reserve of %.0f %%",
                      bytes, usable, 100 * reserve);
    }
    return TY_OK;
}

/* The learning rate that a plan trains with: the question's, or a calibration's for the plan's
 * batch. */
static ty_status set_learning_rate(const ty_question *question, const ty_watch *watch,
                                   ty_plan *plan, ty_error *error)
{
    ty_convergence *task = NULL;
    double rate;
    bool is_beyond;
    ty_status status = TY_OK;

    if (question->learning_rate > 0)
        plan->optimizer.learning_rate = question->learning_rate;
    if (question->learning_rate > 0 || question->task == NULL)
        return TY_OK;
    TY_CHECK(ty_convergence_open(question->task, &task, error), status, done);
    if (!(task->learning_rate > 0))
        goto done;
    TY_CHECK(ty_learning_rate(task, task->learning_rate, task->batch, plan->global_batch, &rate,
                              &is_beyond, error),
             status, done);
    ty_plan_set_learning_rate(plan, rate);
    ty_watch_note(watch, "learning rate %.4g for a batch of %u, by the calibration's rule (%s)",
                  rate, plan->global_batch, ty_scaling_rule_name(task->scaling_rule));
done:
    ty_convergence_free(task);
    return status;
}

/* Adds one requested layout, at the batch of the answer. */
static ty_status put_beside(const ty_question *question, const ty_question_inputs *inputs,
                            const ty_watch *watch, const char *fix, ty_plan *plan, uint32_t *row,
                            ty_error *error)
{
    ty_question own = *question;
    ty_pins pins = {0};
    ty_plan *other = NULL;
    ty_error why = {0};
    const char *reason;
    ty_status status = ty_pins_read(fix, ty_cluster_device_count(inputs->cluster), &pins, &why);

    if (status != TY_OK)
        return ty_fail(error, status, "--against \"%s\": %s", fix, why.message);
    own.fix = fix;
    own.against = own.system = own.objective = NULL;
    own.no_interval = true;
    own.global_batch = plan->global_batch;
    own.top = plan->simulation.step_time_s > 0 ? 1 : 0;
    status = ty_question_plan(&own, inputs, watch, &other, &why);
    if (status != TY_OK && status != TY_EINFEASIBLE && status != TY_EINVAL)
        return ty_fail(error, status, "%s", why.message);
    reason = strstr(why.message, "does not fit");
    status =
        ty_plan_put_beside(plan, other, fix, reason != NULL ? reason : why.message, row, error);
    ty_plan_free(other);
    return status;
}

static ty_status put_all_beside(const ty_question *question, const ty_question_inputs *inputs,
                                const ty_watch *watch, ty_plan *plan, ty_error *error)
{
    const char *at = question->against;
    uint32_t row = 1;
    ty_status status = TY_OK;

    while (status == TY_OK && *(at += strspn(at, " ;")) != '\0') {
        const size_t length = strcspn(at, ";");
        char *fix = ty_strndup(at, length);
        TY_TRY(ty_check_memory(fix != NULL, error));
        status = put_beside(question, inputs, watch, fix, plan, &row, error);
        ty_free(fix);
        at += length;
    }
    return status;
}

ty_status ty_question_plan(const ty_question *question, const ty_question_inputs *inputs,
                           const ty_watch *watch, ty_plan **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_plan_options how;
    ty_deployment deployment = {0};
    ty_plan *plan = NULL;
    double samples;

    TY_CHECK(ty_question_deploy(question, inputs, &deployment, error), status, done);
    TY_CHECK(ty_plan_options_of(question, inputs, &how, error), status, done);
    TY_CHECK(ty_cost_question_check(&question->cost, error), status, done);
    TY_CHECK(
        ty_cost_question_samples(&question->cost, inputs->workload, &how.input, 1, &samples, error),
        status, done);
    if (watch != NULL) {
        how.should_stop = watch->should_stop;
        how.stop_context = how.note_context = watch->context;
        how.note = watch->note;
    }
    if (question->top > 0 && !question->no_simulate) {
        how.simulate_top = question->top;
        how.simulate = simulate_finalist;
        how.simulate_context = inputs->cluster;
    }
    TY_CHECK(find_within_memory(question, inputs, watch, &how, &plan, error), status, done);
    if (question->system != NULL && question->global_batch == 0 &&
        plan->global_batch != inputs->workload->global_batch)
        ty_watch_note(watch, "a batch of %u, the next that all %u devices share: usual are %u",
                      plan->global_batch, ty_cluster_device_count(inputs->cluster),
                      inputs->workload->global_batch);
    TY_CHECK(set_learning_rate(question, watch, plan, error), status, done);
    plan->deployment = deployment;
    ty_free(plan->cluster_name);
    plan->cluster_name = ty_strdup(question->cluster);
    TY_CHECK(ty_check_memory(plan->cluster_name != NULL, error), status, done);
    if (samples > 0)
        TY_CHECK(ty_training_cost_of(plan, inputs->cluster, &question->cost, &plan->cost, error),
                 status, done);
    if (!question->no_interval)
        TY_CHECK(ty_plan_judge(plan, ty_plan_summary(plan)->step_time_s, error), status, done);
    if (question->against != NULL)
        TY_CHECK(put_all_beside(question, inputs, watch, plan, error), status, done);
    *out = plan;
    plan = NULL; /* ownership moved */
done:
    ty_plan_free(plan);
    return status;
}
