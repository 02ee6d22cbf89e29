/* Plans: stage replicas and buckets against closed forms, the check against plans with one error
 * each, and round trips through files. */
#include "toy.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

Test(plan, ranks_go_stage_by_stage)
{
    for (size_t i = 0; i < toy_spec_count; i++) {
        ty_plan *plan = toy_plan(&toy_specs[i]);
        uint32_t stage_replica = 0;
        for (uint32_t s = 0; s < plan->stage_count; s++) {
            cr_assert_eq(ty_plan_first_replica(plan, s), stage_replica);
            for (uint32_t q = 0; q < plan->stages[s].replicas; q++, stage_replica++) {
                cr_assert_eq(ty_plan_stage_of_replica(plan, stage_replica), s);
                cr_assert_eq(ty_plan_device_of_replica(plan, stage_replica),
                             TOY_DEVICES - 1 - stage_replica, "%s stage replica %u",
                             toy_specs[i].name, stage_replica);
            }
        }
        cr_assert_eq(ty_plan_stage_replica_count(plan), stage_replica);
        cr_assert_eq(ty_plan_first_replica(plan, plan->stage_count), stage_replica);
        ty_plan_free(plan);
    }
}

Test(plan, every_parameter_is_in_one_bucket)
{
    for (size_t i = 0; i < toy_spec_count; i++) {
        ty_plan *plan = toy_plan(&toy_specs[i]);
        uint64_t sum = 0;
        for (uint32_t b = 0; b < plan->bucket_count; b++)
            sum += plan->buckets[b].gradient_bytes;
        cr_assert_eq(sum, ty_workload_parameter_bytes(plan->workload, 0, 6), "%s: %llu",
                     toy_specs[i].name, (unsigned long long)sum);
        ty_plan_free(plan);
    }
}

Test(plan, tied_buckets_belong_to_two_stages)
{
    ty_plan *plan = toy_plan_named("hybrid tied");
    const uint32_t expected[] = {0, 1, 2, 3, 4};
    uint32_t stage_replicas[5] = {0}, tied = plan->bucket_count - 2;

    /* embed keeps its position rows, its 8 x 4 matrix has a bucket of its own; down keeps its bias,
     * matrix 4 x 4 */
    cr_assert_eq(plan->buckets[tied].gradient_bytes, 128);
    cr_assert_eq(plan->buckets[tied].tied_stage, 1);
    cr_assert_eq(plan->buckets[tied + 1].gradient_bytes, 64);
    cr_assert_eq(plan->buckets[1].first_layer, 0);
    cr_assert_eq(plan->buckets[1].gradient_bytes, 48);
    cr_assert_eq(ty_plan_tied_stage(plan, 0), 1);
    cr_assert_eq(ty_plan_tied_stage(plan, 3), TY_NO_STAGE, "a user owns nothing");
    cr_assert_eq(ty_bucket_members(plan, &plan->buckets[tied], stage_replicas), 5);
    cr_assert_arr_eq(stage_replicas, expected, sizeof expected);
    cr_assert_eq(ty_bucket_member_count(plan, &plan->buckets[tied]), 5);
    cr_assert_eq(ty_bucket_members(plan, &plan->buckets[0], stage_replicas), 3);
    ty_plan_free(plan);

    plan = toy_plan_named("pipeline tied inside"); /* down and up in one stage: no tied bucket */
    cr_assert_eq(ty_plan_tied_stage(plan, 1), TY_NO_STAGE);
    cr_assert_eq(ty_plan_tied_stage(plan, 0), 1);
    ty_plan_free(plan);
}

Test(plan, frozen_layers_have_no_gradients)
{
    ty_plan *plan = toy_plan_named("alone");
    ty_bucket whole = {.layer_count = 6, .tied_stage = TY_NO_STAGE};
    ty_error error = {0};

    cr_assert_eq(ty_bucket_gradient_bytes(plan, &whole), 176 + 80 + 80 + 128);
    plan->workload->layers[0].is_frozen = true;
    cr_assert_eq(ty_bucket_gradient_bytes(plan, &whole), 80 + 80 + 128);
    /* A frozen layer may not be inside a bucket: the gradients of one bucket are contiguous in
     * memory. */
    plan->buckets[plan->bucket_count - 1].gradient_bytes =
        ty_bucket_gradient_bytes(plan, &plan->buckets[plan->bucket_count - 1]);
    cr_assert_eq(ty_workload_digest(plan->workload, &plan->workload_digest, NULL), TY_OK);
    cr_expect_eq(ty_plan_check(plan, "p", &error), TY_EPARSE);
    cr_expect_neq(strstr(error.message, "which is frozen, expected only layers that are trained"),
                  NULL, "%s", error.message);
    plan->workload->element_bytes = 2; /* stored as halves; gradients are still fp32 */
    cr_assert_eq(ty_bucket_gradient_bytes(plan, &whole), 2 * (80 + 80 + 128));
    ty_plan_free(plan);
}

