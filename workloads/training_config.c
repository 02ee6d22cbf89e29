/* Configuration files of training programs. Each kind is a row: the keys it is told by, where its
 * layout stands, and how its model becomes one of ours - a zoo entry by its name, Megatron-LM's
 * arguments, or a configuration as Hugging Face writes it, read by the importers of those. Sources:
 * torchtitan/config/job_config.py, NVIDIA/NeMo megatron_gpt_config.yaml, Megatron-LM
 * megatron/training/yaml_arguments.py, AI-Hypercomputer/maxtext configs/base.yml, Accelerate's and
 * DeepSpeed's documentation of their configurations. */
#include "ty_plan.h"
#include "ty_training_config.h"

#include "import.h"
#include "training_pairs.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MOST_COUNT (1u << 30) /* of samples, devices and lanes, and of their products */
#define MOST_NAMED 12         /* keys in a note */
#define COUNT(table) (sizeof(table) / sizeof(table)[0])

typedef struct reading {
    const char *path, *model;
    uint64_t vocabulary;
    bool is_arguments; /* Megatron-LM's: whatever is not there is off */
    training_pairs pairs;
    ty_training_config *out;
    ty_error *error;
} reading;

/* ---- Values ---------------------------------------------------------------------------------- */

static ty_status fail_value(const reading *r, const training_pair *p, const char *expected)
{
    char line[16] = "";

    if (p->line > 0)
        snprintf(line, sizeof line, ":%u", p->line);
    return ty_fail(r->error, TY_EPARSE, "%.160s%s: %.80s: found \"%.60s\", expected %s", r->path,
                   line, p->key, p->value, expected);
}

/* -1, "auto" and what is not there leave it open. */
static ty_status read_count(const reading *r, const training_pair *p, uint32_t *out)
{
    uint64_t value;

    if (p == NULL || strcmp(p->value, "-1") == 0 || strcmp(p->value, "auto") == 0)
        return TY_OK;
    if (ty_parse_uint(p->value, 0, MOST_COUNT, &value, NULL) != TY_OK)
        return fail_value(r, p, "a whole number");
    *out = (uint32_t)value;
    return TY_OK;
}

/* `p` is one of the two, for the message. */
static ty_status set_product(const reading *r, const training_pair *p, uint32_t a, uint32_t b,
                             uint32_t *out)
{
    if ((uint64_t)a * b > MOST_COUNT)
        return fail_value(r, p, "a number whose product with its like is at most 2^30");
    *out = a * b;
    return TY_OK;
}

typedef struct count_key {
    size_t offset;
    const char *keys[5]; /* whole, or the last part of one where they have no dot */
} count_key;

#define FIELD(name) offsetof(ty_training_config, name)

static const training_pair *find(const reading *r, const char *key)
{
    return strchr(key, '.') != NULL ? ty_training_pair_of(&r->pairs, key)
                                    : ty_training_pair_called(&r->pairs, key);
}

static ty_status read_counts(const reading *r, const count_key *table, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t *out = (uint32_t *)(void *)((char *)r->out + table[i].offset);
        for (size_t k = 0; k < COUNT(table[i].keys) && table[i].keys[k] != NULL; k++) {
            const training_pair *p = find(r, table[i].keys[k]);
            ty_status status = read_count(r, p, out);
            if (status != TY_OK)
                return status;
            if (p != NULL)
                break;
        }
    }
    return TY_OK;
}

static bool is_value(const reading *r, const char *key, const char *value)
{
    const training_pair *p = find(r, key);
    return p != NULL && strcasecmp(p->value, value) == 0;
}

static void set_zero(const reading *r, uint32_t zero)
{
    r->out->has_zero = true;
    r->out->zero = zero;
}

static ty_status note(const reading *r, const char *text)
{
    return ty_import_report_add(&r->out->report, text, r->error);
}

/* The notes of an importer, which go. */
static ty_status take_notes(const reading *r, ty_import_report *report, ty_status status)
{
    for (uint32_t i = 0; i < report->note_count && status == TY_OK; i++)
        status = note(r, report->notes[i]);
    ty_import_report_clear(report);
    return status;
}

/* The file itself: its importer reads what is left. */
static ty_status import_file(const reading *r)
{
    const ty_import_options options = {
        .model = r->model, .vocabulary = r->vocabulary, .settings = &r->pairs};
    ty_import_report report = {0};
    const ty_status status =
        ty_workload_import(r->path, &options, &r->out->workload, &report, r->error);

    return take_notes(r, &report, status);
}

/* ---- Models ---------------------------------------------------------------------------------- */

/* A model by name or file, with the file's sequence and batch. */
static ty_status open_model(const reading *r, const char *name, uint32_t sequence)
{
    ty_text line = {0};
    ty_status status;

    ty_text_addf(&line, "%s", name);
    if (sequence > 0)
        ty_text_addf(&line, " sequence=%u", sequence);
    if (r->out->global_batch > 0)
        ty_text_addf(&line, " batch=%u", r->out->global_batch);
    if (r->vocabulary > 0)
        ty_text_addf(&line, " vocabulary=%llu", (unsigned long long)r->vocabulary);
    TY_CHECK(ty_text_check(&line, r->error), status, cleanup);
    status = ty_workload_open(line.data, &r->out->workload, r->error);

cleanup:
    ty_text_clear(&line);
    return status;
}

static ty_status need_model(const reading *r, uint32_t sequence)
{
    if (r->model == NULL)
        return ty_fail(r->error, TY_EINVAL,
                       "%.200s: found %s, which has no model in it, expected one beside it "
                       "(--workload)",
                       r->path, r->out->format);
    return open_model(r, r->model, sequence);
}

/* What other programs call models of the zoo. */
static const struct known_model {
    const char *family, *flavor, *zoo;
    const char *titan; /* as torchtitan writes the flavor; NULL: it has none */
} known_models[] = {
    {"llama2", "7b", "llama-2-7b", NULL},
    {"llama2", "13b", "llama-2-13b", NULL},
    {"llama2", "70b", "llama-2-70b", NULL},
    {"llama3", "8b", "llama-3.1-8b", "8B"},
    {"llama3", "70b", "llama-3.1-70b", "70B"},
    {"llama3", "405b", "llama-3.1-405b", "405B"},
    {"llama3.1", "8b", "llama-3.1-8b", NULL},
    {"llama3.1", "70b", "llama-3.1-70b", NULL},
    {"llama3.1", "405b", "llama-3.1-405b", NULL},
    {"mixtral", "8x7b", "mixtral-8x7b", NULL},
    {"mixtral", "8x22b", "mixtral-8x22b", NULL},
    {"deepseek_v3", "671b", "deepseek-v3", "671B"},
    {"deepseek3", "671b", "deepseek-v3", NULL},
    {"qwen3", "8b", "qwen3-8b", "8B"},
    {"qwen3", "32b", "qwen3-32b", "32B"},
    {"qwen3", "30b-a3b", "qwen3-30b-a3b", "30B-A3B"},
    {"qwen3", "235b-a22b", "qwen3-235b-a22b", "235B-A22B"},
    {"gpt3", "175b", "gpt3-175b", NULL},
    /* and as NeMo's classes are called, before and behind "Config" */
    {"llama31", "8b", "llama-3.1-8b", NULL},
    {"llama31", "70b", "llama-3.1-70b", NULL},
    {"llama31", "405b", "llama-3.1-405b", NULL},
    {"deepseekv3", "", "deepseek-v3", NULL},
    {"gpt", "175b", "gpt3-175b", NULL},
};

