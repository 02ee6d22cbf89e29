/* Validation: reading, scores against brute force, queries and their commands, and, if they are
 * next to the repository, the published measurements. */
#include "ty_convergence.h"
#include "ty_planner.h"
#include "ty_validate.h"
#include "validate/row_question.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check_near(double found, double expected, double tolerance, const char *what)
{
    cr_assert(fabs(found - expected) <= tolerance * fabs(expected),
              "%s: found %.17g, expected %.17g", what, found, expected);
}

/* ---- Reading ----------------------------------------------------------------------------- */

#define RECORD(more)                                                                               \
    "{\"id\": \"x/1\", \"kind\": \"training-speed\", \"source\": {\"work\": \"w\"}, "              \
    "\"confidence\": \"read\", \"measured\": {\"metric\": \"images_per_s\", \"value\": 5, "        \
    "\"unit\": \"images/s\"}" more "}"
#define FILE_OF(record)                                                                            \
    "{\"schema\": 1, \"family\": \"x\", \"count\": 1, \"records\": [" record "]}"

Test(records, figures_and_texts)
{
    const char *text =
        FILE_OF(RECORD(", \"batch\": {\"global\": \"64 then 32\", \"per_gpu\": 8}, \"cluster\": "
                       "{\"gpu\": \"P100\", \"gpus\": 16, \"inter_node\": {\"network\": \"n\", "
                       "\"GBps_per_node\": 2.5}}, \"also_measured\": [{\"metric\": \"epochs\", "
                       "\"value\": 90}], \"unknown\": {\"a\": []}"));
    ty_records *r = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_records_parse(text, strlen(text), "x.json", &r, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(r->count, 1);
    cr_assert_eq(r->items[0].global_batch, 0, "a text is no batch");
    cr_assert_eq(r->items[0].batch_per_gpu, 8);
    cr_assert_eq(r->items[0].node_gigabytes_per_s, 2.5);
    cr_assert_str_eq(r->items[0].network, "n");
    cr_assert_str_eq(r->items[0].gpu, "P100");
    cr_assert_str_eq(r->items[0].node, "");
    cr_assert_eq(ty_record_also_measured(&r->items[0], "epochs"), 90);
    cr_assert_eq(ty_record_also_measured(&r->items[0], "loss"), 0);
    cr_assert_eq(ty_find_number(r->items[0].json, "batch.per_gpu", 7), 8);
    cr_assert_eq(ty_find_number(r->items[0].json, "batch.global", 7), 7, "a text is no number");
    cr_assert_eq(ty_find_number(r->items[0].json, "batch.none.at_all", 7), 7);
    cr_assert_str_eq(ty_find_text(r->items[0].json, "cluster.gpu"), "P100");
    cr_assert_str_eq(ty_find_text(r->items[0].json, "cluster.gpu.name"), "");
    cr_assert(ty_find_has(r->items[0].json, "cluster.inter_node"));
    cr_assert_not(ty_find_has(r->items[0].json, "cluster.node"));
    cr_assert(ty_record_more_is_better(&r->items[0]));
    ty_records_free(r);
}

Test(records, bad_ones_are_refused_with_a_pointer)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"[]", "x.json:"},
        {"{\"schema\": 2, \"family\": \"x\", \"count\": 0, \"records\": []}", "x.json:/schema"},
        {"{\"schema\": 1, \"count\": 0, \"records\": []}", "family"},
        {"{\"schema\": 1, \"family\": \"x\", \"count\": 1, \"records\": []}", "x.json:/records"},
        {FILE_OF("7"), "x.json:/records/0"},
        {FILE_OF("{\"id\": \"x/1\"}"), "kind"},
        {FILE_OF(RECORD(", \"cluster\": {\"gpus\": -1}")), "x.json:/records/0/cluster/gpus"},
        {FILE_OF(RECORD(", \"cluster\": {\"gpus\": \"many\"}")), "x.json:/records/0/cluster/gpus"},
        {FILE_OF(RECORD(", \"cluster\": 5")), "x.json:/records/0/cluster"},
        {FILE_OF(RECORD(", \"also_measured\": [4]")), "x.json:/records/0/also_measured/0"},
        {FILE_OF(RECORD(", \"model\": {\"name\": 7}")), "x.json:/records/0/model/name"},
        {FILE_OF(RECORD("")) "x", "x.json:"},
        {FILE_OF("{\"id\": \"x/1\", \"kind\": \"gossip\"}"), "gossip"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ty_records *r = NULL;
        ty_error error = {0};
        cr_assert_eq(ty_records_parse(cases[i].text, strlen(cases[i].text), "x.json", &r, &error),
                     TY_EPARSE, "%s", cases[i].text);
        cr_assert_not_null(strstr(error.message, cases[i].message), "%s: %s", cases[i].text,
                           error.message);
        cr_assert_null(r);
    }
}

