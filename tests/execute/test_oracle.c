/* The oracle of the executor: for every synchronous plan, gradients and losses are those of one
 * rank with the same global batch, up to the rounding of float sums. */
#include "../quick.h"
#include "emulation.h"
#include "interpreter.h"
#include "outcome.h"
#include "plans.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static outcome run_plan(const char *workload, const plan_shape *shape, uint32_t steps)
{
    char *directory = directory_make();
    ty_job *job = make_job(make_plan(workload, shape), steps, directory);
    outcome result = outcome_of(job);

    directory_remove(directory);
    ty_job_free(job);
    return result;
}

static double least_loss(const ty_run *run)
{
    double least = run->losses[0];

    for (uint32_t i = 1; i < run->step_count; i++)
        least = fmin(least, run->losses[i]);
    return least;
}

/* After the first update later steps are alike, so four steps suffice to detect errors; more would
 * amplify rounding. */
static void compare_in(const char *workload, uint32_t micro_batch_size, const plan_shape *shapes,
                       size_t count, uint32_t all_steps, double gradient_tolerance,
                       double loss_tolerance)
{
    const uint32_t steps = quick_or_all(all_steps < 4 ? all_steps : 4, all_steps);
    const char *name = narrow(workload);
    plan_shape alone = {.name = "one rank",
                        .replicas = {1},
                        .buckets = 1,
                        .global_batch = shapes[0].global_batch,
                        .micro_batch_size = micro_batch_size,
                        .frozen = shapes[0].frozen};
    outcome expected = run_plan(name, &alone, steps);

    cr_assert(is_quick() || least_loss(expected.run) < expected.run->losses[0], "%s does not learn",
              shapes[0].name);
    for (size_t i = 0; i < count; i++) {
        outcome found = run_plan(name, &shapes[i], steps);

        compare_gradients(shapes[i].name, &found, &expected, gradient_tolerance);
        compare_losses(shapes[i].name, &found, &expected, loss_tolerance);
        outcome_free(&found);
    }
    outcome_free(&expected);
}

static void compare(const char *workload, const plan_shape *shapes, size_t count, uint32_t steps,
                    double gradient_tolerance, double loss_tolerance)
{
    compare_in(workload, shapes[0].global_batch, shapes, count, steps, gradient_tolerance,
               loss_tolerance);
}

#define GPIPE .schedule = TY_GPIPE
#define ONE_F_ONE_B .schedule = TY_ONE_F_ONE_B
#define ZERO_BUBBLE .schedule = TY_ZERO_BUBBLE
#define ZERO_BUBBLE_2P .schedule = TY_ZERO_BUBBLE_2P
#define INTERLEAVED .schedule = TY_INTERLEAVED
#define BATCH .global_batch = 24, .micro_batch_size = 3

/* Layers of mlp: flatten, then linear at 1, 3, 5 with relu between, loss at 6. */
Test(oracle, mlp)
{
    static const plan_shape shapes[] = {
        {"one rank, 8 micro-batches", .replicas = {1}, .buckets = 1, BATCH},
        {"data parallel 2", .replicas = {2}, .buckets = 1, BATCH},
        {"data parallel 2, 3 buckets", .replicas = {2}, .buckets = 3, BATCH},
        {"data parallel 4, tree", .replicas = {4}, .buckets = 2, BATCH, .algorithm = TY_TREE},
        {"data parallel 4, ring", .replicas = {4}, .buckets = 2, BATCH, .algorithm = TY_RING},
        {"gpipe 2 stages", GPIPE, .replicas = {1, 1}, .cuts = {3}, .buckets = 1, BATCH},
        {"gpipe 3 stages", GPIPE, .replicas = {1, 1, 1}, .cuts = {2, 4}, .buckets = 1, BATCH},
        {"1f1b 2 stages", ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {3}, .buckets = 1, BATCH},
        {"1f1b 3 stages", ONE_F_ONE_B, .replicas = {1, 1, 1}, .cuts = {2, 5}, .buckets = 1, BATCH},
        {"1f1b 2+1", ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {5}, .buckets = 2, BATCH},
        {"gpipe 1+2", GPIPE, .replicas = {1, 2}, .cuts = {2}, .buckets = 2, BATCH},
        {"1f1b 2+4+1", ONE_F_ONE_B, .replicas = {2, 4, 1}, .cuts = {2, 4}, .buckets = 2, BATCH},
        {"1f1b 3 stages, recompute", ONE_F_ONE_B, .replicas = {1, 1, 1}, .cuts = {2, 4},
         .buckets = 1, BATCH, .recompute = TY_RECOMPUTE_FULL},
        {"gpipe, a first stage without parameters", GPIPE, .replicas = {2, 1, 1}, .cuts = {1, 3},
         .buckets = 1, BATCH, .recompute = TY_RECOMPUTE_FULL},
        {"zb-h1, a first stage without parameters", ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {1},
         .buckets = 1, BATCH},
    };

    compare("mlp", shapes, sizeof shapes / sizeof shapes[0], 20, 1e-5, 1e-5);
}

#define TWO_THREES "host:2 gpu:3 @t4 pcie3 eth10 nics=3"
#define THREE_PAIRS "host:3 gpu:2 @t4 pcie3 eth10 nics=2"
#define TWELFTHS .global_batch = 24, .micro_batch_size = 2

/* Every algorithm for a bucket, with as many hosts as the plan's cluster has: with five members in
 * pairs, the last one is alone. */
Test(oracle, exchanges)
{
    static const plan_shape shapes[] = {
        {"one rank, 12 micro-batches", .replicas = {1}, .buckets = 1, TWELFTHS},
        {"parameter server 3", .replicas = {3}, .buckets = 3, TWELFTHS,
         .algorithm = TY_PARAMETER_SERVER},
        {"block manager 4", .replicas = {4}, .buckets = 1, TWELFTHS, .algorithm = TY_BLOCK_MANAGER},
        {"hierarchical 2 x 3", .replicas = {6}, .buckets = 2, TWELFTHS,
         .algorithm = TY_HIERARCHICAL, .cluster = TWO_THREES},
        {"hierarchical 3 x 2", .replicas = {6}, .buckets = 2, TWELFTHS,
         .algorithm = TY_HIERARCHICAL, .cluster = THREE_PAIRS},
        {"hierarchical 2 + 1", .replicas = {3}, .buckets = 2, TWELFTHS,
         .algorithm = TY_HIERARCHICAL, .cluster = THREE_PAIRS},
        {"hierarchical 4 + 1", ONE_F_ONE_B, .replicas = {4, 1}, .cuts = {3}, .buckets = 2, TWELFTHS,
         .algorithm = TY_HIERARCHICAL, .cluster = THREE_PAIRS},
        {"parameter server 2 + 3", ONE_F_ONE_B, .replicas = {2, 3}, .cuts = {3}, .buckets = 2,
         TWELFTHS, .algorithm = TY_PARAMETER_SERVER},
        {"zero 2, parameter server", .replicas = {3}, .buckets = 2, TWELFTHS, .zero = 2,
         .algorithm = TY_PARAMETER_SERVER},
        {"top-k 1, hierarchical", .replicas = {4}, .buckets = 2, TWELFTHS,
         .algorithm = TY_HIERARCHICAL, .cluster = THREE_PAIRS,
         .compression.kind = TY_COMPRESSION_TOP_K, .compression.ratio = 1},
    };

    compare("mlp", shapes, sizeof shapes / sizeof shapes[0], 10, 1e-5, 1e-5);
}

#define SERVED .algorithm = TY_PARAMETER_SERVER, .servers

/* Dedicated servers: fewer and more than replicas, by size and by tensor; the second of two buckets
 * has tensors on some servers only. */
Test(oracle, servers)
{
    static const plan_shape shapes[] = {
        {"one rank, 12 micro-batches", .replicas = {1}, .buckets = 1, TWELFTHS},
        {"2 and 1 server", .replicas = {2}, .buckets = 3, TWELFTHS, SERVED = 1},
        {"3 and 2 servers", .replicas = {3}, .buckets = 1, TWELFTHS, SERVED = 2},
        {"2 and 3 servers", .replicas = {2}, .buckets = 2, TWELFTHS, SERVED = 3},
        {"4 and 2 servers by tensor", .replicas = {4}, .buckets = 2, TWELFTHS, SERVED = 2,
         .shard = TY_SHARD_TENSOR},
        {"2 and 4 servers by tensor", .replicas = {2}, .buckets = 3, TWELFTHS, SERVED = 4,
         .shard = TY_SHARD_TENSOR},
    };

    compare("mlp", shapes, sizeof shapes / sizeof shapes[0], 10, 1e-5, 1e-5);
}

/* A sum of two has one value in any place: servers give the same sum as a ring, bit for bit,
 * uncompressed or in 16 bits. */
Test(oracle, servers_make_the_bits_of_a_ring)
{
    static const ty_compression_kind kinds[] = {TY_COMPRESSION_NONE, TY_COMPRESSION_FP16,
                                                TY_COMPRESSION_BF16};

    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        const ty_compression compression = {.kind = kinds[k]};
        const plan_shape ring = {"ring", .replicas = {2}, .buckets = 2, TWELFTHS,
                                 .compression = compression};
        const plan_shape served = {"2 and 3 servers by tensor",
                                   .replicas = {2},
                                   .buckets = 2,
                                   TWELFTHS,
                                   SERVED = 3,
                                   .shard = TY_SHARD_TENSOR,
                                   .compression = compression};
        outcome expected = run_plan("mlp", &ring, 5), found = run_plan("mlp", &served, 5);

        cr_assert_eq(found.gradient_length, expected.gradient_length);
        cr_expect(memcmp(found.gradients, expected.gradients, found.gradient_length) == 0, "%s",
                  ty_compression_name(kinds[k]));
        for (uint32_t t = 0; t < 5; t++)
            cr_expect(memcmp(&found.run->losses[t], &expected.run->losses[t], sizeof(double)) == 0,
                      "%s, step %u", ty_compression_name(kinds[k]), t);
        outcome_free(&found);
        outcome_free(&expected);
    }
}

/* Layers of lenet: conv2d at 0 and 2 with a pool after each, flatten 4, linear 5, relu, linear 7.
 */
Test(oracle, lenet)
{
    static const plan_shape shapes[] = {
        {"data parallel 2", .replicas = {2}, .buckets = 2, BATCH},
        {"data parallel 4", .replicas = {4}, .buckets = 4, BATCH},
        {"gpipe 2 stages", GPIPE, .replicas = {1, 1}, .cuts = {4}, .buckets = 1, BATCH},
        {"gpipe 3 stages", GPIPE, .replicas = {1, 1, 1}, .cuts = {2, 5}, .buckets = 1, BATCH},
        {"1f1b 2 stages", ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {4}, .buckets = 1, BATCH},
        {"1f1b 3 stages", ONE_F_ONE_B, .replicas = {1, 1, 1}, .cuts = {2, 5}, .buckets = 1, BATCH},
        {"1f1b 2+1", ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {5}, .buckets = 2, BATCH},
    };

    /* If two pixels of a pooling window are nearly equal, rounding decides which one wins. */
    compare("lenet", shapes, sizeof shapes / sizeof shapes[0], 20, 1e-5, 1e-3);
}

/* Transfer learning: both convolutions are frozen, with cuts before them, at the first trained
 * layer (5) and after it. */
Test(oracle, frozen_lenet)
{
    static const plan_shape shapes[] = {
        {"data parallel 2", .replicas = {2}, .buckets = 2, BATCH, .frozen = 4},
        {"gpipe frozen stage", GPIPE, .replicas = {1, 1}, .cuts = {4}, .buckets = 1, BATCH,
         .frozen = 4},
        {"1f1b frozen stage at the cut", ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {5}, .buckets = 1,
         BATCH, .frozen = 4},
        {"1f1b 2 frozen stages", ONE_F_ONE_B, .replicas = {1, 1, 1}, .cuts = {2, 4}, .buckets = 1,
         BATCH, .frozen = 4},
        {"1f1b cut inside both", ONE_F_ONE_B, .replicas = {1, 2, 1}, .cuts = {2, 7}, .buckets = 2,
         BATCH, .frozen = 4},
        {"gpipe frozen stage, recompute", GPIPE, .replicas = {2, 1}, .cuts = {2}, .buckets = 1,
         BATCH, .recompute = TY_RECOMPUTE_FULL, .frozen = 4},
        {"data parallel 4, tree", .replicas = {4}, .buckets = 1, BATCH, .frozen = 4,
         .algorithm = TY_TREE},
    };

    compare("lenet", shapes, sizeof shapes / sizeof shapes[0], 12, 1e-5, 1e-3);
}

/* Virtual stages, far apart in the model. */
Test(oracle, interleaved)
{
    static const plan_shape shapes[] = {
        {"interleaved 2 x 2", INTERLEAVED, .replicas = {1, 1, 1, 1}, .cuts = {2, 4, 5},
         .buckets = 1, BATCH, .virtual_stages = 2},
        {"interleaved 2 x 3", INTERLEAVED, .replicas = {1, 1, 1, 1, 1, 1}, .cuts = {2, 3, 4, 5, 6},
         .buckets = 1, BATCH, .virtual_stages = 3},
        {"interleaved 2 x 2, two replicas, recompute", INTERLEAVED, .replicas = {2, 2, 2, 2},
         .cuts = {2, 3, 5}, .buckets = 2, BATCH, .virtual_stages = 2,
         .recompute = TY_RECOMPUTE_FULL},
    };

    compare("mlp", shapes, sizeof shapes / sizeof shapes[0], 10, 1e-5, 1e-5);
}

