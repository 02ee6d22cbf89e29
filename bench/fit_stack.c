/* Fits constants of a stack to published step times, and scores what it fitted and what it did not.
 *
 *     fit_stack STACK CONSTANTS FILE...
 *         CONSTANTS: "product_share,memory_share,..." of ty_stack.h; "" scores without fitting
 *
 * Rows are those of FILEs whose software is STACK (study/catalogue/published.json); fitted to are
 * the models that the stack's file names under "fitted", all others are only scored. A row's plan
 * is searched once, as `validate` asks for it, and then costed and walked anew for every trial:
 * what is fitted is what is answered. Loss: the mean of |log(predicted / measured)|, and for every
 * constant a log-normal prior around where it started (PRIOR_DEVIATION), so that what the rows do
 * not tell stays where it was. Deterministic: Gauss-Newton with weights from the constants as they
 * are. */
#include "costing.h"
#include "timing.h"
#include "ty_file.h"
#include "ty_study.h"
#include "validate/asked.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIMENSIONS = 24, STEPS = 40 };
#define PRIOR_DEVIATION 0.5 /* of the logarithm */
#define PRIOR_WEIGHT 0.002  /* of a constant one deviation off, in the loss's unit */
#define WALKED_STEPS 3
#define DIFFERENCE 0.02  /* of the logarithm, for derivatives */
#define SMALL_ERROR 0.01 /* below it errors count as squares */
#define MANY_ROWS 180    /* of more the loss looks at as many, evenly */

typedef struct row {
    char id[128], model[64];
    double measured_s, predicted_s;
    bool is_fitted;
    ty_question_inputs inputs;
    ty_plan *plan;
    ty_program *program;
    ty_network_cache *networks;
} row;

typedef struct problem {
    row *rows;
    size_t count, capacity, fitted_count;
    ty_stack *stack;
    uint32_t dimensions;
    const ty_stack_constant *constants[DIMENSIONS];
    double base[DIMENSIONS];
} problem;

/* ---- Rows -------------------------------------------------------------------------------------
 */

static ty_status add_row(problem *p, const ty_record *record, const ty_asked *asked,
                         ty_error *error)
{
    const ty_question question = {.workload = asked->workload,
                                  .cluster = asked->cluster,
                                  .stack = asked->stack,
                                  .precision = asked->precision,
                                  .fix = asked->fix,
                                  .global_batch = asked->global_batch,
                                  .seed = 1};
    row r = {.measured_s = asked->measured_step_s};
    char source[64];
    ty_status status = TY_OK;

    if (p->count == p->capacity) {
        size_t capacity = p->capacity > 0 ? 2 * p->capacity : 256;
        row *grown = ty_resize(p->rows, capacity, sizeof *grown);
        if (grown == NULL)
            return ty_fail(error, TY_ENOMEM, "out of memory");
        p->rows = grown;
        p->capacity = capacity;
    }
    snprintf(r.id, sizeof r.id, "%s", record->id);
    snprintf(r.model, sizeof r.model, "%s", record->model);
    snprintf(source, sizeof source, "%.*s", (int)strcspn(record->id, "/"), record->id);
    for (char *c = source; *c != '\0'; c++)
        *c = *c == '-' ? '_' : *c;
    r.is_fitted = ty_stack_is_fitted(p->stack, source, record->model);
    TY_CHECK(ty_question_open(&question, NULL, &r.inputs, error), status, done);
    TY_CHECK(ty_question_plan(&question, &r.inputs, NULL, &r.plan, error), status, done);
    TY_CHECK(ty_plan_lower(r.plan, &r.program, error), status, done);
    TY_CHECK(ty_network_cache_new(r.inputs.cluster, &r.networks, error), status, done);
    r.predicted_s = r.plan->prediction.step_time_s;
    p->fitted_count += r.is_fitted;
    p->rows[p->count++] = r;
done:
    if (status != TY_OK)
        fprintf(stderr, "%s: %s\n", record->id, error->message);
    return TY_OK; /* one row less */
}

static ty_status read_file(problem *p, const char *path, ty_error *error)
{
    ty_records *records = NULL;
    ty_status status = ty_records_load(path, &records, error);

    for (uint32_t i = 0; status == TY_OK && i < records->count; i++) {
        char reason[TY_SKIP_REASON_SIZE] = "";
        ty_asked asked;
        if (strcmp(records->items[i].kind, "training-speed") != 0)
            continue;
        status = ty_ask_language_model(&records->items[i], &asked, reason, error);
        if (status == TY_OK && reason[0] == '\0' && strcmp(asked.stack, p->stack->name) == 0)
            status = add_row(p, &records->items[i], &asked, error);
    }
    ty_records_free(records);
    return status;
}

