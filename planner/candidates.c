/* Which points of the plan space are worth a look, and a quick bound on each. */
#include "candidate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Micro-batches a step is cut into, beyond which bubbles shrink by less than overheads grow. */
#define MOST_MICRO_BATCHES_PER_STAGE 8

/* What the bound of one micro-batch size is made of. */
typedef struct size_costs {
    uint32_t micro_batches;
    double *layer_s;    /* [layers] forward + backward of one micro-batch */
    double *transfer_s; /* [layers + 1] activation and gradient across the cut before a layer */
} size_costs;

typedef struct enumeration {
    const search_question *q;
    const size_costs *costs; /* of the micro-batch size at hand */
    double *ring_bandwidth,
        *ring_latency; /* [devices + 1] by number of members; 0: not known yet */
    uint32_t stages;
    candidate *candidates;
    uint32_t count, capacity;
} enumeration;

static uint64_t parameter_bytes(const enumeration *e, uint32_t first, uint32_t count)
{
    return ty_workload_parameter_bytes(e->q->workload, first, count);
}

/* Seconds of one all-reduce among `members` neighbouring devices. */
static double all_reduce_s(enumeration *e, uint64_t bytes, uint32_t members)
{
    double seconds = 0;
    ty_instruction_cost cost;

    if (members < 2 || bytes == 0)
        return 0;
    if (e->q->profile != NULL &&
        ty_profile_collective(e->q->profile, TY_ALL_REDUCE, TY_RING, members, bytes, &seconds))
        return seconds;
    if (!(e->ring_bandwidth[members] > 0)) {
        uint32_t *devices = ty_alloc(members, sizeof *devices);
        if (devices == NULL)
            return INFINITY;
        for (uint32_t d = 0; d < members; d++)
            devices[d] = d;
        if (ty_cluster_ring(e->q->cluster, devices, members, &e->ring_bandwidth[members],
                            &e->ring_latency[members], NULL) != TY_OK)
            e->ring_bandwidth[members] = 1;
        ty_free(devices);
    }
    if (ty_collective_cost(TY_ALL_REDUCE, TY_RING, members, bytes, e->ring_bandwidth[members],
                           e->ring_latency[members], &cost, NULL) != TY_OK)
        return INFINITY;
    return cost.seconds;
}

static double exchange_s(void *context, uint32_t first, uint32_t count, uint32_t replicas)
{
    enumeration *e = context;
    double micro_batches = e->costs->micro_batches;

    return all_reduce_s(e, parameter_bytes(e, first, count), replicas) * replicas / micro_batches;
}

/* A first look at memory: parameters, gradients, optimizer state, and as many stashes as 1F1B
 * keeps. */
static bool fits(void *context, uint32_t first, uint32_t count, uint32_t replicas,
                 uint32_t stages_after)
{
    enumeration *e = context;
    const ty_workload *w = e->q->workload;
    uint32_t states = 2 + ty_optimizer_state_count(&w->optimizer);
    uint32_t micro_batch = e->q->global_batch / e->costs->micro_batches;
    double bytes = (double)parameter_bytes(e, first, count) * states;

    if (e->costs->micro_batches % replicas != 0)
        return false;
    bytes += (double)ty_workload_stash_bytes(w, first, count) * micro_batch * (stages_after + 1);
    return e->q->ignore_memory ||
           bytes <= (double)ty_cluster_device_type(e->q->cluster, 0)->memory_bytes;
}

/* ---- The quick bound --------------------------------------------------------------------- */

/* Slowest stage working without a pause, plus filling and draining the others, plus its exchange.
 */
static double bound(enumeration *e, const candidate *c)
{
    double slowest = 0, sum = 0, transfers = 0;

    for (uint32_t s = 0; s < c->stage_count; s++) {
        uint32_t first = c->first_layers[s];
        uint32_t end =
            s + 1 < c->stage_count ? c->first_layers[s + 1] : e->q->workload->layer_count;
        double one = 0, busy;
        for (uint32_t l = first; l < end; l++)
            one += e->costs->layer_s[l];
        busy = one * (c->micro_batches / c->replicas[s]);
        busy += all_reduce_s(e, parameter_bytes(e, first, end - first), c->replicas[s]) *
                (c->stage_count == 1 ? 0.5 : 1); /* about half of it hides behind backward */
        slowest = fmax(slowest, busy - one);
        sum += one;
        transfers += e->costs->transfer_s[first];
    }
    return slowest + sum + transfers;
}

