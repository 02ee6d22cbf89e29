/* The configurations of data/models.jsonl: parameters as in earlier counts, as published, and as in
 * the table of docs/reference/models.md. */
#include "import.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct row {
    const char *name, *published, *source;
    uint64_t parameters;
    char *config;
} row;

static row read_row(const ty_json *line)
{
    row r = {0};
    const ty_json *config;
    ty_error error = {0};

    cr_assert_eq(ty_json_string(line, "name", &r.name, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_json_string(line, "published", &r.published, &error), TY_OK);
    cr_assert_eq(ty_json_string(line, "source", &r.source, &error), TY_OK);
    cr_assert_eq(ty_json_uint64(line, "parameters", 1, (uint64_t)1 << 52, &r.parameters, &error),
                 TY_OK);
    cr_assert_eq(ty_json_object(line, "config", &config, &error), TY_OK);
    cr_assert_eq(ty_json_text(config, &r.config, &error), TY_OK);
    return r;
}

/* "355 B", "13.5 M", or all digits; @param is_exact [out] */
static double published(const char *text, bool *is_exact)
{
    char digits[32] = "", *end = digits;
    double value;

    for (; *text != '\0' && end < digits + sizeof digits - 1; text++)
        if (*text != ',')
            *end++ = *text;
    *end = '\0';
    value = strtod(digits, &end);
    *is_exact = *end == '\0';
    return strcmp(end, " B") == 0 ? 1e9 * value : strcmp(end, " M") == 0 ? 1e6 * value : value;
}

static void with_commas(uint64_t number, char out[32])
{
    char digits[24];
    size_t length = (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)number);

    for (size_t i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            *out++ = ',';
        *out++ = digits[i];
    }
    *out = '\0';
}

static void check_row(const row *r, const char *page)
{
    ty_workload *w = NULL;
    ty_error error = {0};
    char number[32], line[200];
    double wanted;
    uint64_t counted;
    const char *at;
    bool is_exact;

    cr_assert_eq(
        ty_import_bytes("config.json", r->config, strlen(r->config), NULL, &w, NULL, &error), TY_OK,
        "%s: %s", r->name, error.message);
    counted = ty_workload_parameter_bytes(w, 0, w->layer_count) / w->element_bytes;
    wanted = published(r->published, &is_exact);
    cr_expect_eq(counted, r->parameters, "%s: %llu", r->name, (unsigned long long)counted);
    cr_expect(fabs((double)counted - wanted) <= (is_exact ? 0 : 0.01 * wanted), "%s: %llu and %s",
              r->name, (unsigned long long)counted, r->published);
    with_commas(counted, number);
    snprintf(line, sizeof line, "\n| %s |", r->name);
    at = strstr(page, line);
    cr_assert_not_null(at, "docs/reference/models.md has no row %s", r->name);
    snprintf(line, sizeof line, "| %s | %s | %s |\n", number, r->published, r->source);
    cr_expect(strstr(at + 1, line) != NULL && strstr(at + 1, line) < strchr(at + 1, '\n'),
              "docs/reference/models.md: row %s lacks %s", r->name, line);
    ty_workload_free(w);
}

