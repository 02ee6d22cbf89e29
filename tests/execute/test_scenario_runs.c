/*
 * Scenarios that the worker runs: a teacher that follows its student, populations in corridors, and
 * actors that play there for learners. Each against plain arithmetic, and on several replicas
 * against one rank.
 */
#include "outcome.h"
#include "plans.h"
#include "reference.h"
#include "scenario.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static outcome run_plan(const char *workload, const plan_shape *shape, uint32_t steps)
{
    char *directory = directory_make();
    ty_job *job = make_job(make_plan(workload, shape), steps, directory);
    outcome result = outcome_of(job);

    ty_job_free(job);
    directory_remove(directory);
    return result;
}

/* ---- A teacher --------------------------------------------------------------------------- */

#define TEACHER(members)                                                                           \
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"taught\", \"family\": \"sequential\","          \
    "\"source\": \"mean-teacher-fashion.json\", \"input\": [2, 28, 28], \"sample_bytes\": 785,"    \
    "\"dataset\": \"fashion-mnist\", \"global_batch\": 24, \"optimizer\": {\"kind\": \"sgd\","     \
    "\"learning_rate\": 0.05, \"momentum\": 0.9, \"weight_decay\": 0}, \"teacher\": " members      \
    ", \"blocks\": {\"network\": [{\"kind\": \"flatten\"}, {\"kind\": \"linear\","                 \
    "\"out_features\": 16}, {\"kind\": \"relu\"}, {\"kind\": \"linear\", \"out_features\": 10}]}," \
    "\"layers\": [{\"branches\": [[{\"frozen\": [{\"kind\": \"slice\", \"first_row\": 0,"          \
    "\"rows\": 1}, {\"block\": \"network\"}]}], [{\"kind\": \"slice\", \"first_row\": 1,"          \
    "\"rows\": 1}, {\"block\": \"network\"}]], \"join\": \"concat\"},"                             \
    "{\"kind\": \"softmax_cross_entropy\"}]}"

static const char taught[] = TEACHER("{\"labelled\": 40, \"every\": 3, \"decay\": 0.8, "
                                     "\"consistency\": 5, \"shift\": 2}");

Test(scenario_runs, a_teacher_of_replicas)
{
    static const plan_shape alone = {.name = "one rank",
                                     .replicas = {1},
                                     .buckets = 1,
                                     .frozen = 5,
                                     .global_batch = 24,
                                     .micro_batch_size = 24};
    static const plan_shape shapes[] = {
        {"8 micro-batches", .replicas = {1}, .buckets = 1, .frozen = 5, .global_batch = 24,
         .micro_batch_size = 3},
        {"data parallel 2, 2 buckets", .replicas = {2}, .buckets = 2, .frozen = 5,
         .global_batch = 24, .micro_batch_size = 3},
        {"data parallel 4, tree", .replicas = {4}, .buckets = 1, .frozen = 5, .global_batch = 24,
         .micro_batch_size = 2, .algorithm = TY_TREE},
    };
    outcome expected = run_plan(taught, &alone, 8);

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        outcome found = run_plan(taught, &shapes[i], 8);

        compare_gradients(shapes[i].name, &found, &expected, 1e-5);
        compare_losses(shapes[i].name, &found, &expected, 1e-5);
        outcome_free(&found);
    }
    outcome_free(&expected);
}

/* Initial weights of a device. */
static void initial_weights(const ty_plan *plan, reference *r)
{
    const ty_stage_options options = {.workload = plan->workload,
                                      .layer_count = plan->workload->layer_count,
                                      .micro_batch_size = 1,
                                      .slots = 1,
                                      .loss_scale = 1,
                                      .seed = plan->seed,
                                      .tied_layer = TY_NO_LAYER};
    ty_stage_device *device = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_device_cpu.open(&options, &device, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_device_cpu.parameter_count(device), r->parameter_count);
    for (uint64_t i = 0; i < r->parameter_count; i++)
        r->parameters[i] = (double)ty_device_cpu.parameters(device)[i];
    ty_device_cpu.close(device);
}

/* The teacher's layers are 1 to 4 (its slice is 0), the student's 6 to 9: weights of 2 and 4 follow
 * those of 7 and 9. */
static void follow(reference *r, double decay, bool starts)
{
    for (uint32_t l = 2; l <= 4; l += 2)
        for (uint64_t i = 0; i < r->offsets[l + 1] - r->offsets[l]; i++) {
            double *own = &r->parameters[r->offsets[l] + i];
            const double its = r->parameters[r->offsets[l + 5] + i];

            cr_assert(!starts || *own == its, "the teacher begins elsewhere");
            *own = decay * *own + (1 - decay) * its;
        }
}

static void row_load(const ty_dataset *dataset, const ty_plan *plan, uint64_t position,
                     double *input, int32_t *label)
{
    float row[2 * 28 * 28];
    bool has_label;
    const uint64_t sample = ty_dataset_visited(dataset, plan->seed, position, &has_label);

    cr_assert_eq(has_label, position % plan->workload->teacher.every == 0);
    cr_assert_eq(ty_dataset_sample(dataset, sample, row, NULL, label, NULL), TY_OK);
    ty_dataset_displace(dataset, plan->seed, position, row);
    *label = has_label ? *label : TY_NO_LABEL;
    for (uint64_t i = 0; i < 2 * 28 * 28; i++)
        input[i] = (double)row[i];
}

