/* Scores a plan: time, cost, energy and failures. */
#include "economics_catalogue.h"
#include "prices.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Error of a predicted step time, as a deviation of its log. Data sheets: mean error of the
   one-device figures in docs/results/README.md; profiles: docs/results/own-runs.md. */
static const struct {
    ty_provenance provenance;
    double log_deviation;
} step_deviations[] = {{TY_MEASURED, 0.12}, {TY_CALIBRATED, 0.2}, {TY_DATASHEET, 0.35}};

#define SECONDS_PER_HOUR 3600.0
#define SECONDS_PER_DAY 86400.0
#define SECONDS_PER_YEAR (365.25 * SECONDS_PER_DAY)
#define JOULES_PER_MWH 3.6e9
#define MILLION 1e6
#define INPUT_TOLERANCE 0.02 /* of the step: input within this margin still limits it */
#define RATE_TOLERANCE 0.01  /* between a learning rate and the rule's, for a note */

ty_score_question ty_score_question_default(void)
{
    return (ty_score_question){.staleness = TY_STALENESS_NONE};
}

static double step_deviation(const ty_plan *plan, const ty_score_question *q)
{
    if (q->step_log_deviation > 0)
        return q->step_log_deviation;
    for (size_t i = 0; i < sizeof step_deviations / sizeof step_deviations[0]; i++)
        if (step_deviations[i].provenance == plan->provenance)
            return step_deviations[i].log_deviation;
    return step_deviations[2].log_deviation;
}

static uint64_t checkpoint_bytes(const ty_plan *plan)
{
    uint64_t parameters =
        ty_workload_parameter_bytes(plan->workload, 0, plan->workload->layer_count);
    uint64_t elements = parameters / plan->workload->element_bytes;

    return parameters +
           (uint64_t)((double)elements *
                      ty_plan_optimizer_work(plan, 0, plan->workload->layer_count).state_bytes);
}

/* ---- Parts ------------------------------------------------------------------------------- */

static ty_status score_step(const ty_plan *plan, ty_score *s, ty_error *error)
{
    const ty_step_summary *summary = ty_plan_summary(plan);
    const double readers = plan->stages[0].replicas * ty_plan_replica_ranks(plan);
    ty_input_forecast input = {0};

    TY_TRY(ty_plan_input(plan, &input, error));
    s->step = *summary;
    s->step_time_s = summary->step_time_s;
    s->provenance = plan->provenance;
    s->samples_per_s = plan->global_batch / s->step_time_s;
    if (readers * input.samples_per_s < (1 + INPUT_TOLERANCE) * s->samples_per_s) {
        s->is_bound_by_input = true;
        snprintf(s->input_bound_by, sizeof s->input_bound_by, "%s", input.bound_by);
    }
    return TY_OK;
}

static double or_else(double asked, double known)
{
    return asked > 0 ? asked : known;
}

ty_status ty_failure_question_of(const ty_plan *plan, const ty_cluster *cluster,
                                 const ty_score_question *q, ty_failure_question *out,
                                 ty_error *error)
{
    ty_economics_catalogue known;
    uint32_t hosts = ty_cluster_host_count(cluster);
    const char *asked = q->cost.failure_rate;
    double rate;
    bool is_factor;

    TY_TRY(ty_economics_catalogue_load(&known, error));
    *out = (ty_failure_question){
        .devices = ty_plan_launched_count(plan),
        .hosts = hosts,
        .device_mtbf_s = or_else(q->device_mtbf_s, known.device_mtbf_s),
        .host_mtbf_s = or_else(q->host_mtbf_s, known.host_mtbf_s),
        .checkpoint_write_s =
            (double)checkpoint_bytes(plan) /
            or_else(q->checkpoint_bytes_per_s, known.checkpoint_bytes_per_s_per_host * hosts),
        .restart_s = or_else(q->restart_s, known.restart_s),
        .checkpoint_interval_s = q->checkpoint_interval_s,
    };
    if (asked == NULL)
        return TY_OK;
    TY_TRY(ty_read_or_factor(asked, "", "failure-rate", &rate, &is_factor, error));
    out->device_mtbf_s = is_factor ? out->device_mtbf_s / rate : SECONDS_PER_YEAR / rate;
    out->host_mtbf_s = is_factor ? out->host_mtbf_s / rate : HUGE_VAL; /* in the devices' rate */
    return TY_OK;
}

