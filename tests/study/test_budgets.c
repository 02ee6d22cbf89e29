/* Budgets of devices: requirements of variants against a slow count, the chosen variant, and plans
 * with it. */
#include "ty_study.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static ty_workload *open_workload(const char *name)
{
    ty_workload *w = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_workload_open(name, &w, &error), TY_OK, "%s", error.message);
    return w;
}

static ty_budget open_budget(const char *text)
{
    ty_budget budget = {0};
    ty_error error = {0};

    cr_assert_eq(ty_budget_open(text, &budget, &error), TY_OK, "%s: %s", text, error.message);
    return budget;
}

/* ---- Needs ------------------------------------------------------------------------------------
 */

/* The layer whose memory contains a layer's output. */
static uint32_t memory_of(const ty_workload *w, uint32_t layer)
{
    const ty_layer *l = &w->layers[layer];

    return l->stash_bytes == 0 && l->input_count == 1 ? memory_of(w, l->inputs[0]) : layer;
}

/* Whether layer `now` or a later one reads the output of layer `made`. */
static bool is_read_from(const ty_workload *w, uint32_t made, uint32_t now)
{
    for (uint32_t l = now; l < w->layer_count; l++)
        for (uint32_t k = 0; k < w->layers[l].input_count; k++)
            if (memory_of(w, w->layers[l].inputs[k]) == made)
                return true;
    return false;
}

static uint64_t slow_activation_bytes(const ty_workload *w)
{
    uint64_t most = 0;

    for (uint32_t now = 0; now < w->layer_count; now++) {
        uint64_t alive = 0;
        if (w->layers[now].kind == TY_LAYER_SOFTMAX_CROSS_ENTROPY)
            continue;
        for (uint32_t l = now; l < w->layer_count; l++)
            if (w->layers[l].input_count == 0) {
                alive = ty_shape_elements(&w->input);
                break;
            }
        for (uint32_t made = 0; made <= now; made++)
            if (memory_of(w, made) == made &&
                (made == memory_of(w, now) || is_read_from(w, made, now)))
                alive += ty_shape_elements(&w->layers[made].output);
        most = alive > most ? alive : most;
    }
    return 4 * most;
}

Test(budgets, needs_are_those_of_a_slow_count)
{
    static const char *const names[] = {
        "lenet",   "mlp",         "fedavg-cnn", "resnet50", "gpt-tiny",
        "alexnet", "densenet121", "dlrm-tiny",  "gnmt-8",   "corridor-navigation"};
    const ty_budget budget = {.memory_bytes = 1, .flop_per_s = 3e9};

    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        ty_workload *w = open_workload(names[n]);
        const ty_variant whole = ty_variant_at(0);
        ty_variant_need need;
        ty_error error = {0};
        double flop = 0;
        uint64_t statistics = 0;

        cr_assert_eq(ty_variant_needs(w, &whole, &budget, &need, &error), TY_OK, "%s: %s", names[n],
                     error.message);
        for (uint32_t l = 0; l < w->layer_count; l++) {
            if (w->layers[l].kind != TY_LAYER_SOFTMAX_CROSS_ENTROPY)
                flop += w->layers[l].forward_flop;
            if (w->layers[l].kind == TY_LAYER_BATCH_NORM)
                statistics += 2 * w->layers[l].attributes[TY_FEATURES];
        }
        cr_expect_eq(need.activation_bytes, slow_activation_bytes(w), "%s: %llu, slowly %llu",
                     names[n], (unsigned long long)need.activation_bytes,
                     (unsigned long long)slow_activation_bytes(w));
        cr_expect_eq(need.weight_bytes,
                     ty_workload_parameter_bytes(w, 0, w->layer_count) + 4 * statistics, "%s",
                     names[n]);
        cr_expect(fabs(need.time_s - flop / 3e9) <= 1e-12 * need.time_s, "%s: %g s, expected %g",
                  names[n], need.time_s, flop / 3e9);
        ty_workload_free(w);
    }
}

