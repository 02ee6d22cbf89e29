/* Results of a simulation in addition to its times, against invariants: bytes are conserved, shares
 * add up, memory has the model's peak. Plans and costs are the planner's. */
#include "../pin.h"
#include "scenario.h"

#include "ty_base.h"
#include "ty_planner.h"
#include "ty_workloads.h"

#include <criterion/criterion.h>
#include <math.h>

typedef struct subject {
    ty_cluster *cluster;
    ty_plan *plan;
    ty_program *program;
    ty_costs *costs;
    ty_timeline *timeline;
} subject;

static const struct row {
    const char *cluster, *replicas;
    uint32_t stages, tensor, zero, context;
    ty_schedule schedule;
    uint32_t virtual_stages;
} rows[] = {{"2x dgx-a100", "4+4", 2, 2, 0, 1, TY_ONE_F_ONE_B, 1},
            {"2x dgx-a100", "16", 1, 1, 2, 1, TY_GPIPE, 1},
            {"4x p100-server", "2+2+2+2", 4, 2, 0, 1, TY_ZERO_BUBBLE, 1},
            {"4x p100-server", "2+2+2+2", 4, 2, 0, 1, TY_ZERO_BUBBLE_2P, 1},
            {"2x dgx-h100", "8+8", 2, 1, 1, 1, TY_GPIPE, 1},
            {"4x p100-server", "1+1", 2, 2, 1, 4, TY_ONE_F_ONE_B, 1},
            {"2x dgx-a100", "4", 1, 1, 2, 4, TY_GPIPE, 1},
            {"2x dgx-a100", "4+4+4+4", 4, 1, 0, 1, TY_INTERLEAVED, 3}};
enum { ROW_COUNT = sizeof rows / sizeof *rows };