Test(records, no_allocation_is_taken_for_granted)
{
    const char *text = FILE_OF(RECORD(", \"model\": {\"name\": \"m\"}"));

    for (long n = 1;; n++) {
        ty_records *r = NULL;
        ty_status status;
        ty_memory_fail_after(n);
        status = ty_records_parse(text, strlen(text), "x.json", &r, NULL);
        ty_memory_fail_after(0);
        ty_records_free(r);
        if (status == TY_OK)
            break;
        cr_assert_eq(status, TY_ENOMEM);
        cr_assert_lt(n, 1000);
    }
}

Test(records, validation_survives_every_lack_of_memory)
{
    char path[] = "/tmp/ty_records_XXXXXX";
    const char *text = FILE_OF(
        RECORD(", \"model\": {\"name\": \"ResNet-50\", \"family\": \"cnn\", \"dtype\": \"fp32\"}, "
               "\"batch\": {\"per_gpu\": 8}, \"cluster\": {\"gpu\": \"P100\", \"gpus\": 2}"));
    int file = mkstemp(path);

    cr_assert_geq(file, 0);
    close(file);
    cr_assert_eq(ty_file_write(path, text, strlen(text), NULL), TY_OK);
    for (long n = 1, step = 1;; n += step) {
        ty_validation *v = NULL;
        ty_status status;
        ty_memory_fail_after(n);
        status = ty_validation_run(path, &v, NULL);
        ty_memory_fail_after(0);
        cr_assert((status == TY_OK) == (v != NULL));
        cr_assert(status == TY_OK || status == TY_ENOMEM, "allocation %ld: status %d", n, status);
        if (v != NULL && v->sources[0].score.rows == 1) {
            ty_validation_free(v);
            break;
        }
        ty_validation_free(v);
        step = n < 200 ? 1 : 37; /* the workload and the cluster make thousands of them */
        cr_assert_lt(n, 1000000);
    }
    unlink(path);
}

/* ---- Meaning of recorded names ------------------------------------------------------------ */

/* Hosts have one NIC for all devices if the record names such hosts; otherwise one NIC per
 * device. */
Test(published_names, hosts_have_the_adapters_they_had)
{
    static const struct {
        const char *cluster;
        double ring_bytes_per_s;
    } rows[] = {
        {"\"gpu\": \"V100 PCIe 16GB\", \"gpus\": 16, \"gpus_per_node\": 4, \"inter_node\": "
         "{\"network\": \"10 Gb/s Ethernet\"}",
         1.25e9},
        {"\"gpu\": \"P100 (Pascal)\", \"gpus\": 512, \"gpus_per_node\": 4, \"inter_node\": "
         "{\"network\": \"RoCE 25 Gb/s\"}",
         3.125e9},
        {"\"gpu\": \"V100-SXM2-16GB\", \"gpus\": 32, \"gpus_per_node\": 8, \"inter_node\": "
         "{\"network\": \"1x EDR InfiniBand 100 Gb/s per node\"}",
         12.5e9},
    };

    ty_json_document *names = NULL;

    cr_assert_eq(ty_names_open(&names, NULL), TY_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[1024], line[TY_ROW_QUESTION_SIZE], reason[TY_SKIP_REASON_SIZE] = "";
        ty_records *r = NULL;
        ty_cluster *cluster = NULL;
        uint32_t devices[512];
        double bandwidth, latency_s;

        snprintf(text, sizeof text, FILE_OF(RECORD(", \"cluster\": {%s}")), rows[i].cluster);
        cr_assert_eq(ty_records_parse(text, strlen(text), "x.json", &r, NULL), TY_OK);
        cr_assert(ty_names_cluster(ty_json_root(names), &r->items[0], line, reason), "%s", reason);
        cr_assert_eq(ty_cluster_open(line, NULL, &cluster, NULL), TY_OK);
        cr_assert_eq(ty_cluster_device_count(cluster), (uint32_t)r->items[0].gpus);
        for (uint32_t d = 0; d < 512; d++)
            devices[d] = d;
        cr_assert_eq(ty_cluster_ring(cluster, devices, (uint32_t)r->items[0].gpus, &bandwidth,
                                     &latency_s, NULL),
                     TY_OK);
        cr_expect_leq(bandwidth, rows[i].ring_bytes_per_s, "%s: %g", rows[i].cluster, bandwidth);
        cr_expect_geq(bandwidth, 0.4 * rows[i].ring_bytes_per_s, "%s: %g", rows[i].cluster,
                      bandwidth);
        ty_cluster_free(cluster);
        ty_records_free(r);
    }
    ty_json_free(names);
}

