/* Importers of language models: published parameter counts, the same layers as the zoo's, notes,
 * refusals and their messages. */
#include "import.h"
#include "ty_workloads.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t parameters(const ty_workload *w)
{
    return ty_workload_parameter_bytes(w, 0, w->layer_count) / w->element_bytes;
}

static ty_workload *import_one(const char *path, const ty_import_options *options,
                               ty_import_report *report)
{
    ty_workload *w = NULL;
    ty_error error = {0};
    cr_assert_eq(ty_workload_import(path, options, &w, report, &error), TY_OK, "%s: %s", path,
                 error.message);
    return w;
}

/* `text` as the content of `path`. */
static ty_status import_text(const char *path, const char *text, ty_workload **out,
                             ty_import_report *report, ty_error *error)
{
    return ty_import_bytes(path, text, strlen(text), NULL, out, report, error);
}

static bool has_note(const ty_import_report *report, const char *text)
{
    for (uint32_t i = 0; i < report->note_count; i++)
        if (strstr(report->notes[i], text) != NULL)
            return true;
    return false;
}

/* Counts from the model cards on huggingface.co; names of the zoo if it has the same model. */
static const struct {
    const char *path, *format, *zoo;
    uint64_t parameters;
} files[] = {
    {"/hf/gpt2-xl.json", "Hugging Face config.json", "gpt2-xl", 1557611200},
    {"/hf/bert-base.json", "Hugging Face config.json", "bert-base", 109482240},
    {"/hf/llama-2-7b.json", "Hugging Face config.json", "llama-2-7b", 6738415616},
    {"/hf/mistral-7b.json", "Hugging Face config.json", NULL, 7241732096},
    {"/hf/mixtral-8x7b.json", "Hugging Face config.json", "mixtral-8x7b", 46702792704},
    {"/hf/qwen2-7b.json", "Hugging Face config.json", NULL, 7615616512},
    {"/hf/qwen3-32b.json", "Hugging Face config.json", "qwen3-32b", 32762123264},
    {"/hf/qwen3-235b.json", "Hugging Face config.json", NULL, 235093634560},
    {"/hf/deepseek-v2.json", "Hugging Face config.json", NULL, 235741434880},
    {"/hf/deepseek-v3.json", "Hugging Face config.json", "deepseek-v3", 671026419200},
    {"/hf/deepseek-v3-renamed.json", "Hugging Face config.json", "deepseek-v3", 671026419200},
    {"/hf/t5-base.json", "Hugging Face config.json", NULL, 222903552},
    {"/hf/t5-v1.1-base.json", "Hugging Face config.json", NULL, 247577856},
    /* 2 x (attention 4 x 72, mlp 3 x 128 + 16 + 16 + 8, norms 16), norm 8, 2 x 256 */
    {"/hf/tiny.json", "Hugging Face config.json", NULL, 2 * (288 + 424 + 16) + 8 + 512},
    {"/megatron/llama-2-7b.txt", "Megatron-LM arguments", "llama-2-7b", 6738415616},
    {"/megatron/mixtral.yaml", "Megatron-LM arguments", "mixtral-8x7b", 46702792704},
    {"/megatron/deepseek-v3.sh", "Megatron-LM arguments", "deepseek-v3", 671026419200},
    /* gpt2-medium with 50304 - 50257 more rows of 1024 */
    {"/megatron/gpt-345m.sh", "Megatron-LM arguments", NULL, 354823168 + 47 * 1024},
    {"/calculon/megatron-22b.json", "Calculon model", "megatron-22b", 22074273792},
    /* 12 x 13 and bias of queries to values, both directions; mlp; norms; last norm; embedding */
    {"/calculon/tiny.json", "Calculon model", NULL,
     2 * (4 * 8 * 6 + 3 * 6 + 8 + 2 * 8 * 16 + 16 + 8 + 32) + 16 + (51200 + 4) * 8},
};
#define FILE_COUNT (sizeof files / sizeof files[0])

Test(import, parameter_counts)
{
    for (size_t i = 0; i < FILE_COUNT; i++) {
        ty_import_report report = {0};
        char path[256];
        ty_workload *w;
        snprintf(path, sizeof path, "%s%s", TY_CORPUS, files[i].path);
        w = import_one(path, NULL, &report);
        cr_expect_eq(parameters(w), files[i].parameters, "%s: %llu", files[i].path,
                     (unsigned long long)parameters(w));
        cr_expect_str_eq(report.format, files[i].format, "%s", files[i].path);
        cr_expect_gt(report.note_count, 0, "%s: nothing assumed?", files[i].path);
        ty_import_report_clear(&report);
        ty_workload_free(w);
    }
}