static const char *zoo_name(const char *family, const char *flavor)
{
    for (size_t i = 0; i < COUNT(known_models); i++)
        if (strcasecmp(known_models[i].family, family) == 0 &&
            strcasecmp(known_models[i].flavor, flavor) == 0)
            return known_models[i].zoo;
    return NULL;
}

bool ty_training_flavor(const char *zoo, const char **family, const char **flavor)
{
    static const char *const families[] = {"llama3", "deepseek_v3", "qwen3"};

    for (size_t i = 0; i < COUNT(known_models); i++)
        for (size_t f = 0; f < COUNT(families); f++)
            if (strcmp(known_models[i].zoo, zoo) == 0 &&
                strcmp(known_models[i].family, families[f]) == 0) {
                *family = known_models[i].family;
                *flavor = known_models[i].titan;
                return *flavor != NULL;
            }
    return false;
}

/* ---- torchtitan ------------------------------------------------------------------------------ */

/* A pipeline's schedule, micro-batches and stages a position. */
static ty_status read_titan_pipeline(const reading *r)
{
    static const struct {
        const char *word, *schedule;
    } schedules[] = {{"1F1B", "1f1b"}, {"GPipe", "gpipe"}, {"Interleaved1F1B", "interleaved"}};
    const training_pair *word = ty_training_pair_called(&r->pairs, "pipeline_parallel_schedule");
    const training_pair *parts = ty_training_pair_called(&r->pairs, "module_fqns_per_model_part");
    uint32_t lists = 0, depth = 0;

    r->out->schedule =
        "1f1b";              /* its default, as is a micro-batch of one sample: what a device has */
    r->out->micro_batch = 1; /* of a step is cut into those of the pipeline */
    if (word != NULL)
        r->out->schedule = NULL;
    for (size_t i = 0; word != NULL && i < COUNT(schedules); i++)
        if (strcasecmp(word->value, schedules[i].word) == 0)
            r->out->schedule = schedules[i].schedule;
    for (const char *c = parts != NULL ? parts->value : ""; *c != '\0'; c++) {
        depth += *c == '[';
        lists += *c == '[' && depth == 2;
        depth -= *c == ']' && depth > 0;
    }
    if (lists > r->out->pipeline)
        r->out->interleave = lists / r->out->pipeline;
    else if (lists == 0 && r->out->schedule != NULL && r->out->schedule[0] == 'i')
        r->out->interleave = 2; /* of schedules that loop, its default */
    if (r->out->schedule == NULL &&
        ty_import_report_add(&r->out->report,
                             "pipeline_parallel_schedule is none that is planned: left open",
                             r->error) != TY_OK)
        return TY_ENOMEM;
    return read_count(r, ty_training_pair_called(&r->pairs, "pipeline_parallel_microbatch_size"),
                      &r->out->micro_batch);
}

/* By operators, or each so manieth block, which no plan says but of every block. Its defaults are
 * "selective" and each second. */
static ty_status read_titan_recompute(const reading *r, const training_pair *mode)
{
    const bool is_selective = mode == NULL || strcmp(mode->value, "selective") == 0;

    if (!is_selective)
        r->out->recompute = strcmp(mode->value, "full") == 0   ? "full"
                            : strcmp(mode->value, "none") == 0 ? "none"
                                                               : NULL;
    else if (is_value(r, "selective_ac_option", "op"))
        r->out->recompute = "operator";
    else if (is_value(r, "selective_ac_option", "1"))
        r->out->recompute = "full";
    if (r->out->recompute != NULL)
        return TY_OK;
    return note(r, "activation_checkpoint makes again what no plan says (each second block where "
                   "it says no more): left open");
}

static bool is_torchtitan(const training_pairs *p)
{
    return ty_training_pair_of(p, "model.flavor") != NULL &&
           (ty_training_pair_of(p, "training.seq_len") != NULL ||
            ty_training_pair_of(p, "training.steps") != NULL);
}

static ty_status read_torchtitan(const reading *r)
{
    static const count_key keys[] = {
        {FIELD(global_batch), {"training.global_batch_size"}},
        {FIELD(micro_batch), {"training.local_batch_size", "training.batch_size"}},
        {FIELD(tensor), {"parallelism.tensor_parallel_degree", "training.tensor_parallel_degree"}},
        {FIELD(pipeline),
         {"parallelism.pipeline_parallel_degree", "experimental.pipeline_parallel_degree"}},
        {FIELD(context),
         {"parallelism.context_parallel_degree", "experimental.context_parallel_degree"}},
        {FIELD(expert), {"parallelism.expert_parallel_degree"}},
    };
    const training_pair *name = ty_training_pair_of(&r->pairs, "model.name");
    const training_pair *flavor = ty_training_pair_of(&r->pairs, "model.flavor");
    const training_pair *mode = ty_training_pair_of(&r->pairs, "activation_checkpoint.mode");
    const training_pair *converters = ty_training_pair_of(&r->pairs, "model.converters");
    uint32_t replicas = 1, shards = 0, sequence = 2048;
    const char *zoo;
    ty_status status;

    TY_CHECK(read_counts(r, keys, COUNT(keys)), status, cleanup);
    TY_CHECK(read_count(r, ty_training_pair_of(&r->pairs, "training.seq_len"), &sequence), status,
             cleanup);
    TY_CHECK(read_count(r, ty_training_pair_called(&r->pairs, "data_parallel_replicate_degree"),
                        &replicas),
             status, cleanup);
    TY_CHECK(
        read_count(r, ty_training_pair_called(&r->pairs, "data_parallel_shard_degree"), &shards),
        status, cleanup);
    r->out->share = r->out->micro_batch;
    if (shards > 0)
        TY_CHECK(set_product(r, ty_training_pair_called(&r->pairs, "data_parallel_shard_degree"),
                             shards, replicas > 0 ? replicas : 1, &r->out->data),
                 status, cleanup);
    set_zero(r, shards == 1 ? 0 : is_value(r, "fsdp_reshard_after_forward", "never") ? 2 : 3);
    if (r->out->pipeline > 1)
        TY_CHECK(read_titan_pipeline(r), status, cleanup);
    r->out->has_sequence = r->out->is_along_sequence = r->out->tensor > 1;
    if (replicas > 1 && shards != 1)
        TY_CHECK(note(r, "shards in groups (HSDP) are planned as shards over all replicas"), status,
                 cleanup);
    r->out->precision =
        is_value(r, "mixed_precision_param", "float32") ? "fp32" : "bf16"; /* its default */
    if (converters != NULL &&
        (strstr(converters->value, "float8") != NULL || strstr(converters->value, ".mx") != NULL))
        r->out->precision = "fp8";
    if (is_value(r, "float8.enable_float8_linear", "true")) /* up to 0.0.2 */
        r->out->precision = "fp8";
    TY_CHECK(read_titan_recompute(r, mode), status, cleanup);
    if (r->model != NULL) {
        status = open_model(r, r->model, sequence);
        goto cleanup;
    }
    zoo = name != NULL ? zoo_name(name->value, flavor->value) : NULL;
    if (zoo == NULL) {
        status = fail_value(r, flavor,
                            "a flavor that the zoo has, or a model beside it "
                            "(--workload)");
        goto cleanup;
    }
    status = open_model(r, zoo, sequence);

cleanup:
    return status;
}

