/* Fluid flows: shares of textbooks, and random ones against water filling from scratch. */
#include "flow.h"

#include "../quick.h"
#include "ty_base.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

enum { MOST_LINKS = 6, MOST_FLOWS = 24, MOST_HOPS = 4 };

typedef struct one_flow {
    double start_s, amount, limit;
    uint32_t hop_count;
    ty_hop hops[MOST_HOPS];
} one_flow;

typedef struct network {
    uint32_t link_count, flow_count;
    double capacities[MOST_LINKS];
    one_flow flows[MOST_FLOWS];
} network;

/* Flows start when a wait, a flow without links, ends: contexts below MOST_FLOWS are flows. */
static void run(const network *n, double ends_s[MOST_FLOWS])
{
    static char contexts[2 * MOST_FLOWS];
    ty_flows *flows = NULL;
    ty_error error = {0};
    const char *ended;

    cr_assert_eq(ty_flows_new(n->capacities, n->link_count, &flows, &error), TY_OK);
    for (uint32_t f = 0; f < n->flow_count; f++)
        cr_assert_eq(
            ty_flows_start(flows, NULL, 0, n->flows[f].start_s, 1.0, &contexts[MOST_FLOWS + f]),
            TY_OK);
    while ((ended = ty_flows_next(flows)) != NULL) {
        const uint32_t which = (uint32_t)(ended - contexts);
        const one_flow *f = &n->flows[which % MOST_FLOWS];
        if (which < MOST_FLOWS)
            ends_s[which] = ty_flows_clock(flows);
        else
            cr_assert_eq(ty_flows_start(flows, f->hops, f->hop_count, f->amount, f->limit,
                                        &contexts[which % MOST_FLOWS]),
                         TY_OK);
    }
    ty_flows_free(flows);
}

/* ---- From scratch -------------------------------------------------------------------------- */

/* Raises all rates of active flows together until each is stopped by its limit or a full link. */
static void fill(const network *n, const bool *is_active, double *rates)
{
    bool is_fixed[MOST_FLOWS];
    double level = 0.0;

    for (uint32_t f = 0; f < n->flow_count; f++) {
        is_fixed[f] = !is_active[f];
        rates[f] = 0.0;
    }
    for (;;) {
        double rise = HUGE_VAL;
        for (uint32_t f = 0; f < n->flow_count; f++)
            if (!is_fixed[f])
                rise = fmin(rise, n->flows[f].limit - level);
        double room[MOST_LINKS], weight[MOST_LINKS] = {0};
        for (uint32_t l = 0; l < n->link_count; l++)
            room[l] = n->capacities[l];
        for (uint32_t f = 0; f < n->flow_count; f++)
            for (uint32_t h = 0; h < n->flows[f].hop_count; h++) {
                const ty_hop *hop = &n->flows[f].hops[h];
                room[hop->link] -= rates[f] * hop->weight;
                weight[hop->link] += is_fixed[f] ? 0.0 : hop->weight;
            }
        for (uint32_t l = 0; l < n->link_count; l++)
            if (weight[l] > 0.0)
                rise = fmin(rise, room[l] / weight[l]);
        if (isinf(rise))
            return;
        level += rise;
        for (uint32_t f = 0; f < n->flow_count; f++) {
            if (is_fixed[f])
                continue;
            rates[f] = level;
            is_fixed[f] = level >= n->flows[f].limit * (1 - 1e-12);
            for (uint32_t h = 0; h < n->flows[f].hop_count; h++) {
                const uint32_t l = n->flows[f].hops[h].link;
                is_fixed[f] |= room[l] - rise * weight[l] <= 1e-9 * n->capacities[l];
            }
        }
    }
}

static void run_from_scratch(const network *n, double ends_s[MOST_FLOWS])
{
    double left[MOST_FLOWS], rates[MOST_FLOWS], now_s = 0.0;
    bool is_active[MOST_FLOWS], has_ended[MOST_FLOWS] = {false};

    for (uint32_t f = 0; f < n->flow_count; f++)
        left[f] = n->flows[f].amount;
    for (;;) {
        double next_s = HUGE_VAL;
        for (uint32_t f = 0; f < n->flow_count; f++)
            is_active[f] = !has_ended[f] && n->flows[f].start_s <= now_s;
        fill(n, is_active, rates);
        for (uint32_t f = 0; f < n->flow_count; f++) {
            if (is_active[f])
                next_s = fmin(next_s, now_s + left[f] / rates[f]);
            else if (!has_ended[f])
                next_s = fmin(next_s, n->flows[f].start_s);
        }
        if (isinf(next_s))
            return;
        for (uint32_t f = 0; f < n->flow_count; f++) {
            if (!is_active[f])
                continue;
            left[f] -= rates[f] * (next_s - now_s);
            has_ended[f] = left[f] <= 1e-9 * n->flows[f].amount;
            if (has_ended[f])
                ends_s[f] = next_s;
        }
        now_s = next_s;
    }
}

