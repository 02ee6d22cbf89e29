/* Plans replayed without devices: workloads of opaque layers, schedules, compressors and shards
 * that no other backend here supports together. Messages match the program byte for byte. Times of
 * instructions are checked as lower bounds only. */
#include "../pin.h"
#include "interpreter_state.h"
#include "plans.h"
#include "rank_threads.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_RANKS = 8, STEPS = 3 };

/* ---- A transport that counts ------------------------------------------------------------- */

typedef struct counted {
    wrapped_transport wrapped;
    const ty_job *job;
    uint64_t transfer_bytes, bucket_bytes;
    uint64_t parallel_bytes[TY_PARALLELISM_COUNT]; /* inside passes, between ranks that differ in
                                                    * this kind only */
    uint32_t stray_count;                          /* messages inside passes between other ranks */
} counted;

/* The only kind of parallel rank in which two ranks of a stage replica differ;
 * TY_PARALLELISM_COUNT: none. */
static ty_parallelism kind_between(const ty_plan *plan, uint32_t from, uint32_t to)
{
    const uint32_t width = ty_plan_replica_ranks(plan);

    for (int k = 0; from / width == to / width && k < TY_PARALLELISM_COUNT; k++)
        for (uint32_t n = 0; n < ty_plan_parallel_size(plan, (ty_parallelism)k); n++)
            if (from != to &&
                ty_plan_rank_along(plan, (ty_parallelism)k, from % width, n) == to % width)
                return (ty_parallelism)k;
    return TY_PARALLELISM_COUNT;
}

static ty_status counted_send(ty_transport *transport, uint32_t to, uint32_t tag,
                              const void *buffer, uint64_t bytes, ty_request **out, ty_error *error)
{
    counted *own = (counted *)transport; /* its first member's first */

    if (tag >> 28 == TAG_TRANSFER >> 28)
        own->transfer_bytes += bytes;
    if (tag >> 28 == TAG_BUCKET >> 28)
        own->bucket_bytes += bytes;
    if (tag == TAG_PARALLEL) {
        const ty_parallelism kind = kind_between(own->job->plan, transport->rank, to);
        if (kind == TY_PARALLELISM_COUNT)
            own->stray_count++;
        else
            own->parallel_bytes[kind] += bytes;
    }
    return own->wrapped.inner->send(own->wrapped.inner, to, tag, buffer, bytes, out, error);
}

static ty_status replay(ty_transport *transport, ty_error *error)
{
    const counted *own = (counted *)transport;

    return ty_execute_job(own->job, transport, &(ty_execute_options){0}, error);
}

static void run_ranks(const char *what, const ty_job *job, counted *counts)
{
    const uint32_t count = ty_plan_launched_count(job->plan);
    ty_transport *transports[MOST_RANKS];
    rank_thread ranks[MOST_RANKS];
    ty_error error = {0};

    cr_assert_leq(count, MOST_RANKS);
    cr_assert_eq(ty_transport_local(count, transports, &error), TY_OK, "%s", error.message);
    for (uint32_t i = 0; i < count; i++) {
        counts[i] = (counted){.wrapped = transport_wrap(transports[i]), .job = job};
        counts[i].wrapped.transport.send = counted_send;
        transports[i] = &counts[i].wrapped.transport;
    }
    cr_assert_eq(rank_threads_run(transports, count, replay, ranks, &error), TY_OK, "%s",
                 error.message);
    for (uint32_t i = 0; i < count; i++)
        cr_assert_eq(ranks[i].status, TY_OK, "%s: %s", what, ranks[i].error.message);
}

/* ---- Jobs -------------------------------------------------------------------------------- */

/* The plan's predicted times without those of collectives inside passes, as `trainyard run
 * --backend replay` sets them in a job. */