/* ZeRO: sharded sums, updates and weights of a bucket. */
Test(oracle, sharded)
{
    static const plan_shape shapes[] = {
        {"zero 1, 2 replicas", .replicas = {2}, .buckets = 3, BATCH, .zero = 1},
        {"zero 2, 4 replicas", .replicas = {4}, .buckets = 2, BATCH, .zero = 2},
        {"zero 3, 3 replicas of 1 micro-batch", .replicas = {3}, .buckets = 3, .global_batch = 24,
         .micro_batch_size = 8, .zero = 3},
        {"zero 3, 2 replicas, recompute", .replicas = {2}, .buckets = 2, BATCH, .zero = 3,
         .recompute = TY_RECOMPUTE_FULL},
        {"gpipe 2+2, zero 3", GPIPE, .replicas = {2, 2}, .cuts = {3}, .buckets = 2, BATCH,
         .zero = 3},
        {"1f1b 2+1, zero 2", ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {5}, .buckets = 2, BATCH,
         .zero = 2},
        {"interleaved 2 x 2 of 2, zero 1", INTERLEAVED, .replicas = {2, 2, 2, 2}, .cuts = {2, 3, 5},
         .buckets = 1, BATCH, .virtual_stages = 2, .zero = 1},
        {"interleaved 2 x 2 of 2, zero 3", INTERLEAVED, .replicas = {2, 2, 2, 2}, .cuts = {2, 3, 5},
         .buckets = 1, BATCH, .virtual_stages = 2, .zero = 3},
    };
    static const plan_shape tied[] = {
        {"zero 3, 2 replicas", .replicas = {2}, .buckets = 3, .global_batch = 8,
         .micro_batch_size = 2, .zero = 3},
        {"1f1b 2+2, zero 3", ONE_F_ONE_B, .replicas = {2, 2}, .cuts = {13}, .buckets = 2,
         .global_batch = 8, .micro_batch_size = 2, .zero = 3},
    };

    compare("mlp", shapes, sizeof shapes / sizeof shapes[0], 8, 1e-5, 1e-5);
    compare("gpt-tiny sequence=32", tied, sizeof tied / sizeof tied[0], 5, 1e-5, 1e-3);
}

/* Backward pass in two parts. */
Test(oracle, zero_bubble)
{
    static const plan_shape dense[] = {
        {"zb-h1 2 stages", ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {3}, .buckets = 1, BATCH},
        {"zb-h1 4 stages", ZERO_BUBBLE, .replicas = {1, 1, 1, 1}, .cuts = {2, 4, 5}, .buckets = 1,
         BATCH},
        {"zb-h1 2+2", ZERO_BUBBLE, .replicas = {2, 2}, .cuts = {3}, .buckets = 2, BATCH},
        {"zb-2p 2 stages", ZERO_BUBBLE_2P, .replicas = {1, 1}, .cuts = {3}, .buckets = 1, BATCH},
        {"zb-2p 4 stages", ZERO_BUBBLE_2P, .replicas = {1, 1, 1, 1}, .cuts = {2, 4, 5},
         .buckets = 1, BATCH},
        {"zb-2p 2+1", ZERO_BUBBLE_2P, .replicas = {2, 1}, .cuts = {3}, .buckets = 2, BATCH},
        {"zb-2p 1+2+1", ZERO_BUBBLE_2P, .replicas = {1, 2, 1}, .cuts = {2, 4}, .buckets = 1, BATCH},
    };
    static const plan_shape convolutions[] = {
        {"zb-h1 3 stages", ZERO_BUBBLE, .replicas = {1, 1, 1}, .cuts = {2, 5}, .buckets = 1, BATCH},
        {"zb-2p 3 stages", ZERO_BUBBLE_2P, .replicas = {1, 1, 1}, .cuts = {2, 5}, .buckets = 1,
         BATCH},
    };

    compare("mlp", dense, sizeof dense / sizeof dense[0], 10, 1e-5, 1e-5);
    compare("lenet", convolutions, 2, 10, 1e-5, 1e-3);
}

#undef BATCH
#define BATCH .global_batch = 8, .micro_batch_size = 1

/* Layers of gpt-tiny: the embedding, then 6 per block, so that blocks start at 1, 7, 13 and 19. The
 * last linear layer's matrix is the embedding's, which ties the first stage to the last. */
Test(oracle, gpt_tiny)
{
    static const plan_shape shapes[] = {
        {"data parallel 2", .replicas = {2}, .buckets = 3, BATCH},
        {"data parallel 4", .replicas = {4}, .buckets = 2, BATCH},
        {"gpipe 2 stages", GPIPE, .replicas = {1, 1}, .cuts = {13}, .buckets = 1, BATCH},
        {"gpipe 3 stages", GPIPE, .replicas = {1, 1, 1}, .cuts = {7, 19}, .buckets = 1, BATCH},
        {"1f1b 2 stages", ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {13}, .buckets = 1, BATCH},
        {"1f1b 3 stages", ONE_F_ONE_B, .replicas = {1, 1, 1}, .cuts = {7, 13}, .buckets = 1, BATCH},
        {"1f1b 2+1", ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {13}, .buckets = 2, BATCH},
        {"1f1b 2 stages, selective", ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {13}, .buckets = 1,
         BATCH, .recompute = TY_RECOMPUTE_SELECTIVE},
        {"zb-h1 2 stages, selective", ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {13}, .buckets = 1,
         BATCH, .recompute = TY_RECOMPUTE_SELECTIVE},
        {"zb-h1 3 stages", ZERO_BUBBLE, .replicas = {1, 1, 1}, .cuts = {7, 13}, .buckets = 1,
         BATCH},
        {"zb-2p 3 stages", ZERO_BUBBLE_2P, .replicas = {1, 1, 1}, .cuts = {7, 13}, .buckets = 1,
         BATCH},
        {"interleaved 2 x 2", INTERLEAVED, .replicas = {1, 1, 1, 1}, .cuts = {7, 13, 19},
         .buckets = 1, BATCH, .virtual_stages = 2},
    };

    compare("gpt-tiny sequence=32", shapes, sizeof shapes / sizeof shapes[0], 12, 1e-5, 1e-3);
}

/* Embedding and first two blocks are frozen; the output layer uses the embedding's frozen matrix in
 * another stage. */
Test(oracle, frozen_gpt_tiny)
{
    static const plan_shape shapes[] = {
        {"data parallel 2", .replicas = {2}, .buckets = 3, BATCH, .frozen = 13},
        {"1f1b frozen stage", ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {13}, .buckets = 1, BATCH,
         .frozen = 13},
        {"gpipe 3 stages", GPIPE, .replicas = {1, 1, 1}, .cuts = {7, 19}, .buckets = 1, BATCH,
         .frozen = 13},
        {"1f1b 2+1", ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {13}, .buckets = 2, BATCH,
         .frozen = 13},
    };

    compare("gpt-tiny sequence=32", shapes, sizeof shapes / sizeof shapes[0], 12, 1e-5, 1e-3);
}

/* Tensor-parallel ranks: sharded heads, hidden features and vocabulary, and with sequence
 * parallelism the remaining activations along the sequence. */
Test(oracle, ranks)
{
    static const plan_shape shapes[] = {
        {"2 ranks", .replicas = {1}, .buckets = 2, BATCH, .tp = 2},
        {"4 ranks", .replicas = {1}, .buckets = 1, .global_batch = 8, .micro_batch_size = 4,
         .tp = 4},
        {"data parallel 2, 2 ranks", .replicas = {2}, .buckets = 3, BATCH, .tp = 2},
        {"data parallel 2, 2 ranks, zero 2", .replicas = {2}, .buckets = 2, BATCH, .tp = 2,
         .zero = 2},
        {"gpipe 2 stages of 2 ranks", GPIPE, .replicas = {1, 1}, .cuts = {13}, .buckets = 1, BATCH,
         .tp = 2},
        {"1f1b 2 stages of 2 ranks, selective", ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {7},
         .buckets = 2, .global_batch = 8, .micro_batch_size = 2, .tp = 2,
         .recompute = TY_RECOMPUTE_SELECTIVE},
        {"1f1b 2 stages of 2 ranks, full, loss alone", ONE_F_ONE_B, .replicas = {1, 1},
         .cuts = {27}, .buckets = 1, BATCH, .tp = 2, .recompute = TY_RECOMPUTE_FULL},
        {"interleaved 2 x 2 of 2 ranks", INTERLEAVED, .replicas = {1, 1, 1, 1}, .cuts = {7, 13, 19},
         .buckets = 1, BATCH, .virtual_stages = 2, .tp = 2},
        {"zb-h1 2 stages of 2 ranks", ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {13}, .buckets = 1,
         BATCH, .tp = 2},
    };

    compare("gpt-tiny sequence=32", shapes, sizeof shapes / sizeof shapes[0], 6, 1e-5, 1e-3);
}

Test(oracle, ranks_along_the_sequence)
{
    static const plan_shape shapes[] = {
        {"2 ranks", .replicas = {1}, .buckets = 2, BATCH, .tp = 2, .divides_sequence = true},
        {"4 ranks", .replicas = {1}, .buckets = 1, .global_batch = 8, .micro_batch_size = 4,
         .tp = 4, .divides_sequence = true},
        {"data parallel 2, 2 ranks", .replicas = {2}, .buckets = 3, .global_batch = 8,
         .micro_batch_size = 2, .tp = 2, .divides_sequence = true},
        {"data parallel 2, 2 ranks, zero 3", .replicas = {2}, .buckets = 2, BATCH, .tp = 2,
         .divides_sequence = true, .zero = 3},
        {"gpipe 2 stages of 2 ranks", GPIPE, .replicas = {1, 1}, .cuts = {13}, .buckets = 1, BATCH,
         .tp = 2, .divides_sequence = true},
        {"1f1b 2 stages of 2 ranks, selective", ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {7},
         .buckets = 2, .global_batch = 8, .micro_batch_size = 2, .tp = 2, .divides_sequence = true,
         .recompute = TY_RECOMPUTE_SELECTIVE},
        {"1f1b 2 stages of 2 ranks, full, loss alone", ONE_F_ONE_B, .replicas = {1, 1},
         .cuts = {27}, .buckets = 1, BATCH, .tp = 2, .divides_sequence = true,
         .recompute = TY_RECOMPUTE_FULL},
        {"interleaved 2 x 2 of 2 ranks", INTERLEAVED, .replicas = {1, 1, 1, 1}, .cuts = {7, 13, 19},
         .buckets = 1, BATCH, .virtual_stages = 2, .tp = 2, .divides_sequence = true},
        {"zb-h1 2 stages of 2 ranks", ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {13}, .buckets = 1,
         .global_batch = 8, .micro_batch_size = 2, .tp = 2, .divides_sequence = true},
    };

    compare("gpt-tiny sequence=32", shapes, sizeof shapes / sizeof shapes[0], 6, 1e-5, 1e-3);
}

/* Context-parallel ranks: each has its chunks of every sequence. */
Test(oracle, context_ranks)
{
    static const plan_shape shapes[] = {
        {"2 contexts", .replicas = {1}, .buckets = 2, BATCH, .contexts = 2},
        {"4 contexts", .replicas = {1}, .buckets = 1, .global_batch = 8, .micro_batch_size = 4,
         .contexts = 4},
        {"data parallel 2, 2 contexts, tree", .replicas = {2}, .buckets = 3, .global_batch = 8,
         .micro_batch_size = 2, .contexts = 2, .algorithm = TY_TREE},
        {"2 contexts, zero 2", .replicas = {1}, .buckets = 2, BATCH, .contexts = 2, .zero = 2},
        {"data parallel 2, 2 contexts, zero 3", .replicas = {2}, .buckets = 2, BATCH, .contexts = 2,
         .zero = 3},
        {"gpipe 2 stages of 2 contexts", GPIPE, .replicas = {1, 1}, .cuts = {13}, .buckets = 1,
         BATCH, .contexts = 2},
        {"1f1b 2+1 of 2 contexts", ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {13}, .buckets = 2,
         BATCH, .contexts = 2},
        {"1f1b 2 stages of 2 contexts, selective", ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {7},
         .buckets = 2, .global_batch = 8, .micro_batch_size = 2, .contexts = 2,
         .recompute = TY_RECOMPUTE_SELECTIVE},
        {"1f1b 2 stages of 2 contexts, full, loss alone", ONE_F_ONE_B, .replicas = {1, 1},
         .cuts = {27}, .buckets = 1, BATCH, .contexts = 2, .recompute = TY_RECOMPUTE_FULL},
        {"interleaved 2 x 2 of 2 contexts", INTERLEAVED, .replicas = {1, 1, 1, 1},
         .cuts = {7, 13, 19}, .buckets = 1, BATCH, .virtual_stages = 2, .contexts = 2},
        {"zb-h1 2 stages of 2 contexts", ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {13},
         .buckets = 1, BATCH, .contexts = 2},
        {"2 contexts, top-k 1", .replicas = {1}, .buckets = 2, BATCH, .contexts = 2,
         .compression.kind = TY_COMPRESSION_TOP_K, .compression.ratio = 1},
        {"data parallel 2, 2 contexts, hierarchical", .replicas = {2}, .buckets = 2, BATCH,
         .contexts = 2, .algorithm = TY_HIERARCHICAL,
         .cluster = "host:2 gpu:2 @t4 pcie3 eth10 nics=2"},
    };

    compare("gpt-tiny sequence=32", shapes, sizeof shapes / sizeof shapes[0], 6, 1e-5, 1e-3);
}

Test(oracle, context_and_tensor_ranks)
{
    static const plan_shape shapes[] = {
        {"2 x 2", .replicas = {1}, .buckets = 2, BATCH, .tp = 2, .contexts = 2},
        {"2 x 2 along the sequence", .replicas = {1}, .buckets = 2, .global_batch = 8,
         .micro_batch_size = 2, .tp = 2, .contexts = 2, .divides_sequence = true},
        {"2 x 4 along the sequence, zero 1", .replicas = {1}, .buckets = 2, BATCH, .tp = 2,
         .contexts = 4, .divides_sequence = true, .zero = 1},
        {"data parallel 2, 2 x 2", .replicas = {2}, .buckets = 1, BATCH, .tp = 2, .contexts = 2},
        {"1f1b 2 stages of 2 x 2", ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {13}, .buckets = 2,
         BATCH, .tp = 2, .contexts = 2},
        {"zb-h1 2 stages of 2 x 2 along the sequence", ZERO_BUBBLE, .replicas = {1, 1},
         .cuts = {13}, .buckets = 1, .global_batch = 8, .micro_batch_size = 2, .tp = 2,
         .contexts = 2, .divides_sequence = true},
    };

    compare("gpt-tiny sequence=32", shapes, sizeof shapes / sizeof shapes[0], 6, 1e-5, 1e-3);
}

#undef BATCH
#define BATCH .global_batch = 16, .micro_batch_size = 4

