/* Time and memory of simulations, as JSON on stdout: collectives and iterations for which other
 * simulators publish figures, and entire plans. Each row has its own process. Run from the source
 * tree or with TRAINYARD_DATA set. */
#include "ty_planner.h"
#include "ty_simulate.h"
#include "ty_workloads.h"

#include "ty_base.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define RING_BYTES 67108864u /* 64 MiB */
/* ASTRA-sim's data-parallel sample: 50 layers, forward and backward, an all-reduce of each. */
#define LAYERS 50u
#define LAYER_BYTES 2097152u
#define LAYER_S 1e-3

typedef enum question { RING, BUCKETS, SEARCH } question;

static const struct row {
    const char *name, *cluster;
    question question;
    const char *workload; /* of a search */
    uint32_t devices, tensor, pipeline, zero, global_batch, micro_batch_size;
    ty_resolution resolution;
    bool no_fold;
    uint32_t odd; /* number of slow ranks, each with its own speed */
} rows[] = {
    {"ring all-reduce 64 MiB", "1x dgx-a100", RING, NULL, 8, 1, 1, 0, 0, 0, TY_FLOW, false, 0},
    {"ring all-reduce 64 MiB", "8x dgx-a100", RING, NULL, 64, 1, 1, 0, 0, 0, TY_FLOW, false, 0},
    {"ring all-reduce 64 MiB", "64x dgx-a100", RING, NULL, 512, 1, 1, 0, 0, 0, TY_FLOW, false, 0},
    {"ring all-reduce 64 MiB", "512x dgx-a100", RING, NULL, 4096, 1, 1, 0, 0, 0, TY_FLOW, false, 0},
    {"ring all-reduce 64 MiB", "512x dgx-a100", RING, NULL, 4096, 1, 1, 0, 0, 0, TY_FLOW, true, 0},
    {"ring all-reduce 64 MiB", "12500x dgx-a100", RING, NULL, 100000, 1, 1, 0, 0, 0, TY_FLOW, false,
     0},
    {"ring all-reduce 64 MiB", "8x dgx-a100", RING, NULL, 64, 1, 1, 0, 0, 0, TY_CHUNK, false, 0},
    {"50 layers, buckets of 2 MiB", "64x dgx-a100", BUCKETS, NULL, 512, 1, 1, 0, 0, 0, TY_FLOW,
     false, 0},
    {"50 layers, buckets of 2 MiB", "64x dgx-a100", BUCKETS, NULL, 512, 1, 1, 0, 0, 0, TY_FLOW,
     true, 0},
    {"50 layers, buckets of 2 MiB",
     "leaf:64 host:64 gpu:8 @a100-sxm4-80gb nvlink3 hdr200 oversub:2", BUCKETS, NULL, 32768, 1, 1,
     0, 0, 0, TY_FLOW, false, 0},
    {"50 layers, buckets of 2 MiB", "12500x dgx-a100", BUCKETS, NULL, 100000, 1, 1, 0, 0, 0,
     TY_FLOW, false, 0},
    {"50 layers, odd ranks", "512x dgx-a100", BUCKETS, NULL, 4096, 1, 1, 0, 0, 0, TY_FLOW, false,
     0},
    {"50 layers, odd ranks", "512x dgx-a100", BUCKETS, NULL, 4096, 1, 1, 0, 0, 0, TY_FLOW, false,
     16},
    {"50 layers, odd ranks", "512x dgx-a100", BUCKETS, NULL, 4096, 1, 1, 0, 0, 0, TY_FLOW, false,
     64},
    {"50 layers, odd ranks", "512x dgx-a100", BUCKETS, NULL, 4096, 1, 1, 0, 0, 0, TY_FLOW, false,
     256},
    {"50 layers, odd ranks", "512x dgx-a100", BUCKETS, NULL, 4096, 1, 1, 0, 0, 0, TY_FLOW, false,
     1024},
    {"50 layers, odd ranks", "512x dgx-a100", BUCKETS, NULL, 4096, 1, 1, 0, 0, 0, TY_FLOW, false,
     4095},
    {"GPT-3 175B, an iteration", "64x dgx-a100", SEARCH, "gpt3-175b", 512, 8, 8, 1, 192, 1, TY_FLOW,
     false, 0},
    {"GPT-3 175B, an iteration", "512x dgx-a100", SEARCH, "gpt3-175b", 4096, 8, 8, 1, 1536, 1,
     TY_FLOW, false, 0},
    {"GPT-3 175B, an iteration", "512x dgx-a100", SEARCH, "gpt3-175b", 4096, 8, 8, 1, 1536, 1,
     TY_FLOW, true, 0},
    {"GPT-3 175B, an iteration", "2048x dgx-a100", SEARCH, "gpt3-175b", 16384, 8, 8, 1, 6144, 1,
     TY_FLOW, false, 0},
    {"GPT-3 175B, an iteration", "12500x dgx-h200", SEARCH, "gpt3-175b", 100000, 8, 10, 1, 30000, 1,
     TY_FLOW, false, 0},
};
enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