static void times_add(ty_job *job)
{
    ty_cluster *cluster = NULL;
    ty_costs *costs = NULL;
    ty_error error = {0};

    cluster = ty_cluster_share(job->plan->cluster);
    cr_assert_eq(ty_costs_of_program(job->plan, job->program, cluster, &costs, &error), TY_OK, "%s",
                 error.message);
    job->instruction_s = ty_job_times(job->program);
    for (uint32_t s = 0; s < costs->stage_count; s++)
        for (uint32_t i = 0; i < costs->instruction_counts[s]; i++)
            job->instruction_s[s][i] =
                costs->instructions[s][i].seconds - costs->instructions[s][i].inner_s;
    ty_costs_free(costs);
    ty_cluster_free(cluster);
}

static ty_job *replay_of(ty_plan *plan, const char *directory)
{
    ty_job *job = make_job_on(plan, STEPS, directory);

    ty_free(job->backend);
    ty_free(job->gradients);
    job->backend = ty_strdup("replay");
    job->gradients = NULL;
    times_add(job);
    return job;
}

static ty_job *replay_job(const char *workload, const plan_shape *shape, const char *directory)
{
    return replay_of(make_plan(workload, shape), directory);
}

/* All n members together. */

/* Of all n members together. */
static uint64_t collective_bytes(ty_collective_kind kind, uint64_t n, uint64_t bytes)
{
    if (kind == TY_ALL_REDUCE)
        return 2 * (n - 1) * bytes;
    if (kind == TY_ALL_GATHER)
        return n * (n - 1) * bytes;
    return (n - 1) * bytes; /* reduce-scatter, all-to-all */
}

/* Over all groups that reduce a bucket. */
static uint64_t exchange_bytes(const ty_plan *plan, const ty_instruction *exchange)
{
    const ty_bucket *bucket = &plan->buckets[exchange->bucket];
    const ty_collective_kind kind = exchange->op == TY_OP_GATHER
                                        ? TY_ALL_GATHER
                                        : ty_plan_exchange_kind(plan, bucket, exchange->phase);

    return ty_bucket_group_count(plan, bucket) *
           collective_bytes(kind, ty_bucket_device_count(plan, bucket), exchange->bytes);
}

static bool finds_product(const ty_plan *plan, uint32_t layer)
{
    ty_layer_again *again = ty_alloc(plan->workload->layer_count, sizeof *again);
    ty_again found;

    cr_assert_eq(ty_plan_mark_again(plan, again, NULL), TY_OK);
    found = again[layer].what;
    ty_free(again);
    return found;
}

/* Over all ranks of a stage replica, inside one instruction. */
static void add_inside(const ty_plan *plan, const ty_instruction *in,
                       uint64_t bytes[TY_PARALLELISM_COUNT])
{
    const bool is_backward = in->op == TY_OP_BACKWARD || in->op == TY_OP_BACKWARD_INPUT;
    const uint64_t width = ty_plan_replica_ranks(plan),
                   tensor = ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL);
    ty_inner_collective inner[TY_MAX_INNER_COLLECTIVES];

    if (in->op == TY_OP_UPDATE)
        bytes[TY_TENSOR_PARALLEL] +=
            width / tensor *
            collective_bytes(TY_ALL_REDUCE, tensor,
                             ty_bucket_rank_bytes(plan, &plan->buckets[in->bucket]));
    if (!is_backward && in->op != TY_OP_FORWARD && in->op != TY_OP_RECOMPUTE)
        return;
    for (uint32_t l = in->first_layer; l < in->first_layer + in->layer_count; l++) {
        const uint32_t count =
            in->op == TY_OP_RECOMPUTE
                ? ty_layer_recompute_collectives(plan, l, finds_product(plan, l), inner)
                : ty_layer_inner_collectives(plan, l, is_backward, inner);
        for (uint32_t i = 0; i < count; i++) {
            const uint64_t n = ty_plan_parallel_size(plan, inner[i].among);
            bytes[inner[i].among] +=
                width / n * inner[i].count * collective_bytes(inner[i].kind, n, inner[i].bytes);
        }
    }
}

/* Each collective is in the programs of all its members' pipeline ranks; it is counted at the
 * first. */
