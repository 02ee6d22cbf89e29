/* Chooses embeddings whose gradients are sent as rows: those with a shorter predicted collective
 * that way, each in a bucket of its own. */
#include "candidate.h"
#include "costing.h"

#include <math.h>
#include <string.h>

/* A bucket split at one of its layers, which gets a bucket of its own: layers after it, the layer,
 * and layers before it, if they have gradients. */
typedef struct split {
    uint32_t count, rows; /* rows: index of the embedding */
    ty_bucket parts[3];
} split;

bool ty_has_rows(const ty_plan *plan)
{
    for (uint32_t b = 0; b < plan->bucket_count; b++)
        if (ty_compression_at(plan->buckets[b].compression.kind)->sends_rows)
            return true;
    return false;
}

static uint64_t layer_bytes(const ty_plan *plan, const ty_bucket *whole, uint32_t layer)
{
    const ty_bucket one = {
        .stage = whole->stage, .first_layer = layer, .layer_count = 1, .tied_stage = TY_NO_STAGE};

    return ty_bucket_gradient_bytes(plan, &one);
}

/* Layers [first, end) of a bucket, from the first with gradients to the last. */
static void add_part(const ty_plan *plan, const ty_bucket *whole, uint32_t first, uint32_t end,
                     split *s)
{
    ty_bucket *part = &s->parts[s->count];

    while (first < end && layer_bytes(plan, whole, first) == 0)
        first++;
    while (end > first && layer_bytes(plan, whole, end - 1) == 0)
        end--;
    if (first == end)
        return;
    *part = *whole;
    part->first_layer = first;
    part->layer_count = end - first;
    part->gradient_bytes = ty_bucket_gradient_bytes(plan, part);
    s->count++;
}

static split split_of(const ty_plan *plan, const ty_bucket *whole, uint32_t embedding)
{
    split s = {0};

    add_part(plan, whole, embedding + 1, whole->first_layer + whole->layer_count, &s);
    s.rows = s.count;
    add_part(plan, whole, embedding, embedding + 1, &s);
    s.parts[s.rows].compression = (ty_compression){.kind = TY_COMPRESSION_ROWS};
    add_part(plan, whole, whole->first_layer, embedding, &s);
    return s;
}

/* Seconds of a collective by its final algorithm: the requested one, the library's, or the shorter
 * of ring and tree. */
static ty_status exchange_s(ty_costing *costing, const ty_bucket *bucket, bool is_fixed,
                            ty_algorithm fixed, double *seconds)
{
    static const ty_algorithm choices[] = {TY_RING, TY_TREE};
    const bool has_choice = ty_compression_collective(&bucket->compression, 0) == TY_ALL_REDUCE;
    ty_bucket alike = *bucket;
    bool is_library = false;
    ty_exchange_terms ignored;

    *seconds = HUGE_VAL;
    TY_TRY(ty_cost_is_library(costing, bucket, &is_library));
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        double one_s;
        alike.algorithm = is_fixed ? fixed : is_library ? TY_AUTOMATIC : choices[i];
        TY_TRY(ty_cost_exchange(costing, &alike, &alike.compression, &ignored, &one_s));
        *seconds = fmin(*seconds, one_s);
        if (is_fixed || is_library || !has_choice)
            break;
    }
    return TY_OK;
}

typedef struct row_choice {
    ty_costing costing;
    uint32_t stage; /* the current one of the costing */
    ty_plan *plan;
    const ty_pins *pins;
} row_choice;

static ty_status is_shorter(row_choice *c, const ty_bucket *whole, const split *s, bool *out)
{
    const bool is_fixed = ty_is_pinned(c->pins, TY_AXIS(ALGORITHM));
    double whole_s, sum_s = 0, part_s;

    *out = ty_asks_for_rows(c->pins);
    /* If an all-gather of rows moves no fewer bytes over an edge of a ring than the all-reduce,
     * rows cannot win. */
    const uint32_t members = ty_bucket_device_count(c->plan, &s->parts[s->rows]);
    if (*out || ty_collective_terms_of(TY_ALL_GATHER, TY_RING, members).edge_share *
                        (double)ty_bucket_wire_bytes(c->plan, &s->parts[s->rows], 0) >=
                    ty_collective_terms_of(TY_ALL_REDUCE, TY_RING, members).edge_share *
                        (double)s->parts[s->rows].gradient_bytes)
        return TY_OK;
    TY_TRY(ty_cost_stage_turn(&c->costing, whole, &c->stage));
    TY_TRY(exchange_s(&c->costing, whole, is_fixed, c->pins->algorithm, &whole_s));
    for (uint32_t i = 0; i < s->count; i++) {
        TY_TRY(exchange_s(&c->costing, &s->parts[i], is_fixed, c->pins->algorithm, &part_s));
        sum_s += part_s;
    }
    *out = sum_s < whole_s;
    return TY_OK;
}

/* Evaluates the embeddings of a bucket from its last layer down until one is chosen; `index` is
 * then that of the embedding's bucket, after those of the layers still to evaluate.
 */
static ty_status choose(row_choice *c, uint32_t *index)
{
    const ty_bucket whole = c->plan->buckets[*index];
    bool is_chosen = false;

    for (uint32_t l = whole.first_layer + whole.layer_count;
         l-- > whole.first_layer && !is_chosen;) {
        split s;
        if (!ty_layer_has_table(&c->plan->workload->layers[l]) ||
            ty_rows_check(c->plan, l, NULL) != TY_OK)
            continue;
        s = split_of(c->plan, &whole, l);
        TY_TRY(is_shorter(c, &whole, &s, &is_chosen));
        if (!is_chosen)
            continue;
        /* Replaces the bucket by its parts; there is room for one bucket per layer. */
        memmove(&c->plan->buckets[*index + s.count], &c->plan->buckets[*index + 1],
                (c->plan->bucket_count - *index - 1) * sizeof *c->plan->buckets);
        memcpy(&c->plan->buckets[*index], s.parts, s.count * sizeof *c->plan->buckets);
        c->plan->bucket_count += s.count - 1;
        *index += s.rows;
    }
    return TY_OK;
}

ty_status ty_choose_rows(ty_plan *plan, ty_network_cache *networks, const ty_pins *pins,
                         ty_error *error)
{
    row_choice c = {.costing = ty_costing_of(plan, networks, error),
                    .stage = TY_NO_STAGE,
                    .plan = plan,
                    .pins = pins};
    ty_status status = TY_OK;

    if (!ty_axis_may(&plan->stack->plans.may, TY_AXIS_COMPRESSION, TY_COMPRESSION_ROWS))
        return TY_OK;
    for (uint32_t b = 0; b < plan->bucket_count && status == TY_OK; b++)
        if (plan->buckets[b].tied_stage == TY_NO_STAGE &&
            ty_bucket_device_count(plan, &plan->buckets[b]) > 1)
            status = choose(&c, &b);
    ty_cost_stage_close(&c.costing);
    return status;
}