/* lenet by hand: 5x5 of 1 and of 20 channels, 800 x 500 and 500 x 10 weights. */
Test(budgets, lenet_by_hand)
{
    ty_workload *w = open_workload("lenet");
    const uint64_t rows = 20 + 50 + 500 + 10, weights = 500 + 25000 + 400000 + 5000;
    const uint64_t kept = 125 + 6250 + 100000 + 1250; /* a quarter of each */
    const ty_variant int8 = {8, 0}, pruned = {4, 75};
    /* The first convolution's output is 20 x 24 x 24, which pooling reduces to 20 x 12 x 12. */
    const uint64_t alive = 4 * (20 * 24 * 24 + 20 * 12 * 12);
    const ty_budget budget = {.memory_bytes = 1, .bandwidth_bytes_per_s = 1e6};
    ty_variant_need need;

    cr_expect_eq(ty_variant_weight_bytes(w, &int8), weights + 4 * rows + 4 * rows);
    cr_expect_eq(ty_variant_weight_bytes(w, &pruned),
                 /* nibbles and bits in full bytes */
                 (63 + 3125 + 50000 + 625) + 4 * rows + (63 + 3125 + 50000 + 625) + 4 * rows,
                 "%llu", (unsigned long long)ty_variant_weight_bytes(w, &pruned));
    cr_expect_eq(kept, 107625);
    cr_assert_eq(ty_variant_needs(w, &int8, &budget, &need, NULL), TY_OK);
    cr_expect_eq(need.activation_bytes, alive);
    cr_expect(fabs(need.time_s - (double)need.weight_bytes / 1e6) < 1e-9, "all weights are read");
    ty_workload_free(w);
}

/* A sample of 16 tokens reads 16 rows of a table. */
Test(budgets, tables_are_read_by_rows)
{
    ty_workload *w = open_workload("gpt-tiny sequence=16");
    const ty_variant whole = ty_variant_at(0);
    const ty_budget budget = {.memory_bytes = 1, .bandwidth_bytes_per_s = 1e6};
    const ty_layer *table = &w->layers[0];
    ty_variant_need need;
    double bytes = 0;

    cr_assert_eq(table->kind, TY_LAYER_EMBEDDING);
    cr_assert_eq(ty_variant_needs(w, &whole, &budget, &need, NULL), TY_OK);
    for (uint32_t l = 0; l < w->layer_count; l++) {
        const uint32_t owner = w->layers[l].tied_to;
        bytes += (double)w->layers[l].parameter_bytes;
        if (owner != TY_NO_LAYER)
            bytes += 4.0 * (double)(w->layers[owner].attributes[TY_VOCABULARY] *
                                    w->layers[owner].attributes[TY_FEATURES]);
    }
    bytes -=
        4.0 * (double)((table->attributes[TY_VOCABULARY] - 16) * table->attributes[TY_FEATURES]);
    cr_expect(fabs(need.time_s - bytes / 1e6) < 1e-9 * need.time_s, "%g s, expected %g",
              need.time_s, bytes / 1e6);
    ty_workload_free(w);
}

/* ---- Choice ------------------------------------------------------------------------------------
 */

Test(budgets, the_first_variant_that_keeps_it)
{
    ty_workload *w = open_workload("lenet");
    uint32_t last = 0;

    for (double bytes = 4e6; bytes > 50e3; bytes *= 0.97) {
        const ty_budget budget = {.memory_bytes = bytes};
        ty_deployment found = {0};
        ty_error error = {0};
        const ty_status status = ty_deploy(w, &budget, &found, &error);
        uint32_t first = 0;
        ty_variant_need need;

        for (; first < TY_VARIANT_COUNT; first++) {
            const ty_variant variant = ty_variant_at(first);
            cr_assert_eq(ty_variant_needs(w, &variant, &budget, &need, NULL), TY_OK);
            if ((double)need.weight_bytes + (double)need.activation_bytes <= bytes)
                break;
        }
        if (first == TY_VARIANT_COUNT) {
            cr_expect_eq(status, TY_EINFEASIBLE);
            cr_expect(strstr(error.message, "the nearest, int4-pruned-90, needs") != NULL, "%s",
                      error.message);
            last = first;
            continue;
        }
        cr_assert_eq(status, TY_OK, "%s", error.message);
        const ty_variant variant = ty_variant_at(first);
        cr_expect_eq(memcmp(&found.variant, &variant, sizeof variant), 0, "%g bytes", bytes);
        cr_expect_eq(found.need.weight_bytes, need.weight_bytes);
        cr_expect_geq(first, last, "%g bytes: less memory, less kept", bytes);
        last = first;
    }
    cr_expect_eq(last, TY_VARIANT_COUNT, "no budget was too small");
    ty_workload_free(w);
}

