/* Compressors must not prevent training. Fashion-MNIST on two ranks of this process, a short run of
 * each kind against the same run uncompressed. */
#include "plans.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { STEPS = 600, TAIL = 100 };

/* The first samples of one of Debian's files, uncompressed, so that no run unpacks all 60000. */
static bool shorten(const char *directory, const char *name, size_t header, size_t sample_bytes)
{
    enum { SAMPLES = 9600 };
    char path[256];
    unsigned char *bytes = ty_alloc(1, header + SAMPLES * sample_bytes);
    bool is_there;
    gzFile from;
    FILE *to;

    snprintf(path, sizeof path, "/usr/share/datasets/fashion-mnist/%s.gz", name);
    from = gzopen(path, "rb");
    is_there = from != NULL && gzread(from, bytes, (unsigned)(header + SAMPLES * sample_bytes)) ==
                                   (int)(header + SAMPLES * sample_bytes);
    if (from != NULL)
        gzclose(from);
    bytes[4] = bytes[5] = 0; /* the number of samples, most significant byte first */
    bytes[6] = SAMPLES >> 8;
    bytes[7] = SAMPLES & 255;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    to = fopen(path, "wb");
    cr_assert_not_null(to, "%s", path);
    fwrite(bytes, 1, header + SAMPLES * sample_bytes, to);
    fclose(to);
    ty_free(bytes);
    return is_there;
}

/* The mean loss of the last steps. */
static double train(const char *workload, const char *spec, const char *directory)
{
    plan_shape shape = {
        .name = spec, .replicas = {2}, .buckets = 2, .global_batch = 64, .micro_batch_size = 32};
    ty_error error = {0};
    ty_run *run = NULL;
    ty_job *job;
    double sum = 0;

    cr_assert_eq(ty_compression_parse(spec, &shape.compression, &error), TY_OK, "%s",
                 error.message);
    job = make_job(make_plan(workload, &shape), STEPS, directory);
    cr_assert(shorten(directory, "train-images-idx3-ubyte", 16, 784) &&
              shorten(directory, "train-labels-idx1-ubyte", 8, 1));
    job->timeline_steps = 1;
    cr_assert_eq(ty_execute_job_locally(job, 2, &(ty_execute_options){0}, &error), TY_OK, "%s: %s",
                 spec, error.message);
    cr_assert_eq(ty_run_load(job->output, &run, &error), TY_OK, "%s", error.message);
    for (int i = 0; i < TAIL; i++)
        sum += run->losses[STEPS - 1 - i];
    ty_run_free(run);
    ty_job_free(job);
    return sum / TAIL;
}

/* The zoo's mlp with fewer features, which takes a tenth of the time. */
static const char small_mlp[] =
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"small mlp\", \"family\": \"sequential\",\n"
    " \"source\": \"the zoo's mlp, narrower\", \"input\": [1, 28, 28], \"sample_bytes\": 785,\n"
    " \"dataset\": \"fashion-mnist\", \"global_batch\": 128,\n"
    " \"optimizer\": {\"kind\": \"sgd\", \"learning_rate\": 0.05, \"momentum\": 0.9,\n"
    "               \"weight_decay\": 0},\n"
    " \"layers\": [{\"kind\": \"flatten\"}, {\"kind\": \"linear\", \"out_features\": 128},\n"
    "            {\"kind\": \"relu\"}, {\"kind\": \"linear\", \"out_features\": 64},\n"
    "            {\"kind\": \"relu\"}, {\"kind\": \"linear\", \"out_features\": 10},\n"
    "            {\"kind\": \"softmax_cross_entropy\"}]}\n";

/* Tolerances apply to the mean loss of the last 100 of 600 steps, relative to the uncompressed run.
 * They are close to 0 for casts and 8 bits. They grow with the delay by error feedback, which the
 * optimizer's momentum amplifies; deep gradient compression corrects this. Each is 1.5 times the
 * measured value. */
Test(codec_convergence, every_compressor_learns)
{
    static const struct {
        const char *spec;
        double tolerance;
    } rows[] = {
        {"fp16", 0.05},          {"bf16", 0.05},        {"fp8-e4m3", 0.05},
        {"fp8-e5m2", 0.05},      {"int8", 0.05},        {"ternary", 0.05},
        {"one-bit", 0.45},       {"top-k:0.01", 0.36},  {"top-k-sampled:0.01", 0.36},
        {"random-k:0.25", 0.75}, {"dgc:0.01:30", 0.12}, {"powersgd-2", 0.12},
        {"powersgd-4", 0.1},
    };
    char *directory, network[256];
    double plain;

    if (access("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz", R_OK) != 0)
        cr_skip_test("Fashion-MNIST is not installed (Debian: dataset-fashion-mnist)");
    directory = directory_make();
    snprintf(network, sizeof network, "%s/network.json", directory);
    cr_assert_eq(ty_file_write(network, small_mlp, strlen(small_mlp), NULL), TY_OK);
    plain = train(network, "none", directory);
    cr_assert(plain < 1.2, "uncompressed training comes to a loss of %g", plain);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double loss = train(network, rows[i].spec, directory);
        cr_log_info("%s: %g, uncompressed %g (%+.1f %%)", rows[i].spec, loss, plain,
                    100 * (loss / plain - 1));
        cr_expect(loss <= plain * (1 + rows[i].tolerance),
                  "%s comes to a loss of %g, uncompressed %g", rows[i].spec, loss, plain);
    }
    directory_remove(directory);
}