Test(plan, wire_bytes_of_compressions)
{
    const struct {
        ty_compression_kind kind;
        double ratio;
        uint64_t gradient_bytes, wire_bytes, kept;
        ty_collective_kind collective;
    } rows[] = {
        {TY_COMPRESSION_NONE, 0, 4000, 4000, 0, TY_ALL_REDUCE},
        {TY_COMPRESSION_FP16, 0, 4000, 2000, 0, TY_ALL_REDUCE},
        {TY_COMPRESSION_TOP_K, 0.01, 4000, 80, 10, TY_ALL_GATHER},
        {TY_COMPRESSION_TOP_K, 0.0001, 4000, 8, 1, TY_ALL_GATHER},
        {TY_COMPRESSION_TOP_K, 1, 4000, 8000, 1000, TY_ALL_GATHER},
        {TY_COMPRESSION_TOP_K, 0.75, 8, 8, 1, TY_ALL_GATHER},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_bucket bucket = {.gradient_bytes = rows[i].gradient_bytes,
                            .compression.kind = rows[i].kind,
                            .compression.ratio = rows[i].ratio};
        ty_gradient_extent extent = {.elements = rows[i].gradient_bytes / 4};
        cr_assert_eq(ty_compression_wire_bytes(&bucket.compression, &extent, 2, 0),
                     rows[i].wire_bytes, "row %zu", i);
        cr_assert_eq(ty_compression_collective(&bucket.compression, 0), rows[i].collective,
                     "row %zu", i);
        if (rows[i].kept > 0)
            cr_assert_eq(ty_compression_kept(&bucket.compression, extent.elements), rows[i].kept,
                         "row %zu", i);
    }
}

Test(plan, memory_total_adds_all)
{
    ty_memory_use use = {1, 20, 300, 4000, 50000, 600000, 7000000};
    cr_assert_eq(ty_memory_use_total(&use), 7654321);
}

/* ---- The check ----------------------------------------------------------------------------- */

static void no_cut(ty_plan *p)
{
    p->workload->layers[2].input_count = 0; /* relu reads the batch */
}
static void late_and_asynchronous(ty_plan *p)
{
    p->staleness = 1;
    p->schedule = TY_PIPEDREAM;
}
static void late_and_sharded(ty_plan *p)
{
    p->staleness = 2;
    p->zero = 1;
}
static void late_with_local_steps(ty_plan *p)
{
    p->staleness = 1;
    p->workload->local_steps = 4;
}
static void late_population(ty_plan *p)
{
    p->staleness = 1;
    p->workload->learning = TY_LEARNING_EVOLUTION;
}
static void late_alone(ty_plan *p)
{
    p->staleness = 1;
}
static void very_late(ty_plan *p)
{
    p->staleness = 65;
}
static void lag_alone(ty_plan *p)
{
    p->lag = 1;
}
static void played_and_sharded(ty_plan *p)
{
    p->workload->learning = TY_LEARNING_REINFORCEMENT;
    p->zero = 1;
}
static void played_by_stages(ty_plan *p)
{
    p->workload->learning = TY_LEARNING_REINFORCEMENT;
    p->schedule = TY_PIPEDREAM;
}
static void nothing_to_play(ty_plan *p)
{
    p->stages[0].layer_count = 0;
}
static void actors_of(ty_plan *p)
{
    p->workload->learning = TY_LEARNING_REINFORCEMENT;
    p->stages[0].layer_count = 0;
}
static void three_actors(ty_plan *p)
{
    actors_of(p);
    p->stages[0].replicas = 3;
}
static void actors_far_behind(ty_plan *p)
{
    actors_of(p);
    p->lag = 17;
}
static void actors_and_servers(ty_plan *p)
{
    actors_of(p);
    p->servers.count = 1;
}
static void order_of(ty_plan *p, uint32_t first)
{
    p->exchange_order = ty_alloc(p->bucket_count, sizeof *p->exchange_order);
    p->exchange_order[0] = first;
    for (uint32_t b = 1; b < p->bucket_count; b++)
        p->exchange_order[b] = b;
}
static void order_of_stages(ty_plan *p)
{
    order_of(p, 0);
}
static void order_with_one_twice(ty_plan *p)
{
    order_of(p, 1);
}
static void order_beyond(ty_plan *p)
{
    order_of(p, p->bucket_count);
}
static void order_and_sharded(ty_plan *p)
{
    order_of(p, 0);
    p->zero = 1;
}
static void order_and_late(ty_plan *p)
{
    order_of(p, 0);
    p->staleness = 1;
}
static void late_first_layer(ty_plan *p)
{
    p->stages[1].first_layer++;
}
static void short_last_stage(ty_plan *p)
{
    p->stages[1].layer_count--;
}
static void long_last_stage(ty_plan *p)
{
    p->stages[1].layer_count = UINT32_MAX;
}
static void no_replicas(ty_plan *p)
{
    p->stages[0].replicas = 0;
}
static void odd_micro_batches(ty_plan *p)
{
    p->micro_batches = 5;
    p->global_batch = 10;
}
static void wrong_batch(ty_plan *p)
{
    p->global_batch++;
}
static void overflowing_batch(ty_plan *p)
{
    p->micro_batches = 1u << 16;
    p->micro_batch_size = 1u << 16;
    p->global_batch = 0;
}
static void wrapped_batch(ty_plan *p)
{
    p->micro_batches = 3u << 16;
    p->micro_batch_size = 1u << 16;
    p->global_batch = 1;
}
static void absurd_micro_batches(ty_plan *p)
{
    p->micro_batches = (1u << 30) + 1;
}
static void zero_micro_batch(ty_plan *p)
{
    p->micro_batch_size = 0;
}
static void same_device(ty_plan *p)
{
    p->stages[1].devices[0] = p->stages[0].devices[1];
}
static void overlap(ty_plan *p)
{
    p->buckets[0].layer_count = 2;
    p->buckets[0].first_layer = 0;
    p->buckets[0].gradient_bytes = 256;
    p->buckets[1].layer_count = 2;
    p->buckets[1].first_layer = 0;
    p->buckets[1].stage = 0;
    p->buckets[1].gradient_bytes = 256;
}
static void gap(ty_plan *p)
{
    p->buckets[0].layer_count = 1; /* only down: embed is omitted */
    p->buckets[0].first_layer = 1;
    p->buckets[0].gradient_bytes = 80;
}
static void bucket_outside(ty_plan *p)
{
    p->buckets[0].layer_count = 3;
}
static void bucket_of_no_stage(ty_plan *p)
{
    p->buckets[0].stage = 2;
}
static void empty_bucket(ty_plan *p)
{
    p->buckets[1].first_layer = 5;
    p->buckets[1].layer_count = 1;
}
static void no_bucket(ty_plan *p)
{
    p->bucket_count--;
}
static void no_bucket_at_all(ty_plan *p)
{
    p->bucket_count = 0;
}
static void wrong_bytes(ty_plan *p)
{
    p->buckets[0].gradient_bytes -= 4;
}
static void ratio_without_top_k(ty_plan *p)
{
    p->buckets[0].compression.ratio = 0.5;
}
static void ratio_zero(ty_plan *p)
{
    p->buckets[0].compression.kind = TY_COMPRESSION_TOP_K;
}
static void ratio_nan(ty_plan *p)
{
    p->buckets[0].compression.kind = TY_COMPRESSION_TOP_K;
    p->buckets[0].compression.ratio = (double)NAN;
}
static void ratio_two(ty_plan *p)
{
    p->buckets[0].compression.kind = TY_COMPRESSION_TOP_K;
    p->buckets[0].compression.ratio = 2;
}
static void nan_rate(ty_plan *p)
{
    p->optimizer.learning_rate = (double)NAN;
}
static void negative_momentum(ty_plan *p)
{
    p->optimizer.momentum = -0.5;
}
static void big_seed(ty_plan *p)
{
    p->seed = UINT64_MAX;
}
static void other_workload(ty_plan *p)
{
    p->workload->layers[1].forward_flop = 101;
}
static void no_such_device(ty_plan *p)
{
    p->stages[0].devices[0] = TOY_DEVICES;
}
static void no_cluster(ty_plan *p)
{
    ty_cluster_free(p->cluster);
    p->cluster = NULL;
}
static void nan_prediction(ty_plan *p)
{
    p->has_prediction = true;
    p->memory = ty_alloc(p->stage_count, sizeof *p->memory);
    p->prediction.bubble_share = (double)NAN;
}
static void no_memory(ty_plan *p)
{
    p->has_prediction = true;
}
static void many_ranks(ty_plan *p)
{
    p->micro_batches = 1000000;
    p->global_batch = 2000000;
    p->stages[0].replicas = 1000000;
}

