/* Tensor-, context- and expert-parallel ranks: their indices, valid plans, their shards, and their
 * communication, against figures computed by hand. */
#include "../pin.h"
#include "cost/kernels.h"
#include "gpu_scratch.h"
#include "ty_base.h"
#include "ty_planner.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* 64 tokens of 16 features; attention of 8 heads of 4, 2 for keys; 8 gated experts of 32 features,
 * two per token; 32 words. */
enum {
    TOKENS = 64,
    FEATURES = 16,
    HEADS = 8,
    KV_HEADS = 2,
    HEAD_SIZE = 4,
    EXPERTS = 8,
    HIDDEN = 32,
    WORDS = 32,
    MOE_LAYER = 5
};
#define EXPERT_ELEMENTS (EXPERTS * 3ull * FEATURES * HIDDEN)
#define ROUTER_ELEMENTS ((uint64_t)FEATURES * EXPERTS)

static ty_workload *small_moe(void)
{
    ty_builder *b = ty_builder_new("small-moe", TY_INPUT_TOKEN, &(ty_shape){1, {TOKENS}});
    ty_workload *w = NULL;
    ty_error error = {0};
    uint32_t x = ty_builder_embedding(b, TY_BATCH, WORDS, FEATURES, 0), y;

    y = ty_builder_rms_norm(b, x);
    y = ty_builder_attention(b, y, HEADS, KV_HEADS, HEAD_SIZE, false, true);
    x = ty_builder_add(b, (const uint32_t[]){x, y}, 2);
    y = ty_builder_rms_norm(b, x);
    y = ty_builder_moe(b, y, EXPERTS, 2, HIDDEN, false, true);
    x = ty_builder_add(b, (const uint32_t[]){x, y}, 2);
    x = ty_builder_linear(b, x, WORDS, false);
    ty_builder_loss(b, x);
    cr_assert_eq(ty_builder_finish(b, &w, &error), TY_OK, "%s", error.message);
    cr_assert_eq(w->layers[MOE_LAYER].kind, TY_LAYER_MOE);
    return w;
}

typedef struct sizes_row {
    uint32_t tensor, context, expert, zero;
    uint32_t global_batch, micro_batch;
} sizes_row;

static ty_plan *plan_on(const char *cluster_text, const ty_workload *w, const sizes_row *row)
{
    ty_plan_options options = ty_plan_options_default();
    ty_cluster *cluster = NULL;
    ty_stack *worker = NULL;
    ty_plan *plan = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_stack_open(TY_WORKER_STACK, &worker, &error), TY_OK, "%s", error.message);
    options.stack = worker;
    options.global_batch = row->global_batch;
    options.pins.axes |= TY_AXES_OF_DIMENSIONS;
    pin(&options.pins, "pp=1,micro_batch=%u,tp=%u,cp=%u,ep=%u,zero=%u", row->micro_batch,
        row->tensor, row->context, row->expert, row->zero);
    cr_assert_eq(ty_cluster_open(cluster_text, NULL, &cluster, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_plan_search(w, cluster, NULL, &options, &plan, &error), TY_OK,
                 "tp %u cp %u ep %u: %s", row->tensor, row->context, row->expert, error.message);
    ty_cluster_free(cluster);
    ty_stack_free(worker);
    return plan;
}

static ty_plan *small_plan(uint32_t tensor, uint32_t context, uint32_t expert, uint32_t zero)
{
    const sizes_row row = {tensor, context, expert, zero, 64, expert > 4 ? expert : 4};
    ty_workload *w = small_moe();
    ty_plan *plan = plan_on("1x dgx-h100", w, &row);

    ty_workload_free(w);
    cr_assert_eq(plan->context_parallel, context > 1 ? context : 0);
    cr_assert_eq(plan->expert_parallel, expert > 1 ? expert : 0);
    return plan;
}

/* ---- Numbers ------------------------------------------------------------------------------- */

Test(ranks, numbers_are_as_the_header_says)
{
    for (uint32_t code = 0; code < 27; code++) {
        const uint32_t n[] = {1 + code % 3, 1 + code / 3 % 3, 1 + code / 9};
        const ty_plan plan = {
            .tensor_parallel = n[0], .context_parallel = n[1], .expert_parallel = n[2]};
        cr_assert_eq(ty_plan_replica_ranks(&plan), n[0] * n[1] * n[2]);
        for (uint32_t e = 0; e < n[2]; e++)
            for (uint32_t c = 0; c < n[1]; c++)
                for (uint32_t t = 0; t < n[0]; t++) {
                    const uint32_t replica_rank = (e * n[1] + c) * n[0] + t;
                    for (uint32_t i = 0; i < n[0]; i++)
                        cr_expect_eq(ty_plan_rank_along(&plan, TY_TENSOR_PARALLEL, replica_rank, i),
                                     (e * n[1] + c) * n[0] + i);
                    for (uint32_t i = 0; i < n[1]; i++)
                        cr_expect_eq(
                            ty_plan_rank_along(&plan, TY_CONTEXT_PARALLEL, replica_rank, i),
                            (e * n[1] + i) * n[0] + t);
                    for (uint32_t i = 0; i < n[2]; i++)
                        cr_expect_eq(ty_plan_rank_along(&plan, TY_EXPERT_PARALLEL, replica_rank, i),
                                     (i * n[1] + c) * n[0] + t);
                }
    }
}

