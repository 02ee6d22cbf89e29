/* Models as they are deployed: a variant's matrices and bytes against plain arithmetic, and a run's
 * report of its variant against a run with weights from plain arithmetic. */
#include "outcome.h"
#include "plans.h"
#include "safetensors.h"
#include "variant.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Plain arithmetic ---------------------------------------------------------------------- */

typedef struct ranked {
    double magnitude;
    uint64_t place;
} ranked;

static int by_magnitude(const void *left, const void *right)
{
    const ranked *a = left, *b = right;

    if (a->magnitude < b->magnitude || a->magnitude > b->magnitude)
        return a->magnitude < b->magnitude ? -1 : 1;
    return a->place < b->place ? -1 : a->place > b->place;
}

/* The nearest number with 11 significant bits, down to 2^-24. */
static double half_of(double value)
{
    int exponent;
    double unit;

    (void)frexp(value, &exponent);
    unit = ldexp(1, (exponent < -13 ? -13 : exponent) - 11);
    return nearbyint(value / unit) * unit;
}

/* Returns the bytes of the matrix: stored weights, scales, and indices of the stored weights. */
static uint64_t plain_variant(const ty_variant *v, uint64_t rows, uint64_t columns, float *weights)
{
    const uint64_t count = rows * columns, pruned = count * v->pruned_percent / 100;
    ranked *order = calloc(count, sizeof *order);
    uint64_t bits = 0;

    for (uint64_t i = 0; i < count; i++)
        order[i] = (ranked){fabs((double)weights[i]), i};
    qsort(order, count, sizeof *order, by_magnitude);
    for (uint64_t i = 0; i < pruned; i++)
        weights[order[i].place] = 0;
    free(order);
    for (uint64_t r = 0; r < rows; r++) {
        float *row = weights + r * columns, scale = 0;
        for (uint64_t c = 0; c < columns; c++)
            scale = fabsf(row[c]) > scale ? fabsf(row[c]) : scale;
        scale /= v->bits == 8 ? 127.0f : 7.0f;
        for (uint64_t c = 0; c < columns; c++) {
            if (v->bits == 16)
                row[c] = (float)half_of((double)row[c]);
            else if (v->bits < 16 && scale > 0)
                row[c] = nearbyintf(row[c] / scale) * scale;
        }
    }
    for (uint64_t i = 0; i < count - pruned; i++)
        bits += v->bits;
    return (bits + 7) / 8 + (v->bits < 16 ? 4 * rows : 0) +
           (v->pruned_percent > 0 ? (count + 7) / 8 : 0);
}

static float noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(int32_t)*state / 2147483648.0f;
}

Test(variants, matrices_are_those_of_plain_arithmetic)
{
    const struct {
        uint64_t rows, columns;
    } shapes[] = {{1, 1}, {3, 5}, {10, 84}, {7, 129}, {64, 400}};
    uint32_t state = 20261126;

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (uint32_t i = 0; i < TY_VARIANT_COUNT; i++) {
            const ty_variant variant = ty_variant_at(i);
            const uint64_t count = shapes[s].rows * shapes[s].columns;
            float *found = calloc(count, sizeof *found), *expected = calloc(count, sizeof *found);
            char name[TY_VARIANT_TEXT_SIZE];
            ty_error error = {0};
            uint64_t zeros = 0;

            ty_variant_text(&variant, name);
            for (uint64_t k = 0; k < count; k++) /* equal ones, zeros, small and large ones */
                found[k] = expected[k] = k % 7 == 0    ? 0.25f
                                         : k % 11 == 0 ? 0
                                         : k % 13 == 0 ? noise(&state) * 1e-6f
                                                       : noise(&state) * 3;
            cr_assert_eq(
                variant_make_matrix(&variant, shapes[s].rows, shapes[s].columns, found, &error),
                TY_OK, "%s", error.message);
            plain_variant(&variant, shapes[s].rows, shapes[s].columns, expected);
            for (uint64_t k = 0; k < count; k++) {
                cr_assert_float_eq(found[k], expected[k], 0, "%s of %llux%llu: [%llu]", name,
                                   (unsigned long long)shapes[s].rows,
                                   (unsigned long long)shapes[s].columns, (unsigned long long)k);
                zeros += !(fabsf(found[k]) > 0);
            }
            cr_assert_geq(zeros, count * variant.pruned_percent / 100, "%s", name);
            free(found);
            free(expected);
        }
}

/* ---- Runs ---------------------------------------------------------------------------------- */

#define NETWORK(norm)                                                                              \
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"small-lenet\", \"family\": \"sequential\","     \
    "\"source\": \"lenet.json\", \"input\": [1, 28, 28], \"sample_bytes\": 785,"                   \
    "\"dataset\": \"fashion-mnist\", \"global_batch\": 20, \"optimizer\": {\"kind\": \"sgd\","     \
    "\"learning_rate\": 0.05, \"momentum\": 0.9, \"weight_decay\": 0}, \"layers\": ["              \
    "{\"kind\": \"conv2d\", \"out_channels\": 5, \"kernel\": 5}," norm                             \
    "{\"kind\": \"relu\"}, {\"kind\": \"pool\", \"kernel\": 2}, {\"kind\": \"flatten\"},"          \
    "{\"kind\": \"linear\", \"out_features\": 20}, {\"kind\": \"relu\"}, {\"kind\": \"linear\","   \
    "\"out_features\": 10}, {\"kind\": \"softmax_cross_entropy\"}]}"

