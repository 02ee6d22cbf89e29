/* Tables of embedding bags on expert-parallel ranks: their shards and communication against figures
 * computed by hand, valid plans, and the choices of the search. */
#include "cost/kernels.h"
#include "ty_base.h"
#include "ty_planner.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* Four tables of 8 features: one lookup per sample in 10 rows, one in 3, two in 40, and one in
 * 7. */
enum { FEATURES = 8, BAGS = 4, FIRST_BAG = 2, INDICES = 5, NUMBERS = BAGS * FEATURES };
static const uint64_t vocabulary[BAGS] = {10, 3, 40, 7}, lookups[BAGS] = {1, 1, 2, 1};

static ty_workload *clicks(void)
{
    ty_builder *b = ty_builder_new("clicks", TY_INPUT_REAL, &(ty_shape){1, {3 + INDICES}});
    ty_workload *w = NULL;
    ty_error error = {0};
    uint32_t vectors[1 + BAGS];
    uint64_t first = 3;

    vectors[0] = ty_builder_linear(b, ty_builder_slice(b, TY_BATCH, 0, 3), FEATURES, true);
    for (int i = 0; i < BAGS; i++) {
        vectors[1 + i] = ty_builder_embedding_bag(b, TY_BATCH, vocabulary[i], FEATURES, first,
                                                  lookups[i], false);
        first += lookups[i];
    }
    ty_builder_loss(
        b, ty_builder_linear(b, ty_builder_dot_interaction(b, vectors, 1 + BAGS), 1, true));
    cr_assert_eq(ty_builder_finish(b, &w, &error), TY_OK, "%s", error.message);
    cr_assert_eq(w->layers[FIRST_BAG].kind, TY_LAYER_EMBEDDING_BAG);
    return w;
}

static ty_status search(const char *cluster_text, const char *fix, uint32_t batch, ty_plan **out,
                        ty_error *error)
{
    ty_plan_options options = ty_plan_options_default();
    ty_workload *w = clicks();
    ty_cluster *cluster = NULL;
    ty_stack *worker = NULL;
    ty_status status;

    cr_assert_eq(ty_stack_open(TY_WORKER_STACK, &worker, error), TY_OK, "%s", error->message);
    cr_assert_eq(ty_cluster_open(cluster_text, NULL, &cluster, error), TY_OK, "%s", error->message);
    options.stack = worker;
    options.global_batch = batch;
    status = ty_pins_read(fix, ty_cluster_device_count(cluster), &options.pins, error);
    if (status == TY_OK)
        status = ty_plan_search(w, cluster, NULL, &options, out, error);
    ty_cluster_free(cluster);
    ty_stack_free(worker);
    ty_workload_free(w);
    return status;
}

static ty_plan *plan_of(const char *fix, uint32_t batch)
{
    ty_plan *plan = NULL;
    ty_error error = {0};

    cr_assert_eq(search("1x dgx-h100", fix, batch, &plan, &error), TY_OK, "%s: %s", fix,
                 error.message);
    return plan;
}

/* ---- Shards -------------------------------------------------------------------------- */

/* Of 40, 10, 7 and 3 rows the first rank gets 40, the second 10, then 7 and 3: 40 and 20 rows in
 * total. */
Test(tables, the_largest_goes_to_the_rank_with_the_fewest)
{
    ty_workload *w = clicks();
    const uint32_t of_two[BAGS] = {1, 1, 0, 1}, of_three[BAGS] = {1, 2, 0, 2};

    for (uint32_t i = 0; i < BAGS; i++) {
        cr_expect_eq(ty_table_rank(w, 2, FIRST_BAG + i), of_two[i], "table %u of two ranks", i);
        cr_expect_eq(ty_table_rank(w, 3, FIRST_BAG + i), of_three[i], "table %u of three", i);
    }
    cr_expect_eq(ty_table_rank_elements(w, 2, 0), 40 * FEATURES);
    cr_expect_eq(ty_table_rank_elements(w, 2, 1), 20 * FEATURES);
    cr_expect_eq(ty_table_rank_elements(w, 3, 2), 10 * FEATURES);
    ty_workload_free(w);
}