/* ---- Scores ------------------------------------------------------------------------------ */

Test(scores, by_hand)
{
    const ty_scored_row rows[] = {
        {100, 110, true, 0}, {200, 100, true, 0}, {50, 50, true, 0}, {10, 12, false, 3}};
    ty_validation_score s;

    cr_assert_eq(ty_validation_score_rows(rows, 4, &s, NULL), TY_OK);
    check_near(s.mean_error, (0.1 + 0.5 + 0 + 0.2) / 4, 1e-12, "mean");
    check_near(s.median_error, 0.1, 1e-12, "median");
    check_near(s.p90_error, 0.5, 1e-12, "p90");
    cr_assert_eq(s.pairs, 3);
    check_near(s.pair_order, 2.0 / 3, 1e-12, "pair order");
    cr_assert_eq(s.choices, 1);
    check_near(s.mean_regret, 1, 1e-12, "100 is chosen, 200 was to be had");
}

/* Pairs of random rows, one by one; and the regret by evaluating every group. */
Test(scores, brute_force)
{
    srand(5);
    for (int round = 0; round < 50; round++) {
        ty_scored_row rows[40];
        double order = 0, regret = 0;
        uint32_t pairs = 0, choices = 0;
        ty_validation_score s;
        for (int i = 0; i < 40; i++)
            rows[i] = (ty_scored_row){1 + rand() % 9, 1 + rand() % 9, round % 2 == 0,
                                      (uint32_t)(rand() % 6)};
        for (int i = 0; i < 40; i++) {
            for (int j = 0; j < i; j++) {
                double product =
                    (rows[i].measured - rows[j].measured) * (rows[i].predicted - rows[j].predicted);
                if (rows[i].group != rows[j].group || rows[i].measured == rows[j].measured)
                    continue;
                pairs++;
                order += product > 0 ? 1 : product == 0 ? 0.5 : 0;
            }
        }
        for (uint32_t g = 0; g < 6; g++) {
            int chosen = -1, best = -1, count = 0;
            double sign = round % 2 == 0 ? 1 : -1;
            for (int i = 0; i < 40; i++) {
                if (rows[i].group != g)
                    continue;
                count++;
                if (chosen < 0 || sign * rows[i].predicted > sign * rows[chosen].predicted)
                    chosen = i;
                if (best < 0 || sign * rows[i].measured > sign * rows[best].measured)
                    best = i;
            }
            if (count < 2)
                continue;
            choices++;
            regret += sign > 0 ? rows[best].measured / rows[chosen].measured - 1
                               : rows[chosen].measured / rows[best].measured - 1;
        }
        cr_assert_eq(ty_validation_score_rows(rows, 40, &s, NULL), TY_OK);
        cr_assert_eq(s.pairs, pairs);
        cr_assert_eq(s.choices, choices);
        check_near(s.pair_order, order / pairs, 1e-9, "pair order");
        cr_assert_float_eq(s.mean_regret, regret / choices, 1e-9);
    }
}

Test(scores, nothing_to_score)
{
    const ty_scored_row bad = {1, 0, true, 0};
    ty_validation_score s;

    cr_assert_eq(ty_validation_score_rows(NULL, 0, &s, NULL), TY_OK);
    cr_assert(isnan(s.mean_error) && isnan(s.pair_order) && isnan(s.mean_regret));
    cr_assert_eq(ty_validation_score_rows(&bad, 1, &s, NULL), TY_EINVAL);
}

/* ---- Questions --------------------------------------------------------------------------- */

static ty_row_question image_question(const char *workload, const char *cluster, uint32_t devices,
                                      uint32_t batch)
{
    ty_row_question asked = {.precision = "fp32", .global_batch = devices * batch};

    snprintf(asked.workload, sizeof asked.workload, "%s", workload);
    snprintf(asked.cluster, sizeof asked.cluster, "%s", cluster);
    snprintf(asked.fix, sizeof asked.fix, "dp=%u,pp=1,micro_batch=%u,compression=none", devices,
             batch);
    return asked;
}

