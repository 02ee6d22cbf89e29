/* Checks of a plan, its program and the devices before anything runs. */
#include "interpreter_state.h"
#include "ty_plan.h"

/* Whether the fields of tags fit their bits. */
static ty_status tags_fit(const ty_interpreter *in, ty_error *error)
{
    const ty_plan *plan = in->options.plan;

    if ((uint64_t)plan->micro_batches * in->virtual_stage_count >= TAG_INDEX_LIMIT / in->window ||
        plan->bucket_count >= TAG_INDEX_LIMIT / in->window)
        return ty_fail(
            error, TY_EUNSUPPORTED,
            "found %u micro-batches in %u stages per pipeline rank and %u buckets, expected "
            "fewer than %u",
            plan->micro_batches, in->virtual_stage_count, plan->bucket_count,
            TAG_INDEX_LIMIT / in->window);
    return TY_OK;
}

/* A device has no gradient buffer if no parameter before it is trained. */
static ty_status buffers_there(ty_interpreter *in, ty_error *error)
{
    const ty_device_backend *backend = in->options.backend;

    for (uint32_t i = 0; i < in->program->instruction_count; i++) {
        const ty_instruction *instruction = &in->program->instructions[i];
        bool is_activation = instruction->direction == TY_ACTIVATION;
        ty_stage_device *device;
        const float *buffer;

        if ((instruction->op != TY_OP_SEND && instruction->op != TY_OP_RECEIVE) ||
            in->scenario.hooks->buffer != NULL)
            continue;
        device = interpreter_virtual_stage(in, instruction)->device;
        if (instruction->op == TY_OP_SEND)
            buffer =
                is_activation ? backend->output(device, 0) : backend->input_gradient(device, 0);
        else
            buffer =
                is_activation ? backend->input(device, 0) : backend->output_gradient(device, 0);
        if (buffer == NULL)
            return ty_fail(error, TY_EUNSUPPORTED,
                           "program: /stages/%u/instructions/%u: the stage has no %s to %s",
                           in->pipeline_rank, i, is_activation ? "activation" : "gradient",
                           ty_op_name(instruction->op));
    }
    return TY_OK;
}

ty_status interpreter_virtual_stages_check(ty_interpreter *in, ty_error *error)
{
    ty_status status = tags_fit(in, error);

    return status == TY_OK ? buffers_there(in, error) : status;
}

/* Weights are averaged bucket by bucket, over replicas that took equally large steps. */
static ty_status check_local_steps(const ty_plan *plan, ty_error *error)
{
    const char *what = NULL;

    for (uint32_t s = 1; s < plan->stage_count; s++)
        if (plan->stages[s].replicas != plan->stages[0].replicas)
            what = "stages of unequal replicas";
    for (uint32_t b = 0; b < plan->bucket_count; b++)
        if (plan->buckets[b].tied_stage != TY_NO_STAGE)
            what = "weights tied across stages";
        else if (plan->buckets[b].compression.kind != TY_COMPRESSION_NONE)
            what = "compressed weights";
    if (plan->zero > 0)
        what = "ZeRO";
    if (ty_schedule_at(plan->schedule)->is_asynchronous)
        what = "an asynchronous schedule";
    if (plan->sequence_parallel)
        what = "sequence parallelism";
    if (plan->workload->local_steps <= 1 || what == NULL)
        return TY_OK;
    return ty_fail(error, TY_EUNSUPPORTED, "the worker does not take %u local steps with %s",
                   plan->workload->local_steps, what);
}

/* A rank's shard of the indices that random-k draws is inside its shard of the bucket only if no
 * stratum crosses the border between two shards. */
