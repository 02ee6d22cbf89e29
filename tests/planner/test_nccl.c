/* The model of NCCL against figures computed by hand from its tables, and against its logs. */
#include "ty_planner.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    TREE = TY_NCCL_TREE,
    RING = TY_NCCL_RING,
    NVLS = TY_NCCL_NVLS,
    NVLS_TREE = TY_NCCL_NVLS_TREE
};

static ty_communicator hopper(uint32_t nodes, uint32_t per_node)
{
    return (ty_communicator){.ranks = nodes * per_node,
                             .nodes = nodes,
                             .generation = TY_HOPPER,
                             .processor = TY_PROCESSOR_INTEL,
                             .has_nvlink = true,
                             .has_nvswitch = true,
                             .has_nvls = true,
                             .has_ll128 = true,
                             .gpu_bytes_per_s = 18 * 20.6e9,
                             .path_bytes_per_s = 18 * 20.6e9,
                             .nics = nodes > 1 ? per_node : 0,
                             .nic_bytes_per_s = 48e9};
}

static ty_communicator ampere(void)
{
    ty_communicator c = hopper(1, 8);
    c.generation = TY_AMPERE;
    c.has_nvls = false;
    c.gpu_bytes_per_s = c.path_bytes_per_s = 12 * 20e9;
    return c;
}

static ty_communicator volta_tcp(void)
{
    return (ty_communicator){.ranks = 4,
                             .nodes = 4,
                             .generation = TY_VOLTA,
                             .processor = TY_PROCESSOR_INTEL,
                             .nics = 1,
                             .nic_bytes_per_s = 25e9 / 8};
}

static ty_collective_table table_of(const ty_communicator *c)
{
    ty_collective_calibration plain = ty_collective_uncalibrated();
    ty_collective_table table;
    ty_error error = {0};

    cr_assert_eq(ty_collective_table_make(c, &plain, &table, &error), TY_OK, "%s", error.message);
    return table;
}

/* Latency in us and bandwidth in GB/s of all-reduce, to the published digits; 0: not allowed. */
Test(nccl, tables)
{
    const struct {
        const char *name;
        ty_communicator c;
        double expected[8][2]; /* tree LL, LL128, Simple; ring; NVLS; NVLSTree */
    } rows[] = {
        {"1x8 Hopper",
         hopper(1, 8),
         {{15.2, 43.6},
          {31.5, 128.8},
          {64.4, 165.6},
          {15.0, 80.6},
          {40.6, 189.3},
          {56.0, 205.7},
          {25, 274.3},
          {0, 0}}},
        {"1x4 Hopper",
         hopper(1, 4),
         {{10.4, 43.6},
          {21.5, 128.8},
          {32.4, 165.6},
          {10.2, 94.0},
          {25.4, 220.8},
          {28.8, 240},
          {25, 160},
          {0, 0}}},
        {"1x8 Ampere",
         ampere(),
         {{15.2, 29.1},
          {31.5, 85.9},
          {64.4, 110.4},
          {15.0, 50.1},
          {40.6, 126.2},
          {56.0, 137.1},
          {0, 0},
          {0, 0}}},
        {"2x8 Hopper",
         hopper(2, 8),
         {{25.2, 19.5},
          {48.5, 146.8},
          {92.4, 165.6},
          {40.0, 20.8},
          {75.2, 156.6},
          {131.6, 204.8},
          {0, 0},
          {66.8, 246.2}}},
        {"4x8 Hopper",
         hopper(4, 8),
         {{35.2, 10.2},
          {65.5, 116},
          {120.4, 144},
          {78.8, 10.5},
          {144.4, 151.5},
          {282.8, 198.2},
          {0, 0},
          {108.6, 187.9}}},
        {"16x8 Hopper",
         hopper(16, 8),
         {{55.2, 10.2},
          {99.5, 116},
          {176.4, 144},
          {311.6, 10.3},
          {559.6, 148},
          {1190, 193.5},
          {0, 0},
          {192.2, 183.4}}},
        {"64x8 Hopper",
         hopper(64, 8),
         {{75.2, 10.2},
          {133.5, 116},
          {232.4, 144},
          {1242.8, 10.2},
          {2220.4, 147.1},
          {4818.8, 192.4},
          {0, 0},
          {275.8, 182.4}}},
        {"4x1 Volta, TCP",
         volta_tcp(),
         {{26.8, 0.3}, {0, 0}, {64.4, 1.2}, {36.6, 1.0}, {0, 0}, {92.4, 2.0}, {0, 0}, {0, 0}}},
    };
    static const int pairs[8][2] = {{TREE, 0}, {TREE, 1}, {TREE, 2}, {RING, 0},
                                    {RING, 1}, {RING, 2}, {NVLS, 2}, {NVLS_TREE, 2}};

    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        ty_collective_table table = table_of(&rows[r].c);
        for (int p = 0; p < 8; p++) {
            double latency_s = 0, rate = 0;
            bool is_there =
                ty_collective_entry(&table, TY_ALL_REDUCE, (ty_nccl_algorithm)pairs[p][0],
                                    (ty_nccl_protocol)pairs[p][1], &latency_s, &rate);
            cr_expect_eq(is_there, rows[r].expected[p][1] > 0, "%s, pair %d", rows[r].name, p);
            cr_expect(fabs(latency_s * 1e6 - rows[r].expected[p][0]) < 0.51 &&
                          fabs(rate / 1e9 - rows[r].expected[p][1]) < 0.06,
                      "%s, %s/%s: found %.2f us and %.2f GB/s, expected %g and %g", rows[r].name,
                      ty_nccl_algorithm_name((ty_nccl_algorithm)pairs[p][0]),
                      ty_nccl_protocol_name((ty_nccl_protocol)pairs[p][1]), latency_s * 1e6,
                      rate / 1e9, rows[r].expected[p][0], rows[r].expected[p][1]);
        }
    }
}