static bool is_first_pipeline_rank(const ty_plan *plan, const ty_bucket *bucket,
                                   uint32_t pipeline_rank)
{
    return bucket->stage % ty_plan_pipeline_size(plan) == pipeline_rank;
}

static void expected_bytes(const ty_job *job, uint64_t *transfers, uint64_t *buckets,
                           uint64_t inside[TY_PARALLELISM_COUNT])
{
    const ty_plan *plan = job->plan;

    *transfers = *buckets = 0;
    memset(inside, 0, TY_PARALLELISM_COUNT * sizeof *inside);
    for (uint32_t s = 0; s < job->program->stage_count; s++) {
        const ty_stage_program *program = &job->program->stages[s];
        for (uint32_t i = 0; i < program->instruction_count; i++) {
            const ty_instruction *in = &program->instructions[i];
            if (in->op == TY_OP_SEND)
                *transfers += in->bytes * plan->stages[s].replicas * ty_plan_replica_ranks(plan);
            for (uint32_t r = 0; r < plan->stages[s].replicas; r++)
                add_inside(plan, in, inside);
            if ((in->op == TY_OP_COLLECTIVE || in->op == TY_OP_GATHER) &&
                is_first_pipeline_rank(plan, &plan->buckets[in->bucket], s))
                *buckets += exchange_bytes(plan, in);
        }
    }
}

/* ---- Checks ------------------------------------------------------------------------------ */

/* The busiest rank's compute stream: a lower bound of the step time. */
static double least_step_s(const ty_job *job)
{
    double longest = 0;

    for (uint32_t s = 0; s < job->program->stage_count; s++) {
        const ty_stage_program *program = &job->program->stages[s];
        double sum = 0;
        for (uint32_t i = 0; i < program->instruction_count; i++)
            if (program->instructions[i].stream == TY_STREAM_COMPUTE)
                sum += job->instruction_s[s][i];
        longest = fmax(longest, sum);
    }
    return longest;
}

static void check_run(const char *what, const ty_job *job)
{
    const uint32_t steps = job->timeline_steps;
    ty_run *run = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_run_load(job->output, &run, &error), TY_OK, "%s: %s", what, error.message);
    cr_expect_str_eq(run->backend, "replay");
    cr_expect_null(run->losses, "%s", what);
    cr_expect_eq(run->step_count, STEPS, "%s", what);
    cr_assert_not_null(run->timeline, "%s", what);
    cr_expect_eq(run->timeline->step_count, steps, "%s", what);
    cr_expect_eq(run->timeline->event_count,
                 steps * ty_program_event_count(job->plan, job->program), "%s", what);
    for (uint64_t e = 0; e < run->timeline->event_count; e++) {
        const ty_event *event = &run->timeline->events[e];
        const uint32_t s = ty_plan_stage_of_replica(job->plan, event->stage_replica);
        const ty_instruction *in = &job->program->stages[s].instructions[event->instruction];
        if (in->stream == TY_STREAM_COMPUTE || in->op == TY_OP_ENCODE)
            cr_expect_geq(event->end_s - event->start_s,
                          job->instruction_s[s][event->instruction] - 1e-9, "%s: %s", what,
                          ty_op_name(in->op));
    }
    printf("%s: %.1f ms a step, of which the busiest rank computes %.1f ms\n", what,
           1e3 * run->summary.step_time_s, 1e3 * least_step_s(job));
    ty_run_free(run);
}