/* Each rank is in one group, of exactly the ranks that have gradients of the same weights. */
Test(ranks, groups_have_the_same_gradients)
{
    for (uint32_t code = 0; code < 54; code++) {
        const uint32_t tensor = 1 + code % 3, context = 1 + code / 3 % 3, expert = 1 + code / 9 % 3;
        ty_plan_stage stages[] = {{.replicas = 3}, {.replicas = 2}};
        const ty_plan plan = {.tensor_parallel = tensor,
                              .context_parallel = context,
                              .expert_parallel = expert,
                              .stage_count = 2,
                              .stages = stages};
        const ty_bucket bucket = {.stage = 1, .of_experts = code >= 27, .tied_stage = TY_NO_STAGE};
        const uint32_t width = tensor * context * expert;
        const uint32_t ranks = ty_bucket_rank_count(&plan, &bucket);
        const uint32_t groups = ty_bucket_group_count(&plan, &bucket);
        uint32_t seen = 0, members[2 * 27];

        cr_assert_eq(ranks, bucket.of_experts ? context : context * expert);
        cr_assert_eq(groups * ranks, width);
        for (uint32_t g = 0; g < groups; g++) {
            const uint32_t first = ty_bucket_rank(&plan, &bucket, g, 0);
            cr_expect_eq(ty_bucket_ranks(&plan, &bucket, g, members), 2 * ranks);
            for (uint32_t i = 0; i < ranks; i++) {
                const uint32_t replica_rank = ty_bucket_rank(&plan, &bucket, g, i);
                cr_assert(replica_rank < width);
                seen |= 1u << replica_rank;
                for (uint32_t q = 0; q < 2; q++) /* after the three ranks of the first stage */
                    cr_expect_eq(members[q * ranks + i], (3 + q) * width + replica_rank);
                cr_expect_eq(ty_bucket_group_of(&plan, &bucket, replica_rank), g);
                cr_expect_eq(replica_rank % tensor, first % tensor);
                if (bucket.of_experts)
                    cr_expect_eq(replica_rank / (tensor * context), first / (tensor * context));
            }
        }
        cr_expect_eq(seen, (1u << width) - 1);
    }
}

/* ---- Valid plans ---------------------------------------------------------------------- */

static void three_contexts(ty_plan *p)
{
    p->context_parallel = 3;
}
static void many_contexts(ty_plan *p)
{
    p->context_parallel = 4096;
}
static void three_experts(ty_plan *p)
{
    p->expert_parallel = 3;
}
static void odd_micro_batches(ty_plan *p)
{
    p->micro_batch_size = 1;
    p->micro_batches = p->global_batch;
}
static void local_steps(ty_plan *p)
{
    p->workload->local_steps = 4;
}
static void experts_without_expert_parallel(ty_plan *p)
{
    p->expert_parallel = 1;
    p->context_parallel = 4;
    p->buckets[0].gradient_bytes = ty_bucket_gradient_bytes(p, &p->buckets[0]);
}
static void experts_first(ty_plan *p)
{
    const ty_bucket first = p->buckets[0];
    p->buckets[0] = p->buckets[1];
    p->buckets[1] = first;
}
static void no_experts(ty_plan *p)
{
    p->bucket_count = 1;
}
static void other_layers(ty_plan *p)
{
    p->buckets[1].layer_count--;
}
static void other_bytes(ty_plan *p)
{
    p->buckets[1].gradient_bytes *= 2;
}

