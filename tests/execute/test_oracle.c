/* The oracle of the executor: whatever a synchronous plan divides, sends and sums, gradients and
 * losses are those of one rank training the same global batch, up to the rounding of float sums. */
#include "plans.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct outcome {
    char *gradients;
    size_t gradient_length;
    ty_run *run;
} outcome;

static void outcome_free(outcome *o)
{
    ty_free(o->gradients);
    ty_run_free(o->run);
}

static outcome run_plan(const char *workload, const plan_shape *shape, uint32_t steps)
{
    char *directory = directory_make();
    ty_error error = {0};
    outcome result = {0};
    ty_job *job;

    job = make_job(make_plan(workload, shape), steps, directory);
    cr_assert_eq(ty_execute_job_locally(job, ty_plan_rank_count(job->plan),
                                        &(ty_execute_options){0}, &error),
                 TY_OK, "%s of %s: %s", shape->name, workload, error.message);
    cr_assert_eq(
        ty_file_read(job->gradients, 0, &result.gradients, &result.gradient_length, &error), TY_OK,
        "%s", error.message);
    cr_assert_eq(ty_run_load(job->output, &result.run, &error), TY_OK, "%s", error.message);
    cr_assert_eq(result.run->step_count, steps);
    directory_remove(directory);
    ty_job_free(job);
    return result;
}

/* Each layer's difference in norm, relative to the layer's gradient and a thousandth of the
 * largest layer's: what float sums in another order may do. */
static void compare_gradients(const char *what, const outcome *found, const outcome *expected,
                              double tolerance)
{
    const char *f = found->gradients, *e = expected->gradients;
    double scale = 0;

    cr_assert_eq(found->gradient_length, expected->gradient_length, "%s", what);
    for (int pass = 0; pass < 2; pass++) {
        size_t at = 0, compared = 0;
        while (at < expected->gradient_length) {
            uint64_t header[2], other[2];
            double difference = 0, norm = 0;

            memcpy(header, e + at, sizeof header);
            memcpy(other, f + at, sizeof other);
            cr_assert(header[0] == other[0] && header[1] == other[1], "%s: layer %llu", what,
                      (unsigned long long)header[0]);
            at += sizeof header;
            for (uint64_t i = 0; i < header[1]; i++, at += sizeof(float)) {
                float a, b;
                memcpy(&a, f + at, sizeof a);
                memcpy(&b, e + at, sizeof b);
                difference += ((double)a - b) * ((double)a - b);
                norm += (double)b * b;
            }
            if (pass == 0) {
                scale = fmax(scale, sqrt(norm));
            } else {
                double limit = tolerance * (sqrt(norm) + 1e-3 * scale);
                cr_assert(sqrt(difference) <= limit,
                          "%s: gradients of layer %llu differ by %g, expected at most %g", what,
                          (unsigned long long)header[0], sqrt(difference), limit);
                compared += header[1];
            }
        }
        cr_assert(scale > 0, "%s: all gradients are 0", what);
        cr_assert(pass == 0 || compared > 0, "%s", what);
    }
}

static void compare_losses(const char *what, const outcome *found, const outcome *expected,
                           double tolerance)
{
    for (uint32_t i = 0; i < expected->run->step_count; i++) {
        double f = found->run->losses[i], e = expected->run->losses[i];
        cr_assert(fabs(f - e) <= tolerance * fabs(e), "%s: loss of step %u is %.9g, expected %.9g",
                  what, i, f, e);
    }
}

static double least_loss(const ty_run *run)
{
    double least = run->losses[0];

    for (uint32_t i = 1; i < run->step_count; i++)
        least = fmin(least, run->losses[i]);
    return least;
}

static void compare(const char *workload, const plan_shape *shapes, size_t count, uint32_t steps,
                    double gradient_tolerance, double loss_tolerance)
{
    plan_shape alone = {.name = "one rank", .replicas = {1}, .buckets = 1};
    outcome expected;

    alone.global_batch = alone.micro_batch_size = shapes[0].global_batch;
    alone.frozen = shapes[0].frozen;
    expected = run_plan(workload, &alone, steps);
    cr_assert(least_loss(expected.run) < expected.run->losses[0], "%s does not learn", workload);
    for (size_t i = 0; i < count; i++) {
        char what[128];
        outcome found = run_plan(workload, &shapes[i], steps);

        snprintf(what, sizeof what, "%s, %s", workload, shapes[i].name);
        compare_gradients(what, &found, &expected, gradient_tolerance);
        compare_losses(what, &found, &expected, loss_tolerance);
        outcome_free(&found);
    }
    outcome_free(&expected);
}

#define GPIPE .schedule = TY_GPIPE
#define ONE_F_ONE_B .schedule = TY_ONE_F_ONE_B
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
    };

    compare("mlp", shapes, sizeof shapes / sizeof shapes[0], 50, 1e-5, 1e-5);
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

    /* Where two pixels of a pooling window are all but equal, rounding decides which one wins. */
    compare("lenet", shapes, sizeof shapes / sizeof shapes[0], 50, 1e-5, 1e-3);
}

/* Transfer learning: both convolutions are frozen, one cut before them, at the first trained layer
 * (5) and behind it. */
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

    compare("lenet", shapes, sizeof shapes / sizeof shapes[0], 30, 1e-5, 1e-3);
}

#undef BATCH
#define BATCH .global_batch = 8, .micro_batch_size = 1

/* Layers of gpt-tiny: embedding, then 6 a block, so that blocks start at 1, 7, 13 and 19; the last
 * linear layer's matrix is the embedding's, which ties the first stage to the last. */
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
    };

    compare("gpt-tiny sequence=32", shapes, sizeof shapes / sizeof shapes[0], 50, 1e-5, 1e-3);
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

    compare("gpt-tiny sequence=32", shapes, sizeof shapes / sizeof shapes[0], 30, 1e-5, 1e-3);
}

#undef BATCH
#define BATCH .global_batch = 24, .micro_batch_size = 3

/* Sending every element as a top-k pair is no compression at all. */
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

/* A half has 11 significant bits: 2^-11 each way in and one more rounding per hop. */
Test(oracle, halves)
{
    static const plan_shape shapes[] = {
        {"data parallel 2, fp16", .replicas = {2}, .buckets = 2, BATCH,
         .compression.kind = TY_COMPRESSION_FP16},
        {"data parallel 4, fp16 tree", .replicas = {4}, .buckets = 1, BATCH, .algorithm = TY_TREE,
         .compression.kind = TY_COMPRESSION_FP16},
    };

    compare("lenet", shapes, sizeof shapes / sizeof shapes[0], 10, 4.0 / 2048, 1e-2);
}

/* What top-k leaves out stays behind and is sent later: it learns, but is not the same. */
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
    outcome expected = run_plan("mlp", &alone, 50), found = run_plan("mlp", &sparse, 50);
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
