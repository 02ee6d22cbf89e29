/*
 * Scenarios: each one of the zoo from its file to a simulated plan, and its distinguishing cost by
 * hand.
 */
#include "../pin.h"
#include "ty_planner.h"
#include "ty_simulate.h"
#include "ty_workloads.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

typedef struct scene { /* a plan and its program, costs and prediction */
    ty_cluster *cluster;
    ty_plan *plan;
    ty_program *program;
    ty_costs *costs;
} scene;

static ty_workload *open_workload(const char *name)
{
    ty_workload *workload = NULL;
    ty_error error = {0};
    cr_assert_eq(ty_workload_open(name, &workload, &error), TY_OK, "%s", error.message);
    return workload;
}

/* Uncompressed; in one stage if `stages` is 1. */
static scene plan_of(const ty_workload *workload, const char *cluster, uint32_t stages)
{
    ty_plan_options options = ty_plan_options_default();
    ty_stack *worker = NULL;
    ty_error error = {0};
    scene s = {0};

    cr_assert_eq(ty_stack_open(TY_WORKER_STACK, &worker, &error), TY_OK, "%s", error.message);
    options.stack = worker;
    pin(&options.pins, "compression=none");
    options.pins.axes |= TY_AXES_OF_DIMENSIONS; /* as in their papers: nothing is sharded */
    if (stages > 0)
        pin(&options.pins, "pp=%u", stages);
    cr_assert_eq(ty_cluster_open(cluster, NULL, &s.cluster, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_plan_search(workload, s.cluster, NULL, &options, &s.plan, &error), TY_OK,
                 "%s: %s", workload->name, error.message);
    ty_stack_free(worker);
    cr_assert_eq(ty_plan_lower(s.plan, &s.program, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_program_check(s.plan, s.program, "program", &error), TY_OK, "%s: %s",
                 workload->name, error.message);
    cr_assert_eq(ty_costs_of_program(s.plan, s.program, s.cluster, &s.costs, &error), TY_OK, "%s",
                 error.message);
    return s;
}

static void scene_clear(scene *s)
{
    ty_costs_free(s->costs);
    ty_program_free(s->program);
    ty_plan_free(s->plan);
    ty_cluster_free(s->cluster);
}

static double step_of(const char *name, const char *cluster, const ty_workload *workload)
{
    scene s = plan_of(workload, cluster, 1);
    double step_s = s.plan->prediction.step_time_s;

    cr_assert_gt(step_s, 0, "%s", name);
    scene_clear(&s);
    return step_s;
}

/* Seconds of all instructions of an operation on the first stage. */
static double seconds_of(const scene *s, ty_op op)
{
    double sum = 0;
    for (uint32_t i = 0; i < s->program->stages[0].instruction_count; i++)
        if (s->program->stages[0].instructions[i].op == op)
            sum += s->costs->instructions[0][i].seconds;
    return sum;
}

static void expect_near(const char *what, double found, double expected, double tolerance)
{
    cr_expect(fabs(found - expected) <= tolerance * fabs(expected),
              "%s: found %.12g, expected %.12g", what, found, expected);
}

/* ---- All of them ------------------------------------------------------------------------- */

static const struct scenario {
    const char *name, *cluster;
    uint64_t parameters, trained; /* trained by gradients */
    const char *limit;            /* expected bottleneck of the plan; NULL: any */
} scenarios[] = {
    {"transfer-resnet50", "1x dgx1-v100", 23717030, 208998, NULL},
    {"transfer-lenet", "1x p100-server", 431080, 405510, NULL},
    {"mean-teacher-cifar10", "1x p100-server", 2 * 3121802, 3121802, NULL},
    {"mean-teacher-fashion", "1x p100-server", 2 * 431080, 431080, NULL},
    {"corridor-evolution", "1x p100-server", 211, 0, NULL},
    {"corridor-reinforce", "1x p100-server", 211, 211, NULL},
    {"corridor-navigation", "robots", 419, 419, "input"},
    {"dqn-atari", "1x v100-pcie-server", 2 * 1693362, 1693362, NULL},
    {"es-humanoid", "evolution-xeon", 29393, 0, "input"},
    {"fedavg-cnn", "phones", 1663370, 1663370, NULL},
    {"pilotnet-navigation", "robots", 252219, 252219, "input"},
    {"collaborative-bert-base", "collaborating-sites", 109514298, 109514298, "gradient"},
};

/* Parameter counts: published ones for the CNN of federated averaging and BERT, sums over the
 * papers' shapes for the others. On clusters without contention the simulator agrees with the
 * estimator. */
Test(scenarios, load_plan_and_simulate)
{
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        const struct scenario *row = &scenarios[i];
        ty_workload *w = open_workload(row->name);
        scene s = plan_of(w, row->cluster, 0);
        ty_simulate_options options = ty_simulate_options_default();
        ty_timeline *timeline = NULL;
        ty_step_summary simulated;
        ty_error error = {0};
        uint64_t trained = 0;

        for (uint32_t l = 0; l < w->layer_count; l++)
            trained += ty_layer_is_trained(w, l) ? w->layers[l].parameter_bytes / 4 : 0;
        cr_expect_eq(ty_workload_parameter_bytes(w, 0, w->layer_count), 4 * row->parameters, "%s",
                     row->name);
        cr_expect_eq(trained, row->trained, "%s: %llu trained", row->name,
                     (unsigned long long)trained);
        cr_assert_eq(
            ty_simulate(s.plan, s.program, s.costs, s.cluster, &options, &timeline, &error), TY_OK,
            "%s: %s", row->name, error.message);
        cr_assert_eq(ty_timeline_summarize(s.plan, s.program, timeline, &simulated, &error), TY_OK,
                     "%s", error.message);
        if (s.plan->stage_count == 1 && ty_plan_replica_ranks(s.plan) == 1)
            expect_near(row->name, simulated.step_time_s, s.plan->prediction.step_time_s, 0.1);
        else /* only the simulator models contention of links, or models it better */
            cr_expect_geq(simulated.step_time_s, 0.95 * s.plan->prediction.step_time_s, "%s",
                          row->name);
        if (row->limit != NULL)
            cr_expect_eq(strncmp(s.plan->prediction.limited_by, row->limit, strlen(row->limit)), 0,
                         "%s: limited by %s", row->name, s.plan->prediction.limited_by);
        ty_timeline_free(timeline);
        scene_clear(&s);
        ty_workload_free(w);
    }
}

/* ---- One by one -------------------------------------------------------------------------- */

/* Freezing saves two things on one device: the backward pass of the frozen layers, and the update
 * of their parameters, which reads weight, gradient and momentum and writes two of them. */
Test(scenarios, a_frozen_prefix_saves_its_backward)
{
    ty_workload *frozen = open_workload("transfer-resnet50"), *trained = open_workload("resnet50");
    scene f, t;
    double backward_s = 0;

    /* The same model, with other trained layers. */
    ty_workload_free(trained);
    trained = open_workload("transfer-resnet50");
    for (uint32_t l = 0; l < trained->layer_count; l++)
        trained->layers[l].is_frozen = false;
    cr_assert_eq(ty_workload_first_backward(frozen), 174);
    cr_assert_eq(ty_workload_first_backward(trained), 0);
    f = plan_of(frozen, "1x dgx-spark", 1);
    t = plan_of(trained, "1x dgx-spark", 1);
    for (uint32_t l = 0; l < 174; l++) {
        double forward_s, one_s;
        ty_provenance provenance;
        cr_assert_eq(ty_layer_cost(trained, l, 256, ty_cluster_device_type(t.cluster, 0), NULL,
                                   &forward_s, &one_s, &provenance, NULL),
                     TY_OK);
        backward_s += one_s;
    }
    cr_assert_eq(f.plan->micro_batches, 1);
    cr_assert_eq(t.plan->micro_batches, 1);
    expect_near("forward", seconds_of(&f, TY_OP_FORWARD), seconds_of(&t, TY_OP_FORWARD), 1e-12);
    expect_near("backward", seconds_of(&t, TY_OP_BACKWARD) - seconds_of(&f, TY_OP_BACKWARD),
                backward_s, 1e-9);
    expect_near("update", seconds_of(&t, TY_OP_UPDATE) / seconds_of(&f, TY_OP_UPDATE),
                23717030.0 / 208998, 1e-9);
    expect_near("step", t.plan->prediction.step_time_s - f.plan->prediction.step_time_s,
                backward_s + seconds_of(&t, TY_OP_UPDATE) - seconds_of(&f, TY_OP_UPDATE), 1e-9);
    cr_expect_eq(f.plan->memory[0].gradient_bytes, 4 * 208998);
    cr_expect_eq(f.plan->memory[0].optimizer_bytes, 4 * 208998);
    cr_expect_lt(4 * f.plan->memory[0].activation_bytes, t.plan->memory[0].activation_bytes * 3);
    scene_clear(&f);
    scene_clear(&t);
    ty_workload_free(frozen);
    ty_workload_free(trained);
}

/* A frozen branch parallel to a trained one: two forward passes, one backward pass. */
Test(scenarios, a_teacher_has_no_backward)
{
    static const char *const names[] = {"mean-teacher-cifar10", "dqn-atari"};

    for (size_t i = 0; i < 2; i++) {
        ty_workload *w = open_workload(names[i]);
        scene s = plan_of(w, "1x dgx-spark", 1);
        double forward_s = 0, backward_s = 0;
        uint32_t without = 0;
        bool *takes_part = ty_alloc(w->layer_count, sizeof *takes_part);

        ty_workload_mark_backward(w, takes_part);
        for (uint32_t l = 0; l < w->layer_count; l++) {
            double one_s, back_s;
            ty_provenance provenance;
            cr_assert_eq(ty_layer_cost(w, l, s.plan->micro_batch_size,
                                       ty_cluster_device_type(s.cluster, 0), NULL, &one_s, &back_s,
                                       &provenance, NULL),
                         TY_OK);
            forward_s += one_s;
            backward_s += takes_part[l] ? back_s : 0;
            without += !takes_part[l];
            cr_expect(!w->layers[l].is_frozen || !takes_part[l], "%s: %s", names[i],
                      w->layers[l].name);
        }
        cr_expect_gt(without, w->layer_count / 3, "%s", names[i]);
        expect_near(names[i], seconds_of(&s, TY_OP_FORWARD), forward_s * s.plan->micro_batches,
                    1e-9);
        expect_near(names[i], seconds_of(&s, TY_OP_BACKWARD), backward_s * s.plan->micro_batches,
                    1e-9);
        ty_free(takes_part);
        scene_clear(&s);
        ty_workload_free(w);
    }
}

/* Compute and update are unchanged; the all-reduce of 16 phones is amortized over the local
 * steps. */
Test(scenarios, local_steps_divide_the_exchange)
{
    ty_workload *w = open_workload("fedavg-cnn");
    uint32_t devices[16];
    double bandwidth, latency, alone_s, together_s;
    ty_cluster *cluster = NULL;
    ty_instruction_cost exchange;

    cr_assert_eq(w->local_steps, 300);
    cr_assert_eq(ty_cluster_open("phones", NULL, &cluster, NULL), TY_OK);
    for (uint32_t d = 0; d < 16; d++)
        devices[d] = d;
    cr_assert_eq(ty_cluster_ring(cluster, devices, 16, &bandwidth, &latency, NULL), TY_OK);
    cr_assert_eq(ty_collective_cost(TY_ALL_REDUCE, TY_RING, 16, 4 * 1663370, bandwidth, latency,
                                    &exchange, NULL),
                 TY_OK);
    w->global_batch = 10; /* one phone with the same number of samples */
    alone_s = step_of("alone", "1x phone-lte", w);
    w->global_batch = 160;
    for (uint32_t k = 2; k <= 300; k *= 5) {
        w->local_steps = k;
        together_s = step_of("together", "phones", w);
        expect_near("local steps", together_s - alone_s, exchange.seconds / k, 1e-6);
    }
    ty_cluster_free(cluster);
    ty_workload_free(w);
}

/* Eight cameras of 10 images per second produce 64 samples in 0.8 s. A robot with 64 samples of its
 * own waits 6.4 s. More robots are faster although the model is the same. */
Test(scenarios, sensors_bind_the_step)
{
    ty_workload *w = open_workload("pilotnet-navigation");

    expect_near("eight", step_of("eight", "robots", w), 0.8, 1e-6);
    expect_near("one", step_of("one", "1x jetson-agx-orin", w), 6.4, 1e-6);
    w->input_s_per_sample = 0;
    cr_expect_lt(step_of("storage", "robots", w), 0.1);
    ty_workload_free(w);
}

/* Scores of 18 members per host, 8 bytes each, all-gathered in 79 steps of a ring; an update that
 * reads the noise of 1,440 members; no backward pass. */
Test(scenarios, evolution_exchanges_scores)
{
    ty_workload *w = open_workload("es-humanoid");
    scene s = plan_of(w, "evolution-xeon", 0);
    const ty_device_type *device = ty_cluster_device_type(s.cluster, 0);
    uint32_t devices[80];
    double bandwidth, latency, update_s;
    ty_instruction_cost exchange;

    for (uint32_t d = 0; d < 80; d++)
        devices[d] = d;
    cr_assert_eq(ty_cluster_ring(s.cluster, devices, 80, &bandwidth, &latency, NULL), TY_OK);
    cr_assert_eq(
        ty_collective_cost(TY_ALL_GATHER, TY_RING, 80, 8 * 18, bandwidth, latency, &exchange, NULL),
        TY_OK);
    update_s = (1440 + 3 + 2 * 2) * 4.0 * 29393 /
               (device->memory_bandwidth_bytes_per_s * device->memory_efficiency);
    cr_expect_eq(s.plan->bucket_count, 1);
    cr_expect_eq(seconds_of(&s, TY_OP_BACKWARD), 0);
    expect_near("exchange", seconds_of(&s, TY_OP_COLLECTIVE), exchange.seconds, 1e-12);
    expect_near("update", seconds_of(&s, TY_OP_UPDATE), update_s, 1e-12);
    expect_near("load", seconds_of(&s, TY_OP_LOAD), 0.2, 1e-12);
    scene_clear(&s);
    ty_workload_free(w);
}

/* A population cannot be partitioned into stages, and scores cannot be compressed. */
Test(scenarios, evolution_refuses_stages_and_compression)
{
    ty_workload *w = open_workload("es-humanoid");
    ty_plan_options options = ty_plan_options_default();
    ty_cluster *cluster = NULL;
    ty_plan *plan = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_cluster_open("evolution-xeon", NULL, &cluster, NULL), TY_OK);
    pin(&options.pins, "pp=2");
    cr_expect_eq(ty_plan_search(w, cluster, NULL, &options, &plan, &error), TY_EINVAL);
    cr_expect_neq(strstr(error.message, "a population is evaluated"), NULL, "%s", error.message);
    ty_unpin(&options.pins, TY_AXIS_PP);
    pin(&options.pins, "compression=fp16");
    cr_expect_eq(ty_plan_search(w, cluster, NULL, &options, &plan, &error), TY_EINVAL);
    cr_expect_neq(strstr(error.message, "exchanges scores"), NULL, "%s", error.message);
    ty_cluster_free(cluster);
    ty_workload_free(w);
}

