/* Predicts, scores and writes every record of a file, or of all files in a directory. */
#include "row_question.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- Errors ---------------------------------------------------------------------------------- */

/* The smallest of sorted values that at least `share` of them do not exceed. */
static double percentile(const double *sorted, uint32_t count, double share)
{
    const double rank = ceil(share * count);
    return sorted[rank < 1 ? 0 : (uint32_t)rank - 1];
}

static ty_status score_errors(const ty_scored_row *rows, uint32_t count, ty_validation_score *out,
                              ty_error *error)
{
    double *errors = ty_alloc(count, sizeof *errors), sum = 0;

    TY_TRY(ty_check_memory(errors != NULL, error));
    for (uint32_t i = 0; i < count; i++) {
        errors[i] = fabs(rows[i].predicted / rows[i].measured - 1);
        sum += errors[i];
    }
    qsort(errors, count, sizeof *errors, ty_compare_numbers);
    out->mean_error = sum / count;
    out->median_error = percentile(errors, count, 0.5);
    out->p90_error = percentile(errors, count, 0.9);
    ty_free(errors);
    return TY_OK;
}

/* Predictions that differ by less, as a share, are equal. */
#define ROUNDING 1e-9

/* ---- Order and regret ------------------------------------------------------------------------ */

static double points_of_pair(const ty_scored_row *a, const ty_scored_row *b)
{
    const double measured = a->measured - b->measured, predicted = a->predicted - b->predicted;

    if (fabs(predicted) <= ROUNDING * a->predicted)
        return 0.5;
    return (measured > 0) == (predicted > 0) ? 1 : 0;
}

/* Adds pair order and regret of a group, from its first row on. */
static void score_group(const ty_scored_row *rows, uint32_t count, uint32_t first,
                        ty_validation_score *sum)
{
    const bool more = rows[first].more_is_better;
    const ty_scored_row *chosen = &rows[first], *best = chosen;
    uint32_t size = 0;

    for (uint32_t i = first; i < count; i++) {
        const ty_scored_row *row = &rows[i];
        if (row->group != rows[first].group)
            continue;
        size++;
        if (more ? row->predicted > chosen->predicted * (1 + ROUNDING)
                 : row->predicted < chosen->predicted * (1 - ROUNDING))
            chosen = row;
        if (more ? row->measured > best->measured : row->measured < best->measured)
            best = row;
        for (uint32_t k = i + 1; k < count; k++)
            if (rows[k].group == row->group &&
                (row->measured < rows[k].measured || row->measured > rows[k].measured)) {
                sum->pair_order += points_of_pair(row, &rows[k]);
                sum->pairs++;
            }
    }
    if (size > 1) {
        sum->mean_regret +=
            (more ? best->measured / chosen->measured : chosen->measured / best->measured) - 1;
        sum->choices++;
    }
}

ty_status ty_validation_score_rows(const ty_scored_row *rows, uint32_t count,
                                   ty_validation_score *out, ty_error *error)
{
    ty_validation_score s = {
        .rows = count, .mean_error = NAN, .median_error = NAN, .p90_error = NAN};
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t first = 0;
        if (!(rows[i].measured > 0 && rows[i].predicted > 0) || isinf(rows[i].predicted))
            return ty_fail(error, TY_EINVAL,
                           "row %u: found measured %g and predicted %g, expected both > 0", i,
                           rows[i].measured, rows[i].predicted);
        while (rows[first].group != rows[i].group)
            first++;
        if (first == i)
            score_group(rows, count, i, &s);
    }
    s.pair_order = s.pairs > 0 ? s.pair_order / s.pairs : (double)NAN;
    s.mean_regret = s.choices > 0 ? s.mean_regret / s.choices : (double)NAN;
    if (count > 0)
        status = score_errors(rows, count, &s, error);
    if (status == TY_OK)
        *out = s;
    return status;
}

/* ---- Groups ---------------------------------------------------------------------------------- */

/* Key of comparable rows: same model, cluster and metric; for times the same batch, for collectives
 * the same size. */
static ty_status group_key(const ty_record *r, char **out, ty_error *error)
{
    const ty_json *model;
    ty_text key = {0};
    char *text = NULL;
    ty_status status = TY_OK;

    if (ty_json_has(r->json, "model")) {
        TY_CHECK(ty_json_object(r->json, "model", &model, error), status, done);
        TY_CHECK(ty_json_text(model, &text, error), status, done);
        ty_text_add(&key, text);
    }
    ty_text_addf(&key, "|%s|%s|%.17g|%s|%s|%.17g", r->gpu, r->node, r->gpus, r->metric,
                 r->operation, r->collective_bytes);
    if (!ty_record_more_is_better(r) && strcmp(r->kind, "training-speed") == 0)
        ty_text_addf(&key, "|%.17g", r->global_batch);
    status = ty_text_take(&key, out, error);
done:
    ty_free(text);
    return status;
}

