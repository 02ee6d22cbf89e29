/* Inputs that cannot be simulated are refused before SimGrid sees them, with a message that names
 * the location. */
#include "scenario.h"

#include "ty_base.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static void open_pair(scenario *s)
{
    scenario_open(s, cluster_of_cores(2, 2), 2, (const uint32_t[]){1, 1}, 1);
    const ty_instruction_cost cost = {.seconds = 1e-3, .latency_s = 1e-3, .core_share = 1.0};
    const uint32_t forward = scenario_add(s, 0, op(TY_OP_FORWARD), NULL, cost);
    scenario_add(s, 0, transfer(TY_OP_SEND, TY_ACTIVATION, 1, 0),
                 (const uint32_t[]){forward, TY_NO_INSTRUCTION}, cost);
    scenario_add(s, 1, transfer(TY_OP_RECEIVE, TY_ACTIVATION, 0, 0), NULL, cost);
    scenario_close(s);
}

static void nan_seconds(scenario *s)
{
    s->costs->instructions[0][1].seconds = NAN;
}
static void negative_latency(scenario *s)
{
    s->costs->instructions[1][0].latency_s = -1e-9;
}
static void endless_bytes(scenario *s)
{
    s->costs->instructions[0][0].edge_bytes = HUGE_VAL;
}
static void ages(scenario *s)
{
    s->costs->instructions[0][0].seconds = 1e300;
}
static void too_many_bytes(scenario *s)
{
    s->costs->instructions[0][1].edge_bytes = 1e300;
}
static void standstill(scenario *s)
{
    s->costs->instructions[0][1].edge_bytes = 1e5;
    s->costs->instructions[0][1].rate_limit_bytes_per_s = 1e-300;
}
static void negative_rate(scenario *s)
{
    s->costs->instructions[0][0].rate_limit_bytes_per_s = -1.0;
}
static void nan_share(scenario *s)
{
    s->costs->instructions[0][0].core_share = NAN;
}
static void no_steps(scenario *s)
{
    s->options.steps = 0;
}
static void no_time(scenario *s)
{
    s->options.time_limit_s = 0.0;
}
static void mad_jitter(scenario *s)
{
    s->options.jitter = NAN;
}

static void no_slowdown(scenario *s)
{
    static const double slowdowns[] = {1.0, 0.0};
    s->options.slowdowns = slowdowns;
}

static void no_resolution(scenario *s)
{
    s->options.resolution = (ty_resolution)7;
}
static void missing_device(scenario *s)
{
    s->stages[1].devices[0] = 9;
}
static void missing_rank(scenario *s)
{
    s->plan.tensor_parallel = 2;
    for (uint32_t stage = 0; stage < 2; stage++) {
        ty_free(s->stages[stage].devices);
        s->stages[stage].devices = ty_alloc(2, sizeof(uint32_t));
        s->stages[stage].devices[0] = stage;
        s->stages[stage].devices[1] = stage == 0 ? 0 : 4000000;
    }
}
static void other_host(scenario *s)
{
    s->costs->replica_host[1] = 1;
}
static void other_cores(scenario *s)
{
    s->costs->host_cores[0] = 3.0;
}
static void fewer_costs(scenario *s)
{
    s->costs->instruction_counts[0] = 1;
}
static void fewer_replicas(scenario *s)
{
    s->costs->stage_replica_count = 1;
}
static void lost_send(scenario *s)
{
    s->codes[0].instructions[1].op = TY_OP_UPDATE;
    s->codes[0].instructions[1].stream = ty_op_stream(TY_OP_UPDATE);
}
static void lost_bucket(scenario *s)
{
    s->codes[0].instructions[0].op = TY_OP_COLLECTIVE;
    s->codes[0].instructions[0].stream = ty_op_stream(TY_OP_COLLECTIVE);
}
static void far_ahead(scenario *s)
{
    s->codes[0].instructions[1].lead = UINT32_MAX;
}
static void wait_for_later(scenario *s)
{
    s->codes[0].instructions[1].waits[0] = 1;
}