/* Bytes in a deterministic order; a tenth of them is the test set. */
static void write_text(const char *path)
{
    FILE *file = fopen(path, "w");

    cr_assert_not_null(file, "%s", path);
    for (uint32_t i = 0; i < 10000; i++)
        fputc('a' + (int)(i * i % 7), file);
    fclose(file);
}

/* Trains on the text and evaluates its test set after every second step. */
static ty_run *evaluated(ty_plan *plan, const char *directory, ty_target until)
{
    ty_job *job;
    ty_run *run = NULL;
    ty_text path = {0};
    ty_error error = {0};

    ty_free(plan->workload->dataset);
    plan->workload->dataset = ty_strdup("text");
    cr_assert_eq(ty_workload_digest(plan->workload, &plan->workload_digest, &error), TY_OK);
    ty_text_addf(&path, "%s/text", directory);
    write_text(path.data);
    job = make_job_on(plan, 4, directory);
    ty_free(job->data);
    cr_assert_eq(ty_text_take(&path, &job->data, &error), TY_OK);
    job->until = until;
    job->evaluate_every = 2;
    cr_assert_eq(
        ty_execute_job_locally(job, ty_plan_rank_count(plan), &(ty_execute_options){0}, &error),
        TY_OK, "%s: %s", plan->strategy, error.message);
    cr_assert_eq(ty_run_load(job->output, &run, &error), TY_OK, "%s", error.message);
    ty_job_free(job);
    return run;
}

/* Tensor-parallel ranks report the test results of a single rank, whichever replica has a batch.
 * Training stops at the first test loss that is small enough. */
Test(oracle, ranks_evaluate)
{
    static const plan_shape shapes[] = {
        {"2 ranks", .replicas = {1}, .buckets = 1, BATCH, .tp = 2},
        {"data parallel 2, 2 ranks, zero 3", .replicas = {2}, .buckets = 2, BATCH, .tp = 2,
         .zero = 3},
        {"1f1b 2 stages of 2 ranks", ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {13}, .buckets = 1,
         BATCH, .tp = 2, .divides_sequence = true},
    };
    char *directory = directory_make();
    ty_plan *plan = make_plan(narrow("gpt-tiny sequence=16"), &shapes[0]);
    ty_run *alone =
        evaluated(plan_alone(plan, plan->micro_batch_size), directory, (ty_target){.loss = 1e-3});
    const ty_evaluation *expected = alone->evaluations;

    ty_plan_free(plan);
    cr_assert_eq(alone->evaluation_count, 2);
    cr_assert(expected[1].loss < expected[0].loss, "%g, then %g", expected[0].loss,
              expected[1].loss);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const char *name = shapes[i].name;
        ty_run *run = evaluated(make_plan(narrow("gpt-tiny sequence=16"), &shapes[i]), directory,
                                (ty_target){.loss = expected[1].loss + 1e-3});
        cr_assert_eq(run->evaluation_count, 2, "%s", name);
        for (uint32_t e = 0; e < 2; e++) {
            const ty_evaluation *found = &run->evaluations[e];
            cr_expect_eq(found->step, 2 * (e + 1), "%s", name);
            cr_expect(fabs(found->loss - expected[e].loss) < 1e-4 * expected[e].loss,
                      "%s: loss %g, expected %g", name, found->loss, expected[e].loss);
            cr_expect(fabs(found->accuracy - expected[e].accuracy) < 1e-2,
                      "%s: accuracy %g, expected %g", name, found->accuracy, expected[e].accuracy);
        }
        cr_expect_eq(ty_run_reached(run)->step, 4, "%s", name);
        ty_run_free(run);
    }
    ty_run_free(alone);
    directory_remove(directory);
}

#undef BATCH
#define BATCH .global_batch = 24, .micro_batch_size = 3

/* Sending every element as a top-k pair is lossless. */
Test(oracle, top_k_of_everything)
{
    static const plan_shape shapes[] = {
        {"data parallel 4, top-k 1", .replicas = {4}, .buckets = 3, BATCH,
         .compression.kind = TY_COMPRESSION_TOP_K, .compression.ratio = 1},
        {"1f1b 2+1, top-k 1", ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {5}, .buckets = 2, BATCH,
         .compression.kind = TY_COMPRESSION_TOP_K, .compression.ratio = 1},
    };

    compare("lenet", shapes, sizeof shapes / sizeof shapes[0], 10, 1e-5, 1e-4);
}

/* A half has 11 significant bits: 2^-11 in each direction and one more rounding per hop. */
Test(oracle, halves)
{
    static const plan_shape shapes[] = {
        {"data parallel 2, fp16", .replicas = {2}, .buckets = 2, BATCH,
         .compression.kind = TY_COMPRESSION_FP16},
        {"zero 2, 2 replicas, fp16", .replicas = {2}, .buckets = 2, BATCH, .zero = 2,
         .compression.kind = TY_COMPRESSION_FP16},
        {"data parallel 4, fp16 tree", .replicas = {4}, .buckets = 1, BATCH, .algorithm = TY_TREE,
         .compression.kind = TY_COMPRESSION_FP16},
        {"block manager 4, fp16", .replicas = {4}, .buckets = 1, BATCH,
         .algorithm = TY_BLOCK_MANAGER, .compression.kind = TY_COMPRESSION_FP16},
        {"hierarchical 2 x 2, fp16", .replicas = {4}, .buckets = 2, BATCH,
         .algorithm = TY_HIERARCHICAL, .cluster = THREE_PAIRS,
         .compression.kind = TY_COMPRESSION_FP16},
    };

    compare("lenet", shapes, sizeof shapes / sizeof shapes[0], 10, 4.0 / 2048, 1e-2);
}

/* A bfloat has 8 significant bits: 2^-8 in each direction and one more rounding per hop. */
Test(oracle, brain_floats)
{
    static const plan_shape shapes[] = {
        {"data parallel 2, bf16", .replicas = {2}, .buckets = 2, BATCH,
         .compression.kind = TY_COMPRESSION_BF16},
        {"zero 1, 2 replicas, bf16", .replicas = {2}, .buckets = 2, BATCH, .zero = 1,
         .compression.kind = TY_COMPRESSION_BF16},
        {"zero 2, 2 replicas, bf16", .replicas = {2}, .buckets = 2, BATCH, .zero = 2,
         .compression.kind = TY_COMPRESSION_BF16},
        {"zero 3, 4 replicas, bf16", .replicas = {4}, .buckets = 2, BATCH, .zero = 3,
         .compression.kind = TY_COMPRESSION_BF16},
    };

    compare("lenet", shapes, sizeof shapes / sizeof shapes[0], 10, 4.0 / 256, 5e-2);
}

/* Sharding the payload of random-k equals the payload of the shards: the same indices, sums and
 * residuals as without ZeRO. */
Test(oracle, random_k_in_shares)
{
    static const plan_shape shape = {
        .name = "data parallel 2, random-k",
        .replicas = {2},
        .buckets = 1,
        BATCH,
        .compression = {.kind = TY_COMPRESSION_RANDOM_K, .ratio = 0.2}};
    const outcome expected = run_plan(narrow("mlp"), &shape, 8);

    for (uint32_t zero = 1; zero <= 3; zero++) {
        plan_shape sharded = shape;
        outcome found;

        sharded.zero = zero;
        found = run_plan(narrow("mlp"), &sharded, 8);
        for (uint32_t s = 0; s < 8; s++)
            cr_assert(fabs(found.run->losses[s] - expected.run->losses[s]) <=
                          1e-6 * expected.run->losses[s],
                      "ZeRO %u: loss of step %u is %.9g, expected %.9g", zero, s,
                      found.run->losses[s], expected.run->losses[s]);
        outcome_free(&found);
    }
    outcome_free((outcome *)&expected);
}

