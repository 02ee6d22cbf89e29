/* The interpreter's life cycle: opening a rank's state, running, closing. */
#include "interpreter_buckets.h"
#include "interpreter_exchange.h"
#include "interpreter_input.h"
#include "interpreter_messages.h"
#include "interpreter_parallel.h"
#include "interpreter_replay.h"
#include "interpreter_watches.h"
#include "machine.h"
#include "sharding.h"

#include <string.h>
#include <time.h>

/* ---- Opening ----------------------------------------------------------------------------- */

/* 2^16, as in torch.amp.GradScaler; only fp16 uses it. */
static const double initial_loss_scale = 65536;

static ty_status streams_make(ty_interpreter *in, ty_error *error)
{
    uint32_t i, k, count = in->program->instruction_count;
    ty_stream s;

    for (s = 0; s < TY_STREAM_COUNT; s++) {
        in->streams[s].instructions = ty_alloc(count, sizeof(uint32_t));
        TY_TRY(ty_check_memory(in->streams[s].instructions != NULL, error));
    }
    in->is_awaited = ty_alloc(count, sizeof *in->is_awaited);
    TY_TRY(ty_check_memory(in->is_awaited != NULL, error));
    for (i = 0; i < count; i++) {
        const ty_instruction *instruction = &in->program->instructions[i];
        stream_order *order = &in->streams[instruction->stream];

        order->instructions[order->count++] = i;
        if (instruction->stream == TY_STREAM_COMPUTE || instruction->stream == TY_STREAM_INPUT)
            continue;
        for (k = 0; k < instruction->wait_count; k++)
            in->is_awaited[instruction->waits[k]] = true;
    }
    return TY_OK;
}

static bool is_of(const ty_interpreter *in, const virtual_stage_state *virtual_stage,
                  const ty_instruction *instruction)
{
    return instruction->stage == virtual_stage->stage && interpreter_has_slot(in, instruction);
}

/* The order in which compute meets a stage's micro-batches of one step: those furthest ahead come
 * first. */
static ty_status forward_order_find(const ty_interpreter *in, virtual_stage_state *virtual_stage,
                                    ty_error *error)
{
    uint32_t i, met = 0, ahead;
    bool *is_met = ty_alloc(in->local_micro_batches, sizeof *is_met);

    TY_TRY(ty_check_memory(is_met != NULL, error));
    for (ahead = in->lead + 1; ahead-- > 0;) {
        for (i = 0; i < in->program->instruction_count; i++) {
            const ty_instruction *forward = &in->program->instructions[i];

            if ((forward->op != TY_OP_FORWARD && forward->op != TY_OP_LOAD) ||
                forward->stream != TY_STREAM_COMPUTE || forward->lead != ahead ||
                !is_of(in, virtual_stage, forward) || is_met[forward->micro_batch])
                continue;
            is_met[forward->micro_batch] = true;
            virtual_stage->forward_order[met++] = forward->micro_batch;
        }
    }
    ty_free(is_met);
    return TY_OK;
}

static void instructions_count(const ty_interpreter *in, virtual_stage_state *virtual_stage)
{
    uint32_t i, ahead = 0; /* lead of the first backward: a step begins with the largest lead */

    virtual_stage->first_backward = NO_INDEX;
    for (i = 0; i < in->program->instruction_count; i++) {
        const ty_instruction *instruction = &in->program->instructions[i];

        if (!is_of(in, virtual_stage, instruction))
            continue;
        virtual_stage->micro_batch_left[instruction->micro_batch]++;
        virtual_stage->micro_batch_held[instruction->micro_batch] += instruction->op != TY_OP_SEND;
        if ((instruction->op == TY_OP_BACKWARD || instruction->op == TY_OP_BACKWARD_WEIGHT) &&
            (virtual_stage->first_backward == NO_INDEX || instruction->lead > ahead)) {
            virtual_stage->first_backward = instruction->micro_batch;
            ahead = instruction->lead;
        }
    }
}