Test(ranks, what_does_not_fit_is_refused)
{
    static const struct {
        void (*change)(ty_plan *plan);
        const char *message;
    } rows[] = {
        {three_contexts, "/context_parallel: found 3: context parallel 3: workload \"small-moe\" "
                         "has sequences of 64 tokens, expected a multiple of 6"},
        {many_contexts, "/context_parallel: found 4096, expected at most 1024"},
        {three_experts, "/expert_parallel: found 3: expert parallel 3: layer 5"},
        {odd_micro_batches, "/expert_parallel: found 2: expert parallel 2: micro-batches of 1 "
                            "samples, expected a multiple of it"},
        {local_steps, "/context_parallel: found 2: expected 1 where replicas take local steps"},
        {experts_without_expert_parallel, "/buckets/1/of_experts: found true"},
        {experts_first, "/buckets/0/of_experts: found true"},
        {no_experts, "/buckets/1: expected the experts of layers 0 to 7"},
        {other_layers, "/buckets/1: expected the experts of layers 0 to 7"},
        {other_bytes, "/buckets/1/gradient_bytes: found 49152, expected 24576"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_plan *plan = small_plan(1, 2, 2, 0);
        ty_error error = {0};
        cr_assert_eq(ty_plan_check(plan, "plan.json", &error), TY_OK, "%s", error.message);
        cr_assert_eq(plan->bucket_count, 2);
        rows[i].change(plan);
        cr_expect_eq(ty_plan_check(plan, "plan.json", &error), TY_EPARSE, "row %zu", i);
        cr_expect(strstr(error.message, rows[i].message) != NULL, "row %zu: found %s, expected %s",
                  i, error.message, rows[i].message);
        if (plan->bucket_count == 1)
            plan->bucket_count = 2;
        ty_plan_free(plan);
    }
}

Test(ranks, workloads_that_are_not_of_tokens_have_no_context_ranks)
{
    static const struct {
        const char *name, *context, *expert;
    } rows[] = {
        {"lenet", "has sequences of 0 tokens", "has no moe layer"},
        {"bert-base", "is not of tokens", "has no moe layer"},
        {"gpt2", NULL, "has no moe layer"},
        {"mixtral-8x7b", NULL, NULL},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_workload *w = NULL;
        ty_error error = {0};
        cr_assert_eq(ty_workload_open(rows[i].name, &w, &error), TY_OK, "%s", error.message);
        cr_expect_eq(ty_context_check(w, 2, &error), rows[i].context == NULL ? TY_OK : TY_EINVAL,
                     "%s", rows[i].name);
        if (rows[i].context != NULL)
            cr_expect(strstr(error.message, rows[i].context) != NULL, "%s: %s", rows[i].name,
                      error.message);
        cr_expect_eq(ty_expert_check(w, 2, TY_TABLES_WHOLE, &error),
                     rows[i].expert == NULL ? TY_OK : TY_EINVAL, "%s", rows[i].name);
        if (rows[i].expert != NULL)
            cr_expect(strstr(error.message, rows[i].expert) != NULL, "%s: %s", rows[i].name,
                      error.message);
        cr_expect_eq(ty_context_check(w, 1, NULL), TY_OK);
        cr_expect_eq(ty_expert_check(w, 0, TY_TABLES_WHOLE, NULL), TY_OK);
        ty_workload_free(w);
    }
}

/* Heads, key heads, hidden features and sequences must be multiples of the TP size; small-moe's
 * experts have 32 features. */
Test(ranks, tensor_ranks_divide_what_they_must)
{
    static const struct {
        const char *name;
        uint32_t ranks;
        bool divides_sequence;
        const char *message; /* NULL: can be sharded */
        const char *run;     /* the worker's message, if a plan is possible */
    } rows[] = {
        {"gpt2", 12, false, NULL, NULL},
        {"gpt2", 8, false, "has heads 12, expected a divisor of it", NULL},
        {"gpt2", 6, true, "has sequences of 1024, which sequence parallelism divides by 6", NULL},
        {"gpt2", 4, true, NULL, NULL},
        {"llama-3.1-70b", 8, true, NULL, NULL},
        {"llama-3.1-70b", 16, true, NULL, "found 8 key and value heads among 16 ranks"},
        {"small-moe", 8, true, NULL, "found 2 key and value heads among 8 ranks"},
        {"small-moe", 2, false, NULL, NULL},
        {"small-moe", 3, false, "has heads 8, expected a divisor of it", NULL},
        {"lenet", 2, false, "has no attention, mlp or moe layer", NULL},
        {"bert-base", 2, true, NULL, "is not sharded along the sequence"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_workload *w = strcmp(rows[i].name, "small-moe") == 0 ? small_moe() : NULL;
        const uint32_t parts = rows[i].divides_sequence ? rows[i].ranks : 1;
        ty_error error = {0};
        if (w == NULL)
            cr_assert_eq(ty_workload_open(rows[i].name, &w, &error), TY_OK, "%s", error.message);
        cr_expect_eq(ty_tensor_check(w, rows[i].ranks, parts, &error),
                     rows[i].message == NULL ? TY_OK : TY_EINVAL, "row %zu: %s", i, error.message);
        if (rows[i].message != NULL)
            cr_expect_not_null(strstr(error.message, rows[i].message), "row %zu: %s", i,
                               error.message);
        cr_expect_eq(ty_tensor_run_check(w, rows[i].ranks, parts, 0, w->layer_count, &error),
                     rows[i].message != NULL ? TY_EINVAL
                     : rows[i].run != NULL   ? TY_EUNSUPPORTED
                                             : TY_OK,
                     "row %zu: %s", i, error.message);
        if (rows[i].run != NULL)
            cr_expect_not_null(strstr(error.message, rows[i].run), "row %zu: %s", i, error.message);
        ty_workload_free(w);
    }
}

/* Three groups of keys for twelve heads: TP 3, 6 and 12 are valid, 2 and 4 are not. */
Test(ranks, key_heads_divide_ranks_or_are_divided)
{
    ty_builder *b = ty_builder_new("groups", TY_INPUT_TOKEN, &(ty_shape){1, {TOKENS}});
    ty_workload *w = NULL;
    uint32_t x = ty_builder_embedding(b, TY_BATCH, WORDS, 48, 0);

    x = ty_builder_attention(b, x, 12, 3, HEAD_SIZE, false, true);
    ty_builder_loss(b, ty_builder_linear(b, x, WORDS, false));
    cr_assert_eq(ty_builder_finish(b, &w, NULL), TY_OK);
    for (uint32_t ranks = 1; ranks <= 12; ranks++) {
        ty_error error = {0};
        const bool can = ranks == 1 || ranks == 3 || ranks == 6 || ranks == 12;
        cr_expect_eq(ty_tensor_check(w, ranks, 1, &error), can ? TY_OK : TY_EINVAL, "%u: %s", ranks,
                     error.message);
        if (ranks == 2 || ranks == 4)
            cr_expect_not_null(
                strstr(error.message, "has kv_heads 3, expected a divisor or a multiple of it"),
                "%s", error.message);
    }
    ty_workload_free(w);
}

/* Layouts proposed for this host's cores can run on the worker: no TP 4 for two key heads, although
 * it fits otherwise, and no context parallelism for an odd sequence length. */
Test(ranks, searches_propose_what_the_worker_can_run)
{
    static char machine[] = "test machine";
    static ty_transfer_time transfers[] = {{1 << 10, 1e-5, 1e-5}, {1 << 20, 1e-4, 1e-4}};
    const ty_profile profile = {.machine = machine,
                                .cores = 4,
                                .memory_bytes = (uint64_t)8 << 30,
                                .peak_flop_per_s = 5e10,
                                .memory_bandwidth_bytes_per_s = 1e10,
                                .instruction_overhead_s = 3e-6,
                                .transfer_time_count = 2,
                                .transfer_times = transfers};
    ty_builder *b = ty_builder_new("odd", TY_INPUT_TOKEN, &(ty_shape){1, {TOKENS - 1}});
    ty_plan_options options = ty_plan_options_default();
    ty_workload *w = NULL;
    ty_cluster *cluster = NULL;
    ty_plan *plan = NULL;
    ty_error error = {0};
    uint32_t pairs = 0;
    uint32_t x = ty_builder_embedding(b, TY_BATCH, WORDS, FEATURES, 0);

    x = ty_builder_attention(b, x, HEADS, KV_HEADS, HEAD_SIZE, false, true);
    ty_builder_loss(b, ty_builder_linear(b, x, WORDS, false));
    cr_assert_eq(ty_builder_finish(b, &w, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_cluster_local(4, &profile, &cluster, &error), TY_OK, "%s", error.message);
    options.global_batch = 4;
    cr_assert_eq(ty_plan_search(w, cluster, NULL, &options, &plan, &error), TY_OK, "%s",
                 error.message);
    for (uint32_t c = 0; c < plan->candidate_count; c++) {
        const char *name = plan->candidates[c].name;
        pairs += strstr(name, "tensor parallel 2") != NULL;
        cr_expect_null(strstr(name, "tensor parallel 4"), "%s", name);
        cr_expect_null(strstr(name, "sequence"), "%s", name);
    }
    cr_expect_gt(pairs, 0);
    ty_plan_free(plan);
    ty_cluster_free(cluster);
    ty_workload_free(w);
}

static char *json_of(const ty_plan *plan)
{
    ty_text text = {0};
    char *json = NULL;
    ty_json_writer writer = ty_json_writer_on(&text);

    ty_plan_to_json(plan, &writer, NULL);
    cr_assert_eq(ty_text_take(&text, &json, NULL), TY_OK);
    return json;
}

Test(ranks, files_keep_them)
{
    static const uint32_t degrees[][3] = {{1, 1, 1}, {1, 2, 1}, {1, 1, 4}, {2, 2, 2}};

    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++) {
        const uint32_t *d = degrees[i];
        ty_plan *plan = small_plan(d[0], d[1], d[2], 0), *again = NULL;
        ty_json_document *document = NULL;
        ty_error error = {0};
        char *json = json_of(plan), *second;
        cr_expect_eq(strstr(json, "\"context_parallel\"") != NULL, d[1] > 1);
        cr_expect_eq(strstr(json, "\"expert_parallel\"") != NULL, d[2] > 1);
        cr_expect_eq(strstr(json, "\"of_experts\"") != NULL, d[2] > 1);
        cr_assert_eq(ty_json_parse(json, strlen(json), "plan", &document, &error), TY_OK, "%s",
                     error.message);
        cr_assert_eq(ty_plan_from_json(ty_json_root(document), &again, &error), TY_OK, "%s",
                     error.message);
        second = json_of(again);
        cr_expect_str_eq(second, json);
        ty_free(json);
        ty_free(second);
        ty_json_free(document);
        ty_plan_free(plan);
        ty_plan_free(again);
    }
}

/* ---- Shards of each rank, by hand ----------------------------------------------------------- */

Test(ranks, gradients_of_buckets)
{
    ty_plan *plan = small_plan(2, 2, 2, 0);
    /* Norms are replicated on each rank. Two tensor-parallel ranks shard everything else, and two
     * expert-parallel ranks also shard experts. */
    const uint64_t dense = 2 * FEATURES + (2ull * WORDS * FEATURES + ROUTER_ELEMENTS +
                                           FEATURES * 2 * (HEADS + KV_HEADS) * HEAD_SIZE) /
                                              2;

    cr_assert_eq(plan->bucket_count, 2);
    cr_expect_eq(plan->buckets[0].gradient_bytes, 4 * dense);
    cr_expect_eq(plan->buckets[1].gradient_bytes, 4 * EXPERT_ELEMENTS / 4);
    cr_expect_eq(ty_bucket_device_count(plan, &plan->buckets[0]), 4);
    cr_expect_eq(ty_bucket_device_count(plan, &plan->buckets[1]), 2);
    cr_expect_eq(ty_layer_expert_elements(plan, MOE_LAYER), EXPERT_ELEMENTS);
    ty_plan_free(plan);
}

#define INNER(ranks, collective, size, times)                                                      \
    {                                                                                              \
        .among = (ranks), .kind = (collective), .bytes = (size), .count = (times)                  \
    }

static void expect_inner(const ty_plan *plan, uint32_t layer, bool is_backward,
                         const ty_inner_collective *expected, uint32_t count)
{
    ty_inner_collective found[TY_MAX_INNER_COLLECTIVES];
    const uint32_t found_count = ty_layer_inner_collectives(plan, layer, is_backward, found);

    cr_assert_eq(found_count, count, "layer %u: found %u", layer, found_count);
    for (uint32_t i = 0; i < count; i++) {
        cr_expect_eq(found[i].among, expected[i].among, "layer %u, %u", layer, i);
        cr_expect_eq(found[i].kind, expected[i].kind, "layer %u, %u", layer, i);
        cr_expect_eq(found[i].bytes, expected[i].bytes, "layer %u, %u: found %llu", layer, i,
                     (unsigned long long)found[i].bytes);
        cr_expect_eq(found[i].count, expected[i].count, "layer %u, %u", layer, i);
    }
}

Test(ranks, collectives_inside_a_rank)
{
    /* 4 samples per micro-batch: 2 for each expert-parallel rank, 32 tokens of each for each
     * context-parallel rank. */
    const uint64_t tokens = 2 * 32, row = tokens * FEATURES * 4;
    const uint64_t keys = tokens * (KV_HEADS / 2) * 2 * HEAD_SIZE * 4;
    ty_plan *plan = small_plan(2, 2, 2, 0);

    expect_inner(plan, 2, false,
                 (const ty_inner_collective[]){INNER(TY_TENSOR_PARALLEL, TY_ALL_REDUCE, row, 1),
                                               INNER(TY_CONTEXT_PARALLEL, TY_ALL_GATHER, keys, 1)},
                 2);
    expect_inner(
        plan, 2, true,
        (const ty_inner_collective[]){INNER(TY_TENSOR_PARALLEL, TY_ALL_REDUCE, row, 1),
                                      INNER(TY_CONTEXT_PARALLEL, TY_ALL_GATHER, keys, 1),
                                      INNER(TY_CONTEXT_PARALLEL, TY_REDUCE_SCATTER, 2 * keys, 1)},
        3);
    for (int pass = 0; pass < 2; pass++)
        expect_inner(
            plan, MOE_LAYER, pass == 1,
            (const ty_inner_collective[]){INNER(TY_TENSOR_PARALLEL, TY_ALL_REDUCE, row, 1),
                                          INNER(TY_EXPERT_PARALLEL, TY_ALL_TO_ALL, 2 * row, 2)},
            2);
    expect_inner(plan, 1, false, NULL, 0);
    plan->workload->layers[MOE_LAYER].attributes[TY_LATENT_FEATURES] = FEATURES / 4;
    expect_inner(
        plan, MOE_LAYER, false,
        (const ty_inner_collective[]){INNER(TY_TENSOR_PARALLEL, TY_ALL_REDUCE, row, 1),
                                      INNER(TY_EXPERT_PARALLEL, TY_ALL_TO_ALL, 2 * row / 4, 2)},
        2);
    ty_plan_free(plan);
    plan = small_plan(1, 1, 1, 0);
    for (uint32_t l = 0; l < plan->workload->layer_count; l++)
        expect_inner(plan, l, true, NULL, 0);
    ty_plan_free(plan);
}

/* Two experts per token store two copies of it. With latents of a quarter of the size, they store
 * two copies of those, their inputs and their outputs: half as much. */
Test(ranks, experts_keep_latents)
{
    ty_plan *plan = small_plan(1, 1, 1, 0);
    ty_program *program = NULL;
    ty_memory_use whole, latent;

    ty_stack_free(plan->stack);
    plan->stack = NULL;
    cr_assert_eq(ty_stack_open("pytorch-ddp", &plan->stack, NULL), TY_OK);
    cr_assert_eq(ty_plan_lower(plan, &program, NULL), TY_OK);
    cr_assert_eq(ty_stage_memory(plan, program, 0, &whole, NULL), TY_OK);
    plan->workload->layers[MOE_LAYER].attributes[TY_LATENT_FEATURES] = FEATURES / 4;
    cr_assert_eq(ty_stage_memory(plan, program, 0, &latent, NULL), TY_OK);
    cr_expect_eq(whole.activation_bytes - latent.activation_bytes,
                 4ull * FEATURES * TOKENS * plan->micro_batch_size);
    ty_program_free(program);
    ty_plan_free(plan);
}

/* With sequence parallelism a rank stores only its own tokens. Backward all-gathers the gradient
 * and, for trained layers, the input again. Memory includes the gathered data and the input of the
 * reduce-scatter. */
Test(ranks, sequence_parallelism_gathers_again)
{
    ty_plan *plan = small_plan(2, 1, 1, 0);
    const uint64_t row = (uint64_t)plan->micro_batch_size * TOKENS * FEATURES * 4;
    const ty_inner_collective once[] = {INNER(TY_TENSOR_PARALLEL, TY_ALL_GATHER, row / 2, 1),
                                        INNER(TY_TENSOR_PARALLEL, TY_REDUCE_SCATTER, row, 1)};
    const ty_inner_collective twice[] = {INNER(TY_TENSOR_PARALLEL, TY_ALL_GATHER, row / 2, 2),
                                         INNER(TY_TENSOR_PARALLEL, TY_REDUCE_SCATTER, row, 1)};
    const uint32_t output = plan->workload->layer_count - 2;
    const uint64_t communication = plan->memory[0].communication_bytes;
    ty_program *program = NULL;
    ty_memory_use use;

    plan->sequence_parallel = true;
    expect_inner(plan, 2, false, once, 2);
    expect_inner(plan, 2, true, twice, 2);
    expect_inner(plan, MOE_LAYER, true, twice, 2);
    expect_inner(plan, output, false, once, 1);
    expect_inner(plan, output, true, once, 2);
    expect_inner(plan, 0, true, once, 1);
    cr_assert_eq(ty_plan_lower(plan, &program, NULL), TY_OK);
    cr_assert_eq(ty_stage_memory(plan, program, 0, &use, NULL), TY_OK);
    cr_expect_eq(use.communication_bytes, communication + 2 * row);
    plan->workload->layers[2].is_frozen = true;
    expect_inner(plan, 2, true, once, 2);
    ty_program_free(program);
    ty_plan_free(plan);
}

/* With two key heads for eight ranks, each rank computes an eighth of the projections, (8 + 2 x 2)
 * heads of 4 numbers per token, and all-gathers them. With as many ranks as key heads, nothing is
 * gathered. */
Test(ranks, few_key_heads_are_gathered)
{
    ty_plan *plan = small_plan(8, 1, 1, 0), *enough = small_plan(2, 1, 1, 0);
    const uint64_t projected =
        (HEADS + 2 * KV_HEADS) * HEAD_SIZE * TOKENS * 4ull * plan->micro_batch_size;
    const uint64_t row = FEATURES * TOKENS * 4ull * plan->micro_batch_size;

    expect_inner(
        plan, 2, false,
        (const ty_inner_collective[]){INNER(TY_TENSOR_PARALLEL, TY_ALL_REDUCE, row, 1),
                                      INNER(TY_TENSOR_PARALLEL, TY_ALL_GATHER, projected / 8, 1)},
        2);
    expect_inner(
        plan, 2, true,
        (const ty_inner_collective[]){INNER(TY_TENSOR_PARALLEL, TY_ALL_REDUCE, row, 1),
                                      INNER(TY_TENSOR_PARALLEL, TY_REDUCE_SCATTER, projected, 1)},
        2);
    expect_inner(enough, 2, false,
                 (const ty_inner_collective[]){INNER(TY_TENSOR_PARALLEL, TY_ALL_REDUCE, row, 1)},
                 1);
    ty_plan_free(plan);
    ty_plan_free(enough);
}

/* ---- Costs --------------------------------------------------------------------------------- */

/* Seconds of a pass over all layers from formulas: each layer's share of the work, and each
 * collective by NCCL's model for its ranks. */
static double pass_by_hand(const ty_plan *plan, const ty_cluster *cluster, bool is_backward,
                           double *talk_s)
{
    double work_s = 0;

    *talk_s = 0;
    for (uint32_t l = 0; l < plan->workload->layer_count; l++) {
        ty_inner_collective inner[TY_MAX_INNER_COLLECTIVES];
        const uint32_t count = ty_layer_inner_collectives(plan, l, is_backward, inner);
        ty_layer_price price;
        cr_assert_eq(ty_layer_price_of(plan, l, ty_cluster_device_type(cluster, 0), &price, NULL),
                     TY_OK);
        work_s += is_backward ? price.backward.device_s : price.forward.device_s;
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t ranks = ty_plan_parallel_size(plan, inner[i].among);
            ty_communicator communicator;
            ty_collective_table table;
            uint32_t devices[8];
            for (uint32_t n = 0; n < ranks; n++)
                devices[n] =
                    plan->stages[0].devices[ty_plan_rank_along(plan, inner[i].among, 0, n)];
            cr_assert_eq(ty_communicator_of(cluster, devices, ranks, &communicator, NULL), TY_OK);
            cr_assert_eq(ty_collective_table_make(&communicator, NULL, &table, NULL), TY_OK);
            *talk_s +=
                inner[i].count * ty_collective_seconds(&table, inner[i].kind, inner[i].bytes);
        }
    }
    return work_s + *talk_s;
}

Test(ranks, passes_cost_what_formulas_say)
{
    static const uint32_t degrees[][3] = {{1, 8, 1}, {1, 1, 8}, {2, 2, 2}, {1, 2, 4}, {1, 1, 1}};
    ty_cluster *cluster = NULL;

    cr_assert_eq(ty_cluster_open("1x dgx-h100", NULL, &cluster, NULL), TY_OK);
    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++) {
        ty_plan *plan = small_plan(degrees[i][0], degrees[i][1], degrees[i][2], 0);
        ty_program *program = NULL;
        ty_costs *costs = NULL;
        double talk_s[2], pass_s[2];
        uint32_t seen[2] = {0, 0};
        for (int pass = 0; pass < 2; pass++)
            pass_s[pass] = pass_by_hand(plan, cluster, pass == 1, &talk_s[pass]);
        cr_assert_eq(ty_plan_lower(plan, &program, NULL), TY_OK);
        cr_assert_eq(ty_costs_of_program(plan, program, cluster, &costs, NULL), TY_OK);
        for (uint32_t k = 0; k < program->stages[0].instruction_count; k++) {
            const ty_instruction *in = &program->stages[0].instructions[k];
            const ty_instruction_cost *cost = &costs->instructions[0][k];
            const int pass = in->op == TY_OP_BACKWARD;
            if ((in->op != TY_OP_FORWARD && pass == 0) ||
                in->layer_count < plan->workload->layer_count)
                continue;
            seen[pass]++;
            cr_expect_float_eq(cost->inner_s, talk_s[pass], 1e-9 * pass_s[pass],
                               "row %zu, %s: found %g, expected %g", i, ty_op_name(in->op),
                               cost->inner_s, talk_s[pass]);
            cr_expect_float_eq(cost->seconds, pass_s[pass], 1e-9 * pass_s[pass],
                               "row %zu, %s: found %g, expected %g", i, ty_op_name(in->op),
                               cost->seconds, pass_s[pass]);
        }
        cr_expect(seen[0] > 0 && seen[1] > 0, "row %zu", i);
        ty_costs_free(costs);
        ty_program_free(program);
        ty_plan_free(plan);
    }
    ty_cluster_free(cluster);
}

