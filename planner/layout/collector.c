/* Keeps the best layouts and the front of time against memory. */
#include "search.h"

#include "ty_memory.h"

#include <string.h>

#define MOST_RESULTS 1000

ty_status layout_collector_open(layout_collector *c, const ty_layout_options *options,
                                ty_error *error)
{
    if (options->top == 0 || options->top > MOST_RESULTS)
        return ty_fail(error, TY_EINVAL, "layout search: top: found %u, expected 1 to %d",
                       options->top, MOST_RESULTS);
    c->top = options->top;
    c->answer = ty_alloc(1, sizeof *c->answer);
    if (c->answer != NULL)
        c->answer->best = ty_alloc(options->top, sizeof *c->answer->best);
    if (c->answer == NULL || c->answer->best == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for %u layouts", options->top);
    return TY_OK;
}

void ty_layout_answer_free(ty_layout_answer *answer)
{
    if (answer == NULL)
        return;
    ty_free(answer->best);
    ty_free(answer->front);
    ty_free(answer);
}

static bool is_before(const ty_layout *l, const ty_layout_estimate *e, const ty_layout_result *r)
{
    if (e->step_time_s != r->estimate.step_time_s)
        return e->step_time_s < r->estimate.step_time_s;
    if (e->memory.total != r->estimate.memory.total)
        return e->memory.total < r->estimate.memory.total;
    return ty_layout_compare(l, &r->layout) < 0;
}

static void keep_best(layout_collector *c, const ty_layout *l, const ty_layout_estimate *e)
{
    ty_layout_answer *a = c->answer;
    uint32_t at = a->best_count;

    if (at == c->top && !is_before(l, e, &a->best[at - 1]))
        return;
    if (at < c->top)
        a->best_count++;
    else
        at--;
    for (; at > 0 && is_before(l, e, &a->best[at - 1]); at--)
        a->best[at] = a->best[at - 1];
    a->best[at] = (ty_layout_result){*l, *e};
}

/* Members of the front not slower than `time_s`; the last of them is the smallest. */
static uint32_t front_until(const ty_layout_answer *a, double time_s, bool with_equal)
{
    uint32_t low = 0, high = a->front_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        double at = a->front[middle].estimate.step_time_s;
        if (at < time_s || (with_equal && at == time_s))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool layout_is_beaten(const layout_collector *c, double time_s, double memory_bytes)
{
    const ty_layout_answer *a = c->answer;
    uint32_t faster = front_until(a, time_s, false);
    return a->best_count == c->top && a->best[c->top - 1].estimate.step_time_s < time_s &&
           faster > 0 && a->front[faster - 1].estimate.memory.total <= memory_bytes;
}

static bool grow(layout_collector *c)
{
    ty_layout_answer *a = c->answer;
    uint32_t capacity = c->front_capacity > 0 ? 2 * c->front_capacity : 64;
    ty_layout_result *grown;
    if (a->front_count < c->front_capacity)
        return true;
    grown = ty_resize(a->front, capacity, sizeof *grown);
    if (grown == NULL)
        return false;
    a->front = grown;
    c->front_capacity = capacity;
    return true;
}

/* The front rises in time and falls in memory, strictly. */
static bool keep_front(layout_collector *c, const ty_layout *l, const ty_layout_estimate *e)
{
    ty_layout_answer *a = c->answer;
    uint32_t from = front_until(a, e->step_time_s, false), until = from;

    if (from > 0 && a->front[from - 1].estimate.memory.total <= e->memory.total)
        return true;
    if (from < a->front_count && a->front[from].estimate.step_time_s == e->step_time_s &&
        !is_before(l, e, &a->front[from]))
        return true;
    if (!grow(c))
        return false;
    while (until < a->front_count && a->front[until].estimate.memory.total >= e->memory.total)
        until++;
    memmove(&a->front[from + 1], &a->front[until], (a->front_count - until) * sizeof *a->front);
    a->front_count = a->front_count - (until - from) + 1;
    a->front[from] = (ty_layout_result){*l, *e};
    return true;
}

bool layout_collect_result(layout_collector *c, const ty_layout *l,
                           const ty_layout_estimate *estimate)
{
    keep_best(c, l, estimate);
    return keep_front(c, l, estimate);
}
