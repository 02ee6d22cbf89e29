/* Prediction intervals from the residuals of published runs, and the runs nearest to a plan. */
#include "ty_evidence.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA "trainyard.evidence/1"
#define HEAD_BYTES 64
#define COVERAGE 0.8
#define MOST_SOURCES 256
/* Rows of one source are alike: n of them count as n / (1 + (n - 1) x correlation). For the median
 * all count as one, because published runs of one source err together. */
#define MEDIAN_CORRELATION 1.0
#define WIDTH_CORRELATION 0.3
/* Rows at which a group counts as much as the one before it: of sources for the shift, as with
 * fewer the expected time of left-out sources became worse; of a source's own rows; and for the
 * width. */
#define SHIFT_ROWS 20.0
#define OWN_ROWS 3.0
#define WIDTH_ROWS 3.0
#define LEAST_WIDTH 0.01
/* Widths of rows further than this from all others were too small by FAR_WIDTH per unit. */
#define FAR 2.0
#define FAR_WIDTH 0.2
#define NEAR 3.0 /* further runs are not shown */

/* ---- Reading ------------------------------------------------------------------------------- */

#define INDEX(name)                                                                                \
    {                                                                                              \
#name, JSON_UINT32, JSON_AT(ty_measured_run, name), 0, UINT32_MAX - 1                      \
    }
#define AMOUNT(name, least)                                                                        \
    {                                                                                              \
#name, JSON_NUMBER, JSON_AT(ty_measured_run, name), least, DBL_MAX                         \
    }
static const json_field run_fields[] = {
    INDEX(source),
    INDEX(citation),
    INDEX(model),
    INDEX(kind),
    INDEX(devices),
    INDEX(device),
    INDEX(generation),
    INDEX(hosts),
    INDEX(framework),
    INDEX(release),
    INDEX(precision),
    AMOUNT(parameters, 1),
    INDEX(sequence),
    INDEX(global_batch),
    INDEX(is_assumed),
    INDEX(is_fitted),
    AMOUNT(step_s, DBL_MIN),
    AMOUNT(predicted_s, DBL_MIN),
};
static const json_record run_record = JSON_FLAT_RECORD(ty_measured_run, run_fields);

static const json_field evidence_fields[] = {
    {"new_source_factor", JSON_NUMBER, JSON_AT(ty_evidence, new_source_factor), 0, 100},
    {"known_source_factor", JSON_NUMBER, JSON_AT(ty_evidence, known_source_factor), 0, 100},
    {"rows", JSON_TUPLES, JSON_AT(ty_evidence, rows), 1, 100000, .of = &run_record,
     .count_at = offsetof(ty_evidence, row_count)},
};
static const json_record evidence_record = JSON_RECORD(ty_evidence, evidence_fields);

static void set_places(ty_measured_run *run)
{
    run->at[0] = log2(fmax(1, run->devices));
    run->at[1] = log2(fmax(1, run->parameters));
    run->at[2] = log2(fmax(1, run->sequence));
}

static int by_residual(const void *a, const void *b)
{
    const ty_measured_run *x = a, *y = b;

    return (x->residual > y->residual) - (x->residual < y->residual);
}

/* Names of the columns, as documentation of the file; they must be those that are read. */
static ty_status check_columns(const ty_json *root, ty_error *error)
{
    const ty_json *columns;

    TY_TRY(ty_json_array(root, "columns", run_record.field_count, run_record.field_count, &columns,
                         error));
    for (uint32_t i = 0; i < run_record.field_count; i++) {
        const char *name;
        TY_TRY(ty_json_as_string(ty_json_at(columns, i), &name, error));
        if (strcmp(name, run_fields[i].key) != 0)
            return ty_json_fail(ty_json_at(columns, i), error, "%s", run_fields[i].key);
    }
    return TY_OK;
}