/* Valid plans that the runtime does not support are refused with a reason. */
Test(oracle, refusals)
{
    static const struct {
        plan_shape shape;
        const char *words;
    } rows[] = {
        {{"random-k whose shares differ", .replicas = {2}, .buckets = 1, BATCH, .zero = 1,
          .compression = {.kind = TY_COMPRESSION_RANDOM_K, .ratio = 0.5}},
         "/buckets/0: found random-k of 931845 elements shared by 2 devices"},
        {{"local steps, fp16", .replicas = {2}, .buckets = 1, BATCH, .local_steps = 3,
          .compression.kind = TY_COMPRESSION_FP16},
         "3 local steps with compressed weights"},
        {{"local steps, zero", .replicas = {2}, .buckets = 1, BATCH, .local_steps = 3, .zero = 1},
         "3 local steps with ZeRO"},
        {{"local steps, 2+1", ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {5}, .buckets = 1, BATCH,
          .local_steps = 3},
         "3 local steps with stages of unequal replicas"},
        {{"local steps, pipedream", .schedule = TY_PIPEDREAM, .replicas = {1, 1}, .cuts = {3},
          .buckets = 1, BATCH, .local_steps = 3},
         "3 local steps with an asynchronous schedule"},
        {{"local steps, along the sequence", .replicas = {2}, .buckets = 1, BATCH, .local_steps = 3,
          .tp = 2, .divides_sequence = true},
         "3 local steps with sequence parallelism"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *directory = directory_make();
        const char *workload = rows[i].shape.tp > 1 ? "gpt-tiny sequence=32" : "mlp";
        ty_job *job = make_job(make_plan(workload, &rows[i].shape), 3, directory);
        ty_error error = {0};

        cr_assert_eq(ty_execute_job_locally(job, ty_plan_rank_count(job->plan),
                                            &(ty_execute_options){0}, &error),
                     TY_EUNSUPPORTED, "%s: %s", rows[i].shape.name, error.message);
        cr_assert_not_null(strstr(error.message, rows[i].words), "%s: %s", rows[i].shape.name,
                           error.message);
        ty_job_free(job);
        directory_remove(directory);
    }
}

/* Plans that need a function that a backend lacks are refused by name, before any stage is
 * opened. */
Test(oracle, a_backend_without)
{
    static const struct {
        size_t function;
        const char *workload;
        plan_shape shape;
        const char *words;
    } rows[] = {
        {offsetof(ty_device_backend, select),
         "mlp",
         {"pipedream", .schedule = TY_PIPEDREAM, .replicas = {1, 1}, .cuts = {3}, .buckets = 1,
          BATCH},
         "found several sets of weights"},
        {offsetof(ty_device_backend, select_gradients),
         "mlp",
         {"late", .replicas = {2}, .buckets = 1, BATCH, .staleness = 1},
         "found late gradients (staleness)"},
        {offsetof(ty_device_backend, backward_weight),
         "mlp",
         {"zb-h1", ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {3}, .buckets = 1, BATCH},
         "found backward in two parts"},
        {offsetof(ty_device_backend, shards_join),
         "gpt-tiny sequence=32",
         {"2 contexts", .replicas = {1}, .buckets = 1, BATCH, .contexts = 2},
         "found tensor or context parallelism"},
        {offsetof(ty_device_backend, expert_slice),
         moe_small,
         {"2 experts", .replicas = {1}, .buckets = 1, .global_batch = 8, .micro_batch_size = 2,
          .experts = 2},
         "found expert parallelism"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_device_backend partial = ty_device_cpu;
        ty_plan *plan = make_plan(rows[i].workload, &rows[i].shape);
        const ty_interpreter_options options = {.plan = plan, .backend = &partial};
        ty_interpreter *opened = NULL;
        ty_error error = {0};

        memset((char *)&partial + rows[i].function, 0, sizeof partial.close);
        cr_assert_eq(ty_interpreter_open(&options, &opened, &error), TY_EUNSUPPORTED, "%s",
                     rows[i].shape.name);
        cr_assert_not_null(strstr(error.message, rows[i].words), "%s: %s", rows[i].shape.name,
                           error.message);
        ty_plan_free(plan);
    }
}

/* Residuals of top-k are sent later: the model trains, but with different results. */
Test(oracle, top_k_learns)
{
    static const plan_shape alone = {.name = "one rank",
                                     .replicas = {1},
                                     .buckets = 1,
                                     .global_batch = 24,
                                     .micro_batch_size = 24};
    static const plan_shape sparse = {"data parallel 2, top-k 0.05",
                                      .replicas = {2},
                                      .buckets = 2,
                                      BATCH,
                                      .compression.kind = TY_COMPRESSION_TOP_K,
                                      .compression.ratio = 0.05};
    outcome expected = run_plan(narrow("mlp"), &alone, 50),
            found = run_plan(narrow("mlp"), &sparse, 50);
    double first = 0, last = 0, difference = 0;

    for (uint32_t i = 0; i < 10; i++) {
        first += found.run->losses[i];
        last += found.run->losses[40 + i];
        difference += fabs(found.run->losses[40 + i] - expected.run->losses[40 + i]);
    }
    cr_assert(last < 0.8 * first, "mean loss %g, then %g", first / 10, last / 10);
    cr_assert(difference > 1e-3);
    outcome_free(&expected);
    outcome_free(&found);
}

/* ResNet-18 on images of 64 by 64, with an eighth of the width. Batch norm depends on
 * micro-batches, so the single rank has the same ones. Blocks start after layer 4 (convolution,
 * norm, relu, pool). */
Test(oracle, resnet18)
{
    static const char text[] =
        "{\"schema\": \"trainyard.zoo/1\", \"name\": \"resnet18-small\", \"family\": \"residual\","
        "\"source\": \"resnet18.json\", \"input\": [3, 64, 64], \"sample_bytes\": 12290,"
        "\"block\": \"basic\", \"blocks\": [2, 2, 2, 2], \"width\": 8, \"classes\": 10,"
        "\"dataset\": \"synthetic\", \"global_batch\": 16, \"optimizer\": {\"kind\": \"sgd\","
        "\"learning_rate\": 0.02, \"momentum\": 0.9, \"weight_decay\": 0.0001}}";
    static const plan_shape shapes[] = {
        {"data parallel 2", .replicas = {2}, .buckets = 3, .global_batch = 16,
         .micro_batch_size = 4},
        {"1f1b 2 stages, recompute", ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {18}, .buckets = 1,
         .global_batch = 16, .micro_batch_size = 4, .recompute = TY_RECOMPUTE_FULL},
        {"zb-h1 2 stages", ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {18}, .buckets = 1,
         .global_batch = 16, .micro_batch_size = 4},
        {"zero 3, 2 replicas", .replicas = {2}, .buckets = 3, .global_batch = 16,
         .micro_batch_size = 4, .zero = 3},
        /* After layers 6, 13 and 23 the cut also transfers the sum's other operand. */
        {"1f1b 2 stages, cut inside a block", ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {7},
         .buckets = 1, .global_batch = 16, .micro_batch_size = 4},
        {"gpipe 4 stages, cuts inside blocks, recompute", GPIPE, .replicas = {1, 1, 1, 1},
         .cuts = {7, 14, 24}, .buckets = 1, .global_batch = 16, .micro_batch_size = 4,
         .recompute = TY_RECOMPUTE_FULL},
        {"zb-h1 3 stages, cuts inside a block", ZERO_BUBBLE, .replicas = {1, 1, 1}, .cuts = {7, 9},
         .buckets = 1, .global_batch = 16, .micro_batch_size = 4},
        {"1f1b 2 stages, cut inside a block, blocks", ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {7},
         .buckets = 1, .global_batch = 16, .micro_batch_size = 4, .recompute = TY_RECOMPUTE_FULL,
         .recompute_blocks = 1},
        {"data parallel 2, operator", .replicas = {2}, .buckets = 3, .global_batch = 16,
         .micro_batch_size = 4, .recompute = TY_RECOMPUTE_OPERATOR},
    };

    compare_in(text, 4, shapes, sizeof shapes / sizeof shapes[0], 6, 1e-4, 1e-3);
}

#define BLOCKS(n) .recompute = TY_RECOMPUTE_FULL, .recompute_blocks = n
#define OPERATOR .recompute = TY_RECOMPUTE_OPERATOR
#define ELEMENTWISE .recompute = TY_RECOMPUTE_ELEMENTWISE

/* Segments of blocks, and every second product: buckets smaller and larger than a segment. */
Test(oracle, recompute_in_segments)
{
    static const plan_shape mlp[] = {
        {"data parallel 2, blocks", .replicas = {2}, .buckets = 3, BATCH, BLOCKS(1)},
        {"1f1b 2 stages, operator", ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {3}, .buckets = 1,
         BATCH, OPERATOR},
        {"gpipe 2+1, blocks", GPIPE, .replicas = {2, 1}, .cuts = {3}, .buckets = 2, BATCH,
         BLOCKS(1)},
    };
    static const plan_shape lenet[] = {
        {"one rank, blocks", .replicas = {1}, .buckets = 1, BATCH, BLOCKS(1)},
        {"data parallel 2, operator", .replicas = {2}, .buckets = 3, BATCH, OPERATOR},
        {"gpipe 2 stages, blocks", GPIPE, .replicas = {1, 1}, .cuts = {5}, .buckets = 1, BATCH,
         BLOCKS(1)},
    };
    static const plan_shape gpt[] = {
        {"1f1b 2+1, elementwise", ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {10}, .buckets = 2,
         BATCH, ELEMENTWISE},
        {"gpipe 2 stages of 2 ranks along the sequence, elementwise", GPIPE, .replicas = {1, 1},
         .cuts = {13}, .buckets = 1, BATCH, .tp = 2, .divides_sequence = true, ELEMENTWISE},
        {"zero 3, elementwise", .replicas = {2}, .buckets = 3, BATCH, .zero = 3, ELEMENTWISE},
        {"data parallel 2, blocks", .replicas = {2}, .buckets = 5, BATCH, BLOCKS(1)},
        {"data parallel 2, operator", .replicas = {2}, .buckets = 2, BATCH, OPERATOR},
        {"1f1b 2 stages, blocks", ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {13}, .buckets = 1,
         BATCH, BLOCKS(1)},
        {"gpipe 3 stages, cuts inside blocks, pairs", GPIPE, .replicas = {1, 1, 1}, .cuts = {5, 18},
         .buckets = 1, BATCH, BLOCKS(2)},
        {"1f1b 2+1, operator", ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {10}, .buckets = 2, BATCH,
         OPERATOR},
        {"interleaved 2 x 2, blocks", INTERLEAVED, .replicas = {1, 1, 1, 1}, .cuts = {7, 13, 19},
         .buckets = 1, BATCH, .virtual_stages = 2, BLOCKS(1)},
        {"2 ranks along the sequence, operator", .replicas = {1}, .buckets = 2, BATCH, .tp = 2,
         .divides_sequence = true, OPERATOR},
        {"2 ranks, blocks", .replicas = {2}, .buckets = 2, BATCH, .tp = 2, BLOCKS(1)},
        {"2 contexts, operator", .replicas = {1}, .buckets = 2, BATCH, .contexts = 2, OPERATOR},
        {"zero 3, buckets smaller than blocks", .replicas = {2}, .buckets = 9, BATCH, .zero = 3,
         BLOCKS(1)},
        {"zero 3, buckets larger than blocks", .replicas = {2}, .buckets = 2, BATCH, .zero = 3,
         BLOCKS(1)},
        {"zero 3, operator", .replicas = {2}, .buckets = 3, BATCH, .zero = 3, OPERATOR},
        {"zero 2, 2+2, pairs", ONE_F_ONE_B, .replicas = {2, 2}, .cuts = {13}, .buckets = 2, BATCH,
         .zero = 2, BLOCKS(2)},
    };

    compare("mlp", mlp, sizeof mlp / sizeof mlp[0], 8, 1e-5, 1e-5);
    compare("lenet", lenet, sizeof lenet / sizeof lenet[0], 8, 1e-5, 1e-3);
    compare("gpt-tiny sequence=32", gpt, sizeof gpt / sizeof gpt[0], 5, 1e-5, 1e-3);
}

/* As in a U-Net, the last layers read the output of the first ones again, at two nested levels: the
 * channel concatenation in 9 reads layer 1, the one in 6 reads layer 3. */
static const char u_net[] =
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"u-net-small\", \"family\": \"sequential\","
    "\"source\": \"unet.json\", \"input\": [2, 10, 10], \"sample_bytes\": 801,"
    "\"dataset\": \"synthetic\", \"global_batch\": 24, \"optimizer\": {\"kind\": \"sgd\","
    "\"learning_rate\": 0.05, \"momentum\": 0.9, \"weight_decay\": 0}, \"layers\": ["
    "{\"kind\": \"conv2d\", \"out_channels\": 5, \"kernel\": 3, \"padding\": 1}, {\"kind\": "
    "\"relu\"},"
    "{\"branches\": [[], [{\"kind\": \"conv2d\", \"out_channels\": 6, \"kernel\": 3, \"padding\": "
    "1},"
    "{\"kind\": \"relu\"}, {\"branches\": [[], [{\"kind\": \"conv2d\", \"out_channels\": 7,"
    "\"kernel\": 3, \"padding\": 1}, {\"kind\": \"relu\"}]], \"join\": \"concat\"},"
    "{\"kind\": \"conv2d\", \"out_channels\": 4, \"kernel\": 3, \"padding\": 1},"
    "{\"kind\": \"relu\"}]], \"join\": \"concat\"},"
    "{\"kind\": \"conv2d\", \"out_channels\": 3, \"kernel\": 3}, {\"kind\": \"relu\"},"
    "{\"kind\": \"flatten\"}, {\"kind\": \"linear\", \"out_features\": 10},"
    "{\"kind\": \"softmax_cross_entropy\"}]}";

Test(oracle, u_net)
{
    static const plan_shape shapes[] = {
        {"1f1b 2 stages", ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {4}, .buckets = 1, BATCH},
        {"gpipe 4 stages", GPIPE, .replicas = {1, 1, 1, 1}, .cuts = {4, 7, 9}, .buckets = 2, BATCH},
        {"1f1b 4 stages, recompute", ONE_F_ONE_B, .replicas = {1, 1, 1, 1}, .cuts = {3, 5, 8},
         .buckets = 1, BATCH, .recompute = TY_RECOMPUTE_FULL},
        {"1f1b 1+2+1", ONE_F_ONE_B, .replicas = {1, 2, 1}, .cuts = {5, 9}, .buckets = 2, BATCH},
        {"zb-h1 3 stages", ZERO_BUBBLE, .replicas = {1, 1, 1}, .cuts = {4, 8}, .buckets = 1, BATCH},
        {"1f1b 2 stages, operator", ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {4}, .buckets = 1,
         BATCH, .recompute = TY_RECOMPUTE_OPERATOR},
        {"interleaved 2 x 2", INTERLEAVED, .replicas = {1, 1, 1, 1}, .cuts = {4, 7, 9},
         .buckets = 1, .virtual_stages = 2, BATCH},
        {"zero 3, 2+2", ONE_F_ONE_B, .replicas = {2, 2}, .cuts = {5}, .buckets = 2, .zero = 3,
         BATCH},
    };
    static const plan_shape frozen[] = {
        {"1f1b 3 stages", ONE_F_ONE_B, .replicas = {1, 1, 1}, .cuts = {4, 7}, .buckets = 1, BATCH,
         .frozen = 2},
        {"gpipe 4 stages", GPIPE, .replicas = {1, 1, 1, 1}, .cuts = {2, 5, 9}, .buckets = 1, BATCH,
         .frozen = 4},
    };

    compare(u_net, shapes, sizeof shapes / sizeof shapes[0], 6, 1e-5, 1e-4);
    compare(u_net, &frozen[0], 1, 6, 1e-5, 1e-4);
    compare(u_net, &frozen[1], 1, 6, 1e-5, 1e-4);
}

/* Two of four experts process each token, whatever else is in its micro-batch. */
Test(oracle, experts)
{
    static const plan_shape shapes[] = {
        {"data parallel 2", .replicas = {2}, .buckets = 3, .global_batch = 8,
         .micro_batch_size = 2},
        {"1f1b 2+1, selective", ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {7}, .buckets = 2,
         .global_batch = 8, .micro_batch_size = 2, .recompute = TY_RECOMPUTE_SELECTIVE},
        {"gpipe 2 stages, full, cut before experts", GPIPE, .replicas = {1, 1}, .cuts = {5},
         .buckets = 1, .global_batch = 8, .micro_batch_size = 2, .recompute = TY_RECOMPUTE_FULL},
        {"zb-h1 2 stages", ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {7}, .buckets = 1,
         .global_batch = 8, .micro_batch_size = 2},
        {"data parallel 2, zero 3", .replicas = {2}, .buckets = 3, .global_batch = 8,
         .micro_batch_size = 4, .zero = 3},
        {"data parallel 2, 2 contexts", .replicas = {2}, .buckets = 2, .global_batch = 8,
         .micro_batch_size = 2, .contexts = 2},
    };

    compare(moe_small, shapes, sizeof shapes / sizeof shapes[0], 10, 1e-4, 1e-3);
}

/* Expert-parallel ranks with two of the four experts each, or one, and a share of the samples. */
Test(oracle, expert_ranks)
{
    static const plan_shape shapes[] = {
        {"2 experts", .replicas = {1}, .buckets = 3, .global_batch = 8, .micro_batch_size = 4,
         .experts = 2},
        {"4 experts", .replicas = {1}, .buckets = 1, .global_batch = 8, .micro_batch_size = 4,
         .experts = 4},
        {"data parallel 2, 2 experts, tree", .replicas = {2}, .buckets = 3, .global_batch = 8,
         .micro_batch_size = 2, .experts = 2, .algorithm = TY_TREE},
        {"2 experts, 2 contexts", .replicas = {1}, .buckets = 2, .global_batch = 8,
         .micro_batch_size = 4, .experts = 2, .contexts = 2},
        {"data parallel 2, 2 experts, 2 contexts", .replicas = {2}, .buckets = 2, .global_batch = 8,
         .micro_batch_size = 2, .experts = 2, .contexts = 2},
        {"1f1b 2+1 of 2 experts, selective", ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {7},
         .buckets = 2, .global_batch = 8, .micro_batch_size = 2, .experts = 2,
         .recompute = TY_RECOMPUTE_SELECTIVE},
        {"gpipe 2 stages of 2 experts, full, cut before experts", GPIPE, .replicas = {1, 1},
         .cuts = {5}, .buckets = 1, .global_batch = 8, .micro_batch_size = 2, .experts = 2,
         .recompute = TY_RECOMPUTE_FULL},
        {"zb-h1 2 stages of 2 experts", ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {7}, .buckets = 2,
         .global_batch = 8, .micro_batch_size = 2, .experts = 2},
        {"interleaved 2 x 2 of 2 experts", INTERLEAVED, .replicas = {1, 1, 1, 1},
         .cuts = {4, 7, 10}, .buckets = 1, .global_batch = 8, .micro_batch_size = 2,
         .virtual_stages = 2, .experts = 2},
        {"2 experts of 2 ranks", .replicas = {1}, .buckets = 2, .global_batch = 8,
         .micro_batch_size = 4, .experts = 2, .tp = 2},
        {"1f1b 2+1 of 2 experts of 2 ranks, zero 3", ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {7},
         .buckets = 2, .global_batch = 8, .micro_batch_size = 2, .experts = 2, .tp = 2, .zero = 3},
        {"2 experts, zero 1", .replicas = {1}, .buckets = 2, .global_batch = 8,
         .micro_batch_size = 4, .experts = 2, .zero = 1},
        {"data parallel 2, 2 experts, zero 2", .replicas = {2}, .buckets = 3, .global_batch = 8,
         .micro_batch_size = 4, .experts = 2, .zero = 2},
        {"1f1b 2+2 of 2 experts, zero 3", ONE_F_ONE_B, .replicas = {2, 2}, .cuts = {7},
         .buckets = 2, .global_batch = 8, .micro_batch_size = 2, .experts = 2, .zero = 3},
        {"data parallel 2, 2 experts, 2 contexts, zero 3", .replicas = {2}, .buckets = 2,
         .global_batch = 8, .micro_batch_size = 4, .experts = 2, .contexts = 2, .zero = 3},
    };

    compare(moe_small, shapes, sizeof shapes / sizeof shapes[0], 10, 1e-4, 1e-3);
}

#define EIGHT .global_batch = 8, .micro_batch_size = 2

/* Two recurrent layers with a residual sum, as in GNMT. */
Test(oracle, lstm)
{
    static const char text[] =
        "{\"schema\": \"trainyard.zoo/1\", \"name\": \"lstm-small\", \"family\": \"sequential\","
        "\"source\": \"gnmt-8.json\", \"sequence\": 12, \"token_bytes\": 4, \"dataset\": "
        "\"synthetic\","
        "\"global_batch\": 8, \"optimizer\": {\"kind\": \"adamw\", \"learning_rate\": 0.01,"
        "\"weight_decay\": 0, \"beta1\": 0.9, \"beta2\": 0.999, \"epsilon\": 1e-08},"
        "\"layers\": [{\"kind\": \"embedding\", \"vocabulary\": 64, \"features\": 24},"
        "{\"kind\": \"lstm\", \"hidden_features\": 24},"
        "{\"branches\": [[], [{\"kind\": \"lstm\", \"hidden_features\": 24}]], \"join\": \"add\"},"
        "{\"kind\": \"linear\", \"out_features\": 64}, {\"kind\": \"softmax_cross_entropy\"}]}";
    static const plan_shape shapes[] = {
        {"data parallel 2", .replicas = {2}, .buckets = 2, .global_batch = 8,
         .micro_batch_size = 2},
        {"1f1b 2 stages", ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {2}, .buckets = 1,
         .global_batch = 8, .micro_batch_size = 2},
        {"zb-h1 2 stages", ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {2}, .buckets = 1,
         .global_batch = 8, .micro_batch_size = 2},
    };

    compare(text, shapes, sizeof shapes / sizeof shapes[0], 10, 1e-5, 1e-4);
}

/* GNMT's form: four tensors at each cut of the decoder. */
Test(oracle, gnmt)
{
    static const char text[] =
        "{\"schema\": \"trainyard.zoo/1\", \"name\": \"gnmt-small\", \"family\": \"sequential\","
        "\"source\": \"gnmt-8.json\", \"sequence\": 12, \"token_bytes\": 4, \"dataset\": "
        "\"synthetic\","
        "\"global_batch\": 8, \"optimizer\": {\"kind\": \"adamw\", \"learning_rate\": 0.01,"
        "\"weight_decay\": 0, \"beta1\": 0.9, \"beta2\": 0.999, \"epsilon\": 1e-08},"
        "\"layers\": [{\"label\": \"batch\"},"
        "{\"kind\": \"embedding\", \"vocabulary\": 64, \"features\": 16},"
        "{\"branches\": [[{\"kind\": \"lstm\", \"hidden_features\": 16}],"
        "[{\"kind\": \"lstm\", \"hidden_features\": 16, \"is_reversed\": true}]],"
        "\"join\": \"concat_features\"}, {\"kind\": \"lstm\", \"hidden_features\": 24},"
        "{\"label\": \"encoded\"}, {\"from\": \"batch\"},"
        "{\"kind\": \"embedding\", \"vocabulary\": 64, \"features\": 16},"
        "{\"kind\": \"lstm\", \"hidden_features\": 20}, {\"label\": \"query\"},"
        "{\"kind\": \"additive_attention\", \"memory\": \"encoded\", \"hidden_features\": 18},"
        "{\"label\": \"context\"}, {\"from\": \"query\"},"
        "{\"branches\": [[], [{\"from\": \"context\"}]], \"join\": \"concat_features\"},"
        "{\"kind\": \"lstm\", \"hidden_features\": 20},"
        "{\"branches\": [[], [{\"branches\": [[], [{\"from\": \"context\"}]],"
        "\"join\": \"concat_features\"}, {\"kind\": \"lstm\", \"hidden_features\": 20}]],"
        "\"join\": \"add\"},"
        "{\"kind\": \"linear\", \"out_features\": 64}, {\"kind\": \"softmax_cross_entropy\"}]}";
    static const plan_shape shapes[] = {
        {"data parallel 2", .replicas = {2}, .buckets = 2, EIGHT},
        {"1f1b 2+1", ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {6}, .buckets = 2, EIGHT},
        {"1f1b 4 stages", ONE_F_ONE_B, .replicas = {1, 1, 1, 1}, .cuts = {6, 8, 10}, .buckets = 1,
         EIGHT},
        {"1f1b 3 stages, recompute", ONE_F_ONE_B, .replicas = {1, 1, 1}, .cuts = {7, 9},
         .buckets = 1, EIGHT, .recompute = TY_RECOMPUTE_FULL},
        {"zb-h1 3 stages", ZERO_BUBBLE, .replicas = {1, 1, 1}, .cuts = {7, 10}, .buckets = 1,
         EIGHT},
        {"data parallel 2, zero 3", .replicas = {2}, .buckets = 2, EIGHT, .zero = 3},
    };

    compare(text, shapes, sizeof shapes / sizeof shapes[0], 10, 1e-5, 1e-4);
}

/* T5's form: two sequences in one batch; only the second has labels. */
Test(oracle, encoder_decoder)
{
    static const char text[] =
        "{\"schema\": \"trainyard.zoo/1\", \"name\": \"t5-tiny\", \"family\": "
        "\"encoder_decoder\", \"source\": \"t5-small.json\", \"blocks\": 2, \"decoder_blocks\": 2,"
        "\"features\": 32, \"heads\": 4, \"head_size\": 8, \"hidden_features\": 64,"
        "\"relative_buckets\": 8, \"vocabulary\": 34, \"sequence\": 12, \"decoder_sequence\": 7,"
        "\"longest_sequence\": 12, \"token_bytes\": 1, \"dataset\": \"synthetic\","
        "\"global_batch\": 8, \"optimizer\": {\"kind\": \"adamw\", \"learning_rate\": 0.01,"
        "\"weight_decay\": 0.1, \"beta1\": 0.9, \"beta2\": 0.95, \"epsilon\": 1e-05}}";
    static const plan_shape shapes[] = {
        {"data parallel 2", .replicas = {2}, .buckets = 2, EIGHT},
        {"2 ranks", .replicas = {1}, .buckets = 2, EIGHT, .tp = 2},
        {"4 ranks", .replicas = {1}, .buckets = 2, EIGHT, .tp = 4},
        {"1f1b 2+1", ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {15}, .buckets = 2, EIGHT},
        {"1f1b 4 stages", ONE_F_ONE_B, .replicas = {1, 1, 1, 1}, .cuts = {7, 15, 25}, .buckets = 1,
         EIGHT},
        {"1f1b 2 stages of 2 ranks", ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {20}, .buckets = 1,
         EIGHT, .tp = 2},
        {"1f1b 2 stages, selective", ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {18}, .buckets = 1,
         EIGHT, .recompute = TY_RECOMPUTE_SELECTIVE},
        {"zb-h1 3 stages", ZERO_BUBBLE, .replicas = {1, 1, 1}, .cuts = {9, 20}, .buckets = 1,
         EIGHT},
        {"interleaved", .schedule = TY_INTERLEAVED, .replicas = {1, 1, 1, 1}, .cuts = {7, 15, 25},
         .buckets = 1, EIGHT, .virtual_stages = 2, .recompute = TY_RECOMPUTE_FULL},
        {"data parallel 2, zero 2", .replicas = {2}, .buckets = 2, EIGHT, .zero = 2},
    };

    compare(text, shapes, sizeof shapes / sizeof shapes[0], 8, 1e-5, 1e-3);
}

/* Qwen3's form: norms of every head's queries and keys. */
Test(oracle, normed_heads)
{
    static const char text[] =
        "{\"schema\": \"trainyard.zoo/1\", \"name\": \"qwen-tiny\", \"family\": \"decoder\","
        "\"source\": \"qwen3-8b.json\", \"blocks\": 2, \"features\": 32, \"heads\": 4,"
        "\"kv_heads\": 2, \"head_size\": 12, \"has_qk_norm\": true, \"hidden_features\": 48,"
        "\"vocabulary\": 34, \"sequence\": 16, \"longest_sequence\": 16, \"token_bytes\": 1,"
        "\"dataset\": \"synthetic\", \"global_batch\": 8, \"optimizer\": {\"kind\": \"adamw\","
        "\"learning_rate\": 0.01, \"weight_decay\": 0.1, \"beta1\": 0.9, \"beta2\": 0.95,"
        "\"epsilon\": 1e-05}}";
    static const plan_shape shapes[] = {
        {"data parallel 2", .replicas = {2}, .buckets = 2, EIGHT},
        {"1f1b 2+1", ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {7}, .buckets = 2, EIGHT},
        {"zb-h1 2 stages", ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {7}, .buckets = 1, EIGHT},
        {"2 contexts", .replicas = {1}, .buckets = 2, EIGHT, .contexts = 2},
        {"selective", .replicas = {2}, .buckets = 2, EIGHT, .recompute = TY_RECOMPUTE_SELECTIVE},
    };

    compare(text, shapes, sizeof shapes / sizeof shapes[0], 8, 1e-5, 1e-3);
}

/* A gated mlp, rms norms, two query heads per key-value head, a vocabulary that is no multiple of
 * the TP size: the fourth of four ranks has 7 words and 2 of padding. */
Test(oracle, ranks_of_a_decoder)
{
    static const char text[] =
        "{\"schema\": \"trainyard.zoo/1\", \"name\": \"decoder-small\", \"family\": \"decoder\","
        "\"source\": \"llama-2-70b.json\", \"blocks\": 2, \"features\": 64, \"heads\": 8,"
        "\"kv_heads\": 4, \"hidden_features\": 96, \"vocabulary\": 34, \"sequence\": 16,"
        "\"longest_sequence\": 16, \"token_bytes\": 1, \"dataset\": \"synthetic\","
        "\"global_batch\": 8, \"optimizer\": {\"kind\": \"adamw\", \"learning_rate\": 0.01,"
        "\"weight_decay\": 0.1, \"beta1\": 0.9, \"beta2\": 0.95, \"epsilon\": 1e-05}}";
    static const plan_shape shapes[] = {
        {"2 ranks", .replicas = {1}, .buckets = 2, .global_batch = 8, .micro_batch_size = 2,
         .tp = 2},
        {"4 ranks", .replicas = {1}, .buckets = 2, .global_batch = 8, .micro_batch_size = 2,
         .tp = 4},
        {"4 ranks along the sequence", .replicas = {1}, .buckets = 2, .global_batch = 8,
         .micro_batch_size = 2, .tp = 4, .divides_sequence = true},
        {"data parallel 2, 2 ranks along the sequence", .replicas = {2}, .buckets = 2,
         .global_batch = 8, .micro_batch_size = 1, .tp = 2, .divides_sequence = true},
        {"1f1b 2 stages of 2 ranks along the sequence", ONE_F_ONE_B, .replicas = {1, 1},
         .cuts = {7}, .buckets = 1, .global_batch = 8, .micro_batch_size = 2, .tp = 2,
         .divides_sequence = true},
        {"2 contexts", .replicas = {1}, .buckets = 2, .global_batch = 8, .micro_batch_size = 2,
         .contexts = 2},
        {"2 x 4 along the sequence", .replicas = {1}, .buckets = 2, .global_batch = 8,
         .micro_batch_size = 2, .tp = 2, .contexts = 4, .divides_sequence = true},
    };

    compare(text, shapes, sizeof shapes / sizeof shapes[0], 6, 1e-5, 1e-3);
}

/* BERT's form: token types, bidirectional attention, an additional linear layer and a norm before
 * the output layer. */
Test(oracle, context_ranks_of_an_encoder)
{
    static const char text[] =
        "{\"schema\": \"trainyard.zoo/1\", \"name\": \"encoder-small\", \"family\": \"encoder\","
        "\"source\": \"bert-base-mlm.json\", \"blocks\": 2, \"features\": 32, \"heads\": 4,"
        "\"hidden_features\": 64, \"vocabulary\": 34, \"positions\": 16, \"sequence\": 16,"
        "\"token_types\": 2, \"token_bytes\": 1, \"head\": \"masked\", \"dataset\": \"synthetic\","
        "\"global_batch\": 8, \"optimizer\": {\"kind\": \"adamw\", \"learning_rate\": 0.01,"
        "\"weight_decay\": 0.1, \"beta1\": 0.9, \"beta2\": 0.95, \"epsilon\": 1e-05}}";
    static const plan_shape shapes[] = {
        {"2 contexts", .replicas = {1}, .buckets = 2, .global_batch = 8, .micro_batch_size = 2,
         .contexts = 2},
        {"4 contexts", .replicas = {1}, .buckets = 1, .global_batch = 8, .micro_batch_size = 4,
         .contexts = 4},
        {"2 x 2", .replicas = {1}, .buckets = 2, .global_batch = 8, .micro_batch_size = 2, .tp = 2,
         .contexts = 2},
        {"data parallel 2, 2 contexts", .replicas = {2}, .buckets = 2, .global_batch = 8,
         .micro_batch_size = 2, .contexts = 2},
        {"1f1b 2 stages of 2 contexts", ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {8}, .buckets = 1,
         .global_batch = 8, .micro_batch_size = 2, .contexts = 2},
    };

    compare(text, shapes, sizeof shapes / sizeof shapes[0], 6, 1e-5, 1e-3);
}

/* Each rank evaluates its tokens of the test set. Gradient noise is not measured if no replica has
 * a gradient of its own. */
Test(oracle, context_ranks_evaluate)
{
    static const char text[] =
        "{\"schema\": \"trainyard.zoo/1\", \"name\": \"decoder-tiny\", \"family\": \"decoder\","
        "\"source\": \"llama-2-7b.json\", \"blocks\": 2, \"features\": 16, \"heads\": 2,"
        "\"hidden_features\": 16, \"vocabulary\": 8, \"sequence\": 8, \"longest_sequence\": 8,"
        "\"token_bytes\": 1, \"dataset\": \"synthetic\", \"global_batch\": 32,"
        "\"optimizer\": {\"kind\": \"sgd\", \"learning_rate\": 0.1, \"momentum\": 0.9,"
        "\"weight_decay\": 0}}";
    static const plan_shape shapes[] = {
        {"one rank", .replicas = {1}, .buckets = 1, .global_batch = 32, .micro_batch_size = 16},
        {"1f1b 2+1 of 2 contexts", ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {7}, .buckets = 1,
         .global_batch = 32, .micro_batch_size = 16, .contexts = 2},
    };
    char *directory = directory_make();
    outcome found[2];

    for (int i = 0; i < 2; i++) {
        ty_job *job = make_job(make_plan(text, &shapes[i]), 4, directory);

        job->evaluate_every = 2;
        job->until.accuracy = 1;
        found[i] = outcome_of(job);
        cr_assert_eq(found[i].run->evaluation_count, 2);
        cr_assert_eq(found[i].run->noise.steps, 0);
        ty_job_free(job);
    }
    for (int e = 0; e < 2; e++) {
        const ty_evaluation *one = &found[0].run->evaluations[e];
        const ty_evaluation *ranks = &found[1].run->evaluations[e];
        cr_assert_lt(fabs(ranks->loss - one->loss), 1e-4 * one->loss);
        cr_assert_lt(fabs(ranks->accuracy - one->accuracy), 1e-3);
    }
    outcome_free(&found[0]);
    outcome_free(&found[1]);
    directory_remove(directory);
}

/* Tensor-parallel ranks with a shard of every expert. */
Test(oracle, tensor_ranks_of_experts)
{
    static const plan_shape shapes[] = {
        {"2 ranks", .replicas = {1}, .buckets = 3, .global_batch = 8, .micro_batch_size = 4,
         .tp = 2},
        {"data parallel 2, 2 ranks along the sequence", .replicas = {2}, .buckets = 2,
         .global_batch = 8, .micro_batch_size = 2, .tp = 2, .divides_sequence = true},
        {"1f1b 2 stages of 2 ranks, 2 contexts, full", ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {7},
         .buckets = 1, .global_batch = 8, .micro_batch_size = 2, .tp = 2, .contexts = 2,
         .recompute = TY_RECOMPUTE_FULL},
        {"zb-h1 2 stages of 2 ranks", ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {7}, .buckets = 1,
         .global_batch = 8, .micro_batch_size = 2, .tp = 2},
        {"zb-h1 2 stages of 2 ranks along the sequence", ZERO_BUBBLE, .replicas = {1, 1},
         .cuts = {7}, .buckets = 1, .global_batch = 8, .micro_batch_size = 2, .tp = 2,
         .divides_sequence = true},
        {"data parallel 2, 2 ranks, zero 3", .replicas = {2}, .buckets = 2, .global_batch = 8,
         .micro_batch_size = 4, .tp = 2, .zero = 3},
    };

    compare(moe_small, shapes, sizeof shapes / sizeof shapes[0], 10, 1e-4, 1e-3);
}

static void evaluate_alike(const char *workload, const plan_shape shapes[2])
{
    char *directory = directory_make();
    outcome found[2];

    for (int i = 0; i < 2; i++) {
        ty_job *job = make_job(make_plan(workload, &shapes[i]), 4, directory);

        job->evaluate_every = 2;
        job->until.accuracy = 1;
        found[i] = outcome_of(job);
        cr_assert_eq(found[i].run->evaluation_count, 2);
        cr_assert_eq(found[i].run->noise.steps, 1);
        ty_job_free(job);
    }
    for (int e = 0; e < 2; e++) {
        const ty_evaluation *replicas = &found[0].run->evaluations[e];
        const ty_evaluation *ranks = &found[1].run->evaluations[e];
        cr_assert_lt(fabs(ranks->loss - replicas->loss), 1e-4 * replicas->loss);
        cr_assert_lt(fabs(ranks->accuracy - replicas->accuracy), 1e-3);
    }
    outcome_free(&found[0]);
    outcome_free(&found[1]);
    directory_remove(directory);
}

/* Each rank evaluates its samples of the test set. Each rank has its own gradient of everything
 * except the experts, which have no other replica here: gradient noise is measured without them. */
Test(oracle, expert_ranks_evaluate)
{
    static const plan_shape shapes[] = {
        {"data parallel 2", .replicas = {2}, .buckets = 2, .global_batch = 8,
         .micro_batch_size = 4},
        {"2 experts", .replicas = {1}, .buckets = 2, .global_batch = 8, .micro_batch_size = 8,
         .experts = 2},
    };

    evaluate_alike(moe_small, shapes);
}

#define ROWS .compression.kind = TY_COMPRESSION_ROWS

/* Row compression against a single rank: many repeated tokens, a table followed by position rows,
 * and a table with fewer rows than tokens per step. */
Test(oracle, rows_of_a_gpt)
{
    static const char text[] =
        "{\"schema\": \"trainyard.zoo/1\", \"name\": \"gpt-untied\", \"family\": \"transformer\","
        "\"source\": \"gpt-tiny.json\", \"blocks\": 2, \"features\": 32, \"heads\": 4,"
        "\"hidden_features\": 64, \"vocabulary\": 200, \"positions\": 16, \"sequence\": 16,"
        "\"is_tied\": false, \"token_bytes\": 1, \"dataset\": \"synthetic\", \"global_batch\": 8,"
        "\"optimizer\": {\"kind\": \"adamw\", \"learning_rate\": 0.01, \"weight_decay\": 0.1,"
        "\"beta1\": 0.9, \"beta2\": 0.999, \"epsilon\": 1e-08}}";
    static const plan_shape shapes[] = {
        {"data parallel 2, rows", .replicas = {2}, .buckets = 2, EIGHT, ROWS},
        {"data parallel 4, rows", .replicas = {4}, .buckets = 3, EIGHT, ROWS},
        {"data parallel 2, rows, one sample at a time", .replicas = {2}, .buckets = 1,
         .global_batch = 8, .micro_batch_size = 1, ROWS},
        {"1f1b 2+1, rows", ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {7}, .buckets = 2, EIGHT, ROWS},
        {"1f1b 2+2, rows, recompute", ONE_F_ONE_B, .replicas = {2, 2}, .cuts = {7}, .buckets = 1,
         EIGHT, ROWS, .recompute = TY_RECOMPUTE_FULL},
        {"zb-h1 2+2, rows", ZERO_BUBBLE, .replicas = {2, 2}, .cuts = {7}, .buckets = 1, EIGHT,
         ROWS},
        {"interleaved 2+2, rows", INTERLEAVED, .replicas = {2, 2, 2, 2}, .cuts = {4, 7, 10},
         .buckets = 1, EIGHT, .virtual_stages = 2, ROWS},
        {"data parallel 4, rows, hierarchical", .replicas = {4}, .buckets = 2, EIGHT, ROWS,
         .algorithm = TY_HIERARCHICAL, .cluster = THREE_PAIRS},
    };

    compare(text, shapes, sizeof shapes / sizeof shapes[0], 8, 1e-5, 1e-3);
}

/* Two embeddings, the second one in the middle, as in GNMT. */
Test(oracle, rows_of_two_embeddings)
{
    static const char text[] =
        "{\"schema\": \"trainyard.zoo/1\", \"name\": \"gnmt-small\", \"family\": \"sequential\","
        "\"source\": \"gnmt-8.json\", \"sequence\": 6, \"token_bytes\": 4, \"dataset\": "
        "\"synthetic\","
        "\"global_batch\": 8, \"optimizer\": {\"kind\": \"sgd\", \"learning_rate\": 0.1,"
        "\"momentum\": 0.9, \"weight_decay\": 0.001},"
        "\"layers\": [{\"label\": \"batch\"}, {\"kind\": \"embedding\", \"vocabulary\": 90,"
        "\"features\": 20}, {\"kind\": \"lstm\", \"hidden_features\": 20}, {\"label\": "
        "\"encoded\"},"
        "{\"from\": \"batch\"}, {\"kind\": \"embedding\", \"vocabulary\": 500, \"features\": 20},"
        "{\"branches\": [[], [{\"from\": \"encoded\"}]], \"join\": \"add\"},"
        "{\"kind\": \"lstm\", \"hidden_features\": 20}, {\"kind\": \"linear\", \"out_features\": "
        "90},"
        "{\"kind\": \"softmax_cross_entropy\"}]}";
    static const plan_shape shapes[] = {
        {"data parallel 2, rows", .replicas = {2}, .buckets = 1, EIGHT, ROWS},
        {"data parallel 4, rows", .replicas = {4}, .buckets = 2, EIGHT, ROWS},
        {"1f1b 2+1, rows", ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {4}, .buckets = 2, EIGHT, ROWS},
    };

    compare(text, shapes, sizeof shapes / sizeof shapes[0], 10, 1e-5, 1e-4);
}

/* A DLRM of two categories and a bag of four indices. */
static const char dlrm_small[] =
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"dlrm-small\", \"family\": \"sequential\","
    "\"source\": \"dlrm-kaggle.json\", \"input\": [9], \"sample_bytes\": 40,"
    "\"dataset\": \"synthetic\", \"global_batch\": 8, \"optimizer\": {\"kind\": \"adamw\","
    "\"learning_rate\": 0.01, \"weight_decay\": 0, \"beta1\": 0.9, \"beta2\": 0.999,"
    "\"epsilon\": 1e-08}, \"layers\": [{\"label\": \"batch\"}, {\"kind\": \"slice\", \"rows\": "
    "3},"
    "{\"kind\": \"linear\", \"out_features\": 8}, {\"kind\": \"relu\"}, {\"label\": \"dense\"},"
    "{\"from\": \"batch\"}, {\"kind\": \"embedding_bag\", \"vocabulary\": 300, \"features\": 8,"
    "\"first_row\": 3}, {\"label\": \"a\"},"
    "{\"from\": \"batch\"}, {\"kind\": \"embedding_bag\", \"vocabulary\": 3, \"features\": 8,"
    "\"first_row\": 4}, {\"label\": \"b\"},"
    "{\"from\": \"batch\"}, {\"kind\": \"embedding_bag\", \"vocabulary\": 70, \"features\": 8,"
    "\"first_row\": 5, \"rows\": 4, \"is_average\": true}, {\"label\": \"c\"},"
    "{\"kind\": \"dot_interaction\", \"inputs\": [\"dense\", \"a\", \"b\", \"c\"]},"
    "{\"kind\": \"linear\", \"out_features\": 12}, {\"kind\": \"relu\"},"
    "{\"kind\": \"linear\", \"out_features\": 1}, {\"kind\": \"softmax_cross_entropy\"}]}";

/* Tables with dense gradients or row compression, more rows than lookups and fewer. Tables, which
 * all read the batch, are in the first stage. */
Test(oracle, clicks)
{
    static const plan_shape shapes[] = {
        {"data parallel 2", .replicas = {2}, .buckets = 2, EIGHT},
        {"data parallel 4", .replicas = {4}, .buckets = 3, EIGHT},
        {"data parallel 2, rows", .replicas = {2}, .buckets = 2, EIGHT, ROWS},
        {"data parallel 4, rows", .replicas = {4}, .buckets = 1, EIGHT, ROWS},
        {"1f1b 2+1, rows", ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {7}, .buckets = 1, EIGHT, ROWS},
        {"1f1b 2 stages, cut before the products, recompute", ONE_F_ONE_B, .replicas = {1, 1},
         .cuts = {6}, .buckets = 1, EIGHT, .recompute = TY_RECOMPUTE_FULL},
        {"zb-h1 2 stages", ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {7}, .buckets = 1, EIGHT},
        {"data parallel 2, zero 3", .replicas = {2}, .buckets = 2, EIGHT, .zero = 3},
    };

    compare(dlrm_small, shapes, sizeof shapes / sizeof shapes[0], 10, 1e-5, 1e-4);
}

/* Expert-parallel ranks that shard the rows or columns of every table, or have complete tables, one
 * of them two, and a share of the samples. */
Test(oracle, tables_on_ranks)
{
    static const plan_shape shapes[] = {
        {"2 ranks, rows", .replicas = {1}, .buckets = 2, .global_batch = 8, .micro_batch_size = 8,
         .experts = 2, .tables = TY_TABLES_ROW},
        {"2 ranks, columns", .replicas = {1}, .buckets = 1, .global_batch = 8,
         .micro_batch_size = 8, .experts = 2, .tables = TY_TABLES_COLUMN},
        {"2 ranks, tables", .replicas = {1}, .buckets = 2, .global_batch = 8, .micro_batch_size = 8,
         .experts = 2, .tables = TY_TABLES_TABLE},
        {"4 ranks, rows, more ranks than a table has", .replicas = {1}, .buckets = 3,
         .global_batch = 8, .micro_batch_size = 8, .experts = 4, .tables = TY_TABLES_ROW},
        {"4 ranks, columns, two micro-batches", .replicas = {1}, .buckets = 2, .global_batch = 8,
         .micro_batch_size = 4, .experts = 4, .tables = TY_TABLES_COLUMN},
        {"data parallel 2, 2 ranks, rows, tree", .replicas = {2}, .buckets = 2, .global_batch = 8,
         .micro_batch_size = 2, .experts = 2, .tables = TY_TABLES_ROW, .algorithm = TY_TREE},
        {"data parallel 2, 2 ranks, columns", .replicas = {2}, .buckets = 3, .global_batch = 8,
         .micro_batch_size = 4, .experts = 2, .tables = TY_TABLES_COLUMN},
        {"data parallel 2, 2 ranks, tables", .replicas = {2}, .buckets = 1, .global_batch = 8,
         .micro_batch_size = 2, .experts = 2, .tables = TY_TABLES_TABLE},
        {"data parallel 2, 2 ranks, tables, zero 3", .replicas = {2}, .buckets = 3,
         .global_batch = 8, .micro_batch_size = 4, .experts = 2, .tables = TY_TABLES_TABLE,
         .zero = 3},
        {"2 ranks, rows, zero 1", .replicas = {1}, .buckets = 2, .global_batch = 8,
         .micro_batch_size = 8, .experts = 2, .tables = TY_TABLES_ROW, .zero = 1},
        {"data parallel 2, 2 ranks, columns, zero 2", .replicas = {2}, .buckets = 2,
         .global_batch = 8, .micro_batch_size = 4, .experts = 2, .tables = TY_TABLES_COLUMN,
         .zero = 2},
        {"1f1b 2+1 of 2 ranks, rows", ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {7}, .buckets = 1,
         .global_batch = 8, .micro_batch_size = 2, .experts = 2, .tables = TY_TABLES_ROW},
        {"gpipe 2 stages of 2 ranks, tables, cut before the products", GPIPE, .replicas = {1, 1},
         .cuts = {6}, .buckets = 2, .global_batch = 8, .micro_batch_size = 2, .experts = 2,
         .tables = TY_TABLES_TABLE},
        {"zb-h1 2 stages of 2 ranks, rows", ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {7},
         .buckets = 1, .global_batch = 8, .micro_batch_size = 2, .experts = 2,
         .tables = TY_TABLES_ROW},
        {"zb-h1 2 stages of 2 ranks, tables", ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {7},
         .buckets = 1, .global_batch = 8, .micro_batch_size = 2, .experts = 2,
         .tables = TY_TABLES_TABLE},
        {"zb-h1 2 stages of 2 ranks, columns", ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {7},
         .buckets = 1, .global_batch = 8, .micro_batch_size = 2, .experts = 2,
         .tables = TY_TABLES_COLUMN},
    };

    compare(dlrm_small, shapes, sizeof shapes / sizeof shapes[0], 10, 1e-5, 1e-4);
}

/* Ranks report the same test results and gradient noise as the same number of replicas. */
Test(oracle, tables_on_ranks_evaluate)
{
    static const plan_shape shapes[][2] = {
        {{"data parallel 2", .replicas = {2}, .buckets = 2, .global_batch = 8,
          .micro_batch_size = 4},
         {"2 ranks, rows", .replicas = {1}, .buckets = 2, .global_batch = 8, .micro_batch_size = 8,
          .experts = 2, .tables = TY_TABLES_ROW}},
        {{"data parallel 2", .replicas = {2}, .buckets = 2, .global_batch = 8,
          .micro_batch_size = 4},
         {"2 ranks, tables", .replicas = {1}, .buckets = 2, .global_batch = 8,
          .micro_batch_size = 8, .experts = 2, .tables = TY_TABLES_TABLE}},
    };

    evaluate_alike(dlrm_small, shapes[0]);
    evaluate_alike(dlrm_small, shapes[1]);
}

Test(oracle, clicks_are_learnt)
{
    enum { STEPS = 400, MEANT = 30 };
    static const plan_shape shape = {"data parallel 2, rows", .replicas = {2},        .buckets = 2,
                                     .global_batch = 64,      .micro_batch_size = 32, ROWS};
    char *directory = directory_make();
    ty_job *job = make_job(make_plan(dlrm_small, &shape), STEPS, directory);
    outcome found = outcome_of(job);
    double first = 0, last = 0;

    for (int t = 0; t < MEANT; t++) {
        first += found.run->losses[t] / MEANT;
        last += found.run->losses[STEPS - 1 - t] / MEANT;
    }
    cr_assert_lt(last, 0.6 * first, "%g, then %g", first, last);
    outcome_free(&found);
    ty_job_free(job);
    directory_remove(directory);
}

/* ---- Without a flush --------------------------------------------------------------------- */

/* One process that trains as an asynchronous pipeline would: each stage's layers run with the
 * weights that the stage would have. Keeps all weight versions. */
typedef struct emulation {
    const ty_plan *plan;
    uint32_t evaluate_every; /* steps after which the pipeline drains; 0: never */
    ty_dataset *dataset;
    ty_stage_device *device; /* the unpartitioned model */
    uint64_t parameter_count;
    float *history; /* [steps + 1][parameter_count] */
    float *state;
} emulation;

static void weights_choose(emulation *e, uint32_t t, uint32_t m)
{
    const uint32_t start = e->evaluate_every > 0 ? t - t % e->evaluate_every : 0;
    float *parameters = ty_device_cpu.parameters(e->device);

    for (uint32_t s = 0; s < e->plan->stage_count; s++) {
        const ty_plan_stage *stage = &e->plan->stages[s];
        const float *from =
            e->history + emulated_version(e->plan, s, start, t, m) * e->parameter_count;
        uint64_t offset, count;
        ty_device_cpu.slice(e->device, stage->first_layer, stage->layer_count, &offset, &count);
        memcpy(parameters + offset, from + offset, count * sizeof *from);
    }
}

static double emulate_micro_batch(emulation *e, uint32_t t, uint32_t m)
{
    const ty_plan *plan = e->plan;
    const uint32_t layers = plan->workload->layer_count, size = plan->micro_batch_size;
    const uint64_t row = ty_shape_elements(&plan->workload->input);
    double loss = 0;
    uint64_t correct, labels;

    for (uint32_t j = 0; j < size; j++)
        cr_assert_eq(
            ty_dataset_sample(e->dataset,
                              ty_dataset_shuffled(e->dataset, plan->seed,
                                                  (uint64_t)t * plan->global_batch + m * size + j),
                              ty_device_cpu.input(e->device, 0) + j * row, NULL,
                              ty_device_cpu.labels(e->device, 0) + j, NULL),
            TY_OK);
    weights_choose(e, t, m);
    cr_assert_eq(ty_device_cpu.forward(e->device, 0, 0, layers, NULL), TY_OK);
    ty_device_cpu.loss(e->device, 0, &loss, &correct, &labels);
    cr_assert_eq(ty_device_cpu.backward(e->device, 0, 0, layers, m == 0, NULL), TY_OK);
    return loss;
}

static emulation emulation_open(const ty_job *job)
{
    const ty_plan *plan = job->plan;
    emulation e = {.plan = plan, .evaluate_every = job->evaluate_every};
    ty_stage_options options = {.workload = plan->workload,
                                .layer_count = plan->workload->layer_count,
                                .micro_batch_size = plan->micro_batch_size,
                                .slots = 1,
                                .loss_scale = 1.0 / plan->global_batch,
                                .seed = plan->seed,
                                .tied_layer = TY_NO_LAYER};
    ty_error error = {0};

    cr_assert_eq(ty_dataset_open(plan->workload, job->data, false, &e.dataset, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_device_cpu.open(&options, &e.device, &error), TY_OK, "%s", error.message);
    e.parameter_count = ty_device_cpu.parameter_count(e.device);
    e.history = ty_alloc((job->steps + 1) * e.parameter_count, sizeof *e.history);
    e.state =
        ty_alloc(e.parameter_count * ty_optimizer_state_count(&plan->optimizer), sizeof *e.state);
    memcpy(e.history, ty_device_cpu.parameters(e.device), e.parameter_count * sizeof *e.history);
    return e;
}

static void emulation_close(emulation *e)
{
    ty_device_cpu.close(e->device);
    ty_dataset_close(e->dataset);
    ty_free(e->history);
    ty_free(e->state);
}

static void emulate(const ty_job *job, double *losses)
{
    const ty_plan *plan = job->plan;
    emulation e = emulation_open(job);

    for (uint32_t t = 0; t < job->steps; t++) {
        float *newest = e.history + t * e.parameter_count, *next = newest + e.parameter_count;
        losses[t] = 0;
        for (uint32_t m = 0; m < plan->micro_batches; m++)
            losses[t] += emulate_micro_batch(&e, t, m) / plan->global_batch;
        memcpy(next, newest, e.parameter_count * sizeof *next);
        ty_optimizer_step(&plan->optimizer, t + 1, e.parameter_count, next,
                          ty_device_cpu.gradients(e.device), e.state);
    }
    emulation_close(&e);
}

/* The same training on one rank, without staleness. */
static outcome run_fresh(const ty_plan *plan, uint32_t steps, const char *directory)
{
    ty_job *job = make_job_on(plan_alone(plan, plan->global_batch), steps, directory);
    outcome fresh = outcome_of(job);

    ty_job_free(job);
    return fresh;
}

/* Losses of a plan, which it takes over, equal those of the emulation, and differ from those with
 * fresh weights. */
static void compare_stale_plan(const char *name, ty_plan *plan, uint32_t evaluate_every)
{
    enum { STEPS = 12 };
    char *directory = directory_make();
    ty_job *job = make_job(plan, STEPS, directory);
    double expected[STEPS], difference = 0;
    outcome fresh = run_fresh(plan, STEPS, directory);
    ty_run *run = NULL;
    ty_error error = {0};

    ty_free(job->gradients); /* saving them would drain the pipeline */
    job->gradients = NULL;
    job->evaluate_every = evaluate_every;
    job->until.accuracy = evaluate_every > 0 ? 1 : 0;
    cr_assert_eq(ty_execute_job_locally(job, ty_plan_launched_count(job->plan),
                                        &(ty_execute_options){0}, &error),
                 TY_OK, "%s: %s", name, error.message);
    cr_assert_eq(ty_run_load(job->output, &run, &error), TY_OK, "%s", error.message);
    emulate(job, expected);
    for (uint32_t t = 0; t < STEPS; t++) {
        cr_assert(fabs(run->losses[t] - expected[t]) <= 1e-5 * expected[t],
                  "%s: loss of step %u is %.9g, expected %.9g", name, t, run->losses[t],
                  expected[t]);
        difference = fmax(difference, fabs(run->losses[t] - fresh.run->losses[t]));
    }
    cr_assert(difference > 1e-3, "%s: not stale at all, by %g", name, difference);
    outcome_free(&fresh);
    ty_run_free(run);
    ty_job_free(job);
    directory_remove(directory);
}

static void compare_stale(const char *workload, const plan_shape *shape, uint32_t evaluate_every)
{
    compare_stale_plan(shape->name, make_plan(narrow(workload), shape), evaluate_every);
}

#undef BATCH
#define BATCH .global_batch = 24, .micro_batch_size = 3
#define PIPEDREAM .schedule = TY_PIPEDREAM
#define PIPEDREAM_2BW .schedule = TY_PIPEDREAM_2BW

Test(oracle, asynchronous)
{
    static const plan_shape shapes[] = {
        {"pipedream 2 stages", PIPEDREAM, .replicas = {1, 1}, .cuts = {3}, .buckets = 1,
         .global_batch = 24, .micro_batch_size = 12},
        {"pipedream 3 stages", PIPEDREAM, .replicas = {1, 1, 1}, .cuts = {2, 4}, .buckets = 1,
         BATCH},
        {"pipedream 4 stages, 2 micro-batches", PIPEDREAM, .replicas = {1, 1, 1, 1},
         .cuts = {2, 4, 5}, .buckets = 1, .global_batch = 24, .micro_batch_size = 12},
        {"pipedream 4 stages, 1 micro-batch, recompute", PIPEDREAM, .replicas = {1, 1, 1, 1},
         .cuts = {2, 4, 5}, .buckets = 1, .global_batch = 24, .micro_batch_size = 24,
         .recompute = TY_RECOMPUTE_FULL},
        {"pipedream 2+1", PIPEDREAM, .replicas = {2, 1}, .cuts = {5}, .buckets = 2, BATCH},
        {"pipedream 1+2+1", PIPEDREAM, .replicas = {1, 2, 1}, .cuts = {2, 5}, .buckets = 2,
         .global_batch = 24, .micro_batch_size = 12},
        {"2bw 2 stages", PIPEDREAM_2BW, .replicas = {1, 1}, .cuts = {3}, .buckets = 1, BATCH},
        {"2bw 4 stages, 4 micro-batches", PIPEDREAM_2BW, .replicas = {1, 1, 1, 1},
         .cuts = {2, 4, 5}, .buckets = 1, .global_batch = 24, .micro_batch_size = 6},
        {"2bw 2+1", PIPEDREAM_2BW, .replicas = {2, 1}, .cuts = {5}, .buckets = 2, BATCH},
    };

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        compare_stale("mlp", &shapes[i], 0);
    compare_stale("mlp", &shapes[3], 3);
}

/* Stale gradients: replicas alone and in pipelines, in every schedule with a flush, across
 * evaluations, which all pending updates precede. */
Test(oracle, late_gradients)
{
    static const plan_shape shapes[] = {
        {"data parallel 2, a step late", .replicas = {2}, .buckets = 3, BATCH, .staleness = 1},
        {"data parallel 4, 2 steps late", .replicas = {4}, .buckets = 2, BATCH, .staleness = 2},
        {"1f1b 2+2, a step late", .schedule = TY_ONE_F_ONE_B, .replicas = {2, 2}, .cuts = {3},
         .buckets = 2, BATCH, .staleness = 1},
        {"1f1b 2+1, 2 steps late", .schedule = TY_ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {3},
         .buckets = 2, BATCH, .staleness = 2},
        {"gpipe 1+2, recompute, 3 steps late", .schedule = TY_GPIPE, .replicas = {1, 2},
         .cuts = {3}, .buckets = 1, BATCH, .staleness = 3, .recompute = TY_RECOMPUTE_FULL},
        {"interleaved 2 x 2, 2 replicas, a step late", .schedule = TY_INTERLEAVED,
         .replicas = {2, 2, 2, 2}, .cuts = {2, 4, 5}, .buckets = 1, BATCH, .virtual_stages = 2,
         .staleness = 1},
        {"zb-2p 2+2, a step late", .schedule = TY_ZERO_BUBBLE_2P, .replicas = {2, 2}, .cuts = {3},
         .buckets = 2, BATCH, .staleness = 1},
        {"zb-h1 2+2, 2 steps late", .schedule = TY_ZERO_BUBBLE, .replicas = {2, 2}, .cuts = {3},
         .buckets = 2, BATCH, .staleness = 2},
        {"data parallel 2, all of top-k, a step late", .replicas = {2}, .buckets = 2, BATCH,
         .staleness = 1, .compression = {.kind = TY_COMPRESSION_TOP_K, .ratio = 1}},
        {"frozen front, 2 steps late", .replicas = {2}, .buckets = 2, BATCH, .staleness = 2,
         .frozen = 2},
        {"2 and 2 servers, 2 steps late", .replicas = {2}, .buckets = 2, BATCH, .staleness = 2,
         SERVED = 2},
    };

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        compare_stale("mlp", &shapes[i], 0);
        if (i < 4 || shapes[i].servers > 0)
            compare_stale("mlp", &shapes[i], 3);
    }
}

/* Priority to the first layers: bit for bit the same results as without it. */
Test(oracle, priority)
{
    static const struct {
        const char *workload;
        plan_shape shape;
    } rows[] = {
        {"mlp", {"data parallel 2", .replicas = {2}, .buckets = 3, BATCH}},
        {"mlp", {"data parallel 4", .replicas = {4}, .buckets = 3, BATCH}},
        {"mlp",
         {"one micro-batch each", .replicas = {2}, .buckets = 3, .global_batch = 32,
          .micro_batch_size = 16}},
        {"mlp", {"1f1b", ONE_F_ONE_B, .replicas = {2}, .buckets = 2, BATCH}},
        {"mlp", {"a frozen front", .replicas = {2}, .buckets = 2, BATCH, .frozen = 2}},
        {"mlp",
         {"one-bit", .replicas = {2}, .buckets = 3, BATCH,
          .compression.kind = TY_COMPRESSION_ONE_BIT}},
        {"mlp",
         {"powersgd", .replicas = {2}, .buckets = 3, BATCH,
          .compression = {.kind = TY_COMPRESSION_POWERSGD, .rank = 2}}},
        {"lenet", {"convolutions", .replicas = {2}, .buckets = 4, BATCH}},
        {"gpt-tiny sequence=32",
         {"a matrix used at either end", .replicas = {2}, .buckets = 5, .global_batch = 8,
          .micro_batch_size = 2}},
    };
    enum { STEPS = 5 };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *workload = narrow(rows[i].workload);
        plan_shape with = rows[i].shape;
        outcome expected = run_plan(workload, &rows[i].shape, STEPS), found;

        with.is_reversed = true;
        found = run_plan(workload, &with, STEPS);
        cr_assert_eq(found.gradient_length, expected.gradient_length);
        cr_expect(memcmp(found.gradients, expected.gradients, found.gradient_length) == 0, "%s",
                  with.name);
        for (uint32_t t = 0; t < STEPS; t++)
            cr_expect(memcmp(&found.run->losses[t], &expected.run->losses[t], sizeof(double)) == 0,
                      "%s, step %u: %.9g, %.9g", with.name, t, found.run->losses[t],
                      expected.run->losses[t]);
        outcome_free(&found);
        outcome_free(&expected);
    }
}

/* Optimizer states follow the updates, not the passes. */
Test(oracle, late_gradients_of_adamw)
{
    static const plan_shape shapes[] = {
        {"adamw, data parallel 2, a step late", .replicas = {2}, .buckets = 3, BATCH,
         .staleness = 1},
        {"adamw, 1f1b 2+2, 2 steps late", .schedule = TY_ONE_F_ONE_B, .replicas = {2, 2},
         .cuts = {3}, .buckets = 2, BATCH, .staleness = 2},
    };

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (uint32_t evaluate_every = 0; evaluate_every <= 5; evaluate_every += 5) {
            ty_plan *plan = make_plan(narrow("mlp"), &shapes[i]);

            plan->optimizer = (ty_optimizer){.kind = TY_OPTIMIZER_ADAMW,
                                             .learning_rate = 1e-3,
                                             .beta1 = 0.9,
                                             .beta2 = 0.999,
                                             .epsilon = 1e-8,
                                             .weight_decay = 0.01};
            compare_stale_plan(shapes[i].name, plan, evaluate_every);
        }
}

/* Gradients of the first step are those of one rank, in any buffer, and a run of one step ends with
 * its update. */
Test(oracle, late_gradients_of_one_step)
{
    static const plan_shape shapes[] = {
        {"data parallel 2, 2 steps late", .replicas = {2}, .buckets = 3, BATCH, .staleness = 2},
        {"1f1b 2+1, a step late", .schedule = TY_ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {3},
         .buckets = 2, BATCH, .staleness = 1},
    };

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        char *directory = directory_make();
        ty_job *job = make_job(make_plan(narrow("mlp"), &shapes[i]), 1, directory);
        outcome found = outcome_of(job), fresh = run_fresh(job->plan, 1, directory);

        compare_gradients(shapes[i].name, &found, &fresh, 1e-4);
        compare_losses(shapes[i].name, &found, &fresh, 1e-5);
        outcome_free(&found);
        outcome_free(&fresh);
        ty_job_free(job);
        directory_remove(directory);
    }
}