/* Allocates a stage's micro-batches, and finds the order in which compute meets them and the number
 * of instructions of each. */
static ty_status micro_batches_make(ty_interpreter *in, virtual_stage_state *virtual_stage,
                                    ty_error *error)
{
    uint32_t i, count = in->local_micro_batches;
    ty_status status;

    virtual_stage->forward_order = ty_alloc(count, sizeof *virtual_stage->forward_order);
    virtual_stage->micro_batch_left = ty_alloc(count, sizeof *virtual_stage->micro_batch_left);
    virtual_stage->micro_batch_held = ty_alloc(count, sizeof *virtual_stage->micro_batch_held);
    virtual_stage->micro_batches =
        ty_alloc(count, in->window * sizeof *virtual_stage->micro_batches);
    TY_TRY(ty_check_memory(
        virtual_stage->forward_order != NULL && virtual_stage->micro_batch_left != NULL &&
            virtual_stage->micro_batch_held != NULL && virtual_stage->micro_batches != NULL,
        error));
    status = forward_order_find(in, virtual_stage, error);
    instructions_count(in, virtual_stage);
    for (i = 0; i < in->window * count; i++) {
        virtual_stage->micro_batches[i] =
            (micro_batch_state){.slot = NO_INDEX,
                                .held = virtual_stage->micro_batch_held[i % count],
                                .left = virtual_stage->micro_batch_left[i % count]};
    }
    return status;
}

static ty_status slots_make(virtual_stage_state *virtual_stage, ty_error *error)
{
    virtual_stage->slots = ty_alloc(virtual_stage->slot_count, sizeof *virtual_stage->slots);
    virtual_stage->free_slots =
        ty_alloc(virtual_stage->slot_count, sizeof *virtual_stage->free_slots);
    TY_TRY(
        ty_check_memory(virtual_stage->slots != NULL && virtual_stage->free_slots != NULL, error));
    for (uint32_t i = 0; i < virtual_stage->slot_count; i++)
        virtual_stage->free_slots[virtual_stage->free_count++] = virtual_stage->slot_count - 1 - i;
    return TY_OK;
}

static ty_status state_make(ty_interpreter *in, ty_error *error)
{
    uint32_t i, count = in->program->instruction_count;

    in->done = ty_alloc(count, sizeof *in->done);
    in->events = ty_alloc((size_t)in->options.recorded_steps * count, sizeof *in->events);
    in->losses = ty_alloc(in->options.steps, sizeof *in->losses);
    in->left_in_step = ty_alloc(in->window, sizeof *in->left_in_step);
    in->sums = ty_alloc(in->window, sizeof *in->sums);
    in->loss_scales = ty_alloc(in->window, sizeof *in->loss_scales);
    TY_TRY(ty_check_memory(in->done != NULL && in->events != NULL && in->losses != NULL &&
                               in->left_in_step != NULL && in->sums != NULL &&
                               in->loss_scales != NULL,
                           error));
    for (i = 0; i < in->window; i++)
        in->left_in_step[i] = count;
    in->loss_scale = initial_loss_scale;
    return TY_OK;
}

static uint32_t tied_layer(const ty_plan *plan, uint32_t stage)
{
    const ty_plan_stage *own = &plan->stages[stage];
    uint32_t i, layer;

    for (i = 0; i < plan->bucket_count; i++) {
        const ty_bucket *bucket = &plan->buckets[i];

        if (bucket->tied_stage == TY_NO_STAGE)
            continue;
        if (bucket->stage == stage)
            return bucket->first_layer;
        if (bucket->tied_stage != stage)
            continue;
        for (layer = own->first_layer; layer < own->first_layer + own->layer_count; layer++) {
            if (plan->workload->layers[layer].tied_to == bucket->first_layer)
                return layer;
        }
    }
    return TY_NO_LAYER;
}

/* Weight versions: with PipeDream, micro-batches use weights up to `lead` updates older than the
 * newest; with 2BW, a step uses the version before the newest. */