static double step_s(row *r, ty_stack *stack)
{
    ty_costs *costs = NULL;
    ty_timeline *timeline = NULL;
    ty_step_summary summary = {0};
    ty_stack *own = r->plan->stack;

    r->plan->stack = stack;
    if (ty_costs_by_networks(r->plan, r->program, r->networks, &costs, NULL) == TY_OK &&
        ty_estimate(r->plan, r->program, costs, WALKED_STEPS, &timeline, NULL) == TY_OK)
        (void)!ty_timeline_summarize(r->plan, r->program, timeline, &summary, NULL);
    ty_timeline_free(timeline);
    ty_costs_free(costs);
    r->plan->stack = own;
    return summary.step_time_s;
}

/* ---- Fitting ----------------------------------------------------------------------------------
 */

static void set(problem *p, const double *x)
{
    for (uint32_t d = 0; d < p->dimensions; d++)
        *ty_stack_value(p->stack, p->constants[d]) =
            fmin(fmax(p->base[d] * exp(x[d]), p->constants[d]->minimum), p->constants[d]->maximum);
}

/* Log errors of the rows that are looked at. */
static size_t residuals(problem *p, const double *x, double *out)
{
    const size_t stride = p->fitted_count > MANY_ROWS ? p->fitted_count / MANY_ROWS : 1;
    size_t count = 0, met = 0;

    set(p, x);
    for (size_t i = 0; i < p->count; i++)
        if (p->rows[i].is_fitted && met++ % stride == 0)
            out[count++] = log(step_s(&p->rows[i], p->stack) / p->rows[i].measured_s);
    return count;
}

static double loss_of(const problem *p, const double *x, const double *errors, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += fabs(errors[i]);
    sum /= (double)count;
    for (uint32_t d = 0; d < p->dimensions; d++)
        sum += PRIOR_WEIGHT * x[d] * x[d] / (PRIOR_DEVIATION * PRIOR_DEVIATION);
    return sum;
}

/* Solves a x = b, symmetric and positive definite, by Cholesky's decomposition, in place. */
static void solve(uint32_t n, double a[DIMENSIONS][DIMENSIONS], double b[DIMENSIONS])
{
    for (uint32_t j = 0; j < n; j++) {
        for (uint32_t k = 0; k < j; k++)
            a[j][j] -= a[j][k] * a[j][k];
        a[j][j] = sqrt(fmax(a[j][j], 1e-12));
        for (uint32_t i = j + 1; i < n; i++) {
            for (uint32_t k = 0; k < j; k++)
                a[i][j] -= a[i][k] * a[j][k];
            a[i][j] /= a[j][j];
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < i; k++)
            b[i] -= a[i][k] * b[k];
        b[i] /= a[i][i];
    }
    for (uint32_t i = n; i-- > 0;) {
        for (uint32_t k = i + 1; k < n; k++)
            b[i] -= a[k][i] * b[k];
        b[i] /= a[i][i];
    }
}

/* One step of Gauss and Newton with weights that make least squares least absolute errors. */
static bool improve(problem *p, double *x, double *errors, double *least, double *moved,
                    double *jacobian)
{
    double a[DIMENSIONS][DIMENSIONS] = {{0}}, b[DIMENSIONS] = {0};
    const uint32_t n = p->dimensions;
    const size_t count = residuals(p, x, errors);

    *least = loss_of(p, x, errors, count);
    for (uint32_t d = 0; d < n; d++) {
        x[d] += DIFFERENCE;
        (void)!residuals(p, x, moved);
        x[d] -= DIFFERENCE;
        for (size_t i = 0; i < count; i++)
            jacobian[d * count + i] = (moved[i] - errors[i]) / DIFFERENCE;
    }
    for (size_t i = 0; i < count; i++) {
        const double weight = 1 / fmax(fabs(errors[i]), SMALL_ERROR) / (double)count;
        for (uint32_t d = 0; d < n; d++) {
            b[d] -= weight * jacobian[d * count + i] * errors[i];
            for (uint32_t e = 0; e <= d; e++)
                a[d][e] += weight * jacobian[d * count + i] * jacobian[e * count + i];
        }
    }
    for (uint32_t d = 0; d < n; d++) {
        const double prior = 2 * PRIOR_WEIGHT / (PRIOR_DEVIATION * PRIOR_DEVIATION);
        b[d] -= prior * x[d];
        a[d][d] += prior;
    }
    solve(n, a, b);
    for (double length = 1; length > 0.002; length /= 2) {
        double tried[DIMENSIONS], found;
        for (uint32_t d = 0; d < n; d++)
            tried[d] = x[d] + length * fmax(-1, fmin(1, b[d]));
        found = loss_of(p, tried, moved, residuals(p, tried, moved));
        if (found < *least - 1e-6) {
            memcpy(x, tried, n * sizeof *x);
            *least = found;
            return true;
        }
    }
    return false;
}