Test(models, parameters_of_published_configurations)
{
    char *text = NULL, *page = NULL, *rest, *line;
    size_t length;
    ty_error error = {0};
    uint32_t count = 0, in_page = 0, families = 0, before;
    const char *known[200];
    char first[64];

    cr_assert_eq(ty_file_read(TY_TEST_SOURCE "/data/models.jsonl", 0, &text, &length, &error),
                 TY_OK, "%s", error.message);
    cr_assert_eq(ty_file_read(TY_DOCS "/reference/models.md", 0, &page, &length, &error), TY_OK,
                 "%s", error.message);
    for (line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        ty_json_document *document = NULL;
        row r;
        cr_assert_eq(ty_json_parse(line, strlen(line), "models.jsonl", &document, &error), TY_OK,
                     "%s", error.message);
        r = read_row(ty_json_root(document));
        check_row(&r, page);
        ty_free(r.config);
        ty_json_free(document);
        count++;
    }
    for (char *at = page; (at = strstr(at, "` | ")) != NULL; at++) {
        char *family = at;
        if (at[4] < '0' || at[4] > '9')
            continue;
        in_page++;
        while (family[-1] != '`')
            family--;
        *at = '\0';
        for (before = 0; before < families && strcmp(known[before], family) != 0; before++)
            ;
        if (before == families && families < sizeof known / sizeof known[0])
            known[families++] = family;
    }
    cr_expect_eq(in_page, count, "docs/reference/models.md has %u rows", in_page);
    cr_expect_geq(count, 90);
    cr_expect_geq(families, 40);
    snprintf(first, sizeof first, "\n%u configurations of %u kinds", count, families);
    cr_expect(strstr(page, first) != NULL, "docs/reference/models.md does not say \"%s\"",
              first + 1);
    ty_free(text);
    ty_free(page);
}

/* ---- Forms of the file ----------------------------------------------------------------------- */

static uint64_t count_of(const char *text)
{
    ty_workload *w = NULL;
    ty_error error = {0};
    uint64_t counted;

    cr_assert_eq(ty_import_bytes("config.json", text, strlen(text), NULL, &w, NULL, &error), TY_OK,
                 "%.80s: %s", text, error.message);
    counted = ty_workload_parameter_bytes(w, 0, w->layer_count) / w->element_bytes;
    ty_workload_free(w);
    return counted;
}

#define GPTJ                                                                                       \
    "\"n_embd\": 4096, \"n_head\": 16, \"n_layer\": 28, \"n_positions\": 2048, "                   \
    "\"vocab_size\": 50400"
#define SANTA                                                                                      \
    "\"n_embd\": 2048, \"n_head\": 16, \"n_layer\": 24, \"n_inner\": 8192, \"n_positions\": "      \
    "2048, "                                                                                       \
    "\"vocab_size\": 49280"

/* Without a type the class decides: GPT-J's attention has no biases, StarCoder has one key head,
 * ALBERT's blocks share weights, ELECTRA's embeddings are narrower than its blocks. */
