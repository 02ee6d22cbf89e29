/* A run in the formats of Prometheus and MLPerf. */
#include "ty_reports.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- Prometheus -------------------------------------------------------------------------- */

/* Text format 0.0.4: a backslash before backslash, quote and line feed. */
static void put_label(ty_text *text, const char *name, const char *value, bool is_first)
{
    ty_text_addf(text, "%s%s=\"", is_first ? "" : ",", name);
    for (const char *c = value; *c != '\0'; c++) {
        if (*c == '\n')
            ty_text_add(text, "\\n");
        else if (*c == '\\' || *c == '"')
            ty_text_addf(text, "\\%c", *c);
        else
            ty_text_append(text, c, 1);
    }
    ty_text_add(text, "\"");
}

static void put_labels(const ty_plan *plan, const ty_run *run, ty_text *text)
{
    put_label(text, "workload", plan->workload->name, true);
    put_label(text, "cluster", plan->cluster_name, false);
    put_label(text, "strategy", plan->strategy, false);
    put_label(text, "plan", run->plan_digest.hex, false);
    put_label(text, "backend", run->backend, false);
}

static void put_gauge(const ty_plan *plan, const ty_run *run, const char *name, const char *help,
                      double value, ty_text *text)
{
    char number[32];

    if (!isfinite(value))
        return;
    ty_format_number(value, number);
    ty_text_addf(text, "# HELP trainyard_%s %s\n# TYPE trainyard_%s gauge\ntrainyard_%s{", name,
                 help, name, name);
    put_labels(plan, run, text);
    ty_text_addf(text, "} %s\n", number);
}

/* Writes memory by stage replica, and shares of a step by part: one more label each. */
static void put_memory(const ty_plan *plan, const ty_run *run, ty_text *text)
{
    ty_text_add(text, "# HELP trainyard_peak_memory_bytes Peak memory of a stage replica: its "
                      "resident set, or what it took of its GPU.\n"
                      "# TYPE trainyard_peak_memory_bytes gauge\n");
    for (uint32_t r = 0; r < run->stage_replica_count; r++) {
        ty_text_add(text, "trainyard_peak_memory_bytes{");
        put_labels(plan, run, text);
        ty_text_addf(text, ",stage_replica=\"%u\"} %llu\n", r,
                     (unsigned long long)run->peak_memory_bytes[r]);
    }
}

static void put_shares(const ty_plan *plan, const ty_run *run, ty_text *text)
{
    const ty_step_summary *s = &run->summary;
    const struct {
        const char *part;
        double share;
    } parts[] = {{"compute", s->compute_share},
                 {"exposed_collective", s->exposed_collective_share},
                 {"exposed_transfer", s->exposed_transfer_share},
                 {"bubble", s->bubble_share},
                 {"input", s->input_share}};

    ty_text_add(text, "# HELP trainyard_step_share Share of a step, averaged over stage replicas.\n"
                      "# TYPE trainyard_step_share gauge\n");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char number[32];
        ty_format_number(parts[i].share, number);
        ty_text_add(text, "trainyard_step_share{");
        put_labels(plan, run, text);
        ty_text_addf(text, ",part=\"%s\"} %s\n", parts[i].part, number);
    }
}

void ty_run_to_metrics(const ty_plan *plan, const ty_run *run, ty_text *text)
{
    const ty_step_summary *s = &run->summary;
    double predicted = ty_plan_summary(plan)->step_time_s;

    put_gauge(plan, run, "step_time_seconds", "Seconds of a training step.", s->step_time_s, text);
    if (plan->has_prediction)
        put_gauge(plan, run, "predicted_step_time_seconds", "What the plan expected of a step.",
                  predicted, text);
    put_gauge(plan, run, "samples_per_second", "Throughput.", s->samples_per_s, text);
    if (s->tokens_per_s > 0)
        put_gauge(plan, run, "tokens_per_second", "Throughput in tokens.", s->tokens_per_s, text);
    put_gauge(plan, run, "steps", "Steps done.", run->step_count, text);
    put_gauge(plan, run, "wall_seconds", "Seconds of all steps, evaluations excluded.", run->wall_s,
              text);
    if (run->step_count > 0 && run->losses != NULL)
        put_gauge(plan, run, "loss", "Loss of the last step.", run->losses[run->step_count - 1],
                  text);
    if (run->evaluation_count > 0)
        put_gauge(plan, run, "accuracy",
                  "Share of the test set told right, at the last evaluation.",
                  run->evaluations[run->evaluation_count - 1].accuracy, text);
    put_shares(plan, run, text);
    put_memory(plan, run, text);
}

/* ---- MLPerf ------------------------------------------------------------------------------ */

/* Steps whose loss is logged; more would make the log larger than the run file. */
#define MOST_LOGGED_STEPS 1000

typedef struct mllog {
    ty_text *text;
    double start_ms; /* since 1970 */
} mllog;