typedef struct division {
    const char *fix;
    uint64_t elements[BAGS]; /* of the fullest rank */
    uint64_t own_indices, own_numbers;
    /* Per micro-batch of 16: indices, vectors, and their gradients. */
    struct {
        ty_collective_kind kind;
        uint64_t bytes;
    } forward[2], backward;
} division;

Test(tables, ranks_have_their_part_and_exchange_it_once_a_pass)
{
    static const division rows[] = {
        {"pp=1,dp=2,ep=4,tables=row,micro_batch=16",
         {3 * FEATURES, 1 * FEATURES, 10 * FEATURES, 2 * FEATURES}, /* padded: 10 rows, 3 each */
         INDICES,
         NUMBERS,
         {{TY_ALL_GATHER, 4 * INDICES * 4}, {TY_REDUCE_SCATTER, 16 * NUMBERS * 4}},
         {TY_ALL_GATHER, 4 * NUMBERS * 4}},
        {"pp=1,dp=2,ep=4,tables=column,micro_batch=16",
         {10 * 2, 3 * 2, 40 * 2, 7 * 2},
         INDICES,
         NUMBERS / 4,
         {{TY_ALL_GATHER, 4 * INDICES * 4}, {TY_ALL_TO_ALL, 16 * NUMBERS / 4 * 4}},
         {TY_ALL_TO_ALL, 16 * NUMBERS / 4 * 4}},
        {"pp=1,dp=4,ep=2,tables=table,micro_batch=16",
         {0, 0, 40 * FEATURES, 0},
         3,            /* the other rank looks up one row in each of three tables */
         3 * FEATURES, /* and computes as many vectors */
         {{TY_ALL_TO_ALL, 16 * 3 * 4}, {TY_ALL_TO_ALL, 16 * 3 * FEATURES * 4}},
         {TY_ALL_TO_ALL, 16 * 3 * FEATURES * 4}},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const division *row = &rows[i];
        ty_plan *plan = plan_of(row->fix, 128);
        const ty_table_exchange tables = ty_plan_tables(plan);
        ty_inner_collective inner[TY_MAX_INNER_COLLECTIVES];
        uint64_t sum = 0;
        uint32_t of_tables = 0;

        cr_expect_eq(tables.first_bag, FIRST_BAG);
        cr_expect(tables.indices == INDICES && tables.numbers == NUMBERS, "%s", row->fix);
        cr_expect(tables.own_indices == row->own_indices && tables.own_numbers == row->own_numbers,
                  "%s: %llu, %llu", row->fix, (unsigned long long)tables.own_indices,
                  (unsigned long long)tables.own_numbers);
        for (uint32_t b = 0; b < BAGS; b++) {
            const uint32_t layer = FIRST_BAG + b;
            const double share = (double)row->elements[b] / (double)(vocabulary[b] * FEATURES);
            cr_expect_eq(ty_rank_expert_elements(plan, layer), row->elements[b], "%s: table %u",
                         row->fix, b);
            cr_expect(fabs(ty_rank_parameter_share(plan, layer) - share) < 1e-12, "%s: table %u",
                      row->fix, b);
            cr_expect_eq(ty_layer_inner_collectives(plan, layer, false, inner), b == 0 ? 2 : 0);
            cr_expect_eq(ty_layer_inner_collectives(plan, layer, true, inner), b == 0 ? 1 : 0);
            sum += row->elements[b];
        }
        cr_expect_eq(ty_layer_inner_collectives(plan, FIRST_BAG, false, inner), 2);
        for (int k = 0; k < 2; k++) {
            cr_expect_eq(inner[k].among, TY_EXPERT_PARALLEL);
            cr_expect_eq(inner[k].kind, row->forward[k].kind, "%s: %d", row->fix, k);
            cr_expect_eq(inner[k].bytes, row->forward[k].bytes, "%s: %d: %llu", row->fix, k,
                         (unsigned long long)inner[k].bytes);
            cr_expect(inner[k].count == 1 && inner[k].chosen == 0);
        }
        (void)ty_layer_inner_collectives(plan, FIRST_BAG, true, inner);
        cr_expect_eq(inner[0].kind, row->backward.kind, "%s", row->fix);
        cr_expect_eq(inner[0].bytes, row->backward.bytes, "%s", row->fix);
        /* one bucket of tables, reduced among replicas only; all other buckets are reduced among
         * all ranks */
        for (uint32_t b = 0; b < plan->bucket_count; b++) {
            const ty_bucket *bucket = &plan->buckets[b];
            of_tables += bucket->of_experts;
            cr_expect_eq(ty_bucket_device_count(plan, bucket),
                         bucket->of_experts ? plan->stages[0].replicas : 8);
            if (!bucket->of_experts)
                continue;
            cr_expect_eq(bucket->first_layer, FIRST_BAG);
            cr_expect_eq(bucket->layer_count, BAGS);
            cr_expect_eq(bucket->gradient_bytes, 4 * sum, "%s", row->fix);
            cr_expect_not(ty_bucket_is_beside(plan, b));
        }
        cr_expect_eq(of_tables, 1, "%s", row->fix);
        ty_plan_free(plan);
    }
}

