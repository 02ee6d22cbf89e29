/* Partitions of small graphs against all possible ones: every chain of states, every number of
 * replicas, at every level. */
#include "small_graphs.h"

#include "ty_base.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define MOST_STATES (1 << MOST_SMALL)

typedef struct question {
    small_graph graph;
    const ty_states *s;
    ty_divide_options o;
    ty_level levels[3];
    uint32_t size[4];                           /* devices of a unit of a level */
    double unit_s[4][MOST_STATES][MOST_STATES]; /* [level][from][to] < 0: not known yet */
} question;

static question random_question(uint64_t *state)
{
    static const uint32_t shapes[][3] = {{1, 0, 0}, {3, 0, 0}, {4, 0, 0}, {2, 2, 0},
                                         {2, 3, 0}, {3, 2, 0}, {1, 3, 0}, {2, 1, 2}};
    const uint32_t *shape = shapes[below(state, sizeof shapes / sizeof *shapes)];
    question q = {.graph = random_graph(state, 5), .size = {1}};

    while (q.o.level_count < 3 && shape[q.o.level_count] > 0) {
        uint32_t l = q.o.level_count++;
        q.levels[l] = (ty_level){shape[l], (double)(1 + below(state, 8)) / (l + 1)};
        q.size[l + 1] = q.size[l] * shape[l];
    }
    q.o.activation_ratio = below(state, 3);
    q.o.memory_bytes = below(state, 3) == 0 ? 2 + below(state, 20) : 0;
    q.o.is_straight = below(state, 4) == 0;
    q.o.may_use_fewer = below(state, 3) == 0;
    return q;
}

static bool contains(const question *q, uint32_t whole, uint32_t part)
{
    return (q->s->sets[part] & ~q->s->sets[whole]) == 0;
}

static double unit_time(question *q, uint32_t level, uint32_t from, uint32_t to);

/* Terms of a part's cost: bandwidths in bytes/s; `behind` units of its kind follow. */
typedef struct terms {
    double exchange, in, out, divisor, behind;
    bool is_first;
} terms;

static double part_time(question *q, const terms *t, uint32_t level, uint32_t from, uint32_t to,
                        uint32_t units)
{
    const ty_states *s = q->s;
    double r = units, weights = s->parameter_bytes[to] - s->parameter_bytes[from];
    double held = weights + s->activation_bytes[to] - s->activation_bytes[from];
    double time = unit_time(q, level, from, to);

    if (q->o.memory_bytes > 0 && ceil(t->behind / r) * held > q->o.memory_bytes)
        return HUGE_VAL;
    time = (time + 4 * (r - 1) * weights / (t->exchange * r) / t->divisor) / r;
    if (t->is_first || q->o.activation_ratio == 0)
        return time;
    time = fmax(time, 2 * s->output_bytes[from] / (t->in * r) / q->o.activation_ratio);
    if (to + 1 != s->count)
        time = fmax(time, 2 * s->output_bytes[to] / (t->out * r) / q->o.activation_ratio);
    return time;
}

/* ---- One level of PipeDream's optimizer
 * ---------------------------------------------------------- */

static void try_level(question *q, uint32_t level, uint32_t at, uint32_t to, uint32_t used,
                      double worst, double *best)
{
    const uint32_t units = q->levels[level].units;

    if (at == to && (used == units || q->o.may_use_fewer))
        *best = fmin(*best, worst);
    if (used > 0 && used < units && q->o.may_use_fewer)
        try_level(q, level, at, to, used + 1, worst, best);
    for (uint32_t next = at + 1; next <= to; next++)
        for (uint32_t r = 1; r <= (q->o.is_straight ? 1 : units) && used + r <= units; r++) {
            const double b = q->levels[level].bandwidth_bytes_per_s;
            const terms t = {.exchange = b,
                             .in = b,
                             .out = b,
                             .divisor = used == 0 && level > 0 ? q->levels[level - 1].units : 1,
                             .behind = units - used - r,
                             .is_first = used == 0};
            if (contains(q, to, next) && contains(q, next, at))
                try_level(q, level, next, to, used + r,
                          fmax(worst, part_time(q, &t, level, at, next, r)), best);
        }
}

