/* Tables sharded over expert-parallel ranks: see cpu_tables.h. Samples of all ranks are in the
 * order of the ranks, which is their order in the micro-batch, so that sums have the same order as
 * on one rank. */
#include "cpu_tables.h"

#include <string.h>

/* This rank's shard of a bag. */
typedef struct bag {
    const stage_node *node;
    uint64_t indices, features;     /* of a sample; of a row */
    uint64_t index, number;         /* its offset in all bags' indices and in their vectors */
    uint32_t owner;                 /* rank that has all of it; TY_NO_LAYER: each has a shard */
    uint64_t own_index, own_number; /* its offset in the indices and vectors of the owner, or of
                                       each rank */
    uint64_t first_row, rows;       /* of the table on this rank */
    uint64_t columns;               /* of each of them */
    float share;
} bag;

typedef struct tables {
    ty_table_shard shard;
    uint64_t samples, ranks, rank;       /* samples: of this rank */
    uint64_t indices, numbers;           /* of a sample, of all bags */
    uint64_t *own_indices, *own_numbers; /* [ranks]: of each rank's shards */
    uint32_t count;
    bag *bags; /* [count] */
} tables;

/* The first bag's state: vectors that this rank computes for the samples of all ranks, or their
 * gradients, [all samples][own numbers], and the vectors of its own samples, by rank. Vectors that
 * are summed over ranks need no second buffer. */
typedef struct rooms {
    float *made, *taken;
    tables t;
} rooms;

static bool is_bag(const ty_stage_device *stage, const stage_node *node)
{
    return node->kind == stage->backend->kinds[TY_LAYER_EMBEDDING_BAG];
}

bool cpu_tables_are_divided(const ty_stage_device *stage)
{
    return ep_size_of(&stage->options) > 1 && stage->options.parallel.tables != TY_TABLES_WHOLE;
}

static const stage_node *first_bag(const ty_stage_device *stage)
{
    const stage_node *node = stage->nodes;

    while (!is_bag(stage, node))
        node++;
    return node;
}

static uint64_t all_samples(const tables *t)
{
    return t->samples * t->ranks;
}

/* Requires the bag's `index` and `number`. */
static void bag_place(const ty_stage_device *stage, tables *t, uint32_t layer, bag *b)
{
    const uint64_t *a = stage->options.workload->layers[layer].attributes;
    const shard_range rows =
        shard_range_of(a[TY_VOCABULARY], (uint32_t)t->ranks, (uint32_t)t->rank);

    *b = (bag){.indices = a[TY_ROWS],
               .features = a[TY_FEATURES],
               .index = t->indices,
               .number = t->numbers,
               .owner = ep_rank_of_table(&stage->options, layer),
               .rows = a[TY_VOCABULARY],
               .columns = a[TY_FEATURES],
               .share = a[TY_IS_AVERAGE] != 0 ? 1.0f / (float)a[TY_ROWS] : 1.0f};
    if (t->shard == TY_TABLES_ROW) {
        b->first_row = rows.first;
        b->rows = rows.count;
    } else if (t->shard == TY_TABLES_COLUMN) {
        b->columns /= t->ranks;
    }
    for (uint32_t l = 0; l < t->ranks; l++) {
        if (b->owner != TY_NO_LAYER && b->owner != l)
            continue;
        b->own_index = t->own_indices[l];
        b->own_number = t->own_numbers[l];
        t->own_indices[l] += b->indices;
        t->own_numbers[l] += b->columns;
    }
    t->indices += b->indices;
    t->numbers += b->features;
}

static bool tables_find(ty_stage_device *stage, tables *t)
{
    const ty_stage_options *options = &stage->options;
    const ty_layer *layers = &options->workload->layers[options->first_layer];
    const uint32_t ranks = ep_size_of(options);
    uint32_t count = 0;

    for (uint32_t l = 0; l < options->layer_count; l++)
        count += ty_layer_is_bag(&layers[l]);
    *t = (tables){.shard = options->parallel.tables,
                  .samples = stage_batch(stage),
                  .ranks = ranks,
                  .rank = options->parallel.ep_rank,
                  .own_indices = cpu_buffer(stage, ranks * sizeof *t->own_indices),
                  .own_numbers = cpu_buffer(stage, ranks * sizeof *t->own_numbers),
                  .bags = cpu_buffer(stage, count * sizeof *t->bags)};
    if (t->own_indices == NULL || t->own_numbers == NULL || t->bags == NULL)
        return false;
    for (uint32_t l = 0; l < options->layer_count; l++)
        if (ty_layer_is_bag(&layers[l]))
            bag_place(stage, t, options->first_layer + l, &t->bags[t->count++]);
    return true;
}