/* The compressor of the largest share of the gradient, as in its first bucket; ignores the lossless
 * "rows". */
static ty_compression compression_of(const ty_plan *plan)
{
    uint64_t bytes[TY_COMPRESSION_COUNT] = {0};
    ty_compression firsts[TY_COMPRESSION_COUNT] = {{0}};
    int most = TY_COMPRESSION_NONE;

    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_compression *c = &plan->buckets[b].compression;
        if (ty_compression_at(c->kind)->sends_rows)
            continue;
        if (bytes[c->kind] == 0)
            firsts[c->kind] = *c;
        bytes[c->kind] += plan->buckets[b].gradient_bytes;
    }
    for (int k = 0; k < TY_COMPRESSION_COUNT; k++)
        if (bytes[k] > bytes[most])
            most = k;
    return firsts[most];
}

/* Mean staleness in updates. */
static double delay_of(const ty_plan *plan, const ty_score_question *q)
{
    const uint32_t stages = plan->stage_count;
    double sum = 0;

    if (q->staleness_depth > 0)
        return ty_staleness_delay(q->staleness, q->staleness_depth);
    if (q->staleness == TY_STALENESS_DELAYED)
        return ty_staleness_delay(q->staleness, plan->staleness);
    if (q->staleness != TY_STALENESS_WEIGHT_STASHING)
        return ty_staleness_delay(q->staleness, stages);
    for (uint32_t s = 0; s < stages; s++)
        sum += ty_plan_delay_updates(plan, s);
    return sum / stages;
}

/* Cost of a learning rate other than the rule's for the batch: a specified one, or that of the
 * plan's recipe. It is 1 for a task with an unknown rate, since its figures and the priors of
 * compressors and staleness assume tuned rates. */
static ty_status score_rate(const ty_plan *plan, const ty_score_question *q, ty_score *s,
                            ty_error *error)
{
    const ty_convergence *t = q->task;
    const ty_recipe recipe = ty_plan_recipe(plan);
    double rule, share = ty_recipe_share(&recipe, &plan->workload->optimizer);
    bool is_beyond;

    s->noise_multiplier = ty_temperature_multiplier(t, plan->global_batch).expected;
    if (!(t->learning_rate > 0))
        return TY_OK;
    TY_TRY(ty_learning_rate(t, t->learning_rate, t->batch, plan->global_batch, &rule, &is_beyond,
                            error));
    if (q->learning_rate > 0)
        share = q->learning_rate / rule;
    s->rate_multiplier = ty_rate_multiplier(t, plan->global_batch, share);
    s->noise_multiplier *= s->rate_multiplier.expected * share;
    return TY_OK;
}

static ty_status score_target(const ty_plan *plan, const ty_score_question *q, ty_score *s,
                              ty_error *error)
{
    const ty_compression compression = compression_of(plan);
    double batch = plan->global_batch;

    s->compression_multiplier = s->staleness_multiplier = s->rate_multiplier = ty_interval_exact(1);
    if (q->task == NULL)
        return TY_OK;
    if (q->compressor == NULL && q->compressor_effect == NULL)
        TY_TRY(
            ty_compression_cost(q->task, batch, &compression, &s->compression_multiplier, error));
    else
        TY_TRY(ty_compression_multiplier(
            q->task, batch,
            q->compressor != NULL ? q->compressor : ty_compression_name(compression.kind),
            q->compressor_effect, &s->compression_multiplier, error));
    TY_TRY(ty_staleness_multiplier(q->task, batch, delay_of(plan, q), &s->staleness_multiplier,
                                   error));
    TY_TRY(score_rate(plan, q, s, error));
    s->has_target = true;
    s->is_prior = q->task->is_prior;
    s->samples_to_target = ty_interval_product(
        ty_convergence_samples(q->task, batch),
        ty_interval_product(s->rate_multiplier, ty_interval_product(s->compression_multiplier,
                                                                    s->staleness_multiplier)));
    s->steps = s->samples_to_target.expected / batch;
    if (!(s->failures.goodput > 0)) {
        return ty_fail(error, TY_EINFEASIBLE,
                       "the cluster fails every %.3g s: no checkpoint is reached",
                       s->failures.system_mtbf_s);
    }
    s->time_to_target_s = ty_interval_scale(
        ty_interval_product(s->samples_to_target,
                            ty_interval_of_deviation(s->step_time_s, step_deviation(plan, q))),
        1 / (batch * s->failures.goodput));
    return TY_OK;
}

