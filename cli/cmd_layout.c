/* trainyard layout: how a large transformer is laid out over equal devices, by the closed form of
 * ty_layout.h: every layout at once, context and expert parallelism among them. */
#include "cli.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USUAL_TOP 50 /* most of which differ in buckets alone */
#define FRONT_STEP 0.9
#define MOST_TOP 1000

/* ---- What is fixed ------------------------------------------------------------------------- */

typedef struct degree_key {
    const char *name;
    size_t offset; /* of a number in ty_layout_options */
} degree_key;

static const degree_key degrees[] = {
    {"tp", offsetof(ty_layout_options, tensor)},
    {"cp", offsetof(ty_layout_options, context)},
    {"ep", offsetof(ty_layout_options, expert)},
    {"pp", offsetof(ty_layout_options, pipeline)},
    {"interleave", offsetof(ty_layout_options, interleave)},
    {"dp", offsetof(ty_layout_options, data)},
    {"micro_batch", offsetof(ty_layout_options, micro_batch)},
};

static const char *schedule_name(int i)
{
    return ty_layout_schedule_name((ty_layout_schedule)i);
}

static const char *recompute_name(int i)
{
    return ty_layout_recompute_name((ty_layout_recompute)i);
}

static const char *zero_name(int i)
{
    static const char *const names[] = {"0", "1", "2", "3"};
    return names[i];
}

static const char *switch_name(int i)
{
    return i == 0 ? "0" : "1";
}

typedef struct choice_key {
    const char *name;
    size_t offset; /* of a set of bits in ty_layout_options */
    int count;
    const char *(*value)(int i);
} choice_key;

