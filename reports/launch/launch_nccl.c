/* NCCL's choices that the plan assumes, by size: the table of NCCL's example tuner plug-in, and the
 * variables that load it. Source: NVIDIA/nccl 2.30 plugins/tuner/example, README.md and plugin.c. A
 * row has collective, bytes from and to, algorithm, protocol, channels, and nodes and ranks of the
 * communicator. The first matching row counts; without one the plug-in prefers rings. Bytes are as
 * NCCL counts them: of an all-gather the entire result. */
#include "launch.h"
#include "ty_collective_model.h"

#include <ctype.h>
#include <string.h>

#define TARGET "nccl-tuner"
enum { LEAST_BITS = 10, MOST_BITS = 36 }; /* range of message sizes, as powers of two */

/* A collective of the plan. */
typedef struct use {
    ty_collective_kind kind;
    ty_algorithm algorithm;
    uint64_t bytes; /* as in ty_collective_choose */
} use;

/* The shape of a communicator, and its collectives. */
typedef struct shape {
    ty_communicator communicator;
    ty_collective_table table;
    ty_nccl_graphs graphs;
    use *uses;
    uint32_t count;
} shape;

typedef struct shapes {
    shape *shapes;
    uint32_t count;
} shapes;

static const char *const kinds[TY_COLLECTIVE_COUNT] = {[TY_ALL_REDUCE] = "allreduce",
                                                       [TY_ALL_GATHER] = "allgather",
                                                       [TY_REDUCE_SCATTER] = "reducescatter",
                                                       [TY_BROADCAST] = "broadcast",
                                                       [TY_REDUCE] = "reduce"};

static bool is_nccl(ty_algorithm algorithm)
{
    return algorithm == TY_RING || algorithm == TY_TREE || algorithm == TY_AUTOMATIC;
}

/* ---- Collectives of the plan ------------------------------------------------------------- */

/* Finds or adds the shape of a communicator. */
static ty_status shape_of(const launch *l, shapes *s, const uint32_t *devices, uint32_t count,
                          shape **out, ty_error *error)
{
    ty_communicator communicator;
    shape *grown;
    ty_status status = ty_communicator_of(l->input->cluster, devices, count, &communicator, error);

    if (status == TY_EUNSUPPORTED)
        return ty_launch_refuse(error, TARGET,
                                "NCCL runs on NVIDIA's GPUs, and the plan has others");
    if (status != TY_OK)
        return status;
    for (uint32_t i = 0; i < s->count; i++)
        if (s->shapes[i].communicator.ranks == communicator.ranks &&
            s->shapes[i].communicator.nodes == communicator.nodes) {
            *out = &s->shapes[i];
            return TY_OK;
        }
    grown = ty_resize(s->shapes, s->count + 1, sizeof *grown);
    TY_TRY(ty_check_memory(grown != NULL, error));
    s->shapes = grown;
    *out = &grown[s->count];
    **out = (shape){.communicator = communicator};
    TY_TRY(ty_collective_table_make(&communicator, NULL, &(*out)->table, error));
    ty_nccl_graphs_find(&communicator, &(*out)->graphs);
    s->count++;
    return TY_OK;
}

static ty_status add_use(shape *s, use added, ty_error *error)
{
    use *grown;

    if (kinds[added.kind] == NULL || added.bytes == 0 || !is_nccl(added.algorithm))
        return TY_OK;
    for (uint32_t i = 0; i < s->count; i++)
        if (s->uses[i].kind == added.kind && s->uses[i].algorithm == added.algorithm &&
            s->uses[i].bytes == added.bytes)
            return TY_OK;
    grown = ty_resize(s->uses, s->count + 1, sizeof *grown);
    TY_TRY(ty_check_memory(grown != NULL, error));
    s->uses = grown;
    s->uses[s->count++] = added;
    return TY_OK;
}