static uint32_t version_count(const ty_interpreter *in)
{
    if (interpreter_is_timed(in))
        return 1;
    return ty_schedule_stashed_versions(in->options.plan->schedule, in->lead) + 1;
}

/* With local steps, a replica's gradient is the mean over its own samples. This is the factor to it
 * from a gradient divided by the global batch. */
static double local_share(const ty_plan *plan)
{
    return plan->workload->local_steps > 1 ? plan->stages[0].replicas : 1;
}

static ty_status device_open(ty_interpreter *in, virtual_stage_state *virtual_stage,
                             ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const ty_plan_stage *stage = &plan->stages[virtual_stage->stage];
    const ty_device_backend *backend = in->options.backend;
    ty_stage_options options = {.workload = plan->workload,
                                .first_layer = stage->first_layer,
                                .layer_count = stage->layer_count,
                                .micro_batch_size = interpreter_rank_samples(in),
                                .slots = virtual_stage->slot_count,
                                .recompute = stage->recompute,
                                .recompute_blocks = stage->recompute_blocks,
                                .loss_scale = local_share(plan) / ((double)plan->global_batch *
                                                                   (double)in->labels_per_sample),
                                .seed = plan->seed,
                                .weights = in->options.weights,
                                .tied_layer = tied_layer(plan, virtual_stage->stage),
                                .precision = in->options.precision,
                                .is_deterministic = in->options.is_deterministic,
                                .local_rank = in->options.transport->local_rank,
                                .splits_backward = ty_schedule_at(plan->schedule)->splits_backward,
                                .versions = virtual_stage->version_count,
                                .gradient_sets = in->gradient_sets,
                                .is_sharded = in->shares_weights || in->shares_gradients,
                                .parallel = interpreter_parallel_group(in)};
    ty_status status;

    if (virtual_stage == in->virtual_stages) {
        in->scenario.slots = virtual_stage->slot_count;
        TY_CHECK(scenario_start(&in->scenario, &options, error), status, done);
        virtual_stage->device = in->scenario.device;
    }
    if (virtual_stage->device == NULL) {
        TY_CHECK(backend->supports(options.workload, stage->first_layer, stage->layer_count, error),
                 status, done);
        TY_CHECK(backend->open(&options, &virtual_stage->device, error), status, done);
    }
    in->scenario.device = in->virtual_stages->device;
    if (in->memory != NULL)
        return TY_OK; /* the backend stores it */
    virtual_stage->optimizer_state = ty_alloc_large(backend->parameter_count(virtual_stage->device),
                                                    in->state_count * sizeof(float));
    if (virtual_stage->optimizer_state == NULL)
        status = ty_check_memory(false, error);
done:
    return status;
}

/* One is sent while the next is filled. */
enum { ACTOR_SLOTS = 2 };

static ty_status virtual_stages_open(ty_interpreter *in, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const uint32_t pipeline_size = ty_plan_pipeline_size(plan);

    in->virtual_stages = ty_alloc(ty_plan_virtual_stages(plan), sizeof *in->virtual_stages);
    TY_TRY(ty_check_memory(in->virtual_stages != NULL, error));
    in->virtual_stage_count = ty_plan_virtual_stages(plan);
    for (uint32_t h = 0; h < in->virtual_stage_count; h++) {
        virtual_stage_state *virtual_stage = &in->virtual_stages[h];

        virtual_stage->stage = in->pipeline_rank + h * pipeline_size;
        virtual_stage->version_count = version_count(in);
        virtual_stage->sends_gradient = plan->stages[virtual_stage->stage].first_layer >
                                        ty_workload_first_backward(plan->workload);
        virtual_stage->slot_count =
            ty_plan_is_of_actors(plan, in->pipeline_rank)
                ? ACTOR_SLOTS
                : ty_program_peak_in_flight(in->options.program, virtual_stage->stage);
        TY_TRY(micro_batches_make(in, virtual_stage, error));
        TY_TRY(slots_make(virtual_stage, error));
        TY_TRY(device_open(in, virtual_stage, error));
    }
    return TY_OK;
}