/* Runs a job and counts. */
static void check_bytes(const char *what, const ty_job *job)
{
    counted counts[MOST_RANKS];
    uint64_t transfers, buckets, inside[TY_PARALLELISM_COUNT], sent_transfers = 0, sent_buckets = 0;
    uint64_t sent_inside[TY_PARALLELISM_COUNT] = {0};
    const uint32_t exchanges =
        job->plan->workload->local_steps > 1 ? STEPS / job->plan->workload->local_steps : STEPS;

    run_ranks(what, job, counts);
    expected_bytes(job, &transfers, &buckets, inside);
    for (uint32_t i = 0; i < ty_plan_rank_count(job->plan); i++) {
        sent_transfers += counts[i].transfer_bytes;
        sent_buckets += counts[i].bucket_bytes;
        for (int k = 0; k < TY_PARALLELISM_COUNT; k++)
            sent_inside[k] += counts[i].parallel_bytes[k];
        cr_expect_eq(counts[i].stray_count, 0, "%s", what);
    }
    cr_expect_eq(sent_transfers, transfers * STEPS, "%s: transfers of %llu bytes, expected %llu",
                 what, (unsigned long long)sent_transfers, (unsigned long long)(transfers * STEPS));
    cr_expect_eq(sent_buckets, buckets * exchanges, "%s: exchanges of %llu bytes, expected %llu",
                 what, (unsigned long long)sent_buckets, (unsigned long long)(buckets * exchanges));
    for (int k = 0; k < TY_PARALLELISM_COUNT; k++) {
        cr_expect_eq(sent_inside[k], inside[k] * STEPS, "%s: %s ranks sent %llu bytes, not %llu",
                     what, ty_parallelism_name((ty_parallelism)k),
                     (unsigned long long)sent_inside[k], (unsigned long long)(inside[k] * STEPS));
        cr_expect_eq(sent_inside[k] > 0, ty_plan_parallel_size(job->plan, (ty_parallelism)k) > 1,
                     "%s", what);
    }
}

/* Replays a job and frees it. */
static void check_job(const char *what, ty_job *job)
{
    check_bytes(what, job);
    check_run(what, job);
    ty_job_free(job);
}

static void check(const char *workload, const plan_shape *shape)
{
    char *directory = directory_make();

    check_job(shape->name, replay_job(workload, shape, directory));
    directory_remove(directory);
}

/* ---- Workloads --------------------------------------------------------------------------- */

enum { GRAPH_LAYERS = 8 };

/* A chain of measured operators, as PipeDream's profiler writes it. */
static char *graph_write(const char *directory)
{
    ty_text text = {0};
    char path[512];
    ty_error error = {0};

    ty_text_add(&text, "node1 -- Input0 -- forward_compute_time=0.0, backward_compute_time=0.0, "
                       "activation_size=2048.0, parameter_size=0.0\n");
    for (int k = 2; k < 2 + GRAPH_LAYERS; k++)
        ty_text_addf(&text,
                     "node%d -- Linear(in_features=64, out_features=64, bias=True) -- "
                     "forward_compute_time=%d.0, backward_compute_time=%d.0, "
                     "activation_size=2048.0, parameter_size=16640.0\n",
                     k, 4 + k, 8 + k);
    for (int k = 1; k <= GRAPH_LAYERS; k++)
        ty_text_addf(&text, "\tnode%d -- node%d\n", k, k + 1);
    snprintf(path, sizeof path, "%s/chain.graph.txt", directory);
    cr_assert_eq(ty_file_write(path, text.data, text.length, &error), TY_OK, "%s", error.message);
    ty_text_clear(&text);
    return ty_strdup(path);
}

#define FAST "host:2 gpu:3 @t4 pcie3 eth10 nics=3"
#define BATCH .global_batch = 24, .micro_batch_size = 2, .cluster = FAST

