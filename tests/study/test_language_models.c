/* Records of language models as the queries that a user would make, and the errors of the answers
 * on published rows that no constant was fitted to (if the shared measurements are available). */
#include "ty_study.h"
#include "validate/row_question.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MODEL                                                                                      \
    "\"model\":{\"name\":\"GPT\",\"family\":\"gpt\",\"layers\":24,\"hidden\":2048,\"heads\":16,"   \
    "\"seq\":1024,\"vocab\":50257}"
#define SIZED(size)                                                                                \
    "\"model\":{\"name\":\"GPT\",\"family\":\"gpt\",\"hidden\":8192,\"seq\":1024,"                 \
    "\"vocab\":50257,\"size_label\":\"" size "\"}"
#define CLUSTER                                                                                    \
    "\"cluster\":{\"gpu\":\"A100-SXM4\",\"gpus\":4,\"gpus_per_node\":4,"                           \
    "\"intra_node\":{\"link\":\"NVLink3\",\"GBps_per_gpu_per_direction\":300}}"
#define PARALLEL                                                                                   \
    "\"parallel\":{\"dp\":2,\"tp\":1,\"pp\":2,\"schedule\":\"1f1b\",\"recompute\":\"full\"}"
#define BATCH "\"batch\":{\"global\":16,\"micro\":4}"
#define MEASURED "\"measured\":{\"metric\":\"iteration_time\",\"value\":0.5,\"unit\":\"s\"}"
#define RECORD_OF(id, kind, members)                                                               \
    "{\"schema\":1,\"family\":\"made\",\"count\":1,\"records\":[{\"id\":\"" id                     \
    "\",\"kind\":\"" kind "\",\"source\":{\"work\":\"made\"},\"confidence\":\"read\"," members     \
    "}]}"
#define RECORD(members) RECORD_OF("vtrain-single/x", "training-speed", members)

static void ask(const char *text, ty_row_question *asked, char reason[TY_SKIP_REASON_SIZE])
{
    ty_records *records = NULL;
    ty_json_document *names = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_records_parse(text, strlen(text), "made.json", &records, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_names_open(&names, &error), TY_OK, "%s", error.message);
    ty_ask_language_model(ty_json_root(names), &records->items[0], asked, reason);
    ty_json_free(names);
    ty_records_free(records);
}

Test(language_models, a_record_is_a_question)
{
    const char *text = RECORD(MODEL "," CLUSTER "," PARALLEL "," BATCH "," MEASURED);
    char reason[TY_SKIP_REASON_SIZE];
    ty_row_question asked;

    ask(text, &asked, reason);
    cr_expect_str_eq(reason, "");
    cr_expect_str_eq(asked.workload, "transformer blocks=24 features=2048 heads=16 "
                                     "hidden_features=8192 vocabulary=50257 sequence=1024 "
                                     "positions=1024");
    cr_expect_str_eq(asked.cluster, "host:1 gpu:4 @a100-sxm4-80gb nvlink3=300GB/s hdr200");
    cr_expect_str_eq(asked.stack, "megatron-vtrain-node");
    cr_expect_str_eq(asked.fix, "tp=1,cp=1,ep=1,pp=2,dp=2,sp=0,zero=0,recompute=full,schedule=1f1b,"
                                "micro_batch=4,compression=none");
    cr_expect_eq(asked.global_batch, 16);
    cr_expect(fabs(asked.measured_step_s - 0.5) < 1e-12);
}

Test(language_models, metrics_become_seconds)
{
    static const struct {
        const char *metric;
        double value, seconds;
    } rows[] = {{"tokens_per_s", 16384, 1},
                {"tokens_per_s_per_gpu", 4096, 1},
                {"sequences_per_s", 32, 0.5},
                {"samples_per_s_per_gpu", 2, 2}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[2048], reason[TY_SKIP_REASON_SIZE];
        ty_row_question asked;
        snprintf(text, sizeof text,
                 RECORD(MODEL "," CLUSTER "," PARALLEL "," BATCH
                              ",\"measured\":{\"metric\":\"%s\",\"value\":%g,\"unit\":\"x\"}"),
                 rows[i].metric, rows[i].value);
        ask(text, &asked, reason);
        cr_expect(fabs(asked.measured_step_s - rows[i].seconds) < 1e-12, "%s: %g", rows[i].metric,
                  asked.measured_step_s);
    }
}