static ty_status add_buckets(const launch *l, shapes *s, uint32_t *devices, ty_error *error)
{
    const ty_plan *plan = l->plan;

    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_bucket *bucket = &plan->buckets[b];
        const uint32_t count = ty_bucket_device_count(plan, bucket);
        shape *own;
        if (count < 2 || !is_nccl(bucket->algorithm))
            continue;
        ty_bucket_devices(plan, bucket, 0, devices);
        TY_TRY(shape_of(l, s, devices, count, &own, error));
        for (uint32_t phase = 0; phase < ty_compression_phases(&bucket->compression); phase++)
            TY_TRY(add_use(own,
                           (use){ty_plan_exchange_kind(plan, bucket, phase), bucket->algorithm,
                                 ty_plan_exchange_bytes(plan, bucket, phase)},
                           error));
        /* An all-gather of its weights: each rank has a shard. */
        if (ty_bucket_is_sharded(plan, bucket))
            TY_TRY(add_use(own,
                           (use){TY_ALL_GATHER, bucket->algorithm,
                                 bucket->gradient_bytes / TY_GRADIENT_ELEMENT_BYTES *
                                     plan->workload->element_bytes / count},
                           error));
    }
    return TY_OK;
}

static ty_status add_parallel(const launch *l, shapes *s, uint32_t *devices, ty_error *error)
{
    const ty_plan *plan = l->plan;

    for (uint32_t layer = 0; layer < plan->workload->layer_count; layer++) {
        const uint32_t rank = ty_plan_first_replica(plan, ty_plan_stage_of_layer(plan, layer) %
                                                              ty_plan_pipeline_size(plan));
        for (int way = 0; way < 2; way++) {
            ty_inner_collective inner[TY_MAX_INNER_COLLECTIVES];
            const uint32_t count = ty_layer_inner_collectives(plan, layer, way == 1, inner);
            for (uint32_t c = 0; c < count; c++) {
                const uint32_t ranks = ty_plan_parallel_size(plan, inner[c].among);
                shape *own;
                for (uint32_t n = 0; n < ranks; n++)
                    devices[n] = ty_plan_device_of_replica_rank(
                        plan, rank, ty_plan_rank_along(plan, inner[c].among, 0, n));
                TY_TRY(shape_of(l, s, devices, ranks, &own, error));
                TY_TRY(add_use(own, (use){inner[c].kind, TY_AUTOMATIC, inner[c].bytes}, error));
            }
        }
    }
    return TY_OK;
}

/* ---- Rows -------------------------------------------------------------------------------- */

/* Algorithm of the collective with the nearest size, as a ratio. */
static ty_algorithm algorithm_at(const shape *s, ty_collective_kind kind, uint64_t bytes)
{
    ty_algorithm algorithm = TY_AUTOMATIC;
    double nearest = 0;

    for (uint32_t i = 0; i < s->count; i++) {
        const double a = (double)s->uses[i].bytes, b = (double)bytes, ratio = a < b ? a / b : b / a;
        if (s->uses[i].kind != kind || ratio <= nearest)
            continue;
        nearest = ratio;
        algorithm = s->uses[i].algorithm;
    }
    return algorithm;
}

static ty_collective_choice choice_at(const shape *s, ty_collective_kind kind, uint64_t bytes)
{
    const ty_algorithm algorithm = algorithm_at(s, kind, bytes);

    if (algorithm == TY_AUTOMATIC)
        return ty_collective_choose(&s->table, kind, bytes);
    return ty_collective_choose_by(&s->table, kind,
                                   algorithm == TY_RING ? TY_NCCL_RING : TY_NCCL_TREE, bytes);
}

static bool is_same(ty_collective_choice a, ty_collective_choice b)
{
    return a.algorithm == b.algorithm && a.protocol == b.protocol;
}

/* Channels that the prediction assumes; NCCL chooses fewer for small messages. */
static int channels_of(const shape *s, ty_collective_choice choice)
{
    const ty_nccl_graph *graph =
        choice.algorithm == TY_NCCL_RING   ? &s->graphs.ring
        : choice.algorithm == TY_NCCL_TREE ? &s->graphs.tree
        : choice.algorithm == TY_NCCL_NVLS || choice.algorithm == TY_NCCL_NVLS_TREE
            ? &s->graphs.nvls
            : NULL;

    return graph == NULL || graph->channels == 0 || choice.protocol == TY_NCCL_LL
               ? -1
               : (int)graph->channels;
}