/* on "hybrid tied" */
static void no_tied_bucket(ty_plan *p)
{
    p->bucket_count--;
}
static void tied_twice(ty_plan *p)
{
    p->buckets[p->bucket_count - 1] = p->buckets[p->bucket_count - 2];
}
static void tied_first(ty_plan *p)
{
    ty_bucket last = p->buckets[p->bucket_count - 1];
    p->buckets[p->bucket_count - 1] = p->buckets[0];
    p->buckets[0] = last;
}
static void tied_to_nothing(ty_plan *p)
{
    p->buckets[p->bucket_count - 1].first_layer = 2;
}
static void tied_elsewhere(ty_plan *p)
{
    p->buckets[p->bucket_count - 1].tied_stage = 0;
}
static void three_copies(ty_plan *p)
{
    p->workload->layers[1].tied_to = 0; /* not a workload that passes the check of workloads */
    p->stages = ty_resize(p->stages, 3, sizeof *p->stages);
    p->stages[2] = p->stages[1];
    p->stages[0].layer_count = 1;
    p->stages[1].first_layer = 1;
    p->stages[1].layer_count = 2;
    p->stages[2].devices = ty_alloc(2, sizeof(uint32_t));
    p->stages[2].devices[0] = 200;
    p->stages[2].devices[1] = 201;
    p->stage_count = 3;
    p->workload->layers[1].parameter_bytes = 0;
    p->workload->layers[3].parameter_bytes = 0;
    p->workload->layers[3].tied_to = TY_NO_LAYER;
    p->bucket_count = 2;
    p->buckets[0] = (ty_bucket){.layer_count = 1, .tied_stage = TY_NO_STAGE, .gradient_bytes = 48};
    p->buckets[1] = (ty_bucket){.layer_count = 1, .tied_stage = 1, .gradient_bytes = 128};
}

/* Buckets of "rows" are [4,6), [2,4), [1,2) and, as rows, [0,1). */
static void rows_of_linear(ty_plan *p)
{
    p->buckets[0].compression.kind = TY_COMPRESSION_ROWS;
    p->buckets[0].first_layer = 4;
    p->buckets[0].layer_count = 1;
    p->buckets[0].gradient_bytes = ty_bucket_gradient_bytes(p, &p->buckets[0]);
}
static void rows_of_two_layers(ty_plan *p)
{
    p->buckets[2].first_layer = 0;
    p->buckets[2].layer_count = 2;
    p->buckets[2].compression.kind = TY_COMPRESSION_ROWS;
    p->buckets[2].gradient_bytes = ty_bucket_gradient_bytes(p, &p->buckets[2]);
    p->bucket_count = 3;
}
static void rows_with_zero(ty_plan *p)
{
    p->zero = 1;
}
static void rows_with_local_steps(ty_plan *p)
{
    p->workload->local_steps = 4;
}
static void rows_with_ratio(ty_plan *p)
{
    p->buckets[3].compression.ratio = 0.1;
}
static void rows_of_tied_matrix(ty_plan *p)
{
    p->workload->layers[4].tied_to = 0;
    p->workload->layers[4].parameter_bytes = 0;
    p->buckets[0].first_layer = 3;
    p->buckets[0].layer_count = 1;
    p->buckets[1].first_layer = 1;
    p->buckets[1].layer_count = 1;
    for (uint32_t b = 0; b < 2; b++)
        p->buckets[b].gradient_bytes = ty_bucket_gradient_bytes(p, &p->buckets[b]);
    p->buckets[2] = p->buckets[3];
    p->bucket_count = 3;
}
static void rows_of_shared_matrix(ty_plan *p)
{
    p->buckets[p->bucket_count - 2].compression =
        (ty_compression){.kind = TY_COMPRESSION_ROWS}; /* between stages */
}