/* NCCL's choice per message size. For 8 x H200, "RING LL up to 1 MiB, NVLS from 2 MiB" was also
 * measured. */
Test(nccl, choices)
{
    const struct {
        uint32_t nodes;
        uint64_t bytes;
        int algorithm, protocol;
        double us; /* 0: not worked out */
    } rows[] = {
        {1, 1 << 20, RING, TY_NCCL_LL, 28.0},         {1, 2 << 20, NVLS, TY_NCCL_SIMPLE, 32.6},
        {2, 128 << 10, TREE, TY_NCCL_LL, 0},          {2, 1 << 20, TREE, TY_NCCL_LL128, 0},
        {2, 8 << 20, NVLS_TREE, TY_NCCL_SIMPLE, 0},   {4, 1 << 20, TREE, TY_NCCL_LL128, 0},
        {4, 8 << 20, TREE, TY_NCCL_LL128, 0},         {4, 64 << 20, NVLS_TREE, TY_NCCL_SIMPLE, 0},
        {4, 1 << 30, RING, TY_NCCL_SIMPLE, 0},        {64, 32 << 20, TREE, TY_NCCL_LL128, 455},
        {64, 64 << 20, NVLS_TREE, TY_NCCL_SIMPLE, 0},
    };

    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        ty_communicator c = hopper(rows[r].nodes, 8);
        ty_collective_table table = table_of(&c);
        ty_collective_choice found = ty_collective_choose(&table, TY_ALL_REDUCE, rows[r].bytes);
        cr_expect((int)found.algorithm == rows[r].algorithm &&
                      (int)found.protocol == rows[r].protocol,
                  "%ux8, %llu bytes: found %s/%s of %.1f us", rows[r].nodes,
                  (unsigned long long)rows[r].bytes, ty_nccl_algorithm_name(found.algorithm),
                  ty_nccl_protocol_name(found.protocol), found.seconds * 1e6);
        if (rows[r].us > 0)
            cr_expect(fabs(found.seconds * 1e6 - rows[r].us) < 0.5, "found %.2f us, expected %g",
                      found.seconds * 1e6, rows[r].us);
    }
}

