/* Fits constants of a framework to measurements: rows, minimization, cross-validation, choice of
 * constants. fit.h has the method. */
#include "fit.h"

#include "costing.h"
#include "question.h"
#include "traced_kernels.h"
#include "ty_base.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIMENSIONS = TY_FIT_MOST_CONSTANTS, STEPS = 40, ANSWERS = 64 };
#define WALKED_STEPS 3
#define DIFFERENCE 0.02  /* of the logarithm, for derivatives */
#define SMALL_ERROR 0.01 /* below it errors count as squares */
#define MANY_ROWS 180    /* above it, the loss uses this many, evenly spaced */
/* A further constant must reduce the left-out error by these amounts, relative and absolute. */
#define LEAST_GAIN_SHARE 0.05
#define LEAST_GAIN 0.002
#define REASON_SIZE 160
#define NAME_SIZE 96

const char *const ty_fit_step_constants[] = {"product_share",
                                             "attention_share",
                                             "memory_share",
                                             "product_edge",
                                             "fp8_share",
                                             "expert_share",
                                             "logit_bytes",
                                             "host_kernel_s",
                                             "host_pass_s",
                                             "host_step_s",
                                             "host_expert_s",
                                             "host_link_share",
                                             "network_share",
                                             "tensor_hidden",
                                             "overlap_loss",
                                             "transfer_share",
                                             NULL};
const char *const ty_fit_collective_constants[] = {"host_link_share", "network_share",
                                                   "collective_s", "collective_member_s", NULL};

typedef struct entry {
    ty_fit_row shown;
    char *name, *group;
    /* Step: */
    ty_question_inputs inputs;
    ty_plan *plan;
    ty_program *program;
    ty_network_cache *networks;
    /* Collective: */
    ty_group_network network;
    ty_collective_kind kind;
    uint64_t bytes;
    /* Kernels of a step: */
    ty_traced_kind traced;
    /* Cache of results for earlier constants: folds start from the same ones. */
    struct answer {
        double values[DIMENSIONS], seconds;
    } answers[ANSWERS]; /* the oldest is overwritten */
    uint32_t answer_count, newest;
} entry;

typedef struct constant {
    char name[NAME_SIZE]; /* its key, or "DEVICE:KEY" */
    const ty_stack_constant *constant;
    double *was, *is, *tried; /* in the fit's stacks */
    ty_fit_constant shown;
    double base, x; /* start value; log of the current value over it */
    char reason[REASON_SIZE];
} constant;

struct ty_fit {
    ty_stack *stack;  /* the original */
    ty_stack *fitted; /* with the fitted constants */
    ty_stack *trial;
    double prior;
    bool is_by_device;
    entry *rows;
    ty_fit_row *shown;
    size_t count, capacity;
    constant constants[DIMENSIONS];
    ty_fit_constant shown_constants[DIMENSIONS];
    uint32_t constant_count;
};

/* ---- Rows ------------------------------------------------------------------------------------ */

ty_status ty_fit_new(const ty_stack *stack, ty_fit **out, ty_error *error)
{
    ty_fit *fit = ty_alloc(1, sizeof *fit);
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(fit != NULL, error));
    fit->prior = -1;
    TY_CHECK(ty_stack_copy(stack, &fit->stack, error), status, failed);
    TY_CHECK(ty_stack_copy(stack, &fit->fitted, error), status, failed);
    TY_CHECK(ty_stack_copy(stack, &fit->trial, error), status, failed);
    *out = fit;
    return TY_OK;

failed:
    ty_fit_free(fit);
    return status;
}

static void clear_entry(entry *e)
{
    ty_network_cache_free(e->networks);
    ty_program_free(e->program);
    ty_plan_free(e->plan);
    ty_question_inputs_clear(&e->inputs);
    ty_group_network_clear(&e->network);
    ty_free(e->name);
    ty_free(e->group);
}

void ty_fit_free(ty_fit *fit)
{
    if (fit == NULL)
        return;
    for (size_t i = 0; i < fit->count; i++)
        clear_entry(&fit->rows[i]);
    ty_free(fit->rows);
    ty_free(fit->shown);
    ty_stack_free(fit->stack);
    ty_stack_free(fit->fitted);
    ty_stack_free(fit->trial);
    ty_free(fit);
}

void ty_fit_set_prior(ty_fit *fit, double weight)
{
    fit->prior = weight;
}

void ty_fit_set_by_device(ty_fit *fit, bool is_by_device)
{
    fit->is_by_device = is_by_device;
}

static ty_status grow(ty_fit *fit, ty_error *error)
{
    const size_t capacity = fit->capacity > 0 ? 2 * fit->capacity : 16;
    entry *rows;
    ty_fit_row *shown;

    if (fit->count < fit->capacity)
        return TY_OK;
    rows = ty_resize(fit->rows, capacity, sizeof *rows);
    if (rows != NULL)
        fit->rows = rows;
    shown = ty_resize(fit->shown, capacity, sizeof *shown);
    if (shown != NULL)
        fit->shown = shown;
    TY_TRY(ty_check_memory(rows != NULL && shown != NULL, error));
    fit->capacity = capacity;
    return TY_OK;
}