/* Test results of the teacher: the first half of the loss input. */
static void test_set_expect(const ty_plan *plan, const char *data, reference *r,
                            const ty_evaluation *found)
{
    const double *scores = r->outputs[plan->workload->layer_count - 2];
    double sum = 0, correct = 0, count = 0;
    ty_dataset *dataset = NULL;
    ty_error error = {0};
    int32_t labels[24];
    float row[2 * 28 * 28];

    cr_assert_eq(ty_dataset_open(plan->workload, data, true, &dataset, &error), TY_OK, "%s",
                 error.message);
    for (uint64_t first = 0; first + 24 <= ty_dataset_sample_count(dataset); first += 24) {
        for (uint64_t j = 0; j < 24; j++) {
            cr_assert_eq(ty_dataset_sample(dataset, first + j, row, NULL, &labels[j], NULL), TY_OK);
            for (uint64_t i = 0; i < 2 * 28 * 28; i++)
                ((double *)(uintptr_t)r->input)[j * 2 * 28 * 28 + i] = (double)row[i];
        }
        reference_forward(r);
        for (uint64_t j = 0; j < 24; j++) {
            const double *own = scores + 20 * j;
            double total = 0;
            uint32_t best = 0;

            for (uint32_t c = 0; c < 10; c++) {
                total += exp(own[c]);
                best = own[c] > own[best] ? c : best;
            }
            sum += log(total) - own[labels[j]];
            correct += best == (uint32_t)labels[j];
            count++;
        }
    }
    cr_expect(fabs(found->loss - sum / count) < 1e-5 * found->loss, "a test loss of %.9g is %.9g",
              sum / count, found->loss);
    cr_expect_eq(found->accuracy, correct / count, "%g is %g", correct / count, found->accuracy);
    ty_dataset_close(dataset);
}

/* Losses, weights of both models, and the teacher's test results, in doubles. */
Test(scenario_runs, a_teacher_by_definition)
{
    enum { STEPS = 6, BATCH = 24, ROW = 2 * 28 * 28 };
    static const plan_shape shape = {.name = "one rank",
                                     .replicas = {1},
                                     .buckets = 1,
                                     .frozen = 5,
                                     .global_batch = BATCH,
                                     .micro_batch_size = BATCH};
    char *directory = directory_make();
    ty_job *job = make_job(make_plan(taught, &shape), STEPS, directory);
    const ty_plan *plan = job->plan;
    reference *r = reference_new(plan->workload, BATCH);
    double *input = calloc(BATCH * ROW, sizeof *input);
    double *speed = calloc(r->parameter_count, sizeof *speed);
    int32_t labels[BATCH];
    ty_dataset *dataset = NULL;
    ty_error error = {0};
    outcome found;

    job->until.accuracy = 1;
    job->evaluate_every = STEPS;
    found = outcome_of(job);
    cr_assert_eq(ty_dataset_open(plan->workload, job->data, false, &dataset, &error), TY_OK, "%s",
                 error.message);
    initial_weights(plan, r);
    follow(r, 0, true);
    r->input = input;
    r->labels = labels;
    r->loss_scale = 1.0 / BATCH;
    for (uint32_t t = 0; t < STEPS; t++) {
        for (uint64_t j = 0; j < BATCH; j++)
            row_load(dataset, plan, t * BATCH + j, input + j * ROW, &labels[j]);
        reference_forward(r);
        reference_backward(r);
        cr_expect(fabs(found.run->losses[t] - r->loss_sum / BATCH) < 1e-5 * found.run->losses[t],
                  "loss of step %u is %.9g, expected %.9g", t, found.run->losses[t],
                  r->loss_sum / BATCH);
        for (uint64_t i = 0; i < r->parameter_count; i++) {
            speed[i] = plan->optimizer.momentum * speed[i] + r->gradients[i];
            r->parameters[i] -= plan->optimizer.learning_rate * speed[i];
        }
        follow(r, plan->workload->teacher.decay, false);
    }
    cr_assert_eq(found.run->evaluation_count, 1);
    test_set_expect(plan, job->data, r, &found.run->evaluations[0]);
    ty_dataset_close(dataset);
    free(input);
    free(speed);
    reference_free(r);
    outcome_free(&found);
    ty_job_free(job);
    directory_remove(directory);
}

/* Each of 40 samples has its own label, equally often, and no other sample's. */
Test(scenario_runs, few_labels)
{
    ty_workload *w = open_workload(taught);
    char *directory = directory_make();
    uint32_t *seen = calloc(1000, sizeof *seen);
    ty_dataset *dataset = NULL;
    ty_error error = {0};
    uint32_t chosen = 0;

    write_data(directory);
    cr_assert_eq(ty_dataset_open(w, directory, false, &dataset, &error), TY_OK, "%s",
                 error.message);
    for (uint64_t position = 0; position < 3 * 40 * 5; position++) {
        bool has_label;
        const uint64_t sample = ty_dataset_visited(dataset, 7, position, &has_label);

        cr_assert_lt(sample, 1000);
        seen[sample] += has_label;
    }
    for (uint32_t i = 0; i < 1000; i++) {
        chosen += seen[i] > 0;
        cr_expect(seen[i] == 0 || seen[i] == 5, "the label of sample %u is seen %u times", i,
                  seen[i]);
    }
    cr_expect_eq(chosen, 40);
    ty_dataset_close(dataset);
    w->teacher.labelled = 1001;
    cr_expect_eq(ty_dataset_open(w, directory, false, &dataset, &error), TY_EINVAL);
    cr_expect_not_null(strstr(error.message, "labels of 1001 samples, expected at most 1000"), "%s",
                       error.message);
    ty_workload_free(w);
    free(seen);
    directory_remove(directory);
}