/* "2024-05-31T12:00:00Z" */
static double milliseconds_of(const char *date)
{
    struct tm parts = {0};

    /* Four digits are within range. NOLINTNEXTLINE(cert-err34-c) */
    if (sscanf(date, "%4d-%2d-%2dT%2d:%2d:%2d", &parts.tm_year, &parts.tm_mon, &parts.tm_mday,
               &parts.tm_hour, &parts.tm_min, &parts.tm_sec) != 6)
        return 0;
    parts.tm_year -= 1900;
    parts.tm_mon -= 1;
    return (double)timegm(&parts) * 1e3;
}

/* Members are in the order of mlperf_logging/mllog/mllog.py. The caller adds the value. */
static ty_json_writer begin(const mllog *l, double seconds, const char *type, const char *key)
{
    ty_json_writer w;
    double at_ms = l->start_ms + seconds * 1e3;

    ty_text_add(l->text, ":::MLLOG ");
    w = ty_json_writer_on(l->text);
    ty_json_open_flat(&w, NULL, '{');
    ty_json_put_string(&w, "namespace", "");
    ty_json_put_uint(&w, "time_ms", at_ms > 0 ? (uint64_t)at_ms : 0);
    ty_json_put_string(&w, "event_type", type);
    ty_json_put_string(&w, "key", key);
    return w;
}

static void end(const mllog *l, ty_json_writer *w, const char *status, const uint32_t *step)
{
    ty_json_open(w, "metadata", '{');
    if (status != NULL)
        ty_json_put_string(w, "status", status);
    if (step != NULL)
        ty_json_put_uint(w, "step_num", *step);
    ty_json_close(w, '}');
    ty_json_close(w, '}');
    ty_text_add(l->text, "\n");
}

static void point_number(const mllog *l, const char *key, double value)
{
    ty_json_writer w = begin(l, 0, "POINT_IN_TIME", key);

    ty_json_put_number(&w, "value", value);
    end(l, &w, NULL, NULL);
}

static void point_text(const mllog *l, const char *key, const char *value)
{
    ty_json_writer w = begin(l, 0, "POINT_IN_TIME", key);

    ty_json_put_string(&w, "value", value);
    end(l, &w, NULL, NULL);
}

static void interval(const mllog *l, double seconds, bool is_start, const char *key,
                     const char *status, const uint32_t *step)
{
    ty_json_writer w = begin(l, seconds, is_start ? "INTERVAL_START" : "INTERVAL_END", key);

    ty_json_put_null(&w, "value");
    end(l, &w, status, step);
}

static void put_settings(const mllog *l, const ty_plan *plan)
{
    const ty_plan_stage *first = &plan->stages[0];

    point_text(l, "submission_benchmark", plan->workload->name);
    point_text(l, "submission_platform", plan->cluster_name);
    point_number(l, "global_batch_size", plan->global_batch);
    /* Replicas divide micro-batches. NOLINTNEXTLINE(bugprone-integer-division) */
    point_number(l, "gradient_accumulation_steps", plan->micro_batches / first->replicas);
    point_number(l, "seed", (double)plan->seed);
    point_text(l, "opt_name", ty_optimizer_name(plan->optimizer.kind));
    point_number(l, "opt_base_learning_rate", plan->optimizer.learning_rate);
    point_number(l, "opt_weight_decay", plan->optimizer.weight_decay);
}

static void put_losses(const mllog *l, const ty_run *run)
{
    uint32_t stride = (run->step_count + MOST_LOGGED_STEPS - 1) / MOST_LOGGED_STEPS;

    for (uint32_t s = 0; s<run->step_count; s += stride> 0 ? stride : 1) {
        uint32_t step = s + 1;
        ty_json_writer w =
            begin(l, run->wall_s * step / run->step_count, "POINT_IN_TIME", "tracked_stats");
        ty_json_open(&w, "value", '{');
        if (run->losses != NULL)
            ty_json_put_number(&w, "train_loss", run->losses[s]);
        ty_json_put_number(&w, "throughput", run->summary.samples_per_s);
        ty_json_close(&w, '}');
        end(l, &w, NULL, &step);
    }
}

/* MLPerf calls the metric eval_accuracy, also if it is a loss. */
static void put_evaluations(const mllog *l, const ty_run *run)
{
    for (uint32_t e = 0; e < run->evaluation_count; e++) {
        const ty_evaluation *made = &run->evaluations[e];
        ty_json_writer w;
        interval(l, made->seconds, true, "eval_start", NULL, &made->step);
        w = begin(l, made->seconds, "POINT_IN_TIME", "eval_accuracy");
        ty_json_put_number(&w, "value", run->until.loss > 0 ? made->loss : made->accuracy);
        end(l, &w, NULL, &made->step);
        interval(l, made->seconds, false, "eval_stop", NULL, &made->step);
    }
}

void ty_run_to_mlperf(const ty_plan *plan, const ty_run *run, ty_text *text)
{
    mllog l = {.text = text, .start_ms = milliseconds_of(run->date) - run->wall_s * 1e3};
    bool is_reached = ty_run_reached(run) != NULL;

    put_settings(&l, plan);
    interval(&l, 0, true, "run_start", NULL, NULL);
    put_losses(&l, run);
    put_evaluations(&l, run);
    interval(&l, run->wall_s, false, "run_stop", is_reached ? "success" : "aborted", NULL);
}
