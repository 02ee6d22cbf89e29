/* Stores shared by hosts: the simulator against closed forms and the estimate. */
#include "scenario.h"

#include <criterion/criterion.h>
#include <math.h>

static const double STORE_BYTES_PER_S = 1e9;

/* Replicas that read `bytes` each, at a rate of at most `limit`, and compute for `compute_s`. */
static void open(scenario *s, const char *line, uint32_t replicas, double bytes, double limit,
                 double own_s, double compute_s)
{
    scenario_open(s, cluster_of(line), 1, &replicas, replicas);
    scenario_add(
        s, 0, op(TY_OP_LOAD), NULL,
        (ty_instruction_cost){
            .seconds = fmax(own_s, fmax(bytes / limit, replicas * bytes / STORE_BYTES_PER_S)),
            .latency_s = own_s,
            .edge_bytes = bytes,
            .rate_limit_bytes_per_s = limit});
    scenario_add(s, 0, op(TY_OP_FORWARD), (const uint32_t[]){0, TY_NO_INSTRUCTION},
                 (ty_instruction_cost){.seconds = compute_s});
    scenario_close(s);
}

/* Concurrent reads: n V / R, or V over each reader's limit if that is slower, or the time outside
 * the store. Folded, unfolded, and step by step agree. */
Test(storage, readers_share_a_store)
{
    static const struct {
        double limit, own_s, compute_s;
    } rows[] = {{1e9, 0, 1e-3}, {1e8, 0, 1e-3}, {1e9, 3, 1e-3}, {1e9, 0, 5}, {1e9, 0.5, 0.01}};
    static const uint32_t counts[] = {1, 3, 16};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
            for (int whole = 0; whole < 3; whole++) {
                const double bytes = 1e8;
                const double load_s =
                    fmax(rows[i].own_s,
                         fmax(bytes / rows[i].limit, counts[c] * bytes / STORE_BYTES_PER_S));
                scenario s;
                ty_timeline *timeline;
                open(&s,
                     "host:16 gpu:1 @v100-sxm2-16gb nvlink2 eth100 storage=nas{bandwidth=1GB/s}",
                     counts[c], bytes, rows[i].limit, rows[i].own_s, rows[i].compute_s);
                s.options.no_fold = whole == 1;
                s.options.resolution = whole == 2 ? TY_CHUNK : TY_FLOW;
                s.options.steps = 3;
                timeline = scenario_simulate(&s);
                for (uint32_t r = 0; r < counts[c]; r++)
                    for (uint32_t step = 0; step < 3; step++) {
                        const ty_event *load = event_of(&s, timeline, step, r, 0);
                        expect_close("load", load->end_s - load->start_s, load_s, 1e-6);
                    }
                expect_close("step",
                             event_of(&s, timeline, 2, 0, 1)->end_s -
                                 event_of(&s, timeline, 1, 0, 1)->end_s,
                             fmax(load_s, rows[i].compute_s), 1e-6);
                ty_timeline_free(timeline);
                scenario_free(&s);
            }
}

/* Two of three replicas read from the store and get the third one's share. While both read, each
 * gets half, for any predicted load time. */
Test(storage, who_does_not_read_takes_nothing)
{
    const uint32_t replicas[] = {2, 1};
    const ty_instruction_cost load = {
        .seconds = 1, .edge_bytes = 1e8, .rate_limit_bytes_per_s = 4e8};
    const ty_instruction_cost more = {
        .seconds = 1, .edge_bytes = 8e8, .rate_limit_bytes_per_s = 1e9};
    scenario s;
    ty_timeline *timeline;

    scenario_open(&s,
                  cluster_of("host:3 gpu:1 @v100-sxm2-16gb nvlink2 eth100 "
                             "storage=nas{bandwidth=1GB/s}"),
                  2, replicas, 2);
    scenario_add(&s, 0, op(TY_OP_LOAD), NULL, load);
    scenario_add(&s, 0, op(TY_OP_FORWARD), (const uint32_t[]){0, TY_NO_INSTRUCTION},
                 (ty_instruction_cost){.seconds = 1e-3});
    scenario_add(&s, 1, op(TY_OP_LOAD), NULL, more);
    scenario_add(&s, 1, op(TY_OP_FORWARD), (const uint32_t[]){0, TY_NO_INSTRUCTION},
                 (ty_instruction_cost){.seconds = 1e-3});
    scenario_close(&s);
    s.options.steps = 1;
    timeline = scenario_simulate(&s);
    /* A third of the store each until 0.3 s, when the two have finished; then all of it. */
    expect_close("one of two", event_of(&s, timeline, 0, 0, 0)->end_s, 0.3, 1e-6);
    expect_close("the other", event_of(&s, timeline, 0, 1, 0)->end_s, 0.3, 1e-6);
    expect_close("the third", event_of(&s, timeline, 0, 2, 0)->end_s, 0.3 + 0.7, 1e-6);
    ty_timeline_free(timeline);
    scenario_free(&s);
}