static uint64_t kept_indices(const tables *t)
{
    return all_samples(t) * t->own_indices[t->rank];
}

/* If backward has two parts: the gradients that the second one adds up. */
static float *kept_gradients(const tables *t, float *kept)
{
    return kept + kept_indices(t);
}

ty_status cpu_tables_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    rooms *r;
    const tables *t;
    uint64_t made;

    if (node != first_bag(stage))
        return TY_OK;
    r = cpu_buffer(stage, sizeof *r);
    if (r == NULL || !tables_find(stage, &r->t))
        return ty_fail(error, TY_ENOMEM, "out of memory for tables");
    t = &r->t;
    made = all_samples(t) * t->own_numbers[t->rank];
    r->made = cpu_buffer(stage, made * sizeof *r->made);
    r->taken = r->made;
    if (t->shard != TY_TABLES_ROW)
        r->taken = cpu_buffer(stage, t->samples * t->numbers * sizeof *r->taken);
    TY_TRY(ty_check_memory(r->made != NULL && r->taken != NULL, error));
    node->state = r;
    node->stash_bytes =
        (kept_indices(t) + (stage->options.splits_backward ? made : 0)) * sizeof(float);
    if (t->shard == TY_TABLES_TABLE)
        node->scratch_bytes = t->samples * t->indices * sizeof(float);
    return TY_OK;
}

static rooms *rooms_of(const ty_stage_device *stage, const stage_node *first)
{
    rooms *r = first->state;
    uint32_t count = 0;

    for (uint32_t n = 0; n < stage->node_count; n++)
        if (is_bag(stage, &stage->nodes[n]))
            r->t.bags[count++].node = &stage->nodes[n];
    return r;
}

static bag *bag_of(tables *t, const stage_node *node)
{
    bag *b = t->bags;

    while (b->node != node)
        b++;
    return b;
}

static bool is_here(const tables *t, const bag *b)
{
    return b->owner == TY_NO_LAYER || b->owner == t->rank;
}

static ty_status exchange(ty_stage_device *stage, const ty_parallel_exchange *asked,
                          ty_error *error)
{
    const ty_parallel_group *parallel = &stage->options.parallel;

    return parallel->exchange(parallel->context, asked, error);
}

/* ---- Indices ---- */

/* Packs each sample's indices: all of them, or, if ranks have entire tables, those for each rank.
 */
static float *indices_pack(const ty_stage_device *stage, const tables *t, uint32_t slot,
                           uint32_t rank, float *to)
{
    for (uint64_t s = 0; s < t->samples; s++)
        for (uint32_t i = 0; i < t->count; i++) {
            const bag *b = &t->bags[i];
            const uint64_t sample = stage->values[b->node->inputs[0]].count / t->samples;
            const float *x = cpu_in(stage, b->node, 0, slot) + s * sample;

            if (b->owner != TY_NO_LAYER && b->owner != rank)
                continue;
            memcpy(to, x + b->node->layer->attributes[TY_FIRST_ROW], b->indices * sizeof *to);
            to += b->indices;
        }
    return to;
}

