#include "plans.h"

#include "../quick.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char gnmt_small[] =
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"lstm-small\", \"family\": \"sequential\","
    "\"source\": \"gnmt-8.json\", \"sequence\": 8, \"token_bytes\": 4, \"dataset\": "
    "\"synthetic\", \"global_batch\": 8, \"optimizer\": {\"kind\": \"adamw\", "
    "\"learning_rate\": 0.01, \"weight_decay\": 0, \"beta1\": 0.9, \"beta2\": 0.999, "
    "\"epsilon\": 1e-08}, \"layers\": ["
    "{\"kind\": \"embedding\", \"vocabulary\": 64, \"features\": 24},"
    "{\"kind\": \"lstm\", \"hidden_features\": 24},"
    "{\"branches\": [[], [{\"kind\": \"lstm\", \"hidden_features\": 24}]], \"join\": \"add\"},"
    "{\"kind\": \"linear\", \"out_features\": 64}, {\"kind\": \"softmax_cross_entropy\"}]}";

const char moe_small[] =
    "{\"schema\": \"trainyard.zoo/1\", \"source\": \"mixtral-8x7b.json\", \"name\": "
    "\"moe-small\", \"family\": \"decoder\", \"blocks\": 2, \"features\": 32, \"heads\": 4, "
    "\"kv_heads\": 2, \"experts\": 4, \"experts_per_token\": 2, \"expert_features\": 48, "
    "\"vocabulary\": 64, \"sequence\": 16, \"longest_sequence\": 16, \"token_bytes\": 1, "
    "\"dataset\": \"synthetic\", \"global_batch\": 8, \"optimizer\": {\"kind\": \"adamw\", "
    "\"learning_rate\": 0.001, \"weight_decay\": 0.01, \"beta1\": 0.9, \"beta2\": 0.999, "
    "\"epsilon\": 1e-08}}";

static const char mlp_narrow[] =
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"mlp-narrow\", \"family\": \"sequential\","
    "\"source\": \"mlp.json\", \"input\": [1, 28, 28], \"sample_bytes\": 785,"
    "\"dataset\": \"fashion-mnist\", \"global_batch\": 128, \"optimizer\": {\"kind\": \"sgd\","
    "\"learning_rate\": 0.05, \"momentum\": 0.9, \"weight_decay\": 0}, \"layers\": ["
    "{\"kind\": \"flatten\"}, {\"kind\": \"linear\", \"out_features\": 160},"
    "{\"kind\": \"relu\"}, {\"kind\": \"linear\", \"out_features\": 160},"
    "{\"kind\": \"relu\"}, {\"kind\": \"linear\", \"out_features\": 10},"
    "{\"kind\": \"softmax_cross_entropy\"}]}";

#define GPT_NARROW(sequence)                                                                       \
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"gpt-narrow\", \"family\": \"transformer\","     \
    "\"source\": \"gpt-tiny.json\", \"blocks\": 4, \"features\": 64, \"heads\": 4,"                \
    "\"hidden_features\": 256, \"vocabulary\": 256, \"positions\": 128, \"sequence\": " sequence   \
    ", \"token_bytes\": 1, \"dataset\": \"text\", \"global_batch\": 8, \"optimizer\": {\"kind\": " \
    "\"adamw\", \"learning_rate\": 0.001, \"weight_decay\": 0.01, \"beta1\": 0.9, \"beta2\": "     \
    "0.999, "                                                                                      \
    "\"epsilon\": 1e-08}}"

const char *narrow(const char *workload)
{
    static const struct {
        const char *wide, *narrow;
    } rows[] = {{"mlp", mlp_narrow},
                {"gpt-tiny sequence=32", GPT_NARROW("32")},
                {"gpt-tiny sequence=16", GPT_NARROW("16")}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows && is_quick(); i++)
        if (strcmp(workload, rows[i].wide) == 0)
            return rows[i].narrow;
    return workload;
}

static char *path_in(const char *directory, const char *name)
{
    char path[512];

    snprintf(path, sizeof path, "%s/%s", directory, name);
    return ty_strdup(path);
}

ty_workload *open_workload(const char *workload)
{
    const bool is_text = workload[0] == '{';
    char *directory = is_text ? directory_make() : NULL;
    char *path = is_text ? path_in(directory, "workload.json") : ty_strdup(workload);
    ty_workload *opened = NULL;
    ty_error error = {0};

    must(!is_text || ty_file_write(path, workload, strlen(workload), &error) == TY_OK, path,
         error.message);
    must(ty_workload_open(path, &opened, &error) == TY_OK, workload, error.message);
    if (is_text)
        directory_remove(directory);
    ty_free(path);
    return opened;
}

