/* Records of language models as the questions that a user would ask, and how far the answers are
 * from published rows that no constant was fitted to (where the shared measurements are at hand).
 */
#include "ty_study.h"
#include "validate/asked.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MODEL                                                                                      \
    "\"model\":{\"name\":\"GPT\",\"family\":\"gpt\",\"layers\":24,\"hidden\":2048,\"heads\":16,"   \
    "\"seq\":1024,\"vocab\":50257}"
#define CLUSTER                                                                                    \
    "\"cluster\":{\"gpu\":\"A100-SXM4\",\"gpus\":4,\"gpus_per_node\":4,"                           \
    "\"intra_node\":{\"link\":\"NVLink3\",\"GBps_per_gpu_per_direction\":300}}"
#define PARALLEL                                                                                   \
    "\"parallel\":{\"dp\":2,\"tp\":1,\"pp\":2,\"schedule\":\"1f1b\",\"recompute\":\"full\"}"
#define BATCH "\"batch\":{\"global\":16,\"micro\":4}"
#define MEASURED "\"measured\":{\"metric\":\"iteration_time\",\"value\":0.5,\"unit\":\"s\"}"
#define RECORD(members)                                                                            \
    "{\"schema\":1,\"family\":\"made\",\"count\":1,\"records\":[{\"id\":\"vtrain-single/x\","      \
    "\"kind\":\"training-speed\",\"source\":{\"work\":\"made\"},\"confidence\":\"read\"," members  \
    "}]}"

static void ask(const char *text, ty_asked *asked, char reason[TY_SKIP_REASON_SIZE])
{
    ty_records *records = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_records_parse(text, strlen(text), "made.json", &records, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_ask_language_model(&records->items[0], asked, reason, &error), TY_OK, "%s",
                 error.message);
    ty_records_free(records);
}

Test(language_models, a_record_is_a_question)
{
    const char *text = RECORD(MODEL "," CLUSTER "," PARALLEL "," BATCH "," MEASURED);
    char reason[TY_SKIP_REASON_SIZE];
    ty_asked asked;

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
        ty_asked asked;
        snprintf(text, sizeof text,
                 RECORD(MODEL "," CLUSTER "," PARALLEL "," BATCH
                              ",\"measured\":{\"metric\":\"%s\",\"value\":%g,\"unit\":\"x\"}"),
                 rows[i].metric, rows[i].value);
        ask(text, &asked, reason);
        cr_expect(fabs(asked.measured_step_s - rows[i].seconds) < 1e-12, "%s: %g", rows[i].metric,
                  asked.measured_step_s);
    }
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
         "decoder"},
        {RECORD("\"model\":{\"name\":\"B\",\"family\":\"gpt\",\"layers\":\"12 or 24\"}," CLUSTER
                "," PARALLEL "," BATCH "," MEASURED),
         "in words"},
        {RECORD(MODEL "," CLUSTER ",\"parallel\":{\"dp\":3,\"tp\":1,\"pp\":1}," BATCH "," MEASURED),
         "number of devices"},
        {RECORD(MODEL "," CLUSTER ",\"parallel\":{\"schedule\":\"zb-2p\",\"pp\":4}," BATCH
                      "," MEASURED),
         "schedule"},
        {RECORD(MODEL "," CLUSTER "," PARALLEL "," BATCH
                      ",\"measured\":{\"metric\":\"happiness\",\"value\":1,\"unit\":\"x\"}"),
         "not the time of a step"}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char reason[TY_SKIP_REASON_SIZE];
        ty_asked asked;
        ask(rows[i].text, &asked, reason);
        cr_expect_not_null(strstr(reason, rows[i].reason), "row %zu: \"%s\"", i, reason);
    }
}

/* What docs/validation.md says of these sources, with a margin for a figure's last digit; fitted
 * rows are apart. Nothing that was published as running is refused. */
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