/* Seconds of one unit of a level. */
static double unit_time(question *q, uint32_t level, uint32_t from, uint32_t to)
{
    double *known = &q->unit_s[level][from][to];

    if (level == 0)
        return q->s->compute_s[to] - q->s->compute_s[from];
    if (*known < 0) {
        *known = HUGE_VAL;
        try_level(q, level - 1, from, to, 0, 0, known);
    }
    return *known;
}

/* ---- Placed on devices -------------------------------------------------------------------------
 */

static double bandwidth(const question *q, uint32_t a, uint32_t b)
{
    for (uint32_t l = 0;; l++)
        if (a / q->size[l + 1] == b / q->size[l + 1])
            return q->levels[l].bandwidth_bytes_per_s;
}

static void try_flat(question *q, uint32_t at, uint32_t used, double worst, double *best)
{
    const uint32_t last = q->s->count - 1, devices = q->size[q->o.level_count];

    if (at == last && (used == devices || q->o.may_use_fewer))
        *best = fmin(*best, worst);
    if (used > 0 && used < devices && q->o.may_use_fewer)
        try_flat(q, at, used + 1, worst, best);
    for (uint32_t level = 0; level < q->o.level_count; level++)
        for (uint32_t r = 1; r <= (q->o.is_straight ? 1 : devices); r++) {
            uint32_t end = used + r * q->size[level];
            if (used % q->size[level] != 0 || end > devices)
                break;
            for (uint32_t next = at + 1; next <= last; next++) {
                const terms t = {.exchange = bandwidth(q, used, end - 1),
                                 .in = used > 0 ? bandwidth(q, used - 1, end - 1) : 1,
                                 .out = end < devices ? bandwidth(q, used, end) : HUGE_VAL,
                                 .divisor = 1,
                                 .behind = (double)(devices - end) / q->size[level],
                                 .is_first = used == 0};
                if (contains(q, next, at))
                    try_flat(q, next, end, fmax(worst, part_time(q, &t, level, at, next, r)), best);
            }
        }
}

/* ---- Comparing ---------------------------------------------------------------------------------
 */

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fmax(fabs(a), fabs(b));
}

/* The parts inside one part (or at the top) must lead from its first state to its last, in
 * order. */
static void check_parts(const ty_division *d, uint32_t parent, uint32_t from, uint32_t to,
                        double limit_s)
{
    uint32_t at = from, device = parent == TY_NO_PART ? 0 : d->parts[parent].first_device;

    for (uint32_t i = 0; i < d->part_count; i++) {
        const ty_division_part *p = &d->parts[i];
        if (p->parent != parent)
            continue;
        cr_assert_eq(p->from, at);
        cr_assert_geq(p->first_device, device);
        cr_assert_leq(p->time_s, limit_s * (1 + 1e-12));
        at = p->to;
        device = p->first_device + 1;
        if (p->level > 0)
            check_parts(d, i, p->from, p->to, HUGE_VAL);
    }
    cr_assert_eq(at, to);
}

static void check_equal(question *q, const ty_division *d, double best, uint32_t number,
                        const char *name)
{
    cr_assert(is_near(d->time_s, best), "%s, question %u: %.17g, not %.17g", name, number,
              d->time_s, best);
    check_parts(d, TY_NO_PART, 0, q->s->count - 1, d->time_s);
}

static void check_question(uint32_t number, uint64_t state, uint32_t *feasible)
{
    static question q; /* its table is too large for the stack */
    ty_layer_graph *graph;
    ty_states *states = NULL;
    ty_division *levels = NULL, *flat = NULL;
    ty_error error = {0};
    double best, best_flat = HUGE_VAL;
    ty_status status;

    q = random_question(&state);
    q.o.levels = q.levels;
    graph = graph_of(&q.graph);
    cr_assert_eq(ty_states_find(graph, &states, &error), TY_OK, "%s", error.message);
    q.s = states;
    for (uint32_t l = 0; l < 4; l++)
        for (uint32_t i = 0; i < MOST_STATES * MOST_STATES; i++)
            q.unit_s[l][i / MOST_STATES][i % MOST_STATES] = -1;
    best = unit_time(&q, q.o.level_count, 0, states->count - 1);
    try_flat(&q, 0, 0, 0, &best_flat);
    best_flat = fmin(best, best_flat);
    status = ty_divide(states, &q.o, &levels, &error);
    cr_assert_eq(status, best < HUGE_VAL ? TY_OK : TY_EINFEASIBLE, "question %u: %s", number,
                 error.message);
    if (levels != NULL)
        check_equal(&q, levels, best, number, "hierarchical");
    q.o.is_flat = true;
    status = ty_divide(states, &q.o, &flat, &error);
    cr_assert_eq(status, best_flat < HUGE_VAL ? TY_OK : TY_EINFEASIBLE, "question %u: %s", number,
                 error.message);
    if (flat != NULL)
        check_equal(&q, flat, best_flat, number, "flat");
    *feasible += levels != NULL;
    ty_division_free(levels);
    ty_division_free(flat);
    ty_states_free(states);
    ty_layer_graph_free(graph);
}