ty_plan *make_plan(const char *workload, const plan_shape *shape)
{
    const char *cluster_text =
        shape->cluster != NULL ? shape->cluster : "host:1 gpu:64 @v100-sxm2-16gb nvlink2 edr100";
    ty_workload *opened = open_workload(workload);
    ty_cluster *cluster = NULL;
    ty_plan *plan;
    ty_error error = {0};

    if (opened->input_kind == TY_INPUT_TOKEN) {
        ty_free(opened->dataset);
        opened->dataset = ty_strdup("synthetic");
    }
    for (uint32_t layer = 0; layer < shape->frozen; layer++)
        opened->layers[layer].is_frozen = true;
    if (shape->local_steps > 0)
        opened->local_steps = shape->local_steps;
    must(ty_cluster_open(cluster_text, NULL, &cluster, &error) == TY_OK, cluster_text,
         error.message);
    plan = plan_of(opened, cluster, shape);
    /* The usual rate for the usual batch; tests have smaller ones and should not diverge. */
    plan->optimizer.learning_rate *= (double)plan->global_batch / opened->global_batch;
    return plan;
}

ty_plan *plan_alone(const ty_plan *plan, uint32_t micro_batch_size)
{
    ty_plan *alone = NULL;
    ty_error error = {0};

    must(ty_plan_of_workload(plan->workload, &alone, &error) == TY_OK, "one rank", error.message);
    alone->global_batch = plan->global_batch;
    alone->micro_batch_size = micro_batch_size;
    alone->micro_batches = plan->global_batch / micro_batch_size;
    alone->optimizer = plan->optimizer;
    alone->seed = plan->seed;
    return alone;
}

char *directory_make(void)
{
    const char *temporary = getenv("TMPDIR");
    char name[512];

    snprintf(name, sizeof name, "%s/trainyard-test-XXXXXX",
             temporary != NULL && temporary[0] != '\0' ? temporary : "/tmp");
    must(mkdtemp(name) != NULL, name, "no directory");
    return ty_strdup(name);
}

void directory_remove(char *directory)
{
    DIR *entries = opendir(directory);
    struct dirent *entry;

    must(entries != NULL, directory, "cannot be read");
    while ((entry = readdir(entries)) != NULL) {
        char *path = path_in(directory, entry->d_name);
        if (entry->d_name[0] != '.')
            unlink(path);
        ty_free(path);
    }
    closedir(entries);
    rmdir(directory);
    ty_free(directory);
}

/* One IDX file of bytes. */
static void write_idx(const char *directory, const char *name, uint32_t dimension_count,
                      const uint32_t *dimensions, const unsigned char *bytes)
{
    char *path = path_in(directory, name);
    FILE *file = fopen(path, "wb");
    size_t length = 1;

    must(file != NULL, path, "cannot be written");
    fputc(0, file);
    fputc(0, file);
    fputc(8, file); /* unsigned bytes */
    fputc((int)dimension_count, file);
    for (uint32_t d = 0; d < dimension_count; d++) {
        for (int shift = 24; shift >= 0; shift -= 8)
            fputc((int)(dimensions[d] >> shift & 255), file);
        length *= dimensions[d];
    }
    must(fwrite(bytes, 1, length, file) == length, path, "cannot be written");
    fclose(file);
    ty_free(path);
}

/* Images of ten kinds in noise, one label in four wrong, so that the loss falls but not to 0. */
static void write_images(const char *directory, const char *part, uint32_t count)
{
    enum { SIDE = 28, PIXELS = SIDE * SIDE };
    unsigned char *images = ty_alloc(count, PIXELS), *labels = ty_alloc(count, 1);
    uint32_t random = 12345;
    char name[64];

    for (uint32_t i = 0; i < count; i++) {
        uint32_t kind = i * 7 % 10;
        for (uint32_t j = 0; j < PIXELS; j++) {
            random = random * 1664525 + 1013904223;
            images[i * PIXELS + j] =
                (unsigned char)((random >> 24) / 2 + (j / 13 % 10 == kind ? 120 : 0));
        }
        random = random * 1664525 + 1013904223;
        labels[i] = (unsigned char)((random >> 24) < 64 ? (random >> 8) % 10 : kind);
    }
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", part);
    write_idx(directory, name, 3, (uint32_t[]){count, SIDE, SIDE}, images);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", part);
    write_idx(directory, name, 1, (uint32_t[]){count}, labels);
    ty_free(images);
    ty_free(labels);
}

void write_data(const char *directory)
{
    write_images(directory, "train", 1000);
    write_images(directory, "t10k", 100);
}

ty_job *make_job(ty_plan *plan, uint32_t steps, const char *directory)
{
    write_data(directory);
    return make_job_on(plan, steps, directory);
}

ty_job *make_job_on(ty_plan *plan, uint32_t steps, const char *directory)
{
    ty_job *job = ty_alloc(1, sizeof *job);
    ty_error error = {0};

    job->kind = TY_JOB_TRAIN;
    job->plan = plan;
    must(ty_plan_lower(plan, &job->program, &error) == TY_OK, plan->strategy, error.message);
    job->backend = ty_strdup("cpu");
    if (strcmp(plan->workload->dataset, "synthetic") != 0) /* whose place a path would take */
        job->data = ty_strdup(directory);
    job->output = path_in(directory, "run.json");
    job->gradients = path_in(directory, "gradients.bin");
    job->steps = steps;
    job->warmup_steps = steps > 2 ? 1 : 0;
    job->timeline_steps = steps > 2 ? 2 : 1;
    return job;
}