Test(oracle, asynchronous_u_net)
{
    static const plan_shape shapes[] = {
        {"pipedream 3 stages", PIPEDREAM, .replicas = {1, 1, 1}, .cuts = {4, 9}, .buckets = 1,
         BATCH},
        {"pipedream 1+2", PIPEDREAM, .replicas = {1, 2}, .cuts = {5}, .buckets = 1, BATCH},
        {"2bw 3 stages", PIPEDREAM_2BW, .replicas = {1, 1, 1}, .cuts = {5, 8}, .buckets = 1, BATCH},
    };

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        compare_stale(u_net, &shapes[i], 0);
}

/* Squared norm of `scale` times the gradient of every micro-batch of the first step whose index is
 * `first` modulo `stride`. */
static double gradient_square(emulation *e, uint32_t first, uint32_t stride, double scale)
{
    float *gradients = ty_device_cpu.gradients(e->device);
    double sum = 0;

    memset(gradients, 0, e->parameter_count * sizeof *gradients);
    for (uint32_t m = first; m < e->plan->micro_batches; m += stride)
        emulate_micro_batch(e, 0, m);
    for (uint64_t i = 0; i < e->parameter_count; i++)
        sum += scale * gradients[i] * scale * gradients[i];
    return sum;
}

/* McCandlish et al., 2018, equations A.2 and A.3, from gradients of half batches and of the full
 * batch. */
