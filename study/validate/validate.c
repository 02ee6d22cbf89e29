/* Every record of a file, or of every file of a directory, to its predictor; then the scores. */
#include "asked.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- Verdicts ---------------------------------------------------------------------------- */

ty_status ty_verdict_command(const char *const *words, char **out, ty_error *error)
{
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);

    ty_json_open(&w, NULL, '[');
    for (; *words != NULL; words++)
        ty_json_put_string(&w, NULL, *words);
    ty_json_close(&w, ']');
    return ty_text_take(&text, out, error);
}

static ty_status judge_row(const ty_records *records, uint32_t index, const char **predictor,
                           ty_verdict *out, ty_error *error)
{
    const ty_record *r = &records->items[index];
    ty_error detail = {0};
    ty_status status;
    uint32_t p = 0;

    *out = (ty_verdict){0};
    while (!ty_predictor_at(p)->takes(records, index))
        p++;
    *predictor = ty_predictor_at(p)->name;
    status = ty_predictor_at(p)->predict(records, index, out, &detail);
    if (status == TY_ENOMEM || status == TY_EIO)
        return ty_fail(error, status, "%s: %s", r->id, detail.message);
    if (status != TY_OK) { /* a row that makes no sense is no reason to lose the others */
        ty_free(out->command);
        *out = (ty_verdict){0};
        snprintf(out->reason, sizeof out->reason, "%.*s", TY_SKIP_REASON_SIZE - 1, detail.message);
    }
    if (out->is_predicted && !(r->value > 0)) {
        out->is_predicted = false;
        snprintf(out->reason, sizeof out->reason, "measured figure is not above 0");
    }
    return TY_OK;
}

static bool is_unfitted(const ty_verdict *v)
{
    return v->is_predicted && !v->is_fitted;
}

static bool is_fitted(const ty_verdict *v)
{
    return v->is_predicted && v->is_fitted;
}

/* ---- Groups ------------------------------------------------------------------------------ */

/* What makes rows comparable: one model, one cluster, one metric; times of one batch, collectives
 * of one size. */
static ty_status group_key(const ty_record *r, ty_text *key, ty_error *error)
{
    const ty_json *model;
    char *text = NULL;
    ty_status status = TY_OK;

    if (ty_json_has(r->json, "model")) {
        TY_CHECK(ty_json_object(r->json, "model", &model, error), status, done);
        TY_CHECK(ty_json_text(model, &text, error), status, done);
        ty_text_add(key, text);
    }
    ty_text_addf(key, "|%s|%s|%.17g|%s|%s|%.17g", r->gpu, r->node, r->gpus, r->metric, r->operation,
                 r->collective_bytes);
    if (!ty_record_more_is_better(r) && strcmp(r->kind, "training-speed") == 0)
        ty_text_addf(key, "|%.17g", r->global_batch);
    status = ty_text_check(key, error);
done:
    ty_free(text);
    return status;
}

/* Numbers equal keys alike: the index of the first row that has the key. */
static ty_status group_rows(const ty_records *records, uint32_t *groups, ty_error *error)
{
    char **keys = ty_alloc(records->count, sizeof *keys);
    ty_status status = TY_OK;

    if (keys == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < records->count; i++) {
        ty_text key = {0};
        status = group_key(&records->items[i], &key, error);
        if (status == TY_OK)
            status = ty_text_take(&key, &keys[i], error);
        ty_text_clear(&key);
        if (status != TY_OK)
            goto cleanup;
        for (groups[i] = 0; strcmp(keys[groups[i]], keys[i]) != 0; groups[i]++)
            ;
    }

cleanup:
    for (uint32_t i = 0; i < records->count; i++)
        ty_free(keys[i]);
    ty_free(keys);
    return status;
}

/* ---- Scores ------------------------------------------------------------------------------ */

/* Scores the rows that `takes` accepts and, unless NULL, that one predictor predicted. */
static ty_status score_some(const ty_validated_source *s, const uint32_t *groups,
                            bool (*takes)(const ty_verdict *), const char *predictor,
                            ty_validation_score *out, ty_error *error)
{
    ty_scored_row *rows = ty_alloc(s->rows, sizeof *rows);
    uint32_t count = 0;
    ty_status status;

    if (rows == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < s->rows; i++) {
        const ty_record *r = &s->records->items[i];
        if (!takes(&s->verdicts[i]) || (predictor != NULL && predictor != s->row_predictors[i]))
            continue;
        rows[count++] =
            (ty_scored_row){r->value, s->verdicts[i].value, ty_record_more_is_better(r), groups[i]};
    }
    status = ty_validation_score_rows(rows, count, out, error);
    ty_free(rows);
    return status;
}