/* Group number of each row: the index of the first row with its key. */
static ty_status group_rows(const ty_records *records, uint32_t *groups, ty_error *error)
{
    char **keys = ty_alloc(records->count, sizeof *keys);
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(keys != NULL, error));
    for (uint32_t i = 0; i < records->count; i++) {
        TY_CHECK(group_key(&records->items[i], &keys[i], error), status, cleanup);
        for (groups[i] = 0; strcmp(keys[groups[i]], keys[i]) != 0; groups[i]++)
            ;
    }

cleanup:
    for (uint32_t i = 0; i < records->count; i++)
        ty_free(keys[i]);
    ty_free(keys);
    return status;
}

/* ---- Sources --------------------------------------------------------------------------------- */

/* Scores the predicted rows of one predictor, either fitted or held-out. */
static ty_status score_some(const ty_validated_source *s, const uint32_t *groups, bool is_fitted,
                            const char *predictor, ty_validation_score *out, ty_error *error)
{
    ty_scored_row *rows = ty_alloc(s->rows, sizeof *rows);
    uint32_t count = 0;
    ty_status status;

    TY_TRY(ty_check_memory(rows != NULL, error));
    for (uint32_t i = 0; i < s->rows; i++) {
        const ty_record *r = &s->records->items[i];
        const ty_verdict *v = &s->verdicts[i];
        if (v->is_predicted && v->is_fitted == is_fitted &&
            (predictor == NULL || predictor == v->predictor))
            rows[count++] =
                (ty_scored_row){r->value, v->value, ty_record_more_is_better(r), groups[i]};
    }
    status = ty_validation_score_rows(rows, count, out, error);
    ty_free(rows);
    return status;
}

static ty_status score_predictors(ty_validated_source *s, const uint32_t *groups, ty_error *error)
{
    uint32_t count = 0;
    ty_status status = TY_OK;

    while (ty_predictor_name(count) != NULL)
        count++;
    s->predictors = ty_alloc(count, sizeof *s->predictors);
    TY_TRY(ty_check_memory(s->predictors != NULL, error));
    for (uint32_t p = 0; p < count && status == TY_OK; p++) {
        ty_predictor_score score = {.predictor = ty_predictor_name(p)};
        status = score_some(s, groups, false, score.predictor, &score.score, error);
        if (status == TY_OK && score.score.rows > 0)
            s->predictors[s->predictor_count++] = score;
    }
    return status;
}

static int by_rows(const void *a, const void *b)
{
    const ty_skip_count *x = a, *y = b;

    if (x->rows != y->rows)
        return x->rows < y->rows ? 1 : -1;
    return strcmp(x->reason, y->reason);
}

static ty_status count_rows(ty_validated_source *s, ty_error *error)
{
    s->skips = ty_alloc((size_t)s->rows + 1, sizeof *s->skips);
    TY_TRY(ty_check_memory(s->skips != NULL, error));
    for (uint32_t i = 0; i < s->rows; i++) {
        const ty_verdict *v = &s->verdicts[i];
        uint32_t k = 0;
        s->recalled_rows += s->records->items[i].is_recalled;
        s->fitted_rows += v->is_predicted && v->is_fitted;
        if (v->is_predicted)
            continue;
        s->skipped_rows++;
        while (k < s->skip_count && strcmp(s->skips[k].reason, v->reason) != 0)
            k++;
        if (k == s->skip_count)
            memcpy(s->skips[s->skip_count++].reason, v->reason, sizeof v->reason);
        s->skips[k].rows++;
    }
    qsort(s->skips, s->skip_count, sizeof *s->skips, by_rows);
    return TY_OK;
}

static ty_status validate_file(const ty_json *names, const char *path, ty_validated_source *s,
                               ty_error *error)
{
    uint32_t *groups = NULL;
    ty_status status = TY_OK;

    TY_CHECK(ty_records_load(path, &s->records, error), status, cleanup);
    s->rows = s->records->count;
    s->source = ty_strdup(s->records->family);
    s->verdicts = ty_alloc(s->rows, sizeof *s->verdicts);
    groups = ty_alloc(s->rows, sizeof *groups);
    TY_CHECK(ty_check_memory(s->source != NULL && s->verdicts != NULL && groups != NULL, error),
             status, cleanup);
    for (uint32_t i = 0; i < s->rows; i++)
        TY_CHECK(ty_predict(names, s->records, &s->records->items[i], &s->verdicts[i], error),
                 status, cleanup);
    TY_CHECK(group_rows(s->records, groups, error), status, cleanup);
    TY_CHECK(count_rows(s, error), status, cleanup);
    TY_CHECK(score_some(s, groups, false, NULL, &s->score, error), status, cleanup);
    TY_CHECK(score_some(s, groups, true, NULL, &s->fitted, error), status, cleanup);
    status = score_predictors(s, groups, error);

cleanup:
    ty_free(groups);
    return status;
}