static ty_status read_words(const ty_json *root, ty_evidence *e, ty_error *error)
{
    const ty_json *words;

    TY_TRY(ty_json_array(root, "words", 1, 100000, &words, error));
    e->word_count = (uint32_t)ty_json_size(words);
    e->words = ty_alloc(e->word_count, sizeof *e->words);
    TY_TRY(ty_check_memory(e->words != NULL, error));
    for (uint32_t i = 0; i < e->word_count; i++)
        TY_TRY(ty_json_as_string(ty_json_at(words, i), &e->words[i], error));
    return TY_OK;
}

static ty_status check_rows(const ty_json *root, const ty_evidence *e, ty_error *error)
{
    for (uint32_t i = 0; i < e->row_count; i++) {
        const ty_measured_run *r = &e->rows[i];
        const uint32_t words[] = {r->source,     r->citation,  r->model,   r->kind,     r->device,
                                  r->generation, r->framework, r->release, r->precision};
        for (size_t w = 0; w < sizeof words / sizeof words[0]; w++)
            if (words[w] >= e->word_count || r->source >= MOST_SOURCES)
                return ty_json_fail(root, error, "row %u with indices of words, sources below %d",
                                    i, MOST_SOURCES);
    }
    return TY_OK;
}

ty_status ty_evidence_load(const char *path, ty_evidence **out, ty_error *error)
{
    ty_evidence *e = ty_alloc(1, sizeof *e);
    char *usual = NULL;
    const ty_json *root;
    const char *about;
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(e != NULL, error));
    if (path == NULL) {
        TY_CHECK(ty_data_path("study/evidence", "rows.json", &usual, error), status, cleanup);
        path = usual;
    }
    TY_CHECK(ty_json_load(path, &e->document, error), status, cleanup);
    root = ty_json_root(e->document);
    TY_CHECK(ty_json_schema(root, SCHEMA, error), status, cleanup);
    TY_CHECK(ty_json_string(root, "about", &about, error), status, cleanup);
    TY_CHECK(check_columns(root, error), status, cleanup);
    TY_CHECK(read_words(root, e, error), status, cleanup);
    TY_CHECK(ty_record_read(root, &evidence_record, e, NULL, error), status, cleanup);
    TY_CHECK(ty_json_end(root, error), status, cleanup);
    TY_CHECK(check_rows(root, e, error), status, cleanup);
    for (uint32_t i = 0; i < e->row_count; i++) {
        e->rows[i].residual = log(e->rows[i].step_s / e->rows[i].predicted_s);
        set_places(&e->rows[i]);
    }
    qsort(e->rows, e->row_count, sizeof *e->rows, by_residual);
    *out = e;
    e = NULL; /* ownership moved */

cleanup:
    ty_evidence_free(e);
    ty_free(usual);
    return status;
}

void ty_evidence_free(ty_evidence *evidence)
{
    if (evidence == NULL)
        return;
    ty_json_free(evidence->document);
    ty_free(evidence->words);
    ty_free(evidence->rows);
    ty_free(evidence);
}

bool ty_is_evidence(const char *path)
{
    char head[HEAD_BYTES + 1];
    FILE *file = fopen(path, "re");
    size_t length;

    if (file == NULL)
        return false;
    length = fread(head, 1, HEAD_BYTES, file);
    (void)fclose(file);
    head[length] = '\0';
    return strstr(head, "\"" SCHEMA "\"") != NULL;
}

/* ---- The question of a plan ---------------------------------------------------------------- */

static uint32_t word_of(const ty_evidence *e, const char *text, size_t length)
{
    for (uint32_t i = 0; i < e->word_count; i++)
        if (strlen(e->words[i]) == length && memcmp(e->words[i], text, length) == 0)
            return i;
    return TY_EVIDENCE_NONE;
}