Test(budgets, pruning_saves_no_time)
{
    ty_workload *w = open_workload("lenet");
    ty_budget budget = open_budget("memory=10MB,time=1ms,rate=1e6");
    ty_deployment found;
    ty_error error = {0};

    cr_expect_eq(ty_deploy(w, &budget, &found, &error), TY_EINFEASIBLE);
    cr_expect(strstr(error.message, "no variant of lenet keeps 10 MB and 1 ms: the nearest, fp32, "
                                    "needs") != NULL,
              "%s", error.message);
    budget = open_budget("time=1ms,bandwidth=1GB/s"); /* reading the weights only: 1 MB */
    cr_assert_eq(ty_deploy(w, &budget, &found, &error), TY_OK, "%s", error.message);
    cr_expect_eq(found.variant.bits, 16);
    ty_workload_free(w);
}

/* ---- Words -------------------------------------------------------------------------------------
 */

Test(budgets, words_are_read_and_written)
{
    static const char *const texts[] = {"phone", "microcontroller,variant=int8-pruned-50",
                                        "memory=100000,time=0.1,rate=1e12,bandwidth=1e10",
                                        "time=0.25,rate=92000000,variant=fp16"};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const ty_budget budget = open_budget(texts[i]);
        ty_text words = {0};
        ty_budget again;

        ty_budget_words(&budget, &words);
        again = open_budget(words.data);
        cr_expect_eq(memcmp(&budget, &again, sizeof budget), 0, "%s: %s", texts[i], words.data);
        ty_text_clear(&words);
    }
    cr_expect_eq(open_budget("Phone").memory_bytes, 100e6, "as people type it");
    cr_expect_str_eq(open_budget("phone,time=20ms").name, "", "figures of one's own");
    cr_expect_eq(open_budget("phone,time=20ms").memory_bytes, 100e6);
}

Test(budgets, what_is_wrong_with_words)
{
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"phon", "expected sensor, microcontroller, phone, jetson-nano, or figures"},
        {"phome", "did you mean phone?"},
        {"memory=0", "--budget memory: found '0', expected a size"},
        {"memory=lots", "--budget memory: found \"lots\""},
        {"memory=1MB,tim=2ms", "did you mean time?"},
        {"time=0,rate=1", "--budget time: found '0', expected a time"},
        {"time=100ms", "found time= and nothing by which to tell it"},
        {"rate=1TFLOPS", "found no limit, expected memory= or time="},
        {"memory=1MB,rate=fast", "--budget rate: found \"fast\", expected a rate such as 1TFLOPS"},
        {"memory=1MB,rate=0", "--budget rate: found '0'"},
        {"memory=1MB,bandwidth=0", "--budget bandwidth: found '0'"},
        {"memory=1MB,variant=int3", "--budget variant: found 'int3', expected fp32, fp16, int8"},
        {"", "found ''"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_budget budget = {.memory_bytes = 7};
        ty_error error = {0};
        cr_expect_eq(ty_budget_open(rows[i].text, &budget, &error), TY_EINVAL, "%s", rows[i].text);
        cr_expect(strstr(error.message, rows[i].part) != NULL, "%s: %s", rows[i].text,
                  error.message);
        cr_expect_eq(budget.memory_bytes, 7, "%s: changed", rows[i].text);
    }
}

/* ---- Plans -------------------------------------------------------------------------------------
 */

static ty_status plan_of(const ty_question *question, ty_plan **out, ty_error *error)
{
    ty_question_inputs inputs = {0};
    ty_status status = ty_question_open(question, NULL, &inputs, error);

    if (status == TY_OK)
        status = ty_question_plan(question, &inputs, NULL, out, error);
    ty_question_inputs_clear(&inputs);
    return status;
}