/* NaN if the constants give no answer. */
static double seconds_of(entry *e, ty_stack *stack)
{
    ty_costs *costs = NULL;
    ty_timeline *timeline = NULL;
    ty_step_summary summary = {.step_time_s = NAN};
    ty_stack *own;

    if (e->plan == NULL) {
        const ty_algorithm algorithm = e->network.table != NULL ? TY_AUTOMATIC : TY_RING;
        ty_instruction_cost cost;
        if (ty_group_exchange_cost(&e->network, e->kind, algorithm, e->bytes, &cost, NULL) != TY_OK)
            return NAN;
        ty_exchange_by_stack(&e->network, stack, e->kind, &cost);
        return cost.seconds;
    }
    if (e->traced != TY_TRACED_KIND_COUNT)
        return ty_traced_kernels_s(e->plan, e->program, e->networks, e->traced, stack);
    own = e->plan->stack;
    e->plan->stack = stack;
    if (ty_costs_by_networks(e->plan, e->program, e->networks, &costs, NULL) == TY_OK &&
        ty_estimate(e->plan, e->program, costs,
                    WALKED_STEPS + 2 * ty_program_largest_lead(e->program), &timeline,
                    NULL) == TY_OK &&
        ty_timeline_summarize(e->plan, e->program, timeline, &summary, NULL) != TY_OK)
        summary.step_time_s = NAN;
    ty_timeline_free(timeline);
    ty_costs_free(costs);
    e->plan->stack = own;
    return summary.step_time_s;
}

/* Takes ownership of `e`'s contents, also on failure. */
static ty_status add(ty_fit *fit, entry *e, const ty_measurement *m, ty_error *error)
{
    char fold[16];
    ty_status status = TY_OK;

    snprintf(fold, sizeof fold, "%zu", fit->count % TY_FIT_FOLDS);
    TY_CHECK(grow(fit, error), status, failed);
    e->name = ty_strdup(m->name);
    e->group = ty_strdup(m->group != NULL ? m->group : fold);
    TY_CHECK(ty_check_memory(e->name != NULL && e->group != NULL, error), status, failed);
    if (!(m->seconds > 0 && isfinite(m->seconds))) {
        status = ty_fail(error, TY_EINVAL, "found %g s, expected a time above 0", m->seconds);
        goto failed;
    }
    e->shown = (ty_fit_row){.name = e->name,
                            .group = e->group,
                            .is_judge = m->is_judge,
                            .measured_s = m->seconds,
                            .left_out_s = NAN};
    e->shown.before_s = e->shown.after_s = seconds_of(e, fit->stack);
    if (!(e->shown.before_s > 0)) {
        status = ty_fail(error, TY_EINVAL, "predicted to take no time");
        goto failed;
    }
    fit->rows[fit->count++] = *e;
    return TY_OK;

failed:
    clear_entry(e);
    return status;
}

static ty_status open_step(const ty_question *question, entry *e, ty_error *error)
{
    ty_question own = *question;

    own.no_interval = true;
    TY_TRY(ty_question_open(question, NULL, &e->inputs, error));
    TY_TRY(ty_question_plan(&own, &e->inputs, NULL, &e->plan, error));
    TY_TRY(ty_plan_lower(e->plan, &e->program, error));
    return ty_network_cache_new(e->inputs.cluster, &e->networks, error);
}

ty_status ty_fit_add_step(ty_fit *fit, const ty_question *question,
                          const ty_measurement *measurement, ty_error *error)
{
    entry e = {.traced = TY_TRACED_KIND_COUNT};
    ty_status status = open_step(question, &e, error);

    if (status == TY_OK)
        return add(fit, &e, measurement, error);
    clear_entry(&e);
    return status;
}

ty_status ty_fit_add_row(ty_fit *fit, const ty_question *otherwise, const ty_step_row *row,
                         ty_error *error)
{
    ty_question question = *otherwise;
    ty_measurement m = {.name = row->name != NULL ? row->name : row->place};
    entry e = {.traced = TY_TRACED_KIND_COUNT};
    ty_error detail = {0};
    ty_status status = TY_OK;

    question.workload = row->workload != NULL ? row->workload : question.workload;
    question.cluster = row->cluster != NULL ? row->cluster : question.cluster;
    question.precision = row->precision != NULL ? row->precision : question.precision;
    question.fix = row->fix != NULL ? row->fix : question.fix;
    question.global_batch = row->global_batch > 0 ? row->global_batch : question.global_batch;
    question.sequence = row->sequence > 0 ? row->sequence : question.sequence;
    if (question.workload == NULL || question.cluster == NULL)
        return ty_fail(error, TY_EPARSE, "%s: names no %s, expected it here or as --%s", row->place,
                       question.workload == NULL ? "workload" : "cluster",
                       question.workload == NULL ? "workload" : "cluster");
    TY_CHECK(open_step(&question, &e, &detail), status, failed);
    TY_CHECK(ty_step_seconds(row->unit, row->value, e.plan, e.inputs.cluster, &m.seconds, &detail),
             status, failed);
    status = add(fit, &e, &m, &detail);
    if (status == TY_OK)
        return TY_OK;
    e = (entry){0}; /* taken */

failed:
    clear_entry(&e);
    return ty_fail(error,
                   status == TY_EINVAL || status == TY_EINFEASIBLE || status == TY_EIO ||
                           status == TY_EUNSUPPORTED
                       ? TY_EPARSE
                       : status,
                   "%s: %s", row->place, detail.message);
}