static double bus_gb_per_s(const ty_communicator *c, int algorithm, uint64_t bytes)
{
    ty_collective_table table = table_of(c);
    double seconds = algorithm < 0 ? ty_collective_seconds(&table, TY_ALL_REDUCE, bytes)
                                   : ty_collective_choose_by(&table, TY_ALL_REDUCE,
                                                             (ty_nccl_algorithm)algorithm, bytes)
                                         .seconds;
    return (double)bytes / seconds / 1e9 * ty_collective_bus_factor(TY_ALL_REDUCE, c->ranks);
}

Test(nccl, bus_bandwidths)
{
    ty_communicator one = hopper(1, 8), two = hopper(2, 8), four = hopper(4, 8);
    double found = bus_gb_per_s(&one, -1, 1 << 30);

    cr_expect(fabs(found - 477) < 1, "one node: %g", found);
    found = bus_gb_per_s(&one, RING, (uint64_t)8 << 30);
    cr_expect(fabs(found - 360) < 1, "one node, ring: %g", found);
    found = bus_gb_per_s(&two, -1, 1 << 30);
    cr_expect(fabs(found - 455) < 1, "two nodes: %g", found);
    found = bus_gb_per_s(&four, -1, 1 << 30);
    cr_expect(fabs(found - 358) < 1, "four nodes: %g", found);
}

/* Graphs as NCCL logs them: single DGX H100 and A100 hosts, 8 x 400G, two H20 with two NICs. */
Test(nccl, graphs)
{
    const struct {
        const char *name;
        ty_communicator c;
        ty_nccl_graph ring;
    } rows[] = {
        {"1x8 Hopper: 24 channels with both directions", hopper(1, 8), {12, 30, 30}},
        {"1x8 Ampere: 24 channels", ampere(), {12, 20, 20}},
        {"2x8 Hopper: 16 channels", hopper(2, 8), {8, 48, 48}},
        {"2x2 Hopper: 4 channels of 24", hopper(2, 2), {4, 24, 24}},
    };

    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        ty_nccl_graphs graphs;
        ty_nccl_graphs_find(&rows[r].c, &graphs);
        cr_expect(graphs.ring.channels == rows[r].ring.channels &&
                      graphs.ring.intra_gb_per_s == rows[r].ring.intra_gb_per_s &&
                      graphs.ring.inter_gb_per_s == rows[r].ring.inter_gb_per_s,
                  "%s: found %u x %g/%g", rows[r].name, graphs.ring.channels,
                  graphs.ring.intra_gb_per_s, graphs.ring.inter_gb_per_s);
    }
}

/* ---- Clusters ---------------------------------------------------------------------------- */

static ty_communicator communicator_of(const char *text, uint32_t count)
{
    uint32_t devices[128];
    ty_cluster *cluster = NULL;
    ty_communicator c;
    ty_error error = {0};

    cr_assert_leq(count, 128);
    cr_assert_eq(ty_cluster_open(text, NULL, &cluster, &error), TY_OK, "%s", error.message);
    for (uint32_t d = 0; d < count; d++)
        devices[d] = d;
    cr_assert_eq(ty_communicator_of(cluster, devices, count, &c, &error), TY_OK, "%s",
                 error.message);
    ty_cluster_free(cluster);
    return c;
}

Test(nccl, communicators_of_the_catalogue)
{
    ty_communicator c = communicator_of("2x dgx-h100", 16);

    cr_expect(c.ranks == 16 && c.nodes == 2 && c.generation == TY_HOPPER);
    cr_expect(c.has_nvlink && c.has_nvswitch && c.has_nvls && c.has_ll128);
    cr_expect_eq(c.processor, TY_PROCESSOR_INTEL);
    cr_expect_eq(c.nics, 8);
    cr_expect_eq(c.nic_bytes_per_s, 48e9, "PCI is narrower than the NIC");
    cr_expect_float_eq(c.gpu_bytes_per_s, 18 * 20.6e9, 1);
    c = communicator_of("2x p4d.24xlarge", 16);
    cr_expect(c.nics == 4 && c.generation == TY_AMPERE && !c.has_nvls);
    c = communicator_of("1x dgx1-v100", 8);
    cr_expect(c.has_nvlink && !c.has_nvswitch && c.nodes == 1);
    cr_expect_float_eq(c.gpu_bytes_per_s, 6 * 20e9, 1, "six links of a GPU: found %g",
                       c.gpu_bytes_per_s);
    c = communicator_of("2x p100-server", 8);
    cr_expect(!c.has_nvlink && !c.has_ll128 && c.nics == 1 && c.generation == TY_VOLTA);
}

