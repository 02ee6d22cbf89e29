/* Fits the calibrated constants of planner/layout/constants.json to the rows they name, and scores
 * all rows: fitted ones and others apart.
 *
 *     fit_layout FILE...                          scores, with the constants as they are
 *     fit_layout --fit SET FILE...                fits a set, prints it, scores with it
 *     fit_layout --rows FILE...                   every row: predicted, measured
 *
 * Deterministic: Nelder-Mead from the constants as they are, restarted with a fixed generator. What
 * is fitted are the constants whose source begins with "fitted" in the set itself (not in the set
 * it is like). */
#include "ty_planner.h"

#include "timing.h"
#include "ty_file.h"
#include "ty_memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIMENSIONS = 32, RESTARTS = 60, ITERATIONS = 3000, FAMILY = 64 };

typedef struct row {
    ty_layout_record record;
    char family[FAMILY];
    double predicted_s;
} row;

typedef struct rows {
    row *rows;
    size_t count, capacity;
} rows;

/* ---- Reading -----------------------------------------------------------------------------------
 */

static ty_status add(rows *all, const ty_json *record, ty_error *error)
{
    row *r;
    ty_status status;

    if (all->count == all->capacity) {
        size_t capacity = all->capacity > 0 ? 2 * all->capacity : 256;
        row *grown = ty_resize(all->rows, capacity, sizeof *grown);
        if (grown == NULL)
            return ty_fail(error, TY_ENOMEM, "out of memory");
        all->rows = grown;
        all->capacity = capacity;
    }
    r = &all->rows[all->count];
    *r = (row){0};
    status = ty_layout_record_read(record, &r->record, error);
    if (status != TY_OK)
        return status;
    snprintf(r->family, sizeof r->family, "%.*s", (int)strcspn(r->record.id, "/"), r->record.id);
    all->count++;
    return TY_OK;
}

static ty_status read_file(const char *path, rows *all, ty_error *error)
{
    ty_status status = TY_OK;
    ty_json_document *document = NULL;
    const ty_json *records;

    TY_CHECK(ty_json_load(path, &document, error), status, cleanup);
    TY_CHECK(ty_json_array(ty_json_root(document), "records", 0, UINT32_MAX, &records, error),
             status, cleanup);
    for (size_t i = 0; i < ty_json_size(records); i++)
        TY_CHECK(add(all, ty_json_at(records, i), error), status, cleanup);

cleanup:
    ty_json_free(document);
    return status;
}

/* ---- Scores
 * -------------------------------------------------------------------------------------- */

static void predict(row *r)
{
    ty_layout_estimate estimate;
    r->predicted_s = 0;
    if (r->record.reason[0] == '\0' &&
        ty_layout_estimate_of(&r->record.question, &r->record.layout, &estimate, NULL) == TY_OK)
        r->predicted_s = estimate.step_time_s;
}

static double error_of(const row *r)
{
    return fabs(r->predicted_s / r->record.measured_step_s - 1);
}

typedef struct score {
    size_t count, pairs, right, groups;
    double mean, signed_mean, median, p90, regret;
} score;

static bool is_chosen(const row *r, const char *family, int fitted)
{
    return r->predicted_s > 0 && strcmp(r->family, family) == 0 &&
           (fitted < 0 || r->record.is_fitted == (fitted != 0));
}

/* Pairs within a group, and what the fastest predicted row of a group costs more than the fastest
 * measured one. A group is judged where all its rows are of one kind, which a split by model makes.
 */