Test(replay, opaque_layers_in_every_schedule)
{
    static const plan_shape shapes[] = {
        {"opaque alone", .replicas = {1}, .buckets = 1, BATCH},
        {"opaque data parallel 3", .replicas = {3}, .buckets = 3, BATCH},
        {"opaque gpipe", .schedule = TY_GPIPE, .replicas = {1, 1, 1}, .cuts = {3, 6}, .buckets = 1,
         BATCH, .recompute = TY_RECOMPUTE_FULL},
        {"opaque 1f1b 2+1", .schedule = TY_ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {5},
         .buckets = 2, BATCH},
        {"opaque interleaved", .schedule = TY_INTERLEAVED, .replicas = {1, 1, 1, 1},
         .cuts = {2, 4, 6}, .buckets = 1, BATCH, .virtual_stages = 2},
        {"opaque zb-h1", .schedule = TY_ZERO_BUBBLE, .replicas = {1, 1, 1}, .cuts = {3, 6},
         .buckets = 1, BATCH},
        {"opaque zb-2p", .schedule = TY_ZERO_BUBBLE_2P, .replicas = {1, 1, 1}, .cuts = {3, 6},
         .buckets = 1, BATCH},
        {"opaque pipedream 2+1+1", .schedule = TY_PIPEDREAM, .replicas = {2, 1, 1}, .cuts = {3, 6},
         .buckets = 1, BATCH},
        {"opaque pipedream-2bw", .schedule = TY_PIPEDREAM_2BW, .replicas = {1, 1}, .cuts = {4},
         .buckets = 1, BATCH},
        {"opaque data parallel 3, 2 steps late", .replicas = {3}, .buckets = 3, BATCH,
         .staleness = 2},
        {"opaque 1f1b 2+2, a step late", .schedule = TY_ONE_F_ONE_B, .replicas = {2, 2},
         .cuts = {4}, .buckets = 2, BATCH, .staleness = 1},
        {"opaque zero 3", .replicas = {4}, .buckets = 2, BATCH, .zero = 3},
        {"opaque zero 1", .replicas = {2}, .buckets = 2, BATCH, .zero = 1},
        {"opaque local steps", .replicas = {2}, .buckets = 2, BATCH, .local_steps = 3},
    };
    char *directory = directory_make(), *graph = graph_write(directory);

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check(graph, &shapes[i]);
    ty_free(graph);
    directory_remove(directory);
}

Test(replay, every_compressor_and_algorithm)
{
    char *directory = directory_make(), *graph = graph_write(directory);

    for (int kind = 0; kind < TY_COMPRESSION_COUNT; kind++) {
        const ty_compression compression = {
            .kind = (ty_compression_kind)kind,
            .ratio = ty_compression_has_ratio((ty_compression_kind)kind) ? 0.1 : 0,
            .rank = ty_compression_has_rank((ty_compression_kind)kind) ? 2 : 0};
        const plan_shape shape = {.name = ty_compression_name(compression.kind),
                                  .replicas = {3},
                                  .buckets = 2,
                                  BATCH,
                                  .compression = compression};
        check(graph, &shape);
    }
    for (int algorithm = 0; algorithm < TY_ALGORITHM_COUNT; algorithm++) {
        const plan_shape shape = {.name = ty_algorithm_name((ty_algorithm)algorithm),
                                  .replicas = {6},
                                  .buckets = 2,
                                  BATCH,
                                  .algorithm = (ty_algorithm)algorithm};
        check(graph, &shape);
    }
    ty_free(graph);
    directory_remove(directory);
}

/* Too large to train on a CPU in a test: GPT-2 on two stages. */
/* Row compression depends on the tokens of a step: a replay and a training run send the program's
 * messages, byte for byte. */
Test(replay, rows_replayed_and_trained)
{
    static const char text[] =
        "{\"schema\": \"trainyard.zoo/1\", \"name\": \"gpt-untied\", \"family\": \"transformer\","
        "\"source\": \"gpt-tiny.json\", \"blocks\": 1, \"features\": 32, \"heads\": 4,"
        "\"hidden_features\": 64, \"vocabulary\": 1000, \"positions\": 16, \"sequence\": 16,"
        "\"is_tied\": false, \"token_bytes\": 1, \"dataset\": \"synthetic\", \"global_batch\": 8,"
        "\"optimizer\": {\"kind\": \"sgd\", \"learning_rate\": 0.01, \"momentum\": 0,"
        "\"weight_decay\": 0}}";
    static const plan_shape shapes[] = {
        {"rows, data parallel 3", .replicas = {3}, .buckets = 2, BATCH,
         .compression.kind = TY_COMPRESSION_ROWS},
        {"rows, 1f1b 2+1", .schedule = TY_ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {4},
         .buckets = 1, BATCH, .compression.kind = TY_COMPRESSION_ROWS},
    };
    char *directory = directory_make();

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        ty_job *job = make_job_on(make_plan(text, &shapes[i]), STEPS, directory);
        uint32_t rows = 0;
        for (uint32_t b = 0; b < job->plan->bucket_count; b++)
            rows += job->plan->buckets[b].compression.kind == TY_COMPRESSION_ROWS;
        cr_expect_eq(rows, 1);
        check_bytes(shapes[i].name, job);
        ty_job_free(job);
        check(text, &shapes[i]);
    }
    directory_remove(directory);
}

