/*
 * Costs: collectives against the sum of their steps, and programs on two clusters with simple
 * figures that can be computed on paper: a made-up cluster without a profile, and this host with a
 * made-up profile.
 */
#include "plans.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

static bool is_close(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fmax(fabs(a), fabs(b));
}

/* ---- Collectives ------------------------------------------------------------------------- */

/* A ring: each step sends one message of `part` bytes. */
static double add_ring_steps(uint32_t steps, double part, double bandwidth, double latency)
{
    double seconds = 0;
    for (uint32_t i = 0; i < steps; i++)
        seconds += latency + part / bandwidth;
    return seconds;
}

/* A binomial tree: the number of members with the data doubles with each message. */
static double add_tree_rounds(uint32_t members, double part, double bandwidth, double latency)
{
    double seconds = 0;
    for (uint32_t have = 1; have < members; have *= 2)
        seconds += latency + part / bandwidth;
    return seconds;
}

/* A scatter along a binomial tree, 2^k members: each round forwards half of the remaining data. */
static double add_scatter_rounds(uint32_t members, double part, double bandwidth, double latency)
{
    double seconds = 0;
    for (uint32_t have = 1; have < members; have *= 2)
        seconds += latency + (part /= 2) / bandwidth;
    return seconds;
}

static double add_steps(ty_collective_kind kind, ty_algorithm algorithm, uint32_t n, double bytes,
                        double bandwidth, double latency)
{
    double part = bytes / n;
    bool is_tree = algorithm == TY_TREE;

    switch (kind) {
    case TY_ALL_REDUCE:
        return is_tree ? 2 * add_tree_rounds(n, bytes, bandwidth, latency)
                       : add_ring_steps(2 * (n - 1), part, bandwidth, latency);
    case TY_ALL_GATHER:
        return add_ring_steps(n - 1, bytes, bandwidth, latency);
    case TY_REDUCE_SCATTER:
    case TY_ALL_TO_ALL: /* N - 1 rounds, each with one shard to another member */
        return add_ring_steps(n - 1, part, bandwidth, latency);
    case TY_REDUCE:
    case TY_BROADCAST:
        return is_tree ? add_tree_rounds(n, bytes, bandwidth, latency)
                       : add_scatter_rounds(n, bytes, bandwidth, latency) +
                             add_ring_steps(n - 1, part, bandwidth, latency);
    case TY_SEND_RECEIVE:
        return n > 1 ? latency + bytes / bandwidth : 0;
    case TY_COLLECTIVE_COUNT:
        break;
    }
    return NAN;
}

Test(costs, collectives_step_by_step)
{
    const double bandwidth = 1e9, latency = 2e-6;

    for (int kind = 0; kind < TY_COLLECTIVE_COUNT; kind++) {
        for (int algorithm = 0; algorithm <= TY_TREE; algorithm++) {
            for (uint32_t n = 1; n <= 17; n++) {
                ty_instruction_cost cost;
                double expected = add_steps((ty_collective_kind)kind, (ty_algorithm)algorithm, n,
                                            1e6, bandwidth, latency);
                if ((kind == TY_BROADCAST || kind == TY_REDUCE) && (n & (n - 1)) != 0)
                    continue; /* the scatter above is for powers of two */
                cr_assert_eq(ty_collective_cost((ty_collective_kind)kind, (ty_algorithm)algorithm,
                                                n, 1000000, bandwidth, latency, &cost, NULL),
                             TY_OK);
                cr_expect(fabs(cost.seconds - expected) <= 1e-12 * (1 + expected),
                          "%s %s of %u: found %.12g, expected %.12g",
                          ty_algorithm_name((ty_algorithm)algorithm),
                          ty_collective_name((ty_collective_kind)kind), n, cost.seconds, expected);
                cr_expect_eq(cost.seconds, cost.latency_s + cost.edge_bytes / bandwidth);
                cr_expect_eq(cost.rate_limit_bytes_per_s, 0);
            }
        }
    }
}

/* Two rounds. In each round a member sends one shard to every other member: sends are serial, but
 * latencies overlap. */
Test(costs, shares_to_everybody_message_by_message)
{
    static const ty_algorithm algorithms[] = {TY_PARAMETER_SERVER, TY_BLOCK_MANAGER};

    for (uint32_t n = 1; n <= 17; n++)
        for (int a = 0; a < 2; a++) {
            double expected = n > 1 ? 2 * 2e-6 : 0;
            ty_instruction_cost cost;
            for (uint32_t message = 0; message < 2 * (n - 1); message++)
                expected += 1e6 / n / 1e9;
            cr_assert_eq(ty_collective_cost(TY_ALL_REDUCE, algorithms[a], n, 1000000, 1e9, 2e-6,
                                            &cost, NULL),
                         TY_OK);
            cr_expect(fabs(cost.seconds - expected) <= 1e-12 * (1 + expected),
                      "%u: found %.12g, expected %.12g", n, cost.seconds, expected);
        }
}

