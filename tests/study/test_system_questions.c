/* Each option requested from a named system is in its plan, or the system reports that it lacks the
 * option and which ones it has: every key of --fix and every precision, for every system. */
#include "ty_study.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLAIN_WORKLOAD "gpt-tiny"
#define PLAIN_CLUSTER "2x p100-server" /* eight devices on two hosts */

/* ---- Properties of a plan
 * --------------------------------------------------------------------- */

/* "3+3+3": a number of each stage. */
static bool has_of_each(const ty_plan *plan, uint32_t (*number)(const ty_plan_stage *stage),
                        const char *value)
{
    char *rest = NULL, *text = strdup(value);
    uint32_t stage = 0;
    bool is_same = true;

    for (const char *word = strtok_r(text, "+", &rest); word != NULL;
         word = strtok_r(NULL, "+", &rest), stage++)
        is_same = is_same && stage < plan->stage_count &&
                  number(&plan->stages[stage]) == (uint32_t)atoi(word);
    free(text);
    return is_same && stage == plan->stage_count;
}

static uint32_t replicas_of(const ty_plan_stage *stage)
{
    return stage->replicas;
}

static bool has_replicas(const ty_plan *plan, const char *value)
{
    return has_of_each(plan, replicas_of, value);
}

static bool has_data_parallel(const ty_plan *plan, const char *value)
{
    for (uint32_t s = 0; s < plan->stage_count; s++)
        if (plan->stages[s].replicas != (uint32_t)atoi(value))
            return false;
    return true;
}

static bool has_stages(const ty_plan *plan, const char *value)
{
    return ty_plan_pipeline_size(plan) == (uint32_t)atoi(value);
}

static bool has_schedule(const ty_plan *plan, const char *value)
{
    return strcmp(ty_schedule_name(plan->schedule), value) == 0;
}

static bool has_micro_batch(const ty_plan *plan, const char *value)
{
    return plan->micro_batch_size == (uint32_t)atoi(value);
}

/* Row compression is for embeddings only; every other kind is for all gradients. */
static bool has_compression(const ty_plan *plan, const char *value)
{
    ty_compression asked = {0};
    uint32_t exchanged = 0, alike = 0;

    cr_assert_eq(ty_compression_parse(value, &asked, NULL), TY_OK);
    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        if (ty_bucket_device_count(plan, &plan->buckets[b]) < 2 ||
            plan->buckets[b].tied_stage != TY_NO_STAGE)
            continue;
        exchanged++;
        alike += ty_compression_equals(&plan->buckets[b].compression, &asked);
    }
    return asked.kind == TY_COMPRESSION_ROWS ? alike > 0 : alike == exchanged;
}

/* A bucket is closed once it is large enough: without its lowest layer it is not, and only the
 * lowest bucket of a stage may be smaller. */
static bool has_bucket(const ty_plan *plan, const char *value)
{
    uint64_t enough;

    cr_assert_eq(ty_parse_bytes(value, &enough, NULL), TY_OK);
    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_bucket *bucket = &plan->buckets[b];
        const bool is_lowest = b + 1 == plan->bucket_count ||
                               plan->buckets[b + 1].stage != bucket->stage ||
                               plan->buckets[b + 1].tied_stage != TY_NO_STAGE;
        const uint64_t lowest = plan->workload->layers[bucket->first_layer].parameter_bytes /
                                plan->workload->element_bytes * TY_GRADIENT_ELEMENT_BYTES;
        if (ty_bucket_device_count(plan, bucket) < 2 || bucket->tied_stage != TY_NO_STAGE)
            continue;
        if ((!is_lowest && bucket->gradient_bytes < enough) ||
            bucket->gradient_bytes >= enough + lowest)
            return false;
    }
    return true;
}

/* By the chosen candidate's description; test_cycles.c checks the buckets. */
static bool has_cycle(const ty_plan *plan, const char *value)
{
    char words[64];
    double cycle_s;

    cr_assert_eq(ty_parse_seconds(value, &cycle_s, NULL), TY_OK);
    snprintf(words, sizeof words, ", cycle %g ms", cycle_s * 1e3);
    return strstr(plan->candidates[0].name, words) != NULL;
}

