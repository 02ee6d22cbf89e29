/* A profile job from start to file: a list of parts, each measured by all ranks together, with a
 * check for a request to stop before each. */
#include "profile_job.h"

#include "device_link.h"

#include "machine.h"
#include "scenario.h"

typedef ty_status (*part_function)(ty_profiler *p, uint32_t argument, ty_error *error);

typedef struct part {
    part_function run;
    uint32_t argument; /* micro-batch size or number of ranks */
    const char *name;
} part;

static ty_status parts_run(ty_profiler *p, uint32_t argument, ty_error *error)
{
    ty_status status = ty_profile_parts(p, error);

    (void)argument;
    return status == TY_OK ? ty_profile_overhead(p, error) : status;
}

static ty_status codecs_run(ty_profiler *p, uint32_t argument, ty_error *error)
{
    (void)argument;
    return ty_profile_codecs(p, error);
}

static ty_status transfers_run(ty_profiler *p, uint32_t argument, ty_error *error)
{
    (void)argument;
    return ty_profile_transfers(p, error);
}

/* Rank counts whose collectives are timed: powers of two, since look-ups scale between them; and
 * all ranks. */
static uint32_t next_rank_count(uint32_t ranks, uint32_t size)
{
    if (ranks >= size)
        return size + 1;
    return 2 * ranks < size ? 2 * ranks : size;
}

/* @param parts room for 2 micro_batch_count + 40 */
static uint32_t parts_list(const ty_job *job, uint32_t size, bool has_device, part *parts)
{
    const ty_learning learning = job->plan->workload->learning;
    uint32_t count = 0, i;

    for (i = 0; i < job->micro_batch_count; i++) {
        uint32_t earlier = 0;
        while (job->micro_batches[earlier] != job->micro_batches[i])
            earlier++;
        if (earlier < i) /* a size listed twice is measured once */
            continue;
        if (learning != TY_LEARNING_EVOLUTION)
            parts[count++] = (part){ty_profile_layers, job->micro_batches[i], "layers"};
        if (learning != TY_LEARNING_GRADIENT)
            parts[count++] = (part){ty_profile_episodes, job->micro_batches[i], "episodes"};
    }
    parts[count++] = (part){parts_run, 0, "optimizer and machine"};
    parts[count++] = (part){codecs_run, 0, "compression"};
    if (has_device) /* its memory uses other links: see docs/guides/train-on-gpus.md */
        return count;
    parts[count++] = (part){transfers_run, 0, "transfers"};
    for (i = 2; i <= size; i = next_rank_count(i, size))
        parts[count++] = (part){ty_profile_collectives, i, "collectives"};
    return count;
}

/* Ranks that share a device would each measure half of it. On all ranks, even one without a device.
 */
static ty_status device_check(const ty_profiler *p, const ty_stage_device *device, ty_error *error)
{
    const uint32_t rank = p->transport->rank;
    ty_device_identity own = {{0}};
    uint32_t first = rank;
    ty_status status;

    if (device != NULL)
        own = p->backend->memory->identity(device);
    status = ty_device_first_user(p->transport, &own, &first, error);
    if (status != TY_OK || first == rank)
        return status;
    return ty_fail(
        error, TY_EUNSUPPORTED,
        "rank %u would share a device with rank %u, and each would measure a part of it; "
        "expected at most as many ranks as there are devices",
        (unsigned)rank, (unsigned)first);
}

static ty_status device_describe(ty_profiler *p, ty_error *error)
{
    const ty_device_memory *memory = p->backend->memory;
    ty_profile *profile = p->profile;
    ty_stage_device *device = NULL;
    ty_error unshared = {0};
    ty_status status, shared;

    status = ty_profiler_open(p, 1, 1, false, &device, error);
    shared = device_check(p, device, &unshared);
    if (status == TY_OK && shared != TY_OK)
        status = ty_fail(error, shared, "%s", unshared.message);
    TY_CHECK(status, status, done);
    profile->device = ty_strdup(memory->describe(device));
    profile->precision = ty_strdup(ty_precision_name(p->precision));
    profile->memory_bytes = memory->capacity_bytes(device);
    if (profile->device == NULL || profile->precision == NULL)
        status = ty_fail(error, TY_ENOMEM, "out of memory for a profile");
done:
    if (device != NULL)
        p->backend->close(device);
    return status;
}

static ty_status describe(ty_profiler *p, ty_error *error)
{
    ty_profile *profile = p->profile;

    p->active = p->transport->size < ty_machine_cores() ? p->transport->size : ty_machine_cores();
    TY_TRY(ty_machine_name(&profile->machine, error));
    TY_TRY(ty_machine_versions(p->transport, &profile->versions, error));
    TY_TRY(ty_machine_date(&profile->date, error));
    profile->backend = ty_strdup(p->backend->name);
    TY_TRY(ty_check_memory(profile->backend != NULL, error));
    profile->cores = ty_machine_cores();
    profile->memory_bytes = ty_machine_memory_bytes();
    if (ty_profiler_has_clock(p))
        TY_TRY(device_describe(p, error));
    profile->concurrent_ranks = p->active;
    return TY_OK;
}