/* docs/results/evidence.py finds the same in a plan's document. */
static const char *kind_of(const ty_workload *w)
{
    const char *kind = "other";

    for (uint32_t l = 0; l < w->layer_count; l++) {
        const ty_layer *layer = &w->layers[l];
        if (ty_layer_row_of(layer)->is_convolution)
            return "image";
        if (ty_layer_row_of(layer)->has_experts)
            return "mixture";
        if (!ty_layer_has_heads(layer) || strcmp(kind, "dense") == 0)
            continue;
        kind = layer->attributes[TY_IS_CAUSAL] > 0 ? "dense" : "encoder";
    }
    return kind;
}

void ty_evidence_question(const ty_evidence *evidence, const ty_plan *plan, ty_measured_run *out)
{
    const ty_workload *w = plan->workload;
    const ty_device_type *device = ty_cluster_device_type(plan->cluster, 0);
    const char *stack = plan->stack->name, *kind = kind_of(w);
    const char *precision = ty_precision_name(w->precision);
    const char *generation = device->generation != NULL ? device->generation : "";

    *out = (ty_measured_run){
        .source = TY_EVIDENCE_NONE,
        .citation = TY_EVIDENCE_NONE,
        .model = TY_EVIDENCE_NONE,
        .kind = word_of(evidence, kind, strlen(kind)),
        .devices = ty_plan_summary(plan)->devices,
        .device = word_of(evidence, device->name, strlen(device->name)),
        .generation = word_of(evidence, generation, strlen(generation)),
        .hosts = ty_cluster_host_count(plan->cluster),
        .framework = word_of(evidence, stack, strcspn(stack, "-")),
        .release = word_of(evidence, stack, strlen(stack)),
        .precision = word_of(evidence, precision, strlen(precision)),
        .parameters =
            (double)ty_workload_parameter_bytes(w, 0, w->layer_count) / TY_GRADIENT_ELEMENT_BYTES,
        .sequence = (uint32_t)w->tokens_per_sample,
        .global_batch = plan->global_batch,
    };
    set_places(out);
}

/* ---- Groups -------------------------------------------------------------------------------- */

enum {
    KIND = 1,
    FRAMEWORK = 2,
    RELEASE = 4,
    PRECISION = 8,
    HOSTS = 16, /* one or several */
    SOURCE = 32,
    ASSUMED = 64,
    DEVICE = 128,
    GENERATION = 256
};

static const unsigned shift_groups[] = {0,
                                        KIND,
                                        KIND | FRAMEWORK,
                                        KIND | FRAMEWORK | RELEASE,
                                        KIND | FRAMEWORK | RELEASE | PRECISION,
                                        KIND | SOURCE};
static const unsigned width_groups[] = {0,
                                        KIND,
                                        KIND | FRAMEWORK,
                                        KIND | FRAMEWORK | RELEASE,
                                        KIND | FRAMEWORK | RELEASE | HOSTS,
                                        KIND | SOURCE,
                                        KIND | SOURCE | RELEASE | ASSUMED};

static bool is_alike(const ty_measured_run *a, const ty_measured_run *b, unsigned in)
{
    return ((in & KIND) == 0 || a->kind == b->kind) &&
           ((in & FRAMEWORK) == 0 || a->framework == b->framework) &&
           ((in & RELEASE) == 0 || a->release == b->release) &&
           ((in & PRECISION) == 0 || a->precision == b->precision) &&
           ((in & HOSTS) == 0 || (a->hosts > 1) == (b->hosts > 1)) &&
           ((in & SOURCE) == 0 || a->source == b->source) &&
           ((in & ASSUMED) == 0 || a->is_assumed == b->is_assumed) &&
           ((in & DEVICE) == 0 || a->device == b->device) &&
           ((in & GENERATION) == 0 || a->generation == b->generation);
}

/* A question, and the rows that may answer it: neither itself nor rows alike in `left_out`, if that
 * is not 0. */
typedef struct view {
    const ty_evidence *evidence;
    const ty_measured_run *question;
    unsigned left_out;
    bool knows_source; /* groups of the question's source count */
} view;