static bool has_algorithm(const ty_plan *plan, const char *value)
{
    for (uint32_t b = 0; b < plan->bucket_count; b++)
        if (strcmp(ty_algorithm_name(plan->buckets[b].algorithm), value) != 0)
            return false;
    return plan->bucket_count > 0;
}

static bool has_tensor(const ty_plan *plan, const char *value)
{
    return ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL) == (uint32_t)atoi(value);
}

static bool has_context(const ty_plan *plan, const char *value)
{
    return ty_plan_parallel_size(plan, TY_CONTEXT_PARALLEL) == (uint32_t)atoi(value);
}

static bool has_expert(const ty_plan *plan, const char *value)
{
    return ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL) == (uint32_t)atoi(value);
}

static bool has_actors(const ty_plan *plan, const char *value)
{
    return ty_plan_actors(plan) == (uint32_t)atoi(value);
}

static bool has_lag(const ty_plan *plan, const char *value)
{
    return plan->lag == (uint32_t)atoi(value);
}

static bool has_tables(const ty_plan *plan, const char *value)
{
    return strcmp(ty_table_shard_name(plan->table_shard), value) == 0;
}

static bool has_sequence(const ty_plan *plan, const char *value)
{
    return plan->sequence_parallel == (atoi(value) == 1);
}

static bool has_zero(const ty_plan *plan, const char *value)
{
    return plan->zero == (uint32_t)atoi(value);
}

static bool has_virtual_stages(const ty_plan *plan, const char *value)
{
    return ty_plan_virtual_stages(plan) == (uint32_t)atoi(value);
}

static bool has_staleness(const ty_plan *plan, const char *value)
{
    return plan->staleness == (uint32_t)atoi(value);
}

static bool has_priority(const ty_plan *plan, const char *value)
{
    return strcmp(value, "shorter") == 0 || (plan->exchange_order != NULL) == (value[0] == '1');
}

static bool has_servers(const ty_plan *plan, const char *value)
{
    return plan->servers.count == (uint32_t)atoi(value);
}

static bool has_shard(const ty_plan *plan, const char *value)
{
    return plan->servers.count > 0 && strcmp(ty_server_shard_name(plan->servers.shard), value) == 0;
}

static bool has_recompute(const ty_plan *plan, const char *value)
{
    ty_recompute recompute;
    uint32_t blocks;

    cr_assert_eq(ty_recompute_parse(value, &recompute, &blocks, NULL), TY_OK);
    for (uint32_t s = 0; s < plan->stage_count; s++)
        if (plan->stages[s].recompute != recompute || plan->stages[s].recompute_blocks != blocks)
            return false;
    return true;
}

static bool has_devices(const ty_plan *plan, const char *value)
{
    return ty_plan_rank_count(plan) == (uint32_t)atoi(value) &&
           plan->idle_devices + ty_plan_rank_count(plan) == 8;
}

static uint32_t layers_of(const ty_plan_stage *stage)
{
    return stage->layer_count;
}

static bool has_layers(const ty_plan *plan, const char *value)
{
    return has_of_each(plan, layers_of, value);
}

/* For a plan whose embeddings benefit from row compression: whether any use it. */
static bool has_embeddings(const ty_plan *plan, const char *value)
{
    bool has_rows = false;

    for (uint32_t b = 0; b < plan->bucket_count; b++)
        has_rows = has_rows || plan->buckets[b].compression.kind == TY_COMPRESSION_ROWS;
    return has_rows == (strcmp(value, "shorter") == 0);
}

/* Without a compressor the option appears only in the plan's line. */
static bool has_compress(const ty_plan *plan, const char *value)
{
    return (strstr(plan->fix, "compress=shorter") == NULL) == (strcmp(value, "all") == 0) ||
           strstr(plan->fix, "compression=none") != NULL;
}