/* ---- Megatron-LM, NeMo, Megatron-Bridge ------------------------------------------------------ */

/* "fp8: hybrid" or true, "fp4: e2m1", "mixed_precision: bf16_with_fp8_current_scaling_mixed" */
static void set_narrow(const reading *r, const training_pair *p)
{
    const char *key, *dot;

    if (p == NULL || strcasecmp(p->value, "false") == 0)
        return;
    dot = strrchr(p->key, '.');
    key = dot != NULL ? dot + 1 : p->key;
    if (strncmp(key, "fp4", 3) == 0 || strstr(p->value, "fp4") != NULL)
        r->out->precision = "fp4";
    else if (strncmp(key, "fp8", 3) == 0 || strstr(p->value, "fp8") != NULL)
        r->out->precision = "fp8";
    else if (strncmp(p->value, "bf16", 4) == 0)
        r->out->precision = "bf16";
    else if (strncmp(p->value, "fp16", 4) == 0)
        r->out->precision = "fp16";
}

/* A recipe of NeMo 2 has a class in place of sizes. */
static bool is_megatron(const training_pairs *p)
{
    return (ty_training_pair_called(p, "num_layers") != NULL &&
            ty_training_pair_called(p, "hidden_size") != NULL &&
            ty_training_pair_called(p, "num_attention_heads") != NULL) ||
           (ty_training_pair_called(p, "tensor_model_parallel_size") != NULL &&
            ty_training_pair_called(p, "micro_batch_size") != NULL);
}

/* Keys that Megatron's arguments have under another name, or as a flag. */
static void put_argument(ty_text *text, const char *key, const char *value)
{
    static const struct {
        const char *key, *name;
    } renamed[] = {{"encoder_seq_length", "seq-length"},
                   {"num_moe_experts", "num-experts"},
                   {"lr", "lr"},
                   {"init_method_std", NULL}};
    bool is_true = strcasecmp(value, "true") == 0, is_false = strcasecmp(value, "false") == 0;

    for (size_t i = 0; i < COUNT(renamed); i++)
        if (strcmp(renamed[i].key, key) == 0) {
            if (renamed[i].name != NULL)
                ty_text_addf(text, "--%s %s\n", renamed[i].name, value);
            return;
        }
    if ((strcmp(key, "bias") == 0 || strcmp(key, "add_bias_linear") == 0) && is_false)
        ty_text_add(text, "--disable-bias-linear\n");
    else if (strcmp(key, "share_embeddings_and_output_weights") == 0 && is_false)
        ty_text_add(text, "--untie-embeddings-and-output-weights\n");
    else if ((strcmp(key, "activation") == 0 || strcmp(key, "activation_func") == 0) &&
             strstr(value, "swiglu") != NULL)
        ty_text_add(text, "--swiglu\n");
    else if (strcmp(key, "gated_linear_unit") == 0 && is_true)
        ty_text_add(text, "--swiglu\n");
    else if (strcmp(key, "normalization") == 0)
        ty_text_addf(text, "--normalization %s\n",
                     strcasecmp(value, "rmsnorm") == 0 ? "RMSNorm" : "LayerNorm");
    else if (strcmp(key, "num_query_groups") == 0)
        ty_text_addf(text, "--group-query-attention --num-query-groups %s\n", value);
    else if (is_true || (!is_false && value[0] != '\0')) {
        ty_text_add(text, "--");
        for (; *key != '\0'; key++)
            ty_text_append(text, *key == '_' ? "-" : key, 1);
        ty_text_addf(text, is_true ? "\n" : " '%s'\n", value);
    }
}

/* Only what sizes, batch and optimizer depend on: the importer would name the others as not read.
 */