static const char plain[] = NETWORK("");
static const char normed[] = NETWORK("{\"kind\": \"batch_norm\"},");

enum { STEPS = 6 };

static const plan_shape one_rank = {
    .name = "one rank", .replicas = {1}, .buckets = 1, .global_batch = 20, .micro_batch_size = 5};

/* A run of the model with a variant, or without a device, from the weights of a file or of the
 * seed. It changes them or not. */
typedef struct question {
    const char *network, *variant, *init, *save;
    bool is_still;
} question;

static ty_job *job_of(const plan_shape *shape, const question *q, const char *directory)
{
    ty_plan *plan = make_plan(q->network, shape);
    ty_budget budget = {.memory_bytes = 1e9};
    ty_error error = {0};
    ty_job *job;

    if (q->variant != NULL) {
        cr_assert_eq(ty_variant_parse(q->variant, &budget.variant, &error), TY_OK, "%s",
                     error.message);
        cr_assert_eq(ty_deploy(plan->workload, &budget, &plan->deployment, &error), TY_OK, "%s",
                     error.message);
    }
    if (q->is_still) /* steps of 1e-30 change no bit */
        plan->optimizer.learning_rate = 1e-30;
    job = make_job(plan, q->is_still ? 1 : STEPS, directory);
    ty_free(job->gradients); /* saving them would force a checkpoint interval */
    job->gradients = NULL;
    job->init = ty_strdup(q->init);
    job->save_weights = ty_strdup(q->save);
    return job;
}

static outcome run(const plan_shape *shape, const question *q, const char *directory)
{
    ty_job *job = job_of(shape, q, directory);
    const outcome made = outcome_of(job);

    ty_job_free(job);
    return made;
}

static char *path_of(const char *directory, const char *name)
{
    ty_text text = {0};
    char *path = NULL;

    ty_text_addf(&text, "%s/%s", directory, name);
    cr_assert_eq(ty_text_take(&text, &path, NULL), TY_OK);
    return path;
}

/* The file's matrices after plain arithmetic. Returns the deployed bytes of all its tensors. */
static uint64_t make_file(const char *from, const ty_variant *variant, const char *to)
{
    char *bytes = NULL;
    size_t length;
    safetensors *file = NULL;
    ty_error error = {0};
    uint64_t deployed = 0;

    cr_assert_eq(ty_file_read(from, 0, &bytes, &length, &error), TY_OK, "%s", error.message);
    cr_assert_eq(safetensors_parse((const unsigned char *)bytes, length, from, &file, &error),
                 TY_OK, "%s", error.message);
    for (uint64_t t = 0; t < safetensors_count(file); t++) {
        const safetensors_tensor *tensor = safetensors_at(file, t);
        float *numbers = (float *)(void *)(bytes + ((const char *)tensor->data - bytes));

        deployed += tensor->dimension_count < 2
                        ? tensor->elements * sizeof *numbers
                        : plain_variant(variant, tensor->dimensions[0],
                                        tensor->elements / tensor->dimensions[0], numbers);
    }
    safetensors_close(file);
    cr_assert_eq(ty_file_write(to, bytes, length, &error), TY_OK, "%s", error.message);
    ty_free(bytes);
    return deployed;
}

static const ty_evaluation *last_of(const outcome *o)
{
    cr_assert_gt(o->run->evaluation_count, 0);
    return &o->run->evaluations[o->run->evaluation_count - 1];
}

Test(variants, bytes_and_losses_are_those_of_a_file_made_plainly)
{
    static const char *const names[] = {"fp16", "int8", "int4", "fp32-pruned-50", "int4-pruned-90"};

    for (size_t n = 0; n < 2 * sizeof names / sizeof *names; n++) {
        const bool has_norm = n % 2 == 1;
        char *directory = directory_make();
        char *trained = path_of(directory, "trained.safetensors");
        char *made = path_of(directory, "made.safetensors");
        const question q = {has_norm ? normed : plain, names[n / 2], .save = trained};
        const question again = {q.network, "fp32", made, .is_still = true};
        ty_job *job = job_of(&one_rank, &q, directory);
        const outcome found = outcome_of(job);
        const uint64_t bytes = make_file(trained, &job->plan->deployment.variant, made);

        cr_expect_eq(bytes, job->plan->deployment.need.weight_bytes,
                     "%s: %llu bytes of the file's tensors, planned %llu", q.variant,
                     (unsigned long long)bytes,
                     (unsigned long long)job->plan->deployment.need.weight_bytes);
        cr_assert_eq(found.run->evaluation_count, 1, "at the end, without a target");
        cr_assert_eq(
            memcmp(&found.run->variant, &job->plan->deployment.variant, sizeof found.run->variant),
            0);
        if (!has_norm) { /* with statistics that a step changes */
            outcome expected = run(&one_rank, &again, directory);
            const ty_evaluation *of_file = last_of(&expected);
            cr_expect_float_eq(last_of(&found)->variant_loss, of_file->loss, 1e-12, "%s: %g, of %g",
                               q.variant, last_of(&found)->variant_loss, of_file->loss);
            cr_expect_float_eq(last_of(&found)->variant_accuracy, of_file->accuracy, 1e-12);
            cr_expect_float_eq(of_file->variant_loss, of_file->loss, 0, "fp32 is as trained");
            outcome_free(&expected);
        }
        ty_job_free(job);
        outcome_free((outcome *)&found);
        ty_free(trained);
        ty_free(made);
        directory_remove(directory);
    }
}