/* ---- On a torus ---------------------------------------------------------------------------- */

static ty_torus torus_of(const uint32_t *members, uint32_t axes, uint32_t lines, double rate)
{
    ty_torus torus = {.axis_count = axes};

    for (uint32_t i = 0; i < axes; i++)
        torus.axes[i] = (ty_torus_axis){.members = members[i],
                                        .spacing = 1,
                                        .is_ring = (lines >> i & 1) == 0 && members[i] > 2,
                                        .bandwidth_bytes_per_s = rate,
                                        .latency_s = 1e-6};
    return torus;
}

/* All-gathers along two axes of data of size 1. The fraction x has the first axis last, where most
 * data moves. Returns the best x by trial. */
static double best_of_two_orders(const ty_torus *torus)
{
    const double a = torus->axes[0].members, b = torus->axes[1].members;
    double rates[2], best = HUGE_VAL;

    for (int i = 0; i < 2; i++)
        rates[i] = (torus->axes[i].is_ring ? 2 : 1) * torus->axes[i].bandwidth_bytes_per_s;
    for (double x = 0; x <= 1; x += 1e-4) {
        const double first = (a - 1) / a * (x + (1 - x) / b);
        const double second = (b - 1) / b * (1 - x + x / a);
        best = fmin(best, fmax(first / rates[0], second / rates[1]));
    }
    return best;
}

Test(costs, two_axes_of_a_torus_take_the_best_mix_of_orders)
{
    for (uint32_t lines = 0; lines < 4; lines++)
        for (uint32_t a = 2; a <= 9; a++)
            for (uint32_t b = 2; b <= 17; b += 3) {
                const ty_torus torus = torus_of((const uint32_t[]){a, b}, 2, lines, 1);
                const double n = (double)a * b, tried = best_of_two_orders(&torus);
                const double found = (n - 1) / n / ty_torus_rate(&torus, TY_ALL_GATHER, false);
                cr_expect(found <= tried * (1 + 1e-9) && found >= tried * (1 - 1e-3),
                          "%ux%u, lines %u: found %g, tried %g", a, b, lines, found, tried);
            }
}

/* Edmonds: orders reach all loads whose sums over sets of axes are at most the set's load when it
 * goes first in a scatter, 1 - 1/members, and over all axes exactly that. */
Test(costs, loads_of_a_torus_can_be_reached_and_one_set_is_always_busy)
{
    static const uint32_t shapes[][4] = {
        {4, 4, 4, 1}, {2, 16, 3, 1}, {12, 16, 16, 1}, {2, 2, 2, 9}, {5, 3, 7, 2}};

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (uint32_t lines = 0; lines < 16; lines++) {
            const uint32_t axes = shapes[s][3] > 1 ? 4 : 3;
            const ty_torus torus = torus_of(shapes[s], axes, lines, 3);
            const double n = ty_torus_members(&torus), sent = (n - 1) / n;
            double shares[TY_TORUS_AXES], busiest = 0;
            ty_torus_shares(&torus, TY_ALL_REDUCE, shares);
            for (uint32_t set = 1; set < 1u << axes; set++) {
                double load = 0, members = 1;
                for (uint32_t i = 0; i < axes; i++)
                    if (set >> i & 1) {
                        load += shares[i] * sent;
                        members *= torus.axes[i].members;
                    }
                cr_expect(load <= (1 - 1 / members) * (1 + 1e-12), "shape %zu, lines %u, set %u", s,
                          lines, set);
                if (set + 1 == 1u << axes)
                    cr_expect(fabs(load - sent) <= 1e-12, "shape %zu, lines %u: %g", s, lines,
                              load);
            }
            for (uint32_t i = 0; i < axes; i++)
                busiest = fmax(busiest, shares[i] / (torus.axes[i].is_ring ? 6 : 3));
            cr_expect(fabs(busiest * ty_torus_rate(&torus, TY_ALL_REDUCE, false) - 1) <= 1e-12);
        }
}

/* Every member sends 1/n of S to every other, in the shorter direction: the busiest link,
 * counted. */
