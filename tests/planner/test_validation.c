/* Validation: reading, scores against brute force, fixed plans against closed forms, and where they
 * lie beside the repository the published measurements themselves. */
#include "ty_convergence.h"
#include "ty_planner.h"
#include "ty_validate.h"
#include "validate/fixed_plan.h"
#include "validate/layer_profile.h"
#include "validate/published.h"

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
    cr_assert_eq(r->items[0].inter_node_bytes_per_s, 2.5e9);
    cr_assert_str_eq(r->items[0].gpu, "P100");
    cr_assert_str_eq(r->items[0].node, "");
    cr_assert_eq(ty_record_also_measured(&r->items[0], "epochs"), 90);
    cr_assert_eq(ty_record_also_measured(&r->items[0], "loss"), 0);
    cr_assert_eq(ty_record_number(&r->items[0], "batch", "per_gpu"), 8);
    cr_assert_str_eq(ty_record_text(&r->items[0], "cluster", "gpu"), "P100");
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
        step = n < 200 ? 1 : 37; /* the workload and the cluster make thousands */
        cr_assert_lt(n, 1000000);
    }
    unlink(path);
}

/* ---- What names stand for ----------------------------------------------------------------- */

/* Hosts with one adapter for all their devices, where the record names such; else one each. */
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

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[1024], reason[TY_SKIP_REASON_SIZE] = "";
        ty_records *r = NULL;
        ty_cluster *cluster = NULL;
        uint32_t devices[512];
        double bandwidth, latency_s;

        snprintf(text, sizeof text, FILE_OF(RECORD(", \"cluster\": {%s}")), rows[i].cluster);
        cr_assert_eq(ty_records_parse(text, strlen(text), "x.json", &r, NULL), TY_OK);
        cr_assert_eq(ty_published_cluster(&r->items[0], &cluster, reason, NULL), TY_OK);
        cr_assert_not_null(cluster, "%s", reason);
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
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    cr_assert_eq(fclose(file), 0);
}

#define PROFILE(layers, edges)                                                                     \
    "{\"schema\": 1, \"family\": \"p\", \"count\": 1, \"records\": [{\"id\": \"p/1\", "            \
    "\"kind\": \"layer-profile\", \"source\": {\"work\": \"w\"}, \"confidence\": \"read\", "       \
    "\"model\": {\"name\": \"Net\"}, \"batch\": {\"micro\": 10}, \"measured\": {\"metric\": "      \
    "\"t\", "                                                                                      \
    "\"value\": 1, \"unit\": \"ms\"}, \"layers\": " layers ", \"edges\": " edges "}]}"

/* Two layers behind the input and one output that nobody reads: what loads samples takes no time,
 * times are of one sample. */
