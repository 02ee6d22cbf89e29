/* One order of launches over processes that receive stamps in any order. */
#include "launch_order.h"

#include <criterion/criterion.h>
#include <stdlib.h>

enum { PROCESSES = 6, OPERATIONS = 40 };

typedef struct operation {
    bool is_member[PROCESSES], has_proposed[PROCESSES], is_told[PROCESSES], is_launched[PROCESSES];
    ty_launch launch[PROCESSES];
} operation;

/* Any of the messages in flight arrives next. */
typedef struct world {
    ty_launch_order orders[PROCESSES];
    operation operations[OPERATIONS];
    int launched[PROCESSES][OPERATIONS], count[PROCESSES];
    unsigned seed;
} world;

static int pick(world *w, int below)
{
    return rand_r(&w->seed) % below;
}

static uint64_t latest_of(const operation *o, bool *is_complete)
{
    uint64_t latest = 0;

    *is_complete = true;
    for (int p = 0; p < PROCESSES; p++) {
        if (!o->is_member[p])
            continue;
        *is_complete = *is_complete && o->has_proposed[p];
        if (o->has_proposed[p] && o->launch[p].stamp > latest)
            latest = o->launch[p].stamp;
    }
    return latest;
}

/* A random event of an operation in a process. Processes that received the latest stamp agree on
 * it. */
static bool step(world *w, int index, int p)
{
    operation *o = &w->operations[index];
    bool is_complete;
    const uint64_t latest = latest_of(o, &is_complete);

    if (!o->is_member[p] || o->is_launched[p])
        return false;
    if (!o->has_proposed[p]) {
        o->launch[p].name = (uint64_t)index;
        ty_launch_propose(&w->orders[p], &o->launch[p]);
        o->has_proposed[p] = true;
    } else if (!o->is_told[p]) {
        if (!is_complete)
            return false;
        ty_launch_decide(&w->orders[p], &o->launch[p], latest);
        o->is_told[p] = true;
    } else if (ty_launch_is_next(&w->orders[p], &o->launch[p])) {
        w->launched[p][w->count[p]++] = index;
        o->is_launched[p] = true;
        (void)ty_launch_leave(&w->orders[p], &o->launch[p]);
    } else {
        return false;
    }
    return true;
}

static bool is_before(const world *w, int p, int a, int b)
{
    for (int i = 0; i < w->count[p]; i++) {
        if (w->launched[p][i] == a)
            return true;
        if (w->launched[p][i] == b)
            return false;
    }
    return false;
}

/* Operations that are next on all their members are removed; at the end none is left, or there was
 * a cycle. */
static int taken_in_turn(const world *w)
{
    int at[PROCESSES] = {0}, taken = 0;
    bool is_taken = true;

    while (is_taken) {
        is_taken = false;
        for (int o = 0; o < OPERATIONS; o++) {
            bool is_first = true;
            for (int p = 0; p < PROCESSES; p++)
                if (w->operations[o].is_member[p] &&
                    (at[p] == w->count[p] || w->launched[p][at[p]] != o))
                    is_first = false;
            for (int p = 0; is_first && p < PROCESSES; p++)
                at[p] += w->operations[o].is_member[p];
            taken += is_first;
            is_taken = is_taken || is_first;
        }
    }
    return taken;
}

Test(launch_order, is_one_on_all_processes)
{
    static world w;

    for (unsigned seed = 1; seed <= 300; seed++) {
        int left = 0, idle = 0;

        w = (world){.seed = seed};
        for (int p = 0; p < PROCESSES; p++)
            ty_launch_order_open(&w.orders[p]);
        for (int o = 0; o < OPERATIONS; o++) {
            const int first = pick(&w, PROCESSES);
            const int second = (first + 1 + pick(&w, PROCESSES - 1)) % PROCESSES;
            for (int p = 0; p < PROCESSES; p++) {
                w.operations[o].is_member[p] = p == first || p == second || pick(&w, 4) == 0;
                left += w.operations[o].is_member[p];
            }
        }
        while (left > 0 && idle < 100000) {
            const int o = pick(&w, OPERATIONS), p = pick(&w, PROCESSES);
            const bool was_launched = w.operations[o].is_launched[p];
            idle = step(&w, o, p) ? 0 : idle + 1;
            left -= !was_launched && w.operations[o].is_launched[p];
        }
        cr_assert_eq(left, 0, "seed %u: %d launches are held back without end", seed, left);
        for (int a = 0; a < OPERATIONS; a++)
            for (int b = 0; b < a; b++) {
                int before = 0, both = 0;
                for (int p = 0; p < PROCESSES; p++)
                    if (w.operations[a].is_member[p] && w.operations[b].is_member[p]) {
                        before += is_before(&w, p, a, b);
                        both++;
                    }
                cr_assert(before == 0 || before == both, "seed %u: %d and %d in both orders", seed,
                          a, b);
            }
        cr_assert_eq(taken_in_turn(&w), OPERATIONS, "seed %u: a ring of launches", seed);
        for (int p = 0; p < PROCESSES; p++)
            ty_launch_order_close(&w.orders[p]);
    }
}

/* When an operation leaves, the one that it blocked is reported, and only then. */
Test(launch_order, says_who_is_freed)
{
    ty_launch_order order;
    ty_launch first = {.name = 1}, second = {.name = 2}, third = {.name = 3};

    ty_launch_order_open(&order);
    ty_launch_propose(&order, &first);
    ty_launch_propose(&order, &second);
    ty_launch_propose(&order, &third);
    ty_launch_decide(&order, &second, second.stamp);
    cr_expect_not(ty_launch_is_next(&order, &second));
    ty_launch_decide(&order, &first, second.stamp); /* same stamp, but a smaller name */
    cr_expect(ty_launch_is_next(&order, &first));
    cr_expect_not(ty_launch_is_next(&order, &second));
    cr_expect(ty_launch_leave(&order, &first), "the second waits for it");
    cr_expect_not(ty_launch_leave(&order, &first), "it is not there any more");
    cr_expect(ty_launch_is_next(&order, &second));
    cr_expect_not(ty_launch_leave(&order, &second), "the third is not decided");
    ty_launch_decide(&order, &third, 100);
    cr_expect(ty_launch_is_next(&order, &third));
    ty_launch_propose(&order, &first);
    cr_expect_gt(first.stamp, 100, "later than all it knows");
    cr_expect_not(ty_launch_leave(&order, &first), "it held nobody back");
    cr_expect_not(ty_launch_leave(&order, &third), "nothing is left");
    ty_launch_order_close(&order);
}
