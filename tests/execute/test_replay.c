/* Plans played without devices: workloads of opaque layers, schedules, compressors and shards that
 * no other backend here has all of. What goes over the network is what the program says, byte for
 * byte; that instructions take their time is looked at from below, never from above. */
#include "interpreter_state.h"
#include "plans.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MOST_RANKS = 6, STEPS = 3 };

/* ---- A transport that counts ------------------------------------------------------------- */

typedef struct counted {
    ty_transport transport; /* the inner one's functions and state, but for sending */
    ty_transport *inner;
    uint64_t transfer_bytes, bucket_bytes;
} counted;

static ty_status counted_send(ty_transport *transport, uint32_t to, uint32_t tag,
                              const void *buffer, uint64_t bytes, ty_request **out, ty_error *error)
{
    counted *own = (counted *)transport; /* its first member */

    if (tag >> 28 == TAG_TRANSFER >> 28)
        own->transfer_bytes += bytes;
    if (tag >> 28 == TAG_BUCKET >> 28)
        own->bucket_bytes += bytes;
    return own->inner->send(own->inner, to, tag, buffer, bytes, out, error);
}

typedef struct rank_thread {
    pthread_t thread;
    counted counted;
    const ty_job *job;
    ty_status status;
    ty_error error;
} rank_thread;

static void *rank_main(void *argument)
{
    rank_thread *rank = argument;

    rank->status =
        ty_execute_job(rank->job, &rank->counted.transport, &(ty_execute_options){0}, &rank->error);
    rank->counted.inner->is_broken = rank->counted.transport.is_broken;
    rank->counted.inner->close(rank->counted.inner);
    return NULL;
}

static void run_ranks(const char *what, const ty_job *job, rank_thread *ranks)
{
    const uint32_t count = ty_plan_rank_count(job->plan);
    ty_transport *transports[MOST_RANKS];
    ty_error error = {0};

    cr_assert_leq(count, MOST_RANKS);
    cr_assert_eq(ty_transport_local(count, transports, &error), TY_OK, "%s", error.message);
    for (uint32_t i = 0; i < count; i++) {
        ranks[i] = (rank_thread){.counted = {.transport = *transports[i], .inner = transports[i]},
                                 .job = job};
        ranks[i].counted.transport.send = counted_send;
    }
    for (uint32_t i = 0; i < count; i++)
        cr_assert_eq(pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]), 0);
    for (uint32_t i = 0; i < count; i++)
        pthread_join(ranks[i].thread, NULL);
    for (uint32_t i = 0; i < count; i++)
        cr_assert_eq(ranks[i].status, TY_OK, "%s: %s", what, ranks[i].error.message);
}

/* ---- Jobs -------------------------------------------------------------------------------- */

/* The plan's predicted times, as `trainyard run --backend replay` puts them into a job. */
static void times_add(ty_job *job)
{
    ty_cluster *cluster = NULL;
    ty_costs *costs = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_cluster_parse(job->plan->cluster_json, "cluster", &cluster, &error), TY_OK,
                 "%s", error.message);
    cr_assert_eq(ty_costs_of_program(job->plan, job->program, cluster, &costs, &error), TY_OK, "%s",
                 error.message);
    job->instruction_s = ty_job_times(job->program);
    for (uint32_t s = 0; s < costs->stage_count; s++)
        for (uint32_t i = 0; i < costs->instruction_counts[s]; i++)
            job->instruction_s[s][i] = costs->instructions[s][i].seconds;
    ty_costs_free(costs);
    ty_cluster_free(cluster);
}

static ty_job *replay_job(const char *workload, const plan_shape *shape, const char *directory)
{
    ty_job *job = make_job_on(make_plan(workload, shape), STEPS, directory);

    ty_free(job->backend);
    ty_free(job->gradients);
    job->backend = ty_strdup("replay");
    job->gradients = NULL;
    times_add(job);
    return job;
}

/* ---- What a step must send --------------------------------------------------------------- */

/* Of all members together. */
static uint64_t exchange_bytes(const ty_plan *plan, const ty_instruction *exchange)
{
    const ty_bucket *bucket = &plan->buckets[exchange->bucket];
    const uint64_t n = ty_bucket_member_count(plan, bucket);
    const ty_collective_kind kind = exchange->op == TY_OP_GATHER
                                        ? TY_ALL_GATHER
                                        : ty_plan_exchange_kind(plan, bucket, exchange->phase);

    if (kind == TY_ALL_REDUCE)
        return 2 * (n - 1) * exchange->bytes;
    if (kind == TY_ALL_GATHER)
        return n * (n - 1) * exchange->bytes;
    return (n - 1) * exchange->bytes; /* reduce-scatter, all-to-all */
}