Test(budgets, a_plan_carries_it)
{
    ty_question question = {.workload = "lenet", .cluster = "1x p100-server", .seed = 1};
    ty_plan *without = NULL, *plan = NULL, *read = NULL;
    ty_text json = {0}, again = {0};
    ty_json_writer writer = ty_json_writer_on(&json);
    ty_json_document *document = NULL;
    ty_error error = {0};
    char *figure;

    cr_assert_eq(plan_of(&question, &without, &error), TY_OK, "%s", error.message);
    question.budget = "microcontroller";
    cr_assert_eq(plan_of(&question, &plan, &error), TY_OK, "%s", error.message);
    cr_expect_eq(plan->deployment.variant.bits, 4);
    cr_expect_eq(plan->prediction.step_time_s, without->prediction.step_time_s);
    cr_expect_str_eq(plan->fix, without->fix);
    ty_plan_add_question(plan, &again);
    cr_expect(strstr(again.data, " --budget microcontroller") != NULL, "%s", again.data);

    ty_plan_to_json(plan, &writer, NULL);
    cr_assert_eq(ty_json_parse(json.data, json.length, "plan.json", &document, &error), TY_OK);
    cr_assert_eq(ty_plan_from_json(ty_json_root(document), &read, &error), TY_OK, "%s",
                 error.message);
    cr_expect_eq(memcmp(&read->deployment, &plan->deployment, sizeof plan->deployment), 0);
    ty_json_free(document);
    ty_plan_free(read);

    /* Figures of another model. */
    figure = strstr(strstr(json.data, "\"deployment\""), "\"weight_bytes\": ");
    figure[strlen("\"weight_bytes\": ")] = '9';
    cr_assert_eq(ty_json_parse(json.data, json.length, "plan.json", &document, &error), TY_OK);
    cr_expect_eq(ty_plan_from_json(ty_json_root(document), &read, &error), TY_EPARSE);
    cr_expect(strstr(error.message, "plan.json:/deployment: found 9") != NULL, "%s", error.message);
    ty_json_free(document);
    ty_plan_free(without);
    ty_plan_free(plan);
    ty_text_clear(&json);
    ty_text_clear(&again);
}

/* On the devices themselves: the budget's memory is that of training. */
Test(budgets, local_steps_are_on_the_device)
{
    ty_question question = {.workload = "fedavg-cnn",
                            .cluster = "phones",
                            .budget = "memory=1GB,time=100ms,rate=1TFLOPS",
                            .seed = 1};
    ty_plan *plan = NULL;
    ty_error error = {0};

    cr_assert_eq(plan_of(&question, &plan, &error), TY_OK, "%s", error.message);
    cr_expect_eq(ty_cluster_device_type(plan->cluster, 0)->memory_bytes, 1000000000);
    cr_expect_eq(plan->deployment.variant.bits, 32);
    ty_plan_free(plan);
    plan = NULL;
    question.budget = "memory=8MB"; /* for the fp32 model, not for gradients in addition */
    cr_expect_eq(plan_of(&question, &plan, &error), TY_EINFEASIBLE, "%s", error.message);
    cr_expect(strstr(error.message, "--budget") == NULL, "of training: %s", error.message);

    question.workload = "lenet"; /* trained elsewhere */
    cr_assert_eq(plan_of(&question, &plan, &error), TY_OK, "%s", error.message);
    cr_expect_gt(ty_cluster_device_type(plan->cluster, 0)->memory_bytes, 1000000000);
    ty_plan_free(plan);
}

Test(budgets, no_remedy_on_the_training_side)
{
    const ty_question question = {
        .workload = "resnet50", .cluster = "1x p100-server", .budget = "memory=100KB", .seed = 1};
    ty_question_inputs inputs = {0};
    ty_plan *plan = NULL;
    ty_suggestion suggestion;
    ty_error error = {0};

    cr_assert_eq(ty_question_open(&question, NULL, &inputs, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_question_plan(&question, &inputs, NULL, &plan, &error), TY_EINFEASIBLE);
    cr_expect(strstr(error.message, "no variant of resnet50 keeps 100 kB") != NULL, "%s",
              error.message);
    cr_assert_eq(ty_question_suggestion(&question, &inputs, NULL, &suggestion, &error), TY_OK);
    cr_expect_null(suggestion.words);
    ty_suggestion_clear(&suggestion);
    ty_question_inputs_clear(&inputs);
}

Test(budgets, networks_without_a_pass_of_their_own)
{
    static const char *const names[] = {"mean-teacher-fashion", "dqn-atari"};
    const ty_budget budget = {.memory_bytes = 1e9};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ty_workload *w = open_workload(names[i]);
        ty_deployment made;
        ty_error error = {0};
        cr_expect_eq(ty_deploy(w, &budget, &made, &error), TY_EINVAL, "%s", names[i]);
        cr_expect(strstr(error.message, i == 0 ? "a student with its teacher" : "is opaque") !=
                      NULL,
                  "%s", error.message);
        ty_workload_free(w);
    }
}