static bool is_argument(const char *key)
{
    static const char *const keys[] = {"num_layers",
                                       "hidden_size",
                                       "ffn_hidden_size",
                                       "num_attention_heads",
                                       "kv_channels",
                                       "num_query_groups",
                                       "encoder_seq_length",
                                       "seq_length",
                                       "max_position_embeddings",
                                       "position_embedding_type",
                                       "vocab_size",
                                       "make_vocab_size_divisible_by",
                                       "tensor_model_parallel_size",
                                       "tokenizer_type",
                                       "swiglu",
                                       "activation",
                                       "activation_func",
                                       "gated_linear_unit",
                                       "normalization",
                                       "bias",
                                       "add_bias_linear",
                                       "add_qkv_bias",
                                       "qk_layernorm",
                                       "share_embeddings_and_output_weights",
                                       "untie_embeddings_and_output_weights",
                                       "num_moe_experts",
                                       "num_experts",
                                       "moe_router_topk",
                                       "moe_ffn_hidden_size",
                                       "moe_shared_expert_intermediate_size",
                                       "multi_latent_attention",
                                       "q_lora_rank",
                                       "kv_lora_rank",
                                       "qk_head_dim",
                                       "qk_pos_emb_head_dim",
                                       "v_head_dim",
                                       "global_batch_size",
                                       "lr",
                                       "weight_decay",
                                       "adam_beta1",
                                       "adam_beta2",
                                       "adam_eps"};

    for (size_t i = 0; i < COUNT(keys); i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

/* "nemo.collections.llm.gpt.model.llama.Llama31Config70B", "...Qwen3Config30B_A3B" */
static ty_status open_class(const reading *r, uint32_t sequence)
{
    const training_pair *class = ty_training_pair_of(&r->pairs, "model.config._target_");
    const char *dot = class != NULL ? strrchr(class->value, '.') : NULL;
    const char *zoo, *middle;
    char name[64];
    size_t family;

    if (r->model != NULL || class == NULL)
        return need_model(r, sequence);
    snprintf(name, sizeof name, "%s", dot != NULL ? dot + 1 : class->value);
    for (char *at = name; *at != '\0'; at++)
        if (*at == '_')
            *at = '-';
    middle = strstr(name, "Config");
    family = middle != NULL ? (size_t)(middle - name) : strlen(name);
    name[family] = '\0';
    zoo = middle != NULL ? zoo_name(name, middle + strlen("Config")) : NULL;
    if (zoo == NULL)
        return fail_value(r, class,
                          "a class of a network of the zoo, or a model beside the file "
                          "(--workload)");
    return open_model(r, zoo, sequence);
}

static ty_status import_arguments(const reading *r, const ty_text *text)
{
    const ty_import_options options = {.vocabulary = r->vocabulary};
    ty_import_report report = {0};
    ty_status status = ty_text_check(text, r->error);

    if (status == TY_OK)
        status = ty_import_bytes(r->path, text->data, text->length, &options, &r->out->workload,
                                 &report, r->error);
    return take_notes(r, &report, status);
}

/* Blocks made again at a time, and stages a position: three ways to say these. */
static ty_status read_megatron_stages(const reading *r)
{
    ty_training_config *c = r->out;
    const training_pair *layout =
        ty_training_pair_called(&r->pairs, "pipeline_model_parallel_layout");
    const uint32_t positions = c->pipeline > 0 ? c->pipeline : 1;
    uint32_t layers = 0, each = 0, stages = 1;
    ty_status status;

    TY_CHECK(read_count(r, ty_training_pair_called(&r->pairs, "num_layers"), &layers), status,
             done);
    TY_CHECK(read_count(r,
                        ty_training_pair_called(&r->pairs, "num_layers_per_virtual_pipeline_stage"),
                        &each),
             status, done);
    TY_CHECK(read_count(r,
                        ty_training_pair_called(&r->pairs, "num_virtual_stages_per_pipeline_rank"),
                        &c->interleave),
             status, done);
    if (c->recompute != NULL && strcmp(c->recompute, "full") == 0 &&
        !is_value(r, "recompute_method", "block"))
        TY_CHECK(
            read_count(r, ty_training_pair_called(&r->pairs, "recompute_num_layers"), &c->segment),
            status, done);
    if (c->recompute != NULL && strcmp(c->recompute, "full") == 0 &&
        is_value(r, "recompute_method", "block"))
        TY_CHECK(note(r, "recompute_method block makes the first recompute_num_layers of a stage "
                         "again, the plan all of them"),
                 status, done);
    if (each > 0)
        c->interleave = layers / positions / each;
    for (const char *at = layout != NULL ? layout->value : ""; *at != '\0'; at++)
        stages += *at == '|';
    if (stages > positions)
        c->interleave = stages / positions;
done:
    return status;
}

/* The first of two names of a key. */
static const training_pair *find_either(const reading *r, const char *key, const char *other)
{
    const training_pair *p = find(r, key);
    return p != NULL ? p : find(r, other);
}

static bool is_true(const training_pair *p)
{
    return p != NULL && strcasecmp(p->value, "true") == 0;
}

static void add_switch(const reading *r, const char *word)
{
    ty_text_addf(&r->out->switches, "%s%s", r->out->switches.length > 0 ? " " : "", word);
}

/* Communication that overlaps computation. A key that changes nothing in this layout is not read,
 * so that the notes list it: Megatron-LM's arguments.py has which flag needs which. */
static ty_status read_overlap(const reading *r)
{
    ty_training_config *c = r->out;
    const training_pair *reduce = find_either(r, "overlap_grad_reduce", "overlap_grad_sync");
    const bool can_overlap_tensor = c->tensor > 1 && (c->is_along_sequence || !c->has_sequence);
    uint32_t elements = 0;
    ty_status status = TY_OK;

    c->has_overlap = r->is_arguments || reduce != NULL;
    c->is_overlapped = is_true(reduce);
    if (c->is_overlapped)
        TY_CHECK(read_count(r, find(r, "ddp_bucket_size"), &elements), status, done);
    c->bucket_elements = elements;
    if (c->is_overlapped && c->zero == 1) {
        const training_pair *gather = find_either(r, "overlap_param_gather", "overlap_param_sync");
        if (!is_true(gather) && (r->is_arguments || gather != NULL))
            add_switch(r, "overlap_param_gather=off");
    }
    if (can_overlap_tensor && is_true(find_either(r, "tp_comm_overlap", "ub_tp_comm_overlap")))
        add_switch(r, "tp_comm_overlap=on");
    if (is_value(r, "grad_reduce_in_bf16", "true") || is_value(r, "grad_reduce_in_fp32", "false"))
        add_switch(r, "grad_reduce_in_bf16=on");
    status = ty_text_check(&c->switches, r->error);
done:
    return status;
}

/* A command line says all there is. */
static void settle_arguments(const reading *r)
{
    ty_training_config *c = r->out;
    uint32_t *degrees[] = {&c->tensor, &c->pipeline, &c->context, &c->expert};

    for (size_t i = 0; i < COUNT(degrees); i++)
        *degrees[i] = *degrees[i] > 0 ? *degrees[i] : 1;
    c->has_sequence = true;
    c->has_zero = true;
    c->recompute = c->recompute != NULL ? c->recompute : "none";
    c->precision = c->precision != NULL ? c->precision : "fp32";
}

static ty_status read_megatron(const reading *r)
{
    static const count_key keys[] = {
        {FIELD(global_batch), {"global_batch_size"}},
        {FIELD(micro_batch), {"micro_batch_size"}},
        {FIELD(tensor), {"tensor_model_parallel_size"}},
        {FIELD(pipeline), {"pipeline_model_parallel_size"}},
        {FIELD(context), {"context_parallel_size"}},
        {FIELD(expert), {"expert_model_parallel_size"}},
        {FIELD(interleave), {"virtual_pipeline_model_parallel_size"}},
    };
    const training_pair *granularity = ty_training_pair_called(&r->pairs, "recompute_granularity");
    const training_pair *modules = ty_training_pair_called(&r->pairs, "recompute_modules");
    const training_pair *precision = ty_training_pair_of(&r->pairs, "trainer.precision");
    const training_pair *plugin = ty_training_pair_of(&r->pairs, "trainer.plugins.precision");
    static const char *const narrow[] = {"fp8", "fp8_format", "fp4", "fp4_format"};
    static const char *const tokenizers[] = {"model.tokenizer.type", "tokenizer.type"};
    uint32_t nodes = 0, per_node = 0, sequence = 0;
    ty_text text = {0};
    ty_status status;

    precision = plugin != NULL ? plugin : precision;
    TY_CHECK(read_counts(r, keys, COUNT(keys)), status, cleanup);
    if (r->out->global_batch == 0) /* its default: one micro-batch a replica */
        r->out->share = r->out->micro_batch;
    if (granularity == NULL)
        granularity = ty_training_pair_called(&r->pairs, "activations_checkpoint_granularity");
    if (granularity == NULL && is_value(r, "recompute_activations", "true"))
        r->out->recompute = "selective";
    if (granularity != NULL)
        r->out->recompute = strcmp(granularity->value, "full") == 0 ? "full"
                            : modules != NULL && strstr(modules->value, "moe_act") != NULL &&
                                    strstr(modules->value, "core_attn") == NULL
                                ? "elementwise"
                                : "selective";
    if (is_value(r, "bf16", "true") ||
        (precision != NULL && strstr(precision->value, "bf16") != NULL))
        r->out->precision = "bf16";
    else if (is_value(r, "fp16", "true"))
        r->out->precision = "fp16";
    set_narrow(r, ty_training_pair_called(&r->pairs, "mixed_precision"));
    for (size_t i = 0; i < COUNT(narrow); i++)
        set_narrow(r, ty_training_pair_called(&r->pairs, narrow[i]));
    if (is_value(r, "use_distributed_optimizer", "true") ||
        is_value(r, "optim.name", "distributed_fused_adam") ||
        is_value(r, "model.optim.name", "distributed_fused_adam"))
        set_zero(r, 1);
    TY_CHECK(read_count(r, ty_training_pair_of(&r->pairs, "trainer.num_nodes"), &nodes), status,
             cleanup);
    TY_CHECK(read_count(r, ty_training_pair_of(&r->pairs, "trainer.devices"), &per_node), status,
             cleanup);
    if (nodes > 0 && per_node > 0)
        TY_CHECK(set_product(r, ty_training_pair_of(&r->pairs, "trainer.devices"), nodes, per_node,
                             &r->out->devices),
                 status, cleanup);
    TY_CHECK(read_megatron_stages(r), status, cleanup);
    if (find(r, "sequence_parallel") != NULL) {
        r->out->is_along_sequence = r->out->tensor > 1 && is_value(r, "sequence_parallel", "true");
        r->out->has_sequence = true;
    }
    if (r->is_arguments)
        settle_arguments(r);
    TY_CHECK(read_overlap(r), status, cleanup);
    if (r->out->pipeline > 1) /* stages are interleaved where that is said */
        r->out->schedule = r->out->interleave > 1 ? "interleaved" : "1f1b";
    if (!r->is_arguments && ty_training_pair_called(&r->pairs, "num_layers") == NULL) {
        TY_CHECK(read_count(r, ty_training_pair_called(&r->pairs, "seq_length"), &sequence), status,
                 cleanup);
        status = open_class(r, sequence);
        goto cleanup;
    }
    if (r->model != NULL) {
        status = open_model(r, r->model, 0);
        goto cleanup;
    }
    if (r->is_arguments) {
        status = import_file(r);
        goto cleanup;
    }
    for (uint32_t i = 0; i < r->pairs.count; i++) {
        const char *dot = strrchr(r->pairs.pairs[i].key, '.');
        const char *key = dot != NULL ? dot + 1 : r->pairs.pairs[i].key;
        if (!is_argument(key) || r->pairs.pairs[i].value[0] == '\0')
            continue;
        r->pairs.pairs[i].is_read = true;
        put_argument(&text, key, r->pairs.pairs[i].value);
    }
    for (size_t i = 0; i < COUNT(tokenizers); i++) /* NeMo's */
        if (ty_training_pair_of(&r->pairs, tokenizers[i]) != NULL)
            put_argument(&text, "tokenizer_type",
                         ty_training_pair_of(&r->pairs, tokenizers[i])->value);
    status = import_arguments(r, &text);

cleanup:
    ty_text_clear(&text);
    return status;
}

/* ---- MaxText --------------------------------------------------------------------------------- */

static bool is_maxtext(const training_pairs *p)
{
    return ty_training_pair_of(p, "base_emb_dim") != NULL ||
           (ty_training_pair_of(p, "model_name") != NULL &&
            ty_training_pair_of(p, "per_device_batch_size") != NULL);
}

static ty_status multiply(const reading *r, const char *inside, const char *across, uint32_t *out)
{
    uint32_t a = 0, b = 0;
    ty_status status;

    TY_CHECK(read_count(r, ty_training_pair_of(&r->pairs, inside), &a), status, cleanup);
    TY_CHECK(read_count(r, ty_training_pair_of(&r->pairs, across), &b), status, cleanup);
    if (a > 0 || b > 0)
        status = set_product(r, ty_training_pair_of(&r->pairs, across), a > 0 ? a : 1,
                             b > 0 ? b : 1, out);

cleanup:
    return status;
}

/* Its sizes as those of a Llama, which "decoder_block" llama2, mistral and mixtral are. */
static ty_status read_maxtext_sizes(const reading *r, const ty_import_options *options)
{
    static const struct {
        const char *key, *name;
    } sizes[] = {{"base_emb_dim", "hidden_size"},
                 {"base_num_query_heads", "num_attention_heads"},
                 {"base_num_kv_heads", "num_key_value_heads"},
                 {"base_mlp_dim", "intermediate_size"},
                 {"base_num_decoder_layers", "num_hidden_layers"},
                 {"head_dim", "head_dim"},
                 {"vocab_size", "vocab_size"},
                 {"num_experts", "num_local_experts"},
                 {"num_experts_per_tok", "num_experts_per_tok"}};
    const training_pair *block = ty_training_pair_of(&r->pairs, "decoder_block");
    uint32_t experts = 1;
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);
    ty_status status;

    TY_CHECK(read_count(r, ty_training_pair_of(&r->pairs, "num_experts"), &experts), status,
             cleanup);
    if (block != NULL && strcmp(block->value, "llama2") != 0 &&
        strcmp(block->value, "mistral") != 0 && strcmp(block->value, "mixtral") != 0) {
        status = fail_value(r, block,
                            "llama2, mistral or mixtral, or a model beside the file "
                            "(--workload)");
        goto cleanup;
    }
    ty_json_open(&w, NULL, '{');
    ty_json_put_string(&w, "model_type", experts > 1 ? "mixtral" : "llama");
    ty_json_put_bool(&w, "tie_word_embeddings", is_value(r, "logits_via_embedding", "true"));
    for (size_t i = 0; i < COUNT(sizes); i++) {
        uint32_t value = 0;
        TY_CHECK(read_count(r, ty_training_pair_of(&r->pairs, sizes[i].key), &value), status,
                 cleanup);
        if (value > 0 && (experts > 1 || i < 7))
            ty_json_put_uint(&w, sizes[i].name, value);
    }
    ty_json_close(&w, '}');
    TY_CHECK(ty_text_check(&text, r->error), status, cleanup);
    status = ty_import_bytes(r->path, text.data, text.length, options, &r->out->workload, NULL,
                             r->error);

cleanup:
    ty_text_clear(&text);
    return status;
}

/* A device's samples, which may be a part of one, are those of a pass: the lanes of a replica see
 * them together. */
static ty_status read_maxtext_batch(const reading *r)
{
    const training_pair *p = ty_training_pair_of(&r->pairs, "per_device_batch_size");
    ty_training_config *c = r->out;
    char *end = NULL;
    double share, micro_batch;

    if (p == NULL)
        return TY_OK;
    share = strtod(p->value, &end);
    if (end == p->value || *end != '\0' || !(share > 0 && share <= MOST_COUNT))
        return fail_value(r, p, "a number > 0");
    c->device_share = share * fmax(c->accumulation, 1);
    micro_batch = share * fmax(c->tensor, 1) * fmax(c->context, 1);
    if (c->pipeline == 1 && micro_batch <= MOST_COUNT && micro_batch == floor(micro_batch))
        c->micro_batch = (uint32_t)micro_batch;
    return TY_OK;
}

/* Axes of its mesh that plans have no lanes for. */
static ty_status note_maxtext_axes(const reading *r)
{
    static const char *const axes[] = {
        "ici_sequence_parallelism",         "ici_fsdp_transpose_parallelism",
        "ici_tensor_transpose_parallelism", "ici_tensor_sequence_parallelism",
        "ici_autoregressive_parallelism",   "ici_context_autoregressive_parallelism"};
    char text[96];

    for (size_t i = 0; i < COUNT(axes); i++) {
        const training_pair *p = ty_training_pair_of(&r->pairs, axes[i]);
        if (p == NULL || strcmp(p->value, "1") == 0)
            continue;
        snprintf(text, sizeof text, "%s is not planned", axes[i]);
        if (note(r, text) != TY_OK)
            return TY_ENOMEM;
    }
    return TY_OK;
}

static ty_status read_maxtext(const reading *r)
{
    const training_pair *name = ty_training_pair_of(&r->pairs, "model_name"), *policy;
    const training_pair *quantization = ty_training_pair_of(&r->pairs, "quantization");
    char family[64] = "", *dash;
    uint32_t sequence = 2048, shards = 0;
    ty_import_options options = {.vocabulary = r->vocabulary};
    const char *zoo = NULL;
    ty_status status;

    r->out->tensor = r->out->pipeline = r->out->context = r->out->expert = 1; /* of base.yml */
    TY_CHECK(multiply(r, "ici_tensor_parallelism", "dcn_tensor_parallelism", &r->out->tensor),
             status, cleanup);
    TY_CHECK(multiply(r, "ici_pipeline_parallelism", "dcn_pipeline_parallelism", &r->out->pipeline),
             status, cleanup);
    TY_CHECK(multiply(r, "ici_context_parallelism", "dcn_context_parallelism", &r->out->context),
             status, cleanup);
    TY_CHECK(multiply(r, "ici_expert_parallelism", "dcn_expert_parallelism", &r->out->expert),
             status, cleanup);
    TY_CHECK(multiply(r, "ici_fsdp_parallelism", "dcn_fsdp_parallelism", &shards), status, cleanup);
    set_zero(r, shards == 1 ? 0 : 3);
    TY_CHECK(read_count(r, ty_training_pair_of(&r->pairs, "max_target_length"), &sequence), status,
             cleanup);
    TY_CHECK(read_count(r, ty_training_pair_of(&r->pairs, "gradient_accumulation_steps"),
                        &r->out->accumulation),
             status, cleanup);
    TY_CHECK(read_maxtext_batch(r), status, cleanup);
    TY_CHECK(note_maxtext_axes(r), status, cleanup);
    r->out->precision = is_value(r, "dtype", "float32") ? "fp32" : "bf16";
    if (quantization != NULL && strstr(quantization->value, "fp8") != NULL)
        r->out->precision = "fp8";
    else if (quantization != NULL)
        TY_CHECK(note(r, "quantization other than to fp8 is not planned"), status, cleanup);
    policy = ty_training_pair_of(&r->pairs, "remat_policy");
    if (policy != NULL)
        r->out->recompute = strcmp(policy->value, "full") == 0      ? "full"
                            : strcmp(policy->value, "minimal") == 0 ? "elementwise"
                                                                    : NULL;
    options.sequence = sequence;
    if (r->model != NULL) {
        status = open_model(r, r->model, sequence);
        goto cleanup;
    }
    if (name != NULL && strcmp(name->value, "default") != 0) {
        snprintf(family, sizeof family, "%.60s", name->value); /* "llama3.1-70b" */
        if ((dash = strchr(family, '-')) != NULL) {
            *dash = '\0';
            zoo = zoo_name(family, dash + 1);
        }
        status = zoo != NULL ? open_model(r, zoo, sequence)
                             : fail_value(r, name,
                                          "a model that the zoo has, or one beside the "
                                          "file (--workload)");
        goto cleanup;
    }
    status = read_maxtext_sizes(r, &options);

cleanup:
    return status;
}

/* ---- Accelerate, DeepSpeed ------------------------------------------------------------------- */

static bool is_accelerate(const training_pairs *p)
{
    return ty_training_pair_of(p, "distributed_type") != NULL ||
           ty_training_pair_of(p, "compute_environment") != NULL;
}

/* What leaves the devices stays on them in a plan. */
static ty_status note_offloading(const reading *r)
{
    static const char *const keys[] = {"fsdp_offload_params",
                                       "offload_optimizer_device",
                                       "offload_param_device",
                                       "zero_optimization.offload_optimizer.device",
                                       "zero_optimization.offload_param.device",
                                       "zero_optimization.cpu_offload"};
    char text[96];

    for (size_t i = 0; i < COUNT(keys); i++) {
        const training_pair *p = find(r, keys[i]);
        if (p == NULL || strcasecmp(p->value, "false") == 0 || strcasecmp(p->value, "none") == 0)
            continue;
        snprintf(text, sizeof text, "%s: offloading is not planned", keys[i]);
        if (note(r, text) != TY_OK)
            return TY_ENOMEM;
    }
    return TY_OK;
}

/* DeepSpeed's keys of activation_checkpointing say how, not whether. */
static ty_status note_open_recomputing(const reading *r)
{
    return note(r, "recomputing is said by the training script, not in the file: it is left open "
                   "(--fix recompute=none or full)");
}

static ty_status read_accelerate(const reading *r)
{
    static const count_key keys[] = {
        {FIELD(devices), {"num_processes"}},
        {FIELD(accumulation), {"gradient_accumulation_steps"}},
    };
    const training_pair *strategy = ty_training_pair_called(&r->pairs, "fsdp_sharding_strategy");
    const training_pair *stage = ty_training_pair_called(&r->pairs, "zero_stage");
    const training_pair *precision = ty_training_pair_of(&r->pairs, "mixed_precision");
    uint32_t zero = 0;
    ty_status status;

    TY_CHECK(read_counts(r, keys, COUNT(keys)), status, cleanup);
    r->out->tensor = r->out->pipeline = r->out->context = 1;
    r->out->has_fixed_ranks = !is_value(r, "distributed_type", "MEGATRON_LM");
    TY_CHECK(
        read_count(r, ty_training_pair_called(&r->pairs, "megatron_lm_tp_degree"), &r->out->tensor),
        status, cleanup);
    TY_CHECK(read_count(r, ty_training_pair_called(&r->pairs, "megatron_lm_pp_degree"),
                        &r->out->pipeline),
             status, cleanup);
    if (is_value(r, "distributed_type", "FSDP"))
        set_zero(
            r,
            strategy == NULL || strstr(strategy->value, "FULL") != NULL ||
                    strstr(strategy->value, "HYBRID") != NULL || strcmp(strategy->value, "1") == 0
                ? 3
                : (strstr(strategy->value, "NO") != NULL || strcmp(strategy->value, "3") == 0 ? 0
                                                                                              : 2));
    else if (is_value(r, "distributed_type", "MULTI_GPU") ||
             is_value(r, "distributed_type", "MULTI_CPU") || is_value(r, "distributed_type", "NO"))
        set_zero(r, 0);
    if (strategy == NULL && is_value(r, "fsdp_reshard_after_forward", "false")) /* FSDP2 */
        set_zero(r, 2);
    r->out->stack = is_value(r, "distributed_type", "FSDP")          ? "pytorch-fsdp"
                    : is_value(r, "distributed_type", "DEEPSPEED")   ? "deepspeed"
                    : is_value(r, "distributed_type", "MEGATRON_LM") ? "megatron"
                                                                     : "pytorch-ddp";
    if (stage != NULL) {
        TY_CHECK(read_count(r, stage, &zero), status, cleanup);
        if (zero > 3) {
            status = fail_value(r, stage, "0 to 3");
            goto cleanup;
        }
        set_zero(r, zero);
    }
    if (precision != NULL)
        r->out->precision = strcmp(precision->value, "no") == 0     ? "fp32"
                            : strcmp(precision->value, "fp16") == 0 ? "fp16"
                            : strcmp(precision->value, "fp8") == 0  ? "fp8"
                                                                    : "bf16";
    if (is_value(r, "fsdp_activation_checkpointing", "true"))
        r->out->recompute = "full";
    else if (is_value(r, "megatron_lm_recompute_activations", "true"))
        r->out->recompute = "selective";
    else if (!is_value(r, "distributed_type", "DEEPSPEED"))
        r->out->recompute = "none";
    else
        TY_CHECK(note_open_recomputing(r), status, cleanup);
    TY_CHECK(note_offloading(r), status, cleanup);
    status = need_model(r, 0);

cleanup:
    return status;
}

static bool is_deepspeed(const training_pairs *p)
{
    return ty_training_pair_of(p, "train_micro_batch_size_per_gpu") != NULL ||
           ty_training_pair_of(p, "train_batch_size") != NULL ||
           ty_training_pair_of(p, "zero_optimization.stage") != NULL;
}

/* Its optimizer and batch are the importer's to read. */
static ty_status read_deepspeed(const reading *r)
{
    static const count_key keys[] = {
        {FIELD(global_batch), {"train_batch_size"}},
        {FIELD(micro_batch), {"train_micro_batch_size_per_gpu"}},
        {FIELD(accumulation), {"gradient_accumulation_steps"}},
    };
    const training_pair *type = ty_training_pair_of(&r->pairs, "optimizer.type");
    uint32_t zero = 0;
    ty_status status;

    TY_CHECK(read_counts(r, keys, COUNT(keys)), status, cleanup);
    r->out->tensor = r->out->pipeline = r->out->context = 1;
    r->out->has_fixed_ranks = true;
    TY_CHECK(read_count(r, ty_training_pair_of(&r->pairs, "tensor_parallel.autotp_size"),
                        &r->out->tensor),
             status, cleanup);
    r->out->tensor = r->out->tensor > 0 ? r->out->tensor : 1; /* 0: off */
    TY_CHECK(read_count(r, ty_training_pair_of(&r->pairs, "zero_optimization.stage"), &zero),
             status, cleanup);
    if (zero > 3) {
        status = fail_value(r, ty_training_pair_of(&r->pairs, "zero_optimization.stage"), "0 to 3");
        goto cleanup;
    }
    set_zero(r, zero);
    if (is_value(r, "communication_data_type", "fp16"))
        r->out->compression = "fp16";
    else if (is_value(r, "communication_data_type", "bfp16") ||
             is_value(r, "communication_data_type", "bf16"))
        r->out->compression = "bf16";
    else if (type != NULL && strncasecmp(type->value, "onebit", 6) == 0)
        r->out->compression = "one-bit";
    if (r->out->global_batch == 0) /* its default: no accumulation */
        r->out->share = (double)r->out->micro_batch * fmax(r->out->accumulation, 1);
    if (r->out->micro_batch > 0 && r->out->accumulation > 0 &&
        r->out->global_batch % ((uint64_t)r->out->micro_batch * r->out->accumulation) == 0)
        r->out->data = r->out->global_batch / r->out->micro_batch / r->out->accumulation;
    if (is_value(r, "fp16.enabled", "true"))
        r->out->precision = "fp16";
    if (is_value(r, "bf16.enabled", "true"))
        r->out->precision = "bf16";
    for (uint32_t i = 0; i < r->pairs.count; i++) /* noted where they are not read */
        if (strncmp(r->pairs.pairs[i].key, "optimizer.", strlen("optimizer.")) == 0)
            r->pairs.pairs[i].is_read = true;
    if (r->model == NULL) {
        status = need_model(r, 0);
        goto cleanup;
    }
    TY_CHECK(import_file(r), status, cleanup);
    TY_CHECK(note_open_recomputing(r), status, cleanup);
    status = note_offloading(r);

cleanup:
    return status;
}

/* ---- All ------------------------------------------------------------------------------------- */

static const struct kind {
    const char *format, *stack;
    bool (*probe)(const training_pairs *pairs);
    ty_status (*read)(const reading *r);
} kinds[] = {
    {"torchtitan TOML", "torchtitan", is_torchtitan, read_torchtitan},
    {"MaxText YAML", "maxtext", is_maxtext, read_maxtext},
    {"NeMo, Megatron-Bridge or Megatron-LM YAML", "megatron", is_megatron, read_megatron},
    {"an Accelerate configuration", "pytorch-ddp", is_accelerate, read_accelerate},
    {"a DeepSpeed configuration", "deepspeed", is_deepspeed, read_deepspeed},
};

/* These programs count what one of the lanes that share experts has. */
static ty_status count_expert_lanes(const reading *r, ty_training_config *c)
{
    if (c->expert <= 1)
        return TY_OK;
    if ((uint64_t)c->micro_batch * c->expert > MOST_COUNT)
        return ty_fail(r->error, TY_EPARSE,
                       "%.160s: found a micro-batch of %u on each of %u expert lanes, expected "
                       "at most 2^30 samples",
                       r->path, c->micro_batch, c->expert);
    c->micro_batch *= c->expert;
    c->share *= c->expert;
    c->data = c->data % c->expert == 0 ? c->data / c->expert : 0;
    return TY_OK;
}

/* 0: they do not divide so. */
static uint32_t replicas_among(const ty_training_config *c, uint32_t devices)
{
    const double lanes =
        fmax(c->tensor, 1) * fmax(c->pipeline, 1) * fmax(c->context, 1) * fmax(c->expert, 1);

    if (c->data > 0)
        return c->data;
    return lanes <= devices && devices % (uint32_t)lanes == 0 ? devices / (uint32_t)lanes : 0;
}

static ty_status set_batch(ty_training_config *c, uint32_t devices, ty_error *error)
{
    const uint32_t replicas = replicas_among(c, devices);
    const double batch = c->device_share > 0 ? c->device_share * devices : c->share * replicas;

    if (c->global_batch == 0 && batch > MOST_COUNT)
        return ty_fail(error, TY_EPARSE,
                       "%s: found a step of %.4g samples (those of a device or replica times "
                       "their number), expected at most 2^30",
                       c->format, batch);
    if (c->global_batch == 0)
        c->global_batch = (uint32_t)batch;
    if (c->global_batch > 0 && c->workload != NULL)
        c->workload->global_batch = c->global_batch;
    return TY_OK;
}

ty_status ty_training_config_settle(ty_training_config *config, uint32_t devices, ty_error *error)
{
    ty_text text = {0};
    ty_status status;

    if (config->devices > 0 && config->devices != devices)
        ty_text_addf(&text, "the file starts %u devices, the cluster has %u: planned for these",
                     config->devices, devices);
    TY_CHECK(ty_text_check(&text, error), status, cleanup);
    if (text.length > 0)
        TY_CHECK(ty_import_report_add(&config->report, text.data, error), status, cleanup);
    TY_CHECK(set_batch(config, devices, error), status, cleanup);
    if (config->global_batch > 0)
        goto cleanup;
    ty_text_clear(&text);
    ty_text_addf(&text, "no batch is said: the model's, %u samples a step",
                 config->workload->global_batch);
    TY_CHECK(ty_text_check(&text, error), status, cleanup);
    status = ty_import_report_add(&config->report, text.data, error);

cleanup:
    ty_text_clear(&text);
    return status;
}

/* megatron/core/distributed/distributed_data_parallel.py: parameters of a bucket. */
#define LEAST_BUCKET_ELEMENTS 40000000
#define BUCKET_ELEMENTS_OF_RANK 1000000

ty_status ty_training_config_buckets(ty_training_config *config, uint32_t devices, ty_error *error)
{
    const double ranks = (double)replicas_among(config, devices) * fmax(config->context, 1) *
                         fmax(config->expert, 1);

    if (config->has_overlap && ranks == 1) {
        config->has_overlap = false;
        return config->is_overlapped
                   ? ty_import_report_add(&config->report,
                                          "overlap of gradients not used: there is one "
                                          "data-parallel rank",
                                          error)
                   : TY_OK;
    }
    if (config->bucket_elements == 0)
        config->bucket_elements =
            (uint64_t)fmax(LEAST_BUCKET_ELEMENTS, BUCKET_ELEMENTS_OF_RANK * ranks);
    return TY_OK;
}

/* Keys that nobody asked for. Of Megatron-LM's arguments their importer names them. */
static ty_status note_unread(const reading *r)
{
    ty_text text = {0};
    uint32_t count = 0;
    ty_status status = TY_OK;

    if (r->is_arguments && r->model == NULL)
        return TY_OK;
    for (uint32_t i = 0; i < r->pairs.count; i++) {
        const training_pair *p = &r->pairs.pairs[i];
        if (p->is_read || p->value[0] == '\0')
            continue;
        if (count++ < MOST_NAMED)
            ty_text_addf(&text, "%s%.60s", count > 1 ? ", " : "keys not read: ", p->key);
    }
    if (count > MOST_NAMED)
        ty_text_addf(&text, " and %u more", count - MOST_NAMED);
    TY_CHECK(ty_text_check(&text, r->error), status, cleanup);
    if (count > 0)
        status = note(r, text.data);

cleanup:
    ty_text_clear(&text);
    return status;
}

ty_status ty_training_config_load(const char *path, const char *model, uint64_t vocabulary,
                                  ty_training_config *out, ty_error *error)
{
    ty_training_config config = {0};
    reading r = {
        .path = path, .model = model, .vocabulary = vocabulary, .out = &config, .error = error};
    char *bytes = NULL;
    size_t length = 0, k = 0;
    ty_text conditional = {0}, line = {0}, unknown = {0};
    ty_status status;

    if (strlen(path) > 3 && strcmp(path + strlen(path) - 3, ".py") == 0) {
        status = ty_fail(error, TY_EPARSE,
                         "%.200s: found a recipe in Python, expected the YAML that it makes (NeMo: "
                         "--to-yaml; Megatron-Bridge: run_config.yaml of a checkpoint)",
                         path);
        goto cleanup;
    }
    TY_CHECK(ty_file_read(path, 0, &bytes, &length, error), status, cleanup);
    r.is_arguments = ty_is_megatron_arguments(bytes);
    if (r.is_arguments)
        status = ty_megatron_settings(path, bytes, length, &r.pairs, &conditional, error);
    else
        status = ty_training_pairs_read(path, bytes, length, &r.pairs, &unknown, error);
    TY_CHECK(status, status, cleanup);
    if (unknown.length > 0)
        TY_CHECK(note(&r, unknown.data), status, cleanup);
    while (k < COUNT(kinds) && !kinds[k].probe(&r.pairs))
        k++;
    if (k == COUNT(kinds)) {
        status = ty_fail(error, TY_EPARSE,
                         "%.200s: found no configuration that is known, expected torchtitan's "
                         "TOML, Megatron-LM's arguments, YAML of NeMo, Megatron-Bridge, "
                         "Megatron-LM or MaxText, or a "
                         "configuration of Accelerate or DeepSpeed",
                         path);
        goto cleanup;
    }
    ty_training_pairs_unread(&r.pairs);
    config.format = r.is_arguments ? "Megatron-LM arguments" : kinds[k].format;
    config.stack = kinds[k].stack;
    config.compression = "none"; /* unless the file says so */
    TY_CHECK(kinds[k].read(&r), status, cleanup);
    TY_CHECK(note_unread(&r), status, cleanup);
    if (conditional.length > 0) {
        ty_text_addf(&line, TY_MEGATRON_CONDITIONAL, conditional.data);
        TY_CHECK(ty_text_check(&line, error), status, cleanup);
        TY_CHECK(note(&r, line.data), status, cleanup);
    }
    TY_CHECK(count_expert_lanes(&r, &config), status, cleanup);
    if (config.data > 0) /* whatever the cluster has */
        TY_CHECK(set_batch(&config, 0, error), status, cleanup);
    *out = config;
    config = (ty_training_config){0}; /* given away */

cleanup:
    ty_training_config_clear(&config);
    ty_training_pairs_clear(&r.pairs);
    ty_text_clear(&line);
    ty_text_clear(&conditional);
    ty_text_clear(&unknown);
    ty_free(bytes);
    return status;
}

void ty_training_config_clear(ty_training_config *config)
{
    ty_workload_free(config->workload);
    ty_import_report_clear(&config->report);
    ty_text_clear(&config->switches);
    *config = (ty_training_config){0};
}

ty_status ty_training_config_bounds(const ty_training_config *config, ty_text *out, ty_error *error)
{
    if (config->has_fixed_ranks)
        ty_text_addf(out, "tp=%u,pp=%u,cp=%u", config->tensor, config->pipeline, config->context);
    return ty_text_check(out, error);
}

ty_status ty_training_config_fix(const ty_training_config *config, ty_text *out, ty_error *error)
{
    const struct {
        const char *key;
        uint32_t value;
        bool is_said;
    } rows[] = {
        {"tp", config->tensor, config->tensor > 0},
        {"pp", config->pipeline, config->pipeline > 0},
        {"cp", config->context, config->context > 0},
        {"ep", config->expert, config->expert > 0},
        {"dp", config->data, config->data > 0},
        {"interleave", config->interleave, config->interleave > 1},
        {"micro_batch", config->micro_batch, config->micro_batch > 0},
        {"zero", config->zero, config->has_zero},
    };

    for (size_t i = 0; i < COUNT(rows); i++)
        if (rows[i].is_said)
            ty_text_addf(out, "%s%s=%u", out->length > 0 ? "," : "", rows[i].key, rows[i].value);
    if (config->has_sequence)
        ty_text_addf(out, "%ssp=%d", out->length > 0 ? "," : "", config->is_along_sequence);
    if (config->recompute != NULL)
        ty_text_addf(out, "%srecompute=%s", out->length > 0 ? "," : "", config->recompute);
    if (config->recompute != NULL && config->segment > 1 && strcmp(config->recompute, "full") == 0)
        ty_text_addf(out, ":%u", config->segment);
    if (config->schedule != NULL)
        ty_text_addf(out, "%sschedule=%s", out->length > 0 ? "," : "", config->schedule);
    if (config->compression != NULL)
        ty_text_addf(out, "%scompression=%s", out->length > 0 ? "," : "", config->compression);
    if (config->has_overlap && !config->is_overlapped)
        ty_text_add(out, ",bucket=one");
    else if (config->has_overlap && config->bucket_elements > 0)
        ty_text_addf(out, ",bucket=%lluB",
                     (unsigned long long)(config->bucket_elements * TY_GRADIENT_ELEMENT_BYTES));
    return ty_text_check(out, error);
}