static bool is_counted(const view *v, const ty_measured_run *row, unsigned in)
{
    return !row->is_fitted && row != v->question && is_alike(row, v->question, in) &&
           (v->left_out == 0 || !is_alike(row, v->question, v->left_out));
}

/* Weights of a row of each source in a group. @return their sum over the rows */
static double weigh(const view *v, unsigned in, double correlation, double weights[MOST_SOURCES])
{
    double sum = 0;

    memset(weights, 0, MOST_SOURCES * sizeof *weights);
    for (uint32_t i = 0; i < v->evidence->row_count; i++)
        if (is_counted(v, &v->evidence->rows[i], in))
            weights[v->evidence->rows[i].source]++;
    for (uint32_t s = 0; s < MOST_SOURCES; s++)
        if (weights[s] > 0) {
            const double rows = weights[s];
            weights[s] = 1 / (1 + (rows - 1) * correlation);
            sum += rows * weights[s];
        }
    return sum;
}

/* Weighted median of a group's residuals; rows are sorted by them. */
static double median_of(const view *v, unsigned in, const double *weights, double sum)
{
    double found = 0;

    for (uint32_t i = 0; i < v->evidence->row_count; i++) {
        const ty_measured_run *row = &v->evidence->rows[i];
        if (!is_counted(v, row, in))
            continue;
        found += weights[row->source];
        if (found >= sum / 2)
            return row->residual;
    }
    return 0;
}

/* Distance from `shift` within which COVERAGE of a group's weight is: goes outward from the shift
 * on both sides. */
static double width_of(const view *v, unsigned in, double shift, const double *weights, double sum)
{
    const ty_measured_run *rows = v->evidence->rows;
    int64_t low = 0, high, count = v->evidence->row_count;
    double found = 0, width = 0;

    while (low < count && rows[low].residual < shift)
        low++;
    high = low--;
    while (found < COVERAGE * sum && (low >= 0 || high < count)) {
        const bool is_high =
            low < 0 || (high < count && rows[high].residual - shift < shift - rows[low].residual);
        const ty_measured_run *row = is_high ? &rows[high++] : &rows[low--];
        if (!is_counted(v, row, in))
            continue;
        found += weights[row->source];
        width = fabs(row->residual - shift);
    }
    return fmax(width, LEAST_WIDTH);
}

/* ---- Distance ------------------------------------------------------------------------------ */

/* Of runs of one kind: in size by factors of 2, other devices, software and formats as steps. */
static double distance(const ty_measured_run *a, const ty_measured_run *b)
{
    return 0.15 * fabs(a->at[0] - b->at[0]) + 0.5 * fabs(a->at[1] - b->at[1]) +
           0.5 * fabs(a->at[2] - b->at[2]) +
           (a->device == b->device           ? 0
            : a->generation == b->generation ? 1
                                             : 2) +
           (a->framework == b->framework ? 0 : 0.5) + (a->precision == b->precision ? 0 : 0.5);
}

static double least_distance(const view *v)
{
    double least = HUGE_VAL;

    for (uint32_t i = 0; i < v->evidence->row_count; i++)
        if (is_counted(v, &v->evidence->rows[i], KIND))
            least = fmin(least, distance(&v->evidence->rows[i], v->question));
    return isfinite(least) ? least : FAR;
}

/* ---- Intervals ----------------------------------------------------------------------------- */

typedef struct spread {
    double shift, width; /* of the logarithm; the interval is `factor` widths on both sides */
} spread;