/* A teacher's update after the student's reads both weights and writes its own; the teacher is on
 * the devices of its student. */
Test(scenarios, a_teacher_follows_whole_networks)
{
    static const struct {
        uint32_t stages, zero, staleness, ranks;
        const char *words;
        ty_schedule schedule;
    } refused[] = {
        {1, 0, 0, 1, "two sets of weights, expected another: a teacher", TY_PIPEDREAM_2BW},
        {2, 0, 0, 1, "2 pipeline stages were asked for", TY_GPIPE},
        {1, 1, 0, 1, "zero: found 1, expected 0: a teacher follows", TY_GPIPE},
        {1, 0, 1, 1, "staleness: found 1, expected 0: a teacher follows", TY_GPIPE},
        {1, 0, 0, 2, "tensor parallel 2", TY_GPIPE},
    };
    ty_workload *w = open_workload("mean-teacher-fashion");
    scene s = plan_of(w, "1x p100-server", 1);
    const ty_device_type *device = ty_cluster_device_type(s.cluster, 0);

    expect_near("update", seconds_of(&s, TY_OP_UPDATE),
                (3 + 2 + 3) * 4.0 * 431080 /
                    (device->memory_bandwidth_bytes_per_s * device->memory_efficiency),
                1e-9);
    scene_clear(&s);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ty_plan_options options = ty_plan_options_default();
        ty_cluster *cluster = NULL;
        ty_plan *plan = NULL;
        ty_error error = {0};

        options.pins.axes |= TY_AXES_OF_DIMENSIONS;
        pin(&options.pins, "pp=%u,zero=%u,tp=%u,staleness=%u", refused[i].stages, refused[i].zero,
            refused[i].ranks, refused[i].staleness);
        if (refused[i].schedule == TY_PIPEDREAM_2BW)
            ty_pin(&options.pins, TY_AXIS_SCHEDULE, refused[i].schedule);
        cr_assert_eq(ty_cluster_open("1x p100-server", NULL, &cluster, NULL), TY_OK);
        cr_expect_eq(ty_plan_search(w, cluster, NULL, &options, &plan, &error), TY_EINVAL, "%s",
                     refused[i].words);
        cr_expect_neq(strstr(error.message, refused[i].words), NULL, "%s", error.message);
        ty_cluster_free(cluster);
    }
    ty_workload_free(w);
}