ty_status ty_fit_add_trace(ty_fit *fit, const ty_question *question, const ty_traced_steps *steps,
                           const char *name, ty_error *error)
{
    bool has_row = false;
    ty_status status = TY_OK;

    for (int k = 0; k < TY_TRACED_COLLECTIVES; k++) {
        entry e = {.traced = (ty_traced_kind)k};
        ty_text row = {0};
        if (!(steps->seconds[k] > 0))
            continue;
        TY_TRY(open_step(question, &e, error));
        if (!(seconds_of(&e, fit->stack) > 0)) {
            clear_entry(&e);
            continue;
        }
        has_row = true;
        ty_text_addf(&row, "%s: %s", name, ty_traced_kind_name((ty_traced_kind)k));
        status = add(fit, &e,
                     &(ty_measurement){.name = row.data != NULL ? row.data : name,
                                       .seconds = steps->seconds[k]},
                     error);
        ty_text_clear(&row);
        if (status != TY_OK)
            return status;
    }
    if (!has_row)
        return ty_fail(error, TY_EINVAL,
                       "found no products, attention or passes that the plan has too");
    return status;
}

void ty_fit_trace_constants(const ty_fit *fit, const char *names[TY_TRACED_KIND_COUNT])
{
    static const char *const of_kinds[] = {"product_share", "attention_share", "traffic_share"};
    uint32_t count = 0;

    for (int k = 0; k < TY_TRACED_COLLECTIVES; k++) {
        bool is_there = false;
        for (size_t i = 0; i < fit->count; i++)
            is_there = is_there || fit->rows[i].traced == (ty_traced_kind)k;
        if (is_there)
            names[count++] = of_kinds[k];
    }
    names[count] = NULL;
}

ty_status ty_fit_add_collective(ty_fit *fit, const ty_cluster *cluster, ty_collective_kind kind,
                                uint32_t ranks, uint32_t hosts, uint64_t bytes,
                                const ty_measurement *measurement, ty_error *error)
{
    const uint32_t all = ty_cluster_device_count(cluster);
    uint32_t *devices, *met, count = 0;
    entry e = {.kind = kind, .bytes = bytes, .traced = TY_TRACED_KIND_COUNT};
    ty_status status;

    if (ranks < 2 || hosts < 1 || ranks % hosts > 0 || hosts > ty_cluster_host_count(cluster))
        return ty_fail(
            error, TY_EINVAL,
            "found %u ranks on %u hosts, expected two and more in equal parts on at most "
            "the %u hosts of cluster \"%s\"",
            ranks, hosts, ty_cluster_host_count(cluster), ty_cluster_name(cluster));
    devices = ty_alloc(ranks, sizeof *devices);
    met = ty_alloc(hosts, sizeof *met);
    TY_CHECK(ty_check_memory(devices != NULL && met != NULL, error), status, failed);
    for (uint32_t d = 0; d < all && count < ranks; d++) {
        const uint32_t host = ty_cluster_device_host(cluster, d);
        if (host < hosts && met[host] < ranks / hosts) {
            met[host]++;
            devices[count++] = d;
        }
    }
    if (count < ranks) {
        status = ty_fail(error, TY_EINVAL,
                         "found %u ranks on each of %u hosts, more than these have devices in "
                         "cluster \"%s\"",
                         ranks / hosts, hosts, ty_cluster_name(cluster));
        goto failed;
    }
    TY_CHECK(ty_group_network_find(cluster, devices, ranks, &e.network, error), status, failed);
    ty_free(devices);
    ty_free(met);
    return add(fit, &e, measurement, error);

failed:
    ty_free(devices);
    ty_free(met);
    clear_entry(&e);
    return status;
}

/* ---- The minimum ----------------------------------------------------------------------------- */

/* Objective to minimize over some constants and rows, exactly or, with `slopes`, linearized at the
 * current constants. */
typedef struct problem {
    ty_fit *fit;
    const uint32_t *rows; /* [row_count] */
    uint32_t row_count;
    uint32_t dimensions;
    uint32_t chosen[DIMENSIONS]; /* [dimensions] of the fit's constants */
    const double *slopes;        /* [constants of the fit][rows of the fit]; NULL: exact */
    const double *known;         /* [rows of the fit] log errors at the constants' x, with slopes */
    double *errors, *moved;      /* [row_count] scratch */
    double *jacobian;            /* [dimensions][row_count] scratch */
} problem;

static double limited(const constant *c, double x)
{
    return fmin(fmax(c->base * exp(x), c->constant->minimum), c->constant->maximum);
}

/* Sets the trial framework: the original with these constants changed. */
static void set(ty_fit *fit, uint32_t dimensions, const uint32_t *chosen, const double *x)
{
    for (uint32_t c = 0; c < fit->constant_count; c++)
        *fit->constants[c].tried = *fit->constants[c].was;
    for (uint32_t d = 0; d < dimensions; d++)
        *fit->constants[chosen[d]].tried = limited(&fit->constants[chosen[d]], x[d]);
}

static double log_error(ty_fit *fit, uint32_t row)
{
    entry *e = &fit->rows[row];
    struct answer asked = {{0}, 0};

    for (uint32_t c = 0; c < fit->constant_count; c++)
        asked.values[c] = *fit->constants[c].tried;
    for (uint32_t a = 0; a < e->answer_count; a++)
        if (memcmp(e->answers[a].values, asked.values, sizeof asked.values) == 0)
            return log(e->answers[a].seconds / e->shown.measured_s);
    asked.seconds = seconds_of(e, fit->trial);
    e->newest = e->answer_count < ANSWERS ? e->answer_count++ : (e->newest + 1) % ANSWERS;
    e->answers[e->newest] = asked;
    return log(asked.seconds / e->shown.measured_s);
}