static spread spread_of(const view *v)
{
    double weights[MOST_SOURCES];
    spread s = {0};
    /* On a generation of devices without rows, software is no reason for a narrow interval. */
    const bool is_new = !(weigh(v, KIND | GENERATION, 0, weights) > 0);

    for (size_t g = 0; g < sizeof shift_groups / sizeof shift_groups[0]; g++) {
        const unsigned in = shift_groups[g];
        const bool is_own = (in & SOURCE) != 0;
        const double sum =
            is_own && !v->knows_source ? 0 : weigh(v, in, is_own ? 0 : MEDIAN_CORRELATION, weights);
        if (sum > 0)
            s.shift += (median_of(v, in, weights, sum) - s.shift) * sum /
                       (sum + (is_own ? OWN_ROWS : SHIFT_ROWS));
    }
    for (size_t g = 0; g < sizeof width_groups / sizeof width_groups[0]; g++) {
        const unsigned in = width_groups[g];
        const bool is_own = (in & SOURCE) != 0;
        const bool is_left_out = is_own ? !v->knows_source : is_new && (in & FRAMEWORK) != 0;
        const double sum = is_left_out ? 0 : weigh(v, in, is_own ? 0 : WIDTH_CORRELATION, weights);
        const double width = sum > 0 ? log(width_of(v, in, s.shift, weights, sum)) : 0;
        if (g == 0)
            s.width = width;
        else if (sum > 0)
            s.width += (width - s.width) * sum / (sum + WIDTH_ROWS);
    }
    s.width = exp(s.width) * (1 + FAR_WIDTH * fmax(0, least_distance(v) - FAR));
    return s;
}

ty_step_interval ty_evidence_interval(const ty_evidence *evidence, const ty_measured_run *question,
                                      double step_s)
{
    const bool is_known = question->source != TY_EVIDENCE_NONE;
    const view v = {evidence, question, 0, is_known};
    const spread s = spread_of(&v);
    const double half =
        s.width * (is_known ? evidence->known_source_factor : evidence->new_source_factor);

    return (ty_step_interval){.expected_s = step_s * exp(s.shift),
                              .low_s = step_s * exp(s.shift - half),
                              .high_s = step_s * exp(s.shift + half),
                              .coverage = COVERAGE};
}

/* ---- Plans --------------------------------------------------------------------------------- */

static void put_nearest(const ty_evidence *e, const ty_measured_run *run, ty_nearest_run *out)
{
    *out = (ty_nearest_run){.devices = run->devices, .step_s = run->step_s};
    snprintf(out->model, sizeof out->model, "%s", e->words[run->model]);
    snprintf(out->device, sizeof out->device, "%s", e->words[run->device]);
    snprintf(out->precision, sizeof out->precision, "%s", e->words[run->precision]);
    snprintf(out->framework, sizeof out->framework, "%s", e->words[run->release]);
    snprintf(out->source, sizeof out->source, "%s", e->words[run->citation]);
    if (run->sequence > 0)
        out->tokens_per_s = (double)run->global_batch * run->sequence / run->step_s;
}

/* The nearest runs of the same kind, one of each model. */
static void find_nearest(const ty_evidence *e, const ty_measured_run *question, ty_plan *plan)
{
    uint32_t models[TY_MOST_NEAREST];

    for (plan->nearest_count = 0; plan->nearest_count < TY_MOST_NEAREST;) {
        const ty_measured_run *best = NULL;
        double least = NEAR;
        for (uint32_t i = 0; i < e->row_count; i++) {
            const ty_measured_run *run = &e->rows[i];
            bool is_shown = run->kind != question->kind;
            for (uint32_t k = 0; k < plan->nearest_count; k++)
                is_shown = is_shown || models[k] == run->model;
            if (is_shown || !(distance(run, question) < least))
                continue;
            least = distance(run, question);
            best = run;
        }
        if (best == NULL)
            break;
        models[plan->nearest_count] = best->model;
        put_nearest(e, best, &plan->nearest[plan->nearest_count++]);
    }
}