/* Each layer equals the zoo's, for the zoo's sequence length. Scores may be stored there. */
Test(import, layers_of_the_zoo)
{
    uint32_t compared = 0;
    for (size_t i = 0; i < FILE_COUNT; i++) {
        ty_workload *w, *zoo = NULL;
        ty_error error = {0};
        char path[256];
        if (files[i].zoo == NULL)
            continue;
        cr_assert_eq(ty_workload_open(files[i].zoo, &zoo, &error), TY_OK, "%s", error.message);
        snprintf(path, sizeof path, "%s%s", TY_CORPUS, files[i].path);
        w = import_one(path, &(ty_import_options){.sequence = zoo->tokens_per_sample, .batch = 7},
                       NULL);
        cr_expect_eq(w->global_batch, 7);
        cr_expect_eq(w->sample_bytes, zoo->sample_bytes, "%s", files[i].path);
        cr_assert_eq(w->layer_count, zoo->layer_count, "%s", files[i].path);
        for (uint32_t l = 0; l < w->layer_count; l++) {
            char *ours = NULL, *theirs = NULL;
            w->layers[l].attributes[TY_IS_FUSED] = zoo->layers[l].attributes[TY_IS_FUSED];
            cr_assert_eq(ty_layer_signature(w, l, &ours, &error), TY_OK);
            cr_assert_eq(ty_layer_signature(zoo, l, &theirs, &error), TY_OK);
            cr_expect_str_eq(ours, theirs, "%s", files[i].path);
            cr_expect_str_eq(w->layers[l].name, zoo->layers[l].name);
            cr_expect_eq(w->layers[l].forward_flop, zoo->layers[l].forward_flop);
            ty_free(ours);
            ty_free(theirs);
        }
        ty_workload_free(w);
        ty_workload_free(zoo);
        compared++;
    }
    cr_expect_geq(compared, 10);
}

/* Users' files, if they are next to the project; counts as above. */
Test(import, files_of_the_data)
{
    static const struct {
        const char *path;
        uint64_t parameters;
    } rows[] = {
        {"hf-config/DeepSeek-V3.json", 671026419200},
        {"hf-config/Llama-3.1-8B.json", 8030261248},
        {"hf-config/Mixtral-8x7B-v0.1.json", 46702792704},
        {"hf-config/Qwen3-32B.json", 32762123264},
        {"hf-config/bert-large-uncased.json", 335141888},
        {"hf-facts/bert-base-uncased.json", 109482240},
        {"hf-facts/bert-large-uncased.json", 335141888},
        {"hf-facts/gpt2.json", 124439808},
        {"hf-facts/gpt2-medium.json", 354823168},
        {"hf-facts/gpt2-large.json", 774030080},
        {"hf-facts/gpt2-xl.json", 1557611200},
        {"hf-facts/llama-2-7b.json", 6738415616},
        {"hf-facts/llama-2-13b.json", 13015864320},
        {"hf-facts/llama-2-70b.json", 68976648192},
        {"hf-facts/llama-3-8b.json", 8030261248},
        {"hf-facts/llama-3-70b.json", 70553706496},
        {"hf-facts/llama-3.1-405b.json", 405853388800},
        {"hf-facts/mixtral-8x7b.json", 46702792704},
        {"hf-facts/mixtral-8x22b.json", 140620634112},
        {"hf-facts/t5-small.json", 60506624},
        {"hf-facts/t5-base.json", 222903552},
        {"hf-facts/t5-large.json", 737668096},
        {"hf-facts/t5-3b.json", 2851598336},
        {"hf-facts/t5-11b.json", 11307321344},
        {"calculon/gpt3-175B.json", 174615846912},
        {"calculon/megatron-22B.json", 22074273792},
        {"calculon/megatron-1T.json", 1008038758400},
    };
    if (!ty_file_exists(TY_SHARED_DATA "/workloads/hf-facts"))
        cr_skip_test("%s is not there", TY_SHARED_DATA "/workloads");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w;
        char path[512];
        snprintf(path, sizeof path, "%s/workloads/%s", TY_SHARED_DATA, rows[i].path);
        w = import_one(path, NULL, NULL);
        cr_expect_eq(parameters(w), rows[i].parameters, "%s: %llu", rows[i].path,
                     (unsigned long long)parameters(w));
        ty_workload_free(w);
    }
}

/* ---- Notes, and the user's options ------------------------------------------------ */