/* Mean number of other shards of eight experts that three chosen experts of a token are in: over
 * all choices of experts, all choices of the open shards and all shards of the token itself. */
static double parts_met_by_choices(uint32_t parts, uint32_t most, uint32_t chosen)
{
    enum { ALL = 8 };
    double met = 0, choices = 0;

    for (uint32_t open = 0; open < 1u << parts; open++) {
        if ((uint32_t)__builtin_popcount(open) != most)
            continue;
        for (uint32_t set = 0; set < 1u << ALL; set++) {
            uint32_t seen = 0;
            if ((uint32_t)__builtin_popcount(set) != chosen)
                continue;
            for (uint32_t e = 0; e < ALL; e++)
                if (set >> e & 1)
                    seen |= 1u << e * parts / ALL;
            if ((seen & ~open) != 0)
                continue;
            for (uint32_t own = 0; own < parts; own++, choices++)
                met += __builtin_popcount(seen & ~(1u << own));
        }
    }
    return met / choices;
}

Test(ranks, parts_of_experts_that_tokens_meet)
{
    for (uint32_t parts = 1; parts <= 8; parts *= 2)
        for (uint32_t most = 1; most <= parts; most++)
            for (uint32_t chosen = 1; chosen <= 8 * most / parts; chosen++) {
                const ty_inner_collective inner = {.experts = 8, .chosen = chosen};
                const double expected = parts_met_by_choices(parts, most, chosen);
                const double found = ty_expert_parts_met(&inner, parts, most);
                cr_expect(fabs(found - expected) <= 1e-12, "%u of %u parts, %u: %g, expected %g",
                          most, parts, chosen, found, expected);
                if (most == parts)
                    cr_expect_eq(ty_expert_parts_met(&inner, parts, 0), found);
            }
}