ty_status ty_plan_judge(ty_plan *plan, double step_s, ty_error *error)
{
    ty_evidence *evidence = NULL;
    ty_measured_run question;

    plan->interval = (ty_step_interval){0};
    plan->nearest_count = 0;
    if (plan->profile != NULL || plan->stack == NULL || plan->cluster == NULL ||
        ty_workload_has_times(plan->workload) || !(step_s > 0))
        return TY_OK;
    TY_TRY(ty_evidence_load(NULL, &evidence, error));
    ty_evidence_question(evidence, plan, &question);
    plan->interval = ty_evidence_interval(evidence, &question, step_s);
    find_nearest(evidence, &question, plan);
    ty_evidence_free(evidence);
    return TY_OK;
}

/* ---- Judging ------------------------------------------------------------------------------- */

const char *ty_left_out_name(ty_left_out left_out)
{
    static const char *const names[] = {"row", "source", "device"};

    return names[left_out];
}

/* A row judged without what is left out. */
typedef struct judgement {
    const ty_measured_run *row;
    spread spread;
    double score; /* distance from the shift in widths */
    double weight, half_width, miss;
} judgement;

static int by_score(const void *a, const void *b)
{
    const judgement *x = a, *y = b;

    return (x->score > y->score) - (x->score < y->score);
}

static int by_half_width(const void *a, const void *b)
{
    const judgement *x = a, *y = b;

    return (x->half_width > y->half_width) - (x->half_width < y->half_width);
}

static int by_miss(const void *a, const void *b)
{
    const judgement *x = a, *y = b;

    return (x->miss > y->miss) - (x->miss < y->miss);
}

/* Judges the rows of a kind. @param out [row_count], `count` of them */
static void judge(const ty_evidence *e, ty_left_out left_out, uint32_t kind, judgement *out,
                  uint32_t *count)
{
    static const unsigned without[] = {0, SOURCE, DEVICE};
    uint32_t rows[MOST_SOURCES] = {0};

    *count = 0;
    for (uint32_t i = 0; i < e->row_count; i++)
        rows[e->rows[i].source] += !e->rows[i].is_fitted;
    for (uint32_t i = 0; i < e->row_count; i++) {
        const ty_measured_run *row = &e->rows[i];
        const view v = {e, row, without[left_out], left_out == TY_LEFT_OUT_ROW};
        judgement *j = &out[*count];
        if (row->is_fitted || (kind != TY_EVIDENCE_NONE && row->kind != kind))
            continue;
        *j = (judgement){.row = row, .spread = spread_of(&v)};
        j->score = fabs(row->residual - j->spread.shift) / j->spread.width;
        j->weight = 1 / sqrt(rows[row->source]);
        j->miss = fabs(exp(j->spread.shift - row->residual) - 1);
        (*count)++;
    }
}

ty_status ty_evidence_factor(const ty_evidence *e, ty_left_out left_out, double *out,
                             ty_error *error)
{
    judgement *all = ty_alloc(e->row_count, sizeof *all);
    double sum = 0, found = 0;
    uint32_t count, i = 0;

    TY_TRY(ty_check_memory(all != NULL, error));
    judge(e, left_out, TY_EVIDENCE_NONE, all, &count);
    qsort(all, count, sizeof *all, by_score);
    for (uint32_t k = 0; k < count; k++)
        sum += all[k].weight;
    while (i < count && (found += all[i].weight) < COVERAGE * sum)
        i++;
    *out = count > 0 ? all[i].score : 0;
    ty_free(all);
    return TY_OK;
}