/* Every pixel of a view is the image's pixel displaced by the given rows and columns, or the
 * nearest edge pixel. */
static bool is_displaced(const float *view, const float *image, int down, int right)
{
    for (int y = 0; y < 28; y++)
        for (int x = 0; x < 28; x++) {
            int from_y = y - down, from_x = x - right;

            from_y = from_y < 0 ? 0 : from_y > 27 ? 27 : from_y;
            from_x = from_x < 0 ? 0 : from_x > 27 ? 27 : from_x;
            if (view[y * 28 + x] != image[from_y * 28 + from_x])
                return false;
        }
    return true;
}

Test(scenario_runs, views_are_displaced)
{
    ty_workload *w = open_workload(taught);
    char *directory = directory_make();
    ty_dataset *dataset = NULL;
    float row[2 * 28 * 28], whole[28 * 28];
    bool is_met[5][5] = {{false}};
    uint32_t unlike = 0, met = 0;

    write_data(directory);
    cr_assert_eq(ty_dataset_open(w, directory, false, &dataset, NULL), TY_OK);
    for (uint64_t position = 0; position < 200; position++) {
        cr_assert_eq(ty_dataset_sample(dataset, position, row, NULL, NULL, NULL), TY_OK);
        memcpy(whole, row, sizeof whole);
        cr_assert_eq(memcmp(whole, row + 28 * 28, sizeof whole), 0);
        ty_dataset_displace(dataset, 7, position, row);
        unlike += memcmp(row, row + 28 * 28, sizeof whole) != 0;
        for (int view = 0; view < 2; view++) {
            bool is_found = false;

            for (int down = -2; down <= 2; down++)
                for (int right = -2; right <= 2; right++)
                    if (is_displaced(row + view * 28 * 28, whole, down, right))
                        is_found = is_met[down + 2][right + 2] = true;
            cr_assert(is_found, "view %d at position %llu", view, (unsigned long long)position);
        }
    }
    for (int i = 0; i < 25; i++)
        met += is_met[i / 5][i % 5];
    cr_expect_eq(met, 25);
    cr_expect_gt(unlike, 150);
    ty_dataset_close(dataset);
    ty_workload_free(w);
    directory_remove(directory);
}

/* ---- Corridors --------------------------------------------------------------------------- */

Test(scenario_runs, corridors)
{
    for (uint64_t seed = 0; seed < 50; seed++) {
        corridor c, again;
        float rays[CORRIDOR_RAYS];
        uint32_t straight_on = 0;

        corridor_begin(&c, seed);
        corridor_begin(&again, seed);
        corridor_observe(&c, rays);
        /* At the start the walls are 1 away on either side, 2 / sqrt 3 at 60 degrees, plus or minus
         * a bend. */
        cr_expect_lt(fabs((double)rays[0] * 4 - 2 / sqrt(3)), 0.7, "%g", (double)rays[0]);
        cr_expect_lt(fabs((double)rays[CORRIDOR_RAYS - 1] * 4 - 2 / sqrt(3)), 0.7, "%g",
                     (double)rays[CORRIDOR_RAYS - 1]);
        for (uint32_t step = 1; c.touches == 0; step++) {
            corridor_step(&c, 1);
            corridor_step(&again, 1);
            straight_on += c.touches == 0;
            if (c.touches == 0)
                cr_assert_float_eq(corridor_score(&c), 1, 1e-12, "%g", corridor_score(&c));
            cr_assert_lt(step, 200, "a corridor without bends");
        }
        cr_expect_eq(memcmp(&c, &again, sizeof c), 0);
        cr_expect_geq(straight_on, 4);
        cr_expect_float_eq(corridor_score(&c), 1 - CORRIDOR_PENALTY, 1e-12);
        cr_expect_eq(c.heading, 0);
        /* Back in the middle, it continues; in circles it does not get far. */
        for (uint32_t step = 0; step < 200; step++)
            corridor_step(&c, 2);
        cr_expect_lt(corridor_score(&c), 0.3);
    }
}

/* ---- Populations ------------------------------------------------------------------------- */

#define POPULATION(steps, members, outputs)                                                        \
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"steered\", \"family\": \"sequential\","         \
    "\"source\": \"corridor-evolution.json\", \"input\": [" steps ", 9], \"sample_bytes\": 8,"     \
    "\"dataset\": \"corridor\", \"global_batch\": 24, \"learning\": \"evolution\"," members        \
    "\"optimizer\": {\"kind\": \"sgd\", \"learning_rate\": 0.3, \"momentum\": 0.5,"                \
    "\"weight_decay\": 0}, \"layers\": [{\"kind\": \"linear\", \"out_features\": 7},"              \
    "{\"kind\": \"tanh\"}, {\"kind\": \"linear\", \"out_features\": " outputs "}]}"

static const char steered[] = POPULATION("40", "\"deviation\": 0.2,", "3");

/* A member plays the same on any replica, and all replicas learn from all members in the same
 * order. */
Test(scenario_runs, a_population_of_replicas)
{
    static const plan_shape alone = {.name = "one rank",
                                     .replicas = {1},
                                     .buckets = 1,
                                     .global_batch = 24,
                                     .micro_batch_size = 24};
    static const plan_shape shapes[] = {
        {"8 micro-batches", .replicas = {1}, .buckets = 1, .global_batch = 24,
         .micro_batch_size = 3},
        {"2 replicas", .replicas = {2}, .buckets = 1, .global_batch = 24, .micro_batch_size = 12},
        {"4 replicas, 2 buckets", .replicas = {4}, .buckets = 2, .global_batch = 24,
         .micro_batch_size = 3},
        {"3 replicas", .replicas = {3}, .buckets = 1, .global_batch = 24, .micro_batch_size = 2},
    };
    outcome expected = run_plan(steered, &alone, 10);

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        outcome found = run_plan(steered, &shapes[i], 10);

        /* Only sums of losses are in another order. */
        compare_gradients(shapes[i].name, &found, &expected, 0);
        compare_losses(shapes[i].name, &found, &expected, 1e-12);
        outcome_free(&found);
    }
    outcome_free(&expected);
}