Test(models, classes_for_types)
{
#define ENCODER                                                                                    \
    "\"type_vocab_size\": 2, \"max_position_embeddings\": 512, \"embedding_size\": 128, "
    static const struct {
        const char *text;
        uint64_t parameters;
    } rows[] = {
        {"{\"architectures\": [\"AlbertForMaskedLM\"], " ENCODER
         "\"hidden_size\": 4096, \"intermediate_size\": 16384, \"num_attention_heads\": 64, "
         "\"num_hidden_layers\": 12, \"vocab_size\": 30000}",
         222595584},
        {"{\"architectures\": [\"ElectraForPreTraining\"], " ENCODER
         "\"hidden_size\": 256, \"intermediate_size\": 1024, \"num_attention_heads\": 4, "
         "\"num_hidden_layers\": 12, \"vocab_size\": 30522}",
         13483008},
        {"{\"architectures\": [\"BloomForCausalLM\"], \"n_layer\": 70, \"hidden_size\": 14336, "
         "\"n_head\": 112, \"vocab_size\": 250880}",
         176247271424},
        {"{\"architectures\": [\"Olmo2ForCausalLM\"], \"hidden_size\": 4096, "
         "\"intermediate_size\": 11008, \"num_attention_heads\": 32, \"num_hidden_layers\": 32, "
         "\"vocab_size\": 100352, \"max_position_embeddings\": 4096}",
         7298617344},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        cr_expect_eq(count_of(rows[i].text), rows[i].parameters, "row %zu: %llu", i,
                     (unsigned long long)count_of(rows[i].text));
    cr_expect_eq(count_of("{\"architectures\": [\"GPTJForCausalLM\"], " GPTJ "}"), 6050882784);
    cr_expect_eq(count_of("{\"architectures\": [\"GPTBigCodeForCausalLM\"], " SANTA "}"),
                 count_of("{\"model_type\": \"gpt_bigcode\", " SANTA "}"));
    cr_expect_lt(count_of("{\"architectures\": [\"GPTBigCodeForCausalLM\"], " SANTA "}"),
                 count_of("{\"architectures\": [\"GPT2LMHeadModel\"], " SANTA "}"));
}

#define MAMBA                                                                                      \
    "{\"model_type\": \"mamba2\", \"num_hidden_layers\": 2, \"hidden_size\": 64, "                 \
    "\"num_heads\": 8, \"head_dim\": 16, \"vocab_size\": 100, \"time_step_limit\": "

/* Python's words for numbers that JSON lacks, and the same words in texts. */
Test(models, numbers_of_python)
{
    uint64_t plain = count_of(MAMBA "[0.0, 1.0]}");

    cr_expect_eq(count_of(MAMBA "[0.0, Infinity]}"), plain);
    cr_expect_eq(count_of(MAMBA "[-Infinity, NaN], \"name\": \"Infinity \\\" NaN\"}"), plain);
}

/* The enclosing configuration gives the type of its part, and whether matrices are tied. */
Test(models, parts_of_a_whole)
{
#define PART                                                                                       \
    "\"hidden_size\": 64, \"intermediate_size\": 128, \"num_attention_heads\": 4, "                \
    "\"num_hidden_layers\": 2, \"vocab_size\": 100"
    uint64_t tied =
        count_of("{\"model_type\": \"qwen3\", \"tie_word_embeddings\": true, " PART "}");

    cr_expect_eq(count_of("{\"model_type\": \"qwen3_vl\", \"tie_word_embeddings\": true, "
                          "\"text_config\": {" PART "}}"),
                 tied);
    cr_expect_eq(count_of("{\"model_type\": \"qwen3_vl\", \"text_config\": {\"model_type\": "
                          "\"qwen3_vl_text\", " PART "}}"),
                 tied + 100 * 64);
}

/* Omitted values of a part are the defaults of its class; blocks as words equal blocks as
 * letters. */
Test(models, defaults_and_lists_of_blocks)
{
#define HYBRID                                                                                     \
    "{\"model_type\": \"nemotron_h\", \"num_hidden_layers\": 4, \"hidden_size\": 64, "             \
    "\"intermediate_size\": 128, \"num_attention_heads\": 4, \"vocab_size\": 100, "                \
    "\"mamba_num_heads\": 8, \"mamba_head_dim\": 16, "
    cr_expect_eq(
        count_of("{\"model_type\": \"llava\", \"text_config\": {\"model_type\": \"llama\"}}"),
        6738415616); /* a Llama of 7 B */
    cr_expect_eq(count_of(HYBRID "\"hybrid_override_pattern\": \"M*-M\"}"),
                 count_of(HYBRID "\"layers_block_type\": [\"mamba\", \"attention\", \"mlp\", "
                                 "\"mamba\"]}"));
}

Test(models, unknown_ones_are_refused_by_name)
{
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"{\"architectures\": [\"MyOwnForCausalLM\"], " GPTJ "}",
         "/architectures/0: found \"MyOwnForCausalLM\", expected a \"model_type\""},
        {"{\"model_type\": \"deepseek_v4\", " GPTJ "}", "found \"deepseek_v4\""},
        {"{\"model_type\": \"siglip\", \"text_config\": {}}", "f:/model_type: found \"siglip\""},
        {"{\"_class_name\": \"UNet2DConditionModel\"}", "found \"UNet2DConditionModel\""},
        {"{\"_class_name\": \"Transformer2DModel\", \"norm_type\": \"layer_norm\"}",
         "expected a Transformer2DModel with norm_type ada_norm_zero"},
        {"{\"model_type\": \"nemotron_h\", \"hidden_size\": 64, \"num_hidden_layers\": 2, "
         "\"num_attention_heads\": 4, \"vocab_size\": 100, \"intermediate_size\": 64, "
         "\"hybrid_override_pattern\": \"MX\"}",
         "/hybrid_override_pattern: found \"MX\", expected one of M, *, -, E"},
        {"{\"_class_name\": \"FluxTransformer2DModel\", \"num_layers\": 2147483647}",
         "expected an integer from 1 to 10000"},
        /* another model with the same sizes */
        {"{\"model_type\": \"minimax\", \"num_local_experts\": 4, \"num_experts_per_tok\": 2, "
         "\"layer_types\": [\"full_attention\", \"linear_attention\"], " PART "}",
         "/layer_types/1: found \"linear_attention\", expected one of full_attention"},
        {"{\"model_type\": \"minimax\", \"num_local_experts\": 4, \"num_experts_per_tok\": 2, "
         "\"attn_type_list\": [1, 0], " PART "}",
         "/attn_type_list/1: found 0, expected an integer from 1 to 1"},
        {"{\"model_type\": \"llama\", \"layer_types\": [\"conv\", \"full_attention\"], " PART "}",
         "/layer_types/0: found \"conv\""},
        {"{\"model_type\": \"gpt2\", \"add_cross_attention\": true, " GPTJ "}",
         "/add_cross_attention: found true, expected false"},
        {"{\"model_type\": \"bert\", \"is_decoder\": true, \"type_vocab_size\": 2, "
         "\"max_position_embeddings\": 512, " PART "}",
         "/is_decoder: found true, expected false"},
        {"{\"model_type\": \"exaone4\", \"sliding_window_pattern\": \"LGL\", " PART "}",
         "/sliding_window_pattern: found \"LGL\", expected one of G, LG"},
        {"{\"_class_name\": \"Transformer2DModel\", \"norm_type\": \"ada_norm_single\", "
         "\"num_embeds_ada_norm\": 1000}",
         "expected a Transformer2DModel with norm_type ada_norm_zero"},
        {"{\"_class_name\": \"SD3Transformer2DModel\", \"num_layers\": 2, "
         "\"dual_attention_layers\": [2]}",
         "/dual_attention_layers/0: found 2"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = NULL;
        ty_error error = {0};
        cr_expect_eq(
            ty_import_bytes("f", rows[i].text, strlen(rows[i].text), NULL, &w, NULL, &error),
            TY_EPARSE, "row %zu", i);
        cr_expect(strstr(error.message, rows[i].part) != NULL, "row %zu: %s", i, error.message);
    }
}