static const ty_record nobody = {.id = "nobody/1", .model = "none"};

Test(asked, calibration_is_the_inverse_of_the_step)
{
    static const double scales[] = {0.5, 1, 1.7, 6};
    ty_row_question asked = image_question("resnet50", "4x p100-server", 16, 32);

    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        double step_s, found = 0;
        bool is_fitted = true;
        ty_error error = {0};
        ty_row_question_set_scale(&asked, "tensorflow-2017", scales[i]);
        cr_assert_eq(ty_row_question_step(&asked, &nobody, &step_s, &is_fitted, &error), TY_OK,
                     "%s", error.message);
        cr_assert_not(is_fitted);
        cr_assert_eq(
            ty_row_question_calibrate(&asked, &nobody, "tensorflow-2017", step_s, &found, &error),
            TY_OK, "%s", error.message);
        check_near(found, scales[i], 1e-4, "scale");
    }
}

Test(asked, calibration_refuses_the_impossible)
{
    ty_row_question asked = image_question("vgg16", "4x p100-server-10gbe", 16, 1);
    ty_error error = {0};
    double scale = 7;

    cr_assert_eq(
        ty_row_question_calibrate(&asked, &nobody, "tensorflow-2017", 0.01, &scale, &error),
        TY_EINFEASIBLE);
    cr_assert_eq(scale, 7);
}

Test(asked, the_command_has_all_words)
{
    static const char *const words[] = {"plan",
                                        "--workload",
                                        "lenet",
                                        "--cluster",
                                        "1x dgx1-p100",
                                        "--stack",
                                        "tensorflow-2017 compute_scale=1.25",
                                        "--precision",
                                        "fp32",
                                        "--fix",
                                        "dp=8,pp=1,micro_batch=32,compression=none",
                                        "--global-batch",
                                        "256",
                                        "--no-simulate",
                                        "--json"};
    const size_t count = sizeof words / sizeof words[0];
    ty_row_question asked = image_question("lenet", "1x dgx1-p100", 8, 32);
    ty_verdict verdict = {0};
    ty_json_document *document = NULL;

    ty_row_question_set_scale(&asked, "tensorflow-2017", 1.25);
    cr_assert_eq(ty_row_question_answer(&asked, 0.5, &verdict, NULL), TY_OK);
    cr_assert(verdict.is_predicted);
    cr_assert_eq(verdict.answer, 0.5);
    cr_assert_eq(
        ty_json_parse(verdict.command, strlen(verdict.command), "command", &document, NULL), TY_OK);
    cr_assert_eq(ty_json_size(ty_json_root(document)), count);
    for (size_t i = 0; i < count; i++) {
        char *text = NULL, expected[96];
        snprintf(expected, sizeof expected, "\"%s\"", words[i]);
        cr_assert_eq(ty_json_text(ty_json_at(ty_json_root(document), i), &text, NULL), TY_OK);
        cr_expect_not_null(strstr(text, expected), "found %s, expected %s", text, expected);
        ty_free(text);
    }
    ty_json_free(document);
    ty_free(verdict.command);
}

Test(waiting, largest_of_n_normal_numbers)
{
    static const uint32_t sizes[] = {2, 8, 64, 512};

    cr_assert_eq(ty_expected_largest(1), 0);
    srand(9);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        double sum = 0;
        int rounds = 4000;
        for (int r = 0; r < rounds; r++) {
            double largest = -HUGE_VAL;
            for (uint32_t k = 0; k < sizes[i]; k++) {
                double u = (rand() + 1.0) / (RAND_MAX + 2.0), v = rand() / (double)RAND_MAX;
                largest = fmax(largest, sqrt(-2 * log(u)) * cos(2 * acos(-1.0) * v));
            }
            sum += largest;
        }
        check_near(ty_expected_largest(sizes[i]), sum / rounds, 0.05, "largest");
    }
}

/* Constants that were fitted to runs of eight include the waiting of eight. */
Test(waiting, beyond_the_runs_that_were_fitted)
{
    const ty_stack stack = {.step_jitter = 0.02, .jitter_devices = 8};
    const ty_stack alone = {.step_jitter = 0.02, .jitter_devices = 1};

    cr_assert_eq(ty_stack_waiting(&stack, 1), 1);
    cr_assert_eq(ty_stack_waiting(&stack, 8), 1);
    check_near(ty_stack_waiting(&stack, 1024) * ty_stack_waiting(&alone, 8),
               ty_stack_waiting(&alone, 1024), 1e-12, "beyond eight");
    check_near(ty_stack_waiting(&alone, 1024), 1 + 0.02 * ty_expected_largest(1024), 1e-12, "all");
}