static void fit(problem *p)
{
    double x[DIMENSIONS] = {0}, least = 0;
    double *room = calloc((DIMENSIONS + 2) * (p->count + 1), sizeof *room);

    for (int step = 0; room != NULL && step < STEPS; step++) {
        bool is_better = improve(p, x, room, &least, room + p->count, room + 2 * p->count);
        fprintf(stderr, "step %d: loss %.5f\n", step, least);
        if (!is_better)
            break;
    }
    set(p, x);
    free(room);
}

/* ---- Scores -----------------------------------------------------------------------------------
 */

static void print_score(const problem *p, int fitted)
{
    double *errors = calloc(p->count + 1, sizeof *errors), sum = 0, signed_sum = 0;
    size_t count = 0;

    for (size_t i = 0; errors != NULL && i < p->count; i++) {
        const row *r = &p->rows[i];
        if (r->is_fitted != (fitted != 0))
            continue;
        errors[count] = fabs(r->predicted_s / r->measured_s - 1);
        signed_sum += r->predicted_s / r->measured_s - 1;
        sum += errors[count++];
    }
    if (count > 0) {
        qsort(errors, count, sizeof *errors, ascending);
        printf("%-7s %4zu rows: mean error %5.2f %%, signed %+5.2f %%, median %5.2f %%, p90 %5.2f "
               "%%\n",
               fitted ? "fitted" : "others", count, 100 * sum / (double)count,
               100 * signed_sum / (double)count, 100 * errors[(count - 1) / 2],
               100 * errors[(size_t)ceil(0.9 * (double)count) - 1]);
    }
    free(errors);
}

static ty_status name_constants(problem *p, char *names, ty_error *error)
{
    char *rest = NULL;

    for (char *name = strtok_r(names, ",", &rest); name != NULL;
         name = strtok_r(NULL, ",", &rest)) {
        const ty_stack_constant *constant;
        uint32_t i = 0;
        while ((constant = ty_stack_constant_at(i)) != NULL && strcmp(constant->key, name) != 0)
            i++;
        if (constant == NULL || p->dimensions == DIMENSIONS ||
            !(*ty_stack_value(p->stack, constant) > 0))
            return ty_fail(error, TY_EINVAL, "%s: no constant of a stack above 0", name);
        p->base[p->dimensions] = *ty_stack_value(p->stack, constant);
        p->constants[p->dimensions++] = constant;
    }
    return TY_OK;
}

int main(int count, char **arguments)
{
    ty_error error = {0};
    ty_status status = TY_OK;
    problem p = {0};

    if (count < 4) {
        fprintf(stderr, "usage: fit_stack STACK CONSTANT,... FILE...\n");
        return 2;
    }
    TY_CHECK(ty_stack_open(arguments[1], &p.stack, &error), status, cleanup);
    TY_CHECK(name_constants(&p, arguments[2], &error), status, cleanup);
    for (int i = 3; i < count; i++)
        TY_CHECK(read_file(&p, arguments[i], &error), status, cleanup);
    if (p.dimensions > 0)
        fit(&p);
    for (uint32_t d = 0; d < p.dimensions; d++)
        printf("\"%s\": %.4g,\n", p.constants[d]->key, *ty_stack_value(p.stack, p.constants[d]));
    for (size_t i = 0; i < p.count; i++)
        p.rows[i].predicted_s = step_s(&p.rows[i], p.stack);
    print_score(&p, 1);
    print_score(&p, 0);

cleanup:
    if (status != TY_OK)
        fprintf(stderr, "fit_stack: %s\n", error.message);
    for (size_t i = 0; i < p.count; i++) {
        ty_network_cache_free(p.rows[i].networks);
        ty_program_free(p.rows[i].program);
        ty_plan_free(p.rows[i].plan);
        ty_question_inputs_clear(&p.rows[i].inputs);
    }
    ty_free(p.rows);
    ty_stack_free(p.stack);
    return status == TY_OK ? 0 : 1;
}