Test(costs, an_all_to_all_crosses_the_middle_of_every_axis)
{
    for (uint32_t is_line = 0; is_line < 2; is_line++)
        for (uint32_t m = 3; m <= 12; m++) {
            const ty_torus torus = torus_of(&m, 1, is_line, 1);
            double forward[12] = {0}, busiest = 0;
            ty_instruction_cost cost;
            for (uint32_t from = 0; from < m; from++)
                for (uint32_t hops = 1; hops < m; hops++) {
                    /* equally far in both directions: half in each */
                    const double part = 2 * hops == m ? 0.5 : 2 * hops < m ? 1 : 0;
                    if (is_line == 1 && from + hops >= m)
                        continue;
                    for (uint32_t h = 0; h < hops; h++)
                        forward[(from + h) % m] += (is_line == 1 ? 1 : part) * 1e6 / m;
                }
            for (uint32_t l = 0; l < m; l++)
                busiest = fmax(busiest, forward[l]);
            ty_torus_cost(&torus, TY_ALL_TO_ALL, 1000000, &cost);
            cr_expect(fabs(cost.seconds - cost.latency_s - busiest) <= 1e-9 * busiest,
                      "%s of %u: found %g, counted %g", is_line ? "line" : "ring", m,
                      cost.seconds - cost.latency_s, busiest);
        }
}