Test(replay, gpt2_in_two_stages)
{
    static const plan_shape shape = {
        "gpt2 1f1b",           .schedule = TY_ONE_F_ONE_B,
        .replicas = {1, 1},    .cuts = {40},
        .buckets = 1,          .global_batch = 2,
        .micro_batch_size = 1, .cluster = "host:1 gpu:2 @h100 nvlink4 ndr400"};

    check("gpt2", &shape);
}

/* ---- Parallel ranks ------------------------------------------------------------------------ */

#define SMALL_MOE                                                                                  \
    "{\"schema\": \"trainyard.zoo/1\", \"source\": \"a smaller one of the zoo's\","                \
    "\"name\": \"moe-small\", \"family\": \"decoder\", \"blocks\": 2, \"features\": 32,"           \
    "\"heads\": 4, \"kv_heads\": 2, \"experts\": 4, \"experts_per_token\": 2,"                     \
    "\"expert_features\": 64, \"vocabulary\": 64, \"sequence\": 32, \"longest_sequence\": 32,"     \
    "\"token_bytes\": 1, \"dataset\": \"synthetic\", \"global_batch\": 16,"                        \
    "\"optimizer\": {\"kind\": \"adamw\", \"learning_rate\": 0.001, \"weight_decay\": 0.01,"       \
    "\"beta1\": 0.9, \"beta2\": 0.999, \"epsilon\": 1e-08}}"

typedef struct tp_shape {
    const char *name;
    ty_plan_dimensions dimensions;
    uint32_t stages, element_bytes;
    const char *workload; /* NULL: SMALL_MOE */
} tp_shape;

