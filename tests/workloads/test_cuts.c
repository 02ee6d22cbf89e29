/* ty_workload_cuts, which iterates over the layers once, against ty_workload_is_cut, which iterates
 * over them for each cut. */
#include "ty_workloads.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

static void check_cuts(const ty_workload *w, const char *name)
{
    uint32_t *cuts = NULL, count = 0, next = 0;
    ty_error error = {0};

    cr_assert_eq(ty_workload_cuts(w, &cuts, &count, &error), TY_OK, "%s: %s", name, error.message);
    for (uint32_t position = 0; position <= w->layer_count; position++) {
        bool is_listed = next < count && cuts[next] == position;
        next += is_listed;
        cr_assert_eq(is_listed, ty_workload_is_cut(w, position), "%s: position %u of %u is %s",
                     name, position, w->layer_count, is_listed ? "listed" : "missing");
    }
    cr_assert_eq(next, count, "%s: cuts out of order", name);
    ty_free(cuts);
}

Test(cuts, of_the_zoo)
{
    char **names = NULL;
    uint32_t count = 0;
    ty_error error = {0};

    cr_assert_eq(ty_zoo_list(&names, &count, &error), TY_OK, "%s", error.message);
    for (uint32_t i = 0; i < count; i++) {
        ty_workload *w = NULL;
        cr_assert_eq(ty_workload_open(names[i], &w, &error), TY_OK, "%s", error.message);
        check_cuts(w, names[i]);
        ty_workload_free(w);
        ty_free(names[i]);
    }
    ty_free(names);
}

/* linear, relu, linear, add of the first and third, relu. */
Test(cuts, of_a_residual_block)
{
    ty_builder *b = ty_builder_new("block", TY_INPUT_REAL, &(ty_shape){1, {4}});
    uint32_t first = ty_builder_linear(b, TY_BATCH, 4, true), *cuts = NULL, count = 0;
    uint32_t x = ty_builder_linear(b, ty_builder_relu(b, first), 4, true);
    ty_workload *w = NULL;

    x = ty_builder_add(b, (uint32_t[]){first, x}, 2);
    ty_builder_relu(b, x);
    cr_assert_eq(ty_builder_finish(b, &w, NULL), TY_OK);
    cr_assert_eq(ty_workload_cuts(w, &cuts, &count, NULL), TY_OK);
    cr_assert_eq(count, 2);
    cr_assert(cuts[0] == 1 && cuts[1] == 4, "found %u and %u", cuts[0], cuts[1]);
    ty_free(cuts);
    ty_workload_free(w);
}

static uint32_t below(uint64_t *state, uint32_t limit)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 11) % limit;
}

/* Layers that read one or two of the last few, sometimes the batch; the last one adds up all unread
 * outputs. */
static ty_workload *random_workload(uint64_t *state)
{
    enum { MOST = 30, REACH = 3 };
    ty_builder *b = ty_builder_new("random", TY_INPUT_REAL, &(ty_shape){1, {4}});
    uint32_t count = 2 + below(state, MOST - 2), unread[MOST], unread_count = 0;
    bool is_read[MOST] = {false};
    ty_workload *w = NULL;
    ty_error error = {0};

    ty_builder_relu(b, TY_BATCH);
    for (uint32_t i = 1; i < count; i++) {
        uint32_t reach = i < REACH ? i : REACH, inputs[2];
        inputs[0] = i - 1 - below(state, reach);
        inputs[1] = i - 1 - below(state, reach);
        if (below(state, 200) == 0) {
            ty_builder_relu(b, TY_BATCH);
            continue;
        }
        is_read[inputs[0]] = true;
        if (inputs[0] == inputs[1] || below(state, 3) != 0) {
            ty_builder_relu(b, inputs[0]);
            continue;
        }
        is_read[inputs[1]] = true;
        ty_builder_add(b, inputs, 2);
    }
    for (uint32_t i = 0; i < count; i++)
        if (!is_read[i])
            unread[unread_count++] = i;
    if (unread_count > 1)
        ty_builder_add(b, unread, unread_count);
    cr_assert_eq(ty_builder_finish(b, &w, &error), TY_OK, "%s", error.message);
    return w;
}

Test(cuts, of_random_graphs)
{
    const char *text = getenv("TY_TEST_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : 11;
    uint32_t cut_count = 0;

    fprintf(stderr, "cuts: seed %llu (TY_TEST_SEED)\n", (unsigned long long)seed);
    for (uint32_t i = 1; i <= 500; i++) {
        uint64_t state = seed + i * 0x9e3779b97f4a7c15u;
        char name[64];
        ty_workload *w = random_workload(&state);
        snprintf(name, sizeof name, "seed %llu, graph %u", (unsigned long long)seed, i);
        check_cuts(w, name);
        for (uint32_t k = 0; k < w->layer_count; k++)
            cut_count += ty_workload_is_cut(w, k);
        ty_workload_free(w);
    }
    cr_assert_gt(cut_count, 500);
}

Test(cuts, refuse_nothing)
{
    ty_workload empty = {.name = "empty"};
    uint32_t *cuts = NULL, count = 7;
    ty_error error = {0};
    cr_assert_eq(ty_workload_cuts(&empty, &cuts, &count, &error), TY_EINVAL);
    cr_assert_str_eq(error.message, "empty: has no layers");
    cr_assert(cuts == NULL && count == 7);
}