Test(costs, bad_collectives_are_refused)
{
    const struct {
        int kind, algorithm;
        uint32_t members;
        double bandwidth, latency;
        const char *message;
    } rows[] = {
        {TY_ALL_REDUCE, TY_RING, 0, 1, 0, "all_reduce: found 0 members, expected at least 1"},
        {TY_ALL_GATHER, TY_RING, 2, 0, 0, "all_gather: found 0 bytes/s and 0 s of latency"},
        {TY_ALL_REDUCE, TY_RING, 2, NAN, 0, "expected a bandwidth > 0"},
        {TY_ALL_REDUCE, TY_RING, 2, 1, -1, "expected a bandwidth > 0 and a latency >= 0"},
        {TY_ALL_REDUCE, TY_ALGORITHM_COUNT, 2, 1, 0, "collective 0 by algorithm 6"},
        {TY_COLLECTIVE_COUNT, TY_RING, 2, 1, 0, "collective 7 by algorithm 0"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_instruction_cost cost = {.seconds = 42};
        ty_error error = {0};
        cr_expect_eq(ty_collective_cost((ty_collective_kind)rows[i].kind,
                                        (ty_algorithm)rows[i].algorithm, rows[i].members, 1,
                                        rows[i].bandwidth, rows[i].latency, &cost, &error),
                     TY_EINVAL, "%s", rows[i].message);
        cr_expect(strstr(error.message, rows[i].message) != NULL, "found \"%s\", expected \"%s\"",
                  error.message, rows[i].message);
        cr_expect_eq(cost.seconds, 42, "untouched on failure");
    }
}

/* ---- Programs ---------------------------------------------------------------------------- */

/* Two hosts with two devices each, one of them slow, behind a switch. */
static const char two_hosts[] =
    "{\"schema\": \"trainyard.cluster/1\", \"name\": \"two hosts\", \"device_types\": ["
    "{\"name\": \"slow\", \"source\": \"made up\", \"peak_fp32_flop_per_s\": 1e12,"
    " \"peak_tf32_flop_per_s\": 0, \"peak_fp16_flop_per_s\": 0,"
    " \"memory_bandwidth_bytes_per_s\": 1e9, \"launch_overhead_s\": 0, \"matmul_efficiency\": 1,"
    " \"memory_efficiency\": 0.5, \"core_share\": 0, \"power_w\": 100, \"memory_bytes\": "
    "1000000000},"
    "{\"name\": \"fast\", \"source\": \"made up\", \"peak_fp32_flop_per_s\": 2e12,"
    " \"peak_tf32_flop_per_s\": 0, \"peak_fp16_flop_per_s\": 0,"
    " \"memory_bandwidth_bytes_per_s\": 4e9, \"launch_overhead_s\": 0, \"matmul_efficiency\": 1,"
    " \"memory_efficiency\": 0.5, \"core_share\": 0, \"power_w\": 100, \"memory_bytes\": "
    "1000000000}],"
    "\"link_types\": ["
    "{\"name\": \"bus\", \"source\": \"made up\", \"bandwidth_bytes_per_s\": 1e9, \"latency_s\": "
    "1e-6},"
    "{\"name\": \"net\", \"source\": \"made up\", \"bandwidth_bytes_per_s\": 1e8, \"latency_s\": "
    "1e-5}],"
    "\"vertices\": ["
    "{\"name\": \"a\", \"kind\": \"host\"}, {\"name\": \"b\", \"kind\": \"host\"},"
    "{\"name\": \"a0\", \"kind\": \"device\", \"type\": \"slow\", \"host\": \"a\"},"
    "{\"name\": \"a1\", \"kind\": \"device\", \"type\": \"fast\", \"host\": \"a\"},"
    "{\"name\": \"b0\", \"kind\": \"device\", \"type\": \"fast\", \"host\": \"b\"},"
    "{\"name\": \"b1\", \"kind\": \"device\", \"type\": \"fast\", \"host\": \"b\"},"
    "{\"name\": \"s\", \"kind\": \"switch\"}],"
    "\"links\": ["
    "{\"from\": \"a0\", \"to\": \"a\", \"type\": \"bus\"},"
    "{\"from\": \"a1\", \"to\": \"a\", \"type\": \"bus\"},"
    "{\"from\": \"b0\", \"to\": \"b\", \"type\": \"bus\"},"
    "{\"from\": \"b1\", \"to\": \"b\", \"type\": \"bus\"},"
    "{\"from\": \"a\", \"to\": \"s\", \"type\": \"net\"},"
    "{\"from\": \"b\", \"to\": \"s\", \"type\": \"net\"}]}";

/* Layers 0 and 1 on a0 and a1, layers 2 and 3 on b0. (i + 1) ms forward per sample and twice that
 * backward; two samples per micro-batch. */
static const plan_shape two_plus_one = {.schedule = TY_GPIPE,
                                        .replicas = {2, 1},
                                        .layers = {2, 2},
                                        .buckets = 1,
                                        .micro_batches = 2,
                                        .compression.kind = TY_COMPRESSION_FP16,
                                        .recompute = TY_RECOMPUTE_FULL};

typedef struct cost_case {
    ty_plan *plan;
    ty_program *program;
    ty_cluster *cluster;
    ty_costs *costs;
} cost_case;

static cost_case open_case(const plan_shape *shape)
{
    cost_case c = {.plan = make_plan(shape)};
    ty_error error = {0};

    for (uint32_t i = 0; i < c.plan->workload->layer_count; i++) {
        c.plan->workload->layers[i].measured_forward_s = 1e-3 * (i + 1);
        c.plan->workload->layers[i].measured_backward_s = 2e-3 * (i + 1);
    }
    cr_assert_eq(ty_plan_lower(c.plan, &c.program, &error), TY_OK, "%s", error.message);
    return c;
}

static void find_costs(cost_case *c)
{
    ty_error error = {0};
    cr_assert_eq(ty_costs_of_program(c->plan, c->program, c->cluster, &c->costs, &error), TY_OK,
                 "%s", error.message);
}

static void close_case(cost_case *c)
{
    ty_costs_free(c->costs);
    ty_cluster_free(c->cluster);
    ty_program_free(c->program);
    ty_plan_free(c->plan);
}

/* The first instruction of an operation in a stage. */
static const ty_instruction_cost *cost_of(const cost_case *c, uint32_t stage, ty_op op)
{
    for (uint32_t i = 0; i < c->program->stages[stage].instruction_count; i++)
        if (c->program->stages[stage].instructions[i].op == op)
            return &c->costs->instructions[stage][i];
    cr_assert(false, "stage %u has no %s", stage, ty_op_name(op));
    return NULL;
}

typedef struct expected_cost {
    uint32_t stage;
    ty_op op;
    ty_instruction_cost cost;
} expected_cost;

static void expect_costs(const cost_case *c, const expected_cost *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const ty_instruction_cost *found = cost_of(c, rows[i].stage, rows[i].op);
        const ty_instruction_cost *expected = &rows[i].cost;
        cr_expect(is_close(found->seconds, expected->seconds) &&
                      is_close(found->latency_s, expected->latency_s) &&
                      is_close(found->edge_bytes, expected->edge_bytes) &&
                      is_close(found->rate_limit_bytes_per_s, expected->rate_limit_bytes_per_s) &&
                      found->core_share == expected->core_share,
                  "stage %u %s: found {%g %g %g %g %g}, expected {%g %g %g %g %g}", rows[i].stage,
                  ty_op_name(rows[i].op), found->seconds, found->latency_s, found->edge_bytes,
                  found->rate_limit_bytes_per_s, found->core_share, expected->seconds,
                  expected->latency_s, expected->edge_bytes, expected->rate_limit_bytes_per_s,
                  expected->core_share);
    }
}

/* Recomputing segments repeats their forward passes: layers 3 and 4, then 0 to 2. Layer 5 is not
 * repeated, since the forward pass has just computed it. */