Test(import, notes)
{
    static const struct {
        const char *path, *note;
        bool is_there;
    } rows[] = {
        {"/hf/tiny.json", "keys that are not known, ignored: my_own_key, another", true},
        {"/hf/tiny.json", "sequences of 16 tokens assumed", true},
        {"/hf/tiny.json", "fused attention assumed", true},
        {"/hf/llama-2-7b.json", "ignored", false},
        {"/hf/mistral-7b.json", "sequences of 4096 tokens assumed; the model allows 32768", true},
        {"/hf/mistral-7b.json", "sliding_window", false},
        {"/hf/bert-base.json", "model_type is missing; taken for bert because of type_voc", true},
        {"/hf/bert-base.json", "without a head", true},
        {"/hf/deepseek-v3.json", "num_nextn_predict_layers: 1 block(s)", true},
        {"/hf/deepseek-v3.json", "quantization_config: sizes are those before", true},
        {"/hf/deepseek-v3.json", "model_type", false},
        {"/hf/deepseek-v3-renamed.json", "taken for deepseek_v3 because of kv_lora_rank", true},
        {"/hf/t5-base.json", "targets of 512 tokens assumed", true},
        {"/megatron/gpt-345m.sh", "options not read: micro-batch-size, train-iters, fp16", true},
        {"/megatron/gpt-345m.sh", "50257 is padded to 50304, a multiple of 128", true},
        {"/megatron/gpt-345m.sh", "batch", false},
        {"/megatron/gpt-345m.sh", "AdamW", false},
        {"/megatron/llama-2-7b.txt", "padded", false},
        {"/megatron/llama-2-7b.txt", "the last counts", false},
        {"/calculon/tiny.json", "a vocabulary of 51200", true},
        {"/calculon/tiny.json", "comment is not known, ignored", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_import_report report = {0};
        char path[256];
        bool is_there = false;
        snprintf(path, sizeof path, "%s%s", TY_CORPUS, rows[i].path);
        ty_workload_free(import_one(path, NULL, &report));
        is_there = has_note(&report, rows[i].note);
        /* "options not read" names micro-batch-size, which is no assumption about the batch */
        if (!rows[i].is_there && strcmp(rows[i].note, "batch") == 0)
            is_there = has_note(&report, "a global batch");
        cr_expect_eq(is_there, rows[i].is_there, "row %zu: %s", i, rows[i].note);
        ty_import_report_clear(&report);
    }
}

Test(import, training_from_megatron)
{
    ty_workload *w = import_one(TY_CORPUS "/megatron/llama-2-7b.txt", NULL, NULL);
    cr_expect_eq(w->global_batch, 1024);
    cr_expect_eq(w->optimizer.kind, TY_OPTIMIZER_ADAMW);
    cr_expect(w->optimizer.learning_rate == 3e-4 && w->optimizer.weight_decay == 0.1);
    cr_expect(w->optimizer.beta1 == 0.9 && w->optimizer.beta2 == 0.95); /* default; given */
    cr_expect_eq(w->optimizer.epsilon, 1e-5);
    ty_workload_free(w);
}

/* ---- DeepSpeed: batch and optimizer for a model in a separate file ----------------------- */

static ty_status import_deepspeed(const char *text, const char *model, ty_workload **out,
                                  ty_import_report *report, ty_error *error)
{
    return ty_import_bytes("f", text, strlen(text),
                           &(ty_import_options){.model = model, .open_model = ty_workload_open},
                           out, report, error);
}

Test(import, training_from_deepspeed)
{
    static const char text[] =
        "{\"train_batch_size\": 96, \"train_micro_batch_size_per_gpu\": 4, "
        "\"gradient_accumulation_steps\": 2, \"zero_optimization\": {\"stage\": 2}, "
        "\"bf16\": {\"enabled\": true}, \"steps_per_print\": 100, \"optimizer\": {\"type\": "
        "\"Adam\", \"params\": {\"lr\": 0.0002, \"betas\": [0.8, 0.9], \"eps\": \"auto\", "
        "\"weight_decay\": 0.01, \"torch_adam\": true}}}";
    ty_workload *w = NULL, *model = NULL;
    ty_import_report report = {0};
    ty_error error = {0};

    cr_assert_eq(ty_workload_open("gpt2", &model, &error), TY_OK, "%s", error.message);
    cr_assert_eq(import_deepspeed(text, "gpt2", &w, &report, &error), TY_OK, "%s", error.message);
    cr_expect_str_eq(report.format, "DeepSpeed configuration");
    cr_expect_str_eq(w->name, "gpt2");
    cr_expect_eq(parameters(w), 124439808);
    cr_expect_eq(w->global_batch, 96);
    cr_expect_eq(w->optimizer.kind, TY_OPTIMIZER_ADAMW);
    cr_expect(w->optimizer.learning_rate == 2e-4 && w->optimizer.weight_decay == 0.01);
    cr_expect(w->optimizer.beta1 == 0.8 && w->optimizer.beta2 == 0.9);
    cr_expect(w->optimizer.epsilon == model->optimizer.epsilon); /* auto */
    cr_expect(has_note(&report, "eps is auto"));
    cr_expect(has_note(&report, "--fix zero=2"));
    cr_expect(has_note(&report, "--precision bf16"));
    cr_expect(has_note(&report, "steps_per_print is ignored"));
    cr_expect(has_note(&report, "optimizer.params.torch_adam is ignored"));
    cr_expect_not_null(strstr(w->source, "of a DeepSpeed configuration"));
    ty_import_report_clear(&report);
    ty_workload_free(w);
    ty_workload_free(model);
}

Test(import, little_from_deepspeed)
{
    static const struct {
        const char *text, *model, *note; /* NULL: none expected */
        uint32_t batch;
        ty_optimizer_kind kind;
        double learning_rate;
    } rows[] = {
        {"{\"train_batch_size\": \"auto\"}", "mlp", "train_batch_size is auto", 128,
         TY_OPTIMIZER_SGD, 0.05},
        {"{\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 3}", "mlp",
         "12 samples a device and step", 128, TY_OPTIMIZER_SGD, 0.05},
        {"{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.5}}}",
         "gpt2 batch=4", NULL, 8, TY_OPTIMIZER_SGD, 0.5},
        {"{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"OneBitAdam\"}}", "mlp", NULL, 8,
         TY_OPTIMIZER_ADAMW, 1e-3},
        {"{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"Lion\", \"params\": {\"lr\": 3}}}",
         "mlp", "optimizer Lion is not known, the model's sgd", 8, TY_OPTIMIZER_SGD, 0.05},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = NULL;
        ty_import_report report = {0};
        ty_error error = {0};
        cr_assert_eq(import_deepspeed(rows[i].text, rows[i].model, &w, &report, &error), TY_OK,
                     "row %zu: %s", i, error.message);
        cr_expect_eq(w->global_batch, rows[i].batch, "row %zu: %u", i, w->global_batch);
        cr_expect_eq(w->optimizer.kind, rows[i].kind, "row %zu", i);
        cr_expect_float_eq(w->optimizer.learning_rate, rows[i].learning_rate, 1e-12, "row %zu: %g",
                           i, w->optimizer.learning_rate);
        cr_expect(rows[i].note == NULL ? report.note_count == 0 : has_note(&report, rows[i].note),
                  "row %zu: %u notes", i, report.note_count);
        ty_import_report_clear(&report);
        ty_workload_free(w);
    }
}

Test(import, bad_deepspeed_is_refused)
{
    static const struct {
        const char *text, *model, *message;
        ty_status status;
    } rows[] = {
        {"{\"train_batch_size\": 0}", "mlp", "f:/train_batch_size: found 0", TY_EPARSE},
        {"{\"train_batch_size\": 1e99}", "mlp", "f:/train_batch_size: found", TY_EPARSE},
        {"{\"train_batch_size\": 10, \"train_micro_batch_size_per_gpu\": 4}", "mlp",
         "f:/train_batch_size: found 10, expected a multiple of the 4 samples", TY_EPARSE},
        {"{\"train_batch_size\": 8, \"optimizer\": []}", "mlp", "f:/optimizer: found", TY_EPARSE},
        {"{\"train_batch_size\": 8, \"optimizer\": {}}", "mlp", "f:/optimizer/type: found",
         TY_EPARSE},
        {"{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": -1}}}",
         "mlp", "f:/optimizer/params/lr: found -1", TY_EPARSE},
        {"{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"Adam\", \"params\": {\"betas\": "
         "[0.9]}}}",
         "mlp", "f:/optimizer/params/betas: found", TY_EPARSE},
        {"{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"Adam\", \"params\": {\"betas\": "
         "[0.9, 2]}}}",
         "mlp", "f:/optimizer/params/betas/1: found 2", TY_EPARSE},
        {"{\"train_batch_size\": 8}", "mpl", "did you mean 'mlp'", TY_EIO},
        {"{\"train_batch_size\": 8}", NULL, "or a model beside it (--workload)", TY_EPARSE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = NULL;
        ty_import_report report = {0};
        ty_error error = {0};
        cr_expect_eq(import_deepspeed(rows[i].text, rows[i].model, &w, &report, &error),
                     rows[i].status, "row %zu", i);
        cr_expect(strstr(error.message, rows[i].message) != NULL, "row %zu: %s", i, error.message);
        cr_expect(w == NULL && report.note_count == 0, "row %zu", i);
    }
}