static void order_and_regret(const rows *all, const char *family, int fitted, score *s)
{
    for (size_t i = 0; i < all->count; i++) {
        const row *first = &all->rows[i], *chosen = first, *fastest = first;
        size_t members = 0;
        bool is_first = true;
        for (size_t j = 0; j < all->count && is_chosen(first, family, fitted); j++) {
            const row *r = &all->rows[j];
            if (!is_chosen(r, family, fitted) || strcmp(r->record.group, first->record.group) != 0)
                continue;
            is_first = is_first && (members > 0 || j == i);
            members++;
            chosen = r->predicted_s < chosen->predicted_s ? r : chosen;
            fastest = r->record.measured_step_s < fastest->record.measured_step_s ? r : fastest;
            if (j > i) {
                double a = first->predicted_s - r->predicted_s;
                double b = first->record.measured_step_s - r->record.measured_step_s;
                s->pairs++;
                s->right += a * b > 0;
            }
        }
        if (members < 2 || !is_first)
            continue;
        s->groups++;
        s->regret += chosen->record.measured_step_s / fastest->record.measured_step_s - 1;
    }
}

static score score_of(const rows *all, const char *family, int fitted)
{
    score s = {0};
    double *errors = calloc(all->count + 1, sizeof *errors);
    for (size_t i = 0; errors != NULL && i < all->count; i++) {
        if (!is_chosen(&all->rows[i], family, fitted))
            continue;
        errors[s.count++] = error_of(&all->rows[i]);
        s.mean += error_of(&all->rows[i]);
        s.signed_mean += all->rows[i].predicted_s / all->rows[i].record.measured_step_s - 1;
    }
    if (s.count > 0) {
        qsort(errors, s.count, sizeof *errors, ascending);
        s.median = (errors[(s.count - 1) / 2] + errors[s.count / 2]) / 2;
        s.p90 = errors[(size_t)ceil(0.9 * (double)s.count) - 1];
        s.mean /= (double)s.count;
        s.signed_mean /= (double)s.count;
        order_and_regret(all, family, fitted, &s);
    }
    free(errors);
    return s;
}

static void print_score(const rows *all, const char *family, int fitted)
{
    score s = score_of(all, family, fitted);
    if (s.count == 0)
        return;
    printf("%-22s %-8s %5zu rows  mean %5.2f %%  signed %+6.2f %%  median %5.2f %%  p90 %5.2f %%",
           family,
           fitted == 0   ? "others"
           : fitted == 1 ? "fitted"
                         : "all",
           s.count, 100 * s.mean, 100 * s.signed_mean, 100 * s.median, 100 * s.p90);
    if (s.groups > 0)
        printf("  order %5.1f %%  regret %5.2f %% (%zu groups)",
               100 * (double)s.right / (double)s.pairs, 100 * s.regret / (double)s.groups,
               s.groups);
    putchar('\n');
}

static void print_scores(rows *all)
{
    size_t skipped = 0;
    for (size_t i = 0; i < all->count; i++) {
        predict(&all->rows[i]);
        skipped += all->rows[i].record.reason[0] != '\0';
    }
    for (size_t i = 0; i < all->count; i++) {
        bool is_new = true;
        for (size_t j = 0; j < i; j++)
            is_new = is_new && strcmp(all->rows[j].family, all->rows[i].family) != 0;
        for (int fitted = 1; is_new && fitted >= 0; fitted--)
            print_score(all, all->rows[i].family, fitted);
    }
    printf("%zu rows, %zu not predicted\n", all->count, skipped);
}

static void print_rows(rows *all)
{
    for (size_t i = 0; i < all->count; i++) {
        row *r = &all->rows[i];
        char text[TY_LAYOUT_TEXT_SIZE];
        predict(r);
        ty_layout_text(&r->record.layout, text);
        if (r->predicted_s > 0)
            printf("%+7.2f %%  %10.4f s  measured %10.4f s  %s  [%s]%s\n",
                   100 * (r->predicted_s / r->record.measured_step_s - 1), r->predicted_s,
                   r->record.measured_step_s, r->record.id, text,
                   r->record.is_fitted ? " fitted" : "");
        else
            printf("   skipped  %s: %s\n", r->record.id, r->record.reason);
    }
}

/* ---- Fitting
 * --------------------------------------------------------------------------------------- */

typedef struct problem {
    rows *all;
    const char *set;
    ty_layout_constants start;
    uint32_t dimensions, indices[DIMENSIONS];
    double base[DIMENSIONS], most[DIMENSIONS];
} problem;