ty_status ty_cost_question_check(const ty_cost_question *question, ty_error *error)
{
    const int lengths = (question->tokens > 0) + (question->epochs > 0) + (question->steps > 0);
    ty_prices prices = {0};
    double value;
    bool is_factor;
    ty_status status = TY_OK;

    if (lengths > 1)
        return ty_fail(error, TY_EINVAL,
                       "--tokens, --epochs and --steps: found %d of them, expected one", lengths);
    if (question->price != NULL)
        TY_CHECK(ty_prices_open(question->price, &prices, error), status, done);
    if (question->power != NULL)
        TY_CHECK(ty_read_or_factor(question->power, "W", "power", &value, &is_factor, error),
                 status, done);
    if (question->failure_rate != NULL)
        status = ty_read_or_factor(question->failure_rate, "", "failure-rate", &value, &is_factor,
                                   error);
done:
    ty_prices_clear(&prices);
    return status;
}

ty_status ty_cost_question_samples(const ty_cost_question *question, const ty_workload *workload,
                                   const ty_input *input, uint32_t batch, double *out,
                                   ty_error *error)
{
    *out = question->steps * batch;
    if (question->tokens > 0 && workload->tokens_per_sample == 0)
        return ty_fail(error, TY_EINVAL,
                       "--tokens: samples of %.80s are not sequences, expected --epochs or --steps",
                       workload->name);
    if (question->tokens > 0)
        *out = question->tokens / (double)workload->tokens_per_sample;
    if (question->epochs > 0 && !(input->data_bytes > 0))
        return ty_fail(error, TY_EINVAL,
                       "--epochs: the size of the data set is not known, expected --input "
                       "data=SIZE, or --tokens or --steps");
    if (question->epochs > 0)
        *out = question->epochs * (double)input->data_bytes / (double)workload->sample_bytes;
    return TY_OK;
}

/* Cost of a training of the requested length; 0 without one. */
static ty_status score_length(const ty_plan *plan, const ty_score_question *q,
                              const ty_cluster_rates *rates, ty_score *s, ty_error *error)
{
    ty_training_cost *c = &s->cost;
    double seconds;
    ty_status status = ty_cost_question_samples(&q->cost, plan->workload, &plan->input,
                                                plan->global_batch, &c->samples, error);

    if (status != TY_OK || !(c->samples > 0))
        return status;
    if (!(s->failures.goodput > 0))
        return ty_fail(error, TY_EINFEASIBLE,
                       "the cluster fails every %.3g s: no checkpoint is reached",
                       s->failures.system_mtbf_s);
    c->steps = c->samples / plan->global_batch;
    c->tokens = c->samples * (double)plan->workload->tokens_per_sample;
    c->goodput = s->failures.goodput;
    seconds = c->steps * s->step_time_s / c->goodput;
    c->days = seconds / SECONDS_PER_DAY;
    c->energy_mwh = rates->power_w.expected * seconds / JOULES_PER_MWH;
    if (!rates->has_price)
        return TY_OK;
    memcpy(c->price_kind, rates->price_kind, sizeof c->price_kind);
    c->price_usd_per_device_hour = rates->price_usd_per_device_hour;
    c->cost_usd = rates->price_usd_per_s * seconds;
    if (c->tokens > 0)
        c->cost_usd_per_million_tokens = c->cost_usd / (c->tokens / MILLION);
    return TY_OK;
}