static bool has_bucket_words(const ty_plan *plan, const char *value)
{
    char words[64];
    bool is_exchanged = false; /* otherwise there is nothing to fit */

    for (uint32_t b = 0; b < plan->bucket_count; b++)
        is_exchanged = is_exchanged || ty_bucket_device_count(plan, &plan->buckets[b]) > 1;
    snprintf(words, sizeof words, "bucket=%s", value);
    return !is_exchanged || strstr(plan->fix, words) != NULL;
}

/* ---- Queries ----------------------------------------------------------------------- */

typedef bool finding(const ty_plan *plan, const char *value);

/* With a separate cluster if eight P100 cannot answer. */
typedef struct ask {
    const char *key, *values; /* values apart by blanks */
    finding *is_found;
    const char *workload, *cluster; /* NULL: PLAIN_... */
} ask;

static const ask asks[] = {
    {"devices", "4", has_devices, NULL, NULL},
    {"pp", "1 2", has_stages, NULL, NULL},
    {"dp", "8 4", has_data_parallel, NULL, NULL},
    {"replicas", "8 4+4 4+2+2", has_replicas, NULL, NULL},
    {"schedule", "gpipe 1f1b interleaved zb-h1 zb-2p pipedream pipedream-2bw", has_schedule, NULL,
     NULL},
    {"micro_batch", "1", has_micro_batch, NULL, NULL},
    {"compression", "none fp16 bf16 int8 one-bit top-k:0.01 powersgd-2", has_compression, NULL,
     NULL},
    {"compression", "rows", has_compression, "gnmt-8 batch=128", NULL},
    {"bucket", "1B 1MB 1GB", has_bucket, "vgg16", NULL},
    {"bucket", "one fitted", has_bucket_words, "vgg16", NULL},
    {"layers", "28 13+15", has_layers, NULL, NULL},
    {"compress", "all shorter", has_compress, NULL, NULL},
    {"embeddings", "dense shorter", has_embeddings, "gnmt-8 batch=128", NULL},
    {"cycle", "5ms", has_cycle, NULL, NULL},
    {"tp", "1 2", has_tensor, NULL, NULL},
    {"cp", "1 2", has_context, NULL, NULL},
    {"ep", "1 2", has_expert, "mixtral-8x7b", "4x dgx-a100"},
    {"tables", "whole", has_tables, NULL, NULL},
    {"tables", "row column table", has_tables, "dlrm-kaggle", NULL},
    {"sp", "0 1", has_sequence, NULL, NULL},
    {"zero", "0 1 2 3", has_zero, NULL, NULL},
    {"vpp", "1 2", has_virtual_stages, NULL, NULL},
    {"staleness", "0 1", has_staleness, NULL, NULL},
    {"priority", "0 1 shorter", has_priority, NULL, NULL},
    {"servers", "0 1", has_servers, NULL, NULL},
    {"actors", "2", has_actors, "corridor-reinforce", "1x p100-server"},
    {"lag", "1", has_lag, "corridor-reinforce", "1x p100-server"},
    {"shard", "size tensor", has_shard, NULL, NULL},
    {"recompute", "none selective operator full full:2 stage", has_recompute, NULL, NULL},
    {"algorithm", "ring tree automatic hierarchical parameter-server block-manager", has_algorithm,
     NULL, NULL},
};

/* Options of all data-parallel systems, and of all pipelines. */
#define DATA_PARALLEL                                                                              \
    " devices=4 pp=1 dp=8 replicas=8 schedule=gpipe schedule=1f1b micro_batch=1 tp=1 cp=1 ep=1 "   \
    "tables=whole sp=0 layers=28 compress=all embeddings=dense "                                   \
    "vpp=1 staleness=0 priority=0 servers=0 "
#define PIPELINES                                                                                  \
    " devices=4 pp=2 dp=4 replicas=4+4 micro_batch=1 tp=1 cp=1 ep=1 sp=0 vpp=1 "                   \
    "tables=whole "                                                                                \
    "staleness=0 priority=0 servers=0 compress=all embeddings=dense "