/* All-to-alls of expert-parallel ranks that overlap matrix products slow these down. They are
 * exposed only as far as they outlast the products. */
Test(ranks, hidden_exchanges_of_experts_last_no_longer_than_products)
{
    static const double hidden[] = {0, 0.5, 1};
    ty_cluster *cluster = NULL;
    double talk_s = 0, work_s = 0;

    cr_assert_eq(ty_cluster_open("1x dgx-h100", NULL, &cluster, NULL), TY_OK);
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++) {
        ty_plan *plan = small_plan(1, 1, 8, 0);
        ty_program *program = NULL;
        ty_costs *costs = NULL;
        ty_stack *stack = NULL;
        cr_assert_eq(ty_stack_copy(ty_stack_of(plan), &stack, NULL), TY_OK);
        stack->expert_hidden = hidden[i];
        stack->overlap_loss = 0.25;
        ty_stack_free(plan->stack);
        plan->stack = stack;
        cr_assert_eq(ty_plan_lower(plan, &program, NULL), TY_OK);
        cr_assert_eq(ty_costs_of_program(plan, program, cluster, &costs, NULL), TY_OK);
        for (uint32_t k = 0; k < program->stages[0].instruction_count; k++) {
            const ty_instruction_cost *cost = &costs->instructions[0][k];
            double beside, beyond;
            if (program->stages[0].instructions[k].op != TY_OP_FORWARD)
                continue;
            if (i == 0) {
                talk_s = cost->inner_s;
                work_s = cost->seconds - cost->inner_s;
            }
            beside = fmin(hidden[i] * talk_s, work_s);
            beyond = hidden[i] * talk_s - beside;
            cr_expect_float_eq(cost->inner_s, (1 - hidden[i]) * talk_s + beyond, 1e-9 * talk_s);
            cr_expect_float_eq(cost->seconds, work_s + cost->inner_s + 0.25 * beside,
                               1e-9 * cost->seconds);
            break;
        }
        ty_costs_free(costs);
        ty_program_free(program);
        ty_plan_free(plan);
    }
    cr_expect(talk_s > 0 && work_s > 0);
    ty_cluster_free(cluster);
}