static const choice_key choices[] = {
    {"schedule", offsetof(ty_layout_options, schedules), TY_LAYOUT_SCHEDULE_COUNT, schedule_name},
    {"recompute", offsetof(ty_layout_options, recomputes), TY_LAYOUT_RECOMPUTE_COUNT,
     recompute_name},
    {"zero", offsetof(ty_layout_options, zeros), 4, zero_name},
    {"sp", offsetof(ty_layout_options, sequence_parallel), 2, switch_name},
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static ty_status fix_degree(ty_layout_options *o, const degree_key *key, const char *value,
                            ty_error *error)
{
    char *end;
    const unsigned long number = strtoul(value, &end, 10);

    if (value[0] < '0' || value[0] > '9' || *end != '\0' || number < 1 || number > INT_MAX)
        return ty_fail(error, TY_EINVAL, "--fix %s: found \"%s\", expected a whole number from 1",
                       key->name, value);
    *(uint32_t *)((char *)o + key->offset) = (uint32_t)number;
    return TY_OK;
}

static ty_status fix_choice(ty_layout_options *o, const choice_key *key, const char *value,
                            ty_error *error)
{
    ty_text names = {0};
    ty_status status;

    for (int i = 0; i < key->count; i++) {
        if (strcmp(key->value(i), value) == 0) {
            *(uint32_t *)((char *)o + key->offset) = 1u << i;
            ty_text_clear(&names);
            return TY_OK;
        }
        ty_text_addf(&names, "%s%s", i > 0 ? ", " : "", key->value(i));
    }
    status = ty_fail(error, TY_EINVAL, "--fix %s: found \"%s\", expected one of %s", key->name,
                     value, names.data != NULL ? names.data : "");
    ty_text_clear(&names);
    return status;
}

static ty_status fix_one(ty_layout_options *o, const char *key, const char *value, ty_error *error)
{
    for (size_t i = 0; i < COUNT(degrees); i++)
        if (strcmp(key, degrees[i].name) == 0)
            return fix_degree(o, &degrees[i], value, error);
    for (size_t i = 0; i < COUNT(choices); i++)
        if (strcmp(key, choices[i].name) == 0)
            return fix_choice(o, &choices[i], value, error);
    return ty_fail(error, TY_EINVAL,
                   "--fix: unknown key '%s', expected tp, cp, ep, pp, interleave, dp, micro_batch, "
                   "schedule, recompute, zero or sp",
                   key);
}

static ty_status fix_all(ty_layout_options *o, const char *text, ty_error *error)
{
    char *copy = ty_strdup(text), *rest = copy, *key;
    ty_status status = copy == NULL ? ty_fail(error, TY_ENOMEM, "out of memory") : TY_OK;

    while (status == TY_OK && (key = strsep(&rest, ",")) != NULL) {
        char *value = strchr(key, '=');
        if (value == NULL) {
            status = ty_fail(error, TY_EINVAL, "--fix: found \"%s\", expected KEY=V", key);
            break;
        }
        *value++ = '\0';
        status = fix_one(o, key, value, error);
    }
    ty_free(copy);
    return status;
}

static ty_status options_from(const cli_options *given, const ty_workload *workload,
                              ty_layout_options *o, ty_error *error)
{
    *o = ty_layout_options_default();
    o->top = given->top > 0 ? (uint32_t)given->top : USUAL_TOP;
    o->should_stop = interrupted;
    o->precisions = 1u << (workload->element_bytes < 4 ? TY_LAYOUT_HALF : TY_LAYOUT_FP32);
    if (o->top > MOST_TOP)
        return ty_fail(error, TY_EINVAL, "--top: found %u, expected at most %d", o->top, MOST_TOP);
    return given->fix != NULL ? fix_all(o, given->fix, error) : TY_OK;
}

/* ---- The answer ---------------------------------------------------------------------------- */

static bool is_repeated(const ty_layout_result *rows, uint32_t index, const char *layout)
{
    char other[TY_LAYOUT_TEXT_SIZE];

    for (uint32_t i = 0; i < index; i++) {
        ty_layout_text(&rows[i].layout, other);
        if (strcmp(layout, other) == 0)
            return true;
    }
    return false;
}

/* Rows that differ in buckets alone, or need hardly less memory than the one above, are for --json:
 * a row is shown whose name is new, and whose memory is below `share` of the last one shown. */
static void rows_to_text(const char *title, const ty_layout_result *rows, uint32_t count,
                         double share, ty_text *text)
{
    double last_bytes = HUGE_VAL;

    ty_text_addf(text, "\n%9s  %7s  %10s  %s\n", "step", "of peak", "memory", title);
    for (uint32_t i = 0; i < count; i++) {
        char seconds[32], bytes[32], layout[TY_LAYOUT_TEXT_SIZE];
        ty_layout_text(&rows[i].layout, layout);
        if (is_repeated(rows, i, layout) || rows[i].estimate.memory.total > share * last_bytes)
            continue;
        last_bytes = rows[i].estimate.memory.total;
        ty_format_seconds(rows[i].estimate.step_time_s, seconds);
        ty_format_memory(rows[i].estimate.memory.total, bytes);
        ty_text_addf(text, "%9s  %5.1f %%  %10s  %s\n", seconds,
                     100 * rows[i].estimate.model_flop_utilisation, bytes, layout);
    }
}

static void parts_to_text(const ty_layout_estimate *e, ty_text *text)
{
    const struct {
        const char *name;
        double seconds;
    } parts[] = {
        {"compute", e->compute_s},        {"recompute", e->recompute_s},
        {"tensor parallel", e->tensor_s}, {"context parallel", e->context_s},
        {"expert parallel", e->expert_s}, {"transfers", e->transfer_s},
        {"bubble", e->bubble_s},          {"gradient exchange", e->data_s},
        {"optimizer", e->optimizer_s},    {"other", e->other_s},
    };
    const char *separator = "made of     ";

    for (size_t i = 0; i < COUNT(parts); i++) {
        if (parts[i].seconds < 0.0005 * e->step_time_s)
            continue;
        ty_text_addf(text, "%s%s %.1f %%", separator, parts[i].name,
                     100 * parts[i].seconds / e->step_time_s);
        separator = ", ";
    }
    ty_text_add(text, "\n");
}

static void answer_to_text(const ty_layout_question *q, const ty_layout_answer *a,
                           const cli_options *options, ty_text *text)
{
    char layout[TY_LAYOUT_TEXT_SIZE], seconds[32], rate[32];

    ty_layout_text(&a->best[0].layout, layout);
    ty_format_seconds(a->best[0].estimate.step_time_s, seconds);
    ty_format_count((double)q->global_batch * q->shape.sequence / a->best[0].estimate.step_time_s,
                    rate);
    ty_text_addf(text, "%s on %s, %u samples a step\n", options->workload, options->cluster,
                 q->global_batch);
    ty_text_addf(text, "layout      %s\n", layout);
    ty_text_addf(text, "step time   %s, %s tokens/s\n", seconds, rate);
    parts_to_text(&a->best[0].estimate, text);
    ty_text_addf(text,
                 "searched    %llu layouts: %llu estimated, %llu too large, %llu ruled out%s\n",
                 (unsigned long long)a->configurations, (unsigned long long)a->estimated,
                 (unsigned long long)a->unfit, (unsigned long long)a->pruned,
                 a->is_interrupted ? "; interrupted: the best so far" : "");
    rows_to_text("the best", a->best, a->best_count, HUGE_VAL, text);
    rows_to_text("the front: less memory for more time", a->front, a->front_count, FRONT_STEP,
                 text);
}

static void row_to_json(const ty_layout_result *row, ty_json_writer *w)
{
    const ty_layout *l = &row->layout;
    const ty_layout_estimate *e = &row->estimate;
    char text[TY_LAYOUT_TEXT_SIZE];

    ty_layout_text(l, text);
    ty_json_open_flat(w, NULL, '{');
    ty_json_put_string(w, "layout", text);
    ty_json_put_uint(w, "tp", l->tensor);
    ty_json_put_bool(w, "sp", l->sequence_parallel);
    ty_json_put_uint(w, "cp", l->context);
    ty_json_put_uint(w, "ep", l->expert);
    ty_json_put_uint(w, "pp", l->pipeline);
    ty_json_put_uint(w, "interleave", l->interleave);
    ty_json_put_uint(w, "dp", l->data);
    ty_json_put_uint(w, "zero", l->zero);
    ty_json_put_uint(w, "micro_batch", l->micro_batch);
    ty_json_put_string(w, "schedule", ty_layout_schedule_name(l->schedule));
    ty_json_put_string(w, "recompute", ty_layout_recompute_name(l->recompute));
    ty_json_put_string(w, "compression", ty_compression_name(l->compression));
    ty_json_put_uint(w, "bucket_bytes", l->bucket_bytes);
    ty_json_put_number(w, "step_time_s", e->step_time_s);
    ty_json_put_number(w, "model_flop_utilisation", e->model_flop_utilisation);
    ty_json_put_number(w, "bubble_s", e->bubble_s);
    ty_json_put_number(w, "memory_bytes", e->memory.total);
    ty_json_close(w, '}');
}

static void answer_to_json(const ty_layout_question *q, const ty_layout_answer *a,
                           const cli_options *options, ty_text *text)
{
    ty_json_writer w = ty_json_writer_on(text);

    ty_json_open(&w, NULL, '{');
    ty_json_put_string(&w, "schema", "trainyard.layout/1");
    ty_json_put_string(&w, "workload", options->workload);
    ty_json_put_string(&w, "cluster", options->cluster);
    ty_json_put_uint(&w, "devices", q->cluster.devices);
    ty_json_put_uint(&w, "global_batch", q->global_batch);
    ty_json_put_uint(&w, "configurations", a->configurations);
    ty_json_put_uint(&w, "estimated", a->estimated);
    ty_json_put_uint(&w, "unfit", a->unfit);
    ty_json_put_uint(&w, "pruned", a->pruned);
    ty_json_put_bool(&w, "is_complete", !a->is_interrupted);
    ty_json_open(&w, "best", '[');
    for (uint32_t i = 0; i < a->best_count; i++)
        row_to_json(&a->best[i], &w);
    ty_json_close(&w, ']');
    ty_json_open(&w, "front", '[');
    for (uint32_t i = 0; i < a->front_count; i++)
        row_to_json(&a->front[i], &w);
    ty_json_close(&w, ']');
    ty_json_close(&w, '}');
    ty_text_add(text, "\n");
}

exit_code cmd_layout(const cli_options *options)
{
    exit_code code;
    ty_error error = {0};
    ty_question_inputs q = {0};
    ty_layout_question question;
    ty_layout_options how;
    ty_layout_answer *answer = NULL;
    ty_text text = {0};

    if (question_open(options, &q, &error) != TY_OK)
        return report_bad_input(&error);
    interrupts_catch();
    if (options_from(options, q.workload, &how, &error) != TY_OK ||
        ty_layout_question_of(q.workload, q.cluster, (uint32_t)options->global_batch, &question,
                              &error) != TY_OK ||
        ty_layout_search(&question, &how, &answer, &error) != TY_OK) {
        code = report_failure(&error);
        goto cleanup;
    }
    if (options->json)
        answer_to_json(&question, answer, options, &text);
    else
        answer_to_text(&question, answer, options, &text);
    code = print_text(&text);
    if (code == EXIT_DONE && answer->is_interrupted)
        code = EXIT_INTERRUPTED;

cleanup:
    ty_layout_answer_free(answer);
    ty_text_clear(&text);
    ty_question_inputs_clear(&q);
    return code;
}