ty_status ty_evidence_coverage(const ty_evidence *e, ty_left_out left_out, uint32_t kind,
                               ty_coverage *out, ty_error *error)
{
    const double factor =
        left_out == TY_LEFT_OUT_ROW ? e->known_source_factor : e->new_source_factor;
    judgement *all = ty_alloc(e->row_count, sizeof *all);
    ty_coverage c = {0};

    TY_TRY(ty_check_memory(all != NULL, error));
    judge(e, left_out, kind, all, &c.rows);
    for (uint32_t i = 0; i < c.rows; i++) {
        all[i].half_width = sinh(factor * all[i].spread.width);
        c.coverage += (all[i].score <= factor) / (double)c.rows;
        c.mean_error += all[i].miss / c.rows;
    }
    if (c.rows > 0) {
        qsort(all, c.rows, sizeof *all, by_half_width);
        c.median_half_width = all[(c.rows - 1) / 2].half_width;
        qsort(all, c.rows, sizeof *all, by_miss);
        c.median_error = all[(c.rows - 1) / 2].miss;
    }
    ty_free(all);
    *out = c;
    return TY_OK;
}

/* ---- Writing ------------------------------------------------------------------------------- */

static const char *const kinds[] = {"dense", "mixture", "encoder", "image", "other"};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* Calls for all kinds, then for each kind that has rows. */
typedef void put_coverage(ty_left_out left_out, const char *kind, const ty_coverage *coverage,
                          void *context);

static ty_status put_all(const ty_evidence *e, put_coverage *put, void *context, ty_error *error)
{
    for (int l = 0; l < TY_LEFT_OUT_COUNT; l++)
        for (int k = -1; k < KINDS; k++) {
            const char *name = k < 0 ? "all" : kinds[k];
            const uint32_t kind = k < 0 ? TY_EVIDENCE_NONE : word_of(e, name, strlen(name));
            ty_coverage c = {0};
            if (k < 0 || kind != TY_EVIDENCE_NONE)
                TY_TRY(ty_evidence_coverage(e, (ty_left_out)l, kind, &c, error));
            if (c.rows > 0)
                put((ty_left_out)l, name, &c, context);
        }
    return TY_OK;
}

static void put_object(ty_left_out left_out, const char *kind, const ty_coverage *c, void *context)
{
    ty_json_writer *w = context;

    ty_json_open_flat(w, NULL, '{');
    ty_json_put_string(w, "left_out", ty_left_out_name(left_out));
    ty_json_put_string(w, "kind", kind);
    ty_json_put_uint(w, "rows", c->rows);
    ty_json_put_number(w, "coverage", c->coverage);
    ty_json_put_number(w, "median_half_width", c->median_half_width);
    ty_json_put_number(w, "mean_error", c->mean_error);
    ty_json_put_number(w, "median_error", c->median_error);
    ty_json_close(w, '}');
}

ty_status ty_evidence_to_json(const ty_evidence *evidence, ty_json_writer *w, ty_error *error)
{
    static const char *const keys[] = {"known_source_factor", "new_source_factor"};
    ty_status status = TY_OK;

    ty_json_open(w, NULL, '{');
    ty_json_put_string(w, "schema", "trainyard.coverage/1");
    for (int l = TY_LEFT_OUT_ROW; l <= TY_LEFT_OUT_SOURCE && status == TY_OK; l++) {
        double factor = 0;
        status = ty_evidence_factor(evidence, (ty_left_out)l, &factor, error);
        ty_json_put_number(w, keys[l], factor);
    }
    ty_json_open(w, "rows", '[');
    if (status == TY_OK)
        status = put_all(evidence, put_object, w, error);
    ty_json_close(w, ']');
    ty_json_close(w, '}');
    return status;
}

static void put_line(ty_left_out left_out, const char *kind, const ty_coverage *c, void *context)
{
    ty_text_addf(context, "%-9s %-8s %5u %8.1f %% %9.1f %% %8.1f %% %7.1f %%\n",
                 ty_left_out_name(left_out), kind, c->rows, 100 * c->coverage,
                 100 * c->median_half_width, 100 * c->mean_error, 100 * c->median_error);
}

ty_status ty_evidence_print(const ty_evidence *evidence, ty_text *text, ty_error *error)
{
    ty_text_add(text, "left out  kind      rows   coverage  half width  mean error  median\n");
    return put_all(evidence, put_line, text, error);
}