Test(oracle, gradient_noise)
{
    static const plan_shape shapes[] = {
        {"data parallel 2", .replicas = {2}, .buckets = 3, BATCH},
        {"zero 2, 2 replicas", .replicas = {2}, .buckets = 2, BATCH, .zero = 2},
    };

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const double whole = shapes[i].global_batch, half = whole / 2;
        char *directory = directory_make();
        ty_job *job = make_job(make_plan(narrow("mlp"), &shapes[i]), 1, directory);
        emulation e = emulation_open(job);
        double small = (gradient_square(&e, 0, 2, 2) + gradient_square(&e, 1, 2, 2)) / 2;
        double big = gradient_square(&e, 0, 1, 1);
        double square = (whole * big - half * small) / (whole - half);
        double variance = (small - big) / (1 / half - 1 / whole);
        outcome found = run_plan(narrow("mlp"), &shapes[i], 1);

        cr_assert_eq(found.run->noise.steps, 1);
        cr_assert_lt(fabs(found.run->noise.square - square), 1e-4 * big, "%g, expected %g",
                     found.run->noise.square, square);
        cr_assert_lt(fabs(found.run->noise.variance - variance), 1e-4 * variance, "%g, expected %g",
                     found.run->noise.variance, variance);
        emulation_close(&e);
        outcome_free(&found);
        ty_job_free(job);
        directory_remove(directory);
    }
}

