/* Programs, plans and platforms, valid and broken, for the simulator: the result is a valid
 * timeline or a reason, and never a crash of SimGrid or a hang. The bytes determine a cluster, a
 * plan on it, a pipeline program with some mistakes, costs and options. */
#include "fuzz.h"
#include "ty_base.h"
#include "ty_simulate.h"

#include <math.h>
#include <string.h>

enum { MOST_STAGES = 4, MOST_REPLICAS = 8, MOST_BUCKETS = 6, MOST_WAITS = 4 };

/* Reads bytes in order, zeros after the end. */
typedef struct source {
    const uint8_t *bytes;
    size_t length, at;
} source;

static uint32_t take(source *from, uint32_t limit)
{
    const uint32_t byte = from->at < from->length ? from->bytes[from->at++] : 0;
    return limit == 0 ? byte : byte % limit;
}

/* True once in `often` calls. */
static bool seldom(source *from, uint32_t often)
{
    return take(from, 0) >= 256 - 256 / often;
}

typedef struct subject {
    ty_cluster *cluster;
    ty_workload workload;
    ty_plan plan;
    ty_plan_stage stages[MOST_STAGES];
    ty_bucket buckets[MOST_BUCKETS];
    ty_program *program;
    ty_costs *costs;
    double *slowdowns;
    ty_simulate_options options;
} subject;

/* ---- Cluster and plan ---------------------------------------------------------------------- */

static ty_cluster *make_cluster(source *from)
{
    static const char *const texts[] = {
        "2x dgx-a100",
        "leaf:2 host:4 gpu:2 @v100-sxm2-16gb nvlink2 edr100 oversub:4",
        "1x dgx1-v100",
        "8x p100-server",
        "torus:4x4 @tpu-v4 ici-v4 host:4",
        "site:2 [2x p100-server] wan10",
        "4x xeon-server",
        "pod:2 leaf:2 host:2 gpu:4 @h100-sxm nvlink4 ndr400 oversub:2",
        "1x dgx-a100 + 2x dgx1-v100",
        "leaf:1 host:16 gpu:1 @v100-sxm2-16gb nvlink2 edr100",
    };
    const uint32_t which = take(from, sizeof texts / sizeof *texts);
    ty_cluster *cluster = NULL, *impaired = NULL;
    ty_error error = {0};

    MUST(ty_cluster_open(texts[which], NULL, &cluster, &error) == TY_OK);
    if (!seldom(from, 4))
        return cluster;
    const uint32_t links = ty_cluster_link_count(cluster);
    double *factors = ty_alloc(links, sizeof *factors);
    MUST(factors != NULL);
    for (uint32_t l = 0; l < links; l++)
        factors[l] = 1.0;
    for (uint32_t i = take(from, 4); i > 0; i--)
        factors[(take(from, 0) * 256 + take(from, 0)) % links] = take(from, 8) / 8.0;
    const ty_status status = ty_cluster_impaired(cluster, factors, &impaired, &error);
    MUST(status == TY_OK || (status == TY_EINFEASIBLE && error.message[0] != '\0'));
    ty_free(factors);
    if (status != TY_OK)
        return cluster;
    ty_cluster_free(cluster);
    return impaired;
}

