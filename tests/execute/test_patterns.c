/* The worker's collectives send the same bytes as in the simulator: between each pair of members,
 * or of hosts if one message stands for several. */
#include "pattern.h"
#include "plans.h"
#include "rank_threads.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

enum {
    MOST = 7,
    COUNT = 420 * 8 /* floats, in equal shards for any number of members, one chunk each */
};

/* ---- A transport that counts ------------------------------------------------------------- */

typedef struct counted {
    wrapped_transport wrapped;
    ty_collective_options options;        /* options of the current collective */
    uint64_t bytes[MOST], messages[MOST]; /* by receiver */
} counted;

static ty_status counted_send(ty_transport *transport, uint32_t to, uint32_t tag,
                              const void *buffer, uint64_t bytes, ty_request **out, ty_error *error)
{
    counted *own = (counted *)transport; /* its first member's first */

    own->bytes[to] += bytes;
    own->messages[to]++;
    return own->wrapped.inner->send(own->wrapped.inner, to, tag, buffer, bytes, out, error);
}

static ty_status exchange(ty_transport *transport, ty_error *error)
{
    counted *own = (counted *)transport;
    float *data = ty_alloc(COUNT, sizeof *data);
    ty_status status;

    own->options.data = data;
    status = ty_collective_run(transport, &own->options, error);
    ty_free(data);
    return status;
}

/* One all-reduce of COUNT floats. */
static void run_ranks(uint32_t count, ty_algorithm algorithm, const uint32_t *hosts,
                      counted *counts)
{
    ty_transport *transports[MOST];
    rank_thread ranks[MOST];
    ty_error error = {0};

    cr_assert_eq(ty_transport_local(count, transports, &error), TY_OK, "%s", error.message);
    for (uint32_t i = 0; i < count; i++) {
        counts[i] = (counted){.wrapped = transport_wrap(transports[i]),
                              .options = {.kind = TY_ALL_REDUCE,
                                          .algorithm = algorithm,
                                          .hosts = hosts,
                                          .member_count = count,
                                          .count = COUNT,
                                          .element = TY_ELEMENT_FLOAT,
                                          .tag = 5}};
        counts[i].wrapped.transport.send = counted_send;
        transports[i] = &counts[i].wrapped.transport;
    }
    cr_assert_eq(rank_threads_run(transports, count, exchange, ranks, &error), TY_OK, "%s",
                 error.message);
    for (uint32_t i = 0; i < count; i++)
        cr_assert_eq(ranks[i].status, TY_OK, "%s", ranks[i].error.message);
}

/* ---- Traffic in the simulator ------------------------------------------------------------ */

typedef struct traffic {
    double bytes[MOST][MOST]; /* [from][to], of COUNT floats */
    uint32_t hosts, per_host; /* layout of members for hierarchical collectives */
} traffic;