static uint32_t random_below(uint64_t *state, uint32_t bound)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u; /* Knuth, MMIX */
    return (uint32_t)(*state >> 33) % bound;
}

static void random_network(network *n, uint64_t *state)
{
    n->link_count = 1 + random_below(state, MOST_LINKS);
    n->flow_count = 1 + random_below(state, MOST_FLOWS);
    for (uint32_t l = 0; l < n->link_count; l++)
        n->capacities[l] = 1 + random_below(state, 5);
    for (uint32_t f = 0; f < n->flow_count; f++) {
        one_flow *flow = &n->flows[f];
        *flow = (one_flow){
            .start_s = random_below(state, 8),
            .amount = 1 + random_below(state, 20),
            .limit = random_below(state, 2) == 0 ? HUGE_VAL : 0.25 * (1 + random_below(state, 8))};
        const uint32_t first = random_below(state, n->link_count);
        const uint32_t most = n->link_count < MOST_HOPS ? n->link_count : MOST_HOPS;
        flow->hop_count = 1 + random_below(state, most);
        for (uint32_t h = 0; h < flow->hop_count; h++)
            flow->hops[h] = (ty_hop){(first + h) % n->link_count, 1 + random_below(state, 3) / 2};
    }
}

Test(flow, random_flows_equal_water_filling_from_scratch)
{
    const uint32_t networks = quick_or_all(500, 20000);

    for (uint64_t seed = 1; seed <= networks; seed++) {
        uint64_t state = seed;
        double found[MOST_FLOWS], expected[MOST_FLOWS];
        network n;
        random_network(&n, &state);
        run(&n, found);
        run_from_scratch(&n, expected);
        for (uint32_t f = 0; f < n.flow_count; f++)
            cr_expect(fabs(found[f] - expected[f]) <= 1e-7 * expected[f],
                      "seed %u, flow %u of %u: found %.12g, expected %.12g", (unsigned)seed, f,
                      n.flow_count, found[f], expected[f]);
    }
}

/* Worked out by hand. */
Test(flow, shares_of_textbooks)
{
    static const struct {
        const char *name;
        network network;
        double ends_s[3];
    } rows[] = {
        {"two on a link",
         {1, 2, {1}, {{0, 1, HUGE_VAL, 1, {{0, 1}}}, {0, 2, HUGE_VAL, 1, {{0, 1}}}}},
         {2, 3}},
        {"the second comes later",
         {1, 2, {1}, {{0, 2, HUGE_VAL, 1, {{0, 1}}}, {1, 2, HUGE_VAL, 1, {{0, 1}}}}},
         {3, 4}},
        /* One over both links, one over each: 1/2, 1/2 and 3/2; then the rest. */
        {"three on a line",
         {2,
          3,
          {1, 2},
          {{0, 1, HUGE_VAL, 2, {{0, 1}, {1, 1}}},
           {0, 1, HUGE_VAL, 1, {{0, 1}}},
           {0, 3, HUGE_VAL, 1, {{1, 1}}}}},
         {2, 2, 2}},
        /* A limit of 0.2 leaves 0.8. */
        {"a limited one",
         {1, 2, {1}, {{0, 1, 0.2, 1, {{0, 1}}}, {0, 1.6, HUGE_VAL, 1, {{0, 1}}}}},
         {5, 2}},
        /* One that stands for three: 1/4 each. */
        {"a weight of three",
         {1, 2, {1}, {{0, 1, HUGE_VAL, 1, {{0, 3}}}, {0, 1, HUGE_VAL, 1, {{0, 1}}}}},
         {4, 4}},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double found[MOST_FLOWS];
        run(&rows[i].network, found);
        for (uint32_t f = 0; f < rows[i].network.flow_count; f++)
            cr_expect(fabs(found[f] - rows[i].ends_s[f]) <= 1e-12 * rows[i].ends_s[f],
                      "%s, flow %u: found %.12g, expected %g", rows[i].name, f, found[f],
                      rows[i].ends_s[f]);
    }
}

/* Every allocation fails once. */
Test(flow, out_of_memory)
{
    static const double capacity = 1.0;
    static char context;
    ty_status status = TY_ENOMEM;

    for (long n = 0; status == TY_ENOMEM; n++) {
        ty_flows *flows = NULL;
        ty_memory_fail_after(n);
        status = ty_flows_new(&capacity, 1, &flows, NULL);
        if (status == TY_OK)
            status = ty_flows_start(flows, &(ty_hop){0, 1}, 1, 1.0, HUGE_VAL, &context);
        ty_memory_fail_after(-1);
        if (status == TY_OK)
            cr_expect_eq(ty_flows_next(flows), &context);
        ty_flows_free(flows);
        cr_assert(n < 100);
    }
    cr_expect_eq(status, TY_OK);
}