static void make_plan(source *from, subject *s)
{
    static const uint32_t counts[] = {1, 2, 4, 8};
    const uint32_t devices = ty_cluster_device_count(s->cluster);
    const uint32_t same = counts[take(from, 4)];
    const bool is_even = take(from, 3) != 0;
    uint32_t next = 0, stride = 1 + take(from, 3);

    s->workload.name = "fuzz";
    s->workload.local_steps = seldom(from, 16) ? 4 : 0;
    s->plan = (ty_plan){.workload = &s->workload,
                        .cluster_name = "fuzz",
                        .strategy = "fuzz",
                        .micro_batches = 8,
                        .micro_batch_size = 1,
                        .global_batch = 8,
                        .stage_count = 1 + take(from, MOST_STAGES),
                        .stages = s->stages,
                        .buckets = s->buckets,
                        .tensor_parallel = counts[take(from, 3)],
                        .zero = seldom(from, 4) ? 1 + take(from, 3) : 0};
    if (stride == 2) { /* context- or expert-parallel ranks */
        s->plan.context_parallel = s->plan.tensor_parallel;
        s->plan.tensor_parallel = 0;
    } else if (stride == 3) {
        s->plan.expert_parallel = s->plan.tensor_parallel;
        s->plan.tensor_parallel = is_even ? 2 : 0;
    }
    const uint32_t width = ty_plan_replica_ranks(&s->plan);
    if (s->plan.stage_count % 2 == 0 && seldom(from, 4))
        s->plan.virtual_stages = 2;
    for (uint32_t i = 0; i < s->plan.stage_count; i++) {
        ty_plan_stage *stage = &s->stages[i];
        *stage = (ty_plan_stage){
            .first_layer = i,
            .layer_count = 1,
            .replicas = is_even || s->plan.virtual_stages > 1 ? same : counts[take(from, 4)]};
        stage->devices = ty_alloc((size_t)stage->replicas * width, sizeof(uint32_t));
        MUST(stage->devices != NULL);
        if (i >= ty_plan_pipeline_size(&s->plan)) { /* the same as the pipeline rank's first
                                                     * stage */
            memcpy(stage->devices, s->stages[i % ty_plan_pipeline_size(&s->plan)].devices,
                   (size_t)stage->replicas * width * sizeof(uint32_t));
            continue;
        }
        for (uint32_t d = 0; d < stage->replicas * width; d++, next += stride)
            stage->devices[d] = seldom(from, 64) ? next : next % devices;
    }
    for (uint32_t b = take(from, MOST_BUCKETS + 1); b > 0; b--)
        s->buckets[s->plan.bucket_count++] = (ty_bucket){
            .stage = take(from, s->plan.stage_count),
            .layer_count = 1,
            .tied_stage = seldom(from, 6) ? take(from, s->plan.stage_count + 1) : TY_NO_STAGE,
            .of_experts = s->plan.expert_parallel > 1 && b % 2 == 0,
            .gradient_bytes = 4096,
            .algorithm = (ty_algorithm)take(from, TY_ALGORITHM_COUNT),
            .compression.kind =
                (ty_compression_kind)(seldom(from, 3) ? take(from, TY_COMPRESSION_COUNT)
                                                      : TY_COMPRESSION_NONE),
            .compression.ratio = 0.01,
            .compression.rank = 2,
        };
}

/* ---- Program ------------------------------------------------------------------------------- */

/* A mistake in one of a program's instructions. */
static void slip(source *from, ty_instruction *in)
{
    const uint32_t number = seldom(from, 8) ? UINT32_MAX - take(from, 2) : take(from, 12);

    switch (take(from, 9)) {
    case 0:
        in->op = (ty_op)take(from, TY_OP_COUNT + 1);
        break;
    case 1:
        in->stream = (ty_stream)take(from, TY_STREAM_COUNT + 1);
        break;
    case 2:
        in->stage = number;
        break;
    case 3:
        in->micro_batch = number;
        break;
    case 4:
        in->bucket = number;
        break;
    case 5:
        in->phase = number;
        break;
    case 6:
        in->peer_stage = number;
        break;
    case 7:
        in->direction = (ty_direction)take(from, 4);
        break;
    default:
        in->lead = number;
    }
}

static uint32_t append(source *from, subject *s, uint32_t pipeline_rank, ty_instruction in,
                       const uint32_t *waits, uint32_t wait_count)
{
    uint32_t index = TY_NO_INSTRUCTION;
    ty_error error = {0};

    if (seldom(from, 64)) /* lost */
        return TY_NO_INSTRUCTION;
    if (seldom(from, 64))
        slip(from, &in);
    if (ty_program_append(s->program, pipeline_rank, &in, waits, wait_count, &index, &error) !=
        TY_OK)
        return TY_NO_INSTRUCTION;
    if (index != TY_NO_INSTRUCTION && seldom(from, 128)) {
        ty_stage_program *code = &s->program->stages[pipeline_rank];
        const uint32_t other = take(from, code->instruction_count);
        const ty_instruction kept = code->instructions[index];
        code->instructions[index] = code->instructions[other];
        code->instructions[other] = kept;
    }
    return index;
}

static ty_instruction transfer_of(ty_op op, ty_direction direction, uint32_t stage, uint32_t peer,
                                  uint32_t micro_batch)
{
    ty_instruction in = ty_instruction_of(op);
    in.direction = direction;
    in.stage = stage;
    in.peer_stage = peer;
    in.micro_batch = micro_batch;
    return in;
}