/* ---- Files ----------------------------------------------------------------------------------- */

static int is_json_name(const struct dirent *entry)
{
    const size_t length = strlen(entry->d_name);
    return length > 5 && entry->d_name[0] != '.' &&
           strcmp(entry->d_name + length - 5, ".json") == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static ty_status validate_folder(const ty_json *names, const char *path, ty_validation *v,
                                 ty_error *error)
{
    struct dirent **entries = NULL;
    const int count = scandir(path, &entries, is_json_name, by_name);
    ty_text file = {0};
    ty_status status = TY_OK;

    if (count < 0)
        return ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    if (count == 0)
        status = ty_fail(error, TY_EIO, "%s: found no file whose name ends in .json", path);
    else if ((v->sources = ty_alloc((size_t)count, sizeof *v->sources)) == NULL)
        status = ty_fail(error, TY_ENOMEM, "out of memory");
    for (int i = 0; i < count && status == TY_OK; i++) {
        char *full = NULL;
        ty_text_addf(&file, "%s/%s", path, entries[i]->d_name);
        status = ty_text_take(&file, &full, error);
        if (status == TY_OK)
            status = validate_file(names, full, &v->sources[v->source_count++], error);
        ty_free(full);
    }
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    return status;
}

ty_status ty_validation_run(const char *path, ty_validation **out, ty_error *error)
{
    ty_validation *v = ty_alloc(1, sizeof *v);
    ty_json_document *names = NULL;
    struct stat info;
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(v != NULL, error));
    TY_CHECK(ty_names_open(&names, error), status, cleanup);
    if (strcmp(path, "-") != 0 && stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        status = validate_folder(ty_json_root(names), path, v, error);
    } else if ((v->sources = ty_alloc(1, sizeof *v->sources)) == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory");
    } else { /* reading reports an invalid path */
        v->source_count = 1;
        status = validate_file(ty_json_root(names), path, v->sources, error);
    }
    if (status == TY_OK) {
        *out = v;
        v = NULL;
    }

cleanup:
    ty_json_free(names);
    ty_validation_free(v);
    return status;
}

void ty_validation_free(ty_validation *validation)
{
    if (validation == NULL)
        return;
    for (uint32_t i = 0; i < validation->source_count; i++) {
        ty_validated_source *s = &validation->sources[i];
        ty_free(s->source);
        ty_free(s->predictors);
        ty_free(s->skips);
        for (uint32_t r = 0; s->verdicts != NULL && r < s->rows; r++)
            ty_free(s->verdicts[r].command);
        ty_free(s->verdicts);
        ty_records_free(s->records);
    }
    ty_free(validation->sources);
    ty_free(validation);
}

/* ---- Writing --------------------------------------------------------------------------------- */

static void put_score(const ty_validation_score *s, ty_json_writer *w)
{
    const struct {
        const char *key;
        double value;
    } shares[] = {{"mean_error", s->mean_error},
                  {"median_error", s->median_error},
                  {"p90_error", s->p90_error},
                  {"pair_order", s->pair_order},
                  {"mean_regret", s->mean_regret}};

    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++)
        if (isnan(shares[i].value))
            ty_json_put_null(w, shares[i].key);
        else
            ty_json_put_number(w, shares[i].key, shares[i].value);
    ty_json_put_uint(w, "pairs", s->pairs);
    ty_json_put_uint(w, "choices", s->choices);
}