Test(costs, recompute_of_segments)
{
    plan_shape shape = two_plus_one;
    cost_case c;
    double seconds[3] = {0};

    shape.replicas[0] = 1;
    shape.replicas[1] = 0;
    shape.layers[0] = 6;
    shape.layers[1] = 0;
    shape.recompute_blocks = 1;
    c = open_case(&shape);
    cr_assert_eq(ty_cluster_open("1x dgx-a100", NULL, &c.cluster, NULL), TY_OK);
    find_costs(&c);
    for (uint32_t i = 0, n = 0; i < c.program->stages[0].instruction_count; i++) {
        const ty_instruction *in = &c.program->stages[0].instructions[i];
        if (in->op == TY_OP_RECOMPUTE && in->micro_batch == 1)
            seconds[n++] = c.costs->instructions[0][i].seconds;
    }
    cr_expect(is_close(seconds[0], 2 * (4e-3 + 5e-3)), "%g", seconds[0]);
    cr_expect(is_close(seconds[1], 2 * (1e-3 + 2e-3 + 3e-3)), "%g", seconds[1]);
    cr_expect_eq(seconds[2], 0);
    close_case(&c);
}

Test(costs, data_sheet_on_paper)
{
    /* Bucket 0: 3000 parameters; bucket 1: 7000. The slow device has 0.5e9 bytes/s, the fast one
     * 2e9. */
    const expected_cost rows[] = {
        {0, TY_OP_LOAD, {.seconds = 0}},
        {0, TY_OP_FORWARD, {.seconds = 2 * (1e-3 + 2e-3)}},
        {0, TY_OP_RECOMPUTE, {.seconds = 2 * (1e-3 + 2e-3)}},
        {0, TY_OP_BACKWARD, {.seconds = 2 * (2e-3 + 4e-3)}},
        {0, TY_OP_RECEIVE, {.seconds = 0}},
        {0, TY_OP_SEND, {.seconds = 22e-6 + 800 / 1e8, .latency_s = 22e-6, .edge_bytes = 800}},
        {0, TY_OP_ENCODE, {.seconds = 1.5 * 12000 / 0.5e9}},
        /* Ring of two over the bus: 6000 bytes in each direction, two steps of two links. */
        {0,
         TY_OP_COLLECTIVE,
         {.seconds = 4e-6 + 6000 / 1e9, .latency_s = 4e-6, .edge_bytes = 6000}},
        {0, TY_OP_DECODE, {.seconds = 1.5 * 12000 / 0.5e9}},
        {0, TY_OP_UPDATE, {.seconds = 3.0 * 12000 / 0.5e9}},
        {1, TY_OP_FORWARD, {.seconds = 2 * (3e-3 + 4e-3)}},
        {1, TY_OP_SEND, {.seconds = 22e-6 + 800 / 1e8, .latency_s = 22e-6, .edge_bytes = 800}},
        {1, TY_OP_UPDATE, {.seconds = 3.0 * 28000 / 2e9}},
    };
    cost_case c = open_case(&two_plus_one);
    ty_error error = {0};

    cr_assert_eq(ty_cluster_parse(two_hosts, "two hosts", &c.cluster, &error), TY_OK, "%s",
                 error.message);
    find_costs(&c);
    expect_costs(&c, rows, sizeof rows / sizeof rows[0]);
    cr_expect_eq(c.costs->provenance, TY_DATASHEET);
    cr_expect_eq(c.costs->host_count, 2);
    cr_expect(isinf(c.costs->host_cores[0]) && isinf(c.costs->host_cores[1]));
    cr_expect(c.costs->replica_host[0] == 0 && c.costs->replica_host[1] == 0 &&
              c.costs->replica_host[2] == 1);
    close_case(&c);
}

/* Stage 1 has 7000 parameters on the fast device, 2e9 bytes/s; layers of unknown tensors count as
 * square matrices of 3000 and 4000 entries. A pass is 28000 bytes: Adam reads weight and gradient,
 * writes the weight, and reads and writes two states. The device has no bf16, so Muon's products
 * run in fp32, at 2e12 flop/s. */