/* NVLS has as many heads as the library supports; direct links have their measured bandwidth. */
Test(nccl, racks_and_meshes)
{
    ty_communicator rack = communicator_of("1x gb200-nvl72", 72),
                    mesh = communicator_of("1x dgx1-v100", 8),
                    five = communicator_of("1x dgx1-v100", 5);
    ty_collective_table plain, real;
    ty_nccl_graphs graphs;
    double rate;

    ty_nccl_graphs_find(&rack, &graphs);
    cr_expect_eq(graphs.nvls.channels, 32);
    cr_expect(five.has_nvlink && fabs(five.gpu_bytes_per_s - 40e9) < 1,
              "the fifth through its neighbour, there and back: %g", five.gpu_bytes_per_s);
    plain = table_of(&mesh);
    cr_assert_eq(ty_collective_table_make(&mesh, NULL, &real, NULL), TY_OK);
    rate = ty_collective_choose(&plain, TY_ALL_REDUCE, (uint64_t)1 << 30).bytes_per_s;
    cr_expect_float_eq(rate * 14 / 8, 6 * 20e9, 1e6, "as NCCL plans: %g", rate);
    rate = ty_collective_choose(&real, TY_ALL_REDUCE, (uint64_t)1 << 30).bytes_per_s;
    cr_expect(rate * 14 / 8 > 6 * 22e9 && rate * 14 / 8 < 6 * 25e9, "as measured: %g", rate);
}

static ty_status ask(const char *text, const ty_collective_question *question, uint64_t size,
                     ty_collective_answer *out, ty_communicator *communicator, ty_error *error)
{
    uint32_t devices[16];
    ty_cluster *cluster = NULL;
    ty_status status;

    cr_assert_eq(ty_cluster_open(text, NULL, &cluster, error), TY_OK, "%s", error->message);
    for (uint32_t i = 0; i < 16; i++)
        devices[i] = i;
    if (communicator != NULL)
        cr_assert_eq(ty_communicator_of(cluster, devices, question->ranks, communicator, error),
                     TY_OK, "%s", error->message);
    status = ty_collective_ask(cluster, question, &size, 1, out, error);
    ty_cluster_free(cluster);
    return status;
}

/* ---- Networks ---------------------------------------------------------------------------------
 */

/* NCCL 2.3.7 over TCP, by number of connections (NVIDIA/nccl 209). */
Test(networks, sockets_carry_what_was_measured)
{
    static const double measured[][2] = {{1, 2.06}, {2, 2.77}, {4, 3.28}, {8, 3.75}};

    for (size_t i = 0; i < sizeof measured / sizeof measured[0]; i++)
        cr_expect_float_eq(ty_socket_rate(TY_LINK_TCP, measured[i][0]) / 1e9, measured[i][1],
                           0.03 * measured[i][1]);
    cr_expect_eq(ty_socket_rate(TY_LINK_ENA, 1), 5e9 / 8);
    cr_expect_eq(ty_socket_rate(TY_LINK_ENA, 2), 10e9 / 8);
    cr_expect(isinf(ty_socket_rate(TY_LINK_EFA, 1)) && isinf(ty_socket_rate(TY_LINK_ROCE, 1)));
}

static double bus_of(const char *cluster, uint32_t ranks, uint64_t size)
{
    const ty_collective_question question = {.kind = TY_ALL_REDUCE, .ranks = ranks};
    ty_collective_answer answer;
    ty_error error = {0};

    cr_assert_eq(ask(cluster, &question, size, &answer, NULL, &error), TY_OK, "%s", error.message);
    return answer.bus_bandwidth_bytes_per_s;
}

/* No network carries more than its connections do, more of them carry more, and RDMA carries most.
 */