static ty_status push(enumeration *e, const candidate *c)
{
    for (uint32_t i = 0; i < e->count; i++) {
        const candidate *o = &e->candidates[i];
        if (o->stage_count == c->stage_count && o->micro_batches == c->micro_batches &&
            o->schedule == c->schedule && o->bucket_bytes == c->bucket_bytes &&
            o->compression == c->compression &&
            memcmp(o->first_layers, c->first_layers, c->stage_count * sizeof(uint32_t)) == 0 &&
            memcmp(o->replicas, c->replicas, c->stage_count * sizeof(uint32_t)) == 0)
            return TY_OK;
    }
    if (e->count == e->capacity) {
        uint32_t capacity = e->capacity > 0 ? e->capacity * 2 : 64;
        candidate *more = ty_resize(e->candidates, capacity, sizeof *more);
        if (more == NULL)
            return TY_ENOMEM;
        e->candidates = more;
        e->capacity = capacity;
    }
    e->candidates[e->count] = *c;
    e->candidates[e->count].bound_s = bound(e, c);
    e->count++;
    return TY_OK;
}

/* ---- Buckets, compression, schedules of one division ------------------------------------- */

static bool is_replicated(const candidate *c)
{
    for (uint32_t s = 0; s < c->stage_count; s++)
        if (c->replicas[s] > 1)
            return true;
    return false;
}

/* Sizes tried: everything at once, PyTorch's 25 MiB, and finer ones for networks with fewer bytes
 * (facts: DDP's bucket_cap is 25 MiB with a first bucket of 1 MiB). */
static const uint64_t usual_bucket_bytes[] = {UINT64_MAX, 25u << 20, 4u << 20, 1u << 20,
                                              256u << 10};

static ty_status push_buckets(enumeration *e, candidate *c)
{
    const ty_plan_options *o = e->q->options;
    uint64_t parameters = parameter_bytes(e, 0, e->q->workload->layer_count);
    ty_status status = TY_OK;

    c->bucket_bytes = o->bucket_bytes > 0 ? o->bucket_bytes : UINT64_MAX;
    if (o->bucket_bytes > 0 || !is_replicated(c))
        return push(e, c);
    for (size_t i = 0; status == TY_OK && i < sizeof usual_bucket_bytes / sizeof(uint64_t); i++) {
        bool is_useful =
            usual_bucket_bytes[i] == UINT64_MAX ||
            (usual_bucket_bytes[i] < parameters && usual_bucket_bytes[i] * 64 > parameters);
        c->bucket_bytes = usual_bucket_bytes[i];
        if (is_useful)
            status = push(e, c);
    }
    return status;
}

static ty_status push_compressions(enumeration *e, candidate *c)
{
    const ty_plan_options *o = e->q->options;
    ty_status status = TY_OK;

    for (int k = 0; status == TY_OK && k < TY_COMPRESSION_COUNT; k++) {
        bool is_wanted = o->fix_compression ? k == (int)o->compression
                                            : k != TY_COMPRESSION_TOP_K || o->allow_lossy;
        if (!is_wanted || (k != TY_COMPRESSION_NONE && !is_replicated(c)))
            continue;
        c->compression = (ty_compression_kind)k;
        c->top_k_ratio = k == TY_COMPRESSION_TOP_K ? o->top_k_ratio : 0;
        status = push_buckets(e, c);
    }
    return status;
}