Test(costs, updates_of_optimizers)
{
    const double edges = sqrt(3000) + sqrt(4000), cubes = pow(3000, 1.5) + pow(4000, 1.5);
    const struct {
        const char *word;
        double bytes, flop;
    } rows[] = {
        {"sgd", 3 * 28000.0, 0},
        {"momentum", 5 * 28000.0, 0},
        {"adam", 7 * 28000.0, 0},
        {"adam8bit", 7 * 28000.0, 0}, /* small tensors stay in fp32 */
        {"adafactor", 5 * 28000 + 2 * 4 * 2 * edges, 0},
        {"muon", 5 * 28000.0, 5 * (4 + 2) * cubes},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cost_case c = open_case(&two_plus_one);
        double seconds = rows[i].bytes / 2e9 + rows[i].flop / 2e12;
        cr_assert_eq(ty_optimizer_set(&c.plan->optimizer, rows[i].word, NULL), TY_OK);
        cr_assert_eq(ty_cluster_parse(two_hosts, "two hosts", &c.cluster, NULL), TY_OK);
        find_costs(&c);
        cr_expect(is_close(cost_of(&c, 1, TY_OP_UPDATE)->seconds, seconds), "%s: %g, not %g",
                  rows[i].word, cost_of(&c, 1, TY_OP_UPDATE)->seconds, seconds);
        close_case(&c);
    }
}

/* Tied across hosts: the ring a0, a1, b0 has no contention but is as slow as the interconnect
 * between the hosts. */
Test(costs, tied_weight_crosses_hosts)
{
    plan_shape shape = two_plus_one;
    cost_case c;
    double bytes = 4000 / 2; /* 1000 parameters, halves */
    double edge = 2 * 2.0 / 3 * bytes;

    shape.is_tied = true;
    c = open_case(&shape);
    cr_assert_eq(ty_cluster_parse(two_hosts, "two hosts", &c.cluster, NULL), TY_OK);
    find_costs(&c);
    expect_costs(
        &c,
        &(expected_cost){
            1,
            TY_OP_COLLECTIVE,
            {.seconds = 4 * 22e-6 + edge / 1e8, .latency_s = 4 * 22e-6, .edge_bytes = edge}},
        1);
    close_case(&c);
}

/* ---- This host --------------------------------------------------------------------------- */

/* Seconds are the profile's if it has the size; all are on lines, so that sizes between are known,
 * too. Transfers: 100 us + 1 ns per byte. All-reduce of two: 200 us + 5 ns per byte. */
static ty_profile *make_profile(const ty_workload *workload)
{
    static const double sizes[2] = {1000, 1000000};
    ty_profile *profile = ty_alloc(1, sizeof *profile);

    cr_assert_not_null(profile);
    *profile = (ty_profile){.machine = ty_strdup("made up"),
                            .backend = ty_strdup("cpu"),
                            .date = ty_strdup("2024-01-01T00:00:00Z"),
                            .versions = ty_strdup("none"),
                            .cores = 2,
                            .concurrent_ranks = 2,
                            .memory_bytes = 1000000000,
                            .peak_flop_per_s = 1e10,
                            .memory_bandwidth_bytes_per_s = 1e10,
                            .instruction_overhead_s = 1e-5,
                            .load_s_per_byte = 1e-9,
                            .layer_time_count = workload->layer_count,
                            .collective_time_count = 2,
                            .transfer_time_count = 2,
                            .codec_time_count = 2,
                            .update_time_count = 2};
    profile->layer_times = ty_alloc(workload->layer_count, sizeof *profile->layer_times);
    profile->collective_times = ty_alloc(2, sizeof *profile->collective_times);
    profile->transfer_times = ty_alloc(2, sizeof *profile->transfer_times);
    profile->codec_times = ty_alloc(2, sizeof *profile->codec_times);
    profile->update_times = ty_alloc(2, sizeof *profile->update_times);
    for (uint32_t i = 0; i < workload->layer_count; i++) {
        profile->layer_times[i] =
            (ty_layer_time){.micro_batch = 2, .forward_s = 1e-3, .backward_s = 3e-3};
        cr_assert_eq(ty_layer_signature(workload, i, &profile->layer_times[i].signature, NULL),
                     TY_OK);
    }
    for (int i = 0; i < 2; i++) {
        uint64_t size = (uint64_t)sizes[i];
        profile->transfer_times[i] = (ty_transfer_time){size, 100e-6 + 1e-9 * sizes[i], 0};
        profile->collective_times[i] =
            (ty_collective_time){TY_ALL_REDUCE, TY_RING, 2, size, 200e-6 + 5e-9 * sizes[i], 0};
        profile->codec_times[i] = (ty_codec_time){
            {.kind = TY_COMPRESSION_FP16}, 2, size, {{2e-9 * sizes[i]}, 1e-9 * sizes[i]}};
        profile->update_times[i] = (ty_update_time){TY_OPTIMIZER_SGD, size, 3e-9 * sizes[i]};
    }
    return profile;
}