Test(plan, rows_have_room_for_the_tokens_of_a_step)
{
    ty_plan *plan = toy_plan_named("data parallel rows");
    const ty_bucket *rows = &plan->buckets[plan->bucket_count - 1];
    ty_gradient_extent extent = ty_bucket_extent(plan, rows);
    ty_error error = {0};

    cr_assert_eq(rows->compression.kind, TY_COMPRESSION_ROWS);
    cr_expect_eq(ty_plan_replica_tokens(plan, 0, 0), 6); /* a micro-batch of 2 x 3 tokens */
    cr_expect_eq(extent.row_room, 6);
    cr_expect_eq(extent.row_elements, 4);
    cr_expect_eq(extent.dense_elements, 12);
    cr_expect_eq(ty_bucket_wire_bytes(plan, rows, 0), 6 * (4 + 16) + 48);
    cr_expect_eq(ty_plan_exchange_kind(plan, rows, 0), TY_ALL_GATHER);
    plan->micro_batches = 4;
    plan->global_batch = 8;
    cr_expect_eq(ty_plan_replica_tokens(plan, 0, 0), 12);
    cr_expect_eq(ty_bucket_extent(plan, rows).row_room, 8, "never more than there are");
    cr_expect_eq(ty_rows_check(plan, 0, &error), TY_OK);
    plan->context_parallel = 2;
    cr_expect_eq(ty_rows_check(plan, 0, &error), TY_EINVAL);
    cr_expect_str_eq(error.message, "found 2 ranks per replica, expected one");
    ty_plan_free(plan);
}