#define LIBRARY " algorithm=ring algorithm=tree algorithm=automatic "
#define ANY_BUCKET " bucket=1B bucket=1MB bucket=1GB bucket=one "
#define ANY_RECOMPUTE                                                                              \
    " recompute=none recompute=selective recompute=operator recompute=full recompute=full:2 "      \
    "recompute=stage "

/* All of these options that each system has; it refuses the rest. */
static const struct {
    const char *system, *has;
} systems[] = {
    {"baidu-ring", DATA_PARALLEL "bucket=1B zero=0 compression=none recompute=none algorithm=ring"},
    {"parameter-server",
     DATA_PARALLEL "bucket=1B zero=0 compression=none recompute=none staleness=1 "
                   "algorithm=parameter-server "
                   "servers=1 shard=size shard=tensor"},
    {"tensorflow-on-spark", DATA_PARALLEL ANY_BUCKET
     "zero=0 compression=none recompute=none staleness=1 algorithm=parameter-server "
     "servers=1 shard=size shard=tensor"},
    {"bigdl",
     DATA_PARALLEL "bucket=one zero=0 compression=fp16 recompute=none algorithm=block-manager"},
    {"horovod", DATA_PARALLEL ANY_BUCKET LIBRARY ANY_RECOMPUTE
     "zero=0 cycle=5ms compression=none compression=fp16 algorithm=hierarchical"},
    {"ddp", DATA_PARALLEL ANY_BUCKET LIBRARY ANY_RECOMPUTE
     "zero=0 compression=none compression=fp16 compression=bf16 compression=powersgd-2"},
    {"moxing", DATA_PARALLEL ANY_BUCKET LIBRARY
     "pp=2 dp=4 replicas=4+4 layers=13+15 zero=0 compression=none compression=rows "
     "compression=fp16 recompute=none "
     "bucket=fitted compress=shorter embeddings=shorter priority=1 priority=shorter "
     "algorithm=hierarchical"},
    {"gpipe",
     PIPELINES ANY_BUCKET LIBRARY "bucket=fitted layers=13+15 zero=0 schedule=gpipe "
                                  "compression=none recompute=none recompute=full recompute=full:2 "
                                  "recompute=stage"},
    {"pipedream",
     PIPELINES ANY_BUCKET LIBRARY "pp=1 dp=8 replicas=8 replicas=4+2+2 schedule=pipedream zero=0 "
                                  "bucket=fitted layers=28 layers=13+15 "
                                  "compression=none recompute=none"},
    {"pipedream-2bw",
     PIPELINES ANY_BUCKET LIBRARY "bucket=fitted layers=13+15 zero=0 schedule=pipedream-2bw "
                                  "compression=none recompute=none recompute=full "
                                  "recompute=full:2 recompute=stage"},
    {"megatron", PIPELINES ANY_BUCKET LIBRARY
     "bucket=fitted pp=1 dp=8 replicas=8 schedule=1f1b schedule=interleaved tp=2 cp=2 ep=2 sp=1 "
     "zero=0 "
     "zero=1 vpp=2 compression=none recompute=none recompute=selective recompute=full "
     "recompute=full:2 recompute=stage"},
    {"zero", DATA_PARALLEL ANY_BUCKET LIBRARY ANY_RECOMPUTE
     "zero=1 zero=2 zero=3 compression=none compression=fp16 compression=bf16"},
};
enum { SYSTEM_COUNT = sizeof systems / sizeof systems[0] };