Test(networks, connections_bound_the_rate)
{
    enum { GIB = 1 << 30 };
    const char *line = "leaf:1 host:2 gpu:8 @v100-sxm2-16gb nvlink2 ena=100Gb/s nics=1 flows=%u";
    double last = 0;

    for (uint32_t flows = 1; flows <= 8; flows *= 2) {
        char text[128];
        double bus;
        snprintf(text, sizeof text, line, flows);
        bus = bus_of(text, 16, GIB);
        cr_expect_gt(bus, last, "%s", text);
        cr_expect_leq(bus, 2 * ty_socket_rate(TY_LINK_ENA, flows), "%s: %g", text, bus);
        last = bus;
    }
    cr_expect_gt(bus_of("leaf:1 host:2 gpu:8 @v100-sxm2-16gb nvlink2 roce100 nics=1", 16, GIB),
                 2 * last);
}

/* aws-ofi-nccl allows only Simple on hosts with the first generation of EFA. */
Test(networks, efa_of_the_first_generation)
{
    const ty_communicator first = communicator_of("4x p4d.24xlarge", 32);
    const ty_communicator second = communicator_of("4x p5.48xlarge", 32);
    ty_collective_table table;

    cr_expect(first.is_simple_only && !second.is_simple_only);
    cr_assert_eq(ty_collective_table_make(&first, NULL, &table, NULL), TY_OK);
    for (uint64_t size = 8; size < (uint64_t)1 << 33; size *= 2)
        cr_expect_eq(ty_collective_choose(&table, TY_ALL_REDUCE, size).protocol, TY_NCCL_SIMPLE);
}

/* Through host memory, GPUs reach half of a PCIe port. */
Test(networks, host_memory_halves_the_port)
{
    const double direct = bus_of("leaf:1 host:1 gpu:4 @t4 pcie3 eth10 p2p=pcie", 4, 1 << 28);
    const double staged = bus_of("leaf:1 host:1 gpu:4 @t4 pcie3 eth10 p2p=host", 4, 1 << 28);

    cr_expect_float_eq(staged / direct, 0.5, 0.01, "%g and %g", staged, direct);
    cr_expect_eq(bus_of("leaf:1 host:1 gpu:4 @t4 pcie3 eth10", 4, 1 << 28), staged);
}

/* Queued calls against such measurements (ai-dynamo/aiconfigurator at 095f58a, comm/nccl, half
 * precision): small calls, and rings of two GPUs, whose own shard is half of the data. Calls
 * launched one at a time take tens of us longer and reach the same bandwidth. */
Test(nccl, calls_in_a_queue)
{
    static const struct {
        const char *cluster;
        ty_collective_kind kind;
        uint32_t ranks;
        uint64_t size;
        double measured_us, most_off;
    } rows[] = {
        {"1x dgx-h100", TY_ALL_REDUCE, 8, 4096, 16.02, 0.15},
        {"1x dgx-h100", TY_ALL_REDUCE, 8, 1 << 29, 2111, 0.15},
        {"1x dgx-h100", TY_ALL_GATHER, 2, 1 << 29, 1039, 0.15},
        {"1x dgx-h100", TY_ALL_TO_ALL, 8, 4096, 7.52, 0.4},
        {"1x dgx-a100", TY_ALL_REDUCE, 8, 4096, 21.43, 0.15},
        {"1x dgx-a100", TY_ALL_GATHER, 2, 1 << 29, 1790, 0.15},
        {"1x dgx-b300", TY_ALL_REDUCE, 8, 1 << 28, 715.2, 0.15},
    };
    ty_error error = {0};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_collective_question q = {.kind = rows[i].kind, .ranks = rows[i].ranks};
        ty_collective_answer launched, queued;
        double off;
        cr_assert_eq(ask(rows[i].cluster, &q, rows[i].size, &launched, NULL, &error), TY_OK, "%s",
                     error.message);
        q.calls = TY_CALLS_QUEUED;
        cr_assert_eq(ask(rows[i].cluster, &q, rows[i].size, &queued, NULL, &error), TY_OK, "%s",
                     error.message);
        off = queued.seconds * 1e6 / rows[i].measured_us - 1;
        cr_expect(fabs(off) < rows[i].most_off, "row %zu: %.1f us, measured %.1f", i,
                  queued.seconds * 1e6, rows[i].measured_us);
        if (rows[i].size == 4096)
            cr_expect(launched.seconds - queued.seconds > 15e-6, "row %zu", i);
        cr_expect(
            fabs((launched.seconds - launched.latency_s) / (queued.seconds - queued.latency_s) -
                 1) < 1e-6,
            "row %zu", i);
    }
}