static void make_local(cost_case *c, uint32_t ranks)
{
    ty_error error = {0};

    c->plan->profile = make_profile(c->plan->workload);
    ty_free(c->plan->cluster_name);
    c->plan->cluster_name = ty_strdup("local:3");
    cr_assert_eq(ty_cluster_local(ranks, c->plan->profile, &c->cluster, &error), TY_OK, "%s",
                 error.message);
}

Test(costs, profile_on_paper)
{
    const double overhead = 1e-5;
    const expected_cost rows[] = {
        {0, TY_OP_LOAD, {.seconds = 808e-9, .latency_s = 808e-9, .core_share = 1}},
        {0, TY_OP_FORWARD, {.seconds = 2 * 1e-3 + overhead, .core_share = 1}},
        {0, TY_OP_BACKWARD, {.seconds = 2 * 3e-3 + overhead, .core_share = 1}},
        {0, TY_OP_RECEIVE, {.seconds = 0}},
        {0, TY_OP_ENCODE, {.seconds = 2e-9 * 3000, .core_share = 1}},
        {0, TY_OP_DECODE, {.seconds = 1e-9 * 3000, .core_share = 1}},
        {0, TY_OP_UPDATE, {.seconds = 3e-9 * 3000 + overhead, .core_share = 1}},
        {1, TY_OP_LOAD, {.seconds = 8e-9, .latency_s = 8e-9, .core_share = 1}},
    };
    const ty_instruction_cost *send, *exchange;
    cost_case c = open_case(&two_plus_one);

    make_local(&c, 3);
    find_costs(&c);
    expect_costs(&c, rows, sizeof rows / sizeof rows[0]);
    send = cost_of(&c, 0, TY_OP_SEND);
    cr_expect(is_close(send->seconds, 100e-6 + 800e-9), "found %.12g", send->seconds);
    cr_expect(send->edge_bytes == 800 && send->core_share == 1);
    exchange = cost_of(&c, 0, TY_OP_COLLECTIVE);
    cr_expect(is_close(exchange->seconds, 200e-6 + 6000 * 5e-9), "found %.12g", exchange->seconds);
    cr_expect(is_close(exchange->latency_s, 200e-6 + 5e-9), "what one byte takes");
    cr_expect(exchange->edge_bytes == 6000 && exchange->core_share == 1);
    cr_expect_eq(c.costs->provenance, TY_MEASURED);
    cr_expect_eq(c.costs->host_count, 1);
    cr_expect_eq(c.costs->host_cores[0], 2);
    close_case(&c);
}

/* Per sample if the profile has an input time for this workload. Between steps if ranks leave no
 * core for an input thread. */
Test(costs, input_as_measured)
{
    static const struct {
        bool is_own;
        uint32_t cores;
        double seconds; /* of two samples of 404 bytes */
        bool is_between_steps;
    } cases[] = {{true, 2, 2 * 1e-3, true},
                 {true, 5, 2 * 1e-3, true},
                 {true, 6, 2 * 1e-3, false},
                 {false, 2, 808e-9, true}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cost_case c = open_case(&two_plus_one);
        const ty_instruction_cost *load;

        make_local(&c, 3);
        ty_cluster_free(c.cluster);
        c.plan->profile->cores = cases[i].cores;
        c.plan->profile->input_source =
            ty_strdup(cases[i].is_own ? c.plan->workload->name : "another");
        c.plan->profile->input_s_per_sample = 1e-3;
        cr_assert_eq(ty_cluster_local(3, c.plan->profile, &c.cluster, NULL), TY_OK);
        find_costs(&c);
        load = cost_of(&c, 0, TY_OP_LOAD);
        cr_expect(is_close(load->seconds, cases[i].seconds), "%zu: found %g", i, load->seconds);
        cr_expect_eq(load->is_between_steps, cases[i].is_between_steps, "%zu", i);
        cr_expect_eq(load->core_share, 1);
        close_case(&c);
    }
}

/* Two members that shared one core in the measurement take half as long on a core each. */
Test(costs, measured_crowds_are_taken_apart)
{
    const ty_instruction_cost *exchange;
    cost_case c = open_case(&two_plus_one);

    make_local(&c, 3);
    c.plan->profile->cores = 1;
    find_costs(&c);
    exchange = cost_of(&c, 0, TY_OP_COLLECTIVE);
    cr_expect(is_close(exchange->seconds, (200e-6 + 6000 * 5e-9) / 2), "found %.12g",
              exchange->seconds);
    close_case(&c);
}