static ty_status locks_make(ty_interpreter *in, ty_error *error)
{
    pthread_condattr_t monotonic;

    if (pthread_mutex_init(&in->lock, NULL) != 0)
        return ty_check_memory(false, error);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&in->for_compute, &monotonic);
    pthread_cond_init(&in->for_communication, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return TY_OK;
}

ty_status ty_interpreter_open(const ty_interpreter_options *options, ty_interpreter **out,
                              ty_error *error)
{
    const ty_plan *plan = options->plan;
    ty_interpreter *in;
    ty_status status = interpreter_plan_check(options, error);

    if (status != TY_OK)
        return status;
    in = ty_alloc(1, sizeof *in);
    TY_TRY(ty_check_memory(in != NULL, error));
    in->options = *options;
    in->memory = options->backend->memory;
    in->stage_replica = options->transport->rank / ty_plan_replica_ranks(plan);
    in->replica_rank = options->transport->rank % ty_plan_replica_ranks(plan);
    in->pipeline_rank = ty_plan_stage_of_replica(plan, in->stage_replica);
    in->replica = in->stage_replica - ty_plan_first_replica(plan, in->pipeline_rank);
    in->program = &options->program->stages[in->pipeline_rank];
    in->lead = ty_program_lead(options->program, in->pipeline_rank);
    in->window = interpreter_window(plan, options->program);
    in->scenario = (scenario_run){.hooks = scenario_of(plan->workload, options->backend->is_timed),
                                  .plan = plan,
                                  .backend = options->backend,
                                  .position = in->pipeline_rank,
                                  .replica = in->replica,
                                  .window = in->window};
    in->gradient_sets = options->backend->is_timed ? 1 : plan->staleness + 1;
    in->local_micro_batches = plan->micro_batches / plan->stages[in->pipeline_rank].replicas;
    in->state_count = ty_optimizer_state_count(&plan->optimizer);
    in->labels_per_sample = options->backend->is_timed ? 1 : ty_labels_per_sample(plan->workload);
    interpreter_sharing_find(in);
    status = locks_make(in, error);
    if (status != TY_OK) {
        ty_free(in);
        return status;
    }
    TY_CHECK(interpreter_groups_open(in, error), status, cleanup);
    TY_CHECK(streams_make(in, error), status, cleanup);
    TY_CHECK(state_make(in, error), status, cleanup);
    TY_CHECK(interpreter_messages_open(in, error), status, cleanup);
    TY_CHECK(interpreter_exchange_open(in, error), status, cleanup);
    TY_CHECK(interpreter_noise_open(in, error), status, cleanup);
    TY_CHECK(interpreter_busy_open(in, error), status, cleanup);
    TY_CHECK(virtual_stages_open(in, error), status, cleanup);
    TY_CHECK(interpreter_input_open(in, error), status, cleanup);
    TY_CHECK(interpreter_virtual_stages_check(in, error), status, cleanup);
    TY_CHECK(interpreter_buckets_open(in, error), status, cleanup);
    if (interpreter_is_timed(in))
        TY_CHECK(interpreter_replay_open(in, error), status, cleanup);
    interpreter_shares_only(in);
    *out = in;
    return TY_OK;

cleanup:
    ty_interpreter_close(in);
    return status;
}

/* Called by a link when a message for which the communication thread may sleep has ended. */
static void link_ring(void *context)
{
    ty_interpreter *in = context;

    pthread_mutex_lock(&in->lock);
    in->generation++;
    interpreter_wake_communication(in);
    pthread_mutex_unlock(&in->lock);
}

/* Bytes of the largest all-to-all of compressors. */
static uint64_t largest_all_to_all(const ty_interpreter *in)
{
    uint64_t largest = 0;

    for (uint32_t b = 0; b < in->options.plan->bucket_count; b++) {
        const ty_codec *codec = in->buckets[b].codec;
        const ty_compression *compression = &in->options.plan->buckets[b].compression;

        for (uint32_t p = 0; codec != NULL && p < ty_compression_phases(compression); p++) {
            const ty_collective_options options = ty_codec_exchange(codec, p);
            const uint64_t bytes =
                options.member_count * options.count * ty_element_bytes(options.element);

            if (options.kind == TY_ALL_TO_ALL && bytes > largest)
                largest = bytes;
        }
    }
    return largest;
}