/* ---- Valid plans ------------------------------------------------------------------- */

static void no_expert_parallel(ty_plan *p)
{
    p->expert_parallel = 1;
}
static void no_such_way(ty_plan *p)
{
    p->table_shard = TY_TABLE_SHARD_COUNT;
}
static void whole_tables(ty_plan *p)
{
    p->table_shard = TY_TABLES_WHOLE;
}
static void more_ranks_than_tables(ty_plan *p)
{
    p->table_shard = TY_TABLES_TABLE;
    p->expert_parallel = 8;
}
static void odd_columns(ty_plan *p)
{
    p->table_shard = TY_TABLES_COLUMN;
    for (int i = 0; i < BAGS; i++)
        p->workload->layers[FIRST_BAG + i].attributes[TY_FEATURES] = 7;
}
static void one_frozen(ty_plan *p)
{
    p->workload->layers[FIRST_BAG + 1].is_frozen = true;
}
static void segments(ty_plan *p)
{
    p->stages[0].recompute = TY_RECOMPUTE_FULL;
}
static ty_bucket *bucket_of_tables(ty_plan *p)
{
    ty_bucket *bucket = p->buckets;

    while (!bucket->of_experts)
        bucket++;
    return bucket;
}
static void fewer_tables(ty_plan *p)
{
    bucket_of_tables(p)->layer_count--;
}
static void not_of_ranks(ty_plan *p)
{
    bucket_of_tables(p)->of_experts = false;
}
static void other_bytes(ty_plan *p)
{
    bucket_of_tables(p)->gradient_bytes *= 2;
}
static void others_of_ranks(ty_plan *p)
{
    p->buckets[p->bucket_count - 1].of_experts = true;
}
static void as_rows(ty_plan *p)
{
    bucket_of_tables(p)->compression.kind = TY_COMPRESSION_ROWS;
}