/* A window has an effect only if the sequence is longer. */
Test(models, windows_within_the_sequence)
{
    static const char text[] = "{\"model_type\": \"mistral\", \"sliding_window\": 1024, " PART "}";

    for (uint64_t sequence = 512; sequence <= 2048; sequence *= 4) {
        const ty_import_options options = {.sequence = sequence};
        ty_workload *w = NULL;
        uint32_t windows = 0;
        cr_assert_eq(ty_import_bytes("f", text, strlen(text), &options, &w, NULL, NULL), TY_OK);
        for (uint32_t i = 0; i < w->layer_count; i++)
            windows += w->layers[i].attributes[TY_WINDOW] == 1024;
        cr_expect_eq(windows, sequence > 1024 ? 2 : 0);
        ty_workload_free(w);
    }
}

/* Blocks with a window: by words, by letters, by the default of the class; and blocks with experts
 * by words. */
Test(models, blocks_that_differ)
{
#define BLOCKS                                                                                     \
    "\"hidden_size\": 64, \"intermediate_size\": 128, \"num_attention_heads\": 4, "                \
    "\"num_hidden_layers\": 8, \"vocab_size\": 100"
    static const char experts[] =
        "{\"model_type\": \"deepseek\", \"n_routed_experts\": 4, \"num_experts_per_tok\": 2, "
        "\"moe_intermediate_size\": 32, \"mlp_layer_types\": [\"dense\", \"sparse\"], " PART "}";
    static const struct {
        const char *text;
        uint32_t windows;
    } rows[] = {
        {"{\"model_type\": \"exaone4\", \"sliding_window\": 16, \"sliding_window_pattern\": "
         "\"LLLG\", " BLOCKS "}",
         6},
        {"{\"model_type\": \"exaone4\", \"sliding_window\": 16, \"sliding_window_pattern\": "
         "\"LG\", " BLOCKS "}",
         4},
        {"{\"model_type\": \"olmo3\", \"sliding_window\": 16, " BLOCKS "}", 6},
        {"{\"model_type\": \"olmo2\", " BLOCKS "}", 0},
        {"{\"model_type\": \"phi3small\", \"ff_intermediate_size\": 128, "
         "\"blocksparse_block_size\": 4, \"blocksparse_num_local_blocks\": 2, " BLOCKS "}",
         4},
    };
    ty_workload *w = NULL;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const ty_import_options options = {.sequence = 512};
        uint32_t windows = 0;
        cr_assert_eq(
            ty_import_bytes("f", rows[i].text, strlen(rows[i].text), &options, &w, NULL, NULL),
            TY_OK);
        for (uint32_t l = 0; l < w->layer_count; l++)
            windows += w->layers[l].attributes[TY_WINDOW] > 0;
        cr_expect_eq(windows, rows[i].windows, "row %zu: %u", i, windows);
        ty_workload_free(w);
    }
    cr_assert_eq(ty_import_bytes("f", experts, strlen(experts), NULL, &w, NULL, NULL), TY_OK);
    for (uint32_t l = 0, fed = 0; l < w->layer_count; l++)
        if (w->layers[l].kind == TY_LAYER_MLP || w->layers[l].kind == TY_LAYER_MOE)
            cr_expect_eq(w->layers[l].kind, fed++ == 0 ? TY_LAYER_MLP : TY_LAYER_MOE);
    ty_workload_free(w);
}