static ty_layout_constants constants_at(const problem *p, const double *x)
{
    ty_layout_constants c = p->start;
    for (uint32_t i = 0; i < p->dimensions; i++) {
        double *value;
        ty_layout_constant(&c, p->indices[i], &value);
        *value = fmin(p->base[i] * exp(x[i]), p->most[i]);
    }
    return c;
}

/* Mean of |log(predicted / measured)|: what is noisy in a few rows shall not pull the rest. */
static double loss(const problem *p, const double *x)
{
    ty_layout_constants c = constants_at(p, x);
    double sum = 0;
    size_t count = 0;

    for (size_t i = 0; i < p->all->count; i++) {
        row *r = &p->all->rows[i];
        double e;
        if (!r->record.is_fitted || r->record.reason[0] != '\0' ||
            strcmp(r->record.question.constants.name, p->set) != 0)
            continue;
        r->record.question.constants = c;
        predict(r);
        e = log(r->predicted_s / r->record.measured_step_s);
        sum += fabs(e);
        count++;
    }
    return count > 0 ? sum / (double)count : 0;
}

static double next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / 9007199254740992.0;
}

typedef struct simplex {
    double x[DIMENSIONS + 1][DIMENSIONS], f[DIMENSIONS + 1];
    uint32_t n;
} simplex;

static void sort(simplex *s)
{
    for (uint32_t i = 1; i <= s->n; i++)
        for (uint32_t j = i; j > 0 && s->f[j] < s->f[j - 1]; j--) {
            double x[DIMENSIONS], f = s->f[j];
            memcpy(x, s->x[j], sizeof x);
            memcpy(s->x[j], s->x[j - 1], sizeof x);
            memcpy(s->x[j - 1], x, sizeof x);
            s->f[j] = s->f[j - 1];
            s->f[j - 1] = f;
        }
}

/* Replaces the worst point by one on the line through the others' centre, if that is better. */
static double move(simplex *s, const problem *p, double factor, double limit)
{
    double x[DIMENSIONS] = {0}, f;
    for (uint32_t d = 0; d < s->n; d++) {
        double centre = 0;
        for (uint32_t i = 0; i < s->n; i++)
            centre += s->x[i][d] / s->n;
        x[d] = centre + factor * (s->x[s->n][d] - centre);
    }
    f = loss(p, x);
    if (f < limit) {
        memcpy(s->x[s->n], x, sizeof x);
        s->f[s->n] = f;
    }
    return f;
}

static void shrink(simplex *s, const problem *p)
{
    for (uint32_t i = 1; i <= s->n; i++) {
        for (uint32_t d = 0; d < s->n; d++)
            s->x[i][d] = (s->x[i][d] + s->x[0][d]) / 2;
        s->f[i] = loss(p, s->x[i]);
    }
}

/* Nelder and Mead 1965. */
static void descend(simplex *s, const problem *p)
{
    for (int step = 0; step < ITERATIONS; step++) {
        double f;
        sort(s);
        if (s->f[s->n] - s->f[0] < 1e-9)
            return;
        f = move(s, p, -1, s->f[s->n]);
        if (f < s->f[0])
            move(s, p, 2, f);
        else if (f >= s->f[s->n - 1] && move(s, p, 0.5, s->f[s->n]) >= s->f[s->n])
            shrink(s, p);
    }
}

static void start_around(simplex *s, const problem *p, const double *centre, double spread,
                         uint64_t *random)
{
    for (uint32_t i = 0; i <= p->dimensions; i++) {
        for (uint32_t d = 0; d < p->dimensions; d++)
            s->x[i][d] = centre[d] + (i == 0 ? 0 : spread * (2 * next_random(random) - 1));
        s->f[i] = loss(p, s->x[i]);
    }
    s->n = p->dimensions;
}