/* A stage's receives, passes and sends of one direction. @return its last pass */
static uint32_t add_passes(source *from, subject *s, uint32_t stage, bool is_backward)
{
    const uint32_t pipeline_rank = stage % ty_plan_pipeline_size(&s->plan);
    const uint32_t before = is_backward ? stage + 1 : stage - 1;
    const uint32_t behind = is_backward ? stage - 1 : stage + 1;
    const ty_direction direction = is_backward ? TY_GRADIENT : TY_ACTIVATION;
    uint32_t last = TY_NO_INSTRUCTION;

    for (uint32_t k = 0; k < s->plan.micro_batches / s->stages[stage].replicas; k++) {
        ty_instruction pass = ty_instruction_of(is_backward ? TY_OP_BACKWARD : TY_OP_FORWARD);
        last = TY_NO_INSTRUCTION;
        pass.micro_batch = k;
        pass.stage = stage;
        if (before < s->plan.stage_count)
            last = append(from, s, pipeline_rank,
                          transfer_of(TY_OP_RECEIVE, direction, stage, before, k), NULL, 0);
        last = append(from, s, pipeline_rank, pass, &last, 1);
        if (behind < s->plan.stage_count)
            (void)append(from, s, pipeline_rank,
                         transfer_of(TY_OP_SEND, direction, stage, behind, k), &last, 1);
    }
    return last;
}

static void add_exchange(source *from, subject *s, uint32_t pipeline_rank, uint32_t b,
                         uint32_t last)
{
    const ty_bucket *bucket = &s->buckets[b];

    if (ty_bucket_member_count(&s->plan, bucket) < 2)
        return;
    for (uint32_t phase = 0; phase < ty_compression_phases(&bucket->compression); phase++) {
        ty_instruction exchange = ty_instruction_of(TY_OP_COLLECTIVE);
        exchange.bucket = b;
        exchange.phase = phase;
        (void)append(from, s, pipeline_rank, exchange, &last, 1);
    }
    if (ty_bucket_is_sharded(&s->plan, bucket)) {
        ty_instruction gather = ty_instruction_of(TY_OP_GATHER);
        gather.bucket = b;
        (void)append(from, s, pipeline_rank, gather, NULL, 0);
    }
}

static void make_program(source *from, subject *s)
{
    const uint32_t pipeline_size = ty_plan_pipeline_size(&s->plan);

    MUST((s->program = ty_alloc(1, sizeof *s->program)) != NULL);
    MUST((s->program->stages = ty_alloc(pipeline_size, sizeof *s->program->stages)) != NULL);
    s->program->stage_count = pipeline_size;
    for (uint32_t stage = 0; stage < s->plan.stage_count; stage++)
        (void)add_passes(from, s, stage, false);
    for (uint32_t stage = s->plan.stage_count; stage-- > 0;) {
        const uint32_t last = add_passes(from, s, stage, true);
        for (uint32_t b = 0; b < s->plan.bucket_count; b++)
            if (s->buckets[b].stage == stage || s->buckets[b].tied_stage == stage)
                add_exchange(from, s, stage % pipeline_size, b, last);
    }
}

/* ---- Costs and options --------------------------------------------------------------------- */

static double figure(source *from, double usual)
{
    static const double odd[] = {0.0, -1.0, NAN, HUGE_VAL, 1e300, 1e-300, 1e-12, 1e18};
    if (seldom(from, 200))
        return odd[take(from, sizeof odd / sizeof *odd)];
    return usual * take(from, 16);
}