static void put_row(const ty_record *r, const ty_verdict *v, ty_json_writer *w)
{
    ty_json_open_flat(w, NULL, '{');
    ty_json_put_string(w, "id", r->id);
    ty_json_put_string(w, "predictor", v->predictor);
    if (v->is_predicted) {
        ty_json_put_string(w, "metric", r->metric);
        ty_json_put_string(w, "unit", r->unit);
        ty_json_put_number(w, "measured", r->value);
        ty_json_put_number(w, "predicted", v->value);
        ty_json_put_bool(w, "is_fitted", v->is_fitted);
        if (v->command != NULL) {
            if (strcmp(v->answer_at, TY_STEP_TIME_AT) == 0)
                ty_json_put_number(w, "predicted_step_time_s", v->answer);
            ty_json_put_raw(w, "command", v->command);
            ty_json_put_string(w, "answer_at", v->answer_at);
            ty_json_put_number(w, "answer", v->answer);
        }
        if (v->assumed[0] != '\0')
            ty_json_put_string(w, "assumed", v->assumed);
    } else {
        ty_json_put_string(w, "skipped", v->reason);
    }
    ty_json_close(w, '}');
}

static void put_source(const ty_validated_source *s, ty_json_writer *w)
{
    ty_json_open(w, NULL, '{');
    ty_json_put_string(w, "source", s->source);
    ty_json_put_uint(w, "rows", s->rows);
    ty_json_put_uint(w, "fitted_rows", s->fitted_rows);
    ty_json_put_uint(w, "skipped_rows", s->skipped_rows);
    ty_json_put_uint(w, "predicted_rows", s->score.rows);
    ty_json_put_uint(w, "recalled_rows", s->recalled_rows);
    put_score(&s->score, w);
    ty_json_open(w, "fitted", '{');
    put_score(&s->fitted, w);
    ty_json_close(w, '}');
    ty_json_open(w, "predictors", '[');
    for (uint32_t p = 0; p < s->predictor_count; p++) {
        ty_json_open(w, NULL, '{');
        ty_json_put_string(w, "predictor", s->predictors[p].predictor);
        ty_json_put_uint(w, "rows", s->predictors[p].score.rows);
        put_score(&s->predictors[p].score, w);
        ty_json_close(w, '}');
    }
    ty_json_close(w, ']');
    ty_json_open(w, "skipped", '[');
    for (uint32_t k = 0; k < s->skip_count; k++) {
        ty_json_open_flat(w, NULL, '{');
        ty_json_put_string(w, "reason", s->skips[k].reason);
        ty_json_put_uint(w, "rows", s->skips[k].rows);
        ty_json_close(w, '}');
    }
    ty_json_close(w, ']');
    ty_json_open(w, "predictions", '[');
    for (uint32_t i = 0; i < s->rows; i++)
        put_row(&s->records->items[i], &s->verdicts[i], w);
    ty_json_close(w, ']');
    ty_json_close(w, '}');
}

void ty_validation_to_json(const ty_validation *validation, ty_json_writer *w)
{
    ty_json_open(w, NULL, '{');
    ty_json_put_string(w, "schema", "trainyard.validation/1");
    ty_json_open(w, "sources", '[');
    for (uint32_t i = 0; i < validation->source_count; i++)
        put_source(&validation->sources[i], w);
    ty_json_close(w, ']');
    ty_json_close(w, '}');
}

static void add_score(ty_text *text, const ty_validation_score *s)
{
    const double shares[] = {s->mean_error, s->median_error, s->p90_error, s->pair_order,
                             s->mean_regret};

    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++)
        if (isnan(shares[i]))
            ty_text_add(text, "       -");
        else
            ty_text_addf(text, " %5.1f %%", shares[i] * 100);
    ty_text_add(text, "\n");
}

void ty_validation_print(const ty_validation *validation, ty_text *text)
{
    ty_text_add(text, "source                     rows  scored  fitted  skipped"
                      "    mean  median     p90   order  regret\n");
    for (uint32_t i = 0; i < validation->source_count; i++) {
        const ty_validated_source *s = &validation->sources[i];
        ty_text_addf(text, "%-26s %4u %7u %7u %8u", s->source, s->rows, s->score.rows,
                     s->fitted_rows, s->skipped_rows);
        add_score(text, &s->score);
        for (uint32_t p = 0; p < s->predictor_count; p++) {
            ty_text_addf(text, "  %-29s %7u %16s", s->predictors[p].predictor,
                         s->predictors[p].score.rows, "");
            add_score(text, &s->predictors[p].score);
        }
        if (s->fitted_rows > 0) {
            ty_text_addf(text, "  %-29s %15u %8s", "fitted", s->fitted_rows, "");
            add_score(text, &s->fitted);
        }
        for (uint32_t k = 0; k < s->skip_count; k++)
            ty_text_addf(text, "  skipped %u: %s\n", s->skips[k].rows, s->skips[k].reason);
    }
    ty_text_add(text, "error: |predicted/measured - 1| of rows that nothing was fitted to; order: "
                      "pairs of one model on one\ncluster in the right order; regret: how much "
                      "worse the row chosen is than the best\n");
}