/* Number of text rows per image: the patches per side that the complete configuration merges. */
Test(models, images_as_rows_of_text)
{
#define SEEING(type, whole, eyes)                                                                  \
    "{\"model_type\": \"" type "\", " whole "\"text_config\": {\"model_type\": \"llama\", " PART   \
    "}, \"vision_config\": {" eyes                                                                 \
    "\"hidden_size\": 32, \"num_hidden_layers\": 1, \"num_attention_heads\": 2}}"
    static const struct {
        const char *text;
        uint64_t patches, rows;
    } rows[] = {
        {SEEING("llava", "", "\"image_size\": 64, \"patch_size\": 8, "), 64, 64},
        {SEEING("mistral3", "\"spatial_merge_size\": 2, ",
                "\"image_size\": 64, \"patch_size\": 8, "),
         64, 16},
        {SEEING("idefics3", "\"scale_factor\": 4, ", "\"image_size\": 64, \"patch_size\": 8, "), 64,
         4},
        {SEEING("internvl", "\"downsample_ratio\": 0.5, ",
                "\"image_size\": [64, 64], \"patch_size\": [8, 8], "),
         65, 16}, /* and a class */
        {SEEING("qwen2_vl", "",
                "\"embed_dim\": 16, \"spatial_merge_size\": 2, \"image_size\": 64, "
                "\"patch_size\": 8, "),
         64, 16},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = NULL;
        ty_error error = {0};
        uint32_t found = 0;
        cr_assert_eq(
            ty_import_bytes("f", rows[i].text, strlen(rows[i].text), NULL, &w, NULL, &error), TY_OK,
            "row %zu: %s", i, error.message);
        for (uint32_t l = 0; l < w->layer_count; l++) {
            const ty_layer *layer = &w->layers[l];
            bool is_last = strcmp(layer->name, "vision.projector") == 0;
            if (strcmp(layer->name, "vision.patches") != 0 && !is_last)
                continue;
            found++;
            cr_expect_eq(layer->output.dimensions[0], is_last ? rows[i].rows : rows[i].patches,
                         "row %zu, %s: %llu", i, layer->name,
                         (unsigned long long)layer->output.dimensions[0]);
        }
        cr_expect_eq(found, 2);
        ty_workload_free(w);
    }
}