/* ---- Memory -------------------------------------------------------------------------------- */

/* Weights by hand; activations against those of the same tokens on one rank. */
/* Extra memory of an accelerator per slot for token copies beyond the expected number: the inputs
 * of an expert, and those and the outputs of its products. */
static double beyond_copies(const ty_plan *plan)
{
    const uint64_t chosen = 2, ranks = ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL);
    const uint64_t rows =
        plan->micro_batch_size * TOKENS / ranks / ty_plan_parallel_size(plan, TY_CONTEXT_PARALLEL);
    const uint64_t most = ty_rank_expert_rows(rows, chosen, EXPERTS, ranks);

    return 4.0 * (double)((most - rows * chosen) * (FEATURES + 3 * HIDDEN)) /
           ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL);
}

Test(ranks, memory_of_each)
{
    static const uint32_t degrees[][3] = {{1, 2, 1}, {1, 1, 4}, {2, 2, 2}, {1, 4, 2}};

    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++) {
        const uint32_t *d = degrees[i];
        ty_plan *plan = small_plan(d[0], d[1], d[2], 0), *alone = small_plan(d[0], 1, 1, 0);
        const double all =
            (double)ty_workload_parameter_bytes(plan->workload, 0, plan->workload->layer_count) /
            plan->workload->element_bytes;
        const double norms = 2 * FEATURES, experts = (double)EXPERT_ELEMENTS;
        const double own = norms + (all - norms - experts) / d[0] + experts / (d[0] * d[2]);
        const ty_memory_use *use = &plan->memory[0];
        const double copies =
            ((double)alone->memory[0].activation_bytes - beyond_copies(alone)) / (d[1] * d[2]) +
            beyond_copies(plan);

        cr_expect_float_eq((double)use->parameter_bytes, own * plan->workload->element_bytes, 1);
        cr_expect_float_eq((double)use->gradient_bytes, own * 4, 1);
        /* Gradients exist for one layer at a time; with many ranks those of the experts are the
         * largest. */
        cr_expect(use->activation_bytes > copies - 2 &&
                      use->activation_bytes < copies + beyond_copies(plan) + 2,
                  "row %zu: %llu bytes, expected %g to %g", i,
                  (unsigned long long)use->activation_bytes, copies, copies + beyond_copies(plan));
        ty_plan_free(plan);
        ty_plan_free(alone);
    }
}