static ty_status score_cost(const ty_plan *plan, const ty_cluster *cluster,
                            const ty_score_question *q, ty_score *s, ty_text *notes,
                            ty_error *error)
{
    const ty_step_summary *summary = ty_plan_summary(plan);
    double load = fmin(1, fmax(0, summary->compute_share * summary->step_time_s / s->step_time_s));
    ty_cost_rates asked = q->rates;
    ty_cluster_rates rates;

    asked.price = q->cost.price != NULL ? q->cost.price : asked.price;
    asked.power = q->cost.power != NULL ? q->cost.power : asked.power;
    TY_TRY(ty_cluster_rates_of(cluster, load, &asked, &rates, error));
    s->has_price = rates.has_price;
    s->has_power = rates.power_w.expected > 0;
    s->price_usd_per_hour = rates.price_usd_per_s * SECONDS_PER_HOUR;
    s->power_w = rates.power_w;
    if (s->has_target && s->has_price)
        s->money_usd = ty_interval_scale(s->time_to_target_s, rates.price_usd_per_s);
    if (s->has_target && s->has_power)
        s->energy_j = ty_interval_product(s->time_to_target_s, s->power_w);
    ty_text_addf(notes, "%s\n", rates.assumption);
    if (!s->has_price)
        ty_text_add(notes, "price: not known of every device; give it with --price\n");
    else if (rates.price_note[0] != '\0')
        ty_text_addf(notes, "price: %s, %s\n", rates.price_kind, rates.price_note);
    return score_length(plan, q, &rates, s, error);
}

static void note_rate(const ty_plan *plan, const ty_score_question *q, ty_text *notes)
{
    const ty_convergence *t = q->task;
    double rule;
    bool is_beyond;

    if (!(q->learning_rate > 0) || !(t->learning_rate > 0) ||
        ty_learning_rate(t, t->learning_rate, t->batch, plan->global_batch, &rule, &is_beyond,
                         NULL) != TY_OK)
        return;
    if (fabs(q->learning_rate / rule - 1) > RATE_TOLERANCE)
        ty_text_addf(notes,
                     "convergence: learning rate %.4g is not the rule's %.4g (plan --task sets "
                     "it): steps are those that go as far\n",
                     q->learning_rate, rule);
}

static void note_target(const ty_plan *plan, const ty_score_question *q, ty_text *notes)
{
    const ty_convergence *t = q->task;
    double batch = plan->global_batch;

    if (t == NULL) {
        ty_text_add(notes, "no task: time to target, money and energy to target are not known\n");
        return;
    }
    ty_text_addf(notes, "convergence: %s (%s), %s\n", t->name, t->is_prior ? "prior" : "measured",
                 t->source);
    if (batch < t->smallest_batch || batch > t->largest_batch)
        ty_text_addf(
            notes, "convergence: batch %g is outside %g to %g, where the task's figures are from\n",
            batch, t->smallest_batch, t->largest_batch);
    note_rate(plan, q, notes);
}

ty_status ty_score_plan(const ty_plan *plan, const ty_cluster *cluster, const ty_score_question *q,
                        ty_score *out, ty_error *error)
{
    ty_score s = {0};
    ty_failure_question failures;
    ty_text notes = {0};
    ty_status status = TY_OK;

    if (!plan->has_prediction || !(plan->prediction.step_time_s > 0))
        return ty_fail(error, TY_EINVAL, "the plan has no prediction: estimate it first");
    TY_CHECK(score_step(plan, &s, error), status, cleanup);
    TY_CHECK(ty_failure_question_of(plan, cluster, q, &failures, error), status, cleanup);
    TY_CHECK(ty_failures(&failures, &s.failures, error), status, cleanup);
    s.checkpoint_bytes = checkpoint_bytes(plan);
    TY_CHECK(score_target(plan, q, &s, error), status, cleanup);
    TY_CHECK(score_cost(plan, cluster, q, &s, &notes, error), status, cleanup);
    note_target(plan, q, &notes);
    TY_CHECK(ty_text_take(&notes, &s.notes, error), status, cleanup);
    *out = s;

cleanup:
    ty_text_clear(&notes);
    return status;
}

ty_status ty_training_cost_of(const ty_plan *plan, const ty_cluster *cluster,
                              const ty_cost_question *question, ty_training_cost *out,
                              ty_error *error)
{
    ty_score_question q = ty_score_question_default();
    ty_score score = {0};
    ty_status status;

    q.cost = *question;
    status = ty_cost_question_check(question, error);
    if (status == TY_OK)
        status = ty_score_plan(plan, cluster, &q, &score, error);
    if (status == TY_OK)
        *out = score.cost;
    ty_score_clear(&score);
    return status;
}

void ty_score_clear(ty_score *score)
{
    ty_free(score->notes);
    *score = (ty_score){0};
}