/* GPUs whose names determine NCCL's hardware tables. */
Test(nccl, devices)
{
    static const char *const known[] = {"h800-sxm", "h20",      "gh200",        "b300",
                                        "gb300",    "rtx-3090", "rtx-pro-6000", "l40s"};
    static const char *const others[] = {"mi300x", "tpu-v4", "gaudi3", "jetson-nano"};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        cr_expect(ty_is_nccl_device(known[i]), "%s", known[i]);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        cr_expect(!ty_is_nccl_device(others[i]), "%s", others[i]);
}

Test(nccl, others_are_refused)
{
    const uint32_t devices[] = {0, 1};
    ty_cluster *cluster = NULL;
    ty_communicator c = {.ranks = 7};
    ty_collective_table table;
    ty_error error = {0};

    cr_assert_eq(ty_cluster_open("2x xeon-server", NULL, &cluster, &error), TY_OK);
    cr_expect_eq(ty_communicator_of(cluster, devices, 2, &c, &error), TY_EUNSUPPORTED);
    cr_expect(strstr(error.message, "found no compute capability") != NULL, "%s", error.message);
    cr_expect_eq(c.ranks, 7, "untouched on failure");
    ty_cluster_free(cluster);
    c = hopper(2, 8);
    c.nic_bytes_per_s = NAN;
    cr_expect_eq(ty_collective_table_make(&c, NULL, &table, &error), TY_EINVAL);
    c = hopper(2, 8);
    c.nodes = 17;
    cr_expect_eq(ty_collective_table_make(&c, NULL, &table, &error), TY_EINVAL);
    c = hopper(1, 8);
    c.gpu_bytes_per_s = 0;
    cr_expect_eq(ty_collective_table_make(&c, NULL, &table, &error), TY_EINVAL);
}

/* ---- Invariants of every table ------------------------------------------------------------- */

Test(nccl, choice_is_the_least_of_all)
{
    for (uint32_t nodes = 1; nodes <= 64; nodes *= 2) {
        ty_communicator c = hopper(nodes, 8);
        ty_collective_table table = table_of(&c);
        for (int kind = 0; kind < TY_COLLECTIVE_COUNT; kind++)
            for (uint64_t bytes = 1; bytes < (uint64_t)1 << 34; bytes *= 3) {
                ty_collective_choice best =
                    ty_collective_choose(&table, (ty_collective_kind)kind, bytes);
                cr_expect(best.seconds > 0 && isfinite(best.seconds));
                cr_expect(fabs(best.latency_s + (double)bytes / best.bytes_per_s - best.seconds) <=
                          1e-9 * best.seconds);
                cr_expect_eq(best.seconds,
                             ty_collective_seconds(&table, (ty_collective_kind)kind, bytes));
                for (int a = 0; a < TY_NCCL_ALGORITHM_COUNT; a++)
                    cr_expect(ty_collective_choose_by(&table, (ty_collective_kind)kind,
                                                      (ty_nccl_algorithm)a, bytes)
                                      .seconds >= best.seconds,
                              "%u nodes, %s of %llu by %s", nodes,
                              ty_collective_name((ty_collective_kind)kind),
                              (unsigned long long)bytes,
                              ty_nccl_algorithm_name((ty_nccl_algorithm)a));
            }
    }
}