/* In 16 bits, cuDNN's backward uses two floats for every element of the queries, one layer at a
 * time. With context parallelism the worker runs its own attention, which needs no workspace. */
Test(ranks, attention_has_room_for_sums)
{
    static const uint32_t degrees[][2] = {{1, 1}, {4, 1}, {2, 2}};

    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++) {
        const sizes_row row = {degrees[i][0], degrees[i][1], 1, 0, 64, 2};
        const uint64_t heads = 12 / degrees[i][0], head_size = 64, tokens = 1024;
        ty_workload *w = NULL;
        ty_plan *plan;
        ty_program *program = NULL;
        ty_memory_use narrow, wide;

        cr_assert_eq(ty_workload_open("gpt2", &w, NULL), TY_OK);
        plan = plan_on("1x dgx-h100", w, &row);
        cr_assert_eq(ty_plan_lower(plan, &program, NULL), TY_OK);
        cr_assert_eq(ty_stage_memory(plan, program, 0, &wide, NULL), TY_OK);
        ty_program_free(program);
        ty_workload_set_precision(plan->workload, TY_PRECISION_BF16);
        cr_assert_eq(ty_plan_lower(plan, &program, NULL), TY_OK);
        cr_assert_eq(ty_stage_memory(plan, program, 0, &narrow, NULL), TY_OK);
        cr_expect_eq(
            narrow.workspace_bytes - wide.workspace_bytes,
            degrees[i][1] > 1 ? 0 : plan->micro_batch_size * heads * tokens * head_size * 2 * 4,
            "row %zu: %llu bytes more", i,
            (unsigned long long)(narrow.workspace_bytes - wide.workspace_bytes));
        ty_program_free(program);
        ty_plan_free(plan);
        ty_workload_free(w);
    }
}