Test(tables, what_does_not_fit_is_refused)
{
    static const struct {
        void (*change)(ty_plan *plan);
        const char *message;
    } rows[] = {
        {no_expert_parallel, "/table_shard: found \"row\" without expert parallelism"},
        {no_such_way, "/table_shard: found 4"},
        {whole_tables, "workload \"clicks\" has no moe layer, and its tables are whole"},
        {more_ranks_than_tables, "has 4 of them for 8 ranks, expected at least one for each"},
        {odd_columns, "has 7 features, expected a multiple of 4 ranks"},
        {one_frozen, "one is frozen, expected both or none"},
        {segments, "/stages/0/recompute: found \"full\", expected \"none\": sharded tables"},
        {fewer_tables, "expected all sharded tables, 2 to 5"},
        {not_of_ranks, "have no gradients for it, expected some"},
        {other_bytes, "/gradient_bytes: found"},
        {others_of_ranks, "/of_experts: found true"},
        {as_rows, "found rows of 4 layers, expected a bucket of one embedding"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_plan *plan = plan_of("pp=1,dp=2,ep=4,tables=row,micro_batch=16", 128);
        ty_error error = {0};
        cr_assert_eq(ty_plan_check(plan, "plan.json", &error), TY_OK, "%s", error.message);
        rows[i].change(plan);
        cr_expect_eq(ty_plan_check(plan, "plan.json", &error), TY_EPARSE, "row %zu", i);
        cr_expect(strstr(error.message, rows[i].message) != NULL, "row %zu: found %s, expected %s",
                  i, error.message, rows[i].message);
        ty_plan_free(plan);
    }
}

Test(tables, a_plan_is_read_as_written)
{
    ty_plan *plan = plan_of("pp=1,dp=2,ep=4,tables=column,micro_batch=16", 128), *copy = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_plan_copy(plan, &copy, &error), TY_OK, "%s", error.message);
    cr_expect_eq(copy->table_shard, TY_TABLES_COLUMN);
    cr_expect_eq(ty_plan_check(copy, "copy", &error), TY_OK, "%s", error.message);
    ty_plan_free(copy);
    ty_plan_free(plan);
}

/* ---- Pinned table shards ------------------------------------------------------------------- */

Test(tables, what_is_asked_for_is_planned_or_refused)
{
    static const struct {
        const char *fix, *message; /* NULL: planned */
        ty_table_shard shard;      /* this one, if it is named */
        uint32_t ranks;
    } rows[] = {
        {"ep=4,tables=row", NULL, TY_TABLES_ROW, 4},
        {"ep=4", NULL, TY_TABLE_SHARD_COUNT, 4},
        {"tables=column", NULL, TY_TABLES_COLUMN, 0},
        {"tables=whole", NULL, TY_TABLES_WHOLE, 1},
        {"ep=8,tables=table", "4 of them for 8 ranks", 0, 0},
        {"ep=4,tables=whole", "has no moe layer, and its tables are whole", 0, 0},
        {"ep=4,tables=row,recompute=full", "tables: found \"row\" with recompute full", 0, 0},
        {"ep=4,tables=row,cycle=5ms", "tables: found \"row\" with a cycle", 0, 0},
        {"ep=4,tables=row,compression=rows", "found 4 ranks per replica, expected one", 0, 0},
        {"ep=4,tables=rows", "--fix tables: found 'rows', expected whole, row, column or table", 0,
         0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_plan *plan = NULL;
        ty_error error = {0};
        const ty_status status = search("1x dgx-h100", rows[i].fix, 128, &plan, &error);

        cr_expect_eq(status == TY_OK, rows[i].message == NULL, "%s: %s", rows[i].fix,
                     error.message);
        if (status != TY_OK) {
            cr_expect(rows[i].message == NULL || strstr(error.message, rows[i].message) != NULL,
                      "%s: %s", rows[i].fix, error.message);
            continue;
        }
        cr_expect(rows[i].shard == TY_TABLE_SHARD_COUNT ? plan->table_shard != TY_TABLES_WHOLE
                                                        : plan->table_shard == rows[i].shard,
                  "%s: %s", rows[i].fix, plan->strategy);
        cr_expect(rows[i].ranks == 0 ||
                      ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL) == rows[i].ranks,
                  "%s: %s", rows[i].fix, plan->strategy);
        ty_plan_free(plan);
    }
}