ty_status ty_interpreter_connect(ty_interpreter *in, ty_error *error)
{
    ty_link_options options = {.plan = in->options.plan,
                               .program = in->options.program,
                               .backend = in->options.backend,
                               .stage = in->virtual_stages[0].device,
                               .transport = in->options.transport,
                               .ring = link_ring,
                               .context = in};
    ty_status status;

    if (in->memory == NULL)
        return TY_OK;
    options.all_to_all_bytes = largest_all_to_all(in);
    TY_CHECK(ty_device_link_open(&options, &in->link, error), status, done);
    TY_CHECK(interpreter_staging_open(in, error), status, done);
    options.is_inside_replica = true;
    /* All-to-alls with unequal counts are not staged: any size tells the link that they exist. */
    options.all_to_all_bytes =
        ty_plan_parallel_size(in->options.plan, TY_EXPERT_PARALLEL) > 1 ? 1 : 0;
    options.ring = NULL; /* the thread of the passes polls */
    if (ty_plan_replica_ranks(in->options.plan) > 1)
        status = ty_device_link_open(&options, &in->parallel_link, error);
done:
    return status;
}

static void virtual_stage_close(ty_interpreter *in, virtual_stage_state *virtual_stage)
{
    if (virtual_stage->device != NULL)
        in->options.backend->close(virtual_stage->device);
    ty_free(virtual_stage->optimizer_state);
    ty_free(virtual_stage->gathered);
    ty_free(virtual_stage->forward_order);
    ty_free(virtual_stage->micro_batch_left);
    ty_free(virtual_stage->micro_batch_held);
    ty_free(virtual_stage->micro_batches);
    ty_free(virtual_stage->slots);
    ty_free(virtual_stage->free_slots);
}

void ty_interpreter_close(ty_interpreter *in)
{
    ty_stream s;

    if (in == NULL)
        return;
    interpreter_cancel(in);
    if (in->link != NULL)
        in->link->close(in->link);
    if (in->parallel_link != NULL)
        in->parallel_link->close(in->parallel_link);
    interpreter_buckets_close(in);
    interpreter_replay_close(in);
    interpreter_messages_close(in);
    interpreter_exchange_close(in);
    interpreter_distortion_close(in);
    interpreter_input_close(in);
    if (scenario_close(&in->scenario))
        in->virtual_stages[0].device = NULL;
    for (uint32_t i = 0; i < in->virtual_stage_count; i++)
        virtual_stage_close(in, &in->virtual_stages[i]);
    ty_free(in->virtual_stages);
    interpreter_groups_close(in);
    for (s = 0; s < TY_STREAM_COUNT; s++)
        ty_free(in->streams[s].instructions);
    ty_free(in->left_in_step);
    ty_free(in->sums);
    ty_free(in->loss_scales);
    ty_free(in->is_awaited);
    ty_free(in->done);
    ty_free(in->events);
    ty_free(in->losses);
    interpreter_noise_close(in);
    interpreter_busy_close(in);
    pthread_cond_destroy(&in->for_compute);
    pthread_cond_destroy(&in->for_communication);
    pthread_mutex_destroy(&in->lock);
    ty_free(in);
}

/* ---- Running ----------------------------------------------------------------------------- */

static ty_status outcome(ty_interpreter *in, ty_error *error)
{
    if (in->failure != TY_OK) {
        in->options.transport->is_broken = true;
        return ty_fail(error, in->failure, "rank %u: %s", in->options.transport->rank,
                       in->error.message);
    }
    if (in->is_diverged)
        return ty_fail(error, TY_ELIMIT,
                       "the loss is no longer a finite number in step %u; a smaller learning rate "
                       "than %g may help",
                       in->controls_done, in->options.plan->optimizer.learning_rate);
    if (in->is_stopped)
        return ty_fail(error, TY_EINTERRUPTED, "stopped after %u of %u steps", in->controls_done,
                       in->options.steps);
    return TY_OK;
}