Test(variants, training_is_the_same_without)
{
    char *directory = directory_make();
    const question q = {.network = plain, .variant = "int4-pruned-90"},
                   without = {.network = plain};
    ty_job *job = job_of(&one_rank, &q, directory);
    outcome found, expected = run(&one_rank, &without, directory);

    job->until.accuracy = 1;
    job->evaluate_every = 2;
    found = outcome_of(job);
    cr_assert_eq(found.run->evaluation_count, STEPS / 2);
    cr_assert_eq(expected.run->evaluation_count, 0);
    compare_losses("int4-pruned-90", &found, &expected, 0);
    cr_expect_neq(last_of(&found)->variant_loss, last_of(&found)->loss);
    ty_job_free(job);
    outcome_free(&found);
    outcome_free(&expected);
    directory_remove(directory);
}

Test(variants, divided_plans_test_what_one_rank_does)
{
    static const plan_shape shapes[] = {
        {"data parallel 2", .replicas = {2}, .buckets = 2, .global_batch = 20,
         .micro_batch_size = 5},
        {"zero 3, 2 replicas", .replicas = {2}, .buckets = 2, .global_batch = 20,
         .micro_batch_size = 5, .zero = 3},
        {"1f1b 2+1", .schedule = TY_ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {4}, .buckets = 1,
         .global_batch = 20, .micro_batch_size = 5},
        {"pipedream 2 stages", .schedule = TY_PIPEDREAM, .replicas = {1, 1}, .cuts = {4},
         .buckets = 1, .global_batch = 20, .micro_batch_size = 5},
    };
    char *directory = directory_make();
    const question q = {plain, "int4", .is_still = true};
    outcome expected = run(&one_rank, &q, directory);

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        outcome found = run(&shapes[i], &q, directory);

        cr_expect_float_eq(last_of(&found)->variant_loss, last_of(&expected)->variant_loss, 1e-6,
                           "%s", shapes[i].name);
        cr_expect_float_eq(last_of(&found)->loss, last_of(&expected)->loss, 1e-6, "%s",
                           shapes[i].name);
        outcome_free(&found);
    }
    outcome_free(&expected);
    directory_remove(directory);
}

/* An embedding and the output layer of another stage that is tied to it: both are changed. */
Test(variants, a_tied_matrix_of_two_stages)
{
    static const plan_shape shapes[] = {
        {"one rank", .replicas = {1}, .buckets = 1, .global_batch = 8, .micro_batch_size = 2},
        {"1f1b 1+1", .schedule = TY_ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {7}, .buckets = 1,
         .global_batch = 8, .micro_batch_size = 2},
    };
    char *directory = directory_make();
    const question q = {narrow("gpt-tiny sequence=16"), "int4", .is_still = true};
    outcome expected = run(&shapes[0], &q, directory), found = run(&shapes[1], &q, directory);

    cr_expect_float_eq(last_of(&found)->variant_loss, last_of(&expected)->variant_loss, 1e-5);
    cr_expect_neq(last_of(&found)->variant_loss, last_of(&found)->loss);
    outcome_free(&found);
    outcome_free(&expected);
    directory_remove(directory);
}

Test(variants, ranks_have_no_whole_matrices)
{
    static const plan_shape shape = {.name = "2 ranks",
                                     .replicas = {1},
                                     .buckets = 1,
                                     .global_batch = 8,
                                     .micro_batch_size = 2,
                                     .tp = 2};
    char *directory = directory_make();
    const question q = {.network = "gpt-tiny sequence=16", .variant = "int8"};
    ty_job *job = job_of(&shape, &q, directory);
    ty_error error = {0};

    cr_assert_eq(ty_execute_job_locally(job, ty_plan_launched_count(job->plan),
                                        &(ty_execute_options){0}, &error),
                 TY_EUNSUPPORTED);
    cr_expect(strstr(error.message, "does not test matrices as int8 with tensor or expert") != NULL,
              "%s", error.message);
    ty_job_free(job);
    directory_remove(directory);
}