/* ---- Published measurements -------------------------------------------------------------- */

static ty_validation *validate_shared(const char *name)
{
    char path[512];
    ty_validation *v = NULL;
    ty_error error = {0};

    snprintf(path, sizeof path, "%s/measurements/%s.json", TY_SHARED_DATA, name);
    if (!ty_file_exists(path))
        cr_skip_test("%s is not here", path);
    cr_assert_eq(ty_validation_run(path, &v, &error), TY_OK, "%s", error.message);
    cr_assert_eq(v->source_count, 1);
    cr_assert_str_eq(v->sources[0].source, name);
    cr_assert_eq(v->sources[0].score.rows + v->sources[0].fitted_rows + v->sources[0].skipped_rows,
                 v->sources[0].rows, "no row is lost");
    return v;
}

static const ty_validation_score *score_of(const ty_validated_source *s, const char *predictor)
{
    for (uint32_t p = 0; p < s->predictor_count; p++)
        if (strcmp(s->predictors[p].predictor, predictor) == 0)
            return &s->predictors[p].score;
    cr_assert_fail("%s: nothing predicted by %s", s->source, predictor);
    return NULL;
}

/* The first set also includes models that no constant of convolutions was fitted to, on one device,
 * from data sheets only. */
Test(published, data_parallel_scaling_is_within_ten_per_cent, .timeout = 240)
{
    static const char *const names[] = {"tf_benchmarks", "tensorpack", "mxnet_p2",
                                        "horovod",       "goyal",      "dlperf"};
    double sum = 0;
    uint32_t rows = 0;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ty_validation *v = validate_shared(names[i]);
        const ty_validation_score *s = score_of(&v->sources[0], "data-parallel-scaling");
        sum += s->mean_error * s->rows;
        rows += s->rows;
        if (i == 0) {
            s = score_of(&v->sources[0], "data-parallel-absolute");
            cr_assert_geq(s->rows, 40);
            cr_assert_lt(s->mean_error, 0.13, "mean error %.1f %%", 100 * s->mean_error);
        }
        ty_validation_free(v);
    }
    cr_assert_geq(rows, 79);
    cr_assert_lt(sum / rows, 0.105, "mean error %.1f %% of %u rows", 100 * sum / rows, rows);
}

Test(published, samples_to_target_at_batches_not_fitted)
{
    ty_validation *v = validate_shared("mlperf_rcp");
    const ty_validation_score *s = score_of(&v->sources[0], "noise-scale-law");

    cr_assert_geq(s->rows, 20);
    cr_assert_lt(s->mean_error, 0.05);
    cr_assert_gt(v->sources[0].fitted_rows, 50);
    cr_assert_gt(v->sources[0].skip_count, 1);
    ty_validation_free(v);
}

/* The catalogue's noise scale of ResNet-50 is from result logs; the reference points are others. */
Test(published, noise_scale_of_resnet_from_two_sources)
{
    char path[512];
    ty_records *r = NULL;
    ty_convergence_point points[64];
    ty_convergence *task = NULL;
    double noise, minimum, rms;
    uint32_t count = 0;

    snprintf(path, sizeof path, "%s/measurements/mlperf_rcp.json", TY_SHARED_DATA);
    if (!ty_file_exists(path))
        cr_skip_test("%s is not here", path);
    cr_assert_eq(ty_records_load(path, &r, NULL), TY_OK);
    for (uint32_t i = 0; i < r->count && count < 64; i++)
        if (strcmp(r->items[i].model, "resnet") == 0)
            points[count++] = (ty_convergence_point){
                r->items[i].global_batch, r->items[i].value * 1281167, sqrt(r->items[i].runs)};
    cr_assert_eq(ty_convergence_fit(points, count, 0, &noise, &minimum, &rms, NULL), TY_OK);
    cr_assert_eq(ty_convergence_of_workload("resnet50", &task, NULL), TY_OK);
    check_near(noise, task->noise_scale_samples, 0.15, "noise scale");
    check_near(minimum, task->minimum_samples, 0.05, "samples");
    ty_convergence_free(task);
    ty_records_free(r);
}