Test(refusals, faults_are_named)
{
    static const struct {
        const char *name;
        void (*spoil)(scenario *s);
        const char *message;
    } rows[] = {
        {"NaN seconds", nan_seconds, "stage 0, instruction 1: seconds is"},
        {"negative latency", negative_latency, "stage 1, instruction 0: latency_s is -1e-09"},
        {"endless bytes", endless_bytes, "edge_bytes is inf"},
        {"ages", ages, "stage 0, instruction 0: seconds is 1e+300; expected 0 to 1e+09"},
        {"too many bytes", too_many_bytes, "edge_bytes is 1e+300; expected 0 to 1e+18"},
        {"standstill", standstill, "edge_bytes / rate_limit_bytes_per_s is 1e+305"},
        {"negative rate", negative_rate, "rate_limit_bytes_per_s is -1"},
        {"NaN share", nan_share, "core_share is"},
        {"no steps", no_steps, "0 steps"},
        {"no time", no_time, "time limit of 0 s"},
        {"no resolution", no_resolution, "unknown resolution 7"},
        {"mad jitter", mad_jitter, "jitter of nan"},
        {"no slowdown", no_slowdown, "slowdown of stage replica 1 is 0"},
        {"missing device", missing_device, "stage replica 1 is on device 9"},
        {"missing rank", missing_rank, "stage replica 1 is on device 4000000"},
        {"other host", other_host, "stage replica 1 is on host 1"},
        {"other cores", other_cores, "host 0 has 3 cores"},
        {"fewer costs", fewer_costs, "program of 2 instructions, costs of 1"},
        {"fewer stage replicas", fewer_replicas, "plan of 2 stage replicas, costs of 1"},
        {"lost send", lost_send,
         "stage replica 1, instruction 0: a receive (activation, micro-batch 0) without its send: "
         "stage replica 0"},
        {"lost bucket", lost_bucket, "stage 0, instruction 0: a collective without a bucket"},
        {"far ahead", far_ahead,
         "stage 0, instruction 1: further ahead than the plan has stages or its "
         "gradients are late"},
        {"wait for later", wait_for_later, "stage 0, instruction 1: it waits for no earlier"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        scenario s;
        ty_timeline *timeline = NULL;
        ty_error error = {0};
        open_pair(&s);
        rows[i].spoil(&s);
        const ty_status status =
            ty_simulate(&s.plan, &s.program, s.costs, s.cluster, &s.options, &timeline, &error);
        cr_expect(status == TY_EINVAL, "%s: status '%s'", rows[i].name, ty_status_name(status));
        cr_expect(strstr(error.message, rows[i].message) != NULL, "%s: message '%s'", rows[i].name,
                  error.message);
        cr_expect_null(timeline, "%s", rows[i].name);
        scenario_free(&s);
    }
}

/* The longest accepted work on the slowest accepted stage replica ends. */
Test(refusals, the_longest_work_ends)
{
    static const double slowdowns[] = {1e6, 1.0};
    scenario s;

    open_pair(&s);
    s.costs->instructions[0][0].seconds = 1e9;
    s.options.steps = 3;
    s.costs->instructions[0][0].core_share = 0.0;
    s.options.slowdowns = slowdowns;
    ty_timeline *timeline = scenario_simulate(&s);
    expect_close("forward", event_of(&s, timeline, 0, 0, 0)->end_s, 1e15, 1e-12);
    cr_expect(event_of(&s, timeline, 2, 1, 0)->end_s >= 3e15);
    ty_timeline_free(timeline);
    scenario_free(&s);
}

Test(refusals, time_is_limited)
{
    scenario s;
    ty_timeline *timeline = NULL;
    ty_error error = {0};
    open_pair(&s);
    s.options.steps = 200000;
    s.options.time_limit_s = 0.05;
    const ty_status status =
        ty_simulate(&s.plan, &s.program, s.costs, s.cluster, &s.options, &timeline, &error);
    cr_expect(status == TY_ELIMIT, "status '%s': %s", ty_status_name(status), error.message);
    cr_expect_null(timeline);
    scenario_free(&s);
}

/* By counts, so the limit is the same on every host. */
Test(refusals, cpu_time_is_limited)
{
    for (int is_short = 0; is_short < 2; is_short++) {
        scenario s;
        ty_timeline *timeline = NULL;
        ty_error error = {0};
        open_pair(&s);
        s.options.steps = is_short ? 3 : 200000;
        s.options.cpu_limit_s = 0.05;
        const ty_status status =
            ty_simulate(&s.plan, &s.program, s.costs, s.cluster, &s.options, &timeline, &error);
        cr_expect_eq(status, is_short ? TY_OK : TY_ELIMIT, "status '%s': %s",
                     ty_status_name(status), error.message);
        cr_expect(is_short || strstr(error.message, "s of CPU time") != NULL, "%s", error.message);
        ty_timeline_free(timeline);
        scenario_free(&s);
    }
}

static void expect_refused(scenario *s, ty_status expected, const char *words)
{
    for (int no_fold = 0; no_fold < 2; no_fold++) {
        ty_timeline *timeline = NULL;
        ty_error error = {0};
        s->options.no_fold = no_fold == 1;
        const ty_status status = ty_simulate(&s->plan, &s->program, s->costs, s->cluster,
                                             &s->options, &timeline, &error);
        cr_expect_eq(status, expected, "status '%s'", ty_status_name(status));
        cr_expect(strstr(error.message, words) != NULL, "found '%s', expected '%s' in it",
                  error.message, words);
        cr_expect_null(timeline);
    }
    scenario_free(s);
}

/* Unchecked programs: the message names a stage replica and the instruction that it waits in. */
Test(refusals, two_that_wait_for_each_other)
{
    scenario s;
    scenario_open(&s, cluster_of("leaf:1 host:2 gpu:1 @v100-sxm2-16gb nvlink2 edr100"), 2,
                  (const uint32_t[]){1, 1}, 1);
    for (uint32_t stage = 0; stage < 2; stage++) {
        const ty_direction out = stage == 0 ? TY_ACTIVATION : TY_GRADIENT;
        const ty_direction in = stage == 0 ? TY_GRADIENT : TY_ACTIVATION;
        const uint32_t receive = scenario_add(&s, stage, transfer(TY_OP_RECEIVE, in, 1 - stage, 0),
                                              NULL, (ty_instruction_cost){0});
        scenario_add(&s, stage, transfer(TY_OP_SEND, out, 1 - stage, 0),
                     (const uint32_t[]){receive, TY_NO_INSTRUCTION}, (ty_instruction_cost){0});
    }
    scenario_close(&s);
    expect_refused(&s, TY_EBACKEND,
                   "stage replica 0 was left waiting at instruction 0 (receive) of step 0");
}

static void open_tied(scenario *s, uint32_t buckets)
{
    scenario_open(s, cluster_of("leaf:1 host:4 gpu:1 @v100-sxm2-16gb nvlink2 edr100"), 2,
                  (const uint32_t[]){2, 2}, 2);
    for (uint32_t b = 0; b < buckets; b++)
        s->buckets[scenario_bucket(s, 0, TY_RING, TY_COMPRESSION_NONE)].tied_stage = 1;
}

Test(refusals, a_collective_without_a_member)
{
    scenario s;
    open_tied(&s, 1);
    scenario_add(&s, 0, exchange(0), NULL, (ty_instruction_cost){.seconds = 1, .edge_bytes = 1e6});
    scenario_add(&s, 1, op(TY_OP_FORWARD), NULL, (ty_instruction_cost){.seconds = 1});
    scenario_close(&s);
    expect_refused(&s, TY_EBACKEND,
                   "stage replica 0 was left waiting at instruction 0 (collective) of step 0");
}

Test(refusals, collectives_in_different_order)
{
    scenario s;
    open_tied(&s, 2);
    for (uint32_t stage = 0; stage < 2; stage++)
        for (uint32_t b = 0; b < 2; b++)
            scenario_add(&s, stage, exchange(stage == 0 ? b : 1 - b), NULL,
                         (ty_instruction_cost){.seconds = 1, .edge_bytes = 1e6});
    scenario_close(&s);
    expect_refused(&s, TY_EBACKEND,
                   "stage replica 0 was left waiting at instruction 0 (collective) of step 0");
}

Test(refusals, a_bucket_of_others)
{
    scenario s;
    open_tied(&s, 0);
    (void)scenario_bucket(&s, 0, TY_RING, TY_COMPRESSION_NONE);
    scenario_add(&s, 1, exchange(0), NULL, (ty_instruction_cost){.seconds = 1, .edge_bytes = 1e6});
    scenario_close(&s);
    expect_refused(&s, TY_EINVAL,
                   "stage 1, instruction 0: a collective of a bucket of other stages");
}

Test(refusals, every_allocation_may_fail)
{
    scenario s;
    ty_timeline *timeline = NULL;
    ty_status status = TY_ENOMEM;
    open_pair(&s);
    for (long n = 1; status != TY_OK; n++) {
        ty_error error = {0};
        cr_assert(n < 10000, "it never succeeds");
        ty_memory_fail_after(n);
        status =
            ty_simulate(&s.plan, &s.program, s.costs, s.cluster, &s.options, &timeline, &error);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM, "allocation %ld: '%s', %s", n,
                  ty_status_name(status), error.message);
    }
    cr_expect_not_null(timeline);
    ty_timeline_free(timeline);
    scenario_free(&s);
}

/* An algorithm that the simulator does not support is refused before SimGrid starts. */
Test(refusals, unknown_algorithms)
{
    for (int no_fold = 0; no_fold < 2; no_fold++) {
        const uint32_t replicas = 2;
        scenario s;
        ty_timeline *timeline = NULL;
        ty_error error = {0};
        scenario_open(&s, cluster_of("2x dgx-a100"), 1, &replicas, 2);
        scenario_add(&s, 0,
                     exchange(scenario_bucket(&s, 0, TY_ALGORITHM_COUNT, TY_COMPRESSION_NONE)),
                     NULL, (ty_instruction_cost){.seconds = 1.0, .edge_bytes = 1e6});
        scenario_close(&s);
        s.options.no_fold = no_fold == 1;
        const ty_status status =
            ty_simulate(&s.plan, &s.program, s.costs, s.cluster, &s.options, &timeline, &error);
        cr_expect(status == TY_EUNSUPPORTED, "status '%s'", ty_status_name(status));
        cr_expect(strstr(error.message, "/buckets/0/algorithm") != NULL, "%s", error.message);
        cr_expect_null(timeline);
        scenario_free(&s);
    }
}