static ty_layout_constants fit(problem *p)
{
    double best[DIMENSIONS] = {0}, least = HUGE_VAL;
    uint64_t random = 1;
    simplex *s = calloc(1, sizeof *s);

    for (int restart = 0; s != NULL && restart < RESTARTS; restart++) {
        start_around(s, p, best, restart % 3 == 0 ? 1.0 : 0.3, &random);
        descend(s, p);
        sort(s);
        if (s->f[0] < least) {
            least = s->f[0];
            memcpy(best, s->x[0], sizeof best);
        }
        fprintf(stderr, "restart %d: loss %.5f, best %.5f\n", restart, s->f[0], least);
    }
    free(s);
    return constants_at(p, best);
}

/* ---- The program
 * ------------------------------------------------------------------------------------- */

/* The constants a set has itself, and what they may not exceed. */
static ty_status own_constants(problem *p, ty_error *error)
{
    ty_status status = TY_OK;
    ty_json_document *document = NULL;
    const ty_json *sets, *set, *entry;
    const char *source;
    char *path = NULL;

    TY_CHECK(ty_layout_constants_load(p->set, &p->start, error), status, cleanup);
    TY_CHECK(ty_data_path("planner/layout", "constants.json", &path, error), status, cleanup);
    TY_CHECK(ty_json_load(path, &document, error), status, cleanup);
    TY_CHECK(ty_json_object(ty_json_root(document), "sets", &sets, error), status, cleanup);
    TY_CHECK(ty_json_object(sets, p->set, &set, error), status, cleanup);
    for (uint32_t i = 0; p->dimensions < DIMENSIONS; i++) {
        double *value;
        const char *name = ty_layout_constant(&p->start, i, &value);
        if (name == NULL)
            break;
        if (!ty_json_has(set, name) || !(*value > 0))
            continue;
        TY_CHECK(ty_json_object(set, name, &entry, error), status, cleanup);
        TY_CHECK(ty_json_string(entry, "source", &source, error), status, cleanup);
        if (strncmp(source, "fitted", strlen("fitted")) != 0)
            continue;
        p->most[p->dimensions] = strstr(name, "efficiency") != NULL
                                     ? (strstr(name, "bandwidth_eff") ? 0.8 : 0.95)
                                     : HUGE_VAL;
        p->base[p->dimensions] = *value;
        p->indices[p->dimensions++] = i;
    }

cleanup:
    ty_json_free(document);
    ty_free(path);
    return status;
}

static ty_status fit_set(const char *set, rows *all, ty_error *error)
{
    problem p = {.all = all, .set = set};
    ty_layout_constants c;
    ty_status status = own_constants(&p, error);

    if (status != TY_OK)
        return status;
    c = fit(&p);
    for (uint32_t i = 0; i < p.dimensions; i++) {
        double *value;
        const char *name = ty_layout_constant(&c, p.indices[i], &value);
        printf("\"%s\": %.4g,\n", name, *value);
    }
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->rows[i].record.question.constants.name, set) == 0)
            all->rows[i].record.question.constants = c;
    return TY_OK;
}

int main(int count, char **arguments)
{
    ty_error error = {0};
    ty_status status = TY_OK;
    rows all = {0};
    const char *set = NULL;
    bool wants_rows = false;
    int first = 1;

    if (count > 2 && strcmp(arguments[1], "--fit") == 0) {
        set = arguments[2];
        first = 3;
    } else if (count > 1 && strcmp(arguments[1], "--rows") == 0) {
        wants_rows = true;
        first = 2;
    }
    for (int i = first; i < count; i++)
        TY_CHECK(read_file(arguments[i], &all, &error), status, cleanup);
    if (set != NULL)
        TY_CHECK(fit_set(set, &all, &error), status, cleanup);
    if (wants_rows)
        print_rows(&all);
    print_scores(&all);

cleanup:
    if (status != TY_OK)
        fprintf(stderr, "fit_layout: %s\n", error.message);
    ty_free(all.rows);
    return status == TY_OK ? 0 : 1;
}