static bool is_listed(const char *list, const char *fix)
{
    const size_t length = strlen(fix);

    for (const char *at = strstr(list, fix); at != NULL; at = strstr(at + 1, fix))
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

static ty_status plan_of(const ty_question *question, ty_plan **out, ty_error *error)
{
    ty_question_inputs inputs = {0};
    ty_status status = ty_question_open(question, NULL, &inputs, error);

    cr_assert_eq(status, TY_OK, "%s: %s", question->system, error->message);
    status = ty_question_plan(question, &inputs, NULL, out, error);
    ty_question_inputs_clear(&inputs);
    return status;
}

/* Whether the message begins with the name and reports the found value. */
static bool names_system(const char *message, const char *system)
{
    const size_t length = strlen(system);

    return strncmp(message, system, length) == 0 &&
           (message[length] == ':' || message[length] == ' ') && strlen(message) > length + 10;
}

static void ask_one(const char *system, const char *has, const ask *a, const char *value)
{
    char fix[64];
    ty_plan *plan = NULL;
    ty_error error = {0};
    ty_question question = {
        .workload = a->workload != NULL ? a->workload : PLAIN_WORKLOAD,
        .cluster = a->cluster != NULL ? a->cluster : PLAIN_CLUSTER,
        .system = system,
        .fix = fix,
        .seed = 1,
    };
    ty_status status;

    snprintf(fix, sizeof fix, "%s=%s", a->key, value);
    if (strcmp(system, "megatron") == 0 ? a->cluster == NULL : strcmp(fix, "ep=1") == 0)
        question.workload = PLAIN_WORKLOAD; /* a valid model for megatron's parallel sizes, and
                                             * small enough for any device */
    status = plan_of(&question, &plan, &error);
    if (is_listed(has, fix)) {
        cr_expect_eq(status, TY_OK, "%s %s: %s", system, fix, error.message);
        cr_expect(status != TY_OK || a->is_found(plan, value), "%s %s: %s", system, fix,
                  plan->strategy);
    } else {
        cr_expect_eq(status, TY_EINFEASIBLE, "%s %s: %s", system, fix,
                     status == TY_OK ? plan->strategy : error.message);
        cr_expect(status == TY_OK || names_system(error.message, system), "%s: %s", fix,
                  error.message);
    }
    ty_plan_free(plan);
}

Test(system_questions, every_key_is_in_the_plan_or_refused)
{
    for (size_t s = 0; s < SYSTEM_COUNT; s++)
        for (size_t k = 0; k < sizeof asks / sizeof asks[0]; k++) {
            char *rest = NULL, *values = strdup(asks[k].values);
            for (const char *value = strtok_r(values, " ", &rest); value != NULL;
                 value = strtok_r(NULL, " ", &rest))
                ask_one(systems[s].system, systems[s].has, &asks[k], value);
            free(values);
        }
}

/* Every system and key must have a query here. */
Test(system_questions, none_is_left_out)
{
    const char *key;

    for (uint32_t i = 0; (key = ty_axis_name(i)) != NULL; i++) {
        bool is_asked = false;
        for (size_t k = 0; k < sizeof asks / sizeof asks[0]; k++)
            is_asked = is_asked || strcmp(asks[k].key, key) == 0;
        cr_expect(is_asked, "%s", key);
    }
    for (uint32_t i = 0; ty_system_at(i) != NULL; i++) {
        bool is_asked = false;
        for (size_t s = 0; s < SYSTEM_COUNT; s++)
            is_asked = is_asked || strcmp(systems[s].system, ty_system_at(i)->name) == 0;
        cr_expect(is_asked, "%s", ty_system_at(i)->name);
    }
}

/* For language models too, whose precision is otherwise chosen by the devices. */
Test(system_questions, precision_is_in_the_plan)
{
    static const struct {
        const char *name;
        uint32_t bytes;
    } precisions[] = {{"fp32", 4}, {"bf16", 2}, {"fp16", 2}};

    for (size_t s = 0; s < SYSTEM_COUNT; s++)
        for (size_t p = 0; p < sizeof precisions / sizeof precisions[0]; p++) {
            const ty_question question = {.workload = PLAIN_WORKLOAD,
                                          .cluster = PLAIN_CLUSTER,
                                          .system = systems[s].system,
                                          .precision = precisions[p].name,
                                          .seed = 1};
            ty_plan *plan = NULL;
            ty_error error = {0};
            cr_assert_eq(plan_of(&question, &plan, &error), TY_OK, "%s %s: %s", question.system,
                         question.precision, error.message);
            cr_expect_eq(plan->workload->element_bytes, precisions[p].bytes, "%s %s",
                         question.system, question.precision);
            ty_plan_free(plan);
        }
}

/* If compressors that change convergence are allowed, the search chooses among those that the
 * system has. */
Test(system_questions, lossy_compressors_are_the_systems_own)
{
    for (size_t s = 0; s < SYSTEM_COUNT; s++) {
        const ty_question question = {.workload = PLAIN_WORKLOAD,
                                      .cluster = PLAIN_CLUSTER,
                                      .system = systems[s].system,
                                      .allow_lossy = true,
                                      .seed = 1};
        ty_plan *plan = NULL;
        ty_error error = {0};
        const ty_status status = plan_of(&question, &plan, &error);
        if (strcmp(question.system, "ddp") == 0) {
            cr_expect_eq(status, TY_OK, "%s", error.message);
            cr_expect(status != TY_OK || has_compression(plan, "powersgd-4"), "%s", plan->strategy);
        } else {
            cr_expect_eq(status, TY_EINFEASIBLE, "%s: %s", question.system, error.message);
            cr_expect(names_system(error.message, question.system), "%s", error.message);
        }
        ty_plan_free(plan);
    }
}

/* A framework that lacks a system's feature is named in the message; otherwise its features limit
 * those of the system. */
Test(system_questions, stacks_narrow_systems)
{
    ty_question question = {.workload = PLAIN_WORKLOAD,
                            .cluster = PLAIN_CLUSTER,
                            .system = "gpipe",
                            .stack = "pytorch-ddp",
                            .seed = 1};
    ty_plan *plan = NULL;
    ty_error error = {0};

    cr_expect_eq(plan_of(&question, &plan, &error), TY_EINVAL);
    cr_expect_not_null(strstr(error.message, "stack pytorch-ddp has no pp=8"), "%s", error.message);
    question.system = "megatron";
    cr_assert_eq(plan_of(&question, &plan, &error), TY_OK, "%s", error.message);
    cr_expect_eq(plan->stage_count, 1, "%s", plan->strategy);
    cr_expect_str_eq(plan->stack->name, "pytorch-ddp");
    cr_expect_eq(plan->stack->plans.may.of[TY_AXIS_TP], 1u << TY_KIND_ONE);
    cr_expect(ty_axis_may(&plan->stack->plans.may, TY_AXIS_COMPRESSION, TY_COMPRESSION_POWERSGD),
              "the answer's stack has all of its plans");
    ty_plan_free(plan);
}

/* If the number of devices does not divide the usual batch, the next larger multiple is used. */
Test(system_questions, every_default_answers)
{
    static const struct {
        const char *cluster;
        uint32_t batch;
    } clusters[] = {{"horovod-p100", 512},
                    {"baidu-ring-40", 280},
                    {"parameter-server-50", 300},
                    {"ddp-v100", 256}};
    static const char *const names[] = {"baidu-ring", "parameter-server", "tensorflow-on-spark",
                                        "bigdl",      "horovod",          "ddp",
                                        "moxing",     "pipedream",        "zero"};

    for (size_t c = 0; c < sizeof clusters / sizeof clusters[0]; c++)
        for (size_t s = 0; s < sizeof names / sizeof names[0]; s++) {
            const ty_question question = {.workload = "resnet50",
                                          .cluster = clusters[c].cluster,
                                          .system = names[s],
                                          .seed = 1};
            ty_plan *plan = NULL;
            ty_error error = {0};
            cr_assert_eq(plan_of(&question, &plan, &error), TY_OK, "%s on %s: %s", names[s],
                         clusters[c].cluster, error.message);
            cr_expect_eq(plan->global_batch, clusters[c].batch, "%s on %s: %u", names[s],
                         clusters[c].cluster, plan->global_batch);
            ty_plan_free(plan);
        }
}
