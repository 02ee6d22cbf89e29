/* Overhead per instruction, from the interpreter itself: the gaps between passes that follow each
 * other without waiting, on a single rank. If the device times passes by its own clock, also the
 * host's time to launch one there. */
#include "interpreter.h"
#include "profile_job.h"

enum { MICRO_BATCHES = 4, GAPS = 2 * MICRO_BATCHES - 1, MAX_STEPS = 50, MIN_STEPS = 2 };
static const double overhead_budget_s = 0.1;

/* A program of forward and backward of one micro-batch after the other. */
static ty_status program_make(const ty_plan *plan, ty_program **out, ty_error *error)
{
    ty_program *program = NULL;
    ty_status status;

    TY_CHECK(ty_program_new(plan, &program, error), status, cleanup);
    for (uint32_t m = 0; m < MICRO_BATCHES; m++) {
        ty_instruction pass = ty_instruction_of(TY_OP_FORWARD);
        uint32_t forward;

        pass.micro_batch = m;
        pass.layer_count = plan->workload->layer_count;
        TY_CHECK(ty_program_append(program, 0, &pass, NULL, 0, &forward, error), status, cleanup);
        pass.op = TY_OP_BACKWARD;
        TY_CHECK(ty_program_append(program, 0, &pass, &forward, 1, NULL, error), status, cleanup);
    }
    *out = program;
    return TY_OK;
cleanup:
    ty_program_free(program);
    return status;
}

/* Events are in the order in which they ended, which for one stream is the program's. */
static double median_gap(const ty_interpreter *interpreter)
{
    double gaps[MAX_STEPS * GAPS];
    uint64_t count, i;
    uint32_t gap_count = 0;
    const ty_event *events = ty_interpreter_events(interpreter, &count);

    for (i = 1; i < count; i++) {
        if (events[i].step == events[i - 1].step)
            gaps[gap_count++] = events[i].start_s - events[i - 1].end_s;
    }
    return ty_median(gaps, gap_count);
}

static ty_status gap_time(const ty_profiler *p, ty_transport *alone, double *seconds,
                          ty_error *error)
{
    uint32_t device = 0;
    ty_plan_stage stage = {
        .layer_count = p->workload->layer_count, .replicas = 1, .devices = &device};
    ty_plan plan = *p->job->plan;
    ty_program *program = NULL;
    ty_interpreter *interpreter = NULL;
    double started_s;
    uint32_t steps;
    ty_status status;

    plan.stage_count = 1;
    plan.stages = &stage;
    plan.bucket_count = 0;
    plan.micro_batch_size = 1;
    plan.micro_batches = plan.global_batch = MICRO_BATCHES;
    TY_CHECK(program_make(&plan, &program, error), status, cleanup);
    TY_CHECK(ty_interpreter_open(&(ty_interpreter_options){.plan = &plan,
                                                           .program = program,
                                                           .backend = p->backend,
                                                           .precision = p->precision,
                                                           .transport = alone,
                                                           .steps = MAX_STEPS,
                                                           .first_recorded = 1,
                                                           .recorded_steps = MAX_STEPS - 1},
                                 &interpreter, error),
             status, cleanup);
    started_s = ty_now_s();
    for (steps = 1; steps <= MAX_STEPS; steps++) {
        if (steps > MIN_STEPS && ty_now_s() - started_s > overhead_budget_s / p->haste)
            break;
        TY_CHECK(ty_interpreter_run(interpreter, steps, error), status, cleanup);
    }
    *seconds = median_gap(interpreter);
cleanup:
    ty_interpreter_close(interpreter);
    ty_program_free(program);
    return status;
}

/* Forwards of the entire model: time by the host's clock minus time by the device's. */
static ty_status host_time(const ty_profiler *p, double *seconds, ty_error *error)
{
    const uint32_t micro_batch = p->job->micro_batches[0];
    double samples[MAX_STEPS];
    ty_stage_device *device = NULL;
    double begun_s;
    uint32_t count = 0, pass;
    ty_status status;

    TY_CHECK(ty_profiler_open(p, micro_batch, 1, false, &device, error), status, cleanup);
    ty_profiler_batch_fill(p, device, 0, micro_batch);
    begun_s = ty_now_s();
    for (pass = 0; count < MAX_STEPS; pass++) {
        double started_s = ty_now_s(), device_s = 0, wall_s;

        if (count >= MIN_STEPS && started_s - begun_s > overhead_budget_s / p->haste)
            break;
        TY_CHECK(p->backend->forward(device, 0, 0, p->workload->layer_count, error), status,
                 cleanup);
        wall_s = ty_now_s() - started_s;
        TY_CHECK(ty_profiler_lap(p, device, &started_s, &device_s, error), status, cleanup);
        if (pass >= 2) /* queued, then perhaps recorded */
            samples[count++] = wall_s > device_s ? wall_s - device_s : 0;
    }
    *seconds = ty_median(samples, count);
cleanup:
    if (device != NULL)
        p->backend->close(device);
    return status;
}

ty_status ty_profile_overhead(ty_profiler *p, ty_error *error)
{
    ty_transport *alone = NULL;
    double seconds[2] = {0};
    ty_status status;

    TY_CHECK(ty_transport_local(1, &alone, error), status, cleanup);
    TY_CHECK(ty_transport_barrier(p->transport, error), status, cleanup);
    if (ty_profiler_is_active(p))
        TY_CHECK(gap_time(p, alone, &seconds[0], error), status, cleanup);
    if (ty_profiler_is_active(p) && ty_profiler_has_clock(p))
        TY_CHECK(host_time(p, &seconds[1], error), status, cleanup);
    TY_CHECK(ty_mean_over_ranks(p, seconds, 2, error), status, cleanup);
    p->profile->instruction_overhead_s = seconds[0] + seconds[1];
cleanup:
    if (alone != NULL)
        alone->close(alone);
    return status;
}