Test(import, options)
{
    static const char llama[] = TY_CORPUS "/hf/llama-2-7b.json",
                      gpt2[] = TY_CORPUS "/hf/gpt2-xl.json";
    ty_workload *w = import_one(llama, &(ty_import_options){.sequence = 256, .batch = 48}, NULL);
    ty_import_report report = {0};
    ty_error error = {0};

    cr_expect(w->tokens_per_sample == 256 && w->global_batch == 48);
    cr_expect_str_eq(w->name, "llama-2-7b");
    cr_expect_str_eq(w->source, "imported from llama-2-7b.json");
    ty_workload_free(w);
    w = import_one(llama, &(ty_import_options){.sequence = 8192}, &report);
    cr_expect(w->tokens_per_sample == 8192 && has_note(&report, "4096 tokens at most"));
    ty_workload_free(w);
    ty_import_report_clear(&report);
    w = NULL;
    cr_expect_eq(ty_workload_import(gpt2, &(ty_import_options){.sequence = 1025}, &w, NULL, &error),
                 TY_EINVAL);
    cr_expect(strstr(error.message, "found sequence=1025, expected at most its 1024") != NULL, "%s",
              error.message);
    cr_expect_eq(ty_workload_open(TY_CORPUS "/hf/llama-2-7b.json sequence=128 batch=2", &w, &error),
                 TY_OK, "%s", error.message);
    cr_expect(w->tokens_per_sample == 128 && w->global_batch == 2);
    ty_workload_free(w);
}