/* The configurations next to the project: each within 1 % of the published count. */
Test(models, configurations_of_the_data)
{
    static const struct {
        const char *file;
        double billions; /* 0: refused by name */
    } rows[] = {
        {"DeepSeek-V4-Flash", 0},
        {"GLM-5-NVFP4", 744},
        {"Gemma-4-31B-IT-NVFP4", 31.3},
        {"Kimi-K2.5", 1027},
        {"Llama-3_3-Nemotron-Super-49B-v1", 49.9},
        {"Meta-Llama-3.1-8B", 8.03},
        {"MiMo-7B-Base", 7.62},
        {"MiniMax-M3", 0},
        {"NVIDIA-Nemotron-3-Super-120B-A12B-FP8", 120.6},
        {"Qwen3-Coder-480B-A35B-Instruct", 480},
        {"Qwen3-VL-30B-A3B-Instruct", 31.1},
        {"Qwen3.5-122B-A10B", 122.6},
        {"gpt-oss-120b", 116.83},
        {"gpt-oss-20b", 20.91},
        {"hand-albert-xxlarge-no-type", 0.2226},
        {"hand-bloom-176b-no-type", 176.25},
        {"hand-clip-vit-l-14", 0.4276},
        {"hand-dit-xl-2", 0.675},
        {"hand-falcon-40b", 41.3},
        {"hand-flux-dev-transformer", 11.9},
        {"hand-gemma-3-4b", 4.3},
        {"hand-glm-4.5", 353},
        {"hand-gptj-no-type", 6.05},
        {"hand-kimi-k2-as-dsv3", 1026.4},
        {"hand-llama-bias", 6.74},
        {"hand-mamba2-2.7b-original", 2.7026},
        {"hand-minitron-4b-width", 4.51},
        {"hand-mistral-nemo-12b", 12.25},
        {"hand-model.safetensors.index", 0},
        {"hand-mt5-base", 0.5824},
        {"hand-olmo2-no-type", 7.3},
        {"hand-phi-4", 14.66},
        {"hand-qwen2.5-0.5b", 0.494},
        {"hand-qwen3moe-mlp-only", 16.936}, /* by hand: a dense first block, then every second */
        {"hand-roberta-no-type", 0.1247},
        {"hand-sd3-transformer", 2.03},
        {"hand-t5-v1_1-small", 0.07696},
        {"hand-vit-base", 0.0866},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = NULL;
        ty_error error = {0};
        char path[512];
        double counted;
        ty_status status;
        snprintf(path, sizeof path, "%s/models-2026/%s.json", TY_SHARED_DATA, rows[i].file);
        if (!ty_file_exists(path))
            cr_skip_test("%s is not there", path);
        status = ty_workload_import(path, NULL, &w, NULL, &error);
        if (rows[i].billions <= 0) {
            cr_expect_eq(status, TY_EPARSE, "%s", rows[i].file);
            continue;
        }
        cr_assert_eq(status, TY_OK, "%s", error.message);
        counted = (double)ty_workload_parameter_bytes(w, 0, w->layer_count) / 4e9;
        cr_expect(fabs(counted - rows[i].billions) <= 0.01 * rows[i].billions, "%s: %g B",
                  rows[i].file, counted);
        ty_workload_free(w);
    }
}