Test(published_names, a_profile_beside_the_file)
{
    static const struct {
        const char *profile;
        uint32_t layers; /* 0: refused */
    } rows[] = {
        {PROFILE(
             "[[1, \"Input\", 900, 0, 400, 0], [2, \"Conv\", 20, 40, 800, 64], [3, \"item\", 0, 0, "
             "80, 0], [4, \"Linear\", 10, 30, 40, 32]]",
             "[[1, 2], [2, 3], [2, 4]]"),
         2},
        {PROFILE("[[1, \"Conv\", 20, 40, 800]]", "[]"), 0},
        {PROFILE("[[2, \"Conv\", 20, 40, 800, 1]]", "[]"), 0},
        {PROFILE("[[1, \"Conv\", 20, 40, 800, 1], [2, \"Conv\", 20, 40, 800, 1]]", "[[2, 2]]"), 0},
    };
    char folder[] = "/tmp/ty-profile-XXXXXX", path[64], profile[64];
    ty_records *r = NULL;

    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/x.json", folder);
    snprintf(profile, sizeof profile, "%s/pipedream_profiles.json", folder);
    write_text(path, FILE_OF(RECORD(", \"model\": {\"name\": \"Net\"}")));
    cr_assert_eq(ty_records_load(path, &r, NULL), TY_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = NULL;
        ty_error error = {0};
        write_text(profile, rows[i].profile);
        cr_expect_eq(ty_layer_profile_find(r, &r->items[0], &w, &error) == TY_OK,
                     rows[i].layers > 0, "row %zu: %s", i, error.message);
        if (w == NULL)
            continue;
        cr_assert_eq(w->layer_count, rows[i].layers);
        check_near(w->layers[0].measured_forward_s, 0.002, 1e-12, "forward of a sample");
        check_near(w->layers[1].measured_backward_s, 0.003, 1e-12, "backward of a sample");
        cr_assert_eq(ty_workload_parameter_bytes(w, 0, 2), 96);
        cr_assert_eq(ty_workload_cut_bytes(w, 1), 80, "20 numbers a sample");
        ty_workload_free(w);
    }
    cr_assert_eq(remove(profile), 0);
    {
        ty_workload *w = NULL;
        cr_assert_eq(ty_layer_profile_find(r, &r->items[0], &w, NULL), TY_OK);
        cr_assert_null(w, "no file, no profile");
    }
    ty_records_free(r);
    cr_assert_eq(remove(path), 0);
    cr_assert_eq(rmdir(folder), 0);
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

/* Pairs, one by one, of random rows; and the regret by looking at every group. */
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

/* ---- Fixed plans ------------------------------------------------------------------------- */

typedef struct scene {
    ty_workload *workload;
    ty_cluster *cluster;
} scene;

static scene open_scene(const char *workload, const char *cluster)
{
    scene s = {0};
    ty_error error = {0};

    cr_assert_eq(ty_workload_open(workload, &s.workload, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_cluster_open(cluster, NULL, &s.cluster, &error), TY_OK, "%s", error.message);
    return s;
}

static void close_scene(scene *s)
{
    ty_workload_free(s->workload);
    ty_cluster_free(s->cluster);
}

static double step_of(const ty_fixed_plan *plan)
{
    ty_error error = {0};
    double step_s = 0;

    cr_assert_eq(ty_fixed_plan_step(plan, &step_s, &error), TY_OK, "%s", error.message);
    return step_s;
}

Test(fixed_plans, calibration_is_the_inverse_of_the_step)
{
    scene s = open_scene("resnet50", "4x p100-server");
    static const double scales[] = {0.5, 1, 1.7, 6};

    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        ty_fixed_plan plan = ty_fixed_data_parallel(s.workload, s.cluster, 16, 32, 25u << 20);
        double step_s, scale = 0;
        plan.jitter = 0.04;
        plan.compute_scale = scales[i];
        step_s = step_of(&plan);
        cr_assert_eq(ty_fixed_plan_calibrate(&plan, step_s, &scale, NULL), TY_OK);
        check_near(scale, scales[i], 1e-4, "scale");
    }
    close_scene(&s);
}

Test(fixed_plans, calibration_refuses_the_impossible)
{
    scene s = open_scene("vgg16", "4x p100-server-10gbe");
    ty_fixed_plan plan = ty_fixed_data_parallel(s.workload, s.cluster, 16, 1, 25u << 20);
    ty_error error = {0};
    double scale = 7;

    cr_assert_eq(ty_fixed_plan_calibrate(&plan, 0.01, &scale, &error), TY_EINFEASIBLE);
    cr_assert_eq(ty_fixed_plan_calibrate(&plan, NAN, &scale, &error), TY_EINVAL);
    cr_assert_eq(scale, 7);
    close_scene(&s);
}

/* Parameters of 100 ms over the servers, behind nothing: one layer's bucket. */
Test(fixed_plans, servers_take_what_their_links_take)
{
    scene s = open_scene("vgg16", "leaf:1 host:4 gpu:4 @p100-pcie-16gb pcie3 eth25");
    ty_fixed_plan plan = ty_fixed_data_parallel(s.workload, s.cluster, 16, 32, 1);
    double parameters = (double)ty_workload_parameter_bytes(s.workload, 0, s.workload->layer_count);
    double link = 0, alone, all;
    ty_path path = {0};

    cr_assert_eq(ty_cluster_path(s.cluster, 0, 15, &path, NULL), TY_OK);
    link = path.bandwidth_bytes_per_s;
    ty_path_clear(&path);
    alone = step_of(&plan);
    cr_assert_eq(ty_fixed_plan_use_server(&plan, 24e9, 4, NULL), TY_OK);
    check_near(plan.server_s_per_byte, 2 * 4 / 24e9 + 2 * 0.75 / link, 1e-12, "seconds per byte");
    plan.compute_scale = 1e-6;
    all = step_of(&plan);
    cr_assert_geq(all, parameters * plan.server_s_per_byte * 0.99);
    cr_assert_leq(all, parameters * plan.server_s_per_byte * 1.01 + 40 * plan.server_latency_s);
    cr_assert_gt(alone, 0);
    close_scene(&s);
}

/* One adapter for the four of a host is what their ring has. */
Test(fixed_plans, passes_over_the_slowest_link)
{
    scene s = open_scene("alexnet", "4x v100-pcie-server");
    ty_fixed_plan plan = ty_fixed_data_parallel(s.workload, s.cluster, 16, 32, 1);
    const uint32_t devices[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    double bandwidth, latency_s, seconds = -1;

    cr_assert_eq(ty_cluster_ring(s.cluster, devices, 16, &bandwidth, &latency_s, NULL), TY_OK);
    cr_assert_leq(bandwidth, 1.25e9);
    cr_assert_eq(ty_fixed_plan_use_passes(&plan, 4, NULL), TY_OK);
    check_near(plan.server_s_per_byte, 4 * 15 / 16.0 / bandwidth, 1e-12, "seconds per byte");
    cr_assert_eq(ty_passes_seconds(s.cluster, 1, 4, 1e9, &seconds, NULL), TY_OK);
    cr_assert_eq(seconds, 0, "nobody to exchange with");
    close_scene(&s);
}

Test(fixed_plans, largest_of_n_normal_numbers)
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

Test(fixed_plans, a_chain_is_its_workload)
{
    scene s = open_scene("resnet101", "leaf:1 host:1 gpu:4 @p40 pcie3 eth10");
    ty_workload *chain = NULL;
    ty_fixed_plan plan = {.micro_batch_size = 8,
                          .micro_batches = 4,
                          .schedule = TY_GPIPE,
                          .bucket_bytes = UINT64_MAX,
                          .compute_scale = 1};
    uint32_t n;
    double sum = 0, slowest = 0;

    cr_assert_eq(
        ty_workload_chain(s.workload, ty_cluster_device_type(s.cluster, 0), 8, &chain, NULL),
        TY_OK);
    n = chain->layer_count;
    cr_assert_eq(n, s.workload->layer_count);
    cr_assert_eq(ty_workload_parameter_bytes(chain, 0, n),
                 ty_workload_parameter_bytes(s.workload, 0, n));
    for (uint32_t i = 1; i < n; i++)
        cr_assert_eq(ty_workload_cut_bytes(chain, i), ty_workload_cut_bytes(s.workload, i),
                     "cut %u", i);
    cr_assert_eq(ty_chain_divide(chain, s.cluster, 4, NULL, false, &plan, NULL), TY_OK);
    for (uint32_t st = 0; st < 4; st++) {
        uint32_t end = st < 3 ? plan.first_layers[st + 1] : n;
        double stage = 0;
        for (uint32_t i = plan.first_layers[st]; i < end; i++)
            stage +=
                8 * (chain->layers[i].measured_forward_s + chain->layers[i].measured_backward_s);
        sum += stage;
        slowest = fmax(slowest, stage);
    }
    cr_assert_lt(slowest, 1.2 * sum / 4, "stages are even");
    cr_assert_geq(step_of(&plan), sum + 3 * slowest / 1.3, "no faster than its pipeline");
    ty_workload_free(chain);
    close_scene(&s);
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
        ty_validation_free(v);
    }
    cr_assert_geq(rows, 79);
    cr_assert_lt(sum / rows, 0.105, "mean error %.1f %% of %u rows", 100 * sum / rows, rows);
}

/* Networks that no constant of convolutions was fitted to, from data sheets alone. */
Test(published, one_device_from_data_sheets, .timeout = 240)
{
    ty_validation *v = validate_shared("tf_benchmarks");
    const ty_validation_score *s = score_of(&v->sources[0], "data-parallel-absolute");

    cr_assert_geq(s->rows, 40);
    cr_assert_lt(s->mean_error, 0.13, "mean error %.1f %%", 100 * s->mean_error);
    ty_validation_free(v);
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

/* All rows of all files are asked by tests/cli/test_validate.sh. */
Test(published, files_of_each_kind_are_read, .timeout = 220)
{
    static const char *const names[] = {
        "bigscience_bloom",     "convergence_papers", "dlperf",
        "gradient_compression", "korthikanti",        "pipedream_profiles",
        "vtrain_single",        "zero_bubble",        "simumax"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        ty_validation_free(validate_shared(names[i]));
}