/* A file called config.json gets its folder's name; others lose their extensions. */
Test(import, names)
{
    static const struct {
        const char *path, *name;
    } rows[] = {
        {"llama.json", "llama"},
        {"a/b/llama-3.1.json", "llama-3.1"},
        {"models/big/config.json", "big"},
        {"/big/config.json", "big"},
        {"config.json", "config"},
        {"./config.json", "config"},
        {"../config.json", "config"},
        {"run.sh", "run"},
        {"<standard input>", "<standard input>"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_import_source source = {.path = rows[i].path};
        char *name = NULL;
        cr_assert_eq(ty_import_name(&source, &name), TY_OK);
        cr_expect_str_eq(name, rows[i].name, "%s", rows[i].path);
        ty_free(name);
    }
}

/* ---- Spellings of arguments ------------------------------------------------------------------ */

#define CORE                                                                                       \
    "--hidden-size 64 --num-attention-heads 4 --max-position-embeddings 32 --vocab-size 128 "

Test(import, megatron_spellings)
{
    static const char *const texts[] = {
        CORE "--num-layers 2",
        CORE "--num-layers=2",
        CORE "--num-layers \\\n 2",
        CORE "--num-layers \\\r\n 2\r\n",
        CORE "--num-layers '2'",
        CORE "--num-layers=\"2\"",
        CORE "# --num-layers 3\n--num-layers 2 # --num-layers 4",
        CORE "--num-layers: 2",
        CORE "--num-layers 3 --num-layers 2", /* the last one counts, as with argparse */
        "ARGS=\"" CORE "--num-layers 2\"\npython pretrain_gpt.py $ARGS",
        "ARGS=\"\n  \\\n " CORE "\n--num-layers 2 --data-path 'a b'\"; run",
        "ARGS=(" CORE "--num-layers 2)",
        "args = [\"--num-layers\", \"2\", \"--hidden-size\", \"64\", \"--num-attention-heads\", "
        "\"4\", '--max-position-embeddings', '32', '--vocab-size=128']",
        "args = ['--hidden-size', '64', '--num-attention-heads', '4', '--vocab-size', '128',\n"
        " '--max-position-embeddings', '32', '--num-layers', '2']",
        CORE "--num-layers 2 --swiglu false --group-query-attention: false",
    };
    ty_digest first = {{0}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ty_workload *w = NULL;
        ty_error error = {0};
        ty_digest digest;
        cr_assert_eq(import_text("run.sh", texts[i], &w, NULL, &error), TY_OK, "row %zu: %s", i,
                     error.message);
        cr_assert_eq(ty_workload_digest(w, &digest, &error), TY_OK);
        if (i == 0)
            first = digest;
        cr_expect_str_eq(digest.hex, first.hex, "row %zu", i);
        ty_workload_free(w);
    }
}

/* Parameters of 2 blocks of 64 features: by hand, for each option that changes them. */
Test(import, megatron_options)
{
    static const struct {
        const char *options;
        uint64_t parameters;
    } rows[] = {
        /* 128 + 32 rows; attention 4 x 64 x 64 + 4 x 64, mlp 2 x 64 x 256 + 320, norms 4 x 64; norm
         */
        {"", 160 * 64 + 2 * (16384 + 256 + 32768 + 320 + 256) + 128},
        {"--position-embedding-type rope", 128 * 64 + 2 * 49984 + 128},
        {"--use-rotary-position-embeddings", 128 * 64 + 2 * 49984 + 128},
        {"--untie-embeddings-and-output-weights", 288 * 64 + 2 * 49984 + 128},
        {"--normalization RMSNorm", 160 * 64 + 2 * (49984 - 128) + 64},
        {"--disable-bias-linear", 160 * 64 + 2 * (49984 - 256 - 320) + 128},
        {"--disable-bias-linear --add-qkv-bias", 160 * 64 + 2 * (49984 - 64 - 320) + 128},
        {"--ffn-hidden-size 100", 160 * 64 + 2 * (16384 + 256 + 12800 + 164 + 256) + 128},
        /* 64 x 8 / 3 is 170, down to 128 */
        {"--swiglu", 160 * 64 + 2 * (16384 + 256 + 3 * 64 * 128 + 320 + 256) + 128},
        {"--group-query-attention --num-query-groups 2",
         160 * 64 + 2 * (49984 - 2 * 64 * 32 - 64) + 128},
        {"--num-query-groups 2", 160 * 64 + 2 * 49984 + 128}, /* without the switch: nothing */
        {"--kv-channels 8", 160 * 64 + 2 * (49984 - 4 * 64 * 32 - 96) + 128},
        {"--qk-layernorm", 160 * 64 + 2 * (49984 + 32) + 128},
        {"--make-vocab-size-divisible-by 100", 232 * 64 + 2 * 49984 + 128},
        {"--tensor-model-parallel-size 2", 288 * 64 + 2 * 49984 + 128},
        {"--padded-vocab-size 130", 162 * 64 + 2 * 49984 + 128},
        /* 4 experts: router 64 x 4, of both blocks; then of the first only; then of the second */
        {"--num-experts 4", 160 * 64 + 2 * (49984 + 3 * 33088 + 256) + 128},
        {"--num-experts 4 --moe-layer-freq 2", 160 * 64 + 2 * 49984 + 3 * 33088 + 256 + 128},
        {"--num-experts 4 --moe-layer-freq [0]*1+[1]*1",
         160 * 64 + 2 * 49984 + 3 * 33088 + 256 + 128},
        {"--num-experts 4 --moe-ffn-hidden-size 10 --disable-bias-linear "
         "--moe-shared-expert-intermediate-size 5 --moe-router-enable-expert-bias",
         160 * 64 + 2 * (16384 + 256 + 2 * 64 * 45 + 256 + 4) + 128},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = NULL;
        ty_error error = {0};
        char text[512];
        snprintf(text, sizeof text, "%s--num-layers 2 %s", CORE, rows[i].options);
        cr_assert_eq(import_text("run.sh", text, &w, NULL, &error), TY_OK, "%s: %s",
                     rows[i].options, error.message);
        cr_expect_eq(parameters(w), rows[i].parameters, "%s: %llu instead of %llu", rows[i].options,
                     (unsigned long long)parameters(w), (unsigned long long)rows[i].parameters);
        ty_workload_free(w);
    }
}

/* A variable has the value that the file assigns to it, in any spelling. A value that is not a
 * single literal is refused if a size is needed. */
Test(import, megatron_variables)
{
#define SIZES "--num-attention-heads 4 --max-position-embeddings 64 --vocab-size 128"
    static const struct {
        const char *text, *message; /* NULL: 2 blocks of 64 features */
    } rows[] = {
        {"L=2\nH=64\n--num-layers $L --hidden-size ${H} " SIZES, NULL},
        {"export L=2\nH=\"64\" # features\nARGS=(--num-layers $L\n --hidden-size \"$H\" " SIZES ")",
         NULL},
        {"L=${1:-2}\n--num-layers ${LAYERS:-$L} --hidden-size ${H:-64} " SIZES,
         "found '${LAYERS:-$L}'"},
        {"--num-layers ${LAYERS:-2} --hidden-size ${H:=64} " SIZES, NULL},
        {"SMALL=2\nL=$SMALL\n--num-layers $L --hidden-size 6${FOUR:-4} " SIZES, NULL},
        {"L=2\nif big; then L=4; fi\n--num-layers $L --hidden-size 64 " SIZES,
         "f:3: --num-layers: found '$L'"},
        {"L=2\nL=2\n--num-layers $L --hidden-size 64 " SIZES, NULL},
        {"L=$(layers)\n--num-layers $L --hidden-size 64 " SIZES, "found '$L'"},
        {"H=16\nL=$((H / 8))\n--num-layers $L --hidden-size $((H*4)) " SIZES, NULL},
        {"H=16\nARGS=(--num-layers $(( ( ${H} % 9 - 3 ) / 2 ))\n--hidden-size "
         "$((${F:-48}+H)) " SIZES ")",
         NULL},
        {"run() { echo $1; }\nL=$((1+1)) H=\"$((2 * 32))\"\nrun --num-layers $L --hidden-size "
         "$H " SIZES,
         NULL},
        {"L=$((H / 8))\n--num-layers $L --hidden-size 64 " SIZES, "found '$L'"},
        {"--num-layers $((2 / 0)) --hidden-size 64 " SIZES, "found '$((2 / 0))'"},
        {"--num-layers $((2 ** 1)) --hidden-size 64 " SIZES, "found '$((2 ** 1))'"},
        {"--num-layers $((99999999999999999999)) --hidden-size 64 " SIZES, "found '$((9999"},
        {"L=$((L+1))\n--num-layers $L --hidden-size 64 " SIZES, "found '$L'"},
        {"L=$L\n--num-layers $L --hidden-size 64 " SIZES, "found '$L'"},
        {"--num-layers $1 --hidden-size 64 " SIZES, "found '$1'"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = NULL;
        ty_error error = {0};
        ty_status status = import_text("f", rows[i].text, &w, NULL, &error);
        if (rows[i].message != NULL) {
            cr_expect_eq(status, TY_EPARSE, "row %zu", i);
            cr_expect(strstr(error.message, rows[i].message) != NULL, "row %zu: %s", i,
                      error.message);
            continue;
        }
        cr_assert_eq(status, TY_OK, "row %zu: %s", i, error.message);
        cr_expect_eq(parameters(w), 2 * (12 * 64 * 64 + 13 * 64) + 2 * 64 + (128 + 64) * 64,
                     "row %zu: %llu", i, (unsigned long long)parameters(w));
        ty_workload_free(w);
    }
}

/* Branches of a script with different sizes: a note names the one in use. */
Test(import, megatron_sizes_that_differ)
{
    ty_workload *w = NULL;
    ty_import_report report = {0};
    ty_error error = {0};
    bool is_told = false;

    cr_assert_eq(import_text("f",
                             "if small; then\nA='--num-layers 3 --hidden-size 64'\nelse\n"
                             "A='--num-layers 2 --hidden-size 64'\nfi\n" SIZES,
                             &w, &report, &error),
                 TY_OK, "%s", error.message);
    for (uint32_t i = 0; i < report.note_count; i++)
        is_told = is_told || strcmp(report.notes[i],
                                    "--num-layers is 3 and, on line 4, 2: the last counts") == 0;
    cr_expect(is_told);
    cr_expect_eq(parameters(w), 2 * (12 * 64 * 64 + 13 * 64) + 2 * 64 + (128 + 64) * 64);
    ty_import_report_clear(&report);
    ty_workload_free(w);
}

/* A tokenizer's size is not in the script: the option is padded like the script's value. */
Test(import, megatron_vocabulary_by_option)
{
    static const char text[] = "--num-layers 1 --hidden-size 64 --num-attention-heads 4 "
                               "--max-position-embeddings 64 --tensor-model-parallel-size 2 "
                               "--tokenizer-type HuggingFaceTokenizer";
    const ty_import_options options = {.vocabulary = 1000};
    ty_workload *w = NULL;
    ty_error error = {0};

    cr_expect_eq(import_text("f", text, &w, NULL, &error), TY_EPARSE);
    cr_expect(strstr(error.message, "vocabulary=N behind the file (--vocabulary N)") != NULL, "%s",
              error.message);
    cr_assert_eq(ty_import_bytes("f", text, strlen(text), &options, &w, NULL, &error), TY_OK);
    cr_expect_eq(w->layers[0].attributes[TY_VOCABULARY], 1024); /* of 128 x 2 */
    ty_workload_free(w);
}

/* ---- Refusals ------------------------------------------------------------------------- */

#define LLAMA(rest)                                                                                \
    "{\"model_type\": \"llama\", \"hidden_size\": 8, \"num_attention_heads\": 2, "                 \
    "\"num_hidden_layers\": 1, \"vocab_size\": 32" rest "}"
#define CALCULON(hidden, rest)                                                                     \
    "{\"hidden\": " hidden ", \"feedforward\": 16, \"seq_size\": 4, \"attn_heads\": 2" rest "}"
#define MEGATRON(rest) "--num-layers 2 --hidden-size 64 --num-attention-heads 4\n" rest

Test(import, bad_files_are_refused)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"", "f: found no kind of file that is known, expected one of ONNX, Chakra"},
        {"hello", "Megatron-LM arguments, Hugging Face config.json, Calculon model"},
        {"{\"a\": 1}", "f: found no kind of file"},
        {"[1, 2]", "f: found no kind of file"},
        {"{\"model_type\": \"llama\"", "f: line 1, column 23"},
        {"{\"model_type\": \"llamma\"}", "f:/model_type: found \"llamma\", expected \"llama\"?"},
        {"{\"model_type\": \"resnet\"}", "f:/model_type: found \"resnet\", expected"},
        {"{\"model_type\": 7}", "f:/model_type: found 7"},
        {"{\"architectures\": [\"X\"]}", "f:/architectures/0: found \"X\""},
        {"{\"schema\": \"trainyard.zoo/9\", \"model_type\": \"llama\"}", "f:/schema"},
        {"{\"model_type\": \"llama\"}", "f:/num_hidden_layers: found nothing"},
        {LLAMA(""), "f:/intermediate_size: found nothing"},
        {LLAMA(", \"intermediate_size\": \"16\""), "f:/intermediate_size: found \"16\", expected"},
        {LLAMA(", \"intermediate_size\": -1"), "f:/intermediate_size: found -1"},
        {LLAMA(", \"intermediate_size\": 1.5"), "f:/intermediate_size: found 1.5"},
        {LLAMA(", \"intermediate_size\": 1e12"), "f:/intermediate_size: found 1"},
        {LLAMA(", \"intermediate_size\": [16]"), "f:/intermediate_size: found"},
        {LLAMA(", \"intermediate_size\": 16, \"mlp_bias\": 1"), "f:/mlp_bias: found 1"},
        {LLAMA(", \"intermediate_size\": 16, \"num_key_value_heads\": 3"),
         "expected key/value heads that divide heads; 2 is not a multiple of 3"},
        {LLAMA(", \"intermediate_size\": 16, \"tie_word_embeddings\": \"yes\""),
         "f:/tie_word_embeddings: found \"yes\""},
        {LLAMA(", \"intermediate_size\": 16, \"intermediate_size\": 17"), "intermediate_size"},
        {"{\"model_type\": \"llama\", \"hidden_size\": 2000000000, \"num_attention_heads\": 1, "
         "\"num_hidden_layers\": 1, \"vocab_size\": 2000000000, \"intermediate_size\": 1}",
         "f: expected sizes that fit (embedding: "},
        {"{\"model_type\": \"mixtral\", \"hidden_size\": 8, \"num_attention_heads\": 2, "
         "\"num_hidden_layers\": 1, \"vocab_size\": 32, \"intermediate_size\": 16, "
         "\"num_local_experts\": 2, \"num_experts_per_tok\": 3}",
         "expected no more experts per token than experts; 3 is above 2"},
        {"{\"model_type\": \"deepseek_v3\", \"hidden_size\": 8, \"num_attention_heads\": 2, "
         "\"num_hidden_layers\": 1, \"vocab_size\": 32}",
         "f:/kv_lora_rank: found nothing"},
        {"{\"model_type\": \"gpt2\", \"n_embd\": 8, \"n_head\": 3, \"n_layer\": 1, \"vocab_size\": "
         "32, \"n_positions\": 4}",
         "expected heads that divide features; 8 is not a multiple of 3"},
        {"{\"model_type\": \"gpt2\", \"n_embd\": 8, \"n_head\": 2, \"n_layer\": 20000, "
         "\"vocab_size\": 32, \"n_positions\": 4}",
         "f: found an object, expected at most 10000 blocks"},
        {CALCULON("8", ""), "f:/attn_size: found nothing"},
        {CALCULON("8.5", ""), "f:/hidden: found 8.5"},
        {CALCULON("8", ", \"attn_size\": 0, \"num_blocks\": 1"), "f:/attn_size: found 0"},
        {CALCULON("8", ", \"attn_size\": 4, \"num_blocks\": 100000"), "at most 10000 blocks"},
        {"{\"num_procs\": 8, \"tensor_par\": 2}", "f: found a Calculon execution"},
        {"{\"matrix\": {}, \"networks\": []}", "f: found a Calculon system"},
        {"{\"train_batch_size\": 8}", "expected the model's config.json with batch=8 behind it"},
        {"{\"train_batch_size\": \"auto\"}", "f: found a DeepSpeed configuration"},
        {"{\"zero_optimization\": {}}", "f: found a DeepSpeed configuration"},
        {MEGATRON(""), "f: found no --vocab-size, expected it with a number"},
        {MEGATRON("--vocab-size"), "f:2: --vocab-size: found no value"},
        {MEGATRON("--vocab-size --swiglu"), "f:2: --vocab-size: found no value"},
        {MEGATRON("--vocab-size 12x"), "f:2: --vocab-size: found '12x', expected a whole number"},
        {MEGATRON("--vocab-size 0"), "f:2: --vocab-size: found '0'"},
        {MEGATRON("--vocab-size 99999999999999999999"), "f:2: --vocab-size: found '999"},
        {MEGATRON("\n--vocab-size=${VOCAB}"), "f:3: --vocab-size: found '${VOCAB}', expected"},
        {MEGATRON("\n--vocab-size $V"), "the variable has no one literal value here"},
        {MEGATRON("--vocab-size 100 --normalization $N"), "f:2: --normalization: found '$N'"},
        {MEGATRON("--vocab-size 100 --lr fast"), "f:2: --lr: found 'fast', expected a number"},
        {MEGATRON("--vocab-size 100"), "f: found no --max-position-embeddings"},
        {MEGATRON("--vocab-size 100 --max-position-embeddings 8 --seq-length 9"),
         "f: expected sequence <= positions; 9 is above 8"},
        {MEGATRON("--vocab-size 100 --max-position-embeddings 8 --num-experts 2 --moe-layer-freq "
                  "[0]*2+[1]*2"),
         "f:2: --moe-layer-freq: found '[0]*2+[1]*2'"},
        {MEGATRON("--vocab-size 100 --make-vocab-size-divisible-by 2147483647 "
                  "--tensor-model-parallel-size 2"),
         "expected at most 2147483647"},
        {"--num-layers 2", "f: found no --hidden-size"},
        {"--hidden-size 2", "f: found no --num-layers"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = NULL;
        ty_error error = {0};
        ty_import_report report = {0};
        ty_status status = import_text("f", rows[i].text, &w, &report, &error);
        cr_expect_eq(status, TY_EPARSE, "row %zu: status %d: %s", i, status, error.message);
        cr_expect(strstr(error.message, rows[i].message) != NULL, "row %zu: %s", i, error.message);
        cr_expect(strncmp(error.message, "f:", 2) == 0, "row %zu: %s", i, error.message);
        cr_expect(w == NULL && report.note_count == 0 && report.format == NULL, "row %zu", i);
    }
}

Test(import, survives_failing_allocations)
{
    static const char *const paths[] = {"/hf/tiny.json", "/megatron/gpt-345m.sh",
                                        "/calculon/tiny.json", "/calculon/deepspeed.json",
                                        "/zoo/transformer.json"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        ty_status status = TY_ENOMEM, expected = i == 3 ? TY_EPARSE : TY_OK;
        char path[256];
        long n;
        snprintf(path, sizeof path, "%s%s", TY_CORPUS, paths[i]);
        for (n = 1; status == TY_ENOMEM; n++) {
            ty_workload *w = NULL;
            ty_import_report report = {0};
            ty_error error = {0};
            cr_assert_lt(n, 100000);
            ty_memory_fail_after(n);
            status = ty_workload_import(path, NULL, &w, &report, &error);
            ty_memory_fail_after(0);
            cr_assert(status == TY_ENOMEM || status == expected,
                      "%s, allocation %ld: status %d: %s", paths[i], n, status, error.message);
            cr_assert(status == TY_OK || (w == NULL && report.notes == NULL));
            ty_import_report_clear(&report);
            ty_workload_free(w);
        }
        cr_expect_gt(n, 5, "%s", paths[i]);
    }
}