static ty_status score_predictors(ty_validated_source *s, const uint32_t *groups, ty_error *error)
{
    uint32_t count = 0;
    ty_status status = TY_OK;

    while (ty_predictor_at(count) != NULL)
        count++;
    s->predictors = ty_alloc(count, sizeof *s->predictors);
    if (s->predictors == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t p = 0; p < count; p++) {
        ty_predictor_score score = {.predictor = ty_predictor_at(p)->name};
        TY_CHECK(score_some(s, groups, is_unfitted, score.predictor, &score.score, error), status,
                 done);
        if (score.score.rows > 0)
            s->predictors[s->predictor_count++] = score;
    }
done:
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
    s->skips = ty_alloc(s->rows, sizeof *s->skips);
    if (s->skips == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < s->rows; i++) {
        const ty_verdict *v = &s->verdicts[i];
        uint32_t k = 0;
        s->recalled_rows += s->records->items[i].is_recalled;
        s->fitted_rows += is_fitted(v);
        if (v->is_predicted)
            continue;
        s->skipped_rows++;
        while (k < s->skip_count && strcmp(s->skips[k].reason, v->reason) != 0)
            k++;
        if (k == s->skip_count)
            memcpy(s->skips[s->skip_count++].reason, v->reason, sizeof v->reason);
        s->skips[k].rows++;
    }
    if (s->skip_count > 1)
        qsort(s->skips, s->skip_count, sizeof *s->skips, by_rows);
    return TY_OK;
}

static ty_status validate_file(const char *path, ty_validated_source *s, ty_error *error)
{
    uint32_t *groups = NULL;
    ty_status status = TY_OK;

    TY_CHECK(ty_records_load(path, &s->records, error), status, cleanup);
    s->rows = s->records->count;
    s->source = ty_strdup(s->records->family);
    s->verdicts = ty_alloc(s->rows, sizeof *s->verdicts);
    s->row_predictors = ty_alloc(s->rows, sizeof *s->row_predictors);
    groups = ty_alloc(s->rows, sizeof *groups);
    if (s->source == NULL || s->verdicts == NULL || s->row_predictors == NULL || groups == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory");
        goto cleanup;
    }
    for (uint32_t i = 0; i < s->rows; i++)
        TY_CHECK(judge_row(s->records, i, &s->row_predictors[i], &s->verdicts[i], error), status,
                 cleanup);
    TY_CHECK(group_rows(s->records, groups, error), status, cleanup);
    TY_CHECK(count_rows(s, error), status, cleanup);
    TY_CHECK(score_some(s, groups, is_unfitted, NULL, &s->score, error), status, cleanup);
    TY_CHECK(score_some(s, groups, is_fitted, NULL, &s->fitted, error), status, cleanup);
    status = score_predictors(s, groups, error);

cleanup:
    ty_free(groups);
    return status;
}

/* ---- Files ------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_json_name(const char *name)
{
    size_t length = strlen(name);
    return length > 5 && name[0] != '.' && strcmp(name + length - 5, ".json") == 0;
}

static ty_status add_path(char ***paths, uint32_t *count, const char *folder, const char *name,
                          ty_error *error)
{
    char **grown = ty_resize(*paths, (size_t)*count + 1, sizeof *grown);
    ty_text path = {0};
    ty_status status;

    if (grown == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    *paths = grown;
    if (folder != NULL)
        ty_text_addf(&path, "%s/", folder);
    ty_text_add(&path, name);
    status = ty_text_take(&path, &grown[*count], error);
    *count += status == TY_OK;
    return status;
}

static ty_status list_files(const char *path, char ***paths, uint32_t *count, ty_error *error)
{
    struct stat info;
    const struct dirent *entry;
    DIR *folder;
    ty_status status = TY_OK;

    if (strcmp(path, "-") == 0 || stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return add_path(paths, count, NULL, path, error); /* reading says what is wrong with it */
    if ((folder = opendir(path)) == NULL)
        return ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    while (status == TY_OK && (entry = readdir(folder)) != NULL)
        if (is_json_name(entry->d_name))
            status = add_path(paths, count, path, entry->d_name, error);
    closedir(folder);
    if (status == TY_OK && *count == 0)
        return ty_fail(error, TY_EIO, "%s: found no file whose name ends in .json", path);
    if (*count > 1)
        qsort(*paths, *count, sizeof **paths, by_text);
    return status;
}

ty_status ty_validation_run(const char *path, ty_validation **out, ty_error *error)
{
    ty_validation *v = ty_alloc(1, sizeof *v);
    char **paths = NULL;
    uint32_t count = 0;
    ty_status status = TY_OK;

    if (v == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    TY_CHECK(list_files(path, &paths, &count, error), status, cleanup);
    v->sources = ty_alloc(count, sizeof *v->sources);
    if (v->sources == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory");
        goto cleanup;
    }
    while (v->source_count < count) {
        v->source_count++;
        TY_CHECK(validate_file(paths[v->source_count - 1], &v->sources[v->source_count - 1], error),
                 status, cleanup);
    }
    *out = v;
    v = NULL;

cleanup:
    for (uint32_t i = 0; i < count; i++)
        ty_free(paths[i]);
    ty_free(paths);
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
        ty_free((void *)s->row_predictors);
        for (uint32_t r = 0; s->verdicts != NULL && r < s->rows; r++)
            ty_free(s->verdicts[r].command);
        ty_free(s->verdicts);
        ty_records_free(s->records);
    }
    ty_free(validation->sources);
    ty_free(validation);
}