static void make_costs(source *from, subject *s)
{
    ty_error error = {0};

    MUST(ty_costs_new(&s->plan, s->program, &s->costs, &error) == TY_OK);
    for (uint32_t p = 0; p < s->program->stage_count; p++)
        for (uint32_t i = 0; i < s->costs->instruction_counts[p]; i++) {
            ty_instruction_cost *cost = &s->costs->instructions[p][i];
            *cost = (ty_instruction_cost){.seconds = figure(from, 1e-4),
                                          .latency_s = figure(from, 1e-6),
                                          .edge_bytes = figure(from, 1e5),
                                          .core_share = take(from, 2)};
            if (seldom(from, 8))
                cost->rate_limit_bytes_per_s = figure(from, 1e9);
            if (seldom(from, 8))
                cost->across_share = take(from, 5) / 4.0;
        }
    s->costs->host_count = ty_cluster_host_count(s->cluster);
    MUST((s->costs->host_cores = ty_alloc(s->costs->host_count, sizeof(double))) != NULL);
    for (uint32_t h = 0; h < s->costs->host_count; h++) {
        const uint32_t cores = ty_cluster_host_cores(s->cluster, h);
        s->costs->host_cores[h] = cores > 0 && take(from, 2) == 0 ? (double)cores : HUGE_VAL;
    }
    for (uint32_t r = 0; r < s->costs->stage_replica_count; r++) {
        const uint32_t device = ty_plan_device_of_replica(&s->plan, r);
        s->costs->replica_host[r] = device < ty_cluster_device_count(s->cluster)
                                        ? ty_cluster_device_host(s->cluster, device)
                                        : 0;
    }
}

static void make_options(source *from, subject *s)
{
    s->options = ty_simulate_options_default();
    s->options.steps = 1 + take(from, 3);
    s->options.resolution = seldom(from, 3) ? TY_CHUNK : TY_FLOW;
    s->options.no_fold = seldom(from, 3);
    s->options.jitter = seldom(from, 8) ? take(from, 10) / 10.0 : 0.0;
    s->options.spread = seldom(from, 8) ? take(from, 10) / 10.0 : 0.0;
    s->options.time_limit_s = 20.0;
    if (!seldom(from, 4))
        return;
    const uint32_t devices = ty_plan_rank_count(&s->plan);
    MUST((s->slowdowns = ty_alloc(devices, sizeof *s->slowdowns)) != NULL);
    for (uint32_t r = 0; r < devices; r++)
        s->slowdowns[r] = seldom(from, 100) ? figure(from, 1.0) : 1.0 + take(from, 4) / 4.0;
    s->options.slowdowns = s->slowdowns;
}

/* ---- Invariants ------------------------------------------------------------------------ */

static void check_timeline(const subject *s, const ty_timeline *timeline)
{
    MUST(timeline->event_count == ty_program_event_count(&s->plan, s->program) * s->options.steps);
    for (uint64_t e = 0; e < timeline->event_count; e++) {
        const ty_event *event = &timeline->events[e];
        MUST(isfinite(event->start_s) && isfinite(event->end_s));
        MUST(event->start_s >= 0 && event->end_s >= event->start_s);
    }
}

static void simulate(const subject *s)
{
    ty_timeline *timeline = NULL;
    ty_error error = {0};
    const ty_status status =
        ty_simulate(&s->plan, s->program, s->costs, s->cluster, &s->options, &timeline, &error);

    MUST((status == TY_OK) == (timeline != NULL));
    if (status == TY_OK) {
        check_timeline(s, timeline);
        ty_link_load *loads = NULL;
        uint32_t count = 0;
        MUST(ty_link_loads(&s->plan, s->program, s->costs, s->cluster, &loads, &count, &error) ==
             TY_OK);
        ty_free(loads);
    } else {
        /* Only a program that its check refuses may leave a stage replica waiting. */
        const bool is_stuck = status == TY_EBACKEND &&
                              ty_program_check(&s->plan, s->program, "program", NULL) != TY_OK;

        if (status == TY_EBACKEND && !is_stuck)
            fprintf(stderr, "%s: %s\n", ty_cluster_name(s->cluster), error.message);
        MUST(status == TY_EINVAL || status == TY_EUNSUPPORTED || status == TY_ELIMIT || is_stuck);
        MUST(error.message[0] != '\0');
    }
    ty_timeline_free(timeline);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    source from = {bytes, length, 0};
    subject s = {0};

    s.cluster = make_cluster(&from);
    make_plan(&from, &s);
    make_program(&from, &s);
    make_costs(&from, &s);
    make_options(&from, &s);
    simulate(&s);
    ty_free(s.slowdowns);
    ty_costs_free(s.costs);
    ty_program_free(s.program);
    for (uint32_t i = 0; i < s.plan.stage_count; i++)
        ty_free(s.stages[i].devices);
    ty_cluster_free(s.cluster);
    return 0;
}