/* The simulator relies on this: seconds are the fixed time plus the bytes at the smaller of the
 * software's and the narrowest link's bandwidth, for every measurement. */
static void expect_parts_add_up(const cost_case *c, double link_bytes_per_s, uint64_t seed)
{
    for (uint32_t s = 0; s < c->costs->stage_count; s++) {
        for (uint32_t i = 0; i < c->costs->instruction_counts[s]; i++) {
            const ty_instruction_cost *cost = &c->costs->instructions[s][i];
            ty_op op = c->program->stages[s].instructions[i].op;
            double rate = link_bytes_per_s;
            if (op != TY_OP_SEND && op != TY_OP_COLLECTIVE)
                continue;
            if (cost->rate_limit_bytes_per_s > 0)
                rate = fmin(rate, cost->rate_limit_bytes_per_s);
            cr_expect(is_close(cost->seconds, cost->latency_s + cost->edge_bytes / rate) &&
                          cost->latency_s >= 0,
                      "seed %llu: %s of %g s: %g s + %g bytes at %g bytes/s",
                      (unsigned long long)seed, ty_op_name(op), cost->seconds, cost->latency_s,
                      cost->edge_bytes, rate);
        }
    }
}

Test(costs, parts_of_measured_times_add_up)
{
    for (uint64_t seed = 1; seed <= 100; seed++) {
        random_numbers numbers = {seed * 0x9E3779B97F4A7C15ULL};
        cost_case c = open_case(&two_plus_one);
        ty_path path = {0};
        ty_profile *p;

        make_local(&c, 3);
        p = c.plan->profile;
        for (int i = 0; i < 2; i++) {
            p->transfer_times[i].bytes = i * 1000 + random_below(&numbers, 900);
            p->transfer_times[i].seconds *= 1 + random_below(&numbers, 100) / 10.0;
            p->collective_times[i].bytes = i * 10000 + random_below(&numbers, 9000);
            p->collective_times[i].seconds *= 1 + random_below(&numbers, 100) / 10.0;
        }
        if (random_below(&numbers, 4) == 0) /* faster than the link: the link is still the limit */
            p->collective_times[0].seconds = p->collective_times[1].seconds = 1e-9;
        find_costs(&c);
        cr_assert_eq(ty_cluster_path(c.cluster, 0, 1, &path, NULL), TY_OK);
        expect_parts_add_up(&c, path.bandwidth_bytes_per_s, seed);
        ty_path_clear(&path);
        close_case(&c);
    }
}

/* ---- What goes wrong --------------------------------------------------------------------- */

Test(costs, other_clusters_and_programs_are_refused)
{
    cost_case c = open_case(&two_plus_one);
    ty_error error = {0};

    cr_assert_eq(ty_cluster_parse(two_hosts, "two hosts", &c.cluster, NULL), TY_OK);
    c.plan->stages[1].devices[0] = 4;
    cr_expect_eq(ty_costs_of_program(c.plan, c.program, c.cluster, &c.costs, &error), TY_EINVAL);
    cr_expect_str_eq(error.message, "plan:/stages/1/devices/0: found 4, but cluster \"two hosts\" "
                                    "has 4 devices");
    c.plan->stages[1].devices[0] = 2;
    c.program->stages[0].instructions[1].layer_count = 3;
    cr_expect_eq(ty_costs_of_program(c.plan, c.program, c.cluster, &c.costs, &error), TY_EINVAL);
    cr_expect_str_eq(error.message, "program:/stages/0: a forward of layers 0 to 2, which are not "
                                    "the stage's");
    c.program->stage_count = 1;
    cr_expect_eq(ty_costs_of_program(c.plan, c.program, c.cluster, &c.costs, &error), TY_EINVAL);
    cr_expect_str_eq(error.message, "a program of 1 stages, expected the plan's 2");
    c.program->stage_count = 2;
    cr_expect_null(c.costs);
    close_case(&c);
}

Test(costs, memory_may_run_out_anywhere)
{
    cost_case c = open_case(&two_plus_one);
    ty_status status = TY_ENOMEM;
    long n;

    make_local(&c, 3);
    for (n = 1; status != TY_OK; n++) {
        ty_error error = {0};
        ty_memory_fail_after(n);
        status = ty_costs_of_program(c.plan, c.program, c.cluster, &c.costs, &error);
        ty_memory_fail_after(0);
        if (status != TY_OK) {
            cr_assert_eq(status, TY_ENOMEM, "allocation %ld: %s", n, error.message);
            cr_assert_null(c.costs);
        }
    }
    cr_expect_gt(n, 10);
    close_case(&c);
}
