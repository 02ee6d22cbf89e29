/* Exchanges over all NICs of a host: estimate and simulation on an empty network. The costs are
 * those that the planner gives to plans of an exchange and nothing else. */
#include "../pin.h"
#include "scenario.h"

#include "ty_planner.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

typedef struct exchanged {
    double estimated_s, simulated_s;
} exchanged;

static const char workload[] = "lenet";

/* A data-parallel plan on all devices with one bucket, by the search's own hand; the costs of its
 * one collective. */
static ty_plan *rails_plan(const char *cluster_text, ty_algorithm algorithm)
{
    ty_cluster *cluster = NULL;
    ty_workload *w = NULL;
    ty_plan *plan = NULL;
    ty_error error = {0};
    ty_plan_options options = ty_plan_options_default();

    cr_assert_eq(ty_cluster_open(cluster_text, NULL, &cluster, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_workload_open(workload, &w, &error), TY_OK, "%s", error.message);
    options.global_batch = 8 * ty_cluster_device_count(cluster);
    pin(&options.pins, "pp=1,dp=%u,micro_batch=8,compression=none,bucket=1024GiB,algorithm=%s",
        ty_cluster_device_count(cluster), ty_algorithm_name(algorithm));
    options.simulate_top = 0;
    cr_assert_eq(ty_plan_search(w, cluster, NULL, &options, &plan, &error), TY_OK, "%s",
                 error.message);
    ty_workload_free(w);
    ty_cluster_free(cluster);
    return plan;
}

static double exchange_s(const ty_plan *plan, const ty_program *program, const ty_timeline *t)
{
    double longest = 0;

    for (uint64_t e = 0; e < t->event_count; e++) {
        const ty_event *event = &t->events[e];
        uint32_t stage = ty_plan_stage_of_replica(plan, event->stage_replica);
        if (program->stages[stage].instructions[event->instruction].op == TY_OP_COLLECTIVE)
            longest = fmax(longest, event->end_s - event->start_s);
    }
    return longest;
}

/* With as many bytes as asked for in place of the bucket's. */
static exchanged play(const char *cluster_text, ty_algorithm algorithm, uint64_t bytes,
                      ty_resolution resolution)
{
    ty_plan *plan = rails_plan(cluster_text, algorithm);
    ty_program *program = NULL;
    ty_cluster *cluster = NULL;
    ty_costs *costs = NULL;
    ty_timeline *estimate = NULL, *simulation = NULL;
    ty_simulate_options options = ty_simulate_options_default();
    exchanged result;
    ty_error error = {0};

    options.steps = 1;
    options.resolution = resolution;
    cr_assert_eq(ty_plan_lower(plan, &program, &error), TY_OK, "%s", error.message);
    for (uint32_t i = 0; i < program->stages[0].instruction_count; i++)
        if (program->stages[0].instructions[i].op == TY_OP_COLLECTIVE)
            program->stages[0].instructions[i].bytes = bytes;
    cr_assert_eq(ty_cluster_open(cluster_text, NULL, &cluster, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_costs_of_program(plan, program, cluster, &costs, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_estimate(plan, program, costs, 1, &estimate, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_simulate(plan, program, costs, cluster, &options, &simulation, &error), TY_OK,
                 "%s", error.message);
    result =
        (exchanged){exchange_s(plan, program, estimate), exchange_s(plan, program, simulation)};
    ty_timeline_free(estimate);
    ty_timeline_free(simulation);
    ty_costs_free(costs);
    ty_cluster_free(cluster);
    ty_program_free(program);
    ty_plan_free(plan);
    return result;
}

Test(rails, estimate_equals_simulation_on_an_empty_network)
{
    static const char *const clusters[] = {
        "2x dgx-a100",  "4x dgx-h100",  "2x p4d.24xlarge",     "1x dgx-h100",
        "1x dgx1-v100", "3x dgx1-v100", "8x v100-pcie-server", "4x xeon-server"};
    static const ty_algorithm algorithms[] = {TY_AUTOMATIC, TY_HIERARCHICAL, TY_PARAMETER_SERVER,
                                              TY_BLOCK_MANAGER};

    for (size_t c = 0; c < sizeof clusters / sizeof *clusters; c++)
        for (size_t a = 0; a < sizeof algorithms / sizeof *algorithms; a++)
            for (uint64_t bytes = 1 << 16; bytes <= (uint64_t)1 << 30; bytes <<= 7) {
                exchanged e = play(clusters[c], algorithms[a], bytes, TY_FLOW);
                cr_expect(fabs(e.simulated_s - e.estimated_s) <= 0.03 * e.estimated_s,
                          "%s, %s of %llu bytes: estimated %g s, simulated %g s", clusters[c],
                          ty_algorithm_name(algorithms[a]), (unsigned long long)bytes,
                          e.estimated_s, e.simulated_s);
            }
}

/* All axes of a torus or a mesh at once, whole or a line of two: the closed form of ty_program.h.
 */
Test(rails, estimate_equals_simulation_on_a_torus)
{
    /* Device by device, the links of an axis of two, which are double, and single ones contend for
     * the chip's port, which all of them fill: up to this factor slower. */
    static const struct {
        const char *text;
        double slower;
    } clusters[] = {
        {"torus:4x4x4 @tpu-v4 ici-v4 host:4", 0.01}, {"torus:8x4 @tpu-v6e ici-v6e host:4", 0.01},
        {"mesh:4x4 @tpu-v6e ici-v6e host:4", 0.01},  {"mesh:2x2x3 @tpu-v5p ici-v5p", 0.01},
        {"torus:2x5 @tpu-v4 ici-v4", 0.25},          {"torus:16x2 @tpu-v4 ici-v4 host:2", 0.25}};
    static const ty_resolution resolutions[] = {TY_FLOW, TY_CHUNK};

    for (size_t c = 0; c < sizeof clusters / sizeof *clusters; c++)
        for (int r = 0; r < 2; r++)
            for (uint64_t bytes = 1 << 16; bytes <= (uint64_t)1 << 30; bytes <<= 7) {
                const exchanged e = play(clusters[c].text, TY_AUTOMATIC, bytes, resolutions[r]);
                const double most = r == 0 ? 0.01 : clusters[c].slower;
                cr_expect(e.simulated_s >= 0.99 * e.estimated_s &&
                              e.simulated_s <= (1 + most) * e.estimated_s,
                          "%s, %s of %llu bytes: estimated %g s, simulated %g s", clusters[c].text,
                          r == 0 ? "flows" : "steps", (unsigned long long)bytes, e.estimated_s,
                          e.simulated_s);
            }
}

/* 64 chips with six links of 50 GB/s: 1 GiB of all-reduce at 300 GB/s; one ring has one link. */
Test(rails, all_links_of_a_chip_work)
{
    const exchanged all = play("torus:4x4x4 @tpu-v4 ici-v4 host:4", TY_AUTOMATIC, 1 << 30, TY_FLOW);
    const exchanged one = play("torus:4x4x4 @tpu-v4 ici-v4 host:4", TY_RING, 1 << 30, TY_FLOW);
    const double bound_s = 2 * 63 / 64.0 * 1073741824 / 300e9;

    cr_expect(all.simulated_s > bound_s && all.simulated_s < 1.01 * bound_s, "%g s",
              all.simulated_s);
    cr_expect(one.simulated_s > 5 * all.simulated_s, "%g s", one.simulated_s);
}

/* Message by message: a ring in each host, one across, and again in each host. */
Test(rails, steps_of_a_hierarchy_take_its_closed_form)
{
    static const char *const clusters[] = {"2x dgx-a100", "4x dgx-h100", "3x dgx1-v100",
                                           "8x v100-pcie-server", "4x xeon-server"};

    for (size_t c = 0; c < sizeof clusters / sizeof *clusters; c++)
        for (uint64_t bytes = 1 << 16; bytes <= (uint64_t)1 << 30; bytes <<= 7) {
            exchanged e = play(clusters[c], TY_HIERARCHICAL, bytes, TY_CHUNK);
            cr_expect(fabs(e.simulated_s - e.estimated_s) <= 0.01 * e.estimated_s,
                      "%s, %llu bytes: closed form %g s, simulated %g s", clusters[c],
                      (unsigned long long)bytes, e.estimated_s, e.simulated_s);
        }
}

Test(rails, steps_take_what_flows_take)
{
    static const char *const clusters[] = {"2x dgx-a100", "3x dgx1-v100", "8x v100-pcie-server"};
    static const ty_algorithm algorithms[] = {TY_AUTOMATIC, TY_HIERARCHICAL, TY_PARAMETER_SERVER};

    for (size_t c = 0; c < sizeof clusters / sizeof *clusters; c++)
        for (size_t a = 0; a < sizeof algorithms / sizeof *algorithms; a++)
            for (uint64_t bytes = 1 << 16; bytes <= (uint64_t)1 << 30; bytes <<= 7) {
                exchanged chunk = play(clusters[c], algorithms[a], bytes, TY_CHUNK);
                exchanged flow = play(clusters[c], algorithms[a], bytes, TY_FLOW);
                cr_expect(fabs(chunk.simulated_s - flow.simulated_s) <= 0.03 * flow.simulated_s,
                          "%s, %s of %llu bytes: flow %g s, chunk %g s", clusters[c],
                          ty_algorithm_name(algorithms[a]), (unsigned long long)bytes,
                          flow.simulated_s, chunk.simulated_s);
            }
}

/* Eight NICs of 25 GB/s on each of two hosts: 1 GiB of ring all-reduce sends 2 * 15/16 GiB over
 * every edge, at no more than 200 GB/s in total. A single NIC would take eight times as long. */
Test(rails, all_adapters_of_a_host_work)
{
    exchanged all = play("2x dgx-a100", TY_AUTOMATIC, 1 << 30, TY_FLOW);
    exchanged one = play("2x dgx-a100", TY_RING, 1 << 30, TY_FLOW);
    const double bound_s = 2 * 15 / 16.0 * 1073741824 / 200e9;

    cr_expect(all.simulated_s > bound_s && all.simulated_s < 1.2 * bound_s, "%g s",
              all.simulated_s);
    cr_expect(one.simulated_s > 5 * all.simulated_s, "%g s", one.simulated_s);
}