static subject open_subject(const struct row *row)
{
    subject s = {0};
    ty_workload *workload = NULL;
    ty_plan_options options = ty_plan_options_default();
    ty_simulate_options how = ty_simulate_options_default();
    ty_error error = {0};

    cr_assert_eq(ty_cluster_open(row->cluster, NULL, &s.cluster, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_workload_open("gpt2", &workload, &error), TY_OK, "%s", error.message);
    options.global_batch = 64;
    options.pins.axes |= TY_AXES_OF_DIMENSIONS;
    pin(&options.pins, "pp=%u,replicas=%s,micro_batch=1,tp=%u,cp=%u,zero=%u,vpp=%u,schedule=%s",
        row->stages, row->replicas, row->tensor, row->context, row->zero, row->virtual_stages,
        ty_schedule_name(row->schedule));
    options.simulate_top = 0;
    cr_assert_eq(ty_plan_search(workload, s.cluster, NULL, &options, &s.plan, &error), TY_OK,
                 "%s: %s", row->cluster, error.message);
    cr_assert_eq(ty_plan_lower(s.plan, &s.program, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_costs_of_program(s.plan, s.program, s.cluster, &s.costs, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_simulate(s.plan, s.program, s.costs, s.cluster, &how, &s.timeline, &error),
                 TY_OK, "%s", error.message);
    ty_workload_free(workload);
    return s;
}

static void close_subject(subject *s)
{
    ty_timeline_free(s->timeline);
    ty_costs_free(s->costs);
    ty_program_free(s->program);
    ty_plan_free(s->plan);
    ty_cluster_free(s->cluster);
}

/* Every link: the bins contain the bytes that the steps send over it, and none exceeds the link's
 * capacity. */
Test(analysis, history_keeps_the_bytes_of_links)
{
    for (int i = 0; i < ROW_COUNT; i++) {
        subject s = open_subject(&rows[i]);
        ty_link_load *loads = NULL;
        ty_link_history history = {0};
        ty_error error = {0};
        uint32_t count = 0;
        cr_assert_eq(ty_link_loads(s.plan, s.program, s.costs, s.cluster, &loads, &count, &error),
                     TY_OK);
        cr_assert(count > 0);
        uint32_t *links = ty_alloc(count, sizeof *links);
        for (uint32_t l = 0; l < count; l++)
            links[l] = 2 * loads[l].link + loads[l].is_backward;
        cr_assert_eq(ty_link_history_of(s.plan, s.program, s.costs, s.cluster, s.timeline, links,
                                        count, 40, &history, &error),
                     TY_OK, "%s", error.message);
        for (uint32_t l = 0; l < count; l++) {
            double sum = 0.0;
            for (uint32_t b = 0; b < history.bin_count; b++)
                sum += history.curves[l].bytes[b];
            cr_assert_eq(history.curves[l].link, loads[l].link);
            expect_close("bytes", sum, loads[l].bytes * s.timeline->step_count, 1e-9);
        }
        ty_link_history_clear(&history);
        ty_free(links);
        ty_free(loads);
        close_subject(&s);
    }
}

/* Traffic from a host is on its links to the interconnect. */
Test(analysis, traffic_between_hosts_is_what_their_links_carry)
{
    for (int i = 0; i < ROW_COUNT; i++) {
        subject s = open_subject(&rows[i]);
        ty_link_load *loads = NULL;
        ty_traffic *traffic = NULL;
        ty_error error = {0};
        uint32_t link_count = 0, count = 0;
        double sent = 0.0, carried = 0.0;
        cr_assert_eq(ty_traffic_matrix(s.plan, s.program, s.costs, s.cluster, TY_BETWEEN_HOSTS,
                                       &traffic, &count, &error),
                     TY_OK, "%s", error.message);
        cr_assert_eq(
            ty_link_loads(s.plan, s.program, s.costs, s.cluster, &loads, &link_count, &error),
            TY_OK);
        for (uint32_t t = 0; t < count; t++) {
            cr_expect(t == 0 || traffic[t].bytes <= traffic[t - 1].bytes);
            sent += traffic[t].from != traffic[t].to ? traffic[t].bytes : 0.0;
        }
        for (uint32_t l = 0; l < link_count; l++) {
            const ty_link_edge *link = ty_cluster_link(s.cluster, loads[l].link);
            const uint32_t to = loads[l].is_backward ? link->from : link->to;
            if (ty_cluster_vertex_kind(s.cluster, to) == TY_VERTEX_SWITCH)
                carried += loads[l].bytes;
        }
        cr_expect(sent > 0.0);
        expect_close("bytes", carried, sent, 1e-9);
        ty_free(traffic);
        ty_free(loads);
        close_subject(&s);
    }
}

/* Device by device the same bytes, over as many links as their routes have. */
Test(analysis, traffic_between_devices_goes_over_their_ways)
{
    for (int i = 0; i < ROW_COUNT; i++) {
        subject s = open_subject(&rows[i]);
        ty_link_load *loads = NULL;
        ty_traffic *devices = NULL, *hosts = NULL;
        uint32_t link_count = 0, device_pairs = 0, host_pairs = 0;
        double routed = 0.0, carried = 0.0;

        cr_assert_eq(ty_traffic_matrix(s.plan, s.program, s.costs, s.cluster, TY_BETWEEN_DEVICES,
                                       &devices, &device_pairs, NULL),
                     TY_OK);
        cr_assert_eq(ty_traffic_matrix(s.plan, s.program, s.costs, s.cluster, TY_BETWEEN_HOSTS,
                                       &hosts, &host_pairs, NULL),
                     TY_OK);
        cr_assert_eq(
            ty_link_loads(s.plan, s.program, s.costs, s.cluster, &loads, &link_count, NULL), TY_OK);
        for (uint32_t d = 0; d < device_pairs; d++) {
            const uint32_t from = ty_cluster_device_host(s.cluster, devices[d].from);
            const uint32_t to = ty_cluster_device_host(s.cluster, devices[d].to);
            ty_path path = {0};
            cr_expect_neq(devices[d].from, devices[d].to);
            cr_assert_eq(ty_cluster_path(s.cluster, devices[d].from, devices[d].to, &path, NULL),
                         TY_OK);
            routed += devices[d].bytes * path.link_count;
            ty_path_clear(&path);
            for (uint32_t h = 0; h < host_pairs; h++)
                if (hosts[h].from == from && hosts[h].to == to)
                    hosts[h].bytes -= devices[d].bytes;
        }
        for (uint32_t l = 0; l < link_count; l++)
            carried += loads[l].bytes;
        for (uint32_t h = 0; h < host_pairs; h++)
            cr_expect_float_eq(hosts[h].bytes, 0.0, 1e-9 * carried);
        cr_expect(device_pairs > 0);
        expect_close("bytes", carried, routed, 1e-9);
        ty_free(devices);
        ty_free(hosts);
        ty_free(loads);
        close_subject(&s);
    }
}

Test(analysis, memory_rises_to_the_peak_of_the_model)
{
    for (int i = 0; i < ROW_COUNT; i++) {
        subject s = open_subject(&rows[i]);
        for (uint32_t stage = 0; stage < s.plan->stage_count; stage++) {
            ty_memory_point *points = NULL;
            ty_error error = {0};
            uint32_t count = 0;
            uint64_t peak = 0;
            cr_assert_eq(ty_memory_curve(s.plan, s.program, s.timeline,
                                         ty_plan_first_replica(s.plan, stage), &points, &count,
                                         &error),
                         TY_OK, "%s", error.message);
            for (uint32_t p = 0; p < count; p++) {
                peak = points[p].bytes > peak ? points[p].bytes : peak;
                cr_expect(p == 0 || points[p].time_s > points[p - 1].time_s);
            }
            expect_close("peak", (double)peak, (double)ty_memory_use_total(&s.plan->memory[stage]),
                         1e-6);
            cr_expect_eq(points[count - 1].bytes, ty_memory_use_total(&s.plan->memory[stage]) -
                                                      s.plan->memory[stage].activation_bytes);
            ty_free(points);
        }
        close_subject(&s);
    }
}

Test(analysis, the_breakdown_is_the_summary_in_detail)
{
    for (int i = 0; i < ROW_COUNT; i++) {
        subject s = open_subject(&rows[i]);
        double shares[TY_TIME_KIND_COUNT], sum = 0.0, mean = 0.0;
        double *busy = ty_alloc(s.timeline->stage_replica_count, sizeof *busy);
        ty_step_summary summary;
        ty_error error = {0};
        cr_assert_eq(
            ty_timeline_breakdown(s.plan, s.program, s.costs, s.timeline, shares, busy, &error),
            TY_OK, "%s", error.message);
        cr_assert_eq(ty_timeline_summarize(s.plan, s.program, s.timeline, &summary, &error), TY_OK);
        for (int k = 0; k < TY_TIME_KIND_COUNT; k++)
            sum += shares[k];
        for (uint32_t r = 0; r < s.timeline->stage_replica_count; r++)
            mean += busy[r] / s.timeline->stage_replica_count;
        expect_close("all", sum, 1.0, 1e-9);
        expect_close("busy", mean, summary.compute_share, 1e-9);
        expect_close("compute",
                     shares[TY_TIME_FORWARD] + shares[TY_TIME_BACKWARD] +
                         shares[TY_TIME_RECOMPUTE] + shares[TY_TIME_OPTIMIZER] +
                         shares[TY_TIME_TENSOR_EXCHANGE],
                     summary.compute_share, 1e-9);
        expect_close("exchange",
                     shares[TY_TIME_GRADIENT_EXCHANGE] + shares[TY_TIME_WEIGHT_GATHER] +
                         shares[TY_TIME_CODEC],
                     summary.exposed_collective_share, 1e-9);
        cr_expect((shares[TY_TIME_TENSOR_EXCHANGE] > 0) ==
                  (rows[i].tensor > 1 || rows[i].context > 1));
        cr_expect(shares[TY_TIME_FORWARD] > 0 && shares[TY_TIME_BACKWARD] > 0 &&
                  shares[TY_TIME_OPTIMIZER] > 0);
        ty_free(busy);
        close_subject(&s);
    }
}