/* 9 distances, 7 units, 3 actions, in doubles: outputs of the units, and scores. */
static void plain_policy(const double *w, const float *rays, double *hidden, double *scores)
{
    for (uint32_t h = 0; h < 7; h++) {
        double sum = w[63 + h];
        for (uint32_t i = 0; i < 9; i++)
            sum += w[9 * h + i] * (double)rays[i];
        hidden[h] = tanh(sum);
    }
    for (uint32_t a = 0; a < 3; a++) {
        scores[a] = w[70 + 21 + a];
        for (uint32_t h = 0; h < 7; h++)
            scores[a] += w[70 + 7 * a + h] * hidden[h];
    }
}

static double plain_episode(const double *w, uint64_t seed, uint32_t steps)
{
    corridor c;

    corridor_begin(&c, seed);
    while (c.steps < steps) {
        float rays[CORRIDOR_RAYS];
        double hidden[7], scores[3];
        uint32_t action = 0;

        corridor_observe(&c, rays);
        plain_policy(w, rays, hidden, scores);
        for (uint32_t a = 1; a < 3; a++)
            action = scores[a] > scores[action] ? a : action;
        corridor_step(&c, action);
    }
    return corridor_score(&c);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* (rank - (n - 1) / 2) / (n - 1), ranks by sorting; equal scores share their mean rank. */
static double centred_rank(const double *scores, uint32_t count, double score)
{
    double sorted[24], sum = 0;
    uint32_t equal = 0;

    memcpy(sorted, scores, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, ascending);
    for (uint32_t i = 0; i < count; i++)
        if (sorted[i] == score) {
            sum += i;
            equal++;
        }
    return sum / equal / (count - 1) - 0.5;
}

Test(scenario_runs, a_population_by_definition)
{
    enum { STEPS = 6, MEMBERS = 24, PARAMETERS = 9 * 7 + 7 + 7 * 3 + 3 };
    static const plan_shape shape = {.name = "two replicas",
                                     .replicas = {2},
                                     .buckets = 1,
                                     .global_batch = MEMBERS,
                                     .micro_batch_size = 4};
    char *directory = directory_make();
    ty_job *job = make_job(make_plan(steered, &shape), STEPS, directory);
    const ty_plan *plan = job->plan;
    const double deviation = plan->workload->deviation;
    ty_workload *policy = NULL;
    reference *r;
    double speed[PARAMETERS] = {0}, tests = 0;
    ty_error error = {0};
    outcome found;

    job->until.accuracy = 1;
    job->evaluate_every = STEPS;
    found = outcome_of(job);
    cr_assert_eq(ty_workload_step_make(plan->workload, &policy, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_workload_parameter_bytes(policy, 0, policy->layer_count),
                 PARAMETERS * sizeof(float));
    r = reference_new(policy, 1);
    {
        ty_plan of_policy = *plan; /* with the same weights */
        of_policy.workload = policy;
        initial_weights(&of_policy, r);
    }
    for (uint32_t t = 0; t < STEPS; t++) {
        double scores[MEMBERS], sum = 0, gradient[PARAMETERS] = {0};
        float noise[MEMBERS][PARAMETERS];

        for (uint32_t m = 0; m < MEMBERS; m++) {
            const double sign = m % 2 == 0 ? 1 : -1;
            double own[PARAMETERS];

            evolution_noise(evolution_seed(plan->seed, t, m), 0, PARAMETERS, noise[m]);
            cr_assert(m % 2 == 0 || memcmp(noise[m], noise[m - 1], sizeof *noise) == 0);
            for (uint32_t i = 0; i < PARAMETERS; i++)
                own[i] = r->parameters[i] + sign * deviation * (double)noise[m][i];
            scores[m] = plain_episode(own, evolution_corridor(plan->seed, t), 40);
            sum += 1 - scores[m];
        }
        cr_expect(fabs(found.run->losses[t] - sum / MEMBERS) < 1e-6,
                  "loss of step %u is %.9g, expected %.9g", t, found.run->losses[t], sum / MEMBERS);
        for (uint32_t m = 0; m < MEMBERS; m++)
            for (uint32_t i = 0; i < PARAMETERS; i++)
                gradient[i] -= (m % 2 == 0 ? 1 : -1) * centred_rank(scores, MEMBERS, scores[m]) *
                               (double)noise[m][i] / (MEMBERS * deviation);
        for (uint32_t i = 0; i < PARAMETERS; i++) {
            speed[i] = plan->optimizer.momentum * speed[i] + gradient[i];
            r->parameters[i] -= plan->optimizer.learning_rate * speed[i];
        }
    }
    for (uint32_t n = 0; n < SCENARIO_TESTS; n++)
        tests += 1 - plain_episode(r->parameters, scenario_test_corridor(n), 40);
    cr_assert_eq(found.run->evaluation_count, 1);
    cr_expect(fabs(found.run->evaluations[0].loss - tests / SCENARIO_TESTS) < 1e-6,
              "a test loss of %.9g is %.9g", tests / SCENARIO_TESTS,
              found.run->evaluations[0].loss);
    reference_free(r);
    ty_workload_free(policy);
    outcome_free(&found);
    ty_job_free(job);
    directory_remove(directory);
}

/* Populations that the worker cannot run are refused with the reason. */
Test(scenario_runs, populations_that_are_refused)
{
    static const struct {
        const char *workload;
        plan_shape shape;
        const char *words;
    } rows[] = {
        {"es-humanoid",
         {"synthetic", .replicas = {1}, .buckets = 1, .global_batch = 24, .micro_batch_size = 24},
         "found data set synthetic, expected corridor"},
        {POPULATION("40", "", "3"),
         {"no noise", .replicas = {1}, .buckets = 1, .global_batch = 24, .micro_batch_size = 24},
         "found no deviation"},
        {POPULATION("500", "\"deviation\": 0.2,", "3"),
         {"long", .replicas = {1}, .buckets = 1, .global_batch = 24, .micro_batch_size = 24},
         "at most 400 steps x 9 distances"},
        {POPULATION("40", "\"deviation\": 0.2,", "4"),
         {"4 actions", .replicas = {1}, .buckets = 1, .global_batch = 24, .micro_batch_size = 24},
         "as many steps x 3 actions"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *directory = directory_make();
        ty_job *job = make_job(make_plan(rows[i].workload, &rows[i].shape), 2, directory);
        ty_error error = {0};

        cr_expect_neq(ty_execute_job_locally(job, 1, &(ty_execute_options){0}, &error), TY_OK, "%s",
                      rows[i].shape.name);
        cr_expect_not_null(strstr(error.message, rows[i].words), "%s: %s", rows[i].shape.name,
                           error.message);
        ty_job_free(job);
        directory_remove(directory);
    }
}

/* ---- Streams ----------------------------------------------------------------------------- */

/* The robots' input and the driver's steering: distances as bytes, turns toward the larger free
 * space; the test drives are not among the training drives. */
Test(scenario_runs, what_robots_see)
{
    ty_workload *w = open_workload("corridor-navigation");
    ty_dataset *dataset[2] = {NULL};
    float seen[2][CORRIDOR_RAYS];
    uint32_t counts[CORRIDOR_ACTIONS] = {0}, equal = 0;

    for (int part = 0; part < 2; part++)
        cr_assert_eq(ty_dataset_open(w, NULL, part == 1, &dataset[part], NULL), TY_OK);
    cr_expect_eq(ty_dataset_sample_count(dataset[0]), 60000);
    cr_expect_eq(ty_dataset_sample_count(dataset[1]), 6000);
    for (uint64_t s = 0; s < 6000; s++) {
        double more_left = 0;
        int32_t label, other;

        for (int part = 0; part < 2; part++)
            cr_assert_eq(ty_dataset_sample(dataset[part], s, seen[part], NULL,
                                           part == 0 ? &label : &other, NULL),
                         TY_OK);
        for (uint32_t r = 0; r < 4; r++)
            more_left += (double)seen[0][8 - r] - (double)seen[0][r];
        if (fabs(fabs(more_left) - 0.3) > 0.02) /* bytes differ by up to 8 halves of 1 / 255 */
            cr_assert_eq(label, more_left > 0.3 ? 2 : more_left < -0.3 ? 0 : 1, "%g", more_left);
        counts[label]++;
        equal += memcmp(seen[0], seen[1], sizeof seen[0]) == 0;
    }
    for (uint32_t a = 0; a < CORRIDOR_ACTIONS; a++)
        cr_expect_gt(counts[a], 600, "action %u", a);
    cr_expect_lt(equal, 300);
    ty_dataset_close(dataset[0]);
    ty_dataset_close(dataset[1]);
    ty_workload_free(w);
}

#define NAVIGATION(pace)                                                                           \
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"navigation\", \"family\": \"sequential\","      \
    "\"source\": \"corridor-navigation.json\", \"input\": [9], \"sample_bytes\": 10,"              \
    "\"dataset\": \"corridor\", \"global_batch\": 16," pace "\"optimizer\": {\"kind\": \"sgd\","   \
    "\"learning_rate\": 0.1, \"momentum\": 0.9, \"weight_decay\": 0}, \"layers\": [{\"kind\":"     \
    "\"linear\", \"out_features\": 3}, {\"kind\": \"softmax_cross_entropy\"}]}"

/* Samples arrive at the rate of their source, and immediately if it has none; the results are the
 * same. */
Test(scenario_runs, sources_have_their_pace)
{
    static const plan_shape shape = {.name = "two robots",
                                     .replicas = {2},
                                     .buckets = 1,
                                     .global_batch = 16,
                                     .micro_batch_size = 4};
    static const char *const workloads[] = {NAVIGATION(""),
                                            NAVIGATION("\"input_s_per_sample\": 0.005,")};
    enum { STEPS = 6 };
    outcome found[2];

    for (int paced = 0; paced < 2; paced++) {
        char *directory = directory_make();
        ty_job *job = make_job(make_plan(workloads[paced], &shape), STEPS, directory);

        ty_free(job->gradients); /* saving them would pause the run */
        job->gradients = NULL;
        found[paced] = outcome_of(job);
        ty_job_free(job);
        directory_remove(directory);
    }
    cr_expect_geq(found[1].run->wall_s, 0.005 * STEPS * 8 - 1e-3, "%g s", found[1].run->wall_s);
    compare_losses("paced", &found[1], &found[0], 0);
    outcome_free(&found[0]);
    outcome_free(&found[1]);
}

/* ---- Checkpoints ------------------------------------------------------------------------- */

static void go_on_compare(const char *workload, const plan_shape *shape)
{
    enum { STEPS = 6, HALF = 3 };
    ty_run *runs[2] = {NULL};

    for (int cut = 0; cut < 2; cut++) {
        char *directory = directory_make();
        ty_job *job = make_job(make_plan(workload, shape), cut ? HALF : STEPS, directory);
        char place[512], command[600];
        ty_error error = {0};

        snprintf(place, sizeof place, "%s/state", directory);
        snprintf(command, sizeof command, "rm -rf %s", place);
        ty_free(job->gradients); /* another pause */
        job->gradients = NULL;
        job->checkpoint = ty_strdup(place);
        job->checkpoint_every = HALF;
        for (int part = 0; part <= cut; part++) {
            job->steps = cut && part == 0 ? HALF : STEPS;
            job->resume = part > 0;
            cr_assert_eq(ty_execute_job_locally(job, ty_plan_rank_count(job->plan),
                                                &(ty_execute_options){0}, &error),
                         TY_OK, "%s: %s", shape->name, error.message);
        }
        cr_assert_eq(ty_run_load(job->output, &runs[cut], &error), TY_OK, "%s", error.message);
        ty_job_free(job);
        cr_assert_eq(system(command), 0);
        directory_remove(directory);
    }
    for (uint32_t t = 0; t < STEPS; t++)
        cr_expect_eq(runs[0]->losses[t], runs[1]->losses[t], "%s: step %u", shape->name, t);
    ty_run_free(runs[0]);
    ty_run_free(runs[1]);
}

/* A run resumed from a checkpoint continues without a difference, teacher and noise included. */
Test(scenario_runs, checkpoints)
{
    static const plan_shape shape = {.name = "a teacher of 2",
                                     .replicas = {2},
                                     .buckets = 2,
                                     .frozen = 5,
                                     .global_batch = 24,
                                     .micro_batch_size = 3};
    static const plan_shape population = {.name = "a population of 2",
                                          .replicas = {2},
                                          .buckets = 1,
                                          .global_batch = 24,
                                          .micro_batch_size = 3};

    go_on_compare(taught, &shape);
    go_on_compare(steered, &population);
}

/* ---- Actors and learners ------------------------------------------------------------------ */

#define PLAYED(steps, dataset)                                                                     \
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"played\", \"family\": \"sequential\","          \
    "\"source\": \"corridor-reinforce.json\", \"input\": [" steps ", 9], \"sample_bytes\": 8,"     \
    "\"dataset\": \"" dataset "\", \"global_batch\": 24, \"learning\": \"reinforcement\","         \
    "\"optimizer\": {\"kind\": \"sgd\", \"learning_rate\": 0.5, \"momentum\": 0.5,"                \
    "\"weight_decay\": 0}, \"layers\": [{\"kind\": \"linear\", \"out_features\": 7},"              \
    "{\"kind\": \"tanh\"}, {\"kind\": \"linear\", \"out_features\": 3},"                           \
    "{\"kind\": \"softmax_cross_entropy\"}]}"

static const char played[] = PLAYED("40", "corridor");

/* For any number of actors and learners: the same episodes and, up to the order of sums, the same
 * weights. */
Test(scenario_runs, actors_and_learners)
{
    static const plan_shape alone = {.name = "one rank",
                                     .replicas = {1},
                                     .buckets = 1,
                                     .global_batch = 24,
                                     .micro_batch_size = 4};
    static const struct {
        plan_shape shape;
        double tolerance;
    } rows[] = {
        {{"1 actor", .replicas = {1, 1}, .buckets = 1, .global_batch = 24, .micro_batch_size = 4},
         0},
        {{"2 actors", .replicas = {2, 1}, .buckets = 1, .global_batch = 24, .micro_batch_size = 4},
         0},
        {{"3 actors, 1F1B", .schedule = TY_ONE_F_ONE_B, .replicas = {3, 1}, .buckets = 2,
          .global_batch = 24, .micro_batch_size = 4},
         1e-6},
        {{"2 learners", .replicas = {2}, .buckets = 1, .global_batch = 24, .micro_batch_size = 4},
         1e-5},
        {{"1 actor, 2 learners", .replicas = {1, 2}, .buckets = 1, .global_batch = 24,
          .micro_batch_size = 4},
         1e-5},
        {{"2 actors, 2 learners, 2 buckets", .replicas = {2, 2}, .buckets = 2, .global_batch = 24,
          .micro_batch_size = 4},
         1e-5},
        {{"1 actor, 3 learners, fp16", .replicas = {1, 3}, .buckets = 1, .global_batch = 24,
          .micro_batch_size = 4, .compression.kind = TY_COMPRESSION_FP16},
         2e-3},
        {{"6 actors, 2 learners", .replicas = {6, 2}, .buckets = 1, .global_batch = 24,
          .micro_batch_size = 4, .algorithm = TY_TREE},
         1e-5},
    };
    outcome expected = run_plan(played, &alone, 6);

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        outcome found = run_plan(played, &rows[i].shape, 6);

        compare_gradients(rows[i].shape.name, &found, &expected, rows[i].tolerance);
        compare_losses(rows[i].shape.name, &found, &expected,
                       rows[i].tolerance > 0 ? rows[i].tolerance : 1e-12);
        outcome_free(&found);
    }
    outcome_free(&expected);
}

/* With staleness, too, the results do not depend on the number of actors and learners. */
Test(scenario_runs, actors_that_lag)
{
    for (uint32_t lag = 1; lag <= 2; lag++) {
        const plan_shape rows[] = {
            {"1 actor", .replicas = {1, 1}, .buckets = 1, .global_batch = 24, .micro_batch_size = 4,
             .lag = lag},
            {"3 actors", .replicas = {3, 1}, .buckets = 1, .global_batch = 24,
             .micro_batch_size = 4, .lag = lag},
            {"1 actor, 2 learners", .replicas = {1, 2}, .buckets = 1, .global_batch = 24,
             .micro_batch_size = 4, .lag = lag},
        };
        outcome expected = run_plan(played, &rows[0], 8);

        for (size_t i = 1; i < sizeof rows / sizeof *rows; i++) {
            outcome found = run_plan(played, &rows[i], 8);
            const double tolerance = rows[i].replicas[1] > 1 ? 1e-5 : 1e-12;

            compare_gradients(rows[i].name, &found, &expected, tolerance);
            compare_losses(rows[i].name, &found, &expected, tolerance);
            outcome_free(&found);
        }
        outcome_free(&expected);
    }
}

enum {
    PLAYED_STEPS = 40,
    PLAYED_BATCH = 24,
    PLAYED_MICRO = 4,
    PLAYED_WEIGHTS = 9 * 7 + 7 + 7 * 3 + 3
};

/* The outputs of the units, and probabilities. */
static void plain_chances(const double *w, const float *rays, double *hidden, double *chances)
{
    double sum = 0;

    plain_policy(w, rays, hidden, chances);
    for (uint32_t a = 0; a < 3; a++) {
        chances[a] = exp(chances[a]);
        sum += chances[a];
    }
    for (uint32_t a = 0; a < 3; a++)
        chances[a] /= sum;
}

typedef struct plain_step {
    float rays[CORRIDOR_RAYS];
    uint32_t action;
    double came, advantage;
} plain_step;

/* @return the score */
static double plain_play(const ty_plan *plan, const double *w, uint32_t step, uint32_t episode,
                         plain_step *steps)
{
    corridor c;

    corridor_begin(&c, episode_corridor(plan->seed, step, episode));
    for (uint32_t t = 0; t < PLAYED_STEPS; t++) {
        const double at = episode_draw(plan->seed, step, episode, t);
        double hidden[7], chances[3], before;

        corridor_observe(&c, steps[t].rays);
        plain_chances(w, steps[t].rays, hidden, chances);
        steps[t].action = at < chances[0] ? 0 : at < chances[0] + chances[1] ? 1 : 2;
        before = c.x / 0.2 - 0.05 * PLAYED_STEPS * c.touches;
        corridor_step(&c, steps[t].action);
        steps[t].came = c.x / 0.2 - 0.05 * PLAYED_STEPS * c.touches - before;
    }
    return corridor_score(&c);
}

/* Advantages of a micro-batch: weighted means of future rewards, standardized. */
static void plain_advantages(plain_step *steps)
{
    const uint32_t all = PLAYED_MICRO * PLAYED_STEPS;
    double mean = 0, variance = 0;

    for (uint32_t i = 0; i < all; i++) {
        const uint32_t end = (i / PLAYED_STEPS + 1) * PLAYED_STEPS;
        double sum = 0, weights = 0;

        for (uint32_t u = i; u < end; u++) {
            sum += pow(EPISODE_DISCOUNT, u - i) * steps[u].came;
            weights += pow(EPISODE_DISCOUNT, u - i);
        }
        steps[i].advantage = sum / weights;
        mean += sum / weights / all;
    }
    for (uint32_t i = 0; i < all; i++)
        variance += (steps[i].advantage - mean) * (steps[i].advantage - mean) / all;
    for (uint32_t i = 0; i < all; i++)
        steps[i].advantage = (steps[i].advantage - mean) / sqrt(variance);
}

/* The gradient of mean advantage x -log(probability of the action). */
static void plain_gradient(const double *w, const plain_step *s, double *gradient)
{
    const double share = s->advantage / (PLAYED_BATCH * PLAYED_STEPS);
    double hidden[7], chances[3];

    plain_chances(w, s->rays, hidden, chances);
    for (uint32_t a = 0; a < 3; a++) {
        const double of_score = share * (chances[a] - (a == s->action));

        gradient[70 + 21 + a] += of_score;
        for (uint32_t h = 0; h < 7; h++) {
            const double of_unit = of_score * w[70 + 7 * a + h] * (1 - hidden[h] * hidden[h]);

            gradient[70 + 7 * a + h] += of_score * hidden[h];
            gradient[63 + h] += of_unit;
            for (uint32_t i = 0; i < 9; i++)
                gradient[9 * h + i] += of_unit * (double)s->rays[i];
        }
    }
}

/* REINFORCE in doubles. Step k plays with the weights after step k - 1 - lag, or after the last
 * test. */
static void expect_by_definition(const plan_shape *shape)
{
    enum { STEPS = 8, TEST_EVERY = 4 };
    char *directory = directory_make();
    ty_job *job = make_job(make_plan(played, shape), STEPS, directory);
    const ty_plan *plan = job->plan;
    const ty_stage_options options = {.workload = plan->workload,
                                      .layer_count = plan->workload->layer_count,
                                      .micro_batch_size = 1,
                                      .slots = 1,
                                      .seed = plan->seed,
                                      .tied_layer = TY_NO_LAYER};
    static double weights[STEPS + 1][PLAYED_WEIGHTS]; /* after each step */
    static plain_step steps_of[PLAYED_BATCH][PLAYED_STEPS];
    double speed[PLAYED_WEIGHTS] = {0}, tests = 0;
    ty_stage_device *device = NULL;
    outcome found;

    job->until.accuracy = 1;
    job->evaluate_every = TEST_EVERY;
    ty_free(job->gradients); /* it would force a checkpoint interval after the first step */
    job->gradients = NULL;
    found = outcome_of(job);
    cr_assert_eq(ty_device_cpu.open(&options, &device, NULL), TY_OK);
    cr_assert_eq(ty_device_cpu.parameter_count(device), PLAYED_WEIGHTS);
    for (uint32_t i = 0; i < PLAYED_WEIGHTS; i++)
        weights[0][i] = (double)ty_device_cpu.parameters(device)[i];
    ty_device_cpu.close(device);
    for (uint32_t k = 0; k < STEPS; k++) {
        const uint32_t begun = k / TEST_EVERY * TEST_EVERY;
        const uint32_t behind = k < begun + plan->lag ? begun : k - plan->lag;
        double lost = 0, gradient[PLAYED_WEIGHTS] = {0};

        for (uint32_t e = 0; e < PLAYED_BATCH; e++)
            lost += 1 - plain_play(plan, weights[behind], k, e, steps_of[e]);
        for (uint32_t e = 0; e < PLAYED_BATCH; e += PLAYED_MICRO)
            plain_advantages(steps_of[e]);
        for (uint32_t i = 0; i < PLAYED_BATCH * PLAYED_STEPS; i++)
            plain_gradient(weights[k], &steps_of[i / PLAYED_STEPS][i % PLAYED_STEPS], gradient);
        cr_expect(fabs(found.run->losses[k] - lost / PLAYED_BATCH) < 1e-5,
                  "%s: loss of step %u is %.9g, expected %.9g", shape->name, k,
                  found.run->losses[k], lost / PLAYED_BATCH);
        for (uint32_t i = 0; i < PLAYED_WEIGHTS; i++) {
            speed[i] = plan->optimizer.momentum * speed[i] + gradient[i];
            weights[k + 1][i] = weights[k][i] - plan->optimizer.learning_rate * speed[i];
        }
    }
    for (uint32_t n = 0; n < SCENARIO_TESTS; n++)
        tests += 1 - plain_episode(weights[STEPS], scenario_test_corridor(n), 40);
    cr_assert_eq(found.run->evaluation_count, 2);
    cr_expect(fabs(found.run->evaluations[1].loss - tests / SCENARIO_TESTS) < 1e-5,
              "%s: a test loss of %.9g is %.9g", shape->name, tests / SCENARIO_TESTS,
              found.run->evaluations[1].loss);
    outcome_free(&found);
    ty_job_free(job);
    directory_remove(directory);
}

Test(scenario_runs, reinforcement_by_definition)
{
    static const plan_shape shapes[] = {
        {"one rank", .replicas = {1}, .buckets = 1, .global_batch = 24, .micro_batch_size = 4},
        {"2 actors", .replicas = {2, 1}, .buckets = 1, .global_batch = 24, .micro_batch_size = 4},
        {"lag 1", .replicas = {3, 1}, .buckets = 1, .global_batch = 24, .micro_batch_size = 4,
         .lag = 1},
        {"lag 2, 2 learners", .replicas = {1, 2}, .buckets = 1, .global_batch = 24,
         .micro_batch_size = 4, .lag = 2},
    };

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        expect_by_definition(&shapes[i]);
}

/* From a driver that touches walls all the time to one that passes all corridors, none of which was
 * in training. */
Test(scenario_runs, reinforcement_learns)
{
    static const plan_shape shape = {.name = "2 actors, lag 1",
                                     .replicas = {2, 1},
                                     .buckets = 1,
                                     .global_batch = 64,
                                     .micro_batch_size = 16,
                                     .lag = 1};
    char *directory = directory_make();
    ty_job *job = make_job(make_plan("corridor-reinforce", &shape), 40, directory);
    outcome found;

    job->until.accuracy = 1;
    job->evaluate_every = 40;
    found = outcome_of(job);
    cr_expect_gt(found.run->losses[0], 1, "%g", found.run->losses[0]);
    cr_assert_eq(found.run->evaluation_count, 1);
    cr_expect_geq(found.run->evaluations[0].accuracy, 0.95, "%g",
                  found.run->evaluations[0].accuracy);
    cr_expect_lt(found.run->evaluations[0].loss, 0.15, "%g", found.run->evaluations[0].loss);
    outcome_free(&found);
    ty_job_free(job);
    directory_remove(directory);
}

/* Episodes that the worker cannot run are refused with the reason, for any number of actors. */
Test(scenario_runs, episodes_that_are_refused)
{
    static const struct {
        const char *workload;
        plan_shape shape;
        const char *words;
    } rows[] = {
        {PLAYED("40", "synthetic"),
         {"alone", .replicas = {1}, .buckets = 1, .global_batch = 24, .micro_batch_size = 24},
         "found data set synthetic, expected corridor"},
        {PLAYED("500", "corridor"),
         {"actors", .replicas = {1, 1}, .buckets = 1, .global_batch = 24, .micro_batch_size = 24},
         "at most 400 steps x 9 distances"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *directory = directory_make();
        ty_job *job = make_job(make_plan(rows[i].workload, &rows[i].shape), 2, directory);
        ty_error error = {0};

        cr_expect_neq(ty_execute_job_locally(job, ty_plan_launched_count(job->plan),
                                             &(ty_execute_options){0}, &error),
                      TY_OK, "%s", rows[i].shape.name);
        cr_expect_not_null(strstr(error.message, rows[i].words), "%s: %s", rows[i].shape.name,
                           error.message);
        ty_job_free(job);
        directory_remove(directory);
    }
}