/* A single query: the library's choice and the model's seconds, but no faster than the links. */
Test(nccl, one_collective)
{
    static const struct {
        const char *cluster;
        ty_collective_question question;
        uint64_t size;
        bool is_at_links;
    } rows[] = {
        {"2x dgx-a100", {.kind = TY_ALL_REDUCE, .ranks = 16, .algorithm = NULL}, 1 << 26, false},
        {"2x dgx-a100", {.kind = TY_ALL_GATHER, .ranks = 16, .algorithm = NULL}, 1 << 26, false},
        {"2x dgx-a100",
         {.kind = TY_REDUCE_SCATTER, .ranks = 8, .algorithm = "Ring"},
         1 << 20,
         false},
        {"2x dgx-h100", {.kind = TY_ALL_REDUCE, .ranks = 8, .algorithm = "nvls"}, 1 << 28, false},
        {"dgx1-v100",
         {.kind = TY_ALL_REDUCE, .ranks = 8, .algorithm = NULL},
         1 << 28,
         true}, /* 22 GB/s per link, but 20 here */
    };
    static const ty_collective_question refused[] = {
        {.kind = TY_ALL_REDUCE, .ranks = 1, .algorithm = NULL},
        {.kind = TY_ALL_REDUCE, .ranks = 17, .algorithm = NULL},
        {.kind = TY_ALL_REDUCE, .ranks = 16, .algorithm = "NVLS"},
        {.kind = TY_ALL_REDUCE, .ranks = 16, .algorithm = "rings"},
        {.kind = TY_ALL_GATHER, .ranks = 16, .algorithm = "hierarchical"}};
    ty_error error = {0};
    ty_collective_answer answer;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const ty_collective_question *q = &rows[i].question;
        const uint64_t bytes = q->kind == TY_ALL_GATHER ? rows[i].size / q->ranks : rows[i].size;
        ty_communicator communicator;
        ty_collective_table table;
        ty_collective_choice choice;
        double bus;
        cr_assert_eq(ask(rows[i].cluster, q, rows[i].size, &answer, &communicator, &error), TY_OK,
                     "%s", error.message);
        cr_assert_eq(ty_collective_table_make(&communicator, NULL, &table, &error), TY_OK);
        choice = ty_collective_choose(&table, q->kind, bytes);
        if (q->algorithm != NULL)
            choice = ty_collective_choose_by(
                &table, q->kind, q->algorithm[0] == 'n' ? TY_NCCL_NVLS : TY_NCCL_RING, bytes);
        cr_assert_str_eq(answer.algorithm, ty_nccl_algorithm_name(choice.algorithm));
        cr_assert_str_eq(answer.protocol, ty_nccl_protocol_name(choice.protocol));
        if (rows[i].is_at_links)
            cr_assert_gt(answer.seconds, 1.05 * choice.seconds, "%s", rows[i].cluster);
        else
            cr_assert_lt(fabs(answer.seconds / choice.seconds - 1), 1e-9, "%s: %g, not %g",
                         rows[i].cluster, answer.seconds, choice.seconds);
        bus = ty_collective_bus_factor(q->kind, q->ranks) * (double)rows[i].size / answer.seconds;
        cr_assert_lt(fabs(answer.bus_bandwidth_bytes_per_s / bus - 1), 1e-12);
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        cr_assert_eq(ask("2x dgx-a100", &refused[i], 1 << 20, &answer, NULL, &error), TY_EINVAL,
                     "row %zu", i);
    cr_assert_eq(ask("2x dgx-a100", &rows[1].question, 15, &answer, NULL, &error), TY_EINVAL);
    cr_assert_eq(ask("2x xeon-server",
                     &(ty_collective_question){
                         .kind = TY_ALL_REDUCE, .ranks = 2, .algorithm = "hierarchical"},
                     1 << 20, &answer, NULL, &error),
                 TY_OK, "%s", error.message);
    cr_assert_str_eq(answer.algorithm, "hierarchical");
    cr_assert_str_eq(answer.protocol, "");
}

Test(nccl, alone_nothing_moves)
{
    ty_communicator c = hopper(1, 1);
    ty_collective_table table = table_of(&c);

    for (int kind = 0; kind < TY_COLLECTIVE_COUNT; kind++)
        cr_expect_eq(ty_collective_seconds(&table, (ty_collective_kind)kind, 1 << 20), 0);
}

/* ---- Collectives of frameworks
 * ---------------------------------------------------------------- */

/* Two hosts of four, 100 bytes/s inside and 10 outside, S = 800: 2 * 600/100 + 2 * 100/10 and 12
 * steps of 1 s inside... by hand. */