Test(division, equals_brute_force)
{
    uint64_t seed = test_seed("division");
    uint32_t feasible = 0;
    for (uint32_t i = 1; i <= 1500; i++)
        check_question(i, seed + i * 0x9e3779b97f4a7c15u, &feasible);
    cr_assert_gt(feasible, 500);
}

Test(division, refusals)
{
    const ty_graph_layer layer = {.compute_s = 1, .activation_bytes = 100};
    static const struct {
        const char *name, *message;
        ty_level level;
        double memory_bytes, ratio;
        ty_status status;
    } rows[] = {{"no unit", "0 units", {0, 1}, 0, 0, TY_EINVAL},
                {"no bandwidth", "bytes/s", {2, 0}, 0, 0, TY_EINVAL},
                {"too many", "4096", {5000, 1}, 0, 0, TY_EINVAL},
                {"not a ratio", "ratio", {2, 1}, 0, -1, TY_EINVAL},
                {"not a memory", "memory", {2, 1}, NAN, 0, TY_EINVAL}};
    ty_layer_graph *graph = NULL;
    ty_states *states = NULL;
    ty_division *division = NULL;

    cr_assert_eq(ty_layer_graph_make(&layer, 1, NULL, 0, &graph, NULL), TY_OK);
    cr_assert_eq(ty_states_find(graph, &states, NULL), TY_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const ty_divide_options o = {.levels = &rows[i].level,
                                     .level_count = 1,
                                     .memory_bytes = rows[i].memory_bytes,
                                     .activation_ratio = rows[i].ratio};
        ty_error error = {0};
        cr_assert_eq(ty_divide(states, &o, &division, &error), rows[i].status, "%s", rows[i].name);
        cr_assert(strstr(error.message, rows[i].message) != NULL, "%s: %s", rows[i].name,
                  error.message);
    }
    cr_assert_null(division);
    ty_states_free(states);
    ty_layer_graph_free(graph);
}

/* A merged and partitioned graph, with all intermediate results. */
static ty_status do_all(const small_graph *g, ty_error *error)
{
    const ty_level levels[] = {{2, 2}, {2, 1}};
    const ty_divide_options o = {
        .levels = levels, .level_count = 2, .activation_ratio = 1, .is_flat = true};
    ty_status status = TY_OK;
    ty_layer_graph *graph = NULL, *merged = NULL;
    ty_states *states = NULL;
    ty_division *division = NULL;
    uint32_t owners[MOST_SMALL];

    TY_CHECK(ty_layer_graph_make(g->layers, g->n, g->edges, g->edge_count, &graph, error), status,
             cleanup);
    TY_CHECK(ty_layer_graph_merge(graph, &merged, owners, error), status, cleanup);
    TY_CHECK(ty_states_find(graph, &states, error), status, cleanup);
    TY_CHECK(ty_divide(states, &o, &division, error), status, cleanup);

cleanup:
    ty_division_free(division);
    ty_states_free(states);
    ty_layer_graph_free(merged);
    ty_layer_graph_free(graph);
    return status;
}

Test(division, runs_out_of_memory)
{
    uint64_t state = 7;
    small_graph g = random_graph(&state, MOST_SMALL);
    long failures = 0;

    while (g.n < MOST_SMALL || g.edge_count < 9 || g.edge_count > 11)
        g = random_graph(&state, MOST_SMALL);
    for (ty_status status = TY_ENOMEM; status != TY_OK; failures++) {
        ty_error error = {0};
        ty_memory_fail_after(failures + 1);
        status = do_all(&g, &error);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || (status == TY_ENOMEM && error.message[0] != '\0'),
                  "allocation %ld: %s", failures + 1, error.message);
    }
    cr_assert_gt(failures, 20);
}