static ty_plan *plan_of_ranks(const tp_shape *shape)
{
    ty_plan_options options = ty_plan_options_default();
    ty_workload *workload = open_workload(shape->workload != NULL ? shape->workload : SMALL_MOE);
    ty_cluster *cluster = NULL;
    ty_plan *plan = NULL;
    ty_error error = {0};

    options.global_batch = 16;
    pin(&options.pins, "pp=%u,micro_batch=4", shape->stages);
    options.pins.axes |= TY_AXES_OF_DIMENSIONS;
    options.pins.dimensions = shape->dimensions;
    if (shape->element_bytes > 0)
        ty_workload_set_precision(workload, TY_PRECISION_BF16);
    cr_assert_eq(ty_cluster_open("1x dgx-h100", NULL, &cluster, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_plan_search(workload, cluster, NULL, &options, &plan, &error), TY_OK, "%s: %s",
                 shape->name, error.message);
    ty_cluster_free(cluster);
    ty_workload_free(workload);
    return plan;
}

/* TP, CP and EP ranks run the plan's collectives inside passes, and no others. */
Test(replay, ranks_exchange_inside_passes)
{
    static const tp_shape shapes[] = {
        {"tensor 2", {.tensor_parallel = 2}, 1, 0, NULL},
        {"tensor 4 of two key heads, half", {.tensor_parallel = 4}, 1, 2, NULL},
        {"tensor 2 along the sequence, 2 stages",
         {.tensor_parallel = 2, .sequence_parallel = true, .recompute = TY_RECOMPUTE_FULL},
         2,
         0,
         NULL},
        {"tensor 2 along the sequence, 2 stages, operator",
         {.tensor_parallel = 2, .sequence_parallel = true, .recompute = TY_RECOMPUTE_OPERATOR},
         2,
         0,
         NULL},
        {"context 2", {.context_parallel = 2}, 1, 0, NULL},
        {"context 2, operator",
         {.context_parallel = 2, .recompute = TY_RECOMPUTE_OPERATOR},
         2,
         0,
         NULL},
        {"context 4, zero 3", {.context_parallel = 4, .zero = 3}, 1, 2, NULL},
        {"expert 2", {.expert_parallel = 2}, 1, 0, NULL},
        {"expert 4, zero 1", {.expert_parallel = 4, .zero = 1}, 1, 0, NULL},
        {"tables by row of 4, 2 stages",
         {.expert_parallel = 4, .table_shard = TY_TABLES_ROW},
         2,
         0,
         "dlrm-tiny"},
        {"tables by column of 2",
         {.expert_parallel = 2, .table_shard = TY_TABLES_COLUMN},
         1,
         2,
         "dlrm-tiny"},
        {"tables by table of 4, zero 3",
         {.expert_parallel = 4, .table_shard = TY_TABLES_TABLE, .zero = 3},
         1,
         0,
         "dlrm-tiny"},
        {"tensor 2, context 2, expert 2",
         {.tensor_parallel = 2, .context_parallel = 2, .expert_parallel = 2},
         1,
         0,
         NULL},
        {"tensor 2 along the sequence, expert 2, 2 stages",
         {.tensor_parallel = 2, .expert_parallel = 2, .sequence_parallel = true},
         2,
         2,
         NULL},
    };
    char *directory = directory_make();

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_job(shapes[i].name, replay_of(plan_of_ranks(&shapes[i]), directory));
    directory_remove(directory);
}

/* ---- Refusals ---------------------------------------------------------------------------- */

static void expect_refused(ty_job *job, const char *words)
{
    ty_error error = {0};

    cr_expect_neq(ty_execute_job_locally(job, ty_plan_stage_replica_count(job->plan),
                                         &(ty_execute_options){0}, &error),
                  TY_OK, "%s", words);
    cr_expect_not_null(strstr(error.message, words), "\"%s\" lacks \"%s\"", error.message, words);
}

Test(replay, what_it_cannot_give_is_refused)
{
    static const plan_shape shape = {"alone", .replicas = {1}, .buckets = 1, BATCH};
    char *directory = directory_make();
    ty_job *job = replay_job("mlp", &shape, directory);
    ty_error error = {0};

    job->until.accuracy = 0.5;
    job->evaluate_every = 2;
    expect_refused(job, "trains nothing: found a target to reach");
    job->until.accuracy = 0;
    job->checkpoint = ty_strdup(directory);
    expect_refused(job, "trains nothing: found a folder for checkpoints");
    ty_free(job->checkpoint);
    job->checkpoint = NULL;
    job->precision = ty_strdup("bf16");
    expect_refused(job, "trains nothing: found a precision");
    ty_free(job->precision);
    job->precision = NULL;
    ty_free(job->instruction_s);
    job->instruction_s = NULL;
    expect_refused(job, "/instruction_s: found none");
    cr_expect_eq(ty_job_save(job, job->output, &error), TY_EPARSE);
    cr_expect_not_null(strstr(error.message, "/instruction_s: found none"), "%s", error.message);
    ty_job_free(job);
    directory_remove(directory);
}

Test(replay, jobs_are_read_as_written)
{
    static const plan_shape shape = {"two stages", .schedule = TY_GPIPE, .replicas = {1, 1},
                                     .cuts = {3},  .buckets = 1,         BATCH};
    char *directory = directory_make(), path[512];
    ty_job *job = replay_job("mlp", &shape, directory), *read = NULL;
    ty_error error = {0};

    snprintf(path, sizeof path, "%s/job.json", directory);
    cr_assert_eq(ty_job_save(job, path, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_job_load(path, &read, &error), TY_OK, "%s", error.message);
    for (uint32_t s = 0; s < job->program->stage_count; s++)
        for (uint32_t i = 0; i < job->program->stages[s].instruction_count; i++)
            cr_expect(read->instruction_s[s][i] == job->instruction_s[s][i]);
    ty_job_free(read);
    ty_job_free(job);
    directory_remove(directory);
}