/* Bytes of the model on a rank at a micro-batch size; TY_ENOMEM if the system already reports too
 * little memory. */
static ty_status stage_bytes(const ty_profiler *p, uint32_t micro_batch, double *bytes,
                             ty_error *error)
{
    ty_stage_device *device = NULL;
    const ty_status status = ty_profiler_open(p, micro_batch, PROFILE_SLOTS, false, &device, error);

    if (status != TY_OK)
        return status;
    *bytes = (double)p->backend->memory_bytes(device) +
             (double)p->backend->parameter_count(device) * sizeof(float) *
                 ty_optimizer_state_count(&p->workload->optimizer);
    p->backend->close(device);
    return TY_OK;
}

/* The system overcommits memory and kills processes that use it, so this refuses the largest
 * micro-batch first. A device with memory of its own refuses by itself. */
static ty_status memory_check(const ty_profiler *p, ty_error *error)
{
    const double all = (double)ty_machine_memory_bytes();
    uint32_t largest = 1;
    double bytes = 0;
    ty_status status;

    if (p->backend->memory != NULL || p->workload->learning == TY_LEARNING_EVOLUTION)
        return TY_OK; /* the members of a population run one after the other */
    for (uint32_t i = 0; i < p->job->micro_batch_count; i++)
        if (p->job->micro_batches[i] > largest)
            largest = p->job->micro_batches[i];
    status = stage_bytes(p, largest, &bytes, error);
    if (status == TY_ENOMEM || (status == TY_OK && bytes * p->active > all))
        return ty_fail(error, TY_EINFEASIBLE,
                       "%s with micro-batches of %u, on %u ranks at once, does not fit the "
                       "machine's %.1f GB: profile smaller ones (trainyard profile "
                       "--micro-batches, then plan --profile)",
                       p->workload->name, (unsigned)largest, (unsigned)p->active, all * 1e-9);
    return status;
}

static ty_status prepare(ty_profiler *p, ty_error *error)
{
    TY_TRY(ty_device_backend_find(p->job->backend, p->transport->size == 1, &p->backend, error));
    if (p->backend->is_timed)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "backend \"%s\" computes nothing that could be measured", p->job->backend);
    TY_TRY(ty_job_precision(p->job, &p->precision, error));
    TY_TRY(ty_workload_check(p->workload, "plan:/workload", error));
    TY_TRY(p->backend->supports(p->workload, 0, p->workload->layer_count, error));
    TY_TRY(player_check(p->workload, error));
    p->profile = ty_alloc(1, sizeof *p->profile);
    TY_TRY(ty_check_memory(p->profile != NULL, error));
    TY_TRY(describe(p, error));
    return memory_check(p, error);
}

static ty_status stop_asked(const ty_execute_options *options, ty_error *error)
{
    if (options->stop == NULL || *options->stop == 0)
        return TY_OK;
    return ty_fail(error, TY_EINTERRUPTED, "stopped before all was measured");
}

static ty_status measure_all(ty_profiler *p, const ty_execute_options *options, ty_error *error)
{
    ty_progress progress;
    part *parts = ty_alloc(2 * (size_t)p->job->micro_batch_count + 40, sizeof *parts);
    uint32_t count, i;
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(parts != NULL, error));
    count = parts_list(p->job, p->transport->size, ty_profiler_has_clock(p), parts);
    ty_progress_start(&progress, p->transport->rank == 0 ? options->progress : NULL, "measuring",
                      count, "parts");
    for (i = 0; i < count; i++) {
        TY_CHECK(ty_transport_agree(p->transport, stop_asked(options, error), error), status,
                 cleanup);
        ty_progress_update(&progress, i, parts[i].name);
        status = parts[i].run(p, parts[i].argument, error);
        if (status != TY_OK) {
            p->transport->is_broken = true;
            goto cleanup;
        }
    }
    ty_progress_finish(&progress, p->job->output);
cleanup:
    ty_free(parts);
    return status;
}

/* A caller that needs any profile rather than a precise one, like most tests, requests haste. */
static double haste_of_environment(void)
{
    const char *asked = getenv("TRAINYARD_PROFILE_HASTE");
    char *end;
    double haste;

    if (asked == NULL)
        return 1;
    haste = strtod(asked, &end);
    return end != asked && *end == '\0' && haste >= 1 && haste <= 1000 ? haste : 1;
}

ty_status ty_profile_job(const ty_job *job, ty_transport *transport,
                         const ty_execute_options *options, ty_error *error)
{
    ty_profiler p = {.job = job,
                     .workload = job->plan->workload,
                     .transport = transport,
                     .haste = haste_of_environment()};
    ty_status status;

    status = prepare(&p, error);
    TY_CHECK(ty_transport_agree(transport, status, error), status, cleanup);
    TY_CHECK(measure_all(&p, options, error), status, cleanup);
    if (transport->rank == 0)
        status = ty_profile_save(p.profile, job->output, error);
    status = ty_transport_agree(transport, status, error);
cleanup:
    ty_profile_free(p.profile);
    return status;
}