/* Gradients of a common batch of 4,096 over lines of 1 Gbit/s between sites: the all-reduce of 438
 * MB takes at least twice the time of 15/16 of it over one line. */
Test(scenarios, collaboration_pays_for_its_line)
{
    ty_workload *w = open_workload("collaborative-bert-base");
    scene s = plan_of(w, "collaborating-sites", 1);
    double least_s = 2.0 * 15 / 16 * 4 * 109514298 / 125e6;

    cr_expect_geq(seconds_of(&s, TY_OP_COLLECTIVE), least_s);
    cr_expect_leq(seconds_of(&s, TY_OP_COLLECTIVE), least_s * 1.5);
    scene_clear(&s);
    ty_workload_free(w);
}

/* ---- Actors ------------------------------------------------------------------------------- */

static scene plan_of_actors(const char *cluster, uint32_t actors, uint32_t lag, uint32_t size)
{
    ty_workload *w = open_workload("corridor-reinforce");
    ty_plan_options options = ty_plan_options_default();
    ty_error error = {0};
    scene s = {0};

    pin(&options.pins, "actors=%u,lag=%u,compression=none,bucket=one,micro_batch=%u", actors, lag,
        size);
    cr_assert_eq(ty_cluster_open(cluster, NULL, &s.cluster, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_plan_search(w, s.cluster, NULL, &options, &s.plan, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_plan_lower(s.plan, &s.program, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_costs_of_program(s.plan, s.program, s.cluster, &s.costs, &error), TY_OK, "%s",
                 error.message);
    ty_workload_free(w);
    return s;
}

static double simulated_step(const scene *s)
{
    ty_simulate_options options = ty_simulate_options_default();
    ty_timeline *timeline = NULL;
    ty_step_summary simulated;
    ty_error error = {0};

    options.steps = 12;
    cr_assert_eq(
        ty_simulate(s->plan, s->program, s->costs, s->cluster, &options, &timeline, &error), TY_OK,
        "%s", error.message);
    cr_assert_eq(ty_timeline_summarize(s->plan, s->program, timeline, &simulated, &error), TY_OK,
                 "%s", error.message);
    ty_timeline_free(timeline);
    return simulated.step_time_s;
}

/* Sum over all instructions of a stage with this operation in a direction, or in none. */
static double time_of(const scene *s, uint32_t stage, ty_op op, ty_direction direction)
{
    const ty_stage_program *list = &s->program->stages[stage];
    double sum = 0;

    for (uint32_t i = 0; i < list->instruction_count; i++)
        if (list->instructions[i].op == op && list->instructions[i].direction == direction)
            sum += s->costs->instructions[stage][i].seconds;
    return sum;
}

/* One actor, one learner, one micro-batch. Without staleness everything is sequential. With a
 * staleness of l, l + 1 steps take one full round, or the busiest device is the bottleneck. */
Test(scenarios, actors_take_turns_or_overlap)
{
    static const char cluster[] = "host:2 gpu:1 @v100-sxm2-16gb nvlink2 eth10";

    for (uint32_t lag = 0; lag <= 2; lag++) {
        scene s = plan_of_actors(cluster, 1, lag, 64);
        const double act = time_of(&s, 0, TY_OP_LOAD, TY_NO_DIRECTION) +
                           time_of(&s, 0, TY_OP_BEGIN, TY_NO_DIRECTION);
        const double learn = time_of(&s, 1, TY_OP_FORWARD, TY_NO_DIRECTION) +
                             time_of(&s, 1, TY_OP_BACKWARD, TY_NO_DIRECTION) +
                             time_of(&s, 1, TY_OP_UPDATE, TY_NO_DIRECTION);
        const double round = act + learn + time_of(&s, 0, TY_OP_SEND, TY_ACTIVATION) +
                             time_of(&s, 1, TY_OP_SEND, TY_GRADIENT);
        const double expected = fmax(fmax(act, learn), round / (lag + 1));

        cr_expect_eq(ty_plan_actors(s.plan), 1);
        cr_expect_eq(s.plan->lag, lag);
        cr_expect_gt(act, learn);
        expect_near("estimated", s.plan->prediction.step_time_s, expected, 1e-3);
        expect_near("simulated", simulated_step(&s), expected, 1e-3);
        scene_clear(&s);
    }
}

/* As measured, for any layers; without a measurement 300 passes of one step of all 64 robots. */
Test(scenarios, playing_is_measured_whole)
{
    scene s = plan_of_actors("1x p100-server", 2, 0, 16);
    ty_layer_time row = {.micro_batch = 16, .forward_s = 0.25};
    ty_profile profile = {.layer_time_count = 1, .layer_times = &row};
    ty_workload *step = NULL;
    ty_provenance ignored;
    double passes = 0, forward_s, backward_s;

    cr_assert_eq(ty_workload_step_make(s.plan->workload, &step, NULL), TY_OK);
    for (uint32_t l = 0; l + 1 < step->layer_count; l++) {
        cr_assert_eq(ty_layer_cost(step, l, 16, ty_cluster_device_type(s.cluster, 0), NULL,
                                   &forward_s, &backward_s, &ignored, NULL),
                     TY_OK);
        passes += 300 * forward_s;
    }
    expect_near("by kernels", time_of(&s, 0, TY_OP_LOAD, TY_NO_DIRECTION), 2 * passes, 1e-9);
    cr_assert_eq(ty_workload_play_signature(s.plan->workload, &row.signature, NULL), TY_OK);
    s.plan->profile = &profile;
    ty_costs_free(s.costs);
    cr_assert_eq(ty_costs_of_program(s.plan, s.program, s.cluster, &s.costs, NULL), TY_OK);
    expect_near("measured", time_of(&s, 0, TY_OP_LOAD, TY_NO_DIRECTION), 2 * 0.25, 1e-9);
    s.plan->profile = NULL;
    ty_free(row.signature);
    ty_workload_free(step);
    scene_clear(&s);
}

/* Several of both: concurrent messages share no cable. */
Test(scenarios, actors_of_several_learners)
{
    for (uint32_t lag = 0; lag <= 1; lag++) {
        scene s = plan_of_actors("1x p100-server", 2, lag, 16);

        cr_expect_eq(ty_plan_actors(s.plan), 2);
        cr_expect_eq(s.plan->stages[1].replicas, 2);
        expect_near("simulated", simulated_step(&s), s.plan->prediction.step_time_s, 0.01);
        scene_clear(&s);
    }
}

/* Without a pin the search uses the fastest number of actors, and none if all devices are alike. */
Test(scenarios, actors_are_searched)
{
    static const uint32_t expected[] = {0, 2};

    for (uint32_t lag = 0; lag <= 1; lag++) {
        ty_workload *w = open_workload("corridor-reinforce");
        ty_plan_options options = ty_plan_options_default();
        ty_cluster *cluster = NULL;
        ty_plan *plan = NULL;
        ty_error error = {0};
        uint32_t told = 0;

        pin(&options.pins, "lag=%u", lag);
        cr_assert_eq(ty_cluster_open("1x p100-server", NULL, &cluster, NULL), TY_OK);
        cr_assert_eq(ty_plan_search(w, cluster, NULL, &options, &plan, &error), TY_OK, "%s",
                     error.message);
        cr_expect_eq(ty_plan_actors(plan), expected[lag], "lag %u: %u actors", lag,
                     ty_plan_actors(plan));
        for (uint32_t c = 1; c < plan->candidate_count; c++)
            told += (strstr(plan->candidates[c].fix, "actors=2") != NULL) != (expected[lag] == 2);
        cr_expect_eq(told, lag == 0 ? 1 : 0);
        ty_plan_free(plan);
        ty_cluster_free(cluster);
        ty_workload_free(w);
    }
}