static ty_status push_schedules(enumeration *e, candidate *c)
{
    const ty_plan_options *o = e->q->options;
    ty_status status = TY_OK;

    for (int k = 0; status == TY_OK && k < TY_SCHEDULE_COUNT; k++) {
        /* With one stage, 1F1B is gradient accumulation with the smallest stash. */
        if (o->fix_schedule ? k != (int)o->schedule : c->stage_count == 1 && k != TY_ONE_F_ONE_B)
            continue;
        c->schedule = (ty_schedule)k;
        status = push_compressions(e, c);
    }
    return status;
}

/* ---- Divisions into stages --------------------------------------------------------------- */

static ty_status push_division(enumeration *e, const uint32_t *fixed_replicas, ty_error *error)
{
    const search_question *q = e->q;
    candidate c = {.stage_count = e->stages, .micro_batches = e->costs->micro_batches};
    double ignored;
    ty_error detail = {0};
    ty_partition_input input = {
        .layer_count = q->workload->layer_count,
        .layer_s = e->costs->layer_s,
        .transfer_s = e->costs->transfer_s,
        .cut_count = q->cut_count,
        .cuts = q->cuts,
        .devices = q->device_count,
        .stages = e->stages,
        .fixed_replicas = fixed_replicas,
        .exchange_s = exchange_s,
        .fits = fits,
        .context = e,
    };
    ty_status status = ty_partition(&input, c.first_layers, c.replicas, &ignored, &detail);

    if (status == TY_EINFEASIBLE)
        return TY_OK; /* no division of this kind; others may do */
    if (status != TY_OK)
        return ty_fail(error, status, "%s", detail.message);
    return push_schedules(e, &c);
}

/* "2,1" into numbers; the sum must be the device count. */
static ty_status parse_replicas(const search_question *q, uint32_t out[TY_MAX_STAGES],
                                uint32_t *count, ty_error *error)
{
    const char *text = q->options->replicas;
    uint64_t sum = 0;

    *count = 0;
    while (*text != '\0') {
        char *end;
        unsigned long value = strtoul(text, &end, 10);
        if (end == text || value < 1 || value > q->device_count || *count == TY_MAX_STAGES ||
            (*end != ',' && *end != '\0'))
            return ty_fail(error, TY_EINVAL,
                           "replicas: found '%s', expected numbers of devices as in 2,1",
                           q->options->replicas);
        out[(*count)++] = (uint32_t)value;
        sum += value;
        text = *end == ',' ? end + 1 : end;
    }
    if (sum != q->device_count)
        return ty_fail(error, TY_EINVAL, "replicas: '%s' needs %llu devices, the cluster has %u",
                       q->options->replicas, (unsigned long long)sum, q->device_count);
    return TY_OK;
}

static ty_status push_stage_count(enumeration *e, ty_error *error)
{
    const search_question *q = e->q;
    ty_status status = TY_OK;
    uint32_t replicas[TY_MAX_STAGES];

    if (q->options->replicas != NULL) {
        uint32_t count;
        TY_CHECK(parse_replicas(q, replicas, &count, error), status, done);
        return count == e->stages ? push_division(e, replicas, error) : TY_OK;
    }
    TY_CHECK(push_division(e, NULL, error), status, done);
    if (q->device_count % e->stages == 0 && e->stages > 1 && e->stages < q->device_count) {
        for (uint32_t s = 0; s < e->stages; s++)
            replicas[s] = q->device_count / e->stages;
        TY_CHECK(push_division(e, replicas, error), status, done);
    }
done:
    return status;
}

/* ---- Micro-batch sizes ------------------------------------------------------------------- */

static void size_costs_clear(size_costs *costs)
{
    ty_free(costs->layer_s);
    ty_free(costs->transfer_s);
}