/* Every stream starts `lead` rounds before the first step. */
static void stretch_start(ty_interpreter *in, uint32_t until)
{
    const stream_cursor start = {.round = (int64_t)in->controls_done - in->lead};

    in->first_step = in->controls_done;
    in->target = until;
    in->compute = in->input = start;
    interpreter_messages_start(in, start);
    interpreter_exchange_start(in, start);
    for (uint32_t i = 0; i < in->window; i++) /* all earlier steps have ended on all ranks */
        in->loss_scales[i] = in->loss_scale;
    interpreter_bind_slots(in);
}

/* Between runs the device uses the newest weight version. */
static void newest_select(ty_interpreter *in)
{
    for (uint32_t h = 0; h < in->virtual_stage_count; h++) {
        if (in->virtual_stages[h].version_count > 1)
            in->options.backend->select(in->virtual_stages[h].device,
                                        in->controls_done % in->virtual_stages[h].version_count);
    }
}

ty_status ty_interpreter_run(ty_interpreter *in, uint32_t until, ty_error *error)
{
    pthread_t compute;
    ty_error detail = {0};
    ty_status status;

    stretch_start(in, until);
    if (pthread_create(&compute, NULL, interpreter_compute, in) != 0) {
        in->options.transport->is_broken = true;
        return ty_fail(error, TY_EBACKEND, "rank %u: no thread to compute with",
                       in->options.transport->rank);
    }
    status = interpreter_communicate(in, &detail);
    if (status != TY_OK)
        interpreter_fail(in, status, &detail);
    pthread_join(compute, NULL);
    newest_select(in);
    return outcome(in, error);
}

uint32_t ty_interpreter_steps(const ty_interpreter *in)
{
    return in->controls_done;
}

const double *ty_interpreter_losses(const ty_interpreter *in)
{
    return in->losses;
}

const ty_event *ty_interpreter_events(const ty_interpreter *in, uint64_t *count)
{
    *count = in->event_count;
    return in->events;
}

/* Describes passes replayed as graphs, over all devices of this rank. */
static void graphs_describe(const ty_interpreter *in, ty_text *text)
{
    ty_device_graphs all = {0};

    for (uint32_t h = 0; h < in->virtual_stage_count && in->memory->graphs != NULL; h++) {
        const ty_device_graphs graphs = in->memory->graphs(in->virtual_stages[h].device);
        all.count += graphs.count;
        all.replays += graphs.replays;
        all.queued += graphs.queued;
        if (all.given_up == NULL)
            all.given_up = graphs.given_up;
    }
    ty_text_addf(text, ", %u graphs for %llu of %llu passes", (unsigned)all.count,
                 (unsigned long long)all.replays, (unsigned long long)(all.replays + all.queued));
    if (all.given_up != NULL)
        ty_text_addf(text, " (none for others: %s)", all.given_up);
}

uint64_t ty_interpreter_peak_memory_bytes(const ty_interpreter *in)
{
    uint64_t bytes = 0;

    if (in->memory == NULL)
        return ty_machine_peak_memory_bytes();
    for (uint32_t h = 0; h < in->virtual_stage_count; h++)
        bytes += in->memory->peak_bytes(in->virtual_stages[h].device);
    return bytes;
}

ty_status ty_interpreter_describe(const ty_interpreter *in, char **out, ty_error *error)
{
    ty_text text = {0};

    *out = NULL;
    if (in->memory == NULL)
        return TY_OK;
    ty_text_addf(&text, "%s, link %s", in->memory->describe(in->virtual_stages[0].device),
                 in->link != NULL ? in->link->name : "none");
    graphs_describe(in, &text);
    return ty_text_take(&text, out, error);
}