static ty_instruction_cost exchange_cost(const ty_plan *plan, const ty_cluster *cluster)
{
    ty_program *program = NULL;
    ty_costs *costs = NULL;
    ty_instruction_cost cost = {0};
    ty_error error = {0};

    cr_assert_eq(ty_plan_lower(plan, &program, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_costs_of_program(plan, program, cluster, &costs, &error), TY_OK, "%s",
                 error.message);
    for (uint32_t i = 0; i < program->stages[0].instruction_count; i++)
        if (program->stages[0].instructions[i].op == TY_OP_COLLECTIVE)
            cost = costs->instructions[0][i];
    ty_costs_free(costs);
    ty_program_free(program);
    return cost;
}

static traffic played(const ty_plan *plan)
{
    const ty_bucket *bucket = &plan->buckets[0];
    const double scale = COUNT * sizeof(float) / (double)bucket->gradient_bytes;
    ty_cluster *cluster = NULL;
    ty_pattern_set set = {0};
    const ty_pattern *pattern;
    ty_instruction_cost cost;
    traffic found = {0};
    ty_error error = {0};

    cluster = ty_cluster_share(plan->cluster);
    cr_assert_eq(ty_pattern_set_fill(&set, plan, NULL, cluster, &error), TY_OK, "%s",
                 error.message);
    pattern = ty_pattern_of(&set, plan, bucket, 0);
    cr_assert_not_null(pattern);
    cost = exchange_cost(plan, cluster);
    found.hosts = pattern->rails.hosts;
    found.per_host = pattern->rails.per_host;
    for (uint32_t m = 0; m < pattern->member_count; m++) {
        ty_strand strands[TY_MOST_STRANDS];
        const uint32_t count = ty_pattern_strands(pattern, m, &cost, strands);
        for (uint32_t s = 0; s < count; s++)
            for (uint32_t l = 0; l < strands[s].count; l++) {
                const ty_leg *leg = &strands[s].legs[l];
                found.bytes[leg->from][leg->to] += leg->message.bytes * scale;
            }
    }
    ty_pattern_set_clear(&set);
    ty_cluster_free(cluster);
    return found;
}

/* ---- Both -------------------------------------------------------------------------------- */

/* Messages that a member sends, of one chunk each: as many as the simulator's rounds at chunk
 * resolution. */
static uint64_t messages_of(ty_algorithm algorithm, uint32_t n, const traffic *t)
{
    if (algorithm == TY_HIERARCHICAL)
        return 2 * (t->per_host - 1) + 2 * (t->hosts - 1);
    return 2 * (n - 1);
}

static void expect_bytes(const char *what, uint32_t from, uint32_t to, double found,
                         double expected)
{
    cr_expect(fabs(found - expected) < 0.5, "%s: %u to %u sends %.1f bytes, %.1f are simulated",
              what, from, to, found, expected);
}

/* To each other member. */
static void compare_pairs(const char *what, uint32_t n, const counted *counts, const traffic *t)
{
    for (uint32_t from = 0; from < n; from++)
        for (uint32_t to = 0; to < n; to++)
            if (from != to)
                expect_bytes(what, from, to, (double)counts[from].bytes[to], t->bytes[from][to]);
}

/* Compares the bytes to other members on the same host, and to all others. */
static void compare_hosts(const char *what, uint32_t n, const uint32_t *hosts,
                          const counted *counts, const traffic *t)
{
    for (uint32_t from = 0; from < n; from++) {
        double found[2] = {0}, expected[2] = {0};
        for (uint32_t to = 0; to < n; to++) {
            /* Hosts with unequal numbers of members count as if each member had a host of its
             * own. */
            const bool is_away = t->per_host == 1 || hosts[to] != hosts[from];
            found[is_away] += to == from ? 0 : (double)counts[from].bytes[to];
            expected[is_away] += to == from ? 0 : t->bytes[from][to];
        }
        expect_bytes(what, from, from, found[0], expected[0]);
        expect_bytes(what, from, n, found[1], expected[1]);
    }
}

static void check(const char *cluster, uint32_t n, ty_algorithm algorithm)
{
    const plan_shape shape = {.name = "exchange",
                              .replicas = {n},
                              .buckets = 1,
                              .global_batch = n,
                              .micro_batch_size = 1,
                              .algorithm = algorithm,
                              .cluster = cluster};
    ty_plan *plan = make_plan("mlp", &shape);
    counted counts[MOST];
    uint32_t hosts[MOST];
    traffic expected;
    char what[128];

    snprintf(what, sizeof what, "%s, %u by %s", cluster, n, ty_algorithm_name(algorithm));
    for (uint32_t r = 0; r < n; r++)
        hosts[r] = ty_cluster_device_host(plan->cluster, ty_plan_device_of_replica(plan, r));
    expected = played(plan);
    run_ranks(n, algorithm, hosts, counts);
    if (algorithm == TY_PARAMETER_SERVER || algorithm == TY_BLOCK_MANAGER)
        compare_hosts(what, n, hosts, counts, &expected);
    else
        compare_pairs(what, n, counts, &expected);
    for (uint32_t m = 0; m < n && algorithm != TY_TREE; m++) {
        uint64_t sent = 0;
        for (uint32_t to = 0; to < n; to++)
            sent += counts[m].messages[to];
        cr_expect_eq(sent, messages_of(algorithm, n, &expected), "%s: %llu messages", what,
                     (unsigned long long)sent);
    }
    ty_plan_free(plan);
}

Test(patterns, bytes_are_those_that_are_simulated)
{
    static const struct {
        const char *cluster;
        uint32_t members;
    } places[] = {
        {"host:1 gpu:2 @t4 pcie3 eth10 nics=2", 2}, {"host:1 gpu:7 @t4 pcie3 eth10 nics=7", 7},
        {"host:2 gpu:1 @t4 pcie3 eth10", 2},        {"host:5 gpu:1 @t4 pcie3 eth10", 5},
        {"host:2 gpu:2 @t4 pcie3 eth10 nics=2", 4}, {"host:2 gpu:3 @t4 pcie3 eth10 nics=3", 6},
        {"host:3 gpu:2 @t4 pcie3 eth10 nics=2", 6}, {"host:3 gpu:2 @t4 pcie3 eth10 nics=2", 5},
        {"host:4 gpu:2 @t4 pcie3 eth10 nics=2", 7}, {"host:2 gpu:3 @t4 pcie3 eth10 nics=3", 4},
    };
    static const ty_algorithm algorithms[] = {TY_RING, TY_TREE, TY_HIERARCHICAL,
                                              TY_PARAMETER_SERVER, TY_BLOCK_MANAGER};

    for (size_t p = 0; p < sizeof places / sizeof places[0]; p++)
        for (size_t a = 0; a < sizeof algorithms / sizeof algorithms[0]; a++)
            check(places[p].cluster, places[p].members, algorithms[a]);
}