Test(exchanges, by_hand)
{
    ty_exchange_links links = {2, 4, 100, 1, 10, 5, HUGE_VAL};
    ty_exchange_time t = ty_hierarchical_all_reduce(&links, 800);

    cr_expect_eq(t.latency_s, 2 * 3 * 1 + 2 * 1 * 5);
    cr_expect_eq(t.host_s, 2 * 0.75 * 800 / 100);
    cr_expect_eq(t.rail_s, 2 * 0.5 * 200 / 10);
    cr_expect_eq(t.seconds, t.latency_s + t.host_s + t.rail_s);
    t = ty_block_manager_all_reduce(&links, 800);
    cr_expect_eq(t.latency_s, 10);
    cr_expect_eq(t.host_s, 2 * 300 / 100.0);
    cr_expect_eq(t.rail_s, 2 * 400 / 10.0);
    cr_expect_eq(t.seconds, 10 + 80, "both ways at once");
    links.exchange_bytes_per_s = 8;
    t = ty_block_manager_all_reduce(&links, 800);
    cr_expect_eq(t.seconds, 10 + 200, "on links that both share");
}

/* Message by message: each worker's share to each server; all links have the same bandwidth. */
static double push_by_hand(const ty_parameter_servers *s, double bytes)
{
    double out[64] = {0}, in[64] = {0}, longest = 0;

    for (uint32_t w = 0; w < s->workers; w++)
        for (uint32_t p = 0; p < s->servers; p++) {
            uint32_t target = s->place == TY_SERVERS_COLOCATED ? p : s->workers + p;
            if (target == w)
                continue;
            out[w] += bytes / s->servers;
            in[target] += bytes / s->servers;
        }
    for (uint32_t h = 0; h < s->workers + s->servers; h++) {
        bool is_server = s->place == TY_SERVERS_DEDICATED && h >= s->workers;
        double rate = is_server ? s->server_bytes_per_s : s->worker_bytes_per_s;
        longest = fmax(longest, fmax(out[h], in[h]) / rate);
    }
    return longest;
}

Test(exchanges, parameter_servers_message_by_message)
{
    for (uint32_t workers = 1; workers <= 12; workers++)
        for (uint32_t servers = 1; servers <= 12; servers++)
            for (int place = 0; place < 2; place++) {
                ty_parameter_servers s = {
                    (ty_server_place)place, workers, servers, 100, 250, 0.5, 0};
                double seconds = 0, expected = 2 * (0.5 + push_by_hand(&s, 1000));
                ty_error error = {0};
                ty_status status = ty_parameter_server_seconds(&s, 1000, &seconds, &error);
                if (place == TY_SERVERS_COLOCATED && servers > workers) {
                    cr_expect_eq(status, TY_EINVAL);
                    continue;
                }
                if (place == TY_SERVERS_COLOCATED && workers == 1)
                    expected = 0;
                cr_assert_eq(status, TY_OK, "%s", error.message);
                cr_expect_float_eq(seconds, expected, 1e-9, "%u workers, %u servers, %s", workers,
                                   servers, place == 0 ? "dedicated" : "co-located");
            }
}

/* Unequal shares: bound by the link of the fullest server or by the workers' links. */
Test(exchanges, parameter_servers_of_unequal_parts)
{
    ty_parameter_servers s = {TY_SERVERS_DEDICATED, 4, 3, 100, 250, 0.5, .largest_share = 0.5};
    double seconds = 0;

    cr_assert_eq(ty_parameter_server_seconds(&s, 1000, &seconds, NULL), TY_OK);
    cr_expect_float_eq(seconds, 2 * (0.5 + fmax(1000 / 100.0, 4 * 500 / 250.0)), 1e-12);
    s.largest_share = 1;
    cr_assert_eq(ty_parameter_server_seconds(&s, 1000, &seconds, NULL), TY_OK);
    cr_expect_float_eq(seconds, 2 * (0.5 + 4 * 1000 / 250.0), 1e-12);
    s.largest_share = 0.3; /* less than the minimum for each of three */
    cr_expect_eq(ty_parameter_server_seconds(&s, 1000, &seconds, NULL), TY_EINVAL);
    s.largest_share = 1.5;
    cr_expect_eq(ty_parameter_server_seconds(&s, 1000, &seconds, NULL), TY_EINVAL);
}