/* Each exchange is in the programs of all its members' positions; it is counted at the first. */
static bool is_first_position(const ty_plan *plan, const ty_bucket *bucket, uint32_t position)
{
    return bucket->stage % ty_plan_position_count(plan) == position;
}

static void expected_bytes(const ty_job *job, uint64_t *transfers, uint64_t *buckets)
{
    const ty_plan *plan = job->plan;

    *transfers = *buckets = 0;
    for (uint32_t s = 0; s < job->program->stage_count; s++) {
        const ty_stage_program *program = &job->program->stages[s];
        for (uint32_t i = 0; i < program->instruction_count; i++) {
            const ty_instruction *in = &program->instructions[i];
            if (in->op == TY_OP_SEND)
                *transfers += in->bytes * plan->stages[s].replicas;
            if ((in->op == TY_OP_COLLECTIVE || in->op == TY_OP_GATHER) &&
                is_first_position(plan, &plan->buckets[in->bucket], s))
                *buckets += exchange_bytes(plan, in);
        }
    }
}

/* ---- Checks ------------------------------------------------------------------------------ */

/* The busiest rank's compute stream: no step can be shorter. */
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
        const uint32_t s = ty_plan_stage_of_rank(job->plan, event->rank);
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

static void check(const char *workload, const plan_shape *shape)
{
    char *directory = directory_make();
    ty_job *job = replay_job(workload, shape, directory);
    rank_thread ranks[MOST_RANKS];
    uint64_t transfers, buckets, sent_transfers = 0, sent_buckets = 0;
    const uint32_t exchanges =
        job->plan->workload->local_steps > 1 ? STEPS / job->plan->workload->local_steps : STEPS;

    run_ranks(shape->name, job, ranks);
    expected_bytes(job, &transfers, &buckets);
    for (uint32_t i = 0; i < ty_plan_rank_count(job->plan); i++) {
        sent_transfers += ranks[i].counted.transfer_bytes;
        sent_buckets += ranks[i].counted.bucket_bytes;
    }
    cr_expect_eq(sent_transfers, transfers * STEPS, "%s: transfers of %llu bytes, expected %llu",
                 shape->name, (unsigned long long)sent_transfers,
                 (unsigned long long)(transfers * STEPS));
    cr_expect_eq(sent_buckets, buckets * exchanges, "%s: exchanges of %llu bytes, expected %llu",
                 shape->name, (unsigned long long)sent_buckets,
                 (unsigned long long)(buckets * exchanges));
    check_run(shape->name, job);
    ty_job_free(job);
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

#define FAST "host:2 gpu:3 @t4 pcie3 eth10"
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
         .cuts = {2, 4, 6}, .buckets = 1, BATCH, .interleave = 2},
        {"opaque zb-h1", .schedule = TY_ZERO_BUBBLE, .replicas = {1, 1, 1}, .cuts = {3, 6},
         .buckets = 1, BATCH},
        {"opaque pipedream 2+1+1", .schedule = TY_PIPEDREAM, .replicas = {2, 1, 1}, .cuts = {3, 6},
         .buckets = 1, BATCH},
        {"opaque pipedream-2bw", .schedule = TY_PIPEDREAM_2BW, .replicas = {1, 1}, .cuts = {4},
         .buckets = 1, BATCH},
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

/* What no CPU would train in a test: GPT-2 on two stages. */
Test(replay, gpt2_in_two_stages)
{
    static const plan_shape shape = {
        "gpt2 1f1b",           .schedule = TY_ONE_F_ONE_B,
        .replicas = {1, 1},    .cuts = {40},
        .buckets = 1,          .global_batch = 2,
        .micro_batch_size = 1, .cluster = "host:1 gpu:2 @h100 nvlink4 ndr400"};

    check("gpt2", &shape);
}

/* ---- Refusals ---------------------------------------------------------------------------- */

static void expect_refused(ty_job *job, const char *words)
{
    ty_error error = {0};

    cr_expect_neq(ty_execute_job_locally(job, ty_plan_rank_count(job->plan),
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