static void put_lower(ty_text *text, const char *name)
{
    for (; *name != '\0'; name++) {
        const char low = (char)tolower((unsigned char)*name);
        ty_text_append(text, &low, 1);
    }
}

/* The plug-in's name: nvls_tree for "NVLS_TREE", collnet_direct for "CollNetDirect". */
static void put_algorithm(ty_text *text, ty_nccl_algorithm algorithm)
{
    static const char *const names[TY_NCCL_ALGORITHM_COUNT] = {
        [TY_NCCL_TREE] = "tree",
        [TY_NCCL_RING] = "ring",
        [TY_NCCL_COLLNET_DIRECT] = "collnet_direct",
        [TY_NCCL_COLLNET_CHAIN] = "collnet_chain",
        [TY_NCCL_NVLS] = "nvls",
        [TY_NCCL_NVLS_TREE] = "nvls_tree",
        [TY_NCCL_PAT] = "pat"};

    ty_text_add(text, names[algorithm]);
}

/* Writes the rows of one collective; each ends where another choice is better. */
static void put_rows(const shape *s, ty_collective_kind kind, ty_text *text)
{
    const uint64_t count = kind == TY_ALL_GATHER ? s->communicator.ranks : 1;
    uint64_t from = 0, low = (uint64_t)1 << LEAST_BITS;
    ty_collective_choice choice = choice_at(s, kind, low);

    for (int bits = LEAST_BITS; bits <= MOST_BITS; bits++) {
        uint64_t high = (uint64_t)1 << bits;
        const ty_collective_choice next = choice_at(s, kind, high);
        const bool is_last = bits == MOST_BITS;
        if (is_same(choice, next) && !is_last) {
            low = high;
            continue;
        }
        while (!is_last && high - low > 1) {
            const uint64_t middle = low + (high - low) / 2;
            if (is_same(choice_at(s, kind, middle), choice))
                low = middle;
            else
                high = middle;
        }
        ty_text_addf(text, "%s,%llu,", kinds[kind], (unsigned long long)from);
        ty_text_addf(text, "%llu,",
                     is_last ? (unsigned long long)UINT64_MAX : (unsigned long long)(low * count));
        put_algorithm(text, choice.algorithm);
        ty_text_add(text, ",");
        put_lower(text, ty_nccl_protocol_name(choice.protocol));
        ty_text_addf(text, ",%d,%u,%u,-1,-1\n", channels_of(s, choice), s->communicator.nodes,
                     s->communicator.ranks);
        from = low * count + 1;
        low = high;
        choice = choice_at(s, kind, high);
    }
}

static uint32_t write_rows(const shapes *s, ty_text *text)
{
    uint32_t written = 0;

    for (uint32_t i = 0; i < s->count; i++)
        for (int kind = 0; kind < TY_COLLECTIVE_COUNT; kind++) {
            bool is_used = false;
            for (uint32_t u = 0; u < s->shapes[i].count; u++)
                is_used |= (int)s->shapes[i].uses[u].kind == kind;
            if (is_used)
                put_rows(&s->shapes[i], (ty_collective_kind)kind, text);
            written += is_used;
        }
    return written;
}

ty_status ty_launch_nccl(launch *l, ty_error *error)
{
    ty_status status = TY_OK;
    shapes s = {0};
    ty_text table = {0};
    uint32_t *devices = ty_alloc(l->rank_count, sizeof *devices);

    TY_CHECK(ty_check_memory(devices != NULL, error), status, cleanup);
    TY_CHECK(add_buckets(l, &s, devices, error), status, cleanup);
    TY_CHECK(add_parallel(l, &s, devices, error), status, cleanup);
    if (write_rows(&s, &table) == 0) {
        status =
            ty_launch_refuse(error, TARGET, "the plan has no collective that NCCL chooses for");
        goto cleanup;
    }
    ty_launch_put_taken(&l->values, "nccl_rows", &table);

cleanup:
    for (uint32_t i = 0; i < s.count; i++)
        ty_free(s.shapes[i].uses);
    ty_free(s.shapes);
    ty_free(devices);
    ty_text_clear(&table);
    return status;
}