/* Fills `kept`, [all samples][own indices]. */
static ty_status indices_exchange(ty_stage_device *stage, const tables *t, uint32_t slot,
                                  float *kept, ty_error *error)
{
    const uint64_t part = t->samples * t->own_indices[t->rank];
    uint64_t sent[TY_MAX_PARALLEL_SIZE], received[TY_MAX_PARALLEL_SIZE];
    float *to = stage->scratch;

    if (t->shard != TY_TABLES_TABLE) {
        (void)indices_pack(stage, t, slot, (uint32_t)t->rank, kept + t->rank * part);
        return exchange(stage,
                        &(ty_parallel_exchange){.among = TY_EXPERT_PARALLEL,
                                                .kind = TY_ALL_GATHER,
                                                .data = kept, /* only moved */
                                                .count = part},
                        error);
    }
    for (uint32_t l = 0; l < t->ranks; l++) {
        to = indices_pack(stage, t, slot, l, to);
        sent[l] = t->samples * t->own_indices[l];
        received[l] = part;
    }
    return exchange(stage,
                    &(ty_parallel_exchange){.among = TY_EXPERT_PARALLEL,
                                            .kind = TY_ALL_TO_ALL,
                                            .data = stage->scratch,
                                            .sent_counts = sent,
                                            .received_counts = received,
                                            .received = kept},
                    error);
}

/* ---- Vectors ---- */

/* From the vectors computed here to those of this rank's samples; for gradients the reverse. */
static ty_status vectors_exchange(ty_stage_device *stage, const rooms *r, bool is_back,
                                  ty_error *error)
{
    const tables *t = &r->t;
    uint64_t made[TY_MAX_PARALLEL_SIZE], taken[TY_MAX_PARALLEL_SIZE];

    if (t->shard == TY_TABLES_ROW)
        return exchange(
            stage,
            &(ty_parallel_exchange){.among = TY_EXPERT_PARALLEL,
                                    .kind = is_back ? TY_ALL_GATHER : TY_REDUCE_SCATTER,
                                    .data = r->made,
                                    .count = (is_back ? t->samples : all_samples(t)) * t->numbers},
            error);
    for (uint32_t l = 0; l < t->ranks; l++) {
        made[l] = t->samples * t->own_numbers[t->rank];
        taken[l] = t->samples * t->own_numbers[l];
    }
    return exchange(stage,
                    &(ty_parallel_exchange){.among = TY_EXPERT_PARALLEL,
                                            .kind = TY_ALL_TO_ALL,
                                            .data = is_back ? r->taken : r->made,
                                            .sent_counts = is_back ? taken : made,
                                            .received_counts = is_back ? made : taken,
                                            .received = is_back ? r->made : r->taken},
                    error);
}

/* Copies a bag's numbers of this rank's samples between the received vectors and the layer's
 * output, or its gradient. */
static void own_move(const rooms *r, const bag *b, float *own, bool is_back)
{
    const tables *t = &r->t;
    float *part = r->taken;

    for (uint32_t l = 0; l < t->ranks; l++) {
        const uint64_t stride = t->own_numbers[l];
        const bool is_of_rank = t->shard == TY_TABLES_ROW     ? l == t->rank
                                : t->shard == TY_TABLES_TABLE ? l == b->owner
                                                              : true;
        const uint64_t column = t->shard == TY_TABLES_COLUMN ? l * b->columns : 0;

        for (uint64_t s = 0; s < t->samples && is_of_rank; s++) {
            float *there = part + s * stride + b->own_number;
            float *here = own + s * b->features + column;
            memcpy(is_back ? there : here, is_back ? here : there, b->columns * sizeof *here);
        }
        part += t->samples * stride;
    }
}

/* The row of this rank's table for an index, or `rows` if another rank has it. */
static uint64_t row_here(const bag *b, float index)
{
    const uint64_t row = (uint64_t)index;

    return row >= b->first_row && row - b->first_row < b->rows ? row - b->first_row : b->rows;
}

/* All lookups in this rank's shard of a bag, for the samples of all ranks: adds rows to vectors, or
 * gradients of vectors to rows. */
static void look_up(const rooms *r, const bag *b, const float *kept, float *vectors, float *table,
                    bool is_back)
{
    const tables *t = &r->t;
    const uint64_t indices = t->own_indices[t->rank], numbers = t->own_numbers[t->rank];

    for (uint64_t n = 0; n < all_samples(t); n++)
        for (uint64_t i = 0; i < b->indices; i++) {
            const uint64_t row = row_here(b, kept[n * indices + b->own_index + i]);
            float *vector = vectors + n * numbers + b->own_number;

            if (row == b->rows)
                continue;
            if (is_back)
                cpu_add_row(b->columns, b->share, vector, table + row * b->columns);
            else
                cpu_add_row(b->columns, b->share, table + row * b->columns, vector);
        }
}