/* In addition to the scratch of the largest bucket, two buffers of a ring: keys and values of all
 * tokens, their gradients, and one of both in flight. */
Test(ranks, context_ranks_have_room_for_all_keys)
{
    ty_plan *plan = small_plan(1, 2, 1, 0);
    const double keys =
        (double)plan->micro_batch_size * TOKENS * KV_HEADS * 2 * HEAD_SIZE * sizeof(float);
    double bucket = 0;

    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        cr_assert_eq(plan->buckets[b].compression.kind, TY_COMPRESSION_NONE);
        bucket = fmax(bucket, 2 * (double)plan->buckets[b].gradient_bytes /
                                  ty_bucket_device_count(plan, &plan->buckets[b]));
    }
    cr_expect_float_eq((double)plan->memory[0].communication_bytes, bucket + 3 * keys, 1,
                       "found %llu, expected %g",
                       (unsigned long long)plan->memory[0].communication_bytes, bucket + 3 * keys);
    ty_plan_free(plan);
}

/* ZeRO shards its tensors over all devices of a group, once. */
Test(ranks, sharding_divides_by_the_devices_of_a_group)
{
    ty_plan *plan = small_plan(2, 2, 2, 1), *whole = small_plan(2, 2, 2, 0);
    const double states =
        (double)whole->memory[0].optimizer_bytes / ((double)whole->memory[0].gradient_bytes / 4);
    const double expected = states * ((double)plan->buckets[0].gradient_bytes / 4 / 4 +
                                      (double)plan->buckets[1].gradient_bytes / 4 / 2);

    cr_expect(ty_bucket_is_sharded(plan, &plan->buckets[0]));
    cr_expect(ty_bucket_is_sharded(plan, &plan->buckets[1]));
    cr_expect_float_eq((double)plan->memory[0].optimizer_bytes, expected, 1,
                       "found %g, expected %g", (double)plan->memory[0].optimizer_bytes, expected);
    ty_plan_free(plan);
    ty_plan_free(whole);
}

/* ---- Programs ------------------------------------------------------------------------------ */

/* One replica whose ranks share weights all-reduces their gradients; gradients of experts that no
 * other rank has are not reduced. */
Test(ranks, programs_hold)
{
    static const struct {
        uint32_t tensor, context, expert, zero, exchanges;
    } rows[] = {{1, 8, 1, 0, 1}, {1, 1, 8, 0, 1}, {1, 2, 4, 0, 2}, {2, 2, 2, 1, 2},
                {1, 1, 8, 3, 1}, {1, 2, 4, 3, 2}, {8, 1, 1, 0, 0}, {1, 4, 2, 2, 2}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_plan *plan = small_plan(rows[i].tensor, rows[i].context, rows[i].expert, rows[i].zero);
        ty_program *program = NULL;
        ty_error error = {0};
        uint32_t exchanges = 0;
        cr_assert_eq(plan->stages[0].replicas, 1);
        cr_assert_eq(ty_plan_lower(plan, &program, &error), TY_OK, "%s", error.message);
        cr_expect_eq(ty_program_check(plan, program, "program", &error), TY_OK, "row %zu: %s", i,
                     error.message);
        for (uint32_t k = 0; k < program->stages[0].instruction_count; k++)
            exchanges += program->stages[0].instructions[k].op == TY_OP_COLLECTIVE;
        cr_expect_eq(exchanges, rows[i].exchanges, "row %zu: found %u", i, exchanges);
        ty_program_free(program);
        ty_plan_free(plan);
    }
}

/* ---- Searches ------------------------------------------------------------------------------ */

/* The plan has the pinned values, and an unpinned search is no slower. */
Test(ranks, searches_find_them)
{
    static const struct {
        const char *workload, *cluster;
        ty_parallelism kind;
        const char *fix;
    } rows[] = {
        {"mixtral-8x7b", "8x dgx-h100", TY_EXPERT_PARALLEL, "ep=8"},
        {"llama-3.1-70b sequence=32768", "16x dgx-h100", TY_CONTEXT_PARALLEL, "cp=4"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_plan_options options = ty_plan_options_default();
        ty_workload *w = NULL;
        ty_cluster *cluster = NULL;
        ty_plan *plan = NULL, *open = NULL;
        ty_error error = {0};

        cr_assert_eq(ty_workload_open(rows[i].workload, &w, &error), TY_OK, "%s", error.message);
        ty_workload_set_precision(w, TY_PRECISION_BF16);
        cr_assert_eq(ty_cluster_open(rows[i].cluster, NULL, &cluster, &error), TY_OK, "%s",
                     error.message);
        cr_assert_eq(ty_plan_search(w, cluster, NULL, &options, &open, &error), TY_OK, "%s",
                     error.message);
        pin(&options.pins, "%s", rows[i].fix);
        cr_assert_eq(ty_plan_search(w, cluster, NULL, &options, &plan, &error), TY_OK, "%s",
                     error.message);
        cr_expect(ty_plan_parallel_size(plan, rows[i].kind) > 1, "%s", plan->strategy);
        cr_expect_eq(ty_plan_check(plan, "plan", &error), TY_OK, "%s", error.message);
        cr_expect(strstr(plan->strategy, ty_parallelism_name(rows[i].kind)) != NULL, "%s",
                  plan->strategy);
        cr_expect_leq(open->prediction.step_time_s, plan->prediction.step_time_s * (1 + 1e-9),
                      "%s against %s", open->strategy, plan->strategy);
        ty_plan_free(open);
        ty_plan_free(plan);
        ty_cluster_free(cluster);
        ty_workload_free(w);
    }
}