static void residuals(problem *p, const double *x, double *out)
{
    ty_fit *fit = p->fit;

    if (p->slopes == NULL) {
        set(fit, p->dimensions, p->chosen, x);
        for (uint32_t i = 0; i < p->row_count; i++)
            out[i] = log_error(fit, p->rows[i]);
        return;
    }
    for (uint32_t i = 0; i < p->row_count; i++) {
        out[i] = p->known[p->rows[i]];
        for (uint32_t d = 0; d < p->dimensions; d++) {
            const constant *c = &fit->constants[p->chosen[d]];
            out[i] += p->slopes[p->chosen[d] * fit->count + p->rows[i]] *
                      (log(limited(c, x[d]) / c->base) - c->x);
        }
    }
}

static double prior_weight(const problem *p)
{
    const double weight = p->fit->prior >= 0 ? p->fit->prior : TY_FIT_NOISE / 2 / p->row_count;
    return weight / (TY_FIT_DEVIATION * TY_FIT_DEVIATION);
}

static double loss_of(const problem *p, const double *x, const double *errors)
{
    double sum = 0;

    for (uint32_t i = 0; i < p->row_count; i++)
        sum += fabs(errors[i]);
    sum /= p->row_count;
    for (uint32_t d = 0; d < p->dimensions; d++)
        sum += prior_weight(p) * x[d] * x[d];
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

/* One Gauss-Newton step, weighted so that least squares minimizes absolute errors. */
static bool improve(problem *p, double *x)
{
    double a[DIMENSIONS][DIMENSIONS] = {{0}}, b[DIMENSIONS] = {0}, least;
    const uint32_t n = p->dimensions, count = p->row_count;

    residuals(p, x, p->errors);
    least = loss_of(p, x, p->errors);
    for (uint32_t d = 0; d < n; d++) {
        x[d] += DIFFERENCE;
        residuals(p, x, p->moved);
        x[d] -= DIFFERENCE;
        for (uint32_t i = 0; i < count; i++)
            p->jacobian[d * count + i] = (p->moved[i] - p->errors[i]) / DIFFERENCE;
    }
    for (uint32_t i = 0; i < count; i++) {
        const double weight = 1 / fmax(fabs(p->errors[i]), SMALL_ERROR) / count;
        for (uint32_t d = 0; d < n; d++) {
            b[d] -= weight * p->jacobian[d * count + i] * p->errors[i];
            for (uint32_t e = 0; e <= d; e++)
                a[d][e] += weight * p->jacobian[d * count + i] * p->jacobian[e * count + i];
        }
    }
    for (uint32_t d = 0; d < n; d++) {
        b[d] -= 2 * prior_weight(p) * x[d];
        a[d][d] += 2 * prior_weight(p);
    }
    solve(n, a, b);
    for (double length = 1; length > 0.002; length /= 2) {
        double tried[DIMENSIONS];
        for (uint32_t d = 0; d < n; d++)
            tried[d] = x[d] + length * fmax(-1, fmin(1, b[d]));
        residuals(p, tried, p->moved);
        if (loss_of(p, tried, p->moved) < least - 1e-6) {
            memcpy(x, tried, n * sizeof *x);
            return true;
        }
    }
    return false;
}

static void minimise(problem *p, double *x)
{
    for (int step = 0; p->row_count > 0 && step < STEPS && improve(p, x); step++)
        ;
}

/* ---- Rows left out --------------------------------------------------------------------------- */

/* Scratch for a problem, with lists of the rows in the loss: all fitted rows, or every k-th one if
 * there are many. */
typedef struct workroom {
    problem problem;
    uint32_t *fitted, fitted_count; /* [fitted_count] */
    uint32_t *kept;                 /* [fitted_count] rows of a problem without a group */
    double *slopes, *known;
} workroom;

static void close_room(workroom *room)
{
    ty_free(room->problem.errors);
    ty_free(room->problem.moved);
    ty_free(room->problem.jacobian);
    ty_free(room->fitted);
    ty_free(room->kept);
    ty_free(room->slopes);
    ty_free(room->known);
}

static ty_status open_room(ty_fit *fit, workroom *room, ty_error *error)
{
    const size_t count = fit->count + 1;
    size_t fitted = 0, met = 0, stride;

    *room = (workroom){.problem = {.fit = fit},
                       .fitted = ty_alloc(count, sizeof *room->fitted),
                       .kept = ty_alloc(count, sizeof *room->kept),
                       .slopes = ty_alloc(DIMENSIONS * count, sizeof *room->slopes),
                       .known = ty_alloc(count, sizeof *room->known)};
    room->problem.errors = ty_alloc(count, sizeof *room->problem.errors);
    room->problem.moved = ty_alloc(count, sizeof *room->problem.moved);
    room->problem.jacobian = ty_alloc(DIMENSIONS * count, sizeof *room->problem.jacobian);
    if (room->fitted == NULL || room->kept == NULL || room->slopes == NULL || room->known == NULL ||
        room->problem.errors == NULL || room->problem.moved == NULL ||
        room->problem.jacobian == NULL) {
        close_room(room);
        return ty_fail(error, TY_ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < fit->count; i++)
        fitted += !fit->rows[i].shown.is_judge;
    stride = fitted > MANY_ROWS ? fitted / MANY_ROWS : 1;
    for (size_t i = 0; i < fit->count; i++)
        if (!fit->rows[i].shown.is_judge && met++ % stride == 0)
            room->fitted[room->fitted_count++] = (uint32_t)i;
    return TY_OK;
}

/* Fits to all rows in the loss. */
static void fit_all(workroom *room, double *x)
{
    room->problem.rows = room->fitted;
    room->problem.row_count = room->fitted_count;
    minimise(&room->problem, x);
}

/* Fits to the rows without a group, starting from x, which is unchanged. */
static void fit_without(workroom *room, const char *group, const double *x,
                        double found[DIMENSIONS])
{
    const ty_fit *fit = room->problem.fit;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < room->fitted_count; i++)
        if (strcmp(fit->rows[room->fitted[i]].group, group) != 0)
            room->kept[kept++] = room->fitted[i];
    memcpy(found, x, room->problem.dimensions * sizeof *found);
    if (kept == 0)
        memset(found, 0, room->problem.dimensions * sizeof *found); /* no rows to fit */
    room->problem.rows = room->kept;
    room->problem.row_count = kept;
    minimise(&room->problem, found);
}

/* Whether row i is the first of its group. */
static bool is_first_of_group(const ty_fit *fit, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (!fit->rows[j].shown.is_judge && strcmp(fit->rows[j].group, fit->rows[i].group) == 0)
            return false;
    return !fit->rows[i].shown.is_judge;
}

/* Predicts the rows of each group by a fit without it; with slopes, linearized.
 * @return the mean error of the rows in the loss */
static double leave_out(workroom *room, const double *x)
{
    problem *p = &room->problem;
    ty_fit *fit = p->fit;
    double sum = 0;

    for (size_t first = 0; first < fit->count; first++) {
        double found[DIMENSIONS];
        uint32_t out[1];
        if (!is_first_of_group(fit, first))
            continue;
        fit_without(room, fit->rows[first].group, x, found);
        for (uint32_t i = 0; i < room->fitted_count; i++) {
            entry *e = &fit->rows[room->fitted[i]];
            double error;
            if (strcmp(e->group, fit->rows[first].group) != 0)
                continue;
            out[0] = room->fitted[i];
            p->rows = out;
            p->row_count = 1;
            residuals(p, found, &error);
            sum += fabs(exp(error) - 1);
            if (p->slopes == NULL)
                e->shown.left_out_s = e->shown.measured_s * exp(error);
        }
    }
    return sum / room->fitted_count;
}

/* ---- Constants ------------------------------------------------------------------------------- */

/* The common device of all rows; NULL: they differ, or are no steps. */
static const ty_device_type *device_of_rows(const ty_fit *fit)
{
    const ty_device_type *found = NULL;

    for (size_t i = 0; i < fit->count; i++) {
        const ty_device_type *device;
        if (fit->rows[i].plan == NULL)
            return NULL;
        device = ty_cluster_device_type(fit->rows[i].inputs.cluster, 0);
        if (found != NULL && strcmp(found->name, device->name) != 0)
            return NULL;
        found = device;
    }
    return found;
}

/* Start value of a constant of the device; 0: unknown. */
static double of_device(const ty_fit *fit, const char *key)
{
    const ty_device_type *device = device_of_rows(fit);
    ty_precision precision, wide;
    ty_rates rates;
    double share;

    if (device == NULL)
        return 0;
    precision = fit->rows[0].plan->workload->precision;
    wide = ty_precision_is_narrow(precision) ? TY_PRECISION_BF16 : precision;
    rates = ty_rates_of(device, fit->stack, precision);
    share = rates.product_flop_per_s / ty_device_peak(device, wide);
    if (strcmp(key, "product_share") == 0)
        return share;
    if (strcmp(key, "fp8_share") == 0 || strcmp(key, "fp4_share") == 0)
        return rates.narrow_flop_per_s / ty_device_peak(device, precision);
    if (strcmp(key, "attention_share") == 0)
        return rates.attention_flop_per_s > 0
                   ? rates.attention_flop_per_s / ty_device_peak(device, wide)
                   : share;
    if (strcmp(key, "attention_backward") == 0)
        return rates.attention_backward;
    if (strcmp(key, "memory_share") == 0)
        return rates.bytes_per_s / device->memory_bandwidth_bytes_per_s;
    if (strcmp(key, "product_edge") == 0)
        return rates.edge;
    return strcmp(key, "kernel_s") == 0 ? rates.kernel_s : 0;
}

/* A row's device whose own figure in the framework replaces a constant; NULL: none.
 */
static const char *device_with_own(const ty_fit *fit, const ty_stack_constant *known)
{
    double *const value = ty_stack_value(fit->stack, known);

    if ((size_t)(value - &fit->stack->product_share) >= TY_STACK_DEVICE_CONSTANTS)
        return NULL;
    for (size_t i = 0; i < fit->count; i++) {
        const ty_device_type *type;
        if (fit->rows[i].plan == NULL)
            continue;
        type = ty_cluster_device_type(fit->rows[i].inputs.cluster, 0);
        if (ty_stack_on_device(fit->stack, value, type->name, type->generation) != *value)
            return type->name;
    }
    return NULL;
}

/* Reason that a factor does not change a constant; "" if it does. */
static void find_reason(const ty_fit *fit, constant *c)
{
    const char *own = strchr(c->name, ':') == NULL ? device_with_own(fit, c->constant) : NULL;

    if (own != NULL) {
        c->base = 0;
        snprintf(c->reason, REASON_SIZE, "stack %.40s has a figure of its own on %.40s",
                 fit->stack->name, own);
    } else if (*c->was == 0) {
        snprintf(c->reason, REASON_SIZE, "it is 0 in stack %.40s, which no factor changes",
                 fit->stack->name);
    } else if (!(c->base > 0)) {
        snprintf(c->reason, REASON_SIZE, "it is the device's own in stack %.40s, and %s",
                 fit->stack->name,
                 device_of_rows(fit) == NULL ? "the rows are not steps of one device"
                                             : "the device has no figure for it");
    }
}

/* Finds a constant in each framework; one for the rows' device starts at that device's figure. */
static ty_status find(const ty_fit *fit, constant *c, ty_error *error)
{
    const ty_device_type *device = device_of_rows(fit);
    const char *generation = device != NULL ? device->generation : NULL;

    TY_TRY(ty_stack_find(fit->stack, c->name, generation, &c->constant, &c->was, error));
    TY_TRY(ty_stack_find(fit->fitted, c->name, generation, &c->constant, &c->is, error));
    return ty_stack_find(fit->trial, c->name, generation, &c->constant, &c->tried, error);
}

static ty_status name_constants(ty_fit *fit, const char *const *names, ty_error *error)
{
    const ty_device_type *device = fit->is_by_device ? device_of_rows(fit) : NULL;

    fit->constant_count = 0;
    for (size_t i = 0; i < fit->count; i++)
        fit->rows[i].answer_count = 0;
    for (size_t n = 0; names[n] != NULL; n++) {
        constant *c = &fit->constants[fit->constant_count];
        if (fit->constant_count == DIMENSIONS)
            return ty_fail(error, TY_EINVAL, "expected at most %d constants", DIMENSIONS);
        *c = (constant){.base = 0};
        snprintf(c->name, NAME_SIZE, "%.60s", names[n]);
        /* A constant that may differ by device becomes that of the rows' common device, if any. */
        for (uint32_t i = 0; device != NULL && i < TY_STACK_DEVICE_CONSTANTS; i++)
            if (strcmp(ty_stack_constant_at(i)->key, names[n]) == 0)
                snprintf(c->name, NAME_SIZE, "%.40s:%.50s", device->name, names[n]);
        TY_TRY(find(fit, c, error));
        fit->constant_count++;
    }
    /* Repeats the search, since inserting figures for devices moves the others. */
    for (uint32_t n = 0; n < fit->constant_count; n++) {
        constant *c = &fit->constants[n];
        TY_TRY(find(fit, c, error));
        c->base = c->constant->may_be_of_device && *c->was == TY_OF_DEVICE
                      ? of_device(fit, c->constant->key)
                      : *c->was;
        find_reason(fit, c);
        c->shown = (ty_fit_constant){.name = c->name, .before = c->base, .after = c->base};
    }
    return TY_OK;
}

/* d log t / d log c of each row at the current constants, and the log errors there. */
static void find_slopes(workroom *room)
{
    problem *p = &room->problem;
    ty_fit *fit = p->fit;
    uint32_t chosen[DIMENSIONS];
    double x[DIMENSIONS];
    const uint32_t n = p->dimensions;

    memcpy(chosen, p->chosen, sizeof chosen);
    for (uint32_t d = 0; d < n; d++)
        x[d] = fit->constants[chosen[d]].x;
    set(fit, n, chosen, x);
    for (uint32_t i = 0; i < room->fitted_count; i++)
        room->known[room->fitted[i]] = log_error(fit, room->fitted[i]);
    for (uint32_t c = 0; c < fit->constant_count; c++) {
        uint32_t d = 0, dimensions;
        /* Steps down if the constant is at its upper limit. */
        const constant *k = &fit->constants[c];
        const double away = limited(k, k->x + DIFFERENCE) > limited(k, k->x) * (1 + DIFFERENCE / 2)
                                ? DIFFERENCE
                                : -DIFFERENCE;
        if (!(k->base > 0))
            continue;
        while (d < n && chosen[d] != c)
            d++;
        dimensions = d == n ? n + 1 : n;
        if (dimensions > DIMENSIONS)
            continue;
        chosen[d] = c;
        x[d] = k->x + away;
        set(fit, dimensions, chosen, x);
        for (uint32_t i = 0; i < room->fitted_count; i++)
            room->slopes[c * fit->count + room->fitted[i]] =
                (log_error(fit, room->fitted[i]) - room->known[room->fitted[i]]) / away;
        x[d] = k->x;
    }
}

static void report_progress(workroom *room)
{
    ty_fit *fit = room->problem.fit;

    find_slopes(room);
    for (uint32_t c = 0; c < fit->constant_count; c++)
        for (uint32_t i = 0; i < room->fitted_count; i++)
            fit->constants[c].shown.told = fmax(
                fit->constants[c].shown.told, fabs(room->slopes[c * fit->count + room->fitted[i]]));
}

/* Updates the public view of the constants. */
static void publish(ty_fit *fit)
{
    for (uint32_t c = 0; c < fit->constant_count; c++) {
        fit->constants[c].shown.reason = fit->constants[c].reason;
        fit->shown_constants[c] = fit->constants[c].shown;
    }
}

/* Updates the framework and all rows with the result. */
static void settle(workroom *room, const double *x)
{
    problem *p = &room->problem;
    ty_fit *fit = p->fit;

    for (uint32_t c = 0; c < fit->constant_count; c++) {
        fit->constants[c].shown.is_fitted = false;
        *fit->constants[c].is = *fit->constants[c].was;
    }
    for (uint32_t d = 0; d < p->dimensions; d++) {
        constant *c = &fit->constants[p->chosen[d]];
        c->x = x[d];
        c->shown.is_fitted = true;
        c->reason[0] = '\0';
        c->shown.after = limited(c, x[d]);
        c->shown.is_at_limit =
            c->shown.after != c->base * exp(x[d]) || c->shown.after == c->constant->maximum;
        *c->is = c->shown.after;
    }
    for (size_t i = 0; i < fit->count; i++)
        fit->rows[i].shown.after_s = seconds_of(&fit->rows[i], fit->fitted);
}

static ty_status check_rows(const workroom *room, ty_error *error)
{
    if (room->fitted_count == 0)
        return ty_fail(error, TY_EINVAL, "found no row to fit to");
    return TY_OK;
}

ty_status ty_fit_solve(ty_fit *fit, const char *const *names, ty_error *error)
{
    workroom room;
    double x[DIMENSIONS] = {0};
    ty_status status = TY_OK;

    TY_TRY(open_room(fit, &room, error));
    TY_CHECK(name_constants(fit, names, error), status, done);
    if (fit->constant_count > 0)
        TY_CHECK(check_rows(&room, error), status, done);
    for (uint32_t c = 0; c < fit->constant_count; c++) {
        if (!(fit->constants[c].base > 0)) {
            status = ty_fail(error, TY_EINVAL, "%s: %s", fit->constants[c].constant->key,
                             fit->constants[c].reason);
            goto done;
        }
        room.problem.chosen[c] = c;
    }
    report_progress(&room);
    room.problem.dimensions = fit->constant_count;
    fit_all(&room, x);
    settle(&room, x);
    publish(fit);
done:
    close_room(&room);
    return status;
}

ty_status ty_fit_leave_out(ty_fit *fit, ty_error *error)
{
    workroom room;
    double x[DIMENSIONS] = {0};
    ty_status status = TY_OK;

    TY_TRY(open_room(fit, &room, error));
    TY_CHECK(check_rows(&room, error), status, done);
    for (uint32_t c = 0; c < fit->constant_count; c++)
        if (fit->constants[c].shown.is_fitted) {
            x[room.problem.dimensions] = fit->constants[c].x;
            room.problem.chosen[room.problem.dimensions++] = c;
        }
    (void)leave_out(&room, x);
done:
    close_room(&room);
    return status;
}

/* Measure that proposes constants; the exact left-out error decides. */
typedef enum measure { BY_LEFT_OUT, BY_LOSS, MEASURES } measure;

/* Linearized measure with `count` further constants: the left-out error, or the loss plus Akaike's
 * penalty of one nat per constant.
 * @param x [dimensions] of the chosen constants */
static double measure_with(workroom *room, measure by, const double *x, const uint32_t *further,
                           uint32_t count)
{
    problem *p = &room->problem;
    double with[DIMENSIONS] = {0}, found;

    memcpy(with, x, p->dimensions * sizeof *with);
    for (uint32_t i = 0; i < count; i++)
        p->chosen[p->dimensions + i] = further[i];
    p->dimensions += count;
    p->slopes = room->slopes;
    p->known = room->known;
    fit_all(room, with);
    if (by == BY_LEFT_OUT) {
        found = leave_out(room, with);
    } else {
        residuals(p, with, p->errors);
        found = loss_of(p, with, p->errors) + TY_FIT_NOISE * p->dimensions / p->row_count;
    }
    p->slopes = NULL;
    p->dimensions -= count;
    return found;
}

static bool is_gain(double before, double after)
{
    return after < before - LEAST_GAIN && after < before * (1 - LEAST_GAIN_SHARE);
}

/* The best one or two further constants by a measure; of two that mask each other, neither helps
 * alone.
 * @param size 1 or 2
 * @return false: none is an improvement */
static bool best_further(workroom *room, measure by, const double *x, const bool *is_out,
                         uint32_t size, uint32_t best[2])
{
    const uint32_t count = room->problem.fit->constant_count;
    double least = measure_with(room, by, x, NULL, 0);
    bool is_found = false;

    for (uint32_t a = 0; a < count; a++)
        for (uint32_t b = size == 1 ? a : a + 1; b < (size == 1 ? a + 1 : count); b++) {
            const uint32_t further[2] = {a, b};
            double with;
            if (is_out[a] || is_out[b])
                continue;
            with = measure_with(room, by, x, further, size);
            if (!(with < least))
                continue;
            least = with;
            is_found = true;
            memcpy(best, further, sizeof further);
        }
    return is_found;
}

/* Adds a proposal of either measure if it lowers the left-out error: one constant, or two if these
 * are better.
 * @return false: none does */
static bool choose_further(workroom *room, double *x, const bool *is_out, uint32_t most,
                           double *least)
{
    problem *p = &room->problem;
    const uint32_t before = p->dimensions;
    uint32_t dimensions = before, taken[DIMENSIONS];
    double found[DIMENSIONS];

    for (uint32_t size = 1; size <= 2 && before + size <= most && dimensions == before; size++)
        for (int by = 0; by < MEASURES; by++) {
            double tried[DIMENSIONS] = {0}, error;
            uint32_t best[2];
            p->dimensions = before;
            if (!best_further(room, (measure)by, x, is_out, size, best))
                continue;
            memcpy(tried, x, before * sizeof *tried);
            memcpy(&p->chosen[before], best, size * sizeof *best);
            p->dimensions = before + size;
            fit_all(room, tried);
            error = leave_out(room, tried);
            if (!is_gain(*least, error))
                continue;
            *least = error;
            dimensions = p->dimensions;
            memcpy(taken, p->chosen, sizeof taken);
            memcpy(found, tried, sizeof found);
        }
    p->dimensions = dimensions;
    if (dimensions == before)
        return false;
    memcpy(p->chosen, taken, sizeof taken);
    memcpy(x, found, sizeof found);
    return true;
}

/* Drops constants that later ones have made unnecessary. */
static void drop_needless(workroom *room, double *x, double *least)
{
    problem *p = &room->problem;

    for (uint32_t d = 0; p->dimensions > 1 && d < p->dimensions;) {
        const uint32_t dropped = p->chosen[d], after = p->dimensions - d - 1;
        double without[DIMENSIONS], error;
        memcpy(without, x, sizeof without);
        memmove(&without[d], &without[d + 1], after * sizeof *without);
        memmove(&p->chosen[d], &p->chosen[d + 1], after * sizeof *p->chosen);
        p->dimensions--;
        fit_all(room, without);
        error = leave_out(room, without);
        if (!is_gain(error, *least)) { /* no worse without it */
            room->problem.fit->constants[dropped].x = 0;
            memcpy(x, without, sizeof without);
            *least = error;
            d = 0;
            continue;
        }
        memmove(&p->chosen[d + 1], &p->chosen[d], after * sizeof *p->chosen);
        p->chosen[d] = dropped;
        p->dimensions++;
        d++;
    }
}

/* Sets the reasons of constants that were not chosen. */
static void explain(workroom *room, const double *x, uint32_t most, double least)
{
    ty_fit *fit = room->problem.fit;

    for (uint32_t c = 0; c < fit->constant_count; c++) {
        constant *k = &fit->constants[c];
        if (k->shown.is_fitted || k->reason[0] != '\0')
            continue;
        if (k->shown.told < TY_FIT_LEAST_TOLD)
            snprintf(k->reason, sizeof k->reason,
                     "a tenth more of it changes no row by more than %.2g %%",
                     fmax(10 * k->shown.told, 0.01));
        else if (room->problem.dimensions < most)
            snprintf(
                k->reason, sizeof k->reason,
                "rows left out are predicted with an error of %.2g %% with it, %.2g %% without",
                100 * measure_with(room, BY_LEFT_OUT, x, &c, 1), 100 * least);
        else
            snprintf(k->reason, sizeof k->reason, "%u rows tell %u constants at most",
                     room->fitted_count, most);
    }
}

ty_status ty_fit_choose(ty_fit *fit, const char *const *names, const ty_watch *watch,
                        ty_error *error)
{
    workroom room;
    problem *p = &room.problem;
    double x[DIMENSIONS] = {0}, least = 0;
    bool is_out[DIMENSIONS] = {false};
    uint32_t most;
    ty_status status = TY_OK;

    TY_TRY(open_room(fit, &room, error));
    if (room.fitted_count < TY_FIT_LEAST_ROWS) {
        status =
            ty_fail(error, TY_EINVAL,
                    "found %u rows, expected %d and more: constants are chosen by leaving rows "
                    "out",
                    room.fitted_count, TY_FIT_LEAST_ROWS);
        goto done;
    }
    TY_CHECK(name_constants(fit, names, error), status, done);
    report_progress(&room);
    for (uint32_t c = 0; c < fit->constant_count; c++)
        is_out[c] =
            !(fit->constants[c].base > 0) || fit->constants[c].shown.told < TY_FIT_LEAST_TOLD;
    most = room.fitted_count - 1 < DIMENSIONS ? room.fitted_count - 1 : DIMENSIONS;
    for (uint32_t i = 0; i < room.fitted_count; i++)
        least += fabs(exp(room.known[room.fitted[i]]) - 1) / room.fitted_count;
    while (p->dimensions < most && choose_further(&room, x, is_out, most, &least)) {
        if (ty_watch_stops(watch)) {
            status = ty_fail(error, TY_EINTERRUPTED, "interrupted");
            goto done;
        }
        for (uint32_t d = 0; d < p->dimensions; d++)
            is_out[p->chosen[d]] = true;
        settle(&room, x);
        find_slopes(&room);
    }
    drop_needless(&room, x, &least);
    settle(&room, x);
    find_slopes(&room);
    explain(&room, x, most, least);
    publish(fit);
    (void)leave_out(&room, x);
done:
    close_room(&room);
    return status;
}

/* ---- Results --------------------------------------------------------------------------------- */

const ty_fit_row *ty_fit_rows(const ty_fit *fit, uint32_t *count)
{
    for (size_t i = 0; i < fit->count; i++)
        fit->shown[i] = fit->rows[i].shown;
    *count = (uint32_t)fit->count;
    return fit->shown;
}

const ty_fit_constant *ty_fit_constants(const ty_fit *fit, uint32_t *count)
{
    *count = fit->constant_count;
    return fit->shown_constants;
}

const ty_stack *ty_fit_stack(const ty_fit *fit)
{
    return fit->fitted;
}

ty_status ty_fit_score_of(const ty_fit *fit, ty_fit_stage stage, bool is_judge, const char *group,
                          ty_fit_score *out, ty_error *error)
{
    double *errors = ty_alloc(fit->count + 1, sizeof *errors);
    ty_fit_score score = {0};

    TY_TRY(ty_check_memory(errors != NULL, error));
    for (size_t i = 0; i < fit->count; i++) {
        const ty_fit_row *r = &fit->rows[i].shown;
        const double predicted_s = stage == TY_FIT_BEFORE  ? r->before_s
                                   : stage == TY_FIT_AFTER ? r->after_s
                                                           : r->left_out_s;
        if (r->is_judge != is_judge || (group != NULL && strcmp(group, r->group) != 0) ||
            isnan(predicted_s))
            continue;
        errors[score.rows++] = fabs(predicted_s / r->measured_s - 1);
        score.signed_mean += predicted_s / r->measured_s - 1;
        score.mean += fabs(predicted_s / r->measured_s - 1);
    }
    if (score.rows > 0) {
        qsort(errors, score.rows, sizeof *errors, ty_compare_numbers);
        score.mean /= score.rows;
        score.signed_mean /= score.rows;
        score.median = errors[(score.rows - 1) / 2];
        score.p90 = errors[(size_t)ceil(0.9 * score.rows) - 1];
    }
    *out = score;
    ty_free(errors);
    return TY_OK;
}