static int larger_square(const void *left, const void *right)
{
    const float a = *(const float *)left, b = *(const float *)right;
    return (a * a < b * b) - (a * a > b * b);
}

/* The loss of top-k for a replica's gradient in the first step, from the sorted elements. */
static void top_k_loses(emulation *e, uint32_t first, double ratio, double *lost, double *whole)
{
    float *gradients = ty_device_cpu.gradients(e->device);

    *whole += gradient_square(e, first, 2, 1);
    qsort(gradients, e->parameter_count, sizeof *gradients, larger_square);
    for (uint64_t i = (uint64_t)(ratio * (double)e->parameter_count); i < e->parameter_count; i++)
        *lost += (double)gradients[i] * gradients[i];
}

Test(oracle, compression_distortion)
{
    static const plan_shape shape = {"data parallel 2, top-k 0.05",
                                     .replicas = {2},
                                     .buckets = 1,
                                     BATCH,
                                     .compression.kind = TY_COMPRESSION_TOP_K,
                                     .compression.ratio = 0.05};
    char *directory = directory_make();
    ty_job *job = make_job(make_plan(narrow("mlp"), &shape), 20, directory);
    emulation e = emulation_open(job);
    double lost = 0, whole = 0;
    outcome found;

    top_k_loses(&e, 0, 0.05, &lost, &whole);
    top_k_loses(&e, 1, 0.05, &lost, &whole);
    emulation_close(&e);
    job->steps = 1;
    job->warmup_steps = 0;
    job->timeline_steps = 1;
    job->measure_distortion = true;
    found = outcome_of(job);
    cr_assert_eq(found.run->distortion_steps, 1);
    cr_assert_lt(fabs(found.run->distortion - lost / whole), 1e-4, "%g, expected %g",
                 found.run->distortion, lost / whole);
    outcome_free(&found);
    job->steps = 17; /* steps 0 and 16; earlier residuals do not count */
    found = outcome_of(job);
    cr_assert_eq(found.run->distortion_steps, 2);
    cr_assert(found.run->distortion > 0 && found.run->distortion < 1);
    outcome_free(&found);
    ty_job_free(job);
    directory_remove(directory);
}