Test(plan, check_refuses_each_flaw)
{
    const struct {
        const char *plan;
        void (*spoil)(ty_plan *);
        const char *message;
    } rows[] = {
        {"hybrid", no_cut, "toy:/stages/1/first_layer: the workload cannot be divided"},
        {"hybrid", late_and_asynchronous,
         "toy:/staleness: found 1, expected 0: gradients of that schedule are late already"},
        {"hybrid", late_and_sharded, "toy:/staleness: found 2, expected 0: with ZeRO"},
        {"hybrid", late_with_local_steps,
         "toy:/staleness: found 1, expected 0: replicas take local steps"},
        {"hybrid", late_population, "toy:/staleness: found 1, expected 0: a population has no"},
        {"pipeline", late_alone, "toy:/staleness: found 1, expected 0: no stage has replicas"},
        {"hybrid", very_late, "toy:/staleness: found 65, expected at most 64"},
        {"data parallel", lag_alone, "toy:/lag: found 1, expected 0 without actors"},
        {"data parallel", played_and_sharded,
         "toy:/workload/learning: found reinforcement, expected another: with ZeRO"},
        {"data parallel", played_by_stages,
         "toy:/workload/learning: found reinforcement, expected another: the schedule"},
        {"hybrid", nothing_to_play, "toy:/stages/0/layer_count: found 0, expected some"},
        {"hybrid", actors_far_behind, "toy:/lag: found 17, expected at most 16"},
        {"hybrid", actors_and_servers, "toy:/servers: found 1, expected none beside actors"},
        {"hybrid", three_actors, "toy:/stages/0/replicas: found 3 actors of 1 learners"},
        {"pipeline of four", actors_of, "toy:/stages: found 4, expected 2: actors, and learners"},
        {"hybrid", order_of_stages,
         "toy:/exchange_order: found one, expected none: the next step's forward"},
        {"data parallel", order_with_one_twice,
         "toy:/exchange_order/1: found bucket 1 twice, expected each once"},
        {"data parallel", order_beyond, "expected one of the "},
        {"data parallel", order_and_sharded,
         "toy:/exchange_order: found one, expected none: with ZeRO"},
        {"data parallel", order_and_late,
         "toy:/exchange_order: found one, expected none: late gradients"},
        {"hybrid", late_first_layer, "toy:/stages/1/first_layer: found 3, expected 2"},
        {"hybrid", short_last_stage, "toy:/stages: found layers 0 to 4, expected all 6"},
        {"hybrid", long_last_stage, "toy:/stages/1/layer_count: found 4294967295, expected 1 to 4"},
        {"hybrid", no_replicas, "toy:/stages/0/replicas: found 0, expected a divisor"},
        {"hybrid", odd_micro_batches,
         "toy:/stages/0/replicas: found 2, expected a divisor of micro_batches, 5"},
        {"hybrid", wrong_batch,
         "toy:/global_batch: found 9, expected micro_batches * "
         "micro_batch_size = 8"},
        {"hybrid", overflowing_batch, "toy:/global_batch: found 0, expected 1 to 4294967295"},
        {"hybrid", wrapped_batch, "= 12884901888"},
        {"hybrid", absurd_micro_batches,
         "toy:/micro_batches: found 1073741825, expected 1 to 1073741824"},
        {"hybrid", zero_micro_batch, "toy:/micro_batch_size: found 0"},
        {"hybrid", same_device, "toy:/stages: found device 6 twice"},
        {"hybrid", overlap, "toy:/buckets/1: found layers 0 to 1, expected them below layer 0"},
        {"hybrid", gap, "toy:/buckets: found none with layer 0 (\"embed\") of stage 0"},
        {"hybrid", bucket_outside,
         "toy:/buckets/0: found layers 0 + 3, expected a part of stage 0"},
        {"hybrid", bucket_of_no_stage, "toy:/buckets/0/stage: found 2, expected 0 to 1"},
        {"hybrid", empty_bucket, "toy:/buckets/1: layers 5 to 5 have no gradients"},
        {"hybrid", no_bucket, "toy:/buckets: found none with layer 3 (\"up\") of stage 1"},
        {"alone", no_bucket_at_all, "toy:/buckets: found none with layer 0"},
        {"hybrid", wrong_bytes, "toy:/buckets/0/gradient_bytes: found 252, expected 256"},
        {"hybrid", ratio_without_top_k,
         "toy:/buckets/0/compression: found ratio 0.5 for none, expected none"},
        {"hybrid", ratio_zero,
         "toy:/buckets/0/compression: found ratio 0 for top-k, expected more than 0"},
        {"hybrid", ratio_nan, "toy:/buckets/0/compression: found ratio nan"},
        {"hybrid", ratio_two, "toy:/buckets/0/compression: found ratio 2"},
        {"data parallel rows", rows_of_linear,
         "toy:/buckets/0/compression: found rows: layer 4 (\"head\") is linear, expected an "
         "embedding"},
        {"data parallel rows", rows_of_two_layers,
         "toy:/buckets/2/compression: found rows of 2 layers, expected a bucket of one embedding"},
        {"data parallel rows", rows_with_zero,
         "toy:/buckets/3/compression: found rows with zero 1, expected none, fp16"},
        {"data parallel rows", rows_with_local_steps,
         "toy:/buckets/3/compression: found rows: found local steps"},
        {"data parallel rows", rows_with_ratio,
         "toy:/buckets/3/compression: found ratio 0.1 for rows, expected none"},
        {"data parallel rows", rows_of_tied_matrix,
         "toy:/buckets/2/compression: found rows: layer 4 (\"head\") uses the matrix of layer 0 "
         "(\"embed\") too"},
        {"hybrid tied", rows_of_shared_matrix,
         "/compression: found rows: layer 4 (\"head\") uses the matrix of layer 0"},
        {"hybrid", nan_rate, "toy:/optimizer/learning_rate: found nan"},
        {"hybrid", negative_momentum, "toy:/optimizer/momentum: found -0.5"},
        {"hybrid", big_seed, "toy:/seed: found 18446744073709551615, expected less than 2^53"},
        {"hybrid", other_workload, "toy:/workload_digest: this plan was made for another workload"},
        {"hybrid", no_such_device,
         "toy:/stages/0/devices/0: found 8, expected one of the cluster's 8 devices"},
        {"hybrid", no_cluster, "toy:/cluster: found none"},
        {"hybrid", nan_prediction, "toy:/prediction/bubble_share: found nan"},
        {"hybrid", no_memory, "toy:/memory: found none"},
        {"hybrid", many_ranks, "found 1000001 devices in all, expected at most 1000000"},
        {"hybrid tied", no_tied_bucket,
         "toy:/buckets: found none for the weight of layer 1 "
         "(\"down\"), tied between stages 0 and 1"},
        {"hybrid tied", tied_twice, "layer 0 has a tied bucket already"},
        {"hybrid tied", tied_first, "found after a tied weight, expected tied ones last"},
        {"hybrid tied", tied_to_nothing, "layer 2 has no tied copy in another stage"},
        {"hybrid tied", tied_elsewhere, "/tied_stage: found 0, expected 1"},
        {"hybrid tied", three_copies,
         "found the weight of layer 0 in stages 0, 1 and 2, expected it in at most two"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_plan *plan = toy_plan_named(rows[i].plan);
        ty_error error = {0};
        rows[i].spoil(plan);
        cr_expect_eq(ty_plan_check(plan, "toy", &error), TY_EPARSE, "row %zu: %s", i,
                     rows[i].message);
        cr_expect_not_null(strstr(error.message, rows[i].message), "row %zu: \"%s\" lacks \"%s\"",
                           i, error.message, rows[i].message);
        cr_expect_eq(error.status, TY_EPARSE);
        ty_plan_free(plan);
    }
}

/* ---- Files --------------------------------------------------------------------------------- */

/* A plan with all optional members. */
static ty_plan *full_plan(void)
{
    ty_plan *plan = toy_plan_named("hybrid tied");

    plan->staleness = 3;
    plan->has_prediction = true;
    plan->prediction = (ty_step_summary){.step_time_s = 0.1,
                                         .samples_per_s = 240,
                                         .tokens_per_s = 720,
                                         .compute_share = 0.7,
                                         .exposed_collective_share = 0.1,
                                         .bubble_share = 0.2,
                                         .limited_by = "pipeline bubble 20 %"};
    plan->simulation = plan->prediction;
    plan->simulation.step_time_s = 1.0 / 3;
    plan->provenance = TY_CALIBRATED;
    plan->memory = ty_alloc(plan->stage_count, sizeof *plan->memory);
    plan->memory[0] = (ty_memory_use){1, 2, 3, 4, 5, 6, 7};
    plan->memory[1].workspace_bytes = 8;
    plan->candidate_count = 2;
    plan->candidates = ty_alloc(2, sizeof *plan->candidates);
    plan->candidates[0] = (ty_candidate){.name = ty_strdup("hybrid"),
                                         .step_time_s = 0.1,
                                         .peak_memory_bytes = 28,
                                         .reason = ty_strdup("chosen")};
    plan->candidates[1] = (ty_candidate){.name = ty_strdup("data parallel 5"),
                                         .peak_memory_bytes = 99,
                                         .reason = ty_strdup("does not \"fit\"")};
    plan->profile = ty_alloc(1, sizeof *plan->profile);
    *plan->profile = (ty_profile){.machine = ty_strdup("a toy"),
                                  .backend = ty_strdup("cpu"),
                                  .date = ty_strdup("2020-01-01T00:00:00Z"),
                                  .versions = ty_strdup("none"),
                                  .cores = 2,
                                  .concurrent_ranks = 2,
                                  .memory_bytes = 1000000,
                                  .peak_flop_per_s = 1e9,
                                  .memory_bandwidth_bytes_per_s = 1e9};
    plan->profile->transfer_time_count = 1;
    plan->profile->transfer_times = ty_alloc(1, sizeof *plan->profile->transfer_times);
    plan->profile->transfer_times[0] = (ty_transfer_time){100, 1e-6, 0};
    return plan;
}

Test(plan, files_go_there_and_back)
{
    const char *path = toy_path("plan.json");
    for (size_t i = 0; i <= toy_spec_count; i++) {
        ty_plan *plan = i < toy_spec_count ? toy_plan(&toy_specs[i]) : full_plan();
        ty_plan *loaded = NULL;
        ty_digest before, after;
        ty_error error = {0};
        char *first = NULL, *second = NULL;

        cr_assert_eq(ty_plan_save(plan, path, &error), TY_OK, "%s", error.message);
        cr_assert_eq(ty_plan_load(path, &loaded, &error), TY_OK, "%s", error.message);
        cr_assert_eq(ty_plan_digest(plan, &before, NULL), TY_OK);
        cr_assert_eq(ty_plan_digest(loaded, &after, NULL), TY_OK);
        cr_assert_str_eq(before.hex, after.hex);
        first = toy_read(path);
        cr_assert_eq(ty_plan_save(loaded, path, &error), TY_OK, "%s", error.message);
        second = toy_read(path);
        cr_assert_str_eq(first, second);
        cr_assert_eq(loaded->provenance, plan->provenance);
        cr_assert_eq(loaded->staleness, plan->staleness);
        cr_assert_eq(loaded->has_prediction, plan->has_prediction);
        cr_assert_eq(loaded->simulation.step_time_s, plan->simulation.step_time_s);
        cr_assert_eq(loaded->stages[0].recompute, plan->stages[0].recompute);
        cr_assert_eq(loaded->stages[0].recompute_blocks, plan->stages[0].recompute_blocks);
        cr_assert_eq((loaded->profile == NULL), (plan->profile == NULL));
        ty_free(first);
        ty_free(second);
        ty_plan_free(plan);
        ty_plan_free(loaded);
    }
    remove(path);
}

/* `text` without its last member, "stack". */
static void cut_stack(char *text)
{
    char *at = strstr(text, ",\n  \"stack\": {");
    cr_assert_not_null(at);
    strcpy(at, "\n}\n");
}

Test(plan, carries_its_stack)
{
    const char *path = toy_path("plan.json");
    ty_plan *plan = full_plan(), *loaded = NULL, *copy = NULL, *old = NULL;
    ty_digest run, other_run, stack, other_stack;
    ty_error error = {0};
    char *text;

    cr_assert_eq(ty_plan_digest(plan, &run, NULL), TY_OK);
    cr_assert_eq(ty_stack_digest(plan->stack, &stack, NULL), TY_OK);
    ty_stack_free(plan->stack);
    cr_assert_eq(ty_stack_open("megatron-2021", &plan->stack, &error), TY_OK, "%s", error.message);
    plan->stack->memory_waste = 0.125; /* unlike any catalogue */
    plan->stack->why = ty_strdup("stack nemo: found zero 3");
    cr_assert_eq(ty_plan_save(plan, path, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_plan_load(path, &loaded, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_plan_copy(loaded, &copy, &error), TY_OK, "%s", error.message);
    cr_expect_str_eq(copy->stack->name, "megatron-2021");
    cr_expect_str_eq(copy->stack->why, "stack nemo: found zero 3");
    cr_expect(copy->stack->memory_waste == 0.125 && copy->stack->attention == TY_ATTENTION_SCORES);
    cr_expect_neq(copy->stack, loaded->stack, "a deep copy");
    cr_expect(ty_stack_is_fitted(copy->stack, "megatron_lm", "GPT 3.6B"));
    cr_assert_eq(ty_plan_digest(copy, &other_run, NULL), TY_OK);
    cr_assert_eq(ty_stack_digest(copy->stack, &other_stack, NULL), TY_OK);
    cr_expect_str_eq(run.hex, other_run.hex, "what is run is the same");
    cr_expect_str_neq(stack.hex, other_stack.hex);

    text = toy_read(path);
    cut_stack(text);
    cr_assert_eq(ty_file_write(path, text, strlen(text), &error), TY_OK);
    cr_assert_eq(ty_plan_load(path, &old, &error), TY_OK, "%s", error.message);
    cr_expect_str_eq(old->stack->name, "trainyard", "written before there were stacks");
    cr_assert_eq(ty_stack_digest(old->stack, &other_stack, NULL), TY_OK);
    cr_expect_str_eq(stack.hex, other_stack.hex);
    ty_free(text);
    ty_plan_free(plan);
    ty_plan_free(loaded);
    ty_plan_free(copy);
    ty_plan_free(old);
    remove(path);
}

Test(plan, copies_are_equal_and_deep)
{
    ty_plan *plan = full_plan(), *copy = NULL;
    char *first = toy_plan_json(plan), *second;

    cr_assert_eq(ty_plan_copy(plan, &copy, NULL), TY_OK);
    ty_plan_free(plan);
    second = toy_plan_json(copy);
    cr_assert_str_eq(first, second);
    cr_assert_eq(ty_plan_check(copy, "copy", NULL), TY_OK);
    ty_plan_free(copy);
    ty_free(first);
    ty_free(second);
}

Test(plan, order_of_exchanges_goes_there_and_back)
{
    const char *path = toy_path("order.json");
    ty_plan *plan = toy_plan_named("data parallel"), *loaded = NULL, *copy = NULL;
    ty_digest without, with;
    ty_error error = {0};

    cr_assert_eq(ty_plan_digest(plan, &without, NULL), TY_OK);
    order_of(plan, 0);
    plan->exchange_order[0] = plan->bucket_count - 1;
    plan->exchange_order[plan->bucket_count - 1] = 0;
    cr_assert_eq(ty_plan_digest(plan, &with, NULL), TY_OK);
    cr_assert_str_neq(without.hex, with.hex);
    cr_assert_eq(ty_plan_save(plan, path, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_plan_load(path, &loaded, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_plan_copy(loaded, &copy, &error), TY_OK);
    cr_assert_arr_eq(copy->exchange_order, plan->exchange_order,
                     plan->bucket_count * sizeof *plan->exchange_order);
    ty_plan_free(copy);
    ty_plan_free(loaded);
    ty_plan_free(plan);
    remove(path);
}

Test(plan, digest_covers_the_decision_only)
{
    ty_plan *plan = full_plan();
    ty_digest base, digest;
    uint32_t *const decisions[] = {
        &plan->global_batch,         &plan->micro_batch_size,       &plan->micro_batches,
        &plan->stages[1].devices[0], &plan->stages[0].layer_count,  &plan->buckets[0].first_layer,
        &plan->buckets[0].stage,     &plan->buckets[2].layer_count, &plan->staleness};

    cr_assert_eq(ty_plan_digest(plan, &base, NULL), TY_OK);
    for (size_t i = 0; i < sizeof decisions / sizeof decisions[0]; i++) {
        ++*decisions[i];
        cr_assert_eq(ty_plan_digest(plan, &digest, NULL), TY_OK);
        cr_assert_str_neq(base.hex, digest.hex, "decision %zu", i);
        --*decisions[i];
    }
    plan->optimizer.learning_rate *= 2;
    cr_assert_eq(ty_plan_digest(plan, &digest, NULL), TY_OK);
    cr_assert_str_neq(base.hex, digest.hex);
    plan->optimizer.learning_rate /= 2;
    plan->prediction.step_time_s = 7;
    plan->candidates[0].step_time_s = 7;
    plan->memory[0].parameter_bytes = 7;
    plan->strategy[0] = 'X';
    cr_assert_eq(ty_plan_digest(plan, &digest, NULL), TY_OK);
    cr_assert_str_eq(base.hex, digest.hex);
    ty_plan_free(plan);
}

Test(plan, save_refuses_what_does_not_hold)
{
    const char *path = toy_path("refused.json");
    ty_plan *plan = toy_plan_named("hybrid");
    ty_error error = {0};

    plan->global_batch = 9;
    cr_assert_eq(ty_plan_save(plan, path, &error), TY_EPARSE);
    cr_assert(!ty_file_exists(path));
    plan->global_batch = 8;
    cr_assert_eq(ty_plan_save(plan, "/no/such/folder/plan.json", &error), TY_EIO);
    ty_plan_free(plan);
}

Test(plan, bad_files_are_refused_with_pointer)
{
    const struct {
        const char *old, *new, *message;
    } rows[] = {
        {"trainyard.plan/1", "trainyard.plan/2", "/schema"},
        {"\"micro_batches\": 12", "\"micro_batches\": 0", "/micro_batches: found 0"},
        {"\"micro_batches\": 12", "\"micro_batchs\": 12", "micro_batches"},
        {"\"micro_batches\": 12", "\"micro_batches\": 12, \"mode\": 1", "mode"},
        {"\"micro_batches\": 12", "\"micro_batches\": 1e400", "micro_batches"},
        {"\"global_batch\": 24", "\"global_batch\": 25", ":/global_batch: found 25, expected"},
        {"\"global_batch\": 24", "\"global_batch\": -24", ":/global_batch: found -24"},
        {"\"replicas\": 3", "\"replicas\": 2", ":/stages/0/devices: found an array of 3"},
        {"\"recompute\": \"full\"", "\"recompute\": \"ful\"",
         ":/stages/0/recompute: found \"ful\""},
        {"\"recompute\": \"full\"", "\"recompute\": \"full\", \"recompute_blocks\": 0",
         ":/stages/0/recompute_blocks: found 0"},
        {"\"recompute\": \"full\"", "\"recompute\": \"full\", \"recompute_blocks\": 10001",
         ":/stages/0/recompute_blocks: found 10001"},
        {"\"recompute\": \"full\"", "\"recompute\": \"operator\", \"recompute_blocks\": 2",
         "/stages/0/recompute_blocks: found 2 with recompute \"operator\", expected 1 to"},
        {"\"schedule\": \"gpipe\"", "\"schedule\": \"gpip\"", ":/schedule: found \"gpip\""},
        {"\"compression\": \"top-k\"", "\"compression\": \"topk\"",
         ":/buckets/0/compression: found \"topk\""},
        {"\"ratio\": 0.25", "\"ratio\": 1.25", ":/buckets/0/ratio: found 1.25"},
        {"\"ratio\": 0.25", "\"ratio\": 0", ":/buckets/0/ratio: found 0"},
        {"\"tied_stage\": 1", "\"tied_stage\": 0", "/tied_stage: found 0, expected 1"},
        {"\"name\": \"embed\"", "\"name\": \"embedding\"",
         ":/workload_digest: this plan was made for another workload (digest "},
        {"\"name\": \"toy\"", "\"name\": \"tor\"",
         ":/cluster_digest: this plan was made for another cluster (digest "},
        {"\"workload_digest\": \"", "\"workload_digest\": \"zz", ":/workload_digest: found \"zz"},
        {"\"bubble_share\": 0.2", "\"bubble_share\": 1.2", ":/prediction/bubble_share: found 1.2"},
        {"\"provenance\": \"calibrated\"", "\"provenance\": \"guessed\"", ":/provenance"},
        {"\"parameter_bytes\": 1,", "\"parameter_bytes\": 1.5,", ":/memory/0/parameter_bytes"},
        {"\"reason\": \"chosen\"", "\"reason\": \"\"", ":/candidates/0/reason"},
        {"\"learning_rate\": 0.1", "\"learning_rate\": \"0.1\"", ":/optimizer/learning_rate"},
        {"\"seed\": 1", "\"seed\": 1.5", ":/seed: found 1.5"},
        {"\"seed\": 1", "\"seed\": 2", ":/digest: the plan changed after it was written: found"},
        {"\"bubble_share\": 0.2", "\"bubble_share\": 0.3", ":/digest: the plan changed"},
    };
    ty_plan *plan = full_plan();
    char *good = toy_plan_json(plan);
    const char *path = toy_path("bad.json");

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *bad = toy_replace(good, rows[i].old, rows[i].new);
        ty_plan *loaded = NULL;
        ty_error error = {0};
        toy_write(path, bad);
        cr_expect_eq(ty_plan_load(path, &loaded, &error), TY_EPARSE, "row %zu", i);
        cr_expect_null(loaded);
        cr_expect_not_null(strstr(error.message, rows[i].message), "row %zu: \"%s\" lacks \"%s\"",
                           i, error.message, rows[i].message);
        cr_expect_eq(strncmp(error.message, path, strlen(path)), 0, "row %zu: %s", i,
                     error.message);
        ty_free(bad);
    }
    for (size_t length = 0; length + 1 < strlen(good); length += 97) { /* truncated files */
        char *bad = ty_strndup(good, length);
        ty_plan *loaded = NULL;
        toy_write(path, bad);
        cr_expect_eq(ty_plan_load(path, &loaded, NULL), TY_EPARSE, "cut at %zu", length);
        ty_free(bad);
    }
    remove(path);
    ty_free(good);
    ty_plan_free(plan);
}

Test(plan, survives_each_failing_allocation)
{
    const char *path = toy_path("memory.json");
    ty_plan *plan = full_plan(), *out = NULL;
    ty_status status = TY_ENOMEM;
    long count;

    cr_assert_eq(ty_plan_save(plan, path, NULL), TY_OK);
    for (count = 1; status != TY_OK; count++) {
        ty_error error = {0};
        out = NULL;
        ty_memory_fail_after(count);
        status = ty_plan_load(path, &out, &error);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM, "%ld: %s", count, error.message);
        cr_assert_eq(out == NULL, status != TY_OK);
        ty_plan_free(out);
    }
    cr_assert_gt(count, 50);
    status = TY_ENOMEM;
    for (count = 1; status != TY_OK; count++) {
        out = NULL;
        ty_memory_fail_after(count);
        status = ty_plan_copy(plan, &out, NULL);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM);
        ty_plan_free(out);
    }
    status = TY_ENOMEM;
    for (count = 1; status != TY_OK; count++) {
        ty_memory_fail_after(count);
        status = ty_plan_save(plan, path, NULL);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM);
    }
    remove(path);
    ty_plan_free(plan);
}

/* Rates count the devices in use, which virtual stages share, for any layout. */
Test(plan, rates_of_a_step)
{
    for (size_t i = 0; i < toy_spec_count; i++) {
        ty_plan *plan = toy_plan(&toy_specs[i]);
        ty_step_summary s = {.step_time_s = 2, .tokens_per_s = 48};
        double flop_per_s = 0;
        for (uint32_t l = ty_workload_first_backward(plan->workload);
             l < plan->workload->layer_count; l++)
            flop_per_s += plan->workload->layers[l].backward_flop * plan->global_batch / 2;
        for (uint32_t l = 0; l < plan->workload->layer_count; l++)
            flop_per_s += plan->workload->layers[l].forward_flop * plan->global_batch / 2;
        ty_step_summary_rate(plan, &s);
        cr_expect_eq(s.devices, ty_plan_rank_count(plan), "%s", toy_specs[i].name);
        cr_expect_float_eq(s.tokens_per_s_per_device * s.devices, 48, 1e-9);
        cr_expect_float_eq(s.tflops_per_device * s.devices * 1e12, flop_per_s, 1e-6 * flop_per_s);
        cr_expect_float_eq(s.mfu * s.devices * 1e9, flop_per_s, 1e-6 * flop_per_s,
                           "1 Gflop/s each");
        ty_plan_free(plan);
    }
}

/* The fullest stage is the one whose devices have the least free memory. */
Test(plan, memory_of_the_fullest_stage)
{
    ty_plan *plan = toy_plan_named("pipeline");
    ty_memory_peak peak;

    cr_expect_not(ty_plan_memory_peak(plan, &peak), "nothing was predicted");
    plan->memory = ty_alloc(plan->stage_count, sizeof *plan->memory);
    plan->memory[1].activation_bytes = 990000000;
    plan->memory_reserve = 0.04; /* of 1 GiB: 1.031e9 bytes are left */
    cr_assert(ty_plan_memory_peak(plan, &peak));
    cr_expect(peak.stage == 1 && peak.bytes == 990000000 && peak.usable_bytes == 1u << 30);
    cr_expect_not(peak.is_tight);
    plan->memory[1].activation_bytes = 1010000000;
    cr_assert(ty_plan_memory_peak(plan, &peak) && peak.is_tight);
    plan->memory_reserve = 0;
    cr_assert(ty_plan_memory_peak(plan, &peak) && !peak.is_tight);
    ty_plan_free(plan);
}