static ty_status check_random_share(const ty_plan *plan, uint32_t index, ty_error *error)
{
    const ty_bucket *bucket = &plan->buckets[index];
    const uint32_t members = ty_bucket_device_count(plan, bucket);
    uint64_t kept;

    if (!ty_bucket_is_sharded(plan, bucket) ||
        !ty_compression_at(bucket->compression.kind)->needs_whole_strata)
        return TY_OK;
    kept = ty_compression_kept(&bucket->compression, bucket->gradient_bytes / sizeof(float));
    if (kept % members == 0)
        return TY_OK;
    return ty_fail(
        error, TY_EUNSUPPORTED,
        "plan: /buckets/%u: found random-k of %llu elements shared by %u devices (ZeRO), "
        "expected a multiple of %u",
        index, (unsigned long long)kept, members, members);
}

/* Features of a plan that this backend does not support yet. */
static ty_status check_backend(const ty_device_backend *backend, const ty_plan *plan,
                               ty_precision precision, ty_error *error)
{
    const char *what = NULL;

    if (backend->select == NULL && ty_schedule_at(plan->schedule)->is_asynchronous)
        what = "several sets of weights";
    if (backend->select_gradients == NULL && plan->staleness > 0)
        what = "late gradients (staleness)";
    if (backend->backward_weight == NULL && ty_schedule_at(plan->schedule)->splits_backward)
        what = "backward in two parts";
    if (backend->shards_join == NULL && ty_plan_replica_ranks(plan) > 1)
        what = "tensor or context parallelism";
    if (backend->expert_slice == NULL && ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL) > 1)
        what = "expert parallelism";
    if (backend->memory != NULL && ty_workload_has_teacher(plan->workload))
        what = "a teacher";
    if (precision == TY_PRECISION_FP16 && plan->exchange_order != NULL)
        what = "an order of all-reduces in fp16";
    /* Both threads would communicate about overflows. */
    if (precision == TY_PRECISION_FP16 && plan->workload->local_steps > 1 &&
        ty_plan_replica_ranks(plan) > 1)
        what = "local steps of several ranks per replica in fp16";
    if (what == NULL)
        return TY_OK;
    return ty_fail(error, TY_EUNSUPPORTED, "backend \"%s\" cannot run plan \"%s\" yet: found %s",
                   backend->name, plan->strategy, what);
}

/* A variant's rows and magnitudes are those of unsharded matrices. */
static ty_status check_variant(const ty_plan *plan, ty_error *error)
{
    const ty_workload *w = plan->workload;
    char name[TY_VARIANT_TEXT_SIZE];
    const char *what = NULL;

    if (!ty_variant_changes(&plan->deployment.variant))
        return TY_OK;
    if (ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL) > 1 ||
        ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL) > 1)
        what = "tensor or expert parallelism, where no rank has entire matrices";
    for (uint32_t l = 0; l < w->layer_count; l++) {
        const uint32_t owner = w->layers[l].tied_to;
        if (owner != TY_NO_LAYER && w->layers[owner].is_frozen &&
            ty_plan_stage_of_layer(plan, owner) != ty_plan_stage_of_layer(plan, l))
            what = "a frozen matrix that is tied across stages";
    }
    if (what == NULL)
        return TY_OK;
    ty_variant_text(&plan->deployment.variant, name);
    return ty_fail(error, TY_EUNSUPPORTED,
                   "the worker does not test matrices as %s with %s; plan without --budget", name,
                   what);
}

/* Features of a plan that this runtime does not support yet. */
static ty_status check_plan(const ty_plan *plan, bool is_timed, ty_error *error)
{
    ty_status status = TY_OK;

    for (uint32_t b = 0; b < plan->bucket_count && status == TY_OK && !is_timed; b++)
        status = check_random_share(plan, b, error);
    if (status == TY_OK && !is_timed)
        status = check_variant(plan, error);
    return status == TY_OK && !is_timed ? check_local_steps(plan, error) : status;
}

ty_status interpreter_plan_check(const ty_interpreter_options *options, ty_error *error)
{
    const ty_device_backend *backend = options->backend;
    ty_status status = check_plan(options->plan, backend->is_timed, error);

    if (status == TY_OK && !backend->is_timed)
        status = check_backend(backend, options->plan, options->precision, error);
    return status;
}