/* ---- Stale compressed gradients -------------------------------------------------------- */

/* Adds a replica's gradients of a step to its residuals, then moves each bucket's largest elements
 * to `sum`. */
static double top_k_step(emulation *e, uint32_t t, uint32_t replica, uint32_t replicas,
                         float *held_back, float *sum)
{
    const float *gradients = ty_device_cpu.gradients(e->device);
    float *sorted = ty_alloc(e->parameter_count, sizeof *sorted);
    double loss = 0;

    memset(ty_device_cpu.gradients(e->device), 0, e->parameter_count * sizeof *gradients);
    for (uint32_t m = replica; m < e->plan->micro_batches; m += replicas)
        loss += emulate_micro_batch(e, t, m);
    for (uint64_t i = 0; i < e->parameter_count; i++)
        held_back[i] += gradients[i];
    for (uint32_t b = 0; b < e->plan->bucket_count; b++) {
        const ty_bucket *bucket = &e->plan->buckets[b];
        uint64_t offset, count, kept;
        float least;
        ty_device_cpu.slice(e->device, bucket->first_layer, bucket->layer_count, &offset, &count);
        kept = ty_compression_kept(&bucket->compression, count);
        memcpy(sorted, held_back + offset, count * sizeof *sorted);
        qsort(sorted, count, sizeof *sorted, larger_square);
        least = fabsf(sorted[kept - 1]);
        for (uint64_t i = offset; i < offset + count; i++)
            if (fabsf(held_back[i]) >= least) {
                sum[i] += held_back[i];
                held_back[i] = 0;
            }
    }
    ty_free(sorted);
    return loss / e->plan->global_batch;
}

/* A replica's residual is added to the gradients of its next step, for any staleness. */
Test(oracle, late_gradients_of_top_k)
{
    enum { STEPS = 10, REPLICAS = 2 };

    for (uint32_t staleness = 0; staleness <= 2; staleness++) {
        const plan_shape shape = {"data parallel 2, a tenth of top-k",
                                  .replicas = {REPLICAS},
                                  .buckets = 2,
                                  BATCH,
                                  .staleness = staleness,
                                  .compression = {.kind = TY_COMPRESSION_TOP_K, .ratio = 0.1}};
        char *directory = directory_make();
        ty_job *job = make_job(make_plan(narrow("mlp"), &shape), STEPS, directory);
        emulation e = emulation_open(job);
        float *held_back = ty_alloc(REPLICAS * e.parameter_count, sizeof *held_back);
        float *sum = ty_alloc(e.parameter_count, sizeof *sum);
        outcome found;

        ty_free(job->gradients); /* saving them would drain the pipeline */
        job->gradients = NULL;
        found = outcome_of(job);
        for (uint32_t t = 0; t < STEPS; t++) {
            float *newest = e.history + t * e.parameter_count, *next = newest + e.parameter_count;
            double loss = 0;
            memset(sum, 0, e.parameter_count * sizeof *sum);
            for (uint32_t q = 0; q < REPLICAS; q++)
                loss += top_k_step(&e, t, q, REPLICAS, held_back + q * e.parameter_count, sum);
            memcpy(next, newest, e.parameter_count * sizeof *next);
            ty_optimizer_step(&e.plan->optimizer, t + 1, e.parameter_count, next, sum, e.state);
            cr_assert_lt(fabs(found.run->losses[t] - loss), 1e-4 * loss,
                         "%u late: loss of step %u is %.9g, expected %.9g", staleness, t,
                         found.run->losses[t], loss);
        }
        ty_free(held_back);
        ty_free(sum);
        emulation_close(&e);
        outcome_free(&found);
        ty_job_free(job);
        directory_remove(directory);
    }
}

/* ---- Local steps --------------------------------------------------------------------------- */

/* A replica's own micro-batches, and a local optimizer step on their mean gradient. */
static double local_step(emulation *e, uint32_t t, uint32_t replica, uint32_t replicas)
{
    float *gradients = ty_device_cpu.gradients(e->device);
    float *newest = e->history + t * e->parameter_count, *next = newest + e->parameter_count;
    double loss = 0;

    memset(gradients, 0, e->parameter_count * sizeof *gradients);
    for (uint32_t m = replica; m < e->plan->micro_batches; m += replicas)
        loss += emulate_micro_batch(e, t, m);
    for (uint64_t i = 0; i < e->parameter_count; i++)
        gradients[i] *= (float)replicas;
    memcpy(next, newest, e->parameter_count * sizeof *next);
    ty_optimizer_step(&e->plan->optimizer, t + 1, e->parameter_count, next, gradients, e->state);
    return loss / e->plan->global_batch;
}

/* Federated averaging: replicas step independently and average their weights every third step. */
Test(oracle, local_steps)
{
    enum { STEPS = 8, LOCAL = 3, REPLICAS = 2 };
    static const plan_shape shape = {"data parallel 2, local steps", .replicas = {REPLICAS},
                                     .buckets = 2, BATCH, .local_steps = LOCAL};
    char *directory = directory_make();
    ty_job *job = make_job(make_plan(narrow("mlp"), &shape), STEPS, directory);
    outcome found = run_plan(narrow("mlp"), &shape, STEPS);
    emulation e[REPLICAS] = {emulation_open(job), emulation_open(job)};

    for (uint32_t t = 0; t < STEPS; t++) {
        float *next[REPLICAS];
        double loss = 0;
        for (uint32_t q = 0; q < REPLICAS; q++) {
            loss += local_step(&e[q], t, q, REPLICAS);
            next[q] = e[q].history + (t + 1) * e[q].parameter_count;
        }
        for (uint64_t i = 0; i < e[0].parameter_count && (t + 1) % LOCAL == 0; i++)
            next[0][i] = next[1][i] = (next[0][i] + next[1][i]) / 2;
        cr_assert_lt(fabs(found.run->losses[t] - loss), 1e-5 * loss,
                     "loss of step %u is %.9g, expected %.9g", t, found.run->losses[t], loss);
    }
    for (uint32_t q = 0; q < REPLICAS; q++)
        emulation_close(&e[q]);
    outcome_free(&found);
    ty_job_free(job);
    directory_remove(directory);
}