/* ---- Passes ---- */

static ty_status all_forward(ty_stage_device *stage, const stage_node *first, rooms *r,
                             uint32_t slot, ty_error *error)
{
    const tables *t = &r->t;
    float *kept = first->stash[slot];
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < t->count && status == TY_OK; i++)
        status = cpu_indices_check(stage, t->bags[i].node, slot, error);
    if (status == TY_OK)
        status = indices_exchange(stage, t, slot, kept, error);
    if (status != TY_OK)
        return status;
    memset(r->made, 0, all_samples(t) * t->own_numbers[t->rank] * sizeof *r->made);
    for (uint32_t i = 0; i < t->count; i++)
        if (is_here(t, &t->bags[i]))
            look_up(r, &t->bags[i], kept, r->made, stage->parameters + t->bags[i].node->offsets[0],
                    false);
    return vectors_exchange(stage, r, false, error);
}

ty_status cpu_indices_check(const ty_stage_device *stage, const stage_node *node, uint32_t slot,
                            ty_error *error)
{
    const uint64_t sample = stage->values[node->inputs[0]].count / stage_batch(stage);
    const uint64_t *a = node->layer->attributes;
    const float *indices = cpu_in(stage, node, 0, slot) + a[TY_FIRST_ROW];

    for (uint64_t s = 0; s < stage_batch(stage); s++)
        for (uint64_t r = 0; r < a[TY_ROWS]; r++) {
            const float index = indices[s * sample + r];
            if (!(index >= 0.0f && index < (float)a[TY_VOCABULARY] &&
                  index == (float)(uint64_t)index))
                return ty_fail(error, TY_EINVAL,
                               "layer %s: index %g at place %lu of sample %lu, expected a whole "
                               "number from 0 to %lu",
                               node->layer->name, (double)index,
                               (unsigned long)(a[TY_FIRST_ROW] + r), (unsigned long)s,
                               (unsigned long)(a[TY_VOCABULARY] - 1));
        }
    return TY_OK;
}

ty_status cpu_tables_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                             ty_error *error)
{
    const stage_node *first = first_bag(stage);
    rooms *r = rooms_of(stage, first);
    ty_status status = TY_OK;

    if (node == first)
        status = all_forward(stage, node, r, slot, error);
    if (status == TY_OK)
        own_move(r, bag_of(&r->t, node), cpu_out(stage, node, slot), false);
    return status;
}

static void all_add(ty_stage_device *stage, const rooms *r, const float *kept, float *vectors,
                    bool is_first)
{
    const tables *t = &r->t;

    for (uint32_t i = 0; i < t->count; i++) {
        const bag *b = &t->bags[i];
        float *table = cpu_parameter_gradient(stage, b->node, 0);

        if (table == NULL || !is_here(t, b))
            continue;
        if (!stage_adds(b->node, 0, is_first))
            memset(table, 0, b->rows * b->columns * sizeof *table);
        look_up(r, b, kept, vectors, table, true);
    }
}

ty_status cpu_tables_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                              bool is_first, ty_error *error)
{
    const stage_node *first = first_bag(stage);
    rooms *r = rooms_of(stage, first);
    const tables *t = &r->t;
    float *kept = first->stash[slot], *gradients = r->made;
    ty_status status = TY_OK;

    if (stage->part != STAGE_WEIGHTS)
        own_move(r, bag_of(&r->t, node), cpu_out_gradient(stage, node, slot), true);
    if (node != first)
        return TY_OK;
    if (stage->part != STAGE_WEIGHTS)
        status = vectors_exchange(stage, r, true, error);
    if (status != TY_OK)
        return status;
    if (stage->part == STAGE_INPUTS)
        memcpy(kept_gradients(t, kept), r->made,
               all_samples(t) * t->own_numbers[t->rank] * sizeof *kept);
    if (stage->part == STAGE_WEIGHTS)
        gradients = kept_gradients(t, kept);
    if (stage->part != STAGE_INPUTS)
        all_add(stage, r, kept, gradients, is_first);
    return TY_OK;
}