#define SPEED(id, members) RECORD_OF(id, "training-speed", members "," MEASURED)

/* Details that a source omits are taken from its framework or the model's name; each one is
 * reported. */
Test(language_models, what_is_left_out_is_filled_and_said)
{
    static const struct {
        const char *name, *text, *workload, *cluster, *fix, *precision, *assumed;
    } rows[] = {
        {"latents by name, racks of 72 in equal parts",
         SPEED("nemo-megatron-bridge/x",
               "\"model\":{\"name\":\"DeepSeek-V3\",\"family\":\"moe-gpt\",\"layers\":61,"
               "\"hidden\":7168,\"heads\":128,\"vocab\":129280,\"experts\":256,"
               "\"attention\":\"MLA\",\"seq\":4096,\"dtype\":\"mxfp8\"},"
               "\"batch\":{\"global\":2048,\"micro\":1},\"cluster\":{\"gpu\":\"GB200 (B200)\","
               "\"gpus\":256,\"gpus_per_node\":72},\"parallel\":{\"tp\":1,\"pp\":4,\"ep\":64,"
               "\"interleave\":4,\"dp\":64}"),
         "deepseek-v3 sequence=4096", "host:4 gpu:64 @gb200 nvlink5 ndr400", "ep=64,pp=4,dp=1",
         "fp8", "sizes by the model's name"},
        {"heads that are not hidden/heads",
         SPEED("nemo-megatron-bridge/x",
               "\"model\":{\"name\":\"Qwen3-30B-A3B\",\"family\":\"moe-gpt\",\"layers\":48,"
               "\"hidden\":2048,\"heads\":32,\"vocab\":151936,\"seq\":4096,"
               "\"dtype\":\"nvfp4\"},\"batch\":{\"global\":64,\"micro\":1},\"cluster\":{"
               "\"gpu\":\"B300-SXM\",\"gpus\":8,\"gpus_per_node\":8},\"parallel\":{\"tp\":1,"
               "\"pp\":1,\"ep\":8,\"dp\":8}"),
         "qwen3-30b-a3b sequence=4096", "host:1 gpu:8 @b300 nvlink5 xdr800", "ep=8,pp=1,dp=1",
         "fp4", "nvlink5 inside, ZeRO 1, nothing recomputed"},
        {"an encoder, its batch a step's",
         SPEED("deep-learning-examples/x",
               "\"model\":{\"name\":\"BERT-large\",\"family\":\"bert\",\"layers\":24,"
               "\"hidden\":1024,\"heads\":16,\"vocab\":30522,\"variant\":\"Fine-tuning\","
               "\"dtype\":\"amp-fp16\"},\"batch\":{\"per_gpu_micro\":4096,\"grad_accum\":64},"
               "\"cluster\":{\"gpu\":\"V100-SXM2-32GB\",\"gpus\":2,\"gpus_per_node\":2},"
               "\"parallel\":{\"dp\":2}"),
         "encoder blocks=24 features=1024 heads=16 hidden_features=4096 vocabulary=30522 "
         "sequence=384 positions=512 token_types=2 head=masked",
         "host:1 gpu:2 @v100-sxm2-32gb nvlink2 edr100",
         "dp=2,sp=0,zero=0,recompute=none,"
         "micro_batch=64",
         "fp16", "sequences of 384"},
        {"layers by a size",
         SPEED("bigscience-v100/x",
               SIZED("52B") ",\"batch\":{\"global\":1024,\"micro\":4},\"cluster\":{\"gpu\":"
                            "\"V100-SXM2-32GB\",\"gpus\":64,\"gpus_per_node\":4},\"parallel\":{"
                            "\"tp\":4,"
                            "\"pp\":16,\"dp\":1,\"recompute\":\"full\"}"),
         "transformer blocks=64 features=8192 heads=64 hidden_features=32768 vocabulary=50257 "
         "sequence=1024 positions=1024",
         "host:16 gpu:4 @v100-sxm2-32gb nvlink2 opa100", "tp=4,cp=1,ep=1,pp=16", "bf16",
         "64 layers by the stated size, heads of 128"},
        {"one degree for tensor ranks and stages",
         SPEED("megatron-lm/x",
               "\"model\":{\"name\":\"GPT\",\"family\":\"gpt\",\"layers\":80,\"hidden\":12288,"
               "\"heads\":96,\"seq\":2048,\"vocab\":51200},\"batch\":{\"global\":2304},"
               "\"cluster\":{\"gpu\":\"A100-SXM4\",\"gpus\":1536,\"gpus_per_node\":8},"
               "\"parallel\":{\"dp\":24,\"model_parallel\":64,\"recompute\":\"full\"}"),
         "transformer blocks=80", "host:192 gpu:8 @a100-sxm4-80gb nvlink3 hdr200",
         "tp=8,cp=1,ep=1,pp=8,dp=24", "bf16", "tp 8, pp 8"},
        {"a local batch beside a pipeline",
         SPEED("torchtitan/x",
               MODEL ",\"batch\":{\"global\":32,\"micro\":8},\"cluster\":{\"gpu\":\"H100-SXM\","
                     "\"gpus\":8,\"gpus_per_node\":8},\"parallel\":{\"dp\":4,\"pp\":2,\"tp\":1,"
                     "\"zero\":3,\"recompute\":\"selective-op\"}"),
         "transformer blocks=24", "host:1 gpu:8 @h100-sxm nvlink4 ndr400",
         "recompute=operator,schedule=1f1b,micro_batch=1,", "bf16",
         "micro-batches of one sequence"},
        {"adapters of a model that its name tells",
         SPEED("mlperf-training/x",
               "\"model\":{\"name\":\"Llama-2-70B LoRA fine-tuning\",\"family\":\"gpt\","
               "\"layers\":80,\"hidden\":8192,\"seq\":8192},\"batch\":{\"global\":8,"
               "\"micro\":1},\"cluster\":{\"gpu\":\"H100-SXM\",\"gpus\":8,\"gpus_per_node\":8},"
               "\"parallel\":{\"dp\":2,\"pp\":1,\"tp\":4}"),
         "decoder blocks=80 features=8192 heads=64 kv_heads=8 hidden_features=28672 "
         "vocabulary=32000 has_frozen_matrices=true sequence=8192",
         "host:1 gpu:8 @h100-sxm nvlink4 ndr400", "tp=4,cp=1,ep=1,pp=1,dp=2,sp=1,zero=1", "fp8",
         "nothing recomputed, fp8"},
        {"chunks of a pipeline that states none",
         SPEED("mlperf-training/x",
               "\"model\":{\"name\":\"GPT-3 175B\",\"family\":\"gpt\",\"layers\":96,"
               "\"hidden\":12288,\"heads\":96,\"seq\":2048},\"batch\":{\"global\":2048,"
               "\"micro\":1},\"cluster\":{\"gpu\":\"H100-SXM\",\"gpus\":512,"
               "\"gpus_per_node\":8},\"parallel\":{\"dp\":16,\"pp\":8,\"tp\":4}"),
         "transformer blocks=96", "host:64 gpu:8 @h100-sxm nvlink4 ndr400",
         "schedule=interleaved,vpp=6", "fp8", "6 chunks a stage"},
        {"states that are stated to be sharded",
         SPEED("nemo-megatron-bridge/x",
               MODEL ",\"batch\":{\"global\":32,\"micro\":1},\"cluster\":{\"gpu\":\"GB200\","
                     "\"gpus\":8,\"gpus_per_node\":8},\"parallel\":{\"dp\":8,\"tp\":1,\"pp\":1,"
                     "\"zero\":3}"),
         "transformer blocks=24", "host:1 gpu:8 @gb200 nvlink5 ndr400", "zero=3", "bf16",
         "nvlink5 inside, nothing recomputed"},
        {"fewer sequences than chips",
         SPEED("tpu-recipes/x",
               "\"model\":{\"name\":\"llama3.1-70b\",\"family\":\"gpt\",\"seq\":131072},"
               "\"batch\":{\"global\":64},\"cluster\":{\"gpu\":\"TPU Ironwood (v7)\","
               "\"gpus\":256}"),
         "llama-3.1-70b sequence=131072", "torus:4x8x8 @tpu-v7 ici-v7",
         "tp=1,cp=4,ep=1,pp=1,dp=64,sp=0,zero=3,recompute=full", "bf16",
         "ZeRO 3, blocks recomputed, cp 4"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char reason[TY_SKIP_REASON_SIZE];
        ty_row_question asked;
        ask(rows[i].text, &asked, reason);
        cr_expect_str_eq(reason, "", "%s: %s", rows[i].name, reason);
        cr_expect_eq(strncmp(asked.workload, rows[i].workload, strlen(rows[i].workload)), 0,
                     "%s: %s", rows[i].name, asked.workload);
        cr_expect_str_eq(asked.cluster, rows[i].cluster, "%s: %s", rows[i].name, asked.cluster);
        cr_expect_not_null(strstr(asked.fix, rows[i].fix), "%s: %s", rows[i].name, asked.fix);
        cr_expect_str_eq(asked.precision, rows[i].precision, "%s: %s", rows[i].name,
                         asked.precision);
        cr_expect_not_null(strstr(asked.assumed, rows[i].assumed), "%s: %s", rows[i].name,
                           asked.assumed);
    }
}

/* Time to train is that of the measured steps; only the tokens of a padded sample count. */
Test(language_models, time_to_train_is_steps)
{
    static const char text[] = RECORD_OF(
        "mlperf-training/x", "time-to-train",
        "\"model\":{\"name\":\"BERT-large pre-training phase 2\",\"family\":\"bert\","
        "\"layers\":24,\"hidden\":1024,\"heads\":16,\"seq\":512,\"vocab\":30522},"
        "\"batch\":{\"global\":448,\"grad_accum\":2},\"cluster\":{\"gpu\":\"A100-SXM4-80GB\","
        "\"gpus\":8,\"gpus_per_node\":8},\"measured\":{\"metric\":\"time_to_train\","
        "\"value\":20,\"unit\":\"min\"},\"also_measured\":[{\"metric\":"
        "\"steps_to_target_derived\",\"value\":6000,\"unit\":\"steps\"}]");
    char reason[TY_SKIP_REASON_SIZE];
    ty_row_question asked;

    ask(text, &asked, reason);
    cr_expect_str_eq(reason, "");
    cr_expect(fabs(asked.measured_step_s - 0.2) < 1e-12, "%g", asked.measured_step_s);
    cr_expect_not_null(strstr(asked.workload, "sequence=256 positions=512"), "%s", asked.workload);
    cr_expect_not_null(strstr(asked.fix, "micro_batch=28"), "%s", asked.fix);
    cr_expect_not_null(strstr(asked.assumed, "256 tokens"), "%s", asked.assumed);
    cr_expect_not_null(strstr(asked.assumed, "evaluation not counted"), "%s", asked.assumed);
}

Test(language_models, what_is_no_question_has_a_reason)
{
    static const struct {
        const char *text, *reason;
    } rows[] = {
        {RECORD(MODEL ",\"cluster\":{\"gpu\":\"abacus\",\"gpus\":4}," PARALLEL "," BATCH
                      "," MEASURED),
         "no stack"},
        {RECORD("\"model\":{\"name\":\"B\",\"family\":\"bert\"}," CLUSTER "," PARALLEL "," BATCH
                "," MEASURED),
         "not told by the model's name"},
        {RECORD("\"model\":{\"name\":\"Tiny\",\"family\":\"t5\",\"layers\":12,\"hidden\":64,"
                "\"heads\":2,\"seq\":512}," CLUSTER "," PARALLEL "," BATCH "," MEASURED),
         "encoder and decoder"},
        {RECORD("\"model\":{\"name\":\"Llama-2-70B LoRA\",\"family\":\"gpt\",\"layers\":80,"
                "\"hidden\":8192,\"seq\":4096}," CLUSTER "," PARALLEL "," BATCH "," MEASURED),
         "LoRA"},
        {RECORD(MODEL "," CLUSTER "," BATCH "," MEASURED), "layout not stated"},
        {RECORD(SIZED("60B") ",\"cluster\":{\"gpu\":\"A100-SXM4\",\"gpus\":64},\"parallel\":{"
                             "\"pp\":64,\"dp\":1,\"tp\":1}," BATCH "," MEASURED),
         "no whole number of layers"},
        {RECORD("\"model\":{\"name\":\"B\",\"family\":\"gpt\",\"layers\":\"12 or 24\"}," CLUSTER
                "," PARALLEL "," BATCH "," MEASURED),
         "in words"},
        {RECORD(MODEL "," CLUSTER ",\"parallel\":{\"dp\":3,\"tp\":1,\"pp\":1}," BATCH "," MEASURED),
         "number of devices"},
        {RECORD(MODEL "," CLUSTER ",\"parallel\":{\"schedule\":\"zb-v\",\"pp\":4}," BATCH
                      "," MEASURED),
         "schedule"},
        {RECORD(MODEL "," CLUSTER "," PARALLEL "," BATCH
                      ",\"measured\":{\"metric\":\"happiness\",\"value\":1,\"unit\":\"x\"}"),
         "not the time of a step"}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char reason[TY_SKIP_REASON_SIZE];
        ty_row_question asked;
        ask(rows[i].text, &asked, reason);
        cr_expect_not_null(strstr(reason, rows[i].reason), "row %zu: \"%s\"", i, reason);
    }
}

/* Errors of these sources as in docs/results/README.md, with a margin for a figure's last digit;
 * fitted rows are separate. Nothing that was published as running is refused. */
Test(language_models, published_rows, .timeout = 500)
{
    static const struct {
        const char *name;
        uint32_t rows;
        double bar;
    } files[] = {{"vtrain_single.json", 363, 0.06},
                 {"vtrain_multi.json", 20, 0.03},
                 {"korthikanti.json", 4, 0.09}};

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[512];
        ty_validation *v = NULL;
        ty_error error = {0};
        snprintf(path, sizeof path, "%s/measurements/%s", TY_SHARED_DATA, files[i].name);
        if (!ty_file_exists(path))
            cr_skip_test("no %s under " TY_SHARED_DATA, files[i].name);
        cr_assert_eq(ty_validation_run(path, &v, &error), TY_OK, "%s", error.message);
        cr_expect_eq(v->sources[0].score.rows, files[i].rows, "%s: %u rows", files[i].name,
                     v->sources[0].score.rows);
        cr_expect(v->sources[0].score.mean_error < files[i].bar, "%s: %.2f %%", files[i].name,
                  100 * v->sources[0].score.mean_error);
        for (uint32_t r = 0; r < v->sources[0].rows; r++)
            cr_expect_null(strstr(v->sources[0].verdicts[r].reason, "does not fit"), "%s: %s",
                           v->sources[0].records->items[r].id, v->sources[0].verdicts[r].reason);
        ty_validation_free(v);
    }
}