/* Subject of a simulation. */
typedef struct subject {
    ty_cluster *cluster;
    ty_plan *plan;
    ty_program *program;
    ty_costs *costs;
} subject;

static double cpu_s(int who)
{
    struct rusage use;
    getrusage(who, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

static uint64_t peak_bytes(void)
{
    struct rusage self, child;
    getrusage(RUSAGE_SELF, &self);
    getrusage(RUSAGE_CHILDREN, &child);
    return (uint64_t)(self.ru_maxrss > child.ru_maxrss ? self.ru_maxrss : child.ru_maxrss) * 1024;
}

/* ---- By hand: one stage, a replica on every device ----------------------------------------- */

static ty_status make_stage(const struct row *row, subject *s, ty_error *error)
{
    ty_plan *plan = s->plan = ty_alloc(1, sizeof *plan);

    if (plan == NULL || (plan->stages = ty_alloc(1, sizeof *plan->stages)) == NULL ||
        (plan->buckets = ty_alloc(LAYERS, sizeof *plan->buckets)) == NULL ||
        (plan->stages[0].devices = ty_alloc(row->devices, sizeof(uint32_t))) == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    if ((plan->workload = ty_alloc(1, sizeof *plan->workload)) == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    plan->cluster_name = ty_strdup(row->cluster);
    plan->strategy = ty_strdup("benchmark");
    plan->micro_batches = plan->global_batch = row->devices;
    plan->micro_batch_size = plan->stage_count = 1;
    plan->stages[0].layer_count = LAYERS;
    plan->stages[0].replicas = row->devices;
    for (uint32_t d = 0; d < row->devices; d++)
        plan->stages[0].devices[d] = d;
    return TY_OK;
}

static void add_bucket(ty_plan *plan, uint64_t bytes)
{
    plan->buckets[plan->bucket_count++] = (ty_bucket){
        .layer_count = 1, .tied_stage = TY_NO_STAGE, .gradient_bytes = bytes, .algorithm = TY_RING};
}

static ty_status add_exchange(subject *s, uint32_t bucket, uint32_t wait, ty_error *error)
{
    ty_instruction exchange = ty_instruction_of(TY_OP_COLLECTIVE);

    exchange.bucket = bucket;
    exchange.bytes = s->plan->buckets[bucket].gradient_bytes;
    return ty_program_append(s->program, 0, &exchange, &wait, 1, NULL, error);
}

/* All forwards, then all backwards; each backward completes a bucket. */
static ty_status make_program(const struct row *row, subject *s, ty_error *error)
{
    ty_status status = ty_program_new(s->plan, &s->program, error);
    const uint32_t layers = row->question == RING ? 0 : LAYERS;
    uint32_t last = TY_NO_INSTRUCTION;

    if (status == TY_OK && row->question == RING)
        status = add_exchange(s, 0, TY_NO_INSTRUCTION, error);
    for (uint32_t i = 0; status == TY_OK && i < 2 * layers; i++) {
        ty_instruction pass = ty_instruction_of(i < layers ? TY_OP_FORWARD : TY_OP_BACKWARD);
        pass.micro_batch = 0;
        status = ty_program_append(s->program, 0, &pass, NULL, 0, &last, error);
        if (status == TY_OK && i >= layers)
            status = add_exchange(s, i - layers, last, error);
    }
    return status;
}

static ty_status make_costs(subject *s, ty_error *error)
{
    ty_status status;
    double bandwidth, latency_s;
    const ty_plan_stage *stage = &s->plan->stages[0];

    TY_CHECK(ty_costs_new(s->plan, s->program, &s->costs, error), status, done);
    s->costs->host_count = ty_cluster_host_count(s->cluster);
    s->costs->host_cores = ty_alloc(s->costs->host_count, sizeof(double));
    TY_TRY(ty_check_memory(s->costs->host_cores != NULL, error));
    for (uint32_t h = 0; h < s->costs->host_count; h++)
        s->costs->host_cores[h] = HUGE_VAL;
    for (uint32_t r = 0; r < stage->replicas; r++)
        s->costs->replica_host[r] = ty_cluster_device_host(s->cluster, stage->devices[r]);
    TY_CHECK(
        ty_cluster_ring(s->cluster, stage->devices, stage->replicas, &bandwidth, &latency_s, error),
        status, done);
    for (uint32_t i = 0; status == TY_OK && i < s->program->stages[0].instruction_count; i++) {
        const ty_instruction *in = &s->program->stages[0].instructions[i];
        s->costs->instructions[0][i].seconds = LAYER_S;
        if (in->op == TY_OP_COLLECTIVE)
            status = ty_collective_cost(TY_ALL_REDUCE, TY_RING, stage->replicas, in->bytes,
                                        bandwidth, latency_s, &s->costs->instructions[0][i], error);
    }
done:
    return status;
}

static ty_status make_by_hand(const struct row *row, subject *s, ty_error *error)
{
    ty_status status = make_stage(row, s, error);

    for (uint32_t b = 0; status == TY_OK && b < (row->question == RING ? 1 : LAYERS); b++)
        add_bucket(s->plan, row->question == RING ? RING_BYTES : LAYER_BYTES);
    if (status == TY_OK)
        status = make_program(row, s, error);
    if (status == TY_OK)
        status = make_costs(s, error);
    return status;
}

/* ---- By the planner ------------------------------------------------------------------------ */

static ty_status make_by_search(const struct row *row, subject *s, ty_error *error)
{
    ty_status status;
    ty_workload *workload = NULL;
    ty_plan_options options = ty_plan_options_default();

    options.global_batch = row->global_batch;
    options.pins.axes |= TY_AXES_OF_DIMENSIONS;
    ty_pin(&options.pins, TY_AXIS_MICRO_BATCH, row->micro_batch_size);
    ty_pin(&options.pins, TY_AXIS_PP, row->pipeline);
    ty_pin(&options.pins, TY_AXIS_DP, row->devices / row->tensor / row->pipeline);
    ty_pin(&options.pins, TY_AXIS_TP, row->tensor);
    ty_pin(&options.pins, TY_AXIS_SP, row->tensor > 1);
    ty_pin(&options.pins, TY_AXIS_ZERO, row->zero);
    ty_pin(&options.pins, TY_AXIS_SCHEDULE, TY_ONE_F_ONE_B);
    ty_pin(&options.pins, TY_AXIS_RECOMPUTE, TY_RECOMPUTE_SELECTIVE); /* to fit 80 GB */
    options.simulate_top = 0;
    TY_CHECK(ty_workload_open(row->workload, &workload, error), status, cleanup);
    TY_CHECK(ty_plan_search(workload, s->cluster, NULL, &options, &s->plan, error), status,
             cleanup);
    TY_CHECK(ty_plan_lower(s->plan, &s->program, error), status, cleanup);
    status = ty_costs_of_program(s->plan, s->program, s->cluster, &s->costs, error);
cleanup:
    ty_workload_free(workload);
    return status;
}

/* ---- Measuring ----------------------------------------------------------------------------- */

static void write_row(const struct row *row, ty_engine_kind engine, const subject *s,
                      const ty_timeline *timeline, uint32_t classes, const double seconds[2],
                      uint64_t memory_bytes, ty_text *text)
{
    ty_json_writer writer = ty_json_writer_on(text);
    double end_s = 0;

    for (uint64_t e = 0; e < timeline->event_count; e++)
        end_s = timeline->events[e].end_s > end_s ? timeline->events[e].end_s : end_s;
    ty_json_open(&writer, NULL, '{');
    ty_json_put_string(&writer, "name", row->name);
    ty_json_put_string(&writer, "cluster", row->cluster);
    ty_json_put_uint(&writer, "devices", row->devices);
    ty_json_put_uint(&writer, "ranks", ty_plan_rank_count(s->plan));
    ty_json_put_uint(&writer, "classes", classes);
    ty_json_put_string(&writer, "resolution", row->resolution == TY_FLOW ? "flow" : "chunk");
    ty_json_put_string(&writer, "engine", ty_engine_name(engine));
    ty_json_put_string(&writer, "fold", row->no_fold ? "no" : "yes");
    ty_json_put_uint(&writer, "events", timeline->event_count);
    ty_json_put_number(&writer, "wall_s", seconds[0]);
    ty_json_put_number(&writer, "cpu_s", seconds[1]);
    ty_json_put_uint(&writer, "peak_memory_bytes", memory_bytes);
    ty_json_put_number(&writer, "simulated_s", end_s);
    ty_json_close(&writer, '}');
}

/* Spreads the slow ranks evenly. */
static ty_status slow_down(const struct row *row, const subject *s, double **out, ty_error *error)
{
    const uint32_t ranks = ty_plan_rank_count(s->plan);
    double *slowdowns = ty_alloc(ranks, sizeof *slowdowns);

    TY_TRY(ty_check_memory(slowdowns != NULL, error));
    for (uint32_t r = 0; r < ranks; r++)
        slowdowns[r] = 1.0;
    for (uint32_t i = 0; i < row->odd; i++)
        slowdowns[(uint64_t)i * ranks / row->odd] = 1.0 + 1e-6 * (i + 1);
    *out = slowdowns;
    return TY_OK;
}

static ty_status run(const struct row *row, ty_engine_kind engine, ty_text *text, ty_error *error)
{
    ty_status status;
    subject s = {0};
    ty_timeline *timeline = NULL;
    double *slowdowns = NULL;
    uint32_t classes = 0;
    ty_simulate_options options = ty_simulate_options_default();

    options.steps = 1;
    options.resolution = row->resolution;
    options.no_fold = row->no_fold;
    options.engine = engine;
    options.engine_used = &engine;
    TY_CHECK(ty_cluster_open(row->cluster, NULL, &s.cluster, error), status, cleanup);
    TY_CHECK(row->question == SEARCH ? make_by_search(row, &s, error)
                                     : make_by_hand(row, &s, error),
             status, cleanup);
    if (row->odd > 0) {
        TY_CHECK(slow_down(row, &s, &slowdowns, error), status, cleanup);
        options.slowdowns = slowdowns;
    }
    const double start_s = ty_now_s(), before_s = cpu_s(RUSAGE_SELF) + cpu_s(RUSAGE_CHILDREN);
    TY_CHECK(ty_simulate(s.plan, s.program, s.costs, s.cluster, &options, &timeline, error), status,
             cleanup);
    const double seconds[] = {ty_now_s() - start_s,
                              cpu_s(RUSAGE_SELF) + cpu_s(RUSAGE_CHILDREN) - before_s};
    const uint64_t memory_bytes = peak_bytes();
    TY_CHECK(ty_simulate_classes(s.plan, s.program, s.costs, s.cluster, &options, &classes, error),
             status, cleanup);
    write_row(row, engine, &s, timeline, classes, seconds, memory_bytes, text);

cleanup:
    ty_free(slowdowns);
    ty_timeline_free(timeline);
    ty_costs_free(s.costs);
    ty_program_free(s.program);
    ty_plan_free(s.plan);
    ty_cluster_free(s.cluster);
    return status;
}

/* Runs a row in its own process, since the peak memory of a process never falls. */
static int run_apart(const struct row *row, ty_engine_kind engine)
{
    int status = 1;
    fflush(stdout);
    const pid_t child = fork();

    if (child == 0) {
        ty_error error = {0};
        ty_text text = {0};
        if (run(row, engine, &text, &error) != TY_OK) {
            fprintf(stderr, "bench_simulate: %s on %s: %s\n", row->name, row->cluster,
                    error.message);
            _exit(1);
        }
        fwrite(text.data, 1, text.length, stdout);
        fflush(stdout);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 1;
    if (WIFSIGNALED(status))
        fprintf(stderr, "bench_simulate: %s on %s: signal %d\n", row->name, row->cluster,
                WTERMSIG(status));
    return status;
}

int main(int argc, char **argv)
{
    bool is_first = true;
    ty_engine_kind engine = TY_ENGINE_ANY;

    for (int e = TY_ENGINE_SIMGRID; argc > 4 && e <= TY_ENGINE_FLOW; e++)
        if (strcmp(argv[4], ty_engine_name((ty_engine_kind)e)) == 0)
            engine = (ty_engine_kind)e;
    printf("{\"schema\": \"trainyard.benchmark/1\", \"name\": \"simulate\", \"rows\": [\n");
    for (int i = 0; i < ROW_COUNT; i++) {
        /* The first argument selects rows whose name starts with it, the second those on a cluster
         * of that name, and the third, "yes" or "no", those that are folded or not. The fourth
         * names the engine. */
        if ((argc > 1 && strncmp(rows[i].name, argv[1], strlen(argv[1])) != 0) ||
            (argc > 2 && strcmp(rows[i].cluster, argv[2]) != 0) ||
            (argc > 3 && strcmp(rows[i].no_fold ? "no" : "yes", argv[3]) != 0))
            continue;
        if (!is_first)
            printf(",\n");
        is_first = false;
        if (run_apart(&rows[i], engine) != 0)
            return 1;
    }
    printf("]}\n");
    return 0;
}