static ty_status size_costs_make(const search_question *q, uint32_t micro_batches, size_costs *out,
                                 ty_error *error)
{
    ty_status status = TY_OK;
    const ty_workload *w = q->workload;
    uint32_t samples = q->global_batch / micro_batches;
    const ty_device_type *type = ty_cluster_device_type(q->cluster, 0);
    ty_path path = {0};
    double latency_s = 0, bandwidth = HUGE_VAL;

    *out = (size_costs){.micro_batches = micro_batches,
                        .layer_s = ty_alloc(w->layer_count, sizeof(double)),
                        .transfer_s = ty_alloc(w->layer_count + 1, sizeof(double))};
    if (out->layer_s == NULL || out->transfer_s == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory");
        goto done;
    }
    if (q->device_count > 1) {
        TY_CHECK(ty_cluster_path(q->cluster, 0, q->device_count - 1, &path, error), status, done);
        latency_s = path.latency_s;
        bandwidth = path.bandwidth_bytes_per_s;
        ty_path_clear(&path);
    }
    for (uint32_t l = 0; l < w->layer_count; l++) {
        double forward_s, backward_s;
        ty_provenance provenance;
        TY_CHECK(ty_layer_cost(w, l, samples, type, q->profile, &forward_s, &backward_s,
                               &provenance, error),
                 status, done);
        out->layer_s[l] = forward_s + backward_s;
        if (l > 0)
            out->transfer_s[l] =
                2 * (latency_s + (double)(ty_workload_cut_bytes(w, l) * samples) / bandwidth);
    }
done:
    return status;
}

/* Whether a step of the global batch may have that many micro-batches in `stages` stages. */
static bool is_sensible(const search_question *q, uint32_t stages, uint32_t micro_batches)
{
    uint32_t fixed = q->options->micro_batch_size;
    uint32_t replicas = q->device_count / stages > 0 ? q->device_count / stages : 1;

    if (fixed > 0)
        return q->global_batch / micro_batches == fixed;
    if (stages == 1) /* accumulation only where memory asks for it */
        return micro_batches % q->device_count == 0;
    return micro_batches >= replicas &&
           micro_batches <= replicas * stages * MOST_MICRO_BATCHES_PER_STAGE;
}

static bool is_stage_count(const search_question *q, uint32_t stages)
{
    if (q->options->pipeline_stages > 0)
        return stages == q->options->pipeline_stages;
    if (q->options->replicas != NULL || stages <= 8)
        return true;
    return stages % 4 == 0 || stages == q->device_count;
}

static ty_status enumerate_size(enumeration *e, uint32_t micro_batches, ty_error *error)
{
    const search_question *q = e->q;
    ty_status status = TY_OK;
    size_costs costs = {0};
    uint32_t most = q->cut_count + 1 < q->device_count ? q->cut_count + 1 : q->device_count;
    bool is_made = false;

    if (most > TY_MAX_STAGES)
        most = TY_MAX_STAGES;
    for (uint32_t stages = 1; stages <= most; stages++) {
        if (!is_stage_count(q, stages) || !is_sensible(q, stages, micro_batches))
            continue;
        if (!is_made)
            TY_CHECK(size_costs_make(q, micro_batches, &costs, error), status, done);
        is_made = true;
        e->costs = &costs;
        e->stages = stages;
        TY_CHECK(push_stage_count(e, error), status, done);
    }
done:
    size_costs_clear(&costs);
    return status;
}

ty_status ty_candidates_enumerate(const search_question *q, candidate **out, uint32_t *count,
                                  ty_error *error)
{
    ty_status status = TY_OK;
    enumeration e = {.q = q};

    e.ring_bandwidth = ty_alloc(q->device_count + 1, sizeof(double));
    e.ring_latency = ty_alloc(q->device_count + 1, sizeof(double));
    if (e.ring_bandwidth == NULL || e.ring_latency == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory");
        goto done;
    }
    for (uint32_t m = 1; m <= q->global_batch; m++) {
        if (q->global_batch % m != 0)
            continue;
        if (q->options->should_stop != NULL && e.count > 0 &&
            q->options->should_stop(q->options->stop_context))
            break;
        status = enumerate_size(&e, m, error);
        if (status == TY_ENOMEM)
            ty_fail(error, TY_ENOMEM, "out of memory");
        if (status != TY_OK)
            goto done;
    }
    *out = e.candidates;
    *count = e.count;
    e.candidates = NULL;
done:
    ty_free(e.candidates);
    ty_free(e.ring_bandwidth);
    ty_free(e.ring_latency);
    return status;
}
